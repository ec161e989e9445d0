//! Replies that are large, to clients that read them and to one that does not.

use redis::Connection;

use crate::harness::{TestServer, Wire};

const MB: u64 = 1 << 20;

/// Requests that one client sends at once.
const REQUESTS: usize = 8;

fn used(admin: &mut Wire) -> u64 {
    let lines = admin.ask_any(&["INFO", "memory"]);
    let field = lines.lines().find_map(|it| it.strip_prefix("used_memory:"));
    let bytes = field.and_then(|it| it.parse().ok());
    bytes.expect("it is told")
}

/// A client that reads nothing makes the server hold one reply, however many it has requested.
/// Others are served, also with such replies, and the memory is given back when it has gone.
/// `PANDO_REPLY_MB` sets how long a reply is: 1024 is a gigabyte.
#[test]
fn large_replies_are_held_once_and_given_back() {
    let megabytes = std::env::var("PANDO_REPLY_MB").map_or(32, |it| it.parse().unwrap());
    let server = TestServer::start(&["--threads", "2"]);
    let mut admin = server.connect();
    let element = "x".repeat(MB as usize);
    for length in 1..=megabytes {
        admin.ask(&["RPUSH", "list", &element], &format!(":{length}\r\n"));
    }
    let before = used(&mut admin);
    let reply = megabytes * MB;

    let mut deaf = server.connect();
    deaf.send("LRANGE list 0 -1\r\n".repeat(REQUESTS));
    server.wait_until("its first reply is there", || {
        used(&mut admin) > before + reply / 2
    });
    let read = |connection: &mut Connection| {
        let elements: Vec<Vec<u8>> = redis::cmd("LRANGE")
            .arg(&["list", "0", "-1"])
            .query(connection)
            .expect("all elements");
        assert!(elements.iter().all(|it| it.len() as u64 == MB));
        assert_eq!(elements.len() as u64, megabytes);
    };
    for _ in 0..REQUESTS {
        read(&mut server.connection());
        // The reader's own may not be given back yet, and buffers grow by doubling.
        let held = used(&mut admin).saturating_sub(before);
        assert!(
            held <= 4 * reply + MB,
            "{held} bytes for replies of {reply}"
        );
    }
    server.wait_until("one reply is held", || {
        used(&mut admin) <= before + 2 * reply + MB
    });
    drop(deaf);
    server.wait_until("its memory is given back", || {
        used(&mut admin) < before + 4 * MB
    });
}
