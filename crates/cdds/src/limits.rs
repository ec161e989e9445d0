//! Bounds of a tree.

pub use pando_pmem::limits::EPOCHS_PER_SECOND;

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

/// Bytes of the names of removed keys in one piece, about: no more are shown under one lock.
pub(crate) const NAMES_BYTES: usize = 4000;

/// Most bytes of such names that one commit writes.
pub(crate) const NAMED_AT_ONCE_MAX: usize = 64 * 1024 * 1024;

/// Pieces of names that a commit forgets besides as many as it makes: writers wait as long.
pub(crate) const NAMES_FORGOTTEN_AT_ONCE: usize = 64;

/// Pieces that are given up at once for want of room.
pub(crate) const NAMES_GIVEN_UP_AT_ONCE: usize = 1024;

/// The share of a pool that such names take at most.
pub(crate) const NAMED_POOL_SHARE: u64 = 64;

/// The part of a pool's bytes that wide rows take in ordinary memory, as they are read, at most.
pub(crate) const DECODED_POOL_SHARE: u64 = 8;

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
