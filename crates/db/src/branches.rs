//! Branches by their names: databases that go their own way, on an engine that has branches.
//!
//! Branch `b` has the indexes from `b · databases` on: the rest of this crate knows a database of a
//! branch by such an index, as it knows those of the first branch by theirs. Its trees have numbers
//! of their own. So counts, deadlines, watches and lines are a branch's own, and nothing that is
//! done on one reaches another.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `list` | all that changes branches or their trees | all gates, and its lock | under a gate |
//! | `mainline` | BRANCH MAIN | all gates, `Relaxed` | new connections, RESET, `Relaxed` |
//! | `changed_in` | the same | all gates, `Relaxed` | clients of `sync`, under a gate, `Relaxed` |
//! | `expirer` | maintenance | its mutex | the same |
//! | `swept` | maintenance | a gate, `Relaxed` | the same |
//! | `merging` | a merge that builds a hidden branch, under all gates | its mutex | the same, maintenance |
//! | `changes` | all that is logged of branches and lasting snapshots | all gates, `Relaxed` | checkpoints, under all gates |
//!
//! The first branch is the database as it is without others: eviction knows it alone, and rests
//! while there are others (EV4 no-eviction-branched).
//! In a database on disk all branches last: what is written on one is logged by its trees' numbers,
//! and what becomes of branches as `durable::catalog` says.
//!
//! Invariants:
//! - **NB1 list-stands-still** The list changes only under all gates, so a branch found under a
//!   gate is there until the gate is released.
//! - **NB2 asked-every-turn** Whatever outlives a turn asks in every turn whether its branch is
//!   still there. The trees of a dropped one show nothing.
//!
//! Deliberately absent: the commands (`turn::branches`).

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use pando_engine::{LogEpoch, TreeId};
use pando_minuet::BranchId;

use crate::clock::Milliseconds;
use crate::durable::catalog::BranchNote;
use crate::durable::forks::{Fork, Merged, source_of};
use crate::error::CommandError;
use crate::grove::{Grove, Grown};
use crate::limits;
use crate::snapshots::is_word;

/// A tree that never is: that of a branch that has gone.
const NO_TREE: TreeId = TreeId(u32::MAX);

/// A database of a branch, by its index there.
pub(crate) type Place = (BranchId, usize);

/// A branch.
#[derive(Clone, Debug)]
pub(crate) struct NamedBranch {
    pub(crate) id: BranchId,
    /// Its number on disk, which is later for those made later (`durable::catalog`).
    pub(crate) number: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) created: Milliseconds,
    /// What it was made from had this name then; empty of the first one.
    pub(crate) origin: Box<[u8]>,
    /// Those of its databases; none of the first one, whose trees the mapping has.
    pub(crate) trees: Vec<TreeId>,
    /// Ids in descendant sets of its nodes, at most.
    pub(crate) descendants_max: u8,
    /// Where it was made; none of the first.
    pub(crate) forks: Option<Arc<Fork>>,
    /// What it has merged (`turn::branches::marks`).
    pub(crate) merged: Merged,
    /// How often it was reset since the start.
    pub(crate) resets: u64,
}

impl NamedBranch {
    /// Whether clients do not see it.
    pub(crate) fn is_hidden(&self) -> bool {
        self.is_unfinished() || self.is_mark()
    }

    /// Whether a merge builds it (`turn::branches::build`), or has.
    fn is_unfinished(&self) -> bool {
        self.name.starts_with(limits::HIDDEN_PREFIX)
    }

    /// Whether it says what was merged (`turn::branches::marks`).
    pub(crate) fn is_mark(&self) -> bool {
        self.source().is_some()
    }

    /// The number of the branch that was merged, if this is a mark.
    pub(crate) fn source(&self) -> Option<u64> {
        source_of(&self.name)
    }

    /// What log and checkpoints say of it.
    pub(crate) fn note(&self) -> BranchNote {
        BranchNote {
            number: self.number,
            name: self.name.clone(),
            created: self.created,
            origin: self.origin.clone(),
            trees: self.trees.clone(),
            descendants_max: self.descendants_max,
            forks: self.forks.clone(),
            merged: Arc::clone(&self.merged),
        }
    }
}

/// Branches, and how they are found.
#[derive(Debug, Default)]
pub(crate) struct List {
    by_id: BTreeMap<BranchId, NamedBranch>,
    by_name: HashMap<Box<[u8]>, BranchId>,
    by_number: HashMap<u64, BranchId>,
    /// How many of them are hidden.
    hidden: usize,
}

impl Deref for List {
    type Target = BTreeMap<BranchId, NamedBranch>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl List {
    /// Adds a branch whose name and number no other one has.
    pub(crate) fn insert(&mut self, branch: NamedBranch) {
        let id = branch.id;
        self.by_name.insert(branch.name.clone(), id);
        self.by_number.insert(branch.number, id);
        self.hidden += usize::from(branch.is_hidden());
        self.by_id.insert(id, branch);
    }

    pub(crate) fn remove(&mut self, id: BranchId) -> Option<NamedBranch> {
        let branch = self.by_id.remove(&id)?;
        self.by_name.remove(&branch.name);
        self.by_number.remove(&branch.number);
        self.hidden -= usize::from(branch.is_hidden());
        Some(branch)
    }

    /// Changes a branch, even its name.
    pub(crate) fn change(&mut self, id: BranchId, change: impl FnOnce(&mut NamedBranch)) {
        let mut branch = self.remove(id).expect("a branch that is there");
        change(&mut branch);
        self.insert(branch);
    }
}

/// All branches of a database.
#[derive(Debug)]
pub(crate) struct Branches {
    list: RwLock<List>,
    mainline: AtomicU32,
    /// How often branches or lasting snapshots have changed, as the log says.
    pub(crate) changes: AtomicU64,
    /// The epoch of the last change of a database on disk, 0 before the first.
    changed_in: AtomicU64,
    /// Where the expirer goes on.
    pub(crate) expirer: Mutex<Expirer>,
    /// The merge that goes on with a hidden branch, as long as it does.
    pub(crate) merging: Mutex<Weak<()>>,
    /// After so many changes of branches and snapshots, no mark was stale.
    pub(crate) swept: AtomicU64,
}

/// Where the expirer is among the databases of branches.
#[derive(Debug, Default)]
pub(crate) struct Expirer {
    pub(crate) place: Place,
    /// The last key that it has met there.
    pub(crate) after: Option<Vec<u8>>,
}

impl Branches {
    /// Those that recovery has found, the first one at least.
    pub(crate) fn new(grove: Grove) -> Self {
        let mainline = grove.branches.get(&grove.mainline);
        let mainline = mainline.map_or(BranchId::FIRST, |branch| branch.id);
        let mut list = List::default();
        for Grown { id, note } in grove.branches.into_values() {
            list.insert(NamedBranch {
                id,
                number: note.number,
                name: note.name,
                created: note.created,
                origin: note.origin,
                trees: note.trees,
                descendants_max: note.descendants_max,
                forks: note.forks,
                merged: note.merged,
                resets: 0,
            });
        }
        Self {
            list: RwLock::new(list),
            mainline: AtomicU32::new(mainline.0),
            changes: AtomicU64::new(grove.changes),
            changed_in: AtomicU64::new(0),
            expirer: Mutex::default(),
            merging: Mutex::default(),
            swept: AtomicU64::new(u64::MAX),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, List> {
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list, to change it. The caller holds all gates (NB1 list-stands-still).
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, List> {
        self.list.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, in the order in which they were made.
    pub(crate) fn all(&self) -> Vec<NamedBranch> {
        let mut all: Vec<NamedBranch> = self.read().values().cloned().collect();
        all.sort_unstable_by_key(|branch| branch.number);
        all
    }

    /// How many there are, hidden ones among them.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    /// How many of them clients see.
    pub(crate) fn seen(&self) -> usize {
        let list = self.read();
        list.len() - list.hidden
    }

    /// Those that merges build, or have.
    pub(crate) fn hidden(&self) -> Vec<NamedBranch> {
        let list = self.read();
        let hidden = list.values().filter(|branch| branch.is_unfinished());
        hidden.cloned().collect()
    }

    /// Those that say what was merged, in the order in which they were made.
    pub(crate) fn marks(&self) -> Vec<NamedBranch> {
        let list = self.read();
        let marks = list.values().filter(|branch| branch.is_mark());
        let mut marks: Vec<NamedBranch> = marks.cloned().collect();
        marks.sort_unstable_by_key(|mark| mark.number);
        marks
    }

    /// Whether a branch is there.
    pub(crate) fn has(&self, id: BranchId) -> bool {
        self.read().contains_key(&id)
    }

    pub(crate) fn get(&self, id: BranchId) -> Option<NamedBranch> {
        self.read().get(&id).cloned()
    }

    /// The branch of this number.
    pub(crate) fn numbered(&self, number: u64) -> Option<NamedBranch> {
        let list = self.read();
        list.get(list.by_number.get(&number)?).cloned()
    }

    /// The indexes of all trees but those of the first branch.
    pub(crate) fn indexes(&self, databases: usize) -> HashMap<TreeId, usize> {
        let list = self.read();
        let of_branch = |(id, branch): (&BranchId, &NamedBranch)| {
            let base = id.0 as usize * databases;
            let trees = branch.trees.clone().into_iter().enumerate();
            trees.map(move |(index, tree)| (tree, base + index))
        };
        list.iter().flat_map(of_branch).collect()
    }

    /// Others take their place, after so many changes at least. The caller holds all gates, and has
    /// dropped all but the first.
    pub(crate) fn replace(&self, grove: Grove) {
        let changes = self.changes.load(Ordering::Relaxed) + 1;
        self.changes
            .store(changes.max(grove.changes), Ordering::Relaxed);
        let others = Self::new(grove);
        *self.write() = std::mem::take(&mut *others.write());
        self.set_mainline(others.mainline());
    }

    /// The branch of this name. MAIN, in any case, is the first one unless another has that name.
    pub(crate) fn named(&self, name: &[u8]) -> Result<NamedBranch, CommandError> {
        let list = self.read();
        let found = list.by_name.get(name).and_then(|id| list.get(id));
        let found = found.filter(|branch| !branch.is_hidden());
        let main = || {
            name.eq_ignore_ascii_case(b"main")
                .then_some(BranchId::FIRST)
        };
        let found = found.or_else(|| list.get(&main()?));
        found.cloned().ok_or(CommandError::NoBranch)
    }

    /// Whether a branch, perhaps one that is there, may get this name.
    pub(crate) fn check_name(&self, name: &[u8], of: Option<BranchId>) -> Result<(), CommandError> {
        let name_bytes_max = limits::SNAPSHOT_NAME_BYTES_MAX;
        if name.len() > name_bytes_max {
            let name_bytes = name.len();
            Err(CommandError::SnapshotNameTooLong {
                name_bytes,
                name_bytes_max,
            })
        } else if is_word(name) {
            Err(CommandError::BranchNameTaken)
        } else if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            Err(CommandError::BranchName)
        } else if self.named(name).is_ok_and(|other| Some(other.id) != of) {
            Err(CommandError::BranchExists)
        } else {
            Ok(())
        }
    }

    /// The tree behind an index of a branch but the first.
    pub(crate) fn tree(&self, index: usize, databases: usize) -> TreeId {
        let list = self.read();
        let branch = list.get(&BranchId((index / databases) as u32));
        branch.map_or(NO_TREE, |branch| branch.trees[index % databases])
    }

    /// The trees of all branches but the first.
    pub(crate) fn trees(&self) -> Vec<TreeId> {
        let list = self.read();
        let trees = list.values().flat_map(|branch| &branch.trees);
        trees.copied().collect()
    }

    /// The first database at or behind `from` of a branch but the first, and its tree. Nothing
    /// expires in marks: nobody reads them.
    pub(crate) fn tree_from(&self, from: Place) -> Option<(Place, TreeId)> {
        let list = self.read();
        let mut live = list.range(from.0..).filter(|(_, it)| !it.is_mark());
        live.find_map(|(id, branch)| {
            let index = if *id == from.0 { from.1 } else { 0 };
            Some(((*id, index), *branch.trees.get(index)?))
        })
    }

    /// The epoch in which branches changed for the last time, 0 if that is not logged or was before
    /// the start: what is seen of them is undone if a crash loses that epoch.
    pub(crate) fn changed_in(&self) -> LogEpoch {
        LogEpoch(self.changed_in.load(Ordering::Relaxed))
    }

    /// They change now. The caller holds all gates.
    pub(crate) fn set_changed_in(&self, epoch: LogEpoch) {
        self.changed_in.store(epoch.0, Ordering::Relaxed);
    }

    /// The branch that new connections use.
    pub(crate) fn mainline(&self) -> BranchId {
        BranchId(self.mainline.load(Ordering::Relaxed))
    }

    /// Makes a branch that. The caller holds all gates.
    pub(crate) fn set_mainline(&self, branch: BranchId) {
        self.mainline.store(branch.0, Ordering::Relaxed);
    }
}
