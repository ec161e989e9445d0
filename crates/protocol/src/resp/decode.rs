//! The decoder of a connection's requests: incremental, without copies.
//!
//! The caller owns the query buffer and shows it to [`Decoder::next`] with the offset of the first
//! unconsumed byte. Ranges of arguments are offsets into that slice. Several requests of one buffer
//! are decoded one after another, each from the end of the previous one; their ranges stay valid
//! until the buffer changes.
//!
//! When a request is incomplete, the decoder keeps what it has parsed, relative to the request's
//! start. The caller may then move the bytes from that start on elsewhere, and reads more after
//! them. The next call names the new offset of the same byte and continues where the last one
//! stopped. No byte is looked at twice, however small the pieces: a bulk string that arrives in n
//! reads costs n checks of its length.
//!
//! An unfinished request whose announced bytes would make it exceed `request_bytes_max` is reported
//! as [`Decoded::TooLong`] at once. The rest of it is discarded as it arrives: it is never in
//! memory.
//!
//! States: *between requests* (`arguments_left` = 0) → *in a request* (`suspend`: some of its
//! arguments are missing; `bulk_len` is set from an argument's header to its end) → between
//! requests (`resume`). From *in a request* also → *skipping* (`refuse`; `bulk_len` bytes of the
//! current argument are still to come) → between requests (`skip_rest`). In all of them, `searched`
//! bytes of an unfinished line are known to hold no end.
//!
//! As in Redis, the two bytes after a length or an argument are skipped, whatever they are.
//!
//! Deliberately absent: the meaning of commands; buffers; replies of a server.

use super::{ProtocolError, inline};
use crate::ArgumentRange;
use crate::limits::{
    ARGUMENTS_MAX, BULK_BYTES_MAX, INLINE_BYTES_MAX, QUERY_BUFFER_BYTES_MAX,
    UNAUTHENTICATED_ARGUMENTS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX,
};
use crate::number::parse_i64;

/// Most arguments that are parsed in the hope that all are there; if not, they are parsed twice.
const WHOLE_ARGUMENTS_MAX: u32 = 8;

/// Capacity kept for the ranges of an unfinished request, in elements.
const KEPT_CAPACITY_MAX: usize = 1024;

/// Bounds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Most arguments.
    pub arguments_max: usize,
    /// Longest argument in bytes (`proto-max-bulk-len`); what the query buffer cannot hold is
    /// refused even if allowed here.
    pub bulk_bytes_max: usize,
    /// Longest inline request or header line in bytes, without its end; at least 16.
    pub inline_bytes_max: usize,
    /// Most memory of an incomplete request, in bytes; at least `inline_bytes_max`.
    pub request_bytes_max: usize,
}

impl Default for DecoderLimits {
    fn default() -> Self {
        Self {
            arguments_max: ARGUMENTS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            request_bytes_max: usize::MAX,
        }
    }
}

/// The result of [`Decoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A request.
    Request {
        /// How many ranges were appended; at least one.
        arguments: usize,
        /// The offset after it, where the next request begins.
        end: usize,
    },
    /// An incomplete request above `request_bytes_max`. One range was appended: its name, or an
    /// empty one if that has not arrived.
    TooLong {
        /// The offset after its consumed part; the decoder continues here, and skips the rest.
        end: usize,
    },
    /// More bytes are needed.
    Incomplete {
        /// Offset of the request's first byte, the end of the input if none has begun. Bytes before
        /// it are consumed; the next call's `from` is this byte's place then.
        start: usize,
        /// How many more bytes are certainly needed; at least one.
        bytes_missing: usize,
    },
}

/// Decodes the requests of one connection.
#[derive(Debug)]
pub struct Decoder {
    limits: DecoderLimits,
    authenticated: bool,
    arguments_left: u32,
    /// The rest of the unfinished request is discarded.
    skips: bool,
    /// Bytes of the unfinished request that are parsed.
    position: u32,
    /// Bytes of the unfinished line at `position` that hold no line end.
    searched: u32,
    /// Length of the argument at `position`, once its header is parsed. For a skipped one: bytes
    /// still to come, including the two after it.
    bulk_len: Option<u32>,
    /// Arguments of the unfinished request, relative to its start.
    arguments: Vec<ArgumentRange>,
}

/// The progress in parsing a request's arguments.
struct Progress {
    /// Offset of the first unparsed byte in the input.
    at: usize,
    arguments_left: u32,
    searched: u32,
    bulk_len: Option<u32>,
}

/// The value of a header line, and the bytes from its value to its end.
type Header = (usize, usize);

impl Default for Decoder {
    fn default() -> Self {
        Self::new(DecoderLimits::default())
    }
}

impl Decoder {
    /// A decoder between requests, for an authenticated client.
    #[must_use]
    pub const fn new(limits: DecoderLimits) -> Self {
        assert!(limits.inline_bytes_max >= 16);
        Self {
            limits,
            authenticated: true,
            arguments_left: 0,
            skips: false,
            position: 0,
            searched: 0,
            bulk_len: None,
            arguments: Vec::new(),
        }
    }

    /// Changes the limits, from the next header on.
    pub fn set_limits(&mut self, limits: DecoderLimits) {
        assert!(limits.inline_bytes_max >= 16);
        self.limits = limits;
    }

    /// Changes the bound of an incomplete request, at once.
    pub fn set_request_bytes_max(&mut self, bytes_max: usize) {
        self.limits.request_bytes_max = bytes_max.max(self.limits.inline_bytes_max);
    }

    /// Sets whether the client is authenticated (or need not be); until then it may send only
    /// [`UNAUTHENTICATED_ARGUMENTS_MAX`] arguments of [`UNAUTHENTICATED_BULK_BYTES_MAX`] bytes.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// Heap bytes of the decoder.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<ArgumentRange>()
    }

    /// Decodes the request at `input[from..]` and appends the ranges of its arguments to
    /// `arguments`. Requests without arguments (an empty line, `*0`, `*-1`) are skipped.
    ///
    /// `from` is the end of the previous request, or the place of the byte that the last
    /// [`Decoded::Incomplete`] named. `input` has at most [`QUERY_BUFFER_BYTES_MAX`] bytes. An
    /// inline request is unquoted in place, so no request may be decoded twice. After an error
    /// `arguments` is unchanged, and the decoder must not be used again. Allocates only when a
    /// request is unfinished after its first argument, or `arguments` must grow.
    #[inline]
    pub fn next(
        &mut self,
        input: &mut [u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, ProtocolError> {
        assert!(input.len() <= QUERY_BUFFER_BYTES_MAX);
        if self.arguments_left != 0 {
            return self.resume(input, from, arguments);
        }
        let first = arguments.len();
        let mut start = from;
        while let Some(kind) = input.get(start) {
            if *kind != b'*' {
                match self.inline(input, start, arguments)? {
                    Some(end) if arguments.len() > first => {
                        let arguments = arguments.len() - first;
                        return Ok(Decoded::Request { arguments, end });
                    }
                    Some(end) => start = end,
                    None => return Ok(Decoded::incomplete(start, 1)),
                }
                continue;
            }
            let Some((count, header_bytes)) = self.count_line(&input[start + 1..])? else {
                return Ok(Decoded::incomplete(start, 1));
            };
            let at = start + 1 + header_bytes;
            if count > 0 {
                let progress = Progress {
                    at,
                    arguments_left: count as u32,
                    searched: 0,
                    bulk_len: None,
                };
                return self.begin(input, start, progress, arguments);
            }
            start = at;
        }
        Ok(Decoded::incomplete(start, 1))
    }

    /// Parses the arguments of a request that begins at `start`.
    #[inline]
    fn begin(
        &mut self,
        input: &[u8],
        start: usize,
        mut progress: Progress,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, ProtocolError> {
        debug_assert!(!self.skips && self.bulk_len.is_none() && self.arguments.is_empty());
        let first = arguments.len();
        if let Some(end) = self.whole(input, progress.at, progress.arguments_left, arguments) {
            let arguments = arguments.len() - first;
            return Ok(Decoded::Request { arguments, end });
        }
        arguments.truncate(first);
        match self.bulks(input, &mut progress, arguments, 0) {
            Ok(0) => Ok(Decoded::Request {
                arguments: arguments.len() - first,
                end: progress.at,
            }),
            Ok(bytes_missing) => {
                let parsed = arguments.drain(first..);
                self.arguments.extend(parsed.map(|range| ArgumentRange {
                    start: range.start - start as u32,
                    len: range.len,
                }));
                self.suspend(start, &progress);
                Ok(self.unfinished(input.len(), start, bytes_missing, arguments))
            }
            Err(error) => {
                arguments.truncate(first);
                Err(error)
            }
        }
    }

    /// Parses the arguments at `at` if all of them are there and none is unusual; returns the
    /// request's end. Otherwise the pushed ranges are meaningless.
    #[inline]
    fn whole(
        &self,
        input: &[u8],
        mut at: usize,
        count: u32,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Option<usize> {
        if count > WHOLE_ARGUMENTS_MAX {
            return None;
        }
        let bulk_bytes_max = self.bulk_bytes_max();
        for _ in 0..count {
            let [b'$', digits @ ..] = input.get(at..)? else {
                return None;
            };
            let (len, header_bytes) = short_number(digits)?;
            let start = at + 1 + header_bytes;
            if len > bulk_bytes_max || input.len() - start < len + 2 {
                return None;
            }
            arguments.push(ArgumentRange {
                start: start as u32,
                len: len as u32,
            });
            at = start + len + 2;
        }
        Some(at)
    }

    /// Continues with the request that begins at `start`.
    #[cold]
    fn resume(
        &mut self,
        input: &mut [u8],
        start: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, ProtocolError> {
        if self.skips {
            return match self.skip_rest(input, start)? {
                (end, 0) => self.next(input, end, arguments),
                (start, bytes_missing) => Ok(Decoded::incomplete(start, bytes_missing)),
            };
        }
        let mut parsed = std::mem::take(&mut self.arguments);
        let mut progress = Progress {
            at: start + self.position as usize,
            arguments_left: self.arguments_left,
            searched: self.searched,
            bulk_len: self.bulk_len,
        };
        let bytes_missing = self.bulks(input, &mut progress, &mut parsed, start)?;
        self.suspend(start, &progress);
        if bytes_missing > 0 {
            self.arguments = parsed;
            return Ok(self.unfinished(input.len(), start, bytes_missing, arguments));
        }
        arguments.extend(parsed.iter().map(|range| ArgumentRange {
            start: range.start + start as u32,
            len: range.len,
        }));
        let decoded = Decoded::Request {
            arguments: parsed.len(),
            end: progress.at,
        };
        parsed.clear();
        parsed.shrink_to(KEPT_CAPACITY_MAX);
        self.arguments = parsed;
        Ok(decoded)
    }

    /// Remembers the progress of the request that begins at `start`.
    fn suspend(&mut self, start: usize, progress: &Progress) {
        debug_assert!(start <= progress.at);
        // A length is known from an argument's header to its end.
        debug_assert!(progress.bulk_len.is_none() || progress.arguments_left > 0);
        self.arguments_left = progress.arguments_left;
        self.position = (progress.at - start) as u32;
        self.searched = progress.searched;
        self.bulk_len = progress.bulk_len;
    }

    /// The result for the request that begins at `start` and lacks bytes at the `end` of the input.
    fn unfinished(
        &mut self,
        end: usize,
        start: usize,
        bytes_missing: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Decoded {
        let bytes = end - start + bytes_missing + self.heap_bytes();
        if bytes > self.limits.request_bytes_max {
            self.refuse(start, arguments)
        } else {
            Decoded::incomplete(start, bytes_missing)
        }
    }

    /// Gives up the unfinished request that begins at `start`, including what has arrived.
    #[cold]
    fn refuse(&mut self, start: usize, arguments: &mut Vec<ArgumentRange>) -> Decoded {
        let parsed = std::mem::take(&mut self.arguments);
        let name = parsed.first().map_or((0, 0), |name| (name.start, name.len));
        arguments.push(ArgumentRange {
            start: name.0 + start as u32,
            len: name.1,
        });
        self.skips = true;
        self.bulk_len = self.bulk_len.map(|len| len + 2);
        let end = start + std::mem::take(&mut self.position) as usize;
        Decoded::TooLong { end }
    }

    /// Discards what has arrived of a request that was given up, from `at` on. Returns where that
    /// ends, and at least how many more bytes it has; 0 at its end.
    fn skip_rest(&mut self, input: &[u8], mut at: usize) -> Result<(usize, usize), ProtocolError> {
        debug_assert!(self.arguments.is_empty() && self.position == 0);
        loop {
            if let Some(left) = self.bulk_len {
                let skipped = (left as usize).min(input.len() - at) as u32;
                at += skipped as usize;
                if skipped < left {
                    self.bulk_len = Some(left - skipped);
                    return Ok((at, (left - skipped) as usize));
                }
                self.bulk_len = None;
                self.arguments_left -= 1;
            }
            if self.arguments_left == 0 {
                self.skips = false;
                return Ok((at, 0));
            }
            let mut searched = self.searched;
            let header = self.bulk_header(&input[at..], &mut searched);
            self.searched = searched;
            let Some((len, header_bytes)) = header? else {
                return Ok((at, 1));
            };
            self.searched = 0;
            at += 1 + header_bytes;
            self.bulk_len = Some(len as u32 + 2);
        }
    }

    /// Parses arguments until the request is complete (0) or bytes are missing (at least how many),
    /// and pushes their ranges, relative to `base`.
    #[inline]
    fn bulks(
        &self,
        input: &[u8],
        progress: &mut Progress,
        arguments: &mut Vec<ArgumentRange>,
        base: usize,
    ) -> Result<usize, ProtocolError> {
        while progress.arguments_left > 0 {
            let len = if let Some(len) = progress.bulk_len {
                len as usize
            } else {
                let line = &input[progress.at..];
                let Some((len, header_bytes)) = self.bulk_header(line, &mut progress.searched)?
                else {
                    return Ok(1);
                };
                progress.at += 1 + header_bytes;
                progress.searched = 0;
                len
            };
            let bytes_there = input.len() - progress.at;
            if bytes_there < len + 2 {
                progress.bulk_len = Some(len as u32);
                return Ok(len + 2 - bytes_there);
            }
            arguments.push(ArgumentRange {
                start: (progress.at - base) as u32,
                len: len as u32,
            });
            progress.at += len + 2;
            progress.bulk_len = None;
            progress.arguments_left -= 1;
        }
        Ok(0)
    }

    /// Parses an argument's header from the first line of `line`; `None` when the line is
    /// incomplete.
    #[inline]
    fn bulk_header(
        &self,
        line: &[u8],
        searched: &mut u32,
    ) -> Result<Option<Header>, ProtocolError> {
        let header = match line {
            [b'$', digits @ ..] => short_number(digits),
            _ => None,
        };
        let header = match header {
            Some(header) => Some(header),
            None => self.long_bulk_line(line, searched)?,
        };
        match header {
            Some((len, _)) if len > self.bulk_bytes_max() => Err(self.bulk_too_long(len)),
            header => Ok(header),
        }
    }

    /// Longest argument that may come now.
    fn bulk_bytes_max(&self) -> usize {
        let bytes_max = if self.authenticated {
            QUERY_BUFFER_BYTES_MAX - INLINE_BYTES_MAX
        } else {
            UNAUTHENTICATED_BULK_BYTES_MAX
        };
        bytes_max.min(self.limits.bulk_bytes_max)
    }

    #[cold]
    fn bulk_too_long(&self, len: usize) -> ProtocolError {
        if self.authenticated || len > self.limits.bulk_bytes_max {
            ProtocolError::InvalidBulkLength
        } else {
            ProtocolError::UnauthenticatedBulkLength
        }
    }

    /// Parses the number of arguments from the first line of `line`, after its `*`; `None` when the
    /// line is incomplete.
    #[inline]
    fn count_line(&mut self, line: &[u8]) -> Result<Option<Header>, ProtocolError> {
        let header = match short_number(line) {
            Some(header) => header,
            None => match self.long_count_line(line)? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        self.searched = 0;
        if header.0 > self.limits.arguments_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if !self.authenticated && header.0 > UNAUTHENTICATED_ARGUMENTS_MAX {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        Ok(Some(header))
    }

    /// [`Self::count_line`] for what [`short_number`] leaves: a negative number counts as 0.
    #[cold]
    fn long_count_line(&mut self, line: &[u8]) -> Result<Option<Header>, ProtocolError> {
        let bytes_max = self.limits.inline_bytes_max.saturating_sub(1);
        let Some(end) = line_end(line, b'\r', 1, &mut self.searched, bytes_max)
            .map_err(|LineTooLong| ProtocolError::TooBigMultibulkCount)?
        else {
            return Ok(None);
        };
        let count = parse_i64(&line[..end]).ok_or(ProtocolError::InvalidMultibulkLength)?;
        Ok(Some((usize::try_from(count).unwrap_or(0), end + 2)))
    }

    /// Reads an argument's header, `$` included, where [`short_number`] did not.
    #[cold]
    fn long_bulk_line(
        &self,
        line: &[u8],
        searched: &mut u32,
    ) -> Result<Option<Header>, ProtocolError> {
        let bytes_max = self.limits.inline_bytes_max;
        let Some(end) = line_end(line, b'\r', 1, searched, bytes_max)
            .map_err(|LineTooLong| ProtocolError::TooBigBulkCount)?
        else {
            return Ok(None);
        };
        if line[0] != b'$' {
            return Err(ProtocolError::ExpectedBulk { got: line[0] });
        }
        let len = line.get(1..end).and_then(parse_i64);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(ProtocolError::InvalidBulkLength)?;
        Ok(Some((len, end + 1)))
    }

    /// Splits the inline request at `start`. Returns the offset after it, or `None` when it is
    /// incomplete.
    #[cold]
    fn inline(
        &mut self,
        input: &mut [u8],
        start: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Option<usize>, ProtocolError> {
        let line = &mut input[start..];
        let bytes_max = self.limits.inline_bytes_max;
        let Some(end) = line_end(line, b'\n', 0, &mut self.searched, bytes_max)
            .map_err(|LineTooLong| ProtocolError::TooBigInline)?
        else {
            return Ok(None);
        };
        inline::split(&mut line[..end], start, arguments)?;
        Ok(Some(start + end + 1))
    }
}

impl Decoded {
    const fn incomplete(start: usize, bytes_missing: usize) -> Self {
        Self::Incomplete {
            start,
            bytes_missing,
        }
    }
}

/// Parses a number of up to nine digits and its line end, which covers almost all clients. Returns
/// the number and the length of both.
#[inline]
fn short_number(line: &[u8]) -> Option<Header> {
    // One or two digits, as most are.
    if let [first, second, third, _, ..] = *line {
        let first = first.wrapping_sub(b'0');
        if first <= 9 && second == b'\r' {
            return Some((usize::from(first), 3));
        }
        let second = second.wrapping_sub(b'0');
        if first.wrapping_sub(1) < 9 && second <= 9 && third == b'\r' {
            return Some((usize::from(first) * 10 + usize::from(second), 4));
        }
    }
    longer_number(line)
}

/// [`short_number`] of any length.
fn longer_number(line: &[u8]) -> Option<Header> {
    let mut number: u32 = 0;
    for (index, byte) in line.iter().take(10).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let canonical = index == 1 || (index > 1 && line[0] != b'0');
            let ends = *byte == b'\r' && line.len() >= index + 2;
            return (canonical && ends).then_some((number as usize, index + 2));
        }
        // Nine digits fit; a tenth wraps, and no further one is checked.
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
    }
    None
}

struct LineTooLong;

/// The place of the first `terminator` of `line`, provided that `more` bytes follow it. `searched`
/// bytes are known to hold none. If there is none yet, `searched` is advanced, else set to 0. A
/// line may have `bytes_max` bytes before its terminator.
fn line_end(
    line: &[u8],
    terminator: u8,
    more: usize,
    searched: &mut u32,
    bytes_max: usize,
) -> Result<Option<usize>, LineTooLong> {
    let window = &line[..line.len().min(bytes_max + 1)];
    let rest = window.get(*searched as usize..).unwrap_or_default();
    match rest.iter().position(|byte| *byte == terminator) {
        Some(index) => {
            let end = *searched as usize + index;
            let complete = line.len() > end + more;
            *searched = if complete { 0 } else { end as u32 };
            Ok(complete.then_some(end))
        }
        None if window.len() > bytes_max => Err(LineTooLong),
        None => {
            *searched = window.len() as u32;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests;
