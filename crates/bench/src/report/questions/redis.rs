//! The question that the README answers: plain GET and SET beside Redis.

use super::super::run::RESIDENT;
use super::{Cell, Chart, Job, Panel, Question, Sizes, panel, thousands, words};
use crate::report::model::Peer;

pub(crate) const ID: &str = "redis";
pub(crate) const RATE: &str = "thousand requests/s";
pub(crate) const CPU: &str = "server CPU s per million";
pub(crate) const CONNECTIONS: usize = 50;

pub(crate) const PLACES: [&str; 4] = [
    "GET, 32 in a pipeline",
    "SET, 32 in a pipeline",
    "GET, one at a time",
    "SET, one at a time",
];

/// Ten times the rows, a million at most.
pub(crate) fn keys(sizes: &Sizes) -> usize {
    (sizes.rows * 10).min(1_000_000)
}

pub(super) fn redis(sizes: &Sizes) -> Question {
    let keys = keys(sizes);
    let seconds = sizes.wire_ms as f64 / 1e3;
    let mut cells = Vec::new();
    for (place, (reads, pipeline)) in PLACES.iter().zip([(100, 32), (0, 32), (100, 1), (0, 1)]) {
        for (series, peer) in [("pando", Peer::Pando), ("redis", Peer::Redis)] {
            let line = format!(
                "--connections {CONNECTIONS} --keys {keys} --fill --seconds {seconds} --warm-up {} \
                 --reads {reads} --pipeline {pipeline}",
                seconds / 4.0
            );
            cells.push(Cell {
                series: series.into(),
                place: (*place).into(),
                job: Job::Wire {
                    peer,
                    options: words(&line),
                },
            });
        }
    }
    let less = |panel: Panel| Panel {
        less_is_better: true,
        ..panel
    };
    Question {
        id: ID,
        title: "GET and SET beside Redis",
        asks: "What does a million plain requests cost the server?",
        method: format!(
            "{} keys of 16 bytes, 8-byte values, uniform, {CONNECTIONS} connections; both servers \
             on one core with one worker, the client on the other, no log. Memory is resident \
             after the first cell's requests. One at a time the client decides the rate; CPU is \
             the figure to look at.",
            thousands(keys)
        ),
        place: "",
        panels: vec![
            less(panel(
                CPU,
                "Server CPU (less is better)",
                "seconds per million requests",
                Chart::Bars,
            )),
            panel(RATE, "Requests", "thousand/s", Chart::Bars),
            less(Panel {
                figures: vec![(RESIDENT, "memory")],
                ..panel(
                    RESIDENT,
                    "Memory (less is better)",
                    "resident MB",
                    Chart::Bars,
                )
            }),
        ],
        cells,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}
