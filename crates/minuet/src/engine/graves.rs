//! The versions of removed keys, shared by writers (ME5 graves-under-latches).

use pando_engine::{Graves, Key, LogEpoch, TreeId, ValueVersion};
use pando_sync::shim::{AtomicUsize, Mutex, Ordering, lock};

use super::place::Place;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct SharedGraves {
    graves: Mutex<Graves>,
    /// How many keys are remembered.
    count: AtomicUsize,
}

impl SharedGraves {
    fn change<R>(&self, change: impl FnOnce(&mut Graves) -> R) -> R {
        let mut graves = lock(&self.graves);
        let changed = change(&mut graves);
        // Relaxed: the latches order it (ME5 graves-under-latches).
        self.count.store(graves.count(), Ordering::Relaxed);
        changed
    }

    /// How many keys are remembered.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// About how many bytes that takes.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.graves).bytes()
    }

    /// The version of a key's removal, if it is still remembered.
    #[inline]
    pub(super) fn version(&self, key: Key<'_>) -> Option<ValueVersion> {
        if self.count() == 0 {
            return None;
        }
        lock(&self.graves).version(&Place::of(key).whole())
    }

    /// The key was removed at this version.
    pub(super) fn bury(&self, key: Key<'_>, version: ValueVersion) {
        self.change(|graves| graves.bury(&Place::of(key).whole(), version));
    }

    /// The key has a value again.
    #[inline]
    pub(super) fn rise(&self, key: Key<'_>) {
        if self.count() > 0 {
            self.change(|graves| graves.rise(&Place::of(key).whole()));
        }
    }

    /// Forgets up to `steps` keys whose epoch is below the horizon; returns how many it looked at.
    pub(super) fn purge(&self, horizon: LogEpoch, steps: usize) -> usize {
        self.change(|graves| graves.purge(horizon, steps))
    }

    /// Forgets the keys of a tree.
    pub(super) fn drop_tree(&self, tree: TreeId) {
        self.change(|graves| graves.drop_tree(tree));
    }
}
