//! Finding the border node responsible for a slice (§4.6.4, figure 6), and reading entries there.
//!
//! No lost keys (§4.4): a reader returns what it read of a node only under a version that did not
//! change meanwhile, and it got there through parents that had not changed when the child's version
//! was taken. A split or a removal marks the lower node before the upper one, so it has changed one
//! of the two. Inserts send a reader back to the node, splits and removals to the root.
//!
//! Departure: a child's version is loaded only after its parent was validated again
//! (M2 validate-then-follow), so a stale child pointer is never followed. The paper relies on
//! type-stable memory there.
//!
//! Everything on a get's path is compiled into one function: a call returns such results through
//! memory, and the three calls take a tenth of a get of ten million keys (docs/BENCHMARKS.md).

use std::ptr::NonNull;

use pando_block::{BlockRef, KeyPartRef};
use pando_sync::shim::Spin;
use pando_sync::version_lock::NodeVersion;

use crate::counters::Counters;
use crate::node::{BorderRef, Either, Guard, InteriorRef, NodeRef};
use crate::permutation::Permutation;
use crate::slice::{CODE_LAYER, CODE_SUFFIX, CODE_UNSTABLE, Cursor, SLICE_BYTES};

/// A border node and the version under which it was found responsible.
#[derive(Clone, Copy)]
pub(crate) struct Reached<'g> {
    pub(crate) border: BorderRef<'g>,
    pub(crate) version: NodeVersion,
    /// The layer's root at that time.
    pub(crate) root: NodeRef<'g>,
}

/// The layer was removed or its root replaced: descend again from the tree's first layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerGone;

/// The content of a border node for a `(slice, rank)`.
#[derive(Clone, Copy)]
pub(crate) enum Found<'g> {
    /// Nothing.
    Absent,
    /// A value or tombstone; at rank 9, its suffix is still to be compared.
    Value(BlockRef<'g>),
    /// A deeper layer; its root as the link gives it, perhaps stale.
    Layer(NodeRef<'g>),
}

/// Climbs from a perhaps stale root to the root (figure 6, first lines).
#[inline]
pub(crate) fn current_root(mut root: NodeRef<'_>) -> Result<(NodeRef<'_>, NodeVersion), LayerGone> {
    loop {
        let version = root.version.stable();
        if version.is_deleted() {
            return Err(LayerGone);
        }
        if version.is_root() {
            return Ok((root, version));
        }
        // A node that is not a root has a parent: it got one before its root bit was cleared.
        match root.parent() {
            Some(parent) => root = parent.node(),
            None => return Err(LayerGone),
        }
    }
}

/// The border node responsible for `slice` in the layer under `root` (figure 6).
#[inline]
pub(crate) fn find_border<'g>(
    root: NodeRef<'g>,
    slice: u64,
    counters: &Counters,
) -> Result<Reached<'g>, LayerGone> {
    find_border_beside::<0>(root, slice, counters)
}

/// Like [`find_border`]; also prefetches the border node `BESIDE` places away under the same
/// parent, if there is one.
#[expect(clippy::inline_always, reason = "see the header")]
#[inline(always)]
pub(crate) fn find_border_beside<'g, const BESIDE: isize>(
    root: NodeRef<'g>,
    slice: u64,
    counters: &Counters,
) -> Result<Reached<'g>, LayerGone> {
    'root: loop {
        let (root, mut version) = current_root(root)?;
        let mut node = root;
        loop {
            let interior = match node.either_at(version) {
                Either::Border(border) => {
                    return Ok(Reached {
                        border,
                        version,
                        root,
                    });
                }
                Either::Interior(interior) => interior,
            };
            match step_down::<BESIDE>(interior, slice, version) {
                Ok((child, child_version)) => (node, version) = (child, child_version),
                Err(Retry::Here(again)) => {
                    counters.local_retries.add(1);
                    version = again;
                }
                Err(Retry::FromRoot) => {
                    counters.root_retries.add(1);
                    continue 'root;
                }
            }
        }
    }
}

/// How to continue after a failed validation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retry {
    /// The node took an insert: look again, at this version.
    Here(NodeVersion),
    /// Keys may have moved elsewhere.
    FromRoot,
}

/// One step down, validated hand over hand. As a call it would return its result through memory.
#[expect(
    clippy::inline_always,
    reason = "7 % of single gets (docs/BENCHMARKS.md)"
)]
#[inline(always)]
pub(crate) fn step_down<const BESIDE: isize>(
    interior: InteriorRef<'_>,
    slice: u64,
    version: NodeVersion,
) -> Result<(NodeRef<'_>, NodeVersion), Retry> {
    if let Some(child) = interior.child_for::<BESIDE>(slice, version) {
        let child_version = child.version.stable();
        // The child's version was loaded before its parent is checked: a later split of the child
        // changes the former, an earlier one has changed the latter.
        if interior.version.unchanged_since(version) {
            return Ok((child, child_version));
        }
    }
    let again = interior.version.stable();
    if again.is_deleted() || again.has_split_since(version) {
        return Err(Retry::FromRoot);
    }
    Err(Retry::Here(again))
}

/// Moves right from `border`, if needed, to the border node that is responsible for `slice` now;
/// returns it with its version (figure 7, the `forward` loop).
pub(crate) fn settle(
    mut border: BorderRef<'_>,
    slice: u64,
) -> Result<(BorderRef<'_>, NodeVersion), LayerGone> {
    loop {
        let version = border.version.stable();
        if version.is_deleted() {
            return Err(LayerGone);
        }
        match border.next() {
            Some(next) if slice >= next.low() => border = next,
            // A split after `version` was taken changes it; the reader's check sees that.
            _ => return Ok((border, version)),
        }
    }
}

/// The entry of the layer under `root` for the cursor's slice and rank, and where it is.
#[expect(clippy::inline_always, reason = "see the header")]
#[inline(always)]
pub(crate) fn look<'g>(
    root: NodeRef<'g>,
    cursor: Cursor<'_>,
    guard: Guard<'g>,
    counters: &Counters,
) -> Result<(Reached<'g>, Found<'g>), LayerGone> {
    let (slice, rank) = (cursor.slice(), cursor.rank());
    let mut reached = find_border(root, slice, counters)?;
    let mut spin = Spin::new();
    loop {
        if reached.version.is_deleted() {
            return Err(LayerGone);
        }
        debug_assert!(slice >= reached.border.low(), "M3");
        if let Some(found) = reached.border.read(slice, rank, reached.version, guard) {
            return Ok((reached, found));
        }
        counters.local_retries.add(1);
        // An unstable entry changes no version that could be waited for.
        spin.wait();
        (reached.border, reached.version) = settle(reached.border, slice)?;
    }
}

/// Whether a block found at the cursor's slice and rank is of the cursor's key.
#[inline]
pub(crate) fn is_of(block: BlockRef<'_>, cursor: Cursor<'_>) -> bool {
    if cursor.rank() != CODE_SUFFIX {
        return true;
    }
    let suffix = cursor.suffix();
    if let Some((KeyPartRef { bytes, room }, _)) = block.plain_parts()
        && (1..=SLICE_BYTES).contains(&bytes)
        && let Some(word) = room.first_chunk()
    {
        // Short ones as one word, without a call: a key has more bytes than its suffix.
        let others = 8 * (SLICE_BYTES - bytes) as u32;
        let own = u64::from_be_bytes(*word) >> others;
        return bytes == suffix.len() && (own ^ cursor.last_bytes()) << others == 0;
    }
    block.key_part() == suffix
}

impl<'g> BorderRef<'g> {
    /// Reads the entry for `(slice, rank)` under `version`; `None` when the node has changed or the
    /// entry is unstable.
    #[expect(clippy::inline_always, reason = "see the header")]
    #[inline(always)]
    pub(crate) fn read(
        self,
        slice: u64,
        rank: u8,
        version: NodeVersion,
        guard: Guard<'g>,
    ) -> Option<Found<'g>> {
        match self.slot_of(self.permutation(), slice, rank) {
            Some(slot) => self.read_slot(slot, version, guard).map(|(_, found)| found),
            None => self
                .version
                .unchanged_since(version)
                .then_some(Found::Absent),
        }
    }

    /// Like [`Self::read`], for a node that has been searched already.
    #[inline]
    pub(crate) fn read_place(
        self,
        permutation: Permutation,
        place: Result<usize, usize>,
        version: NodeVersion,
        guard: Guard<'g>,
    ) -> Option<Found<'g>> {
        let Ok(position) = place else {
            return self
                .version
                .unchanged_since(version)
                .then_some(Found::Absent);
        };
        self.read_slot(permutation.slot(position), version, guard)
            .map(|(_, found)| found)
    }

    /// Reads the entry in `slot`, with its code, in the same way.
    #[inline]
    pub(crate) fn read_slot(
        self,
        slot: usize,
        version: NodeVersion,
        guard: Guard<'g>,
    ) -> Option<(u8, Found<'g>)> {
        let code = self.code(slot);
        let link = self.link(slot);
        // The link must belong to the code. A new layer changes both but no version (§4.6.3); it
        // shows the unstable mark in between. A fold bumps vinsert, which is checked last.
        if code == CODE_UNSTABLE
            || self.code(slot) != code
            || !self.version.unchanged_since(version)
        {
            return None;
        }
        // SAFETY: loaded under a version that was validated since (M2 validate-then-follow), with a
        // code that did not change around the load.
        Some((code, unsafe { Self::found(code, link, guard) }))
    }

    /// Reads the entry in `slot`; the caller owns the lock.
    pub(crate) fn owned_slot(self, slot: usize, guard: Guard<'g>) -> (u8, Found<'g>) {
        let code = self.code(slot);
        debug_assert_ne!(code, CODE_UNSTABLE, "an owner leaves no entry unstable");
        // SAFETY: nobody changes the slot while its lock is held, and it is listed.
        (code, unsafe { Self::found(code, self.link(slot), guard) })
    }

    /// # Safety
    /// `link` is what a listed entry with this code holds (M2 validate-then-follow).
    #[inline]
    pub(crate) unsafe fn found(code: u8, link: *mut u8, guard: Guard<'g>) -> Found<'g> {
        if code == CODE_LAYER {
            // SAFETY: the link of a LAYER entry leads to a node of the layer (M1 reachable-lives).
            return Found::Layer(unsafe { NodeRef::from_link(link, guard) });
        }
        debug_assert!(code <= CODE_SUFFIX, "a listed slot was filled");
        let block = NonNull::new(link).expect("a listed entry has a link");
        // SAFETY: any other listed entry holds a value's block (M1 reachable-lives).
        Found::Value(unsafe { BlockRef::from_address(block, guard) })
    }
}
