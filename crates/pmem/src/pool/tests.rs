//! The format, what is refused, and what every crash leaves.
//!
//! Each flush and fence is needed, which is shown by leaving it out:
//!
//! | mark | without it |
//! |---|---|
//! | `pool: flush of the head` | a new pool is there, and its committed epoch is not |
//! | `pool: flush of the header` | the newest header has a checksum and not what it covers |
//! | `commit: the fence before the word` | an epoch is committed, and what it stored is not there |
//! | `commit: the flush of the word` | what was acknowledged is gone, or the pool itself |
//! | `commit: the fence after the word` | the same, and a lost epoch's number is drawn again |

use super::*;
use crate::limits::POOL_BYTES_MIN;
use crate::{Platform, Sampling, Simulated, Trace};

const NODE_BYTES: u32 = 512;
const SHAPE: Shape = Shape {
    node_bytes: NODE_BYTES,
    chunk_bytes: 4096,
};

/// Where the tests keep cells: far from the head.
const CELLS_AT: u64 = 16384;

fn empty() -> Simulated {
    Simulated::new(POOL_BYTES_MIN)
}

/// The words of a pool with epoch 1 committed and epoch 2 begun.
fn some_pool() -> Vec<u64> {
    let pool = Pool::create(empty(), SHAPE).unwrap();
    pool.begin(LogEpoch(1)).unwrap();
    pool.commit(LogEpoch(1)).unwrap();
    pool.memory().words()
}

fn open(words: Vec<u64>) -> Result<Pool<Simulated>, PoolError> {
    Pool::open(Simulated::from(words), NODE_BYTES)
}

fn at(bytes: u64) -> usize {
    (bytes / WORD_BYTES) as usize
}

#[test]
fn golden_bytes() {
    let header = Header {
        node_bytes: 512,
        chunk_bytes: 4096,
        generation: 3,
        identity: *b"0123456789abcdef",
        bytes: POOL_BYTES_MIN,
        voids: vec![VoidRange {
            first: LogEpoch(5),
            last: LogEpoch(0x0102),
        }],
    };
    let memory = empty();
    header.write(&memory).unwrap();
    // SAFETY: nobody writes.
    let slot = unsafe { memory.read(Offset::new(SLOT_BYTES), 80) };
    let mut golden = b"PANDO\x1apm".to_vec();
    golden.extend([3, 0, 0, 0, 0, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend(b"0123456789abcdef");
    golden.extend([0, 128, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 1, 0, 0, 0]);
    golden.extend([0; 8]);
    golden.extend([5, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&golden[..56]), &golden[64..]);
    golden[56..60].copy_from_slice(&checksum.to_le_bytes());
    golden[63] = 128;
    assert_eq!(slot, golden);
    assert_eq!(sealed(LogEpoch(1)), 0x4cfa_d000_0000_0001);
}

#[test]
fn a_pool_that_was_closed_in_peace_goes_on_where_it_was() {
    let pool = Pool::create(empty(), SHAPE).unwrap();
    assert_eq!(pool.first_epoch(), LogEpoch(1));
    pool.begin(LogEpoch(1)).unwrap();
    pool.memory().store(pool.root(3), 7);
    pool.memory().flush(pool.root(3), 8);
    pool.commit(LogEpoch(1)).unwrap();
    pool.rest(LogEpoch(1)).unwrap();
    let again = open(pool.memory().words()).unwrap();
    assert_eq!(again.first_epoch(), LogEpoch(2));
    assert_eq!(again.identity(), pool.identity());
    assert_eq!(again.shape(), SHAPE);
    assert_eq!(again.memory().load(again.root(3)), 7);
    assert!(again.is_seen(LogEpoch(1)) && !again.is_seen(LogEpoch(2)));
    assert_eq!(again.voids(), []);
}

/// An opening that writes nothing closes in peace above what it has made void.
#[test]
fn a_pool_at_rest_goes_on_above_void_epochs() {
    let pool = open(some_pool()).unwrap();
    let first = pool.first_epoch();
    pool.rest(pool.committed()).unwrap();
    let again = open(pool.memory().words()).unwrap();
    assert!(again.is_void(LogEpoch(2)));
    assert_eq!(again.first_epoch(), first);
}

#[test]
fn a_lost_epoch_is_void_for_ever_and_its_number_is_not_drawn_again() {
    let pool = open(some_pool()).unwrap();
    let first = pool.first_epoch();
    assert_eq!(first, LogEpoch(EPOCHS_MARKED + 1));
    assert!(pool.is_void(LogEpoch(2)) && !pool.is_void(LogEpoch(1)));
    pool.begin(first).unwrap();
    pool.commit(first).unwrap();
    assert!(pool.is_seen(first) && !pool.is_seen(LogEpoch(2)));
    let words = pool.memory().words();
    // Restarts without work in between make no more ranges.
    let (once, twice) = (open(words.clone()).unwrap(), open(words).unwrap());
    assert_eq!(once.voids().len(), 2);
    let twice = open(twice.memory().words()).unwrap();
    assert_eq!(twice.voids(), once.voids());
    let gone = twice.voids()[0];
    twice.forget_voids(gone.last).unwrap();
    let last = open(twice.memory().words()).unwrap();
    assert_eq!(last.voids(), twice.voids());
    assert!(!last.is_void(gone.first));
}

#[test]
fn a_rollback_makes_void_what_came_after_and_swallows_older_ranges() {
    let pool = Pool::create(empty(), SHAPE).unwrap();
    for epoch in 1..=9 {
        pool.begin(LogEpoch(epoch)).unwrap();
        pool.commit(LogEpoch(epoch)).unwrap();
    }
    let next = pool.roll_back(LogEpoch(4)).unwrap();
    let seen = |pool: &Pool<_>, epochs: std::ops::RangeInclusive<u64>| {
        epochs
            .filter(|epoch| pool.is_seen(LogEpoch(*epoch)))
            .count()
    };
    assert_eq!(seen(&pool, 1..=9), 4);
    let again = open(pool.memory().words()).unwrap();
    assert!(again.first_epoch() >= next);
    assert_eq!(seen(&again, 1..=9), 4);
    again.roll_back(LogEpoch(2)).unwrap();
    assert_eq!(again.voids().len(), 1);
    assert_eq!(seen(&again, 1..=9), 2);
}

/// A pool that was opened as often as its header has room for, and once more.
#[test]
fn a_crowded_pool_begins_nothing_until_it_forgets() {
    let mut words = some_pool();
    let pool = loop {
        let pool = open(words.clone()).unwrap();
        if pool.is_crowded() {
            break pool;
        }
        let epoch = pool.first_epoch();
        pool.begin(epoch).unwrap();
        pool.commit(epoch).unwrap();
        words = pool.memory().words();
    };
    let (voids, first) = (pool.voids(), pool.first_epoch());
    assert_eq!(voids.len(), VOID_RANGES_MAX + 1);
    for range in &voids {
        assert!(pool.is_void(range.first) && pool.is_void(range.last));
        assert!(!pool.is_void(range.last.next()));
    }
    let refused = pool.begin(first).unwrap_err();
    let ranges = VOID_RANGES_MAX + 1;
    assert!(matches!(refused, PoolError::TooManyVoids { ranges: found } if found == ranges));
    // PL5 crowded: nothing was stored, and the next opening finds the same.
    assert_eq!(pool.memory().words(), words);
    let again = open(words).unwrap();
    assert_eq!(again.voids(), voids);
    again.forget_voids(voids[0].last).unwrap();
    assert!(!again.is_crowded());
    again.begin(first).unwrap();
    again.commit(first).unwrap();
    let last = open(again.memory().words()).unwrap();
    assert!(last.is_crowded(), "there was room for one");
    assert_eq!(last.voids()[..VOID_RANGES_MAX], voids[1..]);
}

#[test]
fn the_last_epoch_is_the_last() {
    let pool = Pool::create(empty(), SHAPE).unwrap();
    pool.begin(LogEpoch((1 << EPOCH_BITS) - 1)).unwrap();
    let error = pool.begin(LogEpoch(1 << EPOCH_BITS)).unwrap_err();
    assert!(matches!(error, PoolError::EpochsExhausted { .. }));
}

#[test]
fn what_is_no_pool_is_refused() {
    use PoolError::*;
    let words = some_pool();
    let changed = |place: u64, word: u64| {
        let mut words = words.clone();
        words[at(place)] = word;
        open(words).unwrap_err()
    };
    assert!(matches!(open(empty().words()), Err(Unfinished)));
    let foreign = vec![u64::from_le_bytes(*b"SQLite f"); words.len()];
    assert!(matches!(open(foreign), Err(Foreign)));
    let newer = changed(SLOT_BYTES + 8, 9 | u64::from(NODE_BYTES) << 32);
    assert!(matches!(
        newer,
        Newer {
            found: 9,
            newest: FORMAT
        }
    ));
    let mut older = words.clone();
    for slot in 0..2 {
        let word = older[at(slot * SLOT_BYTES + 8)];
        let change = word ^ (word >> 32 << 32 | 2);
        let memory = Simulated::from(older);
        super::reseal(&memory, slot, change << 4 | 1);
        older = memory.words();
    }
    let older = open(older).unwrap_err();
    assert!(matches!(
        older,
        Older {
            found: 2,
            ours: FORMAT
        }
    ));
    let mut short = words.clone();
    short.truncate(at(POOL_BYTES_MIN - 4096));
    assert!(matches!(open(short), Err(NoSize { .. })));
    let larger = Simulated::new(2 * POOL_BYTES_MIN);
    let mut cut = Pool::create(larger, SHAPE).unwrap().memory().words();
    cut.truncate(at(POOL_BYTES_MIN));
    let pool = 2 * POOL_BYTES_MIN;
    assert!(matches!(open(cut), Err(Truncated { pool: found, .. }) if found == pool));
    let doubled = words.repeat(2);
    assert!(matches!(open(doubled), Err(OtherSize { wanted, .. }) if wanted == pool));
    let nodes = Pool::open(Simulated::from(words.clone()), 1024).unwrap_err();
    assert!(matches!(
        nodes,
        OtherNodes {
            pool: 512,
            wanted: 1024
        }
    ));
    for bytes in [
        0,
        1,
        POOL_BYTES_MIN - 4096,
        POOL_BYTES_MIN + 1,
        POOL_BYTES_MAX + 4096,
    ] {
        assert!(matches!(check_size(bytes), Err(NoSize { .. })), "{bytes}");
    }
    for bytes in [POOL_BYTES_MIN, POOL_BYTES_MIN + 4096, POOL_BYTES_MAX] {
        check_size(bytes).unwrap();
    }
}

#[test]
fn a_bit_that_flips_in_the_head_is_found_and_named() {
    let words = {
        // Both slots hold a header.
        let pool = open(some_pool()).unwrap();
        pool.memory().words()
    };
    let committed = open(words.clone()).unwrap().committed();
    let in_slots = (0..2).flat_map(|slot| slot * 512..slot * 512 + 10);
    let words_of_head = in_slots.chain([at(COMMITTED_AT.get()), at(MARK_AT.get())]);
    for place in words_of_head {
        for bit in 0..64 {
            let mut words = words.clone();
            words[place] ^= 1 << bit;
            match open(words) {
                // The older slot is not needed.
                Ok(pool) => assert!((512..522).contains(&place) && pool.committed() == committed),
                Err(PoolError::Damaged { at, .. }) => {
                    let place = place as u64 * WORD_BYTES;
                    assert!(at.get() <= place && place < at.get() + SLOT_BYTES);
                }
                Err(PoolError::Newer { .. }) => assert!(place % 512 == 1),
                Err(error) => panic!("bit {bit} of {place}: {error}"),
            }
        }
    }
}

/// A cell: the epoch that changed it last.
fn cell(epoch: LogEpoch) -> Offset {
    Offset::new(CELLS_AT + epoch.0 % 60 * LINE_BYTES)
}

fn change(pool: &Pool<Simulated>, epoch: LogEpoch) {
    pool.memory().store(cell(epoch), epoch.0);
    pool.memory().mark(Mark("test: flush of a cell"));
    pool.memory().flush(cell(epoch), 8);
}

/// Creates a pool, commits two epochs, rolls back to the first, and leaves one open.
fn workload(memory: Simulated) -> Trace {
    let pool = Pool::create(memory, SHAPE).unwrap();
    pool.memory().note(0);
    for epoch in [1, 2] {
        pool.begin(LogEpoch(epoch)).unwrap();
        change(&pool, LogEpoch(epoch));
        pool.commit(LogEpoch(epoch)).unwrap();
        pool.memory().note(epoch);
    }
    let next = pool.roll_back(LogEpoch(1)).unwrap();
    pool.memory().note(3);
    pool.begin(next).unwrap();
    change(&pool, next);
    pool.memory().fence();
    pool.memory().trace()
}

/// What is wrong with what a crash left, after `noted` steps of the workload.
fn fault(memory: Simulated, noted: Option<u64>) -> Option<String> {
    let pool = match Pool::open(memory, NODE_BYTES) {
        Ok(pool) => pool,
        Err(PoolError::Unfinished) if noted.is_none() => return None,
        Err(error) => return Some(error.to_string()),
    };
    let stored = (0..60).map(|index| cell(LogEpoch(index)));
    let stored: Vec<_> = stored.map(|at| LogEpoch(pool.memory().load(at))).collect();
    let seen: Vec<u64> = (1..=2)
        .filter(|epoch| pool.is_seen(LogEpoch(*epoch)))
        .collect();
    let expected: &[&[u64]] = match noted {
        None => &[&[]],
        Some(0) => &[&[], &[1]],
        Some(1) => &[&[1], &[1, 2]],
        Some(2) => &[&[1, 2], &[1]],
        Some(_) => &[&[1]],
    };
    if !expected.contains(&seen.as_slice()) {
        return Some(format!("after {noted:?}: {seen:?} is seen"));
    }
    if seen.iter().any(|epoch| !stored.contains(&LogEpoch(*epoch))) {
        return Some(format!("of {seen:?} something is missing: {stored:?}"));
    }
    let reused = stored.iter().find(|epoch| **epoch >= pool.first_epoch());
    if let Some(epoch) = reused {
        return Some(format!("epoch {epoch} would be drawn again"));
    }
    // What is void stays void when more is committed.
    let next = pool.first_epoch();
    pool.begin(next).unwrap();
    pool.commit(next).unwrap();
    let still = (1..next.0.min(3)).filter(|epoch| pool.is_seen(LogEpoch(*epoch)));
    let still: Vec<u64> = still.collect();
    (still != seen).then(|| format!("{seen:?} was seen, then {still:?}"))
}

fn fault_of(trace: &Trace, platform: Platform) -> Option<String> {
    let mut fault = None;
    trace.crashes(platform, |crash| {
        let noted = crash.noted().last().copied();
        for image in crash.images(Sampling::default()) {
            if fault.is_none() {
                let found = self::fault(image.memory(), noted);
                let place = format!("crash {}, {:?}", crash.number, image.choice);
                fault = found.map(|found| format!("{found} ({place})"));
            }
        }
    });
    fault
}

#[test]
fn a_crash_anywhere_leaves_a_prefix_of_the_epochs() {
    let trace = workload(Simulated::recording(empty().words()));
    for platform in [Platform::Lines, Platform::Words, Platform::Commits] {
        assert_eq!(fault_of(&trace, platform), None, "{platform:?}");
    }
}

#[test]
fn a_crash_in_an_opening_leaves_what_the_opening_found() {
    let trace = workload(Simulated::recording(empty().words()));
    let few = Sampling {
        exhaustive_max: 8,
        samples: 2,
        seed: 3,
    };
    trace.crashes(Platform::Lines, |crash| {
        let noted = crash.noted().last().copied();
        for image in crash.images(few) {
            let Ok(pool) = Pool::open(image.recording(), NODE_BYTES) else {
                continue;
            };
            pool.memory().trace().crashes(Platform::Lines, |again| {
                for image in again.images(few) {
                    assert_eq!(fault(image.memory(), noted), None, "{:?}", image.choice);
                }
            });
        }
    });
}

#[test]
fn canary_each_flush_and_fence_of_a_pool_is_needed() {
    let trace = workload(Simulated::recording(empty().words()));
    for counted in trace.marks() {
        let Some(mark) = counted.mark else {
            // The fence of the open epoch, which no commit follows.
            continue;
        };
        let fault = fault_of(&trace.without(mark, None), Platform::Lines);
        assert!(fault.is_some(), "{mark:?} is not needed");
    }
}
