//! Deferred work: purging tombstones, freeing dropped trees and the tables that resizes leave.
//!
//! Departure from the paper (§3), which frees a removed pair at once, and the old table when the
//! last bucket has moved. Here versions of a key must increase across its removal
//! (E2 versions-grow), which a tombstone remembers until nobody can need it, and lock-free readers
//! may still look at either.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `Tasks::graves` | see `Graves` | `maintain` |
//! | `Tasks::dropped`, `tables`, `resizing` | whoever adds or does the work: a mutex each | `maintain` |
//! | `Tasks::pending` | as above, `Relaxed`: a hint that saves the mutexes | `maintain` |
//!
//! Invariants:
//! - **HT1** A tombstone is queued once, in commit order of its session, so epochs along a queue do
//!   not decrease. Restored ones may come in any order; one that is queued behind a later epoch
//!   waits for that.
//! - **HT2** A tombstone is purged only under its bucket's lock, and only if its epoch is below the
//!   horizon (V2 tombstone-horizon). It need not be the one that was queued: any that is old enough
//!   may be purged.
//! - **HT3** A dropped tree, or a table that is no longer current, is freed only when no pin is
//!   left that could have reached it.

use pando_sync::shim::unmodelled::{AtomicUsize, Ordering};
use std::ptr::NonNull;
use std::sync::Mutex;

use pando_block::Keep;
use pando_chassis::{Buried, DroppedTrees, Freed, Graves};
use pando_engine::{EpochClock, TreeId, ValueVersion};
use pando_sync::epoch::{Guard, ReclaimEpoch};
use pando_sync::lock;

use crate::bucket::{Tag, reclaim_line};
use crate::context::{Context, Retire};
use crate::engine::Mercury;
use crate::find::lock_bucket;
use crate::limits::{RELEASE_BYTES, RELEASES_MAX};
use crate::resize;
use crate::table::Table;
use crate::tree::Tree;

/// A removed key whose version is still remembered. Its hash suffices to find it.
pub(crate) struct Tombstone {
    pub(crate) tree: TreeId,
    pub(crate) hash: u64,
    pub(crate) version: ValueVersion,
}

/// About what a tombstone takes: its place in a queue, and the entry of a short key.
const TOMBSTONE_BYTES: usize = size_of::<Tombstone>() + 32;

impl Buried for Tombstone {
    fn version(&self) -> ValueVersion {
        self.version
    }

    fn bytes(&self) -> usize {
        TOMBSTONE_BYTES
    }
}

/// A table that nobody will reach.
struct OldTable {
    table: NonNull<Table>,
    stamp: ReclaimEpoch,
}

// SAFETY: the table is this list's own; pinned readers that still look at it only share it.
unsafe impl Send for OldTable {}

/// The remaining work.
pub(crate) struct Tasks {
    pub(crate) graves: Graves<Tombstone>,
    /// The dropped trees, each with the bucket of its current table that is to be freed next.
    pub(crate) dropped: DroppedTrees<Tree, usize>,
    tables: Mutex<Vec<OldTable>>,
    resizing: Mutex<Vec<TreeId>>,
    /// Items in the two lists above.
    pending: AtomicUsize,
}

impl Tasks {
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            graves: Graves::new(sessions_max),
            dropped: DroppedTrees::default(),
            tables: Mutex::default(),
            resizing: Mutex::default(),
            pending: AtomicUsize::new(0),
        }
    }

    fn more(&self, list: usize) {
        self.pending.fetch_add(list, Ordering::Relaxed);
    }

    fn fewer(&self, list: usize) {
        let before = self.pending.fetch_sub(list, Ordering::Relaxed);
        assert!(before >= list);
    }

    fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// Queues a table that ceased to be current before `stamp` was drawn.
    pub(crate) fn retire_table(&self, table: *mut Table, stamp: ReclaimEpoch) {
        let table = NonNull::new(table).expect("a table has an address");
        lock(&self.tables).push(OldTable { table, stamp });
        self.more(1);
    }

    /// Queues a tree whose table is being resized.
    pub(crate) fn resizing(&self, tree: TreeId) {
        lock(&self.resizing).push(tree);
        self.more(1);
    }

    /// Forgets a tree whose table has been resized, or which was dropped.
    pub(crate) fn resized(&self, tree: TreeId) {
        let mut resizing = lock(&self.resizing);
        if let Some(index) = resizing.iter().position(|other| *other == tree) {
            resizing.swap_remove(index);
            self.fewer(1);
        }
    }

    /// Trees whose tables are being resized.
    pub(crate) fn resizing_count(&self) -> usize {
        lock(&self.resizing).len()
    }

    /// Moves up to `steps` buckets; returns how many steps were taken.
    pub(crate) fn move_buckets(
        &self,
        steps: usize,
        engine: &Mercury,
        context: &mut Context,
    ) -> usize {
        let mut done = 0;
        while done < steps && !self.is_idle() {
            let Some(id) = lock(&self.resizing).first().copied() else {
                break;
            };
            let moved = context.pinned(|guard, context| {
                let Some(tree) = engine.directory.get(id.0, guard) else {
                    self.resized(id);
                    return 1;
                };
                resize::advance(engine, tree, steps - done, guard, context)
            });
            if moved == 0 {
                // Another session is moving this table's buckets.
                break;
            }
            done += moved;
        }
        done
    }

    /// Frees up to `steps` buckets of dropped trees, or pieces of old tables; returns how many.
    pub(crate) fn free(&self, steps: usize, engine: &Mercury, context: &mut Context) -> usize {
        let mut done = 0;
        if !self.is_idle() {
            done = self.free_tables(steps, engine);
        }
        let has_passed = |stamp| engine.shared.has_passed(stamp);
        let free = |tree: &Tree, stamp, index: &mut usize, left| {
            self.free_buckets((tree, stamp), index, left, context)
        };
        done + self.dropped.free(steps - done, has_passed, free)
    }

    /// Returns up to `steps` pieces of tables to the system, and no more than [`RELEASES_MAX`]:
    /// each is a system call that takes as long as many other steps, perhaps within a client's
    /// command.
    fn free_tables(&self, steps: usize, engine: &Mercury) -> usize {
        let steps = steps.min(RELEASES_MAX);
        let mut tables = lock(&self.tables);
        let mut done = 0;
        while done < steps {
            let ready = |old: &OldTable| engine.shared.has_passed(old.stamp);
            let Some(index) = tables.iter().position(ready) else {
                break;
            };
            // SAFETY: nobody else can reach the table (HT3).
            if unsafe { tables[index].table.as_mut() }.release(RELEASE_BYTES) {
                let old = tables.swap_remove(index);
                // Under the model checker its memory stays, so that a late use would be seen.
                if !cfg!(loom) {
                    // SAFETY: made by a box, and as above.
                    drop(unsafe { Box::from_raw(old.table.as_ptr()) });
                }
                self.fewer(1);
            }
            done += 1;
        }
        done
    }

    /// Frees up to `steps` buckets of a dropped tree from number `index` of its current table on; a
    /// finished table counts as a step.
    fn free_buckets(
        &self,
        (tree, stamp): (&Tree, ReclaimEpoch),
        index: &mut usize,
        steps: usize,
        context: &mut Context,
    ) -> Freed {
        let table = tree.table_pointer();
        // SAFETY: the tree's table lives, and nobody else can reach it (HT3).
        let buckets = unsafe { &*table }.buckets();
        let mut done = 0;
        while done < steps && *index < buckets {
            // SAFETY: as above.
            free_bucket(unsafe { &*table }, *index, context);
            *index += 1;
            done += 1;
        }
        let mut whole = false;
        if done < steps {
            // The buckets that had moved are in the next table: it is the tree's table now.
            // SAFETY: as above.
            let next = unsafe { &*table }.next_pointer();
            tree.set_table(next);
            self.retire_table(table, stamp);
            *index = 0;
            whole = next.is_null();
            done += 1;
        }
        Freed { steps: done, whole }
    }
}

/// Frees the content of a bucket of a dropped tree, unless it has moved.
fn free_bucket(table: &Table, index: usize, context: &mut Context) {
    // SAFETY: nothing of this tree is used by anybody else (HT3), nor by us after it is freed.
    let guard = unsafe { Guard::new() };
    let bucket = table.bucket(index).lock(guard);
    if bucket.has_moved() {
        return;
    }
    bucket.each(|_, tagged| {
        // SAFETY: as above; the bucket has not moved, so it owns its entries.
        unsafe { Keep::NOTHING.reclaimer()(tagged.address(), &mut context.pool) };
    });
    let mut lines = Vec::new();
    bucket.leave(|line| lines.push(line));
    for line in lines {
        context.counters.overflow_lines.add(-1);
        // SAFETY: as above.
        unsafe { reclaim_line(line.cast(), &mut context.pool) };
    }
}

/// Purges the tombstones of this hash's tag that are old enough from a bucket (HT2); returns how
/// many.
pub(crate) fn purge(
    tree: &Tree,
    hash: u64,
    clock: &EpochClock,
    guard: Guard<'_>,
    context: &mut Context,
) -> usize {
    let horizon = clock.horizon();
    let (_, bucket, _) = lock_bucket(tree, hash, guard, context);
    let mut purged = Vec::new();
    bucket.each(|place, tagged| {
        // Each tombstone is queued: entries with other tags need not be fetched.
        if !tagged.has(Tag::of_hash(hash)) {
            return;
        }
        // SAFETY: the lock is held, so the slot names a live entry (HB1 owner-writes).
        let entry = unsafe { tagged.entry(guard) };
        if entry.is_tombstone() && entry.version().epoch() < horizon {
            bucket.clear(place);
            purged.push(entry);
        }
    });
    let mut lines = Vec::new();
    if !purged.is_empty() {
        bucket.prune(|line| lines.push(line));
    }
    drop(bucket);
    tree.counts.add(context.number(), 0, -(purged.len() as i64));
    for line in lines {
        context.retire_line(line);
    }
    let count = purged.len();
    for entry in purged {
        context.retire_entry(tree, entry);
    }
    count
}
