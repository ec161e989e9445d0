//! A file's bytes in the address space.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use pando_sync::shim::unmodelled::{AtomicU32, Ordering};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap,
};

/// Bytes of a page, or more.
const PAGE_BYTES: usize = 4096;

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Makes huge pages of small ones; since Linux 6.1, and not in `rustix`.
const MADV_COLLAPSE: c_int = 25;

unsafe extern "C" {
    fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

/// A new file's pages are made huge for so long, which is enough for some GiB where the system has
/// huge pages ready.
const MAKING_PAGES_MAX: Duration = Duration::from_millis(500);

/// To clear a huge page takes a third of a millisecond. Where it takes longer than this, the system
/// looks for memory, and small pages are cheaper.
const JOINING_MAX: Duration = Duration::from_millis(1);

/// Then so many are left as they are, at most, before another one is tried.
const SKIPS_MAX: u32 = 127;

/// Mapped bytes.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Pages that are not made huge since the last one took long, and how many of them are left.
    skips: AtomicU32,
    skips_left: AtomicU32,
}

// SAFETY: a mapping is an address; whoever uses the bytes sees to the rest.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of a file, from `offset` on.
    pub(crate) fn new(file: &File, offset: u64, bytes: u64, flags: MapFlags) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (wanted, fixed) = match Reserved::for_huge_pages(bytes, offset)? {
            Some(reserved) => (reserved.give_up_but(bytes), MapFlags::FIXED),
            None => (ptr::null_mut(), MapFlags::empty()),
        };
        // SAFETY: a new mapping, at an address of the system's choice, or of one that was reserved
        // and is nobody else's.
        let start = unsafe { mmap(wanted, bytes, protection, flags | fixed, file, offset) };
        let start = start.inspect_err(|_| {
            if !wanted.is_null() {
                // SAFETY: nobody uses what was reserved.
                let _ = unsafe { munmap(wanted, bytes) };
            }
        })?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at 0");
        Ok(Self {
            start,
            bytes,
            skips: AtomicU32::new(0),
            skips_left: AtomicU32::new(0),
        })
    }

    /// Gives a file without pages huge ones, as many as the system makes within
    /// [`MAKING_PAGES_MAX`]: it clears them, and need not make them of small ones later, which it
    /// copies.
    pub(crate) fn make_pages(&self) {
        let began = Instant::now();
        let make = |from| {
            self.populate(from as u64, PAGE_BYTES);
            began.elapsed() < MAKING_PAGES_MAX && self.join(from)
        };
        let _ = (0..self.bytes).step_by(HUGE_BYTES).all(make);
    }

    /// Makes one page of the [`HUGE_BYTES`] that begin in this range, if any do: nothing lies in
    /// them yet, so the system clears them and need not copy. Whether it could. An access needs
    /// fewer steps to find its page, which is most of what it costs in a virtual machine.
    pub(crate) fn expect_page(&self, from: u64, bytes: usize) -> bool {
        let from = from as usize;
        let begin = from.next_multiple_of(HUGE_BYTES);
        if begin >= from + bytes || begin + HUGE_BYTES > self.bytes {
            return false;
        }
        // Linux makes no page of none.
        self.populate(begin as u64, PAGE_BYTES);
        self.join_if_fast(begin)
    }

    /// The same of those that end in this range, which are in use: where the system had no huge
    /// page when they began.
    pub(crate) fn join_pages(&self, from: u64, bytes: usize) {
        let from = from as usize;
        let end = (from + bytes) / HUGE_BYTES * HUGE_BYTES;
        if end > from {
            self.join_if_fast(end - HUGE_BYTES);
        }
    }

    /// Makes one page, as [`Self::join`], unless that took long the last time: then of ever fewer.
    fn join_if_fast(&self, from: usize) -> bool {
        // Relaxed: whatever they say, pages hold what they held.
        let left = self.skips_left.load(Ordering::Relaxed);
        if left > 0 {
            self.skips_left.store(left - 1, Ordering::Relaxed);
            return false;
        }
        let began = Instant::now();
        let joined = self.join(from);
        let skips = if began.elapsed() < JOINING_MAX {
            0
        } else {
            (2 * self.skips.load(Ordering::Relaxed) + 1).min(SKIPS_MAX)
        };
        self.skips.store(skips, Ordering::Relaxed);
        self.skips_left.store(skips, Ordering::Relaxed);
        joined
    }

    /// Makes one page of the [`HUGE_BYTES`] from there on, unless they are one; whether they are.
    fn join(&self, from: usize) -> bool {
        let is_aligned = self.start.addr().get().is_multiple_of(HUGE_BYTES);
        if !is_aligned || from + HUGE_BYTES > self.bytes {
            return false;
        }
        // SAFETY: the range lies in the mapping.
        let start = unsafe { self.start.add(from) };
        // Old systems, or those without a free huge page, leave it as it is.
        // SAFETY: what the pages hold stays, and so does what may be done with them.
        let joined = unsafe { madvise(start.as_ptr().cast(), HUGE_BYTES, MADV_COLLAPSE) };
        joined == 0
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps the pages of a range for writing, as so many faults would one by one.
    pub(crate) fn populate(&self, from: u64, bytes: usize) {
        let from = from as usize / PAGE_BYTES * PAGE_BYTES;
        let bytes = bytes.next_multiple_of(PAGE_BYTES).min(self.bytes - from);
        // SAFETY: the range lies in the mapping.
        let start = unsafe { self.start.add(from) };
        // Of old systems, or without the right to write, the pages come by faults as ever.
        // SAFETY: the pages are mapped as an access would map them; what they hold stays.
        let _ = unsafe {
            rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite)
        };
    }

    /// Lets stores to it fault, or lets them be again.
    pub(crate) fn set_writable(&self, writable: bool) -> io::Result<()> {
        let protection = if writable {
            MprotectFlags::READ | MprotectFlags::WRITE
        } else {
            MprotectFlags::READ
        };
        // SAFETY: the range is this mapping. What it holds stays; a store that is not allowed
        // faults, which is what it is for.
        Ok(unsafe { mprotect(self.start.as_ptr().cast(), self.bytes, protection) }?)
    }
}

/// Addresses that nobody maps anything to.
struct Reserved {
    start: *mut u8,
    bytes: usize,
}

impl Reserved {
    /// Enough for a mapping of so many bytes that begins with a huge page, if the file does there,
    /// and has one.
    fn for_huge_pages(bytes: usize, offset: u64) -> io::Result<Option<Self>> {
        if bytes < HUGE_BYTES || offset != 0 {
            return Ok(None);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let bytes = bytes + HUGE_BYTES;
        // SAFETY: a new mapping, at an address of the system's choice, that cannot be accessed.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags) }?;
        let start = start.cast();
        Ok(Some(Self { start, bytes }))
    }

    /// Where so many bytes begin with a huge page; the rest is given up.
    fn give_up_but(self, bytes: usize) -> *mut c_void {
        let before = self.start.align_offset(HUGE_BYTES);
        let behind = self.bytes - before - bytes;
        for (from, bytes) in [(0, before), (self.bytes - behind, behind)] {
            if bytes > 0 {
                let start = self.start.wrapping_add(from).cast();
                // SAFETY: nobody uses what was reserved.
                let _ = unsafe { munmap(start, bytes) };
            }
        }
        self.start.wrapping_add(before).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and whoever owns it uses it no more. An error leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
