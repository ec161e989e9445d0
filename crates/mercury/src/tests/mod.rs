//! Tests of the whole engine: the conformance suite, tables that grow and shrink, planted faults.

mod canary;
mod forget;
mod resizing;
mod snapshots;
mod stress;

pando_engine::unordered_conformance_suite!(
    crate::Mercury,
    crate::MercurySession,
    emptying,
    restore,
    snapshots
);

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pando_engine::{
    Body, BodyRef, Decision, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, TreeId,
    ValueRef, ValueVersion, Walk,
};

use crate::{Mercury, MercurySession, Options, Pages};

/// An engine on ordinary pages, with its clock: a test touches little of a chunk.
fn engine() -> (Arc<EpochClock>, Arc<Mercury>) {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let options = Options {
        pages: Pages::Small,
        ..Options::default()
    };
    let Ok(engine) = Mercury::open(Arc::clone(&clock), options);
    (clock, engine)
}

fn number_of(value: ValueRef<'_>) -> u64 {
    let BodyRef::String(string) = value.body else {
        panic!("these tests store strings");
    };
    let bytes = string.to_cow();
    u64::from_le_bytes(bytes[..].try_into().expect("a number"))
}

fn put(session: &mut MercurySession, tree: TreeId, key: &[u8], value: u64) -> ValueVersion {
    let bytes = value.to_le_bytes();
    let written = session.update(Key::new(tree, key), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(&bytes)))
    });
    written.expect("a write draws a version")
}

fn remove(session: &mut MercurySession, tree: TreeId, key: &[u8]) -> Option<ValueVersion> {
    session.update(Key::new(tree, key), &mut NoHook, |_| Decision::Remove)
}

fn get(session: &mut MercurySession, tree: TreeId, key: &[u8]) -> Option<u64> {
    session.get(Key::new(tree, key), |value| value.map(number_of))
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Every key that a walk shows.
fn walked(session: &mut MercurySession, tree: TreeId) -> BTreeSet<Vec<u8>> {
    let (mut keys, mut cursor) = (BTreeSet::new(), 0);
    loop {
        cursor = session.walk(tree, cursor, |key, _| {
            keys.insert(key.to_vec());
        });
        if cursor == 0 {
            return keys;
        }
    }
}

/// Lets the horizon pass every tombstone and does all that is left to do.
fn settle(clock: &EpochClock, session: &mut MercurySession) {
    clock.set_horizon(clock.tick());
    while session.maintain(64) > 0 {}
}

fn gauges(engine: &Mercury) -> HashMap<&'static str, f64> {
    let mut all = HashMap::new();
    engine.gauges(&mut |gauge| {
        all.insert(gauge.name, gauge.value);
    });
    all
}
