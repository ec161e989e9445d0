//! The differences between two rows, found through the nodes they do not share.
//!
//! Both rows are walked from left to right. When both walks are at the same node, it is skipped;
//! otherwise the higher of the two nodes is opened, or both. Opened leaves queue their fields, and
//! the queues are merged. Between successive versions of a row the walks meet again right after
//! each change, so little more than the changed leaves is opened.

use std::collections::VecDeque;

use super::{Node, Subtree, WideRow};
use crate::value::StringRef;

impl WideRow {
    /// Shows the fields that differ from `old`; see `HashRef::changed_since`.
    pub(in crate::value) fn changed_since(
        &self,
        old: &Self,
        visit: &mut impl FnMut(&[u8], Option<StringRef<'_>>),
    ) {
        let (mut news, mut olds) = (vec![&self.root], vec![&old.root]);
        let mut changes = Changes::new(visit);
        loop {
            match (news.last(), olds.last()) {
                (None, None) => return changes.settle(),
                (Some(new), Some(old)) if changes.is_level() => {
                    if new.is_same(old) {
                        news.pop();
                        olds.pop();
                        continue;
                    }
                    let (new, old) = (new.height(), old.height());
                    if new >= old {
                        open(&mut news, |field, value| changes.push_new(field, value));
                    }
                    if old >= new {
                        open(&mut olds, |field, value| changes.push_old(field, value));
                    }
                }
                // The walk that is behind catches up.
                (Some(_), _) if changes.new.is_empty() => {
                    open(&mut news, |field, value| changes.push_new(field, value));
                }
                (_, Some(_)) if changes.old.is_empty() => {
                    open(&mut olds, |field, value| changes.push_old(field, value));
                }
                _ => {}
            }
            let (more_new, more_old) = (!news.is_empty(), !olds.is_empty());
            changes.merge(more_new, more_old);
        }
    }
}

/// Takes the next node of a walk: replaces it by its children, or shows its fields.
fn open<'r>(walk: &mut Vec<&'r Subtree>, mut show: impl FnMut(&'r [u8], StringRef<'r>)) {
    let Some(tree) = walk.pop() else { return };
    match &tree.node {
        Node::Leaf(leaf) => {
            for index in 0..leaf.row().len() {
                show(leaf.row().field(index), leaf.value(index));
            }
        }
        Node::Interior(children) => {
            walk.extend(children.iter().rev().map(|child| &child.tree));
        }
    }
}

impl Subtree {
    fn is_same(&self, other: &Self) -> bool {
        match (&self.node, &other.node) {
            (Node::Leaf(one), Node::Leaf(other)) => one.is_same(other),
            (Node::Interior(one), Node::Interior(other)) => one.is_same(other),
            _ => false,
        }
    }

    pub(super) fn height(&self) -> usize {
        let (mut tree, mut height) = (self, 0);
        while let Node::Interior(children) = &tree.node {
            (tree, height) = (&children[0].tree, height + 1);
        }
        height
    }
}

/// Merges fields of two rows, each in order, and shows the differences.
pub(in crate::value) struct Changes<'r, 'v, V> {
    new: VecDeque<(&'r [u8], StringRef<'r>)>,
    old: VecDeque<(&'r [u8], StringRef<'r>)>,
    visit: &'v mut V,
}

impl<'r, 'v, V: FnMut(&[u8], Option<StringRef<'_>>)> Changes<'r, 'v, V> {
    pub(in crate::value) fn new(visit: &'v mut V) -> Self {
        let (new, old) = (VecDeque::new(), VecDeque::new());
        Self { new, old, visit }
    }

    pub(in crate::value) fn push_new(&mut self, field: &'r [u8], value: StringRef<'r>) {
        self.new.push_back((field, value));
    }

    pub(in crate::value) fn push_old(&mut self, field: &'r [u8], value: StringRef<'r>) {
        self.old.push_back((field, value));
    }

    /// Whether both walks stand at the same place.
    fn is_level(&self) -> bool {
        self.new.is_empty() && self.old.is_empty()
    }

    /// Shows the rest.
    pub(in crate::value) fn settle(&mut self) {
        self.merge(false, false);
    }

    /// Merges as far as both sides are known: an empty side that may get more fields stops the
    /// other.
    fn merge(&mut self, more_new: bool, more_old: bool) {
        loop {
            match (self.new.front(), self.old.front()) {
                (Some((new, value)), Some((old, was))) => match new.cmp(old) {
                    std::cmp::Ordering::Less => {
                        (self.visit)(new, Some(*value));
                        self.new.pop_front();
                    }
                    std::cmp::Ordering::Greater => {
                        (self.visit)(old, None);
                        self.old.pop_front();
                    }
                    std::cmp::Ordering::Equal => {
                        if !is_same_value(*value, *was) {
                            (self.visit)(new, Some(*value));
                        }
                        self.new.pop_front();
                        self.old.pop_front();
                    }
                },
                (Some((new, value)), None) if !more_old => {
                    (self.visit)(new, Some(*value));
                    self.new.pop_front();
                }
                (None, Some((old, _))) if !more_new => {
                    (self.visit)(old, None);
                    self.old.pop_front();
                }
                _ => return,
            }
        }
    }
}

/// Whether two values are known to be equal: large ones by their nodes.
fn is_same_value(new: StringRef<'_>, old: StringRef<'_>) -> bool {
    match (new, old) {
        (StringRef::Flat(new), StringRef::Flat(old)) => new == old,
        (StringRef::Chunked(new), StringRef::Chunked(old)) => new.is_same(old),
        _ => false,
    }
}
