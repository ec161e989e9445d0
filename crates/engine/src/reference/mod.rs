//! The reference engine: every tree a `BTreeMap` behind a readers-writer lock.
//!
//! It is the oracle of the conformance suite and can be served with `--engine reference`: simple
//! enough to be right by inspection, fast enough to be used. Point operations cost O(log keys)
//! comparisons under their tree's lock.
//!
//! | field | writer, under which lock | reader |
//! |---|---|---|
//! | `trees` | `create_tree`, `drop_tree`: its `RwLock` exclusively | every operation, shared |
//! | `Tree::map` | `update`, `maintain`, `drop_tree`: likewise | all that reads keys, shared |
//! | `dropped` | `drop_tree`, `maintain`: its mutex | `maintain` |
//! | `frozen` | `freeze`, `release`: its `RwLock` exclusively | reads at a snapshot, shared |
//! | `sessions` | `session`, drop of a session: atomic | `session` |
//!
//! Invariants:
//! - **RE1 locks-in-order** No other lock is held when a lock is taken, so there is no cycle of
//!   waits. Exceptions: a snapshot is made under `frozen`, `trees` and a tree's lock, taken in this
//!   order, and a run ends under the locks of the trees it touched, in the order of their numbers.
//! - **RE2** The hook and the closures of `get`, `update`, `scan` and `sample` run under the tree's
//!   lock. They cannot reach their own session (it is borrowed) and must not use another one.
//! - **RE3** A scan takes the lock anew for every [`SCAN_CHUNK_ENTRIES`] entries and continues
//!   after the last key it saw, so writers wait for at most one chunk. Its output is in order, and
//!   the chunk that covers a key that stays shows it (E4 scan-complete).
//! - **RE4 free-after-lock** A replaced or removed value is freed after the lock is released.
//!
//! Deliberately absent: lock-free reads, prefetching, reclamation (a lock needs none, so pins do
//! nothing).

mod map;
mod runs;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pando_sync::lock;
use pando_sync::shim::unmodelled::{AtomicU32, AtomicUsize, Ordering};

use crate::limits::SESSIONS_MAX;
use crate::{
    Engine, EpochClock, Gauge, Images, LogEpoch, SessionLimit, Snapshot, SnapshotLimit, Snapshots,
    TreeId, ValueVersion,
};
use map::Map;
pub use session::ReferenceSession;

/// Entries, tombstones included, that a scan looks at before it releases the lock (RE3).
pub(crate) const SCAN_CHUNK_ENTRIES: usize = 64;

/// The options of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceOptions {
    /// A seed for tests of callers that retry runs (see [`crate::Transactional`]): from it,
    /// absences and conflicts are drawn at random. None by default.
    pub absences: Option<u64>,
}

/// Ordered trees behind locks; see the module's header.
pub struct ReferenceEngine {
    clock: Arc<EpochClock>,
    trees: RwLock<HashMap<TreeId, Arc<Tree>>>,
    next_tree: AtomicU32,
    /// Trees that were dropped and are freed step by step.
    dropped: Mutex<Vec<Map>>,
    /// Plain copies of all trees that had keys (SN1 past-stands).
    frozen: RwLock<BTreeMap<Snapshot, HashMap<TreeId, Frozen>>>,
    sessions: AtomicUsize,
    /// See [`ReferenceOptions::absences`].
    absences: Option<u64>,
}

/// A tree as it was, which nobody changes.
struct Frozen {
    tree: Arc<Tree>,
    images: Images,
}

#[derive(Default)]
struct Tree {
    map: RwLock<Map>,
}

impl Tree {
    // A closure that panics leaves the map as it was: it runs before the first change. So a
    // poisoned lock is as good as any other.
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReferenceEngine {
    fn tree(&self, tree: TreeId) -> Option<Arc<Tree>> {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        trees.get(&tree).cloned()
    }

    /// All trees, ordered by number.
    fn all_trees(&self) -> Vec<Arc<Tree>> {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = trees
            .iter()
            .map(|(id, tree)| (*id, Arc::clone(tree)))
            .collect();
        all.sort_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, tree)| tree).collect()
    }

    fn frozen(&self) -> RwLockReadGuard<'_, BTreeMap<Snapshot, HashMap<TreeId, Frozen>>> {
        self.frozen.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn frozen_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Snapshot, HashMap<TreeId, Frozen>>> {
        self.frozen.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn dropped(&self) -> MutexGuard<'_, Vec<Map>> {
        lock(&self.dropped)
    }
}

impl Engine for ReferenceEngine {
    type Session = ReferenceSession;
    type Options = ReferenceOptions;
    type OpenError = Infallible;

    const NAME: &'static str = "reference";

    fn open(clock: Arc<EpochClock>, options: ReferenceOptions) -> Result<Arc<Self>, Infallible> {
        Ok(Arc::new(Self {
            clock,
            trees: RwLock::default(),
            next_tree: AtomicU32::new(0),
            dropped: Mutex::default(),
            frozen: RwLock::default(),
            sessions: AtomicUsize::new(0),
            absences: options.absences,
        }))
    }

    fn session(self: &Arc<Self>) -> Result<ReferenceSession, SessionLimit> {
        // Relaxed: the count guards nothing but itself.
        self.sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < SESSIONS_MAX).then_some(open + 1)
            })
            .map_err(|_| SessionLimit {
                sessions_max: SESSIONS_MAX,
            })?;
        Ok(ReferenceSession::new(Arc::clone(self)))
    }

    fn create_tree(&self) -> TreeId {
        let tree = TreeId(self.next_tree.fetch_add(1, Ordering::Relaxed));
        assert!(tree.0 != u32::MAX, "tree numbers are used up");
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        trees.insert(tree, Arc::default());
        tree
    }

    fn restore_tree(&self, tree: TreeId) {
        assert!(tree.0 != u32::MAX, "tree numbers are used up");
        self.next_tree.fetch_max(tree.0 + 1, Ordering::Relaxed);
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        trees.entry(tree).or_default();
    }

    fn drop_tree(&self, tree: TreeId) {
        let removed = {
            let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
            trees.remove(&tree)
        };
        let Some(tree) = removed else { return };
        // An operation that found the tree earlier may still write to it: into an empty map that is
        // freed with its last holder.
        let map = std::mem::take(&mut *tree.write());
        self.dropped().push(map);
    }

    fn len(&self, tree: TreeId) -> u64 {
        self.tree(tree).map_or(0, |tree| tree.read().len() as u64)
    }

    fn reclaimable_bytes(&self) -> usize {
        let trees = self.all_trees();
        let tombstones = trees.iter().map(|tree| tree.read().tombstones());
        tombstones.sum::<usize>() * map::TOMBSTONE_BYTES
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        let trees = self.all_trees();
        let (mut keys, mut tombstones) = (0, 0);
        for tree in &trees {
            let map = tree.read();
            keys += map.len();
            tombstones += map.tombstones();
        }
        let entries: usize = self.dropped().iter().map(Map::entries).sum();
        let of_trees = Gauge::of_trees(trees.len() as u64, keys as u64, tombstones as u64);
        of_trees.into_iter().for_each(&mut *report);
        let mut figure = |name, help, value: usize| {
            report(Gauge {
                name,
                help,
                value: value as f64,
            });
        };
        figure(
            "dropped_entries",
            "Entries of dropped trees that are not freed yet.",
            entries,
        );
        figure(
            "sessions",
            "Sessions that are open.",
            self.sessions.load(Ordering::Relaxed),
        );
    }
}

/// Snapshots are plain copies, so every value counts as kept from the start.
impl Snapshots for ReferenceEngine {
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit> {
        assert!(epoch < self.clock.current(), "the epoch has not ended");
        let snapshot = Snapshot::of_epoch(epoch);
        let mut frozen = self.frozen_mut();
        SnapshotLimit::check(frozen.len())?;
        let newest = frozen.keys().next_back();
        assert!(newest.is_none_or(|newest| *newest < snapshot));
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        let copies = trees.iter().map(|(id, tree)| {
            let (map, bytes) = tree.read().frozen();
            let images = Images {
                count: map.len() as u64,
                bytes: bytes as u64,
            };
            let tree = Arc::new(Tree {
                map: RwLock::new(map),
            });
            (*id, Frozen { tree, images })
        });
        frozen.insert(snapshot, copies.collect());
        Ok(snapshot)
    }

    fn release(&self, snapshot: Snapshot) {
        let trees = self.frozen_mut().remove(&snapshot);
        assert!(trees.is_some(), "released twice");
        for frozen in trees.into_iter().flat_map(HashMap::into_values) {
            let map = std::mem::take(&mut *frozen.tree.write());
            self.dropped().push(map);
        }
    }

    fn is_unsettled(&self) -> bool {
        false
    }

    fn settle(&self) {}

    fn keeps(&self, version: ValueVersion) -> bool {
        let frozen = self.frozen();
        let newest = frozen.keys().next_back();
        newest.is_some_and(|newest| newest.holds(version))
    }

    fn images(&self, snapshot: Snapshot) -> Images {
        let frozen = self.frozen();
        let all = frozen.get(&snapshot).into_iter().flat_map(HashMap::values);
        all.fold(Images::default(), |sum, frozen| Images {
            count: sum.count + frozen.images.count,
            bytes: sum.bytes + frozen.images.bytes,
        })
    }

    fn image_trees(&self) -> Vec<TreeId> {
        Vec::new()
    }
}

impl fmt::Debug for ReferenceEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceEngine")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
