//! Growing and shrinking a table, one bucket at a time, while everybody continues to work (§3).
//!
//! ```text
//!            begin                     last bucket moved
//!   resting ───────► moving (old, next) ───────────────► resting (next)
//!                      ▲      │
//!                      └──────┘ advance: some buckets at a time
//! ```
//!
//! These are the paper's three phases: initialisation (`begin`), re-hashing (`move_bucket`) and
//! termination (the end of `advance`; `task` frees the old table).
//!
//! The buckets of the old table move in numerical order. A move locks the bucket, puts its pointers
//! into the next table, marks the bucket as moved and unlocks it. The slots tell where the pointers
//! belong; entries are fetched in one growth of three (`bucket`). Operations begin in the current
//! table. The counter of moved buckets sends them on to the next one; where the counter is stale,
//! the bucket's mark does (`find`). The counter is published only now and then. A table grows when
//! a line overflows and it has more than [`ENTRIES_PER_BUCKET_MAX`] entries per bucket. It shrinks
//! when tombstones were purged, or a resize has ended, and it has less than a part of that
//! ([`SHRINK_PART`]). The paper's tables only grow: a cache whose keys are gone would keep its
//! largest table for ever.
//!
//! Departure: the paper has an expander thread. Here every insert into a table that is being
//! resized moves [`HELP_BUCKETS`] buckets. So growth keeps pace with inserts however threads are
//! scheduled, and an embedded engine has no thread of its own. `maintain` moves buckets too, alone
//! when nobody inserts. One thread at a time has the right to move; the others continue without
//! waiting.
//!
//! Departure: the paper takes every worker's thread-lock to change the table's state. Here the two
//! changes are one store each, and these invariants make them safe:
//! - **HR1 next-once** `Table::next` is set once, before the first bucket of the table is marked,
//!   and only on the current table. So a thread that sees a mark finds the next table.
//! - **HR2 marked-when-moved** A bucket is marked under its lock after its entries are in the next
//!   table, and never unmarked; nobody changes a marked bucket. A writer checks the mark after it
//!   has taken the lock. So at any time one bucket is responsible for a key, whichever table an
//!   operation began in, and it makes no difference when a thread learns of a change of state.
//! - **HR3 one-mover** The owner of a table's `moving` alone moves its buckets and replaces the
//!   tree's current table; the last owner keeps the right for ever. So a table is resized once.
//! - **HR4 old-table-outlives-pins** A table that is no longer current is freed when no pin is left
//!   that could have loaded it.
//! - **HR5 shared-locks** While a table of n buckets grows, nobody but the mover of bucket i
//!   reaches buckets i and i + n of the next one until bucket i is marked: everybody else gets
//!   there by the mark or by the counter. So they are filled without locks, by stores in any order;
//!   the mark and the counter publish them. The target bucket of a shrinking table may be in use
//!   since its other half moved, and is locked.
//!
//! No step's work grows with the table: the system zeroes memory on first touch, and memory is
//! returned in pieces (`pando_memory::Zeroed`).

use pando_sync::epoch::Guard;

use crate::bucket::{Filling, Owned, Tagged};
use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::engine::Mercury;
use crate::limits::{BUCKETS_MIN, ENTRIES_PER_BUCKET_MAX, HELP_BUCKETS, SHRINK_PART};
use crate::table::Table;
use crate::tree::Tree;

/// Follows an insert: helps a resize, or begins one if the table is too full.
#[inline]
pub(crate) fn after_insert(
    engine: &Mercury,
    tree: &Tree,
    overflowed: bool,
    guard: Guard<'_>,
    context: &mut Context,
) {
    let table = tree.table(guard);
    if table.next(guard).is_some() {
        advance(engine, tree, HELP_BUCKETS, guard, context);
    } else if overflowed {
        grow(engine, tree, table, guard, context);
    }
}

#[cold]
fn grow(engine: &Mercury, tree: &Tree, table: &Table, guard: Guard<'_>, context: &Context) {
    let too_full = |table: &Table| tree.counts.entries() > table.buckets() * ENTRIES_PER_BUCKET_MAX;
    if too_full(table) && begin(engine, tree, table, table.buckets() * 2, too_full, guard) {
        context.counters.growths_total.add(1);
    }
}

/// Begins to shrink a table that is too empty.
pub(crate) fn shrink(engine: &Mercury, tree: &Tree, guard: Guard<'_>, context: &Context) {
    let table = tree.table(guard);
    let too_empty = |table: &Table| {
        table.buckets() > BUCKETS_MIN
            && tree.counts.entries() * SHRINK_PART < table.buckets() * ENTRIES_PER_BUCKET_MAX
    };
    if table.next(guard).is_none()
        && too_empty(table)
        && begin(engine, tree, table, table.buckets() / 2, too_empty, guard)
    {
        context.counters.shrinks_total.add(1);
    }
}

/// Gives the current table a next one, unless somebody else has done so.
fn begin(
    engine: &Mercury,
    tree: &Tree,
    table: &Table,
    buckets: usize,
    still: impl Fn(&Table) -> bool,
    guard: Guard<'_>,
) -> bool {
    if !table.try_own() {
        return false;
    }
    // HR3: if the table is no longer current, the right was never released.
    let due = table.next(guard).is_none() && still(table);
    if due {
        table.begin(Table::new(buckets, engine.pages));
        engine.tasks.resizing(tree.id);
    }
    table.disown();
    due
}

/// Moves up to `buckets` buckets of a tree that is being resized; returns how many.
pub(crate) fn advance(
    engine: &Mercury,
    tree: &Tree,
    buckets: usize,
    guard: Guard<'_>,
    context: &mut Context,
) -> usize {
    let table = tree.table(guard);
    let Some(next) = table.next(guard) else {
        return 0;
    };
    if !table.try_own() {
        return 0;
    }
    let from = table.moved();
    let to = table.buckets().min(from + buckets);
    if next.growth_shift() > table.growth_shift() {
        // Their keys are hashed again.
        for index in from..to {
            table.bucket(index).prefetch_entries();
        }
    }
    for index in from..to {
        move_bucket(engine, tree, (table, index), next, guard, context);
    }
    table.set_moved(to);
    context.counters.moves_total.add((to - from) as i64);
    // A growing table fills from two places at once, a shrinking one in two passes.
    next.count_to(
        (to * next.buckets())
            .div_ceil(table.buckets())
            .max(to.min(next.buckets())),
    );
    if to < table.buckets() {
        table.disown();
        return to - from;
    }
    let old = tree.set_table(table.next_pointer());
    // HR3: nobody else replaces the current table.
    assert!(std::ptr::eq(old, table) && table.published() == table.buckets());
    if tree.canary.is(Fault::FreeTableEarly) {
        table.give_up();
    }
    engine.tasks.retire_table(old, engine.shared.stamp());
    engine.tasks.resized(tree.id);
    // Keys may have been removed meanwhile, and perhaps nothing else checks the table again.
    shrink(engine, tree, guard, context);
    to - from
}

/// Moves one bucket (HR2). The caller owns `moving`.
pub(crate) fn move_bucket<'g>(
    engine: &Mercury,
    tree: &Tree,
    (table, index): (&'g Table, usize),
    next: &'g Table,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let bucket = table.bucket(index).lock(guard);
    if tree.canary.is(Fault::MarkEarly) {
        bucket.mark_early();
    }
    if next.buckets() > table.buckets() {
        split(engine, &bucket, (table, index), next, guard, context);
    } else {
        // The bits of a hash that slots of the smaller table keep are part of the bucket's number
        // here.
        let growth = if tree.canary.is(Fault::WrongGrowthBits) {
            !index
        } else {
            index
        };
        merge(&bucket, (table, index), next, growth, guard, context);
    }
    let mut unlinked = Vec::new();
    bucket.leave(|line| unlinked.push(line));
    for line in unlinked {
        context.retire_line(line);
    }
}

/// Puts the entries of a locked bucket into their two buckets of a larger table (HR5).
fn split<'g>(
    engine: &Mercury,
    bucket: &Owned<'g>,
    (table, index): (&'g Table, usize),
    next: &'g Table,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let (shift, next_shift) = (table.growth_shift(), next.growth_shift());
    let bit = table.buckets().ilog2();
    let mut halves = [index, index + table.buckets()].map(|at| Filling::new(next.bucket(at)));
    let hash_of = |tagged: Tagged| {
        // SAFETY: the bucket is locked and has not moved, so the slot names a live entry
        // (HB1 owner-writes).
        engine.hash(unsafe { tagged.entry(guard) }.key_part())
    };
    bucket.each(|_, tagged| {
        let half = tagged.hash_bit(bit, shift);
        debug_assert_eq!(
            half,
            hash_of(tagged) as usize >> bit & 1,
            "a bit of its key"
        );
        let tagged = if next_shift == shift {
            tagged
        } else {
            tagged.with_growth(hash_of(tagged), next_shift)
        };
        if halves[half].push(tagged, &mut context.pool, guard) {
            context.counters.overflow_lines.add(1);
        }
    });
}

/// Puts the entries of a locked bucket into their bucket of a smaller table; `growth` has the bits
/// of their hashes that slots keep there.
fn merge<'g>(
    bucket: &Owned<'g>,
    (table, index): (&'g Table, usize),
    next: &'g Table,
    growth: usize,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let (shift, next_shift) = (table.growth_shift(), next.growth_shift());
    // Old before new is the only order in which two buckets are locked.
    let target = next.bucket(index & next.mask()).lock(guard);
    bucket.each(|_, tagged| {
        let tagged = if next_shift == shift {
            tagged
        } else {
            tagged.with_growth(growth as u64, next_shift)
        };
        if target.insert(tagged, &mut context.pool) {
            context.counters.overflow_lines.add(1);
        }
    });
}
