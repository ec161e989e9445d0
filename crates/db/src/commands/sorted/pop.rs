//! Members that are taken out: ZPOPMIN ZPOPMAX ZMPOP, and BZPOPMIN BZPOPMAX BZMPOP, which wait for
//! one.

use std::ops::Range;

use pando_engine::{Decision, SortedRef, TypeTag};
use pando_protocol::{Reply, Request, RespVersion, number};

use super::range::{Order, entries};
use super::remove::without;
use super::{reply_entries, reply_score, sorted_of};
use crate::commands::waiting;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Members with their scores, taken out.
pub(in crate::commands) type Popped = Vec<(Box<[u8]>, f64)>;

/// Takes up to `count` members from one end of the sorted set at a key; `None`: there is no set.
pub(in crate::commands) fn take(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    order: Order,
    count: usize,
) -> Result<Option<Popped>, CommandError> {
    let popped = keyspace.try_update(key, |old| {
        let Some(set) = old.map(sorted_of).transpose()? else {
            return Ok((Decision::Keep, None));
        };
        let ranks = ends(set, order, count);
        let taken = entries(set, ranks.clone(), order);
        let taken = taken
            .into_iter()
            .map(|(member, score)| (member.into(), score));
        Ok((without(old, set, ranks), Some(taken.collect::<Popped>())))
    })?;
    keyspace.count_read(popped.is_some());
    Ok(popped)
}

/// The ranks of the first `count` members in this order.
fn ends(set: SortedRef<'_>, order: Order, count: usize) -> Range<usize> {
    let count = count.min(set.len());
    match order {
        Order::Rising => 0..count,
        Order::Falling => set.len() - count..set.len(),
    }
}

/// ZPOPMIN, ZPOPMAX key [count]
pub(super) fn from_one(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    order: Order,
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
    let popped = take(keyspace, request.arg(1), order, count.unwrap_or(1))?.unwrap_or_default();
    let entries = popped.iter().map(|(member, score)| (&**member, *score));
    if count.is_some() || reply.version() == RespVersion::Resp2 {
        reply_entries(reply, entries, true);
    } else {
        reply.array(entries.len() * 2);
        for (member, score) in entries {
            reply.bulk(member);
            reply_score(reply, score);
        }
    }
    Ok(Progress::Done)
}

/// ZMPOP numkeys key [key …] MIN | MAX [COUNT count]
pub(super) fn from_several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (keys, order, count) = parse(request, 1)?;
    match take_from_first(keyspace, request, keys, (order, count))? {
        Some((key, popped)) => reply_popped(reply, key, &popped),
        None => reply.null_array(),
    }
    Ok(Progress::Done)
}

/// Takes members from the first of several keys that has a sorted set; returns which, and they.
fn take_from_first<'r>(
    keyspace: &mut Keyspace<'_>,
    request: Request<'r>,
    keys: Range<usize>,
    (order, count): (Order, usize),
) -> Result<Option<(&'r [u8], Popped)>, CommandError> {
    for index in waiting::in_order(keyspace, request, keys) {
        let key = request.arg(index);
        if keyspace.is_first(TypeTag::SortedSet, key)
            && let Some(popped) = take(keyspace, key, order, count)?
        {
            return Ok(Some((key, popped)));
        }
    }
    Ok(None)
}

/// BZPOPMIN, BZPOPMAX key [key …] timeout
pub(super) fn blocking(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    order: Order,
) -> Handled {
    let keys = 1..request.len() - 1;
    let until = waiting::until(keyspace, request.arg(keys.end))?;
    let taken = take_from_first(keyspace, request, keys.clone(), (order, 1))?;
    let Some((key, popped)) = taken else {
        return Ok(waiting::for_keys(TypeTag::SortedSet, keys, until, false));
    };
    let (member, score) = &popped[0];
    reply.array(3);
    reply.bulk(key);
    reply.bulk(member);
    reply_score(reply, *score);
    Ok(Progress::Done)
}

/// BZMPOP timeout numkeys key [key …] MIN | MAX [COUNT count]
pub(super) fn blocking_from_several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let until = waiting::until(keyspace, request.arg(1))?;
    let (keys, order, count) = parse(request, 2)?;
    match take_from_first(keyspace, request, keys.clone(), (order, count))? {
        Some((key, popped)) => reply_popped(reply, key, &popped),
        None => return Ok(waiting::for_keys(TypeTag::SortedSet, keys, until, false)),
    }
    Ok(Progress::Done)
}

/// The reply of ZMPOP and BZMPOP: the key, and pairs in any version.
pub(in crate::commands) fn reply_popped(reply: &mut Reply<'_>, key: &[u8], popped: &Popped) {
    reply.array(2);
    reply.bulk(key);
    reply.array(popped.len());
    for (member, score) in popped {
        reply.array(2);
        reply.bulk(member);
        reply_score(reply, *score);
    }
}

/// The arguments of ZMPOP from its number of keys on: the keys' indexes, the end, how many.
pub(in crate::commands) fn parse(
    request: Request<'_>,
    at: usize,
) -> Result<(Range<usize>, Order, usize), CommandError> {
    let keys = number::parse_i64(request.arg(at)).and_then(|keys| usize::try_from(keys).ok());
    let keys = keys.filter(|keys| *keys > 0);
    let keys = keys.ok_or(CommandError::KeyCountNotPositive)?;
    let end = keys.saturating_add(at + 1);
    if end >= request.len() {
        return Err(CommandError::Syntax);
    }
    let order = if request.is(end, "MIN") {
        Order::Rising
    } else if request.is(end, "MAX") {
        Order::Falling
    } else {
        return Err(CommandError::Syntax);
    };
    let (mut count, mut at_option) = (None, end + 1);
    while at_option < request.len() {
        let is_count = count.is_none() && request.is(at_option, "COUNT");
        if !is_count || at_option + 1 == request.len() {
            return Err(CommandError::Syntax);
        }
        let given = number::parse_i64(request.arg(at_option + 1));
        let given = given.and_then(|count| usize::try_from(count).ok());
        let given = given.filter(|count| *count > 0);
        count = Some(given.ok_or(CommandError::CountNotPositive)?);
        at_option += 2;
    }
    Ok((at + 1..end, order, count.unwrap_or(1)))
}
