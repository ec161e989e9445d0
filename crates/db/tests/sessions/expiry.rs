//! Deadlines: keys go when they are due without being touched, and the expiry index names exactly
//! the keys that have a deadline (invariant X1 one-entry), whatever sessions did at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pando_db::{Clock, Database, Options};

use crate::connection::{Connection, Ending, TestClock, maintain, on_every_engine, open, seed};

#[test]
fn due_keys_go_untouched_and_others_stay() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        let mut connection = Connection::new(&database);
        for key in 0..3000 {
            let deadline = 1 + key % 3;
            connection.line(&format!("SET k{key} v PX {}", deadline * 100));
            connection.line(&format!("SET stays{key} v"));
        }
        assert_eq!(database.expiring_keys(), 3000);
        for (passed, left) in [(100, 5000), (200, 4000), (300, 3000)] {
            clock.pass_ms(99);
            maintain(&database);
            assert_eq!(
                connection.line("DBSIZE"),
                format!(":{}", left + 1000),
                "before {passed}"
            );
            clock.pass_ms(1);
            maintain(&database);
            assert_eq!(connection.line("DBSIZE"), format!(":{left}"), "at {passed}");
        }
        assert_eq!(
            (database.expiring_keys(), database.statistics().expired_keys),
            (0, 3000)
        );
    });
}

#[test]
fn due_keys_of_every_database_go() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        let mut connection = Connection::new(&database);
        for index in 0..16 {
            connection.line(&format!("SELECT {index}"));
            connection.line("SET k v PX 100");
            connection.line("HSET h f v");
            connection.line("PEXPIRE h 200");
        }
        connection.line("SWAPDB 0 1");
        clock.pass_ms(150);
        maintain(&database);
        assert!((0..16).all(|index| database.summary(index) == (1, 1, 50)));
        clock.pass_ms(50);
        maintain(&database);
        assert!((0..16).all(|index| database.summary(index) == (0, 0, 0)));
    });
}

#[test]
fn without_the_expirer_due_keys_are_hidden_and_stay() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        database.set_active_expire(false);
        let mut connection = Connection::new(&database);
        connection.line("SET k v PX 100");
        clock.pass_ms(100);
        maintain(&database);
        assert_eq!(connection.line("DBSIZE"), ":1");
        assert_eq!(connection.line("GET k"), "$-1");
        assert_eq!(connection.line("SET k w"), "+OK");
        assert_eq!(
            (connection.line("TTL k"), database.expiring_keys()),
            (":-1".to_owned(), 0)
        );
    });
}

/// The thread of the database does by itself what the other tests ask of [`maintain`].
#[test]
fn the_maintenance_thread_removes_due_keys() {
    on_every_engine(|engine| {
        let clock = TestClock::new();
        let options = Options {
            engine,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..Options::default()
        };
        let database = Database::open(options).expect("the options are valid");
        let mut connection = Connection::new(&database);
        for key in 0..500 {
            connection.line(&format!("SET k{key} v PX 100"));
        }
        clock.pass_ms(100);
        let begin = Instant::now();
        while connection.line("DBSIZE") != ":0" {
            assert!(
                begin.elapsed() < Duration::from_mins(1),
                "nothing removes them"
            );
            std::thread::yield_now();
        }
        assert_eq!(database.statistics().expired_keys, 500);
    });
}

/// Few, so that sessions meet at them.
const KEYS: usize = 3;

/// What a round of the test below does.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The longest time to a deadline. Long ones are all different, so that an entry too many is
    /// not removed by chance.
    milliseconds_max: u64,
    /// Whether time passes and the expirer works meanwhile.
    expires: bool,
    /// Whether the database is emptied now and then, the index with it.
    flushes: bool,
}

/// One random command that sets, changes or drops a deadline, or the key.
fn change(connection: &mut Connection, random: &mut fastrand::Rng, round: Round) {
    let key = random.usize(..KEYS);
    let other = (key + random.usize(1..KEYS)) % KEYS;
    let milliseconds = random.u64(1..=round.milliseconds_max);
    let line = match random.u8(..16) {
        0 | 1 => format!("SET k{key} v"),
        2 | 3 => format!("SET k{key} v PX {milliseconds}"),
        4 => format!("SET k{key} w KEEPTTL"),
        5 | 6 => format!("PEXPIRE k{key} {milliseconds}"),
        7 => format!("PEXPIRE k{key} {milliseconds} GT"),
        8 | 9 => format!("PERSIST k{key}"),
        10 | 11 => format!("DEL k{key}"),
        12 => format!("GETEX k{key} PX {milliseconds}"),
        13 => format!("RENAME k{key} k{other}"),
        14 => format!("COPY k{key} k{other} REPLACE"),
        _ if round.flushes && random.u8(..50) == 0 => "FLUSHDB".to_owned(),
        _ => format!("PEXPIRE k{key} -1"),
    };
    let reply = connection.line(&line);
    let fine = !reply.starts_with('-') || reply == "-ERR no such key";
    assert!(fine, "{line}: {reply}");
}

/// How many of the keys have a deadline, and how many have none.
fn count_deadlines(connection: &mut Connection) -> (u64, u64) {
    let (mut with, mut without) = (0, 0);
    for key in 0..KEYS {
        match connection.line(&format!("PTTL k{key}")).as_str() {
            ":-2" => {}
            ":-1" => without += 1,
            _ => with += 1,
        }
    }
    (with, without)
}

/// X1 one-entry.
#[test]
fn the_index_names_exactly_the_keys_with_deadlines() {
    on_every_engine(|engine| {
        const SESSIONS: u64 = 3;
        const CHANGES: usize = 12_000;
        let seed = seed();
        let round = |milliseconds_max, expires, flushes| Round {
            milliseconds_max,
            expires,
            flushes,
        };
        let rounds = [
            round(1_000_000_000, false, false),
            round(1_000_000_000, false, true),
            round(2000, true, false),
            round(2000, true, true),
        ];
        for (index, round) in rounds.into_iter().enumerate() {
            let (database, clock) = open(engine);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _ending = Ending(&over);
                let workers: Vec<_> = (0..SESSIONS)
                    .map(|session| {
                        let seed = seed ^ (index as u64 * SESSIONS + session);
                        let mut connection = Connection::new(&database);
                        scope.spawn(move || {
                            let mut random = fastrand::Rng::with_seed(seed);
                            for _ in 0..CHANGES {
                                change(&mut connection, &mut random, round);
                            }
                        })
                    })
                    .collect();
                if round.expires {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            clock.pass_ms(7);
                            maintain(&database);
                        }
                    });
                }
                for worker in workers {
                    worker.join().expect("no panic");
                }
            });
            maintain(&database);
            let mut connection = Connection::new(&database);
            let (with, without) = count_deadlines(&mut connection);
            assert_eq!(database.expiring_keys(), with, "{round:?}");
            assert_eq!(
                connection.line("DBSIZE"),
                format!(":{}", with + without),
                "{round:?}"
            );
            // An index that named them by a wrong deadline would leave some.
            clock.pass_ms(round.milliseconds_max);
            maintain(&database);
            assert_eq!(database.expiring_keys(), 0, "{round:?}");
            assert_eq!(
                connection.line("DBSIZE"),
                format!(":{without}"),
                "{round:?}"
            );
        }
    });
}
