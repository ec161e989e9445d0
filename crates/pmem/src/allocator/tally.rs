//! How much of a pool its blocks take.

use std::collections::VecDeque;

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};
use pando_sync::{LogEpoch, Padded};

use super::sides::{SIDES, Side};

/// Sums of freed bytes that are told apart; more epochs than that share one.
const SUMS_MAX: usize = 64;

/// Bytes of a pool's blocks, their records included. Anybody may read it at any time.
///
/// The allocator's owner changes it, `Relaxed`: it is a figure by itself, and orders nothing.
#[derive(Debug)]
pub struct Tally {
    bytes_max: u64,
    sides: [Padded<OfSide>; SIDES],
    /// What spans ever took.
    spans: AtomicU64,
}

/// What one side's threads have done.
#[derive(Debug, Default)]
struct OfSide {
    /// What was ever taken, and what was ever freed: they wrap, their difference is right.
    taken: AtomicU64,
    freed: AtomicU64,
    waiting: AtomicU64,
}

impl Tally {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            sides: Default::default(),
            spans: AtomicU64::new(0),
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
        // The other way round it could be less than nothing. Acquire: pairs with `Freed::free`, so
        // that of what was freed on one side it is seen that it was taken on another.
        let freed = self.sum(|side| side.freed.load(Ordering::Acquire));
        let spans = self.spans.load(Ordering::Relaxed);
        let taken = self.sum(|side| side.taken.load(Ordering::Relaxed));
        taken.wrapping_add(spans).wrapping_sub(freed)
    }

    /// Bytes of blocks that were freed and wait for the horizon (PA3 horizon).
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.sum(|side| side.waiting.load(Ordering::Relaxed))
    }

    fn sum(&self, of: impl Fn(&OfSide) -> u64) -> u64 {
        let sides = self.sides.iter().map(|side| of(side));
        sides.fold(0, u64::wrapping_add)
    }

    /// The caller has the hands of that side, and so a lock: no instruction that locks the line is
    /// needed.
    #[inline]
    pub(super) fn take(&self, side: Side, bytes: u64) {
        let count = &self.sides[side.0].taken;
        let taken = count.load(Ordering::Relaxed).wrapping_add(bytes);
        count.store(taken, Ordering::Relaxed);
    }

    pub(super) fn take_span(&self, bytes: u64) {
        self.spans.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Bytes that one side has freed, by the epoch that freed them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Freed {
    side: usize,
    sums: VecDeque<(LogEpoch, u64)>,
}

impl Freed {
    pub(super) fn of(side: usize) -> Self {
        Self {
            side,
            sums: VecDeque::new(),
        }
    }

    pub(super) fn free(&mut self, tally: &Tally, bytes: u64, epoch: LogEpoch) {
        // As in `Tally::take`. Release: pairs with `Tally::taken`.
        let count = &tally.sides[self.side].freed;
        let freed = count.load(Ordering::Relaxed).wrapping_add(bytes);
        count.store(freed, Ordering::Release);
        self.wait(tally, bytes, epoch);
    }

    fn wait(&mut self, tally: &Tally, bytes: u64, epoch: LogEpoch) {
        let waiting = &tally.sides[self.side].waiting;
        waiting.store(waiting.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        let full = self.sums.len() == SUMS_MAX;
        match self.sums.back_mut() {
            Some((last, sum)) if *last >= epoch || full => {
                *last = epoch.max(*last);
                *sum += bytes;
            }
            _ => self.sums.push_back((epoch, bytes)),
        }
    }

    /// The horizon has come to this epoch.
    pub(super) fn pass(&mut self, tally: &Tally, horizon: LogEpoch) {
        let waiting = &tally.sides[self.side].waiting;
        while let Some((epoch, bytes)) = self.sums.front() {
            if *epoch > horizon {
                break;
            }
            waiting.store(waiting.load(Ordering::Relaxed) - *bytes, Ordering::Relaxed);
            self.sums.pop_front();
        }
    }

    /// Begins with what was taken, and what was waiting at the end of an epoch.
    pub(super) fn recall(&mut self, tally: &Tally, taken: u64, waiting: (u64, LogEpoch)) {
        let side = &tally.sides[self.side];
        side.taken.store(taken, Ordering::Relaxed);
        side.freed.store(0, Ordering::Relaxed);
        side.waiting.store(0, Ordering::Relaxed);
        tally.spans.store(0, Ordering::Relaxed);
        self.sums.clear();
        if waiting.0 > 0 {
            self.wait(tally, waiting.0, waiting.1);
        }
    }
}
