//! What the pool says of a chunk and of its blocks, and what that means.
//!
//! A chunk's descriptor, of 32 bytes:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | 0: empty; else kind (1: slab, 2: span) in 4 bits, its number in 40, checksum in 20 |
//! | 8 | 8 | of a span: the epoch in which it was taken |
//! | 16 | 8 | of a span: the epoch in which it was freed |
//!
//! The number is the size of a slab's blocks, or the number of a span's chunks, of which only the
//! first has a descriptor that counts. A slab begins with a table of records, one of two such
//! epochs for each block.

use pando_sync::LogEpoch;

use super::classes::RECORD_BYTES;
use crate::pool::{DESCRIPTORS_AT, epoch_bits, sealed, unsealed};
use crate::{Offset, Pmem, Pool, Words};

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = 32;

/// What a chunk is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Empty,
    /// Blocks of so many bytes.
    Slab(u64),
    /// One block over so many chunks.
    Span(u64),
    Damaged,
}

impl Use {
    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Slab(bytes) => sealed(LogEpoch(1 << 40 | bytes)),
            Self::Span(chunks) => sealed(LogEpoch(2 << 40 | chunks)),
            Self::Damaged => unreachable!("damage is not written"),
        }
    }

    /// The number in a descriptor's word, right or not.
    #[inline]
    pub(super) fn number(word: u64) -> u64 {
        word & ((1 << 40) - 1)
    }

    pub(super) fn decode(word: u64) -> Self {
        if word == 0 {
            return Self::Empty;
        }
        let Some(LogEpoch(word)) = unsealed(word) else {
            return Self::Damaged;
        };
        let number = Self::number(word);
        match word >> 40 {
            1 => Self::Slab(number),
            2 => Self::Span(number),
            _ => Self::Damaged,
        }
    }
}

/// What has become of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Nobody's.
    Free,
    /// Somebody's.
    Taken,
    /// Nobody's from this epoch on; who reads an older one may still see it.
    Freed(LogEpoch),
    /// Its record is damaged: it is not handed out.
    Damaged,
}

/// Where a record is: of a block in a slab, or of a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record(pub(super) Offset);

impl Record {
    /// The record of a block in the slab that begins at `chunk`.
    pub(super) fn of_block(chunk: Offset, index: u64) -> Self {
        Self(chunk.plus(index * RECORD_BYTES))
    }

    /// The record of the span that begins with this chunk.
    pub(super) fn of_span(chunk: u64) -> Self {
        Self(descriptor_at(chunk).plus(8))
    }

    fn freed_at(self) -> Offset {
        self.0.plus(8)
    }

    /// What the record says (PA1 judged-by-epochs).
    pub(super) fn judge<M: Pmem>(self, pool: &Pool<M>) -> BlockState {
        let taken = match pool.memory().load(self.0) {
            0 => return BlockState::Free,
            word => unsealed(word),
        };
        let Some(taken) = taken else {
            return BlockState::Damaged;
        };
        if pool.is_void(taken) {
            return BlockState::Free;
        }
        let freed = match pool.memory().load(self.freed_at()) {
            0 => return BlockState::Taken,
            word => unsealed(word),
        };
        match freed {
            None => BlockState::Damaged,
            // What was freed before it was taken was another life of the block.
            Some(freed) if freed < taken || pool.is_void(freed) => BlockState::Taken,
            Some(freed) => BlockState::Freed(freed),
        }
    }

    /// See [`Records::seems_taken`].
    #[inline]
    pub(super) fn seems_taken<M: Pmem>(self, pool: &Pool<M>) -> bool {
        Records::of_slab(pool, self.0, 1).seems_taken(0)
    }

    /// Takes the block, in an epoch with its checksum.
    #[inline]
    pub(super) fn take<M: Pmem>(self, pool: &Pool<M>, sealed: u64) {
        pool.memory().store(self.0, sealed);
    }

    /// The same for freeing it.
    #[inline]
    pub(super) fn free<M: Pmem>(self, pool: &Pool<M>, sealed: u64) {
        pool.memory().store(self.freed_at(), sealed);
    }

    /// Rubs void epochs out; whether there were any.
    pub(super) fn clean<M: Pmem>(self, pool: &Pool<M>) -> bool {
        let mut cleaned = false;
        for at in [self.freed_at(), self.0] {
            let word = pool.memory().load(at);
            if unsealed(word).is_some_and(|epoch| word != 0 && pool.is_void(epoch)) {
                // Whoever frees the block meanwhile wins.
                cleaned |= pool.memory().compare_exchange(at, word, 0).is_ok();
            }
        }
        cleaned
    }
}

/// Records in a row.
pub(super) struct Records<'p, M> {
    pool: &'p Pool<M>,
    words: Words<'p>,
}

impl<'p, M: Pmem> Records<'p, M> {
    /// The first ones of the slab that begins at `chunk`.
    #[inline]
    pub(super) fn of_slab(pool: &'p Pool<M>, chunk: Offset, count: u64) -> Self {
        let words = pool.memory().row(chunk, 2 * count as usize);
        Self { pool, words }
    }

    /// Whether a record says so at first sight, as most do. Damage may hide behind it: it is for
    /// who looks for blocks to hand out, which a damaged one is not either.
    #[inline]
    pub(super) fn seems_taken(&self, index: usize) -> bool {
        let taken = epoch_bits(self.words.load(2 * index));
        let freed = epoch_bits(self.words.load(2 * index + 1));
        freed < taken && !self.pool.is_void(taken)
    }
}

pub(super) fn descriptor_at(chunk: u64) -> Offset {
    DESCRIPTORS_AT.plus(chunk * DESCRIPTOR_BYTES)
}
