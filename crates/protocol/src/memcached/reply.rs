//! Replies of the memcached protocols, encoded straight into the connection's output buffer.

use super::base64;
use crate::number::IntegerText;

/// Writes replies; every method appends.
#[derive(Debug)]
pub struct Reply<'o> {
    out: &'o mut Vec<u8>,
    /// The greatest position allowed.
    end_max: usize,
    /// The position from which the rest of a long reply waits.
    pause_at: usize,
}

impl<'o> Reply<'o> {
    /// Appends to `out`.
    #[must_use]
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self::bounded(out, usize::MAX)
    }

    /// Appends to `out`, which must not grow beyond `end_max` bytes. Callers that write much check
    /// [`Self::is_over`] on the way.
    #[must_use]
    #[inline]
    pub fn bounded(out: &'o mut Vec<u8>, end_max: usize) -> Self {
        Self {
            out,
            end_max,
            pause_at: usize::MAX,
        }
    }

    /// The same, with a long reply waiting once it has reached `position`.
    #[must_use]
    #[inline]
    pub fn pausing_at(mut self, position: usize) -> Self {
        self.pause_at = position;
        self
    }

    /// Whether the rest of a long reply must wait.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.out.len() >= self.pause_at
    }

    /// Whether more was written than allowed.
    #[must_use]
    #[inline]
    pub fn is_over(&self) -> bool {
        self.out.len() > self.end_max
    }

    /// Bytes in the output buffer, including earlier replies.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Removes everything from `position` on.
    pub fn rewind(&mut self, position: usize) {
        debug_assert!(position <= self.out.len());
        self.out.truncate(position);
    }

    /// A line of `text`.
    #[inline]
    pub fn line(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// The end of a line.
    #[inline]
    pub fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Bytes within a line or a block of data.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A number within a line.
    #[inline]
    pub fn number(&mut self, value: u64) {
        if value < 10 {
            self.out.push(b'0' + value as u8);
        } else if value < 100 {
            let digits = [b'0' + value as u8 / 10, b'0' + value as u8 % 10];
            self.out.extend_from_slice(&digits);
        } else {
            self.out
                .extend_from_slice(IntegerText::of_unsigned(value).as_bytes());
        }
    }

    /// A signed number within a line.
    pub fn signed(&mut self, value: i64) {
        self.out
            .extend_from_slice(IntegerText::of(value).as_bytes());
    }

    /// `VALUE key flags bytes [cas]`, after which the data come.
    #[inline]
    pub fn value(&mut self, key: &[u8], flags: u32, bytes: usize, cas: Option<u64>) {
        self.out.reserve(key.len() + bytes + 64);
        self.raw(b"VALUE ");
        self.raw(key);
        self.raw(b" ");
        self.number(u64::from(flags));
        self.raw(b" ");
        self.number(bytes as u64);
        if let Some(cas) = cas {
            self.raw(b" ");
            self.number(cas);
        }
        self.end();
    }

    /// ` k` and the key of a meta command, in base 64 if it arrived so (then with ` b`).
    pub fn meta_key(&mut self, key: &[u8], base64: bool) {
        self.raw(b" k");
        if base64 {
            base64::encode(key, self.out);
            self.raw(b" b");
        } else {
            self.raw(key);
        }
    }

    /// `STAT name value`.
    pub fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        use std::io::Write as _;
        // Writing to a vector does not fail.
        let _ = write!(self.out, "STAT {name} {value}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_figures() {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out);
        reply.value(b"k", 12, 2, Some(u64::MAX));
        reply.raw(b"ab");
        reply.end();
        reply.stat("pid", 5);
        reply.raw(b"EN");
        reply.meta_key(b"ab", true);
        reply.meta_key(b"ab", false);
        reply.raw(b" t");
        reply.signed(-1);
        reply.end();
        let text =
            "VALUE k 12 2 18446744073709551615\r\nab\r\nSTAT pid 5\r\nEN kYWI= b kab t-1\r\n";
        assert_eq!(out, text.as_bytes());
    }
}
