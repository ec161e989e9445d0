//! Plots as inline SVG, coloured by the page's style, readable at the width of a phone.

use std::fmt::Write;

use super::html::escape;
use super::model::Panel;
use super::table::{Place, Table, Verdict};

/// The drawing's own units; on a phone, and where three stand side by side, they are about one
/// pixel each.
const WIDTH: f64 = 330.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 40.0;

/// A number in few digits.
pub(super) fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// A tick's label: as many digits behind the point as its step has, thousands apart.
fn on_axis(value: f64, step: f64) -> String {
    if step >= 1000.0 && value > 0.0 {
        let thousands = value / 1000.0;
        return format!("{thousands}k");
    }
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

/// A round step that divides `most` into at most five.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fitting = steps.iter().find(|step| *step * magnitude * 5.0 >= most);
    fitting.unwrap_or(&10.0) * magnitude
}

/// Where a panel's values and places are drawn.
struct Plot<'t> {
    table: &'t Table<'t>,
    unit: &'static str,
    step: f64,
    ticks: usize,
    positions: Vec<f64>,
}

impl<'t> Plot<'t> {
    fn new(panel: &Panel, table: &'t Table<'t>) -> Self {
        let step = step(table.most());
        Self {
            table,
            unit: panel.unit,
            step,
            ticks: (table.most() / step).ceil().max(1.0) as usize,
            positions: positions(&table.places),
        }
    }

    /// The highest value that is shown.
    fn top(&self) -> f64 {
        self.ticks as f64 * self.step
    }

    fn x(&self, index: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.positions[index]
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / self.top())
    }

    fn axes(&self, svg: &mut String, place_name: &str) {
        for tick in 0..=self.ticks {
            let value = tick as f64 * self.step;
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{2:.1}\" y2=\"{2:.1}\"/>\
                 <text class=\"tick\" x=\"{3:.1}\" y=\"{4:.1}\" text-anchor=\"end\">{1}</text>",
                WIDTH - RIGHT,
                on_axis(value, self.step),
                self.y(value),
                LEFT - 6.0,
                self.y(value) + 4.0
            );
        }
        for (index, place) in self.table.places.iter().enumerate() {
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                self.x(index),
                HEIGHT - BOTTOM + 16.0,
                escape(place)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"unit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 6.0,
            escape(place_name)
        );
    }

    /// A series' line; over places without a value it is a guess.
    fn line(&self, svg: &mut String, series: usize) {
        let values = self.table.values[series].iter().enumerate();
        let known = values.filter_map(|(index, value)| Some((index, value.as_ref()?.median)));
        let known: Vec<(usize, f64)> = known.collect();
        for pair in known.windows(2) {
            let [(from, start), (to, end)] = [pair[0], pair[1]];
            let guess = if to > from + 1 { " guess" } else { "" };
            let _ = write!(
                svg,
                "<line class=\"line s{series}{guess}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" \
                 y2=\"{:.1}\"/>",
                self.x(from),
                self.y(start),
                self.x(to),
                self.y(end)
            );
        }
    }

    /// A series' medians, from the least to the most.
    fn dots(&self, svg: &mut String, series: usize) {
        for (index, value) in self.table.values[series].iter().enumerate() {
            let Some(value) = value else { continue };
            let _ = write!(
                svg,
                "<line class=\"range s{series}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" \
                 y2=\"{2:.1}\"/><circle class=\"dot s{series}\" cx=\"{0:.1}\" cy=\"{3:.1}\" \
                 r=\"3.2\"><title>{4}: {5} {6}</title></circle>",
                self.x(index),
                self.y(value.most.min(self.top())),
                self.y(value.least),
                self.y(value.median),
                escape(self.table.series[series]),
                short(value.median),
                escape(self.unit)
            );
        }
    }
}

/// One line per series over places that are numbers, zero at the bottom.
pub(super) fn lines(panel: &Panel, place_name: &str, table: &Table<'_>) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&panel.title)
    );
    let plot = Plot::new(panel, table);
    let _ = write!(
        svg,
        "<text class=\"unit\" x=\"4\" y=\"13\">{}</text>",
        escape(panel.unit)
    );
    plot.axes(&mut svg, place_name);
    for series in 0..table.values.len() {
        plot.line(&mut svg, series);
        plot.dots(&mut svg, series);
    }
    svg.push_str("</svg>");
    svg
}

/// Where places lie between 0 and 1: by their numbers when all are numbers and their labels have
/// room, else evenly.
fn positions(places: &[&str]) -> Vec<f64> {
    let even = |index: usize| match places.len() {
        1 => 0.5,
        count => index as f64 / (count - 1) as f64,
    };
    let numbers: Vec<f64> = places
        .iter()
        .filter_map(|place| place.parse().ok())
        .collect();
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
        return (0..places.len()).map(even).collect();
    };
    let span = last - first;
    let roomy = numbers
        .windows(2)
        .all(|pair| (pair[1] - pair[0]) / span >= 0.07);
    if numbers.len() == places.len() && numbers.len() > 1 && roomy {
        numbers
            .iter()
            .map(|number| (number - first) / span)
            .collect()
    } else {
        (0..places.len()).map(even).collect()
    }
}

/// A strip of ratios: half its width is this many doublings.
const DOUBLINGS: f64 = 3.0;
const STRIP_WIDTH: f64 = 320.0;
const STRIP_MARGIN: f64 = 10.0;

/// Where a ratio lies in a strip: 1 in the middle, equal steps for equal factors, what is beyond
/// the ends at the ends.
fn strip_x(ratio: f64) -> f64 {
    let doublings = ratio
        .max(f64::MIN_POSITIVE)
        .log2()
        .clamp(-DOUBLINGS, DOUBLINGS);
    let half = STRIP_WIDTH / 2.0;
    half + (half - STRIP_MARGIN) * doublings / DOUBLINGS
}

/// The heading of strips: their scale.
pub(super) fn axis() -> String {
    let mut svg = format!(
        "<span class=\"heading\"></span><span class=\"heading\"></span>\
         <svg class=\"strip\" viewBox=\"0 0 {STRIP_WIDTH} 30\" role=\"img\" \
         aria-label=\"ratio to the best other\">\
         <text class=\"behind\" x=\"{STRIP_MARGIN}\" y=\"11\">\u{2190} behind</text>\
         <text class=\"ahead\" x=\"{:.1}\" y=\"11\" text-anchor=\"end\">ahead \u{2192}</text>",
        STRIP_WIDTH - STRIP_MARGIN
    );
    for (ratio, label) in [
        (0.125, "1/8"),
        (0.25, "1/4"),
        (0.5, "1/2"),
        (1.0, "same"),
        (2.0, "2×"),
        (4.0, "4×"),
        (8.0, "8×"),
    ] {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"26\" text-anchor=\"middle\">{label}</text>",
            strip_x(ratio)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A dot for each place.
pub(super) fn strip(places: &[Place<'_>]) -> String {
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {STRIP_WIDTH} 18\" role=\"img\" \
         aria-label=\"{} places\">",
        places.len()
    );
    for doublings in -3_i32..=3 {
        let class = if doublings == 0 { "same" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" y2=\"18\"/>",
            strip_x(2_f64.powi(doublings))
        );
    }
    for Place { standing, what, .. } in places {
        let class = match standing.verdict() {
            Verdict::Behind => "behind",
            Verdict::Even => "even",
            Verdict::Ahead => "ahead",
        };
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"9\" r=\"4.5\"><title>{}: {}× of {}</title>\
             </circle>",
            strip_x(standing.ratio),
            escape(what),
            short(standing.ratio),
            escape(standing.other)
        );
    }
    svg.push_str("</svg>");
    svg
}

const BAR: f64 = 11.0;
const BAR_STEP: f64 = 30.0;
const GROUP_GAP: f64 = 22.0;

/// A bar per series in a group per place; names above the bars, so that they never meet.
pub(super) fn bars(panel: &Panel, table: &Table<'_>) -> String {
    let most = table
        .values
        .iter()
        .flatten()
        .flatten()
        .map(|spread| spread.most)
        .fold(0.0, f64::max);
    // Room for the value behind the longest bar.
    let length = |value: f64| (WIDTH - 70.0) * (value / most.max(f64::MIN_POSITIVE));
    let mut body = String::new();
    let mut y = 18.0;
    let _ = write!(
        body,
        "<text class=\"unit\" x=\"0\" y=\"13\">{}</text>",
        escape(panel.unit)
    );
    let grouped = table.places.len() > 1;
    for (column, place) in table.places.iter().enumerate() {
        if grouped {
            y += GROUP_GAP;
            let _ = write!(
                body,
                "<text class=\"group\" x=\"0\" y=\"{y:.1}\">{}</text>",
                escape(place)
            );
            y += 4.0;
        }
        for (series, name) in table.series.iter().enumerate() {
            let Some(value) = table.values[series][column] else {
                continue;
            };
            let end = length(value.median);
            let middle = y + 18.0 + BAR / 2.0;
            let _ = write!(
                body,
                "<text class=\"tick\" x=\"0\" y=\"{:.1}\">{}</text>\
                 <rect class=\"bar s{series}\" x=\"0\" y=\"{:.1}\" width=\"{end:.1}\" \
                 height=\"{BAR}\" rx=\"2\"/>\
                 <line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" \
                 y2=\"{middle:.1}\"/>\
                 <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y + 14.0,
                escape(name),
                y + 18.0,
                length(value.least),
                length(value.most),
                length(value.most).max(end) + 6.0,
                y + 27.5,
                short(value.median)
            );
            y += BAR_STEP;
        }
    }
    let height = y + 8.0;
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">{body}</svg>",
        escape(&panel.title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (most, expected) in [
            (4.2, 1.0),
            (5.0, 1.0),
            (7.0, 2.0),
            (0.03, 0.01),
            (900.0, 200.0),
        ] {
            let got = step(most);
            assert!((got / expected - 1.0).abs() < 1e-9, "{got} for {most}");
        }
    }

    #[test]
    fn a_strip_has_the_same_in_its_middle_and_equal_steps_for_equal_factors() {
        let middle = STRIP_WIDTH / 2.0;
        assert!((strip_x(1.0) - middle).abs() < 1e-9);
        assert!((strip_x(2.0) + strip_x(0.5) - 2.0 * middle).abs() < 1e-9);
        assert!((strip_x(4.0) - middle - 2.0 * (strip_x(2.0) - middle)).abs() < 1e-9);
        for beyond in [0.0, 1e9] {
            assert!((0.0..=STRIP_WIDTH).contains(&strip_x(beyond)));
        }
    }

    #[test]
    fn ticks_of_one_axis_have_the_same_digits() {
        let labels = |step: f64| [1.0, 2.0, 5.0].map(|ticks| on_axis(ticks * step, step));
        assert_eq!(labels(2.0), ["2", "4", "10"]);
        assert_eq!(labels(0.5), ["0.5", "1.0", "2.5"]);
        assert_eq!(labels(0.02), ["0.02", "0.04", "0.10"]);
        assert_eq!(labels(5000.0), ["5k", "10k", "25k"]);
    }

    #[test]
    fn places_keep_their_distance() {
        assert_eq!(positions(&["8", "16", "24"]), [0.0, 0.5, 1.0]);
        // 1, 2 and 64 by their numbers would put two labels on one another.
        assert_eq!(positions(&["1", "2", "64"]), [0.0, 0.5, 1.0]);
        assert_eq!(positions(&["a"]), [0.5]);
        assert_eq!(positions(&["3"]), [0.5]);
    }
}
