//! Changes inside a list: LINSERT LSET LREM LTRIM.

use pando_engine::{Decision, ListDraft};
use pando_protocol::{Reply, Request};

use super::{check_element, integer, list_of, position_of, range_of, replace};
use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// LINSERT key BEFORE | AFTER pivot element
pub(super) fn insert(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let behind = if request.is(2, "AFTER") {
        true
    } else if request.is(2, "BEFORE") {
        false
    } else {
        return Err(CommandError::Syntax);
    };
    let pivot = request.arg(3);
    check_element(keyspace, request.arg(4))?;
    let element = Detached::new(request.arg(4));
    let len = keyspace.try_update(request.arg(1), |old| {
        let Some(list) = old.map(list_of).transpose()? else {
            return Ok((Decision::Keep, 0));
        };
        let Some(at) = list.iter_from(0).position(|found| found == pivot) else {
            return Ok((Decision::Keep, -1));
        };
        let mut draft = ListDraft::new(Some(list));
        draft.insert(at + usize::from(behind), element.body());
        let len = draft.len();
        Ok((replace(old, draft), len as i64))
    })?;
    reply.integer(len);
    Ok(Progress::Done)
}

/// LSET key index element
pub(super) fn set(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    check_element(keyspace, request.arg(3))?;
    let element = Detached::new(request.arg(3));
    keyspace.try_update(request.arg(1), |old| {
        let list = old.map(list_of).transpose()?;
        let list = list.ok_or(CommandError::NoSuchKey)?;
        let position = position_of(integer(request.arg(2))?, list.len());
        let mut draft = ListDraft::new(Some(list));
        let is_there = usize::try_from(position).is_ok_and(|at| draft.set(at, element.body()));
        if is_there {
            Ok((replace(old, draft), ()))
        } else {
            Err(CommandError::IndexOutOfRange)
        }
    })?;
    reply.ok();
    Ok(Progress::Done)
}

/// LREM key count element
pub(super) fn remove(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (count, element) = (integer(request.arg(2))?, request.arg(3));
    let removed = keyspace.try_update(request.arg(1), |old| {
        let Some(list) = old.map(list_of).transpose()? else {
            return Ok((Decision::Keep, 0));
        };
        let matches = list.iter_from(0).enumerate();
        let matches = matches.filter(|(_, found)| *found == element);
        let mut positions: Vec<usize> = matches.map(|(position, _)| position).collect();
        let most = match count {
            0 => usize::MAX,
            _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
        };
        if count < 0 {
            positions.drain(..positions.len().saturating_sub(most));
        } else {
            positions.truncate(most);
        }
        if positions.is_empty() {
            return Ok((Decision::Keep, 0));
        }
        let mut draft = ListDraft::new(Some(list));
        // From the end, so that the positions before stay what they are.
        for position in positions.iter().rev() {
            draft.remove(*position);
        }
        Ok((replace(old, draft), positions.len()))
    })?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// LTRIM key start stop
pub(super) fn trim(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (start, stop) = (integer(request.arg(2))?, integer(request.arg(3))?);
    keyspace.try_update(request.arg(1), |old| {
        let Some(list) = old.map(list_of).transpose()? else {
            return Ok((Decision::Keep, ()));
        };
        let kept = range_of(start, stop, list.len());
        if kept.len() == list.len() {
            return Ok((Decision::Keep, ()));
        }
        if kept.is_empty() {
            return Ok((Decision::Remove, ()));
        }
        let mut draft = ListDraft::new(Some(list));
        draft.keep(kept.start, kept.end);
        Ok((replace(old, draft), ()))
    })?;
    reply.ok();
    Ok(Progress::Done)
}
