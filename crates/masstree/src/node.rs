//! Node layout (§4.2, figure 2): border and interior nodes, and the references to them.
//!
//! Border node: one header line, then its entries, as many as its width says (15, or 4 in the root
//! of a young layer):
//!
//! | offset | field | writer, under | readers |
//! |---|---|---|---|
//! | 0 | version | owner | all |
//! | 8 | permutation | owner | all, `Acquire` |
//! | 16 | codes\[15\] | owner | all, then validated |
//! | 31 | width | constructor | all |
//! | 32 | next | owner | all |
//! | 40 | prev | owner of the *previous sibling* (§4.5) | removers, backward scans |
//! | 48 | parent | owner of the *parent* (§4.5) | owner, stale roots |
//! | 56 | low | constructor | all |
//! | 64+16i | slice and link of slot i | owner | all, then validated |
//!
//! Interior node: version and keys in two lines, children in two, then parent and count, which a
//! descent does not read: places without a key hold [`KEY_NONE`], which is above every slice but
//! its equal. Nodes begin on a line boundary.
//!
//! Departures from the paper: slices and links are interleaved. That makes the width variable and
//! costs no more lines, since the whole node is prefetched. Suffixes are in the value's block (see
//! `pando_block::KeyPart`). That frees the header word for the node's explicit lower bound, so slot
//! 0 may be reused for any slice, and a lateral move reads only the neighbour's first line. The
//! paper's `nremoved` says that some slot was used before; here each slot's code says so (M7), so
//! an insert into a node that has seen removals marks it only when it takes such a slot. A link
//! never holds bits of the caller's own: every value has a block, which carries its version (§4.7).
//!
//! Invariants:
//! - **M1 reachable-lives** Whatever is reachable from a tree's root, or was since the pin began,
//!   lives until the pin ends: nodes and blocks are retired only after they became unreachable.
//! - **M2 validate-then-follow** A pointer from a slot or child array is followed only after the
//!   version under which it was loaded was validated; vacated slots keep stale pointers. `next`,
//!   `prev` and `parent` hold no stale pointers while their node is live.
//! - **M3 low-is-constant** `low` is constant; all keys of a border node are at or above it, and
//!   below `next`'s.
//! - **M4 one-slice-one-node** All keys with the same slice of a layer are in one border node.
//! - **M5 leftmost-stays** A layer's first border node stays its leftmost until the whole layer is
//!   removed.
//! - **M6 locks-upward** Locks are taken up the tree: border node, then its left sibling, then
//!   ancestors, then the border node above the layer. Nobody who holds a lock waits for one further
//!   down.
//! - **M7 slot-reuse-marked** A slot whose code is not [`CODE_NEVER`] is reused only under the
//!   inserting mark.
//! - **M8 changed-alone** A large row is taken out of a block that is linked, to be changed in
//!   place, only while its session is alone (R4 alone of the sync crate) and no snapshot holds the
//!   value. Another block is linked in its place, or the row given back, before others are pinned.
//!   So long, short bytes are also put into the block of others as long.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use pando_memory::pool::Pool;
pub(crate) use pando_sync::epoch::Guard;
use pando_sync::sharing::NodeLock;
use pando_sync::shim::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, MODEL, Ordering};
use pando_sync::version_lock::{NodeKind, NodeVersion};

use crate::permutation::{Permutation, SLOTS_MAX};
use crate::slice::{CODE_NEVER, rank_of_code};
use pando_sync::lanes;
use pando_sync::prefetch::{prefetch_line, prefetch_lines};

/// Entries of a full-size node; the model checker runs with fewer.
pub(crate) const WIDTH: usize = if MODEL { 3 } else { SLOTS_MAX };
/// Entries of the root of a young layer.
pub(crate) const WIDTH_YOUNG: usize = if MODEL { 2 } else { 4 };

/// Bytes of a value block that are prefetched, which most blocks have at least: a header of 12, a
/// short suffix, a short value.
pub(crate) const BLOCK_SPAN_BYTES: usize = 24;

/// Fills an interior node's places without a key, so a descent need not know how many there are.
/// Only a slice of this value looks at the count.
const KEY_NONE: u64 = u64::MAX;

/// Bytes of an interior node that a descent reads.
const INTERIOR_READ_BYTES: usize = 256;

/// Bytes of an interior node's block: more than a border node's, so that interior nodes, several of
/// which a descent reads, have their own size class and are close together on few pages. Among
/// border nodes each would need its own address translation.
pub(crate) const INTERIOR_BYTES: usize = size_of::<Interior>() + 64;

/// Bytes of a young layer's root, which most layers consist of: two lines.
pub(crate) const YOUNG_BYTES: usize = Border::bytes(WIDTH_YOUNG);

/// The common prefix of border and interior nodes: a version word.
#[repr(C)]
pub(crate) struct Node {
    pub(crate) version: NodeLock,
}

/// The header of a border node; [`BorderRef::entry`] reaches the entries.
#[repr(C, align(64))]
pub(crate) struct Border {
    pub(crate) version: NodeLock,
    permutation: AtomicU64,
    codes: [AtomicU8; SLOTS_MAX],
    width: u8,
    next: AtomicPtr<Border>,
    prev: AtomicPtr<Border>,
    parent: AtomicPtr<Interior>,
    low: u64,
}

/// One slot of a border node.
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) slice: AtomicU64,
    pub(crate) link: AtomicPtr<u8>,
}

/// An interior node.
#[repr(C, align(64))]
pub(crate) struct Interior {
    pub(crate) version: NodeLock,
    keys: [AtomicU64; WIDTH],
    children: [AtomicPtr<Node>; WIDTH + 1],
    parent: AtomicPtr<Interior>,
    count: AtomicUsize,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Border>() == 64 && size_of::<Entry>() == 16);
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(std::mem::offset_of!(Interior, parent) == INTERIOR_READ_BYTES);
// What is searched as whole lines.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    std::mem::offset_of!(Interior, keys) == 8
        && std::mem::offset_of!(Interior, children) == 128
        && std::mem::offset_of!(Entry, slice) == 0
        && Border::bytes(WIDTH) == 5 * 64
);
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    INTERIOR_BYTES > Border::bytes(WIDTH),
    "classes of their own"
);

/// A node of either kind.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'g>(NonNull<Node>, PhantomData<&'g Node>);

/// A border node.
#[derive(Clone, Copy)]
pub(crate) struct BorderRef<'g>(NonNull<Border>, PhantomData<&'g Border>);

/// An interior node.
#[derive(Clone, Copy)]
pub(crate) struct InteriorRef<'g>(NonNull<Interior>, PhantomData<&'g Interior>);

impl PartialEq for NodeRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl PartialEq for BorderRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Deref for NodeRef<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        // SAFETY: references are made of live nodes only and outlive no pin (M1).
        unsafe { self.0.as_ref() }
    }
}

impl Deref for BorderRef<'_> {
    type Target = Border;

    #[inline]
    fn deref(&self) -> &Border {
        // SAFETY: as for `NodeRef` (M1).
        unsafe { self.0.as_ref() }
    }
}

impl Deref for InteriorRef<'_> {
    type Target = Interior;

    #[inline]
    fn deref(&self) -> &Interior {
        // SAFETY: as for `NodeRef` (M1).
        unsafe { self.0.as_ref() }
    }
}

/// Tells the kind of the node behind a version word.
pub(crate) enum Either<'g> {
    Border(BorderRef<'g>),
    Interior(InteriorRef<'g>),
}

impl<'g> NodeRef<'g> {
    /// # Safety
    /// `pointer` leads to a node that lives as long as `'g` (M1, M2).
    #[inline]
    pub(crate) unsafe fn from_raw(pointer: NonNull<Node>, _: Guard<'g>) -> Self {
        Self(pointer, PhantomData)
    }

    /// The root of a layer, as a LAYER entry's link gives it.
    ///
    /// # Safety
    /// `link` was loaded from such an entry under a validated version (M2).
    #[inline]
    pub(crate) unsafe fn from_link(link: *mut u8, _: Guard<'g>) -> Self {
        let root = NonNull::new(link).expect("a layer has a root");
        Self(root.cast(), PhantomData)
    }

    #[inline]
    pub(crate) fn pointer(self) -> NonNull<Node> {
        self.0
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Node {
        self.0.as_ptr()
    }

    /// The node by its kind, which never changes.
    #[inline]
    pub(crate) fn either(self) -> Either<'g> {
        self.either_at(self.version.peek())
    }

    /// Like [`Self::either`], from any version the node has had.
    #[inline]
    pub(crate) fn either_at(self, version: NodeVersion) -> Either<'g> {
        if version.is_border() {
            Either::Border(BorderRef(self.0.cast(), PhantomData))
        } else {
            Either::Interior(InteriorRef(self.0.cast(), PhantomData))
        }
    }

    /// Fetches the lines of a full-size node all at once (§4.2).
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch_lines(self.0.as_ptr().cast(), Border::bytes(WIDTH));
    }

    /// The parent, null for a root.
    pub(crate) fn parent(self) -> Option<InteriorRef<'g>> {
        let parent = match self.either() {
            Either::Border(border) => border.parent.load(Ordering::Acquire),
            Either::Interior(interior) => interior.parent.load(Ordering::Acquire),
        };
        NonNull::new(parent).map(|parent| InteriorRef(parent, PhantomData))
    }

    /// Sets the parent; the caller owns the parent's lock, or nobody sees the node yet (M6).
    pub(crate) fn set_parent(self, parent: InteriorRef<'g>) {
        // Release: a thread that reaches the parent through this pointer sees it initialised.
        match self.either() {
            Either::Border(border) => border.parent.store(parent.0.as_ptr(), Ordering::Release),
            Either::Interior(interior) => {
                interior.parent.store(parent.0.as_ptr(), Ordering::Release);
            }
        }
    }

    /// Locks the parent (figure 4, `lockedparent`); `None` for a root. The caller owns this node.
    pub(crate) fn locked_parent(self) -> Option<InteriorRef<'g>> {
        loop {
            let parent = self.parent()?;
            parent.version.lock();
            if self.parent().is_some_and(|now| now.0 == parent.0) {
                return Some(parent);
            }
            parent.version.unlock();
        }
    }
}

impl Border {
    /// Bytes of a node of this width: whole lines, which the pool aligns (P2 alignment).
    pub(crate) const fn bytes(width: usize) -> usize {
        (size_of::<Self>() + width * size_of::<Entry>()).next_multiple_of(align_of::<Self>())
    }

    #[inline]
    pub(crate) fn width(&self) -> usize {
        usize::from(self.width)
    }

    /// The node's lower bound (M3).
    #[inline]
    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    #[inline]
    pub(crate) fn permutation(&self) -> Permutation {
        // Acquire pairs with `set_permutation`: the slots that it lists are seen written.
        Permutation::from_bits(self.permutation.load(Ordering::Acquire))
    }

    /// Makes the slots that it lists visible in one step (§4.6.2). The caller owns the lock.
    #[inline]
    pub(crate) fn set_permutation(&self, permutation: Permutation) {
        debug_assert!(permutation.count() <= self.width());
        // All of them in the node.
        debug_assert!(permutation.slots().all(|slot| slot < self.width()));
        // Release pairs with `permutation`.
        self.permutation
            .store(permutation.to_bits(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn code(&self, slot: usize) -> u8 {
        // Acquire pairs with `set_code`: after LAYER the layer's link is seen (§4.6.3).
        self.codes[slot].load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_code(&self, slot: usize, code: u8) {
        // Release pairs with `code`.
        self.codes[slot].store(code, Ordering::Release);
    }
}

/// An entry to be put into a border node.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry {
    pub(crate) slice: u64,
    pub(crate) code: u8,
    pub(crate) link: *mut u8,
}

impl<'g> BorderRef<'g> {
    /// A node that nobody can see yet.
    pub(crate) fn allocate(
        pool: &mut Pool,
        _: Guard<'g>,
        width: usize,
        version: NodeLock,
        low: u64,
    ) -> Self {
        let pointer = pool.allocate(Border::bytes(width)).cast::<Border>();
        let header = Border {
            version,
            permutation: AtomicU64::new(Permutation::EMPTY.to_bits()),
            codes: std::array::from_fn(|_| AtomicU8::new(CODE_NEVER)),
            width: width as u8,
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
            parent: AtomicPtr::new(ptr::null_mut()),
            low,
        };
        // SAFETY: the block is long enough, aligned, and ours alone.
        unsafe { pointer.write(header) };
        let node = Self(pointer, PhantomData);
        for slot in 0..width {
            let entry = Entry {
                slice: AtomicU64::new(0),
                link: AtomicPtr::new(ptr::null_mut()),
            };
            // SAFETY: within the block, see `Border::bytes`.
            unsafe { node.entry_ptr(slot).write(entry) };
        }
        node
    }

    #[inline]
    pub(crate) fn node(self) -> NodeRef<'g> {
        NodeRef(self.0.cast(), PhantomData)
    }

    /// # Safety
    /// `pointer` leads to a border node that lives as long as `'g` (M1).
    #[inline]
    pub(crate) unsafe fn from_raw(pointer: NonNull<Border>, _: Guard<'g>) -> Self {
        Self(pointer, PhantomData)
    }

    #[inline]
    pub(crate) fn pointer(self) -> NonNull<Border> {
        self.0
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Border {
        self.0.as_ptr()
    }

    #[inline]
    fn entry_ptr(self, slot: usize) -> *mut Entry {
        debug_assert!(slot < self.width());
        let first = self.0.as_ptr().wrapping_add(1).cast::<Entry>();
        first.wrapping_add(slot)
    }

    /// The slot's slice and link.
    #[inline]
    pub(crate) fn entry(self, slot: usize) -> &'g Entry {
        // SAFETY: the block holds `width` initialised entries after its header, and lives (M1).
        unsafe { &*self.entry_ptr(slot) }
    }

    #[inline]
    pub(crate) fn slice(self, slot: usize) -> u64 {
        self.entry(slot).slice.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn link(self, slot: usize) -> *mut u8 {
        // Acquire pairs with `set_link`: the block or layer behind it is seen initialised.
        self.entry(slot).link.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_link(self, slot: usize, link: *mut u8) {
        // Release pairs with `link`.
        self.entry(slot).link.store(link, Ordering::Release);
    }

    /// Fills a slot that no permutation lists. The caller owns the lock (M7).
    #[inline]
    pub(crate) fn fill(self, slot: usize, entry: NewEntry) {
        self.entry(slot).slice.store(entry.slice, Ordering::Relaxed);
        self.set_code(slot, entry.code);
        self.set_link(slot, entry.link);
    }

    /// Prefetches what a node of few slots leads to, as far as it is known without validation: a
    /// hint.
    #[inline]
    pub(crate) fn prefetch_links(self, ask: impl Fn(*const u8)) {
        let permutation = self.permutation();
        for position in 0..permutation.count().min(WIDTH_YOUNG) {
            ask(self.link(permutation.slot(position)));
        }
    }

    /// Prefetches what is changed when this node leaves the tree.
    pub(crate) fn prefetch_around(self) {
        for sibling in [&self.prev, &self.next] {
            prefetch_line(sibling.load(Ordering::Relaxed).cast());
        }
        prefetch_lines(
            self.parent.load(Ordering::Relaxed).cast(),
            size_of::<Interior>(),
        );
    }

    /// The right sibling.
    #[inline]
    pub(crate) fn next(self) -> Option<Self> {
        let next = NonNull::new(self.next.load(Ordering::Acquire))?;
        Some(Self(next, PhantomData))
    }

    /// Sets the right sibling; the caller owns this node's lock.
    pub(crate) fn set_next(self, next: Option<Self>) {
        let next = next.map_or(ptr::null_mut(), Self::as_ptr);
        self.next.store(next, Ordering::Release);
    }

    /// The left sibling.
    pub(crate) fn prev(self) -> Option<Self> {
        let prev = NonNull::new(self.prev.load(Ordering::Acquire))?;
        Some(Self(prev, PhantomData))
    }

    /// Sets the left sibling; the caller owns the lock of the left sibling, old or new.
    pub(crate) fn set_prev(self, prev: Self) {
        self.prev.store(prev.as_ptr(), Ordering::Release);
    }

    /// The position of `(slice, rank)` in `permutation`, or the one it would take. A linear search
    /// (§4.8).
    #[inline]
    pub(crate) fn search(
        self,
        permutation: Permutation,
        slice: u64,
        rank: u8,
    ) -> Result<usize, usize> {
        if let Some(slots) = self.slots_by_lanes(slice)
            && let Some((position, _)) = self.position_among(slots, permutation, rank)
        {
            return Ok(position);
        }
        self.search_from(0, permutation, slice, rank)
    }

    /// The slot that `permutation` lists for `(slice, rank)`, found in the same way.
    #[inline]
    pub(crate) fn slot_of(self, permutation: Permutation, slice: u64, rank: u8) -> Option<usize> {
        if let Some(slots) = self.slots_by_lanes(slice) {
            return self.position_among(slots, permutation, rank).map(|it| it.1);
        }
        for slot in permutation.slots() {
            let found = self.slice(slot);
            if found < slice {
                continue;
            }
            if found > slice {
                return None;
            }
            if rank_of_code(self.code(slot)) == rank {
                return Some(slot);
            }
        }
        None
    }

    /// The slots with this slice, as bits, listed or not, where lines are searched as a whole. Each
    /// slice is loaded as by [`Self::slice`].
    #[inline]
    fn slots_by_lanes(self, slice: u64) -> Option<u32> {
        if MODEL || self.width() != WIDTH || !lanes::are_there() {
            return None;
        }
        // SAFETY: the entries of a full-size node and their padding are four lines, and the node
        // lives (M1).
        let which = unsafe { lanes::which_even(self.0.as_ptr().wrapping_add(1).cast(), slice) };
        // The last one is padding.
        Some(which & ((1 << WIDTH) - 1))
    }

    /// The position and the slot that `permutation` lists for this rank, of some slots.
    #[inline]
    fn position_among(
        self,
        mut slots: u32,
        permutation: Permutation,
        rank: u8,
    ) -> Option<(usize, usize)> {
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            let position = permutation.position_of(slot);
            if position < permutation.count() && rank_of_code(self.code(slot)) == rank {
                return Some((position, slot));
            }
            slots &= slots - 1;
        }
        None
    }

    /// Like [`Self::search`], for a node that is in the cache: [`halving`] to the slice.
    #[inline]
    pub(crate) fn search_fetched(
        self,
        permutation: Permutation,
        slice: u64,
        rank: u8,
    ) -> Result<usize, usize> {
        let first = halving(permutation.count(), |position| {
            self.slice(permutation.slot(position)) < slice
        });
        self.search_from(first, permutation, slice, rank)
    }

    #[inline]
    fn search_from(
        self,
        first: usize,
        permutation: Permutation,
        slice: u64,
        rank: u8,
    ) -> Result<usize, usize> {
        for position in first..permutation.count() {
            let slot = permutation.slot(position);
            let found = self.slice(slot);
            if found < slice {
                continue;
            }
            if found > slice {
                return Err(position);
            }
            let found_rank = rank_of_code(self.code(slot));
            if found_rank >= rank {
                return if found_rank == rank {
                    Ok(position)
                } else {
                    Err(position)
                };
            }
        }
        Err(permutation.count())
    }

    /// Frees the node's memory.
    ///
    /// # Safety
    /// Nobody can reach the node (M1), and it is freed once.
    pub(crate) unsafe fn free(self, pool: &mut Pool) {
        let bytes = Border::bytes(self.width());
        // SAFETY: allocated with this length by `allocate`; the caller vouches for the rest.
        unsafe { pool.free(self.0.cast(), bytes) };
    }
}

impl<'g> InteriorRef<'g> {
    /// A node without keys that nobody can see yet.
    pub(crate) fn allocate(pool: &mut Pool, _: Guard<'g>, version: NodeLock) -> Self {
        let pointer = pool.allocate(INTERIOR_BYTES).cast::<Interior>();
        let node = Interior {
            version,
            parent: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            keys: std::array::from_fn(|_| AtomicU64::new(KEY_NONE)),
            children: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        };
        // SAFETY: the block is long enough, aligned, and ours alone.
        unsafe { pointer.write(node) };
        Self(pointer, PhantomData)
    }

    #[inline]
    pub(crate) fn node(self) -> NodeRef<'g> {
        NodeRef(self.0.cast(), PhantomData)
    }

    /// Separator keys; children are one more.
    #[inline]
    pub(crate) fn count(self) -> usize {
        self.count.load(Ordering::Relaxed).min(WIDTH)
    }

    pub(crate) fn set_count(self, count: usize) {
        debug_assert!(count <= WIDTH);
        for vacant in count..self.count() {
            self.set_key(vacant, KEY_NONE);
        }
        self.count.store(count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn key(self, index: usize) -> u64 {
        self.keys[index].load(Ordering::Relaxed)
    }

    pub(crate) fn set_key(self, index: usize, key: u64) {
        self.keys[index].store(key, Ordering::Relaxed);
    }

    /// The child that leads to `slice`, provided the node is unchanged since `version`. A linear
    /// search (§4.8). Also prefetches the border node `BESIDE` places away.
    #[inline]
    pub(crate) fn child_for<const BESIDE: isize>(
        self,
        slice: u64,
        version: NodeVersion,
    ) -> Option<NodeRef<'g>> {
        let index = if slice == KEY_NONE {
            self.count()
        } else if let Some(index) = self.index_by_lanes(slice) {
            index
        } else {
            (0..WIDTH)
                .take_while(|index| slice >= self.key(*index))
                .count()
        };
        let child = self.validated_child(index, version);
        if BESIDE != 0
            && version.is_above_border()
            && let Some(beside) = self.children.get(index.wrapping_add_signed(BESIDE))
        {
            // A hint: the place may have no child, or none any more.
            let beside = beside.load(Ordering::Relaxed);
            prefetch_lines(beside.cast(), Border::bytes(WIDTH));
        }
        child
    }

    /// The index of the child that leads to `slice`, where lines are searched as a whole. Each key
    /// is loaded as by [`Self::key`].
    #[inline]
    fn index_by_lanes(self, slice: u64) -> Option<usize> {
        if MODEL || !lanes::are_there() {
            return None;
        }
        // SAFETY: the keys follow the version in two lines, and the node lives (M1).
        Some(unsafe { lanes::leading_up_to(self.0.as_ptr().cast(), slice) })
    }

    /// Like [`Self::child_for`], for a node that is in the cache: [`halving`].
    #[inline]
    pub(crate) fn fetched_child_for(self, slice: u64, version: NodeVersion) -> Option<NodeRef<'g>> {
        let index = if slice == KEY_NONE {
            self.count()
        } else {
            halving(WIDTH, |index| slice >= self.key(index))
        };
        self.validated_child(index, version)
    }

    /// The child at `index`, provided the node is unchanged since `version` (M2).
    #[inline]
    pub(crate) fn validated_child(self, index: usize, version: NodeVersion) -> Option<NodeRef<'g>> {
        let child = self.children[index].load(Ordering::Acquire);
        prefetch_child(child, version);
        if !self.version.unchanged_since(version) {
            return None;
        }
        let child = NonNull::new(child).expect("a node has one child more than keys");
        Some(NodeRef(child, PhantomData))
    }

    /// The child at `index`; the caller owns the lock, or nobody else uses the tree.
    pub(crate) fn child(self, index: usize) -> NodeRef<'g> {
        debug_assert!(index <= self.count());
        let child = NonNull::new(self.children[index].load(Ordering::Acquire));
        NodeRef(
            child.expect("a node has one child more than keys"),
            PhantomData,
        )
    }

    pub(crate) fn set_child(self, index: usize, child: NodeRef<'g>) {
        // Release: a thread that follows the pointer sees the child initialised.
        self.children[index].store(child.as_ptr(), Ordering::Release);
    }

    /// The index of `child`; the caller owns the lock.
    pub(crate) fn index_of(self, child: NodeRef<'g>) -> usize {
        (0..=self.count())
            .find(|index| self.children[*index].load(Ordering::Relaxed) == child.as_ptr())
            .expect("a node's parent has the node as a child")
    }

    /// Frees the node's memory.
    ///
    /// # Safety
    /// Nobody can reach the node (M1), and it is freed once.
    pub(crate) unsafe fn free(self, pool: &mut Pool) {
        // SAFETY: allocated with this length by `allocate`; the caller vouches for the rest.
        unsafe { pool.free(self.0.cast(), INTERIOR_BYTES) };
    }
}

/// Prefetches the lines that a descent may read of a child; `parent` is the version of its parent.
/// An interior node's last line is not needed.
#[inline]
fn prefetch_child(child: *const Node, parent: NodeVersion) {
    prefetch_lines(child.cast(), INTERIOR_READ_BYTES);
    // Without a branch: above interior nodes the first line is prefetched again.
    let more = if parent.is_above_border() {
        INTERIOR_READ_BYTES
    } else {
        0
    };
    prefetch_line(child.cast::<u8>().wrapping_add(more));
}

/// How many of the first `count` places, sorted, are `before` the sought one: a binary search of a
/// fixed number of steps whose outcomes are added, not branched on.
#[inline]
fn halving(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let mut index = 0;
    for step in [8, 4, 2, 1] {
        let place = index + step - 1;
        index += if place < count && before(place) {
            step
        } else {
            0
        };
    }
    index
}

const _: () = assert!(WIDTH < 16, "`halving` tells sixteen places apart");

/// A new root border node of a layer, with room for `width` entries.
pub(crate) fn new_root<'g>(pool: &mut Pool, guard: Guard<'g>, width: usize) -> BorderRef<'g> {
    BorderRef::allocate(pool, guard, width, NodeLock::new(NodeKind::Border, true), 0)
}

/// Reclaims a retired node.
///
/// # Safety
/// `pointer` leads to a node that nobody can reach (M1); it is reclaimed once.
pub(crate) unsafe fn reclaim_node(pointer: NonNull<u8>, pool: &mut Pool) {
    // SAFETY: used within this call only, which owns the node.
    let guard = unsafe { Guard::new() };
    // SAFETY: the caller owns the node.
    let node = unsafe { NodeRef::from_raw(pointer.cast(), guard) };
    match node.either() {
        // SAFETY: the caller owns the node.
        Either::Border(border) => unsafe { border.free(pool) },
        // SAFETY: the caller owns the node.
        Either::Interior(interior) => unsafe { interior.free(pool) },
    }
}
