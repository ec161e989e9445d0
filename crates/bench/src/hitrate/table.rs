//! The table of lengths of values, policies and engines, each beside Redis under the same policy.
//!
//! The policies that take only keys with a deadline meet none without. `churn` is measured under
//! those that ask how keys are used.

use super::{Candidate, HitRateError, Kind, Measured, Options, Sizes, Trace, candidate, measure};
use crate::figures::Spread;
use crate::progress::Progress;

const POLICIES: [&str; 6] = [
    "allkeys-lru",
    "allkeys-lfu",
    "volatile-lru",
    "volatile-lfu",
    "allkeys-random",
    "volatile-ttl",
];

/// The candidates of a row; the last one is what the others stand beside.
fn candidates(policy: &'static str) -> [Candidate; 3] {
    [
        candidate("masstree", Kind::Pando("masstree"), policy),
        candidate("mercury", Kind::Pando("mercury"), policy),
        candidate("redis", Kind::Redis, policy),
    ]
}

/// One row's conditions.
#[derive(Clone, Copy)]
struct Row {
    sizes: Sizes,
    policy: &'static str,
    trace: Trace,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for trace in [Trace::Zipf, Trace::Churn] {
        for sizes in [Sizes::Short, Sizes::Mixed, Sizes::Long] {
            let asks = |policy: &&str| trace == Trace::Zipf || policy.contains("-l");
            let policies = POLICIES.into_iter().filter(asks);
            rows.extend(policies.map(|policy| Row {
                sizes,
                policy,
                trace,
            }));
        }
    }
    rows
}

/// One cell: hit rates in percent, and the keys held at the end.
struct Cell {
    hits: Spread,
    keys: f64,
}

impl Cell {
    fn of(runs: &[Measured]) -> Self {
        Self {
            hits: Spread::of(runs.iter().map(|run| run.hit_rate * 100.0)),
            keys: Spread::of(runs.iter().map(|run| run.keys as f64)).median,
        }
    }

    fn print(&self) {
        let Spread {
            least,
            median,
            most,
        } = self.hits;
        print!(
            " {median:.1} ({least:.1}–{most:.1}); {:.1} k |",
            self.keys / 1000.0
        );
    }

    /// Whether it lies below another beyond the spread of both.
    fn is_below(&self, other: &Self) -> bool {
        self.hits.median < other.hits.least && self.hits.most < other.hits.median
    }
}

/// Measures and prints the table, and which cells lie below Redis'.
pub(super) fn run(options: &Options) -> Result<(), HitRateError> {
    println!(
        "\n{} MiB, {} keys, {} reads, theta {}, medians of {}: hits in percent; keys held\n",
        options.memory_mib, options.keys, options.reads, options.theta, options.repeats
    );
    println!("| trace | values | policy | Masstree | Mercury | Redis |");
    println!("|---|---|---|---|---|---|");
    let rows = rows();
    let mut progress = Progress::new(rows.len() * options.repeats * 3);
    let (mut cells, mut below) = (0, Vec::new());
    for row in rows {
        let options = Options {
            values: row.sizes,
            expiring: row.policy.starts_with("volatile").then_some(100),
            ..options.clone()
        };
        let candidates = candidates(row.policy);
        let mut runs = [const { Vec::new() }; 3];
        for seed in 0..options.repeats as u64 {
            for (candidate, runs) in candidates.into_iter().zip(&mut runs) {
                progress.step(&format!("{:?}, {}", row.trace, candidate.name));
                runs.push(measure(candidate, row.trace, seed, &options)?);
            }
        }
        progress.clear();
        let [masstree, mercury, redis] = runs.map(|runs| Cell::of(&runs));
        let name = format!("{:?} {:?} {}", row.trace, row.sizes, row.policy).to_lowercase();
        print!("| {} |", name.replace(' ', " | "));
        for (engine, cell) in [("Masstree", &masstree), ("Mercury", &mercury)] {
            cell.print();
            cells += 1;
            if cell.is_below(&redis) {
                below.push(format!("{name} on {engine}"));
            }
        }
        redis.print();
        println!();
    }
    progress.end();
    println!("\n{} of {cells} cells lie below Redis'", below.len());
    for cell in below {
        println!("- {cell}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_meets_every_policy_and_churn_those_that_ask() {
        let rows = rows();
        let of = |trace| rows.iter().filter(move |row| row.trace == trace).count();
        assert_eq!((of(Trace::Zipf), of(Trace::Churn)), (18, 12));
    }

    #[test]
    fn a_cell_lies_below_beyond_the_spread_of_both() {
        let cell = |hits: [f64; 3]| Cell {
            hits: Spread::of(hits),
            keys: 0.0,
        };
        let redis = cell([60.0, 61.0, 62.0]);
        assert!(cell([58.0, 59.0, 60.0]).is_below(&redis));
        assert!(!cell([58.0, 60.5, 61.0]).is_below(&redis));
        assert!(!cell([58.0, 59.0, 63.0]).is_below(&redis));
        assert!(!cell([70.0, 71.0, 72.0]).is_below(&redis));
    }
}
