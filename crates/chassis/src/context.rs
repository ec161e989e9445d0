//! What one session contributes to every operation: its pins, its pool, its counters.

use std::ptr::NonNull;
use std::sync::Arc;

use pando_engine::{EpochClock, Point};
use pando_memory::pool::Pool;
use pando_sync::Padded;
use pando_sync::epoch::{Alone, Collector, Guard, Participant, Reclaim};

/// Commits after which a session maintains its engine under a self-driven clock, and the steps it
/// then takes: one per few commits, so that dropped trees are freed as others fill.
const COMMITS_PER_MAINTENANCE: usize = 1 << 14;
/// See [`COMMITS_PER_MAINTENANCE`].
const STEPS_PER_MAINTENANCE: usize = 1 << 12;
/// Most repetitions while there is work left: memory is returned a few chunks at a time.
const ROUNDS_PER_MAINTENANCE: usize = 64;

/// One session's side of an engine, with its counters and the engine's other per-session state.
pub struct Context<C, X = ()> {
    participant: Participant<Pool>,
    /// Where the session allocates and frees blocks.
    pub pool: Pool,
    /// What the session counts.
    pub counters: Arc<Padded<C>>,
    /// The engine's other per-session state.
    pub beside: X,
    /// Pins held by the session's caller.
    held: usize,
    /// Until the session's caller lets others in again ([`Point::keep_out`]).
    alone: Option<Alone<Pool>>,
    /// Commits since the session last maintained its engine on its own.
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
            alone: None,
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

    /// Decides what can still be reached.
    #[must_use]
    pub fn collector(&self) -> &Arc<Collector<Pool>> {
        self.participant.collector()
    }

    /// Runs `operate` under a pin, the session's own if it holds one.
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

    /// Keeps all other sessions from being pinned, unless one is now (R4 alone of the sync crate).
    #[must_use]
    pub fn try_alone(&self) -> Option<Alone<Pool>> {
        self.participant.try_alone()
    }

    /// The same until [`Self::let_in`], if the session's caller holds a pin; returns whether it is
    /// so.
    pub fn keep_out(&mut self) -> bool {
        debug_assert!(self.alone.is_none());
        if self.is_held() {
            self.alone = self.try_alone();
        }
        self.alone.is_some()
    }

    /// Ends [`Self::keep_out`], as the end of the caller's last pin does.
    pub fn let_in(&mut self) {
        self.alone = None;
    }

    /// Whether no other session is pinned, or can be before [`Self::let_in`].
    #[inline]
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// Takes a pin for the session's caller ([`Point::pin`]).
    #[inline]
    pub fn hold(&mut self) {
        self.participant.pin();
        self.held += 1;
    }

    /// Ends [`Self::hold`]; returns whether it was the caller's last pin.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn release(&mut self) -> bool {
        assert!(self.held > 0, "unpinned more often than pinned");
        self.held -= 1;
        if self.held == 0 {
            // Who is alone is pinned (R4 alone).
            self.let_in();
        }
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

    /// Whether the session should now do a clock driver's work ([`maintain_some`]): there is no
    /// driver, and it has committed much since the last time.
    #[inline]
    #[must_use]
    pub fn is_maintenance_due(&mut self, clock: &EpochClock) -> bool {
        if self.commits < COMMITS_PER_MAINTENANCE || self.is_held() {
            return false;
        }
        self.commits = 0;
        clock.is_self_driven()
    }

    /// The session is dropped: ends its caller's pins. Returns whether it should maintain the
    /// engine once more, as perhaps the last active session for a long time.
    #[must_use]
    pub fn leave(&mut self, clock: &EpochClock) -> bool {
        self.let_in();
        while self.is_held() {
            self.release();
        }
        debug_assert!(!self.participant.is_pinned());
        let maintains = clock.is_self_driven() && !std::thread::panicking();
        if maintains {
            self.pool.settle();
        }
        maintains
    }

    /// Advances reclamation by one epoch; returns how much was freed.
    pub fn collect(&mut self) -> usize {
        self.participant.collect(&mut self.pool)
    }

    /// Advances reclamation as far as possible; returns how much was freed.
    pub fn reclaim(&mut self) -> usize {
        // Two epochs must pass; a third step covers what was retired within the current one.
        let own = (0..3).map(|_| self.collect()).sum::<usize>();
        let collector = Arc::clone(self.participant.collector());
        own + collector.collect_orphans(&mut self.pool)
    }

    /// Retires memory that has just become unreachable for new pins.
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

/// Lets a session do remaining work, up to a bound.
pub fn maintain_some(session: &mut impl Point) {
    for _ in 0..ROUNDS_PER_MAINTENANCE {
        if session.maintain(STEPS_PER_MAINTENANCE) == 0 {
            break;
        }
    }
}
