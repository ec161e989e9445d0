//! The commands on the keyspace, one file per family.
//!
//! A handler gets the selected database, the request (its arity checked) and the reply. It returns
//! an error before it has changed anything; the error's text becomes the reply.

mod bitmaps;
pub(crate) mod databases;
pub(crate) mod detached;
mod draft;
pub(crate) mod extended;
mod hashes;
mod hyperloglog;
mod keys;
mod ordered;
mod strings;
#[cfg(test)]
pub(crate) mod testing;

use pando_protocol::command::KeyspaceCommand;
use pando_protocol::{Reply, Request};

use crate::keyspace::Keyspace;
use crate::progress::Handled;

pub(crate) use keys::again;
pub use keys::memory_usage;

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
        K::Ordered(command) => ordered::execute(command, keyspace, request, reply),
        K::Database(command) => databases::execute(command, keyspace, request, reply),
    }
}
