//! Snapshots show all of what there was at one moment, whatever clients do beside them.
//!
//! Each writer has a database of its own. Its changes follow from their numbers, and each stores
//! its number in the same transaction; so the number that a snapshot shows says what else it must
//! show. FLUSHALL comes from elsewhere: how many changes have followed is counted by a key that it
//! removes, too.

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_db::EngineKind;
use pando_protocol::resp::Value;

use crate::server::{Connection, Server, elements, integer, text, texts, with_every_engine};

const WRITERS: usize = 2;
const KEYS: u64 = 40;
/// Bytes of a value, but for its number.
const FILLING: usize = 600;

/// The key that change `number` of a writer is about, and whether it removes it.
fn change(writer: usize, number: u64) -> (u64, bool) {
    let mixed = (number ^ ((writer as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed ^ (mixed >> 29);
    ((mixed >> 8) % KEYS, mixed.is_multiple_of(4))
}

/// The last change up to `number` that is about this key, and whether it removes it.
fn last_about(writer: usize, key: u64, number: u64) -> Option<(u64, bool)> {
    (1..=number).rev().take(2000).find_map(|number| {
        let (about, removes) = change(writer, number);
        (about == key).then_some((number, removes))
    })
}

type Content = BTreeMap<String, String>;

fn number(content: &Content, key: &str) -> Option<u64> {
    let text = content.get(key)?;
    Some(text.split('.').next()?.parse().expect("a number"))
}

/// Whether a writer's database held this at one moment; what was evicted may be missing.
fn check(writer: usize, content: &Content, evicts: bool) -> Result<(), String> {
    let Some(last) = number(content, "last") else {
        let is_empty = content.is_empty() || evicts;
        return is_empty.then_some(()).ok_or("no number".to_owned());
    };
    let count = number(content, "count");
    if count.is_none() && !evicts {
        return Err(format!("{last}, and no count"));
    }
    for key in 0..KEYS {
        let seen = number(content, &format!("k{key}"));
        let about = last_about(writer, key, last);
        let since = last.checked_sub(count.unwrap_or(last));
        let since = since.ok_or("more changes than there were")?;
        let stands = about.filter(|(number, removes)| !removes && *number > since);
        let stands = stands.map(|(number, _)| number);
        let may_be_gone = evicts && seen.is_none();
        // What was evicted of the count makes it begin again.
        let is_older = evicts && about == seen.map(|seen| (seen, false));
        if seen != stands && !may_be_gone && !is_older {
            return Err(format!("k{key} is {seen:?} at {last}, not {stands:?}"));
        }
    }
    Ok(())
}

/// Everything that a snapshot shows of the database that the connection has selected, in steps of
/// SCAN; `None` if it has gone meanwhile.
fn read(connection: &mut Connection, name: &str) -> Option<Content> {
    let mut ask = |line: String| {
        let reply = connection.call(format!("SNAPSHOT READ {name} {line}"));
        let gone = matches!(&reply, Value::Error(error) if error.starts_with(b"NOSNAPSHOT"));
        (!gone).then_some(reply)
    };
    let (mut content, mut cursor) = (Content::new(), "0".to_owned());
    loop {
        let mut parts = elements(ask(format!("SCAN {cursor} COUNT 7"))?);
        let keys: Vec<_> = texts(parts.remove(1)).into_iter().flatten().collect();
        if !keys.is_empty() {
            let values = texts(ask(format!("MGET {}", keys.join(" ")))?);
            for (key, value) in keys.into_iter().zip(values) {
                let value = value.unwrap_or_else(|| panic!("{name}: {key} is listed"));
                let twice = content.insert(key, value);
                assert_eq!(twice, None, "{name} shows a key twice");
            }
        }
        cursor = text(parts.remove(0)).expect("a cursor");
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(integer(&ask("DBSIZE".to_owned())?), content.len() as i64);
    // Asked for by name, keys are the same, and those that came later are none.
    let named = (0..KEYS).map(|key| format!("k{key}"));
    let named: Vec<_> = named
        .chain(["last".to_owned(), "count".to_owned()])
        .collect();
    let values = texts(ask(format!("MGET {}", named.join(" ")))?);
    let there = named.into_iter().zip(values);
    let there: Content = there
        .filter_map(|(key, value)| Some((key, value?)))
        .collect();
    assert_eq!(there, content, "{name}, asked for by name and listed");
    Some(content)
}

/// Snapshots that were made, with what each showed at first.
struct Kept {
    made: Vec<(String, bool, Vec<Content>)>,
    count: usize,
    evicts: bool,
    random: Rng,
}

impl Kept {
    /// Makes a snapshot, looks into one again or drops one.
    fn step(&mut self, connection: &mut Connection) {
        let at = self.random.usize(..self.made.len().max(1));
        match self.random.u32(..6) {
            0..2 if self.made.len() < 6 => self.make(connection),
            2 if !self.made.is_empty() => {
                let (name, ..) = self.made.swap_remove(at);
                connection.call(format!("SNAPSHOT DROP {name}"));
            }
            _ if !self.made.is_empty() => self.look(connection, at),
            _ => self.make(connection),
        }
    }

    fn make(&mut self, connection: &mut Connection) {
        self.count += 1;
        let (name, held) = (format!("s{}", self.count), self.random.bool());
        let hold = if held { " HOLD" } else { "" };
        let created = connection.call(format!("SNAPSHOT CREATE {name}{hold}"));
        assert!(matches!(created, Value::Array(_)), "{created:?}");
        let Some(contents) = self.contents(connection, &name, held) else {
            return;
        };
        for (writer, content) in contents.iter().enumerate() {
            if let Err(wrong) = check(writer, content, self.evicts) {
                panic!("{name}, database {writer}: {wrong}");
            }
        }
        self.made.push((name, held, contents));
    }

    fn look(&mut self, connection: &mut Connection, at: usize) {
        let (name, held, contents) = &self.made[at];
        match self.contents(connection, name, *held) {
            Some(now) => assert_eq!(now, *contents, "{name} shows something else"),
            None => drop(self.made.swap_remove(at)),
        }
    }

    fn contents(
        &self,
        connection: &mut Connection,
        name: &str,
        held: bool,
    ) -> Option<Vec<Content>> {
        let mut contents = Vec::new();
        for writer in 0..WRITERS {
            connection.ok(format!("SELECT {writer}"));
            let Some(content) = read(connection, name) else {
                assert!(self.evicts && !held, "{name} has gone by itself");
                return None;
            };
            contents.push(content);
        }
        Some(contents)
    }
}

fn is_oom(error: &[u8]) -> bool {
    error.windows(3).any(|part| part == b"OOM")
}

/// Makes the next change, unless there is no room for it.
fn write(connection: &mut Connection, writer: usize, next: &mut u64) {
    let number = *next;
    let (key, removes) = change(writer, number);
    let filling = "v".repeat(FILLING);
    let what = if removes {
        format!("DEL k{key}")
    } else {
        format!("SET k{key} {number}.{filling}")
    };
    connection.send(&[
        "MULTI",
        &format!("SET last {number}"),
        "INCR count",
        &what,
        "EXEC",
    ]);
    let mut replies: Vec<_> = (0..5).map(|_| connection.receive()).collect();
    match replies.pop() {
        Some(Value::Array(inner)) => {
            assert!(!inner.iter().any(Value::is_error), "{inner:?}");
            *next += 1;
        }
        // For want of memory, at the end or when a part was queued.
        Some(end @ Value::Error(_)) => {
            let is_short = |reply: &Value| matches!(reply, Value::Error(error) if is_oom(error));
            let mut all = replies.iter().chain([&end]);
            assert!(all.any(is_short), "{end:?} after {replies:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Runs rounds of making, reading and dropping snapshots beside writers, scans and FLUSHALL.
fn run(server: &Server, evicts: bool, seed: u64) {
    let mut others: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
    for writer in 0..WRITERS {
        let (mut connection, mut next) = (server.connect(), 1);
        connection.ok(format!("SELECT {writer}"));
        others.push(Box::new(move || write(&mut connection, writer, &mut next)));
    }
    let (mut connection, mut random) = (server.connect(), Rng::with_seed(seed ^ 1));
    others.push(Box::new(move || {
        connection.ok(format!("SELECT {}", random.usize(..WRITERS)));
        connection.call("SCAN 0 COUNT 100");
        if random.u32(..if evicts { 2000 } else { 100 }) == 0 {
            connection.ok("FLUSHALL");
        }
        if evicts {
            connection.ok("SELECT 5");
            let (key, bytes) = (random.u32(..1000), random.usize(1..200_000));
            // It may be refused.
            connection.call(format!("SET other{key} {}", "o".repeat(bytes)));
        }
    }));
    let mut kept = Kept {
        made: Vec::new(),
        count: 0,
        evicts,
        random: Rng::with_seed(seed),
    };
    let mut connection = server.connect();
    let work = || {
        for _ in 0..crate::rounds(if evicts { 50 } else { 100 }) {
            kept.step(&mut connection);
        }
    };
    crate::beside(work, others);
    assert!(kept.count > 8, "{} snapshots", kept.count);
}

#[test]
fn a_snapshot_shows_what_there_was_at_one_moment() {
    let seed = crate::seed();
    with_every_engine(|server| run(server, false, seed));
}

#[test]
fn what_is_evicted_stays_in_snapshots() {
    let seed = crate::seed();
    for engine in EngineKind::ALL {
        println!("engine {}", engine.name());
        let server = Server::start(engine);
        let mut connection = server.connect();
        connection.ok("CONFIG SET maxmemory-policy allkeys-random");
        connection.ok("CONFIG SET maxmemory 16mb");
        connection.ok("SELECT 5");
        // More than there is room for: what is evicted first.
        for key in 0..400 {
            connection.call(format!("SET early{key} {}", "e".repeat(100_000)));
        }
        run(&server, true, seed);
        let info = text(connection.call("INFO stats")).expect("text");
        let evicted = info
            .lines()
            .find_map(|line| line.strip_prefix("evicted_keys:"));
        assert_ne!(evicted, Some("0"), "nothing was evicted");
    }
}

/// A key of another moment, one that is missing and one too many.
#[test]
fn canary_a_mixture_of_moments_is_noticed() {
    let mut content = Content::new();
    let mut put = |key: String, value: u64| content.insert(key, format!("{value}.v"));
    for number in 1..=100 {
        let (key, removes) = change(0, number);
        if removes {
            put(format!("k{key}"), 0);
        } else {
            put(format!("k{key}"), number);
        }
    }
    content.retain(|_, value| value != "0.v");
    content.insert("last".to_owned(), "100".to_owned());
    content.insert("count".to_owned(), "100".to_owned());
    assert_eq!(check(0, &content, false), Ok(()));
    let (next, _) = (101..200)
        .map(|number| change(0, number))
        .find(|(_, removes)| !removes)
        .expect("one");
    let mut later = content.clone();
    later.insert(format!("k{next}"), "101.v".to_owned());
    check(0, &later, true).unwrap_err();
    let some = content
        .keys()
        .find(|key| key.starts_with('k'))
        .expect("one")
        .clone();
    let mut missing = content.clone();
    missing.remove(&some);
    check(0, &missing, false).unwrap_err();
    assert_eq!(check(0, &missing, true), Ok(()));
    let mut earlier = content;
    earlier.insert("last".to_owned(), "60".to_owned());
    check(0, &earlier, true).unwrap_err();
}
