//! Which epochs are closed, in flight and durable, and who waits.
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `durable` | the thread that made the last mark durable, under `state` | `Release`, then a fence | everybody, `Acquire` |
//! | `open_since_us` | the first to write in an epoch, while it cannot be closed ([`Epochs::note_write`]); its closing | `Release` | [`Epochs::are_late`], `Acquire` |
//! | `closed_since_us` | the thread that closes an epoch or makes one durable, under `state` | `Relaxed` | likewise |
//! | `wanted` | waiting sessions ([`Epochs::want`]) | a fence after it | the epoch thread, under `state` |
//! | `state` | the closing of epochs, loggers | the lock | |
//!
//! States of an epoch:
//!
//! ```text
//! open ── close ──► in flight ── marked × participants, and all before it ──► durable
//!             └──── (nothing written, nothing in flight) ──────────────────────►┘
//! ```
//!
//! Invariants:
//! - **LE1 durable-is-written** `durable` is at least E only if every frame of every epoch up to E,
//!   marks included, is durable in every log that took part.
//! - **LE2 durable-in-order** Epochs become durable in order: recovery finds an epoch only with all
//!   before it.
//! - **LE3** A session that wants an epoch either finds it durable or is woken when it is. The
//!   session announces its wish and then reads `durable`; a logger publishes `durable` and then
//!   checks for wishes. A `SeqCst` fence separates the two steps on both sides.
//! - **LE4** The epoch thread does not sleep while an open epoch is wanted and nothing is in
//!   flight. It decides under `state`; a change to either condition is made, or followed by a
//!   check, under `state`, and wakes it.
//! - **LE5 late-is-told** While an epoch with writes is not durable, open ones included, at least
//!   one of the two times is set. It is no later than the moment at which the epoch's first write
//!   could have been acknowledged.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use pando_sync::shim::modelled::{Condvar, Mutex, MutexGuard, lock};
use pando_sync::shim::{AtomicU64, Ordering, fence};
use pando_sync::{LogEpoch, Microseconds};

use crate::limits::LATE;

/// Why the epoch thread woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Somebody waits for the open epoch, and nothing is in flight.
    Wanted,
    /// The time limit has passed.
    Elapsed,
    /// The log was closed.
    Stopped,
}

#[derive(Debug)]
struct InFlight {
    epoch: LogEpoch,
    /// Participants whose mark is not durable yet.
    missing: usize,
    /// Whether it has anything in a log.
    written: bool,
    /// When it was first written in; 0: it was not.
    since_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) closed: LogEpoch,
    /// The newest closed epoch that has anything in a log.
    pub(super) written: LogEpoch,
    /// The newest of these that is durable.
    pub(super) durable_written: LogEpoch,
    /// Up to which of these a mark or a proof says so, since this start of the server.
    pub(super) told: LogEpoch,
    in_flight: VecDeque<InFlight>,
    stopped: bool,
}

impl State {
    /// Whether no epoch is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Epochs {
    state: Mutex<State>,
    due: Condvar,
    durable: AtomicU64,
    /// When the open epoch was first written in, by a monotonic clock; 0: it was not.
    open_since_us: AtomicU64,
    /// The same for the oldest epoch that is closed and not durable.
    closed_since_us: AtomicU64,
    wanted: AtomicU64,
    #[cfg(all(test, loom))]
    fault: Option<models::Fault>,
}

impl Epochs {
    /// After recovery up to `cutoff`; `written` is the newest epoch in the log that was recovered.
    pub(super) fn new(cutoff: LogEpoch, written: LogEpoch) -> Self {
        assert!(written <= cutoff);
        Self {
            state: Mutex::new(State {
                closed: cutoff,
                written,
                durable_written: written,
                told: written,
                ..State::default()
            }),
            durable: AtomicU64::new(cutoff.0),
            ..Self::default()
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn durable(&self) -> LogEpoch {
        // Partner of the store in `advance`: a thread that sees the epoch here may tell a client,
        // and needs nothing else that the logger wrote.
        LogEpoch(self.durable.load(Ordering::Acquire))
    }

    /// Notes a write in the open epoch, which is not closed before this returns and whose write
    /// nobody acknowledges earlier (LE5).
    #[inline]
    pub(super) fn note_write(&self, now: impl FnOnce() -> Microseconds) {
        // Relaxed: a value seen here was set in this epoch, since the closing thread has taken the
        // writer's gate.
        if self.open_since_us.load(Ordering::Relaxed) == 0 {
            // A second writer leaves the earlier time: it may have read its own time long ago, or
            // much later. Relaxed: it says nothing about other memory.
            let now = now().0.max(1);
            #[cfg(all(test, loom))]
            if self.fault == Some(models::Fault::LastWrites) {
                return self.open_since_us.store(now, Ordering::Relaxed);
            }
            let (free, order) = (0, Ordering::Relaxed);
            let _first = self.open_since_us.compare_exchange(free, now, order, order);
        }
    }

    /// Whether something that could have been acknowledged more than [`LATE`] before `now` is
    /// not durable.
    #[inline]
    pub(super) fn are_late(&self, now: Microseconds) -> bool {
        let is_late = |since_us: u64| since_us > 0 && now > Microseconds(since_us) + LATE.into();
        #[cfg(all(test, loom))]
        if self.fault == Some(models::Fault::ClosedFirst) {
            return is_late(self.closed_since_us.load(Ordering::Relaxed))
                || is_late(self.open_since_us.load(Ordering::Acquire));
        }
        // In this order: an epoch seen as closed here is seen as in flight there. Acquire pairs
        // with the store in `close`.
        is_late(self.open_since_us.load(Ordering::Acquire))
            || is_late(self.closed_since_us.load(Ordering::Relaxed))
    }

    /// When the oldest write came that is not durable, as given to [`Self::note_write`].
    pub(super) fn oldest(&self) -> Option<Microseconds> {
        // As in `are_late`.
        let open = self.open_since_us.load(Ordering::Acquire);
        let closed = self.closed_since_us.load(Ordering::Relaxed);
        [closed, open]
            .map(Microseconds)
            .into_iter()
            .find(|since| *since > Microseconds::ZERO)
    }

    /// Registers a wish for `epoch`. `true`: it is already durable.
    pub(super) fn want(&self, epoch: LogEpoch) -> bool {
        // Relaxed: the fence below orders it for `advance` (LE3), the lock for the epoch thread.
        // Only the first to want an epoch takes the lock, so the epoch thread either sees the wish
        // before it sleeps or is woken (LE4).
        if self.wanted.fetch_max(epoch.0, Ordering::Relaxed) < epoch.0 {
            let state = self.lock();
            let wake = self.is_due(&state);
            drop(state);
            if wake {
                self.due.notify_all();
            }
        }
        #[cfg(all(test, loom))]
        if self.fault == Some(models::Fault::NoFence) {
            return self.durable() >= epoch;
        }
        // Partner of the one in `advance` (LE3): of two threads that each announce something and
        // then check the other's announcement, at least one sees it.
        fence(Ordering::SeqCst);
        self.durable() >= epoch
    }

    /// Whether an epoch is wanted that is still open, with nothing in flight. While something is in
    /// flight, the next epoch gathers writes of more sessions.
    fn is_due(&self, state: &State) -> bool {
        // Relaxed: the thread that raised it takes the lock afterwards (LE4).
        self.wanted.load(Ordering::Relaxed) > state.closed.0 && state.is_idle()
    }

    pub(super) fn wait_until_due(&self, limit: Duration) -> Due {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if state.stopped {
                return Due::Stopped;
            }
            if self.is_due(&state) {
                return Due::Wanted;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Due::Elapsed;
            }
            let waited = self.due.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes an epoch in which this many logs took part. `true`: as for [`Self::marked`].
    pub(super) fn close(&self, state: &mut State, epoch: LogEpoch, participants: usize) -> bool {
        state.closed = epoch;
        if participants > 0 {
            state.written = epoch;
        }
        state.in_flight.push_back(InFlight {
            epoch,
            missing: participants,
            written: participants > 0,
            // Relaxed: the thread that set it has given its gate to the closing one.
            since_us: self.open_since_us.load(Ordering::Relaxed),
        });
        let awaited = self.advance(state);
        #[cfg(all(test, loom))]
        if self.fault == Some(models::Fault::NoRelease) {
            self.open_since_us.store(0, Ordering::Relaxed);
            return awaited;
        }
        // Release: partner of the load in `are_late`.
        self.open_since_us.store(0, Ordering::Release);
        awaited
    }

    /// The mark of an epoch is durable in one more log. `true`: an epoch became durable that
    /// somebody waits for.
    pub(super) fn marked(&self, epoch: LogEpoch) -> bool {
        let mut state = self.lock();
        let found = state
            .in_flight
            .iter_mut()
            .find(|in_flight| in_flight.epoch == epoch);
        found.expect("an epoch with a mark is in flight").missing -= 1;
        self.advance(&mut state)
    }

    fn advance(&self, state: &mut State) -> bool {
        let mut durable = None;
        while let Some(first) = state.in_flight.front()
            && first.missing == 0
        {
            durable = Some(first.epoch);
            if first.written {
                state.durable_written = first.epoch;
            }
            state.in_flight.pop_front();
        }
        // A log lacks its mark, so something was written in it.
        let since_us = state.in_flight.front().map_or(0, |first| first.since_us);
        self.closed_since_us.store(since_us, Ordering::Relaxed);
        let Some(durable) = durable else {
            return false;
        };
        assert!(state.durable_written <= state.written && durable <= state.closed);
        // Release: partner of the load in `durable` (LE1, LE2).
        let before = self.durable.swap(durable.0, Ordering::Release);
        assert!(before < durable.0, "LE2");
        #[cfg(all(test, loom))]
        let (fenced, notifies) = (
            self.fault != Some(models::Fault::NoFence),
            self.fault != Some(models::Fault::NobodyNotified),
        );
        #[cfg(not(all(test, loom)))]
        let (fenced, notifies) = (true, true);
        if fenced {
            // Partner of the one in `want` (LE3).
            fence(Ordering::SeqCst);
        }
        if notifies && self.is_due(state) {
            self.due.notify_all();
        }
        // Relaxed: the fence orders it behind the store (LE3).
        self.wanted.load(Ordering::Relaxed) > before
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.due.notify_all();
    }
}

#[cfg(all(test, loom))]
mod models;
