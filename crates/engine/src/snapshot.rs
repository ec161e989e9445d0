//! Snapshots: engines that can show every tree as it was at one moment, while writes go on.
//!
//! A snapshot freezes a log epoch. A value belongs to it if its version is of that epoch or an
//! earlier one, and nothing that is written later is. Making one takes O(trees). A value that is
//! replaced or removed after it is kept for it, once, whatever becomes of the key later.
//!
//! Who freezes, releases or settles sees to it that no session is within an operation meanwhile (a
//! database holds all its gates). An engine's memory is safe without that, its answers are not.
//!
//! Invariants (the conformance suite checks them):
//! - **SN1 past-stands** What a read at a snapshot shows of a key is the value that the key had
//!   when the snapshot was made, until the snapshot is released.
//! - **SN2 frozen-epoch** The versions drawn before a snapshot was made are of its epoch or earlier
//!   ones, those drawn after it of later ones ([`EpochClock::end_all`](crate::EpochClock::end_all)
//!   ends the epochs that keys have borrowed from, too).
//!
//! Deliberately absent: names, time, deadlines; what becomes of a dropped tree (it is not dropped
//! while a snapshot of it is read).

use std::ops::{Bound, ControlFlow};

use thiserror::Error;

use crate::{
    Direction, Engine, Key, LogEpoch, Ordered, Point, TreeId, ValueRef, ValueVersion, Walk, limits,
};

/// A moment at which all trees were frozen; an engine has no two of the same epoch.
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

    /// Whether a value of this version was there when it was made, if it was not replaced before.
    #[inline]
    #[must_use]
    pub fn holds(self, version: ValueVersion) -> bool {
        version.epoch() <= self.0
    }
}

/// There are as many snapshots as an engine can have.
#[derive(Debug, Error)]
#[error("there are {snapshots_max} snapshots, as many as there can be")]
pub struct SnapshotLimit {
    /// See [`limits::SNAPSHOTS_MAX`].
    pub snapshots_max: usize,
}

impl SnapshotLimit {
    /// Refuses one more than `snapshots`.
    pub fn check(snapshots: usize) -> Result<(), Self> {
        let snapshots_max = limits::SNAPSHOTS_MAX;
        if snapshots < snapshots_max {
            Ok(())
        } else {
            Err(Self { snapshots_max })
        }
    }
}

/// The values that were replaced or removed and are kept for a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// How many.
    pub count: u64,
    /// About how many bytes they take, the nodes around them left out.
    pub bytes: u64,
}

/// An engine that has snapshots.
pub trait Snapshots: Engine<Session: ReadAt> {
    /// Freezes every tree at `epoch`, which has ended: every version drawn so far is of it or an
    /// earlier one (SN2 frozen-epoch). No session is within an operation. O(trees).
    ///
    /// An engine may refuse one, too, while very many released ones are not merged yet
    /// ([`Self::settle`]).
    ///
    /// # Panics
    /// When the epoch is not above that of the newest snapshot.
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit>;

    /// Drops a snapshot: nobody reads at it any more. No session is within an operation. Its memory
    /// comes back by [`Point::maintain`], and [`Self::settle`] where there are older snapshots.
    /// O(snapshots · trees).
    fn release(&self, snapshot: Snapshot);

    /// Whether [`Self::settle`] has something to do. O(snapshots).
    fn is_unsettled(&self) -> bool;

    /// Lets go of what released snapshots have handed on to older ones. No session is within an
    /// operation. O(snapshots · trees).
    fn settle(&self);

    /// Whether a value of this version is kept when it is replaced or removed. O(1).
    fn keeps(&self, version: ValueVersion) -> bool;

    /// What is kept for this snapshot. O(trees).
    fn images(&self, snapshot: Snapshot) -> Images;

    /// The trees that hold what is kept: sweeps over all values pass them, too. O(trees).
    fn image_trees(&self) -> Vec<TreeId>;
}

/// Point reads at a snapshot, which has not been released.
pub trait ReadAt: Point {
    /// Shows the value that the key had to `read`. Two lookups where it was replaced or removed
    /// since, and one more for each newer snapshot.
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R;

    /// Shows the values that `keys` had in turn, fetched into the cache before.
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

    /// Shows some key that the tree had, picked by `random`, to `read`; as [`Point::sample`], it
    /// may find none although there are some, since its work is bounded.
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
    /// As [`Ordered::scan_all`], what the tree held at the snapshot: keys that came later are
    /// passed over as `None`, as removed ones are.
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
    /// As [`Walk::walk`], what the tree held at the snapshot.
    fn walk_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        cursor: u64,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> u64;
}

/// [`ReadAt::sample_at`] of an engine that keeps images in trees of their own: draws from the tree
/// and these, which are given with their keys, and looks what the snapshot shows.
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
