//! What one session writes: records, gathered into groups, gathered into frames.
//!
//! ```text
//! reserve ─► append … append ─► end_group ─► … ─► hand_over
//!            (one command or EXEC: a group)        (the turn's end)
//! ```
//!
//! A record costs its own bytes, a group four more, a frame 32 more. A frame holds all writes of
//! one turn, or of several turns in one epoch. Nobody else touches the session's buffer, so
//! `append` takes no lock.

use pando_sync::shim::unmodelled::Ordering;
use std::sync::Arc;

use pando_sync::{LogEpoch, Microseconds};

use super::Shared;
use super::follow::Ring;
use super::frame::{GROUP_HEADER_BYTES, Part, group_header};
use super::queue::Body;
use crate::limits::{FRAME_BYTES, FRAME_BYTES_MAX, RING_GROUP_BYTES_MAX};

/// One session's connection to its log.
#[derive(Debug)]
pub struct LogSession {
    /// None: what is handed over goes to the ring alone.
    shared: Option<Arc<Shared>>,
    log: usize,
    ring: Option<Arc<Ring>>,
    /// The session's part of the ring.
    index: usize,
    /// Whole groups with their headers, then the group being written, its header empty.
    buffer: Vec<u8>,
    /// Where the group being written begins: the buffer's length if there is none.
    group: usize,
    /// The epoch of the whole groups.
    epoch: LogEpoch,
    /// Complete frames.
    frames: Vec<(LogEpoch, Body)>,
    /// Most bytes of a frame in this log.
    frame_bytes_max: usize,
    /// Bytes of this turn that fit in the space that the log is known to have
    /// (LT1 acknowledged-fits).
    granted: usize,
}

impl LogSession {
    pub(super) fn new(shared: Arc<Shared>, log: usize) -> Self {
        let frame_bytes_max = shared.frame_bytes_max();
        Self::with(Some(shared), log, frame_bytes_max)
    }

    /// A session without a log of files, whose groups followers see and nobody else.
    #[must_use]
    pub fn in_memory(ring: Arc<Ring>, index: usize) -> Self {
        Self::with(None, 0, RING_GROUP_BYTES_MAX).followed(ring, index)
    }

    /// A session whose records become another one's: [`Self::group`] has them, and nothing is
    /// handed over.
    #[must_use]
    pub fn apart() -> Self {
        Self::with(None, 0, FRAME_BYTES_MAX)
    }

    /// Whether it is such a session.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        self.shared.is_none() && self.ring.is_none()
    }

    /// The same session, which leaves a copy of its groups in the ring while that is on.
    #[must_use]
    pub fn followed(mut self, ring: Arc<Ring>, index: usize) -> Self {
        (self.ring, self.index) = (Some(ring), index);
        self
    }

    fn with(shared: Option<Arc<Shared>>, log: usize, frame_bytes_max: usize) -> Self {
        Self {
            shared,
            log,
            ring: None,
            index: 0,
            buffer: Vec::new(),
            group: 0,
            epoch: LogEpoch::NONE,
            frames: Vec::new(),
            frame_bytes_max,
            granted: 0,
        }
    }

    /// Reserves space for records of this many bytes, so that appending them allocates nothing.
    pub fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes + GROUP_HEADER_BYTES);
    }

    /// Adds a record to the group being written.
    #[inline]
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.buffer.len() == self.group {
            self.buffer.extend_from_slice(&[0; GROUP_HEADER_BYTES]);
        }
        write(&mut self.buffer);
    }

    /// Whether a group is being written.
    pub fn has_group(&self) -> bool {
        self.buffer.len() > self.group
    }

    /// The records of the group being written.
    #[must_use]
    pub fn group(&self) -> &[u8] {
        let bytes = &self.buffer[self.group..];
        bytes.get(GROUP_HEADER_BYTES..).unwrap_or_default()
    }

    /// Forgets the group being written.
    pub fn drop_group(&mut self) {
        self.buffer.truncate(self.group);
    }

    /// Ends the group, which is recovered whole or not at all; it was written in `epoch`. Does
    /// nothing without a record since the last group.
    #[inline]
    pub fn end_group(&mut self, epoch: LogEpoch) {
        if !self.has_group() {
            return;
        }
        debug_assert!(epoch >= self.epoch && epoch > LogEpoch::NONE);
        if self.epoch != epoch {
            self.cut_whole_groups();
            self.epoch = epoch;
        }
        if self.buffer.len() > self.frame_bytes_max {
            self.cut_whole_groups();
            if self.buffer.len() > self.frame_bytes_max {
                self.split_group();
                return;
            }
        }
        let bytes = self.buffer.len() - self.group - GROUP_HEADER_BYTES;
        let header = group_header(bytes, Part::Whole);
        self.buffer[self.group..self.group + GROUP_HEADER_BYTES].copy_from_slice(&header);
        self.group = self.buffer.len();
        if self.group >= FRAME_BYTES.min(self.frame_bytes_max) {
            self.cut_whole_groups();
        }
    }

    /// Makes a frame of the whole groups.
    fn cut_whole_groups(&mut self) {
        if self.group == 0 {
            return;
        }
        let rest = self.buffer.split_off(self.group);
        let groups = std::mem::replace(&mut self.buffer, rest);
        self.group = 0;
        self.frames.push((self.epoch, Body::Groups(groups)));
    }

    /// Makes frames of the one group in the buffer, which is longer than a frame.
    fn split_group(&mut self) {
        let bytes = Arc::new(std::mem::take(&mut self.buffer));
        self.group = 0;
        let most = self.frame_bytes_max - GROUP_HEADER_BYTES;
        let mut at = GROUP_HEADER_BYTES;
        while at < bytes.len() {
            let end = bytes.len().min(at + most);
            let part = match (at == GROUP_HEADER_BYTES, end == bytes.len()) {
                (true, _) => Part::First,
                (false, false) => Part::Middle,
                (false, true) => Part::Last,
            };
            let header = group_header(end - at, part);
            let body = Body::Part(header, Arc::clone(&bytes), at..end);
            self.frames.push((self.epoch, body));
            at = end;
        }
        debug_assert!(!self.has_group());
    }

    /// Sets the earliest time at which writes since the last call of [`Self::hand_over`] may be
    /// acknowledged, by a monotonic clock ([`super::Log::is_late`]). To be called before the next
    /// one; the clock is read once per epoch.
    #[inline]
    pub fn note_write(&self, now: impl FnOnce() -> Microseconds) {
        if let Some(shared) = &self.shared
            && (!self.buffer.is_empty() || !self.frames.is_empty())
        {
            shared.epochs.note_write(now);
        }
    }

    /// Hands the writes over to the log: at the end of a turn, and before the session takes all
    /// gates.
    ///
    /// # Panics
    /// When a group was begun and not ended, or was ended in a closed epoch.
    #[inline]
    pub fn hand_over(&mut self) {
        if self.buffer.is_empty() && self.frames.is_empty() {
            return;
        }
        self.hand_over_all();
    }

    fn hand_over_all(&mut self) {
        assert!(!self.has_group(), "a group was begun and not ended");
        let ring = self.ring.as_ref().filter(|ring| ring.is_on());
        let Some(shared) = &self.shared else {
            if let Some(ring) = ring {
                for (_, body) in self.frames.drain(..) {
                    match body {
                        Body::Groups(mut groups) => ring.give(self.index, &mut groups),
                        part => ring.push(self.index, std::iter::once(&part), &[]),
                    }
                }
                ring.give(self.index, &mut self.buffer);
            }
            self.frames.clear();
            self.buffer.clear();
            self.group = 0;
            return;
        };
        if let Some(ring) = ring {
            let bodies = self.frames.iter().map(|(_, body)| body);
            ring.push(self.index, bodies, &self.buffer);
        }
        let frames: usize = self.frames.iter().map(|(_, body)| body.bytes()).sum();
        let bytes = frames + self.buffer.len();
        // Partner of the subtraction after the write: only the sum matters.
        shared.pending.fetch_add(bytes, Ordering::Relaxed);
        shared.logs[self.log]
            .pending
            .fetch_add(bytes, Ordering::Relaxed);
        self.granted = self.granted.saturating_sub(bytes);
        let queue = &shared.logs[self.log].queue;
        let early = queue.push(self.frames.drain(..), self.epoch, &mut self.buffer);
        self.group = 0;
        if early {
            queue.wake();
        }
    }

    /// Waits while too much data was handed over and is not yet written; called before a gate is
    /// taken. Returns at once when writes are refused anyway ([`super::Log::state`]).
    #[inline]
    pub fn wait_for_room(&mut self) {
        let Some(shared) = &self.shared else { return };
        if shared.is_crowded(self.log) {
            shared.wait_for_room(self.log);
        }
        self.granted = shared.granted(self.log);
    }

    /// Whether groups not handed over yet may find no space on the disk (LT1 acknowledged-fits):
    /// they must not be acknowledged before they are durable.
    #[inline]
    #[must_use]
    pub fn is_beyond_room(&self) -> bool {
        self.shared.is_some() && self.is_beyond_granted()
    }

    #[inline]
    fn is_beyond_granted(&self) -> bool {
        self.buffer.len() > self.granted || !self.frames.is_empty() && self.all_beyond_room()
    }

    #[cold]
    fn all_beyond_room(&self) -> bool {
        let frames: usize = self.frames.iter().map(|(_, body)| body.bytes()).sum();
        frames + self.buffer.len() > self.granted
    }
}
