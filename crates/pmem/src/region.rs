//! Words of memory, wherever they come from: the one place where positions become pointers.
//!
//! - **PW1** Everything a region touches lies in its words: every position is checked against
//!   their number before a pointer is made of it.
//! - **PW2** Shared words are read and written as atomics only. The one exception is the borrow of
//!   [`Region::read`], whose caller promises that nobody writes meanwhile.
//! - **PW3 mapped-twice** Where the words have two addresses, loads use one and stores the other.
//!   The processor knows them as the same words. So must the compiler: both pointers come from the
//!   system, so it cannot tell them apart, and moves no load of one over a store to the other.

use std::ptr::NonNull;
use std::slice;

use pando_sync::prefetch::prefetch_lines;
use pando_sync::shim::step;
use pando_sync::shim::unmodelled::{AtomicU32, AtomicU64, Ordering};

use crate::{LINE_BYTES, Offset, WORD_BYTES, Words};

/// Words that somebody else owns and keeps until the region is gone.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<AtomicU64>,
    /// Where the same words are stored to (PW3).
    stores: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: a region is shared words, which are touched as atomics only (PW2).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The region of `bytes` bytes at `start`, whole lines.
    ///
    /// # Safety
    /// The bytes are initialised, aligned to a word, readable and writable as long as the region
    /// lives, and nobody touches them except by regions.
    pub(crate) unsafe fn new(start: NonNull<u8>, bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(LINE_BYTES), "memory of whole lines");
        assert!(
            start.cast::<AtomicU64>().is_aligned(),
            "memory of whole words"
        );
        Self {
            start: start.cast(),
            stores: start.cast(),
            words: usize::try_from(bytes / WORD_BYTES).expect("memory that can be mapped"),
        }
    }

    /// The same, and stores go to `stores`, another address of the same bytes (PW3).
    ///
    /// # Safety
    /// As [`Region::new`] of both addresses; those of `start` need not be writable.
    pub(crate) unsafe fn with_stores(start: NonNull<u8>, stores: NonNull<u8>, bytes: u64) -> Self {
        assert!(
            stores.cast::<AtomicU64>().is_aligned(),
            "memory of whole words"
        );
        // SAFETY: the caller promises it.
        let region = unsafe { Self::new(start, bytes) };
        Self {
            stores: stores.cast(),
            ..region
        }
    }

    /// The same words once more.
    ///
    /// # Safety
    /// As [`Region::new`]: the words outlive both.
    pub(crate) unsafe fn alias(&self) -> Self {
        Self { ..*self }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.words as u64 * WORD_BYTES
    }

    /// Panics unless the range lies in the region (PW1).
    #[inline]
    pub(crate) fn check(&self, at: Offset, length: usize) {
        let bytes = self.bytes();
        if at.get() > bytes || length as u64 > bytes - at.get() {
            refuse(at, length, bytes);
        }
    }

    /// The first byte of a range.
    #[inline]
    pub(crate) fn pointer(&self, at: Offset, length: usize) -> NonNull<u8> {
        self.check(at, length);
        // SAFETY: the position lies in the region, or at its end (PW1).
        unsafe { self.start.cast::<u8>().add(at.get() as usize) }
    }

    /// The words from `at` on, to be loaded.
    #[inline]
    fn words(&self, at: Offset, count: usize) -> &[AtomicU64] {
        self.words_from(self.start, at, count)
    }

    /// The same to be stored to.
    #[inline]
    fn words_stored(&self, at: Offset, count: usize) -> &[AtomicU64] {
        self.words_from(self.stores, at, count)
    }

    #[inline]
    fn words_from(&self, start: NonNull<AtomicU64>, at: Offset, count: usize) -> &[AtomicU64] {
        let length = count * WORD_BYTES as usize;
        if !at.get().is_multiple_of(WORD_BYTES) {
            misplaced(at);
        }
        self.check(at, length);
        // SAFETY: the position lies in the region, or at its end (PW1).
        let first = unsafe { start.add((at.get() / WORD_BYTES) as usize) };
        // SAFETY: these words lie in the region (PW1), which lives as long as `self`; they are
        // atomics.
        unsafe { slice::from_raw_parts(first.as_ptr(), count) }
    }

    #[inline]
    pub(crate) fn load(&self, at: Offset) -> u64 {
        step();
        // Acquire: pairs with the release of `store` and `compare_exchange`.
        u64::from_le(self.words(at, 1)[0].load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn row(&self, at: Offset, count: usize) -> Words<'_> {
        Words(self.words(at, count))
    }

    #[inline]
    pub(crate) fn prefetch(&self, at: Offset, length: usize) {
        let start: *const u8 = self.start.cast::<u8>().as_ptr();
        prefetch_lines(start.wrapping_add(at.get() as usize), length);
    }

    #[inline]
    pub(crate) fn store(&self, at: Offset, word: u64) {
        step();
        // Release: whoever loads the word sees what it points to.
        self.words_stored(at, 1)[0].store(word.to_le(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
        let word = &self.words_stored(at, 1)[0];
        step();
        // As `load` and `store`.
        word.compare_exchange(
            current.to_le(),
            new.to_le(),
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .map(u64::from_le)
        .map_err(u64::from_le)
    }

    /// Writes from the beginning of a word on; the rest of the last word becomes 0.
    pub(crate) fn write(&self, at: Offset, bytes: &[u8]) {
        let words = self.words_stored(at, bytes.len().div_ceil(WORD_BYTES as usize));
        let (whole, rest) = bytes.as_chunks();
        for (word, bytes) in words.iter().zip(whole) {
            // Relaxed: whoever publishes the space releases it.
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(last) = words.get(whole.len()) {
            last.store(u64::from_ne_bytes(padded(rest)), Ordering::Relaxed);
        }
    }

    /// Two words in halves.
    #[inline]
    pub(crate) fn halves(&self, at: Offset) -> &[AtomicU32; 4] {
        let first = self.words_stored(at, 2).as_ptr().cast::<[AtomicU32; 4]>();
        // SAFETY: they lie in the region (PW1), which lives as long as `self`, and are aligned.
        unsafe { &*first }
    }

    /// Borrows bytes.
    ///
    /// # Safety
    /// Nobody writes a word of these bytes while the borrow lives.
    pub(crate) unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
        let first = self.pointer(at, length);
        // SAFETY: the bytes lie in the region and are initialised; nobody writes them (PW2).
        unsafe { slice::from_raw_parts(first.as_ptr(), length) }
    }
}

/// Out of line, so that loads and stores are short where they are made.
#[cold]
#[inline(never)]
fn refuse(at: Offset, length: usize, bytes: u64) -> ! {
    panic!("{length} bytes at {at} of {bytes}")
}

#[cold]
#[inline(never)]
fn misplaced(at: Offset) -> ! {
    panic!("a word begins at {at}")
}

/// The words that [`Region::write`] stores.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks(WORD_BYTES as usize);
    words
        .map(|bytes| u64::from_le_bytes(padded(bytes)))
        .collect()
}

/// A word's bytes, of which `bytes` are the first.
#[inline]
fn padded(bytes: &[u8]) -> [u8; WORD_BYTES as usize] {
    if let Ok(whole) = bytes.try_into() {
        return whole;
    }
    let mut word = [0; WORD_BYTES as usize];
    word[..bytes.len()].copy_from_slice(bytes);
    word
}

/// The methods of [`Pmem`](crate::Pmem) that a backend's field `region` answers.
macro_rules! words_of_region {
    () => {
        crate::region::loads_of_region!();

        #[inline]
        fn store(&self, at: Offset, word: u64) {
            self.region.store(at, word);
        }

        #[inline]
        fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
            self.region.compare_exchange(at, current, new)
        }

        #[inline]
        fn write(&self, at: Offset, bytes: &[u8]) {
            self.region.write(at, bytes);
        }
    };
}

/// Those that change nothing.
macro_rules! loads_of_region {
    () => {
        #[inline]
        fn bytes(&self) -> u64 {
            self.region.bytes()
        }

        #[inline]
        fn load(&self, at: Offset) -> u64 {
            self.region.load(at)
        }

        #[inline]
        fn row(&self, at: Offset, count: usize) -> Words<'_> {
            self.region.row(at, count)
        }

        #[inline]
        fn prefetch(&self, at: Offset, length: usize) {
            self.region.prefetch(at, length);
        }

        #[inline]
        unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
            // SAFETY: the caller promises it.
            unsafe { self.region.read(at, length) }
        }
    };
}
pub(crate) use {loads_of_region, words_of_region};
