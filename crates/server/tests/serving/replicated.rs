//! CLIENT DURABILITY REPLICATED: replies that wait for the disks of replicas.

use crate::harness::{Folder, TestServer};
use crate::replication::{follow, info, ok, wait_for_link};

/// A server with a log.
fn kept(folder: &Folder, name: &str) -> TestServer {
    let data = folder.path(name).display().to_string();
    TestServer::start(&["--durability", "interval", "--data-dir", &data])
}

/// Waits until a replica has something on disk.
fn wait_for_replica(primary: &TestServer, replica: &TestServer) {
    follow(replica, primary.address);
    wait_for_link(replica);
    primary.wait_until("it is on disk there", || {
        let mut client = primary.connect();
        client.send("WAITAOF 0 1 100\r\n");
        client.line() == "*2" && (client.line(), client.line()).1 == ":1"
    });
}

const GIVEN_UP: &str = "-NOREPLICAS Fewer replicas than asked for have on disk what the reply \
                        shows. The command was executed.";

#[test]
fn replies_wait_for_the_disks_of_replicas() {
    let folder = Folder::new();
    let (primary, replica) = (kept(&folder, "primary"), kept(&folder, "replica"));
    let unkept = TestServer::start(&[]);
    follow(&unkept, primary.address);
    wait_for_link(&unkept);
    let mut client = primary.connect();
    client.send("CLIENT DURABILITY REPLICATED 1 TIMEOUT 50\r\nCLIENT DURABILITY\r\n");
    client.expect("+OK\r\n$23\r\nreplicated 1 timeout 50\r\n");
    // A replica without a log has nothing on disk. What waits behind a reply does not go with it.
    client.send("SET k first\r\nPING\r\n");
    client.expect(format!("{GIVEN_UP}\r\n+PONG\r\n"));
    let mut other = primary.connect();
    other.send("GET k\r\n");
    other.expect("$5\r\nfirst\r\n");

    wait_for_replica(&primary, &replica);
    client.send("CLIENT DURABILITY REPLICATED 1 TIMEOUT 60000\r\n");
    client.expect("+OK\r\n");
    client.send("GET k\r\nSET k second\r\nSET old value\r\nPING\r\nKEYS x*\r\n");
    client.expect("$5\r\nfirst\r\n+OK\r\n+OK\r\n+PONG\r\n*0\r\n");
    // A command in slices, and an EXEC.
    client.send("MULTI\r\nSET a 1\r\nSET b 2\r\nEXEC\r\nDBSIZE\r\n");
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n:4\r\n");

    replica.signal("STOP");
    client.send("CLIENT DURABILITY REPLICATED 1 TIMEOUT 50\r\n");
    client.expect("+OK\r\n");
    client.send("SET k third\r\nINCR a\r\n");
    client.expect(format!("{GIVEN_UP}\r\n{GIVEN_UP}\r\n"));
    // What others have written there waits, what is there already does not.
    client.send("GET k\r\nGET old\r\nMULTI\r\nSET b 3\r\nGET b\r\nEXEC\r\nPING\r\n");
    client.expect(format!(
        "{GIVEN_UP}\r\n$5\r\nvalue\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n{GIVEN_UP}\r\n+PONG\r\n"
    ));
    other.send("CLIENT DURABILITY REPLICATED 1\r\nSET k fourth\r\nGET old\r\n");
    other.expect("+OK\r\n");
    replica.signal("CONT");
    other.expect("+OK\r\n$5\r\nvalue\r\n");
    // It is on that disk.
    replica.signal("KILL");
    replica.wait();
    let replica = kept(&folder, "replica");
    let mut there = replica.connect();
    there.send("GET k\r\nGET a\r\nGET b\r\n");
    there.expect("$6\r\nfourth\r\n$1\r\n2\r\n$1\r\n3\r\n");
    // The mode ends, and so does the wait.
    client.send("CLIENT DURABILITY SYNC\r\nSET k fifth\r\nCLIENT DURABILITY\r\n");
    client.expect("+OK\r\n+OK\r\n$4\r\nsync\r\n");
    // Two are more than there are.
    wait_for_replica(&primary, &replica);
    client.send("CLIENT DURABILITY REPLICATED 2 TIMEOUT 20\r\nSET k v\r\nRESET\r\nSET k v\r\n");
    client.expect(format!("+OK\r\n{GIVEN_UP}\r\n+RESET\r\n+OK\r\n"));
}

#[test]
fn nothing_that_may_be_lost_is_acknowledged_behind_a_change_of_roles() {
    let folder = Folder::new();
    let (primary, replica) = (kept(&folder, "primary"), kept(&folder, "replica"));
    wait_for_replica(&primary, &replica);
    replica.signal("STOP");
    let mut client = primary.connect();
    client.send("CLIENT DURABILITY REPLICATED 1\r\nSET lost value\r\nPING\r\n");
    client.expect("+OK\r\n");
    primary.wait_until("it was executed", || {
        let mut other = primary.connect();
        other.send("EXISTS lost\r\n");
        other.line() == ":1"
    });
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    follow(&primary, nowhere.local_addr().unwrap());
    client.expect(
        "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> \
         replica?)\r\n+PONG\r\n",
    );
    replica.signal("CONT");
    ok(&replica, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(info(&replica, "role"), "master");
}

#[test]
fn only_what_can_be_kept_is_promised() {
    let server = TestServer::start(&[]);
    let mut client = server.connect();
    for (words, error) in [
        (
            "1",
            "ERR nothing is kept on disk: the server was started with durability none",
        ),
        ("0", "ERR a server has from 1 to 16 replicas"),
        ("17", "ERR a server has from 1 to 16 replicas"),
        ("x", "ERR value is not an integer or out of range"),
        ("1 LIMIT 5", "ERR syntax error"),
        (
            "1 TIMEOUT x",
            "ERR timeout is not an integer or out of range",
        ),
        ("1 TIMEOUT -1", "ERR timeout is negative"),
    ] {
        client.send(format!("CLIENT DURABILITY REPLICATED {words}\r\n"));
        client.expect(format!("-{error}\r\n"));
    }
    client.send("CLIENT DURABILITY\r\n");
    client.expect("$4\r\nnone\r\n");
}
