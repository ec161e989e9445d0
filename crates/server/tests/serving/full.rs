//! A disk without room, under a real server: a limit on the size of its files, put on and taken off
//! from outside while it serves (no file system of a test's own, which only root could mount). A
//! segment is a file of one size, so below that no new one can be made, and the present one takes
//! what lies below the limit.

use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::datagrams::Datagrams;
use crate::harness::{Folder, PATIENCE, TestServer, Wire, request};

/// Bytes of a segment: the smallest that can be set.
const SEGMENT: &str = "1mb";
/// Three quarters of a segment are below it, no whole one is.
pub(crate) const ONLY_WHAT_IS_THERE: u64 = 900 * 1024;
/// The header of a file.
const ALMOST_NOTHING: u64 = 4096;
/// Writes that fill two segments, and so much that a checkpoint of it is above any of the limits.
const PRELOADED_MIN: usize = 150;

pub(crate) fn limit(server: &TestServer, bytes: Option<u64>) {
    let pid = Pid::from_raw(server.pid().cast_signed()).expect("a process");
    // The server has inherited this one.
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    prlimit(Some(pid), Resource::Fsize, Rlimit { current, maximum }).expect("a limit");
}

fn start(folder: &Folder) -> TestServer {
    let data = folder.path("data").display().to_string();
    let flags = ["--durability", "sync", "--threads", "1", "--data-dir"];
    let more = [
        "--log-segment-size",
        SEGMENT,
        "--checkpoint-log-size",
        "1gb",
        "--memcached-port",
        "0",
        "--memcached-udp-port",
        "0",
    ];
    TestServer::start(&[&flags[..], &[&data], &more].concat())
}

/// Sends a write and reads its answer, one line.
fn answer(wire: &mut Wire, arguments: &[&str]) -> String {
    let arguments: Vec<&[u8]> = arguments.iter().map(|it| it.as_bytes()).collect();
    wire.send(request(&arguments));
    wire.line()
}

/// A value that no other one is like: the log would hold the difference alone.
pub(crate) fn value(count: usize) -> String {
    let letter = char::from(b'a' + (count % 26) as u8);
    letter.to_string().repeat(16 * 1024)
}

/// Fills segments, up to the beginning of one; returns how many writes that took.
fn preload(wire: &mut Wire, key: impl Fn(usize) -> String) -> usize {
    let mut segments = String::new();
    for count in 0.. {
        wire.ask(&["SET", &key(count), &value(count)], "+OK\r\n");
        let figures = wire.ask_any(&["INFO", "persistence"]);
        let now = figures
            .lines()
            .find(|line| line.starts_with("log_segments"));
        let now = now.expect("a figure").to_owned();
        if count > PRELOADED_MIN && now != segments {
            return count + 1;
        }
        segments = now;
    }
    unreachable!("a segment ends")
}

/// Writes until one is refused; returns how many were acknowledged since the start.
fn write_until_refused(wire: &mut Wire, from: usize, key: impl Fn(usize) -> String) -> usize {
    for count in from..2000 {
        let said = answer(wire, &["SET", &key(count), &value(count)]);
        if said != "+OK" {
            assert!(
                said.starts_with("-MISCONF") && said.contains("room on the disk"),
                "{said}"
            );
            return count;
        }
    }
    panic!("nothing was refused");
}

/// Writes until one is refused, or until the log is full while one waits: room may be back before
/// the next one.
fn write_until_full(server: &TestServer, wire: &mut Wire, from: usize) {
    let mut observer = server.connect();
    observer.ask(&["CLIENT", "DURABILITY", "INTERVAL"], "+OK\r\n");
    for count in from..2000 {
        wire.send(request(&[b"SET", b"k0", value(count).as_bytes()]));
        let mut was_full = false;
        server.wait_until("an answer", || {
            let figures = observer.ask_any(&["INFO", "persistence"]);
            was_full |= figures.contains("log_state:full");
            wire.has_input()
        });
        let said = wire.line();
        assert!(said == "+OK" || said.starts_with("-MISCONF"), "{said}");
        if was_full || said != "+OK" {
            return;
        }
    }
    panic!("the log was never full");
}

fn write_until_taken(wire: &mut Wire) {
    let deadline = Instant::now() + PATIENCE;
    while answer(wire, &["SET", "again", "1"]) != "+OK" {
        assert!(
            Instant::now() < deadline,
            "there is room, and no write is taken"
        );
        std::thread::yield_now();
    }
}

fn expect_kept(wire: &mut Wire, keys: usize) {
    for key in 0..keys {
        wire.ask(&["STRLEN", &format!("k{key}")], ":16384\r\n");
    }
}

/// memcached clients are refused what RESP's are, over TCP and UDP, and read on.
fn expect_memcached_refused(server: &TestServer) {
    let mut wire = server.connect_memcached();
    let mut datagrams = Datagrams::connect(server.memcached_udp[0]);
    for request in [
        "set k0 0 0 1|x",
        "add new 0 0 1|x",
        "append k0 0 0 1|x",
        "cas k0 0 0 1 1|x",
        "ms k0 1|x",
        "touch k0 0",
        "gat 0 k0",
        "incr new 1",
        "ma new N0",
        "mg new N0 v",
        "mg k0 T30",
        "mg k0 R30",
    ] {
        wire.send(format!("{request}|").replace('|', "\r\n"));
        let said = wire.line();
        let refused = |said: &str| {
            said.starts_with("SERVER_ERROR MISCONF") && said.contains("room on the disk")
        };
        assert!(refused(&said), "{request}: {said}");
        let id = datagrams.request(format!("{request}|").replace('|', "\r\n").as_bytes());
        let said = datagrams.reply(id);
        assert!(refused(&said), "{request}: {said}");
    }
    wire.send("set k0 0 0 1 noreply\r\nx\r\nmg k0 s\r\nmg new\r\ndelete new\r\n");
    wire.expect("HD s16384\r\nEN\r\nNOT_FOUND\r\n");
}

#[test]
fn a_full_disk_refuses_writes_and_loses_none() {
    let folder = Folder::new();
    let server = start(&folder);
    let mut wire = server.connect();
    wire.ask(&["SET", "superfluous", "1"], "+OK\r\n");
    let loaded = preload(&mut wire, |key| format!("k{key}"));
    limit(&server, Some(ONLY_WHAT_IS_THERE));
    let written = write_until_refused(&mut wire, loaded, |key| format!("k{key}"));
    // Whatever the promise, and in a transaction; reads go on.
    wire.ask(&["CLIENT", "DURABILITY", "NONE"], "+OK\r\n");
    for refused in [
        &["EXPIRE", "k0", "9"][..],
        &["GETDEL", "k0"],
        &["HSET", "h", "f", "1"],
    ] {
        let said = answer(&mut wire, refused);
        assert!(said.starts_with("-MISCONF"), "{said}");
    }
    // But for what makes the next checkpoint smaller.
    wire.ask(&["DEL", "superfluous", "absent"], ":1\r\n");
    wire.ask(&["MULTI"], "+OK\r\n");
    assert!(answer(&mut wire, &["INCR", "counter"]).starts_with("-MISCONF"));
    assert!(answer(&mut wire, &["EXEC"]).starts_with("-EXECABORT"));
    wire.ask(&["CLIENT", "DURABILITY", "SYNC"], "+OK\r\n");
    expect_memcached_refused(&server);
    expect_kept(&mut wire, written);
    wire.ask(&["EXISTS", "counter", "h"], ":0\r\n");
    // No part of a checkpoint is above the limit either, and that is said.
    let said = answer(&mut wire, &["SAVE"]);
    assert!(
        said.starts_with('-') && said.contains("checkpoint-"),
        "{said}"
    );
    assert!(
        wire.ask_any(&["INFO", "persistence"])
            .contains("log_state:full")
    );
    expect_kept(&mut server.connect(), written);
    limit(&server, None);
    write_until_taken(&mut wire);
    drop(server);
    let server = start(&folder);
    let mut wire = server.connect();
    expect_kept(&mut wire, written);
    wire.ask(&["GET", "again"], "$1\r\n1\r\n");
    let expected = format!(":{}\r\n", written + 1);
    wire.ask(&["DBSIZE"], &expected);
}

/// Where old segments are what takes the room, checkpoints make some, unasked.
#[test]
fn a_full_disk_has_room_again_after_checkpoints() {
    let folder = Folder::new();
    let server = start(&folder);
    let mut wire = server.connect();
    let loaded = preload(&mut wire, |_| "k0".to_owned());
    limit(&server, Some(ONLY_WHAT_IS_THERE));
    write_until_full(&server, &mut wire, loaded);
    write_until_taken(&mut wire);
    // Killed while the limit stands.
    drop(server);
    let server = start(&folder);
    let mut wire = server.connect();
    expect_kept(&mut wire, 1);
    wire.ask(&["GET", "again"], "$1\r\n1\r\n");
}

/// Even what was taken before the disk was found full is not lost: it waits.
#[test]
fn what_a_full_disk_could_not_take_is_written_later() {
    let folder = Folder::new();
    let server = start(&folder);
    let (mut wire, mut waiting, mut other) = (server.connect(), server.connect(), server.connect());
    waiting.expect_served();
    other.ask(&["CLIENT", "DURABILITY", "INTERVAL"], "+OK\r\n");
    wire.ask(&["SET", "k", "before"], "+OK\r\n");
    for key in 0..4 {
        wire.ask(&["SET", &format!("k{key}"), &value(key)], "+OK\r\n");
    }
    // At once: a log at rest would find out by itself that there is no room.
    limit(&server, Some(ALMOST_NOTHING));
    waiting.send(request(&[b"SET", b"k", b"after"]));
    server.wait_until("the log is full", || {
        other
            .ask_any(&["INFO", "persistence"])
            .contains("log_state:full")
    });
    assert!(!waiting.has_input(), "it is not on disk");
    // What is can be read with the promise of `sync`, what is not with less.
    expect_kept(&mut server.connect(), 4);
    other.ask(&["GET", "k"], "$5\r\nafter\r\n");
    let said = answer(&mut other, &["SET", "more", "1"]);
    assert!(said.starts_with("-MISCONF"), "{said}");
    limit(&server, None);
    waiting.expect("+OK\r\n");
    write_until_taken(&mut other);
    drop(server);
    let server = start(&folder);
    let mut wire = server.connect();
    wire.ask(&["GET", "k"], "$5\r\nafter\r\n");
    wire.ask(&["EXISTS", "more"], ":0\r\n");
    expect_kept(&mut wire, 4);
}

/// What was answered before the disk was found full, and never found room: whoever stops the server
/// is told.
#[test]
fn a_stop_that_loses_what_was_answered_is_a_failure() {
    let folder = Folder::new();
    let server = start(&folder);
    let mut wire = server.connect();
    wire.ask(&["SET", "k", "before"], "+OK\r\n");
    limit(&server, Some(ALMOST_NOTHING));
    wire.ask(&["CLIENT", "DURABILITY", "INTERVAL"], "+OK\r\n");
    wire.ask(&["SET", "k", "after"], "+OK\r\n");
    server.wait_until("the log is full", || {
        wire.ask_any(&["INFO", "persistence"])
            .contains("log_state:full")
    });
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
}
