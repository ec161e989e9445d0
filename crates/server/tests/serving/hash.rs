//! `--engine mercury` as clients see it: its table grows and shrinks beside them, nothing is missed
//! meanwhile, and what needs key order says who has it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::harness::{PATIENCE, TestServer};

/// Keys of a test's table: it is doubled and halved some ten times on the way there and back.
const KEYS: usize = 60_000;

/// Of these, every so many are never removed.
const STAYING: usize = 100;

/// Keys of one request.
const PIECE: usize = 100;

fn start() -> TestServer {
    TestServer::start(&["--engine", "mercury"])
}

fn key(number: usize) -> String {
    format!("key:{number:08}")
}

/// A figure of the engine, as INFO tells it.
fn figure(connection: &mut redis::Connection, name: &str) -> f64 {
    let text: String = redis::cmd("INFO").query(connection).unwrap();
    let field = format!("engine_{name}:");
    let value = text.lines().find_map(|line| line.strip_prefix(&field));
    value.expect(name).parse().expect("a number")
}

/// Sets the keys of these numbers to their numbers.
fn fill(connection: &mut redis::Connection, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = numbers.collect();
    for numbers in numbers.chunks(PIECE) {
        let mut command = redis::cmd("MSET");
        for number in numbers {
            command.arg(key(*number)).arg(number);
        }
        command.exec(connection).unwrap();
    }
}

/// Removes the keys of these numbers, all of which are there.
fn empty(connection: &mut redis::Connection, numbers: impl Iterator<Item = usize>) {
    let keys: Vec<String> = numbers.map(key).collect();
    for keys in keys.chunks(PIECE) {
        let removed: usize = redis::cmd("DEL").arg(keys).query(connection).unwrap();
        assert_eq!(removed, keys.len());
    }
}

/// The keys that are never removed.
fn staying() -> impl Iterator<Item = usize> + Clone {
    (0..KEYS).step_by(STAYING)
}

/// The others.
fn going() -> impl Iterator<Item = usize> + Clone {
    (0..KEYS).filter(|number| !number.is_multiple_of(STAYING))
}

/// Waits until no table is being resized and no removed key is remembered.
fn settle(server: &TestServer, connection: &mut redis::Connection) {
    server.wait_until("the table comes to rest", || {
        ["resizing_tables", "tombstones"]
            .iter()
            .all(|name| figure(connection, name) < 1.0)
    });
}

/// Runs `operate` while `look` is run over and over beside it, once at least after its end.
fn beside(mut look: impl FnMut() + Send, operate: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            loop {
                let last = done.load(Ordering::Acquire);
                look();
                if last {
                    break;
                }
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(operate));
        done.store(true, Ordering::Release);
        looking.join().expect("what is looked at is right");
        outcome.unwrap();
    });
}

#[test]
fn a_table_shrinks_after_mass_deletes_and_loses_none_of_the_rest() {
    let server = start();
    let mut connection = server.connection();
    fill(&mut connection, 0..KEYS);
    settle(&server, &mut connection);
    let full = figure(&mut connection, "buckets");
    assert!(
        (KEYS as f64 / 5.0..=KEYS as f64 / 2.0).contains(&full),
        "{full}"
    );
    assert!(figure(&mut connection, "mean_chain") < 1.2);
    assert_eq!(
        figure(&mut connection, "retired_bytes_max") as u64,
        256 << 20
    );
    let staying: Vec<usize> = staying().collect();
    let mut reader = server.connection();
    let check = || {
        let mut single = redis::pipe();
        for number in &staying {
            single.cmd("GET").arg(key(*number));
        }
        let values: Vec<Option<usize>> = single.query(&mut reader).unwrap();
        assert!(
            values
                .iter()
                .zip(&staying)
                .all(|(value, n)| *value == Some(*n))
        );
        let keys: Vec<String> = staying.iter().copied().map(key).collect();
        let values: Vec<Option<usize>> = redis::cmd("MGET").arg(keys).query(&mut reader).unwrap();
        assert!(
            values
                .iter()
                .zip(&staying)
                .all(|(value, n)| *value == Some(*n))
        );
    };
    beside(check, || {
        empty(&mut connection, going());
        settle(&server, &mut connection);
    });
    let left = figure(&mut connection, "entries");
    assert_eq!(left as usize, staying.len());
    let buckets = figure(&mut connection, "buckets");
    assert!(
        buckets * 1.25 <= left,
        "{left} entries in {buckets} buckets"
    );
    assert!(figure(&mut connection, "shrinks_total") >= 6.0);
    server.wait_until("the tables that were left are given back", || {
        figure(&mut connection, "table_bytes") <= buckets * 64.0
    });
    // And it grows again.
    fill(&mut connection, going());
    settle(&server, &mut connection);
    assert!(figure(&mut connection, "buckets") >= full);
    assert_eq!(redis::cmd("DBSIZE").query(&mut connection), Ok(KEYS));
}

/// Every key that one SCAN shows, by the way with cursors of 64 bits.
fn scanned(connection: &mut redis::Connection) -> HashSet<String> {
    let (mut cursor, mut seen) = (0_u64, HashSet::new());
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("COUNT")
            .arg(50)
            .query(connection)
            .unwrap();
        seen.extend(keys);
        if next == 0 {
            return seen;
        }
        cursor = next;
    }
}

#[test]
fn a_scan_is_complete_while_the_table_grows_and_shrinks_beside_it() {
    let server = start();
    let mut connection = server.connection();
    fill(&mut connection, staying());
    let staying: HashSet<String> = staying().map(key).collect();
    let (mut scanner, scans) = (server.connection(), AtomicUsize::new(0));
    let check = || {
        let seen = scanned(&mut scanner);
        let missed: Vec<&String> = staying.difference(&seen).collect();
        assert!(missed.is_empty(), "{scans:?} scans, then missed {missed:?}");
        scans.fetch_add(1, Ordering::Relaxed);
    };
    let deadline = Instant::now() + PATIENCE;
    beside(check, || {
        let mut resizes = 0.0;
        while resizes < 10.0 || scans.load(Ordering::Relaxed) < 3 {
            assert!(
                Instant::now() < deadline,
                "{scans:?} scans, {resizes} resizes"
            );
            let writers = [0, 1].map(|writer| {
                let numbers = going().filter(move |number| number % 2 == writer);
                (server.connection(), numbers)
            });
            std::thread::scope(|scope| {
                for (mut connection, numbers) in writers {
                    scope.spawn(move || {
                        fill(&mut connection, numbers.clone());
                        empty(&mut connection, numbers);
                    });
                }
            });
            settle(&server, &mut connection);
            resizes = f64::min(
                figure(&mut connection, "growths_total"),
                figure(&mut connection, "shrinks_total"),
            );
        }
    });
    assert_eq!(scanned(&mut connection), staying);
}

#[test]
fn cursors_have_64_bits() {
    let server = start();
    let mut connection = server.connection();
    fill(&mut connection, 0..1_000);
    // The last place of all is in the last bucket, from which the walk is at its end.
    let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
        .arg(u64::MAX)
        .query(&mut connection)
        .unwrap();
    assert_eq!((next, keys.len() < 100), (0, true));
    let mut wire = server.connect();
    wire.ask(&["SCAN", "18446744073709551616"], "-ERR invalid cursor\r\n");
}

#[test]
fn commands_that_need_key_order_name_the_engines_that_have_it() {
    let server = start();
    let mut wire = server.connect();
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    for command in [
        &["KRANGE", "-", "+"][..],
        &["KRANGE", "-", "+", "REV", "LIMIT", "3"],
        &["KPREFIX", "k"],
        &["KCOUNT", "-", "+"],
        &["KRANGEDEL", "-", "+"],
    ] {
        wire.ask(
            command,
            "-ERR engine mercury keeps keys in no order, which this command needs; masstree, \
             cdds, minuet, reference do\r\n",
        );
    }
    wire.ask(&["MULTI"], "+OK\r\n");
    wire.ask(&["KCOUNT", "-", "+"], "+QUEUED\r\n");
    wire.ask(&["GET", "k"], "+QUEUED\r\n");
    wire.ask(
        &["EXEC"],
        "*2\r\n-ERR engine mercury keeps keys in no order, which this command needs; masstree, \
         cdds, minuet, reference do\r\n$1\r\nv\r\n",
    );
    wire.ask(&["GET", "k"], "$1\r\nv\r\n");
}
