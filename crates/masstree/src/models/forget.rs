//! Models of removals that leave no tombstone (V3 self-driven-removal): an entry, a node and a
//! layer are removed under readers and writers on their way to them.

use super::{LONG, OTHER, THIRD, beside};
use crate::canary::Fault;

/// A removed key's slot is reused at once, under a reader of that key.
fn slot_that_is_used_again(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| [b"a", b"b"].iter().for_each(|key| world.put(context, *key)),
        |world, context, ()| {
            world.forget(context, b"b");
            world.put(context, b"c");
        },
        |world, context| {
            // Its own value or none, never c's.
            world.has(context, b"b");
            assert!(world.has(context, b"a"), "never removed");
        },
        |world, context, (), ()| {
            assert!(!world.has(context, b"b"), "removed");
            assert!(world.has(context, b"c"));
        },
    );
}

#[test]
fn a_forgotten_key_is_not_taken_for_the_next_one_in_its_slot() {
    slot_that_is_used_again(None);
}

#[test]
#[should_panic(expected = "a whole value of this key")]
fn the_model_catches_a_slot_that_is_used_again_without_the_inserting_mark() {
    slot_that_is_used_again(Some(Fault::ReuseWithoutMark));
}

/// The only key of a node that is not its layer's leftmost is forgotten, concurrently with an
/// insert there.
fn node_that_goes(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| {
            for key in [b"a", b"c", b"d", b"e"] {
                world.put(context, key);
            }
        },
        |world, context, ()| world.forget(context, b"e"),
        |world, context| world.put(context, b"f"),
        |world, context, (), ()| {
            assert!(world.has(context, b"f"), "put where it is found");
            assert!(!world.has(context, b"e"), "removed");
        },
    );
}

#[test]
fn no_insert_is_lost_to_a_node_that_is_emptied_at_once() {
    node_that_goes(None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_node_that_goes_at_once_without_the_deleted_mark() {
    node_that_goes(Some(Fault::RemoveWithoutMark));
}

/// One of a layer's two keys is forgotten, concurrently with the insert of a third.
fn layer_that_goes(fault: Option<Fault>) {
    beside(
        fault,
        |world, context| [LONG, OTHER].iter().for_each(|key| world.put(context, key)),
        |world, context, ()| world.forget(context, OTHER),
        |world, context| world.put(context, THIRD),
        |world, context, (), ()| {
            assert!(world.has(context, THIRD), "put where it is found");
            assert!(world.has(context, LONG), "never removed");
            assert!(!world.has(context, OTHER), "removed");
        },
    );
}

#[test]
fn no_insert_is_lost_to_a_layer_that_is_folded_at_once() {
    layer_that_goes(None);
}

#[test]
#[should_panic(expected = "put where it is found")]
fn the_model_catches_a_layer_that_goes_at_once_without_the_deleted_mark() {
    layer_that_goes(Some(Fault::LayerGoesWithoutMark));
}
