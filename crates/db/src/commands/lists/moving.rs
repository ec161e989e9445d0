//! Elements that go from one list to another: LMOVE RPOPLPUSH, and BLMOVE BRPOPLPUSH, which wait
//! for one. They run under all gates, so that the element is always in one of the lists.

use pando_engine::{Decision, ListDraft, TypeTag};
use pando_protocol::{Reply, Request};

use super::pop::without;
use super::{End, list_of, replace};
use crate::clock::Microseconds;
use crate::commands::detached::{Detached, reply_bulk};
use crate::commands::waiting;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// LMOVE source destination LEFT | RIGHT LEFT | RIGHT
pub(super) fn between_ends(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let ends = (End::parse(request, 3)?, End::parse(request, 4)?);
    at_once(keyspace, request, reply, ends)
}

/// RPOPLPUSH source destination
pub(super) fn over(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    at_once(keyspace, request, reply, (End::Right, End::Left))
}

/// BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout
pub(super) fn blocking(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let ends = (End::parse(request, 3)?, End::parse(request, 4)?);
    let until = waiting::until(keyspace, request.arg(5))?;
    or_wait(keyspace, request, reply, ends, until)
}

/// BRPOPLPUSH source destination timeout
pub(super) fn blocking_over(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let until = waiting::until(keyspace, request.arg(3))?;
    or_wait(keyspace, request, reply, (End::Right, End::Left), until)
}

fn at_once(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    ends: (End, End),
) -> Handled {
    match transfer(keyspace, request.arg(1), request.arg(2), ends)? {
        Some(element) => reply_bulk(reply, element.as_ref()),
        None => reply.null(),
    }
    Ok(Progress::Done)
}

fn or_wait(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    ends: (End, End),
    until: Option<Microseconds>,
) -> Handled {
    let (source, destination) = (request.arg(1), request.arg(2));
    if keyspace.is_first(TypeTag::List, source)
        && let Some(element) = transfer(keyspace, source, destination, ends)?
    {
        reply_bulk(reply, element.as_ref());
        return Ok(Progress::Done);
    }
    Ok(waiting::for_keys(TypeTag::List, 1..2, until, true))
}

/// Moves an element; `None`: there is no list at `source`.
fn transfer(
    keyspace: &mut Keyspace<'_>,
    source: &[u8],
    destination: &[u8],
    (from, to): (End, End),
) -> Result<Option<Detached<'static>>, CommandError> {
    let element = keyspace.look(source, |value| {
        let list = value.map(list_of).transpose()?;
        let element = list.and_then(|list| match from {
            End::Left => list.get(0),
            End::Right => list.get(list.len() - 1),
        });
        Ok::<_, CommandError>(element.map(Detached::take))
    })?;
    keyspace.count_read(element.is_some());
    let Some(element) = element else {
        return Ok(None);
    };
    if source == destination {
        keyspace.try_update(source, |old| {
            let list = old.map(list_of).transpose()?;
            let mut draft = ListDraft::new(list);
            let last = draft.len() - 1;
            draft.remove(if from == End::Left { 0 } else { last });
            push(&mut draft, &element, to);
            Ok((replace(old, draft), ()))
        })?;
        return Ok(Some(element));
    }
    keyspace.check_key(destination)?;
    keyspace.try_update(destination, |old| {
        let mut draft = ListDraft::new(old.map(list_of).transpose()?);
        push(&mut draft, &element, to);
        Ok((replace(old, draft), ()))
    })?;
    keyspace.try_update(source, |old| {
        let list = old.map(list_of).transpose()?;
        let decision = list.map(|list| without(old, list, from, 1));
        Ok((decision.unwrap_or(Decision::Keep), ()))
    })?;
    Ok(Some(element))
}

fn push(draft: &mut ListDraft<'_>, element: &Detached<'_>, end: End) {
    match end {
        End::Left => draft.push_front(element.body()),
        End::Right => draft.push_back(element.body()),
    }
}
