//! Scans in both directions (§4.3, §4.6): border node by border node, layer by layer.
//!
//! A scan takes a validated snapshot of one border node at a time (`frame`), visits what it holds,
//! and goes to the sibling; a LAYER entry is entered when its turn comes. The way back up is a
//! stack of layers, on the heap because a key of 64 KiB is 8,192 layers deep. Where a node turns
//! out to be deleted the stack is dropped and the scan descends again behind the last key shown.
//!
//! Why every key that is present throughout is seen (E4), forwards: a snapshot holds all keys of
//! its node's range at its time, and its `next` was loaded under the same version; a later split
//! moves keys only that the snapshot holds; a removed node was empty. Backwards: the node to the
//! left of a bound is accepted only if, under the version of its snapshot, its right neighbour
//! begins at or above the bound; else it has split, and the scan goes right first.
//!
//! Deliberately absent: a snapshot of the whole range.

mod frame;
mod key;

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, ValueRef};

use crate::block::BlockRef;
use crate::counters::Counters;
use crate::find::{Found, LayerGone, find_border};
use crate::node::{Guard, NodeRef};
use crate::slice::{CODE_SLICE_MAX, CODE_SUFFIX, Cursor, SLICE_BYTES, rank_of_code};
use crate::tree::Tree;
use frame::{Level, Start, YoungLayer};
use key::KeyBuffer;

/// One scan under way.
pub(crate) struct Scan<'a, 'g> {
    tree: &'a Tree,
    direction: Direction,
    guard: Guard<'g>,
    counters: &'a Counters,
    /// The layers under way are the first `depth` of these; the others are kept for reuse.
    levels: Vec<Level<'g>>,
    depth: usize,
    /// The last key shown, or while a layer is being entered its prefix.
    key: KeyBuffer,
    /// Which of the two `key` is.
    key_shown: bool,
    /// The last key shown, when `key` is not; none was shown when it is `None`.
    last: Option<Vec<u8>>,
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
            levels: Vec::new(),
            depth: 0,
            key: KeyBuffer::default(),
            key_shown: false,
            last: None,
        }
    }

    /// Shows entries from `from` on until `visit` breaks or the tree ends. O(log keys) to begin,
    /// then O(1) nodes per 15 entries and O(1) blocks per entry.
    pub(crate) fn run(
        &mut self,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], ValueRef<'g>) -> ControlFlow<()>,
    ) {
        loop {
            self.keep_last();
            let last = self.last.take();
            let from = last.as_deref().map_or(from, Bound::Excluded);
            self.depth = 0;
            let sought = self.seek(from);
            self.last = last;
            match sought.and_then(|()| self.walk(&mut visit)) {
                Ok(()) => return,
                Err(LayerGone) => self.counters.root_retries.add(1),
            }
        }
    }

    /// Keeps the last key shown, because `key` is about to be used otherwise.
    fn keep_last(&mut self) {
        if self.key_shown {
            self.key_shown = false;
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(self.key.as_slice());
        }
    }

    /// Builds the stack that leads to `from`.
    fn seek(&mut self, from: Bound<&[u8]>) -> Result<(), LayerGone> {
        self.key.clear();
        let root = self.tree.root(self.guard);
        let (bytes, inclusive) = match from {
            Bound::Unbounded => return self.enter(root, Start::First),
            Bound::Included(bytes) => (bytes, true),
            Bound::Excluded(bytes) => (bytes, false),
        };
        let (mut root, mut cursor) = (root, Cursor::new(bytes));
        loop {
            let (slice, rank) = (cursor.slice(), cursor.rank());
            // A longer key's entry is looked into here, whatever it holds.
            let inclusive_here = inclusive || rank == CODE_SUFFIX;
            self.enter(
                root,
                Start::At {
                    slice,
                    rank,
                    inclusive: inclusive_here,
                },
            )?;
            let level = &mut self.levels[self.depth - 1];
            let Some((first_slice, code, found)) = level.first(self.guard) else {
                return Ok(());
            };
            if rank < CODE_SUFFIX || (first_slice, rank_of_code(code)) != (slice, rank) {
                return Ok(());
            }
            match found {
                Found::Layer(next) => {
                    level.skip_first();
                    self.key.set_slice(cursor.offset(), slice, SLICE_BYTES);
                    root = next;
                    cursor = cursor.deeper();
                }
                Found::Value(block) => {
                    let (entry, bound) = (block.suffix(), cursor.suffix());
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

    fn walk(
        &mut self,
        visit: &mut impl FnMut(&[u8], ValueRef<'g>) -> ControlFlow<()>,
    ) -> Result<(), LayerGone> {
        while self.depth > 0 {
            let level = &mut self.levels[self.depth - 1];
            let Some((slice, code, found)) = level.next(self.guard) else {
                if !level.go_on(self.direction, self.guard)? {
                    self.depth -= 1;
                }
                continue;
            };
            let prefix_bytes = level.prefix_bytes;
            match found {
                Found::Layer(root) => {
                    if let Some(young) = YoungLayer::take(root, self.direction, self.guard) {
                        let place = (prefix_bytes, Some(slice));
                        for entry in young.entries(self.guard) {
                            if self.show(place, entry, visit).is_break() {
                                return Ok(());
                            }
                        }
                        continue;
                    }
                    self.keep_last();
                    self.key.set_slice(prefix_bytes, slice, SLICE_BYTES);
                    self.enter(root, Start::First)?;
                }
                Found::Value(block) => {
                    let entry = (slice, code, block);
                    if self.show((prefix_bytes, None), entry, visit).is_break() {
                        return Ok(());
                    }
                }
                Found::Absent => unreachable!("a snapshot holds no absent entries"),
            }
        }
        Ok(())
    }

    /// Shows an entry whose key begins with the first `prefix_bytes` of `key` and, in a layer that
    /// was not entered, the slice `above`. A tombstone leaves `key` as it is.
    #[inline]
    fn show(
        &mut self,
        (mut prefix_bytes, above): (usize, Option<u64>),
        (slice, code, block): (u64, u8, BlockRef<'g>),
        visit: &mut impl FnMut(&[u8], ValueRef<'g>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (suffix, value) = block.parts();
        let Some(value) = value else {
            return ControlFlow::Continue(());
        };
        if let Some(above) = above {
            self.key.set_slice(prefix_bytes, above, SLICE_BYTES);
            prefix_bytes += SLICE_BYTES;
        }
        let slice_bytes = usize::from(code.min(CODE_SLICE_MAX));
        self.key.set_slice(prefix_bytes, slice, slice_bytes);
        if code == CODE_SUFFIX {
            self.key.push(suffix);
        }
        self.key_shown = true;
        visit(self.key.as_slice(), value)
    }

    /// Begins the layer under `root` at `start`; `key` holds its prefix.
    fn enter(&mut self, root: NodeRef<'g>, start: Start) -> Result<(), LayerGone> {
        let slice = match (start, self.direction) {
            (Start::At { slice, .. }, _) => slice,
            (Start::First, Direction::Forward) => 0,
            (Start::First, Direction::Backward) => u64::MAX,
        };
        let reached = find_border(root, slice, self.counters)?;
        debug_assert!(self.key.len().is_multiple_of(SLICE_BYTES));
        if self.depth == self.levels.len() {
            self.levels.push(Level::empty(reached.border));
        }
        let level = &mut self.levels[self.depth];
        level.prefix_bytes = self.key.len();
        let bounds = (start, self.direction);
        level.begin(reached.border, reached.version, slice, bounds, self.guard)?;
        self.depth += 1;
        Ok(())
    }
}
