//! CLIENT PAUSE: which commands wait, until when, and that nothing of them has happened meanwhile.

use pando_db::{Database, Microseconds};

use crate::connection::{Answer, Connection, START_MS, maintain, on_every_engine, open, words};

const END_US: u64 = (START_MS + 500) * 1000;

/// Until when the command is held back, if it is.
fn paused(connection: &mut Connection, line: &str) -> Option<u64> {
    match connection.send(words(line)) {
        Answer::Paused(until) => Some(until),
        Answer::Reply(_) => None,
        Answer::Slices(_) => panic!("{line} has no slices"),
    }
}

#[test]
fn writes_wait_and_reads_do_not() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        let mut connection = Connection::new(&database);
        connection.line("SET k 1");
        database.pause(Microseconds(END_US), false);
        for line in ["SET k 2", "DEL k", "HSET h f v", "FLUSHALL", "EXPIRE k 1"] {
            assert_eq!(paused(&mut connection, line), Some(END_US), "{line}");
        }
        for line in ["GET k", "PING", "EXISTS h", "DBSIZE", "WATCH k", "UNWATCH"] {
            assert_eq!(paused(&mut connection, line), None, "{line}");
        }
        assert_eq!(connection.line("GET k"), "$1 1");
        clock.pass_ms(499);
        assert_eq!(paused(&mut connection, "SET k 2"), Some(END_US));
        clock.pass_ms(1);
        assert_eq!(connection.line("SET k 2"), "+OK");
    });
}

#[test]
fn a_full_pause_holds_reads_too() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let mut connection = Connection::new(&database);
        database.pause(Microseconds(END_US), true);
        for line in ["GET k", "SET k 1", "PING", "MULTI"] {
            assert_eq!(paused(&mut connection, line), Some(END_US), "{line}");
        }
        assert_eq!(
            paused(&mut connection, "RESET"),
            None,
            "a client can always start anew"
        );
        database.unpause();
        assert_eq!(connection.line("GET k"), "$-1");
    });
}

#[test]
fn a_pause_is_neither_shortened_nor_relaxed() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        let mut connection = Connection::new(&database);
        database.pause(Microseconds(END_US), true);
        database.pause(Microseconds(END_US - 1000), false);
        assert_eq!(paused(&mut connection, "GET k"), Some(END_US));
        database.pause(Microseconds(END_US + 1000), false);
        assert_eq!(paused(&mut connection, "GET k"), Some(END_US + 1000));
        clock.pass_ms(501);
        assert_eq!(connection.line("GET k"), "$-1");
        // What is over leaves nothing of its strictness behind.
        database.pause(Microseconds(END_US + 5000), false);
        assert_eq!(paused(&mut connection, "GET k"), None);
        assert_eq!(paused(&mut connection, "SET k 1"), Some(END_US + 5000));
    });
}

#[test]
fn a_transaction_that_writes_waits_whole() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        let mut connection = Connection::new(&database);
        connection.line("SET k 1");
        connection.line("MULTI");
        connection.line("INCR k");
        connection.line("GET k");
        database.pause(Microseconds(END_US), false);
        assert_eq!(
            paused(&mut connection, "SET k 5"),
            Some(END_US),
            "not queued either"
        );
        assert_eq!(paused(&mut connection, "EXEC"), Some(END_US));
        let mut reader = Connection::new(&database);
        assert_eq!(reader.line("GET k"), "$1 1");
        reader.line("MULTI");
        reader.line("GET k");
        assert_eq!(
            reader.line("EXEC"),
            "*1 $1 1",
            "a transaction that only reads"
        );
        clock.pass_ms(500);
        assert_eq!(connection.line("EXEC"), "*2 :2 $1 2");
    });
}

fn expired(database: &Database) -> u64 {
    database.statistics().expired_keys
}

#[test]
fn the_expirer_pauses_too() {
    on_every_engine(|engine| {
        let (database, clock) = open(engine);
        let mut connection = Connection::new(&database);
        connection.line("SET k 1 PX 100");
        database.pause(Microseconds(END_US), false);
        clock.pass_ms(200);
        maintain(&database);
        assert_eq!(
            (expired(&database), connection.line("DBSIZE")),
            (0, ":1".to_owned())
        );
        assert_eq!(connection.line("GET k"), "$-1");
        clock.pass_ms(300);
        maintain(&database);
        assert_eq!(
            (expired(&database), connection.line("DBSIZE")),
            (1, ":0".to_owned())
        );
    });
}
