//! Snapshots of all trees (see `pando_chassis::Snapshots`): images of entries that are replaced or
//! removed, and reads at a snapshot.
//!
//! An image is put into the shadow as recovery puts a value, under the lock of the entry's bucket.
//! So the locks of a tree's buckets are always taken before those of its shadow's, and a shadow's
//! own writers make no images: no cycle of waits.
//!
//! Invariant:
//! - **HS1 one-interval** A step of a walk at a snapshot shows the keys whose hashes, taken as
//!   fractions as in `walk`, are between its cursor and the one it returns, and no others. It picks
//!   the smallest interval among those of the tree and the shadows, collects from all of them what
//!   may be in it, the tree first (SI2 tree-then-shadows), and leaves out what is not. A key's hash
//!   is the same in each, so a whole walk shows each key once.

use std::sync::Arc;

use pando_block::BlockRef;
use pando_engine::{
    Engine, Images, Key, LogEpoch, Point, ReadAt, Snapshot, SnapshotLimit, Snapshots, TreeId,
    ValueRef, ValueVersion, WalkAt, sample_at,
};
use pando_sync::epoch::Guard;

use crate::batch::find_many;
use crate::context::Context;
use crate::engine::Mercury;
use crate::find::{find, locate};
use crate::limits::BATCH_KEYS_MAX;
use crate::session::{MercurySession, follow_up};
use crate::tree::Tree;
use crate::update::{Change, restore};
use crate::walk::{collect, following, step_mask};

/// Prefetches the bucket that an image of the key would go to, so that a writer waits for it and
/// for the key's own bucket at once.
#[cold]
#[inline(never)]
pub(crate) fn fetch_shadow(engine: &Mercury, tree: &Tree, hash: u64, guard: Guard<'_>) {
    if let Some((_, shadow)) = engine.snapshots.newest(tree.id, guard)
        && let Some(shadow) = engine.directory.get(shadow.0, guard)
    {
        locate(shadow, hash, guard).1.prefetch();
    }
}

/// Puts the value of an entry that is about to be retired into the newest shadow (SI1 image-first);
/// `next` replaces it. The caller holds the lock of the entry's bucket.
#[cold]
#[inline(never)]
pub(crate) fn keep_image<'g>(
    engine: &Mercury,
    tree: &Tree,
    entry: BlockRef<'g>,
    next: Option<BlockRef<'g>>,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let Some(value) = entry.value() else {
        // SI3 no-tombstones.
        return;
    };
    let Some((frozen, shadow)) = engine.snapshots.newest(tree.id, guard) else {
        return;
    };
    let Some(tree) = engine.directory.get(shadow.0, guard) else {
        return;
    };
    let beyond = value.bytes_beyond(next.and_then(BlockRef::value).as_ref());
    let key = Key::new(shadow, entry.key_part());
    let hash = engine.hash(key.bytes);
    let image = Change {
        key,
        version: entry.version(),
        new: Some(value.again()),
        keeper: None,
    };
    let commit = restore(tree, hash, image, guard, context);
    // SI4 one-image.
    debug_assert!(commit.is_some_and(|commit| commit.inserted));
    if let Some(commit) = commit {
        follow_up(engine, tree, hash, commit, guard, context);
    }
    frozen.add_bytes(context.number(), entry.bytes() + beyond);
}

impl Snapshots for Mercury {
    fn freeze(&self, epoch: LogEpoch) -> Result<Snapshot, SnapshotLimit> {
        assert!(epoch < self.clock.current() && self.clock.is_above_all());
        let (mut trees, shadows) = (Vec::new(), self.snapshots.trees());
        self.directory.each(|_, tree| {
            if tree.counts.keys() > 0 && !shadows.contains(&tree.id) {
                trees.push(tree.id);
            }
        });
        let stamp = || self.shared.stamp();
        self.snapshots.freeze(self, epoch, trees, stamp)
    }

    fn release(&self, snapshot: Snapshot) {
        let stamp = || self.shared.stamp();
        self.snapshots.release(self, snapshot, stamp);
    }

    fn is_unsettled(&self) -> bool {
        self.snapshots.is_unsettled()
    }

    fn settle(&self) {
        self.snapshots.settle(self, || self.shared.stamp());
    }

    fn keeps(&self, version: ValueVersion) -> bool {
        self.snapshots.keeps(version)
    }

    fn images(&self, snapshot: Snapshot) -> Images {
        self.snapshots.images(self, snapshot)
    }

    fn image_trees(&self) -> Vec<TreeId> {
        self.snapshots.trees()
    }
}

impl ReadAt for MercurySession {
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let hash = engine.hash(key.bytes);
            let look = |tree: TreeId| {
                let tree = engine.directory.get(tree.0, guard)?;
                find(tree, hash, key.bytes, guard, context)
            };
            let entry = engine.snapshots.block_at(at, key.tree, guard, look);
            read(entry.and_then(BlockRef::value))
        })
    }

    fn get_many_at(
        &mut self,
        at: Snapshot,
        keys: &[Key<'_>],
        mut read: impl FnMut(usize, Option<ValueRef<'_>>),
    ) {
        keys.iter().copied().for_each(Key::check);
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let look = |keys: &[Key<'_>]| find_many(engine, keys, guard, context);
            for (piece, keys) in keys.chunks(BATCH_KEYS_MAX).enumerate() {
                let entries = engine.snapshots.blocks_at(at, keys, guard, look);
                for (index, entry) in entries[..keys.len()].iter().enumerate() {
                    let index = piece * BATCH_KEYS_MAX + index;
                    read(index, entry.and_then(BlockRef::value));
                }
            }
        });
    }

    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let engine = Arc::clone(&self.engine);
        let mut pinned = self.pinned();
        let sources = pinned.context.pinned(|guard, _| {
            let shadows = engine.snapshots.shadows(at, tree, guard);
            let sources = std::iter::once(tree).chain(shadows);
            let sized = sources.map(|tree| (tree, engine.len(tree)));
            sized.collect::<Vec<_>>()
        });
        sample_at(&mut *pinned, at, &sources, random, read)
    }
}

impl WalkAt for MercurySession {
    fn walk_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        cursor: u64,
        mut visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> u64 {
        let engine = &self.engine;
        self.context.pinned(|guard, _| {
            let find = |tree: TreeId| engine.directory.get(tree.0, guard);
            let shadows = engine.snapshots.shadows(at, tree, guard);
            let sources: Vec<_> = std::iter::once(tree)
                .chain(shadows)
                .filter_map(find)
                .collect();
            let masks = sources.iter().map(|tree| step_mask(tree, guard));
            let mask = masks.max().unwrap_or(0);
            let end = following(cursor, mask as u64);
            // As fractions; the end of everything is beyond all of them.
            let (first, last) = (cursor.reverse_bits(), end.reverse_bits().wrapping_sub(1));
            let mut shown: Vec<BlockRef<'_>> = Vec::new();
            let mut entries = Vec::new();
            for (index, tree) in sources.iter().enumerate() {
                entries.clear();
                let class = cursor as usize & mask;
                collect(tree, tree.table(guard), class, mask, guard, &mut entries);
                for entry in &entries {
                    let fraction = engine.hash(entry.key_part()).reverse_bits();
                    let is_decided = |other: &BlockRef<'_>| other.key_part() == entry.key_part();
                    if !(first..=last).contains(&fraction) || shown.iter().any(is_decided) {
                        continue;
                    }
                    let is_held = at.holds(entry.version());
                    // The first image decides, whatever it says.
                    if is_held || index > 0 {
                        shown.push(*entry);
                    }
                    if is_held && let Some(value) = entry.value() {
                        visit(entry.key_part(), value);
                    }
                }
            }
            end
        })
    }
}
