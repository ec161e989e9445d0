//! Making snapshots and dropping them, under all gates.
//!
//! A snapshot ends the log epoch: everything acknowledged or committed before it has its epoch or
//! an earlier one, everything after it a later one. All gates are held, so no command is half in
//! it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{Images, TreeId};

use crate::clock::Milliseconds;
use crate::database::Database;
use crate::error::CommandError;
use crate::limits;
use crate::session_state::SessionState;
use crate::snapshots::{Frozen, NamedSnapshot};
use crate::view::Moment;

/// The number of snapshots, and what is kept for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFigures {
    /// Snapshots.
    pub snapshots: usize,
    /// Of these, those that are dropped only on request or when they expire.
    pub held: usize,
    /// Values that were replaced or removed and are kept for them.
    pub images: u64,
    /// About the bytes of these values.
    pub image_bytes: u64,
    /// The age of the oldest one in milliseconds, 0 if there is none.
    pub oldest: Milliseconds,
}

/// The arguments of SNAPSHOT CREATE.
#[derive(Debug)]
pub(crate) struct Wanted<'r> {
    pub(crate) name: &'r [u8],
    pub(crate) lives: Option<Milliseconds>,
    pub(crate) is_held: bool,
}

impl Database {
    /// Makes a snapshot. The caller holds all gates, and its session has handed over everything it
    /// logged (AK3 handed-over).
    pub(crate) fn freeze(
        &self,
        session: &SessionState,
        wanted: &Wanted<'_>,
    ) -> Result<Arc<NamedSnapshot>, CommandError> {
        assert!(self.gates.are_all_taken());
        self.snapshots.check_name(wanted.name)?;
        let snapshots_max = self.snapshots.count_max.load(Ordering::Relaxed);
        if self.snapshots.list().len() >= snapshots_max {
            return Err(CommandError::TooManySnapshots { snapshots_max });
        }
        let time = session.now.milliseconds();
        // AK3 handed-over: the epoch ends here.
        assert!(!session.has_group());
        let epoch = self.acknowledgement.end_epoch_within(time);
        let snapshot = self.store.freeze(epoch)?;
        let frozen = |tree: TreeId| Frozen {
            tree,
            keys: self.store.len(tree),
        };
        Ok(self.snapshots.add(NamedSnapshot {
            name: wanted.name.into(),
            moment: Moment { snapshot, time },
            until: wanted.lives.map(|lives| time.saturating_add(lives)),
            is_held: wanted.is_held,
            databases: self.mapping.iter().map(frozen).collect(),
        }))
    }

    /// Sets the limit of snapshots; up to [`limits::SNAPSHOTS_MAX`].
    pub fn set_snapshots_max(&self, snapshots_max: usize) {
        let most = snapshots_max.min(limits::SNAPSHOTS_MAX);
        self.snapshots.count_max.store(most, Ordering::Relaxed);
    }

    /// Sets the limit of bytes of values kept only for snapshots; 0 is no limit.
    pub fn set_snapshot_bytes_max(&self, bytes_max: usize) {
        self.snapshots.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// The number of snapshots, and what is kept for them. O(snapshots · trees).
    #[must_use]
    pub fn snapshot_figures(&self) -> SnapshotFigures {
        let list = self.snapshots.list();
        let now = self.options.clock.now().milliseconds();
        let Images { count, bytes } = self.images();
        SnapshotFigures {
            snapshots: list.len(),
            held: list.iter().filter(|snapshot| snapshot.is_held).count(),
            images: count,
            image_bytes: bytes,
            oldest: list.first().map_or(Milliseconds(0), |oldest| {
                now.saturating_sub(oldest.moment.time)
            }),
        }
    }

    /// What is kept for all snapshots together. O(snapshots · sessions).
    pub(crate) fn images(&self) -> Images {
        let list = self.snapshots.list();
        let each = list
            .iter()
            .map(|snapshot| self.store.images(snapshot.moment.snapshot));
        each.fold(Images::default(), |sum, images| Images {
            count: sum.count + images.count,
            bytes: sum.bytes + images.bytes,
        })
    }

    /// The snapshot to drop now, if any: one that has expired, or the oldest that is not held if
    /// the images take more than they may. Records whether none can be dropped.
    pub(crate) fn overdue_snapshot(&self) -> Option<Arc<NamedSnapshot>> {
        let now = self.options.clock.now().milliseconds();
        let list = self.snapshots.list();
        let is_over = |until: Milliseconds| until <= now;
        let mut over = list
            .iter()
            .filter(|snapshot| snapshot.until.is_some_and(is_over));
        if let Some(over) = over.next() {
            return Some(Arc::clone(over));
        }
        let bytes_max = self.snapshots.bytes_max.load(Ordering::Relaxed) as u64;
        let is_beyond = !list.is_empty() && bytes_max > 0 && self.images().bytes > bytes_max;
        let oldest = self.snapshots.oldest_loose().filter(|_| is_beyond);
        self.snapshots.set_full(is_beyond && oldest.is_none());
        oldest
    }

    /// Drops an existing snapshot; its memory is reclaimed gradually. The caller holds all gates.
    pub(crate) fn drop_snapshot(&self, snapshot: &NamedSnapshot) {
        assert!(self.gates.are_all_taken());
        self.snapshots.remove(snapshot.moment);
        self.store.release(snapshot.moment.snapshot);
        let mut kept: HashSet<_> = self.mapping().into_iter().collect();
        kept.extend(self.snapshots.trees());
        for frozen in &snapshot.databases {
            if !kept.contains(&frozen.tree) {
                self.store.drop_tree(frozen.tree);
            }
        }
    }
}
