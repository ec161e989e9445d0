//! One connection's waiting output, and the buffers that all connections of a worker share.
//!
//! Replies may be held until a log epoch is durable. Held output comes after what may be sent, in
//! order, so everything written after a held reply is held with it.
//!
//! Invariants:
//! - **OU1** `marks` are in the order of their bytes: from a mark's byte on, output waits for its
//!   epoch, and for those of the marks before.
//!
//! A mark may have a time limit. When that has passed, the reply that the mark belongs to is
//! replaced by an error ([`Output::refuse`]), which goes out in its place.
//!
//! A connection borrows a buffer when a reply is written and returns it when the socket has taken
//! everything, so an idle connection holds none. Buffers that a long reply has made large are freed
//! instead.
//!
//! Deliberately absent: bounds. Callers that write replies check [`Output::pending`] first.

use std::collections::VecDeque;
use std::io;

use pando_db::LogEpoch;
use pando_io::Stream;

use crate::limits;

/// Empty buffers, the last one returned on top: its memory is warm.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    buffers: Vec<Vec<u8>>,
}

impl BufferPool {
    /// An empty buffer.
    fn take(&mut self) -> Vec<u8> {
        self.buffers
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(limits::OUTPUT_BUFFER_BYTES))
    }

    /// Keeps a buffer for reuse, or frees it when it is large or there are enough.
    fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= limits::POOLED_BUFFER_BYTES_MAX
            && self.buffers.len() < limits::POOLED_BUFFERS_MAX
        {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is left.
    All,
    /// The socket takes no more now.
    Part,
    /// What is left is held.
    Held,
}

/// Of a reply that is not given up.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// From here on output waits for an epoch (OU1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Offset in the buffer, and of the end of the reply.
    from: usize,
    end: usize,
    pub(crate) epoch: LogEpoch,
    /// How many replicas must have it; with none this server's disk.
    pub(crate) replicas: u8,
    /// When the reply is given up, in nanoseconds since the server's start.
    pub(crate) due_ns: u64,
}

/// The output of one connection.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Bytes at the front that the socket has taken.
    sent: usize,
    /// What is held; empty unless the client wants replies to wait for the disk.
    marks: VecDeque<Mark>,
}

impl Output {
    /// Bytes that wait.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The end of what may be sent.
    #[inline]
    fn sendable(&self) -> usize {
        self.marks
            .front()
            .map_or(self.bytes.len(), |mark| mark.from)
    }

    /// Whether something may be sent now.
    #[inline]
    pub(crate) fn has_sendable(&self) -> bool {
        self.sendable() > self.sent
    }

    /// Makes the output from offset `from` of the buffer on wait for `epoch`. `from` is where the
    /// last reply begins.
    pub(crate) fn hold(&mut self, from: usize, epoch: LogEpoch) {
        self.hold_for(from, epoch, (0, NEVER_NS));
    }

    /// The same until so many replicas have the epoch, or until a time. A mark for the disk is left
    /// out if the last one waits for as much.
    pub(crate) fn hold_for(&mut self, from: usize, epoch: LogEpoch, until: (u8, u64)) {
        let (replicas, due_ns) = until;
        let is_covered = replicas == 0 && self.covers() >= epoch;
        let end = self.bytes.len();
        if from < end && !is_covered {
            self.marks.push_back(Mark {
                from,
                end,
                epoch,
                replicas,
                due_ns,
            });
        }
        debug_assert!(self.marks_increase());
    }

    /// Puts an error in the place of the first held reply.
    pub(crate) fn refuse(&mut self, error: &[u8]) {
        let Some(first) = self.marks.pop_front() else {
            return;
        };
        self.bytes
            .splice(first.from..first.end, error.iter().copied());
        let moved = |offset: usize| offset - first.end + first.from + error.len();
        for mark in &mut self.marks {
            (mark.from, mark.end) = (moved(mark.from), moved(mark.end));
        }
        debug_assert!(self.marks_increase());
    }

    /// OU1, and nothing that waits is sent.
    fn marks_increase(&self) -> bool {
        let pairs = self.marks.iter().zip(self.marks.iter().skip(1));
        let mut pairs = pairs.map(|(one, next)| one.from <= next.from);
        pairs.all(|increase| increase) && self.sent <= self.sendable()
    }

    /// Makes all unsent output wait for `epoch`, or for an earlier one that part of it already
    /// waits for; returns which.
    pub(crate) fn hold_all(&mut self, epoch: LogEpoch) -> LogEpoch {
        match self.marks.front_mut() {
            Some(first) if first.epoch <= epoch && first.replicas == 0 => first.from = self.sent,
            _ => self.marks.push_front(Mark {
                from: self.sent,
                end: self.sent,
                epoch,
                replicas: 0,
                due_ns: NEVER_NS,
            }),
        }
        debug_assert!(self.marks_increase());
        self.marks[0].epoch
    }

    /// What the first held byte waits for.
    pub(crate) fn awaits(&self) -> Option<&Mark> {
        self.marks.front()
    }

    /// The epoch that a reply behind all others waits for in any case.
    #[inline]
    pub(crate) fn covers(&self) -> LogEpoch {
        let last = self.marks.back().filter(|mark| mark.replicas == 0);
        last.map_or(LogEpoch::NONE, |mark| mark.epoch)
    }

    /// Output whose marks have what they wait for may be sent.
    pub(crate) fn release(&mut self, has: impl Fn(&Mark) -> bool) {
        while self.marks.front().is_some_and(&has) {
            self.marks.pop_front();
        }
    }

    /// Heap bytes of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The buffer, to append a reply to.
    #[inline]
    pub(crate) fn buffer(&mut self, pool: &mut BufferPool) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        } else if self.sent > self.bytes.len() / 2 {
            // Fewer bytes are moved than were sent, so each byte is moved at most once on average.
            self.bytes.drain(..self.sent);
            for mark in &mut self.marks {
                mark.from -= self.sent;
                mark.end -= self.sent;
            }
            self.sent = 0;
        }
        &mut self.bytes
    }

    /// Passes waiting output to the socket; returns the result and how many bytes it took. One
    /// system call, none when nothing waits.
    pub(crate) fn send(
        &mut self,
        stream: &Stream,
        pool: &mut BufferPool,
    ) -> io::Result<(Sent, usize)> {
        let mut taken = 0;
        let end = self.sendable();
        if self.sent < end {
            match stream.write(&self.bytes[self.sent..end]) {
                Ok(count) => taken = count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            self.sent += taken;
        }
        if self.sent < end {
            return Ok((Sent::Part, taken));
        }
        if self.pending() > 0 {
            return Ok((Sent::Held, taken));
        }
        debug_assert!(self.marks.is_empty());
        self.sent = 0;
        let buffer = std::mem::take(&mut self.bytes);
        if buffer.capacity() > 0 {
            pool.give(buffer);
        }
        Ok((Sent::All, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ou1_what_is_held_late_joins_what_is_held_already() {
        let mut output = Output::default();
        let mut pool = BufferPool::default();
        output
            .buffer(&mut pool)
            .extend_from_slice(b"sent taken held");
        output.sent = 5;
        output.hold(11, LogEpoch(7));
        assert!(output.has_sendable());
        assert_eq!(
            output.hold_all(LogEpoch(9)),
            LogEpoch(7),
            "the rest is waited for already"
        );
        assert!(!output.has_sendable());
        assert_eq!((output.marks.len(), output.marks[0].from), (1, 5));
        output.release(|mark| mark.epoch <= LogEpoch(7));
        assert!(output.has_sendable());
        assert_eq!(output.hold_all(LogEpoch(8)), LogEpoch(8));
        output.hold(11, LogEpoch(9));
        assert_eq!(output.hold_all(LogEpoch(6)), LogEpoch(6));
        let marks: Vec<_> = output.marks.iter().map(|mark| mark.epoch).collect();
        assert_eq!(marks, [6, 8, 9].map(LogEpoch));
    }

    #[test]
    fn what_is_appended_waits_for_what_the_last_mark_waits_for() {
        let mut output = Output::default();
        let mut pool = BufferPool::default();
        output.buffer(&mut pool).extend_from_slice(b"first");
        assert_eq!(output.covers(), LogEpoch::NONE);
        output.hold(0, LogEpoch(7));
        output.buffer(&mut pool).extend_from_slice(b"second");
        assert_eq!(output.covers(), LogEpoch(7));
        output.hold(5, LogEpoch(7));
        assert_eq!((output.marks.len(), output.has_sendable()), (1, false));
        output.hold_for(5, LogEpoch(7), (1, NEVER_NS));
        assert_eq!(output.covers(), LogEpoch::NONE, "replicas are more");
        output.release(|mark| mark.replicas == 0);
        assert_eq!(output.sendable(), 5);
    }

    #[test]
    fn a_reply_that_is_given_up_becomes_an_error_in_its_place() {
        let mut output = Output::default();
        let mut pool = BufferPool::default();
        let mut reply = |output: &mut Output, text: &[u8], until: Option<(u64, u8, u64)>| {
            let bytes = output.buffer(&mut pool);
            let from = bytes.len();
            bytes.extend_from_slice(text);
            if let Some((epoch, replicas, due_ns)) = until {
                output.hold_for(from, LogEpoch(epoch), (replicas, due_ns));
            }
        };
        reply(&mut output, b"one ", Some((7, 1, 10)));
        reply(&mut output, b"free ", None);
        reply(&mut output, b"two ", Some((7, 1, 20)));
        reply(&mut output, b"disk ", Some((6, 0, NEVER_NS)));
        assert_eq!(output.awaits().map(|mark| mark.due_ns), Some(10));
        output.refuse(b"gone ");
        assert_eq!(&output.bytes[..output.sendable()], b"gone free ");
        output.refuse(b"");
        assert_eq!(&output.bytes[..output.sendable()], b"gone free ");
        assert_eq!(output.bytes, b"gone free disk ");
        output.release(|mark| mark.replicas == 0 && mark.epoch <= LogEpoch(6));
        assert_eq!(output.sendable(), output.bytes.len());
    }
}
