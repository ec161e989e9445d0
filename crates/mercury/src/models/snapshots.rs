//! Snapshots: the image of a value under readers, and freezing concurrently with a writer.

use pando_chassis::SnapshotFault;
use pando_engine::{ReadAt, Snapshot, Snapshots};
use pando_sync::shim::modelled::Mutex;

use super::*;

const KEY: &[u8] = b"\x02";

/// The first epoch of a model: everything that existed before belongs to it.
const BEFORE: Snapshot = Snapshot::of_epoch(LogEpoch(1));

loom::lazy_static! {
    /// A writer's gate, and all gates for freezing.
    static ref GATE: Mutex<()> = Mutex::new(());
}

fn get_at(session: &mut MercurySession, at: Snapshot, tree: TreeId) -> Option<u8> {
    session.get_at(at, Key::new(tree, KEY), |value| value.map(number_of))
}

/// A value is replaced while its old version is read.
fn replace_beside_reader(fault: Option<SnapshotFault>) {
    model_of(
        None,
        move |session, tree, clock| {
            put(session, tree, KEY, 2);
            let frozen = session.engine.freeze(clock.end_all());
            assert_eq!(frozen.expect("the first one"), BEFORE);
            if let Some(fault) = fault {
                session.engine.snapshots.plant(fault);
                // A broken engine must not be torn down while the failure unwinds.
                std::mem::forget(Arc::clone(&session.engine));
            }
        },
        |session, tree| put(session, tree, KEY, 3),
        |session, tree| assert_eq!(get_at(session, BEFORE, tree), Some(2), "as it was"),
        |session, tree| {
            assert_eq!(get_at(session, BEFORE, tree), Some(2));
            assert_eq!(get(session, tree, KEY), Some(3));
        },
    );
}

/// SI1 image-first, SI2 tree-then-shadows.
#[test]
fn a_value_that_is_replaced_stays_readable_at_its_snapshot() {
    replace_beside_reader(None);
}

#[test]
#[should_panic(expected = "as it was")]
fn the_model_catches_an_image_after_publication() {
    replace_beside_reader(Some(SnapshotFault::ImageLate));
}

/// A writer replaces a value twice while a snapshot is made, which shows the value it froze.
fn freeze_beside_writer(freeze: fn(&mut MercurySession, TreeId)) {
    model_of(
        None,
        |session, tree, _| put(session, tree, KEY, 2),
        |session, tree| {
            for value in [3, 4] {
                let _gate = GATE.lock();
                put(session, tree, KEY, value);
            }
        },
        freeze,
        |_, _| {},
    );
}

/// Makes a snapshot and reads it twice, at once and when the writer may have continued.
fn freeze(session: &mut MercurySession, tree: TreeId, exclude: bool) {
    let gate = exclude.then(|| GATE.lock());
    let epoch = session.engine.clock.end_all();
    let at = session.engine.freeze(epoch).expect("the first one");
    let first = get_at(session, at, tree);
    drop(gate);
    assert!(first.is_some(), "it was there throughout");
    assert_eq!(get_at(session, at, tree), first, "it stands");
}

/// SN2 frozen-epoch: no value that a snapshot shows changes.
#[test]
fn what_a_snapshot_shows_stands() {
    freeze_beside_writer(|session, tree| freeze(session, tree, true));
}

#[test]
#[should_panic(expected = "it ")]
fn the_model_catches_a_list_that_is_changed_beside_a_writer() {
    freeze_beside_writer(|session, tree| freeze(session, tree, false));
}
