//! Scans in both directions (§4.3, §4.6): border node by border node, layer by layer.
//!
//! A scan takes a validated snapshot of one border node at a time (`frame`), visits its entries,
//! and moves to the sibling; it enters a LAYER entry when its turn comes. The way back up is a
//! stack of layers, on the heap because a key of 64 KiB is 8,192 layers deep. When a node turns out
//! to be deleted, the stack is dropped and the scan descends again behind the last key shown.
//!
//! Why a scan shows every key that is present throughout (E4 scan-complete). Forwards: a snapshot
//! holds all keys of its node's range at its time, and its `next` was loaded under the same
//! version; a later split moves only keys that the snapshot holds; a removed node was empty.
//! Backwards: the node to the left of a bound is accepted only if, under the version of its
//! snapshot, its right neighbour begins at or above the bound; otherwise it has split, and the scan
//! moves right first.
//!
//! Deliberately absent: a snapshot of the whole range.

mod frame;
mod key;

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, ValueRef};

use crate::counters::Counters;
use crate::find::{Found, LayerGone, find_border_beside};
use crate::node::{Guard, NodeRef};
use crate::slice::{CODE_SUFFIX, Cursor, SLICE_BYTES, rank_of_code};
use crate::tree::Tree;
use frame::{Ahead, Level, Start, YoungLayer};
use key::Shown;

/// What a scan shows of each key.
trait Visit<'g> {
    /// A key with a value.
    fn value(&mut self, key: &[u8], value: ValueRef<'g>) -> ControlFlow<()>;

    /// A key with a tombstone.
    fn tombstone(&mut self, key: &[u8]) -> ControlFlow<()>;
}

/// Values and tombstones, the latter as `None`.
struct All<F>(F);

impl<'g, F> Visit<'g> for All<F>
where
    F: FnMut(&[u8], Option<ValueRef<'g>>) -> ControlFlow<()>,
{
    #[inline]
    fn value(&mut self, key: &[u8], value: ValueRef<'g>) -> ControlFlow<()> {
        (self.0)(key, Some(value))
    }

    fn tombstone(&mut self, key: &[u8]) -> ControlFlow<()> {
        (self.0)(key, None)
    }
}

/// Values alone. Not [`All`] with a closure around another, since each would be a call.
struct Live<F>(F);

impl<'g, F> Visit<'g> for Live<F>
where
    F: FnMut(&[u8], ValueRef<'g>) -> ControlFlow<()>,
{
    #[inline]
    fn value(&mut self, key: &[u8], value: ValueRef<'g>) -> ControlFlow<()> {
        (self.0)(key, value)
    }

    fn tombstone(&mut self, _: &[u8]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// A scan in progress.
pub(crate) struct Scan<'a, 'g> {
    tree: &'a Tree,
    direction: Direction,
    guard: Guard<'g>,
    counters: &'a Counters,
    /// The first `depth` of these are the current layers; the others are kept for reuse.
    levels: Levels<'g>,
    depth: usize,
    shown: Shown,
}

/// The first layer's level is inline, since most scans need no other.
struct Levels<'g> {
    first: Level<'g>,
    deeper: Vec<Level<'g>>,
}

impl<'g> Levels<'g> {
    /// The level at this depth, the first layer's at 0.
    #[inline]
    fn at(&mut self, depth: usize) -> &mut Level<'g> {
        match depth.checked_sub(1) {
            None => &mut self.first,
            Some(index) => &mut self.deeper[index],
        }
    }
}

impl<'a, 'g> Scan<'a, 'g> {
    pub(crate) fn new(
        tree: &'a Tree,
        direction: Direction,
        guard: Guard<'g>,
        counters: &'a Counters,
    ) -> Self {
        Self {
            tree,
            direction,
            guard,
            counters,
            levels: Levels {
                first: Level::empty(),
                deeper: Vec::new(),
            },
            depth: 0,
            shown: Shown::default(),
        }
    }

    /// Shows entries from `from` on, tombstones as `None`, until `visit` breaks or the tree ends.
    /// O(log keys) to begin, then O(1) nodes per 15 entries and O(1) blocks per entry.
    pub(crate) fn run(
        &mut self,
        from: Bound<&[u8]>,
        visit: impl FnMut(&[u8], Option<ValueRef<'g>>) -> ControlFlow<()>,
    ) {
        self.visit(from, &mut All(visit));
    }

    /// The same without tombstones.
    pub(crate) fn run_live(
        &mut self,
        from: Bound<&[u8]>,
        visit: impl FnMut(&[u8], ValueRef<'g>) -> ControlFlow<()>,
    ) {
        self.visit(from, &mut Live(visit));
    }

    fn visit(&mut self, from: Bound<&[u8]>, visit: &mut impl Visit<'g>) {
        loop {
            self.shown.keep_last();
            let last = self.shown.last.take();
            let from = last.as_deref().map_or(from, Bound::Excluded);
            self.depth = 0;
            let sought = self.seek(from);
            self.shown.last = last;
            match sought.and_then(|()| self.walk(visit)) {
                Ok(()) => return,
                Err(LayerGone) => self.counters.root_retries.add(1),
            }
        }
    }

    /// Builds the stack that leads to `from`.
    fn seek(&mut self, from: Bound<&[u8]>) -> Result<(), LayerGone> {
        self.shown.key.clear();
        let root = self.tree.root(self.guard);
        let (bytes, inclusive) = match from {
            Bound::Unbounded => return self.enter(root, Start::First),
            Bound::Included(bytes) => (bytes, true),
            Bound::Excluded(bytes) => (bytes, false),
        };
        let (mut root, mut cursor) = (root, Cursor::new(bytes));
        loop {
            let (slice, rank) = (cursor.slice(), cursor.rank());
            // A longer key's entry is examined here, whatever it holds.
            let inclusive_here = inclusive || rank == CODE_SUFFIX;
            self.enter(
                root,
                Start::At {
                    slice,
                    rank,
                    inclusive: inclusive_here,
                },
            )?;
            let level = self.levels.at(self.depth - 1);
            let Some((first_slice, code, found)) = level.first(self.guard) else {
                return Ok(());
            };
            if rank < CODE_SUFFIX || (first_slice, rank_of_code(code)) != (slice, rank) {
                return Ok(());
            }
            match found {
                Found::Layer(next) => {
                    level.skip_first();
                    self.shown
                        .key
                        .set_slice(cursor.offset(), slice, SLICE_BYTES);
                    root = next;
                    cursor = cursor.deeper();
                }
                Found::Value(block) => {
                    let (entry, bound) = (block.key_part(), cursor.suffix());
                    let admitted = match self.direction {
                        _ if entry == bound => inclusive,
                        Direction::Forward => entry > bound,
                        Direction::Backward => entry < bound,
                    };
                    if !admitted {
                        level.skip_first();
                    }
                    return Ok(());
                }
                Found::Absent => unreachable!("a snapshot holds no absent entries"),
            }
        }
    }

    fn walk(&mut self, visit: &mut impl Visit<'g>) -> Result<(), LayerGone> {
        while self.depth > 0 {
            let (direction, guard) = (self.direction, self.guard);
            let level = self.levels.at(self.depth - 1);
            let prefix_bytes = level.prefix_bytes;
            let deeper = 'layer: loop {
                let (frame, pause) = level.visited();
                let mut walk = frame.walk;
                while walk.left > pause {
                    let (slice, code, found) = frame.item(walk.go_on(), guard);
                    let shown = match found {
                        Found::Value(block) => {
                            let entry = (slice, code, block);
                            self.shown.show(prefix_bytes, entry, visit)
                        }
                        Found::Layer(root) => {
                            let Some(young) = YoungLayer::take(root, direction, guard) else {
                                frame.walk = walk;
                                break 'layer Some((slice, root));
                            };
                            self.shown
                                .show_young(prefix_bytes, slice, &young, guard, visit)
                        }
                        Found::Absent => unreachable!("a snapshot holds no absent entries"),
                    };
                    if shown.is_break() {
                        return Ok(());
                    }
                }
                frame.walk = walk;
                let ahead = Ahead::of(self.shown.block_bytes);
                if !level.go_on((direction, ahead), guard)? {
                    break None;
                }
            };
            if let Some((slice, root)) = deeper {
                self.shown.keep_last();
                self.shown.key.set_slice(prefix_bytes, slice, SLICE_BYTES);
                self.enter(root, Start::First)?;
            } else {
                self.depth -= 1;
            }
        }
        Ok(())
    }

    /// Begins the layer under `root` at `start`; `key` holds its prefix.
    fn enter(&mut self, root: NodeRef<'g>, start: Start) -> Result<(), LayerGone> {
        let slice = match (start, self.direction) {
            (Start::At { slice, .. }, _) => slice,
            (Start::First, Direction::Forward) => 0,
            (Start::First, Direction::Backward) => u64::MAX,
        };
        let reached = match self.direction {
            Direction::Forward => find_border_beside::<1>(root, slice, self.counters)?,
            Direction::Backward => find_border_beside::<-1>(root, slice, self.counters)?,
        };
        debug_assert!(self.shown.key.len().is_multiple_of(SLICE_BYTES));
        if self.depth > self.levels.deeper.len() {
            self.levels.deeper.push(Level::empty());
        }
        let level = self.levels.at(self.depth);
        level.prefix_bytes = self.shown.key.len();
        let bounds = (start, self.direction, Ahead::of(self.shown.block_bytes));
        level.begin(reached.border, reached.version, slice, bounds)?;
        self.depth += 1;
        Ok(())
    }
}
