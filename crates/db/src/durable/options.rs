//! Where and how a database is stored on disk, and the progress of opening one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use pando_durability::disk::{Disk, RealDisk};

use crate::clock::Milliseconds;
use crate::limits;

/// The stages of opening a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the log to find up to where it counts.
    Scan,
    /// Loading a checkpoint.
    Load,
    /// Replaying the log.
    Replay,
}

/// Progress, in bytes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// The current stage.
    pub stage: Stage,
    /// Bytes of this stage that are done.
    pub done: u64,
    /// Bytes of this stage.
    pub total: u64,
}

/// Receives progress, from several threads.
pub type OnProgress = Arc<dyn Fn(RecoveryProgress) + Send + Sync>;

/// How a database is stored on disk; each field states its default.
#[derive(Clone)]
pub struct DurabilityOptions {
    /// The file system; default the operating system's.
    pub disk: Arc<dyn Disk>,
    /// Where checkpoints and the log are, unless they have their own directories, and always the
    /// manifests of the checkpoints; created if needed.
    pub data_directory: PathBuf,
    /// Where the log is; default none: in the data directory.
    pub log_directories: Vec<PathBuf>,
    /// Where the parts of checkpoints are, spread evenly; default none: in the data directory.
    pub checkpoint_directories: Vec<PathBuf>,
    /// Number of logs, each with a thread that writes it; default 1.
    pub logs: usize,
    /// Most bytes of a log segment: fewer on a small volume; default 64 MiB.
    pub segment_bytes: u64,
    /// Bytes handed over to the log and not yet written at which turns wait; default 64 MiB.
    pub pending_bytes_max: usize,
    /// Milliseconds for which a write waits while the log has no room, before it is refused;
    /// default a second.
    pub full_wait: Milliseconds,
    /// Whether logs have threads; default true. Without, the thread that ends an epoch writes it.
    pub threads: bool,
    /// Threads that load and replay; default the machine's.
    pub recovery_threads: usize,
    /// Whether the files are only read: the opened database is not stored, and a read-only volume
    /// will do; default false.
    pub read_only: bool,
    /// Receives the progress of opening; default nobody.
    pub progress: Option<OnProgress>,
}

impl DurabilityOptions {
    /// The defaults, in this directory of the machine's disk.
    #[must_use]
    pub fn new(data_directory: impl Into<PathBuf>) -> Self {
        Self {
            disk: Arc::new(RealDisk),
            data_directory: data_directory.into(),
            log_directories: Vec::new(),
            checkpoint_directories: Vec::new(),
            logs: 1,
            segment_bytes: limits::SEGMENT_BYTES,
            pending_bytes_max: limits::PENDING_LOG_BYTES_MAX,
            full_wait: limits::FULL_LOG_WAIT,
            threads: true,
            recovery_threads: std::thread::available_parallelism().map_or(1, usize::from),
            read_only: false,
            progress: None,
        }
    }

    /// The directories of the log.
    pub(crate) fn log_directories(&self) -> Vec<PathBuf> {
        self.or_data_directory(&self.log_directories)
    }

    /// The directories of the parts of checkpoints.
    pub(crate) fn checkpoint_directories(&self) -> Vec<PathBuf> {
        self.or_data_directory(&self.checkpoint_directories)
    }

    fn or_data_directory(&self, directories: &[PathBuf]) -> Vec<PathBuf> {
        if directories.is_empty() {
            vec![self.data_directory.clone()]
        } else {
            directories.to_vec()
        }
    }

    pub(crate) fn tell(&self, stage: Stage, done: u64, total: u64) {
        if let Some(progress) = &self.progress {
            progress(RecoveryProgress { stage, done, total });
        }
    }
}

impl fmt::Debug for DurabilityOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurabilityOptions")
            .field("data_directory", &self.data_directory)
            .field("log_directories", &self.log_directories)
            .field("checkpoint_directories", &self.checkpoint_directories)
            .field("logs", &self.logs)
            .finish_non_exhaustive()
    }
}
