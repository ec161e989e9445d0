//! Bounds of this engine.

use pando_engine::limits::COLUMN_BYTES_MAX;

/// Bytes retired and not yet reclaimed at which writes are to be refused, by default.
pub const RETIRED_BYTES_MAX: usize = 256 << 20;

/// Most keys whose descents are interleaved at once; longer batches go in pieces. Sixteen lines in
/// flight is what one core of the processors at hand sustains; more of them hide instructions too.
pub const BATCH_KEYS_MAX: usize = 32;

// A block's body length is kept in 32 bits.
const _: () = assert!(COLUMN_BYTES_MAX <= u32::MAX as usize);
