//! Readers, writers, removers, scanners and maintenance on shared nodes and layers.
//!
//! Every key has one writer, which numbers its operations: odd ones put the number, even ones
//! remove the key. Around each operation the writer publishes that it has begun and that it has
//! ended it. So a reader knows bounds: what it sees must have begun before its read ended and must
//! not be older than what had ended before its read began. For a register with one writer that,
//! with each reader's numbers never going back, is linearizability.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Seconds that each stress runs; minutes on demand by the variable `PANDO_STRESS_SECONDS`.
fn duration() -> Duration {
    let seconds = std::env::var("PANDO_STRESS_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
}

/// A seed, which is printed; the same in every run unless `PANDO_TEST_SEED` holds another.
fn seed() -> u64 {
    let chosen = std::env::var("PANDO_TEST_SEED").ok();
    let seed = chosen.map_or(1, |text| text.parse().unwrap());
    println!("PANDO_TEST_SEED={seed}");
    seed
}

#[derive(Default)]
struct History {
    begun: AtomicU64,
    ended: AtomicU64,
}

struct World {
    engine: Arc<Masstree>,
    clock: Arc<EpochClock>,
    tree: TreeId,
    keys: Vec<Vec<u8>>,
    histories: Vec<History>,
    stop: AtomicBool,
    seed: u64,
}

impl World {
    fn new(keys: Vec<Vec<u8>>, seed: u64) -> Self {
        Self::on(EpochClock::starting_at(LogEpoch(1)), keys, seed)
    }

    fn on(clock: EpochClock, keys: Vec<Vec<u8>>, seed: u64) -> Self {
        let (clock, engine) = engine_on(clock);
        let tree = engine.create_tree();
        let histories = keys.iter().map(|_| History::default()).collect();
        Self {
            engine,
            clock,
            tree,
            keys,
            histories,
            stop: AtomicBool::new(false),
            seed,
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A key of which the reader knows that it was present throughout: its number was odd and no
    /// later operation had begun.
    fn check(&self, index: usize, ended_before: u64, seen: Option<u64>) {
        let begun_after = self.histories[index].begun.load(Ordering::SeqCst);
        let (seed, key) = (self.seed, &self.keys[index]);
        match seen {
            Some(number) => assert!(
                number % 2 == 1 && (ended_before..=begun_after).contains(&number),
                "seed {seed}: {key:?} read {number}, not in {ended_before}..={begun_after}"
            ),
            None => assert!(
                ended_before.is_multiple_of(2) || begun_after > ended_before,
                "seed {seed}: {key:?} lost, {ended_before}..={begun_after}"
            ),
        }
    }

    fn ended(&self, index: usize) -> u64 {
        self.histories[index].ended.load(Ordering::SeqCst)
    }

    /// Writes the keys whose number modulo `writers` is `writer`.
    fn write(&self, writer: usize, writers: usize) {
        let mut session = self.engine.session().unwrap();
        let mut random = fastrand::Rng::with_seed(self.seed ^ writer as u64);
        while !self.stopped() {
            // Bursts on neighbours empty whole nodes and layers and fill them again.
            let start = random.usize(..self.keys.len());
            let burst = random.usize(1..40);
            let put_share = random.u8(..=8);
            let own: Vec<_> = (start..(start + burst).min(self.keys.len()))
                .filter(|index| index % writers == writer)
                .map(|index| (index, random.u8(..8) < put_share))
                .collect();
            if random.bool() {
                self.write_batch(&mut session, &own);
                continue;
            }
            for (index, putting) in own {
                self.write_one(&mut session, index, putting);
            }
        }
    }

    /// Begins an operation; returns its number.
    fn begin(&self, index: usize, putting: bool) -> u64 {
        let history = &self.histories[index];
        let last = history.begun.load(Ordering::SeqCst);
        let number = if putting {
            (last + 1) | 1
        } else {
            (last + 2) & !1
        };
        history.begun.store(number, Ordering::SeqCst);
        number
    }

    /// Writes keys as a batch, each beginning where the batch's descents have found it.
    fn write_batch(&self, session: &mut MasstreeSession, writes: &[(usize, bool)]) {
        let numbers: Vec<_> = writes
            .iter()
            .map(|(index, putting)| self.begin(*index, *putting).to_be_bytes())
            .collect();
        let keys: Vec<_> = writes
            .iter()
            .map(|(index, _)| Key::new(self.tree, &self.keys[*index]))
            .collect();
        // Values are overwritten, where nobody reads at that moment.
        session.pin();
        if numbers.len() % 2 == 1 {
            session.keep_out();
        }
        session.update_many(&keys, &mut NoHook, |at, _| {
            if writes[at].1 {
                Decision::Write(NewValue::new(Body::string(&numbers[at])))
            } else {
                Decision::Remove
            }
        });
        session.let_in();
        session.unpin();
        for ((index, _), number) in writes.iter().zip(numbers) {
            let number = u64::from_be_bytes(number);
            self.histories[*index].ended.store(number, Ordering::SeqCst);
        }
    }

    fn write_one(&self, session: &mut MasstreeSession, index: usize, putting: bool) {
        let (history, key) = (&self.histories[index], &self.keys[index]);
        let number = self.begin(index, putting);
        if putting {
            put(session, self.tree, key, &number.to_be_bytes());
        } else {
            remove(session, self.tree, key);
        }
        history.ended.store(number, Ordering::SeqCst);
    }

    fn read(&self, reader: u64) {
        let mut session = self.engine.session().unwrap();
        let mut random = fastrand::Rng::with_seed(self.seed ^ reader << 32);
        while !self.stopped() {
            if random.bool() {
                let index = random.usize(..self.keys.len());
                let ended = self.ended(index);
                let seen = get(&mut session, self.tree, &self.keys[index]);
                self.check(index, ended, seen.map(number_of));
                continue;
            }
            let indexes: Vec<_> = (0..40).map(|_| random.usize(..self.keys.len())).collect();
            let ended: Vec<_> = indexes.iter().map(|index| self.ended(*index)).collect();
            let keys: Vec<_> = indexes
                .iter()
                .map(|index| Key::new(self.tree, &self.keys[*index]))
                .collect();
            if random.bool() {
                session.get_many(&keys, |at, value| {
                    self.check(indexes[at], ended[at], value.map(bytes_of).map(number_of));
                });
                continue;
            }
            session.pin();
            session.warm(&keys);
            for (at, index) in indexes.into_iter().enumerate() {
                // Some are read where they were found, some not, some by another key's spot.
                if random.u8(..8) > 0 {
                    session.recall(at.saturating_sub(usize::from(random.u8(..16) == 0)));
                }
                let seen = get(&mut session, self.tree, &self.keys[index]);
                self.check(index, ended[at], seen.map(number_of));
            }
            session.unpin();
        }
    }

    /// Scans a stretch of the keys in one direction and checks each key of the stretch.
    fn scan(&self, direction: Direction) {
        let mut session = self.engine.session().unwrap();
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x5ca7 ^ direction as u64);
        while !self.stopped() {
            let low = random.usize(..self.keys.len());
            let high = random.usize(low..self.keys.len());
            let ended: Vec<_> = (low..=high).map(|index| self.ended(index)).collect();
            let (from, to) = match direction {
                Direction::Forward => (&self.keys[low], &self.keys[high]),
                Direction::Backward => (&self.keys[high], &self.keys[low]),
            };
            let mut seen: Vec<(Vec<u8>, u64)> = Vec::new();
            session.scan(
                self.tree,
                Bound::Included(&from[..]),
                direction,
                |key, value| {
                    let beyond = match direction {
                        Direction::Forward => key > &to[..],
                        Direction::Backward => key < &to[..],
                    };
                    if beyond {
                        return ControlFlow::Break(());
                    }
                    seen.push((key.to_vec(), number_of(bytes_of(value))));
                    ControlFlow::Continue(())
                },
            );
            if direction == Direction::Backward {
                seen.reverse();
            }
            assert!(
                seen.windows(2).all(|pair| pair[0].0 < pair[1].0),
                "seed {}: order",
                self.seed
            );
            let mut seen = seen.into_iter().peekable();
            for index in low..=high {
                let found = seen.next_if(|(key, _)| *key == self.keys[index]);
                self.check(index, ended[index - low], found.map(|(_, number)| number));
            }
            assert!(
                seen.next().is_none(),
                "seed {}: a key that nobody wrote",
                self.seed
            );
        }
    }

    fn maintain(&self) {
        let mut session = self.engine.session().unwrap();
        while !self.stopped() {
            let epoch = self.clock.tick();
            self.clock.set_horizon(epoch);
            session.maintain(32);
        }
    }

    /// Runs all of it, then removes everything and checks that nothing is left.
    fn run(self) {
        thread::scope(|scope| {
            let workers = [
                scope.spawn(|| self.write(0, 2)),
                scope.spawn(|| self.write(1, 2)),
                scope.spawn(|| self.read(1)),
                scope.spawn(|| self.scan(Direction::Forward)),
                scope.spawn(|| self.scan(Direction::Backward)),
                scope.spawn(|| self.maintain()),
                scope.spawn(|| self.maintain()),
            ];
            let end = Instant::now() + duration();
            while Instant::now() < end && !workers.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                thread::park_timeout(Duration::from_millis(10));
            }
            self.stop.store(true, Ordering::Relaxed);
        });
        let mut session = self.engine.session().unwrap();
        for key in &self.keys {
            remove(&mut session, self.tree, key);
        }
        purge(&self.clock, &mut session);
        let left = gauges(&self.engine);
        for name in ["keys", "tombstones", "entries", "layers", "young_nodes"] {
            assert_eq!(left[name], 0, "seed {}: {name}: {left:?}", self.seed);
        }
        assert_eq!(left["border_nodes"], 1, "seed {}: {left:?}", self.seed);
    }
}

fn number_of(bytes: Vec<u8>) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("the value of one operation, whole"))
}

fn sorted(mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn one_layer_of_splitting_and_emptying_nodes() {
    let keys = (0..600_u16)
        .map(|number| number.to_be_bytes().to_vec())
        .collect();
    World::new(sorted(keys), seed()).run();
}

#[test]
fn layers_come_and_go() {
    World::new(keys_of_layers(), seed()).run();
}

#[test]
fn nodes_and_layers_go_at_once_under_a_self_driven_clock() {
    World::on(EpochClock::self_driven(), keys_of_layers(), seed()).run();
}

/// M8 changed-alone: who reads a value sees all of it, and it stays as it is meanwhile.
#[test]
fn overwritten_values_are_whole() {
    const BYTES: usize = 2_000;
    const OVERWRITTEN: i64 = 200;
    let (_clock, engine) = engine();
    let tree = engine.create_tree();
    let mut writer = engine.session().unwrap();
    put(&mut writer, tree, b"key", &[0; BYTES]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            let mut reader = engine.session().unwrap();
            while !stop.load(Ordering::Relaxed) {
                reader.get(Key::new(tree, b"key"), |value| {
                    let first = value.map(bytes_of).unwrap();
                    assert_eq!(first, [first[0]; BYTES]);
                    thread::yield_now();
                    assert_eq!(value.map(bytes_of).unwrap(), first);
                });
                thread::yield_now();
            }
        };
        scope.spawn(read);
        scope.spawn(read);
        let mut number = 0;
        while writer.context.counters.overwritten_total.get() < OVERWRITTEN {
            number += 1;
            writer.pin();
            writer.keep_out();
            put(&mut writer, tree, b"key", &[number as u8; BYTES]);
            writer.let_in();
            writer.unpin();
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(
            get(&mut writer, tree, b"key"),
            Some(vec![number as u8; BYTES])
        );
    });
}

fn keys_of_layers() -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for group in 0..12_u8 {
        for number in 0..10_u8 {
            keys.push(format!("group{group:03}{number}").into_bytes());
            keys.push(format!("group{group:03}same-8-bytes-again{number}").into_bytes());
        }
        keys.push(format!("group{group:03}").into_bytes());
    }
    sorted(keys)
}

#[test]
fn slices_with_many_lengths_in_full_nodes() {
    let mut keys = Vec::new();
    for first in 0..20_u8 {
        for length in 0..=12_usize {
            let mut key = vec![first];
            key.resize(1 + length, 0);
            keys.push(key);
        }
    }
    World::new(sorted(keys), seed()).run();
}
