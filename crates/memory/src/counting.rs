//! A global allocator that counts.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `THREAD` | its thread | none needed | the same |
//! | `USED`, `PEAK` | a thread whose own count has passed the bound, or that ends | `Relaxed` | anyone |
//!
//! Invariants:
//! - **MC1** `USED` plus the counts of all threads is the sum of what all live allocations take
//!   ([`taken_bytes`]). A thread's count stays within ±[`THREAD_BYTES_MAX`], so [`used_bytes`] is
//!   exact to within that many bytes per live thread.
//! - **MC2** Counting never allocates, so it cannot recurse.
//!
//! `Relaxed` is enough: the counts are statistics, and no other memory is read because of them.
//!
//! Deliberately absent: memory that the underlying allocator keeps free, and the rounding of
//! allocators other than the GNU C library's.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// Bytes that a thread counts, up or down, before it adds them to the total.
pub const THREAD_BYTES_MAX: usize = 64 * 1024;

static USED: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// What a thread has counted and not yet added to `USED`.
struct ThreadCount(Cell<isize>);

impl Drop for ThreadCount {
    fn drop(&mut self) {
        add_to_sum(self.0.take());
    }
}

thread_local! {
    static THREAD: ThreadCount = const { ThreadCount(Cell::new(0)) };
}

/// Bytes of all live allocations (MC1). One load.
#[must_use]
pub fn used_bytes() -> usize {
    usize::try_from(USED.load(Ordering::Relaxed)).unwrap_or(0)
}

/// The maximum of [`used_bytes`] since the start or [`reset_peak`].
#[must_use]
pub fn peak_bytes() -> usize {
    PEAK.load(Ordering::Relaxed).max(used_bytes())
}

/// Restarts [`peak_bytes`].
pub fn reset_peak() {
    PEAK.store(used_bytes(), Ordering::Relaxed);
}

/// Counts bytes taken (positive) or freed (negative) outside the global allocator, such as blocks
/// of a pool on its own pages. Cheap enough for every block.
#[inline]
pub fn count_elsewhere(bytes: isize) {
    count(bytes);
}

/// Bytes that the GNU C library's `malloc` takes for an allocation of this many bytes: a header of
/// 8, rounded up to 16, at least 32. For short allocations that is a large part.
#[inline]
const fn taken_bytes(bytes: usize) -> isize {
    let taken = bytes.saturating_add(8 + 15) & !15;
    if taken < 32 { 32 } else { taken as isize }
}

#[inline]
fn count(bytes: isize) {
    let counted = THREAD.try_with(|thread| {
        let sum = thread.0.get() + bytes;
        if sum.unsigned_abs() < THREAD_BYTES_MAX {
            thread.0.set(sum);
        } else {
            thread.0.set(0);
            add_to_sum(sum);
        }
    });
    if counted.is_err() {
        // The thread is ending and has handed its count over.
        add_to_sum(bytes);
    }
}

#[cold]
fn add_to_sum(bytes: isize) {
    let used = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if bytes > 0 {
        let used = usize::try_from(used).unwrap_or(0);
        if used > PEAK.load(Ordering::Relaxed) {
            PEAK.fetch_max(used, Ordering::Relaxed);
        }
    }
}

/// Counts what passes through the allocator `A`. Install one as the `global_allocator`.
#[derive(Debug, Default)]
pub struct Counting<A> {
    allocator: A,
}

impl<A> Counting<A> {
    /// Counts what passes through `allocator`.
    pub const fn new(allocator: A) -> Self {
        Self { allocator }
    }
}

// SAFETY: every call is passed on to `A` unchanged and its answer returned; counting does not
// allocate (MC2) and does not unwind.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is A's.
        let pointer = unsafe { self.allocator.alloc(layout) };
        if !pointer.is_null() {
            count(taken_bytes(layout.size()));
        }
        pointer
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let pointer = unsafe { self.allocator.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(taken_bytes(layout.size()));
        }
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-taken_bytes(layout.size()));
        // SAFETY: as in `alloc`; the pointer came from A.
        unsafe { self.allocator.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        let moved = unsafe { self.allocator.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            count(taken_bytes(new_size) - taken_bytes(layout.size()));
        }
        moved
    }
}
