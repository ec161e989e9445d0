//! Files of logs and checkpoints: positioned reads and writes, past the page cache where the file
//! system supports that, preallocation, free space of a volume, locks, and durable directories.
//!
//! A file that is written *through* (`O_DIRECT` and `O_DSYNC`) is durable when a write returns, at
//! the price of aligned offsets, lengths and memory: [`AlignedBuffer`] has the memory. A file
//! system without direct I/O refuses the flag; the file is then opened without it, and
//! [`File::writes_through`] tells the caller to call [`File::sync`].
//!
//! Deliberately absent: formats, retries. A call that was interrupted by a signal is repeated;
//! every other error is returned.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags};

/// The multiple required of offsets, lengths and memory of a direct write.
pub const ALIGNMENT: usize = 4096;

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    Read,
    /// Reads and writes through the page cache; durable after a sync.
    Write,
    /// Writes past the page cache, where the file system supports it; durable after a sync. Data
    /// must be aligned.
    Direct,
    /// Writes past the page cache that are durable on return, where the file system supports it.
    WriteThrough,
}

/// One open file.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    through: bool,
}

impl File {
    /// Opens a file that exists.
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        Self::with(path, access, false)
    }

    /// Creates a file that must not exist.
    pub fn create(path: &Path, access: Access) -> io::Result<Self> {
        Self::with(path, access, true)
    }

    fn with(path: &Path, access: Access, new: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true);
        if access != Access::Read {
            options.write(true);
        }
        if new {
            options.write(true).create_new(true);
        }
        let file = options.open(path)?;
        let through = access == Access::WriteThrough;
        if through || access == Access::Direct {
            let durable = if through {
                OFlags::DSYNC
            } else {
                OFlags::empty()
            };
            let flags = OFlags::DIRECT | durable;
            options.create_new(false).custom_flags(flags.bits() as i32);
            match options.open(path) {
                Ok(file) => {
                    return Ok(Self { file, through });
                }
                Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            file,
            through: false,
        })
    }

    /// Whether a write is durable on return, and must be aligned.
    pub fn writes_through(&self) -> bool {
        self.through
    }

    /// Reads from `offset`. Fewer bytes than asked for are no error; none mean the end.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        repeated(|| self.file.read_at(bytes, offset))
    }

    /// Writes at `offset`. Fewer bytes than asked for are no error.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // The system would refuse the write, as it refuses one to a bad disk.
        debug_assert!(!self.through || is_aligned(bytes, offset));
        repeated(|| self.file.write_at(bytes, offset))
    }

    /// Makes the written data durable, and the length needed to read it back.
    pub fn sync(&self) -> io::Result<()> {
        repeated(|| self.file.sync_data())
    }

    /// Makes the file `bytes` long and allocates space for all of them.
    pub fn allocate(&self, bytes: u64) -> io::Result<()> {
        let allocated = repeated(|| {
            Ok(rustix::fs::fallocate(
                &self.file,
                FallocateFlags::empty(),
                0,
                bytes,
            )?)
        });
        match allocated {
            // The file system cannot preallocate; it can still set the length.
            Err(error) if error.kind() == ErrorKind::Unsupported => self.file.set_len(bytes),
            other => other,
        }
    }

    /// The length in bytes.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Locks the file for this process until it is closed. `false`: another process holds the lock.
    pub fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The space of the volume that holds a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Identifies the volume: the same for all of its directories.
    pub volume: u64,
    /// Bytes that may still be written to it.
    pub free: u64,
    /// Its total size in bytes.
    pub total: u64,
}

/// Returns the space of the volume that holds a directory.
pub fn room(directory: &Path) -> io::Result<Room> {
    let found = rustix::fs::statvfs(directory)?;
    Ok(Room {
        volume: fs::metadata(directory)?.dev(),
        free: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = fs::File::open(path)?;
    repeated(|| directory.sync_all())
}

/// Whether a file that is written through takes these bytes at this offset.
fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let places = [bytes.as_ptr().addr() as u64, bytes.len() as u64, offset];
    places
        .iter()
        .all(|place| place.is_multiple_of(ALIGNMENT as u64))
}

fn repeated<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A memory buffer for direct writes: its first byte is at a multiple of [`ALIGNMENT`]. Its
/// capacity never grows.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    from: usize,
    bytes: usize,
    capacity: usize,
}

impl AlignedBuffer {
    /// An empty buffer for up to `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let memory = vec![0; capacity + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(from < ALIGNMENT, "a byte can be aligned");
        Self {
            memory,
            from,
            bytes: 0,
            capacity,
        }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many bytes it may still take.
    pub fn room(&self) -> usize {
        self.capacity - self.bytes
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.bytes = 0;
    }

    /// Adds bytes.
    ///
    /// # Panics
    /// When there is no room for them.
    pub fn push(&mut self, bytes: &[u8]) {
        let from = self.from + self.bytes;
        assert!(bytes.len() <= self.room(), "the buffer is full");
        self.memory[from..from + bytes.len()].copy_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Adds zeros up to the next multiple of `unit`.
    ///
    /// # Panics
    /// When there is no room for them.
    pub fn pad(&mut self, unit: usize) {
        let padded = self.bytes.next_multiple_of(unit);
        assert!(padded <= self.capacity, "the buffer is full");
        self.memory[self.from + self.bytes..self.from + padded].fill(0);
        self.bytes = padded;
    }

    /// Adds zeros until it is full.
    pub fn pad_to_capacity(&mut self) {
        self.memory[self.from + self.bytes..self.from + self.capacity].fill(0);
        self.bytes = self.capacity;
    }

    /// Its content.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.bytes]
    }

    /// Its content, to be changed in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let name = format!("pando-io-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn what_is_written_through_or_synced_reads_back() {
        for (name, access) in [("through", Access::WriteThrough), ("cached", Access::Write)] {
            let path = scratch(name);
            let file = File::create(&path, access).unwrap();
            file.allocate(1 << 16).unwrap();
            assert_eq!(file.bytes().unwrap(), 1 << 16);
            let mut buffer = AlignedBuffer::new(2 * ALIGNMENT);
            buffer.push(b"pando");
            buffer.pad(ALIGNMENT);
            assert_eq!(file.write_at(buffer.as_slice(), 4096).unwrap(), 4096);
            file.sync().unwrap();
            let reader = File::open(&path, Access::Read).unwrap();
            let mut read = [0; 8];
            assert_eq!(reader.read_at(&mut read, 4096).unwrap(), 8);
            assert_eq!(&read, b"pando\0\0\0");
            assert_eq!(reader.read_at(&mut read, 1 << 16).unwrap(), 0);
            sync_directory(&std::env::temp_dir()).unwrap();
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn directories_of_one_volume_share_its_room() {
        let directory = scratch("room");
        fs::create_dir(&directory).unwrap();
        let (one, other) = (
            room(&directory).unwrap(),
            room(directory.parent().unwrap()).unwrap(),
        );
        assert_eq!((one.volume, one.total), (other.volume, other.total));
        assert!(one.free <= one.total && one.total > 0, "{one:?}");
        fs::remove_dir(&directory).unwrap();
        assert_eq!(room(&directory).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_created_once_and_locked_once() {
        let path = scratch("lock");
        let first = File::create(&path, Access::Write).unwrap();
        let again = File::create(&path, Access::WriteThrough).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        let second = File::open(&path, Access::Write).unwrap();
        assert!(first.try_lock().unwrap());
        assert!(!second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_buffer_is_aligned_and_bounded() {
        let mut buffer = AlignedBuffer::new(ALIGNMENT);
        buffer.push(&[7; 100]);
        assert_eq!(buffer.as_slice().as_ptr().addr() % ALIGNMENT, 0);
        assert_eq!((buffer.len(), buffer.room()), (100, ALIGNMENT - 100));
        buffer.pad(512);
        assert_eq!(buffer.as_slice()[100..], [0; 412]);
        buffer.as_mut_slice()[0] = 1;
        assert_eq!(buffer.as_slice()[..2], [1, 7]);
        buffer.clear();
        assert!(buffer.is_empty());
    }
}
