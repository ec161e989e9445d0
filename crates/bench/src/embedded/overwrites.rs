//! Overwrites of keys that are there, by threads that share them: every put frees a block, and with
//! two threads half of what a thread frees was allocated by the other one.

use clap::Args;
use fastrand::Rng;
use pando_masstree::Pages;

use super::EmbeddedError;
use super::bars::PageKind;
use super::keys::{KeyShape, Keys};
use super::targets::{Masstree, Target};
use super::threads::{run_threads, share};
use crate::accounting::{own_huge_share, own_resident_bytes};

/// What the figures are called.
pub(super) const SINGLE: &str = "overwrites, million/s";
pub(super) const BATCH: &str = "overwrites in batches of 32, million/s";
pub(super) const RESIDENT_AFTER: &str = "resident bytes per key after overwrites";
pub(super) const HUGE_SHARE: &str = "share of the process on huge pages";

const BATCH_KEYS: usize = 32;
const VALUE_BYTES_MIN: usize = 8;
const VALUE_BYTES_MAX: usize = 1024;

/// One number of threads, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct OverwriteOptions {
    #[arg(long)]
    keys: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long, value_enum)]
    pages: PageKind,
    /// Values have 8 bytes up to this many.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(8..=1024))]
    value_bytes_max: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Values whose bytes are the first one of their key, so that every answer can be checked.
struct Values {
    runs: Vec<[u8; VALUE_BYTES_MAX]>,
    bytes_max: usize,
}

impl Values {
    fn new(bytes_max: usize) -> Self {
        Self {
            runs: (0..=u8::MAX).map(|byte| [byte; VALUE_BYTES_MAX]).collect(),
            bytes_max,
        }
    }

    fn draw(&self, key: &[u8], random: &mut Rng) -> &[u8] {
        let bytes = random.usize(VALUE_BYTES_MIN..=self.bytes_max);
        &self.runs[usize::from(key[0])][..bytes]
    }
}

/// Measures overwrites one at a time and in batches, and the memory that is left of them.
pub(crate) fn run_overwrites(options: &OverwriteOptions) -> Result<(), EmbeddedError> {
    let threads = options.threads;
    let keys = Keys::draw(KeyShape::Decimal, options.keys, options.seed);
    let orders: Vec<_> = (0..threads as u64)
        .map(|thread| keys.shuffled(options.seed + 1 + thread))
        .collect();
    let values = Values::new(options.value_bytes_max as usize);
    let before = own_resident_bytes();
    let target = Masstree::with_options(pando_masstree::Options {
        pages: match options.pages {
            PageKind::Huge => Pages::Huge,
            PageKind::Small => Pages::Small,
        },
        ..pando_masstree::Options::default()
    });
    run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            let mut random = Rng::with_seed(thread as u64);
            for index in share(keys.len(), threads, thread) {
                let key = keys.get(index);
                worker.put_bytes(key, values.draw(key, &mut random));
            }
            0
        },
    );
    run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            let mut random = Rng::with_seed(thread as u64);
            for index in 0..keys.len() {
                let key = orders[thread].get(index);
                worker.put_bytes(key, values.draw(key, &mut random));
            }
            0
        },
    )
    .print(SINGLE, threads * keys.len());
    run_threads(
        threads,
        || target.worker(),
        |worker, thread| {
            let mut random = Rng::with_seed(thread as u64);
            let mut batch = Vec::with_capacity(BATCH_KEYS);
            for index in 0..keys.len() {
                let key = orders[thread].get(index);
                batch.push((key, values.draw(key, &mut random)));
                if batch.len() == BATCH_KEYS {
                    worker.put_batch(&batch);
                    batch.clear();
                }
            }
            worker.put_batch(&batch);
            0
        },
    )
    .print(BATCH, threads * keys.len());
    let grown = own_resident_bytes().saturating_sub(before);
    println!("{RESIDENT_AFTER} {}", grown as f64 / keys.len() as f64);
    println!("{HUGE_SHARE} {}", own_huge_share());
    check(&target, &keys)
}

/// Every key has a value of its own.
fn check(target: &Masstree, keys: &Keys) -> Result<(), EmbeddedError> {
    let mut worker = target.worker();
    let right = (0..keys.len()).filter(|index| {
        let key = keys.get(*index);
        worker.read_bytes(key, |value| value.iter().all(|byte| *byte == key[0])) == Some(true)
    });
    let (got, expected) = (right.count() as u64, keys.len() as u64);
    if got == expected {
        return Ok(());
    }
    Err(EmbeddedError::WrongSum {
        what: "overwrites".into(),
        got,
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwritten_keys_keep_values_of_their_own() {
        for (threads, value_bytes_max) in [(1, 8), (2, 120)] {
            run_overwrites(&OverwriteOptions {
                keys: 3000,
                threads,
                pages: PageKind::Small,
                value_bytes_max,
                seed: 1,
            })
            .unwrap();
        }
    }
}
