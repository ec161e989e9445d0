//! Snapshots by their names: the moments at which all databases can be read.
//!
//! The engine keeps what a snapshot shows of a tree. This module records which tree each database
//! had, and how many keys it showed: SWAPDB, FLUSHDB and FLUSHALL change the mapping and leave a
//! snapshot's own untouched.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `list` | makers and droppers of snapshots | all gates, and its mutex | the same; a session with an older list |
//! | `changes`, `loose` | the same | all gates, `Relaxed` | commands under a gate, `Relaxed` |
//! | `count_max`, `bytes_max` | CONFIG SET | `Relaxed` | SNAPSHOT CREATE, maintenance |
//! | `is_full` | maintenance | `Relaxed` | writes |
//! | `rollbacks` | SNAPSHOT ROLLBACK, large merges | all gates, `Relaxed` | cas tokens, under a gate, `Relaxed` |
//!
//! A session keeps the list that it last saw ([`Seen`]), so reading in a snapshot writes no shared
//! memory.
//!
//! Invariants:
//! - **NS1 list-stands-still** The list changes only under all gates, so a snapshot found under a
//!   gate exists until the gate is released. The gates' mutexes order `changes`.
//! - **NS2 asked-every-turn** Whatever outlives a turn names a snapshot by its moment and checks in
//!   every turn, before it reads, whether it still exists: a dropped one is an error, never other
//!   data.
//! - **NS3 trees-stay** A tree that a snapshot shows is dropped when neither a database nor another
//!   snapshot has it any more.
//!
//! What the engine keeps for snapshots is bounded by `bytes_max`. Above it the oldest snapshot that
//! is not held is dropped. If all are held, `is_full` is set, and writes that need an image are
//! refused.
//!
//! Deliberately absent: making and dropping them (`freeze`), who uses them (`lender`).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use pando_engine::{LogEpoch, Snapshot, TreeId};
use pando_sync::lock;

use crate::clock::Milliseconds;
pub(crate) use crate::durable::catalog::Frozen;
use crate::durable::catalog::SnapshotNote;
use crate::durable::forks::Place;
use crate::error::CommandError;
use crate::limits;
use crate::view::{Moment, View};

/// A snapshot of all databases.
#[derive(Debug)]
pub(crate) struct NamedSnapshot {
    pub(crate) name: Box<[u8]>,
    pub(crate) moment: Moment,
    /// When it is dropped automatically.
    pub(crate) until: Option<Milliseconds>,
    /// It is dropped only on request.
    pub(crate) is_held: bool,
    /// The pool, or the log, keeps it across restarts.
    pub(crate) lasts: bool,
    /// Nobody has named it: it is there for those who borrow it (`lender`).
    pub(crate) is_lent: bool,
    pub(crate) leases: Leases,
    pub(crate) databases: Box<[Frozen]>,
    /// What a branch is made from that is made from it.
    pub(crate) place: Place,
}

impl NamedSnapshot {
    /// One that was recovered. A database that there was not has the tree that the first branch has
    /// now: it showed nothing then.
    pub(crate) fn noted(note: &SnapshotNote, trees: &[TreeId]) -> Self {
        let mut databases = note.databases.clone();
        let missing = trees.iter().skip(databases.len());
        databases.extend(missing.map(|tree| Frozen {
            tree: *tree,
            keys: 0,
        }));
        Self {
            name: note.name.clone(),
            moment: Moment {
                snapshot: Snapshot::of_epoch(note.epoch),
                time: note.time,
            },
            until: note.until,
            is_held: true,
            lasts: true,
            is_lent: false,
            leases: Leases::default(),
            databases: databases.into(),
            place: note.place.clone(),
        }
    }

    /// Database `index` in it.
    pub(crate) fn view(&self, index: usize) -> View {
        View::past(self.databases[index].tree, self.moment)
    }

    /// The log epoch up to which its content was written.
    pub(crate) fn epoch(&self) -> LogEpoch {
        self.moment.snapshot.epoch()
    }

    /// The trees that the databases had.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.databases.iter().map(|frozen| frozen.tree)
    }
}

/// The leases of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    all: Mutex<Vec<Weak<Held>>>,
    /// The snapshot went because none stood any more.
    lapsed: AtomicBool,
}

impl Leases {
    /// How many stand, when each does for so long after its reader's last turn, or for ever.
    pub(crate) fn standing(&self, now: Milliseconds, lease: Milliseconds) -> usize {
        let stands = |held: &Weak<Held>| {
            let held = held.upgrade();
            held.is_some_and(|held| {
                let beat = Milliseconds(held.beat.load(Ordering::Relaxed));
                lease.0 == 0 || now.saturating_sub(beat) < lease
            })
        };
        let all = lock(&self.all);
        all.iter().filter(|held| stands(held)).count()
    }

    /// The snapshot goes, since none of them stands.
    pub(crate) fn lapse(&self) {
        self.lapsed.store(true, Ordering::Relaxed);
    }
}

/// A reader's lease of a snapshot, until the last copy of it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Lease(Arc<Held>);

#[derive(Debug)]
struct Held {
    snapshot: Arc<NamedSnapshot>,
    /// When its reader used it last.
    beat: AtomicU64,
}

impl Lease {
    /// A lease of an existing snapshot. The caller holds a gate.
    pub(crate) fn of(snapshot: &Arc<NamedSnapshot>, now: Milliseconds) -> Self {
        let held = Arc::new(Held {
            snapshot: Arc::clone(snapshot),
            beat: AtomicU64::new(now.0),
        });
        let mut all = lock(&snapshot.leases.all);
        if all.len() == all.capacity() {
            all.retain(|held| held.strong_count() > 0);
        }
        all.push(Arc::downgrade(&held));
        Self(held)
    }

    /// What it is of.
    pub(crate) fn snapshot(&self) -> &Arc<NamedSnapshot> {
        &self.0.snapshot
    }

    /// Its reader is about to read, under a gate (LD2 leased-stays of `lender`).
    pub(crate) fn renew(&self, now: Milliseconds) {
        self.0.beat.store(now.0, Ordering::Relaxed);
    }

    /// Why the snapshot is not there.
    pub(crate) fn why_gone(&self) -> CommandError {
        if self.snapshot().leases.lapsed.load(Ordering::Relaxed) {
            CommandError::LeaseEnded
        } else {
            CommandError::SnapshotGone
        }
    }
}

/// What names of snapshots begin with that are lent, and who wants one asks for.
pub(crate) const RECENT: &str = "RECENT";

/// Whether a name is one that nobody gives: it is [`RECENT`], perhaps with something behind.
fn is_recent(name: &[u8]) -> bool {
    let word = name.split(|byte| *byte == b'@').next();
    word.is_some_and(|word| word.eq_ignore_ascii_case(RECENT.as_bytes()))
}

/// Whether a name, of a snapshot or a branch, means something else to SNAPSHOT.
pub(crate) fn is_word(name: &[u8]) -> bool {
    ["ALL", "NONE"]
        .iter()
        .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
        || is_recent(name)
}

/// Snapshots, oldest first.
type List = Arc<[Arc<NamedSnapshot>]>;

/// All snapshots of a database.
#[derive(Debug)]
pub(crate) struct Snapshots {
    list: Mutex<List>,
    changes: AtomicU64,
    /// How many are not held.
    loose: AtomicUsize,
    pub(crate) count_max: AtomicUsize,
    /// Bytes that their images may take; 0 is no bound.
    pub(crate) bytes_max: AtomicUsize,
    is_full: AtomicBool,
    /// How often the present was made what a snapshot shows.
    pub(crate) rollbacks: AtomicU64,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self {
            list: Mutex::default(),
            changes: AtomicU64::new(0),
            loose: AtomicUsize::new(0),
            count_max: AtomicUsize::new(limits::SNAPSHOTS_MAX),
            bytes_max: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            rollbacks: AtomicU64::new(0),
        }
    }
}

/// The list as a session last saw it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    list: List,
    changes: u64,
}

impl Seen {
    /// The present list. The caller holds a gate (NS1 list-stands-still).
    fn list(&mut self, snapshots: &Snapshots) -> &[Arc<NamedSnapshot>] {
        let changes = snapshots.changes.load(Ordering::Relaxed);
        if changes != self.changes {
            self.list = snapshots.list();
            self.changes = changes;
        }
        &self.list
    }

    /// The snapshot of this name. The caller holds a gate (NS1 list-stands-still).
    pub(crate) fn named(
        &mut self,
        snapshots: &Snapshots,
        name: &[u8],
    ) -> Result<&Arc<NamedSnapshot>, CommandError> {
        let mut list = self.list(snapshots).iter();
        let found = list.find(|snapshot| *snapshot.name == *name);
        found.ok_or(CommandError::NoSnapshot)
    }

    /// The snapshot of this moment, or an error if it was dropped (NS2 asked-every-turn). The
    /// caller holds a gate (NS1 list-stands-still).
    pub(crate) fn at(
        &mut self,
        snapshots: &Snapshots,
        moment: Moment,
    ) -> Result<&Arc<NamedSnapshot>, CommandError> {
        let mut list = self.list(snapshots).iter();
        let found = list.find(|snapshot| snapshot.moment == moment);
        found.ok_or(CommandError::SnapshotGone)
    }
}

impl Snapshots {
    /// How often they have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// All of them, oldest first. Under a gate the list does not change (NS1 list-stands-still).
    pub(crate) fn list(&self) -> List {
        Arc::clone(&lock(&self.list))
    }

    /// Whether one more may have this name. The caller holds all gates (NS1 list-stands-still).
    pub(crate) fn check_name(&self, name: &[u8]) -> Result<(), CommandError> {
        let name_bytes_max = limits::SNAPSHOT_NAME_BYTES_MAX;
        if name.len() > name_bytes_max {
            let name_bytes = name.len();
            Err(CommandError::SnapshotNameTooLong {
                name_bytes,
                name_bytes_max,
            })
        } else if name.is_empty() || is_word(name) {
            Err(CommandError::SnapshotNameTaken)
        } else if !name.iter().all(u8::is_ascii_graphic) {
            Err(CommandError::SnapshotNameBytes)
        } else if self.list().iter().any(|other| *other.name == *name) {
            Err(CommandError::SnapshotExists)
        } else {
            Ok(())
        }
    }

    /// Adds the newest one. The caller holds all gates (NS1 list-stands-still).
    pub(crate) fn add(&self, snapshot: NamedSnapshot) -> Arc<NamedSnapshot> {
        let (list, added) = (self.list(), Arc::new(snapshot));
        let newest = list.last().map(|newest| newest.epoch());
        assert!(newest < Some(added.epoch()), "epochs do not come back");
        assert!(list.len() < limits::SNAPSHOTS_MAX);
        let all = list.iter().chain([&added]);
        self.change(all.cloned().collect());
        added
    }

    /// Removes one. The caller holds all gates (NS1 list-stands-still).
    pub(crate) fn remove(&self, moment: Moment) {
        let list = self.list();
        let others = list.iter().filter(|snapshot| snapshot.moment != moment);
        let others: List = others.cloned().collect();
        assert_eq!(others.len() + 1, list.len(), "removed once");
        self.change(others);
    }

    fn change(&self, list: List) {
        let loose = list.iter().filter(|snapshot| !snapshot.is_held).count();
        *lock(&self.list) = list;
        self.loose.store(loose, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// The oldest one that is not held.
    pub(crate) fn oldest_loose(&self) -> Option<Arc<NamedSnapshot>> {
        if self.loose.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let list = self.list();
        list.iter().find(|snapshot| !snapshot.is_held).cloned()
    }

    /// Whether their images take all that they may, and none can be dropped.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Sets [`Self::is_full`].
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether one of them shows this tree (NS3 trees-stay).
    pub(crate) fn show(&self, tree: TreeId) -> bool {
        self.list()
            .iter()
            .any(|snapshot| snapshot.trees().any(|shown| shown == tree))
    }

    /// The trees that they show, some of them more than once (NS3 trees-stay).
    pub(crate) fn trees(&self) -> Vec<TreeId> {
        self.list()
            .iter()
            .flat_map(|snapshot| snapshot.trees())
            .collect()
    }

    /// Keys of a tree in an existing snapshot.
    pub(crate) fn keys(&self, tree: TreeId, moment: Moment) -> u64 {
        let list = self.list();
        let mut frozen = list
            .iter()
            .filter(|snapshot| snapshot.moment == moment)
            .flat_map(|snapshot| &snapshot.databases);
        let found = frozen.find(|frozen| frozen.tree == tree);
        found.map_or(0, |frozen| frozen.keys)
    }
}
