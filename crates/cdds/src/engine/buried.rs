//! The versions of removed keys, of which most often there are none (CE2 graves-in-memory).
//!
//! | field | writer | readers |
//! |---|---|---|
//! | `graves` | its mutex, innermost | the same |
//! | `has_any` | set by who removes a key, under the latch of its leaf or with the tree alone; else who has the tree alone | who has the latch of the key's leaf, or the tree alone |

use std::sync::Mutex;

use pando_engine::{Graves, TreeId, ValueVersion};
use pando_sync::shim::unmodelled::{AtomicBool, Ordering};
use pando_sync::{LogEpoch, lock};

#[derive(Debug, Default)]
pub(super) struct Buried {
    graves: Mutex<Graves>,
    has_any: AtomicBool,
}

impl Buried {
    /// The key was removed at this version.
    pub(super) fn bury(&self, place: &[u8], version: ValueVersion) {
        lock(&self.graves).bury(place, version);
        // Relaxed: latches of leaves order it and whoever asks of this key (CX7 gone-counted).
        if !self.has_any() {
            self.has_any.store(true, Ordering::Relaxed);
        }
    }

    /// The key has a value again.
    pub(super) fn rise(&self, place: &[u8]) {
        if self.has_any() {
            lock(&self.graves).rise(place);
        }
    }

    /// The version of the key's removal, if it is still remembered.
    pub(super) fn version(&self, place: &[u8]) -> Option<ValueVersion> {
        let version = || lock(&self.graves).version(place);
        self.has_any().then(version).flatten()
    }

    /// Forgets up to `steps` keys whose epoch is below the horizon; returns how many.
    pub(super) fn purge(&mut self, horizon: LogEpoch, steps: usize) -> usize {
        let mut graves = lock(&self.graves);
        let purged = graves.purge(horizon, steps);
        *self.has_any.get_mut() = graves.count() > 0;
        purged
    }

    /// Forgets the keys of a tree.
    pub(super) fn drop_tree(&self, tree: TreeId) {
        lock(&self.graves).drop_tree(tree);
    }

    /// How many keys are remembered.
    pub(super) fn count(&self) -> usize {
        lock(&self.graves).count()
    }

    /// About how many bytes that takes.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.graves).bytes()
    }

    fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }
}
