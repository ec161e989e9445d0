//! Steps of a large merge: another branch is built, slice by slice, while ours is written, and ours
//! becomes it.
//!
//! The base is where theirs and ours part, and what ours was when the hidden branch was made is
//! where these two part. So neither needs a lease: they stay as long as the branches do.

use std::collections::BTreeMap;

use super::{Began, Building, Key, Run, Script};
use crate::error::Stop;
use crate::snapshot::View;
use crate::transaction::Transaction;
use crate::tree::{Merge, OnConflict, TreeId};

/// The tree that is merged; of all others ours stays.
const MERGED: TreeId = TreeId(1);

/// The versions that a step works with.
struct Views {
    base: View,
    theirs: View,
    /// As it was when the hidden branch was made,
    then: View,
    /// and as it is.
    ours: View,
    hidden: View,
}

type Value = Option<Vec<u8>>;

/// What merging theirs into ours gives a key.
fn merged(base: &Value, theirs: &Value, ours: Value, takes_theirs: bool) -> Value {
    let is_conflict = ours != *base && ours != *theirs;
    if theirs == base || (is_conflict && !takes_theirs) {
        ours
    } else {
        theirs.clone()
    }
}

impl Run<'_, '_> {
    fn get_at(&mut self, view: View, key: &Key) -> Result<Value, Stop> {
        let used = std::mem::replace(&mut self.view, view);
        let value = self.get(key);
        self.view = used;
        value
    }

    /// Gives the hidden branch a value, if it has another.
    fn give(&mut self, key: &Key, value: Value) -> Result<(), Stop> {
        if self.get(key)? == value {
            return Ok(());
        }
        match value {
            Some(value) => self.put(key, value),
            None => self.remove(key),
        }
    }
}

impl Script {
    /// None: ours is not the branch any more that it was.
    fn views(
        &mut self,
        transaction: &mut Transaction<'_>,
        building: &Building,
    ) -> Result<Option<Views>, Stop> {
        let ours = transaction.tip_of(building.ours)?;
        self.gave_up = ours.snapshot.line() != building.line;
        if self.gave_up {
            return Ok(None);
        }
        let theirs = transaction.tip_of(building.theirs)?;
        let hidden = transaction.tip_of(building.hidden)?;
        Ok(Some(Views {
            base: transaction.parting(theirs, ours)?,
            theirs,
            then: transaction.parting(hidden, ours)?,
            ours,
            hidden,
        }))
    }

    /// Merges up to `limit` keys from a key on.
    pub(super) fn apply(
        &mut self,
        transaction: &mut Transaction<'_>,
        building: &Building,
        (from, limit): (&[u8], usize),
    ) -> Result<(), Stop> {
        let Some(views) = self.views(transaction, building)? else {
            return Ok(());
        };
        let sides = (views.base, views.theirs);
        self.compare(transaction, sides, (MERGED, from, limit))?;
        let mut run = Run {
            transaction,
            view: views.hidden,
            seen: &mut self.seen,
        };
        for change in &self.diffed.changes {
            let key = (change.tree, change.key.clone());
            let sides = [&change.before, &change.after];
            let [base, theirs] = sides.map(|side| side.as_ref().map(|(_, value)| value.clone()));
            let ours = run.get_at(views.then, &key)?;
            run.give(&key, merged(&base, &theirs, ours, building.takes_theirs))?;
        }
        Ok(())
    }

    /// Catches up, and lets ours become the hidden branch.
    pub(super) fn adopt(
        &mut self,
        transaction: &mut Transaction<'_>,
        building: &Building,
    ) -> Result<(), Stop> {
        let Some(views) = self.views(transaction, building)? else {
            return Ok(());
        };
        let since = Merge {
            base: views.then,
            theirs: views.ours,
            into: views.hidden,
            tree: None,
            on_conflict: OnConflict::Theirs,
            dry_run: true,
        };
        let mut changed = BTreeMap::new();
        if building.catches_up {
            for key in since.run(transaction)?.keys {
                let now = key.change.after.map(|(_, value)| value);
                changed.insert((key.change.tree, key.change.key), now);
            }
        }
        let mut run = Run {
            transaction,
            view: views.hidden,
            seen: &mut self.seen,
        };
        for (key, ours) in changed {
            let value = if key.0 == MERGED {
                let base = run.get_at(views.base, &key)?;
                let theirs = run.get_at(views.theirs, &key)?;
                merged(&base, &theirs, ours, building.takes_theirs)
            } else {
                ours
            };
            run.give(&key, value)?;
        }
        transaction.adopt_branch(building.ours, &building.name)?;
        let tip = transaction.tip_of(building.ours)?;
        let (hidden, line) = (views.hidden.snapshot, views.ours.snapshot.line());
        self.effects.left = Some(hidden);
        self.effects.over = Some(line);
        self.effects.dropped = Some(building.hidden);
        self.effects.adopted = Some((hidden.line(), line));
        self.effects.began = Some(Began {
            branch: building.ours,
            line: tip.snapshot.line(),
            from: hidden,
        });
        Ok(())
    }
}
