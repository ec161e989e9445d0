//! Setting fields of a wide row.

use super::{Child, Column, Node, Separator, Sought, Subtree, Tally, WideRow, balance, child_of};

impl WideRow {
    /// Sets a field in this version, which is under construction; returns whether it is new. Copies
    /// one node per level, except nodes that only this version holds.
    pub(in crate::value) fn set(&mut self, field: &[u8], column: Column<'_>) -> bool {
        if let Column::Large(_) = column {
            self.tally.lose();
        }
        let place = (field, &Sought::new(field));
        let (new, right) = self.root.set(place, column, true, &mut self.tally);
        self.adopt(right);
        self.lower();
        new
    }

    /// Makes a root above the old one and its new right siblings, if there are any.
    pub(super) fn adopt(&mut self, right: Vec<Child>) {
        if !right.is_empty() {
            let left = Child {
                separator: Separator::FIRST,
                tree: self.root.clone(),
            };
            self.root = Subtree::new(Node::Interior([left].into_iter().chain(right).collect()));
        }
    }

    /// Removes roots with a single child (DW2 interior-children).
    pub(super) fn lower(&mut self) {
        while let Node::Interior(children) = &self.root.node {
            let [only] = &**children else { return };
            self.tally.replace(&self.root);
            self.root = only.tree.clone();
        }
    }
}

impl Subtree {
    /// Sets a field; returns whether it is new, and this subtree's new right siblings. `rightmost`:
    /// the row has no field after it.
    fn set(
        &mut self,
        (field, sought): (&[u8], &Sought<'_>),
        column: Column<'_>,
        rightmost: bool,
        tally: &mut Tally,
    ) -> (bool, Vec<Child>) {
        tally.replace(self);
        let (new, right) = match &mut self.node {
            Node::Leaf(leaf) => {
                let (new, last) = leaf.set(field, column);
                (new, leaf.split(new && last && rightmost))
            }
            Node::Interior(children) => {
                let index = child_of(children, sought);
                let rightmost = rightmost && index + 1 == children.len();
                let child = &mut children.unshare()[index].tree;
                let before = child.counts();
                let (new, right) = child.set((field, sought), column, rightmost, tally);
                let after = child.counts();
                if right.is_empty() && balance::is_settled(children, index) {
                    self.change_counts(before, after);
                    return (new, right);
                }
                (
                    new,
                    balance::settle(children, index, right, rightmost, tally),
                )
            }
        };
        self.recount();
        (new, right)
    }
}
