//! What gets lose while the table expands (the paper's 9 %, §4.1).
//!
//! One thread reads uniformly chosen keys; another, the paper's expander thread, moves buckets
//! through `maintain`. Before and after, the other thread is there too and finds nothing to move,
//! so that both halves have the same processors to share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pando_engine::{Engine, Point};
use pando_mercury::{Locking, Mercury as MercuryEngine};

use super::targets::{Mercury, Target, Worker};
use super::{Shape, Small};

/// Gets between two looks at whether the phase is over.
const TURN: usize = 256;

/// How long the phases without a resize are.
const STEADY: Duration = Duration::from_millis(400);

fn gauge(engine: &MercuryEngine, name: &str) -> f64 {
    let mut all = HashMap::new();
    engine.gauges(&mut |gauge| {
        all.insert(gauge.name, gauge.value);
    });
    all.get(name).copied().unwrap_or(0.0)
}

/// Rounds of a measurement that is about nothing else; the first, whose memory is new to the
/// machine, does not count.
const ROUNDS: usize = 6;

/// What one round has found, in million gets a second.
struct Round {
    before: f64,
    during: f64,
    after: f64,
}

/// Prints the gets a second of one reader before, while and after a table of about `keys` keys
/// doubles: medians of some rounds, or of one if the memory was in use before.
pub(super) fn measure(locking: Locking, keys: u64, warm: bool) {
    let rounds: Vec<_> = if warm {
        vec![round(locking, keys)]
    } else {
        let rounds = (0..ROUNDS).map(|_| round(locking, keys));
        rounds.skip(1).collect()
    };
    let print = |what: &str, figure: fn(&Round) -> f64| {
        println!("{what} {}", median(rounds.iter().map(figure)));
    };
    print("gets before expansion", |round| round.before);
    print("gets during expansion", |round| round.during);
    print("gets after expansion", |round| round.after);
    print("during over before", |round| round.during / round.before);
    print("during over after", |round| round.during / round.after);
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn round(locking: Locking, keys: u64) -> Round {
    let target = Mercury::new(locking);
    let mut loader = target.worker();
    let mut count = 0;
    let mut put = |count: &mut u64| {
        loader.put(&Small::key(*count), &Small::value(*count));
        *count += 1;
    };
    while count < keys / 2 {
        put(&mut count);
    }
    drain(&target);
    // To a little below where the table grows.
    let full =
        gauge(&target.engine, "buckets") * pando_mercury::limits::ENTRIES_PER_BUCKET_MAX as f64;
    while (count as f64) < full * 0.97 {
        put(&mut count);
    }
    let before = phase(&target, count, false);
    while gauge(&target.engine, "resizing_tables") < 1.0 {
        for _ in 0..1_000 {
            put(&mut count);
        }
    }
    let during = phase(&target, count, true);
    let after = phase(&target, count, false);
    Round {
        before,
        during,
        after,
    }
}

fn drain(target: &Mercury) {
    let mut worker = target.worker();
    worker.settle();
}

/// Million gets a second, while another thread maintains until nothing is left to move, or for a
/// while if nothing is.
fn phase(target: &Mercury, count: u64, expands: bool) -> f64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut worker, mut random) = (target.worker(), Rng::with_seed(3));
            let (mut gets, mut wrong) = (0_u64, 0_u64);
            let started = Instant::now();
            while !over.load(Ordering::Relaxed) {
                worker.turn();
                for _ in 0..TURN {
                    let item = random.u64(1..count);
                    wrong += u64::from(worker.get(&Small::key(item)) != item);
                }
                gets += TURN as u64;
            }
            assert_eq!(wrong, 0, "every key is there throughout");
            gets as f64 / started.elapsed().as_secs_f64() / 1e6
        });
        let mut session = target.engine.session().expect("a session is free");
        let started = Instant::now();
        loop {
            let moved = session.maintain(64);
            let done = if expands {
                moved == 0
            } else {
                started.elapsed() > STEADY
            };
            if done {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader met every key")
    })
}
