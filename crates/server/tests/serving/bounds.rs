//! Greedy clients: memory stays bounded by configuration, and every other client is served.

use crate::harness::{Folder, TestServer, Wire, request};

const MIB: usize = 1024 * 1024;

/// Bytes that the server has allocated, by its own account.
fn used_bytes(wire: &mut Wire) -> usize {
    let information = wire.ask_any(&["INFO", "memory"]);
    let field = information
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    field.expect("the field").parse().unwrap()
}

#[test]
fn a_client_that_never_reads_is_not_read_from() {
    let server = TestServer::start(&["--threads", "1"]);
    let mut other = server.connect();
    let value = "v".repeat(100);
    other.ask(&["SET", "key", &value], "+OK\r\n");
    let before = server.resident_bytes();

    // A million requests, none of whose replies is read.
    let get = request(&[b"GET", b"key"]);
    let requests = get.repeat(1000);
    let mut greedy = server.connect();
    let sent = greedy.send_until_stuck(&requests, 1_000_000 * get.len());
    assert!(
        sent < 1_000_000 * get.len(),
        "the server took every request"
    );
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "the server grew by {grown} bytes");
    other.expect_served();

    // When it reads at last, nothing was lost: whole requests were sent, and a part of one.
    let begun = sent % get.len();
    let rest = if begun > 0 { &get[begun..] } else { &[] };
    let reply = format!("$100\r\n{value}\r\n");
    std::thread::scope(|scope| {
        let mut writer = greedy.clone_stream();
        scope.spawn(move || writer.send(rest));
        for _ in 0..sent.div_ceil(get.len()) {
            greedy.expect(&reply);
        }
    });
    greedy.expect_served();
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    const CONNECTIONS: usize = 10_000;
    /// Descriptors of the tests beside this one, which run in the same process.
    const OTHERS: usize = 2000;
    /// Connections at least that make the cost of one show.
    const COUNT_MIN: usize = 3000;
    let limit = pando_io::descriptors::raise_limit((CONNECTIONS + OTHERS) as u64);
    let count = CONNECTIONS.min((limit as usize).saturating_sub(OTHERS));
    if count < COUNT_MIN {
        println!("skipped: {limit} descriptors are too few");
        return;
    }
    let server = TestServer::start(&["--maxclients", "10001"]);
    let mut first = server.connect();
    first.expect_served();
    let before = server.resident_bytes();
    let mut idle: Vec<Wire> = (0..count).map(|_| server.connect()).collect();
    // Each has been served once, so that what a request leaves behind is counted too.
    for wire in &mut idle {
        wire.send("PING\r\n");
    }
    for wire in &mut idle {
        wire.expect("+PONG\r\n");
    }
    let bytes = server.resident_bytes().saturating_sub(before) / count as u64;
    assert!(bytes < 2048, "an idle connection costs {bytes} bytes");
    first.expect_served();
    idle[count / 2].expect_served();
}

#[test]
fn a_frame_that_never_ends_is_bounded_by_the_query_limit() {
    let server = TestServer::start(&[
        "--client-query-buffer-limit",
        "1mb",
        "--proto-max-bulk-len",
        "1mb",
    ]);
    let mut other = server.connect();
    let mut wire = server.connect();
    // Each argument is small; the request has a million of them.
    let mut bytes = b"*1000000\r\n".to_vec();
    for _ in 0..2000 {
        bytes.extend_from_slice(b"$1000\r\n");
        bytes.extend_from_slice(&[b'x'; 1000]);
        bytes.extend_from_slice(b"\r\n");
    }
    wire.send_some(bytes);
    wire.expect_closed();
    other.expect_served();
}

#[test]
fn a_half_frame_is_ended_by_the_idle_timeout() {
    let server = TestServer::start(&["--timeout", "1"]);
    let mut wire = server.connect();
    wire.send("*2\r\n$4\r\nECHO\r\n$10\r\nab");
    wire.expect_closed();
    // Whoever is kept from its processor for a second is idle, too.
    server.wait_until("another is served", || {
        let mut other = server.connect();
        other.send_some("PING\r\nQUIT\r\n");
        other.rest() == b"+PONG\r\n+OK\r\n"
    });
}

#[test]
fn an_announced_length_takes_no_memory_before_it_arrives() {
    let server = TestServer::start(&[]);
    let mut first = server.connect();
    first.expect_served();
    let before = server.resident_bytes();
    let mut wires: Vec<Wire> = (0..50).map(|_| server.connect()).collect();
    for wire in &mut wires {
        wire.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nx");
    }
    first.expect_served();
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "the server grew by {grown} bytes");
}

#[test]
fn a_long_argument_comes_and_goes() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    let before = used_bytes(&mut wire);
    let value = vec![b'v'; 64 * MIB];
    wire.send(request(&[b"SET", b"key", &value]));
    wire.expect("+OK\r\n");
    wire.send(request(&[b"GET", b"key"]));
    wire.expect(format!("${}\r\n", value.len()));
    wire.expect(&value);
    wire.expect("\r\n");
    wire.ask(&["DEL", "key"], ":1\r\n");
    // The buffers are given back, the value too as soon as nobody can be reading it.
    server.wait_until("the memory is returned", || {
        used_bytes(&mut wire) < before + 2 * MIB
    });
}

/// What the log's buffers took for writes goes back when it rests.
fn an_emptied_database_takes_what_it_took_before(engine: &str) {
    const SLACK: usize = MIB;
    let scratch = Folder::new();
    let directory = scratch.path("data");
    let server = TestServer::start(&[
        "--engine",
        engine,
        "--durability",
        "interval",
        "--data-dir",
        directory.to_str().unwrap(),
    ]);
    let mut wire = server.connect();
    wire.expect_served();
    let before = used_bytes(&mut wire);
    let value = [b'v'; 1000];
    for batch in 0..100 {
        let mut bytes = Vec::new();
        for key in 0..200 {
            let key = format!("key:{batch}:{key}");
            bytes.extend(request(&[b"SET", key.as_bytes(), &value]));
        }
        wire.send(bytes);
        wire.expect("+OK\r\n".repeat(200));
    }
    assert!(used_bytes(&mut wire) > before + 20 * MIB);
    wire.ask(&["FLUSHALL"], "+OK\r\n");
    server.wait_until("the memory is returned", || {
        used_bytes(&mut wire) <= before + SLACK
    });
}

#[test]
fn an_emptied_tree_takes_what_it_took_before() {
    an_emptied_database_takes_what_it_took_before("masstree");
}

#[test]
fn an_emptied_hash_table_takes_what_it_took_before() {
    an_emptied_database_takes_what_it_took_before("mercury");
}

#[test]
fn keys_and_values_over_the_limits_are_refused() {
    let server = TestServer::start(&["--proto-max-bulk-len", "1mb"]);
    let mut wire = server.connect();
    let key = "k".repeat(64 * 1024 + 1);
    wire.send(request(&[b"SET", key.as_bytes(), b"v"]));
    wire.expect("-ERR key is longer than key_bytes_max (65537 bytes, at most 65536)\r\n");
    wire.ask(
        &["SETRANGE", "key", "1048576", "x"],
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n",
    );
    let value = vec![b'v'; MIB + 1];
    wire.send_some(request(&[b"SET", b"key", &value]));
    wire.expect("-ERR Protocol error: invalid bulk length\r\n");
    wire.expect_closed();
}

#[test]
fn clients_beyond_maxclients_are_told_so() {
    let server = TestServer::start(&["--maxclients", "2"]);
    let mut first = server.connect();
    let mut second = server.connect();
    first.expect_served();
    second.expect_served();
    let mut third = server.connect();
    third.expect("-ERR max number of clients reached\r\n");
    third.expect_closed();
    drop(first);
    server.wait_until("a place is free", || {
        let mut next = server.connect();
        next.send_some("PING\r\n");
        next.line() == "+PONG"
    });
    second.expect_served();
}

#[test]
fn output_over_the_hard_limit_ends_the_connection() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal 1mb 0 0"]);
    let mut wire = server.connect();
    wire.ask(&["SETRANGE", "key", "67108864", "x"], ":67108865\r\n");
    wire.send(request(&[b"GET", b"key"]));
    // It is not read. The socket's buffers take some of it, and more than the limit waits.
    let mut other = server.connect();
    server.wait_until("the connection is closed", || {
        other.ask_any(&["CLIENT", "LIST"]).lines().count() == 1
    });
    wire.read_to_end();
}

/// What a client has read, or its socket has room for, does not wait.
#[test]
fn a_client_that_reads_is_below_any_limit_of_output() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal 1 1 1"]);
    let mut wire = server.connect();
    let value = "v".repeat(10_000);
    wire.ask(&["SET", "key", &value], "+OK\r\n");
    for _ in 0..10 {
        wire.expect_served();
        wire.ask(&["GET", "key"], &format!("$10000\r\n{value}\r\n"));
    }
    wire.ask_any(&["INFO"]);
    wire.expect_served();
}

#[test]
fn output_over_the_soft_limit_for_too_long_ends_the_connection() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal 0 1mb 1"]);
    let mut wire = server.connect();
    wire.ask(&["SETRANGE", "key", "33554432", "x"], ":33554433\r\n");
    wire.send(request(&[b"GET", b"key"]));
    // The reply is not read. What the kernel holds of it can be read when the server has given up.
    let mut other = server.connect();
    server.wait_until("the connection is closed", || {
        other.ask_any(&["CLIENT", "LIST"]).lines().count() == 1
    });
    wire.read_to_end();
}

#[test]
fn writes_beyond_maxmemory_are_refused_and_reads_served() {
    let server = TestServer::start(&["--maxmemory", "8mb"]);
    let mut wire = server.connect();
    let value = vec![b'v'; 64 * 1024];
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    let mut stored = 0;
    loop {
        let key = format!("key:{stored}");
        wire.send(request(&[b"SET", key.as_bytes(), &value]));
        match wire.line().as_str() {
            "+OK" => stored += 1,
            line => {
                assert_eq!(line, oom);
                break;
            }
        }
        assert!(stored < 1000, "the limit is not enforced");
    }
    assert!(stored > 10, "refused after {stored} values");
    wire.ask(&["STRLEN", "key:0"], ":65536\r\n");
    wire.ask(&["SET", "small", "v"], &format!("{oom}\r\n"));
    wire.ask(&["FLUSHALL"], "+OK\r\n");
    server.wait_until("the memory is free again", || {
        wire.send(request(&[b"SET", b"key", b"v"]));
        wire.line() == "+OK"
    });
}
