//! What one version changed since another, done to the tip: three versions, one transaction.
//!
//! Beyond the paper. A key that differs between the base and theirs is merged: if ours is as the
//! base, theirs is written; if ours is as theirs already, nothing is; otherwise both have changed
//! it, which is a conflict. The tip and what was read of it are compared by the commit. So the
//! merge happens at one moment, and nothing that others write meanwhile is lost.
//!
//! With an older snapshot as theirs, a merge takes back what was done since.

use super::diff::{Range, diff, range_of};
use super::{Change, Probe, TreeId};
use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::limits::MERGED_MAX;
use crate::snapshot::View;
use crate::transaction::Transaction;

/// What a merge does about keys that both sides have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// It changes nothing at all.
    #[default]
    Fail,
    /// It leaves ours.
    Ours,
    /// It takes theirs.
    Theirs,
}

/// A merge.
#[derive(Clone, Copy, Debug)]
pub struct Merge {
    /// What both sides come from.
    pub base: View,
    /// What is merged.
    pub theirs: View,
    /// What it is merged into: a view of the tip.
    pub into: View,
    /// The tree that is merged; none stands for all.
    pub tree: Option<TreeId>,
    /// What it does about conflicts.
    pub on_conflict: OnConflict,
    /// Whether it only says what it would do.
    pub dry_run: bool,
}

/// A key that a merge looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedKey {
    /// From the base to theirs.
    pub change: Change,
    /// What the tip had.
    pub ours: Probe,
    /// Whether both sides have changed it, and not to the same.
    pub is_conflict: bool,
    /// Whether it took theirs, or would have.
    pub takes_theirs: bool,
    /// The version that it was written with; of a removal, the version that was removed.
    pub written: Option<u64>,
}

/// What a merge did, or would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Every key that theirs changed, in order.
    pub keys: Vec<MergedKey>,
}

impl Merged {
    /// The keys that both sides have changed.
    pub fn conflicts(&self) -> impl Iterator<Item = &MergedKey> {
        self.keys.iter().filter(|key| key.is_conflict)
    }
}

impl Merge {
    /// Merges. The work follows what theirs changed. More than [`MERGED_MAX`] keys are
    /// [`Error::TooLarge`].
    pub fn run(&self, transaction: &mut Transaction<'_>) -> Result<Merged, Stop> {
        if !self.into.is_tip() {
            return Err(Error::ReadOnly.into());
        }
        transaction.require_current(self.into)?;
        let changes = self.changes(transaction)?;
        let mut merged = self.decide(transaction, changes)?;
        let fails = self.on_conflict == OnConflict::Fail && merged.conflicts().next().is_some();
        if fails {
            for key in &mut merged.keys {
                key.takes_theirs = false;
            }
        }
        if self.dry_run {
            return Ok(merged);
        }
        for key in merged.keys.iter_mut().filter(|key| key.takes_theirs) {
            let Change {
                tree, key: name, ..
            } = &key.change;
            key.written = match &key.change.after {
                Some((_, value)) => Some(tree.put(transaction, self.into, name, value)?),
                None => tree.remove(transaction, self.into, name)?,
            };
        }
        Ok(merged)
    }

    fn changes(&self, transaction: &mut Transaction<'_>) -> Result<Vec<Change>, Stop> {
        let Range { mut from, end } = match self.tree {
            Some(tree) => range_of(tree, transaction)?,
            None => Range::default(),
        };
        let mut changes = Vec::new();
        loop {
            let range = Range {
                from,
                end: end.clone(),
            };
            let part = diff(transaction, (self.base, self.theirs), range, MERGED_MAX)?;
            changes.extend(part.changes);
            if changes.len() > MERGED_MAX {
                return Err(Error::TooLarge.into());
            }
            let Some((tree, key)) = part.next else {
                return Ok(changes);
            };
            from = [&tree.0.to_be_bytes()[..], &key].concat();
        }
    }

    /// Looks at ours, and says what becomes of each key.
    fn decide(
        &self,
        transaction: &mut Transaction<'_>,
        changes: Vec<Change>,
    ) -> Result<Merged, Stop> {
        let mut merged = Merged::default();
        let mut is_away = false;
        for change in changes {
            // All that is not here is fetched in one wave.
            let ours = match change.tree.get(transaction, self.into, &change.key) {
                Err(Stop::Away) => {
                    is_away = true;
                    continue;
                }
                ours => ours?,
            };
            let value = |entry: &Option<(u64, Vec<u8>)>| entry.clone().map(|(_, value)| value);
            let (base, theirs) = (value(&change.before), value(&change.after));
            let is_ours_changed = ours.value != base && !planted(Fault::MergeBlind);
            let is_conflict = is_ours_changed && ours.value != theirs;
            let takes_theirs =
                !is_ours_changed || (is_conflict && self.on_conflict == OnConflict::Theirs);
            merged.keys.push(MergedKey {
                change,
                ours,
                is_conflict,
                takes_theirs,
                written: None,
            });
        }
        if is_away {
            return Err(Stop::Away);
        }
        Ok(merged)
    }
}
