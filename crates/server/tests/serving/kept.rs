//! What is kept on disk, as whoever starts and stops servers sees it.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use pando_io::file::{Access, File};

use crate::harness::{BINARY, Folder, TestServer, Wire, run_to_end};

fn text(folder: &Folder, name: &str) -> String {
    folder.path(name).display().to_string()
}

#[test]
fn a_server_that_stops_keeps_everything() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    let flags = ["--durability", "interval", "--data-dir", &data];
    let flags = [&flags[..], &["--log-segment-size", "1mb"]].concat();
    let server = TestServer::start(&flags);
    assert!(
        server
            .banner
            .contains("durability interval: a crash loses at most")
    );
    let mut wire = server.connect();
    wire.ask(&["SET", "k", "v"], "+OK\r\n");
    wire.ask(&["HSET", "h", "f", "1"], ":1\r\n");
    wire.ask(&["SAVE"], "+OK\r\n");
    wire.ask(&["SET", "later", "2"], "+OK\r\n");
    let (status, said) = run_to_end(&["--port", "0", "--data-dir", &data]);
    assert!(!status.success());
    assert!(said.contains("in use by another server"), "{said}");
    server.signal("TERM");
    assert!(server.wait().success());
    // Another number of workers, and of directories of logs.
    let logs = text(&folder, "logs");
    let flags = [&flags[..], &["--threads", "3", "--log-dir", &logs]].concat();
    let server = TestServer::start(&flags);
    let mut wire = server.connect();
    wire.ask(&["MGET", "k", "later"], "*2\r\n$1\r\nv\r\n$1\r\n2\r\n");
    wire.ask(&["HGET", "h", "f"], "$1\r\n1\r\n");
    wire.ask(
        &["CONFIG", "GET", "appendonly"],
        "*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n",
    );
    wire.send("SHUTDOWN NOSAVE\r\n");
    wire.expect_closed();
    assert!(server.wait().success());
}

/// memcached forgets its items with its process; here the token of `E` comes back with its item,
/// from the log and from a checkpoint, and the next change replaces it.
#[test]
fn a_chosen_token_survives_a_kill() {
    for engine in ["masstree", "mercury"] {
        let folder = Folder::new();
        let data = text(&folder, "data");
        let flags = ["--durability", "sync", "--data-dir", &data];
        let flags = [&flags[..], &["--engine", engine, "--memcached-port", "0"]].concat();
        let server = TestServer::start(&flags);
        let mut wire = server.connect_memcached();
        wire.send("ms saved 1 E7000 c\r\na\r\nms changed 1 E7001 c\r\nb\r\n");
        wire.expect("HD c7000\r\nHD c7001\r\n");
        server.connect().ask(&["SAVE"], "+OK\r\n");
        wire.send("ms logged 1 E7002 c\r\nc\r\nappend changed 0 0 1\r\nc\r\n");
        wire.expect("HD c7002\r\nSTORED\r\n");
        server.signal("KILL");
        assert!(!server.wait().success());
        let server = TestServer::start(&flags);
        let mut wire = server.connect_memcached();
        wire.send("mg saved c v\r\nmg logged c v\r\n");
        wire.expect("VA 1 c7000\r\na\r\nVA 1 c7002\r\nc\r\n");
        wire.send("cas changed 0 0 1 7001\r\nx\r\ncas saved 0 0 1 7000\r\nx\r\n");
        wire.expect("EXISTS\r\nSTORED\r\n");
        wire.send("cas saved 0 0 1 7000\r\nx\r\n");
        wire.expect("EXISTS\r\n");
    }
}

#[test]
fn files_are_checked_written_out_and_read_in() {
    let folder = Folder::new();
    let (data, other) = (text(&folder, "data"), text(&folder, "other"));
    let flags = [
        "--durability",
        "sync",
        "--log-segment-size",
        "1mb",
        "--data-dir",
    ];
    let server = TestServer::start(&[&flags[..], &[&data]].concat());
    let mut wire = server.connect();
    wire.ask(&["MSET", "a", "1", "b", "2"], "+OK\r\n");
    wire.ask(&["SELECT", "3"], "+OK\r\n");
    wire.ask(&["SET", "c", "3", "PXAT", "4102444800000"], "+OK\r\n");
    wire.send("SHUTDOWN SAVE\r\n");
    wire.expect_closed();
    assert!(server.wait().success());
    let (status, said) = run_to_end(&["check", "--data-dir", &data]);
    assert!(status.success() && said.ends_with("sound\n"), "{said}");
    let dump = Command::new(BINARY)
        .args(["dump", "--data-dir", &data])
        .stderr(Stdio::null())
        .output()
        .expect("it runs");
    assert!(dump.status.success());
    let mut load = Command::new(BINARY)
        .args(["load", "--data-dir", &other])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut stream = load.stdin.take().expect("a pipe");
    stream.write_all(&dump.stdout).expect("it reads");
    drop(stream);
    assert!(load.wait().expect("a status").success());
    let server = TestServer::start(&[&flags[..], &[&other]].concat());
    let mut wire = server.connect();
    wire.ask(&["MGET", "a", "b"], "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    wire.ask(&["SELECT", "3"], "+OK\r\n");
    wire.ask(&["PEXPIRETIME", "c"], ":4102444800000\r\n");
}

/// A mistyped path begins no database, and an empty directory is none.
#[test]
fn looking_where_no_database_is_fails() {
    let folder = Folder::new();
    let (missing, empty) = (text(&folder, "missing"), text(&folder, "empty"));
    std::fs::create_dir(&empty).expect("a directory");
    for command in ["check", "dump"] {
        for data in [&missing, &empty] {
            let (status, said) = run_to_end(&[command, "--data-dir", data]);
            assert_eq!(status.code(), Some(1), "{command}: {said}");
            assert!(said.contains("no database here"), "{command}: {said}");
        }
    }
    assert!(!folder.path("missing").exists());
    // But for the lock of who looked.
    let left = std::fs::read_dir(&empty).expect("a directory").count();
    assert!(left <= 1, "{left}");
}

/// Whoever sees a connection closed by SHUTDOWN may start the next server at once.
#[test]
fn a_server_that_shuts_down_lets_go_of_its_directory_first() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    for _ in 0..3 {
        let server = TestServer::start(&["--durability", "interval", "--data-dir", &data]);
        let mut wire = server.connect();
        wire.ask(&["SET", "k", "v"], "+OK\r\n");
        wire.send("SHUTDOWN NOSAVE\r\n");
        wire.expect_closed();
        let lock = File::open(&folder.path("data/pando.lock"), Access::Write);
        assert!(lock.expect("a file").try_lock().expect("it can be locked"));
        assert!(server.wait().success());
    }
}

/// Data that a server without a log does not show are not lost, and it says so.
#[test]
fn a_server_that_keeps_nothing_says_that_it_leaves_data_alone() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    let said_of = |why: &[&str], expected: bool| {
        let mut command = Command::new(BINARY);
        command
            .args(["--port", "0", "--bind", "127.0.0.1"])
            .args(why);
        command.args(["--data-dir", &data]).stderr(Stdio::piped());
        let mut server = TestServer::spawn(&mut command);
        let mut stderr = server.take_stderr();
        server.connect().ask(&["DBSIZE"], ":0\r\n");
        server.signal("TERM");
        assert!(server.wait().success());
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("text");
        assert_eq!(
            said.contains("neither loaded nor changed"),
            expected,
            "{said}"
        );
        assert_eq!(said.contains(&data), expected, "{said}");
        said
    };
    let (none, pool) = (["--durability", "none"], ["--engine", "cdds"]);
    said_of(&none, false);
    said_of(&pool, false);
    let server = TestServer::start(&["--durability", "sync", "--data-dir", &data]);
    server.connect().ask(&["SET", "k", "v"], "+OK\r\n");
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(said_of(&none, true).contains("durability is none"));
    assert!(said_of(&pool, true).contains("engine cdds keeps its data in a pool"));
    let server = TestServer::start(&["--durability", "sync", "--data-dir", &data]);
    server.connect().ask(&["GET", "k"], "$1\r\nv\r\n");
}

/// What is no dump is told from one that was cut, and nobody sees a dump's bytes.
#[test]
fn a_stream_is_a_dump_and_goes_to_a_file() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    for input in ["", "text", "REDIS0011 and what follows", "PANDODMP"] {
        let path = folder.path("input");
        std::fs::write(&path, input).expect("a file");
        let mut load = Command::new(BINARY);
        load.args(["load", "--data-dir", &data]);
        let load = load.stdin(std::fs::File::open(&path).expect("a file"));
        let output = load.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = match input {
            "PANDODMP" => "damaged",
            "REDIS0011 and what follows" => "the dump file of Redis",
            _ => "not a dump",
        };
        assert!(said.contains(expected), "{input}: {said}");
    }
    let mut options = std::fs::OpenOptions::new();
    let terminal = options.read(true).write(true).open("/dev/ptmx");
    let dump = Command::new(BINARY)
        .args(["dump", "--data-dir", &data])
        .stdout(terminal.expect("a terminal"))
        .output()
        .expect("it runs");
    assert_eq!(dump.status.code(), Some(1));
    let said = String::from_utf8_lossy(&dump.stderr);
    assert!(said.contains("not for a terminal"), "{said}");
}

/// A full disk is when a dump is wanted most.
#[test]
fn a_dump_needs_no_room_in_the_log() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    let kept = ["--durability", "sync", "--data-dir", &data];
    let flags = [&kept[..], &["--log-segment-size", "1mb"]].concat();
    let server = TestServer::start(&flags);
    server.connect().ask(&["SET", "k", "v"], "+OK\r\n");
    server.signal("TERM");
    assert!(server.wait().success());
    // A file takes no more than the header of a segment.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" dump \"$@\"";
    let dump = Command::new("sh")
        .args(["-c", script, BINARY])
        .args(flags)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&dump.stderr);
    assert!(dump.status.success(), "{said}");
    assert!(said.contains("1 keys written"), "{said}");
    assert!(dump.stdout.starts_with(b"PANDODMP"));
}

/// Each file by itself: a clear error that names it, or a start from what else there is.
#[test]
fn files_that_are_damaged_or_foreign_are_named() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    let flags = [
        "--durability",
        "sync",
        "--log-segment-size",
        "1mb",
        "--data-dir",
        &data,
    ];
    let server = TestServer::start(&flags);
    let mut wire = server.connect();
    for key in 0..100 {
        wire.ask(&["SET", &format!("k{key}"), "value"], "+OK\r\n");
    }
    drop(server);
    let log = std::fs::read_dir(&data)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            name.starts_with("log-") && std::fs::metadata(path).expect("a file").len() > 0
        })
        .expect("a log");
    let whole = std::fs::read(&log).expect("bytes");
    // A bit of the first frame, behind its header, and of the segment's header. The commands of
    // `check` end by themselves, whatever they find.
    for offset in [4096 + 40, 20] {
        let mut damaged = whole.clone();
        damaged[offset] ^= 1;
        std::fs::write(&log, &damaged).expect("a file");
        let (status, said) = run_to_end(&["check", "--data-dir", &data]);
        assert!(!status.success(), "offset {offset}: {said}");
        assert!(said.contains(&log.display().to_string()), "{said}");
    }
    std::fs::write(&log, &whole).expect("a file");
    let server = TestServer::start(&flags);
    server.connect().ask(&["DBSIZE"], ":100\r\n");
}

/// LASTSAVE and INFO tell when the last checkpoint was complete and what has changed since, in the
/// next start too.
#[test]
fn lastsave_and_info_tell_of_the_last_checkpoint() {
    let folder = Folder::new();
    let data = text(&folder, "data");
    let flags = ["--durability", "sync", "--data-dir", &data];
    let line = |info: &str, name: &str| {
        let found = info.lines().find_map(|line| line.strip_prefix(name));
        let value = found.and_then(|rest| rest.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("{name}: {info}")).to_owned()
    };
    let last_save = |wire: &mut Wire| {
        wire.send("LASTSAVE\r\n");
        wire.line()
    };
    let server = TestServer::start(&flags);
    let mut wire = server.connect();
    let started = last_save(&mut wire);
    wire.ask(&["MSET", "a", "1", "b", "2"], "+OK\r\n");
    let info = wire.ask_any(&["INFO", "persistence"]);
    assert_eq!(line(&info, "rdb_changes_since_last_save"), "2");
    assert_eq!(format!(":{}", line(&info, "rdb_last_save_time")), started);
    assert_eq!(line(&info, "rdb_saves"), "0");
    assert_eq!(line(&info, "aof_enabled"), "1");
    wire.ask(&["SAVE"], "+OK\r\n");
    wire.ask(&["SET", "c", "3"], "+OK\r\n");
    let saved = last_save(&mut wire);
    let seconds = |reply: &str| reply[1..].parse::<u64>().expect("a number");
    assert!(seconds(&saved) >= seconds(&started));
    let info = wire.ask_any(&["INFO", "persistence"]);
    assert_eq!(line(&info, "rdb_changes_since_last_save"), "1");
    assert_eq!(format!(":{}", line(&info, "rdb_last_save_time")), saved);
    assert_eq!(line(&info, "rdb_last_bgsave_status"), "ok");
    assert_eq!(line(&info, "rdb_saves"), "1");
    assert_eq!(line(&info, "checkpoint_last_keys"), "2");
    server.signal("TERM");
    assert!(server.wait().success());
    let server = TestServer::start(&flags);
    let mut wire = server.connect();
    assert_eq!(last_save(&mut wire), saved);
    let info = wire.ask_any(&["INFO", "persistence"]);
    assert_eq!(line(&info, "rdb_last_load_keys_loaded"), "2");
    assert_eq!(line(&info, "load_records_replayed"), "1");
}

/// SAVE holds back its own connection only: another one of the same worker is served, and sees the
/// checkpoint being taken, before SAVE has answered.
#[test]
fn save_holds_back_its_own_connection_only() {
    const KEYS: usize = 20_000;
    let folder = Folder::new();
    let data = text(&folder, "data");
    let flags = ["--threads", "1", "--durability", "interval"];
    let server = TestServer::start(&[&flags[..], &["--data-dir", &data]].concat());
    let (mut saver, mut other) = (server.connect(), server.connect());
    // A checkpoint rests while others are served; so it lasts long enough to be seen.
    other.ask(&["CONFIG", "SET", "checkpoint-share", "1"], "+OK\r\n");
    for first in (0..KEYS).step_by(1_000) {
        let mut line = "MSET".to_owned();
        for key in first..first + 1_000 {
            write!(line, " key:{key} v").expect("a string takes all");
        }
        other.ask(&line.split(' ').collect::<Vec<_>>(), "+OK\r\n");
    }
    let mut seen = false;
    // On a machine that is busy enough one may be missed; a worker that waits misses all.
    for _ in 0..20 {
        saver.send("SAVE\r\nPING\r\n");
        while !saver.has_input() {
            other.ask(&["SET", "k", "v"], "+OK\r\n");
            let info = other.ask_any(&["INFO", "persistence"]);
            seen |= info.contains("rdb_bgsave_in_progress:1");
        }
        saver.expect("+OK\r\n+PONG\r\n");
        if seen {
            break;
        }
    }
    assert!(seen, "nobody was served during a SAVE");
}
