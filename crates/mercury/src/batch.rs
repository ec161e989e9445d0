//! Interleaved batches: the buckets of all keys are prefetched, then their entries, and then the
//! keys are read, so that one wait for memory covers many keys.
//!
//! | pass | reads | and prefetches |
//! |---|---|---|
//! | 1 | nothing but the table's address | the key's bucket |
//! | 2 | the bucket's first line | the entries with the key's tag |
//! | 3 | bucket and entry | nothing: the key is read or updated |
//!
//! The first two passes are hints: they follow neither further lines of a bucket nor buckets that
//! moved without the counter showing it. The third is an ordinary operation per key, in the order
//! of the batch, so a batch needs no proof of its own. It takes over each key's tree and hash and
//! no more: buckets are located again, since earlier keys may have moved them.
//!
//! The paper has no batches; its operations wait for the two lines one after the other (§4.1).
//!
//! Deliberately absent: `Point::recall`. Masstree remembers where it found a warmed key and saves a
//! descent. Here only the hash would be saved, and checking that a key is the warmed one compares
//! as many bytes.

use pando_block::BlockRef;
use pando_engine::{Key, TreeId};
use pando_sync::epoch::Guard;

use crate::bucket::{Line, Tag};
use crate::context::{Context, Length};
use crate::engine::Mercury;
use crate::find::{find, locate};
use crate::limits::BATCH_KEYS_MAX;
use crate::task::Tombstone;
use crate::tree::Tree;

/// A key in progress.
#[derive(Clone, Copy)]
struct Ahead<'g> {
    tree: &'g Tree,
    hash: u64,
    bucket: &'g Line,
}

/// Passes 1 and 2 for up to [`BATCH_KEYS_MAX`] keys, given by their hashes.
#[inline]
fn fetch<'g>(
    engine: &Mercury,
    hashes: impl ExactSizeIterator<Item = (TreeId, u64)>,
    length: Length,
    guard: Guard<'g>,
) -> [Option<Ahead<'g>>; BATCH_KEYS_MAX] {
    let mut ahead = [None; BATCH_KEYS_MAX];
    let count = hashes.len();
    for (ahead, (tree, hash)) in ahead.iter_mut().zip(hashes) {
        let Some(tree) = engine.directory.get(tree.0, guard) else {
            continue;
        };
        let bucket = locate(tree, hash, guard).1;
        bucket.prefetch();
        *ahead = Some(Ahead { tree, hash, bucket });
    }
    for ahead in ahead[..count].iter().flatten() {
        ahead
            .bucket
            .prefetch_candidates(Tag::of_hash(ahead.hash), length);
    }
    ahead
}

#[inline]
fn hashes<'a>(
    engine: &'a Mercury,
    keys: &'a [Key<'_>],
) -> impl ExactSizeIterator<Item = (TreeId, u64)> {
    keys.iter().map(|key| (key.tree, engine.hash(key.bytes)))
}

/// Runs `operate` on `keys` in order, with their hashes and trees, unless dropped.
#[inline]
pub(crate) fn for_each<'g>(
    engine: &Mercury,
    keys: &[Key<'_>],
    guard: Guard<'g>,
    context: &mut Context,
    mut operate: impl FnMut(usize, Option<(&'g Tree, u64)>, &mut Context),
) {
    for (piece, keys) in keys.chunks(BATCH_KEYS_MAX).enumerate() {
        let ahead = fetch(engine, hashes(engine, keys), context.beside, guard);
        for (index, ahead) in ahead[..keys.len()].iter().enumerate() {
            let found = ahead.map(|ahead| (ahead.tree, ahead.hash));
            operate(piece * BATCH_KEYS_MAX + index, found, context);
        }
        count(keys.len(), context);
    }
}

/// The entries of up to [`BATCH_KEYS_MAX`] keys, in order.
pub(crate) fn find_many<'g>(
    engine: &Mercury,
    keys: &[Key<'_>],
    guard: Guard<'g>,
    context: &Context,
) -> [Option<BlockRef<'g>>; BATCH_KEYS_MAX] {
    let ahead = fetch(engine, hashes(engine, keys), context.beside, guard);
    count(keys.len(), context);
    std::array::from_fn(|index| {
        let (key, ahead) = (keys.get(index)?, ahead[index]?);
        find(ahead.tree, ahead.hash, key.bytes, guard, context)
    })
}

/// Prefetches the buckets and entries of `keys`.
pub(crate) fn warm(engine: &Mercury, keys: &[Key<'_>], guard: Guard<'_>, context: &Context) {
    for keys in keys.chunks(BATCH_KEYS_MAX) {
        fetch(engine, hashes(engine, keys), context.beside, guard);
        count(keys.len(), context);
    }
}

/// Prefetches the buckets and entries of up to [`BATCH_KEYS_MAX`] tombstones.
pub(crate) fn warm_tombstones(engine: &Mercury, tombstones: &[Tombstone], guard: Guard<'_>) {
    let hashes = tombstones.iter().map(|dead| (dead.tree, dead.hash));
    fetch(engine, hashes, Length::default(), guard);
}

fn count(keys: usize, context: &Context) {
    context.counters.batches_total.add(1);
    context.counters.batch_keys_total.add(keys as i64);
}
