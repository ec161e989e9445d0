//! Bounds of requests, and of replies where they are decoded.

/// Longest bulk string in bytes (Redis' `proto-max-bulk-len`).
pub const BULK_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Most arguments of one request.
pub const ARGUMENTS_MAX: usize = 1024 * 1024;

/// Longest inline request, or header line of a frame, in bytes.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Most arguments and longest bulk string before a client has authenticated.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;
/// See [`UNAUTHENTICATED_ARGUMENTS_MAX`].
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Longest line of a memcached command, in bytes: what memcached waits for, plus its end.
pub const MEMCACHED_LINE_BYTES_MAX: usize = 2 * 1024 + 2;

/// Longest line of a memcached command that takes many keys (`get`, `gets`, `gat`, `gats`).
pub const MEMCACHED_GET_LINE_BYTES_MAX: usize = 1024 * 1024;

/// Upper limit of the setting for memcached's largest item, in bytes.
pub const MEMCACHED_ITEM_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Unprocessed bytes that one connection may hold.
pub const QUERY_BUFFER_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Most aggregates that may be open at a time in a reply that is decoded.
pub const REPLY_DEPTH_MAX: usize = 128;

/// Longest line of a reply that is decoded, in bytes.
pub const REPLY_LINE_BYTES_MAX: usize = 1024 * 1024;

/// Longest string of a reply that is decoded, in bytes.
pub const REPLY_BULK_BYTES_MAX: usize = 1024 * 1024 * 1024;

// Ranges of arguments are 32-bit offsets into the query buffer.
const _: () = assert!(QUERY_BUFFER_BYTES_MAX <= u32::MAX as usize);
// The longest bulk string fits the query buffer with its framing.
const _: () = assert!(BULK_BYTES_MAX + INLINE_BYTES_MAX <= QUERY_BUFFER_BYTES_MAX);
// A storage command fits the query buffer with its data.
const _: () =
    assert!(MEMCACHED_LINE_BYTES_MAX + MEMCACHED_ITEM_BYTES_MAX + 2 <= QUERY_BUFFER_BYTES_MAX);
// Whatever was stored can be read.
const _: () = assert!(REPLY_BULK_BYTES_MAX >= BULK_BYTES_MAX);
