//! Random members: SPOP SRANDMEMBER. Members are picked by rank, so a pick costs O(log members).

use pando_engine::{Decision, HashRef, RowTag};
use pando_protocol::{Reply, Request, number};

use super::change::remove_from;
use super::set_of;
use crate::commands::picks::{self, distinct_ranks};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

/// SRANDMEMBER key [count]
pub(super) fn members(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut random = fastrand::Rng::with_seed(keyspace.random());
    if request.len() == 2 {
        keyspace.read_row(RowTag::Set, request.arg(1), |set| match set {
            Some(set) => reply.bulk(pick(set, &mut random)),
            None => reply.null(),
        })?;
        return Ok(Progress::Done);
    }
    if request.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = picks::count(request.arg(2))?;
    keyspace.read_row(RowTag::Set, request.arg(1), |set| {
        let Some(set) = set.filter(|_| count != 0) else {
            reply.array(0);
            return Ok(());
        };
        let wanted = picks::how_many(count);
        if count < 0 {
            repeated(set, wanted, &mut random, reply)
        } else {
            let chosen = distinct(set, wanted, &mut random);
            reply.array(chosen.len());
            for member in chosen {
                reply.bulk(member);
            }
            Ok(())
        }
    })??;
    Ok(Progress::Done)
}

/// Any member; a stored set has one (ST1 no-empty-set).
pub(super) fn pick<'a>(set: HashRef<'a>, random: &mut fastrand::Rng) -> &'a [u8] {
    let picked = set.nth(random.usize(..set.len()));
    picked.expect("a rank below the length").0
}

/// `wanted` members, each chosen from all; refused when the reply grows too large, since a short
/// request can ask for more than there is memory.
fn repeated(
    set: HashRef<'_>,
    wanted: usize,
    random: &mut fastrand::Rng,
    reply: &mut Reply<'_>,
) -> Result<(), CommandError> {
    let start = reply.position();
    reply.array(wanted);
    for _ in 0..wanted {
        reply.bulk(pick(set, random));
        if reply.position() - start > limits::RANDOM_REPLY_BYTES_MAX {
            let reply_bytes_max = limits::RANDOM_REPLY_BYTES_MAX;
            return Err(CommandError::ReplyTooLong { reply_bytes_max });
        }
    }
    Ok(())
}

/// `wanted` different members, or all of them if there are no more.
fn distinct<'a>(set: HashRef<'a>, wanted: usize, random: &mut fastrand::Rng) -> Vec<&'a [u8]> {
    if wanted >= set.len() {
        return set.iter().map(|(member, _)| member).collect();
    }
    let ranks = distinct_ranks(wanted, set.len(), random);
    if wanted >= set.len() / picks::WALK_SHARE {
        let mut ranks = ranks.into_iter().peekable();
        let walked = set.iter().enumerate();
        return walked
            .filter(|(rank, _)| ranks.next_if_eq(rank).is_some())
            .map(|(_, (member, _))| member)
            .collect();
    }
    let by_rank = |rank| set.nth(rank).expect("a rank below the length").0;
    ranks.into_iter().map(by_rank).collect()
}

/// SPOP key [count]
pub(super) fn pop(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    if request.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = match request.get(2) {
        None => None,
        Some(count) => {
            let count = number::parse_i64(count).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(CommandError::NotPositive)?)
        }
    };
    let seed = keyspace.random();
    let popped = keyspace.try_update(request.arg(1), |old| {
        let Some(set) = old.map(set_of).transpose()? else {
            return Ok((Decision::Keep, Vec::new()));
        };
        // The closure may run again, and then draws the same.
        let mut random = fastrand::Rng::with_seed(seed);
        let popped = distinct(set, count.unwrap_or(1), &mut random);
        let (decision, _) = if popped.len() == set.len() {
            (Decision::Remove, popped.len())
        } else {
            remove_from(old, popped.iter().copied())?
        };
        let popped: Vec<Box<[u8]>> = popped.into_iter().map(Into::into).collect();
        Ok((decision, popped))
    })?;
    keyspace.count_read(!popped.is_empty());
    if count.is_some() {
        reply.set(popped.len());
        for member in popped {
            reply.bulk(member);
        }
    } else if let Some(member) = popped.first() {
        reply.bulk(member);
    } else {
        reply.null();
    }
    Ok(Progress::Done)
}
