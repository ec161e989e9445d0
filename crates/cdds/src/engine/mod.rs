//! The tree behind the contract that every engine keeps: logical trees, versions, marks, snapshots.
//!
//! One persistent tree holds all of an engine's trees. A key in it is the number of a tree,
//! big-endian, and the key. The last numbers are the engine's own:
//!
//! | tree | key | value |
//! |---|---|---|
//! | [`OWN`] | a tree's number, big-endian | 8 bytes: how many keys it has, or [`DROPPED`] |
//! | [`OWN`] | none | 8 bytes each: [`Tally::taken`] and [`Tally::waiting`] |
//! | [`OWN`] | the name of a note, not of four bytes | what the engine's user noted ([`Cdds::set_note`]) |
//! | [`CLEANING`] | none | how far cleaning up has got (`clean.rs`) |
//! | [`DEADLINES`] | a deadline, big-endian, and a key in its place | nothing |
//! | [`FIELD_DEADLINES`] | the earliest deadline of a field, and the key of its hash | nothing |
//!
//! The one before has the names of snapshots that last (`kept.rs`), the last one those of removed
//! keys (`removed.rs`).
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `state` | what takes the tree for itself (merges, commits, snapshots, restores): alone in it ([`Gated`]) | updates of one leaf, counts: inside, each session through its own entrance |
//! | `generation` | whoever makes or drops a tree, under `state`: `Release` | sessions, `Acquire` |
//! | `written` | whoever writes, commits: under `state`, `Relaxed` | [`Cdds::has_open_writes`], a hint |
//! | counts of a tree, by thread | updates, under `state` shared and a leaf's latch: `Relaxed` | the commit, which has `state` for itself; others, a number that is about right |
//! | `images` | the same: their mutex, innermost | the same |
//! | `graves` | [`Graves`] | |
//! | `newest_retained` | whoever makes or drops a snapshot, under `state`: `Release` | `keeps`, `Acquire` |
//!
//! - **CE1 epochs-follow** Before a change, the tree's open epoch is the clock's, or a later one:
//!   an entry begins and ends in the epoch of its commit, and [`Cdds::commit`] makes durable what
//!   was written up to an epoch, as one.
//! - **CE2 graves-in-memory** The versions of removed keys are kept in memory, until the horizon
//!   has passed them. After a restart all epochs lie above them (PL2 void-for-ever), so
//!   (V2 tombstone-horizon) holds without them.
//! - **CE3 counted** The numbers of keys, and how much of the pool is taken, are written with each
//!   commit: opening looks at no key and no block.
//! - **CE4 trees-known** A session reads without a lock: keys and values beside the writer
//!   (CL2 judged-then-followed), and whether a tree is there from what it has learnt itself, which
//!   holds as long as the generation of trees is the same.
//! - **CE5 deadlines-listed** Each key with a deadline is in [`DEADLINES`], and each hash with one
//!   of a field in [`FIELD_DEADLINES`], from the same epoch on and up to the same epoch as its
//!   value.
//! - **CE6 refused-changes-nothing** An update for which the pool has no room, or of a value that
//!   it can never hold, changes nothing, is told to no hook, and returns `None`;
//!   [`CddsSession::take_refusal`] says why. A removal needs no room.
//! - **CE7 shared-for-a-leaf** An update that changes one leaf, in place or by a copy, has `state`
//!   shared and the leaf's latch (CX2 leaf-latched), under which it looks, decides, draws its
//!   version and tells its hook: the updates of a key are told in their order. What needs more
//!   gives both up and begins anew with `state` for itself: a merge, a deadline that changes, a
//!   full pool, the first change of an epoch of the clock without a commit before it.
//! - **CE8 whole-or-nothing** When an update of a group (`group.rs`) was refused, the end of the
//!   group takes all of them back: keys, their versions, listed deadlines, counts, what is
//!   remembered of removed keys, and notes.
//!
//! Deliberately absent, for now: a large value in pieces. It is stored in one piece, for which
//! neighbouring chunks are emptied where the pool is in pieces ([`Cdds::make_room`]): a change of
//! it costs O(size). A read of a wide row decodes nothing (`decoded.rs`), but verifies the checksum
//! of its record.

mod decoded;
mod figures;
mod group;
mod kept;
mod notes;
mod place;
mod removed;
mod session;
mod snapshots;
#[cfg(test)]
mod tests;
mod update;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};

use pando_engine::limits::SESSIONS_MAX;
use pando_engine::{
    Deadline, Engine, EpochClock, Gauge, Graves, KeptImages, Key, SessionLimit, TreeId,
};
use pando_pmem::{Memory, Tally};
use pando_sync::shim::unmodelled::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Alone, Entrance, Gated, Inside, LogEpoch, Striped};

use self::decoded::Decoded;
use self::group::Beside;
pub use self::kept::KeptSnapshot;
use self::kept::NAMES;
use self::notes::newest_seen;
use self::place::open_pool;
pub use self::place::{FileMedium, Options, Place};
pub use self::removed::NamesRead;
use self::removed::{REMOVED, Removed};
pub use self::session::CddsSession;
use self::session::sound;
use crate::limits::{
    CLEANED_BETWEEN_COMMITS, CLEANED_BETWEEN_NOTES, DECODED_POOL_SHARE, VOID_RANGES_LEFT,
};
use crate::{Direction, Error, Tree};

/// The number of the engine's own tree.
const OWN: TreeId = TreeId(u32::MAX);

/// The tree of keys with deadlines.
const DEADLINES: TreeId = TreeId(NAMES.0 - 1);

/// The tree of hashes whose fields have deadlines.
const FIELD_DEADLINES: TreeId = TreeId(DEADLINES.0 - 1);

/// The tree of one key, which has what is noted of cleaning up.
const CLEANING: TreeId = TreeId(FIELD_DEADLINES.0 - 1);

/// Instead of a number of keys: the tree was dropped, and some of its keys may be left.
const DROPPED: u64 = u64::MAX;

/// Bytes that wait are written again when they have changed by one of so many parts of the pool.
const USAGE_STEPS: u64 = 256;

/// Trees in a pool, which all sessions share; see the module's header.
pub struct Cdds {
    clock: Arc<EpochClock>,
    state: Arc<Gated<State>>,
    /// For what belongs to no session.
    entrance: Entrance<State>,
    /// Of the set of trees; sessions begin with 0.
    generation: AtomicU64,
    /// Something was written since the last commit.
    written: AtomicBool,
    /// Updates of keys.
    updates: Striped<1>,
    tally: Arc<Tally>,
    decoded: Decoded,
    /// The newest epoch that a snapshot sees, lasting or not; 0: there is none.
    newest_retained: AtomicU64,
    /// The newest epoch that the pool had when it was opened.
    found: LogEpoch,
}

/// A tree among others.
#[derive(Debug, Default)]
struct Counted {
    /// Keys that came, less those that went: a negative number is below zero.
    keys: Striped<1>,
    dropped: bool,
    /// Since the last commit.
    changed: AtomicBool,
}

impl Counted {
    /// A tree that came or went since the last commit.
    fn new(dropped: bool) -> Self {
        Self {
            dropped,
            changed: AtomicBool::new(true),
            ..Self::default()
        }
    }

    fn keys(&self) -> u64 {
        let [keys] = self.keys.sums();
        // Beside others, one that went may be seen to go before it came.
        if keys > u64::MAX / 2 { 0 } else { keys }
    }
}

struct State {
    tree: Tree<Memory>,
    trees: BTreeMap<TreeId, Counted>,
    next_tree: u32,
    /// What [`State::write_usage`] wrote last.
    usage: [u64; 2],
    graves: Graves,
    removed: Removed,
    /// What is taken back with the tree's group.
    group: Option<Beside>,
    /// Snapshots, and values kept for them.
    images: Mutex<KeptImages>,
    /// Steps of cleaning since it was noted how far it has got.
    unnoted: usize,
}

impl fmt::Debug for Cdds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cdds")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// A key in the persistent tree.
fn place_of(tree: TreeId, key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(4 + key.len());
    push_place(&mut place, tree, key);
    place
}

/// The same, in the place of what was there.
fn write_place(place: &mut Vec<u8>, tree: TreeId, key: &[u8]) {
    place.clear();
    push_place(place, tree, key);
}

/// The same behind what was there.
fn push_place(place: &mut Vec<u8>, tree: TreeId, key: &[u8]) {
    place.extend_from_slice(&tree.0.to_be_bytes());
    place.extend_from_slice(key);
}

/// Which deadlines are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Those of keys.
    Keys,
    /// The earliest one of each hash whose fields have some.
    Fields,
}

impl Listed {
    const fn tree(self) -> TreeId {
        match self {
            Self::Keys => DEADLINES,
            Self::Fields => FIELD_DEADLINES,
        }
    }

    /// A deadline and the place of its key, as the tree lists it.
    fn place(self, deadline: Deadline, place: &[u8]) -> Vec<u8> {
        let key = [&deadline.0.to_be_bytes()[..], place].concat();
        place_of(self.tree(), &key)
    }
}

/// The deadlines of a value that are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Deadlines {
    of_key: Option<Deadline>,
    of_field: Option<Deadline>,
}

impl Deadlines {
    /// Where they are listed, but for those that `others` has, too.
    fn places_beyond(self, others: Self, place: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let key = self.of_key.filter(|_| self.of_key != others.of_key);
        let field = self.of_field.filter(|_| self.of_field != others.of_field);
        let pairs = [(Listed::Keys, key), (Listed::Fields, field)];
        pairs
            .into_iter()
            .filter_map(move |(listed, deadline)| Some(listed.place(deadline?, place)))
    }
}

impl State {
    fn is_live(&self, tree: TreeId) -> bool {
        self.trees.get(&tree).is_some_and(|tree| !tree.dropped)
    }

    /// Counts keys that came and went.
    fn count(&self, tree: TreeId, came: bool, went: bool) {
        let Some(counted) = self.trees.get(&tree).filter(|_| came != went) else {
            return;
        };
        counted.keys.add([if came { 1 } else { u64::MAX }]);
        // Most often it is set already, and then its line stays where it is.
        if !counted.changed.load(Ordering::Relaxed) {
            counted.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Reads what the engine says of itself (CE3 counted).
    fn read_own(&mut self) -> Result<(), Error> {
        let (mut found, own) = (BTreeMap::new(), place_of(OWN, b""));
        self.tree
            .scan(Bound::Included(&own), Direction::Forward, |key, value| {
                let number = key[4..].try_into().map(u32::from_be_bytes);
                let keys = value.try_into().map(u64::from_le_bytes);
                if let (Ok(number), Ok(keys)) = (number, keys) {
                    let dropped = keys == DROPPED;
                    let counted = Counted {
                        dropped,
                        ..Counted::default()
                    };
                    counted.keys.add([if dropped { 0 } else { keys }]);
                    found.insert(TreeId(number), counted);
                }
                ControlFlow::Continue(())
            })?;
        let (taken, waiting) = match self.tree.get(&own)?.map(<[u8]>::as_chunks) {
            Some(([taken, waiting], _)) => {
                (u64::from_le_bytes(*taken), u64::from_le_bytes(*waiting))
            }
            // A new pool, or one from before this was noted.
            _ => self.tree.allocator.count(),
        };
        self.usage = [taken, waiting];
        self.tree.allocator.recall(taken, waiting);
        let above = found.keys().next_back().map_or(0, |last| last.0 + 1);
        self.next_tree = self.next_tree.max(above);
        self.trees = found;
        self.read_removed()
    }

    /// Writes what has changed of it.
    fn write_own(&mut self) -> Result<(), Error> {
        self.write_removed()?;
        for (number, counted) in &mut self.trees {
            if !*counted.changed.get_mut() {
                continue;
            }
            let keys = if counted.dropped {
                DROPPED
            } else {
                counted.keys()
            };
            let place = place_of(OWN, &number.0.to_be_bytes());
            self.tree.put_in_reserve(&place, &keys.to_le_bytes())?;
            *counted.changed.get_mut() = false;
        }
        self.write_usage()
    }

    /// Writes how much of the pool is taken (CE3 counted).
    fn write_usage(&mut self) -> Result<(), Error> {
        let tally = Arc::clone(self.tree.allocator.tally());
        let step = tally.bytes_max() / USAGE_STEPS;
        let waiting = tally.waiting();
        if self.usage[1].abs_diff(waiting) > step {
            self.usage[0] = u64::MAX;
        }
        // Writing it takes a block the first time, or splits a leaf.
        while self.usage[0] != tally.taken() {
            let usage = [tally.taken(), waiting];
            let noted: Vec<u8> = usage.iter().flat_map(|word| word.to_le_bytes()).collect();
            match self.tree.put_in_reserve(&place_of(OWN, b""), &noted) {
                Ok(()) => self.usage = usage,
                // The next commit notes it. This one must not fail: it is what frees blocks.
                Err(Error::Full(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Cleans up after crashes and rollbacks, from where it was noted last; whether more is to be
    /// done.
    fn clean(&mut self, steps: usize) -> Result<bool, Error> {
        let place = place_of(CLEANING, b"");
        self.tree.resume_cleaning(&place)?;
        let goes_on = self.tree.clean(steps)?;
        self.unnoted += if goes_on { steps } else { 0 };
        if self.unnoted >= CLEANED_BETWEEN_NOTES || !goes_on && self.unnoted > 0 {
            self.tree.note_cleaning(&place)?;
            self.unnoted = 0;
        }
        Ok(goes_on)
    }

    /// Removes up to `steps` keys of dropped trees; returns how many.
    fn free_dropped(&mut self, steps: usize) -> Result<usize, Error> {
        let mut done = 0;
        while done < steps {
            let dropped = self.trees.iter().find(|(_, tree)| tree.dropped);
            let Some(number) = dropped.map(|(number, _)| *number) else {
                break;
            };
            let (mut keys, from) = (Vec::new(), place_of(number, b""));
            self.tree
                .scan(Bound::Included(&from), Direction::Forward, |key, _| {
                    if !key.starts_with(&from) || keys.len() == steps - done {
                        return ControlFlow::Break(());
                    }
                    keys.push(key.to_vec());
                    ControlFlow::Continue(())
                })?;
            if keys.is_empty() {
                self.trees.remove(&number);
                self.tree.remove(&place_of(OWN, &number.0.to_be_bytes()))?;
                done += 1;
            }
            for key in keys {
                let record = self.tree.record_of(&key, self.tree.present())?;
                let deadlines = record.map(|record| value::deadlines_of(record.value()));
                let deadlines = deadlines.unwrap_or_default();
                for listing in deadlines.places_beyond(Deadlines::default(), &key) {
                    self.tree.remove(&listing)?;
                }
                self.tree.remove(&key)?;
                done += 1;
            }
        }
        Ok(done)
    }
}

impl Cdds {
    /// Inside, without a session.
    ///
    /// Whoever panicked there did so before its change, or in it: the pool's epoch is then open,
    /// and never committed by a sound caller.
    fn read(&self) -> Inside<'_, State> {
        self.entrance.enter()
    }

    fn write(&self) -> Alone<'_, State> {
        self.state.alone()
    }

    /// Makes everything that was written up to `epoch` durable, as one (CE1 epochs-follow), where
    /// the memory is durable. Nobody writes meanwhile, and `epoch` is below the clock's current
    /// one.
    ///
    /// Cost: one commit, and a record for each tree whose number of keys has changed.
    pub fn commit(&self, epoch: LogEpoch) -> Result<LogEpoch, Error> {
        let mut state = self.write();
        assert!(
            state.tree.open <= epoch,
            "CE1: epoch {epoch} is closed first"
        );
        state.tree.advance(epoch)?;
        self.commit_all(&mut state)
    }

    /// Commits the tree's open epoch. The clock's must not stay behind the one that follows: a
    /// snapshot of it would miss what is written from now on (CE1 epochs-follow).
    fn commit_all(&self, state: &mut State) -> Result<LogEpoch, Error> {
        state.write_own()?;
        let committed = state.tree.commit()?;
        self.clock.rise_to(state.tree.open);
        self.written.store(false, Ordering::Relaxed);
        Ok(committed)
    }

    /// Makes room for a pair of so many bytes for which no block is free, where others are: some
    /// keys move ([`Tree::make_room`]), and nothing else changes. The room is there after the next
    /// commit and another call; if it is more than a chunk, after a call for each, or for a few in
    /// which little is taken. Whether more is to come. A pause of about a millisecond for writers.
    pub fn make_room(&self, wanted: usize, random: u64) -> bool {
        let mut state = self.write();
        sound(state.tree.advance(self.clock.current()));
        if sound(state.tree.make_room(wanted, random)) {
            state.tree.fence();
            self.note_written();
        }
        state.tree.allocator.is_emptying()
    }

    /// How much of the pool is taken.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Bytes of the pool that are about to be free: nobody sees what they held.
    #[must_use]
    pub fn reclaimable_in_pool(&self) -> u64 {
        // Acquire: as in `keeps`.
        match self.newest_retained.load(Ordering::Acquire) {
            0 => self.tally.waiting(),
            // What a snapshot may see is not.
            _ => 0,
        }
    }

    /// Whether something was written since the last commit.
    #[must_use]
    pub fn has_open_writes(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// Closes the pool in peace: the next opening has no epochs to give up. Nobody writes any more.
    pub fn rest(&self) -> Result<(), Error> {
        let mut state = self.write();
        state.write_own()?;
        let newest = state.tree.commit()?;
        self.written.store(false, Ordering::Relaxed);
        Ok(state.tree.pool.rest(newest)?)
    }

    /// Shows keys that have a deadline of this kind, the earliest first, behind the one of this key
    /// if there is one, until `visit` breaks (CE5 deadlines-listed). Nobody writes meanwhile.
    /// O(these).
    pub fn deadlines(
        &self,
        listed: Listed,
        behind: Option<(Deadline, Key<'_>)>,
        mut visit: impl FnMut(Deadline, Key<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let state = self.write();
        let first = place_of(listed.tree(), b"");
        let behind = behind.map(|(deadline, key)| {
            let place = place_of(key.tree, key.bytes);
            listed.place(deadline, &place)
        });
        let from = match &behind {
            Some(behind) => Bound::Excluded(&behind[..]),
            None => Bound::Included(&first[..]),
        };
        state.tree.scan(from, Direction::Forward, |place, _| {
            let entry = place.strip_prefix(&first[..]);
            let entry = entry.and_then(<[u8]>::split_first_chunk::<8>);
            let Some((deadline, place)) = entry else {
                return ControlFlow::Break(());
            };
            if let Some((tree, key)) = place.split_first_chunk() {
                let key = Key::new(TreeId(u32::from_be_bytes(*tree)), key);
                return visit(Deadline(u64::from_be_bytes(*deadline)), key);
            }
            ControlFlow::Continue(())
        })
    }

    /// The trees that exist. O(these).
    #[must_use]
    pub fn trees(&self) -> Vec<TreeId> {
        let state = self.read();
        let live = state.trees.iter().filter(|(_, tree)| !tree.dropped);
        live.map(|(number, _)| *number).collect()
    }

    /// The newest epoch that is durable.
    #[must_use]
    pub fn committed(&self) -> LogEpoch {
        self.read().tree.pool.committed()
    }

    /// The epoch of which the trees were when the pool was opened: what came later never happened.
    #[must_use]
    pub fn found(&self) -> LogEpoch {
        self.found
    }

    /// The lowest epoch that a clock may begin with: those below have been used.
    #[must_use]
    pub fn first_epoch(&self) -> LogEpoch {
        self.read().tree.pool.first_epoch()
    }

    /// After a tree was made or dropped, under the lock of `state` (CE4 trees-known).
    fn note_trees(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl Engine for Cdds {
    type Session = CddsSession;
    type Options = Options;
    type OpenError = Error;

    const NAME: &'static str = "cdds";

    /// Opens the trees of a pool, in the same time whatever they hold, unless
    /// [`VOID_RANGES_LEFT`] crashes came before what the earlier ones left was cleaned up: then
    /// what is left of that is done first, in O(pool). The clock is raised above the epochs that
    /// the pool has used.
    fn open(clock: Arc<EpochClock>, options: Options) -> Result<Arc<Self>, Error> {
        let pool = Arc::new(open_pool(&options)?);
        let found = newest_seen(&pool);
        let tree = Tree::open(pool)?;
        let mut state = State {
            tree,
            trees: BTreeMap::new(),
            next_tree: 0,
            usage: [0; 2],
            graves: Graves::default(),
            removed: Removed::default(),
            group: None,
            images: Mutex::default(),
            unnoted: 0,
        };
        state.read_own()?;
        while state.tree.pool.voids().len() > VOID_RANGES_LEFT {
            state.clean(CLEANED_BETWEEN_COMMITS)?;
            state.write_own()?;
            state.tree.commit()?;
        }
        clock.rise_to(state.tree.open);
        let newest = state.tree.retained.last().map_or(0, |newest| newest.0);
        let tally = Arc::clone(state.tree.allocator.tally());
        let gated = Gated::new(SESSIONS_MAX + 1, state);
        Ok(Arc::new(Self {
            clock,
            newest_retained: AtomicU64::new(newest),
            decoded: Decoded::new((tally.bytes_max() / DECODED_POOL_SHARE) as usize),
            tally,
            entrance: gated.open().expect("nobody has opened one"),
            state: gated,
            generation: AtomicU64::new(1),
            found,
            written: AtomicBool::new(false),
            updates: Striped::default(),
        }))
    }

    fn session(self: &Arc<Self>) -> Result<CddsSession, SessionLimit> {
        CddsSession::new(Arc::clone(self)).ok_or(SessionLimit {
            sessions_max: SESSIONS_MAX,
        })
    }

    fn create_tree(&self) -> TreeId {
        let mut state = self.write();
        self.written.store(true, Ordering::Relaxed);
        let tree = TreeId(state.next_tree);
        assert!(tree < REMOVED, "tree numbers are used up");
        state.next_tree += 1;
        state.trees.insert(tree, Counted::new(false));
        self.note_trees();
        tree
    }

    fn restore_tree(&self, tree: TreeId) {
        assert!(tree < REMOVED, "tree numbers are used up");
        let mut state = self.write();
        self.written.store(true, Ordering::Relaxed);
        state.next_tree = state.next_tree.max(tree.0 + 1);
        let trees = &mut state.trees;
        trees.entry(tree).or_insert_with(|| Counted::new(false));
        self.note_trees();
    }

    fn drop_tree(&self, tree: TreeId) {
        let mut state = self.write();
        self.written.store(true, Ordering::Relaxed);
        self.decoded.forget_tree(tree);
        state.graves.drop_tree(tree);
        if let Some(counted) = state.trees.get_mut(&tree) {
            *counted = Counted::new(true);
        }
        self.note_trees();
    }

    fn len(&self, tree: TreeId) -> u64 {
        self.read().trees.get(&tree).map_or(0, Counted::keys)
    }

    fn reclaimable_bytes(&self) -> usize {
        self.read().graves.bytes()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        self.report(report);
    }
}
