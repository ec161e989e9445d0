//! What a branch has of others by merges, and where the next merge begins.
//!
//! A merge moves the point that it begins from, as in git: what was merged once is not merged
//! again, and what was changed behind it on either side is a change. So a merge leaves a *mark*, a
//! branch that clients do not see and nobody writes, made from the source as it was merged; and the
//! target remembers the mark's number, with all that the source remembered.
//!
//! ```text
//! source ──┬──────●── (mark) ──────►      the next merge of the two, in either direction,
//!          │       ╲                      begins from the mark
//! target   └────────●─────────────►
//! ```
//!
//! Whatever a branch comes from, and whatever its marks come from, is in it. Two branches part at
//! the latest version that is in both and that one of them comes from ([`latest_parting`]), so it
//! is never before the place where they part by themselves, nor beside it. Branches and snapshots
//! that are made from a branch have what it has. A branch that becomes what a snapshot shows has
//! what that had, and its own marks of later are dropped: whoever had merged it begins at an
//! earlier version.
//!
//! Marks are branches to the engine, the log, checkpoints and replicas, which say the rest with
//! [`Event::Merged`]. Maintenance drops those that nobody has any more, or whose source has gone.
//!
//! - **MM1 marked-as-merged** A mark shows its source as it was merged: it is made under the gates
//!   under which that was kept, and it counts with the record that makes the merge count.
//!
//! Deliberately absent: what two branches have both merged of a third one, as a place to begin: it
//! may be older in all else than where they part. Nor are several latest versions merged into one
//! where two branches have merged each other crosswise; the latest one is taken.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_minuet::limits::DESCENDANTS_MAX;

use super::{Named, Turn};
use crate::branches::{Branches, NamedBranch};
use crate::database::Database;
use crate::durable::catalog::Event;
use crate::durable::forks::{Merged, parting_order};
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::error::CommandError;
use crate::limits;
use crate::snapshots::NamedSnapshot;

/// Marks whose sources are there.
fn marks_of(branches: &Branches, merged: &[u64]) -> Vec<NamedBranch> {
    let marks = merged.iter().filter_map(|mark| branches.numbered(*mark));
    let stands = |mark: &NamedBranch| {
        let source = mark.source();
        source.is_some_and(|source| branches.numbered(source).is_some())
    };
    marks.filter(stands).collect()
}

/// The two, or one and a mark that the other has, whichever part last.
pub(super) fn latest_parting(
    branches: &Branches,
    [theirs, ours]: [&NamedBranch; 2],
) -> [NamedBranch; 2] {
    let all = |branch: &NamedBranch| {
        let mut all = vec![branch.clone()];
        #[cfg(test)]
        if is(Fault::MergeForgotten) {
            return all;
        }
        all.extend(marks_of(branches, &branch.merged));
        all
    };
    let (theirs, ours) = (all(theirs), all(ours));
    let marks_of_ours = ours[1..].iter().map(|mark| [&theirs[0], mark]);
    let marks_of_theirs = theirs[1..].iter().map(|mark| [mark, &ours[0]]);
    let pairs = marks_of_ours.chain(marks_of_theirs);
    let order =
        |[one, other]: &[&NamedBranch; 2]| parting_order(one.forks.as_ref(), other.forks.as_ref());
    let latest = pairs.chain([[&theirs[0], &ours[0]]]).max_by_key(order);
    latest.expect("there are two branches").map(Clone::clone)
}

impl Turn<'_> {
    /// Keeps a branch as it is now, which is about to be merged; returns what whoever merges it has
    /// then. The turn holds all gates, and has written nothing so far.
    pub(super) fn mark(&mut self, theirs: &NamedBranch) -> Result<Vec<u64>, CommandError> {
        let branches = &self.database.branches;
        let (marks, source) = (branches.marks(), theirs.number);
        let number = branches.changes.load(Ordering::Relaxed) + 1;
        let name = format!("{source}:{number}");
        let name = [limits::MARK_PREFIX, name.as_bytes()].concat();
        let origin = Named::Branch(theirs.clone());
        let mark = self.make_branch((&name, DESCENDANTS_MAX), &origin, None)?;
        if marks.len() >= limits::MARKS_MAX {
            let stale = self.database.stale_marks();
            self.drop_named(stale.first().unwrap_or(&marks[0]))?;
        }
        Ok([&theirs.merged[..], &[mark.number]].concat())
    }

    /// A branch has merged these marks. The turn holds all gates.
    pub(super) fn add_merged(&mut self, ours: u64, marks: &[u64]) {
        let branches = &self.database.branches;
        let Some(ours) = branches.numbered(ours) else {
            return;
        };
        // The latest of each source.
        let mut merged: BTreeMap<u64, u64> = BTreeMap::new();
        for mark in marks_of(branches, &[&ours.merged, marks].concat()) {
            let source = mark.source().expect("it is a mark");
            if source != ours.number {
                let latest = merged.entry(source).or_default();
                *latest = mark.number.max(*latest);
            }
        }
        let mut merged: Vec<u64> = merged.into_values().collect();
        merged.sort_unstable();
        let older = merged.len().saturating_sub(limits::MARKS_OF_BRANCH_MAX);
        self.set_merged(&ours, merged[older..].into());
    }

    /// The turn holds all gates.
    pub(super) fn set_merged(&mut self, ours: &NamedBranch, marks: Merged) {
        let database = self.database;
        if ours.merged == marks {
            return;
        }
        let mut list = database.branches.write();
        list.change(ours.id, |branch| branch.merged = Arc::clone(&marks));
        drop(list);
        #[cfg(test)]
        if is(Fault::MergedUnlogged) {
            return;
        }
        self.note_branch(Event::Merged {
            branch: ours.number,
            marks,
        });
    }

    /// A branch has become what a snapshot shows. The turn holds all gates.
    pub(super) fn unmerge(&mut self, ours: u64, to: &NamedSnapshot) -> Result<(), CommandError> {
        let branches = &self.database.branches;
        for mark in branches.marks() {
            if mark.source() == Some(ours) && !to.place.comes_from(mark.forks.as_ref()) {
                self.drop_named(&mark)?;
            }
        }
        if let Some(ours) = branches.numbered(ours) {
            branches.write().change(ours.id, |ours| ours.resets += 1);
            self.set_merged(&ours, Arc::clone(&to.place.merged));
        }
        Ok(())
    }
}

impl Database {
    /// Marks that nobody has, or whose sources have gone. The caller holds a gate.
    pub(super) fn stale_marks(&self) -> Vec<NamedBranch> {
        let changes = self.branches.changes.load(Ordering::Relaxed);
        let changes = changes.wrapping_add(self.snapshots.changes());
        if self.branches.swept.load(Ordering::Relaxed) == changes {
            return Vec::new();
        }
        let mut marks = self.branches.marks();
        if !marks.is_empty() {
            let (all, snapshots) = (self.branches.all(), self.snapshots.list());
            let numbers: HashSet<u64> = all.iter().map(|branch| branch.number).collect();
            let of_branches = all.iter().flat_map(|branch| branch.merged.iter());
            let of_snapshots = snapshots.iter().flat_map(|it| it.place.merged.iter());
            let had: HashSet<u64> = of_branches.chain(of_snapshots).copied().collect();
            marks.retain(|mark| {
                let source = mark.source().expect("it is a mark");
                !had.contains(&mark.number) || !numbers.contains(&source)
            });
        }
        if marks.is_empty() {
            self.branches.swept.store(changes, Ordering::Relaxed);
        }
        marks
    }
}
