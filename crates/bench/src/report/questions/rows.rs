//! MYCSB and YCSB in process.

use super::{Cell, Chart, Question, Sizes, panel, process, thousands};

const FIGURE: &str = "operations, million/s";
const ORDERED: [&str; 3] = ["pando-masstree", "btree-lock", "crossbeam-skiplist"];
const HASHED: [&str; 4] = ["pando-mercury", "dashmap", "papaya", "scc-hash"];

const METHOD: &str = "Our engine finds columns by name, as the server's hashes do; a peer has \
                      one block per row and finds columns by number, which is less work; all but \
                      papaya change it in place under a lock. Who reads a row takes its columns \
                      one by one. Engines, papaya and the skip list hold their guard for 128 \
                      steps. Hash maps cannot run the workloads with scans.";

fn cells(sizes: &Sizes, workload: &str, place: &str, more: &str) -> Vec<Cell> {
    let Sizes { rows, threads, .. } = *sizes;
    let scans = workload.ends_with('e');
    let hashed = HASHED.iter().filter(|_| !scans);
    // A scan is some fifty reads. Fewer steps would end within milliseconds.
    let steps = 4 * rows.max(1000) / if scans { 20 } else { 1 };
    ORDERED
        .iter()
        .chain(hashed)
        .map(|target| {
            let arguments = format!(
                "rows --workload {workload} --target {target} --keys {rows} --steps {steps} \
                 --threads {threads}{more}"
            );
            process(target, place, &arguments)
        })
        .collect()
}

pub(super) fn mycsb(sizes: &Sizes) -> Question {
    let mut all = Vec::new();
    for (workload, place) in [
        ("mycsb-a", "A: 50 % get, 50 % update"),
        ("mycsb-b", "B: 95 % get, 5 % update"),
        ("mycsb-c", "C: all get"),
        ("mycsb-e", "E: 95 % getrange, 5 % update"),
    ] {
        all.extend(cells(sizes, workload, place, ""));
    }
    Question {
        id: "mycsb",
        title: "MYCSB in process (§7)",
        asks: "How fast are rows of ten 4-byte columns, read whole and written by column?",
        method: format!(
            "{} rows, Zipfian (scrambled, θ 0.99), 5-to-24-byte keys, {} threads; a getrange reads \
             one column of 1 to 100 adjacent keys. {METHOD}",
            thousands(sizes.rows),
            sizes.threads
        ),
        place: "",
        panels: vec![panel(FIGURE, "Operations", "million/s", Chart::Bars)],
        cells: all,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

pub(super) fn ycsb(sizes: &Sizes) -> Question {
    let mut all = Vec::new();
    for (workload, place) in [
        ("ycsb-a", "A: 50 % read, 50 % update"),
        ("ycsb-b", "B: 95 % read, 5 % update"),
        ("ycsb-c", "C: all read"),
        ("ycsb-d", "D: 95 % read the latest, 5 % insert"),
        ("ycsb-e", "E: 95 % scan, 5 % insert"),
        ("ycsb-f", "F: 50 % read, 50 % read and write"),
    ] {
        all.extend(cells(sizes, workload, place, ""));
    }
    Question {
        id: "ycsb",
        title: "YCSB core workloads in process",
        asks: "How fast are rows of ten 100-byte columns?",
        method: format!(
            "{} rows, scrambled Zipfian (D: latest), {} threads; scans read 1 to 100 whole rows. \
             {METHOD}",
            thousands(sizes.rows),
            sizes.threads
        ),
        place: "",
        panels: vec![panel(FIGURE, "Operations", "million/s", Chart::Bars)],
        cells: all,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

pub(super) fn distributions(sizes: &Sizes) -> Question {
    let mut all = Vec::new();
    for distribution in ["uniform", "zipfian", "scrambled", "latest"] {
        let more = format!(" --distribution {distribution}");
        all.extend(cells(sizes, "ycsb-b", distribution, &more));
    }
    Question {
        id: "popularity",
        title: "Popularity of keys",
        asks: "What does the distribution of requests over keys change?",
        method: format!(
            "YCSB B on {} rows under YCSB's four distributions. {METHOD}",
            thousands(sizes.rows)
        ),
        place: "",
        panels: vec![panel(
            FIGURE,
            "YCSB B by distribution",
            "million/s",
            Chart::Bars,
        )],
        cells: all,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}

pub(super) fn fields(sizes: &Sizes) -> Question {
    let mut all = Vec::new();
    for (place, columns, bytes) in [
        ("1 × 1000 bytes", 1, 1000),
        ("10 × 10 bytes", 10, 10),
        ("10 × 100 bytes", 10, 100),
        ("50 × 20 bytes", 50, 20),
    ] {
        let more = format!(" --columns {columns} --column-bytes {bytes}");
        all.extend(cells(sizes, "ycsb-a", place, &more));
    }
    Question {
        id: "fields",
        title: "Number and size of fields",
        asks: "What do more and larger columns cost?",
        method: format!(
            "YCSB A on {} rows: reads take the whole row, updates write one column. {METHOD}",
            thousands(sizes.rows)
        ),
        place: "",
        panels: vec![panel(
            FIGURE,
            "YCSB A by shape of the row",
            "million/s",
            Chart::Bars,
        )],
        cells: all,
        comparisons: Vec::new(),
        shapes: Vec::new(),
    }
}
