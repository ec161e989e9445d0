//! The on-disk side of a database, and what a commit leaves in the log.
//!
//! | module | what it is |
//! |---|---|
//! | `options` | where and how a database is stored |
//! | `bytes` | numbers and byte strings, and a reader of untrusted ones |
//! | `value` | values and changes of values |
//! | `record` | log records |
//! | `catalog` | changes of branches and of snapshots that last |
//! | `standing` | where a replica stands |
//! | `lineage` | the histories of the data |
//! | `hook` | what a commit writes to its session's log |
//!
//! Deliberately absent: opening, checkpoints and recovery of a database (`persistence`).

pub(crate) mod bytes;
pub(crate) mod catalog;
pub(crate) mod forks;
pub(crate) mod hook;
pub(crate) mod lineage;
pub(crate) mod options;
pub(crate) mod record;
pub(crate) mod standing;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod value;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pando_durability::checkpoint::Directories;
use pando_durability::disk::DirectoryLock;
use pando_durability::log::Log;
use pando_engine::LogEpoch;
use pando_sync::lock;

pub use bytes::Malformed;
pub use options::{DurabilityOptions, OnProgress, RecoveryProgress, Stage};

use crate::clock::Milliseconds;

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The start epoch of the checkpoint that was used.
    pub checkpoint: Option<LogEpoch>,
    /// When it was completed, in milliseconds since the Unix epoch.
    pub checkpoint_wall_ms: Option<Milliseconds>,
    /// Entries loaded from it.
    pub loaded: u64,
    /// Bytes of its files.
    pub loaded_bytes: u64,
    /// Records replayed from the log.
    pub replayed: u64,
    /// Bytes of the log that were read.
    pub replayed_bytes: u64,
    /// Up to which epoch the log counted.
    pub cutoff: LogEpoch,
    /// Epochs of the torn tail, which do not count.
    pub torn: Vec<LogEpoch>,
    /// Microseconds for loading and replaying.
    pub load_us: u64,
    /// See `load_us`.
    pub replay_us: u64,
    /// Problems that could be worked around.
    pub notes: Vec<String>,
}

/// A checkpoint that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Writes before this epoch are in it.
    pub start: LogEpoch,
    /// Writes after this epoch are not in it.
    pub end: LogEpoch,
    /// When it was completed, in milliseconds since the Unix epoch.
    pub wall_ms: Milliseconds,
    /// Keys.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// Log segments freed by it.
    pub recycled: usize,
}

/// The part of a database that concerns its files.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) options: DurabilityOptions,
    /// Where checkpoints are.
    pub(crate) files: Directories,
    pub(crate) log: Arc<Log>,
    pub(crate) identity: u128,
    /// The start epochs of the checkpoints that are kept, newest first; locked while one is taken.
    pub(crate) checkpoints: Mutex<Vec<LogEpoch>>,
    /// Trees are being loaded that the mapping does not show yet (FW4 log-has-copy); changes while
    /// `checkpoints` is locked, or to false.
    pub(crate) loading: AtomicBool,
    /// Whether the histories are on disk; locked while they are written.
    pub(crate) histories_kept: Mutex<bool>,
    /// Bytes of log to hold for followers, once there is one.
    pub(crate) hold: AtomicU64,
    pub(crate) stopping: AtomicBool,
    pub(crate) last: Mutex<Option<CheckpointReport>>,
    pub(crate) recovery: Recovery,
    pub(crate) changed: Arc<Changed>,
    /// Released when the log is closed.
    pub(crate) locks: Mutex<Vec<DirectoryLock>>,
}

/// Signals that the log has become durable, or its state has changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    times: Mutex<u64>,
    condition: Condvar,
}

impl Changed {
    /// Wakes those who wait.
    pub(crate) fn tell(&self) {
        *lock(&self.times) += 1;
        self.condition.notify_all();
    }
}

impl Durable {
    /// Waits for another epoch to become durable, or for this long.
    pub(crate) fn wait_for_durable(&self, limit: Duration) {
        let times = lock(&self.changed.times);
        let before = *times;
        let waited = self
            .changed
            .condition
            .wait_timeout_while(times, limit, |times| *times == before);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
