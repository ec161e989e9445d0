//! Room of a volume that the log leaves to checkpoints.
//!
//! A full log gets room from a checkpoint alone, so it never takes what the next one needs, where
//! both lie on one volume. What that is follows the data: the bytes of the last checkpoint, and as
//! many as were logged since it began, for what is logged adds about as much to the next one, at
//! most. A checkpoint that is being written uses its room up as it goes.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `expected` | whoever took a checkpoint, or recovered | `Relaxed` | whoever makes a file |
//! | `written` | loggers | `Relaxed` | the same |
//! | `spent` | the threads of a checkpoint | `Relaxed` | the same |
//!
//! Parts of checkpoints may lie in several directories, which take equal shares, but for some
//! pieces (`checkpoint::parts`): a volume keeps the shares of those that it has. The volume with
//! the manifests keeps the margin at least.
//!
//! Numbers only: nothing else is published through them, and a file that was made a moment too
//! early is covered by `margin`.
//!
//! Invariants:
//! - **LR1 checkpoint-room** The log makes a file only where the volume keeps [`Reserve::bytes`]
//!   free besides, and keeps recycled files only while it does. Files that are in use, or ahead,
//!   stay: they are the room that was promised to what is acknowledged (LT1 acknowledged-fits).
//!
//! Deliberately absent: others who write to the volume. What they take is not there any more.

use std::path::{Path, PathBuf};

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};

use crate::checkpoint::Directories;
use crate::disk::Disk;
use crate::limits::{CHECKPOINT_MARGIN_BYTES, CHECKPOINT_MARGIN_PART};

/// What a volume holds of checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// How many of the directories of parts, and of how many.
    parts: u64,
    of: u64,
    /// What it may take beyond its part of the whole.
    pieces_bytes: u64,
    manifests: bool,
}

impl Share {
    /// Of the volume of a directory. One of which that cannot be told is taken to have all its room
    /// to itself.
    pub(super) fn of(disk: &dyn Disk, checkpoints: Option<&Directories>, place: &Path) -> Self {
        let volume = |directory: &Path| disk.room(directory).ok().map(|room| room.volume);
        let (Some(directories), Some(here)) = (checkpoints, volume(place)) else {
            return Self::default();
        };
        let is_here = |directory: &&PathBuf| volume(directory) == Some(here);
        let of = directories.parts.len() as u64;
        let pieces = if of > 1 { 2 * of } else { 0 };
        Self {
            parts: directories.parts.iter().filter(is_here).count() as u64,
            of,
            pieces_bytes: pieces * directories.piece_bytes,
            manifests: is_here(&&directories.manifests),
        }
    }

    /// Whether parts lie here.
    pub(super) fn has_parts(self) -> bool {
        self.parts > 0
    }

    /// Whether anything does.
    pub(super) fn is_any(self) -> bool {
        self.has_parts() || self.manifests
    }
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Reserve {
    /// Bytes of the last checkpoint, and how much of the log was written when it began.
    expected: AtomicU64,
    expected_at: AtomicU64,
    written: AtomicU64,
    spent: AtomicU64,
    /// What the log may write without asking: its present segments and the files ahead.
    unasked: u64,
}

impl Reserve {
    pub(super) fn new(logs: usize, segment_bytes: u64, expected: u64) -> Self {
        Self {
            expected: AtomicU64::new(expected),
            expected_at: AtomicU64::new(0),
            written: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            unasked: 2 * logs as u64 * segment_bytes,
        }
    }

    /// So many bytes of log were written.
    pub(super) fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All that was written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// A checkpoint has these bytes that began when so much of the log was written.
    pub(super) fn expect(&self, checkpoint_bytes: u64, written: u64) {
        self.expected.store(checkpoint_bytes, Ordering::Relaxed);
        self.expected_at.store(written, Ordering::Relaxed);
    }

    /// The checkpoint that is being taken has written so much; 0: none is.
    pub(super) fn spend(&self, bytes: u64) {
        self.spent.store(bytes, Ordering::Relaxed);
    }

    /// What the last checkpoint took.
    pub(super) fn last(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// About what the next one takes in all.
    pub(super) fn expected(&self) -> u64 {
        let since = self.expected_at.load(Ordering::Relaxed);
        let logged = self.written().saturating_sub(since);
        self.last().saturating_add(logged)
    }

    /// What is to stay free on a volume.
    pub(super) fn bytes(&self, share: Share) -> u64 {
        if !share.is_any() {
            return 0;
        }
        let expected = self.expected().saturating_add(self.unasked);
        let margin = CHECKPOINT_MARGIN_BYTES + expected / CHECKPOINT_MARGIN_PART;
        let left = expected.saturating_sub(self.spent.load(Ordering::Relaxed));
        if !share.has_parts() {
            return margin;
        }
        let left = u128::from(left) * u128::from(share.parts) / u128::from(share.of);
        let left = u64::try_from(left).expect("a part of it");
        left.saturating_add(share.pieces_bytes)
            .saturating_add(margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;

    const WHOLE: Share = Share {
        parts: 1,
        of: 1,
        pieces_bytes: 0,
        manifests: true,
    };

    #[test]
    fn what_is_kept_follows_the_data_and_the_checkpoint() {
        let reserve = Reserve::new(2, 1000, 50_000);
        let margin = |expected: u64| CHECKPOINT_MARGIN_BYTES + expected / CHECKPOINT_MARGIN_PART;
        assert_eq!(reserve.bytes(WHOLE), 54_000 + margin(54_000));
        reserve.wrote(10_000);
        assert_eq!(reserve.expected(), 60_000);
        assert_eq!(reserve.bytes(WHOLE), 64_000 + margin(64_000));
        let began = reserve.written();
        reserve.spend(30_000);
        reserve.wrote(5_000);
        assert_eq!(reserve.bytes(WHOLE), 39_000 + margin(69_000));
        reserve.spend(100_000);
        assert_eq!(
            reserve.bytes(WHOLE),
            margin(69_000),
            "an estimate may be too low"
        );
        reserve.expect(20_000, began);
        reserve.spend(0);
        assert_eq!(reserve.expected(), 25_000);
    }

    #[test]
    fn a_volume_keeps_the_share_of_its_directories() {
        let disk = SimulatedDisk::new();
        for volume in ["/a", "/b", "/c"] {
            disk.set_capacity_below(Path::new(volume), Some(1 << 30));
        }
        let directories = Directories {
            manifests: "/a/data".into(),
            parts: vec!["/b/1".into(), "/b/2".into(), "/c/1".into()],
            former: Vec::new(),
            piece_bytes: 1000,
        };
        let reserve = Reserve::new(1, 0, 90_000);
        let margin = CHECKPOINT_MARGIN_BYTES + 90_000 / CHECKPOINT_MARGIN_PART;
        let kept = |place: &str| {
            let share = Share::of(&disk, Some(&directories), Path::new(place));
            reserve.bytes(share)
        };
        assert_eq!(kept("/a/log"), margin);
        assert_eq!(kept("/b/log"), 60_000 + 6000 + margin);
        assert_eq!(kept("/c"), 30_000 + 6000 + margin);
        assert_eq!(kept("/d"), 0);
        reserve.spend(30_000);
        assert_eq!(kept("/c"), 20_000 + 6000 + margin);
        assert_eq!(reserve.bytes(Share::of(&disk, None, Path::new("/c"))), 0);
    }
}
