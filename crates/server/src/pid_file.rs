//! The file that holds the process number while the process runs.

use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

/// Removes the file when dropped.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file. If it cannot be written, the server still serves; as in Redis, the log says
    /// so.
    #[must_use]
    pub fn write(path: &Path) -> Option<Self> {
        match std::fs::write(path, format!("{}\n", std::process::id())) {
            Ok(()) => Some(Self(path.to_owned())),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot write the pid file");
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(path = %self.0.display(), %error, "cannot remove the pid file");
            }
            _ => {}
        }
    }
}
