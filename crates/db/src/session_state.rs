//! What commands of one session change beside the keyspace.

use std::sync::Arc;

use pando_durability::log::LogSession;
use pando_engine::{Deadline, Key, LogEpoch, Point};

use crate::clock::Clock;
#[cfg(test)]
use crate::durable::testing::{self, Fault};
use crate::effects::Effects;
use crate::expiry::ExpiryIndex;
use crate::memory::{Access, Ages, Evictor, Fit, Touch};
use crate::snapshots::Seen;
use crate::statistics::SessionCounters;
use crate::store::StoreSession;

/// The part of a session that commands change.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) store: StoreSession,
    /// Where commits are recorded, if the database is kept on disk.
    pub(crate) log: Option<LogSession>,
    pub(crate) gate: usize,
    pub(crate) counters: Arc<SessionCounters>,
    pub(crate) random: fastrand::Rng,
    /// One reading of the clock per turn, refreshed after a command that waited.
    pub(crate) now_us: u64,
    /// How the command in work uses values.
    pub(crate) access: Access,
    /// How much the command in work may write.
    pub(crate) fit: Fit,
    pub(crate) evictor: Evictor,
    /// The snapshots, as it saw them last.
    pub(crate) snapshots: Seen,
    /// Whether what commands see is noted, for a client of `sync` (AK4 sync-waits).
    pub(crate) observes: bool,
    /// The latest epoch that the command in work may tell of; kept only if `observes`.
    pub(crate) observed: LogEpoch,
    /// The latest epoch of a group of the command in work; 0: there was none.
    pub(crate) wrote: LogEpoch,
    /// Whether that group is not to be acknowledged before it is durable (AK5 interval-waits).
    pub(crate) beyond_room: bool,
    /// Of the run under way, on an engine whose runs are repeated (RR1 effects-once).
    pub(crate) effects: Option<Box<Effects>>,
}

impl SessionState {
    /// A use of a value by the command in work.
    #[inline]
    pub(crate) fn touch<'d>(&mut self, ages: &'d Ages) -> Touch<'d> {
        self.access.touch(ages, &mut self.random)
    }

    /// Brings the expiry index up to date with a key whose deadline has changed.
    pub(crate) fn reconcile(
        &mut self,
        expiry: &ExpiryIndex,
        key: Key<'_>,
        replaced: Option<Deadline>,
    ) {
        let store = &mut self.store;
        expiry.reconcile(key, replaced, || {
            store.get(key, |value| {
                value.and_then(|value| value.attributes.deadline)
            })
        });
    }

    /// What was recorded since the last call is a group of this epoch, recovered whole or not at
    /// all. Nothing recorded: nothing happens.
    #[inline]
    pub(crate) fn end_group(&mut self, epoch: LogEpoch) {
        if let Some(log) = &mut self.log
            && log.has_group()
        {
            log.end_group(epoch);
            self.wrote = epoch;
            self.beyond_room = log.is_beyond_room();
        }
    }

    /// Whether something was recorded since the last group ended.
    #[inline]
    pub(crate) fn has_group(&self) -> bool {
        self.log.as_ref().is_some_and(LogSession::has_group)
    }

    /// Gives the groups to the log: before the gate goes under which they were made.
    #[inline]
    pub(crate) fn hand_over(&mut self, clock: &dyn Clock) {
        if let Some(log) = &mut self.log {
            #[cfg(test)]
            if testing::is(Fault::AgeForgotten) {
                return log.hand_over();
            }
            log.note_write(|| clock.monotonic_us());
            log.hand_over();
        }
    }

    /// Waits while the log has too much to write: before a gate is taken.
    #[inline]
    pub(crate) fn wait_for_room(&mut self) {
        if let Some(log) = &mut self.log {
            log.wait_for_room();
        }
    }

    /// Notes that the reply may tell of this epoch (AK4 sync-waits).
    #[inline]
    pub(crate) fn observe(&mut self, epoch: LogEpoch) {
        if self.observes {
            self.observed = self.observed.max(epoch);
        }
    }
}
