//! What one session contributes to every operation, and how it retires blocks and nodes.

use std::ptr::NonNull;

use pando_block::{BlockRef, Keep};

use crate::canary::Fault;
use crate::counters::Counters;
use crate::node::{Border, Either, INTERIOR_BYTES, NodeRef, WIDTH, reclaim_node};
use crate::tree::Tree;

/// One session's side of the engine.
pub(crate) type Context = pando_chassis::Context<Counters, Beside>;

/// Other state that a session keeps.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// The address of the border node into which recovery put the last new key, to detect sorted
    /// runs; never followed.
    pub(crate) last_filled: usize,
}

/// Retires what was taken out of a tree.
pub(crate) trait Retire {
    /// Retires a block that the caller has just taken out of `tree`, or whose body a successor has
    /// taken over. Counts its own bytes and those of a key part retired with it.
    fn retire_block(&mut self, tree: &Tree, block: BlockRef<'_>, keep: Keep);

    /// Retires a block that the caller has just replaced by `next`. Also counts what the body of a
    /// large value does not share with its successor's.
    fn retire_replaced(&mut self, tree: &Tree, blocks: (BlockRef<'_>, BlockRef<'_>), keep: Keep);

    /// Retires a node that the caller has just taken out of its tree, and counts it.
    fn retire_node(&mut self, node: NodeRef<'_>);

    /// Counts a node that was added (1) or removed (-1).
    fn count_node(&self, node: NodeRef<'_>, delta: i64);
}

impl Retire for Context {
    #[inline]
    fn retire_block(&mut self, tree: &Tree, block: BlockRef<'_>, keep: Keep) {
        retire_bytes(self, tree, block, keep, block.bytes());
    }

    fn retire_replaced(
        &mut self,
        tree: &Tree,
        (block, next): (BlockRef<'_>, BlockRef<'_>),
        keep: Keep,
    ) {
        let bytes = block.bytes() + block.bytes_beyond(next);
        retire_bytes(self, tree, block, keep, bytes);
    }

    fn retire_node(&mut self, node: NodeRef<'_>) {
        self.count_node(node, -1);
        let bytes = match node.either() {
            Either::Border(border) => Border::bytes(border.width()),
            Either::Interior(_) => INTERIOR_BYTES,
        };
        let pointer = NonNull::new(node.as_ptr().cast()).expect("a node has an address");
        // SAFETY: the caller has removed every link to the node and holds a pin.
        unsafe { self.retire(pointer, bytes, reclaim_node) };
    }

    fn count_node(&self, node: NodeRef<'_>, delta: i64) {
        match node.either() {
            Either::Border(border) if border.width() == WIDTH => {
                self.counters.border_nodes.add(delta);
            }
            Either::Border(_) => self.counters.young_nodes.add(delta),
            Either::Interior(_) => self.counters.interior_nodes.add(delta),
        }
    }
}

#[inline]
fn retire_bytes(
    context: &mut Context,
    tree: &Tree,
    block: BlockRef<'_>,
    keep: Keep,
    mut bytes: usize,
) {
    let pointer = block.address();
    if !keep.key && !block.is_short() {
        bytes += block.external_key_bytes();
    }
    let reclaim = keep.reclaimer();
    if tree.canary.is(Fault::FreeEarly) {
        // SAFETY: none: this is the planted fault.
        unsafe { reclaim(pointer, &mut context.pool) };
        return;
    }
    // SAFETY: the caller has replaced the only link to the block and holds a pin.
    unsafe { context.retire(pointer, bytes, reclaim) };
}
