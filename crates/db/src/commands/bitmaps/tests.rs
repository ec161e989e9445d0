//! Replies as redis-server 7.0.15 gives them; bits of large strings against a plain model.

use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_protocol::RespVersion;

use crate::Options;
use crate::commands::testing::Shell;
use crate::encoding;
use crate::limits::SLICE_BYTES_MAX;

/// A shell on a database with a hash at `h`.
fn shell() -> Shell {
    let mut shell = Shell::new();
    shell.check(&[("HSET h f v", ":1")]);
    shell
}

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const OFFSET: &str = "-ERR bit offset is not an integer or out of range";
const INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";
const TYPE: &str = "-ERR Invalid bitfield type. Use something like i16 u8. \
     Note that u64 is not supported but i64 is.";

#[test]
fn bits_are_set_and_read() {
    const BIT: &str = "-ERR bit is not an integer or out of range";
    shell().check(&[
        ("GETBIT k 0", ":0"),
        ("SETBIT k 7 1", ":0"),
        ("SETBIT k 7 1", ":1"),
        ("GETBIT k 7", ":1"),
        ("GETBIT k 6", ":0"),
        ("GETBIT k 800", ":0"),
        ("SETBIT k 23 0", ":0"),
        ("STRLEN k", ":3"),
        ("GET k", "$3 \u{1}\0\0"),
        ("SETBIT k 7 0", ":1"),
        ("GET k", "$3 \0\0\0"),
        ("SET k 5", "+OK"),
        ("SETBIT k 7 0", ":1"),
        ("GET k", "$1 4"),
        ("GETBIT k 4294967295", ":0"),
        ("GETBIT k 4294967296", OFFSET),
        ("GETBIT k -1", OFFSET),
        ("GETBIT k 01", OFFSET),
        ("GETBIT k x", OFFSET),
        ("GETBIT k #1", OFFSET),
        ("GETBIT h -1", OFFSET),
        ("GETBIT h 1", WRONG),
        ("SETBIT k 4294967296 1", OFFSET),
        ("SETBIT h x 2", OFFSET),
        ("SETBIT h 1 2", BIT),
        ("SETBIT h 1 -1", BIT),
        ("SETBIT h 1 01", BIT),
        ("SETBIT h 1 x", BIT),
        ("SETBIT h 1 1", WRONG),
        ("GET k", "$1 4"),
    ]);
}

#[test]
fn set_bits_are_counted() {
    shell().check(&[
        ("SET k foobar", "+OK"),
        ("BITCOUNT k", ":26"),
        ("BITCOUNT k 0 0", ":4"),
        ("BITCOUNT k 1 1 BYTE", ":6"),
        ("BITCOUNT k 0 -5", ":10"),
        ("BITCOUNT k -2 -1", ":7"),
        ("BITCOUNT k 5 30 BIT", ":17"),
        ("BITCOUNT k 5 30 bit", ":17"),
        ("BITCOUNT k 5 5 BIT", ":1"),
        ("BITCOUNT k 0 6 BIT", ":4"),
        ("BITCOUNT k 3 12 BIT", ":5"),
        ("BITCOUNT k -1 -1 BIT", ":0"),
        ("BITCOUNT k -7 -3 BIT", ":3"),
        ("BITCOUNT k 100 200", ":0"),
        ("BITCOUNT k 2 1", ":0"),
        ("BITCOUNT k -100 -90", ":4"),
        ("BITCOUNT k -90 -100", ":0"),
        ("BITCOUNT k -1 -2 FOO", SYNTAX),
        ("BITCOUNT k 0 0 FOO", SYNTAX),
        ("BITCOUNT k 0", SYNTAX),
        ("BITCOUNT k 0 0 BIT x", SYNTAX),
        ("BITCOUNT k x 0", INTEGER),
        ("BITCOUNT k 0 x FOO", INTEGER),
        ("BITCOUNT missing", ":0"),
        ("BITCOUNT missing x", SYNTAX),
        ("BITCOUNT missing x y FOO", INTEGER),
        ("BITCOUNT h x", SYNTAX),
        ("BITCOUNT h", WRONG),
        ("SET k \"\"", "+OK"),
        ("BITCOUNT k", ":0"),
        ("BITCOUNT k 0 -1 BIT", ":0"),
        ("BITCOUNT k -1 -1", ":0"),
    ]);
}

#[test]
fn the_first_bit_is_found() {
    const BIT: &str = "-ERR The bit argument must be 1 or 0.";
    shell().check(&[
        ("SET k \"\\xff\\xf0\\x00\"", "+OK"),
        ("BITPOS k 0", ":12"),
        ("BITPOS k 1", ":0"),
        ("BITPOS k 1 2", ":-1"),
        ("BITPOS k 0 2", ":16"),
        ("BITPOS k 1 1", ":8"),
        ("BITPOS k 0 0 0", ":-1"),
        ("BITPOS k 0 0 1", ":12"),
        ("BITPOS k 0 0 -1 BIT", ":12"),
        ("BITPOS k 0 3 9 BIT", ":-1"),
        ("BITPOS k 0 3 12 BIT", ":12"),
        ("BITPOS k 1 3 12 bit", ":3"),
        ("BITPOS k 1 12 15 BIT", ":-1"),
        ("BITPOS k 1 11 15 BIT", ":11"),
        ("BITPOS k 0 13 13 BIT", ":13"),
        ("BITPOS k 1 -1", ":-1"),
        ("BITPOS k 1 -100 -100", ":0"),
        ("BITPOS k 1 2 1", ":-1"),
        ("BITPOS k 1 10 20", ":-1"),
        ("BITPOS k 0 10 20", ":-1"),
        ("BITPOS k 0 10", ":-1"),
        ("SET k \"\\xff\\xff\"", "+OK"),
        ("BITPOS k 0", ":16"),
        ("BITPOS k 0 0", ":16"),
        ("BITPOS k 0 1", ":16"),
        ("BITPOS k 0 2", ":-1"),
        ("BITPOS k 0 0 -1", ":-1"),
        ("BITPOS k 0 0 -1 BYTE", ":-1"),
        ("BITPOS k 0 0 -1 BIT", ":-1"),
        ("BITPOS k 0 3 4 BIT", ":-1"),
        ("SET k \"\"", "+OK"),
        ("BITPOS k 0", ":-1"),
        ("BITPOS k 1", ":-1"),
        ("BITPOS k 0 0 -1 BIT", ":-1"),
        ("BITPOS missing 0", ":0"),
        ("BITPOS missing 1", ":-1"),
        ("BITPOS missing 0 x y z w", SYNTAX),
        ("BITPOS missing 0 x", INTEGER),
        ("BITPOS h 0 x", INTEGER),
        ("BITPOS missing 2", BIT),
        ("BITPOS h -1", BIT),
        ("BITPOS h x", INTEGER),
        ("BITPOS h 1", WRONG),
        ("BITPOS k 1 x", INTEGER),
        ("BITPOS k 1 0 x FOO", SYNTAX),
        ("BITPOS k 1 0 x BIT", INTEGER),
        ("BITPOS k 1 x 0 FOO", INTEGER),
        ("BITPOS k 1 0 0 BIT x", SYNTAX),
    ]);
}

#[test]
fn strings_are_combined_bit_by_bit() {
    const NOT: &str = "-ERR BITOP NOT must be called with a single source key.";
    shell().check(&[
        ("MSET a \"\\x0f\\x35\\x21\" b \"\\x33\" e \"\"", "+OK"),
        ("BITOP AND d a b", ":3"),
        ("GET d", "$3 \u{3}\0\0"),
        ("BITOP and d b a", ":3"),
        ("GET d", "$3 \u{3}\0\0"),
        ("BITOP OR d a b", ":3"),
        ("GET d", "$3 ?5!"),
        ("BITOP XOR d a b b", ":3"),
        ("GET d", "$3 \u{f}5!"),
        ("BITOP XOR d a b", ":3"),
        ("GET d", "$3 <5!"),
        ("BITOP NOT d d", ":3"),
        ("BITOP NOT d d", ":3"),
        ("GET d", "$3 <5!"),
        ("BITOP AND d a missing", ":3"),
        ("GET d", "$3 \0\0\0"),
        ("BITOP AND d missing a", ":3"),
        ("GET d", "$3 \0\0\0"),
        ("BITOP OR d missing e", ":0"),
        ("GET d", "$-1"),
        ("BITOP OR d a", ":3"),
        ("BITOP NOT d missing", ":0"),
        ("GET d", "$-1"),
        ("BITOP FOO d a", SYNTAX),
        ("BITOP FOO d h", SYNTAX),
        ("BITOP NOT d a b", NOT),
        ("BITOP NOT d h b", NOT),
        ("BITOP NOT d h", WRONG),
        ("BITOP AND d a h", WRONG),
        ("GET d", "$-1"),
        ("SET p 5 PX 100000", "+OK"),
        ("BITOP OR h p", ":1"),
        ("GET h", "$1 5"),
    ]);
}

#[test]
fn fields_are_read_set_and_incremented() {
    shell().check(&[
        ("BITFIELD k", "*0"),
        ("BITFIELD k GET u8 0 GET i64 100", "*2 :0 :0"),
        ("STRLEN k", ":0"),
        (
            "BITFIELD k SET u8 0 255 GET u4 0 GET i8 0 GET i3 6",
            "*4 :0 :15 :-1 :-2",
        ),
        ("BITFIELD k SET i8 0 127", "*1 :-1"),
        ("BITFIELD k SET u8 #2 65 GET u8 #2", "*2 :0 :65"),
        ("GET k", "$3 \u{7f}\0A"),
        ("BITFIELD k INCRBY u2 100 1 GET u4 0", "*2 :1 :7"),
        ("STRLEN k", ":13"),
        ("BITFIELD k incrby i5 100 1 get u4 0", "*2 :9 :7"),
        (
            "BITFIELD n SET i64 0 -9223372036854775808 GET i64 0",
            "*2 :0 :-9223372036854775808",
        ),
        ("BITFIELD n INCRBY i64 0 -1", "*1 :9223372036854775807"),
        (
            "BITFIELD n SET u63 1 9223372036854775807 GET u63 1",
            "*2 :9223372036854775807 :9223372036854775807",
        ),
        (
            "BITFIELD n SET i64 3 -1 GET i64 3 GET u3 0",
            "*3 :-8 :-1 :3",
        ),
        ("STRLEN n", ":9"),
        ("BITFIELD w SET i1 9 -1 GET u1 9 SET u1 9 5", "*3 :0 :1 :1"),
        ("SET k 5", "+OK"),
        ("BITFIELD k GET u8 0", "*1 :53"),
        ("BITFIELD_RO k GET u8 0 GET u8 8", "*2 :53 :0"),
        ("BITFIELD_RO missing", "*0"),
    ]);
}

#[test]
fn a_field_overflows_as_it_is_told() {
    shell().check(&[
        (
            "BITFIELD k SET u8 0 255 OVERFLOW SAT INCRBY u8 0 10",
            "*2 :0 :255",
        ),
        ("BITFIELD k OVERFLOW SAT INCRBY u8 0 -300", "*1 :0"),
        ("BITFIELD k INCRBY u8 0 -1", "*1 :255"),
        ("BITFIELD k INCRBY u8 0 2", "*1 :1"),
        (
            "BITFIELD k OVERFLOW FAIL INCRBY u8 0 255 INCRBY u8 0 1",
            "*2 $-1 :2",
        ),
        ("BITFIELD k OVERFLOW SAT SET u8 0 -1 GET u8 0", "*2 :2 :255"),
        ("BITFIELD k SET u8 0 -2 GET u8 0", "*2 :255 :254"),
        ("BITFIELD k SET u8 0 257 GET u8 0", "*2 :254 :1"),
        (
            "BITFIELD k OVERFLOW FAIL SET u8 0 256 GET u8 0",
            "*2 $-1 :1",
        ),
        (
            "BITFIELD k OVERFLOW SAT SET i8 0 -1000 GET i8 0",
            "*2 :1 :-128",
        ),
        ("BITFIELD k OVERFLOW SAT INCRBY i8 0 1000", "*1 :127"),
        ("BITFIELD k OVERFLOW WRAP INCRBY i8 0 1", "*1 :-128"),
        (
            "BITFIELD s OVERFLOW SAT SET i9 0 -9223372036854775808 GET i9 0",
            "*2 :0 :255",
        ),
        (
            "BITFIELD s OVERFLOW SAT SET i9 0 -9223372036854775552 GET i9 0",
            "*2 :255 :-256",
        ),
        (
            "BITFIELD s OVERFLOW SAT SET i64 0 -9223372036854775808 GET i64 0",
            "*2 :-9223372036854775808 :-9223372036854775808",
        ),
        ("BITFIELD k SET i8 0 300 GET i8 0", "*2 :-128 :44"),
        ("BITFIELD k OVERFLOW FAIL INCRBY i8 0 100", "*1 $-1"),
        (
            "BITFIELD k SET i64 0 9223372036854775807",
            "*1 :3170534137668829184",
        ),
        (
            "BITFIELD k OVERFLOW SAT INCRBY i64 0 9223372036854775807",
            "*1 :9223372036854775807",
        ),
        ("BITFIELD k OVERFLOW FAIL INCRBY i64 0 1", "*1 $-1"),
        (
            "BITFIELD k OVERFLOW WRAP OVERFLOW FAIL INCRBY i64 0 1 OVERFLOW WRAP",
            "*1 $-1",
        ),
        ("BITFIELD new OVERFLOW FAIL INCRBY u2 9 4", "*1 $-1"),
        ("GET new", "$2 \0\0"),
    ]);
}

#[test]
fn a_field_that_is_none_is_refused() {
    shell().check(&[
        ("BITFIELD h", WRONG),
        ("BITFIELD h OVERFLOW WRAP", WRONG),
        ("BITFIELD h GET u8 0", WRONG),
        ("BITFIELD h SET u8 0 1", WRONG),
        ("BITFIELD_RO h", WRONG),
        ("BITFIELD h FOO", SYNTAX),
        ("BITFIELD h GET u8", SYNTAX),
        ("BITFIELD h SET u8 0", SYNTAX),
        ("BITFIELD h INCRBY u8 0", SYNTAX),
        ("BITFIELD h OVERFLOW", SYNTAX),
        (
            "BITFIELD h OVERFLOW FOO",
            "-ERR Invalid OVERFLOW type specified",
        ),
        ("BITFIELD h GET u64 0", TYPE),
        ("BITFIELD h GET i65 0", TYPE),
        ("BITFIELD h GET i0 0", TYPE),
        ("BITFIELD h GET u-1 0", TYPE),
        ("BITFIELD h GET u 0", TYPE),
        ("BITFIELD h GET U8 0", TYPE),
        ("BITFIELD h GET 8 0", TYPE),
        ("BITFIELD h GET \"\" 0", TYPE),
        ("BITFIELD h GET u8 x", OFFSET),
        ("BITFIELD h GET u8 -1", OFFSET),
        ("BITFIELD h GET u8 #-1", OFFSET),
        ("BITFIELD h GET u8 #", OFFSET),
        ("BITFIELD h GET u8 4294967296", OFFSET),
        ("BITFIELD h GET u8 #536870912", OFFSET),
        ("BITFIELD k GET u8 4294967295", "*1 :0"),
        ("BITFIELD k GET u8 #536870911", "*1 :0"),
        ("BITFIELD k GET u8 #2305843009213693952", "*1 :0"),
        ("BITFIELD h SET u8 0 x", INTEGER),
        ("BITFIELD k SET u8 0 1 FOO", SYNTAX),
        (
            "BITFIELD_RO h SET u8 0 1",
            "-ERR BITFIELD_RO only supports the GET subcommand",
        ),
        ("BITFIELD_RO k SET u8 0 x", INTEGER),
        (
            "BITFIELD_RO k GET u8 0 INCRBY u8 0 1",
            "-ERR BITFIELD_RO only supports the GET subcommand",
        ),
        ("BITFIELD_RO k OVERFLOW SAT GET u8 0", "*1 :0"),
        ("GET k", "$-1"),
    ]);
}

#[test]
fn a_failed_field_is_null_in_resp3() {
    let mut shell = shell();
    shell.speak(RespVersion::Resp3);
    shell.check(&[("BITFIELD k OVERFLOW FAIL INCRBY u2 0 4 GET u2 0", "*2 _ :0")]);
}

#[test]
fn a_field_that_would_end_behind_the_longest_string_is_refused() {
    let mut shell = Shell::with_options(Options {
        value_bytes_max: 4,
        ..Options::default()
    });
    shell.check(&[
        ("BITFIELD k SET u8 25 1", OFFSET),
        ("BITFIELD k SET u8 24 1", "*1 :0"),
        ("BITFIELD k GET u8 25", "*1 :2"),
        ("SETBIT k 31 1", ":1"),
        ("SETBIT k 32 1", OFFSET),
    ]);
}

#[test]
fn a_write_inside_keeps_the_deadline_and_a_change_makes_the_string_raw() {
    let mut shell = shell();
    for (line, kept, expected) in [
        ("SETBIT k 0 0", true, "int"),
        ("SETBIT k 0 1", true, "raw"),
        ("BITFIELD k GET u8 0", true, "int"),
        ("BITFIELD k SET u8 0 53", true, "int"),
        ("BITFIELD k SET u8 0 54", true, "raw"),
        ("BITFIELD k OVERFLOW FAIL SET u8 0 256", true, "int"),
        ("BITOP OR k k", false, "raw"),
    ] {
        shell.check(&[("SET k 5 PX 1234", "+OK")]);
        assert!(!shell.line(line).starts_with('-'), "{line}");
        let found = shell.turn().keyspace(0).look(b"k", |value| {
            let value = value.expect("the key is there");
            (value.attributes.deadline.is_some(), encoding::name(&value))
        });
        assert_eq!(found, (kept, expected), "{line}");
    }
}

#[test]
fn a_write_that_changes_nothing_breaks_no_watch() {
    let mut shell = shell();
    let mut other = shell.connect();
    shell.check(&[
        ("SET k 5", "+OK"),
        ("WATCH k", "+OK"),
        ("SETBIT k 0 0", ":0"),
        ("BITFIELD k SET u8 0 53", "*1 :53"),
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("EXEC", "*1 +PONG"),
        ("DEL k", ":1"),
    ]);
    shell.check(&[("SETBIT k 100 1", ":0")]);
    for (line, changes) in [
        ("SETBIT k 100 1", false),
        ("BITFIELD k SET u8 0 0", false),
        ("BITFIELD k OVERFLOW FAIL INCRBY u8 0 256", false),
        ("BITFIELD k SET u8 0 1 SET u8 0 0", true),
        ("SETBIT k 100 0", true),
        ("SETBIT k 104 0", true),
        ("BITFIELD k OVERFLOW FAIL INCRBY u8 112 256", true),
    ] {
        shell.check(&[("WATCH k", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
        other.line(line);
        assert_eq!(
            shell.line("EXEC"),
            if changes { "*-1" } else { "*1 +PONG" },
            "{line}"
        );
    }
}

/// A string of several chunks: zeros but for a few bytes around the chunks' ends.
fn sparse(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let marks = (1..=len / COLUMN_FLAT_BYTES_MAX).map(|chunk| chunk * COLUMN_FLAT_BYTES_MAX);
    for mark in marks {
        bytes[mark - 1] = 0x01;
        bytes[mark.min(len - 1)] |= 0xc0;
    }
    bytes
}

#[test]
fn bits_of_a_large_string_are_counted_and_found() {
    let mut shell = shell();
    let mut bytes = sparse(COLUMN_FLAT_BYTES_MAX * 12 + 5);
    for invert in [false, true] {
        shell.run([b"SET", &b"k"[..], &bytes]);
        let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
        let len = bytes.len() * 8;
        let (chunk, last) = (COLUMN_FLAT_BYTES_MAX * 8, len - 1);
        for (start, end) in [
            (0, last),
            (0, chunk - 2),
            (1, chunk - 1),
            (chunk - 1, chunk),
            (chunk, chunk * 3 + 5),
            (chunk + 2, chunk * 2 - 2),
            (chunk * 2 + 3, last),
            (last, last),
        ] {
            let ones = (start..=end).filter(|at| bit(*at)).count();
            let counted = shell.line(&format!("BITCOUNT k {start} {end} BIT"));
            assert_eq!(counted, format!(":{ones}"), "{start} {end}");
            for wanted in [false, true] {
                let first = (start..=end).find(|at| bit(*at) == wanted);
                let first = first.map_or(-1, |at| at as i64);
                let digit = u8::from(wanted);
                let found = shell.line(&format!("BITPOS k {digit} {start} {end} BIT"));
                assert_eq!(found, format!(":{first}"), "{digit} {start} {end}");
            }
        }
        if invert {
            assert_eq!(shell.line("SETBIT k 16383 1"), ":1");
        }
        for byte in &mut bytes {
            *byte = !*byte;
        }
    }
}

#[test]
fn a_count_in_slices_counts_one_version() {
    let mut shell = shell();
    let mut bytes = sparse(SLICE_BYTES_MAX * 3);
    bytes[SLICE_BYTES_MAX * 2 + 9] = 0xff;
    let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    shell.run([b"SET", &b"k"[..], &bytes]);
    let counted = shell.run_counting_slices(["BITCOUNT", "k"]);
    assert_eq!(counted, (format!(":{ones}\r\n").into_bytes(), 3));
    // A whole slice or less is counted at once.
    let counted = shell.run_counting_slices(["BITCOUNT", "k", "1048577", "-1048576"]);
    assert_eq!(counted.1, 0);
    // The other client writes where the count has not come to yet.
    let mut other = shell.connect();
    let offset = ((SLICE_BYTES_MAX * 2 + 9) * 8).to_string();
    let (reply, slices) = shell.run_between_slices(["BITCOUNT", "k", "0", "-1"], |slice| {
        if slice == 1 {
            assert_eq!(other.run(["SETBIT", "k", &offset, "0"]), b":1\r\n");
        }
    });
    assert_eq!((reply, slices), (format!(":{ones}\r\n").into_bytes(), 3));
    assert_eq!(shell.line("BITCOUNT k"), format!(":{}", ones - 1));
    // Inside a transaction nothing comes in between.
    shell.check(&[
        ("MULTI", "+OK"),
        ("BITCOUNT k", "+QUEUED"),
        ("EXEC", &format!("*1 :{}", ones - 1)),
    ]);
}

#[test]
fn large_strings_are_combined_like_short_ones() {
    let mut shell = shell();
    let first = sparse(COLUMN_FLAT_BYTES_MAX * 3 + 11);
    let second: Vec<u8> = (0..COLUMN_FLAT_BYTES_MAX * 2)
        .map(|at| (at % 253) as u8)
        .collect();
    shell.run([b"MSET", &b"a"[..], &first, b"b", &second]);
    let merged = |operation: fn(u8, u8) -> u8| -> Vec<u8> {
        let second = second.iter().copied().chain(std::iter::repeat(0));
        first
            .iter()
            .zip(second)
            .map(|(byte, other)| operation(*byte, other))
            .collect()
    };
    for (name, expected) in [
        ("AND", merged(|byte, other| byte & other)),
        ("OR", merged(|byte, other| byte | other)),
        ("XOR", merged(|byte, other| byte ^ other)),
    ] {
        for keys in [["a", "b"], ["b", "a"]] {
            let reply = shell.run(["BITOP", name, "d", keys[0], keys[1]]);
            assert_eq!(reply, format!(":{}\r\n", expected.len()).into_bytes());
            let head = format!("${}\r\n", expected.len());
            let whole = [head.as_bytes(), &expected, b"\r\n"].concat();
            assert!(shell.run(["GET", "d"]) == whole, "{name} {keys:?}");
        }
    }
}

#[test]
fn fields_of_a_large_string_meet_across_chunks() {
    let mut shell = shell();
    shell.run([b"SET", &b"k"[..], &sparse(COLUMN_FLAT_BYTES_MAX * 4)]);
    let bit = COLUMN_FLAT_BYTES_MAX * 16 - 3;
    shell.check(&[
        (&format!("BITFIELD k GET u6 {bit}"), "*1 :14"),
        (
            &format!("BITFIELD k SET u6 {bit} 42 GET u6 {bit} GET u64 0"),
            TYPE,
        ),
        (
            &format!("BITFIELD k SET u6 {bit} 42 GET u6 {bit} INCRBY u6 {bit} 30"),
            "*3 :14 :42 :8",
        ),
        (
            &format!("BITFIELD_RO k GET u6 {bit} GET u8 {}", bit + 6),
            "*2 :8 :0",
        ),
        (
            "BITFIELD k SET i16 #200000 -5 GET i16 #200000 GET i16 #199999",
            "*3 :0 :-5 :0",
        ),
        ("STRLEN k", ":400002"),
        (&format!("GETBIT k {}", bit + 2), ":1"),
        ("GETBIT k 3200000", ":1"),
        ("GETBIT k 131071", ":1"),
    ]);
}

#[test]
fn a_search_in_slices_looks_at_one_version() {
    let mut shell = Shell::new();
    shell.store(b"k", &vec![0; 3 * SLICE_BYTES_MAX + 5]);
    let missing = shell.run_counting_slices(["BITPOS", "k", "1"]);
    assert_eq!(missing, (b":-1\r\n".to_vec(), 3));
    assert_eq!(
        shell.run_counting_slices(["BITPOS", "k", "0"]),
        (b":0\r\n".to_vec(), 0)
    );
    // In the last slice, and not at its edge; found whatever is written meanwhile.
    let last = (3 * SLICE_BYTES_MAX + 4) * 8 + 6;
    shell.line(&format!("SETBIT k {last} 1"));
    let (reply, slices) = shell.run_between_slices(["BITPOS", "k", "1", "7", "-1"], |_| {});
    assert_eq!((reply, slices), (format!(":{last}\r\n").into_bytes(), 2));
    let mut other = shell.connect();
    let (reply, slices) = shell.run_between_slices(["BITPOS", "k", "1", "3"], |_| {
        let bit = (2 * SLICE_BYTES_MAX + 1) * 8;
        other.line(&format!("SETBIT k {bit} 1"));
    });
    assert_eq!((reply, slices), (format!(":{last}\r\n").into_bytes(), 3));
    // Zeros follow a string of ones, unless the range has an end.
    shell.store(b"k", &vec![0xff; SLICE_BYTES_MAX + 1]);
    let after = format!(":{}\r\n", (SLICE_BYTES_MAX + 1) * 8).into_bytes();
    assert_eq!(shell.run_counting_slices(["BITPOS", "k", "0"]), (after, 1));
    let none = shell.run_counting_slices(["BITPOS", "k", "0", "0", "-1"]);
    assert_eq!(none, (b":-1\r\n".to_vec(), 1));
}
