//! Commands on ranges of keys, which Redis does not have: KRANGE KPREFIX KCOUNT KRANGEDEL.
//!
//! Bounds are written as in ZRANGE … BYLEX. A reply that does not reach the end of its range names
//! the bound to continue from, ready to be sent as the next *start*. On an unordered engine each
//! command is an error that names the ordered engines.

mod bounds;
mod count;
mod range;
mod remove;

#[cfg(test)]
mod tests;

use pando_protocol::command::OrderedCommand;
use pando_protocol::{Reply, Request, number};

use crate::error::CommandError;
use crate::keyspace::{Keyspace, OrderedKeys};
use crate::progress::Handled;

/// Runs a command of this family.
pub(super) fn execute(
    command: OrderedCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.ordered_keys()?;
    match command {
        OrderedCommand::Krange => range::range(keyspace, request, reply),
        OrderedCommand::Kprefix => range::prefix(keyspace, request, reply),
        OrderedCommand::Kcount => count::count(keyspace, request, reply),
        OrderedCommand::Krangedel => remove::remove(keyspace, request, reply),
    }
}

/// The keys in order, for a command that has begun on an ordered engine.
fn keys<'k>(keyspace: &'k mut Keyspace<'_>) -> OrderedKeys<'k> {
    let keys = keyspace.ordered_keys();
    keys.expect("no command of this family begins without key order")
}

/// The number after LIMIT, at least 1: an empty reply could not name where to continue.
fn limit(argument: Option<&[u8]>) -> Result<usize, CommandError> {
    let argument = argument.ok_or(CommandError::Syntax)?;
    let limit = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
    limit.ok_or(CommandError::NotPositive)
}

/// The options of KCOUNT and KRANGEDEL: `[LIMIT n]`, else no limit.
fn only_limit(request: Request<'_>) -> Result<usize, CommandError> {
    let mut found = usize::MAX;
    for at in (3..request.len()).step_by(2) {
        if !request.is(at, "LIMIT") {
            return Err(CommandError::Syntax);
        }
        found = limit(request.get(at + 1))?;
    }
    Ok(found)
}

/// Writes where to continue: exclusive of `last`, or null when the range is complete.
fn write_next(reply: &mut Reply<'_>, last: Option<&[u8]>) {
    match last {
        Some(last) => {
            reply.bulk_begin(last.len() + 1);
            reply.bulk_piece(b"(");
            reply.bulk_piece(last);
            reply.bulk_end();
        }
        None => reply.null(),
    }
}
