//! The engine: a directory of trees, the epochs and memory that they share, and its gauges.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pando_engine::limits::SESSIONS_MAX;
use pando_engine::{Engine, EpochClock, Gauge, Pressure, SessionLimit, TreeId};
use pando_memory::pool::{Arena, Pages, Pool};
use pando_sync::Padded;
use pando_sync::epoch::{self, Collector};

use crate::context::Context;
use crate::counters::Counters;
use crate::limits::RETIRED_BYTES_MAX;
use crate::session::MasstreeSession;
use crate::task::Tasks;
use crate::tree::Directory;
use crate::tree::Tree;

/// What can be chosen when an engine is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The pages that nodes and values are asked for on; huge ones by default.
    pub pages: Pages,
    /// Bytes that may be retired and not yet reclaimed before [`Engine::pressure`] asks to refuse
    /// writes; 256 MiB by default.
    pub retired_bytes_max: usize,
    /// Bytes of memory that are taken from the system at once and touched; none by default.
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
    collector: Arc<Collector<Pool>>,
    arena: Arc<Arena>,
    registry: Mutex<Registry>,
}

/// The counters of all sessions.
struct Registry {
    open: Vec<Arc<Padded<Counters>>>,
    /// What sessions that are gone, and the engine itself, have counted.
    closed: Counters,
    /// For trees that are made without a session.
    pool: Pool,
}

impl fmt::Debug for Masstree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Masstree")
            .field("arena", &self.arena)
            .finish_non_exhaustive()
    }
}

impl Masstree {
    /// An empty engine with options; see [`Engine::new`].
    #[must_use]
    pub fn with_options(clock: Arc<EpochClock>, options: Options) -> Arc<Self> {
        let arena = Arena::new(options.pages);
        arena.reserve(options.reserved_bytes);
        let pool = arena.pool();
        Arc::new(Self {
            clock,
            directory: Directory::new(),
            tasks: Tasks::new(SESSIONS_MAX),
            collector: Collector::new(SESSIONS_MAX, options.retired_bytes_max),
            arena,
            registry: Mutex::new(Registry {
                open: Vec::new(),
                closed: Counters::default(),
                pool,
            }),
        })
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self) -> Option<Context> {
        let participant = self.collector.register()?;
        let counters = Arc::new(Padded::default());
        self.registry().open.push(Arc::clone(&counters));
        Some(Context {
            participant,
            pool: self.arena.pool(),
            counters,
            last_filled: 0,
            commits: 0,
        })
    }

    /// Forgets a session's counters; what they say is kept.
    pub(crate) fn close(&self, context: &Context) {
        let mut registry = self.registry();
        registry
            .open
            .retain(|counters| !Arc::ptr_eq(counters, &context.counters));
        registry.closed.absorb(&context.counters);
    }

    fn report_memory(&self, report: &mut dyn FnMut(Gauge)) {
        let usage = self.arena.usage();
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        figure(
            "mapped_bytes",
            "Bytes of chunks taken from the system.",
            usage.mapped_bytes as f64,
        );
        figure(
            "live_bytes",
            "Bytes of nodes and values in use or retired.",
            usage.live_bytes as f64,
        );
        figure(
            "large_bytes",
            "Of these, bytes of blocks that are too large for chunks.",
            usage.external_bytes as f64,
        );
        let free = (usage.mapped_bytes + usage.external_bytes).saturating_sub(usage.live_bytes);
        figure("free_bytes", "Bytes of chunks not in use.", free as f64);
        let retired = self.collector.retired_bytes() as f64;
        figure(
            "retired_bytes",
            "Bytes that wait for readers to finish.",
            retired,
        );
        figure(
            "retired_bytes_max",
            "Bytes at which writes are refused until readers have finished.",
            self.collector.retired_bytes_max() as f64,
        );
        let lag = self.collector.lag() as f64;
        figure(
            "reclamation_lag",
            "Epochs that the slowest pinned session is behind, 0 or 1.",
            lag,
        );
    }
}

impl Engine for Masstree {
    type Session = MasstreeSession;

    const NAME: &'static str = "masstree";

    fn new(clock: Arc<EpochClock>) -> Arc<Self> {
        Self::with_options(clock, Options::default())
    }

    fn session(self: &Arc<Self>) -> Result<MasstreeSession, SessionLimit> {
        let limit = SessionLimit {
            sessions_max: SESSIONS_MAX,
        };
        let context = self.context().ok_or(limit)?;
        Ok(MasstreeSession::new(Arc::clone(self), context))
    }

    fn create_tree(&self) -> TreeId {
        let mut registry = self.registry();
        registry.closed.border_nodes.add(1);
        let make = |number| Tree::new(TreeId(number), &mut registry.pool);
        TreeId(self.directory.create(make))
    }

    fn restore_tree(&self, tree: TreeId) {
        let mut registry = self.registry();
        let make = |number| Tree::new(TreeId(number), &mut registry.pool);
        if self.directory.restore(tree.0, make) {
            registry.closed.border_nodes.add(1);
        }
    }

    fn drop_tree(&self, tree: TreeId) {
        if let Some(tree) = self.directory.remove(tree.0) {
            self.tasks.doom(tree, self.collector.stamp());
        }
    }

    fn len(&self, tree: TreeId) -> u64 {
        self.directory.find(tree.0).map_or(0, |tree| tree.keys())
    }

    fn reclaimable_bytes(&self) -> usize {
        self.collector.retired_bytes() + self.tasks.buried_bytes()
    }

    fn idle_bytes(&self) -> usize {
        self.arena.excess_bytes()
    }

    fn pressure(&self) -> Pressure {
        match self.collector.pressure() {
            epoch::Pressure::None => Pressure::None,
            epoch::Pressure::Slow => Pressure::Slow,
            epoch::Pressure::Refuse => Pressure::Refuse,
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        let (mut trees, mut keys, mut tombstones) = (0, 0, 0);
        self.directory.each(|_, tree| {
            trees += 1;
            keys += tree.keys();
            tombstones += tree.tombstones();
        });
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        figure("trees", "Trees that exist.", f64::from(trees));
        figure(
            "keys",
            "Keys in all trees, expired ones included.",
            keys as f64,
        );
        figure(
            "tombstones",
            "Removed keys whose version is still remembered.",
            tombstones as f64,
        );
        let doomed = self.tasks.doomed_count() as f64;
        figure(
            "dropped_trees",
            "Dropped trees that are not freed yet.",
            doomed,
        );
        let total = Counters::default();
        {
            let registry = self.registry();
            total.absorb(&registry.closed);
            registry
                .open
                .iter()
                .for_each(|counters| total.absorb(counters));
        }
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
        self.report_memory(report);
    }
}

impl Drop for Masstree {
    fn drop(&mut self) {
        // No session is left: each holds the engine.
        let Some(mut context) = self.context() else {
            return;
        };
        let mut trees = Vec::new();
        self.directory.each(|_, tree| trees.push(tree.id));
        for tree in trees {
            self.drop_tree(tree);
        }
        // No session, hence no pin, is left: every step moves the epoch, and three pass any stamp.
        for _ in 0..3 {
            self.collector.try_advance();
        }
        self.collector.collect_orphans(&mut context.pool);
        self.tasks.free_doomed(usize::MAX, &mut context);
        // Not while another assertion has already failed: the trees may be broken.
        if cfg!(debug_assertions) && !std::thread::panicking() {
            assert_eq!(self.arena.usage().live_blocks, 0, "nodes or values leaked");
        }
    }
}
