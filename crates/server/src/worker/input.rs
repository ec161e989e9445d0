//! What one connection has sent and the worker has not executed.
//!
//! Most requests never get here: they are read into the worker's own buffer and executed from it,
//! and nothing is left. What remains at the end of a turn (the beginning of a request, or requests
//! that must wait) is kept here. The buffer is freed when it is used up, so an idle connection
//! holds none.
//!
//! States:
//!
//! ```text
//! empty ──keep──► partial ──append──► … ──► complete ──executed──► empty
//!   │                                          ▲
//!   └──keep, with requests that wait───────────┘
//! ```
//!
//! Invariants:
//! - **IN1** `executed ≤ decoded ≤ bytes.len()`; `waiting` are the requests between `executed` and
//!   `decoded`, in order. The decoder never sees a request twice.
//! - **IN2** More is read only when no complete request is left (`is_hungry`), so the kept input is
//!   bounded by the longest request and one read.
//!
//! Deliberately absent: the socket's state (`super::connection`).

use std::collections::VecDeque;
use std::io;

use pando_io::Stream;
use pando_protocol::ArgumentRange;

use super::wire::{WireDecoder, WireError};
use crate::limits;

/// A decoded request that must wait.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    arguments: u32,
    /// The offset after it.
    end: usize,
    /// The decoder has refused it.
    too_long: bool,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) decoder: WireDecoder,
    /// What is wrong after the last complete request.
    pub(crate) error: Option<WireError>,
    bytes: Vec<u8>,
    executed: usize,
    decoded: usize,
    waiting: VecDeque<Waiting>,
    /// Of the requests in `waiting`, one after the other.
    ranges: VecDeque<ArgumentRange>,
    /// How many bytes the decoder needs, when `bytes` end in an incomplete request.
    bytes_missing: usize,
}

impl Input {
    pub(crate) fn new(decoder: WireDecoder) -> Self {
        Self {
            decoder,
            error: None,
            bytes: Vec::new(),
            executed: 0,
            decoded: 0,
            waiting: VecDeque::new(),
            ranges: VecDeque::new(),
            bytes_missing: 0,
        }
    }

    /// Whether nothing is kept.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether there is nothing to execute without reading more (IN2).
    #[inline]
    pub(crate) fn is_hungry(&self) -> bool {
        self.error.is_none()
            && self.waiting.is_empty()
            && (self.bytes.is_empty() || self.bytes_missing > 0)
    }

    /// Bytes that are not executed, and free space in bytes.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (
            self.bytes.len() - self.executed,
            self.bytes.capacity() - self.bytes.len(),
        )
    }

    /// Bytes of memory held for received input.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.waiting.capacity() * size_of::<Waiting>()
            + self.ranges.capacity() * size_of::<ArgumentRange>()
            + self.decoder.heap_bytes()
    }

    /// Up to where the kept bytes are executed and decoded.
    pub(crate) fn progress(&self) -> (usize, usize) {
        (self.executed, self.decoded)
    }

    /// Whether decoded requests wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The kept bytes with the decoder.
    pub(crate) fn kept(&mut self) -> (&mut [u8], &mut WireDecoder) {
        (&mut self.bytes, &mut self.decoder)
    }

    /// The kept bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads after the kept bytes. Once the length of a long argument is known, all missing bytes
    /// are read at once. Memory grows with what arrives, not with what is announced, and not beyond
    /// `bytes_max` plus a read. Returns the number of bytes and whether there may be more.
    pub(crate) fn append(
        &mut self,
        stream: &Stream,
        bytes_max: usize,
    ) -> io::Result<(usize, bool)> {
        // IN2.
        debug_assert!(self.is_hungry());
        let wanted = self
            .bytes_missing
            .clamp(limits::READ_BYTES, limits::LARGE_READ_BYTES);
        let room = self.bytes.capacity() - self.bytes.len();
        if room < wanted {
            let missing = self.bytes_missing.max(wanted);
            // Doubling keeps the copying linear; reserving no more than what is missing keeps a
            // long argument's buffer from being twice as long as the argument.
            let doubled = missing.min(self.bytes.len().max(wanted));
            let within = bytes_max.saturating_sub(self.bytes.len()).max(wanted);
            self.bytes.reserve_exact(doubled.min(within));
        }
        let room = self.bytes.capacity() - self.bytes.len();
        let count = stream.read_append(&mut self.bytes)?;
        self.bytes_missing = 0;
        Ok((count, count == room))
    }

    /// The waiting requests: each one's number of arguments, its end and whether the decoder has
    /// refused it, with the ranges of all.
    pub(crate) fn waiting(
        &self,
    ) -> (
        impl Iterator<Item = (usize, usize, bool)>,
        impl Iterator<Item = ArgumentRange>,
    ) {
        let requests = self
            .waiting
            .iter()
            .map(|request| (request.arguments as usize, request.end, request.too_long));
        (requests, self.ranges.iter().copied())
    }

    /// Queues a request that was decoded after all waiting ones, or refused there as `too_long`.
    pub(crate) fn defer(&mut self, arguments: &[ArgumentRange], end: usize, too_long: bool) {
        debug_assert!(self.waiting.back().is_none_or(|last| last.end < end));
        self.waiting.push_back(Waiting {
            arguments: arguments.len() as u32,
            end,
            too_long,
        });
        self.ranges.extend(arguments);
    }

    /// The first waiting request has been executed.
    pub(crate) fn executed_waiting(&mut self) {
        if let Some(request) = self.waiting.pop_front() {
            self.ranges.drain(..request.arguments as usize);
        }
        debug_assert!(!self.waiting.is_empty() || self.ranges.is_empty());
    }

    /// Keeps the rest of bytes that are not kept yet: `bytes[executed..]`, of which the decoder has
    /// seen everything up to `decoded`. Ranges of waiting requests were relative to `bytes`.
    pub(crate) fn keep(
        &mut self,
        bytes: &[u8],
        executed: usize,
        decoded: usize,
        bytes_missing: usize,
    ) {
        debug_assert!(self.bytes.is_empty());
        debug_assert!(executed <= decoded && decoded <= bytes.len(), "IN1");
        if executed == bytes.len() {
            return;
        }
        self.bytes = bytes[executed..].to_vec();
        self.executed = 0;
        self.decoded = decoded - executed;
        self.bytes_missing = bytes_missing;
        for request in &mut self.waiting {
            request.end -= executed;
        }
        for range in &mut self.ranges {
            range.start -= executed as u32;
        }
    }

    /// Records how far the kept bytes are executed and decoded, and drops the front of them, or
    /// all, when no request waits there. Moves what follows a long request at most once.
    pub(crate) fn advance(&mut self, executed: usize, decoded: usize, bytes_missing: usize) {
        debug_assert!(executed <= decoded && decoded <= self.bytes.len(), "IN1");
        self.executed = executed;
        self.decoded = decoded;
        self.bytes_missing = bytes_missing;
        if executed == self.bytes.len() {
            self.bytes = Vec::new();
            self.waiting.shrink_to(0);
            self.ranges.shrink_to(0);
        } else if self.waiting.is_empty() && executed > 0 {
            let left = self.bytes.len() - executed;
            if self.bytes.capacity() > left + limits::LARGE_READ_BYTES {
                self.bytes = self.bytes[executed..].to_vec();
            } else {
                self.bytes.drain(..executed);
            }
        } else {
            return;
        }
        self.decoded -= executed;
        self.executed = 0;
    }

    /// Forgets everything: the connection executes nothing more.
    pub(crate) fn discard(&mut self) {
        self.bytes = Vec::new();
        self.waiting = VecDeque::new();
        self.ranges = VecDeque::new();
        self.error = None;
        self.executed = 0;
        self.decoded = 0;
        self.bytes_missing = 0;
    }
}

#[cfg(test)]
mod tests {
    use pando_protocol::Request;
    use pando_protocol::resp::{Decoded, Decoder, ProtocolError};

    use super::*;

    /// The requests that wait, as text.
    fn waiting(input: &Input) -> Vec<String> {
        let (requests, ranges) = input.waiting();
        let ranges: Vec<_> = ranges.collect();
        let mut first = 0;
        requests
            .map(|(arguments, ..)| {
                let ranges = &ranges[first..first + arguments];
                first += arguments;
                let request = Request::new(input.bytes(), ranges);
                let words: Vec<_> = request.args_from(0).map(String::from_utf8_lossy).collect();
                words.join(" ")
            })
            .collect()
    }

    #[test]
    fn in1_requests_that_wait_keep_their_order_and_the_half_behind_them_its_place() {
        let mut input = Input::new(WireDecoder::Resp(Decoder::default()));
        let mut arena = b"PING\r\nECHO 'a b'\r\nGET k\r\n*2\r\n$4\r\nEC".to_vec();
        let mut ranges = Vec::new();
        let (mut decoded, mut executed) = (0, 0);
        let bytes_missing = loop {
            let first = ranges.len();
            match input
                .decoder
                .next(&mut arena, decoded, &mut ranges)
                .unwrap()
            {
                Decoded::Request { end, .. } if executed == 0 => (executed, decoded) = (end, end),
                Decoded::Request { end, .. } => {
                    input.defer(&ranges[first..], end, false);
                    decoded = end;
                }
                Decoded::TooLong { .. } => unreachable!("there is no bound"),
                Decoded::Incomplete {
                    start,
                    bytes_missing,
                } => {
                    decoded = start;
                    break bytes_missing;
                }
            }
        };
        input.keep(&arena, executed, decoded, bytes_missing);
        assert_eq!(waiting(&input), ["ECHO a b", "GET k"]);
        assert!(!input.is_hungry(), "IN2");

        let end_of = |input: &Input| input.waiting().0.next().unwrap().1;
        for left in [&["GET k"][..], &[]] {
            let executed = end_of(&input);
            input.executed_waiting();
            let (_, decoded) = input.progress();
            input.advance(executed, decoded, bytes_missing);
            assert_eq!(waiting(&input), left);
        }
        assert_eq!(input.bytes(), b"*2\r\n$4\r\nEC");
        assert_eq!(input.progress(), (0, 0));
        assert!(input.is_hungry());

        // The decoder continues where it stopped.
        input.bytes.extend_from_slice(b"HO\r\n$1\r\nx\r\n");
        let (bytes, decoder) = input.kept();
        ranges.clear();
        let decoded = decoder.next(bytes, 0, &mut ranges).unwrap();
        assert_eq!(
            decoded,
            Decoded::Request {
                arguments: 2,
                end: 21
            }
        );
        input.advance(21, 21, 0);
        assert_eq!((input.is_empty(), input.bytes.capacity()), (true, 0));
    }

    #[test]
    fn what_is_discarded_leaves_nothing_to_execute() {
        let mut input = Input::new(WireDecoder::Resp(Decoder::default()));
        let bytes = b"PING\r\nPING\r\n";
        input.defer(&[ArgumentRange { start: 0, len: 4 }], 6, false);
        input.keep(bytes, 0, 6, 0);
        input.error = Some(WireError::Resp(ProtocolError::InvalidBulkLength));
        assert!(!input.is_hungry());
        input.discard();
        assert!(input.is_hungry() && input.is_empty() && !input.has_waiting());
    }
}
