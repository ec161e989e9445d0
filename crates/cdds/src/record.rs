//! Keys and values: records outside of the nodes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the key |
//! | 4 | 4 | bytes of the value |
//! | 8 | 4 | CRC-32C of both lengths, key and value |
//! | 12 | 4 | the access mark, in its top bits |
//! | 16 | | the key, then the value |
//!
//! - **CR1 unchanging** A record is written and flushed before an entry refers to it, and is not
//!   changed afterwards. Copies of the entry refer to the same record.
//!   Only the mark is, which is a hint: nothing flushes it, and no checksum has it.
//! - **CR2 freed-with-its-pair** A record is freed in the epoch in which its pair ends, whatever
//!   copies of the entry there are: all of them have ended by then.

use std::sync::atomic::{AtomicU32, Ordering};

use pando_pmem::{Full, Mark, Offset, Pmem, Pool};
use pando_sync::prefetch::prefetch_lines;

const HEADER_BYTES: u64 = 16;

/// What is asked for at once before a record is read.
const PREFETCHED_BYTES: usize = 4096;

const FLUSH: Mark = Mark("record: flush");

/// Writes a record into a block that `take` takes; where it is.
pub(crate) fn make<M: Pmem>(
    pool: &Pool<M>,
    take: impl FnOnce(u64) -> Result<Offset, Full>,
    (key, value): (&[u8], &[u8]),
    mark: u32,
) -> Result<Offset, Full> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize + key.len() + value.len());
    let lengths = (key.len() as u64) | (value.len() as u64) << 32;
    bytes.extend_from_slice(&lengths.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    let check = checksum(lengths, &bytes[HEADER_BYTES as usize..]);
    bytes[8..12].copy_from_slice(&check.to_le_bytes());
    bytes[12..16].copy_from_slice(&mark.to_le_bytes());
    let at = take(bytes.len() as u64)?;
    let memory = pool.memory();
    memory.write(at, &bytes);
    memory.mark(FLUSH);
    memory.flush(at, bytes.len());
    Ok(at)
}

/// Of the lengths, and what they tell of.
fn checksum(lengths: u64, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&lengths.to_le_bytes()), rest)
}

/// A record as it stands in a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'p> {
    at: Offset,
    lengths: u64,
    check: u32,
    mark: Option<&'p AtomicU32>,
    /// The key, then the value.
    bytes: &'p [u8],
    key_bytes: usize,
}

impl<'p> Record<'p> {
    /// The record at `at`, if its lengths lie within the pool.
    pub(crate) fn at<M: Pmem>(pool: &'p Pool<M>, at: Offset) -> Option<Self> {
        let memory = pool.memory();
        let lengths = memory.load(at);
        let (key_bytes, value_bytes) = (lengths & 0xffff_ffff, lengths >> 32);
        let length = HEADER_BYTES + key_bytes + value_bytes;
        if at.get() + length > memory.bytes() {
            return None;
        }
        // SAFETY: CR1 unchanging. Its block is handed out again only when nobody is pinned who can
        // have met it (CT3 horizon, CL2 judged-then-followed), and by the writer, which has the
        // tree for itself.
        let bytes = unsafe { memory.read(at.plus(HEADER_BYTES), (length - HEADER_BYTES) as usize) };
        let check = match memory.hint(at.plus(8)) {
            // Relaxed: it is as unchanging as the rest.
            Some(check) => u32::from_le(check.load(Ordering::Relaxed)),
            None => memory.load(at.plus(8)) as u32,
        };
        Some(Self {
            at,
            lengths,
            check,
            mark: memory.hint(at.plus(12)),
            bytes,
            key_bytes: key_bytes as usize,
        })
    }

    pub(crate) fn key(self) -> &'p [u8] {
        &self.bytes[..self.key_bytes]
    }

    pub(crate) fn value(self) -> &'p [u8] {
        &self.bytes[self.key_bytes..]
    }

    /// Where it is.
    pub(crate) fn at_offset(self) -> Offset {
        self.at
    }

    /// Where accesses are noted, in memory that lets a reader do that.
    pub(crate) fn mark(self) -> Option<&'p AtomicU32> {
        self.mark
    }

    /// Asks for its first lines at once: they are in a row, but the processor's own prefetching
    /// starts slowly.
    pub(crate) fn prefetch(self) {
        prefetch_lines(self.bytes.as_ptr(), self.bytes.len().min(PREFETCHED_BYTES));
    }

    /// Whether it is as it was written.
    pub(crate) fn is_whole(self) -> bool {
        self.check == checksum(self.lengths, self.bytes)
    }
}
