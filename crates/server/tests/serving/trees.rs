//! Trees of servers that follow each other, while members of them die, and disks that are full
//! above or below.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;

use crate::full::{ONLY_WHAT_IS_THERE, limit, value};
use crate::harness::{Folder, TestServer, seed};
use crate::replication::{
    content, error, follow, info, ok, wait_for_link, wait_until_on_disk, wait_until_same, writer,
};

/// How each member of a tree of seven is started: the first is the root, one and two follow it, the
/// others follow those, two each. Every one can take the place of the one above it.
const MEMBERS: [&[&str]; 7] = [
    &["--durability", "interval"],
    &["--durability", "sync", "--engine", "mercury"],
    &["--durability", "interval", "--threads", "1"],
    &["--durability", "interval", "--threads", "3"],
    &["--engine", "mercury", "--threads", "1"],
    &["--durability", "interval", "--engine", "mercury"],
    &[],
];

struct Tree {
    folder: Folder,
    members: Vec<Option<TestServer>>,
}

impl Tree {
    fn of_seven() -> Self {
        let mut tree = Self {
            folder: Folder::new(),
            members: Vec::new(),
        };
        for number in 0..MEMBERS.len() {
            let above = (number > 0).then(|| tree.member((number - 1) / 2).address);
            tree.members.push(Some(tree.started(number, above)));
        }
        tree
    }

    fn started(&self, number: usize, above: Option<SocketAddr>) -> TestServer {
        let mut flags = MEMBERS[number].to_vec();
        let data = self.folder.path(&number.to_string()).display().to_string();
        if flags.contains(&"--durability") {
            flags.extend(["--data-dir", &data]);
        }
        let above = above.map(|address| format!("{} {}", address.ip(), address.port()));
        if let Some(above) = &above {
            flags.extend(["--replicaof", above]);
        }
        TestServer::start(&flags)
    }

    fn member(&self, number: usize) -> &TestServer {
        self.members[number].as_ref().expect("it is alive")
    }

    fn below(number: usize) -> impl Iterator<Item = usize> {
        [2 * number + 1, 2 * number + 2]
            .into_iter()
            .filter(|below| *below < MEMBERS.len())
    }

    fn kill(&mut self, number: usize) {
        let member = self.members[number].take().expect("it is alive");
        member.signal("KILL");
        member.wait();
    }

    /// Starts a member again below the one that is there now, and leads its replicas to it.
    fn revive(&mut self, number: usize) {
        let above = self.member((number - 1) / 2).address;
        self.members[number] = Some(self.started(number, Some(above)));
        for below in Self::below(number) {
            follow(self.member(below), self.member(number).address);
        }
    }

    fn wait_until_same(&self) {
        for number in 1..MEMBERS.len() {
            wait_until_same(self.member(0), self.member(number));
        }
    }
}

#[test]
fn a_tree_of_seven_survives_kills_of_any_and_of_its_root() {
    let mut random = Rng::with_seed(seed());
    let mut tree = Tree::of_seven();
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(tree.member(0), &stop);
    for number in 1..MEMBERS.len() {
        wait_for_link(tree.member(number));
    }
    for _ in 0..6 {
        let victim = random.usize(1..MEMBERS.len());
        tree.kill(victim);
        tree.revive(victim);
        if random.bool() {
            wait_for_link(tree.member(victim));
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writing.join().unwrap() > 0);
    tree.wait_until_same();

    // The root dies. One of the two below it takes its place, the other follows that, and so does
    // what was the root.
    wait_until_on_disk(tree.member(0));
    tree.wait_until_same();
    let heirs = random.usize(1..3);
    let (heir, other) = (heirs, 3 - heirs);
    tree.kill(0);
    ok(tree.member(heir), &["REPLICAOF", "NO", "ONE"]);
    follow(tree.member(other), tree.member(heir).address);
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(tree.member(heir), &stop);
    let address = tree.member(heir).address;
    tree.members[0] = Some(tree.started(0, Some(address)));
    wait_for_link(tree.member(0));
    wait_for_link(tree.member(other));
    assert_eq!(info(tree.member(0), "master_full_copies"), "0");
    assert_eq!(info(tree.member(other), "master_full_copies"), "0");
    stop.store(true, Ordering::Relaxed);
    assert!(writing.join().unwrap() > 0);
    for number in 0..MEMBERS.len() {
        if number != heir {
            wait_until_same(tree.member(heir), tree.member(number));
        }
    }
    assert_eq!(info(tree.member(heir), "role"), "master");
}

/// A server of which a disk can be filled.
fn limited(folder: &Folder, name: &str) -> TestServer {
    let data = folder.path(name).display().to_string();
    let flags = ["--durability", "interval", "--threads", "1", "--data-dir"];
    let more = ["--log-segment-size", "1mb", "--checkpoint-log-size", "1gb"];
    TestServer::start(&[&flags[..], &[&data], &more].concat())
}

/// Writes until the log of `server` is full; returns how many keys were acknowledged.
fn write_until_full(primary: &TestServer, server: &TestServer) -> usize {
    let mut connection = primary.connection();
    for count in 0..5000 {
        let mut set = redis::cmd("SET");
        set.arg(format!("k{count}")).arg(value(count));
        if let Err(refused) = set.query::<()>(&mut connection) {
            assert_eq!(refused.code(), Some("MISCONF"), "{refused}");
            return count;
        }
        // So that a replica that is slow, and not full, keeps up.
        let wait = redis::cmd("WAIT").arg(&[1, 10]).exec(&mut connection);
        wait.unwrap();
        if state_of_log(server) == "full" {
            return count + 1;
        }
    }
    panic!("the log was never full");
}

fn state_of_log(server: &TestServer) -> String {
    let mut connection = server.connection();
    let text: String = redis::cmd("INFO")
        .arg("persistence")
        .query(&mut connection)
        .unwrap();
    let mut lines = text.lines();
    let state = lines.find_map(|line| line.strip_prefix("log_state:"));
    state.expect("a figure").to_owned()
}

fn keys(server: &TestServer) -> usize {
    redis::cmd("DBSIZE")
        .query(&mut server.connection())
        .unwrap()
}

/// FW3 durable-above: what could not be written above is not seen below, until it is.
#[test]
fn a_full_disk_above_holds_back_what_is_not_on_it() {
    let folder = Folder::new();
    let primary = limited(&folder, "primary");
    let replica = TestServer::start(&["--engine", "mercury"]);
    follow(&replica, primary.address);
    wait_for_link(&replica);
    limit(&primary, Some(ONLY_WHAT_IS_THERE));
    let written = write_until_full(&primary, &primary);
    assert_eq!(keys(&primary), written);
    assert!(keys(&replica) <= written);
    // Reads go on, on both sides, and so does the link.
    assert_eq!(info(&replica, "master_link_status"), "up");
    limit(&primary, None);
    wait_until_same(&primary, &replica);
    primary.wait_until("writes are taken", || {
        let mut connection = primary.connection();
        redis::cmd("SET")
            .arg("again")
            .arg(1)
            .exec(&mut connection)
            .is_ok()
    });
    wait_until_same(&primary, &replica);
    assert_eq!(info(&replica, "master_full_copies"), "1");
}

/// A replica whose disk is full counts for nobody and costs its primary nothing. It goes on where
/// it stood when it has room.
#[test]
fn a_full_disk_below_is_the_replicas_own_affair() {
    let folder = Folder::new();
    let primary = TestServer::start(&[]);
    let replica = limited(&folder, "replica");
    follow(&replica, primary.address);
    wait_until_on_disk(&primary);
    let stood = content(&replica).len();
    limit(&replica, Some(ONLY_WHAT_IS_THERE));
    let written = write_until_full(&primary, &replica);
    let mut connection = primary.connection();
    redis::cmd("SET")
        .arg("later")
        .arg("than that")
        .exec(&mut connection)
        .unwrap();
    let on_disk: (i64, i64) = redis::cmd("WAITAOF")
        .arg(&[0, 1, 50])
        .query(&mut connection)
        .unwrap();
    assert_eq!(on_disk.1, 0);
    assert!(keys(&replica) >= stood);
    assert!(error(&replica, &["SET", "k", "v"]).contains("READONLY"));
    limit(&replica, None);
    wait_until_same(&primary, &replica);
    wait_until_on_disk(&primary);
    assert_eq!(keys(&replica), written + stood + 1);
    assert_eq!(info(&replica, "master_full_copies"), "1");
    replica.signal("KILL");
    replica.wait();
    let replica = limited(&folder, "replica");
    assert_eq!(content(&replica), content(&primary));
}
