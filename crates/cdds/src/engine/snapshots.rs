//! Snapshots: views of the tree at an epoch. Nothing is copied.

use std::ops::{Bound, ControlFlow};

use pando_engine::{
    Direction, Images, Key, OrderedAt, ReadAt, Snapshot, SnapshotLimit, Snapshots, TreeId,
    ValueRef, ValueVersion,
};
use pando_sync::LogEpoch;

use super::session::{sample_in, show_record, sound};
use super::{Cdds, CddsSession, place_of};
use crate::node::View;
use crate::record::Record;

impl Snapshots for Cdds {
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit> {
        assert!(epoch < self.clock.current() && self.clock.is_above_all());
        let mut state = self.write();
        SnapshotLimit::check(state.frozen.len())?;
        let snapshot = Snapshot::of_epoch(epoch);
        let newest = state.frozen.keys().next_back();
        assert!(newest.is_none_or(|newest| *newest < snapshot));
        // What is written from now on begins above the snapshot (CE1 epochs-follow).
        sound(state.tree.advance(self.clock.current()));
        state.tree.hold(epoch);
        state.frozen.insert(snapshot, Images::default());
        Ok(snapshot)
    }

    fn release(&self, snapshot: Snapshot) {
        let mut state = self.write();
        state.tree.let_go(snapshot.epoch());
        let images = state.frozen.remove(&snapshot).unwrap_or_default();
        // An older snapshot sees some of what was kept for this one; which is not known.
        if let Some((_, older)) = state.frozen.range_mut(..snapshot).next_back() {
            older.count += images.count;
            older.bytes += images.bytes;
        }
    }

    fn is_unsettled(&self) -> bool {
        false
    }

    fn settle(&self) {}

    fn keeps(&self, version: ValueVersion) -> bool {
        let state = self.read();
        let newest = state.frozen.keys().next_back();
        newest.is_some_and(|newest| newest.holds(version))
    }

    fn images(&self, snapshot: Snapshot) -> Images {
        let state = self.read();
        state.frozen.get(&snapshot).copied().unwrap_or_default()
    }

    fn image_trees(&self) -> Vec<TreeId> {
        Vec::new()
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
        assert!(state.frozen.contains_key(&at), "it is not released");
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
