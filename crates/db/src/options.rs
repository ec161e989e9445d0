//! The options of a database.

use std::fmt;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::durable::DurabilityOptions;
use crate::limits;

/// The engines that can hold the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EngineKind {
    /// One concurrent trie of B+-trees, shared by all workers.
    #[default]
    Masstree,
    /// One concurrent hash table per database: faster, and without key order.
    Mercury,
    /// A versioned B-tree in persistent memory, which keeps its data itself: no log, no
    /// checkpoints.
    Cdds,
    /// A multi-version B-tree over memnodes, here in one process.
    Minuet,
    /// A `BTreeMap` behind a lock: the oracle of the other engines.
    Reference,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [Self; 5] = [
        Self::Masstree,
        Self::Mercury,
        Self::Cdds,
        Self::Minuet,
        Self::Reference,
    ];

    /// The name that `--engine` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Masstree => "masstree",
            Self::Mercury => "mercury",
            Self::Cdds => "cdds",
            Self::Minuet => "minuet",
            Self::Reference => "reference",
        }
    }

    /// Whether the engine keeps its data itself, in [`Options::pool`]: outside of the memory that
    /// [`Options::memory`] counts, and without a log.
    #[must_use]
    pub const fn has_pool(self) -> bool {
        matches!(self, Self::Cdds)
    }

    /// The engines whose data are in memory, and in a log where they are kept on disk.
    pub fn in_memory() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|kind| !kind.has_pool())
    }

    /// Whether the engine keeps keys in order, which KRANGE, KPREFIX, KCOUNT and KRANGEDEL need.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        match self {
            Self::Masstree | Self::Cdds | Self::Minuet | Self::Reference => true,
            Self::Mercury => false,
        }
    }

    /// The names of the engines that keep keys in order.
    #[must_use]
    pub fn ordered_names() -> String {
        let ordered = Self::ALL.into_iter().filter(|kind| kind.is_ordered());
        ordered.map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// The engine of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Reports how many bytes of memory the process has allocated.
pub type MemoryMeter = fn() -> usize;

/// Settings of a database; each field states its default, range and meaning.
#[derive(Clone)]
pub struct Options {
    /// The engine; default `masstree`.
    pub engine: EngineKind,
    /// Memnodes of the engine `minuet`; 1 to [`limits::MINUET_MEMNODES_MAX`], default 1.
    pub memnodes: u16,
    /// Bytes of its pages; [`limits::MINUET_PAGE_BYTES_MIN`], the default, to
    /// [`limits::MINUET_PAGE_BYTES_MAX`].
    pub page_bytes: usize,
    /// Databases that SELECT reaches; 1 to [`limits::DATABASES_MAX`], default 16.
    pub databases: usize,
    /// Sessions (workers and background threads) at a time; 2 to 1024, default 64.
    pub sessions_max: usize,
    /// Longest key in bytes; 1 to [`pando_engine::limits::KEY_BYTES_MAX`], default the latter.
    pub key_bytes_max: usize,
    /// Longest string or field value in bytes; default 512 MiB.
    pub value_bytes_max: usize,
    /// Most data of a memcached item in bytes; up to
    /// [`pando_protocol::limits::MEMCACHED_ITEM_BYTES_MAX`], default 1 MiB.
    pub item_bytes_max: usize,
    /// Bytes after which a range reply ends with a resume point; default 16 MiB.
    pub reply_bytes_max: usize,
    /// Bytes that were replaced or removed and that readers keep from being reclaimed, at which
    /// writes are refused (from half of it they are slowed); at least 64 KiB, default 256 MiB. Does
    /// not apply to the reference engine.
    pub retired_bytes_max: usize,
    /// The source of time; default the machine's clock.
    pub clock: Arc<dyn Clock>,
    /// What `max_memory` is compared with; default a meter that reads 0.
    pub memory: MemoryMeter,
    /// Where the database is stored; default nowhere: in memory only.
    pub durability: Option<DurabilityOptions>,
    /// Where the pool of [`EngineKind::Cdds`] is, which needs no [`Self::durability`]; default in
    /// memory of the process.
    pub pool: pando_cdds::Options,
    /// Whether it goes on following the database that it has followed ([`crate::Replica`]); default
    /// no. Otherwise its next copy is a full one.
    pub follows: bool,
    /// Seed of RANDOMKEY, HRANDFIELD, scan cursors and cas tokens; default random. Two openings of
    /// one database need different seeds to refuse each other's cas tokens.
    pub seed: u64,
    /// With a seed, the reference engine hits absences and conflicts at random, minuet conflicts,
    /// and commands are repeated: a canary for tests. Default none.
    pub absences: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            memnodes: 1,
            page_bytes: limits::MINUET_PAGE_BYTES_MIN,
            databases: 16,
            sessions_max: 64,
            key_bytes_max: pando_engine::limits::KEY_BYTES_MAX,
            value_bytes_max: pando_engine::limits::COLUMN_BYTES_MAX,
            item_bytes_max: limits::ITEM_BYTES_MAX,
            reply_bytes_max: limits::REPLY_BYTES_MAX,
            retired_bytes_max: pando_masstree::limits::RETIRED_BYTES_MAX,
            clock: Arc::new(SystemClock),
            memory: || 0,
            durability: None,
            pool: pando_cdds::Options::default(),
            follows: false,
            seed: fastrand::u64(..),
            absences: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("engine", &self.engine)
            .field("databases", &self.databases)
            .field("sessions_max", &self.sessions_max)
            .field("key_bytes_max", &self.key_bytes_max)
            .finish_non_exhaustive()
    }
}
