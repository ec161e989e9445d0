//! From a key to its entry, without a lock (§3, reads), and to the bucket where a writer begins.
//!
//! Departure from the paper, whose reads take the bucket's lock: entries are immutable and
//! reclaimed by epochs, so a reader needs no lock to read a whole one (VB1 immutable-block), and
//! the marks of `bucket` tell it when to continue in the next table (HB3 control-first). It writes
//! no shared memory. The paper's arguments against lock-free readers (§2.2) do not apply: a writer
//! clones no part of a chain, it stores one slot, and a reader validates nothing but the mark.
//! `find_locked` is the read under the lock, kept to measure its cost.

use std::hint::select_unpredictable;

use pando_block::BlockRef;
use pando_sync::epoch::Guard;

use crate::bucket::{Found, Line, Owned, Place, Tag};
use crate::canary::Fault;
use crate::context::Context;
use crate::table::Table;
use crate::tree::Tree;

/// The bucket of a hash according to the counter of moved buckets, and its table.
/// HR2 marked-when-moved covers a bucket that moves meanwhile.
#[inline]
pub(crate) fn locate<'g>(tree: &Tree, hash: u64, guard: Guard<'g>) -> (&'g Table, &'g Line) {
    let mut table = tree.table(guard);
    while let Some(next) = table.next(guard) {
        let moved = table.published();
        if moved > table.mask() {
            table = next;
            continue;
        }
        // Halfway through a resize a branch would be unpredictable.
        let has_moved = (hash as usize & table.mask()) < moved;
        table = select_unpredictable(has_moved, next, table);
        break;
    }
    (table, table.bucket(hash as usize & table.mask()))
}

/// The key's bucket in the table to which a moved one has gone.
#[inline]
pub(crate) fn follow<'g>(
    table: &Table,
    hash: u64,
    guard: Guard<'g>,
    context: &Context,
) -> (&'g Table, &'g Line) {
    context.counters.moved_retries.add(1);
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
    context: &Context,
) -> Option<BlockRef<'g>> {
    let tag = Tag::of_hash(hash);
    let checked = !tree.canary.is(Fault::ReadWithoutCheck);
    let (mut table, mut bucket) = locate(tree, hash, guard);
    loop {
        match bucket.find(tag, key, checked, context.beside, guard) {
            Found::Entry(entry) => return Some(entry),
            Found::Absent => return None,
            Found::Moved => (table, bucket) = follow(table, hash, guard, context),
        }
    }
}

/// The same under the bucket's lock, as in the paper.
pub(crate) fn find_locked<'g>(
    tree: &Tree,
    hash: u64,
    key: &[u8],
    guard: Guard<'g>,
    context: &Context,
) -> Option<BlockRef<'g>> {
    let (_, bucket, foreseen) = lock_bucket(tree, hash, guard, context);
    let found = bucket.find(foreseen, Tag::of_hash(hash), key);
    found.map(|(_, entry)| entry)
}

/// Locks the bucket where a key of this hash belongs; returns it, its table, and where the key
/// seems to be. Prefetches the key's entry before the lock is taken.
#[inline]
pub(crate) fn lock_bucket<'g>(
    tree: &Tree,
    hash: u64,
    guard: Guard<'g>,
    context: &Context,
) -> (&'g Table, Owned<'g>, Option<Place<'g>>) {
    let (mut table, mut bucket) = locate(tree, hash, guard);
    loop {
        // The lock is stored to: not two waits for a line that another core has.
        bucket.prefetch_to_write();
        let foreseen = bucket.foresee(Tag::of_hash(hash), context.beside);
        let owned = bucket.lock(guard);
        // HR2 marked-when-moved: it may have moved while we waited.
        if !owned.has_moved() || tree.canary.is(Fault::IgnoreMoved) {
            return (table, owned, foreseen);
        }
        drop(owned);
        (table, bucket) = follow(table, hash, guard, context);
    }
}
