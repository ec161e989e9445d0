//! Questions about the hash engine: the Mercury paper's §4, in process.

use super::{
    Cell, Chart, Comparison, GET, Job, PUT, Panel, Question, Sizes, comparison, panel, process,
    thousands, words,
};

const FIGURE: &str = "operations, million/s";

const PEERS: [&str; 3] = ["dashmap", "papaya", "scc-hash"];

const LOCKS: [&str; 3] = ["mercury-bucket-locks", "mercury-mutexes", "mercury-rwlocks"];

pub(super) fn locks(sizes: &Sizes) -> Question {
    let keys = sizes.keys;
    let most = sizes.threads.to_string();
    let mut cells = Vec::new();
    for threads in [1, sizes.threads] {
        if threads == 1 && sizes.threads == 1 && !cells.is_empty() {
            continue;
        }
        for target in ["pando-mercury"].iter().chain(&LOCKS).chain(&PEERS) {
            let arguments = format!(
                "points --target {target} --keys {keys} --shape fixed --threads {threads} --seed 1 \
                 --until get"
            );
            cells.push(process(target, &threads.to_string(), &arguments));
        }
    }
    Question {
        id: "mercury-4",
        title: "The hash engine's locks (Mercury, figure 4)",
        asks: "What do locks cost, and how fast are hash maps of the registry?",
        method: format!(
            "{} random keys of 8 bytes, values of 8 bytes. pando-mercury reads without locks; \
             bucket locks are the paper's; striped mutexes and reader-writer locks are what \
             memcached of its time had. The puts include every expansion of the table.",
            thousands(keys)
        ),
        place: "threads",
        panels: vec![
            panel(GET, "Gets, all threads together", "million/s", Chart::Lines),
            panel(PUT, "Puts, all threads together", "million/s", Chart::Lines),
        ],
        cells,
        comparisons: vec![
            comparison(
                &format!("Bucket locks over mutexes, gets, {most} threads"),
                "above 1, growing with threads",
                GET,
                (LOCKS[0], &most),
                (LOCKS[1], &most),
            ),
            comparison(
                &format!("Bucket locks over reads without locks, {most} threads"),
                "close to 1 (their version without locks)",
                GET,
                (LOCKS[0], &most),
                ("pando-mercury", &most),
            ),
            comparison(
                &format!("Gets, {most} threads over one"),
                "scales with the cores",
                GET,
                ("pando-mercury", &most),
                ("pando-mercury", "1"),
            ),
        ],
        shapes: Vec::new(),
    }
}

pub(super) fn ycsb(sizes: &Sizes) -> Question {
    let Sizes { rows, threads, .. } = *sizes;
    let mut cells = Vec::new();
    for (place, workload) in [
        ("all get", "ycsb-c"),
        ("5 % put", "ycsb-b"),
        ("50 % put", "ycsb-a"),
    ] {
        let targets = ["pando-mercury", "pando-masstree"];
        for target in targets.iter().chain(&PEERS) {
            let arguments = format!(
                "rows --workload {workload} --target {target} --keys {rows} --steps {} \
                 --threads {threads} --columns 1 --column-bytes 10 --distribution zipfian",
                rows.max(1000) * 4
            );
            cells.push(process(target, place, &arguments));
        }
    }
    Question {
        id: "mercury-5",
        title: "Gets and puts on hash maps (Mercury, figure 5)",
        asks: "How do puts change the hash engine's throughput?",
        method: format!(
            "{} keys of 5 to 24 bytes, one column of 10 bytes, Zipfian, {threads} threads. The \
             paper has 24 million keys of 24 bytes and finds 9.2 to 14 times memcached's \
             throughput at 12 threads, for each share of puts. Our engines find the column by \
             name; dashmap and scc write it in place.",
            thousands(rows)
        ),
        place: "",
        panels: vec![panel(FIGURE, "Operations", "million/s", Chart::Bars)],
        cells,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

/// Names of `hash-one`'s targets and what they are called here.
const EXPANDED: [(&str, &str); 4] = [
    ("mercury", "pando-mercury"),
    ("mercury-ttas", LOCKS[0]),
    ("mercury-mutex", LOCKS[1]),
    ("mercury-rwlock", LOCKS[2]),
];

pub(super) fn expansion(sizes: &Sizes) -> Question {
    let keys = sizes.keys;
    let cells = EXPANDED
        .iter()
        .map(|(target, name)| Cell {
            series: (*name).into(),
            place: "gets".into(),
            job: Job::Process(words(&format!(
                "hash-one --target {target} --keys {keys} --operations {} --threads 1",
                keys.min(1_000_000)
            ))),
        })
        .collect();
    let lost = |name: &str| Comparison {
        what: format!("{name}: gets while the table expands, over those before"),
        paper: "0.91×",
        figure: "during over before",
        above: (name.into(), "gets".into()),
        below: (String::new(), String::new()),
    };
    Question {
        id: "mercury-6",
        title: "Gets while the table expands (Mercury, §4.1)",
        asks: "What do reads lose while another thread moves the buckets?",
        method: format!(
            "About {} keys of 8 bytes; one thread gets, another is there throughout and moves \
             buckets only while the table doubles: off before, on, off after.",
            thousands(keys)
        ),
        place: "",
        panels: vec![
            Panel {
                figures: vec![
                    ("gets before expansion", "expansion off: before"),
                    ("gets during expansion", "expansion on"),
                    ("gets after expansion", "expansion off: after"),
                ],
                ..panel("gets", "Gets of one thread", "million/s", Chart::Bars)
            },
            Panel {
                figures: vec![
                    ("during over before", "over before"),
                    ("during over after", "over after"),
                ],
                ..panel(
                    "ratio",
                    "Gets while it expands",
                    "times the gets when it does not",
                    Chart::Bars,
                )
            },
        ],
        cells,
        comparisons: EXPANDED.iter().map(|(_, name)| lost(name)).collect(),
        shapes: Vec::new(),
    }
}
