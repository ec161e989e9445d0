//! Tests of pools: blocks come back, and memory with them.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "blocks are aligned to 8 bytes (P2)"
)]

use super::depot::CHAINS_PER_ASK;
use super::*;

#[test]
fn freed_blocks_are_used_again_and_counted_to_zero() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let mut held = Vec::new();
    for bytes in (1..=BLOCK_BYTES_MAX + 1).step_by(37) {
        for _ in 0..3 {
            let block = pool.allocate(bytes);
            // SAFETY: the block is that long.
            unsafe { ptr::write_bytes(block.as_ptr(), 0xff, bytes) };
            held.push((block, bytes));
        }
    }
    assert_eq!(arena.usage().live_blocks, held.len() as u64);
    let mapped_bytes = arena.usage().mapped_bytes;
    for round in 0..2 {
        for (block, bytes) in held.drain(..) {
            // SAFETY: allocated with this length and freed once.
            unsafe { pool.free(block, bytes) };
        }
        assert_eq!(
            arena.usage(),
            ArenaUsage {
                mapped_bytes,
                ..ArenaUsage::default()
            }
        );
        if round == 0 {
            for bytes in (1..=BLOCK_BYTES_MAX).step_by(37) {
                held.push((pool.allocate(bytes), bytes));
            }
            assert_eq!(
                arena.usage().mapped_bytes,
                mapped_bytes,
                "blocks are used again"
            );
        }
    }
}

/// Of the blocks in the tests of chains.
const BYTES: usize = 32;

fn free_some(pool: &mut Pool, held: &mut Vec<NonNull<u8>>) {
    for block in held.drain(..500) {
        // SAFETY: allocated with this length and freed once.
        unsafe { pool.free(block, BYTES) };
    }
}

fn chain_count(arena: &Arena) -> usize {
    lock(&arena.depots[class_of_bytes(BYTES)]).chain_count()
}

/// A removal of everything would leave blocks in chains that come to their slabs when they have
/// left the cache.
#[test]
fn while_nobody_asks_for_blocks_they_go_to_their_slabs_at_once() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let mut held: Vec<_> = (0..2000).map(|_| pool.allocate(BYTES)).collect();
    let is_chained = || chain_count(&arena) > 0;
    free_some(&mut pool, &mut held);
    assert!(is_chained(), "the next pool takes them as they are");
    arena.settle();
    arena.settle();
    free_some(&mut pool, &mut held);
    assert!(!is_chained(), "nobody has asked since the last time");
    // More than the pool keeps itself, and than is left of the run that it cuts.
    held.extend((0..2000).map(|_| pool.allocate(BYTES)));
    free_some(&mut pool, &mut held);
    assert!(is_chained(), "somebody has");
    while !held.is_empty() {
        free_some(&mut pool, &mut held);
    }
    assert_eq!(arena.usage().live_blocks, 0);
}

/// As one that empties a tree, whose maintenance takes the blocks that it had.
#[test]
fn who_frees_much_and_asks_now_and_then_leaves_few_chains() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let mut held: Vec<_> = (0..4000).map(|_| pool.allocate(BYTES)).collect();
    while held.len() >= 500 {
        pool.settle();
        arena.settle();
        held.push(pool.allocate(BYTES));
        free_some(&mut pool, &mut held);
        let chains = chain_count(&arena);
        assert!(chains <= CHAINS_PER_ASK, "{chains} of one batch asked for");
    }
}

#[test]
fn reserved_chunks_are_used_before_new_ones() {
    let arena = Arena::new(Pages::Small);
    arena.reserve(Chunk::BYTES + 1);
    let mapped_bytes = arena.usage().mapped_bytes;
    assert_eq!(mapped_bytes, 2 * Chunk::BYTES as u64);
    let mut pool = arena.pool();
    // But for what headers and runs take.
    let blocks = 2 * Chunk::BYTES / BLOCK_BYTES_MAX - 2 * slab::SLABS / 8;
    for _ in 0..blocks {
        pool.allocate(BLOCK_BYTES_MAX);
    }
    assert_eq!(arena.usage().mapped_bytes, mapped_bytes);
    assert_eq!(pool.tend(), 0, "what is reserved is kept");
    for _ in 0..blocks {
        pool.allocate(BLOCK_BYTES_MAX);
    }
    assert!(arena.usage().mapped_bytes > mapped_bytes);
}

#[test]
fn blocks_of_line_multiples_lie_on_lines() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    for bytes in [64, 128, 320, 1024] {
        for _ in 0..70 {
            let address = pool.allocate(bytes).as_ptr() as usize;
            assert_eq!(address % 64, 0, "P2: {bytes}");
        }
    }
}

#[test]
fn blocks_freed_by_another_session_come_back_through_the_depot() {
    let arena = Arena::new(Pages::Small);
    let (mut first, mut second) = (arena.pool(), arena.pool());
    let blocks: Vec<_> = (0..1000).map(|_| first.allocate(24)).collect();
    for block in &blocks {
        // SAFETY: allocated with this length and freed once.
        unsafe { second.free(*block, 24) };
    }
    drop(second);
    let mapped_bytes = arena.usage().mapped_bytes;
    let mut again: Vec<_> = (0..1000).map(|_| first.allocate(24)).collect();
    again.sort_unstable();
    again.dedup();
    assert_eq!(
        (again.len(), arena.usage().mapped_bytes),
        (1000, mapped_bytes)
    );
    assert!(
        blocks
            .iter()
            .filter(|block| again.binary_search(block).is_ok())
            .count()
            > 800
    );
}

/// Blocks that one core has in its cache are not written by another one.
#[test]
fn a_pool_takes_its_own_chains_before_others() {
    const BYTES: usize = 32;
    const BLOCKS: usize = 4 * batch_count(BYTES);
    let arena = Arena::new(Pages::Small);
    let (mut first, mut second) = (arena.pool(), arena.pool());
    let take = |pool: &mut Pool| -> Vec<_> { (0..BLOCKS).map(|_| pool.allocate(BYTES)).collect() };
    let (own, others) = (take(&mut first), take(&mut second));
    free_all(&mut first, own, BYTES);
    free_all(&mut second, others.clone(), BYTES);
    // What it kept, the rest of its run, and a chain.
    let again = take(&mut first);
    assert!(again.iter().all(|block| !others.contains(block)));
    // The others' when it has no more of its own.
    let more = [take(&mut first), take(&mut first)].concat();
    assert!(more.iter().any(|block| others.contains(block)));
    free_all(&mut first, again, BYTES);
    free_all(&mut first, more, BYTES);
}

/// Frees blocks of `bytes` bytes.
fn free_all(pool: &mut Pool, blocks: Vec<NonNull<u8>>, bytes: usize) {
    for block in blocks {
        // SAFETY: the test allocated them with this length and frees them once.
        unsafe { pool.free(block, bytes) };
    }
}

/// Memory of one size serves the next, and what is not needed goes back.
#[test]
fn slabs_that_are_free_serve_any_class_and_go_back() {
    for pages in [Pages::Small, Pages::Huge] {
        let arena = Arena::new(pages);
        let (mut first, mut second) = (arena.pool(), arena.pool());
        let mut mapped_bytes = 0;
        for bytes in [24, 1000, 64, 4096, 200] {
            let count = 16 * Chunk::BYTES / bytes;
            let blocks: Vec<_> = (0..count).map(|_| first.allocate(bytes)).collect();
            let now = arena.usage().mapped_bytes;
            assert!(now < 19 * Chunk::BYTES as u64, "{bytes}: {now}");
            mapped_bytes = now.max(mapped_bytes);
            free_all(&mut second, blocks, bytes);
            second.settle();
            first.settle();
            arena.settle();
        }
        assert_eq!(arena.usage().live_blocks, 0);
        while first.tend() + second.tend() > 0 {}
        let left = arena.usage().mapped_bytes;
        assert!(left <= Chunk::BYTES as u64, "{left} of {mapped_bytes}");
        // And it is taken again.
        let blocks: Vec<_> = (0..100_000).map(|_| first.allocate(100)).collect();
        for block in &blocks {
            // SAFETY: the block is that long.
            unsafe { ptr::write_bytes(block.as_ptr(), 0xff, 100) };
        }
        free_all(&mut first, blocks, 100);
    }
}

/// A huge page is worth more than what a new chunk has free; and where one was split, it is whole
/// again when nothing of it is with the system any more.
#[test]
fn chunks_that_fill_up_are_not_split() {
    let arena = Arena::new(Pages::Huge);
    let mut pool = arena.pool();
    let bytes = 4096;
    let mut blocks = Vec::new();
    while blocks.len() < 8 * Chunk::BYTES / bytes {
        blocks.push(pool.allocate(bytes));
        assert_eq!(pool.tend(), 0, "after {} blocks", blocks.len());
    }
    assert_eq!(arena.split_chunks(), 0);
    // What stays keeps one slab of each chunk.
    let mut spread = Vec::new();
    let gone = blocks.drain(..).enumerate().filter_map(|(index, block)| {
        let stays = index % (Chunk::BYTES / bytes) == 0;
        let (stays, goes) = if stays {
            (Some(block), None)
        } else {
            (None, Some(block))
        };
        spread.extend(stays);
        goes
    });
    let gone: Vec<_> = gone.collect();
    free_all(&mut pool, gone, bytes);
    arena.settle();
    while pool.tend() > 0 {}
    assert!(arena.split_chunks() > 0);
    // Where chunks begin decides how many blocks that takes.
    let enough = 24 * Chunk::BYTES / bytes;
    while arena.split_chunks() > 0 && spread.len() < enough {
        spread.push(pool.allocate(bytes));
    }
    assert_eq!(arena.split_chunks(), 0);
    free_all(&mut pool, spread, bytes);
}

/// Blocks at random places in many slabs are moved by their owner until the slabs are free.
#[test]
fn slabs_are_emptied_by_moving_blocks() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let mut random = fastrand::Rng::with_seed(5);
    let mut blocks: Vec<_> = (0..300_000).map(|_| pool.allocate(64)).collect();
    random.shuffle(&mut blocks);
    let mapped_bytes = arena.usage().mapped_bytes;
    let freed = blocks.split_off(100_000);
    free_all(&mut pool, freed, 64);
    let mut rounds = 0;
    while pool.begin_emptying(Need::Tidy) {
        for block in &mut blocks {
            // SAFETY: the block is allocated.
            if unsafe { is_emptying(*block, 64) }
                && let Some(next) = pool.allocate_elsewhere(64)
            {
                // SAFETY: it was just allocated.
                assert!(!unsafe { is_emptying(next, 64) }, "PE1");
                let old = std::mem::replace(block, next);
                // SAFETY: nobody uses it any more.
                unsafe { pool.free(old, 64) };
            }
        }
        pool.end_emptying();
        while pool.tend() > 0 {}
        rounds += 1;
        assert!(rounds < 100);
    }
    let left = arena.usage().mapped_bytes;
    assert!(
        left * 10 < mapped_bytes * 6,
        "{left} of {mapped_bytes} after {rounds} rounds"
    );
    let mut distinct = blocks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), blocks.len(), "P1");
    free_all(&mut pool, blocks, 64);
}

/// A round looks at some of the memory only; what is free elsewhere is found by later ones.
#[test]
fn rounds_go_through_all_memory_in_turns() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let blocks: Vec<_> = (0..10 * Chunk::BYTES / 1024)
        .map(|_| pool.allocate(1024))
        .collect();
    // Of the last chunks, four blocks of five.
    let (kept, freed): (Vec<_>, Vec<_>) = blocks
        .into_iter()
        .enumerate()
        .partition(|(index, _)| *index < 6 * Chunk::BYTES / 1024 || index % 5 == 0);
    let blocks_of = |list: Vec<(usize, NonNull<u8>)>| list.into_iter().map(|(_, block)| block);
    free_all(&mut pool, blocks_of(freed).collect(), 1024);
    pool.settle();
    let kept: Vec<_> = blocks_of(kept).collect();
    let begun = (0..4).position(|_| pool.begin_emptying(Need::Short));
    assert!(begun.is_some_and(|vain| vain > 0), "{begun:?}");
    // SAFETY: the blocks are allocated.
    let emptied = kept
        .iter()
        .filter(|block| unsafe { is_emptying(**block, 1024) });
    assert!(emptied.count() > 0);
    pool.end_emptying();
    free_all(&mut pool, kept, 1024);
}

/// A round empties about as much as is too much, not all that is partly free.
#[test]
fn a_round_takes_no_more_slabs_than_are_needed() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let mut blocks: Vec<_> = (0..1 << 18).map(|_| pool.allocate(256)).collect();
    fastrand::Rng::with_seed(3).shuffle(&mut blocks);
    let surplus = |arena: &Arena| {
        let usage = arena.usage();
        usage.idle_bytes() as i64 - arena::allowance_bytes(usage.mapped_bytes) as i64
    };
    while surplus(&arena) <= 0 {
        let freed = blocks.split_off(blocks.len() - 256);
        free_all(&mut pool, freed, 256);
        assert!(surplus(&arena) > 0 || !pool.begin_emptying(Need::Short));
    }
    assert!(pool.begin_emptying(Need::Short));
    // SAFETY: the blocks are allocated.
    let emptying = blocks
        .iter()
        .filter(|block| unsafe { is_emptying(**block, 256) });
    let bytes = emptying.count() as u64 * 256;
    let allowance = arena::allowance_bytes(arena.usage().mapped_bytes);
    assert!(
        bytes > 0 && bytes <= allowance / 4 + (1 << 17),
        "{bytes} of {allowance}"
    );
    pool.end_emptying();
    free_all(&mut pool, blocks, 256);
}

/// What is idle beyond the allowance counts as used.
#[test]
fn idle_memory_counts_beyond_the_allowance() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let mut blocks: Vec<_> = (0..1 << 18).map(|_| pool.allocate(256)).collect();
    pool.tend();
    let idle = |arena: &Arena| arena.usage().idle_bytes();
    assert!(idle(&arena) < 3 << 20);
    // Every second one goes: no slab is free, nor can be.
    let mut index = 0;
    blocks.retain(|block| {
        index += 1;
        if index % 2 == 0 {
            // SAFETY: nobody uses it any more.
            unsafe { pool.free(*block, 256) };
        }
        index % 2 != 0
    });
    let usage = arena.count();
    let excess = usage.idle_bytes() - arena::allowance_bytes(usage.mapped_bytes);
    assert!(excess > 25 << 20);
    assert_eq!(arena.excess_bytes(), excess as usize);
    free_all(&mut pool, blocks, 256);
    while pool.tend() > 0 {}
    pool.settle();
    while pool.tend() > 0 {}
    assert_eq!(arena.excess_bytes(), 0);
}

/// Pools of several threads allocate, free each other's blocks, settle and tend at once, while one
/// empties slabs; every block keeps what was written to it.
#[test]
fn pools_of_many_threads_share_slabs() {
    let rounds = if cfg!(debug_assertions) { 30 } else { 200 };
    let arena = Arena::new(Pages::Small);
    let shared = std::sync::Mutex::new(Vec::<(usize, usize)>::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (arena, shared) = (&arena, &shared);
            scope.spawn(move || {
                let mut pool = arena.pool();
                let mut random = fastrand::Rng::with_seed(thread);
                for round in 0..rounds {
                    let mut made = Vec::new();
                    for _ in 0..2_000 {
                        let bytes = 16 << random.usize(..7);
                        let block = pool.allocate(bytes);
                        let stamp = block.as_ptr().cast::<usize>();
                        // SAFETY: every block holds two words.
                        unsafe { stamp.write(block.addr().get() ^ bytes) };
                        made.push((block.as_ptr().expose_provenance(), bytes));
                    }
                    let mut pot = shared.lock().unwrap();
                    pot.append(&mut made);
                    random.shuffle(&mut pot);
                    let left = random.usize(..12_000).min(pot.len());
                    let mine = pot.split_off(left);
                    drop(pot);
                    for (address, bytes) in mine {
                        let block = ptr::with_exposed_provenance_mut::<u8>(address);
                        // SAFETY: as above.
                        let stamp = unsafe { block.cast::<usize>().read() };
                        assert_eq!(stamp, address ^ bytes, "P1");
                        let block = NonNull::new(block).unwrap();
                        // SAFETY: taken from the pot once.
                        unsafe { pool.free(block, bytes) };
                    }
                    match round % 4 {
                        0 => drop(pool.tend()),
                        1 => pool.settle(),
                        2 if pool.begin_emptying(Need::Short) => {}
                        _ => pool.end_emptying(),
                    }
                }
            });
        }
    });
    let mut pool = arena.pool();
    for (address, bytes) in shared.into_inner().unwrap() {
        let block = NonNull::new(ptr::with_exposed_provenance_mut(address)).unwrap();
        // SAFETY: as above.
        unsafe { pool.free(block, bytes) };
    }
    pool.settle();
    arena.settle();
    assert_eq!(arena.usage().live_blocks, 0);
    while pool.tend() > 0 {}
    assert!(arena.usage().mapped_bytes <= Chunk::BYTES as u64);
}

/// PE2 room-to-move: what lies in slabs that are being emptied finds room in others of its class,
/// also where a class has few slabs, all of which are nearly empty.
#[test]
fn a_round_leaves_room_for_what_it_moves() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    let (mut kept, mut moved) = (Vec::new(), Vec::new());
    for class in 0..CLASS_COUNT {
        let class_bytes = bytes_of_class(class);
        let blocks: Vec<_> = (0..3 * SLAB_BYTES / class_bytes)
            .map(|_| pool.allocate(class_bytes))
            .collect();
        // One block in eight of every second class, of the others one in two.
        let one_in = if class % 2 == 0 { 8 } else { 2 };
        for (index, block) in blocks.into_iter().enumerate() {
            if index % one_in == 0 {
                kept.push((block, class));
            } else {
                // SAFETY: nobody uses it any more.
                unsafe { pool.free(block, class_bytes) };
            }
        }
    }
    pool.settle();
    arena.settle();
    assert!(pool.begin_emptying(Need::Short));
    for (block, class) in kept {
        let class_bytes = bytes_of_class(class);
        // SAFETY: the block is allocated.
        if unsafe { is_emptying(block, class_bytes) } {
            let room = pool.allocate_elsewhere(class_bytes);
            let room = room.unwrap_or_else(|| panic!("PE2: {class_bytes} bytes"));
            moved.push((room, class_bytes));
        }
        // SAFETY: as above.
        unsafe { pool.free(block, class_bytes) };
    }
    assert!(!moved.is_empty());
    for (block, class_bytes) in moved {
        // SAFETY: as above.
        unsafe { pool.free(block, class_bytes) };
    }
    pool.end_emptying();
}
