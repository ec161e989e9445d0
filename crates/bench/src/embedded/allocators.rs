//! `allocators`: the tree on our pools compared with the same tree whose nodes and values come from
//! a general allocator.
//!
//! Another allocator is another build of this program (`crates/bench/scripts/allocators.sh` makes
//! them): the feature `program-allocator` takes the pools out of crate `memory`, another one picks
//! the allocator. Every build is asked which one it has, so no figure gets a wrong name. All of
//! them count bytes and blocks; they differ in where a block comes from.
//!
//! Huge pages are requested in each allocator's own way: ours by `Pages::Huge`, the others by the
//! variable of [`wish`], which can also turn them off.
//!
//! Measurements are kept, as in `bars`: a call continues where the last one stopped.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::bars::{BarsError, Kept, PageKind, program};
use super::overwrites::{BATCH, HUGE_SHARE, RESIDENT_AFTER, SINGLE};
use super::threads::BY_CPU;
use super::workload::{GET, GET_BATCH, PUT, RESIDENT};
use crate::figures::Spread;
use crate::rounds::{CellError, Figures, measure_under};

/// Where blocks of the tree come from in this build.
pub(crate) const ALLOCATOR: &str = if cfg!(not(feature = "program-allocator")) {
    POOLS
} else if cfg!(feature = "mimalloc") {
    "mimalloc"
} else if cfg!(feature = "jemalloc") {
    "jemalloc"
} else {
    "system"
};

const POOLS: &str = "pools";

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct AllocatorsOptions {
    /// Builds of this program with other allocators; this program itself is the first side.
    #[arg(long, value_delimiter = ',', required = true)]
    programs: Vec<PathBuf>,
    /// Distinct keys, at most.
    #[arg(long, default_value_t = 2_000_000)]
    keys: usize,
    /// Pages to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "huge,small")]
    pages: Vec<PageKind>,
    /// Most bytes of the values that overwrites write; they have 8 at least.
    #[arg(long, default_value_t = 120)]
    value_bytes_max: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// File of what was measured.
    #[arg(long, default_value = "target/allocators.tsv")]
    samples: PathBuf,
    /// Forgets what was measured before.
    #[arg(long)]
    fresh: bool,
}

/// Variable and value by which this allocator is told what pages to use.
fn wish(allocator: &str, pages: PageKind) -> Option<(&'static str, &'static str)> {
    let huge = pages == PageKind::Huge;
    let of = |variable, on, off| Some((variable, if huge { on } else { off }));
    match allocator {
        "mimalloc" => of("MIMALLOC_ALLOW_THP", "1", "0"),
        "jemalloc" => of("_RJEM_MALLOC_CONF", "thp:always", "thp:never"),
        "system" => of(
            "GLIBC_TUNABLES",
            "glibc.malloc.hugetlb=1",
            "glibc.malloc.hugetlb=0",
        ),
        _ => None,
    }
}

/// A cell: its name and arguments, of which `{target}` and `{pages}` are to be filled in.
struct Cell {
    name: &'static str,
    arguments: String,
    figures: &'static [&'static str],
}

fn cells(options: &AllocatorsOptions) -> [Cell; 3] {
    let AllocatorsOptions {
        keys,
        value_bytes_max,
        ..
    } = options;
    let points = |threads: usize, until: &str| {
        format!(
            "points --target {{target}} --keys {keys} --shape decimal --threads {threads} \
             --seed 1 --until {until} --by-cpu"
        )
    };
    [
        Cell {
            name: "one thread",
            arguments: points(1, "batch"),
            figures: &[PUT, GET, GET_BATCH, RESIDENT],
        },
        Cell {
            name: "two threads",
            arguments: points(2, "put"),
            figures: &[PUT],
        },
        Cell {
            name: "two threads overwrite",
            arguments: format!(
                "overwrites --keys {keys} --threads 2 --pages {{pages}} --value-bytes-max \
                 {value_bytes_max}"
            ),
            figures: &[SINGLE, BATCH, RESIDENT_AFTER, HUGE_SHARE],
        },
    ]
}

/// One build.
struct Side {
    program: PathBuf,
    allocator: String,
}

impl Side {
    fn ask(program: &Path) -> Result<Self, BarsError> {
        let failed = |source| BarsError::Cell {
            cell: "allocator",
            source,
        };
        let output = Command::new(program)
            .args(["cell", "allocator"])
            .output()
            .map_err(|source| {
                failed(CellError::Start {
                    program: program.display().to_string(),
                    source,
                })
            })?;
        let allocator = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || allocator.is_empty() {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(failed(CellError::Failed { message }));
        }
        Ok(Self {
            program: program.to_owned(),
            allocator,
        })
    }

    fn name(&self, cell: &Cell, pages: PageKind) -> String {
        format!("{} {} {}", self.allocator, cell.name, page_name(pages))
    }

    fn measure(&self, cell: &Cell, pages: PageKind) -> Result<Figures, BarsError> {
        let target = match pages {
            PageKind::Huge => "pando-masstree",
            PageKind::Small => "pando-masstree-small-pages",
        };
        let arguments = cell
            .arguments
            .replace("{target}", target)
            .replace("{pages}", page_name(pages));
        let line: Vec<_> = ["cell"]
            .into_iter()
            .chain(arguments.split_whitespace())
            .collect();
        let measured = measure_under(&self.program, &line, wish(&self.allocator, pages));
        measured.map_err(|source| BarsError::Cell {
            cell: cell.name,
            source,
        })
    }
}

fn page_name(pages: PageKind) -> &'static str {
    match pages {
        PageKind::Huge => "huge",
        PageKind::Small => "small",
    }
}

/// Measures what is missing and prints every cell.
pub(crate) fn run_allocators(options: &AllocatorsOptions) -> Result<(), BarsError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| BarsError::Kept { path, source }
    };
    let own = std::env::current_exe().map_err(unreadable(Path::new("this tool")))?;
    let sides: Vec<Side> = std::iter::once(&own)
        .chain(&options.programs)
        .map(|program| Side::ask(program))
        .collect::<Result<_, _>>()?;
    let mut subject = format!("{} {}", options.keys, options.value_bytes_max);
    for side in &sides[1..] {
        subject.push(' ');
        subject.push_str(&program(&side.program).map_err(unreadable(&side.program))?);
    }
    let mut kept = Kept::open(options.samples.clone(), &subject, options.fresh)?;
    let cells = cells(options);
    for round in 0..options.rounds {
        for pages in &options.pages {
            for cell in &cells {
                for side in &sides {
                    let name = side.name(cell, *pages);
                    if kept.has(&name, round) {
                        continue;
                    }
                    eprintln!("round {} of {}: {name}", round + 1, options.rounds);
                    for (figure, value) in side.measure(cell, *pages)? {
                        kept.put(&name, round, &figure, value)?;
                    }
                }
            }
        }
    }
    print(options, &sides, &cells, &kept);
    Ok(())
}

/// A row per figure: ours, and every other as a ratio to ours, round by round.
fn print(options: &AllocatorsOptions, sides: &[Side], cells: &[Cell], kept: &Kept) {
    println!(
        "{} decimal keys; medians (least–most) of {} rounds; ratios to the pools by processor \
         time, memory as it is\n",
        options.keys, options.rounds
    );
    let names: Vec<_> = sides.iter().map(|side| &side.allocator[..]).collect();
    println!("| pages | threads | | {} |", names.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(sides.len()));
    for pages in &options.pages {
        for cell in cells {
            for figure in cell.figures {
                // Of memory, not of time: shown as it is.
                let bytes = [RESIDENT, RESIDENT_AFTER, HUGE_SHARE].contains(figure);
                let by = if bytes { "" } else { BY_CPU };
                let of =
                    |side: &Side| kept.rounds(&side.name(cell, *pages), &format!("{figure}{by}"));
                let pools = of(&sides[0]);
                let shown = sides.iter().enumerate().map(|(index, side)| {
                    let own = of(side);
                    let ratios: Vec<f64> = own
                        .iter()
                        .filter_map(|(round, value)| {
                            let divisor = if index == 0 || bytes {
                                1.0
                            } else {
                                *pools.get(round)?
                            };
                            Some(value / divisor)
                        })
                        .collect();
                    if ratios.is_empty() {
                        return "–".into();
                    }
                    Spread::of(ratios).to_string()
                });
                let shown: Vec<String> = shown.collect();
                println!(
                    "| {} | {} | {figure} | {} |",
                    page_name(*pages),
                    cell.name,
                    shown.join(" | ")
                );
            }
        }
    }
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
    struct Question {
        #[command(flatten)]
        options: AllocatorsOptions,
    }

    #[test]
    fn every_cell_parses() {
        let options = Question::parse_from(["allocators", "--programs", "other"]).options;
        for cell in cells(&options) {
            let arguments = cell.arguments.replace("{target}", "pando-masstree");
            let arguments = arguments.replace("{pages}", "small");
            let line = [""].into_iter().chain(arguments.split_whitespace());
            let line = Line::try_parse_from(line);
            line.unwrap_or_else(|error| panic!("{}: {error}", cell.name));
        }
    }

    #[test]
    fn this_build_has_the_pools_unless_they_were_taken_out() {
        assert_eq!(ALLOCATOR == POOLS, cfg!(not(feature = "program-allocator")));
        assert_eq!(wish(POOLS, PageKind::Huge), None);
        for allocator in ["mimalloc", "jemalloc", "system"] {
            assert_ne!(
                wish(allocator, PageKind::Huge),
                wish(allocator, PageKind::Small)
            );
        }
    }
}
