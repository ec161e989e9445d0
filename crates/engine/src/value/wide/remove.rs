//! Removing fields from a wide row.

use super::{Node, Sought, Subtree, Tally, WideRow, balance, child_of};

impl WideRow {
    /// Removes a field from this version, which is under construction; returns whether it existed.
    /// Copies one node per level, and neighbours where nodes merge; nothing if it did not exist.
    pub(in crate::value) fn remove(&mut self, field: &[u8]) -> bool {
        if self.get(field).is_none() {
            return false;
        }
        self.remove_present(field);
        true
    }

    /// The same of a field that is there.
    pub(in crate::value) fn remove_present(&mut self, field: &[u8]) {
        let sought = Sought::new(field);
        self.root.remove(field, &sought, &mut self.tally);
        self.lower();
    }
}

impl Subtree {
    fn remove(&mut self, field: &[u8], sought: &Sought<'_>, tally: &mut Tally) {
        tally.replace(self);
        match &mut self.node {
            Node::Leaf(leaf) => leaf.remove(field),
            Node::Interior(children) => {
                let index = child_of(children, sought);
                let child = &mut children.unshare()[index].tree;
                let before = child.counts();
                child.remove(field, sought, tally);
                let after = child.counts();
                if balance::is_settled(children, index) {
                    self.change_counts(before, after);
                    return;
                }
                let right = balance::settle(children, index, Vec::new(), false, tally);
                debug_assert!(right.is_empty());
            }
        }
        self.recount();
    }
}
