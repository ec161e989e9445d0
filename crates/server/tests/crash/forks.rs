//! Branches and lasting snapshots of a real server that is killed again and again: each is there as
//! it was, or was never made.
//!
//! Two clients, one of `sync` and one of `interval`, each do one step after the other: they make,
//! drop, reset and merge branches, make and drop snapshots, and write to branches, alone and by
//! EXEC. Each has names and keys of its own, so what is found of either must be what some of its
//! steps make: all that were acknowledged in mode `sync`.

use std::collections::BTreeMap;
use std::time::Duration;

use pando_protocol::resp::Value;

use crate::server::{Connection, Folder, Promise, Server};
use crate::{pass, variable};

type Keys = BTreeMap<String, String>;

/// What one client has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Forks {
    branches: BTreeMap<String, Keys>,
    snapshots: BTreeMap<String, Keys>,
}

/// One step of a client.
#[derive(Clone, Debug)]
enum Step {
    Create {
        name: String,
        from: String,
    },
    Drop(String),
    Rename {
        name: String,
        new: String,
    },
    Snapshot {
        name: String,
        of: String,
    },
    DropSnapshot(String),
    Reset {
        name: String,
        to: String,
    },
    Merge {
        from: String,
        into: String,
    },
    Flush(String),
    Write {
        branch: String,
        keys: Vec<(String, Option<String>)>,
    },
}

fn pick<'a>(random: &mut fastrand::Rng, names: impl Iterator<Item = &'a String>) -> Option<String> {
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| names[random.usize(..names.len())].clone())
}

impl Step {
    /// A step that can be made, of the client with this letter.
    fn random(random: &mut fastrand::Rng, letter: char, forks: &Forks, number: u64) -> Self {
        let branch = pick(random, forks.branches.keys());
        let other = pick(random, forks.branches.keys());
        let snapshot = pick(random, forks.snapshots.keys());
        let name = format!("{letter}{number}");
        let is_room = forks.branches.len() < 12;
        match (random.u8(..24), branch, other, snapshot) {
            (0 | 1, Some(from), ..) if is_room => Self::Create { name, from },
            (2, .., Some(from)) if is_room => Self::Create { name, from },
            (3, Some(name), ..) if forks.branches.len() > 2 => Self::Drop(name),
            (4, Some(old), ..) => Self::Rename {
                name: old,
                new: name,
            },
            (5 | 6, Some(of), ..) if forks.snapshots.len() < 6 => Self::Snapshot { name, of },
            (7, .., Some(name)) => Self::DropSnapshot(name),
            (8, Some(name), _, Some(to)) => Self::Reset { name, to },
            (9, Some(from), Some(into), _) if from != into => Self::Merge { from, into },
            (10, Some(branch), ..) if random.u8(..4) == 0 => Self::Flush(branch),
            (_, Some(branch), ..) => {
                let keys = (0..random.usize(1..5)).map(|_| {
                    let key = format!("{letter}:{}", random.u8(..40));
                    let value = format!("{number}").repeat(random.usize(1..20));
                    (key, (random.u8(..4) > 0).then_some(value))
                });
                Self::Write {
                    branch,
                    keys: keys.collect(),
                }
            }
            (.., None, _, _) => Self::Create {
                name,
                from: "MAIN".into(),
            },
        }
    }

    fn apply(&self, forks: &mut Forks) {
        let Forks {
            branches,
            snapshots,
        } = forks;
        match self {
            Self::Create { name, from } => {
                let keys = branches.get(from).or_else(|| snapshots.get(from));
                let keys = keys.cloned().unwrap_or_default();
                branches.insert(name.clone(), keys);
            }
            Self::Drop(name) => _ = branches.remove(name),
            Self::Rename { name, new } => {
                let keys = branches.remove(name).unwrap_or_default();
                branches.insert(new.clone(), keys);
            }
            Self::Snapshot { name, of } => _ = snapshots.insert(name.clone(), branches[of].clone()),
            Self::DropSnapshot(name) => _ = snapshots.remove(name),
            Self::Reset { name, to } => {
                _ = branches.insert(name.clone(), snapshots[to].clone());
            }
            // What it does is looked up when it was made: see `merged`.
            Self::Merge { .. } => {}
            Self::Flush(name) => _ = branches.insert(name.clone(), Keys::new()),
            Self::Write { branch, keys } => {
                let branch = branches.entry(branch.clone()).or_default();
                for (key, value) in keys {
                    match value {
                        Some(value) => _ = branch.insert(key.clone(), value.clone()),
                        None => _ = branch.remove(key),
                    }
                }
            }
        }
    }

    fn requests(&self) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Self::Create { name, from } => vec![words(&["BRANCH", "CREATE", name, "FROM", from])],
            Self::Drop(name) => vec![words(&["BRANCH", "DROP", name])],
            Self::Rename { name, new } => vec![words(&["BRANCH", "RENAME", name, new])],
            Self::Snapshot { name, of } => vec![
                words(&["BRANCH", "USE", of]),
                words(&["SNAPSHOT", "CREATE", name, "PERSIST"]),
            ],
            Self::DropSnapshot(name) => vec![words(&["SNAPSHOT", "DROP", name])],
            Self::Reset { name, to } => vec![words(&["BRANCH", "RESET", name, "TO", to])],
            Self::Merge { from, into } => vec![words(&["BRANCH", "MERGE", from, "INTO", into])],
            Self::Flush(name) => vec![words(&["BRANCH", "USE", name]), words(&["FLUSHDB"])],
            Self::Write { branch, keys } => {
                let mut all = vec![words(&["BRANCH", "USE", branch]), words(&["MULTI"])];
                all.extend(keys.iter().map(|(key, value)| match value {
                    Some(value) => words(&["SET", key, value]),
                    None => words(&["DEL", key]),
                }));
                all.push(words(&["EXEC"]));
                all
            }
        }
    }
}

/// What a client did until its connection broke: what there was behind each step.
#[derive(Debug)]
struct Course {
    states: Vec<Forks>,
    acknowledged: usize,
}

/// Asks for what cannot be asked of a server that has gone.
fn ask(connection: &mut Connection, request: &[String]) -> Option<Value> {
    let mut bytes = Vec::new();
    Connection::encode(&mut bytes, request);
    connection.send(&bytes).ok()?;
    connection.reply().ok()
}

/// Steps until the connection breaks.
fn work(
    mut connection: Connection,
    (letter, promise): (char, Promise),
    mut forks: Forks,
    mut number: u64,
    seed: u64,
) -> (Course, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut course = Course {
        states: vec![forks.clone()],
        acknowledged: 0,
    };
    if connection.choose(promise).is_err() {
        return (course, number);
    }
    loop {
        number += 1;
        let step = Step::random(&mut random, letter, &forks, number);
        // A merge is of branches that the other client leaves alone.
        if let Step::Merge { from, into } = &step {
            match merge(&mut connection, from, into) {
                Some(None) => continue,
                Some(Some(writes)) => {
                    let branch = forks.branches.entry(into.clone()).or_default();
                    for (key, value) in writes {
                        match value {
                            Some(value) => _ = branch.insert(key, value),
                            None => _ = branch.remove(&key),
                        }
                    }
                }
                None => return (course, number),
            }
        }
        step.apply(&mut forks);
        course.states.push(forks.clone());
        for request in step.requests() {
            if ask(&mut connection, &request).is_none() {
                return (course, number);
            }
        }
        course.acknowledged += 1;
    }
}

/// Keys with their new values, or none: they go.
type Writes = Vec<(String, Option<String>)>;

/// The keys that a merge would write, with their values, if it has no conflicts: those that the
/// other branch has otherwise, and this one not otherwise than where they parted. A dry run says
/// how many, and if that is not all that differs, the merge is left out: `Some(None)`. `None`: the
/// server has gone.
#[expect(
    clippy::option_option,
    reason = "none: the server has gone; some none: no merge"
)]
fn merge(connection: &mut Connection, from: &str, into: &str) -> Option<Option<Writes>> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut bytes = Vec::new();
    Connection::encode(&mut bytes, &words(&["BRANCH", "DIFF", into, from, "COUNT"]));
    Connection::encode(
        &mut bytes,
        &words(&["BRANCH", "DIFF", into, from, "LIMIT", "1000"]),
    );
    connection.send(&bytes).ok()?;
    let Value::Integer(differ) = connection.reply().ok()? else {
        panic!("a count");
    };
    let Value::Array(found) = connection.reply().ok()? else {
        panic!("what differs");
    };
    let Some(Value::Array(changes)) = found.get(1) else {
        panic!("{found:?}");
    };
    let dry = ask_any(
        connection,
        &words(&["BRANCH", "MERGE", from, "INTO", into, "DRY", "RUN"]),
    )?;
    let Value::Array(fields) = dry else {
        // They were emptied apart.
        return Some(None);
    };
    let is_all = fields[1] == Value::Integer(differ) && fields[3] == Value::Integer(0);
    if !is_all {
        return Some(None);
    }
    let mut writes = Vec::new();
    for change in changes {
        let Value::Array(change) = change else {
            panic!("{change:?}");
        };
        let key = text(&change[0]);
        let read = ask(connection, &words(&["BRANCH", "READ", from, "GET", &key]))?;
        let value = match read {
            Value::Bulk(_) => Some(text(&read)),
            _ => None,
        };
        writes.push((key, value));
    }
    Some(Some(writes))
}

/// As [`ask`]; the reply may be an error.
fn ask_any(connection: &mut Connection, request: &[String]) -> Option<Value> {
    let mut bytes = Vec::new();
    Connection::encode(&mut bytes, request);
    connection.send(&bytes).ok()?;
    connection.reply_or_error().ok()
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

fn names(connection: &mut Connection, command: &str, letter: char) -> Vec<String> {
    let Value::Array(list) = connection.ask(&[command, "LIST"]) else {
        panic!("a list");
    };
    let name = |entry: &Value| match entry {
        Value::Array(entry) => text(&entry[0]),
        other => panic!("{other:?}"),
    };
    let names = list.iter().map(name);
    names.filter(|name| name.starts_with(letter)).collect()
}

/// What there is of the client with this letter.
fn read(connection: &mut Connection, letter: char) -> Forks {
    let mut forks = Forks::default();
    let pattern = format!("{letter}:*");
    for (command, all) in [
        ("BRANCH", &mut forks.branches),
        ("SNAPSHOT", &mut forks.snapshots),
    ] {
        for name in names(connection, command, letter) {
            let Value::Array(keys) = connection.ask(&[command, "READ", &name, "KEYS", &pattern])
            else {
                panic!("keys");
            };
            let keys = keys.iter().map(text).map(|key| {
                let value = connection.ask(&[command, "READ", &name, "GET", &key]);
                (key, text(&value))
            });
            let keys = keys.collect();
            all.insert(name, keys);
        }
    }
    forks
}

fn check(course: &Course, promise: Promise, found: &Forks) -> Result<(), String> {
    let promised = match promise {
        Promise::Sync => course.acknowledged,
        Promise::Interval => 0,
    };
    let mut states = course.states.iter().enumerate();
    if states.any(|(step, state)| step >= promised && state == found) {
        return Ok(());
    }
    let last = course.states.last();
    Err(format!(
        "{found:?} is not what steps from {promised} to {} make, the last of them {last:?}",
        course.states.len() - 1
    ))
}

#[test]
fn branches_and_snapshots_survive_a_kill() {
    let rounds = variable("PANDO_CRASH_ROUNDS", 6);
    let seed = variable("PANDO_CRASH_SEED", fastrand::u64(..));
    println!("PANDO_CRASH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new();
    let clients = [('a', Promise::Sync), ('b', Promise::Interval)];
    let (mut forks, mut number) = ([Forks::default(), Forks::default()], 0);
    let (mut steps, mut branches, mut snapshots) = (0, 0, 0);
    for round in 0..rounds {
        let threads = random.usize(1..=3).to_string();
        let flags = ["--engine", "minuet", "--threads", &threads];
        let more = ["--checkpoint-log-size", "1mb", "--log-segment-size", "1mb"];
        let flags = [flags, more].concat();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).into()).collect();
        let start = || Server::start(&folder.path().join("data"), &flags);
        let server = start();
        let load = Duration::from_millis(random.u64(50..500));
        let courses = std::thread::scope(|scope| {
            let workers = clients.map(|client| {
                let connection = server.connect();
                let forks = forks[usize::from(client.0 == 'b')].clone();
                let seed = random.u64(..);
                scope.spawn(move || work(connection, client, forks, number, seed))
            });
            pass(load);
            server.kill();
            workers.map(|worker| worker.join().expect("a client"))
        });
        let server = start();
        let mut connection = server.connect();
        for (index, (course, last)) in courses.into_iter().enumerate() {
            let (letter, promise) = clients[index];
            let found = read(&mut connection, letter);
            check(&course, promise, &found)
                .unwrap_or_else(|what| panic!("round {round} of seed {seed}: {what}"));
            steps += course.acknowledged;
            number = number.max(last);
            forks[index] = found;
        }
        branches = forks.iter().map(|forks| forks.branches.len()).sum();
        snapshots = forks.iter().map(|forks| forks.snapshots.len()).sum();
        server.kill();
    }
    println!("{steps} steps, {branches} branches and {snapshots} snapshots at the end");
}

#[test]
fn canary_what_was_not_made_is_found_out() {
    let keys = |value: &str| Keys::from([("a:1".to_owned(), value.to_owned())]);
    let mut state = Forks::default();
    let mut course = Course {
        states: vec![state.clone()],
        acknowledged: 2,
    };
    for (name, value) in [("a1", "x"), ("a2", "y"), ("a3", "z")] {
        state.branches.insert(name.into(), keys(value));
        course.states.push(state.clone());
    }
    for (found, is_right) in [(1, false), (2, true), (3, true)] {
        let found = &course.states[found];
        assert_eq!(check(&course, Promise::Sync, found).is_ok(), is_right);
        assert!(check(&course, Promise::Interval, found).is_ok());
        let mut other = found.clone();
        other.branches.insert("a1".into(), keys("other"));
        assert!(check(&course, Promise::Interval, &other).is_err());
    }
}
