//! Requests that wait, and the one place where they resume.
//!
//! | [`Wait`] | ends with [`Event`] | then |
//! |---|---|---|
//! | `Time` | `Due` | `+OK` |
//! | `Disk` | `Durable`, `Due`, `Unblocked` | the reply to WAITAOF |
//! | `Replicas` | `Replicated`, `Due`, `Unblocked` | the reply to WAIT or WAITAOF |
//! | `Host` | `Saved` | the reply to SAVE |
//! | `Errand` | `Errand` | the request is executed again |
//! | `Others` | `Over`, after the last slice | nothing: the last slice wrote the reply |
//! | `Keys` | `Ready`, `Due`, `Unblocked` | the request is executed again, and says what came of it |
//! | `Leave` | `Due`, `Look` | the request is executed again |
//! | `Away` | `Due`, in the next turn | the request is executed again |
//! | `Reader` | none | see below |
//! | `Disk`, `Replicas`, `Keys` | `RoleChanged` | an error, and the connection is closed |
//!
//! A waiting connection executes nothing else (CO1 ready-and-heard). One that waits for its reader
//! stays ready: its full output holds it back like any other whose client does not read, and its
//! request is in its input.
//!
//! No end is missed. A deadline is set, or a slot recorded, in the turn in which the wait begins,
//! and the worker checks its slots in later turns. The keeper records a SAVE before its connection
//! is recorded here, and wakes all workers after it has answered one. An event that a connection
//! does not wait for has no effect on it.
//!
//! Deliberately absent: replies that are written and held (`super::holding`).

use pando_db::{CommandError, Ended, LogEpoch, Microseconds, ReplicaWait, Wait};
use pando_protocol::Reply;

use super::connection::{Connection, Phase};
use super::holding::Holding;
use super::timers::Timers;
use super::{Worker, queue_up, set_deadline, touch};
use crate::admin::AdminError;
use crate::admin::replication::has_all;
use crate::host::SliceTrace;

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: Wait,
    /// Its client wants no reply to it.
    pub(crate) silent: bool,
    /// For a command in slices.
    pub(crate) trace: Option<Box<SliceTrace>>,
}

/// What a request may have waited for.
#[derive(Debug)]
pub(super) enum Event {
    /// Its time has come.
    Due,
    /// Everything up to this epoch is durable.
    Durable(LogEpoch),
    /// CLIENT UNBLOCK, with ERROR or without.
    Unblocked { by_error: bool },
    /// So many replicas have everything, and this server has it on disk or not.
    Replicated((bool, usize)),
    /// The keeper has met its request.
    Saved(Result<(), AdminError>),
    /// The host has something for it.
    Errand,
    /// Its last slice is done.
    Over,
    /// A pause has ended or changed.
    Look,
    /// A key that it waits for may have a value.
    Ready,
    /// The server follows another one now.
    RoleChanged,
}

/// Slots of connections that wait for something that many may wait for. One that no longer waits,
/// or whose slot was reused, is dropped at the next check.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Long commands whose next slice runs in the next turn, and requests that are repeated in it.
    pub(super) slicing: Vec<usize>,
    leave: Vec<usize>,
    replicas: Vec<usize>,
    host: Vec<usize>,
    errands: Vec<usize>,
    /// A connection has begun to wait for replicas, or a reply has.
    pub(super) recount: bool,
    /// How often the server has begun to follow another one, as far as this is known here.
    submissions: u64,
}

/// Where a wait is recorded when it begins.
pub(super) struct Places<'w> {
    pub(super) waiters: &'w mut Waiters,
    pub(super) holding: &'w mut Holding,
    pub(super) timers: &'w mut Timers,
}

impl Places<'_> {
    /// As [`Holding::follow_replicas`]: replicas are counted before the worker sleeps.
    #[cold]
    pub(super) fn follow_replicas(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        start: usize,
        until: (u8, u64),
    ) {
        self.waiters.recount |= self.holding.follow_replicas(slot, connection, start, until);
    }

    /// A request of the connection at `slot` waits from `now_ns` on, which the database's clock
    /// calls `now`.
    #[cold]
    pub(super) fn begin(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        wait: &Wait,
        (now_ns, now): (u64, Microseconds),
    ) {
        let due_ns = match wait {
            Wait::Time { milliseconds } => {
                Some(milliseconds.saturating_mul(NANOSECONDS_PER_MILLISECOND))
            }
            Wait::Disk { epoch, timeout } => {
                self.holding.add(slot, connection, *epoch);
                timeout.map(|it| it.0.saturating_mul(NANOSECONDS_PER_MILLISECOND))
            }
            Wait::Host(_) => {
                self.waiters.host.push(slot);
                None
            }
            Wait::Errand => {
                self.waiters.errands.push(slot);
                None
            }
            Wait::Replicas { timeout, .. } => {
                // They are counted once more before the worker sleeps.
                self.waiters.replicas.push(slot);
                self.waiters.recount = true;
                timeout.map(|it| it.0.saturating_mul(NANOSECONDS_PER_MILLISECOND))
            }
            Wait::Others(_) | Wait::Away => {
                // One slice per connection and turn.
                debug_assert!(!self.waiters.slicing.contains(&slot));
                self.waiters.slicing.push(slot);
                None
            }
            Wait::Keys(wait) => {
                let left = wait.until.map(|until| until.saturating_sub(now));
                left.map(|left| left.0.saturating_mul(1000))
            }
            Wait::Leave { until } => {
                self.waiters.leave.push(slot);
                Some(until.saturating_sub(now).0.saturating_mul(1000))
            }
            Wait::Reader => None,
        };
        if let Some(wait_ns) = due_ns {
            set_deadline(connection, self.timers, now_ns.saturating_add(wait_ns));
        }
    }
}

impl Worker {
    /// Ends the wait of the connection at `slot`, if this is what it waits for: writes its reply,
    /// and executes its next requests, or the same one again.
    pub(super) fn resume(&mut self, slot: usize, event: Event) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let Phase::Waiting(waiting) = &connection.phase else {
            return;
        };
        let silent = waiting.silent;
        let answer = match (&waiting.wait, event) {
            (Wait::Time { .. }, Event::Due) | (Wait::Host(_), Event::Saved(Ok(()))) => Answer::Ok,
            (Wait::Disk { epoch, .. }, Event::Durable(durable)) if *epoch <= durable => {
                Answer::Disks(1)
            }
            (Wait::Disk { .. }, Event::Due | Event::Unblocked { by_error: false }) => {
                Answer::Disks(0)
            }
            (Wait::Replicas { wait, .. }, Event::Replicated(has)) if wait.is_over(has) => {
                Answer::Replicas(*wait, has)
            }
            (Wait::Replicas { wait, .. }, Event::Due | Event::Unblocked { by_error: false }) => {
                Answer::Replicas(*wait, has_all(&self.shared, wait))
            }
            (Wait::Disk { .. } | Wait::Replicas { .. }, Event::Unblocked { by_error: true }) => {
                Answer::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into())
            }
            (Wait::Disk { .. } | Wait::Replicas { .. }, Event::RoleChanged) => {
                let error = CommandError::RoleChanged;
                self.recorder.statistics().record_error(&error.to_string());
                Answer::Last(error.text())
            }
            (Wait::Keys(_), Event::RoleChanged) => {
                connection.client.end_wait(Ended::RoleChanged);
                Answer::Nothing
            }
            (Wait::Host(_), Event::Saved(Err(error))) => {
                self.recorder.statistics().record_error(&error.to_string());
                Answer::Error(error.text())
            }
            (Wait::Keys(_), Event::Due | Event::Unblocked { by_error: false }) => {
                connection.client.end_wait(Ended::Timeout);
                Answer::Nothing
            }
            (Wait::Keys(_), Event::Unblocked { by_error: true }) => {
                connection.client.end_wait(Ended::Error);
                Answer::Nothing
            }
            (Wait::Keys(_), Event::Ready)
            | (Wait::Others(_), Event::Over)
            | (Wait::Errand, Event::Errand)
            | (Wait::Leave { .. }, Event::Due | Event::Look)
            | (Wait::Away, Event::Due) => Answer::Nothing,
            _ => return,
        };
        let is_last = matches!(answer, Answer::Last(_));
        if !silent && !matches!(answer, Answer::Nothing) {
            let protocol = connection.client.protocol;
            let out = connection.output.buffer(&mut self.pool);
            let mut reply = Reply::new(out, protocol);
            answer.write(&mut reply);
            touch(slot, connection, &mut self.touched);
        }
        if is_last {
            connection.enter(Phase::Closing);
            return touch(slot, connection, &mut self.touched);
        }
        connection.enter(Phase::Ready);
        queue_up(slot, connection, &mut self.queue);
    }

    /// An event that many may wait for: checks those that wait for permission, for a checkpoint, or
    /// for the host's errand.
    pub(super) fn resume_all(&mut self) {
        self.end_waits_of_primary();
        for slot in std::mem::take(&mut self.waiters.leave) {
            self.resume(slot, Event::Look);
        }
        self.recount_replicas();
        self.resume_errands();
        for slot in std::mem::take(&mut self.waiters.host) {
            let connection = self.connections.get(slot);
            let Some(&Wait::Host(request)) = connection.and_then(Connection::wait) else {
                continue;
            };
            match self.shared.keeper.answer(request) {
                None => self.waiters.host.push(slot),
                Some(result) => {
                    let result = result.map_err(|reason| AdminError::save_failed(&reason));
                    self.resume(slot, Event::Saved(result));
                }
            }
        }
    }

    /// Ends the waits of clients of a primary that is one no longer, as Redis does: what they wait
    /// for may never come.
    fn end_waits_of_primary(&mut self) {
        let submissions = self.shared.replication.submissions();
        if std::mem::replace(&mut self.waiters.submissions, submissions) != submissions {
            for slot in 0..self.connections.slots() {
                self.resume(slot, Event::RoleChanged);
            }
        }
    }

    /// Checks those whose errand the host may have run.
    fn resume_errands(&mut self) {
        for slot in std::mem::take(&mut self.waiters.errands) {
            let connection = self.connections.get(slot);
            let Some((Wait::Errand, client)) =
                connection.and_then(|it| Some((it.wait()?, it.client.id)))
            else {
                continue;
            };
            let shared = &self.shared;
            if shared.migrations.is_answered(client) && shared.placings.is_answered(client) {
                self.resume(slot, Event::Errand);
            } else {
                self.waiters.errands.push(slot);
            }
        }
    }

    /// Checks those that wait for replicas, after a confirmation or when one has begun to wait.
    pub(super) fn recount_replicas(&mut self) {
        self.waiters.recount = false;
        if self.waiters.replicas.is_empty() && !self.holding.is_for_replicas() {
            return;
        }
        self.shared.replication.await_replicas();
        if self.holding.is_for_replicas() {
            self.release_replicated();
        }
        for slot in std::mem::take(&mut self.waiters.replicas) {
            let connection = self.connections.get(slot);
            let Some(&Wait::Replicas { wait, .. }) = connection.and_then(Connection::wait) else {
                continue;
            };
            let has = has_all(&self.shared, &wait);
            if wait.is_over(has) {
                self.resume(slot, Event::Replicated(has));
            } else {
                self.waiters.replicas.push(slot);
            }
        }
    }

    /// A key that a client waits for may have a value.
    pub(super) fn ready(&mut self, client: u64) {
        if let Some(slot) = self.connections.slot_of(client) {
            self.resume(slot, Event::Ready);
        }
    }

    /// CLIENT UNBLOCK has ended a wait, which may meanwhile have ended.
    pub(super) fn unblock(&mut self, client: u64, wait: u64, by_error: bool) {
        let Some(slot) = self.connections.slot_of(client) else {
            return;
        };
        let connection = self.connections.get(slot);
        if connection.is_some_and(|connection| connection.record.last_wait() == wait) {
            self.resume(slot, Event::Unblocked { by_error });
        }
    }
}

/// What is written when a wait ends.
enum Answer {
    Nothing,
    Ok,
    Disks(i64),
    Replicas(ReplicaWait, (bool, usize)),
    Error(Vec<u8>),
    /// The same, and the connection is closed.
    Last(Vec<u8>),
}

impl Answer {
    fn write(self, reply: &mut Reply<'_>) {
        match self {
            Self::Nothing => {}
            Self::Ok => reply.ok(),
            Self::Disks(count) => {
                // Of this server, and of replicas.
                reply.array(2);
                reply.integer(count);
                reply.integer(0);
            }
            Self::Replicas(wait, has) => wait.answer(reply, has),
            Self::Error(text) | Self::Last(text) => reply.error(text),
        }
    }
}
