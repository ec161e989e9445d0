//! Keys that divide a tree into parts of about equal size, derived from the shape of its nodes.
//!
//! The tree is opened from the top: the heaviest subtree is replaced by its children (those of an
//! interior node, or the layers under a border node) until there are several times as many subtrees
//! as parts. So keys with one common prefix, which are in one deep layer, are divided as evenly as
//! others. A subtree's weight is estimated along one path down (its fan-outs multiplied).
//!
//! What is read may be stale at once: boundaries are hints, and a node that changes while it is
//! read is left closed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::find::{Found, current_root};
use crate::node::{Either, Guard, NodeRef};
use crate::slice::CODE_LAYER;
use crate::tree::Tree;

/// Subtrees kept apart per part. Many, since a deep layer of many keys under one border node is
/// seen only when that node is opened.
const SUBTREES_PER_PART: usize = 256;

/// Steps after which an estimate ends: chains of layers are as long as their keys.
const ESTIMATE_STEPS_MAX: usize = 24;

/// Most nodes opened per part, so that chains of layers cost a bounded time.
const OPENED_PER_PART_MAX: usize = 512;

/// Nodes that may be opened even for few parts: the longest chain of layers, twice.
const OPENED_MIN: usize = 2 * pando_engine::limits::KEY_BYTES_MAX / crate::slice::SLICE_BYTES;

struct Subtree<'g> {
    /// Where its keys begin.
    low: Vec<u8>,
    /// The common prefix of its keys.
    prefix_bytes: usize,
    weight: f64,
    node: NodeRef<'g>,
}

impl Ord for Subtree<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.weight.total_cmp(&other.weight)
    }
}

impl PartialOrd for Subtree<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Subtree<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Subtree<'_> {}

/// See [`pando_engine::Ordered::boundaries`].
pub(crate) fn boundaries(tree: &Tree, parts: usize, guard: Guard<'_>) -> Vec<Vec<u8>> {
    if parts < 2 {
        return Vec::new();
    }
    let Ok((root, _)) = current_root(tree.root(guard)) else {
        return Vec::new();
    };
    let mut open = BinaryHeap::from([Subtree {
        low: Vec::new(),
        prefix_bytes: 0,
        weight: estimate(root, guard),
        node: root,
    }]);
    let mut closed = Vec::new();
    let opened_max = OPENED_MIN.max(parts.saturating_mul(OPENED_PER_PART_MAX));
    for _ in 0..opened_max {
        if open.len() + closed.len() >= parts.saturating_mul(SUBTREES_PER_PART) {
            break;
        }
        let Some(heaviest) = open.pop() else { break };
        let mut children = children(&heaviest, guard);
        // A border node's entries other than layers stay with the part before them.
        if children.is_empty() || !matches!(heaviest.node.either(), Either::Interior(_)) {
            let own = heaviest.weight - children.iter().map(|child| child.weight).sum::<f64>();
            closed.push((heaviest.low, own.max(1.0)));
        }
        open.extend(children.drain(..));
    }
    closed.extend(
        open.into_iter()
            .map(|subtree| (subtree.low, subtree.weight)),
    );
    closed.sort_by(|one, other| one.0.cmp(&other.0));
    cut(&closed, parts)
}

/// The keys at which each `parts`-th of the weight is complete.
fn cut(subtrees: &[(Vec<u8>, f64)], parts: usize) -> Vec<Vec<u8>> {
    let share = subtrees.iter().map(|(_, weight)| weight).sum::<f64>() / parts as f64;
    let mut boundaries: Vec<Vec<u8>> = Vec::new();
    let mut before = 0.0;
    for (low, weight) in subtrees {
        let due = (boundaries.len() + 1) as f64 * share;
        let follows = boundaries.last().map_or(&[][..], |last| &last[..]) < &low[..];
        // Half of this subtree would be beyond the boundary: it begins the next part.
        if before + weight / 2.0 >= due && follows && boundaries.len() + 1 < parts {
            boundaries.push(low.clone());
        }
        before += weight;
    }
    boundaries
}

/// The subtrees under a node, in order; none when it changes meanwhile.
fn children<'g>(parent: &Subtree<'g>, guard: Guard<'g>) -> Vec<Subtree<'g>> {
    let prefix = &parent.low[..parent.prefix_bytes];
    let mut children = Vec::new();
    let version = parent.node.version.stable();
    match parent.node.either() {
        Either::Interior(interior) => {
            for index in 0..=interior.count() {
                let low = match index {
                    0 => parent.low.clone(),
                    _ => [prefix, &interior.key(index - 1).to_be_bytes()].concat(),
                };
                // Also validates the separator read before it.
                let Some(node) = interior.validated_child(index, version) else {
                    return Vec::new();
                };
                children.push(Subtree {
                    low,
                    prefix_bytes: parent.prefix_bytes,
                    weight: estimate(node, guard),
                    node,
                });
            }
        }
        Either::Border(border) => {
            let permutation = border.permutation();
            for position in 0..permutation.count() {
                let slot = permutation.slot(position);
                let slice = border.slice(slot);
                match border.read_slot(slot, version, guard) {
                    Some((CODE_LAYER, Found::Layer(root))) => {
                        // The link may be stale after a split; a layer that is being removed is
                        // empty.
                        let Ok((node, _)) = current_root(root) else {
                            continue;
                        };
                        let low = [prefix, &slice.to_be_bytes()].concat();
                        children.push(Subtree {
                            prefix_bytes: low.len(),
                            low,
                            weight: estimate(node, guard),
                            node,
                        });
                    }
                    Some(_) => {}
                    None => return Vec::new(),
                }
            }
        }
    }
    children
}

/// About how many entries are below a node: the fan-outs along one path, multiplied.
fn estimate<'g>(mut node: NodeRef<'g>, guard: Guard<'g>) -> f64 {
    let mut weight = 1.0;
    for _ in 0..ESTIMATE_STEPS_MAX {
        let version = node.version.stable();
        match node.either() {
            Either::Interior(interior) => {
                let count = interior.count() + 1;
                weight *= count as f64;
                match interior.validated_child(count / 2, version) {
                    Some(child) => node = child,
                    None => break,
                }
            }
            Either::Border(border) => {
                let permutation = border.permutation();
                let layers = (0..permutation.count()).filter_map(|position| {
                    match border.read_slot(permutation.slot(position), version, guard) {
                        Some((CODE_LAYER, Found::Layer(root))) => Some(root),
                        _ => None,
                    }
                });
                let layers: Vec<_> = layers.collect();
                let Some(middle) = layers.get(layers.len() / 2) else {
                    return weight * permutation.count() as f64;
                };
                // Keys beside the layers count for little once there is a layer.
                weight *= layers.len() as f64;
                match current_root(*middle) {
                    Ok((root, _)) => node = root,
                    Err(_) => break,
                }
            }
        }
    }
    weight
}
