//! Interior nodes of a wide row, and the way from one to the child that covers a field.

use std::ops::Deref;
use std::ptr;

use pando_sync::prefetch::{LINE_BYTES, prefetch_lines};

use super::{Child, Handle, Node, Subtree};
use crate::limits::WIDE_FANOUT_MAX;

/// Children in the order of their fields, at least one, and what a search asks of their separators.
#[derive(Clone)]
pub(super) struct Interior {
    /// How many bytes all separators begin with, up to [`HEAD_BYTES`].
    common: usize,
    /// These bytes, and the bits that they take of a word.
    head: u128,
    mask: u128,
    /// What follows these bytes in each separator but the first, which nobody reads
    /// (DW4 separators), as numbers that order as they do; [`u64::MAX`] for children that are not
    /// there. So a search reads a few lines of a node, and not one of each child.
    words: [u64; WIDE_FANOUT_MAX],
    /// Of leaves, whose blocks are requested on the way to them.
    blocks: [BlockNote; WIDE_FANOUT_MAX],
    children: Box<[Child]>,
}

/// Where the block of a leaf was when its parent was told: only a hint. By it a block is requested
/// before its leaf was read, which takes as long as the block does. The address of its first line,
/// and in the bits below how many lines there are, if less than these can say.
#[derive(Clone, Copy, Default)]
pub(super) struct BlockNote(usize);

const LINE_MASK: usize = LINE_BYTES - 1;

const HEAD_BYTES: usize = size_of::<u128>();
const WORD_BYTES: usize = size_of::<u64>();

impl Interior {
    pub(super) fn new(children: Vec<Child>) -> Self {
        assert!(children.len() <= WIDE_FANOUT_MAX, "DW2 interior-children");
        let (mut head, mut mask, mut common) = (0, 0, 0);
        let mut words = [u64::MAX; WIDE_FANOUT_MAX];
        if let [_, first, .., last] | [_, first @ last] = &children[..] {
            let (first, last) = (first.separator.as_bytes(), last.separator.as_bytes());
            let equal = first
                .iter()
                .zip(last)
                .take_while(|(one, other)| one == other);
            common = equal.count().min(HEAD_BYTES);
            mask = u128::MAX
                .checked_shl(8 * (HEAD_BYTES - common) as u32)
                .unwrap_or(0);
            head = head_of(first) & mask;
        }
        for (word, child) in words.iter_mut().zip(&children[1..]) {
            *word = word_at(common, child.separator.as_bytes());
        }
        let mut blocks = [BlockNote::default(); WIDE_FANOUT_MAX];
        // Fields of a list are not searched, and its ends change often.
        if let Node::Leaf(leaf) = &children[0].tree.node
            && !leaf.has_runs
        {
            for (note, child) in blocks.iter_mut().zip(&children) {
                *note = BlockNote::of(&child.tree);
            }
        }
        Self {
            common,
            head,
            mask,
            words,
            blocks,
            children: children.into_boxed_slice(),
        }
    }

    /// The index of the child that covers `field` (DW4 separators). All of a leaf's block is
    /// requested: the search in it would wait for one line after the other, and a change moves or
    /// copies most of them.
    #[inline]
    pub(super) fn way_to(&self, field: &[u8]) -> usize {
        let index = self.index_for(field);
        self.blocks[index].request();
        index
    }

    #[inline]
    fn index_for(&self, field: &[u8]) -> usize {
        let head = head_of(field) & self.mask;
        if head != self.head {
            return if head < self.head { 0 } else { self.len() - 1 };
        }
        let sought = word_at(self.common, field);
        let mut below = self.count_below(sought);
        while self.words.get(below) == Some(&sought) && self.is_at(below + 1, field) {
            below += 1;
        }
        below
    }

    /// How many words are below the one that is sought. No branch is mispredicted.
    #[inline]
    fn count_below(&self, sought: u64) -> usize {
        const _: () = assert!(WIDE_FANOUT_MAX.is_power_of_two());
        let (mut below, mut step) = (0, WIDE_FANOUT_MAX / 2);
        // The last word belongs to no child, and is not below any.
        while step > 0 {
            let is_below = self.words[(below + step - 1) % WIDE_FANOUT_MAX] < sought;
            below += step * usize::from(is_below);
            step /= 2;
        }
        below
    }

    /// Whether the separator of the child at `index`, if there is one, is at or below `field`.
    #[inline(never)]
    fn is_at(&self, index: usize, field: &[u8]) -> bool {
        let child = self.children.get(index);
        child.is_some_and(|child| child.separator.as_bytes() <= field)
    }

    /// Heap bytes beside the nodes below and long separators.
    pub(super) fn own_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.children)
    }
}

impl Deref for Interior {
    type Target = [Child];

    #[inline]
    fn deref(&self) -> &[Child] {
        &self.children
    }
}

impl BlockNote {
    fn of(tree: &Subtree) -> Self {
        match &tree.node {
            Node::Leaf(leaf) => Self::at(&leaf.block),
            Node::Interior(_) => Self::default(),
        }
    }

    #[inline]
    pub(super) fn at(block: &[u8]) -> Self {
        let start = block.as_ptr().addr();
        let lines = (start % LINE_BYTES + block.len()).div_ceil(LINE_BYTES);
        Self(start & !LINE_MASK | lines.min(LINE_MASK))
    }

    #[inline]
    fn request(self) {
        let (start, lines) = (self.0 & !LINE_MASK, self.0 & LINE_MASK);
        prefetch_lines(ptr::without_provenance(start), lines * LINE_BYTES);
    }
}

/// Changes to the version under construction.
impl Handle<Interior> {
    /// A subtree, whose separator stays, and what is noted of it, for whoever moves a block: those
    /// of a copy if somebody else holds the node.
    #[inline]
    pub(super) fn child_mut(&mut self, index: usize) -> (&mut Subtree, &mut BlockNote) {
        let node = self.unshare_of(Interior::own_bytes);
        (&mut node.children[index].tree, &mut node.blocks[index])
    }

    /// Notes where the block of a child is now, if this is a leaf.
    pub(super) fn note(&mut self, index: usize) {
        let (tree, note) = self.child_mut(index);
        *note = BlockNote::of(tree);
    }

    /// The children, of which others are made.
    pub(super) fn take(&mut self) -> Vec<Child> {
        match self.get_mut() {
            Some(node) => std::mem::take(&mut node.children).into_vec(),
            None => self.children.to_vec(),
        }
    }
}

/// The first bytes, padded with zeros, as a number that orders as they do.
#[inline]
fn head_of(bytes: &[u8]) -> u128 {
    match bytes.first_chunk() {
        Some(head) => u128::from_be_bytes(*head),
        None => u128::from_be_bytes(padded(bytes)),
    }
}

/// The same of the bytes from `start` on.
#[inline]
fn word_at(start: usize, bytes: &[u8]) -> u64 {
    let Some(rest) = bytes.get(start..) else {
        return 0;
    };
    match (rest.first_chunk(), bytes.last_chunk()) {
        (Some(word), _) => u64::from_be_bytes(*word),
        // The last bytes in one word: what is before the rest is shifted out.
        (None, Some(last)) if !rest.is_empty() => {
            u64::from_be_bytes(*last) << (8 * (WORD_BYTES - rest.len()))
        }
        _ => u64::from_be_bytes(padded(rest)),
    }
}

#[cold]
#[inline(never)]
fn padded<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let mut padded = [0; BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Separator, WideRow};
    use super::*;
    use crate::value::row::EMPTY;

    fn string() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(vec![0, 0, 0, 1, 0xFF]);
        (0..30_usize, vec(byte, 0..10))
            .prop_map(|(zeros, rest)| [&vec![0; zeros], &rest[..]].concat())
    }

    fn child(separator: Separator) -> Child {
        let row = WideRow::from_block(EMPTY.as_slice().into(), false);
        let tree = row.root;
        Child { separator, tree }
    }

    proptest! {
        /// Short and long ones, with bytes in common or none.
        #[test]
        fn separators_order_as_their_bytes(mut strings in vec(string(), 1..16), field in string()) {
            strings.sort();
            let separators = strings.iter().map(|string| Separator::new(string));
            let first = std::iter::once(Separator::FIRST);
            let node = Interior::new(first.chain(separators).map(child).collect());
            let expected = strings.iter().filter(|string| **string <= field).count();
            prop_assert_eq!(node.way_to(&field), expected);
        }
    }
}
