//! Bounds of keys, values and sessions, with the relations between them.

/// Longest key in bytes that any engine stores; a configuration may lower it.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest string, or hash field value, in bytes.
pub const COLUMN_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Longest hash field name in bytes.
pub const FIELD_BYTES_MAX: usize = 64 * 1024;

/// Columns longer than this many bytes are stored as chunks.
pub const COLUMN_FLAT_BYTES_MAX: usize = 16 * 1024;

/// Bytes of one chunk of a large column.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// Children of an interior node of a large column.
pub const CHUNK_FANOUT: usize = 16;

/// A hash whose packed row would exceed this many bytes becomes a wide row.
pub const PACKED_ROW_BYTES_MAX: usize = 4 * 1024;

/// A leaf of a wide row splits when it exceeds this many bytes (or holds one entry only).
pub const WIDE_LEAF_BYTES_MAX: usize = 2 * 1024;

/// The same of a leaf of a list, whose columns hold runs of elements. A push copies one leaf, and
/// what a leaf takes besides its block is a smaller part of a longer one.
pub const RUN_LEAF_BYTES_MAX: usize = 3 * WIDE_LEAF_BYTES_MAX;

/// Most children of an interior node of a wide row. A change copies one node per level and counts a
/// reference to each of its children, so few children are cheaper than few levels.
pub const WIDE_FANOUT_MAX: usize = 16;

/// Fewest children of an interior node of a wide row, the root excepted.
pub const WIDE_FANOUT_MIN: usize = WIDE_FANOUT_MAX / 4;

/// Most bytes of blocks of dropped leaves that a thread keeps: what is reclaimed at a time.
pub const SPARE_LEAF_BYTES_MAX: usize = 1024 * 1024;

/// Entries without a value, or empty buckets, that a sample passes before it gives up.
pub const SAMPLE_PASSED_MAX: usize = 128;

/// Most snapshots that one engine has at a time.
pub const SNAPSHOTS_MAX: usize = 64;

/// Most sessions that one engine serves at a time.
pub const SESSIONS_MAX: usize = 1024;

// A flat column must fit the copy-on-change cost of one chunk.
const _: () = assert!(COLUMN_FLAT_BYTES_MAX <= CHUNK_BYTES);
/// Most levels of interior nodes of a wide row. One of more would have more leaves than any memory
/// holds.
pub const WIDE_LEVELS_MAX: usize = 24;

// A row becomes wide before a column of it becomes chunked, so packed rows hold flat columns only.
const _: () = assert!(PACKED_ROW_BYTES_MAX < COLUMN_FLAT_BYTES_MAX);
// A leaf of a list is copied as a chunk is, and has short offsets.
const _: () = assert!(RUN_LEAF_BYTES_MAX <= CHUNK_BYTES);
// Halves of a full interior node are above the least size, so that a split needs no merge.
const _: () = assert!(WIDE_FANOUT_MIN.ilog2() as usize * (WIDE_LEVELS_MAX - 1) >= 40);
const _: () = assert!(WIDE_FANOUT_MIN >= 2 && 2 * WIDE_FANOUT_MIN < WIDE_FANOUT_MAX);
