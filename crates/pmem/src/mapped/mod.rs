//! Memory that is mapped: persistent memory with direct access, and shared memory.
//!
//! | medium | flush | survives the process | survives the machine |
//! |---|---|---|---|
//! | [`Medium::Dax`] | `clwb`, `clflushopt` or `clflush`, by CPUID | yes | yes |
//! | [`Medium::DaxOfWords`] | the same, and more of them: no line is kept whole | yes | yes |
//! | [`Medium::DaxWithCaches`] | none: the caches are flushed by the machine (eADR) | yes | yes |
//! | [`Medium::SharedMemory`] | none, and no fence: caches do not end with a process | yes | no |
//! | [`Medium::Rehearsal`] | as DAX | yes | no |
//!
//! A mapping of any other file is refused: the kernel writes its pages back whenever it likes, so
//! that no flush orders anything. [`crate::Filed`] is for these.
//!
//! - **PX1 mapped-while-used** The region lies in the mapping, and is dropped with it.
//! - **PX2 synchronous** A DAX mapping is made with `MAP_SYNC`: the file system's own metadata is
//!   durable before a page can be written to. A file system that cannot refuses.
//! - **PX3 room-first** The file has room for all of its bytes when it is created: a store does
//!   not end the process because the file system is full.
//! - **PX4 closed-at-rest** A thread outside of its windows has no access by a protection key: keys
//!   are allocated closed, a window that ends closes its thread's, and no thread is made in a
//!   window, since it would begin with what its maker has. So a key that is handed out again is
//!   closed for every thread.
//!
//! Deliberately absent: machine checks. A line that the memory has lost ends the process.

pub(crate) mod file;
mod key;
mod lines;
mod mapping;
mod protection;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use pando_sync::Striped;
use rustix::fs::{Mode, OFlags, fstatvfs};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use pando_sync::shim::unmodelled::AtomicU32;

pub use self::lines::Flush;
pub(crate) use self::mapping::Mapping;
pub use self::protection::Protection;
use self::protection::Protector;
use crate::limits::POOL_UNIT_BYTES;
use crate::region::{Region, words_of_region};
use crate::{LINE_BYTES, Offset, Pmem, PoolError, WORD_BYTES, Wear, Words, Writes, check_size};

/// What lies below a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory, on a file system with direct access.
    Dax,
    /// The same of which no more than an aligned word of 8 bytes is whole.
    DaxOfWords,
    /// Persistent memory on a machine that flushes its caches when the power fails (eADR).
    DaxWithCaches,
    /// A tmpfs.
    SharedMemory,
    /// A tmpfs in the place of persistent memory: every flush and fence is executed, so that they
    /// can be measured.
    Rehearsal,
}

impl Medium {
    /// Whether it is a tmpfs.
    fn is_shared(self) -> bool {
        matches!(self, Self::SharedMemory | Self::Rehearsal)
    }

    /// What files of a directory lie on, if they can be mapped: shared memory on a tmpfs, else
    /// persistent memory where the file system has direct access, which is tried.
    pub fn of_directory(path: &Path) -> io::Result<Option<Self>> {
        if lies_in_memory(&File::open(path)?)? {
            return Ok(Some(Self::SharedMemory));
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
        else {
            return Ok(None);
        };
        file.set_len(POOL_UNIT_BYTES)?;
        let mapping = Mapping::new(&file, 0, POOL_UNIT_BYTES, synchronous());
        Ok(mapping.is_ok().then_some(Self::Dax))
    }

    /// What a crash of the process and a loss of power take.
    #[must_use]
    pub fn promise(self) -> &'static str {
        match self {
            Self::Dax | Self::DaxOfWords => {
                "persistent memory: what is acknowledged survives a crash of the process and a \
                 loss of power"
            }
            Self::DaxWithCaches => {
                "persistent memory, caches included: what is acknowledged survives a crash of the \
                 process, and a loss of power if the machine flushes its caches then (eADR)"
            }
            Self::SharedMemory | Self::Rehearsal => {
                "shared memory: what is acknowledged survives a crash of the process; a loss of \
                 power or a restart of the machine takes everything"
            }
        }
    }
}

/// A mapped file.
pub struct Mapped {
    region: Region,
    flush: Flush,
    medium: Medium,
    protector: Protector,
    /// Lines and bytes that were flushed. None are of shared memory, whose lines stay in caches.
    wear: Striped<2>,
    /// What the region lies in (PX1).
    mapping: Mapping,
    /// Keeps the lock.
    _file: File,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Mapped")
            .field("medium", &self.medium)
            .field("flush", &self.flush)
            .finish_non_exhaustive()
    }
}

impl Mapped {
    /// Creates a file of so many bytes, all zero, that must not exist.
    pub fn create(
        path: &Path,
        bytes: u64,
        medium: Medium,
        protection: Protection,
    ) -> Result<Self, PoolError> {
        check_size(bytes)?;
        let file = file::create(path, bytes, |file| {
            let fits = || {
                let free = fstatvfs(file)?;
                Ok::<_, Errno>(bytes <= free.f_bavail.saturating_mul(free.f_frsize))
            };
            if medium.is_shared() && lies_in_memory(file)? && fits()? {
                file.set_len(bytes)?;
                Mapping::new(file, 0, bytes, MapFlags::SHARED)?.make_pages();
            }
            Ok(())
        })?;
        Self::map(file, bytes, medium, protection).inspect_err(|_| {
            // It is of no use to anybody.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Memory of this process, all zero, that ends with it.
    pub fn anonymous(bytes: u64) -> Result<Self, PoolError> {
        check_size(bytes)?;
        let file = file::anonymous(bytes)?;
        Self::map(file, bytes, Medium::SharedMemory, Protection::None)
    }

    /// Opens a file. If a size is given, it must have that size.
    pub fn open(
        path: &Path,
        bytes: Option<u64>,
        medium: Medium,
        protection: Protection,
    ) -> Result<Self, PoolError> {
        let file = file::open(path)?;
        let pool = file.metadata()?.len();
        if let Some(wanted) = bytes.filter(|wanted| *wanted != pool) {
            check_size(wanted)?;
            return Err(PoolError::OtherSize { pool, wanted });
        }
        check_size(pool)?;
        Self::map(file, pool, medium, protection)
    }

    fn map(
        file: File,
        bytes: u64,
        medium: Medium,
        protection: Protection,
    ) -> Result<Self, PoolError> {
        let detected = Flush::detect();
        let flush = match medium {
            Medium::DaxWithCaches => Flush::Nothing,
            Medium::Dax | Medium::DaxOfWords => detected.ok_or(PoolError::NoFlush)?,
            Medium::SharedMemory => Flush::Never,
            Medium::Rehearsal => detected.unwrap_or(Flush::Nothing),
        };
        let is_shared = medium.is_shared();
        let flags = if is_shared {
            if !lies_in_memory(&file)? {
                return Err(PoolError::NotInMemory);
            }
            MapFlags::SHARED
        } else {
            synchronous()
        };
        let map = || Mapping::new(&file, 0, bytes, flags);
        let mapping = map().map_err(|error| {
            let unable = [Errno::OPNOTSUPP, Errno::INVAL].map(Errno::raw_os_error);
            let refused = error
                .raw_os_error()
                .is_some_and(|code| unable.contains(&code));
            if !is_shared && refused {
                PoolError::NoDirectAccess(error)
            } else {
                PoolError::NotMappable(error)
            }
        })?;
        let protector = Protector::new(protection, &mapping, map)?;
        let stores = protector.writable(&mapping).start();
        // SAFETY: the mappings are readable, and writable where stores go, whole pages of one file
        // that nobody else opens (the lock), and live as long as the region (PX1).
        let region = unsafe { Region::with_stores(mapping.start(), stores, bytes) };
        Ok(Self {
            region,
            flush,
            medium,
            protector,
            wear: Striped::default(),
            mapping,
            _file: file,
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn lets_readers_write(&self) -> bool {
        self.protector.lets_readers_write()
    }

    /// Whether a flush or a fence does anything, if only that it counts.
    pub(crate) fn sends(&self) -> bool {
        self.flush != Flush::Never
    }

    /// What lies below it.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// How its lines are flushed.
    pub fn flushes_by(&self) -> Flush {
        self.flush
    }

    /// How it is kept from stray writes.
    pub fn protected_by(&self) -> Protection {
        self.protector.protection()
    }
}

/// PX2 synchronous: `SHARED_VALIDATE` refuses what it does not know.
fn synchronous() -> MapFlags {
    MapFlags::SHARED_VALIDATE | MapFlags::SYNC
}

/// Whether a file lies on a tmpfs, or another file system that has nothing but memory.
fn lies_in_memory(file: &File) -> io::Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const HUGETLBFS: u64 = 0x9584_58f6;
    let kind = rustix::fs::fstatfs(file)?.f_type as u64;
    Ok([TMPFS, RAMFS, HUGETLBFS].contains(&kind))
}

impl Pmem for Mapped {
    words_of_region!();

    #[inline]
    fn halves(&self, at: Offset) -> Option<&[AtomicU32; 4]> {
        self.lets_readers_write().then(|| self.region.halves(at))
    }

    #[inline]
    fn flushes(&self) -> bool {
        !matches!(self.flush, Flush::Nothing | Flush::Never)
    }

    #[inline]
    fn keeps_lines(&self) -> bool {
        self.medium != Medium::DaxOfWords
    }

    #[inline]
    fn flush(&self, at: Offset, length: usize) {
        let start = self.region.pointer(at, length);
        if self.flush == Flush::Never {
            return;
        }
        let end = (at.get() + length as u64).div_ceil(LINE_BYTES);
        self.wear.add([end - at.get() / LINE_BYTES, length as u64]);
        // SAFETY: the range lies in the region, which is mapped; the instruction was detected.
        unsafe { self.flush.lines(start, length) };
    }

    fn wear(&self) -> Wear {
        let [lines, bytes] = self.wear.sums();
        Wear { lines, bytes }
    }

    #[inline]
    fn fence(&self) {
        self.flush.fence();
    }

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        let _window = Writes::new(self);
        self.fence();
        self.store(at, word);
        self.flush(at, WORD_BYTES as usize);
        self.fence();
        Ok(())
    }

    fn expect_writes(&self, at: Offset, length: usize) {
        self.region.check(at, length);
        // The system writes to pages only for somebody who may.
        let _window = Writes::new(self);
        let mapping = self.protector.writable(&self.mapping);
        let is_shared = self.medium.is_shared();
        let is_joined = is_shared && mapping.expect_page(at.get(), length);
        mapping.populate(at.get(), length);
        if is_shared && !is_joined {
            mapping.join_pages(at.get(), length);
        }
    }

    #[inline]
    fn begin_writes(&self) -> bool {
        self.protector.begin(&self.mapping)
    }

    #[inline]
    fn end_writes(&self, could_store: bool) {
        self.protector.end(&self.mapping, could_store);
    }
}
