//! Bounds of a pool.

/// The size of a pool is a multiple of this: a page, so that it can be mapped.
pub const POOL_UNIT_BYTES: u64 = 4096;

/// The smallest pool: its head, and a chunk for each of a few sizes.
pub const POOL_BYTES_MIN: u64 = 32 * 1024;

/// The largest pool: what a process can map.
pub const POOL_BYTES_MAX: u64 = 1 << 46;

/// Bits of an epoch.
pub const EPOCH_BITS: u32 = 44;

/// Epochs that may be used up in a second, in the long run.
pub const EPOCHS_PER_SECOND: u64 = 50_000;

const _: () = assert!(
    (1 << EPOCH_BITS) / EPOCHS_PER_SECOND > 11 * 365 * 86_400,
    "epochs last eleven years"
);

/// Ranges of void epochs that a pool can remember: one more for every crash and rollback, one less
/// for each that was cleaned up.
pub const VOID_RANGES_MAX: usize = 252;

/// Epochs by which the durable mark of epochs is raised at a time: it costs a commit, and a restart
/// loses at most so many numbers.
pub const EPOCHS_MARKED: u64 = 4096;

/// Words that the engine may use as it likes.
pub const ROOTS: u64 = 64;

/// Bytes of a chunk, as pools are made: a thousandth of them describes it.
pub const CHUNK_BYTES: u32 = 64 * 1024;

/// The smallest chunk, for tests.
pub const CHUNK_BYTES_MIN: u32 = 1024;

/// The largest chunk: its smallest blocks are numbered in 16 bits.
pub const CHUNK_BYTES_MAX: u32 = 1024 * 1024;

const _: () = assert!(
    CHUNK_BYTES_MAX / 32 < 1 << 16,
    "blocks are numbered in 16 bits"
);

/// Bytes of the journal of a filed pool before it begins anew: what a restart reads at most, unless
/// one commit was larger.
pub const JOURNAL_LAP_BYTES: u64 = 64 << 20;

/// Of so many chunks one is kept back for removals: a full pool can still be emptied.
pub const CHUNKS_PER_RESERVED: u64 = 64;

/// Chunks that are kept back at least, in a pool of many.
pub const RESERVED_MIN: u64 = 4;
