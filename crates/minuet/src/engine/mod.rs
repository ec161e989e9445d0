//! Minuet in one process, behind the contract that every engine keeps.
//!
//! The memnodes are in this process and answer at once. Commands read their slots directly, and a
//! change of a leaf that needs no other page is one change of one slot; changes of several keys are
//! runs, under the latches of all their leaves (`run`); a full leaf is split under its latch
//! (`splits`), and the first change of one after a snapshot copies it and the nodes above
//! (`copies`). All others are transactions of the coordinator, as they would be over a network:
//! merges of pages, large values, snapshots, collection.
//!
//! One B-tree holds all of an engine's trees. Long keys are in bundles (`bundle`), large values in
//! slots of their own (`tree/large.rs`); `value` says how a value is laid out.
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `state` | whoever is alone in it ([`Gated`]): transactions, snapshots, maintenance | sessions inside |
//! | leaves in it | the same; sessions inside, under the leaf's latch | sessions inside, under the latch |
//! | counts, graves, images in it | writers, under the latch of the key's leaf | sessions inside |
//! | `commits` | ends of runs, under all their latches or alone: `Relaxed`, ordered by these | scans |
//! | `newest_frozen` | whoever makes or releases a snapshot, alone: `Release` | `keeps`, `Acquire` |
//!
//! - **ME1 turns** Whoever is alone is in one turn with all memnodes: nothing is prepared or locked
//!   then, and what is read is what is there when the change is made. Whoever holds the latch of a
//!   leaf is in one turn with that slot.
//! - **ME2 pointers-hold** A pointer of the tip's pages, or of a kept snapshot's, leads to the page
//!   that it was made for: pages are freed by whoever is alone, and only when no kept version has
//!   them. So a reader inside needs none of a traversal's checks, and only goes on to discretionary
//!   copies (MF2 forwarders-lead-on) once there are branches.
//! - **ME3 versions-drawn** A key's version is drawn from the clock, as on other engines, and given
//!   to the tree. The versions of removed keys are remembered in memory until the horizon has
//!   passed them: a log of keys is replayed by versions, in any order.
//! - **ME4 leaves-alone** A session inside changes entries of a leaf that was made at the tip, or
//!   splits it, and nothing else of any page: inner nodes, notes of copies, tips and roots stay
//!   while anybody is inside. So the leaf that it found before it had the latch is still the key's,
//!   or was, and its links lead there.
//! - **ME5 graves-under-latches** What is remembered of a key changes under the latch of its leaf.
//!   So whoever has the latch sees what belongs to the leaf as it is. How many are remembered is
//!   stored before the latch is released, by one at a time; so whoever took the latch later does
//!   not see none where there is one.
//! - **ME6 links-lead-on** A leaf that is split while others are inside keeps its low fence, and
//!   says under its latch where its upper part is; that is whole before. So a key that was to be
//!   found there is in it, or in a leaf to which links lead, one after the other to the right.
//! - **ME7 links-for-insiders** Whoever is alone first tells the nodes above of the leaves that
//!   were split, and takes away the links (`splits`). So all that needs more than a leaf,
//!   transactions and snapshots too, finds a tree without links, and a version that is kept has
//!   none.
//!
//! Writers of different leaves do not wait for each other. Transactions do, and everybody for them,
//! and for whoever tells the nodes above of many splits at once.
//!
//! Branches are the tree's own too; `sight` says how trees of theirs are told apart, `branches`
//! what is done with them.
//!
//! Deliberately absent, so far: durability of its own (the database logs the keys of all branches,
//! and makes them and lasting snapshots again, see `album`), the coordinator's transactions beside
//! each other. Leases, and the snapshot service (`service.rs`), are the database's, which has them
//! for every engine: a snapshot has a name here while anybody may read it, and who reads it asks in
//! each turn whether it is kept. The nodes of a large value lie beside its
//! body, in this process: over a network a memnode has to get them in messages.

mod album;
mod branches;
mod bundle;
mod change;
mod collect;
mod copies;
mod in_leaf;
mod place;
mod run;
mod scan;
#[cfg(all(test, shuttle))]
mod schedules;
mod session;
mod sight;
mod snapshots;
mod splits;
#[cfg(test)]
mod tests;
mod value;
mod walk;
mod warmed;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use pando_engine::limits::SESSIONS_MAX;
use pando_engine::{
    Engine, EpochClock, Gauge, Graves, KeptImages, SessionLimit, Snapshot, TreeId, ValueVersion,
};
use pando_memnode::{CoordinatorId, Limits};
use pando_sync::shim::{AtomicU64, Mutex, Ordering, lock};
use pando_sync::{Alone, Entrance, Gated, Inside, Padded};

use crate::branch::BranchId;
use crate::error::{Error, Stop};
use crate::snapshot::FIXED_SLOTS;
use crate::transaction::Transaction;
use crate::transport::Embedded;
use crate::{Config, Database};
pub use album::{AlbumId, AlbumNode, NOWHERE};
pub use branches::{Differing, From, is_of_branch};
use collect::Collecting;
use copies::Partings;
pub use session::MinuetSession;
use sight::Sight;
use splits::Splits;

/// What an engine is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memnodes in this process, which pages are spread over; 1 by default.
    pub memnodes: u16,
    /// See [`Config::page_bytes`]; [`PAGE_BYTES_MIN`] at least, which is the default.
    pub page_bytes: usize,
    /// Every other run of a session ends with a conflict, for tests of who repeats them; none by
    /// default.
    pub conflicts: bool,
}

/// Bytes of a page, at least: so many that it holds the part of a key that is in a page, its tree's
/// number, and a zero behind it.
pub const PAGE_BYTES_MIN: usize = 4096;
const _: () = assert!(bundle::SHORT_BYTES + 5 <= PAGE_BYTES_MIN / 16);

impl Default for Options {
    fn default() -> Self {
        Self {
            memnodes: 1,
            page_bytes: PAGE_BYTES_MIN,
            conflicts: false,
        }
    }
}

/// Trees over memnodes, which all sessions share; see the module's header.
pub struct Minuet {
    clock: Arc<EpochClock>,
    state: Arc<Gated<State>>,
    /// For whoever has no session.
    entrance: Entrance<State>,
    /// The newest epoch that a snapshot sees; 0: there is none.
    newest_frozen: AtomicU64,
    /// Runs that have written several keys. On a line of its own: scans of the present read it.
    commits: Padded<AtomicU64>,
    /// See [`Options::conflicts`].
    conflicts: bool,
}

/// A tree among others.
#[derive(Debug)]
struct Counted {
    /// On lines of its own: the rest is read by everybody.
    keys: Box<Padded<AtomicU64>>,
    dropped: bool,
    branch: BranchId,
    /// Its number in pages.
    base: TreeId,
}

impl Counted {
    /// A tree with this number in pages, and so many keys.
    fn new(branch: BranchId, base: TreeId, keys: u64) -> Self {
        Self {
            keys: Box::new(Padded(AtomicU64::new(keys))),
            dropped: false,
            branch,
            base,
        }
    }

    /// An empty tree of the first branch.
    fn first(tree: TreeId) -> Self {
        Self::new(BranchId::FIRST, tree, 0)
    }

    fn keys(&self) -> u64 {
        // Relaxed: a count, which orders nothing.
        self.keys.load(Ordering::Relaxed)
    }
}

struct State {
    database: Database,
    /// How often somebody was alone.
    turns: u64,
    /// The first branch's tip, which only this process moves.
    tip: Sight,
    /// Those of the other branches.
    tips: BTreeMap<BranchId, Sight>,
    /// Whether there was ever another branch.
    is_branched: bool,
    trees: BTreeMap<TreeId, Counted>,
    /// Held while the numbers of keys of several trees change as one (MR5 counts-compared).
    counting: Mutex<()>,
    /// Those of them that were dropped, and whose keys are to be removed.
    dropped: BTreeSet<TreeId>,
    next_tree: u32,
    next_branch_tree: u32,
    /// Which of the numbers for a while was given last.
    last_loose_tree: u32,
    /// Trees that show where two branches part, or what one was, while these are merged, or a
    /// version of an album.
    bases: BTreeMap<TreeId, Sight>,
    /// The versions of each album that is open.
    albums: BTreeMap<AlbumId, Vec<Sight>>,
    next_album: u64,
    graves: Graves,
    frozen: BTreeMap<Snapshot, Sight>,
    images: Mutex<KeptImages>,
    collecting: Collecting,
    partings: Partings,
    splits: Mutex<Splits>,
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

/// By how much a key changes the number of keys; it wraps where that counts down.
fn difference(was_there: bool, is_there: bool) -> u64 {
    u64::from(is_there).wrapping_sub(u64::from(was_there))
}

impl State {
    /// Counts keys that came and went; see [`difference`].
    fn count(&self, tree: TreeId, difference: u64) {
        if difference != 0
            && let Some(counted) = self.trees.get(&tree)
        {
            // Relaxed: as in `keys`.
            counted.keys.fetch_add(difference, Ordering::Relaxed);
        }
    }

    /// A value of this version and length is replaced or removed: perhaps a snapshot keeps it.
    fn note_image(&self, version: ValueVersion, bytes: usize) {
        let newest = self.frozen.keys().next_back();
        if newest.is_some_and(|newest| newest.holds(version)) {
            lock(&self.images).note(version, bytes);
        }
    }

    /// Runs a transaction.
    fn run<R>(&mut self, program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>) -> R {
        sound(self.database.run(program))
    }
}

impl Minuet {
    /// Inside, without a session.
    fn read(&self) -> Inside<'_, State> {
        self.entrance.enter()
    }

    fn write(&self) -> Turn<'_> {
        let mut state = self.state.alone();
        state.turns += 1;
        state.post_splits();
        Turn(Some(state))
    }
}

/// Whoever is alone; what lay beside slots and went with them is dropped behind the turn, since
/// there may be as much of it as a value has nodes.
struct Turn<'m>(Option<Alone<'m, State>>);

const IN_ITS_TURN: &str = "until it is dropped";

impl Deref for Turn<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect(IN_ITS_TURN)
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect(IN_ITS_TURN)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let gone = self.database.memnodes_mut().take_gone();
        self.0 = None;
        drop(gone);
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
        let memnodes = Embedded::latching(options.memnodes, limits);
        let mut database = sound(Database::found(CoordinatorId(0), config, memnodes));
        let tip = sound(database.run(|transaction| {
            let view = transaction.tip()?;
            sight::sight_of(transaction, view, false)
        }));
        let state = State {
            database,
            turns: 0,
            tip,
            tips: BTreeMap::new(),
            is_branched: false,
            trees: BTreeMap::new(),
            counting: Mutex::default(),
            dropped: BTreeSet::new(),
            next_tree: 0,
            next_branch_tree: branches::FIRST_TREE,
            last_loose_tree: 0,
            bases: BTreeMap::new(),
            albums: BTreeMap::new(),
            next_album: 0,
            graves: Graves::default(),
            frozen: BTreeMap::new(),
            images: Mutex::default(),
            collecting: Collecting::new(options.memnodes),
            partings: Partings::default(),
            splits: Mutex::default(),
        };
        let state = Gated::new(SESSIONS_MAX + 1, state);
        Ok(Arc::new(Self {
            clock,
            entrance: state.open().expect("nobody has opened one"),
            state,
            newest_frozen: AtomicU64::new(0),
            commits: Padded(AtomicU64::new(0)),
            conflicts: options.conflicts,
        }))
    }

    fn session(self: &Arc<Self>) -> Result<MinuetSession, SessionLimit> {
        match self.state.open() {
            Some(entrance) => Ok(MinuetSession::new(Arc::clone(self), entrance)),
            None => Err(SessionLimit {
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
            counted.keys.store(0, Ordering::Relaxed);
            counted.dropped = true;
            state.dropped.insert(tree);
        }
    }

    fn len(&self, tree: TreeId) -> u64 {
        self.read().trees.get(&tree).map_or(0, Counted::keys)
    }

    fn reclaimable_bytes(&self) -> usize {
        self.read().graves.bytes()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        let state = self.read();
        let live = state.trees.values().filter(|tree| !tree.dropped);
        let keys: u64 = live.clone().map(Counted::keys).sum();
        let collected = state.collecting.collected();
        let tombstones = state.graves.count() as u64;
        let of_trees = Gauge::of_trees(live.count() as u64, keys, tombstones);
        of_trees.into_iter().for_each(&mut *report);
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
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
