//! Epochs read back from the files of a log that is being written, for a follower that is behind
//! the ring.
//!
//! What is durable is not written again, so it can be read while the log goes on. A checkpoint may
//! recycle a segment meanwhile. Then the follower is told that the epochs are gone, as it is when
//! the ring has dropped them.
//!
//! Invariants:
//! - **LA1 chained-to-after** The epochs are those that have anything, without a hole, from the
//!   first one behind the follower's on. Each names the one before it.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use pando_sync::{LogEpoch, Milliseconds};

use super::Log;
use super::error::LogError;
use super::follow::FollowedEpoch;
use super::frame::{Part, group_header};
use super::reader::LogReader;
use super::scan::{LogScan, ScanOptions};
use super::segment::directory_of;
use crate::limits::FRAME_BYTES_MAX;

/// The epochs of a log behind a follower's, up to the newest that was durable when it asked.
#[derive(Debug)]
pub struct FiledEpochs {
    logs: Vec<OneLog>,
    /// What is still to be read, newest first, with the wall clock of its closing.
    chain: Vec<(LogEpoch, Milliseconds)>,
    start: LogEpoch,
    /// Bytes of groups that were read; about how many there are.
    read: u64,
    bytes: u64,
}

#[derive(Debug)]
struct OneLog {
    reader: LogReader,
    /// The group that was read last, if its epoch is still to come.
    ahead: Option<(LogEpoch, Vec<u8>)>,
}

impl Log {
    /// The durable epochs behind `after` that have anything, read from files, as far as these reach
    /// back ([`FiledEpochs::start`]). Reads every segment once, to find out what there is.
    pub fn epochs_behind(&self, after: LogEpoch) -> Result<FiledEpochs, LogError> {
        let until = self.durable_written();
        if after >= until {
            return Ok(FiledEpochs::none(until));
        }
        let shared = &*self.shared;
        let mut directories: BTreeSet<_> = shared.options.directories.iter().cloned().collect();
        let former = shared.supply.former();
        directories.extend(former.iter().map(|path| directory_of(path).to_owned()));
        let directories: Vec<_> = directories.into_iter().collect();
        let options = ScanOptions {
            threads: 1,
            sync: false,
        };
        let scan = match LogScan::read(&shared.disk, &directories, options) {
            Ok(scan) => scan,
            Err(error) if is_gone(&error) => return Ok(FiledEpochs::none(until)),
            Err(error) => return Err(error),
        };
        let (cut, start) = scan.behind(after, until);
        let closed = |epoch: &LogEpoch| (*epoch, scan.scanned.epochs[epoch].mark.wall_ms);
        let logs = cut.logs().into_iter();
        Ok(FiledEpochs {
            bytes: cut.bytes(),
            chain: cut.epochs().iter().rev().map(closed).collect(),
            logs: logs
                .map(|reader| OneLog {
                    reader,
                    ahead: None,
                })
                .collect(),
            start,
            read: 0,
        })
    }
}

/// Whether an error says that a segment was recycled meanwhile.
fn is_gone(error: &LogError) -> bool {
    matches!(error, LogError::Io { error, .. } if error.kind() == ErrorKind::NotFound)
}

impl FiledEpochs {
    fn none(start: LogEpoch) -> Self {
        Self {
            logs: Vec::new(),
            chain: Vec::new(),
            start,
            read: 0,
            bytes: 0,
        }
    }

    /// Behind which epoch the next one is (LA1): the follower's, if the files reach back to it.
    #[must_use]
    pub fn start(&self) -> LogEpoch {
        self.start
    }

    /// Whether there are no more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// About how many bytes of groups are still to come.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.bytes.saturating_sub(self.read)
    }

    /// The next epoch (LA1); `None`: there are no more. Its offset is 0. An error says that the
    /// rest can no longer be read.
    pub fn next_epoch(&mut self) -> Result<Option<FollowedEpoch>, LogError> {
        let Some((epoch, wall_ms)) = self.chain.pop() else {
            return Ok(None);
        };
        let mut groups = Vec::new();
        for log in &mut self.logs {
            log.take(epoch, &mut groups)?;
        }
        self.read += groups.len() as u64;
        let previous = std::mem::replace(&mut self.start, epoch);
        Ok(Some(FollowedEpoch {
            epoch,
            previous,
            wall_ms,
            offset: 0,
            groups,
        }))
    }
}

impl OneLog {
    /// Appends the groups of epochs up to `epoch`, each behind its header.
    fn take(&mut self, epoch: LogEpoch, groups: &mut Vec<u8>) -> Result<(), LogError> {
        if let Some((of, group)) = self.ahead.take() {
            if of > epoch {
                self.ahead = Some((of, group));
                return Ok(());
            }
            put_group(groups, &group);
        }
        while let Some(group) = self.reader.next_group()? {
            if group.epoch > epoch {
                self.ahead = Some((group.epoch, group.records.to_vec()));
                break;
            }
            put_group(groups, group.records);
        }
        Ok(())
    }
}

/// Appends a group as a session hands it over.
pub fn put_group(out: &mut Vec<u8>, records: &[u8]) {
    let mut parts = records.chunks(FRAME_BYTES_MAX).peekable();
    let mut first = true;
    while let Some(bytes) = parts.next() {
        let part = match (first, parts.peek().is_none()) {
            (true, true) => Part::Whole,
            (true, false) => Part::First,
            (false, false) => Part::Middle,
            (false, true) => Part::Last,
        };
        first = false;
        out.extend_from_slice(&group_header(bytes.len(), part));
        out.extend_from_slice(bytes);
    }
}
