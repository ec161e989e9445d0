//! The log as the database's users see it: what is durable, who waits for it.

use pando_durability::log::{Log, LogState, LogStatistics};
use pando_engine::LogEpoch;

use super::Database;
#[cfg(test)]
use crate::durable::testing::{self, Fault};
use crate::epoch_log::EpochLog;

impl Database {
    /// The last log epoch that is durable with all before it, to compare with
    /// [`Client::awaits`](crate::Client). Without a log, everything counts as durable.
    #[must_use]
    #[inline]
    pub fn durable(&self) -> LogEpoch {
        self.acknowledgement.durable()
    }

    /// Whether a reply that tells a client of `interval` about a write in `epoch`
    /// ([`Client::unacknowledged`](crate::Client::unacknowledged)) may be sent now: the epoch is
    /// durable, or no write that could have been acknowledged long ago is missing on disk
    /// (AK6 late-disk-waits). If not, the reply waits for the epoch, as if the client awaited it.
    #[must_use]
    pub fn may_acknowledge(&self, epoch: LogEpoch) -> bool {
        let Some(log) = self.acknowledgement.files() else {
            return true;
        };
        #[cfg(test)]
        if testing::is(Fault::OpenEpochsYoung) && log.statistics().closed == log.durable() {
            return true;
        }
        !log.is_late(self.options.clock.monotonic()) || log.durable() >= epoch
    }

    /// Registers a wish for `epoch` to be durable; returns whether it is. The caller holds no turn.
    /// Does not wait, unless the disk has lately been so fast that this thread should write what is
    /// missing ([`pando_durability::limits::QUICK_WRITE_US_MAX`]).
    pub fn want_durable(&self, epoch: LogEpoch) -> bool {
        let clock = &*self.options.clock;
        self.acknowledgement.want(epoch, &self.gates, clock)
    }

    /// Registers a wish for what was written so far to be durable soon, within a turn.
    pub(crate) fn hurry(&self) {
        if let Some(log) = self.acknowledgement.log() {
            log.want(self.epochs.current());
        }
    }

    /// The recent duration of a write to the log, with its sync, in nanoseconds; 0 without a log.
    #[must_use]
    pub fn write_ns(&self) -> u64 {
        self.acknowledgement.log().map_or(0, EpochLog::write_ns)
    }

    /// Registers `wake`, which is called with [`Self::durable`] after a wanted epoch became durable
    /// and when the log's state changes. It must not wait. To be registered before anybody waits.
    pub fn on_durable(&self, wake: impl Fn(LogEpoch) + Send + Sync + 'static) {
        if let Some(log) = self.acknowledgement.log() {
            log.on_durable(Box::new(wake));
        }
    }

    /// Whether the log can be written; `None` without one.
    #[must_use]
    pub fn log_state(&self) -> Option<LogState> {
        self.acknowledgement.files().map(Log::state)
    }

    /// What the log has done and holds; `None` without one.
    #[must_use]
    pub fn log_statistics(&self) -> Option<LogStatistics> {
        self.acknowledgement.files().map(Log::statistics)
    }

    /// Failures of the log that were survived since the last call, for an operator.
    #[must_use]
    pub fn take_log_notes(&self) -> Vec<String> {
        let log = self.acknowledgement.files();
        log.map(Log::take_notes).unwrap_or_default()
    }

    /// Whether replies can wait for the disk: there is a log.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.acknowledgement.log().is_some_and(EpochLog::lasts)
    }

    /// Ends the log epoch, and writes its part of the log.
    pub(crate) fn end_epoch(&self) {
        let now = self.options.clock.now().milliseconds();
        self.acknowledgement.tick(&self.gates, now).flush();
    }
}
