//! What a ring and a client may hold.

use std::time::Duration;

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

/// Bytes of requests that are sent to a node before their replies are read. A server that waits
/// until replies are taken must not make the client wait until requests are: what is sent fits the
/// socket's buffers. A request that is longer goes by itself.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// Requests that an asynchronous client sends at once for one batch.
pub const REQUESTS_AT_ONCE: usize = 256;

/// How long an address rests after the first failure to connect.
pub const REST_MIN: Duration = Duration::from_millis(50);

/// How long it rests at most, after many.
pub const REST_MAX: Duration = Duration::from_secs(2);

const _: () = assert!(
    (WEIGHT_MAX as u64) < 1 << 16,
    "a distance of 48 bits times a weight fits 64 bits"
);
