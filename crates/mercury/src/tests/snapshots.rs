//! Planted faults of snapshots, which the conformance suite catches, and walks while tables change.

use std::panic::catch_unwind;

use pando_chassis::SnapshotFault;
use pando_engine::conformance::{Plan, snapshots_stand_on, sums_are_exact_on};
use pando_engine::{Restore, Snapshots, WalkAt};

use super::*;

fn plan() -> Plan {
    Plan::from_environment()
}

fn with(fault: SnapshotFault) -> impl Fn() -> (Arc<EpochClock>, Arc<Mercury>) {
    move || {
        let (clock, engine) = engine();
        engine.snapshots.plant(fault);
        (clock, engine)
    }
}

#[test]
fn a_later_image_that_is_taken_for_this_one_is_caught() {
    snapshots_stand_on(&plan(), with(SnapshotFault::LaterImage)).unwrap_err();
}

#[test]
fn a_dropped_merge_is_caught() {
    snapshots_stand_on(&plan(), with(SnapshotFault::DroppedMerge)).unwrap_err();
}

#[test]
fn an_image_after_publication_is_caught() {
    sums_are_exact_on(&plan(), with(SnapshotFault::ImageLate), true).unwrap_err();
}

#[test]
fn a_snapshot_made_beside_writers_is_caught() {
    // By the sums, or first by an assertion of a writer.
    let caught = catch_unwind(|| sums_are_exact_on(&plan(), engine, false).is_err());
    assert!(caught.unwrap_or(true));
}

#[test]
#[should_panic(expected = "is_above_all")]
fn freezing_below_a_borrowed_version_is_refused() {
    let (clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    let last = ValueVersion::from_bits(ValueVersion::first_of(LogEpoch(2)).to_bits() - 1);
    let value = NewValue::new(Body::string(b"v"));
    session.restore(Key::new(tree, b"k"), last, Some(value));
    put(&mut session, tree, b"k", 1);
    clock.tick();
    // What forgets what was borrowed: `end_all` would have ended the next epoch, too.
    let _ = engine.freeze(LogEpoch(1));
}

/// The tree shrinks to nothing and its shadow grows while a pass is under way, step by step.
#[test]
fn a_pass_shows_each_key_once_while_tables_change() {
    const KEYS: u64 = 6_000;
    let (clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    for number in 0..KEYS {
        put(&mut session, tree, &key(number), number);
    }
    let at = engine.freeze(clock.end_all()).unwrap();
    let (mut cursor, mut steps, mut removed) = (0, 0, 0);
    let mut seen = BTreeSet::new();
    loop {
        let mut shown = 0;
        cursor = session.walk_at(at, tree, cursor, |key, value| {
            assert!(seen.insert(key.to_vec()), "shown twice");
            assert_eq!(key, super::key(number_of(value)), "its own value");
            shown += 1;
        });
        assert!(shown < 200, "a step is bounded");
        if cursor == 0 {
            break;
        }
        steps += 1;
        for _ in 0..10 {
            if removed < KEYS {
                remove(&mut session, tree, &key(removed));
                removed += 1;
            }
        }
        if steps % 16 == 0 {
            clock.set_horizon(clock.tick());
            session.maintain(1_000);
        }
    }
    assert_eq!(seen.len() as u64, KEYS);
    assert!(removed > KEYS / 2, "{removed} removed in {steps} steps");
}
