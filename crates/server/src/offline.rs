//! `pando check`, `pando dump` and `pando load`: work on a data directory that no server is using,
//! or, with `pando dump --from`, on the keys of a running server. They take the server's flags.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use pando_db::{
    CloseError, Database, DurabilityOptions, OpenError, RecoveryError, StreamError, check,
    expect_database,
};
use thiserror::Error;

use crate::config::Config;
use crate::progress;
use crate::reshard::{self, Reshard, ReshardError};
use crate::running::{Running, RunningError};

/// The task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offline {
    /// Read every file and report what exists.
    Check,
    /// Write every key to the standard output, in the portable stream: of a running server, or of
    /// the data directory.
    Dump(Option<Running>),
    /// Load such a stream, or a dump file of Redis, into the database, from a file or the standard
    /// input; with an engine that has a pool, into that.
    Load(Option<PathBuf>),
    /// Move what a changed ring moves between running servers.
    Reshard(Reshard),
}

/// Why it failed.
#[derive(Debug, Error)]
pub enum OfflineError {
    /// The files cannot be inspected.
    #[error(transparent)]
    Files(#[from] RecoveryError),
    /// They were, and a server would not start from them without loss.
    #[error("the files are not sound")]
    Unsound,
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no pool to load into.
    #[error("engine {engine} keeps its data in its pool: --pmem names the file to load into")]
    NoPool {
        /// Its name.
        engine: &'static str,
    },
    /// The file of the pool cannot be looked at.
    #[error("cannot open {}: {error}", path.display())]
    Pool {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The stream is binary, and the output is a terminal.
    #[error("a dump is not for a terminal: write it to a file, as in `pando dump > FILE`")]
    Terminal,
    /// The stream cannot be written or read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The file to load cannot be opened.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The running server cannot be dumped.
    #[error(transparent)]
    Running(#[from] RunningError),
    /// Not all keys were moved.
    #[error(transparent)]
    Reshard(#[from] ReshardError),
    /// The reader has closed the output.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// A dump of Redis contained unsupported values.
    #[error("not everything was loaded: Pando has no such types; what was loaded is kept")]
    Partly,
    /// What was loaded is not on disk.
    #[error("the log could not be written to its end: {0}")]
    Close(String),
}

impl Offline {
    /// Performs the task.
    pub fn run(self, config: &Config) -> Result<(), OfflineError> {
        match self {
            Self::Check => run_check(config),
            Self::Dump(running) => run_dump(config, running.as_ref()),
            Self::Reshard(reshard) => Ok(reshard::run(&reshard, &config.password)?),
            Self::Load(file) => {
                let mut stream: Box<dyn BufRead> = match file {
                    Some(path) => {
                        let opened = File::open(&path);
                        let opened = opened.map_err(|error| OfflineError::File { path, error });
                        Box::new(BufReader::new(opened?))
                    }
                    None => Box::new(BufReader::new(io::stdin().lock())),
                };
                let mut partly = None;
                let durability = if !config.engine.has_pool() {
                    Some(config.durability_options())
                } else if config.pmem.is_some() {
                    None
                } else {
                    let engine = config.engine.name();
                    return Err(OfflineError::NoPool { engine });
                };
                let closed = with_database(config, (durability, true), |session| {
                    let loaded = session.load(&mut stream)?;
                    eprintln!("{loaded}");
                    if !loaded.passed.is_empty() {
                        partly = Some(OfflineError::Partly);
                    }
                    Ok(())
                })?;
                closed.map_err(|error| OfflineError::Close(error.to_string()))?;
                partly.map_or(Ok(()), Err)
            }
        }
    }
}

fn run_check(config: &Config) -> Result<(), OfflineError> {
    let report = check(&config.durability_options())?;
    let mut out = io::stdout().lock();
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    if report.sound {
        writeln!(out, "sound")?;
        Ok(())
    } else {
        Err(OfflineError::Unsound)
    }
}

fn run_dump(config: &Config, running: Option<&Running>) -> Result<(), OfflineError> {
    if io::stdout().is_terminal() {
        return Err(OfflineError::Terminal);
    }
    let mut keys = 0;
    if let Some(running) = running {
        keys = running.dump(&config.password, BufWriter::new(io::stdout()))?;
    } else {
        let mut durability = config.durability_options();
        expect_database(&durability)?;
        durability.read_only = true;
        // There is no log to close.
        let _closed = with_database(config, (Some(durability), false), |session| {
            keys = session.dump(&mut BufWriter::new(io::stdout().lock()))?;
            Ok(())
        })?;
    }
    eprintln!("{keys} keys written");
    Ok(())
}

/// Opens the database, works, and closes it; returns whether everything is then on disk.
fn with_database(
    config: &Config,
    (durability, writes): (Option<DurabilityOptions>, bool),
    work: impl FnOnce(&mut pando_db::Session) -> Result<(), OfflineError>,
) -> Result<Result<(), CloseError>, OfflineError> {
    let pool = config.pool_options().map_err(|error| OfflineError::Pool {
        path: config.pmem.clone().unwrap_or_default(),
        error,
    })?;
    let config_options = config.database_options();
    let options = pando_db::Options {
        durability: durability.map(|durability| DurabilityOptions {
            progress: Some(progress::reporter(Arc::default())),
            ..durability
        }),
        pool,
        // What is loaded is no primary's: a replica takes a full copy behind it.
        follows: config_options.follows && !writes,
        ..config_options
    };
    let database = Database::open(options)?;
    let mut session = database.session().map_err(OpenError::from)?;
    let result = work(&mut session);
    drop(session);
    database.close();
    let closed = database.close_log();
    result.map(|()| closed)
}
