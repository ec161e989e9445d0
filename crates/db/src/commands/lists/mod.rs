//! Commands on lists, one file per kind of operation.
//!
//! A list is one row ([`ListRef`]). The blocking commands try what the others do, and wait for a
//! list at their keys if there is none (`crate::lines`).
//!
//! Invariants:
//! - **LI1 no-empty-list** A stored list has an element: removing the last one removes the key.
//! - **LI2 attributes-stay** A change keeps the deadline.
//!
//! Costs are those of [`ListRef`] and [`ListDraft`]: O(log elements) to find, insert or remove one.

mod change;
mod get;
mod moving;
mod pop;
mod position;
mod push;
mod step;
#[cfg(test)]
mod tests;

use pando_engine::{Attributes, Decision, ListDraft, ListRef, NewValue, RowTag, ValueRef};
use pando_protocol::command::ListCommand;
use pando_protocol::{Reply, Request, number};

use crate::error::CommandError;
use crate::keyspace::{Keyspace, row_of};
use crate::progress::Handled;

pub(super) use step::step;

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: ListCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    use ListCommand as L;
    match command {
        L::Lpush => push::push(keyspace, request, reply, End::Left, false),
        L::Rpush => push::push(keyspace, request, reply, End::Right, false),
        L::Lpushx => push::push(keyspace, request, reply, End::Left, true),
        L::Rpushx => push::push(keyspace, request, reply, End::Right, true),
        L::Lpop => pop::from_one(keyspace, request, reply, End::Left),
        L::Rpop => pop::from_one(keyspace, request, reply, End::Right),
        L::Lmpop => pop::from_several(keyspace, request, reply),
        L::Blpop => pop::blocking(keyspace, request, reply, End::Left),
        L::Brpop => pop::blocking(keyspace, request, reply, End::Right),
        L::Blmpop => pop::blocking_from_several(keyspace, request, reply),
        L::Lmove => moving::between_ends(keyspace, request, reply),
        L::Rpoplpush => moving::over(keyspace, request, reply),
        L::Blmove => moving::blocking(keyspace, request, reply),
        L::Brpoplpush => moving::blocking_over(keyspace, request, reply),
        L::Llen => get::count(keyspace, request, reply),
        L::Lindex => get::one(keyspace, request, reply),
        L::Lrange => get::range(keyspace, request, reply),
        L::Lpos => position::find(keyspace, request, reply),
        L::Linsert => change::insert(keyspace, request, reply),
        L::Lset => change::set(keyspace, request, reply),
        L::Lrem => change::remove(keyspace, request, reply),
        L::Ltrim => change::trim(keyspace, request, reply),
    }
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    /// The end that an argument names.
    fn parse(request: Request<'_>, index: usize) -> Result<Self, CommandError> {
        if request.is(index, "LEFT") {
            Ok(Self::Left)
        } else if request.is(index, "RIGHT") {
            Ok(Self::Right)
        } else {
            Err(CommandError::Syntax)
        }
    }
}

/// The list in a value, or the error of a command that needs one.
#[inline]
fn list_of(value: ValueRef<'_>) -> Result<ListRef<'_>, CommandError> {
    row_of(RowTag::List, value).map(ListRef::new)
}

/// Shows the list at a key.
fn read<R>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    read: impl FnOnce(Option<ListRef<'_>>) -> R,
) -> Result<R, CommandError> {
    keyspace.read_row(RowTag::List, key, |row| read(row.map(ListRef::new)))
}

/// The decision that stores `draft` as the list at the key (LI1, LI2).
fn replace(old: Option<ValueRef<'_>>, draft: ListDraft<'_>) -> Decision<'static> {
    if draft.is_empty() {
        return Decision::Remove;
    }
    let attributes = old.map_or_else(Attributes::default, |value| value.attributes);
    Decision::Write(NewValue::new(draft.finish()).with(attributes))
}

/// Refuses an element that is too long to be stored.
fn check_element(keyspace: &Keyspace<'_>, element: &[u8]) -> Result<(), CommandError> {
    if element.len() > keyspace.options().value_bytes_max {
        return Err(CommandError::StringTooLong);
    }
    Ok(())
}

fn integer(argument: &[u8]) -> Result<i64, CommandError> {
    number::parse_i64(argument).ok_or(CommandError::NotAnInteger)
}

/// The position that an index means, which counts from the end if it is negative; it may be beyond
/// either end.
fn position_of(index: i64, len: usize) -> i64 {
    if index < 0 {
        index.saturating_add(len as i64)
    } else {
        index
    }
}

/// The positions from one index to another, both included, as far as there are such elements.
fn range_of(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let start = position_of(start, len).max(0) as usize;
    let end = position_of(stop, len).saturating_add(1).max(0) as usize;
    let end = end.min(len);
    start.min(end)..end
}
