//! Snapshots under `--maxmemory`: memory is bounded whoever makes them and never reads, and
//! everybody else is served.

use std::ops::Range;

use redis::Connection;

use crate::harness::{TestServer, Wire, request};

const LIMIT: usize = 32 << 20;
/// Values that take a good third of the limit.
const KEYS: usize = 11_000;
const VALUE_BYTES: usize = 1000;

/// A server of an engine, a connection to it, and another one that fills it.
fn filled(engine: &str) -> (TestServer, Connection) {
    let limit = LIMIT.to_string();
    let flags = ["--engine", engine, "--maxmemory", &limit];
    let flags = [flags.as_slice(), &["--snapshots-memory", "4mb"]].concat();
    let policy = ["--maxmemory-policy", "allkeys-lru"];
    let server = TestServer::start(&[flags.as_slice(), &policy].concat());
    let mut connection = server.connection();
    assert_eq!(write(&mut connection, "key", b'a'), 0, "there is room");
    (server, connection)
}

/// A number that INFO reports.
fn info(connection: &mut Connection, field: &str) -> usize {
    let text: String = redis::cmd("INFO").query(connection).unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect(field).parse().expect("a number")
}

/// Writes all keys of a name; how many writes were refused, for want of memory.
fn write(connection: &mut Connection, name: &str, letter: u8) -> usize {
    write_some(connection, name, letter, 0..KEYS)
}

fn write_some(connection: &mut Connection, name: &str, letter: u8, keys: Range<usize>) -> usize {
    let value = vec![letter; VALUE_BYTES];
    let mut refused = 0;
    for first in keys.step_by(50) {
        let mut pipe = redis::pipe();
        for key in first..first + 50 {
            pipe.cmd("SET").arg(format!("{name}{key}")).arg(&value);
        }
        pipe.ignore_errors();
        let replies: Vec<redis::RedisResult<()>> = pipe.query(connection).unwrap();
        for error in replies.into_iter().filter_map(Result::err) {
            assert_eq!(error.code(), Some("OOM"), "{error}");
            refused += 1;
        }
        let used = info(connection, "used_memory");
        assert!(used <= LIMIT + LIMIT / 16, "{used} bytes in use");
    }
    refused
}

fn ask<T: redis::FromRedisValue>(connection: &mut Connection, line: &str) -> T {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().expect("a word"));
    words.for_each(|word| {
        command.arg(word);
    });
    let asked = command.query(connection);
    asked.unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// How many values a snapshot shows, all of which are as they were.
fn count_old(connection: &mut Connection, name: &str) -> usize {
    let mut count = 0;
    for batch in 0..KEYS / 50 {
        let mut command = redis::cmd("SNAPSHOT");
        command.arg("READ").arg(name).arg("MGET");
        for key in batch * 50..(batch + 1) * 50 {
            command.arg(format!("key{key}"));
        }
        let values: Vec<Option<Vec<u8>>> = command.query(connection).unwrap();
        for value in values.into_iter().flatten() {
            assert!(value.len() == VALUE_BYTES && value.iter().all(|byte| *byte == b'a'));
            count += 1;
        }
    }
    count
}

/// One that nobody reads goes when its images take too much, and no write is refused for it.
fn an_idle_snapshot_goes(engine: &str) {
    let (server, mut connection) = filled(engine);
    let _: redis::Value = ask(&mut connection, "SNAPSHOT CREATE idle");
    assert_eq!(write(&mut connection, "key", b'b'), 0);
    server.wait_until("the snapshot has gone", || {
        info(&mut connection, "snapshots") == 0
    });
    server.wait_until("its memory comes back", || {
        info(&mut connection, "used_memory") <= LIMIT / 4 * 3
    });
    assert_eq!(ask::<usize>(&mut connection, "DBSIZE"), KEYS);
}

/// One that is held stays whole; writes that need an image are refused when these take too much,
/// and those that need none are served.
fn a_held_snapshot_stays(engine: &str) {
    let (server, mut connection) = filled(engine);
    let _: redis::Value = ask(&mut connection, "SNAPSHOT CREATE held HOLD");
    // Half of the keys take more than images may; the server notices soon, not at once.
    let half = KEYS / 2;
    write_some(&mut connection, "key", b'b', 0..half);
    let mut keys = half..KEYS;
    server.wait_until("writes that need an image are refused", || {
        let key = keys.next().expect("it is noticed in time");
        let mut set = redis::cmd("SET");
        let set = set.arg(format!("key{key}")).arg("short");
        set.query::<()>(&mut connection).is_err()
    });
    let before = info(&mut connection, "snapshot_image_bytes");
    assert!(write(&mut connection, "key", b'b') >= 50);
    assert_eq!(info(&mut connection, "snapshot_image_bytes"), before);
    let _: () = ask(&mut connection, "SET new 1");
    let _: () = ask(&mut connection, "SET new 2");
    assert_eq!(count_old(&mut connection, "held"), KEYS);
    // What it alone keeps of emptied databases counts as well: what comes later is evicted for it.
    let _: () = ask(&mut connection, "FLUSHALL");
    for round in ["one", "two", "three"] {
        write(&mut connection, round, b'c');
    }
    assert!(info(&mut connection, "evicted_keys") > 0);
    assert_eq!(count_old(&mut connection, "held"), KEYS);
    let before = info(&mut connection, "used_memory");
    let dropped: usize = ask(&mut connection, "SNAPSHOT DROP held");
    assert_eq!(dropped, 1);
    server.wait_until("its memory comes back", || {
        info(&mut connection, "used_memory") + KEYS * VALUE_BYTES <= before
    });
    assert_eq!(write(&mut connection, "key", b'b'), 0);
}

#[test]
fn an_idle_snapshot_goes_on_masstree() {
    an_idle_snapshot_goes("masstree");
}

#[test]
fn an_idle_snapshot_goes_on_mercury() {
    an_idle_snapshot_goes("mercury");
}

#[test]
fn a_held_snapshot_stays_on_masstree() {
    a_held_snapshot_stays("masstree");
}

#[test]
fn a_held_snapshot_stays_on_mercury() {
    a_held_snapshot_stays("mercury");
}

fn create(server: &TestServer, name: &str) {
    let mut connection = server.connection();
    let _: redis::Value = ask(&mut connection, &format!("SNAPSHOT CREATE {name}"));
}

/// The first line of a reply, which is all of it.
fn first_line(wire: &mut Wire, arguments: &[&str]) -> String {
    let arguments: Vec<_> = arguments.iter().map(|it| it.as_bytes()).collect();
    wire.send(request(&arguments));
    wire.line()
}

/// What the server runs itself reads the snapshot as well, if it reads keys; and who resets a
/// connection, or makes a new one, is at present.
#[test]
fn commands_of_the_server_read_in_a_snapshot() {
    for engine in ["masstree", "mercury", "reference"] {
        let server = TestServer::start(&["--engine", engine]);
        let mut wire = server.connect();
        let exists = "-ERR a snapshot of this name exists already\r\n";
        wire.ask(&["SET", "k", "v"], "+OK\r\n");
        create(&server, "a");
        wire.ask(&["SNAPSHOT", "CREATE", "a"], exists);
        wire.ask(&["DEL", "k"], ":1\r\n");
        wire.ask(&["MEMORY", "USAGE", "k"], "$-1\r\n");
        let usage = first_line(
            &mut wire,
            &["SNAPSHOT", "READ", "a", "MEMORY", "USAGE", "k"],
        );
        assert!(usage.starts_with(':'), "{engine}: {usage}");
        wire.ask(&["SNAPSHOT", "USE", "a"], "+OK\r\n");
        assert_eq!(first_line(&mut wire, &["MEMORY", "USAGE", "k"]), usage);
        wire.ask(&["GET", "k"], "$1\r\nv\r\n");
        let mut other = server.connect();
        other.ask(&["GET", "k"], "$-1\r\n");
        // What concerns connections and the server goes on as ever.
        wire.ask(&["CONFIG", "SET", "snapshots-max", "1"], "+OK\r\n");
        wire.ask(&["CLIENT", "SETNAME", "reader"], "+OK\r\n");
        wire.ask_any(&["INFO", "snapshots"]);
        let full = "-ERR there are 1 snapshots already, as many as are allowed; drop one\r\n";
        other.ask(&["SNAPSHOT", "CREATE", "b"], full);
        let read_only = "-READONLY You can't write against a snapshot; SNAPSHOT USE NONE returns \
                         to the present\r\n";
        wire.ask(&["FLUSHALL"], read_only);
        wire.ask(&["SET", "k", "w"], read_only);
        wire.ask(&["RESET"], "+RESET\r\n");
        wire.ask(&["GET", "k"], "$-1\r\n");
        wire.ask(&["SET", "k", "w"], "+OK\r\n");
    }
}

/// Connections share a recent snapshot, which goes with the last of them or when its leases end.
#[test]
fn recent_snapshots_are_shared_and_go() {
    for engine in ["masstree", "mercury", "minuet"] {
        let server = TestServer::start(&["--engine", engine, "--snapshot-staleness", "100000"]);
        let mut about = server.connection();
        let mut readers = [server.connection(), server.connection()];
        let mut use_one = |reader: &mut Connection| -> (String, u64, u64) {
            ask::<()>(&mut about, "INCR k");
            ask(reader, "SNAPSHOT USE RECENT")
        };
        let [one, two] = &mut readers;
        assert_eq!(use_one(one), use_one(two));
        assert_eq!(ask::<u64>(two, "GET k"), 1);
        assert_eq!(info(&mut about, "snapshot_leases"), 2);
        assert_eq!(info(&mut about, "recent_snapshots_made"), 1);
        assert_eq!(info(&mut about, "recent_snapshots_borrowed"), 1);
        let lowest = info(&mut about, "lowest_leased_epoch");
        assert_eq!(info(&mut about, "lowest_snapshot_epoch"), lowest);
        ask::<()>(&mut about, "CONFIG SET snapshot-staleness 0");
        // One disconnects, one is idle.
        let [one, mut two] = readers;
        drop(one);
        server.wait_until("the lease ends with its connection", || {
            info(&mut about, "snapshot_leases") == 1
        });
        ask::<()>(&mut about, "CONFIG SET snapshot-lease 1");
        server.wait_until("the snapshot has gone", || {
            info(&mut about, "snapshots") == 0
        });
        let lost: redis::RedisResult<String> = redis::cmd("GET").arg("k").query(&mut two);
        assert_eq!(lost.unwrap_err().code(), Some("NOSNAPSHOT"));
        assert_eq!(ask::<u64>(&mut two, "SNAPSHOT READ RECENT GET k"), 2);
    }
}

/// Names of a megabyte, one request after the other, and a client that asks and never reads the
/// answers: others are served, and memory is not taken.
#[test]
fn long_names_and_idle_readers_take_nothing() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    let long = "n".repeat(1 << 20);
    let refused = "-ERR the name is too long (1048576 bytes, at most";
    let before = info(&mut server.connection(), "used_memory");
    for _ in 0..20 {
        let reply = first_line(&mut wire, &["SNAPSHOT", "CREATE", &long]);
        assert!(reply.starts_with(refused), "{reply}");
        wire.ask(
            &["SNAPSHOT", "READ", &long, "GET", "k"],
            "-NOSNAPSHOT no snapshot has this name\r\n",
        );
    }
    let value = "v".repeat(100_000);
    wire.ask(&["SET", "k", &value], "+OK\r\n");
    create(&server, "a");
    let mut idle = server.connect();
    idle.send("SNAPSHOT USE a\r\n");
    let stuck = idle.send_until_stuck(b"GET k\r\n", 8 << 20);
    assert!(stuck < 8 << 20, "it is not read for ever");
    wire.ask(&["DEL", "k"], ":1\r\n");
    wire.ask(&["SNAPSHOT", "DROP", "a"], ":1\r\n");
    wire.ask(&["SET", "k", "w"], "+OK\r\n");
    wire.expect_served();
    let used = info(&mut server.connection(), "used_memory");
    assert!(used < before + (32 << 20), "{used} bytes, {before} before");
}
