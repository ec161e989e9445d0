//! What becomes of the branches and lasting snapshots of a followed database, done again here.
//!
//! A replica does it before it repeats the records of the epoch that says so. What is made ends an
//! epoch there, so it shows what the epochs before had written, and here too. What a branch's
//! databases are given in an epoch is what they have at its end: records of trees that left them
//! meanwhile show nothing any more.
//!
//! - **RB1 same-names** A branch has the number that it has there, its trees have theirs, and a
//!   snapshot its name. So a replica may go on behind any database that has followed the same one.
//!
//! Deliberately absent: the databases of the first branch, whose trees have other numbers here, and
//! whose mapping is a record of its own (`replication::repeat`).

use std::sync::atomic::Ordering;

use pando_engine::TreeId;
use pando_minuet::BranchId;
use pando_minuet::engine::is_of_branch;

use super::{Named, Turn};
use crate::branches::NamedBranch;
use crate::durable::bytes::{Malformed, malformed};
use crate::durable::catalog::{BranchNote, CatalogChange, Event, SnapshotNote, Source};
use crate::durable::forks::Merged;
use crate::error::CommandError;
use crate::freeze::Wanted;
use crate::remapping;

const NO_BRANCH: &str = "a branch changes that there is not";
const REFUSED: &str = "a branch cannot be changed as it was there";

fn done<R>(done: Result<R, CommandError>) -> Result<R, Malformed> {
    done.map_err(|_| Malformed { what: REFUSED })
}

impl Turn<'_> {
    /// Repeats the changes of an epoch, in their order. The turn holds all gates, and has written
    /// nothing so far. After an error some may be there.
    pub(crate) fn repeat_changes(&mut self, changes: &[CatalogChange]) -> Result<(), Malformed> {
        for change in changes {
            // Numbers that are given here later are above those given there.
            let before = change.changes.saturating_sub(1);
            let branches = &self.database.branches;
            branches.changes.fetch_max(before, Ordering::Relaxed);
            self.repeat_change(&change.event)?;
        }
        Ok(())
    }

    fn numbered(&self, number: u64) -> Result<NamedBranch, Malformed> {
        let found = self.database.branches.numbered(number);
        found.map_or(malformed(NO_BRANCH), Ok)
    }

    fn repeat_change(&mut self, event: &Event) -> Result<(), Malformed> {
        match event {
            Event::Branched { branch, source, .. } => self.repeat_branch(branch, *source),
            Event::Dropped { branch } => {
                let branch = self.numbered(*branch)?;
                done(self.drop_named(&branch))
            }
            Event::Renamed { branch, name } => {
                let branch = self.numbered(*branch)?;
                done(self.rename_named(&branch, name))
            }
            Event::Mainline { branch } => {
                let branch = self.numbered(*branch)?;
                done(self.choose_mainline(&branch))
            }
            Event::Mapped { branch, trees } => self.repeat_mapping(*branch, trees),
            Event::Frozen {
                branch,
                snapshot,
                at,
            } => self.repeat_freeze(*branch, snapshot, *at),
            Event::Released { name, .. } => {
                self.drop_lasting(|it| *it == **name);
                Ok(())
            }
            Event::Merged { branch, marks } => {
                let branch = self.numbered(*branch)?;
                self.set_merged(&branch, marks.clone());
                Ok(())
            }
            // Whatever it was, a copy of it was sent.
            Event::Planted { .. } | Event::Planting { .. } => Ok(()),
            Event::Adopted { branch, hidden, .. } => {
                let (ours, hidden) = (self.numbered(*branch)?, self.numbered(*hidden)?);
                if ours.id == BranchId::FIRST || hidden.id == BranchId::FIRST {
                    return malformed("the first branch becomes another one");
                }
                let base = self.database.base_of(ours.id);
                let all: Vec<usize> = (base..base + ours.trees.len()).collect();
                let point = self.end_epoch();
                done(self.adopt((&ours, &hidden), &ours.trees, (&all, point)))
            }
        }
    }

    fn repeat_branch(&mut self, noted: &BranchNote, source: Source) -> Result<(), Malformed> {
        let origin = match source {
            Source::Branch(number) => Named::Branch(self.numbered(number)?),
            // It is named after what it comes from.
            Source::Snapshot(_) => {
                let snapshots = self.database.snapshots.list();
                let found = snapshots.iter().find(|it| it.name == noted.origin);
                let Some(found) = found else {
                    return malformed("a branch comes from a snapshot that there is not");
                };
                Named::Snapshot(std::sync::Arc::clone(found))
            }
        };
        self.check_new(&noted.trees, self.database.databases())?;
        self.give_way_to(&noted.name);
        let named = (&*noted.name, noted.descendants_max);
        done(self.make_branch(named, &origin, Some(noted)))?;
        Ok(())
    }

    /// Trees of as many databases that no other branch has.
    fn check_new(&self, trees: &[TreeId], databases: usize) -> Result<(), Malformed> {
        let known = self.database.branches.trees();
        let is_new = |tree: &TreeId| is_of_branch(*tree) && !known.contains(tree);
        if trees.len() == databases && trees.iter().all(is_new) {
            return Ok(());
        }
        malformed("a branch has other trees than there can be")
    }

    fn repeat_mapping(&mut self, number: u64, trees: &[TreeId]) -> Result<(), Malformed> {
        let (database, branch) = (self.database, self.numbered(number)?);
        let engine = std::sync::Arc::clone(done(self.branching())?);
        if branch.id == BranchId::FIRST || trees.len() != branch.trees.len() {
            return malformed("a branch has other trees than there can be");
        }
        let new = trees.iter().filter(|tree| !branch.trees.contains(tree));
        let new: Vec<TreeId> = new.copied().collect();
        self.check_new(&new, new.len())?;
        for tree in new {
            engine.restore_tree_of(branch.id, (tree, tree), 0);
        }
        let base = database.base_of(branch.id);
        let moved = |index: &usize| branch.trees[*index] != trees[*index];
        let moved: Vec<usize> = (0..trees.len()).filter(moved).collect();
        let indexes: Vec<usize> = moved.iter().map(|index| base + index).collect();
        database.change_trees(self.session, &indexes, || {
            for index in &moved {
                database.set_tree(base + index, trees[*index]);
            }
        });
        for left in branch.trees.iter().filter(|tree| !trees.contains(tree)) {
            remapping::drop_tree(database, *left);
        }
        database.note_trees(self.session, base);
        Ok(())
    }

    fn repeat_freeze(
        &mut self,
        number: u64,
        noted: &SnapshotNote,
        at: u64,
    ) -> Result<(), Malformed> {
        let branch = self.numbered(number)?;
        self.give_way_to(&noted.name);
        let wanted = Wanted {
            name: &noted.name,
            lives: None,
            is_held: true,
            lasts: true,
            is_lent: false,
            base: self.database.base_of(branch.id),
            repeats: Some((noted.time, noted.until, at)),
        };
        done(self.freeze(&wanted)).map(|_| ())
    }

    /// Drops a snapshot of this server's own that has the name of something that comes from there.
    pub(crate) fn give_way_to(&mut self, name: &[u8]) {
        let database = self.database;
        for snapshot in database.snapshots.list().iter() {
            if *snapshot.name == *name && !snapshot.lasts {
                database.drop_snapshot(self.session, snapshot);
            }
        }
    }

    fn drop_lasting(&mut self, is_meant: impl Fn(&[u8]) -> bool) {
        let database = self.database;
        for snapshot in database.snapshots.list().iter() {
            if snapshot.lasts && is_meant(&snapshot.name) {
                database.drop_snapshot(self.session, snapshot);
            }
        }
    }

    /// Drops all branches but the first, and all lasting snapshots, where the engine has branches:
    /// others come. The turn holds all gates.
    pub(crate) fn forget_branches(&mut self) {
        let database = self.database;
        if database.store.branching().is_none() {
            return;
        }
        let first = database.branches.get(BranchId::FIRST);
        let first = first.expect("the first branch");
        let forgotten = (|| {
            if database.branches.mainline() != BranchId::FIRST {
                self.choose_mainline(&first)?;
            }
            for branch in database.branches.all() {
                if branch.id != BranchId::FIRST {
                    self.drop_named(&branch)?;
                }
            }
            // Numbers of marks will be others'.
            self.set_merged(&first, Merged::default());
            if *first.name != *b"main" {
                self.rename_named(&first, b"main")?;
            }
            Ok::<(), CommandError>(())
        })();
        forgotten.expect("these branches are there, and no others");
        self.drop_lasting(|_| true);
    }
}
