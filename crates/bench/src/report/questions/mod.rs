//! The questions of a report, one file per group.

mod cluster;
mod hash;
mod minuet;
pub(super) mod redis;
mod rows;
mod tree;
mod wire;

use super::model::{Cell, Chart, Comparison, Job, Panel, Point, Question, Shape, Sizes};

/// All questions, in the order of the page.
pub(super) fn all(sizes: &Sizes) -> Vec<Question> {
    vec![
        tree::decimal(sizes),
        tree::ladder(sizes),
        tree::fixed(sizes),
        tree::prefix(sizes),
        tree::threads(sizes),
        tree::skew(sizes),
        hash::locks(sizes),
        hash::ycsb(sizes),
        hash::expansion(sizes),
        rows::mycsb(sizes),
        rows::ycsb(sizes),
        rows::distributions(sizes),
        rows::fields(sizes),
        minuet::counted(sizes),
        cluster::load(sizes),
        cluster::latency(sizes),
        cluster::single(sizes),
        cluster::pairs(sizes),
        cluster::one_snapshot(sizes),
        minuet::aftermath(sizes),
        cluster::borrowing(sizes),
        cluster::scan_scaling(sizes),
        cluster::updates_beside_scans(sizes),
        cluster::scan_latency(sizes),
        redis::redis(sizes),
        wire::paper(sizes),
        wire::ycsb(sizes),
        wire::latency(sizes),
    ]
}

/// The series of our server on its memcached port.
pub(super) const MEMCACHED_PORT: &str = "pando, memcached port";

const PUT: &str = "put, million/s";
const GET: &str = "get, million/s";

fn panel(figure: &'static str, title: &str, unit: &'static str, chart: Chart) -> Panel {
    Panel {
        figure,
        title: title.into(),
        unit,
        chart,
        less_is_better: false,
        figures: Vec::new(),
    }
}

/// A cell measured by `cell` with these arguments, separated by spaces.
fn process(series: &str, place: &str, arguments: &str) -> Cell {
    Cell {
        series: series.into(),
        place: place.into(),
        job: Job::Process(words(&format!("cell {arguments}"))),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(String::from).collect()
}

/// The ratio of two cells: series and place of each.
fn here(above: (&str, &str), below: (&str, &str)) -> Point {
    let own = |(series, place): (&str, &str)| (series.to_owned(), place.to_owned());
    Point::Here {
        above: own(above),
        below: own(below),
    }
}

/// Ratios as a paper's text has them.
fn stated(points: &[(&str, f64, f64)]) -> Vec<(String, Point)> {
    let point = |(place, least, most): &(&str, f64, f64)| {
        ((*place).to_owned(), Point::Stated(*least, *most))
    };
    points.iter().map(point).collect()
}

/// A paper's statement on `figure` of two cells.
fn comparison(
    what: &str,
    paper: &'static str,
    figure: &'static str,
    above: (&str, &str),
    below: (&str, &str),
) -> Comparison {
    let own = |(series, place): (&str, &str)| (series.to_owned(), place.to_owned());
    Comparison {
        what: what.into(),
        paper,
        figure,
        above: own(above),
        below: own(below),
    }
}

pub(super) fn thousands(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{} thousand", count as f64 / 1e3),
        _ => format!("{} million", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_comparison_names_cells_that_are_measured() {
        for question in all(&Sizes::quick()) {
            let has = |end: &(String, String)| {
                let mut cells = question.cells.iter();
                cells.any(|cell| (&cell.series, &cell.place) == (&end.0, &end.1))
            };
            for comparison in &question.comparisons {
                assert!(
                    has(&comparison.above),
                    "{}: {}",
                    question.id,
                    comparison.what
                );
                assert!(
                    comparison.below.0.is_empty() || has(&comparison.below),
                    "{}: {}",
                    question.id,
                    comparison.what
                );
            }
            for (name, points) in question.shapes.iter().flat_map(|shape| &shape.series) {
                for (place, point) in points {
                    let is_measured = match point {
                        Point::Stated(..) => true,
                        Point::Own(of) => has(of),
                        Point::Here { above, below } => has(above) && has(below),
                    };
                    assert!(is_measured, "{}: {name} at {place}", question.id);
                }
            }
        }
    }

    #[test]
    fn no_two_cells_of_a_question_share_a_name() {
        for question in all(&Sizes::quick()) {
            let mut names: Vec<_> = question
                .cells
                .iter()
                .map(|cell| (&cell.series, &cell.place))
                .collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{}", question.id);
        }
    }
}
