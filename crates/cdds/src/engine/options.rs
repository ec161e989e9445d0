//! Where the pool of an engine is, and how it is kept from stray writes.

use std::io;
use std::path::{Path, PathBuf};

use pando_pmem::{Filed, Medium, Protection};

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
    pub fn in_file(path: PathBuf, bytes: u64, medium: FileMedium) -> io::Result<Self> {
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let mapped = match medium {
            FileMedium::Auto => Medium::of_directory(directory.unwrap_or(Path::new(".")))?,
            FileMedium::Dax => Some(Medium::Dax),
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
        }
    }

    /// The same, kept from stray writes so. A file on a disk is written to by commits alone, and
    /// takes nothing else for protection than that.
    pub fn protected(self, protection: Protection) -> io::Result<Self> {
        let protection = match (&self.place, protection) {
            (Place::Mapped(..), protection) => protection.in_force(),
            (_, Protection::None | Protection::Auto) => Protection::None,
            (_, protection) => {
                let name = protection.name();
                let text =
                    format!("only a pool in persistent or shared memory is protected by {name}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
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
    /// Persistent memory of a machine that flushes its caches when the power fails (eADR).
    DaxWithCaches,
    /// A tmpfs.
    SharedMemory,
    /// Anything: the file is written by commits, through a journal.
    Disk,
}

impl FileMedium {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::Dax,
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
