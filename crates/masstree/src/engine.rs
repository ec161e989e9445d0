//! The engine: a directory of trees, the epochs and memory they share, and its gauges.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};

use pando_chassis::{KeySums, Shared, Snapshots};
use pando_engine::limits::SESSIONS_MAX;
use pando_engine::{Emptying, Engine, EpochClock, Gauge, Pressure, SessionLimit, TreeId};
use pando_memory::pool::{Pages, Pool};
use pando_sync::lock;

use crate::context::Context;
use crate::counters::Counters;
use crate::limits::RETIRED_BYTES_MAX;
use crate::session::MasstreeSession;
use crate::task::Tasks;
use crate::tree::Directory;
use crate::tree::Tree;

/// The options of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The page size for nodes and values; huge pages by default.
    pub pages: Pages,
    /// Bytes retired but not yet reclaimed at which [`Engine::pressure`] asks to refuse writes; 256
    /// MiB by default.
    pub retired_bytes_max: usize,
    /// Bytes of memory taken from the system and touched when the engine opens; none by default.
    pub reserved_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pages: Pages::Huge,
            retired_bytes_max: RETIRED_BYTES_MAX,
            reserved_bytes: 0,
        }
    }
}

/// Trees that all sessions share; see the crate's header.
pub struct Masstree {
    pub(crate) clock: Arc<EpochClock>,
    pub(crate) directory: Directory,
    pub(crate) tasks: Tasks,
    pub(crate) snapshots: Snapshots,
    pub(crate) shared: Shared<Counters>,
    /// For trees that are made without a session.
    pool: Mutex<Pool>,
}

impl fmt::Debug for Masstree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Masstree")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Masstree {
    /// Makes a tree for the directory, and counts its root.
    fn make_tree(&self, number: u32) -> Tree {
        let mut pool = lock(&self.pool);
        self.shared.count(|counters| counters.border_nodes.add(1));
        Tree::new(TreeId(number), &mut pool)
    }

    /// Forgets a session's counters; their sums are kept.
    pub(crate) fn close(&self, context: &Context) {
        self.shared.close(context);
    }
}

impl Engine for Masstree {
    type Session = MasstreeSession;
    type Options = Options;
    type OpenError = Infallible;

    const NAME: &'static str = "masstree";

    fn open(clock: Arc<EpochClock>, options: Options) -> Result<Arc<Self>, Infallible> {
        let shared = Shared::new(SESSIONS_MAX, options.retired_bytes_max, options.pages);
        shared.arena().reserve(options.reserved_bytes);
        Ok(Arc::new(Self {
            clock,
            directory: Directory::new(),
            tasks: Tasks::new(SESSIONS_MAX),
            snapshots: Snapshots::default(),
            pool: Mutex::new(shared.arena().pool()),
            shared,
        }))
    }

    fn session(self: &Arc<Self>) -> Result<MasstreeSession, SessionLimit> {
        let limit = SessionLimit {
            sessions_max: SESSIONS_MAX,
        };
        let context = self.shared.context().ok_or(limit)?;
        Ok(MasstreeSession::new(Arc::clone(self), context))
    }

    fn create_tree(&self) -> TreeId {
        TreeId(self.directory.create(|number| self.make_tree(number)))
    }

    fn restore_tree(&self, tree: TreeId) {
        self.directory
            .restore(tree.0, |number| self.make_tree(number));
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
        let shadows = self.snapshots.trees();
        self.directory.each(|_, tree| {
            if !shadows.contains(&tree.id) {
                sums.add(&tree.counts);
            }
        });
        sums.report(self.tasks.dropped.count(), report);
        let total = self.shared.total();
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        for (name, help, counter) in total.each() {
            figure(name, help, counter.get() as f64);
        }
        let slots = total.border_nodes.get() * crate::node::WIDTH as i64
            + total.young_nodes.get() * crate::node::WIDTH_YOUNG as i64;
        let fill = total.entries.get() as f64 / slots.max(1) as f64;
        figure(
            "border_fill",
            "Share of border node slots that hold an entry, 0 to 1.",
            fill,
        );
        let live = "Bytes of nodes and values in use or retired.";
        self.shared.report_memory(live, report);
    }
}

impl Emptying for Masstree {
    fn idle_bytes(&self) -> usize {
        self.shared.arena().excess_bytes()
    }
}

impl Drop for Masstree {
    fn drop(&mut self) {
        // No session is left: each holds the engine.
        let Some(mut context) = self.shared.context() else {
            return;
        };
        let mut trees = Vec::new();
        self.directory.each(|_, tree| trees.push(tree.id));
        for tree in trees {
            self.drop_tree(tree);
        }
        self.shared.outlast(&mut context);
        self.tasks.free_dropped(usize::MAX, &mut context);
        self.shared.assert_given_back();
    }
}
