//! Bounds of the keyspace, with the relations between them.

use std::time::Duration;

use crate::clock::{Microseconds, Milliseconds};

/// Most databases (SELECT) that a configuration may have.
pub const DATABASES_MAX: usize = 1024;

/// Bytes of keys that have changed since a mover of keys began and was told of none; beyond them it
/// must begin anew.
pub const MOVER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of such keys of a range, before it is looked whether some are there twice.
pub(crate) const MOVED_NAMES_BYTES: usize = 32 * 1024;

/// How long requests wait for keys on their way to another server, in microseconds; then they are
/// refused with TRYAGAIN. A hand-over takes some milliseconds.
pub const PLACE_PATIENCE_US: Microseconds = Microseconds(1_000_000);

/// After how many microseconds such a request looks again.
pub(crate) const PLACE_LOOK_US: Microseconds = Microseconds(1000);

/// Most snapshots at a time that a configuration may have, and the default.
pub const SNAPSHOTS_MAX: usize = pando_engine::limits::SNAPSHOTS_MAX;

/// Longest name of a snapshot, in bytes.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 128;

/// Memnodes of the engine `minuet` in one process, at most.
pub const MINUET_MEMNODES_MAX: u16 = 64;
/// Bytes of its pages, at least.
pub const MINUET_PAGE_BYTES_MIN: usize = pando_minuet::engine::PAGE_BYTES_MIN;
/// Bytes of its pages, at most.
pub const MINUET_PAGE_BYTES_MAX: usize = pando_minuet::limits::PAGE_BYTES_MAX;

/// Milliseconds after which the lease of a snapshot ends whose reader does nothing, by default.
pub const LEASE_MS: u64 = 300_000;

/// Keys that BRANCH MERGE compares and BRANCH RESET changes in one step, at most. A larger one
/// merges as many anew under all gates, and as many of its keys have deadlines.
pub const MERGED_KEYS_MAX: usize = 1 << 18;

/// Bytes of values that BRANCH MERGE keeps from its look at all of them until it writes; it reads
/// the others again.
pub(crate) const MERGED_BYTES_KEPT: usize = 1 << 24;

/// Keys that BRANCH RESET changes where it may exchange all of a branch's pages instead, at most.
pub const RESET_KEYS_MAX: usize = 1 << 12;

/// Keys that a large merge compares in a slice, about.
pub const MERGE_KEYS_PER_SLICE: usize = 64;

/// Keys that have changed on a branch while a large merge into it was built, of which the rest is
/// merged under all gates.
pub const MERGE_NEAR_KEYS: usize = 1024;

/// Times that a large merge follows what is written, before the rest is merged under all gates.
pub const MERGE_ROUNDS_MAX: usize = 32;

/// What names of branches begin with that clients do not see.
pub(crate) const HIDDEN_PREFIX: &[u8] = b"\0merge";

/// The same of those that remember what was merged; behind it is the source's number.
pub(crate) const MARK_PREFIX: &[u8] = b"\0mark";

/// Merges that are remembered; the oldest one is forgotten then.
pub(crate) const MARKS_MAX: usize = 1024;

/// Branches of which one remembers that it has merged them.
pub(crate) const MARKS_OF_BRANCH_MAX: usize = 64;

/// Conflicts that BRANCH MERGE names if its client does not say how many.
pub const CONFLICTS_NAMED: usize = 100;

/// Conflicts that one BRANCH MERGE names, whatever its client says.
pub const CONFLICTS_NAMED_MAX: usize = 1 << 16;

/// Keys that BRANCH DIFF returns if its client does not say how many.
pub const DIFFERENCES_RETURNED: i64 = 1000;

/// Keys that BRANCH DIFF compares in a slice, about.
pub const DIFFERENCES_PER_SLICE: usize = 256;

/// Conflicts after which a command is repeated under all gates.
pub(crate) const CONFLICTS_MAX: u32 = 8;

/// Attempts of a command that only reads, and is no run, to end before something that it has shown
/// expires.
pub(crate) const ALIVE_ATTEMPTS_MAX: u32 = 4;

/// Arguments of a command that is a run beside others where it would need all gates; with more it
/// takes them, since a run costs about twice as much for each key.
pub(crate) const RUN_ARGUMENTS_MAX: usize = 33;

/// The same for the requests of an EXEC.
pub(crate) const RUN_REQUESTS_MAX: usize = 32;

/// Most keys that one turn warms before it executes.
pub const WARM_KEYS_MAX: usize = 128;

/// Most keys of an MSET that are stored while other sessions are kept out.
pub(crate) const KEYS_ALONE_MAX: usize = 128;

/// How often in a row others must have been idle before a session keeps them out for some requests.
pub(crate) const ALONE_IDLE_MIN: u32 = 64;

/// Where others are busy, a session looks again after `2^n` times; the greatest `n`.
pub(crate) const ALONE_BACKOFF_MAX: u32 = 8;

/// A joint update ends when its answers exceed this.
pub const JOINED_REPLY_BYTES_MAX: usize = 32 * 1024;

/// Longest request, in bytes, that is joined with others.
pub const JOINED_REQUEST_BYTES_MAX: usize = 4 * 1024;

/// Microseconds by which a write is postponed while the log has no room.
pub(crate) const LOG_ROOM_WAIT: Microseconds = Microseconds(2000);
/// Milliseconds for which a log is full before writes are refused: a checkpoint of a small volume
/// takes less.
pub(crate) const FULL_LOG_WAIT: Milliseconds = Milliseconds(1000);

/// Microseconds by which each write is delayed while replaced memory is above half of its bound.
pub const SLOW_WRITE: Microseconds = Microseconds(1000);

/// Microseconds after which a batch releases its gates between two requests if others wait for
/// them. Short batches run through: they are not worth two thread switches.
pub const HOLD_MAX: Microseconds = Microseconds(500);

/// Bytes of epochs that are kept in memory for followers, unless configured.
pub const RING_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of a message in one frame to a replica.
pub const REPLICATION_FRAME_BYTES: usize = 64 * 1024;

/// Most bytes of a message to a replica: an epoch with the longest values.
pub const REPLICATION_MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024 * 1024 - 1;

/// Most threads that repeat an epoch, and the fewest records for each: a thread's start costs as
/// much as some dozens of them. Epochs are as long as that where a replica is behind.
pub const APPLIERS_MAX: usize = 4;
/// See [`APPLIERS_MAX`].
pub(crate) const APPLY_RECORDS_MIN: usize = 4096;

/// How long a replica, or a source, works before it reclaims what its sessions have replaced, and
/// how often it does so behind the last work: that may take apart the free blocks of all sessions,
/// which are then no longer in the cache.
pub(crate) const TIDY_PAUSE: Microseconds = Microseconds(100_000);
/// See [`TIDY_PAUSE`].
pub(crate) const TIDY_ROUNDS: u8 = 4;

/// Bytes of memory for an epoch's records that are kept for the next one.
pub(crate) const APPLY_KEPT_BYTES: usize = 1024 * 1024;

/// How long a replica that is behind waits for what was written to be in files.
pub(crate) const FILES_PATIENCE: Duration = Duration::from_secs(30);

/// Former histories that a database remembers: a replica that was away for more openings takes a
/// full copy.
pub const HISTORIES_MAX: usize = 64;
/// Longest file of histories that is read.
pub const HISTORIES_BYTES_MAX: u64 = 16 * 1024;

/// Entries of a full copy that are read, or written, in one turn; bytes that end a slice.
pub(crate) const COPY_SLICE_ENTRIES: usize = 1024;

/// See [`COPY_SLICE_ENTRIES`].
pub(crate) const COPY_SLICE_BYTES: usize = 128 * 1024;

/// Most entries of a difference for a replica that is behind, and bytes: it is repeated as one
/// change, under all gates.
pub(crate) const DIFFERENCE_ENTRIES_MAX: usize = if cfg!(test) { 1000 } else { 1024 * 1024 };

/// See [`DIFFERENCE_ENTRIES_MAX`].
pub(crate) const DIFFERENCE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that end a part of one.
pub(crate) const DIFFERENCE_PART_BYTES: usize = if cfg!(test) { 1 } else { COPY_SLICE_BYTES };

/// Digests by which two databases are compared, each of about as many keys; how many that differ
/// are looked into.
pub(crate) const CHECK_BUCKETS: usize = 4096;

/// See [`CHECK_BUCKETS`].
pub(crate) const CHECK_LISTED_MAX: usize = 16;

/// Entries that one slice of a long command (KEYS, KCOUNT, …) looks at before it lets others run.
pub const SLICE_ENTRIES_MAX: usize = 4096;

/// Bytes that one slice of BITCOUNT or BITPOS looks at before it lets others run.
pub const SLICE_BYTES_MAX: usize = 1024 * 1024;

/// Resume points of SCAN kept at a time; the oldest are dropped first.
pub const CURSORS_MAX: usize = 16 * 1024;

/// Bytes of the keys and fields that these resume points name.
pub const CURSOR_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes that the strings of one RESTORE payload may unfold to, in total.
pub const RESTORED_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Default of `item_bytes_max`: most data of a memcached item, in bytes.
pub const ITEM_BYTES_MAX: usize = 1024 * 1024;

/// Default of `reply_bytes_max`: bytes after which a range reply ends with a resume point.
pub const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest string of a reply to KDUMP, in bytes; longer entries come in several strings.
pub const DUMP_PIECE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes of a reply to HRANDFIELD with a negative count, which may ask for any number of
/// fields whatever the size of the hash.
pub const RANDOM_REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Smallest `retired_bytes_max`: what a few ordinary requests replace must not stop writes.
pub const RETIRED_BYTES_MAX_LEAST: usize = 64 * 1024;

/// Most bytes that SORT finds: GET may name a long string for every element.
pub const SORTED_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Default LIMIT of KRANGE and KPREFIX, in items.
pub const RANGE_LIMIT: usize = 1000;

/// Requests that one MULTI may queue, and their bytes.
pub const TRANSACTION_REQUESTS_MAX: usize = 1024 * 1024;
/// See [`TRANSACTION_REQUESTS_MAX`].
pub const TRANSACTION_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Keys that one client may watch at a time, and their bytes.
pub const WATCHED_KEYS_MAX: usize = 64 * 1024;
/// See [`WATCHED_KEYS_MAX`].
pub const WATCHED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Milliseconds between rounds of maintenance, each of which begins a log epoch.
pub const EPOCH_INTERVAL_MS: u64 = 50;

/// Milliseconds between log epochs while something is written and nobody waits for the disk. This
/// leaves a slow disk part of the time that mode `interval` promises.
pub const LOG_INTERVAL_MS: u64 = 25;

/// Milliseconds without a write after which the log records that its last epoch is durable.
pub const LOG_REST_MS: u64 = 500;

/// Milliseconds that the end of an epoch waits for a command that holds all gates.
pub const TICK_PATIENCE_MS: u64 = 20;

/// Bytes of a segment of the log, unless the configuration says otherwise.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Fewest segments of one log on a volume: on a small one they are smaller.
pub const SEGMENTS_PER_VOLUME: u64 = 64;

/// The smallest such segment, in bytes; their sizes are multiples of it.
pub const SEGMENT_BYTES_SMALLEST: u64 = 256 * 1024;
/// See [`SEGMENT_BYTES_SMALLEST`].
pub const SEGMENT_UNIT_BYTES: u64 = 64 * 1024;

/// Bytes handed over to the log and not yet written at which turns wait, unless configured.
pub const PENDING_LOG_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a written checkpoint waits for its last epoch when the log is full, in milliseconds:
/// long enough for the log to ask for space several times.
pub const SETTLE_PATIENCE_MS: u64 = 500;

/// Checkpoints that are kept, the newest included.
pub const CHECKPOINTS_KEPT: usize = 2;

/// Keys of a range that one thread of a checkpoint takes at a time, and the most ranges of a tree.
pub const CHECKPOINT_RANGE_KEYS: u64 = 64 * 1024;
/// See [`CHECKPOINT_RANGE_KEYS`].
pub const CHECKPOINT_RANGES_MAX: usize = 256;

/// Bytes that a thread of a checkpoint writes to one directory before it continues in the next.
/// Tests have little data.
pub const CHECKPOINT_PIECE_BYTES: u64 = if cfg!(test) {
    1024
} else {
    pando_durability::limits::CHECKPOINT_PIECE_BYTES
};

/// Default percentage of its time in which a thread of a checkpoint works while requests are
/// served.
pub const CHECKPOINT_SHARE_PERCENT: u32 = 50;

/// Shortest rest of a checkpoint that is worth a sleep, in microseconds.
pub const CHECKPOINT_REST_US_MIN: u64 = 500;

/// Longest pause that a checkpoint makes at a time to keep its pace, in milliseconds.
pub const CHECKPOINT_PACE_MS_MAX: u64 = 200;

/// Bytes of the log that recovery reads at a time before restoring them, for each thread. Tests
/// have short logs.
pub const REPLAY_WAVE_BYTES: usize = if cfg!(test) { 4096 } else { 8 * 1024 * 1024 };

/// Bytes of the log that one of these threads reads at a time.
pub const REPLAY_PIECE_BYTES: usize = if cfg!(test) { 1024 } else { 512 * 1024 };

/// Partitions of a wave's keys, for each thread: more than one, so that no thread is left with a
/// large one at the end.
pub(crate) const REPLAY_PARTITIONS: usize = 4;

/// Records whose keys are prefetched together before they are restored.
pub(crate) const REPLAY_WARM_RECORDS: usize = 64;

/// How long a WATCH on an absent key holds tombstones back, in milliseconds. A later transaction is
/// refused if it cannot be told whether the key existed in between.
pub const WATCH_AGE_MAX_MS: u64 = 60_000;

/// Bytes of tombstones, of any keys, that such a WATCH holds back: each counts as its key and what
/// the engine remembers besides it.
pub const WATCH_BURIED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// About what a removed key leaves behind besides its own bytes.
pub(crate) const TOMBSTONE_BYTES: usize = 64;

/// Rounds of maintenance in [`WATCH_AGE_MAX_MS`].
pub(crate) const WATCH_AGE_MAX_ROUNDS: u64 = WATCH_AGE_MAX_MS / EPOCH_INTERVAL_MS;

/// Keys that the expirer removes before it releases its gate.
pub const EXPIRE_KEYS_MAX: usize = 64;

/// Keys of branches, and branches' databases, that the expirer looks at in a round.
pub(crate) const EXPIRE_LOOKS_MAX: usize = 1024;

/// Fields of one hash that the expirer removes at a time.
pub const EXPIRE_FIELDS_MAX: usize = 256;

/// Keys that one call evicts before the gate is released.
pub const EVICT_KEYS_MAX: usize = 64;

/// Keys that a command's call evicts wherever they are while memory is short only because of
/// scattered free blocks: about what the command itself takes.
pub(crate) const EVICT_SCATTERED_KEYS_MAX: usize = 1;

/// Keys that such a call looks at.
pub const EVICT_STEPS_MAX: usize = 512;

/// Keys that a hand passes at a time.
pub(crate) const EVICT_WINDOW: usize = 32;

/// Keys that such a call passes in search of memory that is being emptied.
pub(crate) const EMPTY_STEPS_MAX: usize = 1024;

/// Calls that one command makes before it is postponed or refused.
pub const EVICT_ROUNDS_MAX: usize = 16;

/// Microseconds by which a command is postponed while evicted memory is being reclaimed, and after
/// which it is no longer postponed.
pub(crate) const MEMORY_WAIT: Microseconds = Microseconds(1000);
/// See [`MEMORY_WAIT`].
pub(crate) const MEMORY_WAIT_MAX: Microseconds = Microseconds(1_000_000);
/// How often a request for which an engine's pool has no block runs at least, before it is refused.
pub(crate) const ROOM_RUNS_MIN: usize = 64;

/// For each of so many bytes that it wants, it runs once more while neighbouring chunks are emptied
/// for it: half a chunk.
pub(crate) const ROOM_BYTES_A_RUN: usize = 32 * 1024;

/// The share of the limit that eviction leaves free, and its bound in bytes.
pub(crate) const EVICT_HEADROOM_SHARE: usize = 64;
/// See [`EVICT_HEADROOM_SHARE`].
pub(crate) const EVICT_HEADROOM_MAX: usize = 16 * 1024 * 1024;

/// The share of an engine's pool that eviction leaves free.
pub(crate) const POOL_SPARE_SHARE: usize = 16;

/// Epochs of a pool that are saved up at most while fewer end than may: half an hour's.
pub(crate) const POOL_EPOCHS_SAVED: u64 = 1800 * pando_cdds::limits::EPOCHS_PER_SECOND;

/// The share of the pool up to which that grows while writes find no block: what one request can
/// cost the others.
pub(crate) const POOL_SPARE_SHARE_MAX: usize = 3;

/// The share of the limit by which the memory in use may exceed it while evicted memory is being
/// reclaimed.
pub(crate) const EVICT_EXCESS_SHARE: usize = 32;

/// The share of the limit that no value can take: what the process needs without any key, and a
/// value's overhead.
pub(crate) const UNFIT_SHARE: usize = 4;

/// What may always be written, however low the limit is.
pub(crate) const FIT_BYTES_MAX_LEAST: usize = 128 * 1024;

/// The share of the requests' memory that remains when one request alone holds all it may: one
/// read, and the record of its arguments.
pub(crate) const REQUEST_SLACK_SHARE: usize = 8;

/// Steps of engine maintenance before the gate is released.
pub const MAINTAIN_STEPS_MAX: usize = 256;

/// Keys with a deadline that are listed at a time after a start with a pool: a pause for writers.
pub(crate) const FILLED_ENTRIES_MAX: usize = 256;

/// Entries of dropped trees that the expiry index frees at a time.
pub(crate) const DROPPED_ENTRIES_MAX: usize = 4096;

/// Keys that a list of memcached's items looks at.
pub(crate) const MEMCACHED_LIST_STEPS_MAX: usize = 100_000;

// Indexes of warmed keys fit a byte, one of whose values means none.
const _: () = assert!(WARM_KEYS_MAX < u8::MAX as usize);
// A WATCH lasts some rounds at least, so that the horizon's steps do not break it.
const _: () = assert!(WATCH_AGE_MAX_ROUNDS > 10);
// An item is a string.
const _: () = assert!(
    pando_protocol::limits::MEMCACHED_ITEM_BYTES_MAX <= pando_engine::limits::COLUMN_BYTES_MAX
);
// memcached's keys are keys.
const _: () =
    assert!(pando_protocol::memcached::KEY_BYTES_MAX <= pando_engine::limits::KEY_BYTES_MAX);
// The longest key alone can be watched.
const _: () = assert!(WATCHED_BYTES_MAX > pando_engine::limits::KEY_BYTES_MAX);

// A resume point of the longest key and field is kept at least until the next one is made.
const _: () = assert!(
    2 * (pando_engine::limits::KEY_BYTES_MAX + pando_engine::limits::FIELD_BYTES_MAX)
        < CURSOR_BYTES_MAX / 2
);
// Epochs end often enough that a quick disk is never late, and what a crash loses of an `interval`
// is less than the 200 ms that are promised.
const _: () = assert!(
    LOG_INTERVAL_MS + TICK_PATIENCE_MS < pando_durability::limits::LATE.0
        && pando_durability::limits::LATE.0 < 200
);
// A sweep for victims is several windows, so that those that are found first go first.
const _: () = assert!(EVICT_WINDOW < EVICT_STEPS_MAX);
// A wave has several pieces, so that every thread has one.
const _: () = assert!(REPLAY_PIECE_BYTES < REPLAY_WAVE_BYTES);
// Segments of every size that a configuration chooses are ones that the log takes.
const _: () = assert!(
    SEGMENT_BYTES <= pando_durability::limits::SEGMENT_BYTES_MAX
        && SEGMENT_BYTES_SMALLEST >= pando_durability::limits::SEGMENT_BYTES_MIN
        && SEGMENT_UNIT_BYTES.is_multiple_of(pando_durability::limits::BLOCK_BYTES as u64)
);
// The chunks of all databases, of 40 bytes each, take half of a manifest at most: the rest is for
// pieces.
const _: () = assert!(
    (CHECKPOINT_RANGES_MAX * DATABASES_MAX * 40) as u64
        <= pando_durability::limits::MANIFEST_BYTES_MAX / 2
);
// The longest string passes DUMP and RESTORE.
const _: () = assert!(pando_engine::limits::COLUMN_BYTES_MAX <= RESTORED_BYTES_MAX);
