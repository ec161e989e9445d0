//! One turn of a worker's loop, from the readable sockets to the sent replies; the steps are in
//! order.

use std::io::ErrorKind;

use pando_db::Wait;
use pando_io::{Interest, Poller, Token};
use pando_protocol::Reply;
use tracing::debug;

use super::batch::{Place, Segment};
use super::connection::{Connection, Phase};
use super::output::{BufferPool, Sent};
use super::timers::Timers;
use super::waiting::{Event, Waiting};
use super::wire::WireError;
use super::{Reason, Worker, queue_up, set_deadline, touch};
use crate::config::OutputLimit;
use crate::host::WorkerHost;
use crate::limits;
use crate::registry::ClientFlag;

impl Worker {
    /// Reads, executes and answers what is ready; returns whether it executed something.
    pub(super) fn serve(&mut self) -> bool {
        self.release();
        self.read_queued();
        let datagrams = self.read_datagrams();
        if self.gathering.is_empty() && self.waiters.slicing.is_empty() && !datagrams {
            if self.holding.group.is_open() {
                // Nobody came.
                self.ask_for_disk();
                if self.holding.group.is_open() {
                    // The awaited clients may want this core.
                    std::thread::yield_now();
                }
            }
            self.send();
            return false;
        }
        let idle_from_ns = self.recorder.last_reading_ns();
        self.arrived_ns = self.recorder.begin_batch();
        self.lookout.learn(self.arrived_ns - idle_from_ns);
        self.run_slices();
        let request_bytes_max = self.shared.database.request_bytes_max();
        while self
            .gathering
            .gather(&mut self.connections, request_bytes_max)
        {
            self.execute_batch();
        }
        if datagrams {
            self.execute_datagrams();
        }
        self.recorder.end_execution();
        self.settle();
        if self.waiters.recount {
            self.recount_replicas();
        }
        self.send_datagrams();
        self.ask_for_disk();
        self.send();
        self.recorder.end_batch(&self.shared);
        true
    }

    /// Reads from the queue's sockets, in order, until the arena is full.
    fn read_queued(&mut self) {
        for _ in 0..self.queue.len() {
            if self.gathering.is_full() {
                return;
            }
            let Some(slot) = self.queue.pop_front() else {
                return;
            };
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            connection.flags.queued = false;
            match connection.phase {
                Phase::Ready if connection.is_open() => self.read(slot),
                Phase::Lingering => self.read_away(slot),
                _ => {}
            }
        }
    }

    /// Makes a segment of a connection's kept input, or of what is read now.
    fn read(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let Connection {
            input,
            stream,
            flags,
            ..
        } = connection;
        if !input.is_hungry() {
            self.gathering.add_kept(slot, input, false);
            return;
        }
        if !flags.readable {
            return;
        }
        let read = if input.is_empty() {
            self.gathering.read(slot, stream)
        } else {
            input
                .append(stream, self.shared.database.request_bytes_max())
                .inspect(|_| self.gathering.add_kept(slot, input, true))
        };
        match read {
            Ok((0, _)) => self.end_of_input(slot),
            Ok((count, more)) => {
                flags.readable = more || flags.read_closed;
                let (bytes, _) = input.sizes();
                let statistics = self.recorder.statistics();
                statistics.reads.add(1);
                statistics.yields.add(u64::from(more));
                statistics.input_bytes.add(count as u64);
                if bytes > self.shared.settings.query_buffer_bytes_max() {
                    self.close(slot, Reason::QueryLimit);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => flags.readable = false,
            Err(error) => {
                debug!(client = connection.client.id, %error, "cannot read");
                self.close(slot, Reason::Ended);
            }
        }
    }

    /// The client sends nothing more and everything is executed: the connection ends when its
    /// output is sent.
    fn end_of_input(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.flags.readable = false;
        connection.flags.read_closed = true;
        if connection.output.pending() == 0 {
            self.close(slot, Reason::Ended);
        } else {
            connection.enter(Phase::Closing);
            touch(slot, connection, &mut self.touched);
        }
    }

    /// Discards what a lingering connection still receives.
    fn read_away(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        match self.gathering.read_away(&connection.stream) {
            Ok((0, _)) => self.close(slot, Reason::Ended),
            Ok((_, more)) => {
                connection.flags.readable = more || connection.flags.read_closed;
                queue_up(slot, connection, &mut self.queue);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.flags.readable = false;
            }
            Err(_) => self.close(slot, Reason::Ended),
        }
    }

    /// Runs one slice of every long command, and repeats requests for which the engine is fetching
    /// something. The gate is released between them.
    fn run_slices(&mut self) {
        for slot in std::mem::take(&mut self.waiters.slicing) {
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            if matches!(connection.wait(), Some(Wait::Away)) {
                self.resume(slot, Event::Due);
                continue;
            }
            let Connection {
                client,
                record,
                output,
                phase,
                arrived_ns,
                ..
            } = connection;
            let Phase::Waiting(Waiting {
                wait: Wait::Others(slices),
                trace: Some(trace),
                ..
            }) = phase
            else {
                continue;
            };
            let mut turn = self.session.turn();
            let mut reply = Reply::new(output.buffer(&mut self.pool), client.protocol);
            let start = reply.position();
            let is_done = trace.step(&self.recorder, || turn.slice(client, slices, &mut reply));
            drop(turn);
            if !is_done {
                self.waiters.slicing.push(slot);
                continue;
            }
            WorkerHost::new(&self.shared, &mut self.recorder, record, *arrived_ns)
                .finish_slices(trace);
            if let Some(replicated) = connection.client.replicated {
                let until = replicated.due_ns(self.recorder.now_ns());
                self.waiters.recount |=
                    (self.holding).follow_replicas(slot, connection, start, until);
            } else {
                self.holding
                    .follow(slot, connection, start, &self.shared.database);
            }
            touch(slot, connection, &mut self.touched);
            self.resume(slot, Event::Over);
        }
    }

    /// Keeps what the turn's segments have left, and answers protocol errors.
    fn settle(&mut self) {
        let arrived_ns = self.arrived_ns;
        self.gathering.take_segments(|segment, bytes| {
            let Some(connection) = self.connections.get_mut(segment.slot) else {
                return;
            };
            if segment.fresh {
                connection.record.interacted(arrived_ns / 1_000_000);
            }
            if matches!(connection.phase, Phase::Closing | Phase::Lingering) {
                return;
            }
            keep(connection, segment, bytes, arrived_ns);
            if let Some(error) = connection.input.error
                && connection.is_open()
                && !connection.input.has_waiting()
            {
                self.recorder.statistics().protocol_errors.add(1);
                answer_protocol_error(connection, error, &mut self.pool);
                touch(segment.slot, connection, &mut self.touched);
            }
            if !connection.flags.touched {
                // Otherwise it is done when the output is sent.
                connection.note_sizes(&self.shared);
            }
            queue_up(segment.slot, connection, &mut self.queue);
        });
    }

    /// Passes the output of touched connections to their sockets.
    pub(super) fn send(&mut self) {
        self.hold_late();
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            self.send_one(slot);
        }
        // Nothing is touched while sending, so the list's memory is reused.
        self.touched = touched;
    }

    fn send_one(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.flags.touched = false;
        let Connection { output, stream, .. } = connection;
        let (sent, count) = match output.send(stream, &mut self.pool) {
            Ok(sent) => sent,
            Err(error) => {
                debug!(client = connection.client.id, %error, "cannot write");
                self.close(slot, Reason::Ended);
                return;
            }
        };
        if count > 0 {
            let statistics = self.recorder.statistics();
            statistics.writes.add(1);
            statistics.output_bytes.add(count as u64);
            if self.shared.settings.timeout_s() > 0 {
                // However long the reply waited for the disk or slept, the client was not idle.
                let now_ms = self.recorder.now_ns() / 1_000_000;
                connection.record.interacted(now_ms);
            }
        }
        match sent {
            Sent::All => self.all_sent(slot),
            Sent::Held => self.rest_held(slot),
            Sent::Part => self.part_sent(slot, count),
        }
    }

    /// A connection's output is sent.
    #[inline]
    fn all_sent(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.client.acknowledged();
        stop_watching(slot, connection, &mut self.poller);
        // A client that requested the shutdown sees it when the server has ended.
        if matches!(connection.phase, Phase::Closing) && !self.shared.shutdown_requested() {
            if connection.flags.read_closed || connection.stream.end_output().is_err() {
                self.close(slot, Reason::Ended);
                return;
            }
            let due_ns = self.recorder.now_ns() + limits::LINGER_MS * 1_000_000;
            set_deadline(connection, &mut self.timers, due_ns);
            connection.enter(Phase::Lingering);
        }
        connection.note_sizes(&self.shared);
        queue_up(slot, connection, &mut self.queue);
    }

    /// Everything is sent except what waits for the disk.
    #[cold]
    fn rest_held(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        stop_watching(slot, connection, &mut self.poller);
        connection.note_sizes(&self.shared);
        queue_up(slot, connection, &mut self.queue);
    }

    /// The socket takes no more of a connection's output now. The rest waits for the client and
    /// counts towards the output limits: a client that reads has none waiting.
    #[cold]
    fn part_sent(&mut self, slot: usize, count: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        // A replica has a window instead (LK1 bounded-window).
        let is_replica = connection.record.has(ClientFlag::Replica);
        let limit = if is_replica {
            OutputLimit::default()
        } else {
            self.shared.settings.output_limit()
        };
        let waiting = connection.output.pending() as u64;
        if limit.hard_bytes > 0 && waiting > limit.hard_bytes {
            self.close(slot, Reason::OutputLimit);
            return;
        }
        let now_ns = self.recorder.now_ns();
        if !connection.flags.awaits_writable {
            connection.flags.awaits_writable = true;
            if matches!(connection.phase, Phase::Closing) {
                wait_for_close(connection, &mut self.timers, now_ns);
            }
            let stream = &connection.stream;
            if let Err(error) = self.poller.change(stream, Token(slot), Interest::ReadWrite) {
                debug!(client = connection.client.id, %error, "cannot watch for room to write");
                self.close(slot, Reason::Ended);
                return;
            }
        }
        if count > 0 {
            connection.record.interacted(now_ns / 1_000_000);
        }
        if limit.soft_bytes == 0 || waiting <= limit.soft_bytes {
            connection.crowded_since_ms = 0;
        } else if connection.crowded_since_ms == 0 {
            connection.crowded_since_ms = now_ns / 1_000_000;
        }
        connection.note_sizes(&self.shared);
        queue_up(slot, connection, &mut self.queue);
    }
}

/// The socket has taken everything available.
#[inline]
fn stop_watching(slot: usize, connection: &mut Connection, poller: &mut Poller) {
    if connection.flags.awaits_writable {
        connection.flags.awaits_writable = false;
        connection.crowded_since_ms = 0;
        // A failure leaves reports that are not needed.
        let _ = poller.change(&connection.stream, Token(slot), Interest::Read);
    }
}

/// Gives a closing connection a bounded time to take its output.
fn wait_for_close(connection: &mut Connection, timers: &mut Timers, now_ns: u64) {
    set_deadline(connection, timers, now_ns + limits::CLOSE_MS * 1_000_000);
}

/// Keeps the rest of a segment in the connection's input.
fn keep(connection: &mut Connection, segment: &Segment, bytes: &[u8], arrived_ns: u64) {
    let input = &mut connection.input;
    // Empty lines after the last request are decoded and never executed.
    let executed = if input.has_waiting() {
        segment.executed
    } else {
        segment.decoded
    };
    match segment.place {
        Place::Arena { .. } => {
            input.keep(bytes, executed, segment.decoded, segment.bytes_missing);
        }
        Place::Kept => input.advance(executed, segment.decoded, segment.bytes_missing),
    }
    if segment.fresh {
        connection.arrived_ns = arrived_ns;
    }
}

/// Answers bytes that are not a request; what follows them cannot be parsed.
fn answer_protocol_error(connection: &mut Connection, error: WireError, pool: &mut BufferPool) {
    let address = &connection.record.origin().address;
    debug!(
        client = connection.client.id,
        address,
        error = error.text(),
        "protocol error"
    );
    error.answer(connection.output.buffer(pool));
    connection.enter(Phase::Closing);
}
