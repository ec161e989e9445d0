//! What Minuet's collection costs: how long everybody waits for a turn of it, and what it frees in
//! a second of them, after a branch was dropped that had changed keys all over the tree.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use hdrhistogram::Histogram;
use pando_engine::{Body, Decision, Engine, EpochClock, Key, NewValue, NoHook, Point, TreeId};
use pando_minuet::BranchId;
use pando_minuet::engine::{From, Minuet, Options};
use pando_minuet::limits::DESCENDANTS_MAX;

use super::EmbeddedError;
use crate::arguments::count;

/// Steps of a turn, as the server's maintenance takes them.
const STEPS: usize = 256;

/// One engine, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct CollectionOptions {
    /// Keys of 14 bytes.
    #[arg(long, value_parser = count)]
    keys: usize,
    /// Those that the branch changes, at random.
    #[arg(long, value_parser = count)]
    changed: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn put(session: &mut impl Point, tree: TreeId, number: usize, value: usize) {
    let (key, value) = (format!("user{number:010}"), value.to_le_bytes());
    session.update(Key::new(tree, key.as_bytes()), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(&value)))
    });
}

fn gauge(engine: &Minuet, wanted: &str) -> f64 {
    let mut found = 0.0;
    engine.gauges(&mut |gauge| {
        if gauge.name == wanted {
            found = gauge.value;
        }
    });
    found
}

/// Measures what `options` name, in this process.
pub(crate) fn run_collection(options: &CollectionOptions) -> Result<(), EmbeddedError> {
    let clock = Arc::new(EpochClock::self_driven());
    let engine = Minuet::open(clock, Options::default());
    let engine = engine.expect("default options suit everywhere");
    let mut session = engine.session().expect("the only one");
    let tree = engine.create_tree();
    for number in 0..options.keys {
        put(&mut session, tree, number, number);
    }
    let from = From::Branch(BranchId::FIRST);
    let made = engine.create_branch(b"trial", from, DESCENDANTS_MAX);
    let branch = made.expect("there is room for it");
    let there = engine.branch_tree(branch, tree, options.keys as u64);
    let mut rng = fastrand::Rng::with_seed(options.seed);
    for _ in 0..options.changed {
        put(&mut session, there, rng.usize(..options.keys), options.keys);
    }
    while session.maintain(STEPS) > 0 {}
    let before = gauge(&engine, "collected_pages_total");
    engine.drop_branch(b"trial").expect("it is there");
    engine.drop_tree(there);
    let mut turns = Histogram::<u64>::new(3).expect("three digits");
    let mut seconds = 0.0;
    loop {
        let began = Instant::now();
        let steps = session.maintain(STEPS);
        let took = began.elapsed();
        if steps == 0 {
            break;
        }
        seconds += took.as_secs_f64();
        turns.record(took.as_nanos() as u64).expect("it grows");
    }
    let pages = gauge(&engine, "collected_pages_total") - before;
    assert!(pages > 0.0, "a branch has pages of its own");
    let micros = |nanos: u64| nanos as f64 / 1e3;
    println!("turns {}", turns.len());
    println!(
        "a turn, median, us {}",
        micros(turns.value_at_quantile(0.5))
    );
    println!("a turn, p99, us {}", micros(turns.value_at_quantile(0.99)));
    println!("a turn, longest, us {}", micros(turns.max()));
    println!("pages freed {pages}");
    println!(
        "million bytes freed a second {}",
        pages * 4096.0 / 1e6 / seconds
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dropped_branch_had_is_freed() {
        let options = CollectionOptions {
            keys: 5000,
            changed: 500,
            seed: 1,
        };
        assert!(run_collection(&options).is_ok());
    }
}
