//! One process to a directory: a locked file that says who holds it.

use std::io;
use std::path::{Path, PathBuf};

use super::{Disk, DiskFile};

/// The name of the lock's file.
const NAME: &str = "pando.lock";
/// Bytes of the file that are read for the holder's process number.
const HOLDER_BYTES: usize = 32;

/// A directory that this process has to itself, until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: Box<dyn DiskFile>,
}

/// Why a directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server has it.
    #[error("{}: in use by another server{}", directory.display(), said(*holder))]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The process that has it, if it could be read.
        holder: Option<u32>,
    },
    /// The lock's file could not be created, opened or locked.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
}

fn said(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |process| format!(" (process {process})"))
}

impl DirectoryLock {
    /// Takes a directory that exists. The operating system lets go of it with the process, however
    /// that ends, so a lock is never left behind.
    pub fn take(disk: &dyn Disk, directory: &Path) -> Result<Self, LockError> {
        let path = directory.join(NAME);
        let io = |error| LockError::Io {
            path: path.clone(),
            error,
        };
        let Some(file) = disk.try_lock(&path).map_err(io)? else {
            return Err(LockError::Held {
                directory: directory.to_owned(),
                holder: holder(disk, &path),
            });
        };
        // The number is for people only; spaces overwrite what a longer one left.
        let process = format!("{:<width$}\n", std::process::id(), width = HOLDER_BYTES - 1);
        match file.write_all_at(process.as_bytes(), 0) {
            // A full disk keeps nobody from what is on it.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(io(error)),
            _ => {}
        }
        Ok(Self { _file: file })
    }
}

/// Whether there is anything in a directory that a server leaves there: its lock, or files of ours.
/// A directory that does not exist holds nothing.
pub fn was_used(disk: &dyn Disk, directory: &Path) -> io::Result<bool> {
    let ours = |name: &String| name == NAME || name.strip_suffix(".pando").is_some();
    match disk.list(directory) {
        Ok(names) => Ok(names.iter().any(ours)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The process number that the holder wrote.
fn holder(disk: &dyn Disk, path: &Path) -> Option<u32> {
    let file = disk.open(path, super::Access::Read).ok()?;
    let mut bytes = [0; HOLDER_BYTES];
    let read = file.read_full_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..read])
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{RealDisk, SimulatedDisk};

    fn only_one_holds(disk: &dyn Disk, directory: &Path) {
        disk.create_directory(directory).unwrap();
        let first = DirectoryLock::take(disk, directory).unwrap();
        let error = DirectoryLock::take(disk, directory).unwrap_err();
        let process = std::process::id();
        assert!(
            error
                .to_string()
                .ends_with(&format!("server (process {process})")),
            "{error}"
        );
        drop(first);
        DirectoryLock::take(disk, directory).unwrap();
    }

    #[test]
    fn the_second_server_is_refused_and_told_of_the_first() {
        only_one_holds(&SimulatedDisk::new(), Path::new("/data"));
        let scratch = std::env::temp_dir().join(format!("pando-lock-{}", std::process::id()));
        only_one_holds(&RealDisk, &scratch);
        std::fs::remove_dir_all(scratch).unwrap();
    }
}
