//! What Redis writes with SAVE, `pando load` takes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pando_protocol::resp::Value;

use super::peer::{Connection, Server};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kept(data: &Path) -> Server {
    let server = Server::start(|port| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command
            .args(["--port", port, "--threads", "1", "--data-dir"])
            .arg(data);
        command
    });
    server.expect("the binary under test starts")
}

fn call(connection: &mut Connection, line: &str) -> Value {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    connection.call(&words)
}

/// Values of every form that Redis has for strings and hashes, by a seed.
fn fill(redis: &mut Connection) -> usize {
    let mut random = fastrand::Rng::with_seed(12);
    let keys = 500;
    for key in 0..keys {
        let text = |random: &mut fastrand::Rng, most: usize| match random.u8(..4) {
            0 => random.i64(..).to_string(),
            1 => random.i8(..).to_string(),
            2 => "ab".repeat(random.usize(..most)),
            _ => (0..random.usize(..most))
                .map(|_| random.alphanumeric())
                .collect(),
        };
        if random.bool() {
            let value = text(&mut random, 3000);
            redis.call(&[b"SET", format!("k{key}").as_bytes(), value.as_bytes()]);
        } else {
            // Beyond 128 fields, or 64 bytes of one, a hash is a table.
            for field in 0..random.usize(1..200) {
                let value = text(&mut random, 40);
                let (key, field) = (format!("k{key}"), format!("f{field}"));
                redis.call(&[b"HSET", key.as_bytes(), field.as_bytes(), value.as_bytes()]);
            }
        }
        if random.u8(..4) == 0 {
            call(
                redis,
                &format!("PEXPIREAT k{key} {}", 4_000_000_000_000_u64 + key),
            );
        }
    }
    keys as usize
}

/// Collections with more members than Redis packs into one block, some members long; returns how
/// many.
fn fill_large(redis: &mut Connection) -> usize {
    const MEMBERS: usize = 3_000;
    let mut random = fastrand::Rng::with_seed(13);
    for kind in ["list", "set", "sorted", "numbers", "stream"] {
        let key = format!("large:{kind}");
        for number in 0..MEMBERS {
            let number = number.to_string();
            // One node of a list holds 8 KiB.
            let length = if random.u8(..200) == 0 { 10_000 } else { 20 };
            let member: String = (0..random.usize(1..length))
                .map(|_| random.alphanumeric())
                .collect();
            let score = format!("{:e}", random.f64() * 1e9 - 5e8);
            let id = format!("{number}-1");
            let words: &[&str] = match kind {
                "list" => &["RPUSH", &key, &member],
                "set" => &["SADD", &key, &member],
                "sorted" => &["ZADD", &key, &score, &member],
                "numbers" => &["SADD", &key, &number],
                _ => &["XADD", &key, &id, "field", &member, &number, "v"],
            };
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            redis.call(&words);
        }
    }
    for line in [
        "XDEL large:stream 5-1 77-1 2999-1",
        "XGROUP CREATE large:stream one 0",
        "XGROUP CREATE large:stream two 100-1",
        "XREADGROUP GROUP one a COUNT 700 STREAMS large:stream >",
        "XREADGROUP GROUP one b COUNT 700 STREAMS large:stream >",
        "XACK large:stream one 1-1 2-1 1300-1",
    ] {
        call(redis, line);
    }
    5
}

#[test]
fn a_file_of_redis_is_loaded() {
    let Some(redis) = Server::redis() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let name = format!("pando-dump-files-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir(&folder.0).expect("a directory of ours");
    let mut redis = redis.connect();
    let keys = fill(&mut redis);
    let others = 4 + fill_large(&mut redis);
    for line in [
        "RPUSH list a b",
        "SADD set a 1",
        "ZADD zset 1 a",
        "XADD stream 1-1 f v",
        "XADD stream 1-2 f v g w",
        "XADD stream 2-1 f w",
        "XDEL stream 2-1",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
    ] {
        call(&mut redis, line);
    }
    let directory = folder.0.to_str().expect("text");
    for line in [&*format!("CONFIG SET dir {directory}"), "SAVE"] {
        assert_eq!(
            call(&mut redis, line),
            Value::Simple(b"OK".to_vec()),
            "{line}"
        );
    }
    let data = folder.0.join("data");
    let file = std::fs::File::open(folder.0.join("dump.rdb")).expect("Redis has written it");
    let load = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(["load", "--data-dir"])
        .arg(&data)
        .stdin(Stdio::from(file))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&load.stderr);
    assert_eq!(load.status.code(), Some(0), "{said}");
    let loaded = format!("{} keys loaded", keys + others);
    assert!(said.contains(&loaded), "{said}");
    let pando = kept(&data);
    let mut pando = pando.connect();
    assert_eq!(
        call(&mut pando, "DBSIZE"),
        Value::Integer((keys + others) as i64)
    );
    compare(&mut pando, &mut redis, keys);
}

/// Both hold the same.
fn compare(pando: &mut Connection, redis: &mut Connection, keys: usize) {
    for line in [
        "SISMEMBER set a",
        "SCARD set",
        "LRANGE list 0 -1",
        "ZRANGE zset 0 -1 WITHSCORES",
        "XINFO STREAM stream FULL",
        "LRANGE large:list 0 -1",
        "SCARD large:set",
        "ZRANGE large:sorted 0 -1 WITHSCORES",
        "SCARD large:numbers",
        "OBJECT ENCODING large:numbers",
        "XRANGE large:stream - +",
        "XLEN large:stream",
        "XPENDING large:stream one",
        "XINFO GROUPS large:stream",
    ] {
        assert_eq!(call(pando, line), call(redis, line), "{line}");
    }
    for line in ["SMEMBERS large:set", "SMEMBERS large:numbers"] {
        let members = |reply: Value| match reply {
            Value::Array(mut members) => {
                members.sort_by_key(|member| format!("{member:?}"));
                members
            }
            other => panic!("{other:?}"),
        };
        let (theirs, ours) = (call(redis, line), call(pando, line));
        assert_eq!(members(ours), members(theirs), "{line}");
    }
    for key in 0..keys {
        let kind = call(redis, &format!("TYPE k{key}"));
        let read = if kind == Value::Simple(b"hash".to_vec()) {
            "HGETALL"
        } else {
            "GET"
        };
        for command in ["TYPE", "PEXPIRETIME", "OBJECT ENCODING", read] {
            let line = format!("{command} k{key}");
            let (theirs, ours) = (call(redis, &line), call(pando, &line));
            assert_eq!(sorted(ours), sorted(theirs), "{line}");
        }
    }
}

/// Fields have no order: names with their values, sorted.
fn sorted(reply: Value) -> Vec<String> {
    let Value::Array(elements) = reply else {
        return vec![format!("{reply:?}")];
    };
    let mut pairs: Vec<_> = elements.chunks(2).map(|pair| format!("{pair:?}")).collect();
    pairs.sort_unstable();
    pairs
}
