//! Dispatch, step by step: which gates a command runs under, what is refused and in whose words,
//! what the host is told, CLIENT REPLY, CLIENT PAUSE and commands in slices. Replies and texts are
//! those of Redis 7.0.15.

use crate::clock::Microseconds;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pando_protocol::command::StringCommand;
use pando_protocol::{RequestBuffer, command};

use super::*;
use crate::commands::testing::words;
use crate::{Clock, EngineKind, Options, Session};

const START_US: u64 = 1_700_000_000_000_000;

#[derive(Debug)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Microseconds {
        Microseconds(self.0.load(Ordering::Relaxed))
    }
}

/// Knows QUIT, RESET, CLIENT REPLY, DEBUG SLEEP and CONFIG, and notes what it is told.
#[derive(Debug, Default)]
struct TestHost {
    notes: String,
}

impl TestHost {
    fn note(&mut self, text: &str, spec: Option<&CommandSpec>, error: Option<&CommandError>) {
        let name = spec.map_or("?", |spec| spec.name);
        let _ = write!(self.notes, "{text} {name}");
        if let Some(error) = error {
            let text = error.to_string();
            let code = text.split(' ').next().unwrap_or_default();
            let _ = write!(self.notes, " {code}");
        }
        self.notes.push('\n');
    }
}

impl Host for TestHost {
    fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        id: HostCommand,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        match id {
            HostCommand::Quit => {
                reply.ok();
                return Ok(Progress::Close);
            }
            HostCommand::Reset => {
                turn.reset(client);
                reply.simple("RESET");
            }
            HostCommand::Debug => return Ok(Progress::Waits(Wait::Time { milliseconds: 7 })),
            HostCommand::Config => {
                let before = held(turn);
                turn.keyspace(0);
                reply.simple(&format!("{before} then {}", held(turn)));
            }
            HostCommand::Client if request.is(2, "ON") => {
                client.reply_mode = ReplyMode::On;
                reply.ok();
            }
            HostCommand::Client if request.is(2, "OFF") => client.reply_mode = ReplyMode::Off,
            HostCommand::Client if request.is(2, "SKIP") => client.reply_mode = ReplyMode::SkipNext,
            HostCommand::Client => reply.simple(held(turn)),
            _ => return Err(CommandError::NoHost),
        }
        Ok(Progress::Done)
    }

    fn starting(&mut self, _: &Client, spec: &'static CommandSpec, _: Request<'_>) {
        self.note("starting", Some(spec), None);
    }

    fn queued(&mut self, client: &Client) {
        let _ = writeln!(self.notes, "queued {:?}", client.queued_requests());
    }

    fn finished(
        &mut self,
        _: &Client,
        spec: &'static CommandSpec,
        _: Request<'_>,
        _: usize,
        error: Option<&CommandError>,
    ) {
        self.note("finished", Some(spec), error);
    }

    fn refused(&mut self, spec: Option<&'static CommandSpec>, error: &CommandError) {
        self.note("refused", spec, Some(error));
    }
}

fn held(turn: &Turn<'_>) -> &'static str {
    match turn.held {
        HeldGates::Nothing => "nothing",
        HeldGates::Own { .. } => "own",
        HeldGates::All { .. } => "all",
        HeldGates::Lent => "lent",
    }
}

/// A connection to a database whose maintenance is stopped and whose clock stands still.
struct Bench {
    database: Arc<Database>,
    clock: Arc<TestClock>,
    session: Session,
    client: Client,
    host: TestHost,
}

impl Bench {
    fn new() -> Self {
        Self::with_retired_bytes_max(Options::default().retired_bytes_max)
    }

    fn with_retired_bytes_max(retired_bytes_max: usize) -> Self {
        let clock = Arc::new(TestClock(AtomicU64::new(START_US)));
        let options = Options {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            // Out of memory as soon as there is a limit.
            memory: || usize::MAX,
            retired_bytes_max,
            ..Options::default()
        };
        let database = Database::open(options).expect("the options are valid");
        database.close();
        Self::connect(database, clock)
    }

    fn another(&self) -> Self {
        Self::connect(Arc::clone(&self.database), Arc::clone(&self.clock))
    }

    fn connect(database: Arc<Database>, clock: Arc<TestClock>) -> Self {
        Self {
            session: database.session().expect("a session is free"),
            database,
            clock,
            client: Client::new(1, true),
            host: TestHost::default(),
        }
    }

    /// Executes a line in a turn; the reply, its line ends as spaces, and what became of it.
    fn execute(&mut self, line: &str) -> (String, Progress) {
        let mut turn = self.session.turn();
        execute(&mut turn, &mut self.client, &mut self.host, line)
    }

    /// The reply to a line that is done at once.
    fn line(&mut self, line: &str) -> String {
        let (reply, outcome) = self.execute(line);
        assert!(matches!(outcome, Progress::Done), "{line}: {outcome:?}");
        reply
    }

    #[track_caller]
    fn check(&mut self, lines: &[(&str, &str)]) {
        for (index, (line, reply)) in lines.iter().enumerate() {
            assert_eq!(self.line(line), *reply, "line {index}: {line}");
        }
    }

    /// What the host was told since it was last asked.
    fn notes(&mut self) -> String {
        std::mem::take(&mut self.host.notes)
    }

    fn fill(&mut self, keys: usize) {
        for key in 0..keys {
            self.line(&format!("SET {key} v"));
        }
    }

    fn paused(&mut self, line: &str) -> bool {
        let (reply, outcome) = self.execute(line);
        let paused = matches!(outcome, Progress::Waits(Wait::Leave { .. }));
        assert!(!paused || reply.is_empty(), "{line}: {reply}");
        paused
    }
}

fn execute(
    turn: &mut Turn<'_>,
    client: &mut Client,
    host: &mut TestHost,
    line: &str,
) -> (String, Progress) {
    let request = RequestBuffer::from_args(words(line));
    let request = request.as_request();
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, client.protocol);
    let outcome = turn.execute(client, command::resolve(request), request, &mut reply, host);
    (text(&out), outcome)
}

fn text(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    let text = text.strip_suffix("\r\n").unwrap_or(&text);
    text.replace("\r\n", " ")
}

// Gates.

/// T1 gate-and-pin.
#[test]
fn a_command_runs_under_the_gates_that_it_needs() {
    let mut bench = Bench::new();
    let mut turn = bench.session.turn();
    assert_eq!(held(&turn), "own");
    for (line, gates) in [
        ("GET k", "own"),
        ("MSET k 1 j 2", "all"),
        ("RENAME k k2", "all"),
        ("MGET k j", "own"),
        ("FLUSHALL", "all"),
        ("NOSUCH", "all"),
        ("DEL k j", "own"),
        ("CONFIG GET save", "own"),
        ("SWAPDB 0 1", "all"),
        ("XREADGROUP GROUP g c STREAMS k >", "own"),
        ("XREADGROUP GROUP g c STREAMS k j > >", "all"),
    ] {
        execute(&mut turn, &mut bench.client, &mut bench.host, line);
        assert_eq!(held(&turn), gates, "after {line}");
    }
}

/// EXEC of keys that its requests name, and of ranges that are read before it writes, takes the own
/// gate with Minuet.
#[test]
fn exec_of_keys_and_ranges_runs_beside_others() {
    let options = Options {
        engine: EngineKind::Minuet,
        ..Options::default()
    };
    let database = Database::open(options).expect("the options are valid");
    let clock = Arc::new(TestClock(AtomicU64::new(START_US)));
    let mut bench = Bench::connect(database, clock);
    bench.check(&[("SET a 1", "+OK"), ("SET b 2", "+OK")]);
    for (lines, gates, reply) in [
        (["SET a 1", "GET b"], "own", "*2 +OK $1 2"),
        (
            ["KRANGE - +", "GET b"],
            "own",
            "*2 *2 $-1 *4 $1 a $1 1 $1 b $1 2 $1 2",
        ),
        (
            ["KPREFIX a", "SET b 2"],
            "own",
            "*2 *2 $-1 *2 $1 a $1 1 +OK",
        ),
        (
            ["SET b 2", "KPREFIX a"],
            "all",
            "*2 +OK *2 $-1 *2 $1 a $1 1",
        ),
        (["DBSIZE", "GET b"], "own", "*2 :2 $1 2"),
        (["KCOUNT - +", "GET b"], "all", "*2 :2 $1 2"),
    ] {
        let mut turn = bench.session.turn();
        let mut run = |line| execute(&mut turn, &mut bench.client, &mut bench.host, line).0;
        for line in ["MULTI"].iter().chain(&lines) {
            run(line);
        }
        assert_eq!(run("EXEC"), reply, "{lines:?}");
        assert_eq!(held(&turn), gates, "{lines:?}");
    }
}

/// T1 gate-and-pin: no gate is held while a file may be written.
#[test]
fn the_host_is_given_gates() {
    Bench::new().check(&[
        ("CLIENT ID", "+own"),
        ("CONFIG GET save", "+nothing then own"),
        ("MULTI", "+OK"),
        ("CLIENT ID", "+QUEUED"),
        ("CONFIG GET save", "+QUEUED"),
        ("EXEC", "*2 +all +all then all"),
    ]);
}

/// Whoever waits for all gates gets them in the middle of a batch that takes long, and so does a
/// session that waits for whoever has all.
#[test]
fn a_long_batch_gives_way_between_requests() {
    const PATIENCE: Duration = Duration::from_mins(1);
    for (line, takes_all) in [
        ("SET k 1", true),
        ("MSET k 1 j 2", true),
        ("MSET k 1", false),
    ] {
        let mut bench = Bench::new();
        let mut other = bench.another();
        let mut turn = bench.session.turn();
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            execute(&mut turn, &mut bench.client, &mut bench.host, line);
            scope.spawn(|| {
                let line = if takes_all { "MSET a 1 b 2" } else { "GET a" };
                other.line(line);
                passed.store(1, Ordering::SeqCst);
            });
            while !bench.database.gates.are_wanted() {
                std::thread::yield_now();
            }
            // A short batch runs through.
            bench
                .clock
                .0
                .fetch_add(limits::HOLD_MAX.0 - 1, Ordering::Relaxed);
            turn.give_way();
            assert_eq!(passed.load(Ordering::SeqCst), 0, "{line}");
            let begun = Instant::now();
            while passed.load(Ordering::SeqCst) == 0 && begun.elapsed() < PATIENCE {
                bench
                    .clock
                    .0
                    .fetch_add(limits::HOLD_MAX.0, Ordering::Relaxed);
                turn.give_way();
                std::thread::yield_now();
            }
            let gave_way = passed.load(Ordering::SeqCst) == 1;
            let (reply, _) = execute(&mut turn, &mut bench.client, &mut bench.host, "GET k");
            assert_eq!((reply.as_str(), held(&turn)), ("$1 1", "own"));
            drop(turn);
            assert!(gave_way, "{line}");
        });
    }
}

/// T2 nothing-between: it would wait for itself.
#[test]
fn a_turn_leaves_nothing_held() {
    let mut bench = Bench::new();
    for line in ["GET k", "FLUSHALL", "CONFIG GET save"] {
        bench.line(line);
        drop(bench.database.gates.enter_all());
    }
}

/// Else a client that sends nothing but EXEC would hold up all the others.
#[test]
fn an_exec_that_cannot_run_takes_no_gate_but_its_own() {
    let mut bench = Bench::new();
    let other = bench.another();
    let gates = Arc::clone(&bench.database);
    let _held = gates.gates.enter(other.session.gate());
    bench.check(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "+OK"),
        (
            "NOSUCH",
            "-ERR unknown command 'NOSUCH', with args beginning with: ",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
    ]);
}

/// T3 clock-after-gate.
#[test]
fn the_clock_is_read_when_a_gate_is_taken() {
    let mut bench = Bench::new();
    let clock = Arc::clone(&bench.clock);
    let mut turn = bench.session.turn();
    let mut now_after = |line: &str| {
        clock.0.fetch_add(1000, Ordering::Relaxed);
        execute(&mut turn, &mut bench.client, &mut bench.host, line);
        turn.session.now - Microseconds(START_US)
    };
    assert_eq!(now_after("GET k"), Microseconds::ZERO);
    assert_eq!(now_after("MSET a 1"), Microseconds(2000));
    assert_eq!(now_after("MSET a 2"), Microseconds(2000));
    assert_eq!(now_after("GET k"), Microseconds(4000));
}

// Refusals.

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const EXEC_OOM: &str = "-EXECABORT Transaction discarded because of: OOM command not allowed when \
                        used memory > 'maxmemory'.";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

#[test]
fn a_refused_exec_ends_the_transaction() {
    let mut bench = Bench::new();
    let arity = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
                 command";
    bench.check(&[
        ("EXEC foo", arity),
        ("WATCH k", "+OK"),
        ("MULTI", "+OK"),
        ("EXEC foo", arity),
        ("DISCARD", "-ERR DISCARD without MULTI"),
    ]);
    assert_eq!(bench.client.watched_keys(), 0);
    bench.check(&[
        ("MULTI", "+OK"),
        (
            "DISCARD foo",
            "-ERR wrong number of arguments for 'discard' command",
        ),
        ("EXEC", ABORTED),
    ]);
}

#[test]
fn without_authentication_only_the_names_of_commands_are_learnt() {
    let mut bench = Bench::new();
    bench.client.authenticated = false;
    let denied = "-NOAUTH Authentication required.";
    bench.check(&[
        (
            "NOSUCH",
            "-ERR unknown command 'NOSUCH', with args beginning with: ",
        ),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("GET k", denied),
        ("MULTI", denied),
        ("DISCARD", denied),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.",
        ),
        ("RESET", "+RESET"),
    ]);
    assert!(matches!(bench.execute("QUIT a b"), (reply, Progress::Close) if reply == "+OK"));
}

#[test]
fn without_memory_nothing_is_queued() {
    let mut bench = Bench::new();
    bench.check(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED")]);
    bench.database.set_max_memory(1);
    bench.check(&[
        ("GET k", OOM),
        ("MULTI", OOM),
        ("WATCH k", OOM),
        ("UNWATCH", OOM),
        // What is in the queue counts before what was refused.
        ("EXEC", EXEC_OOM),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("SET k 1", OOM),
        ("GET k", "$-1"),
        ("MULTI", "+OK"),
        ("EXEC", "*0"),
        ("MULTI", "+OK"),
        ("PING", OOM),
        ("EXEC", ABORTED),
        ("MULTI", "+OK"),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "+OK"),
        ("MULTI", "+OK"),
        ("RESET", "+RESET"),
    ]);
    assert_eq!(bench.database.statistics().refused_for_memory, 7);
    bench.database.set_max_memory(0);
    bench.check(&[("MULTI", "+OK"), ("GET k", "+QUEUED")]);
    bench.database.set_max_memory(1);
    bench.check(&[("EXEC", "*1 $-1")]);
}

#[test]
fn multi_and_watch_inside_a_transaction_abort_it() {
    const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
    Bench::new().check(&[
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("SET k 1", "+QUEUED"),
        ("EXEC", ABORTED),
        ("MULTI", "+OK"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
        ("EXEC", ABORTED),
        ("GET k", "$-1"),
    ]);
}

/// A queue takes no more than its bound, and its copy is not made in vain.
#[test]
fn a_transaction_has_a_bound() {
    let mut bench = Bench::new();
    bench.line("MULTI");
    let request = RequestBuffer::from_args(["SET", "k", "v"]);
    let spec = command::spec(StringCommand::Set.id());
    let transaction = bench.client.transaction.as_mut().expect("just begun");
    for _ in 0..limits::TRANSACTION_REQUESTS_MAX {
        let request = request.as_request();
        transaction.queue(spec, request, usize::MAX).expect("room");
    }
    bench.check(&[
        (
            "PING",
            "-ERR too many commands or bytes queued in a transaction",
        ),
        ("EXEC", ABORTED),
    ]);
}

// What the host is told.

#[test]
fn the_host_is_told_of_every_command_once() {
    let mut bench = Bench::new();
    for (line, notes) in [
        ("SET k 1", "starting set\nfinished set\n"),
        ("HGET k f", "starting hget\nfinished hget WRONGTYPE\n"),
        ("NOSUCH", "refused ? ERR\n"),
        ("GET", "refused get ERR\n"),
        ("EXEC foo", "refused exec EXECABORT\n"),
        ("EXEC", "starting exec\nfinished exec ERR\n"),
        ("MULTI", "starting multi\nfinished multi\n"),
        ("GET k", "queued Some(1)\n"),
        (
            "EXEC",
            "starting exec\nstarting get\nfinished get\nfinished exec\n",
        ),
        ("MULTI", "starting multi\nfinished multi\n"),
        ("SHUTDOWN", "refused shutdown ERR\n"),
        ("EXEC", "starting exec\nfinished exec EXECABORT\n"),
    ] {
        bench.line(line);
        assert_eq!(bench.notes(), notes, "{line}");
    }
    bench.database.pause(Microseconds::MAX, true);
    assert!(bench.paused("GET k"));
    assert_eq!(bench.notes(), "", "a paused command has not run");
}

// CLIENT REPLY.

#[test]
fn a_skipped_reply_is_that_of_the_next_command() {
    let mut bench = Bench::new();
    for lines in [
        &[("PING", ""), ("PING", "+PONG")][..],
        &[("NOSUCH", ""), ("PING", "+PONG")],
        &[("CLIENT REPLY SKIP", ""), ("PING", ""), ("PING", "+PONG")],
        &[("CLIENT REPLY ON", "+OK"), ("PING", "+PONG")],
        &[("RESET", ""), ("PING", "+PONG")],
        &[("MULTI", ""), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")],
    ] {
        bench.check(&[("CLIENT REPLY SKIP", "")]);
        bench.check(lines);
    }
    // As in Redis the transaction's reply lacks one of its elements.
    bench.check(&[
        ("MULTI", "+OK"),
        ("CLIENT REPLY SKIP", "+QUEUED"),
        ("PING", "+QUEUED"),
        ("EXEC", "*2 +PONG"),
        ("PING", ""),
        ("PING", "+PONG"),
    ]);
}

#[test]
fn replies_stay_off_until_they_are_turned_on() {
    Bench::new().check(&[
        ("CLIENT REPLY OFF", ""),
        ("SET k 1", ""),
        ("NOSUCH", ""),
        ("CLIENT REPLY ON", "+OK"),
        ("GET k", "$1 1"),
        ("CLIENT REPLY OFF", ""),
        ("RESET", "+RESET"),
        ("PING", "+PONG"),
    ]);
}

#[test]
fn a_reply_that_is_due_later_is_skipped_all_the_same() {
    let mut bench = Bench::new();
    bench.fill(limits::SLICE_ENTRIES_MAX + 1);
    bench.database.pause(Microseconds::MAX, true);
    bench.check(&[("CLIENT REPLY SKIP", "")]);
    assert!(bench.paused("PING") && bench.paused("PING"));
    bench.database.unpause();
    bench.check(&[("PING", ""), ("PING", "+PONG"), ("CLIENT REPLY SKIP", "")]);
    let (reply, outcome) = bench.execute("KEYS *");
    let Progress::Waits(Wait::Others(mut command)) = outcome else {
        panic!("{outcome:?}");
    };
    let mut out = reply.into_bytes();
    let mut reply = Reply::new(&mut out, bench.client.protocol);
    let mut turn = bench.session.turn();
    while !turn.slice(&mut bench.client, &mut command, &mut reply) {}
    drop(turn);
    assert_eq!(text(&out), "");
    bench.check(&[("PING", "+PONG")]);
}

// CLIENT PAUSE.

#[test]
fn a_pause_holds_back_what_it_should() {
    let mut bench = Bench::new();
    bench.database.pause(Microseconds::MAX, false);
    assert!(bench.paused("SET k 1") && !bench.paused("GET k") && !bench.paused("MULTI"));
    // Redis asks before it queues.
    assert!(bench.paused("SET k 1") && !bench.paused("GET k") && !bench.paused("EXEC"));
    bench.database.unpause();
    bench.check(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED")]);
    bench.database.pause(Microseconds::MAX, false);
    assert!(bench.paused("EXEC"));
    bench.database.pause(Microseconds::MAX, true);
    assert!(bench.paused("PING") && bench.paused("DISCARD") && bench.paused("CONFIG GET save"));
    assert!(!bench.paused("NOSUCH") && !bench.paused("CLIENT ID") && !bench.paused("RESET"));
    assert!(matches!(bench.execute("QUIT"), (_, Progress::Close)));
}

// Commands that take their time.

#[test]
fn nothing_waits_inside_a_transaction() {
    let mut bench = Bench::new();
    assert!(matches!(
        bench.execute("DEBUG SLEEP 1"),
        (_, Progress::Waits(Wait::Time { milliseconds: 7 }))
    ));
    bench.check(&[("SET k 1", "+OK"), ("MULTI", "+OK")]);
    bench.check(&[("DEBUG SLEEP 1", "+QUEUED"), ("KEYS *", "+QUEUED")]);
    bench.check(&[("EXEC", "*2 +OK *1 $1 k")]);
}

#[test]
fn slices_stay_in_the_database_that_was_selected() {
    let mut bench = Bench::new();
    bench.fill(limits::SLICE_ENTRIES_MAX + 1);
    let (_, outcome) = bench.execute("KCOUNT - +");
    let Progress::Waits(Wait::Others(mut command)) = outcome else {
        panic!("{outcome:?}");
    };
    bench.line("SELECT 1");
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, bench.client.protocol);
    let mut turn = bench.session.turn();
    turn.hold_all();
    while !turn.slice(&mut bench.client, &mut command, &mut reply) {
        assert_eq!((held(&turn), reply.position()), ("own", 0));
    }
    drop(turn);
    assert_eq!(text(&out), format!(":{}", limits::SLICE_ENTRIES_MAX + 1));
}

#[test]
fn writes_are_slowed_and_then_refused_while_a_stalled_reader_holds_memory_back() {
    let mut bench = Bench::with_retired_bytes_max(256 * 1024);
    let mut reader = bench.another();
    bench.check(&[("SET kept v", "+OK"), ("SET gone v", "+OK")]);
    let stalled = reader.session.turn();
    let set = format!("SET key {}", "v".repeat(1000));
    let mut seen = Vec::new();
    for _ in 0..1000 {
        let (reply, outcome) = bench.execute(&set);
        let delay = match outcome {
            Progress::Waits(Wait::Leave { until }) => Some(until - Microseconds(START_US)),
            _ => None,
        };
        seen.push((reply, delay));
    }
    let (put_off, refused) = ((String::new(), Some(Microseconds(1000))), {
        let text = CommandError::RetiredMemory.to_string();
        (format!("-{text}"), None)
    });
    let first = seen.iter().position(|seen| *seen == put_off).unwrap();
    let last = seen.iter().position(|seen| *seen == refused).unwrap();
    assert!(seen[..first].iter().all(|(reply, _)| reply == "+OK"));
    for pair in seen[first..last].chunks_exact(2) {
        assert_eq!((&pair[0], &pair[1].0[..]), (&put_off, "+OK"), "each once");
    }
    assert!(seen[last..].iter().all(|seen| *seen == refused));
    bench.check(&[
        ("GET kept", "$1 v"),
        ("DEL gone", ":1"),
        ("MULTI", "+OK"),
        ("SET kept w", &refused.0),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
    ]);
    drop(stalled);
    bench.check(&[(&set, "+OK"), ("SET gone v", "+OK"), ("DBSIZE", ":3")]);
}

/// Notes the most bytes that the engine has retired and not yet given back.
struct Gauging {
    database: Arc<Database>,
    most: f64,
}

impl Host for Gauging {
    fn execute(
        &mut self,
        _: &mut Turn<'_>,
        _: &mut Client,
        _: HostCommand,
        _: Request<'_>,
        _: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        Err(CommandError::NoHost)
    }

    fn starting(&mut self, _: &Client, _: &'static CommandSpec, _: Request<'_>) {
        let most = &mut self.most;
        self.database.gauges(&mut |gauge| {
            if gauge.name == "retired_bytes" {
                *most = most.max(gauge.value);
            }
        });
    }

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

/// One pin over all of it would keep 16 kB of each command.
#[test]
fn a_long_exec_gives_back_what_it_replaces() {
    for engine in [EngineKind::Masstree, EngineKind::Mercury] {
        let options = Options {
            engine,
            ..Options::default()
        };
        let database = Database::open(options).expect("the options are valid");
        database.close();
        let mut session = database.session().expect("a session is free");
        let mut client = Client::new(1, true);
        let mut host = Gauging {
            database,
            most: 0.0,
        };
        let mut run = |line: &str| {
            let request = RequestBuffer::from_args(words(line));
            let request = request.as_request();
            let mut out = Vec::new();
            let mut reply = Reply::new(&mut out, client.protocol);
            let resolved = command::resolve(request);
            let mut turn = session.turn();
            let outcome = turn.execute(&mut client, resolved, request, &mut reply, &mut host);
            assert!(matches!(outcome, Progress::Done), "{line}: {outcome:?}");
            host.most
        };
        run("SETRANGE k 15999 x");
        run("MULTI");
        for _ in 0..2000 {
            run("SETRANGE k 0 y");
            run("SETRANGE k 0 x");
        }
        let most = run("EXEC");
        assert!(most > 16e3 && most < 16e6, "{engine:?}: {most} bytes");
    }
}
