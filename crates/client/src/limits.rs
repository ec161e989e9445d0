//! What a ring and a client may hold.

use std::time::Duration;

pub use pando_ring::limits::{FILE_BYTES_MAX, NAME_BYTES_MAX, NODES_MAX, REPLICAS_MAX, WEIGHT_MAX};

/// Bytes of requests that are sent to a node before their replies are read. A server that waits
/// until replies are taken must not make the client wait until requests are: what is sent fits the
/// socket's buffers. A request that is longer goes by itself.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// How often a request is sent elsewhere because a server says that its key is there. While a range
/// of keys is handed over, two servers may name each other for some milliseconds.
pub const REDIRECTS_MAX: usize = 16;

/// Requests that an asynchronous client sends at once for one batch.
pub const REQUESTS_AT_ONCE: usize = 256;

/// How long an address rests after the first failure to connect.
pub const REST_MIN: Duration = Duration::from_millis(50);

/// How long it rests at most, after many.
pub const REST_MAX: Duration = Duration::from_secs(2);
