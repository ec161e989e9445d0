//! A view: what a command reads, and whatever outlives its turn.
//!
//! Slices of long commands, SCAN cursors and cas tokens carry the view that they began with, so
//! that they go on where they were although the database number means another tree by now. Writers
//! and upkeep (expiry, eviction, checkpoints) work on trees.

use pando_engine::{Key, TreeId};

use crate::clock::Milliseconds;

/// One tree at present; the turn's clock judges its deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    tree: TreeId,
}

impl View {
    /// The tree as it is.
    #[inline]
    pub(crate) const fn present(tree: TreeId) -> Self {
        Self { tree }
    }

    /// The tree that it shows.
    #[inline]
    pub(crate) fn tree(self) -> TreeId {
        self.tree
    }

    /// A key in it.
    #[inline]
    pub(crate) fn key(self, bytes: &[u8]) -> Key<'_> {
        Key::new(self.tree, bytes)
    }

    /// The time by which its deadlines are judged, in a turn that began at `now_us`.
    #[inline]
    pub(crate) fn now(self, now_us: u64) -> Milliseconds {
        now_us / 1000
    }
}
