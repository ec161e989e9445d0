//! Moving a value out of memory that is being emptied (see `pando_memory::pool`).
//!
//! Under the border node's lock the block is copied bit by bit and the entry's link changed by one
//! store, as by an update (§4.6.1) that changes nothing. Readers see one block or the other, which
//! are equal (VB1 immutable-block). A mark that a reader meanwhile sets in the old one is lost.

use pando_block::{BlockRef, Keep};

use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::find::{Found, LayerGone, look};
use crate::node::Guard;
use crate::slice::Cursor;
use crate::tree::Tree;
use crate::update::{Entry, KeyState, key_state, lock_border};

/// Moves the key's value if it is in such memory and fits elsewhere; returns whether it moved.
pub(crate) fn relocate(tree: &Tree, key: &[u8], guard: Guard<'_>, context: &mut Context) -> bool {
    relocate_if(BlockRef::is_emptying, tree, key, guard, context)
}

/// Like [`relocate`], for a value whose block `leaves`.
pub(crate) fn relocate_if<'g>(
    leaves: impl Fn(BlockRef<'g>) -> bool + Copy,
    tree: &Tree,
    key: &[u8],
    guard: Guard<'g>,
    context: &mut Context,
) -> bool {
    loop {
        match descend(leaves, tree, key, guard, context) {
            Ok(moved) => return moved,
            Err(LayerGone) => context.counters.root_retries.add(1),
        }
    }
}

fn descend<'g>(
    leaves: impl Fn(BlockRef<'g>) -> bool,
    tree: &Tree,
    key: &[u8],
    guard: Guard<'g>,
    context: &mut Context,
) -> Result<bool, LayerGone> {
    let mut root = tree.root(guard);
    let mut cursor = Cursor::new(key);
    loop {
        let (reached, found) = look(root, cursor, guard, &context.counters)?;
        match found {
            Found::Absent => return Ok(false),
            Found::Layer(next) => {
                root = next;
                cursor = cursor.deeper();
            }
            Found::Value(_) => {
                let locked = lock_border(&reached, cursor.slice())?;
                let Entry { slot, block } = match key_state(*locked, cursor, guard) {
                    KeyState::Own(entry) => entry,
                    KeyState::Deeper => continue,
                    KeyState::Other(..) | KeyState::Free(..) => return Ok(false),
                };
                if !leaves(block) {
                    return Ok(false);
                }
                let Some(next) = block.duplicate(&mut context.pool) else {
                    return Ok(false);
                };
                let border = *locked;
                let locked = (!tree.canary.is(Fault::RelocateUnlocked)).then_some(locked);
                border.set_link(slot, next.as_ptr());
                drop(locked);
                context.retire_block(tree, block, Keep::ALL);
                return Ok(true);
            }
        }
    }
}
