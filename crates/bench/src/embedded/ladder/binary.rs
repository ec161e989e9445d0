//! A lock-free binary tree (§6.2, `Binary`): full key, value and two children in 32 bytes.
//!
//! A node is written before the compare-and-swap that links it and never moves; only its value and
//! its links change. With `INTEGERS` keys are compared as integers, else as bytes.

use std::cmp::Ordering as Order;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::super::targets::{Target, Worker};
use super::arena::{Arena, Reserve};
use super::words;

#[derive(Default)]
struct Node {
    /// Integers, or with `INTEGERS` off the bytes themselves in the machine's order.
    key: [AtomicU64; 2],
    value: AtomicU64,
    children: [AtomicU32; 2],
}

/// The tree.
pub(in super::super) struct Binary<const INTEGERS: bool> {
    arena: Arena<Node>,
    root: AtomicU32,
}

/// One thread's access.
pub(in super::super) struct BinaryWorker<'t, const INTEGERS: bool> {
    tree: &'t Binary<INTEGERS>,
    reserve: Reserve,
}

impl<const INTEGERS: bool> Target for Binary<INTEGERS> {
    type Worker<'t> = BinaryWorker<'t, INTEGERS>;

    fn new() -> Self {
        Self {
            arena: Arena::new(),
            root: AtomicU32::new(0),
        }
    }

    fn worker(&self) -> BinaryWorker<'_, INTEGERS> {
        BinaryWorker {
            tree: self,
            reserve: Reserve::default(),
        }
    }
}

impl<const INTEGERS: bool> Binary<INTEGERS> {
    fn stored(key: &[u8]) -> [u64; 2] {
        let integers = words::<2>(key);
        if INTEGERS {
            integers
        } else {
            integers.map(|word| u64::from_ne_bytes(word.to_be_bytes()))
        }
    }

    fn compare(key: [u64; 2], node: &Node) -> Order {
        // Written before the node was linked (Release), so whoever found it sees it whole.
        let other = [0, 1].map(|at| node.key[at].load(Ordering::Relaxed));
        if INTEGERS {
            key.cmp(&other)
        } else {
            let bytes = |words: [u64; 2]| words.map(u64::to_ne_bytes);
            bytes(key).as_flattened().cmp(bytes(other).as_flattened())
        }
    }

    /// The link that holds the key's node, or would.
    fn descend(&self, key: [u64; 2]) -> (&AtomicU32, Option<&Node>) {
        let mut link = &self.root;
        loop {
            // Acquire: sees the node as it was written before the Release in `put`.
            let index = link.load(Ordering::Acquire);
            if index == 0 {
                return (link, None);
            }
            let node = self.arena.get(index);
            match Self::compare(key, node) {
                Order::Equal => return (link, Some(node)),
                Order::Less => link = &node.children[0],
                Order::Greater => link = &node.children[1],
            }
        }
    }
}

impl<const INTEGERS: bool> Worker for BinaryWorker<'_, INTEGERS> {
    fn put(&mut self, key: &[u8], value: u64) {
        let key = Binary::<INTEGERS>::stored(key);
        let mut made = 0;
        loop {
            let (link, found) = self.tree.descend(key);
            if let Some(node) = found {
                node.value.store(value, Ordering::Relaxed);
                return;
            }
            if made == 0 {
                made = self.tree.arena.allocate(&mut self.reserve);
                let node = self.tree.arena.get(made);
                node.key[0].store(key[0], Ordering::Relaxed);
                node.key[1].store(key[1], Ordering::Relaxed);
                node.value.store(value, Ordering::Relaxed);
            }
            // Release: publishes the node to the Acquire in `descend`.
            let linked = link.compare_exchange(0, made, Ordering::Release, Ordering::Relaxed);
            if linked.is_ok() {
                return;
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let (_, node) = self.tree.descend(Binary::<INTEGERS>::stored(key));
        node.map(|node| node.value.load(Ordering::Relaxed))
    }
}
