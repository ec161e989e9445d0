//! Parsing the words of the meta commands: a key, and flags of one letter, some with a token.
//!
//! | letter | token | of | means |
//! |---|---|---|---|
//! | `b` | | all | the key is in base 64 |
//! | `O` | opaque | all | returned as it came |
//! | `k` | | all | the key is returned |
//! | `q` | | all | quiet: `EN` of `mg`, `HD` of the others are not sent |
//! | `v` `f` `s` `c` `t` `h` `l` | | `mg`, some of `ms` and `ma` | the value, client flags, size, cas token, remaining seconds, hit before, seconds since the last access |
//! | `u` | | `mg` | the access is not noted |
//! | `T` | seconds | `mg ms md ma` | a new expiry |
//! | `N` | seconds | `mg ma`, `ms` that appends or prepends | an absent item is made, with this expiry |
//! | `R` | seconds | `mg` | the first requester with less than this left is told to renew (`W`) |
//! | `C` | cas | `ms md ma` | only if the token is still this one |
//! | `E` | cas | all | the token of what is written; 0: as if absent |
//! | `I` | | `ms md` | an older token is accepted, and the item marked stale; `md`: mark stale |
//! | `F` | flags | `ms` | the client's flags |
//! | `M` | mode | `ms ma` | how to store (`E A P R S`), or to count (`I + D -`) |
//! | `D` `J` | number | `ma` | what to add, and what an absent item begins with |
//! | `x` | | `md` | the value is emptied, the item stays |
//! | `P` `L` | any | all | for proxies; ignored |
//!
//! As in memcached, a letter of another command is ignored, but its token is checked. Errors come
//! in this order: too many flags, letters, tokens (of several the last one's, that of `F` before
//! all others; the key counts as the token of `b`), the mode, the opaque's length.

use std::num::NonZero;

use super::arguments::{key, length};
use super::{KEY_BYTES_MAX, Line, Verb, base64, error, number};

/// Most flags of a command; one fewer if a length precedes them.
const FLAGS_MAX: usize = 17;

/// Longest opaque in bytes, including its letter.
const OPAQUE_BYTES_MAX: usize = 32;

/// The letters that some command knows.
const LETTERS: &[u8] = b"bcfhklqstuvxCDEFIJLMNOPRT";

const INVALID: &str = "CLIENT_ERROR invalid flag";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const INVALID_OR_DUPLICATE: &str = "CLIENT_ERROR invalid or duplicate flag";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";

/// Space for a key that arrived in base 64.
pub type KeyBuffer = [u8; KEY_BYTES_MAX];

/// The flags of `mg`, `ms`, `md` and `ma`.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol"
)]
pub struct Meta<'r> {
    line: Line<'r>,
    first_flag: usize,
    /// The key, decoded.
    pub key: &'r [u8],
    /// `b`
    pub base64: bool,
    /// `q`
    pub quiet: bool,
    /// `v`
    pub value: bool,
    /// `I`
    pub invalidate: bool,
    /// `x`
    pub empty: bool,
    /// `u`
    pub unnoted: bool,
    /// `h` or `l`
    pub asks_access: bool,
    /// `T`
    pub exptime: Option<i64>,
    /// `N`
    pub vivify: Option<i64>,
    /// `R`
    pub recache: Option<i64>,
    /// `T` comes before `R`, which then checks the new expiry.
    pub touched_first: bool,
    has_long_opaque: bool,
    /// `C`
    pub cas: Option<u64>,
    /// `E`, unless it is 0.
    pub new_cas: Option<NonZero<u64>>,
    /// `F`
    pub client_flags: u32,
    /// `M`
    pub mode: Option<u8>,
    /// `D`
    pub delta: u64,
    /// `J`
    pub initial: u64,
}

/// How many bytes of data the line of `ms` announces.
pub fn announced(line: Line<'_>) -> Result<usize, &'static str> {
    if line.len() < 2 {
        return Err(error::ERROR);
    }
    key(line, 1)?;
    if line.len() > 3 + FLAGS_MAX - 1 {
        return Err("CLIENT_ERROR options flags too long");
    }
    length(line, 2)
}

/// `me key [b]`: the key, decoded into `room` if it arrived in base 64.
pub fn debug<'r>(line: Line<'r>, room: &'r mut KeyBuffer) -> Result<&'r [u8], &'static str> {
    let word = key(line, 1).map_err(|_| error::BAD_FORMAT)?;
    if line.word(2) == Some(b"b") {
        decode(word, room).ok_or(error::BAD_FORMAT)
    } else {
        Ok(word)
    }
}

fn decode<'r>(word: &[u8], room: &'r mut KeyBuffer) -> Option<&'r [u8]> {
    let count = base64::decode(word, room)?;
    Some(&room[..count])
}

impl<'r> Meta<'r> {
    /// Parses the words of `mg`, `ms`, `md` or `ma`. After an error of `ms` the data that it
    /// announces, if any, are discarded. A key in base 64 is decoded into `room`.
    pub fn parse(
        verb: Verb,
        line: Line<'r>,
        room: &'r mut KeyBuffer,
    ) -> Result<Self, &'static str> {
        let first_flag = if verb == Verb::MetaSet {
            announced(line)?;
            3
        } else {
            2
        };
        let word = key(line, 1)?;
        if line.len() > 2 + FLAGS_MAX {
            return Err(if verb == Verb::MetaGet {
                "CLIENT_ERROR options flags are too long"
            } else {
                "CLIENT_ERROR options flags too long"
            });
        }
        let mut meta = Self {
            line,
            first_flag,
            key: word,
            base64: false,
            quiet: false,
            value: false,
            invalidate: false,
            empty: false,
            unnoted: false,
            asks_access: false,
            exptime: None,
            vivify: None,
            recache: None,
            touched_first: false,
            has_long_opaque: false,
            cas: None,
            new_cas: None,
            client_flags: 0,
            mode: None,
            delta: 1,
            initial: 0,
        };
        let general = matches!(verb, Verb::MetaGet | Verb::MetaSet);
        let known = meta.check_letters();
        let known = known.and_then(|()| meta.take_all(verb, room));
        known.map_err(|text| if general { text } else { INVALID_OR_DUPLICATE })?;
        match (verb, meta.mode) {
            (Verb::MetaSet, Some(mode)) if !b"EAPRS".contains(&mode) => {
                Err("CLIENT_ERROR invalid mode for ms M token")
            }
            (Verb::MetaArithmetic, Some(mode)) if !b"I+D-".contains(&mode) => {
                Err("CLIENT_ERROR invalid mode for ma M token")
            }
            _ if meta.has_long_opaque => Err(OPAQUE_TOO_LONG),
            _ => Ok(meta),
        }
    }

    /// The flags as they were sent: a letter, with its token.
    #[inline]
    pub fn flags(&self) -> impl Iterator<Item = &'r [u8]> + use<'r> {
        self.line.words_from(self.first_flag)
    }

    /// No letter comes twice, and each is a valid letter.
    fn check_letters(&self) -> Result<(), &'static str> {
        let mut seen: u128 = 0;
        for flag in self.flags() {
            let letter = flag[0];
            if !LETTERS.contains(&letter) {
                return Err(INVALID);
            }
            if seen >> letter & 1 == 1 {
                return Err(DUPLICATE);
            }
            seen |= 1 << letter;
        }
        Ok(())
    }

    /// Parses the flags' tokens, and the key if it is in base 64.
    #[inline]
    fn take_all(&mut self, verb: Verb, room: &'r mut KeyBuffer) -> Result<(), &'static str> {
        let mut result = Ok(());
        let mut room = Some(room);
        for flag in self.flags() {
            let mut taken = self.take(flag, verb);
            if flag[0] == b'b'
                && let Some(room) = room.take()
            {
                match decode(self.key, room) {
                    Some(key) => self.key = key,
                    None => taken = Err("CLIENT_ERROR error decoding key"),
                }
            }
            if let Err(text) = taken
                && (result.is_ok() || text != error::BAD_FORMAT)
            {
                result = Err(text);
            }
        }
        result
    }

    #[inline]
    fn take(&mut self, flag: &[u8], verb: Verb) -> Result<(), &'static str> {
        let token = &flag[1..];
        let seconds = || number::signed(token).ok_or(BAD_TOKEN);
        match flag[0] {
            b'b' => self.base64 = true,
            b'q' => self.quiet = true,
            b'v' => self.value = true,
            b'u' => self.unnoted = true,
            b'I' => self.invalidate = true,
            b'x' if verb == Verb::MetaDelete => self.empty = true,
            b'O' => self.has_long_opaque = flag.len() > OPAQUE_BYTES_MAX,
            b'h' | b'l' => self.asks_access = true,
            b'c' | b'f' | b'k' | b's' | b't' | b'L' | b'P' => {}
            b'T' => self.exptime = Some(seconds()?),
            b'N' => self.vivify = Some(seconds()?),
            b'R' => {
                self.recache = Some(seconds()?);
                self.touched_first = self.exptime.is_some();
            }
            b'C' => self.cas = Some(number::unsigned(token).ok_or(BAD_TOKEN)?),
            b'E' => self.new_cas = NonZero::new(number::unsigned(token).ok_or(BAD_TOKEN)?),
            b'F' => self.client_flags = number::unsigned_32(token).ok_or(error::BAD_FORMAT)?,
            b'D' => {
                let delta = number::unsigned(token);
                self.delta = delta.ok_or("CLIENT_ERROR invalid numeric delta value")?;
            }
            b'J' => {
                let initial = number::unsigned(token);
                self.initial = initial.ok_or("CLIENT_ERROR invalid numeric initial value")?;
            }
            b'M' => match token {
                [mode] => self.mode = Some(*mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            _ => return Err(INVALID),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::RequestBuffer;

    use super::*;

    fn error_of(words: &str) -> Option<&'static str> {
        let words = std::iter::once("").chain(words.split(' '));
        let buffer = RequestBuffer::from_args(words);
        let line = Line::new(buffer.as_request());
        Meta::parse(line.verb(), line, &mut [0; KEY_BYTES_MAX]).err()
    }

    #[test]
    fn the_errors_are_those_of_memcached() {
        let opaque = "O".repeat(33);
        let many = "mg k b c f h k l s t u v I P L q O1 T0 F0 MS N0".to_string();
        for (words, error) in [
            ("mg", Some(error::ERROR)),
            ("mg k", None),
            ("mg k v k", None),
            ("mg k k k", Some(DUPLICATE)),
            ("mg k !", Some(INVALID)),
            ("mg k T !", Some(INVALID)),
            ("mg k c T c", Some(DUPLICATE)),
            ("mg k a", Some(INVALID)),
            ("mg k x", Some(INVALID)),
            ("mg k v 5", Some(INVALID)),
            ("mg k T 5", Some(INVALID)),
            ("mg k z v v", Some(INVALID)),
            ("mg k v v z", Some(DUPLICATE)),
            ("md Y b", Some(INVALID_OR_DUPLICATE)),
            ("mg k P L1", None),
            ("mg k E", Some(BAD_TOKEN)),
            ("mg k E0", None),
            ("ms k 1 E18446744073709551615 C", Some(BAD_TOKEN)),
            ("ms k 1 E18446744073709551616", Some(BAD_TOKEN)),
            ("md k E", Some(INVALID_OR_DUPLICATE)),
            ("ma k E1 E2", Some(INVALID_OR_DUPLICATE)),
            ("mg k T", Some(BAD_TOKEN)),
            ("mg k F", Some(error::BAD_FORMAT)),
            ("mg k M", Some("CLIENT_ERROR incorrect length for M token")),
            ("mg k M1", None),
            ("mg Y b", Some("CLIENT_ERROR error decoding key")),
            ("mg Y b T", Some(BAD_TOKEN)),
            ("mg Y T b", Some("CLIENT_ERROR error decoding key")),
            ("mg Y Fx b", Some("CLIENT_ERROR error decoding key")),
            ("mg Y b Fx", Some("CLIENT_ERROR error decoding key")),
            (
                &format!("ms k 2 {opaque} MX"),
                Some("CLIENT_ERROR invalid mode for ms M token"),
            ),
            ("ms k", Some(error::BAD_FORMAT)),
            ("ms k S2", Some(error::BAD_FORMAT)),
            (
                "ms k 2 MX",
                Some("CLIENT_ERROR invalid mode for ms M token"),
            ),
            ("md k x", None),
            ("md k v v", Some(INVALID_OR_DUPLICATE)),
            ("ma k D", Some(INVALID_OR_DUPLICATE)),
            ("ma k MX", Some("CLIENT_ERROR invalid mode for ma M token")),
            ("ma k Mincr", Some(INVALID_OR_DUPLICATE)),
            ("mg k T Fx", Some(BAD_TOKEN)),
            ("mg k Fx T", Some(BAD_TOKEN)),
            (
                "ms k 1 Fx Mxx Jx",
                Some("CLIENT_ERROR invalid numeric initial value"),
            ),
            (&format!("mg k {opaque} T"), Some(BAD_TOKEN)),
            (&format!("md k {opaque} T"), Some(INVALID_OR_DUPLICATE)),
            (&format!("mg k {opaque}"), Some(OPAQUE_TOO_LONG)),
            (&format!("ma k {opaque}"), Some(OPAQUE_TOO_LONG)),
            (&format!("mg k {}", &opaque[1..]), None),
            (&many, Some("CLIENT_ERROR options flags are too long")),
        ] {
            assert_eq!(error_of(words), error, "{words}");
        }
    }

    #[test]
    fn keys_in_base_64_are_decoded() {
        let buffer = RequestBuffer::from_args(["", "mg", "YWI=", "k", "b"]);
        let line = Line::new(buffer.as_request());
        let mut room = [0; KEY_BYTES_MAX];
        let meta = Meta::parse(Verb::MetaGet, line, &mut room).unwrap();
        assert_eq!((meta.key, meta.base64), (&b"ab"[..], true));
        assert_eq!(debug(line, &mut room), Ok(&b"YWI="[..]));
        let buffer = RequestBuffer::from_args(["", "me", "YWI=", "b"]);
        let line = Line::new(buffer.as_request());
        assert_eq!(debug(line, &mut room), Ok(&b"ab"[..]));
    }
}
