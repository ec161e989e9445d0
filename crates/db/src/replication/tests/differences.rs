//! Replicas of a pool that were away for longer than epochs are kept, and get what has changed.

use std::path::PathBuf;

use super::resume::{NODES, run_of};
use super::*;
use crate::commands::testing::START_MS;
use crate::limits;
use crate::{FileMedium, PoolOptions, Progress, Wait};

/// Bytes of a pool.
const BYTES: u64 = 8 << 20;

/// A pool's file in memory, which goes with its guard.
pub(super) struct PoolFile(PathBuf);

impl PoolFile {
    pub(super) fn new() -> Self {
        let name = format!("pando-db-{}-{:x}", std::process::id(), fastrand::u64(..));
        Self(PathBuf::from("/dev/shm").join(name))
    }

    /// What is there when the process ends now.
    pub(super) fn copy(&self) -> Self {
        let other = Self::new();
        std::fs::copy(&self.0, &other.0).expect("there is room");
        other
    }

    pub(super) fn options(&self) -> Options {
        let medium = FileMedium::SharedMemory;
        Options {
            engine: EngineKind::Cdds,
            databases: DATABASES,
            pool: PoolOptions::in_file(self.0.clone(), BYTES, medium).expect("a directory"),
            follows: true,
            ..Options::default()
        }
    }

    fn open(&self) -> Shell {
        Shell::on_disk(self.options(), START_MS).expect("a pool")
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// With crashes of all, copies of pools, and promotions.
#[test]
fn servers_with_pools_go_on_where_they_stood() {
    let (cdds, masstree) = (EngineKind::Cdds, EngineKind::Masstree);
    let engines = [[cdds; NODES], [cdds, masstree, cdds]];
    let mut resumed = 0;
    for seed in 0..24 {
        let servers = run_of(seed, true, engines[seed as usize % 2]);
        let servers = servers.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        resumed += servers.resumed;
    }
    assert!(resumed > 10, "{resumed}");
}

/// A primary with a pool, and a replica.
struct Far {
    pool: PoolFile,
    /// The replica's, if it has one.
    below: Option<PoolFile>,
    pair: Pair,
    differences: u64,
    /// By both clocks.
    passed_ms: u64,
}

impl Far {
    fn new(engine: EngineKind) -> Self {
        let pool = PoolFile::new();
        let up = pool.open();
        follow(&up, false, Refusal::Nothing);
        let below = (engine == EngineKind::Cdds).then(PoolFile::new);
        let down = below.as_ref().map_or_else(|| shell(engine), PoolFile::open);
        let mut far = Self {
            pool,
            below,
            pair: Pair::new(up, down),
            differences: 0,
            passed_ms: 0,
        };
        far.pair.up.database.set_backlog_bytes_max(1000);
        far.settle().expect("it follows");
        far
    }

    fn keep_histories(&self) {
        let kept = self.pair.up.database.keep_histories();
        kept.expect("there is room");
    }

    fn send(&mut self) -> bool {
        self.keep_histories();
        let differences = |far: &Self| far.pair.source.as_ref().map_or(0, Source::differences);
        let before = differences(self);
        let sent = self.pair.send();
        self.differences += differences(self).saturating_sub(before);
        sent
    }

    /// Delivers everything.
    fn settle(&mut self) -> Result<(), ReplicationError> {
        loop {
            self.pair.up.database.end_epoch();
            let sent = self.send();
            self.pair.deliver()?;
            if !sent && self.pair.wire.is_empty() && !self.pair.replica.is_loading() {
                return Ok(());
            }
        }
    }

    /// Writes more than is kept, while nobody follows.
    fn go_away(&mut self, random: &mut Rng, writes: usize) {
        self.pair.cut();
        for _ in 0..writes {
            write(&mut self.pair.up, random);
            if random.u8(0..4) == 0 {
                self.pair.up.database.end_epoch();
            }
        }
    }

    /// The primary's process ends, and another one begins.
    fn restart(&mut self) {
        self.pair.cut();
        let pool = self.pool.copy();
        self.pair.up = pool.open();
        self.pool = pool;
        self.pair.up.pass_ms(self.passed_ms);
        follow(&self.pair.up, false, Refusal::Nothing);
    }

    /// The same of the replica's.
    fn restart_replica(&mut self) {
        if let Some(below) = &self.below {
            self.pair.cut();
            let below = below.copy();
            self.pair.down = below.open();
            self.pair.down.pass_ms(self.passed_ms);
            follow(&self.pair.down, true, Refusal::ReadOnly);
            let replica = Replica::new(&self.pair.down.database);
            self.pair.replica = replica.expect("a session is free");
            self.below = Some(below);
        }
    }

    fn step(&mut self, random: &mut Rng) -> Result<(), String> {
        let database = Arc::clone(&self.pair.up.database);
        match random.u32(0..100) {
            0..=29 => write(&mut self.pair.up, random),
            30..=39 => database.end_epoch(),
            40..=42 => self.pair.down.database.end_epoch(),
            43..=64 => {
                let sends = random.usize(1..8);
                (0..sends).for_each(|_| {
                    self.send();
                });
            }
            65..=91 => {
                for _ in 0..random.usize(1..8) {
                    let delivered = self.pair.deliver();
                    delivered.map_err(|error| error.to_string())?;
                    self.look()?;
                }
            }
            92 => {
                let writes = random.usize(0..200);
                self.go_away(random, writes);
            }
            93 => self.restart(),
            94 => self.restart_replica(),
            95 => {
                let ms = random.u64(0..600);
                self.passed_ms += ms;
                self.pair.up.pass_ms(ms);
                self.pair.down.pass_ms(ms);
            }
            96..=97 => database.set_backlog_bytes_max(random.usize(0..5_000)),
            98 => database.set_log_hold(random.u64(0..2_000)),
            _ => {
                let pool = database.store.pooled().expect("it has one");
                while random.bool() && pool.give_up_removed() {}
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), String> {
        if self.pair.is_whole() {
            Ok(())
        } else {
            Err("half of a transaction was seen".to_owned())
        }
    }

    fn is_same(&mut self) -> bool {
        content(&mut self.pair.up) == content(&mut self.pair.down)
    }
}

/// One run; returns how many full copies and differences there were.
fn run(seed: u64) -> Result<(usize, u64), String> {
    let mut random = Rng::with_seed(seed);
    let engines = [
        EngineKind::Cdds,
        EngineKind::Masstree,
        EngineKind::Cdds,
        EngineKind::Mercury,
    ];
    let mut far = Far::new(engines[seed as usize % engines.len()]);
    for _ in 0..random.usize(200..600) {
        far.step(&mut random)?;
    }
    far.settle().map_err(|error| error.to_string())?;
    if far.is_same() {
        Ok((far.pair.copies, far.differences))
    } else {
        Err("they differ".to_owned())
    }
}

/// FD1 all-differs, FD2 one-change: with rings that are too small, names that are given up, and
/// restarts of both.
#[test]
fn a_replica_becomes_what_it_follows_by_differences() {
    let (mut copies, mut differences) = (0, 0);
    for seed in 0..40 {
        let ran = run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        copies += ran.0;
        differences += ran.1;
    }
    assert!(copies > 40 && differences > 100, "{copies}, {differences}");
}

/// The canaries: each fault is noticed by some seed.
#[test]
fn each_wrong_difference_is_noticed() {
    for fault in [Fault::RemovedForgotten, Fault::NamesGone, Fault::PartsShown] {
        let noticed = (0..40).any(|seed| with(fault, || run(seed).is_err()));
        assert!(noticed, "{fault:?}");
    }
}

/// FD1 all-differs.
#[test]
fn a_replica_that_is_far_behind_gets_what_has_changed() {
    let engines = [
        EngineKind::Cdds,
        EngineKind::Masstree,
        EngineKind::Mercury,
        EngineKind::Minuet,
    ];
    for (seed, engine) in (0..).zip(engines) {
        let mut random = Rng::with_seed(seed);
        let mut far = Far::new(engine);
        for round in 1..=8 {
            far.go_away(&mut random, 200);
            match round % 4 {
                0 => {
                    far.pair.down.database.end_epoch();
                    far.restart_replica();
                }
                1 => far.restart(),
                _ => {}
            }
            far.pair.up.database.set_backlog_bytes_max(1000);
            far.settle().expect("it follows");
            assert!(far.is_same());
            assert_eq!((far.pair.copies, far.differences), (1, round), "{engine:?}");
        }
    }
}

/// What is too much for one change is a full copy; what is between two positions is not.
#[test]
fn a_difference_has_a_bound() {
    let mut far = Far::new(EngineKind::Masstree);
    far.pair.cut();
    let write = |far: &mut Far, keys: usize| {
        far.pair.cut();
        for key in 0..keys {
            far.pair
                .up
                .line(&format!("SET many{key} {}", fastrand::u32(..)));
            if key % 100 == 0 {
                far.pair.up.database.end_epoch();
            }
        }
        far.settle().expect("it follows");
        assert!(far.is_same());
        (far.pair.copies, far.differences)
    };
    let most = limits::DIFFERENCE_ENTRIES_MAX;
    assert_eq!(write(&mut far, most), (1, 1));
    // The stream begins with a difference, and goes on with a copy.
    assert_eq!(write(&mut far, most + 1), (1, 1));
    assert_eq!(write(&mut far, most), (1, 2));
}

/// Names give way before a write is refused, and the replica takes a copy.
#[test]
fn a_full_pool_gives_names_up() {
    let mut far = Far::new(EngineKind::Masstree);
    let removed = "x".repeat(1000);
    for key in 0..80 {
        far.pair.up.line(&format!("SET {removed}{key} 1"));
    }
    far.settle().expect("it follows");
    far.pair.cut();
    for key in 0..80 {
        far.pair.up.line(&format!("DEL {removed}{key}"));
        far.pair.up.database.end_epoch();
    }
    let database = Arc::clone(&far.pair.up.database);
    let pool = database.store.pooled().expect("it has one");
    assert!(pool.removed_bytes() > 0);
    let filler = "y".repeat(4000);
    let mut key = 0;
    while pool.removed_bytes() > 0 {
        let name = format!("filler{key}");
        match far.pair.up.begin(["SET", &name, &filler]) {
            (answer, Progress::Done) => {
                assert_eq!(answer, b"+OK\r\n");
                key += 1;
            }
            // It runs again when there is room.
            (_, Progress::Waits(Wait::Leave { .. })) => {}
            (_, other) => panic!("{other:?}"),
        }
        database.end_epoch();
    }
    far.settle().expect("it follows");
    assert!(far.is_same());
    assert_eq!((far.pair.copies, far.differences), (2, 0));
}
