//! Interleaved batches: the buckets of all keys are asked for, then their entries, then read, so
//! that one wait for memory covers many keys.
//!
//! | pass | reads | and asks for |
//! |---|---|---|
//! | 1 | nothing but the table's address | the key's bucket |
//! | 2 | the bucket's first line | the entries with the key's tag |
//! | 3 | bucket and entry | nothing: the key is read or updated |
//!
//! The first two passes are hints: they follow no further line and no moved bucket of which the
//! counter does not tell. The third is an operation like any other, one key at a time in the order
//! of the batch, so that a batch needs no proof of its own. It takes over which tree and which hash
//! are the key's, and no more: buckets are located again, since the keys before may have moved
//! them.
//!
//! The paper has no batches; its operations wait for the two lines one after another (§4.1).
//!
//! Deliberately absent: `Point::recall`. Masstree remembers where a warmed key stood and saves a
//! descent; here what is left to do is the hash, and telling that a key is the one that was warmed
//! costs a comparison of as many bytes.

use pando_engine::{Key, TreeId};
use pando_sync::epoch::Guard;

use crate::bucket::{Line, Tag};
use crate::context::Context;
use crate::engine::Mercury;
use crate::find::locate;
use crate::limits::BATCH_KEYS_MAX;
use crate::task::Tombstone;
use crate::tree::Tree;

/// A key on its way.
#[derive(Clone, Copy)]
struct Ahead<'g> {
    tree: &'g Tree,
    hash: u64,
    bucket: &'g Line,
}

/// Passes 1 and 2 for up to [`BATCH_KEYS_MAX`] keys, told by their hashes.
#[inline]
fn fetch<'g>(
    engine: &Mercury,
    hashes: impl ExactSizeIterator<Item = (TreeId, u64)>,
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
        ahead.bucket.prefetch_candidates(Tag::of_hash(ahead.hash));
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

/// Runs `operate` on `keys` in their order, with their trees, unless dropped, and hashes.
#[inline]
pub(crate) fn for_each<'g>(
    engine: &Mercury,
    keys: &[Key<'_>],
    guard: Guard<'g>,
    context: &mut Context,
    mut operate: impl FnMut(usize, Option<(&'g Tree, u64)>, &mut Context),
) {
    for (piece, keys) in keys.chunks(BATCH_KEYS_MAX).enumerate() {
        let ahead = fetch(engine, hashes(engine, keys), guard);
        for (index, ahead) in ahead[..keys.len()].iter().enumerate() {
            let found = ahead.map(|ahead| (ahead.tree, ahead.hash));
            operate(piece * BATCH_KEYS_MAX + index, found, context);
        }
        count(keys.len(), context);
    }
}

/// Brings the buckets and entries of `keys` into the cache.
pub(crate) fn warm(engine: &Mercury, keys: &[Key<'_>], guard: Guard<'_>, context: &Context) {
    for keys in keys.chunks(BATCH_KEYS_MAX) {
        fetch(engine, hashes(engine, keys), guard);
        count(keys.len(), context);
    }
}

/// Brings the buckets and entries of up to [`BATCH_KEYS_MAX`] tombstones into the cache.
pub(crate) fn warm_tombstones(engine: &Mercury, tombstones: &[Tombstone], guard: Guard<'_>) {
    let hashes = tombstones.iter().map(|dead| (dead.tree, dead.hash));
    fetch(engine, hashes, guard);
}

fn count(keys: usize, context: &Context) {
    context.counters.batches_total.add(1);
    context.counters.batch_keys_total.add(keys as i64);
}
