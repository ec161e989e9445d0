//! A database under the test's own clock, and connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pando_db::{
    Client, Clock, CommandError, Database, EngineKind, Host, Microseconds, Options, Progress,
    Session, Slices, Turn, Wait,
};
use pando_protocol::command::{self, CommandSpec, HostCommand};
use pando_protocol::{Decoded, Decoder, Reply, Request, RequestBuffer, RespVersion};

/// When the clock starts, in milliseconds since the Unix epoch.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// The seed of a test's random operations: the same in every run unless `PANDO_TEST_SEED` holds
/// another. It is printed.
pub(crate) fn seed() -> u64 {
    let chosen = std::env::var("PANDO_TEST_SEED");
    let seed = chosen.map_or(1, |text| text.parse().expect("a number"));
    println!("PANDO_TEST_SEED={seed}");
    seed
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(START_MS * 1000)))
    }

    pub(crate) fn pass_ms(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds * 1000, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Microseconds {
        Microseconds(self.0.load(Ordering::Relaxed))
    }
}

/// Runs a test on every engine that can hold the keyspace.
pub(crate) fn on_every_engine(test: impl Fn(EngineKind)) {
    for engine in EngineKind::ALL {
        println!("engine {}", engine.name());
        test(engine);
    }
}

/// Runs a test on every engine that keeps keys in order.
pub(crate) fn on_every_ordered_engine(test: impl Fn(EngineKind)) {
    on_every_engine(|engine| {
        if engine.is_ordered() {
            test(engine);
        }
    });
}

/// Opens a database whose time and maintenance are the test's.
pub(crate) fn open(engine: EngineKind) -> (Arc<Database>, Arc<TestClock>) {
    let clock = TestClock::new();
    let options = Options {
        engine,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..Options::default()
    };
    let database = Database::open(options).expect("the options are valid");
    database.close();
    (database, clock)
}

/// Tells other threads of a test that it is over, when it is dropped: a panic tells them too.
#[derive(Debug)]
pub(crate) struct Ending<'f>(pub(crate) &'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rounds of maintenance until there is nothing to do.
pub(crate) fn maintain(database: &Arc<Database>) {
    let mut session = database.session().expect("a session is free");
    while session.maintain() {}
}

/// The commands of a host that tests need: RESET, and PAUSE of CLIENT.
struct TestHost;

impl Host for TestHost {
    fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        id: HostCommand,
        _: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        if id != HostCommand::Reset {
            return Err(CommandError::NoHost);
        }
        turn.reset(client);
        reply.simple("RESET");
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

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The reply, without the last line end.
    Reply(String),
    /// The command goes on in slices.
    Slices(Slices),
    /// It was held back until this time, in microseconds.
    Paused(u64),
}

/// A client with a session of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    session: Session,
    client: Client,
}

impl Connection {
    pub(crate) fn new(database: &Arc<Database>) -> Self {
        let session = database.session().expect("a session is free");
        Self {
            session,
            client: Client::new(1, true),
        }
    }

    /// Speaks RESP3 from now on.
    pub(crate) fn speak_resp3(&mut self) {
        self.client.protocol = RespVersion::Resp3;
    }

    /// Keys that the connection watches.
    pub(crate) fn watched_keys(&self) -> usize {
        self.client.watched_keys()
    }

    /// Executes one request in a turn of its own.
    pub(crate) fn send<A: AsRef<[u8]>>(
        &mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Answer {
        let request = RequestBuffer::from_args(arguments);
        let request = request.as_request();
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.client.protocol);
        let resolved = command::resolve(request);
        let mut turn = self.session.turn();
        let outcome = turn.execute(
            &mut self.client,
            resolved,
            request,
            &mut reply,
            &mut TestHost,
        );
        match outcome {
            Progress::Done | Progress::Close => Answer::Reply(text(&out)),
            Progress::Waits(Wait::Others(command)) => Answer::Slices(command),
            Progress::Waits(Wait::Leave { until }) => Answer::Paused(until.0),
            Progress::Waits(
                Wait::Time { .. }
                | Wait::Disk { .. }
                | Wait::Keys(_)
                | Wait::Replicas { .. }
                | Wait::Host(_)
                | Wait::Errand
                | Wait::Reader
                | Wait::Away,
            ) => {
                panic!("no test sends a command that waits")
            }
        }
    }

    /// Runs the next slice of a command; its reply when it is complete.
    pub(crate) fn slice(&mut self, command: &mut Slices) -> Option<String> {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.client.protocol);
        let done = self
            .session
            .turn()
            .slice(&mut self.client, command, &mut reply);
        done.then(|| text(&out))
    }

    /// Executes one request to its end and returns the reply with its line ends as spaces:
    /// `$1 v`, `*2 :1 $-1`, `-ERR syntax error`.
    pub(crate) fn run<A: AsRef<[u8]>>(&mut self, arguments: impl IntoIterator<Item = A>) -> String {
        match self.send(arguments) {
            Answer::Reply(reply) => reply,
            Answer::Slices(mut command) => loop {
                if let Some(reply) = self.slice(&mut command) {
                    break reply;
                }
            },
            Answer::Paused(_) => panic!("the test has not paused the database"),
        }
    }

    /// Executes a command line, split and unquoted as by redis-cli.
    pub(crate) fn line(&mut self, line: &str) -> String {
        self.run(words(line))
    }
}

fn text(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    text.strip_suffix("\r\n")
        .unwrap_or(&text)
        .replace("\r\n", " ")
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
    Request::new(&buffer, &arguments)
        .args_from(0)
        .map(<[u8]>::to_vec)
        .collect()
}
