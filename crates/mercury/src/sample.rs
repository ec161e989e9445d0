//! Picking a random key (RANDOMKEY and sampling).

use pando_engine::ValueRef;
use pando_engine::limits::SAMPLE_PASSED_MAX;
use pando_sync::epoch::Guard;

use crate::tree::Tree;
use crate::walk::collect;

/// Buckets picked at random before the next ones are tried in turn.
const TRIES: usize = 8;

/// A key of the tree that has a value, chosen by `random`: a random bucket, and one of its keys.
/// Every key can be chosen. Keys of crowded buckets are chosen less often than others, keys behind
/// empty buckets in a sparse table more often. O(1): gives up after [`SAMPLE_PASSED_MAX`] empty
/// buckets in a row.
pub(crate) fn sample<'g>(
    tree: &Tree,
    random: u64,
    guard: Guard<'g>,
) -> Option<(&'g [u8], ValueRef<'g>)> {
    let mut state = random;
    let mut pick = |count: usize| {
        // SplitMix64: each step's choice depends on all bits of the given number.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * count as u128) >> 64) as usize
    };
    let table = tree.table(guard);
    let mut entries = Vec::new();
    let mut class = 0;
    for attempt in 0..TRIES + table.buckets().min(SAMPLE_PASSED_MAX) {
        class = if attempt < TRIES {
            pick(table.buckets())
        } else {
            (class + 1) & table.mask()
        };
        if attempt == TRIES && tree.counts.keys() == 0 {
            return None;
        }
        entries.clear();
        collect(tree, table, class, table.mask(), guard, &mut entries);
        entries.retain(|entry| !entry.is_tombstone());
        if !entries.is_empty() {
            let entry = entries[pick(entries.len())];
            return entry.value().map(|value| (entry.key_part(), value));
        }
    }
    None
}
