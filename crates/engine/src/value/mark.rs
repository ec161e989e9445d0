//! Access marks: a few bits beside a value that record how recently or how often it was used, for
//! eviction. An engine keeps them and never looks at them.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | the top [`MARK_BITS`] bits of the word | anybody who is shown the value | `Relaxed` store of the whole word | anybody |
//! | the rest of the word | the engine, before it publishes the value | – | the engine, `Relaxed` |
//!
//! The rest of the word never changes, so a racing store loses at most a mark, which is a hint. An
//! unchanged mark is not stored, so lines of values that are read all the time stay shared in all
//! caches.

use std::ptr::NonNull;

use pando_sync::shim::unmodelled::{AtomicU32, Ordering};

/// Bits of a mark.
pub const MARK_BITS: u32 = 6;

/// The highest mark.
pub const MARK_MAX: u8 = (1 << MARK_BITS) - 1;

const SHIFT: u32 = u32::BITS - MARK_BITS;

/// The bits of a word that are not the mark's.
const REST: u32 = (1 << SHIFT) - 1;

/// The access mark of a value that a reader is shown.
#[derive(Clone, Copy, Debug)]
pub struct AccessMark<'a>(Option<&'a AtomicU32>);

impl<'a> AccessMark<'a> {
    /// Of a value that no engine holds: reads as 0 and ignores changes.
    pub const NONE: Self = Self(None);

    /// In the top bits of `word`, whose other bits do not change while readers see it.
    #[inline]
    #[must_use]
    pub const fn of(word: &'a AtomicU32) -> Self {
        Self(Some(word))
    }

    /// The address of its word, for the engine that owns it.
    #[inline]
    #[must_use]
    pub fn address(self) -> Option<NonNull<AtomicU32>> {
        self.0.map(NonNull::from)
    }

    /// The mark.
    #[inline]
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
            .map_or(0, |word| (word.load(Ordering::Relaxed) >> SHIFT) as u8)
    }

    /// Changes the mark, capped at [`MARK_MAX`]; writes nothing when it is unchanged.
    #[inline]
    pub fn set(self, mark: u8) {
        let Some(word) = self.0 else { return };
        let old = word.load(Ordering::Relaxed);
        let new = with_mark(old, mark);
        if new != old {
            word.store(new, Ordering::Relaxed);
        }
    }
}

/// `word` with this mark in its top bits.
#[inline]
#[must_use]
pub fn with_mark(word: u32, mark: u8) -> u32 {
    word & REST | u32::from(mark.min(MARK_MAX)) << SHIFT
}

/// `word` without its mark.
#[inline]
#[must_use]
pub const fn without_mark(word: u32) -> u32 {
    word & REST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_leaves_the_rest_of_its_word_alone() {
        let word = AtomicU32::new(with_mark(0x02ab_cdef, 9));
        let mark = AccessMark::of(&word);
        for value in [0, 1, 31, MARK_MAX] {
            mark.set(value);
            assert_eq!(mark.get(), value);
            assert_eq!(without_mark(word.load(Ordering::Relaxed)), 0x02ab_cdef);
        }
        mark.set(u8::MAX);
        assert_eq!(mark.get(), MARK_MAX);
        AccessMark::NONE.set(5);
        assert_eq!(AccessMark::NONE.get(), 0);
    }
}
