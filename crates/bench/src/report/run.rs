//! Measures the cells of questions in turns.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::model::{Cell, Job, Peer, Question, Sizes};
use super::samples::Samples;
use crate::load;
use crate::progress::Progress;
use crate::rounds::{self, Figures};
use crate::servers::Server;

/// Core of the servers; the client has the others, where there are others.
const SERVER_CORE: usize = 0;
const SERVER_CPU: &str = "0";

/// The figure of a server's memory after a measurement.
pub(super) const RESIDENT: &str = "resident MB";

/// What the cells need beside this tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'p> {
    /// Our server.
    pub(super) pando: &'p Path,
    /// This tool with trees for one thread each; without it their cells are left out.
    pub(super) single_core: Option<&'p Path>,
}

impl Programs<'_> {
    fn has(self, cell: &Cell) -> bool {
        self.single_core.is_some() || !matches!(cell.job, Job::SingleCore(_))
    }
}

/// Measurements that a question takes.
pub(super) fn steps(question: &Question, sizes: &Sizes, programs: Programs<'_>) -> usize {
    let cells = question.cells.iter().filter(|cell| programs.has(cell));
    cells.count() * sizes.repeats
}

/// Round by round, every cell of a question. A cell that cannot be measured is noted and not tried
/// again.
pub(super) fn measure(
    question: &Question,
    sizes: &Sizes,
    programs: Programs<'_>,
    samples: &mut Samples,
    progress: &mut Progress,
) {
    let start = Instant::now();
    let mut broken = Vec::new();
    for round in 0..sizes.repeats {
        for (index, cell) in question.cells.iter().enumerate() {
            if !programs.has(cell) {
                continue;
            }
            progress.step(&format!("{} {} {}", question.id, cell.series, cell.place));
            if broken.contains(&index) {
                continue;
            }
            match figures(cell, programs) {
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
    let seconds = start.elapsed().as_secs_f64();
    samples.seconds.insert(question.id.into(), seconds);
}

/// What a cell measures once, or why it cannot.
fn figures(cell: &Cell, programs: Programs<'_>) -> Result<Figures, String> {
    match &cell.job {
        Job::Process(arguments) => rounds::measure(arguments).map_err(|error| error.to_string()),
        Job::SingleCore(arguments) => match programs.single_core {
            Some(program) => {
                rounds::measure_with(program, arguments).map_err(|error| error.to_string())
            }
            None => Err("needs --single-core".into()),
        },
        Job::Wire { peer, options } => wire(*peer, options, programs.pando),
    }
}

/// A new directory for a server's log, removed with what is in it when dropped.
struct LogDirectory(PathBuf);

impl LogDirectory {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("pando-bench-log-{}", std::process::id()));
        let made = std::fs::create_dir(&path);
        made.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for LogDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wire(peer: Peer, options: &[String], pando: &Path) -> Result<Figures, String> {
    let logged = matches!(peer, Peer::PandoLogged | Peer::RedisLogged);
    // Dropped after the server.
    let directory = logged.then(LogDirectory::new).transpose()?;
    let path = directory
        .as_ref()
        .map(LogDirectory::path)
        .unwrap_or_default();
    let server = match peer {
        Peer::Pando => Server::pando(pando, SERVER_CPU, &[]),
        Peer::PandoLogged => {
            let log = ["--durability", "interval", "--data-dir", &path];
            Server::pando(pando, SERVER_CPU, &log.map(String::from))
        }
        Peer::PandoMemcached => Server::pando_memcached(pando, SERVER_CPU),
        Peer::Redis => Server::redis(SERVER_CPU),
        Peer::RedisLogged => {
            let log = [
                "--appendonly",
                "yes",
                "--appendfsync",
                "everysec",
                "--dir",
                &path,
            ];
            Server::redis_with(SERVER_CPU, &log)
        }
        Peer::Memcached => Server::memcached(SERVER_CPU),
    };
    let server = server.map_err(|error| error.to_string())?;
    let before = leave_the_server_alone();
    let figures = load::figures_of(server.port, options).map_err(|error| error.to_string());
    let figures = figures.map(|mut figures| {
        if let Ok(bytes) = server.resident_bytes() {
            figures.push((RESIDENT.into(), bytes as f64 / 1e6));
        }
        figures
    });
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
