//! Scans in both directions (§4.3, §4.6): border node by border node, layer by layer.
//!
//! A scan takes a validated snapshot of one border node at a time, visits what it holds, and goes
//! to the sibling; a LAYER entry is entered when its turn comes. The way back up is a stack of such
//! snapshots, on the heap because a key of 64 KiB is 8,192 layers deep. Where a node turns out to
//! be deleted the stack is dropped and the scan descends again behind the last key that it showed.
//!
//! Why every key that is present throughout is seen (E4), forwards: a snapshot holds all keys of
//! its node's range at its time, and its `next` was loaded under the same version; a later split
//! moves keys only that the snapshot holds; a removed node was empty. Backwards: the node to the
//! left of a bound is accepted only if, under the version of its snapshot, its right neighbour
//! begins at or above the bound; else it has split, and the scan goes right first.
//!
//! Deliberately absent: a snapshot of the whole range.

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, ValueRef};
use pando_sync::shim::Spin;
use pando_sync::version_lock::NodeVersion;

use crate::counters::Counters;
use crate::find::{Found, LayerGone, find_border};
use crate::node::{BorderRef, Guard, NodeRef, WIDTH};
use crate::slice::{CODE_SLICE_MAX, CODE_SUFFIX, Cursor, SLICE_BYTES, rank_of_code};
use crate::tree::Tree;

/// Where in a layer a scan begins, seen in its direction.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// At the layer's first entry.
    First,
    /// At this slice and rank, or behind it.
    At {
        slice: u64,
        rank: u8,
        inclusive: bool,
    },
}

impl Start {
    fn admits(self, direction: Direction, slice: u64, rank: u8) -> bool {
        let Self::At {
            slice: start,
            rank: start_rank,
            inclusive,
        } = self
        else {
            return true;
        };
        let (entry, start) = ((slice, rank), (start, start_rank));
        match direction {
            _ if entry == start => inclusive,
            Direction::Forward => entry > start,
            Direction::Backward => entry < start,
        }
    }
}

#[derive(Clone, Copy)]
struct Item<'g> {
    slice: u64,
    code: u8,
    found: Found<'g>,
}

/// A snapshot of one border node, and how far its visit has come.
struct Frame<'g> {
    border: BorderRef<'g>,
    next: Option<BorderRef<'g>>,
    start: Start,
    /// In the scan's direction.
    items: [Item<'g>; WIDTH],
    count: usize,
    visited: usize,
    /// Length of the prefix that the layer's keys share.
    prefix_bytes: usize,
}

/// One scan under way.
pub(crate) struct Scan<'a, 'g> {
    pub(crate) tree: &'a Tree,
    pub(crate) direction: Direction,
    pub(crate) guard: Guard<'g>,
    pub(crate) counters: &'a Counters,
    stack: Vec<Frame<'g>>,
    /// The last key shown; while one is under way, its first bytes.
    key: Vec<u8>,
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
            stack: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Shows entries from `from` on until `visit` breaks or the tree ends. O(log keys) to begin,
    /// then O(1) nodes per 15 entries and O(1) blocks per entry.
    pub(crate) fn run(
        &mut self,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], ValueRef<'g>) -> ControlFlow<()>,
    ) {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = last.as_deref().map_or(from, Bound::Excluded);
            self.stack.clear();
            let ended = self.seek(from).and_then(|()| {
                self.walk(&mut |key, value| {
                    let seen = last.get_or_insert_default();
                    seen.clear();
                    seen.extend_from_slice(key);
                    visit(key, value)
                })
            });
            match ended {
                Ok(()) => return,
                Err(LayerGone) => self.counters.root_retries.add(1),
            }
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
            let open = inclusive || rank == CODE_SUFFIX;
            self.enter(
                root,
                Start::At {
                    slice,
                    rank,
                    inclusive: open,
                },
            )?;
            let frame = self.stack.last_mut().expect("just entered");
            let Some(item) = frame.items[..frame.count].first() else {
                return Ok(());
            };
            if rank < CODE_SUFFIX || (item.slice, rank_of_code(item.code)) != (slice, rank) {
                return Ok(());
            }
            match item.found {
                Found::Layer(next) => {
                    frame.visited = 1;
                    self.key.extend_from_slice(&slice.to_be_bytes());
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
                    frame.visited = usize::from(!admitted);
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
        while let Some(frame) = self.stack.last_mut() {
            if frame.visited == frame.count {
                if !self.go_on()? {
                    self.stack.pop();
                }
                continue;
            }
            let item = frame.items[frame.visited];
            frame.visited += 1;
            self.key.truncate(frame.prefix_bytes);
            let slice_bytes = usize::from(item.code.min(CODE_SLICE_MAX));
            self.key
                .extend_from_slice(&item.slice.to_be_bytes()[..slice_bytes]);
            match item.found {
                Found::Layer(root) => self.enter(root, Start::First)?,
                Found::Value(block) => {
                    let Some(value) = block.value() else { continue };
                    if item.code == CODE_SUFFIX {
                        self.key.extend_from_slice(block.suffix());
                    }
                    if visit(&self.key, value).is_break() {
                        return Ok(());
                    }
                }
                Found::Absent => unreachable!("a snapshot holds no absent entries"),
            }
        }
        Ok(())
    }

    /// Pushes a snapshot of the layer's border node where `start` is; `key` holds the prefix.
    fn enter(&mut self, root: NodeRef<'g>, start: Start) -> Result<(), LayerGone> {
        let slice = match (start, self.direction) {
            (Start::At { slice, .. }, _) => slice,
            (Start::First, Direction::Forward) => 0,
            (Start::First, Direction::Backward) => u64::MAX,
        };
        let reached = find_border(root, slice, self.counters)?;
        let prefix_bytes = self.key.len();
        debug_assert!(prefix_bytes.is_multiple_of(SLICE_BYTES));
        let frame = match self.direction {
            Direction::Forward => {
                Frame::take_forward(reached.border, reached.version, slice, start, self.guard)?
            }
            Direction::Backward => Frame::take_backward(reached.border, slice, start, self.guard)?,
        };
        self.stack.push(Frame {
            prefix_bytes,
            ..frame
        });
        Ok(())
    }

    /// Puts the next border node's snapshot in the place of the top one; false when there is none.
    fn go_on(&mut self) -> Result<bool, LayerGone> {
        let frame = self.stack.last_mut().expect("the walk is in a layer");
        let prefix_bytes = frame.prefix_bytes;
        let following = match self.direction {
            Direction::Forward => {
                let Some(next) = frame.next else {
                    return Ok(false);
                };
                Frame::take_forward(
                    next,
                    next.version.stable(),
                    next.low(),
                    frame.start,
                    self.guard,
                )?
            }
            Direction::Backward => {
                let Some(prev) = frame.border.prev() else {
                    return Ok(false);
                };
                // Everything at or above this node's low bound has been visited.
                let below = frame.border.low();
                Frame::take_backward(prev, below - 1, frame.start, self.guard)?
            }
        };
        *frame = Frame {
            prefix_bytes,
            ..following
        };
        Ok(true)
    }
}

impl<'g> Frame<'g> {
    /// A snapshot of the node responsible for `slice`, at `border` or right of it.
    fn take_forward(
        mut border: BorderRef<'g>,
        mut version: NodeVersion,
        slice: u64,
        start: Start,
        guard: Guard<'g>,
    ) -> Result<Self, LayerGone> {
        let mut spin = Spin::new();
        loop {
            if version.is_deleted() {
                return Err(LayerGone);
            }
            let taken = Self::take(border, version, Direction::Forward, start, u64::MAX, guard);
            match taken {
                Some(Self {
                    next: Some(next), ..
                }) if next.low() <= slice => border = next,
                Some(frame) => {
                    frame.prefetch();
                    return Ok(frame);
                }
                None => spin.wait(),
            }
            version = border.version.stable();
        }
    }

    /// A snapshot of the node responsible for `slice`, at `border` or right of it, of entries with
    /// slices up to `slice`.
    fn take_backward(
        mut border: BorderRef<'g>,
        slice: u64,
        start: Start,
        guard: Guard<'g>,
    ) -> Result<Self, LayerGone> {
        let mut spin = Spin::new();
        loop {
            let version = border.version.stable();
            if version.is_deleted() {
                return Err(LayerGone);
            }
            let Some(frame) = Self::take(border, version, Direction::Backward, start, slice, guard)
            else {
                spin.wait();
                continue;
            };
            match frame.next {
                Some(next) if next.low() <= slice => border = next,
                _ => {
                    frame.prefetch();
                    return Ok(frame);
                }
            }
        }
    }

    /// A snapshot of `border` under `version`; `None` when it has changed.
    fn take(
        border: BorderRef<'g>,
        version: NodeVersion,
        direction: Direction,
        start: Start,
        slice_max: u64,
        guard: Guard<'g>,
    ) -> Option<Self> {
        let next = border.next();
        let permutation = border.permutation();
        let empty = Item {
            slice: 0,
            code: 0,
            found: Found::Absent,
        };
        let mut frame = Self {
            border,
            next,
            start,
            items: [empty; WIDTH],
            count: 0,
            visited: 0,
            prefix_bytes: 0,
        };
        for index in 0..permutation.count() {
            let position = match direction {
                Direction::Forward => index,
                Direction::Backward => permutation.count() - 1 - index,
            };
            let slot = permutation.slot(position);
            let slice = border.slice(slot);
            let (code, found) = border.read_slot(slot, version, guard)?;
            if slice <= slice_max && start.admits(direction, slice, rank_of_code(code)) {
                frame.items[frame.count] = Item { slice, code, found };
                frame.count += 1;
            }
        }
        border.version.unchanged_since(version).then_some(frame)
    }

    /// Begins to fetch what the visit will touch, all at once.
    fn prefetch(&self) {
        for item in &self.items[..self.count] {
            match item.found {
                Found::Value(block) => block.prefetch(),
                Found::Layer(root) => root.prefetch(),
                Found::Absent => {}
            }
        }
        if let Some(next) = self.next {
            next.node().prefetch();
        }
    }
}
