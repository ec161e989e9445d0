//! What can be asked of an engine: capability traits, the one write primitive, the commit hook.
//!
//! A thread works on an engine through a session of its own. Capabilities are types: a session
//! that implements [`Ordered`] can scan in key order, one that implements [`Walk`] can walk through
//! its keys in none; one that does not has no scan to call.
//!
//! Invariants that every engine keeps (the conformance suite checks them):
//! - **E1 atomic-update** `update` is atomic per key: the closure sees the latest committed value,
//!   and what it decides is committed before any other writer of the key is shown a value.
//! - **E2 versions-grow** Versions of one (tree, key) strictly increase (see
//!   [`crate::EpochClock`]).
//! - **E3 hook-once** The commit hook runs once per commit, under the lock that orders the key's
//!   writers, with the value before and after. It must not block, allocate without bound or call
//!   the engine.
//! - **E4 scan-complete** A scan yields keys in strict order, without duplicates, and every key
//!   that is present from its start to its end.
//! - **E5 whole-values** A reader sees a whole value of one version, never a mixture.
//! - **E6 marks-stay** The access mark of a value is the one that it was written with until a
//!   reader of that value changes it; a racing change may be lost.
//! - **E7 walk-complete** A walk, from cursor 0 along the cursors that its steps return until one
//!   returns 0, shows every key that is present from its start to its end. Cursors are numbers
//!   without state: any of them can be used again, by any session, at any time. A key that came,
//!   went or moved meanwhile may be shown or not, and a key may be shown twice when others came or
//!   went.
//!
//! Deliberately absent: expiry (deadlines are stored, not judged), multi-key atomicity.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use thiserror::Error;

use crate::{Deadline, EpochClock, Hand, Key, NewValue, Pinned, TreeId, ValueRef, ValueVersion};

/// Every session that the engine can serve is in use.
#[derive(Debug, Error)]
#[error("all {sessions_max} engine sessions are in use")]
pub struct SessionLimit {
    /// The engine's bound.
    pub sessions_max: usize,
}

/// What an update does with a key, decided by its closure.
#[derive(Debug)]
pub enum Decision<'d> {
    /// Leave the key as it is; no version is drawn.
    Keep,
    /// Store this value.
    Write(NewValue<'d>),
    /// Remove the key; removing an absent key is [`Decision::Keep`].
    Remove,
}

/// What stands at a key, for WATCH.
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

/// What an engine asks of writers because of memory that readers hold back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Nothing.
    #[default]
    None,
    /// Collect ([`Point::maintain`] outside a pin) and write more slowly.
    Slow,
    /// Collect, and write nothing until that has helped: replaced and removed memory is at its
    /// bound, because a session stays pinned.
    Refuse,
}

/// One figure that an engine reports about itself.
#[derive(Clone, Debug)]
pub struct Gauge {
    /// Prometheus-style name without prefix, e.g. `tombstones`; that of a counter, which only
    /// rises, ends in `_total`.
    pub name: &'static str,
    /// One sentence on what it counts, with its unit.
    pub help: &'static str,
    /// The figure.
    pub value: f64,
}

impl Gauge {
    /// Whether the figure is a counter.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

/// Called once for every commit, under the lock that orders the key's writers (E3).
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
    /// What one thread works through.
    type Session: Point + Send;

    /// The name that `--engine` takes.
    const NAME: &'static str;

    /// An empty engine whose commits take their epochs from `clock`. A program without a log or
    /// watchers gives it [`EpochClock::self_driven`] and is done: sessions forget removed keys and
    /// maintain the engine as they go.
    fn new(clock: Arc<EpochClock>) -> Arc<Self>;

    /// Opens a session; it may be moved between threads, never shared.
    fn session(self: &Arc<Self>) -> Result<Self::Session, SessionLimit>;

    /// Makes an empty tree. O(1).
    fn create_tree(&self) -> TreeId;

    /// Makes the tree of this number, empty, if it is not there: recovery finds trees as the log
    /// names them. Numbers that [`Self::create_tree`] gives from now on are above it. A number that
    /// was dropped since the engine was made is a broken invariant of the caller.
    fn restore_tree(&self, tree: TreeId);

    /// Forgets a tree: it reads as empty from now on, writes to it are lost, and its memory is
    /// returned by later calls of [`Point::maintain`]. O(1).
    fn drop_tree(&self, tree: TreeId);

    /// Keys in a tree, expired ones included, tombstones not. O(sessions).
    fn len(&self, tree: TreeId) -> u64;

    /// About how many bytes come back when pins end and the horizon moves: what was replaced or
    /// removed, with the tombstones. O(sessions).
    fn reclaimable_bytes(&self) -> usize;

    /// How close memory that was replaced or removed is to its bound, as of the last collection.
    /// The engine goes on to take writes; refusing them is up to the caller. O(1).
    fn pressure(&self) -> Pressure {
        Pressure::None
    }

    /// Reports the engine's figures.
    fn gauges(&self, report: &mut dyn FnMut(Gauge));
}

/// A value that recovery puts back; see [`Point::restore_run`].
#[derive(Debug)]
pub struct Restored<'d> {
    /// Its key.
    pub key: &'d [u8],
    /// See [`Point::restore`].
    pub version: ValueVersion,
    /// See [`Point::restore`].
    pub value: NewValue<'d>,
}

/// Point operations.
///
/// What the user of a session looks after:
/// - operations that belong together share one pin ([`Self::pinned`]), which ends before the
///   session waits for anything;
/// - who drives the clock ([`EpochClock::tick`]) moves the horizon on behind it
///   ([`EpochClock::set_horizon`]) and calls [`Self::maintain`] now and then, outside a pin; under
///   [`EpochClock::self_driven`] sessions that write see to both;
/// - who feeds the engine writes looks at [`Engine::pressure`], and stops writing at
///   [`Pressure::Refuse`] until `maintain` has helped.
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
    /// Holds off reclamation until [`Self::unpin`]; a batch pins once. Reads and updates outside a
    /// pin take one of their own.
    fn pin(&mut self);

    /// Ends what [`Self::pin`] began. No session sleeps or waits while it is pinned.
    fn unpin(&mut self);

    /// The session, pinned until what this returns goes, also when a closure of the caller panics.
    fn pinned(&mut self) -> Pinned<'_, Self>
    where
        Self: Sized,
    {
        Pinned::new(self)
    }

    /// Shows the key's value to `read`. Takes no lock on lock-free engines.
    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R;

    /// Shows the values of `keys` in turn, their descents interleaved where the engine can.
    fn get_many(&mut self, keys: &[Key<'_>], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        for (index, key) in keys.iter().enumerate() {
            self.get(*key, |value| read(index, value));
        }
    }

    /// Brings what operations on `keys` will touch into the cache; changes nothing.
    fn warm(&mut self, keys: &[Key<'_>]);

    /// Says that the next operation is on the key at `index` of the last call of [`Self::warm`]
    /// under this pin: what was found there may be used again. A hint: where it is wrong, or late,
    /// it changes no answer.
    #[inline]
    fn recall(&mut self, index: usize) {
        let _ = index;
    }

    /// What stands at the key, tombstones included.
    fn probe(&mut self, key: Key<'_>) -> Probe;

    /// The one write primitive: shows the key's value to `decide` and commits what it decides
    /// (E1), returning the version drawn, or `None` when it kept the key.
    ///
    /// `decide` must be pure (no I/O, clock, randomness, reply). It runs at least once, on a
    /// dropped tree too, and may run more often; what it decides last is committed.
    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion>;

    /// Updates `keys` one at a time in their order, their descents interleaved where the engine
    /// can; `decide` is told the index.
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

    /// Puts back what a log or a checkpoint says of the key: `value` at `version`, a tombstone if
    /// it is `None`, if that is newer than the value or tombstone that stands there; returns
    /// whether it was. Calls no hook and draws no version; versions of a key may come in any order.
    ///
    /// A restored epoch lies below the clock's current one, so that versions still increase (E2).
    fn restore(&mut self, key: Key<'_>, version: ValueVersion, value: Option<NewValue<'_>>)
    -> bool;

    /// Puts values of one tree back, in strictly ascending order of their keys, as
    /// [`Self::restore`] does one by one, and leaves `run` empty. An engine in key order may build
    /// whole nodes of what it did not have.
    fn restore_run(&mut self, tree: TreeId, run: &mut Vec<Restored<'_>>) {
        for restored in run.drain(..) {
            let key = Key::new(tree, restored.key);
            self.restore(key, restored.version, Some(restored.value));
        }
    }

    /// Shows some key of the tree, picked by `random`, to `read`; every key can be picked. `None`
    /// when the tree is empty, or when [`crate::limits::SAMPLE_PASSED_MAX`] removed keys or empty
    /// buckets lay in the way: the work is bounded.
    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R;

    /// Shows up to `steps` values to `visit`, or those of a bucket more, going on where `hand`
    /// stands; fewer where removed keys are passed. Whether the end was reached, the hand being at
    /// the start again. Every key that stays from start to end is shown once at least. `visit` may
    /// change access marks.
    fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool;

    /// Does up to `steps` steps of deferred work (tombstones below the horizon, dropped trees);
    /// returns the steps done, 0 when there is nothing to do. Under a self-driven clock sessions
    /// that write call it by themselves; one call more gives back what is left at rest.
    fn maintain(&mut self, steps: usize) -> usize;
}

/// Scans in key order.
pub trait Ordered: Point {
    /// Shows entries to `visit` in key order, beginning at `from` (forward: the lower bound,
    /// backward: the upper one), until it breaks or the tree ends (E4).
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    );

    /// Like [`Self::scan`], but shows what it passes over, too, as `None`: removed keys that the
    /// engine remembers still. So a caller can bound its work whatever lies in the range.
    fn scan_all(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        self.scan(tree, from, direction, |key, value| visit(key, Some(value)));
    }

    /// Up to `parts - 1` keys in strict order, present or not, that cut the tree into ranges of
    /// about as many keys each: where parallel scans begin. Taken from the tree's own shape, so
    /// that it costs O(parts · log keys) and is a hint, whatever writers do meanwhile.
    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>>;
}

/// Walks in no order, by a stateless cursor: what an engine without key order has for SCAN.
pub trait Walk: Point {
    /// Shows some entries of the tree and returns the cursor from which to go on, 0 when there is
    /// nothing beyond (E7). It begins at cursor 0. One step shows a number of entries that does not
    /// grow with the tree, perhaps none.
    fn walk(&mut self, tree: TreeId, cursor: u64, visit: impl FnMut(&[u8], ValueRef<'_>)) -> u64;
}
