//! Deadlines of hash fields as clients of Redis 7.4 and 8.0 use them, on every engine, with a log
//! or a pool.

use crate::harness::{Folder, Pool, TestServer, Wire};

/// Asks lines. Expected are lines with blanks between them, or one error.
#[track_caller]
fn check(wire: &mut Wire, expected: &[(&str, &str)]) {
    for (line, reply) in expected {
        let words: Vec<&str> = line.split(' ').collect();
        let is_error = reply.starts_with('-');
        let reply = if is_error {
            (*reply).to_owned()
        } else {
            reply.replace(' ', "\r\n")
        };
        wire.ask(&words, &format!("{reply}\r\n"));
    }
}

/// The number that a command answers with.
fn count(wire: &mut Wire, line: &str) -> String {
    wire.send(format!("{line}\r\n"));
    wire.line()
}

/// What it leaves, a restarted server has ([`are_as_left`]).
fn fields_have_deadlines(server: &TestServer) {
    let mut wire = server.connect();
    check(
        &mut wire,
        &[
            ("HSET h a 1 b 2 c 3 d 4 e 5", ":5"),
            ("HEXPIRE h 100 FIELDS 3 a b none", "*3 :1 :1 :-2"),
            ("HEXPIRE h 50 GT FIELDS 1 a", "*1 :0"),
            ("HPEXPIRE h 90000 LT FIELDS 1 a", "*1 :1"),
            ("HTTL h FIELDS 3 b c none", "*3 :100 :-1 :-2"),
            ("HEXPIREAT h 4000000000 FIELDS 1 c", "*1 :1"),
            ("HPEXPIREAT h 4000000000001 FIELDS 1 d", "*1 :1"),
            ("HEXPIRETIME h FIELDS 2 c d", "*2 :4000000000 :4000000001"),
            ("HPEXPIRETIME h FIELDS 1 d", "*1 :4000000000001"),
            ("HPERSIST h FIELDS 2 b e", "*2 :1 :-1"),
            ("HPTTL h FIELDS 1 b", "*1 :-1"),
            ("HGETEX h EXAT 4100000000 FIELDS 2 e none", "*2 $1 5 $-1"),
            ("HGETEX h PERSIST FIELDS 1 d", "*1 $1 4"),
            ("HSETEX h FNX PXAT 4200000000000 FIELDS 1 f 6", ":1"),
            ("HSETEX h FNX FIELDS 2 f 7 g 7", ":0"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 f 8", ":1"),
            ("HGETDEL h FIELDS 2 b none", "*2 $1 2 $-1"),
            (
                "HSCAN h 0 NOVALUES MATCH [a-d]",
                "*2 $1 0 *3 $1 a $1 c $1 d",
            ),
            (
                "HGET h FIELDS 1 a",
                "-ERR wrong number of arguments for 'hget' command",
            ),
            (
                "HEXPIRE h 9223372036854775807 FIELDS 1 a",
                "-ERR invalid expire time in 'hexpire' command",
            ),
            ("SET s x", "+OK"),
            (
                "HTTL s FIELDS 1 a",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            // In MULTI, and in the past.
            ("HSET gone a 1 b 2", ":2"),
            ("MULTI", "+OK"),
            ("HEXPIRE gone 0 FIELDS 1 a", "+QUEUED"),
            ("HPEXPIREAT gone 1 FIELDS 1 b", "+QUEUED"),
            ("EXISTS gone", "+QUEUED"),
            ("EXEC", "*3 *1 :2 *1 :2 :0"),
            ("HSET brief a 1 b 2 c 3", ":3"),
            ("HPEXPIRE brief 30 FIELDS 2 a b", "*2 :1 :1"),
            ("HSETEX briefer PX 30 FIELDS 1 a 1", ":1"),
        ],
    );
    server.wait_until("fields have expired", || {
        count(&mut wire, "HLEN brief") == ":1"
    });
    server.wait_until("a hash without fields is gone", || {
        count(&mut wire, "EXISTS briefer") == ":0"
    });
    server.wait_until("expired fields are counted", || {
        let stats = wire.ask_any(&["INFO", "stats"]);
        stats.contains("expired_subkeys:") && !stats.contains("expired_subkeys:0\r\n")
    });
    are_as_left(&mut wire);
}

fn are_as_left(wire: &mut Wire) {
    check(
        wire,
        &[
            ("HGETALL brief", "*2 $1 c $1 3"),
            ("EXISTS briefer gone", ":0"),
            ("HKEYS h", "*5 $1 a $1 c $1 d $1 e $1 f"),
            (
                "HEXPIRETIME h FIELDS 4 c d e f",
                "*4 :4000000000 :-1 :4100000000 :4200000000",
            ),
            ("HGET h f", "$1 8"),
        ],
    );
}

fn fields_outlast_a_restart(engine: &str) {
    let folder = Folder::new();
    let data = folder.path("data");
    let data = data.to_str().expect("text");
    let start = || {
        TestServer::start(&[
            "--engine",
            engine,
            "--threads",
            "2",
            "--durability",
            "sync",
            "--data-dir",
            data,
        ])
    };
    let server = start();
    fields_have_deadlines(&server);
    server.signal("KILL");
    server.wait();
    are_as_left(&mut start().connect());
}

#[test]
fn fields_have_deadlines_on_masstree() {
    fields_outlast_a_restart("masstree");
}

#[test]
fn fields_have_deadlines_on_mercury() {
    fields_outlast_a_restart("mercury");
}

#[test]
fn fields_have_deadlines_on_minuet() {
    fields_outlast_a_restart("minuet");
}

#[test]
fn fields_have_deadlines_in_a_pool() {
    let pool = Pool::new("fields");
    let server = pool.serve(&["--threads", "2"]);
    fields_have_deadlines(&server);
    server.signal("KILL");
    server.wait();
    are_as_left(&mut pool.serve(&[]).connect());
}
