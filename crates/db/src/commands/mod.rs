//! The commands on the keyspace, one file per family.
//!
//! A handler gets the selected database, the request (its arity checked) and the reply. It returns
//! an error before it has changed anything; the error's text becomes the reply.

mod bitmaps;
pub(crate) mod databases;
pub(crate) mod detached;
mod draft;
pub(crate) mod extended;
mod geo;
mod hashes;
mod hyperloglog;
pub(crate) mod joined;
mod keys;
mod lists;
mod ordered;
mod picks;
mod scanning;
mod sets;
mod sorted;
mod strangers;
mod streams;
mod strings;
#[cfg(test)]
pub(crate) mod testing;
mod waiting;

use pando_engine::limits::FIELD_BYTES_MAX;
use pando_protocol::command::KeyspaceCommand;
use pando_protocol::{Reply, Request};

use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::Handled;

pub(crate) use keys::again;
pub use keys::{Departing, describe_object, memory_usage};
pub use strangers::{VALUE_FORMAT, string_to_move};

/// Runs a command on the keyspace.
#[inline]
pub(crate) fn execute(
    command: KeyspaceCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    use KeyspaceCommand as K;
    match command {
        K::String(command) => strings::execute(command, keyspace, request, reply),
        K::Hash(command) => hashes::execute(command, keyspace, request, reply),
        K::Key(command) => keys::execute(command, keyspace, request, reply),
        K::Bitmap(command) => bitmaps::execute(command, keyspace, request, reply),
        K::Hyperloglog(command) => hyperloglog::execute(command, keyspace, request, reply),
        K::List(command) => lists::execute(command, keyspace, request, reply),
        K::Set(command) => sets::execute(command, keyspace, request, reply),
        K::Geo(command) => geo::execute(command, keyspace, request, reply),
        K::Stream(command) => streams::execute(command, keyspace, request, reply),
        K::Sorted(command) => sorted::execute(command, keyspace, request, reply),
        K::Ordered(command) => ordered::execute(command, keyspace, request, reply),
        K::Database(command) => databases::execute(command, keyspace, request, reply),
    }
}

/// Refuses a member of a set, sorted or not, that is too long to be stored.
fn check_member(member: &[u8]) -> Result<(), CommandError> {
    let (member_bytes, member_bytes_max) = (member.len(), FIELD_BYTES_MAX - MEMBER_ROOM_BYTES);
    if member_bytes <= member_bytes_max {
        Ok(())
    } else {
        Err(CommandError::MemberTooLong {
            member_bytes,
            member_bytes_max,
        })
    }
}

/// What a sorted set stores in front of a member.
const MEMBER_ROOM_BYTES: usize = 16;
