//! The versions of removed keys, until the horizon has passed them: for engines whose trees keep
//! none, beside the tree and under the lock of its writers.

use std::collections::{HashMap, VecDeque};

use crate::{LogEpoch, TreeId, ValueVersion};

/// About what a removed key takes beside its bytes.
const GRAVE_BYTES: usize = 96;

/// Removed keys, by their places: the number of a tree, big-endian, and the key.
#[derive(Debug, Default)]
pub struct Graves {
    versions: HashMap<Vec<u8>, ValueVersion>,
    /// The same, as they were removed, and some that have come back since.
    order: VecDeque<(ValueVersion, Vec<u8>)>,
}

impl Graves {
    /// The version of the key's removal, if it is still remembered.
    #[must_use]
    pub fn version(&self, place: &[u8]) -> Option<ValueVersion> {
        self.versions.get(place).copied()
    }

    /// The key was removed at this version.
    pub fn bury(&mut self, place: &[u8], version: ValueVersion) {
        self.versions.insert(place.to_vec(), version);
        self.order.push_back((version, place.to_vec()));
    }

    /// The key has a value again.
    pub fn rise(&mut self, place: &[u8]) {
        self.versions.remove(place);
    }

    /// Forgets up to `steps` keys whose epoch is below the horizon (V2 tombstone-horizon); returns
    /// how many it looked at.
    pub fn purge(&mut self, horizon: LogEpoch, steps: usize) -> usize {
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

    /// Forgets the keys of a tree.
    pub fn drop_tree(&mut self, tree: TreeId) {
        let number = tree.0.to_be_bytes();
        self.versions.retain(|place, _| !place.starts_with(&number));
        self.order.retain(|(_, place)| !place.starts_with(&number));
    }

    /// How many keys are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.versions.len()
    }

    /// About how many bytes that takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.order.len() * GRAVE_BYTES
    }
}
