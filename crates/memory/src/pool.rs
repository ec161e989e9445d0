//! Per-session memory pools carved from 2 MiB chunks on huge pages.
//!
//! Follows Masstree §6.2 (the allocator "Flow" with superpages) in spirit. Each session allocates
//! from its own free lists by size class, so allocation takes no lock. Blocks that another session
//! frees go onto that session's lists, and full lists travel through a central depot in batches.
//! Chunks are requested as huge pages. Blocks above [`BLOCK_BYTES_MAX`] come from the program's
//! allocator.
//!
//! Memory can be reused when sizes change: a chunk is cut into slabs (`slab`), each of one class
//! while one of its blocks is in use and of any class afterwards. Free slabs beyond a few return to
//! the system (`arena`). Owners of blocks can empty slabs that are partly free (`emptying`).
//!
//! With the feature `program-allocator` every block is above the largest class. `pando-bench
//! allocators` compares that with the pools (docs/BENCHMARKS.md says why they stay), and an address
//! sanitizer can guard it. Then P1 speaks of callers only, P3 and P4 of nothing, and no memory is
//! emptied.
//!
//! | field | writer | lock or ordering | readers |
//! |---|---|---|---|
//! | `Pool` | its session | none needed | the same |
//! | `Arena` | all pools | see `arena` | pools, gauges |
//! | `Depot` | pools with too many or too few blocks | one mutex per class | the same |
//! | slab headers | their class's depot | see `slab` | pools, as hints |
//!
//! Invariants:
//! - **P1 one-holder** A block belongs to exactly one of: a caller, a pool's free list, the depot,
//!   its slab's free list. A free block holds the link to the next one at offset 8, nothing else.
//! - **P2 alignment** A block of a class whose size is a multiple of 64 is aligned to 64 bytes,
//!   every other one to 8 (multiples of 16, and blocks above the classes, to 16).
//! - **P3 chunks-stay-mapped** Memory of chunks stays mapped until the arena is dropped, even after
//!   it was returned to the system (then it reads as zero), so a stale optimistic read can never
//!   fault.
//! - **P4** A slab has a class while one of its blocks is outside its own free list.
//!
//! Deliberately absent: NUMA placement, moving blocks (their owners do), a thread of its own
//! ([`Pool::tend`] is called now and then).

mod arena;
mod chain;
mod chunk;
mod class;
mod depot;
mod emptying;
mod slab;

use crate::count_elsewhere;
use std::alloc::Layout;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use arena::{Arena, ArenaUsage};
pub(crate) use chunk::Mapping;
pub use chunk::Pages;
pub use class::BLOCK_BYTES_MAX;
pub use emptying::Need;

use arena::{Counters, lock};
use chain::Chain;
use chunk::Chunk;
use class::{CLASS_COUNT, POOLED_BYTES_MAX, bytes_of_class, class_of_bytes};
use depot::{PoolId, Supply, cut};
use slab::{SLAB_BYTES, SlabRef};

/// Fills freed memory in debug builds.
const POISON_BYTE: u8 = 0xde;

/// The shortest run of blocks that a pool takes from a slab; runs double, up to a slab.
const RUN_BYTES_MIN: usize = 4 * 1024;

/// Blocks that travel between a pool and the depot at once, and their bytes. A pool keeps less than
/// two such batches of a class to itself, so what it keeps is negligible.
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
    BLOCK_BYTES_MAX <= RUN_BYTES_MIN && RUN_BYTES_MIN <= SLAB_BYTES,
    "a run holds at least one block"
);

/// Whether a block is in memory that is being emptied, so that its owner should move or free it.
///
/// # Safety
/// `block` came from [`Pool::allocate`] with the same `bytes` and was not freed.
#[inline]
#[must_use]
pub unsafe fn is_emptying(block: NonNull<u8>, bytes: usize) -> bool {
    if bytes > POOLED_BYTES_MAX {
        return false;
    }
    // SAFETY: blocks of classes lie in chunks.
    unsafe { SlabRef::of_block(block.as_ptr()) }.is_emptying()
}

/// Prefetches the line of the block that is allocated next, for writing. Where threads replace the
/// same values, blocks that share a line end up in different pools, and another core has it.
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
    run_bytes: usize,
}

impl Local {
    const EMPTY: Self = Self {
        free: Chain::EMPTY,
        bump: ptr::null_mut(),
        end: ptr::null_mut(),
        run_bytes: RUN_BYTES_MIN,
    };
}

/// One session's blocks by size class.
pub struct Pool {
    arena: Arc<Arena>,
    /// This pool's view: some slabs are being emptied.
    emptying: bool,
    /// Bytes held by callers when this pool was last tended; unchanged means it is idle.
    tended_bytes: i64,
    /// It was already idle before that.
    settled: bool,
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
        if bytes > POOLED_BYTES_MAX {
            return self.allocate_external(bytes);
        }
        let class = class_of_bytes(bytes);
        let class_bytes = bytes_of_class(class);
        Counters::add(&self.counters.live_bytes, class_bytes as i64);
        count_elsewhere(class_bytes as isize);
        let local = &mut self.classes[class];
        if let Some(block) = local.free.pop() {
            prefetch_to_write(local.free.first());
            return block;
        }
        let block = local.bump;
        if (local.end as usize) - (block as usize) >= class_bytes {
            local.bump = block.wrapping_add(class_bytes);
            return NonNull::new(block).expect("a slab is never at address 0");
        }
        self.refill(class)
    }

    fn id(&self) -> PoolId {
        PoolId(Arc::as_ptr(&self.counters).addr())
    }

    #[cold]
    fn refill(&mut self, class: usize) -> NonNull<u8> {
        let (id, class_bytes) = (self.id(), bytes_of_class(class));
        let local = &mut self.classes[class];
        let arena = &self.arena;
        // P1: whatever is overwritten below would have no holder.
        assert!(local.free.count == 0 && local.bump == local.end);
        let supply = loop {
            let supply = lock(&arena.depots[class]).get(class, local.run_bytes, arena, id);
            match supply {
                Some(supply) => break supply,
                None => arena.grow(),
            }
        };
        match supply {
            Supply::Blocks(chain) => {
                local.free = chain;
                local.free.pop().expect("a supply is not empty")
            }
            Supply::Run(start, end) => {
                assert!(end.addr() >= start.addr() + class_bytes);
                local.run_bytes = (local.run_bytes * 2).min(SLAB_BYTES);
                local.bump = start.wrapping_add(class_bytes);
                local.end = end;
                NonNull::new(start).expect("a slab is never at address 0")
            }
        }
    }

    /// A block for content of memory that is being emptied: only if one is free elsewhere in memory
    /// that already serves its class, so that moving takes no new memory. O(1).
    pub fn allocate_elsewhere(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        const LOOKS_MAX: usize = 2 * BATCH_COUNT;
        if bytes > POOLED_BYTES_MAX {
            return None;
        }
        let class = class_of_bytes(bytes);
        for _ in 0..LOOKS_MAX {
            let Some(block) = self.classes[class].free.pop() else {
                let mut depot = lock(&self.arena.depots[class]);
                if !depot.has_blocks() {
                    return None;
                }
                match depot.get(class, 0, &self.arena, self.id()) {
                    Some(Supply::Blocks(chain)) => self.classes[class].free = chain,
                    Some(Supply::Run(..)) => unreachable!("the depot has blocks, under its lock"),
                    None => {}
                }
                continue;
            };
            // SAFETY: just popped, so it is a block of this class of a chunk.
            if !unsafe { is_emptying(block, bytes) } {
                let class_bytes = bytes_of_class(class);
                Counters::add(&self.counters.live_blocks, 1);
                Counters::add(&self.counters.live_bytes, class_bytes as i64);
                count_elsewhere(class_bytes as isize);
                return Some(block);
            }
            self.hand_back(block, class);
        }
        None
    }

    #[cold]
    fn allocate_external(&mut self, bytes: usize) -> NonNull<u8> {
        Counters::add(&self.counters.live_bytes, bytes as i64);
        Counters::add(&self.counters.external_bytes, bytes as i64);
        let layout = external_layout(bytes);
        // SAFETY: the layout's size is not zero.
        let block = unsafe { std::alloc::alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Frees a block, whichever pool of the arena it came from. O(1).
    ///
    /// # Safety
    /// `block` came from [`Self::allocate`] of a pool of this arena with the same `bytes`, nobody
    /// uses it any more, and it is freed once.
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>, bytes: usize) {
        Counters::add(&self.counters.live_blocks, -1);
        if bytes > POOLED_BYTES_MAX {
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
        // SAFETY: blocks of classes lie in chunks.
        let slab = || unsafe { SlabRef::of_block(block.as_ptr()) };
        // P4: the class is fixed while the caller has the block.
        debug_assert_eq!(
            slab().class(),
            Some(class),
            "freed by another arena or length"
        );
        if cfg!(debug_assertions) {
            // SAFETY: the block is that long and the caller gave it up.
            unsafe { ptr::write_bytes(block.as_ptr(), POISON_BYTE, class_bytes) };
        }
        // SAFETY: it is a block of a class that has just come back.
        if self.emptying && unsafe { is_emptying(block, bytes) } {
            return self.hand_back(block, class);
        }
        let local = &mut self.classes[class];
        // SAFETY: the caller gave it up; every class has at least 16 bytes.
        unsafe { local.free.push(block.as_ptr()) };
        let batch = batch_count(class_bytes);
        if local.free.count >= 2 * batch {
            let chain = local.free.split_off(batch);
            let whole = !self.arena.emptying.load(Ordering::Relaxed);
            lock(&self.arena.depots[class]).put(
                chain,
                class,
                &self.arena,
                whole.then_some(self.id()),
            );
        }
    }

    /// Returns a free block to its slab.
    #[cold]
    fn hand_back(&mut self, block: NonNull<u8>, class: usize) {
        let mut chain = Chain::EMPTY;
        // SAFETY: the caller has taken it from wherever it was.
        unsafe { chain.push(block.as_ptr()) };
        lock(&self.arena.depots[class]).put(chain, class, &self.arena, None);
    }

    /// Returns all free blocks that this pool keeps to their slabs.
    pub fn settle(&mut self) {
        for (class, local) in self.classes.iter_mut().enumerate() {
            if local.free.count == 0 && local.bump == local.end {
                continue;
            }
            let rest = cut(local.bump, local.end, class);
            (local.bump, local.end) = (ptr::null_mut(), ptr::null_mut());
            let free = std::mem::replace(&mut local.free, Chain::EMPTY);
            if rest.count + free.count > 0 {
                let mut depot = lock(&self.arena.depots[class]);
                depot.put(rest, class, &self.arena, None);
                depot.put(free, class, &self.arena, None);
            }
        }
    }

    /// Maintenance for each session to call now and then, and a few times when it becomes idle.
    /// Updates what is counted as used, collects free blocks where many are scattered, and returns
    /// unneeded memory to the system. Returns how many pieces that was, some of a chunk each.
    /// O(pools), a few system calls.
    pub fn tend(&mut self) -> usize {
        self.emptying = self.arena.emptying.load(Ordering::Relaxed);
        let live_bytes = self.counters.live_bytes.load(Ordering::Relaxed);
        let rests = self.tended_bytes == live_bytes;
        self.tended_bytes = live_bytes;
        let scattered = self.arena.is_scattered();
        if scattered || (rests && !self.settled) {
            self.settle();
        }
        self.settled = rests;
        if scattered {
            self.arena.settle();
        }
        self.arena.tend()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.settle();
        self.arena.absorb(&self.counters);
    }
}

/// A block from the program's allocator. Above every class it has only `malloc`'s own alignment:
/// more would need `posix_memalign`, and next to such blocks the GNU C library leaves holes of
/// little use. A block that a class could hold, in a build without pools, is aligned as in the
/// class (P2).
fn external_layout(bytes: usize) -> Layout {
    let align = match bytes_of_class(class_of_bytes(bytes)) {
        _ if bytes > BLOCK_BYTES_MAX => 16,
        class_bytes if class_bytes % 64 == 0 => 64,
        class_bytes if class_bytes % 16 == 0 => 16,
        _ => 8,
    };
    let layout = Layout::from_size_align(bytes.max(1), align);
    layout.expect("block lengths are bounded by the engine's limits")
}

#[cfg(all(test, not(feature = "program-allocator")))]
mod tests;
