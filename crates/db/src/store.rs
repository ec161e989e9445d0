//! The engine that holds the keyspace, chosen once: an enum, so that a GET makes no virtual call.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_cdds::Cdds;
use pando_engine::{
    CommitHook, Decision, Direction, Emptying, Engine, EpochClock, Gauge, Hand, Images, Key,
    LogEpoch, NewValue, Ordered, OrderedAt, Outcome, Point, Pressure, Probe, ReadAt,
    ReferenceEngine, ReferenceOptions, Refused, Relocate, Restore, Restored, SessionLimit, Shown,
    Snapshot, SnapshotLimit, Snapshots, Transactional, TreeId, ValueRef, ValueVersion, Walk,
    WalkAt,
};
use pando_masstree::Masstree;
use pando_mercury::Mercury;
use pando_minuet::engine::Minuet;

use crate::error::CommandError;
use crate::options::{EngineKind, Options};

/// One of the engines.
#[derive(Debug)]
pub(crate) enum Store {
    Masstree(Arc<Masstree>),
    Mercury(Arc<Mercury>),
    Cdds(Arc<Cdds>),
    Minuet(Arc<Minuet>),
    Reference(Arc<ReferenceEngine>),
}

/// A session of the store's engine, inline: there is one per thread, and an operation must not
/// follow a pointer to it.
#[derive(Debug)]
pub(crate) enum StoreSession {
    Masstree(<Masstree as Engine>::Session),
    Mercury(<Mercury as Engine>::Session),
    Cdds(<Cdds as Engine>::Session),
    Minuet(<Minuet as Engine>::Session),
    Reference(<ReferenceEngine as Engine>::Session),
}

/// Runs the same expression on any engine.
macro_rules! on {
    ($kind:ident, $value:expr, $engine:ident => $run:expr) => {
        match $value {
            $kind::Masstree($engine) => $run,
            $kind::Mercury($engine) => $run,
            $kind::Cdds($engine) => $run,
            $kind::Minuet($engine) => $run,
            $kind::Reference($engine) => $run,
        }
    };
}

impl Store {
    pub(crate) fn open(
        options: &Options,
        clock: Arc<EpochClock>,
    ) -> Result<Self, pando_cdds::Error> {
        let of_masstree = pando_masstree::Options {
            retired_bytes_max: options.retired_bytes_max,
            ..pando_masstree::Options::default()
        };
        let of_mercury = pando_mercury::Options {
            retired_bytes_max: options.retired_bytes_max,
            ..pando_mercury::Options::default()
        };
        let of_reference = ReferenceOptions {
            absences: options.absences,
        };
        Ok(match options.engine {
            EngineKind::Masstree => {
                let Ok(engine) = Masstree::open(clock, of_masstree);
                Self::Masstree(engine)
            }
            EngineKind::Mercury => {
                let Ok(engine) = Mercury::open(clock, of_mercury);
                Self::Mercury(engine)
            }
            EngineKind::Cdds => Self::Cdds(Cdds::open(clock, options.pool.clone())?),
            EngineKind::Minuet => {
                let options = pando_minuet::engine::Options {
                    conflicts: options.absences.is_some(),
                    memnodes: options.memnodes,
                    page_bytes: options.page_bytes,
                };
                let Ok(engine) = Minuet::open(clock, options);
                Self::Minuet(engine)
            }
            EngineKind::Reference => {
                let Ok(engine) = ReferenceEngine::open(clock, of_reference);
                Self::Reference(engine)
            }
        })
    }

    /// The engine that keeps its data itself, if it is that one.
    pub(crate) fn pooled(&self) -> Option<&Arc<Cdds>> {
        match self {
            Self::Cdds(engine) => Some(engine),
            _ => None,
        }
    }

    /// The engine that has branches, if it is that one.
    pub(crate) fn branching(&self) -> Option<&Arc<Minuet>> {
        match self {
            Self::Minuet(engine) => Some(engine),
            _ => None,
        }
    }

    pub(crate) fn session(&self) -> Result<StoreSession, SessionLimit> {
        match self {
            Self::Masstree(engine) => engine.session().map(StoreSession::Masstree),
            Self::Mercury(engine) => engine.session().map(StoreSession::Mercury),
            Self::Cdds(engine) => engine.session().map(StoreSession::Cdds),
            Self::Minuet(engine) => engine.session().map(StoreSession::Minuet),
            Self::Reference(engine) => engine.session().map(StoreSession::Reference),
        }
    }

    pub(crate) fn create_tree(&self) -> TreeId {
        on!(Store, self, engine => engine.create_tree())
    }

    pub(crate) fn restore_tree(&self, tree: TreeId) {
        on!(Store, self, engine => engine.restore_tree(tree));
    }

    pub(crate) fn drop_tree(&self, tree: TreeId) {
        on!(Store, self, engine => engine.drop_tree(tree));
    }

    pub(crate) fn len(&self, tree: TreeId) -> u64 {
        on!(Store, self, engine => engine.len(tree))
    }

    /// Bytes about to be reclaimed, in memory and in the engine's pool.
    pub(crate) fn reclaimable_bytes(&self) -> usize {
        let in_pool = self.pooled().map_or(0, |pool| pool.reclaimable_in_pool());
        on!(Store, self, engine => engine.reclaimable_bytes()) + in_pool as usize
    }

    /// See [`Emptying::idle_bytes`]; none if memory is not the engine's own.
    pub(crate) fn idle_bytes(&self) -> usize {
        match self {
            Self::Masstree(engine) => engine.idle_bytes(),
            Self::Mercury(engine) => engine.idle_bytes(),
            Self::Cdds(_) | Self::Minuet(_) | Self::Reference(_) => 0,
        }
    }

    #[inline]
    pub(crate) fn pressure(&self) -> Pressure {
        on!(Store, self, engine => engine.pressure())
    }

    pub(crate) fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        on!(Store, self, engine => engine.gauges(report));
    }
}

/// Snapshots.
impl Store {
    /// See [`Snapshots::freeze`]. The caller has asked whether there may be one more: only those
    /// that were dropped can be too many.
    pub(crate) fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, CommandError> {
        let frozen = on!(Store, self, engine => engine.freeze(epoch));
        frozen.map_err(|SnapshotLimit { .. }| CommandError::SnapshotsOnTheirWayOut)
    }

    /// See [`Snapshots::release`].
    pub(crate) fn release(&self, snapshot: Snapshot) {
        on!(Store, self, engine => engine.release(snapshot));
    }

    /// See [`Snapshots::keeps`].
    pub(crate) fn keeps(&self, version: ValueVersion) -> bool {
        on!(Store, self, engine => engine.keeps(version))
    }

    /// See [`Snapshots::images`].
    pub(crate) fn images(&self, snapshot: Snapshot) -> Images {
        on!(Store, self, engine => engine.images(snapshot))
    }

    /// See [`Snapshots::image_trees`].
    pub(crate) fn image_trees(&self) -> Vec<TreeId> {
        on!(Store, self, engine => engine.image_trees())
    }

    /// See [`Snapshots::is_unsettled`].
    pub(crate) fn is_unsettled(&self) -> bool {
        on!(Store, self, engine => engine.is_unsettled())
    }

    /// See [`Snapshots::settle`].
    pub(crate) fn settle(&self) {
        on!(Store, self, engine => engine.settle());
    }
}

impl ReadAt for StoreSession {
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        on!(StoreSession, self, session => session.get_at(at, key, read))
    }

    fn get_many_at(
        &mut self,
        at: Snapshot,
        keys: &[Key<'_>],
        read: impl FnMut(usize, Option<ValueRef<'_>>),
    ) {
        on!(StoreSession, self, session => session.get_many_at(at, keys, read));
    }

    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        on!(StoreSession, self, session => session.sample_at(at, tree, random, read))
    }
}

impl Point for StoreSession {
    fn pin(&mut self) {
        on!(StoreSession, self, session => session.pin());
    }

    fn unpin(&mut self) {
        on!(StoreSession, self, session => session.unpin());
    }

    #[inline]
    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        on!(StoreSession, self, session => session.get(key, read))
    }

    fn get_many(&mut self, keys: &[Key<'_>], read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        on!(StoreSession, self, session => session.get_many(keys, read));
    }

    fn warm(&mut self, keys: &[Key<'_>]) {
        on!(StoreSession, self, session => session.warm(keys));
    }

    #[inline]
    fn recall(&mut self, index: usize) {
        on!(StoreSession, self, session => session.recall(index));
    }

    fn probe(&mut self, key: Key<'_>) -> Probe {
        on!(StoreSession, self, session => session.probe(key))
    }

    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        on!(StoreSession, self, session => session.update(key, hook, decide))
    }

    fn change<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        decide: impl FnMut(&mut Shown<'_>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        on!(StoreSession, self, session => session.change(key, hook, decide))
    }

    fn keep_out(&mut self) -> bool {
        on!(StoreSession, self, session => session.keep_out())
    }

    fn let_in(&mut self) {
        on!(StoreSession, self, session => session.let_in());
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        on!(StoreSession, self, session => session.sample(tree, random, read))
    }

    fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        on!(StoreSession, self, session => session.sweep(tree, hand, steps, visit))
    }

    fn maintain(&mut self, steps: usize) -> usize {
        on!(StoreSession, self, session => session.maintain(steps))
    }
}

impl Restore for StoreSession {
    fn restore(
        &mut self,
        key: Key<'_>,
        version: ValueVersion,
        value: Option<NewValue<'_>>,
    ) -> bool {
        on!(StoreSession, self, session => session.restore(key, version, value))
    }

    fn restore_run(&mut self, tree: TreeId, run: &mut Vec<Restored<'_>>) {
        on!(StoreSession, self, session => session.restore_run(tree, run));
    }
}

/// A session by its way of listing keys: capabilities are types, so a command cannot scan without
/// key order.
#[derive(Debug)]
pub(crate) enum Listing<'s> {
    Ordered(OrderedSession<'s>),
    Walking(WalkingSession<'s>),
}

/// A session of an ordered engine.
#[derive(Debug)]
pub(crate) enum OrderedSession<'s> {
    Masstree(&'s mut <Masstree as Engine>::Session),
    Cdds(&'s mut <Cdds as Engine>::Session),
    Minuet(&'s mut <Minuet as Engine>::Session),
    Reference(&'s mut <ReferenceEngine as Engine>::Session),
}

/// A session of an unordered engine.
#[derive(Debug)]
pub(crate) struct WalkingSession<'s>(&'s mut <Mercury as Engine>::Session);

/// A session of an engine whose memory can be emptied.
#[derive(Debug)]
pub(crate) enum EmptyingSession<'s> {
    Masstree(&'s mut <Masstree as Engine>::Session),
    Mercury(&'s mut <Mercury as Engine>::Session),
}

/// Like `on`, for a session of an engine whose memory can be emptied.
macro_rules! on_emptying {
    ($value:expr, $session:ident => $run:expr) => {
        match $value {
            EmptyingSession::Masstree($session) => $run,
            EmptyingSession::Mercury($session) => $run,
        }
    };
}

impl EmptyingSession<'_> {
    /// See [`Relocate::begin_emptying`].
    pub(crate) fn begin(&mut self, short: bool) -> bool {
        on_emptying!(self, session => session.begin_emptying(short))
    }

    /// See [`Relocate::end_emptying`].
    pub(crate) fn end(&mut self) {
        on_emptying!(self, session => session.end_emptying());
    }

    /// See [`Relocate::sweep_emptying`].
    pub(crate) fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        on_emptying!(self, session => session.sweep_emptying(tree, hand, steps, visit))
    }

    /// See [`Relocate::relocate`].
    pub(crate) fn relocate(&mut self, key: Key<'_>) -> bool {
        on_emptying!(self, session => session.relocate(key))
    }
}

impl StoreSession {
    /// Whether its work is done in runs, which may have to be repeated.
    #[inline]
    pub(crate) fn repeats(&self) -> bool {
        match self {
            Self::Masstree(_) | Self::Mercury(_) | Self::Cdds(_) | Self::Minuet(_) => false,
            Self::Reference(session) => session.has_absences(),
        }
    }

    /// Whether its updates may find no room in a pool, in which case those of a run are taken back.
    #[inline]
    pub(crate) fn takes_back(&self) -> bool {
        matches!(self, Self::Cdds(_))
    }

    /// Whether large rows may be changed in place.
    #[inline]
    pub(crate) fn changes_in_place(&self) -> bool {
        matches!(self, Self::Masstree(_))
    }

    /// Whether requests of several keys are runs, beside those of other sessions.
    #[inline]
    pub(crate) fn runs_beside(&self) -> bool {
        matches!(self, Self::Minuet(_))
    }

    /// Begins a run. That of a pool is under all gates. One that `reads` alone may be cheaper.
    pub(crate) fn begin_run(&mut self, reads: bool) {
        match self {
            Self::Cdds(session) => session.begin_group(),
            Self::Minuet(session) if reads => session.begin_reads(),
            Self::Minuet(session) => session.begin_run(),
            Self::Reference(session) if session.has_absences() => session.begin_run(),
            _ => {}
        }
    }

    /// Ends the run. One that others run beside counts if it `may`, asked when all that it has read
    /// stays as it is until its writes are seen.
    pub(crate) fn end_run(&mut self, may: impl Fn() -> bool) -> Outcome {
        match self {
            Self::Cdds(session) => {
                let refused = session.end_group();
                refused.map_or(Outcome::Done, Outcome::Refused)
            }
            Self::Minuet(session) => session.end_run_if(may),
            Self::Reference(session) if session.has_absences() => session.end_run_if(may),
            _ => Outcome::Done,
        }
    }

    /// The session as one of runs, if they may have to be repeated.
    pub(crate) fn transactional(&mut self) -> Option<&mut impl Transactional> {
        match self {
            Self::Masstree(_) | Self::Mercury(_) | Self::Cdds(_) | Self::Minuet(_) => None,
            Self::Reference(session) => session.has_absences().then_some(session),
        }
    }

    /// Keys in a tree, including writes of the current run.
    pub(crate) fn len(&self, store: &Store, tree: TreeId) -> u64 {
        match self {
            Self::Masstree(_) | Self::Mercury(_) | Self::Cdds(_) => store.len(tree),
            Self::Minuet(session) => Transactional::len(session, tree),
            Self::Reference(session) => Transactional::len(session, tree),
        }
    }

    /// Keys that divide a tree of an ordered engine into parts; see [`Ordered::boundaries`].
    pub(crate) fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        match self {
            Self::Masstree(session) => session.boundaries(tree, parts),
            Self::Mercury(_) => Vec::new(),
            Self::Cdds(session) => session.boundaries(tree, parts),
            Self::Minuet(session) => session.boundaries(tree, parts),
            Self::Reference(session) => session.boundaries(tree, parts),
        }
    }

    /// The session as one that moves values, if the engine can.
    pub(crate) fn emptying(&mut self) -> Option<EmptyingSession<'_>> {
        match self {
            Self::Masstree(session) => Some(EmptyingSession::Masstree(session)),
            Self::Mercury(session) => Some(EmptyingSession::Mercury(session)),
            Self::Cdds(_) | Self::Minuet(_) | Self::Reference(_) => None,
        }
    }

    /// Why an update or a restore since the last call was refused, if one was: it changed nothing.
    #[inline]
    pub(crate) fn take_refusal(&mut self) -> Option<Refused> {
        match self {
            Self::Cdds(session) => session.take_refusal(),
            _ => None,
        }
    }

    pub(crate) fn listing(&mut self) -> Listing<'_> {
        match self {
            Self::Masstree(session) => Listing::Ordered(OrderedSession::Masstree(session)),
            Self::Mercury(session) => Listing::Walking(WalkingSession(session)),
            Self::Cdds(session) => Listing::Ordered(OrderedSession::Cdds(session)),
            Self::Minuet(session) => Listing::Ordered(OrderedSession::Minuet(session)),
            Self::Reference(session) => Listing::Ordered(OrderedSession::Reference(session)),
        }
    }
}

impl OrderedSession<'_> {
    /// See [`Ordered::scan_all`].
    pub(crate) fn scan_all(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        match self {
            Self::Masstree(session) => session.scan_all(tree, from, direction, visit),
            Self::Cdds(session) => session.scan_all(tree, from, direction, visit),
            Self::Minuet(session) => session.scan_all(tree, from, direction, visit),
            Self::Reference(session) => session.scan_all(tree, from, direction, visit),
        }
    }
}

impl OrderedSession<'_> {
    /// [`Self::scan_all`] in a snapshot; see [`OrderedAt::scan_at`].
    pub(crate) fn scan_all_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        match self {
            Self::Masstree(session) => session.scan_at(at, tree, from, direction, visit),
            Self::Cdds(session) => session.scan_at(at, tree, from, direction, visit),
            Self::Minuet(session) => session.scan_at(at, tree, from, direction, visit),
            Self::Reference(session) => session.scan_at(at, tree, from, direction, visit),
        }
    }
}

impl WalkingSession<'_> {
    /// See [`WalkAt::walk_at`].
    pub(crate) fn walk_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        cursor: u64,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> u64 {
        self.0.walk_at(at, tree, cursor, visit)
    }

    /// See [`Walk::walk`].
    pub(crate) fn walk(
        &mut self,
        tree: TreeId,
        cursor: u64,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> u64 {
        self.0.walk(tree, cursor, visit)
    }
}
