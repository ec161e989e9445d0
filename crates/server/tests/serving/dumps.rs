//! `pando dump --from`: a running server is dumped as it was at one moment, whatever is written
//! meanwhile, and nothing is left behind.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::Commands;

use crate::harness::{BINARY, Folder, Pool, TestServer, seed, wait_for_exit};

const ACCOUNTS: u64 = 4_000;
const BALANCE: i64 = 100;

fn command(address: SocketAddr, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["dump", "--from", &address.to_string()]);
    command.args(flags).stderr(Stdio::piped());
    command
}

/// Dumps into a file.
fn dump(address: SocketAddr, flags: &[&str], to: &Path) -> Output {
    let to = File::create(to).expect("a file");
    command(address, flags)
        .stdout(to)
        .output()
        .expect("it runs")
}

fn load(folder: &Folder, name: &str) -> (String, Output) {
    let data = folder.path(&format!("{name}-data"));
    let mut load = Command::new(BINARY);
    load.args(["load", "--data-dir"]).arg(&data);
    let loaded = load.arg(folder.path(name)).output().expect("it runs");
    (data.to_str().expect("text").to_owned(), loaded)
}

/// A server with what a dump holds.
fn loaded(folder: &Folder, name: &str) -> TestServer {
    let (data, loaded) = load(folder, name);
    assert!(loaded.status.success(), "{}", said(&loaded));
    TestServer::start(&[
        "--durability",
        "interval",
        "--data-dir",
        &data,
        "--memcached-port",
        "0",
    ])
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_dump_is_loaded_into_a_pool() {
    const KEYS: u32 = 2_000;
    let (folder, pool) = (Folder::new(), Pool::new("loaded"));
    let server = TestServer::start(&[]);
    let mut connection = server.connection();
    let mut pipeline = redis::pipe();
    for key in 0..KEYS {
        pipeline.set(key, format!("value {key}")).ignore();
        pipeline.rpush("list", key).ignore();
    }
    pipeline.zadd("sorted", "member", 1.5).ignore();
    let () = pipeline.query(&mut connection).unwrap();
    let file = folder.path("dump");
    assert!(dump(server.address, &[], &file).status.success());
    let load = |flags: &[&str]| {
        let mut load = Command::new(BINARY);
        load.args(["load", "--engine", "cdds"]).args(flags);
        load.arg(&file).output().expect("it runs")
    };
    let refused = load(&[]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("--pmem"), "{}", said(&refused));
    let path = pool.path().to_str().expect("text");
    let loaded = load(&["--pmem", path, "--pmem-size", "64mb"]);
    assert!(loaded.status.success(), "{}", said(&loaded));
    let server = pool.serve(&[]);
    let mut connection = server.connection();
    for key in 0..KEYS {
        let value: String = connection.get(key).unwrap();
        assert_eq!(value, format!("value {key}"));
    }
    let list: Vec<u32> = connection.lrange("list", 0, -1).unwrap();
    assert!(list.into_iter().eq(0..KEYS));
    let score: f64 = connection.zscore("sorted", "member").unwrap();
    assert!((score - 1.5).abs() < f64::EPSILON);
}

fn account(number: u64) -> String {
    format!("account:{number}")
}

fn sum(connection: &mut redis::Connection) -> i64 {
    let keys: Vec<_> = (0..ACCOUNTS).map(account).collect();
    let balances: Vec<i64> = connection.mget(keys).unwrap();
    balances.iter().sum()
}

/// Moves money between accounts, and changes all else, until it is told to stop.
fn write(server: &TestServer, seed: u64, rounds: &AtomicU64, stop: &AtomicBool) {
    let mut random = seed;
    let mut number = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        random >> 33
    };
    let mut connection = server.connection();
    while !stop.load(Ordering::Relaxed) {
        let (from, to, amount) = (number() % ACCOUNTS, number() % ACCOUNTS, number() % 50);
        let mut transfer = redis::pipe();
        transfer.atomic();
        transfer.decr(account(from), amount).ignore();
        transfer.incr(account(to), amount).ignore();
        transfer
            .set(format!("new:{}", number() % 1_000), amount)
            .ignore();
        transfer.cmd("SELECT").arg(5).ignore();
        transfer.del(format!("hash:{}", number() % 50)).ignore();
        transfer.cmd("SELECT").arg(0).ignore();
        transfer.exec(&mut connection).unwrap();
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes a snapshot.
fn create(server: &TestServer, name: &str) {
    let mut create = redis::cmd("SNAPSHOT");
    create
        .arg("CREATE")
        .arg(name)
        .exec(&mut server.connection())
        .unwrap();
}

fn fill(server: &TestServer) {
    let mut connection = server.connection();
    let mut pipe = redis::pipe();
    for number in 0..ACCOUNTS {
        pipe.set(account(number), BALANCE).ignore();
    }
    pipe.set("long", "x".repeat(3_000_000)).ignore();
    pipe.set("timed", "v").ignore();
    pipe.cmd("PEXPIREAT")
        .arg("timed")
        .arg(4_102_444_800_000_u64)
        .ignore();
    pipe.cmd("SELECT").arg(5).ignore();
    for number in 0..50 {
        let fields = [("name", "n"), ("more", "m")];
        pipe.hset_multiple(format!("hash:{number}"), &fields)
            .ignore();
    }
    pipe.exec(&mut connection).unwrap();
    let mut memcached = server.connect_memcached();
    memcached.send("set item 7 0 1\r\nv\r\n");
    memcached.expect("STORED\r\n");
}

/// What [`fill`] has made, and nothing else.
fn check_filled(server: &TestServer) {
    let mut connection = server.connection();
    assert_eq!(sum(&mut connection), ACCOUNTS as i64 * BALANCE);
    let accounts: Vec<i64> = connection
        .mget((0..ACCOUNTS).map(account).collect::<Vec<_>>())
        .unwrap();
    assert!(accounts.iter().all(|balance| *balance == BALANCE));
    let mut wire = server.connect();
    wire.ask(&["DBSIZE"], &format!(":{}\r\n", ACCOUNTS + 3));
    wire.ask(&["STRLEN", "long"], ":3000000\r\n");
    wire.ask(&["PEXPIRETIME", "timed"], ":4102444800000\r\n");
    wire.ask(&["SELECT", "5"], "+OK\r\n");
    wire.ask(&["DBSIZE"], ":50\r\n");
    wire.ask(&["HGET", "hash:7", "more"], "$1\r\nm\r\n");
    let mut memcached = server.connect_memcached();
    memcached.send("get item\r\n");
    memcached.expect("VALUE item 7 1\r\nv\r\nEND\r\n");
}

#[test]
fn a_dump_beside_a_writer_is_of_one_moment() {
    let seed = seed();
    for engine in ["masstree", "mercury"] {
        let folder = Folder::new();
        let server = TestServer::start(&["--engine", engine, "--memcached-port", "0"]);
        fill(&server);
        create(&server, "monday");
        let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&server, seed, &rounds, &stop));
            for (flags, name) in [(&["--snapshot", "monday"][..], "monday"), (&[], "now")] {
                let before = rounds.load(Ordering::Relaxed);
                server.wait_until("something is written", || {
                    rounds.load(Ordering::Relaxed) > before + 100
                });
                let dumped = dump(server.address, flags, &folder.path(name));
                assert!(dumped.status.success(), "{}", said(&dumped));
            }
            stop.store(true, Ordering::Relaxed);
        });
        check_filled(&loaded(&folder, "monday"));
        let now = loaded(&folder, "now");
        assert_eq!(sum(&mut now.connection()), ACCOUNTS as i64 * BALANCE);
        assert_eq!(snapshots(&server), ["monday"]);
    }
}

/// The names of the snapshots that are there.
fn snapshots(server: &TestServer) -> Vec<String> {
    let mut list = redis::cmd("SNAPSHOT");
    let list: Vec<(String, u64, u64)> = list.arg("LIST").query(&mut server.connection()).unwrap();
    list.into_iter().map(|(name, ..)| name).collect()
}

/// A server with so much that a dump waits for whoever reads it.
fn laden(flags: &[&str]) -> TestServer {
    let server = TestServer::start(flags);
    let mut pipe = redis::pipe();
    for number in 0..80 {
        pipe.set(number, "x".repeat(100_000)).ignore();
    }
    pipe.exec(&mut server.connection()).unwrap();
    server
}

/// Begins a dump that nobody reads.
fn begin(server: &TestServer, flags: &[&str]) -> Child {
    let mut command = command(server.address, flags);
    command.stdout(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn a_dump_that_is_interrupted_leaves_no_snapshot() {
    for signal in ["INT", "TERM"] {
        let server = laden(&[]);
        let mut dump = begin(&server, &[]);
        server.wait_until("a snapshot", || !snapshots(&server).is_empty());
        let pid = dump.id().to_string();
        let killed = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(killed.expect("kill runs").success());
        assert_eq!(wait_for_exit(&mut dump).code(), Some(1));
        assert_eq!(snapshots(&server), [""; 0]);
        let output = dump.wait_with_output().expect("it has ended");
        assert_eq!(said(&output), "interrupted: the dump is incomplete\n");
    }
}

#[test]
fn a_dump_whose_reader_has_gone_leaves_no_snapshot() {
    let server = laden(&[]);
    let mut dump = begin(&server, &[]);
    drop(dump.stdout.take());
    assert_eq!(wait_for_exit(&mut dump).code(), Some(1));
    assert_eq!(snapshots(&server), [""; 0]);
}

/// A new snapshot of the same name is another one.
#[test]
fn a_snapshot_that_goes_meanwhile_makes_no_whole_dump() {
    let folder = Folder::new();
    for again in [false, true] {
        let server = laden(&[]);
        create(&server, "monday");
        let mut dump = begin(&server, &["--snapshot", "monday"]);
        let mut stdout = dump.stdout.take().expect("a pipe");
        let mut bytes = vec![0; 8];
        stdout.read_exact(&mut bytes).expect("it has begun");
        let mut wire = server.connect();
        wire.ask(&["SNAPSHOT", "DROP", "monday"], ":1\r\n");
        if again {
            create(&server, "monday");
        }
        stdout.read_to_end(&mut bytes).expect("the rest");
        let output = dump.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1));
        assert!(
            said(&output).contains("the snapshot was dropped"),
            "{}",
            said(&output)
        );
        std::fs::write(folder.path("cut"), &bytes).expect("a file");
        let (_, refused) = load(&folder, "cut");
        assert!(!refused.status.success());
        assert!(
            said(&refused).contains("the stream ends here"),
            "{}",
            said(&refused)
        );
    }
}

#[test]
fn why_there_is_no_dump_is_told() {
    let folder = Folder::new();
    let to = folder.path("dump");
    let refused = |address, flags: &[&str], expected: &str| {
        let output = dump(address, flags, &to);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            said(&output).contains(expected),
            "{expected}: {}",
            said(&output)
        );
    };
    let server = TestServer::start(&["--requirepass", "secret"]);
    refused(server.address, &[], "requires a password; --requirepass");
    refused(server.address, &["--requirepass", "other"], "WRONGPASS");
    let flags = ["--requirepass", "secret", "--snapshot", "monday"];
    refused(server.address, &flags, "the server has no snapshot monday");
    let dumped = dump(server.address, &flags[..2], &to);
    assert!(dumped.status.success(), "{}", said(&dumped));
    assert!(said(&dumped).contains("0 keys written"));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for (answer, expected) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak RESP"),
        ("", "has closed the connection"),
        (
            "-ERR unknown command 'SNAPSHOT'\r\n",
            "is not Pando, or an older one",
        ),
        (
            "-DENIED protected mode\r\n",
            "refuses SNAPSHOT CREATE: DENIED",
        ),
    ] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                // What was asked for is read, so that the answer is not lost by a reset.
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            refused(address, &[], expected);
        });
    }
    drop(listener);
    refused(address, &[], &format!("cannot reach {address}: "));
}
