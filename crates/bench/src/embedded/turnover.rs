//! A map that is filled, read, overwritten and emptied by one thread, one pin per 64 operations:
//! the rates, and what the map holds of memory after each phase. Nobody maintains anything: what a
//! removal leaves to be done is done within the time that is measured.

use clap::Args;

use super::EmbeddedError;
use super::keys::{KeyShape, Keys, value_of};
use super::targets::{Target, TargetName, Worker, on_target};
use super::threads::run_threads;
use super::workload::{GET, PUT};
use crate::accounting::{own_huge_share, own_resident_bytes};

const PIN_KEYS: usize = 64;

/// One target, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct TurnoverOptions {
    #[arg(long)]
    target: TargetName,
    #[arg(long)]
    keys: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures the target that `options` name, in this process.
pub(crate) fn run_turnover(options: &TurnoverOptions) -> Result<(), EmbeddedError> {
    on_target!(options.target, Chosen => measure::<Chosen>(options))
}

fn measure<T: Target>(options: &TurnoverOptions) -> Result<(), EmbeddedError> {
    let drawn = Keys::draw(KeyShape::Decimal, options.keys, options.seed);
    let orders: Vec<_> = (1..4)
        .map(|turn| drawn.shuffled(options.seed + turn))
        .collect();
    let before = own_resident_bytes();
    let target = T::new();
    let phase =
        |name: &str, keys: &Keys, operate: &(dyn Fn(&mut T::Worker<'_>, &[u8]) -> u64 + Sync)| {
            let ran = run_threads(
                1,
                || target.worker(),
                |worker, _| {
                    let mut sum = 0_u64;
                    for start in (0..keys.len()).step_by(PIN_KEYS) {
                        worker.pin();
                        for index in start..(start + PIN_KEYS).min(keys.len()) {
                            sum = sum.wrapping_add(operate(worker, keys.get(index)));
                        }
                        worker.unpin();
                    }
                    sum
                },
            );
            ran.print(name, keys.len());
            let grown = own_resident_bytes().saturating_sub(before);
            println!(
                "bytes per key after {name} {}",
                grown as f64 / keys.len() as f64
            );
            println!("share on huge pages after {name} {}", own_huge_share());
            ran.sum
        };
    let put = |worker: &mut T::Worker<'_>, key: &[u8]| {
        worker.put(key, value_of(key));
        0
    };
    let get = |worker: &mut T::Worker<'_>, key: &[u8]| worker.get(key).unwrap_or(0);
    phase(PUT, &drawn, &put);
    let got = phase(GET, &orders[0], &get);
    phase("overwrite, million/s", &orders[1], &put);
    phase("remove, million/s", &orders[2], &|worker, key| {
        worker.remove(key);
        0
    });
    let left = phase("get of nothing, million/s", &orders[0], &get);
    let expected =
        (0..drawn.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(drawn.get(at))));
    if got == expected && left == 0 {
        return Ok(());
    }
    Err(EmbeddedError::WrongAnswer {
        target: options.target,
        got: got.wrapping_add(left),
        expected,
    })
}
