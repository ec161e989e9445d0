//! The engine contract: capability traits, the one write primitive, the commit hook.
//!
//! Each thread works on an engine through its own session. Capabilities are types: a session that
//! implements [`Ordered`] scans in key order, one that implements [`Walk`] walks its keys in no
//! order. What a session does not implement cannot be called.
//!
//! Invariants that every engine keeps (the conformance suite checks them):
//! - **E1 atomic-update** `update` is atomic per key: the closure sees the latest committed value,
//!   and its decision is committed before any other writer of the key sees a value.
//! - **E2 versions-grow** Versions of one (tree, key) strictly increase (see
//!   [`crate::EpochClock`]).
//! - **E3 hook-once** The commit hook runs once per commit, under the lock that orders the key's
//!   writers, with the value before and after. It must not block, allocate without bound or call
//!   the engine.
//! - **E4 scan-complete** A scan yields keys in strict order, without duplicates, and includes
//!   every key that is present from its start to its end.
//! - **E5 whole-values** A reader sees a whole value of one version, never a mixture.
//! - **E6 marks-stay** A value keeps the access mark it was written with until a reader of that
//!   value changes it. A racing change may be lost.
//! - **E7 walk-complete** A walk starts at cursor 0, follows the cursor that each step returns, and
//!   ends when a step returns 0. It shows every key that is present from its start to its end.
//!   Cursors are stateless numbers: any session can use any of them again at any time. A key that
//!   was inserted, removed or moved meanwhile may or may not be shown. A key may be shown twice
//!   when others were inserted or removed.
//!
//! Deliberately absent: expiry (deadlines are stored, not judged), multi-key atomicity.

use std::convert::Infallible;
use std::error::Error;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::{
    Amendment, Deadline, EpochClock, Hand, Key, NewValue, Pinned, Shown, TreeId, ValueRef,
    ValueVersion,
};

/// All sessions that the engine can serve are in use.
#[derive(Debug, thiserror::Error)]
#[error("all {sessions_max} engine sessions are in use")]
pub struct SessionLimit {
    /// The engine's limit.
    pub sessions_max: usize,
}

/// What an update does with a key; its closure decides.
#[derive(Debug)]
pub enum Decision<'d> {
    /// Keep the key as it is; no version is drawn.
    Keep,
    /// Store this value.
    Write(NewValue<'d>),
    /// Store the row that was shown with a value of it replaced. An amendment of anything but what
    /// was shown last is a broken invariant of the caller.
    Amend(Amendment<'d>),
    /// Remove the key; removing an absent key is [`Decision::Keep`].
    Remove,
}

/// The state of a key, for WATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Neither a value nor a tombstone.
    Absent,
    /// A tombstone of this version.
    Removed(ValueVersion),
    /// A value.
    Present {
        /// Its version.
        version: ValueVersion,
        /// Its deadline, if any.
        deadline: Option<Deadline>,
    },
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From lower keys to higher ones.
    Forward,
    /// From higher keys to lower ones.
    Backward,
}

/// What the engine asks of writers when readers keep memory from being reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Nothing.
    #[default]
    None,
    /// Collect ([`Point::maintain`] outside a pin) and slow down writes.
    Slow,
    /// Collect, and stop writing until that has helped: replaced and removed memory is at its bound
    /// because a session stays pinned.
    Refuse,
}

/// One metric that an engine reports about itself.
#[derive(Clone, Debug)]
pub struct Gauge {
    /// Prometheus-style name without prefix, e.g. `tombstones`. The name of a counter, which only
    /// rises, ends in `_total`.
    pub name: &'static str,
    /// One sentence on what it counts, with its unit.
    pub help: &'static str,
    /// The value.
    pub value: f64,
}

impl Gauge {
    /// Those that every engine has: how many trees exist, the keys in them, and the removed keys
    /// whose version is still remembered.
    #[must_use]
    pub fn of_trees(trees: u64, keys: u64, tombstones: u64) -> [Self; 3] {
        [
            ("trees", "Trees that exist.", trees),
            ("keys", "Keys in all trees, expired ones included.", keys),
            (
                "tombstones",
                "Removed keys whose version is still remembered.",
                tombstones,
            ),
        ]
        .map(|(name, help, value)| Self {
            name,
            help,
            value: value as f64,
        })
    }

    /// Whether the metric is a counter.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

/// Called once per commit, under the lock that orders the key's writers (E3).
pub trait CommitHook {
    /// `old` and `new` are the values before and after; `None` is absence.
    fn committed(
        &mut self,
        key: Key<'_>,
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        version: ValueVersion,
    );
}

/// A hook that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHook;

impl CommitHook for NoHook {
    #[inline]
    fn committed(
        &mut self,
        _: Key<'_>,
        _: Option<ValueRef<'_>>,
        _: Option<ValueRef<'_>>,
        _: ValueVersion,
    ) {
    }
}

/// A set of trees shared by all threads.
pub trait Engine: Send + Sync + Sized + 'static {
    /// A thread's handle on the engine.
    type Session: Point + Send;

    /// What it is opened with.
    type Options: Default;

    /// Why it cannot be opened: [`Infallible`] if it is in memory and always can.
    type OpenError: Error + Send + Sync + 'static;

    /// The engine's name, as `--engine` takes it.
    const NAME: &'static str;

    /// Opens an engine whose commits take their epochs from `clock`. An engine in memory is empty
    /// then. A program without a log or watchers passes [`EpochClock::self_driven`] and needs to do
    /// no more: sessions then forget removed keys and maintain the engine as they work.
    fn open(clock: Arc<EpochClock>, options: Self::Options) -> Result<Arc<Self>, Self::OpenError>;

    /// Opens an engine in memory with its default options.
    fn new(clock: Arc<EpochClock>) -> Arc<Self>
    where
        Self: Engine<OpenError = Infallible>,
    {
        let Ok(engine) = Self::open(clock, Self::Options::default());
        engine
    }

    /// Opens a session. It can move between threads but is never shared.
    fn session(self: &Arc<Self>) -> Result<Self::Session, SessionLimit>;

    /// Creates an empty tree. O(1).
    fn create_tree(&self) -> TreeId;

    /// Creates the tree with this number, empty, unless it exists: recovery meets trees as the log
    /// names them. [`Self::create_tree`] returns only higher numbers from now on. A number that was
    /// dropped during the engine's life is a broken invariant of the caller.
    fn restore_tree(&self, tree: TreeId);

    /// Drops a tree: from now on it reads as empty and writes to it are lost. Later calls of
    /// [`Point::maintain`] free its memory. O(1).
    fn drop_tree(&self, tree: TreeId);

    /// Counts the keys of a tree, expired ones included, tombstones not. O(sessions).
    fn len(&self, tree: TreeId) -> u64;

    /// About how many bytes (replaced or removed values, and tombstones) will be reclaimed once
    /// pins end and the horizon moves. O(sessions).
    fn reclaimable_bytes(&self) -> usize;

    /// How close replaced and removed memory was to its bound at the last collection. The engine
    /// still takes writes; refusing them is up to the caller. O(1).
    fn pressure(&self) -> Pressure {
        Pressure::None
    }

    /// Reports the engine's metrics.
    fn gauges(&self, report: &mut dyn FnMut(Gauge));
}

/// Point operations.
///
/// The caller's duties:
/// - Operations that belong together share one pin ([`Self::pinned`]), which ends before the
///   session waits for anything.
/// - Whoever drives the clock ([`EpochClock::tick`]) also advances the horizon behind it
///   ([`EpochClock::set_horizon`]) and calls [`Self::maintain`] now and then, outside a pin. Under
///   [`EpochClock::self_driven`], sessions that write do both.
/// - Writers check [`Engine::pressure`] and stop at [`Pressure::Refuse`] until `maintain` has
///   helped.
///
/// ```
/// use std::sync::Arc;
///
/// use pando_engine::{
///     Body, Decision, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, Pressure,
///     ReferenceEngine,
/// };
///
/// let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
/// let engine = ReferenceEngine::new(Arc::clone(&clock));
/// let (tree, mut session) = (engine.create_tree(), engine.session()?);
/// {
///     let mut pinned = session.pinned();
///     for key in [b"one", b"two"] {
///         pinned.update(Key::new(tree, key), &mut NoHook, |_| {
///             Decision::Write(NewValue::new(Body::string(b"value")))
///         });
///     }
///     pinned.update(Key::new(tree, b"two"), &mut NoHook, |_| Decision::Remove);
/// }
/// assert_eq!(engine.len(tree), 1);
/// // The version of the removed key is remembered until the horizon has passed it.
/// clock.set_horizon(clock.tick());
/// while session.maintain(100) > 0 {}
/// assert_eq!(engine.pressure(), Pressure::None);
/// # Ok::<(), pando_engine::SessionLimit>(())
/// ```
///
/// A key longer than [`crate::limits::KEY_BYTES_MAX`] is a broken invariant of the caller.
pub trait Point {
    /// Holds off reclamation until [`Self::unpin`]. A batch pins once. A read or update outside a
    /// pin takes its own.
    fn pin(&mut self);

    /// Ends [`Self::pin`]. No session sleeps or waits while it is pinned.
    fn unpin(&mut self);

    /// Pins the session until the returned guard is dropped, even if a closure of the caller
    /// panics.
    fn pinned(&mut self) -> Pinned<'_, Self>
    where
        Self: Sized,
    {
        Pinned::new(self)
    }

    /// Shows the key's value to `read`. Takes no lock on lock-free engines.
    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R;

    /// Shows the values of `keys` one after another, with interleaved descents where the engine
    /// can.
    fn get_many(&mut self, keys: &[Key<'_>], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        for (index, key) in keys.iter().enumerate() {
            self.get(*key, |value| read(index, value));
        }
    }

    /// Prefetches what operations on `keys` will touch; changes nothing.
    fn warm(&mut self, keys: &[Key<'_>]);

    /// Hints that the next operation is on the key at `index` of the last call of [`Self::warm`]
    /// under this pin, so that what was found there can be used again. A wrong or late hint changes
    /// no result.
    #[inline]
    fn recall(&mut self, index: usize) {
        let _ = index;
    }

    /// Returns the state of the key, tombstones included.
    fn probe(&mut self, key: Key<'_>) -> Probe;

    /// The one write primitive: shows the key's value to `decide` and commits its decision (E1).
    /// Returns the version drawn, or `None` when the key was kept.
    ///
    /// `decide` must be pure (no I/O, clock, randomness, reply). It runs at least once, even on a
    /// dropped tree, and may run more often; its last decision is committed.
    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion>;

    /// [`Self::update`] for a change of a large row that may be made in place: an engine that knows
    /// that nobody else sees the value may let the closure take its row ([`Shown::take`]). It then
    /// writes a value made of that, removes the key, or gives it back and keeps the key. The commit
    /// hook sees an old value with an empty row where the row was taken.
    fn change<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(&mut Shown<'_>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        self.update(key, hook, |old| decide(&mut Shown::seen(old)))
    }

    /// Keeps other sessions from reading and writing, until [`Self::let_in`], if none does so now;
    /// returns whether it is so. The caller holds a pin, hurries, and takes no lock under which
    /// somebody may begin a pin. An engine that cannot returns false. Meanwhile one that can may
    /// put a value where the one lies that it replaces.
    fn keep_out(&mut self) -> bool {
        false
    }

    /// Ends [`Self::keep_out`], whatever that has returned; so does the end of the pin.
    fn let_in(&mut self) {}

    /// Updates `keys` in order, one at a time, with interleaved descents where the engine can.
    /// `decide` receives the index.
    fn update_many<'d, H: CommitHook>(
        &mut self,
        keys: &[Key<'_>],
        hook: &mut H,
        mut decide: impl FnMut(usize, Option<ValueRef<'_>>) -> Decision<'d>,
    ) {
        self.warm(keys);
        for (index, key) in keys.iter().enumerate() {
            self.update(*key, hook, |old| decide(index, old));
        }
    }

    /// Shows one key of the tree, picked by `random`, to `read`; every key can be picked. Returns
    /// `None` when the tree is empty, or after [`crate::limits::SAMPLE_PASSED_MAX`] removed keys or
    /// empty buckets: the work is bounded.
    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R;

    /// Continues a sweep at `hand` and shows up to `steps` values to `visit`, plus the rest of a
    /// bucket; fewer where it passes removed keys. Returns whether it reached the end; `hand` is
    /// then at the start again. Every key that is present from start to end is shown at least once.
    /// `visit` may change access marks.
    fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool;

    /// Does up to `steps` steps of deferred work (tombstones below the horizon, dropped trees).
    /// Returns the steps done, 0 when nothing is left to do. Under a self-driven clock, sessions
    /// that write call it themselves; one more call frees what is left when writes stop.
    fn maintain(&mut self, steps: usize) -> usize;
}

/// Scans in key order.
pub trait Ordered: Point {
    /// Shows entries to `visit` in key order, starting at `from` (forward: the lower bound,
    /// backward: the upper one), until `visit` breaks or the tree ends (E4).
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    );

    /// Like [`Self::scan`], but also shows removed keys that the engine still remembers, as `None`.
    /// So a caller can bound its work whatever the range holds.
    fn scan_all(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        self.scan(tree, from, direction, |key, value| visit(key, Some(value)));
    }

    /// Returns up to `parts - 1` keys in strict order, present or not, that divide the tree into
    /// ranges of about equally many keys, where parallel scans can begin. They come from the tree's
    /// shape, so the cost is O(parts · log keys) and the result is a hint under concurrent writes.
    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>>;
}

/// Walks in no order with a stateless cursor: SCAN on engines without key order.
pub trait Walk: Point {
    /// Shows some entries of the tree and returns the cursor to continue from, 0 at the end (E7). A
    /// walk begins at cursor 0. The entries per step do not grow with the tree; a step may show
    /// none.
    fn walk(&mut self, tree: TreeId, cursor: u64, visit: impl FnMut(&[u8], ValueRef<'_>)) -> u64;
}
