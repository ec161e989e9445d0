//! Emptying slabs: which partly free slabs to give up, and when.
//!
//! Free blocks scattered over many slabs of a class serve no other class. In a *round* the emptiest
//! slabs, as many as there are excess idle bytes, stop handing out blocks (in large memory those of
//! some chunks, and of the next ones in the next round). The owners of blocks in them move the
//! blocks (the engines' `relocate`), and each slab whose last block is free serves any class. When
//! all owners have been shown their blocks once, the round ends. Slabs that are not empty are used
//! again and are not chosen again soon. A slab is chosen only if its blocks fit in slabs of its
//! class that stay in use (PE2), so moving is enough, and nobody has to give up a block because of
//! where it is.
//!
//! | state | begun by | ended by |
//! |---|---|---|
//! | no round | [`Pool::end_emptying`] | [`Pool::begin_emptying`] |
//! | a round | [`Pool::begin_emptying`] | [`Pool::end_emptying`] |
//!
//! Invariant:
//! - **PE1 emptying-gives-none** While its emptying bit is set, a slab hands out no blocks, neither
//!   from its own list nor in a chain that was put into the depot during the round. Blocks that
//!   pools hold when a round begins may be handed out once more.
//! - **PE2 room-to-move** When a round begins, the slabs of a class that hand out blocks have as
//!   many free as callers hold in those of the class that are being emptied.

use std::sync::atomic::Ordering;

use super::arena::{ArenaUsage, allowance_bytes, lock};
use super::class::{CLASS_COUNT, bytes_of_class};
use super::slab::{SLAB_BYTES, SlabRef};
use super::{Chunk, Pool};

/// The largest share of the mapped memory that a round may move or remove.
const ROUND_SHARE: u64 = 8;

/// Slabs of one round at most.
const ROUND_SLABS_MAX: usize = 16 * 1024;

/// Chunks whose slabs are examined for one round, possibly by a writer that evicts. With more
/// memory, successive rounds cover it in turn.
const ROUND_CHUNKS_MAX: usize = if cfg!(test) { 3 } else { 1024 };

/// Rounds for which a slab that could not be emptied is left alone.
const STUCK_ROUNDS: u16 = 16;

/// Checks that are skipped after one has found no need for a round.
const REST_LOOKS: u32 = 64;

/// How urgently a round is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Memory is short: idle memory beyond the allowance counts and is in the way.
    Short,
    /// Memory is not short: a round is worth the work from a quarter of all memory on.
    Tidy,
}

/// The slabs that are being emptied.
#[derive(Default)]
pub(super) struct Round {
    slabs: Vec<(SlabRef, usize)>,
    number: u16,
    rest: u32,
    /// The chunk at which the next round starts, and how many were examined in vain.
    next_chunk: usize,
    chunks_in_vain: usize,
}

/// Whether enough is free in slabs of some class for a round to help.
fn is_wanted(need: Need, usage: &ArenaUsage, in_slabs: u64) -> bool {
    let allowance = allowance_bytes(usage.mapped_bytes);
    let line = match need {
        Need::Short => allowance,
        Need::Tidy => allowance + usage.mapped_bytes / 4,
    };
    usage.idle_bytes() > line && in_slabs > usage.idle_bytes() / 4
}

impl Pool {
    /// Whether slabs are being emptied; begins a round if needed. O(1) or, when a round may be
    /// wanted, O(pools); when one begins, O(slabs) of `ROUND_CHUNKS_MAX` chunks.
    pub fn begin_emptying(&mut self, need: Need) -> bool {
        self.emptying = self.arena.emptying.load(Ordering::Relaxed);
        if self.emptying {
            return true;
        }
        let arena = &self.arena;
        {
            let mut round = lock(&arena.round);
            if round.rest > 0 {
                round.rest -= 1;
                return false;
            }
        }
        let usage = arena.usage();
        let free_bytes = |class: usize| {
            let free = lock(&arena.depots[class]).slabs.free_count;
            (free * bytes_of_class(class)) as u64
        };
        let in_slabs = (0..arena.depots.len()).map(free_bytes).sum::<u64>();
        if !is_wanted(need, &usage, in_slabs) {
            return false;
        }
        // Blocks in lists would come back into use.
        self.settle();
        self.arena.settle();
        let bytes_max = (usage.mapped_bytes / ROUND_SHARE).max(Chunk::BYTES as u64 / 2);
        // No more than brings the idle bytes some way below the allowance.
        let left_idle = allowance_bytes(usage.mapped_bytes) * 3 / 4;
        let slabs_max = (usage.idle_bytes() - left_idle).div_ceil(SLAB_BYTES as u64);
        let free_mean = in_slabs * SLAB_BYTES as u64 / usage.mapped_bytes.max(1);
        self.emptying = self.choose(slabs_max as usize, bytes_max, free_mean as usize / 2);
        self.emptying
    }

    /// Chooses up to `slabs_max` of the emptiest slabs of the next chunks, those with the fewest
    /// bytes in use, up to `bytes_max` of them. If others are left for later rounds, a slab with
    /// less than `free_min` free is not chosen.
    fn choose(&self, slabs_max: usize, bytes_max: u64, free_min: usize) -> bool {
        let arena = &self.arena;
        let mut round = lock(&arena.round);
        if arena.emptying.load(Ordering::Relaxed) {
            return true;
        }
        round.number = round.number.wrapping_add(1).max(1);
        let number = round.number;
        let from = round.next_chunk;
        let (slabs, chunks) = arena.slabs(from, ROUND_CHUNKS_MAX);
        let looked = ROUND_CHUNKS_MAX.min(chunks.saturating_sub(from));
        round.next_chunk = if from + looked < chunks {
            from + looked
        } else {
            0
        };
        let free_min = if looked < chunks { free_min } else { 0 };
        let held = |slab: SlabRef| {
            let class = slab.class()?;
            let stuck = slab.stuck();
            let rests = stuck != 0 && number.wrapping_sub(stuck) < STUCK_ROUNDS;
            let free = slab.free_count();
            let is_worth_it = free > 0 && free * bytes_of_class(class) >= free_min;
            let chosen = slab.is_carved() && is_worth_it && !rests;
            let blocks = slab.capacity(class).checked_sub(free)?;
            chosen.then(|| (blocks * bytes_of_class(class), class, slab))
        };
        let mut slabs: Vec<_> = slabs.into_iter().filter_map(held).collect();
        slabs.sort_unstable_by_key(|(bytes, _, _)| *bytes);
        let mut bytes_left = bytes_max;
        let slabs_max = slabs_max.min(ROUND_SLABS_MAX);
        let mut moving = [0; CLASS_COUNT];
        for (bytes, class, slab) in slabs {
            let Some(left) = bytes_left.checked_sub(bytes as u64) else {
                break;
            };
            if round.slabs.len() == slabs_max {
                break;
            }
            let mut depot = lock(&arena.depots[class]);
            let blocks = moving[class] + bytes / bytes_of_class(class);
            // PE2.
            let room = depot.slabs.free_count.saturating_sub(slab.free_count());
            if blocks <= room && depot.slabs.begin_emptying(slab, class) {
                (bytes_left, moving[class]) = (left, blocks);
                round.slabs.push((slab, class));
            }
        }
        let any = !round.slabs.is_empty();
        round.chunks_in_vain = if any {
            0
        } else {
            round.chunks_in_vain + looked
        };
        if !any && round.chunks_in_vain >= chunks {
            (round.rest, round.chunks_in_vain) = (REST_LOOKS, 0);
        }
        // Relaxed: a hint. Blocks that a pool frees before it knows go into the depot, as
        // PE1 allows.
        arena.emptying.store(any, Ordering::Relaxed);
        any
    }

    /// Ends the round: every block in the slabs being emptied has been shown to its owner.
    pub fn end_emptying(&mut self) {
        self.emptying = false;
        let mut round = lock(&self.arena.round);
        self.arena.emptying.store(false, Ordering::Relaxed);
        let number = round.number;
        let mut emptied = 0;
        for (slab, class) in std::mem::take(&mut round.slabs) {
            let mut depot = lock(&self.arena.depots[class]);
            if depot.slabs.end_emptying(slab, class) {
                slab.set_stuck(number);
            } else {
                emptied += 1;
            }
        }
        if emptied == 0 {
            round.rest = REST_LOOKS;
        }
    }
}
