//! Chunks of 2 MiB from the system, each one huge page where the system gives one.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// What pages chunks are asked for on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages of 2 MiB, a hint that the system may decline.
    #[default]
    Huge,
    /// The system's ordinary pages.
    Small,
}

/// One mapping, given back when dropped.
pub(super) struct Chunk(NonNull<u8>);

// SAFETY: a chunk is plain memory that its owner gives out.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Length and alignment.
    pub(super) const BYTES: usize = 2 << 20;

    /// Maps a chunk of zeroed memory.
    ///
    /// # Panics
    /// When the system has no memory left to map.
    pub(super) fn map(pages: Pages) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping touches no existing memory.
        let wide = unsafe { mmap_anonymous(ptr::null_mut(), 2 * Self::BYTES, protection, flags) };
        let wide = wide.unwrap_or_else(|error| panic!("no memory for a 2 MiB chunk: {error}"));
        let lead = wide.align_offset(Self::BYTES);
        let start = wide.wrapping_byte_add(lead);
        Self::unmap(wide, lead);
        Self::unmap(start.wrapping_byte_add(Self::BYTES), Self::BYTES - lead);
        if pages == Pages::Huge {
            // A refusal (no huge pages configured) leaves ordinary pages, which work as well.
            // SAFETY: the range is the mapping just made; the advice changes no contents.
            let _ = unsafe { madvise(start, Self::BYTES, Advice::LinuxHugepage) };
        }
        Self(NonNull::new(start.cast()).expect("the system maps nothing at address 0"))
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.0
    }

    fn unmap(start: *mut c_void, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the range is part of a mapping of ours that nobody uses.
            let result = unsafe { munmap(start, bytes) };
            debug_assert!(result.is_ok(), "a whole mapped range can be unmapped");
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        Self::unmap(self.0.as_ptr().cast(), Self::BYTES);
    }
}
