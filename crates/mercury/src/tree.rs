//! One tree: its current table and its key counts.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `current` | the thread that moved the last bucket (`resize`), `Release` | operations, `Acquire` |
//! | `counts` | see `KeyCounts` | `len`, gauges |

use pando_chassis::KeyCounts;
use pando_engine::TreeId;
use pando_memory::pool::Pages;
use pando_sync::epoch::Guard;
use pando_sync::shim::{AtomicPtr, Ordering};

use crate::canary::Canary;
use crate::limits::BUCKETS_MIN;
use crate::table::Table;

/// The trees of an engine.
pub(crate) type Directory = pando_sync::Directory<Tree>;

/// A hash table, under its name.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    current: AtomicPtr<Table>,
    pub(crate) canary: Canary,
    pub(crate) counts: KeyCounts,
}

impl Tree {
    /// An empty tree. Its tables must be taken out before it is dropped (`task`).
    pub(crate) fn new(id: TreeId, pages: Pages) -> Self {
        Self {
            id,
            current: AtomicPtr::new(Box::into_raw(Table::new(BUCKETS_MIN, pages))),
            canary: Canary::default(),
            counts: KeyCounts::default(),
        }
    }

    /// The table where operations begin.
    #[inline]
    pub(crate) fn table<'g>(&self, _: Guard<'g>) -> &'g Table {
        // Acquire pairs with `set_table`.
        let table = self.current.load(Ordering::Acquire);
        // SAFETY: a tree has a table, which lives until the pin ends (HR4 old-table-outlives-pins).
        unsafe { &*table }
    }

    /// All buckets of the current table have moved; returns it.
    pub(crate) fn set_table(&self, next: *mut Table) -> *mut Table {
        // Release pairs with `table`. The old pointer was made by this thread's predecessor in the
        // right to move; Acquire in `Table::try_own` ordered that.
        self.current.swap(next, Ordering::AcqRel)
    }

    /// The current table, for freeing a tree that nobody can reach.
    pub(crate) fn table_pointer(&self) -> *mut Table {
        self.current.load(Ordering::Acquire)
    }
}
