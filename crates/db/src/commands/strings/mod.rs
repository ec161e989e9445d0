//! Commands on strings, one file per operation family.
//!
//! A write that replaces a string drops its deadline; one that changes it (APPEND, SETRANGE and the
//! INCR family) keeps it. Either sets memcached's flags to 0. The parts that a command does not
//! touch cost it nothing: reads of a part and writes inside a large string use [`StringRef`]'s
//! pieces and edits.
//!
//! [`StringRef`]: pando_engine::StringRef

mod get;
mod increment;
mod lcs;
mod multi;
mod options;
mod range;
mod set;

use pando_engine::{Attributes, ValueRef};
use pando_protocol::command::StringCommand;
use pando_protocol::{Reply, Request};

use super::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::Handled;

pub(super) use increment::{open_number, step};
pub(super) use range::{is_reversed, span};

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: StringCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        StringCommand::Get => get::get(keyspace, request, reply),
        StringCommand::Set => set::set(keyspace, request, reply),
        StringCommand::Append => range::append(keyspace, request, reply),
        StringCommand::Decr
        | StringCommand::Decrby
        | StringCommand::Incr
        | StringCommand::Incrby => increment::add(command, keyspace, request, reply),
        StringCommand::Getdel => get::getdel(keyspace, request, reply),
        StringCommand::Getex => get::getex(keyspace, request, reply),
        StringCommand::Getrange | StringCommand::Substr => {
            range::getrange(keyspace, request, reply)
        }
        StringCommand::Getset => set::getset(keyspace, request, reply),
        StringCommand::Incrbyfloat => increment::incrbyfloat(keyspace, request, reply),
        StringCommand::Lcs => lcs::lcs(keyspace, request, reply),
        StringCommand::Mget => multi::mget(keyspace, request, reply),
        StringCommand::Mset => multi::mset(keyspace, request, reply),
        StringCommand::Msetnx => multi::msetnx(keyspace, request, reply),
        StringCommand::Psetex => set::psetex(keyspace, request, reply),
        StringCommand::Setex => set::setex(keyspace, request, reply),
        StringCommand::Setnx => set::setnx(keyspace, request, reply),
        StringCommand::Setrange => range::setrange(keyspace, request, reply),
        StringCommand::Strlen => get::strlen(keyspace, request, reply),
    }
}

/// An argument that becomes a whole string, unless it is too long for one.
#[inline]
fn new_string<'a>(keyspace: &Keyspace<'_>, bytes: &'a [u8]) -> Result<Detached<'a>, CommandError> {
    check_new(keyspace, bytes.len())?;
    Ok(Detached::new(bytes))
}

/// Refuses a string of `len` bytes that is too long, or can never fit.
#[inline]
fn check_new(keyspace: &Keyspace<'_>, len: usize) -> Result<(), CommandError> {
    check_length(keyspace, len, 0)?;
    keyspace.check_fit(len)
}

/// Refuses a string of `offset` bytes and `len` more, if it is too long.
pub(super) fn check_length(
    keyspace: &Keyspace<'_>,
    offset: usize,
    len: usize,
) -> Result<(), CommandError> {
    match offset.checked_add(len) {
        Some(total) if total <= keyspace.options().value_bytes_max => Ok(()),
        _ => Err(CommandError::StringTooLong),
    }
}

/// The attributes of a string that is changed, not replaced: its deadline stays; memcached's flags
/// and a token that a client chose belong to the whole that it wrote.
pub(super) fn kept(old: Option<&ValueRef<'_>>, encoding: u8) -> Attributes {
    Attributes {
        encoding,
        flags: 0,
        token: None,
        ..old.map(|value| value.attributes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
