//! A view: what a command reads, and whatever outlives its turn.
//!
//! A slice of a long command carries the view it began with and goes on in its tree, whatever the
//! database number means by then. A SCAN cursor remembers its view and is refused in any other; a
//! cas token is drawn from the view's tree. Writers and upkeep (expiry, eviction, checkpoints) work
//! on trees.

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
