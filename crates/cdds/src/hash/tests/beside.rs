//! Readers beside the writer of a table: real threads, or schedules that shuttle draws. The latter
//! with `RUSTFLAGS="--cfg shuttle" cargo test --release -p pando-cdds --lib schedules`.
//!
//! The writer numbers the operations of each key: odd ones put the number, even ones remove the
//! key. A reader that saw a number asks whether it can have been there. Rollbacks, after which
//! numbers fall, have a test of their own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use pando_pmem::Simulated;
use pando_sync::lock;
#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

use super::{Table, create};
use crate::canary::{self, Fault};
use crate::hash::TableReader;
#[cfg(shuttle)]
use crate::seal;
use crate::tree::{Error, Snapshot};

const KEYS: usize = 40;

struct World {
    /// Of each key: the operation that has begun, and the one that has ended.
    histories: Vec<[AtomicU64; 2]>,
    /// Those that are there, and perhaps one that is no more.
    snapshots: Mutex<Vec<(Snapshot, Vec<u64>)>>,
    is_over: AtomicBool,
}

fn key(index: usize) -> Vec<u8> {
    format!("a key of number {index:02}").into_bytes()
}

/// The number is there several times, so that another value's bytes in between are noticed.
fn value(index: usize, number: u64) -> Vec<u8> {
    (number << 8 | index as u64).to_be_bytes().repeat(4)
}

fn number_of(index: usize, value: &[u8]) -> u64 {
    let (words, _) = value.as_chunks::<8>();
    assert!(words.len() == 4 && words.iter().all(|word| *word == words[0]));
    let word = u64::from_be_bytes(words[0]);
    assert_eq!((word & 0xff) as usize, index, "a value of another key");
    word >> 8
}

impl World {
    fn change(&self, table: &mut Table<Simulated>, random: &mut Rng) {
        // Few at first: the table grows beside the readers.
        let begun = self.histories.iter();
        let known = begun.filter(|[begun, _]| begun.load(Ordering::SeqCst) > 0);
        let index = random.usize(..KEYS.min(known.count() + 2));
        let [begun, ended] = &self.histories[index];
        let last = begun.load(Ordering::SeqCst);
        let is_there = table.get(&key(index)).unwrap().is_some();
        let number = if is_there && random.u8(..4) == 0 {
            (last | 1) + 1
        } else {
            (last + 1) | 1
        };
        begun.store(number, Ordering::SeqCst);
        if number.is_multiple_of(2) {
            table.remove(&key(index)).unwrap();
        } else {
            table.put(&key(index), &value(index, number)).unwrap();
        }
        ended.store(number, Ordering::SeqCst);
    }

    fn write(&self, table: &mut Table<Simulated>, random: &mut Rng, operations: usize) {
        for _ in 0..operations {
            match random.u8(..40) {
                0..6 => drop(table.commit().unwrap()),
                6 if table.snapshots().count() < 3 => {
                    let last = |[begun, _]: &[AtomicU64; 2]| begun.load(Ordering::SeqCst);
                    let numbers = self.histories.iter().map(last).collect();
                    let snapshot = table.retain().unwrap();
                    let mut snapshots = lock(&self.snapshots);
                    if !snapshots.iter().any(|(known, _)| *known == snapshot) {
                        snapshots.push((snapshot, numbers));
                    }
                }
                7 if random.bool() => {
                    let oldest = table.snapshots().next();
                    if let Some(snapshot) = oldest {
                        table.release(snapshot).unwrap();
                        lock(&self.snapshots).retain(|(other, _)| *other != snapshot);
                    }
                }
                _ => self.change(table, random),
            }
        }
    }

    fn read(&self, reader: &mut TableReader<Simulated>, random: &mut Rng) {
        let index = random.usize(..KEYS);
        if random.u8(..3) == 0 {
            self.read_past(reader, index, random);
            return;
        }
        let [begun, ended] = &self.histories[index];
        let ended = ended.load(Ordering::SeqCst);
        let seen = reader.get(&key(index), |value| {
            let number = value.map(|value| number_of(index, value));
            for _ in 0..10 {
                pando_sync::shim::step();
            }
            // It stands until the pin ends (CT3 horizon).
            assert_eq!(number, value.map(|value| number_of(index, value)));
            number
        });
        let begun = begun.load(Ordering::SeqCst);
        match seen.unwrap() {
            Some(number) => assert!(
                number % 2 == 1 && (ended..=begun).contains(&number),
                "key {index}: {number}, not in {ended}..={begun}"
            ),
            None => assert!(
                ended.is_multiple_of(2) || begun > ended,
                "key {index} is lost, {ended}..={begun}"
            ),
        }
    }

    fn read_past(&self, reader: &mut TableReader<Simulated>, index: usize, random: &mut Rng) {
        let (snapshot, numbers) = {
            let snapshots = lock(&self.snapshots);
            if snapshots.is_empty() {
                return;
            }
            snapshots[random.usize(..snapshots.len())].clone()
        };
        let seen = reader.get_at(snapshot, &key(index), |value| {
            value.map(|value| number_of(index, value))
        });
        match seen {
            Ok(seen) => {
                let number = Some(numbers[index]).filter(|number| number % 2 == 1);
                assert_eq!(seen, number, "{snapshot:?}");
            }
            Err(Error::NoSnapshot { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A writer and two readers, which read so many times, or until the writer is done.
fn history(seed: u64, operations: usize, reads: Option<usize>, fault: Option<Fault>) {
    canary::plant(fault);
    // The pool's identity, which keys are hashed with, is drawn from it.
    fastrand::seed(seed);
    let world = Arc::new(World {
        histories: (0..KEYS).map(|_| Default::default()).collect(),
        snapshots: Mutex::default(),
        is_over: AtomicBool::new(false),
    });
    // All that is written fits, since a reader that sleeps within a pin holds everything back.
    let pool_bytes = if operations > 1000 { 1 << 21 } else { 1 << 18 };
    let mut table = create(pool_bytes, 4);
    let mut random = Rng::with_seed(seed);
    let read = |number: u64| {
        let (world, mut reader) = (Arc::clone(&world), table.reader().unwrap());
        thread::spawn(move || {
            canary::plant(fault);
            let mut random = Rng::with_seed(seed ^ number);
            let mut done = 0;
            while reads.map_or(!world.is_over.load(Ordering::SeqCst), |reads| done < reads) {
                world.read(&mut reader, &mut random);
                done += 1;
            }
        })
    };
    let readers = [read(1), read(2)];
    world.write(&mut table, &mut random, operations);
    world.is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.join().expect("no reader panics");
    }
    table.check().expect("it is in order");
    canary::plant(None);
}

#[cfg(not(shuttle))]
#[test]
fn readers_beside_a_writer_see_what_was_there() {
    for seed in 0..8 {
        history(seed, 4000, None, None);
    }
}

/// What is rolled back has grown the table meanwhile.
#[cfg(not(shuttle))]
#[test]
fn readers_beside_rollbacks_see_one_side_of_them() {
    // It all fits, as in `history`.
    let mut table = create(1 << 22, 4);
    for number in 0..8_u32 {
        table.put(&number.to_be_bytes(), b"then").unwrap();
    }
    let then = table.retain().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (is_over, mut reader) = (Arc::clone(&is_over), table.reader().unwrap());
        thread::spawn(move || {
            let mut random = Rng::with_seed(1);
            while !is_over.load(Ordering::SeqCst) {
                let number = random.u32(..100);
                let is_one = |value: Option<&[u8]>| match value {
                    None => number >= 8,
                    Some(value) => value == b"now" || (number < 8 && value == b"then"),
                };
                assert!(reader.get(&number.to_be_bytes(), is_one).unwrap());
            }
        })
    };
    for _ in 0..100 {
        for number in 0..100_u32 {
            table.put(&number.to_be_bytes(), b"now").unwrap();
        }
        table.commit().unwrap();
        table.roll_back(then).unwrap();
        if table.pool().voids().len() > 100 {
            while table.clean(8).unwrap() {}
        }
    }
    is_over.store(true, Ordering::SeqCst);
    reader.join().expect("the reader does not panic");
    assert_eq!(table.check().unwrap().keys, 8);
}

/// A key that is not moved by the splits since a snapshot is in another bucket than the present's
/// hash says (CD2 longest-seen).
#[cfg(not(shuttle))]
fn reads_past_splits(fault: Option<Fault>) {
    let mut table = create(1 << 18, 4);
    for number in 0..8_u32 {
        table.put(&number.to_be_bytes(), b"then").unwrap();
    }
    let then = table.retain().unwrap();
    for number in 0..100_u32 {
        table.put(&number.to_be_bytes(), b"now").unwrap();
    }
    canary::plant(fault);
    let mut reader = table.reader().unwrap();
    let seen = (0..8_u32).all(|number| {
        let is_then = |value: Option<&[u8]>| value == Some(b"then");
        reader.get_at(then, &number.to_be_bytes(), is_then).unwrap()
    });
    canary::plant(None);
    assert!(seen, "CD2 longest-seen");
}

#[cfg(not(shuttle))]
#[test]
fn a_snapshot_finds_its_keys_where_they_were() {
    reads_past_splits(None);
}

#[cfg(not(shuttle))]
#[test]
#[should_panic(expected = "CD2 longest-seen")]
fn a_look_at_the_past_by_the_present_address_is_noticed() {
    reads_past_splits(Some(Fault::PresentAddress));
}

/// A snapshot is released while it is read, and slots of links that it alone saw go to keys whose
/// records look like buckets: their first byte is a link's fingerprint, and behind a line is a
/// sealed slot of the first epoch that leads out of the pool.
#[cfg(shuttle)]
fn release_beside_a_reader(fault: Option<Fault>) {
    let looks_like_a_bucket = {
        let (mut value, target) = (vec![0; 51], u64::MAX - 7);
        let start = seal::beginning(pando_sync::LogEpoch(1), [0, target]);
        for word in [start, 0, 0, target] {
            value.extend_from_slice(&word.to_le_bytes());
        }
        value
    };
    fastrand::seed(1);
    let mut table = create(1 << 18, 3);
    for key in 0..12_u8 {
        table.put(&[key], b"then").unwrap();
    }
    let then = table.retain().unwrap();
    for key in 12..40_u8 {
        table.put(&[key], b"now").unwrap();
    }
    table.commit().unwrap();
    let mut reader = table.reader().unwrap();
    let reads = thread::spawn(move || {
        canary::plant(fault);
        for key in 0..12_u8 {
            match reader.get_at(then, &[key], |value| value == Some(b"then")) {
                Ok(is_then) => assert!(is_then, "{key}"),
                Err(error) => assert!(matches!(error, Error::NoSnapshot { .. }), "{error}"),
            }
        }
    });
    table.release(then).unwrap();
    for _ in 0..3 {
        for key in 0..40_u8 {
            table.put(&[key], &looks_like_a_bucket).unwrap();
        }
        table.commit().unwrap();
    }
    reads.join().expect("the reader does not panic");
}

#[cfg(shuttle)]
mod schedules {
    use shuttle::rand::RngCore;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner};

    use super::{Fault, history, release_beside_a_reader};

    /// The same in every run; `PANDO_SCHEDULES` asks for another number of them.
    const SEED: u64 = 1;

    fn run(scheduler: impl Scheduler + 'static, fault: Option<Fault>) {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        Runner::new(scheduler, config).run(move || {
            let seed = shuttle::rand::thread_rng().next_u64();
            history(seed, 40, Some(8), fault);
        });
    }

    fn schedules() -> usize {
        let number = std::env::var("PANDO_SCHEDULES").ok();
        number.map_or(300, |number| number.parse().expect("a number"))
    }

    #[test]
    fn readers_beside_a_writer_see_what_was_there() {
        run(RandomScheduler::new_from_seed(SEED, schedules()), None);
        run(PctScheduler::new_from_seed(SEED, 4, schedules()), None);
    }

    /// Which check sees it first depends on the schedule. The rarest was seen in about one of ten
    /// thousand.
    fn caught(fault: Fault) {
        run(PctScheduler::new_from_seed(SEED, 4, 400_000), Some(fault));
    }

    fn release(schedules: usize, fault: Option<Fault>) {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        let scheduler = PctScheduler::new_from_seed(SEED, 3, schedules);
        Runner::new(scheduler, config).run(move || release_beside_a_reader(fault));
    }

    #[test]
    fn a_snapshot_may_be_released_while_it_is_read() {
        release(schedules(), None);
    }

    #[test]
    #[should_panic]
    fn a_link_that_is_followed_without_its_snapshot_is_caught() {
        release(100_000, Some(Fault::Unkept));
    }

    #[test]
    #[should_panic]
    fn a_missing_mark_is_caught() {
        caught(Fault::Unmarked);
    }

    #[test]
    #[should_panic]
    fn a_number_of_buckets_that_is_not_asked_for_again_is_caught() {
        caught(Fault::StaleCount);
    }
}
