//! Commands on several keys, transactions, and commands on several fields are seen whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_db::Database;

use crate::connection::{Connection, Ending, on_every_engine, on_every_ordered_engine, open, seed};

const READERS: usize = 2;
const ROUNDS: usize = 3000;

/// Absent keys between the two that are looked at, so that a reader takes its time.
const BETWEEN: usize = 40;

/// A command that reads `a`, then keys or fields that are not there, then `b`.
fn read_both(command: &str) -> String {
    let between: Vec<_> = (0..BETWEEN).map(|index| format!("none{index}")).collect();
    format!("{command} a {} b", between.join(" "))
}

/// The first and the last value of its reply.
fn ends(reply: &str) -> (Option<&str>, Option<&str>) {
    let words: Vec<_> = reply.split(' ').collect();
    assert_eq!(words[0], format!("*{}", BETWEEN + 2), "{reply}");
    let first = (words[1] != "$-1").then(|| words[2]);
    let last = words.last().copied().filter(|word| *word != "$-1");
    (first, last)
}

/// Whether both are equal, present or absent alike.
fn are_equal(reply: &str) -> bool {
    let (first, last) = ends(reply);
    first == last
}

/// Whether exactly one of them is there.
fn is_one(reply: &str) -> bool {
    let (first, last) = ends(reply);
    first.is_some() != last.is_some()
}

/// One session writes, others read meanwhile and check each reply; the write is done in
/// [`ROUNDS`] rounds, each of which may be several commands.
fn write_beside_readers(
    database: &Arc<Database>,
    mut write: impl FnMut(&mut Connection, usize) + Send,
    read: &str,
    is_whole: fn(&str) -> bool,
) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = Connection::new(database);
                    while !over.load(Ordering::Relaxed) {
                        let reply = connection.line(read);
                        assert!(is_whole(&reply), "half was seen: {reply}");
                    }
                })
            })
            .collect();
        let _ending = Ending(&over);
        let mut connection = Connection::new(database);
        for round in 0..ROUNDS {
            if readers
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished)
            {
                break;
            }
            write(&mut connection, round);
        }
    });
}

/// Sends lines that must not fail.
fn send(connection: &mut Connection, lines: &[&str]) {
    for line in lines {
        let reply = connection.line(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
}

#[test]
fn canary_half_of_two_sets_is_seen() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let (mut writer, mut reader) = (Connection::new(&database), Connection::new(&database));
        let read = read_both("MGET");
        send(&mut writer, &["MSET a 1 b 1", "SET a 2"]);
        assert!(!are_equal(&reader.line(&read)));
        send(&mut writer, &["DEL b"]);
        assert!(!are_equal(&reader.line(&read)) && is_one(&reader.line(&read)));
        send(&mut writer, &["SET b 2"]);
        assert!(are_equal(&reader.line(&read)) && !is_one(&reader.line(&read)));
    });
}

#[test]
fn mset_is_seen_whole() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let mset = |connection: &mut Connection, round| {
            send(connection, &[&format!("MSET a {round} b {round}")]);
        };
        write_beside_readers(&database, mset, &read_both("MGET"), are_equal);
    });
}

#[test]
fn msetnx_is_seen_whole() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let msetnx = |connection: &mut Connection, round| {
            send(
                connection,
                &[&format!("MSETNX a {round} b {round}"), "FLUSHDB"],
            );
        };
        write_beside_readers(&database, msetnx, &read_both("MGET"), are_equal);
    });
}

/// A range that EXEC reads is of one moment, beside commands on single keys too: of two keys that
/// are written one after the other, the second is never ahead.
#[test]
fn exec_reads_a_range_of_one_moment() {
    const FILLERS: usize = 150;
    on_every_ordered_engine(|engine| {
        let (database, _) = open(engine);
        let mut connection = Connection::new(&database);
        for number in 0..FILLERS {
            let value = "x".repeat(200);
            send(&mut connection, &[&format!("SET m{number:03} {value}")]);
        }
        send(&mut connection, &["SET a 10000", "SET z 10000"]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = Connection::new(&database);
                let mut number = 10_000;
                while !over.load(Ordering::Relaxed) {
                    for key in ["a", "z", "n"] {
                        send(&mut writer, &[&format!("SET {key} {number}")]);
                    }
                    send(&mut writer, &["DEL n"]);
                    number += 1;
                }
            });
            let _ending = Ending(&over);
            for _ in 0..ROUNDS / 10 {
                send(&mut connection, &["MULTI", "KRANGE - +", "MGET a z"]);
                let reply = connection.line("EXEC");
                let words: Vec<_> = reply.split(' ').collect();
                let shown = |key: &str| {
                    let at = words.iter().position(|word| *word == key)?;
                    Some(words[at + 2])
                };
                let got = [words[words.len() - 3], words[words.len() - 1]].map(Some);
                let range = [shown("a"), shown("z")];
                assert!(range[0] >= range[1], "{range:?}");
                assert_eq!(range, got);
                assert!(shown("n") <= range[1], "{:?}, {range:?}", shown("n"));
            }
        });
    });
}

#[test]
fn exec_is_seen_whole() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let exec = |connection: &mut Connection, round| {
            let (a, b) = (format!("SET a {round}"), format!("SET b {round}"));
            send(
                connection,
                &["MULTI", &a, &b, "EXEC", "MULTI", "DEL a", "DEL b", "EXEC"],
            );
        };
        write_beside_readers(&database, exec, &read_both("MGET"), are_equal);
    });
}

#[test]
fn a_renamed_key_has_one_name() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        send(&mut Connection::new(&database), &["SET a 1"]);
        let rename = |connection: &mut Connection, _| {
            send(connection, &["RENAME a b", "RENAMENX b a"]);
        };
        write_beside_readers(&database, rename, &read_both("MGET"), is_one);
    });
}

#[test]
fn swapped_databases_do_not_mix() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let mut connection = Connection::new(&database);
        send(
            &mut connection,
            &["MSET a 0 b 0", "SELECT 1", "MSET a 1 b 1"],
        );
        let swap = |connection: &mut Connection, _| send(connection, &["SWAPDB 0 1"]);
        write_beside_readers(&database, swap, &read_both("MGET"), are_equal);
    });
}

#[test]
fn fields_set_together_are_seen_together() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        // Wide enough to be a tree of columns.
        let mut connection = Connection::new(&database);
        for field in 0..500 {
            send(
                &mut connection,
                &[&format!("HSET hash f{field:04} {field}")],
            );
        }
        let hset = |connection: &mut Connection, round| {
            send(connection, &[&format!("HSET hash a {round} b {round}")]);
            if round % 4 == 0 {
                send(connection, &["HDEL hash a b"]);
            }
        };
        write_beside_readers(&database, hset, &read_both("HMGET hash"), are_equal);
    });
}

const ACCOUNTS: usize = 8;
const TOTAL: i64 = ACCOUNTS as i64 * 100;

/// The sum of the numbers in a reply.
fn sum(reply: &str) -> i64 {
    let numbers = reply
        .split(' ')
        .filter(|word| !word.starts_with(['*', '$', ':', '+']));
    numbers
        .map(|number| number.parse::<i64>().expect("a balance"))
        .sum()
}

/// Moves an amount between two accounts in a transaction that adds.
fn transfer_by_adding(connection: &mut Connection, random: &mut fastrand::Rng) {
    let (from, to) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
    let amount = random.i64(1..50);
    send(
        connection,
        &[
            "MULTI",
            &format!("DECRBY account{from} {amount}"),
            &format!("INCRBY account{to} {amount}"),
            "EXEC",
        ],
    );
}

/// Moves an amount in a transaction that writes what it computed from watched balances; whether it
/// went through.
fn transfer_by_watching(connection: &mut Connection, random: &mut fastrand::Rng) -> bool {
    let from = random.usize(..ACCOUNTS);
    let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
    let amount = random.i64(1..50);
    send(connection, &[&format!("WATCH account{from} account{to}")]);
    let mut balance = |account| sum(&connection.line(&format!("GET account{account}")));
    let (source, target) = (balance(from) - amount, balance(to) + amount);
    send(
        connection,
        &[
            "MULTI",
            &format!("SET account{from} {source}"),
            &format!("SET account{to} {target}"),
        ],
    );
    match connection.line("EXEC").as_str() {
        "*2 +OK +OK" => true,
        "*-1" => false,
        reply => panic!("{reply}"),
    }
}

#[test]
fn transfers_keep_the_sum() {
    on_every_engine(|engine| {
        const TRANSFERS: usize = 1000;
        let seed = seed();
        let (database, _) = open(engine);
        let mut connection = Connection::new(&database);
        let names = (0..ACCOUNTS).map(|account| format!("account{account}"));
        let names: Vec<_> = names.collect();
        for name in &names {
            send(&mut connection, &[&format!("SET {name} 100")]);
        }
        let at_once = format!("MGET {}", names.join(" "));
        let over = AtomicBool::new(false);
        let went_through: usize = std::thread::scope(|scope| {
            let _ending = Ending(&over);
            for in_transaction in [true, false] {
                let (database, names, at_once, over) = (&database, &names, &at_once, &over);
                scope.spawn(move || {
                    let mut connection = Connection::new(database);
                    while !over.load(Ordering::Relaxed) {
                        let reply = if in_transaction {
                            send(&mut connection, &["MULTI"]);
                            for name in names {
                                send(&mut connection, &[&format!("GET {name}")]);
                            }
                            connection.line("EXEC")
                        } else {
                            connection.line(at_once)
                        };
                        assert_eq!(sum(&reply), TOTAL, "{reply}");
                    }
                });
            }
            let writers = [0, 1].map(|writer| {
                let database = &database;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed ^ writer);
                    let mut connection = Connection::new(database);
                    let mut went_through = 0;
                    for _ in 0..TRANSFERS {
                        transfer_by_adding(&mut connection, &mut random);
                        went_through +=
                            usize::from(transfer_by_watching(&mut connection, &mut random));
                    }
                    went_through
                })
            });
            writers
                .into_iter()
                .map(|writer| writer.join().expect("no panic"))
                .sum()
        });
        assert_eq!(sum(&connection.line(&at_once)), TOTAL);
        assert!(went_through > 0, "no watched transfer went through");
    });
}
