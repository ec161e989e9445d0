//! A turn: the period in which a session holds its gate to execute a batch; and the path of a
//! request from its name to the command.
//!
//! ```text
//! Turn::begin ── own gate ──► execute ─► execute ─► … ─► drop
//!                    ▲           │ a command of `GateNeed::All`
//!                    │           ▼
//!                    └──── all gates (kept for consecutive such commands)
//! ```
//! `hold_own` and `hold_all` perform the transitions. Each releases what is held, the pin included,
//! before it takes anything (G2 gates-in-order of pando-sync). `give_way` does the same between two
//! requests of a batch that has held its gates for long while others wait for them.
//!
//! Invariants:
//! - **T1 gate-and-pin** A command runs under its own gate or under all gates, pinned, as its entry
//!   in the command table says. A command of `GateNeed::None` begins without a gate: the host's
//!   take one when they ask for a keyspace. EXEC has all unless it was refused while it was queued,
//!   and asks under them whether a watched key has changed. What needs all is under its own as
//!   well where it is a run, which counts as a whole (`run`).
//! - **T2 nothing-between** No gate and no pin is held between releasing one gate and taking the
//!   next, nor after the turn is dropped.
//! - **T3 clock-after-gate** The clock is read after a gate was taken. A command that waited for
//!   gates judges deadlines as the commands do that ran meanwhile.
//! - **T4 one-group** Everything one command writes is one group of the log. The group ends with
//!   the command (`finish`), under the gates the command ran under (AK2 group-of-its-end).

use crate::clock::Microseconds;
use std::sync::Arc;

use pando_durability::log::LogSession;
use pando_engine::{LogEpoch, Point};
use pando_protocol::command::{
    CommandId, CommandSpec, ConnectionCommand, Flag, GateNeed, HostCommand, Refusal, Rule,
    names_one_key,
};
use pando_protocol::{Reply, Request};
use pando_sync::{AllGates, GateGuard};

use crate::acknowledge::Durability;
use crate::client::{Client, ReplyMode};
use crate::commands;
use crate::database::Database;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::memory::Access;
use crate::progress::{Progress, Slices, Wait};
use crate::session_state::SessionState;
use crate::snapshots::NamedSnapshot;
use crate::transaction::Transaction;

pub(crate) use self::memory::MemoryGrant;

#[cfg(test)]
pub(crate) use self::branches::small;

use self::exec::runs_queue;
use self::recent::{Recent, wants_recent};
use self::snapshots::check_view;
use self::usual::{Ran, answer, is_quiet};

mod alone;
mod await_disk;
mod beside;
mod blocking;
mod branches;
mod exec;
mod give_way;
mod images;
mod joined;
mod log_room;
mod memory;
mod placing;
mod pressure;
mod recent;
mod run;
mod snapshots;
mod usual;

/// The embedder of the database: runs the commands that concern connections and the server, and is
/// notified of every command.
pub trait Host {
    /// Runs a command of the host (CLIENT, CONFIG, INFO, …). The caller has checked arity and
    /// authentication. `turn` gives access to the keyspace.
    fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        command: HostCommand,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError>;

    /// A command is about to run, including those of an EXEC (MONITOR).
    fn starting(&mut self, client: &Client, spec: &'static CommandSpec, request: Request<'_>);

    /// A request was queued by MULTI.
    fn queued(&mut self, client: &Client);

    /// The command has run and written `reply_bytes`; `error` is its answer if it failed
    /// (statistics, SLOWLOG).
    fn finished(
        &mut self,
        client: &Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply_bytes: usize,
        error: Option<&CommandError>,
    );

    /// A request was refused before it ran (INFO's errorstats); `spec` is `None` when it named no
    /// command.
    fn refused(&mut self, spec: Option<&'static CommandSpec>, error: &CommandError);
}

#[derive(Debug)]
enum HeldGates<'t> {
    Nothing,
    Own {
        _gate: GateGuard<'t>,
    },
    All {
        _gates: AllGates<'t>,
    },
    /// Another turn holds all, and ends later (see `beside`).
    Lent,
}

/// A session at work; see the module's header.
#[derive(Debug)]
pub struct Turn<'t> {
    database: &'t Database,
    session: &'t mut SessionState,
    held: HeldGates<'t>,
    /// A command is running under all gates since this epoch.
    whole_since: Option<LogEpoch>,
    /// The snapshot that the current command reads; it exists while the gate is held.
    past: Option<Arc<NamedSnapshot>>,
    recent: Recent,
    /// The indexes of the requests' first keys among the warmed ones; past the end: none.
    warmed: [u8; limits::WARM_KEYS_MAX],
}

impl<'t> Turn<'t> {
    pub(crate) fn begin(database: &'t Database, session: &'t mut SessionState) -> Self {
        let mut turn = Self {
            database,
            session,
            held: HeldGates::Nothing,
            whole_since: None,
            past: None,
            recent: Recent::default(),
            warmed: [u8::MAX; limits::WARM_KEYS_MAX],
        };
        turn.hold_own();
        turn.recent.makings = database.lender.makings();
        turn
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &'t Database {
        self.database
    }

    pub(crate) fn session_mut(&mut self) -> &mut SessionState {
        self.session
    }

    /// A database of this session, as the current command sees it; `index` is below
    /// [`Database::databases`].
    pub fn keyspace(&mut self, index: usize) -> Keyspace<'_> {
        if matches!(self.held, HeldGates::Nothing) {
            self.hold_own();
        }
        let keyspace = Keyspace::new(self.database, self.session, index);
        match &self.past {
            None => keyspace,
            Some(snapshot) => keyspace.in_snapshot(snapshot),
        }
    }

    /// Reads the clock again; a turn does so whenever it takes a gate (T3).
    pub fn refresh_clock(&mut self) {
        self.session.now = self.database.options.clock.now();
    }

    fn let_go(&mut self) {
        if matches!(self.held, HeldGates::Lent) {
            return self.return_gates();
        }
        if !matches!(self.held, HeldGates::Nothing) {
            self.end_group();
            self.session.hand_over(&*self.database.options.clock);
            self.session.store.unpin();
            self.held = HeldGates::Nothing;
        }
        // T2, T4.
        debug_assert!(self.whole_since.is_none() && !self.session.has_group());
    }

    pub(crate) fn hold_own(&mut self) {
        if !matches!(self.held, HeldGates::Own { .. }) {
            self.let_go();
            self.session.wait_for_room();
            let gate = self.database.gates.enter(self.session.gate);
            self.held = HeldGates::Own { _gate: gate };
            self.session.placing.follow(&self.database.placing);
            self.follow_ring();
            self.collect();
            self.session.store.pin();
            self.refresh_clock();
            // CONFIG SET runs under another gate than the commands after it.
            self.session.access.tracking = self.database.eviction_policy().tracking();
        }
    }

    /// Without a log of files, a session writes records while somebody follows the database.
    #[inline]
    fn follow_ring(&mut self) {
        let ring = self.database.acknowledgement.ring();
        if self.database.durable.is_none() && self.session.log.is_some() != ring.is_on() {
            let index = self.session.gate;
            let log = || LogSession::in_memory(Arc::clone(ring), index);
            self.session.log = ring.is_on().then(log);
        }
    }

    pub(crate) fn hold_all(&mut self) {
        if !matches!(self.held, HeldGates::All { .. }) {
            self.let_go();
            self.session.wait_for_room();
            let gates = self.database.gates.enter_all();
            self.held = HeldGates::All { _gates: gates };
            self.session.placing.follow(&self.database.placing);
            self.follow_ring();
            self.session.store.pin();
            self.refresh_clock();
        }
        if self.whole_since.is_none() {
            // What it writes from now on is one group (T4).
            debug_assert!(!self.session.has_group());
            self.whole_since = Some(self.database.acknowledgement.begin_whole());
        }
    }

    /// Ends a group with what was written since the last call (T4): the epoch does not change
    /// (AK1 one-epoch-per-turn), or the command under all gates is over (AK2 group-of-its-end).
    fn end_group(&mut self) {
        if let Some(begun) = self.whole_since.take() {
            self.end_whole_group(begun);
        } else if self.session.has_group() {
            let epoch = self.database.epochs.current();
            self.session.end_group(epoch);
        }
    }

    fn end_whole_group(&mut self, begun: LogEpoch) -> LogEpoch {
        let now = self.session.now.milliseconds();
        let acknowledgement = &self.database.acknowledgement;
        let (session, clock) = (&mut *self.session, &*self.database.options.clock);
        let epoch = acknowledgement.end_whole(begun, now, |epoch| {
            session.end_group(epoch);
            session.hand_over(clock);
        });
        if epoch != begun {
            // What it wrote and read has the epoch in which it began.
            self.session.observe(epoch);
        }
        epoch
    }

    /// Ends a turn under all gates; returns the epoch of its group (AK2 group-of-its-end).
    pub(crate) fn end_whole(mut self) -> LogEpoch {
        let begun = self.whole_since.take().expect("it holds all gates");
        self.end_whole_group(begun)
    }

    /// A request of `client` is about to run.
    #[inline]
    fn start(&mut self, client: &Client) {
        self.session.access = Access {
            tracking: self.database.eviction_policy().tracking(),
            quiet: client.no_touch,
        };
        self.session.wrote = LogEpoch::NONE;
        self.session.observes = client.durability == Durability::Sync;
        if self.session.observes {
            self.session.observed = LogEpoch::NONE;
        }
    }

    /// A request of `client` has run: ends its group and tells the client what its reply awaits.
    #[inline]
    fn finish(&mut self, client: &mut Client) {
        self.end_group();
        debug_assert!(self.session.effects.is_none() && !self.session.has_group());
        if self.session.wrote > LogEpoch::NONE {
            self.note_write(client);
        }
        if self.session.observes {
            self.acknowledge(client);
        }
    }

    /// Runs `work` as a request of `client`, for front ends with their own commands.
    /// [`Client::awaits`] then says what the reply must wait for.
    pub fn serve<R>(
        &mut self,
        client: &mut Client,
        work: impl FnOnce(&mut Self, &mut Client) -> R,
    ) -> R {
        self.hold_own();
        self.start(client);
        let result = work(self, client);
        self.finish(client);
        result
    }

    /// Prefetches what the requests of a batch will touch: the first key of each, if it has one,
    /// with its database, with interleaved descents (up to [`limits::WARM_KEYS_MAX`] requests).
    /// Changes nothing.
    pub fn warm<'r>(&mut self, first_keys: impl Iterator<Item = Option<(usize, &'r [u8])>>) {
        let key_bytes_max = pando_engine::limits::KEY_BYTES_MAX;
        let mut first_keys = first_keys.enumerate().filter_map(|(at, first_key)| {
            let (index, key) = first_key?;
            (key.len() <= key_bytes_max).then_some((at, index, key))
        });
        // One key alone has nothing to be interleaved with, and is the most common case.
        let (Some(first), Some(second)) = (first_keys.next(), first_keys.next()) else {
            return;
        };
        let mut keys =
            [const { pando_engine::Key::new(pando_engine::TreeId(0), b"") }; limits::WARM_KEYS_MAX];
        let (mut count, mut last) = (0, None);
        // Chained iterators are faster from within.
        let mut all = [first, second].into_iter().chain(first_keys);
        all.try_for_each(|(at, index, key)| {
            // Neighbours that name one key need it once.
            let here = (index, key);
            if !last.replace(here).is_some_and(|last| is_same(last, here)) {
                *keys.get_mut(count)? = pando_engine::Key::new(self.database.tree(index), key);
                count += 1;
            }
            if let Some(place) = self.warmed.get_mut(at) {
                *place = count as u8 - 1;
            }
            Some(())
        });
        self.session.store.warm(&keys[..count]);
    }

    /// Announces the request at `index` of the warmed batch as the next one: yields to others, and
    /// lets the request reuse what was found on the way to its key.
    #[inline]
    pub fn go_to(&mut self, index: usize) {
        self.recent.at = index;
        self.give_way();
        self.recall(index);
    }

    /// Lets the next operation, which is that of the key at `index` of the warmed ones, reuse what
    /// was found on the way to it.
    #[inline]
    pub(crate) fn recall(&mut self, index: usize) {
        if let Some(place) = self.warmed.get(index) {
            self.session.store.recall(usize::from(*place));
        }
    }

    /// Executes one request: authentication, memory, MULTI, gates, command. `resolved` is the
    /// result of [`pando_protocol::command::resolve`].
    #[inline]
    pub fn execute(
        &mut self,
        client: &mut Client,
        resolved: Result<&'static CommandSpec, Refusal>,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        if let Ok(spec) = resolved
            && let Some(command) = self.usual(client, spec, request)
        {
            self.run_usual(client, (spec, command), request, reply, host)
        } else {
            self.execute_any(client, resolved, request, reply, host)
        }
    }

    /// [`Self::execute`], the long way.
    #[inline(never)]
    fn execute_any(
        &mut self,
        client: &mut Client,
        resolved: Result<&'static CommandSpec, Refusal>,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        if let Ok(spec) = resolved
            && self.queues(client, spec, request)
        {
            return match self.queue(client, spec, request, reply, host) {
                Ok(progress) => progress,
                Err(error) => self.reply_refusal(client, (spec, error), reply, host),
            };
        }
        let start = reply.position();
        // What follows may wait for others.
        self.let_in();
        self.start(client);
        if client.reply_mode == ReplyMode::SkipNext {
            client.reply_mode = ReplyMode::Skip;
        }
        let mut progress = match resolved {
            Ok(spec) => match self.dispatch(client, spec, request, reply, host) {
                Ok(progress) => progress,
                Err(error) => self.reply_refusal(client, (spec, error), reply, host),
            },
            Err(refusal) => self.refuse_unresolved(client, refusal, request, reply, host),
        };
        self.finish(client);
        let mut runs_again = false;
        if let Progress::Waits(wait) = &mut progress {
            runs_again = wait.runs_again();
            if let Wait::Others(slices) = wait {
                slices.silent = client.reply_mode != ReplyMode::On;
            }
        }
        match client.reply_mode {
            ReplyMode::On | ReplyMode::SkipNext => {}
            ReplyMode::Off => reply.rewind(start),
            ReplyMode::Skip if runs_again => {
                client.reply_mode = ReplyMode::SkipNext;
            }
            ReplyMode::Skip => {
                reply.rewind(start);
                client.reply_mode = ReplyMode::On;
            }
        }
        progress
    }

    fn dispatch(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Result<Progress, CommandError> {
        if client.has_stopped_waiting() {
            return Ok(self.stop_waiting(client, spec, request, reply, host));
        }
        let writes = spec.flags.has(Flag::Write)
            || (is_exec(spec)
                && client
                    .transaction
                    .as_deref()
                    .is_some_and(Transaction::writes));
        if let Some(until) = self.admit(client, spec, writes)? {
            return Ok(Progress::put_off(until));
        }
        check_view(client, spec, request)?;
        if writes && self.database.snapshots.is_full() {
            self.check_images(client, spec, request)?;
        }
        if !spec.rules.has(Rule::IgnoresPause)
            && let Some(until) = self.database.paused_until(writes)
        {
            return Ok(Progress::put_off(until));
        }
        if writes && let Some(until) = self.hold_back(client, spec)? {
            return Ok(Progress::put_off(until));
        }
        if let Some(until) = self.find_keys(client, spec, request)? {
            return Ok(Progress::put_off(until));
        }
        if client.transaction.is_some() && !spec.rules.has(Rule::Unqueued) {
            return self.queue(client, spec, request, reply, host);
        }
        // Waiting for gates counts as the command's own time.
        host.starting(client, spec, request);
        let changes = self.session.placing.changes;
        match spec.gates {
            GateNeed::Own => self.hold_own(),
            GateNeed::None if !runs_queue(client, spec) => self.let_go(),
            GateNeed::Several if names_one_key(spec, request) => self.hold_own(),
            GateNeed::None | GateNeed::All | GateNeed::Several => {
                let is_run = self.is_run(client, spec, request);
                if is_run {
                    self.hold_own();
                }
                // Keys may have begun to move before the gate was taken.
                if !is_run || self.session.placing.placed.is_some() {
                    self.hold_all();
                }
            }
        }
        // Between two gates it may have become another one (PG1 stands-still).
        if self.session.placing.changes != changes
            && let Some(until) = self.find_keys(client, spec, request)?
        {
            return Ok(Progress::put_off(until));
        }
        if may_block(spec) {
            return Ok(self.run_blocking(client, spec, request, reply, host));
        }
        if wants_recent(spec, request) {
            return self.run_with_recent(client, spec, request, reply, host);
        }
        Ok(self.run(client, spec, request, reply, host))
    }

    /// Whether the command may run, or be queued: checks authentication, MULTI and memory, in
    /// Redis' order. Returns until when it is postponed, if it is.
    fn admit(
        &mut self,
        client: &mut Client,
        spec: &CommandSpec,
        writes: bool,
    ) -> Result<Option<Microseconds>, CommandError> {
        if !client.authenticated && !spec.flags.has(Flag::NoAuth) {
            return Err(CommandError::Unauthenticated);
        }
        if client.transaction.is_some() && spec.flags.has(Flag::NoMulti) {
            return Err(CommandError::NotInTransaction);
        }
        // A queue takes memory, whatever it holds.
        let needs_memory = match &client.transaction {
            None => spec.flags.has(Flag::DenyOom),
            Some(transaction) if is_exec(spec) => transaction.needs_memory(),
            Some(_) => !spec.rules.has(Rule::EndsTransaction),
        };
        if needs_memory {
            match self.ask_for_memory(client) {
                MemoryGrant::Granted => {}
                MemoryGrant::Later(until) => return Ok(Some(until)),
                MemoryGrant::Refused => return Err(self.refusal_for_memory()),
            }
        }
        if self.database.role.refuses(writes) && (writes || !spec.flags.has(Flag::Stale)) {
            return Err(self.database.role.error());
        }
        if writes {
            let removes = client.transaction.is_none() && spec.rules.has(Rule::OnlyRemoves);
            return self.wait_for_log(removes);
        }
        Ok(None)
    }

    fn reply_refusal(
        &mut self,
        client: &mut Client,
        (spec, error): (&'static CommandSpec, CommandError),
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        self.leave_lines_refused(client);
        let error = self.refuse(client, Some(spec), error);
        reply.error(error.text());
        host.refused(Some(spec), &error);
        Progress::Done
    }

    /// Refuses a request: a transaction being queued will not run either, and a refused EXEC ends
    /// it. Returns the reply.
    fn refuse(
        &self,
        client: &mut Client,
        spec: Option<&'static CommandSpec>,
        error: CommandError,
    ) -> CommandError {
        self.note_refusal(&error);
        client.lacks_room = None;
        if spec.is_some_and(is_exec) {
            self.database.forget(client);
            // As in Redis Cluster: its clients know this word at the beginning.
            if matches!(
                error,
                CommandError::Moved { .. } | CommandError::OnItsWay { .. }
            ) {
                return error;
            }
            return CommandError::ExecRefused {
                reason: Box::new(error),
            };
        }
        if let Some(transaction) = &mut client.transaction {
            transaction.refuse();
        }
        error
    }

    /// Answers a request for which no command was found.
    fn refuse_unresolved(
        &self,
        client: &mut Client,
        refusal: Refusal,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let (spec, error) = match refusal {
            Refusal::WrongArity(spec) => {
                let command = spec.name;
                (Some(spec), CommandError::Arity { command })
            }
            Refusal::TooLong(spec) => (spec, CommandError::OutOfMemory),
            _ => (None, CommandError::Unresolved),
        };
        let error = self.refuse(client, spec, error);
        host.refused(spec, &error);
        match refusal {
            Refusal::Http => return Progress::Close,
            Refusal::WrongArity(_) | Refusal::TooLong(_) => reply.error(error.text()),
            _ => reply.error(refusal.text(request)),
        }
        Progress::Done
    }

    /// Runs one command outside of EXEC, of which the host is notified, under the gates it needs;
    /// an error becomes its reply.
    fn run(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        let start = reply.position();
        let is_run = || {
            let is_beside = matches!(self.held, HeldGates::Own { .. });
            let is_exec = || runs_queue(client, spec);
            self.session.store.repeats()
                || is_beside && (is_exec() || self.is_run(client, spec, request))
        };
        if self.session.effects.is_none() && is_run() {
            return self.run_until_it_counts(client, spec, request, reply, host);
        }
        if self.may_be_taken_back(client, spec) {
            return self.run_or_take_back(client, spec, request, reply, host);
        }
        let result = self.run_once(client, spec, request, reply, host);
        if let Err(CommandError::PoolFull) = result
            && let Some(until) = self.retry_with_room(client, request.bytes())
        {
            reply.rewind(start);
            return Progress::put_off(until);
        }
        client.lacks_room = None;
        answer(client, spec, request, Ran { start, result }, reply, host)
    }

    fn run_unobserved(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Result<Progress, CommandError> {
        if client.base != 0 {
            return self.run_in_branch(client, spec, request, reply, host);
        }
        if client.uses.is_some() {
            return self.run_in_use(client, spec, request, reply, host);
        }
        self.run_in_view(client, spec, request, reply, host)
    }

    /// Runs one command in the turn's view.
    fn run_in_view(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Result<Progress, CommandError> {
        match spec.id {
            CommandId::Keyspace(command) => {
                let is_whole = matches!(self.held, HeldGates::All { .. });
                let is_run = self.session.effects.is_some();
                debug_assert!(
                    is_whole || is_run || matches!(spec.gates, GateNeed::Own | GateNeed::Several),
                    "{} (T1)",
                    spec.name
                );
                self.session.access.quiet = is_quiet(client, spec) || self.past.is_some();
                let mut keyspace = self.keyspace(client.index());
                commands::execute(command, &mut keyspace, request, reply)
            }
            CommandId::Connection(command) => match command {
                ConnectionCommand::Branch => self.branch(client, spec, request, reply, host),
                ConnectionCommand::Discard => self.discard(client, reply),
                ConnectionCommand::Exec => self.exec(client, reply, host),
                ConnectionCommand::Multi => self.multi(client, reply),
                ConnectionCommand::Select => {
                    commands::databases::select(self.database, client, request, reply)
                }
                ConnectionCommand::Snapshot => self.snapshot(client, spec, request, reply, host),
                ConnectionCommand::Unwatch => {
                    client.watches.clear(self.database);
                    reply.ok();
                    Ok(Progress::Done)
                }
                ConnectionCommand::Watch => self.watch(client, request, reply),
            },
            CommandId::Host(command) => host.execute(self, client, command, request, reply),
        }
    }

    /// Runs the next slice of a long command of `client`; returns whether its reply is now
    /// complete.
    pub fn slice(
        &mut self,
        client: &mut Client,
        slices: &mut Slices,
        reply: &mut Reply<'_>,
    ) -> bool {
        match slices.work.gates() {
            GateNeed::All => self.hold_all(),
            _ => self.hold_own(),
        }
        self.start(client);
        self.session.observed = slices.observed;
        let start = reply.position();
        let done = match self.check_moment(slices) {
            Ok(()) => self.step(client, slices, reply),
            Err(error) => {
                reply.error(error.text());
                true
            }
        };
        slices.observed = self.session.observed;
        self.finish(client);
        if slices.silent {
            reply.rewind(start);
        }
        done
    }

    /// Resets a connection's state to that of a new one (RESET), including transaction and watches;
    /// the host handles authentication.
    pub fn reset(&mut self, client: &mut Client) {
        self.database.forget(client);
        (client.database, client.base) = (0, self.database.mainline());
        client.protocol = pando_protocol::RespVersion::Resp2;
        // As in Redis, RESET is itself a command whose reply may have to be skipped.
        if client.reply_mode != ReplyMode::Skip {
            client.reply_mode = ReplyMode::On;
        }
        client.no_touch = false;
        client.uses = None;
    }
}

/// Whether two keys with their databases are the same; most that are not differ in their last byte.
#[inline]
fn is_same(one: (usize, &[u8]), other: (usize, &[u8])) -> bool {
    one.0 == other.0 && one.1.last() == other.1.last() && one.1 == other.1
}

/// Whether the command may wait for keys.
#[inline]
fn may_block(spec: &CommandSpec) -> bool {
    matches!(spec.id, CommandId::Keyspace(_)) && spec.flags.has(Flag::Blocking)
}

/// Whether the command is EXEC, which its transaction then consists of.
fn is_exec(spec: &CommandSpec) -> bool {
    matches!(spec.id, CommandId::Connection(ConnectionCommand::Exec))
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Database {
    /// Drops the transaction, the watches and the wait of a client that disconnects.
    pub fn forget(&self, client: &mut Client) {
        client.transaction = None;
        client.watches.clear(self);
        if let Some(blocked) = client.blocked.take() {
            // It may have been woken for something (BL3 everyone-leaves).
            for place in self.lines.waiting.leave(blocked.ticket) {
                self.lines.announce_in_line(place);
            }
        }
    }
}

#[cfg(test)]
mod tests;
