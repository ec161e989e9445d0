//! A panel's values as rows and columns, and who is ahead.

use super::model::{Panel, Point, Question, Shape};
use super::questions::MEMCACHED_PORT;
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

    /// Of a paper's shape and ours; places in the order of the series that has most of them, or
    /// of their numbers.
    pub(super) fn of_shape(question: &Question, shape: &'q Shape, samples: &Samples) -> Self {
        let value = |point: &Point| match point {
            Point::Stated(least, most) => Some(Spread {
                least: *least,
                median: f64::midpoint(*least, *most),
                most: *most,
            }),
            Point::Own((series, place)) => {
                samples.spread([question.id, shape.figure, series, place])
            }
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
        if places.iter().all(|place| !number(place).is_nan()) {
            places.sort_by(|a, b| number(a).total_cmp(&number(b)));
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

/// Peers that keep keys in order, and those that do not: like is compared with like.
const TREES: [&str; 6] = [
    "masstree-crate",
    "btree-lock",
    "crossbeam-skiplist",
    "scc-tree",
    "redb",
    "congee",
];
const HASH_MAPS: [&str; 4] = ["dashmap", "papaya", "scc-hash", "scc"];

/// Who does the same work as a series of ours: trees for a tree, hash maps for a hash table, the
/// server that speaks the same protocol for a server. None for a series that is not ours.
fn rivals(series: &str) -> &'static [&'static str] {
    match series {
        "pando-masstree" => &TREES,
        "pando-mercury" => &HASH_MAPS,
        "pando" => &["redis"],
        MEMCACHED_PORT => &["memcached"],
        _ => &[],
    }
}

/// How one of ours stands at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standing<'q> {
    /// The median of the rounds' ratios; above 1 is ahead, whichever way the figure goes.
    pub(super) ratio: f64,
    pub(super) ours: &'q str,
    /// The best of those who do the same work.
    pub(super) other: &'q str,
    pub(super) place: &'q str,
}

/// Differences below this are said to be none.
const EVEN: f64 = 0.05;

/// Who is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Behind,
    Even,
    Ahead,
}

impl Standing<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        match self.ratio {
            ratio if ratio < 1.0 - EVEN => Verdict::Behind,
            ratio if ratio > 1.0 + EVEN => Verdict::Ahead,
            _ => Verdict::Even,
        }
    }
}

/// A place of a question, and what is measured there.
#[derive(Clone, Debug)]
pub(super) struct Place<'q> {
    pub(super) standing: Standing<'q>,
    pub(super) panel: &'q Panel,
    /// The figure and the place in words.
    pub(super) what: String,
    /// Ours and the other's.
    pub(super) values: [Option<Spread>; 2],
}

/// What titles say of figures that go the other way.
const LESS_IS_BETTER: &str = " (less is better)";

/// All places of a question.
pub(super) fn of_question<'q>(question: &'q Question, samples: &Samples) -> Vec<Place<'q>> {
    let mut places = Vec::new();
    for panel in &question.panels {
        let table = Table::new(question, panel, samples);
        for standing in standing(question, panel, &table, samples) {
            // Ratios are above 1 where ours is better, whichever way the figure goes.
            let title = panel.title.trim_end_matches(LESS_IS_BETTER);
            let what = match (table.places.len(), question.place) {
                (1, _) => title.to_owned(),
                (_, "") => format!("{title}, {}", standing.place),
                (_, unit) => format!("{title}, {} {unit}", standing.place),
            };
            let value = |series| samples.spread(panel.name(question, series, standing.place));
            places.push(Place {
                standing,
                panel,
                what,
                values: [value(standing.ours), value(standing.other)],
            });
        }
    }
    places
}

/// How ours stand at each place where they and a rival have a value.
fn standing<'q>(
    question: &'q Question,
    panel: &'q Panel,
    table: &Table<'q>,
    samples: &Samples,
) -> Vec<Standing<'q>> {
    let mut standing = Vec::new();
    for place in &table.places {
        let name = |series| panel.name(question, series, place);
        for ours in &table.series {
            let rivals = rivals(ours);
            let others = table.series.iter().filter(|other| rivals.contains(other));
            let best = others
                .filter_map(|other| {
                    // A figure too small for the clock that read it is 0: such a round has no
                    // ratio, whichever way the figure goes.
                    let (above, below) = if panel.less_is_better {
                        (*other, *ours)
                    } else {
                        (*ours, *other)
                    };
                    let ratio = samples.ratio(name(above), name(below))?.median;
                    Some(Standing {
                        ratio,
                        ours,
                        other,
                        place,
                    })
                })
                .min_by(|a, b| a.ratio.total_cmp(&b.ratio));
            standing.extend(best);
        }
    }
    standing
}

/// A place that is a number.
fn number(place: &str) -> f64 {
    place.parse().unwrap_or(f64::NAN)
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
        let own = |one: Standing<'_>| (one.ratio, one.other.to_owned());
        standing.into_iter().map(own).collect()
    }

    #[test]
    fn places_that_are_numbers_stand_in_their_order() {
        let stated = |places: &[&str]| {
            let point = |place: &&str| ((*place).to_owned(), Point::Stated(1.0, 1.0));
            places.iter().map(point).collect()
        };
        let shape = |places: &[&str], others: &[&str]| Shape {
            title: String::new(),
            unit: "",
            chart: Chart::Lines,
            figure: "f",
            series: vec![("here", stated(places)), ("the paper", stated(others))],
        };
        let question = question(&[], false);
        let places = |shape: &Shape| {
            let table = Table::of_shape(&question, shape, &Samples::default());
            table.places.join(" ")
        };
        assert_eq!(places(&shape(&["1", "2"], &["1", "16"])), "1 2 16");
        assert_eq!(places(&shape(&["put", "get"], &["all"])), "put get all");
    }

    #[test]
    fn above_1_is_ahead_whichever_way_the_figure_goes() {
        let values = [("pando-masstree", 2.0), ("redb", 1.0), ("btree-lock", 4.0)];
        assert_eq!(standing_of(&values, false), [(0.5, "btree-lock".into())]);
        assert_eq!(standing_of(&values, true), [(0.5, "redb".into())]);
    }

    #[test]
    fn like_is_compared_with_like() {
        let values = [
            ("pando-masstree", 2.0),
            ("pando-mercury", 8.0),
            ("mercury-mutexes", 100.0),
            ("btree-lock", 1.0),
            ("papaya", 10.0),
            ("B-tree for 8-byte keys", 100.0),
        ];
        let expected = [(2.0, "btree-lock".into()), (0.8, "papaya".into())];
        assert_eq!(standing_of(&values, false), expected);
        let values = [
            ("pando", 3.0),
            ("redis", 2.0),
            (MEMCACHED_PORT, 1.0),
            ("memcached", 2.0),
        ];
        let expected = [(1.5, "redis".into()), (0.5, "memcached".into())];
        assert_eq!(standing_of(&values, false), expected);
    }

    #[test]
    fn a_figure_of_0_has_no_ratio_where_it_would_divide() {
        // Less memory than one page, less time than a tick of the clock.
        let (ours, dashmap, papaya) = ("pando-mercury", "dashmap", "papaya");
        assert!(standing_of(&[(ours, 0.0), (dashmap, 3.0)], true).is_empty());
        assert_eq!(
            standing_of(&[(ours, 3.0), (dashmap, 0.0), (papaya, 6.0)], true),
            [(0.0, "dashmap".into())]
        );
        assert!(standing_of(&[(ours, 3.0), (dashmap, 0.0)], false).is_empty());
        assert!(standing_of(&[(ours, 0.0), (dashmap, 0.0)], true).is_empty());
    }

    #[test]
    fn peers_alone_have_no_standing() {
        let values = [("pando", f64::NAN), ("redis", 2.0), ("memcached", 1.0)];
        assert!(standing_of(&values, false).is_empty());
    }

    #[test]
    fn a_twentieth_is_no_difference() {
        let verdict = |ratio| {
            let one = Standing {
                ratio,
                ours: "pando",
                other: "redis",
                place: "p",
            };
            one.verdict()
        };
        let verdicts = [0.94, 0.96, 1.04, 1.06].map(verdict);
        let expected = [
            Verdict::Behind,
            Verdict::Even,
            Verdict::Even,
            Verdict::Ahead,
        ];
        assert_eq!(verdicts, expected);
    }
}
