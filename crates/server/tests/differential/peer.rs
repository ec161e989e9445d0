//! One side of the comparison: a server process and the connections to it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use pando_protocol::resp::{Value, ValueDecoder};

pub(super) use super::server::Server;

impl Server {
    /// Debian's redis-server, or `None` where it is not installed.
    pub(super) fn redis() -> Option<Self> {
        Self::start(|port| {
            let mut command = Command::new("redis-server");
            command.args(["--port", port, "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--appendonly", "no", "--daemonize", "no"]);
            command.args([
                "--loglevel",
                "warning",
                "--enable-protected-configs",
                "local",
            ]);
            command
        })
    }

    /// This server, with `engine`.
    pub(super) fn pando(engine: &str) -> Self {
        let binary = std::env::var("PANDO_DIFFERENTIAL_BINARY");
        let binary = binary.unwrap_or_else(|_| env!("CARGO_BIN_EXE_pando").into());
        let server = Self::start(|port| {
            let mut command = Command::new(&binary);
            command.args(["--port", port, "--engine", engine, "--threads", "2"]);
            command.args(["--durability", "none"]);
            command
        });
        server.expect("the binary under test starts")
    }

    pub(super) fn connect(&self) -> Connection {
        Connection {
            stream: self.stream(),
            input: Vec::new(),
            start: 0,
            decoder: ValueDecoder::new(),
        }
    }
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
            let count = match self.stream.read(&mut buffer) {
                // The test was stopped for a while, or frozen.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
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
