//! The page: one section per question, tables and plots, no scripts, nothing loaded.

use std::fmt::Write;

use super::machine::Machine;
use super::model::{Chart, Panel, Question, Shape, Sizes};
use super::samples::Samples;
use super::svg::{bars, lines, short};
use super::table::{Table, standing};

/// The page's style; one rule per series.
const STYLE: &str = include_str!("style.css");

/// Differences below this are said to be none.
const EVEN: f64 = 0.05;

/// Text as HTML shows it.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
    html
}

/// The whole page.
pub(super) fn page(
    questions: &[Question],
    samples: &Samples,
    machine: &Machine,
    sizes: &Sizes,
) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Pando: measurements</title><style>{STYLE}</style></head><body><main>\
         <h1>Pando: measurements</h1>\
         <p>Every figure is the median of {} measurements in which all sides took turns, each in a \
         fresh process; the thin lines and the brackets are least and most. Ratios are made \
         round by round.</p><dl class=\"machine\">",
        sizes.repeats
    );
    let taken = ("measured in", clock(samples.seconds.values().sum::<f64>()));
    for (name, value) in machine.0.iter().chain([&taken]) {
        let _ = write!(
            html,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escape(name),
            escape(value)
        );
    }
    html.push_str("</dl><nav><ul>");
    for question in questions {
        let _ = write!(
            html,
            "<li><a href=\"#{}\">{}</a></li>",
            question.id,
            escape(question.title)
        );
    }
    html.push_str("</ul></nav>");
    html.push_str(&summary(questions, samples));
    for question in questions {
        section(&mut html, question, samples);
    }
    html.push_str("</main></body></html>\n");
    html
}

/// Where we lose and where we win, before everything else.
fn summary(questions: &[Question], samples: &Samples) -> String {
    let (mut losses, mut wins) = (Vec::new(), Vec::new());
    for question in questions {
        if !question
            .series()
            .first()
            .is_some_and(|name| name.starts_with("pando"))
        {
            continue;
        }
        for panel in &question.panels {
            let table = Table::new(question, panel, samples);
            for (ratio, other, place) in standing(question, panel, &table, samples) {
                let text = format!(
                    "<a href=\"#{}\">{}</a>: {}{}, {} of {}",
                    question.id,
                    escape(question.title),
                    escape(&panel.title),
                    if table.places.len() > 1 {
                        format!(" at {}", escape(place))
                    } else {
                        String::new()
                    },
                    times(ratio),
                    escape(other)
                );
                if ratio < 1.0 - EVEN {
                    losses.push((ratio, text));
                } else if ratio > 1.0 + EVEN {
                    wins.push((ratio, text));
                }
            }
        }
    }
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    wins.sort_by(|a, b| b.0.total_cmp(&a.0));
    let list = |items: &[(f64, String)]| {
        let items: Vec<_> = items
            .iter()
            .map(|(_, text)| format!("<li>{text}</li>"))
            .collect();
        format!("<ul class=\"standing\">{}</ul>", items.concat())
    };
    format!(
        "<section id=\"summary\"><h2>Beside the best other</h2>\
         <p>Pando's ratio to the fastest other at each place, above 1 is better; {} places ahead, \
         {} behind, differences below {:.0} % left out.</p>\
         <details open><summary>Behind ({})</summary>{}</details>\
         <details><summary>Ahead ({})</summary>{}</details></section>",
        wins.len(),
        losses.len(),
        EVEN * 100.0,
        losses.len(),
        list(&losses),
        wins.len(),
        list(&wins)
    )
}

/// Minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

pub(super) fn times(ratio: f64) -> String {
    format!("{}×", short(ratio))
}

fn section(html: &mut String, question: &Question, samples: &Samples) {
    let _ = write!(
        html,
        "<section id=\"{}\"><h2>{}</h2><p class=\"asks\">{}</p><p class=\"method\">{}{}</p>",
        question.id,
        escape(question.title),
        escape(question.asks),
        escape(&question.method),
        samples
            .seconds
            .get(question.id)
            .map_or(String::new(), |seconds| format!(
                " Measured in {}.",
                clock(*seconds)
            ))
    );
    html.push_str("<div class=\"panels\">");
    let mut shown = 0;
    for panel in &question.panels {
        let table = Table::new(question, panel, samples);
        if table.series.is_empty() {
            continue;
        }
        shown += 1;
        html.push_str(&panel_of(question, panel, &table, samples));
    }
    for shape in &question.shapes {
        let table = Table::of_shape(question, shape, samples);
        // The paper's alone would say nothing about us.
        if table.values.iter().take(1).flatten().any(Option::is_some) {
            html.push_str(&shape_of(question, shape, &table));
        }
    }
    html.push_str("</div>");
    if shown == 0 {
        html.push_str("<p class=\"empty\">Not measured.</p>");
    }
    comparisons(html, question, samples);
    if let Some(notes) = samples.notes.get(question.id) {
        html.push_str("<details class=\"notes\"><summary>Not measured</summary><ul>");
        for note in notes {
            let _ = write!(html, "<li>{}</li>", escape(note));
        }
        html.push_str("</ul></details>");
    }
    html.push_str("</section>");
}

/// A paper's figure and ours, as ratios in one plot.
fn shape_of(question: &Question, shape: &Shape, table: &Table<'_>) -> String {
    let panel = Panel {
        figure: shape.figure,
        title: shape.title.clone(),
        unit: shape.unit,
        chart: shape.chart,
        less_is_better: false,
        figures: Vec::new(),
    };
    format!(
        "<figure class=\"shape\"><figcaption>{}</figcaption>{}</figure>",
        escape(&shape.title),
        plot(question, &panel, table)
    )
}

/// The drawing, with a legend where the names are not in it.
fn plot(question: &Question, panel: &Panel, table: &Table<'_>) -> String {
    if panel.chart == Chart::Bars {
        return bars(panel, table);
    }
    let mut html = lines(panel, question.place, table);
    html.push_str("<ul class=\"legend\">");
    for (index, name) in table.series.iter().enumerate() {
        let _ = write!(
            html,
            "<li><svg viewBox=\"0 0 16 8\"><line class=\"line s{index}\" x1=\"0\" \
             x2=\"16\" y1=\"4\" y2=\"4\"/></svg>{}</li>",
            escape(name)
        );
    }
    html.push_str("</ul>");
    html
}

fn panel_of(question: &Question, panel: &Panel, table: &Table<'_>, samples: &Samples) -> String {
    let mut html = format!("<figure><figcaption>{}</figcaption>", escape(&panel.title));
    html.push_str(&plot(question, panel, table));
    let _ = write!(
        html,
        "<details><summary>Numbers, {}</summary><div class=\"wide\"><table><thead><tr><th></th>",
        escape(panel.unit)
    );
    for place in &table.places {
        let _ = write!(html, "<th>{}</th>", escape(place));
    }
    html.push_str("</tr></thead><tbody>");
    for (index, (name, row)) in table.series.iter().zip(&table.values).enumerate() {
        let _ = write!(html, "<tr><th>{}</th>", escape(name));
        for (place, value) in table.places.iter().zip(row) {
            let Some(value) = value else {
                html.push_str("<td class=\"absent\">cannot</td>");
                continue;
            };
            let ratio = (index > 0)
                .then(|| {
                    let cell = |series| panel.name(question, series, place);
                    samples.ratio(cell(name), cell(table.series[0]))
                })
                .flatten();
            let ratio = ratio.map_or(String::new(), |ratio| {
                format!(
                    "<em>{} of {}</em>",
                    times(ratio.median),
                    escape(table.series[0])
                )
            });
            let _ = write!(
                html,
                "<td><b>{}</b> <span>({}–{})</span>{ratio}</td>",
                short(value.median),
                short(value.least),
                short(value.most)
            );
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></details></figure>");
    html
}

fn comparisons(html: &mut String, question: &Question, samples: &Samples) {
    let rows: Vec<String> = question
        .comparisons
        .iter()
        .filter_map(|comparison| {
            let ratio = samples.of_comparison(question.id, comparison)?;
            Some(format!(
                "<tr><th>{}</th><td>{}</td><td><b>{}</b> <span>({}–{})</span></td></tr>",
                escape(&comparison.what),
                escape(comparison.paper),
                times(ratio.median),
                short(ratio.least),
                short(ratio.most)
            ))
        })
        .collect();
    if !rows.is_empty() {
        let _ = write!(
            html,
            "<h3>Beside the paper</h3><div class=\"wide\"><table class=\"paper\"><thead><tr>\
             <th></th><th>paper</th><th>here</th></tr></thead><tbody>{}</tbody></table></div>",
            rows.concat()
        );
    }
}
