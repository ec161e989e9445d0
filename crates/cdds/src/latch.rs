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
const LATCHES: usize = if pando_sync::shim::MODEL { 16 } else { 4096 };

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

    /// The version of the node at `at`, if nobody changes it at that moment.
    #[inline]
    pub(crate) fn version(&self, at: Offset) -> Option<NodeVersion> {
        let version = self.0[Self::index(at)].glance();
        (!version.is_dirty()).then_some(version)
    }

    /// A watch of the node at `at` that began when it had this version.
    #[inline]
    pub(crate) fn watch_since(&self, at: Offset, version: NodeVersion) -> Watch<'_> {
        Watch::of(&self.0[Self::index(at)], version)
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

    /// Whether the leaf that it is of has stayed in the tree since it began, for who has latched
    /// that (CX7 gone-counted).
    #[inline]
    #[must_use]
    pub(crate) fn stays(self) -> bool {
        // Relaxed: whoever had the latch before has released it.
        let has_left = |(latch, version): (&VersionLock, _)| latch.peek().has_split_since(version);
        !self.0.is_some_and(has_left)
    }
}

/// A latch that somebody has locked, until it is dropped.
pub(crate) struct Latched<'l>(Option<&'l VersionLock>);

impl Latched<'_> {
    /// No latch.
    pub(crate) const NONE: Self = Self(None);

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
    taken: Vec<&'l VersionLock>,
    /// Of a leaf that leaves a shared tree, and of those that come in its place.
    leaves: Vec<&'l VersionLock>,
}

impl<'l> Held<'l> {
    pub(crate) fn new(latches: &'l Latches) -> Self {
        Self {
            latches,
            taken: Vec::new(),
            leaves: Vec::new(),
        }
    }

    fn has(&self, latch: &VersionLock) -> bool {
        let mut held = self.taken.iter().chain(&self.leaves);
        held.any(|held| std::ptr::eq(*held, latch))
    }

    /// Takes the latch of a leaf over that is to leave the tree.
    pub(crate) fn take_over(&mut self, latched: Latched<'l>) {
        self.leaves.extend(latched.0);
        // Not unlocked here, but with all others.
        std::mem::forget(latched);
    }

    /// Tries to lock the latch of a leaf that nobody refers to yet (CX8 born-latched).
    pub(crate) fn try_latch(&mut self, at: Offset) -> bool {
        let latch = &self.latches.0[Latches::index(at)];
        let is_faulty = canary::has(Fault::Unlatched) || canary::has(Fault::BornUnlatched);
        if is_faulty || self.has(latch) {
            return true;
        }
        let locked = try_lock(latch);
        self.leaves.extend(locked.then_some(latch));
        locked
    }

    /// Before the first store to the node at `at` (CL1 marked-before).
    pub(crate) fn mark(&mut self, at: Offset) {
        let latch = &self.latches.0[Latches::index(at)];
        if !canary::has(Fault::Unmarked) && !self.has(latch) {
            latch.lock();
            self.taken.push(latch);
            latch.mark_inserting();
        }
    }

    /// The same of a node above leaves that others change meanwhile, if its latch is free
    /// (CX3 one-waits). The leaf that was taken over leaves the tree with it (CX7 gone-counted).
    pub(crate) fn try_mark(&mut self, at: Offset) -> bool {
        let latch = &self.latches.0[Latches::index(at)];
        if canary::has(Fault::Unmarked) {
            return true;
        }
        if !canary::has(Fault::LeftUncounted) {
            for leaf in &self.leaves {
                leaf.mark_splitting();
            }
        }
        if !self.has(latch) {
            if !try_lock(latch) {
                return false;
            }
            self.taken.push(latch);
        }
        latch.mark_inserting();
        true
    }

    /// After the last store: readers see what was changed, and only leaves stay latched.
    pub(crate) fn publish(&mut self) {
        for leaf in &self.leaves {
            leaf.publish();
        }
        for latch in self.taken.drain(..) {
            latch.unlock();
        }
    }
}

/// Locks a latch that is free, or that somebody has only for a moment.
fn try_lock(latch: &VersionLock) -> bool {
    const TRIES: usize = 64;
    let mut tries = (0..TRIES).map(|_| {
        pando_sync::shim::step();
        std::hint::spin_loop();
        latch.try_lock().is_some()
    });
    tries.any(|locked| locked)
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for latch in self.taken.drain(..).chain(self.leaves.drain(..)) {
            latch.unlock();
        }
    }
}
