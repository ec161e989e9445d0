//! What a ring may hold.

/// Nodes of a ring.
pub const NODES_MAX: usize = 1024;

/// Replicas of a node.
pub const REPLICAS_MAX: usize = 16;

/// Bytes of a node's name.
pub const NAME_BYTES_MAX: usize = 255;

/// The weight of a node; the smallest is 1.
pub const WEIGHT_MAX: u32 = 65_535;

/// Bytes of a ring file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Ranges of keys: a resharding hands over one after the other. More make each shorter and the
/// whole slower: each costs a few writes to disk on its servers.
pub const RANGES: usize = 1024;

const _: () = assert!(
    (WEIGHT_MAX as u64) < 1 << 16,
    "a distance of 48 bits times a weight fits 64 bits"
);
