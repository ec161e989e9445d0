//! How fast epochs may end, so that the numbers of a pool last.
//!
//! A pool has 2^44 epochs, for eleven years at 50,000 a second. Whoever waits for one ends it, as
//! soon as a microsecond or two after the one before: at that pace they would last a year. So those
//! that wait then share one. What is not used is saved up for half an hour: hardly anybody meets
//! the limit.
//!
//! - **EP1 paced** Of the epochs that end because somebody waits, no more do so in any time than
//!   the limit allows in that time and an hour. Those that end for another reason count as well.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_cdds::limits::EPOCHS_PER_SECOND;
use pando_sync::lock;

use crate::clock::Microseconds;

/// For so long there is one.
pub(super) const EPOCH_US: u64 = 1_000_000 / EPOCHS_PER_SECOND;

/// Epochs that may end.
#[derive(Debug)]
pub(super) struct Pace {
    saved_max: u64,
    /// Those that were allowed, and have not ended.
    left: AtomicU64,
    /// Up to when they were allowed.
    filled: Mutex<Microseconds>,
}

impl Pace {
    /// Of epochs of which so many may be saved up, and are.
    pub(super) fn new(saved_max: u64, now: Microseconds) -> Self {
        Self {
            saved_max,
            left: AtomicU64::new(saved_max),
            filled: Mutex::new(now),
        }
    }

    /// Whether an epoch may end. The time is asked for only if those are used up that were allowed
    /// before.
    pub(super) fn allows(&self, now: impl FnOnce() -> Microseconds) -> bool {
        // Relaxed: a number by itself.
        if self.left.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let (mut filled, now) = (lock(&self.filled), now());
        let earned = now.saturating_sub(*filled).0 / EPOCH_US;
        if earned > 0 {
            *filled = Microseconds(filled.0 + earned * EPOCH_US);
            let saved = earned.min(self.saved_max);
            self.left.fetch_add(saved, Ordering::Relaxed);
        }
        earned > 0
    }

    /// An epoch ends.
    pub(super) fn spend(&self) {
        let less = |left: u64| left.checked_sub(1);
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waits asks every microsecond.
    fn ended(pace: &Pace, from: Microseconds, microseconds: u64) -> u64 {
        let moments = (0..microseconds).map(|after| Microseconds(from.0 + after));
        let ends = |now: &Microseconds| {
            let may = pace.allows(|| *now);
            if may {
                pace.spend();
            }
            may
        };
        moments.filter(ends).count() as u64
    }

    const SAVED: u64 = 100_000;

    #[test]
    fn ep1_epochs_end_no_faster_than_they_last() {
        let begun = Microseconds(1_000_000);
        let pace = Pace::new(SAVED, begun);
        for _ in 0..SAVED {
            assert!(pace.allows(|| unreachable!("some are left")));
            pace.spend();
        }
        assert!(!pace.allows(|| begun));
        let second = EPOCHS_PER_SECOND;
        assert_eq!(ended(&pace, begun, 2_000_000), 2 * second - 1);
        // After a rest there is a burst, and then the same pace.
        let rested = Microseconds(begun.0 + 3_000_000);
        assert_eq!(ended(&pace, rested, 1_000_000), 2 * second);
        // However long the rest.
        let year = Microseconds(365 * 86_400 * 1_000_000);
        assert_eq!(ended(&pace, year, 1_000_000), SAVED + second - 1);
    }

    #[test]
    fn what_ends_for_another_reason_counts() {
        let pace = Pace::new(SAVED, Microseconds(0));
        for _ in 0..SAVED + 7 {
            pace.spend();
        }
        assert!(!pace.allows(|| Microseconds(EPOCH_US - 1)));
        assert!(pace.allows(|| Microseconds(EPOCH_US)));
    }
}
