//! Commands that wait for keys: see `lines`.

use pando_protocol::command::CommandSpec;
use pando_protocol::{Reply, Request};

use super::usual::{Ran, answer};
use super::{HeldGates, Host, Turn};
use crate::client::Client;
use crate::database::Database;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::lines::{Blocked, Ended, InLine, Line, Place};
use crate::progress::{KeyWait, Progress, StreamWait, Wait};

impl Turn<'_> {
    /// Runs a blocking command outside of EXEC, for the first time or again.
    pub(super) fn run_blocking(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let start = reply.position();
        let blocked = client.blocked.as_ref();
        self.session.in_line = match blocked.map(|blocked| (blocked.ticket, blocked.ended)) {
            None => InLine::New,
            Some((_, Some(ended))) => {
                self.leave_lines(client);
                let result = match ended {
                    Ended::Timeout => {
                        reply.null_array();
                        Ok(Progress::Done)
                    }
                    Ended::Error => Err(CommandError::Unblocked),
                    Ended::RoleChanged => Err(CommandError::RoleChanged),
                };
                let ran = Ran { start, result };
                let progress = answer(client, spec, request, ran, reply, host);
                return match ended {
                    Ended::RoleChanged => Progress::Close,
                    Ended::Timeout | Ended::Error => progress,
                };
            }
            Some((ticket, None)) => {
                let called_to = self.database.lines.waiting.arm(ticket);
                self.session.called_to = called_to.map(|place| place.key);
                if let Some(blocked) = blocked {
                    self.session.waits_behind.clone_from(&blocked.behind);
                }
                InLine::At(ticket)
            }
        };
        let mut progress = self.run(client, spec, request, reply, host);
        if let Progress::Waits(Wait::Keys(wait)) = &progress
            && client.blocked.is_none()
        {
            let is_whole = matches!(self.held, HeldGates::All { .. });
            self.enter_lines(client, request, wait);
            // It may have removed expired keys (T4 one-group).
            self.end_group();
            if is_whole {
                self.hold_all();
            }
            // Once more: what was written meanwhile was announced to others (WQ1 no-lost-wake).
            progress = self.run(client, spec, request, reply, host);
        }
        self.session.in_line = InLine::Aside;
        self.session.called_to = None;
        match &mut progress {
            Progress::Waits(Wait::Keys(wait)) => {
                debug_assert_eq!(reply.position(), start, "{}", spec.name);
                wait.until = client.blocked.as_ref().and_then(|blocked| blocked.until);
            }
            Progress::Waits(_) => {}
            Progress::Done | Progress::Close => self.leave_lines(client),
        }
        progress
    }

    /// Answers a request whose wait is over, which does nothing any more, whether or not it may.
    pub(super) fn stop_waiting(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        host.starting(client, spec, request);
        self.hold_own();
        self.run_blocking(client, spec, request, reply, host)
    }

    /// A request is refused, perhaps when it was woken (BL3 everyone-leaves).
    pub(super) fn leave_lines_refused(&mut self, client: &mut Client) {
        if client.blocked.is_some() {
            self.hold_own();
            self.leave_lines(client);
        }
    }

    fn enter_lines(&mut self, client: &mut Client, request: Request<'_>, wait: &KeyWait) {
        let keys = wait.keys.clone().map(|index| request.arg(index));
        let (line, behind) = match &wait.streams {
            None => (Line::Only, Vec::new()),
            Some(StreamWait::Behind(ids)) => (Line::Own(client.id), ids.clone()),
            Some(StreamWait::Group(group)) => (Line::Group(group.clone()), Vec::new()),
        };
        let place = |key| Place::new(client.index(), wait.tag, key).with(line.clone());
        let places = keys.map(place);
        let ticket = (self.database.lines.waiting).enter(client.id, places.collect());
        self.session.in_line = InLine::At(ticket);
        self.session.waits_behind.clone_from(&behind);
        client.blocked = Some(Box::new(Blocked {
            ticket,
            until: wait.until,
            ended: None,
            behind,
        }));
    }

    /// The command is answered: what it left goes to the next in line (BL3 everyone-leaves).
    pub(super) fn leave_lines(&mut self, client: &mut Client) {
        let Some(blocked) = client.blocked.take() else {
            return;
        };
        let lines = &self.database.lines;
        for place in lines.waiting.leave(blocked.ticket) {
            let mut keyspace = Keyspace::new(self.database, self.session, place.index);
            let is_there = |value: Option<pando_engine::ValueRef<'_>>| {
                value.is_some_and(|value| value.tag() as u8 == place.tag)
            };
            if keyspace.look(&place.key, is_there) {
                lines.announce_in_line(place);
            }
        }
    }
}

impl Database {
    /// Calls `wake`, with a client's number, when a key that the client waits for may have a value:
    /// its request ([`Wait::Keys`]) is to be executed again. It may be called for nothing, and
    /// under gates; it must not wait. The first call counts.
    pub fn on_ready(&self, wake: impl Fn(u64) + Send + Sync + 'static) {
        // A second host would be a fault of the embedder; the first one keeps its clients.
        let _ = self.lines.wake.set(Box::new(wake));
    }
}

impl Client {
    /// Whether its request has waited for keys and does no more.
    pub(super) fn has_stopped_waiting(&self) -> bool {
        (self.blocked.as_ref()).is_some_and(|blocked| blocked.ended.is_some())
    }

    /// Its wait for keys is over, whatever they hold: its request, executed again, says so.
    pub fn end_wait(&mut self, ended: Ended) {
        if let Some(blocked) = &mut self.blocked {
            blocked.ended = Some(ended);
        }
    }
}
