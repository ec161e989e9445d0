//! COPY.

use pando_engine::Decision;
use pando_protocol::{Reply, Request};

use super::again;
use crate::commands::databases::database_index;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Copies a value, including its deadline, to another key or database; 1 if copied, 0 if the source
/// is absent or the destination taken. O(size): the copy shares nothing with its source.
pub(super) fn copy(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (source, destination) = (request.arg(1), request.arg(2));
    let (mut index, mut replace) = (keyspace.database_index(), false);
    let mut at = 3;
    while at < request.len() {
        if request.is(at, "REPLACE") {
            replace = true;
            at += 1;
        } else if request.is(at, "DB") && at + 1 < request.len() {
            index = database_index(keyspace.databases(), request.arg(at + 1))?;
            at += 2;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if index == keyspace.database_index() && source == destination {
        return Err(CommandError::SameObject);
    }
    keyspace.check_key(destination)?;
    let check_fit = keyspace.fit();
    let copy = keyspace.read(source, |value| {
        let value = value?;
        let bytes = value.heap_bytes();
        let fits = check_fit(bytes, 2 * bytes);
        Some(fits.map(|()| value.deep_copy()))
    });
    let copy = copy.transpose()?;
    let copied = match &copy {
        None => false,
        Some(copy) => keyspace.at(index).try_update(destination, |old| {
            if old.is_some() && !replace {
                return Ok((Decision::Keep, false));
            }
            Ok((Decision::Write(again(copy)), true))
        })?,
    };
    reply.integer(copied.into());
    Ok(Progress::Done)
}
