//! Replies, encoded straight into the connection's output buffer, in RESP2 or RESP3.
//!
//! A command writes the RESP3 shape of its reply; the encoder lowers it for a RESP2 client (a map
//! becomes a flat array, null a null bulk string, a double or big number a bulk string, a boolean 0
//! or 1, a push an array).

use crate::number::{self, IntegerText};

/// The protocol that the connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RespVersion {
    /// Redis' protocol up to version 5; the default of a new connection.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// Most bytes of what comes first: its kind, a sign, twenty digits and the line's end.
const HEADER_BYTES_MAX: usize = 24;

/// Most bytes of a bulk string besides its own.
const BULK_FRAME_BYTES_MAX: usize = 24;

/// Writes one reply; every method appends one element.
#[derive(Debug)]
pub struct Reply<'o> {
    out: &'o mut Vec<u8>,
    version: RespVersion,
}

/// The place of an array whose length is not known yet.
#[derive(Debug)]
#[must_use]
pub struct Deferred {
    offset: usize,
}

impl<'o> Reply<'o> {
    /// Appends to `out` in `version`.
    pub fn new(out: &'o mut Vec<u8>, version: RespVersion) -> Self {
        Self { out, version }
    }

    /// The protocol of this reply.
    #[must_use]
    pub fn version(&self) -> RespVersion {
        self.version
    }

    /// Changes the protocol from here on (HELLO).
    pub fn set_version(&mut self, version: RespVersion) {
        self.version = version;
    }

    fn resp3(&self) -> bool {
        self.version == RespVersion::Resp3
    }

    /// Bytes in the output buffer, including earlier replies.
    #[must_use]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Removes everything from `position` on.
    pub fn rewind(&mut self, position: usize) {
        debug_assert!(position <= self.out.len());
        self.out.truncate(position);
    }

    /// The bytes written from `position` on.
    #[must_use]
    pub fn since(&self, position: usize) -> &[u8] {
        &self.out[position..]
    }

    /// Appends bytes that are already encoded.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        // Most are counts of one thing, or of none, or of a few.
        match value {
            0..10 => {
                let ones = b'0' + value as u8;
                self.out.extend_from_slice(&[kind, ones, b'\r', b'\n']);
            }
            10..100 => {
                let (tens, ones) = (b'0' + (value / 10) as u8, b'0' + (value % 10) as u8);
                let header = [kind, tens, ones, b'\r', b'\n'];
                self.out.extend_from_slice(&header);
            }
            _ => self.long_header(kind, value),
        }
    }

    fn long_header(&mut self, kind: u8, value: i64) {
        let mut header = [b'\n'; HEADER_BYTES_MAX];
        let end = HEADER_BYTES_MAX - 2;
        header[end] = b'\r';
        let mut at = number::write_digits(value.unsigned_abs(), &mut header[..end]);
        if value < 0 {
            at -= 1;
            header[at] = b'-';
        }
        at -= 1;
        header[at] = kind;
        self.out.extend_from_slice(&header[at..]);
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status line; `text` has no line break.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "it would end the reply");
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error line, including its code (`ERR syntax error`); line breaks become spaces, and those
    /// at the end are removed, as in Redis.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let breaks = text.iter().rev();
        let breaks = breaks.take_while(|byte| matches!(byte, b'\r' | b'\n'));
        let text = &text[..text.len() - breaks.count()];
        self.out.push(b'-');
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A length or count as an integer.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.header(b':', value as i64);
    }

    /// A boolean: `#t`/`#f`, in RESP2 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        if self.resp3() {
            self.out
                .extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.integer(i64::from(value));
        }
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.out.reserve(bytes.len() + BULK_FRAME_BYTES_MAX);
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The header of a bulk string whose `len` bytes follow through [`Self::bulk_piece`], ended by
    /// [`Self::bulk_end`].
    pub fn bulk_begin(&mut self, len: usize) {
        self.header(b'$', len as i64);
        self.out.reserve(len + 2);
    }

    /// Part of the bulk string begun by [`Self::bulk_begin`].
    pub fn bulk_piece(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Ends the bulk string begun by [`Self::bulk_begin`].
    pub fn bulk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(IntegerText::of(value));
    }

    /// Text for people (INFO): a verbatim string, in RESP2 a bulk string.
    pub fn verbatim(&mut self, text: &str) {
        if self.resp3() {
            self.header(b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// A double given in its printed form: `,1.5`, in RESP2 a bulk string.
    pub fn double(&mut self, printed: &str) {
        if self.resp3() {
            self.out.push(b',');
            self.out.extend_from_slice(printed.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(printed);
        }
    }

    /// Null: `_`, in RESP2 the null bulk string.
    pub fn null(&mut self) {
        self.out
            .extend_from_slice(if self.resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Null, where RESP2 has the null array (EXEC aborted).
    pub fn null_array(&mut self) {
        self.out
            .extend_from_slice(if self.resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// An array of `len` elements, which follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// A map of `pairs` keys and values, which follow alternately; in RESP2 a flat array.
    pub fn map(&mut self, pairs: usize) {
        if self.resp3() {
            self.header(b'%', pairs as i64);
        } else {
            self.header(b'*', pairs as i64 * 2);
        }
    }

    /// A set of `len` elements; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3() { b'~' } else { b'*' }, len as i64);
    }

    /// An out-of-band message of `len` elements; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3() { b'>' } else { b'*' }, len as i64);
    }

    /// Begins an array whose length is not known yet. Costs one move of its content at the end.
    pub fn deferred_array(&mut self) -> Deferred {
        Deferred {
            offset: self.out.len(),
        }
    }

    /// Ends the array begun by [`Self::deferred_array`], with `len` elements.
    pub fn finish_array(&mut self, deferred: Deferred, len: usize) {
        self.insert_header(deferred, |reply| reply.array(len));
    }

    /// Ends [`Self::deferred_array`] as a map of `pairs` pairs.
    pub fn finish_map(&mut self, deferred: Deferred, pairs: usize) {
        self.insert_header(deferred, |reply| reply.map(pairs));
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "a mark is used up: its header is written once"
    )]
    fn insert_header(&mut self, deferred: Deferred, header: impl FnOnce(&mut Reply<'_>)) {
        let end = self.out.len();
        assert!(deferred.offset <= end, "rewound past its beginning");
        header(self);
        let header_bytes = self.out.len() - end;
        self.out[deferred.offset..].rotate_right(header_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(version: RespVersion, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, version));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn resp2_lowers_what_it_has_no_word_for() {
        let text = encode(RespVersion::Resp2, |reply| {
            reply.map(1);
            reply.boolean(true);
            reply.null();
            reply.double("1.5");
            reply.null_array();
        });
        assert_eq!(text, "*2\r\n:1\r\n$-1\r\n$3\r\n1.5\r\n*-1\r\n");
    }

    #[test]
    fn resp3_speaks_its_own_types() {
        let text = encode(RespVersion::Resp3, |reply| {
            reply.map(1);
            reply.boolean(true);
            reply.null();
            reply.double("1.5");
            reply.verbatim("x");
        });
        assert_eq!(text, "%1\r\n#t\r\n_\r\n,1.5\r\n=5\r\ntxt:x\r\n");
    }

    #[test]
    fn integers_reach_both_ends_of_their_range() {
        let text = encode(RespVersion::Resp2, |reply| {
            reply.integer(i64::MIN);
            reply.integer(i64::MAX);
            reply.integer(0);
        });
        assert_eq!(
            text,
            ":-9223372036854775808\r\n:9223372036854775807\r\n:0\r\n"
        );
    }

    #[test]
    fn a_deferred_array_gets_its_header_in_front() {
        let text = encode(RespVersion::Resp2, |reply| {
            let array = reply.deferred_array();
            for value in 0..12 {
                reply.integer(value);
            }
            reply.finish_array(array, 12);
        });
        assert!(text.starts_with("*12\r\n:0\r\n:1\r\n") && text.ends_with(":11\r\n"));
    }

    #[test]
    fn an_error_stays_on_one_line() {
        assert_eq!(
            encode(RespVersion::Resp2, |reply| reply.error("ERR a\r\nb")),
            "-ERR a  b\r\n"
        );
        assert_eq!(
            encode(RespVersion::Resp2, |reply| reply
                .error("ERR option a \n\r\n")),
            "-ERR option a \r\n",
            "breaks at the end are not shown"
        );
    }
}
