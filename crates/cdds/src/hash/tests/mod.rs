//! The table beside maps; its crashes are tried with the tree's (`tests/crashes.rs`).

mod beside;

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use pando_pmem::{Pool, PoolError, Shape, Simulated};

use super::directory::{address, array_of, pages};
use super::{Table, node_bytes};
use crate::tree::{Error, Snapshot, Tree};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn shape(slots: u64) -> Shape {
    Shape {
        node_bytes: node_bytes(slots),
        chunk_bytes: 4096,
    }
}

fn create(bytes: u64, slots: u64) -> Table<Simulated> {
    let pool = Pool::create(Simulated::new(bytes), shape(slots)).expect("a pool");
    Table::open(Arc::new(pool)).expect("a table")
}

fn contents(table: &Table<Simulated>, at: Option<Snapshot>) -> Map {
    let mut map = Map::new();
    let seen = table.for_each(at, |key, value| {
        assert_eq!(
            map.insert(key.to_vec(), value.to_vec()),
            None,
            "a key twice"
        );
    });
    seen.expect("nothing is damaged");
    map
}

struct World {
    table: Table<Simulated>,
    slots: u64,
    present: Map,
    committed: Map,
    snapshots: Vec<(Snapshot, Map)>,
}

impl World {
    fn put(&mut self, random: &mut Rng, keys: u32) {
        let key = format!("key {}", random.u32(..keys)).into_bytes();
        let value = vec![random.u8(..); random.usize(..40)];
        match self.table.put(&key, &value) {
            Ok(()) => drop(self.present.insert(key, value)),
            Err(Error::Full(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self, random: &mut Rng, keys: u32) {
        let key = format!("key {}", random.u32(..keys)).into_bytes();
        let was_there = self.table.remove(&key).expect("a removal needs no room");
        assert_eq!(was_there, self.present.remove(&key).is_some());
    }

    fn retain(&mut self) {
        if self.snapshots.len() < 4 {
            let snapshot = self.table.retain().expect("there is a place");
            self.snapshots.retain(|(other, _)| *other != snapshot);
            self.snapshots.push((snapshot, self.present.clone()));
            self.committed = self.present.clone();
        }
    }

    fn roll_back(&mut self) {
        if let Some((snapshot, then)) = self.snapshots.last().cloned() {
            self.table.roll_back(snapshot).expect("memory takes it");
            (self.present, self.committed) = (then.clone(), then);
        }
    }

    /// What was not committed is lost; what it left is cleaned up or not.
    fn restart(&mut self, cleans: bool) {
        let words = self.table.pool().memory().words();
        let pool = Pool::open(Simulated::from(words), node_bytes(self.slots)).expect("a pool");
        self.table = Table::open(Arc::new(pool)).expect("a table");
        self.present = self.committed.clone();
        if cleans {
            while self.table.clean(3).expect("nothing is damaged") {}
            self.table.put(b"an epoch", b"").expect("there is room");
            self.table.remove(b"an epoch").expect("it is there");
            self.table.commit().expect("memory takes it");
            assert_eq!(self.table.pool().voids(), [], "they are forgotten");
        }
    }

    fn check(&self) {
        for (at, map) in &self.snapshots {
            assert_eq!(contents(&self.table, Some(*at)), *map);
            for (key, value) in map.iter().take(20) {
                assert_eq!(self.table.get_at(*at, key).unwrap(), Some(&value[..]));
            }
        }
        assert_eq!(contents(&self.table, None), self.present);
        for (key, value) in self.present.iter().take(50) {
            assert_eq!(self.table.get(key).unwrap(), Some(&value[..]));
        }
        assert_eq!(self.table.get(b"nosuch").unwrap(), None);
    }
}

fn run(seed: u64, (slots, bytes): (u64, u64), keys: u32, steps: usize) -> World {
    let mut random = Rng::with_seed(seed);
    let mut world = World {
        table: create(bytes, slots),
        slots,
        present: Map::new(),
        committed: Map::new(),
        snapshots: Vec::new(),
    };
    let is_full = bytes < 1 << 18;
    for step in 0..steps {
        match random.u8(..100) {
            0..4 => {
                world.table.commit().expect("memory takes it");
                world.committed = world.present.clone();
            }
            4..6 => world.retain(),
            6..8 if !world.snapshots.is_empty() => {
                let index = random.usize(..world.snapshots.len());
                let (snapshot, _) = world.snapshots.remove(index);
                world.table.release(snapshot).expect("it is there");
            }
            8 => world.restart(random.bool() && !is_full),
            9 if random.bool() => world.roll_back(),
            10..12 => world.check(),
            die if die % 6 < 4 => world.put(&mut random, keys),
            _ => world.remove(&mut random, keys),
        }
        if step % 16 == 0 {
            let checked = world.table.check();
            checked.unwrap_or_else(|disorder| panic!("{seed} {step}: {disorder}"));
        }
    }
    world.check();
    world
}

#[test]
fn random_changes_are_those_of_the_model() {
    for seed in 0..4 {
        run(seed, (4, 1 << 19), 300, 1000);
        run(seed, (30, 1 << 20), 900, 1000);
    }
}

/// Where there is no room, puts fail and nothing else does (CH3 growth-can-wait).
#[test]
fn a_full_pool_refuses_puts_alone() {
    for seed in 0..3 {
        let world = run(seed, (5, 1 << 16), 4000, 1200);
        assert!(!world.present.is_empty(), "something fits");
    }
}

#[test]
fn chains_stay_short_while_a_table_grows_and_shorten_when_it_empties() {
    let mut table = create(8 << 20, 6);
    for number in 0..20_000_u32 {
        table.put(&number.to_be_bytes(), b"").unwrap();
        if number % 50 == 0 {
            table.commit().unwrap();
        }
    }
    let report = table.check().unwrap();
    assert_eq!(report.keys, 20_000);
    let (buckets, heads) = (report.nodes, table.directory.count());
    assert!(
        heads * 4 <= 20_000 + 64 && heads * 4 + 64 >= 20_000,
        "{heads}"
    );
    assert!(
        buckets < heads * 3 / 2,
        "{buckets} buckets of {heads} chains"
    );
    assert!(report.height < 8, "{report:?}");
    for number in 0..20_000_u32 {
        assert!(table.remove(&number.to_be_bytes()).unwrap());
        table.commit().unwrap();
    }
    let report = table.check().unwrap();
    assert_eq!(report.keys, 0);
    assert!(report.nodes <= heads + heads / 50, "{report:?} of {heads}");
}

/// Many versions of one key, each kept by a snapshot: a chain, which goes with them.
#[test]
fn versions_that_snapshots_keep_make_a_chain_that_goes_with_them() {
    let mut table = create(1 << 19, 4);
    for number in 0..24_u8 {
        table.put(b"key", &[number]).unwrap();
        table.retain().unwrap();
    }
    let kept: Vec<_> = table.snapshots().collect();
    for (number, at) in (0..24).zip(&kept) {
        assert_eq!(table.get_at(*at, b"key").unwrap(), Some(&[number][..]));
    }
    assert!(table.check().unwrap().height > 5, "a chain");
    for at in kept {
        table.release(at).unwrap();
    }
    for number in 0..24_u8 {
        table.put(b"key", &[number]).unwrap();
        table.commit().unwrap();
    }
    assert_eq!(table.check().unwrap().height, 1);
}

#[test]
fn a_tree_and_a_table_refuse_each_others_pools() {
    let pool = Pool::create(Simulated::new(1 << 17), shape(4)).expect("a pool");
    assert!(matches!(
        Tree::open(Arc::new(pool)),
        Err(Error::Entries { .. })
    ));
    let shape = Shape::with_nodes(crate::limits::node_bytes(5));
    let pool = Pool::create(Simulated::new(1 << 19), shape).expect("a pool");
    let words = pool.memory().words();
    assert!(matches!(
        Table::open(Arc::new(pool)),
        Err(Error::Entries { .. })
    ));
    let wanted = Table::<Simulated>::shape().node_bytes;
    let refused = Pool::open(Simulated::from(words), wanted);
    assert!(matches!(refused, Err(PoolError::OtherNodes { .. })));
}

#[test]
fn every_page_has_a_place_of_its_own() {
    let mut page = 0;
    for array in 0..6 {
        for place in 0..pages(array) {
            assert_eq!(array_of(page), (array, place));
            page += 1;
        }
    }
}

/// A key's bucket changes with a split only if it is the one that was split, and then to the new
/// one.
#[test]
fn a_split_moves_keys_of_one_bucket_alone() {
    let mut random = Rng::with_seed(1);
    for count in 1..300_u64 {
        let half = 1 << count.ilog2();
        for _ in 0..50 {
            let hash = random.u64(..);
            let (before, after) = (address(hash, count), address(hash, count + 1));
            assert!(before < count);
            assert!(after == before || (after == count && before == count - half));
        }
    }
}

/// Hashes are in pools: they never change.
#[test]
fn a_hash_is_the_same_for_ever_and_spreads() {
    let mut table = create(1 << 17, 4);
    let directory = Arc::get_mut(&mut table.directory).expect("no reader has it");
    directory.set_seed(7);
    let hashes = [directory.hash(b""), directory.hash(b"a key of pando")];
    assert_eq!(
        hashes,
        [5_519_984_433_205_144_243, 15_796_445_174_164_210_629]
    );
    let mut counts = [0; 64];
    for number in 0..64_000 {
        let key = format!("user{number:021}");
        counts[(directory.hash(key.as_bytes()) % 64) as usize] += 1;
    }
    assert!(
        counts.iter().all(|count| (800..1200).contains(count)),
        "{counts:?}"
    );
}
