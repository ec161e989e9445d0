//! Joint updates beside the same commands one by one, and what others see of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_protocol::command;
use pando_protocol::{Reply, RequestBuffer, RespVersion};

use super::Answers;
use crate::commands::testing::{NoHost, Shell, client, seed, try_line, words};
use crate::{Client, Turn};

/// Executes lines in one turn as a server's loop does: neighbours with the same key together, as
/// far as they can be. Returns the replies, and how many requests were carried out together.
fn together(shell: &mut Shell, lines: &[String]) -> (Vec<Vec<u8>>, usize) {
    let requests: Vec<RequestBuffer> = lines
        .iter()
        .map(|line| RequestBuffer::from_args(words(line)))
        .collect();
    let mut state = std::mem::replace(shell.client(), Client::new(1, true));
    let mut turn = shell.turn();
    let (mut replies, mut joint, mut at) = (Vec::new(), 0, 0);
    let mut answers = Answers::default();
    while at < requests.len() {
        answers.clear();
        let joined: Vec<_> = requests[at..]
            .iter()
            .map_while(|it| {
                let request = it.as_request();
                let spec = command::resolve(request).ok()?;
                let same = request.get(1)? == requests[at].as_request().get(1)?;
                let may = same && Turn::is_joinable(spec);
                may.then(|| turn.may_join(&state, spec, request)).flatten()
            })
            .collect();
        if joined.len() > 1 {
            turn.join(state.index(), &joined, &mut answers);
            joint += answers.len();
        }
        for index in 0..answers.len().max(1) {
            let request = requests[at].as_request();
            let mut out = Vec::new();
            let mut reply = Reply::new(&mut out, state.protocol);
            let resolved = command::resolve(request);
            if answers.is_empty() {
                turn.execute(&mut state, resolved, request, &mut reply, &mut NoHost);
            } else {
                let spec = resolved.expect("it was joined");
                let answer = (&answers, index);
                turn.answer(&mut state, (spec, request), &mut reply, &mut NoHost, answer);
            }
            replies.push(out);
            at += 1;
        }
    }
    drop(turn);
    *shell.client() = state;
    (replies, joint)
}

/// A random line on one of few keys; mostly as the one before, so that runs are long.
fn line(random: &mut fastrand::Rng, last: &mut (usize, usize)) -> String {
    if random.usize(..5) == 0 {
        *last = (random.usize(..5), random.usize(..3));
    }
    let (family, key) = *last;
    let key = format!("{}{key}", ["l", "s", "h", "z", "n"][family]);
    let long = "x".repeat(if random.u8(..8) == 0 { 200 } else { 3 });
    let name = |random: &mut fastrand::Rng| match random.u8(..12) {
        0 => format!("{}", random.u16(..300)),
        _ => format!("m{}{long}", random.u16(..400)),
    };
    let (one, two) = (name(random), name(random));
    let score = ["1", "-0", "0", "2.5", "inf", "nan", "x"][random.usize(..7)];
    let kind = random.u8(..40);
    match kind {
        0 => return format!("DEL {key}"),
        1 => return format!("SET {key} text"),
        2 => return format!("PEXPIRE {key} {}", random.u16(1..300)),
        3 if family == 2 => {
            let in_ms = random.u16(1..300);
            return format!("HPEXPIRE {key} {in_ms} FIELDS 1 {one}");
        }
        3 => return format!("TYPE {key}"),
        _ => {}
    }
    match family {
        0 => match kind {
            4..7 => format!("LPOP {key}"),
            7..9 => format!("RPOP {key} {}", random.i8(-1..9)),
            9 => format!("RPUSH {key} {}", "y".repeat(17_000)),
            10 => format!("LPUSHX {key} {one}"),
            11 => format!("LPOP {key} 1 2"),
            12..15 => format!("RPOP {key}"),
            15..26 => format!("LPUSH {key} {one}"),
            _ => format!("RPUSH {key} {one} {two}"),
        },
        1 => match kind {
            4..12 => format!("SREM {key} {one}"),
            _ => format!("SADD {key} {one} {two}"),
        },
        2 => match kind {
            4..12 => format!("HDEL {key} {one}"),
            12 => format!("HSET {key} {one}"),
            13..20 => format!("HMSET {key} {one} {long}"),
            _ => format!("HSET {key} {one} {} {two} {long}", random.u8(..4)),
        },
        4 => match kind {
            4 => format!("SET {key} 9223372036854775800"),
            5 => format!("SET {key} 010"),
            6 => format!("GETSET {key} 5"),
            7..10 => format!("DECRBY {key} {one}"),
            10..13 => format!("INCRBY {key} {}", random.i16(..)),
            13 => format!("DECRBY {key} -9223372036854775808"),
            14..20 => format!("DECR {key}"),
            _ => format!("INCR {key}"),
        },
        _ => match kind {
            4..8 => format!("ZPOPMIN {key}"),
            8..10 => format!("ZPOPMAX {key}"),
            10..14 => format!("ZREM {key} {one} {two}"),
            14..17 => format!("ZADD {key} GT CH {score} {one}"),
            17 => format!("ZADD {key} INCR {score} {one}"),
            _ => format!("ZADD {key} {score} {one} {} {two}", random.u8(..5)),
        },
    }
}

/// What is at the keys.
fn state(shell: &mut Shell) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for key in keys() {
        all.push(shell.run(["DUMP", &key]));
        all.push(shell.run(["PTTL", &key]));
        all.push(shell.run(["OBJECT", "ENCODING", &key]));
    }
    all
}

fn keys() -> impl Iterator<Item = String> {
    let families = ["l", "s", "h", "z", "n"].into_iter();
    families.flat_map(|family| (0..3).map(move |number| format!("{family}{number}")))
}

/// Runs random batches on two databases, together on one and one by one on the other; returns how
/// many commands were carried out together, or the first difference.
fn compare(seed: u64, rounds: usize, mut spoil: impl FnMut(&mut Shell)) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut joint, mut alone) = (Shell::new(), Shell::new());
    let (mut last, mut carried_out) = ((0, 0), 0);
    for round in 0..rounds {
        let version = [RespVersion::Resp2, RespVersion::Resp3][random.usize(..2)];
        joint.speak(version);
        alone.speak(version);
        let count = random.usize(1..40);
        let lines: Vec<String> = (0..count).map(|_| line(&mut random, &mut last)).collect();
        let (replies, together) = together(&mut joint, &lines);
        spoil(&mut joint);
        carried_out += together;
        for (line, reply) in lines.iter().zip(replies) {
            let expected = alone.run(words(line));
            if reply != expected {
                let (reply, expected) = (reply.escape_ascii(), expected.escape_ascii());
                return Err(format!("round {round}: {line}: {reply}, not {expected}"));
            }
        }
        if state(&mut joint) != state(&mut alone) {
            return Err(format!("round {round}: other values after {lines:?}"));
        }
        let [one, other] = [&joint, &alone].map(|shell| shell.database.statistics());
        let counts = |it: &crate::Statistics| {
            (
                it.commits,
                it.keyspace_hits,
                it.keyspace_misses,
                it.expired_keys,
            )
        };
        if counts(&one) != counts(&other) {
            return Err(format!("round {round}: other counts after {lines:?}"));
        }
        let passed = random.u64(..60);
        for shell in [&mut joint, &mut alone] {
            shell.pass_ms(passed);
            // What has expired goes now. An update does away with it, also one of commands that
            // are wrong, which alone would not come so far.
            for key in keys() {
                shell.run(["HDEL", &key, "nobody"]);
            }
        }
    }
    Ok(carried_out)
}

#[test]
fn ju1_joined_commands_answer_as_if_alone() {
    let seed = seed();
    let carried_out = compare(seed, 150, |_| {}).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(carried_out > 500, "{carried_out} were carried out together");
}

/// The comparison finds an element too many.
#[test]
fn ju1_a_command_that_is_carried_out_twice_is_found() {
    let again = |shell: &mut Shell| {
        shell.run(["RPUSHX", "l0", "again"]);
    };
    assert!(compare(1, 150, again).is_err());
}

/// Large collections are changed in place, except where others may see them.
#[test]
fn large_collections_are_changed_in_place_if_nobody_sees_them() {
    let mut shell = Shell::new();
    let in_place = |shell: &Shell| {
        let mut found = None;
        shell.database.gauges(&mut |gauge| {
            if gauge.name == "rows_in_place_total" {
                found = Some(gauge.value as u64);
            }
        });
        found.expect("the engine counts them")
    };
    let mut lines = Vec::new();
    for number in 0..600 {
        shell.line(&format!("RPUSH l member:{number:012}"));
        shell.line(&format!("SADD s member:{number:012}"));
        shell.line(&format!("HSET h member:{number:012} value"));
        shell.line(&format!("ZADD z {number} member:{number:012}"));
    }
    for key in [
        "LPUSH l member:",
        "SADD s member:",
        "HDEL h member:0000000000",
        "ZADD z 0.5 member:0000000000",
    ] {
        lines.extend((10..50).map(|number| format!("{key}{number}")));
    }
    let before = in_place(&shell);
    together(&mut shell, &lines);
    assert_eq!(in_place(&shell), before + 4);
    assert_eq!(shell.line("LLEN l"), ":640");
    for (line, reply) in [
        ("LPOP l", "$9 member:49"),
        ("RPUSH l z", ":640"),
        ("RPOP l", "$1 z"),
    ] {
        assert_eq!(shell.line(line), reply);
    }
    assert_eq!(in_place(&shell), before + 7);
    let before = before + 4;
    let counts = ["SCARD s", "HLEN h", "ZCARD z", "ZCOUNT z 0.5 0.5"];
    let counted = counts.map(|line| shell.line(line));
    assert_eq!(counted, [":640", ":560", ":600", ":40"]);
    // One that changes nothing gives the row back.
    let (replies, joint) = joint_lines(&mut shell, &["HDEL h nobody", "HDEL h no-one"]);
    assert_eq!((replies, joint), (vec![":0".to_string(); 2], 2));
    assert_eq!(in_place(&shell), before + 3);
    assert_eq!(shell.line("HLEN h"), ":560");
    // So does one that is carried out alone.
    assert_eq!(shell.line("SADD s member:10"), ":0");
    assert_eq!(in_place(&shell), before + 3);
    for line in ["SREM s member:10", "SADD s member:10"] {
        assert_eq!(shell.line(line), ":1");
    }
    assert_eq!(in_place(&shell), before + 5);
    // What has no step is done by its command.
    assert_eq!(shell.line("SPOP s 0"), "*0");
    let before = in_place(&shell);
    // What a snapshot holds is copied, once.
    shell.line("SNAPSHOT CREATE past");
    for expected in [before, before + 3] {
        joint_lines(
            &mut shell,
            &["ZREM z member:000000000001", "ZADD z 7 other"],
        );
        assert_eq!(in_place(&shell), expected);
        shell.line("ZADD z 1 member:000000000001");
        shell.line("ZREM z other");
    }
    shell.line("SNAPSHOT USE past");
    let counted = counts.map(|line| shell.line(line));
    assert_eq!(counted, [":640", ":560", ":600", ":40"]);
}

fn joint_lines(shell: &mut Shell, lines: &[&str]) -> (Vec<String>, usize) {
    let lines: Vec<String> = lines.iter().map(|line| (*line).into()).collect();
    let (replies, joint) = together(shell, &lines);
    let text = |reply: Vec<u8>| {
        String::from_utf8_lossy(&reply)
            .trim_end()
            .replace("\r\n", " ")
    };
    (replies.into_iter().map(text).collect(), joint)
}

/// A key that comes and goes between two commands is a change to those who watch it.
#[test]
fn ju2_a_key_that_came_and_went_is_seen() {
    let mut shell = Shell::new();
    for (make, take) in [
        ("LPUSH k a", "LPOP k"),
        ("SADD k a", "SREM k a"),
        ("SADD k a", "SPOP k"),
        ("HSET k a 1", "HDEL k a"),
        ("ZADD k 1 a", "ZREM k a"),
        ("ZADD k 1 a", "ZPOPMIN k"),
    ] {
        let mut other = shell.connect();
        other.check(&[("WATCH k", "+OK")]);
        let (_, joint) = joint_lines(&mut shell, &[make, take]);
        assert_eq!(joint, 1, "{take} is not joined with {make}");
        assert_eq!(shell.line("EXISTS k"), ":0", "{take}");
        other.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]);
        // A key that goes and comes.
        shell.line(make);
        let mut other = shell.connect();
        other.check(&[("WATCH k", "+OK")]);
        joint_lines(&mut shell, &[take, make]);
        other.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]);
        shell.line("DEL k");
    }
}

#[test]
fn members_are_popped_together() {
    let mut shell = Shell::new();
    shell.line("SADD k a b c d");
    let (mut replies, joint) = joint_lines(&mut shell, &["SPOP k"; 6]);
    assert_eq!(joint, 6);
    replies[..4].sort();
    assert_eq!(replies, ["$1 a", "$1 b", "$1 c", "$1 d", "$-1", "$-1"]);
    assert_eq!(shell.line("EXISTS k"), ":0");
}

#[test]
fn those_who_wait_are_woken_in_order() {
    let mut shell = Shell::new();
    let woken = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&woken);
    shell
        .database
        .on_ready(move |client| told.store(client as usize, Ordering::Relaxed));
    let woken = || woken.swap(0, Ordering::Relaxed);
    let (mut one, mut two) = (client(&shell, 1), client(&shell, 2));
    for waiting in [&mut one, &mut two] {
        assert_eq!(try_line(waiting, "BLPOP k 0"), None);
    }
    let (replies, joint) = joint_lines(&mut shell, &["RPUSH k a", "RPUSH k b"]);
    assert_eq!((replies, joint), (vec![":1".into(), ":2".into()], 2));
    assert_eq!(woken(), 1);
    let answer = |of: &mut Shell| try_line(of, "BLPOP k 0");
    assert_eq!(answer(&mut one).as_deref(), Some("*2 $1 k $1 a"));
    assert_eq!(woken(), 2, "there is more");
    assert_eq!(answer(&mut two).as_deref(), Some("*2 $1 k $1 b"));
}

/// JU3 bounded: what is too large takes its usual way, and long answers end a joint update.
#[test]
fn ju3_joint_updates_are_bounded() {
    let mut shell = Shell::new();
    let large = format!("RPUSH k {}", "x".repeat(5000));
    let (_, joint) = joint_lines(&mut shell, &["RPUSH k a", &large, "RPUSH k b"]);
    assert_eq!(joint, 0);
    for _ in 0..60 {
        shell.line(&format!("RPUSH k {}", "x".repeat(4000)));
    }
    let (replies, joint) = joint_lines(&mut shell, &["RPOP k"; 40]);
    assert_eq!((replies.len(), joint), (40, 40));
    assert_eq!(shell.line("LLEN k"), ":23");
    shell.line(&format!("RPUSH k {}", "x".repeat(20_000)));
    let (replies, joint) = joint_lines(&mut shell, &["RPOP k", "RPOP k"]);
    assert_eq!((replies[0].len(), joint), (7 + 20_000, 0));
}
