//! Questions about Minuet: its paper's §6, as far as it can be counted in one process.

use super::{
    Chart, Comparison, Panel, Question, Shape, Sizes, comparison, here, panel, process, thousands,
};
use crate::embedded::aftermath::{BACK, BEFORE, LEAST};
use crate::embedded::minuet::{BYTES, MEMNODES, ROUND_TRIPS, SCANNED};

/// Keys of a tree, at most: more do not change what is counted.
const KEYS_MAX: usize = 100_000;

/// Keys of the tree that is timed, at most.
const TIMED_KEYS_MAX: usize = 2_000_000;

/// How many memnodes there are.
const PLACES: [&str; 3] = ["1", "2", "4"];

/// The operations, as the cell has them, and their names here.
const OPERATIONS: [(&str, &str); 10] = [
    ("load", "load"),
    ("read", "read"),
    ("update", "update"),
    ("insert", "insert"),
    ("read-two", "read of two trees"),
    ("update-two", "update of two trees"),
    ("insert-two", "insert into two trees"),
    ("snapshot", "snapshot"),
    ("update-after-snapshot", "update after a snapshot"),
    ("scan", "scan"),
];

/// The paper's curves are throughputs; what is counted stands for the work behind them.
fn comparisons() -> Vec<Comparison> {
    let four = PLACES[2];
    vec![
        comparison(
            "Figure 12: an update over a read, round trips (the paper: reads a second over \
                 updates)",
            "up to 1.5×",
            ROUND_TRIPS,
            ("update", four),
            ("read", four),
        ),
        comparison(
            "Figure 13: a read of two trees over a read, round trips",
            "about 2× (reads a second)",
            ROUND_TRIPS,
            ("read of two trees", four),
            ("read", four),
        ),
        comparison(
            "Figure 13: an insert into two trees over a read of two, round trips",
            "about 5× (transactions a second)",
            ROUND_TRIPS,
            ("insert into two trees", four),
            ("read of two trees", four),
        ),
        comparison(
            "Figure 13: memnodes of a read of two trees, of four",
            "those that have the rows; all in the commercial database",
            MEMNODES,
            ("read of two trees", four),
            ("", ""),
        ),
        comparison(
            "Figure 14: an update after a snapshot over one before, bytes",
            "a fall of updates a second for 20 to 30 s",
            BYTES,
            ("update after a snapshot", four),
            ("update", four),
        ),
    ]
}

pub(super) fn counted(sizes: &Sizes) -> Question {
    let keys = sizes.rows.min(KEYS_MAX);
    let counted = |figure, title: &str, unit| Panel {
        less_is_better: true,
        ..panel(figure, title, unit, Chart::Bars)
    };
    let cells = PLACES.iter().flat_map(|memnodes| {
        OPERATIONS.iter().map(move |(operation, name)| {
            let arguments =
                format!("minuet --operation {operation} --memnodes {memnodes} --keys {keys}");
            process(name, memnodes, &arguments)
        })
    });
    Question {
        id: "minuet-messages",
        title: "Minuet: messages of a transaction (figures 10, 12 to 14 and 16)",
        asks: "How many round trips, memnodes and bytes does each operation take?",
        method: format!(
            "Counted, not timed, on memnodes in one process: {} random keys of 14 bytes a tree, \
             8-byte values, one proxy, which has inner nodes in its cache after the load, so \
             nothing is repeated for others. A round trip is one that the transaction waits for; \
             bytes are those of requests and replies in a plain encoding. A scan takes {} entries. \
             Where an operation asks one memnode and the trees' pages are spread, throughput \
             grows with the memnodes, as the paper's does from 5 to 35 hosts.",
            thousands(keys),
            thousands(SCANNED)
        ),
        place: "memnodes",
        panels: vec![
            counted(ROUND_TRIPS, "Round trips", "round trips an operation"),
            counted(MEMNODES, "Memnodes that take part", "memnodes an operation"),
            counted(BYTES, "Bytes there and back", "bytes an operation"),
        ],
        cells: cells.collect(),
        comparisons: comparisons(),
        shapes: vec![Shape {
            title: "What does not grow with the memnodes scales with them".into(),
            unit: "memnodes an operation, times those of one memnode",
            chart: Chart::Lines,
            figure: MEMNODES,
            series: ["read", "update", "read of two trees", "snapshot"]
                .into_iter()
                .map(|name| {
                    let point = |place: &&str| {
                        ((*place).to_owned(), here((name, place), (name, PLACES[0])))
                    };
                    (name, PLACES.iter().map(point).collect())
                })
                .collect(),
        }],
    }
}

pub(super) fn aftermath(sizes: &Sizes) -> Question {
    let keys = sizes.keys.min(TIMED_KEYS_MAX);
    let cell = |engine: &str| {
        let line = format!("aftermath --engine {engine} --keys {keys}");
        process(engine, "", &line)
    };
    let less = |figure, title: &str, unit| Panel {
        less_is_better: true,
        ..panel(figure, title, unit, Chart::Bars)
    };
    Question {
        id: "minuet-14-clock",
        title: "Minuet: updates after a snapshot, by the real clock (figure 14)",
        asks: "How long does a snapshot slow updates in one process?",
        method: format!(
            "Two threads overwrite random ones of {} keys of 14 bytes in the engine, without a \
             log; after two seconds a snapshot is made. Rates are those of tenths of a second; \
             back means half a second on average, six seconds means never. The paper has 25 hosts \
             and 10 million keys. Masstree keeps images of values where Minuet copies pages.",
            thousands(keys)
        ),
        place: "",
        panels: vec![
            less(BACK, "Until updates are back at 95 %", "seconds"),
            panel(
                LEAST,
                "The slowest tenth of a second, over the rate before",
                "ratio",
                Chart::Bars,
            ),
            panel(BEFORE, "Updates before", "million a second", Chart::Bars),
        ],
        cells: ["minuet", "masstree"].map(cell).into(),
        comparisons: vec![comparison(
            "Figure 14: seconds until updates are back",
            "20 to 30 s",
            BACK,
            ("minuet", ""),
            ("", ""),
        )],
        shapes: Vec::new(),
    }
}
