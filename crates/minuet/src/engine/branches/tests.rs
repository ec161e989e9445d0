//! Branches against maps, with keys and values of every kind.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NoHook, Ordered, OrderedAt,
    Point, Snapshot, Snapshots, TreeId, ValueRef,
};

use super::super::tests::{entry, maintain, open, put, used};
use super::{From, MinuetSession};
use crate::BranchId;
use crate::limits::DESCENDANTS_MAX;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn bytes_of(value: ValueRef<'_>) -> Vec<u8> {
    let BodyRef::String(string) = value.body else {
        panic!("strings were written");
    };
    let mut bytes = Vec::with_capacity(string.len());
    string.for_each_piece(0..string.len(), |piece| bytes.extend_from_slice(piece));
    bytes
}

fn map_of(session: &mut MinuetSession, at: Option<Snapshot>, tree: TreeId) -> Map {
    let mut map = Map::new();
    let mut visit = |key: &[u8], value: Option<ValueRef<'_>>| {
        map.extend(value.map(|value| (key.to_vec(), bytes_of(value))));
        ControlFlow::Continue(())
    };
    match at {
        Some(at) => session.scan_at(at, tree, Bound::Unbounded, Direction::Forward, visit),
        None => session.scan(tree, Bound::Unbounded, Direction::Forward, |key, value| {
            visit(key, Some(value))
        }),
    }
    map
}

fn remove(session: &mut MinuetSession, tree: TreeId, key: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |_| Decision::Remove);
}

/// The keys whose values differ, found in pieces.
fn differing(session: &mut MinuetSession, trees: [(TreeId, Option<Snapshot>); 2]) -> Vec<Vec<u8>> {
    let (mut keys, mut from) = (Vec::new(), Vec::new());
    loop {
        let found = session.differing(trees, b"", &from, 7);
        keys.extend(found.keys);
        match found.next {
            Some(next) => {
                assert!(next > from, "it goes on");
                from = next;
            }
            None => return keys,
        }
    }
}

fn check_difference(keys: &[Vec<u8>], one: &Map, other: &Map) {
    assert!(keys.is_sorted_by(|one, other| one < other));
    for key in one.keys().chain(other.keys()) {
        if one.get(key) != other.get(key) {
            assert!(keys.contains(key), "{:?}", key.escape_ascii().to_string());
        }
    }
}

struct Model {
    clock: Arc<EpochClock>,
    session: MinuetSession,
    random: fastrand::Rng,
    branches: Vec<(BranchId, TreeId, Map)>,
    snapshots: Vec<(Snapshot, TreeId, Map)>,
    made: usize,
}

impl Model {
    fn branch(&mut self) {
        let engine = Arc::clone(&self.session.engine);
        self.made += 1;
        let name = format!("b{}", self.made);
        let (from, like, map) = if self.random.bool() && !self.snapshots.is_empty() {
            let (snapshot, tree, map) = &self.snapshots[self.random.usize(..self.snapshots.len())];
            (From::Snapshot(*snapshot), *tree, map.clone())
        } else {
            let (branch, tree, map) = &self.branches[self.random.usize(..self.branches.len())];
            (From::Branch(*branch), *tree, map.clone())
        };
        let branch = engine
            .create_branch(name.as_bytes(), from, DESCENDANTS_MAX)
            .unwrap();
        let tree = engine.branch_tree(branch, like, map.len() as u64);
        self.branches.push((branch, tree, map));
    }

    fn drop_one(&mut self) {
        let engine = Arc::clone(&self.session.engine);
        let index = self.random.usize(..self.branches.len());
        if index > 0 {
            let (branch, tree, _) = self.branches.remove(index);
            engine
                .drop_branch(format!("b{}", branch.0).as_bytes())
                .unwrap();
            if !self.snapshots.iter().any(|(_, shown, _)| *shown == tree) {
                engine.drop_tree(tree);
            }
        }
    }

    /// A branch becomes what another one is, which goes, while a tree shows what it was.
    fn adopt(&mut self) {
        let engine = Arc::clone(&self.session.engine);
        let (one, other) = (
            self.random.usize(..self.branches.len()),
            self.random.usize(..self.branches.len()),
        );
        let (gone, from, _) = self.branches[other].clone();
        if one == other || other == 0 || self.snapshots.iter().any(|(_, shown, _)| *shown == from) {
            return;
        }
        let (branch, tree, old) = self.branches[one].clone();
        let was = engine.open_now(From::Branch(branch), &[tree]);
        self.write();
        self.clock.end_all();
        let name = format!("b{}", gone.0);
        engine
            .adopt_branch(branch, name.as_bytes(), [(tree, from)])
            .unwrap();
        self.branches[one].2 = self.branches[other].2.clone();
        self.branches.remove(other);
        maintain(&Arc::clone(&self.clock), &mut self.session);
        let old_now = map_of(&mut self.session, None, was[0]);
        assert!(old_now == old, "what it was is shown");
        engine.close_base(was[0]);
        self.check();
    }

    fn snapshot(&mut self) {
        let engine = Arc::clone(&self.session.engine);
        if self.snapshots.len() > 3 {
            let (snapshot, tree, _) = self.snapshots.remove(self.random.usize(..4));
            engine.release(snapshot);
            let mut shown = self.snapshots.iter().map(|(_, tree, _)| tree);
            let mut present = self.branches.iter().map(|(_, tree, _)| tree);
            if !shown.any(|shown| *shown == tree) && !present.any(|present| *present == tree) {
                engine.drop_tree(tree);
            }
        }
        let (branch, tree, map) = &self.branches[self.random.usize(..self.branches.len())];
        let made = engine.freeze_branch(self.clock.end_all(), *branch).unwrap();
        self.snapshots.push((made, *tree, map.clone()));
    }

    fn write(&mut self) {
        let index = self.random.usize(..self.branches.len());
        let (_, tree, map) = &mut self.branches[index];
        let (key, value) = entry(self.random.u32(..60), self.random.u32(..5));
        if self.random.u8(..4) == 0 {
            remove(&mut self.session, *tree, &key);
            map.remove(&key);
        } else {
            put(&mut self.session, *tree, &key, &value);
            map.insert(key, value);
        }
    }

    /// An album shows what there was when it was opened, whatever is written and collected beside
    /// it; and nothing is collected too much behind it.
    fn album(&mut self) {
        let engine = Arc::clone(&self.session.engine);
        let clock = Arc::clone(&self.clock);
        let of_branches = self
            .branches
            .iter()
            .map(|(branch, ..)| From::Branch(*branch));
        let of_snapshots = self.snapshots.iter().map(|(at, ..)| From::Snapshot(*at));
        let versions: Vec<From> = of_branches.chain(of_snapshots).collect();
        let of_branches = self
            .branches
            .iter()
            .map(|(_, tree, map)| (*tree, map.clone()));
        let of_snapshots = self
            .snapshots
            .iter()
            .map(|(_, tree, map)| (*tree, map.clone()));
        let maps: Vec<(TreeId, Map)> = of_branches.chain(of_snapshots).collect();
        // Another one may be there.
        let (other, _) = engine.open_album(&versions[..1]);
        let (album, nodes) = engine.open_album(&versions);
        engine.close_album(other);
        for _ in 0..self.random.u8(..40) {
            self.write();
        }
        maintain(&clock, &mut self.session);
        let mut shown = 0;
        for (index, node) in nodes.iter().enumerate() {
            assert!(node.parent.map_or(index == 0, |parent| parent < index));
            for version in &node.shows {
                let (tree, map) = &maps[*version];
                let base = engine.base_of(*tree).unwrap();
                let seen = engine.open_node((album, index), base);
                assert!(map_of(&mut self.session, None, seen) == *map);
                engine.close_base(seen);
                shown += 1;
            }
        }
        assert_eq!(shown, maps.len());
        engine.close_album(album);
        for _ in 0..self.random.u8(..40) {
            self.write();
        }
        maintain(&clock, &mut self.session);
        self.check();
    }

    fn check(&mut self) {
        for (_, tree, map) in &self.branches {
            assert!(map_of(&mut self.session, None, *tree) == *map, "{tree:?}");
            assert_eq!(self.session.engine.len(*tree), map.len() as u64);
        }
        for (snapshot, tree, map) in &self.snapshots {
            assert!(map_of(&mut self.session, Some(*snapshot), *tree) == *map);
        }
        let (_, tree, map) = &self.branches[self.random.usize(..self.branches.len())];
        for (_, other, there) in &self.branches {
            let keys = differing(&mut self.session, [(*tree, None), (*other, None)]);
            check_difference(&keys, map, there);
        }
        for (snapshot, other, there) in &self.snapshots {
            let keys = differing(
                &mut self.session,
                [(*tree, None), (*other, Some(*snapshot))],
            );
            check_difference(&keys, map, there);
        }
    }
}

/// Isolation, snapshots of branches, branches of snapshots, and the differences of any two; in the
/// end nothing is left of what was dropped.
#[test]
fn branches_are_maps_of_their_own() {
    run(false);
}

/// The same with albums.
#[test]
fn albums_are_of_one_moment() {
    run(true);
}

fn run(with_albums: bool) {
    let seeds = std::env::var("PANDO_MINUET_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let (clock, engine) = open(1 + (seed % 2) as u16);
        let mut session = engine.session().unwrap();
        let tree = engine.create_tree();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut map = Map::new();
        for number in 0..400 {
            let (key, value) = entry(number, random.u32(..3));
            put(&mut session, tree, &key, &value);
            map.insert(key, value);
        }
        let mut model = Model {
            clock,
            session,
            random,
            branches: vec![(BranchId::FIRST, tree, map)],
            snapshots: Vec::new(),
            made: 0,
        };
        for step in 0..400 {
            match model.random.u8(..20) {
                0 if model.branches.len() < 6 => model.branch(),
                1 => model.drop_one(),
                2 => model.snapshot(),
                6 => model.adopt(),
                3 => maintain(&Arc::clone(&model.clock), &mut model.session),
                4 | 5 if with_albums => model.album(),
                _ => model.write(),
            }
            if step % 40 == 39 {
                model.check();
            }
        }
        let Model {
            clock,
            mut session,
            branches,
            snapshots,
            ..
        } = model;
        for (snapshot, ..) in snapshots {
            engine.release(snapshot);
        }
        for (branch, tree, _) in &branches[1..] {
            engine
                .drop_branch(format!("b{}", branch.0).as_bytes())
                .unwrap();
            engine.drop_tree(*tree);
        }
        for key in branches[0].2.keys() {
            remove(&mut session, tree, key);
        }
        for _ in 0..4 {
            engine.write().collecting.note_released();
            maintain(&clock, &mut session);
        }
        // A root, a leaf, the catalog, the list of snapshots.
        assert!(used(&engine) < 40, "{} are left", used(&engine));
    }
}

/// A tree of a branch that is emptied leaves those of others, and what was there where two part can
/// be read.
#[test]
fn where_two_part_is_read_and_trees_go_alone() {
    let (clock, engine) = open(1);
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    put(&mut session, tree, b"k", b"base");
    let branch = engine
        .create_branch(b"b1", From::Branch(BranchId::FIRST), DESCENDANTS_MAX)
        .unwrap();
    let there = engine.branch_tree(branch, tree, 1);
    put(&mut session, there, b"k", b"there");
    put(&mut session, tree, b"k", b"here");
    let base = engine.open_base(tree, there, None).unwrap();
    let one = |session: &mut MinuetSession, tree| map_of(session, None, tree)[&b"k"[..]].clone();
    assert_eq!(one(&mut session, base), b"base");
    let written = session.update(Key::new(base, b"k"), &mut NoHook, |_| Decision::Remove);
    assert!(written.is_none(), "it is not written");
    engine.close_base(base);
    assert!(map_of(&mut session, None, base).is_empty());
    let empty = engine.create_branch_tree(branch);
    engine.drop_tree(there);
    maintain(&clock, &mut session);
    assert_eq!(one(&mut session, tree), b"here");
    assert!(map_of(&mut session, None, empty).is_empty());
    assert!(engine.open_base(tree, empty, None).is_none());
    put(&mut session, empty, b"n", b"new");
    assert_eq!(
        differing(&mut session, [(tree, None), (empty, None)]),
        [b"k", b"n"]
    );
    assert!(clock.horizon() > LogEpoch(0));
}
