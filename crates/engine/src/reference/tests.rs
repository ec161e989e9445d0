//! What the conformance suite does not see: bounded work, boundedness of queues, gauges.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::{ReferenceEngine, SCAN_CHUNK_ENTRIES};
use crate::limits::SESSIONS_MAX;
use crate::{
    Body, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Ordered,
    OrderedAt, Outcome, Point, Probe, ReadAt, ReferenceOptions, Snapshots, Transactional, TreeId,
};

crate::conformance_suite!(ReferenceEngine, restore, snapshots);

fn open() -> (Arc<EpochClock>, Arc<ReferenceEngine>) {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    (Arc::clone(&clock), ReferenceEngine::new(clock))
}

fn gauge(engine: &ReferenceEngine, name: &str) -> usize {
    let mut value = None;
    engine.gauges(&mut |gauge| {
        if gauge.name == name {
            value = Some(gauge.value);
        }
    });
    value.expect("the gauge exists") as usize
}

fn put(session: &mut impl Point, tree: TreeId, key: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(b"value")))
    });
}

fn remove(session: &mut impl Point, tree: TreeId, key: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |_| Decision::Remove);
}

#[test]
fn sessions_are_bounded_and_returned() {
    let (_, engine) = open();
    let sessions: Vec<_> = (0..SESSIONS_MAX)
        .map(|_| engine.session().unwrap())
        .collect();
    assert_eq!(engine.session().unwrap_err().sessions_max, SESSIONS_MAX);
    drop(sessions);
    assert!(engine.session().is_ok());
}

#[test]
fn tombstones_go_step_by_step_below_the_horizon_only() {
    let (clock, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    for key in 0..10_u8 {
        put(&mut session, tree, &[key]);
        remove(&mut session, tree, &[key]);
    }
    assert_eq!((engine.len(tree), gauge(&engine, "tombstones")), (0, 10));
    assert_eq!(session.maintain(100), 0);
    clock.tick();
    clock.set_horizon(LogEpoch(2));
    assert_eq!(session.maintain(4), 4);
    assert_eq!(gauge(&engine, "tombstones"), 6);
    assert_eq!(session.maintain(100), 6);
    assert_eq!(session.probe(Key::new(tree, &[3])), Probe::Absent);
}

#[test]
fn a_key_removed_again_and_again_is_queued_once() {
    let (clock, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    for _ in 0..100 {
        put(&mut session, tree, b"key");
        remove(&mut session, tree, b"key");
        clock.tick();
    }
    // Queued in epoch 1, last removed in epoch 100: looked at, kept, queued anew.
    clock.set_horizon(LogEpoch(100));
    assert_eq!(session.maintain(100), 1);
    assert!(matches!(
        session.probe(Key::new(tree, b"key")),
        Probe::Removed(_)
    ));
    clock.set_horizon(LogEpoch(101));
    assert_eq!(session.maintain(100), 1);
    assert_eq!(session.probe(Key::new(tree, b"key")), Probe::Absent);
}

#[test]
fn a_queued_key_that_lives_again_is_left_alone() {
    let (clock, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    put(&mut session, tree, b"key");
    remove(&mut session, tree, b"key");
    put(&mut session, tree, b"key");
    clock.tick();
    clock.set_horizon(LogEpoch(2));
    session.maintain(100);
    assert_eq!(engine.len(tree), 1);
    remove(&mut session, tree, b"key");
    clock.tick();
    clock.set_horizon(LogEpoch(3));
    assert_eq!(session.maintain(100), 1);
    assert_eq!(gauge(&engine, "tombstones"), 0);
}

#[test]
fn dropped_trees_are_freed_in_steps() {
    let (_, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    for key in 0..10_u8 {
        put(&mut session, tree, &[key]);
    }
    engine.drop_tree(tree);
    assert_eq!(
        (engine.len(tree), gauge(&engine, "dropped_entries")),
        (0, 10)
    );
    assert_eq!(session.maintain(3), 3);
    assert_eq!(gauge(&engine, "dropped_entries"), 7);
    assert_eq!(session.maintain(100), 7);
    assert_eq!(session.maintain(100), 0);
    put(&mut session, tree, b"late");
    assert_eq!(engine.len(tree), 0);
}

#[test]
fn every_key_can_be_sampled() {
    let (_, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    for key in 0..16_u8 {
        put(&mut session, tree, &[key]);
    }
    for key in 8..16_u8 {
        remove(&mut session, tree, &[key - 4]);
    }
    let mut seen: Vec<u8> = (0..8_u64)
        .map(|slice| session.sample(tree, slice << 61, |found| found.unwrap().0[0]))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 12, 13, 14, 15]);
}

#[test]
fn a_scan_goes_on_behind_its_last_key_over_chunks_of_tombstones() {
    let (_, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    let keys = (4 * SCAN_CHUNK_ENTRIES) as u16;
    for key in 0..keys {
        put(&mut session, tree, &key.to_be_bytes());
    }
    for key in 10..keys - 10 {
        remove(&mut session, tree, &key.to_be_bytes());
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut seen = Vec::new();
        session.scan(tree, Bound::Unbounded, direction, |key, _| {
            seen.push(u16::from_be_bytes(key.try_into().unwrap()));
            ControlFlow::Continue(())
        });
        if direction == Direction::Backward {
            seen.reverse();
        }
        let expected: Vec<_> = (0..10).chain(keys - 10..keys).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_snapshot_stands_while_its_trees_are_changed_and_dropped() {
    let (clock, engine) = open();
    let (mut session, tree) = (engine.session().unwrap(), engine.create_tree());
    put(&mut session, tree, b"a");
    put(&mut session, tree, b"b");
    let early = engine.freeze(clock.end_all()).unwrap();
    remove(&mut session, tree, b"a");
    put(&mut session, tree, b"c");
    let late = engine.freeze(clock.end_all()).unwrap();
    engine.drop_tree(tree);
    for (at, expected) in [(early, ["a", "b"]), (late, ["b", "c"])] {
        let mut keys = Vec::new();
        session.scan_at(at, tree, Bound::Unbounded, Direction::Forward, |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        });
        assert_eq!(keys, expected.map(|key| key.as_bytes().to_vec()));
        let there = session.get_at(at, Key::new(tree, b"a"), |value| value.is_some());
        assert_eq!(there, at == early);
    }
    assert_eq!(engine.images(early).count, 2);
    engine.release(early);
    engine.release(late);
    assert!(!engine.keeps(crate::ValueVersion::first_of(LogEpoch(1))));
}

fn repeating() -> (Arc<ReferenceEngine>, TreeId) {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let Ok(engine) = ReferenceEngine::open(clock, ReferenceOptions { absences: Some(7) });
    let tree = engine.create_tree();
    (engine, tree)
}

fn is_there(session: &mut impl Point, tree: TreeId, key: &[u8]) -> bool {
    session.get(Key::new(tree, key), |value| value.is_some())
}

/// TX1 run-whole, TX2 blind-reads-absent, TX3 own-writes-seen, by what others and the run see.
#[test]
fn a_run_counts_as_a_whole_or_leaves_nothing() {
    let (engine, tree) = repeating();
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let mut outcomes = [0; 3];
    for key in 0..200_u16 {
        let (one, two) = ([&key.to_be_bytes()[..], b"1"].concat(), key.to_be_bytes());
        put(&mut other, tree, &two);
        loop {
            session.begin_run();
            put(&mut session, tree, &one);
            assert!(is_there(&mut session, tree, &one), "the run's own");
            let saw = is_there(&mut session, tree, &two);
            assert!(saw || session.is_blind());
            remove(&mut session, tree, &two);
            assert!(!is_there(&mut other, tree, &one) && is_there(&mut other, tree, &two));
            assert_eq!(Transactional::len(&session, tree), u64::from(key) + 1);
            let outcome = session.end_run();
            match outcome {
                Outcome::Done => outcomes[0] += 1,
                Outcome::Conflict => outcomes[1] += 1,
                Outcome::Away => outcomes[2] += 1,
                Outcome::Refused(_) => unreachable!("there is room for anything"),
            }
            let counts = outcome == Outcome::Done;
            assert!(saw || !counts);
            assert_eq!(is_there(&mut other, tree, &one), counts);
            assert_eq!(is_there(&mut other, tree, &two), !counts);
            if counts {
                break;
            }
        }
    }
    assert!(outcomes.iter().all(|times| *times > 10), "{outcomes:?}");
}

/// TX1 run-whole: what another has changed meanwhile is a conflict. TX4 untouched-is-done.
#[test]
fn a_run_conflicts_with_what_came_in_between() {
    let (engine, tree) = repeating();
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    for _ in 0..100 {
        session.begin_run();
        assert_eq!(session.end_run(), Outcome::Done);
        session.begin_run();
        is_there(&mut session, tree, b"key");
        put(&mut other, tree, b"other");
        assert_ne!(session.end_run(), Outcome::Done);
    }
}
