//! The tree as a whole: opening, reading, committing, snapshots.
//!
//! Root words of the pool:
//!
//! | word | what |
//! |---|---|
//! | 0 | the epoch that made the anchor, sealed as the beginning of what word 1 says (`seal.rs`) |
//! | 1 | the anchor |
//! | 4 … | the newest epoch that a snapshot sees, sealed as an end; 0: none |
//!
//! - **CT1 one-word** An epoch is committed by the pool's word alone (PL4 one-commit); everything
//!   else it stored is judged by epochs. So opening looks at no node.
//! - **CT2 kept-at-once** A snapshot is one word, which is durable when it is acknowledged, and is
//!   judged by no epoch: a rollback neither forgets a snapshot nor brings back one that was
//!   released, whose memory may have been used again.
//! - **CT3 horizon** The allocator's horizon is at most the oldest snapshot and the newest
//!   committed epoch: no view that can come again reads what was freed before. It follows them when
//!   every reader that was pinned at that moment has ended its pin: none has an offset from before.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use pando_pmem::{
    Allocator, Full, Mark, Offset, Pmem, Pool, PoolError, Writes, epoch_bits, unsealed,
};
use pando_sync::LogEpoch;
use pando_sync::epoch::ReclaimEpoch;
use pando_sync::shim::{AtomicBool, Mutex, Ordering};
use thiserror::Error;

use crate::canary::{self, Fault};
use crate::clean::Cleaning;
use crate::group::Group;
use crate::latch::Watch;
use crate::limits::{
    ENTRIES_MAX, ENTRIES_MIN, HELD_MAX, KEY_BYTES_MAX, SNAPSHOTS_MAX, VALUE_BYTES_MAX, node_bytes,
};
use crate::node::{ANCHOR, Entry, Needs, Node, View, bytes_of, store_begun};
use crate::reader::Reader;
use crate::record::Record;
use crate::seal;
use crate::shared::{Look, Shared};

/// Slots of the anchor: a root for each snapshot, the committed one, and the one of the open epoch.
pub(crate) const ANCHOR_SLOTS: u64 = (SNAPSHOTS_MAX + HELD_MAX) as u64 + 4;

/// Root words of snapshots.
const SNAPSHOT_WORDS: std::ops::Range<u64> = 4..4 + SNAPSHOTS_MAX as u64;

const CHANGE_FENCE: Mark = Mark("tree: fence of changes");
const ROOT_FLUSH: Mark = Mark("root words: flush");

/// Why something could not be done. Nothing has changed then, except after [`Error::Pool`].
#[derive(Debug, Error)]
pub enum Error {
    /// There is no room; reads and removals go on.
    #[error(transparent)]
    Full(#[from] Full),
    /// The pool is no longer to be trusted, or cannot be opened.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A record is not as it was written.
    #[error("the record at {at} is damaged")]
    Damaged {
        /// Where.
        at: Offset,
    },
    /// A node is not as it was left: it is not where one can be, or of another level than its place
    /// asks for, or a visit after a crash has found more (`clean.rs`).
    #[error("the node at {at} is damaged")]
    DamagedNode {
        /// Where.
        at: Offset,
    },
    /// Nodes have fewer or more entries than they may have.
    #[error("{entries} entries to a node: {ENTRIES_MIN} to {ENTRIES_MAX} are possible")]
    Entries {
        /// What the pool says.
        entries: u32,
    },
    /// A key or value is longer than it may be.
    #[error("{bytes} bytes of a {what}, at most {bytes_max} are possible")]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// There are as many snapshots as there can be.
    #[error("there are {SNAPSHOTS_MAX} snapshots already")]
    TooManySnapshots,
    /// It was released, or is not of this tree.
    #[error("there is no snapshot of epoch {epoch}")]
    NoSnapshot {
        /// Its epoch.
        epoch: LogEpoch,
    },
    /// Something else is kept under this name.
    #[error("there is a snapshot {name:?} already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Nothing is kept under this name.
    #[error("there is no snapshot {name:?}")]
    NoName {
        /// The name.
        name: String,
    },
    /// A rollback would lose a newer snapshot.
    #[error("the snapshot of epoch {epoch} is newer and would be lost")]
    NewerSnapshot {
        /// Its epoch.
        epoch: LogEpoch,
    },
}

/// A moment that is kept, across restarts, until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Snapshot(LogEpoch);

impl Snapshot {
    /// The snapshot of an epoch, which may be gone.
    pub(crate) const fn of(epoch: LogEpoch) -> Self {
        Self(epoch)
    }

    /// The newest epoch that it sees.
    #[must_use]
    pub fn epoch(self) -> LogEpoch {
        self.0
    }
}

/// A tree in a pool of its own. See the crate's header.
pub struct Tree<M> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) allocator: Allocator<M>,
    /// Slots of a node.
    pub(crate) slots: u64,
    pub(crate) shared: Arc<Shared<M>>,
    /// Whoever changes nodes above the leaves with the tree shared (CX9 inner-by-one).
    pub(crate) inner: Mutex<()>,
    /// What is cleaned up, if something is.
    pub(crate) cleaning: Option<Cleaning>,
    /// The changes that may be taken back.
    pub(crate) group: Option<Group>,
    /// Horizons that wait for readers to end their pins, oldest first.
    horizons: VecDeque<(LogEpoch, ReclaimEpoch)>,
    /// The longest value that can be put.
    value_bytes_max: usize,
    /// The open epoch.
    pub(crate) open: LogEpoch,
    /// Whether it has stored anything. Set by who has the tree, shared or for itself
    /// (CX1 epoch-stands).
    has_begun: AtomicBool,
    /// Epochs of snapshots, oldest first.
    pub(crate) retained: Vec<LogEpoch>,
    /// Those that last, with their root words.
    words: Vec<(LogEpoch, u64)>,
    /// Those that do not.
    held: Vec<LogEpoch>,
}

impl<M: Pmem> fmt::Debug for Tree<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tree")
            .field("pool", &self.pool)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl<M: Pmem> Tree<M> {
    /// Opens the tree of a pool, or makes an empty one. Takes the same time whatever it holds,
    /// unless the pool is crowded with void ranges: then it is cleaned up first, in O(pool).
    pub fn open(pool: Arc<Pool<M>>) -> Result<Self, Error> {
        let bytes = pool.shape().node_bytes;
        let entries = (ENTRIES_MIN..=ENTRIES_MAX).find(|entries| node_bytes(*entries) == bytes);
        let Some(entries) = entries else {
            let entries = bytes / 32;
            return Err(Error::Entries { entries });
        };
        let mut tree = Self::open_with(pool, entries.into())?;
        if tree.pool.is_crowded() {
            tree.clean_at_once()?;
        }
        Ok(tree)
    }

    /// The same, whatever size of nodes the pool has. One that is crowded is left so.
    pub(crate) fn open_with(pool: Arc<Pool<M>>, slots: u64) -> Result<Self, Error> {
        let allocator = Allocator::new(Arc::clone(&pool))?;
        let mut open = pool.first_epoch();
        let anchor = if let Some(anchor) = named_anchor(&pool)? {
            anchor
        } else {
            open = open.next();
            forget_unmade(&pool, &allocator)?;
            make_anchor(&pool, &allocator)?
        };
        let mut tree = Self {
            shared: Arc::new(Shared::new(Arc::clone(&pool), slots, anchor)),
            inner: Mutex::default(),
            cleaning: None,
            group: None,
            horizons: VecDeque::new(),
            value_bytes_max: VALUE_BYTES_MAX.min(allocator.tally().bytes_max() as usize),
            allocator,
            slots,
            open,
            has_begun: AtomicBool::new(false),
            retained: Vec::new(),
            words: Vec::new(),
            held: Vec::new(),
            pool,
        };
        for word in SNAPSHOT_WORDS {
            let at = tree.pool.root(word);
            let kept = tree.pool.memory().load(at);
            if kept != 0 {
                let what = "the epoch of a snapshot";
                let epoch = unsealed(kept).ok_or(PoolError::Damaged { at, what })?;
                tree.words.push((epoch, word));
            }
        }
        tree.note_retained();
        tree.settle_horizon();
        Ok(tree)
    }

    /// What a thread reads the tree with, while this one changes it; none when there are
    /// [`pando_engine::limits::SESSIONS_MAX`] of them.
    pub fn reader(&self) -> Option<Reader<M>> {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Makes a snapshot's word durable: by a commit, since a fence does nothing to a file.
    fn set_kept(&self, word: u64, epoch: LogEpoch) -> Result<(), Error> {
        let (place, memory) = (self.pool.root(word), self.pool.memory());
        if canary::has(Fault::KeptUncommitted) {
            memory.store(place, seal::end(epoch));
            flush_root(&self.pool, word);
            self.fence();
            return Ok(());
        }
        let kept = memory.commit(place, seal::end(epoch));
        Ok(kept.map_err(PoolError::Io)?)
    }

    fn note_retained(&mut self) {
        self.words.sort_unstable();
        let words = self.words.iter().map(|(epoch, _)| *epoch);
        self.retained = words.chain(self.held.iter().copied()).collect();
        self.retained.sort_unstable();
        self.retained.dedup();
        self.shared.set_retained(&self.retained);
    }

    /// Lets the horizon follow snapshots and commits, as readers end their pins (CT3 horizon).
    pub(crate) fn settle_horizon(&mut self) {
        /// Horizons that wait; a newer one then stands for the newest of them.
        const WAITING_MAX: usize = 8;
        let collector = &self.shared.collector;
        let committed = self.pool.committed();
        let oldest = self.retained.first().copied().unwrap_or(committed);
        let horizon = oldest.min(committed);
        if canary::has(Fault::FreeEarly) {
            self.allocator.set_horizon(horizon);
        }
        if self.horizons.back().is_none_or(|(last, _)| *last < horizon) {
            if self.horizons.len() == WAITING_MAX {
                self.horizons.pop_back();
            }
            self.horizons.push_back((horizon, collector.stamp()));
        }
        collector.try_advance();
        while let Some((horizon, stamp)) = self.horizons.front() {
            if !collector.has_passed(*stamp) {
                break;
            }
            self.allocator.set_horizon(*horizon);
            self.horizons.pop_front();
        }
    }

    /// Before the first store of an epoch.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        if !self.has_begun() {
            self.pool.begin(self.open)?;
            self.note_begun();
        }
        Ok(())
    }

    /// Whether the open epoch may store.
    pub(crate) fn has_begun(&self) -> bool {
        // Relaxed: the lock around the tree orders it and the commit that asks.
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Before a store in the open epoch, which may begin.
    #[inline]
    pub(crate) fn note_begun(&self) {
        debug_assert!(self.pool.is_marked(self.open), "PL1 marked-first");
        if !self.has_begun() {
            self.has_begun.store(true, Ordering::Relaxed);
        }
    }

    /// Lets what changes from now on belong to `epoch`, if that is later than the open one: several
    /// epochs may be open, and are committed as one.
    pub(crate) fn advance(&mut self, epoch: LogEpoch) -> Result<(), Error> {
        if epoch > self.open {
            self.open = epoch;
            if self.has_begun() {
                self.pool.begin(epoch)?;
            }
        }
        Ok(())
    }

    /// Keeps what was to be seen at the end of an epoch, until [`Self::let_go`] or a restart.
    pub(crate) fn hold(&mut self, epoch: LogEpoch) {
        self.held.push(epoch);
        self.note_retained();
        self.settle_horizon();
    }

    /// Ends [`Self::hold`].
    pub(crate) fn let_go(&mut self, epoch: LogEpoch) {
        self.held.retain(|held| *held != epoch);
        self.note_retained();
        self.settle_horizon();
    }

    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs {
            open: self.open,
            committed: self.pool.committed(),
            retained: &self.retained,
        }
    }

    pub(crate) fn present(&self) -> View {
        View(self.open)
    }

    pub(crate) fn anchor(&self) -> Node<'_, M> {
        Node::at(&self.pool, self.shared.anchor, ANCHOR_SLOTS)
    }

    pub(crate) fn node(&self, at: Offset) -> Node<'_, M> {
        Node::at(&self.pool, at, self.slots)
    }

    /// The child at `at` of a node of this level, for the writer.
    pub(crate) fn child(&self, level: u64, at: Offset) -> Result<Node<'_, M>, Error> {
        let child = self.shared.child_of(level, at, Watch::STILL);
        child.ok_or(Error::DamagedNode { at })
    }

    pub(crate) fn root_node(&self, view: View) -> Option<Node<'_, M>> {
        let root = self.anchor().seen(view).next()?;
        Some(self.node(root.entry.child))
    }

    /// Makes everything since the last commit durable, as one; the epoch that it is. Nothing
    /// happens if nothing has changed.
    ///
    /// Cost: the lines of records that changed, and one commit, whatever the number of changes.
    ///
    /// # Panics
    /// Within a group (CB2 no-commit-within).
    pub fn commit(&mut self) -> Result<LogEpoch, Error> {
        assert!(self.group.is_none(), "CB2: a group ends first");
        if !self.has_begun() {
            self.end_cleaning()?;
            return Ok(self.pool.committed());
        }
        self.allocator.settle();
        self.pool.commit(self.open)?;
        let committed = self.open;
        self.open = committed.next();
        self.has_begun.store(false, Ordering::Relaxed);
        self.settle_horizon();
        self.end_cleaning()?;
        Ok(committed)
    }

    /// Waits for what this thread has flushed: another one may commit it.
    pub(crate) fn fence(&self) {
        self.pool.memory().mark(CHANGE_FENCE);
        self.pool.memory().fence();
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        self.look_up(key, self.present())
    }

    /// The value that a key had at a snapshot.
    pub fn get_at(&self, at: Snapshot, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        self.look_up(key, self.view(at)?)
    }

    /// The view of a snapshot that is there.
    pub(crate) fn view(&self, at: Snapshot) -> Result<View, Error> {
        let is_there = self.retained.binary_search(&at.0).is_ok();
        let view = is_there.then_some(View(at.0));
        view.ok_or(Error::NoSnapshot { epoch: at.0 })
    }

    fn look_up(&self, key: &[u8], view: View) -> Result<Option<&[u8]>, Error> {
        Ok(self.record_of(key, view)?.map(Record::value))
    }

    /// The record of a key, if it is whole.
    pub(crate) fn record_of(&self, key: &[u8], view: View) -> Result<Option<Record<'_>>, Error> {
        let look = if view == self.present() {
            Look::ALONE
        } else {
            Look::alone(view)
        };
        self.shared.record_of(key, look)
    }

    /// The record of an entry, if it is whole.
    pub(crate) fn record(&self, entry: Entry) -> Result<Record<'_>, Error> {
        self.shared.record(entry)
    }

    /// Keeps this moment, durably. Commits.
    pub fn retain(&mut self) -> Result<Snapshot, Error> {
        let epoch = self.commit()?;
        if self.words.iter().any(|(kept, _)| *kept == epoch) {
            return Ok(Snapshot(epoch));
        }
        let mut words = SNAPSHOT_WORDS;
        let word = words.find(|word| self.words.iter().all(|(_, used)| used != word));
        let word = word.ok_or(Error::TooManySnapshots)?;
        self.set_kept(word, epoch)?;
        self.words.push((epoch, word));
        self.note_retained();
        Ok(Snapshot(epoch))
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> + '_ {
        self.words.iter().map(|(epoch, _)| Snapshot(*epoch))
    }

    /// Lets a snapshot go, durably: what it alone saw is used again from now on.
    pub fn release(&mut self, snapshot: Snapshot) -> Result<(), Error> {
        let place = self.words.binary_search_by_key(&snapshot.0, |word| word.0);
        let place = place.map_err(|_| Error::NoSnapshot { epoch: snapshot.0 })?;
        self.set_kept(self.words[place].1, LogEpoch::NONE)?;
        self.words.remove(place);
        self.note_retained();
        self.settle_horizon();
        Ok(())
    }

    /// Makes the present what it was at a snapshot, which stays. Takes the same time whatever has
    /// happened since: the epochs after it become void. Waits until readers have ended their pins.
    pub fn roll_back(&mut self, snapshot: Snapshot) -> Result<(), Error> {
        self.view(snapshot)?;
        let newest = self.retained.last().copied();
        if let Some(epoch) = newest.filter(|epoch| *epoch > snapshot.0) {
            return Err(Error::NewerSnapshot { epoch });
        }
        self.shared.close();
        self.cleaning = None;
        let open = self.pool.roll_back(snapshot.0);
        self.shared.frames.clear_all();
        self.allocator.forget();
        self.shared.reopen();
        self.open = open?;
        self.has_begun.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Closes the pool in peace, committed or not: the next opening has nothing to take back.
    pub fn close(mut self) -> Result<(), Error> {
        let newest = self.commit()?;
        self.pool.rest(newest)?;
        Ok(())
    }

    /// Whether a pair of such lengths can be put at all: one that no pool holds, or not this one
    /// were it empty, cannot.
    #[inline]
    pub(crate) fn check_lengths(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        for (what, bytes, bytes_max) in [
            ("key", key.len(), KEY_BYTES_MAX),
            ("value", value.len(), self.value_bytes_max),
        ] {
            if bytes > bytes_max {
                return Err(Error::TooLong {
                    what,
                    bytes,
                    bytes_max,
                });
            }
        }
        Ok(())
    }
}

/// The anchor, if the epoch that made it counts.
fn named_anchor<M: Pmem>(pool: &Pool<M>) -> Result<Option<Offset>, Error> {
    let [made, anchor] = [0, 1].map(|word| pool.memory().load(pool.root(word)));
    if !seal::are_right([made, 0], [anchor]) {
        let (at, what) = (pool.root(0), "the place of the tree");
        return Err(PoolError::Damaged { at, what }.into());
    }
    let counts = View(pool.first_epoch()).sees(pool, epoch_bits(made).0);
    Ok(counts.then_some(Offset::new(anchor)))
}

/// Cleans up a crowded pool in which nothing was ever committed.
fn forget_unmade<M: Pmem>(pool: &Pool<M>, allocator: &Allocator<M>) -> Result<(), Error> {
    let Some(newest) = pool.voids().last().copied().filter(|_| pool.is_crowded()) else {
        return Ok(());
    };
    let _window = Writes::new(pool.memory());
    pool.memory().store(pool.root(0), LogEpoch::NONE.0);
    flush_root(pool, 0);
    allocator.clean(0, u64::MAX);
    Ok(pool.forget_voids(newest.last)?)
}

/// Makes the anchor of an empty tree, in the pool's first epoch.
fn make_anchor<M: Pmem>(pool: &Pool<M>, allocator: &Allocator<M>) -> Result<Offset, Error> {
    let (epoch, memory) = (pool.first_epoch(), pool.memory());
    pool.begin(epoch)?;
    let _window = Writes::new(memory);
    let at = allocator.allocate(bytes_of(ANCHOR, ANCHOR_SLOTS), epoch)?;
    Node::make(pool, at, (ANCHOR, ANCHOR_SLOTS), epoch, &[]);
    // CN5 sealed: one that a crash has left may be there.
    let beginning = seal::beginning(epoch, [at.get()]);
    let (pair, bytes) = (pool.root(0), 16);
    store_begun(memory, (pair, bytes), [(1, at.get())], beginning);
    flush_root(pool, 0);
    allocator.settle();
    pool.commit(epoch)?;
    Ok(at)
}

fn flush_root<M: Pmem>(pool: &Pool<M>, word: u64) {
    pool.memory().mark(ROOT_FLUSH);
    pool.memory().flush(pool.root(word), 8);
}
