//! Memory that is an ordinary file, on any disk: it changes with commits, and with nothing else.
//!
//! A fence cannot order what the kernel writes back, and a page can tear between two sectors: a
//! shared mapping with `msync` would leave any mixture of old and new sectors, of before and after
//! any fence. So the mapping is private. A commit writes the lines that were flushed since the last
//! one to a journal, makes it durable with one write, and then writes the lines to their places
//! (`journal.rs`). What is found after a crash of the process or of the machine is what the last
//! commit left, which is more than PM1 any-order asks for.
//!
//! The price: pages that were written to are held in memory, beside the page cache, until the pool
//! is closed; and a commit waits for the disk.
//!
//! | field | writer | lock, in the order in which they are taken |
//! |---|---|---|
//! | `journal` | commits, one after the other | its mutex |
//! | `dirty`: lines flushed since the last commit | flushes, and a commit that takes them | its mutex |
//!
//! - **PF1 commit-between-flushes** A commit reads the lines while it holds `dirty`, which every
//!   flush waits for. A store after a flush is therefore in no commit without what was flushed; a
//!   fence has nothing to add.
//!
//! Deliberately absent: eviction of pages; pools larger than memory.

mod journal;
#[cfg(any(test, feature = "simulated-memory"))]
mod simulated;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use pando_durability::disk::{Access, Disk, RealDisk};
use pando_sync::shim::unmodelled::AtomicU32;
use pando_sync::{Striped, lock};
use rustix::mm::MapFlags;

use self::journal::{BLOCK_BYTES, Journal};
use crate::mapped::{Mapping, file};
use crate::region::{Region, words_of_region};
use crate::{LINE_BYTES, Offset, Pmem, PoolError, WORD_BYTES, Wear, Words, check_size};

/// An ordinary file as memory.
pub struct Filed {
    region: Region,
    journal: Mutex<Journal>,
    dirty: Mutex<Vec<u64>>,
    /// Lines that were committed, and bytes that were flushed.
    wear: Striped<2>,
    /// What the region lies in: dropped after it.
    _mapping: Mapping,
    /// Keeps the lock.
    _file: File,
}

impl fmt::Debug for Filed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Filed")
            .field("bytes", &self.region.bytes())
            .finish_non_exhaustive()
    }
}

impl Filed {
    /// What a crash of the process and a loss of power take.
    pub const PROMISE: &'static str = "a file: what is committed survives a crash of the process \
                                       and a loss of power; both take what is not committed yet";

    /// Creates a file for a pool of so many bytes, all zero, that must not exist.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, PoolError> {
        check_size(bytes)?;
        // With room for the journal: a commit that the disk has no room for is the last one.
        let all = BLOCK_BYTES + bytes + journal::lap_bytes(bytes);
        let file = file::create(path, all, |_| Ok(()))?;
        let made = (|| {
            let written = RealDisk.open(path, Access::Write)?;
            written.write_all_at(journal::head(bytes).as_slice(), 0)?;
            written.sync()?;
            let directory = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            RealDisk.sync_directory(directory.unwrap_or(Path::new(".")))?;
            Ok(())
        })();
        made.and_then(|()| Self::map(path, file))
            .inspect_err(|_: &PoolError| {
                // It is of no use to anybody.
                let _ = std::fs::remove_file(path);
            })
    }

    /// Opens a file. If a size is given, its pool must have that size.
    pub fn open(path: &Path, bytes: Option<u64>) -> Result<Self, PoolError> {
        let filed = Self::map(path, file::open(path)?)?;
        let pool = filed.bytes();
        match bytes.filter(|wanted| *wanted != pool) {
            Some(wanted) => Err(PoolError::OtherSize { pool, wanted }),
            None => Ok(filed),
        }
    }

    fn map(path: &Path, file: File) -> Result<Self, PoolError> {
        let places = RealDisk.open(path, Access::Write)?;
        let records = RealDisk.open(path, Access::WriteThrough)?;
        // Before the mapping, which shows what lies in its places.
        let journal = Journal::open(places, records)?;
        let bytes = journal.pool_bytes();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mapping =
            Mapping::new(&file, BLOCK_BYTES, bytes, flags).map_err(PoolError::NotMappable)?;
        // SAFETY: the mapping is readable and writable, and lives as long as the region. Nobody
        // else writes to the file (the lock), and this process writes to a page of it only what
        // its private copy already holds.
        let region = unsafe { Region::new(mapping.start(), bytes) };
        Ok(Self::over(region, journal, (mapping, file)))
    }

    /// A pool whose words are those of the region, in this mapping of this file.
    fn over(region: Region, journal: Journal, (mapping, file): (Mapping, File)) -> Self {
        Self {
            region,
            journal: Mutex::new(journal),
            dirty: Mutex::default(),
            wear: Striped::default(),
            _mapping: mapping,
            _file: file,
        }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// A line's bytes now.
    fn line(&self, number: u64) -> [u8; LINE_BYTES as usize] {
        let mut line = [0; LINE_BYTES as usize];
        for (index, word) in line.chunks_exact_mut(WORD_BYTES as usize).enumerate() {
            let at = Offset::new(number * LINE_BYTES + index as u64 * WORD_BYTES);
            word.copy_from_slice(&self.region.load(at).to_le_bytes());
        }
        line
    }
}

impl Pmem for Filed {
    words_of_region!();

    #[inline]
    fn halves(&self, at: Offset) -> Option<&[AtomicU32; 4]> {
        Some(self.region.halves(at))
    }

    fn flush(&self, at: Offset, length: usize) {
        self.region.check(at, length);
        if length == 0 {
            return;
        }
        let end = (at.get() + length as u64).div_ceil(LINE_BYTES);
        let mut dirty = lock(&self.dirty);
        if dirty.len() == dirty.capacity() {
            // There are no more different ones than lines of the pool.
            dirty.sort_unstable();
            dirty.dedup();
        }
        dirty.extend(at.get() / LINE_BYTES..end);
        self.wear.add([0, length as u64]);
    }

    fn wear(&self) -> Wear {
        let [lines, bytes] = self.wear.sums();
        Wear { lines, bytes }
    }

    fn fence(&self) {
        // The flush has waited (PF1).
    }

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        let mut journal = lock(&self.journal);
        let lines: Vec<_> = {
            let mut dirty = lock(&self.dirty);
            self.store(at, word);
            dirty.push(at.get() / LINE_BYTES);
            dirty.sort_unstable();
            dirty.dedup();
            // The list keeps its room for the next epoch.
            dirty
                .drain(..)
                .map(|number| (number, self.line(number)))
                .collect()
        };
        self.wear.add([lines.len() as u64, WORD_BYTES]);
        journal.commit(&lines)
    }
}
