//! Why a pool cannot be opened, or has no room.

use std::io;

use pando_sync::LogEpoch;

use crate::Offset;

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process has the pool open, or this one has.
    #[error("the pool is open already")]
    InUse,
    /// The file system cannot map the file.
    #[error("the file cannot be mapped: {0}")]
    NotMappable(#[source] io::Error),
    /// Stores to the mapping would not be durable when they are flushed.
    #[error("the file system has no direct access (DAX with MAP_SYNC): {0}")]
    NoDirectAccess(#[source] io::Error),
    /// The file does not lie in memory, so a mapping of it would promise nothing.
    #[error("the file does not lie on a tmpfs")]
    NotInMemory,
    /// The processor has no instruction that flushes a line.
    #[error("this processor cannot flush lines to memory")]
    NoFlush,
    /// The processor or the system has no protection keys, or none is left.
    #[error("there is no protection key to be had here: {0}; the pages' own rights would do")]
    NoProtectionKeys(#[source] io::Error),
    /// The memory holds something else.
    #[error("this is no pool of Pando's")]
    Foreign,
    /// The memory is empty, or its pool was never finished: it may be created.
    #[error("there is no pool yet: its creation did not end")]
    Unfinished,
    /// A later version of Pando wrote it.
    #[error("the pool has format {found}; this version of Pando reads formats up to {newest}")]
    Newer {
        /// The format of the pool.
        found: u32,
        /// The newest format there is here.
        newest: u32,
    },
    /// An earlier version of Pando wrote it.
    #[error(
        "the pool has format {found}; this version of Pando reads format {ours}: use the one that \
         wrote it, or load a dump of it into a new pool"
    )]
    Older {
        /// The format of the pool.
        found: u32,
        /// The format that is read here.
        ours: u32,
    },
    /// A checksum is wrong.
    #[error("the pool is damaged at {at}: {what}")]
    Damaged {
        /// Where.
        at: Offset,
        /// What lies there.
        what: &'static str,
    },
    /// The memory is smaller than its pool.
    #[error("the pool was cut short: it has {pool} bytes, and {found} of them are there")]
    Truncated {
        /// What the pool says of itself.
        pool: u64,
        /// What is there.
        found: u64,
    },
    /// The memory is larger than its pool, or another size is asked for.
    #[error("the pool has {pool} bytes, not {wanted}")]
    OtherSize {
        /// What the pool says of itself.
        pool: u64,
        /// What is there, or asked for.
        wanted: u64,
    },
    /// Its nodes have another size.
    #[error("the nodes of the pool have {pool} bytes, not {wanted}")]
    OtherNodes {
        /// What the pool says of itself.
        pool: u32,
        /// What the engine wants.
        wanted: u32,
    },
    /// No pool can have this size.
    #[error("a pool of {bytes} bytes: a size is a multiple of {unit} from {min} to {max}")]
    NoSize {
        /// The size.
        bytes: u64,
        /// Sizes are multiples of this.
        unit: u64,
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// Too many ranges of epochs are void.
    #[error(
        "{ranges} ranges of epochs are void and not cleaned up yet; the pool has no room for more"
    )]
    TooManyVoids {
        /// How many.
        ranges: usize,
    },
    /// Epochs have run out.
    #[error("epoch {epoch} is beyond the last one of a pool")]
    EpochsExhausted {
        /// The epoch.
        epoch: LogEpoch,
    },
}

/// The pool has no room for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool is full: there is no room for {bytes} bytes")]
pub struct Full {
    /// What was asked for.
    pub bytes: u64,
}
