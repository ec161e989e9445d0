//! The short way of most requests: a command on the keyspace of an authenticated client, outside of
//! transactions, that nothing refuses or holds back and that runs under the own gate.
//!
//! Each question here is one that the long way (`Turn::dispatch`) asks too, in Redis' order and
//! with an answer for every case; here any unusual answer sends the request there, and nothing has
//! happened yet. So the two never disagree, and most requests are asked a few loads and compares.
//!
//! Deliberately absent: refusals, transactions, gates, replies that wait for the disk.

use pando_engine::{LogEpoch, Pressure};
use pando_protocol::command::{CommandId, CommandSpec, Flag};
use pando_protocol::{Reply, Request};

use super::kinds::{needs_all_gates, only_asks, waits_for_disk};
use super::{Held, Host, Outcome, Turn};
use crate::acknowledge::Durability;
use crate::client::{Client, ReplyMode};
use crate::commands::{self, Handled, Progress, concerns_host};
use crate::keyspace::Keyspace;
use crate::memory::Tracking;

impl Turn<'_> {
    /// Whether the request may go the short way.
    #[inline]
    pub(super) fn is_usual(&self, client: &Client, spec: &CommandSpec) -> bool {
        runs_on_keyspace(spec.id)
            && matches!(self.held, Held::Own { .. })
            && client.authenticated
            && client.transaction.is_none()
            && client.reply_mode == ReplyMode::On
            && client.durability != Durability::Sync
            && self.database.paused_until(true).is_none()
            && (!spec.flags.has(Flag::DenyOom)
                || self.database.has_room() && client.waits_since_us == 0)
            && (!spec.flags.has(Flag::Write) || self.takes_write(client))
    }

    /// Whether nothing is wrong with writes: the log is open, no reader stalls.
    #[inline]
    fn takes_write(&self, client: &Client) -> bool {
        !client.delayed
            && self.database.store.pressure() == Pressure::None
            && self.database.acknowledgement.accepts_writes()
    }

    /// Runs a request of which [`Self::is_usual`] holds.
    #[inline]
    pub(super) fn run_usual(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Outcome {
        self.session.observes = false;
        self.session.wrote = LogEpoch(0);
        if self.session.access.tracking != Tracking::Nothing {
            self.session.access.quiet = is_quiet(client, spec.id);
        }
        host.starting(client, spec, request);
        let start = reply.position();
        let mut keyspace = Keyspace::new(self.database, self.session, client.database);
        let result = commands::execute(spec.id, &mut keyspace, request, reply);
        let outcome = if let Ok(Progress::Done) = result {
            let reply_bytes = reply.position() - start;
            host.finished(client, spec, request, reply_bytes, None);
            Outcome::Done
        } else {
            let progress = answer(client, spec, request, start, reply, result, host);
            self.outcome(client, spec, progress)
        };
        if self.session.log.is_some() {
            self.end_group();
            if self.session.wrote > LogEpoch(0) {
                self.note_write(client);
            }
        }
        outcome
    }
}

/// What follows the run of a command: the reply to an error, and the host's notes.
#[inline(never)]
pub(super) fn answer(
    client: &Client,
    spec: &'static CommandSpec,
    request: Request<'_>,
    start: usize,
    reply: &mut Reply<'_>,
    result: Handled,
    host: &mut impl Host,
) -> Progress {
    if let Err(error) = &result {
        reply.rewind(start);
        reply.error(error.text());
    }
    let reply_bytes = reply.position() - start;
    host.finished(client, spec, request, reply_bytes, result.as_ref().err());
    result.unwrap_or(Progress::Done)
}

/// Whether what the command reads does not count as used.
pub(super) fn is_quiet(client: &Client, id: CommandId) -> bool {
    id != CommandId::Touch && (client.no_touch || only_asks(id))
}

/// Whether the command is one of `commands::execute` and runs under the own gate.
#[inline]
fn runs_on_keyspace(id: CommandId) -> bool {
    let apart = matches!(
        id,
        CommandId::Discard
            | CommandId::Exec
            | CommandId::Multi
            | CommandId::Select
            | CommandId::Unwatch
            | CommandId::Watch
    );
    !(apart || concerns_host(id) || needs_all_gates(id) || waits_for_disk(id))
}
