//! The memory that pools share: chunks, their free slabs, and the count of used memory.
//!
//! | field | writer | lock or ordering | readers |
//! |---|---|---|---|
//! | `chunks` | pools that need a slab or return one, [`Arena::tend`] | mutex | the same, drop |
//! | `depots[class]` | pools with too many or too few blocks | one mutex per class, taken before that of `chunks` | pools |
//! | `excess_bytes` | any counting thread, under `chunks` | `Relaxed` | eviction |
//! | `emptying`, `round` | the thread that begins or ends a round | `round`'s mutex; the flag `Relaxed` | pools, as a hint |
//! | `counters` | their pool | `Relaxed` stores | [`Arena::usage`] |
//!
//! **What counts as used.** Blocks that callers hold, plus the rest of the resident memory (free
//! blocks, free slabs, parts of chunks not yet cut) above an *allowance* ([`allowance_bytes`]). So
//! keeping [`crate::used_bytes`] below a limit keeps the resident memory below it as well, to
//! within the allowance.
//!
//! **What is returned.** Free slabs beyond a few ([`kept_slabs`]) return to the system, whole
//! chunks first. They stay mapped (P3 chunks-stay-mapped).

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunk::{Chunk, Pages};
use super::class::CLASS_COUNT;
use super::depot::Depot;
use super::emptying::Round;
use super::slab::{SLAB_BYTES, SLABS, SlabRef, home_bit};
use super::{Local, Pool};
use crate::count_elsewhere;

/// What a pool counts; only the owning pool writes.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) live_bytes: AtomicI64,
    pub(super) live_blocks: AtomicI64,
    pub(super) external_bytes: AtomicI64,
}

impl Counters {
    /// Only the owning pool writes, so a load and a store suffice.
    #[inline]
    pub(super) fn add(counter: &AtomicI64, delta: i64) {
        counter.store(counter.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }
}

/// One chunk, and which of its slabs are free; slabs that are being released are not.
struct Cut {
    chunk: Chunk,
    free: u64,
    /// Of these, those whose memory was returned to the system.
    released: u64,
    /// It was split into ordinary pages.
    broken: bool,
}

impl Cut {
    /// Requests a huge page again, as nothing of the chunk is with the system any more.
    fn mend(&mut self, pages: Pages) {
        if pages == Pages::Huge {
            Chunk::advise_huge(self.chunk.start());
        }
        self.broken = false;
    }
}

struct Chunks {
    all: Vec<Cut>,
    /// No earlier chunk has a free slab that is resident, or any free slab.
    resident_from: usize,
    free_from: usize,
    /// Free slabs that are resident, and those that are not.
    resident_free: usize,
    released: usize,
    /// Resident free slabs kept on request.
    reserved: usize,
    counters: Vec<Arc<Counters>>,
    /// The counts of pools that were dropped.
    left: Counters,
}

/// What an arena holds, in bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    /// Taken from the system for chunks, and not returned.
    pub mapped_bytes: u64,
    /// In blocks that callers hold, rounded up to their size classes; large blocks included.
    pub live_bytes: u64,
    /// Of these, in blocks above [`super::BLOCK_BYTES_MAX`].
    pub external_bytes: u64,
    /// Blocks that callers hold.
    pub live_blocks: u64,
}

impl ArenaUsage {
    /// Resident bytes of chunks outside blocks that callers hold.
    pub(super) fn idle_bytes(&self) -> u64 {
        (self.mapped_bytes + self.external_bytes).saturating_sub(self.live_bytes)
    }
}

/// Idle bytes that do not count as used: a chunk and a half, which leaves room beside the free
/// slabs that are kept, and a thirty-second of what is mapped.
pub(super) fn allowance_bytes(mapped_bytes: u64) -> u64 {
    (Chunk::BYTES + Chunk::BYTES / 2) as u64 + mapped_bytes / 32
}

/// Fewer free bytes in slabs are tolerated.
const SCATTERED_BYTES_MIN: u64 = 1 << 20;

/// Fewer free slabs of a chunk are not worth splitting its huge page.
const PARTS_MIN: usize = SLABS / 8;

/// Free slabs that are kept while this many slabs have a class: nearly a chunk, or each chunk would
/// be split while it is new.
fn kept_slabs(used: usize) -> usize {
    SLABS - PARTS_MIN + used / 64
}

/// The memory that pools share.
pub struct Arena {
    pages: Pages,
    chunks: Mutex<Chunks>,
    pub(super) depots: Box<[Mutex<Depot>]>,
    /// Some slabs are being emptied.
    pub(super) emptying: AtomicBool,
    pub(super) round: Mutex<Round>,
    mapped_bytes: AtomicU64,
    /// Counted bytes beyond the blocks that callers hold.
    excess_bytes: AtomicUsize,
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Arena").field(&self.usage()).finish()
    }
}

/// Like that of `sync`, on which this crate does not depend: a panic elsewhere leaves these lists
/// consistent, since each change is a push or a pop.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    /// An arena without memory whose chunks will be on `pages`.
    #[must_use]
    pub fn new(pages: Pages) -> Arc<Self> {
        Arc::new(Self {
            pages,
            chunks: Mutex::new(Chunks {
                all: Vec::new(),
                resident_from: 0,
                free_from: 0,
                resident_free: 0,
                released: 0,
                reserved: 0,
                counters: Vec::new(),
                left: Counters::default(),
            }),
            depots: (0..CLASS_COUNT).map(|_| Mutex::default()).collect(),
            emptying: AtomicBool::new(false),
            round: Mutex::default(),
            mapped_bytes: AtomicU64::new(0),
            excess_bytes: AtomicUsize::new(0),
        })
    }

    /// A pool for one session.
    #[must_use]
    pub fn pool(self: &Arc<Self>) -> Pool {
        let counters = Arc::new(Counters::default());
        lock(&self.chunks).counters.push(Arc::clone(&counters));
        Pool {
            arena: Arc::clone(self),
            emptying: false,
            tended_bytes: 0,
            settled: false,
            classes: [const { Local::EMPTY }; CLASS_COUNT],
            counters,
        }
    }

    /// Takes over the counts of a pool that is being dropped.
    pub(super) fn absorb(&self, counters: &Arc<Counters>) {
        let mut chunks = lock(&self.chunks);
        let pools = chunks.counters.len();
        chunks
            .counters
            .retain(|other| !Arc::ptr_eq(other, counters));
        assert_eq!(chunks.counters.len() + 1, pools, "absorbed once");
        let parts: [fn(&Counters) -> &AtomicI64; 3] =
            [|c| &c.live_bytes, |c| &c.live_blocks, |c| &c.external_bytes];
        for of in parts {
            Counters::add(of(&chunks.left), of(counters).load(Ordering::Relaxed));
        }
    }

    /// What the arena holds. O(pools).
    #[must_use]
    pub fn usage(&self) -> ArenaUsage {
        self.usage_of(&lock(&self.chunks))
    }

    fn usage_of(&self, chunks: &Chunks) -> ArenaUsage {
        let sum = |of: fn(&Counters) -> &AtomicI64| {
            let held = chunks
                .counters
                .iter()
                .map(|c| of(c).load(Ordering::Relaxed));
            let total = held.sum::<i64>() + of(&chunks.left).load(Ordering::Relaxed);
            // Counters are read one after another: a block that moved between may count as -1.
            total.max(0) as u64
        };
        ArenaUsage {
            mapped_bytes: self.mapped_bytes.load(Ordering::Relaxed),
            live_bytes: sum(|c| &c.live_bytes),
            external_bytes: sum(|c| &c.external_bytes),
            live_blocks: sum(|c| &c.live_blocks),
        }
    }

    /// Maps `bytes` bytes of chunks and touches their pages, so that later allocations wait for no
    /// page fault; they are kept. O(bytes).
    pub fn reserve(&self, bytes: usize) {
        for _ in 0..bytes.div_ceil(Chunk::BYTES) {
            let chunk = Chunk::map(self.pages);
            chunk.touch();
            let mut chunks = lock(&self.chunks);
            chunks.reserved += SLABS;
            self.add_chunk(&mut chunks, chunk);
        }
    }

    fn add_chunk(&self, chunks: &mut Chunks, chunk: Chunk) {
        self.mapped_bytes
            .fetch_add(Chunk::BYTES as u64, Ordering::Relaxed);
        // SAFETY: a chunk's header has a first slab.
        let first = unsafe { SlabRef::of_chunk(chunk.start().as_ptr(), 0) };
        first.set_chunk_index(chunks.all.len());
        chunks.all.push(Cut {
            chunk,
            free: u64::MAX,
            released: 0,
            broken: false,
        });
        chunks.resident_free += SLABS;
    }

    /// A slab without a class that nobody uses; none before [`Self::grow`] has added a chunk.
    pub(super) fn take_slab(&self) -> Option<SlabRef> {
        let mut chunks = lock(&self.chunks);
        let slab = chunks.take_resident();
        slab.or_else(|| self.take_released(&mut chunks))
    }

    /// Adds a chunk. The caller holds no lock: the first touch of a huge page takes a millisecond
    /// or several, for which other pools would wait. Pools that arrive together add one each.
    pub(super) fn grow(&self) {
        let chunk = Chunk::map(self.pages);
        chunk.touch_first();
        let mut chunks = lock(&self.chunks);
        self.add_chunk(&mut chunks, chunk);
        // Often enough, and rare.
        self.count_all(&chunks);
    }

    /// A free slab whose memory was returned to the system. A chunk that was returned entirely is
    /// taken back whole.
    fn take_released(&self, chunks: &mut Chunks) -> Option<SlabRef> {
        let from = chunks.free_from;
        let mut cuts = chunks.all[from..].iter();
        let found = cuts.position(|cut| cut.free & cut.released != 0);
        let index = from + found.unwrap_or(chunks.all.len() - from);
        chunks.free_from = index;
        let cut = chunks.all.get_mut(index)?;
        let start = cut.chunk.start().as_ptr();
        let taken_back = if cut.released == u64::MAX {
            cut.released = 0;
            if cut.broken {
                cut.mend(self.pages);
            }
            // SAFETY: a chunk's header has a first slab.
            unsafe { SlabRef::of_chunk(start, 0) }.set_chunk_index(index);
            SLABS
        } else {
            let back = cut.free & cut.released;
            cut.released &= !(back & back.wrapping_neg());
            if cut.broken && cut.released == 0 {
                // The system joins its pages into a huge one when it next looks.
                cut.mend(self.pages);
            }
            1
        };
        chunks.released -= taken_back;
        chunks.resident_free += taken_back;
        chunks.resident_from = chunks.resident_from.min(index);
        let bytes = (taken_back * SLAB_BYTES) as u64;
        self.mapped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count_all(chunks);
        chunks.take_resident()
    }

    /// Takes back a slab that has no class any more.
    pub(super) fn return_slab(&self, slab: SlabRef) {
        let mut chunks = lock(&self.chunks);
        let index = slab.chunk_index();
        let bit = 1 << slab.index();
        assert!(chunks.all[index].free & bit == 0, "returned twice");
        chunks.all[index].free |= bit;
        chunks.resident_free += 1;
        chunks.resident_from = chunks.resident_from.min(index);
        chunks.free_from = chunks.free_from.min(index);
    }

    /// Counts what is used and returns free slabs to the system, a few chunks at most; returns how
    /// many pieces.
    pub(super) fn tend(&self) -> usize {
        const PIECES_MAX: usize = 8;
        self.count();
        let mut pieces = 0;
        while pieces < PIECES_MAX && self.release_some() {
            pieces += 1;
        }
        if pieces > 0 {
            self.count();
        }
        pieces
    }

    /// Updates the count; returns the usage.
    pub(super) fn count(&self) -> ArenaUsage {
        self.count_all(&lock(&self.chunks))
    }

    fn count_all(&self, chunks: &Chunks) -> ArenaUsage {
        debug_assert!(chunks.add_up());
        let usage = self.usage_of(chunks);
        let reserved = (chunks.reserved * SLAB_BYTES) as u64;
        let allowance = allowance_bytes(usage.mapped_bytes) + reserved;
        let excess = usage.idle_bytes().saturating_sub(allowance) as usize;
        // Relaxed: the lock of `chunks` orders writers, and others read a statistic.
        let before = self.excess_bytes.swap(excess, Ordering::Relaxed);
        count_elsewhere(excess as isize - before as isize);
        usage
    }

    /// Bytes counted as used beyond the blocks that callers hold, as of the last count: idle bytes
    /// above the allowance. One load.
    #[must_use]
    pub fn excess_bytes(&self) -> usize {
        self.excess_bytes.load(Ordering::Relaxed)
    }

    /// Returns the free slabs of one chunk to the system, if there are more than are kept.
    fn release_some(&self) -> bool {
        let mut chunks = lock(&self.chunks);
        let used = chunks.all.len() * SLABS - chunks.resident_free - chunks.released;
        let kept = kept_slabs(used).max(chunks.reserved);
        let spare = chunks.resident_free.saturating_sub(kept);
        let Some((index, slabs)) = chunks.to_release(spare) else {
            return false;
        };
        let cut = &mut chunks.all[index];
        // Nobody takes these slabs meanwhile, nor any of the chunk when its header goes.
        let goes_whole = slabs & home_bit(cut.chunk.start()) != 0;
        let hidden = if goes_whole { cut.free } else { slabs };
        cut.free &= !hidden;
        cut.broken |= slabs != u64::MAX;
        let start = cut.chunk.start();
        let count = slabs.count_ones() as usize;
        chunks.resident_free -= count;
        drop(chunks);
        release_slabs(start, slabs, self.pages);
        let mut chunks = lock(&self.chunks);
        let cut = &mut chunks.all[index];
        assert!(cut.free & hidden == 0 && cut.released & slabs == 0);
        cut.free |= hidden;
        cut.released |= slabs;
        chunks.released += count;
        chunks.free_from = chunks.free_from.min(index);
        self.mapped_bytes
            .fetch_sub((count * SLAB_BYTES) as u64, Ordering::Relaxed);
        true
    }

    /// How many chunks are split into ordinary pages.
    #[cfg(test)]
    pub(super) fn split_chunks(&self) -> usize {
        let chunks = lock(&self.chunks);
        chunks.all.iter().filter(|cut| cut.broken).count()
    }

    /// Whether many blocks are free outside free slabs.
    pub(super) fn is_scattered(&self) -> bool {
        let chunks = lock(&self.chunks);
        let usage = self.usage_of(&chunks);
        let free_slabs = (chunks.resident_free * SLAB_BYTES) as u64;
        let scattered = usage.idle_bytes().saturating_sub(free_slabs);
        scattered > (usage.mapped_bytes / 64).max(SCATTERED_BYTES_MIN)
    }

    /// Returns the free blocks of all depots to their slabs.
    pub(super) fn settle(&self) {
        for (class, depot) in self.depots.iter().enumerate() {
            lock(depot).settle(class, self);
        }
    }

    /// Every slab with a class in up to `count` chunks from number `from` on, as far as is known
    /// without locking depots, and the number of chunks. O(slabs of these chunks).
    pub(super) fn slabs(&self, from: usize, count: usize) -> (Vec<SlabRef>, usize) {
        let chunks = lock(&self.chunks);
        let mut slabs = Vec::new();
        for cut in chunks.all.iter().skip(from).take(count) {
            let mut used = !cut.free;
            while used != 0 {
                let index = used.trailing_zeros() as usize;
                used &= used - 1;
                // SAFETY: the index is below the number of bits.
                slabs.push(unsafe { SlabRef::of_chunk(cut.chunk.start().as_ptr(), index) });
            }
        }
        (slabs, chunks.all.len())
    }
}

impl Chunks {
    /// Whether the counts of free slabs are those of the chunks. O(chunks).
    fn add_up(&self) -> bool {
        let sum = |of: fn(&Cut) -> u64| {
            let counts = self.all.iter().map(|cut| of(cut).count_ones() as usize);
            counts.sum::<usize>()
        };
        sum(|cut| cut.free & !cut.released) == self.resident_free
            && sum(|cut| cut.released) == self.released
    }

    /// A free resident slab, from the first chunk that has one.
    fn take_resident(&mut self) -> Option<SlabRef> {
        if self.resident_free == 0 {
            return None;
        }
        let from = self.resident_from;
        let mut cuts = self.all[from..].iter();
        let found = cuts.position(|cut| cut.free & !cut.released != 0);
        debug_assert!(found.is_some(), "one is counted, and none is before");
        let index = from + found?;
        self.resident_from = index;
        self.resident_free -= 1;
        let cut = &mut self.all[index];
        let slab = (cut.free & !cut.released).trailing_zeros();
        cut.free &= !(1 << slab);
        // SAFETY: the index is that of a bit.
        Some(unsafe { SlabRef::of_chunk(cut.chunk.start().as_ptr(), slab as usize) })
    }

    /// A chunk with resident free slabs, at most `spare` of which are to be returned, and these:
    /// all of a chunk, or else many of the one that has most.
    fn to_release(&self, spare: usize) -> Option<(usize, u64)> {
        if spare < PARTS_MIN {
            return None;
        }
        let mut most = (0, 0_u64);
        for (index, cut) in self.all.iter().enumerate().rev() {
            let slabs = cut.free & !cut.released;
            if slabs == u64::MAX && spare >= SLABS {
                return Some((index, slabs));
            }
            // The slab with a chunk's header is returned only with the last of the chunk.
            let slabs = match cut.free {
                u64::MAX => slabs,
                _ => slabs & !home_bit(cut.chunk.start()),
            };
            if slabs.count_ones() > most.1.count_ones() {
                most = (index, slabs);
            }
        }
        let (index, mut slabs) = most;
        let cut = self.all.get(index)?;
        if cut.free == u64::MAX && (slabs.count_ones() as usize) > spare {
            // Part of an entirely free chunk: its header stays.
            slabs &= !home_bit(cut.chunk.start());
        }
        while slabs.count_ones() as usize > spare {
            slabs &= slabs - 1;
        }
        (slabs.count_ones() as usize >= PARTS_MIN).then_some((index, slabs))
    }
}

/// Returns the memory of some slabs of a chunk to the system.
fn release_slabs(chunk: NonNull<u8>, slabs: u64, pages: Pages) {
    let mut left = slabs;
    while left != 0 {
        let first = left.trailing_zeros();
        let count = (left >> first).trailing_ones();
        left &= !(u64::MAX >> (u64::BITS - count) << first);
        let (first, count) = (first as usize, count as usize);
        Chunk::release(chunk, first * SLAB_BYTES, count * SLAB_BYTES, pages);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        count_elsewhere(-(self.excess_bytes() as isize));
    }
}
