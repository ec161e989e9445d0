//! From a key to its entry, without a lock (§3, reads), and to the bucket where a writer begins.
//!
//! Departure from the paper, whose reads take the bucket's lock: entries are immutable and
//! reclaimed by epochs, so that a reader needs no lock to read one whole (VB1 immutable-block), and
//! the marks of `bucket` tell it when to go on in the next table (HB3 control-first). It writes no
//! shared memory. What the paper holds against readers without locks (§2.2) does not come with them
//! here: a writer clones no part of a chain, it stores one slot, and a reader validates nothing but
//! the mark. Readers that lock are `find_locked`; what they cost is measured beside.

use std::hint::select_unpredictable;

use pando_block::BlockRef;
use pando_sync::epoch::Guard;

use crate::bucket::{Found, Line, Owned, Place, Tag};
use crate::canary::Fault;
use crate::counters::Counters;
use crate::table::Table;
use crate::tree::Tree;

/// The bucket of a hash as far as the counter of moved buckets tells (HR2 marked-when-moved says
/// what if it moves then), and its table.
#[inline]
pub(crate) fn locate<'g>(tree: &Tree, hash: u64, guard: Guard<'g>) -> (&'g Table, &'g Line) {
    let mut table = tree.table(guard);
    while let Some(next) = table.next(guard) {
        let moved = table.published();
        if moved > table.mask() {
            table = next;
            continue;
        }
        // Halfway through a resize no branch would foretell this.
        let has_moved = (hash as usize & table.mask()) < moved;
        table = select_unpredictable(has_moved, next, table);
        break;
    }
    (table, table.bucket(hash as usize & table.mask()))
}

/// The key's bucket in the table that a moved one has gone to.
#[inline]
pub(crate) fn follow<'g>(
    table: &Table,
    hash: u64,
    guard: Guard<'g>,
    counters: &Counters,
) -> (&'g Table, &'g Line) {
    counters.moved_retries.add(1);
    let next = table.next(guard).expect("a bucket moves to a table (HR1)");
    (next, next.bucket(hash as usize & next.mask()))
}

/// The key's entry, a tombstone included.
#[inline]
pub(crate) fn find<'g>(
    tree: &Tree,
    hash: u64,
    key: &[u8],
    guard: Guard<'g>,
    counters: &Counters,
) -> Option<BlockRef<'g>> {
    let tag = Tag::of_hash(hash);
    let checked = !tree.canary.is(Fault::ReadWithoutCheck);
    let (mut table, mut bucket) = locate(tree, hash, guard);
    loop {
        match bucket.find(tag, key, checked, guard) {
            Found::Entry(entry) => return Some(entry),
            Found::Absent => return None,
            Found::Moved => (table, bucket) = follow(table, hash, guard, counters),
        }
    }
}

/// The same under the bucket's lock, as the paper has it.
pub(crate) fn find_locked<'g>(
    tree: &Tree,
    hash: u64,
    key: &[u8],
    guard: Guard<'g>,
    counters: &Counters,
) -> Option<BlockRef<'g>> {
    let (_, bucket, foreseen) = lock_bucket(tree, hash, guard, counters);
    let found = bucket.find(foreseen, Tag::of_hash(hash), key);
    found.map(|(_, entry)| entry)
}

/// The bucket where a key of this hash belongs, locked, its table, and where the key seems to stand
/// there. Its entry is asked for before the lock is taken.
#[inline]
pub(crate) fn lock_bucket<'g>(
    tree: &Tree,
    hash: u64,
    guard: Guard<'g>,
    counters: &Counters,
) -> (&'g Table, Owned<'g>, Option<Place<'g>>) {
    let (mut table, mut bucket) = locate(tree, hash, guard);
    loop {
        let foreseen = bucket.foresee(Tag::of_hash(hash));
        let owned = bucket.lock(guard);
        // HR2 marked-when-moved: it may have moved while we waited.
        if !owned.has_moved() || tree.canary.is(Fault::IgnoreMoved) {
            return (table, owned, foreseen);
        }
        drop(owned);
        (table, bucket) = follow(table, hash, guard, counters);
    }
}
