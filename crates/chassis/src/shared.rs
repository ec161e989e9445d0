//! What the sessions of an engine share besides its trees: reclamation epochs, memory, counters.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `registry` | sessions that open and close: its mutex | gauges |

use std::fmt;
use std::sync::{Arc, Mutex};

use pando_engine::{Gauge, Pressure};
use pando_memory::pool::{Arena, Pages, Pool};
use pando_sync::epoch::{Collector, ReclaimEpoch};
use pando_sync::{Padded, lock};

use crate::context::Context;
use crate::counters::CounterSet;

/// See the module's header.
pub struct Shared<C> {
    collector: Arc<Collector<Pool>>,
    arena: Arc<Arena>,
    registry: Mutex<Registry<C>>,
}

/// The counters of all sessions.
#[derive(Default)]
struct Registry<C> {
    open: Vec<Arc<Padded<C>>>,
    /// Counts of closed sessions and of the engine itself.
    closed: C,
}

impl<C> fmt::Debug for Shared<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("arena", &self.arena)
            .finish_non_exhaustive()
    }
}

impl<C: CounterSet> Shared<C> {
    /// For at most this many sessions, which are to keep less than `retired_bytes_max` bytes
    /// retired, with memory on `pages`.
    #[must_use]
    pub fn new(sessions_max: usize, retired_bytes_max: usize, pages: Pages) -> Self {
        Self {
            collector: Collector::new(sessions_max, retired_bytes_max),
            arena: Arena::new(pages),
            registry: Mutex::default(),
        }
    }

    /// Where pools get their memory.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// A context for one more session; `None` when all are in use.
    pub fn context<X: Default>(&self) -> Option<Context<C, X>> {
        let participant = self.collector.register()?;
        let counters = Arc::new(Padded::default());
        lock(&self.registry).open.push(Arc::clone(&counters));
        Some(Context::new(participant, self.arena.pool(), counters))
    }

    /// Forgets a session's counters; their sums are kept.
    pub fn close<X>(&self, context: &Context<C, X>) {
        let mut registry = lock(&self.registry);
        let (own, open) = (&context.counters, registry.open.len());
        registry.open.retain(|counters| !Arc::ptr_eq(counters, own));
        assert_eq!(registry.open.len() + 1, open, "closed once");
        registry.closed.absorb(own);
    }

    /// Counts work that no session did.
    pub fn count(&self, count: impl FnOnce(&C)) {
        count(&lock(&self.registry).closed);
    }

    /// The sum of all counters. O(sessions).
    #[must_use]
    pub fn total(&self) -> C {
        let total = C::default();
        let registry = lock(&self.registry);
        total.absorb(&registry.closed);
        for counters in &registry.open {
            total.absorb(counters);
        }
        total
    }

    /// A stamp for what has just become unreachable.
    #[must_use]
    pub fn stamp(&self) -> ReclaimEpoch {
        self.collector.stamp()
    }

    /// Whether nobody can reach what was stamped any more.
    #[must_use]
    pub fn has_passed(&self, stamp: ReclaimEpoch) -> bool {
        self.collector.has_passed(stamp)
    }

    /// See [`pando_engine::Engine::pressure`].
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        match self.collector.halves_of_bound() {
            0 => Pressure::None,
            1 => Pressure::Slow,
            _ => Pressure::Refuse,
        }
    }

    /// Bytes retired and not yet freed. O(sessions).
    #[must_use]
    pub fn retired_bytes(&self) -> usize {
        self.collector.retired_bytes()
    }

    /// Lets every stamp pass and frees what sessions left: there is none any more, nor will be.
    pub fn outlast<X>(&self, context: &mut Context<C, X>) {
        // No session, hence no pin, is left: every step moves the epoch, and three steps pass any
        // stamp.
        for _ in 0..3 {
            self.collector.try_advance();
        }
        self.collector.collect_orphans(&mut context.pool);
        debug_assert!(self.retired_bytes() == 0 || std::thread::panicking());
    }

    /// Asserts, in debug builds, that an engine being dropped has freed all its memory.
    ///
    /// # Panics
    /// When it has not.
    pub fn assert_given_back(&self) {
        // Not while another assertion has already failed: the trees may be broken.
        if cfg!(debug_assertions) && !std::thread::panicking() {
            assert_eq!(self.arena.usage().live_blocks, 0, "blocks leaked");
        }
    }

    /// Reports the memory gauges; `live` says what lives in blocks.
    pub fn report_memory(&self, live: &'static str, report: &mut dyn FnMut(Gauge)) {
        let usage = self.arena.usage();
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        figure(
            "mapped_bytes",
            "Bytes of chunks taken from the system.",
            usage.mapped_bytes as f64,
        );
        figure("live_bytes", live, usage.live_bytes as f64);
        figure(
            "large_bytes",
            "Of these, bytes of blocks that are too large for chunks.",
            usage.external_bytes as f64,
        );
        let free = (usage.mapped_bytes + usage.external_bytes).saturating_sub(usage.live_bytes);
        figure("free_bytes", "Bytes of chunks not in use.", free as f64);
        figure(
            "retired_bytes",
            "Bytes that wait for readers to finish.",
            self.retired_bytes() as f64,
        );
        figure(
            "retired_bytes_max",
            "Bytes at which writes are refused until readers have finished.",
            self.collector.retired_bytes_max() as f64,
        );
        figure(
            "reclamation_lag",
            "Epochs that the slowest pinned session is behind, 0 or 1.",
            self.collector.lag() as f64,
        );
    }
}
