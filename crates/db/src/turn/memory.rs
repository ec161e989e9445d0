//! Memory for a command that needs some.
//!
//! | memory | a command that needs some |
//! |---|---|
//! | there is some, or eviction has freed some | runs |
//! | evicted memory is about to be reclaimed | is postponed by [`MEMORY_WAIT`], for [`MEMORY_WAIT_MAX`] at most |
//! | none, but a pool has names of removed keys, for replicas | is postponed likewise, without them |
//! | no key can be evicted, or none while there are branches, or the wait was too long | fails |
//! | the engine's pool has no block for it, but others are free or keys may go | has changed nothing, and runs again, for as long, and [`ROOM_RUNS_MIN`] times |
//!
//! Evicted memory is reclaimed when pins end and epochs pass, which takes longer than evicting as
//! much again. Without the wait, writers of small values would be refused until then.

use pando_engine::Point;

use super::Turn;
use crate::client::{Client, LacksRoom};
use crate::clock::Microseconds;
use crate::error::CommandError;
use crate::eviction::{Evicted, evict};
use crate::limits::{self, MEMORY_WAIT, MEMORY_WAIT_MAX, ROOM_BYTES_A_RUN, ROOM_RUNS_MIN};
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

    /// When a command of so many bytes runs again for which the engine's pool had no block, while
    /// room is made: it has changed nothing. `None`: it fails, since the pool cannot have room for
    /// it, or it has waited for too long.
    #[cold]
    pub(crate) fn retry_with_room(
        &mut self,
        client: &mut Client,
        bytes: usize,
    ) -> Option<Microseconds> {
        let (database, now) = (self.database, self.session.now);
        let pool = database.store.pooled()?;
        let gives_up = !database.evicts() && self.give_up_names();
        if !gives_up && !database.memory.may_pool_hold(bytes, database.evicts()) {
            return None;
        }
        if database.evicts() {
            database.memory.spare_more();
        }
        let goes_on = pool.make_room(bytes, self.session.random.u64(..));
        // What was freed is free when the epoch is durable.
        database.hurry();
        // A client's next request is the same one until it is answered.
        let first = LacksRoom {
            since: now,
            runs: 0,
        };
        let lacks = client.lacks_room.get_or_insert(first);
        lacks.runs += 1;
        // On a slow machine a run, or an epoch, takes long. Neighbours are emptied one at a time.
        let is_late = now.saturating_sub(lacks.since) >= MEMORY_WAIT_MAX;
        let neighbours = if goes_on { bytes / ROOM_BYTES_A_RUN } else { 0 };
        if is_late && lacks.runs >= ROOM_RUNS_MIN + neighbours {
            return None;
        }
        // Off the fast path, which does not end the wait.
        client.waits_since = Some(lacks.since);
        Some(now + MEMORY_WAIT)
    }

    /// Lets the pool give up names of removed keys, before a write is refused: replicas that are
    /// behind then take full copies. Whether there were any.
    fn give_up_names(&self) -> bool {
        let gives_up = self.database.store.pooled();
        let gives_up = gives_up.is_some_and(|pool| pool.give_up_removed());
        if gives_up {
            // What was freed is free when the epoch is durable.
            self.database.hurry();
        }
        gives_up
    }

    /// Why there is no memory.
    pub(super) fn refusal_for_memory(&self) -> CommandError {
        if self.database.evicts_but_for_branches() {
            CommandError::BranchedMemory
        } else {
            CommandError::OutOfMemory
        }
    }

    /// Counts a refused write.
    pub(crate) fn note_refusal(&self, error: &CommandError) {
        let counters = &self.session.counters;
        match error {
            CommandError::OutOfMemory | CommandError::BranchedMemory => {
                add(&counters.refused_for_memory, 1);
            }
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
        // What its pool can give again.
        let pool = database.store.pooled();
        if pool.is_some_and(|pool| pool.forget_rows()) && !database.is_out_of_memory() {
            return MemoryGrant::Granted;
        }
        if !database.evicts() {
            // What snapshots keep is dropped before anybody is refused.
            while database.is_out_of_memory() && self.give_up_snapshot() {
                self.collect_between();
            }
            return if !database.is_out_of_memory() {
                MemoryGrant::Granted
            } else if self.give_up_names() {
                MemoryGrant::Later(Microseconds::ZERO)
            } else {
                MemoryGrant::Refused
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
