//! Epochs that end, and what replies wait for, on a log whose disk is the test.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};

use pando_protocol::command::{CommandSpec, HostCommand, resolve};
use pando_protocol::{Reply, Request, RequestBuffer};

use super::*;
use crate::commands::testing::{NoHost, Shell};
use crate::{Client, CommandError, Database, HandLog, Host, Options, Progress, Turn};

/// A client of `sync` and an ordinary one of the same database.
struct Pair {
    log: Arc<HandLog>,
    reader: Shell,
    writer: Shell,
}

impl Pair {
    fn new() -> Self {
        let log = Arc::new(HandLog::default());
        let mut reader = Shell::with_log(Arc::clone(&log));
        let writer = reader.connect();
        reader.client().durability = Durability::Sync;
        Self {
            log,
            reader,
            writer,
        }
    }

    fn current(&self) -> LogEpoch {
        self.reader.database.epochs.current()
    }

    /// Ends an epoch.
    fn tick(&self) {
        self.reader.database.end_epoch();
    }

    /// A writer's command in an epoch of its own; returns the epoch.
    fn write(&mut self, line: &str) -> LogEpoch {
        self.tick();
        self.writer.line(line);
        let epoch = self.current();
        self.tick();
        epoch
    }

    /// What the reply to the reader's command waits for, as if it were the connection's first.
    fn awaits(&mut self, line: &str) -> LogEpoch {
        self.reader.client().awaits = LogEpoch::NONE;
        self.reader.line(line);
        self.reader.client().awaits()
    }
}

#[test]
fn ak4_a_reply_waits_for_what_it_tells_of() {
    let mut pair = Pair::new();
    assert_eq!(pair.awaits("GET never"), LogEpoch::NONE);
    assert_eq!(pair.awaits("PING"), LogEpoch::NONE);
    let one = pair.write("SET a 1");
    let two = pair.write("SET b 1");
    assert_eq!(pair.awaits("GET a"), one);
    assert_eq!(pair.awaits("MGET a b never"), two);
    assert_eq!(pair.awaits("EXISTS a"), one);
    assert_eq!(pair.awaits("STRLEN b"), two);
    // A write that changes nothing tells of what it found.
    assert_eq!(pair.awaits("SETNX a 2"), one);
    assert_eq!(pair.awaits("DEL never"), LogEpoch::NONE);
    let current = pair.current();
    assert_eq!(pair.awaits("SET c 1"), current);
    let removed = pair.write("DEL b");
    assert_eq!(pair.awaits("GET b"), removed, "the tombstone's epoch");
    assert_eq!(pair.awaits("DEL b"), removed);
    assert_eq!(pair.awaits("GETRANGE b 0 1"), removed);
}

#[test]
fn ak4_an_expired_value_is_waited_for_as_if_it_were_seen() {
    let mut pair = Pair::new();
    let written = pair.write("SET a 1 PX 10");
    pair.reader.pass_ms(20);
    assert_eq!(pair.awaits("GET a"), written);
    assert_eq!(pair.reader.line("GET a"), "$-1");
}

#[test]
fn ak4_answers_about_ranges_and_databases_wait_for_everything() {
    let mut pair = Pair::new();
    pair.write("SET a 1");
    for line in [
        "DBSIZE",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "KRANGE - +",
        "KCOUNT - +",
        "KPREFIX a",
        "KRANGEDEL [x [y",
        "SWAPDB 3 4",
        "FLUSHDB",
    ] {
        pair.tick();
        let current = pair.current();
        assert_eq!(pair.awaits(line), current, "{line}");
    }
}

#[test]
fn ak4_what_a_change_of_trees_shows_waits_for_it() {
    let mut pair = Pair::new();
    let old = pair.write("SET a 1");
    let swapped = pair.write("SWAPDB 0 1");
    assert_eq!(pair.awaits("GET a"), swapped, "absent by the exchange");
    pair.reader.line("SELECT 1");
    assert_eq!(pair.awaits("GET a"), swapped, "present by the exchange");
    let flushed = pair.write("FLUSHALL");
    assert_eq!(pair.awaits("GET a"), flushed);
    assert!(old < swapped && swapped < flushed);
    pair.reader.line("SELECT 2");
    assert_eq!(
        pair.awaits("GET a"),
        LogEpoch::NONE,
        "it was empty all the time"
    );
}

#[test]
fn ak4_a_transaction_waits_for_what_its_commands_tell() {
    let mut pair = Pair::new();
    let one = pair.write("SET a 1");
    let exec = |pair: &mut Pair, lines: &[&str]| {
        for line in lines {
            pair.reader.line(line);
        }
        pair.awaits("EXEC")
    };
    assert_eq!(exec(&mut pair, &["MULTI", "GET a"]), one);
    assert_eq!(exec(&mut pair, &["MULTI", "PING"]), LogEpoch::NONE);
    let current = pair.current();
    assert_eq!(exec(&mut pair, &["MULTI", "GET a", "SET b 1"]), current);
    // Whether a watched key has changed tells of the change.
    pair.reader.line("WATCH a");
    let changed = pair.write("SET a 2");
    assert!(exec(&mut pair, &["MULTI", "PING"]) >= changed);
}

#[test]
fn others_wait_for_nothing_and_nobody_waits_again() {
    let mut pair = Pair::new();
    pair.write("SET a 1");
    pair.writer.line("GET a");
    pair.writer.line("SET a 2");
    assert_eq!(pair.writer.client().awaits(), LogEpoch::NONE);
    let one = pair.current();
    pair.reader.line("SET b 1");
    pair.tick();
    pair.reader.line("GET never");
    assert_eq!(pair.reader.client().awaits(), one, "it never goes back");
    pair.reader.client().durability = Durability::Interval;
    pair.reader.line("SET b 2");
    assert_eq!(pair.reader.client().awaits(), one);
}

/// A client of `sync` that misses a key must learn of the removal, whatever maintenance has done.
#[test]
fn ak4_tombstones_stay_until_their_epoch_is_on_disk() {
    let mut pair = Pair::new();
    pair.write("SET a 1");
    let removed = pair.write("DEL a");
    let database = Arc::clone(&pair.reader.database);
    let mut session = database.session().expect("a session is free");
    for _ in 0..5 {
        session.maintain();
    }
    assert_eq!(pair.awaits("GET a"), removed);
    pair.log.sync();
    for _ in 0..5 {
        session.maintain();
    }
    assert_eq!(
        pair.awaits("GET a"),
        LogEpoch::NONE,
        "the tombstone has gone"
    );
}

#[test]
fn who_waits_is_told() {
    let mut pair = Pair::new();
    let told = Arc::new(AtomicU64::new(0));
    let database = Arc::clone(&pair.reader.database);
    assert!(database.is_durable());
    {
        let told = Arc::clone(&told);
        database.on_durable(move |epoch| told.store(epoch.0, Ordering::SeqCst));
    }
    pair.reader.line("SET a 1");
    let epoch = pair.reader.client().awaits();
    assert!(epoch > database.durable());
    database.want_durable(epoch);
    assert_eq!(pair.log.wanted(), epoch);
    assert_eq!(
        pair.reader.line("WAITAOF 1 0 0"),
        "-ERR this command needs a server; the database is embedded"
    );
    pair.tick();
    pair.log.sync();
    assert_eq!(
        (database.durable(), LogEpoch(told.load(Ordering::SeqCst))),
        (epoch, epoch)
    );
}

#[test]
fn who_waits_for_a_quick_disk_writes_himself() {
    let mut pair = Pair::new();
    let database = Arc::clone(&pair.reader.database);
    pair.reader.line("SET a 1");
    let epoch = pair.reader.client().awaits();
    assert!(!database.want_durable(epoch), "the disk is slow");
    assert_eq!(pair.log.take_wanted(), epoch);
    pair.log.set_quick();
    {
        // Somebody's turn would have to be waited for: the epoch thread does that.
        let _turn = pair.writer.turn();
        assert!(!database.want_durable(epoch));
    }
    assert_eq!(pair.log.take_wanted(), epoch);
    assert_eq!(pair.current(), epoch, "it goes on");
    assert!(database.want_durable(epoch));
    assert_eq!((database.durable(), pair.current()), (epoch, epoch.next()));
    assert!(database.want_durable(epoch), "nothing more to do");
    assert_eq!(pair.current(), epoch.next());
    assert_eq!(pair.log.wanted(), LogEpoch::NONE);
}

/// A host whose DEBUG waits until the test lets it go on.
struct Gatekeeper {
    begun: Sender<()>,
    goes_on: Receiver<()>,
}

impl Host for Gatekeeper {
    fn execute(
        &mut self,
        _: &mut Turn<'_>,
        _: &mut Client,
        _: HostCommand,
        _: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        self.begun.send(()).expect("the test waits");
        self.goes_on.recv().expect("the test lets it go on");
        reply.ok();
        Ok(Progress::Done)
    }

    fn starting(&mut self, _: &Client, _: &'static CommandSpec, _: Request<'_>) {}

    fn queued(&mut self, _: &Client) {}

    fn finished(
        &mut self,
        _: &Client,
        _: &'static CommandSpec,
        _: Request<'_>,
        _: usize,
        _: Option<&CommandError>,
    ) {
    }

    fn refused(&mut self, _: Option<&'static CommandSpec>, _: &CommandError) {}
}

fn run(turn: &mut Turn<'_>, client: &mut Client, host: &mut impl Host, line: &str) {
    let request = RequestBuffer::from_args(line.split(' ').map(|word| word.as_bytes().to_vec()));
    let request = request.as_request();
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, client.protocol);
    let outcome = turn.execute(client, resolve(request), request, &mut reply, host);
    assert!(matches!(outcome, Progress::Done), "{line}: {outcome:?}");
    assert_ne!(bytes[0], b'-', "{line}: {}", bytes.escape_ascii());
}

/// AK2 group-of-its-end: the clock does not wait for a long EXEC; what it wrote in the epoch in
/// which it began is taken for what it is, part of a group of the epoch in which it ended.
#[test]
fn ak2_an_epoch_ends_beside_a_long_command_under_all_gates() {
    let mut pair = Pair::new();
    let database = Arc::clone(&pair.reader.database);
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    pair.writer.line("SET gone 1");
    let begins_in = pair.current();
    let exec = {
        let database = Arc::clone(&database);
        std::thread::spawn(move || {
            let mut session = database.session().expect("a session is free");
            let mut client = Client::new(7, true);
            client.durability = Durability::Sync;
            let mut host = Gatekeeper { begun, goes_on };
            let mut turn = session.turn();
            for line in [
                "MULTI",
                "SET early 1",
                "DEL gone",
                "DEBUG wait",
                "SET late 1",
                "EXEC",
            ] {
                run(&mut turn, &mut client, &mut host, line);
            }
            drop(turn);
            client.awaits()
        })
    };
    has_begun.recv().expect("the command runs");
    pair.tick();
    assert_eq!(pair.current(), begins_in.next());
    assert_eq!(pair.log.closed(), begins_in);
    pair.log.sync();
    go_on.send(()).expect("the command waits");
    assert_eq!(exec.join().expect("it ends"), begins_in.next());
    // Its value says the first epoch, which is on disk; its group is not.
    assert_eq!(pair.awaits("GET early"), begins_in.next());
    assert_eq!(pair.awaits("GET late"), begins_in.next());
    // So does the tombstone, which may go.
    let mut session = database.session().expect("a session is free");
    for _ in 0..5 {
        session.maintain();
    }
    assert_eq!(pair.awaits("GET gone"), begins_in.next());
    pair.tick();
    pair.log.sync();
    assert_eq!(database.durable(), begins_in.next());
}

/// AK1 one-epoch-per-turn: an epoch may end where a batch gives way, and each command's group is of
/// its own epoch.
#[test]
fn ak1_an_epoch_ends_where_a_batch_gives_way() {
    let pair = Pair::new();
    let database = &pair.reader.database;
    let (mut session, mut client) = shell_on(database);
    client.durability = Durability::Sync;
    let begins_in = pair.current();
    let mut turn = session.turn();
    run(&mut turn, &mut client, &mut NoHost, "SET a 1");
    assert_eq!(client.awaits(), begins_in);
    std::thread::scope(|scope| {
        let tick = scope.spawn(|| database.end_epoch());
        let begun = Instant::now();
        while pair.current() == begins_in && begun.elapsed() < Duration::from_mins(1) {
            pair.reader.pass_ms(limits::HOLD_MAX.milliseconds().0 + 1);
            turn.give_way();
        }
        run(&mut turn, &mut client, &mut NoHost, "SET b 1");
        drop(turn);
        tick.join().expect("it ticks");
    });
    assert_eq!(client.awaits(), begins_in.next());
    assert_eq!(pair.log.closed(), begins_in);
}

/// Whoever holds all gates ticks for the thread that waits for them.
#[test]
fn a_tick_comes_through_a_storm_of_commands_under_all_gates() {
    let log = Arc::new(HandLog::default());
    let shell = Shell::with_log(Arc::clone(&log));
    let database = &shell.database;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut storm = shell_on(database);
                while !over.load(Ordering::Relaxed) {
                    let mut turn = storm.0.turn();
                    run(&mut turn, &mut storm.1, &mut NoHost, "MSET a 1 b 2");
                    run(&mut turn, &mut storm.1, &mut NoHost, "MSET a 2 b 1");
                }
            });
        }
        let begun = Instant::now();
        for _ in 0..100 {
            database.end_epoch();
        }
        let elapsed = begun.elapsed();
        over.store(true, Ordering::Relaxed);
        assert!(elapsed < Duration::from_mins(2), "{elapsed:?}");
    });
    assert_eq!(log.closed().0, 100);
}

/// AK1 one-epoch-per-turn, and that two threads that tick do not close an epoch twice.
#[test]
fn ak1_a_turn_sees_one_epoch() {
    let log = Arc::new(HandLog::default());
    let shell = Shell::with_log(Arc::clone(&log));
    let database = &shell.database;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut worker = shell_on(database);
                while !over.load(Ordering::Relaxed) {
                    let mut turn = worker.0.turn();
                    let epoch = database.epochs.current();
                    for _ in 0..10 {
                        run(&mut turn, &mut worker.1, &mut NoHost, "SET a 1");
                    }
                    assert_eq!(database.epochs.current(), epoch);
                }
            });
        }
        let tick = || {
            for _ in 0..200 {
                database.end_epoch();
            }
        };
        let other = scope.spawn(tick);
        tick();
        other.join().expect("it ticks");
        over.store(true, Ordering::Relaxed);
    });
    // Each asked for the end of an epoch; two that ask at once may be content with one.
    let closed = log.closed().0;
    assert!((200..=400).contains(&closed), "{closed}");
}

fn shell_on(database: &Arc<Database>) -> (crate::Session, Client) {
    let session = database.session().expect("a session is free");
    (session, Client::new(1, true))
}

/// Without a log everything counts as being on disk, and nobody is told anything.
#[test]
fn without_a_log_nothing_is_waited_for() {
    let database = Database::open(Options::default()).expect("the options are valid");
    assert!(!database.is_durable());
    assert_eq!(database.durable(), database.epochs.current());
    database.want_durable(LogEpoch::NEVER);
    database.on_durable(|_| unreachable!("there is no log"));
}
