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
const AGAIN: &str = "put of keys that are there, million/s";
pub(super) const GET: &str = "get, million/s";
pub(super) const GET_BATCH: &str = "get in batches of 32, million/s";
pub(super) const FORWARD: &str = "100-key scans forward, million entries/s";
pub(super) const BACKWARD: &str = "100-key scans backward, million entries/s";
pub(crate) const LOCAL: &str = "local retries per million puts";
pub(crate) const ROOT: &str = "retries from the root per million puts";
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

/// A target, what is asked of it, and how it is said.
struct Run<'o, T> {
    options: &'o OneOptions,
    keys: Keys,
    /// The keys in another order.
    order: Keys,
    /// The sum of the values of all keys.
    sum: u64,
    target: T,
}

fn measure<T: Target>(options: &OneOptions) -> Result<(), EmbeddedError> {
    let keys = Keys::draw(options.shape, options.keys, options.seed);
    let order = keys.shuffled(options.seed + 1);
    let sum = (0..keys.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(keys.get(at))));
    let before = own_resident_bytes();
    let run = Run {
        options,
        keys,
        order,
        sum,
        target: T::new(),
    };
    run.put(&run.keys, PUT);
    let grown = own_resident_bytes().saturating_sub(before);
    println!("{RESIDENT} {}", grown as f64 / run.keys.len() as f64);
    run.print_retries();
    if options.again {
        run.put(&run.order, AGAIN);
    }
    if options.until >= Phase::Get {
        run.get()?;
    }
    if options.until >= Phase::Batch {
        run.get_batches()?;
    }
    if options.until >= Phase::Scan {
        run.scan();
    }
    Ok(())
}

impl<T: Target> Run<'_, T> {
    fn print(&self, ran: Ran, name: &str, operations: usize) {
        if self.options.by_cpu {
            ran.print(name, operations);
        } else {
            print_rate(name, operations, ran.seconds);
        }
    }

    fn put(&self, keys: &Keys, name: &str) {
        let threads = self.options.threads;
        let ran = run_threads(
            threads,
            || self.target.worker(),
            |worker, thread| {
                for index in share(keys.len(), threads, thread) {
                    let key = keys.get(index);
                    worker.put(key, value_of(key));
                }
                0
            },
        );
        self.print(ran, name, keys.len());
    }

    /// How often the puts had to look again, in a target that says so (Masstree paper, §4.6).
    fn print_retries(&self) {
        for (gauge, name) in [("local_retries", LOCAL), ("root_retries", ROOT)] {
            if let Some(count) = self.target.count_of(gauge) {
                println!("{name} {}", count * 1e6 / self.keys.len() as f64);
            }
        }
    }

    fn get(&self) -> Result<(), EmbeddedError> {
        let (order, threads) = (&self.order, self.options.threads);
        let ran = run_threads(
            threads,
            || self.target.worker(),
            |worker, thread| {
                let mut sum = 0_u64;
                for index in share(order.len(), threads, thread) {
                    sum = sum.wrapping_add(worker.get(order.get(index)).unwrap_or(0));
                }
                sum
            },
        );
        self.check(ran.sum)?;
        self.print(ran, GET, order.len());
        Ok(())
    }

    fn get_batches(&self) -> Result<(), EmbeddedError> {
        let (order, threads) = (&self.order, self.options.threads);
        let ran = run_threads(
            threads,
            || self.target.worker(),
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
        self.check(ran.sum)?;
        self.print(ran, GET_BATCH, order.len());
        Ok(())
    }

    fn scan(&self) {
        let (order, threads) = (&self.order, self.options.threads);
        for (name, direction) in [
            (FORWARD, Direction::Forward),
            (BACKWARD, Direction::Backward),
        ] {
            let scans = order.len() / SCAN;
            let mut worker = self.target.worker();
            if worker.scan(order.get(0), 1, direction).is_none() {
                continue;
            }
            drop(worker);
            let ran = run_threads(
                threads,
                || self.target.worker(),
                |worker, thread| {
                    let mut sum = 0_u64;
                    for index in share(scans, threads, thread) {
                        let part = worker.scan(order.get(index), SCAN, direction);
                        sum = sum.wrapping_add(part.unwrap_or(0));
                    }
                    sum
                },
            );
            self.print(ran, name, scans * SCAN);
        }
    }

    /// Whether every key's value is in the sum.
    fn check(&self, got: u64) -> Result<(), EmbeddedError> {
        if got == self.sum {
            return Ok(());
        }
        Err(EmbeddedError::WrongAnswer {
            target: self.options.target,
            got,
            expected: self.sum,
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
                    again: true,
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
            again: true,
        };
        let error = run_one(&options).unwrap_err().to_string();
        assert_eq!(error, "congee does not take decimal keys");
    }
}
