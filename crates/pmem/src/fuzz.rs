//! The entry point of the fuzz target, for cargo-fuzz and a seeded loop in the tests.

use std::sync::Arc;

use crate::limits::POOL_BYTES_MIN;
use crate::{Allocator, Offset, Pmem, Pool, Shape, Simulated, WORD_BYTES};

/// Bytes of a change: where, what, and how it is made.
const CHANGE_BYTES: usize = 11;

const SHAPE: Shape = Shape {
    node_bytes: 512,
    chunk_bytes: 1024,
};

/// Opens a pool some of whose words were changed, with checksums that are right where the data asks
/// for them, and works on it: nothing panics, and blocks lie in the pool and beside each other.
pub fn pool(data: &[u8]) {
    let memory = some_pool();
    for change in data.chunks_exact(CHANGE_BYTES) {
        let place = u64::from(u16::from_le_bytes([change[0], change[1]]));
        let at = Offset::new(place * WORD_BYTES % memory.bytes());
        let word = u64::from_le_bytes(change[2..10].try_into().expect("eight bytes"));
        match change[10] % 4 {
            0 => memory.store(at, word),
            1 => memory.store(at, memory.load(at) ^ word),
            2 => memory.store(at, crate::pool::sealed(pando_sync::LogEpoch(word >> 20))),
            _ => crate::pool::reseal(&memory, word % 2, word >> 1),
        }
    }
    let Ok(pool) = Pool::open(memory, SHAPE.node_bytes) else {
        return;
    };
    let end = pool.memory().bytes();
    let epoch = pool.first_epoch();
    let Ok(allocator) = Allocator::new(Arc::new(pool)) else {
        return;
    };
    allocator.set_horizon(epoch.previous());
    if allocator.pool().begin(epoch).is_err() {
        return;
    }
    let mut last = Offset::NONE;
    allocator.blocks(|at, bytes, _| {
        assert!(
            at >= last && at.get() + bytes <= end,
            "{bytes} bytes at {at}"
        );
        last = at.plus(bytes);
    });
    for bytes in [40, 480, 2000] {
        while let Ok(at) = allocator.allocate(bytes, epoch) {
            assert!(at.get() + bytes <= end, "{bytes} bytes at {at}");
        }
    }
    allocator.clean(0, u64::MAX);
    allocator.settle();
    // The last epochs of all may be used up.
    let _ = allocator.pool().commit(epoch);
}

/// A pool with a slab, a span and freed blocks.
fn some_pool() -> Simulated {
    let pool = Pool::create(Simulated::new(POOL_BYTES_MIN), SHAPE).expect("a pool");
    let allocator = Allocator::new(Arc::new(pool)).expect("an allocator");
    let pool = allocator.pool();
    let epoch = pool.first_epoch();
    pool.begin(epoch).expect("the first epoch");
    let blocks = [40, 40, 480, 2000, 3000].map(|bytes| allocator.allocate(bytes, epoch));
    for at in blocks.into_iter().step_by(2).flatten() {
        allocator.free(at, epoch);
    }
    allocator.settle();
    pool.commit(epoch).expect("the first commit");
    Simulated::from(pool.memory().words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_words_do_no_harm() {
        let mut rng = fastrand::Rng::with_seed(15);
        for _ in 0..3000 {
            let mut data = Vec::new();
            for _ in 0..rng.usize(1..5) {
                // The words that mean something: the head, descriptors, the first tables.
                let areas = [
                    (0, 40),
                    (512, 522),
                    (1024, 1113),
                    (1536, 1650),
                    (2048, 4096),
                ];
                let (first, end) = areas[rng.usize(..areas.len())];
                data.extend(rng.u16(first..end).to_le_bytes());
                let small = rng.u64(..).checked_shr(rng.u32(..64)).unwrap_or(0);
                data.extend((small << if rng.bool() { 20 } else { 0 }).to_le_bytes());
                data.push(rng.u8(..));
            }
            pool(&data);
        }
    }
}
