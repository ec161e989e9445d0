//! The real server, killed without warning while it is written to, and started again: what is
//! there must be what its clients were promised.
//!
//! | file | what it is |
//! |---|---|
//! | `model` | a writer's commands, and which of them what was found can come from |
//! | `writers` | writers and readers under load |
//! | `transfers` | transfers by EXEC, with receipts |
//! | `whole` | EXECs longer than an epoch, FLUSHALL and SWAPDB, in one sequence |
//! | `forks` | branches and lasting snapshots |
//! | `server` | the process and its connections |
//! | `canaries` | faults planted into what is found, and into what is promised |
//!
//! What a process has given to the operating system outlives its kill: these rounds show writes
//! that were acknowledged too early, torn, reordered or shown too early, but no missing sync. That
//! takes the simulated disk: the log's test that a kill cannot show a missing sync and a power loss
//! does, and the crash tests of log and database.
//!
//! A round starts the server (threads, log directories and mode by the seed), loads it, kills it at
//! a random moment, starts it again and compares. `PANDO_CRASH_ROUNDS=500` runs that many rounds,
//! `PANDO_CRASH_SEED` chooses others, `PANDO_CRASH_DIR` names a folder on the disk to use.

mod canaries;
mod forks;
mod model;
mod server;
mod transfers;
mod whole;
mod writers;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use model::{Generator, History, State};
use server::{Folder, Promise, Server};
use transfers::Books;
use writers::{Sight, Written};

/// What is acknowledged in mode `interval` is on disk this much later.
const WINDOW: Duration = Duration::from_millis(200);

/// A round may end before all have written: then there are up to so many more.
const MORE_ROUNDS_MAX: u64 = 100;

/// Who writes, with which promise; the longest pipeline of each.
const WRITERS: [(Promise, usize); 4] = [
    (Promise::Sync, 1),
    (Promise::Sync, 32),
    (Promise::Interval, 8),
    (Promise::Interval, 32),
];

/// Who transfers.
const CLERKS: [Promise; 2] = [Promise::Sync, Promise::Interval];

/// How the rounds are judged: what canaries change.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    /// Writers of `interval` are taken for ones of `sync`.
    interval_is_sync: bool,
    /// The reader, which is of `interval` then, is taken for one of `sync`.
    reader_is_sync: bool,
}

const FAIR: Judgement = Judgement {
    interval_is_sync: false,
    reader_is_sync: false,
};

/// What all have seen of a round.
struct Seen {
    written: Vec<Written>,
    worked: Vec<transfers::Worked>,
    sights: Vec<Sight>,
    /// The end of the server.
    ended: Instant,
    /// What was acknowledged in mode `interval` so long before is on disk.
    window: Duration,
}

/// The file of a pool, removed at the end.
struct PoolFile(PathBuf);

impl PoolFile {
    fn new(seed: u64) -> Self {
        let name = format!("pando-crash-{}-{seed}", std::process::id());
        Self(Path::new("/dev/shm").join(name))
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Rounds on one folder.
struct Rounds {
    folder: Folder,
    /// Of an engine that keeps its data in a pool of shared memory.
    pool: Option<PoolFile>,
    /// Otherwise, which engine.
    engine: &'static str,
    random: fastrand::Rng,
    judgement: Judgement,
    states: Vec<State>,
    generators: Vec<Option<Generator>>,
    /// The number of the next command of each writer.
    counts: Vec<u64>,
    books: Books,
}

impl Rounds {
    fn new(seed: u64, judgement: Judgement) -> Self {
        let generators = (0..WRITERS.len()).map(|writer| Some(Generator::new(seed, writer)));
        Self {
            folder: Folder::new(),
            pool: None,
            engine: "masstree",
            random: fastrand::Rng::with_seed(seed),
            judgement,
            states: vec![State::default(); WRITERS.len()],
            generators: generators.collect(),
            counts: vec![1; WRITERS.len()],
            books: Books {
                sent: vec![Vec::new(); CLERKS.len()],
                promised: vec![0; CLERKS.len()],
                ..Books::default()
            },
        }
    }

    /// A server on the folder, as the dice will have it.
    fn start(&mut self) -> Server {
        let random = &mut self.random;
        let threads = random.usize(1..=4).to_string();
        let mode = ["interval", "sync"][random.usize(..2)].to_owned();
        let mut flags = vec!["--threads".into(), threads, "--durability".into(), mode];
        if let Some(PoolFile(path)) = &self.pool {
            let path = path.display().to_string();
            flags.extend(["--engine".into(), "cdds".into(), "--pmem".into(), path]);
            flags.extend(["--pmem-size".into(), "128mb".into()]);
            return Server::start(&self.folder.path().join("data"), &flags);
        }
        flags.extend(["--engine".into(), self.engine.into()]);
        flags.extend(["--checkpoint-log-size".into(), "2mb".into()]);
        flags.extend(["--log-segment-size".into(), "1mb".into()]);
        for directory in 0..random.usize(..3) {
            let path = self.folder.path().join(format!("log-{directory}"));
            flags.extend(["--log-dir".into(), path.display().to_string()]);
        }
        for directory in 0..random.usize(..3) {
            let path = self.folder.path().join(format!("parts-{directory}"));
            flags.extend(["--checkpoint-dir".into(), path.display().to_string()]);
        }
        Server::start(&self.folder.path().join("data"), &flags)
    }

    /// One round; what was wrong, if anything.
    fn run(&mut self) -> Result<(), String> {
        let server = self.start();
        let load = Duration::from_millis(self.random.u64(20..400));
        let graceful = self.random.usize(..5) == 0;
        let seed = self.random.u64(..);
        let seen = self.work(server, load, graceful, seed);
        let histories = self.settle(seen);
        self.compare(&histories)
    }

    /// All work on the server until its end.
    fn work(&mut self, server: Server, load: Duration, graceful: bool, seed: u64) -> Seen {
        let reader_promise = if self.judgement.reader_is_sync {
            Promise::Interval
        } else {
            Promise::Sync
        };
        std::thread::scope(|scope| {
            let (watching, over) = mpsc::channel();
            let path = self.folder.path();
            let disk = scope.spawn(move || slowest_sync(path, &over));
            let mut writers = Vec::new();
            for (writer, &(promise, pipeline_max)) in WRITERS.iter().enumerate() {
                let connection = server.connect();
                let generator = self.generators[writer].take().expect("it came back");
                writers.push(scope.spawn(move || {
                    writers::write(connection, writer, generator, promise, pipeline_max)
                }));
            }
            let mut clerks = Vec::new();
            for (clerk, &promise) in CLERKS.iter().enumerate() {
                let connection = server.connect();
                let first = self.books.sent[clerk].len();
                clerks.push(scope.spawn(move || {
                    transfers::work(connection, clerk, first, seed ^ clerk as u64, promise)
                }));
            }
            let connection = server.connect();
            let reader = scope
                .spawn(move || writers::watch(connection, WRITERS.len(), seed, reader_promise));
            let stalled = pass(load);
            let mut ended = Instant::now();
            if graceful {
                server.stop();
                // Everything that was acknowledged was promised.
                ended += PATIENCE;
            } else {
                server.kill();
            }
            drop(watching);
            let synced = disk.join().expect("who watches the disk");
            // A machine that leaves threads without a processor so long cannot keep a clock. A
            // write may wait for the syncs of the epoch before its own, of two new segments and of
            // those that they end, and for its own.
            let window = WINDOW + 4 * stalled + 20 * synced;
            let writers = writers.into_iter();
            let clerks = clerks.into_iter();
            Seen {
                written: writers.map(|it| it.join().expect("a writer")).collect(),
                worked: clerks.map(|it| it.join().expect("a clerk")).collect(),
                sights: reader.join().expect("the reader"),
                ended,
                window,
            }
        })
    }

    /// What each writer sent, and what of it was promised.
    fn settle(&mut self, seen: Seen) -> Vec<History> {
        let promised = |promise: Promise, acknowledged: &[Instant]| {
            if promise == Promise::Sync || self.judgement.interval_is_sync {
                return acknowledged.len();
            }
            let before_end = |at: &&Instant| **at + seen.window < seen.ended;
            acknowledged.iter().take_while(before_end).count()
        };
        let mut histories = Vec::new();
        for (writer, written) in seen.written.into_iter().enumerate() {
            let mut history = History {
                before: self.states[writer].clone(),
                promised: promised(WRITERS[writer].0, &written.acknowledged),
                sent: written.sent,
            };
            let first = self.counts[writer];
            for &sight in &seen.sights {
                let of = match sight {
                    Sight::Value { writer, .. } | Sight::Gone { writer, .. } => writer,
                };
                if of == writer {
                    let floor = writers::floor_of(sight, first, &history.sent);
                    history.promised = history.promised.max(floor);
                }
            }
            self.counts[writer] += history.sent.len() as u64;
            self.generators[writer] = Some(written.generator);
            histories.push(history);
        }
        for (clerk, worked) in seen.worked.into_iter().enumerate() {
            let known = self.books.sent[clerk].len();
            self.books.promised[clerk] = known + promised(CLERKS[clerk], &worked.acknowledged);
            self.books.sent[clerk].extend(worked.sent);
        }
        histories
    }

    /// Starts the server again and compares what is there.
    fn compare(&mut self, histories: &[History]) -> Result<(), String> {
        let server = self.start();
        let mut connection = server.connect();
        let (balances, receipts) = transfers::read(&mut connection, CLERKS.len());
        self.books.check(&balances, &receipts)?;
        for (clerk, &receipt) in receipts.iter().enumerate() {
            self.books.sent[clerk].truncate(receipt);
            self.books.promised[clerk] = receipt;
        }
        for (writer, history) in histories.iter().enumerate() {
            let found = writers::read(&mut connection, writer);
            let prefix = history.check(&found);
            prefix.map_err(|violation| format!("writer {writer}: {violation:?}"))?;
            self.states[writer] = found;
        }
        drop(connection);
        // Half of the time what was found is found again after another crash.
        if self.random.bool() {
            server.kill();
        } else {
            server.stop();
        }
        Ok(())
    }
}

use server::PATIENCE;

/// Lets so much time pass; by how much the machine overslept at most.
fn pass(time: Duration) -> Duration {
    let (_keep, never) = mpsc::channel::<()>();
    let deadline = Instant::now() + time;
    let step = Duration::from_millis(1);
    let mut stalled = Duration::ZERO;
    while Instant::now() < deadline {
        let before = Instant::now();
        let _ = never.recv_timeout(step);
        stalled = stalled.max(before.elapsed().saturating_sub(step));
    }
    stalled
}

/// Appends a block to a file in this folder and syncs it, every few milliseconds until the sender
/// is gone; how long that took at most.
fn slowest_sync(folder: &Path, over: &mpsc::Receiver<()>) -> Duration {
    let mut file = File::create(folder.join("watched")).expect("a file");
    let mut slowest = Duration::ZERO;
    loop {
        let before = Instant::now();
        file.write_all(&[0; 4096]).expect("it is written");
        file.sync_all().expect("it is synced");
        slowest = slowest.max(before.elapsed());
        let pause = over.recv_timeout(Duration::from_millis(5));
        if pause == Err(mpsc::RecvTimeoutError::Disconnected) {
            return slowest;
        }
    }
}

fn variable(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn what_was_promised_survives_a_kill() {
    survives(|seed| Rounds::new(seed, FAIR));
}

#[test]
fn what_was_promised_survives_a_kill_on_pages() {
    survives(|seed| Rounds {
        engine: "minuet",
        ..Rounds::new(seed, FAIR)
    });
}

#[test]
fn what_was_promised_survives_a_kill_in_a_pool() {
    survives(|seed| Rounds {
        pool: Some(PoolFile::new(seed)),
        ..Rounds::new(seed, FAIR)
    });
}

fn survives(load: impl FnOnce(u64) -> Rounds) {
    let rounds = variable("PANDO_CRASH_ROUNDS", 8);
    let seed = variable("PANDO_CRASH_SEED", fastrand::u64(..));
    println!("PANDO_CRASH_SEED={seed}");
    let mut load = load(seed);
    let mut round = 0;
    while round < rounds || load.counts.iter().any(|count| *count <= 10) {
        if let Err(violation) = load.run() {
            panic!("round {round} of seed {seed}: {violation}");
        }
        round += 1;
        assert!(round < rounds + MORE_ROUNDS_MAX, "{:?}", load.counts);
    }
}

/// Judged by a promise that was not made, some round fails: the load and the moments of the kill
/// are such that a server that did not keep its promise would be found out.
#[test]
fn canary_a_promise_that_was_not_made_is_found_broken() {
    for judgement in [
        Judgement {
            interval_is_sync: true,
            ..FAIR
        },
        Judgement {
            reader_is_sync: true,
            ..FAIR
        },
    ] {
        let found = (0..80).any(|seed| Rounds::new(seed, judgement).run().is_err());
        assert!(found, "{judgement:?}");
    }
}
