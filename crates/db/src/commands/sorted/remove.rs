//! Removals: ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX.

use std::ops::Range;

use pando_engine::{Decision, SortedDraft, SortedRef, ValueRef};
use pando_protocol::{Reply, Request};

use super::range::{By, Order, Span};
use super::{replace, sorted_of};
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// ZREM key member [member …]
pub(super) fn members(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let removed = keyspace.try_update(request.arg(1), |old| {
        let Some(value) = old else {
            return Ok((Decision::Keep, 0));
        };
        let mut draft = SortedDraft::new(Some(sorted_of(value)?));
        let members = request.args_from(2);
        let removed = members
            .filter(|member| draft.remove(member).is_some())
            .count();
        let decision = if removed == 0 {
            Decision::Keep
        } else {
            replace(old, draft, value.attributes.encoding)
        };
        Ok((decision, removed))
    })?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// ZREMRANGEBY… key min max
pub(super) fn range(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    by: By,
) -> Handled {
    let span = Span::parse(by, Order::Rising, request.arg(2), request.arg(3))?;
    let removed = keyspace.try_update(request.arg(1), |old| {
        let Some(set) = old.map(sorted_of).transpose()? else {
            return Ok((Decision::Keep, 0));
        };
        let ranks = span.ranks(set);
        let count = ranks.len();
        Ok((without(old, set, ranks), count))
    })?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// The decision that removes the members at these ranks, which are within the set `old` has.
pub(super) fn without(
    old: Option<ValueRef<'_>>,
    set: SortedRef<'_>,
    ranks: Range<usize>,
) -> Decision<'static> {
    let Some(value) = old.filter(|_| !ranks.is_empty()) else {
        return Decision::Keep;
    };
    if ranks.len() == set.len() {
        return Decision::Remove;
    }
    let mut draft = SortedDraft::new(Some(set));
    for (member, _) in set.iter_from_rank(ranks.start).take(ranks.len()) {
        draft.remove(member);
    }
    replace(old, draft, value.attributes.encoding)
}
