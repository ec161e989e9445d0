//! Skew between partitions (figure 11): one tree that all threads share, beside one tree per
//! thread.
//!
//! Keys belong to as many partitions as there are threads. With skewness δ the last partition gets
//! δ times more requests than each of the others: `(1 + δ) / (T + δ)` of all. Hard-partitioned, a
//! partition's requests are done by its own thread on its own tree, and the run ends when the
//! slowest thread ends, since clients keep the skew by waiting. Shared, every thread does an equal
//! part of the same requests on one tree.

use clap::Args;
use fastrand::Rng;

use super::EmbeddedError;
use super::keys::{KeyShape, Keys, value_of};
use super::targets::{Masstree, Target, Worker};
use super::threads::{on_threads, print_rate, share};

/// One layout and one skewness, in this process.
#[derive(Debug, Args)]
pub(crate) struct SkewOptions {
    #[arg(long)]
    delta: f64,
    /// A tree per thread.
    #[arg(long)]
    partitioned: bool,
    #[arg(long)]
    keys: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The partition of a key: equal numbers of keys, no order.
fn partition(key: &[u8], partitions: usize) -> usize {
    (value_of(key) >> 32) as usize % partitions
}

pub(crate) fn run_skew(options: &SkewOptions) -> Result<(), EmbeddedError> {
    let threads = options.threads;
    let keys = Keys::draw(KeyShape::Decimal, options.keys, options.seed);
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); threads];
    for index in 0..keys.len() {
        members[partition(keys.get(index), threads)].push(index as u32);
    }
    let trees = if options.partitioned { threads } else { 1 };
    let targets: Vec<Masstree> = (0..trees).map(|_| Masstree::new()).collect();
    for (partition, members) in members.iter().enumerate() {
        let mut worker = targets[partition % trees].worker();
        for index in members {
            let key = keys.get(*index as usize);
            worker.put(key, value_of(key));
        }
    }
    let requests = requests(options, &members);
    let work = |workers: &mut Vec<_>, thread: usize| {
        let own: &mut <Masstree as Target>::Worker<'_> = &mut workers[thread % trees];
        let mut sum = 0_u64;
        let mut get = |index: &u32| {
            let value = own.get(keys.get(*index as usize)).unwrap_or(0);
            sum = sum.wrapping_add(value);
        };
        if options.partitioned {
            requests[thread].iter().for_each(&mut get);
        } else {
            // The same requests, an equal part of each partition's for every thread.
            for requests in &requests {
                requests[share(requests.len(), threads, thread)]
                    .iter()
                    .for_each(&mut get);
            }
        }
        sum
    };
    let workers = || targets.iter().map(Target::worker).collect::<Vec<_>>();
    let (seconds, sum) = on_threads(threads, workers, work);
    let expected = requests.iter().flatten().fold(0_u64, |sum, index| {
        sum.wrapping_add(value_of(keys.get(*index as usize)))
    });
    if sum != expected {
        return Err(EmbeddedError::WrongSum {
            what: format!("δ {}", options.delta),
            got: sum,
            expected,
        });
    }
    let count = requests.iter().map(Vec::len).sum();
    print_rate("get, million/s", count, seconds);
    Ok(())
}

/// As many requests as there are keys, by partition.
fn requests(options: &SkewOptions, members: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut random = Rng::with_seed(options.seed + 1);
    let partitions = members.len();
    let cold = options.keys as f64 / (partitions as f64 + options.delta);
    members
        .iter()
        .enumerate()
        .map(|(partition, members)| {
            let hot = partition + 1 == partitions;
            let count = if hot {
                cold * (1.0 + options.delta)
            } else {
                cold
            };
            (0..count as usize)
                .map(|_| members[random.usize(..members.len())])
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_partition_gets_its_share() {
        let options = SkewOptions {
            delta: 9.0,
            partitioned: true,
            keys: 100_000,
            threads: 16,
            seed: 1,
        };
        let members: Vec<Vec<u32>> = (0..16).map(|partition| vec![partition; 10]).collect();
        let requests = requests(&options, &members);
        // The paper's example: with 16 partitions δ = 9 gives one 40 % and the others 4 % each.
        assert_eq!(requests[15].len(), 40_000);
        assert!(requests[..15].iter().all(|requests| requests.len() == 4000));
    }

    #[test]
    fn both_layouts_run() {
        for partitioned in [false, true] {
            for delta in [0.0, 3.0] {
                let options = SkewOptions {
                    delta,
                    partitioned,
                    keys: 4000,
                    threads: 2,
                    seed: 1,
                };
                run_skew(&options).unwrap();
            }
        }
    }
}
