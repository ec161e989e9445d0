//! The instructions that send a line to memory, and the one that waits for it.

use std::ptr::NonNull;

use pando_sync::shim::unmodelled::{Ordering, compiler_fence};

use crate::LINE_BYTES;

/// How lines are sent to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// `clwb`: the line may stay in the cache.
    WriteBack,
    /// `clflushopt`: the line leaves the cache.
    Evict,
    /// `clflush`: the same, one line after the other.
    EvictInOrder,
    /// Not at all: the caches are within what power loss spares.
    Nothing,
    /// Not at all, nor in any order: only the process may end, and what it has stored stays, all of
    /// it up to some moment.
    Never,
}

impl Flush {
    /// The best that this processor has.
    #[cfg(target_arch = "x86_64")]
    #[must_use]
    pub fn detect() -> Option<Self> {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const CLFLUSH: u32 = 1 << 19;
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        let leaves = __cpuid(0).eax;
        let wide = if leaves >= 7 {
            __cpuid_count(7, 0).ebx
        } else {
            0
        };
        if wide & CLWB != 0 {
            Some(Self::WriteBack)
        } else if wide & CLFLUSHOPT != 0 {
            Some(Self::Evict)
        } else {
            (__cpuid(1).edx & CLFLUSH != 0).then_some(Self::EvictInOrder)
        }
    }

    /// None that we know of.
    #[cfg(not(target_arch = "x86_64"))]
    #[must_use]
    pub fn detect() -> Option<Self> {
        None
    }

    /// Sends the lines of a range on their way.
    ///
    /// # Safety
    /// The range is mapped, and the processor has the instruction.
    #[inline]
    pub(super) unsafe fn lines(self, start: NonNull<u8>, bytes: usize) {
        if bytes == 0 || matches!(self, Self::Nothing | Self::Never) {
            return;
        }
        let before = start.addr().get() % LINE_BYTES as usize;
        let count = (before + bytes).div_ceil(LINE_BYTES as usize);
        for index in 0..count {
            let within = (index * LINE_BYTES as usize).saturating_sub(before);
            // SAFETY: a byte of the range: of its first line the first, of others the line's.
            let at = unsafe { start.add(within) };
            // SAFETY: it is mapped, as the caller promises, and so is the instruction there.
            unsafe { self.line(at) };
        }
    }

    /// Sends the line around a byte on its way.
    ///
    /// # Safety
    /// As [`Flush::lines`].
    #[cfg(target_arch = "x86_64")]
    #[inline]
    unsafe fn line(self, at: NonNull<u8>) {
        use std::arch::asm;
        use std::arch::x86_64::_mm_clflush;
        let at = at.as_ptr();
        match self {
            // No `nomem`: stores before it must not be moved behind it.
            // SAFETY: the byte is mapped and the processor has the instruction.
            Self::WriteBack => unsafe {
                asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags));
            },
            // SAFETY: as above.
            Self::Evict => unsafe {
                asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
            },
            // SAFETY: as above.
            Self::EvictInOrder => unsafe { _mm_clflush(at) },
            Self::Nothing | Self::Never => {}
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn line(self, _at: NonNull<u8>) {}

    /// Waits for the lines that are on their way.
    #[inline]
    pub(super) fn fence(self) {
        if self == Self::Never {
            // Each store releases those before it, and what a killed thread has stored is seen by
            // everybody: nothing is waited for.
            return compiler_fence(Ordering::SeqCst);
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor of this architecture has the instruction.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
        #[cfg(not(target_arch = "x86_64"))]
        pando_sync::shim::unmodelled::fence(Ordering::SeqCst);
    }
}
