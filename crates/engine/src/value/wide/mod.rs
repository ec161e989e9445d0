//! Large hashes: a B+-tree of columns, persistent by path copying.
//!
//! A change makes the next version of a row. It copies the leaf it touches and the interior nodes
//! above it, and shares the rest with the previous version, so HSET on a million fields copies one
//! node per level. Leaves are blocks of the packed format (see `row`); chunked columns are kept
//! beside their leaf's block. Nodes that only the new version holds are changed in place, so many
//! changes in one draft copy each node once, and those of a row that was taken from where nobody
//! else sees it ([`super::Shown`]) none.
//!
//! Invariants:
//! - **DW1 leaf-weight** A leaf weighs at most [`WIDE_LEAF_BYTES_MAX`] (that of a list
//!   [`RUN_LEAF_BYTES_MAX`]) or holds one field; it holds at least one field, unless it is the root
//!   of an empty row.
//! - **DW2 interior-children** An interior node has [`WIDE_FANOUT_MIN`] to [`WIDE_FANOUT_MAX`]
//!   children, the root at least two; all leaves are at one depth.
//! - **DW3 heavy-neighbours** Of two neighbouring leaves of one interior node at least one weighs
//!   a quarter of that bound or more.
//! - **DW4 separators** A child's separator is above every field of the previous child and at or
//!   below every field of its own. That of a node's first child is meaningless.
//! - **DW5 exact-sums** A subtree's counts of fields, of elements and of heap bytes (including
//!   nodes shared with other versions) are those of its content. A field is one element, but in a
//!   list it may hold a run of them, as its name says (`value/list/run.rs`).
//! - **DW6 large-in-order** `Leaf::large` holds the columns whose cell says so, in the order of
//!   their fields.
//! - **DW7 counted-garbage** A known tally is what [`WideRow::bytes_beyond`] finds by comparing the
//!   row that it began from with the one that has it.
//! - **DW8 ways-hold** While a row's shape is the same, the turns to the leaf that covers a field
//!   are. Whatever adds or removes nodes ends in [`WideRow::lower`], which draws another shape.
//!
//! Deliberately absent: locks and unsafe code. A version is reached through one reference and never
//! changes once it is published, unless it is taken out of where it was: that needs the only
//! reference, which engines know how to get.

mod balance;
mod beyond;
mod changes;
mod ends;
mod interior;
mod leaf;
mod remove;
mod separator;
mod set;
mod spare;
mod tally;

use std::fmt;
use std::sync::LazyLock;

use super::handle::{Handle, NODE_HEADER_BYTES};
use super::row;
use super::{Chunked, StringRef};
use crate::limits::{PACKED_ROW_BYTES_MAX, WIDE_LEVELS_MAX};
pub(super) use changes::Changes;
pub(super) use ends::End;
use interior::Interior;
pub(super) use leaf::Leaf;
use separator::Separator;
use tally::Tally;

/// A large hash; see the module's header.
pub struct WideRow {
    root: Subtree,
    /// It is a list: its fields may be runs of elements.
    has_runs: bool,
    /// See DW8 ways-hold.
    shape: u32,
    /// What the version before it does not share with it.
    tally: Tally,
}

/// Bytes of a value that is exchanged: the score of a member.
pub(super) const EXCHANGED_BYTES: usize = size_of::<f64>();

/// A column to be stored.
#[derive(Debug)]
pub(super) enum Column<'c> {
    Flat(&'c [u8]),
    Large(Chunked),
}

#[derive(Clone)]
struct Subtree {
    node: Node,
    fields: usize,
    elements: usize,
    heap_bytes: usize,
}

/// See DW5 exact-sums.
#[derive(Clone, Copy)]
struct Counts {
    fields: usize,
    elements: usize,
    heap_bytes: usize,
}

#[derive(Clone)]
enum Node {
    Leaf(Handle<Leaf>),
    Interior(Handle<Interior>),
}

#[derive(Clone)]
struct Child {
    /// See DW4.
    separator: Separator,
    tree: Subtree,
}

/// A row has fewer fields than a tree of so many levels.
const TOO_DEEP: &str = "a place has a turn for each level (DW2)";

/// The child to take at each level.
type Turns = [u8; WIDE_LEVELS_MAX];

/// Where a field is in a row, or would be: the way to its leaf, and its index in the leaf or that
/// of the first one after it. It says so as long as the row is not changed.
struct Place {
    turns: Turns,
    at: Result<usize, usize>,
}

/// The way to the leaf that covers a field, found before the field is needed: meanwhile memory
/// brings that leaf's block.
#[derive(Clone, Copy)]
pub(super) struct Way {
    turns: Turns,
    /// That of the row (DW8 ways-hold).
    shape: u32,
}

impl WideRow {
    /// A row of the fields of one block, of any weight: DW1 holds after the next change.
    pub(super) fn from_block(block: Box<[u8]>, has_runs: bool) -> Self {
        Self {
            root: Subtree::new(Node::Leaf(Handle::new(Leaf {
                block: block.into_vec(),
                large: Vec::new(),
                has_runs,
            }))),
            has_runs,
            shape: 0,
            tally: Tally::unknown(),
        }
    }

    /// Whether it is a list.
    pub(super) fn has_runs(&self) -> bool {
        self.has_runs
    }

    /// Makes a row that was built as another a list. O(size).
    pub(super) fn count_runs(&mut self) {
        if !self.has_runs {
            self.tally.lose();
            self.root.count_runs();
            self.has_runs = true;
        }
    }

    /// The block of these fields, if it takes up to `bytes_max` (at most half of
    /// [`PACKED_ROW_BYTES_MAX`]). O(bytes) then, else O(1).
    pub(super) fn to_block(&self, bytes_max: usize) -> Option<Box<[u8]>> {
        // By DW3 the nodes around so few fields take less than the other half.
        if self.root.heap_bytes > PACKED_ROW_BYTES_MAX {
            return None;
        }
        let mut parts = Vec::new();
        let mut rank = 0;
        while let Some((leaf, _)) = self.nth_leaf(rank) {
            if !leaf.large.is_empty() {
                return None;
            }
            rank += leaf.row().len();
            parts.push(leaf.row().whole());
        }
        (row::assembled_bytes(&parts) <= bytes_max).then(|| row::assemble(&parts))
    }

    /// Number of fields. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.root.fields
    }

    /// Whether there are no fields; a stored row has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap bytes of the row, including nodes shared with other versions. O(1).
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.root.heap_bytes
    }

    /// The same row, handed over to a successor value (D2 successors-share). O(1).
    #[must_use]
    pub fn hand_over(&self) -> Self {
        Self {
            root: self.root.clone(),
            has_runs: self.has_runs,
            shape: self.shape,
            tally: self.tally.follow(),
        }
    }

    /// Takes the row out of where it is, for changes in place, if it is there; leaves one without
    /// fields. O(1).
    pub(super) fn take(&mut self) -> Option<Self> {
        /// The root that is left.
        static NOTHING: LazyLock<Subtree> = LazyLock::new(|| {
            let row = WideRow::from_block(row::EMPTY.as_slice().into(), false);
            row.root
        });
        if self.is_empty() {
            return None;
        }
        Some(Self {
            root: std::mem::replace(&mut self.root, NOTHING.clone()),
            has_runs: self.has_runs,
            shape: self.shape,
            tally: self.tally.begin_anew(),
        })
    }

    /// A copy that shares nothing. O(size).
    #[must_use]
    pub fn deep_copy(&self) -> Self {
        Self {
            root: self.root.deep_copy(),
            has_runs: self.has_runs,
            shape: self.shape,
            tally: Tally::unknown(),
        }
    }

    /// How many elements the fields hold. O(1).
    pub(super) fn elements(&self) -> usize {
        self.root.elements
    }

    /// The rank of the field that holds the element at `index`, below [`Self::elements`], and how
    /// many elements of that field are before it. O(log fields + fields of a leaf).
    pub(super) fn locate(&self, index: usize) -> (usize, usize) {
        let (mut tree, mut rank, mut rest) = (&self.root, 0, index);
        loop {
            match &tree.node {
                Node::Leaf(leaf) => {
                    let (field, rest) = leaf.locate(rest);
                    return (rank + field, rest);
                }
                Node::Interior(children) => {
                    let child = children.iter().find(|child| {
                        let found = rest < child.tree.elements;
                        if !found {
                            rest -= child.tree.elements;
                            rank += child.tree.fields;
                        }
                        found
                    });
                    tree = &child.expect("counts add up (DW5)").tree;
                }
            }
        }
    }

    /// The value of a field. O(log fields).
    pub(super) fn get(&self, field: &[u8]) -> Option<StringRef<'_>> {
        let mut tree = &self.root;
        loop {
            match &tree.node {
                Node::Interior(children) => tree = &children[children.way_to(field)].tree,
                Node::Leaf(leaf) => {
                    let index = leaf.row().search_leaf(field).ok()?;
                    return Some(leaf.value(index));
                }
            }
        }
    }

    /// Where a field is, or would be. O(log fields).
    fn place_of(&self, field: &[u8]) -> (Place, &Handle<Leaf>) {
        let (mut tree, mut turns, mut level) = (&self.root, [0; WIDE_LEVELS_MAX], 0);
        loop {
            match &tree.node {
                Node::Interior(children) => {
                    let turn = children.way_to(field);
                    turns[level] = turn as u8;
                    level += 1;
                    tree = &children[turn].tree;
                }
                Node::Leaf(leaf) => {
                    let at = leaf.row().search_leaf(field);
                    return (Place { turns, at }, leaf);
                }
            }
        }
    }

    /// The way to a field, along which its leaf's block is requested. O(log fields).
    pub(super) fn way_to(&self, field: &[u8]) -> Way {
        let (mut tree, mut turns, mut level) = (&self.root, [0; WIDE_LEVELS_MAX], 0);
        while let Node::Interior(children) = &tree.node {
            let turn = children.way_to(field);
            turns[level] = turn as u8;
            level += 1;
            tree = &children[turn].tree;
        }
        if let Node::Leaf(leaf) = &tree.node {
            leaf.request();
        }
        let shape = self.shape;
        Way { turns, shape }
    }

    /// [`Self::place_of`] by a way that was found for this field, unless nodes have come or gone
    /// (DW8 ways-hold).
    fn place_along(&self, way: &Way, field: &[u8]) -> (Place, &Handle<Leaf>) {
        if way.shape != self.shape {
            return self.place_of(field);
        }
        let (mut tree, mut turns) = (&self.root, way.turns.iter());
        loop {
            match &tree.node {
                Node::Interior(children) => {
                    let turn = turns.next().expect(TOO_DEEP);
                    tree = &children[usize::from(*turn)].tree;
                }
                Node::Leaf(leaf) => {
                    let at = leaf.row().search_leaf(field);
                    let turns = way.turns;
                    return (Place { turns, at }, leaf);
                }
            }
        }
    }

    /// The leaf that holds the field at `rank`, and that field's index in it. O(log fields).
    pub(super) fn nth_leaf(&self, rank: usize) -> Option<(&Leaf, usize)> {
        let (_, leaf, index) = self.place_of_rank(rank)?;
        Some((leaf, index))
    }

    /// The same, and the child to take at each level.
    fn place_of_rank(&self, rank: usize) -> Option<(Turns, &Handle<Leaf>, usize)> {
        if rank >= self.len() {
            return None;
        }
        let (mut tree, mut turns, mut rest) = (&self.root, [0; WIDE_LEVELS_MAX], rank);
        for level in 0.. {
            match &tree.node {
                Node::Leaf(leaf) => return Some((turns, leaf, rest)),
                Node::Interior(children) => {
                    let turn = turn_to(children, tree.fields, &mut rest);
                    turns[level] = turn as u8;
                    tree = &children[turn].tree;
                }
            }
        }
        unreachable!("{TOO_DEEP}")
    }

    /// How many fields are below `field`: the rank of the first at or after it. O(log fields).
    pub(super) fn rank(&self, field: &[u8]) -> usize {
        let (mut tree, mut rank) = (&self.root, 0);
        loop {
            match &tree.node {
                Node::Leaf(leaf) => {
                    return rank + leaf.row().search_leaf(field).unwrap_or_else(|index| index);
                }
                Node::Interior(children) => {
                    let index = children.way_to(field);
                    rank += children[..index]
                        .iter()
                        .map(|child| child.tree.fields)
                        .sum::<usize>();
                    tree = &children[index].tree;
                }
            }
        }
    }
}

/// The child that holds the field at `rest` of these, which have so many; `rest` becomes its index
/// among the child's. Counts from the nearer end, as pushes and pops are at one.
fn turn_to(children: &[Child], fields: usize, rest: &mut usize) -> usize {
    let turn = if *rest < fields / 2 {
        children.iter().position(|child| {
            let found = *rest < child.tree.fields;
            if !found {
                *rest -= child.tree.fields;
            }
            found
        })
    } else {
        let mut before = fields;
        let turn = children.iter().rposition(|child| {
            before -= child.tree.fields;
            *rest >= before
        });
        *rest -= before;
        turn
    };
    turn.expect("counts add up (DW5)")
}

impl Subtree {
    fn new(node: Node) -> Self {
        let mut tree = Self {
            node,
            fields: 0,
            elements: 0,
            heap_bytes: 0,
        };
        tree.recount();
        tree
    }

    /// Updates the counts (DW5). O(fan-out).
    fn recount(&mut self) {
        match &self.node {
            Node::Leaf(leaf) => {
                self.fields = leaf.row().len();
                self.elements = leaf.elements();
                self.heap_bytes = NODE_HEADER_BYTES + leaf.heap_bytes();
            }
            Node::Interior(children) => {
                (self.fields, self.elements) = (0, 0);
                self.heap_bytes = NODE_HEADER_BYTES + children.own_bytes();
                for Child { separator, tree } in children.iter() {
                    self.fields += tree.fields;
                    self.elements += tree.elements;
                    self.heap_bytes += tree.heap_bytes + separator.heap_bytes();
                }
            }
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            fields: self.fields,
            elements: self.elements,
            heap_bytes: self.heap_bytes,
        }
    }

    /// Updates the counts after a change of a child's (DW5). O(1).
    fn change_counts(&mut self, before: Counts, after: Counts) {
        self.fields = self.fields - before.fields + after.fields;
        self.elements = self.elements - before.elements + after.elements;
        self.heap_bytes = self.heap_bytes - before.heap_bytes + after.heap_bytes;
    }

    fn count_runs(&mut self) {
        match &mut self.node {
            Node::Leaf(leaf) => leaf.count_runs(),
            Node::Interior(children) => {
                for index in 0..children.len() {
                    children.child_mut(index).0.count_runs();
                }
            }
        }
        self.recount();
    }

    fn deep_copy(&self) -> Self {
        let node = match &self.node {
            Node::Leaf(leaf) => Node::Leaf(Handle::new(leaf.deep_copy())),
            Node::Interior(children) => {
                let children = children.iter().map(|child| Child {
                    separator: child.separator.deep_copy(),
                    tree: child.tree.deep_copy(),
                });
                Node::Interior(Handle::new(Interior::new(children.collect())))
            }
        };
        Self { node, ..*self }
    }
}

impl fmt::Debug for WideRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WideRow({} fields, {} heap bytes)",
            self.len(),
            self.heap_bytes()
        )
    }
}

#[cfg(test)]
mod tests;
