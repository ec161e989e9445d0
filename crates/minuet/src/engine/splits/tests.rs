//! Readers and writers of leaves that were split, while the nodes above do not know; the planted
//! faults are found.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use pando_engine::{
    Decision, Direction, Engine, Key, NoHook, Ordered, OrderedAt, Outcome, Point, Snapshots,
    Transactional, TreeId,
};
use pando_sync::shim::lock;

use super::super::tests::{len_of, maintain, open, put, used};
use super::super::{Minuet, MinuetSession};
use crate::fault::{Fault, plant};

type Model = BTreeMap<Vec<u8>, usize>;

const KEYS: u32 = 4_000;

fn key_of(number: u32) -> Vec<u8> {
    format!("{:06}", number * 2_657 % KEYS).into_bytes()
}

fn get(session: &mut MinuetSession, tree: TreeId, key: &[u8]) -> Option<usize> {
    session.get(Key::new(tree, key), |value| value.map(len_of))
}

fn scanned(
    session: &mut MinuetSession,
    (tree, from): (TreeId, Bound<&[u8]>),
    way: Direction,
) -> Vec<(Vec<u8>, usize)> {
    let mut shown = Vec::new();
    session.scan(tree, from, way, |key, value| {
        shown.push((key.to_vec(), len_of(value)));
        ControlFlow::Continue(())
    });
    if way == Direction::Backward {
        shown.reverse();
    }
    shown
}

/// How many leaves have a link, those to which others lead aside.
fn links(engine: &Minuet) -> usize {
    lock(&engine.read().splits).split()
}

/// Whether all ways to read a tree show what was written. Nobody is alone meanwhile.
fn shows_all(session: &mut MinuetSession, tree: TreeId, model: &Model) -> bool {
    let all: Vec<_> = model.clone().into_iter().collect();
    let keys: Vec<_> = model.keys().map(|key| Key::new(tree, key)).collect();
    let mut together = vec![None; keys.len()];
    session.get_many(&keys, |index, value| together[index] = value.map(len_of));
    session.warm(&keys[..keys.len().min(64)]);
    let mut is_right = together.iter().eq(model
        .values()
        .map(|len| Some(*len))
        .collect::<Vec<_>>()
        .iter());
    is_right &= model
        .iter()
        .all(|(key, len)| get(session, tree, key) == Some(*len));
    for way in [Direction::Forward, Direction::Backward] {
        is_right &= scanned(session, (tree, Bound::Unbounded), way) == all;
    }
    for at in (0..all.len()).step_by(97) {
        let from = (tree, Bound::Included(&all[at].0[..]));
        is_right &= scanned(session, from, Direction::Forward) == all[at..];
        is_right &= scanned(session, from, Direction::Backward) == all[..=at];
    }
    is_right
}

/// Whether a run of a new key and some old ones, one of which is split off meanwhile, counts as a
/// whole or not at all.
fn runs_count(session: &mut MinuetSession, tree: TreeId, model: &mut Model, round: u32) -> bool {
    session.begin_run();
    let old: Vec<_> = model.keys().step_by(211).cloned().collect();
    let read: Vec<_> = old.iter().map(|key| get(session, tree, key)).collect();
    let is_right = read
        .iter()
        .zip(&old)
        .all(|(len, key)| *len == model.get(key).copied());
    let len = 1 + round as usize % 8;
    for key in old.iter().take(20) {
        put(session, tree, key, &vec![0; len]);
    }
    if session.end_run() == Outcome::Done {
        for key in old.into_iter().take(20) {
            model.insert(key, len);
        }
    }
    is_right
}

/// Whether all is shown as it was written, in this many memnodes.
fn is_as_written(memnodes: u16) -> bool {
    let (clock, engine) = open(memnodes);
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let (mut model, mut met, mut is_right) = (Model::new(), 0, true);
    for number in 0..KEYS {
        let (key, len) = (key_of(number), 1 + number as usize % 30);
        put(&mut session, tree, &key, &vec![0; len]);
        model.insert(key, len);
        if number % 9 == 0 {
            let key = key_of(number / 2);
            session.update(Key::new(tree, &key), &mut NoHook, |_| Decision::Remove);
            model.remove(&key);
        }
        if number % 499 == 498 {
            met += links(&engine);
            is_right &= shows_all(&mut session, tree, &model);
            is_right &= runs_count(&mut session, tree, &mut model, number);
            is_right &= shows_all(&mut session, tree, &model);
        }
    }
    assert!(met > 0, "there were no links");
    is_right &= engine.len(tree) == model.len() as u64;
    let snapshot = engine.freeze(clock.end_all()).unwrap();
    is_right &= links(&engine) == 0 && shows_all(&mut session, tree, &model);
    let mut count = 0;
    let all = (tree, Bound::Unbounded, Direction::Forward);
    session.scan_at(snapshot, all.0, all.1, all.2, |key, value| {
        count += usize::from(model.get(key).copied() == value.map(len_of));
        ControlFlow::Continue(())
    });
    engine.release(snapshot);
    is_right && count == model.len()
}

/// ME6 links-lead-on, ME7 links-for-insiders.
#[test]
fn leaves_that_were_split_are_found_by_all_ways() {
    assert!(is_as_written(1) && is_as_written(3));
}

#[test]
fn canary_links_that_are_not_followed_are_found() {
    for fault in [Fault::LinkLeft, Fault::LinkBack, Fault::LinkUnposted] {
        plant(Some(fault));
        let found = std::panic::catch_unwind(|| !is_as_written(1));
        plant(None);
        assert!(found.unwrap_or(true), "{fault:?} shows nowhere");
    }
}

/// Spare leaves are no garbage, and leaves that were split off are, once they are empty.
#[test]
fn nothing_is_left_of_leaves_that_were_split_off() {
    let (clock, engine) = open(2);
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let first = engine.freeze(clock.end_all()).unwrap();
    engine.release(first);
    maintain(&clock, &mut session);
    let empty = used(&engine);
    for number in 0..KEYS {
        put(&mut session, tree, &key_of(number), b"value");
    }
    assert!(used(&engine) > empty + 20);
    for number in 0..KEYS {
        session.update(Key::new(tree, &key_of(number)), &mut NoHook, |_| {
            Decision::Remove
        });
    }
    let last = engine.freeze(clock.end_all()).unwrap();
    engine.release(last);
    maintain(&clock, &mut session);
    assert_eq!((used(&engine), engine.len(tree)), (empty, 0));
}

/// Threads put new keys of the same leaves, read those of each other and scan.
#[test]
fn leaves_are_split_beside_others() {
    const THREADS: u32 = 4;
    let (clock, engine) = open(2);
    let tree = engine.create_tree();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                for number in (thread..KEYS).step_by(THREADS as usize) {
                    let key = key_of(number);
                    put(&mut session, tree, &key, &[0; 9]);
                    assert_eq!(get(&mut session, tree, &key), Some(9), "{number}");
                    if number % 256 == thread {
                        let way =
                            [Direction::Forward, Direction::Backward][number as usize / 256 % 2];
                        let shown = scanned(&mut session, (tree, Bound::Unbounded), way);
                        assert!(shown.is_sorted_by(|(one, _), (next, _)| one < next));
                        let own = (thread..=number).step_by(THREADS as usize).map(key_of);
                        let mut own = own.map(|key| (key, 9));
                        assert!(own.all(|entry| shown.binary_search(&entry).is_ok()));
                    }
                }
            });
        }
    });
    let mut session = engine.session().unwrap();
    let model: Model = (0..KEYS).map(|number| (key_of(number), 9)).collect();
    assert!(shows_all(&mut session, tree, &model) && engine.len(tree) == u64::from(KEYS));
    let frozen = engine.freeze(clock.end_all()).unwrap();
    assert!(shows_all(&mut session, tree, &model));
    engine.release(frozen);
}
