//! The engine: its trees, memory, sessions and gauges.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `directory` | see `pando_sync::Directory` | operations, pinned |
//! | `tasks` | see `task` | `maintain` |
//! | `snapshots` | see `pando_chassis::Snapshots` | operations, pinned |
//! | `shared` | see `pando_chassis::Shared` | everybody |
//! | `hasher`, `pages` | `with_options`, once | everybody |

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::RandomState;
use pando_chassis::{KeySums, Shared, Snapshots};
use pando_engine::limits::SESSIONS_MAX;
use pando_engine::{Emptying, Engine, EpochClock, Gauge, Pressure, SessionLimit, TreeId};
use pando_memory::pool::Pages;
use pando_sync::epoch::Guard;

use crate::context::Context;
use crate::counters::Counters;
use crate::limits::RETIRED_BYTES_MAX;
use crate::session::MercurySession;
use crate::table::Table;
use crate::task::Tasks;
use crate::tree::{Directory, Tree};

/// Sessions of an engine; the model checker runs with fewer.
const SESSIONS: usize = if cfg!(loom) { 4 } else { SESSIONS_MAX };

/// The options of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The page size for tables and entries; huge pages by default.
    pub pages: Pages,
    /// Bytes retired but not yet reclaimed at which writes are to be refused; 256 MiB by default.
    pub retired_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pages: Pages::Huge,
            retired_bytes_max: RETIRED_BYTES_MAX,
        }
    }
}

/// Trees that all sessions share; see the crate's header.
pub struct Mercury {
    pub(crate) clock: Arc<EpochClock>,
    pub(crate) directory: Directory,
    pub(crate) tasks: Tasks,
    pub(crate) snapshots: Snapshots,
    pub(crate) pages: Pages,
    hasher: RandomState,
    pub(crate) shared: Shared<Counters>,
}

impl fmt::Debug for Mercury {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Mercury")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Lines of 64 bytes that a GET of a key of one tree touches, averaged over its keys, from the
/// table's content: the distinct lines of its buckets and its entry. Lines that every operation
/// touches and finds in the cache (the tree, the table's header, the session) do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineModel {
    /// Lines of buckets.
    pub bucket_lines: f64,
    /// Lines of entries.
    pub entry_lines: f64,
    /// Keys looked at.
    pub keys: u64,
}

impl Mercury {
    /// The lines that a GET touches; see [`LineModel`]. O(buckets), concurrently with other work.
    #[must_use]
    pub fn line_model(&self, tree: TreeId) -> LineModel {
        let mut model = LineModel::default();
        let Some(mut context) = self.context() else {
            return model;
        };
        context.pinned(|guard, _| {
            let Some(tree) = self.directory.get(tree.0, guard) else {
                return;
            };
            let table = tree.table(guard);
            for index in 0..table.buckets() {
                inspect(table, index, guard, &mut model);
            }
        });
        self.close(&context);
        model.bucket_lines /= model.keys.max(1) as f64;
        model.entry_lines /= model.keys.max(1) as f64;
        model
    }

    /// The hash of a key, keyed per engine: nobody can choose keys of one bucket without seeing
    /// hashes.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        if cfg!(loom) {
            // Models choose buckets and tags by the first byte.
            let first = key.first().map_or(0, |byte| u64::from(*byte));
            return first << 48 | first;
        }
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    pub(crate) fn context(&self) -> Option<Context> {
        self.shared.context()
    }

    /// Forgets a session's counters; their sums are kept.
    pub(crate) fn close(&self, context: &Context) {
        self.shared.close(context);
    }
}

/// Adds the content of a bucket, or of where it has moved to. Skips buckets of the next table that
/// are still to be filled (HR5 shared-locks).
fn inspect<'g>(table: &'g Table, index: usize, guard: Guard<'g>, model: &mut LineModel) {
    let bucket = table.bucket(index).lock(guard);
    if !bucket.has_moved() {
        bucket.each_line(|lines, entry| {
            model.bucket_lines += lines as f64;
            model.entry_lines += entry.lines() as f64;
            model.keys += 1;
        });
        return;
    }
    drop(bucket);
    let next = table.next(guard).expect("a bucket moves to a table (HR1)");
    if next.buckets() > table.buckets() {
        inspect(next, index, guard, model);
        inspect(next, index + table.buckets(), guard, model);
    } else if index < next.buckets() {
        inspect(next, index, guard, model);
    }
}

impl Engine for Mercury {
    type Session = MercurySession;
    type Options = Options;
    type OpenError = Infallible;

    const NAME: &'static str = "mercury";

    fn open(clock: Arc<EpochClock>, options: Options) -> Result<Arc<Self>, Infallible> {
        Ok(Arc::new(Self {
            clock,
            directory: Directory::new(),
            tasks: Tasks::new(SESSIONS),
            snapshots: Snapshots::default(),
            pages: options.pages,
            hasher: RandomState::default(),
            shared: Shared::new(SESSIONS, options.retired_bytes_max, options.pages),
        }))
    }

    fn session(self: &Arc<Self>) -> Result<MercurySession, SessionLimit> {
        let limit = SessionLimit {
            sessions_max: SESSIONS,
        };
        let context = self.context().ok_or(limit)?;
        Ok(MercurySession::new(Arc::clone(self), context))
    }

    fn create_tree(&self) -> TreeId {
        let make = |number| Tree::new(TreeId(number), self.pages);
        TreeId(self.directory.create(make))
    }

    fn restore_tree(&self, tree: TreeId) {
        let make = |number| Tree::new(TreeId(number), self.pages);
        self.directory.restore(tree.0, make);
    }

    fn drop_tree(&self, tree: TreeId) {
        if let Some(tree) = self.directory.remove(tree.0) {
            self.tasks.dropped.push(tree, self.shared.stamp());
        }
    }

    fn len(&self, tree: TreeId) -> u64 {
        self.directory
            .find(tree.0)
            .map_or(0, |tree| tree.counts.keys())
    }

    fn reclaimable_bytes(&self) -> usize {
        self.shared.retired_bytes() + self.tasks.graves.bytes()
    }

    fn pressure(&self) -> Pressure {
        self.shared.pressure()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        let mut sums = KeySums::default();
        let (mut buckets, mut table_bytes) = (0, 0);
        let mut context = self.context();
        let shadows = self.snapshots.trees();
        self.directory.each(|_, tree| {
            if shadows.contains(&tree.id) {
                return;
            }
            sums.add(&tree.counts);
            let Some(context) = &mut context else {
                // Every session is in use: the tables cannot be inspected now.
                return;
            };
            context.pinned(|guard, _| {
                let mut table = Some(tree.table(guard));
                while let Some(of) = table {
                    buckets += of.buckets() - of.moved();
                    table_bytes += of.bytes();
                    table = of.next(guard);
                }
            });
        });
        if let Some(context) = &context {
            self.close(context);
        }
        sums.report(self.tasks.dropped.count(), report);
        let total = self.shared.total();
        let entries = (sums.keys + sums.tombstones) as f64;
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        figure(
            "entries",
            "Slots of buckets in use: keys and tombstones.",
            entries,
        );
        figure(
            "buckets",
            "Buckets of all tables that have not moved.",
            buckets as f64,
        );
        figure(
            "table_bytes",
            "Bytes of all buckets, those included that are not touched yet.",
            table_bytes as f64,
        );
        let lines = buckets as f64 + total.overflow_lines.get() as f64;
        figure(
            "mean_chain",
            "Lines per bucket, 1 when none overflows.",
            lines / (buckets as f64).max(1.0),
        );
        figure(
            "mean_fill",
            "Entries per bucket.",
            entries / (buckets as f64).max(1.0),
        );
        figure(
            "resizing_tables",
            "Tables that grow or shrink now.",
            self.tasks.resizing_count() as f64,
        );
        for (name, help, counter) in total.each() {
            figure(name, help, counter.get() as f64);
        }
        let live = "Bytes of entries and further lines in use or retired.";
        self.shared.report_memory(live, report);
    }
}

impl Emptying for Mercury {
    fn idle_bytes(&self) -> usize {
        self.shared.arena().excess_bytes()
    }
}

impl Drop for Mercury {
    fn drop(&mut self) {
        // No session is left: each holds the engine.
        let Some(mut context) = self.context() else {
            return;
        };
        let mut trees = Vec::new();
        self.directory.each(|number, _| trees.push(TreeId(number)));
        for tree in trees {
            self.drop_tree(tree);
        }
        self.shared.outlast(&mut context);
        while self.tasks.free(usize::MAX, self, &mut context) > 0 {}
        self.shared.assert_given_back();
    }
}
