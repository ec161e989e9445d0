//! Commands on connections and the server, one file per family.
//!
//! A handler gets a [`Call`]; the database has checked arity and authentication. It changes things
//! at its end, after everything that can fail, like the database's own commands.
//!
//! Replies differ from those of Redis 7.0.15 in these ways:
//!
//! - SAVE, BGSAVE and BGREWRITEAOF take a checkpoint; with `durability none` they and SHUTDOWN SAVE
//!   are refused. SAVE holds back its own connection only. Every shutdown writes the log to its
//!   end.
//! - WAIT and WAITAOF wait for all writes so far. WAIT counts a replica that keeps a log when it
//!   has them on disk, and answers at once on a server that nobody has followed.
//! - CLIENT TRACKING ON is refused, CLIENT SETINFO, NO-TOUCH and KILL MAXAGE are those of Redis 7.2
//!   and 7.4, and CLIENT LIST ends with `lib-name` and `lib-ver`.
//! - A second MONITOR on a connection answers `+OK` (Redis: nothing), and CLIENT REPLY OFF inside
//!   EXEC silences the whole reply (Redis: what follows in it).
//! - DEBUG SLEEP holds back its own connection only.
//! - MIGRATE holds back its own connection only, and is refused in MULTI. Keys move one after
//!   another.
//! - Latencies are end to end, not times of execution (see `recorder`).
//! - HELP has its own words; reports for people (the DOCTORs, MALLOC-STATS) too.
//!
//! Deliberately absent: waiting. A handler replies from what it sees; CLIENT KILL and MONITOR reach
//! other workers through their mailboxes.

mod acl;
mod client;
mod config;
mod connection;
mod debug;
mod error;
mod info;
mod latency;
pub(crate) mod memcached;
mod memory;
mod migrate;
mod persistence;
pub(crate) mod replication;
mod reshard;
mod scripting;
mod slowlog;

#[cfg(test)]
mod tests;

use pando_db::{Client, Progress, Turn};
use pando_protocol::command::HostCommand;
use pando_protocol::{Reply, Request};

use crate::registry::ClientRecord;
use crate::shared::Shared;

pub(crate) use error::AdminError;

/// The Redis version whose commands, options and texts the server implements.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// The only user.
pub(crate) const USER: &str = "default";

/// One request for the host, with everything that it may touch.
#[derive(Debug)]
pub(crate) struct Call<'c, 't, 'o> {
    pub(crate) shared: &'c Shared,
    pub(crate) record: &'c ClientRecord,
    pub(crate) turn: &'c mut Turn<'t>,
    pub(crate) client: &'c mut Client,
    /// Whether an EXEC runs it.
    pub(crate) inside_exec: bool,
    pub(crate) request: Request<'c>,
    pub(crate) reply: &'c mut Reply<'o>,
}

/// What a handler returns.
pub(crate) type Handled = Result<Progress, AdminError>;

impl Call<'_, '_, '_> {
    /// Replies `+OK`.
    fn ok(&mut self) -> Handled {
        self.reply.ok();
        Ok(Progress::Done)
    }

    /// Replies with the lines of a HELP, each a status line as in Redis.
    fn help(&mut self, command: &str, lines: &[&str]) -> Handled {
        self.reply.array(lines.len() + 3);
        let title = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        self.reply.simple(&title);
        for line in lines {
            self.reply.simple(line);
        }
        self.reply.simple("HELP");
        self.reply.simple("    Prints this help.");
        Ok(Progress::Done)
    }
}

/// Runs a command.
pub(crate) fn execute(command: HostCommand, call: &mut Call<'_, '_, '_>) -> Handled {
    match command {
        HostCommand::Auth => connection::auth(call),
        HostCommand::Hello => connection::hello(call),
        HostCommand::Quit => connection::quit(call),
        HostCommand::Reset => connection::reset(call),
        HostCommand::Client => client::execute(call),
        HostCommand::Acl => acl::execute(call),
        HostCommand::Bgrewriteaof => {
            persistence::bgsave(call, "Background append only file rewriting started")
        }
        HostCommand::Save => persistence::save(call),
        HostCommand::Bgsave => persistence::bgsave(call, "Background saving started"),
        HostCommand::Cluster => Err(AdminError::NoCluster),
        HostCommand::Config => config::execute(call),
        HostCommand::Debug => debug::execute(call),
        HostCommand::Failover => replication::failover(call),
        HostCommand::Function => scripting::function(call),
        HostCommand::Info => info::execute(call),
        HostCommand::Lastsave => persistence::lastsave(call),
        HostCommand::Latency => latency::execute(call),
        HostCommand::Lolwut => info::lolwut(call),
        HostCommand::Memory => memory::execute(call),
        HostCommand::Migrate => migrate::migrate(call),
        HostCommand::Module => scripting::module(call),
        HostCommand::Monitor => client::monitor(call),
        HostCommand::Preplicate => replication::preplicate(call),
        HostCommand::Replica => replication::replica(call),
        HostCommand::Replicaof | HostCommand::Slaveof => replication::replicaof(call),
        HostCommand::Reshard => reshard::execute(call),
        HostCommand::Role => replication::role(call),
        HostCommand::Shutdown => persistence::shutdown(call),
        HostCommand::Slowlog => slowlog::execute(call),
        HostCommand::Wait => replication::wait(call),
        HostCommand::Waitaof => replication::waitaof(call),
    }
}
