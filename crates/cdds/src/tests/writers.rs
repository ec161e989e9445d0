//! Writers beside each other and beside readers, and what a crash leaves of two of them. Real
//! threads, or schedules that shuttle draws, in which every access to the memory lets others go
//! ahead: `RUSTFLAGS="--cfg shuttle" cargo test --release -p pando-cdds --lib writers`.
//!
//! Each writer numbers what it puts under keys of its own, which share leaves with the others', and
//! all count in keys that they share.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, Deref, DerefMut};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use pando_pmem::{Mark, Sampling, Side, Simulated};
use pando_sync::{LogEpoch, lock};

use super::crashes::{Run, failure, start_in, state_of};
use super::subject::Subject;
use super::{create, open};
use crate::ahead::Spot;
use crate::canary::{self, Fault};
use crate::leaf::Done;
use crate::record::Pair;
use crate::tree::Tree;
use crate::{Direction, Reader};

#[cfg(shuttle)]
use shuttle::{sync::RwLock, thread};
#[cfg(not(shuttle))]
use std::{sync::RwLock, thread};

const WRITERS: u64 = 2;
const KEYS: u64 = 16;
const COUNTERS: u64 = 3;

struct World {
    tree: RwLock<Tree<Simulated>>,
    /// What was told last of each key, as a commit hook would be.
    told: Mutex<BTreeMap<Vec<u8>, u64>>,
}

impl World {
    fn new(tree: Tree<Simulated>) -> Arc<Self> {
        let told = Mutex::default();
        let tree = RwLock::new(tree);
        Arc::new(Self { tree, told })
    }

    fn read(&self) -> impl Deref<Target = Tree<Simulated>> {
        self.tree.read().expect("nobody panicked")
    }

    fn write(&self) -> impl DerefMut<Target = Tree<Simulated>> {
        self.tree.write().expect("nobody panicked")
    }

    /// Whoever has changed a key still has its leaf, or the tree.
    fn tell(&self, key: &[u8], number: Option<u64>) {
        // As long as another update takes, so that one could come before.
        for _ in 0..60 {
            pando_sync::shim::step();
        }
        if let Some(number) = number {
            let told = lock(&self.told).insert(key.to_vec(), number);
            assert!(told <= Some(number), "CX8: told in another order");
        }
    }
}

fn key(writer: u64, number: u64) -> Vec<u8> {
    format!("{number:02} of {writer}").into_bytes()
}

fn counter(number: u64) -> Vec<u8> {
    // Among the keys above.
    format!("{:02} counter", 5 * number).into_bytes()
}

/// Several times, so that another value's bytes in between are noticed.
fn value(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(3)
}

fn number_of(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    assert!(rest.is_empty() && words.len() == 3, "{value:?}");
    assert!(words.iter().all(|word| *word == words[0]), "{value:?}");
    u64::from_be_bytes(words[0])
}

/// Whom a change needs the tree for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Itself and others, if it can be.
    Shared,
    Alone,
    /// Alone, after a group that is taken back.
    Group,
}

impl Whose {
    fn drawn(random: &mut Rng) -> Self {
        match random.u8(..8) {
            0 => Self::Alone,
            1 => Self::Group,
            _ => Self::Shared,
        }
    }
}

/// What a writer found ahead, of some keys.
#[derive(Default)]
struct Warmed {
    keys: Vec<Vec<u8>>,
    spots: Vec<Option<Spot>>,
}

impl Warmed {
    fn of(world: &World, keys: Vec<Vec<u8>>) -> Self {
        let mut spots = Vec::new();
        let all = keys.iter().map(Vec::as_slice);
        world.read().shared.warm(all, &mut spots);
        Self { keys, spots }
    }

    fn spot(&self, key: &[u8]) -> Option<&Spot> {
        let place = self.keys.iter().position(|warmed| warmed == key)?;
        self.spots[place].as_ref()
    }
}

/// Puts what follows from what is there, or removes the key. Whoever comes in between may have
/// changed the tree since its leaf was found ahead.
fn update(
    world: &World,
    (key, spot): (&[u8], Option<&Spot>),
    whose: Whose,
    next: impl Fn(Option<u64>) -> Option<u64>,
) {
    if whose == Whose::Shared {
        let tree = world.read();
        let leaf = tree
            .is_open_at(LogEpoch::NONE)
            .then(|| tree.latch(key, spot).unwrap());
        if let Some(mut leaf) = leaf.flatten() {
            let record = leaf.record().expect("it is whole");
            let there = record.map(|record| number_of(record.value()));
            let (mut out, new) = (Vec::new(), next(there));
            let done = match new {
                Some(number) => {
                    let pair = Pair::new(&mut out, key, |out| out.extend(value(number)));
                    leaf.put(pair, 0, Side::of(1)).expect("it is whole")
                }
                None => leaf.remove(Side::of(1)),
            };
            if done == Done::Yes {
                world.tell(key, new);
                return;
            }
        }
    }
    let mut tree = world.write();
    let there = tree.get(key).expect("it is whole").map(number_of);
    let new = next(there);
    let change = |tree: &mut Tree<Simulated>| match new {
        Some(number) => tree.put(key, &value(number)).expect("room"),
        None => drop(tree.remove(key).expect("it is whole")),
    };
    if whose == Whose::Group {
        tree.begin_group();
        change(&mut tree);
        tree.take_back().expect("it needs no room");
    }
    change(&mut tree);
    tree.fence();
    world.tell(key, new);
}

/// A writer's changes; what its keys hold at the end, and how often it counted.
fn write(world: &World, writer: u64, seed: u64, changes: u64) -> (Vec<Option<u64>>, u64) {
    let mut random = Rng::with_seed(seed ^ writer << 32);
    let (mut own, mut counted) = (vec![None; KEYS as usize], 0);
    let mut warmed = Warmed::default();
    for number in 0..changes {
        if random.u8(..3) == 0 {
            let keys = (0..KEYS).map(|place| key(writer, place));
            warmed = Warmed::of(world, keys.chain((0..COUNTERS).map(counter)).collect());
        }
        match random.u8(..8) {
            0 => drop(world.write().commit().unwrap()),
            1..4 => {
                let next = |there: Option<u64>| Some(there.unwrap_or(0) + 1);
                let counter = counter(random.u64(..COUNTERS));
                let at = (&*counter, warmed.spot(&counter));
                update(world, at, Whose::drawn(&mut random), next);
                counted += 1;
            }
            _ => {
                let place = random.usize(..own.len());
                let next = (random.u8(..3) > 0).then_some(number);
                let (key, whose) = (key(writer, place as u64), Whose::drawn(&mut random));
                update(world, (&*key, warmed.spot(&key)), whose, |there| {
                    assert_eq!(
                        there, own[place],
                        "CX2 leaf-latched: nobody else changes it"
                    );
                    next
                });
                own[place] = next;
            }
        }
    }
    (own, counted)
}

fn read(reader: &mut Reader<Simulated>, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut newest = [0; COUNTERS as usize];
    for _ in 0..6 {
        let number = random.usize(..newest.len());
        let seen = reader.get(&counter(number as u64), |value| value.map_or(0, number_of));
        let seen = seen.expect("it is whole");
        assert!(seen >= newest[number], "a counter fell");
        newest[number] = seen;
        let mut keys = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            number_of(value);
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        };
        let scanned = reader.scan(Bound::Unbounded, Direction::Forward, visit);
        scanned.expect("it is whole");
        assert!(keys.is_sorted_by(|a, b| a < b), "a key twice");
    }
}

fn history(seed: u64, changes: u64, fault: Option<Fault>) {
    canary::plant(fault);
    let tree = create(Simulated::new(1 << 18));
    let mut reader = tree.reader().expect("few readers");
    let world = World::new(tree);
    let spawn = |writer| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            canary::plant(fault);
            write(&world, writer, seed, changes)
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(spawn).collect();
    let reader = thread::spawn(move || {
        canary::plant(fault);
        read(&mut reader, seed);
    });
    let ended: Vec<_> = writers.into_iter().map(thread::JoinHandle::join).collect();
    reader.join().expect("no reader panics");
    canary::plant(None);
    let tree = world.read();
    let number = |key: &[u8]| tree.get(key).expect("it is whole").map(number_of);
    let mut counted = 0;
    for (writer, ended) in (0..).zip(ended) {
        let (own, times) = ended.expect("no writer panics");
        counted += times;
        for (place, last) in (0..).zip(own) {
            assert_eq!(number(&key(writer, place)), last, "key {place} of {writer}");
        }
    }
    let counters = (0..COUNTERS).filter_map(|index| number(&counter(index)));
    assert_eq!(counters.sum::<u64>(), counted, "a count is lost");
    tree.check().expect("it is in order");
}

/// Two writers' changes of one epoch, as they were recorded, between two commits.
fn record(seed: u64) -> Run {
    // Each of two sides has chunks of its own for every size.
    let bytes = 2 * <Tree<Simulated> as Subject>::POOL_BYTES;
    let mut tree = open(Simulated::from(start_in::<Tree<Simulated>>(seed, bytes)));
    for number in 0..10 {
        tree.put(&key(0, number), &value(0)).expect("room");
        tree.put(&key(1, number), &value(0)).expect("room");
    }
    tree.commit().expect("memory takes it");
    let tree = open(Simulated::recording(tree.pool.memory().words()));
    let mut states = vec![state_of(&tree)];
    let world = World::new(tree);
    for round in 0..2 {
        {
            let mut tree = world.write();
            tree.pool.memory().note(2 * round + 1);
            // Leaves change by themselves once the epoch has begun.
            tree.put(b"round", &value(round)).expect("room");
        }
        let spawn = |writer| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut random = Rng::with_seed(seed ^ writer << 32 ^ round << 40);
                for _ in 0..6 {
                    let next = (random.u8(..4) > 0).then_some(round + 1);
                    let key = key(writer, random.u64(..12));
                    let warmed = Warmed::of(&world, vec![key.clone()]);
                    let at = (&*key, warmed.spot(&key));
                    update(&world, at, Whose::Shared, |_| next);
                    thread::yield_now();
                }
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(spawn).collect();
        for writer in writers {
            writer.join().expect("no writer panics");
        }
        let mut tree = world.write();
        tree.commit().expect("memory takes it");
        tree.pool.memory().note(2 * round + 2);
        states.push(state_of(&*tree));
    }
    let trace = world.read().pool.memory().trace();
    Run { trace, states }
}

/// What is wrong after a crash of some seeds' runs, with a fence left out or not.
fn crash(seeds: std::ops::Range<u64>, without: Option<Mark>) -> Option<String> {
    seeds.into_iter().find_map(|seed| {
        let run = record(seed);
        let trace = match without {
            Some(mark) => run.trace.without(mark, None),
            None => run.trace,
        };
        let sampling = Sampling {
            exhaustive_max: 4,
            samples: 3,
            seed,
        };
        let (images, failure) = failure::<Tree<Simulated>>(&trace, &run.states, sampling);
        assert!(images > 20 || failure.is_some(), "{images} images");
        failure
    })
}

const FENCE: Mark = Mark("tree: fence of changes");

#[cfg(not(shuttle))]
mod threads {
    use super::{FENCE, Fault, canary, crash, history};
    use crate::tests::crashes::effort;

    /// It needs no luck: a thread's own changes are enough. Which check notices it plays no part.
    #[test]
    fn an_entry_that_gets_another_record_unnoticed_is_caught() {
        let history = |seed| move || history(seed, 1500, Some(Fault::ReplacedUnmarked));
        let noticed = (0..12).any(|seed| std::panic::catch_unwind(history(seed)).is_err());
        canary::plant(None);
        assert!(noticed, "CL1 marked-before");
    }

    #[test]
    fn writers_of_one_tree_lose_nothing() {
        for seed in 0..12 {
            history(seed, 1500, None);
        }
    }

    #[test]
    fn a_crash_leaves_both_writers_changes_or_neither() {
        assert_eq!(crash(0..2 * effort().min(50), None), None);
    }

    /// The canary of the one above (CX4 fenced).
    #[test]
    fn a_writer_that_does_not_fence_is_noticed() {
        assert!(crash(0..8, Some(FENCE)).is_some());
    }
}

#[cfg(shuttle)]
mod schedules {
    use shuttle::rand::RngCore;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner};

    use super::{FENCE, Fault, crash, history};

    const SEED: u64 = 1;

    fn run(scheduler: impl Scheduler + 'static, test: impl Fn(u64) + Send + Sync + 'static) {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        Runner::new(scheduler, config).run(move || test(shuttle::rand::thread_rng().next_u64()));
    }

    #[test]
    fn writers_of_one_tree_lose_nothing() {
        let test = |seed| history(seed, 24, None);
        run(RandomScheduler::new_from_seed(SEED, 200), test);
        run(PctScheduler::new_from_seed(SEED, 4, 200), test);
    }

    #[test]
    fn a_crash_leaves_both_writers_changes_or_neither() {
        let test = |seed: u64| assert_eq!(crash(seed..seed + 1, None), None);
        run(RandomScheduler::new_from_seed(SEED, 8), test);
    }

    #[test]
    #[should_panic]
    fn a_writer_that_does_not_fence_is_noticed() {
        let test = |seed: u64| assert_eq!(crash(seed..seed + 1, Some(FENCE)), None);
        run(RandomScheduler::new_from_seed(SEED, 30), test);
    }

    fn caught(fault: Fault) {
        let test = move |seed| history(seed, 24, Some(fault));
        run(PctScheduler::new_from_seed(SEED, 4, 20_000), test);
    }

    #[test]
    #[should_panic]
    fn writers_without_latches_are_noticed() {
        caught(Fault::Unlatched);
    }

    #[test]
    #[should_panic]
    fn a_missing_mark_is_caught() {
        caught(Fault::Unmarked);
    }

    #[test]
    #[should_panic]
    fn an_entry_that_gets_another_record_unnoticed_is_caught() {
        caught(Fault::ReplacedUnmarked);
    }

    #[test]
    #[should_panic]
    fn an_entry_that_is_trusted_although_its_leaf_has_changed_is_caught() {
        caught(Fault::JudgedKept);
    }

    #[test]
    #[should_panic]
    fn a_leaf_that_has_left_unnoticed_is_caught() {
        caught(Fault::LeftUncounted);
    }

    #[test]
    #[should_panic]
    fn a_way_that_was_found_before_its_lock_was_taken_is_caught() {
        let test = |seed| history(seed, 48, Some(Fault::WayEarly));
        run(RandomScheduler::new_from_seed(SEED, 5_000), test);
    }

    #[test]
    #[should_panic]
    fn a_new_leaf_that_others_change_too_early_is_caught() {
        let test = |seed| history(seed, 24, Some(Fault::BornUnlatched));
        run(RandomScheduler::new_from_seed(SEED, 20_000), test);
    }
}
