//! Requests that wait hold up their own connection, in order, and nobody else.

use std::time::{Duration, Instant};

use crate::harness::{TestServer, Wire, request, seed};

#[test]
fn a_sleeping_request_holds_up_only_its_own_connection() {
    let server = TestServer::start(&["--threads", "1"]);
    let mut forever = server.connect();
    let mut other = server.connect();
    forever.send("DEBUG SLEEP 1000000\r\nECHO behind\r\n");
    other.expect_served();
    let start = Instant::now();
    other.send("DEBUG SLEEP 0.2\r\nECHO behind\r\nDEBUG SLEEP 0\r\n");
    other.expect("+OK\r\n$6\r\nbehind\r\n+OK\r\n");
    assert!(
        start.elapsed() >= Duration::from_millis(200),
        "it did not sleep"
    );
    assert!(!forever.has_input());
}

#[test]
fn a_sleeper_that_goes_away_gives_its_place_back() {
    let server = TestServer::start(&["--maxclients", "1"]);
    for _ in 0..3 {
        server.wait_until("the place is free", || {
            let mut wire = server.connect();
            wire.send_some("PING\r\nDEBUG SLEEP 1000000\r\n");
            wire.line() == "+PONG"
        });
    }
}

#[test]
fn a_pause_holds_requests_back_in_order() {
    let server = TestServer::start(&[]);
    let mut writer = server.connect();
    let mut reader = server.connect();
    let mut admin = server.connect();
    admin.ask(&["CLIENT", "PAUSE", "1000000", "WRITE"], "+OK\r\n");
    writer.send("GET k\r\nSET k v\r\nGET k\r\nECHO \"in line\"\r\n");
    writer.expect("$-1\r\n");
    // The write waits, reads of others do not.
    for _ in 0..3 {
        reader.ask(&["GET", "k"], "$-1\r\n");
    }
    admin.ask(&["CLIENT", "UNPAUSE"], "+OK\r\n");
    writer.expect("+OK\r\n$1\r\nv\r\n$7\r\nin line\r\n");

    let start = Instant::now();
    admin.ask(&["CLIENT", "PAUSE", "200"], "+OK\r\n");
    reader.ask(&["GET", "k"], "$1\r\nv\r\n");
    // The two clocks need not agree to the millisecond.
    assert!(
        start.elapsed() >= Duration::from_millis(190),
        "the read did not wait"
    );
}

#[test]
fn a_paused_client_that_goes_away_leaves_nothing_behind() {
    let server = TestServer::start(&[]);
    let mut admin = server.connect();
    admin.ask(&["CLIENT", "PAUSE", "1000000", "WRITE"], "+OK\r\n");
    let mut writer = server.connect();
    writer.send("PING\r\nSET k v\r\n");
    writer.expect("+PONG\r\n");
    drop(writer);
    server.wait_until("the connection is closed", || {
        admin.ask_any(&["CLIENT", "LIST"]).lines().count() == 1
    });
    admin.ask(&["CLIENT", "UNPAUSE"], "+OK\r\n");
    admin.ask(&["GET", "k"], "$-1\r\n");
}

/// Stores `count` keys of the form `key:N`.
fn fill(wire: &mut Wire, count: usize) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(1000) {
        let bytes: Vec<u8> = chunk
            .iter()
            .flat_map(|number| request(&[b"SET", format!("key:{number}").as_bytes(), b"v"]))
            .collect();
        wire.send(bytes);
        wire.expect("+OK\r\n".repeat(chunk.len()));
    }
}

#[test]
fn a_long_command_lets_others_run_between_its_slices() {
    const KEYS: usize = 50_000;
    let server = TestServer::start(&["--threads", "1"]);
    let mut long = server.connect();
    let mut other = server.connect();
    fill(&mut long, KEYS);
    // Once is enough; the machine may have taken the processor from this test the other times.
    server.wait_until("others are served meanwhile", || {
        long.send("KEYS *\r\nECHO behind\r\n");
        let mut served = 0;
        while !long.has_input() {
            other.expect_served();
            served += 1;
        }
        long.expect(format!("*{KEYS}\r\n"));
        for _ in 0..2 * KEYS {
            long.line();
        }
        long.expect("$6\r\nbehind\r\n");
        served >= 3
    });
}

#[test]
fn no_reply_means_none_from_commands_that_wait_either() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    wire.send("CLIENT REPLY SKIP\r\nDEBUG SLEEP 0.01\r\nCLIENT REPLY SKIP\r\nKEYS *\r\nPING\r\n");
    wire.expect("+PONG\r\n");
    wire.send("CLIENT REPLY OFF\r\nDEBUG SLEEP 0.01\r\nKEYS *\r\nPING\r\nCLIENT REPLY ON\r\n");
    wire.expect("+OK\r\n");
    wire.expect_served();
}

#[test]
fn a_client_that_closes_its_end_gets_what_it_asked_for() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    wire.ask(&["SETRANGE", "key", "8000000", "x"], ":8000001\r\n");
    wire.send("GET key\r\nSTRLEN key\r\nPING\r\nhalf a requ");
    wire.end();
    wire.expect("$8000001\r\n");
    wire.expect(vec![0; 8_000_000]);
    wire.expect("x\r\n:8000001\r\n+PONG\r\n");
    wire.expect_closed();
}

#[test]
fn quit_answers_and_ends_the_connection() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    wire.send("PING\r\nQUIT\r\nPING\r\n");
    wire.expect("+PONG\r\n+OK\r\n");
    wire.expect_closed();
}

#[test]
fn a_killed_client_executes_nothing_more() {
    let server = TestServer::start(&[]);
    let mut admin = server.connect();
    let mut idle = server.connect();
    let mut sleeper = server.connect();
    let id = |wire: &mut Wire| {
        wire.send("CLIENT ID\r\n");
        wire.line()[1..].to_owned()
    };
    let (idle_id, sleeper_id) = (id(&mut idle), id(&mut sleeper));
    sleeper.send("DEBUG SLEEP 1000000\r\nSET k v\r\n");
    admin.ask(&["CLIENT", "KILL", "ID", &idle_id], ":1\r\n");
    idle.expect_closed();
    server.wait_until("the sleeper sleeps", || {
        let list = admin.ask_any(&["CLIENT", "LIST", "ID", &sleeper_id]);
        list.contains(" cmd=debug ")
    });
    admin.ask(&["CLIENT", "KILL", "ID", &sleeper_id], ":1\r\n");
    sleeper.expect_closed();
    admin.ask(&["EXISTS", "k"], ":0\r\n");
    let own = id(&mut admin);
    admin.send(format!("CLIENT KILL SKIPME no ID {own}\r\nSET k v\r\n"));
    admin.expect(":1\r\n");
    admin.expect_closed();
    server.connect().ask(&["EXISTS", "k"], ":0\r\n");
}

#[test]
fn a_monitor_sees_the_commands_of_every_worker() {
    let server = TestServer::start(&["--threads", "2"]);
    let mut monitor = server.connect();
    monitor.send("MONITOR\r\n");
    monitor.expect("+OK\r\n");
    let mut clients: Vec<Wire> = (0..4).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask(
            &["ECHO", &number.to_string()],
            &format!("$1\r\n{number}\r\n"),
        );
    }
    let mut seen: Vec<String> = (0..4).map(|_| monitor.line()).collect();
    seen.sort_by_key(|line| line.split_once("\"ECHO\"").expect("an ECHO").1.to_owned());
    for (number, line) in seen.iter().enumerate() {
        assert!(line.ends_with(&format!("\"ECHO\" \"{number}\"")), "{line}");
    }
    monitor.expect_served();
}

/// Appends one random request to `sent` and its reply to `expected`; nobody else uses `key`.
fn random_request(
    random: &mut fastrand::Rng,
    number: usize,
    key: &[u8],
    sent: &mut Vec<u8>,
    expected: &mut Vec<u8>,
) {
    let text = format!("{number:>6}");
    let echoed = format!("$6\r\n{text}\r\n");
    let (request, reply) = match random.usize(..12) {
        0 => (format!("ECHO \"{text}\"\r\n").into_bytes(), echoed),
        1 => (format!("ECHO '{text}'\n").into_bytes(), echoed),
        2 => (
            format!("\r\n\r\nECHO \"{text}\"\r\n\r\n").into_bytes(),
            echoed,
        ),
        3 => (b"DEBUG SLEEP 0.001\r\n".to_vec(), "+OK\r\n".into()),
        4 => (request(&[b"KEYS", b"nothing*"]), "*0\r\n".into()),
        5 => (request(&[b"STRLEN", b"big"]), ":60000\r\n".into()),
        6 => (
            request(&[b"GET", b"big"]),
            format!("$60000\r\n{}\r\n", "b".repeat(60_000)),
        ),
        7 => {
            let long = vec![b'x'; random.usize(..50_000)];
            let reply = format!(":{}\r\n", long.len());
            let mut bytes = request(&[b"SET", key, &long]);
            bytes.extend(request(&[b"STRLEN", key]));
            (bytes, format!("+OK\r\n{reply}"))
        }
        8 => {
            let mut bytes = b"MULTI\r\n".to_vec();
            bytes.extend(request(&[b"ECHO", text.as_bytes()]));
            bytes.extend_from_slice(b"KEYS nothing*\r\nEXEC\r\n");
            (
                bytes,
                format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{echoed}*0\r\n"),
            )
        }
        _ => (request(&[b"ECHO", text.as_bytes()]), echoed),
    };
    sent.extend(request);
    expected.extend(reply.into_bytes());
}

/// A request that was taken out of its order, executed twice, or lost while others waited, shows in
/// the replies.
#[test]
fn every_request_is_answered_once_and_in_order() {
    let seed = seed();
    let server = TestServer::start(&[]);
    server
        .connect()
        .ask(&["SET", "big", &"b".repeat(60_000)], "+OK\r\n");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ thread);
                let mut wire = server.connect();
                let key = format!("long:{thread}").into_bytes();
                for _ in 0..10 {
                    let (mut sent, mut expected) = (Vec::new(), Vec::new());
                    for number in 0..random.usize(1..300) {
                        random_request(&mut random, number, &key, &mut sent, &mut expected);
                    }
                    let mut writer = wire.clone_stream();
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            let mut rest = &sent[..];
                            while !rest.is_empty() {
                                let piece = 1 + random.usize(..20_000.min(rest.len()));
                                writer.send(&rest[..piece]);
                                rest = &rest[piece..];
                            }
                        });
                        wire.expect(&expected);
                    });
                }
            });
        }
    });
}
