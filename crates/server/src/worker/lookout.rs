//! Whether a worker that has nothing to do looks for the next request for a moment, or sleeps at
//! once.
//!
//! Sleeping and being woken costs both sides more than a small request does, and a client that
//! waits for each reply pays for it every time. While all that happens is one connection whose
//! requests follow closely on its replies, the worker looks out for the next one. It stops at the
//! first that does not come in time, so that a look in vain is rare: one of [`LOOK`] in
//! [`LOOK_STREAK`] requests at most. With more connections there is mostly something to do, and
//! sleeping lets requests gather.
//!
//! Deliberately absent: the looking (`pando_io::Poller`).

use crate::limits::{LOOK, LOOK_STREAK};

/// How soon requests have come lately.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// The connection that was reported last, and whether it alone was.
    slot: usize,
    is_alone: bool,
    streak: u32,
}

impl Lookout {
    /// Notes that a wait is over that reported a connection, as the `nth` of its reports.
    #[inline]
    pub(super) fn note(&mut self, slot: usize, nth: usize) {
        self.is_alone = nth == 0 && self.slot == slot;
        self.slot = slot;
    }

    /// Notes for how long there was nothing to do before a turn.
    #[inline]
    pub(super) fn learn(&mut self, idle_ns: u64) {
        if self.is_alone && idle_ns <= LOOK.as_nanos() as u64 {
            self.streak = self.streak.saturating_add(1);
        } else {
            self.streak = 0;
        }
    }

    /// Whether the next request can be expected before a look is over.
    #[inline]
    pub(super) fn pays(&self) -> bool {
        self.streak >= LOOK_STREAK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON_NS: u64 = LOOK.as_nanos() as u64;

    fn answer(lookout: &mut Lookout, slots: &[usize], idle_ns: u64) {
        for (nth, slot) in slots.iter().enumerate() {
            lookout.note(*slot, nth);
        }
        lookout.learn(idle_ns);
    }

    fn expectant() -> Lookout {
        let mut lookout = Lookout::default();
        for _ in 0..=LOOK_STREAK {
            assert!(!lookout.pays());
            answer(&mut lookout, &[3], SOON_NS);
        }
        lookout
    }

    #[test]
    fn one_connection_that_asks_again_at_once_is_looked_out_for() {
        assert!(expectant().pays());
    }

    #[test]
    fn a_pause_ends_it() {
        let mut lookout = expectant();
        answer(&mut lookout, &[3], SOON_NS + 1);
        assert!(!lookout.pays());
    }

    #[test]
    fn a_second_connection_ends_it() {
        let mut lookout = expectant();
        answer(&mut lookout, &[4], SOON_NS);
        assert!(!lookout.pays());
        let mut lookout = expectant();
        answer(&mut lookout, &[3, 4], SOON_NS);
        assert!(!lookout.pays());
    }
}
