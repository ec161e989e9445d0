//! Key suffixes (§4.2): what follows the slice of a key that is alone with its slice in its layer.
//!
//! The paper keeps suffixes in a bag beside the node, inline or external, sized adaptively. Here
//! they adapt per key and live with the value: inline in its block up to [`INLINE_BYTES_MAX`],
//! above that in a block of their own that is handed over from version to version, so that an
//! update of a small value under a long key copies neither. Reasons for the departure: a get reads
//! the block anyway, so a suffix compare costs no further fetch (the bag costs one); splits move a
//! pointer and no bytes; nothing that an optimistic reader compares is ever rewritten, where a bag
//! needs copy-and-swap and its validation; and short suffixes vanish in the rounding of blocks.

use std::ptr::{self, NonNull};

use pando_memory::pool::Pool;

/// Longest suffix that is copied into every version's block.
pub(crate) const INLINE_BYTES_MAX: usize = 128;

/// What a block stores of an external suffix.
pub(crate) const EXTERNAL_POINTER_BYTES: usize = size_of::<NonNull<u8>>();

/// A suffix on its way into a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suffix<'k> {
    /// To be copied into the block.
    Inline(&'k [u8]),
    /// A block of its own, with its length, that the value block will own.
    External(NonNull<u8>, usize),
}

impl<'k> Suffix<'k> {
    /// `bytes` in the form that their length asks for.
    pub(crate) fn store(pool: &mut Pool, bytes: &'k [u8]) -> Self {
        if bytes.len() <= INLINE_BYTES_MAX {
            return Self::Inline(bytes);
        }
        let block = pool.allocate(bytes.len());
        // SAFETY: a block of our own, long enough.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr(), bytes.len()) };
        Self::External(block, bytes.len())
    }

    /// The suffix that the replaced value's block holds already, `stored`; an external one is
    /// handed over, which the block is to be retired with.
    pub(crate) fn hand_over(stored: &'k [u8]) -> Self {
        if stored.len() <= INLINE_BYTES_MAX {
            return Self::Inline(stored);
        }
        Self::External(NonNull::from(stored).cast(), stored.len())
    }

    pub(crate) fn is_external(self) -> bool {
        matches!(self, Self::External(..))
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::External(_, bytes) => bytes,
        }
    }
}

/// The bytes of an external suffix.
///
/// # Safety
/// `pointer` and `bytes` come from a block that owns the suffix, and it lives as long as `'g`.
pub(crate) unsafe fn external_of<'g>(pointer: NonNull<u8>, bytes: usize) -> &'g [u8] {
    // SAFETY: stored with this length; the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(pointer.as_ptr(), bytes) }
}

/// Gives an external suffix back.
///
/// # Safety
/// As for [`external_of`]; nobody can reach it, and it is freed once.
pub(crate) unsafe fn free_external(pointer: NonNull<u8>, bytes: usize, pool: &mut Pool) {
    // SAFETY: allocated with this length by `store`; the caller vouches for the rest.
    unsafe { pool.free(pointer, bytes) };
}
