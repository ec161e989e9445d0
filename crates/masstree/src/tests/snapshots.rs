//! Planted faults of snapshots, which the conformance suite catches, and what comes back of them.

use std::panic::catch_unwind;

use pando_chassis::SnapshotFault;
use pando_engine::conformance::{Plan, snapshots_stand_on, sums_are_exact_on};
use pando_engine::limits::SNAPSHOTS_MAX;
use pando_engine::{Images, OrderedAt, ReadAt, Restore, Snapshots};

use super::*;

fn plan() -> Plan {
    Plan::from_environment()
}

fn with(fault: SnapshotFault) -> impl Fn() -> (Arc<EpochClock>, Arc<Masstree>) {
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
fn a_row_of_a_snapshot_that_is_changed_in_place_is_caught() {
    snapshots_stand_on(&plan(), with(SnapshotFault::LentThoughKept)).unwrap_err();
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
    put(&mut session, tree, b"k", b"borrowed");
    clock.tick();
    // What forgets what was borrowed: `end_all` would have ended the next epoch, too.
    let _ = engine.freeze(LogEpoch(1));
}

/// The engine, a tree of so many keys and a snapshot of them.
fn frozen(keys: u32) -> (Arc<EpochClock>, Arc<Masstree>, TreeId, MasstreeSession) {
    let (clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    for number in 0..keys {
        put(&mut session, tree, &number.to_be_bytes(), b"before");
    }
    engine.freeze(clock.end_all()).unwrap();
    (clock, engine, tree, session)
}

#[test]
fn a_merge_goes_on_while_newer_snapshots_come_and_go() {
    const KEYS: u32 = 1000;
    let (clock, engine, tree, mut session) = frozen(KEYS);
    let first = engine.freeze(clock.end_all()).unwrap();
    for number in 0..KEYS {
        put(&mut session, tree, &number.to_be_bytes(), b"after");
    }
    engine.release(first);
    for round in 0.. {
        assert!(round < KEYS, "the merge begins again each time");
        if engine.is_unsettled() {
            break;
        }
        let next = engine.freeze(clock.end_all());
        put(&mut session, tree, b"other", &round.to_be_bytes());
        if let Ok(next) = next {
            engine.release(next);
        }
        session.maintain(64);
    }
}

#[test]
fn snapshots_that_keep_nothing_leave_no_trail() {
    let (clock, engine, _, _) = frozen(10);
    for _ in 0..5 * SNAPSHOTS_MAX {
        let snapshot = engine.freeze(clock.end_all()).unwrap();
        engine.release(snapshot);
        assert_eq!(engine.image_trees().len(), 1, "the oldest one's");
    }
}

#[test]
fn released_snapshots_that_are_not_merged_yet_are_bounded() {
    let (clock, engine, tree, mut session) = frozen(10);
    for made in 0.. {
        assert!(made <= 3 * SNAPSHOTS_MAX, "the list grows without bound");
        let Ok(snapshot) = engine.freeze(clock.end_all()) else {
            break;
        };
        put(&mut session, tree, &1_u32.to_be_bytes(), b"after");
        engine.release(snapshot);
    }
    while session.maintain(1000) > 0 {}
    engine.settle();
    assert_eq!(engine.image_trees().len(), 1);
    engine.freeze(clock.end_all()).unwrap();
}

/// Images are counted, shadows are no trees of the engine's figures, and all memory comes back.
#[test]
fn what_a_snapshot_keeps_is_counted_and_comes_back() {
    let (clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    for number in 0..1000_u32 {
        put(&mut session, tree, &number.to_be_bytes(), b"before");
    }
    let early = engine.freeze(clock.end_all()).unwrap();
    for number in 0..600_u32 {
        put(&mut session, tree, &number.to_be_bytes(), b"after");
    }
    let late = engine.freeze(clock.end_all()).unwrap();
    for number in 500..1000_u32 {
        remove(&mut session, tree, &number.to_be_bytes());
    }
    let counts = |at| engine.images(at).count;
    assert_eq!((counts(early), counts(late)), (600, 500));
    assert!(engine.images(late).bytes >= 500 * 17);
    assert_eq!(gauges(&engine)["trees"], 1);
    assert_eq!(gauges(&engine)["keys"], 500);
    // The later one's images that the older one holds are merged into it.
    engine.release(late);
    assert_eq!(counts(early), 1100, "until they are merged");
    while !engine.is_unsettled() {
        assert!(session.maintain(50) > 0);
    }
    engine.settle();
    assert_eq!(counts(early), 1000);
    let mut seen = 0;
    session.scan_at(
        early,
        tree,
        Bound::Unbounded,
        Direction::Forward,
        |_, value| {
            seen += usize::from(bytes_of(value.expect("all stand")) == b"before");
            ControlFlow::Continue(())
        },
    );
    assert_eq!(seen, 1000);
    session.get_at(early, Key::new(tree, b"never"), |value| {
        assert!(value.is_none());
    });
    engine.release(early);
    assert_eq!(engine.images(early), Images::default());
    assert!(engine.image_trees().is_empty());
    purge(&clock, &mut session);
    assert_eq!(gauges(&engine)["dropped_trees"], 0);
}
