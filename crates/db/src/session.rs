//! A session: what one thread needs to work on the database.

use std::sync::Arc;

use pando_durability::log::LogSession;
use pando_engine::{LogEpoch, Point};

use crate::clock::Clock;
use crate::database::Database;
#[cfg(test)]
use crate::durable::testing::{self, Fault};
use crate::eviction::{Access, Evictor, Fit, Touch};
use crate::limits;
use crate::maintenance;
use crate::statistics::SessionCounters;
use crate::store::StoreSession;
use crate::turn::Turn;

/// Owns an engine session (pin slot, pools) and a gate. It may be moved between threads.
#[derive(Debug)]
pub struct Session {
    database: Arc<Database>,
    state: SessionState,
}

/// The part of a session that commands change.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) store: StoreSession,
    /// Where commits are recorded, if the database is kept on disk.
    pub(crate) log: Option<LogSession>,
    pub(crate) gate: usize,
    pub(crate) counters: Arc<SessionCounters>,
    pub(crate) random: fastrand::Rng,
    /// One reading of the clock per turn, refreshed after a command that waited.
    pub(crate) now_us: u64,
    /// How the command in work uses values.
    pub(crate) access: Access,
    /// How much the command in work may write.
    pub(crate) fit: Fit,
    pub(crate) evictor: Evictor,
    /// Whether what commands see is noted, for a client of `sync` (AK4).
    pub(crate) observes: bool,
    /// The latest epoch that the command in work may tell of; kept only if `observes`.
    pub(crate) observed: LogEpoch,
    /// The latest epoch of a group of the command in work; 0: there was none.
    pub(crate) wrote: LogEpoch,
    /// Whether that group is not to be acknowledged before it is durable (AK5).
    pub(crate) beyond_room: bool,
}

impl SessionState {
    /// A use of a value by the command in work.
    #[inline]
    pub(crate) fn touch<'d>(&mut self, database: &'d Database) -> Touch<'d> {
        self.access.touch(database.ages(), &mut self.random)
    }

    /// What was recorded since the last call is a group of this epoch, recovered whole or not at
    /// all. Nothing recorded: nothing happens.
    #[inline]
    pub(crate) fn end_group(&mut self, epoch: LogEpoch) {
        if let Some(log) = &mut self.log
            && log.has_group()
        {
            log.end_group(epoch.0);
            self.wrote = epoch;
            self.beyond_room = log.is_beyond_room();
        }
    }

    /// Whether something was recorded since the last group ended.
    #[inline]
    pub(crate) fn has_group(&self) -> bool {
        self.log.as_ref().is_some_and(LogSession::has_group)
    }

    /// Gives the groups to the log: before the gate goes under which they were made.
    #[inline]
    pub(crate) fn hand_over(&mut self, clock: &dyn Clock) {
        if let Some(log) = &mut self.log {
            #[cfg(test)]
            if testing::is(Fault::AgeForgotten) {
                return log.hand_over();
            }
            log.note_write(|| clock.monotonic_us());
            log.hand_over();
        }
    }

    /// Waits while the log has too much to write: before a gate is taken.
    #[inline]
    pub(crate) fn wait_for_room(&mut self) {
        if let Some(log) = &mut self.log {
            log.wait_for_room();
        }
    }

    /// Notes that the reply may tell of this epoch (AK4).
    #[inline]
    pub(crate) fn observe(&mut self, epoch: LogEpoch) {
        if self.observes {
            self.observed = self.observed.max(epoch);
        }
    }
}

impl Session {
    pub(crate) fn new(database: Arc<Database>, state: SessionState) -> Self {
        Self { database, state }
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Begins a turn: takes the gate, pins, reads the clock. The caller executes a bounded batch
    /// and drops the turn before it sleeps or waits for anything.
    pub fn turn(&mut self) -> Turn<'_> {
        Turn::begin(&self.database, &mut self.state)
    }

    #[cfg(test)]
    pub(crate) fn gate(&self) -> usize {
        self.state.gate
    }

    /// Gives back the memory of what this session has replaced or removed, as far as no reader can
    /// see it any more, and does up to [`limits::MAINTAIN_STEPS_MAX`] steps of the engine's
    /// deferred work. Nobody else gives that memory back while the session is open, so whoever
    /// executes calls this from time to time, and a few times after the last turn. Outside a turn,
    /// whose pin would hold off most of it.
    pub fn tidy(&mut self) {
        let _gate = self.database.gates.enter(self.state.gate);
        self.state.store.maintain(limits::MAINTAIN_STEPS_MAX);
    }

    /// Does a round of the maintenance thread's work, for an embedder that has stopped the thread
    /// ([`Database::close`]): a new log epoch, then expired keys and deferred engine work in
    /// bounded slices. Returns whether there is more to do at once. To be called about every
    /// [`crate::limits::EPOCH_INTERVAL_MS`], since each call begins an epoch, by which WATCH and
    /// OBJECT IDLETIME measure time.
    pub fn maintain(&mut self) -> bool {
        maintenance::round(&self.database, &mut self.state)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.database.close_session(&self.state);
    }
}
