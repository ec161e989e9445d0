//! The report as JSON: every figure with its least, median, most and rounds.

use std::fmt::Write;

use super::machine::Machine;
use super::model::{Panel, Question};
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
    let rows = table.series.iter().zip(&table.values).map(|(name, row)| {
        format!(
            "{{\"series\":{},\"values\":{}}}",
            quoted(name),
            list(row.iter().map(|value| spread(*value)))
        )
    });
    format!(
        "{{\"title\":{},\"figure\":{},\"unit\":{},\"places\":{},\"rows\":{}}}",
        quoted(&panel.title),
        quoted(panel.figure),
        quoted(panel.unit),
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
            let name = |end: &(String, String)| (end.0.clone(), end.1.clone());
            let (above, below) = (name(&comparison.above), name(&comparison.below));
            let ratio = samples.ratio(
                [question.id, comparison.figure, &above.0, &above.1],
                [question.id, comparison.figure, &below.0, &below.1],
            );
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
             \"comparisons\":{},\"notes\":{}}}",
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
            list(notes.map(|note| quoted(note)))
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
