//! A worker: one thread with an event loop that serves its share of the connections.
//!
//! A turn of the loop:
//!
//! ```text
//! wait ─► mail, timers ─► read ─► (decode a batch ─► warm and execute it)… ─► settle ─► send
//!   ▲                       │ a window of the arena    │ gate and pin held     │ keep what │
//!   │                       │ per readable socket      │ here only             │ is left   │
//!   └───────────────────────┴──────────────────────────┴───────────────────────┴───────────┘
//! ```
//!
//! One small request takes one system call each for waiting, reading and writing; many readable
//! sockets share the wait. The clock is read three times per turn. Before the worker sleeps, it
//! polls for the next requests where that pays (`lookout`).
//!
//! Invariants:
//! - **WL1** No gate and no pin is held while the worker waits, reads, sends or writes the log
//!   (`Turn` is dropped).
//! - **WL2** A connection with something to do that no event will announce again is in `queue`, or
//!   its phase ends by a timer or by mail.
//! - **WL3** A turn is bounded: the arena bounds what is read; each connection reads once, sends
//!   once and has one slice of a long command; and the log is written at most once, if the disk is
//!   fast. Memory per connection is bounded by the longest request, the longest reply and a few
//!   constants.
//!
//! Deliberately absent: commands (`pando_db`, [`crate::host`]), accepting (`crate::acceptor`).

mod batch;
mod connection;
mod connections;
mod datagrams;
mod execute;
mod group;
mod holding;
mod input;
mod joined;
mod lookout;
mod mailbox;
mod output;
mod timers;
mod turn;
mod waiting;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pando_db::Session;
use pando_io::{Interest, Poller, Token};
use pando_protocol::resp::DecoderLimits;
use tracing::{debug, warn};

pub(crate) use self::mailbox::{Mailbox, NewConnection};

use self::batch::Gathering;
use self::connection::{Connection, Phase};
use self::connections::Connections;
use self::datagrams::Datagrams;
use self::holding::Holding;
use self::joined::JointUpdate;
use self::lookout::{Look, Lookout};
use self::mailbox::Message;
use self::output::BufferPool;
use self::timers::{Deadline, Timers};
use self::waiting::{Event, Waiters};
use self::wire::WireLimits;
use crate::limits;
use crate::recorder::WorkerRecorder;
use crate::registry::ClientFlag;
use crate::shared::Shared;

/// The poller's token of the waker; those of connections are slots.
const WAKER: Token = Token(usize::MAX);

/// Why a connection is closed; determines what is logged and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The client went away, or was told to.
    Ended,
    Killed,
    Idle,
    /// More output waited than a limit allows.
    OutputLimit,
    /// More input without a complete request arrived than a limit allows.
    QueryLimit,
    /// Its requests took too much memory.
    Shed,
    /// It did not take its last reply in time.
    Abandoned,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// Empty; its memory is swapped with the mailbox's.
    messages: Vec<Message>,
    poller: Poller,
    session: Session,
    recorder: WorkerRecorder,
    wire_limits: WireLimits,
    connections: Connections,
    /// Slots of connections with something to do (WL2).
    queue: VecDeque<usize>,
    /// Slots of connections whose output is to be sent at the end of the turn.
    touched: Vec<usize>,
    waiters: Waiters,
    holding: Holding,
    timers: Timers,
    gathering: Gathering,
    /// What the batch in execution has carried out together.
    joint: JointUpdate,
    /// Nothing when UDP is off.
    datagrams: Option<Box<Datagrams>>,
    pool: BufferPool,
    /// When this turn's input arrived, in nanoseconds since the start.
    arrived_ns: u64,
    /// When to check for idle connections next.
    sweep_ms: u64,
    /// When to tidy the session next, and how often if nothing more is executed.
    tidy_ns: u64,
    tidies_left: u32,
    lookout: Lookout,
}

impl Worker {
    /// A worker that serves once [`Self::run`] is called; reachable through its mailbox.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        session: Session,
    ) -> std::io::Result<(Self, Arc<Mailbox>)> {
        let poller = Poller::new(limits::EVENTS_MAX, WAKER)?;
        let mailbox = Arc::new(Mailbox::new(poller.waker()));
        let recorder = shared.recorder(index);
        let config = shared.config();
        let worker = Self {
            index,
            shared,
            mailbox: Arc::clone(&mailbox),
            messages: Vec::new(),
            poller,
            session,
            recorder,
            wire_limits: WireLimits {
                resp: DecoderLimits {
                    bulk_bytes_max: config.bulk_bytes_max,
                    ..DecoderLimits::default()
                },
                item_bytes_max: config.memcached_item_bytes_max,
            },
            connections: Connections::default(),
            queue: VecDeque::new(),
            touched: Vec::new(),
            waiters: Waiters::default(),
            holding: Holding::default(),
            timers: Timers::default(),
            gathering: Gathering::new(),
            joint: JointUpdate::default(),
            datagrams: None,
            pool: BufferPool::default(),
            arrived_ns: 0,
            sweep_ms: 0,
            tidy_ns: 0,
            tidies_left: 0,
            lookout: Lookout::default(),
        };
        Ok((worker, mailbox))
    }

    /// Serves until the shared state requests a shutdown; then sends what is left, within a time
    /// limit. The connections stay open ([`Self::close_connections`]).
    pub(crate) fn run(mut self) -> Self {
        let mut executed = false;
        while !self.shared.shutdown_requested() {
            let timeout = self.timeout(executed);
            self.wait(timeout);
            executed = self.serve();
            self.attend_timers(executed);
        }
        self.flush_all();
        self.mailbox.close();
        self.take_mail();
        self.datagrams = None;
        debug!(worker = self.index, "worker has ended");
        self
    }

    /// Closes every connection of a worker that has ended.
    pub(crate) fn close_connections(mut self) {
        for slot in 0..self.connections.slots() {
            self.close(slot, Reason::Ended);
        }
    }

    /// How long to wait for events: not at all while there is work, else until the next timer. A
    /// turn that has `executed` something read the clock at its end.
    fn timeout(&self, executed: bool) -> Option<Duration> {
        let idle =
            self.queue.is_empty() && self.waiters.slicing.is_empty() && self.touched.is_empty();
        let has_datagrams = self.datagrams.as_ref().is_some_and(|it| it.has_input());
        if !idle || has_datagrams || self.must_release() {
            return Some(Duration::ZERO);
        }
        if self.holding.group.is_open() {
            return Some(self.holding.group.timeout());
        }
        let sweep_ns = self.sweeps().then_some(self.sweep_ms * 1_000_000);
        let tidy_ns = (self.tidies_left > 0).then_some(self.tidy_ns);
        let due = [
            self.timers.next_ns(),
            self.holding.due_ns(),
            sweep_ns,
            tidy_ns,
        ];
        let due_ns = due.into_iter().flatten().min()?;
        let now_ns = if executed {
            self.recorder.last_reading_ns()
        } else {
            self.recorder.now_ns()
        };
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    /// Waits for events and records them; takes the mail if there is some.
    fn wait(&mut self, timeout: Option<Duration>) {
        let mut woken = false;
        let has_work = timeout == Some(Duration::ZERO);
        let events = match self.lookout.choose(has_work) {
            Look::No => self.poller.wait(timeout),
            Look::GiveWay if self.connections.len() > limits::GIVE_WAY_CONNECTIONS_MAX => {
                self.poller.wait(timeout)
            }
            Look::GiveWay => {
                let waited = self
                    .poller
                    .give_way_and_wait(limits::GIVE_WAY_LOOKS, timeout);
                waited.map(|(found, events)| {
                    self.lookout.gave_way(found);
                    events
                })
            }
            Look::Long => self.poller.look_and_wait(limits::LOOK, timeout),
        };
        let events = match events {
            Ok(events) => events,
            Err(error) => panic!("the poller of worker {} failed: {error}", self.index),
        };
        for (nth, ready) in events.enumerate() {
            if ready.token == WAKER {
                woken = true;
                continue;
            }
            if let Some(datagrams) = &mut self.datagrams
                && datagrams.note(ready)
            {
                continue;
            }
            let slot = ready.token.0;
            self.lookout.note(slot, nth);
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            connection.flags.readable |= ready.readable;
            connection.flags.read_closed |= ready.read_closed;
            if ready.writable && connection.output.pending() > 0 {
                touch(slot, connection, &mut self.touched);
            }
            if ready.read_closed && connection.waits_in_vain() {
                // Nobody is left to wait.
                connection.enter(Phase::Closing);
                touch(slot, connection, &mut self.touched);
            }
            queue_up(slot, connection, &mut self.queue);
        }
        if woken {
            self.take_mail();
        }
    }

    fn take_mail(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        let news = self.mailbox.take(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Serve(connection) => self.take_in(*connection),
                Message::Close(client) => {
                    if let Some(slot) = self.connections.slot_of(client) {
                        let connection = self.connections.get(slot);
                        let is_shed = connection.is_some_and(|it| it.record.is_shed());
                        self.close(
                            slot,
                            if is_shed {
                                Reason::Shed
                            } else {
                                Reason::Killed
                            },
                        );
                    }
                }
                Message::Deliver(client, bytes) => self.deliver(client, &bytes),
                Message::Send(client, bytes, carried) => {
                    self.deliver(client, &bytes);
                    drop(carried);
                }
                Message::Ready(client) => self.ready(client),
                Message::Unblock {
                    client,
                    wait,
                    by_error,
                } => self.unblock(client, wait, by_error),
            }
        }
        self.messages = messages;
        if news.look {
            self.resume_all();
        }
        if news.lines_dropped > 0 {
            let lines = news.lines_dropped;
            warn!(worker = self.index, lines, "monitors missed lines");
        }
    }

    fn take_in(&mut self, new: NewConnection) {
        let settings = &self.shared.settings;
        let keepalive_s = settings.tcp_keepalive_s();
        let keepalive = (keepalive_s > 0).then(|| Duration::from_secs(keepalive_s));
        if let Err(error) = new.stream.set_tcp_options(keepalive) {
            debug!(client = new.record.id(), %error, "cannot set the options of a connection");
        }
        let authenticated = !settings.requires_password();
        let mut connection =
            Connection::new(new.stream, new.record, authenticated, self.wire_limits);
        self.shared.database.admit(&mut connection.client);
        connection.client.durability = settings.durability();
        let slot = self.connections.insert(Box::new(connection));
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        if let Err(error) = self
            .poller
            .add(&connection.stream, Token(slot), Interest::Read)
        {
            warn!(client = connection.client.id, %error, "cannot watch a connection");
            self.close(slot, Reason::Ended);
        }
    }

    /// Appends monitor lines, or frames for a replica, to a client's output; closes a client that
    /// does not read them.
    fn deliver(&mut self, client: u64, bytes: &[u8]) {
        let Some(slot) = self.connections.slot_of(client) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        if matches!(connection.phase, Phase::Closing | Phase::Lingering) {
            return;
        }
        connection
            .output
            .buffer(&mut self.pool)
            .extend_from_slice(bytes);
        touch(slot, connection, &mut self.touched);
        if connection.output.pending() > limits::MONITOR_OUTPUT_BYTES_MAX {
            self.close(slot, Reason::OutputLimit);
        }
    }

    /// Handles what is due now, and from time to time checks all connections and the session. A
    /// turn that has `executed` something has read the clock.
    fn attend_timers(&mut self, executed: bool) {
        if executed {
            self.tidies_left = limits::TIDY_ROUNDS;
        }
        let next_ns = self.timers.next_ns().or(self.holding.due_ns());
        if next_ns.is_none() && self.tidies_left == 0 && !self.sweeps() {
            return;
        }
        let now_ns = if executed {
            self.arrived_ns
        } else {
            self.recorder.now_ns()
        };
        if self.tidies_left > 0 && now_ns >= self.tidy_ns {
            self.session.tidy();
            self.tidies_left -= 1;
            self.tidy_ns = now_ns + limits::TIDY_MS * 1_000_000;
        }
        if self.holding.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.release_replicated();
        }
        self.trim_timers();
        while let Some(deadline) = self.timers.pop_due(now_ns) {
            let Some(slot) = self.connections.slot_of(deadline.client) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            if connection.due_ns != deadline.due_ns {
                continue;
            }
            match connection.phase {
                Phase::Ready => {}
                Phase::Waiting(_) => self.resume(slot, Event::Due),
                Phase::Closing | Phase::Lingering => self.close(slot, Reason::Abandoned),
            }
        }
        if self.sweeps() && now_ns / 1_000_000 >= self.sweep_ms {
            self.sweep(now_ns / 1_000_000);
        }
    }

    /// Forgets outdated timers when there are many.
    fn trim_timers(&mut self) {
        if self.timers.len() <= 2 * self.connections.len() + limits::TIMERS_SLACK {
            return;
        }
        let connections = &self.connections;
        self.timers.retain(|deadline| {
            let slot = connections.slot_of(deadline.client);
            slot.and_then(|slot| connections.get(slot))
                .is_some_and(|connection| connection.due_ns == deadline.due_ns)
        });
    }

    /// Whether a setting requires checking connections once a second.
    fn sweeps(&self) -> bool {
        let settings = &self.shared.settings;
        settings.timeout_s() > 0 || settings.output_limit().soft_bytes > 0
    }

    /// Closes connections that have been idle, or had too much output, for too long.
    /// O(connections), once a second.
    fn sweep(&mut self, now_ms: u64) {
        self.sweep_ms = now_ms + 1000;
        let timeout_ms = self.shared.settings.timeout_s() * 1000;
        let limit = self.shared.settings.output_limit();
        for slot in 0..self.connections.slots() {
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            let idle_ms = now_ms.saturating_sub(connection.record.last_interaction_ms());
            let waits = connection.record.has(ClientFlag::Blocked)
                || connection.flags.holding
                || connection.record.has(ClientFlag::Monitor);
            if timeout_ms > 0 && idle_ms > timeout_ms && !waits {
                self.close(slot, Reason::Idle);
                continue;
            }
            let crowded_ms = now_ms.saturating_sub(connection.crowded_since_ms);
            if connection.crowded_since_ms > 0 && crowded_ms > limit.soft_seconds * 1000 {
                self.close(slot, Reason::OutputLimit);
            }
        }
    }

    /// Sends waiting output, until everything is sent or the time limit has passed.
    fn flush_all(&mut self) {
        let deadline_ns = self.recorder.now_ns() + limits::SHUTDOWN_FLUSH_MS * 1_000_000;
        self.holding.group.stop();
        self.ask_for_disk();
        for slot in 0..self.connections.slots() {
            if let Some(connection) = self.connections.get_mut(slot) {
                touch(slot, connection, &mut self.touched);
            }
        }
        loop {
            self.release();
            self.send();
            let waiting = (0..self.connections.slots())
                .filter_map(|slot| self.connections.get(slot))
                .filter(|connection| connection.output.pending() > 0)
                .count();
            let left_ns = deadline_ns.saturating_sub(self.recorder.now_ns());
            if waiting == 0 || left_ns == 0 {
                if waiting > 0 {
                    warn!(
                        worker = self.index,
                        connections = waiting,
                        "replies were not taken"
                    );
                }
                return;
            }
            let left = if self.must_release() { 0 } else { left_ns };
            self.wait(Some(Duration::from_nanos(left)));
        }
    }

    /// Forgets a connection; its socket is closed.
    fn close(&mut self, slot: usize, reason: Reason) {
        let Some(mut connection) = self.connections.remove(slot) else {
            return;
        };
        if connection.flags.holding {
            self.holding.forget(slot);
        }
        if let Err(error) = self.poller.remove(&connection.stream) {
            debug!(client = connection.client.id, %error, "cannot stop watching a connection");
        }
        self.shared.database.forget(&mut connection.client);
        let request_bytes = connection.record.request_bytes();
        self.shared.charge(&connection.record, 0);
        self.shared.disconnect(&connection.record);
        self.mailbox.disconnected();
        let statistics = self.recorder.statistics();
        let (client, address) = (connection.client.id, &connection.record.origin().address);
        match reason {
            Reason::Ended => debug!(client, address, "connection closed"),
            Reason::Killed => debug!(client, address, "connection killed"),
            Reason::Abandoned => debug!(client, address, "connection closed: replies not read"),
            Reason::Idle => {
                statistics.idle_closes.add(1);
                debug!(client, address, "connection closed: idle for too long");
            }
            Reason::OutputLimit => {
                statistics.output_limit_closes.add(1);
                let bytes = connection.output.pending();
                warn!(
                    client,
                    address, bytes, "connection closed: too much output waits"
                );
            }
            Reason::Shed => {
                statistics.shed_closes.add(1);
                warn!(
                    client,
                    address,
                    bytes = request_bytes,
                    "connection closed: requests that are not complete take too much memory, and \
                     its own take most"
                );
            }
            Reason::QueryLimit => {
                statistics.query_limit_closes.add(1);
                let (bytes, _) = connection.input.sizes();
                warn!(
                    client,
                    address, bytes, "connection closed: its request is too long"
                );
            }
        }
    }
}

/// Puts a connection on the list of those whose output is sent at the end of the turn.
#[inline]
fn touch(slot: usize, connection: &mut Connection, touched: &mut Vec<usize>) {
    if !connection.flags.touched {
        connection.flags.touched = true;
        touched.push(slot);
    }
}

/// Puts a connection on the queue if it has something to do (WL2).
#[inline]
fn queue_up(slot: usize, connection: &mut Connection, queue: &mut VecDeque<usize>) {
    if !connection.flags.queued && connection.has_work() {
        connection.flags.queued = true;
        queue.push_back(slot);
    }
}

/// Sets when the connection's phase times out.
fn set_deadline(connection: &mut Connection, timers: &mut Timers, due_ns: u64) {
    // Of several deadlines the last one set is the connection's.
    debug_assert!(!matches!(connection.phase, Phase::Lingering));
    connection.due_ns = due_ns;
    timers.set(Deadline {
        due_ns,
        client: connection.client.id,
    });
}
