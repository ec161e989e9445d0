//! `bars`: every in-process goal of the tree, each as the median of ratios of paired runs.
//!
//! Each measurement is a fresh process (`cell`). The cells of a part alternate round by round, and
//! a ratio is made of two figures of one round, so a slow minute affects both sides. Next to each
//! ratio of rates is the ratio by processor time, which other work on the machine disturbs less.
//! Measurements are kept (`--samples`), so rounds can be run one at a time: a call continues where
//! the last one stopped, unless the program, the keys or the pages differ.
//!
//! | part | cells |
//! |---|---|
//! | `single` | our tree, the crate `masstree`, the locked `BTreeMap`, our tree behind 40 common bytes |
//! | `double` | puts of two threads: our tree and the crate |
//! | `shared` | one and two threads on the same keys, memory touched before |
//!
//! Our side runs through the engine contract with the server's value type, versions included.

mod kept;
mod shared;

use std::io;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thiserror::Error;

use super::threads::BY_CPU;
use super::workload::{BACKWARD, FORWARD, GET, GET_BATCH, PUT, RESIDENT};
use crate::figures::Spread;
use crate::progress::Progress;
use crate::rounds::{self, CellError, Figures};
pub(super) use kept::{Kept, program};
use shared::{ARITHMETIC, TEN_KEYS};
pub(crate) use shared::{PageKind, SharedOptions, run_shared};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BarsOptions {
    /// Distinct keys, at most.
    #[arg(long, default_value_t = 10_000_000)]
    keys: usize,
    /// Pages of our side.
    #[arg(long, value_enum, default_value = "huge")]
    pages: PageKind,
    /// Rounds of the parts `single` and `double`.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Rounds of the part `shared`.
    #[arg(long, default_value_t = 7)]
    shared_rounds: usize,
    /// Parts to measure; the goals of the others are shown as far as they were measured before.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "single,double,shared"
    )]
    parts: Vec<Part>,
    /// File of what was measured; `target/bars-KEYS-PAGES.tsv` by default.
    #[arg(long)]
    samples: Option<PathBuf>,
    /// Forgets what was measured before.
    #[arg(long)]
    fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Single,
    Double,
    Shared,
}

/// Why the goals could not be measured.
#[derive(Debug, Error)]
pub(crate) enum BarsError {
    #[error("{cell} failed: {source}")]
    Cell {
        cell: &'static str,
        source: CellError,
    },
    #[error("cannot keep what was measured in {path}: {source}")]
    Kept { path: PathBuf, source: io::Error },
}

/// The cells by name.
const OURS: &str = "ours";
const CRATE: &str = "crate";
const BTREE: &str = "btree";
const PREFIXED: &str = "prefixed";
const OURS_DOUBLE: &str = "ours-double";
const CRATE_DOUBLE: &str = "crate-double";
const ONE: &str = "one";
const TWO: &str = "two";

/// One kind of measurement.
struct Cell {
    name: &'static str,
    arguments: String,
}

fn cells(part: Part, options: &BarsOptions) -> Vec<Cell> {
    let BarsOptions { keys, pages, .. } = *options;
    let ours = match pages {
        PageKind::Huge => "pando-masstree",
        PageKind::Small => "pando-masstree-small-pages",
    };
    let points = |name, target: &str, shape: &str, threads: usize, until: &str| Cell {
        name,
        arguments: format!(
            "points --target {target} --keys {keys} --shape {shape} --threads {threads} \
             --seed 1 --until {until} --by-cpu"
        ),
    };
    let shared = |name, threads: usize| {
        let pages = pages.to_possible_value().expect("no variant is hidden");
        let pages = pages.get_name();
        Cell {
            name,
            arguments: format!("shared --keys {keys} --threads {threads} --pages {pages}"),
        }
    };
    match part {
        Part::Single => vec![
            points(OURS, ours, "decimal", 1, "scan"),
            points(CRATE, "masstree-crate", "decimal", 1, "scan"),
            points(BTREE, "btree-lock", "decimal", 1, "get"),
            points(PREFIXED, ours, "prefixed", 1, "get"),
        ],
        Part::Double => vec![
            points(OURS_DOUBLE, ours, "decimal", 2, "put"),
            points(CRATE_DOUBLE, "masstree-crate", "decimal", 2, "put"),
        ],
        Part::Shared => vec![shared(ONE, 1), shared(TWO, 2)],
    }
}

/// A goal.
struct Bar {
    what: &'static str,
    figure: (&'static str, &'static str),
    /// What the figure is divided by.
    beside: Option<(&'static str, &'static str)>,
    goal: Goal,
}

#[derive(Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Shown beside the others.
    None,
}

impl Goal {
    /// The goal, and whether `value` reaches it.
    fn verdict(self, value: f64) -> String {
        let (sign, bound, met) = match self {
            Self::AtLeast(bound) => ("≥", bound, value >= bound),
            Self::AtMost(bound) => ("≤", bound, value <= bound),
            Self::None => return "–".into(),
        };
        format!("{sign} {bound} {}", if met { "met" } else { "MISSED" })
    }
}

fn bars() -> Vec<Bar> {
    let ratio = |what, figure, beside, goal| Bar {
        what,
        figure,
        beside: Some(beside),
        goal: Goal::AtLeast(goal),
    };
    let twice = |what, figure| ratio(what, (TWO, figure), (ONE, figure), 1.75);
    vec![
        ratio("gets / the crate's", (OURS, GET), (CRATE, GET), 1.3),
        ratio("gets / locked BTreeMap's", (OURS, GET), (BTREE, GET), 1.0),
        ratio("puts / locked BTreeMap's", (OURS, PUT), (BTREE, PUT), 1.2),
        ratio(
            "puts of two threads / the crate's",
            (OURS_DOUBLE, PUT),
            (CRATE_DOUBLE, PUT),
            1.5,
        ),
        ratio(
            "gets in batches of 32 / the crate's gets",
            (OURS, GET_BATCH),
            (CRATE, GET),
            3.5,
        ),
        ratio(
            "scans forward / the crate's",
            (OURS, FORWARD),
            (CRATE, FORWARD),
            2.0,
        ),
        ratio(
            "scans backward / the crate's",
            (OURS, BACKWARD),
            (CRATE, BACKWARD),
            2.0,
        ),
        ratio(
            "gets behind 40 common bytes / without",
            (PREFIXED, GET),
            (OURS, GET),
            0.8,
        ),
        Bar {
            what: "resident bytes per key",
            figure: (OURS, RESIDENT),
            beside: None,
            goal: Goal::AtMost(85.0),
        },
        Bar {
            what: "(arithmetic: two threads / one)",
            figure: (TWO, ARITHMETIC),
            beside: Some((ONE, ARITHMETIC)),
            goal: Goal::None,
        },
        twice("gets: two threads / one", GET),
        twice("puts: two threads / one", PUT),
        twice("scans: two threads / one", FORWARD),
        ratio(
            "puts to ten keys: two threads / one",
            (TWO, TEN_KEYS),
            (ONE, TEN_KEYS),
            0.5,
        ),
    ]
}

/// What is to be measured: cells and rounds, in their order.
fn missing(options: &BarsOptions, kept: &Kept) -> Vec<(Cell, usize)> {
    let mut missing = Vec::new();
    for part in &options.parts {
        let rounds = match part {
            Part::Single | Part::Double => options.rounds,
            Part::Shared => options.shared_rounds,
        };
        for round in 0..rounds {
            let cells = cells(*part, options).into_iter();
            let cells = cells.filter(|cell| !kept.has(cell.name, round));
            missing.extend(cells.map(|cell| (cell, round)));
        }
    }
    missing
}

/// Measures what is missing and prints every goal.
pub(crate) fn run_bars(options: &BarsOptions) -> Result<(), BarsError> {
    let pages = options.pages.to_possible_value();
    let pages = pages.as_ref().map_or("", |pages| pages.get_name());
    let default = || format!("target/bars-{}-{pages}.tsv", options.keys).into();
    let path = options.samples.clone().unwrap_or_else(default);
    let mut kept = Kept::open(path, &format!("{} {pages}", options.keys), options.fresh)?;
    let missing = missing(options, &kept);
    let mut progress = Progress::new(missing.len());
    for (cell, round) in missing {
        progress.step(&format!("{}, round {}", cell.name, round + 1));
        for (figure, value) in measure(&cell)? {
            kept.put(cell.name, round, &figure, value)?;
        }
    }
    progress.end();
    println!(
        "{} decimal keys, 8-byte values, {pages} pages; medians (least–most) of rounds\n",
        options.keys
    );
    println!("| | rounds | ratio of rates | by processor time | ours | beside | goal |");
    println!("|---|---|---|---|---|---|---|");
    for bar in bars() {
        print(&bar, &kept);
    }
    Ok(())
}

fn print(bar: &Bar, kept: &Kept) {
    let one = |(cell, figure): (&str, &str)| kept.rounds(cell, figure);
    let own = one(bar.figure);
    let Some(beside) = bar.beside else {
        if !own.is_empty() {
            let spread = Spread::of(own.values().copied());
            let verdict = bar.goal.verdict(spread.median);
            println!(
                "| {} | {} | | | {spread} | | {verdict} |",
                bar.what,
                own.len()
            );
        }
        return;
    };
    let ratios = |suffix: &str| {
        let own = kept.rounds(bar.figure.0, &format!("{}{suffix}", bar.figure.1));
        let other = kept.rounds(beside.0, &format!("{}{suffix}", beside.1));
        let ratio = |(round, value): (&usize, &f64)| Some(value / other.get(round)?);
        own.iter().filter_map(ratio).collect::<Vec<f64>>()
    };
    let rates = ratios("");
    if rates.is_empty() {
        println!("| {} | 0 | | | | | not measured |", bar.what);
        return;
    }
    let spread = Spread::of(rates.iter().copied());
    println!(
        "| {} | {} | {spread} | {} | {:.2} | {:.2} | {} |",
        bar.what,
        rates.len(),
        Spread::of(ratios(BY_CPU)),
        Spread::of(own.values().copied()).median,
        Spread::of(one(beside).values().copied()).median,
        bar.goal.verdict(spread.median),
    );
}

/// Runs one cell in a process of its own.
fn measure(cell: &Cell) -> Result<Figures, BarsError> {
    let line = format!("cell {}", cell.arguments);
    let arguments: Vec<_> = line.split(' ').collect();
    rounds::measure(&arguments).map_err(|source| BarsError::Cell {
        cell: cell.name,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        cell: crate::embedded::Cell,
    }

    #[derive(Parser)]
    struct Bars {
        #[command(flatten)]
        options: BarsOptions,
    }

    #[test]
    fn every_cell_parses_and_every_goal_has_its_cells() {
        let options = Bars::parse_from(["bars", "--pages", "small"]).options;
        let mut names = Vec::new();
        for part in Part::value_variants() {
            for cell in cells(*part, &options) {
                let line = Line::try_parse_from([""].into_iter().chain(cell.arguments.split(' ')));
                line.unwrap_or_else(|error| panic!("{}: {error}", cell.name));
                names.push(cell.name);
            }
        }
        for bar in bars() {
            assert!(names.contains(&bar.figure.0), "{}", bar.what);
            assert!(
                bar.beside.is_none_or(|(cell, _)| names.contains(&cell)),
                "{}",
                bar.what
            );
        }
    }

    #[test]
    fn verdicts_name_the_bound() {
        assert_eq!(Goal::AtLeast(2.0).verdict(1.9), "≥ 2 MISSED");
        assert_eq!(Goal::AtLeast(1.75).verdict(1.75), "≥ 1.75 met");
        assert_eq!(Goal::AtMost(85.0).verdict(66.0), "≤ 85 met");
    }
}
