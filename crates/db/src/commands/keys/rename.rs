//! RENAME RENAMENX MOVE: moves a value to another key or database.
//!
//! These run under all gates, so nobody sees the value twice or not at all. A large body is handed
//! over, not copied (D2 successors-share of `pando_engine`'s values).

use pando_engine::{Decision, NewValue};
use pando_protocol::{Reply, Request};

use super::again;
use crate::commands::databases::database_index;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Gives a value another key, replacing any value there; its deadline moves with it.
pub(super) fn rename(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (source, destination) = (request.arg(1), request.arg(2));
    keyspace.check_key(destination)?;
    if source == destination {
        if !is_there(keyspace, source) {
            return Err(CommandError::NoSuchKey);
        }
    } else {
        let value = take_over(keyspace, source).ok_or(CommandError::NoSuchKey)?;
        store(keyspace, destination, &value)?;
        keyspace.remove(source);
    }
    reply.ok();
    Ok(Progress::Done)
}

/// [`rename`] unless the new key exists; 1 if renamed.
pub(super) fn rename_if_absent(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (source, destination) = (request.arg(1), request.arg(2));
    keyspace.check_key(destination)?;
    if !is_there(keyspace, source) {
        return Err(CommandError::NoSuchKey);
    }
    let free = !is_there(keyspace, destination);
    if free {
        let value = take_over(keyspace, source).ok_or(CommandError::NoSuchKey)?;
        store(keyspace, destination, &value)?;
        keyspace.remove(source);
    }
    reply.integer(free.into());
    Ok(Progress::Done)
}

/// Moves a key to another database unless it exists there; 1 if moved.
pub(super) fn move_to(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let key = request.arg(1);
    let index = database_index(keyspace.databases(), request.arg(2))?;
    if index == keyspace.database_index() {
        return Err(CommandError::SameObject);
    }
    let free = !is_there(&mut keyspace.at(index), key);
    let found = if free { take_over(keyspace, key) } else { None };
    if let Some(value) = &found {
        store(&mut keyspace.at(index), key, value)?;
        keyspace.remove(key);
    }
    reply.integer(found.is_some().into());
    Ok(Progress::Done)
}

fn is_there(keyspace: &mut Keyspace<'_>, key: &[u8]) -> bool {
    keyspace.look(key, |value| value.is_some())
}

/// The value at `key`, for the one key that it goes to.
fn take_over(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Option<NewValue<'static>> {
    keyspace.look(key, |value| value.map(|value| value.hand_over()))
}

fn store(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    value: &NewValue<'_>,
) -> Result<(), CommandError> {
    keyspace.update(key, |_| Decision::Write(again(value)))?;
    Ok(())
}
