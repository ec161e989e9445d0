//! A view: what a command, and anything that outlives its turn, reads.
//!
//! A slice of a long command carries the view it began with and continues in its tree, whatever the
//! database number means by then. A SCAN cursor remembers its view and is refused in any other; a
//! cas token is drawn from the view's tree. Writers and background work (expiry, eviction,
//! checkpoints) operate on present trees.
//!
//! A view of a snapshot may outlive it. Code that continues with one in a later turn first checks
//! whether the snapshot still exists (NS2 asked-every-turn of `snapshots`).

use pando_engine::{Key, Snapshot, TreeId};

use crate::clock::{Microseconds, Milliseconds};

/// The moment of a snapshot, unique within a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) snapshot: Snapshot,
    /// The time by which deadlines are judged.
    pub(crate) time: Milliseconds,
}

/// One tree, at present or at a past moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    tree: TreeId,
    past: Option<Moment>,
}

impl View {
    /// The tree as it is; the turn's clock judges its deadlines.
    #[inline]
    pub(crate) const fn present(tree: TreeId) -> Self {
        Self { tree, past: None }
    }

    /// The tree as it was.
    pub(crate) const fn past(tree: TreeId, moment: Moment) -> Self {
        Self {
            tree,
            past: Some(moment),
        }
    }

    /// The tree that it shows.
    #[inline]
    pub(crate) fn tree(self) -> TreeId {
        self.tree
    }

    /// When it shows the tree, if not at present.
    #[inline]
    pub(crate) fn moment(self) -> Option<Moment> {
        self.past
    }

    /// A key in it.
    #[inline]
    pub(crate) fn key(self, bytes: &[u8]) -> Key<'_> {
        Key::new(self.tree, bytes)
    }

    /// The time by which its deadlines are judged, in a turn that began at `now`.
    #[inline]
    pub(crate) fn now(self, now: Microseconds) -> Milliseconds {
        match self.past {
            None => now.milliseconds(),
            Some(moment) => moment.time,
        }
    }
}
