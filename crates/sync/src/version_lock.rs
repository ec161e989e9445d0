//! The version word of an optimistic node: a lock, dirty marks and two counters in 64 bits.
//!
//! Follows Masstree §4.5–4.6 (figures 3 and 4). Departures: the word has 64 bits, as the paper's
//! footnote 3 suggests, so the counters do not wrap while a reader is delayed. An unlock counts an
//! insert *and* a split when both were marked. The counters of a new sibling begin at zero instead
//! of those of the splitting node (figure 5), since no reader holds a version of a node that did
//! not exist.
//!
//! | bits | field | set by | read by |
//! |---|---|---|---|
//! | 0 | locked | [`VersionLock::lock`], cleared by [`VersionLock::unlock`] | writers |
//! | 1 | inserting (dirty) | owner, [`VersionLock::mark_inserting`] | readers, who wait |
//! | 2 | splitting (dirty) | owner, [`VersionLock::mark_splitting`] | readers, who wait |
//! | 3 | deleted, for good | owner, [`VersionLock::mark_deleted`] | readers and writers, who restart |
//! | 4 | root of its tree | owner, [`VersionLock::set_root`] | descents |
//! | 5 | border node | constructor | descents |
//! | 6 | interior node right above border nodes | constructor | descents |
//! | 8–37 | vinsert, +1 per unlock or publish after `mark_inserting` | owner, then | readers |
//! | 38–63 | vsplit, +1 per unlock or publish after `mark_splitting` | owner, then | readers |
//!
//! Invariants:
//! - **L1 owner-writes-word** Only the owner of the lock changes the word, except the locked bit
//!   itself.
//! - **L2** Whatever a reader loaded between [`VersionLock::stable`] and a successful
//!   [`VersionLock::unchanged_since`] belongs to one state of the node, provided its writers marked
//!   the word before they changed anything.
//! - **L3 dirty-never-equal** A dirty or changed word never compares equal to a stable snapshot.
//!   The locked bit is ignored, because a locked node that is not dirty may be read.
//!
//! Deliberately absent: fairness (a waiter tries again after at most a few microseconds, and may
//! find the lock taken again), poisoning, reader counts.

use crate::shim::{AtomicU64, Ordering, Spin, fence};

const LOCKED: u64 = 1;
const INSERTING: u64 = 1 << 1;
const SPLITTING: u64 = 1 << 2;
const DELETED: u64 = 1 << 3;
const ROOT: u64 = 1 << 4;
const BORDER: u64 = 1 << 5;
const ABOVE_BORDER: u64 = 1 << 6;
const DIRTY: u64 = INSERTING | SPLITTING;
const VINSERT_SHIFT: u32 = 8;
const VINSERT_BITS: u32 = 30;
const VINSERT_MASK: u64 = ((1 << VINSERT_BITS) - 1) << VINSERT_SHIFT;
const VSPLIT_SHIFT: u32 = VINSERT_SHIFT + VINSERT_BITS;

const _: () = assert!(VSPLIT_SHIFT + 26 == 64, "the two counters fill the word");

/// Fills freed memory in debug builds; no live version word looks like this.
pub const POISON: u64 = 0xdede_dede_dede_dede;

/// A snapshot of a version word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion(u64);

impl NodeVersion {
    /// Whether somebody is changing the node: what is read of it then belongs together by chance.
    #[inline]
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether the node has left its tree for good.
    #[inline]
    #[must_use]
    pub const fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// Whether the node is the root of its tree.
    #[inline]
    #[must_use]
    pub const fn is_root(self) -> bool {
        self.0 & ROOT != 0
    }

    /// Whether the node is a whole tree: the root, a border node, live and not dirty.
    #[inline]
    #[must_use]
    pub const fn is_lone(self) -> bool {
        self.0 & (DIRTY | DELETED | ROOT | BORDER) == ROOT | BORDER
    }

    /// Whether the node is a border node.
    #[inline]
    #[must_use]
    pub const fn is_border(self) -> bool {
        self.0 & BORDER != 0
    }

    /// Whether the node is an interior one whose children are border nodes.
    #[inline]
    #[must_use]
    pub const fn is_above_border(self) -> bool {
        self.0 & ABOVE_BORDER != 0
    }

    /// The kind of the node whose version this is.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> NodeKind {
        if self.is_border() {
            NodeKind::Border
        } else if self.is_above_border() {
            NodeKind::AboveBorder
        } else {
            NodeKind::Interior
        }
    }

    /// Whether keys may have moved to another node between the two snapshots.
    #[inline]
    #[must_use]
    pub const fn has_split_since(self, earlier: Self) -> bool {
        (self.0 ^ earlier.0) >> VSPLIT_SHIFT != 0
    }
}

/// The initial kind in a version word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A leaf of the tree.
    Border,
    /// A node right above the leaves.
    AboveBorder,
    /// A node further up.
    Interior,
}

impl NodeKind {
    /// The kind of a node with children of this kind.
    #[must_use]
    pub const fn above(self) -> Self {
        match self {
            Self::Border => Self::AboveBorder,
            Self::AboveBorder | Self::Interior => Self::Interior,
        }
    }

    const fn bits(self) -> u64 {
        match self {
            Self::Border => BORDER,
            Self::AboveBorder => ABOVE_BORDER,
            Self::Interior => 0,
        }
    }
}

/// A version word (see the module header).
#[derive(Debug)]
pub struct VersionLock(AtomicU64);

impl VersionLock {
    /// The word of a new, unlocked node that nobody can see yet.
    #[must_use]
    pub fn new(kind: NodeKind, root: bool) -> Self {
        Self(AtomicU64::new(kind.bits() | if root { ROOT } else { 0 }))
    }

    /// The word of a new sibling of a node that its creator holds: locked and splitting, no root.
    #[must_use]
    pub fn new_splitting(kind: NodeKind) -> Self {
        Self(AtomicU64::new(kind.bits() | LOCKED | SPLITTING))
    }

    /// The word of a new node that its creator holds.
    pub(crate) fn new_locked(kind: NodeKind, root: bool) -> Self {
        let root = if root { ROOT } else { 0 };
        Self(AtomicU64::new(kind.bits() | root | LOCKED))
    }

    /// The word as it is, dirty or not.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> NodeVersion {
        NodeVersion(self.0.load(Ordering::Relaxed))
    }

    /// The word as it is, dirty or not; if it is not dirty it is as good as [`Self::stable`]'s.
    #[inline]
    #[must_use]
    pub fn glance(&self) -> NodeVersion {
        // Acquire: as in `stable`.
        NodeVersion(self.0.load(Ordering::Acquire))
    }

    /// Waits until the node is not dirty and returns its version.
    #[inline]
    #[must_use]
    pub fn stable(&self) -> NodeVersion {
        // Acquire pairs with the Release of `unlock`: the changes counted in this version are seen.
        // Without it a reader could validate successfully against older contents.
        let word = self.0.load(Ordering::Acquire);
        if word & DIRTY == 0 {
            return NodeVersion(word);
        }
        self.stable_slow()
    }

    #[cold]
    fn stable_slow(&self) -> NodeVersion {
        let mut spin = Spin::new();
        loop {
            // Acquire: as in `stable`.
            let word = self.0.load(Ordering::Acquire);
            debug_assert_ne!(word, POISON, "a reclaimed node is being read");
            if word & DIRTY == 0 {
                return NodeVersion(word);
            }
            spin.wait();
        }
    }

    /// Whether what was read since `snapshot` belongs to one state (L2).
    #[inline]
    #[must_use]
    pub fn unchanged_since(&self, snapshot: NodeVersion) -> bool {
        // Acquire fence pairs with the Release fence of the marks: if one of the earlier loads saw
        // a change, the load below sees the mark. Without it that load could be satisfied first.
        fence(Ordering::Acquire);
        (self.0.load(Ordering::Relaxed) ^ snapshot.0) & !LOCKED == 0
    }

    /// Takes the lock; returns the version at that moment.
    #[inline]
    pub fn lock(&self) -> NodeVersion {
        if let Some(version) = self.try_lock() {
            return version;
        }
        let mut spin = Spin::patient();
        loop {
            spin.wait();
            if let Some(version) = self.try_lock() {
                return version;
            }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<NodeVersion> {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(word, POISON, "a reclaimed node is being locked");
        if word & LOCKED != 0 {
            return None;
        }
        // Acquire pairs with `unlock`: the owner sees what its predecessor wrote.
        self.0
            .compare_exchange_weak(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| NodeVersion(word | LOCKED))
    }

    /// Releases the lock in one store, counting what was marked. The caller owns the lock (L1).
    #[inline]
    pub fn unlock(&self) {
        self.publish_and(!LOCKED);
    }

    /// Counts and takes back what was marked, and keeps the lock: readers see what was changed. The
    /// caller owns the lock (L1).
    #[inline]
    pub fn publish(&self) {
        self.publish_and(!0);
    }

    #[inline]
    fn publish_and(&self, kept: u64) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_ne!(word, POISON, "a reclaimed node is being unlocked");
        debug_assert!(word & LOCKED != 0, "unlocked by one who does not own it");
        let mut next = word & !DIRTY & kept;
        if word & INSERTING != 0 {
            let bumped = word.wrapping_add(1 << VINSERT_SHIFT) & VINSERT_MASK;
            next = (next & !VINSERT_MASK) | bumped;
        }
        if word & SPLITTING != 0 {
            next = next.wrapping_add(1 << VSPLIT_SHIFT);
        }
        // L3: a snapshot from before the marks equals no later word.
        debug_assert!(word & DIRTY == 0 || (next ^ word) >> VINSERT_SHIFT != 0);
        // Release pairs with `stable` and `try_lock`.
        self.0.store(next, Ordering::Release);
    }

    /// Announces that readers may see intermediate states. The caller owns the lock (L1).
    #[inline]
    pub fn mark_inserting(&self) {
        self.set(INSERTING);
    }

    /// Announces that keys will leave the node. The caller owns the lock (L1).
    #[inline]
    pub fn mark_splitting(&self) {
        self.set(SPLITTING);
    }

    /// Announces that the node leaves its tree; counted as a split. The caller owns the lock (L1).
    #[inline]
    pub fn mark_deleted(&self) {
        self.set(DELETED | SPLITTING);
    }

    /// Makes the node a root, or no longer one. The caller owns the lock (L1), or nobody can see
    /// the node yet.
    #[inline]
    pub fn set_root(&self, root: bool) {
        let word = self.0.load(Ordering::Relaxed);
        let next = if root { word | ROOT } else { word & !ROOT };
        self.0.store(next, Ordering::Relaxed);
    }

    #[inline]
    fn set(&self, bits: u64) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert!(word & LOCKED != 0, "marked by one who does not own it");
        self.0.store(word | bits, Ordering::Relaxed);
        // Release fence pairs with the Acquire fence of `unchanged_since`: no later store is seen
        // without the mark.
        fence(Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_unmarked_lock_leaves_the_version_as_it_was() {
        let lock = VersionLock::new(NodeKind::Border, true);
        let before = lock.stable();
        lock.lock();
        assert!(lock.unchanged_since(before), "L3: locked is not dirty");
        lock.unlock();
        assert_eq!(lock.stable(), before);
        assert!(before.is_root() && before.is_border() && !before.is_deleted());
    }

    #[test]
    fn what_is_published_is_read_while_the_lock_is_held() {
        let lock = VersionLock::new(NodeKind::Border, false);
        let first = lock.stable();
        lock.lock();
        lock.mark_inserting();
        lock.publish();
        let second = lock.stable();
        assert!(!lock.unchanged_since(first) && lock.unchanged_since(second));
        assert!(lock.try_lock().is_none(), "it is held");
        lock.unlock();
        assert!(lock.unchanged_since(second), "nothing was marked since");
    }

    #[test]
    fn marks_change_the_version_and_splits_are_told_from_inserts() {
        let lock = VersionLock::new(NodeKind::Interior, false);
        let first = lock.stable();
        lock.lock();
        lock.mark_inserting();
        assert!(!lock.unchanged_since(first), "L3: dirty");
        lock.unlock();
        let second = lock.stable();
        assert!(second != first && !second.has_split_since(first));
        lock.lock();
        lock.mark_splitting();
        lock.unlock();
        assert!(lock.stable().has_split_since(second));
        lock.lock();
        lock.mark_deleted();
        lock.unlock();
        assert!(lock.stable().is_deleted());
    }

    #[test]
    fn vinsert_wraps_within_its_field() {
        let lock = VersionLock::new(NodeKind::Border, false);
        lock.0.fetch_or(VINSERT_MASK, Ordering::Relaxed);
        let before = lock.stable();
        lock.lock();
        lock.mark_inserting();
        lock.unlock();
        let after = lock.stable();
        assert!(after != before && !after.has_split_since(before));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    struct Node {
        version: VersionLock,
        low: AtomicU64,
        high: AtomicU64,
    }

    fn reader_never_sees_a_mixture(mark: fn(&VersionLock)) {
        reader_sees_one_state(mark, |_| ());
    }

    /// What is done after the change, with the lock held.
    fn reader_sees_one_state(mark: fn(&VersionLock), then: fn(&Node)) {
        loom::model(move || {
            let node = Arc::new(Node {
                version: VersionLock::new(NodeKind::Border, true),
                low: AtomicU64::new(0),
                high: AtomicU64::new(0),
            });
            let writer = {
                let node = Arc::clone(&node);
                loom::thread::spawn(move || {
                    node.version.lock();
                    mark(&node.version);
                    node.low.store(1, Ordering::Relaxed);
                    node.high.store(1, Ordering::Relaxed);
                    then(&node);
                    node.version.unlock();
                })
            };
            let snapshot = node.version.stable();
            let low = node.low.load(Ordering::Relaxed);
            let high = node.high.load(Ordering::Relaxed);
            if node.version.unchanged_since(snapshot) {
                assert_eq!(low, high, "L2");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_validated_reader_never_sees_a_mixture() {
        reader_never_sees_a_mixture(VersionLock::mark_inserting);
        reader_never_sees_a_mixture(VersionLock::mark_splitting);
    }

    #[test]
    fn two_changes_under_one_lock_are_seen_one_by_one() {
        reader_sees_one_state(VersionLock::mark_inserting, |node| {
            node.version.publish();
            node.version.mark_inserting();
            node.low.store(2, Ordering::Relaxed);
            node.high.store(2, Ordering::Relaxed);
        });
    }

    #[test]
    #[should_panic(expected = "L2")]
    fn the_model_catches_a_missing_mark() {
        reader_never_sees_a_mixture(|_| ());
    }

    #[test]
    fn two_owners_exclude_each_other() {
        loom::model(|| {
            let node = Arc::new((VersionLock::new(NodeKind::Border, true), AtomicU64::new(0)));
            let other = {
                let node = Arc::clone(&node);
                loom::thread::spawn(move || increment(&node))
            };
            increment(&node);
            other.join().unwrap();
            assert_eq!(node.1.load(Ordering::Relaxed), 2);
        });
    }

    fn increment(node: &(VersionLock, AtomicU64)) {
        node.0.lock();
        let count = node.1.load(Ordering::Relaxed);
        node.1.store(count + 1, Ordering::Relaxed);
        node.0.unlock();
    }
}
