//! One tree: the root of its first layer and its key counts.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `root` | owner of the first layer's old root, when it splits (§4.6.4: updated at once) | descents, `Acquire` |
//! | `counts` | see `KeyCounts` | `len`, gauges |

use std::ptr::NonNull;

use pando_chassis::KeyCounts;
use pando_engine::TreeId;
use pando_memory::pool::Pool;
use pando_sync::shim::{AtomicPtr, Ordering};

use crate::canary::Canary;
use crate::node::{Guard, Node, NodeRef, WIDTH, new_root};

/// The trees of an engine.
pub(crate) type Directory = pando_sync::Directory<Tree>;

/// A trie of B+-trees.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    root: AtomicPtr<Node>,
    pub(crate) counts: KeyCounts,
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
            counts: KeyCounts::default(),
            canary: Canary::default(),
        }
    }

    /// The root of the first layer, possibly stale during a split.
    #[inline]
    pub(crate) fn root<'g>(&self, guard: Guard<'g>) -> NodeRef<'g> {
        // Acquire pairs with `set_root`.
        let root = NonNull::new(self.root.load(Ordering::Acquire));
        // SAFETY: the first layer's root lives as long as the tree does (M1 reachable-lives,
        // M5 leftmost-stays).
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
}
