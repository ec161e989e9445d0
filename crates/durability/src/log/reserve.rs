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
//! Numbers only: nothing else is published through them, and a file that was made a moment too
//! early is covered by `margin`.
//!
//! Invariants:
//! - **LR1** The log makes a file only where the volume keeps [`Reserve::bytes`] free besides, and
//!   keeps recycled files only while it does. Files that are in use, or ahead, stay: they are the
//!   room that was promised to what is acknowledged (LT1).
//!
//! Deliberately absent: others who write to the volume. What they take is not there any more.

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};

use crate::limits::{CHECKPOINT_MARGIN_BYTES, CHECKPOINT_MARGIN_PART};

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

    /// What is to stay free.
    pub(super) fn bytes(&self) -> u64 {
        let expected = self.expected().saturating_add(self.unasked);
        let margin = CHECKPOINT_MARGIN_BYTES + expected / CHECKPOINT_MARGIN_PART;
        let left = expected.saturating_sub(self.spent.load(Ordering::Relaxed));
        left.saturating_add(margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_follows_the_data_and_the_checkpoint() {
        let reserve = Reserve::new(2, 1000, 50_000);
        let margin = |expected: u64| CHECKPOINT_MARGIN_BYTES + expected / CHECKPOINT_MARGIN_PART;
        assert_eq!(reserve.bytes(), 54_000 + margin(54_000));
        reserve.wrote(10_000);
        assert_eq!(reserve.expected(), 60_000);
        assert_eq!(reserve.bytes(), 64_000 + margin(64_000));
        let began = reserve.written();
        reserve.spend(30_000);
        reserve.wrote(5_000);
        assert_eq!(reserve.bytes(), 39_000 + margin(69_000));
        reserve.spend(100_000);
        assert_eq!(
            reserve.bytes(),
            margin(69_000),
            "an estimate may be too low"
        );
        reserve.expect(20_000, began);
        reserve.spend(0);
        assert_eq!(reserve.expected(), 25_000);
    }
}
