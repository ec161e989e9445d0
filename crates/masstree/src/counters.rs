//! What sessions count: one set of counters per session, written by it alone.

pando_chassis::counters! {
    /// Border nodes of full width.
    border_nodes,
    /// Border nodes of few slots, the roots of young layers.
    young_nodes,
    /// Interior nodes.
    interior_nodes,
    /// Layers below the first one.
    layers,
    /// Entries in border nodes: values, tombstones and links to layers.
    entries,
    /// Splits of border and interior nodes so far.
    splits_total,
    /// Border and interior nodes removed because they were empty, so far.
    node_removals_total,
    /// Layers removed because they were empty, so far.
    layer_removals_total,
    /// Layers of one key folded back into the entry above, so far.
    layer_folds_total,
    /// Large rows that were taken and changed in place so far.
    rows_in_place_total,
    /// Values that were overwritten by others as long so far.
    overwritten_total,
    /// Reads of a node repeated because of an insert, so far.
    local_retries,
    /// Descents that a split or removal sent back to a root, so far.
    root_retries,
    /// Interleaved batches so far.
    batches_total,
    /// Of these, batches of up to 2 keys.
    batches_up_to_2_total,
    /// Batches of up to 8 keys, smaller ones included.
    batches_up_to_8_total,
    /// Batches of up to 16 keys, smaller ones included; the others have up to 32.
    batches_up_to_16_total,
    /// Keys in interleaved batches so far.
    batch_keys_total,
}
