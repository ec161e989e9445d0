//! What the next version of a row does not share, counted while it is made.
//!
//! A draft replaces nodes that its predecessor holds, too, by its own, and counts those that go.
//! So DW7 counted-garbage costs a draft an addition per node. Large columns, and columns that come
//! or go at the ends, are not counted: then the rows are compared (`beyond`).

use std::cell::Cell;
use std::num::NonZeroU64;
use std::ops::Range;

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};

use super::{Node, Subtree, WideRow};

/// See the module's header.
#[derive(Debug)]
pub(super) struct Tally {
    /// The number of this row. No two have the same.
    number: NonZeroU64,
    /// The number of its predecessor, as long as everything is counted.
    begun_from: Option<NonZeroU64>,
    bytes: usize,
}

/// A fault that tests plant (DW7 counted-garbage, DW8 ways-hold).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Leaves that go are not counted.
    LeafUncounted,
    /// A row that was taken keeps its number.
    NumberKept,
    /// A row keeps its shape when its nodes change.
    ShapeKept,
}

#[cfg(test)]
thread_local! {
    pub(super) static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Whether this fault is planted; known outside tests.
#[inline]
pub(super) fn is(fault: Fault) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(fault);
    #[cfg(not(test))]
    {
        let _ = fault;
        false
    }
}

/// How many numbers a thread takes at a time.
const NUMBERS: u64 = 1 << 20;

/// The number of a new row.
fn draw() -> NonZeroU64 {
    /// The first number that no thread has taken.
    static FREE: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static TAKEN: Cell<Range<u64>> = const { Cell::new(0..0) };
    }
    let mut taken = TAKEN.take();
    let number = taken.next().unwrap_or_else(|| {
        // Relaxed: numbers order nothing, they only differ.
        let first = FREE.fetch_add(NUMBERS, Ordering::Relaxed);
        taken = first + 1..first + NUMBERS;
        first
    });
    TAKEN.set(taken);
    NonZeroU64::new(number).expect("numbers begin with 1")
}

impl Tally {
    /// That of a row that has no predecessor.
    pub(super) fn unknown() -> Self {
        Self {
            number: draw(),
            begun_from: None,
            bytes: 0,
        }
    }

    /// That of a row which is still the same as this one's.
    pub(super) fn follow(&self) -> Self {
        Self {
            begun_from: Some(self.number),
            ..Self::unknown()
        }
    }

    /// That of a row which was taken, to be changed in place: what others have counted of it, as
    /// their predecessor, is no longer true.
    pub(super) fn begin_anew(&self) -> Self {
        let mut tally = Self::unknown();
        if is(Fault::NumberKept) {
            tally.number = self.number;
        }
        tally
    }

    /// Something happens that is not counted.
    pub(super) fn lose(&mut self) {
        self.begun_from = None;
    }

    /// A node is going to be replaced. Its parent, if there is one, is the draft's own: so what the
    /// predecessor has is held twice.
    #[inline]
    pub(super) fn replace(&mut self, tree: &Subtree) {
        if self.begun_from.is_some() {
            self.count(tree);
        }
    }

    fn count(&mut self, tree: &Subtree) {
        let (is_shared, has_large) = match &tree.node {
            Node::Leaf(_) if is(Fault::LeafUncounted) => return,
            Node::Leaf(leaf) => (leaf.is_shared(), !leaf.large.is_empty()),
            Node::Interior(children) => (children.is_shared(), false),
        };
        if has_large {
            // Large columns move to the leaf's successor.
            self.lose();
        } else if is_shared {
            self.bytes += tree.own_bytes();
        }
    }

    /// Heap bytes of the nodes of this row that the one with the tally does not share, if that is
    /// known.
    pub(super) fn beyond(&self, row: &WideRow) -> Option<usize> {
        (self.begun_from == Some(row.tally.number)).then_some(self.bytes)
    }
}
