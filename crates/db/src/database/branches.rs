//! Databases of branches by their indexes (`crate::branches`).

use std::sync::Arc;

use pando_engine::{LogEpoch, TreeId};
use pando_minuet::BranchId;
use pando_minuet::engine::Minuet;

use super::Database;

impl Database {
    /// How many branches there are, where the engine has any.
    #[must_use]
    pub fn branches(&self) -> Option<usize> {
        self.store.branching().map(|_| self.branches.len())
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
        let mut list = self.branches.write();
        let branch = list.get_mut(&branch).expect("a branch that is there");
        std::mem::replace(&mut branch.trees[index % self.databases()], tree)
    }

    /// The epoch in which the database of an index got its tree, if a crash could undo that.
    pub(crate) fn changed_in(&self, index: usize) -> LogEpoch {
        if index < self.databases() {
            self.mapping.changed_in(index)
        } else {
            LogEpoch::NONE
        }
    }
}
