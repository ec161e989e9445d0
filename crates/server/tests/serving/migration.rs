//! MIGRATE: keys are on one of two servers, whatever happens between them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use redis::Commands;

use crate::harness::TestServer;

fn port(server: &TestServer) -> String {
    server.address.port().to_string()
}

#[test]
fn keys_move_with_their_deadlines() {
    let (from, to) = (TestServer::start(&[]), TestServer::start(&[]));
    let mut wire = from.connect();
    wire.ask(&["SET", "text", "ada", "PX", "500000"], "+OK\r\n");
    wire.ask(&["HSET", "hash", "name", "grace"], ":1\r\n");
    wire.ask(&["SET", "stays", "here"], "+OK\r\n");
    let port = port(&to);
    wire.ask(
        &["MIGRATE", "127.0.0.1", &port, "nothing", "0", "1000"],
        "+NOKEY\r\n",
    );
    wire.ask(
        &["MIGRATE", "127.0.0.1", &port, "text", "0", "5000"],
        "+OK\r\n",
    );
    wire.ask(
        &[
            "MIGRATE",
            "127.0.0.1",
            &port,
            "",
            "3",
            "5000",
            "COPY",
            "KEYS",
            "hash",
            "absent",
            "stays",
        ],
        "+OK\r\n",
    );
    wire.ask(&["EXISTS", "text", "hash", "stays"], ":2\r\n");
    let mut there = to.connection();
    assert_eq!(there.get("text"), Ok("ada".to_owned()));
    let left: i64 = there.pttl("text").unwrap();
    assert!((1..=500_000).contains(&left), "{left}");
    let _: () = redis::cmd("SELECT").arg(3).exec(&mut there).unwrap();
    assert_eq!(there.hget("hash", "name"), Ok("grace".to_owned()));
    assert_eq!(there.get("stays"), Ok("here".to_owned()));
    // What is there already is replaced only if that is asked for, and the others go all the same.
    let both = |option: &str| {
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "3", "5000"];
        words.extend(Some(option).filter(|option| !option.is_empty()));
        words.extend(["KEYS", "stays", "hash"]);
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let busy =
        "-ERR Target instance replied with error: BUSYKEY Target key name already exists.\r\n";
    wire.ask(&parts(&both("")), busy);
    wire.ask(&["DBSIZE"], ":2\r\n");
    wire.ask(&parts(&both("REPLACE")), "+OK\r\n");
    wire.ask(&["DBSIZE"], ":0\r\n");
}

#[test]
fn many_large_keys_move_in_portions() {
    let (from, to) = (TestServer::start(&[]), TestServer::start(&[]));
    let mut here = from.connection();
    let names: Vec<String> = (0..700).map(|number| format!("key:{number}")).collect();
    for name in &names {
        let _: () = here.set(name, name.repeat(2000)).unwrap();
    }
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(port(&to)).arg("").arg(0);
    let moved: String = migrate
        .arg(10_000)
        .arg("KEYS")
        .arg(&names)
        .query(&mut here)
        .unwrap();
    assert_eq!(moved, "OK");
    assert_eq!(redis::cmd("DBSIZE").query(&mut here), Ok(0));
    let mut there = to.connection();
    for name in &names {
        assert_eq!(there.get(name), Ok(name.repeat(2000)));
    }
}

#[test]
fn passwords_are_sent_and_never_shown() {
    let from = TestServer::start(&["--slowlog-log-slower-than", "0"]);
    let to = TestServer::start(&["--requirepass", "secret"]);
    let (port, mut wire) = (port(&to), from.connect());
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    let migrate = ["MIGRATE", "127.0.0.1", &port, "k", "0", "5000"];
    let refused = "-ERR Target instance replied with error: NOAUTH Authentication required.\r\n";
    wire.ask(&migrate, refused);
    wire.ask(
        &[&migrate[..], &["AUTH", "wrong"]].concat(),
        concat!(
            "-ERR Target instance replied with error: ",
            "WRONGPASS invalid username-password pair or user is disabled.\r\n"
        ),
    );
    wire.ask(
        &[&migrate[..], &["AUTH2", "default", "secret"]].concat(),
        "+OK\r\n",
    );
    let mut slow = redis::cmd("SLOWLOG");
    let slow: redis::Value = slow
        .arg("GET")
        .arg(10)
        .query(&mut from.connection())
        .unwrap();
    let slow = format!("{slow:?}");
    assert!(
        !slow.contains("secret") && !slow.contains("wrong"),
        "{slow}"
    );
    assert_eq!(slow.matches("(redacted)").count(), 3, "{slow}");
    wire.ask(
        &[&migrate[..5], &["x"]].concat(),
        "-ERR value is not an integer or out of range\r\n",
    );
    wire.ask(
        &[&migrate[..], &["KEYS", "k"]].concat(),
        concat!(
            "-ERR When using MIGRATE KEYS option, ",
            "the key argument must be set to the empty string\r\n"
        ),
    );
}

/// A server that a test plays.
struct Played {
    input: BufReader<TcpStream>,
}

impl Played {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        let mut played = Self {
            input: BufReader::new(stream),
        };
        assert_eq!(played.request()[0], b"SELECT");
        played.answer("+OK\r\n");
        played
    }

    fn line(&mut self) -> usize {
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        line[1..].trim_end().parse().unwrap()
    }

    fn request(&mut self) -> Vec<Vec<u8>> {
        let words = self.line();
        let mut word = || {
            let mut bytes = vec![0; self.line() + 2];
            self.input.read_exact(&mut bytes).unwrap();
            bytes.truncate(bytes.len() - 2);
            bytes
        };
        (0..words).map(|_| word()).collect()
    }

    fn answer(&mut self, answer: &str) {
        self.input.get_mut().write_all(answer.as_bytes()).unwrap();
    }
}

/// MI1 taken-then-removed.
#[test]
fn a_value_that_is_written_meanwhile_is_sent_too() {
    let from = TestServer::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut wire = from.connect();
    wire.ask(&["SET", "k", "old"], "+OK\r\n");
    let asking = thread::spawn(move || {
        wire.ask(
            &["MIGRATE", "127.0.0.1", &port, "k", "0", "60000"],
            "+OK\r\n",
        );
        wire
    });
    let mut played = Played::accept(&listener);
    let first = played.request();
    assert_eq!(
        (&first[0][..], &first[1][..], first.len()),
        (&b"RESTORE"[..], &b"k"[..], 4)
    );
    // Others are served, and write.
    from.connect().ask(&["SET", "k", "new"], "+OK\r\n");
    played.answer("+OK\r\n");
    let second = played.request();
    assert_eq!(second[4], b"REPLACE");
    assert!(second[3].windows(3).any(|window| window == b"new"));
    from.connect().ask(&["GET", "k"], "$3\r\nnew\r\n");
    played.answer("+OK\r\n");
    let mut wire = asking.join().unwrap();
    wire.ask(&["GET", "k"], "$-1\r\n");
}

#[test]
fn what_the_other_server_does_not_confirm_stays() {
    let from = TestServer::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut wire = from.connect();
    wire.ask(&["MSET", "a", "1", "b", "2"], "+OK\r\n");
    let asking = thread::spawn(move || {
        let words = [
            "MIGRATE",
            "127.0.0.1",
            &port,
            "",
            "0",
            "60000",
            "KEYS",
            "a",
            "b",
        ];
        wire.ask(
            &words,
            "-IOERR error or timeout reading to target instance\r\n",
        );
        wire
    });
    let mut played = Played::accept(&listener);
    for _ in 0..2 {
        assert_eq!(played.request()[0], b"RESTORE");
    }
    played.answer("+OK\r\n");
    drop(played);
    drop(listener);
    let mut wire = asking.join().unwrap();
    wire.ask(&["EXISTS", "a"], ":0\r\n");
    wire.ask(&["EXISTS", "b"], ":1\r\n");
    wire.ask(&["MULTI"], "+OK\r\n");
    wire.ask(&["MIGRATE", "127.0.0.1", "1", "b", "0", "1"], "+QUEUED\r\n");
    let refused = "ERR MIGRATE waits for another server, which cannot be done inside MULTI";
    wire.ask(&["EXEC"], &format!("*1\r\n-{refused}\r\n"));
    wire.ask(
        &["MIGRATE", "127.0.0.1", "1", "b", "0", "1000"],
        "-IOERR error or timeout writing to target instance\r\n",
    );
    wire.ask(&["GET", "b"], "$1\r\n2\r\n");
}

fn parts(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
