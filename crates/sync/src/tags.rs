//! Which words of a line have a given tag in their upper 16 bits, in a few vector instructions.
//!
//! The vectors are loaded while writers store words one at a time. The result is a hint: the caller
//! loads the reported words again, as atomics, and checks their tags. A word that has the tag
//! throughout is never missed: the hardware stores and loads an aligned word at once, even as part
//! of a vector. The language has no such load, so assembly does it; to the compiler it is what
//! atomic loads of the words would be, not a data race.
//!
//! Deliberately absent: vector instructions that some processors of the architecture lack.

use crate::shim::AtomicU64;

/// Bits of the result for each word.
const STRIDE: u32 = 4;

/// Words that may have a tag, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Matches(u32);

impl Iterator for Matches {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let word = self.0.trailing_zeros() / STRIDE;
        self.0 &= self.0 - 1;
        Some(word as usize)
    }
}

/// The words whose upper 16 bits are `tag`, each as of some time during the call. Loads that come
/// before it in the program precede it. At most eight words; vectors are used for eight.
#[inline]
#[must_use]
pub fn matches<const WORDS: usize>(words: &[AtomicU64; WORDS], tag: u16) -> Matches {
    const { assert!(WORDS * STRIDE as usize <= u32::BITS as usize) };
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    if let Ok(words) = <&[AtomicU64; 8]>::try_from(&words[..]) {
        return vectors(words, tag);
    }
    scalar(words, tag)
}

/// [`matches`] for eight words.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
#[inline]
fn vectors(words: &[AtomicU64; 8], tag: u16) -> Matches {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };
    let first = words.as_ptr().cast::<[u64; 2]>();
    // SAFETY: every processor of the architecture has these instructions, as those below.
    let tags = unsafe { _mm_set1_epi16(tag.cast_signed()) };
    let equal = |pair: usize| {
        let pair = first.wrapping_add(pair);
        let words: __m128i;
        // SAFETY: a pair of the eight words, loaded as each of them could be on its own.
        unsafe {
            asm!(
                "movdqu {words}, [{pair}]",
                pair = in(reg) pair,
                words = lateout(xmm_reg) words,
                options(nostack, preserves_flags, readonly),
            );
        }
        // SAFETY: as for `tags`.
        unsafe { _mm_cmpeq_epi16(words, tags) }
    };
    let bits = |low: usize| {
        // SAFETY: as for `tags`.
        let packed = unsafe { _mm_packs_epi16(equal(low), equal(low + 1)) };
        // SAFETY: as for `tags`.
        unsafe { _mm_movemask_epi8(packed) }
    };
    // Only the upper one of each word's four quarters counts.
    Matches((bits(0) | bits(2) << 16).cast_unsigned() & 0x8888_8888)
}

/// [`matches`], one word after the other.
#[inline]
fn scalar<const WORDS: usize>(words: &[AtomicU64; WORDS], tag: u16) -> Matches {
    use crate::shim::Ordering;

    let mut found = 0;
    for (word, content) in words.iter().enumerate() {
        // The caller loads what it uses again.
        if content.load(Ordering::Relaxed) >> 48 == u64::from(tag) {
            found |= 1 << (word as u32 * STRIDE + STRIDE - 1);
        }
    }
    Matches(found)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn vectors_find_what_single_words_do() {
        let mut state = 1_u64;
        for _ in 0..10_000 {
            let words: [AtomicU64; 8] = std::array::from_fn(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // Few values, in every quarter.
                AtomicU64::new(state >> 7 & 0x0003_8001_0002_0003)
            });
            for tag in [0, 1, 2, 3, 0x8000, 0xffff] {
                let found: Vec<_> = matches(&words, tag).collect();
                assert_eq!(found, scalar(&words, tag).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn every_word_can_match_and_only_the_upper_bits_count() {
        for word in 0..8 {
            let words: [AtomicU64; 8] = std::array::from_fn(|index| {
                AtomicU64::new(if index == word {
                    0xfffe << 48
                } else {
                    0xfffe_fffe_fffe
                })
            });
            assert_eq!(matches(&words, 0xfffe).collect::<Vec<_>>(), [word]);
        }
    }
}
