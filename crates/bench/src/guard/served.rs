//! GET and SET over the wire: a server of each build on loopback, one worker, no log.
//!
//! Instructions of one request are the difference of two runs of different lengths, divided by the
//! requests that the longer one has more: start, filling and end cancel out. What a server does by
//! the clock stays in the difference, so the least of several runs counts.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::builds::Build;
use super::{Cost, GuardError, collected};
use crate::beside::{self, BesideError, Cell, Kind};
use crate::rounds::Figures;
use crate::servers::{Server, ServerError};

/// Keys in the server.
const KEYS: u64 = 20_000;
/// Blocks of the shorter and of the longer run under callgrind.
const COUNTED: [u64; 2] = [200, 4200];
/// How often each of them is run.
const RUNS: usize = 3;
/// Seconds of a timed run.
const SECONDS: f64 = 0.5;
const SERVER_CPU: &str = "0";
const CLIENT_CPU: &str = "1";

/// A command on an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) engine: &'static str,
    pub(super) kind: Kind,
}

impl Served {
    fn cell(self, connections: usize) -> Cell {
        Cell {
            name: "the guard's cell",
            kind: self.kind,
            depth: 32,
            connections,
        }
    }

    /// Rates of a fresh server, by the clock and by its processor time.
    pub(super) fn timed(self, build: &Build) -> Result<Figures, ServedError> {
        beside::pin(CLIENT_CPU)?;
        let server = Server::pando_of(&build.server, SERVER_CPU, "--port", self.engine, 1)?;
        beside::fill(KEYS, &server, Kind::RespSet)?;
        let cell = self.cell(16);
        let sample = beside::measure(SECONDS, &server, &cell, &cell.blocks(KEYS))?;
        Ok(vec![
            ("million requests/s".into(), sample.rate / 1e6),
            ("million requests per CPU second".into(), 1.0 / sample.cpu),
        ])
    }

    /// Instructions that the server spends on a request.
    pub(super) fn instructions(self, build: &Build, scratch: &Path) -> Result<Cost, ServedError> {
        let mut least = [u64::MAX; 2];
        for _ in 0..RUNS {
            for (blocks, least) in COUNTED.into_iter().zip(&mut least) {
                *least = self.counted(build, scratch, blocks)?.min(*least);
            }
        }
        let requests = (COUNTED[1] - COUNTED[0]) * self.cell(1).depth as u64;
        Ok(Cost {
            instructions: least[1].saturating_sub(least[0]),
            requests: Some(requests),
        })
    }

    /// Instructions of a whole run that sends so many blocks.
    fn counted(self, build: &Build, scratch: &Path, blocks: u64) -> Result<u64, ServedError> {
        let failed = |source| ServedError::Log { source };
        std::fs::create_dir_all(scratch).map_err(failed)?;
        let log = scratch.join("callgrind");
        let line = |port: u16| {
            let mut line = vec![
                "--tool=callgrind".to_owned(),
                "--callgrind-out-file=/dev/null".to_owned(),
                format!("--log-file={}", log.display()),
                build.server.display().to_string(),
            ];
            let rest = format!(
                "--engine {} --threads 1 --durability none --port {port}",
                self.engine
            );
            line.extend(rest.split(' ').map(String::from));
            line
        };
        let server = Server::start("pando", "valgrind", SERVER_CPU, line)?;
        beside::fill(KEYS, &server, Kind::RespSet)?;
        let cell = self.cell(1);
        let all = cell.blocks(KEYS);
        let mut client = beside::Client::connect(&server, &cell, &all)?;
        for _ in 0..blocks {
            client.send(0)?;
            client.receive(0)?;
        }
        drop(client);
        if let Some(process) = Pid::from_raw(server.process().cast_signed()) {
            kill_process(process, Signal::TERM).map_err(|error| failed(error.into()))?;
        }
        server.wait()?;
        let text = std::fs::read_to_string(&log).map_err(failed)?;
        collected(&text).ok_or(ServedError::NoCount)
    }
}

/// Why a server could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServedError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Client(#[from] BesideError),
    #[error("cannot read what callgrind counted: {source}")]
    Log { source: std::io::Error },
    #[error("callgrind has counted nothing")]
    NoCount,
}

impl ServedError {
    pub(super) fn on(self, build: &Build, cell: &'static str) -> GuardError {
        GuardError::Served {
            build: build.server.display().to_string(),
            cell,
            source: Box::new(self),
        }
    }
}
