//! The page: one section per question, tables and plots, no scripts, nothing loaded.

use std::fmt::Write;

use super::machine::Machine;
use super::model::{Chart, Panel, Question, Shape, Sizes};
use super::samples::Samples;
use super::svg::{axis, bars, lines, short, strip};
use super::table::{Place, Standing, Table, Verdict, of_question};

/// The page's style; one rule per series.
const STYLE: &str = include_str!("style.css");

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

/// The whole page: the answer, the machine, then a section per question.
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
         <h1>Pando: measurements</h1>",
    );
    html.push_str(&summary(questions, samples));
    html.push_str(&facts(samples, machine, sizes));
    for question in questions {
        section(&mut html, question, samples);
    }
    html.push_str("</main></body></html>\n");
    html
}

/// How figures are made, on which machine, of which versions.
fn facts(samples: &Samples, machine: &Machine, sizes: &Sizes) -> String {
    let mut html = format!(
        "<details class=\"facts\"><summary>Method, machine, versions</summary>\
         <p>Every figure is the median of {} measurements in which all sides took turns, each in a \
         fresh process; thin lines and brackets are least and most. Ratios are made round by \
         round.</p><dl class=\"machine\">",
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
    html.push_str("</dl></details>");
    html
}

/// Places that a list shows before it is opened.
const SHOWN: usize = 8;

/// Who is faster on the same work, before everything else.
fn summary(questions: &[Question], samples: &Samples) -> String {
    let (mut rows, mut all) = (String::new(), Vec::new());
    for question in questions {
        let own = of_question(question, samples);
        rows.push_str(&row(question, &own));
        all.extend(own.into_iter().map(|place| (question, place)));
    }
    let list = |verdict: Verdict| {
        let mut found: Vec<_> = all
            .iter()
            .filter(|(_, place)| place.standing.verdict() == verdict)
            .collect();
        found.sort_by(|(_, a), (_, b)| a.standing.ratio.total_cmp(&b.standing.ratio));
        if verdict == Verdict::Ahead {
            found.reverse();
        }
        found
    };
    let (behind, ahead) = (list(Verdict::Behind), list(Verdict::Ahead));
    format!(
        "<section id=\"summary\"><p class=\"answer\">On the same work Pando is \
         <b class=\"ahead\">ahead at {}</b> of {} places, <b class=\"behind\">behind at {}</b>, \
         even at {}.</p><p class=\"method\">A place is one figure of one workload, beside the \
         best of those who do the same work: a tree beside trees, a hash table beside hash \
         tables, a server beside the one that speaks its protocol. Even is a difference below 5 \
         %; a dot is a place.</p><div class=\"standings\">{}{rows}</div><div class=\"lists\"><div>\
         <h3 class=\"behind\">Behind, the worst first</h3>{}</div><div>\
         <h3 class=\"ahead\">Ahead, the best first</h3>{}</div></div></section>",
        ahead.len(),
        all.len(),
        behind.len(),
        all.len() - ahead.len() - behind.len(),
        axis(),
        listed(&behind),
        listed(&ahead)
    )
}

/// A question's name, its places ahead and behind, and a dot for each place.
fn row(question: &Question, places: &[Place<'_>]) -> String {
    let count = |verdict| {
        let same = |place: &&Place<'_>| place.standing.verdict() == verdict;
        places.iter().filter(same).count()
    };
    let (ahead, behind) = (count(Verdict::Ahead), count(Verdict::Behind));
    let counts = if places.is_empty() {
        "no peer: beside the paper".to_owned()
    } else {
        let part = |count: usize, name: &str| match count {
            0 => String::new(),
            count => format!("<b class=\"{name}\">{count} {name}</b> "),
        };
        let even = places.len() - ahead - behind;
        [
            part(ahead, "ahead"),
            part(behind, "behind"),
            part(even, "even"),
        ]
        .concat()
    };
    format!(
        "<a href=\"#{}\">{}</a><span>{counts}</span>{}",
        question.id,
        escape(question.title),
        strip(places)
    )
}

fn listed(places: &[&(&Question, Place<'_>)]) -> String {
    let items: Vec<_> = places
        .iter()
        .map(|(question, place)| {
            let Standing {
                ratio, ours, other, ..
            } = place.standing;
            format!(
                "<li><b>{}</b> {}: <a href=\"#{}\">{}</a>, {} beside {}</li>",
                times(ratio),
                escape(&place.what),
                question.id,
                escape(question.title),
                escape(ours),
                escape(other)
            )
        })
        .collect();
    if items.is_empty() {
        return "<p class=\"empty\">Nowhere.</p>".into();
    }
    let (first, rest) = items.split_at(SHOWN.min(items.len()));
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!(
            "<details><summary>{} more</summary><ul>{}</ul></details>",
            rest.len(),
            rest.concat()
        )
    };
    format!("<ul>{}</ul>{rest}", first.concat())
}

/// Minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    if seconds < 60 {
        return format!("{seconds} s");
    }
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
        "<details><summary>Numbers, {}{}</summary><div class=\"wide\"><table><thead><tr><th></th>",
        escape(panel.unit),
        if table.series.len() > 1 {
            format!("; × is the ratio to {}", escape(table.series[0]))
        } else {
            String::new()
        }
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
                format!("<em>{}</em>", times(ratio.median))
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
