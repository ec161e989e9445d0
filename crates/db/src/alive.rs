//! What a command that sees several keys beside others takes for alive.
//!
//! Invariant:
//! - **AV1 alive-when-it-counts** What such a command took for alive is within its deadline when it
//!   ends, or when its run counts: the clock is read after the last of them was, and under the
//!   latches of what a run writes. Whoever removed one of them for its deadline had read the clock
//!   before. So keys of one deadline are seen to go together. Not so where so many keys expire
//!   that some were gone after each of [`limits::ALIVE_ATTEMPTS_MAX`] attempts of a command that
//!   is no run: the last one is shown as it is. A run takes all gates in the end.
//!
//! Deliberately absent: anything of the kind for a command under all gates, which nobody is beside,
//! and for one key.
//!
//! [`limits::ALIVE_ATTEMPTS_MAX`]: crate::limits::ALIVE_ATTEMPTS_MAX

use std::cell::Cell;

use pando_engine::{Deadline, ValueRef};

use crate::clock::Milliseconds;
use crate::effects::{Leftover, leaves};
use crate::expiry::Of;

/// Nothing is noted.
const OFF: Deadline = Deadline(0);

/// Nothing that was noted has a deadline.
const NEVER: Deadline = Deadline(u64::MAX);

/// The earliest deadline of what the current command took for alive, if it is noted.
#[derive(Debug)]
pub(crate) struct Alive(Cell<Deadline>);

impl Alive {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(OFF))
    }

    /// Notes deadlines from now on.
    pub(crate) fn begin(&self) {
        self.0.set(NEVER);
    }

    /// Notes none.
    pub(crate) fn end(&self) {
        self.0.set(OFF);
    }

    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.0.get() != OFF
    }

    /// Notes those of a value that is alive at `now`.
    pub(crate) fn note(&self, value: &ValueRef<'_>, now: Milliseconds) {
        let deadlines = Of::BOTH.into_iter().filter_map(|of| of.deadline(value));
        deadlines.for_each(|deadline| self.note_deadline(deadline, now));
    }

    pub(crate) fn note_deadline(&self, deadline: Deadline, now: Milliseconds) {
        // Behind that of a field which is gone others come; they may be the next ones.
        let deadline = deadline.max(Deadline(now.0 + 1));
        self.0.set(self.0.get().min(deadline));
    }

    /// Whether all that was noted is alive.
    pub(crate) fn is_still(&self, now: impl FnOnce() -> Milliseconds) -> bool {
        let first = self.0.get();
        matches!(first, OFF | NEVER) || !first.has_passed(now()) || leaves(Leftover::Alive)
    }
}
