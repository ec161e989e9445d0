//! Commands about databases as wholes: SELECT SWAPDB DBSIZE FLUSHDB FLUSHALL TIME, and those that
//! only speak: PING ECHO COMMAND.

use pando_protocol::command::{self, CommandId};
use pando_protocol::{Reply, Request, number};

use super::{Handled, Progress};
use crate::client::Client;
use crate::database::Database;
use crate::error::CommandError;
use crate::keyspace::Keyspace;

/// Runs a command of this family.
pub(super) fn execute(
    id: CommandId,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match id {
        CommandId::Ping => ping(request, reply),
        CommandId::Echo => {
            reply.bulk(request.arg(1));
            Ok(Progress::Done)
        }
        CommandId::Command => {
            command::answer(request, reply);
            Ok(Progress::Done)
        }
        CommandId::Dbsize => {
            reply.integer(keyspace.len() as i64);
            Ok(Progress::Done)
        }
        CommandId::Time => time(keyspace, reply),
        CommandId::Swapdb => swapdb(keyspace, request, reply),
        CommandId::Flushdb => flush(keyspace, request, reply, false),
        CommandId::Flushall => flush(keyspace, request, reply, true),
        _ => Err(CommandError::NoHost),
    }
}

fn ping(request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    match request.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk(request.arg(1)),
        _ => return Err(CommandError::Arity { command: "ping" }),
    }
    Ok(Progress::Done)
}

/// Seconds and the microseconds beyond them, at this turn's reading of the clock.
fn time(keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> Handled {
    let now_us = keyspace.now_us();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
    Ok(Progress::Done)
}

/// SELECT, which changes the client and no key.
pub(crate) fn select(
    database: &Database,
    client: &mut Client,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let index = number::parse_i64(request.arg(1)).ok_or(CommandError::NotAnInteger)?;
    client.database = database_index(database.databases(), index)?;
    reply.ok();
    Ok(Progress::Done)
}

fn database_index(databases: usize, index: i64) -> Result<usize, CommandError> {
    let index = usize::try_from(index).map_err(|_| CommandError::DatabaseIndex)?;
    if index < databases {
        Ok(index)
    } else {
        Err(CommandError::DatabaseIndex)
    }
}

/// Exchanges two databases for all clients at once. O(1).
fn swapdb(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let first = number::parse_i64(request.arg(1)).ok_or(CommandError::FirstDatabaseIndex)?;
    let second = number::parse_i64(request.arg(2)).ok_or(CommandError::SecondDatabaseIndex)?;
    let databases = keyspace.databases();
    let first = database_index(databases, first)?;
    let second = database_index(databases, second)?;
    keyspace.database.swap_trees(first, second);
    reply.ok();
    Ok(Progress::Done)
}

/// Empties one database or all. O(databases); memory is returned in the background, ASYNC or not.
fn flush(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    all: bool,
) -> Handled {
    let known = request.len() == 1
        || (request.len() == 2 && (request.is(1, "ASYNC") || request.is(1, "SYNC")));
    if !known {
        return Err(CommandError::Syntax);
    }
    if all {
        for index in 0..keyspace.databases() {
            keyspace.database.replace_tree(index);
        }
    } else {
        keyspace.database.replace_tree(keyspace.index);
    }
    reply.ok();
    Ok(Progress::Done)
}
