//! Validated snapshots of border nodes, and the two of them that a scan holds per layer.
//!
//! While the entries of one node are visited, what comes next is already on its way from memory:
//!
//! | when | is read | is asked for |
//! |---|---|---|
//! | a node's visit begins | the following node | its blocks and layers' roots, and the node after it |
//! | half of it is visited | the roots of the following node's layers | their blocks |
//!
//! A layer's first node is looked beyond only when half of it is visited, so that a scan of few
//! entries asks for little that it does not need. A snapshot that was taken early is as good as one
//! taken late: E4 asks for the keys that are present throughout the scan, and each value is one
//! that its key had during it.

use pando_engine::Direction;
use pando_sync::prefetch::prefetch_span;
use pando_sync::shim::Spin;
use pando_sync::version_lock::NodeVersion;

use crate::block::{BlockRef, SPAN_BYTES};
use crate::find::{Found, LayerGone, settle};
use crate::node::{BorderRef, Either, Guard, NodeRef, WIDTH, WIDTH_YOUNG};
use crate::slice::{CODE_NEVER, CODE_SUFFIX, CODE_UNSTABLE, rank_of_code};

/// Where in a layer a scan begins, seen in its direction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
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

/// One entry of a snapshot.
#[derive(Clone, Copy)]
struct Item {
    slice: u64,
    link: *mut u8,
    code: u8,
}

impl Item {
    const EMPTY: Self = Self {
        slice: 0,
        link: std::ptr::null_mut(),
        code: CODE_NEVER,
    };
}

/// A snapshot of one border node, and how far its visit has come.
struct Frame<'g> {
    border: BorderRef<'g>,
    /// The right sibling under the snapshot's version.
    next: Option<BorderRef<'g>>,
    /// In the scan's direction; those below `count` were listed under a validated version.
    items: [Item; WIDTH],
    count: usize,
    visited: usize,
}

impl<'g> Frame<'g> {
    fn empty(border: BorderRef<'g>) -> Self {
        Self {
            border,
            next: None,
            items: [Item::EMPTY; WIDTH],
            count: 0,
            visited: 0,
        }
    }

    /// Takes the entries of `border` that `admit` lets in, all that follow the first of them;
    /// whether the node was at `version` throughout. One validation covers all entries.
    #[inline]
    fn fill(
        &mut self,
        border: BorderRef<'g>,
        version: NodeVersion,
        direction: Direction,
        admit: impl Fn(u64, u8) -> bool,
    ) -> bool {
        let next = border.next();
        let permutation = border.permutation();
        let listed = permutation.count();
        let mut count = 0;
        // Nothing is held until it is validated.
        self.count = 0;
        for index in 0..listed {
            let position = match direction {
                Direction::Forward => index,
                Direction::Backward => listed - 1 - index,
            };
            let slot = permutation.slot(position);
            let (slice, code, link) = (border.slice(slot), border.code(slot), border.link(slot));
            // The link must belong to the code, as in `read_slot`.
            if code == CODE_UNSTABLE || border.code(slot) != code {
                return false;
            }
            if count > 0 || admit(slice, rank_of_code(code)) {
                // A hint, before anything is validated; the first line of a layer's root.
                prefetch_span(link, SPAN_BYTES);
                self.items[count] = Item { slice, link, code };
                count += 1;
            }
        }
        if !border.version.unchanged_since(version) {
            return false;
        }
        (self.border, self.next) = (border, next);
        (self.count, self.visited) = (count, 0);
        true
    }

    /// The slice, code and content of an entry below `count`.
    #[inline]
    fn item(&self, index: usize, guard: Guard<'g>) -> (u64, u8, Found<'g>) {
        let Item { slice, link, code } = self.items[index];
        // SAFETY: `fill` has validated the version after the entry was loaded (M2), and seen the
        // same code on both sides of the link.
        (slice, code, unsafe { BorderRef::found(code, link, guard) })
    }

    /// Takes a snapshot of the node responsible for `slice`, which `border` was at `version`.
    fn take(
        &mut self,
        mut border: BorderRef<'g>,
        mut version: NodeVersion,
        slice: u64,
        direction: Direction,
        admit: impl Fn(u64, u8) -> bool,
    ) -> Result<(), LayerGone> {
        let mut spin = Spin::new();
        loop {
            if version.is_deleted() {
                return Err(LayerGone);
            }
            // The right sibling's bound is looked at only after a failure: its line would have to
            // come from memory.
            if self.fill(border, version, direction, &admit) {
                return Ok(());
            }
            spin.wait();
            (border, version) = settle(border, slice)?;
        }
    }

    /// Takes a snapshot of the node responsible for `slice`, at `border` or right of it, of entries
    /// with slices up to `slice`.
    fn take_before(&mut self, mut border: BorderRef<'g>, slice: u64) -> Result<(), LayerGone> {
        let mut spin = Spin::new();
        loop {
            let version = border.version.stable();
            if version.is_deleted() {
                return Err(LayerGone);
            }
            if self.fill(border, version, Direction::Backward, |entry, _| {
                entry <= slice
            }) {
                match self.next {
                    Some(next) if next.low() <= slice => border = next,
                    _ => return Ok(()),
                }
            } else {
                spin.wait();
            }
        }
    }

    /// The node that comes after this one, as far as can be told now.
    fn neighbour(&self, direction: Direction) -> Option<BorderRef<'g>> {
        match direction {
            Direction::Forward => self.next,
            Direction::Backward => self.border.prev(),
        }
    }

    /// Takes a snapshot of the node that follows `before`; false when there is none.
    fn follow(&mut self, before: &Self, direction: Direction) -> Result<bool, LayerGone> {
        let Some(border) = before.neighbour(direction) else {
            return Ok(false);
        };
        match direction {
            Direction::Forward => {
                let (version, low) = (border.version.stable(), border.low());
                self.take(border, version, low, direction, |_, _| true)?;
            }
            Direction::Backward => {
                // Everything at or above that node's low bound is in its snapshot, or was.
                self.take_before(border, before.border.low() - 1)?;
            }
        }
        Ok(true)
    }

    /// Begins to fetch what the visit will touch, all at once, and the node that comes after.
    fn prefetch(&self, direction: Direction, guard: Guard<'g>) {
        if let Some(neighbour) = self.neighbour(direction) {
            neighbour.node().prefetch();
        }
        // `fill` has asked for the blocks already, and for the first lines of layers' roots.
        for index in 0..self.count {
            if let Found::Layer(root) = self.item(index, guard).2 {
                root.prefetch_young();
            }
        }
    }

    /// Begins to fetch what the roots of this node's layers lead to; the roots should have come.
    fn prefetch_layers(&self, guard: Guard<'g>) {
        for index in 0..self.count {
            if let Found::Layer(root) = self.item(index, guard).2
                && let Either::Border(border) = root.either()
            {
                border.prefetch_links();
            }
        }
    }
}

/// A snapshot of a layer that consists of one small node without layers below, as most do: it needs
/// no place on the stack of layers.
pub(super) struct YoungLayer {
    items: [Item; WIDTH_YOUNG],
    count: usize,
}

impl YoungLayer {
    /// The layer under `root`; `None` when it is another kind of layer or changes meanwhile.
    #[inline]
    pub(super) fn take(root: NodeRef<'_>, direction: Direction, _: Guard<'_>) -> Option<Self> {
        let version = root.version.stable();
        let Either::Border(border) = root.either() else {
            return None;
        };
        // A node of this width has no siblings: it is replaced when it is full (`layer::grow`).
        if border.width() != WIDTH_YOUNG || !version.is_root() || version.is_deleted() {
            return None;
        }
        let permutation = border.permutation();
        let mut young = Self {
            items: [Item::EMPTY; WIDTH_YOUNG],
            count: permutation.count().min(WIDTH_YOUNG),
        };
        for index in 0..young.count {
            let position = match direction {
                Direction::Forward => index,
                Direction::Backward => young.count - 1 - index,
            };
            let slot = permutation.slot(position).min(WIDTH_YOUNG - 1);
            let (slice, code, link) = (border.slice(slot), border.code(slot), border.link(slot));
            if code > CODE_SUFFIX || border.code(slot) != code {
                return None;
            }
            young.items[index] = Item { slice, link, code };
        }
        border.version.unchanged_since(version).then_some(young)
    }

    /// Its entries: slice, code and block.
    #[inline]
    pub(super) fn entries<'g>(
        &self,
        guard: Guard<'g>,
    ) -> impl Iterator<Item = (u64, u8, BlockRef<'g>)> {
        self.items[..self.count].iter().map(move |item| {
            // SAFETY: `take` has validated the version after the entry was loaded (M2), and seen
            // the same code, one of a value, on both sides of the link.
            let block = unsafe { BlockRef::from_link(item.link, guard) };
            (item.slice, item.code, block)
        })
    }
}

/// A layer under way.
pub(super) struct Level<'g> {
    /// Length of the prefix that the layer's keys share.
    pub(super) prefix_bytes: usize,
    frames: [Frame<'g>; 2],
    /// Which of the two is being visited.
    current: usize,
    /// The other one holds what comes next.
    ahead: bool,
    /// The visit goes on up to here before it looks further.
    pause: usize,
}

impl<'g> Level<'g> {
    /// A level without entries; `border` is any node.
    pub(super) fn empty(border: BorderRef<'g>) -> Self {
        Self {
            prefix_bytes: 0,
            frames: [Frame::empty(border), Frame::empty(border)],
            current: 0,
            ahead: false,
            pause: 0,
        }
    }

    /// Begins a layer at `border`, which is responsible for `slice` at `version`.
    pub(super) fn begin(
        &mut self,
        border: BorderRef<'g>,
        version: NodeVersion,
        slice: u64,
        (start, direction): (Start, Direction),
        guard: Guard<'g>,
    ) -> Result<(), LayerGone> {
        (self.current, self.ahead) = (0, false);
        let admit = |slice, rank| start.admits(direction, slice, rank);
        let frame = &mut self.frames[0];
        frame.take(border, version, slice, direction, admit)?;
        frame.prefetch(direction, guard);
        self.pause = frame.count;
        if frame.neighbour(direction).is_some() {
            self.pause /= 2;
        }
        Ok(())
    }

    /// The first entry of the layer's first node, if any, which stays to be visited.
    pub(super) fn first(&self, guard: Guard<'g>) -> Option<(u64, u8, Found<'g>)> {
        let frame = &self.frames[self.current];
        (frame.count > 0).then(|| frame.item(0, guard))
    }

    /// Does not visit the first entry.
    pub(super) fn skip_first(&mut self) {
        self.frames[self.current].visited = 1;
        self.pause = self.pause.max(1);
    }

    /// The entry to be visited now; `None` at a pause.
    #[inline]
    pub(super) fn next(&mut self, guard: Guard<'g>) -> Option<(u64, u8, Found<'g>)> {
        let frame = &mut self.frames[self.current];
        if frame.visited >= self.pause {
            return None;
        }
        let item = frame.item(frame.visited, guard);
        frame.visited += 1;
        Some(item)
    }

    /// Ends a pause; false at the end of the layer.
    pub(super) fn go_on(
        &mut self,
        direction: Direction,
        guard: Guard<'g>,
    ) -> Result<bool, LayerGone> {
        let frame = &self.frames[self.current];
        if frame.visited < frame.count {
            self.pause = frame.count;
            if self.ahead {
                self.frames[1 - self.current].prefetch_layers(guard);
            } else {
                self.look_ahead(direction, guard);
            }
            return Ok(true);
        }
        if !self.ahead && !self.follow(direction)? {
            return Ok(false);
        }
        self.ahead = false;
        self.current = 1 - self.current;
        self.look_ahead(direction, guard);
        self.pause = self.frames[self.current].count / 2;
        Ok(true)
    }

    /// Takes the snapshot that comes next into the other frame.
    fn follow(&mut self, direction: Direction) -> Result<bool, LayerGone> {
        let [first, second] = &mut self.frames;
        if self.current == 0 {
            second.follow(first, direction)
        } else {
            first.follow(second, direction)
        }
    }

    fn look_ahead(&mut self, direction: Direction, guard: Guard<'g>) {
        // A layer that is gone is noticed again when its turn comes.
        self.ahead = self.follow(direction).unwrap_or(false);
        if self.ahead {
            self.frames[1 - self.current].prefetch(direction, guard);
        }
    }
}
