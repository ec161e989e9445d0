//! Commands on whole databases: SELECT SWAPDB DBSIZE FLUSHDB FLUSHALL TIME, and those without a
//! key: PING ECHO COMMAND.

use pando_protocol::command::{self, DatabaseCommand};
use pando_protocol::{Reply, Request, number};

use crate::client::Client;
use crate::database::Database;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};
use crate::remapping;

/// Runs a command of this family.
pub(super) fn execute(
    command: DatabaseCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        DatabaseCommand::Ping => ping(request, reply),
        DatabaseCommand::Echo => {
            reply.bulk(request.arg(1));
            Ok(Progress::Done)
        }
        DatabaseCommand::Command => {
            command::answer(request, reply);
            Ok(Progress::Done)
        }
        DatabaseCommand::Dbsize => {
            keyspace.observe_all();
            reply.integer(keyspace.len() as i64);
            Ok(Progress::Done)
        }
        DatabaseCommand::Time => time(keyspace, reply),
        DatabaseCommand::Swapdb => swapdb(keyspace, request, reply),
        DatabaseCommand::Flushdb => flush(keyspace, request, reply, false),
        DatabaseCommand::Flushall => flush(keyspace, request, reply, true),
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

/// Seconds, and the microseconds beyond them, at this turn's reading of the clock.
fn time(keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> Handled {
    let now = keyspace.now_exactly();
    reply.array(2);
    reply.bulk_integer((now.0 / 1_000_000) as i64);
    reply.bulk_integer((now.0 % 1_000_000) as i64);
    Ok(Progress::Done)
}

/// SELECT, which changes the client and no key.
pub(crate) fn select(
    database: &Database,
    client: &mut Client,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    client.database = database_index(database.databases(), request.arg(1))?;
    reply.ok();
    Ok(Progress::Done)
}

/// The database whose number is `argument` (SELECT, MOVE, COPY).
pub(crate) fn database_index(databases: usize, argument: &[u8]) -> Result<usize, CommandError> {
    let index = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
    let (least, most) = (i32::MIN.into(), i32::MAX.into());
    if !(least..=most).contains(&index) {
        return Err(CommandError::CountBetween { least, most });
    }
    within(databases, index as i32)
}

fn within(databases: usize, index: i32) -> Result<usize, CommandError> {
    let index = usize::try_from(index)
        .ok()
        .filter(|index| *index < databases);
    index.ok_or(CommandError::DatabaseIndex)
}

/// Exchanges two databases for all clients at once. O(1).
fn swapdb(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let number = |at: usize, error: CommandError| {
        let number = number::parse_i64(request.arg(at));
        number
            .and_then(|number| i32::try_from(number).ok())
            .ok_or(error)
    };
    let first = number(1, CommandError::FirstDatabaseIndex)?;
    let second = number(2, CommandError::SecondDatabaseIndex)?;
    let databases = keyspace.databases();
    let (first, second) = (within(databases, first)?, within(databases, second)?);
    let (database, base) = (keyspace.database, keyspace.base());
    remapping::swap(database, keyspace.session, base + first, base + second);
    keyspace.observe_all();
    reply.ok();
    Ok(Progress::Done)
}

/// Empties one database or all. O(databases); memory is freed in the background, ASYNC or not.
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
    let indexes = if all {
        keyspace.base()..keyspace.base() + keyspace.databases()
    } else {
        keyspace.index..keyspace.index + 1
    };
    let database = keyspace.database;
    for index in indexes {
        remapping::replace(database, keyspace.session, index);
    }
    keyspace.observe_all();
    reply.ok();
    Ok(Progress::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Shell;

    #[test]
    fn numbers_of_databases_are_refused_in_the_words_of_redis() {
        let between = "-ERR value is out of range, value must between -2147483648 and 2147483647";
        let index = "-ERR DB index is out of range";
        let mut shell = Shell::new();
        shell.store(b"k", b"v");
        shell.check(&[
            ("SELECT x", "-ERR value is not an integer or out of range"),
            ("SELECT 99999999999", between),
            ("SELECT 16", index),
            ("SELECT -1", index),
            ("SWAPDB x 16", "-ERR invalid first DB index"),
            ("SWAPDB 99999999999 0", "-ERR invalid first DB index"),
            ("SWAPDB 16 x", "-ERR invalid second DB index"),
            ("SWAPDB 0 99999999999", "-ERR invalid second DB index"),
            ("SWAPDB 0 16", index),
            ("SWAPDB -1 0", index),
            ("SWAPDB 0 3", "+OK"),
            ("DBSIZE", ":0"),
            ("SELECT 3", "+OK"),
            ("DBSIZE", ":1"),
        ]);
    }
}
