//! One process per directory: a locked file that names its holder.

use std::io;
use std::path::{Path, PathBuf};

use super::{Disk, DiskFile};

/// The name of the lock's file.
const NAME: &str = "pando.lock";
/// Bytes of the file that are read for the holder's process number.
const HOLDER_BYTES: usize = 32;

/// A directory held exclusively by this process, until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: Box<dyn DiskFile>,
}

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server holds it.
    #[error("{}: in use by another server{}", directory.display(), said(*holder))]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The process that holds it, if it could be read.
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
    /// Locks a directory that exists. The operating system releases the lock with the process,
    /// however that ends, so a lock is never left behind.
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
        // The number is for people only; spaces overwrite the rest of a longer one.
        let process = format!("{:<width$}\n", std::process::id(), width = HOLDER_BYTES - 1);
        match file.write_all_at(process.as_bytes(), 0) {
            // A full disk prevents nobody from using what is on it.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(io(error)),
            _ => {}
        }
        Ok(Self { _file: file })
    }

    /// Locks a directory whose files are only read, and which may be read-only: a volume mounted
    /// so, a snapshot. `None`: there is no lock that a server could hold.
    pub fn take_to_read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>, LockError> {
        match Self::take(disk, directory) {
            Err(LockError::Io { .. }) => {}
            taken => return taken.map(Some),
        }
        let path = directory.join(NAME);
        match disk.try_lock_to_read(&path) {
            Ok(Some(file)) => Ok(Some(Self { _file: file })),
            Ok(None) => Err(LockError::Held {
                directory: directory.to_owned(),
                holder: holder(disk, &path),
            }),
            Err(_) => Ok(None),
        }
    }
}

/// Whether a directory contains anything that a server leaves there: its lock, or files of ours. A
/// directory that does not exist holds nothing.
pub fn was_used(disk: &dyn Disk, directory: &Path) -> io::Result<bool> {
    let ours = |name: &String| {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        name == NAME || matches!(ending, Some("pando" | "part"))
    };
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
    fn who_only_reads_needs_no_file_and_respects_one() {
        let (disk, directory) = (SimulatedDisk::new(), Path::new("/data"));
        disk.create_directory(directory).unwrap();
        disk.set_read_only(true);
        let none = DirectoryLock::take_to_read(&disk, directory).unwrap();
        assert!(none.is_none());
        disk.set_read_only(false);
        let server = DirectoryLock::take(&disk, directory).unwrap();
        disk.set_read_only(true);
        assert!(DirectoryLock::take(&disk, directory).is_err());
        let held = DirectoryLock::take_to_read(&disk, directory).unwrap_err();
        assert!(matches!(held, LockError::Held { .. }), "{held}");
        drop(server);
        let read = DirectoryLock::take_to_read(&disk, directory).unwrap();
        assert!(read.is_some());
    }

    #[test]
    fn the_second_server_is_refused_and_told_of_the_first() {
        only_one_holds(&SimulatedDisk::new(), Path::new("/data"));
        let scratch = std::env::temp_dir().join(format!("pando-lock-{}", std::process::id()));
        only_one_holds(&RealDisk, &scratch);
        std::fs::remove_dir_all(scratch).unwrap();
    }
}
