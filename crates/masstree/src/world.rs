//! The fixture of models: one tree of small nodes, without the engine around it.

use std::sync::{Arc, Mutex};

use pando_engine::{Body, Decision, EpochClock, Key, LogEpoch, NewValue, NoHook, Shown, TreeId};
#[cfg(loom)]
use pando_engine::{Restored, ValueVersion};
use pando_memory::pool::{Arena, Pages, Pool};
use pando_sync::Padded;
use pando_sync::epoch::Collector;

use crate::canary::Fault;
use crate::context::Context;
use crate::counters::Counters;
use crate::node::Guard;
#[cfg(loom)]
use crate::pack::restore_run;
use crate::recall::Start;
use crate::task::{Tombstone, purge};
use crate::tree::Tree;
use crate::update::{Commit, Draw, Update};

/// The main thread of a model and those it spawns, two contexts for some.
const PARTICIPANTS_MAX: usize = 12;

/// One tree, and what its users share.
pub(crate) struct World {
    pub(crate) tree: Tree,
    clock: EpochClock,
    /// Of removals that leave no tombstone.
    #[cfg(loom)]
    forgetful: EpochClock,
    collector: Arc<Collector<Pool>>,
    arena: Arc<Arena>,
    /// Of all contexts: models run one thread at a time and switch at the shim's atomics only.
    counters: Arc<Padded<Counters>>,
    /// Tombstones that any thread may purge.
    buried: Mutex<Vec<Tombstone>>,
}

impl World {
    /// An empty tree, with a fault planted in it if one is given.
    pub(crate) fn new(fault: Option<Fault>) -> Arc<Self> {
        let arena = Arena::new(Pages::Small);
        let tree = Tree::new(TreeId(0), &mut arena.pool());
        if let Some(fault) = fault {
            tree.canary.plant(fault);
        }
        Arc::new(Self {
            tree,
            clock: EpochClock::starting_at(LogEpoch(1)),
            #[cfg(loom)]
            forgetful: EpochClock::self_driven(),
            collector: Collector::new(PARTICIPANTS_MAX, usize::MAX),
            arena,
            counters: Arc::default(),
            buried: Mutex::default(),
        })
    }

    pub(crate) fn context(&self) -> Context {
        let participant = self.collector.register().expect("a few participants");
        let counters = Arc::clone(&self.counters);
        Context::new(participant, self.arena.pool(), counters)
    }

    pub(crate) fn put_value(&self, context: &mut Context, key: &[u8], value: &[u8]) {
        context.pinned(|guard, context| self.put_from(None, key, value, guard, context));
    }

    /// Puts a value, beginning at `start` if given.
    pub(crate) fn put_from<'k, 'g>(
        &self,
        start: Option<Start<'k, 'g>>,
        key: &'k [u8],
        value: &[u8],
        guard: Guard<'g>,
        context: &mut Context,
    ) {
        let write = || Decision::Write(NewValue::new(Body::string(value)));
        self.update_from(&self.clock, start, key, write, guard, context);
    }

    /// Removes a key at once, if it exists, as under a self-driven clock.
    #[cfg(loom)]
    pub(crate) fn forget(&self, context: &mut Context, key: &[u8]) {
        context.pinned(|guard, context| {
            let remove = || Decision::Remove;
            self.update_from(&self.forgetful, None, key, remove, guard, context);
        });
    }

    fn update_from<'k, 'g, 'd>(
        &self,
        clock: &EpochClock,
        start: Option<Start<'k, 'g>>,
        key: &'k [u8],
        decide: impl Fn() -> Decision<'d>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Option<Commit> {
        Update {
            tree: &self.tree,
            draw: Draw::Clock(clock),
            images: None,
            key: Key::new(TreeId(0), key),
            hook: &mut NoHook,
            in_place: false,
            decide: |_: &mut Shown<'_>| decide(),
        }
        .run(start, guard, context)
    }

    /// Reclaims what no pin can reach any more.
    #[cfg(loom)]
    pub(crate) fn collect(&self, context: &mut Context) {
        // Two epochs must pass; a third step covers what was retired within the current one.
        for _ in 0..3 {
            context.collect();
        }
    }

    /// Restores keys, in order, as their own values.
    #[cfg(loom)]
    pub(crate) fn restore(&self, context: &mut Context, keys: &[&[u8]]) {
        let restored = |key| Restored {
            key,
            version: ValueVersion::from_bits(1),
            value: NewValue::new(Body::string(key)),
        };
        let mut run = keys.iter().copied().map(restored).collect();
        context.pinned(|guard, context| restore_run(&self.tree, &mut run, guard, context));
    }

    /// Queues what was removed for whoever purges it.
    pub(crate) fn bury(&self, tombstone: Tombstone) {
        self.buried
            .lock()
            .expect("no panic under this lock")
            .push(tombstone);
    }

    /// The tombstone buried last.
    pub(crate) fn exhume(&self) -> Option<Tombstone> {
        self.buried.lock().expect("no panic under this lock").pop()
    }

    /// Layers below the first one.
    pub(crate) fn layers(&self) -> i64 {
        self.counters.layers.get()
    }

    /// Removes a key that exists; returns what remembers it.
    pub(crate) fn remove(&self, context: &mut Context, key: &[u8]) -> Tombstone {
        let commit = context.pinned(|guard, context| {
            self.update_from(&self.clock, None, key, || Decision::Remove, guard, context)
        });
        let version = commit.expect("the key was there").version;
        Tombstone {
            tree: TreeId(0),
            key: key.into(),
            version,
        }
    }

    /// Purges a tombstone, with the node and layers that it leaves empty.
    pub(crate) fn purge(&self, context: &mut Context, tombstone: &Tombstone) {
        context.pinned(|guard, context| purge(&self.tree, tombstone, None, guard, context));
    }
}

/// Panics print the failure only: a backtrace needs more stack than loom's threads have.
pub(crate) fn say_panics_shortly() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}
