//! Walking a tree by a stateless cursor (SCAN), complete while the table is resized.
//!
//! A cursor stands for the keys still to be shown. Read a key's hash with its bits reversed as a
//! fraction between 0 and 1, and the cursor likewise. A bucket of a table with 2^k buckets, whose
//! number is the lowest k bits of the hash, is then the interval of length 2^-k that begins at its
//! number reversed. This holds for tables of any size, so intervals are nested. One step shows the
//! interval that contains the cursor, at the smaller of the tables in use, and returns the
//! interval's end: addition with the carry running from the highest bit of the mask downwards.
//! Redis walks its dictionaries in this way. The paper has no listing of keys.
//!
//! Invariants:
//! - **HW1 step-shows-range** A step that is given the fraction f and returns g shows every key
//!   between f and g that was present throughout the step; f < g, or g is 0, the end. So the steps
//!   of a walk cover everything from 0 to 1, whatever sizes the table had in between: the interval
//!   that a step shows begins at f or before. Keys before f in it are shown again.
//! - **HW2 moved-from-next** A moved bucket is shown from the next table, read *after* the mark was
//!   seen; any other bucket from where it is. A key that was present throughout is in one of the
//!   two.
//!
//! Deliberately absent: order, and a memory of what was shown. A key can be shown twice if the
//! table's size has changed.

use pando_block::BlockRef;
use pando_engine::ValueRef;
use pando_sync::epoch::Guard;

use crate::canary::Fault;
use crate::table::Table;
use crate::tree::Tree;

/// Shows the values of one interval; returns the cursor of the next, 0 at the end.
pub(crate) fn walk(
    tree: &Tree,
    cursor: u64,
    guard: Guard<'_>,
    mut visit: impl FnMut(&[u8], ValueRef<'_>),
) -> u64 {
    let (table, mask) = (tree.table(guard), step_mask(tree, guard));
    let mut entries = Vec::new();
    collect(
        tree,
        table,
        cursor as usize & mask,
        mask,
        guard,
        &mut entries,
    );
    for entry in entries {
        if let Some(value) = entry.value() {
            visit(entry.key_part(), value);
        }
    }
    if tree.canary.is(Fault::PlainCursor) {
        return (cursor + 1) & mask as u64;
    }
    following(cursor, mask as u64)
}

/// The mask of the smaller of the tables in use, whose interval a step shows.
pub(crate) fn step_mask(tree: &Tree, guard: Guard<'_>) -> usize {
    let table = tree.table(guard);
    let next = table.next(guard);
    next.map_or(table.mask(), |next| next.mask().min(table.mask()))
}

/// The end of the interval of `mask` that contains `cursor` (HW1).
pub(crate) fn following(cursor: u64, mask: u64) -> u64 {
    // The bits beyond the mask are ones, so that the carry enters at the mask's highest bit.
    let end = (cursor | !mask)
        .reverse_bits()
        .wrapping_add(1)
        .reverse_bits();
    debug_assert!(
        end == 0 || end.reverse_bits() > cursor.reverse_bits(),
        "HW1"
    );
    end
}

/// Collects the entries whose hashes end like `class` under `mask` (HW2), and perhaps others.
pub(crate) fn collect<'g>(
    tree: &Tree,
    table: &'g Table,
    class: usize,
    mask: usize,
    guard: Guard<'g>,
    entries: &mut Vec<BlockRef<'g>>,
) {
    let checked = !tree.canary.is(Fault::WalkWithoutMoved);
    let mut merged = None;
    // A table smaller than the class has one bucket that holds it, among others.
    let first = class & table.mask();
    for index in (first..table.buckets()).step_by(mask + 1) {
        if table.bucket(index).snapshot(entries, checked, guard) {
            continue;
        }
        let next = table.next(guard).expect("a bucket moves to a table (HR1)");
        if next.buckets() > table.buckets() {
            collect(tree, next, index, table.mask(), guard, entries);
        } else {
            // Several buckets move into one of a smaller table: it is shown once, after them.
            merged = Some(next);
        }
    }
    if let Some(next) = merged {
        collect(tree, next, class, mask, guard, entries);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// HW1 in numbers: fractions grow, and intervals cover everything without gaps, whatever masks
    /// the steps meet.
    #[test]
    fn steps_cover_every_hash_whatever_the_masks_are() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..2_000 {
            let (mut cursor, mut covered_to) = (0_u64, 0_u128);
            loop {
                let bits = rng.u32(0..12);
                let mask = (1_u64 << bits) - 1;
                let start = u128::from((cursor & mask).reverse_bits());
                assert!(start <= covered_to, "no gap before the interval");
                covered_to = start + (1 << (64 - bits));
                cursor = following(cursor, mask);
                if cursor == 0 {
                    break;
                }
                assert_eq!(u128::from(cursor.reverse_bits()), covered_to);
            }
            assert_eq!(covered_to, 1 << 64, "the end is reached");
        }
    }
}
