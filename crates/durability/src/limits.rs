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

/// Longest payload of a checkpoint's block: one that is nearly full, and then the longest entry
/// that is not cut.
pub const CHECKPOINT_BLOCK_BYTES_MAX: usize = 4 * CHECKPOINT_BLOCK_BYTES;

const _: () = assert!(
    BLOCK_BYTES.is_multiple_of(SECTOR_BYTES),
    "a block is whole sectors"
);
const _: () = assert!(
    BLOCK_BYTES.is_multiple_of(pando_io::file::ALIGNMENT),
    "a block may be written past the page cache"
);
