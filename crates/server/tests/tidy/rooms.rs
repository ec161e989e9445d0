//! Rules about the modules of `db`: each names only those that stand before it.
//!
//! The order is the fenced block named `rooms` in ARCHITECTURE.md; a line reads
//! `keyspace: keyspace`, a room and its modules. It runs from the bottom to the top: a module may
//! name what an earlier line lists, or what stands before it in its own line. Every module at the
//! root of `db/src` is listed. Tests may name anything.

use std::collections::HashMap;

use crate::source::Source;
use crate::{Finding, assert_none, file, sources};

const ROOT: &str = "crates/db/src/";

/// Modules that only tests and fuzzers compile.
const UNRANKED: [&str; 3] = ["fuzz", "testing", "tests"];

/// The modules of the list, with their ranks.
fn ranks(architecture: &str) -> HashMap<String, usize> {
    let mut lines = architecture.lines();
    let begins = lines.any(|line| line.trim() == "```rooms");
    lines
        .take_while(|line| begins && line.trim() != "```")
        .filter_map(|line| line.split_once(':'))
        .flat_map(|(_, modules)| modules.split(','))
        .enumerate()
        .map(|(rank, module)| (module.trim().to_owned(), rank))
        .collect()
}

/// The module at the root of `db/src` that a file belongs to, if the rule concerns it.
fn module(path: &str) -> Option<&str> {
    let inside = path.strip_prefix(ROOT)?;
    let mut parts = inside.trim_end_matches(".rs").split('/');
    if parts.clone().any(|part| UNRANKED.contains(&part)) {
        return None;
    }
    parts.next().filter(|module| *module != "lib")
}

fn findings(sources: &[Source], architecture: &str) -> Vec<Finding> {
    let ranks = ranks(architecture);
    let mut findings = Vec::new();
    let mut unlisted = |source: &Source, module: &str| {
        let what = format!("ARCHITECTURE.md gives {module} no room");
        findings.push(Finding::new(&source.path, 0, what));
    };
    let mut upward = Vec::new();
    for source in sources {
        let Some(from) = module(&source.path) else {
            continue;
        };
        let Some(rank) = ranks.get(from) else {
            unlisted(source, from);
            continue;
        };
        for (index, line) in source.code.lines().enumerate().take(source.tests_from) {
            for rest in line.split("crate::").skip(1) {
                let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let to = &rest[..end.unwrap_or(rest.len())];
                let is_lower = to == from || ranks.get(to).is_some_and(|other| other < rank);
                if !is_lower && !to.is_empty() && !UNRANKED.contains(&to) {
                    let what = format!("{from} names {to}, which does not stand below it");
                    upward.push(Finding::new(&source.path, index + 1, what));
                }
            }
        }
    }
    findings.append(&mut upward);
    findings
}

#[test]
fn modules_of_db_name_only_what_stands_below_them() {
    assert_none(&findings(sources(), file("ARCHITECTURE.md")));
}

#[test]
fn a_module_that_names_a_higher_one_is_found() {
    let architecture = "text\n```rooms\nwords: clock, error\ntop: turn, open\n```\nlow: open\n";
    let found = |path: &str, text: &str| -> Vec<(usize, String)> {
        findings(&[Source::new(path, text)], architecture)
            .into_iter()
            .map(|finding| (finding.line, finding.what))
            .collect()
    };
    let upward = |line, from: &str, to: &str| {
        (
            line,
            format!("{from} names {to}, which does not stand below it"),
        )
    };
    let turn = "crates/db/src/turn/gates.rs";
    assert_eq!(
        found(turn, "use crate::clock::Clock;\nuse crate::turn::Turn;"),
        []
    );
    assert_eq!(
        found(turn, "\nuse crate::open::x;"),
        [upward(2, "turn", "open")]
    );
    assert_eq!(
        found(turn, "fn f() -> crate::Turn {}"),
        [upward(1, "turn", "Turn")]
    );
    let clock = "crates/db/src/clock.rs";
    assert_eq!(
        found(clock, "use crate::error::E;"),
        [upward(1, "clock", "error")]
    );
    assert_eq!(
        found(
            clock,
            "// crate::open\n#[cfg(test)]\nmod tests {\n    use crate::open;\n}\n"
        ),
        []
    );
    assert_eq!(found("crates/db/src/turn/tests.rs", "use crate::open;"), []);
    assert_eq!(
        found("crates/db/src/new.rs", ""),
        [(0, "ARCHITECTURE.md gives new no room".to_owned())]
    );
}
