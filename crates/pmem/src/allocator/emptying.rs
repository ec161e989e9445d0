//! Emptying slabs, so that their chunks make room for blocks of other sizes.
//!
//! A pool can have many free blocks and none of a wanted size: a chunk changes its size only when
//! nothing in it is taken, and a large block wants neighbours. So the owner moves what is left in a
//! chunk, or in one after the other of a *window* of neighbours. These give out no blocks
//! meanwhile, and are taken back when the horizon has passed that. Those of a window wait for the
//! block that they are for, unless nothing else is left for others.

use std::ops::Range;

use pando_sync::LogEpoch;
use pando_sync::shim::lock;
use pando_sync::shim::unmodelled::Ordering;

use super::chunk::{BlockState, Use};
use super::sides::Hands;
use super::supply::row_for;
use super::{Allocator, Side, Slabs};
use crate::{Offset, Pmem};

/// Chunks of which the one with the fewest blocks taken is emptied.
const SAMPLED: u64 = 8;

/// Windows of which the one with the fewest blocks taken is emptied.
const WINDOWS_SAMPLED: usize = 64;

impl<M: Pmem> Allocator<M> {
    /// Chooses a slab to be emptied, by `random`; the blocks that are taken in it. For a block of
    /// several chunks, slabs of neighbours are chosen one after the other. None while blocks of
    /// those before wait for the horizon, or where it would gain little.
    pub fn choose_to_empty(&self, wanted: u64, random: u64) -> Option<Vec<Offset>> {
        let window = self.emptying();
        if !window.is_empty() {
            if let Some(taken) = self.next_of_window(&window) {
                return Some(taken);
            }
            // A row is for whoever comes next.
            if !self.take_emptied(&window) || window.end - window.start > 1 {
                return None;
            }
        }
        let mut rng = fastrand::Rng::with_seed(random);
        let chunks = wanted.div_ceil(self.chunk_bytes);
        if chunks > 1 {
            let window = self.choose_window(row_for(chunks, self.chunks), &mut rng)?;
            self.empty_window(&window);
            return self.next_of_window(&window);
        }
        let used = lock(&self.supply).used();
        let sampled = (0..SAMPLED.min(used)).map(|_| rng.u64(..used));
        let slabs = sampled.filter_map(|chunk| match self.use_of(chunk) {
            Use::Slab(bytes) => {
                let class = self.class_of(bytes);
                let taken = self.taken_in(chunk, class);
                let share = taken.len() as u64 * 8 / self.slab(class).blocks;
                // An empty one is found without this.
                (1..7).contains(&share).then_some((share, chunk, taken))
            }
            _ => None,
        });
        let (_, chunk, taken) = slabs.min_by_key(|(share, ..)| *share)?;
        self.empty_window(&(chunk..chunk + 1));
        // Relaxed: as in `empty_window`.
        self.emptied_to.store(chunk + 1, Ordering::Relaxed);
        Some(taken)
    }

    /// So many neighbours, none of them part of a span, of which little seems to be taken.
    fn choose_window(&self, chunks: u64, rng: &mut fastrand::Rng) -> Option<Range<u64>> {
        let mut supply = lock(&self.supply);
        supply.settle(self);
        let used = supply.used();
        let starts = used.checked_sub(chunks)? + 1;
        // What lies before each chunk: bytes that are taken, and chunks that cannot be emptied.
        let (mut before, mut at) = (vec![(0, 0)], 0);
        while at < used {
            let (bytes, fixed, next) = match self.use_of(at) {
                _ if supply.is_empty(at) => (0, 0, at + 1),
                Use::Slab(bytes) => {
                    let slab = self.slab(self.class_of(bytes));
                    let taken = slab.blocks.saturating_sub(u64::from(self.freed_of(at)));
                    (taken * bytes, 0, at + 1)
                }
                Use::Span(chunks) => (0, 1, at + chunks),
                Use::Empty | Use::Damaged => (0, 1, at + 1),
            };
            let (taken_before, fixed_before) = before[before.len() - 1];
            for index in 1..=next.min(used) - at {
                before.push((taken_before + bytes, fixed_before + fixed * index));
            }
            at = next;
        }
        let taken = |start: &u64| {
            let [first, last] = [*start, start + chunks].map(|at| before[at as usize]);
            (first.1 == last.1).then_some((last.0 - first.0, *start))
        };
        let sampled = std::iter::repeat_with(|| rng.u64(..starts)).take(WINDOWS_SAMPLED);
        let (_, start) = sampled.filter_map(|start| taken(&start)).min()?;
        Some(start..start + chunks)
    }

    /// Lets the chunks of a window give out no blocks.
    fn empty_window(&self, window: &Range<u64>) {
        // Relaxed: a size's blocks in hand are read and cleared under its lock, below.
        self.emptied_to.store(window.start, Ordering::Relaxed);
        let packed = window.start << 32 | window.end;
        self.emptying.store(packed, Ordering::Relaxed);
        for (index, side) in self.sides.iter().enumerate() {
            let mut hands = lock(&side.hands);
            for (hand, slabs) in hands.iter_mut().zip(&self.slabs) {
                let in_hand = &mut lock(slabs).in_hand[index];
                if in_hand.take_if(|chunk| window.contains(chunk)).is_some() {
                    hand.free.clear();
                }
            }
        }
    }

    /// The blocks that are taken in the next chunk of a window in which some are.
    fn next_of_window(&self, window: &Range<u64>) -> Option<Vec<Offset>> {
        // Relaxed: who empties has the allocator's owner for itself.
        let from = self.emptied_to.load(Ordering::Relaxed).max(window.start);
        for chunk in from..window.end {
            self.emptied_to.store(chunk + 1, Ordering::Relaxed);
            if let Use::Slab(bytes) = self.use_of(chunk) {
                let taken = self.taken_in(chunk, self.class_of(bytes));
                if !taken.is_empty() {
                    return Some(taken);
                }
            }
        }
        None
    }

    /// Ends what [`Allocator::choose_to_empty`] began: the slabs stay, with what is taken in them.
    pub fn give_up_emptying(&self) {
        let window = self.emptying();
        self.emptying.store(0, Ordering::Relaxed);
        for chunk in window {
            if let Use::Slab(bytes) = self.use_of(chunk) {
                let mut slabs = lock(&self.slabs[self.class_of(bytes)]);
                // One that was taken back already is no slab's any more.
                if !lock(&self.supply).is_empty(chunk) {
                    slabs.candidates.push_back((chunk, LogEpoch::NONE));
                }
            }
        }
    }

    /// Whether some chunks are being emptied.
    pub fn is_emptying(&self) -> bool {
        !self.emptying().is_empty()
    }

    /// The chunks that are emptied.
    pub(super) fn emptying(&self) -> Range<u64> {
        let packed = self.emptying.load(Ordering::Relaxed);
        packed >> 32..packed & u64::from(u32::MAX)
    }

    /// Takes the emptied chunks of a window back; whether nothing is left to wait for.
    fn take_emptied(&self, window: &Range<u64>) -> bool {
        for chunk in window.clone() {
            let Use::Slab(bytes) = self.use_of(chunk) else {
                continue;
            };
            let class = self.class_of(bytes);
            let mut slabs = lock(&self.slabs[class]);
            let mut supply = lock(&self.supply);
            if supply.is_empty(chunk) {
                continue;
            }
            if self.is_empty(chunk, class) {
                self.take_slab_back((None, &mut slabs), class, &mut supply, chunk);
            } else if self.taken_in(chunk, class).is_empty() {
                return false;
            } else {
                drop((slabs, supply));
                self.give_up_emptying();
                return true;
            }
        }
        self.emptying.store(0, Ordering::Relaxed);
        true
    }

    fn taken_in(&self, chunk: u64, class: usize) -> Vec<Offset> {
        let blocks = (0..self.slab(class).blocks).map(|index| self.block(chunk, class, index));
        let taken = blocks.filter(|(record, _)| record.judge(&self.pool) == BlockState::Taken);
        taken.map(|(_, at)| at).collect()
    }

    /// Whether no block of a slab is taken, or waits.
    pub(super) fn is_empty(&self, chunk: u64, class: usize) -> bool {
        let horizon = self.horizon();
        (0..self.slab(class).blocks).all(|index| {
            match self.block(chunk, class, index).0.judge(&self.pool) {
                BlockState::Free => true,
                BlockState::Freed(epoch) => epoch <= horizon,
                BlockState::Taken | BlockState::Damaged => false,
            }
        })
    }

    /// Makes an empty chunk of an empty slab, unless somebody works with a hand that has it.
    pub(super) fn take_slab_back(
        &self,
        (mut own, slabs): (Option<(Side, &mut Hands)>, &mut Slabs),
        class: usize,
        supply: &mut super::Supply,
        chunk: u64,
    ) {
        if !self.lay_down(&mut own, slabs, (class, chunk)) {
            return;
        }
        slabs
            .candidates
            .retain(|(candidate, _)| *candidate != chunk);
        supply.found[class].retain(|found| *found != chunk);
        self.forget_freed(chunk);
        supply.give_back(chunk);
    }
}
