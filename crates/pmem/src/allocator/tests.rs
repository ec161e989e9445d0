//! Blocks are taken, freed and found after every crash.
//!
//! Each flush and fence is needed, which is shown by leaving it out:
//!
//! | mark | without it |
//! |---|---|
//! | `allocator: flush of records` | a block that was freed stays taken, or one that was taken is free |
//! | `allocator: flush of the number of chunks`, and the fence after it | a chunk counts as never used, and bytes in it are read as records |
//! | `allocator: flush of an emptied descriptor` | a chunk is read as what it was, with bytes for records |
//! | `allocator: flush of a zeroed table`, and the fence after it | bytes of an earlier use are read as records |
//! | `allocator: flush of a span's descriptors` | a span is lost, or the table of an earlier slab is read in it |
//! | `allocator: fence after a span's descriptors` | the same, of its bytes |
//! | `allocator: flush of a cleaned record` | a void epoch is forgotten and counts again |
//!
//! And where only words are whole:
//!
//! | mark | without it |
//! |---|---|
//! | `allocator, words: flush of a taking`, and the fence after it | what a lost epoch freed is taken for what an earlier one took |
//! | `allocator, words: fence of an empty chunk` | a record of its old table counts that has lost what freed the block |

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::*;
use crate::limits::POOL_BYTES_MIN;
use crate::{Choice, Platform, Sampling, Shape, Simulated, Trace};

/// Few blocks to a chunk and few chunks to a pool, so that both are used again soon.
const SHAPE: Shape = Shape {
    node_bytes: 512,
    chunk_bytes: 1024,
};

fn allocator(memory: Simulated) -> Allocator<Simulated> {
    let pool = Pool::create(memory, SHAPE).unwrap();
    Allocator::new(Arc::new(pool)).unwrap()
}

fn reopened(memory: Simulated) -> Allocator<Simulated> {
    let pool = Pool::open(memory, SHAPE.node_bytes).unwrap();
    Allocator::new(Arc::new(pool)).unwrap()
}

fn fresh() -> Allocator<Simulated> {
    allocator(Simulated::new(POOL_BYTES_MIN))
}

/// Commits an epoch and lets go of what was freed in it.
fn commit(allocator: &Allocator<Simulated>, epoch: LogEpoch) {
    allocator.settle();
    allocator.pool().commit(epoch).unwrap();
    allocator.set_horizon(epoch);
}

/// The blocks that are taken, with their bytes.
fn taken(allocator: &Allocator<Simulated>) -> BTreeMap<Offset, u64> {
    let mut taken = BTreeMap::new();
    allocator.blocks(|at, bytes, state| {
        assert_ne!(state, BlockState::Damaged, "{at}");
        if state == BlockState::Taken {
            taken.insert(at, bytes);
        }
    });
    taken
}

/// Takes blocks of so many bytes until there are no more.
fn fill(allocator: &Allocator<Simulated>, bytes: u64, epoch: LogEpoch) -> Vec<Offset> {
    std::iter::from_fn(|| allocator.allocate(bytes, epoch).ok()).collect()
}

fn begin(allocator: &Allocator<Simulated>, epoch: u64) -> LogEpoch {
    let epoch = LogEpoch(epoch);
    allocator.pool().begin(epoch).unwrap();
    epoch
}

#[test]
fn blocks_do_not_overlap_and_all_of_the_pool_is_given_out() {
    for bytes in [16, 64, 100, 480, 481, 1024, 3000] {
        let allocator = fresh();
        let epoch = begin(&allocator, 1);
        let blocks = fill(&allocator, bytes, epoch);
        let end = allocator.pool().memory().bytes();
        let mut after = allocator.first_chunk.get();
        let mut sorted = blocks.clone();
        sorted.sort();
        for at in sorted {
            assert!(at.get() >= after, "{bytes}: {at}");
            after = at.get() + bytes;
            assert!(after <= end);
            assert!(!bytes.is_multiple_of(64) || at.get().is_multiple_of(64));
        }
        let room = end - allocator.first_chunk.get();
        assert!(
            blocks.len() as u64 * bytes * 5 > room * 2,
            "{bytes}: {} blocks",
            blocks.len()
        );
        assert_eq!(allocator.allocate(bytes, epoch), Err(Full { bytes }));
    }
}

#[test]
fn two_sides_share_no_line() {
    let allocator = fresh();
    let epoch = begin(&allocator, 1);
    let lines = |side: usize| -> BTreeSet<u64> {
        let wanted = (Purpose::Growth, Side::of(side));
        let block = || allocator.allocate_for(wanted, 32, epoch).unwrap();
        // A line has two blocks; their records lie before them.
        (0..5).map(|_| block().get() / LINE_BYTES).collect()
    };
    let (one, other) = (lines(0), lines(1));
    assert!(one.is_disjoint(&other));
}

#[test]
fn a_side_without_room_takes_over_what_others_have_in_hand() {
    for bytes in [48, 480, 2000] {
        let (one, allocator) = (fresh(), fresh());
        let epoch = begin(&one, 1);
        let all = fill(&one, bytes, epoch).len();
        let epoch = begin(&allocator, 1);
        let first = (0..4).map(|side| {
            let wanted = (Purpose::Growth, Side::of(side));
            allocator.allocate_for(wanted, bytes, epoch).unwrap()
        });
        let mut blocks: Vec<_> = first.collect();
        blocks.extend(fill(&allocator, bytes, epoch));
        let distinct: BTreeSet<_> = blocks.iter().collect();
        assert_eq!([distinct.len(), blocks.len()], [all; 2], "{bytes}");
        commit(&allocator, epoch);
        let epoch = begin(&allocator, 2);
        for (number, at) in blocks.iter().enumerate() {
            allocator.free_at(Side::of(number), *at, epoch);
        }
        commit(&allocator, epoch);
        let epoch = begin(&allocator, 3);
        assert_eq!(fill(&allocator, bytes, epoch).len(), all, "{bytes}");
    }
}

#[test]
fn what_was_freed_is_given_out_again_when_the_horizon_has_passed() {
    for bytes in [48, 480, 2000] {
        let allocator = fresh();
        let one = begin(&allocator, 1);
        let blocks = fill(&allocator, bytes, one);
        commit(&allocator, one);
        let two = begin(&allocator, 2);
        for at in &blocks {
            allocator.free(*at, two);
        }
        assert!(allocator.allocate(bytes, two).is_err(), "{bytes}");
        commit(&allocator, two);
        let three = begin(&allocator, 3);
        let mut again = fill(&allocator, bytes, three);
        again.sort();
        let mut blocks = blocks;
        blocks.sort();
        assert_eq!(again, blocks, "{bytes}");
    }
}

#[test]
fn the_tally_is_what_a_look_at_every_block_finds() {
    let allocator = fresh();
    let (mut rng, mut blocks) = (Rng::with_seed(7), Vec::new());
    let tally =
        |allocator: &Allocator<Simulated>| (allocator.tally().taken(), allocator.tally().waiting());
    for number in 1..300 {
        let epoch = begin(&allocator, number);
        for _ in 0..4 {
            let bytes = [24, 200, 480, 1500][rng.usize(..4)];
            blocks.extend(allocator.allocate(bytes, epoch));
            if rng.bool() && !blocks.is_empty() {
                let at = blocks.swap_remove(rng.usize(..blocks.len()));
                allocator.free(at, epoch);
            }
        }
        allocator.settle();
        allocator.pool().commit(epoch).unwrap();
        if rng.u8(..8) == 0 {
            allocator.set_horizon(epoch);
            // Where many epochs wait, some pass together, later.
            assert_eq!(tally(&allocator).1, 0);
        }
        assert_eq!(tally(&allocator), allocator.count());
    }
    let (taken, waiting) = tally(&allocator);
    allocator.forget();
    allocator.recall(taken, waiting);
    assert_eq!(tally(&allocator), allocator.count());
    assert!(taken <= allocator.tally().bytes_max());
}

#[test]
fn room_of_one_size_becomes_room_of_another() {
    let allocator = fresh();
    let mut epoch = LogEpoch(0);
    let mut next = || {
        epoch = epoch.next();
        allocator.pool().begin(epoch).unwrap();
        epoch
    };
    let mut counts = Vec::new();
    for bytes in [32, 3000, 480, 1500, 32, 480] {
        let epoch = next();
        let blocks = fill(&allocator, bytes, epoch);
        counts.push(blocks.len());
        commit(&allocator, epoch);
        let epoch = next();
        for at in blocks {
            allocator.free(at, epoch);
        }
        commit(&allocator, epoch);
    }
    assert_eq!((counts[0], counts[2]), (counts[4], counts[5]));
    assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
}

#[test]
fn a_block_that_still_waits_is_found_once_the_horizon_moves() {
    let allocator = fresh();
    let one = begin(&allocator, 1);
    let blocks = fill(&allocator, 32, one);
    commit(&allocator, one);
    let two = begin(&allocator, 2);
    allocator.free(blocks[7], two);
    assert_eq!(allocator.allocate(32, two), Err(Full { bytes: 32 }));
    commit(&allocator, two);
    let three = begin(&allocator, 3);
    assert_eq!(allocator.allocate(32, three), Ok(blocks[7]));
}

#[test]
fn a_full_pool_has_room_for_removals() {
    for bytes in [100, 400, 1000] {
        let allocator = allocator(Simulated::new(256 * 1024));
        let chunks = allocator.chunks;
        let reserved = chunks - supply::growth_max(chunks);
        assert_eq!(reserved, crate::limits::RESERVED_MIN);
        let epoch = begin(&allocator, 1);
        fill(&allocator, bytes, epoch);
        let removals = std::iter::from_fn(|| {
            allocator
                .allocate_for((Purpose::Removal, Side::FIRST), bytes, epoch)
                .ok()
        });
        let removals = removals.count() as u64;
        let slab = allocator
            .classes
            .of(bytes)
            .map(|class| allocator.slab(class).blocks);
        assert_eq!(removals, reserved * slab.unwrap_or(1), "{bytes}");
        assert_eq!(allocator.allocate(bytes, epoch), Err(Full { bytes }));
    }
}

#[test]
#[should_panic(expected = "is freed in epoch 1")]
fn a_block_is_freed_once() {
    let allocator = fresh();
    let epoch = begin(&allocator, 1);
    let at = allocator.allocate(100, epoch).unwrap();
    allocator.free(at, epoch);
    allocator.free(at, epoch);
}

#[test]
#[should_panic(expected = "no block begins at")]
fn what_is_no_block_is_not_freed() {
    let allocator = fresh();
    let epoch = begin(&allocator, 1);
    let at = allocator.allocate(100, epoch).unwrap();
    allocator.free(at.plus(16), epoch);
}

#[test]
fn a_rollback_brings_back_what_was_freed_and_takes_what_was_taken() {
    let allocator = fresh();
    let one = begin(&allocator, 1);
    let kept = allocator.allocate(100, one).unwrap();
    let span = allocator.allocate(2000, one).unwrap();
    allocator.settle();
    allocator.pool().commit(one).unwrap();
    let two = begin(&allocator, 2);
    allocator.free(kept, two);
    allocator.free(span, two);
    let late = allocator.allocate(500, two).unwrap();
    allocator.settle();
    allocator.pool().commit(two).unwrap();
    assert_eq!(taken(&allocator).into_keys().collect::<Vec<_>>(), [late]);
    allocator.pool().roll_back(one).unwrap();
    allocator.forget();
    assert_eq!(
        taken(&allocator).into_keys().collect::<Vec<_>>(),
        [kept, span]
    );
    // Once it is cleaned up, the pool needs to remember nothing of it.
    let gone = allocator.pool().voids();
    assert_eq!(allocator.clean(0, 2), Some(2));
    assert_eq!(allocator.clean(2, 100), None);
    allocator
        .pool()
        .forget_voids(gone[gone.len() - 1].last)
        .unwrap();
    assert_eq!(allocator.pool().voids(), []);
    assert_eq!(
        taken(&allocator).into_keys().collect::<Vec<_>>(),
        [kept, span]
    );
}

#[test]
fn damage_is_found_and_never_handed_out() {
    let allocator = fresh();
    let one = begin(&allocator, 1);
    let blocks = fill(&allocator, 200, one);
    commit(&allocator, one);
    let two = begin(&allocator, 2);
    for at in &blocks {
        allocator.free(*at, two);
    }
    commit(&allocator, two);
    let mut words = allocator.pool().memory().words();
    let record = Record::of_block(allocator.chunk_at(1), 2).0.get() / 8;
    words[record as usize] ^= 1 << 3;
    words[descriptor_at(3).get() as usize / 8] ^= 1 << 50;
    let again = reopened(Simulated::from(words));
    again.set_horizon(two);
    let three = again.pool().first_epoch();
    again.pool().begin(three).unwrap();
    let found = fill(&again, 200, three);
    let slab = again.slab(again.classes.of(200).unwrap());
    assert_eq!(found.len() as u64, blocks.len() as u64 - 1 - slab.blocks);
    let mut damaged = Vec::new();
    again.blocks(|at, _, state| {
        if state == BlockState::Damaged {
            damaged.push(at);
        }
    });
    let (_, at) = again.block(1, again.classes.of(200).unwrap(), 2);
    assert_eq!(damaged, [at]);
}

#[test]
fn threads_take_and_free_side_by_side() {
    let memory = Simulated::new(1 << 20);
    let pool = Pool::create(
        memory,
        Shape {
            chunk_bytes: 4096,
            ..SHAPE
        },
    )
    .unwrap();
    let allocator = Allocator::new(Arc::new(pool)).unwrap();
    let sizes = [16, 40, 100, 600, 1000, 5000];
    for round in 1..=20 {
        let epoch = begin(&allocator, round);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let allocator = &allocator;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(round * 10 + thread);
                    let mut own = Vec::new();
                    for _ in 0..300 {
                        let bytes = sizes[rng.usize(..sizes.len())];
                        let wanted = (Purpose::Growth, Side::of(thread as usize));
                        if let Ok(at) = allocator.allocate_for(wanted, bytes, epoch) {
                            allocator.pool().memory().store(at, thread);
                            own.push(at);
                        }
                    }
                    for at in own {
                        assert_eq!(allocator.pool().memory().load(at), thread);
                        allocator.free(at, epoch);
                    }
                });
            }
        });
        commit(&allocator, epoch);
        assert_eq!(taken(&allocator), BTreeMap::new());
    }
}

/// What a workload did to the blocks that an epoch left: position and bytes asked for.
type Model = BTreeMap<Offset, u64>;

/// A run, with what each of its epochs left.
struct Run {
    trace: Trace,
    models: BTreeMap<LogEpoch, Model>,
}

/// The words of a block that are written: the first of each line.
fn written(at: Offset, bytes: u64) -> impl Iterator<Item = Offset> {
    (0..bytes)
        .step_by(LINE_BYTES as usize)
        .map(move |word| at.plus(word))
}

/// An epoch that counts, and after which nothing was freed that has not been taken again.
const SCRIBBLED: LogEpoch = LogEpoch(3);

/// What is written there looks like an epoch: read as a record, it would count.
fn scribble(memory: &Simulated, at: Offset, bytes: u64) {
    for word in written(at, bytes) {
        memory.store(word, crate::pool::sealed(SCRIBBLED));
    }
    memory.mark(Mark("test: flush of a block"));
    memory.flush(at, bytes as usize);
}

fn operation(allocator: &Allocator<Simulated>, model: &mut Model, rng: &mut Rng, epoch: LogEpoch) {
    if !model.is_empty() && rng.u8(..9) < 5 {
        let at = *model.keys().nth(rng.usize(..model.len())).unwrap();
        model.remove(&at);
        allocator.free(at, epoch);
        return;
    }
    let bytes = [40, 200, 480, 1024, 2500][rng.usize(..5)];
    let wanted = (Purpose::Growth, Side::of(rng.usize(..2)));
    if let Ok(at) = allocator.allocate_for(wanted, bytes, epoch) {
        scribble(allocator.pool().memory(), at, bytes);
        assert!(
            model.insert(at, bytes).is_none(),
            "{at} was handed out twice"
        );
    }
}

/// Runs a workload on an allocator, epoch by epoch; a note is an epoch that was acknowledged.
fn work(allocator: &Allocator<Simulated>, mut model: Model, seed: u64, epochs: u64) -> Run {
    let mut rng = Rng::with_seed(seed);
    let mut models = BTreeMap::from([(allocator.pool().committed(), model.clone())]);
    let memory = allocator.pool().memory();
    memory.note(allocator.pool().committed().0);
    let first = allocator.pool().first_epoch();
    for number in 0..epochs {
        let epoch = LogEpoch(first.0 + number);
        allocator.pool().begin(epoch).unwrap();
        for _ in 0..rng.usize(1..6) {
            operation(allocator, &mut model, &mut rng, epoch);
        }
        models.insert(epoch, model.clone());
        commit(allocator, epoch);
        memory.note(epoch.0);
    }
    Run {
        trace: memory.trace(),
        models,
    }
}

/// A recorded run on a new pool; every third one on a pool whose chunks have all been slabs.
fn run(seed: u64, epochs: u64) -> Run {
    run_on(Platform::Lines, seed, epochs)
}

/// The same on a machine that keeps this whole.
fn run_on(machine: Platform, seed: u64, epochs: u64) -> Run {
    let allocator = fresh();
    if seed % 3 == 2 {
        let one = begin(&allocator, 1);
        let blocks = fill(&allocator, [16, 40][seed as usize % 2], one);
        commit(&allocator, one);
        let two = begin(&allocator, 2);
        for at in blocks {
            allocator.free(at, two);
        }
        commit(&allocator, two);
    }
    commit(&allocator, begin(&allocator, SCRIBBLED.0));
    let memory = Simulated::recording(allocator.pool().memory().words());
    let allocator = reopened(memory.on(machine));
    allocator.set_horizon(allocator.pool().committed());
    work(&allocator, Model::new(), seed, epochs)
}

/// Opens what a crash left and compares it with the model of the epoch that is committed there.
fn check(memory: Simulated, run: &Run, acknowledged: u64) -> Result<Allocator<Simulated>, String> {
    let pool = Pool::open(memory, SHAPE.node_bytes).map_err(|error| error.to_string())?;
    let allocator = Allocator::new(Arc::new(pool)).map_err(|error| error.to_string())?;
    let committed = allocator.pool().committed();
    if committed.0 < acknowledged {
        return Err(format!(
            "epoch {acknowledged} was acknowledged, {committed} is there"
        ));
    }
    let model = &run.models[&committed];
    let mut found = Model::new();
    let mut damaged = None;
    allocator.blocks(|at, bytes, state| match state {
        BlockState::Taken => drop(found.insert(at, bytes)),
        BlockState::Damaged => damaged = Some(at),
        BlockState::Free | BlockState::Freed(_) => {}
    });
    if let Some(at) = damaged {
        return Err(format!("block {at} is damaged"));
    }
    let leaked = found.keys().find(|at| !model.contains_key(at));
    let lost = model.keys().find(|at| !found.contains_key(at));
    if leaked.is_some() || lost.is_some() {
        return Err(format!(
            "epoch {committed}: leaked {leaked:?}, lost {lost:?}"
        ));
    }
    let torn = model.iter().find(|(at, bytes)| {
        let expected = crate::pool::sealed(SCRIBBLED);
        let memory = allocator.pool().memory();
        written(**at, **bytes).any(|word| memory.load(word) != expected)
    });
    match torn {
        Some((at, _)) => Err(format!("block {at} lost its bytes")),
        None => Ok(allocator),
    }
}

/// Whether all room that is not the model's can be taken after a crash, and nothing else.
fn check_room(allocator: &Allocator<Simulated>, model: &Model) -> Result<(), String> {
    let committed = allocator.pool().committed();
    allocator.set_horizon(committed);
    let epoch = allocator.pool().first_epoch();
    allocator.pool().begin(epoch).unwrap();
    let mut used = model.clone();
    let fresh = allocator.chunk_at(supply::chunks_used(allocator.pool(), u64::MAX).unwrap());
    let mut fresh_seen = false;
    for bytes in [40, 480] {
        while let Ok(at) = allocator.allocate(bytes, epoch) {
            let before = used.range(..=at).next_back();
            if let Some((other, _)) = before.filter(|(other, bytes)| other.plus(**bytes) > at) {
                return Err(format!("{at} lies in {other}"));
            }
            used.insert(at, bytes);
            if at >= fresh
                && !mem::replace(&mut fresh_seen, true)
                && !taken(allocator).keys().eq(used.keys())
            {
                return Err("a fresh chunk has blocks that nobody took".to_owned());
            }
        }
    }
    let room = allocator.pool().memory().bytes() - allocator.first_chunk.get();
    let given: u64 = used.values().sum();
    if given * 5 < room * 2 {
        return Err(format!("{given} bytes of {room} could be given out"));
    }
    Ok(())
}

fn fault_at(trace: &Trace, run: &Run, platform: Platform, sampling: Sampling) -> Option<String> {
    let mut fault = None;
    trace.crashes(platform, |crash| {
        let acknowledged = crash.noted().last().copied().unwrap_or(0);
        for image in crash.images(sampling) {
            if fault.is_some() {
                return;
            }
            let checked = check(image.memory(), run, acknowledged).and_then(|allocator| {
                // Every image of a kind that is cheap to judge, and some others.
                match image.choice {
                    Choice::Every(number) | Choice::Sample(number) if number % 8 > 0 => Ok(()),
                    Choice::Early { .. } | Choice::Late { .. } => Ok(()),
                    _ => check_room(&allocator, &run.models[&allocator.pool().committed()]),
                }
            });
            let place = || format!("crash {}, {:?}", crash.number, image.choice);
            fault = checked.err().map(|found| format!("{found} ({})", place()));
        }
    });
    fault
}

const FEW: Sampling = Sampling {
    exhaustive_max: 16,
    samples: 4,
    seed: 1,
};

#[test]
fn a_crash_anywhere_leaks_nothing_and_gives_nothing_out_twice() {
    for seed in 0..6 {
        for platform in [Platform::Lines, Platform::Words, Platform::Commits] {
            let run = run_on(platform, seed, 12);
            let fault = fault_at(&run.trace, &run, platform, FEW);
            assert_eq!(fault, None, "seed {seed}, {platform:?}");
        }
    }
}

#[test]
fn a_second_run_after_a_crash_crashes_as_well() {
    for seed in 0..4 {
        let first = run(seed, 8);
        let mut images = Vec::new();
        first.trace.crashes(Platform::Lines, |crash| {
            let one = Sampling {
                exhaustive_max: 1,
                samples: 1,
                seed,
            };
            if crash.number % 7 == seed as usize % 7 {
                images.extend(crash.images(one).last());
            }
        });
        for image in images {
            let allocator = reopened(image.recording());
            let committed = allocator.pool().committed();
            allocator.set_horizon(committed);
            let model = first.models[&committed].clone();
            let second = work(&allocator, model, seed + 99, 6);
            let two = Sampling {
                exhaustive_max: 2,
                samples: 2,
                seed,
            };
            // Until the first note, a crash is one of the opening.
            let mut run = second;
            run.models
                .insert(committed, first.models[&committed].clone());
            let fault = fault_at(&run.trace, &run, Platform::Lines, two);
            assert_eq!(fault, None, "seed {seed}");
        }
    }
}

/// Whether each flush and fence is needed of which the mark begins with this; how many there are.
fn check_each_is_needed(machine: Platform, of: &str, seeds: u64) -> usize {
    let runs: Vec<_> = (0..seeds).map(|seed| run_on(machine, seed, 12)).collect();
    let marks: std::collections::BTreeSet<_> = runs
        .iter()
        .flat_map(|run| run.trace.marks())
        .map(|counted| counted.mark.expect("each flush and fence is named"))
        .filter(|mark| mark.0.starts_with(of))
        .collect();
    for mark in &marks {
        let needed = runs
            .iter()
            .any(|run| fault_at(&run.trace.without(*mark, None), run, machine, FEW).is_some());
        assert!(needed, "{mark:?} is not needed");
    }
    marks.len()
}

#[test]
fn canary_each_flush_and_fence_of_the_allocator_is_needed() {
    assert_eq!(check_each_is_needed(Platform::Lines, "allocator:", 16), 8);
    assert_eq!(
        check_each_is_needed(Platform::Words, "allocator, words:", 64),
        3
    );
}

#[test]
fn an_allocation_costs_no_fence_and_a_quarter_of_a_line() {
    let words = allocator(Simulated::new(1 << 20)).pool().memory().words();
    let allocator = reopened(Simulated::recording(words));
    let epoch = begin(&allocator, 1);
    // A slab of 32 blocks, and 8 of another.
    for _ in 0..40 {
        allocator.allocate(16, epoch).unwrap();
    }
    let before = allocator.pool().memory().trace().cost();
    allocator.settle();
    let after = allocator.pool().memory().trace().cost();
    // Records, four to a line, and the descriptors of two chunks.
    assert_eq!((after.0 - before.0, after.1 - before.1), (8 + 2 + 1, 0));
}

/// What a crash leaves after void epochs were cleaned up and forgotten.
fn cleaned(without: Option<Mark>) -> Option<String> {
    let allocator = fresh();
    let one = begin(&allocator, 1);
    let kept = allocator.allocate(200, one).unwrap();
    scribble(allocator.pool().memory(), kept, 200);
    commit(&allocator, one);
    let two = begin(&allocator, 2);
    allocator.free(kept, two);
    allocator.allocate(200, two).unwrap();
    allocator.settle();
    let image = Simulated::recording(allocator.pool().memory().words());
    let allocator = reopened(image);
    assert_eq!(allocator.clean(0, u64::MAX), None);
    let pool = allocator.pool();
    pool.forget_voids(LogEpoch(u64::MAX)).unwrap();
    // Time goes by.
    let next = begin(&allocator, pool.first_epoch().0);
    commit(&allocator, next);
    let trace = pool.memory().trace();
    let trace = without.map_or(trace.clone(), |mark| trace.without(mark, None));
    let model = Model::from([(kept, 200)]);
    let run = Run {
        trace: trace.clone(),
        models: BTreeMap::from([(one, model.clone()), (next, model)]),
    };
    fault_at(&trace, &run, Platform::Lines, FEW)
}

#[test]
fn canary_cleaning_is_durable_before_void_epochs_are_forgotten() {
    assert_eq!(cleaned(None), None);
    assert!(cleaned(Some(clean::CLEAN_FLUSH)).is_some());
}

/// One thread takes a block, another one commits; which of them settles?
fn two_threads(committer_settles: bool) -> Option<String> {
    let words = fresh().pool().memory().words();
    let allocator = reopened(Simulated::recording(words));
    let epoch = begin(&allocator, 1);
    let memory = allocator.pool().memory();
    let taken = std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let at = allocator.allocate(200, epoch).unwrap();
            scribble(memory, at, 200);
            memory.fence();
            if !committer_settles {
                allocator.settle();
            }
            at
        });
        taker.join().unwrap()
    });
    if committer_settles {
        allocator.settle();
    }
    allocator.pool().commit(epoch).unwrap();
    memory.note(epoch.0);
    let models = [
        (LogEpoch(0), Model::new()),
        (epoch, Model::from([(taken, 200)])),
    ];
    let run = Run {
        trace: memory.trace(),
        models: BTreeMap::from(models),
    };
    fault_at(&run.trace, &run, Platform::Lines, FEW)
}

#[test]
fn canary_whoever_commits_settles() {
    assert_eq!(two_threads(true), None);
    assert!(two_threads(false).is_some());
}
