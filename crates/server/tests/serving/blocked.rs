//! Clients that wait for keys: in order, across workers, until a timeout, and never for nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{TestServer, Wire};

/// Waits until so many clients are blocked.
fn wait_for_blocked(server: &TestServer, count: usize) {
    let mut admin = server.connect();
    let line = format!("blocked_clients:{count}\r\n");
    server.wait_until("the clients are blocked", || {
        admin.ask_any(&["INFO", "clients"]).contains(&line)
    });
}

#[test]
fn blocked_clients_are_served_first_come_first_served() {
    const CLIENTS: usize = 40;
    let server = TestServer::start(&["--threads", "3"]);
    let mut waiting = Vec::new();
    for count in 1..=CLIENTS {
        let mut wire = server.connect();
        wire.send("BLPOP other jobs 0\r\nECHO behind\r\n");
        wait_for_blocked(&server, count);
        waiting.push(wire);
    }
    let mut pusher = server.connect();
    for number in 0..CLIENTS {
        pusher.send(format!("RPUSH jobs job-{number:02}\r\n"));
        assert!(pusher.line().starts_with(':'));
    }
    for (number, wire) in waiting.iter_mut().enumerate() {
        wire.expect(format!(
            "*2\r\n$4\r\njobs\r\n$6\r\njob-{number:02}\r\n$6\r\nbehind\r\n"
        ));
    }
    pusher.ask(&["EXISTS", "jobs"], ":0\r\n");
    wait_for_blocked(&server, 0);
}

/// Also for sorted sets; a list at the key serves nobody who waits for one.
#[test]
fn blocked_clients_take_members_in_order() {
    const CLIENTS: usize = 8;
    let server = TestServer::start(&["--threads", "3"]);
    let mut waiting = Vec::new();
    for count in 1..=CLIENTS {
        let mut wire = server.connect();
        wire.send(match count % 3 {
            0 => "BZMPOP 0 2 other queue MAX COUNT 3\r\n",
            1 => "BZPOPMIN other queue 0\r\n",
            _ => "BZPOPMAX queue other 0\r\n",
        });
        wait_for_blocked(&server, count);
        waiting.push(wire);
    }
    let mut adder = server.connect();
    adder.ask(&["RPUSH", "queue", "element"], ":1\r\n");
    adder.ask(&["LPOP", "queue"], "$7\r\nelement\r\n");
    wait_for_blocked(&server, CLIENTS);
    for (number, wire) in waiting.iter_mut().enumerate() {
        let (score, member) = (number.to_string(), format!("m{number}"));
        adder.ask(&["ZADD", "queue", &score, &member], ":1\r\n");
        let entry = format!("$2\r\n{member}\r\n$1\r\n{score}\r\n");
        wire.expect(match (number + 1) % 3 {
            0 => format!("*2\r\n$5\r\nqueue\r\n*1\r\n*2\r\n{entry}"),
            _ => format!("*3\r\n$5\r\nqueue\r\n{entry}"),
        });
    }
    wait_for_blocked(&server, 0);
}

#[test]
fn waits_end_by_timeout_unblock_and_disconnection() {
    let server = TestServer::start(&["--threads", "2"]);
    let mut one = server.connect();
    one.send("BLPOP k 0.05\r\nCLIENT ID\r\n");
    one.expect("*-1\r\n");
    let id = one.line();
    let id = id.trim_start_matches(':').to_owned();
    let mut admin = server.connect();
    for (how, expected) in [
        ("TIMEOUT", "*-1\r\n"),
        (
            "ERROR",
            "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n",
        ),
    ] {
        one.send("BLMOVE k l LEFT RIGHT 0\r\n");
        wait_for_blocked(&server, 1);
        assert!(
            admin
                .ask_any(&["CLIENT", "LIST", "ID", &id])
                .contains("flags=b")
        );
        admin.ask(&["CLIENT", "UNBLOCK", &id, how], ":1\r\n");
        one.expect(expected);
        admin.ask(&["CLIENT", "UNBLOCK", &id], ":0\r\n");
    }
    // One that has gone takes nothing.
    let mut gone = server.connect();
    gone.send("BRPOP k 0\r\n");
    wait_for_blocked(&server, 1);
    drop(gone);
    wait_for_blocked(&server, 0);
    admin.ask(&["RPUSH", "k", "v"], ":1\r\n");
    admin.ask(
        &["BLMPOP", "0", "1", "k", "LEFT"],
        "*2\r\n$1\r\nk\r\n*1\r\n$1\r\nv\r\n",
    );
}

/// Workers take jobs that producers push by several ways: each is taken once, and nobody sleeps
/// while there is one.
#[test]
fn no_job_is_lost_or_taken_twice() {
    const WORKERS: usize = 12;
    const JOBS: usize = 3_000;
    let server = TestServer::start(&["--threads", "3"]);
    let taken: Vec<AtomicUsize> = (0..JOBS).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(JOBS);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (server, taken, left) = (&server, &taken, &left);
            scope.spawn(move || {
                let mut wire = server.connect();
                loop {
                    let command = ["BLPOP a b 30\r\n", "BRPOP b a 30\r\n"][worker % 2];
                    wire.send(command);
                    assert_eq!(wire.line(), "*2", "a worker slept while there were jobs");
                    let lines: Vec<String> = (0..4).map(|_| wire.line()).collect();
                    if lines[3] == "end" {
                        return;
                    }
                    let job: usize = lines[3].parse().expect("a number");
                    taken[job].fetch_add(1, Ordering::Relaxed);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        for producer in 0..2 {
            let server = &server;
            scope.spawn(move || {
                let mut wire = server.connect();
                for job in (producer..JOBS).step_by(2) {
                    let spare = format!("spare-{producer}");
                    wire.send(match job % 6 {
                        0 | 1 => format!("RPUSH a {job}\r\n"),
                        2 | 3 => format!("LPUSH b {job}\r\n"),
                        _ => format!("RPUSH {spare} {job}\r\nLMOVE {spare} a LEFT LEFT\r\n"),
                    });
                    wire.line();
                    if job % 6 > 3 {
                        wire.line();
                        wire.line();
                    }
                }
            });
        }
        server.wait_until("all jobs are taken", || left.load(Ordering::Relaxed) == 0);
        let mut wire = server.connect();
        for _ in 0..WORKERS {
            wire.send("RPUSH a end\r\n");
            assert!(wire.line().starts_with(':'));
        }
    });
    assert!(taken.iter().all(|count| count.load(Ordering::Relaxed) == 1));
}

/// Consumers of a group share the entries of a stream, each of which is delivered once; readers get
/// all of them, in order; nobody sleeps while there is one.
#[test]
fn entries_are_delivered_once_and_read_by_all() {
    const CONSUMERS: usize = 9;
    const READERS: usize = 3;
    const ENTRIES: usize = 1_500;
    let server = TestServer::start(&["--threads", "3"]);
    let taken: Vec<AtomicUsize> = (0..=ENTRIES).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(ENTRIES);
    let mut admin = server.connect();
    admin.ask(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"], "+OK\r\n");
    std::thread::scope(|scope| {
        for consumer in 0..CONSUMERS {
            let (server, taken, left) = (&server, &taken, &left);
            scope.spawn(move || {
                let mut wire = server.connect();
                loop {
                    let name = format!("c{consumer}");
                    wire.send(format!(
                        "XREADGROUP GROUP g {name} COUNT 1 BLOCK 60000 STREAMS s >\r\n"
                    ));
                    let first = wire.line();
                    if first.starts_with("-NOGROUP") {
                        return;
                    }
                    assert_eq!(first, "*1", "a consumer slept while there were entries");
                    let lines: Vec<String> = (0..12).map(|_| wire.line()).collect();
                    let entry: usize = lines[11].parse().expect("a number");
                    taken[entry].fetch_add(1, Ordering::Relaxed);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..READERS {
            let server = &server;
            scope.spawn(move || {
                let mut wire = server.connect();
                for last in 0..ENTRIES {
                    wire.send(format!("XREAD COUNT 1 BLOCK 60000 STREAMS s {last}\r\n"));
                    let lines: Vec<String> = (0..13).map(|_| wire.line()).collect();
                    assert_eq!(lines[12], (last + 1).to_string(), "{lines:?}");
                }
            });
        }
        let mut wire = server.connect();
        for entry in 1..=ENTRIES {
            wire.send(format!("XADD s {entry} number {entry}\r\n"));
            wire.line();
            wire.line();
        }
        server.wait_until("all is delivered", || left.load(Ordering::Relaxed) == 0);
        admin.ask(&["XGROUP", "DESTROY", "s", "g"], ":1\r\n");
    });
    assert!(
        taken[1..]
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 1)
    );
}

/// One client may wait for very many keys: others are served meanwhile, a push is, too, what waits
/// takes a bounded number of bytes per key, and when it has gone its memory has.
/// `PANDO_BLOCKED_KEYS` sets how many; a request has at most a million arguments.
#[test]
fn a_wait_for_very_many_keys_is_served_and_given_back() {
    const KEY_BYTES_MAX: u64 = 600;
    let count = std::env::var("PANDO_BLOCKED_KEYS").map_or(100_000, |it| it.parse().unwrap());
    let server = TestServer::start(&["--threads", "2"]);
    let mut admin = server.connect();
    let used = |admin: &mut Wire| {
        let lines = admin.ask_any(&["INFO", "memory"]);
        let field = lines.lines().find_map(|it| it.strip_prefix("used_memory:"));
        field
            .and_then(|it| it.parse::<u64>().ok())
            .expect("it is told")
    };
    let before = used(&mut admin);
    let keys: Vec<String> = (0..count)
        .map(|key| format!("$8\r\nk{key:07}\r\n"))
        .collect();
    let keys = keys.concat();
    let command = format!("*{}\r\n$5\r\nBLPOP\r\n{keys}$1\r\n0\r\n", count + 2);
    let last = format!("k{:07}", count - 1);
    let mut greedy = server.connect();
    greedy.send(&command);
    wait_for_blocked(&server, 1);
    let bytes = used(&mut admin).saturating_sub(before);
    assert!(bytes <= KEY_BYTES_MAX * count, "{bytes} for {count} keys");
    admin.ask(&["RPUSH", &last, "element"], ":1\r\n");
    greedy.expect(format!("*2\r\n$8\r\n{last}\r\n$7\r\nelement\r\n"));
    wait_for_blocked(&server, 0);
    for _ in 0..3 {
        let mut gone = server.connect();
        gone.send(&command);
        wait_for_blocked(&server, 1);
        admin.ask(&["PING"], "+PONG\r\n");
        drop(gone);
        wait_for_blocked(&server, 0);
    }
    drop(greedy);
    server.wait_until("its memory is given back", || {
        used(&mut admin) < before + 4 * 1024 * 1024
    });
}
