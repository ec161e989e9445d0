//! Reads of single members: ZCARD ZSCORE ZMSCORE ZRANK ZREVRANK.

use pando_engine::SortedRef;
use pando_protocol::command;
use pando_protocol::command::SortedCommand;
use pando_protocol::{Reply, Request};

use super::range::Order;
use super::{read, reply_score};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// ZCARD key
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let count = read(keyspace, request.arg(1), |set| {
        set.map_or(0, SortedRef::len)
    })?;
    reply.count(count);
    Ok(Progress::Done)
}

fn reply_score_of(reply: &mut Reply<'_>, set: Option<SortedRef<'_>>, member: &[u8]) {
    match set.and_then(|set| set.score(member)) {
        Some(score) => reply_score(reply, score),
        None => reply.null(),
    }
}

/// ZSCORE key member
pub(super) fn score(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    read(keyspace, request.arg(1), |set| {
        reply_score_of(reply, set, request.arg(2));
    })?;
    Ok(Progress::Done)
}

/// ZMSCORE key member [member …]
pub(super) fn scores(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    read(keyspace, request.arg(1), |set| {
        let members = request.args_from(2);
        reply.array(members.len());
        members.for_each(|member| reply_score_of(reply, set, member));
    })?;
    Ok(Progress::Done)
}

/// ZRANK, ZREVRANK key member [WITHSCORE]
pub(super) fn rank(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    order: Order,
) -> Handled {
    if request.len() > 4 {
        let command = match order {
            Order::Rising => SortedCommand::Zrank,
            Order::Falling => SortedCommand::Zrevrank,
        };
        let command = command::spec(command.id()).name;
        return Err(CommandError::Arity { command });
    }
    let with_score = request.len() == 4;
    if with_score && !request.is(3, "WITHSCORE") {
        return Err(CommandError::Syntax);
    }
    let member = request.arg(2);
    let found = read(keyspace, request.arg(1), |set| {
        let set = set?;
        let score = set.score(member)?;
        let rank = set.rank_of(score, member);
        let rank = match order {
            Order::Rising => rank,
            Order::Falling => set.len() - 1 - rank,
        };
        Some((rank, score))
    })?;
    match found {
        Some((rank, score)) if with_score => {
            reply.array(2);
            reply.count(rank);
            reply_score(reply, score);
        }
        Some((rank, _)) => reply.count(rank),
        None if with_score => reply.null_array(),
        None => reply.null(),
    }
    Ok(Progress::Done)
}
