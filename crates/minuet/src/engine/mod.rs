//! Minuet in one process, behind the contract that every engine keeps.
//!
//! The memnodes are in this process and answer at once. Commands read their slots directly, and a
//! change of a leaf that needs no other page is one change of one slot. All others are transactions
//! of the coordinator, as they would be over a network: splits, merges, large values, the first
//! change of a page after a snapshot, snapshots, collection.
//!
//! One B-tree holds all of an engine's trees. Long keys are in bundles (`bundle`), large values in
//! slots of their own (`tree/large.rs`); `value` says how a value is laid out.
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `state` | updates, restores, maintenance, snapshots: its `RwLock` exclusively | everything else, shared |
//! | `newest_frozen` | whoever makes or releases a snapshot, under `state`: `Release` | `keeps`, `Acquire` |
//! | `sessions` | whoever opens or closes one: `Relaxed`, a count | the same |
//!
//! - **ME1 turns** Whoever holds `state` exclusively is in one turn with all memnodes: nothing is
//!   prepared or locked then, and what is read is what is there when the change is made.
//! - **ME2 pointers-hold** A pointer of the tip's pages, or of a kept snapshot's, leads to the page
//!   that it was made for: pages are freed under the exclusive lock, and only when no kept version
//!   has them. So a reader under the shared lock needs none of a traversal's checks, and only goes
//!   on to discretionary copies (MF2 forwarders-lead-on) once there are branches.
//! - **ME3 versions-drawn** A key's version is drawn from the clock, as on other engines, and given
//!   to the tree. The versions of removed keys are remembered in memory until the horizon has
//!   passed them: a log of keys is replayed by versions, in any order.
//!
//! Branches are the tree's own too; `sight` says how trees of theirs are told apart, `branches`
//! what is done with them.
//!
//! Deliberately absent, so far: durability of its own (the database logs the keys of all branches,
//! and makes them and lasting snapshots again, see `album`), several writers at a time. A
//! large value is stored in one piece: a change of it costs O(size), and so does a read of a large
//! hash.

mod album;
mod branches;
mod bundle;
mod change;
mod collect;
mod place;
mod session;
mod sight;
mod snapshots;
#[cfg(test)]
mod tests;
mod value;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pando_engine::limits::SESSIONS_MAX;
use pando_engine::{Engine, EpochClock, Gauge, Graves, KeptImages, SessionLimit, Snapshot, TreeId};
use pando_memnode::{CoordinatorId, Limits};

use crate::branch::BranchId;
use crate::error::{Error, Stop};
use crate::snapshot::FIXED_SLOTS;
use crate::transaction::Transaction;
use crate::transport::Embedded;
use crate::{Config, Database};
pub use album::{AlbumNode, NOWHERE};
pub use branches::{Differing, From, is_of_branch};
use collect::Collecting;
pub use session::MinuetSession;
use sight::Sight;

/// What an engine is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memnodes in this process, which pages are spread over; 1 by default.
    pub memnodes: u16,
    /// See [`Config::page_bytes`]; 1 KiB at least, 4 KiB by default.
    pub page_bytes: usize,
}

/// Pages hold [`bundle::SHORT_BYTES`] of a key, its tree's number, and a zero behind it.
const PAGE_BYTES_MIN: usize = 4096;
const _: () = assert!(bundle::SHORT_BYTES + 5 <= PAGE_BYTES_MIN / 16);

impl Default for Options {
    fn default() -> Self {
        Self {
            memnodes: 1,
            page_bytes: PAGE_BYTES_MIN,
        }
    }
}

/// Trees over memnodes, which all sessions share; see the module's header.
pub struct Minuet {
    clock: Arc<EpochClock>,
    state: RwLock<State>,
    /// The newest epoch that a snapshot sees; 0: there is none.
    newest_frozen: AtomicU64,
    sessions: AtomicUsize,
}

/// A tree among others.
#[derive(Clone, Copy, Debug)]
struct Counted {
    keys: u64,
    dropped: bool,
    branch: BranchId,
    /// Its number in pages.
    base: TreeId,
}

impl Counted {
    /// An empty tree of the first branch.
    fn first(tree: TreeId) -> Self {
        Self {
            keys: 0,
            dropped: false,
            branch: BranchId::FIRST,
            base: tree,
        }
    }
}

struct State {
    database: Database,
    /// The first branch's tip, which only this process moves.
    tip: Sight,
    /// Those of the other branches.
    tips: BTreeMap<BranchId, Sight>,
    /// Whether there was ever another branch.
    is_branched: bool,
    trees: BTreeMap<TreeId, Counted>,
    /// Those of them that were dropped, and whose keys are to be removed.
    dropped: BTreeSet<TreeId>,
    next_tree: u32,
    next_branch_tree: u32,
    /// Which of the numbers for a while was given last.
    last_loose_tree: u32,
    /// Trees that show where two branches part, while these are merged, or a version of the album.
    bases: BTreeMap<TreeId, Sight>,
    /// The versions of the album that is open; none is.
    album: Vec<Sight>,
    graves: Graves,
    frozen: BTreeMap<Snapshot, Sight>,
    images: KeptImages,
    collecting: Collecting,
}

impl fmt::Debug for Minuet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Minuet")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// What a transaction of this process returned.
///
/// # Panics
/// When it failed: its bounds are those of the engine, and nobody is in its way (ME1 turns).
fn sound<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("a transaction in one process fails: {error}"))
}

impl State {
    /// Counts keys that came and went.
    fn count(&mut self, tree: TreeId, came: bool, went: bool) {
        if let Some(counted) = self.trees.get_mut(&tree) {
            counted.keys = counted.keys + u64::from(came) - u64::from(went);
        }
    }

    /// Runs a transaction.
    fn run<R>(&mut self, program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>) -> R {
        sound(self.database.run(program))
    }
}

impl Minuet {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        // Whoever panicked did so in a closure of its caller, before its change.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Minuet {
    type Session = MinuetSession;
    type Options = Options;
    type OpenError = Infallible;

    const NAME: &'static str = "minuet";

    fn open(clock: Arc<EpochClock>, options: Options) -> Result<Arc<Self>, Infallible> {
        assert!(options.page_bytes >= PAGE_BYTES_MIN && options.memnodes > 0);
        let limits = Limits {
            slots_fixed: FIXED_SLOTS,
            ..Limits::default()
        };
        let config = Config {
            memnodes: options.memnodes,
            page_bytes: options.page_bytes,
            // Those that are read have names.
            newest_kept: 0,
            ..Config::default()
        };
        let memnodes = Embedded::new(options.memnodes, limits);
        let mut database = sound(Database::found(CoordinatorId(0), config, memnodes));
        let tip = sound(database.run(|transaction| {
            let view = transaction.tip()?;
            sight::sight_of(transaction, view, false)
        }));
        let state = State {
            database,
            tip,
            tips: BTreeMap::new(),
            is_branched: false,
            trees: BTreeMap::new(),
            dropped: BTreeSet::new(),
            next_tree: 0,
            next_branch_tree: branches::FIRST_TREE,
            last_loose_tree: 0,
            bases: BTreeMap::new(),
            album: Vec::new(),
            graves: Graves::default(),
            frozen: BTreeMap::new(),
            images: KeptImages::default(),
            collecting: Collecting::new(options.memnodes),
        };
        Ok(Arc::new(Self {
            clock,
            state: RwLock::new(state),
            newest_frozen: AtomicU64::new(0),
            sessions: AtomicUsize::new(0),
        }))
    }

    fn session(self: &Arc<Self>) -> Result<MinuetSession, SessionLimit> {
        // Relaxed: a count, which orders nothing.
        let taken = self
            .sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sessions| {
                (sessions < SESSIONS_MAX).then_some(sessions + 1)
            });
        match taken {
            Ok(_) => Ok(MinuetSession::new(Arc::clone(self))),
            Err(_) => Err(SessionLimit {
                sessions_max: SESSIONS_MAX,
            }),
        }
    }

    fn create_tree(&self) -> TreeId {
        let mut state = self.write();
        let tree = TreeId(state.next_tree);
        assert!(!is_of_branch(tree), "tree numbers are used up");
        state.next_tree += 1;
        state.trees.insert(tree, Counted::first(tree));
        tree
    }

    fn restore_tree(&self, tree: TreeId) {
        assert!(!is_of_branch(tree), "tree numbers are used up");
        let mut state = self.write();
        state.next_tree = state.next_tree.max(tree.0 + 1);
        let restored = state.trees.entry(tree);
        restored.or_insert(Counted::first(tree));
    }

    fn drop_tree(&self, tree: TreeId) {
        let mut state = self.write();
        state.graves.drop_tree(tree);
        if let Some(counted) = state.trees.get_mut(&tree) {
            (counted.keys, counted.dropped) = (0, true);
            state.dropped.insert(tree);
        }
    }

    fn len(&self, tree: TreeId) -> u64 {
        self.read().trees.get(&tree).map_or(0, |tree| tree.keys)
    }

    fn reclaimable_bytes(&self) -> usize {
        self.read().graves.bytes()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        let state = self.read();
        let live = state.trees.values().filter(|tree| !tree.dropped);
        let keys: u64 = live.clone().map(|tree| tree.keys).sum();
        let collected = state.collecting.collected();
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        figure("trees", "Trees that exist.", live.count() as f64);
        figure(
            "keys",
            "Keys in all trees, expired ones included.",
            keys as f64,
        );
        figure(
            "tombstones",
            "Removed keys whose version is still remembered.",
            state.graves.count() as f64,
        );
        figure(
            "page_copies_total",
            "Changes that copied pages for a snapshot, or moved cells between pages.",
            state.collecting.moves() as f64,
        );
        figure(
            "collected_pages_total",
            "Pages that were freed because no snapshot has them.",
            collected.pages as f64,
        );
    }
}
