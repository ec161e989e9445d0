//! A connection without a socket, for tests of commands: lines in, replies out, through a real
//! database, host and stopwatch.

use std::path::Path;
use std::sync::{Arc, Mutex};

use pando_db::{Client, Database, LogEpoch, Progress, Session, Turn};
use pando_protocol::command::resolve;
use pando_protocol::{Reply, RequestBuffer};

use crate::config::Config;
use crate::host::WorkerHost;
use crate::recorder::WorkerRecorder;
use crate::registry::{ClientOrigin, ClientRecord, WireProtocol, WorkerMailbox};
use crate::shared::{Shared, lock};

/// A message to a worker.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) closed: Vec<u64>,
    pub(crate) delivered: Vec<(u64, String)>,
    pub(crate) wakes: usize,
    pub(crate) unblocked: Vec<(u64, u64, bool)>,
}

/// A mailbox that keeps the messages sent to it.
#[derive(Debug, Default)]
pub(crate) struct TestMailbox(pub(crate) Mutex<Mail>);

impl WorkerMailbox for TestMailbox {
    fn close(&self, client: u64) {
        lock(&self.0).closed.push(client);
    }

    fn deliver(&self, client: u64, bytes: &Arc<[u8]>) {
        let line = String::from_utf8_lossy(bytes).into_owned();
        lock(&self.0).delivered.push((client, line));
    }

    fn send(&self, client: u64, bytes: Vec<u8>, _: Arc<()>) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        lock(&self.0).delivered.push((client, text));
    }

    fn durable(&self, _: LogEpoch) {}

    fn ready(&self, client: u64) {
        lock(&self.0).unblocked.push((client, 0, false));
    }

    fn unblock(&self, client: u64, wait: u64, by_error: bool) {
        lock(&self.0).unblocked.push((client, wait, by_error));
    }

    fn wake(&self) {
        lock(&self.0).wakes += 1;
    }
}

/// A server with one worker and one connection, or more by [`Shell::connect`].
pub(crate) struct Shell {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<TestMailbox>,
    pub(crate) client: Client,
    pub(crate) record: Arc<ClientRecord>,
    pub(crate) recorder: WorkerRecorder,
    /// The outcome of the last request.
    pub(crate) outcome: Progress,
    session: Arc<Mutex<Session>>,
}

impl Shell {
    pub(crate) fn new(config: Config) -> Self {
        let config = Config {
            threads: 1,
            durability: pando_db::Durability::None,
            without_log: true,
            ..config
        };
        let options = config.database_options();
        Self::open(config, options)
    }

    /// The same, kept in a directory.
    pub(crate) fn kept_in(directory: &Path) -> Self {
        let config = Config {
            threads: 1,
            data_dir: directory.to_owned(),
            ..Config::default()
        };
        let options = pando_db::Options {
            durability: Some(config.durability_options()),
            ..config.database_options()
        };
        Self::open(config, options)
    }

    fn open(config: Config, options: pando_db::Options) -> Self {
        let database = Database::open(options).unwrap();
        let shared = Shared::new(config, database);
        let mailbox = Arc::new(TestMailbox::default());
        shared.attach_worker(0, Arc::<TestMailbox>::clone(&mailbox));
        let session = Arc::new(Mutex::new(shared.database.session().unwrap()));
        Self::join(shared, mailbox, session)
    }

    fn join(shared: Arc<Shared>, mailbox: Arc<TestMailbox>, session: Arc<Mutex<Session>>) -> Self {
        let origin = ClientOrigin {
            worker: 0,
            descriptor: 9,
            address: format!("127.0.0.1:{}", 50_000 + shared.registry.received()),
            local_address: "127.0.0.1:6379".into(),
            unix_socket: false,
            protocol: WireProtocol::Resp,
        };
        let record = shared
            .registry
            .register(origin, 100, shared.now_ms())
            .unwrap();
        Self {
            client: Client::new(record.id(), !shared.settings.requires_password()),
            recorder: shared.recorder(0),
            session,
            outcome: Progress::Done,
            mailbox,
            record,
            shared,
        }
    }

    /// A second connection to the same server.
    pub(crate) fn connect(&self) -> Self {
        Self::join(
            Arc::clone(&self.shared),
            Arc::clone(&self.mailbox),
            Arc::clone(&self.session),
        )
    }

    /// Sends one request as a batch of its own; returns the raw reply, as text.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let arguments = crate::config::split_line(line.as_bytes());
        self.send(arguments.unwrap_or_else(|| vec![line.as_bytes().to_vec()]))
    }

    /// Like [`Self::ask`], with arguments of any bytes.
    pub(crate) fn send(&mut self, arguments: Vec<Vec<u8>>) -> String {
        let buffer = RequestBuffer::from_args(arguments);
        let request = buffer.as_request();
        let mut out = Vec::new();
        let arrived_ns = self.recorder.begin_batch();
        let mut session = lock(&self.session);
        let mut turn: Turn<'_> = session.turn();
        let mut host = WorkerHost::new(&self.shared, &mut self.recorder, &self.record, arrived_ns);
        let mut reply = Reply::new(&mut out, self.client.protocol);
        self.outcome = turn.execute(
            &mut self.client,
            resolve(request),
            request,
            &mut reply,
            &mut host,
        );
        drop(turn);
        self.recorder.end_batch(&self.shared);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// The reply with its lines joined by blanks, for short expectations.
    pub(crate) fn short(&mut self, line: &str) -> String {
        self.ask(line).trim_end().replace("\r\n", " ")
    }
}
