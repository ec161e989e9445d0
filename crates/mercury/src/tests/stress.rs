//! Readers, writers, removers, walkers and maintenance while the table grows and shrinks.
//!
//! Every key has one writer, which numbers its operations: odd ones put the number, even ones
//! remove the key. Around each operation the writer publishes that it has begun and that it has
//! ended it. So a reader knows bounds: what it sees must have begun before its read ended and must
//! not be older than what had ended before its read began. Other threads add and remove thousands
//! of keys, so that the buckets of those keys move all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Seconds that the stress runs; minutes on demand by the variable `PANDO_STRESS_SECONDS`.
fn duration() -> Duration {
    let seconds = std::env::var("PANDO_STRESS_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(2.0))
}

/// A seed, which is printed; the same in every run unless `PANDO_TEST_SEED` holds another.
fn seed() -> u64 {
    let chosen = std::env::var("PANDO_TEST_SEED").ok();
    let seed = chosen.map_or(1, |text| text.parse().unwrap());
    println!("PANDO_TEST_SEED={seed}");
    seed
}

const REGISTERS: usize = 64;
const TIDE: u64 = 4_000;

#[derive(Default)]
struct History {
    begun: AtomicU64,
    ended: AtomicU64,
}

struct World {
    engine: Arc<Mercury>,
    clock: Arc<EpochClock>,
    tree: TreeId,
    histories: Vec<History>,
    stop: AtomicBool,
    seed: u64,
}

fn register(index: usize) -> Vec<u8> {
    format!("register:{index}").into_bytes()
}

impl World {
    fn new(seed: u64) -> Self {
        let (clock, engine) = engine();
        let tree = engine.create_tree();
        Self {
            engine,
            clock,
            tree,
            histories: (0..REGISTERS).map(|_| History::default()).collect(),
            stop: AtomicBool::new(false),
            seed,
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn ended(&self, index: usize) -> u64 {
        self.histories[index].ended.load(Ordering::SeqCst)
    }

    fn check(&self, index: usize, ended_before: u64, seen: Option<u64>) {
        let begun_after = self.histories[index].begun.load(Ordering::SeqCst);
        let seed = self.seed;
        match seen {
            Some(number) => assert!(
                number % 2 == 1 && (ended_before..=begun_after).contains(&number),
                "seed {seed}: register {index} read {number}, not in {ended_before}..={begun_after}"
            ),
            None => assert!(
                ended_before.is_multiple_of(2) || begun_after > ended_before,
                "seed {seed}: register {index} lost, {ended_before}..={begun_after}"
            ),
        }
    }

    fn write(&self, writer: usize, writers: usize) {
        let mut session = self.engine.session().unwrap();
        let mut rng = fastrand::Rng::with_seed(self.seed + writer as u64);
        while !self.stopped() {
            let index = rng.usize(..REGISTERS / writers) * writers + writer;
            let history = &self.histories[index];
            let number = history.begun.load(Ordering::SeqCst) + 1;
            history.begun.store(number, Ordering::SeqCst);
            if number % 2 == 1 {
                put(&mut session, self.tree, &register(index), number);
            } else {
                remove(&mut session, self.tree, &register(index)).expect("it was there");
            }
            history.ended.store(number, Ordering::SeqCst);
        }
    }

    fn read(&self, reader: u64) {
        let mut session = self.engine.session().unwrap();
        let mut rng = fastrand::Rng::with_seed(self.seed ^ reader << 32);
        while !self.stopped() {
            if rng.u8(..4) > 0 {
                let index = rng.usize(..REGISTERS);
                let ended_before = self.ended(index);
                let seen = get(&mut session, self.tree, &register(index));
                self.check(index, ended_before, seen);
                continue;
            }
            let first = rng.usize(..REGISTERS - 8);
            let before: Vec<_> = (first..first + 8).map(|index| self.ended(index)).collect();
            let names: Vec<_> = (first..first + 8).map(register).collect();
            let keys: Vec<_> = names.iter().map(|name| Key::new(self.tree, name)).collect();
            let mut seen = vec![None; keys.len()];
            session.get_many(&keys, |at, value| seen[at] = value.map(number_of));
            for (at, seen) in seen.into_iter().enumerate() {
                self.check(first + at, before[at], seen);
            }
        }
    }

    /// Walks through everything again and again: a register that was there throughout is shown.
    fn walk(&self) {
        let mut session = self.engine.session().unwrap();
        while !self.stopped() {
            let before: Vec<_> = (0..REGISTERS).map(|index| self.ended(index)).collect();
            let seen = walked(&mut session, self.tree);
            for (index, before) in before.into_iter().enumerate() {
                let begun_after = self.histories[index].begun.load(Ordering::SeqCst);
                let stayed = before % 2 == 1 && begun_after == before;
                assert!(
                    !stayed || seen.contains(&register(index)),
                    "seed {}: a walk misses register {index}",
                    self.seed
                );
            }
        }
    }

    /// Adds and removes keys by the thousand, so that the table grows and shrinks.
    fn tide(&self) -> u64 {
        let mut session = self.engine.session().unwrap();
        let mut rounds = 0;
        // Once at least, however late this thread comes to run.
        loop {
            for number in 0..TIDE {
                put(&mut session, self.tree, &key(number), number);
            }
            for number in 0..TIDE {
                remove(&mut session, self.tree, &key(number)).expect("only this thread removes");
            }
            while session.maintain(256) > 0 {}
            rounds += 1;
            if self.stopped() {
                return rounds;
            }
        }
    }

    fn maintain(&self) {
        let mut session = self.engine.session().unwrap();
        while !self.stopped() {
            self.clock.set_horizon(self.clock.tick());
            session.maintain(16);
            thread::yield_now();
        }
    }
}

#[test]
fn nothing_is_lost_while_tables_grow_and_shrink() {
    let world = World::new(seed());
    let started = Instant::now();
    thread::scope(|scope| {
        for writer in 0..2 {
            let world = &world;
            scope.spawn(move || world.write(writer, 2));
        }
        let others: [fn(&World); 4] = [
            |world| world.read(1),
            |world| world.read(2),
            World::walk,
            World::maintain,
        ];
        for other in others {
            let world = &world;
            scope.spawn(move || other(world));
        }
        let tide = scope.spawn(|| world.tide());
        // The stop is by the clock: there is no state to wait for.
        while started.elapsed() < duration() && !tide.is_finished() {
            thread::yield_now();
        }
        world.stop.store(true, Ordering::Relaxed);
        assert!(tide.join().unwrap() > 0);
    });
    let mut session = world.engine.session().unwrap();
    settle(&world.clock, &mut session);
    let figures = gauges(&world.engine);
    assert!(
        figures["growths_total"] > 3.0 && figures["shrinks_total"] > 3.0,
        "{figures:?}"
    );
    assert_eq!(
        walked(&mut session, world.tree).len() as u64,
        world.engine.len(world.tree)
    );
}
