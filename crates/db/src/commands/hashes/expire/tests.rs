//! Deadlines of fields. Replies and error texts are those of Redis 7.4 and 8.0, from their
//! documentation and sources: the differential test has an older peer.

use std::collections::BTreeMap;

use pando_engine::limits::FIELD_BYTES_MAX;

use crate::commands::testing::{START_MS, Shell, seed};
use crate::limits;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_FIELDS: &str = "-ERR Mandatory argument FIELDS is missing or not at the right position";
const DIFFERS: &str = "-ERR The `numfields` parameter must match the number of arguments";

fn shell() -> Shell {
    let mut shell = Shell::new();
    shell.check(&[("HSET h a 1 b 2 c 3", ":3"), ("SET s x", "+OK")]);
    shell
}

#[test]
fn fields_expire() {
    let mut shell = shell();
    shell.check(&[
        ("HEXPIRE h 10 FIELDS 2 a none", "*2 :1 :-2"),
        ("HPEXPIRE h 20000 FIELDS 1 b", "*1 :1"),
        ("OBJECT ENCODING h", "$10 listpackex"),
        ("TYPE h", "+hash"),
        ("HTTL h FIELDS 4 a b c none", "*4 :10 :20 :-1 :-2"),
        ("HPTTL h FIELDS 1 a", "*1 :10000"),
        ("HEXPIRETIME h FIELDS 2 a c", "*2 :1700000010 :-1"),
        ("HPEXPIRETIME h FIELDS 1 b", "*1 :1700000020000"),
        ("HTTL absent FIELDS 2 a b", "*2 :-2 :-2"),
        ("HGETALL h", "*6 $1 a $1 1 $1 b $1 2 $1 c $1 3"),
        ("HRANDFIELD h 9", "*3 $1 a $1 b $1 c"),
        ("HSCAN h 0", "*2 $1 0 *6 $1 a $1 1 $1 b $1 2 $1 c $1 3"),
        ("TTL h", ":-1"),
    ]);
    shell.pass_ms(9_001);
    shell.check(&[("HTTL h FIELDS 1 a", "*1 :1"), ("HLEN h", ":3")]);
    shell.pass_ms(999);
    shell.check(&[
        ("HGET h a", "$-1"),
        ("HTTL h FIELDS 1 a", "*1 :-2"),
        ("HMGET h a b", "*2 $-1 $1 2"),
        ("HEXISTS h a", ":0"),
        ("HSTRLEN h a", ":0"),
        ("HLEN h", ":2"),
        ("HKEYS h", "*2 $1 b $1 c"),
        ("HVALS h", "*2 $1 2 $1 3"),
        ("HRANDFIELD h 5 WITHVALUES", "*4 $1 b $1 2 $1 c $1 3"),
        ("HSCAN h 0 NOVALUES", "*2 $1 0 *2 $1 b $1 c"),
        ("HDEL h a", ":0"),
        ("HPERSIST h FIELDS 1 a", "*1 :-2"),
        ("KRANGE [h [h FIELDS 2 a b", "*2 $-1 *2 $1 h *2 $-1 $1 2"),
        ("KRANGE [h [h", "*2 $-1 *2 $1 h *4 $1 b $1 2 $1 c $1 3"),
        ("SADD ids h", ":1"),
        ("SORT ids BY nosort GET *->a GET *->b", "*2 $-1 $1 2"),
        // As if it had not been there.
        ("HSETNX h a 4", ":1"),
        ("HTTL h FIELDS 1 a", "*1 :-1"),
    ]);
    shell.pass_ms(10_000);
    shell.check(&[("HGETALL h", "*4 $1 a $1 4 $1 c $1 3")]);
}

#[test]
fn conditions_are_kept() {
    shell().check(&[
        ("HEXPIRE h 100 XX FIELDS 1 a", "*1 :0"),
        ("HEXPIRE h 100 GT FIELDS 1 a", "*1 :0"),
        ("HEXPIRE h 100 NX FIELDS 1 a", "*1 :1"),
        ("HEXPIRE h 200 nx FIELDS 1 a", "*1 :0"),
        ("HEXPIRE h 100 GT FIELDS 1 a", "*1 :0"),
        ("HEXPIRE h 150 GT FIELDS 1 a", "*1 :1"),
        ("HEXPIRE h 150 LT FIELDS 1 a", "*1 :0"),
        ("HEXPIRE h 120 LT FIELDS 3 a b none", "*3 :1 :1 :-2"),
        ("HEXPIRE h 130 XX FIELDS 2 a c", "*2 :1 :0"),
        ("HTTL h FIELDS 3 a b c", "*3 :130 :120 :-1"),
        ("HPERSIST h FIELDS 3 a c none", "*3 :1 :-1 :-2"),
        ("HTTL h FIELDS 2 a b", "*2 :-1 :120"),
        // The past.
        ("HEXPIRE h 0 FIELDS 2 a none", "*2 :2 :-2"),
        ("HPEXPIREAT h 1 FIELDS 2 a b", "*2 :-2 :2"),
        ("HEXPIREAT h 5 FIELDS 1 c", "*1 :2"),
        ("EXISTS h", ":0"),
        ("HEXPIRE h 5 FIELDS 1 c", "*1 :-2"),
        ("EXISTS h", ":0"),
    ]);
}

#[test]
fn wrong_arguments_are_refused() {
    let mut shell = shell();
    shell.check(&[
        ("HEXPIRE s 1 FIELDS 1 a", WRONG_TYPE),
        ("HTTL s FIELDS 1 a", WRONG_TYPE),
        ("HPERSIST s FIELDS 1 a", WRONG_TYPE),
        ("HGETEX s FIELDS 1 a", WRONG_TYPE),
        ("HGETDEL s FIELDS 1 a", WRONG_TYPE),
        ("HSETEX s FIELDS 1 a 1", WRONG_TYPE),
        (
            "HEXPIRE h x FIELDS 1 a",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HEXPIRE h -1 FIELDS 1 a",
            "-ERR invalid expire time, must be >= 0",
        ),
        (
            "HEXPIRE h 70368744178 FIELDS 1 a",
            "-ERR invalid expire time in 'hexpire' command",
        ),
        (
            "HPEXPIREAT h 70368744177664 FIELDS 1 a",
            "-ERR invalid expire time in 'hpexpireat' command",
        ),
        ("HPEXPIREAT h 70368744177663 FIELDS 1 a", "*1 :1"),
        ("HEXPIRE h 1 ZZ FIELDS 1 a", NO_FIELDS),
        ("HEXPIRE h 1 NX XX FIELDS 1 a", NO_FIELDS),
        ("HTTL h FIELD 1 a", NO_FIELDS),
        (
            "HEXPIRE h 1 FIELDS 0 a",
            "-ERR Parameter `numFields` should be greater than 0",
        ),
        (
            "HEXPIRE h 1 FIELDS x a",
            "-ERR Parameter `numFields` should be greater than 0",
        ),
        (
            "HTTL h FIELDS 0 a",
            "-ERR Number of fields must be a positive integer",
        ),
        (
            "HGETDEL h FIELDS -1 a",
            "-ERR Number of fields must be a positive integer",
        ),
        ("HEXPIRE h 1 FIELDS 2 a", DIFFERS),
        ("HTTL h FIELDS 1 a b", DIFFERS),
        (
            "HEXPIRE h 1 FIELDS 1",
            "-ERR wrong number of arguments for 'hexpire' command",
        ),
    ]);
}

#[test]
fn wrong_arguments_of_hsetex_are_refused() {
    let mut shell = shell();
    shell.check(&[
        (
            "HSETEX h FIELDS 2 a 1",
            "-ERR wrong number of arguments for 'hsetex' command",
        ),
        ("HSETEX h FIELDS 0 a 1", "-ERR invalid number of fields"),
        (
            "HSETEX h EX 1 PX 1 FIELDS 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "HSETEX h KEEPTTL EX 1 FIELDS 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "HSETEX h FNX FXX FIELDS 1 a 1",
            "-ERR Only one of FXX or FNX arguments can be specified",
        ),
        ("HSETEX h NX FIELDS 1 a 1", "-ERR unknown argument: NX"),
        (
            "HSETEX h EX -1 FIELDS 1 a 1",
            "-ERR invalid expire time, must be >= 0",
        ),
        ("HGETEX h EX 1 PERSIST FIELDS 1 a", NO_FIELDS),
    ]);
}

#[test]
fn a_long_name_leaves_no_room_for_a_deadline() {
    let mut shell = shell();
    shell.check(&[("HEXPIRE h 100 FIELDS 1 a", "*1 :1")]);
    // A name so long leaves no room for a deadline, in any field of its hash.
    let long = "x".repeat(FIELD_BYTES_MAX);
    shell.run(["HSET", "long", &long, "1", "b", "2"]);
    let reply = shell.line("HEXPIRE long 9 FIELDS 1 b");
    assert!(reply.starts_with("-ERR field is longer than"), "{reply}");
    let reply = shell.run(["HSET", "h", &long, "1"]);
    assert!(reply.starts_with(b"-ERR field is longer than"));
    shell.check(&[("HLEN long", ":2"), ("HLEN h", ":3")]);
}

#[test]
fn fields_are_read_and_more() {
    let mut shell = shell();
    shell.check(&[
        ("HGETEX h FIELDS 2 a none", "*2 $1 1 $-1"),
        ("HGETEX h EX 10 FIELDS 2 a none", "*2 $1 1 $-1"),
        ("HGETEX h PX 5000 FIELDS 1 b", "*1 $1 2"),
        ("HTTL h FIELDS 3 a b c", "*3 :10 :5 :-1"),
        ("HGETEX h PERSIST FIELDS 1 a", "*1 $1 1"),
        ("HGETEX h EXAT 1700000100 FIELDS 1 c", "*1 $1 3"),
        ("HTTL h FIELDS 3 a b c", "*3 :-1 :5 :100"),
        ("HGETEX h PXAT 1 FIELDS 2 c c", "*2 $1 3 $-1"),
        ("HLEN h", ":2"),
        ("HGETEX absent FIELDS 1 a", "*1 $-1"),
        ("HGETDEL h FIELDS 3 a none a", "*3 $1 1 $-1 $-1"),
        ("HGETDEL absent FIELDS 1 a", "*1 $-1"),
        ("HTTL h FIELDS 1 b", "*1 :5"),
    ]);
    shell.pass_ms(5_000);
    shell.check(&[
        ("HGETDEL h FIELDS 1 b", "*1 $-1"),
        ("EXISTS h", ":0"),
        ("HSETEX h EX 10 FIELDS 2 a 1 b 2", ":1"),
        ("HSETEX h KEEPTTL FIELDS 1 a 3", ":1"),
        ("HTTL h FIELDS 2 a b", "*2 :10 :10"),
        ("HSETEX h FIELDS 1 a 4", ":1"),
        ("HTTL h FIELDS 2 a b", "*2 :-1 :10"),
        ("HSETEX h FNX FIELDS 2 c 1 a 5", ":0"),
        ("HSETEX h FXX FIELDS 2 c 1 a 5", ":0"),
        ("HGETALL h", "*4 $1 a $1 4 $1 b $1 2"),
        ("HSETEX h FNX PX 50 FIELDS 1 c 1", ":1"),
        ("HSETEX h FXX PXAT 1 FIELDS 1 c 1", ":1"),
        ("HSETEX absent FXX FIELDS 1 a 1", ":0"),
        ("HSETEX absent EXAT 1 FIELDS 1 a 1", ":1"),
        ("EXISTS absent", ":0"),
        ("HLEN h", ":2"),
        // Arithmetic keeps the deadline, a new value does not.
        ("HINCRBY h b 3", ":5"),
        ("HINCRBYFLOAT h b 0.5", "$3 5.5"),
        ("HTTL h FIELDS 1 b", "*1 :10"),
        ("HSET h b 1", ":0"),
        ("HTTL h FIELDS 1 b", "*1 :-1"),
    ]);
}

#[test]
fn a_hash_goes_with_its_last_field() {
    let mut shell = shell();
    shell.check(&[
        ("HPEXPIRE h 100 FIELDS 3 a b c", "*3 :1 :1 :1"),
        ("EXPIRE h 50", ":1"),
        ("RENAME h g", "+OK"),
        ("COPY g f", ":1"),
        ("HPTTL f FIELDS 1 a", "*1 :100"),
        ("TTL f", ":50"),
        ("SNAPSHOT CREATE then", "*3 $4 then :1700000000000 :1"),
        ("WATCH f", "+OK"),
    ]);
    shell.pass_ms(100);
    shell.check(&[
        ("EXISTS g f", ":0"),
        ("TYPE g", "+none"),
        ("KEYS *", "*1 $1 s"),
        ("HGETALL g", "*0"),
        ("HLEN g", ":0"),
        // By its time, they are there.
        ("SNAPSHOT READ then HGET g a", "$1 1"),
        ("SNAPSHOT READ then HPTTL g FIELDS 1 a", "*1 :100"),
        ("HSET g z 1", ":1"),
        ("HGETALL g", "*2 $1 z $1 1"),
        ("TTL g", ":-1"),
        ("HINCRBY f a 5", ":5"),
        ("HTTL f FIELDS 1 a", "*1 :-1"),
    ]);
}

/// In the background, a portion at a time, many of them with one deadline.
#[test]
fn passed_fields_are_removed_and_counted() {
    let fields = 3 * limits::EXPIRE_FIELDS_MAX + 5;
    let mut shell = Shell::new();
    shell.database.close();
    shell.database.set_active_expire(true);
    let names: Vec<_> = (0..fields).map(|field| format!("f{field}")).collect();
    for (key, stays) in [("h", true), ("g", false)] {
        let pairs = names.iter().flat_map(|name| [name.clone(), "1".into()]);
        let request = ["HSET".to_owned(), key.into()].into_iter().chain(pairs);
        shell.run(request.collect::<Vec<_>>());
        let head = ["HPEXPIRE", key, "10", "FIELDS", &fields.to_string()].map(String::from);
        shell.run(
            head.into_iter()
                .chain(names.iter().cloned())
                .collect::<Vec<_>>(),
        );
        if stays {
            shell.line("HSET h stays 1");
        }
    }
    assert_eq!(shell.database.expiring_keys(), 0);
    assert_eq!(shell.database.expiry.fields.len(), 2);
    shell.pass_ms(10);
    let mut session = shell.database.session().expect("a session is free");
    while session.maintain() {}
    drop(session);
    shell.check(&[("DBSIZE", ":1"), ("HGETALL h", "*2 $5 stays $1 1")]);
    let statistics = shell.database.statistics();
    assert_eq!(statistics.expired_fields, fields as u64);
    assert_eq!(statistics.expired_keys, 1);
    assert_eq!(shell.database.expiry.fields.len(), 0);
    let mut turn = shell.turn();
    let mut keyspace = turn.keyspace(0);
    let bytes = keyspace.look(b"h", |value| value.expect("it is there").heap_bytes());
    assert!(bytes < 1000, "{bytes}");
}

/// Against a model, with time passing and the background at work.
#[test]
fn random_fields_are_those_of_a_model() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut shell = Shell::new();
    shell.database.close();
    shell.database.set_active_expire(true);
    let mut session = shell.database.session().expect("a session is free");
    let mut model: BTreeMap<String, (u32, Option<u64>)> = BTreeMap::new();
    let mut now = START_MS;
    for _ in 0..4000 {
        let (field, number) = (format!("f{}", random.u32(..40)), random.u32(..1000));
        match random.u32(..9) {
            0..3 => {
                shell.line(&format!("HSET h {field} {number}"));
                model.insert(field, (number, None));
            }
            3 => {
                let there = shell.line(&format!("HDEL h {field}"));
                let removed = model.remove(&field).is_some();
                assert_eq!(there, if removed { ":1" } else { ":0" });
            }
            4..6 => {
                let reply = shell.line(&format!("HPEXPIRE h {number} FIELDS 1 {field}"));
                let expected = match model.get_mut(&field) {
                    None => "*1 :-2",
                    Some(_) if number == 0 => {
                        model.remove(&field);
                        "*1 :2"
                    }
                    Some((_, deadline)) => {
                        *deadline = Some(now + u64::from(number));
                        "*1 :1"
                    }
                };
                assert_eq!(reply, expected);
            }
            6 => {
                shell.line(&format!("HINCRBY h {field} 1"));
                model.entry(field).or_insert((0, None)).0 += 1;
            }
            7 => {
                let passed = random.u64(..100);
                shell.pass_ms(passed);
                now += passed;
                model.retain(|_, (_, deadline)| deadline.is_none_or(|at| at > now));
            }
            _ => drop(session.maintain()),
        }
        let pairs = model.iter().map(|(field, (number, _))| {
            let value = number.to_string();
            format!(" ${} {field} ${} {value}", field.len(), value.len())
        });
        let expected = format!("*{}{}", model.len() * 2, pairs.collect::<String>());
        assert_eq!(shell.line("HGETALL h"), expected);
        assert_eq!(
            shell.line("EXISTS h"),
            format!(":{}", u8::from(!model.is_empty()))
        );
    }
}
