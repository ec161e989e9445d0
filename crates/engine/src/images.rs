//! How many values are kept for which snapshot, for engines that share them between versions and so
//! have no list of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Images, Snapshot, ValueVersion};

/// An engine's snapshots, and the values that were replaced or removed since.
#[derive(Debug, Default)]
pub struct KeptImages {
    /// Oldest first.
    snapshots: BTreeSet<Snapshot>,
    /// By the newest and the oldest snapshot that they are kept for.
    kept: BTreeMap<(Snapshot, Snapshot), Images>,
}

impl KeptImages {
    /// The snapshots, oldest first.
    #[must_use]
    pub fn snapshots(&self) -> &BTreeSet<Snapshot> {
        &self.snapshots
    }

    /// A snapshot was made.
    ///
    /// # Panics
    /// When it is not the newest.
    pub fn freeze(&mut self, snapshot: Snapshot) {
        let newest = self.snapshots.last();
        assert!(newest.is_none_or(|newest| *newest < snapshot));
        self.snapshots.insert(snapshot);
    }

    /// A snapshot was released: what was kept for it alone is not any more. O(snapshots²).
    pub fn release(&mut self, snapshot: Snapshot) {
        let older = self.snapshots.range(..snapshot).next_back().copied();
        let newer = self.snapshots.range(snapshot..).nth(1).copied();
        self.snapshots.remove(&snapshot);
        for ((newest, oldest), images) in std::mem::take(&mut self.kept) {
            let last = if newest == snapshot {
                older
            } else {
                Some(newest)
            };
            let first = if oldest == snapshot {
                newer
            } else {
                Some(oldest)
            };
            if let (Some(last), Some(first)) = (last, first)
                && first <= last
            {
                self.add(last, first, images);
            }
        }
    }

    fn add(&mut self, newest: Snapshot, oldest: Snapshot, images: Images) {
        let all = self.kept.entry((newest, oldest)).or_default();
        all.count += images.count;
        all.bytes += images.bytes;
    }

    /// A value of this version and length is replaced or removed.
    pub fn note(&mut self, version: ValueVersion, bytes: usize) {
        let Some(newest) = self.snapshots.last().copied() else {
            return;
        };
        let mut snapshots = self.snapshots.iter();
        if let Some(oldest) = snapshots.find(|snapshot| snapshot.holds(version)).copied() {
            let (count, bytes) = (1, bytes as u64);
            self.add(newest, oldest, Images { count, bytes });
        }
    }

    /// What was replaced since the newest snapshot is the present again.
    pub fn forget_newest(&mut self) {
        let last = self.snapshots.last().copied();
        self.kept.retain(|(newest, _), _| Some(*newest) != last);
    }

    /// What is kept for this snapshot and older ones, and for no newer one.
    #[must_use]
    pub fn of(&self, snapshot: Snapshot) -> Images {
        let kept = self.kept.iter();
        let kept = kept.filter(|((newest, _), _)| *newest == snapshot);
        kept.fold(Images::default(), |sum, (_, images)| Images {
            count: sum.count + images.count,
            bytes: sum.bytes + images.bytes,
        })
    }
}
