//! Bounds of the data on disk, with the relations between them.

use pando_sync::Milliseconds;

/// Bytes of a sector: a disk writes it whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Bytes of a block: the unit in which the log is written.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes requested per read while logs and checkpoints are scanned.
pub const READ_BYTES: usize = 1024 * 1024;

/// Bytes at which a block of a checkpoint is closed.
pub const CHECKPOINT_BLOCK_BYTES: usize = 64 * 1024;

/// Bytes that one writer of a checkpoint buffers before writing them.
pub const CHECKPOINT_BUFFER_BYTES: usize = 512 * 1024;

/// Bytes that one writer of a checkpoint writes to a directory before it continues in the next one,
/// or this part of what it has written, if that is more.
pub const CHECKPOINT_PIECE_BYTES: u64 = 2 * 1024 * 1024;
/// See [`CHECKPOINT_PIECE_BYTES`].
pub const CHECKPOINT_PIECE_PART: u64 = 1024;

/// Longest payload of a checkpoint's block: a nearly full one plus the longest entry that is not
/// split.
pub const CHECKPOINT_BLOCK_BYTES_MAX: usize = 4 * CHECKPOINT_BLOCK_BYTES;

/// Bytes of a log segment, unless the options say otherwise.
pub const SEGMENT_BYTES: u64 = 32 * 1024 * 1024;

/// Bounds of a segment's bytes: recovery holds one in memory for each of its threads.
pub const SEGMENT_BYTES_MIN: u64 = 16 * 1024;
/// See [`SEGMENT_BYTES_MIN`].
pub const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Fewest bytes of a log between two places where a recovery thread may begin to read. Tests have
/// short logs.
pub(crate) const STRETCH_BYTES: u64 = if cfg!(test) { 256 } else { 64 * 1024 };

/// Most bytes that are written to a log at once.
pub const WRITE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes of zeros written at once to a file that is made ahead: few, so that a write of the log
/// waits little behind them.
pub const FILL_BYTES: usize = 256 * 1024;

/// Bytes of groups after which a session begins the next frame.
pub const FRAME_BYTES: usize = 64 * 1024;

/// Bytes of groups that a session hands over by copying them; beyond that it hands over their
/// memory.
pub const COPIED_BYTES_MAX: usize = FRAME_BYTES / 2;

/// Most bytes of groups in one frame; a longer group is split.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

/// The same where there are no frames, for followers alone.
pub const RING_GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes handed over to a log after which its logger writes without waiting for the epoch's end.
pub const EARLY_BYTES: usize = 1024 * 1024;

/// Bytes handed over and not yet written, of all logs together, at which sessions wait before they
/// begin a turn, unless the options say otherwise.
pub const PENDING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most logs, and most directories.
pub const LOGS_MAX: usize = 1024;

/// Longest manifest that is read; one of 256 chunks of each of 1024 databases has a sixth of it.
pub const MANIFEST_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Space kept for a checkpoint beyond its expected size, in bytes and as a part of that size: its
/// manifest, and the file system's overhead.
pub const CHECKPOINT_MARGIN_BYTES: u64 = 64 * 1024;
/// See [`CHECKPOINT_MARGIN_BYTES`].
pub const CHECKPOINT_MARGIN_PART: u64 = 64;

/// Free files that a log keeps when segments are recycled; further ones are removed.
pub const FREE_FILES_MAX: usize = 8;

/// Session buffers that a log keeps for reuse.
pub const SPARE_BUFFERS_MAX: usize = 64;

/// Largest of these buffers, in bytes: twice the longest frame, as its buffer may have grown.
pub const SPARE_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// How long a log that found no space waits before it tries again, in milliseconds.
pub const ROOM_RETRY_MS: u64 = 100;

/// If something was acknowledged this long ago and is still not durable, nothing else
/// is acknowledged before it is durable. So a crash takes only what was acknowledged within this
/// time, plus the time between the decision to send a reply and its sending.
pub const LATE: Milliseconds = Milliseconds(150);

/// Recent duration of log writes, in microseconds, up to which a thread that waits for an epoch
/// writes it itself: about that of two thread switches on a busy machine. Other clients of the
/// thread wait as long.
pub const QUICK_WRITE_US_MAX: u64 = 250;

/// Writes of a block used to measure the cost of a sync.
pub const SYNC_SAMPLES: usize = 32;

const _: () = assert!(
    BLOCK_BYTES.is_multiple_of(SECTOR_BYTES),
    "a block is whole sectors"
);
const _: () = assert!(
    BLOCK_BYTES.is_multiple_of(pando_io::file::ALIGNMENT),
    "a block may be written past the page cache"
);
const _: () = assert!(
    FRAME_BYTES <= FRAME_BYTES_MAX,
    "groups of a frame fit in it"
);
const _: () = assert!(
    2 * FRAME_BYTES_MAX <= WRITE_BYTES_MAX,
    "the longest frame, with its header, is written at once"
);
const _: () = assert!(
    SEGMENT_BYTES_MIN >= 4 * BLOCK_BYTES as u64,
    "a header, and a frame of a quarter with its own header and padding, fit in a segment"
);
