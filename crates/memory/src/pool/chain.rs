//! Chains of free blocks of one class.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks are aligned to 8 bytes (P2)"
)]

use std::ptr::{self, NonNull};

use super::class::bytes_of_class;

/// Offset of the link in a free block: past the first word, which debug builds poison.
const LINK_OFFSET: usize = 8;

const _: () = assert!(
    LINK_OFFSET + size_of::<*mut u8>() <= bytes_of_class(0),
    "every block has room for a link"
);

/// A chain of free blocks of one class.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    first: *mut u8,
    pub(super) count: usize,
}

// SAFETY: a chain owns its blocks (P1 one-holder).
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const EMPTY: Self = Self {
        first: ptr::null_mut(),
        count: 0,
    };

    /// The chain that [`Self::first`] and its count were taken from.
    pub(super) fn from_parts(first: *mut u8, count: usize) -> Self {
        debug_assert_eq!(first.is_null(), count == 0);
        Self { first, count }
    }

    /// Its first block, null when it is empty.
    pub(super) fn first(&self) -> *mut u8 {
        self.first
    }

    /// # Safety
    /// `block` is free, at least 16 bytes long, and on no other chain (P1 one-holder).
    #[inline]
    pub(super) unsafe fn push(&mut self, block: *mut u8) {
        // SAFETY: the block has room for a link at offset 8.
        let link = unsafe { block.add(LINK_OFFSET) };
        // SAFETY: aligned to 8 (P2 alignment) and owned by the chain from now on.
        unsafe { link.cast::<*mut u8>().write(self.first) };
        self.first = block;
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first)?;
        // SAFETY: a block on the chain holds a link at offset 8 (P1 one-holder).
        let link = unsafe { block.as_ptr().add(LINK_OFFSET) };
        // SAFETY: as above.
        self.first = unsafe { link.cast::<*mut u8>().read() };
        self.count -= 1;
        Some(block)
    }

    /// Cuts `count` blocks off the front.
    pub(super) fn split_off(&mut self, count: usize) -> Self {
        let mut front = Self::EMPTY;
        while front.count < count {
            let Some(block) = self.pop() else { break };
            // SAFETY: just popped, so on no chain.
            unsafe { front.push(block.as_ptr()) };
        }
        debug_assert_eq!(self.first.is_null(), self.count == 0);
        front
    }
}
