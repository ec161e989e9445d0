//! Reads of sets: SCARD SISMEMBER SMISMEMBER SMEMBERS.

use pando_engine::{HashRef, RowTag};
use pando_protocol::{Reply, Request};

use super::has;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// SCARD key
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let count = |set: Option<HashRef<'_>>| set.map_or(0, HashRef::len);
    reply.count(keyspace.read_row(RowTag::Set, request.arg(1), count)?);
    Ok(Progress::Done)
}

/// SISMEMBER key member
pub(super) fn one(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let member = request.arg(2);
    let found = keyspace.read_row(RowTag::Set, request.arg(1), |set| has(set, member))?;
    reply.integer(found.into());
    Ok(Progress::Done)
}

/// SMISMEMBER key member [member …]
pub(super) fn several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_row(RowTag::Set, request.arg(1), |set| {
        let members = request.args_from(2);
        reply.array(members.len());
        for member in members {
            reply.integer(has(set, member).into());
        }
    })?;
    Ok(Progress::Done)
}

/// SMEMBERS key
pub(super) fn all(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_row(RowTag::Set, request.arg(1), |set| {
        reply.set(set.map_or(0, HashRef::len));
        for (member, _) in set.into_iter().flat_map(HashRef::iter) {
            reply.bulk(member);
        }
    })?;
    Ok(Progress::Done)
}
