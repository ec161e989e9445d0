//! The commands on the keyspace, one file per family.
//!
//! A handler is given the selected database, the request (its arity checked) and the reply. It
//! returns an error before it has changed anything; the error's text becomes the reply.

mod bitmaps;
pub(crate) mod detached;

pub(crate) mod extended;
mod hashes;
mod keys;
mod ordered;
pub(crate) mod server;
mod strings;
#[cfg(test)]
pub(crate) mod testing;

use pando_protocol::command::CommandId;
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

/// Whether the command is the host's (connections, configuration, statistics).
pub(crate) fn concerns_host(id: CommandId) -> bool {
    use CommandId as C;
    matches!(
        id,
        C::Auth
            | C::Client
            | C::Hello
            | C::Quit
            | C::Reset
            | C::Acl
            | C::Bgsave
            | C::Bgrewriteaof
            | C::Cluster
            | C::Config
            | C::Debug
            | C::Function
            | C::Info
            | C::Lastsave
            | C::Latency
            | C::Memory
            | C::Module
            | C::Monitor
            | C::Replicaof
            | C::Role
            | C::Save
            | C::Shutdown
            | C::Slaveof
            | C::Slowlog
            | C::Wait
            | C::Waitaof
    )
}

/// Runs a command on the keyspace.
#[inline]
pub(crate) fn execute(
    id: CommandId,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    use CommandId as C;
    match id {
        C::Append
        | C::Decr
        | C::Decrby
        | C::Get
        | C::Getdel
        | C::Getex
        | C::Getrange
        | C::Getset
        | C::Incr
        | C::Incrby
        | C::Incrbyfloat
        | C::Lcs
        | C::Mget
        | C::Mset
        | C::Msetnx
        | C::Psetex
        | C::Set
        | C::Setex
        | C::Setnx
        | C::Setrange
        | C::Strlen
        | C::Substr => strings::execute(id, keyspace, request, reply),
        C::Bitcount
        | C::Bitfield
        | C::BitfieldRo
        | C::Bitop
        | C::Bitpos
        | C::Getbit
        | C::Setbit => bitmaps::execute(id, keyspace, request, reply),
        C::Copy
        | C::Del
        | C::Dump
        | C::Exists
        | C::Expire
        | C::Expireat
        | C::Expiretime
        | C::Keys
        | C::Move
        | C::Object
        | C::Persist
        | C::Pexpire
        | C::Pexpireat
        | C::Pexpiretime
        | C::Pttl
        | C::Randomkey
        | C::Rename
        | C::Renamenx
        | C::Restore
        | C::Scan
        | C::Touch
        | C::Ttl
        | C::Type
        | C::Unlink => keys::execute(id, keyspace, request, reply),
        C::Hdel
        | C::Hexists
        | C::Hget
        | C::Hgetall
        | C::Hincrby
        | C::Hincrbyfloat
        | C::Hkeys
        | C::Hlen
        | C::Hmget
        | C::Hmset
        | C::Hrandfield
        | C::Hscan
        | C::Hset
        | C::Hsetnx
        | C::Hstrlen
        | C::Hvals => hashes::execute(id, keyspace, request, reply),
        C::Kcount | C::Kprefix | C::Krange | C::Krangedel => {
            ordered::execute(id, keyspace, request, reply)
        }
        id => server::execute(id, keyspace, request, reply),
    }
}
