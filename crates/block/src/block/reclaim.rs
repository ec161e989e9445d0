//! Freeing blocks, with or without what a successor has taken over.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use pando_engine::{Chunked, WideRow};
use pando_memory::pool::Pool;
use pando_sync::epoch::Reclaim;

use super::BlockRef;
use crate::key::free_external;
use crate::layout::{Form, HEADER_BYTES, IS_EXTERNAL};

/// Frees a block.
///
/// # Safety
/// The pointer leads to a block that nobody can reach; it is reclaimed once; another block holds
/// exactly what the [`Keep`] says that this is for (VB2 one-owner).
pub type Reclaimer = Reclaim<Pool>;

/// What a successor block has taken over from the one it replaces (VB2 one-owner).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The body, if it is a large form.
    pub body: bool,
    /// The key part, if it is external.
    pub key: bool,
}

impl Keep {
    /// The block is freed with all that it owns.
    pub const NOTHING: Self = Self {
        body: false,
        key: false,
    };

    /// The block has moved elsewhere.
    pub const ALL: Self = Self {
        body: true,
        key: true,
    };

    /// The reclaimer of a block of which this much is kept.
    #[inline]
    pub fn reclaimer(self) -> Reclaimer {
        match (self.body, self.key) {
            (false, false) => reclaim::<false, false>,
            (false, true) => reclaim::<false, true>,
            (true, false) => reclaim::<true, false>,
            (true, true) => reclaim::<true, true>,
        }
    }
}

/// # Safety
/// As for [`Reclaimer`].
unsafe fn reclaim<const KEEP_BODY: bool, const KEEP_KEY: bool>(
    pointer: NonNull<u8>,
    pool: &mut Pool,
) {
    let block = BlockRef(pointer, PhantomData);
    if let Some((key_bytes, body_bytes)) = block.short() {
        // SAFETY: allocated with this length by `build`; the caller vouches for the rest.
        return unsafe { pool.free(pointer, HEADER_BYTES + key_bytes + body_bytes) };
    }
    let shape = block.shape();
    if !KEEP_BODY {
        let body = pointer.as_ptr().wrapping_add(shape.body_offset);
        match shape.form() {
            // SAFETY: the body has this form, and this block is its last owner (VB2 one-owner).
            Form::Chunked => unsafe { ptr::drop_in_place(body.cast::<Chunked>()) },
            // SAFETY: as above.
            Form::Wide => unsafe { ptr::drop_in_place(body.cast::<WideRow>()) },
            _ => {}
        }
    }
    if !KEEP_KEY && shape.meta & IS_EXTERNAL != 0 {
        let key = block.read::<NonNull<u8>>(shape.key_offset);
        // SAFETY: this block is the key part's last owner (VB2 one-owner).
        unsafe { free_external(key, shape.key_bytes, pool) };
    }
    // SAFETY: allocated with this length by `build` or `duplicate`; the rest is the caller's.
    unsafe { pool.free(pointer, shape.bytes()) };
}
