//! Commands on one key take effect one after the other, whichever workers run them.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_protocol::resp::Value;

use crate::register::{Event, Operation, check};
use crate::server::{Server, integer, is_status, text, with_every_engine};

const CLIENTS: usize = 6;
const KEYS: usize = 3;
const OPERATIONS: usize = 300;

/// Most requests that a client sends before it waits for their replies.
const PIPELINE_MAX: usize = 4;

/// A request and what it will turn out to have been.
struct Request {
    key: usize,
    line: String,
    answered: Box<dyn FnOnce(Value) -> Operation>,
}

/// Draws a request; `number` is not used by another one.
fn draw(random: &mut fastrand::Rng, name: &str, number: u64) -> Request {
    let key = random.usize(..KEYS);
    let value = number.to_string();
    let digit = random.char('0'..='9').to_string();
    let (line, answered): (_, Box<dyn FnOnce(Value) -> Operation>) = match random.u8(..10) {
        0..=2 => (
            format!("GET {name}{key}"),
            Box::new(|reply| Operation::Get { found: text(reply) }),
        ),
        3 | 4 => (
            format!("SET {name}{key} {value}"),
            Box::new(|reply| {
                assert!(is_status(&reply, "OK"), "{reply:?}");
                Operation::Set { value }
            }),
        ),
        5 => (
            format!("SETNX {name}{key} {value}"),
            Box::new(|reply| Operation::SetIfAbsent {
                value,
                was_set: integer(&reply) == 1,
            }),
        ),
        6 => (
            format!("INCR {name}{key}"),
            Box::new(|reply| Operation::Increment {
                sum: (!reply.is_error()).then(|| integer(&reply)),
            }),
        ),
        7 | 8 => (
            format!("APPEND {name}{key} {digit}"),
            Box::new(|reply| Operation::Append {
                suffix: digit,
                bytes: integer(&reply),
            }),
        ),
        _ => (
            format!("DEL {name}{key}"),
            Box::new(|reply| Operation::Remove {
                was_there: integer(&reply) == 1,
            }),
        ),
    };
    Request {
        key,
        line,
        answered,
    }
}

/// What one client did to each of the keys.
fn work(server: &Server, clock: &AtomicU64, name: &str, seed: u64) -> Vec<Vec<Event>> {
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut connection = server.connect();
    let mut events = vec![Vec::new(); KEYS];
    let mut count = 0;
    while count < OPERATIONS {
        let requests: Vec<_> = (0..random.usize(1..=PIPELINE_MAX))
            .map(|_| draw(&mut random, name, now()))
            .collect();
        count += requests.len();
        let called = now();
        let lines: Vec<_> = requests.iter().map(|request| &request.line).collect();
        connection.send(&lines);
        for request in requests {
            let operation = (request.answered)(connection.receive());
            events[request.key].push(Event {
                called,
                replied: now(),
                operation,
            });
        }
    }
    events
}

/// The histories of all keys, each with the clients' events, and a last read of each key.
fn record(server: &Server, name: &str, seed: u64) -> Vec<Vec<Vec<Event>>> {
    let clock = AtomicU64::new(0);
    let mut clients: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                let clock = &clock;
                scope.spawn(move || work(server, clock, name, seed ^ client))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client ends"))
            .collect()
    });
    let mut last = server.connect();
    clients.push(
        (0..KEYS)
            .map(|key| {
                let called = clock.fetch_add(1, Ordering::SeqCst);
                let found = text(last.call(format!("GET {name}{key}")));
                vec![Event {
                    called,
                    replied: clock.fetch_add(1, Ordering::SeqCst),
                    operation: Operation::Get { found },
                }]
            })
            .collect(),
    );
    (0..KEYS)
        .map(|key| {
            let of_key = |client: &mut Vec<Vec<Event>>| std::mem::take(&mut client[key]);
            clients.iter_mut().map(of_key).collect()
        })
        .collect()
}

#[test]
fn commands_on_a_key_are_linearizable() {
    let seed = crate::seed();
    with_every_engine(|server| {
        for round in 0..crate::rounds(16) as u64 {
            let name = format!("round{round}:");
            let histories = record(server, &name, seed.wrapping_add(round << 8));
            for (key, history) in histories.iter().enumerate() {
                if let Err(complaint) = check(history) {
                    panic!("round {round}, key {key}: {complaint}");
                }
            }
        }
    });
}

/// After the last read nothing has changed, so another answer than its own is stale.
#[test]
fn canary_a_stale_read_in_a_real_history_is_refused() {
    let seed = crate::seed();
    let server = Server::start(pando_db::EngineKind::default());
    for mut history in record(&server, "k", seed) {
        assert_eq!(check(&history), Ok(()));
        let last = history.last_mut().expect("the reader's events");
        let Operation::Get { found } = &last[0].operation else {
            panic!("{last:?}");
        };
        let stale = match found {
            Some(_) => None,
            None => Some("0".to_owned()),
        };
        last.push(Event {
            called: u64::MAX - 1,
            replied: u64::MAX,
            operation: Operation::Get { found: stale },
        });
        assert!(check(&history).is_err());
    }
}
