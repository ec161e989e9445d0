//! `pando-bench report` at its smallest: every section shows something, the page is whole.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_pando-bench");

/// Elements without an end.
const VOID: [&str; 3] = ["meta", "br", "!doctype"];

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pando-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn report(out: &Path, more: &[&str]) -> Output {
    let sizes = [
        "--quick",
        "--keys",
        "400",
        "--rows",
        "100",
        "--wire-ms",
        "20",
    ];
    Command::new(BENCH)
        .args(["report", "--repeats", "1", "--pando", "no-such-binary"])
        .args(sizes)
        .arg("--out")
        .arg(out)
        .args(more)
        .output()
        .unwrap()
}

/// Checks that elements nest and end; returns the content of every section with its id.
fn sections(html: &str) -> Vec<(String, String)> {
    let mut open: Vec<&str> = Vec::new();
    let mut sections = Vec::new();
    let mut start = 0;
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        let position = html.len() - rest.len() + end + 1;
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "before {}",
                &rest[..rest.len().min(80)]
            );
            if name == "section" {
                sections.push((String::new(), html[start..position].to_owned()));
            }
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap();
        if name == "section" {
            start = position - tag.len() - 2;
        }
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} do not end");
    for (id, content) in &mut sections {
        let after = content.split("id=\"").nth(1).unwrap();
        after.split('"').next().unwrap().clone_into(id);
    }
    sections
}

#[test]
fn every_section_shows_something_and_the_page_is_whole() {
    let directory = Directory::new("report");
    let output = report(&directory.0, &[]);
    assert!(output.status.success(), "{output:?}");
    let html = std::fs::read_to_string(directory.0.join("report.html")).unwrap();
    let sections = sections(&html);
    let listed = Command::new(BENCH)
        .args(["report", "--list"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(
        sections.len(),
        listed.lines().count() + 1,
        "a section per question"
    );
    for (id, content) in &sections {
        for wrong in ["NaN", "inf", "points=\"\""] {
            assert!(!content.contains(wrong), "{wrong} in {id}");
        }
        let over_wire = ["redis", "figure-13", "ycsb-wire", "latency"].contains(&id.as_str());
        if over_wire {
            // There is no server of ours here; the page has to say so.
            assert!(content.contains("no-such-binary"), "{id}");
        } else if id != "summary" {
            assert!(content.contains("<figure>"), "{id} has no plot");
            assert!(!content.contains("Not measured"), "{id}: {content}");
            assert!(
                content.contains("class=\"bar") || content.contains("class=\"dot"),
                "{id}"
            );
            assert!(content.contains("class=\"unit\""), "{id} has no unit");
        }
    }
    assert!(
        !html.contains("<script") && !html.contains("src="),
        "nothing is loaded"
    );
    let json = std::fs::read_to_string(directory.0.join("report.json")).unwrap();
    assert!(json.starts_with("{\"machine\":{\"processor\":"));
    assert!(html.contains("<dt>measured in</dt>"), "the whole time");
    assert!(html.contains(" Measured in "), "each section's time");
    assert!(html.contains("papaya 0."), "versions of the crates");
    let markdown = std::fs::read_to_string(directory.0.join("report.md")).unwrap();
    for wrong in ["NaN", "inf |", "inf)"] {
        assert!(!markdown.contains(wrong), "{wrong} in {markdown}");
    }
    assert!(markdown.contains("| `decimal` |"), "{markdown}");
    documents_are_refreshed(&directory.0);
    assert_eq!(json.matches('{').count(), json.matches('}').count());
}

/// Without measuring again: the tables find their marked places, and only those change.
fn documents_are_refreshed(out: &Path) {
    let root = out.join("root");
    std::fs::create_dir_all(root.join("docs")).unwrap();
    let place =
        |name| format!("before\n<!-- pando-bench report: {name} -->\n<!-- end -->\nafter\n");
    std::fs::write(root.join("README.md"), place("redis")).unwrap();
    let document = root.join("docs/BENCHMARKS.md");
    std::fs::write(&document, place("summary")).unwrap();
    let samples = std::fs::read(out.join("samples.tsv")).unwrap();
    let output = report(out, &["--render", "--docs", root.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(out.join("samples.tsv")).unwrap(), samples);
    let text = std::fs::read_to_string(document).unwrap();
    assert!(text.starts_with("before\n") && text.ends_with("-->\nafter\n"));
    assert!(text.contains("| `mercury-6` |"), "{text}");
    // Our server was not there: nothing to say about it.
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert_eq!(readme, place("redis"));
}

#[test]
fn what_was_measured_before_is_kept() {
    let directory = Directory::new("keep");
    let first = report(&directory.0, &["--only", "figure-11"]);
    assert!(first.status.success(), "{first:?}");
    let second = report(&directory.0, &["--only", "popularity", "--keep"]);
    assert!(second.status.success(), "{second:?}");
    let samples = std::fs::read_to_string(directory.0.join("samples.tsv")).unwrap();
    assert!(samples.contains("figure-11\t") && samples.contains("popularity\t"));
}

#[test]
fn a_question_that_is_not_there_is_named() {
    let directory = Directory::new("no-question");
    let output = report(&directory.0, &["--only", "figure-99"]);
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("no question figure-99; there are decimal,"),
        "{error}"
    );
}
