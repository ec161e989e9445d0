//! What gets lose while the table expands (the paper's 9 %, §4.1).
//!
//! One thread reads uniformly chosen keys, without a pause from before the expansion until after
//! it; another, the paper's expander thread, moves buckets through `maintain`. Before and after, it
//! is there too and finds nothing to move, so that all phases have the same processors to share.
//!
//! The table is twice as large afterwards, which costs gets something by itself where it then fits
//! the caches less well; gets while it expands lie between the two, less what moving takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pando_engine::{Engine, Point};
use pando_mercury::Mercury as MercuryEngine;

use super::targets::{Mercury, Target, Worker};
use super::{Shape, Small};
use crate::locking::Locking;

/// Gets between two looks at whether the measurement is over.
const TURN: u64 = 256;

/// How long the phases without a resize are.
const STEADY: Duration = Duration::from_millis(400);

/// How long the reader runs before the first phase.
const WARM_UP: Duration = Duration::from_millis(100);

fn gauge(engine: &MercuryEngine, name: &str) -> f64 {
    let mut all = HashMap::new();
    engine.gauges(&mut |gauge| {
        all.insert(gauge.name, gauge.value);
    });
    all.get(name).copied().unwrap_or(0.0)
}

/// What one round has found: million gets a second, and how long the expansion took.
struct Round {
    before: f64,
    during: f64,
    after: f64,
    seconds: f64,
    buckets: f64,
}

/// Prints the gets a second of one reader before, while and after a table of about `keys` keys
/// doubles: medians of so many rounds after a first one, whose memory is new to the machine and
/// which does not count; of that one if the memory was in use before and no more are asked for.
pub(super) fn measure<L: Locking>(keys: u64, rounds: usize) {
    let uncounted = usize::from(rounds > 1);
    let rounds = (0..rounds + uncounted).map(|_| round::<L>(keys));
    let rounds: Vec<_> = rounds.skip(uncounted).collect();
    let print = |what: &str, figure: fn(&Round) -> f64| {
        println!("{what} {}", median(rounds.iter().map(figure)));
    };
    print("gets before expansion", |round| round.before);
    print("gets during expansion", |round| round.during);
    print("gets after expansion", |round| round.after);
    print("during over before", |round| round.during / round.before);
    print("during over after", |round| round.during / round.after);
    print("during over the mean of both", |round| {
        round.during * 2.0 / (round.before + round.after)
    });
    print("milliseconds of expansion", |round| round.seconds * 1e3);
    print("nanoseconds per bucket", |round| {
        round.seconds * 1e9 / round.buckets
    });
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn round<L: Locking>(keys: u64) -> Round {
    let target = Mercury::<L>::default();
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
    let buckets = gauge(&target.engine, "buckets");
    while (count as f64) < buckets * pando_mercury::limits::ENTRIES_PER_BUCKET_MAX as f64 * 0.97 {
        put(&mut count);
    }
    let reader = Reader::new(count);
    std::thread::scope(|scope| {
        scope.spawn(|| reader.run(&target));
        let over = Over(&reader);
        phase(&target, &reader, Some(WARM_UP));
        let (before, _) = phase(&target, &reader, Some(STEADY));
        while gauge(&target.engine, "resizing_tables") < 1.0 {
            for _ in 0..1_000 {
                put(&mut count);
            }
        }
        let moved = gauge(&target.engine, "moves_total");
        let (during, seconds) = phase(&target, &reader, None);
        let moved = gauge(&target.engine, "moves_total") - moved;
        let (after, _) = phase(&target, &reader, Some(STEADY));
        drop(over);
        Round {
            before,
            during,
            after,
            seconds,
            buckets: moved,
        }
    })
}

fn drain<L: Locking>(target: &Mercury<L>) {
    let mut worker = target.worker();
    worker.settle();
}

/// Maintains for a while, or until nothing is left to do: million gets a second of the reader
/// meanwhile, and how many seconds that was.
fn phase<L: Locking>(target: &Mercury<L>, reader: &Reader, lasts: Option<Duration>) -> (f64, f64) {
    let mut session = target.engine.session().expect("a session is free");
    let (gets, started) = (reader.gets.load(Ordering::Relaxed), Instant::now());
    loop {
        let done = session.maintain(64);
        if lasts.map_or(done == 0, |lasts| started.elapsed() > lasts) {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let gets = reader.gets.load(Ordering::Relaxed) - gets;
    (gets as f64 / seconds / 1e6, seconds)
}

/// The thread that gets keys all the time. Its fields lie apart from what else the phases write.
#[repr(align(128))]
struct Reader {
    keys: u64,
    gets: AtomicU64,
    over: AtomicBool,
}

impl Reader {
    fn new(keys: u64) -> Self {
        Self {
            keys,
            gets: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn run<L: Locking>(&self, target: &Mercury<L>) {
        let (mut worker, mut random) = (target.worker(), Rng::with_seed(3));
        let (mut gets, mut wrong) = (0, 0);
        while !self.over.load(Ordering::Relaxed) {
            worker.turn();
            for _ in 0..TURN {
                let item = random.u64(1..self.keys);
                wrong += u64::from(worker.get(&Small::key(item)) != item);
            }
            gets += TURN;
            self.gets.store(gets, Ordering::Relaxed);
        }
        assert_eq!(wrong, 0, "every key is there throughout");
    }
}

/// Ends the reader, whatever ends the phases.
struct Over<'r>(&'r Reader);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}
