//! Minuet's paper's Figures 10 to 18, on hosts whose clock is simulated (`cluster`).
//!
//! Where the paper's text gives numbers of a curve, they stand beside ours; the other points of its
//! plots are not in the text.

use super::{
    Cell, Chart, Panel, Point, Question, Shape, Sizes, comparison, here, panel, process, stated,
};
use crate::cluster::{BYTES, KEYS_SCANNED, MEAN, MEMNODES, PARTS, RATE, ROUND_TRIPS, SCAN_MEAN};

/// Keys of a tree at most, and where snapshots are made.
const KEYS_MAX: usize = 200_000;
const SNAPSHOT_KEYS_MAX: usize = 100_000;
/// Keys of the paper's tree where scans are a tenth of it (§6.3).
const PAPER_KEYS: usize = 10_000_000;
/// Seconds for which the paper's scans share a snapshot.
const STALENESS: [(&str, usize); 4] = [("k = 0", 0), ("k = 5", 5), ("k = 30", 30), ("k = 60", 60)];

const OURS: &str = "minuet";
const COMPARED: &str = "inner nodes compared";
const STORE: &str = "locked store";

const METHOD: &str = "Proxies and memnodes of the product, with all their messages, locks and \
                      conflicts, in one process; the clock is simulated (50 µs a way, 80 µs a \
                      message at a proxy, 40 µs and 5 ns a byte at a memnode), so that a host does \
                      about what one of the paper's did. 14-byte keys, 8-byte values, pages of \
                      4 KiB.";

/// Clients of each host: for peak rates, where trees grow, and where snapshots are made. A tree of
/// a hundred thousand keys has few inner nodes, which all would change at once.
const CLIENTS: usize = 16;
const LOADING: usize = 6;
const SNAPSHOTTING: usize = 4;

/// Hosts of a memnode and a proxy each: fewer where everything is small.
fn hosts(sizes: &Sizes) -> &'static [&'static str] {
    if sizes.rows < 1000 {
        &["1", "2", "4"]
    } else {
        &["1", "2", "4", "5", "15", "25", "35"]
    }
}

/// The number of hosts for questions that have one: the paper's, or fewer.
fn many(sizes: &Sizes, paper: &'static str) -> &'static str {
    if sizes.rows < 1000 { "4" } else { paper }
}

fn keys(sizes: &Sizes) -> usize {
    sizes.keys.min(KEYS_MAX)
}

/// Simulated milliseconds.
fn ms(sizes: &Sizes) -> u64 {
    (sizes.wire_ms / 4).clamp(5, 250)
}

fn less(figure: &'static str, title: &str, unit: &'static str, chart: Chart) -> Panel {
    Panel {
        less_is_better: true,
        ..panel(figure, title, unit, chart)
    }
}

fn question(id: &'static str, title: &'static str, asks: &'static str, more: &str) -> Question {
    Question {
        id,
        title,
        asks,
        method: format!("{METHOD} {more}"),
        place: "hosts",
        panels: Vec::new(),
        cells: Vec::new(),
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

/// Rates and latencies, and the counts behind them.
fn panels() -> Vec<Panel> {
    vec![
        panel(
            RATE,
            "Operations, all hosts",
            "a simulated second",
            Chart::Lines,
        ),
        less(MEAN, "Mean latency", "simulated ms", Chart::Lines),
        less(ROUND_TRIPS, "Round trips", "an operation", Chart::Bars),
        less(
            MEMNODES,
            "Memnodes that take part",
            "an operation",
            Chart::Bars,
        ),
        less(BYTES, "Bytes there and back", "an operation", Chart::Bars),
    ]
}

/// Cells of systems that do `asked` on all numbers of hosts.
fn rows(sizes: &Sizes, series: &str, system: &str, asked: &str, clients: usize) -> Vec<Cell> {
    let cell = |hosts: &&str| {
        let line = format!(
            "cluster --system {system} --asked {asked} --hosts {hosts} --clients {clients} --keys \
             {} --ms {}",
            keys(sizes),
            ms(sizes)
        );
        process(series, hosts, &line)
    };
    hosts(sizes).iter().map(cell).collect()
}

/// A plot of what the paper's text says at some places, and of ours there and elsewhere.
fn beside(
    title: &str,
    (figure, unit): (&'static str, &'static str),
    ours: Vec<(String, Point)>,
    paper: &[(&str, f64, f64)],
) -> Shape {
    Shape {
        title: title.into(),
        unit,
        chart: Chart::Lines,
        figure,
        series: vec![("here", ours), ("the paper", stated(paper))],
    }
}

/// One of our series as it is, at these places.
fn own(series: &str, places: &[&str]) -> Vec<(String, Point)> {
    let point = |place: &&str| {
        let of = (series.to_owned(), (*place).to_owned());
        ((*place).to_owned(), Point::Own(of))
    };
    places.iter().map(point).collect()
}

/// One of our series over another, at these places.
fn over(above: &str, below: &str, places: &[&str]) -> Vec<(String, Point)> {
    let point = |place: &&str| ((*place).to_owned(), here((above, place), (below, place)));
    places.iter().map(point).collect()
}

pub(super) fn load(sizes: &Sizes) -> Question {
    let most = *hosts(sizes).last().expect("some");
    Question {
        panels: panels(),
        cells: [(OURS, "minuet"), (COMPARED, "compared")]
            .iter()
            .flat_map(|(series, system)| rows(sizes, series, system, "insert", LOADING))
            .collect(),
        comparisons: vec![
            comparison(
                "Dirty traversals over compared inner nodes, most hosts",
                "up to 2× (35 hosts)",
                RATE,
                (OURS, most),
                (COMPARED, most),
            ),
            comparison(
                "Mean latency with compared inner nodes over that with dirty traversals",
                "up to 1.8×",
                MEAN,
                (COMPARED, most),
                (OURS, most),
            ),
        ],
        shapes: vec![beside(
            "Dirty traversals over compared inner nodes",
            (RATE, "operations/s, ratio"),
            over(OURS, COMPARED, hosts(sizes)),
            &[("35", 2.0, 2.0)],
        )],
        ..question(
            "minuet-10",
            "Minuet: loading, with dirty traversals and without (figure 10)",
            "What does it cost to compare inner nodes by sequences that all memnodes have?",
            "Inserts of random keys, six clients a host. The paper's tree is empty at first, and \
             loaded for 60 s; this one has keys already, since all clients at one leaf would say \
             nothing of inner nodes.",
        )
    }
}

pub(super) fn latency(sizes: &Sizes) -> Question {
    let (hosts, keys) = (many(sizes, "15"), keys(sizes));
    let clients = ["1", "2", "4", "8", "16", "32"];
    let operations = ["read", "update", "insert"];
    let series = operations.iter().flat_map(|asked| {
        [("minuet", OURS), ("store", STORE)]
            .map(|(system, name)| (*asked, system, format!("{asked}, {name}")))
    });
    let cells = series.flat_map(|(asked, system, name)| {
        clients.map(|clients| {
            let line = format!(
                "cluster --system {system} --asked {asked} --hosts {hosts} --keys {keys} --ms {} \
                 --clients {clients}",
                ms(sizes)
            );
            process(&name, clients, &line)
        })
    });
    Question {
        place: "clients of each host",
        panels: vec![
            less(MEAN, "Mean latency", "simulated ms", Chart::Lines),
            panel(
                RATE,
                "Operations, all hosts",
                "a simulated second",
                Chart::Lines,
            ),
        ],
        cells: cells.collect(),
        comparisons: vec![comparison(
            "Mean latency of a read, the store's over ours",
            "more than 10× (a commercial database)",
            MEAN,
            ("read, locked store", "4"),
            ("read, minuet", "4"),
        )],
        shapes: vec![
            beside(
                "Reads",
                (MEAN, "ms"),
                own("read, minuet", &clients),
                &[("1", 0.0, 0.4), ("8", 0.0, 0.4)],
            ),
            beside(
                "Updates, from 20 to 80 % of the peak",
                (MEAN, "ms"),
                own("update, minuet", &clients),
                &[("2", 0.0, 1.0), ("8", 0.0, 1.0)],
            ),
        ],
        ..question(
            "minuet-11",
            "Minuet: latency and throughput (figure 11)",
            "How does latency grow with load?",
            "The store has no tree that is spread, no snapshots, and none of the commercial \
             database's costs: it is what a lock and a hop cost at least.",
        )
    }
}

/// Figures 12 and 13: operations on one tree or two, beside the store.
fn scaling(sizes: &Sizes, suffix: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for asked in ["read", "update", "insert"] {
        for (system, name) in [("minuet", OURS), ("store", STORE)] {
            let series = format!("{asked}, {name}");
            let asked = format!("{asked}{suffix}");
            cells.extend(rows(sizes, &series, system, &asked, CLIENTS));
        }
    }
    cells
}

pub(super) fn single(sizes: &Sizes) -> Question {
    let most = *hosts(sizes).last().expect("some");
    Question {
        panels: panels(),
        cells: scaling(sizes, ""),
        comparisons: vec![
            comparison(
                "A read over an update, operations/s",
                "up to 1.5×",
                RATE,
                ("read, minuet", most),
                ("update, minuet", most),
            ),
            comparison(
                "The same of the store",
                "less than 1.1×",
                RATE,
                ("read, locked store", most),
                ("update, locked store", most),
            ),
            comparison(
                "Reads, minuet over the store",
                "about 1, and more at larger scales",
                RATE,
                ("read, minuet", most),
                ("read, locked store", most),
            ),
        ],
        shapes: vec![beside(
            "Reads over updates",
            (RATE, "operations/s, ratio"),
            over("read, minuet", "update, minuet", hosts(sizes)),
            &[("5", 1.0, 1.5), ("35", 1.0, 1.5)],
        )],
        ..question(
            "minuet-12",
            "Minuet: transactions on one key over hosts (figure 12)",
            "Do they scale?",
            "The paper has 5 to 35 hosts and one hundred million keys.",
        )
    }
}

pub(super) fn pairs(sizes: &Sizes) -> Question {
    let most = *hosts(sizes).last().expect("some");
    Question {
        panels: panels(),
        cells: scaling(sizes, "-two"),
        comparisons: vec![
            comparison(
                "Reads of two trees over inserts into two",
                "about 5×",
                RATE,
                ("read, minuet", most),
                ("insert, minuet", most),
            ),
            comparison(
                "Reads of two, minuet over the store",
                "more than 200× (35 hosts)",
                RATE,
                ("read, minuet", most),
                ("read, locked store", most),
            ),
        ],
        shapes: vec![
            beside(
                "Reads of two trees",
                (RATE, "a simulated second"),
                own("read, minuet", hosts(sizes)),
                &[("35", 250_000.0, 250_000.0)],
            ),
            beside(
                "Inserts into two trees",
                (RATE, "a simulated second"),
                own("insert, minuet", hosts(sizes)),
                &[("35", 50_000.0, 50_000.0)],
            ),
            beside(
                "Reads of two tables of the store",
                (RATE, "a simulated second"),
                own("read, locked store", hosts(sizes)),
                &[("5", 0.0, 1200.0), ("35", 0.0, 1200.0)],
            ),
        ],
        ..question(
            "minuet-13",
            "Minuet: transactions on a key in each of two trees (figure 13)",
            "Do they scale where a store that locks all of its partitions does not?",
            "The store locks every partition for such a transaction, one at a time, as the paper \
             found of its database.",
        )
    }
}

fn snapshot_keys(sizes: &Sizes) -> usize {
    sizes.keys.min(SNAPSHOT_KEYS_MAX)
}

/// Seconds of the paper's, in simulated microseconds: as much shorter as the tree is smaller.
fn scaled_us(sizes: &Sizes, seconds: usize) -> usize {
    seconds * 1_000_000 * snapshot_keys(sizes) / PAPER_KEYS
}

/// What is long enough for two of the longest staleness.
fn snapshot_ms(sizes: &Sizes) -> usize {
    (scaled_us(sizes, 120) / 1000).max(5)
}

pub(super) fn one_snapshot(sizes: &Sizes) -> Question {
    let (hosts, keys) = (many(sizes, "25"), snapshot_keys(sizes));
    let cell = |series| {
        let line = format!(
            "cluster --system minuet --asked update --hosts {hosts} --keys {keys} --ms {} \
             --snapshot --clients {SNAPSHOTTING}",
            snapshot_ms(sizes) / 4
        );
        process(series, hosts, &line)
    };
    Question {
        panels: vec![Panel {
            figures: PARTS.to_vec(),
            ..panel(
                "",
                "Updates, by tenths of the time",
                "a simulated second",
                Chart::Lines,
            )
        }],
        cells: vec![cell("a snapshot at the beginning")],
        ..question(
            "minuet-14",
            "Minuet: updates after a snapshot (figure 14)",
            "How long does a snapshot slow updates?",
            &format!(
                "25 hosts; a tenth of the time is {:.0} s of the paper's, whose tree is as much \
                 larger. There, updates are back after 20 to 30 s.",
                (snapshot_ms(sizes) / 40) as f64 * PAPER_KEYS as f64 / keys as f64 / 1000.0
            ),
        )
    }
}

pub(super) fn borrowing(sizes: &Sizes) -> Question {
    let (hosts, keys) = (many(sizes, "15"), snapshot_keys(sizes));
    let count: usize = hosts.parse().expect("a number");
    let scan_hosts = (count / 5).max(1);
    let scanned: Vec<_> = ["100", "1000", "10000", "100000"]
        .into_iter()
        .filter(|scanned| scanned.parse().is_ok_and(|scanned: usize| scanned <= keys))
        .collect();
    let cells = [(BORROWED, ""), (ALONE, " --borrows-none")];
    let cells = cells.iter().flat_map(|(series, more)| {
        scanned.iter().map(move |scanned| {
            let line = format!(
                "cluster --system minuet --asked update --hosts {hosts} --busy-hosts {} --keys \
                 {keys} --ms {} --clients {SNAPSHOTTING} --scanners {} --scanned {scanned}{more}",
                count - scan_hosts,
                ms(sizes),
                scan_hosts * 8
            );
            process(series, scanned, &line)
        })
    });
    Question {
        place: "keys of a scan",
        panels: vec![panel(
            KEYS_SCANNED,
            "Keys scanned",
            "a simulated second",
            Chart::Lines,
        )],
        cells: cells.collect(),
        shapes: vec![beside(
            "Borrowed snapshots over snapshots of one's own",
            (KEYS_SCANNED, "keys scanned/s, ratio"),
            over(BORROWED, ALONE, &scanned),
            &[("1000", 10.0, 10.0), ("1000000", 1.0, 1.0)],
        )],
        ..question(
            "minuet-15",
            "Minuet: borrowed snapshots by the size of scans (figure 15)",
            "What is gained by sharing snapshots?",
            "A fifth of the hosts scan, with eight clients each, the others update; every scan \
             asks for the present.",
        )
    }
}

const BORROWED: &str = "borrowed";
const ALONE: &str = "each its own";

/// A cell of updates on some hosts beside scans of a tenth of the tree.
fn scans(
    sizes: &Sizes,
    (series, place): (&str, &str),
    (hosts, busy, scanners): (usize, usize, usize),
    (staleness, clients): (usize, usize),
) -> Cell {
    let keys = snapshot_keys(sizes);
    let line = format!(
        "cluster --system minuet --asked update --hosts {hosts} --busy-hosts {busy} --keys {keys} \
         --ms {} --clients {clients} --scanners {scanners} --scanned {} --staleness-us {}",
        snapshot_ms(sizes),
        keys / 10,
        scaled_us(sizes, staleness)
    );
    process(series, place, &line)
}

/// How the snapshots' questions shrink the paper's.
fn shrunk(sizes: &Sizes) -> String {
    let keys = snapshot_keys(sizes);
    format!(
        "{keys} keys, and scans of a tenth of them; the paper has ten million, and its seconds, \
         those of k too, are here {} times as short.",
        PAPER_KEYS / keys
    )
}

pub(super) fn scan_scaling(sizes: &Sizes) -> Question {
    let cell = |place: &&str| {
        let hosts: usize = place.parse().expect("a number");
        let scan_hosts = (hosts / 5).max(1);
        let busy = (hosts - scan_hosts).max(1);
        scans(
            sizes,
            (SCANS, place),
            (hosts, busy, scan_hosts * 8),
            (30, SNAPSHOTTING),
        )
    };
    let most = *hosts(sizes).last().expect("some");
    Question {
        panels: vec![panel(
            KEYS_SCANNED,
            "Keys scanned",
            "a simulated second",
            Chart::Lines,
        )],
        cells: hosts(sizes).iter().map(cell).collect(),
        comparisons: vec![comparison(
            "Keys scanned, most hosts over 4",
            "almost linear (5 to 35 hosts)",
            KEYS_SCANNED,
            (SCANS, most),
            (SCANS, "4"),
        )],
        ..question(
            "minuet-16",
            "Minuet: long scans over hosts (figure 16)",
            "Do scans beside updates scale?",
            &format!(
                "A fifth of the hosts scan, with eight clients each, the others update; k = 30. {}",
                shrunk(sizes)
            ),
        )
    }
}

const SCANS: &str = "scans, k = 30";
const NO_SCANS: &str = "no scans";

/// Numbers of hosts at which updates run beside scans.
fn beside_scans(sizes: &Sizes) -> Vec<&'static str> {
    let mut places = hosts(sizes).to_vec();
    places.retain(|place| *place != "35");
    places
}

fn updates(sizes: &Sizes, place: &str) -> Vec<Cell> {
    let hosts: usize = place.parse().expect("a number");
    let cell = |series, scanners, seconds| {
        let clients = (seconds, SNAPSHOTTING);
        scans(sizes, (series, place), (hosts, hosts, scanners), clients)
    };
    let beside = STALENESS.iter();
    let beside = beside.map(|(series, seconds)| cell(*series, 1, *seconds));
    std::iter::once(cell(NO_SCANS, 0, 0))
        .chain(beside)
        .collect()
}

pub(super) fn updates_beside_scans(sizes: &Sizes) -> Question {
    let places = beside_scans(sizes);
    let most = *places.last().expect("some");
    let against = |series, paper| {
        comparison(
            &format!("Updates at {series}, over those without scans"),
            paper,
            RATE,
            (series, most),
            (NO_SCANS, most),
        )
    };
    Question {
        panels: vec![
            panel(
                RATE,
                "Updates, all hosts",
                "a simulated second",
                Chart::Lines,
            ),
            less(
                MEAN,
                "Mean latency of an update",
                "simulated ms",
                Chart::Lines,
            ),
            panel(
                KEYS_SCANNED,
                "Keys scanned",
                "a simulated second",
                Chart::Lines,
            ),
        ],
        cells: places
            .iter()
            .flat_map(|place| updates(sizes, place))
            .collect(),
        comparisons: vec![
            against(STALENESS[0].0, "less than 0.1×"),
            against(STALENESS[3].0, "0.5 to 0.7×"),
        ],
        shapes: vec![beside(
            "Updates at k = 60, over those without scans",
            (RATE, "operations/s, ratio"),
            over(STALENESS[3].0, NO_SCANS, &places),
            &[("5", 0.5, 0.7), ("15", 0.5, 0.7)],
        )],
        ..question(
            "minuet-17",
            "Minuet: updates beside scans whose snapshots are up to k seconds old (figure 17)",
            "What do long scans cost updates?",
            &format!("One client scans. {}", shrunk(sizes)),
        )
    }
}

pub(super) fn scan_latency(sizes: &Sizes) -> Question {
    let hosts = many(sizes, "15");
    let count: usize = hosts.parse().expect("a number");
    let cell = |(name, seconds): (&'static str, usize), series, clients| {
        scans(sizes, (series, name), (count, count, 1), (seconds, clients))
    };
    let mut cells: Vec<_> = STALENESS.map(|k| cell(k, BESIDE, SNAPSHOTTING)).into();
    cells.extend(STALENESS.map(|k| cell(k, QUIET, 0)));
    let names = STALENESS.map(|(name, _)| name);
    Question {
        place: "",
        panels: vec![less(
            SCAN_MEAN,
            "Mean latency of a scan",
            "simulated ms",
            Chart::Bars,
        )],
        cells,
        shapes: vec![Shape {
            chart: Chart::Bars,
            ..beside(
                "Scans beside updates, over scans alone",
                (SCAN_MEAN, "mean latency, ratio"),
                over(BESIDE, QUIET, &names),
                &[
                    ("k = 0", 1.0, 1.4),
                    ("k = 30", 1.0, 1.4),
                    ("k = 60", 1.0, 1.4),
                ],
            )
        }],
        ..question(
            "minuet-18",
            "Minuet: latency of scans beside updates (figure 18)",
            "What do updates cost long scans?",
            &format!("15 hosts update, one client scans. {}", shrunk(sizes)),
        )
    }
}

const BESIDE: &str = "beside updates";
const QUIET: &str = "alone";
