//! Memory for a command that needs some.
//!
//! | memory | a command that needs some |
//! |---|---|
//! | there is some, or eviction has freed some | runs |
//! | evicted memory is about to be reclaimed | is postponed by [`MEMORY_WAIT`], for [`MEMORY_WAIT_MAX`] at most |
//! | no key can be evicted, or the wait was too long | fails |
//! | the engine's pool has no block for it, but others are free or keys may go | has changed nothing, and runs again, for as long at most |
//!
//! Evicted memory is reclaimed when pins end and epochs pass, which takes longer than evicting as
//! much again. Without the wait, writers of small values would be refused until then.

use pando_engine::Point;

use super::Turn;
use crate::client::{Client, Refusals};
use crate::clock::Microseconds;
use crate::error::CommandError;
use crate::eviction::{Evicted, evict};
use crate::limits::{self, MEMORY_WAIT, MEMORY_WAIT_MAX, REFUSALS_APART};
use crate::statistics::add;

/// Whether a command that needs memory may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryGrant {
    Granted,
    /// Not before this time, in microseconds.
    Later(Microseconds),
    Refused,
}

impl Turn<'_> {
    /// Whether a command of the client that needs memory may run: there is some, or keys could be
    /// evicted to free some. Bounded work (EV1 bounded-eviction); between its rounds the turn
    /// releases its gate and pin, so that evicted memory is reclaimed.
    #[inline]
    pub(crate) fn ask_for_memory(&mut self, client: &mut Client) -> MemoryGrant {
        if self.database.has_memory() {
            client.waits_since = None;
            return MemoryGrant::Granted;
        }
        self.free_memory(client)
    }

    /// When a command runs again for which the engine's pool had no block, while room is made: it
    /// has changed nothing. `None`: it fails, since the pool is full and no key may go, or it has
    /// waited for too long.
    #[cold]
    pub(crate) fn retry_with_room(&mut self, client: &mut Client) -> Option<Microseconds> {
        let (database, now) = (self.database, self.session.now);
        let pool = database.store.pooled()?;
        if database.evicts() {
            database.memory.spare_more();
        } else if database.memory.is_pool_full() {
            return None;
        }
        pool.make_room(self.session.random.u64(..));
        // What was freed is free when the epoch is durable.
        database.hurry();
        // A command that waits comes again soon; after a longer time it is another one.
        let same = |at: &Refusals| now.saturating_sub(at.last) < REFUSALS_APART;
        let since = client
            .refusals
            .take()
            .filter(same)
            .map_or(now, |at| at.since);
        if now.saturating_sub(since) >= MEMORY_WAIT_MAX {
            return None;
        }
        client.refusals = Some(Refusals { since, last: now });
        // Off the fast path, which does not end the wait.
        client.waits_since = Some(since);
        Some(now + MEMORY_WAIT)
    }

    /// Counts a refused write.
    pub(crate) fn note_refusal(&self, error: &CommandError) {
        let counters = &self.session.counters;
        match error {
            CommandError::OutOfMemory => add(&counters.refused_for_memory, 1),
            CommandError::RetiredMemory => add(&counters.refused_for_readers, 1),
            CommandError::LogFull => add(&counters.refused_for_log, 1),
            _ => {}
        }
    }

    #[cold]
    fn free_memory(&mut self, client: &mut Client) -> MemoryGrant {
        let granted = self.try_evicting();
        let now = self.session.now;
        let since = client.waits_since.take().unwrap_or(now);
        match granted {
            MemoryGrant::Later(_) if now.saturating_sub(since) < MEMORY_WAIT_MAX => {
                client.waits_since = Some(since);
                MemoryGrant::Later(now + MEMORY_WAIT)
            }
            MemoryGrant::Later(_) => MemoryGrant::Refused,
            grant => grant,
        }
    }

    fn try_evicting(&mut self) -> MemoryGrant {
        let database = self.database;
        if !database.evicts() {
            // What snapshots keep is dropped before anybody is refused.
            while database.is_out_of_memory() && self.give_up_snapshot() {
                self.collect_between();
            }
            let out = database.is_out_of_memory();
            return if out {
                MemoryGrant::Refused
            } else {
                MemoryGrant::Granted
            };
        }
        for _ in 0..limits::EVICT_ROUNDS_MAX {
            // An evicted key would only live on as an image.
            let evicted = if self.give_up_snapshot() {
                Evicted::default()
            } else {
                self.hold_own();
                evict(database, self.session)
            };
            if !database.is_out_of_memory() {
                return MemoryGrant::Granted;
            }
            if evicted.exhausted {
                return MemoryGrant::Refused;
            }
            self.collect_between();
            if !database.is_out_of_memory() {
                break;
            }
            if evicted.keys == 0 {
                // Others may delay its reclamation: they are pinned for a batch at most.
                std::thread::yield_now();
            }
        }
        self.hold_own();
        if database.memory.is_beyond_ceiling() {
            MemoryGrant::Later(Microseconds::ZERO)
        } else {
            MemoryGrant::Granted
        }
    }

    /// Releases the gate and the pin and does deferred work, so that memory is reclaimed.
    fn collect_between(&mut self) {
        self.let_go();
        let _gate = self.database.gates.enter(self.session.gate);
        self.session.store.maintain(limits::MAINTAIN_STEPS_MAX);
    }
}
