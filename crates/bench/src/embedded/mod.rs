//! In-process measurements: this project's engines through the contract, beside embedded peers.
//!
//! `embedded` runs every target in a fresh process of its own (`cell`), in turns, so that
//! no allocator or page of one target serves the next, and prints medians with ratios to the first
//! target. The workload is the Masstree paper's (§6): decimal strings of random 31-bit numbers,
//! 8-byte values.

pub(crate) mod aftermath;
mod allocators;
mod bars;
mod collection;
pub(crate) mod keys;
mod ladder;
pub(crate) mod minuet;
mod overwrites;
mod prefix;
mod rows;
mod skew;
mod snapshots;
mod targets;
pub(crate) mod threads;
mod turnover;
pub(crate) mod workload;

use clap::{Args, Subcommand, ValueEnum};
use thiserror::Error;

use crate::arguments::count;
use crate::cluster::{ClusterOptions, run_cluster};
use crate::rounds::{self, CellError, in_turns, side_by_side};
pub(crate) use allocators::{AllocatorsOptions, run_allocators};
pub(crate) use bars::{BarsOptions, run_bars};
use keys::KeyShape;
pub(crate) use keys::value_of;
use targets::TargetName;
use workload::run_one;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Targets; ratios are to the first.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "pando-masstree,btree-lock,masstree-crate"
    )]
    targets: Vec<TargetName>,
    /// Distinct keys, at most.
    #[arg(long, default_value_t = 10_000_000, value_parser = count)]
    keys: usize,
    /// Shape of the keys.
    #[arg(long, value_enum, default_value = "decimal")]
    shape: KeyShape,
    /// Threads on the same keys.
    #[arg(long, default_value_t = 1, value_parser = count)]
    threads: usize,
    /// Fresh processes per target.
    #[arg(long, default_value_t = 5, value_parser = count)]
    repeats: usize,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One target, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct OneOptions {
    #[arg(long)]
    target: TargetName,
    #[arg(long)]
    keys: usize,
    #[arg(long, value_enum)]
    shape: KeyShape,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    seed: u64,
    /// The last phase to measure.
    #[arg(long, value_enum, default_value = "scan")]
    until: Phase,
    /// Prints every rate by processor time too.
    #[arg(long)]
    by_cpu: bool,
    /// Puts all keys again, in another order, after the first puts.
    #[arg(long)]
    again: bool,
}

/// The phases of a measurement, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Phase {
    Put,
    Get,
    Batch,
    Scan,
}

/// One measurement in this process; prints `name value` lines.
#[derive(Debug, Subcommand)]
pub(crate) enum Cell {
    /// A target on the paper's decimal keys or another shape.
    Points(OneOptions),
    /// The same keys shared by threads.
    Shared(bars::SharedOptions),
    /// Overwrites of keys that are there.
    Overwrites(overwrites::OverwriteOptions),
    /// Prints where blocks of the tree come from in this build.
    Allocator,
    /// A map that is filled, read, overwritten and emptied.
    Turnover(turnover::TurnoverOptions),
    /// Keys with a common prefix.
    Prefix(prefix::PrefixOptions),
    /// Reads and scans at a snapshot, beside a writer.
    Snapshots(snapshots::SnapshotsOptions),
    /// Skew between partitions.
    Skew(skew::SkewOptions),
    /// MYCSB and YCSB.
    Rows(rows::RowsOptions),
    /// Turns of Minuet's collection after a branch was dropped.
    Collection(collection::CollectionOptions),
    /// Updates after a snapshot, by the real clock.
    Aftermath(aftermath::AftermathOptions),
    /// What Minuet's transactions cost in messages.
    Minuet(minuet::MinuetOptions),
    /// Minuet's paper's experiments by a simulated clock.
    Cluster(ClusterOptions),
    /// A rung of the ladder from a binary tree to Masstree.
    Ladder(ladder::LadderOptions),
}

/// Measures one cell in this process.
pub(crate) fn run_cell(cell: &Cell) -> Result<(), EmbeddedError> {
    match cell {
        Cell::Points(options) => run_one(options),
        Cell::Shared(options) => bars::run_shared(options),
        Cell::Overwrites(options) => overwrites::run_overwrites(options),
        Cell::Allocator => {
            println!("{}", allocators::ALLOCATOR);
            Ok(())
        }
        Cell::Turnover(options) => turnover::run_turnover(options),
        Cell::Prefix(options) => prefix::run_prefix(options),
        Cell::Snapshots(options) => snapshots::run_snapshots(options),
        Cell::Skew(options) => skew::run_skew(options),
        Cell::Rows(options) => rows::run_rows(options),
        Cell::Collection(options) => collection::run_collection(options),
        Cell::Aftermath(options) => aftermath::run_aftermath(options),
        Cell::Minuet(options) => minuet::run_minuet(options),
        Cell::Cluster(options) => run_cluster(options),
        Cell::Ladder(options) => ladder::run_ladder(options),
    }
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub(crate) enum EmbeddedError {
    #[error("the process of {target} failed: {source}")]
    Target {
        target: TargetName,
        source: CellError,
    },
    #[error("{target} does not take {shape} keys")]
    Unfit { target: TargetName, shape: KeyShape },
    #[error("{target} lost or changed keys: got {got}, expected {expected}")]
    WrongAnswer {
        target: TargetName,
        got: u64,
        expected: u64,
    },
    #[error("{what} lost or changed keys: got {got}, expected {expected}")]
    WrongSum {
        what: String,
        got: u64,
        expected: u64,
    },
    #[error("{target} does not find {missing} of the rows that were inserted")]
    Missing { target: TargetName, missing: u64 },
    #[error("{0} has no rows here")]
    NoRows(TargetName),
    #[error("{0} has no order: it cannot scan")]
    NoOrder(TargetName),
    #[error("`single` has no locks: one thread only")]
    OneThread,
}

/// Measures all targets in turns.
pub(crate) fn run(options: &Options) -> Result<(), EmbeddedError> {
    let samples = in_turns(&options.targets, options.repeats, |target| {
        let line = format!(
            "cell points --target {target} --keys {} --shape {} --threads {} --seed {}",
            options.keys, options.shape, options.threads, options.seed
        );
        let arguments: Vec<_> = line.split(' ').collect();
        rounds::measure(&arguments).map_err(|source| EmbeddedError::Target {
            target: *target,
            source,
        })
    })?;
    println!(
        "{} {:?} keys, {} thread(s), median (least–most) of {} fresh processes in turns",
        options.keys, options.shape, options.threads, options.repeats
    );
    print!("{}", side_by_side(&options.targets, &samples));
    Ok(())
}
