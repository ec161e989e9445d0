//! Snapshots of all trees (see `pando_chassis::Snapshots`): images of values that are replaced or
//! removed, and reads at a snapshot.
//!
//! An image is put into the shadow as recovery puts a value, under the lock of the value's border
//! node. So the locks of a tree's nodes are always taken before those of its shadow's, and a
//! shadow's own writers make no images: no cycle of waits.
//!
//! A scan takes a bounded run of the tree first, then the same range of each shadow, and shows them
//! merged (SI2 tree-then-shadows). If a source has more entries than a run may have, the run ends
//! for all sources where it ends for that one.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use pando_block::BlockRef;
use pando_chassis::Snapshots as Frozen;
use pando_engine::{
    Decision, Direction, Engine, Images as Counts, Key, LogEpoch, NoHook, OrderedAt, Point, ReadAt,
    Shown, Snapshot, SnapshotLimit, Snapshots, TreeId, ValueRef, ValueVersion, sample_at,
};

use crate::batch::find_many;
use crate::context::Context;
use crate::counters::Counters;
use crate::engine::Masstree;
use crate::get::get;
use crate::limits::BATCH_KEYS_MAX;
use crate::node::Guard;
use crate::scan::Scan;
use crate::session::MasstreeSession;
use crate::tree::{Directory, Tree};
use crate::update::{Draw, Update};

/// Entries, and bytes of keys, of one source in a run.
const RUN_ENTRIES: usize = 64;
const RUN_KEY_BYTES: usize = 16 * 1024;

/// Where images go.
#[derive(Clone, Copy)]
pub(crate) struct ImageStore<'a> {
    pub(crate) snapshots: &'a Frozen,
    directory: &'a Directory,
}

impl Masstree {
    /// Where images go.
    pub(crate) fn image_store(&self) -> ImageStore<'_> {
        ImageStore {
            snapshots: &self.snapshots,
            directory: &self.directory,
        }
    }
}

impl ImageStore<'_> {
    /// Puts the value of a block that is about to be retired into the newest shadow
    /// (SI1 image-first); `next` replaces it. The caller holds the lock of the block's node.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep<'g>(
        self,
        key: Key<'_>,
        block: BlockRef<'g>,
        next: Option<BlockRef<'g>>,
        guard: Guard<'g>,
        context: &mut Context,
    ) {
        let Some(value) = block.value() else {
            // SI3 no-tombstones.
            return;
        };
        let Some((frozen, shadow)) = self.snapshots.newest(key.tree, guard) else {
            return;
        };
        let Some(tree) = self.directory.get(shadow.0, guard) else {
            return;
        };
        let beyond = value.bytes_beyond(next.and_then(BlockRef::value).as_ref());
        let commit = Update {
            tree,
            draw: Draw::Given(block.version()),
            images: None,
            key: Key::new(shadow, key.bytes),
            hook: &mut NoHook,
            in_place: false,
            decide: |_: &mut Shown<'_>| Decision::Write(value.again()),
        }
        .run(None, guard, context);
        // SI4 one-image.
        debug_assert!(commit.is_some());
        frozen.add_bytes(context.number(), block.bytes() + beyond);
    }
}

impl Snapshots for Masstree {
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

    fn images(&self, snapshot: Snapshot) -> Counts {
        self.snapshots.images(self, snapshot)
    }

    fn image_trees(&self) -> Vec<TreeId> {
        self.snapshots.trees()
    }
}

impl ReadAt for MasstreeSession {
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let look = |tree: TreeId| {
                let tree = engine.directory.get(tree.0, guard)?;
                get(tree, key.bytes, guard, &context.counters)
            };
            match engine.snapshots.block_at(at, key.tree, guard, look) {
                Some(block) => block.read_value(read),
                None => read(None),
            }
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
            let look =
                |keys: &[Key<'_>]| find_many(&engine.directory, keys, guard, &context.counters);
            for (piece, keys) in keys.chunks(BATCH_KEYS_MAX).enumerate() {
                let blocks = engine.snapshots.blocks_at(at, keys, guard, look);
                for (index, block) in blocks[..keys.len()].iter().enumerate() {
                    let index = piece * BATCH_KEYS_MAX + index;
                    match block {
                        Some(block) => block.read_value(|value| read(index, value)),
                        None => read(index, None),
                    }
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

impl OrderedAt for MasstreeSession {
    fn scan_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let shadows = engine.snapshots.shadows(at, tree, guard);
            let find = |tree: TreeId| engine.directory.get(tree.0, guard);
            let sources: Vec<_> = std::iter::once(tree)
                .chain(shadows)
                .filter_map(find)
                .map(Run::new)
                .collect();
            let scan = ScanAt {
                at,
                direction,
                guard,
                counters: &context.counters,
                sources,
                key: Vec::new(),
            };
            scan.run(from, visit);
        });
    }
}

/// What one source, a tree or a shadow, has in the current run.
struct Run<'a, 'g> {
    tree: &'a Tree,
    keys: Vec<u8>,
    entries: Vec<(Range<usize>, Option<ValueRef<'g>>)>,
    /// The first entry not shown yet.
    next: usize,
    /// It has entries after the last one here.
    has_more: bool,
}

impl<'a, 'g> Run<'a, 'g> {
    fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            keys: Vec::new(),
            entries: Vec::new(),
            next: 0,
            has_more: true,
        }
    }

    fn key(&self, index: usize) -> Option<&[u8]> {
        let (range, _) = self.entries.get(index)?;
        Some(&self.keys[range.clone()])
    }

    fn next_key(&self) -> Option<&[u8]> {
        self.key(self.next)
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.next = 0;
        self.has_more = false;
    }

    /// Reads entries from `from` on, up to `end` if given, as many as a run may have.
    fn fill(
        &mut self,
        from: Bound<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
        guard: Guard<'g>,
        counters: &Counters,
    ) {
        self.clear();
        Scan::new(self.tree, direction, guard, counters).run(from, |key, value| {
            if end.is_some_and(|end| is_behind(direction, key, end)) {
                return ControlFlow::Break(());
            }
            if self.entries.len() == RUN_ENTRIES || self.keys.len() > RUN_KEY_BYTES {
                self.has_more = true;
                return ControlFlow::Break(());
            }
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            self.entries.push((start..self.keys.len(), value));
            ControlFlow::Continue(())
        });
    }
}

/// Whether a key comes after another in a scan.
fn is_behind(direction: Direction, key: &[u8], other: &[u8]) -> bool {
    key.cmp(other)
        == match direction {
            Direction::Forward => Ordering::Greater,
            Direction::Backward => Ordering::Less,
        }
}

/// A scan at a snapshot in progress; the tree is the first source, the shadows follow.
struct ScanAt<'a, 'g> {
    at: Snapshot,
    direction: Direction,
    guard: Guard<'g>,
    counters: &'a Counters,
    sources: Vec<Run<'a, 'g>>,
    /// The key shown last.
    key: Vec<u8>,
}

impl<'g> ScanAt<'_, 'g> {
    fn run(
        mut self,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = last.as_deref().map_or(from, Bound::Excluded);
            let end = self.fill(from);
            while let Some((key, value)) = self.next(end.as_deref()) {
                if visit(key, value).is_break() {
                    return;
                }
            }
            match end {
                Some(end) => last = Some(end),
                None => return,
            }
        }
    }

    /// Reads the next run of all sources, the tree first (SI2 tree-then-shadows); returns its last
    /// key if more follows.
    fn fill(&mut self, from: Bound<&[u8]>) -> Option<Vec<u8>> {
        let mut end: Option<Vec<u8>> = None;
        for (index, source) in self.sources.iter_mut().enumerate() {
            // An image is counted before it is linked (SI1 image-first), so an image needed for
            // what was just read of the tree counts by now.
            if index > 0 && source.tree.counts.keys() == 0 {
                source.clear();
                continue;
            }
            source.fill(
                from,
                end.as_deref(),
                self.direction,
                self.guard,
                self.counters,
            );
            if source.has_more {
                end = source.key(source.entries.len() - 1).map(<[u8]>::to_vec);
            }
        }
        end
    }

    /// The next key of the run, with its value at the snapshot, if any.
    fn next(&mut self, end: Option<&[u8]>) -> Option<(&[u8], Option<ValueRef<'g>>)> {
        let mut first: Option<&[u8]> = None;
        for key in self.sources.iter().filter_map(Run::next_key) {
            if first.is_none_or(|first| is_behind(self.direction, first, key)) {
                first = Some(key);
            }
        }
        // What another source's end cut off comes again in the next run.
        let first = first.filter(|key| !end.is_some_and(|end| is_behind(self.direction, key, end)));
        self.key.clear();
        self.key.extend_from_slice(first?);
        let (mut shown, mut decided) = (None, false);
        for (index, source) in self.sources.iter_mut().enumerate() {
            if source.next_key() != Some(&self.key) {
                continue;
            }
            let value = source.entries[source.next].1;
            source.next += 1;
            if !decided {
                shown = value.filter(|value| self.at.holds(value.version));
                // The first image decides, whatever it says.
                decided = shown.is_some() || index > 0;
            }
        }
        Some((&self.key, shown))
    }
}
