//! Small volumes: how the log and the checkpoints share their space.
//!
//! Segments are a small part of a volume, so those in use and ahead take little of it. The log
//! reserves space for the next checkpoint (LR1 checkpoint-room). Once it has taken half of what
//! remains, a checkpoint is due and is taken without rests; as long as it has, only one checkpoint
//! is kept. So the volume must hold two checkpoints, the old one and the new, and a few segments.
//!
//! Deliberately absent: when a checkpoint is taken. The caller that takes them asks
//! [`Database::log_room`].

use pando_durability::checkpoint;
use pando_durability::log::{LogRoom, LogState};

use super::CheckpointFailure;
use pando_engine::LogEpoch;

use crate::database::Database;
use crate::durable::Durable;
use crate::durable::options::DurabilityOptions;
use crate::limits;

impl DurabilityOptions {
    /// Bytes of a segment: as configured, or as fits the smallest volume.
    pub(super) fn fitting_segment_bytes(&self) -> u64 {
        let directories = self.log_directories();
        let totals = directories
            .iter()
            .filter_map(|directory| self.disk.room(directory).ok())
            .map(|room| room.total);
        let smallest = totals.min().unwrap_or(u64::MAX);
        let part = smallest / (limits::SEGMENTS_PER_VOLUME * self.logs as u64);
        let part = part.max(limits::SEGMENT_BYTES_SMALLEST) / limits::SEGMENT_UNIT_BYTES;
        self.segment_bytes.min(part * limits::SEGMENT_UNIT_BYTES)
    }
}

impl Durable {
    /// Whether the log has taken half of its space, or has none.
    pub(super) fn is_short(&self) -> bool {
        let full = matches!(self.log.state(), LogState::Full { .. });
        full || self.log.room().is_some_and(|room| room.is_short())
    }

    /// If the space shared by the log and the checkpoints is short, removes all checkpoints but the
    /// newest, and the log before it (CW3 log-kept-for-oldest); returns how many segments.
    pub(super) fn make_room(&self, kept: &mut Vec<LogEpoch>) -> Result<usize, CheckpointFailure> {
        if !self.log.shares_volume() || !self.is_short() {
            return Ok(0);
        }
        let Some(&newest) = kept.first() else {
            self.log.give_back()?;
            return Ok(0);
        };
        checkpoint::remove_others(&*self.options.disk, &self.files, &[newest])?;
        kept.truncate(1);
        Ok(self.log.recycle_below(newest)?)
    }
}

impl Database {
    /// The space of the volume on which the log has least left, where the disk can tell.
    #[must_use]
    pub fn log_room(&self) -> Option<LogRoom> {
        self.log().and_then(|log| log.room())
    }
}
