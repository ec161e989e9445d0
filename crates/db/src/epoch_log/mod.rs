//! Makes closed epochs durable: one of a few kinds, known here.
//!
//! A kind says when an epoch is durable and wakes those who wait for it. [`EpochLog::files`] gives
//! access to what only a log of files has (a state, statistics, notes for an operator). Writes of
//! another kind are never late.

#[cfg(any(test, feature = "hand-log"))]
mod by_hand;
mod pace;
mod pooled;

use std::sync::Arc;
use std::time::Duration;

use pando_durability::log::{Due, Log, SealedEpoch};
use pando_engine::LogEpoch;

#[cfg(any(test, feature = "hand-log"))]
pub use by_hand::HandLog;
pub(crate) use pooled::PoolLog;

use crate::clock::Milliseconds;

/// What makes epochs durable.
#[derive(Clone, Debug)]
pub(crate) enum EpochLog {
    /// The log of a database that is kept on disk.
    Files(Arc<Log>),
    /// The pool of an engine in persistent memory.
    Pool(Arc<PoolLog>),
    /// A test says what is durable.
    #[cfg(any(test, feature = "hand-log"))]
    ByHand(Arc<HandLog>),
}

/// A closed epoch about to be written: if dropped, others write it.
#[derive(Debug, Default)]
pub(crate) struct Sealed<'l>(Option<SealedEpoch<'l>>);

impl Sealed<'_> {
    /// Writes it on this thread, which holds no gate.
    pub(crate) fn flush(self) {
        if let Some(sealed) = self.0 {
            sealed.flush();
        }
    }
}

impl EpochLog {
    /// The log of files, if it makes epochs durable.
    #[inline]
    pub(crate) fn files(&self) -> Option<&Log> {
        match self {
            Self::Files(log) => Some(log),
            Self::Pool(_) => None,
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(_) => None,
        }
    }

    /// Nothing more belongs to `epoch` or an earlier one, and everything that does was handed over.
    /// Called in epoch order; does not wait.
    pub(crate) fn close_epoch(&self, epoch: LogEpoch, now: Milliseconds) -> Sealed<'_> {
        match self {
            Self::Files(log) => Sealed(Some(log.seal(epoch, now))),
            Self::Pool(pool) => {
                pool.close_epoch(epoch);
                Sealed::default()
            }
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => {
                log.close_epoch(epoch);
                Sealed::default()
            }
        }
    }

    /// The last epoch that is durable with all before it.
    #[inline]
    pub(crate) fn durable(&self) -> LogEpoch {
        match self {
            Self::Files(log) => log.durable(),
            Self::Pool(pool) => pool.durable(),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => log.durable(),
        }
    }

    /// Registers a wish for `epoch` to be durable; returns whether it is. Does not wait.
    pub(crate) fn want(&self, epoch: LogEpoch) -> bool {
        match self {
            Self::Files(log) => log.want(epoch),
            Self::Pool(pool) => pool.want(epoch),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => log.want(epoch),
        }
    }

    /// Registers `wake`, which is called after a wanted epoch became durable and when the log's
    /// state changes. Several may be registered, each before anybody waits.
    pub(crate) fn on_durable(&self, wake: Box<dyn Fn(LogEpoch) + Send + Sync>) {
        match self {
            Self::Files(log) => log.on_durable(wake),
            Self::Pool(pool) => pool.on_durable(wake),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => log.on_durable(wake),
        }
    }

    /// Waits until an epoch should end because somebody waits for it, for `limit` at most.
    pub(crate) fn wait_until_due(&self, limit: Duration) -> Due {
        match self {
            Self::Files(log) => log.wait_until_due(limit),
            Self::Pool(pool) => pool.wait_until_due(limit),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(_) => {
                std::thread::park_timeout(limit);
                Due::Elapsed
            }
        }
    }

    /// Whether a thread that waits for an epoch should end and write it itself.
    pub(crate) fn is_quick(&self) -> bool {
        match self {
            Self::Files(log) => log.is_quick(),
            Self::Pool(pool) => pool.is_quick(),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => log.is_quick(),
        }
    }

    /// The recent duration of a write, in nanoseconds; 0: none was made.
    pub(crate) fn write_ns(&self) -> u64 {
        match self {
            Self::Files(log) => log.write_ns(),
            Self::Pool(_) => 0,
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => log.write_ns(),
        }
    }

    /// Whether writes may be executed, and those that only remove.
    #[inline]
    pub(crate) fn accepts(&self, only_removals: bool) -> bool {
        match self {
            Self::Files(log) if only_removals => log.takes_removals(),
            Self::Files(log) => log.is_open(),
            Self::Pool(pool) => only_removals || pool.accepts_writes(),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(_) => true,
        }
    }

    /// Which time it is that it is full, while it is and may have room again soon.
    pub(crate) fn times_full(&self) -> Option<u64> {
        self.files().and_then(Log::times_full)
    }

    /// Whether what it makes durable outlives the process.
    pub(crate) fn lasts(&self) -> bool {
        match self {
            Self::Pool(pool) => pool.lasts(),
            Self::Files(_) => true,
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(_) => true,
        }
    }

    /// Whether a command under all gates writes where its data are, so that no epoch may end before
    /// the command does.
    pub(crate) fn waits_for_commands(&self) -> bool {
        matches!(self, Self::Pool(_))
    }

    /// Whether something was handed over since the last epoch was closed.
    pub(crate) fn has_open_writes(&self) -> bool {
        match self {
            Self::Files(log) => log.has_open_writes(),
            Self::Pool(pool) => pool.has_open_writes(),
            #[cfg(any(test, feature = "hand-log"))]
            Self::ByHand(log) => log.has_open_writes(),
        }
    }
}
