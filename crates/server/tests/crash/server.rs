//! The real server, killed without warning, and connections that end when it does.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pando_protocol::resp::{Value, ValueDecoder};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A folder of one test, removed at its end.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pando-crash-{}-{number}", std::process::id());
        // A real disk if one is named, since a temporary folder may lie in memory.
        let base = std::env::var_os("PANDO_CRASH_DIR").map(PathBuf::from);
        let path = base.unwrap_or_else(std::env::temp_dir).join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a connection is promised of a write that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It is on disk.
    Sync,
    /// It is on disk 200 ms later.
    Interval,
}

impl Promise {
    pub(crate) fn mode(self) -> &'static str {
        match self {
            Self::Sync => "SYNC",
            Self::Interval => "INTERVAL",
        }
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts a server on `data` with further `flags` and waits until it listens.
    pub(crate) fn start(data: &Path, flags: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            "0",
            "--loglevel",
            "warning",
        ]);
        command.arg("--data-dir").arg(data).args(flags);
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
            child,
            address: address.expect("the server says where it listens"),
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        Connection {
            stream,
            decoder: ValueDecoder::new(),
            bytes: Vec::new(),
            read: 0,
        }
    }

    /// Ends the process at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("a status");
    }

    /// Asks the server to stop, and waits until it has.
    pub(crate) fn stop(mut self) {
        let mut connection = self.connect();
        // The connection closes without a reply.
        let mut bytes = Vec::new();
        Connection::encode(&mut bytes, &["SHUTDOWN"]);
        let _ = connection.send(&bytes);
        let status = self.child.wait().expect("a status");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, pipelined; every call fails when the server has gone.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    decoder: ValueDecoder,
    bytes: Vec<u8>,
    read: usize,
}

impl Connection {
    /// Appends a request.
    pub(crate) fn encode<A: AsRef<[u8]>>(bytes: &mut Vec<u8>, arguments: &[A]) {
        bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
        for argument in arguments {
            let argument = argument.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next reply; an error reply is a broken test.
    pub(crate) fn reply(&mut self) -> io::Result<Value> {
        let value = self.reply_or_error()?;
        assert!(!is_error(&value), "{value:?}");
        Ok(value)
    }

    /// The next reply, whatever it is.
    pub(crate) fn reply_or_error(&mut self) -> io::Result<Value> {
        loop {
            let mut rest = &self.bytes[self.read..];
            let before = rest.len();
            let value = self.decoder.next(&mut rest).expect("a reply");
            self.read += before - rest.len();
            if let Some(value) = value {
                return Ok(value);
            }
            self.bytes.drain(..self.read);
            self.read = 0;
            let mut chunk = [0; 16 * 1024];
            let count = match self.stream.read(&mut chunk) {
                // The test was stopped for a while, or frozen.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.bytes.extend_from_slice(&chunk[..count]);
        }
    }

    /// One request and its reply, from a server that is there.
    pub(crate) fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Value {
        let mut bytes = Vec::new();
        Self::encode(&mut bytes, arguments);
        self.send(&bytes).expect("the server takes the request");
        self.reply().expect("a reply")
    }

    /// Chooses when requests are acknowledged.
    pub(crate) fn choose(&mut self, promise: Promise) -> io::Result<()> {
        let mut bytes = Vec::new();
        Self::encode(&mut bytes, &["CLIENT", "DURABILITY", promise.mode()]);
        self.send(&bytes)?;
        self.reply().map(drop)
    }
}

fn is_error(value: &Value) -> bool {
    match value {
        Value::Error(_) => true,
        Value::Array(elements) => elements.iter().any(is_error),
        _ => false,
    }
}
