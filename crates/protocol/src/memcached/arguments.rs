//! Parsing the words of the text commands; the meta commands' are in [`super::meta`].
//!
//! Every error is its reply line. After `noreply` it is not sent, unless it is [`error::ERROR`]:
//! memcached counts words before it looks for `noreply`.

use std::ops::RangeInclusive;

use super::{KEY_BYTES_MAX, Line, Verb, error, meta, number};

/// Longest block of data that a line may announce (memcached's `int`, with a line end).
const DATA_BYTES_MAX: i64 = i32::MAX as i64 - 2;

/// Refuses a line with the wrong number of words for its command.
fn count(line: Line<'_>, words: RangeInclusive<usize>) -> Result<(), &'static str> {
    if words.contains(&line.len()) {
        Ok(())
    } else {
        Err(error::ERROR)
    }
}

/// A word that is a key.
#[inline]
pub(super) fn key(line: Line<'_>, index: usize) -> Result<&[u8], &'static str> {
    let key = line.word(index).ok_or(error::ERROR)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(error::BAD_FORMAT);
    }
    Ok(key)
}

/// A word that announces a length.
#[inline]
pub(super) fn length(line: Line<'_>, index: usize) -> Result<usize, &'static str> {
    line.word(index)
        .and_then(number::signed)
        .filter(|bytes| (0..=DATA_BYTES_MAX).contains(bytes))
        .map(|bytes| bytes as usize)
        .ok_or(error::BAD_FORMAT)
}

fn exptime(line: Line<'_>, index: usize) -> Result<i64, &'static str> {
    let word = line.word(index).ok_or(error::ERROR)?;
    number::signed(word).ok_or(error::BAD_EXPTIME)
}

/// How many bytes of data follow a storage command's line, if that can be told.
#[must_use]
#[inline]
pub fn announced(verb: Verb, line: Line<'_>) -> Option<usize> {
    if verb == Verb::MetaSet {
        meta::announced(line).ok()
    } else {
        Store::parse(verb, line).ok().map(|store| store.data_bytes)
    }
}

/// Whether this is a `set` with which a client can authenticate: one that says how many bytes of
/// data follow, whatever its key, flags and expiry.
#[must_use]
pub fn authenticates(verb: Verb, line: Line<'_>) -> bool {
    verb == Verb::Set && length(line, 4).is_ok()
}

/// How many bytes follow a line of a client that must authenticate.
#[must_use]
pub fn announced_unauthenticated(verb: Verb, line: Line<'_>) -> Option<usize> {
    (verb == Verb::Set).then(|| length(line, 4).ok())?
}

/// `set key flags exptime bytes [noreply]` and similar; `cas` has the token before `noreply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'r> {
    /// The key.
    pub key: &'r [u8],
    /// The client's flags.
    pub flags: u32,
    /// The expiry time as it was sent.
    pub exptime: i64,
    /// Announced bytes of data.
    pub data_bytes: usize,
    /// The token of `cas`.
    pub cas: Option<u64>,
}

impl<'r> Store<'r> {
    /// Reads the words of a storage command.
    #[inline]
    pub fn parse(verb: Verb, line: Line<'r>) -> Result<Self, &'static str> {
        let more = usize::from(verb == Verb::Cas);
        count(line, 5 + more..=6 + more)?;
        let bad = error::BAD_FORMAT;
        let word = |index| line.word(index).ok_or(bad);
        Ok(Self {
            key: key(line, 1)?,
            flags: number::unsigned_32(word(2)?).ok_or(bad)?,
            exptime: number::signed(word(3)?).ok_or(bad)?,
            data_bytes: length(line, 4)?,
            cas: if more == 1 {
                Some(number::unsigned(word(5)?).ok_or(bad)?)
            } else {
                None
            },
        })
    }
}

/// `incr key delta [noreply]` and `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'r> {
    /// The key.
    pub key: &'r [u8],
    /// The amount to add or subtract.
    pub delta: u64,
}

impl<'r> Arithmetic<'r> {
    /// Reads the words.
    pub fn parse(line: Line<'r>) -> Result<Self, &'static str> {
        count(line, 3..=4)?;
        let key = key(line, 1)?;
        let delta = line.word(2).and_then(number::unsigned);
        let delta = delta.ok_or(error::BAD_DELTA)?;
        Ok(Self { key, delta })
    }
}

/// `touch key exptime [noreply]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'r> {
    /// The key.
    pub key: &'r [u8],
    /// The expiry time as it was sent.
    pub exptime: i64,
}

impl<'r> Touch<'r> {
    /// Reads the words.
    pub fn parse(line: Line<'r>) -> Result<Self, &'static str> {
        count(line, 3..=4)?;
        let key = key(line, 1)?;
        let exptime = exptime(line, 2)?;
        Ok(Self { key, exptime })
    }
}

/// `delete key [0] [noreply]`: the key.
pub fn delete(line: Line<'_>) -> Result<&[u8], &'static str> {
    count(line, 2..=4)?;
    let zero = line.word(2) == Some(b"0");
    let sound = match line.len() {
        2 => true,
        3 => zero || line.is_noreply(),
        _ => zero && line.is_noreply(),
    };
    if !sound {
        return Err(error::BAD_DELETE);
    }
    key(line, 1)
}

/// `get key…` and `gets`: the keys, unchecked.
#[inline]
pub fn get(line: Line<'_>) -> Result<impl ExactSizeIterator<Item = &[u8]> + Clone, &'static str> {
    count(line, 2..=usize::MAX)?;
    Ok(line.words_from(1))
}

/// `gat exptime key…` and `gats`: the expiry time as it was sent, and the keys, unchecked.
pub fn gat(
    line: Line<'_>,
) -> Result<(i64, impl ExactSizeIterator<Item = &[u8]> + Clone), &'static str> {
    count(line, 2..=usize::MAX)?;
    Ok((exptime(line, 1)?, line.words_from(2)))
}

/// `flush_all [delay] [noreply]`: the delay as it was sent.
pub fn flush_all(line: Line<'_>) -> Result<Option<i64>, &'static str> {
    count(line, 1..=3)?;
    match line.len() {
        1 => Ok(None),
        2 if line.is_noreply() => Ok(None),
        _ => exptime(line, 1).map(Some),
    }
}

/// `verbosity level [noreply]`.
pub fn verbosity(line: Line<'_>) -> Result<(), &'static str> {
    count(line, 2..=3)?;
    let level = line.word(1).and_then(number::unsigned_32);
    level.map(|_| ()).ok_or(error::BAD_FORMAT)
}

/// `cache_memlimit mebibytes [noreply]`: the mebibytes.
pub fn cache_memlimit(line: Line<'_>) -> Result<u32, &'static str> {
    count(line, 2..=3)?;
    let mebibytes = line.word(1).and_then(number::unsigned_32);
    mebibytes.ok_or(error::ERROR)
}

#[cfg(test)]
mod tests {
    use crate::RequestBuffer;

    use super::*;

    /// Runs `read` on a line of these words.
    fn with<R>(words: &str, read: impl FnOnce(Line<'_>) -> R) -> R {
        let words = std::iter::once("").chain(words.split(' '));
        let buffer = RequestBuffer::from_args(words);
        read(Line::new(buffer.as_request()))
    }

    fn store(words: &str) -> Result<(u32, i64, usize, Option<u64>), &'static str> {
        with(words, |line| {
            let store = Store::parse(line.verb(), line)?;
            Ok((store.flags, store.exptime, store.data_bytes, store.cas))
        })
    }

    #[test]
    fn storage_commands() {
        assert_eq!(store("set k 7 -1 3 noreply"), Ok((7, -1, 3, None)));
        assert_eq!(store("cas k +7 0 03 9"), Ok((7, 0, 3, Some(9))));
        for words in ["set k 0 0", "set k 0 0 1 noreply x", "cas k 0 0 1"] {
            assert_eq!(store(words), Err(error::ERROR), "{words}");
        }
        let key = "k".repeat(251);
        for words in [
            "set k -1 0 1",
            "set k 4294967296 0 1",
            "set k 0 x 1",
            "set k 0 0 -1",
            "set k 0 0 2147483646",
            "cas k 0 0 1 -1",
            &format!("set {key} 0 0 1"),
        ] {
            assert_eq!(store(words), Err(error::BAD_FORMAT), "{words}");
        }
    }

    #[test]
    fn deletions_take_a_zero_for_old_clients() {
        for (words, answer) in [
            ("delete k", Ok(&b"k"[..])),
            ("delete k 0", Ok(b"k")),
            ("delete k noreply", Ok(b"k")),
            ("delete k 0 noreply", Ok(b"k")),
            ("delete k 1", Err(error::BAD_DELETE)),
            ("delete k noreply 0", Err(error::BAD_DELETE)),
            ("delete", Err(error::ERROR)),
            ("delete k 0 noreply x", Err(error::ERROR)),
        ] {
            with(words, |line| assert_eq!(delete(line), answer, "{words}"));
        }
    }

    #[test]
    fn times_and_numbers_are_checked() {
        let touch = |words| with(words, |line| Touch::parse(line).map(|touch| touch.exptime));
        assert_eq!(touch("touch k 5 noreply"), Ok(5));
        assert_eq!(touch("touch k x"), Err(error::BAD_EXPTIME));
        let delta = |words| with(words, |line| Arithmetic::parse(line).map(|line| line.delta));
        assert_eq!(delta("incr k 18446744073709551615"), Ok(u64::MAX));
        assert_eq!(delta("incr k -1"), Err(error::BAD_DELTA));
        assert_eq!(delta("incr k"), Err(error::ERROR));
        assert_eq!(with("flush_all noreply", flush_all), Ok(None));
        assert_eq!(with("flush_all 9 noreply", flush_all), Ok(Some(9)));
        assert_eq!(with("flush_all x", flush_all), Err(error::BAD_EXPTIME));
        assert_eq!(with("verbosity x", verbosity), Err(error::BAD_FORMAT));
        assert_eq!(with("cache_memlimit x", cache_memlimit), Err(error::ERROR));
    }
}
