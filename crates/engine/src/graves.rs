//! The versions of removed keys, until the horizon has passed them: for engines whose trees keep
//! none, beside the tree. Most often there are none.
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `removed` | its mutex, innermost | the same |
//! | `count` | who changes `removed`, under its mutex: `Relaxed` | who has the latch of a key's leaf, or the tree alone: `Relaxed` |
//!
//! What is remembered of a key changes under the latch of its leaf (ME5 graves-under-latches,
//! CX7 gone-counted). So whoever has that latch after the key's removal sees the count as it was
//! stored then, or a later one, and each of those counts the key.

use std::collections::{HashMap, VecDeque};

use pando_sync::shim::{AtomicUsize, Mutex, Ordering, lock};

use crate::{LogEpoch, TreeId, ValueVersion};

/// About what a removed key takes beside its bytes.
const GRAVE_BYTES: usize = 96;

/// Removed keys, by their places: the number of a tree, big-endian, and the key.
#[derive(Debug, Default)]
pub struct Graves {
    removed: Mutex<Removed>,
    /// How many keys are remembered.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Removed {
    versions: HashMap<Vec<u8>, ValueVersion>,
    /// The same, as they were removed, and some that have come back since.
    order: VecDeque<(ValueVersion, Vec<u8>)>,
}

impl Graves {
    /// The version of the key's removal, if it is still remembered.
    #[inline]
    #[must_use]
    pub fn version(&self, place: &[u8]) -> Option<ValueVersion> {
        if self.count() == 0 {
            return None;
        }
        lock(&self.removed).versions.get(place).copied()
    }

    /// The key was removed at this version.
    pub fn bury(&self, place: &[u8], version: ValueVersion) {
        self.change(|removed| {
            removed.versions.insert(place.to_vec(), version);
            removed.order.push_back((version, place.to_vec()));
        });
    }

    /// The key has a value again.
    #[inline]
    pub fn rise(&self, place: &[u8]) {
        if self.count() > 0 {
            self.change(|removed| removed.versions.remove(place));
        }
    }

    /// Forgets up to `steps` keys whose epoch is below the horizon (V2 tombstone-horizon); returns
    /// how many it looked at.
    pub fn purge(&self, horizon: LogEpoch, steps: usize) -> usize {
        self.change(|removed| removed.purge(horizon, steps))
    }

    /// Forgets the keys of a tree.
    pub fn drop_tree(&self, tree: TreeId) {
        let number = tree.0.to_be_bytes();
        self.change(|Removed { versions, order }| {
            versions.retain(|place, _| !place.starts_with(&number));
            order.retain(|(_, place)| !place.starts_with(&number));
        });
    }

    /// How many keys are remembered.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        // Relaxed: see the module's header.
        self.count.load(Ordering::Relaxed)
    }

    /// About how many bytes that takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        lock(&self.removed).order.len() * GRAVE_BYTES
    }

    fn change<R>(&self, change: impl FnOnce(&mut Removed) -> R) -> R {
        let mut removed = lock(&self.removed);
        let changed = change(&mut removed);
        self.count.store(removed.versions.len(), Ordering::Relaxed);
        changed
    }
}

impl Removed {
    fn purge(&mut self, horizon: LogEpoch, steps: usize) -> usize {
        let mut done = 0;
        // Restored versions come in any order, so one may stay behind an earlier one for a while.
        while done < steps
            && let Some((version, _)) = self.order.front()
            && version.epoch() < horizon
        {
            let Some((version, place)) = self.order.pop_front() else {
                break;
            };
            if self.versions.get(&place) == Some(&version) {
                self.versions.remove(&place);
            }
            done += 1;
        }
        done
    }
}
