//! The house style, checked over the whole repository.
//!
//! | file | rules |
//! |---|---|
//! | `text.rs` | what a line or a file may hold: headers, lengths, unfinished work, sleeps, paths |
//! | `crates.rs` | what a crate's root holds; unsafe code, and atomics beside the shim, only in the |
//! | | crates named there |
//! | `invariants.rs` | every invariant that is cited is defined, once |
//! | `edges.rs` | the dependencies between our crates are those that ARCHITECTURE.md lists |
//! | `rooms.rs` | the modules of `db` name only those that stand below them |
//!
//! Every rule is a function over text, and has a canary beside it: a planted violation that the
//! function must find.

mod crates;
mod edges;
mod invariants;
mod rooms;
mod source;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use source::Source;

/// Folders that hold nothing that we wrote.
const FOREIGN_FOLDERS: [&str; 6] = [
    ".git",
    "target",
    "node_modules",
    ".venv",
    "corpus",
    "__pycache__",
];

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// From 1; 0 speaks of the whole file.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository")
}

/// Every file of ours that is text, with its path from the root, in order; read once.
fn files() -> &'static [(String, String)] {
    static FILES: OnceLock<Vec<(String, String)>> = OnceLock::new();
    FILES.get_or_init(read_files)
}

fn read_files() -> Vec<(String, String)> {
    let root = root();
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry of the repository").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if !FOREIGN_FOLDERS.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if name != ".git"
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                let path = path.strip_prefix(&root).expect("it was found there");
                files.push((path.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    files.sort();
    files
}

/// The file at this path from the root.
fn file(path: &str) -> &'static str {
    let found = files().iter().find(|(name, _)| name == path);
    &found.unwrap_or_else(|| panic!("{path} is missing")).1
}

/// Every Rust file, taken apart once.
fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let rust = |path: &str| Path::new(path).extension().is_some_and(|kind| kind == "rs");
        let files = files().iter().filter(|(path, _)| rust(path));
        let sources: Vec<_> = files.map(|(path, text)| Source::new(path, text)).collect();
        let found = sources.iter().any(|source| source.path == file!());
        assert!(found, "the repository was not found");
        sources
    })
}

#[track_caller]
fn assert_none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        list.is_empty(),
        "{} violations:\n{}",
        list.len(),
        list.join("\n")
    );
}

/// Holds `rule` against every Rust file.
#[track_caller]
fn assert_everywhere(rule: fn(&Source) -> Vec<Finding>) {
    assert_none(&sources().iter().flat_map(rule).collect::<Vec<_>>());
}

/// The lines of a planted file that `rule` objects to.
fn planted(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
    rule(&Source::new(path, text))
        .iter()
        .map(|finding| finding.line)
        .collect()
}
