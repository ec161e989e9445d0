//! Nodes in chunks, named by 32-bit indices; index 0 names none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const CHUNK_BITS: u32 = 16;
const CHUNK_NODES: usize = 1 << CHUNK_BITS;

/// 2^28 nodes at most.
const CHUNKS: usize = 1 << 12;

/// Indices that a worker takes at once, so that workers seldom meet at the counter.
const BLOCK: u32 = 256;

/// Nodes that are made zeroed and never given back.
pub(super) struct Arena<N> {
    chunks: Box<[OnceLock<Box<[N]>>]>,
    next: AtomicU32,
}

/// A worker's indices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserve {
    next: u32,
    end: u32,
}

impl<N: Default> Arena<N> {
    pub(super) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            // Block 0 holds index 0, which names no node.
            next: AtomicU32::new(BLOCK),
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> &N {
        let chunk = self.chunks[(index >> CHUNK_BITS) as usize].get();
        &chunk.expect("allocated before it is named")[index as usize % CHUNK_NODES]
    }

    /// A zeroed node.
    pub(super) fn allocate(&self, reserve: &mut Reserve) -> u32 {
        if reserve.next == reserve.end {
            reserve.next = self.next.fetch_add(BLOCK, Ordering::Relaxed);
            reserve.end = reserve.next + BLOCK;
            self.chunks[(reserve.next >> CHUNK_BITS) as usize]
                .get_or_init(|| (0..CHUNK_NODES).map(|_| N::default()).collect());
        }
        reserve.next += 1;
        reserve.next - 1
    }
}
