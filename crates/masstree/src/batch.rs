//! Interleaved batches (§4.8, after PALM): the descents of a batch advance in turn, so that some
//! work while others wait for a node from memory.
//!
//! Each key is a small state machine. A step reads what the previous step prefetched and prefetches
//! what comes next:
//!
//! | state | its step reads | and prefetches |
//! |---|---|---|
//! | `Root` | a layer's root and a few levels below | a child, or what the border node holds |
//! | `Below` | a node, and its parent's version once more | likewise |
//! | `Value` | the block | nothing: the key is done |
//!
//! A step's node is already in the cache, so its instructions determine its time. It searches
//! without branches on keys, which would be mispredicted. A single get searches linearly: while it
//! waits for a node, the predicted end of the previous search lets it run ahead (measured in
//! docs/BENCHMARKS.md).
//!
//! Keys of a batch often begin alike. While each step of the first key leads to another layer, that
//! key goes on alone: such layers are small, and in the cache. The keys that begin as it does start
//! where it has come to, as if they had been delayed behind the link to that layer.
//!
//! The steps validate as `find` does; a failed validation restarts the layer, or the key. `warm`
//! does not wait for the blocks, and remembers where it found each key (see `recall`). `get_many`
//! shows the values in key order once a piece of [`BATCH_KEYS_MAX`] keys is done. Each value is one
//! that its key had during the call.

use pando_block::BlockRef;
use pando_engine::{Key, ValueRef};
use pando_sync::shim::Spin;
use pando_sync::version_lock::NodeVersion;

use crate::counters::Counters;
use crate::find::{Found, LayerGone, current_root, is_of, settle, step_down};
use crate::limits::BATCH_KEYS_MAX;
use crate::node::{BLOCK_SPAN_BYTES, Either, Guard, InteriorRef, NodeRef};
use crate::recall::{DescentEnd, Spot, Spots};
use crate::slice::{Cursor, SLICE_BYTES, slice_of};
use crate::tree::Directory;
use crate::tree::Tree;

/// Interior levels at the top of a layer that a descent takes in one step: a few hundred nodes.
const CACHED_LEVELS: usize = 3;

/// So many keys are few: room for more descents takes as long as theirs.
const FEW_KEYS: usize = 8;

/// Most layers that the keys of a batch skip together.
const SKIPPED_LAYERS_MAX: usize = 2;

/// The state of a key's descent.
#[derive(Clone, Copy)]
enum State<'g> {
    /// At the root of a layer, as its link gives it.
    Root(NodeRef<'g>),
    /// At a child that was prefetched.
    Below(Step<'g>),
    /// At a block that was prefetched.
    Value(BlockRef<'g>),
    /// Finished.
    Done(Option<BlockRef<'g>>),
    /// Warmed: the block was prefetched, or there is none.
    Warm(DescentEnd<'g>),
}

/// A step down, to be validated when the child has arrived.
#[derive(Clone, Copy)]
struct Step<'g> {
    parent: InteriorRef<'g>,
    parent_version: NodeVersion,
    child: NodeRef<'g>,
    root: NodeRef<'g>,
}

#[derive(Clone, Copy)]
struct Descent<'k, 'g> {
    tree: Option<&'g Tree>,
    cursor: Cursor<'k>,
    state: State<'g>,
    /// A link on the way led to a root that its layer has outgrown.
    climbed: bool,
}

impl<'k, 'g> Descent<'k, 'g> {
    fn new(directory: &Directory, key: Option<&Key<'k>>, guard: Guard<'g>) -> Self {
        let tree = key.and_then(|key| directory.get(key.tree.0, guard));
        let state = tree.map_or(State::Done(None), |tree| State::Root(tree.root(guard)));
        Self {
            tree,
            cursor: Cursor::new(key.map_or(&[], |key| key.bytes)),
            state,
            climbed: false,
        }
    }

    /// Where a warming pass found the key.
    #[inline]
    fn spot(&self) -> Option<Spot> {
        let State::Warm(end) = self.state else {
            return None;
        };
        Spot::new(self.tree?, self.cursor, end, self.climbed)
    }

    /// Does one step; returns whether there is more to do.
    #[inline]
    fn step<const WARM: bool>(&mut self, guard: Guard<'g>, counters: &Counters) -> bool {
        let next = match self.state {
            State::Root(root) => self.begin_layer::<WARM>(root, guard, counters),
            State::Below(step) => {
                let version = step.child.version.stable();
                if step.parent.version.unchanged_since(step.parent_version) {
                    self.look::<WARM>(step.child, version, step.root, guard, counters)
                } else {
                    counters.local_retries.add(1);
                    Ok(State::Root(step.root))
                }
            }
            State::Value(block) => Ok(State::Done(is_of(block, self.cursor).then_some(block))),
            done @ (State::Done(_) | State::Warm(_)) => Ok(done),
        };
        self.state = match (next, self.tree) {
            (Ok(state), _) => state,
            (Err(LayerGone), Some(tree)) => {
                counters.root_retries.add(1);
                self.cursor = self.cursor.at_start();
                State::Root(tree.root(guard))
            }
            (Err(LayerGone), None) => State::Done(None),
        };
        !matches!(self.state, State::Done(_) | State::Warm(_))
    }

    /// Takes the first levels of a layer at once: they are in the cache, since every descent passes
    /// through them.
    #[inline]
    fn begin_layer<const WARM: bool>(
        &mut self,
        root: NodeRef<'g>,
        guard: Guard<'g>,
        counters: &Counters,
    ) -> Result<State<'g>, LayerGone> {
        let link = root;
        let (root, mut version) = current_root(link)?;
        self.climbed |= root != link;
        let mut node = root;
        for _ in 0..CACHED_LEVELS {
            let Either::Interior(interior) = node.either() else {
                break;
            };
            let Ok(child) = step_down::<0>(interior, self.cursor.slice(), version) else {
                counters.local_retries.add(1);
                return Ok(State::Root(root));
            };
            (node, version) = child;
        }
        self.look::<WARM>(node, version, root, guard, counters)
    }

    /// Reads a node and prefetches what it leads to.
    #[inline]
    fn look<const WARM: bool>(
        &mut self,
        node: NodeRef<'g>,
        version: NodeVersion,
        root: NodeRef<'g>,
        guard: Guard<'g>,
        counters: &Counters,
    ) -> Result<State<'g>, LayerGone> {
        let (slice, rank) = (self.cursor.slice(), self.cursor.rank());
        let (mut border, mut version) = match node.either() {
            Either::Interior(parent) => {
                // `fetched_child_for` prefetches the child's lines.
                let Some(child) = parent.fetched_child_for(slice, version) else {
                    counters.local_retries.add(1);
                    return Ok(State::Root(root));
                };
                let step = Step {
                    parent,
                    parent_version: version,
                    child,
                    root,
                };
                return Ok(State::Below(step));
            }
            Either::Border(border) => (border, version),
        };
        let mut spin = Spin::new();
        loop {
            if version.is_deleted() {
                return Err(LayerGone);
            }
            let permutation = border.permutation();
            let at = border.search_fetched(permutation, slice, rank);
            let found = border.read_place(permutation, at, version, guard);
            let end = DescentEnd {
                border,
                version,
                permutation,
                position: at.ok().map(|position| position as u8),
            };
            match found {
                Some(Found::Absent) if WARM => return Ok(State::Warm(end)),
                Some(Found::Absent) => return Ok(State::Done(None)),
                Some(Found::Value(block)) => {
                    block.prefetch(BLOCK_SPAN_BYTES);
                    return Ok(if WARM {
                        State::Warm(end)
                    } else {
                        State::Value(block)
                    });
                }
                Some(Found::Layer(next)) => {
                    next.prefetch();
                    self.cursor = self.cursor.deeper();
                    return Ok(State::Root(next));
                }
                None => {
                    counters.local_retries.add(1);
                    spin.wait();
                    (border, version) = settle(border, slice)?;
                }
            }
        }
    }
}

/// A layer that the keys of a batch may skip.
#[derive(Clone, Copy)]
struct Skipped<'g> {
    /// The slice that leads to it from the layer above.
    slice: u64,
    root: State<'g>,
    climbed: bool,
}

/// Takes the first key through the layers that take one step each, and lets the others that pass
/// through the same ones begin behind them.
#[inline]
fn skip_common_layers<'k, 'g, const WARM: bool>(
    descents: &mut [Descent<'k, 'g>],
    keys: &[Key<'k>],
    guard: Guard<'g>,
    counters: &Counters,
) {
    let ([first, descents @ ..], [first_key, keys @ ..]) = (descents, keys) else {
        return;
    };
    if keys.is_empty() {
        return;
    }
    let mut skipped = [Skipped {
        slice: 0,
        root: first.state,
        climbed: false,
    }; SKIPPED_LAYERS_MAX];
    let mut count = 0;
    for layer in &mut skipped {
        let above = first.cursor;
        first.step::<WARM>(guard, counters);
        if !matches!(first.state, State::Root(_))
            || first.cursor.offset() != above.offset() + SLICE_BYTES
        {
            break;
        }
        *layer = Skipped {
            slice: above.slice(),
            root: first.state,
            climbed: first.climbed,
        };
        count += 1;
    }
    let skipped = &skipped[..count];
    for (descent, key) in descents.iter_mut().zip(keys) {
        if key.tree != first_key.tree {
            continue;
        }
        let mut offset = 0;
        for layer in skipped {
            // A key that ends with this slice has its entry here.
            let goes_on = key.bytes.len() > offset + SLICE_BYTES
                && slice_of(&key.bytes[offset..]) == layer.slice;
            if !goes_on {
                break;
            }
            offset += SLICE_BYTES;
        }
        if let Some(layer) = (offset / SLICE_BYTES).checked_sub(1) {
            (descent.state, descent.climbed) = (skipped[layer].root, skipped[layer].climbed);
            descent.cursor = Cursor::at(key.bytes, offset);
        }
    }
}

/// Runs the descents of up to `KEYS` keys, round robin.
fn descend<'k, 'g, const WARM: bool, const KEYS: usize>(
    directory: &Directory,
    keys: &[Key<'k>],
    guard: Guard<'g>,
    counters: &Counters,
) -> [Descent<'k, 'g>; KEYS] {
    const { assert!(KEYS <= BATCH_KEYS_MAX) };
    let mut descents = std::array::from_fn(|index| Descent::new(directory, keys.get(index), guard));
    skip_common_layers::<WARM>(&mut descents, keys, guard, counters);
    let mut pending = [0_u8; KEYS];
    let mut count = keys.len();
    for (index, place) in pending.iter_mut().enumerate() {
        *place = index as u8;
    }
    while count > 0 {
        let mut kept = 0;
        for turn in 0..count {
            let index = pending[turn];
            let descent: &mut Descent<'_, '_> = &mut descents[usize::from(index)];
            if descent.step::<WARM>(guard, counters) {
                pending[kept] = index;
                kept += 1;
            }
        }
        count = kept;
    }
    counters.batches_total.add(1);
    for (depth, counter) in [
        (2, &counters.batches_up_to_2_total),
        (8, &counters.batches_up_to_8_total),
        (16, &counters.batches_up_to_16_total),
    ] {
        counter.add(i64::from(keys.len() <= depth));
    }
    counters.batch_keys_total.add(keys.len() as i64);
    descents
}

/// The blocks of up to [`BATCH_KEYS_MAX`] keys, in order.
pub(crate) fn find_many<'g>(
    directory: &Directory,
    keys: &[Key<'_>],
    guard: Guard<'g>,
    counters: &Counters,
) -> [Option<BlockRef<'g>>; BATCH_KEYS_MAX] {
    descend::<false, BATCH_KEYS_MAX>(directory, keys, guard, counters).map(|descent| match descent
        .state
    {
        State::Done(block) => block,
        // Behind the last key.
        _ => None,
    })
}

/// Shows the values of `keys` in order.
pub(crate) fn get_many<'g>(
    directory: &Directory,
    keys: &[Key<'_>],
    guard: Guard<'g>,
    counters: &Counters,
    read: &mut impl FnMut(usize, Option<ValueRef<'g>>),
) {
    for (piece, keys) in keys.chunks(BATCH_KEYS_MAX).enumerate() {
        let descents = descend::<false, BATCH_KEYS_MAX>(directory, keys, guard, counters);
        for (index, descent) in descents[..keys.len()].iter().enumerate() {
            let State::Done(block) = descent.state else {
                unreachable!("all are done")
            };
            let index = piece * BATCH_KEYS_MAX + index;
            match block {
                Some(block) => block.read_value(|value| read(index, value)),
                None => read(index, None),
            }
        }
    }
}

/// Prefetches the nodes and blocks on the way to `keys`, and pushes the keys' spots to `spots`, in
/// order.
pub(crate) fn warm(
    directory: &Directory,
    keys: &[Key<'_>],
    guard: Guard<'_>,
    counters: &Counters,
    spots: &mut Spots,
) {
    for keys in keys.chunks(BATCH_KEYS_MAX) {
        if keys.len() <= FEW_KEYS {
            let descents = descend::<true, FEW_KEYS>(directory, keys, guard, counters);
            spots.extend(descents[..keys.len()].iter().map(Descent::spot));
        } else {
            let descents = descend::<true, BATCH_KEYS_MAX>(directory, keys, guard, counters);
            spots.extend(descents[..keys.len()].iter().map(Descent::spot));
        }
    }
}

/// The spot of the key in a tree that is in no directory, as [`warm`] finds it.
#[cfg(all(test, loom))]
pub(crate) fn warm_one(tree: &Tree, key: &[u8], _: Guard<'_>, counters: &Counters) -> Option<Spot> {
    // SAFETY: the caller's pin outlives this call, within which the guard is used.
    let guard = unsafe { Guard::new() };
    let mut descent = Descent {
        tree: Some(tree),
        cursor: Cursor::new(key),
        state: State::Root(tree.root(guard)),
        climbed: false,
    };
    while descent.step::<true>(guard, counters) {}
    descent.spot()
}

const _: () = assert!(
    BATCH_KEYS_MAX <= u8::MAX as usize,
    "indexes of descents fit a byte"
);
