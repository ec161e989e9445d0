//! What commands of one session change besides the keyspace.

use std::sync::Arc;

use pando_durability::log::LogSession;
use pando_engine::{Key, LogEpoch, Refused, StreamId};

use crate::alive::Alive;
use crate::clock::{Clock, Microseconds};
#[cfg(test)]
use crate::durable::testing::{self, Fault};
use crate::effects::{Effects, Leftover, leaves};
use crate::expiry::{ExpiryIndex, Replaced};
use crate::limits;
use crate::lines::InLine;
use crate::memory::{Access, Ages, Evictor, Fit, Touch};
use crate::placing::PlacedSeen;
use crate::snapshots::Seen;
use crate::statistics::SessionCounters;
use crate::store::StoreSession;
use crate::transaction::Transaction;

/// What an engine keeps itself, without a record in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is not of that kind.
    ByNone,
    Nothing,
    Something,
}

/// Whether a session may keep others out, by how often they were idle when it looked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries {
    /// How often in a row they were.
    idle: u32,
    /// Times that are passed over until it looks again.
    pause: u32,
    /// Binary logarithm of those after the next time that they are not.
    backoff: u32,
}

impl Tries {
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        due
    }

    /// Records whether others were idle; returns whether they have been for long.
    #[inline]
    pub(crate) fn note(&mut self, idle: bool) -> bool {
        if !idle {
            self.idle = 0;
            self.pause = 1 << self.backoff;
            self.backoff = (self.backoff + 1).min(limits::ALONE_BACKOFF_MAX);
            return false;
        }
        self.idle = (self.idle + 1).min(limits::ALONE_IDLE_MIN);
        let long = self.idle == limits::ALONE_IDLE_MIN;
        if long {
            self.backoff = 0;
        }
        long
    }
}

/// The part of a session that commands change.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) store: StoreSession,
    /// Where commits are recorded, if the database is kept on disk.
    pub(crate) log: Option<LogSession>,
    pub(crate) gate: usize,
    pub(crate) counters: Arc<SessionCounters>,
    /// Those of a run that has ended, for the next one: its counters have counted nothing.
    pub(crate) spare_effects: Option<Box<Effects>>,
    /// Memory of one that has ended, for the next one.
    pub(crate) spare_transaction: Option<Box<Transaction>>,
    pub(crate) random: fastrand::Rng,
    /// One reading of the clock per turn, refreshed after a command that waited.
    pub(crate) now: Microseconds,
    /// How the current command uses values.
    pub(crate) access: Access,
    /// How much the current command may write.
    pub(crate) fit: Fit,
    pub(crate) evictor: Evictor,
    /// The snapshots, as last seen.
    pub(crate) snapshots: Seen,
    /// Which keys are here, as last seen; nothing: all.
    pub(crate) placing: PlacedSeen,
    /// Whether what commands see is recorded, for a client of `sync` (AK4 sync-waits).
    pub(crate) observes: bool,
    /// The latest epoch that the current command may reveal; kept only if `observes`.
    pub(crate) observed: LogEpoch,
    /// The latest epoch of a group of the current command; 0: none.
    pub(crate) wrote: LogEpoch,
    /// Whether that group must not be acknowledged before it is durable (AK5 interval-waits).
    pub(crate) beyond_room: bool,
    /// What the engine has kept since the last group ended.
    pub(crate) kept: Kept,
    /// An update of a large row is refused ([`crate::error::CommandError::LargeRow`]): its command
    /// is carried out where the row may be changed in place.
    pub(crate) leaves_large: bool,
    /// When to keep other sessions out next.
    pub(crate) tries: Tries,
    /// The current command's place in the lines of its keys.
    pub(crate) in_line: InLine,
    /// The key for which it was woken (BL4 first-written-first).
    pub(crate) called_to: Option<Box<[u8]>>,
    /// The ids behind which it reads streams, if it has waited.
    pub(crate) waits_behind: Vec<StreamId>,
    /// Of the current run, on an engine whose runs are repeated (RR1 effects-once).
    pub(crate) effects: Option<Box<Effects>>,
    /// What the current command takes for alive, if it sees several keys beside others.
    pub(crate) alive: Alive,
}

impl SessionState {
    /// A use of a value by the current command.
    #[inline]
    pub(crate) fn touch<'d>(&mut self, ages: &'d Ages) -> Touch<'d> {
        self.access.touch(ages, &mut self.random)
    }

    /// Updates the expiry index for a key one of whose deadlines has changed.
    pub(crate) fn reconcile(&mut self, expiry: &ExpiryIndex, key: Key<'_>, replaced: Replaced) {
        expiry.reconcile(&mut self.store, key, replaced);
    }

    /// Ends a group of this epoch, recovered whole or not at all, with what was recorded since the
    /// last call. Does nothing if nothing was recorded.
    #[inline]
    pub(crate) fn end_group(&mut self, epoch: LogEpoch) {
        if let Some(log) = &mut self.log
            && log.has_group()
        {
            log.end_group(epoch);
            self.wrote = epoch;
            self.beyond_room = log.is_beyond_room();
        }
        if self.kept == Kept::Something {
            self.kept = Kept::Nothing;
            self.wrote = epoch;
        }
    }

    /// Forgets what was recorded since the last group ended: it does not count.
    pub(crate) fn drop_group(&mut self) {
        if leaves(Leftover::Records) {
            return;
        }
        if let Some(log) = &mut self.log {
            log.drop_group();
        }
        if self.kept == Kept::Something {
            self.kept = Kept::Nothing;
        }
    }

    /// Whether something was recorded since the last group ended.
    #[inline]
    pub(crate) fn has_group(&self) -> bool {
        self.kept == Kept::Something || self.log.as_ref().is_some_and(LogSession::has_group)
    }

    /// Hands the groups to the log, before the gate under which they were made is released.
    #[inline]
    pub(crate) fn hand_over(&mut self, clock: &dyn Clock) {
        if let Some(log) = &mut self.log {
            #[cfg(test)]
            if testing::is(Fault::AgeForgotten) {
                return log.hand_over();
            }
            log.note_write(|| clock.monotonic());
            log.hand_over();
        }
    }

    /// Waits while the log has too much to write; called before a gate is taken.
    #[inline]
    pub(crate) fn wait_for_room(&mut self) {
        if let Some(log) = &mut self.log {
            log.wait_for_room();
        }
    }

    /// The engine has committed something.
    #[inline]
    pub(crate) fn note_commit(&mut self) {
        if self.kept != Kept::ByNone {
            self.kept = Kept::Something;
        }
    }

    /// Why the engine refused the update that was just made, if it did: it changed nothing.
    #[inline]
    pub(crate) fn take_refusal(&mut self) -> Option<Refused> {
        if self.kept == Kept::ByNone {
            return None;
        }
        self.store.take_refusal()
    }

    /// Records that the reply may reveal this epoch (AK4 sync-waits).
    #[inline]
    pub(crate) fn observe(&mut self, epoch: LogEpoch) {
        if self.observes {
            self.observed = self.observed.max(epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_others_are_busy_it_looks_less_and_less_often() {
        let mut tries = Tries::default();
        let mut passed = Vec::new();
        for _ in 0..limits::ALONE_BACKOFF_MAX + 2 {
            let mut count = 0;
            while !tries.is_due() {
                count += 1;
            }
            passed.push(count);
            assert!(!tries.note(false));
        }
        assert_eq!(passed[..4], [0, 1, 2, 4]);
        assert_eq!(passed.last(), Some(&(1 << limits::ALONE_BACKOFF_MAX)));
    }

    #[test]
    fn others_must_have_been_idle_for_long() {
        let mut tries = Tries::default();
        for _ in 0..2 {
            for nth in 1..=limits::ALONE_IDLE_MIN {
                assert_eq!(tries.note(true), nth == limits::ALONE_IDLE_MIN);
            }
            assert!(tries.note(true) && !tries.note(false));
        }
    }
}
