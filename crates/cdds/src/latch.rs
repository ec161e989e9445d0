//! Latches of nodes, in memory that ends with the process, and what a reader makes of them.
//!
//! A node in the pool has no room for a lock, and must not: a crash would keep it. So a node's
//! latch is found by its position in a table; nodes that share one disturb each other and nothing
//! else.
//!
//! | state | writer | readers |
//! |---|---|---|
//! | a latch | a writer, who locks it before it judges a leaf that others may change (CX2 leaf-latched), and marks it before it changes a node (CL1) | everyone, before and after |
//!
//! - **CL1 marked-before** Whoever changes a node has locked and marked its latch before the first
//!   store, and releases it after the last one of the whole change. So what a reader has loaded
//!   while its [`Watch`] held is of one state of the node (`pando_sync::version_lock`).
//! - **CL2 judged-then-followed** A reader that sees the present follows an offset that it loaded
//!   from a node only after its watch still held: the node then referred to it, and what is freed
//!   from then on is not handed out before the reader's pin has ended (CT3 horizon).
//! - **CL3 coupled** A reader takes the watch of a child before it asks whether the parent's still
//!   holds. So the child was in the tree when its watch began.
//! - **CL4 past-stands** A reader at a snapshot needs no watch: what it sees of a node changes
//!   never, and of a slot that is used again it loads the end before the beginning. A new end, 0,
//!   was stored after the old beginning had gone, so that the pair is seen by nobody.
//! - **CL5 closed** A rollback changes what epochs mean, for which no latch is marked. It closes
//!   the tree first, and waits until every pin has ended: a reader looks whether the tree is closed
//!   after it is pinned.

use pando_pmem::Offset;
use pando_sync::prefetch::prefetch_to_write;
use pando_sync::version_lock::{NodeKind, NodeVersion, VersionLock};

use crate::canary::{self, Fault};

/// Latches of a tree: 32 KiB, which stay in a core's cache.
const LATCHES: usize = if pando_sync::shim::MODEL { 4 } else { 4096 };

/// The latches of all nodes.
pub(crate) struct Latches(Box<[VersionLock]>);

impl Latches {
    pub(crate) fn new() -> Self {
        let latch = |_| VersionLock::new(NodeKind::Border, false);
        Self((0..LATCHES).map(latch).collect())
    }

    #[inline]
    fn index(at: Offset) -> usize {
        // The top bits of the product depend on all of the position.
        let mixed = at.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize % LATCHES
    }

    /// Locks the latch of the node at `at`; others judge and change it neither (CX2 leaf-latched).
    pub(crate) fn latch(&self, at: Offset) -> Latched<'_> {
        if canary::has(Fault::Unlatched) {
            return Latched(None);
        }
        let latch = &self.0[Self::index(at)];
        // Acquires what the last one who had it has stored.
        latch.lock();
        Latched(Some(latch))
    }

    /// Asks for the latch of the node at `at`, to be locked.
    #[inline]
    pub(crate) fn expect(&self, at: Offset) {
        prefetch_to_write((&raw const self.0[Self::index(at)]).cast());
    }

    /// A watch of the node at `at`, which nobody changes at that moment.
    #[inline]
    pub(crate) fn watch(&self, at: Offset) -> Watch<'_> {
        let latch = &self.0[Self::index(at)];
        Watch::of(latch, latch.stable())
    }
}

/// Whether a node is as it was when the watch began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<'l>(Option<(&'l VersionLock, NodeVersion)>);

impl<'l> Watch<'l> {
    /// Of a node that nobody changes, or that is read at a snapshot (CL4 past-stands).
    pub(crate) const STILL: Self = Self(None);

    /// Of what a lock guards, since it had this version.
    #[inline]
    pub(crate) fn of(lock: &'l VersionLock, version: NodeVersion) -> Self {
        Self(Some((lock, version)))
    }

    /// Whether everything loaded since it began is of one state (CL1 marked-before).
    #[inline]
    #[must_use]
    pub(crate) fn holds(self) -> bool {
        self.0
            .is_none_or(|(latch, version)| latch.unchanged_since(version))
    }
}

/// A latch that somebody has locked, until it is dropped.
pub(crate) struct Latched<'l>(Option<&'l VersionLock>);

impl Latched<'_> {
    /// Before the first store to the node (CL1 marked-before).
    pub(crate) fn mark(&self) {
        if let Some(latch) = self.0
            && !canary::has(Fault::Unmarked)
        {
            latch.mark_inserting();
        }
    }

    /// After the last store: readers see what was changed, and the latch stays locked.
    pub(crate) fn publish(&self) {
        if let Some(latch) = self.0 {
            latch.publish();
        }
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        if let Some(latch) = self.0 {
            latch.unlock();
        }
    }
}

/// The latches that a change has taken, until it is dropped.
pub(crate) struct Held<'l> {
    latches: &'l Latches,
    taken: Vec<usize>,
}

impl<'l> Held<'l> {
    pub(crate) fn new(latches: &'l Latches) -> Self {
        Self {
            latches,
            taken: Vec::new(),
        }
    }

    /// Before the first store to the node at `at` (CL1 marked-before).
    pub(crate) fn mark(&mut self, at: Offset) {
        let index = Latches::index(at);
        if self.taken.contains(&index) || canary::has(Fault::Unmarked) {
            return;
        }
        let latch = &self.latches.0[index];
        latch.lock();
        latch.mark_inserting();
        self.taken.push(index);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for index in self.taken.drain(..) {
            self.latches.0[index].unlock();
        }
    }
}
