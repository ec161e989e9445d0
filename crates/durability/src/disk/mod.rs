//! The disk as logs, checkpoints and recovery see it: a small trait with two implementations.
//!
//! [`RealDisk`] is the operating system's files. [`SimulatedDisk`] keeps files in memory and loses,
//! tears, reorders and flips what a real disk may lose, tear, reorder and flip. It counts every
//! call, so a test can cut the power at each.
//!
//! A caller may rely on this, and nothing else:
//! - **DI1** What was written is durable after [`DiskFile::sync`] returned without an error, or
//!   when the write itself returned, if [`DiskFile::writes_through`]. Until then, each of the
//!   written sectors (of 512 bytes) may or may not be on disk, independently of the others.
//! - **DI2** After a sync or a write failed, nothing is known about the bytes written since the
//!   last success, and no later success says anything about them: they must be written anew,
//!   elsewhere.
//! - **DI3** A name that was created, renamed or removed is durable after [`Disk::sync_directory`]
//!   of its directory; until then each such change may or may not be on disk. A rename is atomic.
//! - **DI4** A file's length, and the space allocated for it, become durable with its bytes.
//!
//! Deliberately absent: retries, caches, formats.

mod lock;
mod real;
mod simulated;

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::Path;

pub use lock::{DirectoryLock, LockError, was_used};
pub use pando_io::file::{Access, AlignedBuffer, Room};
pub use real::RealDisk;
pub use simulated::{Call, CallKind, Fault, SimulatedDisk, Stalls};

/// The files of a disk.
pub trait Disk: Debug + Send + Sync {
    /// Creates a file that must not exist.
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, sorted. Names that are not Unicode are left out.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and those above it, unless they exist.
    fn create_directory(&self, directory: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable (DI3).
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// The space of the volume that holds a directory. Others may use it up at any time.
    fn room(&self, directory: &Path) -> io::Result<Room>;

    /// Locks a file, created if needed, for this process until the returned value is dropped;
    /// `None`: another process holds it.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>>;

    /// The same for a file that exists and may not be written.
    fn try_lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        self.try_lock(path)
    }
}

/// One open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads from `offset`. Fewer bytes than asked for are no error; none mean the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset`. Fewer bytes than asked for are no error. For a file that is written
    /// through, offset, length and memory are multiples of [`crate::limits::BLOCK_BYTES`]
    /// ([`AlignedBuffer`]).
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes what was written durable (DI1, DI2).
    fn sync(&self) -> io::Result<()>;

    /// Makes the file `bytes` long and allocates space for all of them.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// The length in bytes.
    fn bytes(&self) -> io::Result<u64>;

    /// Whether a write is durable when it returns.
    fn writes_through(&self) -> bool;

    /// Reads until `bytes` is full or the file ends; returns how many were read.
    fn read_full_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.read_at(&mut bytes[read..], offset + read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }

    /// Writes all of `bytes`. A write without progress is an error.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_at(&bytes[written..], offset + written as u64)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                more => written += more,
            }
        }
        Ok(())
    }
}
