//! What an engine's commands cost, for `valgrind --tool=callgrind --toggle-collect='*measured*'`:
//! loads keys in an order, then reads or replaces some of them; and bytes of the pool per key.
//!
//! `cargo run --release -p pando-cdds --example costs -- get|set|none [KEYS] [COMMANDS] [up|mixed]`

use std::hint::black_box;
use std::sync::Arc;

use pando_cdds::{Cdds, CddsSession, Options};
use pando_engine::{Body, Decision, Engine, EpochClock, Key, NewValue, NoHook, Point, TreeId};

/// Commands of a batch: a commit follows each in the load, a pin is held over each.
const BATCH: u64 = 32;

fn name(number: u64, is_mixed: bool) -> String {
    let number = if is_mixed {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_000_000_000
    } else {
        number
    };
    format!("key:{number:010}")
}

fn put(session: &mut CddsSession, tree: TreeId, key: &str) {
    session.update(Key::new(tree, key.as_bytes()), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(b"8 bytes!")))
    });
}

/// One batch, whose instructions are counted.
#[inline(never)]
fn measured_batch(session: &mut CddsSession, tree: TreeId, keys: &[String], is_get: bool) {
    session.pin();
    let named: Vec<_> = keys
        .iter()
        .map(|key| Key::new(tree, key.as_bytes()))
        .collect();
    session.warm(&named);
    for (index, key) in keys.iter().enumerate() {
        session.recall(index);
        if is_get {
            session.get(Key::new(tree, key.as_bytes()), |value| {
                black_box(value.is_some());
            });
        } else {
            put(session, tree, key);
        }
    }
    session.unpin();
}

/// What this thread has had of a core.
fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next().map(str::parse);
    first.and_then(Result::ok).unwrap_or(0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, otherwise: u64| {
        let given = arguments.get(index).map(|word| word.parse());
        given.map_or(otherwise, |number| number.expect("a number"))
    };
    let what = arguments.get(1).map_or("none", String::as_str);
    let (keys, commands) = (number(2, 100_000), number(3, 20_000));
    let is_mixed = arguments.get(4).is_some_and(|order| order == "mixed");
    let options = Options {
        bytes: (keys * 512).next_multiple_of(1 << 20).max(64 << 20),
        ..Options::default()
    };
    let engine = Cdds::open(Arc::new(EpochClock::self_driven()), options).expect("a pool");
    let tree = engine.create_tree();
    let mut session = engine.session().expect("few sessions");
    let before = engine.tally().taken();
    for number in 0..keys {
        put(&mut session, tree, &name(number, is_mixed));
        if number % 10_000 == 0 {
            session.maintain(1000);
        }
    }
    let (mut random, mut cpu) = (1_u64, 0);
    for _ in 0..commands / BATCH {
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            name((random >> 20) % keys, is_mixed)
        };
        let chosen: Vec<_> = (0..BATCH).map(|_| next()).collect();
        if what != "none" {
            let before = cpu_nanoseconds();
            measured_batch(&mut session, tree, &chosen, what == "get");
            cpu += cpu_nanoseconds() - before;
        }
        session.maintain(0);
    }
    // Collects what waits.
    for _ in 0..100 {
        session.maintain(1000);
    }
    let bytes = engine.tally().taken() - before;
    println!(
        "{keys} keys: {:.1} bytes of the pool each, {} bytes wait",
        bytes as f64 / keys as f64,
        engine.tally().waiting()
    );
    println!("{} ns of CPU for each command", cpu / commands.max(1));
}
