//! A real server in a process of its own, and a client that sends and expects bytes.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A server that reads nothing for this long has stopped reading.
const STUCK: Duration = Duration::from_millis(500);

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_pando");

/// The seed of a test's random requests: the same in every run unless `PANDO_TEST_SEED` holds
/// another. It is printed.
pub(crate) fn seed() -> u64 {
    let chosen = std::env::var("PANDO_TEST_SEED");
    let seed = chosen.map_or(1, |text| text.parse().expect("a number"));
    println!("PANDO_TEST_SEED={seed}");
    seed
}

/// A folder of one test, removed at its end.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pando-serving-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pool of `cdds` in shared memory, which goes with its guard.
#[derive(Debug)]
pub(crate) struct Pool(PathBuf);

impl Pool {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("pando-serving-{}-{name}", std::process::id());
        Self(PathBuf::from("/dev/shm").join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A server on it, `sync`, so that whatever was answered has lasted.
    pub(crate) fn serve(&self, more: &[&str]) -> TestServer {
        let file = self.0.to_str().expect("text");
        let mut flags = vec!["--engine", "cdds", "--pmem", file];
        for default in [["--pmem-size", "64mb"], ["--durability", "sync"]] {
            if !more.contains(&default[0]) {
                flags.extend(default);
            }
        }
        TestServer::start(&[&flags, more].concat())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct TestServer {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) unix_socket: Option<PathBuf>,
    /// For memcached clients.
    pub(crate) memcached: Option<SocketAddr>,
    /// The same over UDP, for each worker.
    pub(crate) memcached_udp: Vec<SocketAddr>,
    pub(crate) banner: String,
}

impl TestServer {
    /// Starts a server on a free port of the loopback, with two workers unless `flags` say
    /// otherwise, and waits until it listens.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        for default in [
            ["--bind", "127.0.0.1"],
            ["--threads", "2"],
            ["--loglevel", "warning"],
            // A test that needs durability says where.
            ["--durability", "none"],
        ] {
            if !flags.contains(&default[0]) {
                command.args(default);
            }
        }
        Self::spawn(command.args(["--port", "0"]).args(flags))
    }

    /// Starts a command that runs a server, and waits until it listens.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("a pipe");
        let mut banner = String::new();
        let mut last = String::new();
        let mut lines = BufReader::new(stdout);
        while !last.starts_with("listening") {
            last.clear();
            if lines.read_line(&mut last).expect("text") == 0 {
                let status = child.wait().expect("a status");
                panic!("the server ended before it listened, {status}: {banner}");
            }
            banner.push_str(&last);
        }
        let value = |kind: &str| {
            let mut words = last.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(kind));
            found.map(str::to_owned)
        };
        // The only one may be for memcached clients.
        let address = value("tcp=")
            .or_else(|| value("memcached="))
            .expect("a TCP address")
            .parse()
            .expect("an address");
        let unix_socket = value("unix=").map(PathBuf::from);
        let memcached_udp = last
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("memcached-udp="))
            .map(|address| address.parse().expect("an address"))
            .collect();
        let memcached = value("memcached=").map(|address| address.parse().expect("an address"));
        Self {
            child,
            address,
            unix_socket,
            memcached,
            memcached_udp,
            banner,
        }
    }

    /// A raw connection.
    pub(crate) fn connect(&self) -> Wire {
        Wire::new(TcpStream::connect(self.address).expect("a connection"))
    }

    /// A raw connection of a memcached client.
    pub(crate) fn connect_memcached(&self) -> Wire {
        let address = self.memcached.expect("--memcached-port was given");
        Wire::new(TcpStream::connect(address).expect("a connection"))
    }

    /// A client of the `redis` crate, for RESP3 when asked.
    pub(crate) fn client(&self) -> redis::Client {
        redis::Client::open(format!("redis://{}/", self.address)).unwrap()
    }

    /// A connection of the `redis` crate.
    pub(crate) fn connection(&self) -> redis::Connection {
        self.client().get_connection().unwrap()
    }

    /// The server's stderr, if it is piped.
    pub(crate) fn take_stderr(&mut self) -> std::process::ChildStderr {
        self.child.stderr.take().expect("a pipe")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    /// Waits for the server's end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        wait_for_exit(&mut self.child)
    }

    /// Waits until something that a client can see is so, within the tests' patience.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "in vain: {what}");
            std::thread::yield_now();
        }
    }

    /// Bytes of memory that the process occupies by the kernel's account, its program's own pages
    /// left out: those come in as code runs for the first time.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .unwrap();
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        kib * 1024
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Both fail only when the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a process, within the tests' patience.
pub(crate) fn wait_for_exit(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a status") {
            return status;
        }
        assert!(Instant::now() < deadline, "the process does not end");
        std::thread::yield_now();
    }
}

/// What a server that ends by itself said, and how it ended.
pub(crate) fn run_to_end(flags: &[&str]) -> (ExitStatus, String) {
    run_command_to_end(Command::new(BINARY).args(flags))
}

/// As [`run_to_end`], for any command.
pub(crate) fn run_command_to_end(command: &mut Command) -> (ExitStatus, String) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status, text)
}

/// Encodes a request as an array of bulk strings.
pub(crate) fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection as bytes.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .write_all(bytes.as_ref())
            .expect("the server takes the bytes");
    }

    /// The same connection, for another thread.
    pub(crate) fn clone_stream(&self) -> Self {
        Self::new(self.stream.try_clone().unwrap())
    }

    /// Sends a request and returns its reply, a bulk string.
    pub(crate) fn ask_any(&mut self, arguments: &[&str]) -> String {
        let arguments: Vec<&[u8]> = arguments
            .iter()
            .map(|argument| argument.as_bytes())
            .collect();
        self.send(request(&arguments));
        let header = self.line();
        let len: usize = header
            .strip_prefix('$')
            .expect("a bulk string")
            .parse()
            .unwrap();
        let mut reply = vec![0; len + 2];
        self.stream.read_exact(&mut reply).expect("the rest");
        reply.truncate(len);
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Sends bytes to a server that may close the connection before it has read them all.
    pub(crate) fn send_some(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Tells the server that nothing more is sent.
    pub(crate) fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends as much of `bytes`, over and over, as the server takes without being read from;
    /// returns how many bytes it took.
    pub(crate) fn send_until_stuck(&mut self, bytes: &[u8], bytes_max: usize) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let mut stuck_since = None;
        while sent < bytes_max {
            match self.stream.write(&bytes[sent % bytes.len()..]) {
                Ok(count) => {
                    sent += count;
                    stuck_since = None;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let since = *stuck_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > STUCK {
                        break;
                    }
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error} after {sent} bytes"),
            }
        }
        self.stream.set_nonblocking(false).unwrap();
        sent
    }

    /// Expects exactly these bytes next.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        let mut filled = 0;
        let mut failure = None;
        while filled < got.len() {
            match self.stream.read(&mut got[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                // The test was stopped for a while, or frozen.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        got.truncate(filled);
        if got != expected {
            let same = got
                .iter()
                .zip(expected)
                .take_while(|(got, expected)| got == expected);
            let at = same.count();
            let shown = |bytes: &[u8]| {
                let end = bytes.len().min(at + 200);
                String::from_utf8_lossy(&bytes[at.saturating_sub(50)..end]).into_owned()
            };
            let (got, expected) = (shown(&got), shown(expected));
            panic!("at byte {at}: got {got:?}, expected {expected:?} ({failure:?})");
        }
    }

    /// Whether something has come that was not read.
    pub(crate) fn has_input(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }

    /// Sends a request and expects its reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, arguments: &[&str], expected: &str) {
        let arguments: Vec<&[u8]> = arguments
            .iter()
            .map(|argument| argument.as_bytes())
            .collect();
        self.send(request(&arguments));
        self.expect(expected);
    }

    /// Reads one line, its end taken away.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.stream.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Expects the end of the connection, with nothing before it.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let mut byte = [0];
        match self.stream.read_exact(&mut byte) {
            Ok(()) => panic!("got {:?}, expected the end", char::from(byte[0])),
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ),
                "{error}"
            ),
        }
    }

    /// Everything that comes until the connection ends, however it does.
    pub(crate) fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Tells the server that nothing more is sent, and throws away what it still sends.
    pub(crate) fn read_to_end(mut self) {
        // A server that has closed its end already has perhaps reset the connection.
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
    }

    /// Asks for a pong: the server is alive, and no other reply came before.
    #[track_caller]
    pub(crate) fn expect_served(&mut self) {
        self.ask(&["PING"], "+PONG\r\n");
    }
}

/// Connects to a Unix socket and asks for a pong.
#[track_caller]
pub(crate) fn ping_unix(path: &Path) {
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut pong = [0; 7];
    stream.read_exact(&mut pong).unwrap();
    assert_eq!(&pong, b"+PONG\r\n");
}
