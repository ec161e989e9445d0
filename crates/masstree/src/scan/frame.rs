//! Validated snapshots of border nodes, and the two that a scan holds per layer.
//!
//! While the entries of one node are visited, what comes next is already being fetched:
//!
//! | when | is read | is prefetched |
//! |---|---|---|
//! | the descent is above the first node | | that node and the one beside it, from their parent |
//! | a node's visit begins | the following node | its blocks and layers' roots, and the node after it |
//! | half of it is visited | the roots of the following node's layers | their blocks |
//!
//! Beyond a layer's first node nothing is fetched until half of it is visited, so a scan of few
//! entries fetches little that it does not need. An early snapshot is as good as a late one:
//! E4 scan-complete asks for the keys that are present throughout the scan, and each value is one
//! that its key had during it.

use std::ptr::NonNull;

use pando_block::BlockRef;
use pando_engine::Direction;
use pando_sync::prefetch::{LINE_BYTES, prefetch_lines, prefetch_span};
use pando_sync::shim::Spin;
use pando_sync::version_lock::NodeVersion;

use crate::find::{Found, LayerGone, settle};
use crate::node::{
    BLOCK_SPAN_BYTES, BorderRef, Either, Guard, NodeRef, WIDTH, WIDTH_YOUNG, YOUNG_BYTES,
};
use crate::slice::{CODE_NEVER, CODE_SUFFIX, CODE_UNSTABLE, rank_of_code};

/// Most bytes of a block that are prefetched before its turn.
const BLOCK_AHEAD_BYTES_MAX: usize = 256;

/// Where a scan begins in a layer, in its direction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// At the layer's first entry.
    First,
    /// At this slice and rank, or after it.
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

/// How much to prefetch of the blocks of a node that is being listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Of each block's lines, none when 0.
    bytes: usize,
}

impl Ahead {
    const NOTHING: Self = Self { bytes: 0 };

    /// For a scan whose last block took `block_bytes`: as much of the next ones as is likely to be
    /// read, up to a bound; the hardware prefetcher covers the rest.
    pub(super) fn of(block_bytes: usize) -> Self {
        let bytes = block_bytes.clamp(BLOCK_SPAN_BYTES, BLOCK_AHEAD_BYTES_MAX);
        Self { bytes }
    }

    /// A hint: any link will do.
    #[inline]
    fn ask(self, link: *const u8) {
        if self.bytes > LINE_BYTES {
            prefetch_lines(link, self.bytes);
        }
        if self.bytes > 0 {
            // The end of a short block may be on another line.
            prefetch_span(link, self.bytes);
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

/// Places in a snapshot: a power of two, so that an index is masked without a branch.
const ITEMS: usize = (WIDTH + 1).next_power_of_two();

/// An iterator over the entries of a snapshot, in the scan's direction.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// The next entry.
    at: usize,
    pub(super) left: usize,
    /// 1, or -1 wrapped.
    step: usize,
}

impl Walk {
    const NOWHERE: Self = Self {
        at: 0,
        left: 0,
        step: 1,
    };

    fn over(count: usize, direction: Direction) -> Self {
        match direction {
            Direction::Forward => Self {
                at: 0,
                left: count,
                step: 1,
            },
            Direction::Backward => Self {
                at: count.wrapping_sub(1),
                left: count,
                step: usize::MAX,
            },
        }
    }

    /// The next entry.
    #[inline]
    pub(super) fn go_on(&mut self) -> usize {
        debug_assert!(self.left > 0);
        let at = self.at;
        self.at = at.wrapping_add(self.step);
        self.left -= 1;
        at % ITEMS
    }
}

/// A snapshot of one border node, and how far the visit has come.
pub(super) struct Frame<'g> {
    /// `None` before the first snapshot.
    border: Option<BorderRef<'g>>,
    /// The right sibling under the snapshot's version.
    next: Option<BorderRef<'g>>,
    /// In the order of their keys; all were listed under a validated version.
    items: [Item; ITEMS],
    /// The bits of those that are layers.
    layers: u32,
    /// The number of entries to be visited.
    pub(super) walk: Walk,
}

impl<'g> Frame<'g> {
    const fn empty() -> Self {
        Self {
            border: None,
            next: None,
            items: [Item::EMPTY; ITEMS],
            layers: 0,
            walk: Walk::NOWHERE,
        }
    }

    /// Takes the entries of `border`, and prefetches what they lead to; returns whether the node
    /// was at `version` throughout. One validation covers all entries.
    #[inline]
    fn fill(
        &mut self,
        border: BorderRef<'g>,
        version: NodeVersion,
        direction: Direction,
        ahead: Ahead,
    ) -> bool {
        let next = border.next();
        let permutation = border.permutation();
        let mut layers = 0;
        // Nothing is kept until it is validated.
        self.walk = Walk::NOWHERE;
        for (position, slot) in permutation.slots().enumerate() {
            let (slice, code, link) = (border.slice(slot), border.code(slot), border.link(slot));
            // Before anything is validated; of a layer, its root.
            ahead.ask(link);
            if code > CODE_SUFFIX {
                if code == CODE_UNSTABLE {
                    return false;
                }
                layers |= 1 << position;
            }
            // The link must belong to the code, as in `read_slot`.
            if border.code(slot) != code {
                return false;
            }
            self.items[position % ITEMS] = Item { slice, link, code };
        }
        if !border.version.unchanged_since(version) {
            return false;
        }
        (self.border, self.next, self.layers) = (Some(border), next, layers);
        self.walk = Walk::over(permutation.count(), direction);
        true
    }

    /// Skips the entries before the first one that `admit` lets in.
    #[inline]
    fn skip_until(&mut self, admit: impl Fn(u64, u8) -> bool) {
        while self.walk.left > 0 {
            let item = &self.items[self.walk.at % ITEMS];
            if admit(item.slice, rank_of_code(item.code)) {
                return;
            }
            self.walk.go_on();
        }
    }

    /// The slice, code and content of an entry.
    #[inline]
    pub(super) fn item(&self, index: usize, guard: Guard<'g>) -> (u64, u8, Found<'g>) {
        let Item { slice, link, code } = self.items[index % ITEMS];
        // SAFETY: a walk leads over entries only after `fill` has validated the version behind
        // their loads (M2 validate-then-follow), and seen the same code on both sides of the link.
        (slice, code, unsafe { BorderRef::found(code, link, guard) })
    }

    /// Takes a snapshot of the node responsible for `slice`, which `border` was at `version`.
    fn take(
        &mut self,
        mut border: BorderRef<'g>,
        mut version: NodeVersion,
        slice: u64,
        (direction, ahead): (Direction, Ahead),
    ) -> Result<(), LayerGone> {
        let mut spin = Spin::new();
        loop {
            if version.is_deleted() {
                return Err(LayerGone);
            }
            // The right sibling's bound is read only after a failure: its line would have to come
            // from memory.
            if self.fill(border, version, direction, ahead) {
                return Ok(());
            }
            spin.wait();
            (border, version) = settle(border, slice)?;
        }
    }

    /// Takes a snapshot of the node responsible for `slice`, at `border` or right of it, of entries
    /// with slices up to `slice`.
    fn take_before(
        &mut self,
        mut border: BorderRef<'g>,
        slice: u64,
        ahead: Ahead,
    ) -> Result<(), LayerGone> {
        let mut spin = Spin::new();
        loop {
            let version = border.version.stable();
            if version.is_deleted() {
                return Err(LayerGone);
            }
            if self.fill(border, version, Direction::Backward, ahead) {
                match self.next {
                    Some(next) if next.low() <= slice => border = next,
                    _ => {
                        self.skip_until(|entry, _| entry <= slice);
                        return Ok(());
                    }
                }
            } else {
                spin.wait();
            }
        }
    }

    /// The node after this one, as far as it is known now.
    fn neighbour(&self, direction: Direction) -> Option<BorderRef<'g>> {
        match direction {
            Direction::Forward => self.next,
            Direction::Backward => self.border?.prev(),
        }
    }

    /// Takes a snapshot of the node that follows `before`; false when there is none.
    fn follow(
        &mut self,
        before: &Self,
        (direction, ahead): (Direction, Ahead),
    ) -> Result<bool, LayerGone> {
        let (Some(visited), Some(border)) = (before.border, before.neighbour(direction)) else {
            return Ok(false);
        };
        match direction {
            Direction::Forward => {
                let (version, low) = (border.version.stable(), border.low());
                self.take(border, version, low, (direction, ahead))?;
            }
            Direction::Backward => {
                // Everything at or above that node's low bound is in its snapshot, or was.
                self.take_before(border, visited.low() - 1, ahead)?;
            }
        }
        Ok(true)
    }

    /// Prefetches the next node, and the roots of this node's layers.
    #[inline]
    fn prefetch(&self, direction: Direction) {
        if let Some(neighbour) = self.neighbour(direction) {
            neighbour.node().prefetch();
        }
        self.each_layer(|item| prefetch_span(item.link, YOUNG_BYTES));
    }

    #[inline]
    fn each_layer(&self, visit: impl Fn(&Item)) {
        let mut layers = self.layers;
        while layers != 0 {
            visit(&self.items[layers.trailing_zeros() as usize % ITEMS]);
            layers &= layers - 1;
        }
    }

    /// Prefetches what the roots of this node's layers lead to; the roots should have arrived.
    fn prefetch_layers(&self, ahead: Ahead, guard: Guard<'g>) {
        self.each_layer(|item| {
            // SAFETY: `fill` has validated the entry (see `item`).
            let found = unsafe { BorderRef::found(item.code, item.link, guard) };
            if let Found::Layer(root) = found
                && let Either::Border(border) = root.either()
            {
                border.prefetch_links(|link| ahead.ask(link));
            }
        });
    }
}

/// A snapshot of a layer that is one small node without layers below, as most are; it needs no
/// place on the stack of layers.
pub(super) struct YoungLayer {
    items: [Item; WIDTH_YOUNG],
    count: usize,
}

impl YoungLayer {
    /// The layer under `root`; `None` if it is of another kind or changes meanwhile.
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
            let link = NonNull::new(item.link).expect("a listed entry has a link");
            // SAFETY: `take` has validated the version after the entry was loaded
            // (M2 validate-then-follow), and seen the same code, one of a value, on both sides of
            // the link.
            let block = unsafe { BlockRef::from_address(link, guard) };
            (item.slice, item.code, block)
        })
    }
}

/// A layer in progress.
pub(super) struct Level<'g> {
    /// Length of the prefix that the layer's keys share.
    pub(super) prefix_bytes: usize,
    frames: [Frame<'g>; 2],
    /// Which of the two is being visited.
    current: usize,
    /// The other one holds the next node.
    ahead: bool,
    /// When this many entries are left, the visit pauses to prefetch further.
    pause: usize,
}

impl<'g> Level<'g> {
    /// A level without entries.
    pub(super) const fn empty() -> Self {
        Self {
            prefix_bytes: 0,
            frames: [const { Frame::empty() }; 2],
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
        (start, direction, ahead): (Start, Direction, Ahead),
    ) -> Result<(), LayerGone> {
        (self.current, self.ahead) = (0, false);
        let frame = &mut self.frames[0];
        frame.take(border, version, slice, (direction, Ahead::NOTHING))?;
        frame.skip_until(|slice, rank| start.admits(direction, slice, rank));
        let mut walk = frame.walk;
        while walk.left > 0 {
            ahead.ask(frame.items[walk.go_on()].link);
        }
        frame.prefetch(direction);
        self.pause = if frame.neighbour(direction).is_some() {
            frame.walk.left.div_ceil(2)
        } else {
            0
        };
        Ok(())
    }

    /// The first entry of the layer's first node, if any; it stays to be visited.
    pub(super) fn first(&self, guard: Guard<'g>) -> Option<(u64, u8, Found<'g>)> {
        let frame = &self.frames[self.current];
        (frame.walk.left > 0).then(|| frame.item(frame.walk.at, guard))
    }

    /// Skips the first entry.
    pub(super) fn skip_first(&mut self) {
        let walk = &mut self.frames[self.current].walk;
        walk.go_on();
        self.pause = self.pause.min(walk.left);
    }

    /// The node being visited, and how many of its entries are left at the next pause.
    #[inline]
    pub(super) fn visited(&mut self) -> (&mut Frame<'g>, usize) {
        let [first, second] = &mut self.frames;
        let frame = if self.current == 0 { first } else { second };
        (frame, self.pause)
    }

    /// Ends a pause; false at the end of the layer.
    pub(super) fn go_on(
        &mut self,
        (direction, ahead): (Direction, Ahead),
        guard: Guard<'g>,
    ) -> Result<bool, LayerGone> {
        if self.frames[self.current].walk.left > 0 {
            self.pause = 0;
            if self.ahead {
                self.frames[1 - self.current].prefetch_layers(ahead, guard);
            } else {
                self.look_ahead(direction, ahead);
            }
            return Ok(true);
        }
        if !self.ahead && !self.follow(direction, ahead)? {
            return Ok(false);
        }
        self.ahead = false;
        self.current = 1 - self.current;
        self.look_ahead(direction, ahead);
        self.pause = if self.ahead && self.frames[1 - self.current].layers != 0 {
            self.frames[self.current].walk.left / 2
        } else {
            0
        };
        Ok(true)
    }

    /// Takes the next snapshot into the other frame.
    fn follow(&mut self, direction: Direction, ahead: Ahead) -> Result<bool, LayerGone> {
        let [first, second] = &mut self.frames;
        if self.current == 0 {
            second.follow(first, (direction, ahead))
        } else {
            first.follow(second, (direction, ahead))
        }
    }

    fn look_ahead(&mut self, direction: Direction, ahead: Ahead) {
        // A removed layer is noticed again when its turn comes.
        self.ahead = self.follow(direction, ahead).unwrap_or(false);
        if self.ahead {
            self.frames[1 - self.current].prefetch(direction);
        }
    }
}
