//! Models of operations that begin where a warming pass found their key (MH1 spots-under-pin,
//! MH2 spot-of-its-key), concurrently with a split, a new layer, the removal of a node or layer,
//! and the reuse of a slot or a node's memory.

use pando_engine::{Key, TreeId};

use super::{
    LAYER, LONG, OTHER, THIRD, beside, beside_within, fold_beside_inserter, is_own,
    remove_beside_inserter,
};
use crate::batch::warm_one;
use crate::canary::Fault;
use crate::context::Context;
use crate::node::Guard;
use crate::recall::Spot;
use crate::world::World;

fn named(key: &[u8]) -> Key<'_> {
    Key::new(TreeId(0), key)
}

impl World {
    fn warmed(&self, context: &Context, key: &[u8], guard: Guard<'_>) -> Option<Spot> {
        warm_one(&self.tree, key, guard, &context.counters)
    }

    /// Whether the key exists, by a get that begins at `spot`; if so, its value must be the key.
    fn has_at(
        &self,
        context: &mut Context,
        key: &[u8],
        spot: Option<Spot>,
        guard: Guard<'_>,
    ) -> bool {
        // SAFETY: the model says whether the pin has lasted since the spot was found
        // (MH1 spots-under-pin).
        let read = spot.map(|spot| unsafe { spot.read(named(key), &self.tree.canary, guard) });
        let Some(Ok(block)) = read else {
            return self.has(context, key);
        };
        is_own(block, key)
    }

    /// Puts the key as its own value where a warming pass found it.
    fn put_warmed(&self, context: &mut Context, key: &[u8]) {
        context.pinned(|guard, context| {
            let spot = self.warmed(context, key, guard);
            // SAFETY: under the same pin (MH1 spots-under-pin).
            let start =
                spot.and_then(|spot| unsafe { spot.reached(named(key), &self.tree.canary, guard) });
            let climbed = spot.is_some_and(Spot::climbed);
            assert!(start.is_some() || climbed, "the spot is the key's");
            self.put_from(start, key, key, guard, context);
        });
    }
}

/// Three keys in a node that is not the root, full.
fn full(world: &World, context: &mut Context) {
    for key in [b"0", b"1", b"2", b"a", b"c", b"d"] {
        world.put(context, key);
    }
}

#[test]
fn a_warmed_key_is_found_beside_a_split() {
    beside(
        None,
        |world, context| {
            [b"a", b"c", b"d"]
                .iter()
                .for_each(|key| world.put(context, *key))
        },
        |world, context, ()| world.put(context, b"b"),
        |world, context| {
            context.pinned(|guard, context| {
                let spot = world.warmed(context, b"d", guard);
                assert!(world.has_at(context, b"d", spot, guard), "never removed");
            });
        },
        |world, context, (), ()| assert!(world.has(context, b"b") && world.has(context, b"d")),
    );
}

/// A key that was warmed while absent is read after another one was put after it.
fn absent_key_that_comes(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| world.put(context, b"a"),
        |world, context, ()| {
            world.put(context, b"b");
            world.put(context, b"c");
        },
        |world, context| {
            context.pinned(|guard, context| {
                let spot = world.warmed(context, b"b", guard);
                if world.has(context, b"c") {
                    assert!(world.has_at(context, b"b", spot, guard), "put before c");
                }
            });
        },
        |world, context, (), ()| assert!(world.has(context, b"b")),
    );
}

#[test]
fn a_key_that_came_after_it_was_warmed_is_found() {
    absent_key_that_comes(None);
}

#[test]
#[should_panic(expected = "put before c")]
fn the_model_catches_a_spot_that_is_believed_unchecked() {
    absent_key_that_comes(Some(Fault::RecallUnchecked));
}

/// The slot of a warmed key is reused by another key: permutation and slot look as before.
fn slot_that_is_used_again(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| {
            world.put(context, b"a");
            world.put(context, b"b");
            world.remove(context, b"b")
        },
        |world, context, tombstone| {
            world.purge(context, tombstone);
            world.put(context, b"c");
        },
        |world, context| {
            context.pinned(|guard, context| {
                let spot = world.warmed(context, b"b", guard);
                assert!(!world.has_at(context, b"b", spot, guard), "removed before");
            });
        },
        |world, context, _, ()| assert!(world.has(context, b"c")),
    );
}

#[test]
fn a_warmed_key_is_not_taken_for_the_next_one_in_its_slot() {
    slot_that_is_used_again(None);
}

#[test]
#[should_panic(expected = "a whole value of this key")]
fn the_model_catches_a_reused_slot_without_the_inserting_mark() {
    slot_that_is_used_again(Some(Fault::ReuseWithoutMark));
}

/// A warmed key is put while its node splits.
fn put_beside_split(fault: Option<Fault>) {
    beside(
        fault,
        full,
        |world, context, ()| world.put(context, b"b"),
        |world, context| world.put_warmed(context, b"e"),
        |world, context, (), ()| {
            for key in [b"a", b"b", b"c", b"d"] {
                assert!(world.has(context, key), "never removed");
            }
            assert!(world.has(context, b"e"), "put where it is found");
        },
    );
}

#[test]
fn a_warmed_key_is_put_right_of_a_split() {
    put_beside_split(None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_put_into_the_wrong_half() {
    put_beside_split(Some(Fault::SplitWithoutMark));
}

#[test]
fn a_warmed_key_is_put_beside_a_node_that_goes() {
    remove_beside_inserter(World::put_warmed, None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_put_into_a_node_that_has_gone() {
    remove_beside_inserter(World::put_warmed, Some(Fault::RemoveWithoutMark));
}

#[test]
fn a_warmed_key_is_put_beside_a_layer_that_goes() {
    fold_beside_inserter(World::put_warmed, None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_put_into_a_layer_that_has_gone() {
    fold_beside_inserter(World::put_warmed, Some(Fault::LayerGoesWithoutMark));
}

#[test]
fn a_warmed_key_is_put_beside_a_layer_that_comes() {
    beside(
        None,
        |world, context| world.put(context, LONG),
        |world, context, ()| world.put(context, OTHER),
        |world, context| world.put_warmed(context, THIRD),
        |world, context, (), ()| {
            for key in [LONG, OTHER, THIRD] {
                assert!(world.has(context, key), "put where it is found");
            }
        },
    );
}

/// A layer whose root splits under a put while a warmed put, to which the link may be stale,
/// continues there; the next warmed put runs alone.
fn put_below_outgrown_link(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| LAYER[..3].iter().for_each(|key| world.put(context, key)),
        |world, context, ()| world.put(context, LAYER[3]),
        |world, context| world.put_warmed(context, LAYER[4]),
        |world, context, (), ()| {
            world.put_warmed(context, LAYER[0]);
            let spot = context.pinned(|guard, context| world.warmed(context, LAYER[1], guard));
            assert!(!spot.is_some_and(Spot::climbed), "the link is up to date");
            for key in LAYER {
                assert!(world.has(context, key), "put where it is found");
            }
        },
    );
}

#[test]
fn a_warmed_put_brings_a_link_up_to_date() {
    put_below_outgrown_link(None);
}

#[test]
#[should_panic(expected = "the link is up to date")]
fn the_model_catches_a_warmed_put_that_leaves_a_link() {
    put_below_outgrown_link(Some(Fault::OutgrownLinkKept));
}

/// Two keys of another layer.
const ELSEWHERE: [&[u8]; 2] = [b"abcdefghAB", b"abcdefghXY"];

/// The layer of a warmed key is removed with its node's memory, which comes back as the same kind
/// of node in another layer; nothing in the node tells them apart. The reading thread also begins,
/// so one preemption is enough.
fn memory_that_is_used_again(
    read: impl Fn(&World, &mut Context, &()) + Copy + Send + Sync + 'static,
) {
    beside_within(
        1,
        None,
        |world, context| {
            world.put(context, LONG);
            world.put(context, OTHER);
        },
        read,
        |world, context| {
            for key in [LONG, OTHER] {
                let tombstone = world.remove(context, key);
                world.purge(context, &tombstone);
            }
            world.collect(context);
            for key in ELSEWHERE {
                world.put(context, key);
            }
        },
        |world, context, (), ()| {
            assert!(ELSEWHERE.iter().all(|key| world.has(context, key)));
        },
    );
}

#[test]
fn mh1_the_node_of_a_spot_lives_as_long_as_the_pin() {
    memory_that_is_used_again(|world, context, ()| {
        context.pinned(|guard, context| {
            let spot = world.warmed(context, LONG, guard);
            if world.has(context, ELSEWHERE[1]) {
                let found = world.has_at(context, LONG, spot, guard);
                assert!(!found, "removed before the other layer came");
            }
        });
    });
}

#[test]
#[should_panic(expected = "a whole value of this key")]
fn the_model_catches_a_spot_that_outlives_its_pin() {
    memory_that_is_used_again(|world, context, ()| {
        let spot = context.pinned(|guard, context| world.warmed(context, LONG, guard));
        context.pinned(|guard, context| {
            // By then the memory has been reused.
            if world.has(context, ELSEWHERE[1]) {
                world.has_at(context, LONG, spot, guard);
            }
        });
    });
}
