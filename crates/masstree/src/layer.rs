//! Making layers and maintaining their links (§4.1, §4.6.3): `deepen`, `grow`, `refresh_link`.
//!
//! The three invariants of §4.1 place a key: a key of up to 8h + 8 bytes is in layer h or above, a
//! layer's keys share the bytes of the layers above it, and two longer keys that share 8h bytes are
//! both in layer h or below. A layer is made only where an insert would break the third. The
//! paper's remove leaves layers in place. Here a layer that is left with one key is folded into the
//! entry above, as if its other keys had never existed (see `task`). The invariants hold either
//! way, and chains of one-key layers are what §4.6.5 calls pathological.
//!
//! Departures: a new layer is complete before it is linked, with both keys and with every layer
//! that their common prefix needs (the paper links a layer of one key and continues inserting). A
//! young layer's root has few slots, since most layers stay tiny (the paper counts 2.3 keys); when
//! it fills, it is replaced by a full-size one.
//!
//! Invariants:
//! - **ML1** Exactly one LAYER entry leads to a layer. Its link is the layer's root or, as it is
//!   updated lazily, a former root, which is on the layer's leftmost path.
//! - **ML2 owner-replaces-layer** Only the owner of a layer's root border node replaces or removes
//!   it. While that node is owned and not deleted, the entry above stays, so a search for the entry
//!   must succeed.

use pando_block::{BlockRef, KeyPart};
use pando_sync::sharing::NodeLock;
use pando_sync::shim::Spin;
use pando_sync::version_lock::NodeKind;

use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::find::{Found, LayerGone, find_border, look};
use crate::node::{BorderRef, Guard, NewEntry, NodeRef, WIDTH, WIDTH_YOUNG, new_root};
use crate::permutation::Permutation;
use crate::slice::{CODE_LAYER, CODE_SUFFIX, CODE_UNSTABLE, Cursor, SLICE_BYTES};
use crate::tree::Tree;
use crate::update::{Insertion, Locked, lock_border};

/// Where a descent left the layer above.
#[derive(Clone, Copy)]
pub(crate) struct Above<'g> {
    pub(crate) border: BorderRef<'g>,
    pub(crate) slice: u64,
}

/// Where two keys with the same slice diverge.
pub(crate) struct Fork<'o, 'n> {
    /// Slices that both suffixes begin with.
    shared: usize,
    old: Cursor<'o>,
    pub(crate) new: Cursor<'n>,
}

impl<'o, 'n> Fork<'o, 'n> {
    pub(crate) fn of_suffixes(old: &'o [u8], new: &'n [u8]) -> Self {
        let common = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        // Both continue after the shared slices, at least one of them with a byte.
        let shared = (common / SLICE_BYTES).min((old.len().min(new.len()) - 1) / SLICE_BYTES);
        Self {
            shared,
            old: Cursor::at(old, shared * SLICE_BYTES),
            new: Cursor::at(new, shared * SLICE_BYTES),
        }
    }

    /// A layer for each shared slice and one in which the keys diverge, with `old`'s value and
    /// `new`, whose suffix is there; nobody can see them yet. Returns the first one's root. The
    /// caller retires `old`, except its body.
    pub(crate) fn build_layers<'g>(
        &self,
        old: BlockRef<'_>,
        new: BlockRef<'_>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> BorderRef<'g> {
        let suffix = KeyPart::store(&mut context.pool, self.old.suffix());
        let old = old.rebuild(&mut context.pool, suffix);
        let mut entries = [(self.old, old), (self.new, new)].map(|(cursor, block)| NewEntry {
            slice: cursor.slice(),
            code: cursor.rank(),
            link: block.as_ptr(),
        });
        entries.sort_by_key(|entry| (entry.slice, entry.code));
        let [one, other] = &entries;
        debug_assert!((one.slice, one.code) != (other.slice, other.code));
        let mut root = young_layer(&entries, guard, context);
        for layer in (0..self.shared).rev() {
            let entry = NewEntry {
                slice: self.new.above(layer),
                code: CODE_LAYER,
                link: root.node().as_ptr().cast(),
            };
            root = young_layer(&[entry], guard, context);
        }
        context.counters.entries.add(2);
        root
    }
}

/// Turns the entry in `slot` of a border node that the caller owns into a layer.
pub(crate) fn deepen(tree: &Tree, border: BorderRef<'_>, slot: usize, root: BorderRef<'_>) {
    debug_assert_eq!(border.code(slot), CODE_SUFFIX);
    debug_assert!(root.version.peek().is_root());
    // A reader that saw the suffix must not take the layer for its value; it sees the mark in
    // between.
    if !tree.canary.is(Fault::DeepenWithoutMark) {
        border.set_code(slot, CODE_UNSTABLE);
    }
    border.set_link(slot, root.node().as_ptr().cast());
    border.set_code(slot, CODE_LAYER);
}

/// A layer of one small node that nobody can see yet.
pub(crate) fn young_layer<'g>(
    entries: &[NewEntry],
    guard: Guard<'g>,
    context: &mut Context,
) -> BorderRef<'g> {
    let root = new_root(&mut context.pool, guard, WIDTH_YOUNG);
    for (slot, entry) in entries.iter().enumerate() {
        root.fill(slot, *entry);
    }
    root.set_permutation(Permutation::ascending(entries.len()));
    context.count_node(root.node(), 1);
    context.counters.layers.add(1);
    if entries[0].code == CODE_LAYER {
        context.counters.entries.add(1);
    }
    root
}

/// Replaces a full young root, which the caller has locked, by a full-size one that also has the
/// new entry. Consumes the lock.
pub(crate) fn grow<'g>(
    tree: &Tree,
    young: BorderRef<'g>,
    insertion: Insertion,
    cursor: Cursor<'_>,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let version = NodeLock::new(NodeKind::Border, true);
    let wide = BorderRef::allocate(&mut context.pool, guard, WIDTH, version, 0);
    let old = young.permutation();
    debug_assert!(young.version.peek().is_root() && old.count() == young.width());
    debug_assert!(young.next().is_none() && young.prev().is_none());
    for index in 0..=old.count() {
        wide.fill(index, insertion.listed(young, old, index));
    }
    wide.set_permutation(Permutation::ascending(old.count() + 1));
    context.count_node(wide.node(), 1);
    // Marked before the new root is linked, so that nobody reads the old one afterwards.
    young.version.mark_deleted();
    let (above, slot) = lock_above(tree, cursor, guard, context);
    above.set_link(slot, wide.node().as_ptr().cast());
    drop(above);
    young.version.unlock();
    context.retire_node(young.node());
}

/// Locks the border node whose entry leads to the cursor's layer, and returns the entry's slot too.
/// The caller owns the layer's root border node (ML2).
pub(crate) fn lock_above<'g>(
    tree: &Tree,
    below: Cursor<'_>,
    guard: Guard<'g>,
    context: &Context,
) -> (Locked<'g>, usize) {
    let cursor = Cursor::at(below.key(), below.offset() - SLICE_BYTES);
    let mut spin = Spin::new();
    loop {
        let Ok(locked) = lock_at(tree, cursor, guard, context) else {
            // A root further up is being replaced; its link will be back soon.
            spin.wait();
            continue;
        };
        let permutation = locked.permutation();
        let position = locked.search(permutation, cursor.slice(), CODE_SUFFIX);
        if let Ok(position) = position {
            let slot = permutation.slot(position);
            if let (CODE_LAYER, Found::Layer(_)) = locked.owned_slot(slot, guard) {
                return (locked, slot);
            }
        }
        unreachable!("the entry above stays while its layer's root is owned (ML2)");
    }
}

/// Locks the border node responsible for `cursor`, which must be reachable through layers.
fn lock_at<'g>(
    tree: &Tree,
    cursor: Cursor<'_>,
    guard: Guard<'g>,
    context: &Context,
) -> Result<Locked<'g>, LayerGone> {
    let root = descend_layers(tree, cursor, guard, context)?.ok_or(LayerGone)?;
    let reached = find_border(root, cursor.slice(), &context.counters)?;
    lock_border(&reached, cursor.slice())
}

/// The root of the layer at the cursor's offset, as its link gives it; `None` when there is no such
/// layer.
pub(crate) fn descend_layers<'g>(
    tree: &Tree,
    target: Cursor<'_>,
    guard: Guard<'g>,
    context: &Context,
) -> Result<Option<NodeRef<'g>>, LayerGone> {
    let mut root = tree.root(guard);
    let mut cursor = target.at_start();
    while cursor.offset() < target.offset() {
        let (_, found) = look(root, cursor, guard, &context.counters)?;
        let Found::Layer(next) = found else {
            return Ok(None);
        };
        root = next;
        cursor = cursor.deeper();
    }
    Ok(Some(root))
}

/// Points the entry above to the layer's new root (§4.6.4: lazily, by later writers).
pub(crate) fn refresh_link(above: Above<'_>, stale: NodeRef<'_>, root: NodeRef<'_>) {
    // Only a hint for later descents: not worth waiting for.
    if above.border.version.try_lock().is_none() {
        return;
    }
    let locked = Locked::from_owned(above.border);
    let permutation = locked.permutation();
    if locked.version.peek().is_deleted() {
        return;
    }
    if let Ok(position) = locked.search(permutation, above.slice, CODE_SUFFIX) {
        let slot = permutation.slot(position);
        let stale: *mut u8 = stale.as_ptr().cast();
        if locked.code(slot) == CODE_LAYER && locked.link(slot) == stale {
            locked.set_link(slot, root.as_ptr().cast());
        }
    }
}
