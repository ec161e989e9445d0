//! REPLICA CHECK: a replica compares itself with its primary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::TestServer;
use crate::replication::{error, follow, ok, wait_for_link, writer};

/// Runs a check; what it says, as words.
fn check(replica: &TestServer) -> Vec<String> {
    ok(replica, &["REPLICA", "CHECK"]);
    let mut connection = replica.connection();
    let mut words: Vec<String> = Vec::new();
    replica.wait_until("the check is over", || {
        words = redis::cmd("REPLICA")
            .arg("STATUS")
            .query(&mut connection)
            .unwrap();
        words[1] != "running"
    });
    words
}

#[test]
fn a_replica_is_compared_with_its_primary_under_load() {
    let primary = TestServer::start(&[]);
    let replica = TestServer::start(&["--engine", "mercury", "--replica-read-only", "no"]);
    assert!(error(&primary, &["REPLICA", "CHECK"]).contains("follows no other"));
    assert!(error(&primary, &["PREPLICATE", "CHECK", "BEGIN"]).contains("is none"));
    let mut pipe = redis::pipe();
    for key in 0..20_000 {
        let value = "v".repeat(key % 200);
        pipe.cmd("SET").arg(format!("old{key}")).arg(value).ignore();
    }
    pipe.query::<()>(&mut primary.connection()).unwrap();
    follow(&replica, primary.address);
    wait_for_link(&replica);
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(&primary, &stop);
    for _ in 0..3 {
        let words = check(&replica);
        assert_eq!(words[..3], ["state", "same", "keys"], "{words:?}");
    }
    ok(&replica, &["SELECT", "0"]);
    ok(&replica, &["SET", "old777", "another"]);
    let words = check(&replica);
    let expected = "state differs database 0 key old777 primary-has yes replica-has yes epoch";
    assert_eq!(words[..words.len() - 1].join(" "), expected);
    ok(&replica, &["DEL", "old777"]);
    assert_eq!(
        check(&replica)[5..9].join(" "),
        "old777 primary-has yes replica-has"
    );
    // What the primary writes next is the same on both sides again.
    ok(&primary, &["SET", "old777", "mended"]);
    let words = check(&replica);
    assert_eq!(words[1], "same", "{words:?}");
    stop.store(true, Ordering::Relaxed);
    assert!(writing.join().unwrap() > 0);
    // A full copy mends what nobody writes again.
    ok(&replica, &["SET", "only-here", "value"]);
    assert_eq!(
        check(&replica)[5..].join(" ").split(" epoch").next(),
        Some("only-here primary-has no replica-has yes")
    );
    ok(&replica, &["REPLICAOF", "NO", "ONE"]);
    let port = primary.address.port().to_string();
    ok(&replica, &["REPLICAOF", "127.0.0.1", &port, "FORCE"]);
    wait_for_link(&replica);
    assert_eq!(check(&replica)[1], "same");
    for server in [&primary, &replica] {
        server.wait_until("no snapshot is left", || {
            let mut connection = server.connection();
            let list: Vec<redis::Value> = redis::cmd("SNAPSHOT")
                .arg("LIST")
                .query(&mut connection)
                .unwrap();
            list.is_empty()
        });
    }
    // A check ends with its link, and another may begin.
    primary.signal("KILL");
    primary.wait();
    replica.wait_until("the link is down", || {
        error_of(&replica).is_some_and(|text| text.contains("link to the primary is down"))
    });
}

fn error_of(replica: &TestServer) -> Option<String> {
    let mut connection = replica.connection();
    let asked = redis::cmd("REPLICA")
        .arg("CHECK")
        .query::<()>(&mut connection);
    asked.err().map(|error| error.to_string())
}

/// What a primary writes behind the position that it names when it becomes a replica, nobody has.
#[test]
fn a_primary_that_becomes_a_replica_under_load_has_nothing_of_its_own() {
    let servers = [TestServer::start(&[]), TestServer::start(&[])];
    follow(&servers[1], servers[0].address);
    for round in 0..10 {
        let (old, new) = (&servers[round % 2], &servers[1 - round % 2]);
        wait_for_link(new);
        let stop = Arc::new(AtomicBool::new(false));
        let writing = writer(old, &stop);
        ok(new, &["REPLICAOF", "NO", "ONE"]);
        follow(old, new.address);
        stop.store(true, Ordering::Relaxed);
        writing.join().unwrap();
        wait_for_link(old);
        let words = check(old);
        assert_eq!(words[1], "same", "round {round}: {words:?}");
    }
}
