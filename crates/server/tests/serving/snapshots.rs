//! Snapshots under `--maxmemory`: memory is bounded whoever makes them and never reads, and
//! everybody else is served.

use redis::Connection;

use crate::harness::TestServer;

const LIMIT: usize = 32 << 20;
/// What images may take: a quarter of the limit by default.
const IMAGES_MAX: usize = LIMIT / 4;
/// Values that take a good third of the limit.
const KEYS: usize = 11_000;
const VALUE_BYTES: usize = 1000;

/// A server of an engine, a connection to it, and another one that fills it.
fn filled(engine: &str) -> (TestServer, Connection) {
    let limit = LIMIT.to_string();
    let flags = ["--engine", engine, "--maxmemory", &limit];
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
    let value = vec![letter; VALUE_BYTES];
    let mut refused = 0;
    for batch in 0..KEYS / 50 {
        let mut pipe = redis::pipe();
        for key in batch * 50..(batch + 1) * 50 {
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
    let refused = write(&mut connection, "key", b'b');
    assert!(refused > 0, "images have no bound");
    let bytes = info(&mut connection, "snapshot_image_bytes");
    assert!(bytes <= IMAGES_MAX * 5 / 4, "{bytes} bytes of images");
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
