//! Runs that are packed give the trees that puts give.

use pando_engine::Restore;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pando_engine::Restored;

use super::oracle::{compare, random_key};
use super::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn restore(session: &mut MasstreeSession, tree: TreeId, pairs: &[(Vec<u8>, Vec<u8>)]) {
    let mut run = Vec::new();
    for (key, value) in pairs {
        run.push(Restored {
            key,
            version: ValueVersion::from_bits(1),
            value: NewValue::new(Body::string(value)),
        });
    }
    session.restore_run(tree, &mut run);
    assert!(run.is_empty());
}

/// Keys that share slices in every way, some of them in layers upon layers.
fn keys(random: &mut fastrand::Rng, count: usize) -> Pairs {
    let mut keys = BTreeMap::new();
    for number in 0..count {
        let mut key = random_key(random);
        match random.u8(..8) {
            0 => key.extend((number as u32).to_be_bytes()),
            1 => key = vec![b'd'; 8 * random.usize(..60)],
            2 => key = [&vec![b'e'; 16][..], &(number as u64).to_be_bytes(), &key].concat(),
            _ => {}
        }
        keys.insert(key, vec![random.u8(..); random.usize(..20)]);
    }
    keys.into_iter().collect()
}

/// Cuts pairs into runs; every second one or so comes in several pieces.
fn runs(random: &mut fastrand::Rng, mut pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<Pairs> {
    let mut runs = Vec::new();
    while !pairs.is_empty() {
        let (run, rest) = pairs.split_at(random.usize(1..=pairs.len().min(400)));
        runs.push(run.to_vec());
        pairs = rest;
    }
    random.shuffle(&mut runs);
    runs
}

#[test]
fn packed_runs_match_an_ordered_map() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (clock, engine) = engine();
        let mut sessions: Vec<_> = (0..2).map(|_| engine.session().unwrap()).collect();
        let tree = engine.create_tree();
        let mut map = BTreeMap::new();
        // What was there before: newer than the runs, and partly the same keys.
        if random.bool() {
            for _ in 0..random.usize(..100) {
                let (key, value) = (random_key(&mut random), vec![b'n'; 3]);
                put(&mut sessions[0], tree, &key, &value);
                map.insert(key, value);
            }
        }
        let count = random.usize(1..3_000);
        let pairs = keys(&mut random, count);
        for run in runs(&mut random, &pairs) {
            restore(&mut sessions[random.usize(..2)], tree, &run);
        }
        for (key, value) in &pairs {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let session = &mut sessions[0];
        assert_eq!(engine.len(tree), map.len() as u64, "seed {seed}");
        let all: Pairs = map.clone().into_iter().collect();
        let seen = scan(
            session,
            tree,
            Bound::Unbounded,
            Direction::Forward,
            usize::MAX,
        );
        assert!(seen == all, "seed {seed}: forward");
        let mut seen = scan(
            session,
            tree,
            Bound::Unbounded,
            Direction::Backward,
            usize::MAX,
        );
        seen.reverse();
        assert!(seen == all, "seed {seed}: backward");
        for (key, value) in &map {
            assert_eq!(get(session, tree, key).as_ref(), Some(value), "seed {seed}");
        }
        // Writers find their way, and what goes leaves nothing behind.
        for _ in 0..500 {
            let key = random_key(&mut random);
            if random.bool() {
                put(session, tree, &key, b"later");
                map.insert(key, b"later".to_vec());
            } else {
                remove(session, tree, &key);
                map.remove(&key);
            }
            if random.u8(..16) == 0 {
                compare(session, tree, &map, &mut random, seed);
            }
        }
        for key in map.keys() {
            assert!(remove(session, tree, key).is_some(), "seed {seed}");
        }
        purge(&clock, session);
        let left = gauges(&engine);
        for name in ["keys", "tombstones", "entries", "layers", "young_nodes"] {
            assert_eq!(left[name], 0, "seed {seed}: {name}");
        }
        assert_eq!(left["border_nodes"], 1, "seed {seed}: M5");
    }
}

/// In one layer, in a deeper one that comes with the run, and where each key has a layer.
#[test]
fn a_packed_run_leaves_full_nodes() {
    const KEYS: u32 = 30_000;
    let (in_order, below) = (
        b"".as_slice(),
        b"a prefix of more than two slices".as_slice(),
    );
    for prefix in [in_order, below] {
        let (_, engine) = engine();
        let mut session = engine.session().unwrap();
        let tree = engine.create_tree();
        let pairs: Pairs = (0..KEYS)
            .map(|number| ([prefix, &number.to_be_bytes()].concat(), b"value".to_vec()))
            .collect();
        for run in pairs.chunks(2_000) {
            restore(&mut session, tree, run);
        }
        let figures = gauges(&engine);
        let full = i64::from(KEYS / 15 + 1);
        assert!(figures["border_nodes"] <= full + 2, "{figures:?}");
        assert!(figures["interior_nodes"] <= full / 12, "{figures:?}");
        assert_eq!(engine.len(tree), u64::from(KEYS));
    }
}

/// Every third number is there before and stays; the next one comes with a run; the last is written
/// and removed meanwhile.
fn name(number: usize) -> String {
    match number / 3 % 4 {
        0 => format!("{number:07}"),
        1 => format!("{number:07}-and-more"),
        2 => format!("1{number:07}and"),
        _ => format!("a prefix that is long enough {number:06}"),
    }
}

/// Threads pack runs that lie between each other's, beside writers of other keys and readers who
/// know what is there.
#[test]
fn packing_beside_readers_and_writers_loses_nothing() {
    const THREADS: usize = 3;
    const RUNS: usize = 60;
    const RUN_KEYS: usize = 120;
    let seed = 7;
    let (_, engine) = engine();
    let tree = engine.create_tree();
    let numbers = THREADS * RUNS * RUN_KEYS * 3;
    let mut first = engine.session().unwrap();
    for number in (0..numbers).step_by(3 * 7) {
        put(&mut first, tree, name(number).as_bytes(), b"before");
    }
    let mut packed: Vec<String> = (0..numbers).skip(1).step_by(3).map(name).collect();
    packed.sort();
    let (done, packed) = (AtomicBool::new(false), &packed);
    thread::scope(|scope| {
        let loaders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut session = engine.session().unwrap();
                scope.spawn(move || {
                    for run in packed.chunks(RUN_KEYS).skip(thread).step_by(THREADS) {
                        let pair = |key: &String| (key.clone().into_bytes(), b"packed".to_vec());
                        let pairs: Pairs = run.iter().map(pair).collect();
                        restore(&mut session, tree, &pairs);
                        for (key, value) in &pairs {
                            assert_eq!(get(&mut session, tree, key).as_ref(), Some(value));
                        }
                    }
                })
            })
            .collect();
        let others = [0, 1].map(|other| {
            let mut session = engine.session().unwrap();
            let done = &done;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + other);
                while !done.load(Ordering::Relaxed) {
                    let number = random.usize(..numbers / 3) * 3;
                    let key = name(number + 2);
                    put(&mut session, tree, key.as_bytes(), b"meanwhile");
                    remove(&mut session, tree, key.as_bytes());
                    let known = name(number / 21 * 21);
                    let found = get(&mut session, tree, known.as_bytes());
                    assert_eq!(found.as_deref(), Some(&b"before"[..]), "{known}");
                    let direction = [Direction::Forward, Direction::Backward][number % 2];
                    let from = Bound::Included(known.as_bytes());
                    let mut seen = scan(&mut session, tree, from, direction, 50);
                    assert_eq!(seen.first().map(|pair| &pair.0[..]), Some(known.as_bytes()));
                    if direction == Direction::Backward {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|one, next| one.0 < next.0));
                }
            })
        });
        for loader in loaders {
            loader.join().expect("every key of a run is there");
        }
        done.store(true, Ordering::Relaxed);
        for other in others {
            other.join().expect("every known key is there");
        }
    });
    let (from, limit) = (Bound::Unbounded, usize::MAX);
    let every = scan(&mut first, tree, from, Direction::Forward, limit);
    let values = |wanted: &[u8]| every.iter().filter(|(_, value)| value == wanted).count();
    assert_eq!(values(b"packed"), packed.len());
    assert_eq!(values(b"before"), numbers.div_ceil(21));
}
