//! Random members: ZRANDMEMBER. Members are picked by rank, so a pick costs O(log members).

use pando_engine::SortedRef;
use pando_protocol::{Reply, Request};

use super::{read, reply_entries};
use crate::commands::picks::{self, distinct_ranks};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

/// ZRANDMEMBER key [count [WITHSCORES]]
pub(super) fn members(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut random = fastrand::Rng::with_seed(keyspace.random());
    if request.len() == 2 {
        read(keyspace, request.arg(1), |set| match set {
            Some(set) => reply.bulk(pick(set, &mut random).0),
            None => reply.null(),
        })?;
        return Ok(Progress::Done);
    }
    let count = picks::count(request.arg(2))?;
    let with_scores = request.len() == 4 && request.is(3, "WITHSCORES");
    if request.len() > 3 && !with_scores {
        return Err(CommandError::Syntax);
    }
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::OutOfRange);
    }
    read(keyspace, request.arg(1), |set| {
        let Some(set) = set.filter(|_| count != 0) else {
            reply.array(0);
            return Ok::<(), CommandError>(());
        };
        let wanted = picks::how_many(count);
        let chosen = if count < 0 {
            repeated(set, wanted, &mut random)?
        } else {
            distinct(set, wanted, &mut random)
        };
        reply_entries(reply, chosen.into_iter(), with_scores);
        Ok(())
    })??;
    Ok(Progress::Done)
}

/// Any member; a stored set has one (Z1 no-empty-sorted-set).
fn pick<'a>(set: SortedRef<'a>, random: &mut fastrand::Rng) -> (&'a [u8], f64) {
    let picked = set.nth(random.usize(..set.len()));
    picked.expect("a rank below the length")
}

/// `wanted` members, each chosen from all; refused when they take too much, since a short request
/// can ask for more than there is memory.
fn repeated<'a>(
    set: SortedRef<'a>,
    wanted: usize,
    random: &mut fastrand::Rng,
) -> Result<Vec<(&'a [u8], f64)>, CommandError> {
    let (mut chosen, mut bytes) = (Vec::new(), 0);
    for _ in 0..wanted {
        let entry = pick(set, random);
        bytes += entry.0.len() + size_of_val(&entry);
        chosen.push(entry);
        if bytes > limits::RANDOM_REPLY_BYTES_MAX {
            let reply_bytes_max = limits::RANDOM_REPLY_BYTES_MAX;
            return Err(CommandError::ReplyTooLong { reply_bytes_max });
        }
    }
    Ok(chosen)
}

/// `wanted` different members, or all of them if there are no more.
fn distinct<'a>(
    set: SortedRef<'a>,
    wanted: usize,
    random: &mut fastrand::Rng,
) -> Vec<(&'a [u8], f64)> {
    if wanted >= set.len() {
        return set.iter_from_rank(0).collect();
    }
    let ranks = distinct_ranks(wanted, set.len(), random);
    if wanted >= set.len() / picks::WALK_SHARE {
        let mut ranks = ranks.into_iter().peekable();
        let walked = set.iter_from_rank(0).enumerate();
        let chosen = walked.filter(|(rank, _)| ranks.next_if_eq(rank).is_some());
        return chosen.map(|(_, entry)| entry).collect();
    }
    let by_rank = |rank| set.nth(rank).expect("a rank below the length");
    ranks.into_iter().map(by_rank).collect()
}
