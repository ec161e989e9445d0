//! A panel's values as rows and columns, and who is ahead.

use super::model::{Panel, Question};
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
    pub(super) fn new(question: &'q Question, panel: &Panel, samples: &Samples) -> Self {
        let value =
            |series: &str, place: &str| samples.spread([question.id, panel.figure, series, place]);
        let has = |series: &str, place: &str| value(series, place).is_some();
        let all_places = question.places();
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
    question: &Question,
    panel: &Panel,
    table: &Table<'q>,
    samples: &Samples,
) -> Vec<(f64, &'q str, &'q str)> {
    let mut standing = Vec::new();
    let Some(first) = table.series.first() else {
        return standing;
    };
    for place in &table.places {
        let name = |series| [question.id, panel.figure, series, *place];
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
