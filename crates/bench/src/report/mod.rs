//! `report`: every question measured, one page and one JSON file written.
//!
//! A question ([`model::Question`]) is a list of cells (a target at a point), with their plots and
//! the papers' figures. Cells are measured alternately, each in a fresh process, round by round, so
//! a slow minute of the machine affects all of them; ratios are made per round. The samples are
//! kept next to the page (`samples.tsv`), so `--keep` can measure one question anew and write the
//! whole page.
//!
//! Deliberately absent: scripts in the page, anything that a page would load.

mod docs;
mod html;
mod json;
mod machine;
mod markdown;
mod model;
mod questions;
mod run;
mod samples;
mod svg;
mod table;

use std::path::PathBuf;

use clap::Args;
use thiserror::Error;

use crate::progress::Progress;

pub(crate) use model::Sizes;
use samples::Samples;

/// What to measure and where to write it.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    /// Small sizes: minutes instead of hours.
    #[arg(long)]
    quick: bool,
    /// Directory for `report.html`, `report.json` and `samples.tsv`.
    #[arg(long, default_value = "target/report")]
    out: PathBuf,
    /// Questions to measure; all when absent. `--list` names them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Prints the questions and what each asks.
    #[arg(long)]
    list: bool,
    /// Keeps the samples of `--out` for questions that are not measured this time.
    #[arg(long)]
    keep: bool,
    /// Measurements of each cell.
    #[arg(long)]
    repeats: Option<usize>,
    /// Keys of the in-process questions.
    #[arg(long)]
    keys: Option<usize>,
    /// Rows of MYCSB and YCSB, and keys over the wire.
    #[arg(long)]
    rows: Option<usize>,
    /// Milliseconds of one measurement over the wire.
    #[arg(long)]
    wire_ms: Option<u64>,
    /// Threads of the questions on several threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Binary of this server, for the questions over the wire.
    #[arg(long, default_value = "target/release/pando")]
    pando: PathBuf,
    /// This tool built with `--features single-core`, for the single-core variants (§6.4).
    #[arg(long)]
    single_core: Option<PathBuf>,
    /// Measures nothing: writes the page anew from the samples of `--out`.
    #[arg(long, conflicts_with = "only")]
    render: bool,
    /// Writes the summary tables into the marked places of `README.md` and `docs/BENCHMARKS.md` of
    /// this directory.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub(crate) enum ReportError {
    #[error("no question {0}; there are {1}")]
    NoQuestion(String, String),
    #[error("cannot write {path}: {source}")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}, line {line}: not question, figure, series, place, round and value")]
    Samples { path: PathBuf, line: usize },
    #[error("{path} has no place marked `{marker}`")]
    NoPlace { path: PathBuf, marker: String },
    #[error("--repeats, --keys, --rows and --threads must be at least 1")]
    Zero,
}

impl Options {
    fn sizes(&self) -> Sizes {
        let mut sizes = if self.quick {
            Sizes::quick()
        } else {
            Sizes::full()
        };
        sizes.repeats = self.repeats.unwrap_or(sizes.repeats);
        sizes.keys = self.keys.unwrap_or(sizes.keys);
        sizes.rows = self.rows.unwrap_or(sizes.rows);
        sizes.wire_ms = self.wire_ms.unwrap_or(sizes.wire_ms);
        sizes.threads = self.threads;
        sizes
    }
}

/// Measures and writes.
pub(crate) fn run(options: &Options) -> Result<(), ReportError> {
    let sizes = options.sizes();
    if sizes.repeats == 0 || sizes.keys == 0 || sizes.rows == 0 || sizes.threads == 0 {
        return Err(ReportError::Zero);
    }
    let all = questions::all(&sizes);
    if options.list {
        for question in &all {
            println!("{:12} {}", question.id, question.asks);
        }
        return Ok(());
    }
    for name in &options.only {
        if !all.iter().any(|question| question.id == name) {
            let ids: Vec<_> = all.iter().map(|question| question.id).collect();
            return Err(ReportError::NoQuestion(name.clone(), ids.join(", ")));
        }
    }
    let wanted = |id: &str| options.only.is_empty() || options.only.iter().any(|name| name == id);
    let kept = options.out.join("samples.tsv");
    let mut samples = if options.render || (options.keep && kept.exists()) {
        Samples::read(&kept)?
    } else {
        Samples::default()
    };
    let programs = run::Programs {
        pando: &options.pando,
        single_core: options.single_core.as_deref(),
    };
    let measured: Vec<_> = all
        .iter()
        .filter(|question| wanted(question.id) && !options.render)
        .collect();
    let steps = measured
        .iter()
        .map(|question| run::steps(question, &sizes, programs));
    let mut progress = Progress::new(steps.sum());
    for question in &measured {
        samples.forget(question.id);
        run::measure(question, &sizes, programs, &mut samples, &mut progress);
        // After each question, so that an interrupted run leaves what it has.
        write(options, &sizes, &all, &samples)?;
    }
    progress.end();
    if options.render {
        write(options, &sizes, &all, &samples)?;
    }
    if let Some(directory) = &options.docs {
        let machine = machine::Machine::here(&options.pando, &sizes);
        let blocks = markdown::blocks(&all, &samples, &machine, &sizes);
        docs::refresh(directory, &blocks)?;
    }
    println!("{}", options.out.join("report.html").display());
    Ok(())
}

fn write(
    options: &Options,
    sizes: &Sizes,
    all: &[model::Question],
    samples: &Samples,
) -> Result<(), ReportError> {
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| ReportError::Write { path, source }
    };
    std::fs::create_dir_all(&options.out).map_err(failed(&options.out))?;
    let machine = machine::Machine::here(&options.pando, sizes);
    for (name, text) in [
        ("report.html", html::page(all, samples, &machine, sizes)),
        ("report.json", json::document(all, samples, &machine)),
        (
            "report.md",
            markdown::document(all, samples, &machine, sizes),
        ),
        ("samples.tsv", samples.to_text()),
    ] {
        let path = options.out.join(name);
        std::fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}
