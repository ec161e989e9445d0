//! Starting and stopping: flags, files, ports, signals, exit codes, and what is said about them.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{
    BINARY, Folder, TestServer, ping_unix, request, run_command_to_end, run_to_end,
};

#[test]
fn the_banner_says_what_is_promised() {
    let server = TestServer::start(&["--engine", "reference", "--threads", "2"]);
    let banner = &server.banner;
    for part in [
        concat!("pando ", env!("CARGO_PKG_VERSION")),
        "speaks the Redis protocol\n",
        "engine reference",
        "2 workers",
        "nothing is kept on disk",
        &format!("listening tcp={}", server.address),
    ] {
        assert!(banner.contains(part), "{part:?} is missing in {banner}");
    }
    let both = TestServer::start(&["--memcached-port", "0"]).banner.clone();
    assert!(
        both.contains("speaks the Redis and memcached protocols\n"),
        "{both}"
    );
}

#[test]
fn a_taken_port_is_named() {
    let server = TestServer::start(&[]);
    let port = server.address.port().to_string();
    let (status, text) = run_to_end(&[
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--durability",
        "none",
    ]);
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(
        text.contains(&format!("cannot listen on {}", server.address)),
        "{text}"
    );
    assert!(text.contains("in use"), "{text}");
    server.connect().expect_served();
}

#[test]
fn wrong_flags_are_refused_with_what_would_be_right() {
    for (flags, parts) in [
        (&["--no-such-flag", "1"][..], &["--no-such-flag"][..]),
        (&["--port", "70000"], &["port", "70000"]),
        (&["--threads", "0"], &["threads"]),
        (&["--engine", "steam"], &["engine", "steam", "reference"]),
        (&["--bind", "nowhere"], &["bind", "nowhere"]),
        (&["--maxclients", "many"], &["maxclients", "many"]),
        (
            &["--config", "/no/such/pando.conf"],
            &["/no/such/pando.conf"],
        ),
    ] {
        let (status, text) = run_to_end(flags);
        assert!(
            matches!(status.code(), Some(1 | 2)),
            "{status} for {flags:?}: {text}"
        );
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
    }
}

#[test]
fn help_and_version_are_no_failures() {
    let (status, text) = run_to_end(&["--help"]);
    assert!(status.success() && text.contains("--maxclients"), "{text}");
    let (status, text) = run_to_end(&["--version"]);
    assert!(
        status.success() && text.contains(env!("CARGO_PKG_VERSION")),
        "{text}"
    );
}

#[test]
fn the_configuration_file_is_read_and_flags_win() {
    let folder = Folder::new();
    let file = folder.path("pando.conf");
    std::fs::write(&file, "# a comment\ndatabases 3\nrequirepass from-file\n").unwrap();
    let file = file.to_str().unwrap();
    let server = TestServer::start(&["--config", file, "--databases", "5"]);
    let mut wire = server.connect();
    wire.ask(&["PING"], "-NOAUTH Authentication required.\r\n");
    wire.ask(&["AUTH", "from-file"], "+OK\r\n");
    wire.ask(&["SELECT", "4"], "+OK\r\n");
    wire.ask(&["SELECT", "5"], "-ERR DB index is out of range\r\n");

    std::fs::write(file, "databases 3\nno-such-setting 1\n").unwrap();
    let (status, text) = run_to_end(&["--config", file]);
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(
        text.contains(&format!("{file}:2")) && text.contains("no-such-setting"),
        "{text}"
    );
}

#[test]
fn too_few_file_descriptors_are_reported() {
    let under_limit = |limit: u32, flags: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit} && exec {BINARY} {flags}")]);
        command
    };
    let (status, text) = run_command_to_end(&mut under_limit(40, "--port 0 --durability none"));
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("limit of open files is 40"), "{text}");

    // Without a log: tests beside this one must not find the default directory in use.
    let flags = "--bind 127.0.0.1 --port 0 --threads 1 --loglevel warning --durability none";
    let server = TestServer::spawn(&mut under_limit(107, flags));
    assert!(
        server.banner.contains("at most 35 clients"),
        "{}",
        server.banner
    );
    let mut wires: Vec<_> = (0..35).map(|_| server.connect()).collect();
    wires
        .iter_mut()
        .for_each(crate::harness::Wire::expect_served);
    server
        .connect()
        .expect("-ERR max number of clients reached\r\n");
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let flags = [
        "--unix-socket",
        path.to_str().unwrap(),
        "--unixsocketperm",
        "700",
    ];
    let server = TestServer::start(&flags);
    assert_eq!(server.unix_socket.as_ref(), Some(&path));
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    ping_unix(&path);

    let (status, text) = run_to_end(&[
        "--port",
        "0",
        "--durability",
        "none",
        "--unix-socket",
        path.to_str().unwrap(),
    ]);
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("another server answers there"), "{text}");

    // A process that is killed leaves the file, and the next one takes it over.
    server.signal("KILL");
    server.wait();
    assert!(path.exists());
    let server = TestServer::start(&flags);
    ping_unix(&path);
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(!path.exists());
}

#[test]
fn a_signal_ends_the_server_after_its_replies() {
    // More than the buffers of sockets hold: the server must wait for us to read.
    let value = [&vec![0; 20_000_000][..], b"x\r\n"].concat();
    let gets_its_reply = |signal: &str| {
        let server = TestServer::start(&[]);
        let mut wire = server.connect();
        wire.ask(&["SETRANGE", "key", "20000000", "x"], ":20000001\r\n");
        let mut sleeper = server.connect();
        sleeper.send("PING\r\nDEBUG SLEEP 1000000\r\n");
        sleeper.expect("+PONG\r\n");
        wire.send(request(&[b"GET", b"key"]));
        wire.expect("$20000001\r\n");
        server.signal(signal);
        let rest = wire.rest();
        assert!(server.wait().success());
        sleeper.expect_closed();
        rest == value
    };
    // The server waits for a second, which may be over before a test on a busy machine reads.
    for signal in ["TERM", "INT"] {
        assert!((0..5).any(|_| gets_its_reply(signal)), "{signal}");
    }
}

#[test]
fn shutdown_ends_the_server() {
    for arguments in [
        &["SHUTDOWN"][..],
        &["SHUTDOWN", "NOSAVE"],
        &["SHUTDOWN", "NOW", "FORCE"],
    ] {
        let server = TestServer::start(&[]);
        let mut other = server.connect();
        other.expect_served();
        let mut wire = server.connect();
        let words: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes()).collect();
        wire.send(request(&words));
        wire.expect_closed();
        other.expect_closed();
        assert!(server.wait().success());
    }
    let server = TestServer::start(&[]);
    server
        .connect()
        .ask(&["SHUTDOWN", "ABORT"], "-ERR No shutdown in progress.\r\n");
    server
        .connect()
        .ask(&["SHUTDOWN", "LATER"], "-ERR syntax error\r\n");
    server.connect().expect_served();
}

#[test]
fn a_client_that_does_not_read_cannot_hold_the_server_up() {
    let server = TestServer::start(&[]);
    let mut wire = server.connect();
    wire.ask(&["SETRANGE", "key", "100000000", "x"], ":100000001\r\n");
    wire.send(request(&[b"GET", b"key"]));
    wire.expect("$100000001\r\n");
    server.signal("TERM");
    assert!(server.wait().success());
}
