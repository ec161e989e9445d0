//! How long collection holds others up: one turn of it, after a snapshot of all pairs was dropped,
//! after the tree was; and updates that take blocks which became free.
//!
//! A turn has the tree for itself, so it is a pause for everybody. Blocks are not looked for in
//! turns: an update that finds none at hand looks through one chunk. A commit ends an epoch after
//! each turn, as a server does it, and is a pause of its own.

use std::sync::Arc;
use std::time::Instant;

use pando_cdds::{Cdds, CddsSession};
use pando_engine::{
    Body, Decision, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, Snapshots,
};

use super::{Options, Outcome, make_key};

/// Steps of a turn, as the server has it (`MAINTAIN_STEPS_MAX` of `pando-db`).
const STEPS: usize = 256;

/// Updates between two turns.
const UPDATES: usize = 32;

/// Turns after a snapshot was dropped: the first ones end its epochs.
const TURNS: usize = 8;

/// Microseconds that one call takes.
fn timed(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_nanos() as f64 / 1e3
}

/// Prints the median, the 99th percentile and the longest of some times.
fn tell(what: &str, mut micros: Vec<f64>) {
    micros.sort_by(f64::total_cmp);
    let at = |share: usize| micros[(micros.len() - 1) * share / 100];
    println!(
        "{what:<44} {:>9} {:>8.1} {:>8.1} {:>8.1}",
        micros.len(),
        at(50),
        at(99),
        at(100)
    );
}

pub(super) fn run(options: &Options) -> Outcome<()> {
    let bytes = u64::from(options.pairs) * (options.value_bytes as u64 * 3 + 1024);
    let place = pando_cdds::Options {
        bytes: bytes.next_multiple_of(1 << 20).max(64 << 20),
        ..pando_cdds::Options::default()
    };
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let engine = Cdds::open(Arc::clone(&clock), place)?;
    let tree = engine.create_tree();
    let mut session = engine.session().expect("few sessions");
    let value = vec![7; options.value_bytes];
    let update = |session: &mut CddsSession, number: u32| {
        session.update(Key::new(tree, &make_key(number)), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(&value)))
        });
    };
    // A turn, and the commit of the epoch that ends then.
    let turn = |session: &mut CddsSession, turns: &mut Vec<f64>, commits: &mut Vec<f64>| {
        let mut left = 0;
        turns.push(timed(|| left = session.maintain(STEPS)));
        let ended = LogEpoch(clock.tick().0 - 1);
        commits.push(timed(|| {
            engine.commit(ended).expect("there is room");
        }));
        left > 0
    };
    let mut commits = Vec::new();
    // Of all pairs, with a turn after every few: how long each of both takes.
    let mut pass = |session: &mut CddsSession| {
        let (mut updates, mut turns) = (Vec::new(), Vec::new());
        for number in 0..options.pairs {
            updates.push(timed(|| update(session, number)));
            if updates.len().is_multiple_of(UPDATES) {
                turn(session, &mut turns, &mut commits);
            }
        }
        turn(session, &mut turns, &mut commits);
        (updates, turns)
    };
    println!(
        "{:<44} {:>9} {:>8} {:>8} {:>8}",
        "collection, µs", "times", "p50", "p99", "longest"
    );
    tell("an update in fresh blocks", pass(&mut session).0);
    let snapshot = engine.freeze(clock.end_all()).expect("the first");
    let (updates, turns) = pass(&mut session);
    tell("… while a snapshot keeps the old ones", updates);
    tell("a turn meanwhile", turns);
    let waiting = engine.tally().waiting();
    engine.release(snapshot);
    let mut turns = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..TURNS {
        turn(&mut session, &mut turns, &mut ends);
    }
    tell("a turn after it was dropped", turns);
    let freed = (waiting - engine.tally().waiting()) >> 10;
    println!("… which together free {freed} KiB of {} KiB", waiting >> 10);
    let (updates, turns) = pass(&mut session);
    tell("an update in blocks that became free", updates);
    tell("a turn meanwhile", turns);
    engine.drop_tree(tree);
    let mut turns = Vec::new();
    while turn(&mut session, &mut turns, &mut ends) {}
    tell("a turn that frees keys of a dropped tree", turns);
    commits.append(&mut ends);
    tell("a commit after a turn", commits);
    Ok(())
}
