//! What one session brings to every operation: its pin, its pool, its counters.

use std::ptr::NonNull;
use std::sync::Arc;

use pando_block::{BlockRef, Keep};
use pando_memory::pool::Pool;
use pando_sync::Padded;
use pando_sync::epoch::Participant;

use crate::canary::Fault;
use crate::counters::Counters;
use crate::node::{Border, Either, Guard, INTERIOR_BYTES, NodeRef, WIDTH, reclaim_node};
use crate::tree::Tree;

/// One session's side of the engine.
pub(crate) struct Context {
    pub(crate) participant: Participant<Pool>,
    pub(crate) pool: Pool,
    pub(crate) counters: Arc<Padded<Counters>>,
    /// The address of the border node into which recovery has put the last new key, to tell sorted
    /// runs; never followed.
    pub(crate) last_filled: usize,
    /// Commits since the session maintained its engine by itself.
    pub(crate) commits: usize,
}

impl Context {
    /// The session's number, which picks its shard of key counts.
    pub(crate) fn number(&self) -> usize {
        self.participant.index()
    }

    /// Runs `operate` under a pin, the session's own one if it holds one already.
    #[inline]
    pub(crate) fn pinned<R>(
        &mut self,
        operate: impl for<'g> FnOnce(Guard<'g>, &mut Self) -> R,
    ) -> R {
        struct Unpin<'a>(&'a mut Context);
        impl Drop for Unpin<'_> {
            fn drop(&mut self) {
                self.0.participant.unpin(&mut self.0.pool);
            }
        }
        self.participant.pin();
        let pinned = Unpin(self);
        // SAFETY: the pin is held until `pinned` is dropped, after `operate` has returned; `'g` is
        // chosen by this call and cannot be named outside of it.
        let guard = unsafe { Guard::new() };
        operate(guard, &mut *pinned.0)
    }

    /// Retires a block that the caller has just taken out of `tree`, or whose body a successor has
    /// taken over. Its own bytes are counted, and those of a key part that goes with it.
    pub(crate) fn retire_block(&mut self, tree: &Tree, block: BlockRef<'_>, keep: Keep) {
        self.retire_bytes(tree, block, keep, block.bytes());
    }

    /// Retires a block that the caller has just replaced by `next`. What the body of a large value
    /// does not share with its successor's is counted too.
    pub(crate) fn retire_replaced(
        &mut self,
        tree: &Tree,
        (block, next): (BlockRef<'_>, BlockRef<'_>),
        keep: Keep,
    ) {
        let bytes = block.bytes() + block.bytes_beyond(next);
        self.retire_bytes(tree, block, keep, bytes);
    }

    fn retire_bytes(&mut self, tree: &Tree, block: BlockRef<'_>, keep: Keep, mut bytes: usize) {
        let pointer = block.address();
        if !keep.key {
            bytes += block.external_key_bytes();
        }
        let reclaim = keep.reclaimer();
        if tree.canary.is(Fault::FreeEarly) {
            // SAFETY: none: this is the planted fault.
            unsafe { reclaim(pointer, &mut self.pool) };
            return;
        }
        // SAFETY: the caller has replaced the only link to the block and holds a pin.
        unsafe { self.participant.retire(pointer, bytes, reclaim) };
    }

    /// Retires a node that the caller has just taken out of its tree, and counts it.
    pub(crate) fn retire_node(&mut self, node: NodeRef<'_>) {
        self.count_node(node, -1);
        let bytes = match node.either() {
            Either::Border(border) => Border::bytes(border.width()),
            Either::Interior(_) => INTERIOR_BYTES,
        };
        let pointer = NonNull::new(node.as_ptr().cast()).expect("a node has an address");
        // SAFETY: the caller has removed every link to the node and holds a pin.
        unsafe { self.participant.retire(pointer, bytes, reclaim_node) };
    }

    /// Counts a node that has come (1) or gone (-1).
    pub(crate) fn count_node(&self, node: NodeRef<'_>, delta: i64) {
        match node.either() {
            Either::Border(border) if border.width() == WIDTH => {
                self.counters.border_nodes.add(delta);
            }
            Either::Border(_) => self.counters.young_nodes.add(delta),
            Either::Interior(_) => self.counters.interior_nodes.add(delta),
        }
    }
}
