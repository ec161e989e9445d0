//! The nodes of a row's version that its successor does not share.
//!
//! Both rows are traversed level by level, from the higher root down. Shared nodes are on the same
//! level, because all leaves are at one depth (DW2 interior-children), and everything below a
//! shared node is shared. So only unshared nodes are opened, about one per level between successive
//! versions.

use std::collections::HashSet;

use super::{Chunked, Node, Subtree, WideRow};

/// Nodes on both sides together behind which a shared one is looked for before all are hashed: a
/// change leaves one or two of each.
const NEAR: usize = 6;

impl WideRow {
    /// Heap bytes of the nodes and large columns that `next`, a later version, does not share: the
    /// garbage when this version is dropped. O(nodes of both that are not shared).
    #[must_use]
    pub fn bytes_beyond(&self, next: &Self) -> usize {
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
            bytes += olds.iter().map(|tree| own_bytes(tree)).sum::<usize>();
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
fn remove_shared(olds: &mut Vec<&Subtree>, nexts: &mut Vec<&Subtree>) {
    let (mut old_left, mut next_left) = (Vec::new(), Vec::new());
    let (mut old, mut next) = (&olds[..], &nexts[..]);
    loop {
        let pairs = old.iter().zip(next);
        let shared = pairs.take_while(|(old, next)| old.address() == next.address());
        let shared = shared.count();
        (old, next) = (&old[shared..], &next[shared..]);
        let Some((gone, come)) = nearest_shared(old, next) else {
            break;
        };
        old_left.extend_from_slice(&old[..gone]);
        next_left.extend_from_slice(&next[..come]);
        (old, next) = (&old[gone..], &next[come..]);
    }
    if old.len() + next.len() > NEAR + 2 {
        let of = |trees: &[&Subtree]| trees.iter().map(|tree| tree.address()).collect();
        let (in_old, in_next): (HashSet<_>, HashSet<_>) = (of(old), of(next));
        old_left.extend(old.iter().filter(|tree| !in_next.contains(&tree.address())));
        next_left.extend(next.iter().filter(|tree| !in_old.contains(&tree.address())));
    } else {
        // All pairs were compared.
        old_left.extend_from_slice(old);
        next_left.extend_from_slice(next);
    }
    (*olds, *nexts) = (old_left, next_left);
}

/// How many nodes of both are before the shared one that is nearest, if that is at most [`NEAR`].
fn nearest_shared(old: &[&Subtree], next: &[&Subtree]) -> Option<(usize, usize)> {
    let places = (1..=NEAR).flat_map(|sum| (0..=sum).map(move |gone| (gone, sum - gone)));
    let mut places = places.filter(|(gone, come)| *gone < old.len() && *come < next.len());
    places.find(|(gone, come)| old[*gone].address() == next[*come].address())
}

/// Heap bytes of a node, without its descendants.
fn own_bytes(tree: &Subtree) -> usize {
    match &tree.node {
        Node::Leaf(_) => tree.heap_bytes,
        Node::Interior(children) => {
            let below = children.iter().map(|child| child.tree.heap_bytes);
            tree.heap_bytes - below.sum::<usize>()
        }
    }
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
    fn address(&self) -> *const u8 {
        match &self.node {
            Node::Leaf(leaf) => leaf.address(),
            Node::Interior(children) => children.address(),
        }
    }
}
