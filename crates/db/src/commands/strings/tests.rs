//! Replies as redis-server 7.0.15 gives them, and what a client cannot see: deadlines and flags.

use std::num::NonZero;

use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_engine::{Attributes, Body, BodyRef, Decision, NewValue, StringRef};
use pando_protocol::RespVersion;

use crate::Options;
use crate::commands::testing::{START_MS, Shell};
use crate::encoding;

/// A shell on a database with a hash at `h`.
fn shell() -> Shell {
    let mut shell = Shell::new();
    shell.check(&[("HSET h f v", ":1")]);
    shell
}

/// The attributes of a key that is there.
fn attributes(shell: &mut Shell, key: &str) -> Attributes {
    shell.turn().keyspace(0).look(key.as_bytes(), |value| {
        value.expect("the key is there").attributes
    })
}

/// Milliseconds that a key has left.
fn left_ms(shell: &mut Shell, key: &str) -> Option<u64> {
    attributes(shell, key)
        .deadline
        .map(|deadline| deadline.0 - START_MS)
}

/// What OBJECT ENCODING answers.
fn encoding_of(shell: &mut Shell, key: &str) -> &'static str {
    shell.turn().keyspace(0).look(key.as_bytes(), |value| {
        encoding::name(&value.expect("the key is there"))
    })
}

/// A string that is stored in chunks, no two neighbouring bytes alike.
fn large() -> Vec<u8> {
    (0..COLUMN_FLAT_BYTES_MAX * 3 + 7)
        .map(|index| (index % 251) as u8)
        .collect()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

#[test]
fn a_value_is_set_and_read() {
    shell().check(&[
        ("GET k", "$-1"),
        ("SET k v", "+OK"),
        ("get k", "$1 v"),
        ("SET k \"\"", "+OK"),
        ("GET k", "$0 "),
        ("STRLEN k", ":0"),
        ("SET k \"a\\x00b\"", "+OK"),
        ("GET k", "$3 a\0b"),
        ("STRLEN k", ":3"),
        ("STRLEN missing", ":0"),
        ("SET \"\" v", "+OK"),
        ("GET \"\"", "$1 v"),
        ("SET h v", "+OK"),
        ("GET h", "$1 v"),
    ]);
}

#[test]
fn a_hash_is_no_string() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    shell().check(&[
        ("GET h", WRONG),
        ("STRLEN h", WRONG),
        ("GETDEL h", WRONG),
        ("GETEX h", WRONG),
        ("GETEX h PERSIST", WRONG),
        ("GETEX h EX 0", WRONG),
        ("GETEX h EX x", WRONG),
        ("GETEX h EX", "-ERR syntax error"),
        ("GETSET h v", WRONG),
        ("SET h v GET", WRONG),
        ("SET h v NX GET", WRONG),
        ("SET h v NX", "$-1"),
        ("SETNX h v", ":0"),
        ("APPEND h v", WRONG),
        ("GETRANGE h 0 1", WRONG),
        (
            "GETRANGE h x 1",
            "-ERR value is not an integer or out of range",
        ),
        ("SETRANGE h 0 v", WRONG),
        ("SETRANGE h 0 \"\"", WRONG),
        ("SETRANGE h -1 v", "-ERR offset is out of range"),
        ("SETRANGE h 536870912 v", WRONG),
        ("INCR h", WRONG),
        ("INCRBY h x", "-ERR value is not an integer or out of range"),
        ("INCRBYFLOAT h x", WRONG),
        ("MGET h k", "*2 $-1 $-1"),
        (
            "LCS h k",
            "-ERR The specified keys must contain string values",
        ),
        (
            "LCS k h IDX LEN",
            "-ERR The specified keys must contain string values",
        ),
        ("MSETNX k v h v", ":0"),
        ("GET k", "$-1"),
        ("GETSET h v", WRONG),
        ("MSET h v", "+OK"),
        ("GET h", "$1 v"),
    ]);
}

#[test]
fn set_obeys_its_options() {
    shell().check(&[
        ("SET k a XX", "$-1"),
        ("SET k a NX", "+OK"),
        ("SET k b NX", "$-1"),
        ("SET k b xx", "+OK"),
        ("SET k c GET", "$1 b"),
        ("SET k d NX GET", "$1 c"),
        ("GET k", "$1 c"),
        ("SET k d XX GET", "$1 c"),
        ("SET new d NX GET", "$-1"),
        ("GET new", "$1 d"),
        ("SET other d XX GET", "$-1"),
        ("GET other", "$-1"),
        ("SET k v NX NX GET GET", "$1 d"),
        ("SET k v EX 10 EX 20", "+OK"),
        ("SET k v KEEPTTL KEEPTTL", "+OK"),
        ("SET k v NX XX", "-ERR syntax error"),
        ("SET k v XX NX", "-ERR syntax error"),
        ("SET k v EX 10 PX 10", "-ERR syntax error"),
        ("SET k v EX 10 EXAT 10", "-ERR syntax error"),
        ("SET k v EX 10 KEEPTTL", "-ERR syntax error"),
        ("SET k v KEEPTTL PXAT 10", "-ERR syntax error"),
        ("SET k v PERSIST", "-ERR syntax error"),
        ("SET k v EX", "-ERR syntax error"),
        ("SET k v EX 0 FOO", "-ERR syntax error"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        (
            "SET k v PX -1 GET",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SET h v PX 0 GET",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SET k v EXAT 0",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SET k v EX 1.5",
            "-ERR value is not an integer or out of range",
        ),
        (
            "SET k v EX \"\"",
            "-ERR value is not an integer or out of range",
        ),
        (
            "SET k v EX 9223372036854775807",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SET k v EX 9223372036854775",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SET k v PX 9223372036854775807",
            "-ERR invalid expire time in 'set' command",
        ),
        ("SET k v PXAT 9223372036854775807", "+OK"),
        ("SET k v EXAT 9223372036854775", "+OK"),
        (
            "SET k v EXAT 9223372036854776",
            "-ERR invalid expire time in 'set' command",
        ),
        ("GET k", "$1 v"),
        ("SET k v PXAT 1", "+OK"),
        ("GET k", "$-1"),
    ]);
}

#[test]
fn setex_and_setnx_are_set_with_an_option() {
    shell().check(&[
        ("SETEX k 10 v", "+OK"),
        ("SETEX k 0 v", "-ERR invalid expire time in 'setex' command"),
        (
            "SETEX k -1 v",
            "-ERR invalid expire time in 'setex' command",
        ),
        (
            "SETEX k x v",
            "-ERR value is not an integer or out of range",
        ),
        (
            "PSETEX k 0 v",
            "-ERR invalid expire time in 'psetex' command",
        ),
        ("PSETEX h 10 w", "+OK"),
        ("GET h", "$1 w"),
        ("SETNX k w", ":0"),
        ("GET k", "$1 v"),
        ("SETNX n w", ":1"),
        ("GETSET n x", "$1 w"),
        ("GETSET m x", "$-1"),
        ("GET m", "$1 x"),
    ]);
}

#[test]
fn getdel_and_getex_read_and_change_the_key() {
    shell().check(&[
        ("GETDEL k", "$-1"),
        ("SET k v", "+OK"),
        ("GETDEL k", "$1 v"),
        ("GET k", "$-1"),
        ("GETEX k", "$-1"),
        ("GETEX k EX 0", "$-1"),
        ("GETEX k EX x", "$-1"),
        ("GETEX k FOO", "-ERR syntax error"),
        ("SET k v", "+OK"),
        ("GETEX k", "$1 v"),
        (
            "GETEX k EX 0",
            "-ERR invalid expire time in 'getex' command",
        ),
        (
            "GETEX k EX x",
            "-ERR value is not an integer or out of range",
        ),
        ("GETEX k EX 10 EX 20", "$1 v"),
        ("GETEX k PERSIST PERSIST", "$1 v"),
        ("GETEX k EX 10 PERSIST", "-ERR syntax error"),
        ("GETEX k PERSIST EX 10", "-ERR syntax error"),
        ("GETEX k EX 10 PX 10", "-ERR syntax error"),
        ("GETEX k KEEPTTL", "-ERR syntax error"),
        ("GETEX k GET", "-ERR syntax error"),
        ("GETEX k NX", "-ERR syntax error"),
        ("GETEX k PXAT", "-ERR syntax error"),
        ("GETEX k PXAT 1", "$1 v"),
        ("GET k", "$-1"),
    ]);
}

#[test]
fn several_strings_are_read_and_written_together() {
    shell().check(&[
        ("MSET a 1 b 2", "+OK"),
        ("MGET a missing b h a", "*5 $1 1 $-1 $1 2 $-1 $1 1"),
        (
            "MSET a 1 b",
            "-ERR wrong number of arguments for 'mset' command",
        ),
        (
            "MSETNX a 1 b",
            "-ERR wrong number of arguments for 'msetnx' command",
        ),
        ("MSETNX c 1 a 2", ":0"),
        ("MGET c a", "*2 $-1 $1 1"),
        ("MSETNX c 1 d 2 c 3", ":1"),
        ("MGET c d", "*2 $1 3 $1 2"),
        ("MSET c 1 c 2", "+OK"),
        ("GET c", "$1 2"),
    ]);
}

#[test]
fn parts_of_a_string_are_read() {
    shell().check(&[
        ("SET k \"This is a string\"", "+OK"),
        ("GETRANGE k 0 3", "$4 This"),
        ("GETRANGE k -3 -1", "$3 ing"),
        ("GETRANGE k 0 -1", "$16 This is a string"),
        ("GETRANGE k 10 100", "$6 string"),
        ("GETRANGE k 5 3", "$0 "),
        ("GETRANGE k 16 20", "$0 "),
        ("GETRANGE k -100 0", "$1 T"),
        ("GETRANGE k -100 -90", "$1 T"),
        ("GETRANGE k -90 -100", "$0 "),
        ("GETRANGE k -1 -5", "$0 "),
        ("GETRANGE k 9223372036854775807 9223372036854775807", "$0 "),
        (
            "GETRANGE k -9223372036854775808 9223372036854775807",
            "$16 This is a string",
        ),
        ("GETRANGE missing 0 -1", "$0 "),
        (
            "GETRANGE missing 0 x",
            "-ERR value is not an integer or out of range",
        ),
        ("SUBSTR k 0 3", "$4 This"),
        ("SET k \"\"", "+OK"),
        ("GETRANGE k 0 -1", "$0 "),
        ("SET k 12345", "+OK"),
        ("GETRANGE k 1 2", "$2 23"),
    ]);
}

#[test]
fn parts_of_a_string_are_written() {
    const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    shell().check(&[
        ("SETRANGE k 0 \"\"", ":0"),
        ("GET k", "$-1"),
        ("SETRANGE k 3 ab", ":5"),
        ("GET k", "$5 \0\0\0ab"),
        ("SETRANGE k 1 xy", ":5"),
        ("GET k", "$5 \0xyab"),
        ("SETRANGE k 4 cd", ":6"),
        ("SETRANGE k 8 e", ":9"),
        ("GET k", "$9 \0xyacd\0\0e"),
        ("SETRANGE k 100 \"\"", ":9"),
        ("SETRANGE k -1 \"\"", "-ERR offset is out of range"),
        (
            "SETRANGE k x v",
            "-ERR value is not an integer or out of range",
        ),
        ("SETRANGE k 536870912 v", TOO_LONG),
        ("SETRANGE missing 536870912 v", TOO_LONG),
        ("SETRANGE k 9223372036854775807 v", TOO_LONG),
        ("SETRANGE k 9223372036854775807 \"\"", ":9"),
        ("APPEND a ab", ":2"),
        ("APPEND a cd", ":4"),
        ("APPEND a \"\"", ":4"),
        ("GET a", "$4 abcd"),
        ("APPEND e \"\"", ":0"),
        ("GET e", "$0 "),
    ]);
}

#[test]
fn integers_are_counted() {
    const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
    const OVERFLOW: &str = "-ERR increment or decrement would overflow";
    shell().check(&[
        ("INCR k", ":1"),
        ("INCRBY k 41", ":42"),
        ("DECR k", ":41"),
        ("DECRBY k 50", ":-9"),
        ("DECRBY k -9", ":0"),
        ("GET k", "$1 0"),
        ("DECR n", ":-1"),
        ("INCRBY k 9223372036854775807", ":9223372036854775807"),
        ("INCR k", OVERFLOW),
        ("DECRBY k -1", OVERFLOW),
        ("SET k -9223372036854775808", "+OK"),
        ("DECR k", OVERFLOW),
        ("INCRBY k -1", OVERFLOW),
        (
            "DECRBY k -9223372036854775808",
            "-ERR decrement would overflow",
        ),
        ("INCRBY k 9223372036854775808", NOT_AN_INTEGER),
        ("INCRBY k 1.0", NOT_AN_INTEGER),
        ("INCRBY k +1", NOT_AN_INTEGER),
        ("INCRBY k \" 1\"", NOT_AN_INTEGER),
        ("GET k", "$20 -9223372036854775808"),
        ("SET k 01", "+OK"),
        ("INCR k", NOT_AN_INTEGER),
        ("SET k \"\"", "+OK"),
        ("INCR k", NOT_AN_INTEGER),
        ("SET k \"1 \"", "+OK"),
        ("INCR k", NOT_AN_INTEGER),
        ("SET k -0", "+OK"),
        ("INCR k", NOT_AN_INTEGER),
        ("SET k 9223372036854775808", "+OK"),
        ("DECR k", NOT_AN_INTEGER),
    ]);
}

#[test]
fn fractions_are_counted() {
    const NOT_A_FLOAT: &str = "-ERR value is not a valid float";
    shell().check(&[
        ("INCRBYFLOAT k 10.50", "$4 10.5"),
        ("INCRBYFLOAT k 0.1", "$4 10.6"),
        ("INCRBYFLOAT k -5", "$3 5.6"),
        ("SET k 5.0e3", "+OK"),
        ("INCRBYFLOAT k 2.0e2", "$4 5200"),
        ("GET k", "$4 5200"),
        ("INCR k", ":5201"),
        ("SET k 3", "+OK"),
        ("INCRBYFLOAT k 1.1", "$3 4.1"),
        ("INCRBYFLOAT k -4.1", "$1 0"),
        ("SET k 3.0", "+OK"),
        (
            "INCRBYFLOAT k 1.000000000000000005",
            "$19 4.00000000000000001",
        ),
        ("INCRBYFLOAT k 0x10", "$20 20.00000000000000001"),
        ("INCRBYFLOAT k x", NOT_A_FLOAT),
        ("INCRBYFLOAT k \"\"", NOT_A_FLOAT),
        ("INCRBYFLOAT k \" 1\"", NOT_A_FLOAT),
        ("INCRBYFLOAT k \"1 \"", NOT_A_FLOAT),
        ("INCRBYFLOAT k nan", NOT_A_FLOAT),
        (
            "INCRBYFLOAT k +inf",
            "-ERR increment would produce NaN or Infinity",
        ),
        ("GET k", "$20 20.00000000000000001"),
        ("SET k abc", "+OK"),
        ("INCRBYFLOAT k 1", NOT_A_FLOAT),
        ("SET k inf", "+OK"),
        (
            "INCRBYFLOAT k -inf",
            "-ERR increment would produce NaN or Infinity",
        ),
        (
            "INCRBYFLOAT k 1",
            "-ERR increment would produce NaN or Infinity",
        ),
    ]);
}

#[test]
fn the_longest_common_subsequence_is_found() {
    shell().check(&[
        ("MSET a ohmytext b mynewtext", "+OK"),
        ("LCS a b", "$6 mytext"),
        ("LCS a b LEN", ":6"),
        (
            "LCS a b IDX",
            "*4 $7 matches *2 *2 *2 :4 :7 *2 :5 :8 *2 *2 :2 :3 *2 :0 :1 $3 len :6",
        ),
        (
            "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
            "*4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6",
        ),
        ("LCS a b IDX MINMATCHLEN 5", "*4 $7 matches *0 $3 len :6"),
        (
            "LCS a b idx minmatchlen -1 withmatchlen",
            "*4 $7 matches *2 *3 *2 :4 :7 *2 :5 :8 :4 *3 *2 :2 :3 *2 :0 :1 :2 $3 len :6",
        ),
        (
            "LCS a b LEN IDX",
            "-ERR If you want both the length and indexes, please just use IDX.",
        ),
        ("LCS a b MINMATCHLEN", "-ERR syntax error"),
        (
            "LCS a b MINMATCHLEN x",
            "-ERR value is not an integer or out of range",
        ),
        ("LCS a b FOO", "-ERR syntax error"),
        ("LCS a b WITHMATCHLEN LEN", ":6"),
        ("LCS a missing", "$0 "),
        ("LCS a missing LEN", ":0"),
        ("LCS missing a IDX", "*4 $7 matches *0 $3 len :0"),
        (
            "LCS a a IDX",
            "*4 $7 matches *1 *2 *2 :0 :7 *2 :0 :7 $3 len :8",
        ),
        ("MSET a abcabc b acbacb", "+OK"),
        ("LCS a b", "$4 acbc"),
        ("LCS b a", "$4 abcb"),
        (
            "LCS a b IDX",
            "*4 $7 matches *4 *2 *2 :5 :5 *2 :4 :4 *2 *2 :4 :4 *2 :2 :2 *2 *2 :2 :2 *2 :1 :1 \
             *2 *2 :0 :0 *2 :0 :0 $3 len :4",
        ),
        ("MSET a 123 b 32123", "+OK"),
        ("LCS a b", "$3 123"),
    ]);
}

#[test]
fn resp3_names_what_resp2_has_no_word_for() {
    let mut shell = shell();
    shell.speak(RespVersion::Resp3);
    shell.check(&[
        ("GET k", "_"),
        ("GETDEL k", "_"),
        ("SET k v XX", "_"),
        ("SET k v GET", "_"),
        ("MGET k missing", "*2 $1 v _"),
        ("INCRBYFLOAT f 1.5", "$3 1.5"),
        ("LCS k missing IDX", "%2 $7 matches *0 $3 len :0"),
    ]);
}

#[test]
fn a_replacement_drops_the_deadline_and_a_change_keeps_it() {
    let mut shell = shell();
    for (line, kept) in [
        ("SET k 1", false),
        ("SET k 1 GET", false),
        ("SET k 1 XX", false),
        ("SET k 1 KEEPTTL", true),
        ("SET k 1 NX", true),
        ("GETSET k 1", false),
        ("MSET k 1", false),
        ("MSETNX k 1 other 2", true),
        ("SETNX k 2", true),
        ("GETEX k PERSIST", false),
        ("GETEX k", true),
        ("GET k", true),
        ("APPEND k 1", true),
        ("SETRANGE k 0 1", true),
        ("SETRANGE k 0 \"\"", true),
        ("INCR k", true),
        ("DECRBY k 2", true),
        ("INCRBYFLOAT k 2", true),
    ] {
        assert_eq!(shell.line("SET k 5 PX 1234"), "+OK");
        assert_eq!(left_ms(&mut shell, "k"), Some(1234));
        assert!(!shell.line(line).starts_with('-'), "{line}");
        assert_eq!(left_ms(&mut shell, "k"), kept.then_some(1234), "{line}");
    }
    for (line, left) in [
        ("SET k v EX 10", 10_000),
        ("SET k v PX 10", 10),
        ("SET k v EXAT 1700000010", 10_000),
        ("SET k v PXAT 1700000000001", 1),
        ("SETEX k 10 v", 10_000),
        ("PSETEX k 10 v", 10),
        ("GETEX k EX 20", 20_000),
        ("GETEX k PX 20", 20),
        ("GETEX k EXAT 1700000020", 20_000),
        ("GETEX k PXAT 1700000000020", 20),
        ("SET k v EX 10 EX 20", 20_000),
    ] {
        shell.line(line);
        assert_eq!(left_ms(&mut shell, "k"), Some(left), "{line}");
    }
}

#[test]
fn an_expired_string_is_absent_to_reads_and_writes() {
    let mut shell = shell();
    for (line, reply) in [
        ("GET k", "$-1"),
        ("GETDEL k", "$-1"),
        ("SET k v XX", "$-1"),
        ("SET k v NX", "+OK"),
        ("SET k v KEEPTTL", "+OK"),
        ("SETNX k v", ":1"),
        ("GETSET k v", "$-1"),
        ("APPEND k v", ":1"),
        ("SETRANGE k 1 v", ":2"),
        ("STRLEN k", ":0"),
        ("INCR k", ":1"),
        ("INCRBYFLOAT k 1", "$1 1"),
        ("MSETNX k v", ":1"),
        ("MGET k", "*1 $-1"),
    ] {
        shell.check(&[("SET k 41 PX 100", "+OK"), ("GET k", "$2 41")]);
        shell.pass_ms(100);
        shell.check(&[(line, reply)]);
        let deadline = shell.turn().keyspace(0).look(b"k", |value| {
            value.and_then(|value| value.attributes.deadline)
        });
        assert_eq!(deadline, None, "{line}");
    }
}

#[test]
fn encodings_follow_from_the_last_write() {
    let mut shell = shell();
    let long = "x".repeat(45);
    for (lines, expected) in [
        (&["SET k 5"][..], "int"),
        (&["SET k 5x"], "embstr"),
        (&[&format!("SET k {long}")], "raw"),
        (&["SET k 5", "APPEND k \"\""], "raw"),
        (&["SET k 5", "APPEND k 6", "INCR k"], "int"),
        (&["GETDEL k", "APPEND k 5"], "int"),
        (&["GETDEL k", "SETRANGE k 0 5"], "raw"),
        (&["SET k 5", "SETRANGE k 0 \"\""], "int"),
        (&["SET k 5", "SETRANGE k 0 5"], "raw"),
        (&["SET k 5", "SETRANGE k 0 5", "GETEX k EX 5"], "raw"),
        (&["SET k 5", "SETRANGE k 0 5", "GETSET k 5"], "int"),
        (&["SET k 5", "INCRBYFLOAT k 1"], "embstr"),
        (&["SET k 5", "INCRBYFLOAT k 1", "INCR k"], "int"),
        (&["SET k 5", "INCRBYFLOAT k 1e60"], "raw"),
        (&["SET k 5", "INCRBYFLOAT k 1", "MSET k 5"], "int"),
    ] {
        for line in lines {
            assert!(!shell.line(line).starts_with('-'), "{line}");
        }
        assert_eq!(encoding_of(&mut shell, "k"), expected, "{lines:?}");
    }
}

#[test]
fn every_write_resets_flags_and_a_chosen_token() {
    let mut shell = shell();
    let attributes_with_flags = Attributes {
        flags: 7,
        token: NonZero::new(7),
        ..Attributes::default()
    };
    for (line, flags) in [
        ("APPEND k 1", 0),
        ("SETRANGE k 0 1", 0),
        ("INCR k", 0),
        ("DECRBY k 2", 0),
        ("INCRBYFLOAT k 1", 0),
        ("SETBIT k 0 1", 0),
        ("BITFIELD k SET u8 0 49", 0),
        ("BITOP NOT k k", 0),
        ("SET k 1", 0),
        ("SET k 1 KEEPTTL", 0),
        ("GETSET k 1", 0),
        ("MSET k 1", 0),
        // These write no string.
        ("EXPIRE k 100", 7),
        ("GETEX k EX 100", 7),
        ("COPY k other", 7),
    ] {
        let written = shell.turn().keyspace(0).update(b"k", |_| {
            let value = NewValue::new(Body::string(b"5"));
            Decision::Write(value.with(attributes_with_flags))
        });
        assert!(matches!(written, Ok(Some(_))));
        shell.line(line);
        let now = attributes(&mut shell, "k");
        let token = now.token.map_or(0, NonZero::get);
        assert_eq!((now.flags, token), (flags, u64::from(flags)), "{line}");
    }
}

#[test]
fn large_strings_are_stored_in_chunks_and_read_whole() {
    let mut shell = shell();
    let mut expected = large();
    assert_eq!(shell.run([b"SET", &b"k"[..], &expected]), b"+OK\r\n");
    let is_chunked = |value: Option<pando_engine::ValueRef<'_>>| {
        value.is_some_and(|value| matches!(value.body, BodyRef::String(StringRef::Chunked(_))))
    };
    assert!(shell.turn().keyspace(0).look(b"k", is_chunked));
    assert_eq!(shell.run(["GET", "k"]), bulk(&expected));
    let start = COLUMN_FLAT_BYTES_MAX - 2;
    let part = &expected[start..start + 5];
    assert_eq!(shell.run(["GETRANGE", "k", "16382", "16386"]), bulk(part));
    shell.check(&[
        ("SETRANGE k 16382 abcde", ":49159"),
        ("APPEND k tail", ":49163"),
    ]);
    expected[start..start + 5].copy_from_slice(b"abcde");
    expected.extend_from_slice(b"tail");
    assert_eq!(shell.run(["GETEX", "k", "EX", "10"]), bulk(&expected));
    assert_eq!(left_ms(&mut shell, "k"), Some(10_000));
    assert_eq!(shell.run(["SET", "k", "short", "GET"]), bulk(&expected));
    assert_eq!(shell.run([b"GETSET", &b"k"[..], &expected]), bulk(b"short"));
    assert_eq!(
        shell.line("INCR k"),
        "-ERR value is not an integer or out of range"
    );
    assert_eq!(
        shell.line("INCRBYFLOAT k 1"),
        "-ERR value is not a valid float"
    );
    let mget = [&b"*2\r\n"[..], &bulk(&expected), b"$-1\r\n"].concat();
    assert_eq!(shell.run(["MGET", "k", "missing"]), mget);
    assert_eq!(shell.run(["GETDEL", "k"]), bulk(&expected));
    assert_eq!(shell.line("GET k"), "$-1");
}

#[test]
fn mget_reads_more_keys_than_it_warms_at_a_time() {
    let mut shell = shell();
    let names: Vec<String> = (0..1000).map(|index| format!("key{index}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_str(), &name[3..]]);
    assert_eq!(shell.run(["MSET"].into_iter().chain(pairs)), b"+OK\r\n");
    let mut expected = b"*1000\r\n".to_vec();
    for name in &names {
        expected.extend_from_slice(&bulk(&name.as_bytes()[3..]));
    }
    let request = ["MGET"].into_iter().chain(names.iter().map(String::as_str));
    assert_eq!(shell.run(request), expected);
}

#[test]
fn what_is_too_long_is_refused_before_anything_changes() {
    const KEY: &str = "-ERR key is longer than key_bytes_max (9 bytes, at most 8)";
    const VALUE: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    let mut shell = Shell::with_options(Options {
        key_bytes_max: 8,
        value_bytes_max: 16,
        ..Options::default()
    });
    shell.check(&[
        ("SET 123456789 v", KEY),
        ("GET 123456789", "$-1"),
        ("MSET k v 123456789 v", KEY),
        ("MSETNX k v 123456789 v", KEY),
        ("MSET k v l 12345678901234567", VALUE),
        ("SET k 12345678901234567", VALUE),
        ("SET k 12345678901234567 NX", VALUE),
        ("GET k", "$-1"),
        ("SET k 1234567890123456", "+OK"),
        ("APPEND k 7", VALUE),
        ("SETRANGE k 16 x", VALUE),
        ("SETRANGE k 15 x", ":16"),
        (
            "LCS k k",
            "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ),
        ("GET k", "$16 123456789012345x"),
    ]);
    let long = "k".repeat(70_000);
    assert_eq!(
        shell.run(["MGET", &long, "k", &long]),
        b"*3\r\n$-1\r\n$16\r\n123456789012345x\r\n$-1\r\n"
    );
    assert_eq!(shell.line("DBSIZE"), ":1");
}

#[test]
fn reads_that_change_count_as_reads() {
    let mut shell = shell();
    let database = std::sync::Arc::clone(&shell.database);
    let reads = || {
        let statistics = database.statistics();
        (statistics.keyspace_hits, statistics.keyspace_misses)
    };
    for (line, hits, misses) in [
        ("SET k v", 0, 0),
        ("GET k", 1, 0),
        ("GET missing", 0, 1),
        ("SET k v GET", 1, 0),
        ("GETSET k v", 1, 0),
        ("GETEX k EX 10", 1, 0),
        ("GETEX missing EX 10", 0, 1),
        ("MGET k missing k", 2, 1),
        ("STRLEN k", 1, 0),
        ("LCS k missing", 1, 1),
        ("APPEND k v", 0, 0),
        ("SETNX k v", 0, 0),
        ("MSETNX k v", 0, 0),
        ("GETDEL k", 1, 0),
        ("GETDEL k", 0, 1),
        ("INCR n", 0, 0),
    ] {
        let (hits_before, misses_before) = reads();
        shell.line(line);
        assert_eq!(
            reads(),
            (hits_before + hits, misses_before + misses),
            "{line}"
        );
    }
}
