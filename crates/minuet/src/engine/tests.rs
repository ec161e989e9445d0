//! The conformance suite, and what only this engine has.

use std::ops::{Bound, ControlFlow};
use std::panic::catch_unwind;
use std::sync::Arc;

use pando_engine::conformance::{Plan, snapshots_stand_on};
use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, HashDraft, HashRef, Key, LogEpoch,
    NewValue, NoHook, Ordered, OrderedAt, Point, ReadAt, Snapshots, StringRef, TreeId, ValueRef,
    ValueVersion,
};
use pando_memnode::Beside;
use pando_sync::shim::lock;

use super::walk::Target;
use super::{From, Minuet, MinuetSession, Options};
use crate::limits::PAGE_BYTES_MAX;

pando_engine::conformance_suite!(crate::engine::Minuet, restore, snapshots);

pub(super) fn open(memnodes: u16) -> (Arc<EpochClock>, Arc<Minuet>) {
    open_with(memnodes, Options::default().page_bytes)
}

fn open_with(memnodes: u16, page_bytes: usize) -> (Arc<EpochClock>, Arc<Minuet>) {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let options = Options {
        memnodes,
        page_bytes,
        ..Options::default()
    };
    let Ok(engine) = Minuet::open(Arc::clone(&clock), options);
    (clock, engine)
}

/// Pages and values that are there, spare leaves aside.
pub(super) fn used(engine: &Minuet) -> usize {
    let state = engine.read();
    let memnodes = state.database.memnodes().memnodes().iter();
    let used: usize = memnodes.map(|memnode| memnode.used_slots().count()).sum();
    used - lock(&state.splits).spares()
}

pub(super) fn put(session: &mut MinuetSession, tree: TreeId, key: &[u8], value: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(value)))
    });
}

pub(super) fn len_of(value: ValueRef<'_>) -> usize {
    match value.body {
        BodyRef::String(string) => string.len(),
        BodyRef::Row(..) => panic!("strings were written"),
    }
}

pub(super) fn maintain(clock: &EpochClock, session: &mut MinuetSession) {
    clock.set_horizon(clock.tick());
    while session.maintain(64) > 0 {}
}

/// Keys and values of every kind: short, long with and without a common beginning, large.
pub(super) fn entry(number: u32, round: u32) -> (Vec<u8>, Vec<u8>) {
    let mut key = match number % 5 {
        0 => vec![b'l'; 300],
        1 => [&number.to_be_bytes()[..], &[b'x'; 400]].concat(),
        _ => b"key:".to_vec(),
    };
    key.extend_from_slice(&number.to_be_bytes());
    let bytes = [9, 40, 600, 5000, 70_000][(number + round) as usize % 5];
    (key, vec![(number + round) as u8; bytes])
}

/// A change of a large value copies what it changes: so little is not shared by what a snapshot, a
/// branch and the present have (D2 successors-share).
#[test]
fn a_change_of_a_large_value_shares_its_nodes() {
    const FIELDS: u32 = 20_000;
    let (clock, engine) = open(2);
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    let keys = [Key::new(tree, b"row"), Key::new(tree, b"string")];
    let set = |session: &mut MinuetSession, fields: std::ops::Range<u32>| {
        session.update(keys[0], &mut NoHook, |old| {
            let mut draft = HashDraft::new(old.map(|old| match old.body {
                BodyRef::Row(_, row) => row,
                BodyRef::String(_) => panic!("a row was written"),
            }));
            for field in fields.clone() {
                draft.set(&field.to_be_bytes(), b"value");
            }
            Decision::Write(NewValue::new(draft.finish()))
        });
    };
    set(&mut session, 0..FIELDS);
    put(&mut session, tree, keys[1].bytes, &vec![b'x'; 1 << 20]);
    let snapshot = engine.freeze(clock.end_all()).unwrap();
    let branch = engine
        .create_branch(b"trial", From::Snapshot(snapshot), 2)
        .unwrap();
    let on_branch = engine.branch_tree(branch, tree, 2);
    set(&mut session, 7..8);
    session.update(keys[1], &mut NoHook, |old| {
        let Some(BodyRef::String(StringRef::Chunked(string))) = old.map(|old| old.body) else {
            panic!("a chunked string was written");
        };
        Decision::Write(NewValue::new(string.with_write(string.len(), b"more")))
    });
    for key in keys {
        let mine = Key::new(on_branch, key.bytes);
        session.update(mine, &mut NoHook, |old| {
            Decision::Write(old.unwrap().hand_over())
        });
        let [before, there, now] = [
            session.get_at(snapshot, key, |value| value.unwrap().hand_over()),
            session.get(mine, |value| value.unwrap().hand_over()),
            session.get(key, |value| value.unwrap().hand_over()),
        ];
        let [before, there, now] =
            [&before, &there, &now].map(|value| value.view(ValueVersion::from_bits(1)));
        assert!(before.heap_bytes() > 200_000, "{}", before.heap_bytes());
        assert_eq!(before.bytes_beyond(Some(&there)), 0);
        let apart = before.bytes_beyond(Some(&now));
        assert!(apart > 0 && apart < 40_000, "{apart} bytes");
    }
}

/// A reader's mark stays on a long key, too, whose value is as it was, and goes with a new one.
#[test]
fn a_long_key_keeps_the_mark_of_its_reader() {
    let (_, engine) = open(2);
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    for (number, bytes) in [(1, 9), (2, 600), (3, 70_000)] {
        let long = [&[b'l'; 300][..], &[number]].concat();
        let key = Key::new(tree, &long);
        put(&mut session, tree, &long, &vec![number; bytes]);
        let version = session.get(key, |value| {
            value.unwrap().mark.set(5);
            value.unwrap().version
        });
        let read = |value: Option<ValueRef<'_>>| {
            let value = value.unwrap();
            (value.version, value.mark.get(), len_of(value))
        };
        assert_eq!(session.get(key, read), (version, 5, bytes));
        put(&mut session, tree, &long, b"new");
        let (later, mark, len) = session.get(key, read);
        assert!(later > version && (mark, len) == (0, 3));
    }
}

#[test]
fn memnodes_share_the_pages() {
    snapshots_stand_on(&Plan::from_environment(), || open(3)).unwrap();
}

#[test]
fn pages_have_any_size_in_their_range() {
    for (memnodes, page_bytes) in [(1, PAGE_BYTES_MAX), (2, 12_345)] {
        let open = || open_with(memnodes, page_bytes);
        snapshots_stand_on(&Plan::from_environment(), open).unwrap();
    }
}

/// What nobody has any more is freed: pages, values, bundles, of keys that went one by one, of
/// trees that were dropped, and of snapshots.
#[test]
fn nothing_is_left_of_what_everybody_has_given_up() {
    const KEYS: u32 = 400;
    let (clock, engine) = open(2);
    let mut session = engine.session().unwrap();
    // The list of kept snapshots takes a slot from the first one on.
    let first = engine.freeze(clock.end_all()).unwrap();
    engine.release(first);
    maintain(&clock, &mut session);
    let empty = used(&engine);
    let trees = [engine.create_tree(), engine.create_tree()];
    let fill = |session: &mut MinuetSession, round: u32| {
        for (tree, number) in (0..KEYS).flat_map(|number| trees.map(|tree| (tree, number))) {
            let (key, value) = entry(number, round);
            put(session, tree, &key, &value);
        }
    };
    let mut snapshots = Vec::new();
    for round in 0..3 {
        fill(&mut session, round);
        snapshots.push(engine.freeze(clock.end_all()).unwrap());
    }
    fill(&mut session, 3);
    for number in 0..KEYS {
        let key = entry(number, 0).0;
        session.update(Key::new(trees[0], &key), &mut NoHook, |_| Decision::Remove);
    }
    for (round, snapshot) in (0..).zip(&snapshots) {
        let mut count = 0;
        let visit = |key: &[u8], value: Option<ValueRef<'_>>| {
            let tail = key.last_chunk().unwrap();
            let BodyRef::String(string) = value.unwrap().body else {
                panic!("strings were written");
            };
            let (expected, value) = entry(u32::from_be_bytes(*tail), round);
            assert!(key == expected && string == &value[..]);
            count += 1;
            ControlFlow::Continue(())
        };
        session.scan_at(
            *snapshot,
            trees[0],
            Bound::Unbounded,
            Direction::Forward,
            visit,
        );
        assert_eq!(count, KEYS, "round {round}");
    }
    engine.drop_tree(trees[1]);
    for snapshot in snapshots {
        engine.release(snapshot);
        maintain(&clock, &mut session);
    }
    assert_eq!(engine.len(trees[0]), 0);
    assert_eq!(used(&engine), empty, "slots in use");
}

/// A body is no page to the collection, whatever its first bytes look like.
#[test]
fn large_hashes_outlive_a_collection() {
    let (clock, engine) = open(1);
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let fields: Vec<_> = (0..90_u8).map(|field| ([field], [field; 8])).collect();
    session.update(Key::new(tree, b"hash"), &mut NoHook, |_| {
        let mut draft = HashDraft::new(None);
        for (field, value) in &fields {
            draft.set(field, value);
        }
        Decision::Write(NewValue::new(draft.finish()))
    });
    let snapshot = engine.freeze(clock.end_all()).unwrap();
    engine.release(snapshot);
    maintain(&clock, &mut session);
    session.get(Key::new(tree, b"hash"), |value| {
        let Some(BodyRef::Row(_, hash)) = value.map(|value| value.body) else {
            panic!("the hash is there");
        };
        assert!(matches!(hash, HashRef::Packed(_)) && hash.iter().count() == 90);
    });
}

/// A round of the collection follows the copies, whether a snapshot goes or not.
#[test]
fn garbage_is_bounded_while_pages_are_copied() {
    const KEYS: u32 = 20_000;
    let (clock, engine) = open(1);
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    for number in 0..KEYS {
        put(&mut session, tree, &number.to_be_bytes(), b"value");
    }
    let before = used(&engine);
    let released = engine.freeze(clock.end_all()).unwrap();
    engine.release(released);
    maintain(&clock, &mut session);
    for number in 0..KEYS {
        put(&mut session, tree, &number.to_be_bytes(), b"other");
        if number % 100 == 0 {
            maintain(&clock, &mut session);
        }
    }
    let after = used(&engine);
    assert!(after <= before + before / 8 + 32, "{after} after {before}");
}

/// Long keys are between the short ones that they lie between, in both directions.
#[test]
fn long_keys_are_in_order_among_short_ones() {
    let (_, engine) = open(1);
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let base = vec![b'k'; 251];
    let mut keys: Vec<Vec<u8>> = vec![base[..250].to_vec(), base.clone(), b"l".to_vec()];
    for tail in [&b"\0"[..], b"\0\0", b"a", b"ab", b"b", &[0xff; 30]] {
        keys.push([&base[..], tail].concat());
    }
    for key in keys.iter().rev() {
        put(&mut session, tree, key, b"value");
    }
    keys.sort();
    for from in &keys {
        for (way, bound) in [
            (Direction::Forward, Bound::Included(&from[..])),
            (Direction::Forward, Bound::Excluded(&from[..])),
            (Direction::Backward, Bound::Included(&from[..])),
            (Direction::Backward, Bound::Excluded(&from[..])),
        ] {
            let mut shown = Vec::new();
            session.scan(tree, bound, way, |key, _| {
                shown.push(key.to_vec());
                ControlFlow::Continue(())
            });
            let is_within = |key: &&Vec<u8>| match (way, bound) {
                (_, Bound::Included(bound)) if *key == bound => true,
                (Direction::Forward, _) => *key > from,
                (Direction::Backward, _) => *key < from,
            };
            let mut expected: Vec<_> = keys.iter().filter(is_within).cloned().collect();
            if way == Direction::Backward {
                expected.reverse();
            }
            assert!(shown == expected, "{way:?} {bound:?}");
        }
    }
}

fn bytes_of(string: StringRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    string.for_each_piece(0..string.len(), |piece| bytes.extend_from_slice(piece));
    bytes
}

fn assert_whole(session: &mut MinuetSession, tree: TreeId, key: &[u8]) {
    session.get(Key::new(tree, key), |value| {
        if let Some(BodyRef::String(string)) = value.map(|value| value.body) {
            let bytes = bytes_of(string);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        }
    });
}

/// ME4 leaves-alone, ME5 graves-under-latches: changes of leaves go on beside those that need more
/// pages (splits, merges, copies after a snapshot, large values, long keys); nothing is lost.
#[test]
fn changes_in_leaves_go_on_beside_changes_of_pages() {
    const THREADS: u32 = 4;
    const KEYS: u32 = 120;
    const ROUNDS: u32 = 6;
    let (clock, engine) = open(2);
    let tree = engine.create_tree();
    let key_of = |thread: u32, number: u32| entry(number * THREADS + thread, 0).0;
    let is_there = |number: u32, round: u32| (number + round) % 3 != 2;
    let count_of = |round| {
        let present = (0..KEYS).filter(|number| is_there(*number, round));
        present.count() as u32 * THREADS
    };
    let mut snapshots = Vec::new();
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let engine = &engine;
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    for number in 0..KEYS {
                        let key = key_of(thread, number);
                        if is_there(number, round) {
                            put(&mut session, tree, &key, &entry(number, round).1);
                        } else {
                            session.update(Key::new(tree, &key), &mut NoHook, |_| Decision::Remove);
                        }
                        // Another thread's key has a whole value, or none.
                        let other = key_of((thread + 1) % THREADS, number);
                        assert_whole(&mut session, tree, &other);
                        if number % 16 == 0 {
                            session.maintain(4);
                        }
                    }
                });
            }
        });
        let mut session = engine.session().unwrap();
        assert_eq!(engine.len(tree), u64::from(count_of(round)), "{round}");
        for (thread, number) in (0..THREADS).flat_map(|thread| (0..KEYS).map(move |n| (thread, n)))
        {
            let key = key_of(thread, number);
            session.get(Key::new(tree, &key), |value| {
                let expected = is_there(number, round).then(|| entry(number, round).1);
                let got = value.map(|value| match value.body {
                    BodyRef::String(string) => bytes_of(string),
                    BodyRef::Row(..) => panic!("strings were written"),
                });
                assert!(
                    got == expected,
                    "round {round}, thread {thread}, key {number}"
                );
            });
        }
        if round % 2 == 0 {
            snapshots.push((round, engine.freeze(clock.end_all()).unwrap()));
        }
        clock.set_horizon(clock.tick());
    }
    let mut session = engine.session().unwrap();
    for (round, snapshot) in snapshots {
        let mut count = 0;
        let all = (tree, Bound::Unbounded, Direction::Forward);
        session.scan_at(snapshot, all.0, all.1, all.2, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(count, count_of(round), "snapshot {round}");
        engine.release(snapshot);
    }
}

/// Whether all keys are found after most of them were put below a root whose fan from before is
/// put back, or is not.
fn finds_all_below(puts_back: bool) -> bool {
    const KEYS: u32 = 3000;
    let (_, engine) = open(1);
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let put_all = |session: &mut MinuetSession, range: std::ops::Range<u32>| {
        range.for_each(|number| put(session, tree, &key(number), &[1; 30]));
    };
    put_all(&mut session, 0..KEYS / 10);
    let fan = {
        let state = engine.read();
        let root = state.tip.view.root;
        state.near(&state.tip, Target::At(&[]));
        match state.memnode(root).beside(root.slot).unwrap().get() {
            Some(Beside::Bytes(fan)) => Beside::Bytes(fan.clone()),
            other => panic!("a fan: {other:?}"),
        }
    };
    put_all(&mut session, KEYS / 10..KEYS);
    let mut state = engine.write();
    let root = state.tip.view.root;
    let memnode = state.database.memnodes_mut().memnode_mut(root.memnode);
    memnode.edit(root.slot, |_| ());
    if puts_back {
        memnode.beside(root.slot).unwrap().set(fan).unwrap();
    }
    drop(state);
    let mut is_there = |number| session.get(Key::new(tree, &key(number)), |value| value.is_some());
    (0..KEYS).all(&mut is_there)
}

/// SL3 beside-of-present, where it matters.
#[test]
fn a_fan_of_an_earlier_page_is_found() {
    assert!(finds_all_below(false));
    let ended = catch_unwind(|| finds_all_below(true));
    assert!(!matches!(ended, Ok(true)));
}
