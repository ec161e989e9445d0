//! Two databases and a network that the test is: by seeds, it delays, cuts, loses and repeats.
//!
//! The oracle is the followed database: when everything is delivered, both have the same keys,
//! values and deadlines, in every database. In between, a reader of the replica sees what one
//! transaction wrote as a whole. Each fault that is planted must be noticed by one of the two.

mod branches;
mod check;
mod copies;
mod differences;
mod disks;
mod resume;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use pando_durability::disk::SimulatedDisk;

use super::{Position, Replica, ReplicationError, Sent, Source};
use crate::commands::testing::Shell;
use crate::turn::small::{self, Bounds};
use crate::{DurabilityOptions, EngineKind, HandLog, Options, Refusal};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    /// A replica takes any epoch: one that is lost or comes twice is not noticed.
    ChainUnchecked,
    /// A source sends what is not durable.
    DurableIgnored,
    /// A replica releases the gates between two records.
    HalfVisible,
    /// The records of a key are repeated by several appliers.
    SharesMixed,
    /// A source takes any position for one of its own history.
    StaleHistory,
    /// A source goes on over a full copy that its database takes.
    CopyPassed,
    /// A replica that goes on within an epoch gets all of it.
    GroupsRepeated,
    /// A source says that its snapshot is there before it has sent all of it.
    CheckedEarly,
    /// A replica passes over what becomes of branches.
    ChangesMissed,
    /// A source goes on with a copy without branches when one is made.
    Overtaken,
    /// A copy leaves the branches that there were.
    BranchesLeft,
    /// A copy has no section of the last node.
    SectionsMissed,
    /// A copy with branches is shown without a checkpoint.
    Unplanted,
    /// A difference has no removed keys.
    RemovedForgotten,
    /// A source takes any position for one since which removed keys are named.
    NamesGone,
    /// A replica shows each part of a difference when it comes.
    PartsShown,
}

thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::Nothing) };
    static LOOK: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Whether this is broken, on this thread.
pub(super) fn is(fault: Fault) -> bool {
    FAULT.get() == fault
}

/// What a reader does between two records, if they let it.
pub(super) fn look() {
    LOOK.with_borrow_mut(|look| {
        if let Some(look) = look {
            look();
        }
    });
}

fn with<R>(fault: Fault, run: impl FnOnce() -> R) -> R {
    struct Mend;
    impl Drop for Mend {
        fn drop(&mut self) {
            FAULT.set(Fault::Nothing);
        }
    }
    FAULT.set(fault);
    let _mend = Mend;
    run()
}

const DATABASES: usize = 3;

fn shell(engine: EngineKind) -> Shell {
    let shell = Shell::with_options(Options {
        engine,
        databases: DATABASES,
        ..Options::default()
    });
    // The test ends epochs.
    shell.database.close();
    shell
}

/// Of a replica on a simulated disk.
fn options_on(disk: &SimulatedDisk, engine: EngineKind) -> Options {
    let durability = DurabilityOptions {
        disk: Arc::new(disk.clone()),
        logs: 2,
        segment_bytes: 64 * 1024,
        threads: false,
        recovery_threads: 2,
        ..DurabilityOptions::new("/data")
    };
    Options {
        engine,
        databases: DATABASES,
        durability: Some(durability),
        follows: true,
        ..Options::default()
    }
}

fn follow(shell: &Shell, follows: bool, refusal: Refusal) {
    let set = shell.database.set_follows(follows, refusal);
    set.expect("a session is free");
}

/// Everything that a database shows.
fn content(shell: &mut Shell) -> Vec<String> {
    let mut found = Vec::new();
    if shell.database.awaits_copy() {
        return found;
    }
    for database in 0..DATABASES {
        shell.line(&format!("SELECT {database}"));
        let keys = shell.line("KEYS *");
        let mut keys: Vec<&str> = keys.split(' ').skip(2).step_by(2).collect();
        keys.sort_unstable();
        for key in keys {
            let dump = shell.run(["DUMP", key]);
            let deadline = shell.line(&format!("PEXPIRETIME {key}"));
            found.push(format!("{database} {key} {deadline} {dump:?}"));
        }
    }
    shell.line("SELECT 0");
    found
}

/// A followed database, a replica, and what is on its way.
struct Pair {
    up: Shell,
    down: Shell,
    source: Option<Source>,
    replica: Replica,
    wire: VecDeque<Vec<u8>>,
    copies: usize,
}

impl Pair {
    fn new(up: Shell, down: Shell) -> Self {
        follow(&down, true, Refusal::ReadOnly);
        let replica = Replica::new(&down.database).expect("a session is free");
        Self {
            up,
            down,
            source: None,
            replica,
            wire: VecDeque::new(),
            copies: 0,
        }
    }

    fn connect(&mut self, position: Option<Position>) {
        let branches = self.down.database.branches().is_some();
        let source = Source::new(&self.up.database, position, branches);
        let source = source.expect("a session is free");
        self.replica.force();
        self.copies += usize::from(source.is_copying());
        self.source = Some(source);
    }

    fn cut(&mut self) {
        self.source = None;
        self.wire.clear();
        self.replica.cut_off();
    }

    /// Puts a message on the wire; `false`: there is none.
    fn send(&mut self) -> bool {
        if self.source.is_none() {
            self.connect(self.replica.position());
        }
        let source = self.source.as_mut().expect("there is one");
        let mut message = Vec::new();
        match source.next_whole(&mut message) {
            Sent::Message => self.wire.push_back(message),
            Sent::Worked => {}
            Sent::Epoch(_) => unreachable!("messages are whole"),
            Sent::Nothing => return false,
            Sent::Gone => self.cut(),
        }
        true
    }

    fn deliver(&mut self) -> Result<(), ReplicationError> {
        let Some(message) = self.wire.pop_front() else {
            return Ok(());
        };
        self.replica.take(&message)
    }

    /// Delivers everything.
    fn settle(&mut self) -> Result<(), ReplicationError> {
        loop {
            self.up.database.end_epoch();
            let sent = self.send();
            self.deliver()?;
            if !sent && self.wire.is_empty() && !self.replica.is_loading() {
                return Ok(());
            }
        }
    }

    /// What one transaction writes is there as a whole.
    fn is_whole(&mut self) -> bool {
        self.down.line("GET {pair}a") == self.down.line("GET {pair}b")
    }
}

fn write(shell: &mut Shell, random: &mut Rng) {
    let key = random.u32(0..30);
    let filler = "x".repeat(random.usize(0..900));
    let line = match random.u32(0..100) {
        0..=29 => format!("SET k{key} {}{filler}", random.u32(..)),
        30..=39 => format!("DEL k{key}"),
        40..=49 => format!("SETRANGE k{key} {} {}", random.u32(0..1200), random.u32(..)),
        50..=54 => format!("PEXPIRE k{key} {}", random.u32(1..1000)),
        55..=64 => format!("HSET h{key} f{} {}", random.u32(0..400), random.u32(..)),
        65..=69 => format!("HDEL h{key} f{}", random.u32(0..400)),
        70..=74 => format!("SELECT {}", random.usize(0..DATABASES)),
        75 => format!(
            "SWAPDB {} {}",
            random.usize(0..DATABASES),
            random.usize(0..DATABASES)
        ),
        76 => "FLUSHDB".to_owned(),
        77 => "FLUSHALL".to_owned(),
        78..=79 => format!("RENAME k{key} k{}", random.u32(0..30)),
        80..=81 => format!("MOVE k{key} {}", random.usize(0..DATABASES)),
        _ => {
            let value = random.u32(..);
            shell.line("SELECT 0");
            shell.line("MULTI");
            for end in ["a", "b"] {
                shell.line(&format!("SET {{pair}}{end} {value}"));
            }
            "EXEC".to_owned()
        }
    };
    shell.line(&line);
}

/// One run, with clocks that go differently and an expiry on both sides; returns how many full
/// copies it took.
fn run(seed: u64, engines: [EngineKind; 2]) -> usize {
    let mut random = Rng::with_seed(seed);
    let [up, down] = engines.map(shell);
    let mut pair = Pair::new(up, down);
    if seed % 2 == 1 {
        pair.replica.apply_with(3);
    }
    let mut passed_ms = [0; 2];
    for side in [&pair.up, &pair.down] {
        side.database.set_active_expire(true);
    }
    if random.bool() {
        pair.up
            .database
            .set_backlog_bytes_max(random.usize(0..20_000));
    }
    for _ in 0..random.usize(0..200) {
        write(&mut pair.up, &mut random);
    }
    for _ in 0..random.usize(100..400) {
        match random.u32(0..100) {
            0..=49 => write(&mut pair.up, &mut random),
            50..=59 => pair.up.database.end_epoch(),
            60..=62 => pair.down.database.end_epoch(),
            63..=79 => {
                pair.send();
            }
            80..=95 => pair
                .deliver()
                .unwrap_or_else(|error| panic!("seed {seed}: {error}")),
            96..=97 => {
                let side = random.usize(0..2);
                let ms = random.u64(0..600);
                passed_ms[side] += ms;
                let shell = [&mut pair.up, &mut pair.down];
                let shell = shell.into_iter().nth(side).expect("there are two");
                shell.pass_ms(ms);
                shell.session.maintain();
            }
            98 => pair.cut(),
            _ => {
                pair.replica.acknowledged();
            }
        }
        assert!(pair.is_whole(), "seed {seed}");
    }
    pair.settle()
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    // What readers see of deadlines is by the clock of each side.
    let most = passed_ms[0].max(passed_ms[1]);
    pair.up.pass_ms(most - passed_ms[0]);
    pair.down.pass_ms(most - passed_ms[1]);
    assert_eq!(
        content(&mut pair.up),
        content(&mut pair.down),
        "seed {seed}"
    );
    pair.copies
}

#[test]
fn a_replica_becomes_what_it_follows() {
    let engines = [
        [EngineKind::Masstree, EngineKind::Masstree],
        [EngineKind::Masstree, EngineKind::Mercury],
        [EngineKind::Mercury, EngineKind::Reference],
        [EngineKind::Reference, EngineKind::Masstree],
    ];
    let rounds = if cfg!(miri) { 4 } else { 2000 };
    let copies: usize = (0..rounds)
        .map(|seed| run(seed, engines[seed as usize % engines.len()]))
        .sum();
    let rounds = rounds as usize;
    assert!((rounds..4 * rounds).contains(&copies), "{copies} copies");
}

/// RA1 key-in-one-share, with its canary.
#[test]
fn appliers_keep_the_order_of_a_keys_records() {
    for fault in [Fault::Nothing, Fault::SharesMixed] {
        let differs = |seed| {
            let engine = EngineKind::Masstree;
            let mut pair = Pair::new(shell(engine), shell(engine));
            pair.replica.apply_with(3);
            pair.settle().expect("it takes a copy");
            let mut random = Rng::with_seed(seed);
            for _ in 0..40 {
                let (key, at) = (random.u32(0..4), random.u32(0..2000));
                pair.up
                    .line(&format!("SETRANGE k{key} {at} {}", random.u32(..)));
            }
            let settled = with(fault, || pair.settle());
            settled.is_err() || content(&mut pair.up) != content(&mut pair.down)
        };
        let found = (0..20).any(differs);
        assert_eq!(found, fault != Fault::Nothing, "{fault:?}");
    }
}

/// The replica of a replica, and a copy that the one in the middle takes anew.
#[test]
fn chains_follow() {
    for seed in 0..20 {
        let mut random = Rng::with_seed(seed);
        let [top, middle, end] = [(); 3].map(|()| shell(EngineKind::Masstree));
        let below = middle.connect();
        let mut upper = Pair::new(top, middle);
        let mut lower = Pair::new(below, end);
        for _ in 0..300 {
            match random.u32(0..100) {
                0..=39 => write(&mut upper.up, &mut random),
                40..=49 => upper.up.database.end_epoch(),
                50..=69 => {
                    upper.send();
                    upper.deliver().expect("it follows");
                }
                70..=94 => {
                    lower.up.database.end_epoch();
                    lower.send();
                    lower.deliver().expect("it follows");
                }
                95..=96 => upper.cut(),
                97 => lower.cut(),
                _ => {
                    // From the beginning: what is below must follow that, too.
                    upper.cut();
                    upper.connect(None);
                }
            }
            assert!(upper.is_whole() && lower.is_whole(), "seed {seed}");
        }
        upper.settle().expect("it follows");
        lower.settle().expect("it follows");
        assert_eq!(
            content(&mut upper.up),
            content(&mut lower.down),
            "seed {seed}"
        );
    }
}

/// FW2 chained, with its canary: what the network loses or repeats is noticed by the chain, and
/// without the chain by the oracle.
#[test]
fn lost_and_repeated_epochs_are_noticed() {
    let lose = |pair: &mut Pair| {
        pair.wire.pop_front();
    };
    let repeat = |pair: &mut Pair| {
        let message = pair.wire[0].clone();
        pair.wire.push_back(message);
    };
    let disturb: [fn(&mut Pair); 2] = [lose, repeat];
    for (index, disturb) in disturb.into_iter().enumerate() {
        for fault in [Fault::Nothing, Fault::ChainUnchecked] {
            let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
            pair.settle().expect("it follows");
            for value in 1..=2 {
                pair.up
                    .line(&format!("SET k{} {value}", (1 - index) * value));
                pair.up.database.end_epoch();
                assert!(pair.send());
            }
            disturb(&mut pair);
            let settled = with(fault, || pair.settle());
            let is_same = content(&mut pair.up) == content(&mut pair.down);
            if fault == Fault::Nothing {
                assert!(
                    matches!(settled, Err(ReplicationError::Gap { .. })),
                    "{settled:?}"
                );
                assert_eq!(pair.replica.position(), None);
                pair.cut();
                pair.settle().expect("a full copy mends it");
                assert_eq!(content(&mut pair.up), content(&mut pair.down));
            } else {
                assert!(
                    settled.is_ok() && (!is_same || index == 1),
                    "{index}: the canary"
                );
            }
        }
    }
}

/// FW3 durable-above, with its canary.
#[test]
fn only_what_is_durable_is_sent() {
    for fault in [Fault::Nothing, Fault::DurableIgnored] {
        let log = Arc::new(HandLog::default());
        let mut up = Shell::with_log(Arc::clone(&log));
        up.line("SET k old");
        up.database.end_epoch();
        log.sync();
        let databases = up.database.databases();
        let down = Shell::with_options(Options {
            databases,
            ..Options::default()
        });
        let mut pair = Pair::new(up, down);
        for _ in 0..20 {
            pair.up.database.end_epoch();
            log.sync();
            pair.send();
            pair.deliver().expect("it follows");
        }
        pair.up.line("SET k new");
        pair.up.database.end_epoch();
        with(fault, || pair.send());
        pair.deliver().expect("it follows");
        let seen = pair.down.line("GET k");
        let ahead = fault == Fault::DurableIgnored;
        assert_eq!(seen == "$3 new", ahead, "{seen}");
        log.sync();
        pair.send();
        pair.deliver().expect("it follows");
        assert_eq!(pair.down.line("GET k"), "$3 new");
    }
}

/// FW5 whole-epochs-shown: a reader beside the replica, and the canary.
#[test]
fn a_reader_sees_whole_epochs() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    pair.settle().expect("it follows");
    let stop = Arc::new(AtomicBool::new(false));
    let mut reader = pair.down.connect();
    let reading = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let both = reader.line("MGET a b");
                let words: Vec<&str> = both.split(' ').collect();
                assert_eq!(words[1..].len() % 2, 0, "{both}");
                let half = words.len() / 2 + 1;
                assert_eq!(words[1..half], words[half..], "FW5");
            }
        })
    };
    for value in 100..400 {
        pair.up.line(&format!("MSET a {value} b {value}"));
        pair.settle().expect("it follows");
    }
    stop.store(true, Ordering::Relaxed);
    reading.join().expect("the reader saw whole epochs");

    let mut reader = pair.down.connect();
    let torn = std::rc::Rc::new(Cell::new(false));
    let seen = std::rc::Rc::clone(&torn);
    LOOK.set(Some(Box::new(move || {
        seen.set(seen.get() || reader.line("GET a") != reader.line("GET b"));
    })));
    pair.up.line("MSET a 1 b 1");
    with(Fault::HalfVisible, || pair.settle()).expect("it follows");
    LOOK.set(None);
    assert!(torn.get(), "the canary");
}

/// FW1 one-history, with its canary: a position is not taken for one of another opening.
#[test]
fn a_stale_history_is_not_followed() {
    for fault in [Fault::Nothing, Fault::StaleHistory] {
        let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
        pair.up.line("SET k first");
        pair.settle().expect("it follows");
        // Another database comes up in its place, and gets as far.
        let mut other = shell(EngineKind::Masstree);
        drop(Source::new(&other.database, None, true));
        other.line("SET other value");
        while other.database.acknowledgement.ring().newest()
            < pair.replica.position().unwrap().epoch
        {
            other.line("SET k second");
            other.database.end_epoch();
        }
        pair.cut();
        pair.up = other;
        let settled = with(fault, || pair.settle());
        let is_same = settled.is_ok() && content(&mut pair.up) == content(&mut pair.down);
        assert_eq!(is_same, fault == Fault::Nothing, "{fault:?}");
    }
}

/// FW6 expired-is-there: the clock of a replica decides nothing, however wrong it is.
#[test]
fn a_replica_leaves_expiry_to_whom_it_follows() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    let long = "x".repeat(600);
    pair.up.line(&format!("SET k {long} PX 1000"));
    pair.settle().expect("it follows");
    pair.down.pass_ms(5000);
    assert_eq!(
        pair.down.line("GET k"),
        "$-1",
        "its readers judge by its clock"
    );
    pair.down.database.set_active_expire(true);
    while pair.down.session.maintain() {}
    pair.up
        .check(&[("SETRANGE k 0 y", ":600"), ("PERSIST k", ":1")]);
    pair.settle().expect("it follows");
    assert_eq!(content(&mut pair.up), content(&mut pair.down));
    pair.up.line("PEXPIRE k 10");
    pair.up.pass_ms(10);
    pair.up.database.set_active_expire(true);
    while pair.up.session.maintain() {}
    pair.settle().expect("it follows");
    assert_eq!(pair.down.database.summary(0).0, 0);
}

#[test]
fn clients_of_a_replica_read_only() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    pair.up.line("SET k 1");
    pair.settle().expect("it follows");
    let refused = "-READONLY You can't write against a read only replica.";
    pair.down.check(&[
        ("GET k", "$1 1"),
        ("SET k 2", refused),
        ("DEL k", refused),
        ("FLUSHALL", refused),
        ("MULTI", "+OK"),
        ("INCR k", refused),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
    ]);
    follow(&pair.down, true, Refusal::Nothing);
    pair.down.check(&[("SET own 2", "+OK")]);
    follow(&pair.down, false, Refusal::Nothing);
    pair.down.check(&[("DEL own", ":1"), ("INCR k", ":2")]);
}

#[test]
fn what_is_out_of_turn_or_does_not_fit_is_refused() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), Shell::new());
    pair.send();
    let refused = pair.deliver();
    assert!(matches!(
        refused,
        Err(ReplicationError::Databases {
            got: DATABASES,
            expected: 16
        })
    ));
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    pair.up.line("SET k 1");
    pair.send();
    pair.send();
    pair.wire.pop_front();
    assert!(matches!(
        pair.deliver(),
        Err(ReplicationError::OutOfTurn("entries"))
    ));
    assert!(matches!(
        pair.replica.take(b"junk"),
        Err(ReplicationError::Malformed(_))
    ));
    pair.cut();
    pair.settle().expect("it follows");
}
