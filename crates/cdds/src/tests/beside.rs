//! Readers beside a writer: real threads, or schedules that shuttle draws, in which every access to
//! the memory lets other threads go ahead. The latter with
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p pando-cdds --lib beside`.
//!
//! The writer numbers the operations of each key: odd ones put the number, even ones remove the
//! key. A reader that saw a number asks whether it can have been there.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use pando_pmem::Simulated;
use pando_sync::lock;

use super::create;
use crate::ahead::Spot;
use crate::canary::{self, Fault};
use crate::record::Record;
use crate::tree::{Error, Snapshot, Tree};
use crate::{Direction, Reader};

const KEYS: usize = 24;

#[derive(Default)]
struct History {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The last removal that has begun.
    removed: AtomicU64,
}

type Map = BTreeMap<usize, u64>;

struct World {
    histories: Vec<History>,
    /// Those that are there, and one or two that are no more.
    snapshots: Mutex<Vec<(Snapshot, Map)>>,
    /// Rollbacks that have begun, and those that have ended: numbers fall in one.
    rollbacks: (AtomicU64, AtomicU64),
    is_over: AtomicBool,
}

/// Some differ in their first bytes, some only behind those that a node has of a separator.
fn key(index: usize) -> Vec<u8> {
    let common = if index.is_multiple_of(3) { 40 } else { 0 };
    format!("{}{index:02}", "p".repeat(common)).into_bytes()
}

/// The number is there several times, so that another value's bytes in between are noticed.
fn value(index: usize, number: u64) -> Vec<u8> {
    (number << 8 | index as u64).to_be_bytes().repeat(4)
}

fn number_of(index: usize, value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    assert!(rest.is_empty() && words.len() == 4, "{value:?}");
    assert!(words.iter().all(|word| *word == words[0]), "{value:?}");
    let word = u64::from_be_bytes(words[0]);
    assert_eq!((word & 0xff) as usize, index, "a value of another key");
    word >> 8
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            histories: (0..KEYS).map(|_| History::default()).collect(),
            snapshots: Mutex::default(),
            rollbacks: (AtomicU64::new(0), AtomicU64::new(0)),
            is_over: AtomicBool::new(false),
        })
    }

    fn change(&self, tree: &mut Tree<Simulated>, random: &mut Rng) {
        let index = random.usize(..KEYS);
        let history = &self.histories[index];
        let last = history.begun.load(Ordering::SeqCst);
        let is_there = tree.get(&key(index)).unwrap().is_some();
        let number = if is_there && random.u8(..3) > 0 {
            (last | 1) + 1
        } else {
            (last + 1) | 1
        };
        history.begun.store(number, Ordering::SeqCst);
        if number.is_multiple_of(2) {
            history.removed.store(number, Ordering::SeqCst);
            tree.remove(&key(index)).unwrap();
        } else {
            tree.put(&key(index), &value(index, number)).unwrap();
        }
        history.ended.store(number, Ordering::SeqCst);
    }

    /// What the tree holds, as its writer sees it.
    fn map(tree: &Tree<Simulated>) -> Map {
        let there = |index: &usize| tree.get(&key(*index)).unwrap();
        (0..KEYS)
            .filter_map(|index| Some((index, number_of(index, there(&index)?))))
            .collect()
    }

    fn write(&self, tree: &mut Tree<Simulated>, random: &mut Rng, operations: usize) {
        for _ in 0..operations {
            match random.u8(..40) {
                0..6 => drop(tree.commit().unwrap()),
                6 if tree.snapshots().count() < 4 => {
                    let map = Self::map(tree);
                    let snapshot = tree.retain().unwrap();
                    let mut snapshots = lock(&self.snapshots);
                    if !snapshots.iter().any(|(known, _)| *known == snapshot) {
                        snapshots.push((snapshot, map));
                    }
                }
                7 => self.release(tree, random),
                8 => self.roll_back(tree),
                _ => self.change(tree, random),
            }
        }
    }

    fn release(&self, tree: &mut Tree<Simulated>, random: &mut Rng) {
        let count = tree.snapshots().count();
        if count > 0 {
            let snapshot = tree.snapshots().nth(random.usize(..count)).unwrap();
            tree.release(snapshot).unwrap();
            lock(&self.snapshots).retain(|(other, _)| *other != snapshot);
        }
    }

    fn roll_back(&self, tree: &mut Tree<Simulated>) {
        if let Some(snapshot) = tree.snapshots().last() {
            self.rollbacks.0.fetch_add(1, Ordering::SeqCst);
            tree.roll_back(snapshot).unwrap();
            self.rollbacks.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What was read must have been there between two moments.
    fn check(&self, index: usize, (ended, rolled): (u64, u64), seen: Option<u64>) {
        let history = &self.histories[index];
        let begun = history.begun.load(Ordering::SeqCst);
        let removed = history.removed.load(Ordering::SeqCst);
        let undisturbed = self.rollbacks.0.load(Ordering::SeqCst) == 0 && rolled == 0;
        let lowest = if undisturbed { ended } else { 0 };
        match seen {
            Some(number) => assert!(
                number % 2 == 1 && (lowest..=begun).contains(&number),
                "key {index}: {number}, not in {lowest}..={begun}"
            ),
            None => assert!(
                !undisturbed || ended.is_multiple_of(2) || removed > ended,
                "key {index} is lost, {ended}..={begun}"
            ),
        }
    }

    fn before(&self, index: usize) -> (u64, u64) {
        let rolled = self.rollbacks.1.load(Ordering::SeqCst);
        (self.histories[index].ended.load(Ordering::SeqCst), rolled)
    }

    /// `spots` are those of an earlier read.
    fn read(
        &self,
        reader: &mut Reader<Simulated>,
        spots: &mut Vec<Option<Spot>>,
        random: &mut Rng,
    ) {
        match random.u8(..8) {
            0 => self.scan(reader, Direction::Forward),
            1 => self.scan(reader, Direction::Backward),
            2..4 => self.read_past(reader, random),
            _ => {
                let index = random.usize(..KEYS);
                let before = self.before(index);
                if random.bool() {
                    let keys: Vec<_> = (0..KEYS).map(key).collect();
                    reader.warm(keys.iter().map(Vec::as_slice), spots);
                }
                let spot = spots.get(index).and_then(Option::as_ref);
                let spot = spot.filter(|_| random.bool());
                let pinned = reader.pinned();
                let record = pinned.shared.record_ahead(&key(index), spot).unwrap();
                let value = record.map(Record::value);
                let number = value.map(|value| number_of(index, value));
                for _ in 0..10 {
                    pando_sync::shim::step();
                }
                // It stands until the pin ends (CT3 horizon).
                assert_eq!(number, value.map(|value| number_of(index, value)));
                drop(pinned);
                self.check(index, before, number);
            }
        }
    }

    fn scan(&self, reader: &mut Reader<Simulated>, direction: Direction) {
        let before: Vec<_> = (0..KEYS).map(|index| self.before(index)).collect();
        let mut seen = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            seen.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        reader.scan(Bound::Unbounded, direction, visit).unwrap();
        let sorted = seen.is_sorted_by(|a, b| match direction {
            Direction::Forward => a.0 < b.0,
            Direction::Backward => a.0 > b.0,
        });
        assert!(sorted, "a scan out of order or with a key twice");
        let mut seen: BTreeMap<_, _> = seen.into_iter().collect();
        for (index, before) in before.into_iter().enumerate() {
            let value = seen.remove(&key(index));
            let number = value.map(|value| number_of(index, &value));
            self.check(index, before, number);
        }
        assert!(seen.is_empty(), "a key that nobody put: {seen:?}");
    }

    fn read_past(&self, reader: &mut Reader<Simulated>, random: &mut Rng) {
        let (snapshot, map) = {
            let snapshots = lock(&self.snapshots);
            if snapshots.is_empty() {
                return;
            }
            snapshots[random.usize(..snapshots.len())].clone()
        };
        let index = random.usize(..KEYS);
        let seen = reader.get_at(snapshot, &key(index), |value| {
            value.map(|value| number_of(index, value))
        });
        match seen {
            Ok(seen) => assert_eq!(seen, map.get(&index).copied(), "{snapshot:?}"),
            Err(Error::NoSnapshot { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let mut found = Map::new();
        let visit = |bytes: &[u8], value: &[u8]| {
            let index = (0..KEYS).find(|index| key(*index) == bytes).unwrap();
            found.insert(index, number_of(index, value));
            ControlFlow::Continue(())
        };
        match reader.scan_at(snapshot, Bound::Unbounded, Direction::Forward, visit) {
            Ok(()) => assert_eq!(found, map, "{snapshot:?}"),
            Err(Error::NoSnapshot { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// A writer and two readers, which read so many times, or until the writer is done.
fn history(seed: u64, operations: usize, reads: Option<usize>, fault: Option<Fault>) {
    canary::plant(fault);
    let world = World::new();
    let mut tree = create(Simulated::new(1 << 18));
    let mut random = Rng::with_seed(seed);
    for _ in 0..60 {
        world.change(&mut tree, &mut random);
    }
    tree.commit().unwrap();
    let read = |number: u64| {
        let (world, mut reader) = (Arc::clone(&world), tree.reader().unwrap());
        thread::spawn(move || {
            canary::plant(fault);
            let mut random = Rng::with_seed(seed ^ number);
            let (mut done, mut spots) = (0, Vec::new());
            while reads.map_or(!world.is_over.load(Ordering::SeqCst), |reads| done < reads) {
                world.read(&mut reader, &mut spots, &mut random);
                done += 1;
            }
        })
    };
    let readers = [read(1), read(2)];
    world.write(&mut tree, &mut random, operations);
    world.is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.join().expect("no reader panics");
    }
    tree.check().expect("it is in order");
    canary::plant(None);
}

/// A reader at a snapshot, beside puts that take slots which no snapshot sees any more: the leaf
/// has no others, and all of them are of the key that is read.
#[cfg(shuttle)]
fn slots_used_again(fault: Option<Fault>) {
    const LAST: u64 = 11;
    canary::plant(fault);
    let mut tree = create(Simulated::new(1 << 17));
    for number in (1..=LAST).step_by(2) {
        tree.put(&key(0), &value(0, number)).unwrap();
        tree.commit().unwrap();
    }
    let (snapshot, mut reader) = (tree.retain().unwrap(), tree.reader().unwrap());
    let reader = thread::spawn(move || {
        canary::plant(fault);
        for _ in 0..8 {
            let number = |value: Option<&[u8]>| value.map(|value| number_of(0, value));
            let seen = reader.get_at(snapshot, &key(0), number);
            assert_eq!(seen.unwrap(), Some(LAST), "CL4 past-stands");
        }
    });
    for number in [LAST + 2, LAST + 4] {
        tree.put(&key(0), &value(0, number)).unwrap();
        tree.commit().unwrap();
    }
    reader.join().expect("the reader does not panic");
    canary::plant(None);
}

/// A reader of a key beside puts of it in one epoch, which change its entry where it is.
#[cfg(shuttle)]
fn entries_replaced(fault: Option<Fault>) {
    const LAST: u64 = 7;
    canary::plant(fault);
    let mut tree = create(Simulated::new(1 << 17));
    tree.put(&key(0), &value(0, 1)).unwrap();
    let mut reader = tree.reader().unwrap();
    let reader = thread::spawn(move || {
        canary::plant(fault);
        for _ in 0..8 {
            let seen = reader.get(&key(0), |value| value.map(|value| number_of(0, value)));
            assert!(seen.unwrap().is_some(), "CL1 marked-before");
        }
    });
    for number in (3..=LAST).step_by(2) {
        tree.put(&key(0), &value(0, number)).unwrap();
    }
    reader.join().expect("the reader does not panic");
    canary::plant(None);
}

#[cfg(not(shuttle))]
mod threads {
    use pando_pmem::Simulated;

    use super::{Fault, canary, create, history};

    #[test]
    fn readers_beside_a_writer_see_what_was_there() {
        for seed in 0..8 {
            history(seed, 8000, None, None);
        }
    }

    /// One thread is enough: it reads, and within the read it is the writer.
    fn reads_while_written(fault: Option<Fault>) {
        canary::plant(fault);
        let mut tree = create(Simulated::new(1 << 17));
        let mut reader = tree.reader().unwrap();
        tree.put(b"key", &[1; 100]).unwrap();
        let stands = reader.get(b"key", |value| {
            for number in 0..200 {
                tree.put(b"key", &[number; 100]).unwrap();
                tree.commit().unwrap();
            }
            value == Some(&[1; 100][..])
        });
        canary::plant(None);
        assert!(stands.unwrap(), "CT3 horizon");
    }

    #[test]
    fn what_was_shown_stands_until_the_pin_ends() {
        reads_while_written(None);
    }

    #[test]
    #[should_panic(expected = "CT3 horizon")]
    fn memory_that_does_not_wait_for_pins_is_noticed() {
        reads_while_written(Some(Fault::FreeEarly));
    }
}

#[cfg(shuttle)]
mod schedules {
    use shuttle::rand::RngCore;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner};

    use super::{Fault, entries_replaced, history, slots_used_again};

    /// The same in every run; `PANDO_SCHEDULES` asks for another number of them.
    const SEED: u64 = 1;

    /// Long enough that slots of leaves are used again while they are read.
    const OPERATIONS: usize = 240;
    const READS: usize = 40;

    /// Changes of priorities in a schedule of the second kind: it takes one to find a slot that is
    /// used again between two loads.
    const CHANGES: usize = 4;

    fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        Runner::new(scheduler, config).run(test);
    }

    fn schedules() -> usize {
        let number = std::env::var("PANDO_SCHEDULES").ok();
        number.map_or(300, |number| number.parse().expect("a number"))
    }

    fn drawn(fault: Option<Fault>) {
        let seed = shuttle::rand::thread_rng().next_u64();
        history(seed, OPERATIONS, Some(READS), fault);
    }

    #[test]
    fn readers_beside_a_writer_see_what_was_there() {
        let test = || drawn(None);
        run(RandomScheduler::new_from_seed(SEED, schedules()), test);
        run(
            PctScheduler::new_from_seed(SEED, CHANGES, schedules()),
            test,
        );
    }

    #[test]
    fn a_slot_that_is_used_again_is_not_seen_in_the_past() {
        let test = || slots_used_again(None);
        run(RandomScheduler::new_from_seed(SEED, schedules()), test);
        run(
            PctScheduler::new_from_seed(SEED, CHANGES, schedules()),
            test,
        );
    }

    /// Which check sees it first depends on the schedule.
    fn caught(fault: Fault) {
        let scheduler = RandomScheduler::new_from_seed(SEED, 20_000);
        run(scheduler, move || drawn(Some(fault)));
    }

    #[test]
    #[should_panic]
    fn a_missing_mark_is_caught() {
        caught(Fault::Unmarked);
    }

    #[test]
    fn an_entry_that_gets_another_record_is_there_all_the_time() {
        let test = || entries_replaced(None);
        run(RandomScheduler::new_from_seed(SEED, schedules()), test);
    }

    #[test]
    #[should_panic]
    fn an_entry_that_gets_another_record_unnoticed_is_caught() {
        let test = || entries_replaced(Some(Fault::ReplacedUnmarked));
        run(RandomScheduler::new_from_seed(SEED, 20_000), test);
    }

    #[test]
    #[should_panic]
    fn a_parent_that_is_not_looked_at_again_is_caught() {
        caught(Fault::Uncoupled);
    }

    /// A schedule must let all of a put go ahead between two loads of a reader.
    #[test]
    #[should_panic]
    fn a_beginning_before_an_end_is_caught() {
        let scheduler = PctScheduler::new_from_seed(SEED, CHANGES, 20_000);
        let test = || slots_used_again(Some(Fault::BeginningFirst));
        run(scheduler, test);
    }
}
