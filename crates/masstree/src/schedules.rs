//! Random schedules by shuttle: the real code on nodes of width 3, with more threads and longer
//! histories than loom can exhaust. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p pando-masstree --release --lib`.
//!
//! Every key has one writer, which numbers its operations: odd ones put the number, even ones
//! remove the key. A failure prints its schedule, which `shuttle::replay` runs again.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_block::BlockRef;
use pando_engine::{BodyRef, Direction, ValueRef};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use crate::canary::Fault;
use crate::context::Context;
use crate::get::get;
use crate::scan::Scan;
use crate::world::{World, say_panics_shortly};

/// Schedules per test; the variable `PANDO_SCHEDULES` asks for another number.
const SCHEDULES: usize = 400;

/// The same schedules in every run; the variable `SHUTTLE_RANDOM_SEED` asks for others.
const SEED: u64 = 1;

/// Points at which PCT preempts the thread of the highest priority.
const PRIORITY_CHANGES: usize = 3;

const WRITERS: usize = 2;
const OPERATIONS_PER_WRITER: usize = 9;
const READS: usize = 8;
const PURGES: usize = 12;

type Keys = &'static [&'static [u8]];

/// Border nodes of width 3 fill, split, empty and are removed.
const ONE_LAYER: Keys = &[b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"];

/// One layer is made, removed and folded.
const ONE_SLICE: Keys = &[b"76543210A", b"76543210B", b"76543210C", b"76543210D"];

/// Layers are made, deepen, fold and are removed among other keys.
const MIXED: Keys = &[
    b"1",
    b"2",
    b"4",
    b"5",
    b"76543210",
    b"76543210A",
    b"76543210B",
    b"7654321076543210A",
    b"7654321076543210B",
    b"9",
];

#[derive(Default)]
struct History {
    begun: AtomicU64,
    ended: AtomicU64,
}

struct Shared {
    world: Arc<World>,
    keys: Keys,
    histories: Vec<History>,
}

fn number_of(value: ValueRef<'_>) -> u64 {
    let BodyRef::String(string) = value.body else {
        panic!("numbers were put");
    };
    let bytes = string.as_flat().expect("a short string is flat");
    u64::from_be_bytes(bytes.try_into().expect("a whole value"))
}

/// The number identifies the key it was put under, so another key's value is noticed.
fn value_of(index: usize, number: u64) -> [u8; 8] {
    (number << 8 | index as u64).to_be_bytes()
}

impl Shared {
    /// The write that was read must have begun, and no newer one may have ended before the read
    /// began.
    fn check(&self, index: usize, ended_before: u64, seen: Option<u64>) {
        let begun = self.histories[index].begun.load(Ordering::SeqCst);
        if let Some(seen) = seen {
            let (number, of) = (seen >> 8, (seen & 0xff) as usize);
            assert_eq!(of, index, "a value of another key");
            let possible = number % 2 == 1 && (ended_before..=begun).contains(&number);
            assert!(
                possible,
                "key {index}: {number}, not in {ended_before}..={begun}"
            );
        } else {
            let possible = ended_before.is_multiple_of(2) || begun > ended_before;
            assert!(possible, "key {index} is lost, {ended_before}..={begun}");
        }
    }

    fn ended(&self, index: usize) -> u64 {
        self.histories[index].ended.load(Ordering::SeqCst)
    }

    /// Puts and removes keys of one writer, and purges some of what was removed.
    fn write(&self, context: &mut Context, writer: usize, random: &mut fastrand::Rng) {
        for _ in 0..OPERATIONS_PER_WRITER {
            let index = random.usize(..self.keys.len() / WRITERS) * WRITERS + writer;
            let history = &self.histories[index];
            let last = history.begun.load(Ordering::SeqCst);
            let present = last % 2 == 1;
            if present && random.u8(..3) > 0 {
                history.begun.store(last + 1, Ordering::SeqCst);
                self.world
                    .bury(self.world.remove(context, self.keys[index]));
                history.ended.store(last + 1, Ordering::SeqCst);
            } else {
                let number = (last + 1) | 1;
                history.begun.store(number, Ordering::SeqCst);
                self.world
                    .put_value(context, self.keys[index], &value_of(index, number));
                history.ended.store(number, Ordering::SeqCst);
            }
        }
    }

    fn purge(&self, context: &mut Context) {
        for _ in 0..PURGES {
            match self.world.exhume() {
                Some(tombstone) => self.world.purge(context, &tombstone),
                None => shuttle::thread::yield_now(),
            }
        }
    }

    fn get(&self, context: &mut Context, index: usize) {
        let ended = self.ended(index);
        let seen = context.pinned(|guard, context| {
            let block = get(&self.world.tree, self.keys[index], guard, &context.counters);
            block.and_then(BlockRef::value).map(number_of)
        });
        self.check(index, ended, seen);
    }

    fn scan(&self, context: &mut Context, direction: Direction) {
        let ended: Vec<_> = (0..self.keys.len())
            .map(|index| self.ended(index))
            .collect();
        let mut seen = Vec::new();
        context.pinned(|guard, context| {
            let tree = &self.world.tree;
            Scan::new(tree, direction, guard, &context.counters).run_live(
                Bound::Unbounded,
                |key, value| {
                    seen.push((key.to_vec(), number_of(value)));
                    ControlFlow::Continue(())
                },
            );
        });
        let sorted = seen.is_sorted_by(|a, b| match direction {
            Direction::Forward => a.0 < b.0,
            Direction::Backward => a.0 > b.0,
        });
        assert!(sorted, "a scan out of order or with a key twice");
        let mut seen: BTreeMap<_, _> = seen.into_iter().collect();
        for (index, key) in self.keys.iter().enumerate() {
            self.check(index, ended[index], seen.remove(*key));
        }
        assert!(seen.is_empty(), "a key that nobody put: {seen:?}");
    }

    fn read(&self, context: &mut Context, direction: Direction, random: &mut fastrand::Rng) {
        for _ in 0..READS {
            if random.u8(..4) == 0 {
                self.scan(context, direction);
            } else {
                self.get(context, random.usize(..self.keys.len()));
            }
        }
    }
}

/// Two writers, two purgers and two readers on one tree, which is empty at the end.
fn history(keys: Keys, fault: Option<Fault>) {
    let world = World::new(fault);
    let histories = keys.iter().map(|_| History::default()).collect();
    let shared = Arc::new(Shared {
        world,
        keys,
        histories,
    });
    let seed = shuttle::rand::thread_rng().next_u64();
    let spawn = |work: fn(&Shared, &mut Context, &mut fastrand::Rng), thread: u64| {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed ^ thread);
            let mut context = shared.world.context();
            work(&shared, &mut context, &mut random);
        })
    };
    let threads = [
        spawn(
            |shared, context, random| shared.write(context, 0, random),
            1,
        ),
        spawn(
            |shared, context, random| shared.write(context, 1, random),
            2,
        ),
        spawn(|shared, context, _| shared.purge(context), 3),
        spawn(|shared, context, _| shared.purge(context), 4),
        spawn(
            |shared, context, random| shared.read(context, Direction::Forward, random),
            5,
        ),
        spawn(
            |shared, context, random| shared.read(context, Direction::Backward, random),
            6,
        ),
    ];
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    let mut context = shared.world.context();
    for index in 0..keys.len() {
        shared.get(&mut context, index);
        if shared.ended(index) % 2 == 1 {
            let tombstone = shared.world.remove(&mut context, keys[index]);
            shared.world.bury(tombstone);
        }
    }
    while let Some(tombstone) = shared.world.exhume() {
        shared.world.purge(&mut context, &tombstone);
    }
    assert_eq!(
        shared.world.tree.counts.tombstones(),
        0,
        "a tombstone is lost"
    );
    assert_eq!(shared.world.layers(), 0, "no layer is left");
}

fn run(scheduler: impl Scheduler + 'static, keys: Keys, fault: Option<Fault>) {
    say_panics_shortly();
    let mut config = Config::new();
    // Debug builds have deep frames.
    config.stack_size = 1 << 20;
    Runner::new(scheduler, config).run(move || history(keys, fault));
}

fn schedules() -> usize {
    let number = std::env::var("PANDO_SCHEDULES");
    number.map_or(SCHEDULES, |number| {
        number.parse().expect("a number of schedules")
    })
}

fn random(keys: Keys) {
    run(
        RandomScheduler::new_from_seed(SEED, schedules()),
        keys,
        None,
    );
}

/// Threads run long before a few preemption points: tests what a delayed thread assumes.
fn few_changes(keys: Keys) {
    run(
        PctScheduler::new_from_seed(SEED, PRIORITY_CHANGES, schedules()),
        keys,
        None,
    );
}

#[test]
fn one_layer_loses_nothing() {
    random(ONE_LAYER);
    few_changes(ONE_LAYER);
}

#[test]
fn a_layer_that_comes_and_goes_loses_nothing() {
    random(ONE_SLICE);
    few_changes(ONE_SLICE);
}

#[test]
fn layers_in_layers_lose_nothing() {
    random(MIXED);
    few_changes(MIXED);
}

/// The fault shows within this many schedules. Which check sees it first depends on the schedule:
/// an overwritten entry is another key's value, a scan out of order, a lost key or a tombstone that
/// nobody can purge.
fn caught(keys: Keys, fault: Fault) {
    run(
        PctScheduler::new_from_seed(SEED, PRIORITY_CHANGES, 20_000),
        keys,
        Some(fault),
    );
}

#[test]
#[should_panic]
fn a_missing_split_mark_is_caught() {
    caught(ONE_LAYER, Fault::SplitWithoutMark);
}

#[test]
#[should_panic]
fn a_missing_deleted_mark_of_a_node_is_caught() {
    caught(ONE_LAYER, Fault::RemoveWithoutMark);
}

#[test]
#[should_panic]
fn a_missing_deleted_mark_of_a_layer_is_caught() {
    caught(ONE_SLICE, Fault::LayerGoesWithoutMark);
}

#[test]
#[should_panic]
fn a_missing_inserting_mark_is_caught() {
    caught(ONE_LAYER, Fault::ReuseWithoutMark);
}
