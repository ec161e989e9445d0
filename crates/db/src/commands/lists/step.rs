//! Commands on a list that are joined with others: LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP.

use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_engine::{ListEnds, StringRef};
use pando_protocol::command::ListCommand;
use pando_protocol::{Reply, Request};

use super::End;
use crate::commands::joined::{Done, Given, Step, Subject};
use crate::error::CommandError;

/// One command, as a change of a list (JU1 as-if-alone).
pub(in crate::commands) fn step<'r>(
    command: ListCommand,
    list: &mut Subject<ListEnds<'_, 'r>>,
    given: &Given<'_>,
    request: Request<'r>,
    reply: &mut Reply<'_>,
) -> Result<Step, CommandError> {
    use ListCommand as L;
    let end = match command {
        L::Lpush | L::Lpushx | L::Lpop => End::Left,
        _ => End::Right,
    };
    match command {
        L::Lpush | L::Rpush => push(list, given, request, reply, (end, false)),
        L::Lpushx | L::Rpushx => push(list, given, request, reply, (end, true)),
        L::Lpop | L::Rpop => pop(list, request, reply, end),
        _ => Ok(Step::Alone),
    }
}

fn push<'r>(
    list: &mut Subject<ListEnds<'_, 'r>>,
    given: &Given<'_>,
    request: Request<'r>,
    reply: &mut Reply<'_>,
    (end, only_if_there): (End, bool),
) -> Result<Step, CommandError> {
    let draft = &mut list.draft;
    let bytes_max = COLUMN_FLAT_BYTES_MAX.min(given.value_bytes_max);
    if request
        .args_from(2)
        .any(|element| element.len() > bytes_max)
    {
        return Ok(Step::Alone);
    }
    if only_if_there && draft.is_empty() {
        reply.count(0);
        return Done::changing(false);
    }
    for element in request.args_from(2) {
        match end {
            End::Left => draft.push_front(element),
            End::Right => draft.push_back(element),
        }
    }
    reply.count(draft.len());
    Done::changing(true)
}

fn pop(
    list: &mut Subject<ListEnds<'_, '_>>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    end: End,
) -> Result<Step, CommandError> {
    if request.len() > 2 {
        return Ok(Step::Alone);
    }
    let element = match end {
        End::Left => list.draft.first(),
        End::Right => list.draft.last(),
    };
    match element {
        None => {
            reply.null();
            return Done::taking(false);
        }
        Some(_) if list.is_made => return Ok(Step::Alone),
        Some(StringRef::Flat(element)) => reply.bulk(element),
        // It is too large to be written here.
        Some(StringRef::Chunked(_)) => return Ok(Step::Alone),
    }
    match end {
        End::Left => list.draft.pop_front(),
        End::Right => list.draft.pop_back(),
    }
    Done::taking(true)
}
