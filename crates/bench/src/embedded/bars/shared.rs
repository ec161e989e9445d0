//! The same keys shared by threads, on memory that was touched before: what a second core gives.

use clap::{Args, ValueEnum};
use fastrand::Rng;
use pando_engine::Direction;
use pando_masstree::Pages;

use crate::embedded::EmbeddedError;
use crate::embedded::keys::{KeyShape, Keys, value_of};
use crate::embedded::targets::{Masstree, Target, Worker};
use crate::embedded::threads::{run_threads, share};
use crate::embedded::workload::{FORWARD, GET, PUT, SCAN};

/// What the figures are called beside those of the workload.
pub(super) const TEN_KEYS: &str = "puts to the same ten keys, million/s";
pub(super) const ARITHMETIC: &str = "steps of arithmetic, million/s";

/// Memory that a key takes at most here; the rest of what is reserved stays unused.
const RESERVED_BYTES_PER_KEY: usize = 100;

const TEN: u64 = 10;

/// Pages of our side; peers have what the system gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum PageKind {
    Huge,
    Small,
}

/// One number of threads, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct SharedOptions {
    #[arg(long)]
    keys: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long, value_enum)]
    pages: PageKind,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures puts, gets and scans of shared keys, puts to ten keys, and plain arithmetic.
pub(crate) fn run_shared(options: &SharedOptions) -> Result<(), EmbeddedError> {
    let threads = options.threads;
    let keys = Keys::draw(KeyShape::Decimal, options.keys, options.seed);
    let order = keys.shuffled(options.seed + 1);
    let target = Masstree::with_options(pando_masstree::Options {
        pages: match options.pages {
            PageKind::Huge => Pages::Huge,
            PageKind::Small => Pages::Small,
        },
        reserved_bytes: options.keys * RESERVED_BYTES_PER_KEY,
        ..pando_masstree::Options::default()
    });
    run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            for index in share(keys.len(), threads, thread) {
                worker.put(keys.get(index), value_of(keys.get(index)));
            }
            0
        },
    )
    .print(PUT, keys.len());
    let got = run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            share(order.len(), threads, thread).fold(0_u64, |sum, index| {
                sum.wrapping_add(worker.get(order.get(index)).unwrap_or(0))
            })
        },
    );
    let expected = (0..keys.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(keys.get(at))));
    if got.sum != expected {
        return Err(EmbeddedError::WrongSum {
            what: format!("{threads} threads"),
            got: got.sum,
            expected,
        });
    }
    got.print(GET, keys.len());
    let scans = keys.len() / SCAN;
    run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            share(scans, threads, thread).fold(0_u64, |sum, index| {
                let part = worker.scan(order.get(index), SCAN, Direction::Forward);
                sum.wrapping_add(part.unwrap_or(0))
            })
        },
    )
    .print(FORWARD, scans * SCAN);
    run_ten_keys(options.keys, threads)?;
    run_threads(
        threads,
        || (),
        |(), thread| {
            share(options.keys * 10, threads, thread).fold(1_u64, |state, step| {
                (state ^ step as u64).wrapping_mul(0x5851_f42d_4c95_7f2d) ^ state >> 29
            })
        },
    )
    .print(ARITHMETIC, options.keys * 10);
    Ok(())
}

/// Every thread puts to all of ten keys.
fn run_ten_keys(puts: usize, threads: usize) -> Result<(), EmbeddedError> {
    let target = Masstree::new();
    run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            let mut random = Rng::with_seed(thread as u64);
            for _ in share(puts, threads, thread) {
                let number = random.u64(..TEN);
                worker.put(&[b'0' + number as u8], number);
            }
            0
        },
    )
    .print(TEN_KEYS, puts);
    let mut worker = target.worker();
    let sum = (b'0'..b'0' + TEN as u8)
        .filter_map(|digit| worker.get(&[digit]))
        .sum();
    let expected = (0..TEN).sum();
    if sum == expected {
        Ok(())
    } else {
        Err(EmbeddedError::WrongSum {
            what: "ten keys".into(),
            got: sum,
            expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_keys_are_all_there() {
        for threads in [1, 2] {
            run_shared(&SharedOptions {
                keys: 5000,
                threads,
                pages: PageKind::Small,
                seed: 1,
            })
            .unwrap();
        }
    }
}
