//! `guard`: compares two builds on a fixed short set of cells and names regressions: more than 2 %
//! in instructions, more than 5 % in times.
//!
//! Two measures per cell. Instructions (callgrind, where valgrind is installed) are the same on a
//! busy machine and show what makes code longer, not what makes it wait. Times are taken in pairs,
//! with the builds alternating; a build is slower when the median of the pairs' ratios says so and
//! all pairs but one agree that there is a loss at all.
//!
//! A build is a git revision, built in its own worktree that is removed afterwards, however the
//! guard ends ([`sweep()`]), or the path of an existing `pando-bench` with the server `pando` next
//! to it.

mod builds;
mod served;
mod sweep;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use thiserror::Error;

pub(crate) use sweep::sweep;

use builds::{Build, Builds};
use served::{Served, ServedError};

use crate::beside::Kind;
use crate::figures::Spread;
use crate::progress::Progress;
use crate::rounds::{self, CellError, Figures, figure};
use crate::servers::bound_to_this_process;

/// Losses of time or memory above this share are regressions.
const TOLERANCE: f64 = 0.05;
/// So are more instructions by this share; they hardly vary.
const INSTRUCTIONS_TOLERANCE: f64 = 0.02;

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The build to compare with: a git revision, or the path of a `pando-bench`.
    before: String,
    /// The build under suspicion.
    after: String,
    /// Pairs of timed runs per cell; 0 leaves the times out.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(0..=1000))]
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
    #[error("{build} on {cell}: {source}")]
    Cell {
        build: String,
        cell: &'static str,
        source: CellError,
    },
    #[error("{build} on {cell}: {source}")]
    Served {
        build: String,
        cell: &'static str,
        source: Box<ServedError>,
    },
    #[error("{} regression(s) over {}: {}", found.len(), tolerances(), found.join("; "))]
    Regressions { found: Vec<String> },
}

/// A cell: what is measured under which name.
struct Fixed {
    name: &'static str,
    work: Work,
}

enum Work {
    /// The arguments after `cell`, the keys of a timed run and of a counted one.
    InProcess {
        arguments: &'static str,
        timed: u32,
        counted: u32,
    },
    Served(Served),
}

const fn in_process(
    name: &'static str,
    arguments: &'static str,
    timed: u32,
    counted: u32,
) -> Fixed {
    let work = Work::InProcess {
        arguments,
        timed,
        counted,
    };
    Fixed { name, work }
}

const fn served(name: &'static str, engine: &'static str, kind: Kind) -> Fixed {
    let work = Work::Served(Served { engine, kind });
    Fixed { name, work }
}

const SET: [Fixed; 10] = [
    in_process(
        "decimal",
        "points --target pando-masstree --shape decimal --threads 1 --seed 1 --keys",
        300_000,
        20_000,
    ),
    in_process(
        "prefixed",
        "points --target pando-masstree --shape prefixed --threads 1 --seed 1 --keys",
        200_000,
        20_000,
    ),
    in_process(
        "two-threads",
        "points --target pando-masstree --shape decimal --threads 2 --seed 1 --keys",
        300_000,
        20_000,
    ),
    in_process(
        "mercury",
        "points --target pando-mercury --shape decimal --threads 1 --seed 1 --keys",
        300_000,
        20_000,
    ),
    in_process(
        "update-columns",
        "rows --workload mycsb-a --target pando-masstree --threads 1 --steps 100000 --keys",
        100_000,
        10_000,
    ),
    in_process(
        "getrange",
        "rows --workload mycsb-e --target pando-masstree --threads 1 --steps 4000 --keys",
        100_000,
        10_000,
    ),
    served("wire-get", "masstree", Kind::RespGet),
    served("wire-set", "masstree", Kind::RespSet),
    served("wire-get-mercury", "mercury", Kind::RespGet),
    served("wire-set-mercury", "mercury", Kind::RespSet),
];

fn names() -> Vec<&'static str> {
    SET.iter().map(|cell| cell.name).collect()
}

fn tolerances() -> String {
    let [instructions, times] = [INSTRUCTIONS_TOLERANCE, TOLERANCE].map(|share| share * 100.0);
    format!("{instructions:.0} % in instructions, {times:.0} % in times")
}

impl Fixed {
    fn timed(&self, build: &Build) -> Result<Figures, GuardError> {
        match &self.work {
            Work::InProcess {
                arguments, timed, ..
            } => {
                let measured = rounds::measure_with(&build.bench, &line(arguments, *timed));
                measured.map_err(|source| GuardError::Cell {
                    build: build.bench.display().to_string(),
                    cell: self.name,
                    source,
                })
            }
            Work::Served(served) => served
                .timed(build)
                .map_err(|error| error.on(build, self.name)),
        }
    }

    fn instructions(&self, build: &Build, scratch: &Path) -> Result<Cost, GuardError> {
        match &self.work {
            Work::InProcess {
                arguments, counted, ..
            } => {
                let arguments = line(arguments, *counted);
                let instructions = instructions(&build.bench, &arguments, self.name)?;
                Ok(Cost {
                    instructions,
                    requests: None,
                })
            }
            Work::Served(served) => served
                .instructions(build, scratch)
                .map_err(|error| error.on(build, self.name)),
        }
    }
}

/// The arguments of a cell in a process of its own.
fn line(arguments: &str, keys: u32) -> Vec<String> {
    let words = ["cell"].into_iter().chain(arguments.split_whitespace());
    let words = words.map(String::from);
    words.chain([keys.to_string()]).collect()
}

/// Instructions of a run, and of how many requests where there are some.
#[derive(Clone, Copy, Debug)]
struct Cost {
    instructions: u64,
    requests: Option<u64>,
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
    let builds = Builds::prepare([&options.before, &options.after])?;
    let counts = !options.times_only && has_valgrind();
    if !counts && !options.times_only {
        println!("valgrind is not installed: instructions are left out");
    }
    let cells = SET.iter().filter(|cell| {
        options.only.is_empty() || options.only.iter().any(|name| name == cell.name)
    });
    let cells: Vec<_> = cells.collect();
    let pairs = usize::from(options.pairs);
    let mut progress = Progress::new(cells.len() * (pairs + usize::from(counts)));
    let mut found = Vec::new();
    for cell in cells {
        let measured = measure(cell, &builds, counts, pairs, &mut progress)?;
        progress.clear();
        println!("{}", cell.name);
        for Measured { what, regression } in measured {
            let verdict = if regression.is_some() {
                " REGRESSION"
            } else {
                ""
            };
            println!("  {what}{verdict}");
            found.extend(regression.map(|text| format!("{}, {text}", cell.name)));
        }
    }
    progress.end();
    if found.is_empty() {
        println!("no regression over {}", tolerances());
        Ok(())
    } else {
        Err(GuardError::Regressions { found })
    }
}

/// All figures of a cell.
fn measure(
    cell: &Fixed,
    builds: &Builds,
    counts: bool,
    pairs: usize,
    progress: &mut Progress,
) -> Result<Vec<Measured>, GuardError> {
    let [before, after] = &builds.pair;
    let mut measured = Vec::new();
    if counts {
        progress.step(&format!("{}, instructions", cell.name));
        let [before, after] =
            [before, after].map(|build| cell.instructions(build, builds.scratch()));
        measured.push(of_instructions(before?, after?));
    }
    let mut runs = Vec::new();
    for pair in 1..=pairs {
        progress.step(&format!("{}, pair {pair} of {pairs}", cell.name));
        runs.push((cell.timed(before)?, cell.timed(after)?));
    }
    measured.extend(of_pairs(&runs));
    Ok(measured)
}

/// One figure of a cell: what is printed, and what is said of it when it is a regression.
struct Measured {
    what: String,
    regression: Option<String>,
}

fn of_instructions(before: Cost, after: Cost) -> Measured {
    let ratio = after.instructions as f64 / before.instructions as f64;
    let each = |cost: Cost| {
        let requests = cost.requests?;
        Some(cost.instructions as f64 / requests as f64)
    };
    let each = each(before).zip(each(after));
    let each = each.map_or(String::new(), |(before, after)| {
        format!(" ({before:.0} → {after:.0} per request)")
    });
    Measured {
        what: format!("instructions × {ratio:.4}{each}"),
        regression: (ratio > 1.0 + INSTRUCTIONS_TOLERANCE)
            .then(|| format!("instructions × {ratio:.3}")),
    }
}

/// Every figure of the timed runs; ratios above 1 are better.
fn of_pairs(runs: &[(Figures, Figures)]) -> Vec<Measured> {
    let names = runs.iter().take(1).flat_map(|(before, _)| before);
    let mut all = Vec::new();
    for (name, _) in names {
        // Memory is no time; it is printed and judged like one that should not grow.
        let less_is_better = name.contains("bytes");
        let ratio = |(before, after): &(Figures, Figures)| {
            let ratio = figure(after, name)? / figure(before, name)?;
            Some(if less_is_better { 1.0 / ratio } else { ratio })
        };
        let ratios = runs.iter().filter_map(ratio).filter(|it| it.is_finite());
        let ratios: Vec<f64> = ratios.collect();
        if ratios.is_empty() {
            continue;
        }
        let spread = Spread::of(ratios.iter().copied());
        all.push(Measured {
            what: format!("{name}: × {spread}"),
            regression: is_loss(&ratios).then(|| format!("{name} × {:.3}", spread.median)),
        });
    }
    all
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

fn instructions(
    program: &Path,
    arguments: &[String],
    cell: &'static str,
) -> Result<u64, GuardError> {
    let build = program.display().to_string();
    let mut command = bound_to_this_process("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &build])
        .args(arguments);
    let output = output_of(&mut command, &format!("valgrind {build}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    collected(&text).ok_or(GuardError::Cell {
        build,
        cell,
        source: CellError::NoFigures,
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

    /// Runs of one figure: before and after, pair by pair.
    fn runs(name: &str, values: &[(f64, f64)]) -> Vec<(Figures, Figures)> {
        let one = |value: f64| vec![(name.to_owned(), value)];
        let runs = values
            .iter()
            .map(|(before, after)| (one(*before), one(*after)));
        runs.collect()
    }

    #[test]
    fn a_figure_is_judged_by_its_own_sense() {
        let slower = of_pairs(&runs(
            "get, million/s",
            &[(2.0, 1.8), (1.0, 0.9), (2.0, 1.7)],
        ));
        assert_eq!(
            slower[0].regression.as_deref(),
            Some("get, million/s × 0.900")
        );
        let equal = of_pairs(&runs(
            "get, million/s",
            &[(2.0, 2.1), (1.0, 0.9), (2.0, 1.99)],
        ));
        assert!(equal[0].regression.is_none());
        // More memory is worse, and less is better, whatever the rates do.
        let larger = of_pairs(&runs("resident bytes per key", &[(60.0, 66.0); 3]));
        assert!(larger[0].regression.is_some());
        let smaller = of_pairs(&runs("resident bytes per key", &[(66.0, 60.0); 3]));
        assert!(smaller[0].regression.is_none());
        // A build that lacks the figure, or has nothing to divide by, is not judged by it.
        let other = [(runs("a", &[(1.0, 1.0)])[0].0.clone(), Vec::new())];
        assert!(of_pairs(&other).is_empty());
        assert!(of_pairs(&runs("a", &[(0.0, 1.0)])).is_empty());
    }

    #[test]
    fn instructions_count_over_the_tolerance_only() {
        let judge = |before, after| {
            let cost = |instructions| Cost {
                instructions,
                requests: Some(10),
            };
            of_instructions(cost(before), cost(after))
        };
        assert!(judge(1000, 1020).regression.is_none());
        let longer = judge(1000, 1030);
        assert_eq!(longer.what, "instructions × 1.0300 (100 → 103 per request)");
        assert_eq!(longer.regression.as_deref(), Some("instructions × 1.030"));
        assert!(judge(1000, 500).regression.is_none());
    }

    #[test]
    fn callgrind_is_understood() {
        let text = "==1== Events    : Ir\n==1== Collected : 123456\n==1==\n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("nothing"), None);
    }
}
