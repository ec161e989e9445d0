//! The file of a pool: created, opened and locked.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use crate::PoolError;

/// Creates a file that must not exist, with room for all of its bytes, and locks it. `prepare` may
/// take some of the room in its own way.
///
/// Without the room a store to the mapping could end the process when the file system is full.
pub(crate) fn create(
    path: &Path,
    bytes: u64,
    prepare: impl FnOnce(&File) -> std::io::Result<()>,
) -> Result<File, PoolError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    let made = lock(&file).and_then(|()| {
        prepare(&file)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(std::io::Error::from)?;
        Ok(())
    });
    if let Err(error) = made {
        // Nobody had the time to use it.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// A file that has no name and takes memory as it is written to.
pub(crate) fn anonymous(bytes: u64) -> Result<File, PoolError> {
    let file = memfd_create("pando", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let file = File::from(file);
    file.set_len(bytes)?;
    Ok(file)
}

/// Opens a file and locks it.
pub(crate) fn open(path: &Path) -> Result<File, PoolError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    lock(&file)?;
    Ok(file)
}

/// Takes the file until it is closed: the system lets go of it when the process ends.
fn lock(file: &File) -> Result<(), PoolError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(PoolError::InUse),
        // A device, a pipe: nothing that can be mapped as a pool.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::InvalidInput => {
            Err(PoolError::NotMappable(error))
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}
