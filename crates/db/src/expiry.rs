//! The expiry index: keys ordered by deadline, so that the expirer finds due ones without looking
//! at the others. There are two: of keys by their own deadlines, and of hashes by the earliest
//! deadline of a field ([`Of`]).
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `shards[i]` | sessions after a commit that changed a deadline; the expirer | its mutex | the same |
//! | `dropped` | FLUSHDB, FLUSHALL; maintenance | its mutex | maintenance |
//!
//! A commit hook may not touch the index (it runs under a node's lock), so the session *reconciles*
//! afterwards: under the shard's mutex it removes the entry of the deadline it replaced, reads the
//! key's present deadline from the engine, and enters that one.
//!
//! Invariants:
//! - **X1 one-entry** When no commit awaits reconciliation, a key has exactly one entry if its
//!   value has a deadline of this kind, and none otherwise. Reason: an entry is made only for the
//!   deadline that the key has while the mutex is held. A session that replaces that deadline
//!   commits later, hence reconciles later, and removes it.
//! - **X2 entry-is-hint** An entry is a hint: the expirer removes a key, or fields, only in an
//!   `update` that sees the deadline passed.
//! - **X3 filled-behind** With a pool, X1 holds but for entries that are missing: those of keys
//!   that the pool lists behind the position up to which the index has been filled.
//!
//! With a pool, the index is filled in the background after a start (`expiry/filling.rs`).
//!
//! Cost: O(log entries of a shard) per change of a deadline, and about 30 bytes per short key with
//! one (`leaves`); keys without deadlines cost nothing. A tree is dropped in O(shards), under all
//! gates; its entries are freed later, under none.

mod filling;
mod leaves;

use std::collections::{BTreeMap, btree_map};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use pando_engine::{BodyRef, Deadline, FieldsRef, Key, Point, RowTag, TreeId, ValueRef};
use pando_sync::{Padded, lock};
use smallvec::SmallVec;

use crate::clock::Milliseconds;
use crate::store::StoreSession;
use filling::Filling;
use leaves::{Leaf, Leaves};

const SHARDS: usize = 64;

/// Shards in which the nearest deadline is searched.
const SHARDS_ASKED: usize = 8;

/// Where a sweep of the index continues.
#[derive(Debug, Default)]
pub(crate) struct ExpiryHand {
    shard: usize,
    after: Option<(TreeId, Entry)>,
}

impl ExpiryHand {
    /// One that begins in any shard.
    pub(crate) fn somewhere(random: &mut fastrand::Rng) -> Self {
        Self {
            shard: random.usize(..SHARDS),
            after: None,
        }
    }
}

/// Which deadline of a value an index goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// That of its key.
    Key,
    /// The earliest of its fields.
    Field,
}

impl Of {
    pub(crate) const BOTH: [Self; 2] = [Self::Key, Self::Field];

    /// The deadline, if the value has one.
    #[inline]
    pub(crate) fn deadline(self, value: &ValueRef<'_>) -> Option<Deadline> {
        match (self, value.body) {
            (Self::Key, _) => value.attributes.deadline,
            (Self::Field, BodyRef::Row(tag @ RowTag::TimedHash, row)) => {
                FieldsRef::first_deadline(tag, row)
            }
            (Self::Field, _) => None,
        }
    }
}

/// A deadline of a key that a commit has replaced.
pub(crate) type Replaced = (Of, Option<Deadline>);

/// Keys with deadlines, and hashes whose fields have some.
#[derive(Debug)]
pub(crate) struct ExpiryIndex {
    pub(crate) keys: DeadlineIndex,
    pub(crate) fields: DeadlineIndex,
    pub(crate) filling: Filling,
}

impl ExpiryIndex {
    pub(crate) fn new() -> Self {
        Self {
            keys: DeadlineIndex::new(),
            fields: DeadlineIndex::new(),
            filling: Filling::default(),
        }
    }

    /// The index by these deadlines.
    #[inline]
    pub(crate) fn by(&self, of: Of) -> &DeadlineIndex {
        match of {
            Of::Key => &self.keys,
            Of::Field => &self.fields,
        }
    }

    /// Updates a key's entry after a commit that replaced one of its deadlines (X1).
    pub(crate) fn reconcile(
        &self,
        store: &mut StoreSession,
        key: Key<'_>,
        (of, replaced): Replaced,
    ) {
        self.by(of).reconcile(key, replaced, || {
            store.get(key, |value| value.and_then(|value| of.deadline(&value)))
        });
    }

    /// Forgets the entries of a dropped tree.
    pub(crate) fn drop_tree(&self, tree: TreeId) {
        for of in Of::BOTH {
            self.by(of).drop_tree(tree);
        }
    }

    /// Frees up to `limit` entries of dropped trees of either index; how many.
    pub(crate) fn free_dropped(&self, limit: usize) -> usize {
        let freed = Of::BOTH.map(|of| self.by(of).free_dropped(limit));
        freed.iter().sum()
    }
}

/// A key of the index: inline up to 16 bytes, so that most need no block of their own.
pub(crate) type EntryKey = SmallVec<[u8; 16]>;

type Entry = (Deadline, EntryKey);

const _: () = assert!(size_of::<Entry>() == 32);

/// The entries of one tree in one shard.
#[derive(Debug, Default)]
struct Entries {
    by_deadline: Leaves,
    /// The sum of their deadlines.
    sum: u128,
}

impl Entries {
    fn insert(&mut self, entry: &Entry) {
        if self.by_deadline.insert(entry) {
            self.sum += u128::from(entry.0.0);
        }
    }

    fn remove(&mut self, entry: &Entry) {
        if self.by_deadline.remove(entry) {
            self.sum -= u128::from(entry.0.0);
        }
        debug_assert!(!self.by_deadline.is_empty() || self.sum == 0);
    }

    /// Takes the first entry if it is due.
    fn take_due(&mut self, now: Milliseconds) -> Option<Entry> {
        let entry = self.by_deadline.take_due(now)?;
        self.sum -= u128::from(entry.0.0);
        debug_assert!(!self.by_deadline.is_empty() || self.sum == 0);
        Some(entry)
    }
}

type Shard = BTreeMap<TreeId, Entries>;

/// Keys by one kind of deadline.
#[derive(Debug)]
pub(crate) struct DeadlineIndex {
    /// Whether it ever had an entry. `Relaxed`: it is a hint, set before an entry is made by the
    /// thread that asks, or by one that it has since met at a lock or a channel.
    is_used: AtomicBool,
    shards: Box<[Padded<Mutex<Shard>>]>,
    hasher: RandomState,
    /// Entries of dropped trees that are not freed yet.
    dropped: Mutex<Vec<btree_map::IntoValues<Entry, Leaf>>>,
}

impl DeadlineIndex {
    pub(crate) fn new() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            shards: (0..SHARDS).map(|_| Padded(Mutex::default())).collect(),
            hasher: RandomState::new(),
            dropped: Mutex::default(),
        }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        lock(&self.shards[index])
    }

    /// Whether nothing was ever in it.
    pub(crate) fn is_unused(&self) -> bool {
        !self.is_used.load(Ordering::Relaxed)
    }

    /// Entries in the index. O(shards), so that no change of a deadline writes a shared count.
    pub(crate) fn len(&self) -> u64 {
        let entries = |index| {
            let shard = self.shard(index);
            let each = shard.values().map(|entries| entries.by_deadline.len());
            each.sum::<usize>() as u64
        };
        (0..SHARDS).map(entries).sum()
    }

    /// Entries of one tree, and the mean of their remaining milliseconds. O(shards).
    pub(crate) fn tree_summary(&self, tree: TreeId, now: Milliseconds) -> (u64, u64) {
        let (mut count, mut sum) = (0_u64, 0_u128);
        for index in 0..SHARDS {
            if let Some(entries) = self.shard(index).get(&tree) {
                count += entries.by_deadline.len() as u64;
                sum += entries.sum;
            }
        }
        let mean = sum.checked_div(u128::from(count)).unwrap_or(0) as u64;
        (count, mean.saturating_sub(now.0))
    }

    /// Updates the key's entry after a commit that replaced deadline `replaced`; `present` reads
    /// the key's deadline from the engine (X1).
    pub(crate) fn reconcile(
        &self,
        key: Key<'_>,
        replaced: Option<Deadline>,
        present: impl FnOnce() -> Option<Deadline>,
    ) {
        let shard = (self.hasher.hash_one(key.bytes) as usize) % SHARDS;
        let mut shard = self.shard(shard);
        if let Some(replaced) = replaced
            && let Some(entries) = shard.get_mut(&key.tree)
        {
            entries.remove(&(replaced, EntryKey::from_slice(key.bytes)));
            if entries.by_deadline.is_empty() {
                shard.remove(&key.tree);
            }
        }
        if let Some(deadline) = present() {
            let entries = shard.entry(key.tree).or_default();
            entries.insert(&(deadline, EntryKey::from_slice(key.bytes)));
            if self.is_unused() {
                self.is_used.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes up to `limit` entries that are due at `now`, of all trees, beginning with shard
    /// `cursor`, which advances. The caller updates each key; that commit reconciles.
    pub(crate) fn take_due(
        &self,
        now: Milliseconds,
        cursor: &mut usize,
        limit: usize,
    ) -> Vec<(TreeId, Deadline, EntryKey)> {
        let mut due = Vec::new();
        for _ in 0..SHARDS {
            let mut shard = self.shard(*cursor % SHARDS);
            for (tree, entries) in shard.iter_mut() {
                while due.len() < limit
                    && let Some((deadline, key)) = entries.take_due(now)
                {
                    due.push((*tree, deadline, key));
                }
            }
            shard.retain(|_, entries| !entries.by_deadline.is_empty());
            if due.len() == limit {
                return due;
            }
            *cursor = (*cursor + 1) % SHARDS;
        }
        due
    }

    /// The next entries of all trees, up to `limit`, continuing at `hand` and wrapping around.
    /// O(shards), and O(log entries) per tree.
    pub(crate) fn sweep(
        &self,
        hand: &mut ExpiryHand,
        limit: usize,
    ) -> Vec<(TreeId, Deadline, EntryKey)> {
        let mut met: Vec<(TreeId, Deadline, EntryKey)> = Vec::new();
        for _ in 0..SHARDS {
            let shard = self.shard(hand.shard % SHARDS);
            let after = hand.after.take();
            let first = after.as_ref().map_or(TreeId(0), |(tree, _)| *tree);
            for (tree, entries) in shard.range(first..) {
                let after = after.as_ref().filter(|(last, _)| last == tree);
                let rest = entries.by_deadline.after(after.map(|(_, entry)| entry));
                for (deadline, key) in rest.take(limit - met.len()) {
                    met.push((*tree, deadline, EntryKey::from_slice(key)));
                }
                if met.len() == limit {
                    hand.after = met
                        .last()
                        .map(|(tree, at, key)| (*tree, (*at, key.clone())));
                    return met;
                }
            }
            hand.shard = (hand.shard + 1) % SHARDS;
        }
        met
    }

    /// The entry with the nearest deadline in some of the shards, of any tree.
    pub(crate) fn soonest(
        &self,
        random: &mut fastrand::Rng,
    ) -> Option<(TreeId, Deadline, EntryKey)> {
        let start = random.usize(..SHARDS);
        let mut soonest: Option<(TreeId, Deadline, EntryKey)> = None;
        for (met, index) in (start..start + SHARDS).enumerate() {
            if met >= SHARDS_ASKED && soonest.is_some() {
                break;
            }
            for (tree, entries) in &*self.shard(index % SHARDS) {
                if let Some((deadline, key)) = entries.by_deadline.first()
                    && soonest.as_ref().is_none_or(|(_, at, _)| deadline < *at)
                {
                    soonest = Some((*tree, deadline, EntryKey::from_slice(key)));
                }
            }
        }
        soonest
    }

    /// Forgets the entries of a dropped tree. O(shards); [`Self::free_dropped`] frees them.
    pub(crate) fn drop_tree(&self, tree: TreeId) {
        for index in 0..SHARDS {
            let dropped = self.shard(index).remove(&tree);
            if let Some(entries) = dropped {
                lock(&self.dropped).push(entries.by_deadline.into_leaves());
            }
        }
    }

    /// Frees up to `limit` entries of dropped trees, or as many more as a leaf has; how many.
    pub(crate) fn free_dropped(&self, limit: usize) -> usize {
        let mut freed = 0;
        while freed < limit {
            let Some(mut leaves) = lock(&self.dropped).pop() else {
                break;
            };
            while freed < limit
                && let Some(leaf) = leaves.next()
            {
                freed += leaf.len();
            }
            if leaves.len() > 0 {
                lock(&self.dropped).push(leaves);
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(7);

    fn due(index: &DeadlineIndex, now: u64) -> usize {
        index.take_due(Milliseconds(now), &mut 0, 100).len()
    }

    #[test]
    fn reconciling_in_any_order_leaves_one_entry() {
        // Three commits set 10, 20, 30 in this order; their sessions reconcile in any order, each
        // seeing the deadline that is present by then (30, since all have committed).
        let replaced = [None, Some(Deadline(10)), Some(Deadline(20))];
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let index = DeadlineIndex::new();
            for commit in order {
                index.reconcile(Key::new(TREE, b"k"), replaced[commit], || {
                    Some(Deadline(30))
                });
            }
            assert_eq!(index.len(), 1, "{order:?}");
            assert_eq!((due(&index, 29), due(&index, 30)), (0, 1), "{order:?}");
        }
    }

    #[test]
    fn a_dropped_tree_leaves_nothing() {
        let index = DeadlineIndex::new();
        for key in 0..100_u32 {
            let key = key.to_be_bytes();
            index.reconcile(Key::new(TREE, &key), None, || Some(Deadline(5)));
        }
        assert_eq!(index.tree_summary(TREE, Milliseconds(2)), (100, 3));
        index.drop_tree(TREE);
        assert_eq!((index.len(), due(&index, 9)), (0, 0));
        // Nothing is freed under the gates that a flush holds; bounded portions are freed later.
        let mut portions = Vec::new();
        while let freed @ 1.. = index.free_dropped(30) {
            portions.push(freed);
        }
        assert_eq!(portions.iter().sum::<usize>(), 100);
        let bounds = [30..40, 30..40, 30..40, 1..11];
        assert!(
            portions
                .iter()
                .zip(bounds)
                .all(|(portion, bound)| bound.contains(portion))
        );
    }

    #[test]
    fn the_mean_is_kept_up_to_date() {
        let index = DeadlineIndex::new();
        let key = |key: &'static [u8]| Key::new(TREE, key);
        index.reconcile(key(b"a"), None, || Some(Deadline(u64::MAX)));
        index.reconcile(key(b"b"), None, || Some(Deadline(u64::MAX)));
        assert_eq!(index.tree_summary(TREE, Milliseconds(0)), (2, u64::MAX));
        index.reconcile(key(b"a"), Some(Deadline(u64::MAX)), || Some(Deadline(10)));
        index.reconcile(key(b"b"), Some(Deadline(u64::MAX)), || Some(Deadline(30)));
        assert_eq!(index.tree_summary(TREE, Milliseconds(5)), (2, 15));
        assert_eq!(due(&index, 10), 1);
        assert_eq!(index.tree_summary(TREE, Milliseconds(15)), (1, 15));
        index.reconcile(key(b"b"), Some(Deadline(30)), || None);
        assert_eq!(index.tree_summary(TREE, Milliseconds(15)), (0, 0));
    }

    #[test]
    fn due_entries_come_in_bounded_portions() {
        let index = DeadlineIndex::new();
        for key in 0..100_u32 {
            let key = key.to_be_bytes();
            index.reconcile(Key::new(TREE, &key), None, || Some(Deadline(5)));
        }
        let (mut cursor, mut taken) = (0, 0);
        loop {
            let portion = index.take_due(Milliseconds(5), &mut cursor, 7).len();
            assert!(portion <= 7);
            taken += portion;
            if portion == 0 {
                break;
            }
        }
        assert_eq!((taken, index.len()), (100, 0));
    }
}
