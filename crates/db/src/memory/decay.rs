//! How fast marks of [`super::Tracking::Often`] decay: no faster than one step a minute.
//!
//! Hands lower marks as memory is turned over (`lru_lfu`), so a cache forgets at the pace at which
//! it works and not at all while nothing is evicted. Where it is turned over in seconds, as by a
//! flood of keys used only once, that would forget what is used every few seconds. So each step
//! down takes a *decay*, and each minute grants as many decays as there are keys: on average a mark
//! goes down by one step, as Redis' counters do.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `left` | maintenance adds, hands take | `Relaxed` | hands |
//! | `ticked_ms` | maintenance | `Relaxed` | the same |
//!
//! `Relaxed` is enough: nothing is read because of a count. Two sessions that do maintenance at
//! once may grant the same time twice.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Milliseconds;

/// The time that grants as many decays as there are keys.
const DECAY_MS: u64 = 60_000;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct DecayPace {
    /// Decays that are left, each worth [`DECAY_MS`].
    left: AtomicU64,
    ticked_ms: AtomicU64,
}

impl DecayPace {
    /// Adds the decays of the time that has passed, for this many keys. At most a minute's worth is
    /// kept, so an idle period is not made up for.
    pub(crate) fn tick(&self, keys: u64, now_ms: Milliseconds) {
        let before = self.ticked_ms.swap(now_ms.0, Ordering::Relaxed);
        let passed_ms = now_ms
            .saturating_sub(Milliseconds(before))
            .min(Milliseconds(DECAY_MS));
        let most = keys.saturating_mul(DECAY_MS);
        let add = |left: u64| {
            Some(
                left.saturating_add(keys.saturating_mul(passed_ms.0))
                    .min(most),
            )
        };
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes a decay, if one is left.
    pub(super) fn take(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(DECAY_MS);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }

    #[cfg(test)]
    pub(super) fn of_decays(count: u64) -> Self {
        Self {
            left: AtomicU64::new(count * DECAY_MS),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pace: &DecayPace) -> usize {
        std::iter::from_fn(|| pace.take().then_some(())).count()
    }

    #[test]
    fn a_minute_has_as_many_decays_as_keys() {
        let pace = DecayPace::default();
        pace.tick(0, Milliseconds(1_000_000));
        assert_eq!(taken(&pace), 0);
        // However often it ticks.
        for tick in 1..=1200 {
            pace.tick(7, Milliseconds(1_000_000 + tick * 50));
        }
        assert_eq!(taken(&pace), 7);
        // A long idle period counts as one minute, and removed keys take their decays along.
        pace.tick(100, Milliseconds(9_000_000));
        pace.tick(30, Milliseconds(9_000_000));
        assert_eq!(taken(&pace), 30);
    }
}
