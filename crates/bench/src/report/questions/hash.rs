//! Questions about the hash engine: the Mercury paper's §4, in process.

use super::{
    Cell, Chart, Comparison, GET, Job, PUT, Panel, Question, Sizes, comparison, panel, process,
    thousands, words,
};

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

/// One target of `hash-one`, all its cells.
fn hash_one(sizes: &Sizes, (target, series): (&str, &str), threads: usize, place: &str) -> Cell {
    let keys = sizes.keys;
    Cell {
        series: series.into(),
        place: place.into(),
        job: Job::Process(words(&format!(
            "hash-one --target {target} --keys {keys} --operations {} --threads {threads}",
            keys.min(1_000_000)
        ))),
    }
}

pub(super) fn ycsb(sizes: &Sizes) -> Question {
    let mut counts = vec![1, sizes.threads];
    counts.dedup();
    let mut cells = Vec::new();
    for threads in counts {
        let targets = EXPANDED[..2].iter().chain(&MAPS);
        cells.extend(targets.map(|target| hash_one(sizes, *target, threads, &threads.to_string())));
    }
    let mixed = |figure, title: &str| panel(figure, title, "million/s", Chart::Lines);
    Question {
        id: "mercury-5",
        title: "Gets and puts on hash maps (Mercury, figure 5)",
        asks: "How do puts change the hash engine's throughput?",
        method: format!(
            "{} keys of 24 bytes with values of 10, scrambled Zipfian (θ 0.99), a million \
             operations a thread at most, puts onto keys that are there; all hold keys and values \
             of any length. The paper has 24 million keys and finds 9.2 to 14 times memcached's \
             throughput at 12 threads, memcached in process like its own table: that cannot be \
             had here.",
            thousands(sizes.keys)
        ),
        place: "threads",
        panels: vec![
            mixed("ycsb 100", "Gets only"),
            mixed("ycsb 95", "5 % puts"),
            mixed("ycsb 50", "50 % puts"),
        ],
        cells,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

/// The registry's maps: names of `hash-one`'s targets and what they are called here.
const MAPS: [(&str, &str); 3] = [
    ("dashmap", "dashmap"),
    ("papaya", "papaya"),
    ("scc", "scc-hash"),
];

/// The same of the hash engine with its kinds of locks.
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
        .map(|target| hash_one(sizes, *target, 1, "gets"))
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
        title: "Gets while the table expands, lines touched (Mercury, §4.1)",
        asks: "What do reads lose while another thread moves the buckets, and what do they touch?",
        method: format!(
            "About {} keys of 8 bytes; one thread gets, another is there throughout and moves \
             buckets only while the table doubles: off before, on, off after. The paper counts \
             2.85 cache misses for a get of its table and 5.44 for memcached's; this machine \
             shows no counters, so the lines that a get must touch are counted in the table.",
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
            Panel {
                less_is_better: true,
                figures: vec![
                    ("modelled bucket lines", "of buckets"),
                    ("modelled entry lines", "of entries"),
                    ("modelled lines", "together"),
                ],
                ..panel(
                    "lines",
                    "Memory that a get touches (less is better)",
                    "lines of 64 bytes, by inspection of the loaded table",
                    Chart::Bars,
                )
            },
        ],
        cells,
        comparisons: EXPANDED.iter().map(|(_, name)| lost(name)).collect(),
        shapes: Vec::new(),
    }
}
