//! Changes at the ends of a wide row: many columns are added before all others or behind them, or
//! many are cut off, at the cost of one.

use super::leaf::Leaf;
use super::{Child, Interior, Node, Separator, Subtree, Tally, WideRow, balance};
use crate::limits::WIDE_LEAF_BYTES_MAX;
use crate::value::handle::{Handle, NODE_HEADER_BYTES};

/// An end of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::value) enum End {
    First,
    Last,
}

impl WideRow {
    /// Adds flat columns before the first one or behind the last one, in the order of their fields.
    /// Copies one node per level, and fills leaves.
    pub(in crate::value) fn extend(&mut self, end: End, columns: &[(&[u8], &[u8])]) {
        self.tally.lose();
        let mut rest = columns;
        while !rest.is_empty() {
            // As many as make few new leaves (DW2 interior-children).
            let (mut count, mut bytes) = (0, 0);
            let next = |count: usize| match end {
                End::First => rest.len().checked_sub(count + 1),
                End::Last => (count < rest.len()).then_some(count),
            };
            while let Some(index) = next(count) {
                bytes += rest[index].0.len() + rest[index].1.len();
                if count > 0 && bytes > WIDE_LEAF_BYTES_MAX {
                    break;
                }
                count += 1;
            }
            let now;
            (now, rest) = match end {
                End::First => {
                    let (before, now) = rest.split_at(rest.len() - count);
                    (now, before)
                }
                End::Last => rest.split_at(count),
            };
            let right = self.root.extend(end, now);
            self.adopt(right);
            self.lower();
        }
    }

    /// Removes the first or last columns, fewer than there are. Copies one node per level, and
    /// neighbours where nodes merge.
    pub(in crate::value) fn cut(&mut self, end: End, count: usize) {
        debug_assert!(count < self.len());
        if count > 0 {
            self.tally.lose();
            self.root.cut(end, count);
            self.lower();
        }
    }
}

impl Subtree {
    fn extend(&mut self, end: End, columns: &[(&[u8], &[u8])]) -> Vec<Child> {
        let right = match &mut self.node {
            Node::Leaf(leaf) => {
                let right = leaf.extend(end, columns);
                if right.is_empty() {
                    // To count all elements anew would cost more than the change (DW5 exact-sums).
                    let elements = columns.iter().map(|(field, _)| leaf.elements_in(field));
                    self.elements += elements.sum::<usize>();
                    self.fields += columns.len();
                    self.heap_bytes = NODE_HEADER_BYTES + leaf.heap_bytes();
                    return right;
                }
                right
            }
            Node::Interior(children) => {
                let index = match end {
                    End::First => 0,
                    End::Last => children.len() - 1,
                };
                let (child, _) = children.child_mut(index);
                let before = child.counts();
                let right = child.extend(end, columns);
                let after = child.counts();
                if right.is_empty() && balance::is_settled(children, index) {
                    self.change_counts(before, after);
                    return right;
                }
                let uncounted = &mut Tally::unknown();
                balance::settle(children, index, right, end == End::Last, uncounted)
            }
        };
        self.recount();
        right
    }

    /// Leaves a node that may be too small, for its parent to repair.
    fn cut(&mut self, end: End, count: usize) {
        match &mut self.node {
            Node::Leaf(leaf) => {
                let fields = leaf.row().len();
                let (kept, cut) = match end {
                    End::First => (count..fields, 0..count),
                    End::Last => (0..fields - count, fields - count..fields),
                };
                let elements = cut.map(|index| leaf.elements_in(leaf.row().field(index)));
                self.elements -= elements.sum::<usize>();
                self.fields -= count;
                *leaf = Handle::new(leaf.part(kept));
                self.heap_bytes = NODE_HEADER_BYTES + leaf.heap_bytes();
                return;
            }
            Node::Interior(children) => {
                let mut list = children.take();
                let mut rest = count;
                let mut is_whole = |child: &Child| {
                    let whole = child.tree.fields <= rest;
                    if whole {
                        rest -= child.tree.fields;
                    }
                    whole
                };
                match end {
                    End::First => {
                        let gone = list.iter().take_while(|child| is_whole(child)).count();
                        list.drain(..gone);
                        list[0].separator = Separator::FIRST;
                    }
                    End::Last => {
                        let gone = list.iter().rev().take_while(|child| is_whole(child));
                        list.truncate(list.len() - gone.count());
                    }
                }
                let index = match end {
                    End::First => 0,
                    End::Last => list.len() - 1,
                };
                if rest > 0 {
                    list[index].tree.cut(end, rest);
                }
                balance::repair(&mut list, index, &mut Tally::unknown());
                *children = Handle::new(Interior::new(list));
            }
        }
        self.recount();
    }
}

impl Handle<Leaf> {
    /// Adds columns at an end; returns the new right siblings.
    fn extend(&mut self, end: End, columns: &[(&[u8], &[u8])]) -> Vec<Child> {
        self.add(end, columns);
        self.split_filling(end)
    }
}
