//! Models for loom: the real code on nodes of width 3, every interleaving of two threads up to a
//! bound of preemptions. Run with `RUSTFLAGS="--cfg loom" cargo test -p pando-masstree --release`.

mod forget;
mod prefix;
mod recall;
mod relocate;
mod snapshots;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_block::BlockRef;
use pando_engine::BodyRef;
use pando_sync::shim::Spin;

use crate::canary::Fault;
use crate::context::Context;
use crate::find::{Found, LayerGone, look};
use crate::get::get;
use crate::slice::Cursor;
use crate::task::Tombstone;
use crate::world::{World, say_panics_shortly};

/// What [`World::peek`] read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peeked {
    Nothing,
    Value(usize),
    Layer,
}

impl World {
    /// Puts the key as its own value.
    fn put(&self, context: &mut Context, key: &[u8]) {
        self.put_value(context, key, key);
    }

    /// What the first layer holds at the slice of a longer key, identified by its address only: a
    /// wrong read must not be followed.
    fn peek(&self, context: &mut Context, key: &[u8]) -> Peeked {
        context.pinned(|guard, context| {
            let mut spin = Spin::new();
            loop {
                let root = self.tree.root(guard);
                let found = look(root, Cursor::new(key), guard, &context.counters);
                return match found.map(|(_, found)| found) {
                    Ok(Found::Absent) => Peeked::Nothing,
                    Ok(Found::Value(block)) => Peeked::Value(block.as_ptr() as usize),
                    Ok(Found::Layer(_)) => Peeked::Layer,
                    Err(LayerGone) => {
                        spin.wait();
                        continue;
                    }
                };
            }
        })
    }

    /// Whether the key exists; if so, its value must be the key.
    fn has(&self, context: &mut Context, key: &[u8]) -> bool {
        context.pinned(|guard, context| is_own(get(&self.tree, key, guard, &context.counters), key))
    }
}

/// Whether a value was found; it must be the key.
fn is_own(block: Option<BlockRef<'_>>, key: &[u8]) -> bool {
    let Some(value) = block.and_then(BlockRef::value) else {
        return false;
    };
    let BodyRef::String(string) = value.body else {
        panic!("a string was put");
    };
    assert_eq!(string.as_flat(), Some(key), "a whole value of this key");
    true
}

/// How a key is put: by a descent of its own, or where a warming pass found it.
type Put = fn(&World, &mut Context, &[u8]);

/// Preemptions per execution: the races of one reader and one writer show with two.
const PREEMPTIONS_MAX: usize = 2;

/// Fewer executions than this mean that the model did not see the node's atomics.
const EXECUTIONS_MIN: usize = 10;

/// Puts `before`, then runs a writer that puts `key` concurrently with a reader.
fn beside_put(
    fault: Option<Fault>,
    before: &'static [&'static [u8]],
    key: &'static [u8],
    read: impl Fn(&World, &mut Context) + Copy + Send + Sync + 'static,
) {
    beside(
        fault,
        move |world, context| before.iter().for_each(|key| world.put(context, key)),
        move |world, context, ()| world.put(context, key),
        read,
        move |world, context, (), ()| assert!(world.has(context, key), "what was put is there"),
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
    // The node that splits is not a root: a root bit would change its version in any case.
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

/// Runs `write` concurrently with `read` in every interleaving, after `prepare`, and then `check`.
fn beside<P: Send + Sync + 'static, R: Send + 'static>(
    fault: Option<Fault>,
    prepare: impl Fn(&World, &mut Context) -> P + Copy + Send + Sync + 'static,
    write: impl Fn(&World, &mut Context, &P) + Copy + Send + Sync + 'static,
    read: impl Fn(&World, &mut Context) -> R + Copy + Send + Sync + 'static,
    check: impl Fn(&World, &mut Context, &P, R) + Copy + Send + Sync + 'static,
) {
    beside_within(PREEMPTIONS_MAX, fault, prepare, write, read, check);
}

/// Like [`beside`], with this many preemptions: long operations have too many places for two.
fn beside_within<P: Send + Sync + 'static, R: Send + 'static>(
    preemptions_max: usize,
    fault: Option<Fault>,
    prepare: impl Fn(&World, &mut Context) -> P + Copy + Send + Sync + 'static,
    write: impl Fn(&World, &mut Context, &P) + Copy + Send + Sync + 'static,
    read: impl Fn(&World, &mut Context) -> R + Copy + Send + Sync + 'static,
    check: impl Fn(&World, &mut Context, &P, R) + Copy + Send + Sync + 'static,
) {
    say_panics_shortly();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions_max);
    model.max_branches = 10_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let world = World::new(fault);
        let mut writer = world.context();
        let mut reader = world.context();
        let prepared = prepare(&world, &mut writer);
        // The reader is spawned and the writer comes first: loom looks for a race with the last
        // access only, so a load before the writer's own load of a word would hide the race.
        let reading = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                let seen = read(&world, &mut reader);
                (reader, seen)
            })
        };
        write(&world, &mut writer, &prepared);
        let (mut reader, seen) = reading.join().unwrap();
        check(&world, &mut reader, &prepared, seen);
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(
        executions > EXECUTIONS_MIN,
        "only {executions} interleavings"
    );
}

/// The keys of one layer below the first: three fill its root, the fourth splits it.
const LAYER: [&[u8]; 5] = [
    b"01234567a",
    b"01234567b",
    b"01234567c",
    b"01234567d",
    b"01234567e",
];

/// The root of a layer splits; the link to it is stale until a later put repairs it.
#[test]
fn no_key_is_lost_to_a_stale_root() {
    beside(
        None,
        |world, context| LAYER[..3].iter().for_each(|key| world.put(context, key)),
        |world, context, ()| LAYER[3..].iter().for_each(|key| world.put(context, key)),
        |world, context| {
            assert!(world.has(context, LAYER[0]), "left of the split");
            assert!(world.has(context, LAYER[2]), "moved to the new node");
        },
        |world, context, (), ()| {
            for key in LAYER {
                assert!(world.has(context, key), "put where it is found");
            }
        },
    );
}

/// The same concurrently with a put, which may find the root as it was, stale or repaired.
#[test]
fn no_put_is_lost_to_a_stale_root() {
    beside(
        None,
        |world, context| LAYER[..3].iter().for_each(|key| world.put(context, key)),
        |world, context, ()| world.put(context, LAYER[3]),
        |world, context| world.put(context, LAYER[4]),
        |world, context, (), ()| {
            for key in LAYER {
                assert!(world.has(context, key), "put where it is found");
            }
        },
    );
}

const LONG: &[u8] = b"01234567AB";
const OTHER: &[u8] = b"01234567XY";

/// An entry turns into a layer under a reader, which sees the old value or the layer.
fn deepen_beside_reader(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| {
            world.put(context, LONG);
            world.peek(context, LONG)
        },
        |world, context, _| world.put(context, OTHER),
        |world, context| world.peek(context, LONG),
        |world, context, old, seen| {
            assert!(seen == *old || seen == Peeked::Layer, "a node is no value");
            assert!(world.has(context, LONG) && world.has(context, OTHER));
        },
    );
}

#[test]
fn an_entry_is_its_old_value_or_a_layer() {
    deepen_beside_reader(None);
}

#[test]
#[should_panic(expected = "a node is no value")]
fn the_model_catches_a_missing_unstable_mark() {
    deepen_beside_reader(Some(Fault::DeepenWithoutMark));
}

/// An entry turns into a layer and is folded back under a reader.
fn fold_beside_reader(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| {
            world.put(context, LONG);
            world.peek(context, LONG)
        },
        |world, context, _| {
            world.put(context, OTHER);
            let tombstone = world.remove(context, OTHER);
            world.purge(context, &tombstone);
        },
        |world, context| world.peek(context, LONG),
        |world, context, old, seen| {
            let folded = world.peek(context, LONG);
            assert!(matches!(folded, Peeked::Value(_)), "folded");
            let either = seen == *old || seen == folded || seen == Peeked::Layer;
            assert!(either, "a node is no value");
            assert!(world.has(context, LONG));
        },
    );
}

#[test]
fn an_entry_is_a_value_again_after_its_layer() {
    fold_beside_reader(None);
}

#[test]
#[should_panic(expected = "a node is no value")]
fn the_model_catches_a_fold_without_the_inserting_mark() {
    fold_beside_reader(Some(Fault::FoldWithoutMark));
}

/// Two border nodes, a to c and d; d is a tombstone, whose purge empties its node.
fn emptying(world: &World, context: &mut Context) -> Tombstone {
    for key in [b"a", b"c", b"d", b"e"] {
        world.put(context, key);
    }
    world.remove(context, b"e")
}

#[test]
fn no_key_is_lost_to_a_node_that_goes() {
    beside(
        None,
        emptying,
        World::purge,
        |world, context| {
            assert!(world.has(context, b"d"), "left of the node");
            assert_eq!(world.peek(context, b"f"), Peeked::Nothing, "right of it");
        },
        |world, context, _, ()| assert_eq!(world.peek(context, b"e"), Peeked::Nothing),
    );
}

fn remove_beside_inserter(put: Put, fault: Option<Fault>) {
    beside(
        fault,
        emptying,
        World::purge,
        move |world, context| put(world, context, b"f"),
        |world, context, _, ()| assert!(world.has(context, b"f"), "put where it is found"),
    );
}

#[test]
fn no_insert_is_lost_to_a_node_that_goes() {
    remove_beside_inserter(World::put, None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_missing_deleted_mark() {
    remove_beside_inserter(World::put, Some(Fault::RemoveWithoutMark));
}

#[test]
fn a_split_beside_a_neighbour_that_goes_loses_nothing() {
    beside(
        None,
        emptying,
        World::purge,
        |world, context| world.put(context, b"b"),
        |world, context, _, ()| {
            for key in [b"a", b"b", b"c", b"d"] {
                assert!(world.has(context, key));
            }
        },
    );
}

const THIRD: &[u8] = b"01234567MN";

/// Two keys in a layer, one of them a tombstone, whose purge folds the layer.
fn folding(world: &World, context: &mut Context) -> Tombstone {
    world.put(context, LONG);
    world.put(context, OTHER);
    world.remove(context, OTHER)
}

fn fold_beside_inserter(put: Put, fault: Option<Fault>) {
    beside(
        fault,
        folding,
        World::purge,
        move |world, context| put(world, context, THIRD),
        |world, context, _, ()| {
            assert!(world.has(context, THIRD), "put where it is found");
            assert!(world.has(context, LONG), "never removed");
        },
    );
}

#[test]
fn no_insert_is_lost_to_a_layer_that_goes() {
    fold_beside_inserter(World::put, None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_layer_that_goes_without_the_deleted_mark() {
    fold_beside_inserter(World::put, Some(Fault::LayerGoesWithoutMark));
}

#[test]
fn a_removed_key_comes_back_beside_its_layer_s_end() {
    beside(
        None,
        folding,
        World::purge,
        |world, context| world.put(context, OTHER),
        |world, context, _, ()| {
            assert!(world.has(context, LONG), "never removed");
            assert!(
                world.has(context, OTHER),
                "the purge takes its own tombstone only"
            );
        },
    );
}

#[test]
fn two_purges_take_a_layer_away_between_them() {
    beside(
        None,
        |world, context| {
            world.put(context, LONG);
            world.put(context, OTHER);
            let long = world.remove(context, LONG);
            world.bury(world.remove(context, OTHER));
            long
        },
        World::purge,
        |world, context| {
            let other = world.exhume().unwrap();
            world.purge(context, &other);
        },
        |world, context, _, ()| {
            assert_eq!(world.peek(context, LONG), Peeked::Nothing);
            assert_eq!(world.layers(), 0, "no layer is left");
        },
    );
}

#[test]
fn a_tombstone_that_becomes_a_layer_beside_its_purge_goes() {
    beside(
        None,
        |world, context| {
            world.put(context, LONG);
            world.remove(context, LONG)
        },
        World::purge,
        |world, context| {
            world.put(context, OTHER);
            assert!(world.has(context, OTHER), "put where it is found");
        },
        |world, context, _, ()| {
            assert!(world.has(context, OTHER));
            assert!(
                world.tree.counts.tombstones() == 0,
                "the purge found it wherever it was"
            );
        },
    );
}

/// A run continues after a full node that is not a root; what follows belongs to the new node,
/// under a writer that found the old one responsible. One preemption shows the fault; two took a
/// third of the time of all models.
fn pack_beside_writer(fault: Option<Fault>) {
    beside_within(
        1,
        fault,
        |world, context| {
            // Two nodes, the second one full.
            for key in [b"0", b"1", b"2", b"4", b"5"] {
                world.put(context, key);
            }
        },
        |world, context, ()| world.restore(context, &[b"6", b"7", b"8"]),
        |world, context| {
            world.put(context, b"9");
            assert!(world.has(context, b"5"));
        },
        |world, context, (), ()| {
            for key in [b"0", b"5", b"6", b"7", b"8", b"9"] {
                assert!(world.has(context, key), "put where it is found");
            }
        },
    );
}

#[test]
fn no_key_is_lost_to_a_packed_run() {
    pack_beside_writer(None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_run_without_the_split_mark() {
    pack_beside_writer(Some(Fault::SplitWithoutMark));
}
