//! Servers that follow each other, as clients and operators see it: chains, kills, a network that
//! cuts and stalls, and what goes wrong when the other end is not what it should be.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::harness::{Folder, TestServer};

fn ask(connection: &mut redis::Connection, words: &[&str]) -> redis::RedisResult<redis::Value> {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query(connection)
}

pub(crate) fn ok(server: &TestServer, words: &[&str]) {
    ask(&mut server.connection(), words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

pub(crate) fn error(server: &TestServer, words: &[&str]) -> String {
    let refused = ask(&mut server.connection(), words);
    let refused = refused.expect_err("it is refused");
    format!("{} {refused}", refused.code().unwrap_or_default())
}

/// A field of INFO replication.
pub(crate) fn info(server: &TestServer, field: &str) -> String {
    let mut connection = server.connection();
    let text: String = redis::cmd("INFO").query(&mut connection).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_default().to_owned()
}

/// How replicas began: with a full copy, where they stood, with a copy although they stood there.
fn syncs(server: &TestServer) -> [String; 3] {
    ["full", "partial_ok", "partial_err"].map(|count| info(server, &format!("sync_{count}")))
}

pub(crate) fn follow(server: &TestServer, address: SocketAddr) {
    let port = address.port().to_string();
    ok(server, &["REPLICAOF", "127.0.0.1", &port]);
}

pub(crate) fn wait_for_link(server: &TestServer) {
    server.wait_until("the link is up", || {
        info(server, "master_link_status") == "up"
    });
}

/// Every key with its value, in order; none if a copy replaced it meanwhile.
pub(crate) fn content(server: &TestServer) -> Vec<(String, Option<String>)> {
    let mut connection = server.connection();
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    keys.sort_unstable();
    let mut value = |key| redis::cmd("GET").arg(key).query(&mut connection).unwrap();
    let values: Vec<Option<String>> = keys.iter().map(&mut value).collect();
    keys.into_iter().zip(values).collect()
}

pub(crate) fn wait_until_same(primary: &TestServer, replica: &TestServer) {
    replica.wait_until("both have the same", || {
        let (one, other) = (content(primary), content(replica));
        one == other && !one.is_empty()
    });
}

/// Waits until the replicas of a primary have on disk what they have been sent, and so where they
/// stand: a link that is up says only that its data are served.
pub(crate) fn wait_until_on_disk(primary: &TestServer) {
    let mut connection = primary.connection();
    ask(&mut connection, &["SET", "on disk", "there"]).unwrap();
    primary.wait_until("it is on disk there", || {
        let replicas: i64 = info(primary, "connected_slaves").parse().unwrap();
        let mut command = redis::cmd("WAITAOF");
        let arguments = &[0, replicas, 100];
        let both: (i64, i64) = command.arg(arguments).query(&mut connection).unwrap();
        both.1 >= replicas.max(1)
    });
}

/// A client that writes until it is told to stop, or the server is gone. It runs ahead of replicas
/// only as far as a backlog takes, however slow they are.
pub(crate) fn writer(server: &TestServer, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let (client, stop) = (server.client(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut pipe = redis::pipe();
            for _ in 0..20 {
                let key = format!("key{}", written % 500);
                let value = format!("{written}{}", "x".repeat(written as usize % 300));
                pipe.cmd("SET").arg(key).arg(value).ignore();
                written += 1;
            }
            pipe.cmd("WAIT").arg(1).arg(10).ignore();
            if pipe.query::<()>(&mut connection).is_err() {
                break;
            }
        }
        written
    })
}

#[test]
fn a_chain_of_three_follows_through_kills_of_each() {
    let folder = Folder::new();
    let data = |name: &str| folder.path(name).display().to_string();
    let kept = |name: &str, more: &[&str]| {
        let data = data(name);
        let flags = ["--durability", "interval", "--data-dir", &data];
        TestServer::start(&[&flags[..], more].concat())
    };
    let top = kept("top", &[]);
    let mut old = redis::pipe();
    for key in 0..2000 {
        old.cmd("SET")
            .arg(format!("old{key}"))
            .arg("value")
            .ignore();
    }
    old.query::<()>(&mut top.connection()).unwrap();
    let middle = kept("middle", &["--engine", "mercury", "--threads", "1"]);
    follow(&middle, top.address);
    let end = TestServer::start(&["--threads", "3"]);
    follow(&end, middle.address);
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(&top, &stop);
    wait_for_link(&end);
    wait_until_on_disk(&top);

    // The one in the middle dies and comes back, elsewhere.
    middle.signal("KILL");
    middle.wait();
    let port = top.address.port().to_string();
    let target = format!("127.0.0.1 {port}");
    let more = [
        "--engine",
        "mercury",
        "--threads",
        "2",
        "--replicaof",
        &target,
    ];
    let middle = kept("middle", &more);
    assert!(error(&middle, &["SET", "k", "v"]).contains("READONLY"));
    follow(&end, middle.address);
    wait_for_link(&middle);
    assert_eq!(
        info(&middle, "master_full_copies"),
        "0",
        "it goes on where it stood"
    );
    wait_for_link(&end);
    stop.store(true, Ordering::Relaxed);
    assert!(writing.join().unwrap() > 0);
    wait_until_same(&top, &middle);
    wait_until_same(&top, &end);

    // The first dies; the one in the middle is promoted, and the end goes on where it stood.
    top.signal("KILL");
    top.wait();
    let copies = info(&end, "master_full_copies");
    ok(&middle, &["REPLICAOF", "NO", "ONE"]);
    ok(&middle, &["SET", "promoted", "yes"]);
    wait_until_same(&middle, &end);
    assert_eq!(info(&end, "master_full_copies"), copies);
    assert_eq!(info(&middle, "role"), "master");
    // What was the first follows what was in the middle.
    let top = kept("top", &[]);
    follow(&top, middle.address);
    wait_until_same(&middle, &top);
}

/// Positions outlive a restart of the primary, and its loss.
#[test]
fn a_restart_and_a_promotion_cost_no_full_copy() {
    let folder = Folder::new();
    let kept = |name: &str| {
        let data = folder.path(name).display().to_string();
        TestServer::start(&["--durability", "interval", "--data-dir", &data])
    };
    let (top, one, two) = (kept("top"), kept("one"), kept("two"));
    ok(&top, &["SET", "k", "first"]);
    for replica in [&one, &two] {
        follow(replica, top.address);
        wait_until_same(&top, replica);
    }
    top.signal("KILL");
    top.wait();
    let top = kept("top");
    ok(&top, &["SET", "while", "nobody follows"]);
    let go_on = |primary: &TestServer, replicas: [&TestServer; 2]| {
        for replica in replicas {
            follow(replica, primary.address);
            wait_until_same(primary, replica);
            wait_for_link(replica);
            assert_eq!(info(replica, "master_full_copies"), "0");
        }
    };
    go_on(&top, [&one, &two]);
    // The old primary is killed, and comes back below one of its replicas.
    ok(&top, &["SET", "k", "second"]);
    wait_until_same(&top, &one);
    wait_until_same(&top, &two);
    top.signal("KILL");
    top.wait();
    ok(&one, &["REPLICAOF", "NO", "ONE"]);
    ok(&one, &["SET", "k", "promoted"]);
    go_on(&one, [&two, &kept("top")]);
    assert_eq!(syncs(&one), ["0", "2", "0"]);
}

/// One that began empty, took a copy and was promoted does not look empty to whom it had it from.
#[test]
fn an_old_primary_that_is_ahead_takes_a_copy_of_a_replica_that_began_empty() {
    let folder = Folder::new();
    let kept = |name: &str| {
        let data = folder.path(name).display().to_string();
        TestServer::start(&["--durability", "interval", "--data-dir", &data])
    };
    let (top, below) = (kept("top"), kept("below"));
    ok(&top, &["SET", "k", "both"]);
    follow(&below, top.address);
    wait_until_same(&top, &below);
    ok(&below, &["REPLICAOF", "NO", "ONE"]);
    ok(&below, &["SET", "promoted", "yes"]);
    let mut connection = top.connection();
    ask(&mut connection, &["SET", "ahead", "lost"]).unwrap();
    ask(&mut connection, &["WAITAOF", "1", "0", "0"]).unwrap();
    top.signal("KILL");
    top.wait();
    let top = kept("top");
    follow(&top, below.address);
    wait_until_same(&below, &top);
    wait_for_link(&top);
    assert_eq!(info(&top, "master_full_copies"), "1");
    assert_eq!(syncs(&below), ["1", "0", "1"]);
    // A stranger that began empty is refused all the same.
    let stranger = kept("stranger");
    follow(&below, stranger.address);
    below.wait_until("the stranger is refused", || {
        info(&below, "master_link_error").contains("began empty")
    });
}

/// Who leaves a primary and comes back at once has gone a way of its own, however short.
#[test]
fn a_quick_return_brings_nothing_of_ones_own() {
    let (primary, replica) = (TestServer::start(&[]), TestServer::start(&[]));
    ok(&primary, &["SET", "k", "both"]);
    follow(&replica, primary.address);
    wait_for_link(&replica);
    let port = primary.address.port();
    for round in 0..10 {
        let mut pipe = redis::pipe();
        pipe.cmd("REPLICAOF").arg("NO").arg("ONE");
        pipe.cmd("SET").arg(format!("own{round}")).arg("lost");
        pipe.cmd("REPLICAOF")
            .arg("127.0.0.1")
            .arg(port)
            .arg("FORCE");
        pipe.exec(&mut replica.connection()).unwrap();
        wait_until_same(&primary, &replica);
    }
}

/// A proxy in front of a server. It cuts each connection after so many bytes, wherever that is.
struct Proxy {
    address: SocketAddr,
    cut_after: Arc<AtomicUsize>,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            cut_after: Arc::new(AtomicUsize::new(usize::MAX)),
            cuts: Arc::default(),
        };
        let (cut_after, cuts) = (Arc::clone(&proxy.cut_after), Arc::clone(&proxy.cuts));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(server).unwrap();
                let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || pass(&from, &to, usize::MAX));
                let (cut_after, cuts) = (Arc::clone(&cut_after), Arc::clone(&cuts));
                std::thread::spawn(move || {
                    if pass(&far, &near, cut_after.load(Ordering::Relaxed)) {
                        cuts.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        proxy
    }
}

/// Passes bytes on, so many; returns whether there were more.
fn pass(mut from: &TcpStream, mut to: &TcpStream, bytes_max: usize) -> bool {
    let (mut buffer, mut left) = (vec![0; 4096], bytes_max);
    let mut more = false;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        more = count >= left;
        let passed = to.write_all(&buffer[..count.min(left)]).is_ok();
        left = left.saturating_sub(count);
        if more || !passed {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    more
}

#[test]
fn a_link_that_is_cut_goes_on_where_it_stood() {
    let primary = TestServer::start(&[]);
    ok(&primary, &["SET", "first", "value"]);
    let proxy = Proxy::before(primary.address);
    let replica = TestServer::start(&["--engine", "mercury"]);
    follow(&replica, proxy.address);
    wait_for_link(&replica);
    // From now on in the middle of frames.
    proxy.cut_after.store(30_011, Ordering::Relaxed);
    let mut admin = primary.connection();
    ask(&mut admin, &["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(&primary, &stop);
    replica.wait_until("it is cut twice", || {
        proxy.cuts.load(Ordering::Relaxed) >= 2
    });
    proxy.cut_after.store(usize::MAX, Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    writing.join().unwrap();
    ask(&mut admin, &["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    wait_until_same(&primary, &replica);
    assert_eq!(
        info(&replica, "master_full_copies"),
        "1",
        "the ring had the rest"
    );
}

#[test]
fn what_cannot_be_followed_is_told_and_the_old_data_stay() {
    let replica = TestServer::start(&[]);
    ok(&replica, &["SET", "own", "data"]);
    let why = |what: &str, part: &str| {
        replica.wait_until(what, || info(&replica, "master_link_error").contains(part));
        let mut connection = replica.connection();
        let own: String = redis::cmd("GET").arg("own").query(&mut connection).unwrap();
        assert_eq!(own, "data", "{what}");
        assert_eq!(info(&replica, "master_link_status"), "down", "{what}");
    };
    follow(&replica, replica.address);
    why("itself", "cannot follow itself");
    let strange = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = strange.local_addr().unwrap();
    let answers = [
        "junk\r\n",
        "+OK id\r\n$3\r\nabc\r\n",
        "+OK id\r\n$99999999\r\n",
        "*1\r\n$",
    ];
    std::thread::spawn(move || {
        for (index, stream) in strange.incoming().flatten().enumerate() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(answers[index % answers.len()].as_bytes());
        }
    });
    follow(&replica, address);
    why("no RESP", "does not speak RESP");
    why("a frame that is cut", "too short");
    why("a frame that is too long", "no frame");
    let secret = TestServer::start(&["--requirepass", "secret"]);
    follow(&replica, secret.address);
    why("no password", "NOAUTH");
    ok(&replica, &["CONFIG", "SET", "masterauth", "wrong"]);
    why("a wrong password", "WRONGPASS");
    let fewer = TestServer::start(&["--databases", "3"]);
    ok(&replica, &["CONFIG", "SET", "masterauth", ""]);
    follow(&replica, fewer.address);
    why("another number of databases", "3 databases");
    let empty = TestServer::start(&[]);
    follow(&replica, empty.address);
    why("a primary that began empty", "began empty");
    let port = empty.address.port().to_string();
    ok(&replica, &["REPLICAOF", "127.0.0.1", &port, "FORCE"]);
    wait_for_link(&replica);
    assert!(content(&replica).is_empty());
    ok(&replica, &["REPLICAOF", "NO", "ONE"]);
    ok(&replica, &["SET", "own", "again"]);
    assert!(error(&replica, &["PREPLICATE", "ACK", "1", "1", "1", "1"]).contains("is none"));
}

#[test]
fn clients_wait_for_replicas_and_are_told_when_there_are_none() {
    let folder = Folder::new();
    let data = folder.path("data").display().to_string();
    let primary = TestServer::start(&["--min-replicas-to-write", "1"]);
    assert!(error(&primary, &["SET", "k", "v"]).contains("NOREPLICAS"));
    let replica = TestServer::start(&["--durability", "sync", "--data-dir", &data]);
    follow(&replica, primary.address);
    wait_for_link(&replica);
    primary.wait_until("writes are taken", || {
        ask(&mut primary.connection(), &["SET", "k", "v"]).is_ok()
    });
    let mut connection = primary.connection();
    for number in 0..20 {
        ask(&mut connection, &["SET", "k", &number.to_string()]).unwrap();
        let has: i64 = redis::cmd("WAIT")
            .arg(1)
            .arg(0)
            .query(&mut connection)
            .unwrap();
        assert_eq!(has, 1);
        let seen: i64 = redis::cmd("GET")
            .arg("k")
            .query(&mut replica.connection())
            .unwrap();
        assert_eq!(seen, number);
    }
    let both: (i64, i64) = redis::cmd("WAITAOF")
        .arg(0)
        .arg(1)
        .arg(0)
        .query(&mut connection)
        .unwrap();
    assert_eq!(both.1, 1);
    let few: i64 = redis::cmd("WAIT")
        .arg(2)
        .arg(20)
        .query(&mut connection)
        .unwrap();
    assert_eq!(few, 1, "the time is over");
    let clients: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut connection)
        .unwrap();
    assert!(clients.contains("flags=S"), "{clients}");
    let role: (String, i64, Vec<(String, String, String)>) =
        redis::cmd("ROLE").query(&mut connection).unwrap();
    assert_eq!((role.0.as_str(), role.2.len()), ("master", 1));
    assert!(error(&replica, &["DEL", "k"]).contains("READONLY"));

    ok(
        &replica,
        &["CONFIG", "SET", "replica-serve-stale-data", "no"],
    );
    ok(&replica, &["GET", "k"]);
    drop(connection);
    primary.signal("KILL");
    primary.wait();
    replica.wait_until("the link is down", || {
        info(&replica, "master_link_status") == "down"
    });
    replica.wait_until("it answers no more", || {
        ask(&mut replica.connection(), &["GET", "k"]).is_err()
    });
    assert!(error(&replica, &["GET", "k"]).contains("MASTERDOWN"));
    ok(&replica, &["REPLICAOF", "NO", "ONE"]);
    ok(&replica, &["INCR", "k"]);
}

#[test]
fn a_full_copy_may_take_the_place_of_the_old_data() {
    let (primary, replica) = (TestServer::start(&[]), TestServer::start(&[]));
    let set = ["CONFIG", "SET", "replica-full-copy", "elsewhere"];
    assert!(error(&replica, &set).contains("one of"));
    ok(
        &replica,
        &["CONFIG", "SET", "replica-full-copy", "in-place"],
    );
    ok(&replica, &["SET", "old", "1"]);
    ok(&primary, &["SET", "k", "1"]);
    let port = primary.address.port().to_string();
    ok(&replica, &["REPLICAOF", "127.0.0.1", &port, "FORCE"]);
    replica.wait_until("the copy is in", || {
        ask(&mut replica.connection(), &["GET", "k"]).is_ok_and(|value| value != redis::Value::Nil)
    });
    assert_eq!(
        ask(&mut replica.connection(), &["EXISTS", "old"]),
        Ok(redis::Value::Int(0))
    );
    assert_eq!(syncs(&primary), ["1", "0", "0"]);
    ok(&replica, &["REPLICAOF", "NO", "ONE"]);
    ok(&replica, &["INCR", "k"]);
}

/// Nothing that was acknowledged is lost, and one server at a time takes writes.
#[test]
fn a_primary_hands_over_under_load() {
    let first = TestServer::start(&[]);
    assert!(error(&first, &["FAILOVER"]).contains("requires connected replicas"));
    assert!(error(&first, &["FAILOVER", "ABORT"]).contains("No failover"));
    let second = TestServer::start(&["--engine", "mercury"]);
    follow(&second, first.address);
    wait_for_link(&second);
    assert!(error(&second, &["FAILOVER"]).contains("is a replica"));
    let client = first.client();
    let writing = std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        let mut acknowledged = 0;
        loop {
            match ask(&mut connection, &["INCR", "count"]) {
                Ok(_) => acknowledged += 1,
                Err(error) => return (acknowledged, error.code().map(str::to_owned)),
            }
        }
    });
    first.wait_until("there is load", || {
        let mut connection = first.connection();
        let count: Option<i64> = redis::cmd("GET")
            .arg("count")
            .query(&mut connection)
            .unwrap();
        count > Some(200)
    });
    let (host, port) = ("127.0.0.1", second.address.port().to_string());
    assert!(error(&first, &["FAILOVER", "TO", host, "1"]).contains("not a replica"));
    ok(&first, &["FAILOVER", "TO", host, &port, "TIMEOUT", "20000"]);
    let (acknowledged, code) = writing.join().unwrap();
    assert_eq!(code.as_deref(), Some("READONLY"));
    second.wait_until("it is promoted", || info(&second, "role") == "master");
    wait_for_link(&first);
    for server in [&second, &first] {
        let mut connection = server.connection();
        let count: i64 = redis::cmd("GET")
            .arg("count")
            .query(&mut connection)
            .unwrap();
        assert_eq!(count, acknowledged);
    }
    ok(&second, &["INCR", "count"]);
    wait_until_same(&second, &first);
    // A shutdown leaves nothing behind that the other does not have.
    let mut connection = second.connection();
    let mut pipe = redis::pipe();
    for key in 0..5000 {
        pipe.cmd("SET").arg(key).arg("x".repeat(100)).ignore();
    }
    pipe.query::<()>(&mut connection).unwrap();
    assert!(
        ask(&mut connection, &["SHUTDOWN"]).is_err(),
        "the connection ends"
    );
    second.wait();
    let keys: i64 = redis::cmd("DBSIZE").query(&mut first.connection()).unwrap();
    assert_eq!(keys, 5001);
}

/// A signal waits for replicas as SHUTDOWN does.
#[test]
fn a_signal_leaves_nothing_behind_that_a_replica_does_not_have() {
    let (primary, replica) = (TestServer::start(&[]), TestServer::start(&[]));
    follow(&replica, primary.address);
    wait_for_link(&replica);
    replica.signal("STOP");
    // More than the window and the sockets take.
    let mut pipe = redis::pipe();
    for key in 0..200 {
        pipe.cmd("SET").arg(key).arg("x".repeat(100_000)).ignore();
    }
    pipe.query::<()>(&mut primary.connection()).unwrap();
    primary.signal("TERM");
    replica.signal("CONT");
    primary.wait();
    let keys: i64 = redis::cmd("DBSIZE")
        .query(&mut replica.connection())
        .unwrap();
    assert_eq!(keys, 200);
}

/// A replica that takes nothing costs its primary a window, and its clients nothing.
#[test]
fn a_replica_that_stalls_holds_nobody_up() {
    let primary = TestServer::start(&["--repl-timeout", "2"]);
    let mut stalled = primary.connect();
    let run_id = "0123456789".repeat(4);
    stalled.send(format!("PREPLICATE BEGIN 5 {run_id} 1 0 0\r\n"));
    // It counts from then on, for two seconds at least.
    assert!(stalled.line().starts_with("+OK "), "it is fed");
    let mut connection = primary.connection();
    let value = "v".repeat(100_000);
    for key in 0..400 {
        ask(&mut connection, &["SET", &format!("k{}", key % 10), &value]).unwrap();
    }
    primary.wait_until("it is given up", || {
        info(&primary, "connected_slaves") == "0"
    });
    drop(stalled);
    ask(&mut connection, &["SET", "k", "v"]).unwrap();
    assert!(primary.resident_bytes() < 300 << 20);
}
