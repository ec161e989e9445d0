//! The versions of removed keys, until the horizon has passed them (CE2 graves-in-memory).

use std::collections::{HashMap, VecDeque};

use pando_engine::{TreeId, ValueVersion};
use pando_sync::LogEpoch;

/// About what a removed key takes beside its bytes.
const GRAVE_BYTES: usize = 96;

/// Removed keys, by their places in the persistent tree.
#[derive(Debug, Default)]
pub(super) struct Graves {
    versions: HashMap<Vec<u8>, ValueVersion>,
    /// The same, as they were removed, and some that have come back since.
    order: VecDeque<(ValueVersion, Vec<u8>)>,
}

impl Graves {
    pub(super) fn version(&self, place: &[u8]) -> Option<ValueVersion> {
        self.versions.get(place).copied()
    }

    pub(super) fn bury(&mut self, place: &[u8], version: ValueVersion) {
        self.versions.insert(place.to_vec(), version);
        self.order.push_back((version, place.to_vec()));
    }

    /// The key has a value again.
    pub(super) fn rise(&mut self, place: &[u8]) {
        self.versions.remove(place);
    }

    /// Forgets up to `steps` keys whose epoch is below the horizon (V2 tombstone-horizon); returns
    /// how many it looked at.
    pub(super) fn purge(&mut self, horizon: LogEpoch, steps: usize) -> usize {
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

    pub(super) fn drop_tree(&mut self, tree: TreeId) {
        let number = tree.0.to_be_bytes();
        self.versions.retain(|place, _| !place.starts_with(&number));
        self.order.retain(|(_, place)| !place.starts_with(&number));
    }

    pub(super) fn count(&self) -> usize {
        self.versions.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.order.len() * GRAVE_BYTES
    }
}
