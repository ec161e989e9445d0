//! Leaves of a wide row: blocks of the packed format, with large columns beside them.

use std::ops::Range;

use super::{
    Child, Column, Counts, End, Handle, NODE_HEADER_BYTES, Node, Separator, Subtree, balance, spare,
};
use crate::limits::{RUN_LEAF_BYTES_MAX, WIDE_LEAF_BYTES_MAX};
use crate::value::list::elements_of;
use crate::value::row::{self, Cell, Entries, Part, RowRef};
use crate::value::{Chunked, StringRef, cost};

/// A block that grows in place may have this part of it to spare.
const SPARE_SHARE: usize = 8;

/// Neighbouring fields with their values.
#[derive(Debug)]
pub(in crate::value) struct Leaf {
    pub(super) block: Vec<u8>,
    /// See DW6 large-in-order.
    pub(super) large: Vec<Chunked>,
    /// It is part of a list.
    pub(super) has_runs: bool,
}

impl Leaf {
    pub(in crate::value) fn row(&self) -> RowRef<'_> {
        RowRef::new(&self.block)
    }

    /// The value of the field at `index`. O(1); O(fields of the leaf) for a large one.
    pub(in crate::value) fn value(&self, index: usize) -> StringRef<'_> {
        match self.row().cell(index) {
            Cell::Inline(bytes) => StringRef::Flat(bytes),
            Cell::OutOfLine => StringRef::Chunked(&self.large[self.large_before(index)]),
        }
    }

    /// The fields behind the one at `index`, if all values are in line.
    pub(in crate::value) fn entries_behind(&self, index: usize) -> Option<Entries<'_>> {
        let row = self.row().short().filter(|_| self.large.is_empty())?;
        Some(row.entries(index + 1))
    }

    /// How many elements a field of this name holds.
    pub(super) fn elements_in(&self, field: &[u8]) -> usize {
        if self.has_runs { elements_of(field) } else { 1 }
    }

    /// How many elements the fields hold. O(fields) in a list.
    pub(super) fn elements(&self) -> usize {
        let row = self.row();
        if self.has_runs {
            (0..row.len())
                .map(|index| elements_of(row.field(index)))
                .sum()
        } else {
            row.len()
        }
    }

    /// The index of the field that holds the element at `rest`, and how many of its elements are
    /// before that one.
    pub(super) fn locate(&self, mut rest: usize) -> (usize, usize) {
        if !self.has_runs {
            return (rest, 0);
        }
        let row = self.row();
        let index = (0..row.len()).find(|index| {
            let elements = elements_of(row.field(*index));
            let found = rest < elements;
            if !found {
                rest -= elements;
            }
            found
        });
        (index.expect("counts add up (DW5)"), rest)
    }

    /// See DW1 leaf-weight.
    pub(super) fn bytes_max(&self) -> usize {
        if self.has_runs {
            RUN_LEAF_BYTES_MAX
        } else {
            WIDE_LEAF_BYTES_MAX
        }
    }

    /// How many large columns precede the field at `index` (DW6 large-in-order).
    fn large_before(&self, index: usize) -> usize {
        if self.large.is_empty() {
            0
        } else {
            self.row().out_of_line_before(index)
        }
    }

    /// Whether there are as many large columns as cells that say so (DW6 large-in-order).
    fn is_in_order(&self) -> bool {
        self.row().out_of_line_before(self.row().len()) == self.large.len()
    }

    /// Bytes that a change of the leaf copies: the measure of DW1 leaf-weight and
    /// DW3 heavy-neighbours.
    pub(super) fn weight(&self) -> usize {
        self.block.len() + self.large.len() * size_of::<Chunked>()
    }

    /// The counts (DW5 exact-sums) before and after a field is set, if nothing but counts changes
    /// above the leaf then: it does not split and would merge with no neighbour. `at` comes from a
    /// search.
    pub(super) fn counts_with(
        &self,
        at: Result<usize, usize>,
        field: &[u8],
        value: &[u8],
    ) -> Option<[Counts; 2]> {
        let row = self.row();
        if !row.takes_in_place(at, field, value) {
            return None;
        }
        let fields = row.len() + usize::from(at.is_err());
        self.calmly(fields, row.bytes_with(at, field, value))
    }

    /// Bytes that a block may grow by when a field is set.
    #[inline]
    pub(super) fn room_for(field: &[u8], value: &[u8]) -> usize {
        field.len() + value.len() + row::FIELD_ROOM_BYTES
    }

    /// The same when the field at `index` is removed.
    pub(super) fn counts_without(&self, index: usize) -> Option<[Counts; 2]> {
        let row = self.row();
        let bytes = row.is_short().then(|| row.bytes_without(index))?;
        self.calmly(row.len() - 1, bytes)
    }

    /// The same when its block is changed to one of so many fields and bytes.
    fn calmly(&self, fields: usize, bytes: usize) -> Option<[Counts; 2]> {
        let weights = balance::least_bytes(self)..=self.bytes_max();
        if self.has_runs || !self.large.is_empty() || fields == 0 || !weights.contains(&bytes) {
            return None;
        }
        let counts = |fields, bytes| Counts {
            fields,
            elements: fields,
            heap_bytes: NODE_HEADER_BYTES + size_of::<Self>() + bytes,
        };
        Some([
            counts(self.row().len(), self.block.len()),
            counts(fields, bytes),
        ])
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let columns: usize = self.large.iter().map(Chunked::heap_bytes).sum();
        size_of::<Self>() + self.weight() + columns
    }

    pub(super) fn deep_copy(&self) -> Self {
        let large = self.large.iter().map(Chunked::deep_copy).collect();
        Self {
            block: self.block.clone(),
            large,
            has_runs: self.has_runs,
        }
    }

    /// The fields of `range` as a leaf of their own.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        let large = self.large_before(range.start)..self.large_before(range.end);
        Self {
            large: self.large[large].iter().map(Chunked::hand_over).collect(),
            block: row::assemble(&[Part::Rows(self.row(), range)]).into_vec(),
            has_runs: self.has_runs,
        }
    }

    /// This leaf with the fields of the next one appended.
    pub(super) fn join(&self, next: &Self) -> Self {
        cost::copied(self.weight() + next.weight());
        Self {
            block: row::assemble(&[self.row().whole(), next.row().whole()]).into_vec(),
            large: self
                .large
                .iter()
                .chain(&next.large)
                .map(Chunked::hand_over)
                .collect(),
            has_runs: self.has_runs,
        }
    }

    /// The same indices for [`Handle::split_filling`].
    fn cuts_filling(&self, end: End) -> Vec<usize> {
        let row = self.row();
        let empty = row::EMPTY.len();
        let weight = |index: usize| {
            let large = match row.cell(index) {
                Cell::Inline(_) => 0,
                Cell::OutOfLine => size_of::<Chunked>(),
            };
            row::assembled_bytes(&[Part::Rows(row, index..index + 1)]) - empty + large
        };
        let (mut cuts, mut taken) = (Vec::new(), empty);
        for step in 0..row.len() {
            let index = match end {
                End::First => row.len() - 1 - step,
                End::Last => step,
            };
            let bytes = weight(index);
            if step > 0 && taken + bytes > self.bytes_max() {
                cuts.push(if end == End::First { index + 1 } else { index });
                taken = empty;
            }
            taken += bytes;
        }
        if end == End::First {
            cuts.reverse();
        }
        debug_assert!(cuts.iter().all(|cut| (1..row.len()).contains(cut)));
        cuts
    }

    /// The indices at which the leaf is cut, in order, at least one.
    fn cuts(&self, appended: bool) -> Vec<usize> {
        let row = self.row();
        // Weight of the fields before each index.
        let mut before = vec![0];
        before.extend((0..row.len()).scan(0, |sum, index| {
            let large = match row.cell(index) {
                Cell::Inline(_) => 0,
                Cell::OutOfLine => size_of::<Chunked>(),
            };
            *sum += row::assembled_bytes(&[Part::Rows(row, index..index + 1)]) + large;
            Some(*sum)
        }));
        let mut cuts = Vec::new();
        if appended {
            cuts.push(row.len() - 1);
            cut(&before, 0..row.len() - 1, self.bytes_max(), &mut cuts);
        } else {
            cut(&before, 0..row.len(), self.bytes_max(), &mut cuts);
        }
        cuts.sort_unstable();
        debug_assert!(cuts.is_sorted_by(|one, next| one < next));
        debug_assert!(cuts.iter().all(|cut| (1..row.len()).contains(cut)));
        cuts
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        spare::give(std::mem::take(&mut self.block));
    }
}

/// Changes to the version under construction.
impl Handle<Leaf> {
    /// Replaces the leaf's block by `block`, and the large columns `old` by `new`.
    fn change(&mut self, block: Box<[u8]>, old: Range<usize>, new: Option<Chunked>) {
        let block = block.into_vec();
        if let Some(leaf) = self.get_mut() {
            leaf.block = block;
            leaf.large.splice(old, new);
        } else {
            cost::copied(block.len());
            let mut large: Vec<_> = self.large.iter().map(Chunked::hand_over).collect();
            large.splice(old, new);
            let has_runs = self.has_runs;
            *self = Handle::new(Leaf {
                block,
                large,
                has_runs,
            });
        }
        debug_assert!(self.is_in_order());
    }

    /// Makes it part of a list.
    pub(super) fn count_runs(&mut self) {
        if self.get_mut().is_none() {
            *self = Handle::new(self.part(0..self.row().len()));
        }
        let leaf = self.get_mut().expect("it is this version's own");
        leaf.has_runs = true;
    }

    /// The block of a leaf without large columns, for changes in place that add up to `room` bytes:
    /// that of a copy if somebody else holds the leaf.
    pub(super) fn own(&mut self, room: usize) -> &mut Vec<u8> {
        debug_assert!(self.large.is_empty());
        if let Some(leaf) = self.get_mut() {
            let block = &mut leaf.block;
            if block.capacity() - block.len() < room {
                // More changes may follow; what is spare is bounded by a part of the leaf.
                block.reserve_exact(room + block.len() / SPARE_SHARE);
            }
        } else {
            cost::copied(self.block.len());
            let mut block = spare::take(self.block.len() + room);
            block.extend_from_slice(&self.block);
            let (large, has_runs) = (Vec::new(), self.has_runs);
            *self = Handle::new(Leaf {
                block,
                large,
                has_runs,
            });
        }
        let leaf = self.get_mut().expect("it is this version's own");
        &mut leaf.block
    }

    /// Sets a field at its place, which was looked for.
    pub(super) fn set(&mut self, at: Result<usize, usize>, field: &[u8], column: Column<'_>) {
        let row = self.row();
        let (Ok(index) | Err(index)) = at;
        let was_large = at.is_ok() && row.cell(index) == Cell::OutOfLine;
        let first = self.large_before(index);
        if let Column::Flat(value) = column
            && self.large.is_empty()
            && row.takes_in_place(at, field, value)
        {
            let room = Leaf::room_for(field, value);
            return row::set_in(self.own(room), at, field, value);
        }
        let (cell, large) = match column {
            Column::Flat(value) => (Cell::Inline(value), None),
            Column::Large(column) => (Cell::OutOfLine, Some(column)),
        };
        let block = row::assemble(&row.with_field(at, field, cell));
        self.change(block, first..first + usize::from(was_large), large);
    }

    /// Removes neighbouring fields.
    pub(super) fn remove(&mut self, fields: Range<usize>) {
        let row = self.row();
        if self.large.is_empty() && row.is_short() {
            row::remove_from(self.own(0), fields);
            return;
        }
        let large = self.large_before(fields.start)..self.large_before(fields.end);
        let block = row::assemble(&row.without_fields(fields));
        self.change(block, large, None);
    }

    /// Adds flat columns at an end, in the order of their fields.
    pub(super) fn add(&mut self, end: End, columns: &[(&[u8], &[u8])]) {
        let bytes = columns
            .iter()
            .map(|(field, value)| field.len() + value.len());
        let bytes = bytes.sum();
        if self.large.is_empty() && self.row().takes_more_in_place(columns.len(), bytes) {
            let room = bytes + columns.len() * row::FIELD_ROOM_BYTES;
            return row::add_to(self.own(room), end, columns);
        }
        let added = columns.iter().map(|(field, value)| {
            let cell = Cell::Inline(value);
            Part::Field(field, cell)
        });
        let whole = std::iter::once(self.row().whole());
        let parts: Vec<Part<'_>> = match end {
            End::First => added.chain(whole).collect(),
            End::Last => whole.chain(added).collect(),
        };
        let block = row::assemble(&parts);
        self.change(block, 0..0, None);
    }

    /// Splits the leaf until DW1 leaf-weight holds, so that all new leaves but the one at this end
    /// are full; returns the right siblings.
    pub(super) fn split_filling(&mut self, end: End) -> Vec<Child> {
        if self.weight() <= self.bytes_max() || self.row().len() < 2 {
            return Vec::new();
        }
        let cuts = self.cuts_filling(end);
        self.split_at(&cuts)
    }

    /// Splits the leaf until DW1 leaf-weight holds; returns the new right siblings. When fields are
    /// `appended` in order, all but the last stay, so that leaves behind the appends remain full.
    pub(super) fn split(&mut self, appended: bool) -> Vec<Child> {
        if self.weight() <= self.bytes_max() || self.row().len() < 2 {
            return Vec::new();
        }
        let cuts = self.cuts(appended);
        self.split_at(&cuts)
    }

    /// Splits the leaf before the fields of these indices.
    fn split_at(&mut self, cuts: &[usize]) -> Vec<Child> {
        let ends = cuts.iter().copied().skip(1).chain([self.row().len()]);
        let right = cuts.iter().zip(ends).map(|(start, end)| {
            let separator =
                Separator::between(self.row().field(start - 1), self.row().field(*start));
            let leaf = Handle::new(self.part(*start..end));
            Child {
                separator,
                tree: Subtree::new(Node::Leaf(leaf)),
            }
        });
        let right: Vec<Child> = right.collect();
        let fields = self.row().len();
        *self = Handle::new(self.part(0..cuts[0]));
        debug_assert_eq!(
            self.row().len() + right.iter().map(|child| child.tree.fields).sum::<usize>(),
            fields
        );
        right
    }
}

/// Halves `range` by weight until every part is light enough or one field.
fn cut(before: &[usize], range: Range<usize>, bytes_max: usize, cuts: &mut Vec<usize>) {
    let weight = before[range.end] - before[range.start];
    if range.len() < 2 || weight <= bytes_max {
        return;
    }
    let heavier = |middle: &usize| {
        (before[*middle] - before[range.start]).max(before[range.end] - before[*middle])
    };
    let middle = (range.start + 1..range.end)
        .min_by_key(heavier)
        .expect("two fields at least");
    cut(before, range.start..middle, bytes_max, cuts);
    cuts.push(middle);
    cut(before, middle..range.end, bytes_max, cuts);
}
