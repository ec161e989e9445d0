//! The log: what sessions write, durable in epoch order.
//!
//! After §5 of the Masstree paper: a log per worker, written by its own logger. Departures, and
//! why: epochs, closed for all logs at one moment, replace timestamps in each log, so that a
//! command's or transaction's writes are recovered whole or not at all. An idle log takes no part
//! in an epoch, so it neither holds the others back nor needs heartbeats. A log consists of fixed
//! segments that are recycled, so its space is reused while the server runs.
//!
//! ```text
//! sessions ── LogSession::hand_over ──► queue of the log ── logger ──► blocks in the segment
//!    epoch thread ── close_epoch (under all gates) ──► a closing mark in each queue that took part
//!                                  all marks durable ──► durable() ≥ epoch ──► waiters are woken
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `session` | a session's records, groups and frames |
//! | `queue` | what was handed over to one log |
//! | `epochs` | which epochs are closed, in flight, durable |
//! | `writer` | from the queue into segments, and the handling of failures |
//! | `supply` | files made ahead, recycled segments |
//! | `reserve` | the space of a volume reserved for checkpoints |
//! | `follow` | the newest epochs in memory, for followers |
//! | `filed` | older ones, read back from the files |
//! | `state` | what these share; full, failed |
//! | `segment`, `frame` | the formats |
//! | `scan`, `cut`, `reader`, `waves` | reading: what exists, up to where it counts, its groups, for several threads |
//! | `error` | errors |
//!
//! Locks, in the order in which they are taken: a log's writer; epochs; queues by index; the
//! supply. Callbacks run under a writer's lock: of the log they may call only [`Log::durable`],
//! [`Log::want`] and [`Log::state`].
//!
//! Invariants:
//! - **LG1 closed-is-found** What was handed over before `close_epoch(E)` with an epoch up to E is
//!   found by recovery once `durable() ≥ E`, whatever unsynced data is lost.
//! - **LG2** Of an epoch that is not durable, recovery finds all or nothing.
//! - **LG3** A failed write or sync is never repeated in place, and nothing that depends on it is
//!   acknowledged.
//!
//! Deliberately absent: the meaning of records, compression, a log per database.

mod cut;
mod epochs;
mod error;
mod filed;
mod follow;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod queue;
mod reader;
mod reserve;
mod scan;
mod segment;
mod session;
mod state;
mod supply;
#[cfg(all(test, not(loom)))]
mod tests;
mod waves;
mod writer;

use pando_sync::shim::unmodelled::Ordering;
use pando_sync::{LogEpoch, Microseconds, Milliseconds, lock};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use cut::{LogCut, TornEpoch};
pub use epochs::Due;
use epochs::Epochs;
pub use error::LogError;
pub use filed::{FiledEpochs, put_group};
pub use follow::{FollowedEpoch, Next, Ring, records};
use frame::Mark;
use queue::State as QueueState;
pub use reader::{Group, LogReader};
use reserve::{Reserve, Share};
pub use scan::{Damage, LogScan, ScanOptions, ScannedSegment};
pub use segment::LOG_FORMAT;
pub use session::LogSession;
use state::Shared;
pub use state::{LogOptions, LogState, WriteTimes};
pub use supply::LogRoom;
use supply::{Supply, Task};
pub use waves::WaveSize;
use writer::Flush;

use crate::disk::{Access, AlignedBuffer, Disk};
use crate::limits::{
    BLOCK_BYTES, LOGS_MAX, QUICK_WRITE_US_MAX, ROOM_RETRY_MS, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SYNC_SAMPLES,
};

/// The log of one database.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the log has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatistics {
    /// Bytes written since the log was opened.
    pub written_bytes: u64,
    /// Writes, each with its sync.
    pub writes: u64,
    /// Their total time, in nanoseconds.
    pub write_ns: u64,
    /// Their durations.
    pub write_times: WriteTimes,
    /// Writes and files that failed and were replaced.
    pub failed_writes: u64,
    /// Bytes that recovery would read, until a checkpoint makes them obsolete.
    pub live_bytes: u64,
    /// Segments that hold them.
    pub segments: usize,
    /// Files that were made ahead or recycled.
    pub free_files: usize,
    /// Bytes of obsolete files that are held for followers.
    pub held_bytes: u64,
    /// Bytes handed over and not yet written.
    pub pending_bytes: usize,
    /// Bytes of memory for data handed over: waiting data, and buffers kept for reuse.
    pub buffer_bytes: usize,
    /// The newest closed epoch.
    pub closed: LogEpoch,
    /// The newest durable epoch.
    pub durable: LogEpoch,
}

impl Log {
    /// Opens the log for writing, after recovery. Nothing is written yet.
    ///
    /// # Panics
    /// When the options are out of bounds: the configuration has checked their values.
    pub fn open(
        options: LogOptions,
        disk: Arc<dyn Disk>,
        after: &LogCut,
    ) -> Result<Arc<Self>, LogError> {
        assert!((1..=LOGS_MAX).contains(&options.logs), "the number of logs");
        assert!(!options.directories.is_empty(), "a log lies somewhere");
        let bytes = options.segment_bytes;
        assert!(
            (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)
                && bytes.is_multiple_of(BLOCK_BYTES as u64),
            "the bytes of a segment"
        );
        if let Some(foreign) = after.foreign(options.identity) {
            return Err(foreign);
        }
        let directories = &options.directories;
        let places = (0..options.logs).map(|log| directories[log % directories.len()].clone());
        let incarnation = after.newest_incarnation() + 1;
        let reserve = Reserve::new(options.logs, bytes, options.checkpoint_bytes);
        let with_share = |place: PathBuf| {
            let share = Share::of(&*disk, options.checkpoints.as_ref(), &place);
            (place, share)
        };
        let places = places.map(with_share).collect();
        let supply = Supply::new(places, incarnation, reserve, bytes, after.sealed());
        for free in after.free_files() {
            if let Some(surplus) = supply.keep(free.clone()) {
                match disk.remove(&surplus) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(LogError::io("remove", &surplus)(error));
                    }
                    _ => {}
                }
            }
        }
        let epochs = Epochs::new(after.newest_epoch(), after.written());
        let shared = Arc::new(Shared::new(options, disk, incarnation, epochs, supply));
        let log = Arc::new(Self {
            threads: Mutex::default(),
            shared,
        });
        if log.shared.options.threads {
            log.start_threads()?;
        } else {
            log.shared.make_ahead();
        }
        Ok(log)
    }

    fn start_threads(&self) -> Result<(), LogError> {
        let mut threads = lock(&self.threads);
        let mut start = |name: String, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name).spawn(run);
            thread
                .map(|thread| threads.push(thread))
                .map_err(LogError::io("start a thread for", Path::new("the log")))
        };
        for log in 0..self.shared.logs.len() {
            let shared = Arc::clone(&self.shared);
            start(
                format!("log-{log}"),
                Box::new(move || run_logger(&shared, log)),
            )?;
        }
        let shared = Arc::clone(&self.shared);
        start(
            "log-files".to_owned(),
            Box::new(move || run_preparer(&shared)),
        )
    }

    /// A session that writes to log `index` modulo their number.
    pub fn session(&self, index: usize) -> LogSession {
        LogSession::new(Arc::clone(&self.shared), index % self.shared.logs.len())
    }

    /// Closes an epoch: what was handed over until now, with an epoch up to this one, becomes
    /// durable together. The caller holds all gates. Wakes the loggers.
    ///
    /// # Panics
    /// When the epoch is already closed.
    pub fn close_epoch(&self, epoch: LogEpoch, wall_ms: Milliseconds) {
        drop(self.seal(epoch, wall_ms));
    }

    /// Like [`Self::close_epoch`], but lets the caller write: [`SealedEpoch::flush`], after the
    /// gates are released, saves waking a logger and waiting for it.
    #[must_use = "the epoch is written when this is flushed, or by the loggers when it is dropped"]
    pub fn seal(&self, epoch: LogEpoch, wall_ms: Milliseconds) -> SealedEpoch<'_> {
        let shared = &*self.shared;
        let mut epochs = shared.epochs.lock();
        assert!(epoch > epochs.closed, "epoch {epoch} is closed already");
        let mut queues: Vec<MutexGuard<'_, QueueState>> =
            shared.logs.iter().map(|log| log.queue.lock()).collect();
        let indexed = queues.iter_mut().enumerate();
        let participants: Vec<_> = indexed
            .filter_map(|(log, queue)| queue.close(epoch, log as u32))
            .collect();
        let logs: Vec<usize> = participants.iter().map(|one| one.log as usize).collect();
        if !participants.is_empty() {
            let mark = Mark {
                wall_ms,
                previous: epochs.written,
                durable: epochs.durable_written,
                participants,
            };
            epochs.told = mark.durable;
            let bytes = mark.encode();
            for &log in &logs {
                queues[log].push_mark(epoch, bytes.clone());
            }
        }
        drop(queues);
        let awaited = shared.epochs.close(&mut epochs, epoch, logs.len());
        drop(epochs);
        if awaited {
            shared.wake_all();
        }
        SealedEpoch {
            log: self,
            epoch,
            participants: logs,
        }
    }

    /// Whether a write could begin now, and writes have lately been so fast that a thread which
    /// waits for an epoch should close and write it itself ([`Self::seal`]): the disk takes less
    /// time than waking another thread and being woken by it.
    pub fn is_quick(&self) -> bool {
        let shared = &*self.shared;
        shared.options.threads
            && shared.counters.recent_ns.load(Ordering::Relaxed) <= QUICK_WRITE_US_MAX * 1000
            && shared.is_open()
            && shared.epochs.lock().is_idle()
    }

    /// The recent duration of a write with its sync, in nanoseconds: an average of about a hundred;
    /// 0 before the first.
    pub fn write_ns(&self) -> u64 {
        self.shared.counters.settled_ns.load(Ordering::Relaxed)
    }

    /// The newest epoch that is durable, with all before it.
    pub fn durable(&self) -> LogEpoch {
        self.shared.epochs.durable()
    }

    /// The newest durable epoch that has anything in the log; at first the newest such epoch that
    /// recovery found. A checkpoint records it for [`LogScan::cut`], once the checkpoint's last
    /// epoch is durable. An epoch without anything in the log would not do, since recovery could
    /// not tell it from a lost one.
    pub fn durable_written(&self) -> LogEpoch {
        self.shared.epochs.lock().durable_written
    }

    /// Whether something was handed over since the last epoch was closed.
    pub fn has_open_writes(&self) -> bool {
        self.shared
            .logs
            .iter()
            .any(|log| log.queue.lock().has_open())
    }

    /// Whether something that could have been acknowledged more than [`crate::limits::LATE`]
    /// before `now` is not durable yet, by the clock of [`LogSession::note_write`]. If so,
    /// nothing else may be acknowledged before it is durable itself.
    #[inline]
    pub fn is_late(&self, now: Microseconds) -> bool {
        self.shared.epochs.are_late(now)
    }

    /// When the oldest write came that is not durable yet, by the same clock.
    pub fn oldest_write(&self) -> Option<Microseconds> {
        self.shared.epochs.oldest()
    }

    /// Registers a wish for an epoch: it is closed and written as soon as nothing else is in
    /// flight. `true`: it is already durable, and nobody will be woken.
    pub fn want(&self, epoch: LogEpoch) -> bool {
        self.shared.epochs.want(epoch)
    }

    /// Where the epoch thread sleeps, until somebody waits for the open epoch and nothing is in
    /// flight, or `limit` has passed, or the log was closed.
    pub fn wait_until_due(&self, limit: Duration) -> Due {
        self.shared.epochs.wait_until_due(limit)
    }

    /// Calls `wake` with the durable epoch whenever a wanted epoch becomes durable, and when
    /// [`Self::state`] changes; from another thread, shortly afterwards.
    pub fn on_durable(&self, wake: Box<dyn Fn(LogEpoch) + Send + Sync>) {
        self.shared.add_wake(wake);
    }

    /// Whether the log can be written.
    pub fn state(&self) -> LogState {
        self.shared.state()
    }

    /// Which start of a server on these files this one is.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Whether the log can be written: one load.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// Which time it is that the log is full, while it is: the count goes up whenever it becomes
    /// full.
    pub fn times_full(&self) -> Option<u64> {
        self.shared.fills()
    }

    /// Whether anything was handed over that belongs to `epoch` or a later one. The caller holds
    /// all gates.
    pub fn has_writes_since(&self, epoch: LogEpoch) -> bool {
        self.newest_written() >= epoch || self.has_open_writes()
    }

    /// The newest closed epoch that has anything in a log, durable or not.
    pub fn newest_written(&self) -> LogEpoch {
        self.shared.epochs.lock().written
    }

    /// Whether data handed over is still written while the log is full: every log has a segment,
    /// whose last quarter takes no new writes.
    pub fn has_reserve(&self) -> bool {
        let used = |log: &state::OneLog| log.segment_bytes.load(Ordering::Relaxed);
        self.shared.logs.iter().all(|log| used(log) > 0)
    }

    /// To be called when nothing has been written for a while. Records that the last epoch is
    /// durable, unless that was done, so that recovery can tell damage to it from a torn tail. Also
    /// notices when one of its files is gone. Writes one block in each log that has a segment.
    /// Frees the buffers kept for sessions.
    pub fn rest(&self) {
        let shared = &*self.shared;
        let mut epochs = shared.epochs.lock();
        let durable = epochs.durable_written;
        if !shared.is_open() || !epochs.is_idle() || epochs.told >= durable {
            return;
        }
        epochs.told = durable;
        for log in &shared.logs {
            if log.segment_bytes.load(Ordering::Relaxed) > 0 {
                log.queue.lock().push_proof(durable);
                log.queue.wake();
            }
        }
        drop(epochs);
        for log in &shared.logs {
            log.queue.release();
        }
        if !shared.options.threads {
            for log in &shared.logs {
                lock(&log.writer).flush(shared, None);
            }
        }
    }

    /// Frees the segments that hold only epochs below `epoch`, after a complete checkpoint that
    /// begins there. Returns how many.
    pub fn recycle_below(&self, epoch: LogEpoch) -> Result<usize, LogError> {
        let recycled = self.shared.supply.recycle_below(&*self.shared.disk, epoch);
        if !self.shared.options.threads {
            self.shared.make_ahead();
        }
        recycled
    }

    /// How many bytes of obsolete segments are kept for followers ([`Self::epochs_behind`]), from
    /// the next call of [`Self::recycle_below`] on. They go before the log finds no space.
    pub fn set_hold(&self, bytes: u64) {
        self.shared.supply.set_hold(bytes);
    }

    /// The space of the volume on which the log has least left, where the disk can tell.
    pub fn room(&self) -> Option<LogRoom> {
        let used = |log: usize| self.shared.logs[log].segment_bytes.load(Ordering::Relaxed) > 0;
        self.shared.supply.room(&*self.shared.disk, used)
    }

    /// Whether a part of the log is on a volume with parts of checkpoints.
    pub fn shares_volume(&self) -> bool {
        self.shared.supply.shares()
    }

    /// Bytes written to the log since it was opened: for [`Self::expect_checkpoint`].
    pub fn written_bytes(&self) -> u64 {
        self.shared.supply.reserve.written()
    }

    /// Reports a checkpoint of this many bytes that began when `written` bytes were in the log. The
    /// next one will take about as much, plus what was logged since (LR1 checkpoint-room).
    pub fn expect_checkpoint(&self, bytes: u64, written: u64) {
        self.shared.supply.reserve.expect(bytes, written);
    }

    /// Reports that the checkpoint in progress has this many bytes on disk, which no longer need to
    /// be kept free; 0: none is in progress.
    pub fn spend_on_checkpoint(&self, bytes: u64) {
        self.shared.supply.reserve.spend(bytes);
    }

    /// Removes free files while less is free than a checkpoint needs (LR1 checkpoint-room).
    pub fn give_back(&self) -> Result<(), LogError> {
        self.shared.supply.give_back(&*self.shared.disk)
    }

    /// Whether records of removals may be handed over although the log is full: they are short, and
    /// shrink the checkpoint that would free space.
    pub fn takes_removals(&self) -> bool {
        let shared = &*self.shared;
        let pending = shared.pending.load(Ordering::Relaxed);
        !shared.has_failed() && pending <= shared.options.pending_bytes_max / 2
    }

    /// What the log has done and holds.
    pub fn statistics(&self) -> LogStatistics {
        let shared = &*self.shared;
        let used = |log: &state::OneLog| log.segment_bytes.load(Ordering::Relaxed);
        let (sealed_bytes, sealed, free_files, held_bytes) = shared.supply.counts();
        let counters = &shared.counters;
        LogStatistics {
            written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            write_ns: counters.write_ns.load(Ordering::Relaxed),
            write_times: counters.times(),
            failed_writes: counters.failed_writes.load(Ordering::Relaxed),
            live_bytes: sealed_bytes + shared.logs.iter().map(used).sum::<u64>(),
            segments: sealed + shared.logs.iter().filter(|log| used(log) > 0).count(),
            free_files,
            held_bytes,
            pending_bytes: shared.pending.load(Ordering::Relaxed),
            buffer_bytes: shared.logs.iter().map(|log| log.queue.buffer_bytes()).sum(),
            closed: shared.epochs.lock().closed,
            durable: self.durable(),
        }
    }

    /// Failures survived since the last call, for the server's log.
    pub fn take_notes(&self) -> Vec<String> {
        self.shared.take_notes()
    }

    /// Ends the log: writes everything of the closed epochs, leaves a proof that it is durable,
    /// stops the threads. The caller has closed the last epoch.
    pub fn close(&self) -> Result<(), LogError> {
        let result = self.write_rest();
        self.stop();
        result
    }

    fn write_rest(&self) -> Result<(), LogError> {
        let shared = &*self.shared;
        for proof in [false, true] {
            for log in &shared.logs {
                if proof && log.segment_bytes.load(Ordering::Relaxed) > 0 {
                    let durable = shared.epochs.lock().durable_written;
                    log.queue.lock().push_proof(durable);
                }
                let flushed = lock(&log.writer).flush(shared, None);
                if flushed != Flush::Done {
                    return Err(match shared.state() {
                        LogState::Full { reason } => LogError::Full(reason),
                        LogState::Failed { reason } => LogError::Failed(reason),
                        LogState::Open => LogError::Full("there was no room".to_owned()),
                    });
                }
            }
        }
        Ok(())
    }

    fn stop(&self) {
        self.shared.epochs.stop();
        self.shared.supply.stop();
        for log in &self.shared.logs {
            log.queue.stop();
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            thread.join().expect("threads of the log do not panic");
        }
    }
}

impl Drop for Log {
    /// Stops the threads. Unwritten data is lost, as after a crash: see [`Log::close`].
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_logger(shared: &Shared, log: usize) {
    let one = &shared.logs[log];
    while one.queue.wait() {
        let flushed = lock(&one.writer).flush(shared, None);
        match flushed {
            Flush::Done => {}
            Flush::NoRoom => {
                one.queue.pause(Duration::from_millis(ROOM_RETRY_MS));
                one.queue.try_again();
            }
            Flush::Failed => return,
        }
    }
}

fn run_preparer(shared: &Shared) {
    loop {
        match shared.supply.task() {
            Task::Make(log) => {
                shared.supply.make_ahead(&*shared.disk, log);
                shared.update_condition(log);
                shared.wake_waiting();
            }
            Task::Rest => {
                if !shared.supply.rest(Duration::from_millis(ROOM_RETRY_MS)) {
                    return;
                }
            }
        }
    }
}

/// An epoch that was closed and is not written yet.
#[derive(Debug)]
pub struct SealedEpoch<'a> {
    log: &'a Log,
    epoch: LogEpoch,
    participants: Vec<usize>,
}

impl SealedEpoch<'_> {
    /// Writes the epoch's part in the first of its logs on this thread, while loggers write the
    /// others. On return the first is written; ask [`Log::durable`] for the epoch.
    pub fn flush(mut self) {
        let shared = &*self.log.shared;
        let participants = std::mem::take(&mut self.participants);
        if !shared.options.threads {
            // All of them: one that found no space before may find some now.
            for log in &shared.logs {
                lock(&log.writer).flush(shared, None);
            }
            shared.make_ahead();
            return;
        }
        let Some((&first, others)) = participants.split_first() else {
            return;
        };
        for &log in others {
            shared.logs[log].queue.wake();
        }
        let one = &shared.logs[first];
        // The holder of the writer finds the mark in the queue before releasing it, or its logger
        // does when it checks again: once woken, it waits for the lock.
        match one.writer.try_lock() {
            Ok(mut writer) => {
                let flushed = writer.flush(shared, Some(self.epoch));
                drop(writer);
                if flushed != Flush::Done {
                    // What was taken is in the writer, no longer in the queue.
                    one.queue.try_again();
                } else if one.queue.is_urgent() {
                    one.queue.wake();
                }
            }
            Err(_) => one.queue.wake(),
        }
    }
}

impl Drop for SealedEpoch<'_> {
    fn drop(&mut self) {
        if self.log.shared.options.threads {
            for log in self.participants.drain(..) {
                self.log.shared.logs[log].queue.wake();
            }
        } else if !self.participants.is_empty() {
            let participants = std::mem::take(&mut self.participants);
            let log = self.log;
            SealedEpoch {
                log,
                epoch: self.epoch,
                participants,
            }
            .flush();
        }
    }
}

/// The cost of one durable write of a block in a directory: the median of several. To be called
/// before the log is opened, which begins to fill files.
pub fn measure_sync(disk: &dyn Disk, directory: &Path) -> Result<Duration, LogError> {
    let path: PathBuf = directory.join("sync-cost.pando");
    match disk.remove(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(LogError::io("remove", &path)(error));
        }
        _ => {}
    }
    let measured = measure_in(disk, &path);
    let removed = disk.remove(&path).map_err(LogError::io("remove", &path));
    measured.and_then(|median| removed.map(|()| median))
}

fn measure_in(disk: &dyn Disk, path: &Path) -> Result<Duration, LogError> {
    let bytes = SYNC_SAMPLES * BLOCK_BYTES;
    let mut zeros = AlignedBuffer::new(bytes);
    zeros.pad_to_capacity();
    let file = disk
        .create(path, Access::WriteThrough)
        .map_err(LogError::io("create", path))?;
    let write = |block: &[u8], at| {
        file.write_all_at(block, at)
            .map_err(LogError::io("write", path))?;
        if file.writes_through() {
            Ok(())
        } else {
            file.sync().map_err(LogError::io("sync", path))
        }
    };
    write(zeros.as_slice(), 0)?;
    file.sync().map_err(LogError::io("sync", path))?;
    let mut samples = Vec::with_capacity(SYNC_SAMPLES);
    for sample in 0..SYNC_SAMPLES {
        let began = Instant::now();
        write(
            &zeros.as_slice()[..BLOCK_BYTES],
            (sample * BLOCK_BYTES) as u64,
        )?;
        samples.push(began.elapsed());
    }
    samples.sort_unstable();
    Ok(samples[SYNC_SAMPLES / 2])
}
