//! What a snapshot costs those who write after it, by the real clock: updates in one process, by
//! tenths of a second, and when they are as fast again as before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use pando_engine::{
    Body, Decision, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, Snapshots, TreeId,
};
use pando_masstree::Masstree;
use pando_minuet::engine::Minuet;

use super::EmbeddedError;
use crate::arguments::count;

/// What the figures are called.
pub(crate) const BACK: &str = "seconds until back at 95 %";
pub(crate) const LEAST: &str = "least, of the rate before";
pub(crate) const BEFORE: &str = "updates before, million/s";

/// A part of the time.
const PART: Duration = Duration::from_millis(100);
/// Parts before the snapshot, and behind it.
const PARTS_BEFORE: usize = 20;
const PARTS_AFTER: usize = 60;
/// It is back when so many parts have what `BACK` says, on average.
const STEADY: usize = 5;
/// Updates between two looks at whether a snapshot is to be made.
const BATCH: usize = 64;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineName {
    Masstree,
    Minuet,
}

/// One engine, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct AftermathOptions {
    #[arg(long, value_enum)]
    engine: EngineName,
    /// Keys of 14 bytes.
    #[arg(long, value_parser = count)]
    keys: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures the engine that `options` name, in this process.
pub(crate) fn run_aftermath(options: &AftermathOptions) -> Result<(), EmbeddedError> {
    match options.engine {
        EngineName::Masstree => measure::<Masstree>(options),
        EngineName::Minuet => measure::<Minuet>(options),
    }
    Ok(())
}

fn put<S: Point>(session: &mut S, tree: TreeId, number: u64, value: u64) {
    let (key, value) = (format!("user{number:010}"), value.to_le_bytes());
    session.update(Key::new(tree, key.as_bytes()), &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(&value)))
    });
}

fn measure<E: Snapshots>(options: &AftermathOptions) {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let engine = E::open(Arc::clone(&clock), E::Options::default());
    let engine = engine.expect("default options suit everywhere");
    let (tree, keys) = (engine.create_tree(), options.keys as u64);
    let session = || engine.session().expect("few sessions are open");
    let mut loader = session();
    for number in 0..keys {
        put(&mut loader, tree, number, number);
    }
    drop(loader);
    let (updates, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    // No session is in an operation while a snapshot is made.
    let gate = RwLock::new(());
    let work = |thread: usize| {
        let mut session = session();
        let mut random = fastrand::Rng::with_seed(options.seed ^ thread as u64);
        while !is_over.load(Ordering::Relaxed) {
            let shut = gate.read().expect("nobody panics behind it");
            for _ in 0..BATCH {
                put(&mut session, tree, random.u64(..keys), 7);
            }
            drop(shut);
            updates.fetch_add(BATCH as u64, Ordering::Relaxed);
        }
    };
    let parts = |count: usize| -> Vec<f64> {
        let mut before = (Instant::now(), updates.load(Ordering::Relaxed));
        let part = |_| {
            std::thread::sleep(PART);
            let now = (Instant::now(), updates.load(Ordering::Relaxed));
            let rate = (now.1 - before.1) as f64 / (now.0 - before.0).as_secs_f64();
            before = now;
            rate
        };
        (0..count).map(part).collect()
    };
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            scope.spawn(move || work(thread));
        }
        let before = parts(PARTS_BEFORE);
        let shut = gate.write().expect("nobody panics behind it");
        engine
            .freeze(clock.end_all())
            .expect("few snapshots are made");
        drop(shut);
        let after = parts(PARTS_AFTER);
        is_over.store(true, Ordering::Relaxed);
        print(&before[PARTS_BEFORE / 2..], &after);
    });
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// The first of the parts that are as fast again as before, and stay so for a while.
fn back(before: f64, after: &[f64]) -> usize {
    let mut spans = after.windows(STEADY);
    let back = spans.position(|span| mean(span) >= 0.95 * before);
    back.unwrap_or(after.len())
}

fn print(before: &[f64], after: &[f64]) {
    let before = mean(before);
    let least = after.iter().copied().fold(f64::INFINITY, f64::min);
    let back = back(before, after);
    println!("{BEFORE} {:.3}", before / 1e6);
    println!("{LEAST} {:.2}", least / before);
    println!("{BACK} {:.1}", back as f64 * PART.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_back_where_it_stays() {
        let mut after = vec![10.0; 12];
        after[..4].fill(2.0);
        assert_eq!(back(10.0, &after), 4);
        // A part alone is not enough, and one that is slower again does not count.
        after[1] = 20.0;
        after[6] = 9.5;
        assert_eq!(back(10.0, &after), 4);
        assert_eq!(back(30.0, &after), after.len());
    }
}
