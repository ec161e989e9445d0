//! Sizes of blocks: eight to a doubling, each a multiple of a word.
//!
//! Sizes from a line on that are multiples of a line begin at a line, since the table before them
//! is whole lines.

use super::chunk::Use;
use crate::limits::CHUNK_BYTES_MAX;
use crate::{LINE_BYTES, WORD_BYTES};

/// Sizes are multiples of this.
pub(super) const GRAIN_BYTES: u64 = WORD_BYTES;

/// Bytes of the smallest blocks.
const LEAST_BYTES: u64 = 16;

/// Bytes of a block's record: the epochs in which it was taken and freed.
pub(super) const RECORD_BYTES: u64 = 16;

/// The sizes of a pool's blocks, and which of them holds how many bytes.
#[derive(Debug)]
pub(super) struct Classes {
    /// In order of their blocks.
    slabs: Vec<Slab>,
    /// By bytes in grains, rounded up.
    by_grains: Vec<u8>,
}

impl Classes {
    /// The sizes up to half a chunk, with its table.
    pub(super) fn new(chunk_bytes: u64) -> Self {
        let largest = (chunk_bytes - LINE_BYTES) / 2;
        let mut sizes = Vec::new();
        let mut size = LEAST_BYTES;
        while size <= largest {
            sizes.push(size);
            size += ((1 << size.ilog2()) / 8).max(GRAIN_BYTES);
        }
        // What two blocks to a chunk can have at most, on lines.
        let last = largest / LINE_BYTES * LINE_BYTES;
        if sizes.last().is_some_and(|size| *size < last) {
            sizes.push(last);
        }
        let grains = last / GRAIN_BYTES;
        let class_of = |grains: u64| sizes.partition_point(|size| *size < grains * GRAIN_BYTES);
        let by_grains = (0..=grains).map(|grains| class_of(grains) as u8).collect();
        let slabs = sizes.iter().map(|size| Slab::new(chunk_bytes, *size));
        Self {
            slabs: slabs.collect(),
            by_grains,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.slabs.len()
    }

    /// The class that holds so many bytes; `None`: a span of chunks does.
    #[inline]
    pub(super) fn of(&self, bytes: u64) -> Option<usize> {
        let grains = bytes.div_ceil(GRAIN_BYTES);
        self.by_grains
            .get(usize::try_from(grains).ok()?)
            .map(|class| usize::from(*class))
    }

    pub(super) fn bytes(&self, class: usize) -> u64 {
        self.slabs[class].block_bytes
    }

    pub(super) fn slab(&self, class: usize) -> &Slab {
        &self.slabs[class]
    }

    /// The class of the slabs that a descriptor with this word has.
    #[inline]
    pub(super) fn described(&self, word: u64) -> Option<usize> {
        let class = self.of(Use::number(word))?;
        (self.slabs[class].described == word).then_some(class)
    }

    /// The class of exactly this size.
    pub(super) fn exactly(&self, bytes: u64) -> Option<usize> {
        let class = self.of(bytes)?;
        (self.bytes(class) == bytes).then_some(class)
    }
}

/// How blocks of a size lie in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slab {
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    /// From the chunk's beginning.
    pub(super) blocks_at: u64,
    /// The first word of its chunk's descriptor.
    pub(super) described: u64,
    /// Parts of a block, 2^[`SHARE_BITS`] of them, in a byte, and a little more.
    share: u64,
}

/// So many that a position within a chunk is divided exactly.
const SHARE_BITS: u32 = 40;

const _: () = assert!(
    CHUNK_BYTES_MAX as u64 * CHUNK_BYTES_MAX as u64 / 2 <= 1 << SHARE_BITS,
    "a position's share of what is added to a byte's is less than a byte's"
);

impl Slab {
    pub(super) fn new(chunk_bytes: u64, block_bytes: u64) -> Self {
        let mut blocks = chunk_bytes / (block_bytes + RECORD_BYTES);
        let table = |blocks: u64| (blocks * RECORD_BYTES).next_multiple_of(LINE_BYTES);
        if table(blocks) + blocks * block_bytes > chunk_bytes {
            blocks -= 1;
        }
        Self {
            block_bytes,
            blocks,
            blocks_at: table(blocks),
            described: Use::Slab(block_bytes).encode(),
            share: (1 << SHARE_BITS) / block_bytes + 1,
        }
    }

    /// The block in which a byte lies that is so far behind the first one's beginning, and in the
    /// chunk: a division, by what takes a fifth of the time.
    #[inline]
    pub(super) fn block_around(&self, from_first: u64) -> u64 {
        (from_first * self.share) >> SHARE_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_class_that_wastes_little_and_slabs_fit() {
        for chunk_bytes in [4096, 65536] {
            let classes = Classes::new(chunk_bytes);
            for bytes in 1..=classes.bytes(classes.count() - 1) {
                let size = classes.bytes(classes.of(bytes).unwrap());
                assert!(
                    size >= bytes && size - bytes <= (bytes / 8).max(15),
                    "{bytes}: {size}"
                );
            }
            for class in 0..classes.count() {
                let bytes = classes.bytes(class);
                assert_eq!(classes.exactly(bytes), Some(class));
                let slab = classes.slab(class);
                for byte in 0..chunk_bytes {
                    assert_eq!(slab.block_around(byte), byte / bytes, "{byte}: {slab:?}");
                }
                assert!(slab.blocks >= 2, "{bytes}");
                assert!(slab.blocks_at >= slab.blocks * RECORD_BYTES);
                let end = slab.blocks_at + slab.blocks * bytes;
                let wasted = chunk_bytes - end;
                assert!(
                    end <= chunk_bytes && wasted < 2 * bytes + 256,
                    "{bytes}: {slab:?}"
                );
            }
            assert_eq!(classes.of(chunk_bytes / 2), None);
        }
    }
}
