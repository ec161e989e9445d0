//! Errors of the log.

use std::io;
use std::path::{Path, PathBuf};

use pando_sync::LogEpoch;

/// Errors of the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system reported an error.
    #[error("{}: cannot {action}: {error}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Something durable, which may have been acknowledged, is damaged.
    #[error(
        "{}: damaged at offset {offset}: {what}.{} Restore the file from a copy; or remove all \
         log-0*.pando files of this data directory and its log directories to go on from the \
         newest checkpoint alone and lose what was written since it began",
        path.display(),
        lost(*epoch)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// The newest epoch that is known to have been durable, if any.
        epoch: LogEpoch,
        /// What was found.
        what: &'static str,
    },
    /// A durable part of the log is in none of the directories.
    #[error(
        "log {log} of incarnation {incarnation} is not there from frame {sequence} on, but epoch \
         {epoch} was durable and needs it. Is a --log-dir missing? Looked in: {looked_in}"
    )]
    Missing {
        /// The log.
        log: u32,
        /// The incarnation of the server that wrote it.
        incarnation: u64,
        /// The first frame that is missing.
        sequence: u64,
        /// The newest epoch that is known to have been durable.
        epoch: LogEpoch,
        /// The directories, for people.
        looked_in: String,
    },
    /// The log does not reach back to the epoch where recovery must begin.
    #[error(
        "the log does not hold all of what was written between epochs {from} and {epoch}: what \
         comes before was recycled, or its files were removed. Restore them, or the checkpoint, \
         from a copy. Looked in: {looked_in}"
    )]
    DoesNotReachBack {
        /// Where recovery must begin.
        from: LogEpoch,
        /// The newest epoch that is known to have been durable.
        epoch: LogEpoch,
        /// The directories, for people.
        looked_in: String,
    },
    /// A file of another format version.
    #[error(
        "{}: log format {found}, but this server reads format {ours}: use the version of Pando \
         that wrote it ({})",
        path.display(),
        if found > ours { "a newer one" } else { "an older one" }
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The one supported format.
        ours: u32,
    },
    /// A file that belongs elsewhere.
    #[error("{}: {what}. Move the file away, or give the right --log-dir", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why.
        what: &'static str,
    },
    /// The log could not be written; the server cannot go on.
    #[error("the log failed: {0}")]
    Failed(String),
    /// There is no space to write the log.
    #[error("the log's disk is full: {0}")]
    Full(String),
}

fn lost(epoch: LogEpoch) -> String {
    if epoch == LogEpoch::NONE {
        return String::new();
    }
    format!(" Epoch {epoch}, which was durable, cannot be recovered whole.")
}

impl LogError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io {
            action,
            path,
            error,
        }
    }
}
