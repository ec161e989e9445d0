//! Snapshots that last: kept by the pool of `cdds`, listed after a `kill -9`, and gone back to.

use crate::harness::{Folder, Pool, TestServer, Wire};

/// The server, killed and started again.
fn killed(pool: &Pool, server: TestServer) -> (TestServer, Wire) {
    server.signal("KILL");
    assert!(!server.wait().success());
    let server = pool.serve(&[]);
    let wire = server.connect();
    (server, wire)
}

/// The names that SNAPSHOT LIST shows.
fn names(server: &TestServer) -> Vec<String> {
    let list: Vec<(String, u64, u64)> = redis::cmd("SNAPSHOT")
        .arg("LIST")
        .query(&mut server.connection())
        .expect("a list");
    list.into_iter().map(|(name, ..)| name).collect()
}

fn make(server: &TestServer, name: &str, option: &str) {
    let mut create = redis::cmd("SNAPSHOT");
    let made = create.arg("CREATE").arg(name).arg(option);
    let (made, ..): (String, u64, u64) = made.query(&mut server.connection()).expect("an entry");
    assert_eq!(made, name);
}

fn run(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        let words: Vec<&str> = line.split(' ').collect();
        wire.ask(&words, &reply.replace(' ', "\r\n"));
    }
}

#[test]
fn a_snapshot_outlives_kills_and_can_be_gone_back_to() {
    let pool = Pool::new("kills");
    let server = pool.serve(&[]);
    let mut wire = server.connect();
    run(
        &mut wire,
        &[
            ("SET k old", "+OK "),
            ("HSET h f 1", ":1 "),
            ("SET fleeting 1 PX 100000000", "+OK "),
            ("SELECT 3", "+OK "),
            ("SET only three", "+OK "),
        ],
    );
    make(&server, "monday", "PERSIST");
    make(&server, "passing", "HOLD");
    run(
        &mut wire,
        &[
            ("FLUSHDB", "+OK "),
            ("SELECT 0", "+OK "),
            ("SET k new", "+OK "),
            ("PERSIST fleeting", ":1 "),
            ("SWAPDB 0 3", "+OK "),
            ("SET more 1", "+OK "),
        ],
    );
    assert_eq!(names(&server), ["monday", "passing"]);
    let (server, mut wire) = killed(&pool, server);
    assert_eq!(names(&server), ["monday"]);
    let read = [
        ("SNAPSHOT READ monday GET k", "$3 old "),
        ("SNAPSHOT READ monday DBSIZE", ":3 "),
        ("SNAPSHOT READ monday GET more", "$-1 "),
    ];
    run(&mut wire, &read);
    run(
        &mut wire,
        &[
            ("GET more", "$1 1 "),
            ("SELECT 3", "+OK "),
            ("GET k", "$3 new "),
            ("SNAPSHOT READ monday GET only", "$5 three "),
            ("SNAPSHOT ROLLBACK monday", "+OK "),
            ("GET only", "$5 three "),
            ("DBSIZE", ":1 "),
            ("SELECT 0", "+OK "),
        ],
    );
    let present = [
        ("GET k", "$3 old "),
        ("HGET h f", "$1 1 "),
        ("DBSIZE", ":3 "),
        ("GET more", "$-1 "),
    ];
    run(&mut wire, &present);
    run(&mut wire, &read);
    let ttl: i64 = redis::cmd("PTTL")
        .arg("fleeting")
        .query(&mut server.connection())
        .unwrap();
    assert!(ttl > 0, "its deadline has come back: {ttl}");
    let (_server, mut wire) = killed(&pool, server);
    run(&mut wire, &present);
}

/// It stays until it is dropped, and can be gone back to again.
#[test]
fn a_snapshot_stays_after_a_rollback() {
    let pool = Pool::new("again");
    let server = pool.serve(&[]);
    let mut wire = server.connect();
    run(&mut wire, &[("SET k old", "+OK ")]);
    make(&server, "monday", "PERSIST");
    run(
        &mut wire,
        &[("SET k new", "+OK "), ("SNAPSHOT ROLLBACK monday", "+OK ")],
    );
    let (server, mut wire) = killed(&pool, server);
    run(
        &mut wire,
        &[
            ("SET k newer", "+OK "),
            ("SNAPSHOT ROLLBACK monday", "+OK "),
            ("SET later 1", "+OK "),
        ],
    );
    let (server, mut wire) = killed(&pool, server);
    run(
        &mut wire,
        &[
            ("GET k", "$3 old "),
            ("GET later", "$1 1 "),
            ("SNAPSHOT DROP monday", ":1 "),
        ],
    );
    let gone = "-NOSNAPSHOT no snapshot has this name\r\n";
    wire.ask(&["SNAPSHOT", "ROLLBACK", "monday"], gone);
    let (server, _) = killed(&pool, server);
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn a_rollback_breaks_what_was_read_before_it() {
    let pool = Pool::new("watches");
    let server = pool.serve(&[]);
    let (mut wire, mut other) = (server.connect(), server.connect());
    run(&mut wire, &[("SET k old", "+OK ")]);
    make(&server, "s", "PERSIST");
    run(&mut wire, &[("SET k new", "+OK ")]);
    run(
        &mut other,
        &[
            ("WATCH k", "+OK "),
            ("MULTI", "+OK "),
            ("SET k watched", "+QUEUED "),
        ],
    );
    run(&mut wire, &[("SNAPSHOT ROLLBACK s", "+OK ")]);
    run(&mut other, &[("EXEC", "*-1 "), ("GET k", "$3 old ")]);
    // What is not changed by it counts as changed, too.
    run(
        &mut other,
        &[
            ("WATCH k", "+OK "),
            ("MULTI", "+OK "),
            ("SET k watched", "+QUEUED "),
        ],
    );
    run(&mut wire, &[("SNAPSHOT ROLLBACK s", "+OK ")]);
    run(&mut other, &[("EXEC", "*-1 "), ("GET k", "$3 old ")]);
}

/// The same of cas tokens: a value that has come back is none that a client may still have.
#[test]
fn a_rollback_changes_every_token() {
    let pool = Pool::new("tokens");
    let server = pool.serve(&["--memcached-port", "0"]);
    let (mut wire, mut memcached) = (server.connect(), server.connect_memcached());
    run(&mut wire, &[("SET k old", "+OK ")]);
    make(&server, "s", "PERSIST");
    memcached.send("gets k\r\n");
    let head = memcached.line();
    let token = head.rsplit(' ').next().expect("a token").to_owned();
    memcached.expect("old\r\nEND\r\n");
    run(
        &mut wire,
        &[("SET k new", "+OK "), ("SNAPSHOT ROLLBACK s", "+OK ")],
    );
    memcached.send(format!("cas k 0 0 1 {token}\r\n1\r\n"));
    memcached.expect("EXISTS\r\n");
}

/// Its followers, too, have what it has gone back to.
#[test]
fn a_replica_follows_a_rollback() {
    let pool = Pool::new("followed");
    let primary = pool.serve(&[]);
    let mut wire = primary.connect();
    run(&mut wire, &[("MSET k old same 1", "+OK ")]);
    make(&primary, "s", "PERSIST");
    run(&mut wire, &[("MSET k new other 1", "+OK ")]);
    let address = format!("127.0.0.1 {}", primary.address.port());
    let replica = TestServer::start(&["--replicaof", &address]);
    let has = |expected: [Option<&str>; 3]| {
        replica.wait_until("the replica has what the primary has", || {
            let mut get = redis::cmd("MGET");
            let get = get.arg(&["k", "same", "other"]);
            let seen: [Option<String>; 3] = get.query(&mut replica.connection()).expect("values");
            seen.each_ref().map(Option::as_deref) == expected
        });
    };
    has([Some("new"), Some("1"), Some("1")]);
    run(&mut wire, &[("SNAPSHOT ROLLBACK s", "+OK ")]);
    has([Some("old"), Some("1"), None]);
    run(&mut wire, &[("SET other 2", "+OK ")]);
    has([Some("old"), Some("1"), Some("2")]);
}

#[test]
fn newer_snapshots_are_not_lost_by_accident() {
    let pool = Pool::new("newer");
    let server = pool.serve(&[]);
    let mut wire = server.connect();
    run(&mut wire, &[("SET k 1", "+OK ")]);
    make(&server, "first", "PERSIST");
    run(&mut wire, &[("SET k 2", "+OK ")]);
    make(&server, "second", "PERSIST");
    make(&server, "third", "HOLD");
    run(&mut wire, &[("SET k 3", "+OK ")]);
    let refused = "-ERR 2 newer snapshots would be lost; FORCE drops them\r\n";
    wire.ask(&["SNAPSHOT", "ROLLBACK", "first"], refused);
    let not_kept =
        "-ERR this snapshot does not last: only one made with PERSIST can be gone back to\r\n";
    wire.ask(&["SNAPSHOT", "ROLLBACK", "third"], not_kept);
    wire.ask(
        &["SNAPSHOT", "ROLLBACK", "first", "NOW"],
        "-ERR syntax error\r\n",
    );
    run(
        &mut wire,
        &[
            ("GET k", "$1 3 "),
            ("SNAPSHOT ROLLBACK first FORCE", "+OK "),
            ("GET k", "$1 1 "),
            ("SET k 4", "+OK "),
        ],
    );
    assert_eq!(names(&server), ["first"]);
    let (server, mut wire) = killed(&pool, server);
    assert_eq!(names(&server), ["first"]);
    run(&mut wire, &[("GET k", "$1 4 ")]);
}

/// Where nothing outlasts the server, a snapshot does not either.
#[test]
fn without_a_pool_that_lasts_no_snapshot_does() {
    for flags in [&["--engine", "masstree"][..], &["--engine", "cdds"]] {
        let server = TestServer::start(flags);
        let refused = "-ERR nothing outlasts this server: snapshots that last need the engine cdds \
                       with a file for its pool (--pmem), or minuet with a directory \
                       (--data-dir)\r\n";
        let mut wire = server.connect();
        wire.ask(&["SNAPSHOT", "CREATE", "s", "PERSIST"], refused);
        make(&server, "s", "HOLD");
    }
}

/// On disk are keys, not pages: a start may choose other pages, and memnodes.
#[test]
fn branches_come_back_on_pages_of_another_size() {
    let folder = Folder::new();
    let data = folder.path("data");
    let data = data.to_str().expect("a name");
    let start = |memnodes, bytes| {
        let of_minuet = ["--minuet-memnodes", memnodes, "--minuet-page-size", bytes];
        let on_disk = ["--data-dir", data, "--durability", "interval"];
        let flags = [["--engine", "minuet"].as_slice(), &on_disk, &of_minuet];
        TestServer::start(&flags.concat())
    };
    let long = "x".repeat(9000);
    let mut server = start("3", "16kb");
    let mut wire = server.connect();
    for number in 0..500 {
        let (key, of_it) = (
            format!("k{number}"),
            format!("{number}{}", "v".repeat(number)),
        );
        wire.ask(&["SET", &key, &of_it], "+OK\r\n");
    }
    wire.ask(&["SET", "long", &long], "+OK\r\n");
    make(&server, "monday", "PERSIST");
    let mut create = redis::cmd("BRANCH");
    let made = create.arg("CREATE").arg("trial");
    let _: redis::Value = made.query(&mut server.connection()).expect("a branch");
    run(
        &mut wire,
        &[
            ("BRANCH USE trial", "+OK "),
            ("DEL k1", ":1 "),
            (
                "CONFIG GET minuet-page-size",
                "*2 $16 minuet-page-size $5 16384 ",
            ),
        ],
    );
    for (memnodes, bytes) in [("1", "4096"), ("2", "32768")] {
        server.signal("TERM");
        assert!(server.wait().success());
        server = start(memnodes, bytes);
        let mut wire = server.connect();
        run(
            &mut wire,
            &[
                ("GET k3", "$4 3vvv "),
                ("DBSIZE", ":501 "),
                ("SNAPSHOT READ monday STRLEN long", ":9000 "),
                ("BRANCH READ trial DBSIZE", ":500 "),
                ("BRANCH READ trial KCOUNT - +", ":500 "),
            ],
        );
    }
}
