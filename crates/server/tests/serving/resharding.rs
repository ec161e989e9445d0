//! `pando reshard` between real servers, while clients of both rings write, and while the mover and
//! servers are killed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando_ring::Ring;
use redis::{ErrorKind, RedisResult, ServerErrorKind, Value};

use crate::harness::{BINARY, Folder, PATIENCE, TestServer, run_command_to_end, seed};

/// Servers by their names in rings, each on its port through all restarts.
struct Fleet {
    folder: Folder,
    flags: Vec<String>,
    servers: Vec<(String, u16, Option<TestServer>)>,
}

impl Fleet {
    fn start(names: &[&str], flags: &[&str]) -> Self {
        let mut fleet = Self {
            folder: Folder::new(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            servers: Vec::new(),
        };
        for name in names {
            let server = TestServer::spawn(&mut fleet.command(name, 0));
            let port = server.address.port();
            fleet.servers.push(((*name).to_owned(), port, Some(server)));
        }
        fleet
    }

    fn command(&self, name: &str, port: u16) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args([
                "--bind",
                "127.0.0.1",
                "--threads",
                "2",
                "--loglevel",
                "warning",
            ])
            .args(["--port", &port.to_string()])
            .arg("--data-dir")
            .arg(self.folder.path(name))
            .args(&self.flags);
        if self.flags.iter().any(|flag| flag == "cdds") {
            let pool = self.folder.path(&format!("{name}.pool"));
            command.args(["--pmem-size", "64mb", "--pmem"]).arg(pool);
        }
        command
    }

    fn get(&self, name: &str) -> &TestServer {
        let found = self.servers.iter().find(|(other, ..)| other == name);
        found.and_then(|(.., server)| server.as_ref()).expect(name)
    }

    /// Kills a server, and starts it again.
    fn kill(&mut self, index: usize) {
        self.servers[index].2 = None;
        let (name, port, _) = &self.servers[index];
        let mut command = self.command(name, *port);
        self.servers[index].2 = Some(TestServer::spawn(&mut command));
    }

    /// A ring of these servers.
    fn ring(&self, names: &[&str]) -> (PathBuf, Arc<Ring>) {
        let node = |name: &&str| {
            let (_, port, _) = self.servers.iter().find(|(it, ..)| it == name).expect(name);
            format!("[[node]]\nname = '{name}'\naddress = '127.0.0.1:{port}'\n")
        };
        let text: String = names.iter().map(node).collect();
        let path = self.folder.path(&format!("{}.toml", names.join("-")));
        std::fs::write(&path, &text).unwrap();
        (path, Arc::new(Ring::from_toml(&text).unwrap()))
    }
}

/// Spreads load and kills over time; nothing is awaited by it.
fn pause(time: Duration) {
    let (_sender, never) = channel::<()>();
    let _ = never.recv_timeout(time);
}

/// A key that the ring gives to this node.
fn key_of(ring: &Ring, name: &str) -> String {
    let mut keys = (0..10_000).map(|index| format!("some{index}"));
    let found = keys.find(|key| ring.node_of(key.as_bytes()).name() == name);
    found.expect("each node has keys")
}

fn mover(old: &PathBuf, new: &PathBuf) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("reshard").arg("--ring").arg(old);
    command.arg("--to").arg(new);
    command
}

#[track_caller]
fn move_all(old: &PathBuf, new: &PathBuf) -> String {
    let (status, told) = run_command_to_end(&mut mover(old, new));
    assert!(status.success(), "{told}");
    told
}

/// A client that knows one ring, and follows what servers say.
struct RingClient {
    ring: Arc<Ring>,
    connections: HashMap<String, redis::Connection>,
}

/// What became of a write.
#[derive(Debug, PartialEq)]
enum Sent {
    Done(Value),
    Unknown,
}

impl RingClient {
    fn new(ring: &Arc<Ring>) -> Self {
        Self {
            ring: Arc::clone(ring),
            connections: HashMap::new(),
        }
    }

    /// Sends a command until a server has executed it, or may have.
    fn send(&mut self, key: &str, command: &redis::Cmd) -> Sent {
        let deadline = Instant::now() + PATIENCE;
        let home = self.ring.node_of(key.as_bytes()).address().to_string();
        let mut address = home.clone();
        loop {
            assert!(Instant::now() < deadline, "{key} is nowhere");
            let error = match self.send_to(&address, command) {
                Ok(value) => return Sent::Done(value),
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
                let (target, _) = error.redirect_node().expect("it says where");
                target.clone_into(&mut address);
            } else if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) {
                pause(Duration::from_millis(1));
            } else if error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading) {
                pause(Duration::from_millis(5));
            } else if error.code().is_none() {
                self.connections.remove(&address);
                if !error.is_connection_refusal() {
                    return Sent::Unknown;
                }
                pause(Duration::from_millis(5));
                address.clone_from(&home);
            } else {
                panic!("{key}: {error}");
            }
        }
    }

    fn send_to(&mut self, address: &str, command: &redis::Cmd) -> RedisResult<Value> {
        if !self.connections.contains_key(address) {
            let client = redis::Client::open(format!("redis://{address}/")).unwrap();
            let connection = client.get_connection()?;
            self.connections.insert(address.to_owned(), connection);
        }
        let connection = self.connections.get_mut(address).expect("it was made");
        command.query(connection)
    }
}

/// What a key's last value may be: the last acknowledged number, and the last that was sent.
type Written = HashMap<String, (u64, u64)>;

/// A client that raises numbers until it is told to stop. It sees to it that each replaces the one
/// before, or one that it sent and of which it does not know.
fn writer(ring: &Arc<Ring>, who: u32, stop: &Arc<AtomicBool>) -> JoinHandle<Written> {
    let (mut client, stop) = (RingClient::new(ring), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut written = Written::new();
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let key = format!("writer{who}:{}", number * 7919 % 900);
            let entry = written.entry(key.clone()).or_default();
            let (acknowledged, sent) = *entry;
            entry.1 = number;
            let command = redis::cmd("GETSET").arg(&key).arg(number).take();
            if let Sent::Done(before) = client.send(&key, &command) {
                entry.0 = number;
                let before: Option<u64> = redis::from_redis_value(before).unwrap();
                let before = before.unwrap_or(0);
                assert!(
                    (acknowledged..=sent).contains(&before),
                    "{key}: {before} was there, {acknowledged} acknowledged, {sent} sent"
                );
            }
            if number.is_multiple_of(50) {
                pause(Duration::from_millis(1));
            }
        }
        written
    })
}

/// Every acknowledged write is at its owner by the ring, and nothing is anywhere else.
#[track_caller]
fn check(fleet: &Fleet, ring: &Arc<Ring>, written: &[Written]) {
    for key_space in written {
        for (key, (acknowledged, sent)) in key_space {
            let server = fleet.get(ring.node_of(key.as_bytes()).name());
            let mut connection = server.connection();
            let found: Option<u64> = redis::cmd("GET").arg(key).query(&mut connection).unwrap();
            let found = found.unwrap_or(0);
            assert!(
                (*acknowledged..=*sent).contains(&found),
                "{key}: {found} found, {acknowledged} acknowledged, {sent} sent"
            );
        }
    }
    for (name, _, server) in &fleet.servers {
        let mut connection = server.as_ref().unwrap().connection();
        for database in 0..2 {
            redis::cmd("SELECT")
                .arg(database)
                .exec(&mut connection)
                .unwrap();
            for key in names(&mut connection) {
                assert_eq!(ring.node_of(key.as_bytes()).name(), name, "{key} is left");
            }
        }
    }
}

fn names(connection: &mut redis::Connection) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query(connection).unwrap()
}

/// Makes keys of every type, some with deadlines, in two databases.
fn fill(ring: &Arc<Ring>, fleet: &Fleet, count: u32) -> Vec<(u32, String)> {
    let mut filled = Vec::new();
    let mut pipes: HashMap<String, redis::Pipeline> = HashMap::new();
    for index in 0..count {
        let (key, database) = (format!("key:{index}"), index % 2);
        let name = ring.node_of(key.as_bytes()).name().to_owned();
        let pipe = pipes.entry(name).or_default();
        pipe.cmd("SELECT").arg(database).ignore();
        match index % 7 {
            0 => pipe.cmd("HSET").arg(&key).arg(&["a", "1", "b", "2"]),
            1 => pipe.cmd("RPUSH").arg(&key).arg(&["x", "y", "z"]),
            2 => pipe.cmd("SADD").arg(&key).arg(&["x", "y", "z"]),
            3 => pipe.cmd("ZADD").arg(&key).arg(&["1", "x", "2.5", "y"]),
            4 => pipe.cmd("XADD").arg(&key).arg(&["1-1", "a", "b"]),
            5 => pipe
                .cmd("SET")
                .arg(&key)
                .arg("x".repeat(index as usize % 3000)),
            _ => pipe.cmd("SET").arg(&key).arg(index),
        }
        .ignore();
        if index % 3 == 0 {
            pipe.cmd("PEXPIREAT")
                .arg(&key)
                .arg(4_000_000_000_000_u64 + u64::from(index))
                .ignore();
        }
        if index % 14 == 7 {
            pipe.cmd("HPEXPIREAT")
                .arg(&key)
                .arg(&["4000000000000", "FIELDS", "1", "a"])
                .ignore();
        }
        filled.push((database, key));
    }
    for (name, pipe) in pipes {
        pipe.exec(&mut fleet.get(&name).connection()).unwrap();
    }
    filled
}

/// The values are what they were.
#[track_caller]
fn check_values(
    ring: &Arc<Ring>,
    fleet: &Fleet,
    keys: &[(u32, String)],
    before: &[(Vec<u8>, i64)],
) {
    let after = described(ring, fleet, keys);
    for (key, (one, other)) in keys.iter().zip(before.iter().zip(&after)) {
        assert!(one == other, "{key:?} was {one:?} and is {other:?}");
    }
}

fn described(ring: &Arc<Ring>, fleet: &Fleet, keys: &[(u32, String)]) -> Vec<(Vec<u8>, i64)> {
    let mut connections = HashMap::new();
    let mut described = Vec::new();
    for (database, key) in keys {
        let name = ring.node_of(key.as_bytes()).name();
        let connection = connections
            .entry(name.to_owned())
            .or_insert_with(|| fleet.get(name).connection());
        let mut pipe = redis::pipe();
        pipe.cmd("SELECT").arg(*database).ignore();
        pipe.cmd("DUMP").arg(key).cmd("PEXPIRETIME").arg(key);
        let found: RedisResult<(Vec<u8>, i64)> = pipe.query(connection);
        described.push(found.unwrap_or_else(|error| panic!("{key}: {error}")));
    }
    described
}

#[test]
fn keys_move_while_clients_of_both_rings_write() {
    let fleet = Fleet::start(&["oak", "ash", "elm"], &["--durability", "interval"]);
    let (old, old_ring) = fleet.ring(&["oak", "ash"]);
    let (new, new_ring) = fleet.ring(&["oak", "ash", "elm"]);
    let filled = fill(&old_ring, &fleet, 7_000);
    let before = described(&old_ring, &fleet, &filled);
    let stop = Arc::new(AtomicBool::new(false));
    // Before it begins, clients of the new ring would write to the wrong server.
    let first = writer(&old_ring, 0, &stop);
    let (status, told) = run_command_to_end(mover(&old, &new).arg("--dry-run"));
    assert!(
        status.success() && told.contains("keys would move"),
        "{told}"
    );
    let mut moving = mover(&old, &new).stderr(Stdio::piped()).spawn().unwrap();
    fleet.get("elm").wait_until("it has begun", || {
        let mut connection = fleet.get("elm").connection();
        let known: RedisResult<()> = redis::cmd("GET").arg("some key").query(&mut connection);
        known.is_err() || moving.try_wait().unwrap().is_some()
    });
    let second = writer(&new_ring, 1, &stop);
    // A client that waits for a key that leaves.
    let (client, awaited) = (fleet.get("oak").client(), key_of(&new_ring, "elm"));
    let waiting = std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        redis::cmd("BLPOP")
            .arg(awaited)
            .arg(0)
            .exec(&mut connection)
    });
    let output = moving.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("done: "), "{told}");
    let told_away = waiting.join().unwrap().expect_err("the key has left");
    assert!(told_away.redirect_node().is_some(), "{told_away}");
    stop.store(true, Ordering::Relaxed);
    let written = [first.join().unwrap(), second.join().unwrap()];
    check(&fleet, &new_ring, &written);
    check_values(&new_ring, &fleet, &filled, &before);
    println!("{told}");
    // Clients of the old ring are told where their keys are, whatever they ask.
    let mut connection = fleet.get("oak").connection();
    let key = key_of(&new_ring, "elm");
    let own = key_of(&new_ring, "oak");
    for words in [
        &["GET", &key][..],
        &["SET", &key, "x"],
        &["MGET", &own, &key],
        &["BLPOP", &key, "0"],
        &["WATCH", &key],
    ] {
        let refused = redis::cmd(words[0]).arg(&words[1..]).exec(&mut connection);
        let refused = refused.expect_err("it is refused");
        let (target, _) = refused
            .redirect_node()
            .unwrap_or_else(|| panic!("{refused}"));
        assert_eq!(target, fleet.get("elm").address.to_string());
    }
    // And back to two, by another ring.
    let (next, next_ring) = fleet.ring(&["ash", "elm"]);
    move_all(&new, &next);
    check(&fleet, &next_ring, &written);
    check_values(&next_ring, &fleet, &filled, &before);
    let told = move_all(&new, &next);
    assert!(told.contains("done: 0 keys"), "{told}");
}

/// How many rounds of kills a test makes: `PANDO_RESHARD_ROUNDS` or this many.
fn rounds(unless_said: u32) -> u32 {
    let said = std::env::var("PANDO_RESHARD_ROUNDS");
    said.map_or(unless_said, |text| text.parse().expect("a number"))
}

/// A mover that is killed when a test fails.
struct Moving(Child);

impl Drop for Moving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_mover_and_servers_are_killed() {
    let mut random = fastrand::Rng::with_seed(seed());
    let names = ["oak", "ash", "elm"];
    let mut fleet = Fleet::start(&names, &["--durability", "sync"]);
    let mut rings = [fleet.ring(&names[..2]), fleet.ring(&names)];
    let filled = fill(&rings[0].1, &fleet, 2_000);
    let before = described(&rings[0].1, &fleet, &filled);
    let mut written: Vec<Written> = Vec::new();
    for round in 0..rounds(2) {
        let [(old, old_ring), (new, new_ring)] = &rings;
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|who| writer(old_ring, round * 2 + who, &stop))
            .collect();
        let start = || Moving(mover(old, new).spawn().unwrap());
        let mut moving = start();
        let (mut kills, mut starts) = (0, 0);
        let status = loop {
            let length = Duration::from_millis(random.u64(20..1500));
            let until = Instant::now() + length;
            let mut ended = None;
            while kills < 8 && ended.is_none() && Instant::now() < until {
                ended = moving.0.try_wait().unwrap();
                pause(Duration::from_millis(5));
            }
            if kills == 8 {
                ended = Some(moving.0.wait().unwrap());
            }
            if let Some(status) = ended {
                // A server was away when it was started.
                if status.success() || starts == 8 {
                    break status;
                }
                moving = start();
                starts += 1;
                continue;
            }
            kills += 1;
            let victim = random.usize(0..5);
            if victim < names.len() {
                fleet.kill(victim);
            } else {
                drop(moving);
                moving = start();
            }
        };
        assert!(status.success(), "round {round}, {kills} kills");
        stop.store(true, Ordering::Relaxed);
        written.extend(writers.into_iter().map(|writer| writer.join().unwrap()));
        check(&fleet, new_ring, &written);
        check_values(new_ring, &fleet, &filled, &before);
        println!("round {round}: {kills} kills");
        rings.swap(0, 1);
    }
}

#[test]
fn keys_move_between_servers_of_every_engine() {
    for engine in ["mercury", "minuet", "cdds"] {
        let flags = ["--durability", "interval", "--engine", engine];
        let mut fleet = Fleet::start(&["oak", "ash"], &flags);
        let (old, old_ring) = fleet.ring(&["oak"]);
        let (new, new_ring) = fleet.ring(&["oak", "ash"]);
        let filled = fill(&old_ring, &fleet, 700);
        let before = described(&old_ring, &fleet, &filled);
        let stop = Arc::new(AtomicBool::new(false));
        let writing = writer(&old_ring, 0, &stop);
        move_all(&old, &new);
        stop.store(true, Ordering::Relaxed);
        check(&fleet, &new_ring, &[writing.join().unwrap()]);
        check_values(&new_ring, &fleet, &filled, &before);
        // It is known after a restart.
        let key = key_of(&new_ring, "ash");
        fleet.kill(0);
        let told = crate::replication::error(fleet.get("oak"), &["GET", &key]);
        assert!(told.contains("MOVED"), "{engine}: {told}");
    }
}

#[test]
fn the_way_back_is_open_at_any_moment() {
    let fleet = Fleet::start(&["oak", "ash", "elm"], &["--durability", "interval"]);
    let (old, old_ring) = fleet.ring(&["oak", "ash"]);
    let (new, _) = fleet.ring(&["oak", "ash", "elm"]);
    let filled = fill(&old_ring, &fleet, 3_000);
    let before = described(&old_ring, &fleet, &filled);
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(&old_ring, 0, &stop);
    let mut moving = Moving(mover(&old, &new).stderr(Stdio::null()).spawn().unwrap());
    let elm = fleet.get("elm");
    elm.wait_until("some ranges are handed over", || {
        let mut connection = elm.connection();
        let mut here = |index: u32| {
            let key = format!("key:{index}");
            redis::cmd("TYPE").arg(key).exec(&mut connection).is_ok()
        };
        let here = (0..200).filter(|index| here(*index)).count();
        (1..200).contains(&here)
    });
    moving.0.kill().unwrap();
    moving.0.wait().unwrap();
    drop(moving);
    // A range may be between two servers: it is finished first.
    let (status, told) = run_command_to_end(&mut mover(&new, &old));
    if !status.success() {
        assert!(told.contains("go on"), "{told}");
        move_all(&old, &new);
    }
    move_all(&new, &old);
    stop.store(true, Ordering::Relaxed);
    check(&fleet, &old_ring, &[writing.join().unwrap()]);
    check_values(&old_ring, &fleet, &filled, &before);
}

#[test]
fn a_promoted_replica_refuses_what_its_primary_refused() {
    let fleet = Fleet::start(&["oak", "ash", "fir"], &["--durability", "interval"]);
    let (old, _) = fleet.ring(&["oak"]);
    let (new, new_ring) = fleet.ring(&["oak", "ash"]);
    crate::replication::follow(fleet.get("fir"), fleet.get("oak").address);
    crate::replication::wait_for_link(fleet.get("fir"));
    let told = move_all(&old, &new);
    assert!(told.contains("done: "), "{told}");
    crate::replication::ok(fleet.get("fir"), &["REPLICAOF", "NO", "ONE"]);
    let key = key_of(&new_ring, "ash");
    let told = crate::replication::error(fleet.get("fir"), &["SET", &key, "x"]);
    let address = fleet.get("ash").address.to_string();
    assert!(told.contains("MOVED") && told.contains(&address), "{told}");
    // After a restart, too.
    let mut fleet = fleet;
    fleet.kill(2);
    fleet.kill(0);
    for name in ["fir", "oak"] {
        let told = crate::replication::error(fleet.get(name), &["GET", &key]);
        assert!(
            told.contains("MOVED") && told.contains(&address),
            "{name}: {told}"
        );
    }
}

#[test]
fn a_replica_that_is_promoted_meanwhile_goes_on() {
    let mut fleet = Fleet::start(&["oak", "ash", "fir"], &["--durability", "interval"]);
    let (old, old_ring) = fleet.ring(&["oak"]);
    let (new, _) = fleet.ring(&["oak", "ash"]);
    let filled = fill(&old_ring, &fleet, 3_000);
    let before = described(&old_ring, &fleet, &filled);
    crate::replication::follow(fleet.get("fir"), fleet.get("oak").address);
    crate::replication::wait_for_link(fleet.get("fir"));
    crate::replication::wait_until_on_disk(fleet.get("oak"));
    let mut moving = Moving(mover(&old, &new).stderr(Stdio::null()).spawn().unwrap());
    let ash = fleet.get("ash");
    ash.wait_until("some ranges are handed over", || {
        let mut connection = ash.connection();
        let mut here = |index: u32| {
            let key = format!("key:{index}");
            redis::cmd("TYPE").arg(key).exec(&mut connection).is_ok()
        };
        let here = (0..200).filter(|index| here(*index)).count();
        (1..200).contains(&here)
    });
    // The primary is lost, and the mover with it.
    fleet.servers[0].2 = None;
    moving.0.kill().unwrap();
    drop(moving);
    crate::replication::ok(fleet.get("fir"), &["REPLICAOF", "NO", "ONE"]);
    // It takes the node's place: the same name, another address.
    let promoted = fleet.servers.pop().unwrap();
    fleet.servers[0] = ("oak".to_owned(), promoted.1, promoted.2);
    let (old, _) = fleet.ring(&["oak"]);
    let (new, new_ring) = fleet.ring(&["oak", "ash"]);
    move_all(&old, &new);
    check_values(&new_ring, &fleet, &filled, &before);
    check(&fleet, &new_ring, &[]);
}

#[test]
fn memcached_clients_are_told_and_their_items_stay_whole() {
    let flags = ["--durability", "none", "--memcached-port", "0"];
    let fleet = Fleet::start(&["oak", "ash"], &flags);
    let (old, _) = fleet.ring(&["oak"]);
    let (new, new_ring) = fleet.ring(&["oak", "ash"]);
    let (own, key) = (key_of(&new_ring, "oak"), key_of(&new_ring, "ash"));
    let mut oak = fleet.get("oak").connect_memcached();
    for key in [&own, &key] {
        oak.send(format!("set {key} 77 0 3\r\nabc\r\n"));
        oak.expect("STORED\r\n");
    }
    move_all(&old, &new);
    let address = fleet.get("ash").address;
    let range = new_ring.range_of(key.as_bytes());
    let moved = format!("SERVER_ERROR MOVED {range} {address}\r\n");
    for line in [
        format!("get {key}"),
        format!("get {own} {key}"),
        format!("gat 0 {key}"),
        format!("incr {key} 1"),
        format!("mg {key} v"),
        format!("md {key}"),
        format!("set {key} 0 0 1\r\nx"),
    ] {
        oak.send(format!("{line}\r\n"));
        oak.expect(&moved);
    }
    oak.send(format!("get {own}\r\n"));
    oak.expect(format!("VALUE {own} 77 3\r\nabc\r\nEND\r\n"));
    let mut ash = fleet.get("ash").connect_memcached();
    ash.send(format!("get {key}\r\n"));
    ash.expect(format!("VALUE {key} 77 3\r\nabc\r\nEND\r\n"));
}

#[test]
fn what_is_wrong_is_said_and_nothing_moves() {
    let fleet = Fleet::start(&["oak", "ash"], &["--durability", "none"]);
    let (old, old_ring) = fleet.ring(&["oak"]);
    let (new, _) = fleet.ring(&["oak", "ash"]);
    let filled = fill(&old_ring, &fleet, 200);
    let wrong = |text: &str| {
        let path = fleet.folder.path("wrong.toml");
        std::fs::write(&path, text).unwrap();
        path
    };
    let refused = |old: &PathBuf, new: &PathBuf, part: &str| {
        let (status, told) = run_command_to_end(&mut mover(old, new));
        assert!(!status.success() && told.contains(part), "{part}: {told}");
    };
    let told = move_all(&old, &old);
    assert!(told.contains("nothing moves"), "{told}");
    // Rings exchanged by mistake.
    refused(&new, &old, "is it the ring by which clients place keys");
    refused(&old, &fleet.folder.path("no such file"), "cannot be read");
    refused(&old, &wrong("[[node]]\nname = 'x'\n"), "address");
    let away = "[[node]]\nname = 'yew'\naddress = '127.0.0.1:1'\n";
    refused(&old, &wrong(away), "node `yew` at 127.0.0.1:1");
    let socket = "[[node]]\nname = 'yew'\naddress = 'unix:/x'\n";
    refused(&old, &wrong(socket), "over TCP");
    let text = std::fs::read_to_string(&new).unwrap();
    refused(&old, &wrong(&format!("tags = false\n{text}")), "heeds tags");
    // Another number of databases; a replica; a password.
    let other = TestServer::start(&["--databases", "3"]);
    let ring = |server: &TestServer| {
        wrong(&format!(
            "[[node]]\nname = 'yew'\naddress = '{}'\n",
            server.address
        ))
    };
    refused(&old, &ring(&other), "databases");
    let replica = TestServer::start(&[]);
    crate::replication::follow(&replica, fleet.get("ash").address);
    refused(&old, &ring(&replica), "is a replica");
    let locked = TestServer::start(&["--requirepass", "secret"]);
    refused(&old, &ring(&locked), "refuses the password");
    // A destination without room.
    let small = TestServer::start(&["--max-memory", "1mb", "--max-memory-policy", "noeviction"]);
    let pipe = &mut redis::pipe();
    for index in 0..200 {
        pipe.cmd("SET")
            .arg(format!("large{index}"))
            .arg("x".repeat(100_000))
            .ignore();
    }
    pipe.exec(&mut fleet.get("oak").connection()).unwrap();
    let text = std::fs::read_to_string(&old).unwrap();
    let text = format!(
        "{text}[[node]]\nname = 'yew'\naddress = '{}'\n",
        small.address
    );
    let full = wrong(&text);
    refused(&old, &full, "OOM");
    for (database, key) in &filled {
        let mut connection = fleet.get("oak").connection();
        redis::cmd("SELECT")
            .arg(*database)
            .exec(&mut connection)
            .unwrap();
        let there: bool = redis::cmd("EXISTS")
            .arg(key)
            .query(&mut connection)
            .unwrap();
        assert!(there, "{key} is where it was");
    }
    // Keys move from one ring to one other at a time.
    refused(&old, &new, "another resharding is under way");
    assert!(fleet.get("oak").banner.contains("listening"));
}
