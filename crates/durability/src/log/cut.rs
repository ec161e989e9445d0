//! Up to where the log counts.
//!
//! An epoch is *whole* if each log that took part still has its closing mark and every frame that
//! the mark names. It counts if it and all epochs before it, down to the start of the checkpoint,
//! are whole: each mark names the epoch before it, so a missing one is noticed. Whatever is above
//! the newest epoch that counts was never acknowledged, unless something says that it was durable:
//! then recovery refuses.
//!
//! Invariants:
//! - **LC1 cutoff-covers-durable** The cutoff is never below an epoch that is known to have been
//!   durable.
//! - **LC2** The epochs that count form one chain. An epoch that an earlier recovery left out is
//!   not in it, although its frames may still exist, because the first epoch written after that
//!   recovery names the one that it kept.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pando_sync::{LogEpoch, Milliseconds};

use super::error::LogError;
use super::frame::Participant;
use super::scan::{LogScan, Scanned, ScannedEpoch};
use super::supply::Sealed;

/// An epoch that does not count because it is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornEpoch {
    /// The epoch.
    pub epoch: LogEpoch,
    /// Wall clock when it was closed.
    pub wall_ms: Milliseconds,
    /// Whether it is complete, and only an epoch before it is not.
    pub whole: bool,
}

/// Up to where the log counts, from the start of a checkpoint on.
#[derive(Clone, Debug)]
pub struct LogCut {
    scanned: Arc<Scanned>,
    from: LogEpoch,
    cutoff: LogEpoch,
    written: LogEpoch,
    /// The epochs that count, ascending.
    chain: Arc<Vec<LogEpoch>>,
    torn: Vec<TornEpoch>,
}

impl LogScan {
    /// Determines up to where the log counts, for a checkpoint with everything of the epochs below
    /// `from` (none: there is no checkpoint). `written` is [`super::Log::durable_written`] when the
    /// checkpoint was complete (none without a checkpoint).
    pub fn cut(&self, from: LogEpoch, written: LogEpoch) -> Result<LogCut, LogError> {
        let scanned = &*self.scanned;
        let proven = scanned.proven.max(written);
        let mut counts: BTreeMap<LogEpoch, bool> = BTreeMap::new();
        for (&epoch, known) in scanned.epochs.range(from..) {
            let previous = known.mark.previous;
            let reached = previous == LogEpoch::NONE
                || previous < from
                || counts.get(&previous) == Some(&true);
            counts.insert(
                epoch,
                reached && previous < epoch && scanned.is_whole(known),
            );
        }
        let newest = counts
            .iter()
            .rev()
            .find(|(_, counts)| **counts)
            .map(|(epoch, _)| *epoch);
        if proven >= from && newest.is_none_or(|newest| newest < proven) && proven > LogEpoch::NONE
        {
            return Err(scanned.refusal(from, newest, proven));
        }
        let mut chain = Vec::new();
        let mut next = newest;
        while let Some(epoch) = next {
            chain.push(epoch);
            next = Some(scanned.epochs[&epoch].mark.previous).filter(|&epoch| epoch >= from);
            next = next.filter(|&epoch| epoch > LogEpoch::NONE);
        }
        chain.reverse();
        // LC2.
        assert!(chain.is_sorted_by(|one, next| one < next));
        assert!(chain.iter().all(|epoch| counts[epoch]));
        let dropped = newest.map_or(from, LogEpoch::next);
        let torn = scanned
            .epochs
            .range(dropped..)
            .map(|(&epoch, known)| TornEpoch {
                epoch,
                wall_ms: known.mark.wall_ms,
                whole: scanned.is_whole(known),
            });
        let below = scanned
            .epochs
            .range(..from)
            .next_back()
            .map_or(LogEpoch::NONE, |(&epoch, _)| epoch);
        Ok(LogCut {
            from,
            cutoff: newest.unwrap_or_default().max(written),
            written: newest
                .unwrap_or_default()
                .max(written)
                .max(below.min(proven)),
            chain: Arc::new(chain),
            torn: torn.collect(),
            scanned: Arc::clone(&self.scanned),
        })
    }
}

impl LogScan {
    /// The epochs behind `after` up to `until`, which was durable before the scan, of a log that is
    /// being written; and behind which epoch they are without a hole, since older ones may no
    /// longer be there.
    pub(super) fn behind(&self, after: LogEpoch, until: LogEpoch) -> (LogCut, LogEpoch) {
        let scanned = &*self.scanned;
        let mut chain = Vec::new();
        let mut start = until;
        while start > after {
            let known = scanned.epochs.get(&start);
            let whole = known.filter(|known| scanned.is_whole(known));
            let Some(known) = whole.filter(|known| known.mark.previous < start) else {
                break;
            };
            chain.push(start);
            start = known.mark.previous;
        }
        chain.reverse();
        let cut = LogCut {
            from: chain.first().copied().unwrap_or(until),
            cutoff: until,
            written: until,
            chain: Arc::new(chain),
            torn: Vec::new(),
            scanned: Arc::clone(&self.scanned),
        };
        (cut, start.max(after))
    }
}

impl Scanned {
    fn is_whole(&self, epoch: &ScannedEpoch) -> bool {
        self.missing(epoch).is_none()
    }

    /// The first missing log and frame of an epoch.
    fn missing(&self, epoch: &ScannedEpoch) -> Option<(u32, u64)> {
        let lacks = |one: &Participant| {
            let covered = self.coverage.get(&(epoch.incarnation, one.log));
            let covered = covered.map_or(&[][..], Vec::as_slice);
            let after = covered.partition_point(|range| range.0 <= one.first);
            let range = after.checked_sub(1).map(|index| covered[index]);
            match range {
                Some((_, last)) if last >= one.last => {
                    // Its mark follows; only the mark itself could say where exactly.
                    (!epoch.marked.contains(&one.log)).then_some(one.last + 1)
                }
                Some((_, last)) if last >= one.first => Some(last + 1),
                _ => Some(one.first),
            }
        };
        let mut participants = epoch.mark.participants.iter();
        participants.find_map(|one| lacks(one).map(|sequence| (one.log, sequence)))
    }

    /// Why epochs up to `proven`, which were durable, do not count.
    fn refusal(&self, from: LogEpoch, newest: Option<LogEpoch>, proven: LogEpoch) -> LogError {
        let above = newest.map_or(from, LogEpoch::next);
        for (&epoch, known) in self.epochs.range(above..) {
            // The epochs above the proven one may be torn, or be the only remaining marks of damage
            // to a proven one.
            if epoch > proven {
                break;
            }
            if let Some((log, sequence)) = self.missing(known) {
                return self.place(known.incarnation, log, sequence, proven);
            }
        }
        // Not even a mark remains of an epoch that others name. The best guess is the first place
        // where frames of the last incarnation are missing.
        let damaged = self
            .segments
            .iter()
            .rev()
            .find(|one| !one.damage.is_empty());
        if let Some(segment) = damaged {
            return LogError::Damaged {
                path: segment.path.clone(),
                offset: segment.damage[0].offset,
                epoch: proven,
                what: "frames that were durable cannot be read",
            };
        }
        let torn = self
            .segments
            .iter()
            .rev()
            .find(|one| one.last_epoch >= above || one.frames == 0);
        if let Some(segment) = torn {
            return LogError::Damaged {
                path: segment.path.clone(),
                offset: segment.end,
                epoch: proven,
                what: "the frames that should follow were durable and cannot be read",
            };
        }
        LogError::DoesNotReachBack {
            from,
            epoch: proven,
            looked_in: self.looked_in(),
        }
    }

    /// Where a frame should be.
    fn place(&self, incarnation: u64, log: u32, sequence: u64, epoch: LogEpoch) -> LogError {
        let mut segments = self
            .segments
            .iter()
            .filter(|one| (one.incarnation, one.log) == (incarnation, log))
            .peekable();
        while let Some(segment) = segments.next() {
            if !(segment.first..segment.limit).contains(&sequence) {
                continue;
            }
            let gap = segment
                .damage
                .iter()
                .find(|gap| (gap.first..gap.next).contains(&sequence));
            if let Some(gap) = gap {
                return LogError::Damaged {
                    path: segment.path.clone(),
                    offset: gap.offset,
                    epoch,
                    what: "the frame there fails its checksum, and valid ones follow",
                };
            }
            let follows = segments
                .peek()
                .is_some_and(|next| next.ordinal > segment.ordinal + 1);
            if !follows {
                return LogError::Damaged {
                    path: segment.path.clone(),
                    offset: segment.end,
                    epoch,
                    what: "the frame that should follow there was durable and cannot be read",
                };
            }
        }
        LogError::Missing {
            log,
            incarnation,
            sequence,
            epoch,
            looked_in: self.looked_in(),
        }
    }
}

impl LogCut {
    /// The newest epoch that counts.
    pub fn cutoff(&self) -> LogEpoch {
        self.cutoff
    }

    /// The epoch from which the log is read.
    pub fn from(&self) -> LogEpoch {
        self.from
    }

    /// The epochs that count and have anything in the log, ascending.
    pub fn epochs(&self) -> &[LogEpoch] {
        &self.chain
    }

    /// The epochs that have a mark and do not count: the torn tail.
    pub fn torn(&self) -> &[TornEpoch] {
        &self.torn
    }

    pub(super) fn scanned(&self) -> &Arc<Scanned> {
        &self.scanned
    }

    pub(super) fn chain(&self) -> &Arc<Vec<LogEpoch>> {
        &self.chain
    }

    /// A planted bug: every epoch that has a mark counts.
    #[cfg(all(test, not(loom)))]
    pub(super) fn widened(&self) -> Self {
        let epochs = self.scanned.epochs.keys().copied();
        let chain: Vec<LogEpoch> = epochs.filter(|&epoch| epoch >= self.from).collect();
        Self {
            cutoff: chain.last().copied().unwrap_or(self.cutoff),
            chain: Arc::new(chain),
            ..self.clone()
        }
    }

    /// A planted bug: segments are said to begin with groups of their own.
    #[cfg(all(test, not(loom)))]
    pub(super) fn torn_apart(mut self) -> Self {
        let scanned = Arc::get_mut(&mut self.scanned).expect("the scan is gone");
        for segment in &mut scanned.segments {
            segment.stops.iter_mut().for_each(|stop| stop.whole = true);
        }
        self
    }

    /// The newest start of a server that left files here; 0: there are none.
    pub fn newest_incarnation(&self) -> u64 {
        self.scanned.newest_incarnation
    }

    /// The newest known epoch that counts and has anything in the log: the next mark names it as
    /// the one before it.
    pub(super) fn written(&self) -> LogEpoch {
        self.written
    }

    pub(super) fn newest_epoch(&self) -> LogEpoch {
        self.scanned.newest_epoch.max(self.cutoff)
    }

    pub(super) fn free_files(&self) -> &[PathBuf] {
        &self.scanned.free
    }

    /// The existing segments: complete, since nothing is written to them any more.
    pub(super) fn sealed(&self) -> Vec<Sealed> {
        let sealed = self.scanned.segments.iter().map(|segment| Sealed {
            path: segment.path.clone(),
            last_epoch: segment.last_epoch,
            bytes: segment.end,
            file_bytes: segment.bytes,
        });
        sealed.collect()
    }

    /// Refuses to continue as a database to which the files do not belong.
    pub(super) fn foreign(&self, identity: u128) -> Option<LogError> {
        let found = self.scanned.identity?;
        (found != identity).then(|| LogError::Foreign {
            path: self.scanned.segments[0].path.clone(),
            what: "it belongs to another database",
        })
    }
}
