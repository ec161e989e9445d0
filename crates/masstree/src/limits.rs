//! Bounds of this engine.

use pando_engine::limits::COLUMN_BYTES_MAX;

/// Default for the bytes retired but not yet reclaimed at which writes are to be refused.
pub const RETIRED_BYTES_MAX: usize = 256 << 20;

/// Most keys whose descents are interleaved at once; longer batches run in pieces. A core of
/// today's processors sustains sixteen lines in flight; more keys also hide instructions.
pub const BATCH_KEYS_MAX: usize = 32;

// A block's body length is kept in 32 bits.
const _: () = assert!(COLUMN_BYTES_MAX <= u32::MAX as usize);
