//! Engines of this project, through their contract.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, NewValue, NoHook, Ordered, Point,
    ReferenceEngine, TreeId, ValueRef,
};

use pando_masstree::Pages;

use super::{Target, Worker, key_figure};
use crate::locking::{LockedSession, Locking, Locks};

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
        let engine = E::new(Arc::new(EpochClock::self_driven()));
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

/// The sum over the numbers of `keys`, their descents interleaved.
fn get_values(session: &mut impl Point, tree: TreeId, keys: &[&[u8]]) -> u64 {
    let mut named = [Key::new(tree, b""); 64];
    for (named, key) in named.iter_mut().zip(keys) {
        named.bytes = key;
    }
    let mut sum = 0_u64;
    session.get_many(&named[..keys.len()], |_, value| {
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
        let (mut sum, mut left) = (0_u64, limit);
        self.session.scan(
            self.tree,
            Bound::Included(start),
            direction,
            |key, value| {
                sum = sum
                    .wrapping_add(number(value))
                    .wrapping_add(key_figure(key));
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        Some(sum)
    }
}

pub(crate) type Masstree = Pando<pando_masstree::Masstree>;

impl Masstree {
    /// An empty tree with options.
    pub(crate) fn with_options(options: pando_masstree::Options) -> Self {
        let clock = Arc::new(EpochClock::self_driven());
        let engine = pando_masstree::Masstree::with_options(clock, options);
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

/// The hash engine with one of the kinds of locks that its paper compares: the discriminant of
/// [`Locking`].
pub(crate) struct Mercury<const LOCKING: u8> {
    pando: Pando<pando_mercury::Mercury>,
    locks: Arc<Locks>,
}

/// A session of it.
pub(crate) struct HashWorker {
    session: LockedSession,
    tree: TreeId,
}

impl<const LOCKING: u8> Target for Mercury<LOCKING> {
    type Worker<'t> = HashWorker;

    fn new() -> Self {
        let kinds = [
            Locking::Optimistic,
            Locking::Bucket,
            Locking::Mutex,
            Locking::RwLock,
        ];
        let engine = pando_mercury::Mercury::new(Arc::new(EpochClock::self_driven()));
        let tree = engine.create_tree();
        Self {
            pando: Pando { engine, tree },
            locks: Locks::new(kinds[LOCKING as usize]),
        }
    }

    fn worker(&self) -> HashWorker {
        let session = self.pando.engine.session();
        let session = session.expect("fewer threads than sessions");
        HashWorker {
            session: LockedSession::new(session, &self.locks),
            tree: self.pando.tree,
        }
    }
}

impl Worker for HashWorker {
    fn put(&mut self, key: &[u8], value: u64) {
        let key = Key::new(self.tree, key);
        self.session.put(key, &value.to_le_bytes());
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let key = Key::new(self.tree, key);
        self.session.get(key, |value| value.map(number))
    }

    fn remove(&mut self, key: &[u8]) {
        self.session.remove(Key::new(self.tree, key));
    }

    fn pin(&mut self) {
        self.session.session.pin();
    }

    fn unpin(&mut self) {
        self.session.session.unpin();
    }

    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        if self.session.is_optimistic() {
            return get_values(&mut self.session.session, self.tree, keys);
        }
        keys.iter().fold(0, |sum, key| {
            sum.wrapping_add(self.get(key).unwrap_or_default())
        })
    }
}

/// Reads take no lock.
pub(crate) type MercuryOptimistic = Mercury<0>;
/// The lock in the bucket's line.
pub(crate) type MercuryBucket = Mercury<1>;
/// Striped mutexes.
pub(crate) type MercuryMutex = Mercury<2>;
/// Striped reader-writer locks.
pub(crate) type MercuryRwLock = Mercury<3>;
