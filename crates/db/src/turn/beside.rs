//! Turns beside one that holds all gates: several sessions write as one.
//!
//! A turn under all gates may lend them to others for a time in which it does not end. They write
//! as it does, each from a thread of its own, and take and release no gates. Their log is a place
//! where records wait until the lender makes them part of its own group (T4 one-group). Whoever
//! lends sees to it that their writes do not depend on each other.

use pando_durability::log::LogSession;
use pando_engine::Point;

use super::{HeldGates, Turn};
use crate::clock::Microseconds;
use crate::database::Database;
use crate::session_state::{Kept, SessionState};

impl<'t> Turn<'t> {
    /// A turn under gates that another one holds for longer, at the same time by the clock.
    pub(crate) fn beside(
        database: &'t Database,
        session: &'t mut SessionState,
        now: Microseconds,
    ) -> Self {
        session.store.pin();
        session.now = now;
        Self {
            database,
            session,
            held: HeldGates::Lent,
            whole_since: None,
            past: None,
            recent: super::Recent::default(),
            warmed: [u8::MAX; crate::limits::WARM_KEYS_MAX],
        }
    }

    /// The end of such a turn.
    pub(super) fn return_gates(&mut self) {
        self.session.store.unpin();
        self.held = HeldGates::Nothing;
    }
}

impl SessionState {
    /// Whether turns beside others may write: nothing but the log keeps what they write, and no run
    /// is repeated.
    pub(crate) fn may_write_beside(&self) -> bool {
        self.kept == Kept::ByNone && !self.store.repeats()
    }

    /// Lets what it records wait for [`Self::give_log`], if anything is to be recorded.
    pub(crate) fn log_apart(&mut self, logs: bool) {
        let is_apart = self.log.as_ref().is_some_and(LogSession::is_apart);
        if is_apart != logs || self.log.is_some() != logs {
            self.log = logs.then(LogSession::apart);
        }
    }

    /// Adds what it has recorded to another session's group.
    pub(crate) fn give_log(&mut self, to: &mut Self) {
        if let (Some(from), Some(to)) = (&mut self.log, &mut to.log)
            && from.has_group()
        {
            to.append(|out| out.extend_from_slice(from.group()));
            from.drop_group();
        }
    }
}
