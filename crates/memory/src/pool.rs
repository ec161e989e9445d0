//! Per-session memory pools carved from 2 MiB chunks on huge pages.
//!
//! Follows Masstree §6.2 (the allocator "Flow" with superpages) in spirit: each session allocates
//! from free lists of its own by size class, so that allocation takes no lock; what another
//! session frees goes onto that session's lists, and full lists travel through a central depot in
//! batches. Chunks are asked for as huge pages. Blocks above [`BLOCK_BYTES_MAX`] go to the
//! program's allocator.
//!
//! Compiled with `--cfg pando_global_allocator`, every block comes from the program's allocator and
//! is counted as ever: what `pando-bench allocators` sets beside the pools (docs/BENCHMARKS.md says
//! why they stay), and what an address sanitizer can guard. There P1 speaks of callers only, and P3
//! of nothing.
//!
//! | field | writer | lock or ordering | readers |
//! |---|---|---|---|
//! | `Arena::chunks` | any pool that needs a slab | mutex | drop |
//! | `Arena::depot[class]` | pools with too many or too few blocks | one mutex per class | pools |
//! | `Counters` | their pool | `Relaxed` stores | gauges |
//!
//! Invariants:
//! - **P1** A block belongs to exactly one of: a caller, a pool's free list, the depot. A pool's or
//!   the depot's block holds the link to the next one at offset 8, nothing else.
//! - **P2** A block of a class whose size is a multiple of 64 is aligned to 64 bytes, every other
//!   one to 8 (multiples of 16 to 16).
//! - **P3** Memory of chunks stays mapped until the arena is dropped, so that a stale optimistic
//!   read can never fault.
//!
//! Deliberately absent: returning chunks to the system while the arena lives, NUMA placement.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks are aligned to 8 bytes (P2)"
)]

mod chunk;
mod class;

use crate::count_elsewhere;
use std::alloc::Layout;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use chunk::Mapping;
pub use chunk::Pages;
pub use class::BLOCK_BYTES_MAX;

use chunk::Chunk;
use class::{CLASS_COUNT, bytes_of_class, class_of_bytes};

/// What freed memory is filled with in debug builds.
const POISON_BYTE: u8 = 0xde;

/// Smallest and largest slab that a pool takes from a chunk for one class; slabs double.
const SLAB_BYTES_MIN: usize = 4 * 1024;
const SLAB_BYTES_MAX: usize = 64 * 1024;

/// Blocks that travel between a pool and the depot at once, and their bytes: a pool keeps less than
/// two such batches of a class to itself, so that what it keeps does not count for much.
const BATCH_COUNT: usize = 64;
/// See [`BATCH_COUNT`].
const BATCH_BYTES: usize = 8 * 1024;

/// Blocks of a batch of this class.
const fn batch_count(class_bytes: usize) -> usize {
    let count = BATCH_BYTES / class_bytes;
    if count > BATCH_COUNT {
        BATCH_COUNT
    } else {
        count
    }
}

const _: () = assert!(batch_count(BLOCK_BYTES_MAX) > 0);

const _: () = assert!(
    BLOCK_BYTES_MAX <= SLAB_BYTES_MIN,
    "a slab holds at least one block"
);

/// Offset of the link in a free block: past the first word, which debug builds poison.
const LINK_OFFSET: usize = 8;

/// A chain of free blocks of one class.
#[derive(Clone, Copy)]
struct Chain {
    first: *mut u8,
    count: usize,
}

// SAFETY: a chain owns its blocks (P1).
unsafe impl Send for Chain {}

impl Chain {
    const EMPTY: Self = Self {
        first: ptr::null_mut(),
        count: 0,
    };

    /// # Safety
    /// `block` is free, at least 16 bytes long, and on no other chain (P1).
    #[inline]
    unsafe fn push(&mut self, block: *mut u8) {
        // SAFETY: the block has room for a link at offset 8.
        let link = unsafe { block.add(LINK_OFFSET) };
        // SAFETY: aligned to 8 (P2) and owned by the chain from now on.
        unsafe { link.cast::<*mut u8>().write(self.first) };
        self.first = block;
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first)?;
        // SAFETY: a block on the chain holds a link at offset 8 (P1).
        let link = unsafe { block.as_ptr().add(LINK_OFFSET) };
        // SAFETY: as above.
        self.first = unsafe { link.cast::<*mut u8>().read() };
        self.count -= 1;
        Some(block)
    }

    /// Cuts `count` blocks off the front.
    fn split_off(&mut self, count: usize) -> Self {
        let mut front = Self::EMPTY;
        while front.count < count {
            let Some(block) = self.pop() else { break };
            // SAFETY: just popped, so on no chain.
            unsafe { front.push(block.as_ptr()) };
        }
        front
    }
}

#[derive(Default)]
struct Counters {
    live_bytes: AtomicI64,
    live_blocks: AtomicI64,
    external_bytes: AtomicI64,
}

impl Counters {
    /// Only the owning pool writes, so that a load and a store suffice.
    #[inline]
    fn add(counter: &AtomicI64, delta: i64) {
        counter.store(counter.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }
}

struct Chunks {
    all: Vec<Chunk>,
    /// Mapped ahead of their use.
    spare: Vec<Chunk>,
    next: *mut u8,
    end: *mut u8,
    counters: Vec<Arc<Counters>>,
    /// What pools that are gone had counted.
    left: Counters,
}

// SAFETY: the pointers lead into the chunks, which the arena owns.
unsafe impl Send for Chunks {}

/// What an arena holds, in bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    /// Taken from the system for chunks.
    pub mapped_bytes: u64,
    /// In blocks that callers hold, rounded up to their size classes; large blocks included.
    pub live_bytes: u64,
    /// Of these, in blocks above [`BLOCK_BYTES_MAX`].
    pub external_bytes: u64,
    /// Blocks that callers hold.
    pub live_blocks: u64,
}

/// The memory that pools share.
pub struct Arena {
    pages: Pages,
    chunks: Mutex<Chunks>,
    depot: Box<[Mutex<Vec<Chain>>]>,
    mapped_bytes: AtomicU64,
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Arena").field(&self.usage()).finish()
    }
}

fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves these lists whole: each change is a push or a pop.
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
                spare: Vec::new(),
                next: ptr::null_mut(),
                end: ptr::null_mut(),
                counters: Vec::new(),
                left: Counters::default(),
            }),
            depot: (0..CLASS_COUNT).map(|_| Mutex::default()).collect(),
            mapped_bytes: AtomicU64::new(0),
        })
    }

    /// A pool for one session.
    #[must_use]
    pub fn pool(self: &Arc<Self>) -> Pool {
        let counters = Arc::new(Counters::default());
        relock(&self.chunks).counters.push(Arc::clone(&counters));
        Pool {
            arena: Arc::clone(self),
            classes: [const { Local::EMPTY }; CLASS_COUNT],
            counters,
        }
    }

    /// What the arena holds. O(pools).
    #[must_use]
    pub fn usage(&self) -> ArenaUsage {
        let chunks = relock(&self.chunks);
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

    /// Maps chunks of `bytes` bytes in all and touches their pages, so that what is allocated from
    /// them later waits for no page fault. O(bytes).
    pub fn reserve(&self, bytes: usize) {
        for _ in 0..bytes.div_ceil(Chunk::BYTES) {
            let chunk = self.map_chunk();
            chunk.touch();
            relock(&self.chunks).spare.push(chunk);
        }
    }

    fn map_chunk(&self) -> Chunk {
        self.mapped_bytes
            .fetch_add(Chunk::BYTES as u64, Ordering::Relaxed);
        Chunk::map(self.pages)
    }

    /// Cuts a slab off the current chunk, or off a new one.
    fn slab(&self, bytes: usize) -> (*mut u8, *mut u8) {
        let mut chunks = relock(&self.chunks);
        if (chunks.end as usize) - (chunks.next as usize) < bytes {
            let spare = chunks.spare.pop();
            let chunk = spare.unwrap_or_else(|| self.map_chunk());
            chunks.next = chunk.start().as_ptr();
            chunks.end = chunks.next.wrapping_add(Chunk::BYTES);
            chunks.all.push(chunk);
        }
        let start = chunks.next;
        chunks.next = start.wrapping_add(bytes);
        (start, chunks.next)
    }
}

/// Asks for the line of the block that is allocated next, to be written: where threads replace the
/// same values, blocks that share a line come to lie in different pools, and another core has it.
#[inline]
fn prefetch_to_write(block: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it faults for no address and changes nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) block, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = block;
}

struct Local {
    free: Chain,
    bump: *mut u8,
    end: *mut u8,
    slab_bytes: usize,
}

impl Local {
    const EMPTY: Self = Self {
        free: Chain::EMPTY,
        bump: ptr::null_mut(),
        end: ptr::null_mut(),
        slab_bytes: SLAB_BYTES_MIN,
    };
}

/// One session's blocks by size class.
pub struct Pool {
    arena: Arc<Arena>,
    classes: [Local; CLASS_COUNT],
    counters: Arc<Counters>,
}

// SAFETY: a pool owns its free blocks (P1), and its chunks live as long as the arena it holds.
unsafe impl Send for Pool {}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// The memory behind this pool.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// A block of at least `bytes` bytes, not zeroed, aligned as P2 says. O(1).
    #[inline]
    pub fn allocate(&mut self, bytes: usize) -> NonNull<u8> {
        Counters::add(&self.counters.live_blocks, 1);
        if bytes > BLOCK_BYTES_MAX {
            return self.allocate_external(bytes);
        }
        let class = class_of_bytes(bytes);
        let class_bytes = bytes_of_class(class);
        Counters::add(&self.counters.live_bytes, class_bytes as i64);
        count_elsewhere(class_bytes as isize);
        let local = &mut self.classes[class];
        if cfg!(pando_global_allocator) {
            return allocate_from_program(program_layout(bytes));
        }
        if let Some(block) = local.free.pop() {
            prefetch_to_write(local.free.first);
            return block;
        }
        let block = local.bump;
        if (local.end as usize) - (block as usize) >= class_bytes {
            local.bump = block.wrapping_add(class_bytes);
            return NonNull::new(block).expect("a slab is never at address 0");
        }
        self.refill(class)
    }

    #[cold]
    fn refill(&mut self, class: usize) -> NonNull<u8> {
        let local = &mut self.classes[class];
        if let Some(chain) = relock(&self.arena.depot[class]).pop() {
            local.free = chain;
            return local.free.pop().expect("the depot keeps no empty chain");
        }
        let class_bytes = bytes_of_class(class);
        let (start, end) = self.arena.slab(local.slab_bytes);
        local.slab_bytes = (local.slab_bytes * 2).min(SLAB_BYTES_MAX);
        local.bump = start.wrapping_add(class_bytes);
        local.end = end;
        NonNull::new(start).expect("a slab is never at address 0")
    }

    #[cold]
    fn allocate_external(&mut self, bytes: usize) -> NonNull<u8> {
        Counters::add(&self.counters.live_bytes, bytes as i64);
        Counters::add(&self.counters.external_bytes, bytes as i64);
        allocate_from_program(external_layout(bytes))
    }

    /// Takes a block back, whichever pool of the arena it came from. O(1).
    ///
    /// # Safety
    /// `block` came from [`Self::allocate`] of a pool of this arena with the same `bytes`, nobody
    /// uses it any more, and it is freed once.
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>, bytes: usize) {
        Counters::add(&self.counters.live_blocks, -1);
        if bytes > BLOCK_BYTES_MAX {
            Counters::add(&self.counters.live_bytes, -(bytes as i64));
            Counters::add(&self.counters.external_bytes, -(bytes as i64));
            // SAFETY: `allocate` took it from there with this layout.
            unsafe { std::alloc::dealloc(block.as_ptr(), external_layout(bytes)) };
            return;
        }
        let class = class_of_bytes(bytes);
        let class_bytes = bytes_of_class(class);
        Counters::add(&self.counters.live_bytes, -(class_bytes as i64));
        count_elsewhere(-(class_bytes as isize));
        if cfg!(debug_assertions) {
            let held_bytes = if cfg!(pando_global_allocator) {
                bytes
            } else {
                class_bytes
            };
            // SAFETY: the block is that long and the caller gave it up.
            unsafe { ptr::write_bytes(block.as_ptr(), POISON_BYTE, held_bytes) };
        }
        if cfg!(pando_global_allocator) {
            // SAFETY: `allocate` took it from there with this layout.
            unsafe { std::alloc::dealloc(block.as_ptr(), program_layout(bytes)) };
            return;
        }
        let local = &mut self.classes[class];
        // SAFETY: the caller gave it up; every class has at least 16 bytes.
        unsafe { local.free.push(block.as_ptr()) };
        let batch = batch_count(class_bytes);
        if local.free.count >= 2 * batch {
            let chain = local.free.split_off(batch);
            relock(&self.arena.depot[class]).push(chain);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (class, local) in self.classes.iter_mut().enumerate() {
            let class_bytes = bytes_of_class(class);
            while (local.end as usize) - (local.bump as usize) >= class_bytes {
                // SAFETY: the rest of the slab was never handed out.
                unsafe { local.free.push(local.bump) };
                local.bump = local.bump.wrapping_add(class_bytes);
            }
            if local.free.count > 0 {
                relock(&self.arena.depot[class]).push(local.free);
            }
        }
        let mut chunks = relock(&self.arena.chunks);
        chunks
            .counters
            .retain(|counters| !Arc::ptr_eq(counters, &self.counters));
        let parts: [fn(&Counters) -> &AtomicI64; 3] =
            [|c| &c.live_bytes, |c| &c.live_blocks, |c| &c.external_bytes];
        for of in parts {
            Counters::add(of(&chunks.left), of(&self.counters).load(Ordering::Relaxed));
        }
    }
}

/// A block from the program's allocator, whose layout has a size above zero.
fn allocate_from_program(layout: Layout) -> NonNull<u8> {
    debug_assert!(layout.size() > 0, "blocks have a length");
    // SAFETY: the layout's size is not zero.
    let block = unsafe { std::alloc::alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// A block of a class when it comes from the program's allocator: as long as was asked for, since
/// that allocator has classes of its own, and aligned as P2 says.
#[inline]
fn program_layout(bytes: usize) -> Layout {
    let align = match bytes_of_class(class_of_bytes(bytes)) {
        class_bytes if class_bytes % 64 == 0 => 64,
        class_bytes if class_bytes % 16 == 0 => 16,
        _ => 8,
    };
    Layout::from_size_align(bytes.max(1), align).expect("a block is small")
}

fn external_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 64).expect("block lengths are bounded by the engine's limits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_are_used_again_and_counted_to_zero() {
        let arena = Arena::new(Pages::Small);
        let mut pool = arena.pool();
        let mut held = Vec::new();
        for bytes in (1..=BLOCK_BYTES_MAX + 1).step_by(37) {
            for _ in 0..3 {
                let block = pool.allocate(bytes);
                // SAFETY: the block is that long.
                unsafe { ptr::write_bytes(block.as_ptr(), 0xff, bytes) };
                held.push((block, bytes));
            }
        }
        assert_eq!(arena.usage().live_blocks, held.len() as u64);
        let mapped_bytes = arena.usage().mapped_bytes;
        for round in 0..2 {
            for (block, bytes) in held.drain(..) {
                // SAFETY: allocated with this length and freed once.
                unsafe { pool.free(block, bytes) };
            }
            assert_eq!(
                arena.usage(),
                ArenaUsage {
                    mapped_bytes,
                    ..ArenaUsage::default()
                }
            );
            if round == 0 {
                for bytes in (1..=BLOCK_BYTES_MAX).step_by(37) {
                    held.push((pool.allocate(bytes), bytes));
                }
                assert_eq!(
                    arena.usage().mapped_bytes,
                    mapped_bytes,
                    "blocks are used again"
                );
            }
        }
    }

    #[test]
    fn reserved_chunks_are_used_before_new_ones() {
        let arena = Arena::new(Pages::Small);
        arena.reserve(Chunk::BYTES + 1);
        let mapped_bytes = arena.usage().mapped_bytes;
        assert_eq!(mapped_bytes, 2 * Chunk::BYTES as u64);
        let take = |bytes: usize| {
            for _ in 0..bytes / SLAB_BYTES_MAX {
                arena.slab(SLAB_BYTES_MAX);
            }
            arena.usage().mapped_bytes
        };
        assert_eq!(take(2 * Chunk::BYTES), mapped_bytes);
        assert!(take(SLAB_BYTES_MAX) > mapped_bytes);
    }

    #[test]
    fn blocks_of_line_multiples_lie_on_lines() {
        let arena = Arena::new(Pages::Small);
        let mut pool = arena.pool();
        for bytes in [64, 128, 320, 1024] {
            for _ in 0..70 {
                let address = pool.allocate(bytes).as_ptr() as usize;
                assert_eq!(address % 64, 0, "P2: {bytes}");
            }
        }
    }

    #[cfg(not(pando_global_allocator))]
    #[test]
    fn blocks_freed_by_another_session_come_back_through_the_depot() {
        let arena = Arena::new(Pages::Small);
        let (mut first, mut second) = (arena.pool(), arena.pool());
        let blocks: Vec<_> = (0..1000).map(|_| first.allocate(24)).collect();
        for block in &blocks {
            // SAFETY: allocated with this length and freed once.
            unsafe { second.free(*block, 24) };
        }
        drop(second);
        let mapped_bytes = arena.usage().mapped_bytes;
        let mut again: Vec<_> = (0..1000).map(|_| first.allocate(24)).collect();
        again.sort_unstable();
        again.dedup();
        assert_eq!(
            (again.len(), arena.usage().mapped_bytes),
            (1000, mapped_bytes)
        );
        assert!(
            blocks
                .iter()
                .filter(|block| again.binary_search(block).is_ok())
                .count()
                > 800
        );
    }
}
