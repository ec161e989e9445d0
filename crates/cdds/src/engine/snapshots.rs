//! Snapshots: views of the tree at an epoch. Nothing is copied.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use pando_engine::{
    Direction, Images, Key, OrderedAt, ReadAt, Snapshot, SnapshotLimit, Snapshots, TreeId,
    ValueRef, ValueVersion,
};
use pando_sync::LogEpoch;

use super::session::{sample_in, show_record, sound};
use super::{Cdds, CddsSession, State, place_of};
use crate::node::View;
use crate::record::Record;

impl Snapshots for Cdds {
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit> {
        assert!(epoch < self.clock.current() && self.clock.is_above_all());
        let mut state = self.write();
        SnapshotLimit::check(state.frozen.len())?;
        let snapshot = Snapshot::of_epoch(epoch);
        let newest = state.frozen.last();
        assert!(newest.is_none_or(|newest| *newest < snapshot));
        // What is written from now on begins above the snapshot (CE1 epochs-follow).
        sound(state.tree.advance(self.clock.current()));
        state.tree.hold(epoch);
        state.frozen.insert(snapshot);
        self.note_retained(&state);
        Ok(snapshot)
    }

    fn release(&self, snapshot: Snapshot) {
        let mut state = self.write();
        state.tree.let_go(snapshot.epoch());
        let older = state.frozen.range(..snapshot).next_back().copied();
        let newer = state.frozen.range(snapshot..).nth(1).copied();
        state.frozen.remove(&snapshot);
        self.note_retained(&state);
        for ((newest, oldest), images) in std::mem::take(&mut state.images) {
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
                state.add_images(last, first, images);
            }
        }
    }

    fn is_unsettled(&self) -> bool {
        false
    }

    fn settle(&self) {}

    fn keeps(&self, version: ValueVersion) -> bool {
        // Acquire: pairs with the store in `note_retained`. No lock: a writer asks in its closure.
        version.epoch().0 <= self.newest_retained.load(Ordering::Acquire)
    }

    fn images(&self, snapshot: Snapshot) -> Images {
        let state = self.read();
        let kept = state.images.iter();
        let kept = kept.filter(|((newest, _), _)| *newest == snapshot);
        kept.fold(Images::default(), |sum, (_, images)| Images {
            count: sum.count + images.count,
            bytes: sum.bytes + images.bytes,
        })
    }

    fn image_trees(&self) -> Vec<TreeId> {
        Vec::new()
    }
}

impl Cdds {
    /// After a snapshot came or went, lasting or not, under the lock of `state`.
    pub(super) fn note_retained(&self, state: &State) {
        let newest = state.tree.retained.last().map_or(0, |newest| newest.0);
        self.newest_retained.store(newest, Ordering::Release);
    }
}

impl State {
    /// Notes values that are kept for the snapshots from the oldest to the newest.
    fn add_images(&mut self, newest: Snapshot, oldest: Snapshot, images: Images) {
        let all = self.images.entry((newest, oldest)).or_default();
        all.count += images.count;
        all.bytes += images.bytes;
    }

    /// Notes that a value of this version and length is replaced or removed.
    pub(super) fn keep_image(&mut self, version: ValueVersion, bytes: usize) {
        let oldest = self.frozen.iter().find(|snapshot| snapshot.holds(version));
        if let (Some(oldest), Some(newest)) = (oldest.copied(), self.frozen.last().copied()) {
            let (count, bytes) = (1, bytes as u64);
            self.add_images(newest, oldest, Images { count, bytes });
        }
    }
}

impl ReadAt for CddsSession {
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        key.check();
        if !self.is_live(key.tree) {
            return read(None);
        }
        let (place, at) = (
            place_of(key.tree, key.bytes),
            crate::Snapshot::of(at.epoch()),
        );
        let shown = |record: Option<Record<'_>>| show_record(record, read);
        sound(self.reader.show_at(at, &place, shown))
    }

    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let state = self.engine.read();
        assert!(state.frozen.contains(&at), "it is not released");
        let view = View(at.epoch());
        sample_in(&state, view, tree, random, read)
    }
}

impl OrderedAt for CddsSession {
    fn scan_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        let at = Some(crate::Snapshot::of(at.epoch()));
        self.run(at, tree, from, direction, |key, value| {
            visit(key, Some(value))
        });
    }
}
