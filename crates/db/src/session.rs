//! A session: a thread's handle on the database.

use std::sync::Arc;

use pando_engine::{Point, SessionLimit};

use crate::clock::Microseconds;
use crate::database::Database;
use crate::session_state::SessionState;
use crate::turn::Turn;
use crate::{limits, maintenance};

/// Owns an engine session (pin slot, pools) and a gate. It may be moved between threads.
#[derive(Debug)]
pub struct Session {
    database: Arc<Database>,
    state: SessionState,
}

impl Database {
    /// Opens a session. The caller has no open turn: opening may wait for a command that holds all
    /// gates.
    pub fn session(self: &Arc<Self>) -> Result<Session, SessionLimit> {
        let state = self.open_session()?;
        Ok(Session {
            database: Arc::clone(self),
            state,
        })
    }
}

impl Session {
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

    /// Whether [`Self::turn_beside`] may be called.
    pub(crate) fn may_write_beside(&self) -> bool {
        self.state.may_write_beside()
    }

    /// Begins a turn beside one of another session that holds all gates and ends later. What it
    /// logs, if `logs`, waits for [`Self::give_log`].
    pub(crate) fn turn_beside(&mut self, logs: bool, now: Microseconds) -> Turn<'_> {
        self.state.log_apart(logs);
        Turn::beside(&self.database, &mut self.state, now)
    }

    /// Makes what turns beside another one have logged part of that one's group.
    pub(crate) fn give_log(&mut self, to: &mut SessionState) {
        self.state.give_log(to);
    }

    #[cfg(test)]
    pub(crate) fn gate(&self) -> usize {
        self.state.gate
    }

    /// Reclaims memory that this session has replaced or removed, as far as no reader can still see
    /// it, and does up to [`limits::MAINTAIN_STEPS_MAX`] steps of the engine's deferred work.
    /// Nobody else reclaims that memory while the session is open, so a session that executes
    /// commands calls this from time to time, and a few times after its last turn. Call it outside
    /// a turn, whose pin would hold off most of it.
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
