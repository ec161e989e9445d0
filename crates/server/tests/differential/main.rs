//! The differential test: the same random commands to this server and to Redis, every reply
//! compared.
//!
//! Replies that may differ are listed in `listed.rs`, each with its reason; any other difference
//! fails the test and names the seed. `PANDO_DIFFERENTIAL_COMMANDS` sets how many commands are sent
//! per protocol (default 20,000), `PANDO_DIFFERENTIAL_SEED` the first seed,
//! `PANDO_DIFFERENTIAL_ENGINE` the engine; a run that fails writes its commands to the file
//! `PANDO_DIFFERENTIAL_HISTORY`. Where redis-server is not installed, the test says so
//! and compares nothing.

mod blocking;
mod compare;
mod dump_files;
mod edges;
mod generator;
mod listed;
mod peer;
#[path = "../peers/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use compare::{Compare, agree, is_error};
use generator::{Generator, Step};
use pando_protocol::command::{is_unbuilt, lookup};
use pando_protocol::resp::Value;
use peer::{Connection, Server, encode};

/// Commands in flight at a time, and after how many both sides begin anew.
const PIPELINE: usize = 100;
const ROUND: usize = 10_000;

/// Databases that the generator selects.
const DATABASES: usize = 4;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

#[test]
fn replies_are_those_of_redis() {
    let Some(redis) = Server::redis() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let engine = std::env::var("PANDO_DIFFERENTIAL_ENGINE").unwrap_or_else(|_| "masstree".into());
    let pando = Server::pando(&engine);
    let commands = setting("PANDO_DIFFERENTIAL_COMMANDS", 20_000) as usize;
    let first_seed = setting("PANDO_DIFFERENTIAL_SEED", 1);
    let mut total = Tally::default();
    for protocol in [2, 3] {
        for round in 0..commands.div_ceil(ROUND) {
            let seed = first_seed + round as u64 * 2 + protocol;
            let mut run = Run::begin(&pando, &redis, protocol, seed);
            run.execute(ROUND.min(commands));
            run.compare_state();
            total.add(run.tally);
        }
    }
    println!(
        "{} commands compared, {} replies were errors on both sides",
        total.commands, total.errors
    );
    for (reason, count) in total.listed {
        println!("{count} listed differences: {reason}");
    }
}

#[test]
fn every_command_of_redis_is_known() {
    let Some(redis) = Server::redis() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let Value::Array(names) = redis.connect().call(&[b"COMMAND", b"LIST"]) else {
        panic!("COMMAND LIST answers with an array");
    };
    for name in names {
        let Value::Bulk(name) = name else {
            panic!("a name is a bulk string: {name:?}");
        };
        let known = lookup(&name).is_some() || is_unbuilt(&name) || name.contains(&b'|');
        assert!(known, "{}", name.escape_ascii());
    }
}

#[derive(Default)]
struct Tally {
    commands: usize,
    errors: usize,
    listed: BTreeMap<&'static str, usize>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.errors += other.errors;
        for (reason, count) in other.listed {
            *self.listed.entry(reason).or_default() += count;
        }
    }
}

/// Two connections to either side: one for the sequence, one for what looks at it from outside.
struct Run {
    seed: u64,
    protocol: u64,
    ours: [Connection; 2],
    theirs: [Connection; 2],
    queued: Vec<Step>,
    history: Vec<String>,
    tally: Tally,
    /// How long both sides together took for a pipeline at most: so far apart they may have
    /// executed a command.
    slowest: Duration,
}

impl Run {
    fn begin(pando: &Server, redis: &Server, protocol: u64, seed: u64) -> Self {
        let version = protocol.to_string();
        let connect = |server: &Server| {
            let mut connection = server.connect();
            assert!(!is_error(&connection.call(&[b"HELLO", version.as_bytes()])));
            connection
        };
        let mut run = Self {
            seed,
            protocol,
            ours: [connect(pando), connect(pando)],
            theirs: [connect(redis), connect(redis)],
            queued: Vec::new(),
            history: Vec::new(),
            tally: Tally::default(),
            slowest: Duration::ZERO,
        };
        for side in [&mut run.ours[0], &mut run.theirs[0]] {
            assert!(!is_error(&side.call(&[b"FLUSHALL"])));
        }
        run
    }

    fn execute(&mut self, commands: usize) {
        let mut generator = Generator::new(self.seed);
        let mut pending = Vec::new();
        for _ in 0..commands {
            let step = generator.next();
            let special = matches!(step.compare, Compare::Scan | Compare::Dump);
            if special {
                self.exchange(std::mem::take(&mut pending));
                self.special(&step);
            } else {
                pending.push(step);
                if pending.len() == PIPELINE {
                    self.exchange(std::mem::take(&mut pending));
                }
            }
        }
        self.exchange(pending);
        self.tally.commands += commands;
    }

    /// Sends a pipeline to both sides and compares reply by reply.
    fn exchange(&mut self, steps: Vec<Step>) {
        let encoded: Vec<u8> = steps
            .iter()
            .flat_map(|step| encode(&step.arguments))
            .collect();
        let sent = Instant::now();
        self.ours[0].send(&encoded);
        self.theirs[0].send(&encoded);
        let mut replies = Vec::new();
        for _ in &steps {
            let (ours, theirs) = (self.ours[0].receive(), self.theirs[0].receive());
            let is_over = ours.is_err() || theirs.is_err();
            replies.push((ours, theirs));
            if is_over {
                break;
            }
        }
        self.slowest = self.slowest.max(sent.elapsed());
        for (step, (ours, theirs)) in steps.into_iter().zip(replies) {
            let (Ok(ours), Ok(theirs)) = (&ours, &theirs) else {
                self.note(&step.arguments);
                self.fail(&format!("no reply\npando: {ours:?}\nredis: {theirs:?}"));
            };
            self.judge(step, ours, theirs);
        }
    }

    fn judge(&mut self, step: Step, ours: &Value, theirs: &Value) {
        let name = step.arguments[0].to_ascii_lowercase();
        let queued = Value::Simple("QUEUED".into());
        if *ours == queued && *theirs == queued {
            self.queued.push(step);
            return;
        }
        if name == b"exec" || name == b"discard" {
            let queue = std::mem::take(&mut self.queued);
            if let (Value::Array(ours), Value::Array(theirs)) = (ours, theirs)
                && ours.len() == theirs.len()
                && ours.len() == queue.len()
            {
                for ((step, ours), theirs) in queue.into_iter().zip(ours).zip(theirs) {
                    self.compare(&step, ours, theirs);
                }
                return;
            }
        }
        self.compare(&step, ours, theirs);
    }

    fn compare(&mut self, step: &Step, ours: &Value, theirs: &Value) {
        self.note(&step.arguments);
        // Apart when a time was set, and again when it was asked for.
        if agree(step.compare.of_apart(2 * self.slowest), ours, theirs) {
            self.tally.errors += usize::from(is_error(ours));
        } else if let Some(reason) = listed::reason(&step.arguments, ours, theirs, &self.history) {
            *self.tally.listed.entry(reason).or_default() += 1;
        } else {
            self.fail(&format!("pando: {ours:?}\nredis: {theirs:?}"));
        }
    }

    fn note(&mut self, arguments: &[Vec<u8>]) {
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.escape_ascii().to_string())
            .collect();
        self.history.push(words.join(" "));
    }

    /// Names the difference, with the commands before it that matter: the last ones, and those that
    /// mention its key or change everything.
    fn fail(&self, difference: &str) -> ! {
        const SHOWN: usize = 10;
        if let Some(path) = std::env::var_os("PANDO_DIFFERENTIAL_HISTORY") {
            std::fs::write(path, self.history.join("\n")).expect("the file is written");
        }
        let last = self.history.last().map_or("", String::as_str);
        let key = last.split(' ').nth(1).unwrap_or(last);
        let mut recent = self.history.len().saturating_sub(SHOWN);
        if last.eq_ignore_ascii_case("exec") {
            // What it depends on goes back to the first key watched since the last one.
            let is = |line: &String, names: &[&str]| {
                let name = line.split(' ').next().unwrap_or_default();
                names.iter().any(|other| name.eq_ignore_ascii_case(other))
            };
            let before = &self.history[..self.history.len() - 1];
            let ended = before
                .iter()
                .rposition(|line| is(line, &["exec", "discard", "unwatch"]));
            let from = ended.map_or(0, |at| at + 1);
            let watched = before[from..].iter().position(|line| is(line, &["watch"]));
            recent = watched.map_or(recent, |at| recent.min(from + at));
        }
        let whole = [
            "exec", "discard", "select", "flush", "swapdb", "watch", "unwatch",
        ];
        let matters = |line: &String| {
            let name = line.to_ascii_lowercase();
            line.split(' ').any(|word| word == key)
                || whole.iter().any(|word| name.starts_with(word))
        };
        let before: Vec<_> = self.history[..recent]
            .iter()
            .filter(|line| matters(line))
            .collect();
        let before = &before[before.len().saturating_sub(3 * SHOWN)..];
        panic!(
            "the replies differ (seed {}, RESP{}, command {})\n{difference}\nafter:\n  {}\n  …\n\
             \x20 {}",
            self.seed,
            self.protocol,
            self.history.len(),
            before
                .iter()
                .map(|line| line.as_str())
                .collect::<Vec<_>>()
                .join("\n  "),
            self.history[recent..].join("\n  ")
        );
    }

    /// Commands that take several exchanges, on the second connection.
    fn special(&mut self, step: &Step) {
        let database = (self.history.len() % DATABASES).to_string();
        for side in [&mut self.ours[1], &mut self.theirs[1]] {
            assert!(!is_error(&side.call(&[b"SELECT", database.as_bytes()])));
        }
        self.note(&step.arguments);
        match step.compare {
            Compare::Scan => {
                let ours = scan(&mut self.ours[1], &step.arguments);
                let theirs = scan(&mut self.theirs[1], &step.arguments);
                if ours != theirs {
                    self.fail(&format!(
                        "SCAN in database {database}\n{ours:?}\n{theirs:?}"
                    ));
                }
            }
            _ => self.exchange_dump(&step.arguments[1]),
        }
    }

    /// Moves a value to the other side and back, as DUMP and RESTORE do between servers.
    fn exchange_dump(&mut self, key: &[u8]) {
        let ours = self.ours[1].call(&[b"DUMP", key]);
        let theirs = self.theirs[1].call(&[b"DUMP", key]);
        match (ours, theirs) {
            (ours, theirs) if ours.is_null() && theirs.is_null() => {}
            (Value::Bulk(ours), Value::Bulk(theirs)) => {
                let target = [key, b":restored"].concat();
                let restore: &[&[u8]] = &[b"RESTORE", &target, b"0", &theirs, b"REPLACE"];
                let taken = self.ours[1].call(restore);
                let given = self.theirs[1].call(&[b"RESTORE", &target, b"0", &ours, b"REPLACE"]);
                if is_error(&taken) || is_error(&given) {
                    self.fail(&format!("RESTORE\npando: {taken:?}\nredis: {given:?}"));
                }
                self.compare_key(&target);
                for side in [&mut self.ours[1], &mut self.theirs[1]] {
                    side.call(&[b"DEL", &target]);
                }
            }
            (ours, theirs) => self.fail(&format!("DUMP\npando: {ours:?}\nredis: {theirs:?}")),
        }
    }

    /// Compares everything that both sides hold.
    fn compare_state(&mut self) {
        for database in 0..DATABASES {
            let mut keys = Vec::new();
            for side in [&mut self.ours[1], &mut self.theirs[1]] {
                side.call(&[b"SELECT", database.to_string().as_bytes()]);
                keys.push(strings(&side.call(&[b"KEYS", b"*"])));
            }
            if keys[0] != keys[1] {
                self.fail(&format!(
                    "keys of database {database}\n{:?}\n{:?}",
                    keys[0], keys[1]
                ));
            }
            for key in &keys[0] {
                self.compare_key(key);
            }
        }
    }

    fn compare_key(&mut self, key: &[u8]) {
        let kind = self.both(&[b"TYPE", key], Compare::Exact);
        self.both(&[b"PTTL", key], Compare::Milliseconds(3_000));
        match kind {
            Value::Simple(kind) if kind == b"hash" => {
                self.both(&[b"HGETALL", key], Compare::Map);
            }
            Value::Simple(kind) if kind == b"list" => {
                self.both(&[b"LRANGE", key, b"0", b"-1"], Compare::Exact);
            }
            Value::Simple(kind) if kind == b"set" => {
                self.both(&[b"SMEMBERS", key], Compare::Unordered);
            }
            Value::Simple(kind) if kind == b"stream" => {
                let full: &[&[u8]] = &[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"];
                self.both(full, Compare::Timeless);
            }
            Value::Simple(kind) if kind == b"zset" => {
                self.both(
                    &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
                    Compare::Exact,
                );
            }
            _ => {
                self.both(&[b"GET", key], Compare::Exact);
            }
        }
    }

    fn both(&mut self, arguments: &[&[u8]], compare: Compare) -> Value {
        let sent = Instant::now();
        let ours = self.ours[1].call(arguments);
        let theirs = self.theirs[1].call(arguments);
        self.slowest = self.slowest.max(sent.elapsed());
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        self.compare(&Step { arguments, compare }, &ours, &theirs);
        ours
    }
}

/// Follows SCAN to its end: the keys, each once.
fn scan(connection: &mut Connection, arguments: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let mut cursor = b"0".to_vec();
    let mut keys = BTreeSet::new();
    loop {
        let mut request: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        request[1] = &cursor;
        let reply = connection.call(&request);
        let Value::Array(parts) = &reply else {
            panic!("SCAN answered {reply:?}")
        };
        let Value::Bulk(next) = &parts[0] else {
            panic!("SCAN answered {reply:?}")
        };
        keys.extend(strings(&parts[1]));
        if next == b"0" {
            return keys;
        }
        cursor.clone_from(next);
    }
}

fn strings(value: &Value) -> BTreeSet<Vec<u8>> {
    let Value::Array(elements) = value else {
        panic!("an array of keys, got {value:?}")
    };
    let bytes = |element: &Value| match element {
        Value::Bulk(bytes) => bytes.clone(),
        other => panic!("a key, got {other:?}"),
    };
    elements.iter().map(bytes).collect()
}

#[test]
fn a_planted_difference_is_found() {
    let bulk = |text: &str| Value::Bulk(text.into());
    let pairs = |order: [&str; 4]| Value::Array(order.map(bulk).to_vec());
    assert!(agree(
        Compare::Map,
        &pairs(["a", "1", "b", "2"]),
        &pairs(["b", "2", "a", "1"])
    ));
    assert!(!agree(
        Compare::Map,
        &pairs(["a", "1", "b", "2"]),
        &pairs(["a", "2", "b", "1"])
    ));
    assert!(!agree(Compare::Exact, &bulk("1"), &Value::Integer(1)));
    assert!(!agree(
        Compare::Seconds(1),
        &Value::Integer(-1),
        &Value::Integer(0)
    ));
    let second = Compare::Milliseconds(1).of_apart(Duration::from_secs(1));
    for (theirs, are_near) in [(2001, true), (2002, false)] {
        let (ours, theirs) = (Value::Integer(1000), Value::Integer(theirs));
        assert_eq!(agree(second, &ours, &theirs), are_near);
    }
    let error = |text: &str| Value::Error(text.into());
    assert!(!agree(Compare::Shape, &error("ERR a"), &error("ERR b")));
}
