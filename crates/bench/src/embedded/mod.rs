//! In-process measurements: this project's engines through the contract, beside embedded peers.
//!
//! `embedded` runs every target in a fresh process of its own (`cell`), in turns, so that
//! no allocator or page of one target serves the next, and prints medians with ratios to the first
//! target. The workload is the Masstree paper's (§6): decimal strings of random 31-bit numbers,
//! 8-byte values.

mod bars;
mod keys;
mod ladder;
mod prefix;
mod rows;
mod skew;
mod targets;
mod threads;
mod workload;

use std::process::Command;

use clap::{Args, Subcommand, ValueEnum};
use thiserror::Error;

use crate::figures::Spread;
pub(crate) use bars::{BarsOptions, run_bars};
use keys::KeyShape;
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
    #[arg(long, default_value_t = 10_000_000)]
    keys: usize,
    /// Shape of the keys.
    #[arg(long, value_enum, default_value = "decimal")]
    shape: KeyShape,
    /// Threads on the same keys.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Fresh processes per target.
    #[arg(long, default_value_t = 5)]
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
    /// Keys with a common prefix.
    Prefix(prefix::PrefixOptions),
    /// Skew between partitions.
    Skew(skew::SkewOptions),
    /// MYCSB and YCSB.
    Rows(rows::RowsOptions),
    /// A rung of the ladder from a binary tree to Masstree.
    Ladder(ladder::LadderOptions),
}

/// Measures one cell in this process.
pub(crate) fn run_cell(cell: &Cell) -> Result<(), EmbeddedError> {
    match cell {
        Cell::Points(options) => run_one(options),
        Cell::Shared(options) => bars::run_shared(options),
        Cell::Prefix(options) => prefix::run_prefix(options),
        Cell::Skew(options) => skew::run_skew(options),
        Cell::Rows(options) => rows::run_rows(options),
        Cell::Ladder(options) => ladder::run_ladder(options),
    }
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub(crate) enum EmbeddedError {
    #[error("cannot run a target's process: {0}")]
    Process(#[from] std::io::Error),
    #[error("the process of {target} failed: {message}")]
    Target { target: TargetName, message: String },
    #[error("{target} does not take {shape} keys")]
    Unfit { target: TargetName, shape: KeyShape },
    #[error("the process of {target} printed no figures")]
    NoFigures { target: TargetName },
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

type Figures = Vec<(String, f64)>;

/// Measures all targets in turns.
pub(crate) fn run(options: &Options) -> Result<(), EmbeddedError> {
    let mut samples: Vec<Vec<Figures>> = vec![Vec::new(); options.targets.len()];
    for round in 0..options.repeats {
        for (target, samples) in options.targets.iter().zip(&mut samples) {
            eprintln!("round {} of {}: {target}", round + 1, options.repeats);
            samples.push(spawn(options, *target)?);
        }
    }
    println!(
        "{} {:?} keys, {} thread(s), median (least–most) of {} fresh processes in turns",
        options.keys, options.shape, options.threads, options.repeats
    );
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in samples.iter().flat_map(|rounds| &rounds[0]) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        println!("\n{name}");
        for (target, rounds) in options.targets.iter().zip(&samples) {
            let Some(figures) = figures_of(rounds, name) else {
                println!("  {target:18} cannot");
                continue;
            };
            let ratios = figures_of(&samples[0], name).map_or(String::new(), |first| {
                let ratios = figures.iter().zip(first).map(|(own, first)| own / first);
                format!("   ratio {}", Spread::of(ratios))
            });
            println!("  {target:18} {}{ratios}", Spread::of(figures));
        }
    }
    Ok(())
}

/// The figure of this name in every round; `None` when the target does not have it.
fn figures_of(rounds: &[Figures], name: &str) -> Option<Vec<f64>> {
    let figure = |figures: &Figures| figures.iter().find(|(other, _)| other == name).map(|f| f.1);
    rounds.iter().map(figure).collect()
}

fn spawn(options: &Options, target: TargetName) -> Result<Figures, EmbeddedError> {
    let output = Command::new(std::env::current_exe()?)
        .args(["cell", "points"])
        .args([
            "--target",
            &target.to_string(),
            "--keys",
            &options.keys.to_string(),
        ])
        .args(["--shape", &options.shape.to_string()])
        .args([
            "--threads",
            &options.threads.to_string(),
            "--seed",
            &options.seed.to_string(),
        ])
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(EmbeddedError::Target { target, message });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Figures = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect();
    if figures.is_empty() {
        Err(EmbeddedError::NoFigures { target })
    } else {
        Ok(figures)
    }
}
