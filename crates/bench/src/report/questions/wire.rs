//! Questions about servers: the Masstree paper's §7 and YCSB over the wire, and latency under a
//! set rate.

use super::super::model::Peer;
use super::{
    Cell, Chart, Comparison, Job, MEMCACHED_PORT, Panel, Question, Shape, Sizes, comparison, here,
    panel, stated,
};

const RATE: &str = "thousand requests/s";
const CPU: &str = "server CPU s per million";

const METHOD: &str = "Servers started for each measurement, on one core with one worker; the \
                      client on the other, 20 connections. Loopback, no persistence. CPU is what \
                      the server's process used per million requests, a figure that survives a \
                      client that saturates first.";

const PEERS: [(&str, Peer); 2] = [("pando", Peer::Pando), ("redis", Peer::Redis)];

/// The same servers with a log.
const LOGGED: [(&str, Peer); 2] = [
    ("pando, logged", Peer::PandoLogged),
    ("redis, logged", Peer::RedisLogged),
];

/// Seconds of a measurement at a set rate, however short others are.
const PACED_SECONDS_MIN: f64 = 2.0;

fn cell(sizes: &Sizes, series: &str, peer: Peer, place: &str, more: &str) -> Cell {
    let seconds = sizes.wire_ms as f64 / 1e3;
    cell_of(sizes, series, peer, place, seconds, more)
}

fn cell_of(sizes: &Sizes, series: &str, peer: Peer, place: &str, seconds: f64, more: &str) -> Cell {
    let line = format!(
        "--connections 20 --keys {} --fill --seconds {seconds} --warm-up {} {more}",
        sizes.rows,
        seconds / 4.0
    );
    Cell {
        series: series.into(),
        place: place.into(),
        job: Job::Wire {
            peer,
            options: line.split(' ').map(String::from).collect(),
        },
    }
}

fn panels() -> Vec<Panel> {
    vec![
        panel(RATE, "Requests", "thousand/s", Chart::Bars),
        Panel {
            less_is_better: true,
            ..panel(
                CPU,
                "Server CPU (less is better)",
                "seconds per million requests",
                Chart::Bars,
            )
        },
    ]
}

/// Cells of both servers. Redis has no ranges over keys: there an index beside them and a script.
fn both(sizes: &Sizes, place: &str, more: &str, ranges: bool) -> Vec<Cell> {
    PEERS
        .iter()
        .map(|(series, peer)| {
            let index = ranges && *peer == Peer::Redis;
            let more = if index {
                format!("{more} --ranges sorted-set")
            } else {
                more.to_owned()
            };
            cell(sizes, series, *peer, place, &more)
        })
        .collect()
}

/// Cells of the servers that speak memcached's protocol.
fn over_memcached(sizes: &Sizes, place: &str, more: &str) -> [Cell; 2] {
    [
        (MEMCACHED_PORT, Peer::PandoMemcached),
        ("memcached", Peer::Memcached),
    ]
    .map(|(series, peer)| {
        let more = format!("{more} --protocol memcached");
        cell(sizes, series, peer, place, &more)
    })
}

fn over_redis(what: &str, paper: &'static str, place: &str) -> Comparison {
    comparison(
        &format!("{what}: over Redis"),
        paper,
        RATE,
        ("pando", place),
        ("redis", place),
    )
}

/// Both servers keep a log, as they do in the paper.
fn logged(place: &str, paper: &'static str) -> Comparison {
    let [ours, theirs] = LOGGED.map(|(series, _)| (series, place));
    comparison(
        &format!("{place}: both with a log"),
        paper,
        RATE,
        ours,
        theirs,
    )
}

const MULTI: &str = "multi-get of 32";
const UDP: &str = "get over UDP";

/// Ratios to a peer: the paper's (one core for get and put, 16 for rows) and ours.
fn shape(
    title: &str,
    unit: &'static str,
    peer: &'static str,
    paper: &[(&'static str, f64)],
) -> Shape {
    let theirs: Vec<_> = paper
        .iter()
        .map(|(place, ratio)| (*place, *ratio, *ratio))
        .collect();
    let ours = paper.iter().map(|(place, _)| {
        let point = here(("pando", place), (peer, place));
        ((*place).to_owned(), point)
    });
    Shape {
        title: title.into(),
        unit,
        chart: Chart::Bars,
        figure: RATE,
        series: vec![("here", ours.collect()), ("the paper", stated(&theirs))],
    }
}

fn paper_comparisons() -> Vec<Comparison> {
    vec![
        over_redis("get", "1.69× (1 core: 0.91 and 0.54 million/s)", "get"),
        over_redis("put", "2.14× (1 core: 0.60 and 0.28 million/s)", "put"),
        comparison(
            "get: over memcached",
            "1.19× (1 core: 0.91 and 0.77 million/s)",
            RATE,
            ("pando", "get"),
            ("memcached", "get"),
        ),
        comparison(
            "put: over memcached",
            "5.65× (1 core: 0.60 and 0.11 million/s)",
            RATE,
            ("pando", "put"),
            ("memcached", "put"),
        ),
        comparison(
            "get: the memcached port over memcached",
            "1.19× (1 core)",
            RATE,
            (MEMCACHED_PORT, "get"),
            ("memcached", "get"),
        ),
        comparison(
            "multi-get of 32: the memcached port over memcached",
            "not in the paper",
            RATE,
            (MEMCACHED_PORT, MULTI),
            ("memcached", MULTI),
        ),
        comparison(
            "get over UDP: the memcached port over memcached",
            "not in the paper",
            RATE,
            (MEMCACHED_PORT, UDP),
            ("memcached", UDP),
        ),
        logged("put", "2.14× (both log)"),
        logged("MYCSB A", "2.84× (both log)"),
        over_redis("MYCSB A", "2.84× (6.05 and 2.13 million/s)", "MYCSB A"),
        over_redis("MYCSB B", "3.31× (8.90 and 2.69 million/s)", "MYCSB B"),
        over_redis("MYCSB C", "3.65× (9.86 and 2.70 million/s)", "MYCSB C"),
        comparison(
            "MYCSB C: over memcached",
            "1.87× (9.86 and 5.28 million/s)",
            RATE,
            ("pando", "MYCSB C"),
            ("memcached", "MYCSB C"),
        ),
        over_redis("MYCSB E", "not run: no ranges", "MYCSB E"),
    ]
}

fn paper_shapes() -> Vec<Shape> {
    vec![
        shape(
            "Over Redis, the paper and here",
            "times Redis",
            "redis",
            &[
                ("get", 0.91 / 0.54),
                ("put", 0.60 / 0.28),
                ("MYCSB A", 6.05 / 2.13),
                ("MYCSB B", 8.90 / 2.69),
                ("MYCSB C", 9.86 / 2.70),
            ],
        ),
        shape(
            "Over memcached, the paper and here",
            "times memcached",
            "memcached",
            &[
                ("get", 0.91 / 0.77),
                ("put", 0.60 / 0.11),
                ("MYCSB C", 9.86 / 5.28),
            ],
        ),
    ]
}

pub(super) fn paper(sizes: &Sizes) -> Question {
    let mut cells = Vec::new();
    for (place, workload, ranges) in [
        ("get", "decimal-get", false),
        ("put", "decimal-put", false),
        ("MYCSB A", "mycsb-a", false),
        ("MYCSB B", "mycsb-b", false),
        ("MYCSB C", "mycsb-c", false),
        ("MYCSB E", "mycsb-e", true),
    ] {
        // A reply to a range is as large as some fifty others.
        let depth = if ranges { 4 } else { 32 };
        let more = format!("--workload {workload} --pipeline {depth}");
        cells.extend(both(sizes, place, &more, ranges));
        if workload.starts_with("decimal") || workload == "mycsb-c" {
            cells.extend(over_memcached(sizes, place, &more));
        }
    }
    let more = "--workload decimal-get --multi-get 32";
    cells.extend(both(sizes, MULTI, more, false));
    cells.extend(over_memcached(sizes, MULTI, more));
    cells.extend(over_memcached(sizes, UDP, "--workload decimal-get --udp"));
    for (place, workload) in [("put", "decimal-put"), ("MYCSB A", "mycsb-a")] {
        let more = format!("--workload {workload} --pipeline 32");
        let cell_of = |(series, peer)| cell(sizes, series, peer, place, &more);
        cells.extend(LOGGED.map(cell_of));
    }
    Question {
        id: "figure-13",
        title: "Servers on the paper's workloads (figure 13)",
        asks: "How fast is the server, beside Redis and memcached?",
        method: format!(
            "{} keys or rows, 32 requests in a pipeline (4 for E). {METHOD} Rows are hashes on \
             both sides; memcached has rows as one value, where they are only read (C). Redis \
             cannot range over keys: in E it keeps a sorted set of them, and a script takes \
             keys from there, then a field of each. The multi-get is one request for 32 keys, \
             not pipelined: MGET, or memcached's get. Over UDP a datagram holds one request, \
             and each client has one in flight. What is logged is synced all the time here \
             (`interval`, at most 200 ms are lost) and every second by Redis (appendonly, \
             everysec). The paper's figures are for one core (get, put) or 16 cores against 16 \
             Redis processes (MYCSB), over a network.",
            super::thousands(sizes.rows)
        ),
        place: "",
        panels: panels(),
        cells,
        comparisons: paper_comparisons(),
        shapes: paper_shapes(),
    }
}

pub(super) fn ycsb(sizes: &Sizes) -> Question {
    let mut cells = Vec::new();
    for (place, workload) in [
        ("A", "ycsb-a"),
        ("B", "ycsb-b"),
        ("C", "ycsb-c"),
        ("D", "ycsb-d"),
        ("E", "ycsb-e"),
        ("F", "ycsb-f"),
    ] {
        let ranges = workload == "ycsb-e";
        let depth = if ranges { 2 } else { 16 };
        let more = format!("--workload {workload} --pipeline {depth}");
        cells.extend(both(sizes, place, &more, ranges));
    }
    Question {
        id: "ycsb-wire",
        title: "YCSB over the wire",
        asks: "How fast is the server, beside Redis, on YCSB's core workloads?",
        method: format!(
            "{} rows of ten 100-byte fields as hashes (HGETALL, HSET; KRANGE for E), 16 requests \
             in a pipeline (2 for E). {METHOD} For E Redis keeps a sorted set of all keys, which \
             inserts add to, and a script takes keys from there, then each row.",
            super::thousands(sizes.rows)
        ),
        place: "",
        panels: panels(),
        cells,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

pub(super) fn latency(sizes: &Sizes) -> Question {
    let mut cells = Vec::new();
    for rate in [5, 10, 20, 40] {
        for (series, peer) in PEERS {
            let more = format!("--rate {rate}000");
            let paced_s = sizes.paced_requests as f64 / (f64::from(rate) * 1e3);
            let seconds = paced_s.max(PACED_SECONDS_MIN);
            let place = rate.to_string();
            cells.push(cell_of(sizes, series, peer, &place, seconds, &more));
        }
    }
    let quantile = |figure, title: &str| Panel {
        less_is_better: true,
        ..panel(figure, title, "µs", Chart::Lines)
    };
    Question {
        id: "latency",
        title: "Latency under a set rate",
        asks: "How long do requests wait when clients do not?",
        method: format!(
            "Open loop: 95 % GET, 5 % SET of 8 bytes over {} keys fall due at a fixed rate; \
             latency counts from the due time, so a stall is charged for every request that \
             waited. Each measurement has {} requests or takes {PACED_SECONDS_MIN} s, whichever is \
             longer: whoever else takes the core for some milliseconds is in every one. {METHOD}",
            super::thousands(sizes.rows),
            super::thousands(sizes.paced_requests as usize),
        ),
        place: "thousand requests/s",
        panels: vec![
            quantile("latency p50, µs", "Median latency"),
            quantile("latency p99, µs", "99th percentile"),
            quantile("latency p99.9, µs", "99.9th percentile"),
        ],
        cells,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(options: &[String], name: &str) -> f64 {
        let mut from = options.iter().skip_while(|it| *it != name).skip(1);
        from.next().and_then(|it| it.parse().ok()).unwrap()
    }

    /// Of two thousand, two requests are the 99.9th percentile: one interruption.
    #[test]
    fn a_high_percentile_is_of_many_requests() {
        for sizes in [Sizes::quick(), Sizes::full()] {
            for cell in latency(&sizes).cells {
                let Job::Wire { options, .. } = cell.job else {
                    panic!("{} is measured over the wire", cell.series);
                };
                let requests = number(&options, "--rate") * number(&options, "--seconds");
                assert!(requests >= 40_000.0, "{options:?}");
            }
        }
    }
}
