//! Hit rates of a cache of mixed values, on fixed traces, beside models of the policies.
//!
//! The memory in use is what the engine's pools say: blocks that are held, and what is idle beyond
//! the allowance. So values of all lengths compete for the same bytes, as in a server.
//!
//! The models keep exact counts or times of use, and know a value's bytes; no sampling, no hand.

use std::collections::{BTreeSet, HashMap};

use super::*;

/// The limit of memory.
const LIMIT_BYTES: usize = 8 << 20;

const KEYS: usize = 30_000;
const READS: usize = 60_000;

/// About what an entry takes beside its value.
const ENTRY_BYTES: usize = 90;

/// The bytes that the engine holds of this thread's test.
fn held() -> usize {
    MEASURED.with_borrow(|database| {
        database.upgrade().map_or(0, |database| {
            let mut live = 0;
            database.gauges(&mut |gauge| {
                if gauge.name == "live_bytes" {
                    live = gauge.value as usize;
                }
            });
            live + database.store.idle_bytes()
        })
    })
}

fn cache(engine: EngineKind, policy: EvictionPolicy, bytes: usize) -> Shell {
    let shell = metered(engine, policy, held);
    shell.database.set_max_memory(bytes);
    shell
}

/// One value in ten has 5 to 20 thousand bytes, the others 100 to 1,000.
fn value_bytes(key: usize) -> usize {
    let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let bytes = match hash % 10 {
        0 => 5_000 + hash / 10 % 15_000,
        _ => 100 + hash / 10 % 900,
    };
    bytes as usize
}

/// Reads keys and writes those that are missing, as an application before a database does.
trait Cache {
    /// Whether the key is there.
    fn read(&mut self, key: usize) -> bool;
    fn write(&mut self, key: usize);
}

/// The database, whose maintenance has its turn every so many writes.
struct Server<'s> {
    shell: &'s mut Shell,
    session: crate::Session,
    writes: usize,
}

impl<'s> Server<'s> {
    fn new(shell: &'s mut Shell) -> Self {
        let session = shell.database.session().expect("a session is free");
        Self {
            shell,
            session,
            writes: 0,
        }
    }
}

impl Cache for Server<'_> {
    fn read(&mut self, key: usize) -> bool {
        let reply = self.shell.begin(["GET", &format!("key:{key:012}")]).0;
        reply != b"$-1\r\n"
    }

    fn write(&mut self, key: usize) {
        let (name, value) = (format!("key:{key:012}"), "v".repeat(value_bytes(key)));
        self.writes += 1;
        if self.writes.is_multiple_of(64) {
            // Time of a busy server.
            self.shell.pass_ms(5);
            self.session.maintain();
        }
        loop {
            match self.shell.begin(["SET", &name, &value]) {
                (_, Progress::Waits(crate::Wait::Leave { .. })) => {
                    self.shell.pass_ms(1);
                    self.session.maintain();
                }
                (reply, _) => break assert_eq!(reply, b"+OK\r\n", "{key}"),
            }
        }
    }
}

/// Which of the keys goes first: the one with the least of these.
#[derive(Clone, Copy)]
enum Model {
    /// The least used one, and of these the one that came first.
    Often,
    /// The one whose last use lies furthest back.
    Lately,
    /// A planted fault: the most used one.
    Hottest,
}

struct Modelled {
    model: Model,
    ranks: HashMap<usize, (i64, usize)>,
    order: BTreeSet<((i64, usize), usize)>,
    bytes: usize,
    bytes_max: usize,
    clock: usize,
}

impl Modelled {
    fn new(model: Model, bytes_max: usize) -> Self {
        let (ranks, order) = (HashMap::new(), BTreeSet::new());
        Self {
            model,
            ranks,
            order,
            bytes: 0,
            bytes_max,
            clock: 0,
        }
    }

    fn used(&self, before: Option<(i64, usize)>) -> (i64, usize) {
        let (count, since) = before.unwrap_or((0, self.clock));
        match self.model {
            Model::Often => (count + 1, since),
            Model::Lately => (0, self.clock),
            Model::Hottest => (count - 1, since),
        }
    }
}

impl Cache for Modelled {
    fn read(&mut self, key: usize) -> bool {
        self.clock += 1;
        let Some(before) = self.ranks.get(&key).copied() else {
            return false;
        };
        let rank = self.used(Some(before));
        self.order.remove(&(before, key));
        self.order.insert((rank, key));
        self.ranks.insert(key, rank);
        true
    }

    fn write(&mut self, key: usize) {
        self.clock += 1;
        let taken = |key| value_bytes(key) + ENTRY_BYTES;
        self.bytes += taken(key);
        while self.bytes > self.bytes_max {
            let (_, victim) = self.order.pop_first().expect("a key is there");
            self.ranks.remove(&victim);
            self.bytes -= taken(victim);
        }
        let rank = self.used(None);
        self.ranks.insert(key, rank);
        self.order.insert((rank, key));
    }
}

/// Reads keys by their popularity, the k-th as 1 / k^0.9; hits of the second half, per mille.
fn zipf(cache: &mut impl Cache) -> usize {
    let mut sum = 0.0;
    let weights: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += (rank as f64).powf(-0.9);
            sum
        })
        .collect();
    let (mut random, mut hits) = (fastrand::Rng::with_seed(5), 0);
    for read in 0..READS {
        let drawn = random.f64() * sum;
        let rank = weights.partition_point(|weight| *weight < drawn);
        // Keys that are used as often do not stand side by side.
        let key = rank * 7_919 % KEYS;
        let hit = cache.read(key);
        if !hit {
            cache.write(key);
        }
        hits += usize::from(hit && read >= READS / 2);
    }
    hits * 1000 / (READS / 2)
}

/// Hot keys that are read in rounds while half of the memory is written anew in between by keys
/// that come once: how often a hot key is missing, per mille.
fn churn(cache: &mut impl Cache) -> usize {
    const HOT: usize = 100;
    const ROUNDS: usize = 14;
    const ROUNDS_FIRST: usize = 4;
    let (mut misses, mut next) = (0, KEYS);
    for round in 0..ROUNDS {
        for hot in 0..HOT {
            if !cache.read(1_000_000 + hot) {
                misses += usize::from(round >= ROUNDS_FIRST);
                cache.write(1_000_000 + hot);
            }
            for _ in 0..LIMIT_BYTES / 2 / HOT / 1_800 {
                next += 1;
                cache.write(next);
            }
        }
    }
    misses * 1000 / (HOT * (ROUNDS - ROUNDS_FIRST))
}

const ENGINES: [EngineKind; 2] = [EngineKind::Masstree, EngineKind::Mercury];

/// How far below its model a policy may stay, in per mille of the reads.
const SLACK: usize = 15;

fn comes_near(hits: usize, model: usize) -> bool {
    hits + SLACK >= model
}

/// Short and long values compete for the same bytes, whatever memory they lie in.
#[test]
fn mixed_values_are_kept_as_by_exact_counts() {
    use EvictionPolicy::{AllKeysLfu, AllKeysLru};
    for (policy, model) in [(AllKeysLfu, Model::Often), (AllKeysLru, Model::Lately)] {
        let best = zipf(&mut Modelled::new(model, LIMIT_BYTES));
        for engine in ENGINES {
            let mut shell = cache(engine, policy, LIMIT_BYTES);
            let hits = zipf(&mut Server::new(&mut shell));
            assert!(evicted(&shell) > 10_000, "{engine:?}");
            assert!(held() <= LIMIT_BYTES, "{engine:?}: {} bytes", held());
            assert!(
                comes_near(hits, best),
                "{engine:?} {policy:?}: {hits} of {best}"
            );
        }
    }
}

/// The check above finds a policy out that takes the most used keys, and chance.
#[test]
fn a_poor_policy_does_not_come_near() {
    let best = zipf(&mut Modelled::new(Model::Often, LIMIT_BYTES));
    let hottest = zipf(&mut Modelled::new(Model::Hottest, LIMIT_BYTES));
    let mut shell = cache(
        EngineKind::Mercury,
        EvictionPolicy::AllKeysRandom,
        LIMIT_BYTES,
    );
    let chance = zipf(&mut Server::new(&mut shell));
    assert!(!comes_near(hottest, best), "{hottest} of {best}");
    assert!(!comes_near(chance, best), "{chance} of {best}");
}

/// Issue: hot keys that are read now and then were missing one time in ten while keys that come
/// once turned the memory over.
#[test]
fn hot_keys_outlast_a_flood() {
    for engine in ENGINES {
        let mut shell = cache(engine, EvictionPolicy::AllKeysLfu, LIMIT_BYTES);
        let misses = churn(&mut Server::new(&mut shell));
        // Below one on average; Mercury's hash differs from run to run.
        assert!(misses <= 8, "{engine:?}: {misses} of 1000");
    }
    assert!(churn(&mut Modelled::new(Model::Hottest, LIMIT_BYTES)) > 300);
}
