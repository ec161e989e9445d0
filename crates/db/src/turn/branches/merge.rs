//! BRANCH MERGE and BRANCH RESET: keys of a branch become what others have of them.
//!
//! Both look at everything first, under all gates, and write then; where very many keys differ,
//! both go another way (`build`). The writes are ordinary ones,
//! in one group: of the first branch they are logged, and recovered all or none; watches and cas
//! tokens of the keys break, and versions rise. What has not changed stays untouched.
//!
//! A merge knows three values of a key: where the branches part, theirs, and ours. If ours is as it
//! was, theirs is taken; if theirs is, or both are the same, nothing is done; else both sides have
//! changed it, and that is a conflict, unless all are hashes: then the same is asked of each field
//! (`fields`).
//! Where two part is the latest version that is in both, by merges too (`marks`). What was there is
//! known of databases that were emptied or swapped since, too (`durable::forks`).

use std::sync::Arc;

use pando_engine::{Decision, NewValue, TreeId};
use pando_minuet::BranchId;
use pando_protocol::{Reply, Request, number};

use super::build::{Aim, Build};
use super::diff::{Side, differing, same};
use super::fields::{Fields, merge_fields};
use super::marks::latest_parting;
use super::tally::Tally;
use super::{Named, Turn};
use crate::branches::NamedBranch;
use crate::commands::again;
use crate::durable::forks::parted;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};
use crate::snapshots::NamedSnapshot;

/// What becomes of keys that both sides have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    Fail,
    Ours,
    Theirs,
}

/// What a merge does about a key.
pub(super) enum Merged {
    Nothing,
    Write {
        value: Option<NewValue<'static>>,
        /// What both have changed, as of a conflict.
        conflict: Option<Fields>,
    },
    /// Both have changed it, and ours stays: these fields, or the whole value.
    Conflict(Fields),
}

impl Merged {
    /// Bytes that it takes, with what it shares with other versions.
    fn bytes(&self) -> usize {
        let value = match self {
            Self::Write { value, .. } => value.as_ref(),
            Self::Nothing | Self::Conflict(_) => None,
        };
        size_of::<Self>() + value.map_or(0, |value| value.body.as_ref().heap_bytes())
    }

    /// The fields that both have changed, if both have changed something.
    pub(super) fn conflict(&self) -> Option<&Fields> {
        match self {
            Self::Nothing => None,
            Self::Write { conflict, .. } => conflict.as_ref(),
            Self::Conflict(fields) => Some(fields),
        }
    }
}

/// The options of a merge.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) on_conflict: OnConflict,
    pub(super) is_dry: bool,
}

/// Which conflicts a merge names.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    /// So many keys and fields, at most.
    pub(super) limit: usize,
    /// Those behind this key of this database.
    pub(super) after: Option<(usize, Vec<u8>)>,
}

/// What a reset answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// How many keys differed, or nil if nobody has counted.
    Count,
    Ok,
}

impl Answer {
    pub(super) fn write(self, keys: Option<usize>, reply: &mut Reply<'_>) {
        match (self, keys) {
            (Self::Ok, _) => reply.ok(),
            (Self::Count, Some(keys)) => reply.count(keys),
            (Self::Count, None) => reply.null(),
        }
    }
}

/// Where two branches part, in each database that may differ.
pub(super) struct Parts {
    /// They are where theirs was merged last.
    is_marked: bool,
    pub(super) bases: Vec<Option<TreeId>>,
}

fn options(request: Request<'_>) -> Result<(How, Naming), CommandError> {
    let mut naming = Naming {
        limit: limits::CONFLICTS_NAMED,
        after: None,
    };
    let mut how = How {
        on_conflict: OnConflict::Fail,
        is_dry: false,
    };
    let mut at = 5;
    while at < request.len() {
        if request.is(at, "ON") && at + 2 < request.len() && request.is(at + 1, "CONFLICT") {
            how.on_conflict = if request.is(at + 2, "FAIL") {
                OnConflict::Fail
            } else if request.is(at + 2, "OURS") {
                OnConflict::Ours
            } else if request.is(at + 2, "THEIRS") {
                OnConflict::Theirs
            } else {
                return Err(CommandError::Syntax);
            };
            at += 3;
        } else if request.is(at, "DRY") && at + 1 < request.len() && request.is(at + 1, "RUN") {
            how.is_dry = true;
            at += 2;
        } else if request.is(at, "LIMIT") && at + 1 < request.len() {
            let limit = number::parse_i64(request.arg(at + 1));
            let limit = limit.ok_or(CommandError::NotAnInteger)?;
            let limit = usize::try_from(limit).map_err(|_| CommandError::NotPositive)?;
            naming.limit = limit.min(limits::CONFLICTS_NAMED_MAX);
            at += 2;
        } else if request.is(at, "AFTER") && at + 2 < request.len() {
            let database = number::parse_i64(request.arg(at + 1));
            let database = database.and_then(|database| usize::try_from(database).ok());
            let database = database.ok_or(CommandError::NotAnInteger)?;
            naming.after = Some((database, request.arg(at + 2).to_vec()));
            at += 3;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok((how, naming))
}

/// What becomes of a key.
pub(super) fn merge_key(
    keyspace: &mut Keyspace<'_>,
    [base, theirs, ours]: [Side; 3],
    key: &[u8],
    on_conflict: OnConflict,
) -> Merged {
    let now = keyspace.session.now.milliseconds();
    let [base, theirs, ours] = [base, theirs, ours].map(|side| side.value(keyspace, key));
    if same(theirs.as_ref(), base.as_ref()) || same(theirs.as_ref(), ours.as_ref()) {
        return Merged::Nothing;
    }
    if same(ours.as_ref(), base.as_ref()) {
        return Merged::Write {
            value: theirs,
            conflict: None,
        };
    }
    if let (Some(theirs), Some(ours)) = (&theirs, &ours)
        && let Some(merged) = merge_fields(base.as_ref(), [theirs, ours], on_conflict, now)
    {
        return merged;
    }
    match on_conflict {
        OnConflict::Fail | OnConflict::Ours => Merged::Conflict(Fields::new()),
        OnConflict::Theirs => Merged::Write {
            value: theirs,
            conflict: Some(Fields::new()),
        },
    }
}

pub(super) fn write(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    value: Option<&NewValue<'_>>,
) -> Result<(), CommandError> {
    match value {
        Some(value) => _ = keyspace.update(key, |_| Decision::Write(again(value)))?,
        None => _ = keyspace.remove(key),
    }
    Ok(())
}

impl Turn<'_> {
    /// BRANCH MERGE a INTO b [ON CONFLICT FAIL | OURS | THEIRS] [DRY RUN] [LIMIT n]
    /// [AFTER database key]
    pub(super) fn merge_branch(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
        if !request.is(3, "INTO") {
            return Err(CommandError::Syntax);
        }
        let (how, naming) = options(request)?;
        let [theirs, ours] = [2, 4].map(|at| self.merged_branch(request.arg(at)));
        let (theirs, ours) = (theirs?, ours?);
        if theirs.id == ours.id {
            return Err(CommandError::MergeIntoItself);
        }
        let parts = self.part([&theirs, &ours])?;
        let merged = self.merge([&theirs, &ours], &parts, (how, &naming));
        let engine = self.branching()?;
        for base in parts.bases.into_iter().flatten() {
            engine.close_base(base);
        }
        match merged {
            Ok(tally) => {
                tally.answer(how, reply);
                Ok(Progress::Done)
            }
            Err(CommandError::TooManyKeysDiffer { .. }) => {
                let aim = Aim::Merged(theirs.id);
                let build = Build::new(aim, ours.id, (how, naming), self.session.now);
                Ok(Progress::in_slices(build))
            }
            Err(error) => Err(error),
        }
    }

    /// The branch of a name, which is merged or merged into.
    fn merged_branch(&mut self, name: &[u8]) -> Result<NamedBranch, CommandError> {
        match self.branch_or_snapshot(name) {
            Ok(Named::Branch(branch)) => Ok(branch),
            Ok(Named::Snapshot(_)) => Err(CommandError::MergeOfSnapshot),
            Err(_) => Err(CommandError::NoBranch),
        }
    }

    /// Where two branches part, in all databases.
    pub(super) fn part(&self, both: [&NamedBranch; 2]) -> Result<Parts, CommandError> {
        let (database, engine) = (self.database, self.branching()?);
        let latest = latest_parting(&database.branches, both);
        let [one, other] = &latest;
        let known = parted(one.forks.as_ref(), other.forks.as_ref());
        let mut parts = Parts {
            is_marked: other.source() == Some(both[0].number),
            bases: Vec::new(),
        };
        for index in 0..database.databases() {
            let tree = |branch: &NamedBranch| database.tree(database.base_of(branch.id) + index);
            let base = engine.open_base(tree(one), tree(other), known.get(index).copied());
            let keys = both.map(|branch| database.store.len(tree(branch)));
            if base.is_none() && keys.iter().sum::<u64>() > 0 {
                for base in parts.bases.into_iter().flatten() {
                    engine.close_base(base);
                }
                return Err(CommandError::MergeApart { database: index });
            }
            parts.bases.push(base);
        }
        Ok(parts)
    }

    fn sides(&self, [theirs, ours]: [usize; 2], base: TreeId, index: usize) -> [Side; 3] {
        let tree = |branch: usize| Side::of_tree(self.database.tree(branch + index));
        [Side::of_tree(base), tree(theirs), tree(ours)]
    }

    fn merge(
        &mut self,
        both: [&NamedBranch; 2],
        parts: &Parts,
        (how, naming): (How, &Naming),
    ) -> Result<Tally, CommandError> {
        let ids = both.map(|branch| self.database.base_of(branch.id));
        // Before values are looked at: a large merge waits for no more than that.
        let mut keys: Vec<(usize, Vec<u8>)> = Vec::new();
        for (index, base) in parts.bases.iter().enumerate() {
            let Some(base) = base else { continue };
            let [base, theirs, _] = self.sides(ids, *base, index);
            self.each_difference(ids[1] + index, [base, theirs], |_, key| {
                keys.push((index, key.to_vec()));
                check_count(keys.len(), keys_max())
            })?;
        }
        // It goes on behind a mark, and theirs is what that shows.
        let is_marked = parts.is_marked && keys.is_empty();
        let mut tally = Tally::new(naming.clone());
        // What is written, and its value unless these are very large together.
        let mut writes: Vec<(usize, Vec<u8>, Option<Merged>)> = Vec::new();
        let mut room = limits::MERGED_BYTES_KEPT;
        for (index, key) in keys {
            let base = parts.bases[index].expect("it may differ");
            let sides = self.sides(ids, base, index);
            let mut keyspace = self.keyspace(ids[1] + index);
            let merged = merge_key(&mut keyspace, sides, &key, how.on_conflict);
            tally.add(index, &key, &merged);
            if matches!(merged, Merged::Write { .. }) {
                let left = room.checked_sub(merged.bytes());
                room = left.unwrap_or(room);
                writes.push((index, key, left.map(|_| merged)));
            }
        }
        if how.is_dry || tally.fails(how) {
            return Ok(tally);
        }
        // MM1 marked-as-merged: in the group of what is written.
        let marks = if is_marked {
            both[0].merged.to_vec()
        } else {
            self.mark(both[0])?
        };
        for (index, key, merged) in writes {
            let base = parts.bases[index].expect("it may differ");
            let sides = self.sides(ids, base, index);
            let mut keyspace = self.keyspace(ids[1] + index);
            let merged =
                merged.unwrap_or_else(|| merge_key(&mut keyspace, sides, &key, how.on_conflict));
            if let Merged::Write { value, .. } = merged {
                write(&mut keyspace, &key, value.as_ref())?;
            }
        }
        self.add_merged(both[1].number, &marks);
        Ok(tally)
    }

    /// Calls `visit` for each key that may differ.
    fn each_difference(
        &mut self,
        index: usize,
        sides: [Side; 2],
        mut visit: impl FnMut(&mut Keyspace<'_>, &[u8]) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let mut keyspace = self.keyspace(index);
        let mut from = Vec::new();
        loop {
            let found = differing(
                &mut keyspace,
                sides,
                b"",
                &from,
                limits::DIFFERENCES_PER_SLICE,
            );
            for key in &found.keys {
                visit(&mut keyspace, key)?;
            }
            match found.next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// BRANCH RESET name TO snapshot
    pub(super) fn reset_branch(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
        if !request.is(3, "TO") {
            return Err(CommandError::Syntax);
        }
        let database = self.database;
        let ours = database.branches.named(request.arg(2))?;
        let snapshots = &self.database.snapshots;
        let snapshot = self.session.snapshots.named(snapshots, request.arg(4))?;
        let snapshot = Arc::clone(snapshot);
        self.reset_to(&ours, snapshot, Answer::Count, reply)
    }

    /// SNAPSHOT ROLLBACK, for the branch whose database 0 has the index `base`.
    pub(in crate::turn) fn roll_back_branch(
        &mut self,
        base: usize,
        to: Arc<NamedSnapshot>,
        reply: &mut Reply<'_>,
    ) -> Handled {
        let database = self.database;
        self.check_leads()?;
        if !database.has_memory() {
            return Err(CommandError::OutOfMemory);
        }
        self.session.observe(database.branches.changed_in());
        let branch = BranchId((base / database.databases()) as u32);
        let ours = database
            .branches
            .get(branch)
            .ok_or(CommandError::BranchGone)?;
        self.reset_to(&ours, to, Answer::Ok, reply)
    }

    fn reset_to(
        &mut self,
        ours: &NamedBranch,
        snapshot: Arc<NamedSnapshot>,
        answer: Answer,
        reply: &mut Reply<'_>,
    ) -> Handled {
        let named = Named::Snapshot(Arc::clone(&snapshot));
        let may_become = self.may_become(ours, &snapshot);
        let most = if may_become {
            limits::RESET_KEYS_MAX
        } else {
            limits::MERGED_KEYS_MAX
        };
        match self.reset_keys((ours, &named), keys_max().min(most)) {
            Ok(keys) => {
                self.unmerge(ours.number, &snapshot)?;
                answer.write(Some(keys), reply);
            }
            Err(CommandError::TooManyKeysDiffer { .. }) if may_become => {
                self.become_snapshot(ours, &named)?;
                self.unmerge(ours.number, &snapshot)?;
                answer.write(None, reply);
            }
            Err(CommandError::TooManyKeysDiffer { .. }) => {
                let how = How {
                    on_conflict: OnConflict::Theirs,
                    is_dry: false,
                };
                let naming = Naming {
                    limit: 0,
                    after: None,
                };
                let aim = Aim::Reset(snapshot, answer);
                let build = Build::new(aim, ours.id, (how, naming), self.session.now);
                return Ok(Progress::in_slices(build));
            }
            Err(error) => return Err(error),
        }
        Ok(Progress::Done)
    }

    /// Makes the keys of a branch what a snapshot has of them, if few may differ; returns how many
    /// did.
    fn reset_keys(
        &mut self,
        (ours, to): (&NamedBranch, &Named),
        keys_max: usize,
    ) -> Result<usize, CommandError> {
        let base = self.database.base_of(ours.id);
        let ours = Named::Branch(ours.clone());
        let mut keys: Vec<(usize, Vec<u8>)> = Vec::new();
        for index in 0..self.database.databases() {
            let sides = [self.side(&ours, index), self.side(to, index)];
            self.each_difference(base + index, sides, |_, key| {
                keys.push((index, key.to_vec()));
                check_count(keys.len(), keys_max)
            })?;
        }
        let mut count = 0;
        for (index, key) in &keys {
            let sides = [self.side(&ours, *index), self.side(to, *index)];
            let mut keyspace = self.keyspace(base + index);
            let [now, then] = sides.map(|side| side.value(&mut keyspace, key));
            if !same(now.as_ref(), then.as_ref()) {
                write(&mut keyspace, key, then.as_ref())?;
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Keys that a merge changes in one step, at most.
fn keys_max() -> usize {
    #[cfg(test)]
    if let Some(bounds) = super::small::bounds() {
        return bounds.keys;
    }
    limits::MERGED_KEYS_MAX
}

/// Refuses more keys than are changed in one step.
fn check_count(keys: usize, keys_max: usize) -> Result<(), CommandError> {
    if keys > keys_max {
        return Err(CommandError::TooManyKeysDiffer { keys_max });
    }
    Ok(())
}
