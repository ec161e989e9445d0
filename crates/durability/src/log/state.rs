//! State that all parts of the log share: options, counters, whether it may be written.
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `pending`, of all logs and of each | sessions add, writers subtract | `Relaxed`: only the sum matters | sessions before a turn |
//! | `condition`, after `fills` | [`Shared::set_condition`], under `reason` | `Release` | everybody, `Acquire` |
//!
//! States, with the functions that change them:
//!
//! ```text
//! Open ◄── update_condition ──► Full          (no file could be made ahead, little space is left)
//!   └────── cannot_write ──────► Failed ◄── cannot_write ── Full
//! ```
//!
//! Invariants:
//! - **LT1 acknowledged-fits** What was handed over to a log fits in the space that it is known to
//!   have, in its present segment and a file ahead ([`Shared::room`]), or it is not acknowledged
//!   before it is durable. Sessions wait while half of the space is taken, and are granted three
//!   quarters ([`Shared::granted`]). So a disk that turns out to be full takes what was
//!   acknowledged. The rest is for the overhead of frames and blocks, and for turns of others that
//!   run at the same time.

use pando_sync::shim::unmodelled::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use pando_sync::{LogEpoch, lock};

use super::epochs::Epochs;
use super::error::LogError;
use super::queue::Queue;
use super::supply::Supply;
use super::writer::{Flush, Writer, is_full};
use crate::checkpoint::Directories;
use crate::disk::Disk;
use crate::limits::{BLOCK_BYTES, EARLY_BYTES, FRAME_BYTES, FRAME_BYTES_MAX};

/// Whether the log can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It can.
    Open,
    /// It has no space: writes are to be refused before they execute, until there is space again.
    Full {
        /// The disk's error.
        reason: String,
    },
    /// Neither a write nor its repetition elsewhere succeeded: nothing more becomes durable, and
    /// the server must end.
    Failed {
        /// The disk's error.
        reason: String,
    },
}

/// The options of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Where: log i is in directory i modulo their number. They exist.
    pub directories: Vec<PathBuf>,
    /// How many logs.
    pub logs: usize,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// The database's identity: files of another are refused.
    pub identity: u128,
    /// Bytes handed over and not yet written at which sessions wait before a turn.
    pub pending_bytes_max: usize,
    /// Where checkpoints are, if they may share a volume with the log, and about how many bytes the
    /// next one takes: the log reserves that space.
    pub checkpoints: Option<Directories>,
    /// See [`Self::checkpoints`].
    pub checkpoint_bytes: u64,
    /// Whether loggers have threads. Without them, the thread that closes an epoch writes, in one
    /// order: for simulation.
    pub threads: bool,
}

/// One log of several.
#[derive(Debug)]
pub(super) struct OneLog {
    pub(super) queue: Queue,
    pub(super) writer: Mutex<Writer>,
    /// Bytes used of the present segment.
    pub(super) segment_bytes: AtomicU64,
    /// Bytes handed over to this log and not yet written.
    pub(super) pending: AtomicUsize,
}

/// Classes of [`WriteTimes`].
const WRITE_TIME_CLASSES: usize = 36;

/// How long writes have taken, each with its sync: element `i` counts those of 2^(i-1) to 2^i - 1
/// nanoseconds; the last one also counts all longer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTimes([u64; WRITE_TIME_CLASSES]);

impl Default for WriteTimes {
    fn default() -> Self {
        Self([0; WRITE_TIME_CLASSES])
    }
}

impl WriteTimes {
    fn class_of(nanoseconds: u64) -> usize {
        let bits = u64::BITS - nanoseconds.leading_zeros();
        (bits as usize).min(WRITE_TIME_CLASSES - 1)
    }

    /// Writes that took less than 2^`exponent` nanoseconds; beyond 2^34 they are not distinguished.
    #[must_use]
    pub fn below(&self, exponent: usize) -> u64 {
        assert!(
            exponent < WRITE_TIME_CLASSES - 1,
            "an exponent that is told apart"
        );
        self.0[..=exponent].iter().sum()
    }

    /// All writes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) written_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) write_ns: AtomicU64,
    /// See [`WriteTimes`].
    pub(super) write_times: [AtomicU64; WRITE_TIME_CLASSES],
    pub(super) failed_writes: AtomicU64,
    /// A moving average of the time of a write with its sync, in nanoseconds.
    pub(super) recent_ns: AtomicU64,
    /// The same over more writes, so that a disk that is fast in bursts does not count as fast.
    pub(super) settled_ns: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            written_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            write_ns: AtomicU64::new(0),
            write_times: [const { AtomicU64::new(0) }; WRITE_TIME_CLASSES],
            failed_writes: AtomicU64::new(0),
            recent_ns: AtomicU64::new(0),
            settled_ns: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(super) fn times(&self) -> WriteTimes {
        let count = |class: usize| self.write_times[class].load(Ordering::Relaxed);
        WriteTimes(std::array::from_fn(count))
    }

    /// Records a write with its sync.
    pub(super) fn wrote(&self, bytes: usize, took: Duration) {
        self.written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        let took_ns = took.as_nanos() as u64;
        self.write_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.write_times[WriteTimes::class_of(took_ns)].fetch_add(1, Ordering::Relaxed);
        // If two updates race, one of the two samples is lost.
        let recent = self.recent_ns.load(Ordering::Relaxed);
        self.recent_ns
            .store(recent - recent / 8 + took_ns / 8, Ordering::Relaxed);
        let settled = self.settled_ns.load(Ordering::Relaxed);
        self.settled_ns
            .store(settled - settled / 64 + took_ns / 64, Ordering::Relaxed);
    }
}

type Wake = Box<dyn Fn(LogEpoch) + Send + Sync>;

/// What all parts of the log share.
pub(super) struct Shared {
    pub(super) options: LogOptions,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) incarnation: u64,
    pub(super) logs: Vec<OneLog>,
    pub(super) epochs: Epochs,
    pub(super) supply: Supply,
    pub(super) counters: Counters,
    /// Bytes handed over and not yet written.
    pub(super) pending: AtomicUsize,
    /// How many sessions wait until less is pending.
    room: (Mutex<usize>, Condvar),
    condition: AtomicU8,
    /// How often it became full.
    fills: AtomicU64,
    reason: Mutex<String>,
    wakes: RwLock<Vec<Wake>>,
    /// Failures that were survived, for the server's log.
    notes: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

const OPEN: u8 = 0;
const FULL: u8 = 1;
const FAILED: u8 = 2;
/// Most notes that are kept until somebody takes them.
const NOTES_MAX: usize = 16;

impl Shared {
    pub(super) fn new(
        options: LogOptions,
        disk: Arc<dyn Disk>,
        incarnation: u64,
        epochs: Epochs,
        supply: Supply,
    ) -> Self {
        // All logs together write early, before sessions have to wait.
        let early = EARLY_BYTES.min(options.pending_bytes_max / options.logs / 2);
        let frame_bytes = FRAME_BYTES.min(frame_bytes_max(&options));
        let log = |index| OneLog {
            queue: Queue::new(early.max(1), frame_bytes),
            writer: Mutex::new(Writer::new(index, options.segment_bytes)),
            segment_bytes: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
        };
        Self {
            logs: (0..options.logs).map(log).collect(),
            options,
            disk,
            incarnation,
            epochs,
            supply,
            counters: Counters::default(),
            pending: AtomicUsize::new(0),
            room: (Mutex::new(0), Condvar::new()),
            condition: AtomicU8::new(OPEN),
            fills: AtomicU64::new(0),
            reason: Mutex::new(String::new()),
            wakes: RwLock::new(Vec::new()),
            notes: Mutex::new(Vec::new()),
        }
    }

    /// Most bytes of groups in a frame.
    pub(super) fn frame_bytes_max(&self) -> usize {
        frame_bytes_max(&self.options)
    }

    pub(super) fn add_wake(&self, wake: Wake) {
        self.wakes
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(wake);
    }

    pub(super) fn wake_all(&self) {
        let durable = self.epochs.durable();
        for wake in self
            .wakes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            wake(durable);
        }
    }

    pub(super) fn note(&self, error: &LogError) {
        self.counters.failed_writes.fetch_add(1, Ordering::Relaxed);
        let mut notes = lock(&self.notes);
        if notes.len() < NOTES_MAX {
            notes.push(error.to_string());
        }
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }

    fn condition(&self) -> u8 {
        // Partner of the store in `set_condition`: the reason is read under its lock.
        self.condition.load(Ordering::Acquire)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.condition() == FAILED
    }

    pub(super) fn is_open(&self) -> bool {
        self.condition() == OPEN
    }

    /// While the log is full: how often it has become so.
    pub(super) fn fills(&self) -> Option<u64> {
        (self.condition() == FULL).then(|| self.fills.load(Ordering::Relaxed))
    }

    pub(super) fn state(&self) -> LogState {
        if self.is_open() {
            return LogState::Open;
        }
        let reason = self.reason().clone();
        match self.condition() {
            OPEN => LogState::Open,
            FULL => LogState::Full { reason },
            _ => LogState::Failed { reason },
        }
    }

    fn reason(&self) -> MutexGuard<'_, String> {
        lock(&self.reason)
    }

    fn set_condition(&self, mut reason: MutexGuard<'_, String>, condition: u8, why: String) {
        let before = self.condition();
        if before == FAILED || before == condition {
            return;
        }
        *reason = why;
        if condition == FULL {
            // Seen by who sees the condition, which is stored after it.
            self.fills.fetch_add(1, Ordering::Relaxed);
        }
        self.condition.store(condition, Ordering::Release);
        drop(reason);
        self.wake_waiting();
        self.wake_all();
    }

    pub(super) fn wake_waiting(&self) {
        // Under the lock: a session that has just found no space has begun to wait, or checks
        // again.
        let waiting = lock(&self.room.0);
        if *waiting > 0 {
            self.room.1.notify_all();
        }
    }

    /// A segment could not be begun, or neither of two could be written.
    pub(super) fn cannot_write(&self, log: usize, error: &LogError) -> Flush {
        if is_full(error) {
            // It has no segment now.
            self.logs[log].segment_bytes.store(0, Ordering::Relaxed);
            self.supply.set_stuck(log, Some(error.to_string()));
            self.set_condition(self.reason(), FULL, error.to_string());
            Flush::NoRoom
        } else {
            self.set_condition(self.reason(), FAILED, error.to_string());
            Flush::Failed
        }
    }

    /// A batch of a log is durable: this many bytes of groups, and perhaps an awaited epoch.
    pub(super) fn written(&self, log: usize, bytes: usize, awaited: bool) {
        let all = self.pending.fetch_sub(bytes, Ordering::Relaxed);
        let own = self.logs[log].pending.fetch_sub(bytes, Ordering::Relaxed);
        assert!(bytes <= own && bytes <= all, "written and not handed over");
        self.wake_waiting();
        if awaited {
            self.wake_all();
        }
        if !self.is_open() {
            self.supply.set_stuck(log, None);
        }
        self.update_condition(log);
    }

    /// Without a preparer: tries to make a file ahead for each log that has none.
    pub(super) fn make_ahead(&self) {
        for log in 0..self.logs.len() {
            self.supply.make_ahead(&*self.disk, log);
            self.update_condition(log);
        }
    }

    /// Full or open, from the space in the present segments and the preparer's findings.
    pub(super) fn update_condition(&self, log: usize) {
        if self.is_open() && !self.is_low(log) {
            return;
        }
        // Checked under the lock: an older observation must not replace a newer one.
        let reason = self.reason();
        let trouble = (0..self.logs.len()).find_map(|log| self.lacks_room(log));
        let condition = if trouble.is_some() { FULL } else { OPEN };
        self.set_condition(reason, condition, trouble.unwrap_or_default());
    }

    /// Why writes are refused because of this log: no file is ready, and the present segment has
    /// little space. While a file is made for the first time, there is no trouble yet.
    fn lacks_room(&self, log: usize) -> Option<String> {
        // In this order: a writer that takes the file ahead has a new segment at once.
        let trouble = self.supply.trouble(log)?;
        self.is_low(log).then_some(trouble)
    }

    /// Whether the present segment of a log has little space, or there is none.
    fn is_low(&self, log: usize) -> bool {
        let used = self.logs[log].segment_bytes.load(Ordering::Relaxed);
        // Its last block is not for groups (LW4 last-block-proof).
        let left = (self.options.segment_bytes - used).saturating_sub(BLOCK_BYTES as u64);
        used == 0 || left < self.options.segment_bytes / 4
    }

    /// Bytes of groups that a log is known to have space for, including those handed over and not
    /// yet written: in its present segment, and in a file ahead.
    fn room(&self, log: usize) -> usize {
        let used = self.logs[log].segment_bytes.load(Ordering::Relaxed);
        // The last block is not for groups (LW4 last-block-proof), and the next frame may not fit
        // before it.
        let lost = (BLOCK_BYTES + self.frame_bytes_max()) as u64;
        let takes = |used: u64| (self.options.segment_bytes - used).saturating_sub(lost) as usize;
        let present = if used == 0 { 0 } else { takes(used) };
        let ahead = self.supply.is_ahead(log);
        present + if ahead { takes(BLOCK_BYTES as u64) } else { 0 }
    }

    /// Whether too much was handed over to a log and is not yet written (LT1).
    #[inline]
    pub(super) fn is_crowded(&self, log: usize) -> bool {
        self.pending.load(Ordering::Relaxed) > self.options.pending_bytes_max
            || self.logs[log].pending.load(Ordering::Relaxed) > self.room(log) / 2
    }

    /// Bytes that a turn may hand over to a log and acknowledge before they are durable (LT1).
    pub(super) fn granted(&self, log: usize) -> usize {
        let room = self.room(log);
        let pending = self.logs[log].pending.load(Ordering::Relaxed);
        (room - room / 4).saturating_sub(pending)
    }

    /// Waits until less is pending; returns at once when nothing can be written.
    pub(super) fn wait_for_room(&self, log: usize) {
        if !self.options.threads {
            for log in &self.logs {
                lock(&log.writer).flush(self, None);
            }
            self.make_ahead();
            return;
        }
        for log in &self.logs {
            log.queue.wake();
        }
        // However little it is: nobody else may ask for it soon.
        self.logs[log].queue.try_again();
        let mut waiting = lock(&self.room.0);
        *waiting += 1;
        let crowded = |_: &mut usize| self.is_open() && self.is_crowded(log);
        let waited = self.room.1.wait_while(waiting, crowded);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// Most bytes of groups in a frame: several fit in a segment.
fn frame_bytes_max(options: &LogOptions) -> usize {
    FRAME_BYTES_MAX.min((options.segment_bytes as usize - BLOCK_BYTES) / 4)
}
