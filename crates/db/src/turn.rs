//! A turn: the time for which a session holds its gate to execute a batch; and the way of a request
//! from its name to the command.
//!
//! ```text
//! Turn::begin ── own gate ──► execute ─► execute ─► … ─► drop
//!                    ▲           │ a command of `needs_all_gates`
//!                    │           ▼
//!                    └──── all gates (kept for consecutive such commands)
//! ```
//! `hold_own` and `hold_all` perform the transitions; each lets go of what is held, pin included,
//! before it takes anything (pando-sync's G2).
//!
//! Invariants:
//! - **T1** A command runs under the own gate or under all gates, pinned.
//! - **T2** No gate and no pin is held between the letting go of one and the taking of the other,
//!   nor after the turn is dropped.

use pando_engine::Point;
use pando_protocol::command::{self, CommandId, CommandSpec, Flag, Refusal};
use pando_protocol::{Reply, Request};
use pando_sync::{AllGates, GateGuard};

use crate::client::{Client, ReplyMode};
use crate::commands::{self, Progress, Slice};
use crate::database::Database;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::session::SessionState;

/// What embeds the database: it runs the commands that concern connections and the server, and is
/// told of every command.
pub trait Host {
    /// Runs a command that the database does not know (CLIENT, CONFIG, INFO, …). The caller has
    /// checked arity and authentication. `turn` may be used to reach the keyspace.
    fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        id: CommandId,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<HostProgress, CommandError>;

    /// A command is about to run, those of an EXEC included (MONITOR).
    fn starting(&mut self, client: &Client, spec: &'static CommandSpec, request: Request<'_>);

    /// A request was queued by MULTI.
    fn queued(&mut self, client: &Client);

    /// The command has run and written `reply_bytes`; `error` is what it answered if it failed
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

/// How a command of the host went on.
#[derive(Debug, PartialEq, Eq)]
pub enum HostProgress {
    /// The reply is written.
    Done,
    /// The reply is written and the connection is to be closed after it was sent.
    Close,
    /// The reply is to be written when this many milliseconds have passed (DEBUG SLEEP): `+OK`.
    Sleep(u64),
}

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The reply is written.
    Done,
    /// The reply is written; close the connection when it was sent.
    Close,
    /// The command goes on in slices: call [`Turn::slice`] in later turns until it is done, and
    /// execute nothing else of this client meanwhile.
    Slices(SlicedCommand),
    /// The command is over but its `+OK` is due in this many milliseconds; nothing is held.
    Sleep(u64),
    /// Nothing was done: execute the request again at this time (microseconds, CLIENT PAUSE).
    Paused(u64),
}

/// A long command between two of its slices.
#[derive(Debug)]
pub struct SlicedCommand {
    database: usize,
    spec: &'static CommandSpec,
    work: Box<dyn Slice>,
    silent: bool,
}

impl SlicedCommand {
    /// The command.
    #[must_use]
    pub fn spec(&self) -> &'static CommandSpec {
        self.spec
    }
}

#[derive(Debug)]
enum Held<'t> {
    Nothing,
    Own { _gate: GateGuard<'t> },
    All { _gates: AllGates<'t> },
}

/// A session at work; see the module's header.
#[derive(Debug)]
pub struct Turn<'t> {
    database: &'t Database,
    session: &'t mut SessionState,
    held: Held<'t>,
}

impl<'t> Turn<'t> {
    pub(crate) fn begin(database: &'t Database, session: &'t mut SessionState) -> Self {
        let mut turn = Self {
            database,
            session,
            held: Held::Nothing,
        };
        turn.hold_own();
        turn.refresh_clock();
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

    /// A database of this session's; `index` is below [`Database::databases`].
    pub fn keyspace(&mut self, index: usize) -> Keyspace<'_> {
        Keyspace::new(self.database, self.session, index)
    }

    /// Reads the clock again; a turn does so at its beginning.
    pub fn refresh_clock(&mut self) {
        self.session.now_us = self.database.options.clock.now_us();
    }

    fn let_go(&mut self) {
        if !matches!(self.held, Held::Nothing) {
            self.session.store.unpin();
            self.held = Held::Nothing;
        }
    }

    fn hold_own(&mut self) {
        if !matches!(self.held, Held::Own { .. }) {
            self.let_go();
            let gate = self.database.gates.enter(self.session.gate);
            self.held = Held::Own { _gate: gate };
            self.session.store.pin();
        }
    }

    fn hold_all(&mut self) {
        if !matches!(self.held, Held::All { .. }) {
            self.let_go();
            let gates = self.database.gates.enter_all();
            self.held = Held::All { _gates: gates };
            self.session.store.pin();
        }
    }

    /// Fetches into the cache what the requests of a batch will touch: the first key of each, their
    /// descents interleaved (up to [`limits::WARM_KEYS_MAX`]). Changes nothing.
    pub fn warm<'r>(
        &mut self,
        requests: impl Iterator<Item = (usize, &'static CommandSpec, Request<'r>)>,
    ) {
        let mut keys =
            [const { pando_engine::Key::new(pando_engine::TreeId(0), b"") }; limits::WARM_KEYS_MAX];
        let mut count = 0;
        for (index, spec, request) in requests {
            let first = command::keys(spec, request).next();
            let Some(key) = first.and_then(|index| request.get(index)) else {
                continue;
            };
            if key.len() > pando_engine::limits::KEY_BYTES_MAX {
                continue;
            }
            keys[count] = pando_engine::Key::new(self.database.tree(index), key);
            count += 1;
            if count == keys.len() {
                break;
            }
        }
        if count > 1 {
            self.session.store.warm(&keys[..count]);
        }
    }

    /// Executes one request: authentication, memory, MULTI, gates, command. `resolved` is what
    /// [`command::resolve`] said of it.
    pub fn execute(
        &mut self,
        client: &mut Client,
        resolved: Result<&'static CommandSpec, Refusal>,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Outcome {
        let start = reply.position();
        if client.reply_mode == ReplyMode::SkipNext {
            client.reply_mode = ReplyMode::Skip;
        }
        let outcome = match resolved {
            Ok(spec) => match self.dispatch(client, spec, request, reply, host) {
                Ok(outcome) => outcome,
                Err(error) => {
                    reply.error(error.to_string());
                    host.refused(Some(spec), &error);
                    Outcome::Done
                }
            },
            Err(refusal) => refuse(client, refusal, request, reply, host),
        };
        match client.reply_mode {
            ReplyMode::On | ReplyMode::SkipNext => {}
            ReplyMode::Off => reply.rewind(start),
            ReplyMode::Skip if matches!(outcome, Outcome::Paused(_)) => {
                client.reply_mode = ReplyMode::SkipNext;
            }
            ReplyMode::Skip => {
                reply.rewind(start);
                client.reply_mode = ReplyMode::On;
            }
        }
        outcome
    }

    fn dispatch(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Result<Outcome, CommandError> {
        self.admit(client, spec).inspect_err(|_| spoil(client))?;
        let writes = spec.flags.has(Flag::Write)
            || (spec.id == CommandId::Exec
                && client
                    .transaction
                    .as_ref()
                    .is_some_and(crate::transaction::Transaction::writes));
        let immune = matches!(
            spec.id,
            CommandId::Client | CommandId::Shutdown | CommandId::Reset
        );
        if let Some(until) = self.database.paused_until(writes)
            && !immune
        {
            return Ok(Outcome::Paused(until));
        }
        if let Some(transaction) = &mut client.transaction
            && !runs_inside_multi(spec.id)
        {
            if spec.flags.has(Flag::NoMulti) {
                transaction.refuse();
                return Err(CommandError::NotInTransaction);
            }
            transaction.queue(spec, request)?;
            reply.simple("QUEUED");
            host.queued(client);
            return Ok(Outcome::Done);
        }
        if needs_all_gates(spec.id) {
            self.hold_all();
        } else {
            self.hold_own();
        }
        if spec.id == CommandId::Exec {
            return self.exec(client, request, reply, host);
        }
        let progress = self.run(client, spec, request, reply, host);
        Ok(match progress {
            Progress::Done => Outcome::Done,
            Progress::Close => Outcome::Close,
            Progress::Sleep(milliseconds) => Outcome::Sleep(milliseconds),
            Progress::Slices(work) => Outcome::Slices(SlicedCommand {
                database: client.database,
                spec,
                work,
                silent: client.reply_mode != ReplyMode::On,
            }),
        })
    }

    /// Whether the command may run: authentication, memory.
    fn admit(&self, client: &Client, spec: &CommandSpec) -> Result<(), CommandError> {
        if !client.authenticated && !spec.flags.has(Flag::NoAuth) {
            return Err(CommandError::Unauthenticated);
        }
        if spec.flags.has(Flag::DenyOom) && self.database.is_out_of_memory() {
            return Err(CommandError::OutOfMemory);
        }
        Ok(())
    }

    /// Runs one command under the gates that it needs; an error becomes its reply.
    fn run(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Progress {
        host.starting(client, spec, request);
        let start = reply.position();
        let result = self.run_unobserved(client, spec, request, reply, host);
        if let Err(error) = &result {
            reply.rewind(start);
            reply.error(error.to_string());
        }
        let reply_bytes = reply.position() - start;
        host.finished(client, spec, request, reply_bytes, result.as_ref().err());
        result.unwrap_or(Progress::Done)
    }

    fn run_unobserved(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Result<Progress, CommandError> {
        match spec.id {
            CommandId::Multi => self.multi(client, reply),
            CommandId::Discard => self.discard(client, reply),
            CommandId::Watch => self.watch(client, request, reply),
            CommandId::Unwatch => {
                client.watches.clear(self.database);
                reply.ok();
                Ok(Progress::Done)
            }
            CommandId::Select => commands::server::select(self.database, client, request, reply),
            id if commands::concerns_host(id) => {
                Ok(match host.execute(self, client, id, request, reply)? {
                    HostProgress::Done => Progress::Done,
                    HostProgress::Close => Progress::Close,
                    HostProgress::Sleep(milliseconds) => Progress::Sleep(milliseconds),
                })
            }
            id => {
                let mut keyspace = self.keyspace(client.database);
                commands::execute(id, &mut keyspace, request, reply)
            }
        }
    }

    fn multi(
        &mut self,
        client: &mut Client,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        if client.transaction.is_some() {
            return Err(CommandError::NestedMulti);
        }
        client.transaction = Some(crate::transaction::Transaction::default());
        reply.ok();
        Ok(Progress::Done)
    }

    fn discard(
        &mut self,
        client: &mut Client,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        if client.transaction.take().is_none() {
            return Err(CommandError::DiscardWithoutMulti);
        }
        client.watches.clear(self.database);
        reply.ok();
        Ok(Progress::Done)
    }

    fn watch(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        if client.transaction.is_some() {
            return Err(CommandError::WatchInsideMulti);
        }
        let keys = request.args_from(1);
        if !client.watches.has_room(keys.len(), request.bytes()) {
            return Err(CommandError::TooManyWatched);
        }
        for key in keys {
            client
                .watches
                .add(self.database, self.session, client.database, key);
        }
        reply.ok();
        Ok(Progress::Done)
    }

    /// Runs what MULTI queued, under all gates: no other command is seen in between.
    fn exec(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Result<Outcome, CommandError> {
        let transaction = client
            .transaction
            .take()
            .ok_or(CommandError::ExecWithoutMulti)?;
        let broken = client.watches.are_broken(self.database, self.session);
        client.watches.clear(self.database);
        if transaction.is_refused() {
            return Err(CommandError::ExecAborted);
        }
        if transaction.needs_memory() && self.database.is_out_of_memory() {
            return Err(CommandError::ExecOutOfMemory);
        }
        let exec = command::spec(CommandId::Exec);
        host.starting(client, exec, request);
        if broken {
            reply.null_array();
            host.finished(client, exec, request, 0, None);
            return Ok(Outcome::Done);
        }
        let queue = transaction.into_queue();
        let mut outcome = Outcome::Done;
        reply.array(queue.len());
        for queued in queue {
            let request = queued.request.as_request();
            reply.set_version(client.protocol);
            match self.run(client, queued.spec, request, reply, host) {
                Progress::Done => {}
                Progress::Close => outcome = Outcome::Close,
                // Inside a transaction nothing waits.
                Progress::Sleep(_) => reply.ok(),
                Progress::Slices(mut work) => {
                    let mut keyspace = self.keyspace(client.database);
                    while !work.step(&mut keyspace, reply) {}
                }
            }
        }
        host.finished(client, exec, request, 0, None);
        Ok(outcome)
    }

    /// Runs the next slice of a long command; whether its reply is complete now.
    pub fn slice(&mut self, command: &mut SlicedCommand, reply: &mut Reply<'_>) -> bool {
        self.hold_own();
        let start = reply.position();
        let mut keyspace = self.keyspace(command.database);
        let done = command.work.step(&mut keyspace, reply);
        if command.silent {
            reply.rewind(start);
        }
        done
    }

    /// Brings a connection's state back to that of a new one (RESET), transaction and watches
    /// included; authentication is the host's.
    pub fn reset(&mut self, client: &mut Client) {
        self.database.forget(client);
        client.database = 0;
        client.protocol = pando_protocol::RespVersion::Resp2;
        client.reply_mode = ReplyMode::On;
        client.no_touch = false;
    }
}

/// Answers a request that no command could be found for.
fn refuse(
    client: &mut Client,
    refusal: Refusal,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    host: &mut impl Host,
) -> Outcome {
    spoil(client);
    let spec = match refusal {
        Refusal::WrongArity(spec) => Some(spec),
        _ => None,
    };
    host.refused(spec, &CommandError::Unresolved);
    if matches!(refusal, Refusal::Http) {
        return Outcome::Close;
    }
    reply.error(refusal.text(request));
    Outcome::Done
}

/// A request was refused: a transaction being queued will not run.
fn spoil(client: &mut Client) {
    if let Some(transaction) = &mut client.transaction {
        transaction.refuse();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Database {
    /// Drops the transaction and the watches of a client that goes away.
    pub fn forget(&self, client: &mut Client) {
        client.transaction = None;
        client.watches.clear(self);
    }
}

/// Commands that are not queued by MULTI.
fn runs_inside_multi(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Exec
            | CommandId::Discard
            | CommandId::Multi
            | CommandId::Watch
            | CommandId::Quit
            | CommandId::Reset
    )
}

/// Commands that touch several keys, or all, and are seen whole by every other command.
fn needs_all_gates(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Exec
            | CommandId::Mset
            | CommandId::Msetnx
            | CommandId::Rename
            | CommandId::Renamenx
            | CommandId::Copy
            | CommandId::Move
            | CommandId::Bitop
            | CommandId::Swapdb
            | CommandId::Flushdb
            | CommandId::Flushall
    )
}
