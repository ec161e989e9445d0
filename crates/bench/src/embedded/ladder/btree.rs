//! A concurrent B+-tree of fanout 15 with keys inline (§6.2, `B-tree`, `+Prefetch`, `+Permuter`).
//!
//! `WORDS` words of 8 bytes are a key; `PREFETCH` asks for all lines of a node before it is
//! searched; with `PERMUTE` a leaf's slots are ordered by one word, so that an insert moves
//! nothing; without `SHARED` there are no locks and no version checks (one thread only, §6.4).
//!
//! A node's version word is a lock bit, a dirty bit and a counter. A writer locks, and sets the
//! dirty bit before it changes what a reader could not make sense of; unlocking a dirty node raises
//! the counter. Readers ignore the lock bit, wait while a node is dirty, and start again when the
//! counter has changed. Nodes that are full are split on the way down, so that a parent has room.

use std::array;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::super::targets::{Target, Worker};
use super::arena::{Arena, Reserve};
use super::words;

const KEYS: usize = 15;
const LOCKED: u32 = 1;
const DIRTY: u32 = 2;
const COUNT: u32 = 4;

/// A word of this many bytes further is on another cache line.
const LINE_WORDS: usize = 8;

#[repr(align(64))]
struct Node<const WORDS: usize> {
    version: AtomicU32,
    leaf: AtomicU32,
    /// Keys in use; of a permuted leaf the low bits of `permutation`.
    count: AtomicU32,
    /// Four bits of count, then the slots in key order, four bits each.
    permutation: AtomicU64,
    keys: [[AtomicU64; KEYS]; WORDS],
    /// Values of a leaf, children of an interior node (one more than keys).
    slots: [AtomicU64; KEYS + 1],
}

impl<const WORDS: usize> Default for Node<WORDS> {
    fn default() -> Self {
        Self {
            version: AtomicU32::new(0),
            leaf: AtomicU32::new(0),
            count: AtomicU32::new(0),
            permutation: AtomicU64::new(0),
            keys: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
            slots: array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl<const WORDS: usize> Node<WORDS> {
    fn key(&self, slot: usize) -> [u64; WORDS] {
        array::from_fn(|word| self.keys[word][slot].load(Ordering::Relaxed))
    }

    fn set_key(&self, slot: usize, key: [u64; WORDS]) {
        for (word, part) in self.keys.iter().zip(key) {
            word[slot].store(part, Ordering::Relaxed);
        }
    }

    fn slot(&self, slot: usize) -> u64 {
        self.slots[slot].load(Ordering::Relaxed)
    }

    fn set_slot(&self, slot: usize, to: u64) {
        self.slots[slot].store(to, Ordering::Relaxed);
    }

    fn is_leaf(&self) -> bool {
        self.leaf.load(Ordering::Relaxed) == 1
    }

    /// One load per line, which the processor overlaps.
    fn touch(&self) {
        for word in self
            .keys
            .iter()
            .flat_map(|keys| keys.iter().step_by(LINE_WORDS))
        {
            black_box(word.load(Ordering::Relaxed));
        }
        for slot in self.slots.iter().step_by(LINE_WORDS) {
            black_box(slot.load(Ordering::Relaxed));
        }
    }

    /// Announces a change that readers must not see halves of.
    fn dirty(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | DIRTY, Ordering::Relaxed);
        // Partner of the Acquire fence in `unchanged`: who sees a later store sees the dirty bit.
        fence(Ordering::Release);
    }

    fn unlock(&self) {
        let version = self.version.load(Ordering::Relaxed);
        let next = if version & DIRTY == 0 {
            version & !LOCKED
        } else {
            (version & !(LOCKED | DIRTY)).wrapping_add(COUNT)
        };
        // Release: partner of the Acquires in `stable` and `lock`.
        self.version.store(next, Ordering::Release);
    }
}

/// The order of a node's keys as one word.
#[derive(Clone, Copy)]
struct Permutation(u64);

impl Permutation {
    const SORTED: u64 = 0xedc_ba98_7654_3210;

    fn of_first(count: usize) -> Self {
        Self((Self::SORTED << 4) | count as u64)
    }

    fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    fn slot(self, rank: usize) -> usize {
        (self.0 >> (4 * rank + 4) & 15) as usize
    }

    /// Takes a free slot and puts it at `rank`.
    fn insert(self, rank: usize) -> (Self, usize) {
        let free = self.slot(self.len()) as u64;
        let slots = self.0 >> 4;
        let low = slots & ((1 << (4 * rank)) - 1);
        let between_bits = 4 * (self.len() - rank);
        let between = slots >> (4 * rank) & ((1 << between_bits) - 1);
        let high = if self.len() + 1 < KEYS {
            slots >> (4 * (self.len() + 1)) << (4 * (self.len() + 1))
        } else {
            0
        };
        let slots = low | free << (4 * rank) | between << (4 * (rank + 1)) | high;
        (Self(slots << 4 | (self.len() as u64 + 1)), free as usize)
    }

    /// Keeps the first `count` slots.
    fn truncated(self, count: usize) -> Self {
        Self(self.0 & !15 | count as u64)
    }
}

/// The tree.
pub(in super::super) struct BTree<
    const WORDS: usize,
    const PREFETCH: bool,
    const PERMUTE: bool,
    const SHARED: bool,
> {
    arena: Arena<Node<WORDS>>,
    root: AtomicU32,
}

/// One thread's access.
pub(in super::super) struct BTreeWorker<
    't,
    const WORDS: usize,
    const PREFETCH: bool,
    const PERMUTE: bool,
    const SHARED: bool,
> {
    tree: &'t BTree<WORDS, PREFETCH, PERMUTE, SHARED>,
    reserve: Reserve,
}

/// A reader was overtaken and has to begin again.
struct Changed;

/// A node as a descent saw it.
struct Seen<'t, const WORDS: usize> {
    index: u32,
    node: &'t Node<WORDS>,
    version: u32,
}

impl<const WORDS: usize, const PREFETCH: bool, const PERMUTE: bool, const SHARED: bool> Target
    for BTree<WORDS, PREFETCH, PERMUTE, SHARED>
{
    type Worker<'t> = BTreeWorker<'t, WORDS, PREFETCH, PERMUTE, SHARED>;

    fn new() -> Self {
        let arena = Arena::<Node<WORDS>>::new();
        let root = arena.allocate(&mut Reserve::default());
        let node = arena.get(root);
        node.leaf.store(1, Ordering::Relaxed);
        node.permutation
            .store(Permutation::of_first(0).0, Ordering::Relaxed);
        Self {
            arena,
            root: AtomicU32::new(root),
        }
    }

    fn worker(&self) -> Self::Worker<'_> {
        BTreeWorker {
            tree: self,
            reserve: Reserve::default(),
        }
    }
}

impl<const WORDS: usize, const PREFETCH: bool, const PERMUTE: bool, const SHARED: bool>
    BTree<WORDS, PREFETCH, PERMUTE, SHARED>
{
    /// The node when it is not dirty.
    fn stable(&self, index: u32) -> Seen<'_, WORDS> {
        let node = self.arena.get(index);
        let mut version = 0;
        if SHARED {
            loop {
                // Acquire: partner of the Release in `unlock`.
                version = node.version.load(Ordering::Acquire);
                if version & DIRTY == 0 {
                    break;
                }
                spin_loop();
            }
        }
        if PREFETCH {
            node.touch();
        }
        Seen {
            index,
            node,
            version,
        }
    }

    fn unchanged(seen: &Seen<'_, WORDS>) -> bool {
        if !SHARED {
            return true;
        }
        // Partner of the Release fence in `dirty`.
        fence(Ordering::Acquire);
        let now = seen.node.version.load(Ordering::Relaxed);
        now & !LOCKED == seen.version & !LOCKED
    }

    /// Locks the node if it is as it was seen.
    fn lock(seen: &Seen<'_, WORDS>) -> bool {
        if !SHARED {
            return true;
        }
        let free = seen.version & !LOCKED;
        // Acquire: partner of the Release in `unlock`.
        seen.node
            .version
            .compare_exchange(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn unlock(node: &Node<WORDS>) {
        if SHARED {
            node.unlock();
        }
    }

    fn permutation(node: &Node<WORDS>) -> Permutation {
        if PERMUTE && node.is_leaf() {
            // Acquire: partner of the Release in `insert`; sees the slots' keys.
            Permutation(node.permutation.load(Ordering::Acquire))
        } else {
            let count = node.count.load(Ordering::Relaxed) as usize;
            Permutation::of_first(count.min(KEYS))
        }
    }

    /// The rank of the first key above `key`, and whether the one before equals it.
    fn search(node: &Node<WORDS>, order: Permutation, key: [u64; WORDS]) -> (usize, bool) {
        for rank in 0..order.len() {
            let other = node.key(order.slot(rank));
            if other > key {
                return (rank, rank > 0 && node.key(order.slot(rank - 1)) == key);
            }
        }
        let count = order.len();
        (count, count > 0 && node.key(order.slot(count - 1)) == key)
    }

    /// The root; `None` when it was replaced meanwhile.
    fn start(&self) -> Option<Seen<'_, WORDS>> {
        // Acquire: partner of the Release in `split`.
        let seen = self.stable(self.root.load(Ordering::Acquire));
        (self.root.load(Ordering::Acquire) == seen.index).then_some(seen)
    }

    /// The child for `key`; `None` when the node changed meanwhile.
    fn child<'t>(&'t self, seen: &Seen<'t, WORDS>, key: [u64; WORDS]) -> Option<Seen<'t, WORDS>> {
        let (rank, _) = Self::search(seen.node, Self::permutation(seen.node), key);
        let index = seen.node.slot(rank) as u32;
        if !Self::unchanged(seen) {
            return None;
        }
        let child = self.stable(index);
        Self::unchanged(seen).then_some(child)
    }

    fn find(&self, key: [u64; WORDS]) -> Result<Option<u64>, Changed> {
        let mut seen = self.start().ok_or(Changed)?;
        while !seen.node.is_leaf() {
            seen = self.child(&seen, key).ok_or(Changed)?;
        }
        let order = Self::permutation(seen.node);
        let (rank, found) = Self::search(seen.node, order, key);
        let value = found.then(|| seen.node.slot(order.slot(rank - 1)));
        Self::unchanged(&seen).then_some(value).ok_or(Changed)
    }

    /// `None` when it has to be tried again.
    fn try_put(&self, reserve: &mut Reserve, key: [u64; WORDS], value: u64) -> Option<()> {
        let mut parent: Option<Seen<'_, WORDS>> = None;
        let mut seen = self.start()?;
        loop {
            if Self::permutation(seen.node).len() == KEYS {
                if seen.node.is_leaf() && self.replace(&seen, key, value)? {
                    return Some(());
                }
                self.make_room(reserve, parent.as_ref(), &seen);
                return None;
            }
            if seen.node.is_leaf() {
                break;
            }
            let child = self.child(&seen, key)?;
            parent = Some(std::mem::replace(&mut seen, child));
        }
        if !Self::lock(&seen) {
            spin_loop();
            return None;
        }
        let done = Self::insert(seen.node, key, value);
        Self::unlock(seen.node);
        done
    }

    /// Replaces the value of a key that is there; whether it is.
    fn replace(&self, seen: &Seen<'_, WORDS>, key: [u64; WORDS], value: u64) -> Option<bool> {
        if !Self::lock(seen) {
            spin_loop();
            return None;
        }
        let order = Self::permutation(seen.node);
        let (rank, found) = Self::search(seen.node, order, key);
        if found {
            seen.node.set_slot(order.slot(rank - 1), value);
        }
        Self::unlock(seen.node);
        Some(found)
    }

    /// Puts into a locked leaf; `None` when it has become full.
    fn insert(node: &Node<WORDS>, key: [u64; WORDS], value: u64) -> Option<()> {
        let order = Self::permutation(node);
        let (rank, found) = Self::search(node, order, key);
        if found {
            node.set_slot(order.slot(rank - 1), value);
            return Some(());
        }
        if order.len() == KEYS {
            return None;
        }
        if PERMUTE {
            let (order, slot) = order.insert(rank);
            node.set_key(slot, key);
            node.set_slot(slot, value);
            // Release: publishes the slot to the Acquire in `permutation`.
            node.permutation.store(order.0, Ordering::Release);
        } else {
            Self::shift_in(node, rank, key, rank, value);
        }
        Some(())
    }

    /// Moves the keys from `rank` and the slots from `at` up by one and writes the gaps.
    fn shift_in(node: &Node<WORDS>, rank: usize, key: [u64; WORDS], at: usize, slot: u64) {
        if SHARED {
            node.dirty();
        }
        let count = node.count.load(Ordering::Relaxed) as usize;
        for from in (rank..count).rev() {
            node.set_key(from + 1, node.key(from));
        }
        let slots = if node.is_leaf() { count } else { count + 1 };
        for from in (at..slots).rev() {
            node.set_slot(from + 1, node.slot(from));
        }
        node.set_key(rank, key);
        node.set_slot(at, slot);
        node.count.store(count as u32 + 1, Ordering::Relaxed);
    }

    /// Splits a full node if it and its parent are as they were seen.
    fn make_room(
        &self,
        reserve: &mut Reserve,
        parent: Option<&Seen<'_, WORDS>>,
        seen: &Seen<'_, WORDS>,
    ) {
        if let Some(parent) = parent
            && !Self::lock(parent)
        {
            return spin_loop();
        }
        if Self::lock(seen) {
            if parent.is_some() || self.root.load(Ordering::Relaxed) == seen.index {
                self.split(reserve, parent.map(|parent| parent.node), seen);
            }
            Self::unlock(seen.node);
        }
        if let Some(parent) = parent {
            Self::unlock(parent.node);
        }
    }

    fn split(&self, reserve: &mut Reserve, parent: Option<&Node<WORDS>>, seen: &Seen<'_, WORDS>) {
        let left = seen.node;
        let order = Self::permutation(left);
        let index = self.arena.allocate(reserve);
        let right = self.arena.get(index);
        let middle = KEYS / 2;
        let separator = left.key(order.slot(middle));
        if SHARED {
            left.dirty();
        }
        let leaf = left.is_leaf();
        // A leaf's separator is the right node's first key; an interior one's moves up.
        let first = if leaf { middle } else { middle + 1 };
        let moved = KEYS - first;
        for rank in first..KEYS {
            right.set_key(rank - first, left.key(order.slot(rank)));
        }
        let slots = if leaf { KEYS } else { KEYS + 1 };
        for rank in first..slots {
            let from = if leaf { order.slot(rank) } else { rank };
            right.set_slot(rank - first, left.slot(from));
        }
        right.leaf.store(u32::from(leaf), Ordering::Relaxed);
        right.count.store(moved as u32, Ordering::Relaxed);
        right
            .permutation
            .store(Permutation::of_first(moved).0, Ordering::Relaxed);
        left.count.store(middle as u32, Ordering::Relaxed);
        left.permutation
            .store(order.truncated(middle).0, Ordering::Relaxed);
        if let Some(parent) = parent {
            let (rank, _) = Self::search(parent, Self::permutation(parent), separator);
            Self::shift_in(parent, rank, separator, rank + 1, u64::from(index));
            return;
        }
        let top = self.arena.allocate(reserve);
        let root = self.arena.get(top);
        root.set_key(0, separator);
        root.set_slot(0, u64::from(seen.index));
        root.set_slot(1, u64::from(index));
        root.count.store(1, Ordering::Relaxed);
        // Release: partner of the Acquires in `start`. The left node is still dirty, so whoever
        // reads it from now on finds that it is no root any more.
        self.root.store(top, Ordering::Release);
    }
}

impl<const WORDS: usize, const PREFETCH: bool, const PERMUTE: bool, const SHARED: bool> Worker
    for BTreeWorker<'_, WORDS, PREFETCH, PERMUTE, SHARED>
{
    fn put(&mut self, key: &[u8], value: u64) {
        let key = words::<WORDS>(key);
        while self.tree.try_put(&mut self.reserve, key, value).is_none() {}
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let key = words::<WORDS>(key);
        loop {
            if let Ok(answer) = self.tree.find(key) {
                return answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_keeps_every_slot_once() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..200 {
            let mut order = Permutation::of_first(0);
            let mut model = Vec::new();
            for count in 0..KEYS {
                let rank = random.usize(..=count);
                let (next, slot) = order.insert(rank);
                model.insert(rank, slot);
                order = next;
                let slots: Vec<_> = (0..order.len()).map(|rank| order.slot(rank)).collect();
                assert_eq!(slots, model);
            }
            model.sort_unstable();
            assert_eq!(model, (0..KEYS).collect::<Vec<_>>());
        }
    }
}
