//! Bounds of this engine.

use pando_engine::limits::COLUMN_BYTES_MAX;

/// Bytes retired and not yet reclaimed at which writes are to be refused, by default.
pub const RETIRED_BYTES_MAX: usize = 256 << 20;

/// Most keys whose descents are interleaved at once; longer batches go in pieces. Sixteen lines in
/// flight is what one core of the processors at hand sustains; more of them hide instructions too.
pub const BATCH_KEYS_MAX: usize = 32;

/// Commits after which a session maintains its engine under a self-driven clock, and steps that it
/// then takes: one for every few commits, so that dropped trees go as others fill.
pub(crate) const COMMITS_PER_MAINTENANCE: usize = 1 << 14;
/// See [`COMMITS_PER_MAINTENANCE`].
pub(crate) const STEPS_PER_MAINTENANCE: usize = 1 << 12;
/// So often at most, while there is something to do: memory goes back by a few chunks at a time.
pub(crate) const ROUNDS_PER_MAINTENANCE: usize = 64;

// A block's body length is kept in 32 bits.
const _: () = assert!(COLUMN_BYTES_MAX <= u32::MAX as usize);
