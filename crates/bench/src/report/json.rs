//! The report as JSON: every figure with its least, median, most and rounds.

use std::fmt::Write;

use super::machine::Machine;
use super::model::{Panel, Question, Shape};
use super::samples::Samples;
use super::table::Table;
use crate::figures::Spread;

/// A string as JSON writes it.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<_> = items.into_iter().collect();
    format!("[{}]", items.join(","))
}

/// `{"least":…,"median":…,"most":…}`.
fn spread(spread: Option<Spread>) -> String {
    spread.map_or("null".into(), |spread| {
        format!(
            "{{\"least\":{},\"median\":{},\"most\":{}}}",
            spread.least, spread.median, spread.most
        )
    })
}

fn panel(question: &Question, panel: &Panel, samples: &Samples) -> String {
    let table = Table::new(question, panel, samples);
    format!(
        "{{\"title\":{},\"figure\":{},\"unit\":{},{}}}",
        quoted(&panel.title),
        quoted(panel.figure),
        quoted(panel.unit),
        rows(&table)
    )
}

fn shape(question: &Question, shape: &Shape, samples: &Samples) -> String {
    let table = Table::of_shape(question, shape, samples);
    format!(
        "{{\"title\":{},\"unit\":{},{}}}",
        quoted(&shape.title),
        quoted(shape.unit),
        rows(&table)
    )
}

/// `"places":…,"rows":…`.
fn rows(table: &Table<'_>) -> String {
    let rows = table.series.iter().zip(&table.values).map(|(name, row)| {
        format!(
            "{{\"series\":{},\"values\":{}}}",
            quoted(name),
            list(row.iter().map(|value| spread(*value)))
        )
    });
    format!(
        "\"places\":{},\"rows\":{}",
        list(table.places.iter().map(|place| quoted(place))),
        list(rows)
    )
}

/// The document.
pub(super) fn document(questions: &[Question], samples: &Samples, machine: &Machine) -> String {
    let facts = machine
        .0
        .iter()
        .map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    let facts: Vec<_> = facts.collect();
    let questions = questions.iter().map(|question| {
        let comparisons = question.comparisons.iter().map(|comparison| {
            let ratio = samples.of_comparison(question.id, comparison);
            format!(
                "{{\"what\":{},\"paper\":{},\"here\":{}}}",
                quoted(&comparison.what),
                quoted(comparison.paper),
                spread(ratio)
            )
        });
        let notes = samples.notes.get(question.id).into_iter().flatten();
        format!(
            "{{\"id\":{},\"title\":{},\"asks\":{},\"method\":{},\"panels\":{},\
             \"comparisons\":{},\"shapes\":{},\"notes\":{},\"seconds\":{}}}",
            quoted(question.id),
            quoted(question.title),
            quoted(question.asks),
            quoted(&question.method),
            list(
                question
                    .panels
                    .iter()
                    .map(|one| panel(question, one, samples))
            ),
            list(comparisons),
            list(
                question
                    .shapes
                    .iter()
                    .map(|one| shape(question, one, samples))
            ),
            list(notes.map(|note| quoted(note))),
            samples.seconds.get(question.id).copied().unwrap_or(0.0)
        )
    });
    format!(
        "{{\"machine\":{{{}}},\"questions\":{}}}\n",
        facts.join(","),
        list(questions)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a \"b\"\\\n"), "\"a \\\"b\\\"\\\\\\u000a\"");
    }
}
