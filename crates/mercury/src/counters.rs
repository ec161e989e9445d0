//! What sessions count: one set of counters per session, written by it alone.

pando_chassis::counters! {
    /// Lines that continue a full bucket.
    overflow_lines,
    /// Buckets moved to a larger or smaller table so far.
    moves_total,
    /// Tables that have grown so far.
    growths_total,
    /// Tables that have shrunk so far.
    shrinks_total,
    /// Operations that found their bucket moved and continued in the next table, so far.
    moved_retries,
    /// Interleaved batches so far.
    batches_total,
    /// Keys in interleaved batches so far.
    batch_keys_total,
}
