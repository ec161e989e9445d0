//! What a snapshot costs in process: reads at it beside reads of the present, a scan at it beside a
//! writer at full rate, and the bytes that are kept for each key that was overwritten.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::{Args, ValueEnum};
use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook,
    OrderedAt, Point, ReadAt, Snapshot, Snapshots, StringRef, TreeId, ValueRef, WalkAt,
};
use pando_masstree::{Masstree, MasstreeSession};
use pando_mercury::{Mercury, MercurySession};

use super::EmbeddedError;
use crate::accounting::own_resident_bytes;

/// Keys that are read under one pin.
const PIN_KEYS: usize = 64;

/// Engines that have snapshots.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineName {
    Masstree,
    Mercury,
}

/// One engine, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct SnapshotsOptions {
    #[arg(long, value_enum)]
    engine: EngineName,
    #[arg(long)]
    keys: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A session that can show a whole tree at a snapshot.
trait PassAt: ReadAt {
    fn pass_at(&mut self, at: Snapshot, tree: TreeId, visit: impl FnMut(ValueRef<'_>));
}

impl PassAt for MasstreeSession {
    fn pass_at(&mut self, at: Snapshot, tree: TreeId, mut visit: impl FnMut(ValueRef<'_>)) {
        let mut last: Option<Vec<u8>> = None;
        loop {
            // A pin for a while only: what is replaced meanwhile is to come back.
            let (mut left, mut next) = (1 << 14, None);
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            self.scan_at(at, tree, from, Direction::Forward, |key, value| {
                value.into_iter().for_each(&mut visit);
                left -= 1;
                if left > 0 {
                    return ControlFlow::Continue(());
                }
                next = Some(key.to_vec());
                ControlFlow::Break(())
            });
            last = next;
            if last.is_none() {
                return;
            }
        }
    }
}

impl PassAt for MercurySession {
    fn pass_at(&mut self, at: Snapshot, tree: TreeId, mut visit: impl FnMut(ValueRef<'_>)) {
        let mut cursor = 0;
        loop {
            cursor = self.walk_at(at, tree, cursor, |_, value| visit(value));
            if cursor == 0 {
                return;
            }
        }
    }
}

/// How keys are read.
#[derive(Clone, Copy)]
enum Ways {
    Single,
    /// With prefetching.
    Many,
}

fn number_of(value: ValueRef<'_>) -> u64 {
    match value.body {
        BodyRef::String(StringRef::Flat(bytes)) => bytes.try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    }
}

/// Keys of eight bytes, scattered.
fn key_of(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

struct Subject<E: Engine> {
    engine: Arc<E>,
    clock: Arc<EpochClock>,
    tree: TreeId,
    keys: u64,
}

/// Measures the engine that `options` name, in this process.
pub(crate) fn run_snapshots(options: &SnapshotsOptions) -> Result<(), EmbeddedError> {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    match options.engine {
        EngineName::Masstree => measure::<Masstree>(clock, options),
        EngineName::Mercury => measure::<Mercury>(clock, options),
    }
}

fn measure<E: Snapshots<Session: PassAt>>(
    clock: Arc<EpochClock>,
    options: &SnapshotsOptions,
) -> Result<(), EmbeddedError> {
    let engine = E::open(Arc::clone(&clock), E::Options::default());
    let engine = engine.expect("default options suit everywhere");
    let subject = Subject {
        tree: engine.create_tree(),
        engine,
        clock,
        keys: options.keys,
    };
    let mut session = subject.session();
    for number in 0..subject.keys {
        subject.put(&mut session, number, number);
    }
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let at = subject.freeze();
    println!("freeze, microseconds {:.1}", subject.freeze_us());
    subject.print_gets(&mut session, at, "nothing overwritten", &mut rng);
    subject.release(at);

    let alone = subject.freeze();
    let rate = subject.write_beside(|_| (), &mut rng.fork());
    println!("write, first of each key after a snapshot, million/s {rate:.3}");
    subject.release(alone);
    subject.maintain(&mut session);
    let rate = subject.write_beside(|_| (), &mut rng.fork());
    println!("write, no snapshot, million/s {rate:.3}");

    let expected = subject.sum(&mut session);
    let at = subject.freeze();
    let before = own_resident_bytes();
    let mut got = 0;
    let rate = subject.write_beside(|session| got = subject.sum_at(session, at), &mut rng.fork());
    println!("write, beside a scan at a snapshot, million/s {rate:.3}");
    let images = subject.engine.images(at);
    let grown = own_resident_bytes().saturating_sub(before);
    let each = |bytes: f64| bytes / images.count.max(1) as f64;
    println!("keys kept {}", images.count);
    println!("resident bytes per key kept {:.1}", each(grown as f64));
    println!(
        "bytes of blocks per key kept {:.1}",
        each(images.bytes as f64)
    );
    for number in 0..subject.keys {
        subject.put(&mut session, number, 7);
    }
    subject.print_gets(&mut session, at, "everything overwritten", &mut rng);
    let later = subject.sum_at(&mut session, at);
    if got == expected && later == expected {
        return Ok(());
    }
    Err(EmbeddedError::WrongSum {
        what: "the snapshot".into(),
        got: if got == expected { later } else { got },
        expected,
    })
}

impl<E: Snapshots<Session: PassAt>> Subject<E> {
    fn session(&self) -> E::Session {
        self.engine.session().expect("few sessions are open")
    }

    fn put(&self, session: &mut E::Session, number: u64, value: u64) {
        let (key, value) = (key_of(number), value.to_le_bytes());
        session.update(Key::new(self.tree, &key), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(&value)))
        });
    }

    fn freeze(&self) -> Snapshot {
        let epoch = self.clock.end_all();
        self.engine.freeze(epoch).expect("few snapshots are made")
    }

    /// The mean of some that are made and dropped at once.
    fn freeze_us(&self) -> f64 {
        const TIMES: u32 = 100;
        let started = Instant::now();
        for _ in 0..TIMES {
            let at = self.freeze();
            self.release(at);
        }
        started.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
    }

    fn release(&self, at: Snapshot) {
        self.engine.release(at);
        self.engine.settle();
    }

    fn maintain(&self, session: &mut E::Session) {
        self.clock.set_horizon(self.clock.tick());
        while session.maintain(1 << 16) > 0 {}
    }

    /// Gets at a snapshot beside gets of the present, singly and in batches.
    fn print_gets(
        &self,
        session: &mut E::Session,
        at: Snapshot,
        state: &str,
        rng: &mut fastrand::Rng,
    ) {
        for (ways, name) in [(Ways::Single, "get"), (Ways::Many, "get in batches")] {
            let rate = self.gets(session, ways, None, rng);
            println!("{name}, million/s {rate:.3}");
            let rate = self.gets(session, ways, Some(at), rng);
            println!("{name} at, {state}, million/s {rate:.3}");
        }
    }

    /// Random reads, of a tenth of the keys' number, in millions a second.
    fn gets(
        &self,
        session: &mut E::Session,
        ways: Ways,
        at: Option<Snapshot>,
        rng: &mut fastrand::Rng,
    ) -> f64 {
        let reads = (self.keys / 10) as usize;
        let (mut keys, mut sum) = (Vec::with_capacity(PIN_KEYS), 0_u64);
        let started = Instant::now();
        for _ in 0..reads / PIN_KEYS {
            keys.clear();
            keys.extend((0..PIN_KEYS).map(|_| key_of(rng.u64(..self.keys))));
            let keys: Vec<_> = keys.iter().map(|key| Key::new(self.tree, key)).collect();
            let mut pinned = session.pinned();
            let mut add = |value: Option<ValueRef<'_>>| {
                sum = sum.wrapping_add(value.map_or(0, number_of));
            };
            match (ways, at) {
                (Ways::Many, Some(at)) => pinned.get_many_at(at, &keys, |_, value| add(value)),
                (Ways::Many, None) => pinned.get_many(&keys, |_, value| add(value)),
                (Ways::Single, _) => {
                    for key in keys {
                        match at {
                            Some(at) => pinned.get_at(at, key, &mut add),
                            None => pinned.get(key, &mut add),
                        }
                    }
                }
            }
        }
        std::hint::black_box(sum);
        reads as f64 / started.elapsed().as_secs_f64() / 1e6
    }

    fn sum(&self, session: &mut E::Session) -> u64 {
        let at = self.freeze();
        let sum = self.sum_at(session, at);
        self.release(at);
        sum
    }

    fn sum_at(&self, session: &mut E::Session, at: Snapshot) -> u64 {
        let mut sum = 0_u64;
        session.pass_at(at, self.tree, |value| {
            sum = sum.wrapping_add(number_of(value));
        });
        sum
    }

    /// Overwrites random keys on a thread of its own until `beside` is done, and for as many writes
    /// as there are tenths of keys at least; in millions a second.
    fn write_beside(&self, beside: impl FnOnce(&mut E::Session), rng: &mut fastrand::Rng) -> f64 {
        let done = AtomicBool::new(false);
        let mut session = self.session();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut writer = self.session();
                let (mut writes, started) = (0_u64, Instant::now());
                while !done.load(Ordering::Relaxed) || writes < self.keys / 10 {
                    for _ in 0..PIN_KEYS {
                        self.put(&mut writer, rng.u64(..self.keys), writes);
                        writes += 1;
                    }
                }
                writes as f64 / started.elapsed().as_secs_f64() / 1e6
            });
            beside(&mut session);
            done.store(true, Ordering::Relaxed);
            writer.join().expect("a writer does not panic")
        })
    }
}
