//! What a report consists of.

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) keys: usize,
    /// Keys of servers over the wire, and of rows.
    pub(crate) rows: usize,
    pub(crate) repeats: usize,
    pub(crate) threads: usize,
    /// Milliseconds of one measurement over the wire.
    pub(crate) wire_ms: u64,
    /// Requests of one measurement at a set rate: so many that a thread of the kernel which takes
    /// the core for a moment now and then is in every one, and no single moment makes the 99.9th
    /// percentile.
    pub(crate) paced_requests: u64,
}

impl Sizes {
    /// Everything in a few minutes.
    pub(crate) fn quick() -> Self {
        Self {
            keys: 300_000,
            rows: 50_000,
            repeats: 3,
            threads: 2,
            wire_ms: 400,
            paced_requests: 40_000,
        }
    }

    /// Beyond the caches, medians of five.
    pub(crate) fn full() -> Self {
        Self {
            keys: 10_000_000,
            rows: 1_000_000,
            repeats: 5,
            threads: 2,
            wire_ms: 5000,
            paced_requests: 200_000,
        }
    }
}

/// One question, its measurements and what the papers say.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The question in one sentence.
    pub(crate) asks: &'static str,
    /// How it is measured, limits included.
    pub(crate) method: String,
    /// What the places are: a name and a unit, for the axis.
    pub(crate) place: &'static str,
    pub(crate) panels: Vec<Panel>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) comparisons: Vec<Comparison>,
    /// The shapes of a paper's figure and of ours, in one plot.
    pub(crate) shapes: Vec<Shape>,
}

/// One figure of a question's cells, plotted.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// The figure's name, as cells print it.
    pub(crate) figure: &'static str,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) chart: Chart,
    /// Whether less is better.
    pub(crate) less_is_better: bool,
    /// Figures that stand side by side as places, with their labels, instead of the places of the
    /// cells. `figure` is unused then.
    pub(crate) figures: Vec<(&'static str, &'static str)>,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chart {
    /// Places are numbers along an axis, one line per series.
    Lines,
    /// Places are groups, one bar per series.
    Bars,
}

/// One target at one place.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) series: String,
    pub(crate) place: String,
    pub(crate) job: Job,
}

/// How a cell is measured.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// By this tool in a process of its own, with these arguments.
    Process(Vec<String>),
    /// The same by the build of this tool whose trees are for one thread each
    /// (`--features single-core`).
    SingleCore(Vec<String>),
    /// A server started for the cell, under the load of these options.
    Wire { peer: Peer, options: Vec<String> },
}

/// Servers that the tool can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Pando,
    /// With a log that is synced all the time (`interval`).
    PandoLogged,
    /// Our memcached port.
    PandoMemcached,
    Redis,
    /// With a log that is synced every second.
    RedisLogged,
    Memcached,
}

/// A statement of a paper beside ours: the ratio of two measurements.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) what: String,
    /// What the paper says, as printed.
    pub(crate) paper: &'static str,
    pub(crate) figure: &'static str,
    /// Series and place.
    pub(crate) above: (String, String),
    /// Nothing where `figure` is a ratio already.
    pub(crate) below: (String, String),
}

/// What a paper's figure and ours look like: ratios, or figures, over the same places.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) chart: Chart,
    /// The figure that our ratios are made of.
    pub(crate) figure: &'static str,
    /// Ours first.
    pub(crate) series: Vec<(&'static str, Vec<(String, Point)>)>,
}

/// A ratio at one place, or a figure.
#[derive(Clone, Debug)]
pub(crate) enum Point {
    /// As a paper's text has it: least and most.
    Stated(f64, f64),
    /// A measurement here as it is: series and place.
    Own((String, String)),
    /// Of two measurements here: series and place.
    Here {
        above: (String, String),
        below: (String, String),
    },
}

impl Panel {
    /// Where the value of a series at a place of this panel is kept.
    pub(crate) fn name<'n>(
        &'n self,
        question: &'n Question,
        series: &'n str,
        place: &'n str,
    ) -> [&'n str; 4] {
        let labelled = self.figures.iter().find(|(_, label)| *label == place);
        match labelled {
            Some((figure, _)) => {
                let only = question.cells.first().map_or("", |cell| &cell.place);
                [question.id, figure, series, only]
            }
            None => [question.id, self.figure, series, place],
        }
    }

    /// The places of this panel.
    pub(crate) fn places<'q>(&'q self, question: &'q Question) -> Vec<&'q str> {
        if self.figures.is_empty() {
            question.places()
        } else {
            self.figures.iter().map(|(_, label)| *label).collect()
        }
    }
}

impl Question {
    /// Series in the order of their first cells.
    pub(crate) fn series(&self) -> Vec<&str> {
        first_of_each(self.cells.iter().map(|cell| cell.series.as_str()))
    }

    /// Places in the order of their first cells.
    pub(crate) fn places(&self) -> Vec<&str> {
        first_of_each(self.cells.iter().map(|cell| cell.place.as_str()))
    }
}

fn first_of_each<'q>(names: impl Iterator<Item = &'q str>) -> Vec<&'q str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}
