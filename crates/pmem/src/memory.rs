//! Memory of a kind that is known when it is opened: mapped, or an ordinary file.
//!
//! Loads and stores go to the same words in both, and straight there; what differs are flushes and
//! commits, which cost one well-predicted branch more than those of [`Mapped`] or [`Filed`], or a
//! branch in all where they have nothing to do.

use std::io;

use pando_sync::shim::unmodelled::{AtomicU32, Ordering, compiler_fence};

use crate::region::Region;
use crate::{Filed, Mapped, Offset, Pmem, Wear, Words};

/// See the module's header.
#[derive(Debug)]
pub struct Memory {
    /// The words of `kind`.
    region: Region,
    /// Whether readers may store: nothing keeps anybody from it.
    lets_readers_write: bool,
    /// Whether a flush or a fence does anything, if only that it counts.
    sends: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Persistent or shared memory.
    Mapped(Mapped),
    /// An ordinary file.
    Filed(Filed),
}

impl From<Mapped> for Memory {
    fn from(memory: Mapped) -> Self {
        Self {
            // SAFETY: they live as long as what they are of, which lies beside it.
            region: unsafe { memory.region().alias() },
            lets_readers_write: memory.lets_readers_write(),
            sends: memory.sends(),
            kind: Kind::Mapped(memory),
        }
    }
}

impl From<Filed> for Memory {
    fn from(memory: Filed) -> Self {
        Self {
            // SAFETY: as above.
            region: unsafe { memory.region().alias() },
            lets_readers_write: true,
            sends: true,
            kind: Kind::Filed(memory),
        }
    }
}

/// Calls a method of whichever it is.
macro_rules! either {
    ($self:ident, $memory:ident => $call:expr) => {
        match &$self.kind {
            Kind::Mapped($memory) => $call,
            Kind::Filed($memory) => $call,
        }
    };
}

/// What does something, out of line: callers are short where it does nothing.
impl Memory {
    #[inline(never)]
    fn send(&self, at: Offset, length: usize) {
        either!(self, memory => memory.flush(at, length));
    }

    #[cold]
    fn open_window(&self) {
        either!(self, memory => memory.begin_writes());
    }

    #[cold]
    fn close_window(&self) {
        either!(self, memory => memory.end_writes());
    }
}

impl Pmem for Memory {
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

    #[inline]
    unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
        // SAFETY: the caller promises it.
        unsafe { self.region.read(at, length) }
    }

    #[inline]
    fn halves(&self, at: Offset) -> Option<&[AtomicU32; 4]> {
        self.lets_readers_write.then(|| self.region.halves(at))
    }

    fn flushes(&self) -> bool {
        either!(self, memory => memory.flushes())
    }

    #[inline]
    fn flush(&self, at: Offset, length: usize) {
        if self.sends {
            self.send(at, length);
        }
    }

    #[inline]
    fn fence(&self) {
        if !self.sends {
            // As `Flush::Never` has it.
            return compiler_fence(Ordering::SeqCst);
        }
        either!(self, memory => memory.fence());
    }

    fn wear(&self) -> Wear {
        either!(self, memory => memory.wear())
    }

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        either!(self, memory => memory.commit(at, word))
    }

    fn expect_writes(&self, at: Offset, length: usize) {
        either!(self, memory => memory.expect_writes(at, length));
    }

    #[inline]
    fn begin_writes(&self) {
        if !self.lets_readers_write {
            self.open_window();
        }
    }

    #[inline]
    fn end_writes(&self) {
        if !self.lets_readers_write {
            self.close_window();
        }
    }
}
