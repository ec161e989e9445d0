//! Bounds of the server, with the relations between them.

use std::time::Duration;

/// Most workers.
pub const THREADS_MAX: usize = 512;

/// Threads of one checkpoint.
pub const CHECKPOINT_THREADS_MAX: usize = 8;

/// Database sessions besides those of the workers: maintenance, a checkpoint's, one for each
/// replica and some for the link to a primary, and some to spare.
pub const BACKGROUND_SESSIONS: usize =
    CHECKPOINT_THREADS_MAX + REPLICAS_MAX + pando_db::limits::APPLIERS_MAX + 4;

/// Most replicas that one server feeds: others follow one of them.
pub const REPLICAS_MAX: usize = 16;

/// How long a change of which keys are here waits until what was written is durable.
pub const PLACING_PATIENCE: Duration = Duration::from_mins(1);

/// After how many bytes RESHARD FETCH returns no further value.
pub const FETCHED_BYTES: usize = 4 * 1024 * 1024;

/// Most keys that RESHARD CHANGED returns.
pub const CHANGED_KEYS_MAX: usize = 100_000;

/// Most clients whose MIGRATE is under way: each has a thread.
pub const MIGRATIONS_MAX: usize = 64;

/// Keys that MIGRATE sends before it waits for the answers, and after how many bytes it sends no
/// further key.
pub const MIGRATION_KEYS_MAX: usize = 256;
/// See [`MIGRATION_KEYS_MAX`].
pub const MIGRATION_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How often MIGRATE sends keys again that were written while they were under way.
pub const MIGRATION_ROUNDS_MAX: usize = 32;

/// Range of `repl-backlog-size`; `replica-log-hold` may be less.
pub const BACKLOG_BYTES_MIN: u64 = 16 * 1024;
/// See [`BACKLOG_BYTES_MIN`].
pub const BACKLOG_BYTES_MAX: u64 = 1 << 40;

/// Bytes on their way to a replica that it has not confirmed, and after how many it confirms.
pub const REPLICATION_WINDOW_BYTES: u64 = 2 * 1024 * 1024;
/// See [`REPLICATION_WINDOW_BYTES`].
pub const REPLICATION_CONFIRM_BYTES: u64 = REPLICATION_WINDOW_BYTES / 8;

/// How often each end of a link says that it is there.
pub const REPLICATION_BEAT: Duration = Duration::from_secs(1);

/// Most buckets that a replica may ask for in a check.
pub const CHECK_LIST_MAX: usize = 64;

/// How long a link waits for its own disk before it looks at its socket again.
pub const REPLICATION_DISK_PAUSE: Duration = Duration::from_millis(1);

/// How long a feed waits between two looks whether the worker has taken a frame of a full copy.
pub const REPLICATION_FRAME_PAUSE: Duration = Duration::from_micros(50);

/// How long a feed waits for something to send: while there has been something, and else.
pub const REPLICATION_PAUSE: Duration = Duration::from_millis(5);
/// See [`REPLICATION_PAUSE`].
pub const REPLICATION_IDLE_PAUSE: Duration = Duration::from_millis(20);

/// How long a failover waits for the replica to take over, and how long FAILOVER and SHUTDOWN wait
/// for replicas to have everything unless they say otherwise.
pub const FAILOVER_HAND_OVER: Duration = Duration::from_secs(5);
/// See [`FAILOVER_HAND_OVER`].
pub const REPLICA_PATIENCE: Duration = Duration::from_secs(10);

/// How often the server checks whether it has enough good replicas, in milliseconds.
pub const REPLICATION_LOOK_MS: u64 = 500;

/// How long a link waits for a connection, or for the answer to its first request.
pub const REPLICATION_CONNECT: Duration = Duration::from_secs(5);

/// How long a link that is broken waits before it tries again.
pub const REPLICATION_RETRY: Duration = Duration::from_millis(500);

/// Bytes of one read from the link's socket, and of the longest line before the first frame.
pub const REPLICATION_READ_BYTES: usize = 128 * 1024;
/// See [`REPLICATION_READ_BYTES`].
pub const REPLICATION_LINE_BYTES_MAX: usize = 8 * 1024;

/// Most servers above each other that a link tells.
pub const REPLICATION_CHAIN_MAX: usize = 64;

/// How long a start waits for the first files of the log, in milliseconds.
pub const LOG_FILES_WAIT_MS: u64 = 60_000;

/// How often the server checks whether the allocator holds much free memory, in milliseconds.
pub const HEAP_MS: u64 = 100;

/// How often the keeper checks whether a checkpoint is due, in milliseconds.
pub const KEEPER_MS: u64 = 200;

/// The same while something is written and the log has less space than [`SMALL_ROOM_BYTES`].
pub const KEEPER_SMALL_ROOM_MS: u64 = 20;
/// See [`KEEPER_SMALL_ROOM_MS`].
pub const SMALL_ROOM_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes of a configuration file, files that it may include, and how deep within each other.
pub const CONFIG_FILE_BYTES_MAX: usize = 16 << 20;
/// See [`CONFIG_FILE_BYTES_MAX`].
pub const INCLUDE_FILES_MAX: usize = 1024;
/// See [`CONFIG_FILE_BYTES_MAX`].
pub const INCLUDE_DEPTH_MAX: usize = 16;

/// Errors of a configuration file after which reading stops.
pub const CONFIG_ERRORS_MAX: usize = 100;

/// Most connections that `maxclients` may allow.
pub const CLIENTS_MAX: usize = 1_000_000;

/// Range of `retired-bytes-max`: at least a few turns' worth of replaced values, at most what no
/// machine has.
pub const RETIRED_BYTES_MAX_LEAST: u64 = 1 << 20;
/// See [`RETIRED_BYTES_MAX_LEAST`].
pub const RETIRED_BYTES_MAX_MOST: u64 = 1 << 40;

/// Upper limit of `slowlog-max-len`.
pub const SLOWLOG_ENTRIES_MAX: usize = 100_000;

/// Arguments of a slow command that are kept, and bytes of each.
pub const SLOWLOG_ARGUMENTS_MAX: usize = 32;
/// See [`SLOWLOG_ARGUMENTS_MAX`].
pub const SLOWLOG_ARGUMENT_BYTES_MAX: usize = 128;

/// Requests whose end-to-end latency waits for the end of their batch.
pub const PENDING_LATENCIES_MAX: usize = 4096;

/// A fast command that moves more bytes than this is timed individually.
pub const UNTIMED_BYTES_MAX: usize = 64 * 1024;

/// A slow log threshold below this many microseconds makes every command timed individually.
pub const TIMED_BELOW_US: i64 = 1000;

/// Events that a worker takes from the poller at once.
pub const EVENTS_MAX: usize = 1024;

/// Bytes that one turn reads from one socket, unless a long argument is coming.
pub const READ_BYTES: usize = 16 * 1024;

/// Bytes that one turn of a worker reads from all sockets; small enough for a core's own cache.
pub const ARENA_BYTES: usize = 256 * 1024;

/// Space for bytes when the rest of a long argument is read.
pub const LARGE_READ_BYTES: usize = 1024 * 1024;

/// Longest reply to a request of a memcached client, in bytes. One with many items comes in parts
/// of about [`OUTPUT_PAUSE_BYTES`] plus the item that exceeds it.
pub const MEMCACHED_REPLY_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Bytes of datagrams that one turn of a worker reads, with UDP.
pub const UDP_ARENA_BYTES: usize = 256 * 1024;

/// Most bytes of a reply over UDP, including its frames.
pub const UDP_REPLY_BYTES_MAX: usize = 256 * 1024;

/// Replies over UDP that wait for the disk, and their bytes, before further ones are lost.
pub const UDP_HELD_MAX: usize = 16 * 1024;
/// See [`UDP_HELD_MAX`].
pub const UDP_HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a worker polls for the next request of a lone client before it sleeps, where that pays.
pub const LOOK: Duration = Duration::from_micros(100);

/// Consecutive requests that must have come within [`LOOK`] of the last one before it pays.
pub const LOOK_STREAK: u32 = 32;

/// How often a worker yields to other threads of its core and checks for requests before it sleeps,
/// where that pays.
pub const GIVE_WAY_LOOKS: u32 = 3;

/// Most connections of a worker that yields: with more, there are usually requests at its next
/// check, and sleeping lets them gather.
pub const GIVE_WAY_CONNECTIONS_MAX: usize = 32;

/// How long yielding may delay it: longer, and the threads are not clients that wait for it.
pub const GIVE_WAY: Duration = Duration::from_micros(500);

/// Binary logarithm of the most waits that a worker goes without yielding after yielding in vain.
pub const VAIN_BACKOFF_MAX: u32 = 2;

/// The same after yielding delayed the worker by more than [`GIVE_WAY`], which may be milliseconds.
pub const LATE_BACKOFF: u32 = 10;

/// Requests that are warmed together and executed under one gate.
pub const BATCH_REQUESTS_MAX: usize = 128;

/// Short requests that are worth keeping other sessions out for, and most at a time.
pub const ALONE_REQUESTS_MIN: usize = 8;
/// See [`ALONE_REQUESTS_MIN`].
pub const ALONE_REQUESTS_MAX: usize = 32;
/// Most bytes of such a request.
pub const ALONE_REQUEST_BYTES_MAX: usize = 256;

/// Ranges of arguments for which a worker keeps memory from one turn to the next. A request may
/// have a million.
pub const RANGES_KEPT_MAX: usize = 64 * 1024;

/// Duration of a disk write, in nanoseconds, from which on the worker waits for recently answered
/// clients; below it, waiting costs more than it saves.
pub const SLOW_WRITE_NS: u64 = 250_000;

/// Duration of a write from which on a worker sleeps while it waits for them.
pub const SLEEPING_WRITE_NS: u64 = 4_000_000;

/// Upper limit of the assumed duration of a write when waiting for clients, in nanoseconds: about
/// that of a hard disk.
pub const GROUP_WRITE_NS_MAX: u64 = 20_000_000;

/// Bytes of output from which on a client is not read from, and nothing more is executed for it,
/// until it has taken some.
pub const OUTPUT_PAUSE_BYTES: usize = 256 * 1024;

/// Bytes of monitor lines that wait for one client before it is closed.
pub const MONITOR_OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of monitor lines that wait for a worker before further ones are dropped.
pub const MONITOR_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Smallest limit of the memory of requests before they run, however low `maxmemory` is, in bytes.
pub const REQUESTS_BYTES_MAX_LEAST: u64 = 256 * 1024;

/// Capacity of a new output buffer in bytes.
pub const OUTPUT_BUFFER_BYTES: usize = 1024;

/// Output buffers that a worker keeps for reuse, and the capacity of each in bytes.
pub const POOLED_BUFFERS_MAX: usize = 256;
/// See [`POOLED_BUFFERS_MAX`].
pub const POOLED_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Outdated timers that a worker tolerates, besides two per connection.
pub const TIMERS_SLACK: usize = 1024;

/// How often a worker reclaims the memory of what it has replaced, in milliseconds.
pub const TIDY_MS: u64 = 100;

/// How many times it does so after its last request: a reader elsewhere may hold off the first
/// ones.
pub const TIDY_ROUNDS: u32 = 5;

/// How long a connection that is closed by the server may take to receive its last reply, in
/// milliseconds.
pub const CLOSE_MS: u64 = 10_000;

/// How long a client's input is discarded after its last reply, in milliseconds, so that the reply
/// is not lost to a reset of the connection.
pub const LINGER_MS: u64 = 1000;

/// How long connections stay with the kernel when descriptors have run out, in milliseconds.
pub const ACCEPT_RETRY_MS: u64 = 100;

/// How long a stopping server tries to send its replies, in milliseconds.
pub const SHUTDOWN_FLUSH_MS: u64 = 1000;

/// File descriptors besides those of clients: listeners, and for each worker its sockets and
/// poller, its log with the previous and next segments, and its part of a checkpoint.
#[must_use]
pub const fn descriptors_reserved(threads: usize) -> u64 {
    64 + 8 * threads as u64
}

// A late one is retried less often than one in vain, and pauses can be counted.
const _: () = assert!(VAIN_BACKOFF_MAX <= LATE_BACKOFF && LATE_BACKOFF < u32::BITS);
// Every worker and the background need a session of the engine.
const _: () = assert!(THREADS_MAX + BACKGROUND_SESSIONS <= 1024);
// A frame fits in the window, beside those on their way.
const _: () =
    assert!(4 * pando_db::limits::REPLICATION_FRAME_BYTES as u64 <= REPLICATION_WINDOW_BYTES);
// A batch is warmed as a whole.
const _: () = assert!(BATCH_REQUESTS_MAX <= pando_db::limits::WARM_KEYS_MAX);
// Several of the longest datagrams are read in a turn, and the longest reply can be counted.
const _: () = assert!(UDP_ARENA_BYTES >= 3 * pando_io::DATAGRAM_BYTES_MAX);
const _: () = assert!(UDP_REPLY_BYTES_MAX <= pando_protocol::memcached::datagram::REPLY_BYTES_MAX);
// The longest item can be read.
const _: () =
    assert!(MEMCACHED_REPLY_BYTES_MAX > pando_protocol::limits::MEMCACHED_ITEM_BYTES_MAX + 4096);
// A keeper looks at a small volume more often, and a short file is read at once.
const _: () = assert!(KEEPER_SMALL_ROOM_MS <= KEEPER_MS && READ_BYTES <= LARGE_READ_BYTES);
// Buffers come back to the pool, and a reply ends a batch before it makes its buffer too long.
const _: () = assert!(
    OUTPUT_BUFFER_BYTES <= POOLED_BUFFER_BYTES_MAX && POOLED_BUFFER_BYTES_MAX <= OUTPUT_PAUSE_BYTES
);
// A replica confirms several times before its window is full.
const _: () = assert!(
    4 * REPLICATION_CONFIRM_BYTES <= REPLICATION_WINDOW_BYTES && REPLICATION_CONFIRM_BYTES > 0
);
// What waits of a monitor's lines in the mailbox fits its output.
const _: () = assert!(MONITOR_QUEUE_BYTES_MAX <= MONITOR_OUTPUT_BYTES_MAX);
// The arena holds several reads.
const _: () = assert!(ARENA_BYTES >= 4 * READ_BYTES);

/// Checkpoints taken at once because the log has no space: what the first makes obsolete is removed
/// with the second.
pub const RESCUES_AT_ONCE: usize = 2;

/// Pause between two later ones, while the log still has no space, in milliseconds.
pub const RESCUE_RETRY_MS: u64 = 30_000;

/// The same when something was removed since, in milliseconds.
pub const RESCUE_AGAIN_MS: u64 = 500;
