//! Bounds of what is kept on disk, with the relations between them.

/// Bytes of a sector: what a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Bytes of a block: the unit in which the log is written.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes that one read of a file asks for while logs and checkpoints are scanned.
pub const READ_BYTES: usize = 1024 * 1024;

/// Bytes at which a block of a checkpoint is closed.
pub const CHECKPOINT_BLOCK_BYTES: usize = 64 * 1024;

/// Bytes that one writer of a checkpoint buffers before they are written.
pub const CHECKPOINT_BUFFER_BYTES: usize = 512 * 1024;

/// Bytes that one writer of a checkpoint gives to a directory before it goes on in the next one, or
/// this part of what it has written, if that is more.
pub const CHECKPOINT_PIECE_BYTES: u64 = 2 * 1024 * 1024;
/// See [`CHECKPOINT_PIECE_BYTES`].
pub const CHECKPOINT_PIECE_PART: u64 = 1024;

/// Longest payload of a checkpoint's block: one that is nearly full, and then the longest entry
/// that is not cut.
pub const CHECKPOINT_BLOCK_BYTES_MAX: usize = 4 * CHECKPOINT_BLOCK_BYTES;

/// Bytes of a log's segment, unless the options say otherwise.
pub const SEGMENT_BYTES: u64 = 32 * 1024 * 1024;

/// Fewest and most bytes of a segment: recovery holds one in memory for each of its threads.
pub const SEGMENT_BYTES_MIN: u64 = 16 * 1024;
/// See [`SEGMENT_BYTES_MIN`].
pub const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Fewest bytes of a log between two places where a thread that recovers may begin to read. Tests
/// have short logs.
pub(crate) const STRETCH_BYTES: u64 = if cfg!(test) { 256 } else { 64 * 1024 };

/// Most bytes that are written to a log at once.
pub const WRITE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes of zeros that are written at once to a file that is made ahead: small, so that a log's
/// write waits little behind them.
pub const FILL_BYTES: usize = 256 * 1024;

/// Bytes of groups after which a session begins the next frame.
pub const FRAME_BYTES: usize = 64 * 1024;

/// Bytes of groups that a session hands over by copying them; more than these it gives away with
/// their memory.
pub const COPIED_BYTES_MAX: usize = FRAME_BYTES / 2;

/// Most bytes of groups in one frame; a longer group is split.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

/// Bytes handed over to a log after which its logger writes without waiting for the epoch's end.
pub const EARLY_BYTES: usize = 1024 * 1024;

/// Bytes that were handed over and are not yet written, of all logs together, at which sessions
/// wait before they begin a turn, unless the options say otherwise.
pub const PENDING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most logs, and most directories.
pub const LOGS_MAX: usize = 1024;

/// Longest manifest that is read; one of 256 chunks of each of 1024 databases has a sixth of it.
pub const MANIFEST_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Room that is kept for a checkpoint beyond what it is expected to take, in bytes, and as a part
/// of that: its manifest, and what a file system adds.
pub const CHECKPOINT_MARGIN_BYTES: u64 = 64 * 1024;
/// See [`CHECKPOINT_MARGIN_BYTES`].
pub const CHECKPOINT_MARGIN_PART: u64 = 64;

/// Free files that a log keeps when segments are recycled; further ones are removed.
pub const FREE_FILES_MAX: usize = 8;

/// Buffers of sessions that a log keeps for the next ones.
pub const SPARE_BUFFERS_MAX: usize = 64;

/// Largest of these buffers, in bytes: twice the longest frame, as its buffer may have grown.
pub const SPARE_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// How long a log that found no room waits before it tries again, in milliseconds.
pub const ROOM_RETRY_MS: u64 = 100;

/// How long after something was acknowledged and is not yet durable anything else is, in
/// milliseconds: what a crash takes was acknowledged within this time, and whatever passes between
/// the decision to send a reply and its sending.
pub const LATE_MS: u64 = 150;

/// Time that writes to a log lately took, in microseconds, up to which whoever waits for an epoch
/// writes it himself: about that of two switches between threads on a busy machine. Other clients
/// of his thread wait as long.
pub const QUICK_WRITE_US_MAX: u64 = 250;

/// Writes of a block by which the cost of a sync is measured.
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
