//! Snapshots: the tree's own, each with a name while it is there, so that the collection keeps it.

use std::ops::{Bound, ControlFlow};

use pando_engine::{
    Direction, Images, Key, LogEpoch, OrderedAt, ReadAt, Snapshot, SnapshotLimit, Snapshots,
    TreeId, ValueRef, ValueVersion,
};
use pando_sync::shim::{Ordering, lock};

use super::place::Place;
use super::session::{check_all, show};
use super::sight::sight_of;
use super::{Minuet, MinuetSession, State};
use crate::branch::BranchId;
use crate::tree::create_snapshot_of;

/// The name of an epoch's snapshot.
fn name_of(snapshot: Snapshot) -> Vec<u8> {
    format!("epoch {}", snapshot.epoch().0).into_bytes()
}

impl Minuet {
    /// [`Snapshots::freeze`] of a branch that is there: the snapshot shows what its trees are.
    pub fn freeze_branch(
        &self,
        epoch: LogEpoch,
        branch: BranchId,
    ) -> Result<Snapshot, SnapshotLimit> {
        assert!(epoch < self.clock.current() && self.clock.is_above_all());
        let mut state = self.write();
        SnapshotLimit::check(state.frozen.len())?;
        let snapshot = Snapshot::of_epoch(epoch);
        lock(&state.images).freeze(snapshot);
        self.freeze_as(&mut state, snapshot, branch);
        Ok(snapshot)
    }

    /// Makes a snapshot of a branch.
    pub(super) fn freeze_as(&self, state: &mut State, snapshot: Snapshot, branch: BranchId) {
        let name = name_of(snapshot);
        let is_branched = state.is_branched;
        let sight = state.run(|transaction| {
            let made = create_snapshot_of(transaction, branch)?;
            transaction.name_snapshot(made.snapshot(), &name)?;
            sight_of(transaction, made, is_branched)
        });
        state.renew_tip(branch);
        state.frozen.insert(snapshot, sight);
        self.note_frozen(state);
    }
}

impl Snapshots for Minuet {
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit> {
        self.freeze_branch(epoch, BranchId::FIRST)
    }

    fn release(&self, snapshot: Snapshot) {
        let mut state = self.write();
        let released = state.frozen.remove(&snapshot);
        assert!(released.is_some(), "released twice");
        lock(&state.images).release(snapshot);
        let name = name_of(snapshot);
        state.run(|transaction| transaction.unname_snapshot(&name));
        state.collecting.note_released();
        self.note_frozen(&state);
    }

    fn is_unsettled(&self) -> bool {
        false
    }

    fn settle(&self) {}

    fn keeps(&self, version: ValueVersion) -> bool {
        // Acquire: pairs with the store in `note_frozen`. No lock: a writer asks in its closure.
        version.epoch().0 <= self.newest_frozen.load(Ordering::Acquire)
    }

    fn images(&self, snapshot: Snapshot) -> Images {
        lock(&self.read().images).of(snapshot)
    }

    fn image_trees(&self) -> Vec<TreeId> {
        Vec::new()
    }
}

impl ReadAt for MinuetSession {
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        key.check();
        let state = self.entrance.enter();
        let Some((sight, base)) = state.sight(Some(at), key.tree) else {
            return read(None);
        };
        let place = Place::of(Key::new(base, key.bytes));
        state.find(sight, &place, |found| show(found, read).0)
    }

    fn get_many_at(
        &mut self,
        at: Snapshot,
        keys: &[Key<'_>],
        read: impl FnMut(usize, Option<ValueRef<'_>>),
    ) {
        check_all(keys);
        self.get_together(Some(at), keys, read);
    }

    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        self.sample_in(Some(at), tree, random, read)
    }
}

impl OrderedAt for MinuetSession {
    fn scan_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        self.run(Some(at), (tree, from), direction, |key, value| {
            visit(key, Some(value))
        });
    }
}
