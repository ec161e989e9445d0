//! The nodes of a row's version that its successor does not share.
//!
//! Both rows are traversed level by level, from the higher root down. Shared nodes are on the same
//! level, because all leaves are at one depth (DW2 interior-children), and everything below a
//! shared node is shared. So only unshared nodes are opened, about one per level between successive
//! versions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Chunked, Node, Subtree, WideRow};

/// Nodes on both sides together behind which a shared one is looked for before any is hashed: a
/// change leaves one or two of each.
const NEAR: usize = 6;

/// Nodes on each side behind which it is looked for before all are hashed: many changes leave runs.
const FAR: usize = 64;

impl WideRow {
    /// Heap bytes of the nodes and large columns that `next`, a later version, does not share: the
    /// garbage when this version is dropped. O(1) for the predecessor of `next`, as long as no
    /// columns are large and no columns come or go at the ends, else O(nodes of both that are not
    /// shared).
    #[must_use]
    pub fn bytes_beyond(&self, next: &Self) -> usize {
        let counted = next.tally.beyond(self);
        // DW7 counted-garbage.
        debug_assert!(counted.is_none_or(|bytes| bytes == self.compared_with(next)));
        counted.unwrap_or_else(|| self.compared_with(next))
    }

    fn compared_with(&self, next: &Self) -> usize {
        let (mut olds, mut nexts) = (vec![&self.root], vec![&next.root]);
        let (mut height, mut next_height) = (self.root.height(), next.root.height());
        let mut bytes = 0;
        while !olds.is_empty() {
            if next_height > height {
                nexts = children(&nexts);
                next_height -= 1;
                continue;
            }
            if next_height == height {
                remove_shared(&mut olds, &mut nexts);
            }
            bytes += olds.iter().map(|tree| tree.own_bytes()).sum::<usize>();
            if height == 0 {
                return bytes - kept_columns(&olds, &nexts);
            }
            olds = children(&olds);
            if next_height == height {
                nexts = children(&nexts);
                next_height -= 1;
            }
            height -= 1;
        }
        bytes
    }
}

fn children<'r>(trees: &[&'r Subtree]) -> Vec<&'r Subtree> {
    let interior = trees.iter().filter_map(|tree| match &tree.node {
        Node::Leaf(_) => None,
        Node::Interior(children) => Some(children),
    });
    interior
        .flat_map(|children| children.iter().map(|child| &child.tree))
        .collect()
}

/// Removes what both have. O(nodes), with no hashing where changes are near each other.
///
/// What is shared is in the same order on both sides, that of its fields. So what is passed over on
/// the way to the nearest shared node is shared with nothing.
fn remove_shared<'r>(olds: &mut Vec<&'r Subtree>, nexts: &mut Vec<&'r Subtree>) {
    let (mut old_left, mut next_left) = (Vec::new(), Vec::new());
    let (mut old, mut next) = (&olds[..], &nexts[..]);
    loop {
        let pairs = old.iter().zip(next);
        let shared = pairs.take_while(|(old, next)| old.address() == next.address());
        let shared = shared.count();
        (old, next) = (&old[shared..], &next[shared..]);
        let found = nearest_shared(old, next).or_else(|| next_shared(old, next));
        let Some((gone, come)) = found else {
            break;
        };
        old_left.extend_from_slice(&old[..gone]);
        next_left.extend_from_slice(&next[..come]);
        (old, next) = (&old[gone..], &next[come..]);
    }
    if are_compared(old, next) {
        old_left.extend_from_slice(old);
        next_left.extend_from_slice(next);
    } else {
        let (in_old, in_next) = (addresses(old), addresses(next));
        let is_in = |of: &Addresses, tree: &Subtree| of.contains_key(&tree.address());
        old_left.extend(old.iter().filter(|tree| !is_in(&in_next, tree)));
        next_left.extend(next.iter().filter(|tree| !is_in(&in_old, tree)));
    }
    (*olds, *nexts) = (old_left, next_left);
}

/// Whether [`nearest_shared`] compares all pairs.
fn are_compared(old: &[&Subtree], next: &[&Subtree]) -> bool {
    old.len() + next.len() <= NEAR + 2
}

/// Nodes by their addresses, with their places.
type Addresses = HashMap<*const u8, usize, BuildHasherDefault<AddressHasher>>;

fn addresses(trees: &[&Subtree]) -> Addresses {
    let places = trees.iter().enumerate();
    let addresses = places.map(|(place, tree)| (tree.address(), place));
    addresses.collect()
}

/// How many nodes of both are before the first shared one, if it is within [`FAR`].
fn next_shared(old: &[&Subtree], next: &[&Subtree]) -> Option<(usize, usize)> {
    if are_compared(old, next) {
        return None;
    }
    let in_next = addresses(&next[..FAR.min(next.len())]);
    let mut places = old.iter().take(FAR).enumerate();
    places.find_map(|(gone, tree)| Some((gone, *in_next.get(&tree.address())?)))
}

/// Spreads addresses: nobody chooses them.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        /// An odd number without a pattern: the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.0 ^ address as u64).wrapping_mul(SPREAD);
        self.0 = mixed.rotate_left(u64::BITS / 2);
    }
}

/// How many nodes of both are before the shared one that is nearest, if that is at most [`NEAR`].
fn nearest_shared(old: &[&Subtree], next: &[&Subtree]) -> Option<(usize, usize)> {
    let places = (1..=NEAR).flat_map(|sum| (0..=sum).map(move |gone| (gone, sum - gone)));
    let mut places = places.filter(|(gone, come)| *gone < old.len() && *come < next.len());
    places.find(|(gone, come)| old[*gone].address() == next[*come].address())
}

/// Heap bytes of large columns of the old leaves that a new leaf also holds.
fn kept_columns(olds: &[&Subtree], nexts: &[&Subtree]) -> usize {
    fn large(tree: &Subtree) -> &[Chunked] {
        match &tree.node {
            Node::Leaf(leaf) => leaf.large.as_slice(),
            Node::Interior(_) => &[],
        }
    }
    let kept = olds.iter().flat_map(|tree| large(tree)).filter(|old| {
        let mut columns = nexts.iter().flat_map(|tree| large(tree));
        columns.any(|next| next.is_same(old))
    });
    kept.map(Chunked::heap_bytes).sum()
}

impl Subtree {
    /// Heap bytes of a node, without its descendants.
    pub(super) fn own_bytes(&self) -> usize {
        match &self.node {
            Node::Leaf(_) => self.heap_bytes,
            Node::Interior(children) => {
                let below = children.iter().map(|child| child.tree.heap_bytes);
                self.heap_bytes - below.sum::<usize>()
            }
        }
    }

    fn address(&self) -> *const u8 {
        match &self.node {
            Node::Leaf(leaf) => leaf.address(),
            Node::Interior(children) => children.address(),
        }
    }
}
