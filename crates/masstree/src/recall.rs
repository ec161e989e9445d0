//! What a warming pass found, for the operations that follow it under the same pin.
//!
//! A batch is warmed as a whole and then executed key by key. Without this module each execution
//! would descend once more through nodes that are in the cache, which costs about as much as the
//! warming. The paper has no such pass: its `find border` begins at a root each time.
//!
//! A *spot* is a border node, the version under which it was responsible for a key, and the key's
//! position. It is a hint in two ways. The key's bytes tell whether it is the spot of the key in
//! question; the node tells whether it still holds, as for a reader that was delayed between the
//! descent and the reading of the node. If either check fails, the operation descends. An update
//! locks the node and moves right from there if it has split, as after its own descent; only a
//! removed node or a new layer sends it back to the root.
//!
//! A warming pass is a read and writes no links (§4.6.4). So a spot records whether the way to it
//! led over a link to a root that its layer has outgrown. In that case an update descends, which
//! refreshes such links and spares all later descents the climb.
//!
//! Invariants:
//! - **MH1 spots-under-pin** Spots are used only under the session's pin under which they were
//!   found, so their nodes live (M1 reachable-lives). The session forgets them when its last pin
//!   ends.
//! - **MH2 spot-of-its-key** A spot answers for its own key only: the tree, the slices above the
//!   layer, the slice and the rank are compared, and a suffix with the block's.
//!
//! Deliberately absent: spots below [`PREFIX_SLICES`] layers.

use std::ptr::NonNull;

use pando_block::BlockRef;
use pando_engine::{Key, TreeId};
use pando_sync::version_lock::NodeVersion;

use crate::canary::{Canary, Fault};
use crate::find::{Found, Reached, is_of};
use crate::node::{Border, BorderRef, Guard};
use crate::permutation::Permutation;
use crate::slice::{Cursor, SLICE_BYTES};
use crate::tree::Tree;

/// Slices above its layer that a spot remembers.
const PREFIX_SLICES: usize = 2;

/// Most keys whose spots are remembered: those of one call.
pub(crate) const SPOTS_MAX: usize = 128;

/// The border node where a descent ended, as it was read there.
#[derive(Clone, Copy)]
pub(crate) struct DescentEnd<'g> {
    pub(crate) border: BorderRef<'g>,
    pub(crate) version: NodeVersion,
    pub(crate) permutation: Permutation,
    /// The key's position in the permutation, if it is listed.
    pub(crate) position: Option<u8>,
}

/// Where a key is, or would be, in a border node.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    border: NonNull<Border>,
    version: NodeVersion,
    permutation: Permutation,
    prefix: [u64; PREFIX_SLICES],
    slice: u64,
    tree: TreeId,
    layer: u8,
    rank: u8,
    /// The key's position in the permutation, if it is listed.
    position: Option<u8>,
    /// A link on the way is to be refreshed.
    climbed: bool,
}

/// The spot belongs to another key, or its node has changed: descend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale;

/// Where an update may begin.
#[derive(Clone, Copy)]
pub(crate) struct Start<'k, 'g> {
    pub(crate) reached: Reached<'g>,
    pub(crate) cursor: Cursor<'k>,
    /// Where the key was.
    pub(crate) position: Option<usize>,
}

/// The spots of a batch, by the index of their key.
#[derive(Default)]
pub(crate) struct Spots {
    spots: Vec<Option<Spot>>,
    /// The spot for the next operation.
    next: Option<usize>,
}

// SAFETY: spots are followed under the session's pin only (MH1), and it moves with the session.
unsafe impl Send for Spots {}

impl Spot {
    /// The spot of the cursor's key; `None` in a layer too far down.
    #[inline]
    pub(crate) fn new(
        tree: &Tree,
        cursor: Cursor<'_>,
        end: DescentEnd<'_>,
        climbed: bool,
    ) -> Option<Self> {
        let layer = cursor.offset() / SLICE_BYTES;
        let mut prefix = [0; PREFIX_SLICES];
        for (above, slice) in prefix.get_mut(..layer)?.iter_mut().enumerate() {
            *slice = cursor.above(above);
        }
        Some(Self {
            border: end.border.pointer(),
            version: end.version,
            permutation: end.permutation,
            prefix,
            slice: cursor.slice(),
            tree: tree.id,
            layer: layer as u8,
            rank: cursor.rank(),
            position: end.position,
            climbed,
        })
    }

    /// The cursor at this spot, if it belongs to the key (MH2).
    #[inline]
    fn cursor<'k>(&self, key: Key<'k>) -> Option<Cursor<'k>> {
        let layer = usize::from(self.layer);
        let offset = layer * SLICE_BYTES;
        if self.tree != key.tree || key.bytes.len() < offset {
            return None;
        }
        let cursor = Cursor::at(key.bytes, offset);
        let mut same = cursor.slice() == self.slice && cursor.rank() == self.rank;
        for above in 0..layer {
            same &= cursor.above(above) == self.prefix[above];
        }
        same.then_some(cursor)
    }

    /// Whether a link on the way was to be refreshed.
    #[cfg(all(test, loom))]
    pub(crate) fn climbed(self) -> bool {
        self.climbed
    }

    /// # Safety
    /// The session has been pinned since the spot was found (MH1).
    #[inline]
    unsafe fn border<'g>(&self, guard: Guard<'g>) -> BorderRef<'g> {
        // SAFETY: the node was reachable under this pin, so it lives (M1 reachable-lives).
        unsafe { BorderRef::from_raw(self.border, guard) }
    }

    /// The content of the spot, if it can be told without a descent.
    ///
    /// # Safety
    /// The session has been pinned since the spot was found (MH1).
    #[inline]
    pub(crate) unsafe fn read<'g>(
        &self,
        key: Key<'_>,
        canary: &Canary,
        guard: Guard<'g>,
    ) -> Result<Option<BlockRef<'g>>, Stale> {
        let cursor = self.cursor(key).ok_or(Stale)?;
        // SAFETY: as the caller says.
        let border = unsafe { self.border(guard) };
        // The same permutation under the same version lists the same keys: a used slot is filled
        // again under the inserting mark only (M7 slot-reuse-marked).
        let same = border.permutation() == self.permutation || canary.is(Fault::RecallUnchecked);
        if !same {
            return Err(Stale);
        }
        let Some(position) = self.position else {
            let unchanged = border.version.unchanged_since(self.version);
            return unchanged.then_some(None).ok_or(Stale);
        };
        let slot = self.permutation.slot(usize::from(position));
        let read = border.read_slot(slot, self.version, guard);
        match read.ok_or(Stale)?.1 {
            Found::Value(block) => {
                let same = is_of(block, cursor);
                Ok(same.then_some(block))
            }
            // The key has moved into a layer.
            Found::Layer(_) | Found::Absent => Err(Stale),
        }
    }

    /// The node, as a descent would have reached it for an update, and where the key may be; `None`
    /// if the update is to descend.
    ///
    /// # Safety
    /// The session has been pinned since the spot was found (MH1).
    #[inline]
    pub(crate) unsafe fn reached<'k, 'g>(
        &self,
        key: Key<'k>,
        canary: &Canary,
        guard: Guard<'g>,
    ) -> Option<Start<'k, 'g>> {
        if self.climbed && !canary.is(Fault::OutgrownLinkKept) {
            return None;
        }
        let cursor = self.cursor(key)?;
        // SAFETY: as the caller says.
        let border = unsafe { self.border(guard) };
        let reached = Reached {
            border,
            version: self.version,
            root: border.node(),
        };
        Some(Start {
            reached,
            cursor,
            position: self.position.map(usize::from),
        })
    }
}

impl Spots {
    /// Forgets everything.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.spots.clear();
        self.next = None;
    }

    /// Remembers the spots of the next keys.
    #[inline]
    pub(crate) fn extend(&mut self, spots: impl Iterator<Item = Option<Spot>>) {
        let room = SPOTS_MAX - self.spots.len();
        self.spots.extend(spots.take(room));
    }

    /// Selects the key of the next operation.
    #[inline]
    pub(crate) fn recall(&mut self, index: usize) {
        self.next = Some(index);
    }

    /// The spot that the operation now beginning is to look at.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Spot> {
        let index = self.next.take()?;
        *self.spots.get(index)?
    }
}
