//! One side of the comparison: a server process and the connections to it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pando_protocol::resp::{Value, ValueDecoder};

/// How long a server may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server, ended when dropped.
pub(super) struct Server {
    process: Child,
    pub(super) port: u16,
}

impl Server {
    /// Debian's redis-server, or `None` where it is not installed.
    pub(super) fn redis() -> Option<Self> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ]);
        command.args([
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            "--loglevel",
            "warning",
        ]);
        Self::start(command, port)
    }

    /// This server, with `engine`.
    pub(super) fn pando(engine: &str) -> Self {
        let port = free_port();
        let binary = std::env::var("PANDO_DIFFERENTIAL_BINARY");
        let binary = binary.unwrap_or_else(|_| env!("CARGO_BIN_EXE_pando").into());
        let mut command = Command::new(binary);
        command.args([
            "--port",
            &port.to_string(),
            "--engine",
            engine,
            "--threads",
            "2",
            "--durability",
            "none",
        ]);
        Self::start(command, port).expect("the binary under test starts")
    }

    fn start(mut command: Command, port: u16) -> Option<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Self {
            process: command.spawn().ok()?,
            port,
        };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = server.process.try_wait().expect("the child can be asked");
            assert!(ended.is_none(), "the server ended at start: {ended:?}");
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::yield_now();
        }
        Some(server)
    }

    pub(super) fn connect(&self) -> Connection {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("connects");
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
        // Already ended is as good as ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound socket").port()
}

/// A connection that pipelines.
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    decoder: ValueDecoder,
}

impl Connection {
    pub(super) fn send(&mut self, encoded: &[u8]) {
        self.stream.write_all(encoded).expect("the server reads");
    }

    /// The next reply; an error when none comes in time.
    pub(super) fn receive(&mut self) -> io::Result<Value> {
        loop {
            let mut rest = &self.input[self.start..];
            let value = self.decoder.next(&mut rest).expect("well-formed replies");
            self.start = self.input.len() - rest.len();
            if let Some(value) = value {
                return Ok(value);
            }
            self.input.drain(..self.start);
            self.start = 0;
            let mut buffer = vec![0; 64 * 1024];
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    /// One command and its reply.
    pub(super) fn call(&mut self, arguments: &[&[u8]]) -> Value {
        self.send(&encode(arguments));
        self.receive().expect("a reply in time")
    }
}

/// A request as clients send it.
pub(super) fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
    out
}
