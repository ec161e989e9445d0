//! Models of a value that moves to other memory, concurrently with a reader and with a put of its
//! key.

use pando_block::BlockRef;
use pando_engine::BodyRef;

use super::beside;
use crate::canary::Fault;
use crate::context::Context;
use crate::get::get;
use crate::relocate::relocate_if;
use crate::world::World;

const KEY: &[u8] = b"k";
/// As long as the key, so that blocks are of one class.
const NEW: &[u8] = b"n";

/// Puts the key, and leaves a free block of its class in the context's pool to move to.
fn with_room(world: &World, context: &mut Context) {
    world.put(context, KEY);
    world.put(context, KEY);
    world.collect(context);
}

impl World {
    /// Moves the key's value, as if the memory of every block were being emptied.
    fn relocate(&self, context: &mut Context) {
        let moved =
            context.pinned(|guard, context| relocate_if(|_| true, &self.tree, KEY, guard, context));
        assert!(moved, "there is room");
    }

    fn is_new(&self, context: &mut Context) -> bool {
        context.pinned(|guard, context| {
            let block = get(&self.tree, KEY, guard, &context.counters);
            let value = block.and_then(BlockRef::value).expect("the key was put");
            let BodyRef::String(string) = value.body else {
                panic!("a string was put");
            };
            string.as_flat() == Some(NEW)
        })
    }
}

#[test]
fn a_reader_sees_a_value_that_moves() {
    beside(
        None,
        with_room,
        |world, context, ()| world.relocate(context),
        |world, context| assert!(world.has(context, KEY), "in one place or the other"),
        |world, context, (), ()| assert!(world.has(context, KEY)),
    );
}

fn relocate_beside_put(fault: Option<Fault>) {
    beside(
        fault,
        with_room,
        |world, context, ()| world.relocate(context),
        |world, context| world.put_value(context, KEY, NEW),
        |world, context, (), ()| assert!(world.is_new(context), "a put is not undone"),
    );
}

#[test]
fn a_put_stays_beside_a_value_that_moves() {
    relocate_beside_put(None);
}

#[test]
#[should_panic(expected = "a put is not undone")]
fn the_model_catches_a_move_without_the_lock() {
    relocate_beside_put(Some(Fault::RelocateUnlocked));
}
