//! Scans in the order of the keys, both ways, of the present and of snapshots.
//!
//! A scan goes from leaf to leaf, each by a way of its own from the root: the separators on it say
//! which keys the leaf has, and so where the next one begins.
//!
//! - **CS1 range-stands** The keys that a node may hold are the same as long as it is in the tree:
//!   whatever changes them is a split or merge, which makes new nodes. So leaves that are read one
//!   after the other leave nothing out between them and overlap nowhere.

use std::ops::{Bound, ControlFlow};

use pando_pmem::{Offset, Pmem};

use crate::node::{Found, Node, View};
use crate::record::Record;
use crate::shared::{Astray, Look, Shared};
use crate::tree::{Error, Snapshot, Tree};

/// The way of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascend.
    Forward,
    /// Keys descend.
    Backward,
}

impl<M: Pmem> Tree<M> {
    /// Shows keys and values from `from` on, until `visit` breaks or the tree ends.
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let shown = |record: Record<'_>| visit(record.key(), record.value());
        self.run(self.present(), from, direction, shown)
    }

    /// The same at a snapshot.
    pub fn scan_at(
        &self,
        at: Snapshot,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let shown = |record: Record<'_>| visit(record.key(), record.value());
        self.run(self.view(at)?, from, direction, shown)
    }

    pub(crate) fn run(
        &self,
        view: View,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.shared.scan(Look::alone(view), from, direction, visit)
    }
}

/// What a scan has of a leaf, and the keys between which it lies.
struct Stop {
    at: Offset,
    entries: Vec<Found>,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

impl<M: Pmem> Shared<M> {
    /// See [`Tree::scan`]. The caller is pinned, or the writer.
    pub(crate) fn scan(
        &self,
        look: Look,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut from = from.map(<[u8]>::to_vec);
        loop {
            let bound = from.as_ref().map(Vec::as_slice);
            let stop = match self.stop(look, bound, direction) {
                Ok(stop) => stop,
                Err(astray) => {
                    self.astray(astray, look)?;
                    continue;
                }
            };
            self.check_kept(look)?;
            let Some(mut stop) = stop else {
                return Ok(());
            };
            if direction == Direction::Backward {
                stop.entries.reverse();
            }
            for Found { entry, .. } in stop.entries {
                let record = self.record(entry)?;
                if has_begun(bound, direction, record.key()) && visit(record).is_break() {
                    return Ok(());
                }
            }
            let next = match direction {
                Direction::Forward => stop.high.map(Bound::Included),
                Direction::Backward => stop.low.map(Bound::Excluded),
            };
            let Some(next) = next else {
                return Ok(());
            };
            // CS1 range-stands: else a separator on the way is damaged.
            if !goes_on(bound, direction, &next) {
                return Err(Error::DamagedNode { at: stop.at });
            }
            from = next;
        }
    }

    /// The leaf where a scan from this bound begins; none in an empty tree.
    fn stop(
        &self,
        look: Look,
        from: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Option<Stop>, Astray> {
        let (mut low, mut high) = (None, None);
        let leaf = self.descend(look, |node| {
            let children = sorted(node, look.view)?;
            let key = |child: &Found| {
                let separator = child.entry.record;
                node.still().record(separator).map(Record::key)
            };
            let first = |child: &Found| child.entry.record.is_none();
            let index = match (from, direction) {
                (Bound::Unbounded, Direction::Forward) => 1,
                (Bound::Unbounded, Direction::Backward) => children.len(),
                (Bound::Excluded(from), Direction::Backward) => {
                    children.partition_point(|child| first(child) || key(child) < Some(from))
                }
                (Bound::Included(from) | Bound::Excluded(from), _) => {
                    children.partition_point(|child| first(child) || key(child) <= Some(from))
                }
            };
            if let Some(above) = children.get(index.max(1)) {
                high = key(above).map(<[u8]>::to_vec);
            }
            let chosen = children.get(index.max(1) - 1).copied();
            if let Some(chosen) = chosen.filter(|chosen| !first(chosen)) {
                low = key(&chosen).map(<[u8]>::to_vec);
            }
            Ok(chosen)
        })?;
        let Some(leaf) = leaf else {
            return Ok(None);
        };
        let entries = sorted(leaf, look.view)?;
        let at = leaf.at;
        Ok(Some(Stop {
            at,
            entries,
            low,
            high,
        }))
    }
}

/// What a view sees of a node, in order, if nobody changed it meanwhile and nothing of it is
/// damaged (CN5 sealed).
pub(crate) fn sorted<M: Pmem>(node: Node<'_, M>, view: View) -> Result<Vec<Found>, Astray> {
    let mut found: Vec<_> = node.seen(view).collect();
    let are_right = node.are_right();
    if !node.holds() {
        return Err(Astray::Again);
    }
    if !are_right {
        return Err(Astray::Damaged(node.at));
    }
    // CL2 judged-then-followed: from here on nothing is loaded of the node but records.
    let still = node.still();
    found.sort_by(|a, b| still.order(a.entry, b.entry));
    Ok(found)
}

/// Whether what comes next in a scan lies behind where it was.
fn goes_on(bound: Bound<&[u8]>, direction: Direction, next: &Bound<Vec<u8>>) -> bool {
    match (bound, next) {
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(next)) => {
            next.as_slice() > from
        }
        (_, Bound::Excluded(next)) => has_begun(bound, direction, next),
        _ => true,
    }
}

/// Whether a scan from there shows a key.
fn has_begun(from: Bound<&[u8]>, direction: Direction, key: &[u8]) -> bool {
    match (direction, from) {
        (_, Bound::Unbounded) => true,
        (Direction::Forward, Bound::Included(from)) => key >= from,
        (Direction::Forward, Bound::Excluded(from)) => key > from,
        (Direction::Backward, Bound::Included(from)) => key <= from,
        (Direction::Backward, Bound::Excluded(from)) => key < from,
    }
}
