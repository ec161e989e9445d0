//! Removing fields from a wide row.

use std::ops::Range;

use super::{Counts, Node, Place, Subtree, TOO_DEEP, Tally, WideRow, balance};
use crate::value::handle::NODE_HEADER_BYTES;
use crate::value::{StringRef, row};

impl WideRow {
    /// Removes a field from this version, which is under construction; returns whether it existed.
    /// Copies one node per level, and neighbours where nodes merge; nothing if it did not exist.
    pub(in crate::value) fn remove(&mut self, field: &[u8]) -> bool {
        let (Place { turns, at }, leaf) = self.place_of(field);
        let Ok(index) = at else {
            return false;
        };
        let calm = leaf.counts_without(index);
        self.remove_at(&turns, index, calm);
        true
    }

    /// Removes the field at `rank`, if there is one, once it was shown with its value.
    pub(in crate::value) fn remove_nth(
        &mut self,
        rank: usize,
        show: impl FnOnce(&[u8], StringRef<'_>),
    ) {
        let Some((turns, leaf, index)) = self.place_of_rank(rank) else {
            return;
        };
        show(leaf.row().field(index), leaf.value(index));
        let calm = leaf.counts_without(index);
        self.remove_at(&turns, index, calm);
    }

    /// Removes so many fields, which are there, from the one at `rank` on. Copies one node per
    /// level for each leaf that they are in.
    pub(in crate::value) fn remove_from_rank(&mut self, rank: usize, count: usize) {
        let mut left = count;
        while left > 0 {
            let (turns, leaf, index) = self.place_of_rank(rank).expect("the fields are there");
            let fields = index..leaf.row().len().min(index + left);
            left -= fields.len();
            self.root.remove(&turns, fields, &mut self.tally);
            self.lower();
        }
    }

    /// `calm`: see [`super::Leaf::counts_without`].
    fn remove_at(&mut self, turns: &[u8], index: usize, calm: Option<[Counts; 2]>) {
        if let Some(counts) = calm {
            let block = self.root.block_mut(turns, counts, 0, &mut self.tally);
            return row::remove_from(block, index..index + 1);
        }
        self.root.remove(turns, index..index + 1, &mut self.tally);
        self.lower();
    }
}

impl Subtree {
    fn remove(&mut self, turns: &[u8], fields: Range<usize>, tally: &mut Tally) {
        tally.replace(self);
        match (&mut self.node, turns) {
            (Node::Leaf(leaf), _) => {
                let elements = fields
                    .clone()
                    .map(|index| leaf.elements_in(leaf.row().field(index)));
                self.elements -= elements.sum::<usize>();
                self.fields -= fields.len();
                leaf.remove(fields);
                self.heap_bytes = NODE_HEADER_BYTES + leaf.heap_bytes();
                return;
            }
            (Node::Interior(children), [turn, turns @ ..]) => {
                let turn = usize::from(*turn);
                let (child, _) = children.child_mut(turn);
                let before = child.counts();
                child.remove(turns, fields, tally);
                let after = child.counts();
                children.note(turn);
                if balance::is_settled(children, turn) {
                    self.change_counts(before, after);
                    return;
                }
                let right = balance::settle(children, turn, Vec::new(), false, tally);
                debug_assert!(right.is_empty());
            }
            (Node::Interior(_), []) => unreachable!("{TOO_DEEP}"),
        }
        self.recount();
    }
}
