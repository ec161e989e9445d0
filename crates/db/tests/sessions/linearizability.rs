//! Commands on one key, or on one field of a hash, take effect one after the other: histories of
//! sessions that work on a few registers at once, recorded and checked for each register.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_db::{Database, EngineKind};

use crate::connection::{Connection, on_every_engine, open, seed};
use crate::history::{Event, Operation, is_linearizable};

const SESSIONS: usize = 3;
const REGISTERS: usize = 4;
const OPERATIONS: usize = 1200;

/// What a register is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A string at a key of its own.
    Key,
    /// A field of a hash that all registers share.
    Field,
}

/// The number in a bulk string, or nothing.
fn found(reply: &str) -> Option<i64> {
    let number = reply.split(' ').nth(1)?;
    Some(number.parse().expect("a number"))
}

fn integer(reply: &str) -> i64 {
    reply
        .strip_prefix(':')
        .and_then(|number| number.parse().ok())
        .expect("an integer")
}

/// Does something to register `index` and says what was answered.
fn operate(
    connection: &mut Connection,
    kind: Kind,
    index: usize,
    value: i64,
    random: &mut fastrand::Rng,
) -> Operation {
    let mut send = |line: String| connection.line(&line);
    match (kind, random.u8(..7)) {
        (Kind::Key, 0) => {
            assert_eq!(send(format!("SET r{index} {value}")), "+OK");
            Operation::Write { value }
        }
        (Kind::Key, 1) => Operation::Read {
            found: found(&send(format!("GET r{index}"))),
        },
        (Kind::Key, 2) => {
            let written = integer(&send(format!("SETNX r{index} {value}"))) == 1;
            Operation::WriteIfAbsent { value, written }
        }
        (Kind::Key, 3) => {
            let found = found(&send(format!("GETSET r{index} {value}")));
            Operation::Swap { value, found }
        }
        (Kind::Key, 4) => {
            let sum = integer(&send(format!("INCRBY r{index} {value}")));
            Operation::Add { amount: value, sum }
        }
        (Kind::Key, 5) => Operation::Remove {
            removed: integer(&send(format!("DEL r{index}"))) == 1,
        },
        (Kind::Key, _) => Operation::Take {
            found: found(&send(format!("GETDEL r{index}"))),
        },
        (Kind::Field, 0) => {
            assert!(send(format!("HSET hash r{index} {value}")).starts_with(':'));
            Operation::Write { value }
        }
        (Kind::Field, 1 | 2) => Operation::Read {
            found: found(&send(format!("HGET hash r{index}"))),
        },
        (Kind::Field, 3) => {
            let written = integer(&send(format!("HSETNX hash r{index} {value}"))) == 1;
            Operation::WriteIfAbsent { value, written }
        }
        (Kind::Field, 4) => {
            let sum = integer(&send(format!("HINCRBY hash r{index} {value}")));
            Operation::Add { amount: value, sum }
        }
        (Kind::Field, _) => {
            let removed = integer(&send(format!("HDEL hash r{index}"))) == 1;
            Operation::Remove { removed }
        }
    }
}

/// The events of one session, for each register.
fn work(database: &Arc<Database>, kind: Kind, now: &AtomicU64, seed: u64) -> Vec<Vec<Event>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut connection = Connection::new(database);
    let mut events = vec![Vec::new(); REGISTERS];
    for _ in 0..OPERATIONS {
        let index = random.usize(..REGISTERS);
        let value = random.i64(1..1_000_000_000);
        let called = now.fetch_add(1, Ordering::SeqCst);
        let operation = operate(&mut connection, kind, index, value, &mut random);
        let returned = now.fetch_add(1, Ordering::SeqCst);
        events[index].push(Event {
            called,
            returned,
            operation,
        });
    }
    events
}

fn check(kind: Kind, engine: EngineKind) {
    let seed = seed();
    println!("{kind:?} on {engine:?}");
    let (database, _) = open(engine);
    let now = AtomicU64::new(0);
    let sessions: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SESSIONS as u64)
            .map(|session| {
                let (database, now) = (&database, &now);
                scope.spawn(move || work(database, kind, now, seed ^ session))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    for index in 0..REGISTERS {
        let register: Vec<_> = sessions
            .iter()
            .map(|events| events[index].clone())
            .collect();
        assert!(
            is_linearizable(&register),
            "{kind:?} {index}: {register:#?}"
        );
    }
}

#[test]
fn commands_on_a_key_are_linearizable() {
    on_every_engine(|engine| check(Kind::Key, engine));
}

#[test]
fn commands_on_a_field_are_linearizable() {
    on_every_engine(|engine| check(Kind::Field, engine));
}
