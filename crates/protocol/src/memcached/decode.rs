//! The decoder of a memcached connection's requests: incremental, without copies.
//!
//! It works like the decoder of RESP: the caller owns the buffer, shows it with the offset of the
//! first unconsumed byte, and gets ranges. The first range of a request is its block of data with
//! its line end (empty if there is none), followed by the words of its line, which spaces separate.
//! A line ends with `\n`; a `\r` before that does not belong to it.
//!
//! States: *between requests* → *in a line* (`searched` bytes of it hold no end) → *in data* (the
//! request has `needed` bytes in total) → between requests. An item above the limit is returned at
//! once as a request without data, and `skip` bytes after its line are discarded as they arrive: it
//! is never in memory. A line that announces its data wrongly is a request without data too; what
//! follows is parsed as lines, as in memcached.
//!
//! A line has a bound: a long one for commands that take many keys, a short one for the others. A
//! longer line ends the connection, and so does a line of HTTP: that is not a client of memcached,
//! but perhaps a browser made to speak to it by a page.
//!
//! Deliberately absent: the meaning of the words, except the length that a storage command
//! announces.

use super::arguments::{announced, announced_unauthenticated};
use super::line::{Line, Verb};
use crate::limits::{MEMCACHED_GET_LINE_BYTES_MAX, MEMCACHED_LINE_BYTES_MAX};
use crate::{ArgumentRange, Decoded};

/// Why nothing more is read from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A line of many keys without an end within its bound.
    #[error("line too long")]
    LineTooLong,
    /// Any other line without an end within its shorter bound; memcached sends no reply.
    #[error("no end of a line within {MEMCACHED_LINE_BYTES_MAX} bytes")]
    NoLine,
    /// A line of HTTP; memcached sends no reply.
    #[error("HTTP")]
    Http,
}

/// Bounds of a request, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Most data of an item; larger ones are discarded.
    pub item_bytes_max: usize,
    /// Longest line.
    pub line_bytes_max: usize,
    /// Longest line of a command that takes many keys; at least the other bound.
    pub get_line_bytes_max: usize,
}

impl DecoderLimits {
    /// The server's bounds of lines, with this one of an item.
    #[must_use]
    pub const fn of_items(item_bytes_max: usize) -> Self {
        Self {
            item_bytes_max,
            line_bytes_max: MEMCACHED_LINE_BYTES_MAX,
            get_line_bytes_max: MEMCACHED_GET_LINE_BYTES_MAX,
        }
    }

    /// Whether the line at the beginning of `rest`, which is longer than a short one, may be that
    /// long. It looks at no more than a short line has, so that the result does not depend on how
    /// much has arrived.
    #[cold]
    fn check(&self, rest: &[u8], line_bytes: usize) -> Result<(), DecodeError> {
        let mut words = rest[..self.line_bytes_max].split(|byte| *byte == b' ');
        match words.find(|word| !word.is_empty()).map(Verb::of) {
            Some(Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats) => {
                if line_bytes > self.get_line_bytes_max {
                    return Err(DecodeError::LineTooLong);
                }
                Ok(())
            }
            _ => Err(DecodeError::NoLine),
        }
    }
}

/// See the module's header.
#[derive(Debug)]
pub struct Decoder {
    limits: DecoderLimits,
    /// Bytes to be discarded.
    skip: u64,
    /// Bytes of the unfinished line without an end.
    searched: u32,
    /// Total bytes of the unfinished request, once its line is complete; 0 before.
    needed: u32,
    /// The client must authenticate.
    unauthenticated: bool,
}

impl Decoder {
    /// A decoder between requests.
    #[must_use]
    pub const fn new(limits: DecoderLimits) -> Self {
        Self {
            limits,
            skip: 0,
            searched: 0,
            needed: 0,
            unauthenticated: false,
        }
    }

    /// Changes the bound of an item. It applies to the next line that is parsed, and to a request
    /// whose data are not all here.
    pub fn set_item_bytes_max(&mut self, item_bytes_max: usize) {
        self.limits.item_bytes_max = item_bytes_max;
    }

    /// Sets whether the client is authenticated; initially it is. For an unauthenticated one only
    /// `set` has data, from the next line that is parsed on, and only their length must be right:
    /// they are the user and the password.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.unauthenticated = !authenticated;
    }

    /// Decodes the request at `input[from..]` and appends its ranges to `arguments`: one for the
    /// data, then those of the words. `from` is the end of the previous request, or the place of
    /// the byte that the last [`Decoded::Incomplete`] named. After an error `arguments` is
    /// unchanged, and the decoder must not be used again.
    #[inline]
    pub fn next(
        &mut self,
        input: &[u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, DecodeError> {
        let mut start = from;
        if self.skip > 0 {
            let skipped = self.skip.min((input.len() - start) as u64);
            self.skip -= skipped;
            start += skipped as usize;
        }
        let rest = &input[start..];
        // Nothing is kept of an item that is skipped.
        debug_assert!(self.skip == 0 || (rest.is_empty() && self.needed == 0));
        if rest.len() < self.needed as usize {
            return Ok(incomplete(start, self.needed as usize - rest.len()));
        }
        if rest.is_empty() {
            return Ok(incomplete(start, 1));
        }
        // A line known to be unfinished is searched further before its words are parsed.
        if self.searched > 0 && self.needed == 0 && !self.search(rest)? {
            return Ok(incomplete(start, 1));
        }
        let first = arguments.len();
        // Within the request, so that it moves with it.
        arguments.push(ArgumentRange {
            start: start as u32,
            len: 0,
        });
        let Some(line_bytes) = split(rest, start, arguments) else {
            arguments.truncate(first);
            self.search(rest)?;
            return Ok(incomplete(start, 1));
        };
        if line_bytes > self.limits.line_bytes_max
            && let Err(error) = self.limits.check(rest, line_bytes)
        {
            arguments.truncate(first);
            return Err(error);
        }
        self.searched = 0;
        let mut end = start + line_bytes;
        let line = Line::of_ranges(input, &arguments[first..]);
        let verb = line.verb();
        if verb == Verb::Unknown && line.is_http() {
            arguments.truncate(first);
            return Err(DecodeError::Http);
        }
        if verb.stores()
            && let Some(data_bytes) = self.announced(verb, line)
        {
            let block_bytes = data_bytes + 2;
            if data_bytes > self.limits.item_bytes_max {
                self.skip = block_bytes as u64;
            } else if input.len() - end < block_bytes {
                arguments.truncate(first);
                self.needed = (line_bytes + block_bytes) as u32;
                return Ok(incomplete(start, block_bytes - (input.len() - end)));
            } else {
                arguments[first] = ArgumentRange {
                    start: end as u32,
                    len: block_bytes as u32,
                };
                end += block_bytes;
            }
        }
        self.needed = 0;
        debug_assert!(from < end && end <= input.len());
        Ok(Decoded::Request {
            arguments: arguments.len() - first,
            end,
        })
    }

    #[inline]
    fn announced(&self, verb: Verb, line: Line<'_>) -> Option<usize> {
        if self.unauthenticated {
            announced_unauthenticated(verb, line)
        } else {
            announced(verb, line)
        }
    }

    /// Looks for the end of the line at the beginning of `rest`; returns whether there is one.
    #[cold]
    fn search(&mut self, rest: &[u8]) -> Result<bool, DecodeError> {
        let known = (self.searched as usize).min(rest.len());
        if rest[known..].contains(&b'\n') {
            return Ok(true);
        }
        if rest.len() > self.limits.line_bytes_max {
            self.limits.check(rest, rest.len())?;
        }
        self.searched = rest.len() as u32;
        Ok(false)
    }
}

const fn incomplete(start: usize, bytes_missing: usize) -> Decoded {
    Decoded::Incomplete {
        start,
        bytes_missing,
    }
}

/// Appends the ranges of a line's words; `None` if it does not end. Returns its bytes, including
/// its end.
#[inline]
fn split(rest: &[u8], start: usize, arguments: &mut Vec<ArgumentRange>) -> Option<usize> {
    let (mut word, mut from) = (0, 0);
    // Words are longer than a few bytes: eight are checked in one step.
    while let Some((chunk, _)) = rest[from..].split_first_chunk::<8>() {
        let mut found = blanks(u64::from_le_bytes(*chunk));
        while found != 0 {
            let index = from + found.trailing_zeros() as usize / 8;
            found &= found - 1;
            if part(rest, start, index, &mut word, arguments) {
                return Some(index + 1);
            }
        }
        from += 8;
    }
    for index in from..rest.len() {
        if rest[index] <= b' ' && part(rest, start, index, &mut word, arguments) {
            return Some(index + 1);
        }
    }
    None
}

/// The high bit of every byte that is not above a space, and of no other.
#[inline]
const fn blanks(bytes: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const LOW: u64 = 0x7f * ONES;
    // Byte by byte, no carry: bit 7 of the sum is set when the low seven bits are above a space.
    let above = (bytes & LOW) + (LOW - b' ' as u64 * ONES);
    !(above | bytes) & (0x80 * ONES)
}

/// Handles a byte that is not above a space: ends the preceding word if it separates words. Returns
/// whether it ends the line.
#[inline]
fn part(
    rest: &[u8],
    start: usize,
    index: usize,
    word: &mut usize,
    arguments: &mut Vec<ArgumentRange>,
) -> bool {
    let ends_line = rest[index] == b'\n';
    let end = match rest[index] {
        b'\n' if index > *word && rest[index - 1] == b'\r' => index - 1,
        b' ' | b'\n' => index,
        _ => return false,
    };
    if end > *word {
        arguments.push(ArgumentRange {
            start: (start + *word) as u32,
            len: (end - *word) as u32,
        });
    }
    *word = index + 1;
    ends_line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> Decoder {
        Decoder::new(DecoderLimits::of_items(10))
    }

    /// The words of every request with its data, joined; what the decoder says last.
    fn decode(decoder: &mut Decoder, input: &[u8]) -> (Vec<String>, Result<Decoded, DecodeError>) {
        let (mut requests, mut from) = (Vec::new(), 0);
        loop {
            let mut ranges = Vec::new();
            match decoder.next(input, from, &mut ranges) {
                Ok(Decoded::Request { arguments, end }) => {
                    assert_eq!(arguments, ranges.len());
                    let line = Line::of_ranges(input, &ranges);
                    let mut words: Vec<_> =
                        line.words_from(0).map(String::from_utf8_lossy).collect();
                    if let Some(data) = line.data() {
                        words.push(match data {
                            Ok(data) => format!("={}", String::from_utf8_lossy(data)).into(),
                            Err(error) => error.into(),
                        });
                    }
                    requests.push(words.join("|"));
                    from = end;
                }
                last => return (requests, last),
            }
        }
    }

    fn requests(input: &[u8]) -> Vec<String> {
        decode(&mut decoder(), input).0
    }

    #[test]
    fn words_are_parted_by_spaces_and_lines_by_newlines() {
        assert_eq!(
            requests(b"get  a b \r\n get c\n\r\n\nset a 0 0 2\r\n\r\n\r\nget\td\r\r\n"),
            ["get|a|b", "get|c", "", "", "set|a|0|0|2|=\r\n", "get\td\r"]
        );
    }

    #[test]
    fn eight_bytes_are_looked_at_in_one_step() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                for around in [0, b' ', b'!', 0x7f, 0x80, 0xff] {
                    let mut bytes = [around; 8];
                    bytes[place] = byte;
                    let expected = bytes.map(|byte| if byte <= b' ' { 0x80 } else { 0 });
                    let found = blanks(u64::from_le_bytes(bytes));
                    assert_eq!(found.to_le_bytes(), expected, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn data_without_a_line_end_are_taken_at_their_length() {
        assert_eq!(
            requests(b"set a 0 0 1\r\nxx\r\nmn\r\n"),
            ["set|a|0|0|1|CLIENT_ERROR bad data chunk", "", "mn"]
        );
    }

    #[test]
    fn a_line_that_announces_no_sound_length_has_no_data() {
        for line in [
            "set a 0 0 -1",
            "set a 0 0 x",
            "set a 0 x 1",
            "set a 0 0",
            "ms a x",
        ] {
            let input = format!("{line}\r\nmn\r\n");
            assert_eq!(
                requests(input.as_bytes()),
                [line.replace(' ', "|"), "mn".into()]
            );
        }
    }

    #[test]
    fn a_unauthenticated_has_to_say_how_much_follows_only() {
        let input = b"set a b c 3 x y\r\nu p\r\nms a 1\r\nx\r\nset a\r\nset a 0 0 -1\r\n";
        let mut decoder = decoder();
        decoder.set_authenticated(false);
        let expected = [
            "set|a|b|c|3|x|y|=u p",
            "ms|a|1",
            "x",
            "set|a",
            "set|a|0|0|-1",
        ];
        assert_eq!(decode(&mut decoder, input).0, expected);
        decoder.set_authenticated(true);
        let expected = ["set|a|b|c|3", "u|p"];
        assert_eq!(decode(&mut decoder, b"set a b c 3\r\nu p\r\n").0, expected);
    }

    #[test]
    fn what_is_too_large_is_thrown_away_as_it_comes() {
        let mut decoder = decoder();
        let (found, last) = decode(&mut decoder, b"set a 0 0 11\r\n01234");
        assert_eq!(found, ["set|a|0|0|11"]);
        let missing = Decoded::Incomplete {
            start: 19,
            bytes_missing: 1,
        };
        assert_eq!(last, Ok(missing));
        assert_eq!(decode(&mut decoder, b"567890\r\nmn\r\n").0, ["mn"]);
    }

    #[test]
    fn a_request_is_complete_with_its_last_byte() {
        let input = b"set a 0 0 5 noreply\r\n12345\r\n";
        let mut decoder = decoder();
        for len in 0..input.len() {
            let (found, last) = decode(&mut decoder, &input[..len]);
            assert!(found.is_empty());
            let Ok(Decoded::Incomplete {
                start: 0,
                bytes_missing,
            }) = last
            else {
                panic!("{last:?}")
            };
            assert!(len + bytes_missing <= input.len());
        }
        assert_eq!(
            decode(&mut decoder, input).0,
            ["set|a|0|0|5|noreply|=12345"]
        );
    }

    #[test]
    fn lines_are_bounded_and_those_of_many_keys_longer() {
        let long = vec![b'x'; MEMCACHED_LINE_BYTES_MAX + 1];
        for end in [&b""[..], b"\r\n"] {
            let input = [&long[..], end].concat();
            let last = decode(&mut decoder(), &input).1;
            assert_eq!(last, Err(DecodeError::NoLine));
        }
        let mut many = b"get ".to_vec();
        many.extend(b"key ".repeat(MEMCACHED_LINE_BYTES_MAX));
        many.extend(b"\r\n");
        let mut ranges = Vec::new();
        let found = decoder().next(&many, 0, &mut ranges);
        let arguments = MEMCACHED_LINE_BYTES_MAX + 2;
        let end = many.len();
        assert_eq!(found, Ok(Decoded::Request { arguments, end }));
        let endless = b"gets a ".repeat(MEMCACHED_GET_LINE_BYTES_MAX / 7 + 1);
        let last = decode(&mut decoder(), &endless).1;
        assert_eq!(last, Err(DecodeError::LineTooLong));
    }

    /// Whatever the method; a word of HTTP that a command may have is none.
    #[test]
    fn who_speaks_http_is_hung_up_on() {
        for line in ["GET / HTTP/1.1", "POST /x HTTP/2", "HTTP/", " x  HTTP/1.0 "] {
            let input = format!("mn\r\n{line}\r\nset a 0 0 1\r\nx\r\n");
            let (found, last) = decode(&mut decoder(), input.as_bytes());
            assert_eq!((found, last), (vec!["mn".into()], Err(DecodeError::Http)));
        }
        let found = requests(b"get / HTTP/1.1\r\nGET HTTP/1.1 x\r\nGET /HTTP/1.1\r\n");
        let lines = ["get|/|HTTP/1.1", "GET|HTTP/1.1|x", "GET|/HTTP/1.1"];
        assert_eq!(found, lines);
    }
}
