//! The log in waves: ranges of epochs, each as pieces that threads may read concurrently.
//!
//! Recovery restores a wave before it begins the next one. So the records of a key are sorted
//! within a wave only, memory is bounded by a wave, and still no thread reads for all others.
//!
//! Invariants:
//! - **LV1 waves-in-order** Waves come in epoch order: no group of a wave belongs to an older epoch
//!   than a group of the wave before. Their pieces contain each group that counts exactly once.
//! - **LV2 group-in-one-piece** A group is in one piece, even if it continues in the next segment.

use std::ops::RangeInclusive;
use std::sync::Arc;

use pando_sync::LogEpoch;

use super::cut::LogCut;
use super::reader::{LogReader, Stretch};

/// How much a wave and its pieces hold, in bytes of the log. Either may have to hold more: a wave
/// is not split within an epoch, a piece not within a group.
#[derive(Clone, Copy, Debug)]
pub struct WaveSize {
    /// Of a wave.
    pub wave_bytes: u64,
    /// Of a piece.
    pub piece_bytes: u64,
}

/// The stretches of each log of each incarnation, in order.
type Logs = Vec<Vec<Stretch>>;

impl LogCut {
    /// The log in waves (LV1, LV2). O(log bytes / 64 KiB) before the first one; the readers notice
    /// a file that cannot be read.
    pub fn waves(&self, size: WaveSize) -> impl Iterator<Item = Vec<LogReader>> {
        let logs = self.stretches();
        let mut passed = vec![0; logs.len()];
        self.ranges(&logs, size.wave_bytes)
            .into_iter()
            .map(move |epochs| {
                let mut pieces = Vec::new();
                for (log, passed) in logs.iter().zip(&mut passed) {
                    while log
                        .get(*passed)
                        .is_some_and(|one| one.last_epoch < *epochs.start())
                    {
                        *passed += 1;
                    }
                    let log = log[*passed..].iter();
                    let log = log.take_while(|one| one.first_epoch <= *epochs.end());
                    self.cut_pieces(log, &epochs, size.piece_bytes, &mut pieces);
                }
                pieces
            })
    }

    /// The logs of all incarnations, each with its groups from `from` up to the cutoff. A key's
    /// records may be in several; its versions give their order.
    pub fn logs(&self) -> Vec<LogReader> {
        let mut readers = Vec::new();
        for log in self.stretches() {
            let epochs = self.from()..=self.cutoff();
            self.cut_pieces(log.iter(), &epochs, u64::MAX, &mut readers);
        }
        readers
    }

    /// Total bytes that [`Self::logs`] read.
    pub fn bytes(&self) -> u64 {
        self.stretches().iter().flatten().map(Stretch::bytes).sum()
    }

    fn stretches(&self) -> Logs {
        let mut logs = Logs::new();
        let mut last = None;
        for (index, segment) in self.scanned().segments.iter().enumerate() {
            if segment.last_epoch < self.from() || self.epochs().is_empty() {
                continue;
            }
            let log = Some((segment.incarnation, segment.log));
            if last != log {
                last = log;
                logs.push(Vec::new());
            }
            let stretches = logs.last_mut().expect("there is one now");
            stretches.extend(Stretch::all(index, segment));
        }
        logs
    }

    /// The epochs of the waves.
    fn ranges(&self, logs: &Logs, wave_bytes: u64) -> Vec<RangeInclusive<LogEpoch>> {
        let mut stretches: Vec<(LogEpoch, u64)> = logs
            .iter()
            .flatten()
            .map(|one| (one.first_epoch, one.bytes()))
            .collect();
        stretches.sort_unstable();
        let mut ranges = Vec::new();
        let (mut start, mut bytes) = (self.from(), 0);
        for (epoch, more) in stretches {
            if bytes >= wave_bytes && epoch > start {
                ranges.push(start..=epoch.previous());
                (start, bytes) = (epoch, 0);
            }
            bytes += more;
        }
        ranges.push(start..=self.cutoff().max(start));
        // LV1: every epoch is in one range.
        assert!(ranges.is_sorted_by(|one, next| one.end().next() == *next.start()));
        ranges
    }

    fn cut_pieces<'a>(
        &self,
        stretches: impl Iterator<Item = &'a Stretch>,
        epochs: &RangeInclusive<LogEpoch>,
        piece_bytes: u64,
        pieces: &mut Vec<LogReader>,
    ) {
        let before = pieces.len();
        for stretch in stretches {
            let full = pieces[before..]
                .last()
                .is_none_or(|piece| piece.bytes() >= piece_bytes && stretch.whole);
            if full {
                let (scanned, chain) = (Arc::clone(self.scanned()), Arc::clone(self.chain()));
                pieces.push(LogReader::new(scanned, chain, epochs.clone()));
            }
            pieces.last_mut().expect("there is one").add(*stretch);
        }
    }
}
