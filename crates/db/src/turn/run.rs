//! Runs: a request on an engine that may be blind or come too late
//! ([`pando_engine::Transactional`]) is run until a run of it counts.
//!
//! ```text
//!             ┌────────────── Conflict: at once ─────────────┐
//!             ▼                                              │
//! begin_run ──► the command, or EXEC ──► end_run ────────────┤
//!             ▲                             │ Done           │ Away
//!             │                             ▼                ▼
//!             │                   its effects are taken   Wait::Away ─┐
//!             └──────────────────────────────────────────────────────┘
//! ```
//!
//! With Minuet a run is a request of several keys ([`Turn::is_run`]), EXEC or another: it is under
//! the own gate, beside those of other sessions (MR1 runs-validated), where another engine needs
//! all gates. A request of one key is one operation of the engine, and needs no run.
//!
//! With a pool, a command that writes several keys under all gates is one run, which counts unless
//! a write found no room (`run_or_take_back`).
//!
//! `effects` lists what a run does outside the engine, and how it is handled (RR1 effects-once).
//! What precedes a run is not part of it: admission, eviction, MULTI's queue. After
//! [`limits::CONFLICTS_MAX`] conflicts a command takes all gates, so that no other one comes in
//! between.

use pando_engine::{Key, Outcome, Refused, Transactional};
use pando_protocol::command::{
    CommandId, CommandSpec, ConnectionCommand, Flag, GateNeed, Rule, keys, names_one_key,
};
use pando_protocol::{Reply, Request};

use super::branches::inner_read;
use super::exec::runs_queue;
use super::usual::{Ran, answer};
use super::{HeldGates, Host, Turn, is_exec, may_block};
use crate::client::{Client, Undo};
use crate::database::Database;
use crate::effects::{Effects, Leftover, leaves};
use crate::limits;
use crate::progress::{Handled, Progress, Slices, Wait};
use crate::remapping;

/// How something is attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Once, unless the engine repeats everything.
    Once,
    /// As a run that only reads, where runs are beside others; else while all it shows is alive.
    Reads,
    /// As a run.
    Whole,
}

impl Turn<'_> {
    /// Runs a command, or makes it wait for absent data.
    #[cold]
    pub(super) fn run_until_it_counts(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let start = reply.position();
        let stores_nothing = || spec.has_keys_in_values() && names_one_key(spec, request);
        let reads = !is_exec(spec) && (spec.flags.has(Flag::Readonly) || stores_nothing());
        let how = if reads {
            Attempt::Reads
        } else {
            Attempt::Whole
        };
        let result = self.until_it_counts(client, how, |turn, client| {
            if !leaves(Leftover::Reply) {
                reply.rewind(start);
            }
            reply.set_version(client.protocol);
            turn.run_unobserved(client, spec, request, reply, host)
        });
        let Some(result) = result else {
            if !leaves(Leftover::Reply) {
                reply.rewind(start);
            }
            return Progress::Waits(Wait::Away);
        };
        if let Some(undo) = client.undo.take()
            && let Undo::Exec(exec) = undo
        {
            self.end_exec(client, exec, host);
        }
        answer(client, spec, request, Ran { start, result }, reply, host)
    }

    /// Runs a command that is no run, or is part of one.
    pub(super) fn run_once(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        if self.session.effects.is_some() || !may_show_several(spec) {
            return self.run_unobserved(client, spec, request, reply, host);
        }
        let start = reply.position();
        self.while_alive(|turn| {
            reply.rewind(start);
            turn.run_unobserved(client, spec, request, reply, host)
        })
    }

    /// Attempts something until a run of it counts; `None` if it must wait for absent data, with
    /// the client as it was before. On an engine that repeats nothing that is one attempt, unless
    /// it is to be a run or shows several keys.
    #[inline]
    pub(crate) fn until_it_counts<R>(
        &mut self,
        client: &mut Client,
        how: Attempt,
        mut attempt: impl FnMut(&mut Self, &mut Client) -> R,
    ) -> Option<R> {
        let repeats = self.session.store.repeats();
        if !repeats && how == Attempt::Once {
            return Some(attempt(self, client));
        }
        if how == Attempt::Reads && !repeats && !self.session.store.runs_beside() {
            return Some(self.while_alive(|turn| attempt(turn, client)));
        }
        let settings = client.settings();
        let mut conflicts = 0;
        loop {
            self.begin_run(how == Attempt::Reads);
            let result = attempt(self, client);
            let outcome = self.end_run();
            if outcome == Outcome::Done {
                return Some(result);
            }
            if !leaves(Leftover::Settings) {
                client.set(settings.clone());
            }
            undo(self.database, client);
            if outcome == Outcome::Away {
                return None;
            }
            conflicts += 1;
            if conflicts == limits::CONFLICTS_MAX && matches!(self.held, HeldGates::Own { .. }) {
                let changes = self.session.placing.changes;
                self.hold_all();
                if self.session.placing.changes != changes {
                    // Its keys may be elsewhere (PG1 stands-still).
                    return None;
                }
                if !repeats {
                    return Some(attempt(self, client));
                }
            }
            self.refresh_clock();
        }
    }

    /// Whether a request is a run beside those of other sessions: all keys that it can touch are
    /// named by it, and they are several; or EXEC reads portions of ranges and counts keys as well,
    /// before it writes (MR4 scans-compared, MR5 counts-compared of minuet). On an engine without
    /// such runs none is.
    #[inline]
    pub(super) fn is_run(&self, client: &Client, spec: &CommandSpec, request: Request<'_>) -> bool {
        self.session.store.runs_beside() && self.is_run_beside(client, spec, request)
    }

    /// How a request is attempted that reads one key or several.
    pub(crate) fn how_to_read(&self, several: bool) -> Attempt {
        if several {
            Attempt::Reads
        } else {
            Attempt::Once
        }
    }

    fn is_run_beside(&self, client: &Client, spec: &CommandSpec, request: Request<'_>) -> bool {
        // What a run writes would be noted for the mover before it can be read.
        if self.session.placing.placed.is_some() {
            return false;
        }
        if reads_branch(spec) {
            return inner_read(request).is_ok_and(|(spec, inner)| is_of_several(spec, inner));
        }
        // A snapshot stays as it is.
        if client.uses.is_some() {
            return false;
        }
        if !runs_queue(client, spec) {
            // Of many keys, all gates cost less.
            let is_small =
                request.len() <= limits::RUN_ARGUMENTS_MAX || spec.gates == GateNeed::Own;
            return is_small && is_of_several(spec, request);
        }
        let queue = client.transaction.as_ref();
        queue.is_some_and(|queue| !queue.needs_gates())
    }

    /// Whether a command is a run because its writes may find no room in the pool: one whose writes
    /// are of several keys, under all gates.
    pub(super) fn may_be_taken_back(&self, client: &Client, spec: &CommandSpec) -> bool {
        if !self.session.store.takes_back() || self.session.effects.is_some() {
            return false;
        }
        if is_exec(spec) {
            let transaction = client.transaction.as_ref();
            return transaction.is_some_and(|queue| queue.writes() && !queue.is_refused());
        }
        // Not SNAPSHOT ROLLBACK, which ends epochs (CB2 no-commit-within).
        matches!(spec.id, CommandId::Keyspace(_))
            && spec.flags.has(Flag::Write)
            && matches!(self.held, HeldGates::All { .. })
    }

    /// Runs a command of which all writes are there in the end, or none (CE8 whole-or-nothing): it
    /// fails, or is put off while room is made.
    #[cold]
    pub(super) fn run_or_take_back(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let start = reply.position();
        let queued = client.transaction.as_ref().filter(|_| is_exec(spec));
        let bytes = queued.map_or(request.bytes(), |queue| queue.heap_bytes());
        let settings = client.settings();
        // EXEC would take them itself, within the run.
        self.hold_all();
        self.begin_run(false);
        let mut result = self.run_unobserved(client, spec, request, reply, host);
        if let Outcome::Refused(refusal) = self.end_run() {
            reply.rewind(start);
            client.set(settings);
            reply.set_version(client.protocol);
            undo(self.database, client);
            if refusal == Refused::Full
                && let Some(until) = self.retry_with_room(client, bytes)
            {
                return Progress::put_off(until);
            }
            if is_exec(spec) {
                client.transaction = None;
                client.watches.clear(self.database);
            }
            result = Err(refusal.into());
        } else if let Some(done) = client.undo.take()
            && let Undo::Exec(exec) = done
        {
            self.end_exec(client, exec, host);
        }
        client.lacks_room = None;
        answer(client, spec, request, Ran { start, result }, reply, host)
    }

    /// The next slice of a command; returns whether it was the last one. One that does not count is
    /// repeated in the next turn.
    pub(super) fn step(
        &mut self,
        client: &mut Client,
        slices: &mut Slices,
        reply: &mut Reply<'_>,
    ) -> bool {
        let index = client.index();
        if !self.session.store.repeats() {
            if slices.work.gates() == GateNeed::All {
                return self.build_branch(&mut *slices.work, reply);
            }
            if slices.reads.is_none() && slices.work.shows_together() {
                return self.step_until_it_counts(client, slices, reply);
            }
            return slices.work.step(&mut self.keyspace(index), reply);
        }
        let (start, before) = (reply.position(), slices.work.again());
        self.begin_run(false);
        let done = slices.work.step(&mut self.keyspace(index), reply);
        let counts = self.end_run() == Outcome::Done;
        if !counts {
            reply.rewind(start);
            if !leaves(Leftover::Slice) {
                slices.work = before;
            }
        }
        counts && done
    }

    /// A slice that shows keys together, which only reads.
    fn step_until_it_counts(
        &mut self,
        client: &mut Client,
        slices: &mut Slices,
        reply: &mut Reply<'_>,
    ) -> bool {
        let (start, before) = (reply.position(), slices.work.again());
        let done = self.until_it_counts(client, Attempt::Reads, |turn, client| {
            reply.rewind(start);
            slices.work = before.again();
            slices.work.step(&mut turn.keyspace(client.index()), reply)
        });
        done.unwrap_or_else(|| {
            // The next turn tries it again.
            reply.rewind(start);
            slices.work = before;
            false
        })
    }

    /// Whether the current run will not count, as far as is known.
    pub(super) fn is_blind(&mut self) -> bool {
        let store = self.session.store.transactional();
        store.is_some_and(|store| store.is_blind())
    }

    fn begin_run(&mut self, reads: bool) {
        let session = &mut *self.session;
        debug_assert!(session.effects.is_none() && !session.has_group());
        let spare = session.spare_effects.take();
        let mut effects = spare.unwrap_or_else(|| Box::new(Effects::default()));
        debug_assert!(effects.is_empty());
        std::mem::swap(&mut session.counters, &mut effects.counters);
        (effects.random, effects.observed) = (session.random.clone(), session.observed);
        session.effects = Some(effects);
        session.store.begin_run(reads);
        self.note_alive();
    }

    /// Notes what the command takes for alive, unless nobody else can remove it.
    #[inline]
    fn note_alive(&self) {
        if matches!(self.held, HeldGates::Own { .. }) {
            self.session.alive.begin();
        }
    }

    /// Attempts something that only reads until all that it has shown is alive at its end, or for
    /// the last time (AV1 alive-when-it-counts).
    #[inline]
    pub(super) fn while_alive<R>(&mut self, mut attempt: impl FnMut(&mut Self) -> R) -> R {
        for _ in 1..limits::ALIVE_ATTEMPTS_MAX {
            self.note_alive();
            let result = attempt(self);
            let clock = &self.database.options.clock;
            let is_still = self.session.alive.is_still(|| clock.now().milliseconds());
            self.session.alive.end();
            if is_still {
                return result;
            }
            self.refresh_clock();
        }
        attempt(self)
    }

    /// Ends the run and applies its effects, or drops them.
    fn end_run(&mut self) -> Outcome {
        let (session, clock) = (&mut *self.session, &self.database.options.clock);
        let effects = session.effects.take().expect("a run was begun");
        // AV1 alive-when-it-counts.
        let is_alive = || session.alive.is_still(|| clock.now().milliseconds());
        let outcome = session.store.end_run(is_alive);
        session.alive.end();
        if outcome == Outcome::Done {
            self.take_effects(effects);
        } else {
            self.drop_effects(*effects);
        }
        outcome
    }

    fn take_effects(&mut self, mut effects: Box<Effects>) {
        let session = &mut *self.session;
        std::mem::swap(&mut session.counters, &mut effects.counters);
        session.counters.take_over(&effects.counters);
        if !effects.is_empty() {
            self.publish(&mut effects);
        }
        if effects.is_small() {
            self.session.spare_effects = Some(effects);
        }
    }

    /// Makes visible what the run has noted.
    #[inline(never)]
    fn publish(&mut self, effects: &mut Effects) {
        let (database, session) = (self.database, &mut *self.session);
        for (tree, bytes, replaced) in effects.deadlines.drain(..) {
            session.reconcile(&database.expiry, Key::new(tree, &bytes), replaced);
        }
        for place in effects.written.drain(..) {
            database.lines.announce(|| place);
        }
        for (cursor, place) in effects.cursors.drain(..) {
            database.cursors.give_out(cursor, place);
        }
        if let Some(image) = effects.mapping.take() {
            image.watches.release(&database.watch_horizon);
            for tree in image.left {
                remapping::drop_tree(database, tree);
            }
        }
    }

    fn drop_effects(&mut self, effects: Effects) {
        let (database, session) = (self.database, &mut *self.session);
        let counted = std::mem::replace(&mut session.counters, effects.counters);
        session.observed = effects.observed;
        session.drop_group();
        if !leaves(Leftover::Draws) {
            session.random = effects.random;
        }
        if let Some(image) = effects.mapping {
            debug_assert!(matches!(self.held, HeldGates::All { .. }));
            remapping::put_back(database, image);
        }
        if leaves(Leftover::Counts) {
            session.counters.take_over(&counted);
        }
        if leaves(Leftover::Cursors) {
            for (cursor, place) in effects.cursors {
                database.cursors.give_out(cursor, place);
            }
        }
    }
}

/// Whether requests of this command may be runs of their own: it may name several keys and does not
/// treat each by itself, as DEL does; or it reads what it finds, or what values name. Of one that
/// goes on in slices that is the first.
#[inline]
pub(super) fn may_be_run(spec: &CommandSpec) -> bool {
    let is_several = if spec.rules.has(Rule::Sliced) {
        spec.keys.is_empty() || spec.has_keys_in_values()
    } else {
        spec.keys.len() > usize::from(spec.has_one_key())
    };
    let is_of_keys = matches!(spec.id, CommandId::Keyspace(_));
    is_several && is_of_keys && !spec.rules.has(Rule::OnlyRemoves)
}

/// Whether requests of this command may show several keys, beside others, and change none.
#[inline]
pub(super) fn may_show_several(spec: &CommandSpec) -> bool {
    may_be_run(spec) && spec.flags.has(Flag::Readonly) && !may_block(spec)
}

/// Whether a request is one that [`may_be_run`], and of more than one key.
fn is_of_several(spec: &CommandSpec, request: Request<'_>) -> bool {
    let is_several = || {
        if spec.has_keys_in_values() {
            // SORT without an option reads the key that it names.
            request.len() > 2
        } else {
            !names_one_key(spec, request)
        }
    };
    may_be_run(spec) && is_several()
}

/// Whether the command is BRANCH READ.
#[inline]
fn reads_branch(spec: &CommandSpec) -> bool {
    matches!(spec.id, CommandId::Connection(ConnectionCommand::Branch)) && spec.own_name() == "read"
}

/// Whether EXEC can run a request beside others, behind ones that may have written.
pub(super) fn may_be_beside(spec: &CommandSpec, request: Request<'_>, has_written: bool) -> bool {
    match spec.id {
        CommandId::Connection(command) => command == ConnectionCommand::Select,
        // A scan would not show what the run has written.
        CommandId::Keyspace(_) if spec.rules.has(Rule::Comparable) => !has_written,
        CommandId::Keyspace(_) => names_keys(spec, request),
        CommandId::Host(_) => false,
    }
}

fn names_keys(spec: &CommandSpec, request: Request<'_>) -> bool {
    // Most do: their arguments are as many as the table says.
    spec.has_one_key() || keys(spec, request).next().is_some()
}

/// The client's transaction and watches are as they were before the run.
fn undo(database: &Database, client: &mut Client) {
    match client.undo.take() {
        Some(Undo::Exec(exec)) if !leaves(Leftover::Transaction) => {
            client.transaction = Some(exec.transaction);
            client.watches = exec.watches;
        }
        Some(Undo::Exec(_)) | None => {}
        Some(Undo::Watched { index, keys }) => {
            for key in &keys {
                client.watches.forget(database, index, key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
