//! Keeps the nodes of a wide row neither too large nor too small (DW1 leaf-weight,
//! DW2 interior-children, DW3 heavy-neighbours).

use super::{Child, Handle, Interior, Leaf, Node, Subtree, Tally};
use crate::limits::{WIDE_FANOUT_MAX, WIDE_FANOUT_MIN};
use crate::value::cost;

/// Leaves below this weight merge with a neighbour. Two such leaves always do, which is
/// DW3 heavy-neighbours.
pub(super) fn least_bytes(leaf: &Leaf) -> usize {
    leaf.bytes_max() / 4
}

/// Leaves merge up to this weight, so that a merged leaf does not split again at once.
fn merged_bytes_max(leaf: &Leaf) -> usize {
    leaf.bytes_max() / 4 * 3
}

/// Adopts `right` after the child at `index`, which was changed, and rebalances around it; returns
/// the new right siblings if the node splits.
///
/// `rightmost`: the row has no field after the child.
pub(super) fn settle(
    children: &mut Handle<Interior>,
    index: usize,
    right: Vec<Child>,
    rightmost: bool,
    tally: &mut Tally,
) -> Vec<Child> {
    if right.is_empty() && is_settled(children, index) {
        return Vec::new();
    }
    let touched = index..=index + right.len();
    let mut list = children.take();
    let behind = list.split_off(index + 1);
    list.extend(right);
    list.extend(behind);
    for index in touched.rev() {
        repair(&mut list, index, tally);
    }
    let mut siblings = Vec::new();
    if list.len() > WIDE_FANOUT_MAX {
        let kept = if rightmost {
            list.len() - WIDE_FANOUT_MIN
        } else {
            list.len() / 2
        };
        let right = list.split_off(kept);
        let separator = right[0].separator.clone();
        siblings.push(Child {
            separator,
            tree: Subtree::new(Node::Interior(Handle::new(Interior::new(right)))),
        });
    }
    // DW2 interior-children; the root alone may have fewer.
    debug_assert!(list.len() <= WIDE_FANOUT_MAX && (siblings.is_empty() || is_whole(&list)));
    debug_assert!(are_separated(&list));
    *children = Handle::new(Interior::new(list));
    siblings
}

/// Whether the child at `index`, which was changed, is neither too small nor empty.
pub(super) fn is_settled(children: &[Child], index: usize) -> bool {
    remedy(children, index).is_none()
}

/// Whether an interior node may have these children (DW2 interior-children).
fn is_whole(children: &[Child]) -> bool {
    (WIDE_FANOUT_MIN..=WIDE_FANOUT_MAX).contains(&children.len())
}

/// Whether the separators rise (DW4 separators).
fn are_separated(children: &[Child]) -> bool {
    children[1..].is_sorted_by(|one, next| one.separator.as_bytes() < next.separator.as_bytes())
}

/// How to repair a child that is too small.
enum Remedy {
    /// It is empty.
    Remove,
    /// Merge it with the next one, or take over children from it.
    JoinNext,
    /// Merge it with the previous one, or take over children from it.
    JoinPrevious,
}

fn remedy(list: &[Child], index: usize) -> Option<Remedy> {
    let previous = index
        .checked_sub(1)
        .map(|previous| &list[previous].tree.node);
    let next = list.get(index + 1).map(|next| &next.tree.node);
    match &list[index].tree.node {
        Node::Leaf(leaf) if leaf.row().len() == 0 => Some(Remedy::Remove),
        Node::Leaf(leaf) if leaf.weight() < least_bytes(leaf) => {
            let fits = |neighbour: Option<&Node>| match neighbour {
                Some(Node::Leaf(other)) => leaf.weight() + other.weight() <= merged_bytes_max(leaf),
                _ => false,
            };
            if fits(next) {
                Some(Remedy::JoinNext)
            } else {
                fits(previous).then_some(Remedy::JoinPrevious)
            }
        }
        Node::Interior(children) if children.len() < WIDE_FANOUT_MIN => {
            let next = next.map(|_| Remedy::JoinNext);
            next.or(previous.map(|_| Remedy::JoinPrevious))
        }
        Node::Leaf(_) | Node::Interior(_) => None,
    }
}

pub(super) fn repair(list: &mut Vec<Child>, mut index: usize, tally: &mut Tally) {
    while index < list.len()
        && let Some(remedy) = remedy(list, index)
    {
        match remedy {
            Remedy::Remove => {
                tally.replace(&list[index].tree);
                list.remove(index);
                // Its neighbours are now adjacent (DW3 heavy-neighbours).
                index = index.saturating_sub(1);
            }
            Remedy::JoinNext => join(list, index, tally),
            Remedy::JoinPrevious => {
                index -= 1;
                join(list, index, tally);
            }
        }
    }
}

/// Merges the child at `index` with the next one; interior nodes with too many children for one
/// node share them evenly instead.
fn join(list: &mut Vec<Child>, index: usize, tally: &mut Tally) {
    tally.replace(&list[index].tree);
    tally.replace(&list[index + 1].tree);
    let next = list.remove(index + 1);
    let tree = &mut list[index].tree;
    match (&mut tree.node, next.tree.node) {
        (Node::Leaf(leaf), Node::Leaf(next)) => *leaf = Handle::new(leaf.join(&next)),
        (Node::Interior(children), Node::Interior(mut others)) => {
            cost::copied(children.own_bytes() + others.own_bytes());
            let mut all = children.take();
            let first = all.len();
            all.extend(others.take());
            // What nobody else holds is not shared any longer (DW7 counted-garbage).
            drop(others);
            // The first child of a node has no separator of its own (DW4 separators).
            all[first].separator = next.separator;
            // The leaves on both sides of the seam are now adjacent, and both may be light
            // (DW3 heavy-neighbours). What was cut may have left one child that is too small.
            repair(&mut all, first, tally);
            repair(&mut all, first - 1, tally);
            let right = if all.len() > WIDE_FANOUT_MAX {
                all.split_off(all.len() / 2)
            } else {
                Vec::new()
            };
            debug_assert!(right.is_empty() || (is_whole(&all) && is_whole(&right)));
            debug_assert!(are_separated(&all));
            *children = Handle::new(Interior::new(all));
            tree.recount();
            if let Some(first) = right.first() {
                let separator = first.separator.clone();
                let tree = Subtree::new(Node::Interior(Handle::new(Interior::new(right))));
                list.insert(index + 1, Child { separator, tree });
            }
            return;
        }
        _ => unreachable!("neighbours are at one depth (DW2)"),
    }
    tree.recount();
}
