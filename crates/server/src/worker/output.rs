//! One connection's waiting output, and the buffers that all connections of a worker share.
//!
//! Replies may be held until a log epoch is durable. Held output comes after what may be sent, in
//! order, so everything written after a held reply is held with it.
//!
//! Invariants:
//! - **OU1** `marks` increase in both fields: from a mark's byte on, output waits for its epoch.
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

/// From here on output waits for an epoch (OU1).
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Offset in the buffer.
    from: usize,
    epoch: LogEpoch,
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
        let is_later = self.marks.back().is_none_or(|last| epoch > last.epoch);
        if from < self.bytes.len() && is_later {
            self.marks.push_back(Mark { from, epoch });
        }
        debug_assert!(self.marks_increase());
    }

    /// OU1, and nothing that waits is sent.
    fn marks_increase(&self) -> bool {
        let pairs = self.marks.iter().zip(self.marks.iter().skip(1));
        let mut pairs = pairs.map(|(one, next)| one.from <= next.from && one.epoch < next.epoch);
        pairs.all(|increase| increase) && self.sent <= self.sendable()
    }

    /// Makes all unsent output wait for `epoch`, or for an earlier one that part of it already
    /// waits for; returns which.
    pub(crate) fn hold_all(&mut self, epoch: LogEpoch) -> LogEpoch {
        match self.marks.front_mut() {
            Some(first) if first.epoch <= epoch => first.from = self.sent,
            _ => self.marks.push_front(Mark {
                from: self.sent,
                epoch,
            }),
        }
        debug_assert!(self.marks_increase());
        self.marks[0].epoch
    }

    /// The epoch that the first held byte waits for.
    pub(crate) fn awaits(&self) -> Option<LogEpoch> {
        self.marks.front().map(|mark| mark.epoch)
    }

    /// Everything up to `epoch` is durable: output that waited for it may be sent.
    pub(crate) fn release(&mut self, epoch: LogEpoch) {
        while self.marks.front().is_some_and(|mark| mark.epoch <= epoch) {
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
        output.release(LogEpoch(7));
        assert!(output.has_sendable());
        assert_eq!(output.hold_all(LogEpoch(8)), LogEpoch(8));
        output.hold(11, LogEpoch(9));
        assert_eq!(output.hold_all(LogEpoch(6)), LogEpoch(6));
        let marks: Vec<_> = output.marks.iter().map(|mark| mark.epoch).collect();
        assert_eq!(marks, [6, 8, 9].map(LogEpoch));
    }
}
