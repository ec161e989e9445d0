//! Snapshots: engines that can show every tree as it was at one moment, while writes continue.
//!
//! A snapshot freezes a log epoch. A value belongs to it if its version is of that epoch or an
//! earlier one; later writes never do. Making one takes O(trees). A value that is replaced or
//! removed afterwards is kept for the snapshot, once, whatever happens to the key later.
//!
//! The caller that freezes, releases or settles makes sure that no session is in an operation
//! meanwhile (a database holds all its gates). Without that, memory stays safe but answers may be
//! wrong.
//!
//! Invariants (the conformance suite checks them):
//! - **SN1 past-stands** Until a snapshot is released, a read at it shows the value each key had
//!   when the snapshot was made.
//! - **SN2 frozen-epoch** Versions drawn before a snapshot was made are of its epoch or earlier
//!   ones. Those drawn after it are of later ones;
//!   [`EpochClock::end_all`](crate::EpochClock::end_all) also ends the epochs that keys have
//!   borrowed from.
//!
//! Deliberately absent: names, time, deadlines; the fate of a dropped tree (a tree is not dropped
//! while a snapshot of it is read).

use std::ops::{Bound, ControlFlow};

use thiserror::Error;

use crate::{
    Direction, Engine, Key, LogEpoch, Ordered, Point, TreeId, ValueRef, ValueVersion, Walk, limits,
};

/// A moment at which all trees were frozen. No two snapshots of an engine have the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot(LogEpoch);

impl Snapshot {
    /// The snapshot that was made in this epoch.
    #[must_use]
    pub const fn of_epoch(epoch: LogEpoch) -> Self {
        Self(epoch)
    }

    /// The last epoch whose versions belong to it.
    #[must_use]
    pub const fn epoch(self) -> LogEpoch {
        self.0
    }

    /// Whether the snapshot covers a value of this version, unless it was replaced before.
    #[inline]
    #[must_use]
    pub fn holds(self, version: ValueVersion) -> bool {
        version.epoch() <= self.0
    }
}

/// The engine has as many snapshots as it can have.
#[derive(Debug, Error)]
#[error("there are {snapshots_max} snapshots, as many as there can be")]
pub struct SnapshotLimit {
    /// See [`limits::SNAPSHOTS_MAX`].
    pub snapshots_max: usize,
}

impl SnapshotLimit {
    /// Fails if another snapshot would exceed the limit of `snapshots`.
    pub fn check(snapshots: usize) -> Result<(), Self> {
        let snapshots_max = limits::SNAPSHOTS_MAX;
        if snapshots < snapshots_max {
            Ok(())
        } else {
            Err(Self { snapshots_max })
        }
    }
}

/// Values that were replaced or removed and are kept for a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// Their number.
    pub count: u64,
    /// About how many bytes they take, without the nodes around them.
    pub bytes: u64,
}

/// An engine that has snapshots.
pub trait Snapshots: Engine<Session: ReadAt> {
    /// Freezes every tree at `epoch`, which has ended: every version drawn so far is of it or an
    /// earlier one (SN2 frozen-epoch). No session is in an operation meanwhile. O(trees).
    ///
    /// An engine may also refuse while very many released snapshots are not merged yet
    /// ([`Self::settle`]).
    ///
    /// # Panics
    /// When the epoch is not above that of the newest snapshot.
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit>;

    /// Releases a snapshot that nobody reads any more. No session is in an operation meanwhile.
    /// [`Point::maintain`] reclaims its memory, and [`Self::settle`] too where older snapshots
    /// exist. O(snapshots · trees).
    fn release(&self, snapshot: Snapshot);

    /// Whether [`Self::settle`] has work to do. O(snapshots).
    fn is_unsettled(&self) -> bool;

    /// Frees what released snapshots have handed on to older ones. No session is in an operation
    /// meanwhile. O(snapshots · trees).
    fn settle(&self);

    /// Whether a value of this version is kept when it is replaced or removed. O(1).
    fn keeps(&self, version: ValueVersion) -> bool;

    /// The values kept for this snapshot. O(trees).
    fn images(&self, snapshot: Snapshot) -> Images;

    /// The trees that hold the kept values: sweeps over all values include them. O(trees).
    fn image_trees(&self) -> Vec<TreeId>;
}

/// Point reads at a snapshot that has not been released.
pub trait ReadAt: Point {
    /// Shows the key's value at the snapshot to `read`. Two lookups if it was replaced or removed
    /// since, plus one for each newer snapshot.
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R;

    /// Shows the values of `keys` at the snapshot one after another, prefetched.
    fn get_many_at(
        &mut self,
        at: Snapshot,
        keys: &[Key<'_>],
        mut read: impl FnMut(usize, Option<ValueRef<'_>>),
    ) {
        self.warm(keys);
        for (index, key) in keys.iter().enumerate() {
            self.get_at(at, *key, |value| read(index, value));
        }
    }

    /// Shows one key that the tree had, picked by `random`, to `read`. As in [`Point::sample`], the
    /// work is bounded, so it may find none although the tree had some.
    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R;
}

/// Scans at a snapshot.
pub trait OrderedAt: ReadAt + Ordered {
    /// Like [`Ordered::scan_all`], over the tree at the snapshot. Keys inserted later are passed
    /// over as `None`, as removed ones are.
    fn scan_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    );
}

/// Walks at a snapshot.
pub trait WalkAt: ReadAt + Walk {
    /// Like [`Walk::walk`], over the tree at the snapshot.
    fn walk_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        cursor: u64,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> u64;
}

/// [`ReadAt::sample_at`] for an engine that keeps images in trees of their own: draws from the tree
/// and from these, which are given with their keys, and looks up what the snapshot shows.
pub fn sample_at<R>(
    session: &mut impl ReadAt,
    at: Snapshot,
    sources: &[(TreeId, u64)],
    mut random: u64,
    read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
) -> R {
    const DRAWS_MAX: usize = 16;
    let tree = sources[0].0;
    let keys: u64 = sources.iter().map(|(_, keys)| keys).sum();
    for _ in 0..DRAWS_MAX {
        // An odd factor and a rotation, so that each draw depends on all bits.
        random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        let mut rank = ((u128::from(random) * u128::from(keys)) >> 64) as u64;
        let source = sources.iter().find(|(_, keys)| {
            let holds = rank < *keys;
            rank = rank.saturating_sub(*keys);
            holds
        });
        let Some((source, _)) = source else { break };
        let key = session.sample(*source, random, |found| found.map(|(key, _)| key.to_vec()));
        let Some(key) = key else { continue };
        let key = Key::new(tree, &key);
        if session.get_at(at, key, |value| value.is_some()) {
            return session.get_at(at, key, |value| read(value.map(|value| (key.bytes, value))));
        }
    }
    read(None)
}
