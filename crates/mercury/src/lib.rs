//! Mercury: one chained hash table per tree, shared by all cores.
//!
//! After "A Bottom-Up Approach to Building a High Performance In-Memory Key-Value Store" (Mercury,
//! Gandhi et al., `DaMoN` 2013): minimise the memory accesses of an operation, and its
//! synchronisation. A bucket is a cache line that holds its lock, its *hasmoved* bit and the tagged
//! pointers of its entries; an entry is one block with key and value. A hit reads those two.
//!
//! | section of the paper | here |
//! |---|---|
//! | 2.1 layout: chained hashing, chains near 1; pairs apart from the table | `bucket`, `pando_block` |
//! | 2.2 concurrency: a lock per bucket, none for the table | `bucket`, `update` |
//! | 3, figure 2: lock, *hasmoved* and pointer in one place; the pair in one block | `bucket`, `pando_block` |
//! | 3 which of two tables: the counter of moved buckets, then *hasmoved* | `find`, `walk` |
//! | 3 expansion: initialisation, re-hashing bucket by bucket, termination | `resize`, `table`, `task` |
//! | 3 thread-locks at the two changes of state | not needed, see HR1 next-once to HR4 old-table-outlives-pins in `resize` |
//! | 3 pools per thread, large chunks; 4 huge pages | `pando_memory::pool`, [`Options::pages`] |
//! | 4.1 memory accesses of a get | [`Mercury::line_model`] |
//! | 4.1 kinds of locks; gets while the table expands | [`MercurySession::get_locked`], `pando-bench hash` |
//! | 4.2 YCSB mixes | `pando-bench hash` and its report's cells `mercury-4` to `-6` |
//! | 5 to do: memory that serves all threads | `pando_memory::pool`, blocks go back by depots |
//! | 5 to do: persistence | not here: `pando_durability`, told of commits by `update`'s hook |
//!
//! Departures, each with its reason in the module:
//! - a bucket holds seven pointers instead of one, so chains stay near one line at five times the
//!   entries per bucket, and entries need no link of their own (`bucket`);
//! - reads take no lock (`find`), and values are copied on change (`pando_block`);
//! - tables also shrink (`resize`);
//! - there is no expander thread: inserts and `maintain` move buckets (`resize`);
//! - a removed key keeps an entry with its version for a while (`task`).
//!
//! Beyond the paper: interleaved batches (`batch`), SCAN (`walk`), a random key (`sample`), entries
//! that move to other memory (`update`).
//!
//! There is one table per tree, found through a directory, rather than one for all with the tree's
//! number hashed into the key. So dropping a tree, counting its keys, walking it and picking one of
//! its keys concern that tree's table only. The price is small: a few hundred bytes for an empty
//! tree and two loads from lines that stay in the cache. Partitioning by thread, which §2.2 leaves
//! for later, is not done: any session works on any bucket, so skew costs nothing.
//!
//! Deliberately absent: key order, logging, expiry, multi-key atomicity, a thread of its own.

mod batch;
mod bucket;
mod canary;
mod context;
mod counters;
mod engine;
mod find;
pub mod limits;
mod resize;
mod sample;
mod session;
mod snapshot;
mod table;
mod task;
mod tree;
mod update;
mod walk;

pub use engine::{LineModel, Mercury, Options};
pub use pando_memory::pool::Pages;
pub use session::MercurySession;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
