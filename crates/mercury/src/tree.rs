//! One tree: its current table and its key counts.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `current` | who has moved the last bucket (`resize`), `Release` | operations, `Acquire` |
//! | `shards` | sessions, each on its own shard while there are no more than shards, `Relaxed` | `len`, gauges |

use pando_sync::shim::unmodelled::AtomicI64;

use pando_engine::TreeId;
use pando_memory::pool::Pages;
use pando_sync::Padded;
use pando_sync::epoch::Guard;
use pando_sync::shim::{AtomicPtr, Ordering};

use crate::canary::Canary;
use crate::limits::BUCKETS_MIN;
use crate::table::Table;

/// The trees of an engine.
pub(crate) type Directory = pando_sync::Directory<Tree>;

/// Sets of key counts, so that sessions do not write the same line.
const SHARDS: usize = 16;

#[derive(Default)]
struct Shard {
    keys: AtomicI64,
    tombstones: AtomicI64,
}

/// A hash table, under its name.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    current: AtomicPtr<Table>,
    pub(crate) canary: Canary,
    shards: [Padded<Shard>; SHARDS],
}

impl Tree {
    /// An empty tree. Its tables are to be taken out before it goes (`task`).
    pub(crate) fn new(id: TreeId, pages: Pages) -> Self {
        Self {
            id,
            current: AtomicPtr::new(Box::into_raw(Table::new(BUCKETS_MIN, pages))),
            canary: Canary::default(),
            shards: Default::default(),
        }
    }

    /// The table where operations begin.
    #[inline]
    pub(crate) fn table<'g>(&self, _: Guard<'g>) -> &'g Table {
        // Acquire pairs with `set_table`.
        let table = self.current.load(Ordering::Acquire);
        // SAFETY: a tree has a table, which lives until the pin ends (HR4).
        unsafe { &*table }
    }

    /// All buckets of the current table have moved; returns it.
    pub(crate) fn set_table(&self, next: *mut Table) -> *mut Table {
        // Release pairs with `table`; the old pointer was made by this thread's predecessor in the
        // right to move, which Acquire in `Table::try_own` ordered.
        self.current.swap(next, Ordering::AcqRel)
    }

    /// The current table, for who frees a tree that nobody can reach.
    pub(crate) fn table_pointer(&self) -> *mut Table {
        self.current.load(Ordering::Acquire)
    }

    /// Counts a commit; `shard` is the session's number.
    #[inline]
    pub(crate) fn count(&self, shard: usize, keys: i64, tombstones: i64) {
        let shard = &self.shards[shard % SHARDS];
        if keys != 0 {
            shard.keys.fetch_add(keys, Ordering::Relaxed);
        }
        if tombstones != 0 {
            shard.tombstones.fetch_add(tombstones, Ordering::Relaxed);
        }
    }

    /// Keys with a value.
    pub(crate) fn keys(&self) -> u64 {
        let keys = self
            .shards
            .iter()
            .map(|shard| shard.keys.load(Ordering::Relaxed));
        // Shards are read one after another, so that a key that moves between may count as -1.
        keys.sum::<i64>().max(0) as u64
    }

    /// Keys with a tombstone.
    pub(crate) fn tombstones(&self) -> u64 {
        let tombstones = self
            .shards
            .iter()
            .map(|shard| shard.tombstones.load(Ordering::Relaxed));
        tombstones.sum::<i64>().max(0) as u64
    }

    /// Slots in use.
    pub(crate) fn entries(&self) -> usize {
        (self.keys() + self.tombstones()) as usize
    }
}
