//! Masstree's own workload `rw1` through the engine contract: puts of decimal strings of random
//! 31-bit numbers into an empty tree, then gets, batched gets and scans of them.
//!
//! `cargo run --release -p pando-masstree --example rw1 -- [keys] [small]`; `small` asks for
//! ordinary pages instead of huge ones. Prints one line per phase.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook,
    Ordered, Point, TreeId, ValueRef,
};
use pando_masstree::{Masstree, MasstreeSession, Options, Pages};

const BATCH_KEYS: usize = 32;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments
        .next()
        .map_or(1_000_000, |text| text.parse().expect("a number of keys"));
    let small = arguments.next().is_some_and(|text| text == "small");
    let pages = if small { Pages::Small } else { Pages::Huge };
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let Ok(engine) = Masstree::open(
        clock,
        Options {
            pages,
            ..Options::default()
        },
    );
    let tree = engine.create_tree();
    let mut session = engine.session().expect("the first session");
    let mut random = fastrand::Rng::with_seed(31_415);
    let mut numbers: Vec<u32> = (0..count).map(|_| random.u32(..1 << 31)).collect();
    let before = resident_bytes();
    phase("put", count, || put_all(&mut session, tree, &numbers));
    let grown = resident_bytes().saturating_sub(before);
    let keys = engine.len(tree);
    println!(
        "{keys} keys, {:.1} bytes of RSS per key",
        grown as f64 / keys as f64
    );
    random.shuffle(&mut numbers);
    phase("get", count, || get_all(&mut session, tree, &numbers));
    phase("get_many", count, || {
        get_all_in_batches(&mut session, tree, &numbers);
    });
    let scans = count / 100;
    for direction in [Direction::Forward, Direction::Backward] {
        phase("scan of 100", scans * 100, || {
            scan_from(&mut session, tree, &numbers[..scans], direction);
        });
    }
    engine.gauges(&mut |gauge| println!("{} {}", gauge.name, gauge.value));
    // The process ends here; giving every block back first would only take time.
    std::mem::forget((session, engine));
}

fn phase(name: &str, operations: usize, run: impl FnOnce()) {
    let (start, cpu_start) = (Instant::now(), cpu_seconds());
    run();
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_start);
    let rate = |seconds: f64| operations as f64 / seconds / 1e6;
    println!(
        "{name}: {:.3} M/s, {:.3} M per second of CPU",
        rate(seconds),
        rate(cpu)
    );
}

/// Seconds that this thread has been on a processor: what a busy machine leaves comparable.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    nanoseconds.expect("nanoseconds on a processor") / 1e9
}

/// The decimal digits of `number`, written into `digits`.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

fn sum_of(value: Option<ValueRef<'_>>) -> u64 {
    match value.map(|value| value.body) {
        Some(BodyRef::String(string)) => {
            let bytes = string.as_flat().expect("eight bytes are flat");
            bytes.iter().map(|byte| u64::from(*byte)).sum()
        }
        _ => panic!("every key that is asked for was put"),
    }
}

fn put_all(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32]) {
    let mut digits = [0; 10];
    for batch in numbers.chunks(BATCH_KEYS) {
        session.pin();
        for number in batch {
            let value = u64::from(*number).to_be_bytes();
            let key = Key::new(tree, decimal(*number, &mut digits));
            session.update(key, &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(&value)))
            });
        }
        session.unpin();
    }
}

fn get_all(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32]) {
    let mut digits = [0; 10];
    let mut sum = 0;
    for batch in numbers.chunks(BATCH_KEYS) {
        session.pin();
        for number in batch {
            let key = Key::new(tree, decimal(*number, &mut digits));
            sum += session.get(key, sum_of);
        }
        session.unpin();
    }
    std::hint::black_box(sum);
}

fn get_all_in_batches(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32]) {
    let mut digits = [[0; 10]; BATCH_KEYS];
    let mut sum = 0;
    for batch in numbers.chunks(BATCH_KEYS) {
        let mut keys = [Key::new(tree, &[]); BATCH_KEYS];
        for ((key, number), digits) in keys.iter_mut().zip(batch).zip(&mut digits) {
            key.bytes = decimal(*number, digits);
        }
        session.get_many(&keys[..batch.len()], |_, value| sum += sum_of(value));
    }
    std::hint::black_box(sum);
}

fn scan_from(session: &mut MasstreeSession, tree: TreeId, numbers: &[u32], direction: Direction) {
    let mut digits = [0; 10];
    let mut sum = 0;
    for number in numbers {
        let mut left = 100;
        let from = Bound::Included(decimal(*number, &mut digits));
        session.scan(tree, from, direction, |key, value| {
            sum += sum_of(Some(value)) + u64::from(key[0]);
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    std::hint::black_box(sum);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a process has RSS");
    let kib = line
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse::<u64>().ok());
    kib.expect("a figure in KiB") * 1024
}
