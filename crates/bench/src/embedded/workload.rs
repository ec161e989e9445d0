//! The workload on one target: put into an empty map, get, get in batches, scan; every answer is
//! checked against the sum that it must give.

use pando_engine::Direction;

use super::keys::{Keys, value_of};
use super::targets::{Target, Worker, on_target};
use super::threads::{Ran, print_rate, run_threads, share};
use super::{EmbeddedError, OneOptions, Phase};
use crate::accounting::own_resident_bytes;

/// Keys of one batched get, and entries of one scan.
const BATCH: usize = 32;
pub(super) const SCAN: usize = 100;

/// What the figures are called.
pub(super) const PUT: &str = "put, million/s";
pub(super) const GET: &str = "get, million/s";
pub(super) const GET_BATCH: &str = "get in batches of 32, million/s";
pub(super) const FORWARD: &str = "100-key scans forward, million entries/s";
pub(super) const BACKWARD: &str = "100-key scans backward, million entries/s";
pub(super) const RESIDENT: &str = "resident bytes per key";

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
    let before = own_resident_bytes();
    let target = T::new();
    let threads = options.threads;
    let print = |ran: Ran, name: &str, operations| {
        if options.by_cpu {
            ran.print(name, operations);
        } else {
            print_rate(name, operations, ran.seconds);
        }
    };
    let ran = run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            for index in share(keys.len(), threads, thread) {
                let key = keys.get(index);
                worker.put(key, value_of(key));
            }
            0
        },
    );
    print(ran, PUT, keys.len());
    let grown = own_resident_bytes().saturating_sub(before);
    println!("{RESIDENT} {}", grown as f64 / keys.len() as f64);
    if options.until < Phase::Get {
        return Ok(());
    }

    let expected = (0..keys.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(keys.get(at))));
    let ran = run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            let mut sum = 0_u64;
            for index in share(order.len(), threads, thread) {
                sum = sum.wrapping_add(worker.get(order.get(index)).unwrap_or(0));
            }
            sum
        },
    );
    check(options, ran.sum, expected)?;
    print(ran, GET, keys.len());
    if options.until < Phase::Batch {
        return Ok(());
    }

    let ran = run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
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
        },
    );
    check(options, ran.sum, expected)?;
    print(ran, GET_BATCH, keys.len());
    if options.until < Phase::Scan {
        return Ok(());
    }

    for (name, direction) in [
        (FORWARD, Direction::Forward),
        (BACKWARD, Direction::Backward),
    ] {
        let scans = keys.len() / SCAN;
        if target.worker().scan(order.get(0), 1, direction).is_none() {
            continue;
        }
        let ran = run_threads(
            threads,
            || target.worker(),
            |worker, thread| {
                let mut sum = 0_u64;
                for index in share(scans, threads, thread) {
                    let part = worker.scan(order.get(index), SCAN, direction);
                    sum = sum.wrapping_add(part.unwrap_or(0));
                }
                sum
            },
        );
        print(ran, name, scans * SCAN);
    }
    Ok(())
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
                    until: Phase::Scan,
                    by_cpu: false,
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
            until: Phase::Scan,
            by_cpu: true,
        };
        let error = run_one(&options).unwrap_err().to_string();
        assert_eq!(error, "congee does not take decimal keys");
    }
}
