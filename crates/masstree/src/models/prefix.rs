//! Models of a get's fast path through layers of one entry: while the layer is made and folded.

use super::beside;
use crate::canary::Fault;
use crate::context::Context;
use crate::get::only_layer;
use crate::world::World;

/// A key that continues for a whole slice, so that a get takes that path.
const LONG: &[u8] = b"01234567ABCDEFGH";
const OTHER: &[u8] = b"01234567STUVWXYZ";

impl World {
    /// The layer that the long key's first slice leads to, by its root's address only: a wrong read
    /// must not be followed.
    fn only_layer(&self, context: &mut Context) -> Option<usize> {
        context.pinned(|guard, _| {
            let layer = only_layer(self.tree.root(guard), LONG, guard);
            layer.map(|(root, _)| root.as_ptr() as usize)
        })
    }
}

#[test]
fn a_layer_that_comes_is_seen_whole_or_not_at_all() {
    beside(
        None,
        |world, context| world.put(context, LONG),
        |world, context, ()| world.put(context, OTHER),
        |world, context| {
            let seen = world.only_layer(context);
            assert!(world.has(context, LONG));
            world.has(context, OTHER);
            seen
        },
        |world, context, (), seen| {
            assert!(seen.is_none_or(|seen| world.only_layer(context) == Some(seen)));
        },
    );
}

/// A layer of two keys loses one and is folded, concurrently with `read`.
fn fold_beside(fault: Option<Fault>, read: fn(&World, &mut Context)) {
    beside(
        fault,
        |world, context| {
            world.put(context, LONG);
            world.put(context, OTHER);
            let tombstone = world.remove(context, OTHER);
            let layer = world.only_layer(context);
            assert!(layer.is_some(), "the way that is modelled");
            (tombstone, layer)
        },
        |world, context, (tombstone, _)| world.purge(context, tombstone),
        move |world, context| {
            let seen = world.only_layer(context);
            read(world, context);
            seen
        },
        |world, context, (_, layer), seen| {
            assert!(seen.is_none() || seen == *layer, "a value is no layer");
            assert!(world.has(context, LONG), "never removed");
        },
    );
}

#[test]
fn a_get_finds_its_key_beside_the_fold_of_a_layer() {
    fold_beside(None, |world, context| assert!(world.has(context, LONG)));
}

#[test]
#[should_panic(expected = "a value is no layer")]
fn the_model_catches_a_fold_without_the_inserting_mark() {
    fold_beside(Some(Fault::FoldWithoutMark), |_, _| ());
}
