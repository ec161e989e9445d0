//! Memory from the system, mainly chunks of 2 MiB, each one huge page where the system supplies
//! one.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The page size for chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages of 2 MiB, a hint that the system may decline.
    #[default]
    Huge,
    /// The system's ordinary pages.
    Small,
}

/// The granule of mappings: a multiple of every page size in use.
const PAGE_BYTES: usize = 64 * 1024;

/// The smallest page in use.
const TOUCH_BYTES: usize = 4 * 1024;

/// One chunk.
pub(super) struct Chunk(Mapping);

impl Chunk {
    /// Length and alignment.
    pub(super) const BYTES: usize = 2 << 20;

    /// Maps a chunk of zeroed memory.
    ///
    /// # Panics
    /// When the system has no memory left to map.
    pub(super) fn map(pages: Pages) -> Self {
        let mapping = Mapping::new(Self::BYTES, pages);
        // A block's chunk and slab follow from its address.
        assert!(mapping.start().addr().get().is_multiple_of(Self::BYTES));
        Self(mapping)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    /// Returns the memory of an unused part of a chunk; it stays mapped and reads as zero. This
    /// splits a huge page, which [`Self::advise_huge`] undoes.
    pub(super) fn release(chunk: NonNull<u8>, offset: usize, bytes: usize, pages: Pages) {
        if pages == Pages::Huge && bytes < Self::BYTES {
            // Or the system would fill the gap again when it next looks for huge pages.
            // SAFETY: a chunk's own range; the advice changes no contents.
            let _ = unsafe { madvise(chunk.as_ptr().cast(), Self::BYTES, Advice::LinuxNoHugepage) };
        }
        let start = chunk.as_ptr().wrapping_add(offset).cast::<c_void>();
        // SAFETY: within the chunk, and nobody uses this part.
        let result = unsafe { madvise(start, bytes, Advice::LinuxDontNeed) };
        debug_assert!(result.is_ok(), "mapped memory can be given back");
    }

    /// Requests huge pages again.
    pub(super) fn advise_huge(chunk: NonNull<u8>) {
        // SAFETY: a chunk's own range; the advice changes no contents.
        let _ = unsafe { madvise(chunk.as_ptr().cast(), Self::BYTES, Advice::LinuxHugepage) };
    }

    /// Writes to its first page, all of it if that is a huge one; for a chunk that nobody uses yet.
    pub(super) fn touch_first(&self) {
        // SAFETY: within the mapping, which is writable and nobody else's.
        unsafe { self.start().as_ptr().write_volatile(0) };
    }

    /// Writes to each of its pages; for a chunk that nobody uses yet.
    pub(super) fn touch(&self) {
        self.0.touch();
    }
}

/// Zeroed memory from the system, returned when dropped. From [`Chunk::BYTES`] on it is aligned to
/// that, otherwise to a page.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory that its owner gives out.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps at least `bytes` bytes.
    ///
    /// # Panics
    /// When the system has no memory left to map.
    pub(crate) fn new(bytes: usize, pages: Pages) -> Self {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let slack = if bytes < Chunk::BYTES {
            0
        } else {
            Chunk::BYTES
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping touches no existing memory.
        let wide = unsafe { mmap_anonymous(ptr::null_mut(), bytes + slack, protection, flags) };
        let wide = wide.unwrap_or_else(|error| panic!("no memory for {bytes} bytes: {error}"));
        let lead = if slack == 0 {
            0
        } else {
            wide.align_offset(slack)
        };
        let start = wide.wrapping_byte_add(lead);
        Self::unmap(wide, lead);
        Self::unmap(start.wrapping_byte_add(bytes), slack - lead);
        if pages == Pages::Huge && slack > 0 {
            // A refusal (no huge pages configured) leaves ordinary pages, which work as well.
            // SAFETY: the range is the mapping just made; the advice changes no contents.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        let start = NonNull::new(start.cast()).expect("the system maps nothing at address 0");
        Self { start, bytes }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Writes to each of its pages; for one that nobody uses yet.
    pub(crate) fn touch(&self) {
        for offset in (0..self.bytes).step_by(TOUCH_BYTES) {
            let byte = self.start.as_ptr().wrapping_add(offset);
            // SAFETY: within the mapping, which is writable and nobody else's.
            unsafe { byte.write_volatile(0) };
        }
    }

    /// Returns the last bytes, up to `bytes_max` and the start of a page; returns what is left.
    pub(crate) fn shrink(&mut self, bytes_max: usize) -> usize {
        let left = self
            .bytes
            .saturating_sub(bytes_max)
            .next_multiple_of(PAGE_BYTES);
        let left = left.min(self.bytes);
        let end = self.start.as_ptr().wrapping_add(left);
        Self::unmap(end.cast(), self.bytes - left);
        self.bytes = left;
        left
    }

    fn unmap(start: *mut c_void, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the range is part of a mapping of ours that nobody uses.
            let result = unsafe { munmap(start, bytes) };
            debug_assert!(result.is_ok(), "a whole mapped range can be unmapped");
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.shrink(usize::MAX);
    }
}
