//! Engines of this project, through their contract.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook,
    Ordered, OrderedAt, Point, ReadAt, ReferenceEngine, Snapshot, Snapshots, TreeId, ValueRef,
};

use pando_masstree::Pages;
use pando_minuet::engine::Options;

use super::{Target, Worker, key_figure};
use crate::locking::{BucketLocks, Locking, Mutexes, Optimistic, RwLocks};

/// An engine of this project.
pub(crate) struct Pando<E> {
    engine: Arc<E>,
    tree: TreeId,
}

pub(crate) struct PandoWorker<S> {
    session: S,
    tree: TreeId,
}

fn number(value: ValueRef<'_>) -> u64 {
    let BodyRef::String(string) = value.body else {
        return 0;
    };
    let mut bytes = [0; 8];
    bytes.copy_from_slice(string.as_flat().unwrap_or(&[0; 8]));
    u64::from_le_bytes(bytes)
}

impl<E: Engine> Target for Pando<E>
where
    E::Session: Ordered,
{
    type Worker<'t> = PandoWorker<E::Session>;

    fn new() -> Self {
        let engine = E::open(Arc::new(EpochClock::self_driven()), E::Options::default());
        let engine = engine.expect("default options suit everywhere");
        let tree = engine.create_tree();
        Self { engine, tree }
    }

    fn worker(&self) -> PandoWorker<E::Session> {
        let session = self.engine.session().expect("fewer threads than sessions");
        PandoWorker {
            session,
            tree: self.tree,
        }
    }

    fn count_of(&self, gauge: &str) -> Option<f64> {
        let mut count = None;
        self.engine.gauges(&mut |it| {
            if it.name == gauge {
                count = Some(it.value);
            }
        });
        count
    }
}

/// Operations outside a pin take one of their own.
impl<S: Point> PandoWorker<S> {
    fn put_value(&mut self, key: &[u8], value: u64) {
        self.put_bytes(key, &value.to_le_bytes());
    }

    /// Puts bytes as they are.
    pub(crate) fn put_bytes(&mut self, key: &[u8], bytes: &[u8]) {
        self.session
            .update(Key::new(self.tree, key), &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(bytes)))
            });
    }

    /// Puts a batch, the descents interleaved.
    pub(crate) fn put_batch(&mut self, pairs: &[(&[u8], &[u8])]) {
        let mut named = [Key::new(self.tree, b""); 64];
        for (named, (key, _)) in named.iter_mut().zip(pairs) {
            named.bytes = key;
        }
        self.session
            .update_many(&named[..pairs.len()], &mut NoHook, |index, _| {
                Decision::Write(NewValue::new(Body::string(pairs[index].1)))
            });
    }

    /// Shows the bytes of a string to `read`.
    pub(crate) fn read_bytes<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.session.get(Key::new(self.tree, key), |value| {
            let BodyRef::String(string) = value?.body else {
                return None;
            };
            string.as_flat().map(read)
        })
    }

    fn remove_key(&mut self, key: &[u8]) {
        self.session
            .update(Key::new(self.tree, key), &mut NoHook, |_| Decision::Remove);
    }

    fn get_value(&mut self, key: &[u8]) -> Option<u64> {
        self.session
            .get(Key::new(self.tree, key), |value| value.map(number))
    }
}

/// A batch of keys of a tree.
fn named<'k>(tree: TreeId, keys: &[&'k [u8]]) -> [Key<'k>; 64] {
    let mut named = [Key::new(tree, b""); 64];
    for (named, key) in named.iter_mut().zip(keys) {
        named.bytes = key;
    }
    named
}

/// The sum over the numbers of `keys`, their descents interleaved.
fn get_values(session: &mut impl Point, tree: TreeId, keys: &[&[u8]]) -> u64 {
    let mut sum = 0_u64;
    session.get_many(&named(tree, keys)[..keys.len()], |_, value| {
        sum = sum.wrapping_add(value.map_or(0, number));
    });
    sum
}

impl<S: Ordered> Worker for PandoWorker<S> {
    fn put(&mut self, key: &[u8], value: u64) {
        self.put_value(key, value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.get_value(key)
    }

    fn remove(&mut self, key: &[u8]) {
        self.remove_key(key);
    }

    fn pin(&mut self) {
        self.session.pin();
    }

    fn unpin(&mut self) {
        self.session.unpin();
    }

    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        get_values(&mut self.session, self.tree, keys)
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        let (mut sum, from) = (0, Bound::Included(start));
        let visit = summing(&mut sum, limit);
        self.session.scan(self.tree, from, direction, visit);
        Some(sum)
    }
}

/// Adds what up to `limit` entries are to a sum.
fn summing(sum: &mut u64, limit: usize) -> impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()> {
    let mut left = limit;
    move |key, value| {
        *sum = sum
            .wrapping_add(number(value))
            .wrapping_add(key_figure(key));
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

pub(crate) type Masstree = Pando<pando_masstree::Masstree>;

impl Masstree {
    /// An empty tree with options.
    pub(crate) fn with_options(options: pando_masstree::Options) -> Self {
        let clock = Arc::new(EpochClock::self_driven());
        let Ok(engine) = pando_masstree::Masstree::open(clock, options);
        let tree = engine.create_tree();
        Self { engine, tree }
    }
}

/// Masstree on ordinary pages.
pub(crate) struct MasstreeSmall(Masstree);

impl Target for MasstreeSmall {
    type Worker<'t> = <Masstree as Target>::Worker<'t>;

    fn new() -> Self {
        Self(Masstree::with_options(pando_masstree::Options {
            pages: Pages::Small,
            ..pando_masstree::Options::default()
        }))
    }

    fn worker(&self) -> Self::Worker<'_> {
        self.0.worker()
    }
}

pub(crate) type Reference = Pando<ReferenceEngine>;

pub(crate) type Minuet = Pando<pando_minuet::engine::Minuet>;

/// The same, read at a snapshot that the first read makes.
pub(crate) struct MinuetPast {
    pando: Minuet,
    clock: Arc<EpochClock>,
    at: OnceLock<Snapshot>,
}

pub(crate) struct PastWorker<'t> {
    worker: <Minuet as Target>::Worker<'t>,
    past: &'t MinuetPast,
}

impl Target for MinuetPast {
    type Worker<'t> = PastWorker<'t>;

    fn new() -> Self {
        let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let Ok(engine) = pando_minuet::engine::Minuet::open(Arc::clone(&clock), Options::default());
        let tree = engine.create_tree();
        Self {
            pando: Pando { engine, tree },
            clock,
            at: OnceLock::new(),
        }
    }

    fn worker(&self) -> PastWorker<'_> {
        PastWorker {
            worker: self.pando.worker(),
            past: self,
        }
    }
}

impl MinuetPast {
    fn at(&self) -> Snapshot {
        *self.at.get_or_init(|| {
            let frozen = self.pando.engine.freeze(self.clock.end_all());
            frozen.expect("the only snapshot")
        })
    }
}

impl Worker for PastWorker<'_> {
    fn put(&mut self, key: &[u8], value: u64) {
        self.worker.put(key, value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let PandoWorker { session, tree } = &mut self.worker;
        let key = Key::new(*tree, key);
        session.get_at(self.past.at(), key, |value| value.map(number))
    }

    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        let PandoWorker { session, tree } = &mut self.worker;
        let (at, mut sum) = (self.past.at(), 0_u64);
        session.get_many_at(at, &named(*tree, keys)[..keys.len()], |_, value| {
            sum = sum.wrapping_add(value.map_or(0, number));
        });
        sum
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        let PandoWorker { session, tree } = &mut self.worker;
        let (mut sum, from) = (0, Bound::Included(start));
        let mut visit = summing(&mut sum, limit);
        let shown = move |key: &[u8], value: Option<ValueRef<'_>>| match value {
            Some(value) => visit(key, value),
            None => ControlFlow::Continue(()),
        };
        session.scan_at(self.past.at(), *tree, from, direction, shown);
        Some(sum)
    }
}

/// The hash engine with one of the kinds of locks that its paper compares.
pub(crate) struct Mercury<L> {
    pando: Pando<pando_mercury::Mercury>,
    locks: L,
}

/// A session of it.
pub(crate) struct HashWorker<'t, L> {
    session: pando_mercury::MercurySession,
    locks: &'t L,
    tree: TreeId,
}

impl<L: Locking> Target for Mercury<L> {
    type Worker<'t> = HashWorker<'t, L>;

    fn new() -> Self {
        let engine = pando_mercury::Mercury::new(Arc::new(EpochClock::self_driven()));
        let tree = engine.create_tree();
        Self {
            pando: Pando { engine, tree },
            locks: L::default(),
        }
    }

    fn worker(&self) -> HashWorker<'_, L> {
        let session = self.pando.engine.session();
        HashWorker {
            session: session.expect("fewer threads than sessions"),
            locks: &self.locks,
            tree: self.pando.tree,
        }
    }
}

impl<L: Locking> Worker for HashWorker<'_, L> {
    fn put(&mut self, key: &[u8], value: u64) {
        let (key, bytes) = (Key::new(self.tree, key), value.to_le_bytes());
        let write = || Decision::Write(NewValue::new(Body::string(&bytes)));
        self.locks.update(&mut self.session, key, write);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let key = Key::new(self.tree, key);
        let read = |value: Option<ValueRef<'_>>| value.map(number);
        self.locks.get(&mut self.session, key, read)
    }

    fn remove(&mut self, key: &[u8]) {
        let key = Key::new(self.tree, key);
        self.locks
            .update(&mut self.session, key, || Decision::Remove);
    }

    fn pin(&mut self) {
        self.session.pin();
    }

    fn unpin(&mut self) {
        self.session.unpin();
    }

    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        if L::INTERLEAVED {
            return get_values(&mut self.session, self.tree, keys);
        }
        keys.iter().fold(0, |sum, key| {
            sum.wrapping_add(self.get(key).unwrap_or_default())
        })
    }
}

/// Reads take no lock.
pub(crate) type MercuryOptimistic = Mercury<Optimistic>;
/// The lock in the bucket's line.
pub(crate) type MercuryBucket = Mercury<BucketLocks>;
/// Striped mutexes.
pub(crate) type MercuryMutex = Mercury<Mutexes>;
/// Striped reader-writer locks.
pub(crate) type MercuryRwLock = Mercury<RwLocks>;
