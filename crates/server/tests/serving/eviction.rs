//! `--max-memory` with a policy: memory stays below the limit whatever writers do, what is counted
//! is what the process holds, and the settings change at run time.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, TestServer};

/// How long a write waits for what was evicted before it is refused.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

const LIMIT: usize = 48 << 20;

/// What one of three writers writes: some four times the limit in all.
const KEYS: usize = 64_000;

/// A server of this engine that keeps below a limit by this policy.
fn limited(engine: &str, limit: usize, policy: &str) -> TestServer {
    let limit = limit.to_string();
    TestServer::start(&[
        "--engine",
        engine,
        "--maxmemory",
        &limit,
        "--maxmemory-policy",
        policy,
    ])
}

/// A number that INFO reports.
fn info(connection: &mut redis::Connection, field: &str) -> usize {
    let text: String = redis::cmd("INFO").query(connection).unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect(field).parse().expect("a number")
}

/// Sends writes, none of which is refused, unless it has waited as long for room as it may: on a
/// machine that is busy with other things memory may come back later than that.
fn send(pipe: &redis::Pipeline, connection: &mut redis::Connection) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let sent = Instant::now();
        let Err(error) = pipe.query::<()>(connection) else {
            return;
        };
        let waited = sent.elapsed() >= MEMORY_WAIT_MAX && error.to_string().contains("OOM");
        let is_patient = Instant::now() < deadline;
        assert!(waited && is_patient, "refused: {error}");
    }
}

/// Writes `keys` new values of 10 to 4,000 bytes, 32 at a time; every tenth expires.
fn write(server: &TestServer, writer: usize, keys: usize) {
    let mut connection = server.connection();
    let mut random = fastrand::Rng::with_seed(writer as u64);
    let value = vec![b'v'; 4000];
    for batch in 0..keys / 32 {
        let mut pipe = redis::pipe();
        for key in 0..32 {
            let key = format!("key:{writer}:{}", batch * 32 + key);
            let length = if random.u32(..4) == 0 { 4000 } else { 400 };
            let value = &value[..random.usize(10..=length)];
            let command = pipe.cmd("SET").arg(key).arg(value);
            if random.u32(..10) == 0 {
                command.arg("EX").arg(1000);
            }
            command.ignore();
        }
        send(&pipe, &mut connection);
    }
}

fn memory_stays_below_the_limit(engine: &str, policy: &str) {
    let server = limited(engine, LIMIT, policy);
    let mut watcher = server.connection();
    let idle_resident = info(&mut watcher, "used_memory_rss");
    let mut most = 0;
    std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|writer| {
            let server = &server;
            scope.spawn(move || write(server, writer, KEYS))
        });
        while !writers.iter().all(ScopedJoinHandle::is_finished) {
            most = most.max(info(&mut watcher, "used_memory"));
        }
    });
    // Between two looks at it, memory may grow by a chunk that blocks of a new size are cut from.
    assert!(
        most <= LIMIT + LIMIT / 16,
        "{engine} {policy}: {most} bytes in use"
    );
    let used = info(&mut watcher, "used_memory");
    assert!(
        used >= LIMIT / 5 * 4,
        "{engine} {policy}: only {used} bytes in use"
    );
    assert!(info(&mut watcher, "evicted_keys") > 50_000);
    let resident = info(&mut watcher, "used_memory_rss") - idle_resident;
    // What a first request needs of the program was not resident before.
    let most = LIMIT + LIMIT / 10 + (4 << 20);
    assert!(
        resident <= most,
        "{engine} {policy}: {resident} bytes resident, {used} in use"
    );
}

#[test]
fn memory_stays_below_the_limit_under_lru() {
    memory_stays_below_the_limit("masstree", "allkeys-lru");
}

#[test]
fn memory_stays_below_the_limit_under_lfu() {
    memory_stays_below_the_limit("masstree", "allkeys-lfu");
}

#[test]
fn memory_stays_below_the_limit_under_random() {
    memory_stays_below_the_limit("masstree", "allkeys-random");
}

#[test]
fn memory_of_the_hash_engine_stays_below_the_limit() {
    memory_stays_below_the_limit("mercury", "allkeys-lru");
}

/// The longest value that [`write_sizes`] writes.
const LONGEST: usize = 200_000;

/// Writes new values until they are `bytes` together, 32 at a time; returns the most resident
/// memory that was seen meanwhile.
fn write_sizes(
    server: &TestServer,
    phase: usize,
    bytes: usize,
    mut size: impl FnMut() -> usize,
) -> u64 {
    let mut connection = server.connection();
    let value = vec![b'v'; LONGEST];
    let (mut written, mut batch, mut most) = (0, 0, 0);
    while written < bytes {
        let mut pipe = redis::pipe();
        for key in 0..32 {
            let key = format!("key:{phase}:{batch}:{key}");
            let value = &value[..size()];
            written += key.len() + value.len();
            pipe.cmd("SET").arg(key).arg(value).ignore();
        }
        send(&pipe, &mut connection);
        batch += 1;
        if batch % 64 == 0 {
            most = most.max(server.resident_bytes());
        }
    }
    most
}

/// Sizes grow, shrink and mix: memory that served one serves the next, what is counted is what is
/// resident, and it goes back to the system when nothing is left.
fn memory_follows_sizes(engine: &str) {
    let server = limited(engine, LIMIT, "allkeys-lru");
    let mut watcher = server.connection();
    // What a first request needs is not what values need.
    write_sizes(&server, 0, 100_000, || 100);
    let idle = server.resident_bytes();
    let mut random = fastrand::Rng::with_seed(7);
    let phases = [
        ("small", LIMIT, 120..=120),
        ("larger", LIMIT, 1000..=1000),
        ("large", LIMIT, 3000..=3000),
        ("smaller", LIMIT / 2, 300..=300),
        ("mixed", LIMIT, 1..=2000),
    ];
    for (phase, (name, bytes, sizes)) in phases.into_iter().enumerate() {
        let size = || random.usize(sizes.clone());
        let most = write_sizes(&server, phase + 1, bytes, size).saturating_sub(idle);
        let used = info(&mut watcher, "used_memory");
        assert!(
            most <= (LIMIT + LIMIT / 10) as u64,
            "{engine} {name}: {most} bytes resident, {used} in use"
        );
        assert!(
            used >= LIMIT / 4 * 3,
            "{engine} {name}: only {used} bytes in use"
        );
    }
    redis::cmd("FLUSHALL").exec(&mut watcher).unwrap();
    server.wait_until("memory goes back to the system", || {
        server.resident_bytes() <= idle + (8 << 20)
    });
}

#[test]
fn memory_follows_sizes_on_masstree() {
    memory_follows_sizes("masstree");
}

#[test]
fn memory_follows_sizes_on_mercury() {
    memory_follows_sizes("mercury");
}

/// Values above the pools' classes come from the allocator: what it keeps free of lengths that
/// nobody writes any more goes back to the system, and smaller values have room again.
fn memory_follows_long_values(engine: &str) {
    let limit = 2 * LIMIT;
    let server = limited(engine, limit, "allkeys-lru");
    let mut watcher = server.connection();
    write_sizes(&server, 0, 100_000, || 100);
    let idle = server.resident_bytes();
    let mut random = fastrand::Rng::with_seed(7);
    let phases = [
        ("all lengths", 5_000..=16_000),
        ("shorter", 5_000..=5_000),
        ("long", 60_000..=60_000),
        ("short again", 9_000..=9_000),
        ("longest", LONGEST..=LONGEST),
        ("of the pools", 3_000..=3_000),
    ];
    for (phase, (name, sizes)) in phases.into_iter().enumerate() {
        let size = || random.usize(sizes.clone());
        write_sizes(&server, phase + 1, 2 * limit, size);
        let used = info(&mut watcher, "used_memory");
        assert!(
            used >= limit / 4 * 3 && used <= limit + limit / 16,
            "{engine} {name}: {used} bytes in use"
        );
        // It goes back soon, not at once.
        let what = format!("{name} values take what they may of {engine}'s memory");
        server.wait_until(&what, || {
            server.resident_bytes() <= idle + (limit + limit / 8) as u64
        });
    }
}

#[test]
fn memory_follows_long_values_on_masstree() {
    memory_follows_long_values("masstree");
}

#[test]
fn memory_follows_long_values_on_mercury() {
    memory_follows_long_values("mercury");
}

/// Short keys with a deadline: what the index of deadlines takes is counted as well.
#[test]
fn memory_of_expiring_keys_stays_below_the_limit() {
    for engine in ["masstree", "mercury"] {
        let server = limited(engine, LIMIT, "allkeys-random");
        let mut connection = server.connection();
        write_sizes(&server, 0, 100_000, || 100);
        let idle = server.resident_bytes();
        let evicted = |connection: &mut redis::Connection| info(connection, "evicted_keys");
        let mut batch = 0;
        while evicted(&mut connection) < 200_000 {
            for _ in 0..64 {
                let mut pipe = redis::pipe();
                for key in 0..128 {
                    let key = format!("{:09}", batch * 128 + key);
                    pipe.cmd("SET").arg(key).arg("v").arg("EX").arg(100_000);
                    pipe.ignore();
                }
                send(&pipe, &mut connection);
                batch += 1;
            }
        }
        let resident = server.resident_bytes() - idle;
        let used = info(&mut connection, "used_memory");
        assert!(
            resident <= (LIMIT + LIMIT / 10) as u64,
            "{engine}: {resident} bytes resident, {used} in use"
        );
    }
}

#[test]
fn the_policy_and_the_limit_change_at_run_time() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    wire.ask(
        &["CONFIG", "GET", "maxmemory-policy"],
        "*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n",
    );
    wire.ask(
        &["CONFIG", "SET", "maxmemory-policy", "newest"],
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) \
         must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, \
         allkeys-lru, allkeys-lfu, allkeys-random, noeviction\r\n",
    );
    write(&server, 0, 16_000);
    let mut connection = server.connection();
    let used = info(&mut connection, "used_memory");
    let limit = (used / 2).to_string();
    let set = [
        "CONFIG",
        "SET",
        "maxmemory-policy",
        "Allkeys-LFU",
        "maxmemory",
        &limit,
    ];
    wire.ask(&set, "+OK\r\n");
    // The limit is reached without a writer, and a writer is not refused meanwhile.
    wire.ask(&["SET", "more", "v"], "+OK\r\n");
    // What INFO is made from, and its answer, count while it is asked.
    let asking = 64 << 10;
    server.wait_until("the memory in use is below the limit", || {
        info(&mut connection, "used_memory") <= used / 2 + asking
    });
    let text: String = redis::cmd("INFO")
        .arg("memory")
        .query(&mut connection)
        .unwrap();
    assert!(text.contains("maxmemory_policy:allkeys-lfu\r\n"));
    let since = Instant::now();
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    wire.ask(&["OBJECT", "FREQ", "k"], ":5\r\n");
    wire.ask(
        &["OBJECT", "IDLETIME", "k"],
        "-ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
         switching between policies at runtime LRU and LFU data will take some time to adjust.\r\n",
    );
    wire.ask(
        &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
        "+OK\r\n",
    );
    wire.send("OBJECT IDLETIME k\r\n");
    let idle = wire.line();
    let idle_s: u64 = idle[1..].parse().expect(&idle);
    assert!(idle_s <= since.elapsed().as_secs() + 1, "{idle}");
}
