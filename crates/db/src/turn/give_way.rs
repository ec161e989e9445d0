//! Giving way: a turn that has held its gates for long lets others have them between two requests.
//!
//! The end of an epoch takes all gates, and whoever comes after it queues behind it: without this
//! a batch of long requests stops every session until it is done.
//!
//! | held | who waits | is seen by |
//! |---|---|---|
//! | own gate | whoever takes all gates | pando-sync's `waiting` |
//! | all gates | likewise, and every session | likewise, and `queued` |
//!
//! Nothing of a request is under way between two of them: its group has ended (T4 one-group), and
//! what its reply waits for is noted with its client. So a turn that gave way is as good as two
//! turns.

use super::{Held, Turn};
use crate::limits;

impl Turn<'_> {
    /// Lets the gates go and takes the own one again if somebody waits for them and they were held
    /// for [`limits::HOLD_US_MAX`]: a batch of long requests holds nobody up for more than one of
    /// them. For the time between two requests of a batch.
    #[inline]
    pub(crate) fn give_way(&mut self) {
        if self.database.gates.are_wanted() {
            self.give_way_to_others();
        }
    }

    #[cold]
    fn give_way_to_others(&mut self) {
        let now_us = self.database.options.clock.now_us();
        // A clock that was set back tells nothing: that is long enough.
        if now_us.wrapping_sub(self.session.now_us) < limits::HOLD_US_MAX {
            return;
        }
        let all = matches!(self.held, Held::All { .. });
        self.let_go();
        if all {
            self.database.gates.let_pass();
        }
        self.hold_own();
    }
}
