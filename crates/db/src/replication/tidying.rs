//! When sessions of a replica or a source reclaim what they have replaced: now and then while there
//! is work, and a few times behind the last.

use crate::clock::{Clock, Microseconds};
use crate::limits::{TIDY_PAUSE, TIDY_ROUNDS};

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    due: Microseconds,
    rounds_left: u8,
}

impl Tidying {
    /// The sessions have worked.
    pub(super) fn note_work(&mut self) {
        self.rounds_left = TIDY_ROUNDS;
    }

    /// Whether they are to reclaim now; counts as if they did.
    pub(super) fn is_due(&mut self, clock: &dyn Clock) -> bool {
        if self.rounds_left == 0 {
            return false;
        }
        let now = clock.monotonic();
        let is_due = now >= self.due;
        if is_due {
            self.rounds_left -= 1;
            self.due = now + TIDY_PAUSE;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Microseconds {
            Microseconds(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn it_is_due_now_and_then_and_ends_behind_the_work() {
        let clock = Hand(AtomicU64::new(1));
        let mut tidying = Tidying::default();
        assert!(!tidying.is_due(&clock), "nobody has worked");
        tidying.note_work();
        assert!(tidying.is_due(&clock));
        assert!(!tidying.is_due(&clock), "not again so soon");
        for left in (0..TIDY_ROUNDS).rev() {
            clock.0.fetch_add(TIDY_PAUSE.0, Ordering::Relaxed);
            assert_eq!(tidying.is_due(&clock), left > 0);
        }
    }
}
