//! What persistent memory promises, and when.
//!
//! - **PM1 any-order** A store is durable at some time between its execution and the fence after a
//!   flush of its line. Until then each line by itself may hold any prefix of the stores to it, or,
//!   where lines are not kept whole ([`Pmem::keeps_lines`]), each of its words any that was stored.
//! - **PM2 fence-orders** What was flushed before a fence is durable before any store after it.
//! - **PM3 word-whole** An aligned word of 8 bytes is never torn.
//! - **PM4 commit-last** After [`Pmem::commit`] returned, its word and everything flushed before it
//!   are durable. The word is never durable before they are.
//!
//! A backend without a memory bus below it (an ordinary file) may keep stores back until the next
//! commit. It then promises more: what is found is what the last commit left.
//!
//! Memory may be kept from stray writes. A store then needs a window of its thread, [`Writes`]; a
//! commit opens its own.
//!
//! A flush covers what its own thread stored before, and what it has seen of other threads through
//! acquiring loads. A fence orders the flushes of its own thread.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;

use pando_sync::prefetch::prefetch_lines;
use pando_sync::shim::step;
use pando_sync::shim::unmodelled::{AtomicU32, AtomicU64, Ordering};

use crate::Offset;

/// What is stored, and never torn, at once (PM3).
pub const WORD_BYTES: u64 = 8;

/// What reaches memory by itself (PM1).
pub const LINE_BYTES: u64 = 64;

/// The name of a flush or fence, for crash harnesses: `insert: the entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark(pub &'static str);

/// Memory whose bytes outlive the process, or the machine: the backend says which. Stores reach it
/// line by line, in any order, until flushed and fenced.
///
/// A range that reaches beyond the memory panics, as does the position of a word that is no
/// multiple of [`WORD_BYTES`].
pub trait Pmem: Debug + Send + Sync + 'static {
    /// How large it is, in whole lines.
    fn bytes(&self) -> u64;

    /// Loads a word; acquires what its store released.
    fn load(&self, at: Offset) -> u64;

    /// Words in a row, to be loaded: one look at their position for all of them.
    fn row(&self, at: Offset, count: usize) -> Words<'_>;

    /// Asks for the lines of a range, without waiting for them. It may lie anywhere.
    #[inline]
    fn prefetch(&self, _at: Offset, _length: usize) {}

    /// Stores a word; releases what came before it.
    fn store(&self, at: Offset, word: u64);

    /// Stores `new` if `current` is there, else returns what is; acquires and releases.
    fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64>;

    /// Writes to space that nobody else reads or writes, from the beginning of a word on. The rest
    /// of the last word becomes 0.
    fn write(&self, at: Offset, bytes: &[u8]);

    /// Borrows bytes, of any alignment.
    ///
    /// # Safety
    /// Nobody writes a word of these bytes while the borrow lives.
    unsafe fn read(&self, at: Offset, length: usize) -> &[u8];

    /// Two words as four halves, in one of which readers leave a hint: nothing flushes it, and a
    /// crash keeps it or not. None where memory is kept from stray writes. Nobody stores a whole
    /// word while they are borrowed.
    #[inline]
    fn halves(&self, _at: Offset) -> Option<&[AtomicU32; 4]> {
        None
    }

    /// Whether a flush does anything: where it does not, nobody remembers what is to be flushed.
    #[inline]
    fn flushes(&self) -> bool {
        true
    }

    /// Whether a line arrives whole, with a prefix of its stores (PM1 any-order), as it does from
    /// the caches of x86. Where it does not, what must be there before a word of the same line is
    /// flushed and fenced before that is stored.
    #[inline]
    fn keeps_lines(&self) -> bool {
        true
    }

    /// Sends the lines of a range on their way to memory.
    fn flush(&self, at: Offset, length: usize);

    /// Waits until flushed lines are there (PM2).
    fn fence(&self);

    /// What was sent to memory so far, where somebody counts it.
    fn wear(&self) -> Wear {
        Wear::default()
    }

    /// Makes everything flushed before, then this word, durable (PM4). After an error nothing is
    /// known of what came since the last success.
    fn commit(&self, at: Offset, word: u64) -> io::Result<()>;

    /// Says that a range is about to be written to for the first time: what the system has to do
    /// for that, it may do now, at once.
    #[inline]
    fn expect_writes(&self, _at: Offset, _length: usize) {}

    /// Names the next flush or fence of this thread for a crash harness; costs nothing elsewhere.
    #[inline]
    fn mark(&self, _what: Mark) {}

    /// Lets this thread store, where memory is kept from stray writes, and says whether it could
    /// already. [`Writes`] calls it.
    #[inline]
    fn begin_writes(&self) -> bool {
        true
    }

    /// Ends what a call of [`Pmem::begin_writes`] began, which returned `could_store`.
    #[inline]
    fn end_writes(&self, _could_store: bool) {}
}

/// What memory that wears out has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Lines that were sent, as often as each was.
    pub lines: u64,
    /// Bytes of them that had been stored to.
    pub bytes: u64,
}

/// Words in a row, to be loaded as [`Pmem::load`] loads one.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> Words<'a> {
    /// How many there are.
    #[inline]
    pub fn count(self) -> usize {
        self.0.len()
    }

    /// Loads the word at this index.
    #[inline]
    pub fn load(self, index: usize) -> u64 {
        step();
        // Acquire: as `Pmem::load`.
        u64::from_le(self.0[index].load(Ordering::Acquire))
    }

    /// Asks for the lines of the words, without waiting for them.
    #[inline]
    pub fn prefetch(self) {
        prefetch_lines(self.0.as_ptr().cast(), self.0.len() * WORD_BYTES as usize);
    }

    /// The words in groups of `N`, without those that make no whole one.
    #[inline]
    pub fn groups<const N: usize>(self) -> impl Iterator<Item = WordGroup<'a, N>> {
        self.0.as_chunks().0.iter().map(WordGroup)
    }
}

/// `N` words in a row.
#[derive(Clone, Copy, Debug)]
pub struct WordGroup<'a, const N: usize>(&'a [AtomicU64; N]);

impl<const N: usize> WordGroup<'_, N> {
    /// Loads the word at this index.
    #[inline]
    pub fn load(self, index: usize) -> u64 {
        step();
        // Acquire: as `Pmem::load`.
        u64::from_le(self.0[index].load(Ordering::Acquire))
    }
}

/// A window in which its thread may store. Windows of a thread may lie within each other: the
/// first one to open is the last one to close.
#[derive(Debug)]
pub struct Writes<'a, M: Pmem> {
    memory: &'a M,
    could_store: bool,
    /// It is its thread's.
    _thread: PhantomData<*const ()>,
}

impl<'a, M: Pmem> Writes<'a, M> {
    /// Opens a window, until it is dropped.
    #[inline]
    pub fn new(memory: &'a M) -> Self {
        Self {
            memory,
            could_store: memory.begin_writes(),
            _thread: PhantomData,
        }
    }
}

impl<M: Pmem> Drop for Writes<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.memory.end_writes(self.could_store);
    }
}
