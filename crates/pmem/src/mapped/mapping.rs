//! A file's bytes in the address space.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};

/// Bytes of a page, or more.
const PAGE_BYTES: usize = 4096;

/// Mapped bytes.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
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
        // SAFETY: a new mapping, at an address of the system's choice.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at 0");
        Ok(Self { start, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Maps the pages of a range for writing, as so many faults would one by one.
    pub(crate) fn populate(&self, from: u64, bytes: usize) {
        let from = from as usize / PAGE_BYTES * PAGE_BYTES;
        let bytes = bytes.next_multiple_of(PAGE_BYTES).min(self.bytes - from);
        // SAFETY: the range lies in the mapping.
        let start = unsafe { self.start.add(from) };
        // Of old systems, or without the right to write, the pages come by faults as ever.
        // SAFETY: the pages are mapped as an access would map them; what they hold stays.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and whoever owns it uses it no more. An error leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
