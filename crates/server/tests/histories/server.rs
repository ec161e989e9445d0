//! A server in a process of its own, and connections that take requests as lines of words.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pando_db::{Database, Durability, EngineKind, Options};
use pando_protocol::resp::{Value, ValueDecoder};

/// How long a reply may take before a test gives up.
const PATIENCE: Duration = Duration::from_mins(1);

/// Workers; connections are spread over them.
const WORKERS: &str = "3";

/// A running server; ended when dropped.
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
    engine: EngineKind,
}

/// Runs `test` on a new server of each engine, and on one whose engine has requests repeated.
pub(crate) fn with_every_engine(test: impl Fn(&Server)) {
    for engine in EngineKind::ALL {
        println!("engine {}", engine.name());
        test(&Server::start(engine));
    }
    println!("requests are repeated");
    test(&Server::repeating());
}

/// Where a server runs.
enum Process {
    Child(Child),
    /// In the test's own, with what no flag asks for.
    Own {
        _server: pando_server::Server,
    },
}

impl Server {
    /// Starts a server on a free port of the loopback and waits until it listens.
    pub(crate) fn start(engine: EngineKind) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(["--bind", "127.0.0.1", "--port", "0"]);
        command.args(["--threads", WORKERS, "--loglevel", "warning"]);
        command.args(["--engine", engine.name(), "--durability", "none"]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("a pipe");
        let address = BufReader::new(stdout).lines().find_map(|line| {
            let line = line.expect("text");
            let words = line.strip_prefix("listening ")?;
            let address = words
                .split(' ')
                .find_map(|word| word.strip_prefix("tcp="))?;
            Some(address.parse().expect("an address"))
        });
        Self {
            process: Process::Child(child),
            engine,
            address: address.expect("the server says where it listens"),
        }
    }

    /// A server whose engine says "not here", and meets conflicts, at random: requests are
    /// repeated, and nothing tells of it (RR1 effects-once of `pando_db`).
    fn repeating() -> Self {
        let config = pando_server::Config {
            port: Some(0),
            threads: WORKERS.parse().expect("a number"),
            durability: Durability::None,
            ..pando_server::Config::default()
        };
        let engine = EngineKind::Reference;
        let server = pando_server::Server::start_with(config, None, |options| {
            Database::open(Options {
                engine,
                absences: Some(1),
                ..options
            })
        });
        let server = server.expect("the server starts");
        Self {
            address: server.shared().listening().tcp[0],
            process: Process::Own { _server: server },
            engine,
        }
    }

    pub(crate) fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Whether keys are kept in order.
    pub(crate) fn is_ordered(&self) -> bool {
        self.engine.is_ordered()
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        Connection {
            stream,
            input: Vec::new(),
            start: 0,
            decoder: ValueDecoder::new(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Process::Child(child) = &mut self.process {
            // Both fail only when the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection; its requests are words parted by spaces, its replies RESP2.
pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    decoder: ValueDecoder,
}

impl Connection {
    /// Sends requests together.
    pub(crate) fn send<L: AsRef<str>>(&mut self, lines: &[L]) {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<_> = line.as_ref().split(' ').collect();
            out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        self.stream.write_all(&out).expect("the server reads");
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> Value {
        loop {
            let mut rest = &self.input[self.start..];
            let value = self.decoder.next(&mut rest).expect("well-formed replies");
            self.start = self.input.len() - rest.len();
            if let Some(value) = value {
                return value;
            }
            self.input.drain(..self.start);
            self.start = 0;
            let mut buffer = [0; 16 * 1024];
            let count = match self.stream.read(&mut buffer) {
                // The test was stopped for a while, or frozen.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("a reply in time"),
            };
            assert!(count > 0, "the server closed the connection");
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    /// One request and its reply.
    pub(crate) fn call(&mut self, line: impl AsRef<str>) -> Value {
        self.send(&[line]);
        self.receive()
    }

    /// One request, which is answered `+OK`.
    #[track_caller]
    pub(crate) fn ok(&mut self, line: impl AsRef<str>) {
        let reply = self.call(&line);
        assert!(is_status(&reply, "OK"), "{}: {reply:?}", line.as_ref());
    }

    /// A transaction of these requests, sent at once: the replies inside, or `None` if a watched
    /// key had changed.
    pub(crate) fn transaction(&mut self, lines: &[String]) -> Option<Vec<Value>> {
        let mut requests = vec!["MULTI"];
        requests.extend(lines.iter().map(String::as_str));
        requests.push("EXEC");
        self.send(&requests);
        let begun = self.receive();
        assert!(is_status(&begun, "OK"), "{begun:?}");
        for line in lines {
            let queued = self.receive();
            assert!(is_status(&queued, "QUEUED"), "{line}: {queued:?}");
        }
        match self.receive() {
            Value::NullArray => None,
            reply => Some(elements(reply)),
        }
    }
}

pub(crate) fn is_status(reply: &Value, text: &str) -> bool {
    matches!(reply, Value::Simple(status) if status == text.as_bytes())
}

#[track_caller]
pub(crate) fn integer(reply: &Value) -> i64 {
    match reply {
        Value::Integer(integer) => *integer,
        other => panic!("expected an integer, got {other:?}"),
    }
}

/// A bulk string, or `None` for nothing.
#[track_caller]
pub(crate) fn text(reply: Value) -> Option<String> {
    match reply {
        Value::Bulk(bytes) => Some(String::from_utf8(bytes).expect("text")),
        Value::NullBulk => None,
        other => panic!("expected a bulk string, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn elements(reply: Value) -> Vec<Value> {
    match reply {
        Value::Array(elements) => elements,
        other => panic!("expected an array, got {other:?}"),
    }
}

/// An array of bulk strings.
#[track_caller]
pub(crate) fn texts(reply: Value) -> Vec<Option<String>> {
    elements(reply).into_iter().map(text).collect()
}
