//! Prefetching: requests cache lines without waiting for them.

/// Bytes of a cache line on the processors this is tuned for.
pub const LINE_BYTES: usize = 64;

/// Prefetches the lines of `bytes` bytes at `start`, which may be any address.
#[inline]
pub fn prefetch_lines(start: *const u8, bytes: usize) {
    let mut offset = 0;
    while offset < bytes {
        prefetch_line(start.wrapping_add(offset));
        offset += LINE_BYTES;
    }
}

/// Prefetches a block of `bytes` bytes that is on one line or two.
#[inline]
pub fn prefetch_span(start: *const u8, bytes: usize) {
    prefetch_line(start);
    // Without a branch, which would be mispredicted: usually it is the same line again.
    prefetch_line(start.wrapping_add(bytes - 1));
}

/// Prefetches one line.
#[inline]
pub fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it faults for no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches one line that will be stored to: it comes without copies in other cores' caches.
#[inline]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it faults for no address, and is nothing to old processors.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
