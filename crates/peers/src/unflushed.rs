//! Mapped memory whose flushes and fences do nothing: what durability costs is the difference.

use std::io;

use pando_pmem::{Mapped, Offset, Pmem, Words};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Unflushed(Mapped);

impl Unflushed {
    pub(crate) fn new(memory: Mapped) -> Self {
        Self(memory)
    }
}

impl Pmem for Unflushed {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    #[inline]
    fn load(&self, at: Offset) -> u64 {
        self.0.load(at)
    }

    #[inline]
    fn row(&self, at: Offset, count: usize) -> Words<'_> {
        self.0.row(at, count)
    }

    #[inline]
    fn store(&self, at: Offset, word: u64) {
        self.0.store(at, word);
    }

    #[inline]
    fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(at, current, new)
    }

    fn write(&self, at: Offset, bytes: &[u8]) {
        self.0.write(at, bytes);
    }

    #[inline]
    unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
        // SAFETY: the caller promises it.
        unsafe { self.0.read(at, length) }
    }

    fn expect_writes(&self, at: Offset, length: usize) {
        self.0.expect_writes(at, length);
    }

    fn flushes(&self) -> bool {
        false
    }

    #[inline]
    fn flush(&self, _at: Offset, _length: usize) {}

    #[inline]
    fn fence(&self) {}

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        self.0.store(at, word);
        Ok(())
    }
}
