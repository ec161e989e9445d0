//! Random schedules by shuttle: sessions that put, in runs of two keys and without, read and scan
//! while leaves are split, and somebody who is alone now and then. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p pando-minuet --release --lib schedules`.
//!
//! Every key has one writer, whose values are numbers that grow. A reader sees no number before it
//! was begun, and none that is older than what had ended when it began to read. A failure prints
//! its schedule, which `shuttle::replay` runs again.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_engine::{
    Direction, Engine, Key, Ordered, Outcome, Point, Transactional, TreeId, ValueRef,
};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use super::tests::{open, put};
use super::{Minuet, MinuetSession};
use crate::fault::{Fault, plant};

/// The same schedules in every run.
const SEED: u64 = 1;
const WRITERS: usize = 2;
/// Neighbours are of different writers.
const KEYS: usize = 20;
/// Those that are there before: two leaves full.
const STANDING: usize = 16;
const PUTS: usize = 10;
const READS: usize = 6;
const TURNS: usize = 2;
/// Eight in a leaf, about.
const VALUE_BYTES: usize = 480;

/// What was begun and what has ended of the puts of a key: its value's number.
#[derive(Default)]
struct History {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

struct World {
    engine: Arc<Minuet>,
    tree: TreeId,
    histories: [History; KEYS],
}

fn key_of(index: usize) -> [u8; 2] {
    [b'k', index as u8]
}

/// The number that a value has.
fn number_of(value: ValueRef<'_>) -> usize {
    super::tests::len_of(value) - VALUE_BYTES
}

impl World {
    fn put(&self, session: &mut MinuetSession, index: usize) {
        self.put_all(session, &[index], |session, puts| puts(session));
    }

    /// Puts two keys in a run, which nobody else's writes keep from counting.
    fn put_two(&self, session: &mut MinuetSession, indexes: [usize; 2]) {
        self.put_all(session, &indexes, |session, puts| {
            session.begin_run();
            puts(session);
            let outcome = session.end_run();
            assert_eq!(outcome, Outcome::Done, "nobody else writes these keys");
        });
    }

    fn put_all(
        &self,
        session: &mut MinuetSession,
        indexes: &[usize],
        within: impl FnOnce(&mut MinuetSession, &dyn Fn(&mut MinuetSession)),
    ) {
        let begin = |index: &usize| self.histories[*index].begun.fetch_add(1, Ordering::SeqCst) + 1;
        let numbers: Vec<_> = indexes.iter().map(begin).collect();
        within(session, &|session| {
            for (index, number) in indexes.iter().zip(&numbers) {
                let value = vec![*index as u8; VALUE_BYTES + number];
                put(session, self.tree, &key_of(*index), &value);
            }
        });
        for (index, number) in indexes.iter().zip(numbers) {
            self.histories[*index].ended.store(number, Ordering::SeqCst);
        }
    }

    fn check(&self, index: usize, ended: usize, seen: Option<usize>) {
        let begun = self.histories[index].begun.load(Ordering::SeqCst);
        let seen = seen.unwrap_or(0);
        assert!(
            (ended..=begun).contains(&seen),
            "key {index}: {seen}, not in {ended}..={begun}"
        );
    }

    fn ended(&self, index: usize) -> usize {
        self.histories[index].ended.load(Ordering::SeqCst)
    }

    fn get(&self, session: &mut MinuetSession, index: usize) {
        let ended = self.ended(index);
        let key = key_of(index);
        let seen = session.get(Key::new(self.tree, &key), |value| value.map(number_of));
        self.check(index, ended, seen);
    }

    fn scan(&self, session: &mut MinuetSession, way: Direction) {
        let ended: Vec<_> = (0..KEYS).map(|index| self.ended(index)).collect();
        let mut shown = Vec::new();
        session.scan(self.tree, Bound::Unbounded, way, |key, value| {
            shown.push((key.to_vec(), number_of(value)));
            ControlFlow::Continue(())
        });
        if way == Direction::Backward {
            shown.reverse();
        }
        assert!(shown.is_sorted_by(|a, b| a.0 < b.0), "keys out of order");
        let shown: BTreeMap<_, _> = shown.into_iter().collect();
        for (index, ended) in ended.into_iter().enumerate() {
            self.check(index, ended, shown.get(&key_of(index)[..]).copied());
        }
    }
}

fn write(world: &World, thread: usize, random: &mut fastrand::Rng) {
    let mut session = world.engine.session().expect("one is free");
    for _ in 0..PUTS {
        let [index, other] = [(); 2].map(|()| random.usize(..KEYS / WRITERS) * WRITERS + thread);
        if index == other {
            world.put(&mut session, index);
        } else {
            world.put_two(&mut session, [index, other]);
        }
        world.get(&mut session, index);
    }
}

fn read(world: &World, _: usize, random: &mut fastrand::Rng) {
    let mut session = world.engine.session().expect("one is free");
    for _ in 0..READS {
        match random.u8(..4) {
            0 => world.scan(&mut session, Direction::Forward),
            1 => world.scan(&mut session, Direction::Backward),
            _ => world.get(&mut session, random.usize(..KEYS)),
        }
    }
}

fn be_alone(world: &World, _: usize, _: &mut fastrand::Rng) {
    for _ in 0..TURNS {
        world.engine.create_tree();
    }
}

/// Two writers, a reader, and one who is alone.
fn history(seed: u64, fault: Option<Fault>) {
    plant(fault);
    let (_, engine) = open(1);
    let tree = engine.create_tree();
    let world = Arc::new(World {
        engine,
        tree,
        histories: Default::default(),
    });
    let mut session = world.engine.session().expect("one is free");
    for index in 0..STANDING {
        world.put(&mut session, index);
    }
    let works: [fn(&World, usize, &mut fastrand::Rng); 4] = [write, write, read, be_alone];
    let threads = works.into_iter().enumerate().map(|(thread, work)| {
        let world = Arc::clone(&world);
        shuttle::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed ^ thread as u64);
            work(&world, thread, &mut random);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("it ends");
    }
    for way in [Direction::Forward, Direction::Backward] {
        world.scan(&mut session, way);
    }
    be_alone(&world, 0, &mut fastrand::Rng::with_seed(0));
    for way in [Direction::Forward, Direction::Backward] {
        world.scan(&mut session, way);
    }
    plant(None);
}

fn run(scheduler: impl Scheduler + 'static, fault: Option<Fault>) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::None;
    let test = move || history(shuttle::rand::thread_rng().next_u64(), fault);
    Runner::new(scheduler, config).run(test);
}

#[test]
fn sessions_see_every_key_while_leaves_are_split() {
    run(RandomScheduler::new_from_seed(SEED, 3_000), None);
    run(PctScheduler::new_from_seed(SEED, 3, 3_000), None);
}

fn caught(fault: Fault) {
    run(RandomScheduler::new_from_seed(SEED, 4_000), Some(fault));
}

#[test]
#[should_panic(expected = "key")]
fn a_writer_that_looks_before_it_has_the_latch_is_caught() {
    caught(Fault::LinkLate);
}

#[test]
#[should_panic(expected = "key")]
fn a_run_that_does_not_see_a_split_is_caught() {
    caught(Fault::RunLink);
}

#[test]
#[should_panic(expected = "key")]
fn a_reader_that_follows_no_link_is_caught() {
    caught(Fault::LinkLeft);
}
