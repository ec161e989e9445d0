//! Branches and lasting snapshots on replicas, through kills and promotions.

use redis::Value;

use crate::harness::{Folder, TestServer};
use crate::replication::{error, follow, info, ok, wait_for_link, wait_until_on_disk};

/// The value of a key on a branch.
fn on_branch(server: &TestServer, branch: &str, key: &str) -> Option<String> {
    let mut read = redis::cmd("BRANCH");
    let read = read.arg(&["READ", branch, "GET", key]);
    read.query(&mut server.connection()).unwrap_or_default()
}

fn in_snapshot(server: &TestServer, snapshot: &str, key: &str) -> Option<String> {
    let mut read = redis::cmd("SNAPSHOT");
    let read = read.arg(&["READ", snapshot, "GET", key]);
    read.query(&mut server.connection()).unwrap_or_default()
}

fn branches(server: &TestServer) -> Vec<String> {
    let mut list = redis::cmd("BRANCH");
    let listed: Value = list.arg("LIST").query(&mut server.connection()).unwrap();
    let Value::Array(entries) = listed else {
        panic!("{listed:?}");
    };
    let name = |entry: Value| match entry {
        Value::Array(mut fields) => redis::from_redis_value(fields.swap_remove(0)).unwrap(),
        other => panic!("{other:?}"),
    };
    entries.into_iter().map(name).collect()
}

/// Writes on a branch, by a connection that uses it.
fn write(server: &TestServer, branch: &str, key: &str, value: &str) {
    let mut connection = server.connection();
    let mut pipe = redis::pipe();
    pipe.cmd("BRANCH").arg(&["USE", branch]).ignore();
    pipe.cmd("SET").arg(&[key, value]).ignore();
    pipe.query::<()>(&mut connection).unwrap();
}

/// Makes a branch; returns when it is on disk.
fn create_on_disk(server: &TestServer, branch: &str) {
    let mut pipe = redis::pipe();
    pipe.cmd("CLIENT").arg(&["DURABILITY", "sync"]).ignore();
    pipe.cmd("BRANCH").arg(&["CREATE", branch]).ignore();
    pipe.query::<()>(&mut server.connection()).unwrap();
}

/// What changes branches comes from above alone.
fn check_refusals(replica: &TestServer) {
    for refused in [
        &["BRANCH", "CREATE", "here"][..],
        &["BRANCH", "DROP", "trial"],
        &["BRANCH", "MERGE", "trial", "INTO", "main"],
        &["SNAPSHOT", "CREATE", "here", "PERSIST"],
        &["SNAPSHOT", "DROP", "monday"],
    ] {
        assert!(error(replica, refused).contains("READONLY"), "{refused:?}");
    }
}

#[test]
fn a_promoted_replica_has_the_branches_and_snapshots() {
    let folder = Folder::new();
    let kept = |name: &str, more: &[&str]| {
        let data = folder.path(name).display().to_string();
        let flags = [
            "--engine",
            "minuet",
            "--durability",
            "interval",
            "--data-dir",
            &data,
        ];
        TestServer::start(&[&flags[..], more].concat())
    };
    let top = kept("top", &[]);
    ok(&top, &["SET", "k", "old"]);
    ok(&top, &["SNAPSHOT", "CREATE", "monday", "PERSIST"]);
    ok(&top, &["BRANCH", "CREATE", "trial"]);
    write(&top, "trial", "k", "new");
    // What it had goes.
    let replica = kept("replica", &[]);
    ok(&replica, &["SET", "own", "data"]);
    ok(&replica, &["BRANCH", "CREATE", "own"]);
    let port = top.address.port().to_string();
    ok(&replica, &["REPLICAOF", "127.0.0.1", &port, "FORCE"]);
    wait_for_link(&replica);
    replica.wait_until("the copy is in", || {
        on_branch(&replica, "trial", "k").as_deref() == Some("new")
    });
    assert_eq!(branches(&replica), ["main", "trial"]);
    assert_eq!(in_snapshot(&replica, "monday", "k").as_deref(), Some("old"));
    check_refusals(&replica);

    // Changes follow, through a kill of the replica.
    ok(&top, &["BRANCH", "CREATE", "second", "FROM", "monday"]);
    write(&top, "second", "more", "of it");
    replica.wait_until("a branch follows", || {
        on_branch(&replica, "second", "more").as_deref() == Some("of it")
    });
    wait_until_on_disk(&top);
    replica.signal("KILL");
    replica.wait();
    ok(&top, &["BRANCH", "MERGE", "trial", "INTO", "main"]);
    ok(&top, &["BRANCH", "DROP", "trial"]);
    ok(&top, &["BRANCH", "MAIN", "second"]);
    let target = format!("127.0.0.1 {}", top.address.port());
    let replica = kept("replica", &["--replicaof", &target]);
    replica.wait_until("it goes on", || branches(&replica) == ["main", "second"]);
    assert_eq!(info(&replica, "master_full_copies"), "0");

    // The primary is lost.
    wait_until_on_disk(&top);
    top.signal("KILL");
    top.wait();
    ok(&replica, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(on_branch(&replica, "main", "k").as_deref(), Some("new"));
    assert_eq!(on_branch(&replica, "second", "k").as_deref(), Some("old"));
    assert_eq!(in_snapshot(&replica, "monday", "k").as_deref(), Some("old"));
    create_on_disk(&replica, "third");
    replica.signal("KILL");
    replica.wait();
    let replica = kept("replica", &[]);
    assert_eq!(branches(&replica), ["main", "second", "third"]);
    // What was the primary follows, and so does a server of another engine.
    let top = kept("top", &[]);
    let other = TestServer::start(&[]);
    for server in [&top, &other] {
        follow(server, replica.address);
        wait_for_link(server);
    }
    top.wait_until("it follows", || {
        branches(&top) == ["main", "second", "third"]
    });
    let mut get = redis::cmd("GET");
    let seen: Option<String> = get.arg("k").query(&mut other.connection()).unwrap();
    assert_eq!(seen.as_deref(), Some("new"));
}
