//! Bounds of a tree.

/// Fewest entries of a node: the paper's fewest live ones, a fifth, are then one.
pub const ENTRIES_MIN: u32 = 5;

/// Most entries of a node.
pub const ENTRIES_MAX: u32 = 1024;

/// Entries of a node unless the caller says otherwise: 32 bytes each, half a page together.
pub const ENTRIES: u32 = 62;

/// Slots of a bucket of a hash table: with the line before them a kilobyte.
pub const BUCKET_SLOTS: u64 = 30;

/// Snapshots that last.
pub const SNAPSHOTS_MAX: usize = 28;

/// Snapshots that end with the process.
pub const HELD_MAX: usize = pando_engine::limits::SNAPSHOTS_MAX;

/// Void ranges that an opened pool may have: half of those that it has room for. The others are for
/// crashes while it is cleaned up.
pub const VOID_RANGES_LEFT: usize = pando_pmem::limits::VOID_RANGES_MAX / 2;

/// Void ranges from which on cleaning up is hurried.
pub(crate) const VOID_RANGES_HURRIED: usize = VOID_RANGES_LEFT / 16;

/// Steps of cleaning up in each call of maintenance: writers wait as long.
pub(crate) const CLEANED_AT_ONCE: usize = 16;

/// Steps after which it is noted how far cleaning has got: a crash loses no more.
pub(crate) const CLEANED_BETWEEN_NOTES: usize = 256;

/// Steps between two commits while an opening cleans up: each may leave one more void range.
pub(crate) const CLEANED_BETWEEN_COMMITS: usize = 4096;

/// Longest key, in bytes: the longest of a database, behind the number of its tree
/// and a deadline.
pub const KEY_BYTES_MAX: usize = 64 * 1024 + 16;

/// Longest value, in bytes: the longest string of a database, and what is stored beside it.
pub const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024 + 32;

/// Bytes of a leaf of so many entries: what a pool is told of its nodes. Before the entries is a
/// byte for the level, and one for each of them.
#[must_use]
pub const fn node_bytes(entries: u32) -> u32 {
    (1 + entries).next_multiple_of(64) + 32 * entries
}
