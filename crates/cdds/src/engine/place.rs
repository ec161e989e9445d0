//! Where the pool of an engine is, how it is opened, and how it is kept from stray writes.

use std::path::{Path, PathBuf};

#[cfg(feature = "simulated-memory")]
use pando_pmem::Simulated;
use pando_pmem::{
    Filed, Mapped, Medium, Memory, Pmem, Pool, PoolError, Protection, Shape, check_size,
};
#[cfg(feature = "simulated-memory")]
use std::sync::Arc;

use crate::Error;
use crate::limits::{ENTRIES, node_bytes};

/// Bytes of an engine in memory of its own.
const MEMORY_BYTES: u64 = 256 << 20;

/// What an engine is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the pool is; in memory of the process, which ends with it, by default.
    pub place: Place,
    /// Its size in bytes; 256 MiB by default. A pool that is there must have it.
    pub bytes: u64,
    /// How stray writes are kept away; not at all by default.
    pub protection: Protection,
}

impl Options {
    /// A pool of so many bytes in this file, which lies on that.
    pub fn in_file(path: PathBuf, bytes: u64, medium: FileMedium) -> std::io::Result<Self> {
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let mapped = match medium {
            FileMedium::Auto => Medium::of_directory(directory.unwrap_or(Path::new(".")))?,
            FileMedium::Dax => Some(Medium::Dax),
            FileMedium::DaxOfWords => Some(Medium::DaxOfWords),
            FileMedium::DaxWithCaches => Some(Medium::DaxWithCaches),
            FileMedium::SharedMemory => Some(Medium::SharedMemory),
            FileMedium::Disk => None,
        };
        Ok(Self {
            place: match mapped {
                Some(medium) => Place::Mapped(path, medium),
                None => Place::Filed(path),
            },
            bytes,
            ..Self::default()
        })
    }

    /// What a crash of the process and a loss of power take.
    #[must_use]
    pub fn promise(&self) -> &'static str {
        match &self.place {
            Place::Memory => "memory of the process: everything ends with it",
            Place::Mapped(_, medium) => medium.promise(),
            Place::Filed(_) => Filed::PROMISE,
            #[cfg(feature = "simulated-memory")]
            Place::Simulated(_) => "memory of a test",
        }
    }

    /// The same, kept from stray writes so. A file on a disk is written to by commits alone, and
    /// takes nothing else for protection than that.
    pub fn protected(self, protection: Protection) -> std::io::Result<Self> {
        let protection = match (&self.place, protection) {
            (Place::Mapped(..), protection) => protection.in_force(),
            (_, Protection::None | Protection::Auto) => Protection::None,
            (_, protection) => {
                let name = protection.name();
                let text =
                    format!("only a pool in persistent or shared memory is protected by {name}");
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(Self { protection, ..self })
    }
}

/// Where a pool is.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory of the process.
    Memory,
    /// In a file that is mapped, and created if it does not exist.
    Mapped(PathBuf, Medium),
    /// In an ordinary file, created if it does not exist.
    Filed(PathBuf),
    /// In memory of a test, which may crash. Of small chunks, so that it is small.
    #[cfg(feature = "simulated-memory")]
    Simulated(Arc<Simulated>),
}

/// What the file of a pool lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileMedium {
    /// Shared memory on a tmpfs; else persistent memory if the file system has direct access; else
    /// a disk.
    #[default]
    Auto,
    /// Persistent memory.
    Dax,
    /// Persistent memory of which no more than 8 bytes are whole.
    DaxOfWords,
    /// Persistent memory of a machine that flushes its caches when the power fails (eADR).
    DaxWithCaches,
    /// A tmpfs.
    SharedMemory,
    /// Anything: the file is written by commits, through a journal.
    Disk,
}

impl FileMedium {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Auto,
        Self::Dax,
        Self::DaxOfWords,
        Self::DaxWithCaches,
        Self::SharedMemory,
        Self::Disk,
    ];

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dax => "dax",
            Self::DaxOfWords => "dax-words",
            Self::DaxWithCaches => "eadr",
            Self::SharedMemory => "shared-memory",
            Self::Disk => "disk",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|medium| medium.name() == name)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            place: Place::Memory,
            bytes: MEMORY_BYTES,
            protection: Protection::None,
        }
    }
}

/// Opens the pool, or makes one.
pub(super) fn open_pool(options: &Options) -> Result<Pool<Memory>, Error> {
    let shape = Shape::with_nodes(node_bytes(ENTRIES));
    let (wanted, protection) = (options.bytes, options.protection);
    let path = match &options.place {
        Place::Memory => return Ok(Pool::create(Mapped::anonymous(wanted)?.into(), shape)?),
        Place::Mapped(path, _) | Place::Filed(path) => path,
        #[cfg(feature = "simulated-memory")]
        Place::Simulated(memory) => return open_simulated(memory, shape),
    };
    let open = |bytes| match &options.place {
        Place::Mapped(_, medium) => {
            Mapped::open(path, bytes, *medium, protection).map(Memory::from)
        }
        _ => Filed::open(path, bytes).map(Memory::from),
    };
    if !path.exists() {
        let memory = match &options.place {
            Place::Mapped(_, medium) => Mapped::create(path, wanted, *medium, protection)?.into(),
            _ => Filed::create(path, wanted)?.into(),
        };
        return Ok(Pool::create(memory, shape)?);
    }
    check_size(wanted)?;
    let length = std::fs::metadata(path).map_err(PoolError::Io)?.len();
    let opened = match (&options.place, check_size(length)) {
        // Whoever made it died before it had its size.
        (_, Err(_)) if length == 0 => return Err(PoolError::Unfinished.into()),
        (Place::Mapped(..), Err(_)) => Err(PoolError::Foreign),
        _ => Pool::open(open(None)?, shape.node_bytes),
    };
    match opened {
        Err(PoolError::Unfinished) => {
            // Whoever made it died before it was a pool.
            Ok(Pool::create(open(Some(wanted))?, shape)?)
        }
        Ok(pool) if pool.memory().bytes() != wanted => {
            let pool = pool.memory().bytes();
            Err(PoolError::OtherSize { pool, wanted }.into())
        }
        opened => Ok(opened?),
    }
}

#[cfg(feature = "simulated-memory")]
fn open_simulated(memory: &Arc<Simulated>, shape: Shape) -> Result<Pool<Memory>, Error> {
    let memory = || Memory::from(Arc::clone(memory));
    match Pool::open(memory(), shape.node_bytes) {
        Err(PoolError::Unfinished) => {
            let chunk_bytes = 16 * 1024;
            let shape = Shape {
                chunk_bytes,
                ..shape
            };
            Ok(Pool::create(memory(), shape)?)
        }
        opened => Ok(opened?),
    }
}
