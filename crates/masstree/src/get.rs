//! Finding a key's value (§4.6.4, figure 7). Takes no lock and writes nothing shared.
//!
//! While the processor waits for one get's value it runs ahead into the next get, as far as its
//! instruction window reaches, so every instruction of a get delays the prefetch of its nodes. A
//! common prefix, that is a layer of one entry per slice, therefore takes a path of its own of
//! about twenty instructions per layer. A reader there makes the same checks as anywhere.

use pando_block::BlockRef;

use crate::counters::Counters;
use crate::find::{Found, LayerGone, is_of, look};
use crate::node::{BorderRef, Guard, NodeRef};
use crate::slice::{CODE_LAYER, Cursor, SLICE_BYTES};
use crate::tree::Tree;

/// The block of `key`, also when it is a tombstone. O(log keys) nodes in each of O(length / 8)
/// layers, plus one block.
pub(crate) fn get<'g>(
    tree: &Tree,
    key: &[u8],
    guard: Guard<'g>,
    counters: &Counters,
) -> Option<BlockRef<'g>> {
    loop {
        match get_below(tree.root(guard), key, guard, counters) {
            Ok(found) => return found,
            Err(LayerGone) => counters.root_retries.add(1),
        }
    }
}

#[expect(clippy::inline_always, reason = "see the header of `find`")]
#[inline(always)]
fn get_below<'g>(
    mut root: NodeRef<'g>,
    key: &[u8],
    guard: Guard<'g>,
    counters: &Counters,
) -> Result<Option<BlockRef<'g>>, LayerGone> {
    let mut rest = key;
    while let Some((next, further)) = only_layer(root, rest, guard) {
        (root, rest) = (next, further);
    }
    let mut cursor = Cursor::at(key, key.len() - rest.len());
    loop {
        let (_, found) = look(root, cursor, guard, counters)?;
        match found {
            Found::Absent => return Ok(None),
            Found::Value(block) => return Ok(is_of(block, cursor).then_some(block)),
            Found::Layer(next_root) => {
                next_root.prefetch();
                root = next_root;
                cursor = cursor.deeper();
            }
        }
    }
}

/// The layer that a layer of one entry leads to, with the rest of the key, if that entry is in slot
/// 0, has the slice that `rest` begins with, and a whole slice follows. `None` for any other layer,
/// and for one that is being changed, whose readers wait or restart in `look`.
///
/// Sound for the same reason as `BorderRef::read_slot`: the link is loaded under a version that is
/// validated afterwards. Only a fold or a reuse of the slot could have turned it into another key's
/// or a value's, and both bump vinsert. The code is read once, before the link: LAYER was set after
/// the link (§4.6.3).
#[expect(clippy::inline_always, reason = "see the header of `find`")]
#[inline(always)]
pub(crate) fn only_layer<'g, 'k>(
    root: NodeRef<'g>,
    rest: &'k [u8],
    guard: Guard<'g>,
) -> Option<(NodeRef<'g>, &'k [u8])> {
    let (slice, further) = rest.split_first_chunk::<SLICE_BYTES>()?;
    if further.len() < SLICE_BYTES {
        return None;
    }
    let version = root.version.glance();
    if !version.is_lone() {
        return None;
    }
    // SAFETY: its version says that it is a border node, and it lives (M1 reachable-lives).
    let border = unsafe { BorderRef::from_raw(root.pointer().cast(), guard) };
    let layer = border.permutation().lists_slot_0_only()
        && border.slice(0) == u64::from_be_bytes(*slice)
        && border.code(0) == CODE_LAYER;
    if !layer {
        return None;
    }
    let link = border.link(0);
    if !border.version.unchanged_since(version) {
        return None;
    }
    // SAFETY: the link of a LAYER entry, as the header of this function says (M1 reachable-lives,
    // M2 validate-then-follow).
    Some((unsafe { NodeRef::from_link(link, guard) }, further))
}
