//! Models for loom: the real code on nodes of width 3, every interleaving of two threads up to a
//! bound of preemptions. Run with `RUSTFLAGS="--cfg loom" cargo test -p pando-masstree --release`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_engine::{
    Body, BodyRef, Decision, EpochClock, Key, LogEpoch, NewValue, NoHook, TreeId, ValueRef,
};
use pando_memory::pool::{Arena, Pages, Pool};
use pando_sync::epoch::Collector;

use crate::canary::Fault;
use crate::context::Context;
use crate::get::get;
use crate::tree::Tree;
use crate::update::{Draw, Update};

/// Preemptions per execution: the races of one reader and one writer show with two.
const PREEMPTIONS_MAX: usize = 2;

/// Fewer executions than this mean that the model did not see the node's atomics.
const EXECUTIONS_MIN: usize = 10;

struct World {
    tree: Tree,
    clock: EpochClock,
    collector: Arc<Collector<Pool>>,
    arena: Arc<Arena>,
}

impl World {
    fn new() -> Arc<Self> {
        let arena = Arena::new(Pages::Small);
        Arc::new(Self {
            tree: Tree::new(TreeId(0), &mut arena.pool()),
            clock: EpochClock::starting_at(LogEpoch(1)),
            collector: Collector::new(3, usize::MAX),
            arena,
        })
    }

    fn context(&self) -> Context {
        Context {
            participant: self
                .collector
                .register()
                .expect("three participants at most"),
            pool: self.arena.pool(),
            counters: Arc::default(),
        }
    }

    fn put(&self, context: &mut Context, key: &[u8]) {
        context.pinned(|guard, context| {
            let decide = |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::Bytes(key)));
            let key = Key::new(TreeId(0), key);
            let (tree, draw) = (&self.tree, Draw::Clock(&self.clock));
            Update {
                tree,
                draw,
                key,
                hook: &mut NoHook,
                decide,
            }
            .run(guard, context);
        });
    }

    /// Whether the key is there; if so its value must be the key.
    fn has(&self, context: &mut Context, key: &[u8]) -> bool {
        context.pinned(|guard, context| {
            let Some(block) = get(&self.tree, key, guard, &context.counters) else {
                return false;
            };
            let BodyRef::String(string) = block.value().expect("nothing is removed").body else {
                panic!("a string was put");
            };
            assert_eq!(string.as_flat(), Some(key), "a whole value of this key");
            true
        })
    }
}

/// Puts `before`, then runs a writer that puts `key` beside a reader.
fn beside_put(
    fault: Option<Fault>,
    before: &'static [&'static [u8]],
    key: &'static [u8],
    read: fn(&World, &mut Context),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let world = World::new();
        if let Some(fault) = fault {
            world.tree.canary.plant(fault);
        }
        let mut writer = world.context();
        let mut reader = world.context();
        for key in before {
            world.put(&mut writer, key);
        }
        // The reader is spawned and the writer comes first: loom looks for a race with the last
        // access only, so a load before the writer's own load of a word would hide the race.
        let reading = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                read(&world, &mut reader);
                reader
            })
        };
        world.put(&mut writer, key);
        let mut reader = reading.join().unwrap();
        assert!(world.has(&mut reader, key), "what was put is there");
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(
        executions > EXECUTIONS_MIN,
        "only {executions} interleavings"
    );
}

#[test]
fn an_inserted_key_is_seen_whole_or_not_at_all() {
    beside_put(None, &[b"b"], b"a", |world, reader| {
        world.has(reader, b"a");
        assert!(world.has(reader, b"b"));
    });
}

#[test]
fn no_key_is_lost_to_a_split() {
    beside_put(None, &[b"a", b"c", b"d"], b"b", |world, reader| {
        assert!(world.has(reader, b"d"), "moved to the new node");
    });
}

#[test]
#[should_panic(expected = "moved to the new node")]
fn the_model_catches_a_missing_split_mark() {
    let fault = Some(Fault::SplitWithoutMark);
    // The node that splits is no root, whose root bit would change its version all the same.
    beside_put(
        fault,
        &[b"0", b"1", b"2", b"a", b"c", b"d"],
        b"b",
        |world, reader| {
            assert!(world.has(reader, b"d"), "moved to the new node");
        },
    );
}

#[test]
fn no_key_is_lost_to_a_new_layer() {
    beside_put(None, &[b"01234567AB"], b"01234567XY", |world, reader| {
        assert!(world.has(reader, b"01234567AB"));
        world.has(reader, b"01234567XY");
    });
}
