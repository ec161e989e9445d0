//! What concerns everything at once: EXECs that last longer than an epoch, FLUSHALL, SWAPDB, in one
//! sequence from one connection, beside others that keep epochs ending.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pando_protocol::resp::Value;

use crate::server::{Connection, Folder, Promise, Server};
use crate::{pass, variable};

/// Accounts of a database; their balances add up to nothing.
const ACCOUNTS: usize = 20;

/// How long an EXEC shall take: longer than one holds the end of an epoch up.
const LONG: Duration = Duration::from_millis(50);

/// Most transfers of one EXEC.
const TRANSFERS_MAX: usize = 50_000;

/// One step of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many transfers as one EXEC, in database 0, with a stamp.
    Transfers {
        stamp: i64,
        count: usize,
    },
    FlushAll,
    /// Exchanges databases 0 and 1.
    Swap,
}

/// What stands in one of the two databases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    stamp: i64,
    balances: [i64; ACCOUNTS],
}

/// What stands in both.
pub(crate) type Ledgers = [Ledger; 2];

/// The transfers of a stamp.
fn transfers(stamp: i64, count: usize) -> impl Iterator<Item = (usize, usize, i64)> {
    let mut random = fastrand::Rng::with_seed(stamp.cast_unsigned());
    (0..count).map(move |_| {
        let from = random.usize(..ACCOUNTS);
        let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
        (from, to, random.i64(1..100))
    })
}

impl Step {
    pub(crate) fn random(random: &mut fastrand::Rng, stamp: i64, count: usize) -> Self {
        match random.u8(..8) {
            0 => Self::FlushAll,
            1 => Self::Swap,
            _ => Self::Transfers { stamp, count },
        }
    }

    pub(crate) fn apply(self, ledgers: &mut Ledgers) {
        match self {
            Self::Transfers { stamp, count } => {
                ledgers[0].stamp = stamp;
                for (from, to, amount) in transfers(stamp, count) {
                    ledgers[0].balances[from] -= amount;
                    ledgers[0].balances[to] += amount;
                }
            }
            Self::FlushAll => *ledgers = Ledgers::default(),
            Self::Swap => ledgers.swap(0, 1),
        }
    }

    /// The requests, and how many replies they get.
    fn encode(self, bytes: &mut Vec<u8>) -> usize {
        match self {
            Self::Transfers { stamp, count } => {
                Connection::encode(bytes, &["MULTI"]);
                Connection::encode(bytes, &["SET", "stamp", &stamp.to_string()]);
                for (from, to, amount) in transfers(stamp, count) {
                    let amount = amount.to_string();
                    let account = |number| format!("account:{number}");
                    Connection::encode(bytes, &["DECRBY", &account(from), &amount]);
                    Connection::encode(bytes, &["INCRBY", &account(to), &amount]);
                }
                Connection::encode(bytes, &["EXEC"]);
                2 * count + 3
            }
            Self::FlushAll => {
                Connection::encode(bytes, &["FLUSHALL"]);
                1
            }
            Self::Swap => {
                Connection::encode(bytes, &["SWAPDB", "0", "1"]);
                1
            }
        }
    }
}

/// Whether what was found is what some of the steps make, the first `promised` at least.
pub(crate) fn check(
    before: &Ledgers,
    sent: &[Step],
    promised: usize,
    found: &Ledgers,
) -> Result<(), String> {
    let mut ledgers = *before;
    let mut longest = (ledgers == *found).then_some(0);
    for (index, step) in sent.iter().enumerate() {
        step.apply(&mut ledgers);
        if ledgers == *found {
            longest = Some(index + 1);
        }
    }
    match longest {
        Some(steps) if steps >= promised => Ok(()),
        other => Err(format!(
            "{other:?} of {sent:?}, {promised} promised, make {found:?}"
        )),
    }
}

/// What the sequence was when its connection broke.
#[derive(Debug, Default)]
struct Sequence {
    sent: Vec<Step>,
    acknowledged: usize,
    /// EXECs that took so long that an epoch ended beside them.
    long: usize,
}

/// Steps until the connection breaks.
fn work(mut connection: Connection, seed: u64, count: &mut usize, stamp: &mut i64) -> Sequence {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sequence = Sequence::default();
    let mut spent = Duration::ZERO;
    if connection.choose(Promise::Sync).is_err() {
        return sequence;
    }
    loop {
        *stamp += 1;
        let step = Step::random(&mut random, *stamp, *count);
        sequence.sent.push(step);
        let mut bytes = Vec::new();
        let replies = step.encode(&mut bytes);
        if connection.send(&bytes).is_err() {
            return sequence;
        }
        for _ in 0..replies {
            if connection.reply().is_err() {
                return sequence;
            }
        }
        sequence.acknowledged += 1;
        let Some(total) = exec_time(&mut connection) else {
            return sequence;
        };
        let took = total.saturating_sub(std::mem::replace(&mut spent, total));
        if took >= LONG {
            sequence.long += 1;
        } else if replies > 1 {
            *count = (*count * 2).min(TRANSFERS_MAX);
        }
    }
}

/// How long all EXECs took, by the server's own account.
fn exec_time(connection: &mut Connection) -> Option<Duration> {
    let mut bytes = Vec::new();
    Connection::encode(&mut bytes, &["INFO", "commandstats"]);
    connection.send(&bytes).ok()?;
    let Value::Bulk(text) = connection.reply().ok()? else {
        panic!("INFO answers with a text");
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find(|line| line.starts_with("cmdstat_exec:"));
    let usec = line.and_then(|line| line.split(',').find_map(|it| it.strip_prefix("usec=")));
    let usec = usec.map_or(0, |usec| usec.parse().expect("a number"));
    Some(Duration::from_micros(usec))
}

/// Writes that wait for the disk keep epochs ending.
fn keep_epochs_ending(mut connection: Connection, number: usize, stop: &AtomicBool) {
    let mut alive = connection.choose(Promise::Sync).is_ok();
    while alive && !stop.load(Ordering::Relaxed) {
        let mut bytes = Vec::new();
        Connection::encode(&mut bytes, &["SET", &format!("noise:{number}"), "x"]);
        alive = connection.send(&bytes).is_ok() && connection.reply().is_ok();
    }
}

fn read(connection: &mut Connection) -> Ledgers {
    [0, 1].map(|database: usize| {
        connection.ask(&["SELECT", &database.to_string()]);
        let mut number = |key: String| match connection.ask(&["GET", &key]) {
            Value::Bulk(bytes) => String::from_utf8_lossy(&bytes).parse().expect("a number"),
            _ => 0,
        };
        Ledger {
            stamp: number("stamp".into()),
            balances: std::array::from_fn(|account| number(format!("account:{account}"))),
        }
    })
}

fn start(folder: &Folder, random: &mut fastrand::Rng) -> Server {
    let threads = random.usize(2..=3).to_string();
    let flags = ["--threads", &threads, "--durability", "interval"];
    let more = ["--checkpoint-log-size", "4mb", "--log-segment-size", "1mb"];
    let flags: Vec<String> = [flags, more]
        .concat()
        .iter()
        .map(|it| (*it).into())
        .collect();
    Server::start(&folder.path().join("data"), &flags)
}

#[test]
fn what_concerns_everything_is_there_whole_or_not_at_all() {
    let rounds = variable("PANDO_CRASH_ROUNDS", 5).min(50);
    let seed = variable("PANDO_CRASH_SEED", fastrand::u64(..));
    println!("PANDO_CRASH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new();
    let (mut before, mut count, mut stamp) = (Ledgers::default(), 200, 0);
    let (mut steps, mut long) = (0, 0);
    for round in 0..rounds {
        let server = start(&folder, &mut random);
        let seed = random.u64(..);
        let load = Duration::from_millis(random.u64(100..700));
        let stop = AtomicBool::new(false);
        let sequence = std::thread::scope(|scope| {
            for number in 0..2 {
                let (connection, stop) = (server.connect(), &stop);
                scope.spawn(move || keep_epochs_ending(connection, number, stop));
            }
            let connection = server.connect();
            let (count, stamp) = (&mut count, &mut stamp);
            let worker = scope.spawn(move || work(connection, seed, count, stamp));
            pass(load);
            server.kill();
            stop.store(true, Ordering::Relaxed);
            worker.join().expect("the sequence")
        });
        let server = start(&folder, &mut random);
        let found = read(&mut server.connect());
        check(&before, &sequence.sent, sequence.acknowledged, &found)
            .unwrap_or_else(|what| panic!("round {round} of seed {seed}: {what}"));
        for ledger in found {
            assert_eq!(ledger.balances.iter().sum::<i64>(), 0, "round {round}");
        }
        before = found;
        server.kill();
        steps += sequence.acknowledged;
        long += sequence.long;
    }
    println!("{steps} steps, {long} longer than {LONG:?}, {count} transfers");
}
