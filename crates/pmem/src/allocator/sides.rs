//! What the threads of one side have of an allocator, apart from others.
//!
//! Each side takes blocks from chunks of its own, one for each size: its *hand*. So two threads of
//! different sides share no line of records, blocks or counters, until one frees what the other
//! has taken.
//!
//! - **PD1 one-hand** A free block is in one hand at most: a chunk of which a hand has blocks is
//!   noted in the size's [`Slabs::in_hand`], and looked at by nobody else.
//! - **PD2 hands-first** Who has a side's hands takes a size's [`Slabs`], then what comes behind
//!   these; another side's hands it only tries.

use std::collections::VecDeque;
use std::mem;

use pando_sync::LogEpoch;
use pando_sync::shim::unmodelled::{AtomicU32, Ordering};
use pando_sync::shim::{Mutex, MutexGuard, lock};

use super::tally::{Freed, Tally};
use super::{Allocator, Slabs};
use crate::{LINE_BYTES, Offset, Pmem};

/// Sides of an allocator.
pub(super) const SIDES: usize = 4;

/// Which of an allocator's sides a thread takes blocks from and frees them at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side(pub(super) usize);

impl Side {
    /// That of whoever has the allocator's owner for itself.
    pub const FIRST: Self = Self(0);

    /// The one of a thread with this number.
    #[must_use]
    pub fn of(thread: usize) -> Self {
        Self(thread % SIDES)
    }
}

/// The free blocks of one size that a side takes next.
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Their chunk.
    pub(super) chunk: u64,
    /// By index, the lowest first; each is nobody's and the horizon has passed it.
    pub(super) free: VecDeque<u16>,
}

/// The hands of a side, by size.
pub(super) type Hands = [Hand];

/// What a side has.
pub(super) struct OneSide {
    pub(super) hands: Mutex<Box<Hands>>,
    pub(super) unsettled: Mutex<Unsettled>,
    /// Per chunk: blocks that this side has freed since it was last looked at; changed under the
    /// lock of `unsettled`.
    freed: Box<[AtomicU32]>,
}

/// What a commit, or the horizon, has still to do.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// Lines whose change is not flushed yet, by number.
    pub(super) lines: Vec<u64>,
    pub(super) freed: Freed,
    /// How many blocks were freed.
    pub(super) frees: u64,
}

impl Unsettled {
    pub(super) fn soil(&mut self, at: Offset) {
        let (line, lines) = (at.get() / LINE_BYTES, &mut self.lines);
        if lines.last() == Some(&line) {
            return;
        }
        if lines.len() == lines.capacity() {
            // There are no more different ones than lines of records.
            lines.sort_unstable();
            lines.dedup();
        }
        lines.push(line);
    }
}

impl OneSide {
    pub(super) fn new(side: usize, classes: usize, chunks: u64) -> Self {
        let unsettled = Unsettled {
            freed: Freed::of(side),
            ..Unsettled::default()
        };
        Self {
            hands: Mutex::new((0..classes).map(|_| Hand::default()).collect()),
            unsettled: Mutex::new(unsettled),
            freed: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Counts freed blocks of a chunk; how many there are now. The caller has `unsettled`.
    pub(super) fn count_freed(&self, _: &mut Unsettled, chunk: u64, blocks: u32) -> u32 {
        let count = &self.freed[chunk as usize];
        // Relaxed: a hint; the records decide. It has a lock: nothing is lost.
        let freed = count.load(Ordering::Relaxed) + blocks;
        count.store(freed, Ordering::Relaxed);
        freed
    }

    /// Frees bytes of a slab's block in that chunk; how many blocks of it wait to be looked at.
    pub(super) fn free(
        &self,
        tally: &Tally,
        (record, chunk): (Option<Offset>, u64),
        (bytes, epoch): (u64, LogEpoch),
    ) -> u32 {
        let mut unsettled = lock(&self.unsettled);
        if let Some(record) = record {
            unsettled.soil(record);
        }
        unsettled.freed.free(tally, bytes, epoch);
        unsettled.frees += 1;
        self.count_freed(&mut unsettled, chunk, 1)
    }
}

impl<M: Pmem> Allocator<M> {
    /// How many blocks of a chunk were freed since it was last looked at; a hint.
    pub(super) fn freed_of(&self, chunk: u64) -> u32 {
        let sides = self.sides.iter();
        let of_side = |side: &OneSide| side.freed[chunk as usize].load(Ordering::Relaxed);
        sides.map(|side| of_side(side)).fold(0, u32::saturating_add)
    }

    /// Counts those of a chunk anew.
    pub(super) fn forget_freed(&self, chunk: u64) {
        for side in &self.sides {
            let _unsettled = lock(&side.unsettled);
            side.freed[chunk as usize].store(0, Ordering::Relaxed);
        }
    }

    /// How many blocks were ever freed.
    pub(super) fn frees(&self) -> u64 {
        let sides = self.sides.iter();
        sides.map(|side| lock(&side.unsettled).frees).sum()
    }

    /// Takes over what the hands of other sides have of a size, for a side whose own is empty;
    /// whether there is anything. What somebody works with stays.
    pub(super) fn take_over(
        &self,
        side: Side,
        (hand, slabs): (&mut Hand, &mut Slabs),
        class: usize,
    ) -> bool {
        for other in (0..SIDES).filter(|other| *other != side.0) {
            let Some(mut hands) = self.try_hands(other) else {
                continue;
            };
            let has_any = !hands[class].free.is_empty();
            slabs.in_hand[other] = None;
            if has_any {
                mem::swap(hand, &mut hands[class]);
                slabs.in_hand[side.0] = Some(hand.chunk);
                return true;
            }
        }
        false
    }

    /// Takes a chunk out of every hand; whether nobody has it any more. `own` are the hands that
    /// the caller has.
    pub(super) fn lay_down(
        &self,
        own: &mut Option<(Side, &mut Hands)>,
        slabs: &mut Slabs,
        (class, chunk): (usize, u64),
    ) -> bool {
        for side in 0..SIDES {
            if slabs.in_hand[side] != Some(chunk) {
                continue;
            }
            match own {
                Some((own, hands)) if own.0 == side => hands[class].free.clear(),
                _ => match self.try_hands(side) {
                    Some(mut hands) => hands[class].free.clear(),
                    None => return false,
                },
            }
            slabs.in_hand[side] = None;
        }
        true
    }

    /// A side's hands, unless somebody works with them (PD2 hands-first).
    fn try_hands(&self, side: usize) -> Option<MutexGuard<'_, Box<Hands>>> {
        self.sides[side].hands.try_lock().ok()
    }
}
