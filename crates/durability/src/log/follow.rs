//! A log that can be followed: its newest epochs in memory, whole and in order.
//!
//! While the ring is on, a session that hands over its groups leaves a copy of them here, in a part
//! of its own. The closing of an epoch joins the parts to one [`FollowedEpoch`]. A follower names
//! the last epoch that it has, and gets the one behind it. Without a log of files the sessions
//! write to the ring alone ([`super::LogSession::in_memory`]).
//!
//! ```text
//! LogSession::hand_over ──► part of the session ── close, under all gates ──► FollowedEpoch
//!                                          the oldest are dropped beyond the bound ◄──┘ │ next
//!                                                                                       ▼ follower
//! ```
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `on` | [`Ring::turn_on`], [`Ring::turn_off`] | all gates; `Relaxed`, the gates order it | sessions, under a gate |
//! | `parts[i]` | sessions with that index modulo their number; the closing of epochs | its mutex | the same |
//! | `state` | the closing of epochs, under all gates | its mutex | followers |
//!
//! Locks: `state`, then a part; never another lock of the log with them.
//!
//! Invariants:
//! - **LB1 no-gap** Each epoch names the one before it that has anything. [`Ring::next`] returns
//!   the epoch that names the follower's, or says that it is gone; it never passes one over.
//! - **LB2 whole-epochs** An epoch is here as a whole: what was handed over with an epoch up to its
//!   own is in it or in one before.
//! - **LB3 bounded** The ring holds at most its bound, or the newest epoch alone if that is larger,
//!   besides the open one.
//!
//! Deliberately absent: durability (the caller says up to which epoch a follower may see), the
//! meaning of records, sockets.

use pando_sync::shim::unmodelled::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pando_sync::{LogEpoch, Milliseconds, Padded, lock};

use super::frame::{Part, split_group};
use super::queue::Body;

/// Sessions share this many parts.
const PARTS: usize = 16;

/// Bytes of groups that a session gives away rather than copies, at least: copying fewer costs less
/// than memory for the next ones.
const GIVEN_BYTES_MIN: usize = 64 * 1024;

/// Bytes for which a part has memory when an epoch begins, at most; as many as it had in the epoch
/// before, so that it grows once.
const PART_BYTES_KEPT: usize = 1024 * 1024;

/// An epoch, as it was handed over.
#[derive(Debug, PartialEq, Eq)]
pub struct FollowedEpoch {
    /// The epoch.
    pub epoch: LogEpoch,
    /// The epoch before it that has anything; the ring's start for the first (LB1).
    pub previous: LogEpoch,
    /// Wall clock when it was closed.
    pub wall_ms: Milliseconds,
    /// Bytes of all epochs up to this one, since the ring exists.
    pub offset: u64,
    /// Its groups, each behind its header: [`records`] takes them apart.
    pub groups: Vec<u8>,
}

/// What a follower gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The epoch behind its own.
    Epoch(Arc<FollowedEpoch>),
    /// It has everything that it may see.
    Nothing,
    /// What follows its epoch is no longer here, or never was: it needs a full copy.
    Gone,
}

#[derive(Debug, Default)]
struct State {
    epochs: VecDeque<Arc<FollowedEpoch>>,
    bytes: usize,
    /// What the first epoch here names as the one before it.
    start: LogEpoch,
    /// The newest epoch that has anything; `start` if there is none.
    newest: LogEpoch,
    offset: u64,
}

/// See the module's header.
#[derive(Debug)]
pub struct Ring {
    on: AtomicBool,
    parts: Box<[Padded<Mutex<Vec<u8>>>]>,
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: AtomicUsize,
}

impl Ring {
    /// A ring that is off and, once on, holds about this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            on: AtomicBool::new(false),
            parts: (0..PARTS).map(|_| Padded::default()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
            bytes_max: AtomicUsize::new(bytes_max),
        }
    }

    /// Whether sessions leave their groups here.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Begins behind `closed`, the last epoch that was closed, with nothing in it. Whoever follows
    /// an epoch before needs a full copy. The caller holds all gates, and nothing is handed over
    /// that belongs to a later epoch.
    pub fn turn_on(&self, closed: LogEpoch) {
        self.clear(closed);
        self.on.store(true, Ordering::Relaxed);
    }

    /// Ends it. The caller holds all gates.
    pub fn turn_off(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.clear(LogEpoch::NONE);
    }

    fn clear(&self, start: LogEpoch) {
        for part in &self.parts {
            lock(part).clear();
        }
        let mut state = lock(&self.state);
        state.epochs.clear();
        (state.bytes, state.start, state.newest) = (0, start, start);
        drop(state);
        self.changed.notify_all();
    }

    /// Sets the bound (LB3).
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.trim(bytes_max);
    }

    /// Copies what session `index` hands over, under a gate.
    pub(super) fn push<'b>(
        &self,
        index: usize,
        frames: impl Iterator<Item = &'b Body> + Clone,
        groups: &[u8],
    ) {
        let mut part = lock(&self.parts[index % PARTS]);
        part.reserve(groups.len() + frames.clone().map(Body::bytes).sum::<usize>());
        for body in frames {
            let (first, rest) = body.payload();
            part.extend_from_slice(first);
            part.extend_from_slice(rest);
        }
        part.extend_from_slice(groups);
    }

    /// Takes what session `index` hands over, under a gate, and what nobody else keeps. What is
    /// left there is empty.
    pub(super) fn give(&self, index: usize, groups: &mut Vec<u8>) {
        let mut part = lock(&self.parts[index % PARTS]);
        if part.is_empty() && groups.len() >= GIVEN_BYTES_MIN {
            std::mem::swap(&mut *part, groups);
        } else {
            part.extend_from_slice(groups);
            groups.clear();
        }
    }

    /// Whether something was handed over since the last epoch was closed. If not, what was handed
    /// over before the call is in [`Self::newest`], called afterwards, or in one before.
    #[must_use]
    pub fn has_open(&self) -> bool {
        self.is_on() && self.parts.iter().any(|part| !lock(part).is_empty())
    }

    /// Closes an epoch (LB2). Called in epoch order, by whoever closes it in the log: nobody hands
    /// over anything of it any more.
    pub fn close(&self, epoch: LogEpoch, wall_ms: Milliseconds) {
        if !self.is_on() {
            return;
        }
        // Before the parts: whoever finds them empty then finds this epoch by [`Self::newest`].
        let mut state = lock(&self.state);
        let mut groups = Vec::new();
        for part in &self.parts {
            let mut part = lock(part);
            if part.is_empty() {
                *part = Vec::new();
            } else if groups.is_empty() {
                let next = Vec::with_capacity(part.len().min(PART_BYTES_KEPT));
                groups = std::mem::replace(&mut *part, next);
            } else {
                groups.append(&mut part);
                part.shrink_to(PART_BYTES_KEPT);
            }
        }
        if groups.is_empty() {
            return;
        }
        assert!(epoch > state.newest, "epochs are closed in their order");
        state.offset += groups.len() as u64;
        state.bytes += groups.len();
        let closed = FollowedEpoch {
            epoch,
            previous: state.newest,
            wall_ms,
            offset: state.offset,
            groups,
        };
        state.newest = epoch;
        state.epochs.push_back(Arc::new(closed));
        state.trim(self.bytes_max.load(Ordering::Relaxed));
        drop(state);
        self.changed.notify_all();
    }

    /// The epoch behind `after`, if it is `durable` (LB1).
    #[must_use]
    pub fn next(&self, after: LogEpoch, durable: LogEpoch) -> Next {
        let state = lock(&self.state);
        if !self.is_on() || after < state.start || after > state.newest {
            return Next::Gone;
        }
        let at = state.epochs.partition_point(|one| one.epoch <= after);
        match state.epochs.get(at) {
            None if after == state.newest => Next::Nothing,
            Some(next) if next.previous == after && next.epoch <= durable => {
                Next::Epoch(Arc::clone(next))
            }
            Some(next) if next.previous == after => Next::Nothing,
            _ => Next::Gone,
        }
    }

    /// The newest closed epoch that has anything, or where the ring began.
    #[must_use]
    pub fn newest(&self) -> LogEpoch {
        lock(&self.state).newest
    }

    /// Behind which epoch the oldest is that is here.
    #[must_use]
    pub fn start(&self) -> LogEpoch {
        lock(&self.state).start
    }

    /// The wall clock when the newest of the epochs was closed that are here.
    #[must_use]
    pub fn newest_wall(&self) -> Option<Milliseconds> {
        lock(&self.state).epochs.back().map(|newest| newest.wall_ms)
    }

    /// Bytes of all epochs so far; bytes that are here.
    #[must_use]
    pub fn sizes(&self) -> (u64, usize) {
        let state = lock(&self.state);
        (state.offset, state.bytes)
    }

    /// Bytes of all epochs up to this one; if it is before those that are here, up to these.
    #[must_use]
    pub fn offset(&self, epoch: LogEpoch) -> u64 {
        let state = lock(&self.state);
        let at = state.epochs.partition_point(|one| one.epoch <= epoch);
        let next = state.epochs.get(at);
        next.map_or(state.offset, |next| next.offset - next.groups.len() as u64)
    }

    /// Waits until there is an epoch behind `after`, for this long at most.
    pub fn wait(&self, after: LogEpoch, limit: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), limit, |state| state.newest == after);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    fn trim(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max && self.epochs.len() > 1 {
            let oldest = self.epochs.pop_front().expect("there are two");
            self.bytes -= oldest.groups.len();
            self.start = oldest.epoch;
        }
    }
}

/// Calls `visit` with the records in `groups`, in pieces that end where a group ends; `false`: the
/// groups are malformed. A group that came in parts is one piece.
pub fn records(mut groups: &[u8], mut visit: impl FnMut(&[u8]) -> bool) -> bool {
    let mut long: Vec<u8> = Vec::new();
    let mut within = false;
    while !groups.is_empty() {
        let Some((part, bytes, rest)) = split_group(groups) else {
            return false;
        };
        groups = rest;
        let begins = matches!(part, Part::Whole | Part::First);
        if begins == within {
            return false;
        }
        within = matches!(part, Part::First | Part::Middle);
        let whole = match part {
            Part::Whole => visit(bytes),
            Part::First | Part::Middle => {
                long.extend_from_slice(bytes);
                true
            }
            Part::Last => {
                long.extend_from_slice(bytes);
                let whole = visit(&long);
                long.clear();
                whole
            }
        };
        if !whole {
            return false;
        }
    }
    !within
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::LogSession;
    use super::*;

    const ALL: LogEpoch = LogEpoch(u64::MAX);

    fn write(session: &mut LogSession, epoch: u64, record: &[u8]) {
        session.append(|out| out.extend_from_slice(record));
        session.end_group(LogEpoch(epoch));
        session.hand_over();
    }

    fn all(epoch: &FollowedEpoch) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        assert!(records(&epoch.groups, |bytes| {
            found.push(bytes.to_vec());
            true
        }));
        found
    }

    fn ring(bytes_max: usize) -> (Arc<Ring>, LogSession) {
        let ring = Arc::new(Ring::new(bytes_max));
        let session = LogSession::in_memory(Arc::clone(&ring), 3);
        (ring, session)
    }

    /// What a follower finds behind `after`: epochs and the one that each names.
    fn follow(ring: &Ring, mut after: LogEpoch) -> Result<Vec<(u64, u64)>, LogEpoch> {
        let mut found = Vec::new();
        loop {
            match ring.next(after, ALL) {
                Next::Epoch(epoch) => {
                    found.push((epoch.epoch.0, epoch.previous.0));
                    after = epoch.epoch;
                }
                Next::Nothing => return Ok(found),
                Next::Gone => return Err(after),
            }
        }
    }

    #[test]
    fn epochs_come_whole_in_order_and_only_when_durable() {
        let (ring, mut session) = ring(usize::MAX);
        let mut other = LogSession::in_memory(Arc::clone(&ring), 4);
        write(&mut session, 1, b"before it is on");
        ring.turn_on(LogEpoch(1));
        write(&mut session, 2, b"a");
        write(&mut other, 2, b"b");
        assert!(ring.has_open());
        ring.close(LogEpoch(2), Milliseconds(7));
        assert!(!ring.has_open());
        ring.close(LogEpoch(3), Milliseconds(8));
        write(&mut session, 4, b"c");
        assert_eq!(follow(&ring, LogEpoch(1)), Ok(vec![(2, 1)]), "4 is open");
        ring.close(LogEpoch(4), Milliseconds(9));
        assert_eq!(follow(&ring, LogEpoch(1)), Ok(vec![(2, 1), (4, 2)]));
        assert_eq!(ring.next(LogEpoch(2), LogEpoch(3)), Next::Nothing);
        let Next::Epoch(first) = ring.next(LogEpoch(1), LogEpoch(3)) else {
            panic!("it is durable");
        };
        assert_eq!(all(&first), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!((first.wall_ms, first.offset), (Milliseconds(7), 10));
        for foreign in [0, 3, 5] {
            assert_eq!(ring.next(LogEpoch(foreign), ALL), Next::Gone, "{foreign}");
        }
    }

    /// A failover that found neither would leave the epoch behind.
    #[test]
    fn an_epoch_that_is_being_closed_is_open_or_the_newest() {
        let (ring, mut session) = ring(1000);
        ring.turn_on(LogEpoch(1));
        for epoch in 2..200 {
            write(&mut session, epoch, b"record");
            let epoch = LogEpoch(epoch);
            std::thread::scope(|scope| {
                let closing = scope.spawn(|| ring.close(epoch, Milliseconds(0)));
                while !closing.is_finished() {
                    assert!(ring.has_open() || ring.newest() == epoch);
                }
            });
        }
    }

    #[test]
    fn what_is_beyond_the_bound_is_gone_and_told() {
        let (ring, mut session) = ring(20);
        ring.turn_on(LogEpoch(1));
        for epoch in 2..=6 {
            write(&mut session, epoch, b"record");
            ring.close(LogEpoch(epoch), Milliseconds(0));
        }
        assert_eq!(ring.next(LogEpoch(3), ALL), Next::Gone);
        assert_eq!(follow(&ring, LogEpoch(4)), Ok(vec![(5, 4), (6, 5)]));
        write(&mut session, 7, &[0; 100]);
        ring.close(LogEpoch(7), Milliseconds(0));
        assert_eq!(ring.sizes().1, 104, "LB3: the newest stays");
        assert_eq!(ring.next(LogEpoch(5), ALL), Next::Gone);
        ring.turn_on(LogEpoch(9));
        assert_eq!(ring.next(LogEpoch(7), ALL), Next::Gone);
        assert_eq!(ring.next(LogEpoch(9), ALL), Next::Nothing);
        ring.turn_off();
        assert_eq!(ring.next(LogEpoch(9), ALL), Next::Gone);
    }

    /// What is given away is what is copied else.
    #[test]
    fn groups_of_any_length_come_in_their_order() {
        let (ring, mut session) = ring(usize::MAX);
        ring.turn_on(LogEpoch(1));
        let mut written = Vec::new();
        let lengths = [
            9,
            GIVEN_BYTES_MIN,
            3,
            2 * PART_BYTES_KEPT,
            GIVEN_BYTES_MIN,
            1,
        ];
        for (epoch, first) in (2..).zip(0..lengths.len()) {
            for length in &lengths[first..] {
                let record = vec![written.len() as u8; *length];
                write(&mut session, epoch, &record);
                written.push((epoch, record));
            }
            ring.close(LogEpoch(epoch), Milliseconds(epoch));
            assert_eq!(ring.newest_wall(), Some(Milliseconds(epoch)));
        }
        let (mut after, mut found) = (LogEpoch(1), Vec::new());
        while let Next::Epoch(epoch) = ring.next(after, ALL) {
            after = epoch.epoch;
            found.extend(all(&epoch).into_iter().map(|record| (after.0, record)));
        }
        assert!(found == written);
    }

    /// The canary of LB1: an epoch that is lost between two others is noticed.
    #[test]
    fn a_skipped_epoch_is_noticed() {
        let (ring, mut session) = ring(usize::MAX);
        ring.turn_on(LogEpoch(1));
        for epoch in 2..=4 {
            write(&mut session, epoch, b"record");
            ring.close(LogEpoch(epoch), Milliseconds(0));
        }
        assert_eq!(follow(&ring, LogEpoch(1)).map(|all| all.len()), Ok(3));
        lock(&ring.state).epochs.remove(1);
        assert_eq!(follow(&ring, LogEpoch(1)), Err(LogEpoch(2)));
    }

    #[test]
    fn long_groups_come_together_and_malformed_ones_are_refused() {
        let (ring, mut session) = ring(usize::MAX);
        ring.turn_on(LogEpoch(1));
        let long = vec![9; 3 * crate::limits::RING_GROUP_BYTES_MAX];
        write(&mut session, 2, b"short");
        write(&mut session, 2, &long);
        ring.close(LogEpoch(2), Milliseconds(0));
        let Next::Epoch(epoch) = ring.next(LogEpoch(1), ALL) else {
            panic!("it is closed");
        };
        assert_eq!(all(&epoch), [b"short".to_vec(), long]);
        for end in [1, 5, epoch.groups.len() - 1] {
            assert!(!records(&epoch.groups[..end], |_| true), "{end}");
        }
        assert!(!records(&epoch.groups[9..], |bytes| bytes.len() < 9));
    }
}
