//! Models for loom: the real engine on tables of one and two buckets and lines of two slots, every
//! interleaving of two threads up to a bound of preemptions. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pando-mercury --release --lib`.
//!
//! A table of one bucket overflows at the third key and begins to grow; the next insert moves the
//! bucket and ends the resize. So one insert is a change of state, the next a move and the other
//! change of state.

mod snapshots;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_engine::{
    Body, BodyRef, Decision, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, TreeId,
    ValueRef, Walk,
};

use crate::canary::Fault;
use crate::{Mercury, MercurySession, Options, Pages};

/// Preemptions per execution: the races of two threads on one bucket show with two.
const PREEMPTIONS_MAX: usize = 2;

/// Steps of one execution: the setup of a model takes many, all of one thread.
const BRANCHES_MAX: usize = 10_000;

/// Fewer executions than this mean that the model did not see the bucket's atomics.
const EXECUTIONS_MIN: usize = 10;

fn put(session: &mut MercurySession, tree: TreeId, key: &[u8], value: u8) {
    let bytes = [value];
    session.update(Key::new(tree, key), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(&bytes)))
    });
}

fn number_of(value: ValueRef<'_>) -> u8 {
    let BodyRef::String(string) = value.body else {
        panic!("a string was put");
    };
    string.as_flat().expect("it is short")[0]
}

fn get(session: &mut MercurySession, tree: TreeId, key: &[u8]) -> Option<u8> {
    session.get(Key::new(tree, key), |value| value.map(number_of))
}

fn add_one(session: &mut MercurySession, tree: TreeId, key: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |old| {
        let number = old.map_or(0, number_of) + 1;
        Decision::Write(NewValue::new(Body::string_owned(vec![number])))
    });
}

/// Panics print the failure only: a backtrace needs more stack than loom's threads have.
fn say_panics_shortly() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}

/// Puts `before` (each key as its first byte), then runs `left` and `right` concurrently, and
/// `after` at the end.
fn model(
    fault: Option<Fault>,
    before: &'static [&'static [u8]],
    left: fn(&mut MercurySession, TreeId),
    right: fn(&mut MercurySession, TreeId),
    after: fn(&mut MercurySession, TreeId),
) {
    let prepare = move |session: &mut MercurySession, tree: TreeId, _: &EpochClock| {
        for key in before {
            put(session, tree, key, key[0]);
        }
    };
    model_of(fault, prepare, left, right, after);
}

/// Like [`model`], for a tree that `prepare` has set up.
fn model_of(
    fault: Option<Fault>,
    prepare: impl Fn(&mut MercurySession, TreeId, &EpochClock) + Send + Sync + 'static,
    left: fn(&mut MercurySession, TreeId),
    right: fn(&mut MercurySession, TreeId),
    after: fn(&mut MercurySession, TreeId),
) {
    say_panics_shortly();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.max_branches = BRANCHES_MAX;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            pages: Pages::Small,
            ..Options::default()
        };
        let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let Ok(engine) = Mercury::open(Arc::clone(&clock), options);
        let tree = engine.create_tree();
        let mut one = engine.session().expect("a session");
        let mut other = engine.session().expect("a session");
        prepare(&mut one, tree, &clock);
        if let Some(fault) = fault {
            let found = engine.directory.find(tree.0).expect("just made");
            found.canary.plant(fault);
            // A broken tree must not be torn down while the failure unwinds.
            std::mem::forget(Arc::clone(&engine));
        }
        let beside = loom::thread::spawn(move || {
            right(&mut other, tree);
            other
        });
        left(&mut one, tree);
        drop(beside.join().unwrap());
        after(&mut one, tree);
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(
        executions > EXECUTIONS_MIN,
        "only {executions} interleavings"
    );
}

#[test]
fn the_bucket_lock_loses_no_update() {
    model(
        None,
        &[b"\x02"],
        |session, tree| add_one(session, tree, b"\x02"),
        |session, tree| add_one(session, tree, b"\x02"),
        |session, tree| assert_eq!(get(session, tree, b"\x02"), Some(4)),
    );
}

/// HR1 next-once, HR2 marked-when-moved, HR5 shared-locks: a table begins to grow and the move
/// follows, concurrently with a reader.
fn read_beside_a_move(fault: Option<Fault>, reader: fn(&mut MercurySession, TreeId)) {
    model(
        fault,
        &[b"\x01", b"\x02"],
        |session, tree| {
            put(session, tree, b"\x03", 3);
            put(session, tree, b"\x04", 4);
        },
        reader,
        |session, tree| {
            for key in 1..=4 {
                assert_eq!(get(session, tree, &[key]), Some(key));
            }
        },
    );
}

fn reads_the_first(session: &mut MercurySession, tree: TreeId) {
    assert_eq!(get(session, tree, b"\x01"), Some(1), "there throughout");
}

#[test]
fn a_reader_misses_nothing_while_a_bucket_moves() {
    read_beside_a_move(None, reads_the_first);
}

/// HR2 marked-when-moved: the same for a reader that takes the bucket's lock.
#[test]
fn a_locking_reader_misses_nothing_while_a_bucket_moves() {
    read_beside_a_move(None, |session, tree| {
        let key = Key::new(tree, b"\x01");
        let is_there = session.get_locked(key, |value| value.is_some());
        assert!(is_there, "there throughout");
    });
}

#[test]
#[should_panic(expected = "there throughout")]
fn the_model_catches_a_mark_before_the_entries() {
    read_beside_a_move(Some(Fault::MarkEarly), reads_the_first);
}

/// HR4 old-table-outlives-pins: a reader began in a table that ceases to be current and is freed
/// meanwhile.
fn read_beside_the_end(fault: Option<Fault>) {
    model(
        fault,
        &[b"\x01", b"\x02", b"\x03"],
        |session, tree| {
            put(session, tree, b"\x04", 4);
            session.maintain(8);
        },
        |session, tree| {
            assert_eq!(get(session, tree, b"\x01"), Some(1), "there throughout");
        },
        |session, tree| {
            while session.maintain(8) > 0 {}
            assert_eq!(get(session, tree, b"\x04"), Some(4));
        },
    );
}

#[test]
fn a_table_stays_until_its_readers_have_gone() {
    read_beside_the_end(None);
}

#[test]
#[should_panic(expected = "the table is in use")]
fn the_model_catches_a_table_that_is_freed_early() {
    read_beside_the_end(Some(Fault::FreeTableEarly));
}

fn write_beside_a_move(fault: Option<Fault>) {
    model(
        fault,
        &[b"\x01", b"\x02", b"\x03"],
        |session, tree| put(session, tree, b"\x04", 4),
        |session, tree| add_one(session, tree, b"\x01"),
        |session, tree| {
            assert_eq!(get(session, tree, b"\x01"), Some(2), "the write is kept");
        },
    );
}

/// HR2 marked-when-moved: a writer that waits for a moving bucket continues in the next table.
#[test]
fn no_write_is_lost_to_a_move() {
    write_beside_a_move(None);
}

#[test]
#[should_panic(expected = "the write is kept")]
fn the_model_catches_a_writer_that_ignores_the_mark() {
    write_beside_a_move(Some(Fault::IgnoreMoved));
}

/// HR3 one-mover: two threads that both insert into a table that grows move its buckets once.
#[test]
fn two_helpers_move_a_table_once() {
    model(
        None,
        &[b"\x01", b"\x02", b"\x03"],
        |session, tree| put(session, tree, b"\x04", 4),
        |session, tree| put(session, tree, b"\x05", 5),
        |session, tree| {
            for key in 1..=5 {
                assert_eq!(get(session, tree, &[key]), Some(key));
            }
        },
    );
}

/// HW2 moved-from-next: a walk during a move shows every key that is present throughout.
#[test]
fn a_walk_misses_nothing_while_a_bucket_moves() {
    model(
        None,
        &[b"\x01", b"\x02", b"\x03"],
        |session, tree| put(session, tree, b"\x04", 4),
        |session, tree| {
            let (mut cursor, mut seen) = (0, [false; 8]);
            loop {
                cursor = session.walk(tree, cursor, |key, _| seen[usize::from(key[0])] = true);
                if cursor == 0 {
                    break;
                }
            }
            assert!(seen[1] && seen[2] && seen[3], "there throughout");
        },
        |_, _| {},
    );
}

/// Grows a table to two buckets and leaves one key in it, 1: it has begun to shrink.
fn prepare_to_shrink(session: &mut MercurySession, tree: TreeId, clock: &EpochClock) {
    for key in 1..=4 {
        put(session, tree, &[key], key);
    }
    // The table of one bucket is freed: that step is not one of those that the model counts.
    while session.maintain(8) > 0 {}
    for key in 2..=4 {
        session.update(Key::new(tree, &[key]), &mut NoHook, |_| Decision::Remove);
    }
    clock.set_horizon(clock.tick());
    // Three tombstones are purged, and no step is left to move a bucket.
    assert_eq!(session.maintain(3), 3);
}

fn write_beside_a_merge(fault: Option<Fault>) {
    model_of(
        fault,
        prepare_to_shrink,
        |session, _| {
            assert_eq!(session.maintain(2), 2, "both buckets move");
        },
        |session, tree| {
            add_one(session, tree, b"\x01");
            assert_eq!(get(session, tree, b"\x01"), Some(2), "the write is kept");
        },
        |session, tree| assert_eq!(get(session, tree, b"\x01"), Some(2), "the write is kept"),
    );
}

/// HR1 next-once, HR2 marked-when-moved: two buckets become one, concurrently with a writer and a
/// reader of their keys.
#[test]
fn nothing_is_lost_while_a_table_shrinks() {
    write_beside_a_merge(None);
}

#[test]
#[should_panic(expected = "the write is kept")]
fn the_model_of_a_merge_catches_a_writer_that_ignores_the_mark() {
    write_beside_a_merge(Some(Fault::IgnoreMoved));
}

/// HW2 moved-from-next: the same concurrently with a walk.
#[test]
fn a_walk_misses_nothing_while_a_table_shrinks() {
    model_of(
        None,
        prepare_to_shrink,
        |session, _| {
            session.maintain(2);
        },
        |session, tree| {
            let (mut cursor, mut seen) = (0, false);
            loop {
                cursor = session.walk(tree, cursor, |key, _| seen |= key == b"\x01");
                if cursor == 0 {
                    break;
                }
            }
            assert!(seen, "there throughout");
        },
        |_, _| {},
    );
}
