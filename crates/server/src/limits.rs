//! Bounds of the server, with the relations between them.

/// Most workers.
pub const THREADS_MAX: usize = 512;

/// Database sessions beside those of the workers: maintenance, and one to spare.
pub const BACKGROUND_SESSIONS: usize = 2;

/// Most connections that `maxclients` may allow.
pub const CLIENTS_MAX: usize = 1_000_000;

/// Most entries that `slowlog-max-len` may ask for.
pub const SLOWLOG_ENTRIES_MAX: usize = 100_000;

/// Arguments of a slow command that are remembered, and bytes of each.
pub const SLOWLOG_ARGUMENTS_MAX: usize = 32;
/// See [`SLOWLOG_ARGUMENTS_MAX`].
pub const SLOWLOG_ARGUMENT_BYTES_MAX: usize = 128;

/// Requests whose end-to-end latency waits for the end of their batch.
pub const PENDING_LATENCIES_MAX: usize = 4096;

/// A fast command that moves more bytes than this is timed by itself.
pub const UNTIMED_BYTES_MAX: usize = 64 * 1024;

/// A slow log threshold below this many microseconds makes every command timed by itself.
pub const TIMED_BELOW_US: i64 = 1000;

// Every worker and the background need a session of the engine.
const _: () = assert!(THREADS_MAX + BACKGROUND_SESSIONS <= 1024);
