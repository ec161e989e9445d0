//! Scans in the order of the keys, both ways, of the present and of snapshots.

use std::ops::{Bound, ControlFlow};

use pando_pmem::Pmem;

use crate::node::{Found, Node, View};
use crate::record::Record;
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
        let Some(root) = self.root_node(view) else {
            return Ok(());
        };
        let mut scan = Scan {
            tree: self,
            view,
            from,
            direction,
            visit,
        };
        scan.node(root).map(drop)
    }
}

struct Scan<'t, M, F> {
    tree: &'t Tree<M>,
    view: View,
    from: Bound<&'t [u8]>,
    direction: Direction,
    visit: F,
}

impl<'t, M: Pmem, F: FnMut(Record<'_>) -> ControlFlow<()>> Scan<'t, M, F> {
    fn node(&mut self, node: Node<'t, M>) -> Result<ControlFlow<()>, Error> {
        let mut found = node.sorted(self.view);
        if !node.is_leaf() {
            self.leave_out(&mut found);
        }
        if self.direction == Direction::Backward {
            found.reverse();
        }
        for Found { entry, .. } in found {
            let goes_on = if node.is_leaf() {
                let record = self.tree.record(entry)?;
                if !self.has_begun(record.key()) {
                    continue;
                }
                (self.visit)(record)
            } else {
                self.node(self.tree.node(entry.child))?
            };
            if goes_on.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether the scan shows a key.
    fn has_begun(&self, key: &[u8]) -> bool {
        match (self.direction, self.from) {
            (_, Bound::Unbounded) => true,
            (Direction::Forward, Bound::Included(from)) => key >= from,
            (Direction::Forward, Bound::Excluded(from)) => key > from,
            (Direction::Backward, Bound::Included(from)) => key <= from,
            (Direction::Backward, Bound::Excluded(from)) => key < from,
        }
    }

    /// Leaves children out that have nothing to show.
    fn leave_out(&self, children: &mut Vec<Found>) {
        let (Bound::Included(from) | Bound::Excluded(from)) = self.from else {
            return;
        };
        let pool = &self.tree.pool;
        let is_above = |child: &Found| {
            let separator = Record::at(pool, child.entry.record);
            !child.entry.record.is_none() && separator.is_some_and(|it| it.key() > from)
        };
        let above = children.partition_point(|child| !is_above(child));
        match self.direction {
            Direction::Forward => drop(children.drain(..above.saturating_sub(1))),
            Direction::Backward => children.truncate(above),
        }
    }
}
