//! Bounds of this engine.

use pando_engine::limits::{COLUMN_BYTES_MAX, KEY_BYTES_MAX};

/// Default for the bytes retired but not yet reclaimed at which writes are to be refused.
pub const RETIRED_BYTES_MAX: usize = 256 << 20;

/// Most keys that are interleaved at once; longer batches run in pieces.
pub const BATCH_KEYS_MAX: usize = 32;

/// Buckets of an empty table, and the fewest that a table shrinks to.
pub const BUCKETS_MIN: usize = if cfg!(loom) { 1 } else { 8 };

/// A table grows when it holds more than this many entries per bucket. With seven slots a line, and
/// a Poisson distribution, one bucket in seven then needs a second line, which holds one entry in
/// twenty.
pub const ENTRIES_PER_BUCKET_MAX: usize = if cfg!(loom) { 1 } else { 5 };

/// A table shrinks when it holds less than this part of what makes it grow: a quarter. After a
/// resize it holds half of that load, so its entries must double, or halve, before the next one,
/// and as many changes pay for a resize as it moves entries. A smaller part would leave up to a
/// line per entry; a larger one would resize back and forth.
pub const SHRINK_PART: usize = if cfg!(loom) { 1 } else { 4 };

/// Buckets that an insert moves while the table is resized. A table of n buckets grows at 5·n
/// entries into one for 10·n, so four buckets per insert finish long before the next growth.
pub const HELP_BUCKETS: usize = 4;

/// Buckets that move before the progress is published again. Each publication costs every reader
/// one wait for its line; until then a key of these buckets is looked for twice.
pub const PUBLISH_BUCKETS: usize = if cfg!(loom) { 1 } else { 256 };

/// Bytes of a table that one step of maintenance returns to the system.
pub const RELEASE_BYTES: usize = 2 << 20;

/// Most such pieces that one call returns: a client's command may wait for it.
pub const RELEASES_MAX: usize = 4;

// Lengths are kept in 32 bits.
const _: () = assert!(COLUMN_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(KEY_BYTES_MAX <= u32::MAX as usize);
// A table that was just resized holds a half: it neither grows nor shrinks.
const _: () = assert!(SHRINK_PART > 2 || cfg!(loom));
const _: () = assert!(BUCKETS_MIN.is_power_of_two());

/// Of this many removals under a self-driven clock, one checks whether its table is too empty.
pub(crate) const REMOVALS_PER_LOOK: u64 = 1 << 10;
