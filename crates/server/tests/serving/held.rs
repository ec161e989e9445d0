//! Replies that wait for the disk, which is a test here: it says when an epoch is on it.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pando_db::{
    Clock, Database, Durability, DurabilityOptions, HandLog, LogEpoch, Microseconds, SimulatedDisk,
};
use pando_server::{Config, Server};

use crate::datagrams::Datagrams;
use crate::harness::{PATIENCE, Wire, request};

/// Tells another thread that this one is over, be it by a panic.
struct Ending<'f>(&'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server with one worker in this process, whose connections begin with `sync`.
struct HeldServer {
    log: Arc<HandLog>,
    server: Option<Server>,
}

impl HeldServer {
    fn start(change: impl FnOnce(&mut Config)) -> Self {
        let log = Arc::new(HandLog::default());
        let mut config = Config {
            port: Some(0),
            threads: 1,
            ..Config::default()
        };
        change(&mut config);
        log.set_open_writes();
        let epoch_log = Arc::clone(&log);
        let server = Server::start_with(config, None, |options| {
            Database::open_by_hand(options, epoch_log)
        });
        Self {
            log,
            server: Some(server.expect("the server starts")),
        }
    }

    fn connect(&self) -> Wire {
        let shared = self.server.as_ref().expect("it runs").shared();
        let address = shared.listening().tcp[0];
        Wire::new(TcpStream::connect(address).expect("a connection"))
    }

    /// A connection with replies that wait for the disk.
    fn connect_sync(&self) -> Wire {
        let mut wire = self.connect();
        wire.ask(&["CLIENT", "DURABILITY", "SYNC"], "+OK\r\n");
        wire
    }

    /// Everything that was executed before is on disk.
    fn sync(&self) {
        let before = self.log.closed();
        self.wait_until("the epoch ends", || self.log.closed() > before);
        self.log.sync();
    }

    #[track_caller]
    fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "in vain: {what}");
            std::thread::yield_now();
        }
    }

    /// Nothing more comes, now that the worker has gone through turns since `wire` has sent.
    #[track_caller]
    fn expect_nothing(&self, wire: &Wire) {
        let mut other = self.connect();
        for _ in 0..3 {
            other.expect_served();
        }
        assert!(!wire.has_input(), "a reply did not wait for the disk");
    }

    /// What CLIENT LIST says of the flags of a client.
    fn flags(&self, id: &str) -> String {
        let list = self.connect().ask_any(&["CLIENT", "LIST", "ID", id]);
        let flags = list
            .split(' ')
            .find_map(|field| field.strip_prefix("flags="));
        flags.expect("flags").to_owned()
    }
}

impl Drop for HeldServer {
    fn drop(&mut self) {
        // What waits is let go, so that the server need not wait for it.
        self.log.sync_for_ever();
        drop(self.server.take());
    }
}

#[test]
fn a_write_is_acknowledged_when_it_is_on_disk() {
    let server = HeldServer::start(|_| {});
    let mut sync = server.connect_sync();
    let mut other = server.connect();
    sync.send("SET k v\r\nPING\r\nGET k\r\n");
    server.wait_until("the worker asks for the disk", || {
        server.log.wanted() > LogEpoch(0)
    });
    server.expect_nothing(&sync);
    // Who does not wait sees the value, and who waits and sees it waits too.
    other.ask(&["GET", "k"], "$1\r\nv\r\n");
    let mut reader = server.connect_sync();
    reader.send("PING\r\nGET k\r\n");
    reader.expect("+PONG\r\n");
    server.expect_nothing(&reader);
    server.sync();
    sync.expect("+OK\r\n+PONG\r\n$1\r\nv\r\n");
    reader.expect("$1\r\nv\r\n");
    // What is on disk is not waited for again.
    sync.ask(&["GET", "k"], "$1\r\nv\r\n");
    reader.send("DEL k\r\n");
    server.expect_nothing(&reader);
    sync.send("GET k\r\n");
    server.expect_nothing(&sync);
    server.sync();
    reader.expect(":1\r\n");
    sync.expect("$-1\r\n");
}

#[test]
fn replies_are_let_go_in_order_as_epochs_come_to_disk() {
    let server = HeldServer::start(|_| {});
    let mut wire = server.connect_sync();
    let mut expected = Vec::new();
    for round in 0..5 {
        wire.send(format!("SET k{round} v\r\nECHO {round}\r\n"));
        expected.push(format!("+OK\r\n$1\r\n{round}\r\n"));
        server.expect_nothing(&wire);
        let closed = server.log.closed();
        server.wait_until("an epoch ends", || server.log.closed() > closed);
    }
    server.sync();
    wire.expect(expected.concat());
    // A long command is waited for like any other.
    wire.send("SET k0 w\r\nKEYS k0\r\n");
    server.expect_nothing(&wire);
    server.sync();
    wire.expect("+OK\r\n*1\r\n$2\r\nk0\r\n");
}

/// The bound of the output holds: the server stops executing, and goes on when the disk does.
#[test]
fn a_flood_that_waits_is_bounded() {
    let server = HeldServer::start(|_| {});
    let mut wire = server.connect_sync();
    let line = request(&[b"SET", b"k", b"v"]);
    let count = 200_000;
    let mut sender = wire.clone_stream();
    let flood = std::thread::spawn(move || sender.send(line.repeat(count)));
    let mut admin = server.connect();
    let mut held = || {
        let text = admin.ask_any(&["INFO", "clients"]);
        let field = "client_recent_max_output_buffer:";
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.expect("the field").parse::<usize>().expect("a number")
    };
    server.wait_until("the output is full", || {
        held() >= pando_server::limits::OUTPUT_PAUSE_BYTES
    });
    server.expect_nothing(&wire);
    let batch_bytes = 64 * 1024;
    assert!(held() <= pando_server::limits::OUTPUT_PAUSE_BYTES + batch_bytes);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                server.sync();
            }
        });
        let _ending = Ending(&over);
        wire.expect("+OK\r\n".repeat(count));
    });
    flood.join().expect("everything was sent");
}

#[test]
fn who_waits_for_the_disk_is_shown_and_can_be_killed() {
    let server = HeldServer::start(|_| {});
    let mut wire = server.connect_sync();
    wire.send("CLIENT ID\r\n");
    let id = wire.line().trim_start_matches(':').to_owned();
    assert_eq!(server.flags(&id), "N");
    wire.send("SET k v\r\n");
    server.wait_until("it waits", || server.flags(&id) == "b");
    // The disk may take longer than a client may be idle. The limit is on for that wait only, and
    // not too short: this test may be slow, too.
    let set_timeout = |seconds: u32| {
        server.wait_until("the timeout is set", || {
            let mut admin = server.connect();
            admin.send_some(format!("CONFIG SET timeout {seconds}\r\nQUIT\r\n"));
            admin.rest() == b"+OK\r\n+OK\r\n"
        });
    };
    set_timeout(2);
    let since = Instant::now();
    server.wait_until("its idle time is over", || {
        since.elapsed() > Duration::from_millis(3500)
    });
    set_timeout(0);
    assert_eq!(server.flags(&id), "b");
    server.sync();
    wire.expect("+OK\r\n");
    wire.send("SET k w\r\n");
    server.wait_until("it waits again", || server.flags(&id) == "b");
    server
        .connect()
        .ask(&["CLIENT", "KILL", "ID", &id], ":1\r\n");
    wire.expect_closed();
    let mut next = server.connect_sync();
    next.send("SET k x\r\n");
    server.expect_nothing(&next);
    server.sync();
    next.expect("+OK\r\n");
}

/// A clock that stands still until the test moves it.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Microseconds {
        Microseconds(self.0.load(Ordering::SeqCst))
    }
}

/// AK6 late-disk-waits: what a crash takes of `interval` is bounded, whatever the disk does.
#[test]
fn replies_of_interval_wait_while_the_disk_stands_still() {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(HandClock::default()));
    let config = Config {
        port: Some(0),
        threads: 1,
        memcached_port: Some(0),
        memcached_udp_port: Some(0),
        ..Config::default()
    };
    let server = Server::start_with(config, None, |options| {
        Database::open(pando_db::Options {
            clock: Arc::<HandClock>::clone(&clock),
            durability: Some(DurabilityOptions {
                disk: Arc::new(disk.clone()),
                segment_bytes: 1024 * 1024,
                ..DurabilityOptions::new("/data")
            }),
            ..options
        })
    });
    let server = server.expect("the server starts");
    let shared = Arc::clone(server.shared());
    let database = &shared.database;
    // Replies wait for no room.
    while database.log_statistics().expect("a log").free_files == 0 {
        std::thread::yield_now();
    }
    let listening = shared.listening();
    let connect = || Wire::new(TcpStream::connect(listening.tcp[0]).expect("a connection"));
    let (mut wire, mut none) = (connect(), connect());
    none.ask(&["CLIENT", "DURABILITY", "NONE"], "+OK\r\n");
    let mut datagrams = Datagrams::connect(listening.memcached_udp[0]);
    disk.stalls().permit("log-0", Some(0));
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    // From here on the worker does not write itself.
    while !disk.stalls().holds_a_write() {
        std::thread::yield_now();
    }
    clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    // Reads go on, also of a client that has written; so do writes without a promise.
    wire.ask(&["GET", "k"], "$1\r\nv\r\n");
    none.ask(&["SET", "n", "v"], "+OK\r\n");
    wire.send("SET k w\r\nPING\r\n");
    let stored = datagrams.request(b"set u 0 0 1\r\nv\r\n");
    for _ in 0..3 {
        none.expect_served();
    }
    none.ask(&["GET", "k"], "$1\r\nw\r\n");
    assert!(!wire.has_input() && !datagrams.has_input(), "at once");
    disk.stalls().permit("log-0", None);
    wire.expect("+OK\r\n+PONG\r\n");
    assert_eq!(datagrams.reply(stored), "STORED|");
    drop(server);
}

/// Another worker may have had the disk written while this one gathers a group.
#[test]
fn a_worker_whose_group_is_on_disk_already_sleeps() {
    let server = HeldServer::start(|_| {});
    let mut wire = server.connect_sync();
    // Somebody else could join the group.
    let mut other = server.connect();
    other.expect_served();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    // So quick that the worker does not sleep while it gathers.
    let write_ns = pando_server::limits::SLEEPING_WRITE_NS - 1;
    server.log.set_write_ns(write_ns);
    // The worker asks before it opens a group: it says which thread it is, and waits.
    server.log.on_write_ns(move || {
        let thread = std::fs::read_link("/proc/thread-self").expect("the system tells");
        begun.send(thread).expect("the test waits");
        goes_on.recv().expect("the test lets it go on");
    });
    wire.send("SET k v\r\n");
    let thread = has_begun.recv_timeout(PATIENCE);
    let thread = thread.expect("the worker looks what a write takes");
    server.sync();
    go_on.send(()).expect("the worker waits");
    wire.expect("+OK\r\n");
    let stat = std::path::Path::new("/proc").join(thread).join("stat");
    server.wait_until("the worker sleeps", || {
        let text = std::fs::read_to_string(&stat).expect("the worker lives");
        let (_, state) = text.rsplit_once(") ").expect("a name and a state");
        state.starts_with('S')
    });
}

#[test]
fn the_last_replies_wait_too() {
    let server = HeldServer::start(|_| {});
    let mut quits = server.connect_sync();
    quits.send("SET a 1\r\nQUIT\r\n");
    let mut ends = server.connect_sync();
    ends.send("SET b 1\r\n");
    ends.end();
    let mut breaks = server.connect_sync();
    breaks.send("SET c 1\r\n*x\r\n");
    let mut silent = server.connect_sync();
    silent.send("CLIENT REPLY OFF\r\nSET d 1\r\nCLIENT REPLY ON\r\n");
    for wire in [&quits, &ends, &breaks, &silent] {
        server.expect_nothing(wire);
    }
    server.sync();
    quits.expect("+OK\r\n+OK\r\n");
    quits.expect_closed();
    ends.expect("+OK\r\n");
    ends.expect_closed();
    breaks.expect("+OK\r\n-ERR Protocol error: invalid multibulk length\r\n");
    breaks.expect_closed();
    silent.expect("+OK\r\n");
    silent.expect_served();
}

/// A server that stops sends what comes to disk meanwhile.
#[test]
fn replies_that_wait_at_the_end_are_sent() {
    let patience = Duration::from_millis(pando_server::limits::SHUTDOWN_FLUSH_MS);
    let in_time = (0..30).any(|_| {
        let server = HeldServer::start(|_| {});
        let mut wire = server.connect_sync();
        wire.send("SET k v\r\n");
        server.expect_nothing(&wire);
        let shared = Arc::clone(server.server.as_ref().expect("it runs").shared());
        let begun = Instant::now();
        shared.request_shutdown();
        server.sync();
        // A server need not wait for a disk that the machine keeps from its work for so long.
        if begun.elapsed() >= patience {
            return false;
        }
        wire.expect("+OK\r\n");
        drop(server);
        wire.expect_closed();
        true
    });
    assert!(in_time, "the machine is too slow for the test");
}

#[test]
fn a_connection_chooses_its_mode() {
    let server = HeldServer::start(|config| config.durability = pando_db::Durability::Sync);
    let mut wire = server.connect();
    wire.ask(&["CLIENT", "DURABILITY"], "$4\r\nsync\r\n");
    wire.send("SET k v\r\n");
    server.expect_nothing(&wire);
    server.sync();
    wire.expect("+OK\r\n");
    wire.ask(&["CLIENT", "DURABILITY", "interval"], "+OK\r\n");
    wire.ask(&["CLIENT", "DURABILITY"], "$8\r\ninterval\r\n");
    wire.ask(&["SET", "k", "w"], "+OK\r\n");
    wire.ask(&["CLIENT", "DURABILITY", "NONE"], "+OK\r\n");
    let error = "-ERR CLIENT DURABILITY mode must be NONE, INTERVAL, SYNC or REPLICATED\r\n";
    wire.ask(&["CLIENT", "DURABILITY", "always"], error);
    wire.ask(&["RESET"], "+RESET\r\n");
    wire.ask(&["CLIENT", "DURABILITY"], "$4\r\nsync\r\n");
}

#[test]
fn waitaof_waits_for_the_disk() {
    let server = HeldServer::start(|_| {});
    let mut wire = server.connect();
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    wire.send("WAITAOF 1 0 0\r\nPING\r\n");
    server.expect_nothing(&wire);
    server.sync();
    wire.expect("*2\r\n:1\r\n:0\r\n+PONG\r\n");
    // A time that is over, and conditions that hold at once.
    wire.ask(&["SET", "k", "w"], "+OK\r\n");
    let start = Instant::now();
    wire.ask(&["WAITAOF", "1", "0", "100"], "*2\r\n:0\r\n:0\r\n");
    assert!(start.elapsed() >= Duration::from_millis(99));
    wire.ask(&["WAITAOF", "0", "0", "0"], "*2\r\n:0\r\n:0\r\n");
    wire.ask(&["MULTI"], "+OK\r\n");
    wire.ask(&["WAITAOF", "1", "0", "0"], "+QUEUED\r\n");
    wire.ask(&["EXEC"], "*1\r\n*2\r\n:0\r\n:0\r\n");
    for (line, error) in [
        (["WAITAOF", "2", "0", "0"], "-ERR WAITAOF can wait for"),
        (["WAITAOF", "x", "0", "0"], "-ERR value is not an integer"),
        (["WAITAOF", "1", "0", "-1"], "-ERR timeout is negative"),
    ] {
        wire.send(request(&line.map(str::as_bytes)));
        assert!(wire.line().starts_with(error), "{line:?}");
    }
    // Who goes away while it waits leaves nothing behind.
    wire.send("CLIENT ID\r\n");
    let id = wire.line().trim_start_matches(':').to_owned();
    wire.send("WAITAOF 1 0 0\r\n");
    server.wait_until("it waits", || server.flags(&id) == "b");
    wire.end();
    wire.expect_closed();
}

#[test]
fn client_unblock_ends_a_waitaof() {
    let server = HeldServer::start(|_| {});
    let mut other = server.connect();
    let mut wire = server.connect();
    wire.send("CLIENT ID\r\n");
    let id = wire.line().trim_start_matches(':').to_owned();
    other.ask(&["CLIENT", "UNBLOCK", &id], ":0\r\n");
    let over = "*2\r\n:0\r\n:0\r\n";
    let error = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";
    for (how, reply) in [
        (None, over),
        (Some("TIMEOUT"), over),
        (Some("error"), error),
    ] {
        wire.ask(&["SET", "k", "v"], "+OK\r\n");
        wire.send("WAITAOF 1 0 0\r\nPING\r\n");
        server.wait_until("it waits", || server.flags(&id) == "b");
        let unblock: Vec<&str> = ["CLIENT", "UNBLOCK", &id].into_iter().chain(how).collect();
        other.ask(&unblock, ":1\r\n");
        wire.expect(format!("{reply}+PONG\r\n"));
        other.ask(&["CLIENT", "UNBLOCK", &id, "ERROR"], ":0\r\n");
    }
    // What else a connection may wait for is not ended.
    let mut held = server.connect_sync();
    held.send("CLIENT ID\r\n");
    let held_id = held.line().trim_start_matches(':').to_owned();
    held.send("SET k w\r\n");
    server.wait_until("it waits", || server.flags(&held_id) == "b");
    other.ask(&["CLIENT", "UNBLOCK", &held_id], ":0\r\n");
    server.sync();
    held.expect("+OK\r\n");
    // Nor is the next wait, by what has ended the last.
    wire.ask(&["SET", "k", "x"], "+OK\r\n");
    wire.send("WAITAOF 1 0 0\r\n");
    server.expect_nothing(&wire);
    server.sync();
    wire.expect("*2\r\n:1\r\n:0\r\n");
}

#[test]
fn a_waitaof_ends_when_the_server_begins_to_follow_another() {
    let server = HeldServer::start(|_| {});
    let (mut other, mut wire) = (server.connect(), server.connect());
    wire.send("CLIENT ID\r\n");
    let id = wire.line().trim_start_matches(':').to_owned();
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    wire.send("WAITAOF 1 0 0\r\nPING\r\n");
    server.wait_until("it waits", || server.flags(&id) == "b");
    other.ask(&["REPLICAOF", "127.0.0.1", "1"], "+OK\r\n");
    wire.expect(
        "-UNBLOCKED force unblock from blocking operation, instance state changed \
         (master -> replica?)\r\n",
    );
    wire.expect_closed();
}

/// A memcached client has no command to say how its requests are answered: the setting says it.
#[test]
fn memcached_clients_wait_for_the_disk_too() {
    let server = HeldServer::start(|config| {
        config.memcached_port = Some(0);
        config.memcached_udp_port = Some(0);
        config.durability = Durability::Sync;
    });
    let listening = server
        .server
        .as_ref()
        .expect("it runs")
        .shared()
        .listening();
    let mut wire = Wire::new(TcpStream::connect(listening.memcached[0]).expect("a connection"));
    wire.send("mn\r\nset k 0 0 1\r\nv\r\nget k\r\n");
    wire.expect("MN\r\n");
    server.expect_nothing(&wire);
    server.sync();
    wire.expect("STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
    // Each command that changes something waits; quiet ones too, with what stands behind them.
    for (commands, replies) in [
        ("ms k 1\r\n1\r\n", "HD\r\n"),
        ("incr k 2\r\n", "3\r\n"),
        ("touch k 100\r\n", "TOUCHED\r\n"),
        ("ma k q\r\nmn\r\n", "MN\r\n"),
        ("mg k v T0\r\n", "VA 1\r\n4\r\n"),
        ("set k 0 0 1 noreply\r\nx\r\nmg k v\r\n", "VA 1\r\nx\r\n"),
        ("delete k\r\n", "DELETED\r\n"),
        ("flush_all\r\n", "OK\r\n"),
    ] {
        wire.send(commands);
        server.expect_nothing(&wire);
        server.sync();
        wire.expect(replies);
    }
    // So do replies to datagrams, in their order; what is on disk is read at once.
    let mut client = Datagrams::connect(listening.memcached_udp[0]);
    client.ask("get k|", "END|");
    let stored = client.request(b"set k 0 0 1\r\nv\r\n");
    let read = client.request(b"get k\r\n");
    server.expect_nothing(&wire);
    assert!(!client.has_input(), "a reply did not wait for the disk");
    server.sync();
    assert_eq!(client.reply(stored), "STORED|");
    assert_eq!(client.reply(read), "VALUE k 0 1|v|END|");
    client.ask("get k|", "VALUE k 0 1|v|END|");
}
