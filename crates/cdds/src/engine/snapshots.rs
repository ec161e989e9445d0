//! Snapshots: views of the tree at an epoch. Nothing is copied.

use std::ops::{Bound, ControlFlow};

use pando_engine::{
    Direction, Images, Key, OrderedAt, ReadAt, Snapshot, SnapshotLimit, Snapshots, TreeId,
    ValueRef, ValueVersion,
};
use pando_sync::shim::unmodelled::Ordering;
use pando_sync::{LogEpoch, lock};

use super::session::{sample_in, show_record, sound};
use super::{Cdds, CddsSession, State, place_of};
use crate::node::View;
use crate::record::Record;

impl Snapshots for Cdds {
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit> {
        assert!(epoch < self.clock.current() && self.clock.is_above_all());
        let mut state = self.write();
        SnapshotLimit::check(lock(&state.images).snapshots().len())?;
        let snapshot = Snapshot::of_epoch(epoch);
        // What is written from now on begins above the snapshot (CE1 epochs-follow).
        sound(state.tree.advance(self.clock.current()));
        state.tree.hold(epoch);
        lock(&state.images).freeze(snapshot);
        self.note_retained(&state);
        Ok(snapshot)
    }

    fn release(&self, snapshot: Snapshot) {
        let mut state = self.write();
        state.tree.let_go(snapshot.epoch());
        lock(&state.images).release(snapshot);
        self.note_retained(&state);
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
        lock(&self.read().images).of(snapshot)
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
        let rows = self.engine.decoded.rows();
        let shown = |record: Option<Record<'_>>| show_record(rows, record, read);
        sound(self.reader.show_at(at, &place, shown))
    }

    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let state = self.entrance.enter();
        assert!(
            lock(&state.images).snapshots().contains(&at),
            "it is not released"
        );
        let view = View(at.epoch());
        let rows = self.engine.decoded.passing();
        sample_in((&state, rows), view, tree, random, read)
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
