//! Void epochs, as readers ask for them: is what this epoch did to be seen?
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `ranges` | [`Voids::replace`], whose caller lets nobody read a range that changes | `Relaxed`, published by `count` | everyone |
//! | `count` | the same | `Release` | `Acquire`, everyone |
//! | `last` | the same | `Relaxed` | everyone |

use pando_sync::LogEpoch;
use pando_sync::shim::unmodelled::{AtomicU64, AtomicUsize, Ordering};

use super::header::VoidRange;
use crate::limits::VOID_RANGES_MAX;

/// The void ranges of a pool.
#[derive(Debug)]
pub(super) struct Voids {
    count: AtomicUsize,
    /// The largest void epoch: what is newer is not void.
    last: AtomicU64,
    ranges: Box<[(AtomicU64, AtomicU64)]>,
}

impl Voids {
    pub(super) fn new(ranges: &[VoidRange]) -> Self {
        let voids = Self {
            count: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            // One more than a header has (PL5 crowded).
            ranges: (0..=VOID_RANGES_MAX).map(|_| Default::default()).collect(),
        };
        voids.replace(ranges);
        voids
    }

    /// Whether what this epoch did never happened.
    #[inline]
    pub(super) fn contain(&self, epoch: LogEpoch) -> bool {
        if epoch.0 > self.last.load(Ordering::Relaxed) {
            return false;
        }
        // Acquire: pairs with the release of `replace`, so that the ranges counted are there.
        let count = self.count.load(Ordering::Acquire);
        let ranges = &self.ranges[..count];
        let begun = ranges.partition_point(|(first, _)| first.load(Ordering::Relaxed) <= epoch.0);
        let range = begun.checked_sub(1).map(|index| &ranges[index]);
        range.is_some_and(|(_, last)| epoch.0 <= last.load(Ordering::Relaxed))
    }

    /// Takes other ranges, in order. Nobody asks meanwhile for an epoch whose answer changes.
    pub(super) fn replace(&self, ranges: &[VoidRange]) {
        for (place, range) in self.ranges.iter().zip(ranges) {
            place.0.store(range.first.0, Ordering::Relaxed);
            place.1.store(range.last.0, Ordering::Relaxed);
        }
        let last = ranges.iter().map(|range| range.last.0).max();
        self.last.store(last.unwrap_or(0), Ordering::Relaxed);
        self.count.store(ranges.len(), Ordering::Release);
    }
}

/// The ranges with one more, which swallows those that lie in it and joins those that touch it.
pub(super) fn joined(ranges: &[VoidRange], mut more: VoidRange) -> Vec<VoidRange> {
    let mut joined = Vec::new();
    for range in ranges {
        let apart = range.last.next() < more.first || more.last.next() < range.first;
        if apart {
            joined.push(*range);
        } else {
            more.first = more.first.min(range.first);
            more.last = more.last.max(range.last);
        }
    }
    joined.push(more);
    joined.sort_by_key(|range| range.first);
    joined
}
