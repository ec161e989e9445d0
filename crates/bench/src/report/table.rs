//! A panel's values as rows and columns, and who is ahead.

use super::model::{Panel, Point, Question, Shape};
use super::samples::Samples;
use crate::figures::Spread;

/// A panel's values: one row per series, one column per place.
#[derive(Debug)]
pub(super) struct Table<'q> {
    pub(super) series: Vec<&'q str>,
    pub(super) places: Vec<&'q str>,
    /// By series, then by place.
    pub(super) values: Vec<Vec<Option<Spread>>>,
}

impl<'q> Table<'q> {
    /// Of the series and places that have a value.
    pub(super) fn new(question: &'q Question, panel: &'q Panel, samples: &Samples) -> Self {
        let value = |series: &str, place: &str| samples.spread(panel.name(question, series, place));
        let has = |series: &str, place: &str| value(series, place).is_some();
        let all_places = panel.places(question);
        let mut series = question.series();
        series.retain(|series| all_places.iter().any(|place| has(series, place)));
        let mut places = all_places;
        places.retain(|place| series.iter().any(|series| has(series, place)));
        let values = series
            .iter()
            .map(|series| places.iter().map(|place| value(series, place)).collect())
            .collect();
        Self {
            series,
            places,
            values,
        }
    }

    /// Of a paper's shape and ours; places in the order of the series that has most of them.
    pub(super) fn of_shape(question: &Question, shape: &'q Shape, samples: &Samples) -> Self {
        let value = |point: &Point| match point {
            Point::Stated(least, most) => Some(Spread {
                least: *least,
                median: f64::midpoint(*least, *most),
                most: *most,
            }),
            Point::Here { above, below } => samples.ratio(
                [question.id, shape.figure, &above.0, &above.1],
                [question.id, shape.figure, &below.0, &below.1],
            ),
        };
        let longest = shape.series.iter().max_by_key(|(_, points)| points.len());
        let mut places: Vec<&str> = longest
            .into_iter()
            .flat_map(|(_, points)| points.iter().map(|(place, _)| place.as_str()))
            .collect();
        for (place, _) in shape.series.iter().flat_map(|(_, points)| points) {
            if !places.contains(&place.as_str()) {
                places.push(place);
            }
        }
        let values = shape.series.iter().map(|(_, points)| {
            let at = |name: &&str| points.iter().find(|(place, _)| place == name);
            let row = places.iter().map(|place| value(&at(place)?.1));
            row.collect()
        });
        Self {
            series: shape.series.iter().map(|(name, _)| *name).collect(),
            values: values.collect(),
            places,
        }
    }

    /// The largest median; 0 of an empty table.
    pub(super) fn most(&self) -> f64 {
        self.values
            .iter()
            .flatten()
            .flatten()
            .map(|spread| spread.median)
            .fold(0.0, f64::max)
    }
}

/// Whether a series is an engine of this project.
fn is_ours(series: &str) -> bool {
    series.starts_with("pando") || series.starts_with("mercury")
}

/// At each place where the first series has a value: its ratio to the best series that is not
/// ours, that series, and the place. Above 1 is ahead, whichever way the figure goes.
pub(super) fn standing<'q>(
    question: &'q Question,
    panel: &'q Panel,
    table: &Table<'q>,
    samples: &Samples,
) -> Vec<(f64, &'q str, &'q str)> {
    let mut standing = Vec::new();
    // A peer is no measure of ours where ours was not measured.
    let first = table.series.first().filter(|first| is_ours(first));
    let Some(first) = first else {
        return standing;
    };
    for place in &table.places {
        let name = |series| panel.name(question, series, place);
        let best = table.series[1..]
            .iter()
            .filter(|other| !is_ours(other))
            .filter_map(|other| {
                // A figure too small for the clock that read it is 0: such a round has no ratio,
                // whichever way the figure goes.
                let (above, below) = if panel.less_is_better {
                    (*other, *first)
                } else {
                    (*first, *other)
                };
                let ratio = samples.ratio(name(above), name(below))?.median;
                Some((ratio, *other, *place))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        standing.extend(best);
    }
    standing
}

#[cfg(test)]
mod tests {
    use super::super::model::{Cell, Chart, Job};
    use super::*;

    /// A question whose series are measured at one place.
    fn question(series: &[&str], less_is_better: bool) -> Question {
        let cell = |series: &&str| Cell {
            series: (*series).into(),
            place: "p".into(),
            job: Job::Process(Vec::new()),
        };
        Question {
            id: "q",
            title: "",
            asks: "",
            method: String::new(),
            place: "",
            panels: vec![Panel {
                figure: "f",
                title: String::new(),
                unit: "",
                chart: Chart::Bars,
                less_is_better,
                figures: Vec::new(),
            }],
            cells: series.iter().map(cell).collect(),
            comparisons: Vec::new(),
            shapes: Vec::new(),
        }
    }

    /// Ratios and the names beside which they stand, of one round.
    fn standing_of(values: &[(&str, f64)], less_is_better: bool) -> Vec<(f64, String)> {
        let series: Vec<_> = values.iter().map(|(series, _)| *series).collect();
        let question = question(&series, less_is_better);
        let mut samples = Samples::default();
        for (series, value) in values.iter().filter(|(_, value)| !value.is_nan()) {
            samples.put(["q", "f", series, "p"], 0, *value);
        }
        let panel = &question.panels[0];
        let table = Table::new(&question, panel, &samples);
        let standing = standing(&question, panel, &table, &samples);
        let own = |(ratio, other, _): (f64, &str, &str)| (ratio, other.to_owned());
        standing.into_iter().map(own).collect()
    }

    #[test]
    fn above_1_is_ahead_whichever_way_the_figure_goes() {
        let values = [("pando", 2.0), ("a", 1.0), ("b", 4.0)];
        assert_eq!(standing_of(&values, false), [(0.5, "b".into())]);
        assert_eq!(standing_of(&values, true), [(0.5, "a".into())]);
    }

    #[test]
    fn a_figure_of_0_has_no_ratio_where_it_would_divide() {
        // Less memory than one page, less time than a tick of the clock.
        assert!(standing_of(&[("pando", 0.0), ("a", 3.0)], true).is_empty());
        assert_eq!(
            standing_of(&[("pando", 3.0), ("a", 0.0), ("b", 6.0)], true),
            [(0.0, "a".into())]
        );
        assert!(standing_of(&[("pando", 3.0), ("a", 0.0)], false).is_empty());
        assert!(standing_of(&[("pando", 0.0), ("a", 0.0)], true).is_empty());
    }

    #[test]
    fn peers_alone_have_no_standing() {
        let values = [("pando", f64::NAN), ("redis", 2.0), ("memcached", 1.0)];
        assert!(standing_of(&values, false).is_empty());
        let values = [("pando", 2.0), ("mercury-mutexes", 1.0)];
        assert!(standing_of(&values, false).is_empty(), "both are ours");
    }
}
