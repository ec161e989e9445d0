//! A pool of `cdds` that is full: what is evicted, what is refused, and what helps.

use redis::{Commands, Connection, RedisResult};

use crate::harness::{Folder, Pool, TestServer, run_to_end};

/// The smallest pool that can be set is of a mebibyte; this one is full soon.
const SMALL: [&str; 4] = ["--pmem-size", "8mb", "--durability", "interval"];

pub(crate) const FULL: &str = "the pool of persistent memory is full";

pub(crate) fn info(connection: &mut Connection, name: &str) -> u64 {
    let info: String = redis::cmd("INFO").query(connection).expect("a report");
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.expect(name).parse().expect("a number")
}

fn fill(connection: &mut Connection, name: &str, keys: usize, bytes: usize) {
    let value = vec![b'v'; bytes];
    for first in (0..keys).step_by(100) {
        let mut pipe = redis::pipe();
        for key in first..(first + 100).min(keys) {
            pipe.set(format!("{name}:{key}"), &value).ignore();
        }
        let () = pipe.query(connection).expect("nothing is refused");
    }
}

pub(crate) fn there(
    connection: &mut Connection,
    name: &str,
    keys: std::ops::Range<usize>,
) -> usize {
    let names: Vec<String> = keys.map(|key| format!("{name}:{key}")).collect();
    connection.exists(names).expect("a number")
}

#[test]
fn a_cache_in_a_pool_evicts_for_values_of_any_size_and_survives_a_kill() {
    let pool = Pool::new("cache");
    let flags = [&SMALL[..], &["--max-memory-policy", "allkeys-lru"]].concat();
    let server = pool.serve(&flags);
    let mut connection = server.connection();
    // The blocks of the first sizes become room for the next ones.
    for (name, keys, bytes) in [("a", 40_000, 100), ("b", 4_000, 1000), ("c", 800, 8000)] {
        for part in 0..10 {
            fill(&mut connection, &format!("{name}{part}"), keys / 10, bytes);
        }
        let last = format!("{name}9");
        let newest = there(&mut connection, &last, keys / 10 - 40..keys / 10);
        assert_eq!(newest, 40, "{name}");
    }
    assert!(info(&mut connection, "evicted_keys:") > 25_000);
    assert!(info(&mut connection, "used_memory:") < 16 << 20);
    let () = redis::cmd("WAITAOF")
        .arg(1)
        .arg(0)
        .arg(0)
        .query(&mut connection)
        .expect("durable");
    let keys: usize = redis::cmd("DBSIZE")
        .query(&mut connection)
        .expect("a number");
    server.signal("KILL");
    server.wait();
    let server = pool.serve(&flags);
    let mut connection = server.connection();
    assert_eq!(redis::cmd("DBSIZE").query(&mut connection), Ok(keys));
    let used = info(&mut connection, "pool_used_bytes:");
    assert!(used > 4 << 20, "{used} is known at once");
    fill(&mut connection, "d", 2000, 1000);
    assert_eq!(there(&mut connection, "d", 1900..2000), 100);
}

#[test]
fn a_full_pool_refuses_what_needs_room_and_removals_help() {
    let pool = Pool::new("full");
    let server = pool.serve(&SMALL);
    let mut connection = server.connection();
    let value = vec![b'v'; 100];
    let mut count = 0;
    let refused = loop {
        let stored: RedisResult<()> = connection.set(format!("k:{count}"), &value);
        match stored {
            Ok(()) => count += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains(FULL), "{refused}");
    assert!(count > 20_000, "{count} keys");
    assert_eq!(there(&mut connection, "k", 0..count), count);
    // Three of four go, all over the pool; what comes is of another size.
    for key in (0..count).filter(|key| key % 4 > 0) {
        let () = connection
            .del(format!("k:{key}"))
            .expect("removals need no room");
    }
    fill(&mut connection, "large", 250, 8000);
    assert_eq!(there(&mut connection, "large", 0..250), 250);
    assert_eq!(there(&mut connection, "k", 0..count), count.div_ceil(4));
}

/// A value that the pool could not hold were it empty is refused at once, whatever command it
/// comes of, and nothing has changed.
#[test]
fn a_value_that_no_pool_holds_is_refused_and_the_server_goes_on() {
    const TOO_LONG: &str = "longer than any that the pool can hold";
    let pool = Pool::new("too-long");
    let server = pool.serve(&SMALL);
    let mut connection = server.connection();
    let part = vec![b'p'; 900_000];
    let () = connection.rpush("list", "ar").expect("it is short");
    let () = connection.hset("hash", "field", "value").expect("the same");
    let () = connection.set("text", "some").expect("the same");
    let () = connection.set("part", &part).expect("there is room");
    let other = TestServer::start(&[]);
    let mut elsewhere = other.connection();
    let mut commands = Vec::new();
    let mut push = redis::cmd("RPUSH");
    let mut set = redis::cmd("HSET");
    let mut sort = redis::cmd("SORT");
    push.arg("list");
    set.arg("hash");
    sort.arg("list").arg("BY").arg("nosort");
    for index in 0..10 {
        push.arg(&part);
        set.arg(format!("f{index}")).arg(&part);
        sort.arg("GET").arg("p*t");
    }
    sort.arg("STORE").arg("sorted");
    let () = push.query(&mut elsewhere).expect("there is memory");
    let dumped: Vec<u8> = redis::cmd("DUMP")
        .arg("list")
        .query(&mut elsewhere)
        .expect("a value");
    let mut restore = redis::cmd("RESTORE");
    restore.arg("restored").arg(0).arg(dumped);
    let mut long = redis::cmd("SETRANGE");
    long.arg("text").arg(9_000_000).arg("end");
    commands.extend([push, set, sort, restore, long]);
    for command in &commands {
        let refused: RedisResult<redis::Value> = command.query(&mut connection);
        let error = refused.expect_err("too long").to_string();
        assert!(error.contains(TOO_LONG), "{error}");
        let mut run =
            |command: &redis::Cmd| -> RedisResult<redis::Value> { command.query(&mut connection) };
        let queued = run(&redis::cmd("MULTI"))
            .and_then(|_| run(redis::cmd("SET").arg("beside").arg(1)))
            .and_then(|_| run(command));
        queued.expect("it is judged when it runs");
        let run = run(&redis::cmd("EXEC"));
        let error = run.expect_err("all of it").to_string();
        assert!(error.contains(TOO_LONG), "{error}");
    }
    assert_eq!(connection.llen("list"), Ok(1));
    assert_eq!(connection.hlen("hash"), Ok(1));
    assert_eq!(connection.get("text"), Ok("some".to_owned()));
    assert_eq!(redis::cmd("DBSIZE").query(&mut connection), Ok(4));
}

/// What a start says of a pool that it refuses, with other flags than usual where there are some.
fn refusal(pool: &Pool, flags: &[&str]) -> String {
    let file = pool.path().to_str().expect("text");
    let usual = ["--engine", "cdds", "--pmem", file, "--port", "0"];
    let size = ["--pmem-size", "8mb"];
    let flags = if flags.is_empty() { &size } else { flags };
    let (status, said) = run_to_end(&[&usual, flags].concat());
    assert!(!status.success(), "{flags:?}: {said}");
    said
}

#[test]
fn what_is_no_pool_of_this_size_is_refused_by_name_and_stays_as_it_is() {
    let pool = Pool::new("refused");
    let server = pool.serve(&SMALL);
    let () = server
        .connection()
        .set("key", "value")
        .expect("there is room");
    let said = refusal(&pool, &[]);
    assert!(said.contains("the pool is open already"), "{said}");
    server.signal("TERM");
    assert!(server.wait().success());
    let good = std::fs::read(pool.path()).expect("a file");
    let half = good.len() / 2;
    let mut other = good.clone();
    // Both generations of its header.
    other[..8192].fill(7);
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("empty", Vec::new(), "its creation did not end"),
        (
            "of another length",
            vec![7; 100_000],
            "this is no pool of Pando's",
        ),
        (
            "of something else",
            vec![7; good.len()],
            "this is no pool of Pando's",
        ),
        ("cut short", good[..half].to_vec(), "the pool was cut short"),
        (
            "doubled",
            [&good[..], &good].concat(),
            "the pool has 8388608 bytes, not 16777216",
        ),
        ("without its head", other, "this is no pool of Pando's"),
    ];
    for (name, bytes, words) in cases {
        std::fs::write(pool.path(), &bytes).expect("room");
        let said = refusal(&pool, &[]);
        let file = pool.path().to_str().expect("text");
        assert!(
            said.contains(words) && said.contains(file),
            "{name}: {said}"
        );
        let after = std::fs::read(pool.path()).expect("a file");
        assert!(after == bytes, "{name}: it was changed");
    }
    std::fs::write(pool.path(), &good).expect("room");
    for (size, words) in [
        ("16mb", "the pool has 8388608 bytes, not 16777216"),
        ("8388609", "a size is a multiple of 4096"),
        ("1000", "pmem-size"),
        ("lots", "pmem-size"),
        ("0", "pmem-size"),
    ] {
        let said = refusal(&pool, &["--pmem-size", size]);
        assert!(said.contains(words), "{size}: {said}");
    }
    let server = pool.serve(&SMALL);
    assert_eq!(server.connection().get("key"), Ok("value".to_owned()));
}

#[test]
fn msetnx_stores_all_or_nothing_in_a_full_pool() {
    let pool = Pool::new("msetnx");
    let server = pool.serve(&SMALL);
    let mut connection = server.connection();
    fill(&mut connection, "k", 500, 8000);
    let value = vec![b'w'; 8000];
    let mut msetnx = redis::cmd("MSETNX");
    for key in 0..1000 {
        msetnx.arg(format!("new:{key}")).arg(&value);
    }
    let refused: RedisResult<()> = msetnx.query(&mut connection);
    let refused = refused.expect_err("it is larger than the pool").to_string();
    assert!(refused.contains(FULL), "{refused}");
    assert_eq!(redis::cmd("DBSIZE").query(&mut connection), Ok(500));
    assert_eq!(there(&mut connection, "k", 0..500), 500);
    // What was taken back is free again.
    fill(&mut connection, "k", 700, 8000);
}

/// An EXEC that needs room for much.
fn exec(connection: &mut Connection, value: &str) -> RedisResult<()> {
    let mut queued = vec![
        vec!["MULTI"],
        vec!["DEL", "k:2", "k:3", "list"],
        vec!["SET", "timed", "new"],
        vec!["RPUSH", "list", "c"],
        vec!["SET", "nosuch", "new"],
        vec!["EXPIRE", "k:4", "5000"],
    ];
    for _ in 0..40 {
        queued.push(vec!["APPEND", "k:5", value]);
        queued.push(vec!["APPEND", "new:1", value]);
    }
    for words in &queued {
        let mut command = redis::cmd(words[0]);
        let () = command.arg(&words[1..]).query(connection).expect("queued");
    }
    redis::cmd("EXEC").query(connection)
}

/// What a refused group has left as it was, of so many keys.
fn check_whole(connection: &mut Connection, keys: usize, value: &str) {
    assert_eq!(redis::cmd("DBSIZE").query(connection), Ok(keys));
    for key in 2..7 {
        assert_eq!(connection.get(format!("k:{key}")), Ok(value.to_owned()));
    }
    let list: Vec<String> = connection.lrange("list", 0, -1).expect("a list");
    assert_eq!(list, ["a", "b"]);
    assert_eq!(connection.get("timed"), Ok("old".to_owned()));
    let left: i64 = connection.ttl("timed").expect("it has a deadline");
    assert!((900..=1000).contains(&left), "{left}");
    assert_eq!(connection.ttl("k:4"), Ok(-1));
    assert_eq!(there(connection, "new", 0..40), 0);
}

/// What several writes of one command, or of an EXEC, did before one of them found no room is taken
/// back, and a kill brings none of it back.
#[test]
fn what_is_whole_is_refused_whole_in_a_full_pool() {
    let pool = Pool::new("whole");
    let server = pool.serve(&SMALL);
    let (mut connection, mut other) = (server.connection(), server.connection());
    let value = "w".repeat(8000);
    let () = connection.rpush("list", &["a", "b"]).expect("room");
    let () = connection.set_ex("timed", "old", 1000).expect("room");
    let mut full = (0..).map(|key| connection.set::<_, _, ()>(format!("k:{key}"), &value));
    assert!(full.find(Result::is_err).is_some());
    drop(full);
    let () = connection.del(&["k:0", "k:1"]).expect("it needs no room");
    let keys: usize = redis::cmd("DBSIZE").query(&mut connection).expect("keys");
    let () = redis::cmd("WATCH")
        .arg(&["k:2", "list", "nosuch"])
        .query(&mut other)
        .expect("it is watched");
    let mut mset = redis::cmd("MSET");
    for key in ["k:2", "timed", "nosuch", "k:1", "list"] {
        mset.arg(key).arg("new");
    }
    for key in 0..40 {
        mset.arg(format!("new:{key}")).arg(&value);
    }
    for round in 0..2 {
        let refused = if round == 0 {
            mset.query::<()>(&mut connection)
        } else {
            exec(&mut connection, &value)
        };
        let refused = refused.expect_err("there is no room").to_string();
        assert!(refused.contains(FULL), "{refused}");
        let found = redis::cmd("DBSIZE").query(&mut connection);
        assert_eq!(found, Ok(keys), "{round}");
    }
    let discarded: RedisResult<()> = redis::cmd("DISCARD").query(&mut connection);
    assert!(discarded.is_err(), "the refused EXEC ended its MULTI");
    let unwatched: RedisResult<Vec<usize>> = redis::pipe().atomic().del("nosuch").query(&mut other);
    assert_eq!(
        unwatched,
        Ok(vec![0]),
        "nothing that is watched has changed"
    );
    check_whole(&mut connection, keys, &value);
    let () = redis::cmd("WAITAOF")
        .arg(&[1, 0, 0])
        .query(&mut connection)
        .expect("durable");
    server.signal("KILL");
    server.wait();
    check_whole(&mut pool.serve(&SMALL).connection(), keys, &value);
}

/// An ordinary file on a disk, where what was acknowledged also survives a loss of power: the
/// crashes of that are those of `pando-pmem`.
#[test]
fn a_pool_on_a_disk_survives_a_kill() {
    let folder = Folder::new();
    let file = folder.path("pool");
    let file = file.to_str().expect("text");
    let flags = |medium| {
        let pool = ["--engine", "cdds", "--pmem", file, "--pmem-medium", medium];
        [&pool[..], &["--pmem-size", "8mb", "--durability", "sync"]].concat()
    };
    for round in 0..3 {
        let server = TestServer::start(&flags("disk"));
        let mut connection = server.connection();
        for before in 0..round {
            assert_eq!(there(&mut connection, &before.to_string(), 0..501), 500);
        }
        let name = round.to_string();
        fill(&mut connection, &name, 501, 100);
        let () = connection.del(format!("{name}:7")).expect("a number");
        server.signal("KILL");
    }
    let (status, said) = run_to_end(&[&flags("shared-memory")[..], &["--port", "0"]].concat());
    assert!(!status.success() && said.contains(file), "{said}");
    let (status, said) = run_to_end(&[&flags("floppy")[..], &["--port", "0"]].concat());
    assert!(
        !status.success() && said.contains("auto, dax, dax-words, eadr, shared-memory, disk"),
        "{said}"
    );
}
