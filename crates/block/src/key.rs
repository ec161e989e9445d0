//! Key parts: the bytes of its key that a block stores.
//!
//! The Masstree paper (§4.2) keeps suffixes in a bag beside the node, inline or external, sized
//! adaptively. Here they adapt per key and are stored with the value: inline in its block up to
//! [`INLINE_BYTES_MAX`], above that in a block of their own that is handed over from version to
//! version, so that an update of a small value under a long key copies neither. Reasons for the
//! departure: a get reads the block anyway, so a comparison costs no further fetch (the bag costs
//! one); splits move a pointer and no bytes; nothing that an optimistic reader compares is ever
//! rewritten, where a bag needs copy-and-swap and its validation; and short suffixes vanish in the
//! rounding of blocks.

use std::ptr::{self, NonNull};

use pando_memory::pool::Pool;

/// Longest key part that is copied into every version's block by [`KeyPart::store`].
pub const INLINE_BYTES_MAX: usize = 128;

/// A key part to be built into a block.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart<'k>(pub(crate) Part<'k>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'k> {
    /// To be copied into the block.
    Inline(&'k [u8]),
    /// A separate block, with its length, that the value block will own.
    External(NonNull<u8>, usize),
}

impl<'k> KeyPart<'k> {
    /// `bytes`, to be copied into the block whatever their length.
    #[inline]
    pub fn inline(bytes: &'k [u8]) -> Self {
        Self(Part::Inline(bytes))
    }

    /// `bytes` in the form for their length. An external one that is not built into a block leaks.
    pub fn store(pool: &mut Pool, bytes: &'k [u8]) -> Self {
        if bytes.len() <= INLINE_BYTES_MAX {
            return Self::inline(bytes);
        }
        let block = pool.allocate(bytes.len());
        // SAFETY: a block of our own, long enough.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr(), bytes.len()) };
        Self(Part::External(block, bytes.len()))
    }

    /// Whether it is in a block of its own, which is kept when the block it was taken over from is
    /// reclaimed.
    #[inline]
    pub fn is_external(self) -> bool {
        matches!(self.0, Part::External(..))
    }

    pub(crate) fn len(self) -> usize {
        match self.0 {
            Part::Inline(bytes) => bytes.len(),
            Part::External(_, bytes) => bytes,
        }
    }
}

/// The bytes of an external key part.
///
/// # Safety
/// `pointer` and `bytes` come from a block that owns the key part, and it lives as long as `'g`.
pub(crate) unsafe fn external_of<'g>(pointer: NonNull<u8>, bytes: usize) -> &'g [u8] {
    // SAFETY: stored with this length; the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(pointer.as_ptr(), bytes) }
}

/// Frees an external key part.
///
/// # Safety
/// As for [`external_of`]; nobody can reach it, and it is freed once.
pub(crate) unsafe fn free_external(pointer: NonNull<u8>, bytes: usize, pool: &mut Pool) {
    // SAFETY: allocated with this length by `store`; the caller vouches for the rest.
    unsafe { pool.free(pointer, bytes) };
}
