//! A lock-free tree of fanout 4 (§6.2, `4-tree`).
//!
//! A node holds three keys in the order of their arrival; its children come when it is full. The
//! child of a key is the number of the node's keys below it, so nothing is ever rearranged. The
//! node's line holds the first 8 bytes of its keys and the children; the rest of a key and its
//! value are an entry elsewhere, read at the end of a lookup or when first bytes are equal.
//!
//! A key arrives by a compare-and-swap of its entry's index; its first bytes are then copied into
//! the node by whoever meets it first, so that no reader waits for a writer.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::super::targets::{Target, Worker};
use super::arena::{Arena, Reserve};
use super::words;

const KEYS: usize = 3;

/// 56 bytes, aligned to one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Node {
    /// The first 8 bytes of the keys; 0 while they have not been copied (no key begins with 0).
    firsts: [AtomicU64; KEYS],
    children: [AtomicU32; KEYS + 1],
    entries: [AtomicU32; KEYS],
}

#[derive(Default)]
struct Entry {
    key: [AtomicU64; 2],
    value: AtomicU64,
}

/// The tree.
pub(in super::super) struct FourTree {
    nodes: Arena<Node>,
    entries: Arena<Entry>,
    root: u32,
}

/// One thread's access.
pub(in super::super) struct FourWorker<'t> {
    tree: &'t FourTree,
    nodes: Reserve,
    entries: Reserve,
}

impl Target for FourTree {
    type Worker<'t> = FourWorker<'t>;

    fn new() -> Self {
        let nodes = Arena::new();
        let root = nodes.allocate(&mut Reserve::default());
        Self {
            nodes,
            entries: Arena::new(),
            root,
        }
    }

    fn worker(&self) -> FourWorker<'_> {
        FourWorker {
            tree: self,
            nodes: Reserve::default(),
            entries: Reserve::default(),
        }
    }
}

/// Where a search ends within a node.
enum Place<'t> {
    /// At the key's entry.
    Found(&'t Entry),
    /// At the first free slot.
    Free(usize),
    /// Below, behind this child.
    Below(usize),
}

impl FourTree {
    fn search<'t>(&'t self, node: &'t Node, key: [u64; 2]) -> Place<'t> {
        let mut below = 0;
        for slot in 0..KEYS {
            // Acquire: partner of the Releases that copy it; sees that the slot has its entry.
            let mut first = node.firsts[slot].load(Ordering::Acquire);
            if first == 0 {
                // Acquire: sees the entry as it was written before the Release in `put`.
                let index = node.entries[slot].load(Ordering::Acquire);
                if index == 0 {
                    return Place::Free(slot);
                }
                first = self.entries.get(index).key[0].load(Ordering::Relaxed);
                node.firsts[slot].store(first, Ordering::Release);
            }
            if first == key[0] {
                let entry = self.entries.get(node.entries[slot].load(Ordering::Acquire));
                let rest = entry.key[1].load(Ordering::Relaxed);
                if rest == key[1] {
                    return Place::Found(entry);
                }
                below += usize::from(rest < key[1]);
            } else {
                below += usize::from(first < key[0]);
            }
        }
        Place::Below(below)
    }
}

impl Worker for FourWorker<'_> {
    fn put(&mut self, key: &[u8], value: u64) {
        let key = words::<2>(key);
        let tree = self.tree;
        let mut made = 0;
        let mut node = tree.nodes.get(tree.root);
        loop {
            match tree.search(node, key) {
                Place::Found(entry) => return entry.value.store(value, Ordering::Relaxed),
                Place::Free(slot) => {
                    if made == 0 {
                        made = tree.entries.allocate(&mut self.entries);
                        let entry = tree.entries.get(made);
                        entry.key[0].store(key[0], Ordering::Relaxed);
                        entry.key[1].store(key[1], Ordering::Relaxed);
                        entry.value.store(value, Ordering::Relaxed);
                    }
                    let link = &node.entries[slot];
                    // Release: publishes the entry to the Acquires in `search`.
                    let free = link.compare_exchange(0, made, Ordering::Release, Ordering::Relaxed);
                    if free.is_ok() {
                        return node.firsts[slot].store(key[0], Ordering::Release);
                    }
                }
                Place::Below(child) => {
                    let link = &node.children[child];
                    let mut index = link.load(Ordering::Acquire);
                    if index == 0 {
                        let fresh = tree.nodes.allocate(&mut self.nodes);
                        // Release and Acquire: a node is zeroed before anybody reaches it.
                        let linked =
                            link.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
                        // A node that lost the race is left unused; there is one per race.
                        index = linked.map_or_else(|winner| winner, |_| fresh);
                    }
                    node = tree.nodes.get(index);
                }
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let key = words::<2>(key);
        let tree = self.tree;
        let mut node = tree.nodes.get(tree.root);
        loop {
            match tree.search(node, key) {
                Place::Found(entry) => return Some(entry.value.load(Ordering::Relaxed)),
                Place::Free(_) => return None,
                Place::Below(child) => {
                    // Acquire: partner of the Release that linked the node in `put`.
                    let index = node.children[child].load(Ordering::Acquire);
                    if index == 0 {
                        return None;
                    }
                    node = tree.nodes.get(index);
                }
            }
        }
    }
}
