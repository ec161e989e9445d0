//! memcached clients: their answers, keys shared with RESP, and input that no client should send.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::harness::{Folder, PATIENCE, TestServer, Wire};

const MEMCACHED: &[&str] = &["--memcached-port", "0"];

fn start(flags: &[&str]) -> TestServer {
    TestServer::start(&[MEMCACHED, flags].concat())
}

/// Sends and expects, line ends as `|`.
#[track_caller]
fn ask(wire: &mut Wire, requests: &str, replies: &str) {
    wire.send(requests.replace('|', "\r\n"));
    wire.expect(replies.replace('|', "\r\n"));
}

/// The lines of an answer before its `END`.
fn stats(wire: &mut Wire, words: &str) -> Vec<String> {
    wire.send(format!("{words}\r\n"));
    let mut lines = Vec::new();
    loop {
        let line = wire.line();
        if line == "END" {
            return lines;
        }
        lines.push(line);
    }
}

#[track_caller]
fn expect_served(wire: &mut Wire) {
    ask(wire, "mn|", "MN|");
}

#[test]
fn both_protocols_are_served_on_the_same_keys() {
    let server = start(&[]);
    let (mut memcached, mut resp) = (server.connect_memcached(), server.connect());
    ask(&mut memcached, "set k 7 0 2|41|", "STORED|");
    resp.ask(&["INCR", "k"], ":42\r\n");
    ask(
        &mut memcached,
        "get k|mg k v f|",
        "VALUE k 0 2|42|END|VA 2 f0|42|",
    );
    resp.ask(&["HSET", "h", "f", "v"], ":1\r\n");
    let hash = "SERVER_ERROR the value is a hash, which memcached commands do not read|";
    ask(&mut memcached, "get h|", hash);
    resp.ask(&["SET", "k", "x", "EX", "100000"], "+OK\r\n");
    ask(&mut memcached, "mg k v f|", "VA 1 f0|x|");
    memcached.send("mg k t\r\n");
    let said = memcached.line();
    let left = said.strip_prefix("HD t").and_then(|left| left.parse().ok());
    assert!(
        left.is_some_and(|left| (99_000..=100_000).contains(&left)),
        "{said}"
    );
    resp.ask(&["SELECT", "1"], "+OK\r\n");
    resp.ask(&["GET", "k"], "$-1\r\n");
    ask(&mut memcached, "flush_all|get k|", "OK|END|");
    resp.ask(&["SELECT", "0"], "+OK\r\n");
    resp.ask(&["DBSIZE"], ":0\r\n");
}

#[test]
fn requests_may_come_in_any_pieces() {
    let server = start(&[]);
    let mut wire = server.connect_memcached();
    let requests = "set k 1 0 4|a\r\nb|get k k|ms k 2 c|xy||mg k v|gets|".replace('|', "\r\n");
    // The cas token differs from run to run: it is not asked for.
    let requests = requests
        .replace("ms k 2 c", "ms k 2")
        .replace("xy\r\n\r\n", "xy\r\n");
    let replies = "STORED|VALUE k 1 4|a\r\nb|VALUE k 1 4|a\r\nb|END|HD|VA 2|xy|ERROR|";
    let replies = replies.replace('|', "\r\n");
    for byte in requests.as_bytes() {
        wire.send([*byte]);
    }
    wire.expect(&replies);
    for cut in 1..requests.len() {
        wire.send(&requests[..cut]);
        wire.send(&requests[cut..]);
        wire.expect(&replies);
    }
}

#[test]
fn a_pipeline_is_answered_in_order_whatever_its_length() {
    let server = start(&[]);
    let mut wire = server.connect_memcached();
    let mut sender = wire.clone_stream();
    let count = 20_000;
    let writer = std::thread::spawn(move || {
        for number in 0..count {
            sender.send(format!(
                "set k{number} 0 0 5\r\n{number:05}\r\nget k{number} nope\r\n"
            ));
        }
    });
    for number in 0..count {
        wire.expect(format!(
            "STORED\r\nVALUE k{number} 0 5\r\n{number:05}\r\nEND\r\n"
        ));
    }
    writer.join().unwrap();
}

#[test]
fn a_get_of_many_keys_is_answered_whole() {
    let server = start(&[]);
    let mut wire = server.connect_memcached();
    let (mut request, mut reply) = (String::from("get"), String::new());
    for number in 0..5000 {
        let value = "v".repeat(number % 40);
        wire.send(format!(
            "set key:{number} 0 0 {} noreply\r\n{value}\r\n",
            value.len()
        ));
        let _ = write!(request, " key:{number} none:{number}");
        let _ = write!(reply, "VALUE key:{number} 0 {}\r\n{value}\r\n", value.len());
    }
    wire.send(format!("{request}\r\n"));
    wire.expect(format!("{reply}END\r\n"));
}

#[test]
fn large_items_are_stored_and_larger_ones_are_thrown_away() {
    let server = start(&["--memcached-item-bytes-max", "2mb"]);
    let mut wire = server.connect_memcached();
    let value = "x".repeat(2 * 1024 * 1024);
    ask(
        &mut wire,
        &format!("set k 0 0 {}|{value}|", value.len()),
        "STORED|",
    );
    ask(
        &mut wire,
        "get k|",
        &format!("VALUE k 0 {}|{value}|END|", value.len()),
    );
    let before = server.resident_bytes();
    let mut sent = 0;
    wire.send("set k 0 0 2000000000\r\n");
    wire.expect("SERVER_ERROR object too large for cache\r\n");
    while sent < 200_000_000 {
        wire.send(&value);
        sent += value.len();
    }
    assert!(server.resident_bytes() < before + 50_000_000);
    let mut other = server.connect_memcached();
    ask(&mut other, "get k|", "END|");
}

/// Lines without an end, sizes that overflow, keys without bounds: an error, and nobody else
/// notices.
#[test]
fn hostile_input_is_refused_and_others_are_served() {
    let server = start(&[]);
    let mut other = server.connect_memcached();
    let bad = "CLIENT_ERROR bad command line format|";
    let long = "k".repeat(1900);
    for (request, reply) in [
        ("set k 0 0 -1|", bad.to_owned()),
        ("set k 0 0 -9223372036854775808|", bad.to_owned()),
        ("set k 0 0 99999999999999999999|", bad.to_owned()),
        ("set k 0 0 2147483646|", bad.to_owned()),
        (&format!("set {long} 0 0 1|"), bad.to_owned()),
        (&format!("get {long}|"), bad.to_owned()),
        (&format!("mg {long} v|"), bad.to_owned()),
        (
            &format!("mg k O{long}|"),
            "CLIENT_ERROR opaque token too long|".into(),
        ),
        ("mg k \u{ff}|", "CLIENT_ERROR invalid flag|".into()),
        ("|", "ERROR|".into()),
        ("\0\0\0|", "ERROR|".into()),
        ("*1|$4|PING|", "ERROR|ERROR|ERROR|".into()),
    ] {
        let mut wire = server.connect_memcached();
        ask(&mut wire, request, &reply);
        expect_served(&mut wire);
        expect_served(&mut other);
    }
}

/// What tools that show a cache's keys ask for, on engines with an order of keys and without.
#[test]
fn items_are_listed() {
    for engine in ["masstree", "mercury"] {
        let server = start(&["--engine", engine]);
        let mut wire = server.connect_memcached();
        ask(&mut wire, "stats cachedump 1 0|", "END|");
        ask(&mut wire, "set a 0 0 3|xyz|", "STORED|");
        ask(&mut wire, "set b 0 4102444800 0||", "STORED|");
        let mut resp = server.connect();
        resp.ask(&["SET", "no item", "x"], "+OK\r\n");
        resp.ask(&["HSET", "h", "f", "x"], ":1\r\n");
        let mut lines = stats(&mut wire, "stats cachedump 1 0");
        lines.sort();
        let items = ["ITEM a [3 b; 0 s]", "ITEM b [0 b; 4102444800 s]"];
        assert_eq!(lines, items);
        assert_eq!(stats(&mut wire, "stats cachedump 1 1").len(), 1);
        ask(
            &mut wire,
            "stats cachedump 2 0|stats cachedump 64 0|stats cachedump 1|stats cachedump 1 x|",
            "END|CLIENT_ERROR Illegal slab id|CLIENT_ERROR bad command line|\
             CLIENT_ERROR bad command line format|",
        );
    }
}

#[test]
fn a_line_without_end_ends_the_connection() {
    let server = start(&[]);
    let mut wire = server.connect_memcached();
    wire.send_some("get ");
    let piece = "a ".repeat(50_000);
    for _ in 0..12 {
        wire.send_some(&piece);
    }
    wire.expect("CLIENT_ERROR line too long\r\n");
    wire.expect_closed();
    // As memcached does: no answer.
    for start in ["x", "set ", "mg k "] {
        let mut wire = server.connect_memcached();
        ask(&mut wire, "get a|", "END|");
        wire.send_some(start);
        wire.send_some("a".repeat(2_100));
        wire.expect_closed();
    }
    let mut wire = server.connect_memcached();
    ask(&mut wire, "get a|GET / HTTP/1.1|get b|", "END|");
    wire.expect_closed();
    let mut wire = server.connect_memcached();
    ask(&mut wire, "get a|quit|get b|", "END|");
    wire.expect_closed();
}

/// Who sends slowly, or never reads, keeps nobody from being served.
#[test]
fn slow_clients_wait_alone() {
    let server = start(&[]);
    let mut slow: Vec<_> = (0..200).map(|_| server.connect_memcached()).collect();
    for wire in &mut slow {
        wire.send("set slow 0 0 1000000\r\nabc");
    }
    let mut wire = server.connect_memcached();
    let value = "x".repeat(100_000);
    ask(
        &mut wire,
        &format!("set big 0 0 {}|{value}|", value.len()),
        "STORED|",
    );
    let mut deaf = server.connect_memcached();
    let taken = deaf.send_until_stuck(&b"get big big big big\r\n".repeat(100), 1 << 30);
    assert!(taken < 1 << 30);
    expect_served(&mut wire);
    ask(&mut wire, "get slow|", "END|");
    for wire in &mut slow {
        wire.send("x".repeat(100));
    }
    expect_served(&mut wire);
}

#[test]
fn a_password_is_asked_for() {
    let server = start(&["--requirepass", "secret"]);
    let mut wire = server.connect_memcached();
    let refused = "CLIENT_ERROR unauthenticated|";
    ask(&mut wire, "get k|mg k|", &format!("{refused}{refused}"));
    ask(
        &mut wire,
        "set auth 0 0 11|default bad|",
        "CLIENT_ERROR authentication failure|",
    );
    // Little is taken from a stranger.
    let large = "x".repeat(20_000);
    ask(
        &mut wire,
        &format!("set auth 0 0 20000|{large}|"),
        "CLIENT_ERROR bad authentication token format|",
    );
    // Only the length is looked at, and nothing but the password makes another.
    ask(
        &mut wire,
        "set auth a b 14 noreply|default secreX|version|",
        &format!("CLIENT_ERROR authentication failure|{refused}"),
    );
    ask(
        &mut wire,
        "set auth 0 0 14|default secretX|",
        &format!("CLIENT_ERROR bad command line termination|{refused}"),
    );
    ask(
        &mut wire,
        "set auth x y 14|default secret|get auth|",
        "STORED|END|",
    );
}

/// Its first byte is no text: who speaks it is told so, and nothing is taken for a line.
#[test]
fn the_binary_protocol_is_refused() {
    let server = start(&[]);
    let mut wire = server.connect_memcached();
    let noop = [&[0x80, 0x0a][..], &[b'\n'; 22]].concat();
    wire.send(noop);
    wire.expect("CLIENT_ERROR the binary protocol is not spoken here\r\n");
    wire.expect_closed();
    let mut wire = server.connect_memcached();
    ask(&mut wire, "mn|", "MN|");
    wire.send([0x80, b'\n']);
    wire.expect("ERROR\r\n");
}

#[test]
fn connections_are_listed_counted_and_bounded() {
    let server = start(&["--maxclients", "3"]);
    let (mut memcached, mut resp) = (server.connect_memcached(), server.connect());
    expect_served(&mut memcached);
    resp.ask(&["PING"], "+PONG\r\n");
    let list = resp.ask_any(&["CLIENT", "LIST"]);
    let line = list
        .lines()
        .find(|line| line.ends_with("protocol=memcached"));
    assert!(
        line.is_some_and(|line| line.contains(" cmd=memcached|mn ")),
        "{list}"
    );
    let info = resp.ask_any(&["INFO", "everything"]);
    let port = server.memcached.unwrap().port();
    for line in [
        "memcached_clients:1".to_owned(),
        format!("memcached_port:{port}"),
        "cmdstat_memcached|mn:calls=1,".to_owned(),
    ] {
        assert!(info.contains(&line), "{line}: {info}");
    }
    let _third = server.connect();
    let mut fourth = server.connect_memcached();
    fourth.expect("ERROR Too many open connections\r\n");
    fourth.expect_closed();
    // Idle ones are closed.
    resp.ask(&["CONFIG", "SET", "timeout", "1"], "+OK\r\n");
    memcached.expect_closed();
}

/// The answer to many keys comes in parts: a client that does not read holds no more of it than the
/// output of a connection may be, and evicts nothing.
#[test]
fn an_answer_of_many_items_waits_for_its_reader() {
    const NAMED: usize = 200;
    const OTHERS: usize = 30;
    let limits = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let server = start(&limits);
    let (mut memcached, mut resp) = (server.connect_memcached(), server.connect());
    let data = "x".repeat(1_000_000);
    for key in 0..OTHERS {
        resp.ask(&["SET", &format!("key:{key}"), &data], "+OK\r\n");
    }
    for verb in ["get", "gat 0"] {
        let keys = " key:0".repeat(NAMED);
        memcached.send(format!("{verb}{keys} absent\r\nmn\r\n"));
        let command = verb.split(' ').next().unwrap();
        server.wait_until("some of it is answered", || {
            let calls = format!("cmdstat_memcached|{command}:calls=");
            resp.ask_any(&["INFO", "commandstats"]).contains(&calls)
        });
        let info = resp.ask_any(&["INFO", "everything"]);
        assert!(info.contains("\nevicted_keys:0\r\n"), "{verb}: {info}");
        for _ in 0..NAMED {
            memcached.expect("VALUE key:0 0 1000000\r\n");
            memcached.expect(&data);
            memcached.expect("\r\n");
        }
        memcached.expect("END\r\nMN\r\n");
    }
    resp.ask(&["DBSIZE"], &format!(":{OTHERS}\r\n"));
}

#[test]
fn figures_are_told_and_reset() {
    let server = start(&[]);
    let mut wire = server.connect_memcached();
    ask(
        &mut wire,
        "set k 0 0 1|1|get k nope|incr k 1|",
        "STORED|VALUE k 0 1|1|END|2|",
    );
    let general = stats(&mut wire, "stats");
    for line in [
        "cmd_get 2",
        "get_hits 1",
        "get_misses 1",
        "cmd_set 1",
        "incr_hits 1",
        "curr_items 1",
    ] {
        assert!(
            general.contains(&format!("STAT {line}")),
            "{line}: {general:?}"
        );
    }
    let has = |lines: &[String], name: &str| lines.iter().any(|line| line.contains(name));
    assert!(has(&general, "STAT conn_yields "), "{general:?}");
    // Nobody knows under this policy.
    assert!(!has(&general, "unfetched"), "{general:?}");
    let mut resp = server.connect();
    resp.ask(
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        "+OK\r\n",
    );
    for words in ["stats", "stats items"] {
        let lines = stats(&mut wire, words);
        for name in ["expired_unfetched 0", "evicted_unfetched 0"] {
            assert!(has(&lines, name), "{lines:?}");
        }
    }
    let settings = stats(&mut wire, "stats settings");
    assert!(settings.contains(&"STAT item_size_max 1048576".to_owned()));
    let items = stats(&mut wire, "stats items");
    assert!(
        items.contains(&"STAT items:1:number 1".to_owned()),
        "{items:?}"
    );
    let slabs = stats(&mut wire, "stats slabs");
    for line in [
        "STAT 1:get_hits 1",
        "STAT 1:total_chunks 1",
        "STAT active_slabs 1",
    ] {
        assert!(slabs.contains(&line.to_owned()), "{slabs:?}");
    }
    let connections = stats(&mut wire, "stats conns");
    assert_eq!(connections.len(), 4, "{connections:?}");
    ask(&mut wire, "delete k|", "DELETED|");
    assert!(stats(&mut wire, "stats items").is_empty());
    ask(&mut wire, "stats reset|stats nonsense|", "RESET|ERROR|");
    ask(&mut wire, "stats detail dump|", "END|");
    assert!(stats(&mut wire, "stats").contains(&"STAT cmd_get 0".to_owned()));
    ask(&mut wire, "cache_memlimit 100|", "OK|");
    let mut resp = server.connect();
    resp.ask(
        &["CONFIG", "GET", "maxmemory"],
        "*2\r\n$9\r\nmaxmemory\r\n$9\r\n104857600\r\n",
    );
}

#[test]
fn a_socket_of_the_file_system_serves_too() {
    let folder = Folder::new();
    let path = folder.path("memcached.sock");
    let server = TestServer::start(&["--memcached-socket", path.to_str().unwrap()]);
    assert!(
        server.banner.contains(" memcached-unix="),
        "{}",
        server.banner
    );
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"set k 0 0 1\r\nx\r\nquit\r\n").unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "STORED\r\n");
}

/// Replies to clients that wait for the disk, a pause: the event loop treats both protocols alike.
#[test]
fn a_pause_holds_memcached_clients_back() {
    let server = start(&[]);
    let (mut memcached, mut resp) = (server.connect_memcached(), server.connect());
    resp.ask(&["CLIENT", "PAUSE", "100000", "WRITE"], "+OK\r\n");
    ask(&mut memcached, "get k|", "END|");
    memcached.send("set k 0 0 1\r\nx\r\nget k\r\n");
    resp.ask(&["GET", "k"], "$-1\r\n");
    assert!(!memcached.has_input());
    resp.ask(&["CLIENT", "UNPAUSE"], "+OK\r\n");
    memcached.expect("STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
}

/// Versions go on where they were; what a client has kept from before is of another server.
#[test]
fn a_token_from_before_a_restart_matches_nothing() {
    let folder = Folder::new();
    let data = folder.path("data");
    let flags = [
        "--data-dir",
        data.to_str().unwrap(),
        "--durability",
        "interval",
    ];
    let token = |wire: &mut Wire| {
        wire.send("gets k\r\n");
        let line = wire.line();
        wire.expect("x\r\nEND\r\n");
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let server = start(&flags);
    let mut wire = server.connect_memcached();
    ask(&mut wire, "set k 0 0 1|x|", "STORED|");
    let before = token(&mut wire);
    server.signal("TERM");
    server.wait();
    let server = start(&flags);
    let mut wire = server.connect_memcached();
    let after = token(&mut wire);
    ask(&mut wire, &format!("cas k 0 0 1 {before}|z|"), "EXISTS|");
    ask(&mut wire, &format!("cas k 0 0 1 {after}|z|"), "STORED|");
}
