//! Blocks of dropped leaves, for leaves to come.
//!
//! A change copies a leaf and, when no reader can see it any longer, drops the leaf that it
//! replaced: each update of a batch copies hundreds, and frees as many. Each thread keeps some of
//! their blocks, which spares the allocator's search for memory of so many sizes.

use std::cell::RefCell;

use crate::limits::{SPARE_LEAF_BYTES_MAX, WIDE_LEAF_BYTES_MAX};

/// Capacities are multiples of this.
const STEP_BYTES: usize = 256;

/// Kept are capacities of up to this many steps: those of leaves but a list's.
const STEPS_MAX: usize = WIDE_LEAF_BYTES_MAX.div_ceil(STEP_BYTES) + 1;

#[derive(Default)]
struct Spare {
    /// By the steps of their capacity, less one.
    blocks: [Vec<Vec<u8>>; STEPS_MAX],
    bytes: usize,
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// An empty block with room for at least this many bytes.
pub(super) fn take(bytes: usize) -> Vec<u8> {
    let steps = bytes.div_ceil(STEP_BYTES).max(1);
    if steps > STEPS_MAX {
        return Vec::with_capacity(bytes);
    }
    let found = SPARE.with_borrow_mut(|spare| {
        let block = spare.blocks[steps - 1].pop()?;
        spare.bytes -= block.capacity();
        Some(block)
    });
    found.unwrap_or_else(|| Vec::with_capacity(steps * STEP_BYTES))
}

/// Keeps a block, or frees it.
pub(super) fn give(mut block: Vec<u8>) {
    let bytes = block.capacity();
    let steps = bytes / STEP_BYTES;
    if !bytes.is_multiple_of(STEP_BYTES) || !(1..=STEPS_MAX).contains(&steps) {
        return;
    }
    block.clear();
    // A thread that is ending may no longer have the thread local.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.bytes + bytes <= SPARE_LEAF_BYTES_MAX {
            spare.bytes += bytes;
            spare.blocks[steps - 1].push(block);
        }
    });
}
