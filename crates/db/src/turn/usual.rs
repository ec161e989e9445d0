//! The fast path of most requests: a command on the keyspace, of an authenticated client, outside
//! transactions, that nothing refuses or holds back and that runs under the own gate.
//!
//! Each check here is also made on the slow path (`Turn::dispatch`), in Redis' order and with an
//! answer for every case. Here any unusual answer sends the request there before anything has
//! happened. So the two never disagree, and most requests cost a few loads and compares.
//!
//! So does a request that MULTI queues (`Turn::queues`).
//!
//! Deliberately absent: refusals, EXEC, all gates, engines whose runs are repeated. The
//! reply may still have to wait (AK4 sync-waits, AK5 interval-waits).

use pando_engine::{LogEpoch, Pressure};
use pando_protocol::command::{
    CommandId, CommandSpec, ConnectionCommand, Flag, GateNeed, KeyspaceCommand, Rule,
};
use pando_protocol::{Reply, Request};

use super::run::{may_be_run, may_show_several};
use super::{HeldGates, Host, Turn, is_exec, may_block};
use crate::acknowledge::Durability;
use crate::client::{Client, ReplyMode};
use crate::commands::joined::Joined;
use crate::commands::{self, joined};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::memory::Tracking;
use crate::progress::Handled;
use crate::progress::{Progress, Wait};

impl Turn<'_> {
    /// The command, if its request may take the fast path.
    #[inline]
    pub(super) fn usual(
        &self,
        client: &Client,
        spec: &CommandSpec,
        request: Request<'_>,
    ) -> Option<KeyspaceCommand> {
        let CommandId::Keyspace(command) = spec.id else {
            return None;
        };
        let is_usual = spec.gates == GateNeed::Own
            && matches!(self.held, HeldGates::Own { .. })
            && client.transaction.is_none()
            && !self.session.store.repeats()
            && !(self.session.store.runs_beside() && may_be_run(spec))
            && !may_block(spec)
            && self.is_welcome(client, spec, request)
            && (!spec.flags.has(Flag::DenyOom) || self.gives_memory(client));
        is_usual.then_some(command)
    }

    /// Whether MULTI queues a request, and nothing refuses it or holds it back.
    #[inline]
    pub(super) fn queues(&self, client: &Client, spec: &CommandSpec, request: Request<'_>) -> bool {
        let is_plain = matches!(
            spec.id,
            CommandId::Keyspace(_) | CommandId::Connection(ConnectionCommand::Select)
        );
        // A queue takes memory, whatever it holds.
        client.transaction.is_some()
            && is_plain
            && !spec.rules.has(Rule::Unqueued)
            && !spec.flags.has(Flag::NoMulti)
            && self.is_welcome(client, spec, request)
            && self.gives_memory(client)
    }

    /// Whether nothing but memory refuses a request or holds it back, and its client is of the
    /// usual kind.
    #[inline]
    fn is_welcome(&self, client: &Client, spec: &CommandSpec, request: Request<'_>) -> bool {
        is_plain(client)
            && self.database.paused_until(true).is_none()
            && (!spec.flags.has(Flag::Write) || self.takes_write(client))
            && !self.database.role.refuses(spec.flags.has(Flag::Write))
            && self.session.placing.has_all(spec, request)
    }

    #[inline]
    fn gives_memory(&self, client: &Client) -> bool {
        self.database.has_memory() && client.waits_since.is_none() && client.lacks_room.is_none()
    }

    /// Whether nothing stops writes: the log is open, no reader stalls.
    #[inline]
    fn takes_write(&self, client: &Client) -> bool {
        !client.delayed
            && self.database.store.pressure() == Pressure::None
            && self.database.acknowledgement.accepts_writes()
            && !self.database.snapshots.is_full()
    }

    /// Whether the command's large row may be changed in place, as a joint update does.
    #[inline]
    fn may_change_in_place(&self, command: KeyspaceCommand) -> bool {
        joined::changes_rows(command)
            && self.session.store.changes_in_place()
            && self.session.log.is_none()
            && !self.session.observes
    }

    /// Runs a request whose command [`Self::usual`] has returned.
    #[inline]
    pub(super) fn run_usual(
        &mut self,
        client: &mut Client,
        (spec, command): (&'static CommandSpec, KeyspaceCommand),
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        // T1 gate-and-pin, T4 one-group.
        debug_assert!(matches!(self.held, HeldGates::Own { .. }) && self.past.is_none());
        debug_assert!(self.session.effects.is_none() && !self.session.has_group());
        self.session.observes = client.durability == Durability::Sync;
        self.session.observed = LogEpoch::NONE;
        self.session.wrote = LogEpoch::NONE;
        if self.session.access.tracking != Tracking::Nothing {
            self.session.access.quiet = is_quiet(client, spec);
        }
        host.starting(client, spec, request);
        let start = reply.position();
        self.session.leaves_large = self.may_change_in_place(command);
        let mut result = if may_show_several(spec) {
            self.execute_alive(client.database, command, request, reply)
        } else {
            let mut keyspace = Keyspace::new(self.database, self.session, client.database);
            commands::execute(command, &mut keyspace, request, reply)
        };
        if self.session.leaves_large {
            self.session.leaves_large = false;
            if let Err(CommandError::LargeRow) = result {
                let version = client.protocol;
                let alone = Joined {
                    command,
                    request,
                    version,
                };
                reply.rewind(start);
                let mut keyspace = Keyspace::new(self.database, self.session, client.database);
                result = joined::carry_out_alone(&mut keyspace, alone, reply);
            }
        }
        let progress = if let Ok(Progress::Done) = result {
            let reply_bytes = reply.position() - start;
            host.finished(client, spec, request, reply_bytes, None);
            Progress::Done
        } else if let Err(CommandError::PoolFull) = result
            && let Some(until) = self.retry_with_room(client, request.bytes())
        {
            reply.rewind(start);
            Progress::put_off(until)
        } else {
            let ran = Ran { start, result };
            answer(client, spec, request, ran, reply, host)
        };
        if self.session.has_group() {
            self.end_group();
            if self.session.wrote > LogEpoch::NONE {
                self.note_write(client);
            }
        }
        if self.session.observes {
            self.acknowledge(client);
        }
        progress
    }

    /// A command that shows several keys.
    #[inline(never)]
    fn execute_alive(
        &mut self,
        index: usize,
        command: KeyspaceCommand,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Handled {
        let start = reply.position();
        self.while_alive(|turn| {
            reply.rewind(start);
            let mut keyspace = Keyspace::new(turn.database, turn.session, index);
            commands::execute(command, &mut keyspace, request, reply)
        })
    }
}

/// Whether a client is of the usual kind.
#[inline]
fn is_plain(client: &Client) -> bool {
    client.authenticated
        && client.uses.is_none()
        && client.base == 0
        && client.reply_mode == ReplyMode::On
}

/// Whether a request for a command and a key is usual if one of another client is
/// ([`Turn::usual`]).
#[inline]
pub(super) fn is_usual_as_well(client: &Client) -> bool {
    is_plain(client)
        && client.transaction.is_none()
        && !client.delayed
        && client.waits_since.is_none()
        && client.lacks_room.is_none()
}

/// The outcome of a run, and where its reply begins.
pub(super) struct Ran {
    pub(super) start: usize,
    pub(super) result: Handled,
}

/// What follows the run of a command: the reply to an error, and the host's notification.
#[inline(never)]
pub(super) fn answer(
    client: &Client,
    spec: &'static CommandSpec,
    request: Request<'_>,
    Ran { start, result }: Ran,
    reply: &mut Reply<'_>,
    host: &mut impl Host,
) -> Progress {
    if let Ok(Progress::Waits(Wait::Keys(_) | Wait::Errand)) = result {
        // It is not answered, and runs again.
        return result.unwrap_or(Progress::Done);
    }
    write_error(start, reply, &result);
    // The replies inside an EXEC were counted with their commands.
    let in_slices = matches!(result, Ok(Progress::Waits(Wait::Others(_))));
    debug_assert!(!in_slices || spec.rules.has(Rule::Sliced), "{}", spec.name);
    let reply_bytes = if is_exec(spec) {
        0
    } else {
        reply.position() - start
    };
    host.finished(client, spec, request, reply_bytes, result.as_ref().err());
    result.unwrap_or(Progress::Done)
}

/// An error is the whole reply.
pub(super) fn write_error(start: usize, reply: &mut Reply<'_>, result: &Handled) {
    if let Err(error) = result {
        reply.rewind(start);
        reply.error(error.text());
    }
}

/// Whether reads of the command do not count as uses.
pub(super) fn is_quiet(client: &Client, spec: &CommandSpec) -> bool {
    spec.rules.has(Rule::Quiet) || client.no_touch && !spec.rules.has(Rule::CountsUse)
}
