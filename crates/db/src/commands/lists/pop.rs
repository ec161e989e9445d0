//! Elements that are taken from an end: LPOP RPOP LMPOP, and BLPOP BRPOP BLMPOP, which wait for
//! one.

use std::ops::Range;

use pando_engine::{Decision, ListDraft, ListRef, TypeTag, ValueRef};
use pando_protocol::{Reply, Request, number};

use super::{End, list_of, replace};
use crate::clock::Microseconds;
use crate::commands::detached::{Detached, reply_bulk};
use crate::commands::waiting;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// The decision that removes `count` elements from an end.
pub(super) fn without(
    old: Option<ValueRef<'_>>,
    list: ListRef<'_>,
    end: End,
    count: usize,
) -> Decision<'static> {
    let len = list.len();
    if count >= len {
        return Decision::Remove;
    }
    let mut draft = ListDraft::new(Some(list));
    match (count, end) {
        (0, _) => return Decision::Keep,
        (1, End::Left) => {
            draft.remove(0);
        }
        (1, End::Right) => {
            draft.remove(len - 1);
        }
        (_, End::Left) => draft.keep(count, len),
        (_, End::Right) => draft.keep(0, len - count),
    }
    replace(old, draft)
}

/// The elements that [`without`] removes, the outermost first.
fn ends(list: ListRef<'_>, end: End, count: usize) -> Vec<Detached<'static>> {
    let count = count.min(list.len());
    match end {
        End::Left => list.iter_from(0).take(count).map(Detached::take).collect(),
        End::Right => {
            let last = list.iter_from(list.len() - count);
            let mut elements: Vec<_> = last.map(Detached::take).collect();
            elements.reverse();
            elements
        }
    }
}

/// Takes up to `count` elements from an end of the list at a key; `None`: there is no list.
fn take(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Vec<Detached<'static>>>, CommandError> {
    let taken = keyspace.try_update(key, |old| {
        let Some(list) = old.map(list_of).transpose()? else {
            return Ok((Decision::Keep, None));
        };
        let taken = ends(list, end, count);
        Ok((without(old, list, end, taken.len()), Some(taken)))
    })?;
    keyspace.count_read(taken.is_some());
    Ok(taken)
}

/// LPOP, RPOP key [count]
pub(super) fn from_one(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    end: End,
) -> Handled {
    let key = request.arg(1);
    if request.len() > 3 {
        let command = if end == End::Left { "lpop" } else { "rpop" };
        return Err(CommandError::Arity { command });
    }
    let Some(count) = request.get(2) else {
        match take(keyspace, key, end, 1)?.as_deref() {
            Some([element, ..]) => reply_bulk(reply, element.as_ref()),
            _ => reply.null(),
        }
        return Ok(Progress::Done);
    };
    let count = number::parse_i64(count).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(CommandError::NotPositive)?;
    match take(keyspace, key, end, count)? {
        Some(elements) => reply_elements(reply, &elements),
        None => reply.null_array(),
    }
    Ok(Progress::Done)
}

fn reply_elements(reply: &mut Reply<'_>, elements: &[Detached<'_>]) {
    reply.array(elements.len());
    for element in elements {
        reply_bulk(reply, element.as_ref());
    }
}

/// Takes elements from the first of several keys that has a list; returns whether one has.
fn take_from_first(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    (keys, end, count): (Range<usize>, End, usize),
) -> Result<bool, CommandError> {
    for index in waiting::in_order(keyspace, request, keys) {
        let key = request.arg(index);
        if keyspace.is_first(TypeTag::List, key)
            && let Some(elements) = take(keyspace, key, end, count)?
        {
            reply.array(2);
            reply.bulk(key);
            reply_elements(reply, &elements);
            return Ok(true);
        }
    }
    Ok(false)
}

/// LMPOP numkeys key [key …] LEFT | RIGHT [COUNT count]
pub(super) fn from_several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let what = parse(request, 1)?;
    if !take_from_first(keyspace, request, reply, what)? {
        reply.null_array();
    }
    Ok(Progress::Done)
}

/// BLMPOP timeout numkeys key [key …] LEFT | RIGHT [COUNT count]
pub(super) fn blocking_from_several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let until = waiting::until(keyspace, request.arg(1))?;
    let (keys, end, count) = parse(request, 2)?;
    if take_from_first(keyspace, request, reply, (keys.clone(), end, count))? {
        return Ok(Progress::Done);
    }
    Ok(wait(keys, until))
}

/// BLPOP, BRPOP key [key …] timeout
pub(super) fn blocking(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    end: End,
) -> Handled {
    let keys = 1..request.len() - 1;
    let until = waiting::until(keyspace, request.arg(keys.end))?;
    for index in waiting::in_order(keyspace, request, keys.clone()) {
        let key = request.arg(index);
        if keyspace.is_first(TypeTag::List, key)
            && let Some(elements) = take(keyspace, key, end, 1)?
        {
            reply.array(2);
            reply.bulk(key);
            reply_bulk(reply, elements[0].as_ref());
            return Ok(Progress::Done);
        }
    }
    Ok(wait(keys, until))
}

fn wait(keys: Range<usize>, until: Option<Microseconds>) -> Progress {
    waiting::for_keys(TypeTag::List, keys, until, false)
}

/// The arguments of LMPOP from its number of keys on: the keys' indexes, the end, how many.
fn parse(request: Request<'_>, at: usize) -> Result<(Range<usize>, End, usize), CommandError> {
    let positive = |argument: &[u8]| {
        let number = number::parse_i64(argument).and_then(|number| usize::try_from(number).ok());
        number.filter(|number| *number > 0)
    };
    let keys = positive(request.arg(at)).ok_or(CommandError::KeyCountNotPositive)?;
    let last = keys.saturating_add(at + 1);
    if last >= request.len() {
        return Err(CommandError::Syntax);
    }
    let end = End::parse(request, last)?;
    let (mut count, mut behind) = (1, last + 1);
    if request.is(behind, "COUNT") && behind + 1 < request.len() {
        count = positive(request.arg(behind + 1)).ok_or(CommandError::CountNotPositive)?;
        behind += 2;
    }
    if behind < request.len() {
        return Err(CommandError::Syntax);
    }
    Ok((at + 1..last, end, count))
}
