//! Counters of which each thread has its own: counting shares no line with others, and locks none.
//!
//! | field | writer | reader |
//! |---|---|---|
//! | a stripe | the thread that has its number, `Relaxed`; the last one, whoever has none | everyone, `Relaxed` |
//!
//! - **SP1 one-writer** A number is one thread's until it ends: it gives the number back, and
//!   whoever takes it then sees what was counted (the mutex of the numbers). So a count is never
//!   lost.
//!
//! Deliberately absent: a sum at one moment. It has what was counted before, and perhaps more.

use std::sync::Mutex;

use crate::shim::unmodelled::{AtomicU64, Ordering};
use crate::{Padded, lock};

/// Stripes; threads beyond so many share one.
const STRIPES: usize = 64;

/// `N` counters.
///
/// ```
/// use pando_sync::Striped;
///
/// let counted = Striped::<2>::default();
/// counted.add([3, 1]);
/// std::thread::scope(|scope| drop(scope.spawn(|| counted.add([4, 1]))));
/// assert_eq!(counted.sums(), [7, 2]);
/// ```
#[derive(Debug)]
pub struct Striped<const N: usize>(Box<[Padded<[AtomicU64; N]>]>);

impl<const N: usize> Default for Striped<N> {
    fn default() -> Self {
        let zeros = |_| Padded(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..STRIPES).map(zeros).collect())
    }
}

impl<const N: usize> Striped<N> {
    /// Counts so much of each.
    #[inline]
    pub fn add(&self, more: [u64; N]) {
        let number = NUMBER.try_with(|number| number.0);
        let number = number.unwrap_or(STRIPES - 1);
        for (counter, more) in self.0[number].iter().zip(more) {
            if number < STRIPES - 1 {
                // SP1 one-writer.
                let before = counter.load(Ordering::Relaxed);
                counter.store(before.wrapping_add(more), Ordering::Relaxed);
            } else {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// What was counted by all threads.
    #[must_use]
    pub fn sums(&self) -> [u64; N] {
        std::array::from_fn(|index| {
            let counted = self
                .0
                .iter()
                .map(|stripe| stripe[index].load(Ordering::Relaxed));
            counted.fold(0, u64::wrapping_add)
        })
    }
}

/// Numbers that were given back, and how many there are.
static NUMBERS: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

thread_local! {
    static NUMBER: Number = Number::take();
}

/// A thread's number, or that of all which have none.
struct Number(usize);

impl Number {
    fn take() -> Self {
        let mut numbers = lock(&NUMBERS);
        let (given_back, count) = &mut *numbers;
        Self(given_back.pop().unwrap_or_else(|| {
            let next = *count;
            *count = (next + 1).min(STRIPES - 1);
            next
        }))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if self.0 < STRIPES - 1 {
            lock(&NUMBERS).0.push(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More threads than stripes, at once and one after the other.
    #[test]
    fn sp1_nothing_that_was_counted_is_lost() {
        let counted = Striped::<2>::default();
        for round in 1..=3 {
            std::thread::scope(|scope| {
                for _ in 0..2 * STRIPES {
                    scope.spawn(|| (0..100).for_each(|_| counted.add([1, 5])));
                }
            });
            let all = round * 2 * STRIPES as u64 * 100;
            assert_eq!(counted.sums(), [all, 5 * all]);
        }
        assert!(lock(&NUMBERS).1 < STRIPES);
    }
}
