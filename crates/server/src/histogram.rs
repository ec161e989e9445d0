//! Log-linear histograms of nanoseconds: bounded memory, bounded relative error.
//!
//! Values from 0 to 2^[`VALUE_BITS`] − 1 ns (about 69 s; larger ones count as the largest) fall
//! into buckets: one for each value below [`STEPS`], then [`STEPS`] of equal width for each
//! doubling. A bucket is at most 1/[`STEPS`] of its lower bound wide, so its middle is within 1/32
//! (3.2 %) of every value in it.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `Histogram::buckets` | one worker | `Relaxed`, load and store | anybody, through [`Counts`] |
//!
//! Invariants:
//! - **SH1** A histogram has one writer, so an increment needs no locked instruction.
//! - **SH2** A reader's sum may miss what is being recorded now, but never counts too much.

use std::sync::atomic::{AtomicU64, Ordering};

/// Doublings that are distinguished.
pub(crate) const VALUE_BITS: u32 = 36;

/// Buckets for each doubling, as a power of two.
const STEP_BITS: u32 = 4;

/// Buckets for each doubling.
pub(crate) const STEPS: usize = 1 << STEP_BITS;

/// Number of buckets of a histogram.
pub(crate) const BUCKETS: usize = (VALUE_BITS - STEP_BITS + 1) as usize * STEPS;

/// The bucket that a value falls into.
#[inline]
pub(crate) const fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < STEPS as u64 {
        return nanoseconds as usize;
    }
    let doublings = nanoseconds.ilog2() - STEP_BITS;
    let step = (nanoseconds >> doublings) as usize - STEPS;
    let bucket = (doublings as usize + 1) * STEPS + step;
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// The least value of a bucket.
pub(crate) const fn bucket_start(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let doublings = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS) as u64) << doublings
}

/// The value that stands for a bucket.
// Each bucket begins with its own values, and the last one holds the largest.
const _: () = {
    let mut bucket = 0;
    while bucket < BUCKETS {
        assert!(bucket_of(bucket_start(bucket)) == bucket);
        bucket += 1;
    }
    assert!(bucket_of((1 << VALUE_BITS) - 1) == BUCKETS - 1);
};

const fn bucket_middle(bucket: usize) -> u64 {
    u64::midpoint(bucket_start(bucket), bucket_start(bucket + 1) - 1)
}

/// A histogram with one writer (SH1).
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Histogram {
    /// Counts `count` values.
    #[inline]
    pub(crate) fn record(&self, nanoseconds: u64, count: u64) {
        let bucket = &self.buckets[bucket_of(nanoseconds)];
        bucket.store(bucket.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// The summed counts of histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    buckets: Vec<u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
        }
    }
}

impl Counts {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
    }

    /// Subtracts what was counted before `base` was taken.
    pub(crate) fn since(&mut self, base: &Self) {
        for (sum, before) in self.buckets.iter_mut().zip(&base.buckets) {
            *sum = sum.saturating_sub(*before);
        }
    }

    /// Values counted.
    pub(crate) fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Values below `nanoseconds`, which is 0 or a power of two.
    pub(crate) fn below(&self, nanoseconds: u64) -> u64 {
        self.buckets[..bucket_of(nanoseconds)].iter().sum()
    }

    /// The sum of all values, each taken as the middle of its bucket.
    pub(crate) fn sum(&self) -> u64 {
        let values = self.buckets.iter().enumerate();
        values
            .map(|(bucket, count)| bucket_middle(bucket).saturating_mul(*count))
            .sum()
    }

    /// The value that `percent` of the values do not exceed, within the error of a bucket; 0 when
    /// nothing was counted.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let total = self.total();
        let rank = ((percent / 100.0 * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_middle(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_values() {
        for bucket in 0..BUCKETS {
            let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
            assert!(start < end);
            assert_eq!(bucket_of(start), bucket);
            assert_eq!(bucket_of(end - 1), bucket);
        }
        assert_eq!(bucket_start(BUCKETS), 1 << VALUE_BITS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_middle_is_within_the_stated_error() {
        for exponent in 0..VALUE_BITS {
            for offset in 0..64 {
                let value = (1 << exponent) + ((1_u64 << exponent) * offset / 64);
                let error = bucket_middle(bucket_of(value)).abs_diff(value) as f64;
                assert!(error <= value as f64 / 31.0, "{value}");
            }
        }
    }

    #[test]
    fn percentiles_of_a_known_distribution() {
        let histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.record(value * 1000, 1);
        }
        let mut counts = Counts::default();
        counts.add(&histogram);
        assert_eq!(counts.total(), 1000);
        for percent in [1.0, 50.0, 99.0, 99.9, 100.0] {
            let expected = percent * 10_000.0;
            let error = (counts.percentile(percent) as f64 - expected).abs();
            assert!(error <= expected / 31.0, "{percent}");
        }
        let sum = (1000.0 * 1001.0 / 2.0) * 1000.0;
        assert!((counts.sum() as f64 - sum).abs() < sum / 31.0);
        assert_eq!(counts.below(1 << 14), 16);
        assert_eq!(counts.below(0), 0);
    }

    #[test]
    fn what_was_before_the_base_is_taken_away() {
        let histogram = Histogram::default();
        histogram.record(5, 3);
        let mut base = Counts::default();
        base.add(&histogram);
        histogram.record(7, 2);
        let mut now = Counts::default();
        now.add(&histogram);
        now.since(&base);
        assert_eq!((now.total(), now.percentile(50.0)), (2, 7));
        assert_eq!(Counts::default().percentile(50.0), 0);
    }
}
