//! The mapping of database numbers to trees.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `slots[i]` | SWAPDB, FLUSHDB, FLUSHALL, a full copy | all gates, `Relaxed` | commands under a gate, `Relaxed` |
//! | `changes` | likewise | all gates, `Relaxed` | checkpoints, full copies, under a gate |
//!
//! It changes only under all gates (B1 mapping-stands-still), whose mutexes order the `Relaxed`
//! accesses.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pando_engine::{LogEpoch, TreeId};

/// The tree behind each database number (B1 mapping-stands-still).
#[derive(Debug)]
pub(crate) struct Mapping {
    slots: Box<[Slot]>,
    /// How often it has changed, as the log says; under all gates.
    pub(crate) changes: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    tree: AtomicU32,
    /// The epoch of the last change of its tree; 0 before the first.
    changed_in: AtomicU64,
}

/// The trees of all databases at one time, with the epochs in which they got there.
#[derive(Debug)]
pub(crate) struct TreesImage(Box<[(TreeId, LogEpoch)]>);

impl Mapping {
    /// The tree of each database, after so many changes.
    pub(crate) fn new(trees: impl IntoIterator<Item = TreeId>, changes: u64) -> Self {
        let slot = |tree: TreeId| Slot {
            tree: AtomicU32::new(tree.0),
            changed_in: AtomicU64::new(0),
        };
        Self {
            slots: trees.into_iter().map(slot).collect(),
            changes: AtomicU64::new(changes),
        }
    }

    /// How many databases there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The tree of database `index` (B1 mapping-stands-still).
    #[inline]
    pub(crate) fn get(&self, index: usize) -> TreeId {
        TreeId(self.slots[index].tree.load(Ordering::Relaxed))
    }

    /// The trees of all databases, in order (B1 mapping-stands-still).
    pub(crate) fn iter(&self) -> impl Iterator<Item = TreeId> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The epoch in which database `index` got its tree, 0 if at the start
    /// (B1 mapping-stands-still): what is seen in it is undone if a crash loses that epoch.
    pub(crate) fn changed_in(&self, index: usize) -> LogEpoch {
        LogEpoch(self.slots[index].changed_in.load(Ordering::Relaxed))
    }

    /// The present mapping, to be restored.
    pub(crate) fn image(&self) -> TreesImage {
        let numbers = 0..self.len();
        TreesImage(
            numbers
                .map(|index| (self.get(index), self.changed_in(index)))
                .collect(),
        )
    }

    /// Restores the mapping. The caller holds all gates (B1 mapping-stands-still).
    pub(crate) fn put_back(&self, image: &TreesImage) {
        assert_eq!(image.0.len(), self.len());
        for (index, (tree, changed_in)) in image.0.iter().enumerate() {
            self.set(index, *tree, *changed_in);
        }
    }

    /// Gives database `index` another tree, in this epoch; returns the former one. The caller holds
    /// all gates (B1 mapping-stands-still).
    pub(crate) fn set(&self, index: usize, tree: TreeId, epoch: LogEpoch) -> TreeId {
        let slot = &self.slots[index];
        slot.changed_in.store(epoch.0, Ordering::Relaxed);
        TreeId(slot.tree.swap(tree.0, Ordering::Relaxed))
    }
}
