//! How much of a pool its blocks take.

use std::collections::VecDeque;

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};
use pando_sync::{LogEpoch, Padded};

/// Sums of freed bytes that are told apart; more epochs than that share one.
const SUMS_MAX: usize = 64;

/// Bytes of a pool's blocks, their records included. Anybody may read it at any time.
///
/// The allocator's owner changes it, `Relaxed`: it is a figure by itself, and orders nothing.
#[derive(Debug)]
pub struct Tally {
    bytes_max: u64,
    /// What was ever taken, and what was ever freed: they wrap, their difference is right.
    taken: Padded<AtomicU64>,
    freed: Padded<AtomicU64>,
    waiting: AtomicU64,
}

impl Tally {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            taken: Padded::default(),
            freed: Padded::default(),
            waiting: AtomicU64::new(0),
        }
    }

    /// Bytes that blocks can take, beside what is kept back for removals. Blocks of other sizes
    /// than those before may get less.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes of blocks that are taken; after [`Allocator::recall`](super::Allocator::recall).
    #[must_use]
    pub fn taken(&self) -> u64 {
        // The other way round it could be less than nothing.
        let freed = self.freed.load(Ordering::Relaxed);
        self.taken.load(Ordering::Relaxed).wrapping_sub(freed)
    }

    /// Bytes of blocks that were freed and wait for the horizon (PA3 horizon).
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Only who has [`Freed`], and so a lock, changes it.
    fn set_waiting(&self, bytes: u64) {
        self.waiting.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn take(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Freed bytes by the epoch that freed them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Freed(VecDeque<(LogEpoch, u64)>);

impl Freed {
    pub(super) fn free(&mut self, tally: &Tally, bytes: u64, epoch: LogEpoch) {
        // It has a lock: no instruction that locks its line is needed.
        let freed = tally.freed.load(Ordering::Relaxed).wrapping_add(bytes);
        tally.freed.store(freed, Ordering::Relaxed);
        self.wait(tally, bytes, epoch);
    }

    fn wait(&mut self, tally: &Tally, bytes: u64, epoch: LogEpoch) {
        tally.set_waiting(tally.waiting() + bytes);
        let full = self.0.len() == SUMS_MAX;
        match self.0.back_mut() {
            Some((last, sum)) if *last >= epoch || full => {
                *last = epoch.max(*last);
                *sum += bytes;
            }
            _ => self.0.push_back((epoch, bytes)),
        }
    }

    /// The horizon has come to this epoch.
    pub(super) fn pass(&mut self, tally: &Tally, horizon: LogEpoch) {
        while let Some((epoch, bytes)) = self.0.front() {
            if *epoch > horizon {
                break;
            }
            tally.set_waiting(tally.waiting() - *bytes);
            self.0.pop_front();
        }
    }

    /// Begins with what was taken, and what was waiting at the end of an epoch.
    pub(super) fn recall(&mut self, tally: &Tally, taken: u64, waiting: (u64, LogEpoch)) {
        tally.taken.store(taken, Ordering::Relaxed);
        tally.freed.store(0, Ordering::Relaxed);
        tally.set_waiting(0);
        self.0.clear();
        if waiting.0 > 0 {
            self.wait(tally, waiting.0, waiting.1);
        }
    }
}
