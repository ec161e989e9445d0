//! Removing fields from a wide row.

use super::{Node, Place, Subtree, TOO_DEEP, Tally, WideRow, balance};

impl WideRow {
    /// Removes a field from this version, which is under construction; returns whether it existed.
    /// Copies one node per level, and neighbours where nodes merge; nothing if it did not exist.
    pub(in crate::value) fn remove(&mut self, field: &[u8]) -> bool {
        let (Place { turns, at }, _) = self.place_of(field);
        let Ok(index) = at else {
            return false;
        };
        self.root.remove(&turns, index, &mut self.tally);
        self.lower();
        true
    }
}

impl Subtree {
    fn remove(&mut self, turns: &[u8], index: usize, tally: &mut Tally) {
        tally.replace(self);
        match (&mut self.node, turns) {
            (Node::Leaf(leaf), _) => leaf.remove(index),
            (Node::Interior(children), [turn, turns @ ..]) => {
                let turn = usize::from(*turn);
                let child = children.child_mut(turn);
                let before = child.counts();
                child.remove(turns, index, tally);
                let after = child.counts();
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
