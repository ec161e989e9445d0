//! What is read and written by a tree's number: a version, and a tree in it.
//!
//! A tree of the first branch is itself. One of another branch has a number of its own, by which
//! the database knows it, and stands for a tree in that branch's version ([`Counted::base`]). So
//! the counts and the removed keys of a branch are its own, and nothing above tells branches apart.

use pando_engine::{Snapshot, TreeId};
use pando_sync::shim::Ordering;

use super::{Counted, Minuet, State};
use crate::branch::BranchId;
use crate::error::Stop;
use crate::lineage::Ancestry;
use crate::snapshot::View;
use crate::transaction::Transaction;

/// A version that is read.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) view: View,
    /// How it came to be, if there were ever branches: pointers may then lead to copies of what a
    /// version has, and to what has copies.
    pub(super) ancestry: Option<Ancestry>,
}

/// Where a tree is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) branch: BranchId,
    /// The tree's number in pages.
    pub(super) base: TreeId,
}

/// A view, and how it came to be.
pub(super) fn sight_of(
    transaction: &mut Transaction<'_>,
    view: View,
    is_branched: bool,
) -> Result<Sight, Stop> {
    let ancestry = if is_branched {
        // The views of this process are of what is there.
        Some(
            transaction
                .ancestry(view.snapshot())?
                .ok_or(Stop::Conflict)?,
        )
    } else {
        None
    };
    Ok(Sight { view, ancestry })
}

impl State {
    /// The tip of a branch, if it is there.
    pub(super) fn tip_of(&self, branch: BranchId) -> Option<&Sight> {
        if branch == BranchId::FIRST {
            Some(&self.tip)
        } else {
            self.tips.get(&branch)
        }
    }

    /// What a tree is at present: a version, and the tree's number in its pages.
    pub(super) fn present(&self, tree: TreeId) -> Option<(&Sight, TreeId)> {
        let counted = self.trees.get(&tree).filter(|counted| !counted.dropped)?;
        let sight = match self.bases.get(&tree) {
            Some(base) => base,
            None => self.tip_of(counted.branch)?,
        };
        Some((sight, counted.base))
    }

    /// The same, or what it was at a snapshot.
    pub(super) fn sight(&self, at: Option<Snapshot>, tree: TreeId) -> Option<(&Sight, TreeId)> {
        let Some(at) = at else {
            return self.present(tree);
        };
        let counted = self.trees.get(&tree).filter(|counted| !counted.dropped)?;
        let sight = self.frozen.get(&at).expect("it is not released");
        Some((sight, counted.base))
    }

    /// Where a tree is written, if it is there.
    pub(super) fn seat(&self, tree: TreeId) -> Option<Seat> {
        let Counted {
            dropped,
            branch,
            base,
            ..
        } = self.trees.get(&tree)?;
        let (branch, base) = (*branch, *base);
        let is_there = !dropped && self.tip_of(branch).is_some() && !self.bases.contains_key(&tree);
        is_there.then_some(Seat { branch, base })
    }

    /// The tip of a seat's branch.
    pub(super) fn tip_at(&self, seat: Seat) -> &Sight {
        self.tip_of(seat.branch).expect("a branch that is there")
    }

    /// Reads the tip of a branch again, after a transaction has moved it.
    pub(super) fn renew_tip(&mut self, branch: BranchId) {
        let is_branched = self.is_branched;
        let tip = self.run(|transaction| {
            let view = transaction.tip_of(branch)?;
            sight_of(transaction, view, is_branched)
        });
        if branch == BranchId::FIRST {
            self.tip = tip;
        } else {
            self.tips.insert(branch, tip);
        }
    }

    /// From now on there are branches: every version is read with how it came to be.
    pub(super) fn note_branches(&mut self) {
        if std::mem::replace(&mut self.is_branched, true) {
            return;
        }
        let frozen = std::mem::take(&mut self.frozen);
        for (snapshot, sight) in frozen {
            let sight = self.run(|transaction| sight_of(transaction, sight.view, true));
            self.frozen.insert(snapshot, sight);
        }
        self.renew_tip(BranchId::FIRST);
    }
}

impl Minuet {
    /// After a snapshot came or went, alone in `state`.
    pub(super) fn note_frozen(&self, state: &State) {
        let newest = state.frozen.keys().next_back();
        let newest = newest.map_or(0, |newest| newest.epoch().0);
        self.newest_frozen.store(newest, Ordering::Release);
    }
}
