//! Commands on sorted sets, one file per kind of operation.
//!
//! A sorted set is one row ([`SortedRef`]): members in the order of their scores, those with the
//! same score in byte order. Scores are printed as Redis prints them.
//!
//! Invariants:
//! - **Z1 no-empty-sorted-set** A stored sorted set has a member: removing the last one removes the
//!   key.
//! - **Z2 attributes-stay** A change keeps the deadline.
//! - **Z3 encoding-stays** `Attributes::encoding` is [`encoding::SKIPLIST`] once Redis would have
//!   converted the set, and never changes back.
//!
//! Costs are those of [`SortedRef`] and [`SortedDraft`]: O(log members) to find a member, a rank or
//! a score, and O(1) for each member that is returned.

mod add;
mod algebra;
mod pop;
mod random;
mod range;
mod read;
mod remove;
mod step;
#[cfg(test)]
mod tests;

use pando_engine::{Attributes, Decision, NewValue, RowTag, SortedDraft, SortedRef, ValueRef};
use pando_protocol::command::SortedCommand;
use pando_protocol::{Reply, Request, RespVersion, number};

use super::again;
use super::scanning::{self, Scanned};
use crate::clock::Milliseconds;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, row_of};
use crate::progress::Handled;

pub(super) use add::{Options, add_all};
pub(super) use step::step;

use algebra::Operation;
use range::{By, Order};

/// Runs a command of this family.
pub(super) fn execute(
    command: SortedCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    use SortedCommand as S;
    match command {
        S::Zadd => add::add(keyspace, request, reply),
        S::Zincrby => add::increment(keyspace, request, reply),
        S::Zcard => read::count(keyspace, request, reply),
        S::Zscore => read::score(keyspace, request, reply),
        S::Zmscore => read::scores(keyspace, request, reply),
        S::Zrank => read::rank(keyspace, request, reply, Order::Rising),
        S::Zrevrank => read::rank(keyspace, request, reply, Order::Falling),
        S::Zcount => range::count(keyspace, request, reply, By::Score),
        S::Zlexcount => range::count(keyspace, request, reply, By::Member),
        S::Zrange => range::any(keyspace, request, reply),
        S::Zrangestore => range::store(keyspace, request, reply),
        S::Zrevrange => range::of(keyspace, request, reply, By::Rank, Order::Falling),
        S::Zrangebyscore => range::of(keyspace, request, reply, By::Score, Order::Rising),
        S::Zrevrangebyscore => range::of(keyspace, request, reply, By::Score, Order::Falling),
        S::Zrangebylex => range::of(keyspace, request, reply, By::Member, Order::Rising),
        S::Zrevrangebylex => range::of(keyspace, request, reply, By::Member, Order::Falling),
        S::Zrem => remove::members(keyspace, request, reply),
        S::Zremrangebyrank => remove::range(keyspace, request, reply, By::Rank),
        S::Zremrangebyscore => remove::range(keyspace, request, reply, By::Score),
        S::Zremrangebylex => remove::range(keyspace, request, reply, By::Member),
        S::Zpopmin => pop::from_one(keyspace, request, reply, Order::Rising),
        S::Zpopmax => pop::from_one(keyspace, request, reply, Order::Falling),
        S::Zmpop => pop::from_several(keyspace, request, reply),
        S::Bzpopmin => pop::blocking(keyspace, request, reply, Order::Rising),
        S::Bzpopmax => pop::blocking(keyspace, request, reply, Order::Falling),
        S::Bzmpop => pop::blocking_from_several(keyspace, request, reply),
        S::Zrandmember => random::members(keyspace, request, reply),
        S::Zscan => scanning::scan::<Scored>(keyspace, request, reply),
        S::Zunion => algebra::answer(keyspace, request, reply, Operation::Union),
        S::Zinter => algebra::answer(keyspace, request, reply, Operation::Intersection),
        S::Zdiff => algebra::answer(keyspace, request, reply, Operation::Difference),
        S::Zunionstore => algebra::store(keyspace, request, reply, Operation::Union),
        S::Zinterstore => algebra::store(keyspace, request, reply, Operation::Intersection),
        S::Zdiffstore => algebra::store(keyspace, request, reply, Operation::Difference),
        S::Zintercard => algebra::intersection_size(keyspace, request, reply),
    }
}

/// The sorted set in a value, or the error of a command that needs one.
fn sorted_of(value: ValueRef<'_>) -> Result<SortedRef<'_>, CommandError> {
    row_of(RowTag::SortedSet, value).map(SortedRef::new)
}

/// Shows the sorted set at a key.
pub(super) fn read<R>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    read: impl FnOnce(Option<SortedRef<'_>>) -> R,
) -> Result<R, CommandError> {
    keyspace.read_row(RowTag::SortedSet, key, |row| read(row.map(SortedRef::new)))
}

/// The decision that stores `draft` as the sorted set at the key (Z1, Z2), with this encoding (Z3).
fn replace(old: Option<ValueRef<'_>>, draft: SortedDraft<'_>, encoding: u8) -> Decision<'static> {
    if draft.is_empty() {
        return Decision::Remove;
    }
    let attributes = Attributes {
        encoding,
        ..old.map_or_else(Attributes::default, |value| value.attributes)
    };
    Decision::Write(NewValue::new(draft.finish()).with(attributes))
}

/// Stores these members as the sorted set at a key, one after the other, in a set of this encoding
/// at first; without any, removes the key.
fn store(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    entries: &[(Vec<u8>, f64)],
    mut encoding: u8,
) -> Result<(), CommandError> {
    if entries.is_empty() {
        keyspace.remove(key);
        return Ok(());
    }
    let thresholds = keyspace.thresholds();
    let mut draft = SortedDraft::new(None);
    for (member, score) in entries {
        if encoding::converts_sorted(member, draft.len(), &thresholds) {
            encoding = encoding::SKIPLIST;
        }
        draft.set(member, kept(*score, encoding));
    }
    let attributes = Attributes {
        encoding,
        ..Attributes::default()
    };
    let value = NewValue::new(draft.finish()).with(attributes);
    keyspace.update(key, |_| Decision::Write(again(&value)))?;
    Ok(())
}

/// The same of members found elsewhere: the set is made and takes its form afterwards, as in Redis.
pub(super) fn store_whole(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    entries: &[(Vec<u8>, f64)],
) -> Result<(), CommandError> {
    let lens = entries.iter().enumerate();
    let members = lens.map(|(len, (member, _))| (&member[..], len));
    let encoding = encoding::of_sorted(members, &keyspace.thresholds());
    store(keyspace, key, entries, encoding)
}

/// A score as a set of this encoding keeps it: as in Redis, a listpack has no -0.
fn kept(score: f64, encoding: u8) -> f64 {
    if encoding == encoding::SKIPLIST {
        score
    } else {
        score + 0.0
    }
}

/// Writes a score.
fn reply_score(reply: &mut Reply<'_>, score: f64) {
    reply.double(&number::format_f64(score));
}

/// Writes members, with their scores if asked: pairs in RESP3, one after the other in RESP2.
fn reply_entries<'m>(
    reply: &mut Reply<'_>,
    entries: impl ExactSizeIterator<Item = (&'m [u8], f64)>,
    with_scores: bool,
) {
    let pairs = with_scores && reply.version() == RespVersion::Resp3;
    let flat = with_scores && !pairs;
    reply.array(entries.len() * if flat { 2 } else { 1 });
    for (member, score) in entries {
        if pairs {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply_score(reply, score);
        }
    }
}

/// The members of a sorted set, for ZSCAN.
struct Scored;

impl Scanned for Scored {
    /// The score, and whether Redis holds it in a listpack.
    type Beside<'h> = (f64, bool);
    const HAS_VALUES: bool = false;
    const ELEMENTS: usize = 1;

    fn members<'h>(
        value: ValueRef<'h>,
        start: &[u8],
        _: Milliseconds,
    ) -> Result<impl Iterator<Item = (&'h [u8], (f64, bool))>, CommandError> {
        let set = sorted_of(value)?;
        let packed = value.attributes.encoding != encoding::SKIPLIST;
        let entries = set.iter_by_member(start);
        Ok(entries.map(move |(member, score)| (member, (score, packed))))
    }

    fn bytes(_: (f64, bool)) -> usize {
        size_of::<f64>()
    }

    fn write((score, packed): (f64, bool), reply: &mut Reply<'_>) {
        if packed {
            reply.bulk(encoding::packed_score(score));
        } else {
            reply.bulk(number::format_f64(score));
        }
    }
}
