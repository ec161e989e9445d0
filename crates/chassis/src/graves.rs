//! Tombstones that wait until the horizon has passed them.
//!
//! A session queues its tombstones in commit order, so epochs along a queue do not decrease.
//! Recovery may queue them in any order: one behind a later epoch waits for that.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `graves[session]`: queue | that session, and whoever maintains: a mutex each | `exhume` |
//! | `graves[session]`: bytes | the same, `Relaxed` | `bytes` |

use std::collections::VecDeque;

use pando_engine::{EpochClock, ValueVersion};
use pando_sync::Padded;
use pando_sync::epoch::shrink_queue;
use pando_sync::shim::unmodelled::{AtomicUsize, Ordering};
use pando_sync::shim::{Mutex, lock};

/// A removed key whose version is still remembered.
pub trait Buried {
    /// The version of its removal.
    fn version(&self) -> ValueVersion;

    /// About what it takes, including its entry in the tree.
    fn bytes(&self) -> usize;
}

struct Grave<T> {
    queue: Mutex<VecDeque<T>>,
    /// Changed under the queue's lock.
    bytes: AtomicUsize,
}

impl<T> Default for Grave<T> {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl<T> Grave<T> {
    fn add_bytes(&self, bytes: usize) {
        let sum = self.bytes.load(Ordering::Relaxed).wrapping_add(bytes);
        self.bytes.store(sum, Ordering::Relaxed);
    }
}

/// The tombstones of all sessions.
pub struct Graves<T> {
    graves: Box<[Padded<Grave<T>>]>,
    /// Sessions that have queued something: at most this many, counted from the first.
    sessions_used: AtomicUsize,
}

impl<T: Buried> Graves<T> {
    /// For at most this many sessions.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        Self {
            graves: (0..sessions_max)
                .map(|_| Padded(Grave::default()))
                .collect(),
            sessions_used: AtomicUsize::new(0),
        }
    }

    /// Queues a tombstone of session number `session`.
    pub fn bury(&self, session: usize, tombstone: T) {
        if session >= self.sessions_used.load(Ordering::Relaxed) {
            self.sessions_used.fetch_max(session + 1, Ordering::Relaxed);
        }
        let grave = &self.graves[session];
        let mut queue = lock(&grave.queue);
        grave.add_bytes(tombstone.bytes());
        queue.push_back(tombstone);
    }

    /// Up to `most` tombstones that may be purged, of session `first` or, after it, of any other.
    pub fn exhume(&self, first: usize, most: usize, clock: &EpochClock) -> Vec<T> {
        let horizon = clock.horizon();
        let count = self.sessions_used.load(Ordering::Relaxed);
        let mut exhumed = Vec::new();
        for index in first..first + count {
            let grave = &self.graves[index % count];
            let mut queue = lock(&grave.queue);
            let due = |tombstone: &mut T| tombstone.version().epoch() < horizon;
            while exhumed.len() < most
                && let Some(tombstone) = queue.pop_front_if(due)
            {
                grave.add_bytes(tombstone.bytes().wrapping_neg());
                exhumed.push(tombstone);
            }
            debug_assert!(!queue.is_empty() || grave.bytes.load(Ordering::Relaxed) == 0);
            shrink_queue(&mut queue);
        }
        exhumed
    }

    /// About what all tombstones take. O(sessions).
    #[must_use]
    pub fn bytes(&self) -> usize {
        let used = self.sessions_used.load(Ordering::Relaxed);
        let graves = self.graves[..used].iter();
        graves
            .map(|grave| grave.bytes.load(Ordering::Relaxed))
            .sum()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use pando_engine::LogEpoch;

    struct Removed(ValueVersion);

    impl Buried for Removed {
        fn version(&self) -> ValueVersion {
            self.0
        }

        fn bytes(&self) -> usize {
            10
        }
    }

    #[test]
    fn tombstones_below_the_horizon_come_out_in_order_their_own_session_first() {
        let clock = EpochClock::starting_at(LogEpoch(1));
        let graves = Graves::new(4);
        for session in [0, 2, 0, 2] {
            let version = ValueVersion::after(None, clock.current());
            graves.bury(session, Removed(version));
            clock.tick();
        }
        assert!(graves.exhume(0, 9, &clock).is_empty(), "above the horizon");
        clock.set_horizon(LogEpoch(4));
        let epochs = |exhumed: Vec<Removed>| {
            let epochs = exhumed.iter().map(|removed| removed.version().epoch().0);
            epochs.collect::<Vec<_>>()
        };
        assert_eq!(epochs(graves.exhume(2, 2, &clock)), [2, 1]);
        assert_eq!(graves.bytes(), 20);
        assert_eq!(epochs(graves.exhume(2, 9, &clock)), [3]);
        assert_eq!(graves.bytes(), 10, "one lies above the horizon still");
    }
}
