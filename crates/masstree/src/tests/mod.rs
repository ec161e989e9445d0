//! Tests of the whole engine: against an ordered map, and shapes that the paper or the authors' own
//! code warn about.

mod canary;
mod forget;
mod oracle;
mod pack;
mod shapes;
mod snapshots;
mod stress;

pando_engine::conformance_suite!(crate::Masstree, emptying, restore, snapshots);

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    Body, BodyRef, Chunked, Decision, Direction, Engine, EpochClock, Hand, Key, LogEpoch, NewValue,
    NoHook, Ordered, Point, Pressure, StringRef, TreeId, ValueRef, ValueVersion,
};

use crate::{Masstree, MasstreeSession, Options, Pages};

/// An engine on ordinary pages, with its clock: a test touches little of a chunk.
fn engine() -> (Arc<EpochClock>, Arc<Masstree>) {
    engine_on(EpochClock::starting_at(LogEpoch(1)))
}

fn engine_on(clock: EpochClock) -> (Arc<EpochClock>, Arc<Masstree>) {
    let clock = Arc::new(clock);
    let options = Options {
        pages: Pages::Small,
        ..Options::default()
    };
    let Ok(engine) = Masstree::open(Arc::clone(&clock), options);
    (clock, engine)
}

fn bytes_of(value: ValueRef<'_>) -> Vec<u8> {
    match value.body {
        BodyRef::String(string) => string.to_cow().into_owned(),
        BodyRef::Row(..) => panic!("these tests store strings"),
    }
}

fn put(session: &mut MasstreeSession, tree: TreeId, key: &[u8], value: &[u8]) -> ValueVersion {
    let written = session.update(Key::new(tree, key), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(value)))
    });
    written.expect("a write draws a version")
}

fn remove(session: &mut MasstreeSession, tree: TreeId, key: &[u8]) -> Option<ValueVersion> {
    session.update(Key::new(tree, key), &mut NoHook, |_| Decision::Remove)
}

fn get(session: &mut MasstreeSession, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
    session.get(Key::new(tree, key), |value| value.map(bytes_of))
}

fn scan(
    session: &mut MasstreeSession,
    tree: TreeId,
    from: Bound<&[u8]>,
    direction: Direction,
    limit: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    session.scan(tree, from, direction, |key, value| {
        seen.push((key.to_vec(), bytes_of(value)));
        if seen.len() == limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    seen
}

/// Lets the horizon pass every tombstone and takes them all out.
fn purge(clock: &EpochClock, session: &mut MasstreeSession) {
    let horizon = clock.tick();
    clock.set_horizon(horizon);
    while session.maintain(64) > 0 {}
}

fn gauges(engine: &Masstree) -> HashMap<&'static str, i64> {
    let mut all = HashMap::new();
    engine.gauges(&mut |gauge| {
        all.insert(gauge.name, gauge.value as i64);
    });
    all
}
