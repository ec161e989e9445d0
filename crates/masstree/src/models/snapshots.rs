//! Snapshots: the image of a value beside its readers, and freezing beside a writer. On the whole
//! engine, since a snapshot is of all its trees.

use std::ops::{Bound, ControlFlow};

use pando_chassis::SnapshotFault;
use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook,
    OrderedAt, Point, ReadAt, Snapshot, Snapshots, TreeId, ValueRef,
};
use pando_sync::shim::modelled::Mutex;

use super::{Arc, AtomicUsize, EXECUTIONS_MIN, Ordering, PREEMPTIONS_MAX, say_panics_shortly};
use crate::{Masstree, MasstreeSession, Options, Pages};

const KEY: &[u8] = b"k";

/// The first epoch of a model, in which everything stands that was there before.
const BEFORE: Snapshot = Snapshot::of_epoch(LogEpoch(1));

loom::lazy_static! {
    /// The gate of whoever changes something, and all gates of who freezes.
    static ref GATE: Mutex<()> = Mutex::new(());
}

/// What one thread of a model does.
type Part = fn(&mut MasstreeSession, TreeId);

fn put(session: &mut MasstreeSession, tree: TreeId, value: u8) {
    let bytes = [value];
    session.update(Key::new(tree, KEY), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(&bytes)))
    });
}

fn number_of(value: ValueRef<'_>) -> u8 {
    let BodyRef::String(string) = value.body else {
        panic!("a string was put");
    };
    string.as_flat().expect("it is short")[0]
}

fn get_at(session: &mut MasstreeSession, at: Snapshot, tree: TreeId) -> Option<u8> {
    session.get_at(at, Key::new(tree, KEY), |value| value.map(number_of))
}

fn scan_at(session: &mut MasstreeSession, at: Snapshot, tree: TreeId) -> Vec<u8> {
    let mut shown = Vec::new();
    let all = Bound::Unbounded;
    session.scan_at(at, tree, all, Direction::Forward, |_, value| {
        shown.extend(value.map(number_of));
        ControlFlow::Continue(())
    });
    shown
}

/// Puts a value, lets `prepare` go on from there, then runs a writer beside a reader.
fn beside(
    prepare: impl Fn(&mut MasstreeSession, &EpochClock) + Send + Sync + 'static,
    write: Part,
    read: Part,
    after: Part,
) {
    say_panics_shortly();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.max_branches = 10_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let options = Options {
            pages: Pages::Small,
            ..Options::default()
        };
        let Ok(engine) = Masstree::open(Arc::clone(&clock), options);
        let tree = engine.create_tree();
        let mut writer = engine.session().expect("a session");
        let mut reader = engine.session().expect("a session");
        put(&mut writer, tree, 2);
        prepare(&mut writer, &clock);
        let reading = loom::thread::spawn(move || {
            read(&mut reader, tree);
            reader
        });
        write(&mut writer, tree);
        drop(reading.join().unwrap());
        after(&mut writer, tree);
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(
        executions > EXECUTIONS_MIN,
        "only {executions} interleavings"
    );
}

/// A value is replaced while it is read as it was.
fn replace_beside_reader(fault: Option<SnapshotFault>, read: Part) {
    beside(
        move |session, clock| {
            let frozen = session.engine.freeze(clock.end_all());
            assert_eq!(frozen.expect("the first one"), BEFORE);
            if let Some(fault) = fault {
                session.engine.snapshots.plant(fault);
                // A broken engine is not to be taken apart while the failure unwinds.
                std::mem::forget(Arc::clone(&session.engine));
            }
        },
        |session, tree| put(session, tree, 3),
        read,
        |session, tree| {
            assert_eq!(get_at(session, BEFORE, tree), Some(2));
            let now = session.get(Key::new(tree, KEY), |value| value.map(number_of));
            assert_eq!(now, Some(3));
        },
    );
}

/// SI1 image-first, SI2 tree-then-shadows.
#[test]
fn a_value_that_is_replaced_stays_readable_at_its_snapshot() {
    replace_beside_reader(None, |session, tree| {
        assert_eq!(get_at(session, BEFORE, tree), Some(2), "as it was");
    });
}

#[test]
fn a_value_that_is_replaced_stays_listed_at_its_snapshot() {
    replace_beside_reader(None, |session, tree| {
        assert_eq!(scan_at(session, BEFORE, tree), [2], "as it was");
    });
}

#[test]
#[should_panic(expected = "as it was")]
fn the_model_catches_an_image_after_publication() {
    replace_beside_reader(Some(SnapshotFault::ImageLate), |session, tree| {
        assert_eq!(get_at(session, BEFORE, tree), Some(2), "as it was");
    });
}

/// A writer replaces a value twice while a snapshot is made, which shows the value that was there.
fn freeze_beside_writer(freeze: Part) {
    beside(
        |_, _| {},
        |session, tree| {
            for value in [3, 4] {
                let _gate = GATE.lock();
                put(session, tree, value);
            }
        },
        freeze,
        |_, _| {},
    );
}

/// Makes a snapshot and looks twice at what it shows, then and when the writer may have gone on.
fn freeze(session: &mut MasstreeSession, tree: TreeId, exclude: bool) {
    let gate = exclude.then(|| GATE.lock());
    let epoch = session.engine.clock.end_all();
    let at = session.engine.freeze(epoch).expect("the first one");
    let first = get_at(session, at, tree);
    drop(gate);
    assert!(first.is_some(), "it was there throughout");
    assert_eq!(get_at(session, at, tree), first, "it stands");
}

/// SN2 frozen-epoch: no value changes that a snapshot shows.
#[test]
fn what_a_snapshot_shows_stands() {
    freeze_beside_writer(|session, tree| freeze(session, tree, true));
}

#[test]
#[should_panic(expected = "it ")]
fn the_model_catches_a_list_that_is_changed_beside_a_writer() {
    freeze_beside_writer(|session, tree| freeze(session, tree, false));
}
