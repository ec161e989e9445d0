//! Memory of a kind that is known when it is opened: mapped, or an ordinary file.
//!
//! Loads and stores go to the same words in both; what differs are flushes and commits. So a call
//! costs one well-predicted branch more than that of [`Mapped`] or [`Filed`].

use std::io;
use std::sync::atomic::AtomicU32;

use crate::{Filed, Mapped, Offset, Pmem, Words};

/// See the module's header.
#[derive(Debug)]
pub enum Memory {
    /// Persistent or shared memory.
    Mapped(Mapped),
    /// An ordinary file.
    Filed(Filed),
}

impl From<Mapped> for Memory {
    fn from(memory: Mapped) -> Self {
        Self::Mapped(memory)
    }
}

impl From<Filed> for Memory {
    fn from(memory: Filed) -> Self {
        Self::Filed(memory)
    }
}

/// Calls a method of whichever it is.
macro_rules! either {
    ($self:ident, $memory:ident => $call:expr) => {
        match $self {
            Self::Mapped($memory) => $call,
            Self::Filed($memory) => $call,
        }
    };
}

impl Pmem for Memory {
    fn bytes(&self) -> u64 {
        either!(self, memory => memory.bytes())
    }

    #[inline]
    fn load(&self, at: Offset) -> u64 {
        either!(self, memory => memory.load(at))
    }

    #[inline]
    fn row(&self, at: Offset, count: usize) -> Words<'_> {
        either!(self, memory => memory.row(at, count))
    }

    #[inline]
    fn prefetch(&self, at: Offset, length: usize) {
        either!(self, memory => memory.prefetch(at, length));
    }

    #[inline]
    fn store(&self, at: Offset, word: u64) {
        either!(self, memory => memory.store(at, word));
    }

    #[inline]
    fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
        either!(self, memory => memory.compare_exchange(at, current, new))
    }

    #[inline]
    fn write(&self, at: Offset, bytes: &[u8]) {
        either!(self, memory => memory.write(at, bytes));
    }

    #[inline]
    unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
        // SAFETY: the caller promises it.
        either!(self, memory => unsafe { memory.read(at, length) })
    }

    #[inline]
    fn halves(&self, at: Offset) -> Option<&[AtomicU32; 4]> {
        either!(self, memory => memory.halves(at))
    }

    #[inline]
    fn flush(&self, at: Offset, length: usize) {
        either!(self, memory => memory.flush(at, length));
    }

    #[inline]
    fn fence(&self) {
        either!(self, memory => memory.fence());
    }

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        either!(self, memory => memory.commit(at, word))
    }

    fn expect_writes(&self, at: Offset, length: usize) {
        either!(self, memory => memory.expect_writes(at, length));
    }

    #[inline]
    fn begin_writes(&self) {
        either!(self, memory => memory.begin_writes());
    }

    #[inline]
    fn end_writes(&self) {
        either!(self, memory => memory.end_writes());
    }
}
