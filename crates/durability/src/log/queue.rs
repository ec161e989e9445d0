//! What was handed over to one log and is not yet written.
//!
//! | field | writer | under |
//! |---|---|---|
//! | `entries`, `bytes`, `next`, `open`, `spare`, `again` | sessions ([`Queue::push`]), the closing of epochs ([`Queue::close`]), the log's writer ([`Queue::take`]) | `state` |
//!
//! Invariants:
//! - **LQ1** Frames get their sequence in the order in which they are handed over, and are written
//!   in that order: a log's frames have consecutive sequences.
//! - **LQ2 nothing-late** Nothing is handed over for a closed epoch: an epoch is closed under all
//!   gates, with every session's groups handed over. A violation stops the server rather than
//!   acknowledge what recovery would not find.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pando_sync::{LogEpoch, lock};

use super::frame::{FrameKind, GROUP_HEADER_BYTES, Participant, frame_bytes};
use crate::limits::{COPIED_BYTES_MAX, SPARE_BUFFERS_MAX, SPARE_BYTES_MAX};

/// The payload of a waiting frame.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Groups, each with its header.
    Groups(Vec<u8>),
    /// A part of a group that is too long for one frame.
    Part([u8; GROUP_HEADER_BYTES], Arc<Vec<u8>>, Range<usize>),
    Mark(Vec<u8>),
    Proof([u8; 8]),
}

impl Body {
    pub(super) fn kind(&self) -> FrameKind {
        match self {
            Self::Groups(_) | Self::Part(..) => FrameKind::Groups,
            Self::Mark(_) => FrameKind::Mark,
            Self::Proof(_) => FrameKind::Proof,
        }
    }

    pub(super) fn payload(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Groups(bytes) | Self::Mark(bytes) => (bytes, &[]),
            Self::Part(header, bytes, range) => (header, &bytes[range.clone()]),
            Self::Proof(bytes) => (bytes, &[]),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let (header, rest) = self.payload();
        header.len() + rest.len()
    }
}

/// A frame that waits or is in flight.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    pub(super) epoch: LogEpoch,
    pub(super) body: Body,
}

impl Entry {
    pub(super) fn frame_bytes(&self) -> usize {
        frame_bytes(self.body.bytes())
    }
}

#[derive(Debug)]
struct OpenEpoch {
    epoch: LogEpoch,
    first: u64,
    last: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Marks and proofs among the entries: somebody waits for them.
    urgent: usize,
    next: u64,
    closed: LogEpoch,
    open: Vec<OpenEpoch>,
    spare: Vec<Vec<u8>>,
    /// Data that a writer took and could not write must be tried again, though nothing waits here.
    again: bool,
    stopped: bool,
}

/// What was handed over to one log and is not yet written.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    /// The number of bytes that are written without waiting for the end of the epoch.
    early_bytes: usize,
    /// Bytes of groups up to which turns share a frame.
    frame_bytes: usize,
}

impl Queue {
    pub(super) fn new(early_bytes: usize, frame_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            ready: Condvar::new(),
            early_bytes,
            frame_bytes,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds frames of groups, then the `groups` of an epoch, which are returned empty. `true`:
    /// there is enough to write without waiting for the end of the epoch.
    ///
    /// # Panics
    /// When an epoch is already closed (LQ2).
    pub(super) fn push(
        &self,
        frames: impl Iterator<Item = (LogEpoch, Body)>,
        epoch: LogEpoch,
        groups: &mut Vec<u8>,
    ) -> bool {
        let mut state = self.lock();
        for (epoch, body) in frames {
            state.push(epoch, body);
        }
        if !groups.is_empty() {
            state.push_groups(epoch, groups, self.frame_bytes);
        }
        state.bytes >= self.early_bytes
    }

    pub(super) fn wake(&self) {
        self.ready.notify_one();
    }

    /// The frames to write next: as many as fit in `room` bytes, and at least one. With `until`,
    /// none after the mark of that epoch.
    pub(super) fn take(&self, room: usize, until: Option<LogEpoch>, batch: &mut Vec<Entry>) {
        let mut state = self.lock();
        let mut bytes = 0;
        while let Some(entry) = state.entries.front() {
            bytes += entry.frame_bytes();
            if bytes > room && !batch.is_empty() {
                break;
            }
            let entry = state.entries.pop_front().expect("it was seen");
            state.bytes -= entry.body.bytes();
            let urgent = entry.body.kind() != FrameKind::Groups;
            state.urgent -= usize::from(urgent);
            let last = urgent && until.is_some_and(|epoch| epoch <= entry.epoch);
            batch.push(entry);
            if last {
                break;
            }
        }
        assert!(!state.entries.is_empty() || (state.bytes, state.urgent) == (0, 0));
        debug_assert!(batch.is_sorted_by(|one, next| one.sequence + 1 == next.sequence));
    }

    /// The bytes that the next frame takes in a segment.
    pub(super) fn next_bytes(&self) -> Option<usize> {
        self.lock().entries.front().map(Entry::frame_bytes)
    }

    /// Whether a mark or a proof waits.
    pub(super) fn is_urgent(&self) -> bool {
        self.lock().urgent > 0
    }

    /// Returns buffers to sessions.
    pub(super) fn give_back(&self, entries: impl Iterator<Item = Entry>) {
        let mut state = self.lock();
        for entry in entries {
            if let Body::Groups(mut bytes) = entry.body
                && state.spare.len() < SPARE_BUFFERS_MAX
                && bytes.capacity() <= SPARE_BYTES_MAX
            {
                bytes.clear();
                state.spare.push(bytes);
            }
        }
    }

    /// Frees the buffers kept for sessions.
    pub(super) fn release(&self) {
        let spare = std::mem::take(&mut self.lock().spare);
        drop(spare);
    }

    /// Bytes of the buffers kept for sessions, and of waiting data.
    pub(super) fn buffer_bytes(&self) -> usize {
        let state = self.lock();
        state.spare.iter().map(Vec::capacity).sum::<usize>() + state.bytes
    }

    /// Waits until something should be written now. `false`: the log has stopped.
    pub(super) fn wait(&self) -> bool {
        let state = self.lock();
        let idle = |state: &mut State| {
            !state.stopped && !state.again && state.urgent == 0 && state.bytes < self.early_bytes
        };
        let state = self.ready.wait_while(state, idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.again = false;
        !state.stopped
    }

    /// Waits for a while, or until the log stops; then `false`.
    pub(super) fn pause(&self, limit: Duration) -> bool {
        let state = self.lock();
        let paused = self
            .ready
            .wait_timeout_while(state, limit, |state| !state.stopped);
        !paused.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    /// The logger has to write, even if nothing waits in the queue.
    pub(super) fn try_again(&self) {
        self.lock().again = true;
        self.ready.notify_one();
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
    }
}

impl State {
    fn add(&mut self, epoch: LogEpoch, body: Body) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.bytes += body.bytes();
        self.urgent += usize::from(body.kind() != FrameKind::Groups);
        self.entries.push_back(Entry {
            sequence,
            epoch,
            body,
        });
        sequence
    }

    fn push(&mut self, epoch: LogEpoch, body: Body) {
        assert!(epoch > self.closed, "epoch {epoch} is closed (LQ2)");
        let sequence = self.add(epoch, body);
        match self.open.iter_mut().find(|open| open.epoch == epoch) {
            Some(open) => open.last = sequence,
            None => self.open.push(OpenEpoch {
                epoch,
                first: sequence,
                last: sequence,
            }),
        }
    }

    /// Adds groups to the last frame, or makes a frame of them. Few bytes are copied, so that a
    /// session writes its records to the same memory in every turn, which stays in the cache.
    fn push_groups(&mut self, epoch: LogEpoch, groups: &mut Vec<u8>, frame_bytes: usize) {
        assert!(epoch > self.closed, "epoch {epoch} is closed (LQ2)");
        if groups.len() > COPIED_BYTES_MAX {
            let spare = self.spare.pop().unwrap_or_default();
            self.push(epoch, Body::Groups(std::mem::replace(groups, spare)));
            return;
        }
        if let Some(last) = self.entries.back_mut()
            && last.epoch == epoch
            && let Body::Groups(frame) = &mut last.body
            && frame.len() + groups.len() <= frame_bytes
        {
            frame.extend_from_slice(groups);
            self.bytes += groups.len();
        } else {
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.extend_from_slice(groups);
            self.push(epoch, Body::Groups(frame));
        }
        groups.clear();
    }

    /// Closes the epochs up to this one; returns what the log wrote in them.
    pub(super) fn close(&mut self, epoch: LogEpoch, log: u32) -> Option<Participant> {
        assert!(epoch > self.closed);
        self.closed = epoch;
        let mut closed: Option<Participant> = None;
        self.open.retain(|open| {
            if open.epoch <= epoch {
                let participant = closed.get_or_insert(Participant {
                    log,
                    first: open.first,
                    last: open.last,
                });
                participant.first = participant.first.min(open.first);
                participant.last = participant.last.max(open.last);
            }
            open.epoch > epoch
        });
        closed
    }

    pub(super) fn push_mark(&mut self, epoch: LogEpoch, mark: Vec<u8>) {
        assert!(epoch <= self.closed, "groups of the epoch may follow");
        self.add(epoch, Body::Mark(mark));
    }

    pub(super) fn push_proof(&mut self, epoch: LogEpoch) {
        self.add(epoch, Body::Proof(epoch.0.to_le_bytes()));
    }

    /// Whether something was handed over since the last epoch was closed.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 100;

    fn hand_over(queue: &Queue, epoch: u64, bytes: usize) {
        let mut groups = vec![epoch as u8; bytes];
        queue.push(std::iter::empty(), LogEpoch(epoch), &mut groups);
        assert!(groups.is_empty());
    }

    /// Epoch, sequence and bytes of the frames that wait.
    fn frames(queue: &Queue) -> Vec<(u64, u64, usize)> {
        let mut batch = Vec::new();
        queue.take(usize::MAX, None, &mut batch);
        let frames = batch
            .iter()
            .map(|entry| (entry.epoch.0, entry.sequence, entry.body.bytes()))
            .collect();
        queue.give_back(batch.into_iter());
        frames
    }

    #[test]
    fn turns_of_an_epoch_share_frames_up_to_their_bound() {
        let queue = Queue::new(usize::MAX, FRAME);
        for (epoch, bytes) in [(1, 40), (1, 60), (1, 1), (2, 10), (2, 91)] {
            hand_over(&queue, epoch, bytes);
        }
        assert_eq!(
            frames(&queue),
            [(1, 0, 100), (1, 1, 1), (2, 2, 10), (2, 3, 91)]
        );
    }

    #[test]
    fn a_mark_and_a_part_end_a_frame() {
        let queue = Queue::new(usize::MAX, FRAME);
        hand_over(&queue, 1, 10);
        let participant = queue.lock().close(LogEpoch(1), 0);
        assert_eq!(
            participant.map(|log| (log.first, log.last)),
            Some((0, 0)),
            "what is added to a frame belongs to it"
        );
        queue.lock().push_mark(LogEpoch(1), vec![0; 5]);
        hand_over(&queue, 2, 10);
        let part = Body::Part([0; GROUP_HEADER_BYTES], Arc::new(vec![0; 9]), 0..9);
        queue.push(
            std::iter::once((LogEpoch(2), part)),
            LogEpoch(2),
            &mut Vec::new(),
        );
        hand_over(&queue, 2, 10);
        hand_over(&queue, 2, 10);
        assert_eq!(
            frames(&queue),
            [(1, 0, 10), (1, 1, 5), (2, 2, 10), (2, 3, 13), (2, 4, 20)]
        );
        let participant = queue.lock().close(LogEpoch(2), 0);
        assert_eq!(participant.map(|log| (log.first, log.last)), Some((2, 4)));
    }

    #[test]
    fn what_was_taken_is_not_added_to() {
        let queue = Queue::new(15, FRAME);
        hand_over(&queue, 1, 10);
        assert_eq!(frames(&queue), [(1, 0, 10)]);
        let mut groups = vec![1; 20];
        assert!(
            queue.push(std::iter::empty(), LogEpoch(1), &mut groups),
            "enough"
        );
        assert_eq!(frames(&queue), [(1, 1, 20)]);
        let most = COPIED_BYTES_MAX;
        hand_over(&queue, 1, most + 1);
        hand_over(&queue, 1, 1);
        assert_eq!(frames(&queue), [(1, 2, most + 1), (1, 3, 1)]);
    }

    #[test]
    fn buffers_are_kept_until_the_log_rests() {
        let queue = Queue::new(usize::MAX, FRAME);
        hand_over(&queue, 1, FRAME);
        assert_eq!(queue.buffer_bytes(), FRAME);
        frames(&queue);
        assert!(queue.buffer_bytes() >= FRAME);
        queue.release();
        assert_eq!(queue.buffer_bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "LQ2")]
    fn lq2_groups_of_a_closed_epoch_stop_the_server() {
        let queue = Queue::new(usize::MAX, FRAME);
        hand_over(&queue, 1, 10);
        queue.lock().close(LogEpoch(1), 0);
        hand_over(&queue, 1, 10);
    }
}
