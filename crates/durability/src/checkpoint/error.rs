//! Why a checkpoint cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a checkpoint cannot be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The disk reported an error.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The disk's error.
        error: io::Error,
    },
    /// A file is not what was written.
    #[error("{}: damaged at offset {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A part is missing.
    #[error(
        "{name}: missing; looked in {}. Is the disk of one of them not mounted? If the file was \
         moved, name its directory with --checkpoint-dir",
        listed(looked_in)
    )]
    Missing {
        /// The file.
        name: String,
        /// All directories known to have parts.
        looked_in: Vec<PathBuf>,
    },
    /// The file has another format version.
    #[error(
        "{}: checkpoint format {got}, but this server reads format {expected}: use the version of \
         Pando that wrote it ({})",
        path.display(),
        if got > expected { "a newer one" } else { "an older one" }
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        got: u32,
        /// The supported format.
        expected: u32,
    },
}

fn listed(directories: &[PathBuf]) -> String {
    let names = directories.iter().map(|it| it.display().to_string());
    names.collect::<Vec<_>>().join(", ")
}

impl CheckpointError {
    pub(super) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Disk {
            path: path.into(),
            error,
        }
    }

    pub(super) fn damaged(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Damaged {
            path: path.into(),
            offset,
            what,
        }
    }
}
