//! The followed side: makes the messages for one replica.
//!
//! ```text
//! greet ── a position that the ring has ───────────────────────────────► follow
//!    └──── else ──► copy ── all entries sent ──► settle ── Done sent ───────┘
//! ```
//!
//! `copy` sends entries and epochs in turn, so that the ring need not hold what happens during all
//! of it. `settle` sends everything up to the epoch that was open when the last entry was read:
//! then the copy is what the database was in that epoch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pando_durability::log::Next;
use pando_engine::{LogEpoch, SessionLimit};

use super::Position;
use super::message::{EpochSent, Hello, put_beat, put_done, put_epoch, put_take_over};
use super::scan::Scan;
use crate::database::Database;
use crate::session::Session;

/// What [`Source::next`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A message.
    Message,
    /// Nothing: the replica has been sent everything that it may see.
    Nothing,
    /// Nothing: what the replica needs next is no longer kept. It must ask anew.
    Gone,
}

#[derive(Debug)]
enum Stage {
    Greet { full: bool },
    Copy { scan: Scan, entries_next: bool },
    Settle { until: LogEpoch },
    Follow,
}

/// See the module's header.
#[derive(Debug)]
pub struct Source {
    session: Session,
    stage: Stage,
    /// The last epoch that was sent, or where the stream began.
    cursor: LogEpoch,
}

impl Source {
    /// Messages for a replica that is at `position`, if it has one: it goes on from there if it
    /// can. The caller has no open turn.
    pub fn new(database: &Arc<Database>, position: Option<Position>) -> Result<Self, SessionLimit> {
        let mut session = database.session()?;
        let ring = database.acknowledgement.ring();
        if !ring.is_on() {
            let mut turn = session.turn();
            turn.hold_all();
            if !ring.is_on() {
                let now = database.options.clock.now().milliseconds();
                let open = database.epochs.current();
                database.acknowledgement.rise_above(open, now);
                ring.turn_on(database.closed_epoch());
            }
        }
        let known = |history: u128| history == database.history;
        #[cfg(test)]
        let known =
            |history: u128| known(history) || super::tests::is(super::tests::Fault::StaleHistory);
        let has = |position: &Position| {
            known(position.history) && ring.next(position.epoch, LogEpoch::NONE) != Next::Gone
        };
        let position = position.filter(has);
        Ok(Self {
            session,
            stage: Stage::Greet {
                full: position.is_none(),
            },
            cursor: position.map_or_else(|| ring.newest(), |position| position.epoch),
        })
    }

    /// The last epoch that was sent.
    #[must_use]
    pub fn cursor(&self) -> LogEpoch {
        self.cursor
    }

    /// Whether a full copy is being sent.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        match self.stage {
            Stage::Greet { full } => full,
            Stage::Copy { .. } | Stage::Settle { .. } => true,
            Stage::Follow => false,
        }
    }

    /// Appends the next message to `out`.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Sent {
        loop {
            match &mut self.stage {
                Stage::Greet { full } => {
                    let full = *full;
                    self.greet(full, out);
                    return Sent::Message;
                }
                Stage::Copy { scan, entries_next } => {
                    if std::mem::replace(entries_next, true) {
                        *entries_next = false;
                        if scan.next(&mut self.session, out) {
                            return Sent::Message;
                        }
                        let until = self.session.database().epochs.current();
                        self.stage = Stage::Settle { until };
                    } else {
                        match self.next_epoch(out) {
                            Sent::Nothing => {}
                            sent => return sent,
                        }
                    }
                }
                Stage::Settle { until } => {
                    let until = *until;
                    // In this order: what was closed by then is in the ring.
                    let settled = self.session.database().followable() >= until;
                    match self.next_epoch(out) {
                        Sent::Nothing if settled => {
                            put_done(out, self.cursor);
                            self.stage = Stage::Follow;
                            return Sent::Message;
                        }
                        sent => return sent,
                    }
                }
                Stage::Follow => return self.next_epoch(out),
            }
        }
    }

    fn greet(&mut self, full: bool, out: &mut Vec<u8>) {
        let database = Arc::clone(self.session.database());
        let turn = self.session.turn();
        let mut trees = database.mapping();
        trees.truncate(database.databases());
        let changes = database.mapping.changes.load(Ordering::Relaxed);
        drop(turn);
        let hello = Hello {
            history: database.history,
            full,
            began_empty: database.began_empty,
            position: self.cursor,
            changes,
            trees: trees.clone(),
        };
        hello.put(out);
        self.stage = if full {
            Stage::Copy {
                scan: Scan::of(trees),
                entries_next: true,
            }
        } else {
            Stage::Follow
        };
    }

    fn next_epoch(&mut self, out: &mut Vec<u8>) -> Sent {
        let database = self.session.database();
        let durable = database.followable();
        #[cfg(test)]
        let durable = if super::tests::is(super::tests::Fault::DurableIgnored) {
            database.closed_epoch()
        } else {
            durable
        };
        match database.acknowledgement.ring().next(self.cursor, durable) {
            Next::Nothing => Sent::Nothing,
            Next::Gone => Sent::Gone,
            Next::Epoch(epoch) => {
                let sent = EpochSent {
                    epoch: epoch.epoch,
                    previous: epoch.previous,
                    wall_ms: epoch.wall_ms,
                    offset: epoch.offset,
                    groups: &epoch.groups,
                };
                put_epoch(out, &sent);
                self.cursor = epoch.epoch;
                Sent::Message
            }
        }
    }

    /// Appends a sign of life, which says up to where the replica must be.
    pub fn beat(&self, out: &mut Vec<u8>) {
        let database = self.session.database();
        let (offset, _) = database.backlog();
        let now = database.options.clock.now().milliseconds();
        put_beat(out, self.cursor, offset, now);
    }

    /// Appends the last message: the replica has everything, and takes writes from now on. The
    /// caller has seen to it that nothing more is written here.
    pub fn take_over(&self, out: &mut Vec<u8>) {
        put_take_over(out, self.cursor);
    }

    /// Waits until there may be something to send, for this long at most; makes sure that what is
    /// written becomes durable.
    pub fn wait(&mut self, limit: Duration) {
        let database = Arc::clone(self.session.database());
        let ring = database.acknowledgement.ring();
        ring.wait(self.cursor, limit);
        let newest = ring.newest();
        if newest > database.followable() {
            // Closed, and not durable.
            if !database.want_durable(newest) {
                match &database.durable {
                    Some(durable) => durable.wait_for_durable(limit),
                    None => std::thread::sleep(limit),
                }
            }
        } else if newest == self.cursor {
            let settles = match self.stage {
                Stage::Settle { until } => database.followable() < until,
                _ => false,
            };
            if settles || ring.has_open() {
                database.press();
            }
        }
        self.session.tidy();
    }
}
