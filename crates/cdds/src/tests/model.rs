//! Random changes, snapshots, rollbacks and restarts beside ordered maps.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use fastrand::Rng;
use pando_pmem::{Pool, Shape, Simulated};

use super::{create, open};
use crate::Direction;
use crate::limits::{ENTRIES, node_bytes};
use crate::tree::{Error, Snapshot, Tree};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct World {
    tree: Option<Tree<Simulated>>,
    rng: Rng,
    keys: usize,
    present: Map,
    committed: Map,
    snapshots: Vec<(Snapshot, Map)>,
}

impl World {
    fn new(seed: u64, keys: usize, bytes: u64) -> Self {
        Self {
            tree: Some(create(Simulated::new(bytes))),
            rng: Rng::with_seed(seed),
            keys,
            present: Map::new(),
            committed: Map::new(),
            snapshots: Vec::new(),
        }
    }

    fn tree(&mut self) -> &mut Tree<Simulated> {
        self.tree.as_mut().expect("it is open")
    }

    /// Keys that share prefixes of their first eight bytes, and some that are such prefixes. A
    /// third share more than the bytes that a node has of a separator.
    fn key(&mut self) -> Vec<u8> {
        let number = self.rng.usize(..self.keys);
        let common = if number.is_multiple_of(3) { 36 } else { 0 };
        let (common, behind) = ("p".repeat(common), "x".repeat(number / 40));
        format!("{common}{:03}{behind}", number % 40).into_bytes()
    }

    fn put(&mut self) {
        let key = self.key();
        let value = vec![self.rng.u8(..); self.rng.usize(..40)];
        match self.tree().put(&key, &value) {
            Ok(()) => drop(self.present.insert(key, value)),
            Err(Error::Full(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self) {
        let key = self.key();
        let was_there = self.tree().remove(&key).expect("a removal needs no room");
        assert_eq!(was_there, self.present.remove(&key).is_some());
    }

    /// Some changes as a group, which stay or are taken back: those that found no room always are.
    fn group(&mut self) {
        let before = self.present.clone();
        self.tree().begin_group();
        let mut refused = false;
        for _ in 0..self.rng.usize(..12) {
            if self.rng.u8(..3) == 0 {
                self.remove();
            } else {
                let key = self.key();
                let value = vec![self.rng.u8(..); self.rng.usize(..40)];
                match self.tree().put(&key, &value) {
                    Ok(()) => drop(self.present.insert(key, value)),
                    Err(Error::Full(_)) => refused = true,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        if refused || self.rng.bool() {
            self.tree().take_back().expect("it needs no room");
            self.present = before;
        } else {
            self.tree().end_group().expect("it needs no room");
        }
    }

    fn commit(&mut self) {
        self.tree().commit().expect("memory takes it");
        self.committed = self.present.clone();
    }

    fn retain(&mut self) {
        match self.tree().retain() {
            Ok(snapshot) => {
                self.committed = self.present.clone();
                self.snapshots.retain(|(other, _)| *other != snapshot);
                self.snapshots.push((snapshot, self.present.clone()));
            }
            Err(Error::TooManySnapshots) => self.committed = self.present.clone(),
            Err(error) => panic!("{error}"),
        }
    }

    fn release(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let index = self.rng.usize(..self.snapshots.len());
        let (snapshot, _) = self.snapshots.remove(index);
        self.tree().release(snapshot).expect("it is there");
        let gone = self.tree().get_at(snapshot, b"x");
        assert!(matches!(gone, Err(Error::NoSnapshot { .. })));
    }

    fn roll_back(&mut self) {
        let Some((snapshot, then)) = self.snapshots.last().cloned() else {
            return;
        };
        if let Some((older, _)) = self.snapshots.first().cloned()
            && older != snapshot
        {
            let refused = self.tree().roll_back(older);
            assert!(matches!(refused, Err(Error::NewerSnapshot { .. })));
        }
        self.tree().roll_back(snapshot).expect("memory takes it");
        (self.present, self.committed) = (then.clone(), then);
    }

    /// What was not committed is lost.
    fn restart(&mut self) {
        let tree = self.tree.take().expect("it is open");
        let words = tree.pool.memory().words();
        drop(tree);
        self.tree = Some(open(Simulated::from(words)));
        self.present = self.committed.clone();
        let found: Vec<_> = self.tree().snapshots().collect();
        let kept: Vec<_> = self
            .snapshots
            .iter()
            .map(|(snapshot, _)| *snapshot)
            .collect();
        assert_eq!(found, kept);
    }

    fn check(&mut self) {
        let (from, present) = (self.key(), self.present.clone());
        let from = match self.rng.u8(..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(&from[..]),
            _ => Bound::Excluded(&from[..]),
        };
        let tree = self.tree.as_ref().expect("it is open");
        for (snapshot, map) in &self.snapshots {
            assert_eq!(
                scan(tree, Some(*snapshot), Bound::Unbounded, Direction::Forward),
                *map
            );
            for (key, value) in map {
                assert_eq!(tree.get_at(*snapshot, key).unwrap(), Some(&value[..]));
            }
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let range = match direction {
                Direction::Forward => (from, Bound::Unbounded),
                Direction::Backward => (Bound::Unbounded, from),
            };
            let expected = present.range::<[u8], _>(range);
            let expected: Map = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(scan(tree, None, from, direction), expected, "{direction:?}");
        }
        assert_eq!(tree.get(b"nosuch").unwrap(), None);
    }
}

/// What a scan shows, in the order that it must have.
fn scan(
    tree: &Tree<Simulated>,
    at: Option<Snapshot>,
    from: Bound<&[u8]>,
    direction: Direction,
) -> Map {
    let (mut map, mut last) = (Map::new(), None::<Vec<u8>>);
    let visit = |key: &[u8], value: &[u8]| {
        if let Some(last) = &last {
            let ascends = last.as_slice() < key;
            assert_eq!(ascends, direction == Direction::Forward, "out of order");
        }
        last = Some(key.to_vec());
        map.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    match at {
        None => tree.scan(from, direction, visit),
        Some(at) => tree.scan_at(at, from, direction, visit),
    }
    .expect("nothing is damaged");
    map
}

fn run(seed: u64, keys: usize, bytes: u64, steps: usize) -> usize {
    let mut world = World::new(seed, keys, bytes);
    let grows = world.rng.u8(2..6);
    for step in 0..steps {
        match world.rng.u8(..100) {
            0..4 => world.commit(),
            4..6 => world.retain(),
            6..8 => world.release(),
            8 => world.restart(),
            9 if world.rng.bool() => world.roll_back(),
            10..14 => world.check(),
            14..20 => world.group(),
            die if die % 6 < grows => world.put(),
            _ => world.remove(),
        }
        if step % 16 == 0 && bytes > 1 << 17 {
            world
                .tree()
                .check()
                .unwrap_or_else(|disorder| panic!("{seed} {step}: {disorder}"));
        }
    }
    world.check();
    world.present.len()
}

#[test]
fn random_changes_are_those_of_the_model() {
    for seed in 0..12 {
        run(seed, 300, 1 << 19, 1000);
    }
}

/// Where there is no room, puts fail and nothing else does.
#[test]
fn a_full_pool_refuses_puts_alone() {
    for seed in 0..6 {
        let keys = run(seed, 4000, 1 << 16, 1200);
        assert!(keys > 0, "something fits");
    }
}

#[test]
fn a_tree_grows_and_shrinks_by_levels() {
    let mut tree = create(Simulated::new(1 << 22));
    for number in 0..3000_u32 {
        tree.put(&number.to_be_bytes(), b"").unwrap();
        if number % 50 == 0 {
            tree.commit().unwrap();
        }
    }
    let report = tree.check().unwrap();
    assert_eq!(report.keys, 3000);
    // Two live entries in a node at least: CDDS' bound of the height.
    assert!((6..=12).contains(&report.height), "{report:?}");
    for number in 0..3000_u32 {
        assert!(tree.remove(&number.to_be_bytes()).unwrap());
        if number % 50 == 0 {
            tree.commit().unwrap();
        }
    }
    let report = tree.check().unwrap();
    assert_eq!((report.keys, report.height), (0, 1));
}

/// A tree in a pool that was nine tenths full, of which every fourth pair is left; how many there
/// were.
fn thinned() -> (Tree<Simulated>, u32) {
    // Nodes do not move; of this size they are few.
    let shape = Shape {
        node_bytes: node_bytes(ENTRIES),
        chunk_bytes: 32768,
    };
    let pool = Pool::create(Simulated::new(4 << 20), shape).expect("a pool");
    let mut tree = Tree::open(pool.into()).expect("a tree");
    let mut count = 0_u32;
    let tally = Arc::clone(tree.allocator.tally());
    while tally.taken() < tally.bytes_max() / 10 * 9 {
        tree.put(&count.to_be_bytes(), &[1; 60]).unwrap();
        count += 1;
        if count.is_multiple_of(50) {
            tree.commit().unwrap();
        }
    }
    for number in (0..count).filter(|number| number % 4 != 0) {
        assert!(tree.remove(&number.to_be_bytes()).unwrap());
        if number % 50 == 1 {
            tree.commit().unwrap();
        }
    }
    tree.commit().unwrap();
    (tree, count)
}

/// What was left of them is there, and nothing else but so many others.
fn check_thinned(tree: &Tree<Simulated>, count: u32, others: u32) {
    let report = tree.check().unwrap();
    assert_eq!(report.keys, u64::from(count.div_ceil(4) + others));
    for number in 0..count {
        let is_there = number % 4 == 0;
        let value = tree.get(&number.to_be_bytes()).unwrap();
        assert_eq!(value, is_there.then_some(&[1; 60][..]), "{number}");
    }
}

/// What is free in blocks of one size becomes room for another, and nothing else changes.
#[test]
fn room_is_made_for_another_size() {
    let (mut tree, count) = thinned();
    let key = |number: u32| number.to_be_bytes();
    let large = [2; 1500];
    let (mut puts, mut calls) = (0, 0);
    while puts < 1200 {
        if tree.put(&key(1_000_000 + puts), &large).is_ok() {
            puts += 1;
        } else {
            tree.make_room(large.len(), calls).unwrap();
            tree.commit().unwrap();
            calls += 1;
            assert!(calls < 1000, "there is room: {puts} puts");
        }
    }
    assert!(calls > 10, "there was room without: {calls}");
    check_thinned(&tree, count, puts);
    let kept = tree.retain().unwrap();
    assert!(
        !tree.make_room(1, 1).unwrap(),
        "a snapshot may see every block"
    );
    tree.release(kept).unwrap();
}

/// What is free in pieces becomes room for what wants neighbouring chunks: a quarter of the pool.
#[test]
fn room_is_made_for_a_large_value() {
    let (mut tree, count) = thinned();
    let (large, mut calls) = (vec![2; 1 << 20], 0);
    while tree.put(b"large", &large).is_err() {
        tree.make_room(large.len() + 100, calls).unwrap();
        tree.commit().unwrap();
        // Others are put meanwhile, and do not take what was emptied.
        tree.put(b"small", &[3; 60]).unwrap();
        calls += 1;
        assert!(calls < 300, "there is room");
    }
    tree.commit().unwrap();
    assert_eq!(tree.get(b"large").unwrap(), Some(&large[..]));
    assert!(calls > 30, "there was room without: {calls}");
    check_thinned(&tree, count, 2);
}
