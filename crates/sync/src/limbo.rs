//! A first-in-first-out list whose push is compiled into its caller.
//!
//! `VecDeque::push_back` is a call that takes a long entry by reference, and copies it by loads
//! twice as long as the stores with which the caller has just written it. A processor cannot
//! forward such a load from its store buffer: it waits until all earlier stores have reached the
//! cache, among them those of the block that a writer has just filled, whose lines come from memory
//! (docs/BENCHMARKS.md, rows).

/// Entries for which a list keeps its memory.
const KEPT: usize = 4096;

/// Whether a list that was long and no longer is holds too much memory.
pub(crate) fn is_oversized(capacity: usize, entries: usize) -> bool {
    capacity > KEPT && entries < capacity / 8
}

/// Entries in the order in which they came.
pub(crate) struct Limbo<T> {
    entries: Vec<T>,
    /// Those before have gone; less than half of all, unless there are none.
    gone: usize,
}

impl<T> Limbo<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            gone: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[expect(clippy::inline_always, reason = "see the header")]
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: T) {
        self.entries.push(entry);
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.entries.get(self.gone)
    }

    pub(crate) fn last(&self) -> Option<&T> {
        self.entries.last()
    }

    /// Drops the first entry. Amortised O(1).
    pub(crate) fn drop_first(&mut self) {
        debug_assert!(self.gone < self.entries.len());
        self.gone += 1;
        if 2 * self.gone >= self.entries.len() {
            drop(self.drain_gone());
        }
    }

    fn drain_gone(&mut self) -> std::vec::Drain<'_, T> {
        let gone = std::mem::take(&mut self.gone);
        self.entries.drain(..gone)
    }

    /// All entries, which leave.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, T> {
        drop(self.drain_gone());
        self.entries.drain(..)
    }

    /// All entries, in order.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.entries[self.gone..]
    }

    /// Frees most of the memory of a list that was long and no longer is. Amortised O(1).
    pub(crate) fn shrink(&mut self) {
        let capacity = self.entries.capacity();
        if is_oversized(capacity, self.entries.len()) {
            self.entries.shrink_to(capacity / 4);
        }
    }
}

impl<T> Extend<T> for Limbo<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, entries: I) {
        self.entries.extend(entries);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn a_limbo_is_what_a_queue_is() {
        let (mut limbo, mut model) = (Limbo::new(), VecDeque::new());
        for step in 0..20_000_usize {
            // It grows to some thousands, and empties twice.
            if (step / 5000).is_multiple_of(2) != step.is_multiple_of(7) {
                limbo.push(step);
                model.push_back(step);
            } else if model.pop_front().is_some() {
                limbo.drop_first();
                limbo.shrink();
            }
            assert_eq!((limbo.first(), limbo.last()), (model.front(), model.back()));
            assert_eq!(limbo.is_empty(), model.is_empty());
            assert!(limbo.is_empty() || 2 * limbo.gone < limbo.entries.len());
        }
        assert!(limbo.as_mut_slice().iter().eq(&model));
        assert!(limbo.drain().eq(model));
        assert!(limbo.is_empty());
    }

    #[test]
    fn a_list_that_was_long_gives_its_memory_back() {
        let mut limbo = Limbo::new();
        limbo.extend(0..100_000);
        while limbo.first().is_some_and(|first| *first < 99_990) {
            limbo.drop_first();
            limbo.shrink();
        }
        assert!(limbo.entries.capacity() <= 4 * KEPT);
    }
}
