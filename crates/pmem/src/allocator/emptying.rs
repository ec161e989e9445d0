//! Emptying a slab, so that its chunk makes room for blocks of other sizes.
//!
//! A pool can have many free blocks and none of a wanted size: a chunk changes its size only when
//! nothing in it is taken. So the owner moves what is left in a chunk, which gives out no blocks
//! meanwhile, and the chunk is taken back when the horizon has passed that.

use pando_sync::LogEpoch;
use pando_sync::shim::lock;
use pando_sync::shim::unmodelled::Ordering;

use super::chunk::{BlockState, Use};
use super::{Allocator, Slabs};
use crate::{Offset, Pmem};

/// Chunks of which the one with the fewest blocks taken is emptied.
const SAMPLED: u64 = 8;

impl<M: Pmem> Allocator<M> {
    /// Chooses a slab to be emptied, by `random`; the blocks that are taken in it. None while
    /// blocks of the last one wait for the horizon, or where it would gain little.
    pub fn choose_to_empty(&self, random: u64) -> Option<Vec<Offset>> {
        if let Some(chunk) = self.emptying()
            && !self.take_emptied(chunk)
        {
            return None;
        }
        let used = lock(&self.supply).used();
        let mut rng = fastrand::Rng::with_seed(random);
        let sampled = (0..SAMPLED.min(used)).map(|_| rng.u64(..used));
        let slabs = sampled.filter_map(|chunk| match self.use_of(chunk) {
            Use::Slab(bytes) => {
                let class = self.class_of(bytes);
                let taken = self.taken_in(chunk, class);
                let share = taken.len() as u64 * 8 / self.slab(class).blocks;
                // An empty one is found without this.
                (1..7)
                    .contains(&share)
                    .then_some((share, chunk, class, taken))
            }
            _ => None,
        });
        let (_, chunk, class, taken) = slabs.min_by_key(|(share, ..)| *share)?;
        let mut slabs = lock(&self.slabs[class]);
        if slabs.chunk == chunk {
            slabs.free.clear();
        }
        // Relaxed: read under the same lock.
        self.emptying.store(chunk + 1, Ordering::Relaxed);
        Some(taken)
    }

    /// Ends what [`Allocator::choose_to_empty`] began: the slab stays, with what is taken in it.
    pub fn give_up_emptying(&self) {
        if let Some(chunk) = self.emptying()
            && let Use::Slab(bytes) = self.use_of(chunk)
        {
            let mut slabs = lock(&self.slabs[self.class_of(bytes)]);
            self.emptying.store(0, Ordering::Relaxed);
            slabs.candidates.push_back((chunk, LogEpoch::NONE));
        }
    }

    pub(super) fn emptying(&self) -> Option<u64> {
        self.emptying.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes an emptied chunk back; whether nothing is left to wait for.
    fn take_emptied(&self, chunk: u64) -> bool {
        let Use::Slab(bytes) = self.use_of(chunk) else {
            unreachable!("what is emptied stays a slab");
        };
        let class = self.class_of(bytes);
        if !self.taken_in(chunk, class).is_empty() {
            self.give_up_emptying();
            return true;
        }
        let mut slabs = lock(&self.slabs[class]);
        let mut supply = lock(&self.supply);
        if !self.is_empty(chunk, class) {
            return false;
        }
        self.emptying.store(0, Ordering::Relaxed);
        self.take_slab_back(&mut slabs, class, &mut supply, chunk);
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

    /// Makes an empty chunk of an empty slab.
    pub(super) fn take_slab_back(
        &self,
        slabs: &mut Slabs,
        class: usize,
        supply: &mut super::Supply,
        chunk: u64,
    ) {
        if slabs.chunk == chunk {
            slabs.free.clear();
        }
        slabs
            .candidates
            .retain(|(candidate, _)| *candidate != chunk);
        supply.found[class].retain(|found| *found != chunk);
        self.freed[chunk as usize].store(0, Ordering::Relaxed);
        supply.give_back(chunk);
    }
}
