//! The commands on the keyspace, one file per family.
//!
//! A handler is given the selected database, the request (its arity checked) and the reply. It
//! returns an error before it has changed anything; the error's text becomes the reply.

mod bitmaps;
pub(crate) mod databases;
pub(crate) mod detached;

pub(crate) mod extended;
mod hashes;
mod keys;
mod ordered;
mod strings;
#[cfg(test)]
pub(crate) mod testing;

use pando_protocol::command::KeyspaceCommand;
use pando_protocol::{Reply, Request};

use crate::error::CommandError;
use crate::keyspace::Keyspace;

pub(crate) use keys::again;
pub use keys::memory_usage;

/// How far a command has come.
#[derive(Debug)]
pub enum Progress {
    /// The reply is written.
    Done,
    /// The reply is written; the connection is to be closed.
    Close,
    /// `+OK` is due in this many milliseconds.
    Sleep(u64),
    /// The reply is due when everything written so far is on disk, or in this many milliseconds.
    AwaitDurable {
        /// How long; `None` is for ever.
        timeout_ms: Option<u64>,
    },
    /// The reply is the host's to write, when what this number stands for has happened.
    AwaitHost(u64),
    /// The command goes on in slices, so that others run in between.
    Slices(Box<dyn Slice>),
}

/// A command that does its work in bounded slices.
pub trait Slice: Send + std::fmt::Debug {
    /// Does the next slice; when it returns true the reply is written (an error included) and the
    /// command is over. Nothing is written to `reply` before that.
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool;
}

/// What a handler returns.
pub(crate) type Handled = Result<Progress, CommandError>;

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
        K::Ordered(command) => ordered::execute(command, keyspace, request, reply),
        K::Database(command) => databases::execute(command, keyspace, request, reply),
    }
}
