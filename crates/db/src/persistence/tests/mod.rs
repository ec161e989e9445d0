//! Databases on a simulated disk: whatever the power takes, recovery shows what stood at the end of
//! an epoch that is at least as late as the last one that was durable.
//!
//! The model is the database itself: at the end of every epoch a picture of all keys is taken.
//! After a crash the recovered database must equal one of these pictures, as a whole.

mod branches;
mod canaries;
mod copies;
mod crashes;
mod directories;
mod faults;
mod files;
mod full;
mod fuzzy;
mod losses;
mod merges;
mod stalls;
mod streams;
mod volumes;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZero;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pando_durability::disk::{Disk, SimulatedDisk};
use pando_engine::{
    Attributes, Body, BodyRef, Decision, Direction, LogEpoch, NewValue, RowTag, SortedRef, ValueRef,
};

use super::{CheckpointOptions, DurabilityOptions};
use pando_sync::lock;

use crate::clock::Milliseconds;
use crate::commands::testing::{START_MS, Shell};
use crate::database::Database;
use crate::expiry::Of;
use crate::open::OpenError;
use crate::store::Listing;
use crate::{EngineKind, Options};

/// All keys with what is remembered of their values.
type Picture = BTreeMap<(usize, Vec<u8>), u64>;

fn digest(value: ValueRef<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.attributes.hash(&mut hasher);
    match value.body {
        BodyRef::String(string) => string.to_cow().hash(&mut hasher),
        // Whether it has one order or both is not remembered.
        BodyRef::Row(RowTag::SortedSet, row) => {
            for (member, score) in SortedRef::new(row).iter_from_rank(0) {
                (member, score.to_bits()).hash(&mut hasher);
            }
        }
        BodyRef::Row(tag, row) => {
            tag.hash(&mut hasher);
            for (field, value) in row.iter() {
                (field, value.to_cow()).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// Every key that stands in the engine, expired ones too, and those of branches and of snapshots
/// that last, in databases that follow those of the first branch.
fn picture(database: &Database) -> Picture {
    let mut picture = Picture::new();
    let mut state = database.open_session().expect("a session is free");
    let now = database.options.clock.now().milliseconds();
    for index in 0..database.databases() {
        let (mut deadlines, mut of_fields) = (0, 0);
        let tree = database.tree(index);
        let mut show = |key: &[u8], value: ValueRef<'_>| {
            deadlines += u64::from(value.attributes.deadline.is_some());
            of_fields += u64::from(Of::Field.deadline(&value).is_some());
            picture.insert((index, key.to_vec()), digest(value));
        };
        match state.store.listing() {
            Listing::Ordered(mut session) => {
                session.scan_all(tree, Bound::Unbounded, Direction::Forward, |key, value| {
                    if let Some(value) = value {
                        show(key, value);
                    }
                    ControlFlow::Continue(())
                });
            }
            Listing::Walking(mut session) => {
                let mut cursor = session.walk(tree, 0, &mut show);
                while cursor != 0 {
                    cursor = session.walk(tree, cursor, &mut show);
                }
            }
        }
        let listed = Of::BOTH.map(|of| database.expiry.by(of).tree_summary(tree, now).0);
        assert_eq!(listed, [deadlines, of_fields], "the expiry index");
    }
    branches::add_others(database, &mut state, &mut picture);
    database.close_session(&state);
    picture
}

/// How a database of these tests is kept.
#[derive(Clone, Debug)]
struct Setup {
    engine: EngineKind,
    logs: usize,
    directories: usize,
    /// Directories of the parts of checkpoints, in the order in which they are configured.
    parts: &'static [&'static str],
    databases: usize,
    recovery_threads: usize,
    /// Whether workloads make branches, on the engine that has them.
    is_branched: bool,
    /// What a database is given in place of the simulated disk.
    on: fn(SimulatedDisk) -> Arc<dyn Disk>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            engine: EngineKind::Masstree,
            logs: 2,
            directories: 1,
            parts: &[],
            databases: 4,
            recovery_threads: 2,
            is_branched: false,
            on: |disk| Arc::new(disk),
        }
    }
}

impl Setup {
    fn durability(&self, disk: &SimulatedDisk) -> DurabilityOptions {
        DurabilityOptions {
            disk: (self.on)(disk.clone()),
            log_directories: (0..self.directories)
                .map(|number| PathBuf::from(format!("/log{number}")))
                .collect(),
            checkpoint_directories: self.parts.iter().map(PathBuf::from).collect(),
            logs: self.logs,
            segment_bytes: 64 * 1024,
            threads: false,
            // These tests want to see what is refused.
            full_wait: Milliseconds::ZERO,
            recovery_threads: self.recovery_threads,
            ..DurabilityOptions::new("/data")
        }
    }

    fn open(&self, disk: &SimulatedDisk) -> Result<Shell, OpenError> {
        self.open_at(disk, START_MS)
    }

    /// The same, when the clock says so.
    fn open_at(&self, disk: &SimulatedDisk, now_ms: u64) -> Result<Shell, OpenError> {
        let options = Options {
            engine: self.engine,
            databases: self.databases,
            seed: 1,
            durability: Some(self.durability(disk)),
            ..Options::default()
        };
        Shell::on_disk(options, now_ms)
    }
}

/// A database under test, with the pictures of its epochs.
struct Harness {
    shells: Vec<Shell>,
    /// The picture at the end of each epoch.
    history: Vec<(LogEpoch, Picture)>,
    /// The newest epoch that was ever said to be durable.
    acknowledged: LogEpoch,
    rng: fastrand::Rng,
    /// Whether branches are made, too.
    is_branched: bool,
}

impl Harness {
    fn new(setup: &Setup, disk: &SimulatedDisk, seed: u64) -> Result<Self, OpenError> {
        let first = setup.open(disk)?;
        let mut harness = Self {
            shells: vec![first],
            history: Vec::new(),
            acknowledged: LogEpoch::NONE,
            rng: fastrand::Rng::with_seed(seed),
            is_branched: setup.engine == EngineKind::Minuet && setup.is_branched,
        };
        harness.shells.push(harness.shells[0].connect());
        let before = harness.database().epochs.current().previous();
        let picture = picture(&harness.database());
        harness.history.push((before, picture));
        Ok(harness)
    }

    fn database(&self) -> Arc<Database> {
        Arc::clone(&self.shells[0].database)
    }

    /// Ends the epoch, and remembers what stood at its end.
    fn tick(&mut self) {
        let database = self.database();
        let epoch = database.epochs.current();
        self.history.push((epoch, picture(&database)));
        database.end_epoch();
        self.acknowledged = self.acknowledged.max(database.durable());
    }

    fn line(&mut self, line: &str) -> String {
        let shell = self.rng.usize(..self.shells.len());
        self.shells[shell].line(line)
    }

    /// The same connection for all lines: a transaction.
    fn lines(&mut self, lines: &[String]) {
        let shell = self.rng.usize(..self.shells.len());
        for line in lines {
            self.shells[shell].line(line);
        }
    }

    fn write_chosen(&mut self, key: &str, number: u16) {
        let attributes = Attributes {
            token: NonZero::new(u64::from(number) << 40),
            flags: u32::from(number % 3),
            ..Attributes::default()
        };
        let shell = self.rng.usize(..self.shells.len());
        let mut turn = self.shells[shell].turn();
        // Refused by a full disk, as any write is.
        let _ = turn.keyspace(0).update(key.as_bytes(), |_| {
            Decision::Write(NewValue::new(Body::string(b"chosen")).with(attributes))
        });
    }

    /// A snapshot ends the epoch, unless there is one of its name.
    fn make_snapshot(&mut self) {
        let name = self.rng.u8(..4);
        let database = self.database();
        let before = database.epochs.current();
        self.line(&format!("SNAPSHOT CREATE s{name}"));
        if database.epochs.current() > before {
            let epoch = database.epochs.current().previous();
            self.history.push((epoch, picture(&database)));
            self.acknowledged = self.acknowledged.max(database.durable());
        }
    }

    /// Something that a client or the server does, never a tick but for a snapshot's or a branch's.
    fn act(&mut self) {
        if self.is_branched && self.rng.u8(..4) == 0 {
            return branches::act(self);
        }
        let key = |rng: &mut fastrand::Rng| format!("key{}", rng.u8(..6));
        let rng = &mut self.rng;
        let (one, other, number) = (key(rng), key(rng), rng.u16(..));
        let line = match rng.u8(..50) {
            0..=3 => format!("SET {one} value{number}"),
            4 => format!("SET {one} value{number} PX {}", rng.u8(1..)),
            5 => format!("APPEND {one} more{number}"),
            6 => format!("SETRANGE {one} {} x{number}", rng.u16(..700)),
            7 => format!("INCR counter{}", rng.u8(..3)),
            8 => format!("DEL {one} {other}"),
            9 => format!(
                "HSET hash{} field{} {number} other {number}",
                rng.u8(..3),
                rng.u8(..40)
            ),
            10 => format!("HDEL hash{} field{} other", rng.u8(..3), rng.u8(..40)),
            11 => format!("PEXPIRE {one} {}", rng.u8(1..)),
            12 => format!("PERSIST {one}"),
            13 => format!("RENAME {one} {other}"),
            14 => format!("COPY {one} {other} REPLACE"),
            15 => format!("MOVE {one} {}", rng.u8(..4)),
            16 => format!("SWAPDB {} {}", rng.u8(..4), rng.u8(..4)),
            17 if rng.u8(..4) == 0 => "FLUSHDB".into(),
            18 if rng.u8(..6) == 0 => "FLUSHALL".into(),
            19 | 20 => format!("SELECT {}", rng.u8(..4)),
            21 => format!("SET large{} {}", rng.u8(..2), "a".repeat(20_000)),
            22 | 23 => format!("APPEND large{} tail{number}", rng.u8(..2)),
            24 => format!("SETBIT large{} {} 1", rng.u8(..2), rng.u32(..300_000)),
            25 => {
                let fields = (0..150).map(|field| format!(" f{field} {}", "v".repeat(40)));
                format!("HSET wide{}{}", rng.u8(..2), fields.collect::<String>())
            }
            26 | 27 => format!("HSET wide{} f{} {number}", rng.u8(..2), rng.u8(..200)),
            28 => format!("HDEL wide{} f{}", rng.u8(..2), rng.u8(..200)),
            29 => format!("PEXPIRE wide{} 60000", rng.u8(..2)),
            30 => format!("MSET {one} both{number} {other} both{number}"),
            31 | 32 => {
                let lines = transaction(rng, number);
                return self.lines(&lines);
            }
            33 => format!("RENAME wide{} {one}", rng.u8(..2)),
            36 => return self.make_snapshot(),
            37 => format!("SNAPSHOT DROP s{}", rng.u8(..4)),
            38..46 => collection_line(rng),
            46..50 => field_line(rng),
            // As memcached's clients write, with a token of their own.
            35 => return self.write_chosen(&one, number),
            34 => {
                // Keys that are due go.
                self.shells[0].pass_ms(u64::from(rng.u8(..40)));
                let database = self.database();
                let due = picture(&database);
                let is_first = |(index, _): &(usize, Vec<u8>)| *index < database.databases();
                for (database, key) in due.into_keys().filter(is_first) {
                    let mut turn = self.shells[0].turn();
                    let mut keyspace = turn.keyspace(database);
                    let tree = keyspace.view.tree();
                    keyspace.expire(tree, &key);
                    keyspace.expire_fields(tree, &key);
                }
                return;
            }
            _ => format!("GET {one}"),
        };
        self.line(&line);
    }
}

/// A transfer between accounts.
fn transaction(rng: &mut fastrand::Rng, number: u16) -> [String; 5] {
    [
        "MULTI".to_owned(),
        format!("DECRBY account{} {number}", rng.u8(..2)),
        format!("INCRBY account{} {number}", 2 + rng.u8(..2)),
        format!("HSET hash9 last {number}"),
        "EXEC".to_owned(),
    ]
}

/// A command on the deadlines of fields.
fn field_line(rng: &mut fastrand::Rng) -> String {
    let (hash, wide) = (rng.u8(..3), rng.u8(..2));
    match rng.u8(..4) {
        0 => format!(
            "HPEXPIRE hash{hash} {} FIELDS 2 field{} other",
            rng.u8(..),
            rng.u8(..40)
        ),
        1 => format!("HPEXPIRE wide{wide} 60 FIELDS 1 f{}", rng.u8(..200)),
        2 => format!("HPERSIST wide{wide} FIELDS 1 f{}", rng.u8(..200)),
        _ => format!(
            "HSETEX hash{hash} PX 50 FIELDS 1 field{} {}",
            rng.u8(..40),
            rng.u16(..)
        ),
    }
}

/// A command on a set, a sorted set or a stream, small or large.
fn collection_line(rng: &mut fastrand::Rng) -> String {
    let (place, number) = (rng.u8(..2), rng.u16(..));
    let (one, other) = (rng.u8(..40), rng.u8(..40));
    match rng.u8(..12) {
        8..12 => stream_line(rng),
        0 => format!("SADD set{place} m{one} m{number}"),
        1 => format!("SREM set{place} m{one} m{other}"),
        2 => format!("ZADD sorted{place} {number} m{one}"),
        3 => format!("ZREM sorted{place} m{one}"),
        // Large ones, which are changed by node.
        4 => {
            let members: Vec<_> = (0..300)
                .map(|member| format!("{} m{member}", member % 7))
                .collect();
            format!("ZADD ranks{place} {}", members.join(" "))
        }
        5 => format!("ZINCRBY ranks{place} {} m{}", number % 9, rng.u16(..310)),
        6 => format!(
            "ZREMRANGEBYRANK ranks{place} {} {}",
            rng.u16(..310),
            number % 400
        ),
        _ => {
            let members: Vec<_> = (0..300).map(|member| format!("member{member}")).collect();
            format!("SADD tags{place} {}", members.join(" "))
        }
    }
}

/// A command on a stream, which grows, is read by a group, and is trimmed.
fn stream_line(rng: &mut fastrand::Rng) -> String {
    let (place, number) = (rng.u8(..2), rng.u16(..));
    let (key, group) = (format!("stream{place}"), rng.u8(..2));
    match rng.u8(..12) {
        0..4 => format!(
            "XADD {key} * field {number} other {}",
            "v".repeat(usize::from(number % 90))
        ),
        4 => format!("XADD {key} MAXLEN {} * field {number}", number % 40),
        5 => format!("XADD {key} * large {}", "l".repeat(20_000)),
        6 => format!("XGROUP CREATE {key} g{group} 0 MKSTREAM"),
        7..9 => format!(
            "XREADGROUP GROUP g{group} c{} COUNT 9 STREAMS {key} >",
            number % 3
        ),
        9 => format!("XAUTOCLAIM {key} g{group} c{} 0 0 COUNT 4", number % 3),
        10 => format!("XGROUP DELCONSUMER {key} g{group} c{}", number % 3),
        _ => format!("XGROUP DESTROY {key} g{group}"),
    }
}

/// Takes a checkpoint while things go on between its slices.
fn checkpoint(harness: &Arc<Mutex<Harness>>, busy: bool) -> Result<(), String> {
    let database = lock(harness).database();
    let inside = Arc::clone(harness);
    let options = CheckpointOptions {
        progress: Some(Arc::new(move |_, _| {
            let mut harness = lock(&inside);
            for _ in 0..harness.rng.u8(..4) {
                if busy {
                    harness.act();
                }
            }
            if busy && harness.rng.u8(..3) == 0 {
                harness.tick();
            }
        })),
        ..CheckpointOptions::default()
    };
    let log = database.log().expect("there is one");
    if log.statistics().segments == 0 && log.has_open_writes() {
        // Its first act is to have something in the log (RC6 parts-stay).
        let first = (database.epochs.current(), picture(&database));
        lock(harness).history.push(first);
    }
    let taken = database.checkpoint(&options);
    let mut harness = lock(harness);
    // Its last act may have been to end an epoch: a picture of that is one of this moment.
    let epoch = database.epochs.current().previous();
    if harness.history.last().is_none_or(|last| last.0 < epoch) {
        let now = picture(&database);
        harness.history.push((epoch, now));
    }
    harness.acknowledged = harness.acknowledged.max(database.durable());
    taken.map(|_| ()).map_err(|error| error.to_string())
}

/// Runs a workload until it ends or the power does.
fn run(
    setup: &Setup,
    disk: &SimulatedDisk,
    seed: u64,
    steps: usize,
) -> Option<Arc<Mutex<Harness>>> {
    run_on(setup, disk, seed, steps, true)
}

/// As [`run`]; a disk that is not `whole` may refuse a start or a checkpoint.
fn run_on(
    setup: &Setup,
    disk: &SimulatedDisk,
    seed: u64,
    steps: usize,
    whole: bool,
) -> Option<Arc<Mutex<Harness>>> {
    let harness = match Harness::new(setup, disk, seed) {
        Ok(harness) => harness,
        Err(error) => {
            let may_fail = !whole || !disk.has_power();
            assert!(may_fail, "a whole disk is opened: {error}");
            return None;
        }
    };
    let harness = Arc::new(Mutex::new(harness));
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
    for _ in 0..steps {
        if !disk.has_power() {
            break;
        }
        match rng.u8(..24) {
            0..=4 => lock(&harness).tick(),
            5 => {
                let taken = checkpoint(&harness, rng.bool());
                assert!(taken.is_ok() || !whole || !disk.has_power(), "{taken:?}");
            }
            _ => lock(&harness).act(),
        }
    }
    Some(harness)
}

/// Checks what recovery makes of a disk; the error says what is wrong.
fn check_recovered(
    setup: &Setup,
    disk: &SimulatedDisk,
    harness: Option<&Mutex<Harness>>,
) -> Result<Picture, String> {
    let shell = setup
        .open(disk)
        .map_err(|error| format!("refused: {error}"))?;
    let found = picture(&shell.database);
    // Nothing is damaged by the power: a checkpoint that counts is whole.
    let recovery = shell.database.recovery().expect("it is on disk");
    if recovery.notes.iter().any(|it| it.contains("checkpoint-0")) {
        return Err(format!("got round: {:?}", recovery.notes));
    }
    let Some(harness) = harness else {
        return Ok(found);
    };
    let harness = lock(harness);
    let acknowledged = harness.acknowledged;
    let allowed = |(epoch, _): &&(LogEpoch, Picture)| *epoch >= acknowledged;
    let mut candidates = harness.history.iter().filter(allowed);
    if candidates.any(|(_, picture)| *picture == found) {
        return Ok(found);
    }
    let last = harness
        .history
        .iter()
        .rev()
        .find(|(epoch, _)| *epoch <= acknowledged);
    let differences: Vec<String> = last.map_or_else(Vec::new, |(_, picture)| {
        let keys = picture.keys().chain(found.keys());
        let differ = keys.filter(|key| picture.get(*key) != found.get(*key));
        differ
            .map(|(database, key)| format!("{database}:{}", key.escape_ascii()))
            .collect()
    });
    Err(format!(
        "what was recovered (epoch {acknowledged} was durable; {:?}) never stood there; beside \
         that epoch: {differences:?}",
        shell.database.recovery()
    ))
}
