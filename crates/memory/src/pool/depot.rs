//! Depots: where pools exchange blocks of one class.
//!
//! Surplus blocks of pools are first kept as whole chains, which a pool takes as they are, its own
//! before others'.
//! Beyond [`Depot::chains_max`] each block returns to its slab, and a slab that has all its blocks
//! back serves any class again. While few take chains, few are kept: a block that returns to its
//! slab at once is still in the cache; one from a chain that is dissolved later is not.
//!
//! Where a pool gets blocks from, in this order: a chain; slabs with free blocks; the rest of the
//! slab that is being cut, in runs; a new slab.

use super::arena::Arena;
use super::batch_count;
use super::chain::Chain;
use super::class::bytes_of_class;
use super::slab::{SLAB_BYTES, Slabs};

/// Bytes of chains that a depot always keeps.
const CHAIN_BYTES_MIN: usize = 32 * 1024;

/// The share of its slabs that it keeps in addition.
const CHAIN_SHARE: usize = 64;

/// Chains that are kept for each time that somebody has asked for blocks. A pool that frees much
/// and needs a block now and then, as one that empties a tree does, takes hardly any.
pub(super) const CHAINS_PER_ASK: usize = 2;

/// Chains that are looked at for one that the same pool gave.
const LOOKS_MAX: usize = 32;

/// A chain, and the pool that gave it. Its blocks are in the cache of that pool's core, and ask
/// for no other core's lines when they are written again.
struct Given {
    chain: Chain,
    by: PoolId,
}

/// Which pool: a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(pub(super) usize);

/// The shared blocks of one class.
pub(super) struct Depot {
    chains: Vec<Given>,
    /// How often blocks were asked for since all chains were dissolved.
    asked: usize,
    /// Chains that were kept since then.
    given: usize,
    pub(super) slabs: Slabs,
    /// The rest of the slab that is being cut.
    next: *mut u8,
    end: *mut u8,
}

// SAFETY: a depot owns its free blocks (P1 one-holder), and its slabs live as long as the arena.
unsafe impl Send for Depot {}

impl Default for Depot {
    fn default() -> Self {
        Self {
            chains: Vec::new(),
            asked: 0,
            given: 0,
            slabs: Slabs::EMPTY,
            next: std::ptr::null_mut(),
            end: std::ptr::null_mut(),
        }
    }
}

/// What a pool gets.
pub(super) enum Supply {
    /// Free blocks, at least one.
    Blocks(Chain),
    /// Memory to be cut into blocks, at least one.
    Run(*mut u8, *mut u8),
}

impl Depot {
    /// Chains of full batches that are kept.
    fn chains_max(&self, class: usize) -> usize {
        let bytes = CHAIN_BYTES_MIN + self.slabs.count * SLAB_BYTES / CHAIN_SHARE;
        let class_bytes = bytes_of_class(class);
        bytes / (batch_count(class_bytes) * class_bytes)
    }

    /// Takes free blocks of its class from a pool: as a chain, if the pool says that it may be
    /// kept, or to their slabs.
    pub(super) fn put(&mut self, chain: Chain, class: usize, arena: &Arena, by: Option<PoolId>) {
        if let Some(by) = by {
            let is_wanted = self.given < CHAINS_PER_ASK * self.asked;
            if is_wanted && self.chains.len() < self.chains_max(class) {
                self.given += 1;
                self.chains.push(Given { chain, by });
                return;
            }
        }
        self.spread(chain, class, arena);
    }

    /// Returns each block of a chain to its slab.
    fn spread(&mut self, mut chain: Chain, class: usize, arena: &Arena) {
        while let Some(block) = chain.pop() {
            // SAFETY: just popped, so on no chain.
            let slab = unsafe { self.slabs.put(block.as_ptr(), class) };
            if let Some(slab) = slab {
                arena.return_slab(slab);
            }
        }
    }

    /// Returns all chains and the uncut rest to their slabs.
    pub(super) fn settle(&mut self, class: usize, arena: &Arena) {
        (self.asked, self.given) = (0, 0);
        while let Some(given) = self.chains.pop() {
            self.spread(given.chain, class, arena);
        }
        let (start, end) = (self.next, self.end);
        self.take_run(end.addr() - start.addr(), class);
        self.spread(cut(start, end, class), class, arena);
    }

    /// Chains that it keeps for other pools.
    #[cfg(test)]
    pub(super) fn chain_count(&self) -> usize {
        self.chains.len()
    }

    /// Whether a free block is available in a slab that already has its class.
    pub(super) fn has_blocks(&self) -> bool {
        self.slabs.free_count > 0 || !self.chains.is_empty()
    }

    /// The last chain that this pool gave, or the last one.
    fn take_chain(&mut self, to: PoolId) -> Option<Chain> {
        let last = self.chains.len().checked_sub(1)?;
        let mut looks = (0..=last).rev().take(LOOKS_MAX);
        let own = looks.find(|at| self.chains[*at].by == to);
        Some(self.chains.remove(own.unwrap_or(last)).chain)
    }

    /// Blocks, or up to about `run_bytes` to be cut; `None` when the arena has to grow first.
    pub(super) fn get(
        &mut self,
        class: usize,
        run_bytes: usize,
        arena: &Arena,
        to: PoolId,
    ) -> Option<Supply> {
        self.asked += 1;
        if let Some(chain) = self.take_chain(to) {
            debug_assert!(chain.count > 0);
            return Some(Supply::Blocks(chain));
        }
        let class_bytes = bytes_of_class(class);
        if self.slabs.free_count > 0 {
            let chain = self.slabs.take(batch_count(class_bytes));
            debug_assert!(chain.count > 0, "free blocks are on the list");
            return Some(Supply::Blocks(chain));
        }
        if self.next == self.end {
            let slab = arena.take_slab()?;
            slab.assign(class);
            self.slabs.count += 1;
            (self.next, self.end) = slab.span();
            let blocks = slab.capacity(class);
            self.end = self.next.wrapping_add(blocks * class_bytes);
        }
        let start = self.next;
        let end = self.take_run(run_bytes, class);
        Some(Supply::Run(start, end))
    }

    /// Advances by a run of whole blocks of up to `bytes`, at least one, at most to the end.
    fn take_run(&mut self, bytes: usize, class: usize) -> *mut u8 {
        let class_bytes = bytes_of_class(class);
        let run = (bytes / class_bytes).max(1) * class_bytes;
        let left = self.end.addr() - self.next.addr();
        debug_assert!(left.is_multiple_of(class_bytes));
        if left > 0 {
            let start = self.next;
            self.next = start.wrapping_add(run.min(left));
            if self.next == self.end {
                self.slabs.finish_cutting(start);
            }
        }
        self.next
    }
}

/// The blocks of a run that was not cut.
pub(super) fn cut(start: *mut u8, end: *mut u8, class: usize) -> Chain {
    let class_bytes = bytes_of_class(class);
    let mut chain = Chain::EMPTY;
    let mut next = start;
    while end.addr() - next.addr() >= class_bytes {
        // SAFETY: the run was never handed out.
        unsafe { chain.push(next) };
        next = next.wrapping_add(class_bytes);
    }
    // P1 one-holder: the rest of a block would have no holder.
    debug_assert_eq!(next, end);
    chain
}
