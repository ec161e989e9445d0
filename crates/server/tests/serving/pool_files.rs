//! Files of pools that are not as the server left them, and what it says of those that are.

use std::io::Read;
use std::process::{Command, Stdio};

use redis::{Commands, Connection, RedisResult};

use crate::harness::{BINARY, Folder, PATIENCE, Pool, TestServer, run_to_end};

const SIZE: [&str; 2] = ["--pmem-size", "8mb"];

fn info(connection: &mut Connection, name: &str) -> String {
    let info: String = redis::cmd("INFO").query(connection).expect("a report");
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.expect(name).to_owned()
}

/// What a start with these flags says, which must fail.
fn refusal(flags: &[&str]) -> String {
    let usual = ["--engine", "cdds", "--port", "0"];
    let (status, said) = run_to_end(&[&usual, &SIZE[..], flags].concat());
    assert!(!status.success(), "{flags:?}: {said}");
    said
}

fn value_of(key: usize) -> String {
    format!("value {key} of a pool that will be damaged")
}

/// The bytes of a pool with so many keys, as a killed server left it.
fn killed(pool: &Pool, keys: usize) -> Vec<u8> {
    let server = pool.serve(&SIZE);
    let mut connection = server.connection();
    for key in 0..keys {
        let () = connection.set(key, value_of(key)).expect("there is room");
    }
    server.signal("KILL");
    server.wait();
    std::fs::read(pool.path()).expect("a file")
}

fn positions(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(wanted.len()).enumerate();
    windows
        .filter_map(|(at, window)| (window == wanted).then_some(at))
        .collect()
}

#[test]
fn a_newer_pool_is_refused_and_stays_as_it_is() {
    let pool = Pool::new("newer");
    let mut bytes = killed(&pool, 1);
    // The format, in both generations of the header: nothing else of a newer one is understood.
    for slot in [0, 4096] {
        bytes[slot + 8..slot + 12].copy_from_slice(&99_u32.to_le_bytes());
    }
    std::fs::write(pool.path(), &bytes).expect("room");
    let file = pool.path().to_str().expect("text");
    let said = refusal(&["--pmem", file]);
    assert!(
        said.contains("format 99") && said.contains("up to 3") && said.contains(file),
        "{said}"
    );
    assert!(std::fs::read(pool.path()).expect("a file") == bytes);
}

/// A start, and then a GET of every key: what the server said before it ended, if it did. Nothing
/// wrong is served.
fn read_all(pool: &Pool, keys: usize) -> Option<String> {
    let file = pool.path().to_str().expect("text");
    let mut command = Command::new(BINARY);
    let usual = ["--engine", "cdds", "--pmem", file, "--port", "0"];
    command.args(usual).args(SIZE).args(["--threads", "1"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("listening") {
        line.clear();
        if std::io::BufRead::read_line(&mut out, &mut line).expect("text") == 0 {
            break;
        }
    }
    let address = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("tcp="));
    let mut ended = true;
    if let Some(address) = address {
        let client = redis::Client::open(format!("redis://{address}/")).expect("an address");
        let mut connection = client.get_connection().expect("a connection");
        connection
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        ended = (0..keys).any(|key| {
            let found: RedisResult<Option<String>> = connection.get(key);
            // Where just the fingerprint is damaged, a look-up finds nothing.
            let sound = found
                .as_ref()
                .is_ok_and(|found| found.as_ref().is_none_or(|found| *found == value_of(key)));
            assert!(sound || found.is_err(), "key {key}: {found:?}");
            found.is_err()
        });
        if !ended {
            // All of every node.
            let count: RedisResult<Vec<String>> =
                redis::cmd("KEYS").arg("*").query(&mut connection);
            ended = count.is_err();
            assert!(ended || count.is_ok_and(|names| names.len() == keys));
        }
    }
    let mut said = String::new();
    if ended {
        let mut err = child.stderr.take().expect("a pipe");
        err.read_to_string(&mut said).expect("text");
        assert!(!child.wait().expect("a status").success(), "{said}");
        return Some(said);
    }
    child.kill().expect("a process");
    child.wait().expect("a status");
    None
}

/// Whatever is damaged is named with its place, and nothing of it is served.
#[test]
fn flipped_bits_are_named_and_not_served() {
    const KEYS: usize = 60;
    let pool = Pool::new("flipped");
    let good = killed(&pool, KEYS);
    let try_with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(pool.path(), &bytes).expect("room");
        read_all(&pool, KEYS)
    };
    assert_eq!(try_with(&|_| {}), None, "it is sound");

    // The header, in both generations; then the committed epoch.
    for (places, named) in [
        (&[24, 4096 + 24][..], "header"),
        (&[8192], "committed epoch"),
    ] {
        let said = try_with(&|bytes| places.iter().for_each(|at| bytes[*at] ^= 2));
        let said = said.expect(named);
        let is_named = said.contains("damaged at 0x") && said.contains(named);
        assert!(is_named, "{said}");
    }
    // A value: its record begins with twelve bytes, then the key.
    let value = value_of(17);
    let at = positions(&good, value.as_bytes())[0];
    let said = try_with(&|bytes| bytes[at + 10] ^= 4).expect("a value is damaged");
    let place = said.split("the record at 0x").nth(1).expect("a place");
    let digits: String = place.chars().take_while(char::is_ascii_hexdigit).collect();
    let place = usize::from_str_radix(&digits, 16).expect("a number");
    assert!((at - 64..at).contains(&place), "{at:#x}: {said}");

    // Words of nodes: whatever is neither of the pool's head nor of a record's line.
    let is_record = |line: &[u8]| line.windows(7).any(|window| window == b"value ");
    let lines = (12288..good.len()).step_by(64);
    let lines =
        lines.filter(|at| good[*at..*at + 64].iter().filter(|byte| **byte > 0).count() > 24);
    let nodes: Vec<_> = lines
        .filter(|at| !is_record(&good[at - 64..*at + 64]))
        .collect();
    let mut named = 0;
    for index in 0..16 {
        let at = nodes[index * nodes.len() / 16] + index * 7 % 64;
        if let Some(said) = try_with(&|bytes| bytes[at] ^= 1 << (index % 8)) {
            let is_named = said.contains(" at 0x") && said.contains("damaged");
            assert!(is_named, "{at:#x}: {said}");
            named += 1;
        }
    }
    assert!(named > 0, "of {} lines of nodes", nodes.len());
}

/// A pool belongs to one process, whatever its path. A copy is another pool.
#[test]
fn a_copy_is_served_beside_its_original_and_another_name_is_not() {
    let (pool, copy, name) = (Pool::new("original"), Pool::new("copy"), Pool::new("name"));
    killed(&pool, 3);
    std::fs::copy(pool.path(), copy.path()).expect("room");
    std::fs::hard_link(pool.path(), name.path()).expect("a name");
    let servers = [pool.serve(&SIZE), copy.serve(&SIZE)];
    let said = refusal(&["--pmem", name.path().to_str().expect("text")]);
    assert!(said.contains("the pool is open already"), "{said}");
    for (number, server) in servers.iter().enumerate() {
        let mut connection = server.connection();
        assert_eq!(connection.get(2), Ok(value_of(2)));
        let () = connection.set("own", number).expect("there is room");
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.connection().get("own"), Ok(number));
    }
}

/// What the banner and INFO say a crash and a loss of power take.
fn promise(server: &TestServer, words: &[&str]) {
    let note = info(&mut server.connection(), "pool_note:");
    for word in words {
        assert!(note.contains(word), "{word}: {note}");
    }
    assert!(server.banner.contains(&note), "{}", server.banner);
    let protection = info(&mut server.connection(), "pool_protection:");
    let told = format!("protection from stray writes: {protection}");
    assert!(server.banner.contains(&told), "{}", server.banner);
}

/// Persistent memory itself is told by the unit tests; here it is refused where there is none.
#[test]
fn each_medium_says_what_it_promises() {
    let pool = Pool::new("promise");
    promise(
        &pool.serve(&SIZE),
        &[
            "shared memory",
            "survives a crash of the process",
            "loss of power",
            "everything",
        ],
    );
    let folder = Folder::new();
    let file = folder.path("pool");
    let file = ["--pmem", file.to_str().expect("text")];
    let flags = [
        &["--engine", "cdds", "--durability", "sync"][..],
        &SIZE,
        &file,
    ]
    .concat();
    promise(
        &TestServer::start(&flags),
        &[
            "a file",
            "survives a crash of the process and a loss of power",
        ],
    );
    for medium in ["dax", "eadr"] {
        let said = refusal(&[&file[..], &["--pmem-medium", medium]].concat());
        // The pool is one of a disk now.
        assert!(said.contains("pool"), "{said}");
        let said = refusal(&["--pmem", "/dev/shm/pando-none", "--pmem-medium", medium]);
        assert!(said.contains("no direct access"), "{said}");
    }
}

/// Stray writes end the process (`pando-pmem`); here everything else goes on as without.
#[test]
fn a_protected_pool_is_served_and_survives_a_kill() {
    let pool = Pool::new("protected");
    let flags = [&SIZE[..], &["--pmem-protection", "pages"]].concat();
    for round in 0..2 {
        let server = pool.serve(&flags);
        promise(&server, &["shared memory"]);
        let mut connection = server.connection();
        assert_eq!(info(&mut connection, "pool_protection:"), "pages");
        let there: usize = redis::cmd("DBSIZE")
            .query(&mut connection)
            .expect("a number");
        assert_eq!(there, 200 * round);
        for key in 0..300 {
            let () = connection.set(key, value_of(key)).expect("there is room");
        }
        let () = connection
            .del((200..300).collect::<Vec<_>>())
            .expect("a number");
        assert_eq!(connection.get(7), Ok(value_of(7)));
        server.signal("KILL");
        server.wait();
    }
    let file = pool.path().to_str().expect("text");
    let keys = ["--pmem-protection", "keys"];
    let has_keys =
        std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|told| told.contains(" ospke"));
    if has_keys {
        let server = pool.serve(&[&SIZE[..], &keys].concat());
        assert_eq!(info(&mut server.connection(), "pool_protection:"), "keys");
    } else {
        let said = refusal(&[&["--pmem", file][..], &keys].concat());
        assert!(said.contains("no protection key"), "{said}");
        assert_eq!(
            info(&mut pool.serve(&SIZE).connection(), "pool_protection:"),
            "off"
        );
    }
    let said = refusal(&["--pmem", file, "--pmem-medium", "disk", keys[0], "pages"]);
    assert!(said.contains("persistent or shared memory"), "{said}");
    let said = refusal(&["--pmem", file, keys[0], "walls"]);
    assert!(said.contains("auto, off, pages, keys"), "{said}");
}
