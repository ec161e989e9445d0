//! The expiry index: which keys have a deadline, by deadline, so that the expirer finds the due
//! ones without looking at the others.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `shards[i]` | sessions after a commit that changed a deadline; the expirer | its mutex | the same |
//! | `count` | the same, inside the mutex | `Relaxed` | INFO |
//!
//! A commit hook may not touch the index (it runs under a node's lock), so the session *reconciles*
//! afterwards: under the shard's mutex it removes the entry of the deadline that it replaced, reads
//! the key's present deadline from the engine, and enters that one.
//!
//! Invariants:
//! - **X1** When no commit awaits reconciliation, a key has exactly one entry if its value has a
//!   deadline, and none otherwise. Reason: an entry is only made for the deadline that the key has
//!   while the mutex is held; whoever replaces that deadline commits later, hence reconciles later,
//!   and removes it.
//! - **X2** An entry is a hint: the expirer removes a key only in an `update` that sees the
//!   deadline passed.
//!
//! Cost: O(log entries of a shard) per change of a deadline; keys without deadlines pay nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pando_engine::{Deadline, Key, TreeId};

use crate::clock::Milliseconds;

const SHARDS: usize = 64;

type Shard = BTreeMap<TreeId, BTreeSet<(Deadline, Box<[u8]>)>>;

/// Keys with deadlines.
#[derive(Debug)]
pub(crate) struct ExpiryIndex {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    count: AtomicU64,
}

impl ExpiryIndex {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            count: AtomicU64::new(0),
        }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries in the index.
    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Entries of one tree, and the mean of their remaining milliseconds. O(entries).
    pub(crate) fn tree_summary(&self, tree: TreeId, now: Milliseconds) -> (u64, u64) {
        let (mut count, mut total) = (0_u64, 0_u64);
        for index in 0..SHARDS {
            if let Some(entries) = self.shard(index).get(&tree) {
                count += entries.len() as u64;
                total += entries
                    .iter()
                    .map(|(at, _)| at.0.saturating_sub(now))
                    .sum::<u64>();
            }
        }
        (count, total.checked_div(count).unwrap_or(0))
    }

    /// Brings the key's entry up to date after a commit that replaced deadline `replaced`;
    /// `present` reads the key's deadline from the engine (X1).
    pub(crate) fn reconcile(
        &self,
        key: Key<'_>,
        replaced: Option<Deadline>,
        present: impl FnOnce() -> Option<Deadline>,
    ) {
        let shard = (self.hasher.hash_one(key.bytes) as usize) % SHARDS;
        let mut shard = self.shard(shard);
        let mut change = 0_i64;
        if let Some(replaced) = replaced
            && let Some(entries) = shard.get_mut(&key.tree)
        {
            change -= i64::from(entries.remove(&(replaced, key.bytes.into())));
            if entries.is_empty() {
                shard.remove(&key.tree);
            }
        }
        if let Some(deadline) = present() {
            let entries = shard.entry(key.tree).or_default();
            change += i64::from(entries.insert((deadline, key.bytes.into())));
        }
        // Two's complement: adding a negative change subtracts it.
        self.count.fetch_add(change as u64, Ordering::Relaxed);
    }

    /// Takes up to `limit` entries that are due at `now`, of all trees, beginning with shard
    /// `cursor`, which moves on. The caller updates each key, whose commit reconciles.
    pub(crate) fn take_due(
        &self,
        now: Milliseconds,
        cursor: &mut usize,
        limit: usize,
    ) -> Vec<(TreeId, Deadline, Box<[u8]>)> {
        let mut due = Vec::new();
        for _ in 0..SHARDS {
            let mut shard = self.shard(*cursor % SHARDS);
            for (tree, entries) in shard.iter_mut() {
                while due.len() < limit {
                    match entries.first() {
                        Some((deadline, _)) if deadline.0 <= now => {
                            let (deadline, key) = entries.pop_first().expect("just seen");
                            self.count.fetch_sub(1, Ordering::Relaxed);
                            due.push((*tree, deadline, key));
                        }
                        _ => break,
                    }
                }
            }
            shard.retain(|_, entries| !entries.is_empty());
            if due.len() == limit {
                return due;
            }
            *cursor = (*cursor + 1) % SHARDS;
        }
        due
    }

    /// Forgets the entries of a dropped tree.
    pub(crate) fn drop_tree(&self, tree: TreeId) {
        for index in 0..SHARDS {
            let dropped = self.shard(index).remove(&tree);
            if let Some(entries) = dropped {
                self.count
                    .fetch_sub(entries.len() as u64, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(7);

    fn due(index: &ExpiryIndex, now: u64) -> usize {
        index.take_due(now, &mut 0, 100).len()
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
            let index = ExpiryIndex::new();
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
        let index = ExpiryIndex::new();
        for key in 0..100_u32 {
            let key = key.to_be_bytes();
            index.reconcile(Key::new(TREE, &key), None, || Some(Deadline(5)));
        }
        assert_eq!(index.tree_summary(TREE, 2), (100, 3));
        index.drop_tree(TREE);
        assert_eq!((index.len(), due(&index, 9)), (0, 0));
    }

    #[test]
    fn due_entries_come_in_bounded_portions() {
        let index = ExpiryIndex::new();
        for key in 0..100_u32 {
            let key = key.to_be_bytes();
            index.reconcile(Key::new(TREE, &key), None, || Some(Deadline(5)));
        }
        let (mut cursor, mut taken) = (0, 0);
        loop {
            let portion = index.take_due(5, &mut cursor, 7).len();
            assert!(portion <= 7);
            taken += portion;
            if portion == 0 {
                break;
            }
        }
        assert_eq!((taken, index.len()), (100, 0));
    }
}
