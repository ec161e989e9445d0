//! Updates per second of one session and of two, in one tree of an engine: values that are
//! replaced, and keys that come anew. An epoch is committed every few milliseconds.
//!
//! `cargo run --release -p pando-cdds --example writers`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pando_cdds::{Cdds, Options};
use pando_engine::{
    Attributes, Body, Decision, Engine, EpochClock, Key, NewValue, NoHook, Point, TreeId,
};

const PAIRS: u64 = 1_000_000;
const TIME: Duration = Duration::from_millis(800);
const ROUNDS: usize = 5;

/// What chooses a thread's keys.
type Choice = Box<dyn FnMut() -> u64 + Send>;

fn key(number: u64) -> [u8; 8] {
    // In no order.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Updates until the time is over, of keys that `next` chooses; how many.
fn write(engine: &Arc<Cdds>, tree: TreeId, mut next: impl FnMut() -> u64) -> u64 {
    let mut session = engine.session().expect("few sessions");
    let (begin, mut updates) = (Instant::now(), 0);
    while begin.elapsed() < TIME {
        session.pin();
        for _ in 0..32 {
            let bytes = key(next());
            let new = || NewValue {
                attributes: Attributes::default(),
                ..NewValue::new(Body::string(b"8 bytes!"))
            };
            session.update(Key::new(tree, &bytes), &mut NoHook, |_| {
                Decision::Write(new())
            });
        }
        session.unpin();
        updates += 32;
    }
    updates
}

/// Updates per second of so many threads, with a commit every few milliseconds.
fn measure(engine: &Arc<Cdds>, tree: TreeId, threads: u64, next: &dyn Fn(u64) -> Choice) -> f64 {
    let is_over = AtomicBool::new(false);
    let updates: u64 = thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = engine.session().expect("few sessions");
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
                session.maintain(1000);
            }
        });
        let spawn = |thread| {
            let next = next(thread);
            scope.spawn(move || write(engine, tree, next))
        };
        let writers: Vec<_> = (0..threads).map(spawn).collect();
        let updates = writers.into_iter().map(thread::ScopedJoinHandle::join);
        let updates = updates.map(|updates| updates.expect("no panic")).sum();
        is_over.store(true, Ordering::Relaxed);
        updates
    });
    updates as f64 / TIME.as_secs_f64()
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let options = Options {
        bytes: 4 << 30,
        ..Options::default()
    };
    let engine = Cdds::open(Arc::new(EpochClock::self_driven()), options).expect("a pool");
    let tree = engine.create_tree();
    let mut loaded = 0;
    let load = Box::new(move || {
        loaded += 1;
        loaded % PAIRS
    });
    write(&engine, tree, load);
    let replace = |thread: u64| -> Choice {
        let mut random = thread;
        Box::new(move || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 20) % PAIRS
        })
    };
    let came = Arc::new(AtomicU64::new(PAIRS));
    let insert = |_: u64| -> Choice {
        let came = Arc::clone(&came);
        let mut range = 0..0;
        Box::new(move || {
            range.next().unwrap_or_else(|| {
                let first = came.fetch_add(1000, Ordering::Relaxed);
                range = first + 1..first + 1000;
                first
            })
        })
    };
    let kinds: [(&str, &dyn Fn(u64) -> Choice); 2] = [("replaced", &replace), ("new", &insert)];
    for (what, next) in kinds {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            one.push(measure(&engine, tree, 1, next));
            two.push(measure(&engine, tree, 2, next));
        }
        let (one, two) = (median(&mut one), median(&mut two));
        println!(
            "{what}: {one:.0} updates/s of one thread, {two:.0} of two: {:.2} times",
            two / one
        );
    }
}
