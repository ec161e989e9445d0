//! The server's side of executing a batch: commands on connections and the server, and the records
//! that every command leaves (statistics, slow log, monitors).
//!
//! A worker's loop turn:
//!
//! 1. [`WorkerRecorder::begin_batch`] when the sockets are read; its time counts as the arrival of
//!    what was read.
//! 2. For each request a [`WorkerHost`] with the connection's record and arrival, passed to
//!    [`pando_db::Turn::execute`].
//! 3. For a command that runs in slices: [`WorkerHost::begin_slices`], then [`SliceTrace::step`]
//!    for each slice, and finally [`WorkerHost::finish_slices`].
//! 4. [`WorkerRecorder::end_execution`] after the last command, [`WorkerRecorder::end_batch`] when
//!    the replies were passed to the sockets.

mod memcached;

pub(crate) use memcached::VERSION as MEMCACHED_VERSION;

use pando_db::{Client, CommandError, Host, Progress, Turn, Wait};
use pando_protocol::command::{Category, CommandSpec, ConnectionCommand, Flag, HostCommand};
use pando_protocol::{Reply, Request};

use crate::admin::{self, AdminError};
use crate::latency;
use crate::monitor;
use crate::recorder::{Timing, WorkerRecorder};
use crate::registry::{ClientRecord, NO_COMMAND};
use crate::shared::{Shared, wall_us};
use crate::slowlog::{self, SlowCommand};

/// See the module's header. Made for one request, or for several of one connection that arrived
/// together, at no cost.
#[derive(Debug)]
pub struct WorkerHost<'w> {
    shared: &'w Shared,
    recorder: &'w mut WorkerRecorder,
    record: &'w ClientRecord,
    arrived_ns: u64,
    /// The number of the running command and its timing; inside EXEC, those of the queued command,
    /// with EXEC as `outer`.
    command: u16,
    timing: Timing,
    outer: Option<(u16, Timing)>,
    /// The error with which a host's command replied.
    failure: Option<AdminError>,
    /// Milliseconds by which the reply is delayed (DEBUG SLEEP).
    slept_ms: u64,
}

/// A command that runs in slices, as the slow log will show it.
#[derive(Debug)]
pub struct SliceTrace {
    /// Its number.
    command: u16,
    arguments: Vec<Box<[u8]>>,
    arrived_ns: u64,
    busy_ns: u64,
}

impl SliceTrace {
    /// Runs one slice, counting its time.
    pub fn step<R>(&mut self, recorder: &WorkerRecorder, slice: impl FnOnce() -> R) -> R {
        let since_ns = recorder.now_ns();
        let result = slice();
        self.busy_ns += recorder.now_ns().saturating_sub(since_ns);
        result
    }
}

impl<'w> WorkerHost<'w> {
    /// A host for the requests of `record` that arrived at `arrived_ns` (since the server's start).
    #[must_use]
    #[inline]
    pub fn new(
        shared: &'w Shared,
        recorder: &'w mut WorkerRecorder,
        record: &'w ClientRecord,
        arrived_ns: u64,
    ) -> Self {
        Self {
            shared,
            recorder,
            record,
            arrived_ns,
            command: NO_COMMAND,
            timing: Timing::Untimed,
            outer: None,
            failure: None,
            slept_ms: 0,
        }
    }

    /// The request just executed continues in slices: its latency and slow log entry wait for the
    /// last one.
    pub fn begin_slices(&mut self, request: Request<'_>) -> SliceTrace {
        debug_assert_ne!(self.command, NO_COMMAND);
        self.recorder.postpone();
        SliceTrace {
            command: self.command,
            arguments: slowlog::shorten(request),
            arrived_ns: self.arrived_ns,
            busy_ns: 0,
        }
    }

    /// The last slice is done.
    pub fn finish_slices(&mut self, trace: &mut SliceTrace) {
        self.recorder
            .finish_slices(trace.command, trace.busy_ns, trace.arrived_ns);
        if let Some(spec) = self.shared.commands.spec(trace.command) {
            self.note_slow(spec, trace.busy_ns, || std::mem::take(&mut trace.arguments));
        }
    }

    /// Enters a command into the slow log and the latency events if it was slow enough.
    fn note_slow(
        &self,
        spec: &CommandSpec,
        elapsed_ns: u64,
        arguments: impl FnOnce() -> Vec<Box<[u8]>>,
    ) {
        self.note_slow_of(latency::event(spec), elapsed_ns, || {
            let shown = !spec.flags.has(Flag::SkipSlowlog);
            shown.then(arguments)
        });
    }

    /// The same with the name of the latency event; without arguments it is not shown.
    fn note_slow_of(
        &self,
        event: &'static str,
        elapsed_ns: u64,
        arguments: impl FnOnce() -> Option<Vec<Box<[u8]>>>,
    ) {
        let settings = &self.shared.settings;
        let at_s = || wall_us() / 1_000_000;
        let threshold_ms = settings.latency_threshold_ms();
        let elapsed_ms = elapsed_ns / 1_000_000;
        if threshold_ms > 0 && elapsed_ms >= threshold_ms {
            self.shared.latency.enter(event, at_s(), elapsed_ms);
        }
        let slower_than_us = settings.slowlog_slower_than_us();
        let duration_us = elapsed_ns / 1000;
        if slower_than_us < 0 || duration_us < slower_than_us as u64 {
            return;
        }
        let Some(arguments) = arguments() else {
            return;
        };
        self.shared.slowlog.enter(SlowCommand {
            id: 0,
            at_s: at_s(),
            duration_us,
            arguments,
            address: self.record.origin().address.clone(),
            client_name: self.record.names().name,
        });
    }

    /// A command was timed individually, has failed, or monitors exist. Out of line, so that the
    /// common case stays inline.
    #[inline(never)]
    fn note_unusual(
        &mut self,
        client: &Client,
        (spec, command): (&'static CommandSpec, u16),
        request: Request<'_>,
        elapsed_ns: Option<u64>,
        error: Option<&CommandError>,
    ) {
        if let Some(elapsed_ns) = elapsed_ns {
            let elapsed_ns = elapsed_ns + std::mem::take(&mut self.slept_ms) * 1_000_000;
            self.note_slow(spec, elapsed_ns, || slowlog::shorten(request));
        }
        if error.is_some() || self.failure.is_some() {
            self.note_failure(command, error);
        }
        if self.shared.monitors.any() && monitor::is_shown(spec) {
            self.feed_monitors(client, request);
        }
    }

    /// A command has answered an error.
    #[cold]
    fn note_failure(&mut self, command: u16, error: Option<&CommandError>) {
        let statistics = self.recorder.statistics();
        statistics.commands[usize::from(command)].failed.add(1);
        if let Some(error) = error {
            statistics.record_error(&error.to_string());
        }
        if let Some(failure) = self.failure.take() {
            statistics.record_error(&failure.to_string());
        }
    }

    /// Shows a command to the monitors.
    #[cold]
    fn feed_monitors(&self, client: &Client, request: Request<'_>) {
        let address = &self.record.origin().address;
        let line = monitor::line(wall_us(), client.database, address, request);
        self.shared.tell_monitors(&line.into());
    }
}

impl Host for WorkerHost<'_> {
    fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        command: HostCommand,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        let start = reply.position();
        let mut call = admin::Call {
            shared: self.shared,
            record: self.record,
            turn,
            client,
            inside_exec: self.outer.is_some(),
            request,
            reply,
        };
        match admin::execute(command, &mut call) {
            Ok(progress) => {
                if let Progress::Waits(Wait::Time { milliseconds }) = progress {
                    self.slept_ms = milliseconds;
                }
                Ok(progress)
            }
            Err(AdminError::Command(error)) => Err(error),
            Err(error) => {
                reply.rewind(start);
                reply.error(error.text());
                self.failure = Some(error);
                Ok(Progress::Done)
            }
        }
    }

    #[inline]
    fn starting(&mut self, client: &Client, spec: &'static CommandSpec, request: Request<'_>) {
        let command = self.shared.commands.of(spec);
        self.record.set_last_command(command);
        let settings = &self.shared.settings;
        if is_exec(spec) {
            debug_assert!(self.outer.is_none());
            let (is_brief, bytes) = (client.execs_briefly(), client.heap_bytes());
            let timing = self.recorder.begin_of(is_brief, bytes, settings);
            self.outer = Some((command, timing));
        } else {
            let timing = self.recorder.begin(spec, request, settings);
            (self.command, self.timing) = (command, timing);
        }
    }

    fn queued(&mut self, client: &Client) {
        self.record.observe(client);
    }

    #[expect(
        clippy::inline_always,
        reason = "as a call it takes longer than what it does"
    )]
    #[inline(always)]
    fn finished(
        &mut self,
        client: &Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply_bytes: usize,
        error: Option<&CommandError>,
    ) {
        let (command, timing) = match self.outer {
            Some(outer) if is_exec(spec) => {
                self.outer = None;
                self.record.set_last_command(outer.0);
                outer
            }
            _ => (self.command, self.timing),
        };
        debug_assert_ne!(command, NO_COMMAND, "it was never started");
        let moved = request.span_bytes() + reply_bytes;
        let settings = &self.shared.settings;
        let elapsed = self
            .recorder
            .end(command, timing, moved, self.arrived_ns, settings);
        if spec.categories.has(Category::Connection) || spec.categories.has(Category::Transaction) {
            self.record.observe(client);
        }
        let failed = error.is_some() || self.failure.is_some();
        if elapsed.is_some() || failed || self.shared.monitors.any() {
            self.note_unusual(client, (spec, command), request, elapsed, error);
        }
    }

    fn refused(&mut self, spec: Option<&'static CommandSpec>, error: &CommandError) {
        if let Some(spec) = spec {
            let command = self.shared.commands.of(spec);
            self.recorder.statistics().commands[usize::from(command)]
                .rejected
                .add(1);
        }
        self.recorder.statistics().record_error(&error.to_string());
    }
}

/// Whether the command runs others, which are counted individually.
#[inline]
fn is_exec(spec: &CommandSpec) -> bool {
    spec.id == ConnectionCommand::Exec.id()
}
