//! What one session brings to every operation: its pins, its pool, its counters.

use std::ptr::NonNull;
use std::sync::Arc;

use pando_engine::{EpochClock, Point};
use pando_memory::pool::Pool;
use pando_sync::Padded;
use pando_sync::epoch::{Collector, Guard, Participant, Reclaim};

/// Commits after which a session maintains its engine under a self-driven clock, and steps that it
/// then takes: one for every few commits, so that dropped trees go as others fill.
const COMMITS_PER_MAINTENANCE: usize = 1 << 14;
/// See [`COMMITS_PER_MAINTENANCE`].
const STEPS_PER_MAINTENANCE: usize = 1 << 12;
/// So often at most, while there is something to do: memory goes back by a few chunks at a time.
const ROUNDS_PER_MAINTENANCE: usize = 64;

/// One session's side of an engine, with its counters and what else the engine keeps per session.
pub struct Context<C, X = ()> {
    participant: Participant<Pool>,
    /// Where the session's blocks come from and go to.
    pub pool: Pool,
    /// What the session counts.
    pub counters: Arc<Padded<C>>,
    /// What this engine remembers beside.
    pub beside: X,
    /// Pins that the session's caller holds.
    held: usize,
    /// Commits since the session maintained its engine by itself.
    commits: usize,
}

impl<C, X: Default> Context<C, X> {
    /// A context that is not pinned.
    #[must_use]
    pub fn new(participant: Participant<Pool>, pool: Pool, counters: Arc<Padded<C>>) -> Self {
        Self {
            participant,
            pool,
            counters,
            beside: X::default(),
            held: 0,
            commits: 0,
        }
    }
}

impl<C, X> Context<C, X> {
    /// The session's number, which picks its shard of key counts.
    #[inline]
    #[must_use]
    pub fn number(&self) -> usize {
        self.participant.index()
    }

    /// Who says what can be reached still.
    #[must_use]
    pub fn collector(&self) -> &Arc<Collector<Pool>> {
        self.participant.collector()
    }

    /// Runs `operate` under a pin, the session's own one if it holds one already.
    #[inline]
    pub fn pinned<R>(&mut self, operate: impl for<'g> FnOnce(Guard<'g>, &mut Self) -> R) -> R {
        struct Unpin<'a, C, X>(&'a mut Context<C, X>);
        impl<C, X> Drop for Unpin<'_, C, X> {
            #[inline]
            fn drop(&mut self) {
                self.0.participant.unpin(&mut self.0.pool);
            }
        }
        self.participant.pin();
        let pinned = Unpin(self);
        // SAFETY: the pin is held until `pinned` is dropped, after `operate` has returned; `'g` is
        // chosen by this call and cannot be named outside of it.
        let guard = unsafe { Guard::new() };
        operate(guard, &mut *pinned.0)
    }

    /// Takes a pin for the session's caller ([`Point::pin`]).
    #[inline]
    pub fn hold(&mut self) {
        self.participant.pin();
        self.held += 1;
    }

    /// Ends what [`Self::hold`] began; whether it was the caller's last pin.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn release(&mut self) -> bool {
        assert!(self.held > 0, "unpinned more often than pinned");
        self.held -= 1;
        self.participant.unpin(&mut self.pool);
        self.held == 0
    }

    /// Whether the session's caller holds a pin.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held > 0
    }

    /// Counts a commit, for [`Self::is_maintenance_due`].
    #[inline]
    pub fn count_commit(&mut self) {
        self.commits += 1;
    }

    /// Whether the session is to do now what whoever drives the clock would do now and then
    /// ([`maintain_some`]): nobody else does, and it has committed much since the last time.
    #[inline]
    #[must_use]
    pub fn is_maintenance_due(&mut self, clock: &EpochClock) -> bool {
        if self.commits < COMMITS_PER_MAINTENANCE || self.is_held() {
            return false;
        }
        self.commits = 0;
        clock.is_self_driven()
    }

    /// The session goes: ends its caller's pins. Whether it is to maintain the engine once more,
    /// as perhaps the last one that works for a long time.
    #[must_use]
    pub fn leave(&mut self, clock: &EpochClock) -> bool {
        while self.is_held() {
            self.release();
        }
        let maintains = clock.is_self_driven() && !std::thread::panicking();
        if maintains {
            self.pool.settle();
        }
        maintains
    }

    /// Moves reclamation on by one epoch; returns how much was given back.
    pub fn collect(&mut self) -> usize {
        self.participant.collect(&mut self.pool)
    }

    /// Moves reclamation on as far as it goes; returns how much was given back.
    pub fn reclaim(&mut self) -> usize {
        // Two epochs must pass; a third step covers what was retired within the current one.
        let own = (0..3).map(|_| self.collect()).sum::<usize>();
        let collector = Arc::clone(self.participant.collector());
        own + collector.collect_orphans(&mut self.pool)
    }

    /// Hands over memory that has just become unreachable for new pins.
    ///
    /// # Safety
    /// A pin is held; nobody who pins from now on can reach `pointer`; nobody else retires it;
    /// `reclaim` may be called with it once, on any thread.
    #[inline]
    pub unsafe fn retire(&mut self, pointer: NonNull<u8>, bytes: usize, reclaim: Reclaim<Pool>) {
        // SAFETY: the caller's promise.
        unsafe { self.participant.retire(pointer, bytes, reclaim) };
    }
}

/// Lets a session do what is left to be done, up to a bound.
pub fn maintain_some(session: &mut impl Point) {
    for _ in 0..ROUNDS_PER_MAINTENANCE {
        if session.maintain(STEPS_PER_MAINTENANCE) == 0 {
            break;
        }
    }
}
