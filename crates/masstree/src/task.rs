//! Deferred work (§4.6.5): purging tombstones, repairing layers, freeing dropped trees.
//!
//! Normal operations lock within one layer, but removing a layer needs the layer and the border
//! node above it. So removals are left to `maintain`, which has the key of each tombstone and
//! descends again with it. After an entry was removed, the layer that held it is checked, and then
//! the ones above it:
//!
//! | the layer is | it is | by |
//! |---|---|---|
//! | one empty border node | removed, with its entry above | [`tidy_layers`] |
//! | one border node with one value | folded: the value moves up, its suffix grows | [`tidy_layers`] |
//! | anything else | left | |
//!
//! A chain of one-key layers, which removals leave where two keys with a long common prefix were,
//! is removed at once: all of it is locked from the bottom up to the first layer that stays.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `Tasks::graves` | see `Graves` | `maintain` |
//! | `Tasks::dropped` | `drop_tree`, `maintain`: a mutex | `maintain` |
//!
//! Invariants:
//! - **MT1** A tombstone is queued once, in commit order of its session, so epochs along a queue do
//!   not decrease.
//! - **MT2** A tombstone is purged only if the key still has exactly this one, and its epoch is
//!   below the horizon (V2 tombstone-horizon).
//! - **MT3** A dropped tree is freed only when no pin is left that could have reached it.

use std::sync::Arc;

use pando_block::{BlockRef, Keep, KeyPart};
use pando_chassis::{Buried, DroppedTrees, Freed, Graves};
use pando_engine::{TreeId, ValueVersion};
use pando_sync::shim::Spin;

use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::find::{Found, LayerGone, Reached, find_border, is_of, look};
use crate::node::{BorderRef, Either, Guard, InteriorRef, NodeRef};
use crate::recall::Start;
use crate::remove::{remove_border, remove_entry};
use crate::slice::{CODE_SLICE_MAX, CODE_SUFFIX, CODE_UNSTABLE, Cursor, SLICE_BYTES};
use crate::tree::Tree;
use crate::update::{Locked, lock_border};

/// A removed key whose version is still remembered.
pub(crate) struct Tombstone {
    pub(crate) tree: TreeId,
    pub(crate) key: Box<[u8]>,
    pub(crate) version: ValueVersion,
}

/// A node of a tree that nobody can reach.
pub(crate) struct Unreachable(*mut crate::node::Node);

// SAFETY: nobody else can reach the node (MT3).
unsafe impl Send for Unreachable {}

impl Buried for Tombstone {
    fn version(&self) -> ValueVersion {
        self.version
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len() + TOMBSTONE_BLOCK_BYTES
    }
}

/// The block of a tombstone of a short key.
const TOMBSTONE_BLOCK_BYTES: usize = 16;

/// The remaining work.
pub(crate) struct Tasks {
    pub(crate) graves: Graves<Tombstone>,
    pub(crate) dropped: DroppedTrees<Tree, Nodes>,
}

/// Nodes of a dropped tree that are still to be freed; `None` until freeing begins.
type Nodes = Option<Vec<Unreachable>>;

impl Tasks {
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            graves: Graves::new(sessions_max),
            dropped: DroppedTrees::default(),
        }
    }

    /// Frees up to `steps` nodes of dropped trees; returns how many.
    pub(crate) fn free_dropped(&self, steps: usize, context: &mut Context) -> usize {
        let collector = Arc::clone(context.collector());
        let has_passed = |stamp| collector.has_passed(stamp);
        self.dropped
            .free(steps, has_passed, |tree, _, nodes, left| {
                let nodes = nodes.get_or_insert_with(|| vec![Unreachable(tree.take_root())]);
                let mut steps = 0;
                while steps < left
                    && let Some(node) = nodes.pop()
                {
                    free_node(&node, nodes, context);
                    steps += 1;
                }
                let whole = nodes.is_empty();
                Freed { steps, whole }
            })
    }
}

/// Frees a node with its values, and queues its children and layers.
fn free_node(node: &Unreachable, queue: &mut Vec<Unreachable>, context: &mut Context) {
    // SAFETY: nothing of this tree is used by anybody else (MT3), nor by us after it is freed.
    let guard = unsafe { Guard::new() };
    let pointer = std::ptr::NonNull::new(node.0).expect("a node has an address");
    // SAFETY: as above.
    let node = unsafe { NodeRef::from_raw(pointer, guard) };
    context.count_node(node, -1);
    match node.either() {
        Either::Interior(interior) => {
            queue.extend((0..=interior.count()).map(|i| Unreachable(interior.child(i).as_ptr())));
            // SAFETY: as above, freed once.
            unsafe { interior.free(&mut context.pool) };
        }
        Either::Border(border) => {
            let permutation = border.permutation();
            for position in 0..permutation.count() {
                match border.owned_slot(permutation.slot(position), guard).1 {
                    Found::Layer(mut root) => {
                        context.counters.layers.add(-1);
                        while let Some(parent) = root.parent() {
                            root = parent.node();
                        }
                        queue.push(Unreachable(root.as_ptr()));
                    }
                    Found::Value(block) => {
                        let reclaim = Keep::NOTHING.reclaimer();
                        // SAFETY: as above; a listed block was not retired (VB2 one-owner).
                        unsafe { reclaim(block.address(), &mut context.pool) };
                    }
                    Found::Absent => unreachable!("a listed slot holds something"),
                }
            }
            context.counters.entries.add(-(permutation.count() as i64));
            // SAFETY: as above, freed once.
            unsafe { border.free(&mut context.pool) };
        }
    }
}

/// Removes a tombstone from its tree, if the key still has it (MT2), and tidies up after it. Begins
/// at `start`, where a warming pass found the key, if that still holds.
pub(crate) fn purge<'g>(
    tree: &Tree,
    tombstone: &Tombstone,
    start: Option<Start<'_, 'g>>,
    guard: Guard<'g>,
    context: &mut Context,
) {
    if let Some(Start {
        reached, cursor, ..
    }) = start
        && let Ok(locked) = lock_border(&reached, cursor.slice())
        && let Ok(()) = purge_locked(tree, tombstone, locked, cursor, guard, context)
    {
        return;
    }
    while let Err(LayerGone) = purge_entry(tree, tombstone, guard, context) {
        context.counters.root_retries.add(1);
    }
}

fn purge_entry(
    tree: &Tree,
    tombstone: &Tombstone,
    guard: Guard<'_>,
    context: &mut Context,
) -> Result<(), LayerGone> {
    let mut root = tree.root(guard);
    let mut cursor = Cursor::new(&tombstone.key);
    loop {
        let (reached, found) = look(root, cursor, guard, &context.counters)?;
        match found {
            Found::Absent => return Ok(()),
            Found::Layer(next) => {
                root = next;
                cursor = cursor.deeper();
                continue;
            }
            Found::Value(_) => {}
        }
        let locked = lock_border(&reached, cursor.slice())?;
        if let Ok(()) = purge_locked(tree, tombstone, locked, cursor, guard, context) {
            return Ok(());
        }
    }
}

/// It became a layer before it was locked: look again.
struct Deeper;

/// Removes the tombstone from the border node that is responsible for it, if it is there.
fn purge_locked<'g>(
    tree: &Tree,
    tombstone: &Tombstone,
    locked: Locked<'g>,
    cursor: Cursor<'_>,
    guard: Guard<'g>,
    context: &mut Context,
) -> Result<(), Deeper> {
    let permutation = locked.permutation();
    let Ok(position) = locked.search(permutation, cursor.slice(), cursor.rank()) else {
        return Ok(());
    };
    let found = locked.owned_slot(permutation.slot(position), guard).1;
    let Found::Value(block) = found else {
        return Err(Deeper);
    };
    if is_of(block, cursor) && block.is_tombstone() && block.version() == tombstone.version {
        take_out(tree, cursor, locked, (position, block), guard, context);
        tree.counts.add(context.number(), 0, -1);
    }
    Ok(())
}

/// Removes the value or tombstone at `position` from a node that the caller has locked, retires its
/// block, and tidies up after it, in the cursor's layer and above.
#[inline]
pub(crate) fn take_out<'g>(
    tree: &Tree,
    cursor: Cursor<'_>,
    locked: Locked<'g>,
    (position, block): (usize, BlockRef<'g>),
    guard: Guard<'g>,
    context: &mut Context,
) {
    let left = remove_entry(*locked, position, context);
    finish_removal(tree, locked, left, context);
    context.retire_block(tree, block, Keep::NOTHING);
    // A layer with two entries in one node stays as it is.
    if left < 2 {
        tidy_layers(tree, cursor.key(), cursor.offset(), guard, context);
    }
}

/// Removes a border node from which an entry was removed, if it is empty and may go.
#[inline]
fn finish_removal(tree: &Tree, locked: Locked<'_>, left: usize, context: &mut Context) {
    if left == 0 && locked.prev().is_some() {
        remove_border(tree, locked.into_owned(), context);
    }
}

/// Repairs the layer at `offset` of `key`, and those above it as long as there is something to do.
/// O(length / 8) however many layers are removed: a chain is removed at once.
pub(crate) fn tidy_layers(
    tree: &Tree,
    key: &[u8],
    mut offset: usize,
    guard: Guard<'_>,
    context: &mut Context,
) {
    let mut spin = Spin::new();
    while offset > 0 {
        match tidy_chain(tree, key, offset, guard, context) {
            Ok(Some(changed)) => offset = changed,
            Ok(None) => return,
            // A layer on the way was just removed or replaced.
            Err(LayerGone) => spin.wait(),
        }
    }
}

/// The nodes of a layer that consists of one border node and the interior nodes above it, locked.
struct Spine<'g> {
    border: Locked<'g>,
    interiors: Vec<InteriorRef<'g>>,
}

impl Drop for Spine<'_> {
    fn drop(&mut self) {
        for interior in &self.interiors {
            interior.version.unlock();
        }
    }
}

impl<'g> Spine<'g> {
    /// Locks what is above `border`; returns it if the layer has other nodes.
    fn lock(border: Locked<'g>) -> Result<Self, Locked<'g>> {
        if border.next().is_some() || border.prev().is_some() {
            return Err(border);
        }
        let mut interiors = Vec::new();
        let mut node = border.node();
        while let Some(parent) = node.locked_parent() {
            interiors.push(parent);
            if parent.count() > 0 {
                // Another remover has emptied the list but not yet this node. It will tidy up.
                for interior in interiors {
                    interior.version.unlock();
                }
                return Err(border);
            }
            node = parent.node();
        }
        Ok(Self { border, interiors })
    }

    /// Marks all nodes deleted: from now on nobody reads the layer.
    fn mark_deleted(&self) {
        self.border.version.mark_deleted();
        for interior in &self.interiors {
            interior.version.mark_deleted();
        }
    }

    /// Unlocks and retires all nodes.
    fn retire(mut self, context: &mut Context) {
        context.counters.layers.add(-1);
        let border = *self.border;
        let interiors = std::mem::take(&mut self.interiors);
        drop(self);
        context.retire_node(border.node());
        for interior in interiors {
            interior.version.unlock();
            context.retire_node(interior.node());
        }
    }
}

/// What a layer that can be removed leaves behind in the layer above.
#[derive(Clone, Copy)]
enum Rest<'g> {
    Nothing,
    /// A value, with its code and slice in the layer.
    Value(u8, u64, BlockRef<'g>),
}

impl<'g> Rest<'g> {
    /// What the layer of a border node that the caller has locked leaves, if the node is all of it;
    /// `None` if it is to stay.
    fn of_layer(border: BorderRef<'g>, guard: Guard<'g>) -> Option<Self> {
        let permutation = border.permutation();
        let slot = permutation.slot(0);
        match permutation.count() {
            0 => Some(Self::Nothing),
            1 => match border.owned_slot(slot, guard) {
                (code, Found::Value(block)) => Some(Self::Value(code, border.slice(slot), block)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Repairs the layer at `offset`, together with those above it that hold nothing else; returns the
/// offset of the layer that changed.
fn tidy_chain(
    tree: &Tree,
    key: &[u8],
    offset: usize,
    guard: Guard<'_>,
    context: &mut Context,
) -> Result<Option<usize>, LayerGone> {
    let mut path = Vec::new();
    let mut root = tree.root(guard);
    for above in (0..offset).step_by(SLICE_BYTES) {
        let (reached, found) = look(root, Cursor::at(key, above), guard, &context.counters)?;
        let Found::Layer(next) = found else {
            return Ok(None);
        };
        path.push(reached);
        root = next;
    }
    // The leftmost border node is responsible for the lowest slice (M5 leftmost-stays).
    let reached = find_border(root, 0, &context.counters)?;
    let locked = lock_border(&reached, 0)?;
    let Some(rest) = Rest::of_layer(*locked, guard) else {
        return Ok(None);
    };
    let Ok(lowest) = Spine::lock(locked) else {
        return Ok(None);
    };
    let chain = Chain::lock(lowest, path, key)?;
    let changed = chain.cursor.offset();
    chain.replace(tree, rest, context);
    Ok(Some(changed))
}

/// Layers that each lead only to the next, and the border node above them, all locked.
struct Chain<'k, 'g> {
    /// Lowest first.
    layers: Vec<Spine<'g>>,
    above: Locked<'g>,
    /// The key in the layer above.
    cursor: Cursor<'k>,
}

impl<'k, 'g> Chain<'k, 'g> {
    /// Locks what is above the lowest layer, up to the first that stays (M6 locks-upward: locks go
    /// up). `path` is the way of a descent to `key`.
    fn lock(
        lowest: Spine<'g>,
        mut path: Vec<Reached<'g>>,
        key: &'k [u8],
    ) -> Result<Self, LayerGone> {
        let mut layers = vec![lowest];
        loop {
            let Some(reached) = path.pop() else {
                unreachable!("the first layer has one entry at least, and stays")
            };
            let cursor = Cursor::at(key, path.len() * SLICE_BYTES);
            let locked = lock_border(&reached, cursor.slice())?;
            let stays = path.is_empty() || locked.permutation().count() > 1;
            let spine = if stays {
                Err(locked)
            } else {
                Spine::lock(locked)
            };
            match spine {
                Ok(spine) => layers.push(spine),
                Err(above) => {
                    return Ok(Self {
                        layers,
                        above,
                        cursor,
                    });
                }
            }
        }
    }

    /// Removes the layers, and puts the lowest one's rest in place of the entry above.
    fn replace(self, tree: &Tree, rest: Rest<'_>, context: &mut Context) {
        let Self {
            layers,
            above,
            cursor,
        } = self;
        let permutation = above.permutation();
        // While we own the lowest layer's only node, nobody can have cut it off
        // (ML2 owner-replaces-layer).
        let position = above.search(permutation, cursor.slice(), CODE_SUFFIX);
        let position = position.expect("the entry above a layer stays while the layer is owned");
        if !tree.canary.is(Fault::LayerGoesWithoutMark) {
            layers.iter().for_each(Spine::mark_deleted);
        }
        let count = layers.len() as i64;
        match rest {
            Rest::Value(code, slice, block) => {
                let mut suffix = cursor.suffix()[..(layers.len() - 1) * SLICE_BYTES].to_vec();
                let slice_bytes = usize::from(code.min(CODE_SLICE_MAX));
                suffix.extend_from_slice(&slice.to_be_bytes()[..slice_bytes]);
                suffix.extend_from_slice(block.key_part());
                let slot = permutation.slot(position);
                fold(tree, *above, slot, block, &suffix, context);
                drop(above);
                context.counters.entries.add(-count);
                context.counters.layer_folds_total.add(count);
                let keep = Keep {
                    body: true,
                    key: false,
                };
                context.retire_block(tree, block, keep);
            }
            Rest::Nothing => {
                let left = remove_entry(*above, position, context);
                finish_removal(tree, above, left, context);
                context.counters.entries.add(1 - count);
                context.counters.layer_removals_total.add(count);
            }
        }
        for spine in layers {
            spine.retire(context);
        }
    }
}

/// Turns the LAYER entry in `slot` back into a value with this suffix. The caller has locked.
fn fold(
    tree: &Tree,
    above: BorderRef<'_>,
    slot: usize,
    block: BlockRef<'_>,
    suffix: &[u8],
    context: &mut Context,
) {
    let suffix = KeyPart::store(&mut context.pool, suffix);
    let moved = block.rebuild(&mut context.pool, suffix);
    // Unlike a new layer, a fold bumps vinsert: a reader that saw the suffix from before the layer
    // existed must not take the layer's link for its value.
    if !tree.canary.is(Fault::FoldWithoutMark) {
        above.version.mark_inserting();
    }
    above.set_code(slot, CODE_UNSTABLE);
    above.set_link(slot, moved.as_ptr());
    above.set_code(slot, CODE_SUFFIX);
}
