//! Rules about lines and files: headers, lengths, unfinished work, sleeps, foreign paths.

use crate::source::Source;
use crate::{Finding, assert_everywhere, assert_none, files, planted};

/// Longest line, in characters.
const COLUMNS_MAX: usize = 100;
/// Longest file, in lines before its tests.
const LINES_MAX: usize = 800;

/// Calls `find` on each line of a part; what it returns becomes a finding.
fn each_line(
    source: &Source,
    part: &str,
    mut find: impl FnMut(usize, &str) -> Option<String>,
) -> Vec<Finding> {
    let lines = part.lines().enumerate();
    let found = lines.filter_map(|(index, line)| Some((index, find(index, line)?)));
    found
        .map(|(index, what)| Finding::new(&source.path, index + 1, what))
        .collect()
}

fn header(source: &Source) -> Vec<Finding> {
    let first = source.text.lines().next().unwrap_or_default();
    let said = first
        .strip_prefix("//!")
        .is_some_and(|text| !text.trim().is_empty());
    if said {
        Vec::new()
    } else {
        vec![Finding::new(
            &source.path,
            1,
            "a module begins with a `//!` header",
        )]
    }
}

#[test]
fn every_module_begins_with_a_header() {
    assert_everywhere(header);
}

#[test]
fn canary_header() {
    assert_eq!(planted(header, "src/x.rs", "use std::fmt;\n"), [1]);
    assert_eq!(planted(header, "src/x.rs", "//!\n//! Late.\n"), [1]);
    assert_eq!(planted(header, "src/x.rs", "//! Adds.\n"), []);
}

fn unfinished(source: &Source) -> Vec<Finding> {
    const CODE: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];
    const COMMENTS: [&str; 3] = ["FIXME", "TODO", "XXX"];
    let say = |word: &str| format!("`{word}`: finish it or leave it out");
    let find = |words: &'static [&str]| {
        move |_: usize, line: &str| {
            words
                .iter()
                .find(|word| line.contains(**word))
                .map(|w| say(w))
        }
    };
    let mut findings = each_line(source, &source.code, find(&CODE));
    findings.extend(each_line(source, &source.comments, find(&COMMENTS)));
    findings
}

#[test]
fn nothing_is_left_unfinished() {
    assert_everywhere(unfinished);
}

#[test]
fn canary_unfinished() {
    let text = "//! x\nfn f() { todo!() }\n// FIXME: y\n#[test]\n#[ignore = \"z\"]\nfn g() {}\n";
    assert_eq!(planted(unfinished, "src/x.rs", text), [2, 5, 3]);
    assert_eq!(
        planted(
            unfinished,
            "src/x.rs",
            "//! x\nconst WORD: &str = \"todo!\";\n"
        ),
        []
    );
}

fn lengths(source: &Source) -> Vec<Finding> {
    let mut findings = each_line(source, &source.text, |_, line| {
        let columns = line.chars().count();
        // A link, or a row of a table, cannot be broken.
        let whole = line.contains("://") || line.starts_with("//! |");
        let long = columns > COLUMNS_MAX && !whole;
        long.then(|| format!("{columns} columns, at most {COLUMNS_MAX}"))
    });
    let lines = source.tests_from;
    if lines > LINES_MAX {
        let what = format!("{lines} lines before the tests, at most {LINES_MAX}: split the file");
        findings.push(Finding::new(&source.path, 0, what));
    }
    findings
}

#[test]
fn files_and_lines_are_short() {
    assert_everywhere(lengths);
}

#[test]
fn canary_lengths() {
    let lines = "fn f() {}\n".repeat(LINES_MAX + 1);
    assert_eq!(planted(lengths, "src/x.rs", &lines), [0]);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{lines}}}\n");
    assert_eq!(planted(lengths, "src/x.rs", &tests), []);
    assert_eq!(planted(lengths, "crates/x/tests/y.rs", &lines), []);
    let line = "é".repeat(COLUMNS_MAX);
    assert_eq!(
        planted(lengths, "src/x.rs", &format!("{line}\n{line}é\n")),
        [2]
    );
}

/// A test that sleeps to wait for a state is slow where it passes and fails where it is slow.
fn sleeps(source: &Source) -> Vec<Finding> {
    each_line(source, &source.code, |index, line| {
        let calls = line.match_indices("sleep(").any(|(at, _)| {
            let before = &line[..at];
            !before.ends_with(['.', '_']) && !before.ends_with("fn ")
        });
        let sleeps = index >= source.tests_from && (calls || line.contains("thread::sleep"));
        sleeps.then(|| "a test waits for an event, never for time".to_owned())
    })
}

#[test]
fn no_test_sleeps() {
    assert_everywhere(sleeps);
}

#[test]
fn canary_sleeps() {
    let text = "//! x\nfn f() { thread::sleep(PAUSE); }\n#[cfg(test)]\nmod tests {\n    \
        use std::thread::sleep;\n    fn g() { sleep(PAUSE); }\n    \
        fn h() { clock.sleep(PAUSE); }\n}\n";
    assert_eq!(planted(sleeps, "src/x.rs", text), [5, 6]);
    assert_eq!(planted(sleeps, "crates/x/tests/y.rs", text), [2, 5, 6]);
}

/// Folders below which people keep their own files: a path there works on one machine only.
const PRIVATE_FOLDERS: [&str; 5] = ["home", "root", "Users", "work", "tmp"];

fn private_paths(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folders = PRIVATE_FOLDERS.map(|folder| format!("/{folder}/"));
    for (index, line) in text.lines().enumerate() {
        for folder in &folders {
            let absolute = line.match_indices(folder.as_str()).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                // Inside a longer path or a link it is somebody else's folder.
                !before.is_some_and(|before| before.is_alphanumeric() || "._-/~}>".contains(before))
            });
            if absolute {
                let what = format!("`{folder}…` is a path on one machine");
                findings.push(Finding::new(path, index + 1, what));
            }
        }
    }
    findings
}

#[test]
fn no_file_names_a_private_path() {
    let found = files()
        .iter()
        .flat_map(|(path, text)| private_paths(path, text));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn canary_private_paths() {
    let plant = |folder: &str| format!("one\nsee `/{folder}/notes.md`\n");
    for folder in PRIVATE_FOLDERS {
        assert_eq!(private_paths("README.md", &plant(folder)).len(), 1);
    }
    assert_eq!(
        private_paths("README.md", "https://example.org/work/x src/tmp/y"),
        []
    );
}
