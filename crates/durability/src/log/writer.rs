//! Writing one log: frames from the queue into blocks, blocks into the segment, one segment after
//! the other, and the handling of failures.
//!
//! | field | writer | under |
//! |---|---|---|
//! | all of [`Writer`] | the flushing thread: the logger's, or the one that closes an epoch | the lock around it |
//!
//! ```text
//! batch: empty ── take ──► taken ── written, synced ──► empty (marks count, buffers are reused)
//!                            │  ▲
//!           write fails once │  │ the same frames, into a fresh segment
//!                            ▼  │
//!                   no segment ─┴─ no room ──► taken, tried again later ([`Flush::NoRoom`])
//!                            └──── fails again ──► the log has failed ([`Flush::Failed`])
//! ```
//!
//! Invariants:
//! - **LW1** A frame counts as written only when the write that holds all of it, and the sync if
//!   the file is not written through, returned without an error; until then it stays in the batch.
//! - **LW2** After a failed write or sync nothing is ever written to that segment again, and
//!   nothing in it that was not synced before counts. The batch goes to a fresh segment, whose
//!   first sequence says from where on it replaces the old one (LS3 stale-frames).
//! - **LW3** A written block is never written again: a batch begins at the start of a block and is
//!   padded with zeros to the end of one.
//! - **LW4 last-block-proof** The last block of a segment is for a proof that an epoch is durable
//!   whose mark is in the next segment, so that recovery notices when that one is entirely gone. It
//!   is written once, when there is such an epoch; until then the segment is not recycled.

use pando_sync::shim::unmodelled::Ordering;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Instant;

use pando_io::descriptors;
use pando_io::file::AlignedBuffer;
use pando_sync::LogEpoch;

use super::error::LogError;
use super::frame::{self, FrameKind};
use super::queue::Entry;
use super::segment::{self, Header};
use super::state::{OneLog, Shared};
use super::supply::Sealed;
use crate::disk::DiskFile;
use crate::limits::{BLOCK_BYTES, WRITE_BYTES_MAX};

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    salt: u64,
    /// The sequence of its first frame.
    first: u64,
    at: u64,
    last_epoch: LogEpoch,
    /// The epoch of its first written mark, if any.
    first_mark: LogEpoch,
}

impl Segment {
    /// Writes blocks after what was written, durable when it returns without an error.
    fn write(&self, blocks: &[u8]) -> Result<(), LogError> {
        self.file
            .write_all_at(blocks, self.at)
            .map_err(LogError::io("write", &self.path))?;
        if self.file.writes_through() {
            return Ok(());
        }
        self.file.sync().map_err(LogError::io("sync", &self.path))
    }

    /// Nothing will be written to it any more.
    fn seal(self, shared: &Shared) {
        shared.supply.seal(Sealed {
            path: self.path,
            last_epoch: self.last_epoch,
            bytes: self.at,
            file_bytes: shared.options.segment_bytes,
        });
    }
}

/// The outcome of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// What was requested is durable.
    Done,
    /// There is no space for a segment; unwritten data is kept.
    NoRoom,
    /// The log has failed.
    Failed,
}

/// The writer of one log.
#[derive(Debug)]
pub(super) struct Writer {
    log: usize,
    segment: Option<Segment>,
    /// The previous, full segment, until it has recorded that its successor has something (LW4).
    previous: Option<Segment>,
    next_ordinal: u64,
    buffer: AlignedBuffer,
    batch: Vec<Entry>,
}

impl Writer {
    pub(super) fn new(log: usize, segment_bytes: u64) -> Self {
        let most = WRITE_BYTES_MAX.min(segment_bytes as usize - 2 * BLOCK_BYTES);
        Self {
            log,
            segment: None,
            previous: None,
            next_ordinal: 0,
            buffer: AlignedBuffer::new(most),
            batch: Vec::new(),
        }
    }

    /// Writes what was handed over: all of it, or up to the mark of the epoch `until`.
    pub(super) fn flush(&mut self, shared: &Shared, until: Option<LogEpoch>) -> Flush {
        if shared.has_failed() {
            return Flush::Failed;
        }
        loop {
            if self.batch.is_empty() {
                self.take(shared, until);
            }
            let Some(last) = self.batch.last() else {
                return Flush::Done;
            };
            let reached = last.body.kind() != FrameKind::Groups
                && until.is_some_and(|epoch| epoch <= last.epoch);
            match self.write(shared) {
                Ok(()) => {}
                Err(error) => return shared.cannot_write(self.log, &error),
            }
            if reached {
                return Flush::Done;
            }
        }
    }

    fn this<'a>(&self, shared: &'a Shared) -> &'a OneLog {
        &shared.logs[self.log]
    }

    /// Bytes that the present segment still takes, without its last block (LW4).
    fn room(&self, shared: &Shared) -> usize {
        let left = |segment: &Segment| (shared.options.segment_bytes - segment.at) as usize;
        let left = self.segment.as_ref().map_or(0, left);
        left.saturating_sub(BLOCK_BYTES)
    }

    /// Takes the next batch; gives up a segment that is too full for its first frame.
    fn take(&mut self, shared: &Shared, until: Option<LogEpoch>) {
        let queue = &self.this(shared).queue;
        let Some(first) = queue.next_bytes() else {
            return;
        };
        let most = self.buffer.room() + self.buffer.len();
        if first > self.room(shared) {
            self.seal_previous(shared);
            self.previous = self.segment.take();
            queue.take(most, until, &mut self.batch);
        } else {
            queue.take(most.min(self.room(shared)), until, &mut self.batch);
        }
    }

    /// Nothing more will be written to the present segment or the previous one.
    fn seal(&mut self, shared: &Shared) {
        self.seal_previous(shared);
        if let Some(segment) = self.segment.take() {
            segment.seal(shared);
        }
    }

    fn seal_previous(&mut self, shared: &Shared) {
        if let Some(previous) = self.previous.take() {
            previous.seal(shared);
        }
    }

    /// Records in the previous segment that something in the present one is durable, if it is
    /// (LW4). A failure is noted: nobody waits for it.
    fn vouch(&mut self, shared: &Shared) {
        let (Some(segment), Some(_)) = (&self.segment, &self.previous) else {
            return;
        };
        let durable = shared.epochs.lock().durable_written;
        if segment.first_mark == LogEpoch::NONE || durable < segment.first_mark {
            return;
        }
        let first = segment.first;
        if let Some(mut previous) = self.previous.take() {
            self.buffer.clear();
            let what = (FrameKind::Proof, first, durable);
            let payload = durable.0.to_le_bytes();
            frame::encode(&mut self.buffer, previous.salt, what, (&payload, &[]));
            self.buffer.pad(BLOCK_BYTES);
            // LW4.
            assert!(
                self.buffer.len() == BLOCK_BYTES
                    && previous.at + BLOCK_BYTES as u64 <= shared.options.segment_bytes
            );
            match previous.write(self.buffer.as_slice()) {
                Ok(()) => previous.at += BLOCK_BYTES as u64,
                Err(error) => shared.note(&error),
            }
            previous.seal(shared);
        }
    }

    fn write(&mut self, shared: &Shared) -> Result<(), LogError> {
        // A file made ahead may be bad, too; the second attempt makes its own. More attempts would
        // only delay the report.
        if self.segment.is_none()
            && let Err(error) = self.begin_segment(shared)
        {
            // A checkpoint may free the previous one.
            self.seal_previous(shared);
            if is_full(&error) {
                return Err(error);
            }
            shared.note(&error);
            self.begin_segment(shared)?;
        }
        match self.write_batch(shared) {
            Ok(()) => {}
            Err(error) => {
                shared.note(&error);
                // What it holds beyond the last sync may be as new as the batch.
                let newest = self.batch.iter().map(|entry| entry.epoch).max();
                if let Some(segment) = &mut self.segment {
                    segment.last_epoch = segment.last_epoch.max(newest.unwrap_or_default());
                }
                self.seal(shared);
                self.begin_segment(shared)?;
                if let Err(error) = self.write_batch(shared) {
                    self.seal(shared);
                    return Err(error);
                }
            }
        }
        self.count(shared);
        Ok(())
    }

    fn begin_segment(&mut self, shared: &Shared) -> Result<(), LogError> {
        let header = Header {
            identity: shared.options.identity,
            log: self.log as u32,
            incarnation: shared.incarnation,
            ordinal: self.next_ordinal,
            first: self.batch[0].sequence,
            salt: fastrand::u64(..),
            bytes: shared.options.segment_bytes,
            durable: shared.epochs.lock().durable_written,
        };
        let used = &self.this(shared).segment_bytes;
        let free = shared.supply.take(&*shared.disk, self.log, used)?;
        // Even if it fails half-way, no other file may get this name.
        self.next_ordinal += 1;
        let free_path = free.path.clone();
        let begun = segment::begin(&*shared.disk, free, &header);
        if begun.as_ref().is_err_and(is_full)
            && let Some(surplus) = shared.supply.keep(free_path)
        {
            // The next attempt uses it; otherwise it would make another one each time. What cannot
            // be removed is found at the next start.
            let _ = shared.disk.remove(&surplus);
        }
        let (path, file) = begun?;
        self.segment = Some(Segment {
            path,
            file,
            salt: header.salt,
            first: header.first,
            at: BLOCK_BYTES as u64,
            last_epoch: LogEpoch::NONE,
            first_mark: LogEpoch::NONE,
        });
        Ok(())
    }

    fn write_batch(&mut self, shared: &Shared) -> Result<(), LogError> {
        let segment = self.segment.as_mut().expect("a segment was begun");
        // LW3: no block is written again.
        assert!(segment.at.is_multiple_of(BLOCK_BYTES as u64));
        self.buffer.clear();
        for entry in &self.batch {
            let what = (entry.body.kind(), entry.sequence, entry.epoch);
            frame::encode(&mut self.buffer, segment.salt, what, entry.body.payload());
        }
        self.buffer.pad(BLOCK_BYTES);
        let began = Instant::now();
        let bytes = self.buffer.as_slice();
        // LW4: the last block is left.
        let end = segment.at + (bytes.len() + BLOCK_BYTES) as u64;
        assert!(end <= shared.options.segment_bytes);
        segment.write(bytes)?;
        let newest = self.batch.iter().map(|entry| entry.epoch).max();
        segment.last_epoch = segment.last_epoch.max(newest.unwrap_or_default());
        segment.at += bytes.len() as u64;
        shared.counters.wrote(bytes.len(), began.elapsed());
        shared.supply.reserve.wrote(bytes.len() as u64);
        self.this(shared)
            .segment_bytes
            .store(self.used(), Ordering::Relaxed);
        Ok(())
    }

    fn used(&self) -> u64 {
        self.segment.as_ref().map_or(0, |segment| segment.at)
    }

    /// The batch is durable.
    fn count(&mut self, shared: &Shared) {
        assert!(!self.batch.is_empty(), "a batch counts once");
        let mut bytes = 0;
        let mut awaited = false;
        for entry in &self.batch {
            match entry.body.kind() {
                FrameKind::Groups => bytes += entry.body.bytes(),
                FrameKind::Mark => {
                    if let Some(segment) = &mut self.segment
                        && segment.first_mark == LogEpoch::NONE
                    {
                        segment.first_mark = entry.epoch;
                    }
                    awaited |= shared.epochs.marked(entry.epoch);
                }
                FrameKind::Proof => {}
            }
        }
        self.this(shared).queue.give_back(self.batch.drain(..));
        shared.written(self.log, bytes, awaited);
        self.vouch(shared);
    }
}

/// Whether there was no space on the disk, or no descriptor for one more file, which may become
/// free.
pub(super) fn is_full(error: &LogError) -> bool {
    let full = [
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::FileTooLarge,
        ErrorKind::OutOfMemory,
    ];
    matches!(error, LogError::Io { error, .. }
        if full.contains(&error.kind()) || descriptors::have_run_out(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that take every descriptor do not end the log; a failing disk does.
    #[test]
    fn what_may_come_back_is_told_apart_from_what_is_broken() {
        let (no_memory, machine_files, process_files, disk) = (12, 23, 24, 5);
        let full = |number| {
            let error = std::io::Error::from_raw_os_error(number);
            is_full(&LogError::io("begin", std::path::Path::new("log"))(error))
        };
        assert!(
            [no_memory, machine_files, process_files]
                .into_iter()
                .all(full)
        );
        assert!(!full(disk));
    }
}
