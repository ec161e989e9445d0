//! A pool: memory with a header, a committed epoch and words for the engine.
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 2 × 4096 | the header, twice (`header.rs`) |
//! | 8192 | 64 | the newest committed epoch |
//! | 8256 | 64 | the mark: no epoch above it has stored anything |
//! | 8320 | 64 | the generation of the header (PH2 generation-known) |
//! | 8384 | 64 × 8 | the engine's own words, [`Pool::root`] |
//! | 8896 | 64 | the number of chunks in use (`allocator/`) |
//! | 12288 | 32 each | descriptors of chunks |
//! | next page | | chunks |
//!
//! An epoch in the head is one word: 44 bits, and above them 20 bits of their checksum.
//!
//! - **PL1 marked-first** An epoch is at most the durable mark before its first store
//!   ([`Pool::begin`]). What a crash leaves of lost epochs thus lies in (committed, mark].
//! - **PL2 void-for-ever** Opening makes that range durable as void before it returns, and goes on
//!   above the mark: the number of a lost epoch never comes to mean another one.
//! - **PL3 seen** What an epoch did is to be seen if it is committed and not void. That is all of
//!   recovery: it takes the same time for a pool of any size, and can be repeated.
//! - **PL4 one-commit** An epoch is committed by one word, after everything it flushed
//!   (PM4 commit-last).
//!
//! - **PL5 crowded** A pool whose header has no room for the range of an opening knows it only in
//!   memory: the committed epoch and the mark still say it. No epoch begins until the ranges are
//!   forgotten, so the next opening finds what this one did.
//!
//! Opening changes nothing where there is nothing to take back, so that a crash in it, or a second
//! opening, finds what the first one found.

mod header;
#[cfg(test)]
mod tests;
mod voids;

use std::fmt;

use pando_sync::LogEpoch;
use pando_sync::shim::unmodelled::{AtomicU64, Ordering};
use pando_sync::shim::{Mutex, lock};

pub use self::header::{FORMAT, VoidRange};
use self::header::{Header, SLOT_BYTES, is_chunk_size};
use self::voids::{Voids, joined};
use crate::checksum::crc32c_words;
use crate::limits::{
    CHUNK_BYTES, EPOCH_BITS, EPOCHS_MARKED, POOL_BYTES_MAX, POOL_BYTES_MIN, POOL_UNIT_BYTES, ROOTS,
    VOID_RANGES_MAX,
};
use crate::{LINE_BYTES, Mark, Offset, Pmem, PoolError, WORD_BYTES, Writes};

const COMMITTED_AT: Offset = Offset::new(2 * SLOT_BYTES);
const MARK_AT: Offset = COMMITTED_AT.plus(LINE_BYTES);
const GENERATION_AT: Offset = MARK_AT.plus(LINE_BYTES);
const ROOTS_AT: Offset = GENERATION_AT.plus(LINE_BYTES);
pub(crate) const CHUNKS_AT: Offset = ROOTS_AT.plus(ROOTS * WORD_BYTES);
pub(crate) const DESCRIPTORS_AT: Offset = Offset::new(12288);

const _: () = assert!(
    CHUNKS_AT.get() + LINE_BYTES <= DESCRIPTORS_AT.get() && DESCRIPTORS_AT.get() < POOL_BYTES_MIN,
    "the parts of the head do not overlap"
);

const HEADER_FLUSH: Mark = Mark("pool: flush of the header");
const HEAD_FLUSH: Mark = Mark("pool: flush of the head");

/// The sizes that a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a node of the engine; the pool only remembers them.
    pub node_bytes: u32,
    /// Bytes of a chunk, the unit in which blocks of one size are made.
    pub chunk_bytes: u32,
}

impl Shape {
    /// The usual chunks, and nodes of so many bytes.
    #[must_use]
    pub const fn with_nodes(node_bytes: u32) -> Self {
        Self {
            node_bytes,
            chunk_bytes: CHUNK_BYTES,
        }
    }
}

/// A pool in some memory.
pub struct Pool<M> {
    memory: M,
    /// The newest header that is durable; of a crowded pool, with the range that is not (PL5).
    header: Mutex<Header>,
    voids: Voids,
    committed: AtomicU64,
    mark: AtomicU64,
    first_epoch: LogEpoch,
}

impl<M: Pmem> fmt::Debug for Pool<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("memory", &self.memory)
            .field("committed", &self.committed())
            .finish_non_exhaustive()
    }
}

/// Refuses what can be no size of a pool.
pub fn check_size(bytes: u64) -> Result<(), PoolError> {
    let is_size = bytes.is_multiple_of(POOL_UNIT_BYTES);
    if is_size && (POOL_BYTES_MIN..=POOL_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(PoolError::NoSize {
        bytes,
        unit: POOL_UNIT_BYTES,
        min: POOL_BYTES_MIN,
        max: POOL_BYTES_MAX,
    })
}

impl<M: Pmem> Pool<M> {
    /// Makes a pool of zeroed memory, or of what a creation left that did not end.
    pub fn create(memory: M, shape: Shape) -> Result<Self, PoolError> {
        check_size(memory.bytes())?;
        let chunk_bytes = shape.chunk_bytes;
        assert!(is_chunk_size(chunk_bytes), "chunks of {chunk_bytes} bytes");
        let window = Writes::new(&memory);
        for at in [COMMITTED_AT, MARK_AT] {
            memory.store(at, sealed(LogEpoch::NONE));
        }
        drop(window);
        memory.mark(HEAD_FLUSH);
        memory.flush(COMMITTED_AT, 2 * LINE_BYTES as usize);
        let header = Header {
            node_bytes: shape.node_bytes,
            chunk_bytes: shape.chunk_bytes,
            generation: 1,
            identity: fastrand::u128(..).to_le_bytes(),
            bytes: memory.bytes(),
            voids: Vec::new(),
        };
        header.write(&memory)?;
        Self::open(memory, shape.node_bytes)
    }

    /// Opens the pool that the memory holds, and takes back what was not committed (PL2). If it is
    /// crowded ([`Pool::is_crowded`]), it is to be cleaned up first.
    pub fn open(memory: M, node_bytes: u32) -> Result<Self, PoolError> {
        check_size(memory.bytes())?;
        let header = Header::read(&memory, memory.load(GENERATION_AT))?;
        let found = memory.bytes();
        let pool = header.bytes;
        if found < pool {
            return Err(PoolError::Truncated { pool, found });
        } else if found > pool {
            return Err(PoolError::OtherSize {
                pool,
                wanted: found,
            });
        } else if header.node_bytes != node_bytes {
            return Err(PoolError::OtherNodes {
                pool: header.node_bytes,
                wanted: node_bytes,
            });
        }
        let damaged = |at, what| PoolError::Damaged { at, what };
        let unsealed = |at| unsealed(memory.load(at));
        let committed =
            unsealed(COMMITTED_AT).ok_or_else(|| damaged(COMMITTED_AT, "the committed epoch"))?;
        let mark = unsealed(MARK_AT)
            .filter(|mark| *mark >= committed)
            .ok_or_else(|| damaged(MARK_AT, "the mark of epochs"))?;
        let generation = header.generation;
        let pool = Self {
            voids: Voids::new(&header.voids),
            header: Mutex::new(header),
            committed: AtomicU64::new(committed.0),
            mark: AtomicU64::new(mark.0),
            first_epoch: mark.next(),
            memory,
        };
        pool.know(generation)?;
        if committed < mark {
            pool.take_back(VoidRange {
                first: committed.next(),
                last: mark,
            })?;
        }
        Ok(pool)
    }

    /// Makes the range of an opening void (PL2), or notes that there is no room for it (PL5).
    fn take_back(&self, range: VoidRange) -> Result<(), PoolError> {
        let added = self.add_void(range);
        if matches!(added, Err(PoolError::TooManyVoids { .. })) {
            let mut header = lock(&self.header);
            header.voids = joined(&header.voids, range);
            self.voids.replace(&header.voids);
            return Ok(());
        }
        added
    }

    /// Whether there are more void ranges than the header has room for: no epoch begins until they
    /// are forgotten (PL5 crowded).
    pub fn is_crowded(&self) -> bool {
        lock(&self.header).voids.len() > VOID_RANGES_MAX
    }

    /// The memory it lies in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Its sizes.
    pub fn shape(&self) -> Shape {
        let header = lock(&self.header);
        Shape {
            node_bytes: header.node_bytes,
            chunk_bytes: header.chunk_bytes,
        }
    }

    /// What tells it from every other pool; a copy has the same.
    pub fn identity(&self) -> [u8; 16] {
        lock(&self.header).identity
    }

    /// The position of one of the engine's own words.
    pub fn root(&self, index: u64) -> Offset {
        assert!(index < ROOTS, "root {index}");
        ROOTS_AT.plus(index * WORD_BYTES)
    }

    /// The newest epoch that is committed.
    #[inline]
    pub fn committed(&self) -> LogEpoch {
        // Acquire: pairs with `commit`.
        LogEpoch(self.committed.load(Ordering::Acquire))
    }

    /// The first epoch after this opening.
    pub fn first_epoch(&self) -> LogEpoch {
        self.first_epoch
    }

    /// Whether what an epoch did never happened.
    #[inline]
    pub fn is_void(&self, epoch: LogEpoch) -> bool {
        self.voids.contain(epoch)
    }

    /// Whether what an epoch did is to be seen whatever happens (PL3).
    #[inline]
    pub fn is_seen(&self, epoch: LogEpoch) -> bool {
        epoch <= self.committed() && !self.is_void(epoch)
    }

    /// Whether an epoch may begin without a store (PL1).
    #[inline]
    pub fn is_marked(&self, epoch: LogEpoch) -> bool {
        // Relaxed: as in `begin`.
        epoch.0 <= self.mark.load(Ordering::Relaxed)
    }

    /// Lets an epoch begin: nothing is stored in it before this returned (PL1).
    pub fn begin(&self, epoch: LogEpoch) -> Result<(), PoolError> {
        // Relaxed: whoever raised the mark holds the lock below until it is durable, and tells
        // nobody before.
        if self.is_marked(epoch) {
            return Ok(());
        }
        assert!(!self.is_void(epoch), "epoch {epoch} is void (PL2)");
        let header = lock(&self.header);
        if self.is_marked(epoch) {
            return Ok(());
        }
        let ranges = header.voids.len();
        if ranges > VOID_RANGES_MAX {
            return Err(PoolError::TooManyVoids { ranges });
        }
        let last = (1 << EPOCH_BITS) - 1;
        if epoch.0 > last {
            return Err(PoolError::EpochsExhausted { epoch });
        }
        let mark = LogEpoch((epoch.0 + EPOCHS_MARKED - 1).min(last));
        self.memory.commit(MARK_AT, sealed(mark))?;
        self.mark.store(mark.0, Ordering::Relaxed);
        Ok(())
    }

    /// Commits an epoch and those before it (PL4). The caller has flushed all that they stored.
    pub fn commit(&self, epoch: LogEpoch) -> Result<(), PoolError> {
        assert!(
            self.committed() < epoch && epoch.0 <= self.mark.load(Ordering::Relaxed),
            "epoch {epoch} was not begun, or is committed"
        );
        self.memory.commit(COMMITTED_AT, sealed(epoch))?;
        // Release: who sees the epoch sees what it did.
        self.committed.store(epoch.0, Ordering::Release);
        Ok(())
    }

    /// Lowers the mark to the newest epoch that has stored anything, before a pool is closed in
    /// peace: the next opening has fewer numbers to give up, or none. No epoch begins afterwards.
    pub fn rest(&self, newest: LogEpoch) -> Result<(), PoolError> {
        let header = lock(&self.header);
        let void = header
            .voids
            .last()
            .map_or(LogEpoch::NONE, |range| range.last);
        // PL2 void-for-ever: the next opening goes on above all of them.
        let newest = newest.max(self.committed()).max(void);
        if newest.0 < self.mark.load(Ordering::Relaxed) {
            self.memory.commit(MARK_AT, sealed(newest))?;
            self.mark.store(newest.0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes everything after an epoch void, up to the mark; returns the epoch to go on with.
    /// Nobody reads or writes meanwhile.
    pub fn roll_back(&self, to: LogEpoch) -> Result<LogEpoch, PoolError> {
        let last = LogEpoch(self.mark.load(Ordering::Relaxed));
        assert!(to <= self.committed(), "epoch {to} is not committed");
        if to < last {
            let first = to.next();
            self.add_void(VoidRange { first, last })?;
        }
        Ok(last.next())
    }

    /// The void ranges, in order.
    pub fn voids(&self) -> Vec<VoidRange> {
        lock(&self.header).voids.clone()
    }

    /// Forgets the ranges up to an epoch, of which nothing is left in the pool. Nobody reads or
    /// writes meanwhile.
    pub fn forget_voids(&self, until: LogEpoch) -> Result<(), PoolError> {
        let mut header = lock(&self.header);
        let mut next = header.clone();
        next.voids.retain(|range| range.last > until);
        self.replace_header(&mut header, next)
    }

    fn add_void(&self, range: VoidRange) -> Result<(), PoolError> {
        let mut header = lock(&self.header);
        let mut next = header.clone();
        next.voids = joined(&header.voids, range);
        if next.voids.len() > VOID_RANGES_MAX {
            let ranges = header.voids.len();
            return Err(PoolError::TooManyVoids { ranges });
        }
        self.replace_header(&mut header, next)
    }

    /// Makes another header durable, unless nothing changed.
    fn replace_header(&self, header: &mut Header, mut next: Header) -> Result<(), PoolError> {
        if next.voids == header.voids {
            return Ok(());
        }
        next.generation += 1;
        next.write(&self.memory)?;
        self.voids.replace(&next.voids);
        *header = next;
        self.know(header.generation)
    }

    /// Notes the generation of a header that is durable (PH2 generation-known).
    fn know(&self, generation: u64) -> Result<(), PoolError> {
        if self.memory.load(GENERATION_AT) < generation {
            self.memory.commit(GENERATION_AT, generation)?;
        }
        Ok(())
    }
}

/// Makes a header's checksum right again after one of its words was changed, for the fuzz target.
pub(crate) fn reseal(memory: &impl Pmem, slot: u64, change: u64) {
    header::reseal(memory, slot, change);
}

/// An epoch with its checksum, as a word.
#[inline]
#[must_use]
pub fn sealed(epoch: LogEpoch) -> u64 {
    let check = crc32c_words(epoch.0, []);
    epoch.0 | u64::from(check) << EPOCH_BITS
}

/// The epoch of a word, if its checksum is right.
#[inline]
#[must_use]
pub fn unsealed(word: u64) -> Option<LogEpoch> {
    let epoch = epoch_bits(word);
    (sealed(epoch) == word).then_some(epoch)
}

/// The epoch of a word, right or not.
#[inline]
#[must_use]
pub fn epoch_bits(word: u64) -> LogEpoch {
    LogEpoch(word & ((1 << EPOCH_BITS) - 1))
}
