//! Money that is moved between accounts by transactions is neither lost nor invented, and nobody
//! sees it under way.

use pando_protocol::resp::Value;

use crate::server::{Connection, Server, integer, text, texts, with_every_engine};

const ACCOUNTS: usize = 4;
const CLIENTS: usize = 4;
const READERS: usize = 2;
const START: i64 = 1000;

fn name(account: usize) -> String {
    format!("account{account}")
}

fn names() -> String {
    let names: Vec<_> = (0..ACCOUNTS).map(name).collect();
    names.join(" ")
}

fn open_accounts(connection: &mut Connection) {
    let pairs: Vec<_> = (0..ACCOUNTS)
        .map(|account| format!("{} {START}", name(account)))
        .collect();
    connection.ok(format!("MSET {}", pairs.join(" ")));
}

fn balance(reply: Value) -> i64 {
    let text = text(reply).expect("an account");
    text.parse().expect("a balance")
}

fn balances(reply: Value) -> Vec<i64> {
    let parse = |text: Option<String>| text.expect("an account").parse().expect("a balance");
    texts(reply).into_iter().map(parse).collect()
}

/// Whether balances hold the money that was there at first.
fn add_up(balances: &[i64]) -> bool {
    balances.iter().sum::<i64>() == START * ACCOUNTS as i64
}

/// What transfers that were confirmed have changed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ledger([i64; ACCOUNTS]);

impl Ledger {
    fn note(&mut self, from: usize, to: usize, amount: i64) {
        self.0[from] -= amount;
        self.0[to] += amount;
    }

    fn explains(&self, balances: &[i64]) -> bool {
        let changes = balances.iter().map(|balance| balance - START);
        changes.eq(self.0)
    }
}

/// Moves an amount and says whether it did.
type Transfer = fn(&mut Connection, usize, usize, i64) -> bool;

/// Two changes with something to do between them.
fn by_adding(connection: &mut Connection, from: usize, to: usize, amount: i64) -> bool {
    let mut requests = vec![format!("DECRBY {} {amount}", name(from))];
    requests.resize(20, format!("MGET {}", names()));
    requests.push(format!("INCRBY {} {amount}", name(to)));
    let replies = connection
        .transaction(&requests)
        .expect("nothing is watched");
    replies.iter().all(|reply| !reply.is_error())
}

/// Reads, computes and writes; the transaction is refused if somebody came in between.
fn by_watching(connection: &mut Connection, from: usize, to: usize, amount: i64) -> bool {
    let (from, to) = (name(from), name(to));
    connection.ok(format!("WATCH {from} {to}"));
    let source = balance(connection.call(format!("GET {from}")));
    let target = balance(connection.call(format!("GET {to}")));
    let requests = [
        format!("SET {from} {}", source - amount),
        format!("SET {to} {}", target + amount),
    ];
    connection.transaction(&requests).is_some()
}

/// Makes so many transfers, each tried until it succeeds.
fn work(server: &Server, transfer: Transfer, count: usize, seed: u64) -> Ledger {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut connection = server.connect();
    let mut ledger = Ledger::default();
    for _ in 0..count {
        let from = random.usize(..ACCOUNTS);
        let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
        let amount = random.i64(1..10);
        while !transfer(&mut connection, from, to, amount) {}
        ledger.note(from, to, amount);
    }
    ledger
}

/// Transfers of all clients, beside readers; the ledger of all.
fn run(server: &Server, transfer: Transfer, count: usize, seed: u64) -> Ledger {
    open_accounts(&mut server.connect());
    let mut total = Ledger::default();
    let write = || {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS as u64)
                .map(|client| scope.spawn(move || work(server, transfer, count, seed ^ client)))
                .collect();
            for client in clients {
                let Ledger(changes) = client.join().expect("a client ends");
                for (account, change) in changes.into_iter().enumerate() {
                    total.0[account] += change;
                }
            }
        });
    };
    crate::beside(write, readers(server));
    total
}

/// Readers that take a look in one command, or in several of a transaction.
fn readers(server: &Server) -> Vec<Box<dyn FnMut() + Send + '_>> {
    let mut readers: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
    for _ in 0..READERS {
        let mut connection = server.connect();
        readers.push(Box::new(move || {
            let seen = balances(connection.call(format!("MGET {}", names())));
            assert!(add_up(&seen), "MGET: {seen:?}");
        }));
        let mut connection = server.connect();
        let requests: Vec<_> = (0..ACCOUNTS)
            .map(|account| format!("GET {}", name(account)))
            .collect();
        readers.push(Box::new(move || {
            let replies = connection
                .transaction(&requests)
                .expect("nothing is watched");
            let seen: Vec<_> = replies.into_iter().map(balance).collect();
            assert!(add_up(&seen), "EXEC: {seen:?}");
        }));
    }
    readers.push(snapshots(server.connect()));
    readers
}

/// Makes a snapshot, looks at it and at earlier ones, and drops the oldest: no transaction is half
/// in one.
fn snapshots<'s>(mut connection: Connection) -> Box<dyn FnMut() + Send + 's> {
    const KEPT: usize = 4;
    let mut made: usize = 0;
    Box::new(move || {
        made += 1;
        let created = connection.call(format!("SNAPSHOT CREATE s{made}"));
        assert!(matches!(created, Value::Array(_)), "{created:?}");
        let oldest = made.saturating_sub(KEPT).max(1);
        for number in oldest..=made {
            let reply = connection.call(format!("SNAPSHOT READ s{number} MGET {}", names()));
            let seen = balances(reply);
            assert!(add_up(&seen), "s{number} of {made}: {seen:?}");
        }
        if made > KEPT {
            connection.call(format!("SNAPSHOT DROP s{oldest}"));
        }
    })
}

fn check(transfer: Transfer, count: usize) {
    let seed = crate::seed();
    with_every_engine(|server| {
        let ledger = run(server, transfer, crate::rounds(count), seed);
        let seen = balances(server.connect().call(format!("MGET {}", names())));
        assert!(
            ledger.explains(&seen),
            "{ledger:?} does not explain {seen:?}"
        );
    });
}

#[test]
fn transfers_that_add_are_seen_whole() {
    check(by_adding, 300);
}

#[test]
fn transfers_that_watch_lose_nothing() {
    check(by_watching, 100);
}

/// Transactions over two databases, beside commands on single keys of theirs: nobody loses what
/// another one wrote, and both databases are seen at one moment.
#[test]
fn transactions_of_two_databases_lose_nothing() {
    const WRITERS: usize = 3;
    let requests = |command: &str| {
        let lines = [command, "SELECT 1", command, "SELECT 0"];
        lines.map(str::to_owned).to_vec()
    };
    let both = |replies: &[Value]| [0, 2].map(|at| replies[at].clone());
    with_every_engine(|server| {
        let count = crate::rounds(400);
        let write = || {
            std::thread::scope(|scope| {
                for _ in 0..WRITERS {
                    let mut connection = server.connect();
                    scope.spawn(move || {
                        for _ in 0..count {
                            let replies = connection.transaction(&requests("INCR n"));
                            let [one, other] = both(&replies.expect("nothing is watched"));
                            assert_eq!(one, other);
                        }
                    });
                }
            });
        };
        let mut readers: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
        for database in 0..2 {
            let mut connection = server.connect();
            connection.ok(format!("SELECT {database}"));
            readers.push(Box::new(move || {
                integer(&connection.call("INCRBY n 0"));
                connection.call("EXPIRE n 1000");
                connection.call("PERSIST n");
            }));
        }
        let mut connection = server.connect();
        readers.push(Box::new(move || {
            let replies = connection.transaction(&requests("INCRBY n 0"));
            let [one, other] = both(&replies.expect("nothing is watched"));
            assert_eq!(one, other);
        }));
        crate::beside(write, readers);
        let replies = server.connect().transaction(&requests("GET n"));
        let found = both(&replies.expect("nothing is watched")).map(balance);
        assert_eq!(found, [(WRITERS * count) as i64; 2]);
    });
}

/// A reader of a list that transactions change in one place and count in another: what it watches
/// is what its transaction then sees.
#[test]
fn what_was_watched_is_what_exec_sees() {
    let seed = crate::seed();
    with_every_engine(|server| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut writer = server.connect();
        let write = || {
            for _ in 0..crate::rounds(1000) {
                match random.u8(..4) {
                    0 => drop(writer.call("DEL watched")),
                    1 => drop(writer.call(format!("SET watched {} PX 1", random.u32(..)))),
                    _ => drop(writer.call(format!("SET watched {}", random.u32(..)))),
                }
            }
        };
        let mut reader = server.connect();
        let read = move || {
            reader.ok("WATCH watched");
            let before = text(reader.call("GET watched"));
            if let Some(replies) = reader.transaction(&["GET watched".to_owned()]) {
                let seen: Vec<_> = replies.into_iter().map(text).collect();
                assert_eq!(seen, [before]);
            }
        };
        crate::beside(write, vec![Box::new(read)]);
    });
}

#[test]
fn canary_money_under_way_is_noticed() {
    let server = Server::start(pando_db::EngineKind::default());
    let mut connection = server.connect();
    open_accounts(&mut connection);
    assert!(add_up(&balances(
        connection.call(format!("MGET {}", names()))
    )));
    assert_eq!(
        integer(&connection.call(format!("DECRBY {} 5", name(0)))),
        START - 5
    );
    assert!(!add_up(&balances(
        connection.call(format!("MGET {}", names()))
    )));
}

/// Two who read before either writes, and do not watch.
#[test]
fn canary_a_lost_transfer_is_noticed() {
    let server = Server::start(pando_db::EngineKind::default());
    let mut clients = [server.connect(), server.connect()];
    open_accounts(&mut clients[0]);
    let mut ledger = Ledger::default();
    let read = |client: &mut Connection| balance(client.call(format!("GET {}", name(0))));
    let read = clients.each_mut().map(read);
    for (client, held) in clients.iter_mut().zip(read) {
        client.ok(format!("SET {} {}", name(0), held - 5));
        client.call(format!("INCRBY {} 5", name(1)));
        ledger.note(0, 1, 5);
    }
    let seen = balances(clients[0].call(format!("MGET {}", names())));
    assert!(!ledger.explains(&seen) && !add_up(&seen), "{seen:?}");
}
