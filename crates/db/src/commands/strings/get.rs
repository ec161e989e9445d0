//! GET, STRLEN, and the reads that also remove the key or change its deadline: GETDEL, GETEX.

use pando_engine::{Attributes, Decision, NewValue, StringRef};
use pando_protocol::{Reply, Request};

use super::options::GetexAction;
use crate::commands::detached::{Detached, reply_bulk};
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// GET key
#[inline]
pub(super) fn get(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_string(request.arg(1), |string| match string {
        Some(string) => reply_bulk(reply, string),
        None => reply.null(),
    })?;
    Ok(Progress::Done)
}

/// STRLEN key
pub(super) fn strlen(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let len = keyspace.read_string(request.arg(1), |string| string.map_or(0, StringRef::len))?;
    reply.count(len);
    Ok(Progress::Done)
}

/// GETDEL key
pub(super) fn getdel(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let old = keyspace.try_update(request.arg(1), |old| match old {
        None => Ok((Decision::Keep, None)),
        Some(value) => Ok((Decision::Remove, Some(Detached::take(string_of(value)?)))),
    });
    answer_old(keyspace, reply, old?)
}

/// GETEX key [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | PERSIST]
pub(super) fn getex(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let action = GetexAction::parse(request)?;
    if matches!(action, GetexAction::Read) {
        return get(keyspace, request, reply);
    }
    let now = keyspace.now();
    let old = keyspace.try_update(request.arg(1), |old| {
        let Some(value) = old else {
            return Ok((Decision::Keep, None));
        };
        let string = string_of(value)?;
        // An absent key, or one that is not a string, is answered whatever the time says.
        let deadline = match &action {
            GetexAction::Expire(timing) => Some(timing.deadline(now, "getex")?),
            GetexAction::Persist | GetexAction::Read => None,
        };
        let decision = if deadline.is_some_and(|deadline| deadline.has_passed(now)) {
            Decision::Remove
        } else if deadline.is_none() && value.attributes.deadline.is_none() {
            Decision::Keep
        } else {
            let attributes = Attributes {
                deadline,
                ..value.attributes
            };
            Decision::Write(NewValue::new(string.hand_over()).with(attributes))
        };
        Ok((decision, Some(Detached::take(string))))
    });
    answer_old(keyspace, reply, old?)
}

/// Replies with the key's former value, and counts the read.
pub(super) fn answer_old(
    keyspace: &mut Keyspace<'_>,
    reply: &mut Reply<'_>,
    old: Option<Detached<'_>>,
) -> Handled {
    keyspace.count_read(old.is_some());
    match old {
        Some(old) => reply_bulk(reply, old.as_ref()),
        None => reply.null(),
    }
    Ok(Progress::Done)
}
