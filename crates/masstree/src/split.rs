//! Splitting full nodes (§4.6.4, figure 5), with the sequential optimisation at both edges (§4.3).
//!
//! A border node's higher keys move to a new right sibling. Then the sibling is inserted into the
//! parent, which may split in turn. Locks and marks go up hand over hand: a node stays locked and
//! marked until its parent is marked, so a reader that saw the parent unchanged saw the child's
//! version from before the split.
//!
//! At the right edge (the new key is last in a node without right sibling) the old node keeps its
//! keys and the new one goes alone into the sibling. At the left edge (first in the leftmost node)
//! the old keys move to the sibling and the new one stays alone; the paper does only the former.
//!
//! Recovery inserts several sorted runs of keys, each between other keys. A node into which a run
//! has put its last key is split where the run's next key belongs. Keys of another run behind that
//! point move to the sibling once, and the run leaves packed nodes behind, wherever it is.

use pando_sync::sharing::NodeLock;
use pando_sync::version_lock::NodeKind;

use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::node::{BorderRef, Guard, InteriorRef, NewEntry, NodeRef, WIDTH};
use crate::permutation::Permutation;
use crate::slice::{CODE_NEVER, rank_of_code};
use crate::tree::Tree;
use crate::update::Insertion;

/// Where a node that splits is in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Left,
    Right,
    Middle,
    /// Behind the last node of a run, which continues there.
    Run,
}

/// Splits a full border node, which the caller has locked, to insert an entry. Consumes the lock;
/// returns the node that has the entry.
pub(crate) fn split<'g>(
    tree: &Tree,
    border: BorderRef<'g>,
    insertion: Insertion,
    layer_offset: usize,
    guard: Guard<'g>,
    context: &mut Context,
) -> BorderRef<'g> {
    let permutation = border.permutation();
    debug_assert_eq!(permutation.count(), WIDTH);
    let entries: [NewEntry; WIDTH + 1] =
        std::array::from_fn(|index| insertion.listed(border, permutation, index));
    debug_assert!(
        entries.is_sorted_by_key(|entry| (entry.slice, rank_of_code(entry.code))),
        "in order"
    );
    let position = insertion.position;
    let edge = if position == WIDTH && border.next().is_none() {
        Edge::Right
    } else if position == 0 && border.prev().is_none() {
        Edge::Left
    } else {
        Edge::Middle
    };
    let run = insertion.in_run.then_some(position);
    let cut = choose_cut(&entries, edge, run);
    if !tree.canary.is(Fault::SplitWithoutMark) {
        border.version.mark_splitting();
    }
    let version = NodeLock::new_splitting(NodeKind::Border);
    let low = entries[cut].slice;
    let right = BorderRef::allocate(&mut context.pool, guard, WIDTH, version, low);
    for (slot, entry) in entries[cut..].iter().enumerate() {
        right.fill(slot, *entry);
    }
    right.set_permutation(Permutation::ascending(entries.len() - cut));
    keep_left(border, insertion, cut);
    link_behind(border, right);
    context.count_node(right.node(), 1);
    context.counters.splits_total.add(1);
    let halves = Halves {
        left: border.node(),
        right: right.node(),
        separator: low,
    };
    ascend(tree, halves, edge, layer_offset, guard, context);
    if position < cut { border } else { right }
}

/// Links a new node with `entries`, at least one, behind a border node that the caller has locked:
/// a split in which nothing moves. The entries are above those of the node and below those of its
/// right sibling. Consumes the lock; returns the new node.
pub(crate) fn extend<'g>(
    tree: &Tree,
    border: BorderRef<'g>,
    entries: &[NewEntry],
    layer_offset: usize,
    guard: Guard<'g>,
    context: &mut Context,
) -> BorderRef<'g> {
    debug_assert!(
        entries.is_sorted_by_key(|entry| (entry.slice, rank_of_code(entry.code))),
        "in order"
    );
    // Readers that found the node responsible for keys that are the new one's now look again.
    if !tree.canary.is(Fault::SplitWithoutMark) {
        border.version.mark_splitting();
    }
    let version = NodeLock::new_splitting(NodeKind::Border);
    let low = entries[0].slice;
    let right = BorderRef::allocate(&mut context.pool, guard, WIDTH, version, low);
    for (slot, entry) in entries.iter().enumerate() {
        right.fill(slot, *entry);
    }
    right.set_permutation(Permutation::ascending(entries.len()));
    link_behind(border, right);
    context.count_node(right.node(), 1);
    let halves = Halves {
        left: border.node(),
        right: right.node(),
        separator: low,
    };
    ascend(tree, halves, Edge::Run, layer_offset, guard, context);
    right
}

/// Inserts a new node into the list behind one that the caller has locked.
fn link_behind<'g>(border: BorderRef<'g>, right: BorderRef<'g>) {
    // M3 low-is-constant.
    debug_assert!(border.low() < right.low());
    right.set_next(border.next());
    right.set_prev(border);
    if let Some(next) = border.next() {
        debug_assert!(right.low() < next.low());
        debug_assert!(next.prev().is_some_and(|prev| prev == border));
        // Guarded by the lock of its left sibling, which is this node (§4.5).
        next.set_prev(right);
    }
    border.set_next(Some(right));
}

/// Keeps the first `cut` of the keys, the new one counted, in the old node.
fn keep_left(border: BorderRef<'_>, insertion: Insertion, cut: usize) {
    let inserts = insertion.position < cut;
    let kept = cut - usize::from(inserts);
    let mut left = border.permutation().truncate(kept);
    for index in kept..WIDTH {
        // Readers that know these slots fail validation by the split, so the slots are as good as
        // new (M7 slot-reuse-marked).
        border.set_code(left.slot(index), CODE_NEVER);
    }
    if inserts {
        let slot;
        (left, slot) = left.insert(insertion.position);
        border.fill(slot, insertion.entry);
    }
    border.set_permutation(left);
}

/// How many keys stay left; `run` is the position of a run's next key. Keys with the same slice
/// stay together (M4 one-slice-one-node). A slice has at most ten, so a place to cut always exists.
fn choose_cut(entries: &[NewEntry; WIDTH + 1], edge: Edge, run: Option<usize>) -> usize {
    let valid = |cut: usize| entries[cut - 1].slice != entries[cut].slice;
    if let Some(cut) = run.map(|position| (position + 1).min(WIDTH))
        && valid(cut)
    {
        return cut;
    }
    match edge {
        Edge::Right if valid(WIDTH) => return WIDTH,
        Edge::Left if valid(1) => return 1,
        _ => {}
    }
    let middle = entries.len() / 2;
    (0..middle)
        .flat_map(|distance| [middle - distance, middle + distance])
        .find(|cut| valid(*cut))
        .expect("at most ten keys of a layer have the same slice")
}

/// A node that has split, both halves locked and marked.
struct Halves<'g> {
    left: NodeRef<'g>,
    right: NodeRef<'g>,
    separator: u64,
}

fn ascend<'g>(
    tree: &Tree,
    mut halves: Halves<'g>,
    edge: Edge,
    layer_offset: usize,
    guard: Guard<'g>,
    context: &mut Context,
) {
    loop {
        let Halves {
            left,
            right,
            separator,
        } = halves;
        let Some(parent) = left.locked_parent() else {
            new_layer_root(tree, &halves, layer_offset, guard, context);
            left.version.unlock();
            right.version.unlock();
            return;
        };
        if parent.count() < WIDTH {
            parent.version.mark_inserting();
            insert_child(parent, left, right, separator);
            left.version.unlock();
            right.version.unlock();
            parent.version.unlock();
            return;
        }
        parent.version.mark_splitting();
        left.version.unlock();
        let version = NodeLock::new_splitting(parent.version.peek().kind());
        let sibling = InteriorRef::allocate(&mut context.pool, guard, version);
        let separator = split_interior(parent, sibling, &halves, edge);
        right.version.unlock();
        context.count_node(sibling.node(), 1);
        context.counters.splits_total.add(1);
        halves = Halves {
            left: parent.node(),
            right: sibling.node(),
            separator,
        };
    }
}

/// The layer's root has split: an interior node with both halves becomes the root.
fn new_layer_root<'g>(
    tree: &Tree,
    halves: &Halves<'g>,
    layer_offset: usize,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let (left, right) = (halves.left.version.peek(), halves.right.version.peek());
    debug_assert!(left.is_root() && !right.is_root() && left.kind() == right.kind());
    let kind = left.kind().above();
    let version = NodeLock::new(kind, true);
    let root = InteriorRef::allocate(&mut context.pool, guard, version);
    root.set_key(0, halves.separator);
    root.set_child(0, halves.left);
    root.set_child(1, halves.right);
    root.set_count(1);
    context.count_node(root.node(), 1);
    halves.left.set_parent(root);
    halves.right.set_parent(root);
    halves.left.version.set_root(false);
    if layer_offset == 0 {
        tree.set_root(root.node());
    }
}

/// Inserts `right` after `left`. The caller has locked and marked `parent`.
fn insert_child<'g>(
    parent: InteriorRef<'g>,
    left: NodeRef<'g>,
    right: NodeRef<'g>,
    separator: u64,
) {
    let (index, count) = (parent.index_of(left), parent.count());
    debug_assert!(index == 0 || parent.key(index - 1) < separator);
    debug_assert!(index == count || separator < parent.key(index));
    right.set_parent(parent);
    for moving in (index..count).rev() {
        parent.set_child(moving + 2, parent.child(moving + 1));
        parent.set_key(moving + 1, parent.key(moving));
    }
    parent.set_child(index + 1, right);
    parent.set_key(index, separator);
    parent.set_count(count + 1);
}

/// Distributes a full interior node's children and one more between it and `sibling`; returns the
/// separator between the two.
fn split_interior<'g>(
    node: InteriorRef<'g>,
    sibling: InteriorRef<'g>,
    halves: &Halves<'g>,
    edge: Edge,
) -> u64 {
    let at = node.index_of(halves.left);
    let keys: [u64; WIDTH + 1] = std::array::from_fn(|index| {
        if index == at {
            halves.separator
        } else {
            node.key(index - usize::from(index > at))
        }
    });
    debug_assert!(keys.is_sorted_by(|one, next| one < next));
    let children: [NodeRef<'g>; WIDTH + 2] = std::array::from_fn(|index| {
        if index == at + 1 {
            halves.right
        } else {
            node.child(index - usize::from(index > at + 1))
        }
    });
    // The keys that stay; the next one becomes the separator.
    let kept = match edge {
        Edge::Right if at == WIDTH => WIDTH - 1,
        Edge::Left if at == 0 => 1,
        Edge::Run => (at + 1).min(WIDTH - 1),
        _ => keys.len() / 2,
    };
    for (index, child) in children[kept + 1..].iter().enumerate() {
        // A parent pointer is guarded by the parent's lock: both parents are ours (§4.5).
        child.set_parent(sibling);
        sibling.set_child(index, *child);
    }
    for (index, key) in keys[kept + 1..].iter().enumerate() {
        sibling.set_key(index, *key);
    }
    sibling.set_count(WIDTH - kept);
    if at < kept {
        halves.right.set_parent(node);
    }
    for (index, child) in children[..=kept].iter().enumerate() {
        node.set_child(index, *child);
    }
    for (index, key) in keys[..kept].iter().enumerate() {
        node.set_key(index, *key);
    }
    node.set_count(kept);
    keys[kept]
}
