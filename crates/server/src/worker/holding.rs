//! Connections whose replies wait for the disk.
//!
//! A reply to a client of `sync` waits until everything that it could reveal is durable
//! ([`pando_db::Client::awaits`]). Its bytes, and everything written after them, stay in the
//! connection's output, and the worker continues: it executes the connection's next requests as
//! long as its output has space. WAITAOF waits in the same way, but for itself.
//!
//! ```text
//! execute ─► follow: the reply awaits an epoch that is not on disk ─► holding
//!              │ end of the turn, no gate held; perhaps a few turns later ([`super::group`])
//!              ▼
//! ask_for_disk: the log is told; on a quick disk it is written here and now, else the mailbox
//!              │ notes the epoch (WM4 no-lost-wake); woken, or passing by
//!              ▼
//! release: what is on disk by now may be sent
//! ```
//!
//! Replies to clients of `interval` are sent at once, unless the disk does not keep up. This is
//! checked again before a turn's replies are sent ([`Worker::hold_late`]): the writes they reveal
//! were made when the turn began, or long before if the client does not read.
//!
//! A reply to a client of `replicated n` waits for the disks of n replicas instead, which have
//! nothing that this server's disk has not (FW3 durable-above of the database). Whenever a replica
//! confirms something, all that is held is looked at again ([`Worker::recount_replicas`]). When its
//! time has passed, an error takes the reply's place. So it does when this server becomes a replica
//! or takes a full copy: what the reply acknowledges may be lost, and epochs say nothing of it.
//!
//! Invariants:
//! - **HO1** A connection that waits for an epoch is in `slots`; it leaves when it no longer waits,
//!   or is closed. The replies to datagrams count as one. While nobody waits, the group is closed.
//! - **HO2** While `slots` is not empty and the worker waits for events, the mailbox has recorded
//!   the least epoch that any of them waits for on this disk, or a smaller one; or the group is
//!   open, and it waits for at most a millisecond. What waits for replicas alone is woken by them.
//! - **HO3** The awaited epoch was requested, or an earlier one was that is not durable and that
//!   the mailbox has recorded, or the group is open.
//! - **HO4 same-role** What is held for replicas was executed when `roles` was
//!   [`Replication::roles`](crate::replication::Replication::roles), or later: a batch begins
//!   behind the reading.
//!
//! Deliberately absent: what a reply waits for; the database decides that, whatever the protocol.

use pando_db::{Client, Database, LogEpoch};

use super::connection::Connection;
use super::group::{Group, Look};
use super::output::{Mark, NEVER_NS};
use super::waiting::Event;
use super::{Worker, touch};
use crate::registry::ClientFlag;

/// Represents the replies to datagrams among the slots.
const DATAGRAMS: usize = usize::MAX;

/// What a held reply becomes that is given up.
const NO_REPLICAS: &[u8] =
    b"-NOREPLICAS Fewer replicas than asked for have on disk what the reply \
    shows. The command was executed.\r\n";
const ROLE_CHANGED: &[u8] = b"-UNBLOCKED force unblock from blocking operation, instance state \
    changed (master -> replica?)\r\n";

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Holding {
    slots: Vec<usize>,
    /// What was durable when the worker last checked, and when it last released something.
    durable: LogEpoch,
    released: LogEpoch,
    /// The last epoch requested from the log.
    asked: LogEpoch,
    /// The last epoch waited for.
    latest: LogEpoch,
    /// The epoch recorded in the mailbox.
    noted: LogEpoch,
    /// The least epoch waited for since all were last checked.
    least: LogEpoch,
    /// Whether something may wait for replicas, since when (HO4 same-role), and until when at most.
    for_replicas: bool,
    roles: u64,
    due_ns: u64,
    /// When to ask the log.
    pub(super) group: Group,
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            durable: LogEpoch::NONE,
            released: LogEpoch::NONE,
            asked: LogEpoch::NONE,
            latest: LogEpoch::NONE,
            noted: LogEpoch::NEVER,
            least: LogEpoch::NEVER,
            for_replicas: false,
            roles: 0,
            due_ns: NEVER_NS,
            group: Group::default(),
        }
    }
}

impl Holding {
    /// A request of a connection was executed, its reply written from offset `start` of the output
    /// on: holds it if it must wait.
    #[inline]
    pub(crate) fn follow(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        start: usize,
        database: &Database,
    ) {
        let epoch = connection.client.awaits();
        if epoch > self.durable {
            self.hold(slot, connection, start, epoch, database);
        }
    }

    /// Whether [`Self::follow`] has something to do for a client, whose replies wait for an epoch
    /// in any case ([`Output::covers`](super::output::Output::covers)).
    #[inline]
    pub(crate) fn must_follow(&self, client: &Client, covered: LogEpoch) -> bool {
        client.awaits() > self.durable.max(covered) || client.replicated.is_some()
    }

    /// A batch begins when the server's role has changed so often (HO4 same-role).
    #[inline]
    pub(crate) fn begin(&mut self, roles: u64) {
        if !self.for_replicas {
            self.roles = roles;
        }
    }

    /// As [`Self::follow`], for a client whose replies wait for replicas; returns whether it waits.
    #[cold]
    pub(crate) fn follow_replicas(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        start: usize,
        until: (u8, u64),
    ) -> bool {
        let epoch = connection.client.take_awaits();
        if epoch > LogEpoch::NONE {
            connection.output.hold_for(start, epoch, until);
            self.add(slot, connection, epoch);
            self.for_replicas = true;
            self.due_ns = self.due_ns.min(until.1);
        }
        epoch > LogEpoch::NONE
    }

    /// Whether something may wait for replicas.
    pub(super) fn is_for_replicas(&self) -> bool {
        self.for_replicas
    }

    /// When something that waits for replicas is given up.
    #[inline]
    pub(super) fn due_ns(&self) -> Option<u64> {
        (self.due_ns < NEVER_NS).then_some(self.due_ns)
    }

    #[cold]
    fn hold(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        start: usize,
        epoch: LogEpoch,
        database: &Database,
    ) {
        self.durable = database.durable();
        if epoch > self.durable {
            connection.output.hold(start, epoch);
            self.add(slot, connection, epoch);
        }
    }

    /// Whether something that awaits this epoch must wait.
    pub(crate) fn must_wait(&mut self, epoch: LogEpoch, database: &Database) -> bool {
        if epoch > self.durable {
            self.durable = database.durable();
        }
        epoch > self.durable
    }

    /// A reply to a datagram waits for an epoch (HO1).
    pub(crate) fn add_datagrams(&mut self, epoch: LogEpoch) {
        self.latest = self.latest.max(epoch);
        self.least = self.least.min(epoch);
        if !self.slots.contains(&DATAGRAMS) {
            self.slots.push(DATAGRAMS);
        }
    }

    /// A connection is closed (HO1).
    pub(super) fn forget(&mut self, slot: usize) {
        self.slots.retain(|&other| other != slot);
        if self.slots.is_empty() {
            self.group.close();
        }
    }

    /// A connection waits for an epoch (HO1).
    pub(crate) fn add(&mut self, slot: usize, connection: &mut Connection, epoch: LogEpoch) {
        self.latest = self.latest.max(epoch);
        self.least = self.least.min(epoch);
        if !connection.flags.holding {
            connection.flags.holding = true;
            connection.record.set_flag(ClientFlag::Held, true);
            debug_assert!(!self.slots.contains(&slot), "HO1");
            self.slots.push(slot);
        }
    }
}

impl Worker {
    /// Holds what would acknowledge too much if sent now (AK6 late-disk-waits of the database). No
    /// gate is held.
    #[inline]
    pub(super) fn hold_late(&mut self) {
        let connection = |slot: &usize| self.connections.get(*slot);
        let touched = self.touched.iter().filter_map(connection);
        let written = touched.map(|connection| connection.client.unacknowledged());
        let latest = written.max().unwrap_or(LogEpoch::NONE);
        if latest > self.holding.durable && !self.shared.database.may_acknowledge(latest) {
            self.hold_touched();
        }
    }

    #[cold]
    fn hold_touched(&mut self) {
        self.holding.durable = self.shared.database.durable();
        for &slot in &self.touched {
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            let epoch = connection.client.unacknowledged();
            if epoch > self.holding.durable && connection.output.has_sendable() {
                let epoch = connection.output.hold_all(epoch);
                self.holding.add(slot, connection, epoch);
            }
        }
        self.ask_for_disk();
    }

    /// Tells the log which epoch is awaited. No gate is held.
    #[inline]
    pub(super) fn ask_for_disk(&mut self) {
        if !self.holding.slots.is_empty() {
            self.ask();
        }
    }

    #[cold]
    fn ask(&mut self) {
        let database = &self.shared.database;
        let holding = &mut self.holding;
        if holding.latest > holding.asked {
            if holding.asked > database.durable() {
                // The next write starts at the end of this one, which the mailbox reports.
                holding.least = holding.least.min(holding.asked);
            } else if holding.group.goes_on(Look {
                now_ns: self.recorder.now_ns(),
                waiting: holding.slots.len(),
                connections: self.connections.len(),
                write_ns: database.write_ns(),
            }) {
                return;
            } else {
                holding.asked = holding.latest;
                if database.want_durable(holding.latest) {
                    // On a fast disk this thread has just written it: nobody needs waking.
                    self.release_some();
                }
            }
        }
        let holding = &mut self.holding;
        if holding.least < holding.noted {
            holding.noted = holding.least;
            self.mailbox.await_durable(holding.least);
        }
    }

    /// Whether an awaited epoch is durable, though nobody may report it any more
    /// (WM4 no-lost-wake).
    pub(super) fn must_release(&self) -> bool {
        !self.holding.slots.is_empty() && self.shared.database.durable() >= self.holding.noted
    }

    /// Releases what is durable by now.
    #[inline]
    pub(super) fn release(&mut self) {
        if !self.holding.slots.is_empty() {
            self.release_some();
        }
    }

    #[cold]
    fn release_some(&mut self) {
        let durable = self.shared.database.durable();
        if durable != self.holding.released {
            self.release_all(durable);
        }
    }

    /// Looks at all that is held, when a replica has confirmed something or something is due.
    pub(super) fn release_replicated(&mut self) {
        self.release_all(self.shared.database.durable());
    }

    #[cold]
    fn release_all(&mut self, durable: LogEpoch) {
        let replicas = self.holding.for_replicas.then(|| Replicas::of(self));
        self.holding.for_replicas = false;
        self.holding.due_ns = NEVER_NS;
        self.holding.durable = durable;
        self.holding.released = durable;
        self.holding.group.released(self.holding.slots.len());
        self.holding.least = LogEpoch::NEVER;
        for slot in std::mem::take(&mut self.holding.slots) {
            if slot == DATAGRAMS {
                let statistics = self.recorder.statistics();
                let datagrams = self.datagrams.as_mut();
                let epoch = datagrams.and_then(|it| it.release(durable, statistics));
                if let Some(epoch) = epoch {
                    self.holding.least = self.holding.least.min(epoch);
                    self.holding.slots.push(DATAGRAMS);
                }
                continue;
            }
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            match &replicas {
                None => connection.output.release(|mark| mark.epoch <= durable),
                Some(replicas) => {
                    let given_up = replicas.release(connection, durable);
                    for error in given_up {
                        let text = String::from_utf8_lossy(&error[1..]);
                        self.recorder.statistics().record_error(&text);
                    }
                }
            }
            if connection.output.has_sendable() {
                touch(slot, connection, &mut self.touched);
            }
            self.resume(slot, Event::Durable(durable));
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            if let Some(mark) = connection.output.awaits() {
                self.holding.for_replicas |= mark.replicas > 0;
                self.holding.due_ns = self.holding.due_ns.min(mark.due_ns);
            }
            if connection.awaits().next().is_none() {
                connection.flags.holding = false;
                connection.record.set_flag(ClientFlag::Held, false);
                continue;
            }
            self.holding.slots.push(slot);
            let for_disk = connection.awaits().filter(|epoch| *epoch > durable);
            self.holding.least = for_disk.fold(self.holding.least, LogEpoch::min);
        }
        self.holding.noted = LogEpoch::NEVER;
        debug_assert!(self.holding.least > durable);
        debug_assert!(
            self.holding.for_replicas
                || self.holding.slots.is_empty() == (self.holding.least == LogEpoch::NEVER)
        );
        if self.holding.slots.is_empty() {
            // Another worker had it written before the group was full.
            self.holding.group.close();
        }
        self.ask_for_disk();
    }
}

/// What replicas have on disk at one time.
struct Replicas {
    /// Of each that keeps a log, the highest first.
    durable: Vec<LogEpoch>,
    /// The last epoch with anything.
    newest: LogEpoch,
    role_changed: bool,
    now_ns: u64,
}

impl Replicas {
    /// The caller has read what is durable here: what is there by then is in `newest`.
    fn of(worker: &Worker) -> Self {
        let replication = &worker.shared.replication;
        Self {
            newest: worker.shared.database.newest_followed(),
            durable: replication.on_disks(),
            role_changed: replication.roles() != worker.holding.roles,
            now_ns: worker.recorder.now_ns(),
        }
    }

    /// Whether a mark has what it waits for. An epoch in which nothing was written is never sent:
    /// a replica has it when it has all there is.
    fn have(&self, mark: &Mark, durable: LogEpoch) -> bool {
        let here = mark.epoch <= durable;
        let Some(nth) = usize::from(mark.replicas).checked_sub(1) else {
            return here;
        };
        let there = self.durable.get(nth).copied();
        there.is_some_and(|there| there >= mark.epoch || here && there >= self.newest)
    }

    /// Releases what a connection may send, and gives up what must be; returns the errors.
    fn release(&self, connection: &mut Connection, durable: LogEpoch) -> Vec<&'static [u8]> {
        let output = &mut connection.output;
        let mut errors = Vec::new();
        loop {
            output.release(|mark| {
                self.have(mark, durable) && !(self.role_changed && mark.replicas > 0)
            });
            let error = match output.awaits() {
                Some(mark) if mark.replicas > 0 && self.role_changed => ROLE_CHANGED,
                Some(mark) if mark.due_ns <= self.now_ns => NO_REPLICAS,
                _ => return errors,
            };
            output.refuse(error);
            errors.push(error);
        }
    }
}
