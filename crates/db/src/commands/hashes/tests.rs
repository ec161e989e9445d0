//! The rules of the commands on hashes. Replies and error texts are those of Redis 7.0.15.

mod scan;

use std::collections::{BTreeMap, BTreeSet};

use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_engine::{Attributes, Body, Deadline, Decision, NewValue, ValueRef};
use pando_protocol::RespVersion;

use crate::Options;
use crate::commands::testing::{START_MS, Shell, seed};
use crate::encoding::HASHTABLE;

/// Those of Redis.
const LISTPACK_ENTRIES_MAX: usize = 512;
const LISTPACK_ITEM_BYTES_MAX: usize = 64;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

fn attributes(shell: &mut Shell, key: &str) -> Attributes {
    let mut turn = shell.turn();
    let mut keyspace = turn.keyspace(0);
    keyspace.look(key.as_bytes(), |value| value.expect("a value").attributes)
}

/// A string at `s`.
fn set_string(shell: &mut Shell) {
    let write = |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::string(b"v")));
    shell
        .turn()
        .keyspace(0)
        .update(b"s", write)
        .expect("a short key");
}

#[test]
fn fields_are_set_and_read() {
    Shell::new().check(&[
        ("HSET h b 2 a 1", ":2"),
        ("HSET h a 3 c 4 c 5", ":1"),
        ("HMSET h d 6 e 7", "+OK"),
        ("HGET h a", "$1 3"),
        ("HGET h none", "$-1"),
        ("HGET none a", "$-1"),
        ("HMGET h c none a", "*3 $1 5 $-1 $1 3"),
        ("HMGET none a b", "*2 $-1 $-1"),
        ("HLEN h", ":5"),
        ("HLEN none", ":0"),
        ("HEXISTS h a", ":1"),
        ("HEXISTS h none", ":0"),
        ("HEXISTS none a", ":0"),
        ("HSET h long twelve-bytes", ":1"),
        ("HSTRLEN h long", ":12"),
        ("HSTRLEN h none", ":0"),
        ("HSTRLEN none a", ":0"),
    ]);
}

#[test]
fn whole_hashes_come_in_byte_order() {
    let mut shell = Shell::new();
    shell.check(&[
        ("HSET h b 2 a 1 \"\" 0 \"\\xff\" 3", ":4"),
        ("HDEL h \"\\xff\"", ":1"),
        ("HGETALL h", "*6 $0  $1 0 $1 a $1 1 $1 b $1 2"),
        ("HKEYS h", "*3 $0  $1 a $1 b"),
        ("HVALS h", "*3 $1 0 $1 1 $1 2"),
        ("HGETALL none", "*0"),
        ("HKEYS none", "*0"),
        ("HVALS none", "*0"),
    ]);
    shell.speak(RespVersion::Resp3);
    shell.check(&[
        ("HGETALL h", "%3 $0  $1 0 $1 a $1 1 $1 b $1 2"),
        ("HKEYS h", "*3 $0  $1 a $1 b"),
        ("HVALS h", "*3 $1 0 $1 1 $1 2"),
        ("HGETALL none", "%0"),
        ("HKEYS none", "*0"),
        ("HVALS none", "*0"),
        ("HGET h none", "_"),
        ("HMGET none a", "*1 _"),
    ]);
}

#[test]
fn pairs_must_be_complete() {
    let mut shell = Shell::new();
    set_string(&mut shell);
    shell.check(&[
        (
            "HSET h f",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        (
            "HSET h f v g",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        (
            "HMSET h f v g",
            "-ERR wrong number of arguments for 'hmset' command",
        ),
        (
            "HSET s f v g",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        ("HLEN h", ":0"),
    ]);
}

#[test]
fn a_string_is_no_hash() {
    let mut shell = Shell::new();
    set_string(&mut shell);
    for line in [
        "HSET s f v",
        "HMSET s f v",
        "HSETNX s f v",
        "HDEL s f",
        "HGET s f",
        "HMGET s f",
        "HGETALL s",
        "HKEYS s",
        "HVALS s",
        "HLEN s",
        "HEXISTS s f",
        "HSTRLEN s f",
        "HINCRBY s f 1",
        "HINCRBYFLOAT s f 1",
        "HRANDFIELD s",
        "HRANDFIELD s 0",
        "HRANDFIELD s 1 WITHVALUES",
        "HSCAN s 0",
        "HSCAN s 0 COUNT x",
    ] {
        assert_eq!(shell.line(line), WRONG_TYPE, "{line}");
    }
    // What is wrong with the arguments is said first.
    shell.check(&[
        (
            "HINCRBY s f x",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HRANDFIELD s x",
            "-ERR value is not an integer or out of range",
        ),
        ("HRANDFIELD s 1 x", "-ERR syntax error"),
    ]);
}

#[test]
fn a_field_is_set_only_if_absent() {
    Shell::new().check(&[
        ("HSETNX h f 1", ":1"),
        ("HSETNX h f 2", ":0"),
        ("HSETNX h g 3", ":1"),
        ("HMGET h f g", "*2 $1 1 $1 3"),
    ]);
}

/// H1 no-empty-hash.
#[test]
fn the_last_field_takes_the_key_with_it() {
    Shell::new().check(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HDEL h none", ":0"),
        ("HDEL none a", ":0"),
        ("HDEL h a none a b", ":2"),
        ("DBSIZE", ":1"),
        ("HDEL h c a", ":1"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn integers_are_added() {
    Shell::new().check(&[
        ("HINCRBY h f 5", ":5"),
        ("HINCRBY h f -7", ":-2"),
        ("HGET h f", "$2 -2"),
        (
            "HINCRBY h f x",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HINCRBY h f 9223372036854775808",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HSET h g \"1 \" n 9223372036854775807 m -9223372036854775808 zero 007",
            ":4",
        ),
        ("HINCRBY h g 1", "-ERR hash value is not an integer"),
        ("HINCRBY h zero 1", "-ERR hash value is not an integer"),
        (
            "HINCRBY h n 1",
            "-ERR increment or decrement would overflow",
        ),
        (
            "HINCRBY h m -1",
            "-ERR increment or decrement would overflow",
        ),
        ("HINCRBY h n -1", ":9223372036854775806"),
        ("HINCRBY h n 0", ":9223372036854775806"),
        ("HLEN h", ":5"),
    ]);
}

#[test]
fn fractions_are_added() {
    let mut shell = Shell::new();
    shell.check(&[
        ("HINCRBYFLOAT h f 10.5", "$4 10.5"),
        ("HINCRBYFLOAT h f 0.1", "$4 10.6"),
        ("HINCRBYFLOAT h f -5.6", "$1 5"),
        ("HGET h f", "$1 5"),
        ("HINCRBYFLOAT h f 2.0e2", "$3 205"),
        ("HSET h z 3.0e3 s \" 1\" e \"\" i inf", ":4"),
        ("HINCRBYFLOAT h z 0.1", "$22 3000.10000000000000009"),
        ("HINCRBYFLOAT h s 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT h e 1", "-ERR hash value is not a float"),
        (
            "HINCRBYFLOAT h i 1",
            "-ERR increment would produce NaN or Infinity",
        ),
        ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
        (
            "HINCRBYFLOAT h f -Infinity",
            "-ERR value is NaN or Infinity",
        ),
        ("HINCRBYFLOAT h f nan", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT h f x", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT h f \"\"", "-ERR value is not a valid float"),
        ("HLEN h", ":5"),
    ]);
    let largest = shell.line("HINCRBYFLOAT h big 1.1e4932");
    assert!(largest.starts_with("$4933 1"), "{largest}");
    let beyond = "-ERR increment would produce NaN or Infinity";
    assert_eq!(shell.line("HINCRBYFLOAT h big 1.1e4932"), beyond);
    shell.speak(RespVersion::Resp3);
    shell.check(&[("HINCRBYFLOAT h f 0.5", "$5 205.5")]);
}

/// H2 attributes-stay.
#[test]
fn a_change_keeps_the_deadline() {
    let mut shell = Shell::new();
    shell.line("HSET h a 1 b 2");
    let deadline = Some(Deadline(START_MS + 1000));
    let set = |old: Option<ValueRef<'_>>| {
        let old = old.expect("the hash");
        let attributes = Attributes {
            deadline,
            flags: 7,
            ..old.attributes
        };
        let body = old.deep_copy().body;
        Decision::Write(NewValue::new(body).with(attributes))
    };
    shell
        .turn()
        .keyspace(0)
        .update(b"h", set)
        .expect("a short key");
    for line in [
        "HSET h a 2",
        "HSET h c 3",
        "HDEL h a",
        "HSETNX h d 4",
        "HINCRBY h b 1",
        "HINCRBYFLOAT h b 1",
    ] {
        shell.line(line);
        let Attributes {
            deadline: kept,
            flags,
            ..
        } = attributes(&mut shell, "h");
        assert_eq!((kept, flags), (deadline, 7), "{line}");
    }
    shell.pass_ms(1000);
    shell.check(&[("HGETALL h", "*0"), ("HSET h z 1", ":1"), ("HLEN h", ":1")]);
    assert_eq!(attributes(&mut shell, "h"), Attributes::default());
}

/// H3 encoding-stays.
#[test]
fn the_encoding_remembers_a_conversion() {
    let short = "v".repeat(LISTPACK_ITEM_BYTES_MAX);
    let long = "v".repeat(LISTPACK_ITEM_BYTES_MAX + 1);
    let mut shell = Shell::new();
    let mut encoding_after = |lines: &[String]| {
        shell.line("FLUSHALL");
        for line in lines {
            assert!(!shell.line(line).starts_with('-'), "{line}");
        }
        attributes(&mut shell, "h").encoding
    };
    let fields = |count: usize| {
        (0..count).fold(String::from("HSET h"), |line, field| {
            format!("{line} {field} v")
        })
    };
    let line = str::to_owned;
    assert_eq!(encoding_after(&[format!("HSET h {short} {short}")]), 0);
    assert_eq!(encoding_after(&[format!("HSET h f {long}")]), HASHTABLE);
    assert_eq!(encoding_after(&[format!("HSETNX h {long} v")]), HASHTABLE);
    assert_eq!(encoding_after(&[format!("HINCRBY h {long} 1")]), HASHTABLE);
    assert_eq!(encoding_after(&[fields(LISTPACK_ENTRIES_MAX)]), 0);
    assert_eq!(
        encoding_after(&[fields(LISTPACK_ENTRIES_MAX + 1)]),
        HASHTABLE
    );
    // Kept: HSETNX of a long value that is not set, and a duplicate that is overwritten.
    assert_eq!(
        encoding_after(&[line("HSET h f v"), format!("HSETNX h f {long}")]),
        0
    );
    assert_eq!(encoding_after(&[format!("HSET h f {long} f v")]), HASHTABLE);
    // Never back.
    let shrunk = [
        format!("HSET h f {long} g v"),
        line("HDEL h f"),
        line("HSET h g w"),
    ];
    assert_eq!(encoding_after(&shrunk), HASHTABLE);
    let reborn = [
        format!("HSET h f {long}"),
        line("HDEL h f"),
        line("HSET h f v"),
    ];
    assert_eq!(encoding_after(&reborn), 0);
}

#[test]
fn a_new_hash_of_several_fields_has_the_last_value_of_each() {
    let mut shell = Shell::new();
    shell.check(&[
        ("HSET h c 1 a 2 b 3 a 4", ":3"),
        ("HGETALL h", "*6 $1 a $1 4 $1 b $1 3 $1 c $1 1"),
        ("HMSET h d 5 a 6", "+OK"),
        ("HGETALL h", "*8 $1 a $1 6 $1 b $1 3 $1 c $1 1 $1 d $1 5"),
        ("HSET t b 1 a 2", ":2"),
        ("HGETALL t", "*4 $1 a $1 2 $1 b $1 1"),
    ]);
    // More than fit in a small one, as many as are tried at once and beyond.
    for count in [200, 1024, 1025, 3000] {
        let pairs = (0..count).fold(String::new(), |pairs, field| format!("{pairs} {field} v"));
        shell.check(&[(&format!("HSET many:{count}{pairs}"), &format!(":{count}"))]);
        shell.check(&[
            (&format!("HLEN many:{count}"), &format!(":{count}")),
            (&format!("HGET many:{count} 199"), "$1 v"),
        ]);
    }
}

/// H3 encoding-stays, when a value replaces one that is as long.
#[test]
fn a_value_in_its_place_converts_too() {
    let long = |byte: &str| byte.repeat(LISTPACK_ITEM_BYTES_MAX + 1);
    let mut shell = Shell::new();
    shell.line(&format!("HSET h f {} g 1", long("v")));
    // As a hash of another server's, or of other thresholds.
    let forget = |old: Option<ValueRef<'_>>| {
        let body = old.expect("the hash").deep_copy().body;
        Decision::Write(NewValue::new(body))
    };
    shell
        .turn()
        .keyspace(0)
        .update(b"h", forget)
        .expect("a short key");
    shell.check(&[("HSET h g 2", ":0")]);
    assert_eq!(attributes(&mut shell, "h").encoding, 0);
    shell.check(&[(&format!("HSET h f {}", long("w")), ":0")]);
    assert_eq!(attributes(&mut shell, "h").encoding, HASHTABLE);
    shell.check(&[
        (&format!("HMSET h f {}", long("x")), "+OK"),
        ("HMGET h g f", &format!("*2 $1 2 $65 {}", long("x"))),
    ]);
}

#[test]
fn names_and_values_have_bounds() {
    let options = Options {
        value_bytes_max: 8,
        ..Options::default()
    };
    let mut shell = Shell::with_options(options);
    let longest = "f".repeat(pando_engine::limits::FIELD_BYTES_MAX);
    let too_long = format!("{longest}f");
    let refused = "-ERR field is longer than field_bytes_max (65537 bytes, at most 65536)\r\n";
    for command in ["HSET", "HMSET", "HSETNX", "HINCRBY", "HINCRBYFLOAT"] {
        assert_eq!(
            shell.run([command, "h", &too_long, "1"]),
            refused.as_bytes(),
            "{command}"
        );
    }
    assert_eq!(shell.run(["HSET", "h", "a", "1", &longest, "2"]), b":2\r\n");
    assert_eq!(shell.run(["HGET", "h", &longest]), b"$1\r\n2\r\n");
    for command in ["HGET", "HSTRLEN", "HEXISTS", "HDEL", "HMGET"] {
        let reply = shell.run([command, "h", &too_long]);
        assert!(!reply.starts_with(b"-"), "{command}");
    }
    shell.check(&[
        ("HSET h f 12345678", ":1"),
        (
            "HSET h g 1 f 123456789",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        (
            "HSETNX h g 123456789",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        ("HMGET h f g", "*2 $8 12345678 $-1"),
    ]);
}

#[test]
fn random_fields_have_the_shapes_of_redis() {
    let mut shell = Shell::new();
    shell.check(&[
        ("HSET h f v", ":1"),
        ("HRANDFIELD h", "$1 f"),
        ("HRANDFIELD h 1", "*1 $1 f"),
        ("HRANDFIELD h 5 withvalues", "*2 $1 f $1 v"),
        ("HRANDFIELD h -3", "*3 $1 f $1 f $1 f"),
        ("HRANDFIELD h -2 WITHVALUES", "*4 $1 f $1 v $1 f $1 v"),
        ("HRANDFIELD h 0", "*0"),
        ("HRANDFIELD h 0 WITHVALUES", "*0"),
        ("HRANDFIELD none", "$-1"),
        ("HRANDFIELD none 5", "*0"),
        ("HRANDFIELD none -5 WITHVALUES", "*0"),
        ("HRANDFIELD h 9223372036854775807", "*1 $1 f"),
        (
            "HRANDFIELD h x",
            "-ERR value is not an integer or out of range",
        ),
        ("HRANDFIELD h 1 values", "-ERR syntax error"),
        ("HRANDFIELD h 1 WITHVALUES x", "-ERR syntax error"),
        (
            "HRANDFIELD h -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ),
        (
            "HRANDFIELD h 9223372036854775807 WITHVALUES",
            "-ERR value is out of range",
        ),
        (
            "HRANDFIELD h -4611686018427387904 WITHVALUES",
            "-ERR value is out of range",
        ),
    ]);
    shell.speak(RespVersion::Resp3);
    shell.check(&[
        ("HRANDFIELD h", "$1 f"),
        ("HRANDFIELD h 2", "*1 $1 f"),
        ("HRANDFIELD h 2 WITHVALUES", "*1 *2 $1 f $1 v"),
        ("HRANDFIELD h -2 WITHVALUES", "*2 *2 $1 f $1 v *2 $1 f $1 v"),
        ("HRANDFIELD none", "_"),
        ("HRANDFIELD none 5 WITHVALUES", "*0"),
    ]);
}

#[test]
fn large_values_are_kept_whole() {
    let mut shell = Shell::new();
    let large = |byte: &str| byte.repeat(COLUMN_FLAT_BYTES_MAX * 3 + 1);
    let (first, second) = (large("a"), large("b"));
    assert_eq!(
        shell.run(["HSET", "h", "x", &first, "s", "1", "y", &second]),
        b":3\r\n"
    );
    assert_eq!(shell.run(["HSETNX", "h", "z", &second]), b":1\r\n");
    for (field, value) in [("x", &first), ("y", &second), ("z", &second)] {
        let expected = format!("${}\r\n{value}\r\n", value.len());
        assert_eq!(
            shell.run(["HGET", "h", field]),
            expected.as_bytes(),
            "{field}"
        );
    }
    shell.check(&[
        ("HGET h s", "$1 1"),
        ("HSTRLEN h x", ":49153"),
        ("HINCRBY h x 1", "-ERR hash value is not an integer"),
        ("HINCRBYFLOAT h x 1", "-ERR hash value is not a float"),
    ]);
}

/// A short request must not ask for more than there is memory.
#[test]
fn a_reply_of_random_fields_has_a_bound() {
    let mut shell = Shell::new();
    let value = "v".repeat(1024 * 1024);
    assert_eq!(shell.run(["HSET", "h", "f", &value]), b":1\r\n");
    assert!(
        shell
            .line("HRANDFIELD h -60 WITHVALUES")
            .starts_with("*120 $1 f $1048576 v")
    );
    let refused = "-ERR the reply would be longer than 67108864 bytes";
    shell.check(&[
        ("HRANDFIELD h -4611686018427387903 WITHVALUES", refused),
        ("HRANDFIELD h -3", "*3 $1 f $1 f $1 f"),
    ]);
}

/// The bulk strings of a reply, none of which is empty or looks like a header.
fn bulks(reply: &str) -> Vec<&str> {
    let words = reply.split(' ');
    words
        .filter(|word| !word.starts_with(['*', '$', '%']))
        .collect()
}

#[test]
fn random_fields_are_distinct_and_reach_every_field() {
    let mut shell = Shell::with_options(Options {
        seed: 1,
        ..Options::default()
    });
    let names: Vec<_> = (0..100).map(|field| format!("f{field}")).collect();
    let pairs = names
        .iter()
        .map(|name| format!("{name} {name}"))
        .collect::<Vec<_>>()
        .join(" ");
    shell.line(&format!("HSET h {pairs}"));
    for count in [1, 2, 10, 24, 25, 60, 99, 100, 200] {
        let mut seen = BTreeSet::new();
        for _ in 0..2000 / count.min(100) {
            let reply = shell.line(&format!("HRANDFIELD h {count}"));
            let fields: BTreeSet<_> = bulks(&reply).into_iter().map(str::to_owned).collect();
            assert_eq!(fields.len(), count.min(100), "distinct");
            seen.extend(fields);
        }
        assert_eq!(
            seen,
            names.iter().cloned().collect(),
            "of {count}, every field is picked"
        );
        let with_values = shell.line(&format!("HRANDFIELD h {count} WITHVALUES"));
        let with_values = bulks(&with_values);
        assert_eq!(with_values.len(), count.min(100) * 2);
        assert!(with_values.chunks(2).all(|pair| pair[0] == pair[1]));
    }
    let repeated = shell.line("HRANDFIELD h -2000");
    let repeated = bulks(&repeated);
    assert_eq!(repeated.len(), 2000);
    assert_eq!(repeated.into_iter().collect::<BTreeSet<_>>().len(), 100);
}

/// Every state that a seeded random sequence reaches is that of a map.
#[test]
fn a_hash_is_a_map() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for (fields, value_bytes_max) in [(6, 4), (200, 60), (2000, 40), (12, 40_000)] {
        let mut shell = Shell::new();
        let mut map: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..1500 {
            let field = format!("{}", random.usize(..fields));
            let value = random
                .char('a'..='z')
                .to_string()
                .repeat(random.usize(..value_bytes_max));
            match random.u8(..10) {
                0..4 => {
                    let other = format!("{}", random.usize(..fields));
                    let before = map.len();
                    map.insert(field.clone(), value.clone());
                    map.insert(other.clone(), String::from("v"));
                    let reply = shell.run(["HSET", "h", &field, &value, &other, "v"]);
                    assert_eq!(reply, format!(":{}\r\n", map.len() - before).into_bytes());
                }
                4 => {
                    let absent = !map.contains_key(&field);
                    let reply = shell.run(["HSETNX", "h", &field, &value]);
                    assert_eq!(reply, format!(":{}\r\n", u8::from(absent)).into_bytes());
                    map.entry(field).or_insert(value);
                }
                5..7 => {
                    let removed = map.remove(&field).is_some();
                    let reply = shell.line(&format!("HDEL h {field}"));
                    assert_eq!(reply, format!(":{}", u8::from(removed)));
                }
                7 => {
                    let value = map.get(&field);
                    let length = value.map_or(0, String::len);
                    assert_eq!(
                        shell.line(&format!("HSTRLEN h {field}")),
                        format!(":{length}")
                    );
                    let reply = shell.line(&format!("HGET h {field}"));
                    let expected = value.map_or("$-1".to_owned(), |value| {
                        format!("${} {value}", value.len())
                    });
                    assert_eq!(reply, expected);
                }
                8 => assert_eq!(shell.line("HLEN h"), format!(":{}", map.len())),
                _ if random.u8(..20) == 0 => {
                    let expected = map
                        .iter()
                        .fold(format!("*{}", map.len() * 2), |text, pair| {
                            let (field, value) = pair;
                            format!("{text} ${} {field} ${} {value}", field.len(), value.len())
                        });
                    assert_eq!(shell.line("HGETALL h"), expected);
                    assert_eq!(
                        shell.line("DBSIZE"),
                        format!(":{}", u8::from(!map.is_empty()))
                    );
                }
                _ => {}
            }
        }
    }
}
