//! `guard`: two builds on a fixed short set of cells; regressions over 5 % are named.
//!
//! Two measures per cell. Instructions (callgrind, where valgrind is installed) are the same on a
//! busy machine and see what makes code longer, not what makes it wait. Times are taken in pairs,
//! the builds in turns; a build is slower when the median of the pairs' ratios says so and all
//! pairs but one agree that there is a loss at all.
//!
//! A build is a git revision, built in a worktree of its own that is removed afterwards, whatever
//! ends the guard ([`sweep()`]), or the path of a `pando-bench` that is built already.

mod builds;
mod sweep;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use thiserror::Error;

pub(crate) use sweep::sweep;

use crate::figures::Spread;
use crate::servers::bound_to_this_process;

/// Losses above this share are regressions.
const TOLERANCE: f64 = 0.05;

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The build to compare with: a git revision, or the path of a `pando-bench`.
    before: String,
    /// The build under suspicion.
    after: String,
    /// Pairs of timed runs per cell.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Cells to run; all when absent.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leaves the instructions out.
    #[arg(long)]
    times_only: bool,
}

/// Why two builds cannot be compared, or what was found.
#[derive(Debug, Error)]
pub(crate) enum GuardError {
    #[error("no cell {name}; there are {}", names().join(", "))]
    NoCell { name: String },
    #[error("{what} failed: {message}")]
    Failed { what: String, message: String },
    #[error("cannot run {program}: {source}")]
    Run {
        program: String,
        source: std::io::Error,
    },
    #[error("{build} printed no figures for {cell}")]
    NoFigures { build: String, cell: &'static str },
    #[error("{} regression(s) over {:.0} %: {}", found.len(), TOLERANCE * 100.0, found.join("; "))]
    Regressions { found: Vec<String> },
}

/// A cell: its name, the arguments after `cell`, the keys of a timed run and of a counted one.
struct Fixed {
    name: &'static str,
    arguments: &'static str,
    timed: u32,
    counted: u32,
}

const SET: [Fixed; 5] = [
    Fixed {
        name: "decimal",
        arguments: "points --target pando-masstree --shape decimal --threads 1 --seed 1 --keys",
        timed: 300_000,
        counted: 20_000,
    },
    Fixed {
        name: "prefixed",
        arguments: "points --target pando-masstree --shape prefixed --threads 1 --seed 1 --keys",
        timed: 200_000,
        counted: 20_000,
    },
    Fixed {
        name: "two-threads",
        arguments: "points --target pando-masstree --shape decimal --threads 2 --seed 1 --keys",
        timed: 300_000,
        counted: 20_000,
    },
    Fixed {
        name: "update-columns",
        arguments: "rows --workload mycsb-a --target pando-masstree --threads 1 --steps 100000 \
                    --keys",
        timed: 100_000,
        counted: 10_000,
    },
    Fixed {
        name: "getrange",
        arguments: "rows --workload mycsb-e --target pando-masstree --threads 1 --steps 4000 \
                    --keys",
        timed: 100_000,
        counted: 10_000,
    },
];

fn names() -> Vec<&'static str> {
    SET.iter().map(|cell| cell.name).collect()
}

impl Fixed {
    fn arguments(&self, keys: u32) -> Vec<String> {
        let mut arguments: Vec<String> = self
            .arguments
            .split_whitespace()
            .map(String::from)
            .collect();
        arguments.push(keys.to_string());
        arguments.insert(0, "cell".into());
        arguments
    }
}

/// Compares the builds; an error when the second is worse.
pub(crate) fn run(options: &Options) -> Result<(), GuardError> {
    if let Some(name) = options
        .only
        .iter()
        .find(|name| !names().contains(&name.as_str()))
    {
        return Err(GuardError::NoCell { name: name.clone() });
    }
    let builds = builds::Builds::prepare([&options.before, &options.after])?;
    let counts = !options.times_only && has_valgrind();
    if !counts && !options.times_only {
        println!("valgrind is not installed: instructions are left out");
    }
    let mut found = Vec::new();
    for cell in &SET {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == cell.name) {
            continue;
        }
        println!("{}", cell.name);
        if counts {
            let [before, after] = [0, 1].map(|at| instructions(&builds.programs[at], cell));
            let ratio = after? as f64 / before? as f64;
            let verdict = if ratio > 1.0 + TOLERANCE {
                found.push(format!("{}, instructions × {ratio:.3}", cell.name));
                "REGRESSION"
            } else {
                ""
            };
            println!("  instructions × {ratio:.4} {verdict}");
        }
        let mut pairs = Vec::new();
        for _ in 0..options.pairs {
            let before = timed(&builds.programs[0], cell)?;
            let after = timed(&builds.programs[1], cell)?;
            pairs.push((before, after));
        }
        for (index, (name, _)) in pairs[0].0.iter().enumerate() {
            // Memory is no time; it is printed and judged like one that should not grow.
            let less_is_better = name.contains("bytes");
            let ratios: Vec<f64> = pairs
                .iter()
                .filter_map(|(before, after)| Some(after.get(index)?.1 / before[index].1))
                .map(|ratio| if less_is_better { 1.0 / ratio } else { ratio })
                .collect();
            let verdict = if is_loss(&ratios) {
                let median = Spread::of(ratios.iter().copied()).median;
                found.push(format!("{}, {name} × {median:.3}", cell.name));
                "REGRESSION"
            } else {
                ""
            };
            println!("  {name}: × {} {verdict}", Spread::of(ratios));
        }
    }
    if found.is_empty() {
        println!("no regression over {:.0} %", TOLERANCE * 100.0);
        Ok(())
    } else {
        Err(GuardError::Regressions { found })
    }
}

/// Whether ratios (above 1 is better) show a loss over the tolerance.
fn is_loss(ratios: &[f64]) -> bool {
    let median = Spread::of(ratios.iter().copied()).median;
    let others = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
    median < 1.0 - TOLERANCE && others <= usize::from(ratios.len() > 2)
}

fn has_valgrind() -> bool {
    let output = Command::new("valgrind").arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

fn output_of(command: &mut Command, what: &str) -> Result<std::process::Output, GuardError> {
    let output = command.output().map_err(|source| GuardError::Run {
        program: what.into(),
        source,
    })?;
    if output.status.success() {
        return Ok(output);
    }
    Err(GuardError::Failed {
        what: what.into(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn timed(program: &Path, cell: &Fixed) -> Result<Vec<(String, f64)>, GuardError> {
    let build = program.display().to_string();
    let mut command = bound_to_this_process(&build);
    let output = output_of(command.args(cell.arguments(cell.timed)), &build)?;
    let figures: Vec<_> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect();
    if figures.is_empty() {
        return Err(GuardError::NoFigures {
            build,
            cell: cell.name,
        });
    }
    Ok(figures)
}

fn instructions(program: &Path, cell: &Fixed) -> Result<u64, GuardError> {
    let build = program.display().to_string();
    let mut command = bound_to_this_process("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &build])
        .args(cell.arguments(cell.counted));
    let output = output_of(&mut command, &format!("valgrind {build}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    collected(&text).ok_or(GuardError::NoFigures {
        build,
        cell: cell.name,
    })
}

/// The number behind `Collected :` in callgrind's words.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Where builds of revisions are kept while they are compared.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("pando-guard-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_one_that_nearly_all_pairs_show() {
        assert!(is_loss(&[0.9, 0.92, 0.94, 0.93, 0.91]));
        // One pair met a better moment.
        assert!(is_loss(&[0.9, 0.92, 1.2, 0.93, 0.91]));
        // Noise about nothing.
        assert!(!is_loss(&[0.8, 1.2, 0.9, 1.1, 0.94]));
        // Within the tolerance.
        assert!(!is_loss(&[0.96, 0.97, 0.96]));
        assert!(is_loss(&[0.8]));
    }

    #[test]
    fn callgrind_is_understood() {
        let text = "==1== Events    : Ir\n==1== Collected : 123456\n==1==\n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("nothing"), None);
    }
}
