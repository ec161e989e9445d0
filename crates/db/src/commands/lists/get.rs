//! Reads: LLEN LINDEX LRANGE.

use pando_engine::ListRef;
use pando_protocol::{Reply, Request};

use super::{integer, position_of, range_of, read};
use crate::commands::detached::reply_bulk;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// LLEN key
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let count = read(keyspace, request.arg(1), |list| {
        list.map_or(0, ListRef::len)
    })?;
    reply.count(count);
    Ok(Progress::Done)
}

/// LINDEX key index
pub(super) fn one(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    read(keyspace, request.arg(1), |list| {
        // As in Redis, the index does not matter without a list.
        let element = match list {
            None => None,
            Some(list) => {
                let position = position_of(integer(request.arg(2))?, list.len());
                usize::try_from(position).ok().and_then(|at| list.get(at))
            }
        };
        match element {
            Some(element) => reply_bulk(reply, element),
            None => reply.null(),
        }
        Ok(Progress::Done)
    })?
}

/// LRANGE key start stop
pub(super) fn range(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (start, stop) = (integer(request.arg(2))?, integer(request.arg(3))?);
    read(keyspace, request.arg(1), |list| {
        let Some(list) = list else {
            reply.array(0);
            return;
        };
        let positions = range_of(start, stop, list.len());
        reply.array(positions.len());
        for element in list.iter_from(positions.start).take(positions.len()) {
            reply_bulk(reply, element);
        }
    })?;
    Ok(Progress::Done)
}
