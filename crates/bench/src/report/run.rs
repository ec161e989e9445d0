//! Measures the cells of questions in turns.

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::model::{Cell, Job, Peer, Question, Sizes};
use super::progress::Progress;
use super::samples::Samples;
use crate::load;
use crate::servers::{Server, bound_to_this_process};

/// Core of the servers; the client has the others, where there are others.
const SERVER_CORE: usize = 0;
const SERVER_CPU: &str = "0";

/// Measurements that a question takes.
pub(super) fn steps(question: &Question, sizes: &Sizes) -> usize {
    question.cells.len() * sizes.repeats
}

/// Round by round, every cell of a question. A cell that cannot be measured is noted and not tried
/// again.
pub(super) fn measure(
    question: &Question,
    sizes: &Sizes,
    pando: &Path,
    samples: &mut Samples,
    progress: &mut Progress,
) {
    let mut broken = Vec::new();
    for round in 0..sizes.repeats {
        for (index, cell) in question.cells.iter().enumerate() {
            progress.step(&format!("{} {} {}", question.id, cell.series, cell.place));
            if broken.contains(&index) {
                continue;
            }
            match figures(cell, pando) {
                Ok(figures) => {
                    for (figure, value) in figures {
                        let name = [question.id, &figure, &cell.series, &cell.place];
                        samples.put(name, round, value);
                    }
                }
                Err(reason) => {
                    broken.push(index);
                    let text = format!("{} at {}: {reason}", cell.series, cell.place);
                    samples.note(question.id, &text);
                }
            }
        }
    }
}

/// What a cell measures once, or why it cannot.
fn figures(cell: &Cell, pando: &Path) -> Result<Vec<(String, f64)>, String> {
    match &cell.job {
        Job::Process(arguments) => process(arguments),
        Job::Wire { peer, options } => wire(*peer, options, pando),
    }
}

fn process(arguments: &[String]) -> Result<Vec<(String, f64)>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = bound_to_this_process(&program.display().to_string())
        .arg("cell")
        .args(arguments)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.trim().trim_start_matches("pando-bench: ").to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect();
    if figures.is_empty() {
        return Err("no figures".into());
    }
    Ok(figures)
}

fn wire(peer: Peer, options: &[String], pando: &Path) -> Result<Vec<(String, f64)>, String> {
    let server = match peer {
        Peer::Pando => Server::pando(pando, SERVER_CPU, &[]),
        Peer::Redis => Server::redis(SERVER_CPU),
        Peer::Memcached => Server::memcached(SERVER_CPU),
    };
    let server = server.map_err(|error| error.to_string())?;
    let before = leave_the_server_alone();
    let figures = load::figures_of(server.port, options).map_err(|error| error.to_string());
    if let Some(before) = before {
        // What is measured next may use every core; where it may not, it runs on those left.
        let _ = sched_setaffinity(None, &before);
    }
    figures
}

/// Takes this thread, and those that it starts, off the servers' core where there is another; the
/// cores as they were.
fn leave_the_server_alone() -> Option<CpuSet> {
    let before = sched_getaffinity(None).ok()?;
    let mut others = before;
    others.unset(SERVER_CORE);
    if others.count() == 0 {
        return None;
    }
    sched_setaffinity(None, &others).ok()?;
    Some(before)
}
