//! Large arrays of zeroed memory that the system supplies on first touch and takes back in pieces.
//!
//! A hash table of any size is made and freed without a pause that grows with it: the system zeroes
//! a page when it is first written, and [`Zeroed::release`] returns a bounded part at a time. Small
//! arrays come from the program's allocator.
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `counted_bytes` | any thread that touched more of it ([`Zeroed::count_to`]) | `Relaxed`, by maximum | drop |
//!
//! Invariant:
//! - **MZ1** Of a mapped array, [`used_bytes`](crate::used_bytes) includes what
//!   [`Zeroed::count_to`] was told and [`Zeroed::release`] has not returned: an array that fills up
//!   slowly is not counted as used before it is.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::count_elsewhere;
use crate::pool::{Mapping, Pages};

/// Arrays below this many bytes come from the allocator, which counts them itself.
const MAPPED_BYTES_MIN: usize = 128 * 1024;

/// Alignment of an array: a cache line.
const ALIGN: usize = 64;

/// An array of zeroed bytes, aligned to 64.
pub struct Zeroed {
    start: NonNull<u8>,
    bytes: usize,
    /// `None` for an array from the allocator.
    mapping: Option<Mapping>,
    counted_bytes: AtomicUsize,
}

// SAFETY: an array is plain memory that its owner gives out.
unsafe impl Send for Zeroed {}
// SAFETY: as above; shared methods touch none of it.
unsafe impl Sync for Zeroed {}

impl fmt::Debug for Zeroed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Zeroed")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Zeroed {
    /// An array of `bytes` bytes, which are not 0. O(1) for a large one.
    ///
    /// # Panics
    /// When the system has no memory left to map.
    #[must_use]
    pub fn new(bytes: usize, pages: Pages) -> Self {
        assert!(bytes > 0);
        let (start, mapping) = if bytes < MAPPED_BYTES_MIN {
            let layout = layout(bytes);
            // SAFETY: the layout's size is not zero.
            let start = unsafe { std::alloc::alloc_zeroed(layout) };
            let start =
                NonNull::new(start).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
            (start, None)
        } else {
            let mapping = Mapping::new(bytes, pages);
            (mapping.start(), Some(mapping))
        };
        debug_assert!(start.addr().get().is_multiple_of(ALIGN));
        Self {
            start,
            bytes,
            mapping,
            counted_bytes: AtomicUsize::new(0),
        }
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The requested length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the first `bytes` bytes as used, if they are not yet (MZ1).
    pub fn count_to(&self, bytes: usize) {
        if self.mapping.is_some() {
            let bytes = bytes.min(self.bytes);
            if bytes <= self.counted_bytes.load(Ordering::Relaxed) {
                return;
            }
            let before = self.counted_bytes.fetch_max(bytes, Ordering::Relaxed);
            count_elsewhere(bytes.saturating_sub(before) as isize);
        }
    }

    /// Returns up to about `bytes_max` bytes at the end to the system; true when all of it is
    /// returned. Nobody uses the array any more.
    pub fn release(&mut self, bytes_max: usize) -> bool {
        let Some(mapping) = &mut self.mapping else {
            return true;
        };
        let left = mapping.shrink(bytes_max);
        let counted = self.counted_bytes.get_mut();
        let kept = (*counted).min(left);
        count_elsewhere(-((*counted - kept) as isize));
        *counted = kept;
        left == 0
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("a small array has a layout")
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        if self.mapping.is_some() {
            self.release(usize::MAX);
        } else {
            // SAFETY: `new` took it from there with this layout.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout(self.bytes)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_any_size_are_zeroed_aligned_and_go_in_pieces() {
        for bytes in [64, 4096, MAPPED_BYTES_MIN, (5 << 20) + 64] {
            for pages in [Pages::Small, Pages::Huge] {
                let mut array = Zeroed::new(bytes, pages);
                let start = array.start().as_ptr();
                assert_eq!(start as usize % ALIGN, 0);
                for offset in [0, bytes / 2, bytes - 1] {
                    // SAFETY: within the array.
                    let byte = unsafe { start.add(offset) };
                    // SAFETY: as above.
                    assert_eq!(unsafe { byte.read() }, 0);
                    // SAFETY: as above.
                    unsafe { byte.write(1) };
                }
                array.count_to(bytes);
                let mut pieces = 1;
                while !array.release(2 << 20) {
                    pieces += 1;
                }
                assert_eq!(pieces, bytes.div_ceil(2 << 20));
            }
        }
    }
}
