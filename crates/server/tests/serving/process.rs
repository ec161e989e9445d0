//! Starting and stopping: flags, files, ports, signals, exit codes, and what is said about them.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::harness::{
    BINARY, Folder, PATIENCE, TestServer, ping_unix, request, run_command_to_end, run_to_end,
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

/// What a stock configuration file of Redis says, but for what belongs to this test.
fn stock_file(folder: &Folder) -> String {
    let stock = include_str!("../../src/config/stock.conf");
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let own = stock
        .replace("/var/lib/redis", &path("data"))
        .replace("/var/log/redis/redis.log", &path("log"))
        .replace("/run/redis/redis.pid", &path("pid"))
        .replace("port 6379", "port 0");
    let file = path("redis.conf");
    std::fs::write(&file, own).unwrap();
    file
}

#[test]
fn a_stock_file_of_redis_starts_the_server() {
    let folder = Folder::new();
    let file = stock_file(&folder);
    let mut command = Command::new(BINARY);
    let server = TestServer::spawn(command.args(["--config", &file, "--threads", "1"]));
    assert!(
        server.banner.contains("durability interval"),
        "{}",
        server.banner
    );
    let pid = std::fs::read_to_string(folder.path("pid")).unwrap();
    assert_eq!(pid, format!("{}\n", server.pid()));
    let log = std::fs::read_to_string(folder.path("log")).unwrap();
    let inert: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("settings that mean nothing here"))
        .collect();
    assert!(
        inert.len() == 1 && inert[0].contains("rdbcompression"),
        "{log}"
    );
    assert!(log.contains("appendonly no: the log is kept"), "{log}");

    let mut wire = server.connect();
    let bulks = |words: &[&str]| {
        let bulks = words
            .iter()
            .map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), bulks.collect::<String>())
    };
    let points = "3600 1 300 100 60 10000";
    for (name, value) in [
        ("hz", "10"),
        ("auto-aof-rewrite-min-size", "67108864"),
        ("save", points),
        ("appendonly", "yes"),
        ("io-threads", "1"),
    ] {
        wire.ask(&["CONFIG", "GET", name], &bulks(&[name, value]));
    }
    wire.ask(&["CONFIG", "SET", "hz", "50", "save", ""], "+OK\r\n");
    wire.ask(
        &["CONFIG", "SET", "hz", "often"],
        "-ERR CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed \
         into an integer\r\n",
    );
    wire.ask(&["CONFIG", "RESETSTAT"], "+OK\r\n");
    // Whoever moves the log away need not tell the server.
    std::fs::rename(folder.path("log"), folder.path("log.1")).unwrap();
    wire.ask(&["CONFIG", "REWRITE"], "+OK\r\n");
    let log = std::fs::read_to_string(folder.path("log")).unwrap();
    assert!(log.contains("configuration file rewritten"), "{log}");
    let rewritten = std::fs::read_to_string(&file).unwrap();
    for line in [
        "hz 50",
        "save \"\"",
        "rdbchecksum yes",
        "durability interval",
    ] {
        assert!(
            rewritten.lines().any(|it| it == line),
            "{line}: {rewritten}"
        );
    }
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(!folder.path("pid").exists());
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let folder = Folder::new();
    let file = stock_file(&folder);
    let text = std::fs::read_to_string(&file).unwrap();
    let wrong = text
        .replace("hz 10", "hz often")
        .replace("daemonize no", "replicaof 10.0.0.1");
    std::fs::write(&file, format!("{wrong}nosuch 1\n")).unwrap();
    let (status, told) = run_to_end(&["--config", &file, "--engine", "steam"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 4, "{told}");
    for (line, part) in told
        .lines()
        .zip(["replicaof:", "hz:", "\"nosuch\"", "engine:"])
    {
        assert!(line.starts_with("pando: ") && line.contains(part), "{told}");
    }
    let line = wrong.lines().count() + 1;
    assert!(
        told.contains(&format!("{file}:{line}: unknown setting")),
        "{told}"
    );
    let (status, told) = run_to_end(&["--log-file", "/no/such/folder/log"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(
        told.contains("cannot write the log file /no/such/folder/log"),
        "{told}"
    );
}

#[test]
fn a_service_manager_is_told() {
    let folder = Folder::new();
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut bytes = [0; 1024];
        let len = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let data = folder.path("data");
    let start = || {
        let mut command = Command::new(BINARY);
        command.args(["--bind", "127.0.0.1", "--port", "0", "--threads", "1"]);
        command
            .args(["--loglevel", "warning", "--data-dir"])
            .arg(&data);
        TestServer::spawn(command.env("NOTIFY_SOCKET", &path))
    };
    let server = start();
    let listening = server.banner.lines().last().unwrap().to_owned();
    let mut ready = told();
    while !ready.starts_with("READY=1\n") {
        assert!(
            ready.starts_with("STATUS=") && ready.contains("EXTEND_TIMEOUT_USEC="),
            "{ready}"
        );
        ready = told();
    }
    assert_eq!(ready, format!("READY=1\nSTATUS={listening}"));
    server.connect().ask(&["SET", "k", "v"], "+OK\r\n");
    server.signal("TERM");
    assert!(told().starts_with("STOPPING=1\n"));
    assert!(server.wait().success());
    // A start that has something to read says how far it is.
    let _server = start();
    assert!(told().starts_with("STATUS=reading the log, "));
}

/// In a network of its own, where the machine has an address beside the loopback.
#[test]
fn protected_mode_serves_this_machine_only() {
    let script = "ip link set lo up && ip address add 10.1.2.3/32 dev lo && exec \"$@\"";
    let inside = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--net",
            "sh",
            "-c",
            script,
            "sh",
            program,
        ]);
        command.args(arguments);
        command
    };
    let ask = "for address in 127.0.0.1 10.1.2.3; do for port in 6001 6002; do \
               exec 3<>/dev/tcp/$address/$port; \
               case \"$1\" in *$address*) printf 'set k 0 0 1\\r\\n1\\r\\n' >&3;; esac; \
               IFS= read -r line <&3; echo \"$address $port $line\"; done; done; \
               exec 4<>/dev/udp/10.1.2.3/6003 5<>/dev/udp/127.0.0.1/6003; \
               for to in 4 5; do printf '\\0\\7\\0\\0\\0\\1\\0\\0mn\\r\\n' >&$to; done; \
               take() { dd bs=2000 count=1 2>/dev/null | tr -dc A-Z; }; \
               echo 127.0.0.1 6003 $(take <&5); \
               read -t 0 -u 4 && echo 10.1.2.3 6003 $(take <&4) || echo 10.1.2.3 6003 silence";
    if !inside("bash", &["-c", "true"])
        .output()
        .is_ok_and(|it| it.status.success())
    {
        println!("skipped: no network of its own, or no bash");
        return;
    }
    // Who is refused is told so unasked, over UDP nothing. Datagrams are answered in order, so what
    // has not been answered before the last one is not going to be.
    let run = |flags: &str, asked: &str| {
        let script = format!(
            "trap 'kill $pid' EXIT; {BINARY} --bind '*' --port 6001 --memcached-port 6002 \
             --memcached-udp-port 6003 --memcached-udp-reply-ratio 10 \
             --threads 1 --durability none --loglevel warning {flags} > $0 & pid=$!; \
             until grep -q ^listening $0; do kill -0 $pid || exit 1; done; \
             {ask}; cat $0"
        );
        let folder = Folder::new();
        let out = folder.path("banner");
        let out = out.to_str().unwrap();
        run_command_to_end(&mut inside("bash", &["-c", &script, out, asked])).1
    };
    let told = run("", "127.0.0.1");
    for part in [
        "127.0.0.1 6001 -ERR",
        "127.0.0.1 6002 STORED",
        "127.0.0.1 6003 MN",
        "10.1.2.3 6003 silence",
        "10.1.2.3 6001 -DENIED protected mode: no password is set",
        "10.1.2.3 6002 SERVER_ERROR protected mode: no password is set",
        "\nprotected mode: no password is set, so other hosts are refused",
        "protected mode refuses a connection",
    ] {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }
    let told = run("--protected-mode no", "127.0.0.1 10.1.2.3");
    assert!(told.contains("10.1.2.3 6001 -ERR"), "{told}");
    assert!(told.contains("10.1.2.3 6002 STORED"), "{told}");
    assert!(told.contains("10.1.2.3 6003 MN"), "{told}");
    assert!(!told.contains("protected mode"), "{told}");
    let told = run("--requirepass secret", "127.0.0.1 10.1.2.3");
    assert!(told.contains("10.1.2.3 6001 -NOAUTH"), "{told}");
    assert!(!told.contains("protected mode"), "{told}");
}

#[test]
fn a_file_is_named_without_a_flag() {
    let folder = Folder::new();
    let file = stock_file(&folder);
    let mut command = Command::new(BINARY);
    command.args([&file, "--threads", "1", "--databases", "5"]);
    let server = TestServer::spawn(command.args(["--log-file", ""]));
    assert!(server.banner.contains("5 databases"), "{}", server.banner);
    assert!(!folder.path("log").exists());
    drop(server);

    std::fs::write(&file, "databases 7\n").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["-", "--port", "0", "--threads", "1", "--durability", "none"]);
    let server = TestServer::spawn(command.stdin(File::open(&file).unwrap()));
    assert!(server.banner.contains("7 databases"), "{}", server.banner);
}

#[test]
fn memcacheds_flags_start_the_server() {
    let mut command = Command::new(BINARY);
    let flags = "memcached -m 64 -p -1 -l 127.0.0.1 -U 0 -c 100 -t 2 -k";
    let server = TestServer::spawn(command.args(flags.split(' ')));
    assert!(!server.banner.contains(" tcp="), "{}", server.banner);
    let mut wire = server.connect_memcached();
    wire.send("set k 0 0 1\r\n1\r\nget k\r\nstats settings\r\n");
    wire.expect("STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n");
    let settings: Vec<String> = std::iter::from_fn(|| Some(wire.line()))
        .take_while(|line| line != "END")
        .collect();
    for line in [
        "maxbytes 67108864",
        "maxconns 100",
        "evictions on",
        "num_threads 2",
    ] {
        assert!(
            settings.contains(&format!("STAT {line}")),
            "{line}: {settings:?}"
        );
    }
}
