//! A client of an embedded database, for the tests of commands.
//!
//! A [`Shell`] executes requests through a real [`Database`] on the reference engine, including
//! dispatch, MULTI, gates and slices, under a clock that only the test moves. Expired keys are
//! removed when a command meets them; a test that wants the expirer turns it on.
//!
//! ```text
//! let mut shell = Shell::new();
//! assert_eq!(shell.line("SET k \"a b\""), "+OK");           // split and unquoted as by redis-cli
//! assert_eq!(shell.run(["GET", "k"]), b"$3\r\na b\r\n");    // arguments as they are
//! shell.check(&[("DEL k", ":1"), ("GET k", "$-1")]);        // replies, line ends as spaces
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_engine::{Body, Decision, LogEpoch, NewValue, ValueRef};
use pando_protocol::command::{self, CommandSpec, HostCommand};
use pando_protocol::{Decoded, Decoder, Reply, Request, RequestBuffer, RespVersion};

use crate::clock::{Clock, Microseconds};
use crate::error::CommandError;
use crate::{
    Client, Database, HandLog, Host, OpenError, Options, Progress, Session, Slices, Turn, Wait,
};

/// When a shell's clock starts: 2023-11-14, in milliseconds since the Unix epoch.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// The seed of a test's random operations: the same in every run unless `PANDO_TEST_SEED` gives
/// another. It is printed.
pub(crate) fn seed() -> u64 {
    let chosen = std::env::var("PANDO_TEST_SEED");
    let seed = chosen.map_or(1, |text| text.parse().expect("a number"));
    println!("PANDO_TEST_SEED={seed}");
    seed
}

/// A clock that moves only when told to, or by so much whenever it is read.
#[derive(Debug)]
pub(crate) struct TestClock {
    now: AtomicU64,
    step: AtomicU64,
}

impl TestClock {
    fn at_ms(now: u64) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(now * 1000),
            step: AtomicU64::new(0),
        })
    }
}

impl Clock for TestClock {
    fn now(&self) -> Microseconds {
        let step = self.step.load(Ordering::Relaxed);
        Microseconds(self.now.fetch_add(step, Ordering::Relaxed))
    }
}

/// A host without commands of its own.
pub(crate) struct NoHost;

impl Host for NoHost {
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

/// One connection to a database.
#[derive(Debug)]
pub(crate) struct Shell {
    /// The database, shared with all shells that [`Self::connect`] made from this one.
    pub(crate) database: Arc<Database>,
    clock: Arc<TestClock>,
    pub(crate) session: Session,
    client: Client,
}

impl Shell {
    /// A connection to a new, empty database.
    pub(crate) fn new() -> Self {
        Self::with_options(Options::default())
    }

    /// A connection to a new, empty database with these settings, but a test's clock.
    pub(crate) fn with_options(mut options: Options) -> Self {
        let clock = TestClock::at_ms(START_MS);
        options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let database = Database::open(options).expect("the options are valid");
        database.set_active_expire(false);
        Self::open(database, clock)
    }

    /// The epoch that the last reply, and every earlier one, waits for.
    pub(crate) fn awaits(&self) -> LogEpoch {
        self.client.awaits()
    }

    /// Another connection to the same database.
    pub(crate) fn connect(&self) -> Self {
        Self::open(Arc::clone(&self.database), Arc::clone(&self.clock))
    }

    /// A connection to a new, empty database whose epochs `log` makes durable; they end when the
    /// test says so.
    pub(crate) fn with_log(log: Arc<HandLog>) -> Self {
        let clock = TestClock::at_ms(START_MS);
        let options = Options {
            engine: crate::EngineKind::Reference,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..Options::default()
        };
        let database = Database::open_by_hand(options, log).expect("the options are valid");
        database.set_active_expire(false);
        database.close();
        Self::open(database, clock)
    }

    /// A connection to a database on disk, at this time of its clock; its epochs end when the test
    /// says so.
    pub(crate) fn on_disk(mut options: Options, now_ms: u64) -> Result<Self, OpenError> {
        let clock = TestClock::at_ms(now_ms);
        options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let database = Database::open(options)?;
        database.close();
        Ok(Self::open(database, clock))
    }

    /// The database's state of the connection.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn open(database: Arc<Database>, clock: Arc<TestClock>) -> Self {
        let session = database.session().expect("a session is free");
        let client = Client::new(1, true);
        Self {
            database,
            clock,
            session,
            client,
        }
    }

    /// Switches to this protocol, as after HELLO.
    pub(crate) fn speak(&mut self, version: RespVersion) {
        self.client.protocol = version;
    }

    /// Lets time pass, for all shells of the database.
    pub(crate) fn pass_ms(&self, milliseconds: u64) {
        let passed = milliseconds * 1000;
        self.clock.now.fetch_add(passed, Ordering::Relaxed);
    }

    /// Lets so much time pass whenever the clock is read, from now on.
    pub(crate) fn pass_ms_per_reading(&self, milliseconds: u64) {
        let step = milliseconds * 1000;
        self.clock.step.store(step, Ordering::Relaxed);
    }

    /// A turn of the shell's session, for tests below the commands.
    pub(crate) fn turn(&mut self) -> Turn<'_> {
        self.session.turn()
    }

    /// Stores a string below the commands.
    pub(crate) fn store(&mut self, key: &[u8], string: &[u8]) {
        let write = |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::string(string)));
        let written = self.turn().keyspace(0).update(key, write);
        assert!(matches!(written, Ok(Some(_))));
    }

    /// Executes one request in a turn of its own and returns the encoded reply.
    pub(crate) fn run<A: AsRef<[u8]>>(
        &mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Vec<u8> {
        self.run_counting_slices(arguments).0
    }

    /// Like [`Self::run`]; also returns in how many slices the command ran.
    pub(crate) fn run_counting_slices<A: AsRef<[u8]>>(
        &mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> (Vec<u8>, usize) {
        self.run_between_slices(arguments, |_| {})
    }

    /// Like [`Self::run_counting_slices`], but runs something else before each slice, which gets
    /// the number of earlier slices.
    pub(crate) fn run_between_slices<A: AsRef<[u8]>>(
        &mut self,
        arguments: impl IntoIterator<Item = A>,
        mut between: impl FnMut(usize),
    ) -> (Vec<u8>, usize) {
        let version = self.client.protocol;
        let (mut out, outcome) = self.begin(arguments);
        let mut slices = 0;
        match outcome {
            Progress::Done | Progress::Close => {}
            Progress::Waits(Wait::Others(mut work)) => loop {
                let mut reply = Reply::new(&mut out, version);
                between(slices);
                slices += 1;
                // A turn each, as a server would let others run in between.
                if self
                    .session
                    .turn()
                    .slice(&mut self.client, &mut work, &mut reply)
                {
                    break;
                }
            },
            Progress::Waits(waits) => {
                panic!("a shell does not wait: {waits:?}")
            }
        }
        (out, slices)
    }

    /// Begins a request in a turn of its own; returns the reply so far, and how it continues.
    pub(crate) fn begin<A: AsRef<[u8]>>(
        &mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> (Vec<u8>, Progress) {
        let request = RequestBuffer::from_args(arguments);
        let mut out = Vec::new();
        let outcome = self.begin_with(request.as_request(), &mut out, &mut NoHost);
        (out, outcome)
    }

    /// The same, appended to `out`, with a host.
    pub(crate) fn begin_with(
        &mut self,
        request: Request<'_>,
        out: &mut Vec<u8>,
        host: &mut impl Host,
    ) -> Progress {
        let mut reply = Reply::new(out, self.client.protocol);
        let resolved = command::resolve(request);
        let mut turn = self.session.turn();
        turn.execute(&mut self.client, resolved, request, &mut reply, host)
    }

    /// Runs the next slice of a command; returns whether it was the last one.
    pub(crate) fn slice(&mut self, slices: &mut Slices, out: &mut Vec<u8>) -> bool {
        let mut reply = Reply::new(out, self.client.protocol);
        let mut turn = self.session.turn();
        turn.slice(&mut self.client, slices, &mut reply)
    }

    /// Executes a command line, split and unquoted as redis-cli does it, and returns the reply
    /// with its line ends as spaces: `$1 v`, `*2 :1 $-1`, `-ERR syntax error`.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let reply = self.run(words(line));
        let text = reply.strip_suffix(b"\r\n").expect("a reply ends a line");
        String::from_utf8_lossy(text).replace("\r\n", " ")
    }

    /// Executes command lines and compares each reply, written as [`Self::line`] does it.
    #[track_caller]
    pub(crate) fn check(&mut self, lines: &[(&str, &str)]) {
        for (index, (line, expected)) in lines.iter().enumerate() {
            assert_eq!(self.line(line), *expected, "line {index}: {line}");
        }
    }
}

/// The words of a command line.
pub(crate) fn words(line: &str) -> Vec<Vec<u8>> {
    let mut buffer = [line.as_bytes(), b"\n"].concat();
    let mut arguments = Vec::new();
    let decoded = Decoder::default().next(&mut buffer, 0, &mut arguments);
    assert!(
        matches!(decoded, Ok(Decoded::Request { .. })),
        "{line}: {decoded:?}"
    );
    let request = Request::new(&buffer, &arguments);
    request.args_from(0).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_shell_speaks_to_a_database() {
    let mut shell = Shell::new();
    shell.check(&[
        ("PING", "+PONG"),
        ("echo \"a b\\x00\"", "$4 a b\0"),
        ("DBSIZE", ":0"),
        ("TIME", "*2 $10 1700000000 $1 0"),
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("EXEC", "*1 +PONG"),
        (
            "CLIENT ID",
            "-ERR this command needs a server; the database is embedded",
        ),
    ]);
    let mut other = shell.connect();
    shell.pass_ms(1500);
    assert_eq!(other.line("TIME"), "*2 $10 1700000001 $6 500000");
    other.check(&[("WATCH k", "+OK"), ("MULTI", "+OK")]);
    shell.store(b"k", b"v");
    other.speak(RespVersion::Resp3);
    other.check(&[("EXEC", "_"), ("DBSIZE", ":1")]);
}

/// Executes a line; `None` when it waits.
pub(crate) fn try_line(shell: &mut Shell, line: &str) -> Option<String> {
    let (reply, progress) = shell.begin(words(line));
    match progress {
        Progress::Done => Some(
            String::from_utf8_lossy(&reply)
                .trim_end()
                .replace("\r\n", " "),
        ),
        Progress::Waits(Wait::Keys(_)) => {
            assert!(reply.is_empty(), "it has done nothing");
            None
        }
        other => panic!("{other:?}"),
    }
}

/// A shell whose client has this number.
pub(crate) fn client(shell: &Shell, id: u64) -> Shell {
    let mut other = shell.connect();
    other.client().id = id;
    other
}
