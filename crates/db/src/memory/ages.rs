//! How long ago values were written, and last read.
//!
//! A value stores its log epoch, and epochs pass at no fixed pace. So the times at which epochs
//! were seen to begin are remembered, at distances that grow with their age: [`TIMES_MAX`] of them
//! give the age of any value to within a few hundredths. Anything written before the start counts
//! as written at the start.
//!
//! Under an LRU policy a value's access mark also stores the *class* of its age at its last read:
//!
//! | class | age at the last read |
//! |---|---|
//! | 0 | not read since it was written |
//! | 1 | less than a second |
//! | k | 2^(k-2) to 2^(k-1) seconds |
//! | [`CLASS_MAX`] | 2^(k-2) seconds (three days) or more |
//!
//! So the time since the last read is known as a lower bound, which is too low by at most half the
//! age that the value had when it was read, and exact for a value never read. For this a mark
//! changes at most [`CLASS_MAX`] times in the life of a value, however often it is read.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `bounds` | maintenance ([`Ages::tick`]) | `Relaxed` | reads, under an LRU policy |
//! | `times` | the same | a mutex | queries about a value |
//!
//! `Relaxed` is enough: a bound that is late by a tick makes a value seem younger by that much.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_engine::{LogEpoch, ValueRef};
use pando_sync::lock;

use super::access::{Tracking, class_of_mark};
use crate::clock::Milliseconds;

/// The last class; see the module's header.
pub(super) const CLASS_MAX: u8 = 20;

/// Beginnings of epochs that are remembered.
const TIMES_MAX: usize = 512;

/// When an epoch was first seen to be the current one.
#[derive(Clone, Copy, Debug)]
struct Begun {
    epoch: u64,
    at_ms: Milliseconds,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// Values of epochs below the k-th bound are at least 2^k seconds old.
    bounds: [AtomicU64; CLASS_MAX as usize - 1],
    times: Mutex<Vec<Begun>>,
}

impl Ages {
    /// Records the time of the current epoch.
    pub(crate) fn tick(&self, current: LogEpoch, now_ms: Milliseconds) {
        let mut times = lock(&self.times);
        if times.last().is_none_or(|last| last.epoch < current.0) {
            let begun = Begun {
                epoch: current.0,
                at_ms: now_ms,
            };
            times.push(begun);
            if times.len() > TIMES_MAX {
                thin(&mut times, now_ms);
            }
        }
        for (class, bound) in self.bounds.iter().enumerate() {
            let old_ms = now_ms.saturating_sub(Milliseconds(1000 << class));
            let known = times.partition_point(|begun| begun.at_ms <= old_ms);
            let epoch = known.checked_sub(1).map_or(0, |index| times[index].epoch);
            if bound.load(Ordering::Relaxed) != epoch {
                bound.store(epoch, Ordering::Relaxed);
            }
        }
    }

    /// The class of a value's present age, not 0; `known` is one that it has reached.
    #[inline]
    pub(super) fn class(&self, written: LogEpoch, known: u8) -> u8 {
        let known = known.clamp(1, CLASS_MAX);
        let older = self.bounds[usize::from(known) - 1..].iter();
        let older = older.take_while(|bound| written.0 < bound.load(Ordering::Relaxed));
        known + older.count() as u8
    }

    /// Milliseconds since a value of this epoch was written.
    fn since_ms(&self, written: LogEpoch, now_ms: Milliseconds) -> Milliseconds {
        let times = lock(&self.times);
        let later = times.partition_point(|begun| begun.epoch <= written.0);
        times.get(later).map_or(Milliseconds::ZERO, |begun| {
            now_ms.saturating_sub(begun.at_ms)
        })
    }
}

/// Forgets one of the beginnings: the one whose neighbours are closest for their age.
fn thin(times: &mut Vec<Begun>, now_ms: Milliseconds) {
    let gap = |index: usize| {
        let around = times[index + 1]
            .at_ms
            .saturating_sub(times[index - 1].at_ms);
        let age = now_ms.saturating_sub(times[index].at_ms);
        around.0 as f64 / (age.0 + 1) as f64
    };
    let inner = 1..times.len() - 1;
    if let Some(index) = inner.min_by(|one, other| gap(*one).total_cmp(&gap(*other))) {
        times.remove(index);
    }
}

/// When a value was used last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAccess {
    /// Seconds since it was read, or written if that is later: never more than the true number.
    /// Policies other than LRU do not note reads; then it is the seconds since it was written.
    pub idle_seconds: u64,
    /// Whether it is known to have been read since it was written.
    pub is_read: bool,
}

/// Determines the [`LastAccess`] of values, for the duration of one command.
#[derive(Clone, Copy, Debug)]
pub struct Accesses<'d> {
    pub(super) ages: &'d Ages,
    pub(super) tracking: Tracking,
    pub(super) now_ms: Milliseconds,
}

impl Accesses<'_> {
    /// When a value was last used; the current read is noted only after the reader returns.
    #[must_use]
    pub fn of(&self, value: &ValueRef<'_>) -> LastAccess {
        let since_write_ms = self.ages.since_ms(value.version.epoch(), self.now_ms);
        let mark = value.mark.get();
        let (is_read, age) = match self.tracking {
            Tracking::Lately => match class_of_mark(mark) {
                0 => (false, Milliseconds::ZERO),
                CLASS_MAX => (true, Milliseconds::MAX),
                class => (true, Milliseconds(1000 << (class - 1))),
            },
            Tracking::Often => (super::access::is_read_often(mark), Milliseconds::ZERO),
            Tracking::Nothing => (false, Milliseconds::ZERO),
        };
        LastAccess {
            idle_seconds: since_write_ms.saturating_sub(age).0 / 1000,
            is_read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ages over many orders of magnitude are off by a few hundredths at most, and never too high.
    #[test]
    fn ages_are_known_to_within_a_few_hundredths() {
        let (ages, mut random) = (Ages::default(), fastrand::Rng::with_seed(5));
        let (mut now_ms, mut written) = (7_000_000, Vec::new());
        for epoch in 1..60_000_u64 {
            ages.tick(LogEpoch(epoch), Milliseconds(now_ms));
            if random.u32(..50) == 0 {
                written.push((LogEpoch(epoch), now_ms));
            }
            // Now and then a long one.
            now_ms += if random.u32(..1000) == 0 {
                3_600_000
            } else {
                50
            };
        }
        ages.tick(LogEpoch(60_000), Milliseconds(now_ms));
        assert_eq!(lock(&ages.times).len(), TIMES_MAX);
        for (epoch, at_ms) in written {
            let (told, age) = (ages.since_ms(epoch, Milliseconds(now_ms)), now_ms - at_ms);
            // An epoch may be as long as the pause that follows its beginning.
            let least = (age as f64 * 0.9) as u64;
            assert!(
                told <= Milliseconds(age)
                    && told + Milliseconds(3_600_000) + Milliseconds(50) >= Milliseconds(least),
                "{told} of {age}"
            );
        }
        assert_eq!(
            ages.since_ms(LogEpoch(60_000), Milliseconds(now_ms + 5)),
            Milliseconds(0)
        );
        assert_eq!(
            ages.since_ms(LogEpoch(0), Milliseconds(now_ms)),
            Milliseconds(now_ms - 7_000_000)
        );
    }

    /// The class of an age, whatever class is already known.
    #[test]
    fn classes_follow_the_logarithm_of_the_age() {
        let ages = Ages::default();
        ages.tick(LogEpoch(1), Milliseconds(1_000_000));
        ages.tick(LogEpoch(2), Milliseconds(1_000_000));
        for (seconds, class) in [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 3),
            (4, 4),
            (1 << 18, 20),
            (1 << 22, 20),
        ] {
            ages.tick(
                LogEpoch(3 + seconds),
                Milliseconds(1_000_000 + seconds * 1000),
            );
            for known in 0..=class {
                assert_eq!(
                    ages.class(LogEpoch(1), known),
                    class,
                    "{seconds} s, {known}"
                );
            }
            assert_eq!(ages.class(LogEpoch(3 + seconds), 0), 1);
        }
    }
}
