//! Ordered peers: a locked `BTreeMap` and the trees and skip lists of the registry.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::RwLock;

use pando_engine::Direction;

use super::{Target, Worker, key_figure};

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

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        let map = self.0.read().expect("no panic under the lock");
        let from = Bound::Included(start);
        let sum = |sum: u64, (key, value): (u64, u64)| sum.wrapping_add(value).wrapping_add(key);
        Some(match direction {
            Direction::Forward => map
                .range::<[u8], _>((from, Bound::Unbounded))
                .take(limit)
                .map(|(key, value)| (key_figure(key), *value))
                .fold(0, sum),
            Direction::Backward => map
                .range::<[u8], _>((Bound::Unbounded, from))
                .rev()
                .take(limit)
                .map(|(key, value)| (key_figure(key), *value))
                .fold(0, sum),
        })
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

    fn remove(&mut self, key: &[u8]) {
        // Its removal can fail by a bound of its own; what is left is seen at the end.
        let _ = self.tree.remove_with_guard(key, &self.guard);
    }

    fn unpin(&mut self) {
        // What was removed is reclaimed when guards end.
        self.guard = self.tree.guard();
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        use masstree::RangeBound::{Included, Unbounded};
        let (mut sum, mut left) = (0_u64, limit);
        let visit = |key: &[u8], value: u64| {
            sum = sum.wrapping_add(value).wrapping_add(key_figure(key));
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
        Some(sum)
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

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        let from = Bound::Included(start);
        let sum = |sum: u64, entry: crossbeam_skiplist::map::Entry<'_, Box<[u8]>, u64>| {
            sum.wrapping_add(*entry.value())
                .wrapping_add(key_figure(entry.key()))
        };
        Some(match direction {
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
        })
    }
}

/// The tree of the crate `scc`.
pub(crate) struct SccTree(scc::TreeIndex<Box<[u8]>, u64>);

impl Target for SccTree {
    type Worker<'t> = &'t SccTree;

    fn new() -> Self {
        Self(scc::TreeIndex::new())
    }

    fn worker(&self) -> &SccTree {
        self
    }
}

impl Worker for &SccTree {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.upsert_sync(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.peek_with(key, |_, value| *value)
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        let guard = scc::Guard::new();
        let from = Bound::Included(start);
        let sum = |sum: u64, (key, value): (u64, u64)| sum.wrapping_add(value).wrapping_add(key);
        Some(match direction {
            Direction::Forward => self
                .0
                .range::<[u8], _>((from, Bound::Unbounded), &guard)
                .take(limit)
                .map(|(key, value)| (key_figure(key), *value))
                .fold(0, sum),
            Direction::Backward => self
                .0
                .range::<[u8], _>((Bound::Unbounded, from), &guard)
                .rev()
                .take(limit)
                .map(|(key, value)| (key_figure(key), *value))
                .fold(0, sum),
        })
    }
}

/// The adaptive radix tree of the crate `congee`: keys of 8 bytes only.
pub(crate) struct CongeeTree(congee::U64Congee<usize>);

impl Target for CongeeTree {
    type Worker<'t> = &'t CongeeTree;

    fn new() -> Self {
        Self(congee::U64Congee::new())
    }

    fn worker(&self) -> &CongeeTree {
        self
    }
}

fn eight_bytes(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("keys of 8 bytes (TargetName::takes)"))
}

impl Worker for &CongeeTree {
    fn put(&mut self, key: &[u8], value: u64) {
        let guard = congee::epoch::pin();
        self.0
            .insert(eight_bytes(key), value as usize, &guard)
            .expect("memory");
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let guard = congee::epoch::pin();
        self.0
            .get(eight_bytes(key), &guard)
            .map(|value| value as u64)
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        if direction == Direction::Backward {
            return None;
        }
        let guard = congee::epoch::pin();
        let mut found = vec![([0; 8], 0); limit];
        let count = self
            .0
            .range(eight_bytes(start), u64::MAX, &mut found, &guard);
        Some(found[..count].iter().fold(0, |sum, (key, value)| {
            sum.wrapping_add(*value as u64)
                .wrapping_add(key_figure(key))
        }))
    }
}
