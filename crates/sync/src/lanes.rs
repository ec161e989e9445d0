//! Searching whole cache lines of words in a few vector instructions (AVX-512).
//!
//! A search that takes one word after the other ends with a branch that no processor foresees, and
//! takes several instructions for each word. Both delay what is asked of memory next: while a load
//! waits, a processor runs ahead by some 500 instructions, and on beyond a branch that it has
//! guessed wrong only when that is known. These searches have no branches. Single gets of a tree
//! became 1.3 times as fast by them (docs/BENCHMARKS.md).
//!
//! The words may be written meanwhile. The loads are those of assembler, for which a racing store
//! is no undefined behaviour; each lane is loaded whole, as any aligned word is, but two lanes may
//! be of different moments. So the caller treats what it learns as it would what it has loaded word
//! by word with `Relaxed`, and validates it afterwards: a fence of any kind orders both alike.
//!
//! [`are_there`] chooses at run time, so that every build for x86-64 has them. It asks for VBMI2,
//! which came with the first processors that do not lower their clock for long vectors. Elsewhere,
//! and in models, callers search word by word.

/// Words in a line.
const LANES: usize = 8;

/// Whether the other functions may be called.
#[inline]
#[must_use]
pub fn are_there() -> bool {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    return std::arch::is_x86_feature_detected!("avx512vbmi2");
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    false
}

/// How many of the words from the second on are at most `bound`, up to the first that is not.
///
/// # Safety
/// `words` leads to two lines, and [`are_there`].
#[inline]
#[must_use]
pub unsafe fn leading_up_to(words: *const u64, bound: u64) -> usize {
    debug_assert!(words.addr().is_multiple_of(LANES * size_of::<u64>()));
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    {
        let up_to: u32;
        // SAFETY: the caller's promise. Registers from 16 on leave nothing behind that would slow
        // down older instructions.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {bound}",
                "vpcmpuq k1, zmm16, [{words}], 5",
                "vpcmpuq k2, zmm16, [{words} + 64], 5",
                "kunpckbw k1, k2, k1",
                "kmovw {up_to:e}, k1",
                bound = in(reg) bound,
                words = in(reg) words,
                up_to = lateout(reg) up_to,
                out("zmm16") _,
                out("k1") _,
                out("k2") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        // The first lane is not asked about.
        (up_to | 1).trailing_ones() as usize - 1
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    {
        let _ = bound;
        unreachable!("see `are_there`")
    }
}

/// The positions of even words in two lines, for [`which_even`].
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
#[repr(align(64))]
struct Even([u64; LANES]);

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
static EVEN: Even = Even([0, 2, 4, 6, 8, 10, 12, 14]);

/// Which words at even places are `word`, as bits: of place 0, 2, … 30.
///
/// # Safety
/// `words` leads to four lines, and [`are_there`].
#[inline]
#[must_use]
pub unsafe fn which_even(words: *const u64, word: u64) -> u32 {
    debug_assert!(words.addr().is_multiple_of(LANES * size_of::<u64>()));
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    {
        let which: u32;
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {word}",
                "vmovdqa64 zmm17, [{even}]",
                "vmovdqa64 zmm18, zmm17",
                "vmovdqa64 zmm19, [{words}]",
                "vmovdqa64 zmm20, [{words} + 128]",
                "vpermi2q zmm17, zmm19, [{words} + 64]",
                "vpermi2q zmm18, zmm20, [{words} + 192]",
                "vpcmpeqq k1, zmm17, zmm16",
                "vpcmpeqq k2, zmm18, zmm16",
                "kunpckbw k1, k2, k1",
                "kmovw {which:e}, k1",
                word = in(reg) word,
                words = in(reg) words,
                even = in(reg) &raw const EVEN.0,
                which = lateout(reg) which,
                out("zmm16") _,
                out("zmm17") _,
                out("zmm18") _,
                out("zmm19") _,
                out("zmm20") _,
                out("k1") _,
                out("k2") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        which
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    {
        let _ = word;
        unreachable!("see `are_there`")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u64; 32]);

    #[test]
    fn lines_are_searched_as_word_by_word() {
        if !are_there() {
            return;
        }
        let mut random = 88_172_645_463_325_252_u64;
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Also numbers whose highest bit is set.
            (random % below).wrapping_sub(below / 2)
        };
        for round in 0..20_000 {
            let lines = Lines(std::array::from_fn(|_| draw(4 + round % 8)));
            let (words, sought) = (lines.0.as_ptr(), draw(4 + round % 8));
            let leading = lines.0[1..16].iter().take_while(|word| **word <= sought);
            // SAFETY: four lines, and the functions are there.
            assert_eq!(unsafe { leading_up_to(words, sought) }, leading.count());
            let even = (0..16).filter(|pair| lines.0[2 * pair] == sought);
            let even = even.fold(0, |which, pair| which | 1_u32 << pair);
            // SAFETY: as above.
            assert_eq!(unsafe { which_even(words, sought) }, even);
        }
    }
}
