//! The workload on one target: put into an empty map, get, get in batches, scan; every answer is
//! checked against the sum that it must give.

use std::sync::Barrier;
use std::time::Instant;

use pando_engine::Direction;

use super::keys::{Keys, value_of};
use super::targets::{Target, Worker, on_target};
use super::{EmbeddedError, OneOptions};

/// Keys of one batched get, and entries of one scan.
const BATCH: usize = 32;
const SCAN: usize = 100;

/// Measures the target that `options` name, in this process.
pub(crate) fn run_one(options: &OneOptions) -> Result<(), EmbeddedError> {
    if !options.target.takes(options.shape) {
        return Err(EmbeddedError::Unfit {
            target: options.target,
            shape: options.shape,
        });
    }
    on_target!(options.target, Chosen => measure::<Chosen>(options))
}

fn measure<T: Target>(options: &OneOptions) -> Result<(), EmbeddedError> {
    let keys = Keys::draw(options.shape, options.keys, options.seed);
    let order = keys.shuffled(options.seed + 1);
    let before = resident_bytes();
    let target = T::new();
    let threads = options.threads;
    let seconds = on_threads(&target, threads, |worker, thread| {
        for index in share(keys.len(), threads, thread) {
            let key = keys.get(index);
            worker.put(key, value_of(key));
        }
        0
    })
    .0;
    report("put, million/s", keys.len(), seconds);
    let grown = resident_bytes().saturating_sub(before);
    println!(
        "resident bytes per key {}",
        grown as f64 / keys.len() as f64
    );

    let expected = (0..keys.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(keys.get(at))));
    let (seconds, sum) = on_threads(&target, threads, |worker, thread| {
        let mut sum = 0_u64;
        for index in share(order.len(), threads, thread) {
            sum = sum.wrapping_add(worker.get(order.get(index)).unwrap_or(0));
        }
        sum
    });
    check(options, sum, expected)?;
    report("get, million/s", keys.len(), seconds);

    let (seconds, sum) = on_threads(&target, threads, |worker, thread| {
        let mut sum = 0_u64;
        let mut batch = Vec::with_capacity(BATCH);
        for index in share(order.len(), threads, thread) {
            batch.push(order.get(index));
            if batch.len() == BATCH {
                sum = sum.wrapping_add(worker.get_batch(&batch));
                batch.clear();
            }
        }
        sum.wrapping_add(worker.get_batch(&batch))
    });
    check(options, sum, expected)?;
    report("get in batches of 32, million/s", keys.len(), seconds);

    for (name, direction) in [
        ("forward", Direction::Forward),
        ("backward", Direction::Backward),
    ] {
        let scans = keys.len() / SCAN;
        if target.worker().scan(order.get(0), 1, direction).is_none() {
            continue;
        }
        let (seconds, _) = on_threads(&target, threads, |worker, thread| {
            let mut sum = 0_u64;
            for index in share(scans, threads, thread) {
                let part = worker.scan(order.get(index), SCAN, direction);
                sum = sum.wrapping_add(part.unwrap_or(0));
            }
            sum
        });
        report(
            &format!("100-key scans {name}, million entries/s"),
            scans * SCAN,
            seconds,
        );
    }
    Ok(())
}

/// Runs `work` on all threads at once: seconds from the first start to the last end, and the sum.
fn on_threads<T: Target>(
    target: &T,
    threads: usize,
    work: impl Fn(&mut T::Worker<'_>, usize) -> u64 + Sync,
) -> (f64, u64) {
    let barrier = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    let mut worker = target.worker();
                    barrier.wait();
                    work(&mut worker, thread)
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let sum = handles
            .into_iter()
            .map(|handle| handle.join().expect("a worker panicked"))
            .fold(0, u64::wrapping_add);
        (start.elapsed().as_secs_f64(), sum)
    })
}

/// The part of `count` that belongs to one thread.
fn share(count: usize, threads: usize, thread: usize) -> std::ops::Range<usize> {
    count * thread / threads..count * (thread + 1) / threads
}

fn check(options: &OneOptions, got: u64, expected: u64) -> Result<(), EmbeddedError> {
    if got == expected {
        Ok(())
    } else {
        Err(EmbeddedError::WrongAnswer {
            target: options.target,
            got,
            expected,
        })
    }
}

fn report(name: &str, operations: usize, seconds: f64) {
    println!("{name} {}", operations as f64 / seconds / 1e6);
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::keys::KeyShape;
    use crate::embedded::targets::TargetName;

    #[test]
    fn every_target_answers_rightly() {
        for name in TargetName::names() {
            let target: TargetName = name.parse().unwrap();
            for threads in [1, 2] {
                let options = OneOptions {
                    target,
                    keys: 3000,
                    shape: KeyShape::Fixed,
                    threads,
                    seed: 1,
                };
                run_one(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }

    #[test]
    fn a_target_that_cannot_take_the_keys_says_so() {
        let options = OneOptions {
            target: TargetName::Congee,
            keys: 10,
            shape: KeyShape::Decimal,
            threads: 1,
            seed: 1,
        };
        let error = run_one(&options).unwrap_err().to_string();
        assert_eq!(error, "congee does not take decimal keys");
    }
}
