//! Memory of a kind that is known when it is opened: mapped, or an ordinary file.
//!
//! Loads and stores go to the same words in both, and straight there; what differs are flushes and
//! commits, which cost one well-predicted branch more than those of [`Mapped`] or [`Filed`], or a
//! branch in all where they have nothing to do.

use std::io;

use pando_sync::shim::unmodelled::{AtomicU32, Ordering, compiler_fence};

#[cfg(feature = "simulated-memory")]
use crate::Simulated;
use crate::region::{Region, loads_of_region};
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
    /// Whether lines are kept whole.
    keeps_lines: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Persistent or shared memory.
    Mapped(Mapped),
    /// An ordinary file.
    Filed(Filed),
    /// Memory of a test, which records what is stored.
    #[cfg(feature = "simulated-memory")]
    Simulated(std::sync::Arc<Simulated>),
}

impl From<Mapped> for Memory {
    fn from(memory: Mapped) -> Self {
        Self {
            // SAFETY: they live as long as what they are of, which lies beside it.
            region: unsafe { memory.region().alias() },
            lets_readers_write: memory.lets_readers_write(),
            sends: memory.sends(),
            keeps_lines: memory.keeps_lines(),
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
            keeps_lines: true,
            kind: Kind::Filed(memory),
        }
    }
}

#[cfg(feature = "simulated-memory")]
impl From<std::sync::Arc<Simulated>> for Memory {
    fn from(memory: std::sync::Arc<Simulated>) -> Self {
        Self {
            // SAFETY: as above.
            region: unsafe { memory.region().alias() },
            // What a hint changes would not be recorded.
            lets_readers_write: false,
            sends: true,
            keeps_lines: memory.keeps_lines(),
            kind: Kind::Simulated(memory),
        }
    }
}

/// Calls a method of whichever it is.
macro_rules! either {
    ($self:ident, $memory:ident => $call:expr) => {
        match &$self.kind {
            Kind::Mapped($memory) => $call,
            Kind::Filed($memory) => $call,
            #[cfg(feature = "simulated-memory")]
            Kind::Simulated($memory) => $call,
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
    fn open_window(&self) -> bool {
        either!(self, memory => memory.begin_writes())
    }

    #[cold]
    fn close_window(&self, could_store: bool) {
        either!(self, memory => memory.end_writes(could_store));
    }
}

impl Pmem for Memory {
    loads_of_region!();

    #[inline]
    fn store(&self, at: Offset, word: u64) {
        #[cfg(feature = "simulated-memory")]
        if let Kind::Simulated(memory) = &self.kind {
            return memory.store(at, word);
        }
        self.region.store(at, word);
    }

    #[inline]
    fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
        #[cfg(feature = "simulated-memory")]
        if let Kind::Simulated(memory) = &self.kind {
            return memory.compare_exchange(at, current, new);
        }
        self.region.compare_exchange(at, current, new)
    }

    #[inline]
    fn write(&self, at: Offset, bytes: &[u8]) {
        #[cfg(feature = "simulated-memory")]
        if let Kind::Simulated(memory) = &self.kind {
            return memory.write(at, bytes);
        }
        self.region.write(at, bytes);
    }

    #[inline]
    fn halves(&self, at: Offset) -> Option<&[AtomicU32; 4]> {
        self.lets_readers_write.then(|| self.region.halves(at))
    }

    fn flushes(&self) -> bool {
        either!(self, memory => memory.flushes())
    }

    #[inline]
    fn keeps_lines(&self) -> bool {
        self.keeps_lines
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

    #[cfg(feature = "simulated-memory")]
    fn mark(&self, what: crate::Mark) {
        either!(self, memory => memory.mark(what));
    }

    #[inline]
    fn begin_writes(&self) -> bool {
        self.lets_readers_write || self.open_window()
    }

    #[inline]
    fn end_writes(&self, could_store: bool) {
        if !self.lets_readers_write {
            self.close_window(could_store);
        }
    }
}
