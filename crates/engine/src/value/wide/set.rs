//! Setting fields of a wide row.
//!
//! Most changes leave their leaf neither too heavy nor too light. Then only counts change above it,
//! by what is known beforehand (DW5 exact-sums): one walk down does all.

use super::interior::BlockNote;
use super::{
    Child, Column, Counts, EXCHANGED_BYTES, Handle, Interior, Leaf, Node, Place, Separator,
    Subtree, TOO_DEEP, Tally, Way, WideRow, balance, tally,
};
use crate::value::handle::NODE_HEADER_BYTES;
use crate::value::{StringRef, row};

impl WideRow {
    /// Sets a field in this version, which is under construction; returns whether it is new. Copies
    /// one node per level, except nodes that only this version holds.
    pub(in crate::value) fn set(&mut self, field: &[u8], column: Column<'_>) -> bool {
        let (place, leaf) = self.place_of(field);
        match column {
            Column::Flat(value) => {
                let calm = leaf.counts_with(place.at, field, value);
                self.set_flat(&place, calm, field, value)
            }
            Column::Large(_) => {
                self.tally.lose();
                self.set_at(&place, field, column)
            }
        }
    }

    /// Sets a field to a flat value unless it has a value that may stay, by one descent; returns
    /// whether it is new.
    pub(in crate::value) fn set_unless(
        &mut self,
        (field, value): (&[u8], &[u8]),
        stays: impl FnOnce(StringRef<'_>) -> bool,
    ) -> bool {
        let (place, leaf) = self.place_of(field);
        match place.at {
            Ok(index) if stays(leaf.value(index)) => false,
            at => {
                let calm = leaf.counts_with(at, field, value);
                self.set_flat(&place, calm, field, value)
            }
        }
    }

    /// Sets a field to a flat value, along a way that was found for it.
    pub(in crate::value) fn set_along(&mut self, way: &Way, field: &[u8], value: &[u8]) {
        let (place, leaf) = self.place_along(way, field);
        let calm = leaf.counts_with(place.at, field, value);
        self.set_flat(&place, calm, field, value);
    }

    /// Sets a field to a value as long as the old one, if there is one, and leaves that in its
    /// place; returns whether the field is new. Copies nothing where both are equal.
    pub(in crate::value) fn exchange(
        &mut self,
        way: &Way,
        field: &[u8],
        value: &mut [u8; EXCHANGED_BYTES],
    ) -> bool {
        let (place, leaf) = self.place_along(way, field);
        let old = place.at.ok().and_then(|index| match leaf.value(index) {
            StringRef::Flat(old) => old.try_into().ok(),
            StringRef::Chunked(_) => None,
        });
        if old == Some(*value) {
            return false;
        }
        let calm = leaf.counts_with(place.at, field, value);
        let is_new = self.set_flat(&place, calm, field, value);
        *value = old.unwrap_or(*value);
        is_new
    }

    /// Sets a field to a flat value, with what [`Leaf::counts_with`] has said of that.
    #[inline]
    fn set_flat(
        &mut self,
        place: &Place,
        calm: Option<[Counts; 2]>,
        field: &[u8],
        value: &[u8],
    ) -> bool {
        let Some(counts) = calm else {
            return self.set_at(place, field, Column::Flat(value));
        };
        let room = Leaf::room_for(field, value);
        let tally = &mut self.tally;
        let block = self.root.block_mut(&place.turns, counts, room, tally);
        row::set_in(block, place.at, field, value);
        place.at.is_err()
    }

    #[inline(never)]
    fn set_at(&mut self, Place { turns, at }: &Place, field: &[u8], column: Column<'_>) -> bool {
        let right = self
            .root
            .set(turns, (*at, field), column, true, &mut self.tally);
        self.adopt(right);
        self.lower();
        at.is_err()
    }

    /// Makes a root above the old one and its new right siblings, if there are any.
    pub(super) fn adopt(&mut self, right: Vec<Child>) {
        if !right.is_empty() {
            let left = Child {
                separator: Separator::FIRST,
                tree: self.root.clone(),
            };
            let children = [left].into_iter().chain(right).collect();
            self.root = Subtree::new(Node::Interior(Handle::new(Interior::new(children))));
        }
    }

    /// Ends a change that may have added or removed nodes: removes roots with a single child
    /// (DW2 interior-children), and forgets ways (DW8 ways-hold).
    pub(super) fn lower(&mut self) {
        self.shape = self
            .shape
            .wrapping_add(u32::from(!tally::is(tally::Fault::ShapeKept)));
        while let Node::Interior(children) = &self.root.node {
            let [only] = &***children else { return };
            self.tally.replace(&self.root);
            self.root = only.tree.clone();
        }
    }
}

impl Subtree {
    /// The block of the leaf at the end of these turns, for a change that turns its counts from the
    /// first ones into the second and takes up to `room` bytes: counts change here, at the leaf and
    /// between them.
    pub(super) fn block_mut(
        &mut self,
        turns: &[u8],
        [before, after]: [Counts; 2],
        room: usize,
        tally: &mut Tally,
    ) -> &mut Vec<u8> {
        let mut nowhere = BlockNote::default();
        let (mut tree, mut turns, mut note) = (self, turns.iter(), &mut nowhere);
        loop {
            tally.replace(tree);
            tree.change_counts(before, after);
            match &mut tree.node {
                Node::Leaf(leaf) => {
                    let block = leaf.own(room);
                    *note = BlockNote::at(block);
                    return block;
                }
                Node::Interior(children) => {
                    let turn = turns.next().expect(TOO_DEEP);
                    (tree, note) = children.child_mut(usize::from(*turn));
                }
            }
        }
    }

    /// Sets a field where it is, or would be; returns this subtree's new right siblings.
    /// `rightmost`: the row has no field after it.
    fn set(
        &mut self,
        turns: &[u8],
        (at, field): (Result<usize, usize>, &[u8]),
        column: Column<'_>,
        rightmost: bool,
        tally: &mut Tally,
    ) -> Vec<Child> {
        tally.replace(self);
        let right = match (&mut self.node, turns) {
            (Node::Leaf(leaf), _) => {
                let appended = rightmost && at == Err(leaf.row().len());
                leaf.set(at, field, column);
                let right = leaf.split(appended);
                if right.is_empty() {
                    // To count all elements anew would cost more than the change
                    // (DW5 exact-sums).
                    if at.is_err() {
                        self.fields += 1;
                        self.elements += leaf.elements_in(field);
                    }
                    self.heap_bytes = NODE_HEADER_BYTES + leaf.heap_bytes();
                    return right;
                }
                right
            }
            (Node::Interior(children), [turn, turns @ ..]) => {
                let turn = usize::from(*turn);
                let rightmost = rightmost && turn + 1 == children.len();
                let (child, _) = children.child_mut(turn);
                let before = child.counts();
                let right = child.set(turns, (at, field), column, rightmost, tally);
                let after = child.counts();
                children.note(turn);
                if right.is_empty() && balance::is_settled(children, turn) {
                    self.change_counts(before, after);
                    return right;
                }
                balance::settle(children, turn, right, rightmost, tally)
            }
            (Node::Interior(_), []) => unreachable!("{TOO_DEEP}"),
        };
        self.recount();
        right
    }
}
