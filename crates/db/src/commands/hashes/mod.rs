//! Commands on hashes, one file per kind of operation.
//!
//! A hash is one value with named columns, so whatever a command does to several fields is one
//! update: every reader sees all of it or none. Fields are returned in byte order of their names,
//! which Redis leaves open.
//!
//! Invariants:
//! - **H1 no-empty-hash** A stored hash has a field: removing the last one removes the key.
//! - **H4 set-ends-deadline** Setting a field ends its deadline; only arithmetic, and HSETEX
//!   KEEPTTL, leave it.
//! - **H2 attributes-stay** A change keeps the deadline and the flags of the hash.
//! - **H3 encoding-stays** `Attributes::encoding` is [`encoding::HASHTABLE`] once Redis would have
//!   converted the hash, and never changes back.
//!
//! Costs are those of [`HashRef`] and [`HashDraft`]: a command on some fields of a wide hash takes
//! O(log fields) for each.

mod expire;
mod get;
mod increment;
mod random;
mod set;
mod step;
#[cfg(test)]
mod tests;

use pando_engine::{
    Attributes, Decision, FieldsDraft, FieldsRef, NewValue, StringRef, ValueRef, limits,
};
use pando_protocol::command::HashCommand;
use pando_protocol::{Reply, Request};

use super::detached::{Detached, reply_bulk};
use super::keys::expire::Time;
use super::scanning::{self, Scanned};
use crate::clock::Milliseconds;
use crate::encoding::{self, Thresholds};
use crate::error::CommandError;
use crate::keyspace::{Keyspace, hash_of};
use crate::progress::Handled;

pub(super) use step::step;

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: HashCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        HashCommand::Hget => get::one(keyspace, request, reply),
        HashCommand::Hmget => get::several(keyspace, request, reply),
        HashCommand::Hgetall => get::all(keyspace, request, reply),
        HashCommand::Hkeys => get::names(keyspace, request, reply),
        HashCommand::Hvals => get::values(keyspace, request, reply),
        HashCommand::Hlen => get::count(keyspace, request, reply),
        HashCommand::Hexists => get::exists(keyspace, request, reply),
        HashCommand::Hstrlen => get::value_length(keyspace, request, reply),
        HashCommand::Hset | HashCommand::Hmset => set::several(keyspace, request, reply, command),
        HashCommand::Hsetnx => set::if_absent(keyspace, request, reply),
        HashCommand::Hdel => set::remove(keyspace, request, reply),
        HashCommand::Hincrby => increment::by_integer(keyspace, request, reply),
        HashCommand::Hrandfield => random::fields(keyspace, request, reply),
        HashCommand::Hexpire
        | HashCommand::Hpexpire
        | HashCommand::Hexpireat
        | HashCommand::Hpexpireat => {
            expire::expire(keyspace, request, reply, (command, time_of(command)))
        }
        HashCommand::Httl
        | HashCommand::Hpttl
        | HashCommand::Hexpiretime
        | HashCommand::Hpexpiretime => {
            expire::remaining(keyspace, request, reply, time_of(command))
        }
        HashCommand::Hpersist => expire::persist(keyspace, request, reply),
        HashCommand::Hgetdel => expire::take_out(keyspace, request, reply),
        HashCommand::Hgetex => expire::get_and_expire(keyspace, request, reply),
        HashCommand::Hsetex => expire::set_and_expire(keyspace, request, reply),
        HashCommand::Hincrbyfloat => increment::by_float(keyspace, request, reply),
        HashCommand::Hscan => scanning::scan::<Fields>(keyspace, request, reply),
    }
}

/// How a command on deadlines counts.
fn time_of(command: HashCommand) -> Time {
    match command {
        HashCommand::Hpexpire | HashCommand::Hpttl => Time::Milliseconds,
        HashCommand::Hexpireat | HashCommand::Hexpiretime => Time::UnixSeconds,
        HashCommand::Hpexpireat | HashCommand::Hpexpiretime => Time::UnixMilliseconds,
        _ => Time::Seconds,
    }
}

/// The same where names are shorter, since fields have deadlines.
fn check_room(draft: &FieldsDraft<'_>, field: &[u8]) -> Result<(), CommandError> {
    let (field_bytes, field_bytes_max) = (field.len(), draft.field_bytes_max());
    if field_bytes <= field_bytes_max {
        Ok(())
    } else {
        Err(CommandError::FieldTooLong {
            field_bytes,
            field_bytes_max,
        })
    }
}

/// Refuses a field name that is too long to be stored.
fn check_field(field: &[u8]) -> Result<(), CommandError> {
    let field_bytes_max = limits::FIELD_BYTES_MAX;
    if field.len() <= field_bytes_max {
        Ok(())
    } else {
        Err(CommandError::FieldTooLong {
            field_bytes: field.len(),
            field_bytes_max,
        })
    }
}

/// The fields of a hash, for HSCAN.
struct Fields;

impl Scanned for Fields {
    type Beside<'h> = StringRef<'h>;
    const HAS_VALUES: bool = true;
    const ELEMENTS: usize = 1;

    fn members<'h>(
        value: ValueRef<'h>,
        start: &[u8],
        now: Milliseconds,
    ) -> Result<impl Iterator<Item = (&'h [u8], StringRef<'h>)>, CommandError> {
        Ok(hash_of(value, now)?.iter_from(start))
    }

    fn bytes(beside: StringRef<'_>) -> usize {
        beside.len()
    }

    fn write(beside: StringRef<'_>, reply: &mut Reply<'_>) {
        reply_bulk(reply, beside);
    }
}

/// The decision that stores `draft` as the hash at the key (H1, H2, H3). `long`: something was
/// written that [`Thresholds::is_long_field`].
fn replace(
    old: Option<ValueRef<'_>>,
    draft: FieldsDraft<'_>,
    long: bool,
    thresholds: &Thresholds,
) -> Decision<'static> {
    if draft.is_empty() {
        return Decision::Remove;
    }
    let mut attributes = old.map_or_else(Attributes::default, |value| value.attributes);
    if long || draft.len() as u64 > thresholds.hash_max_listpack_entries {
        attributes.encoding = encoding::HASHTABLE;
    }
    Decision::Write(NewValue::new(draft.finish()).with(attributes))
}

/// The decision that gives a field of a small hash another value, as long, if nothing else changes
/// (H2, H3). `long` as for [`replace`].
#[inline]
fn amend<'d>(
    old: ValueRef<'_>,
    hash: FieldsRef<'_>,
    (field, value): (&[u8], &'d [u8]),
    long: bool,
    thresholds: &Thresholds,
) -> Option<Decision<'d>> {
    let hash = hash.plain()?;
    let converts = long || hash.len() as u64 > thresholds.hash_max_listpack_entries;
    if converts && old.attributes.encoding != encoding::HASHTABLE {
        return None;
    }
    hash.amend(field, value).map(Decision::Amend)
}

/// The decision that sets one field, which keeps its deadline.
fn set_field(
    old: Option<ValueRef<'_>>,
    mut draft: FieldsDraft<'_>,
    field: &[u8],
    value: &Detached<'_>,
    thresholds: &Thresholds,
) -> Result<Decision<'static>, CommandError> {
    check_room(&draft, field)?;
    draft.set(field, value.body(), true);
    let long = thresholds.is_long_field(field, value.as_ref().len());
    Ok(replace(old, draft, long, thresholds))
}
