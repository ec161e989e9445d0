//! Keys and values: records outside of the nodes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | bytes of the key in 17 bits, of the value in the next 30; the access mark in the top 6 |
//! | 8 | 4 | CRC-32C of both lengths, key and value; of a separator with [`SEPARATOR`] |
//! | 12 | | the key, then the value |
//!
//! - **CR1 unchanging** A record is written and flushed before an entry refers to it, and is not
//!   changed afterwards. Copies of the entry refer to the same record.
//!   Only the mark is, which is a hint: nothing flushes it, and no checksum has it.
//! - **CR2 freed-with-its-pair** A record is freed in the epoch in which its pair ends, whatever
//!   copies of the entry there are: all of them have ended by then.
//! - **CR3 told-apart** A separator's record has another checksum than a pair's of the same bytes:
//!   a leaf that is damaged and refers to one does not show it as its key's value. Those that an
//!   earlier version wrote have a pair's.

use pando_engine::mark::{MARK_BITS, with_mark};
use pando_pmem::checksum::crc32c_behind;
use pando_pmem::{Full, LINE_BYTES, Mark, Offset, Pmem, Pool, WORD_BYTES};
use pando_sync::prefetch::prefetch_lines;
use pando_sync::shim::unmodelled::{AtomicU32, Ordering};

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tree::Error;

const HEADER_BYTES: u64 = 12;

const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 30;

const _: () = assert!(
    KEY_BYTES_MAX < 1 << KEY_BITS
        && VALUE_BYTES_MAX < 1 << VALUE_BITS
        && KEY_BITS + VALUE_BITS + MARK_BITS <= 64,
    "lengths and the mark fit in a word"
);

/// Both lengths, without the mark.
const LENGTHS: u64 = (1 << (KEY_BITS + VALUE_BITS)) - 1;

/// What sets a separator's checksum apart (CR3 told-apart).
const SEPARATOR: u32 = 0x5e9a_7a70;

/// Instead of lengths, which no record has: what is damaged is the entry that refers to it.
const OF_NODE: u64 = u64::MAX;

/// Records up to this length are put together without an allocation.
const SHORT_BYTES: usize = 256;

/// What is asked for at once before a record is read, if it is longer than two lines.
const PREFETCHED_BYTES: usize = 4096;

const FLUSH: Mark = Mark("record: flush");

/// A key and a value as they lie in a record, behind room for its header.
pub(crate) struct Pair<'b> {
    bytes: &'b mut [u8],
    key_bytes: usize,
}

impl<'b> Pair<'b> {
    /// Of a key, and of a value that `push_value` puts behind it.
    pub(crate) fn new(
        out: &'b mut Vec<u8>,
        key: &[u8],
        push_value: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        out.clear();
        out.extend_from_slice(&[0; HEADER_BYTES as usize]);
        out.extend_from_slice(key);
        push_value(out);
        Self {
            bytes: out,
            key_bytes: key.len(),
        }
    }

    fn value_at(&self) -> usize {
        HEADER_BYTES as usize + self.key_bytes
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES as usize..self.value_at()]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[self.value_at()..]
    }

    /// Writes it into a block that `take` takes; where it is.
    pub(crate) fn make<M: Pmem>(
        &mut self,
        pool: &Pool<M>,
        take: impl FnOnce(u64) -> Result<Offset, Full>,
        mark: u8,
    ) -> Result<Offset, Full> {
        let at = take(self.bytes.len() as u64)?;
        write(pool, at, self.bytes, self.key_bytes, (mark, 0));
        Ok(at)
    }
}

/// Writes a record into a block that `take` takes; where it is.
pub(crate) fn make<M: Pmem>(
    pool: &Pool<M>,
    take: impl FnOnce(u64) -> Result<Offset, Full>,
    pair: (&[u8], &[u8]),
    mark: u8,
) -> Result<Offset, Full> {
    make_with(pool, take, pair, mark, 0)
}

/// The same of a separator.
pub(crate) fn make_separator<M: Pmem>(
    pool: &Pool<M>,
    take: impl FnOnce(u64) -> Result<Offset, Full>,
    key: &[u8],
) -> Result<Offset, Full> {
    make_with(pool, take, (key, b""), 0, SEPARATOR)
}

fn make_with<M: Pmem>(
    pool: &Pool<M>,
    take: impl FnOnce(u64) -> Result<Offset, Full>,
    (key, value): (&[u8], &[u8]),
    mark: u8,
    apart: u32,
) -> Result<Offset, Full> {
    let length = HEADER_BYTES as usize + key.len() + value.len();
    let at = take(length as u64)?;
    let (mut short, mut long);
    let bytes = if length <= SHORT_BYTES {
        short = [0; SHORT_BYTES];
        &mut short[..length]
    } else {
        long = vec![0; length];
        &mut long[..]
    };
    let (for_key, for_value) = bytes[HEADER_BYTES as usize..].split_at_mut(key.len());
    for_key.copy_from_slice(key);
    for_value.copy_from_slice(value);
    write(pool, at, bytes, key.len(), (mark, apart));
    Ok(at)
}

/// Writes a record, in `bytes` but for its header, into a block.
fn write<M: Pmem>(
    pool: &Pool<M>,
    at: Offset,
    bytes: &mut [u8],
    key_bytes: usize,
    (mark, apart): (u8, u32),
) {
    let (header, rest) = bytes.split_at_mut(HEADER_BYTES as usize);
    let value_bytes = rest.len() - key_bytes;
    let lengths = (key_bytes as u64) | (value_bytes as u64) << KEY_BITS;
    let head = lengths | u64::from(with_mark(0, mark)) << 32;
    let check = checksum(lengths, rest) ^ apart;
    header[..8].copy_from_slice(&head.to_le_bytes());
    header[8..].copy_from_slice(&check.to_le_bytes());
    let memory = pool.memory();
    memory.write(at, bytes);
    memory.mark(FLUSH);
    memory.flush(at, bytes.len());
}

/// Of the lengths, and what they tell of.
#[inline]
fn checksum(lengths: u64, rest: &[u8]) -> u32 {
    crc32c_behind(lengths, rest)
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
    #[inline]
    pub(crate) fn at<M: Pmem>(pool: &'p Pool<M>, at: Offset) -> Option<Self> {
        let memory = pool.memory();
        // It may be damaged. A block has two words.
        let room = memory.bytes().checked_sub(at.get())?;
        if room < 2 * WORD_BYTES || !at.get().is_multiple_of(WORD_BYTES) {
            return None;
        }
        let (head, check, mark) = match memory.halves(at) {
            Some(halves) => {
                // Relaxed: apart from the mark they are as unchanging as the rest. Half a word is
                // loaded as the mark is stored.
                let half = |index: usize| u32::from_le(halves[index].load(Ordering::Relaxed));
                let head = u64::from(half(0)) | u64::from(half(1)) << 32;
                (head, half(2), Some(&halves[1]))
            }
            None => (memory.load(at), memory.load(at.plus(8)) as u32, None),
        };
        let lengths = head & LENGTHS;
        let (key_bytes, value_bytes) = (lengths & ((1 << KEY_BITS) - 1), lengths >> KEY_BITS);
        let length = key_bytes + value_bytes;
        if HEADER_BYTES + length > room {
            return None;
        }
        // SAFETY: CR1 unchanging. Its block is handed out again only when nobody is pinned who can
        // have met it (CT3 horizon, CL2 judged-then-followed), and by the writer, which has the
        // tree for itself. The mark lies before these bytes.
        let bytes = unsafe { memory.read(at.plus(HEADER_BYTES), length as usize) };
        Some(Self {
            at,
            lengths,
            check,
            mark,
            bytes,
            key_bytes: key_bytes as usize,
        })
    }

    /// What stands for a record whose lengths reach beyond the pool: it is not whole.
    pub(crate) fn broken(at: Offset) -> Self {
        Self {
            at,
            lengths: 0,
            check: !checksum(0, b""),
            mark: None,
            bytes: b"",
            key_bytes: 0,
        }
    }

    /// What stands for the record of an entry that is damaged, in the node at `at`.
    pub(crate) fn of_damaged_node(at: Offset) -> Self {
        Self {
            lengths: OF_NODE,
            check: !checksum(OF_NODE, b""),
            ..Self::broken(at)
        }
    }

    /// What is damaged if this record is not whole.
    pub(crate) fn damage(self) -> Error {
        let at = self.at;
        if self.lengths == OF_NODE {
            Error::DamagedNode { at }
        } else {
            Error::Damaged { at }
        }
    }

    #[inline]
    pub(crate) fn key(self) -> &'p [u8] {
        &self.bytes[..self.key_bytes]
    }

    #[inline]
    pub(crate) fn value(self) -> &'p [u8] {
        &self.bytes[self.key_bytes..]
    }

    /// Where it is.
    pub(crate) fn at_offset(self) -> Offset {
        self.at
    }

    /// Where accesses are noted, in memory that lets a reader do that.
    #[inline]
    pub(crate) fn mark(self) -> Option<&'p AtomicU32> {
        self.mark
    }

    /// Asks for its first lines at once: they are in a row, but the processor's own prefetching
    /// starts slowly.
    #[inline]
    pub(crate) fn prefetch(self) {
        if self.bytes.len() > 2 * LINE_BYTES as usize {
            prefetch_lines(self.bytes.as_ptr(), self.bytes.len().min(PREFETCHED_BYTES));
        }
    }

    /// Whether it is as it was written, and a pair's.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.check == checksum(self.lengths, self.bytes)
    }

    /// Whether it is as it was written, and may be a separator's (CR3 told-apart).
    pub(crate) fn is_separator(self) -> bool {
        let of_pair = checksum(self.lengths, self.bytes);
        self.check == of_pair ^ SEPARATOR || self.check == of_pair && self.value().is_empty()
    }
}
