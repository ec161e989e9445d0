//! What models run on: one tree of small nodes, without the engine around it.

use std::sync::{Arc, Mutex};

use pando_engine::{Body, Decision, EpochClock, Key, LogEpoch, NewValue, NoHook, TreeId, ValueRef};
#[cfg(loom)]
use pando_engine::{Restored, ValueVersion};
use pando_memory::pool::{Arena, Pages, Pool};
use pando_sync::Padded;
use pando_sync::epoch::Collector;

use crate::canary::Fault;
use crate::context::Context;
use crate::counters::Counters;
#[cfg(loom)]
use crate::pack::restore_run;
use crate::task::{Tombstone, purge};
use crate::tree::Tree;
use crate::update::{Draw, Update};

/// The main thread of a model and those that it spawns, two contexts for some.
const PARTICIPANTS_MAX: usize = 12;

/// One tree, and what its users share.
pub(crate) struct World {
    pub(crate) tree: Tree,
    clock: EpochClock,
    collector: Arc<Collector<Pool>>,
    arena: Arc<Arena>,
    /// Of all contexts: models run one thread at a time and switch at the shim's atomics only.
    counters: Arc<Padded<Counters>>,
    /// Tombstones that any thread may take out.
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
            collector: Collector::new(PARTICIPANTS_MAX, usize::MAX),
            arena,
            counters: Arc::default(),
            buried: Mutex::default(),
        })
    }

    pub(crate) fn context(&self) -> Context {
        Context {
            participant: self.collector.register().expect("a few participants"),
            pool: self.arena.pool(),
            counters: Arc::clone(&self.counters),
            last_filled: 0,
        }
    }

    pub(crate) fn put_value(&self, context: &mut Context, key: &[u8], value: &[u8]) {
        context.pinned(|guard, context| {
            let decide =
                |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::string(value)));
            let key = Key::new(TreeId(0), key);
            let (tree, draw) = (&self.tree, Draw::Clock(&self.clock));
            Update {
                tree,
                draw,
                key,
                hook: &mut NoHook,
                decide,
            }
            .run(None, guard, context);
        });
    }

    /// Where versions come from.
    #[cfg(loom)]
    pub(crate) fn draw(&self) -> Draw<'_> {
        Draw::Clock(&self.clock)
    }

    /// Gives back what no pin can reach any more.
    #[cfg(loom)]
    pub(crate) fn collect(&self, context: &mut Context) {
        // Two epochs must pass; a third step covers what was retired within the current one.
        for _ in 0..3 {
            context.participant.collect(&mut context.pool);
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

    /// Remembers what was removed for whoever comes to take it out.
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

    /// Removes a key that is there; what remembers it is returned.
    pub(crate) fn remove(&self, context: &mut Context, key: &[u8]) -> Tombstone {
        let version = context.pinned(|guard, context| {
            let decide = |_: Option<ValueRef<'_>>| Decision::Remove;
            let named = Key::new(TreeId(0), key);
            let (tree, draw) = (&self.tree, Draw::Clock(&self.clock));
            let commit = Update {
                tree,
                draw,
                key: named,
                hook: &mut NoHook,
                decide,
            }
            .run(None, guard, context);
            commit.expect("the key was there").version
        });
        Tombstone {
            tree: TreeId(0),
            key: key.into(),
            version,
        }
    }

    /// Takes a tombstone out, with the node and layers that it leaves empty.
    pub(crate) fn purge(&self, context: &mut Context, tombstone: &Tombstone) {
        context.pinned(|guard, context| purge(&self.tree, tombstone, guard, context));
    }
}

/// Panics say what failed and no more: a backtrace needs more stack than loom's threads have.
pub(crate) fn say_panics_shortly() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}
