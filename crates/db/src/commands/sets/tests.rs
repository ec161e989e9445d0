//! Replies of the commands on sets, their encodings, and random sequences against a model.

use std::collections::BTreeSet;

use crate::commands::testing::{Shell, seed};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members_come_and_go() {
    Shell::new().check(&[
        ("SADD s b a b", ":2"),
        ("SADD s a", ":0"),
        ("TYPE s", "+set"),
        ("SCARD s", ":2"),
        ("SMEMBERS s", "*2 $1 a $1 b"),
        ("SISMEMBER s a", ":1"),
        ("SISMEMBER s c", ":0"),
        ("SMISMEMBER s a c b", "*3 :1 :0 :1"),
        ("SMISMEMBER absent a", "*1 :0"),
        ("SREM s a c", ":1"),
        ("SREM s b", ":1"),
        ("EXISTS s", ":0"),
        ("SCARD s", ":0"),
        ("SMEMBERS s", "*0"),
        ("SET string x", "+OK"),
        ("SADD string a", WRONG_TYPE),
        ("SMEMBERS string", WRONG_TYPE),
        ("SADD s a", ":1"),
        ("HGET s a", WRONG_TYPE),
        ("GET s", WRONG_TYPE),
        ("EXPIRE s 100", ":1"),
        ("SADD s b", ":1"),
        ("TTL s", ":100"),
        ("RENAME s t", "+OK"),
        ("COPY t u", ":1"),
        ("SMEMBERS u", "*2 $1 a $1 b"),
    ]);
}

#[test]
fn a_member_moves_as_a_whole() {
    Shell::new().check(&[
        ("SADD one a b", ":2"),
        ("SMOVE one two c", ":0"),
        ("SMOVE one two a", ":1"),
        ("SMOVE one one b", ":1"),
        ("SMOVE absent two b", ":0"),
        ("SMEMBERS two", "*1 $1 a"),
        ("SMOVE one two b", ":1"),
        ("EXISTS one", ":0"),
        ("SET string x", "+OK"),
        ("SMOVE absent string a", ":0"),
        ("SMOVE two string a", WRONG_TYPE),
        ("SMOVE string two a", WRONG_TYPE),
    ]);
}

#[test]
fn sets_are_made_of_sets() {
    Shell::new().check(&[
        ("SADD a 1 2 3 4", ":4"),
        ("SADD b 2 3 x", ":3"),
        ("SADD c 3 y", ":2"),
        ("SINTER a b c", "*1 $1 3"),
        ("SINTER a absent", "*0"),
        ("SUNION b c absent", "*4 $1 2 $1 3 $1 x $1 y"),
        ("SDIFF a b c", "*2 $1 1 $1 4"),
        ("SDIFF absent a", "*0"),
        ("SINTERSTORE d a b", ":2"),
        ("SMEMBERS d", "*2 $1 2 $1 3"),
        ("OBJECT ENCODING d", "$6 intset"),
        ("SUNIONSTORE a a c", ":5"),
        ("OBJECT ENCODING a", "$8 listpack"),
        ("SDIFFSTORE d d d", ":0"),
        ("EXISTS d", ":0"),
        ("SET string x", "+OK"),
        ("SUNION absent string", WRONG_TYPE),
        ("SINTER absent string", WRONG_TYPE),
        ("SDIFFSTORE string a b", ":3"),
        ("SINTERCARD 2 a b", ":2"),
        ("SINTERCARD 2 a b LIMIT 1", ":1"),
        ("SINTERCARD 2 a b LIMIT 0", ":2"),
        ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0"),
        (
            "SINTERCARD 3 a b",
            "-ERR Number of keys can't be greater than number of args",
        ),
        ("SINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative"),
        ("SINTERCARD 1 a b", "-ERR syntax error"),
    ]);
}

#[test]
fn random_members_are_members() {
    let mut shell = Shell::new();
    shell.check(&[
        ("SRANDMEMBER s", "$-1"),
        ("SPOP s", "$-1"),
        ("SPOP s 1", "*0"),
        ("SADD s a b c", ":3"),
        ("SRANDMEMBER s 5", "*3 $1 a $1 b $1 c"),
        ("SRANDMEMBER s 0", "*0"),
        ("SPOP s -1", "-ERR value is out of range, must be positive"),
        ("SPOP s x", "-ERR value is out of range, must be positive"),
        ("SPOP s 0", "*0"),
        ("SPOP s 1 2", "-ERR syntax error"),
    ]);
    let reply = shell.line("SRANDMEMBER s -4");
    assert!(reply.starts_with("*4 "), "{reply}");
    let popped = shell.line("SPOP s 2");
    assert!(popped.starts_with("*2 "), "{popped}");
    let last = shell.line("SRANDMEMBER s");
    assert_eq!(shell.line("SPOP s"), last);
    assert_eq!(shell.line("EXISTS s"), ":0");
}

#[test]
fn the_encoding_is_that_of_redis() {
    let mut shell = Shell::new();
    let numbers = |count: usize| {
        let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        numbers.join(" ")
    };
    let mut encoding_after = |lines: &[String]| {
        shell.line("DEL s");
        for line in lines {
            shell.line(line);
        }
        let encoding = shell.line("OBJECT ENCODING s");
        encoding.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let add = |members: &str| format!("SADD s {members}");
    for (lines, encoding) in [
        (vec![add("1 2")], "intset"),
        (vec![add("1 01")], "listpack"),
        (vec![add("a"), add("1"), "SREM s a".into()], "listpack"),
        (vec![add(&numbers(512))], "intset"),
        (vec![add(&numbers(512)), add("x")], "hashtable"),
        (vec![add(&numbers(512)), add("512")], "hashtable"),
        (vec![add(&numbers(513))], "hashtable"),
        (vec![add(&numbers(127)), add("x")], "listpack"),
        (vec![add(&numbers(128)), add("x")], "hashtable"),
        (vec![add(&"x".repeat(64))], "listpack"),
        (vec![add(&"x".repeat(65))], "hashtable"),
    ] {
        assert_eq!(encoding_after(&lines), encoding, "{lines:?}");
    }
}

#[test]
fn a_scan_shows_every_member_once() {
    let mut shell = Shell::new();
    let mut expected = BTreeSet::new();
    for number in 0..1000 {
        let member = format!("member{number}");
        shell.line(&format!("SADD s {member}"));
        expected.insert(member);
    }
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = shell.line(&format!("SSCAN s {cursor} COUNT 70"));
        let words: Vec<&str> = reply
            .split(' ')
            .filter(|word| !word.starts_with(['*', '$']))
            .collect();
        found.extend(words[1..].iter().map(|word| (*word).to_owned()));
        words[0].clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    shell.check(&[
        ("SSCAN absent 0", "*2 $1 0 *0"),
        ("SADD t a b", ":2"),
        ("SSCAN t 0 MATCH b* COUNT 1", "*2 $1 0 *1 $1 b"),
        (
            "SSCAN t 0 NOVALUES",
            "-ERR NOVALUES option can only be used in HSCAN",
        ),
    ]);
}

#[test]
fn sets_are_those_of_a_model() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut shell = Shell::new();
    let mut models = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
    for _ in 0..3000 {
        let (one, other) = (random.usize(..3), random.usize(..3));
        // A wide set at times: a member has up to 40 bytes.
        let member = format!("{:0width$}", random.u32(..400), width = random.usize(1..40));
        match random.u32(..10) {
            0..5 => {
                let new = models[one].insert(member.clone());
                assert_eq!(
                    shell.line(&format!("SADD {one} {member}")),
                    format!(":{}", u8::from(new))
                );
            }
            5 => {
                let there = models[one].remove(&member);
                assert_eq!(
                    shell.line(&format!("SREM {one} {member}")),
                    format!(":{}", u8::from(there))
                );
            }
            6 => {
                let size = models[one].intersection(&models[other]).count();
                assert_eq!(
                    shell.line(&format!("SINTERCARD 2 {one} {other}")),
                    format!(":{size}")
                );
            }
            7 => {
                let all = models[one].union(&models[other]).cloned().collect();
                shell.line(&format!("SUNIONSTORE {one} {one} {other}"));
                models[one] = all;
            }
            8 => {
                let rest = models[one].difference(&models[other]).cloned().collect();
                shell.line(&format!("SDIFFSTORE {one} {one} {other}"));
                models[one] = rest;
            }
            _ => {
                let reply = shell.line(&format!("SPOP {one}"));
                if let Some((_, popped)) = reply.split_once(' ') {
                    assert!(models[one].remove(popped), "{popped}");
                }
            }
        }
        assert_eq!(
            shell.line(&format!("SCARD {one}")),
            format!(":{}", models[one].len())
        );
    }
    for (one, model) in models.iter().enumerate() {
        let reply = shell.line(&format!("SMEMBERS {one}"));
        let found: Vec<&str> = reply
            .split(' ')
            .skip(1)
            .filter(|word| !word.starts_with('$'))
            .collect();
        let expected: Vec<&str> = model.iter().map(String::as_str).collect();
        assert_eq!(found, expected);
    }
}
