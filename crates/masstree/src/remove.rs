//! Removing entries and empty nodes (§4.6.5).
//!
//! A command's remove writes a tombstone (see `update`). This is the physical remove, done by
//! `task` once the tombstone's epoch is below the horizon.
//!
//! An entry is removed by the permutation alone: its slot keeps code, slice and link for readers
//! that have seen it, and is reused only under the inserting mark (M7 slot-reuse-marked). A border
//! node that becomes empty, unless it is its layer's leftmost (M5 leftmost-stays), leaves the list
//! and its ancestors:
//!
//! 1. the node is marked deleted; readers that meet it descend again;
//! 2. its left sibling is locked, unlinked from it, and unlocked;
//! 3. its parent is locked and marked; a parent of one child is removed too, and so on up;
//! 4. when the first child of an ancestor is removed, its range of keys falls to the left
//!    neighbour, so the separator that leads here, further up, moves to the next child's: all nodes
//!    on the way to it are marked, so that no reader carries an old route past the change;
//! 5. all are unlocked.
//!
//! Departure: a node is unlinked under the two locks that guard its pointers (§4.5) rather than by
//! compare-and-swap with flag bits. Locks are taken from right to left, so they cannot form a
//! cycle.
//!
//! Deliberately absent: merging sparse neighbours, as in the paper (§4.3, §4.6.5). For the same
//! reason an interior node with one child stays until its range takes inserts again or empties. It
//! costs a descent one more node, which has not been shown to matter.

use pando_sync::shim::Spin;

use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::node::{BorderRef, InteriorRef, NodeRef};
use crate::tree::Tree;

/// Removes the entry at `position` from a border node that the caller has locked; returns how many
/// are left.
pub(crate) fn remove_entry(border: BorderRef<'_>, position: usize, context: &Context) -> usize {
    let permutation = border.permutation().remove(position);
    border.set_permutation(permutation);
    context.counters.entries.add(-1);
    permutation.count()
}

/// Removes an empty border node, not its layer's leftmost, from the tree. Consumes the caller's
/// lock.
pub(crate) fn remove_border(tree: &Tree, border: BorderRef<'_>, context: &mut Context) {
    debug_assert_eq!(border.permutation().count(), 0);
    if !tree.canary.is(Fault::RemoveWithoutMark) {
        border.version.mark_deleted();
    }
    // One after the other, each would be waited for.
    border.prefetch_around();
    leave_list(border);
    let mut locked = LockedAncestors::default();
    leave_ancestors(border, &mut locked);
    border.version.unlock();
    context.retire_node(border.node());
    context.counters.node_removals_total.add(1);
    for ancestor in locked.0 {
        let deleted = ancestor.version.peek().is_deleted();
        ancestor.version.unlock();
        if deleted {
            context.retire_node(ancestor.node());
            context.counters.node_removals_total.add(1);
        }
    }
}

fn leave_list(border: BorderRef<'_>) {
    let mut spin = Spin::new();
    let left = loop {
        let left = border
            .prev()
            .expect("a layer's leftmost border node is not removed (M5)");
        let version = left.version.lock();
        // It may have split or been removed before it was locked; then the pointer has changed or
        // will.
        if !version.is_deleted() && left.next().is_some_and(|next| next == border) {
            break left;
        }
        left.version.unlock();
        spin.wait();
    };
    let next = border.next();
    if let Some(next) = next {
        debug_assert!(next.prev().is_some_and(|prev| prev == border));
        debug_assert!(left.low() < border.low() && border.low() < next.low());
        next.set_prev(left);
    }
    left.set_next(next);
    left.version.unlock();
}

/// The locked ancestors, lowest first.
#[derive(Default)]
struct LockedAncestors<'g>(Vec<InteriorRef<'g>>);

fn leave_ancestors<'g>(border: BorderRef<'g>, locked: &mut LockedAncestors<'g>) {
    let mut child = border.node();
    let lock_parent = |child: NodeRef<'g>, locked: &mut LockedAncestors<'g>| {
        let parent = child
            .locked_parent()
            .expect("the leftmost path is not removed (M5)");
        parent.version.mark_splitting();
        locked.0.push(parent);
        (parent, parent.index_of(child))
    };
    let (parent, index) = loop {
        let (parent, index) = lock_parent(child, locked);
        if parent.count() > 0 {
            break (parent, index);
        }
        parent.version.mark_deleted();
        child = parent.node();
    };
    let moved = parent.key(index.saturating_sub(1));
    remove_child(parent, index);
    if index > 0 {
        return;
    }
    child = parent.node();
    loop {
        let (ancestor, index) = lock_parent(child, locked);
        if index > 0 {
            ancestor.set_key(index - 1, moved);
            return;
        }
        child = ancestor.node();
    }
}

/// Removes a child, with the separator before it, or after it when it is the first. The caller has
/// locked and marked the node.
fn remove_child(node: InteriorRef<'_>, index: usize) {
    let count = node.count();
    debug_assert!(0 < count && index <= count);
    for moving in index.saturating_sub(1)..count - 1 {
        node.set_key(moving, node.key(moving + 1));
    }
    for moving in index..count {
        node.set_child(moving, node.child(moving + 1));
    }
    node.set_count(count - 1);
}
