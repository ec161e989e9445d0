//! Rules about crates: what the root of a library holds, and which crates may be unsafe.

use crate::source::Source;
use crate::{Finding, assert_everywhere, planted};

/// The crates whose code may be unsafe: synchronisation, pools, the kernel, the engines that build
/// their nodes on these, and the measurement of foreign code.
const UNSAFE_CRATES: [&str; 10] = [
    "sync", "memory", "io", "pmem", "block", "chassis", "masstree", "mercury", "cdds", "peers",
];

/// The crate that a path lies in: `crates/<name>/…`.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

fn forbids_unsafe(source: &Source) -> Vec<Finding> {
    let trusted = crate_of(&source.path).is_some_and(|name| UNSAFE_CRATES.contains(&name));
    if trusted || !source.is_crate_root() || source.code.contains("#![forbid(unsafe_code)]") {
        return Vec::new();
    }
    vec![Finding::new(
        &source.path,
        0,
        "a crate without `#![forbid(unsafe_code)]`",
    )]
}

#[test]
fn only_the_named_crates_are_unsafe() {
    assert_everywhere(forbids_unsafe);
}

#[test]
fn canary_forbids_unsafe() {
    let commented = "//! x\n// #![forbid(unsafe_code)]\n";
    assert_eq!(
        planted(forbids_unsafe, "crates/db/src/lib.rs", commented),
        [0]
    );
    assert_eq!(
        planted(forbids_unsafe, "crates/server/src/main.rs", "//! x\n"),
        [0]
    );
    assert_eq!(
        planted(forbids_unsafe, "crates/sync/src/lib.rs", commented),
        []
    );
    let forbidding = "//! x\n#![forbid(unsafe_code)]\n";
    assert_eq!(
        planted(forbids_unsafe, "crates/db/src/lib.rs", forbidding),
        []
    );
}

/// The crates with models, and those below them whose code runs in these: what models check is what
/// runs, so their atomics come from one place.
const MODELLED_CRATES: [&str; 11] = [
    "sync",
    "engine",
    "block",
    "chassis",
    "masstree",
    "mercury",
    "durability",
    "pmem",
    "cdds",
    "memnode",
    "minuet",
];

/// Where that is.
const SHIM: &str = "crates/sync/src/shim.rs";

fn atomics_of_the_shim(source: &Source) -> Vec<Finding> {
    /// Models count their own executions.
    const MODELS: [&str; 2] = ["models.rs", "schedules.rs"];
    let modelled = crate_of(&source.path).is_some_and(|name| MODELLED_CRATES.contains(&name));
    let own = source.path == SHIM || MODELS.iter().any(|name| source.path.ends_with(name));
    if !modelled || own || !source.path.contains("/src/") {
        return Vec::new();
    }
    let lines = source.code.lines().take(source.tests_from).enumerate();
    lines
        .filter(|(_, line)| line.contains("sync::atomic") || line.contains("loom::sync"))
        .map(|(index, _)| {
            let what = "atomics come from `pando_sync::shim`, so that models see them";
            Finding::new(&source.path, index + 1, what)
        })
        .collect()
}

#[test]
fn modelled_crates_take_their_atomics_from_the_shim() {
    assert_everywhere(atomics_of_the_shim);
}

#[test]
fn canary_atomics_of_the_shim() {
    let import = "use std::sync::atomic::AtomicU64;\n";
    let text = &format!("//! x\n{import}#[cfg(test)]\nmod tests {{\n{import}}}\n");
    let found = |path| planted(atomics_of_the_shim, path, text);
    assert_eq!(found("crates/mercury/src/x.rs"), [2]);
    assert_eq!(found("crates/mercury/src/tests/x.rs"), []);
    assert_eq!(found("crates/mercury/src/x/models.rs"), []);
    assert_eq!(found("crates/server/src/x.rs"), []);
    assert_eq!(found(SHIM), []);
}

/// A library's root is its table of contents: attributes, modules and what they export.
fn root_without_logic(source: &Source) -> Vec<Finding> {
    const LOGIC: [&str; 10] = [
        "fn",
        "impl",
        "struct",
        "enum",
        "trait",
        "union",
        "static",
        "const",
        "let",
        "macro_rules!",
    ];
    if !source.is_library_root() {
        return Vec::new();
    }
    let lines = source.code.lines().enumerate().take(source.tests_from);
    let logic = lines.filter(|(_, line)| line.split_whitespace().any(|word| LOGIC.contains(&word)));
    logic
        .map(|(index, _)| Finding::new(&source.path, index + 1, "lib.rs holds logic: move it"))
        .collect()
}

#[test]
fn library_roots_hold_no_logic() {
    assert_everywhere(root_without_logic);
}

#[test]
fn canary_root_without_logic() {
    let text = "//! fn\n\nmod x;\npub use x::{Y, z};\n\npub const fn f() {}\n";
    assert_eq!(
        planted(root_without_logic, "crates/db/src/lib.rs", text),
        [6]
    );
    assert_eq!(planted(root_without_logic, "crates/db/src/x.rs", text), []);
}
