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
    /// By this tool in a process of its own, with these arguments after `cell`.
    Process(Vec<String>),
    /// A server started for the cell, under the load of these options.
    Wire { peer: Peer, options: Vec<String> },
}

/// Servers that the tool can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Pando,
    Redis,
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
    pub(crate) below: (String, String),
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
