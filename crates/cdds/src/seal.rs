//! Epochs as entries have them: each with a checksum, so that a damaged one is not taken for one
//! that has passed.
//!
//! | bits | of a beginning | of an end |
//! |---|---|---|
//! | 0 … 43 | the epoch in which the entry began | the epoch in which it ended |
//! | 44 … 63 | of the CRC-32C of the epoch and of what the entry says | of the epoch's own |
//!
//! A word of 0 is none of either. So CN5 sealed is checked: who looks a key up asks it of each slot
//! that may be the key's, seen or not, and who descends of each entry that it follows. Scans,
//! frames, copies of a node and the visit after a crash (`clean.rs`) go on from all that a node
//! has, and ask it of all slots. A slot is used again only if it is right.

use pando_pmem::checksum::crc32c_words;
use pando_pmem::limits::EPOCH_BITS;
use pando_pmem::{epoch_bits, sealed, unsealed};
use pando_sync::LogEpoch;

use crate::canary::{self, Fault};

/// The beginning of an entry that says this.
#[inline]
pub(crate) fn beginning<const N: usize>(epoch: LogEpoch, said: [u64; N]) -> u64 {
    epoch.0 | u64::from(crc32c_words(epoch.0, said)) << EPOCH_BITS
}

/// The end of an entry; it has none in [`LogEpoch::NONE`].
#[inline]
pub(crate) fn end(epoch: LogEpoch) -> u64 {
    if epoch == LogEpoch::NONE {
        return 0;
    }
    sealed(epoch)
}

/// Whether both words of an entry that says this are right, or it has not begun (CN5 sealed).
#[inline]
pub(crate) fn are_right<const N: usize>([start, end]: [u64; 2], said: [u64; N]) -> bool {
    if canary::has(Fault::SealUnasked) {
        return true;
    }
    let has_begun = start == 0 || start == beginning(epoch_bits(start), said);
    has_begun && (end == 0 || unsealed(end).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit that flips, and every two of an entry of a leaf.
    #[test]
    fn an_entry_of_which_a_bit_flips_is_damaged() {
        let words = |said: &[u64], ended| {
            let said: [u64; 6] = said.try_into().expect("six words");
            let started = beginning(LogEpoch(0x0012_3456_789a), said);
            [&[started, end(LogEpoch(ended))], &said[..]].concat()
        };
        let is_right = |words: &[u64]| {
            let (epochs, said) = words.split_first_chunk().expect("two epochs");
            are_right::<6>(*epochs, said.try_into().expect("six words"))
        };
        for ended in [0, 0x0fed_cba9_8765] {
            let whole = words(&[1 << 63, 4096, 64 << 20, 7, 0, u64::MAX], ended);
            assert!(is_right(&whole));
            for bit in 0..8 * 64 {
                let mut flipped = whole.clone();
                flipped[bit / 64] ^= 1 << (bit % 64);
                assert!(!is_right(&flipped), "bit {bit}");
            }
        }
        let (epoch, said) = (LogEpoch((1 << 33) + 77), [0x6b65_7931_3233, 1 << 30]);
        let start = beginning(epoch, said);
        for (first, second) in (0..192).flat_map(|first| (0..first).map(move |bit| (first, bit))) {
            let mut words = [start, said[0], said[1]];
            for bit in [first, second] {
                words[bit / 64] ^= 1 << (bit % 64);
            }
            let is_right = are_right([words[0], 0], [words[1], words[2]]);
            assert!(!is_right, "bits {first} and {second}");
        }
    }
}
