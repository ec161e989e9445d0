//! Executing a batch, under one gate and pin and strictly in the batch's order.
//!
//! The unit is a *run*: consecutive requests of one connection, as long as each is simply answered.
//! A connection is checked and updated once per run. Its last request may have ended differently:
//! it waits, closes the connection, or has a reply that waits.

use pando_db::{Progress, ReplyMode, Turn, Wait};
use pando_protocol::ArgumentRange;

use super::batch::{Batch, Entry};
use super::connection::{Connection, Phase};
use super::connections::Connections;
use super::joined::JointUpdate;
use super::output::BufferPool;
use super::waiting::{Places, Waiting};
use super::wire::ReplyPlace;
use super::{Worker, touch};
use crate::host::{SliceTrace, WorkerHost};
use crate::limits;
use crate::recorder::WorkerRecorder;
use crate::shared::Shared;

/// A batch in execution, and what its requests need from the worker.
struct Execution<'w> {
    turn: Turn<'w>,
    batch: Batch<'w>,
    shared: &'w Shared,
    recorder: &'w mut WorkerRecorder,
    pool: &'w mut BufferPool,
    places: Places<'w>,
    joint: &'w mut JointUpdate,
    /// When this turn's input arrived.
    arrived_ns: u64,
}

/// How the last request of a run ended.
struct Ended {
    progress: Progress,
    /// Where its reply begins, and whether its client wants none.
    start: usize,
    silent: bool,
    /// If it continues in slices.
    trace: Option<Box<SliceTrace>>,
    arrived_ns: u64,
}

impl Worker {
    /// Executes a batch. One that takes long releases gate and pin for others between two requests.
    pub(super) fn execute_batch(&mut self) {
        self.holding.begin(self.shared.replication.roles());
        let mut turn = self.session.turn();
        let batch = self.gathering.batch();
        // One key alone has no other to be interleaved with.
        if batch.entries.len() > 1 {
            turn.warm(batch.keys(&self.connections, self.shared.database.databases()));
        }
        self.joint.begin();
        let mut execution = Execution {
            turn,
            batch,
            shared: &self.shared,
            recorder: &mut self.recorder,
            pool: &mut self.pool,
            places: Places {
                waiters: &mut self.waiters,
                holding: &mut self.holding,
                timers: &mut self.timers,
            },
            joint: &mut self.joint,
            arrived_ns: self.arrived_ns,
        };
        let mut next = 0;
        while let Some(entry) = execution.batch.entries.get(next) {
            execution.look_ahead(next, &self.connections);
            let slot = execution.batch.segments[entry.segment].slot;
            match self.connections.get_mut(slot) {
                // JW1 answered-once.
                Some(connection)
                    if connection.is_open() || execution.joint.answer_of(next).is_some() =>
                {
                    next = execution.run(slot, connection, next);
                    touch(slot, connection, &mut self.touched);
                    continue;
                }
                Some(connection) => defer(connection, entry, entry.ranges(execution.batch.ranges)),
                None => {}
            }
            next += 1;
        }
    }
}

impl Execution<'_> {
    /// Carries out requests from `next` on together, if they can be.
    #[inline]
    fn look_ahead(&mut self, next: usize, connections: &Connections) {
        let around = (connections, &*self.places.holding);
        let (turn, settings) = (&mut self.turn, &self.shared.settings);
        self.joint.look(next, turn, &self.batch, around, settings);
    }

    /// Executes the run of an open connection that begins at `next`; returns where the batch
    /// continues.
    #[inline]
    fn run(&mut self, slot: usize, connection: &mut Connection, mut next: usize) -> usize {
        let Batch {
            entries,
            ranges,
            ref mut segments,
            arena,
        } = self.batch;
        let segment = &mut segments[entries[next].segment];
        self.turn.lead(next, segment.is_untouched());
        let arrived_ns = segment.arrived_ns(self.arrived_ns, connection.arrived_ns);
        let room = limits::OUTPUT_PAUSE_BYTES - connection.output.pending();
        let Connection {
            client,
            record,
            input,
            output,
            flags,
            ..
        } = &mut *connection;
        let bytes = segment.bytes(arena, input.bytes());
        let covered = output.covers();
        let mut host = WorkerHost::new(self.shared, self.recorder, record, arrived_ns);
        let out = output.buffer(self.pool);
        let out_len_max = out.len() + room;
        let mut short = ShortRequests::default();
        loop {
            let entry = &entries[next];
            let request = entry.request(ranges, bytes);
            let (start, silent) = (out.len(), client.reply_mode != ReplyMode::On);
            let answer = self.joint.answer_of(next);
            if answer.is_none() && next >= short.until {
                short.begin(next, &mut self.turn, (entries, ranges), bytes);
            }
            let progress = if let Some(answer) = answer {
                let answer = (&self.joint.answers, answer);
                let (turn, resolved) = (&mut self.turn, entry.resolved);
                resolved.answer(turn, client, request, (out, &mut host), answer)
            } else {
                self.turn.go_to(next);
                let place = ReplyPlace {
                    out,
                    end_max: start + limits::MEMCACHED_REPLY_BYTES_MAX,
                    pause_at: out_len_max,
                };
                let (turn, resolved) = (&mut self.turn, entry.resolved);
                resolved.execute(turn, client, request, place, &mut host)
            };
            next += 1;
            let goes_on = matches!(progress, Progress::Done)
                && !entry.waiting
                && !self.places.holding.must_follow(client, covered)
                && !flags.decoder_lags(client)
                && !record.is_killed()
                && out.len() < out_len_max
                && matches!(entries.get(next), Some(it) if it.segment == entry.segment)
                && !self.joint.begins_at(next, (entries, ranges), bytes);
            if !goes_on {
                let in_slices = matches!(progress, Progress::Waits(Wait::Others(_)));
                let ended = Ended {
                    progress,
                    start,
                    silent,
                    trace: in_slices.then(|| Box::new(host.begin_slices(request))),
                    arrived_ns,
                };
                self.end_run(slot, connection, entry, ended);
                return next;
            }
            segment.executed = entry.end;
        }
    }

    /// Records how a run ended, with its connection and its segment.
    #[inline]
    fn end_run(&mut self, slot: usize, connection: &mut Connection, entry: &Entry, ended: Ended) {
        let Ended {
            progress, start, ..
        } = ended;
        self.turn.let_in();
        let runs_again = matches!(&progress, Progress::Waits(wait) if wait.runs_again());
        let phase = match progress {
            Progress::Done => None,
            Progress::Close => Some(Phase::Closing),
            Progress::Waits(wait) => {
                connection.arrived_ns = ended.arrived_ns;
                let now = self.turn.database().options().clock.now();
                let now = (self.recorder.now_ns(), now);
                self.places.begin(slot, connection, &wait, now);
                // A request that waits for its reader is held back by its output
                // (CO1 ready-and-heard).
                (!matches!(wait, Wait::Reader)).then_some(Phase::Waiting(Waiting {
                    wait,
                    silent: ended.silent,
                    trace: ended.trace,
                }))
            }
        };
        if runs_again {
            defer(connection, entry, entry.ranges(self.batch.ranges));
        } else {
            let segment = &mut self.batch.segments[entry.segment];
            // Requests are executed in their order, each once.
            debug_assert!(segment.executed < entry.end && entry.end <= segment.decoded);
            segment.executed = entry.end;
            if entry.waiting {
                connection.input.executed_waiting();
            }
            connection.follow_authentication();
        }
        if let Some(replicated) = connection.client.replicated {
            let until = replicated.due_ns(self.recorder.now_ns());
            self.places.follow_replicas(slot, connection, start, until);
        } else {
            self.places
                .holding
                .follow(slot, connection, start, &self.shared.database);
        }
        if let Some(phase) = phase {
            enter_unless_alone(connection, phase);
        }
    }
}

/// Requests of a run that other sessions are kept out for, if they are short and can be.
#[derive(Default)]
struct ShortRequests {
    /// They end before this entry, where others begin.
    until: usize,
    are_alone: bool,
}

impl ShortRequests {
    /// The former ones end before the entry at `next`, and others begin there.
    #[inline]
    fn begin(
        &mut self,
        next: usize,
        turn: &mut Turn<'_>,
        (entries, ranges): (&[Entry], &[ArgumentRange]),
        bytes: &[u8],
    ) {
        if std::mem::take(&mut self.are_alone) {
            turn.let_in();
        }
        let is_short = |entry: &&Entry| {
            entry.resolved.is_short()
                && entry.segment == entries[next].segment
                && entry.request(ranges, bytes).span_bytes() <= limits::ALONE_REQUEST_BYTES_MAX
        };
        let few = entries[next..].iter().take(limits::ALONE_REQUESTS_MAX);
        let count = few.take_while(is_short).count();
        self.are_alone = count >= limits::ALONE_REQUESTS_MIN && turn.keep_out();
        self.until = next + count.max(1);
    }
}

/// Makes a decoded request wait in its connection's input, unless it is already there or nothing
/// more is executed.
fn defer(connection: &mut Connection, entry: &Entry, ranges: &[ArgumentRange]) {
    let ends = matches!(connection.phase, Phase::Closing | Phase::Lingering);
    if !entry.waiting && !ends {
        let too_long = entry.resolved.is_too_long();
        connection.input.defer(ranges, entry.end, too_long);
    }
}

/// Enters a phase after a request; if the client has closed its end, nobody waits.
fn enter_unless_alone(connection: &mut Connection, phase: Phase) {
    connection.enter(phase);
    if connection.waits_in_vain() {
        connection.enter(Phase::Closing);
    }
}
