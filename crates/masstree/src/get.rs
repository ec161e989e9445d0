//! Finding a key's value (§4.6.4, figure 7). Takes no lock and writes nothing that is shared.

use pando_block::BlockRef;

use crate::counters::Counters;
use crate::find::{Found, LayerGone, look};
use crate::node::{Guard, NodeRef};
use crate::slice::{CODE_SUFFIX, Cursor};
use crate::tree::Tree;

/// The block of `key`, a tombstone's too. O(log keys) nodes in each of O(length / 8) layers, plus
/// one block.
#[inline]
pub(crate) fn get<'g>(
    tree: &Tree,
    key: &[u8],
    guard: Guard<'g>,
    counters: &Counters,
) -> Option<BlockRef<'g>> {
    loop {
        match get_below(tree.root(guard), Cursor::new(key), guard, counters) {
            Ok(found) => return found,
            Err(LayerGone) => counters.root_retries.add(1),
        }
    }
}

fn get_below<'g>(
    mut root: NodeRef<'g>,
    mut cursor: Cursor<'_>,
    guard: Guard<'g>,
    counters: &Counters,
) -> Result<Option<BlockRef<'g>>, LayerGone> {
    loop {
        let (_, found) = look(root, cursor, guard, counters)?;
        match found {
            Found::Absent => return Ok(None),
            Found::Value(block) => {
                let same = cursor.rank() != CODE_SUFFIX || block.key_part() == cursor.suffix();
                return Ok(same.then_some(block));
            }
            Found::Layer(next_root) => {
                next_root.prefetch();
                root = next_root;
                cursor = cursor.deeper();
            }
        }
    }
}
