//! Requests that take much memory: one that can never succeed costs no keys, many that are not
//! complete cost a share of them, and every other client is served.

use crate::harness::{TestServer, Wire, request};

const MIB: usize = 1 << 20;

/// What the server may use, and what requests may take of it before they run.
const LIMIT: usize = 24 * MIB;
const REQUESTS: usize = LIMIT / 4;

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// A cache at its limit, and a connection to it.
fn full_cache(engine: &str, more: &[&str]) -> (TestServer, Wire) {
    let limit = LIMIT.to_string();
    let flags = [
        "--engine",
        engine,
        "--maxmemory",
        &limit,
        "--maxmemory-policy",
        "allkeys-lru",
    ];
    let server = TestServer::start(&[&flags[..], more].concat());
    let mut wire = server.connect();
    let mut batch = 0;
    while number(&mut wire, "stats", "evicted_keys") == 0 {
        let mut bytes = Vec::new();
        for key in 0..200 {
            let key = format!("key:{batch}:{key}");
            bytes.extend(request(&[b"SET", key.as_bytes(), &[b'v'; 1000]]));
        }
        wire.send(bytes);
        wire.expect("+OK\r\n".repeat(200));
        batch += 1;
    }
    (server, wire)
}

/// A number that INFO reports.
fn number(wire: &mut Wire, section: &str, field: &str) -> usize {
    let text = wire.ask_any(&["INFO", section]);
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect(field).parse().expect("a number")
}

fn keys(wire: &mut Wire) -> usize {
    wire.send("DBSIZE\r\n");
    wire.line()[1..].parse().expect("a number")
}

fn long(bytes: usize) -> Vec<u8> {
    vec![b'v'; bytes]
}

fn what_can_never_fit_costs_no_keys(engine: &str) {
    let flags = [
        "--memcached-port",
        "0",
        "--memcached-item-bytes-max",
        "64mb",
    ];
    let (server, mut wire) = full_cache(engine, &flags);
    let before = keys(&mut wire);

    // Longer than all there is, read to its end, and the connection goes on.
    wire.send(request(&[b"SET", b"a", &long(LIMIT + MIB)]));
    wire.expect(OOM);
    wire.expect_served();
    // Announced, and not sent.
    let mut half = server.connect();
    half.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$400000000\r\n");
    half.send(long(4 * MIB));
    half.expect(OOM);
    // A short one that makes a long value: of a hole, which takes no memory.
    wire.ask(
        &["SETRANGE", "hole", &LIMIT.to_string(), "x"],
        &format!(":{}\r\n", LIMIT + 1),
    );
    wire.ask(&["BITOP", "NOT", "a", "hole"], OOM);
    wire.ask(&["DEL", "hole"], ":1\r\n");
    let mut memcached = server.connect_memcached();
    memcached.send(format!("set a 0 0 {}\r\n", LIMIT + MIB));
    memcached.expect("SERVER_ERROR object too large for cache\r\n");
    memcached.send(long(LIMIT + MIB));
    memcached.send("\r\nget a\r\n");
    memcached.expect("END\r\n");

    let after = keys(&mut wire);
    assert!(
        after + before / 20 >= before,
        "{engine}: {after} keys of {before} are left"
    );

    // What shows late to be too much costs no more than requests may take.
    // Of many arguments, none of them long.
    let value = long(10_000);
    let mut set = vec![&b"MSET"[..]];
    for _ in 0..LIMIT / value.len() {
        set.extend([&b"key"[..], &value]);
    }
    wire.send(request(&set));
    wire.expect(OOM);
    // A queue of requests each of which would fit.
    wire.ask(&["MULTI"], "+OK\r\n");
    for key in ["a", "b"] {
        wire.send(request(&[b"SET", key.as_bytes(), &long(REQUESTS / 2)]));
    }
    wire.expect("+QUEUED\r\n");
    wire.expect(OOM);
    wire.ask(
        &["EXEC"],
        "-EXECABORT Transaction discarded because of previous errors.\r\n",
    );
    let after = keys(&mut wire);
    assert!(
        after >= before / 3 * 2,
        "{engine}: {after} keys of {before} are left"
    );
    wire.ask(&["SET", "a", "v"], "+OK\r\n");
    // What fits is taken, whatever goes for it.
    wire.send(request(&[b"SET", b"b", &long(REQUESTS / 4 * 3)]));
    wire.expect("+OK\r\n");
    wire.ask(&["STRLEN", "b"], &format!(":{}\r\n", REQUESTS / 4 * 3));
    assert_eq!(number(&mut wire, "stats", "evicted_clients"), 0);
}

#[test]
fn what_can_never_fit_costs_a_tree_no_keys() {
    what_can_never_fit_costs_no_keys("masstree");
}

#[test]
fn what_can_never_fit_costs_a_hash_table_no_keys() {
    what_can_never_fit_costs_no_keys("mercury");
}

/// The commands of a transaction write more together than there is: nothing can be evicted between
/// them.
#[test]
fn a_transaction_writes_no_more_than_fits() {
    let server = TestServer::start(&["--maxmemory", &LIMIT.to_string()]);
    let mut wire = server.connect();
    let len = LIMIT / 3;
    let last = (len - 1).to_string();
    // It takes no memory.
    wire.ask(&["SETRANGE", "hole", &last, "x"], &format!(":{len}\r\n"));
    wire.ask(&["MULTI"], "+OK\r\n");
    for key in ["a", "b", "c"] {
        wire.ask(&["BITOP", "NOT", key, "hole"], "+QUEUED\r\n");
    }
    wire.send("EXEC\r\n");
    wire.expect(format!("*3\r\n:{len}\r\n:{len}\r\n{OOM}"));
}

/// Sends the beginning of a SET of `len` bytes with all of them but `missing`.
fn begin(server: &TestServer, key: &str, len: usize, missing: usize) -> Wire {
    let mut wire = server.connect();
    let mut bytes = request(&[b"SET", key.as_bytes(), &long(len)]);
    bytes.truncate(bytes.len() - missing);
    wire.send_some(bytes);
    wire
}

#[test]
fn of_requests_that_are_not_complete_the_largest_go_first() {
    let (server, mut wire) = full_cache("masstree", &[]);
    let before = keys(&mut wire);
    let mut small: Vec<Wire> = (0..3)
        .map(|index| begin(&server, &format!("small:{index}"), MIB, 10))
        .collect();
    server.wait_until("the small requests have come", || {
        number(&mut wire, "memory", "mem_requests") >= 3 * (MIB - 10)
    });
    let bound = number(&mut wire, "memory", "mem_requests_max");
    assert_eq!(bound, REQUESTS);
    for round in 1..=5 {
        let large = begin(&server, "large", 2 * MIB + MIB / 2, 10);
        server.wait_until("the large request has come", || {
            number(&mut wire, "memory", "mem_requests") >= 5 * MIB + MIB / 2 - 40
        });
        // It fits beside the small ones, but not beside them and one more.
        let mut other = begin(&server, "other", MIB, 10);
        large.rest();
        assert_eq!(number(&mut wire, "stats", "evicted_clients"), round);
        // Nobody else is refused meanwhile.
        wire.ask(&["SET", "key", "v"], "+OK\r\n");
        other.send("v".repeat(8) + "\r\n");
        other.expect("+OK\r\n");
        server.wait_until("only the small ones hold memory", || {
            number(&mut wire, "memory", "mem_requests") < 3 * MIB + MIB / 2
        });
    }
    for wire in &mut small {
        wire.send("v".repeat(8) + "\r\n");
        wire.expect("+OK\r\n");
    }
    server.wait_until("nothing is held", || {
        number(&mut wire, "memory", "mem_requests") == 0
    });
    let after = keys(&mut wire);
    assert!(
        after >= before / 2,
        "{after} keys of {before} are left: more than requests may take"
    );
}

#[test]
fn the_bound_of_requests_is_a_setting() {
    let server = TestServer::start(&["--maxmemory", "100mb"]);
    let mut wire = server.connect();
    let get = &["CONFIG", "GET", "maxmemory-clients"][..];
    wire.ask(get, "*2\r\n$17\r\nmaxmemory-clients\r\n$3\r\n25%\r\n");
    assert_eq!(number(&mut wire, "memory", "mem_requests_max"), 25 * MIB);
    for (value, bytes, printed) in [
        ("5%", 5 * MIB, "$2\r\n5%\r\n"),
        ("2mb", 2 * MIB, "$7\r\n2097152\r\n"),
        ("1", 256 * 1024, "$1\r\n1\r\n"),
        ("0", 0, "$1\r\n0\r\n"),
    ] {
        wire.ask(&["CONFIG", "SET", "maxmemory-clients", value], "+OK\r\n");
        wire.ask(get, &format!("*2\r\n$17\r\nmaxmemory-clients\r\n{printed}"));
        assert_eq!(number(&mut wire, "memory", "mem_requests_max"), bytes);
    }
    wire.ask(
        &["CONFIG", "SET", "maxmemory-clients", "101%"],
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - argument must \
         be a memory or percent value\r\n",
    );
    // Without a bound of its own, what can never fit is refused still.
    wire.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000000\r\n");
    wire.expect(OOM);
}

/// One that is never evicted is spared, and what it holds counts for the others.
#[test]
fn a_client_of_no_evict_is_spared() {
    let (server, mut wire) = full_cache("masstree", &[]);
    let mut spared = server.connect();
    spared.ask(&["CLIENT", "NO-EVICT", "ON"], "+OK\r\n");
    let mut bytes = request(&[b"SET", b"spared", &long(4 * MIB)]);
    let end = bytes.split_off(bytes.len() - 10);
    spared.send(bytes);
    server.wait_until("its request has come", || {
        number(&mut wire, "memory", "mem_requests") >= 4 * MIB - 10
    });
    begin(&server, "other", 3 * MIB, 10).rest();
    spared.send(end);
    spared.expect("+OK\r\n");
}
