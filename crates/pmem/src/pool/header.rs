//! The header of a pool, in two slots that take turns.
//!
//! A slot, of 4096 bytes; numbers are little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | format |
//! | 12 | 4 | bytes of a node |
//! | 16 | 8 | generation |
//! | 24 | 16 | identity |
//! | 40 | 8 | bytes of the pool |
//! | 48 | 4 | bytes of a chunk |
//! | 52 | 4 | number of void ranges |
//! | 56 | 8 | checksum: CRC-32C of the fields above and of the ranges |
//! | 64 | 16 each | void ranges: first epoch, last epoch |
//!
//! - **PH1 newest-counts** Generation *g* lies in slot *g* mod 2. Its checksum is the word of a
//!   commit, so it is right only when all of it is there; until then the other slot counts.
//! - **PH2 generation-known** The pool's head repeats the generation, stored after the header
//!   became durable and before anything relies on it. A slot that decays later is not mistaken for
//!   one that was never finished: its void ranges would be forgotten.

use pando_sync::LogEpoch;

use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, VOID_RANGES_MAX};
use crate::{Offset, Pmem, PoolError, Writes};

/// Bytes of a slot.
pub(super) const SLOT_BYTES: u64 = 4096;

/// The format of this version.
pub const FORMAT: u32 = 3;

const MAGIC: u64 = u64::from_le_bytes(*b"PANDO\x1apm");

const CHECKSUM_AT: u64 = 56;
const RANGES_AT: u64 = 64;
const RANGE_BYTES: u64 = 16;

const _: () = assert!(
    RANGES_AT + VOID_RANGES_MAX as u64 * RANGE_BYTES <= SLOT_BYTES,
    "the ranges fit in a slot"
);

/// Epochs whose changes never happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoidRange {
    /// The first of them.
    pub first: LogEpoch,
    /// The last of them.
    pub last: LogEpoch,
}

/// What a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) node_bytes: u32,
    pub(super) chunk_bytes: u32,
    pub(super) generation: u64,
    pub(super) identity: [u8; 16],
    pub(super) bytes: u64,
    pub(super) voids: Vec<VoidRange>,
}

/// Whether chunks may have so many bytes.
pub(super) fn is_chunk_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes)
}

/// What a slot holds.
enum Slot {
    Empty,
    Foreign,
    Newer(u32),
    Older(u32),
    Damaged,
    Whole(Header),
}

fn slot_at(generation: u64) -> Offset {
    Offset::new(generation % 2 * SLOT_BYTES)
}

impl Header {
    /// Whether its numbers can be those of a pool, whatever wrote them.
    fn can_be(&self) -> bool {
        is_chunk_size(self.chunk_bytes) && self.voids.iter().all(|range| range.first <= range.last)
    }

    /// The bytes before the checksum, of this format, and the ranges.
    fn encode(&self, format: u32) -> (Vec<u8>, Vec<u8>) {
        let mut fields = Vec::with_capacity(CHECKSUM_AT as usize);
        fields.extend(MAGIC.to_le_bytes());
        fields.extend(format.to_le_bytes());
        fields.extend(self.node_bytes.to_le_bytes());
        fields.extend(self.generation.to_le_bytes());
        fields.extend(self.identity);
        fields.extend(self.bytes.to_le_bytes());
        fields.extend(self.chunk_bytes.to_le_bytes());
        fields.extend((self.voids.len() as u32).to_le_bytes());
        let ranges = self.voids.iter();
        let ranges = ranges.flat_map(|range| [range.first, range.last]);
        let ranges = ranges.flat_map(|epoch| epoch.0.to_le_bytes()).collect();
        (fields, ranges)
    }

    /// Makes this header the newest one (PH1).
    pub(super) fn write(&self, memory: &impl Pmem) -> Result<(), PoolError> {
        let slot = slot_at(self.generation);
        let (fields, ranges) = self.encode(FORMAT);
        let _window = Writes::new(memory);
        memory.write(slot, &fields);
        memory.write(slot.plus(RANGES_AT), &ranges);
        memory.mark(super::HEADER_FLUSH);
        memory.flush(slot, RANGES_AT as usize + ranges.len());
        memory.commit(slot.plus(CHECKSUM_AT), checksum(&fields, &ranges))?;
        Ok(())
    }

    /// The newest header that is whole, if it is no older than what the pool's head knows (PH2).
    pub(super) fn read(memory: &impl Pmem, known_generation: u64) -> Result<Self, PoolError> {
        let slots = [read_slot(memory, 0), read_slot(memory, 1)];
        let other = slots.iter().find_map(|slot| match slot {
            Slot::Newer(found) => Some(PoolError::Newer {
                found: *found,
                newest: FORMAT,
            }),
            Slot::Older(found) => Some(PoolError::Older {
                found: *found,
                ours: FORMAT,
            }),
            _ => None,
        });
        if let Some(other) = other {
            return Err(other);
        }
        let is_damaged = |slot: &Slot| matches!(slot, Slot::Damaged);
        let damaged = slots.iter().position(is_damaged);
        let all_empty = slots.iter().all(|slot| matches!(slot, Slot::Empty));
        let whole = slots.into_iter().filter_map(|slot| match slot {
            Slot::Whole(header) => Some(header),
            _ => None,
        });
        let newest = whole.max_by_key(|header| header.generation);
        let damage = |at| PoolError::Damaged {
            at,
            what: "the header",
        };
        match newest {
            Some(header) if header.generation < known_generation => {
                Err(damage(slot_at(known_generation)))
            }
            Some(header) => Ok(header),
            None if all_empty => Err(PoolError::Unfinished),
            None => Err(damaged.map_or(PoolError::Foreign, |slot| damage(slot_at(slot as u64)))),
        }
    }
}

fn checksum(fields: &[u8], ranges: &[u8]) -> u64 {
    // Never 0, which an unfinished slot has.
    u64::from(crc32c::crc32c_append(crc32c::crc32c(fields), ranges)) | 1 << 63
}

fn read_slot(memory: &impl Pmem, slot: u64) -> Slot {
    let at = slot_at(slot);
    let magic = memory.load(at);
    let stored = memory.load(at.plus(CHECKSUM_AT));
    if stored == 0 && [0, MAGIC].contains(&magic) {
        return Slot::Empty;
    }
    if magic != MAGIC {
        return Slot::Foreign;
    }
    let word = |from| memory.load(at.plus(from));
    let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
    let format = low(word(8));
    if format > FORMAT {
        return Slot::Newer(format);
    }
    let ranges = high(word(48)) as usize;
    if ranges > VOID_RANGES_MAX {
        return Slot::Damaged;
    }
    let range_at = |index: usize| RANGES_AT + index as u64 * RANGE_BYTES;
    let identity = u128::from(word(24)) | u128::from(word(32)) << 64;
    let header = Header {
        node_bytes: high(word(8)),
        chunk_bytes: low(word(48)),
        generation: word(16),
        identity: identity.to_le_bytes(),
        bytes: word(40),
        voids: (0..ranges)
            .map(|index| VoidRange {
                first: LogEpoch(word(range_at(index))),
                last: LogEpoch(word(range_at(index) + 8)),
            })
            .collect(),
    };
    let (fields, ranges) = header.encode(format);
    let is_whole = stored == checksum(&fields, &ranges);
    if !is_whole || header.generation % 2 != slot || !header.can_be() {
        Slot::Damaged
    } else if format < FORMAT {
        Slot::Older(format)
    } else {
        Slot::Whole(header)
    }
}

/// Changes one of a slot's words and makes its checksum right, for the fuzz target.
pub(super) fn reseal(memory: &impl Pmem, slot: u64, change: u64) {
    let at = slot_at(slot);
    let place = at.plus(change % 16 * 8);
    memory.store(place, memory.load(place) ^ (change >> 4));
    let word = |from| memory.load(at.plus(from)).to_le_bytes();
    let ranges = (memory.load(at.plus(48)) >> 32).min(VOID_RANGES_MAX as u64);
    let fields: Vec<u8> = (0..CHECKSUM_AT).step_by(8).flat_map(word).collect();
    let ranges = (0..ranges * 2).flat_map(|index| word(RANGES_AT + index * 8));
    let ranges: Vec<u8> = ranges.collect();
    memory.store(at.plus(CHECKSUM_AT), checksum(&fields, &ranges));
}
