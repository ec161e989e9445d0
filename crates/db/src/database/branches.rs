//! Databases of branches by their indexes (`crate::branches`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{LogEpoch, TreeId};
use pando_minuet::BranchId;
use pando_minuet::engine::Minuet;

use super::Database;
use crate::durable::catalog::{CatalogChange, Event};
use crate::durable::record;
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::session_state::SessionState;

impl Database {
    /// How many branches there are, where the engine has any.
    #[must_use]
    pub fn branches(&self) -> Option<usize> {
        self.store.branching().map(|_| self.branches.seen())
    }

    /// Whether there are others than the first, hidden ones among them.
    pub(crate) fn is_branched(&self) -> bool {
        self.store.branching().is_some() && self.branches.len() > 1
    }

    /// How many of them, but the first, end with the process.
    #[must_use]
    pub fn branches_that_end_here(&self) -> Option<usize> {
        let others = self.branches()? - 1;
        Some(if self.keeps_branches() { 0 } else { others })
    }

    /// Whether branches, and named snapshots, outlast the process by the log.
    pub(crate) fn keeps_branches(&self) -> bool {
        self.durable.is_some() && self.store.branching().is_some()
    }

    /// Whether what becomes of branches is told to anybody: to the log, or to followers.
    pub(crate) fn tells_of_branches(&self) -> bool {
        self.store.branching().is_some() && (self.durable.is_some() || self.is_followed())
    }

    /// Counts a change of branches or lasting snapshots, and logs it for whoever is told, behind
    /// all that was logged in epochs up to `point`. The caller holds all gates.
    pub(crate) fn note_change(&self, session: &mut SessionState, point: LogEpoch, event: Event) {
        assert!(self.gates.are_all_taken());
        let changes = self.branches.changes.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.tells_of_branches() {
            return;
        }
        #[cfg(test)]
        if matches!(event, Event::Branched { .. }) && is(Fault::BranchForgotten) {
            return;
        }
        // AK4 sync-waits.
        let epoch = self.epochs.current();
        self.branches.set_changed_in(epoch);
        session.observe(epoch);
        let change = CatalogChange {
            changes,
            point,
            event,
        };
        if let Some(log) = &mut session.log {
            log.append(|out| record::put_catalog(out, &change));
        }
    }

    /// Logs that a database of a branch but the first has another tree. The caller holds all gates.
    pub(crate) fn note_trees(&self, session: &mut SessionState, index: usize) {
        let branch = BranchId((index / self.databases()) as u32);
        let branch = self.branches.get(branch).expect("a branch that is there");
        let mapped = Event::Mapped {
            branch: branch.number,
            trees: branch.trees,
        };
        self.note_change(session, self.epochs.current(), mapped);
    }

    /// The index of database 0 of a branch.
    pub(crate) fn base_of(&self, branch: BranchId) -> usize {
        branch.0 as usize * self.databases()
    }

    /// The index of database 0 of the mainline.
    pub(crate) fn mainline(&self) -> usize {
        self.base_of(self.branches.mainline())
    }

    /// The branch of an index that is none of the first branch's, and its engine.
    pub(crate) fn branch_of(&self, index: usize) -> Option<(&Arc<Minuet>, BranchId)> {
        let branch = BranchId((index / self.databases()) as u32);
        let engine = self.store.branching()?;
        (branch != BranchId::FIRST).then_some((engine, branch))
    }

    /// Gives a database of a branch that is there another tree, and returns the former one. The
    /// caller holds all gates (B1 mapping-stands-still, NB1 list-stands-still).
    pub(crate) fn set_tree(&self, index: usize, tree: TreeId) -> TreeId {
        let Some((_, branch)) = self.branch_of(index) else {
            return self.mapping.set(index, tree, self.epochs.current());
        };
        let place = index % self.databases();
        let mut former = tree;
        self.branches.write().change(branch, |branch| {
            former = std::mem::replace(&mut branch.trees[place], tree);
        });
        former
    }

    /// The epoch in which the database of an index got its tree, if a crash could undo that.
    pub(crate) fn changed_in(&self, index: usize) -> LogEpoch {
        if index < self.databases() {
            self.mapping.changed_in(index)
        } else {
            self.branches.changed_in()
        }
    }
}
