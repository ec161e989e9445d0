//! Joint updates: requests of one batch that change the same collection one after the other are
//! carried out together (`crate::commands::joined`), and then answered one by one.
//!
//! ```text
//! may_join (each request) ──► join: one update ──► answer (each request that was carried out)
//! ```
//! The requests may be of several clients: their order is that of the batch. Each is one that
//! would take the fast path (`super::usual`), of a client whose reply waits for nothing. What the
//! update writes is one group of the log (T4 one-group). Nothing of it is seen before all of it is.
//! So the whole is as if the commands had run at the moment of the commit, one by one.
//!
//! Deliberately absent: timing. A host that times each command joins none.

use pando_engine::LogEpoch;
use pando_protocol::command::{CommandId, CommandSpec};
use pando_protocol::{Reply, Request};

use super::Turn;
use super::usual::is_usual_as_well;
use crate::acknowledge::Durability;
use crate::client::Client;
use crate::commands::joined::{Answers, Joined, carry_out, family};
use crate::keyspace::Keyspace;
use crate::limits;
use crate::turn::Host;

impl Turn<'_> {
    /// Whether requests of this command may be joined with others, as far as the command says.
    #[inline]
    #[must_use]
    pub fn is_joinable(spec: &CommandSpec) -> bool {
        matches!(spec.id, CommandId::Keyspace(command) if family(command).is_some())
    }

    /// The request as part of a joint update, unless something about it or its client is unusual.
    #[must_use]
    pub fn may_join<'r>(
        &self,
        client: &Client,
        spec: &CommandSpec,
        request: Request<'r>,
    ) -> Option<Joined<'r>> {
        let command = self.usual(client, spec, request)?;
        let may = family(command).is_some()
            && is_answered_at_once(client)
            && !self.session.beyond_room
            && request.span_bytes() <= limits::JOINED_REQUEST_BYTES_MAX
            && request.arg(1).len() <= self.database.options.key_bytes_max;
        may.then_some(Joined {
            command,
            request,
            version: client.protocol,
        })
    }

    /// The same of a request of another client for the command and the key of one that may be
    /// joined: only what is its client's own is looked at.
    #[inline]
    #[must_use]
    pub fn may_join_too<'r>(
        first: &Joined<'_>,
        client: &Client,
        request: Request<'r>,
    ) -> Option<Joined<'r>> {
        let may = is_usual_as_well(client) && is_answered_at_once(client);
        let joined = Joined {
            command: first.command,
            request,
            version: client.protocol,
        };
        (may && first.is_neighbour(request)).then_some(joined)
    }

    /// Carries out as many of the requests as can be together, in order, and leaves their answers;
    /// none if they have nothing to share. All have the key of the first one, in the database at
    /// `index` ([`Client::index`]), and come from [`Self::may_join`] in this turn.
    pub fn join(&mut self, index: usize, requests: &[Joined<'_>], answers: &mut Answers) {
        // T1 gate-and-pin, T4 one-group.
        debug_assert!(self.session.effects.is_none() && !self.session.has_group());
        debug_assert!(self.past.is_none());
        self.session.observes = false;
        self.session.wrote = LogEpoch::NONE;
        self.session.access.quiet = false;
        answers.clear();
        let mut keyspace = Keyspace::new(self.database, self.session, index);
        carry_out(&mut keyspace, requests, answers);
        if self.session.has_group() {
            self.end_group();
        }
        answers.wrote = std::mem::replace(&mut self.session.wrote, LogEpoch::NONE);
    }

    /// Answers the request at `index` of those that were carried out together, and notifies the
    /// host.
    pub fn answer(
        &mut self,
        client: &mut Client,
        (spec, request): (&'static CommandSpec, Request<'_>),
        reply: &mut Reply<'_>,
        host: &mut impl Host,
        (answers, index): (&Answers, usize),
    ) {
        host.starting(client, spec, request);
        let (bytes, error) = answers.get(index);
        reply.raw(bytes);
        host.finished(client, spec, request, bytes.len(), error);
        if answers.wrote > LogEpoch::NONE {
            self.session.wrote = answers.wrote;
            self.note_write(client);
        }
    }
}

/// Whether replies to a client wait for neither a disk nor replicas, and its requests count as
/// uses.
#[inline]
fn is_answered_at_once(client: &Client) -> bool {
    client.durability != Durability::Sync && !client.no_touch && client.replicated.is_none()
}
