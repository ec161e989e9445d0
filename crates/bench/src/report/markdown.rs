//! Summary tables as Markdown: for `docs/BENCHMARKS.md`, the README's lines, and `report.md`.

use std::fmt::Write;

use super::html::times;
use super::machine::Machine;
use super::model::{Panel, Question, Sizes};
use super::questions::redis;
use super::samples::Samples;
use super::svg::short;
use super::table::{Place, Table, Verdict, of_question};
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

/// One line per question, then one per place where we are behind.
fn beside_others(questions: &[Question], samples: &Samples) -> String {
    let mut text = String::from(
        "\nPlaces (one figure of one workload each) ahead of, even with (within 5 %) and behind \
         the best of those\nwho do the same work: trees beside trees, hash tables beside hash \
         tables, servers beside the one\nthat speaks their protocol. Ratios are made round by \
         round, above 1 is better:\n\n\
         | question | ahead | even | behind | ratio: median (least–most) |\n\
         |---|---|---|---|---|\n",
    );
    let mut behind: Vec<(&str, Place<'_>)> = Vec::new();
    for question in questions {
        let places = of_question(question, samples);
        if places.is_empty() {
            continue;
        }
        let ratios = Spread::of(places.iter().map(|place| place.standing.ratio));
        let count = |verdict| {
            let same = |place: &&Place<'_>| place.standing.verdict() == verdict;
            places.iter().filter(same).count()
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            question.id,
            count(Verdict::Ahead),
            count(Verdict::Even),
            count(Verdict::Behind),
            cell(Some(&ratios))
        );
        let lost = places.into_iter();
        let lost = lost.filter(|place| place.standing.verdict() == Verdict::Behind);
        behind.extend(lost.map(|place| (question.id, place)));
    }
    if behind.is_empty() {
        return text;
    }
    behind.sort_by(|(_, a), (_, b)| a.standing.ratio.total_cmp(&b.standing.ratio));
    text.push_str(
        "\nWhere we lose, the worst first:\n\n\
         | question | what | unit | ours | its figure | best other | its figure | ratio |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (id, place) in behind {
        let Place {
            standing,
            panel,
            what,
            values: [ours, other],
        } = place;
        let _ = writeln!(
            text,
            "| `{id}` | {what} | {} | {} | {} | {} | {} | {} |",
            panel.unit,
            standing.ours,
            cell(ours.as_ref()),
            standing.other,
            cell(other.as_ref()),
            times(standing.ratio)
        );
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
    let name = |figure, series, place| [redis::ID, figure, series, place];
    let cpu = |place| {
        samples.ratio(
            name(redis::CPU, "pando", place),
            name(redis::CPU, "redis", place),
        )
    };
    // Of the requests one at a time the one that does worse.
    let [get, set, one_get, one_set] = redis::PLACES;
    let dearer = |place| cpu(place).map_or(0.0, |ratio| ratio.median);
    let one = if dearer(one_set) > dearer(one_get) {
        one_set
    } else {
        one_get
    };
    for place in [get, set, one] {
        let seconds = |series| samples.spread(name(redis::CPU, series, place));
        let rate = samples.ratio(
            name(redis::RATE, "pando", place),
            name(redis::RATE, "redis", place),
        );
        if let (Some(ours), Some(theirs), Some(rate)) = (seconds("pando"), seconds("redis"), rate) {
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
            "| memory, the same keys with 8-byte values | {ours:.0} MB | {theirs:.0} MB | {:.2} of \
             Redis' |",
            ours / theirs
        );
    }
    if text.ends_with("|---|\n") {
        return String::new();
    }
    text
}
