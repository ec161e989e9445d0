//! Giving way: a turn that has held its gates for long releases them between two requests.
//!
//! The end of an epoch takes all gates, and later arrivals queue behind it. Without this module a
//! batch of long requests would stop every session until it is done.
//!
//! | held | who waits | visible in |
//! |---|---|---|
//! | own gate | the taker of all gates | pando-sync's `waiting` |
//! | all gates | likewise, and every session | likewise, and `queued` |
//!
//! Between two requests nothing is in progress: the group has ended (T4 one-group), and what the
//! reply waits for is recorded with its client. So a turn that gave way is as good as two turns.

use super::{HeldGates, Turn};
use crate::limits;

impl Turn<'_> {
    /// Releases the gates and takes the own one again if somebody waits for them and they were held
    /// for [`limits::HOLD_MAX`]. So a batch of long requests delays nobody by more than one of
    /// them. To be called between two requests of a batch.
    #[inline]
    pub(crate) fn give_way(&mut self) {
        if self.database.gates.are_wanted() {
            self.give_way_to_others();
        }
    }

    #[cold]
    fn give_way_to_others(&mut self) {
        let now = self.database.options.clock.now();
        // A clock that was set back says nothing: count that as long enough.
        if now.0.wrapping_sub(self.session.now.0) < limits::HOLD_MAX.0 {
            return;
        }
        // T4 one-group: nothing is in progress.
        debug_assert!(self.session.effects.is_none() && self.past.is_none());
        let all = matches!(self.held, HeldGates::All { .. });
        self.let_go();
        if all {
            self.database.gates.let_pass();
        }
        self.hold_own();
    }
}
