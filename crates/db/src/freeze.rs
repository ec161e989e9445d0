//! Making snapshots, dropping them and going back to them, under all gates.
//!
//! A snapshot ends the log epoch: everything acknowledged or committed before it has its epoch or
//! an earlier one, everything after it a later one. All gates are held, so no command is half in
//! it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_cdds::Cdds;
use pando_engine::{Images, LogEpoch, Point, TreeId};
use pando_minuet::BranchId;
use pando_sync::lock;

use crate::clock::Milliseconds;
use crate::database::Database;
use crate::durable::catalog::Event;
use crate::durable::forks::Place;
use crate::error::CommandError;
use crate::kept;
use crate::limits;
use crate::pool;
use crate::remapping;
use crate::session_state::SessionState;
use crate::snapshots::{Frozen, Leases, NamedSnapshot, RECENT};
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
    /// Those that nobody has named, made for whoever wants a recent one.
    pub lent: usize,
    /// Readers that use one.
    pub leases: usize,
    /// The epoch of the oldest one, which is the lowest that can be read; 0 if there is none.
    pub lowest: LogEpoch,
    /// The epoch of the oldest one that somebody uses; 0 if nobody uses any.
    pub lowest_leased: LogEpoch,
    /// How many were made to be lent so far.
    pub made_to_lend: u64,
    /// How often somebody shared one of these.
    pub borrowed: u64,
}

/// The arguments of SNAPSHOT CREATE.
#[derive(Debug)]
pub(crate) struct Wanted<'r> {
    pub(crate) name: &'r [u8],
    pub(crate) lives: Option<Milliseconds>,
    pub(crate) is_held: bool,
    pub(crate) lasts: bool,
    /// Nobody has named it: it is made to be lent, and gets a name.
    pub(crate) is_lent: bool,
    /// The index of database 0 of the branch that it is of.
    pub(crate) base: usize,
    /// When the followed database made it, until when it stays, and how many changes there had
    /// been: snapshots and branches are compared by what is counted there.
    pub(crate) repeats: Option<(Milliseconds, Option<Milliseconds>, u64)>,
}

impl Wanted<'_> {
    /// Its name, when this epoch is the last that it shows.
    fn name_in(&self, epoch: LogEpoch) -> Box<[u8]> {
        if self.is_lent {
            format!("{RECENT}@{}", epoch.0).into_bytes().into()
        } else {
            self.name.into()
        }
    }
}

/// Keeps a snapshot in a pool, in an epoch that holds its name and nothing else.
fn keep_in(engine: &Cdds, name: &[u8], about: &[u8]) -> Result<LogEpoch, CommandError> {
    let name = String::from_utf8_lossy(name);
    engine.keep(&name, about).map_err(|error| match error {
        pando_cdds::Error::TooManySnapshots => CommandError::TooManySnapshots {
            snapshots_max: pando_cdds::limits::SNAPSHOTS_MAX,
        },
        pando_cdds::Error::Full(_) => CommandError::PoolFull,
        error => panic!("the pool is not to be trusted: {error}"),
    })
}

impl Database {
    /// Makes a snapshot. The caller holds all gates, and its session has handed over everything it
    /// logged (AK3 handed-over).
    pub(crate) fn freeze(
        &self,
        session: &mut SessionState,
        wanted: &Wanted<'_>,
    ) -> Result<Arc<NamedSnapshot>, CommandError> {
        assert!(self.gates.are_all_taken());
        self.drop_lapsed(session);
        if !wanted.is_lent {
            self.snapshots.check_name(wanted.name)?;
        }
        let snapshots_max = self.snapshots.count_max.load(Ordering::Relaxed);
        if wanted.repeats.is_none() && self.snapshots.list().len() >= snapshots_max {
            return Err(CommandError::TooManySnapshots { snapshots_max });
        }
        let is_noted = self.keeps_branches() || wanted.repeats.is_some();
        let is_logged = wanted.lasts && is_noted;
        let keeper = if is_logged {
            if !self.acknowledgement.accepts_writes() {
                return Err(CommandError::LogFull);
            }
            None
        } else if wanted.lasts {
            let engine = self.store.pooled().filter(|_| self.is_durable());
            Some(engine.ok_or(CommandError::SnapshotsEndHere)?)
        } else {
            None
        };
        let now = session.now.milliseconds();
        let until = wanted.lives.map(|lives| now.saturating_add(lives));
        let changes = self.branches.changes.load(Ordering::Relaxed) + u64::from(is_logged);
        let (time, until, at) = wanted.repeats.unwrap_or((now, until, changes));
        // AK3 handed-over: the epoch ends here.
        assert!(!session.has_group());
        let mut epoch = self.acknowledgement.end_epoch_within(now);
        let frozen = |tree: TreeId| Frozen {
            tree,
            keys: self.store.len(tree),
        };
        let indexes = wanted.base..wanted.base + self.databases();
        let databases: Box<[Frozen]> = indexes.map(|index| frozen(self.tree(index))).collect();
        if let Some(engine) = keeper {
            let about = kept::about(time, until, &databases);
            epoch = keep_in(engine, wanted.name, &about)?;
        }
        let snapshot = match self.branch_of(wanted.base) {
            Some((engine, branch)) => {
                let frozen = engine.freeze_branch(epoch, branch);
                frozen.map_err(|_| CommandError::SnapshotsOnTheirWayOut)?
            }
            None => self.store.freeze(epoch)?,
        };
        let branch = BranchId((wanted.base / self.databases()) as u32);
        let branch = self.branches.get(branch);
        let place = branch.as_ref().map_or_else(Place::default, |branch| {
            Place::of_snapshot(branch.forks.as_ref(), at).with(&branch.merged)
        });
        let added = self.snapshots.add(NamedSnapshot {
            name: wanted.name_in(epoch),
            moment: Moment { snapshot, time },
            until,
            is_held: wanted.is_held || wanted.lasts,
            lasts: wanted.lasts,
            is_lent: wanted.is_lent,
            leases: Leases::default(),
            databases,
            place,
        });
        if is_logged {
            let frozen = Event::Frozen {
                branch: branch.map_or(0, |branch| branch.number),
                snapshot: added.note(),
                at,
            };
            self.note_change(session, epoch, frozen);
        }
        Ok(added)
    }

    /// Makes the present what a snapshot shows, which stays. Newer ones go, if the caller says that
    /// they may. The caller holds all gates, and its session has handed over everything it logged
    /// (AK3 handed-over). O(watched keys).
    ///
    /// Versions that were drawn since are not drawn again, so nothing that was read since can be
    /// taken for something else later. Followers take a full copy.
    pub(crate) fn roll_back(
        &self,
        session: &mut SessionState,
        to: &NamedSnapshot,
        losing_newer: bool,
    ) -> Result<(), CommandError> {
        assert!(self.gates.are_all_taken());
        let engine = self.store.pooled().filter(|_| to.lasts);
        let engine = engine.ok_or(CommandError::SnapshotEndsHere)?;
        let list = self.snapshots.list();
        let newer: Vec<_> = list
            .iter()
            .filter(|other| other.epoch() > to.epoch())
            .collect();
        let named = newer.iter().filter(|newer| !newer.is_lent).count();
        if !losing_newer && named > 0 {
            let newer = named;
            return Err(CommandError::NewerSnapshots { newer });
        }
        // Those beyond the configured number are not shown, but kept.
        let (then, now) = (to.databases.len(), self.mapping().len());
        if then != now || now != self.databases() {
            return Err(CommandError::SnapshotOfOtherDatabases { then, now });
        }
        let time = session.now.milliseconds();
        assert!(!session.has_group());
        self.acknowledgement.end_epoch_within(time);
        for newer in newer {
            self.drop_snapshot(session, newer);
        }
        let before = self.mapping();
        let all: Vec<usize> = (0..self.databases()).collect();
        // The engine waits until nobody reads.
        session.store.unpin();
        self.change_trees(session, &all, || {
            let name = String::from_utf8_lossy(&to.name);
            let gone_back = engine.roll_back(&name, true);
            gone_back.unwrap_or_else(|error| panic!("the pool is not to be trusted: {error}"));
            let epoch = self.epochs.current();
            for (index, frozen) in to.databases.iter().enumerate() {
                self.mapping.set(index, frozen.tree, epoch);
            }
            for tree in before.iter().chain(&self.mapping()) {
                self.expiry.drop_tree(*tree);
            }
            self.expiry.filling.begin();
        });
        session.store.pin();
        self.snapshots.rollbacks.fetch_add(1, Ordering::Relaxed);
        remapping::record(self, session);
        // A new epoch: no follower stands in it.
        self.acknowledgement.rise_above(self.epochs.current(), time);
        let closed = self.closed_epoch();
        let mut lineage = lock(&self.lineage);
        *lineage = lineage.replaced(closed);
        pool::note_histories(engine, &lineage);
        drop(lineage);
        let ring = self.acknowledgement.ring();
        if ring.is_on() {
            ring.turn_on(closed);
        }
        Ok(())
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
        let (made_to_lend, borrowed) = self.lender.counts();
        let leases: Vec<_> = list
            .iter()
            .map(|snapshot| (snapshot.epoch(), self.lender.leases_of(snapshot, now)))
            .collect();
        let mut leased = leases.iter().filter(|(_, leases)| *leases > 0);
        SnapshotFigures {
            lent: list.iter().filter(|snapshot| snapshot.is_lent).count(),
            leases: leases.iter().map(|(_, leases)| leases).sum(),
            lowest: leases.first().map_or(LogEpoch::NONE, |(epoch, _)| *epoch),
            lowest_leased: leased.next().map_or(LogEpoch::NONE, |(epoch, _)| *epoch),
            made_to_lend,
            borrowed,
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

    /// The snapshot to drop now, if any: one that has expired, or that nobody uses and nobody has
    /// named, or the oldest that is not held if
    /// the images take more than they may. Records whether none can be dropped.
    pub(crate) fn overdue_snapshot(&self) -> Option<Arc<NamedSnapshot>> {
        let now = self.options.clock.now().milliseconds();
        let list = self.snapshots.list();
        let is_over = |until: Milliseconds| until <= now;
        // A replica's lasting ones go when those go that they repeat.
        let repeats = self.store.branching().is_some() && self.follows();
        let mut over = list
            .iter()
            .filter(|snapshot| snapshot.until.is_some_and(is_over) && !(repeats && snapshot.lasts));
        let mut lapsed = list
            .iter()
            .filter(|snapshot| self.lender.has_lapsed(snapshot, now));
        if let Some(over) = over.next().or_else(|| lapsed.next()) {
            return Some(Arc::clone(over));
        }
        let bytes_max = self.snapshots.bytes_max.load(Ordering::Relaxed) as u64;
        let is_beyond = !list.is_empty() && bytes_max > 0 && self.images().bytes > bytes_max;
        let oldest = self.snapshots.oldest_loose().filter(|_| is_beyond);
        self.snapshots.set_full(is_beyond && oldest.is_none());
        oldest
    }

    /// Drops what was lent and is not used any more. The caller holds all gates.
    fn drop_lapsed(&self, session: &mut SessionState) {
        let now = session.now.milliseconds();
        let list = self.snapshots.list();
        let lapsed = |snapshot: &&Arc<NamedSnapshot>| self.lender.has_lapsed(snapshot, now);
        for snapshot in list.iter().filter(lapsed) {
            self.drop_snapshot(session, snapshot);
        }
    }

    /// How old a snapshot may be that is lent to others than those who waited for it; at first 0.
    pub fn set_snapshot_staleness(&self, staleness: Milliseconds) {
        self.lender.set_staleness(staleness);
    }

    /// After what time without a command the lease of a snapshot ends; 0 is never.
    pub fn set_snapshot_lease(&self, lease: Milliseconds) {
        self.lender.set_lease(lease);
    }

    /// Drops an existing snapshot; its memory is reclaimed gradually. The caller holds all gates.
    pub(crate) fn drop_snapshot(&self, session: &mut SessionState, snapshot: &NamedSnapshot) {
        assert!(self.gates.are_all_taken());
        if snapshot.lasts && self.store.branching().is_some() {
            let released = Event::Released {
                epoch: snapshot.epoch(),
                name: snapshot.name.clone(),
            };
            self.note_change(session, self.epochs.current(), released);
        }
        self.snapshots.remove(snapshot.moment);
        if snapshot.is_lent {
            if self.lender.has_lapsed(snapshot, session.now.milliseconds()) {
                snapshot.leases.lapse();
            }
            self.lender.forget(snapshot);
        }
        if let Some(engine) = self.store.pooled().filter(|_| snapshot.lasts) {
            let released = engine.release_kept(&String::from_utf8_lossy(&snapshot.name));
            released.unwrap_or_else(|error| panic!("the pool is not to be trusted: {error}"));
        }
        self.store.release(snapshot.moment.snapshot);
        let mut kept: HashSet<_> = self.mapping().into_iter().collect();
        kept.extend(self.snapshots.trees());
        kept.extend(self.branches.trees());
        for frozen in &snapshot.databases {
            if !kept.contains(&frozen.tree) {
                self.store.drop_tree(frozen.tree);
            }
        }
    }
}
