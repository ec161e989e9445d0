//! Changes of sets: SADD SREM SMOVE.

use pando_engine::{Decision, HashDraft, ValueRef};
use pando_protocol::{Reply, Request};

use super::{has, replace, set_of};
use crate::commands::check_member;
use crate::encoding::{SetForm, Thresholds};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// SADD key member [member …]
pub(super) fn add(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    request.args_from(2).try_for_each(check_member)?;
    let thresholds = keyspace.thresholds();
    let added = keyspace.try_update(request.arg(1), |old| {
        add_to(old, request.args_from(2), &thresholds)
    })?;
    reply.count(added);
    Ok(Progress::Done)
}

/// The decision that adds members, and how many of them are new.
fn add_to<'m>(
    old: Option<ValueRef<'_>>,
    members: impl ExactSizeIterator<Item = &'m [u8]> + Clone,
    thresholds: &Thresholds,
) -> Result<(Decision<'static>, usize), CommandError> {
    let set = old.map(set_of).transpose()?;
    // What is there already costs no copy.
    if let Some(set) = set
        && members.clone().all(|member| set.get(member).is_some())
    {
        return Ok((Decision::Keep, 0));
    }
    let mut draft = HashDraft::new(set);
    let mut encoding = old.map_or(0, |value| value.attributes.encoding);
    let added = add_members(&mut draft, &mut encoding, members, thresholds);
    Ok((replace(old, draft, encoding), added))
}

/// Adds the members of one command to a set of this encoding, which follows; returns how many are
/// new.
pub(super) fn add_members<'m>(
    draft: &mut HashDraft<'_>,
    encoding: &mut u8,
    members: impl ExactSizeIterator<Item = &'m [u8]>,
    thresholds: &Thresholds,
) -> usize {
    let (count, is_there) = (members.len(), !draft.is_empty());
    let mut form = is_there.then(|| SetForm::of(*encoding, count, thresholds));
    let mut added = 0;
    for member in members {
        let before = draft.len();
        if draft.add(member, b"") {
            added += 1;
            form.get_or_insert_with(|| SetForm::first(member, count, thresholds))
                .add(member, before, thresholds);
        }
    }
    if added > 0 {
        *encoding = form.map_or(0, SetForm::encoding);
    }
    added
}

/// SREM key member [member …]
pub(super) fn remove(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let removed =
        keyspace.try_update(request.arg(1), |old| remove_from(old, request.args_from(2)))?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// The decision that removes members, and how many of them were there.
pub(super) fn remove_from<'m>(
    old: Option<ValueRef<'_>>,
    members: impl Iterator<Item = &'m [u8]>,
) -> Result<(Decision<'static>, usize), CommandError> {
    let Some(value) = old else {
        return Ok((Decision::Keep, 0));
    };
    let mut draft = HashDraft::new(Some(set_of(value)?));
    let removed = members.filter(|member| draft.remove(member)).count();
    let decision = if removed == 0 {
        Decision::Keep
    } else {
        replace(old, draft, value.attributes.encoding)
    };
    Ok((decision, removed))
}

/// SMOVE source destination member
pub(super) fn move_to(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (source, destination, member) = (request.arg(1), request.arg(2), request.arg(3));
    let there = keyspace.look(source, |value| match value {
        None => Ok(None),
        Some(value) => set_of(value).map(|set| Some(has(Some(set), member))),
    })?;
    let Some(there) = there else {
        reply.integer(0);
        return Ok(Progress::Done);
    };
    keyspace.look(destination, |value| value.map(set_of).transpose().map(drop))?;
    if there && source != destination {
        check_member(member)?;
        keyspace.check_key(destination)?;
        let thresholds = keyspace.thresholds();
        keyspace.try_update(destination, |old| {
            add_to(old, std::iter::once(member), &thresholds)
        })?;
        keyspace.try_update(source, |old| remove_from(old, std::iter::once(member)))?;
    }
    reply.integer(there.into());
    Ok(Progress::Done)
}
