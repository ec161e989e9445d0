//! BRANCH MERGE and BRANCH RESET: keys of a branch become what others have of them.
//!
//! Both look at everything first, under all gates, and write then; where very many keys differ,
//! both go another way (`build`). The writes are ordinary ones,
//! in one group: of the first branch they are logged, and recovered all or none; watches and cas
//! tokens of the keys break, and versions rise. What has not changed stays untouched.
//!
//! A merge knows three values of a key: where the branches part, theirs, and ours. If ours is as it
//! was, theirs is taken; if theirs is, or both are the same, nothing is done; else both sides have
//! changed it, and that is a conflict, unless all are hashes: then the same is asked of each field.
//! Later merges of the same branches begin where they part, too: no merge is remembered. What was
//! there is known of databases that were emptied or swapped since, too (`durable::forks`).

use std::collections::BTreeSet;
use std::sync::Arc;

use pando_engine::{BodyRef, Decision, HashDraft, HashRef, NewValue, RowTag, StringRef, TreeId};
use pando_minuet::BranchId;
use pando_protocol::{Reply, Request, number};

use super::build::{Aim, Build, Tally};
use super::diff::{Side, differing, same, same_string};
use super::{Named, Turn};
use crate::branches::NamedBranch;
use crate::commands::again;
use crate::durable::forks::parted;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

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
        is_conflict: bool,
    },
    /// Both have changed it, and ours stays.
    Conflict,
}

impl Merged {
    /// Bytes that it takes, about. O(fields).
    fn bytes(&self) -> usize {
        let value = match self {
            Self::Write { value, .. } => value.as_ref(),
            Self::Nothing | Self::Conflict => None,
        };
        let content = value.map_or(0, |value| match value.body.as_ref() {
            BodyRef::String(string) => string.len(),
            BodyRef::Row(_, row) => row
                .iter()
                .map(|(field, value)| field.len() + value.len())
                .sum(),
        });
        size_of::<Self>() + content
    }

    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Write { is_conflict, .. } => *is_conflict,
            Self::Conflict => true,
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
    pub(super) limit: usize,
    /// Those behind this key of this database.
    pub(super) after: Option<(usize, Vec<u8>)>,
}

/// Where two branches part, in each database that may differ.
pub(super) struct Parts {
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

/// The fields of a value, if it is a hash.
fn fields<'v>(value: &'v NewValue<'_>) -> Option<HashRef<'v>> {
    match value.body.as_ref() {
        BodyRef::Row(RowTag::Hash, hash) => Some(hash),
        _ => None,
    }
}

/// Merges hashes field by field; `None` if these are not all hashes.
fn merge_fields(
    base: Option<&NewValue<'_>>,
    theirs: &NewValue<'_>,
    ours: &NewValue<'_>,
    on_conflict: OnConflict,
) -> Option<Merged> {
    let then = match base {
        Some(base) => Some(fields(base)?),
        None => None,
    };
    let (there, here) = (fields(theirs)?, fields(ours)?);
    let mut names: BTreeSet<&[u8]> = there.iter().map(|(field, _)| field).collect();
    names.extend(
        then.into_iter()
            .flat_map(|then| then.iter().map(|(field, _)| field)),
    );
    let mut draft = HashDraft::new(Some(here));
    let (mut is_changed, mut is_conflict) = (false, false);
    let is_same = |one: Option<StringRef<'_>>, other: Option<StringRef<'_>>| match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => same_string(one, other),
        _ => false,
    };
    for field in names {
        let old = then.and_then(|then| then.get(field));
        let (new, own) = (there.get(field), here.get(field));
        if is_same(new, old) || is_same(new, own) {
            continue;
        }
        let clashes = !is_same(own, old);
        is_conflict |= clashes;
        if clashes && on_conflict != OnConflict::Theirs {
            continue;
        }
        is_changed = true;
        match new {
            Some(value) => _ = draft.set_body(field, value.to_body()),
            None => _ = draft.remove(field),
        }
    }
    // The rest of a value is one more field.
    let mut attributes = ours.attributes;
    let then = base
        .as_ref()
        .map(|base| base.attributes)
        .unwrap_or_default();
    if theirs.attributes.deadline != then.deadline {
        let clashes = ours.attributes.deadline != then.deadline
            && ours.attributes.deadline != theirs.attributes.deadline;
        is_conflict |= clashes;
        if !clashes || on_conflict == OnConflict::Theirs {
            is_changed |= attributes.deadline != theirs.attributes.deadline;
            attributes.deadline = theirs.attributes.deadline;
        }
    }
    if is_conflict && (!is_changed || on_conflict == OnConflict::Fail) {
        return Some(Merged::Conflict);
    }
    if !is_changed {
        return Some(Merged::Nothing);
    }
    let value = (!draft.is_empty()).then(|| NewValue {
        attributes,
        ..NewValue::new(draft.finish())
    });
    Some(Merged::Write { value, is_conflict })
}

/// What becomes of a key.
pub(super) fn merge_key(
    keyspace: &mut Keyspace<'_>,
    [base, theirs, ours]: [Side; 3],
    key: &[u8],
    on_conflict: OnConflict,
) -> Merged {
    let [base, theirs, ours] = [base, theirs, ours].map(|side| side.value(keyspace, key));
    if same(theirs.as_ref(), base.as_ref()) || same(theirs.as_ref(), ours.as_ref()) {
        return Merged::Nothing;
    }
    if same(ours.as_ref(), base.as_ref()) {
        return Merged::Write {
            value: theirs,
            is_conflict: false,
        };
    }
    if let (Some(theirs), Some(ours)) = (&theirs, &ours)
        && let Some(merged) = merge_fields(base.as_ref(), theirs, ours, on_conflict)
    {
        return merged;
    }
    match on_conflict {
        OnConflict::Fail | OnConflict::Ours => Merged::Conflict,
        OnConflict::Theirs => Merged::Write {
            value: theirs,
            is_conflict: true,
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
        let theirs = self.database.branches.named(request.arg(2))?;
        let ours = self.database.branches.named(request.arg(4))?;
        if theirs.id == ours.id {
            return Err(CommandError::MergeIntoItself);
        }
        let ids = [theirs.id, ours.id].map(|id| self.database.base_of(id));
        let parts = self.part(ids)?;
        let merged = self.merge(ids, &parts, (how, &naming));
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

    /// Where two branches part, in all databases.
    pub(super) fn part(&self, [theirs, ours]: [usize; 2]) -> Result<Parts, CommandError> {
        let (database, engine) = (self.database, self.branching()?);
        let mut parts = Parts { bases: Vec::new() };
        let forks = |base: usize| {
            let branch = BranchId((base / database.databases()) as u32);
            database
                .branches
                .get(branch)
                .and_then(|branch| branch.forks)
        };
        let [one, other] = [theirs, ours].map(forks);
        let known = parted(one.as_ref(), other.as_ref());
        for index in 0..database.databases() {
            let [one, other] = [theirs, ours].map(|base| database.tree(base + index));
            let base = engine.open_base(one, other, known.get(index).copied());
            if base.is_none() && database.store.len(one) + database.store.len(other) > 0 {
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
        ids: [usize; 2],
        parts: &Parts,
        (how, naming): (How, &Naming),
    ) -> Result<Tally, CommandError> {
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
        let named = Named::Snapshot(Arc::clone(&snapshot));
        let may_become = self.may_become(&ours, &snapshot);
        let most = if may_become {
            limits::RESET_KEYS_MAX
        } else {
            limits::MERGED_KEYS_MAX
        };
        match self.reset_keys((&ours, &named), keys_max().min(most)) {
            Ok(keys) => reply.count(keys),
            Err(CommandError::TooManyKeysDiffer { .. }) if may_become => {
                self.become_snapshot(&ours, &named)?;
                reply.null();
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
                let aim = Aim::Reset(snapshot);
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
