//! One tree: the root of its first layer and its key counts.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `root` | owner of the first layer's old root, when it splits (§4.6.4: updated at once) | descents, `Acquire` |
//! | `shards` | sessions, each on its own shard while there are no more than shards, `Relaxed` | `len`, gauges |

use pando_sync::shim::unmodelled::AtomicI64;
use std::ptr::NonNull;

use pando_engine::TreeId;
use pando_memory::pool::Pool;
use pando_sync::Padded;
use pando_sync::shim::{AtomicPtr, Ordering};

use crate::canary::Canary;
use crate::node::{Guard, Node, NodeRef, WIDTH, new_root};

/// The trees of an engine.
pub(crate) type Directory = pando_sync::Directory<Tree>;

/// Sets of key counts, so that sessions do not write the same line.
const SHARDS: usize = 16;

#[derive(Default)]
struct Shard {
    keys: AtomicI64,
    tombstones: AtomicI64,
}

/// A trie of B+-trees.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    root: AtomicPtr<Node>,
    shards: [Padded<Shard>; SHARDS],
    pub(crate) canary: Canary,
}

impl Tree {
    /// An empty tree: one empty border node.
    pub(crate) fn new(id: TreeId, pool: &mut Pool) -> Self {
        // SAFETY: the node is put into the tree below and is not used as a reference after that.
        let guard = unsafe { Guard::new() };
        let root = new_root(pool, guard, WIDTH);
        Self {
            id,
            root: AtomicPtr::new(root.node().as_ptr()),
            shards: Default::default(),
            canary: Canary::default(),
        }
    }

    /// The root of the first layer, stale perhaps by a split that is under way.
    #[inline]
    pub(crate) fn root<'g>(&self, guard: Guard<'g>) -> NodeRef<'g> {
        // Acquire pairs with `set_root`.
        let root = NonNull::new(self.root.load(Ordering::Acquire));
        // SAFETY: the first layer's root lives as long as the tree does (M1, M5).
        unsafe { NodeRef::from_raw(root.expect("a tree has a root"), guard) }
    }

    /// The first layer's root has split; the caller owns the lock of the old one.
    pub(crate) fn set_root(&self, root: NodeRef<'_>) {
        // Release pairs with `root`.
        self.root.store(root.as_ptr(), Ordering::Release);
    }

    /// The first layer's root, for freeing a tree that nobody can reach.
    pub(crate) fn take_root(&self) -> *mut Node {
        self.root.load(Ordering::Acquire)
    }

    /// Counts a commit; `shard` is the session's number.
    pub(crate) fn count(&self, shard: usize, keys: i64, tombstones: i64) {
        let shard = &self.shards[shard % SHARDS];
        if keys != 0 {
            shard.keys.fetch_add(keys, Ordering::Relaxed);
        }
        if tombstones != 0 {
            shard.tombstones.fetch_add(tombstones, Ordering::Relaxed);
        }
    }

    /// Keys with a value.
    pub(crate) fn keys(&self) -> u64 {
        let keys = self
            .shards
            .iter()
            .map(|shard| shard.keys.load(Ordering::Relaxed));
        // Shards are read one after another, so that a key that moves between may count as -1.
        keys.sum::<i64>().max(0) as u64
    }

    /// Keys with a tombstone.
    pub(crate) fn tombstones(&self) -> u64 {
        let tombstones = self
            .shards
            .iter()
            .map(|shard| shard.tombstones.load(Ordering::Relaxed));
        tombstones.sum::<i64>().max(0) as u64
    }
}
