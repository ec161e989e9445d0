//! Rules about invariants.
//!
//! A header defines each once, with a code and, unless it is the file's own, a name:
//! `- **V1 version-draw** …`. Whatever cites one cites one that is defined; a comment of another
//! file adds the name, so that a reader need not look it up. A prefix belongs to one module, which
//! docs/INVARIANTS.md names in its table.
//!
//! A citation is one or two capitals and a number, as a word of its own, in a comment; in a string
//! it stands in parentheses, leads or is all, since strings are full of other codes.

use std::collections::BTreeMap;

use crate::source::Source;
use crate::{Finding, assert_none, file, sources};

/// Words that look like citations and are none.
const OTHER_CODES: [&str; 0] = [];

/// The words of a line that have the form of an invariant's name, with their offsets.
fn names(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + line[rest..].find(is_word)?;
        let len = line[start..].find(|character| !is_word(character));
        rest = len.map_or(line.len(), |len| start + len);
        Some((start, &line[start..rest]))
    })
    .filter(|(_, word)| is_name(word))
}

/// One or two capitals, then a number from 1 to 99.
fn is_name(word: &str) -> bool {
    let letters = word.bytes().take_while(u8::is_ascii_uppercase).count();
    let digits = &word[letters..];
    (1..=2).contains(&letters)
        && (1..=2).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0')
        && !OTHER_CODES.contains(&word)
}

/// The code that a header line defines, and its name.
fn definition(line: &str) -> Option<(&str, Option<&str>)> {
    let rest = line
        .trim_start()
        .strip_prefix("//!")?
        .trim_start()
        .strip_prefix("- **")?;
    let (bold, _) = rest.split_once("**")?;
    let (code, name) = match bold.split_once(' ') {
        Some((code, name)) => (code, Some(name)),
        None => (bold, None),
    };
    is_name(code).then_some((code, name))
}

/// Whether a string speaks of an invariant where `name` stands, at byte `at` of its line. `code` is
/// the same line's code, which has the quotes.
fn is_cited_in_string(line: &str, code: &str, at: usize, name: &str) -> bool {
    let (before, after) = (&line[..at], &line[at + name.len()..]);
    // Parts share columns, not bytes.
    let columns: Vec<char> = code.chars().collect();
    let column = before.chars().count();
    let quote = |column: usize| columns.get(column) == Some(&'"');
    let leads = column > 0 && quote(column - 1);
    (before.ends_with('(') && after.starts_with(')'))
        || (leads && (after.starts_with(':') || quote(column + name.len())))
}

fn findings(sources: &[Source]) -> Vec<Finding> {
    let mut defined = BTreeMap::new();
    let mut findings = Vec::new();
    for (name, slug, path, line) in definitions(sources) {
        if let Some((first, _)) = defined.insert(name, (path, slug)) {
            findings.push(Finding::new(
                path,
                line,
                format!("{name} is defined in {first} already"),
            ));
        }
    }
    for source in sources {
        let (comments, strings) = (source.comments.lines(), source.strings.lines());
        let lines = comments.zip(strings).zip(source.code.lines());
        for (index, ((comment, string), code)) in lines.enumerate() {
            let in_strings =
                names(string).filter(|(at, name)| is_cited_in_string(string, code, *at, name));
            for (_, name) in names(comment).chain(in_strings) {
                if !defined.contains_key(name) {
                    let what = format!("{name} is cited, and no header defines it");
                    findings.push(Finding::new(&source.path, index + 1, what));
                }
            }
            for (at, name) in names(comment) {
                let what = match defined.get(name) {
                    Some((path, Some(slug))) if *path != source.path => {
                        let follows = comment[at + name.len()..].strip_prefix(' ');
                        if follows.is_some_and(|rest| rest.starts_with(slug)) {
                            continue;
                        }
                        format!("{name} of another file is cited without its name, {slug}")
                    }
                    Some((path, None)) if *path != source.path => {
                        format!("{name} has no name, and is {path}'s own")
                    }
                    _ => continue,
                };
                findings.push(Finding::new(&source.path, index + 1, what));
            }
        }
    }
    findings
}

/// Every definition: code, name, path, line from 1.
fn definitions(sources: &[Source]) -> impl Iterator<Item = (&str, Option<&str>, &str, usize)> {
    sources.iter().flat_map(|source| {
        let lines = source.comments.lines().enumerate();
        lines.filter_map(|(index, line)| {
            let (code, name) = definition(line)?;
            Some((code, name, &*source.path, index + 1))
        })
    })
}

/// Holds the table of prefixes in docs/INVARIANTS.md (rows like
/// ``| V | `engine/src/version.rs` | …``) against the definitions.
fn unlisted_prefixes(sources: &[Source], table: &str) -> Vec<Finding> {
    let mut listed = BTreeMap::new();
    for line in table.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        if let (Some(prefix), Some(module)) = (cells.next(), cells.next())
            && is_name(&format!("{prefix}1"))
        {
            listed.insert(prefix, format!("crates/{}", module.trim_matches('`')));
        }
    }
    let mut findings = Vec::new();
    for (name, _, path, line) in definitions(sources) {
        let prefix = name.trim_end_matches(|character: char| character.is_ascii_digit());
        let what = match listed.get(prefix) {
            Some(module) if module == path => continue,
            Some(module) => format!("{name}: docs/INVARIANTS.md gives the prefix to {module}"),
            None => format!("{name}: docs/INVARIANTS.md does not list the prefix"),
        };
        findings.push(Finding::new(path, line, what));
    }
    findings
}

#[test]
fn every_cited_invariant_is_defined_once() {
    assert_none(&findings(sources()));
}

#[test]
fn every_prefix_is_listed() {
    assert_none(&unlisted_prefixes(sources(), file("docs/INVARIANTS.md")));
}

#[test]
fn canary_unlisted_prefixes() {
    let header = "//! Nodes.\n//!\n//! - **N1** A node stands.\n".replace('N', "QZ");
    let sources = [Source::new("crates/x/src/y.rs", &header)];
    let count = |table: &str| unlisted_prefixes(&sources, table).len();
    assert_eq!(
        count("| prefix | module |\n|---|---|\n| QZ | `x/src/y.rs` | nodes |\n"),
        0
    );
    assert_eq!(
        count("| prefix | module |\n|---|---|\n| QZ | `x/src/z.rs` | nodes |\n"),
        1
    );
    assert_eq!(count("| prefix | module |\n"), 1);
}

#[test]
fn canary_invariants() {
    let lines = |files: &[(&str, &str)]| {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, text)| Source::new(path, text))
            .collect();
        let found = findings(&sources);
        found
            .iter()
            .map(|finding| (finding.path.clone(), finding.line))
            .collect::<Vec<_>>()
    };
    // Put together here: a citation in this file would be held against the repository.
    let name = ["QZ", "3"].concat();
    let named = |text: &str| text.replace('N', &name);
    let header = named("//! Nodes.\n//!\n//! - **N node-stands** A node stands.\n");
    let citing = named(concat!(
        "//! x\n",
        "// SAFETY: N node-stands. And RESP2, A1b, x86.\n",
        "fn f() { g(\"é\", \"N: no\", \"x (N)\", \"N\", \"x N\") }\n",
    ));
    let misspelt = named("//! x\n/// Stays put (`N4`).\n");
    let at = |path: &str, line: usize| (path.to_owned(), line);
    assert_eq!(lines(&[("a.rs", &header), ("b.rs", &citing)]), []);
    let cited = [at("b.rs", 2), at("b.rs", 3), at("b.rs", 3), at("b.rs", 3)];
    assert_eq!(lines(&[("b.rs", &citing)]), cited);
    assert_eq!(
        lines(&[("a.rs", &header), ("b.rs", &header)]),
        [at("b.rs", 3)]
    );
    assert_eq!(
        lines(&[("a.rs", &header), ("b.rs", &misspelt)]),
        [at("b.rs", 2)]
    );
    for text in ["//! N", "//! N node-falls", "//! N, node-stands"] {
        let unnamed = named(text);
        assert_eq!(
            lines(&[("a.rs", &header), ("b.rs", &unnamed)]),
            [at("b.rs", 1)]
        );
    }
    let own = named("//! - **N** A node stands.\n// SAFETY: N.\n");
    assert_eq!(lines(&[("a.rs", &own)]), []);
    assert_eq!(
        lines(&[("a.rs", &own), ("b.rs", &named("//! x\n//! N again\n"))]),
        [at("b.rs", 2)]
    );
}
