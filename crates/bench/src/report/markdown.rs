//! Summary tables as Markdown: for `docs/BENCHMARKS.md`, the README's lines, and `report.md`.

use std::fmt::Write;

use super::html::times;
use super::machine::Machine;
use super::model::{Panel, Question, Sizes};
use super::questions::redis;
use super::samples::Samples;
use super::svg::short;
use super::table::{Table, standing};
use crate::figures::Spread;

/// Text for a marked place of a document.
#[derive(Debug)]
pub(super) struct Block {
    /// The document, from the root of the repository.
    pub(super) document: &'static str,
    /// The marker's name.
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// What the documents show of a report; a block without figures is left out.
pub(super) fn blocks(
    questions: &[Question],
    samples: &Samples,
    machine: &Machine,
    sizes: &Sizes,
) -> Vec<Block> {
    let summary = [
        facts(machine),
        beside_others(questions, samples),
        beside_papers(questions, samples),
    ];
    let blocks = [
        Block {
            document: "README.md",
            name: "redis",
            text: beside_redis(questions, samples, machine, sizes),
        },
        Block {
            document: "docs/BENCHMARKS.md",
            name: "summary",
            text: summary.concat(),
        },
    ];
    blocks
        .into_iter()
        .filter(|block| block.text.contains("\n|"))
        .collect()
}

/// Everything: the blocks, and every table of every question.
pub(super) fn document(
    questions: &[Question],
    samples: &Samples,
    machine: &Machine,
    sizes: &Sizes,
) -> String {
    let mut text = String::from("# Measurements\n\n");
    for block in blocks(questions, samples, machine, sizes) {
        let _ = writeln!(text, "{}", block.text);
    }
    for question in questions {
        let _ = writeln!(
            text,
            "## {}\n\n{} {}\n",
            question.title, question.asks, question.method
        );
        for panel in &question.panels {
            text.push_str(&table_of(question, panel, samples));
        }
        for note in samples.notes.get(question.id).into_iter().flatten() {
            let _ = writeln!(text, "Not measured: {note}\n");
        }
    }
    text
}

/// The machine, as one paragraph.
fn facts(machine: &Machine) -> String {
    let facts = machine
        .0
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    format!("{}.\n", facts.collect::<Vec<_>>().join("; "))
}

/// Median (least–most).
fn cell(spread: Option<&Spread>) -> String {
    spread.map_or("–".into(), |spread| {
        format!(
            "{} ({}–{})",
            short(spread.median),
            short(spread.least),
            short(spread.most)
        )
    })
}

fn table_of(question: &Question, panel: &Panel, samples: &Samples) -> String {
    let table = Table::new(question, panel, samples);
    if table.series.is_empty() {
        return String::new();
    }
    let mut text = format!("{}, {}:\n\n|", panel.title, panel.unit);
    for place in &table.places {
        let _ = write!(text, " | {place}");
    }
    let _ = writeln!(text, " |\n|---{}|", "|---".repeat(table.places.len()));
    for (name, row) in table.series.iter().zip(&table.values) {
        let cells: Vec<_> = row.iter().map(|value| cell(value.as_ref())).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text.push('\n');
    text
}

/// One line per place: ours, the best other, the ratio.
fn beside_others(questions: &[Question], samples: &Samples) -> String {
    let mut text = String::from(
        "\nThe ratio is made round by round, above 1 is better:\n\n\
         | question | what | unit | Pando | best other | its figure | ratio |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for question in questions {
        for panel in &question.panels {
            let table = Table::new(question, panel, samples);
            let value = |series: &str, place: &str| {
                let row = table.series.iter().position(|name| *name == series)?;
                let column = table.places.iter().position(|name| *name == place)?;
                table.values[row][column]
            };
            for (ratio, other, place) in standing(question, panel, &table, samples) {
                let ours = table.series.first().and_then(|first| value(first, place));
                let what = if table.places.len() > 1 {
                    format!("{}: {place}", panel.title)
                } else {
                    panel.title.clone()
                };
                let _ = writeln!(
                    text,
                    "| `{}` | {what} | {} | {} | {other} | {} | {} |",
                    question.id,
                    panel.unit,
                    cell(ours.as_ref()),
                    cell(value(other, place).as_ref()),
                    times(ratio)
                );
            }
        }
    }
    text
}

/// One line per statement of a paper.
fn beside_papers(questions: &[Question], samples: &Samples) -> String {
    let mut text = String::from("\n| question | ratio | paper | here |\n|---|---|---|---|\n");
    for question in questions {
        for comparison in &question.comparisons {
            let Some(ratio) = samples.of_comparison(question.id, comparison) else {
                continue;
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                question.id,
                comparison.what,
                comparison.paper,
                cell(Some(&ratio))
            );
        }
    }
    text
}

/// The README's lines.
fn beside_redis(
    questions: &[Question],
    samples: &Samples,
    machine: &Machine,
    sizes: &Sizes,
) -> String {
    let version = machine
        .0
        .iter()
        .find(|(name, _)| *name == "redis-server")
        .and_then(|(_, value)| value.split("v=").nth(1)?.split(' ').next())
        .unwrap_or_default();
    let mut text = format!(
        "Server CPU per million operations, one core, beside Redis {version} in turns (medians \
         of {}, {} connections,\n{} keys, no log on either side; [method, spread and \
         losses](docs/BENCHMARKS.md)):\n\n| | Pando | Redis | |\n|---|---|---|---|\n",
        sizes.repeats,
        redis::CONNECTIONS,
        super::questions::thousands(redis::keys(sizes))
    );
    if !questions.iter().any(|question| question.id == redis::ID) {
        return String::new();
    }
    for place in redis::PLACES {
        let name = |figure, series| [redis::ID, figure, series, place];
        let cpu = |series| samples.spread(name(redis::CPU, series));
        let rate = samples.ratio(name(redis::RATE, "pando"), name(redis::RATE, "redis"));
        if let (Some(ours), Some(theirs), Some(rate)) = (cpu("pando"), cpu("redis"), rate) {
            let _ = writeln!(
                text,
                "| {place} | {:.2} s | {:.2} s | {:.2} times the rate |",
                ours.median, theirs.median, rate.median
            );
        }
    }
    let memory = |series| {
        let spread = samples.spread([redis::ID, super::run::RESIDENT, series, redis::PLACES[0]]);
        spread.map(|spread| spread.median)
    };
    if let (Some(ours), Some(theirs)) = (memory("pando"), memory("redis")) {
        let _ = writeln!(
            text,
            "| memory, the same keys with 8-byte values | {ours:.0} MB | {theirs:.0} MB | |"
        );
    }
    if text.ends_with("|---|\n") {
        return String::new();
    }
    text
}
