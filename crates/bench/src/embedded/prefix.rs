//! Keys with a common prefix (figure 9): gets of keys whose last 8 bytes alone differ.

use clap::Args;

use super::EmbeddedError;
use super::keys::{KeyShape, Keys, value_of};
use super::targets::{Target, TargetName, Worker, on_target};
use super::threads::{on_threads, print_rate, share};

/// One target and one length of keys, in this process.
#[derive(Debug, Args)]
pub(crate) struct PrefixOptions {
    #[arg(long)]
    target: TargetName,
    /// Bytes of a key, its prefix included.
    #[arg(long, value_parser = clap::value_parser!(u16).range(8..=1024))]
    key_bytes: u16,
    #[arg(long)]
    keys: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run_prefix(options: &PrefixOptions) -> Result<(), EmbeddedError> {
    if options.target == TargetName::Congee {
        return Err(EmbeddedError::Unfit {
            target: options.target,
            shape: KeyShape::Prefixed,
        });
    }
    on_target!(options.target, Chosen => measure::<Chosen>(options))
}

fn measure<T: Target>(options: &PrefixOptions) -> Result<(), EmbeddedError> {
    let threads = options.threads;
    let keys = Keys::behind_prefix(options.key_bytes.into(), options.keys, options.seed);
    let order = keys.shuffled(options.seed + 1);
    let target = T::new();
    let put = |worker: &mut T::Worker<'_>, thread| {
        for index in share(keys.len(), threads, thread) {
            worker.put(keys.get(index), value_of(keys.get(index)));
        }
        0
    };
    on_threads(threads, || target.worker(), put);
    let get = |worker: &mut T::Worker<'_>, thread| {
        share(order.len(), threads, thread).fold(0_u64, |sum, index| {
            sum.wrapping_add(worker.get(order.get(index)).unwrap_or(0))
        })
    };
    let (seconds, sum) = on_threads(threads, || target.worker(), get);
    let expected = (0..keys.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(keys.get(at))));
    if sum != expected {
        return Err(EmbeddedError::WrongSum {
            what: options.target.to_string(),
            got: sum,
            expected,
        });
    }
    print_rate("get, million/s", keys.len(), seconds);
    Ok(())
}
