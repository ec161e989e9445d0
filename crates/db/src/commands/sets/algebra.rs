//! Sets made of sets: SINTER SUNION SDIFF, their STORE forms, SINTERCARD.
//!
//! The sets are read one after another, each whole: as with MGET, a writer of another set may come
//! in between. The STORE forms run under all gates, so nothing does.

use pando_engine::{Attributes, Decision, HashBody, HashDraft, HashRef, NewValue, RowTag};
use pando_protocol::{Reply, Request, number};

use crate::commands::again;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Which members the result has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Those of all sets.
    Intersection,
    /// Those of any set.
    Union,
    /// Those of the first set alone.
    Difference,
}

/// Handles on the sets at these keys; absent ones are empty.
fn take<'k>(
    keyspace: &mut Keyspace<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Option<HashBody>>, CommandError> {
    keys.map(|key| keyspace.read_row(RowTag::Set, key, |set| set.map(HashRef::hand_over)))
        .collect()
}

fn members(set: Option<&HashBody>) -> impl Iterator<Item = &[u8]> {
    let set = set.map(HashBody::as_ref).into_iter();
    set.flat_map(HashRef::iter).map(|(member, _)| member)
}

fn has(set: &HashBody, member: &[u8]) -> bool {
    set.as_ref().get(member).is_some()
}

impl Operation {
    /// The members of the result in byte order.
    fn run(self, sets: &[Option<HashBody>]) -> Vec<&[u8]> {
        match self {
            Self::Intersection => intersection(sets).collect(),
            Self::Union => {
                let mut all: Vec<_> = sets.iter().flat_map(|set| members(set.as_ref())).collect();
                if sets.len() > 1 {
                    all.sort_unstable();
                    all.dedup();
                }
                all
            }
            Self::Difference => {
                let (first, others) = sets.split_first().expect("a request names a set");
                let lack = |member: &[u8]| others.iter().flatten().all(|set| !has(set, member));
                members(first.as_ref())
                    .filter(|member| lack(member))
                    .collect()
            }
        }
    }
}

/// The members that all sets have, in byte order: those of the smallest set that the others have.
fn intersection(sets: &[Option<HashBody>]) -> impl Iterator<Item = &[u8]> {
    let whole: Option<Vec<&HashBody>> = sets.iter().map(Option::as_ref).collect();
    let mut whole = whole.unwrap_or_default();
    whole.sort_by_key(|set| set.as_ref().len());
    let smallest = whole.first().copied();
    let others = whole.split_off(whole.len().min(1));
    members(smallest).filter(move |member| others.iter().all(|set| has(set, member)))
}

/// SINTER, SUNION, SDIFF key [key …]
pub(super) fn answer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> Handled {
    let sets = take(keyspace, request.args_from(1))?;
    let found = operation.run(&sets);
    reply.set(found.len());
    for member in found {
        reply.bulk(member);
    }
    Ok(Progress::Done)
}

/// SINTERSTORE, SUNIONSTORE, SDIFFSTORE destination key [key …]
pub(super) fn store(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> Handled {
    let destination = request.arg(1);
    keyspace.check_key(destination)?;
    let sets = take(keyspace, request.args_from(2))?;
    let found = operation.run(&sets);
    if found.is_empty() {
        keyspace.remove(destination);
    } else {
        let mut draft = HashDraft::new(None);
        for member in &found {
            draft.set(member, b"");
        }
        let attributes = Attributes {
            encoding: encoding::of_set(draft.as_ref(), &keyspace.thresholds()),
            ..Attributes::default()
        };
        let value = NewValue::new(draft.finish_as(RowTag::Set)).with(attributes);
        keyspace.update(destination, |_| Decision::Write(again(&value)))?;
    }
    reply.count(found.len());
    Ok(Progress::Done)
}

/// SINTERCARD numkeys key [key …] [LIMIT limit]
pub(super) fn intersection_size(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (count, limit) = counted_keys(request)?;
    let keys = request.args_from(2).take(count);
    let sets = take(keyspace, keys)?;
    let size = intersection(&sets).take(limit).count();
    reply.count(size);
    Ok(Progress::Done)
}

/// How many keys follow argument 1, and what LIMIT after them says.
pub(in crate::commands) fn counted_keys(
    request: Request<'_>,
) -> Result<(usize, usize), CommandError> {
    let count = number::parse_i64(request.arg(1)).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or(CommandError::KeyCountNotPositive)?;
    if count > request.len() - 2 {
        return Err(CommandError::KeyCountTooLarge);
    }
    let mut limit = 0;
    let mut at = 2 + count;
    while at < request.len() {
        if !request.is(at, "LIMIT") || at + 1 == request.len() {
            return Err(CommandError::Syntax);
        }
        let given = number::parse_i64(request.arg(at + 1));
        let given = given.and_then(|limit| usize::try_from(limit).ok());
        limit = given.ok_or(CommandError::NegativeLimit)?;
        at += 2;
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    Ok((count, limit))
}
