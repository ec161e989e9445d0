//! What is measured: engines of this project through their contract, and peers from the registry.
//!
//! An engine stores the server's value type, version included; its values are read byte by byte. A
//! peer stores a `u64`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::str::FromStr;
use std::sync::{Arc, RwLock};

use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook,
    Ordered, ReferenceEngine, TreeId, ValueRef,
};

/// The targets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetName {
    Masstree,
    Reference,
    BTreeLock,
    MasstreeCrate,
    SkipList,
}

impl TargetName {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Masstree, "pando-masstree"),
        (Self::Reference, "pando-reference"),
        (Self::BTreeLock, "btree-lock"),
        (Self::MasstreeCrate, "masstree-crate"),
        (Self::SkipList, "crossbeam-skiplist"),
    ];
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(target, _)| target == self)
            .map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for TargetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<_> = Self::ALL.iter().map(|(_, name)| *name).collect();
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(target, _)| *target)
            .ok_or_else(|| format!("no target {text}; there are {}", names.join(", ")))
    }
}

/// A map under measurement, shared by threads.
pub(crate) trait Target: Sync {
    /// What one thread works through.
    type Worker<'t>: Worker
    where
        Self: 't;

    fn new() -> Self;
    fn worker(&self) -> Self::Worker<'_>;
}

/// One thread's access. Sums of values and key lengths are returned so that nothing is optimised
/// away.
pub(crate) trait Worker {
    fn put(&mut self, key: &[u8], value: u64);
    fn get(&mut self, key: &[u8]) -> Option<u64>;

    /// Sum of the values of `keys`; interleaved where the target can.
    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        keys.iter()
            .fold(0, |sum, key| sum.wrapping_add(self.get(key).unwrap_or(0)))
    }

    /// Sum over up to `limit` entries from `start` on: values and key lengths.
    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> u64;
}

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
        let engine = E::new(Arc::new(EpochClock::starting_at(LogEpoch(1))));
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

/// Operations between two pins, as a server's turn has them.
impl<S: Ordered> Worker for PandoWorker<S> {
    fn put(&mut self, key: &[u8], value: u64) {
        let bytes = value.to_le_bytes();
        self.session
            .update(Key::new(self.tree, key), &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::Bytes(&bytes)))
            });
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.session
            .get(Key::new(self.tree, key), |value| value.map(number))
    }

    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        let mut named = [Key::new(self.tree, b""); 64];
        for (named, key) in named.iter_mut().zip(keys) {
            named.bytes = key;
        }
        let mut sum = 0_u64;
        self.session.get_many(&named[..keys.len()], |_, value| {
            sum = sum.wrapping_add(value.map_or(0, number));
        });
        sum
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> u64 {
        let (mut sum, mut left) = (0_u64, limit);
        self.session.scan(
            self.tree,
            Bound::Included(start),
            direction,
            |key, value| {
                sum = sum
                    .wrapping_add(number(value))
                    .wrapping_add(key.len() as u64);
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        sum
    }
}

pub(crate) type Masstree = Pando<pando_masstree::Masstree>;
pub(crate) type Reference = Pando<ReferenceEngine>;

/// The standard library's ordered map behind a reader-writer lock.
pub(crate) struct BTreeLock(RwLock<BTreeMap<Box<[u8]>, u64>>);

impl Target for BTreeLock {
    type Worker<'t> = &'t BTreeLock;

    fn new() -> Self {
        Self(RwLock::default())
    }

    fn worker(&self) -> &BTreeLock {
        self
    }
}

impl Worker for &BTreeLock {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0
            .write()
            .expect("no panic under the lock")
            .insert(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0
            .read()
            .expect("no panic under the lock")
            .get(key)
            .copied()
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> u64 {
        let map = self.0.read().expect("no panic under the lock");
        let from = Bound::Included(start);
        let sum = |sum: u64, (bytes, value): (usize, u64)| {
            sum.wrapping_add(value).wrapping_add(bytes as u64)
        };
        match direction {
            Direction::Forward => map
                .range::<[u8], _>((from, Bound::Unbounded))
                .take(limit)
                .map(|(key, value)| (key.len(), *value))
                .fold(0, sum),
            Direction::Backward => map
                .range::<[u8], _>((Bound::Unbounded, from))
                .rev()
                .take(limit)
                .map(|(key, value)| (key.len(), *value))
                .fold(0, sum),
        }
    }
}

/// The crate `masstree` with its inline values.
pub(crate) struct MasstreeCrate(masstree::MassTree<u64>);

pub(crate) struct MasstreeWorker<'t> {
    tree: &'t masstree::MassTree<u64>,
    guard: seize::LocalGuard<'t>,
}

impl Target for MasstreeCrate {
    type Worker<'t> = MasstreeWorker<'t>;

    fn new() -> Self {
        Self(masstree::MassTree::new())
    }

    fn worker(&self) -> MasstreeWorker<'_> {
        MasstreeWorker {
            tree: &self.0,
            guard: self.0.guard(),
        }
    }
}

impl Worker for MasstreeWorker<'_> {
    fn put(&mut self, key: &[u8], value: u64) {
        self.tree.insert_with_guard(key, value, &self.guard);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.tree.get_with_guard(key, &self.guard)
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> u64 {
        use masstree::RangeBound::{Included, Unbounded};
        let (mut sum, mut left) = (0_u64, limit);
        let visit = |key: &[u8], value: u64| {
            sum = sum.wrapping_add(value).wrapping_add(key.len() as u64);
            left -= 1;
            left > 0
        };
        match direction {
            Direction::Forward => {
                self.tree
                    .scan_intra_leaf_batch(Included(start), Unbounded, visit, &self.guard);
            }
            Direction::Backward => {
                self.tree
                    .scan_rev_batch(Unbounded, Included(start), visit, &self.guard);
            }
        }
        sum
    }
}

/// The crate `crossbeam-skiplist`.
pub(crate) struct SkipList(crossbeam_skiplist::SkipMap<Box<[u8]>, u64>);

impl Target for SkipList {
    type Worker<'t> = &'t SkipList;

    fn new() -> Self {
        Self(crossbeam_skiplist::SkipMap::new())
    }

    fn worker(&self) -> &SkipList {
        self
    }
}

impl Worker for &SkipList {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.insert(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.get(key).map(|entry| *entry.value())
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> u64 {
        let from = Bound::Included(start);
        let sum = |sum: u64, entry: crossbeam_skiplist::map::Entry<'_, Box<[u8]>, u64>| {
            sum.wrapping_add(*entry.value())
                .wrapping_add(entry.key().len() as u64)
        };
        match direction {
            Direction::Forward => self
                .0
                .range::<[u8], _>((from, Bound::Unbounded))
                .take(limit)
                .fold(0, sum),
            Direction::Backward => self
                .0
                .range::<[u8], _>((Bound::Unbounded, from))
                .rev()
                .take(limit)
                .fold(0, sum),
        }
    }
}
