//! Tables: an array of buckets, and where its buckets have moved.
//!
//! The bucket of a key is its hash modulo the number of buckets, a power of two: the lowest bits of
//! the hash. So the keys of one bucket are those of two buckets of a table twice as large.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | buckets | see `bucket` | see `bucket` |
//! | `lines`, how much is used | owner of the previous table's `moving`, `Relaxed` | drop |
//! | `next` | the thread that begins a resize, holding `progress.moving`, once | everybody, `Acquire` |
//! | `progress.moving` | the thread that moves buckets, `Acquire` to take it | the same |
//! | `progress.moved` | owner of `moving`, `Relaxed` | the next owner; gauges |
//! | `published` | owner of `moving`, `Release` | operations while `next` is set, `Acquire` |
//!
//! `progress`, `published` and `lines` have lines of their own: they change while buckets move, and
//! everybody reads the other fields all the time. `published` is the value of `progress.moved` at
//! most [`PUBLISH_BUCKETS`] buckets ago. After each store every reader waits for its line, so
//! publishing every batch would cost more than finding the few buckets in between by their marks.
//!
//! Deliberately absent: the steps of a resize (see `resize`).

use std::ptr::NonNull;

use pando_memory::pool::Pages;
use pando_sync::Padded;
use pando_sync::epoch::Guard;
use pando_sync::shim::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::bucket::{Line, growth_shift};
use crate::limits::PUBLISH_BUCKETS;

/// Lines that are counted as used at a time, less than a huge page.
const COUNTED_LINES: usize = 1024;

/// The lines of a table: zeroed memory is empty lines.
#[cfg(not(loom))]
struct Lines(pando_memory::Zeroed);

#[cfg(not(loom))]
impl Lines {
    fn new(count: usize, pages: Pages) -> Self {
        Self(pando_memory::Zeroed::new(count * size_of::<Line>(), pages))
    }

    #[inline]
    fn first(&self) -> NonNull<Line> {
        self.0.start().cast()
    }

    fn count_to(&self, lines: usize) {
        self.0.count_to(lines * size_of::<Line>());
    }

    fn release(&mut self, bytes_max: usize) -> bool {
        self.0.release(bytes_max)
    }
}

/// The model checker's atomics are not zeroed memory.
#[cfg(loom)]
struct Lines(Box<[Line]>);

#[cfg(loom)]
impl Lines {
    fn new(count: usize, _: Pages) -> Self {
        Self((0..count).map(|_| Line::empty()).collect())
    }

    fn first(&self) -> NonNull<Line> {
        NonNull::from(&self.0[0])
    }

    fn count_to(&self, _: usize) {}

    fn release(&mut self, _: usize) -> bool {
        true
    }
}

/// How far the buckets of a table have moved, for the threads that move them.
pub(crate) struct Progress {
    /// Set by the thread that moves buckets; stays set when all have moved.
    moving: AtomicBool,
    /// All buckets below have moved.
    moved: AtomicUsize,
}

/// An array of buckets.
pub(crate) struct Table {
    first: NonNull<Line>,
    mask: usize,
    growth_shift: u32,
    next: AtomicPtr<Table>,
    progress: Padded<Progress>,
    /// All buckets below have moved, and perhaps a few more.
    published: Padded<AtomicUsize>,
    /// The memory behind them, which counts how much of it is used.
    lines: Padded<Lines>,
    /// Nobody may use the table any more: for tests (HR4 old-table-outlives-pins).
    #[cfg(test)]
    gone: pando_sync::shim::unmodelled::AtomicBool,
}

// SAFETY: lines are atomics, and the array is the table's own.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// A table of this many empty buckets, a power of two.
    pub(crate) fn new(buckets: usize, pages: Pages) -> Box<Self> {
        assert!(buckets.is_power_of_two(), "the mask takes low bits");
        let lines = Lines::new(buckets, pages);
        Box::new(Self {
            first: lines.first(),
            mask: buckets - 1,
            growth_shift: growth_shift(buckets),
            next: AtomicPtr::default(),
            progress: Padded(Progress {
                moving: AtomicBool::new(false),
                moved: AtomicUsize::new(0),
            }),
            published: Padded(AtomicUsize::new(0)),
            lines: Padded(lines),
            #[cfg(test)]
            gone: pando_sync::shim::unmodelled::AtomicBool::new(false),
        })
    }

    #[inline]
    pub(crate) fn mask(&self) -> usize {
        self.mask
    }

    pub(crate) fn buckets(&self) -> usize {
        self.mask + 1
    }

    /// The lowest bit of a hash that slots of this table keep for its growth (`bucket`).
    #[inline]
    pub(crate) fn growth_shift(&self) -> u32 {
        self.growth_shift
    }

    /// Bytes of the lines.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets() * size_of::<Line>()
    }

    /// A bucket by its number.
    #[inline]
    pub(crate) fn bucket(&self, index: usize) -> &Line {
        debug_assert!(index <= self.mask);
        #[cfg(test)]
        assert!(!self.gone.load(Ordering::Relaxed), "the table is in use");
        let line = self.first.as_ptr().wrapping_add(index & self.mask);
        // SAFETY: within the array, which lives as long as the table.
        unsafe { &*line }
    }

    /// The table to which the buckets move, if they do.
    #[inline]
    pub(crate) fn next<'g>(&self, _: Guard<'g>) -> Option<&'g Table> {
        // Acquire pairs with `begin`: the table is seen initialised.
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: null, or a table that lives until the pin ends (HR4 old-table-outlives-pins).
        unsafe { next.as_ref() }
    }

    /// The next table's pointer, for freeing a tree that nobody can reach.
    pub(crate) fn next_pointer(&self) -> *mut Table {
        self.next.load(Ordering::Acquire)
    }

    /// Sets the table to which the buckets move; the caller owns the right to move.
    pub(crate) fn begin(&self, next: Box<Table>) {
        // HR1 next-once.
        assert!(self.next.load(Ordering::Relaxed).is_null() && self.moved() == 0);
        let (buckets, later) = (self.buckets(), next.buckets());
        assert!(later == 2 * buckets || 2 * later == buckets);
        // Release pairs with `next`.
        self.next.store(Box::into_raw(next), Ordering::Release);
    }

    /// All buckets below this one have moved, as published to operations.
    #[inline]
    pub(crate) fn published(&self) -> usize {
        // Acquire pairs with `set_moved`: what was moved is seen in the next table.
        self.published.load(Ordering::Acquire)
    }

    /// All buckets below this one have moved, for the owner of the right to move.
    pub(crate) fn moved(&self) -> usize {
        self.progress.moved.load(Ordering::Relaxed)
    }

    pub(crate) fn set_moved(&self, moved: usize) {
        debug_assert!((self.moved()..=self.buckets()).contains(&moved));
        self.progress.moved.store(moved, Ordering::Relaxed);
        let published = self.published.load(Ordering::Relaxed);
        if moved - published >= PUBLISH_BUCKETS || moved > self.mask {
            // Release pairs with `published`. It also covers what earlier owners moved: Acquire in
            // `try_own` ordered that before.
            self.published.store(moved, Ordering::Release);
        }
    }

    /// Takes the right to move buckets, if nobody has it.
    pub(crate) fn try_own(&self) -> bool {
        // Acquire pairs with `disown`: the last owner's progress is seen.
        !self.progress.moving.load(Ordering::Relaxed)
            && !self.progress.moving.swap(true, Ordering::Acquire)
    }

    /// Releases the right to move.
    pub(crate) fn disown(&self) {
        debug_assert!(self.progress.moving.load(Ordering::Relaxed));
        // Release pairs with `try_own`.
        self.progress.moving.store(false, Ordering::Release);
    }

    /// Counts the first lines as used memory, in portions.
    pub(crate) fn count_to(&self, lines: usize) {
        self.lines.count_to(lines.next_multiple_of(COUNTED_LINES));
    }

    /// Returns a part of the memory; true when all of it is returned. Nobody uses the table any
    /// more.
    pub(crate) fn release(&mut self, bytes_max: usize) -> bool {
        self.give_up();
        self.lines.release(bytes_max)
    }

    /// From now on, tests catch any use of the table.
    pub(crate) fn give_up(&self) {
        #[cfg(test)]
        self.gone.store(true, Ordering::Relaxed);
    }
}
