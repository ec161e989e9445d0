//! The space of a volume that the log reserves for checkpoints.
//!
//! Only a checkpoint frees space in a full log, so the log never takes the space that the next one
//! needs, where both are on one volume. That space follows the data: the bytes of the last
//! checkpoint, plus as many as were logged since it began, since logged bytes add at most about as
//! much to the next one. A checkpoint being written uses its reserve up as it goes.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `expected` | the thread that took a checkpoint, or recovered | `Relaxed` | the thread that makes a file |
//! | `written` | loggers | `Relaxed` | the same |
//! | `spent` | the threads of a checkpoint | `Relaxed` | the same |
//!
//! Parts of checkpoints may be in several directories, which take equal shares, to within some
//! pieces (`checkpoint::parts`): a volume keeps the shares of those on it. The volume with the
//! manifests keeps at least the margin.
//!
//! Numbers only: nothing else is published through them, and `margin` covers a file that was made a
//! moment too early.
//!
//! Invariants:
//! - **LR1 checkpoint-room** The log makes a file only where the volume keeps [`Reserve::bytes`]
//!   free in addition, and keeps recycled files only while it does. Files in use, or made ahead,
//!   stay: they are the space promised to acknowledged writes (LT1 acknowledged-fits).
//!
//! Deliberately absent: other users of the volume. What they take is simply not free any more.

use std::path::{Path, PathBuf};

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};

use crate::checkpoint::Directories;
use crate::disk::Disk;
use crate::limits::{CHECKPOINT_MARGIN_BYTES, CHECKPOINT_MARGIN_PART};

/// What a volume holds of checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// How many of the directories of parts are on it, and of how many.
    parts: u64,
    of: u64,
    /// What it may take beyond its share.
    pieces_bytes: u64,
    manifests: bool,
}

impl Share {
    /// Of the volume of a directory. If that cannot be determined, the directory counts as a volume
    /// of its own.
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

    /// Whether parts are here.
    pub(super) fn has_parts(self) -> bool {
        self.parts > 0
    }

    /// Whether anything is.
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

    /// Counts this many bytes written to the log.
    pub(super) fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All that was written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Reports a checkpoint of these bytes that began when this much of the log was written.
    pub(super) fn expect(&self, checkpoint_bytes: u64, written: u64) {
        self.expected.store(checkpoint_bytes, Ordering::Relaxed);
        self.expected_at.store(written, Ordering::Relaxed);
    }

    /// Reports how much the checkpoint in progress has written; 0: none is in progress.
    pub(super) fn spend(&self, bytes: u64) {
        self.spent.store(bytes, Ordering::Relaxed);
    }

    /// The size of the last checkpoint.
    pub(super) fn last(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// About the total size of the next one.
    pub(super) fn expected(&self) -> u64 {
        let since = self.expected_at.load(Ordering::Relaxed);
        let logged = self.written().saturating_sub(since);
        self.last().saturating_add(logged)
    }

    /// Bytes to keep free on a volume.
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
        assert!(share.parts <= share.of);
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
