//! Commands on sets, one file per kind of operation.
//!
//! A set is a row whose columns are named by its members and hold nothing. Members are returned in
//! byte order, which Redis leaves open.
//!
//! Invariants:
//! - **ST1 no-empty-set** A stored set has a member: removing the last one removes the key.
//! - **ST2 attributes-stay** A change keeps the deadline of the set.
//! - **ST3 encoding-stays** `Attributes::encoding` says what OBJECT ENCODING answers. It goes from
//!   intset to listpack to hashtable as Redis would convert the set, and never back.
//!
//! Costs are those of [`HashRef`] and [`HashDraft`]: O(log members) for each member.

mod algebra;
mod change;
mod get;
mod random;
mod step;
#[cfg(test)]
mod tests;

use pando_engine::{Attributes, Decision, HashDraft, HashRef, NewValue, RowTag, ValueRef};
use pando_protocol::command::SetCommand;
use pando_protocol::{Reply, Request};

use super::scanning::{self, Scanned};
use crate::clock::Milliseconds;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, row_of};
use crate::progress::Handled;

pub(super) use step::step;

use algebra::Operation;

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: SetCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        SetCommand::Sadd => change::add(keyspace, request, reply),
        SetCommand::Srem => change::remove(keyspace, request, reply),
        SetCommand::Smove => change::move_to(keyspace, request, reply),
        SetCommand::Scard => get::count(keyspace, request, reply),
        SetCommand::Sismember => get::one(keyspace, request, reply),
        SetCommand::Smismember => get::several(keyspace, request, reply),
        SetCommand::Smembers => get::all(keyspace, request, reply),
        SetCommand::Spop => random::pop(keyspace, request, reply),
        SetCommand::Srandmember => random::members(keyspace, request, reply),
        SetCommand::Sscan => scanning::scan::<Members>(keyspace, request, reply),
        SetCommand::Sinter => algebra::answer(keyspace, request, reply, Operation::Intersection),
        SetCommand::Sunion => algebra::answer(keyspace, request, reply, Operation::Union),
        SetCommand::Sdiff => algebra::answer(keyspace, request, reply, Operation::Difference),
        SetCommand::Sinterstore => {
            algebra::store(keyspace, request, reply, Operation::Intersection)
        }
        SetCommand::Sunionstore => algebra::store(keyspace, request, reply, Operation::Union),
        SetCommand::Sdiffstore => algebra::store(keyspace, request, reply, Operation::Difference),
        SetCommand::Sintercard => algebra::intersection_size(keyspace, request, reply),
    }
}

/// The set in a value, or the error of a command that needs one.
fn set_of(value: ValueRef<'_>) -> Result<HashRef<'_>, CommandError> {
    row_of(RowTag::Set, value)
}

/// Whether the set has this member; an absent set has none.
fn has(set: Option<HashRef<'_>>, member: &[u8]) -> bool {
    set.is_some_and(|set| set.get(member).is_some())
}

/// The decision that stores `draft` as the set at the key (ST1, ST2), with this encoding (ST3).
fn replace(old: Option<ValueRef<'_>>, draft: HashDraft<'_>, encoding: u8) -> Decision<'static> {
    if draft.is_empty() {
        return Decision::Remove;
    }
    let attributes = Attributes {
        encoding,
        ..old.map_or_else(Attributes::default, |value| value.attributes)
    };
    Decision::Write(NewValue::new(draft.finish_as(RowTag::Set)).with(attributes))
}

/// The members of a set, for SSCAN.
struct Members;

impl Scanned for Members {
    type Beside<'h> = ();
    const HAS_VALUES: bool = false;
    const ELEMENTS: usize = 0;

    fn members<'h>(
        value: ValueRef<'h>,
        start: &[u8],
        _: Milliseconds,
    ) -> Result<impl Iterator<Item = (&'h [u8], ())>, CommandError> {
        Ok(set_of(value)?
            .iter_from(start)
            .map(|(member, _)| (member, ())))
    }

    fn bytes((): ()) -> usize {
        0
    }

    fn write((): (), _: &mut Reply<'_>) {}
}
