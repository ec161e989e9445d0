//! From tree numbers to trees, without a lock on the way of operations.
//!
//! Numbers are never used again, so that the table is two levels of zeroed pages that the system
//! gives on first touch.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `segments[high]`, `trees[low]` | `create`, `restore`, `remove`: the mutex `owned` | `get`, `Acquire`, pinned |
//! | `owned` | `create`, `restore`, `remove`: its mutex | `len`, gauges |
//!
//! Invariant:
//! - **MD1** A tree that `get` has returned lives until the pin ends, because `remove` hands the
//!   tree to the caller, who keeps it until the epoch has passed.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pando_engine::TreeId;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::node::Guard;
use crate::tree::Tree;

const SEGMENT_BITS: u32 = 16;
const SEGMENT_TREES: usize = 1 << SEGMENT_BITS;

type Segment = [AtomicPtr<Tree>];

/// The trees of an engine.
pub(crate) struct Directory {
    segments: Box<[AtomicPtr<AtomicPtr<Tree>>]>,
    owned: Mutex<Owned>,
}

#[derive(Default)]
struct Owned {
    next: u32,
    trees: HashMap<TreeId, Arc<Tree>>,
}

fn zeroed<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    let zeroed = Box::new_zeroed_slice(count);
    // SAFETY: all-zero bytes are a null pointer.
    unsafe { zeroed.assume_init() }
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            segments: zeroed(1 << (u32::BITS - SEGMENT_BITS)),
            owned: Mutex::default(),
        }
    }

    fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn segment(&self, tree: TreeId) -> Option<&Segment> {
        // Acquire pairs with `create`: the segment is seen zeroed.
        let segment = self.segments[(tree.0 >> SEGMENT_BITS) as usize].load(Ordering::Acquire);
        if segment.is_null() {
            return None;
        }
        // SAFETY: a segment has this length and lives as long as the directory.
        Some(unsafe { std::slice::from_raw_parts(segment, SEGMENT_TREES) })
    }

    /// The tree, if it exists. O(1), two loads.
    #[inline]
    pub(crate) fn get<'g>(&self, tree: TreeId, _: Guard<'g>) -> Option<&'g Tree> {
        let slot = &self.segment(tree)?[tree.0 as usize % SEGMENT_TREES];
        // Acquire pairs with `create`: the tree is seen initialised.
        let tree = slot.load(Ordering::Acquire);
        // SAFETY: null, or a tree that lives until the pin ends (MD1).
        unsafe { tree.as_ref() }
    }

    /// Puts a new tree in.
    pub(crate) fn create(&self, make: impl FnOnce(TreeId) -> Tree) -> TreeId {
        let mut owned = self.owned();
        let id = TreeId(owned.next);
        self.put(&mut owned, make(id));
        id
    }

    /// Puts the tree of this number in, if it is not there; whether it was put.
    pub(crate) fn restore(&self, id: TreeId, make: impl FnOnce(TreeId) -> Tree) -> bool {
        let mut owned = self.owned();
        let absent = !owned.trees.contains_key(&id);
        if absent {
            self.put(&mut owned, make(id));
        }
        absent
    }

    fn put(&self, owned: &mut Owned, tree: Tree) {
        let id = tree.id;
        let next = id.0.checked_add(1).expect("tree numbers are used up");
        owned.next = owned.next.max(next);
        if self.segment(id).is_none() {
            let segment: Box<[AtomicPtr<Tree>]> = zeroed(SEGMENT_TREES);
            let segment = Box::into_raw(segment).cast::<AtomicPtr<Tree>>();
            // Release pairs with `segment`.
            self.segments[(id.0 >> SEGMENT_BITS) as usize].store(segment, Ordering::Release);
        }
        let tree = Arc::new(tree);
        let pointer = Arc::as_ptr(&tree).cast_mut();
        owned.trees.insert(id, tree);
        let segment = self.segment(id).expect("just made");
        // Release pairs with `get`.
        segment[id.0 as usize % SEGMENT_TREES].store(pointer, Ordering::Release);
    }

    /// Takes a tree out; the caller keeps it until the epoch has passed (MD1).
    pub(crate) fn remove(&self, tree: TreeId) -> Option<Arc<Tree>> {
        let owned = self.owned().trees.remove(&tree)?;
        let segment = self
            .segment(tree)
            .expect("a tree that exists has a segment");
        segment[tree.0 as usize % SEGMENT_TREES].store(ptr::null_mut(), Ordering::Release);
        Some(owned)
    }

    /// Shows every tree.
    pub(crate) fn each(&self, visit: impl FnMut(&Arc<Tree>)) {
        self.owned().trees.values().for_each(visit);
    }

    /// The tree, for callers without a pin.
    pub(crate) fn find(&self, tree: TreeId) -> Option<Arc<Tree>> {
        self.owned().trees.get(&tree).cloned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for segment in &mut self.segments {
            let first = *segment.get_mut();
            if !first.is_null() {
                let segment = ptr::slice_from_raw_parts_mut(first, SEGMENT_TREES);
                // SAFETY: made by `create` from a box of this length, dropped once.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}
