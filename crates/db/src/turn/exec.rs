//! MULTI, DISCARD, WATCH, and EXEC: what MULTI queued, under all gates, or as one run beside other
//! sessions.
//!
//! On an engine whose runs are repeated (`run`) the whole EXEC is one run. The queue, the watches
//! and the host's notifications are kept until the run counts (RR1 effects-once, RR3 hosts-once).

use pando_protocol::command::{CommandId, CommandSpec};
use pando_protocol::{Reply, Request};

use super::run::may_be_beside;
use super::usual::{Ran, answer, write_error};
use super::{HeldGates, Host, Turn, is_exec};
use crate::client::{Client, Exec, Undo};
use crate::effects::{Leftover, leaves};
use crate::error::CommandError;
use crate::memory::Fit;
use crate::progress::{Handled, Progress, Wait};
use crate::transaction::{Answered, Note};

/// Whether the command is an EXEC that runs something.
pub(super) fn runs_queue(client: &Client, spec: &CommandSpec) -> bool {
    let queue = client.transaction.as_ref();
    is_exec(spec) && queue.is_some_and(|queue| !queue.is_refused())
}

impl Turn<'_> {
    /// MULTI.
    pub(super) fn multi(&mut self, client: &mut Client, reply: &mut Reply<'_>) -> Handled {
        if let Some(transaction) = &mut client.transaction {
            transaction.refuse();
            return Err(CommandError::NestedMulti);
        }
        let spare = self.session.spare_transaction.take();
        client.transaction = Some(spare.unwrap_or_default());
        reply.ok();
        Ok(Progress::Done)
    }

    /// Queues a request behind MULTI.
    pub(super) fn queue(
        &self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let transaction = client.transaction.as_mut().expect("MULTI came before");
        if !self.session.store.runs_beside() || !may_be_beside(spec, request, transaction.writes())
        {
            transaction.need_gates();
        }
        transaction.queue(spec, request, self.database.request_bytes_max())?;
        reply.simple("QUEUED");
        host.queued(client);
        Ok(Progress::Done)
    }

    /// DISCARD.
    pub(super) fn discard(&mut self, client: &mut Client, reply: &mut Reply<'_>) -> Handled {
        if client.transaction.take().is_none() {
            return Err(CommandError::DiscardWithoutMulti);
        }
        client.watches.clear(self.database);
        reply.ok();
        Ok(Progress::Done)
    }

    /// WATCH.
    pub(super) fn watch(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Handled {
        if let Some(transaction) = &mut client.transaction {
            transaction.refuse();
            return Err(CommandError::WatchInsideMulti);
        }
        let keys = request.args_from(1);
        if !client.watches.can_add(keys.len(), request.bytes()) {
            return Err(CommandError::TooManyWatched);
        }
        let (index, mut added) = (client.index(), Vec::new());
        // In a snapshot nothing can change.
        for key in keys.filter(|_| client.uses.is_none()) {
            let is_new = client.watches.add(self.database, self.session, index, key);
            if is_new && self.session.effects.is_some() {
                added.push(key.into());
            }
        }
        if !added.is_empty() {
            client.undo = Some(Undo::Watched { index, keys: added });
        }
        reply.ok();
        Ok(Progress::Done)
    }

    /// Runs what MULTI queued, under all gates or in a run: no other command runs in between. A
    /// transaction that was refused while it was queued takes no gate.
    pub(super) fn exec(
        &mut self,
        client: &mut Client,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let mut transaction = client
            .transaction
            .take()
            .ok_or(CommandError::ExecWithoutMulti)?;
        transaction.notes.clear();
        if transaction.is_refused() {
            client.watches.clear(self.database);
            return Err(CommandError::ExecAborted);
        }
        if self.session.effects.is_none() {
            self.hold_all();
        }
        if client.watched_keys() > 0 {
            // Whether it runs depends on the keys, and so reveals them.
            let current = self.database.epochs.current();
            self.session.observe(current);
        }
        let mut exec = Exec {
            transaction,
            watches: std::mem::take(&mut client.watches),
        };
        let broken = exec.watches.are_broken(self.database, self.session);
        let progress = if broken {
            reply.null_array();
            Progress::Done
        } else {
            self.run_queue(client, &mut exec, reply, host)
        };
        if self.session.effects.is_some() {
            client.undo = Some(Undo::Exec(exec));
        } else {
            self.end_exec(client, exec, host);
        }
        Ok(progress)
    }

    fn run_queue(
        &mut self,
        client: &mut Client,
        exec: &mut Exec,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let is_run = self.session.effects.is_some();
        assert!(is_run || matches!(self.held, HeldGates::All { .. }));
        assert!(client.transaction.is_none());
        let mut progress = Progress::Done;
        self.session.fit = Fit::of_transaction(&self.database.memory);
        reply.array(exec.transaction.len());
        for index in 0..exec.transaction.len() {
            reply.set_version(client.protocol);
            self.renew_pin(exec.transaction.get(index).0);
            let ran = if self.session.effects.is_some() {
                self.run_in_run(client, exec, index, reply, host)
            } else {
                let (spec, request) = exec.transaction.get(index);
                host.starting(client, spec, request);
                let start = reply.position();
                let result = self.run_unobserved(client, spec, request, reply, host);
                let result = without_keys(result, reply);
                let ran = answer(client, spec, request, Ran { start, result }, reply, host);
                exec.transaction.free(index);
                ran
            };
            match ran {
                Progress::Done => {}
                Progress::Close => progress = Progress::Close,
                Progress::Waits(Wait::Others(mut slices)) => {
                    let mut keyspace = self.keyspace(client.index());
                    while !slices.work.step(&mut keyspace, reply) {}
                }
                // Inside a transaction nothing waits.
                Progress::Waits(_) => reply.ok(),
            }
        }
        self.session.fit = Fit::default();
        progress
    }

    /// Runs a queued command in the run of its EXEC.
    fn run_in_run(
        &mut self,
        client: &mut Client,
        exec: &mut Exec,
        index: usize,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let (spec, request) = exec.transaction.get(index);
        if matches!(spec.id, CommandId::Host(_)) {
            return self.run_hosted(client, exec, index, reply, host);
        }
        let start = reply.position();
        let (progress, error) = match self.run_unobserved(client, spec, request, reply, host) {
            Ok(Progress::Done) => (Progress::Done, None),
            result => {
                let result = without_keys(result, reply);
                write_error(start, reply, &result);
                match result {
                    Ok(progress) => (progress, None),
                    Err(error) => (Progress::Done, Some(error)),
                }
            }
        };
        let reply_bytes = reply.position() - start;
        exec.transaction.notes.push(Note {
            index,
            database: client.database,
            reply_bytes,
            error,
        });
        if leaves(Leftover::Notes) {
            let note = exec.transaction.notes.pop().expect("it was pushed");
            tell(client, exec, &note, host);
        }
        progress
    }

    /// The same for a command of the host (RR3 hosts-once). A blind one has looked at the keyspace,
    /// and so has no effect besides its reply.
    fn run_hosted(
        &mut self,
        client: &mut Client,
        exec: &mut Exec,
        index: usize,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        if let Some(answered) = exec.transaction.answered(index) {
            reply.raw(&answered.reply);
            client.set(answered.settings.clone());
            return if answered.closes {
                Progress::Close
            } else {
                Progress::Done
            };
        }
        if self.is_blind() && !leaves(Leftover::Hosted) {
            return Progress::Done;
        }
        let (spec, request) = exec.transaction.get(index);
        host.starting(client, spec, request);
        let start = reply.position();
        let result = self.run_unobserved(client, spec, request, reply, host);
        if self.is_blind() && !leaves(Leftover::Hosted) {
            return Progress::Done;
        }
        let closes = match answer(client, spec, request, Ran { start, result }, reply, host) {
            Progress::Done => false,
            Progress::Close => true,
            Progress::Waits(_) => {
                reply.ok();
                false
            }
        };
        if !leaves(Leftover::Hosted) {
            *exec.transaction.answered(index) = Some(Box::new(Answered {
                reply: reply.since(start).into(),
                settings: client.settings(),
                closes,
            }));
        }
        if closes {
            Progress::Close
        } else {
            Progress::Done
        }
    }

    /// Publishes the effects of an EXEC that counts.
    pub(super) fn end_exec(&mut self, client: &mut Client, mut exec: Exec, host: &mut impl Host) {
        let database = client.database;
        for note in &exec.transaction.notes {
            tell(client, &exec, note, host);
        }
        client.database = database;
        exec.watches.clear(self.database);
        client.watches = exec.watches;
        self.session.spare_transaction = exec.transaction.emptied();
    }
}

/// A command that would wait for keys answers that there is nothing.
fn without_keys(result: Handled, reply: &mut Reply<'_>) -> Handled {
    let Ok(Progress::Waits(Wait::Keys(wait))) = &result else {
        return result;
    };
    if wait.is_single {
        reply.null();
    } else {
        reply.null_array();
    }
    Ok(Progress::Done)
}

/// Notifies the host of a command that has run.
fn tell(client: &mut Client, exec: &Exec, note: &Note, host: &mut impl Host) {
    let (spec, request) = exec.transaction.get(note.index);
    client.database = note.database;
    host.starting(client, spec, request);
    host.finished(client, spec, request, note.reply_bytes, note.error.as_ref());
}
