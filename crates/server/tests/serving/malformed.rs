//! Bytes that are no requests: an error in Redis' words, then the end of the connection, and every
//! other client is served meanwhile.

use crate::harness::{TestServer, request, seed};

/// Sends `bytes` on a connection of their own, expects `reply` and the end.
#[track_caller]
fn refuse(server: &TestServer, bytes: impl AsRef<[u8]>, reply: &str) {
    let mut wire = server.connect();
    wire.send_some(bytes);
    wire.expect(reply);
    wire.expect_closed();
}

#[test]
fn a_frame_that_breaks_the_protocol_ends_the_connection() {
    let server = TestServer::start(&[]);
    let mut other = server.connect();
    for (bytes, error) in [
        ("*a\r\n", "invalid multibulk length"),
        ("*1048577\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\n$a\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        ("*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        ("*2\r\n$4\r\nPING\r\n:3\r\n", "expected '$', got ':'"),
        ("SET a \"b\r\n", "unbalanced quotes in request"),
        ("SET a 'b'c\r\n", "unbalanced quotes in request"),
    ] {
        refuse(&server, bytes, &format!("-ERR Protocol error: {error}\r\n"));
        other.expect_served();
    }
}

#[test]
fn a_number_or_line_without_end_is_refused_early() {
    let server = TestServer::start(&[]);
    let digits = "1".repeat(1_000_000);
    for (start, error) in [
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
        ("PING ", "too big inline request"),
    ] {
        let error = format!("-ERR Protocol error: {error}\r\n");
        refuse(&server, format!("{start}{digits}"), &error);
    }
    // With an end it is a number like any other: too large.
    refuse(
        &server,
        format!("*1\r\n${}\r\n", "0".repeat(1000)),
        "-ERR Protocol error: invalid bulk length\r\n",
    );
}

#[test]
fn what_came_before_the_error_is_answered() {
    let server = TestServer::start(&[]);
    refuse(
        &server,
        "PING\r\n*1\r\n$4\r\nPING\r\n*0\r\n*-1\r\n\r\n*1\r\n$-1\r\nPING\r\n",
        "+PONG\r\n+PONG\r\n-ERR Protocol error: invalid bulk length\r\n",
    );
}

#[test]
fn requests_may_come_in_any_pieces() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    let mut bytes = request(&[b"ECHO", b"a\r\n$b*c"]);
    bytes.extend_from_slice(b"ECHO  'in line'\r\n*0\r\n");
    bytes.extend(request(&[b"PING"]));
    let reply = "$7\r\na\r\n$b*c\r\n$7\r\nin line\r\n+PONG\r\n";
    for byte in &bytes {
        wire.send([*byte]);
    }
    wire.expect(reply);
    for cut in 1..bytes.len() {
        wire.send(&bytes[..cut]);
        wire.send(&bytes[cut..]);
        wire.expect(reply);
    }
}

#[test]
fn a_browser_gets_no_answer() {
    let server = TestServer::start(&[]);
    refuse(&server, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "");
    let mut wire = server.connect();
    wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wire.expect("-ERR wrong number of arguments for 'get' command\r\n");
    wire.expect_closed();
}

#[test]
fn a_client_that_has_not_authenticated_may_send_little() {
    let server = TestServer::start(&["--requirepass", "secret"]);
    let unauthenticated = "-NOAUTH Authentication required.\r\n";
    refuse(
        &server,
        "*11\r\n",
        "-ERR Protocol error: unauthenticated multibulk length\r\n",
    );
    refuse(
        &server,
        format!("*1\r\n${}\r\n", 16 * 1024 + 1),
        "-ERR Protocol error: unauthenticated bulk length\r\n",
    );
    let mut wire = server.connect();
    wire.ask(&["PING"], unauthenticated);
    wire.ask(
        &["AUTH", "wrong"],
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    );
    // In one piece: the limits of what follows depend on what comes first.
    let value = vec![b'v'; 100_000];
    let mut bytes = request(&[b"ECHO", b"a"]);
    bytes.extend(request(&[b"AUTH", b"secret"]));
    bytes.extend(request(&[b"SET", b"k", &value]));
    bytes.extend(request(&[
        b"EXISTS", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"k",
    ]));
    wire.send(bytes);
    wire.expect(format!("{unauthenticated}+OK\r\n+OK\r\n:1\r\n"));
}

#[test]
fn random_bytes_do_no_harm() {
    let server = TestServer::start(&[]);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut other = server.connect();
    for _ in 0..300 {
        let mut wire = server.connect();
        wire.send_some(noise(&mut random));
        wire.send_some(b"\r\n");
        if random.bool() {
            drop(wire);
        } else {
            wire.read_to_end();
        }
        other.expect_served();
    }
}

/// Bytes of any kind, or frames of which some bytes were changed.
fn noise(random: &mut fastrand::Rng) -> Vec<u8> {
    if random.bool() {
        return (0..random.usize(0..500)).map(|_| random.u8(..)).collect();
    }
    let mut bytes = Vec::new();
    for _ in 0..random.usize(1..10) {
        bytes.extend(request(&[b"SET", b"key", b"value"]));
    }
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..bytes.len());
        bytes[at] = random.u8(..);
    }
    bytes
}
