//! Questions about the tree: the Masstree paper's §6, in process.

use super::{
    Cell, Chart, Comparison, GET, Job, PUT, Panel, Question, Shape, Sizes, comparison, here, panel,
    process, stated, thousands, words,
};
use crate::embedded::workload::{LOCAL, ROOT};

const ORDERED: [&str; 6] = [
    "pando-masstree",
    "masstree-crate",
    "btree-lock",
    "crossbeam-skiplist",
    "scc-tree",
    "redb",
];
const HASHED: [&str; 4] = ["pando-mercury", "dashmap", "papaya", "scc-hash"];

pub(super) fn decimal(sizes: &Sizes) -> Question {
    let keys = sizes.keys;
    let scans = |figure, title: &str| panel(figure, title, "million entries/s", Chart::Bars);
    Question {
        id: "decimal",
        title: "Decimal keys, one thread",
        asks: "How fast are puts, gets and scans on the paper's 1-to-10-byte decimal keys?",
        method: format!(
            "{} keys drawn from 31 bits, 8-byte values, put into an empty map, then read in \
             another order; scans take 100 entries. redb runs on its memory backend, 1,000 puts \
             to a transaction. Hash maps cannot scan. Resident memory is the process's growth \
             over the puts.",
            thousands(keys)
        ),
        place: "",
        panels: vec![
            panel(PUT, "Puts into an empty map", "million/s", Chart::Bars),
            panel(GET, "Gets, one at a time", "million/s", Chart::Bars),
            panel(
                "get in batches of 32, million/s",
                "Gets, 32 at a time",
                "million/s",
                Chart::Bars,
            ),
            scans(
                "100-key scans forward, million entries/s",
                "Scans forward, 100 entries each",
            ),
            scans(
                "100-key scans backward, million entries/s",
                "Scans backward, 100 entries each",
            ),
            Panel {
                less_is_better: true,
                ..panel(
                    "resident bytes per key",
                    "Memory (less is better)",
                    "resident bytes per key",
                    Chart::Bars,
                )
            },
        ],
        cells: ORDERED
            .iter()
            .chain(&HASHED)
            .map(|target| {
                let arguments = format!(
                    "points --target {target} --keys {keys} --shape decimal --threads 1 --seed 1"
                );
                process(target, "decimal keys", &arguments)
            })
            .collect(),
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

const RUNGS: [(&str, &str); 9] = [
    ("binary", "binary tree"),
    ("intcmp", "+ integer comparison"),
    ("four-tree", "4-tree"),
    ("b-tree", "B-tree"),
    ("prefetch", "+ prefetch"),
    ("permuter", "+ permuter"),
    ("masstree", "Masstree"),
    ("huge-pages", "+ huge pages"),
    ("batching", "+ batches of 32"),
];

/// What a rung gains over an earlier one: the paper's words, the figure, and both rungs.
const GAINS: [(&str, &str, &str, usize, usize); 9] = [
    ("Integer comparison, gets", "1.15–1.24×", GET, 1, 0),
    ("4-tree over it, gets", "1.41–1.44×", GET, 2, 1),
    ("B-tree over 4-tree, puts", "0.88×", PUT, 3, 2),
    (
        "B-tree with prefetch over 4-tree, gets",
        "1.09–1.31×",
        GET,
        4,
        2,
    ),
    ("Permuter, puts", "1.04×", PUT, 5, 4),
    ("Masstree over it, gets", "1.04–1.08×", GET, 6, 5),
    ("Masstree over it, puts", "1.04–1.08×", PUT, 6, 5),
    (
        "Huge pages, gets",
        "1.27–1.37× (allocator included)",
        GET,
        7,
        6,
    ),
    ("Batches, gets", "planned, not measured", GET, 8, 7),
];

fn ladder_shapes() -> Vec<Shape> {
    vec![Shape {
        title: "Gets, the paper's steps and ours".into(),
        unit: "times + integer comparison",
        chart: Chart::Bars,
        figure: GET,
        series: vec![
            (
                "here",
                RUNGS[..7]
                    .iter()
                    .map(|(_, name)| {
                        let point = here((name, "rung"), (RUNGS[1].1, "rung"));
                        ((*name).to_owned(), point)
                    })
                    .collect(),
            ),
            // The text's factors, multiplied; it gives ranges over gets and puts.
            (
                "the paper, 16 cores",
                stated(&[
                    (RUNGS[1].1, 1.0, 1.0),
                    (RUNGS[2].1, 1.41, 1.44),
                    (RUNGS[4].1, 1.54, 1.89),
                    (RUNGS[6].1, 1.60, 2.04),
                ]),
            ),
        ],
    }]
}

pub(super) fn ladder(sizes: &Sizes) -> Question {
    let Sizes { keys, threads, .. } = *sizes;
    Question {
        id: "figure-8",
        title: "From a binary tree to Masstree (figure 8)",
        asks: "What does each design feature gain?",
        method: format!(
            "{} decimal keys, {threads} threads. The rungs below Masstree are safe Rust over \
             arenas and belong to this tool; prefetch is one load per cache line. The paper has \
             140 million keys and 16 cores, and puts huge pages before integer comparison.",
            thousands(keys)
        ),
        place: "",
        panels: vec![
            panel(GET, "Gets", "million/s", Chart::Bars),
            panel(PUT, "Puts", "million/s", Chart::Bars),
        ],
        cells: RUNGS
            .iter()
            .map(|(rung, name)| {
                let arguments = format!("ladder --rung {rung} --keys {keys} --threads {threads}");
                process(name, "rung", &arguments)
            })
            .collect(),
        comparisons: GAINS
            .iter()
            .map(|(what, paper, figure, above, below)| {
                let [above, below] = [above, below].map(|rung| (RUNGS[*rung].1, "rung"));
                comparison(what, paper, figure, above, below)
            })
            .collect(),
        shapes: ladder_shapes(),
    }
}

/// The keys of §6.4: of a fixed length for most of it, decimal ones for the single-core variant.
const FIXED: &str = "8 digits";
const DECIMAL: &str = "1 to 10 digits";

/// Our engine compiled for one thread.
const SINGLE: &str = "pando-masstree, one core";

fn single_core(series: &str, place: &str, arguments: &str) -> Cell {
    Cell {
        job: Job::SingleCore(words(&format!("cell {arguments}"))),
        ..process(series, place, arguments)
    }
}

fn fixed_comparisons() -> Vec<Comparison> {
    let place = FIXED;
    vec![
        comparison(
            "B-tree for fixed keys over Masstree, gets",
            "1.008×",
            GET,
            ("B-tree for 8-byte keys", place),
            ("pando-masstree", place),
        ),
        comparison(
            "Masstree without locks, versions and fences, puts of decimal keys",
            "1.13×",
            PUT,
            (SINGLE, DECIMAL),
            ("pando-masstree", DECIMAL),
        ),
        comparison(
            "The same, gets",
            "not in the paper",
            GET,
            (SINGLE, DECIMAL),
            ("pando-masstree", DECIMAL),
        ),
        comparison(
            "Without locks and versions, puts (ladder's B-tree)",
            "1.13× (Masstree)",
            PUT,
            ("the same without locks", place),
            (PERMUTER, place),
        ),
        comparison(
            "Hash table (papaya) over Masstree, gets",
            "2.5× (their own table)",
            GET,
            ("papaya", place),
            ("pando-masstree", place),
        ),
    ]
}

pub(super) fn fixed(sizes: &Sizes) -> Question {
    let keys = sizes.keys;
    let mut cells: Vec<_> = ["pando-masstree", "congee", "masstree-crate", "btree-lock"]
        .iter()
        .chain(&HASHED)
        .map(|target| {
            let arguments = format!(
                "points --target {target} --keys {keys} --shape digits --threads 1 --seed 1 \
                 --until get"
            );
            process(target, FIXED, &arguments)
        })
        .collect();
    for (rung, name) in [
        ("fixed", "B-tree for 8-byte keys"),
        ("permuter", PERMUTER),
        ("single", "the same without locks"),
    ] {
        let arguments = format!("ladder --rung {rung} --keys {keys} --shape digits --threads 1");
        cells.push(process(name, FIXED, &arguments));
    }
    for (shape, place) in [("digits", FIXED), ("decimal", DECIMAL)] {
        let arguments = format!(
            "points --target pando-masstree --keys {keys} --shape {shape} --threads 1 --seed 1 \
             --until get"
        );
        if place == DECIMAL {
            cells.push(process("pando-masstree", place, &arguments));
        }
        cells.push(single_core(SINGLE, place, &arguments));
    }
    Question {
        id: "flexibility",
        title: "What flexibility costs (§6.4)",
        asks: "How much would fixed keys, a single core or no order gain?",
        method: format!(
            "{} keys of 8 digits (1 to 10 beside the single-core variant), one thread. The \
             B-trees are the last before Masstree in figure 8; congee is an adaptive radix tree \
             for 8-byte keys. The single-core Masstree is our engine compiled without locks, \
             version checks and fences.",
            thousands(keys)
        ),
        place: "",
        panels: vec![
            panel(GET, "Gets", "million/s", Chart::Bars),
            panel(PUT, "Puts", "million/s", Chart::Bars),
        ],
        cells,
        comparisons: fixed_comparisons(),
        shapes: Vec::new(),
    }
}

/// The last B-tree before Masstree in figure 8.
const PERMUTER: &str = "B-tree for 16-byte keys";

/// Bytes of the keys of figure 9.
const LENGTHS: [usize; 6] = [8, 16, 24, 32, 40, 48];

fn prefix_comparisons() -> Vec<Comparison> {
    vec![
        comparison(
            "Masstree over the B-tree of figure 8, 16-byte keys",
            "1.4×",
            GET,
            ("pando-masstree", "16"),
            (PERMUTER, "16"),
        ),
        comparison(
            "Masstree over a locked BTreeMap, 48-byte keys",
            "3.4×",
            GET,
            ("pando-masstree", "48"),
            ("btree-lock", "48"),
        ),
        comparison(
            "48-byte keys over 8-byte keys, the crate masstree",
            "not in the paper",
            GET,
            ("masstree-crate", "48"),
            ("masstree-crate", "8"),
        ),
        comparison(
            "48-byte keys over 8-byte keys, ours",
            "not in the paper",
            GET,
            ("pando-masstree", "48"),
            ("pando-masstree", "8"),
        ),
    ]
}

pub(super) fn prefix(sizes: &Sizes) -> Question {
    let Sizes { keys, threads, .. } = *sizes;
    let mut cells = Vec::new();
    for bytes in LENGTHS {
        for target in &ORDERED[..4] {
            let arguments = format!(
                "prefix --target {target} --key-bytes {bytes} --keys {keys} --threads {threads}"
            );
            cells.push(process(target, &bytes.to_string(), &arguments));
        }
    }
    for bytes in [8, 16] {
        let arguments =
            format!("ladder --rung permuter --key-bytes {bytes} --keys {keys} --threads {threads}");
        cells.push(process(PERMUTER, &bytes.to_string(), &arguments));
    }
    Question {
        id: "figure-9",
        title: "Keys with a common prefix (figure 9)",
        asks: "Does a tree of layers stay fast when keys share long prefixes?",
        method: format!(
            "{} keys whose last 8 bytes, digits, differ and whose first 0 to 40 are the same; \
             gets on {threads} threads. The paper compares with its B-tree, whose nodes hold 16 \
             bytes of a key; ours of that kind ends there (keys of 8 and 16 bytes), and the locked \
             BTreeMap, which compares whole keys in the same way, stands for it beyond.",
            thousands(keys)
        ),
        place: "key length, bytes",
        panels: vec![panel(
            GET,
            "Gets by length of the key",
            "million/s",
            Chart::Lines,
        )],
        cells,
        comparisons: prefix_comparisons(),
        shapes: vec![Shape {
            title: "Masstree over a B-tree".into(),
            unit: "times the B-tree's gets",
            chart: Chart::Lines,
            figure: GET,
            series: vec![
                (
                    "here",
                    LENGTHS
                        .iter()
                        .map(|bytes| {
                            let bytes = bytes.to_string();
                            let point = here(("pando-masstree", &bytes), ("btree-lock", &bytes));
                            (bytes, point)
                        })
                        .collect(),
                ),
                (
                    "the paper, 16 cores (its text names two lengths)",
                    stated(&[("16", 1.4, 1.4), ("48", 3.4, 3.4)]),
                ),
            ],
        }],
    }
}

fn thread_comparisons(most: &str) -> Vec<Comparison> {
    let over = |what: &str, paper, figure| {
        comparison(
            &format!("{what}, {most} threads over one"),
            paper,
            figure,
            ("pando-masstree", most),
            ("pando-masstree", "1"),
        )
    };
    let retries = |kind: &str, paper, figure| {
        comparison(
            &format!("{kind} per million puts of {most} threads (§4.6)"),
            paper,
            figure,
            ("pando-masstree", most),
            ("", ""),
        )
    };
    vec![
        over("Gets", "12.7× at 16 cores", GET),
        over("Puts", "12.5× at 16 cores", PUT),
        retries("Retries from the root", "below 1, 8 threads", ROOT),
        retries("Local retries", "15 times those from the root", LOCAL),
    ]
}

pub(super) fn threads(sizes: &Sizes) -> Question {
    let keys = sizes.keys;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> = [1, 2, 4, 8, 16]
        .into_iter()
        .filter(|count| *count <= cores.max(sizes.threads))
        .collect();
    let mut cells = Vec::new();
    for count in &counts {
        for target in ["pando-masstree", "masstree-crate", "btree-lock", "papaya"] {
            let arguments = format!(
                "points --target {target} --keys {keys} --shape decimal --threads {count} --seed 1 \
                 --until get"
            );
            cells.push(process(target, &count.to_string(), &arguments));
        }
    }
    let most = counts.last().map_or(String::new(), ToString::to_string);
    let retries = |figure, title: &str| Panel {
        less_is_better: true,
        ..panel(figure, title, "per million puts", Chart::Lines)
    };
    Question {
        id: "figure-10",
        title: "More threads (figure 10)",
        asks: "How does throughput grow with the threads on one tree?",
        method: format!(
            "{} decimal keys, as many threads as places say on this machine's {cores} cores; the \
             total of all threads.",
            thousands(keys)
        ),
        place: "threads",
        panels: vec![
            panel(GET, "Gets, all threads together", "million/s", Chart::Lines),
            panel(PUT, "Puts, all threads together", "million/s", Chart::Lines),
            retries(LOCAL, "Puts that read a node again"),
            retries(ROOT, "Puts that went back to the root"),
        ],
        comparisons: thread_comparisons(&most),
        shapes: vec![Shape {
            title: "Gets over one thread's".into(),
            unit: "times one thread",
            chart: Chart::Lines,
            figure: GET,
            series: vec![
                (
                    "here",
                    counts
                        .iter()
                        .map(|count| {
                            let count = count.to_string();
                            let point = here(("pando-masstree", &count), ("pando-masstree", "1"));
                            (count, point)
                        })
                        .collect(),
                ),
                (
                    "the paper (its text names two counts)",
                    stated(&[("1", 1.0, 1.0), ("16", 12.7, 12.7)]),
                ),
            ],
        }],
        cells,
    }
}

/// Skewness of figure 11.
const DELTAS: [usize; 6] = [0, 1, 3, 5, 7, 9];

/// The paper's hard-partitioned variant.
const PARTITIONED: &str = "a tree for one core per thread";

fn skew_comparisons() -> Vec<Comparison> {
    vec![
        comparison(
            "A tree per thread over one tree, δ = 0",
            "1.5×",
            GET,
            ("a tree per thread", "0"),
            ("one shared tree", "0"),
        ),
        comparison(
            "A tree for one core per thread over one tree, δ = 0",
            "1.5×",
            GET,
            (PARTITIONED, "0"),
            ("one shared tree", "0"),
        ),
        comparison(
            "One tree over a tree per thread, δ = 9",
            "3.5× (16 partitions)",
            GET,
            ("one shared tree", "9"),
            ("a tree per thread", "9"),
        ),
    ]
}

pub(super) fn skew(sizes: &Sizes) -> Question {
    let Sizes { keys, threads, .. } = *sizes;
    let mut cells = Vec::new();
    for delta in DELTAS {
        for (series, flag) in [
            ("one shared tree", ""),
            ("a tree per thread", " --partitioned"),
        ] {
            let arguments = format!("skew --delta {delta} --keys {keys} --threads {threads}{flag}");
            cells.push(process(series, &delta.to_string(), &arguments));
        }
        let arguments =
            format!("skew --delta {delta} --keys {keys} --threads {threads} --partitioned");
        cells.push(single_core(PARTITIONED, &delta.to_string(), &arguments));
    }
    Question {
        id: "figure-11",
        title: "Skew between partitions (figure 11)",
        asks: "When is one shared tree better than a tree per thread?",
        method: format!(
            "{} decimal keys in {threads} partitions on {threads} threads, gets; the last \
             partition gets δ times more requests than another. A partitioned run ends with its \
             slowest thread. The paper's partitions are single-core trees: here our engine \
             compiled without locks, version checks and fences, where such a build was at hand \
             (--single-core). The paper has 16 \
             partitions, where δ = 9 leaves 80 % of the cores idle; with {threads} the loss is \
             smaller: the hot one gets (1 + δ) of {threads} + δ parts.",
            thousands(keys)
        ),
        place: "skewness δ",
        panels: vec![panel(GET, "Gets by skewness", "million/s", Chart::Lines)],
        cells,
        comparisons: skew_comparisons(),
        shapes: vec![Shape {
            title: "One tree over a tree per thread".into(),
            unit: "times the partitioned gets",
            chart: Chart::Lines,
            figure: GET,
            series: vec![
                (
                    "here",
                    DELTAS
                        .iter()
                        .map(|delta| {
                            let delta = delta.to_string();
                            let partitioned = ("a tree per thread", delta.as_str());
                            let point = here(("one shared tree", &delta), partitioned);
                            (delta, point)
                        })
                        .collect(),
                ),
                (
                    "the paper, 16 partitions (its text names two)",
                    stated(&[("0", 1.0 / 1.5, 1.0 / 1.5), ("9", 3.5, 3.5)]),
                ),
            ],
        }],
    }
}
