//! Pinned to what `redis-server` 7.0.15 answers, unless a test says otherwise.

mod scanning;
mod sorting;

use pando_engine::{Attributes, BodyRef, Decision, HashDraft, NewValue};

use crate::commands::testing::{START_MS, Shell};
use crate::encoding;
use crate::limits;
use crate::{Client, EvictionPolicy};

/// A connection to a database that holds the strings `a` and `b`, both `1`.
fn shell() -> Shell {
    let mut shell = Shell::new();
    shell.store(b"a", b"1");
    shell.store(b"b", b"1");
    shell
}

/// Stores a hash below the commands.
fn store_hash(shell: &mut Shell, key: &[u8], fields: &[(&[u8], &[u8])], attributes: Attributes) {
    let written = shell.turn().keyspace(0).update(key, |_| {
        let mut draft = HashDraft::new(None);
        for (field, value) in fields {
            draft.set(field, value);
        }
        Decision::Write(NewValue::new(draft.finish()).with(attributes))
    });
    assert!(matches!(written, Ok(Some(_))));
}

#[test]
fn keys_are_removed_and_counted() {
    for command in ["DEL", "UNLINK"] {
        shell().check(&[
            (&format!("{command} a a nope b"), ":2"),
            (&format!("{command} a"), ":0"),
            ("EXISTS a b", ":0"),
        ]);
    }
}

#[test]
fn present_keys_are_counted_as_often_as_they_are_named() {
    shell().check(&[
        ("EXISTS a a b nope", ":3"),
        ("TOUCH a a b nope", ":3"),
        ("EXISTS nope", ":0"),
        ("TYPE a", "+string"),
        ("TYPE nope", "+none"),
    ]);
}

#[test]
fn more_keys_than_are_warmed_at_once_are_all_seen() {
    let mut shell = Shell::new();
    let mut request = vec!["EXISTS".to_owned()];
    for index in 0..limits::WARM_KEYS_MAX * 2 + 3 {
        shell.store(index.to_string().as_bytes(), b"1");
        request.push(index.to_string());
    }
    let all = format!(":{}\r\n", request.len() - 1);
    // A key that no engine stores is in the way.
    request.insert(3, "x".repeat(pando_engine::limits::KEY_BYTES_MAX + 1));
    assert_eq!(shell.run(&request), all.as_bytes());
    "DEL".clone_into(&mut request[0]);
    assert_eq!(shell.run(&request), all.as_bytes());
    shell.check(&[("DBSIZE", ":0")]);
}

#[test]
fn deadlines_are_told_in_both_units_and_rounded_to_seconds() {
    let mut shell = shell();
    shell.check(&[
        ("TTL a", ":-1"),
        ("PTTL a", ":-1"),
        ("EXPIRETIME a", ":-1"),
        ("PEXPIRETIME a", ":-1"),
        ("TTL nope", ":-2"),
        ("PTTL nope", ":-2"),
        ("EXPIRETIME nope", ":-2"),
        ("PEXPIRETIME nope", ":-2"),
        ("EXPIRE a 100", ":1"),
        ("TTL a", ":100"),
        ("EXPIRETIME a", ":1700000100"),
        ("PEXPIRE a 1499", ":1"),
        ("TTL a", ":1"),
        ("PEXPIRE a 1500", ":1"),
        ("TTL a", ":2"),
        ("PTTL a", ":1500"),
        ("EXPIREAT a 1700000050", ":1"),
        ("PTTL a", ":50000"),
        ("PEXPIREAT a 1700000050499", ":1"),
        ("EXPIRETIME a", ":1700000050"),
        ("PEXPIRETIME a", ":1700000050499"),
        ("EXPIRE nope 10", ":0"),
        ("PEXPIREAT a 9223372036854775807", ":1"),
        ("PTTL a", ":9223370336854775807"),
        ("TTL a", ":9223370336854776"),
        ("PEXPIRETIME a", ":9223372036854775807"),
        ("EXPIRETIME a", ":9223372036854776"),
    ]);
}

#[test]
fn a_key_is_gone_when_its_deadline_has_come() {
    let mut shell = shell();
    shell.check(&[("PEXPIRE a 1000", ":1")]);
    shell.pass_ms(999);
    shell.check(&[("PTTL a", ":1"), ("TTL a", ":0"), ("EXISTS a", ":1")]);
    shell.pass_ms(1);
    shell.check(&[
        ("EXISTS a", ":0"),
        ("TYPE a", "+none"),
        ("PTTL a", ":-2"),
        ("PERSIST a", ":0"),
        ("EXPIRE a 100", ":0"),
        ("RENAME a c", "-ERR no such key"),
        ("COPY a c", ":0"),
        ("DUMP a", "$-1"),
        ("DEL a", ":0"),
    ]);
}

#[test]
fn a_deadline_in_the_past_removes_the_key() {
    for line in [
        "EXPIRE a 0",
        "EXPIRE a -1",
        "PEXPIRE a -9223372036854775808",
        "EXPIREAT a 1700000000",
        "PEXPIREAT a 1700000000000",
        "PEXPIREAT a 0",
        "EXPIREAT a -1",
        "EXPIRE a -1 NX",
        "EXPIRE a -1 LT",
    ] {
        shell().check(&[(line, ":1"), ("EXISTS a", ":0"), (line, ":0")]);
    }
    shell().check(&[
        ("EXPIRE a -1 XX", ":0"),
        ("EXPIRE a -1 GT", ":0"),
        ("EXISTS a", ":1"),
    ]);
}

#[test]
fn conditions_compare_with_the_present_deadline() {
    shell().check(&[
        ("EXPIRE a 100 XX", ":0"),
        ("EXPIRE a 100 GT", ":0"),
        ("EXPIRE a 100 LT", ":1"),
        ("EXPIRE a 100 NX", ":0"),
        ("EXPIRE a 100 GT", ":0"),
        ("EXPIRE a 100 LT", ":0"),
        ("EXPIRE a 101 gt", ":1"),
        ("EXPIRE a 100 XX GT", ":0"),
        ("EXPIRE a 102 GT GT xx", ":1"),
        ("EXPIRE a 50 XX LT", ":1"),
        ("TTL a", ":50"),
        ("PERSIST a", ":1"),
        ("PERSIST a", ":0"),
        ("TTL a", ":-1"),
        ("EXPIRE a 100 NX", ":1"),
        ("PERSIST nope", ":0"),
    ]);
}

#[test]
fn times_are_checked_before_the_key_is_looked_at() {
    let range = |command| format!("-ERR invalid expire time in '{command}' command");
    shell().check(&[
        ("EXPIRE a x", "-ERR value is not an integer or out of range"),
        ("EXPIRE a x FOO", "-ERR Unsupported option FOO"),
        ("EXPIRE a x GT LT FOO", "-ERR Unsupported option FOO"),
        (
            "EXPIRE nope 1 NX XX",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "PEXPIREAT nope 1 LT NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "EXPIRE a 1 GT LT",
            "-ERR GT and LT options at the same time are not compatible",
        ),
        ("EXPIRE a 9223372036854775807", &range("expire")),
        ("EXPIRE a -9223372036854775807", &range("expire")),
        ("EXPIRE a 9223372036854775", &range("expire")),
        ("PEXPIRE a 9223372036854775807", &range("pexpire")),
        ("EXPIREAT nope 9223372036854776", &range("expireat")),
        (
            "PEXPIREAT a 9223372036854775808",
            "-ERR value is not an integer or out of range",
        ),
        ("PTTL a", ":-1"),
    ]);
}

#[test]
fn renaming_takes_value_and_deadline_along() {
    shell().check(&[
        ("RENAME nope c", "-ERR no such key"),
        ("RENAME nope nope", "-ERR no such key"),
        ("RENAME a a", "+OK"),
        ("EXPIRE a 100", ":1"),
        ("EXPIRE b 7", ":1"),
        ("RENAME a b", "+OK"),
        ("EXISTS a", ":0"),
        ("TTL b", ":100"),
        ("RENAME b c", "+OK"),
        ("TTL c", ":100"),
        ("RENAMENX nope d", "-ERR no such key"),
        ("RENAMENX c c", ":0"),
        ("RENAMENX c d", ":1"),
        ("TTL d", ":100"),
        ("DBSIZE", ":1"),
    ]);
    shell().check(&[("RENAMENX a b", ":0"), ("EXISTS a b", ":2")]);
}

#[test]
fn renaming_to_an_expired_key_finds_it_free() {
    let mut shell = shell();
    shell.check(&[("PEXPIRE b 1", ":1")]);
    shell.pass_ms(1);
    shell.check(&[("RENAMENX a b", ":1"), ("TTL b", ":-1"), ("DBSIZE", ":1")]);
}

#[test]
fn moving_to_another_database() {
    let between = "-ERR value is out of range, value must between -2147483648 and 2147483647";
    shell().check(&[
        (
            "MOVE a 0",
            "-ERR source and destination objects are the same",
        ),
        (
            "MOVE nope 0",
            "-ERR source and destination objects are the same",
        ),
        ("MOVE a 16", "-ERR DB index is out of range"),
        ("MOVE a -1", "-ERR DB index is out of range"),
        ("MOVE a x", "-ERR value is not an integer or out of range"),
        ("MOVE a 99999999999", between),
        ("MOVE nope 1", ":0"),
        ("EXPIRE a 100", ":1"),
        ("MOVE a 1", ":1"),
        ("EXISTS a", ":0"),
        ("SELECT 1", "+OK"),
        ("TTL a", ":100"),
        ("COPY a a DB 0", ":1"),
        ("MOVE a 0", ":0"),
        ("EXISTS a", ":1"),
    ]);
}

#[test]
fn copying_within_and_between_databases() {
    let between = "-ERR value is out of range, value must between -2147483648 and 2147483647";
    let mut shell = shell();
    shell.store(b"c", b"other");
    shell.check(&[
        (
            "COPY a a",
            "-ERR source and destination objects are the same",
        ),
        (
            "COPY nope nope",
            "-ERR source and destination objects are the same",
        ),
        (
            "COPY a a DB 0 REPLACE",
            "-ERR source and destination objects are the same",
        ),
        (
            "COPY a z DB x",
            "-ERR value is not an integer or out of range",
        ),
        ("COPY a z DB 99999999999", between),
        ("COPY a z DB 16", "-ERR DB index is out of range"),
        ("COPY a z DB", "-ERR syntax error"),
        ("COPY a z FOO", "-ERR syntax error"),
        ("COPY nope z", ":0"),
        ("EXPIRE a 100", ":1"),
        ("COPY a b", ":0"),
        ("TTL b", ":-1"),
        ("COPY a b replace", ":1"),
        ("TTL b", ":100"),
        ("COPY a a DB 3 REPLACE DB 1", ":1"),
        ("COPY nope b REPLACE", ":0"),
        ("EXISTS a b", ":2"),
        ("SELECT 1", "+OK"),
        ("TTL a", ":100"),
    ]);
}

/// Fields enough for a wide row.
fn many_fields() -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..600)
        .map(|index| (format!("f{index}").into_bytes(), vec![b'v'; 20]))
        .collect()
}

#[test]
fn large_values_survive_renaming_copying_and_expiring() {
    let mut shell = Shell::new();
    let string: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    shell.store(b"s", &string);
    let fields = many_fields();
    let fields: Vec<_> = fields
        .iter()
        .map(|(field, value)| (&field[..], &value[..]))
        .collect();
    let attributes = Attributes {
        encoding: encoding::HASHTABLE,
        ..Attributes::default()
    };
    store_hash(&mut shell, b"h", &fields, attributes);
    shell.check(&[
        ("COPY s s2", ":1"),
        ("RENAME s s3", "+OK"),
        ("EXPIRE s3 100", ":1"),
        ("MOVE s3 2", ":1"),
        ("COPY h h2", ":1"),
        ("RENAME h h3", "+OK"),
        ("EXPIRE h3 100", ":1"),
        ("PERSIST h3", ":1"),
        ("MOVE h3 2", ":1"),
        ("OBJECT ENCODING h2", "$9 hashtable"),
        ("EXISTS s h s3 h3", ":0"),
    ]);
    let mut turn = shell.turn();
    for (database, key) in [(0, b"s2"), (2, b"s3")] {
        let same = turn
            .keyspace(database)
            .read_string(key, |found| found.is_some_and(|found| found == &string[..]));
        assert!(same.expect("a string"), "{database}");
    }
    for (database, key) in [(0, b"h2"), (2, b"h3")] {
        turn.keyspace(database).read(key, |found| {
            let found = found.expect("a value");
            assert_eq!(found.attributes.encoding, encoding::HASHTABLE);
            let BodyRef::Row(_, hash) = found.body else {
                panic!("a hash")
            };
            let value = |field: &[u8]| hash.get(field).map(|value| value.to_cow().into_owned());
            assert_eq!(hash.len(), fields.len());
            assert!(
                fields
                    .iter()
                    .all(|(field, bytes)| value(field).as_deref() == Some(bytes))
            );
        });
    }
}

#[test]
fn random_key_is_some_live_key() {
    let mut shell = shell();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        seen.insert(shell.line("RANDOMKEY"));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["$1 a", "$1 b"]);
    shell.check(&[("PEXPIRE a 1", ":1"), ("PEXPIRE b 1", ":1")]);
    shell.pass_ms(1);
    shell.check(&[("RANDOMKEY", "$-1")]);
    shell.store(b"c", b"1");
    for _ in 0..50 {
        assert_eq!(shell.line("RANDOMKEY"), "$1 c");
    }
    assert_eq!(Shell::new().line("RANDOMKEY"), "$-1");
}

#[test]
fn object_tells_what_redis_would() {
    let mut shell = shell();
    for (key, string) in [
        ("i", "9999"),
        ("j", "10000"),
        ("k", "-1"),
        ("l", "007"),
        ("m", "text"),
    ] {
        shell.store(key.as_bytes(), string.as_bytes());
    }
    shell.store(b"n", &[b'x'; 45]);
    store_hash(&mut shell, b"h", &[(b"f", b"1")], Attributes::default());
    let no_policy = "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                     Please note that when switching between policies at runtime LRU and LFU data \
                     will take some time to adjust.";
    shell.check(&[
        ("OBJECT ENCODING a", "$3 int"),
        ("OBJECT ENCODING l", "$6 embstr"),
        ("OBJECT ENCODING n", "$3 raw"),
        ("OBJECT encoding h", "$8 listpack"),
        ("OBJECT ENCODING nope", "$-1"),
        ("OBJECT REFCOUNT a", ":2147483647"),
        ("OBJECT REFCOUNT i", ":2147483647"),
        ("OBJECT REFCOUNT j", ":1"),
        ("OBJECT REFCOUNT k", ":1"),
        ("OBJECT REFCOUNT m", ":1"),
        ("OBJECT REFCOUNT h", ":1"),
        ("OBJECT REFCOUNT nope", "$-1"),
        ("OBJECT IDLETIME nope", "$-1"),
        ("OBJECT FREQ a", no_policy),
        ("OBJECT FREQ nope", "$-1"),
        (
            "OBJECT FOO a",
            "-ERR unknown subcommand 'FOO'. Try OBJECT HELP.",
        ),
        (
            "OBJECT ENCODING",
            "-ERR wrong number of arguments for 'object|encoding' command",
        ),
    ]);
    assert!(shell.line("OBJECT HELP").starts_with("*11 +OBJECT"));
}

/// Lets time pass, with rounds of maintenance.
fn pass_seconds(shell: &Shell, seconds: u64) {
    let mut session = shell.database.session().expect("a session is free");
    for _ in 0..seconds * 4 {
        session.maintain();
        shell.pass_ms(250);
    }
    session.maintain();
}

/// Reads are not noted without a policy that needs it.
#[test]
fn idle_time_is_counted_from_the_last_write_by_default() {
    let mut shell = shell();
    shell.database.close();
    shell.store(b"a", b"2");
    pass_seconds(&shell, 3);
    shell.check(&[
        ("GET a", "$1 2"),
        ("OBJECT IDLETIME a", ":3"),
        ("PERSIST a", ":0"),
        ("OBJECT IDLETIME a", ":3"),
        ("EXPIRE a 100", ":1"),
        ("OBJECT IDLETIME a", ":0"),
    ]);
}

/// From the last read to within half of the age that the key had then, and never more.
#[test]
fn idle_time_is_counted_from_the_last_use_under_lru_policies() {
    let mut shell = shell();
    shell.database.close();
    shell
        .database
        .set_eviction_policy(EvictionPolicy::AllKeysLru);
    shell.check(&[("SET a 2", "+OK"), ("SET b 2", "+OK")]);
    pass_seconds(&shell, 100);
    shell.check(&[
        ("OBJECT IDLETIME a", ":100"),
        ("GET a", "$1 2"),
        ("OBJECT IDLETIME a", ":0"),
        ("OBJECT IDLETIME b", ":100"),
    ]);
    pass_seconds(&shell, 60);
    let idle = |shell: &mut Shell, key: &str| -> u64 {
        let told = shell.line(&format!("OBJECT IDLETIME {key}"));
        told[1..].parse().expect("a number")
    };
    let told = idle(&mut shell, "a");
    assert!((10..=60).contains(&told), "{told}");
    assert_eq!(idle(&mut shell, "b"), 160);
    // A client that does not count does not touch; a write is a use.
    shell.client().no_touch = true;
    shell.check(&[("GET b", "$1 2"), ("OBJECT IDLETIME b", ":160")]);
    shell.client().no_touch = false;
    shell.check(&[("APPEND b x", ":2"), ("OBJECT IDLETIME b", ":0")]);
}

/// What memcached's `h` and `l` ask for: the state before the read that tells it.
#[test]
fn a_reader_is_told_of_uses_before_its_own() {
    let mut shell = shell();
    shell
        .database
        .set_eviction_policy(EvictionPolicy::AllKeysLru);
    shell.check(&[("SET a 2", "+OK")]);
    for is_read in [false, true] {
        let mut client = Client::new(2, true);
        let told = shell.turn().serve(&mut client, |turn, _| {
            let mut keyspace = turn.keyspace(0);
            let accesses = keyspace.accesses();
            keyspace.read(b"a", |value| accesses.of(&value.expect("the key is there")))
        });
        assert_eq!((told.is_read, told.idle_seconds), (is_read, 0));
    }
}

#[test]
fn memory_usage_grows_with_the_value() {
    let mut shell = shell();
    shell.store(b"c", &vec![0; 50_000]);
    let mut turn = shell.turn();
    let mut usage = |key: &[u8]| crate::memory_usage(&mut turn.keyspace(0), key);
    assert_eq!(usage(b"nope"), None);
    let (small, large) = (usage(b"a").expect("a key"), usage(b"c").expect("a key"));
    assert!(small < 100 && large >= 50_000, "{small} {large}");
}

#[test]
fn values_come_back_from_their_payload() {
    let mut shell = shell();
    let fields = many_fields();
    let fields: Vec<_> = fields
        .iter()
        .map(|(field, value)| (&field[..], &value[..]))
        .collect();
    store_hash(&mut shell, b"wide", &fields, Attributes::default());
    store_hash(
        &mut shell,
        b"small",
        &[(b"f", b"1"), (b"g", b"")],
        Attributes::default(),
    );
    shell.store(b"large", &vec![b'x'; 200_000]);
    for (key, encoding) in [("a", "int"), ("large", "raw"), ("small", "listpack")] {
        let payload = payload_of(&mut shell, key);
        assert_eq!(
            shell.run([b"RESTORE", &b"copy"[..], b"0", &payload, b"REPLACE"]),
            b"+OK\r\n"
        );
        assert_eq!(payload_of(&mut shell, "copy"), payload, "{key}");
        let encoding = format!("${} {encoding}", encoding.len());
        assert_eq!(shell.line("OBJECT ENCODING copy"), encoding);
    }
    // Too many fields for a listpack are read into a table.
    let payload = payload_of(&mut shell, "wide");
    assert_eq!(
        shell.run([b"RESTORE", &b"w"[..], b"0", &payload]),
        b"+OK\r\n"
    );
    shell.check(&[("OBJECT ENCODING w", "$9 hashtable"), ("TYPE w", "+hash")]);
}

/// What DUMP answers.
fn payload_of(shell: &mut Shell, key: &str) -> Vec<u8> {
    let reply = shell.run(["DUMP", key]);
    let start = reply
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a header")
        + 1;
    reply[start..reply.len() - 2].to_vec()
}

/// The payload of the string `5`.
const FIVE: &str = r#""\x00\xc0\x05\n\x00c/_f\x83/\xb3Q""#;

#[test]
fn restore_checks_options_key_time_and_payload_in_this_order() {
    let mut shell = shell();
    let not_an_integer = "-ERR value is not an integer or out of range";
    for (options, expected) in [
        ("FOO", "-ERR syntax error"),
        ("IDLETIME", "-ERR syntax error"),
        ("FREQ", "-ERR syntax error"),
        ("IDLETIME x", not_an_integer),
        ("IDLETIME -1", "-ERR Invalid IDLETIME value, must be >= 0"),
        ("FREQ x", not_an_integer),
        (
            "FREQ -1",
            "-ERR Invalid FREQ value, must be >= 0 and <= 255",
        ),
        (
            "FREQ 256",
            "-ERR Invalid FREQ value, must be >= 0 and <= 255",
        ),
        ("FREQ 1 IDLETIME 1", "-ERR syntax error"),
        ("IDLETIME 1 FREQ 1", "-ERR syntax error"),
        (
            "IDLETIME 1 IDLETIME 2 ABSTTL",
            "-BUSYKEY Target key name already exists.",
        ),
        ("", "-BUSYKEY Target key name already exists."),
        ("REPLACE", not_an_integer),
    ] {
        assert_eq!(
            shell.line(&format!("RESTORE a x xx {options}")),
            expected,
            "{options}"
        );
    }
    let footer = "-ERR DUMP payload version or checksum are wrong";
    shell.check(&[
        ("RESTORE c -1 xx", "-ERR Invalid TTL value, must be >= 0"),
        ("RESTORE c 0 xx", footer),
        (r#"RESTORE c 0 """#, footer),
        (
            r#"RESTORE c 0 "\x04\x00\t\x00C\xc3\xc7\x0cs\x14\xf6\x0e""#,
            "-ERR Bad data format",
        ),
        ("EXISTS c", ":0"),
    ]);
}

#[test]
fn restore_says_how_often_a_key_counts_as_used() {
    let mut shell = shell();
    shell
        .database
        .set_eviction_policy(EvictionPolicy::AllKeysLfu);
    for (options, expected) in [
        ("FREQ 30", ":30"),
        ("FREQ 100 REPLACE", ":63"),
        ("REPLACE FREQ 9", ":9"),
        ("FREQ 0 REPLACE", ":0"),
    ] {
        let restore = format!("RESTORE new 0 {FIVE} {options}");
        shell.check(&[(&restore, "+OK"), ("OBJECT FREQ new", expected)]);
    }
}

#[test]
fn restore_sets_the_deadline_and_replaces() {
    let mut shell = shell();
    let mut check = |line: &str, expected: &str| {
        let line = line.replace("FIVE", FIVE);
        assert_eq!(shell.line(&line), expected, "{line}");
    };
    check("RESTORE c 1000 FIVE FREQ 7", "+OK");
    check("PTTL c", ":1000");
    check(
        "RESTORE c 0 FIVE",
        "-BUSYKEY Target key name already exists.",
    );
    check("RESTORE c 0 FIVE REPLACE IDLETIME 100", "+OK");
    check("PTTL c", ":-1");
    check(
        &format!("RESTORE c {} FIVE absttl replace", START_MS + 5),
        "+OK",
    );
    check("PTTL c", ":5");
    // A deadline in the past leaves no key, and removes one that was to be replaced.
    check("RESTORE c 1 FIVE ABSTTL REPLACE", "+OK");
    check("RESTORE d 9223372036854775807 FIVE", "+OK");
    check("EXISTS c d", ":0");
    check("RESTORE d 9223372036854775807 FIVE ABSTTL", "+OK");
    check("PEXPIRETIME d", ":9223372036854775807");
}
