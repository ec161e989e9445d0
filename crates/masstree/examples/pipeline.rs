//! A pipeline of writes into one layer: keys behind a common prefix are put in batches, as a server
//! puts what its clients send at once, and then put and read in batches again.
//!
//! `cargo run --release -p pando-masstree --example pipeline -- [keys]`. Prints nanoseconds per
//! operation; under callgrind (`--toggle-collect='*overwrite*'`) instructions are counted.

use std::sync::Arc;
use std::time::Instant;

use pando_engine::{
    Body, Decision, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, TreeId,
};
use pando_masstree::{Masstree, MasstreeSession};

const BATCH_KEYS: usize = 32;

fn main() {
    let count = std::env::args().nth(1);
    let count: usize = count.map_or(1_000_000, |text| text.parse().expect("a number of keys"));
    let engine = Masstree::new(Arc::new(EpochClock::starting_at(LogEpoch(1))));
    let tree = engine.create_tree();
    let mut session = engine.session().expect("the first session");
    let mut random = fastrand::Rng::with_seed(31_415);
    let mut numbers: Vec<u32> = (0..count).map(|_| random.u32(..)).collect();
    phase("load", count, || put_all(&mut session, tree, &numbers));
    random.shuffle(&mut numbers);
    phase("overwrite", count, || {
        overwrite(&mut session, tree, &numbers);
    });
    random.shuffle(&mut numbers);
    phase("get", count, || get_all(&mut session, tree, &numbers));
}

fn phase(name: &str, operations: usize, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    let nanoseconds = start.elapsed().as_nanos() as f64 / operations as f64;
    println!("{name}: {nanoseconds:.1} ns");
}

#[inline(never)]
fn overwrite(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32]) {
    put_all(session, tree, numbers);
}

fn put_all(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32]) {
    in_batches(tree, numbers, |keys| {
        session.update_many(keys, &mut NoHook, |_, _| {
            Decision::Write(NewValue::new(Body::string(b"12345678")))
        });
    });
}

fn get_all(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32]) {
    let mut found = 0;
    in_batches(tree, numbers, |keys| {
        session.get_many(keys, |_, value| found += usize::from(value.is_some()));
    });
    assert_eq!(found, numbers.len(), "every key was put");
}

fn in_batches(tree: TreeId, numbers: &[u32], mut operate: impl FnMut(&[Key<'_>])) {
    let mut bytes = [*b"pipeline\0\0\0\0"; BATCH_KEYS];
    for batch in numbers.chunks(BATCH_KEYS) {
        for (bytes, number) in bytes.iter_mut().zip(batch) {
            bytes[8..].copy_from_slice(&number.to_be_bytes());
        }
        let mut keys = [Key::new(tree, &[]); BATCH_KEYS];
        for (key, bytes) in keys.iter_mut().zip(&bytes) {
            key.bytes = bytes;
        }
        operate(&keys[..batch.len()]);
    }
}
