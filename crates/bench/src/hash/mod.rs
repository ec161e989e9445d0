//! Hash maps in process, on the workloads of the Mercury paper (§4): the engine Mercury with each
//! kind of lock, beside concurrent hash maps of the registry.
//!
//! | cell | keys and values | operations |
//! |---|---|---|
//! | `get 8/8` | 8 bytes each | uniform gets of loaded keys (§4.1) |
//! | `get 8/8 by 32` | the same | the same, 32 keys at a time where the target can |
//! | `put 8/8`, `put 8/8 by 32` | the same | overwrites of the same keys, likewise |
//! | `ycsb r` | 24 and 10 bytes | scrambled Zipfian, r % gets, the others overwrite (§4.2) |
//!
//! Every map holds `Box<[u8]>` keys and values, or what it has instead, and hashes with the same
//! function, foldhash. A value is read in full. Each round runs every target in a fresh process
//! (`hash-one`), in turns; what gets add up to is compared with what it must be.

mod expansion;
mod targets;

use std::sync::Barrier;
use std::time::Instant;

use clap::Args;
use fastrand::Rng;
use thiserror::Error;

use crate::accounting::own_resident_bytes;
use crate::arguments::count;
use crate::distribution::{Chooser, Distribution, YCSB_THETA};
use crate::locking::{BucketLocks, Locking, Mutexes, Optimistic, RwLocks};
use crate::rounds::{self, CellError, in_turns, side_by_side};
use targets::{DashMap, Mercury, PapayaMap, SccMap, Target, TargetName, Worker};

/// Keys of one batch.
const BATCH: usize = 32;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Targets; ratios are to the first.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "mercury,dashmap,papaya,scc"
    )]
    targets: Vec<TargetName>,
    /// Keys loaded.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Operations of a thread in each cell.
    #[arg(long, default_value_t = 2_000_000, value_parser = count)]
    operations: usize,
    /// Threads on the same map.
    #[arg(long, default_value_t = 1, value_parser = count)]
    threads: usize,
    /// Fresh processes per target.
    #[arg(long, default_value_t = 5, value_parser = count)]
    repeats: usize,
    /// Only what gets lose while the table of the engine expands.
    #[arg(long)]
    expansion: bool,
    /// Expansions in each process, with `--expansion`.
    #[arg(long, default_value_t = 5, value_parser = count)]
    rounds: usize,
}

/// One target, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct OneOptions {
    #[arg(long)]
    target: TargetName,
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    operations: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    expansion: bool,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub(crate) enum HashError {
    #[error("the process of {target} failed: {source}")]
    Target {
        target: TargetName,
        source: CellError,
    },
    #[error("{cell}: the gets add up to {got}, not {expected}")]
    WrongAnswer {
        cell: String,
        got: u64,
        expected: u64,
    },
}

/// Measures all targets in turns.
pub(crate) fn run(options: &Options) -> Result<(), HashError> {
    let samples = in_turns(&options.targets, options.repeats, |target| {
        let line = format!(
            "hash-one --target {target} --keys {} --operations {} --threads {} --rounds {}",
            options.keys, options.operations, options.threads, options.rounds
        );
        let mut arguments: Vec<_> = line.split(' ').collect();
        if options.expansion {
            arguments.push("--expansion");
        }
        rounds::measure(&arguments).map_err(|source| HashError::Target {
            target: *target,
            source,
        })
    })?;
    println!(
        "{} keys, {} thread(s), median (least–most) of {} fresh processes in turns",
        options.keys, options.threads, options.repeats
    );
    print!("{}", side_by_side(&options.targets, &samples));
    Ok(())
}

/// Measures the target that `options` name, in this process.
pub(crate) fn run_one(options: &OneOptions) -> Result<(), HashError> {
    match options.target {
        TargetName::Mercury => measure_mercury::<Optimistic>(options),
        TargetName::MercuryBucket => measure_mercury::<BucketLocks>(options),
        TargetName::MercuryMutex => measure_mercury::<Mutexes>(options),
        TargetName::MercuryRwLock => measure_mercury::<RwLocks>(options),
        TargetName::DashMap => measure(options, DashMap::default),
        TargetName::Papaya => measure(options, PapayaMap::default),
        TargetName::Scc => measure(options, SccMap::default),
    }
}

fn measure_mercury<L: Locking>(options: &OneOptions) -> Result<(), HashError> {
    if options.expansion {
        expansion::measure::<L>(options.keys, options.rounds);
        return Ok(());
    }
    measure(options, Mercury::<L>::default)?;
    if options.threads == 1 {
        expansion::measure::<L>(options.keys, 1);
    }
    Ok(())
}

/// How keys and values are made of an item's number.
trait Shape: Copy + Send + Sync {
    type Key: AsRef<[u8]>;
    type Value: AsRef<[u8]>;

    fn key(item: u64) -> Self::Key;
    fn value(item: u64) -> Self::Value;
}

/// A bijection, so that keys are distinct and in no order.
fn spread(item: u64) -> u64 {
    let mixed = (item ^ item >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    mixed ^ mixed >> 29
}

/// 8-byte keys and values.
#[derive(Clone, Copy)]
struct Small;

impl Shape for Small {
    type Key = [u8; 8];
    type Value = [u8; 8];

    fn key(item: u64) -> [u8; 8] {
        spread(item).to_le_bytes()
    }

    fn value(item: u64) -> [u8; 8] {
        item.to_le_bytes()
    }
}

/// 24-byte keys and 10-byte values.
#[derive(Clone, Copy)]
struct Ycsb;

impl Shape for Ycsb {
    type Key = [u8; 24];
    type Value = [u8; 10];

    fn key(item: u64) -> [u8; 24] {
        let mut key = *b"user----------------0000";
        let mut rest = spread(item);
        for byte in &mut key[4..20] {
            *byte = b'a' + (rest & 15) as u8;
            rest >>= 4;
        }
        key
    }

    fn value(item: u64) -> [u8; 10] {
        let mut value = [7; 10];
        value[..8].copy_from_slice(&item.to_le_bytes());
        value
    }
}

/// The number in a value, all of whose bytes are read.
fn number_of(value: &[u8]) -> u64 {
    let (number, rest) = value.split_at(8.min(value.len()));
    let number = u64::from_le_bytes(number.try_into().unwrap_or_default());
    number.wrapping_add(rest.iter().map(|byte| u64::from(*byte)).sum())
}

fn measure<T: Target>(options: &OneOptions, make: impl Fn() -> T) -> Result<(), HashError> {
    {
        let target = make();
        load::<T, Small>(&target, options, "load 8/8", true);
        let items = draw(options, Distribution::Uniform);
        run_cell::<T, Small>(&target, "get 8/8", &items, 100, false)?;
        run_cell::<T, Small>(&target, "get 8/8 by 32", &items, 100, true)?;
        run_cell::<T, Small>(&target, "put 8/8", &items, 0, false)?;
        run_cell::<T, Small>(&target, "put 8/8 by 32", &items, 0, true)?;
        target.finish();
    }
    let target = make();
    load::<T, Ycsb>(&target, options, "load 24/10", false);
    let items = draw(options, Distribution::Scrambled);
    for reads in [100, 95, 50] {
        run_cell::<T, Ycsb>(&target, &format!("ycsb {reads}"), &items, reads, false)?;
    }
    Ok(())
}

/// Each thread's items.
fn draw(options: &OneOptions, distribution: Distribution) -> Vec<Vec<u64>> {
    let chooser = Chooser::new(distribution, options.keys, YCSB_THETA);
    let draw = |thread| {
        let mut random = Rng::with_seed(thread as u64 + 1);
        let items = (0..options.operations).map(|_| chooser.draw(&mut random));
        items.collect()
    };
    (0..options.threads).map(draw).collect()
}

fn load<T: Target, S: Shape>(target: &T, options: &OneOptions, cell: &str, fresh: bool) {
    let before = own_resident_bytes();
    let started = Instant::now();
    let mut worker = target.worker();
    for item in 0..options.keys {
        worker.put(S::key(item).as_ref(), S::value(item).as_ref());
    }
    worker.settle();
    let seconds = started.elapsed().as_secs_f64();
    println!("{cell} {}", options.keys as f64 / seconds / 1e6);
    // What an earlier map has left to the allocator is used again and would not show.
    if fresh {
        let bytes = own_resident_bytes().saturating_sub(before);
        println!("{cell} bytes {}", bytes as f64 / options.keys as f64);
    }
}

fn run_cell<T: Target, S: Shape>(
    target: &T,
    cell: &str,
    items: &[Vec<u64>],
    reads: u64,
    batched: bool,
) -> Result<(), HashError> {
    let barrier = Barrier::new(items.len() + 1);
    let (seconds, got) = std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(thread, items)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut worker = target.worker();
                    barrier.wait();
                    if batched && reads == 0 {
                        puts_by_batches::<S>(&mut worker, items);
                        (0, 0)
                    } else if batched {
                        by_batches::<S>(&mut worker, items)
                    } else {
                        one_by_one::<S>(&mut worker, items, reads, thread as u64)
                    }
                })
            })
            .collect();
        barrier.wait();
        let started = Instant::now();
        let sums = threads
            .into_iter()
            .map(|thread| thread.join().expect("no worker panics"));
        let got = sums.fold((0_u64, 0_u64), |(got, expected), (more, due)| {
            (got.wrapping_add(more), expected.wrapping_add(due))
        });
        (started.elapsed().as_secs_f64(), got)
    });
    let (got, expected) = got;
    if got != expected {
        let cell = cell.to_owned();
        return Err(HashError::WrongAnswer {
            cell,
            got,
            expected,
        });
    }
    let operations: usize = items.iter().map(Vec::len).sum();
    println!("{cell} {}", operations as f64 / seconds / 1e6);
    Ok(())
}

/// What the gets add up to, and what they must.
fn one_by_one<S: Shape>(
    worker: &mut impl Worker,
    items: &[u64],
    reads: u64,
    seed: u64,
) -> (u64, u64) {
    let mut random = Rng::with_seed(seed);
    let (mut got, mut expected) = (0_u64, 0_u64);
    for (index, item) in items.iter().enumerate() {
        if index.is_multiple_of(256) {
            worker.turn();
        }
        let (key, value) = (S::key(*item), S::value(*item));
        if reads == 100 || random.u64(..100) < reads {
            expected = expected.wrapping_add(number_of(value.as_ref()));
            got = got.wrapping_add(worker.get(key.as_ref()));
        } else {
            worker.put(key.as_ref(), value.as_ref());
        }
    }
    (got, expected)
}

fn by_batches<S: Shape>(worker: &mut impl Worker, items: &[u64]) -> (u64, u64) {
    let (mut got, mut expected) = (0_u64, 0_u64);
    for (index, batch) in items.chunks(BATCH).enumerate() {
        if index.is_multiple_of(256 / BATCH) {
            worker.turn();
        }
        let keys: Vec<S::Key> = batch.iter().map(|item| S::key(*item)).collect();
        for item in batch {
            expected = expected.wrapping_add(number_of(S::value(*item).as_ref()));
        }
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        got = got.wrapping_add(worker.get_batch(&keys));
    }
    (got, expected)
}

fn puts_by_batches<S: Shape>(worker: &mut impl Worker, items: &[u64]) {
    for (index, batch) in items.chunks(BATCH).enumerate() {
        if index.is_multiple_of(256 / BATCH) {
            worker.turn();
        }
        let pairs: Vec<_> = batch
            .iter()
            .map(|item| (S::key(*item), S::value(*item)))
            .collect();
        let pairs: Vec<(&[u8], &[u8])> = pairs
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
            .collect();
        worker.put_batch(&pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A smoke run of every target: every cell checks what its gets add up to.
    #[test]
    fn every_target_answers_right() {
        for target in TargetName::all() {
            let options = OneOptions {
                target,
                keys: 2_000,
                operations: 4_000,
                threads: 2,
                expansion: false,
                rounds: 1,
            };
            run_one(&options).unwrap_or_else(|error| panic!("{target}: {error}"));
        }
        expansion::measure::<Optimistic>(3_000, 1);
    }
}
