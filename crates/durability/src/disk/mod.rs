//! The disk as logs, checkpoints and recovery see it: a small trait with two sides.
//!
//! [`RealDisk`] is the operating system's files. [`SimulatedDisk`] keeps files in memory and loses,
//! tears, reorders and flips what a real disk may lose, tear, reorder and flip; every call on it is
//! counted, so that a test can end the power at each.
//!
//! What a caller may rely on, and nothing else:
//! - **DI1** What was written is durable after [`DiskFile::sync`] returned without an error, or
//!   when the write itself returned, if [`DiskFile::writes_through`]. Until then, any of the
//!   sectors (of 512 bytes) that were written may be on disk or not, each by itself.
//! - **DI2** After a sync or a write failed, nothing is known of the bytes written since the last
//!   success, and no later success says anything about them: they have to be written anew,
//!   elsewhere.
//! - **DI3** A name that was created, renamed or removed is durable after [`Disk::sync_directory`]
//!   of its directory; until then each such change may be on disk or not. A rename happens whole.
//! - **DI4** A file's length, and room allocated for it, are durable as its bytes are.
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

/// Where files are.
pub trait Disk: Debug + Send + Sync {
    /// Creates a file that must not exist.
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, in place of what bore it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, in order. Names that are not Unicode are left out.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and those above it, unless they exist.
    fn create_directory(&self, directory: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable (DI3).
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// What the volume has on which a directory lies. Others may take of it at any time.
    fn room(&self, directory: &Path) -> io::Result<Room>;

    /// Takes a file, created if need be, for this process, until what is returned is dropped;
    /// `None`: another one holds it.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>>;

    /// The same for a file that exists and may not be written.
    fn try_lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        self.try_lock(path)
    }
}

/// One open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads from `offset`; fewer bytes than asked for are no error, none mean the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset`; fewer bytes than asked for are no error. Written through, offset, length
    /// and memory are multiples of [`crate::limits::BLOCK_BYTES`] ([`AlignedBuffer`]).
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes what was written durable (DI1, DI2).
    fn sync(&self) -> io::Result<()>;

    /// Makes the file `bytes` long and gives it room for all of them.
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

    /// Writes all of `bytes`. A write that does not move on is an error.
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
