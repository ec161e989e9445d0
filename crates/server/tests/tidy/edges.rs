//! Rules about dependencies: the edges between our crates are those that ARCHITECTURE.md lists.
//!
//! The list is the fenced block named `edges` there; a line reads `db → engine, protocol`, and each
//! package has one. Packages are named as in their manifests, without `pando-`. An edge is a
//! dependency of any kind, those of tests and build scripts included.

use std::collections::BTreeSet;

use crate::{Finding, assert_none, file, files};

const PREFIX: &str = "pando-";

type Edge = (String, String);

/// What a manifest, or the list, says: packages and edges, with their lines.
#[derive(Debug, Default)]
struct Graph {
    packages: Vec<(String, usize)>,
    edges: Vec<(Edge, usize)>,
}

/// Reads a manifest.
fn declared(manifest: &str) -> Graph {
    let mut graph = Graph::default();
    let (mut section, mut package) = (String::new(), String::new());
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        let header = line
            .strip_prefix('[')
            .map(|name| name.trim_end_matches(']'));
        if let Some(header) = header {
            header.clone_into(&mut section);
        }
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if section == "package" && key == "name" {
            let value = line.split('"').nth(1).unwrap_or_default();
            value.trim_start_matches(PREFIX).clone_into(&mut package);
            graph.packages.push((package.clone(), index + 1));
        }
        let dependency = match header {
            // `[dependencies.pando-x]` is an edge by itself.
            Some(header) => header.split_once("dependencies.").map(|(_, name)| name),
            None => section.ends_with("dependencies").then_some(key),
        };
        if let Some(name) = dependency.and_then(|name| name.strip_prefix(PREFIX)) {
            graph
                .edges
                .push(((package.clone(), name.to_owned()), index + 1));
        }
    }
    graph
}

/// Reads the list of ARCHITECTURE.md.
fn listed(text: &str) -> Graph {
    let mut graph = Graph::default();
    let mut lines = text.lines().enumerate();
    let begins = lines.any(|(_, line)| line.trim() == "```edges");
    for (index, line) in lines.take_while(|(_, line)| begins && line.trim() != "```") {
        let Some((from, to)) = line.split_once('→') else {
            continue;
        };
        graph.packages.push((from.trim().to_owned(), index + 1));
        for to in to.split(',').map(str::trim).filter(|to| !to.is_empty()) {
            graph
                .edges
                .push(((from.trim().to_owned(), to.to_owned()), index + 1));
        }
    }
    graph
}

fn findings(manifests: &[(&str, &str)], architecture: &str) -> Vec<Finding> {
    let listed = listed(architecture);
    let listed_packages: BTreeSet<_> = listed.packages.iter().map(|(name, _)| name).collect();
    let listed_edges: BTreeSet<_> = listed.edges.iter().map(|(edge, _)| edge).collect();
    let mut findings = Vec::new();
    let (mut packages, mut edges) = (BTreeSet::new(), BTreeSet::new());
    for (path, manifest) in manifests {
        let graph = declared(manifest);
        for (name, line) in graph.packages {
            if !listed_packages.contains(&name) {
                let what = format!("ARCHITECTURE.md does not list {name}");
                findings.push(Finding::new(path, line, what));
            }
            packages.insert(name);
        }
        for (edge, line) in graph.edges {
            if !listed_edges.contains(&edge) {
                let what = format!("ARCHITECTURE.md does not list {} → {}", edge.0, edge.1);
                findings.push(Finding::new(path, line, what));
            }
            edges.insert(edge);
        }
    }
    for (name, line) in listed
        .packages
        .iter()
        .filter(|(name, _)| !packages.contains(name))
    {
        let what = format!("there is no package {name}");
        findings.push(Finding::new("ARCHITECTURE.md", *line, what));
    }
    for (edge, line) in listed
        .edges
        .iter()
        .filter(|(edge, _)| !edges.contains(edge))
    {
        let what = format!("there is no dependency {} → {}", edge.0, edge.1);
        findings.push(Finding::new("ARCHITECTURE.md", *line, what));
    }
    findings
}

#[test]
fn the_dependencies_are_those_of_the_architecture() {
    let architecture = file("ARCHITECTURE.md");
    let manifests: Vec<_> = files()
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    assert!(
        !listed(architecture).packages.is_empty(),
        "the block `edges` was not found"
    );
    assert_none(&findings(&manifests, architecture));
}

#[test]
fn canary_edges() {
    let manifest = "[package]\nname = \"pando-db\"\n\n[dependencies]\n\
        pando-engine.workspace = true\n\
        thiserror.workspace = true\n[dev-dependencies]\npando-sync = { path = \"../sync\" }\n\
        [target.\"cfg(x)\".dependencies.pando-io]\npath = \"../io\"\n";
    let architecture = |lines: &str| format!("db → memory\n```edges\n{lines}```\ndb → cdds\n");
    let lines = |text: &str| {
        let found = findings(&[("db/Cargo.toml", manifest)], &architecture(text));
        found
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect::<Vec<_>>()
    };
    let at = |path: &str, line: usize| (path.to_owned(), line);
    assert_eq!(lines("db → engine, sync, io\n"), []);
    assert_eq!(lines("db → engine, io\n"), [at("db/Cargo.toml", 8)]);
    assert_eq!(lines("db → engine, sync\n"), [at("db/Cargo.toml", 9)]);
    assert_eq!(
        lines("db → engine, sync\ndb → io, memory\n"),
        [at("ARCHITECTURE.md", 4)]
    );
    assert_eq!(
        lines("db → engine, sync, io\nio →\n"),
        [at("ARCHITECTURE.md", 4)]
    );
    let unlisted = lines("");
    assert_eq!(unlisted.first(), Some(&at("db/Cargo.toml", 2)));
    assert_eq!(unlisted.len(), 4);
}
