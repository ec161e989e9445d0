//! Replies of the commands on lists, random sequences against a model, and blocked clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::commands::memory_usage;
use crate::commands::testing::{Shell, client, seed, try_line};
use crate::lines::Ended;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn elements_are_pushed_and_popped() {
    Shell::new().check(&[
        ("LPUSH l b a", ":2"),
        ("RPUSH l c d", ":4"),
        ("TYPE l", "+list"),
        ("OBJECT ENCODING l", "$8 listpack"),
        ("LRANGE l 0 -1", "*4 $1 a $1 b $1 c $1 d"),
        ("LRANGE l -2 9", "*2 $1 c $1 d"),
        ("LRANGE l 3 1", "*0"),
        ("LRANGE absent 0 -1", "*0"),
        ("LLEN l", ":4"),
        ("LINDEX l -1", "$1 d"),
        ("LINDEX l 4", "$-1"),
        ("LINDEX l x", "-ERR value is not an integer or out of range"),
        ("LPOP l", "$1 a"),
        ("RPOP l 2", "*2 $1 d $1 c"),
        ("RPOP l 0", "*0"),
        ("LPOP l -1", "-ERR value is out of range, must be positive"),
        (
            "LPOP l 1 2",
            "-ERR wrong number of arguments for 'lpop' command",
        ),
        ("LPOP l 9", "*1 $1 b"),
        ("EXISTS l", ":0"),
        ("LPOP l", "$-1"),
        ("LPOP l 1", "*-1"),
        ("LPUSHX l a", ":0"),
        ("RPUSH l a", ":1"),
        ("RPUSHX l b", ":2"),
        ("LMPOP 2 absent l RIGHT COUNT 5", "*2 $1 l *2 $1 b $1 a"),
        ("LMPOP 1 l LEFT", "*-1"),
        ("LMPOP 0 l LEFT", "-ERR numkeys should be greater than 0"),
        (
            "LMPOP 1 l LEFT COUNT 0",
            "-ERR count should be greater than 0",
        ),
        ("LMPOP 2 l LEFT", "-ERR syntax error"),
        ("SET s x", "+OK"),
        ("LPUSH s a", WRONG_TYPE),
        ("LPOP s", WRONG_TYPE),
        ("LRANGE s 0 1", WRONG_TYPE),
    ]);
}

#[test]
fn elements_are_found_and_changed_inside() {
    Shell::new().check(&[
        ("RPUSH l a b c b a b", ":6"),
        ("LPOS l b", ":1"),
        ("LPOS l b RANK -1", ":5"),
        ("LPOS l b RANK 2 COUNT 0", "*2 :3 :5"),
        ("LPOS l b RANK -2 COUNT 1", "*1 :3"),
        ("LPOS l b COUNT 0 MAXLEN 2", "*1 :1"),
        ("LPOS l x", "$-1"),
        ("LPOS l x COUNT 1", "*0"),
        ("LPOS l b COUNT -1", "-ERR COUNT can't be negative"),
        ("LINSERT l BEFORE c x", ":7"),
        ("LINSERT l AFTER c y", ":8"),
        ("LINSERT l AFTER z y", ":-1"),
        ("LINSERT absent AFTER z y", ":0"),
        ("LRANGE l 1 5", "*5 $1 b $1 x $1 c $1 y $1 b"),
        ("LSET l -1 z", "+OK"),
        ("LSET l 8 z", "-ERR index out of range"),
        ("LSET absent 0 z", "-ERR no such key"),
        ("LREM l -1 b", ":1"),
        ("LREM l 0 a", ":2"),
        ("LRANGE l 0 -1", "*5 $1 b $1 x $1 c $1 y $1 z"),
        ("LTRIM l 1 -2", "+OK"),
        ("LRANGE l 0 -1", "*3 $1 x $1 c $1 y"),
        ("LTRIM l 5 9", "+OK"),
        ("EXISTS l", ":0"),
    ]);
}

#[test]
fn elements_move_between_lists() {
    Shell::new().check(&[
        ("RPUSH l a b c", ":3"),
        ("LMOVE l m LEFT RIGHT", "$1 a"),
        ("RPOPLPUSH l m", "$1 c"),
        ("LRANGE m 0 -1", "*2 $1 c $1 a"),
        ("LMOVE m m LEFT RIGHT", "$1 c"),
        ("LRANGE m 0 -1", "*2 $1 a $1 c"),
        ("LMOVE absent m LEFT RIGHT", "$-1"),
        ("SET s x", "+OK"),
        ("LMOVE l s LEFT LEFT", WRONG_TYPE),
        ("BLMOVE l m RIGHT LEFT 0", "$1 b"),
        ("EXISTS l", ":0"),
        ("BRPOPLPUSH m l 0", "$1 c"),
        ("BLPOP x l 0", "*2 $1 l $1 c"),
        ("BRPOP m 0", "*2 $1 m $1 a"),
        ("BLMPOP 0 1 m LEFT COUNT 9", "*2 $1 m *1 $1 b"),
        ("BLPOP m -1", "-ERR timeout is negative"),
        ("BLPOP m inf", "-ERR timeout is negative"),
        ("BLPOP m 1e18", "-ERR timeout is negative"),
        ("BLPOP m x", "-ERR timeout is not a float or out of range"),
        ("BLPOP s 0", WRONG_TYPE),
        ("MULTI", "+OK"),
        ("BLPOP m 0", "+QUEUED"),
        ("BLMOVE m l LEFT LEFT 0", "+QUEUED"),
        ("EXEC", "*2 *-1 $-1"),
    ]);
}

#[test]
fn lists_live_on_as_other_values_do() {
    let mut shell = Shell::new();
    shell.check(&[
        ("RPUSH l a b c", ":3"),
        ("EXPIRE l 100", ":1"),
        ("RPUSH l d", ":4"),
        ("TTL l", ":100"),
        ("COPY l m", ":1"),
        ("RENAME m n", "+OK"),
        ("LRANGE n 0 -1", "*4 $1 a $1 b $1 c $1 d"),
    ]);
    let payload = shell.run(["DUMP", "n"]);
    let start = payload
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a length")
        + 1;
    let payload = payload[start..payload.len() - 2].to_vec();
    let restored = shell.run([&b"RESTORE"[..], b"r", b"0", &payload]);
    assert_eq!(restored, b"+OK\r\n");
    shell.check(&[("LRANGE r 1 2", "*2 $1 b $1 c")]);
    let element = "x".repeat(5000);
    shell.run(["RPUSH", "q", &element, &element]);
    shell.check(&[
        ("OBJECT ENCODING q", "$9 quicklist"),
        ("LPOP r 4", "*4 $1 a $1 b $1 c $1 d"),
    ]);
}

/// Queues run through a list from either end, it grows and it shrinks, for ever: it keeps its size.
#[test]
fn a_list_that_grows_and_shrinks_for_ever_stays_small() {
    let mut shell = Shell::new();
    let many: Vec<String> = (0..300).map(|number| format!("element-{number}")).collect();
    let words = |name: &'static str| {
        [name, "l"]
            .into_iter()
            .chain(many.iter().map(String::as_str))
    };
    shell.run(words("RPUSH"));
    let mut bytes = Vec::new();
    for round in 0..12 {
        for element in &many {
            shell.run(["RPUSH", "l", element]);
            shell.line("LPOP l");
        }
        for element in &many {
            shell.run(["LPUSH", "l", element]);
            shell.line("RPOP l");
        }
        for _ in 0..10 {
            shell.run(words(["RPUSH", "LPUSH"][round % 2]));
        }
        assert_eq!(shell.line("LLEN l"), ":3300");
        shell.line(["LTRIM l 3000 -1", "LTRIM l 0 299", "LTRIM l 1500 1799"][round % 3]);
        assert_eq!(shell.line("LLEN l"), ":300");
        let used = memory_usage(&mut shell.turn().keyspace(0), b"l");
        bytes.push(used.expect("it is there"));
    }
    let most = bytes.iter().max().expect("there are rounds");
    assert!(*most <= bytes[0] * 3 / 2, "{bytes:?}");
    shell.check(&[("LTRIM l 1 0", "+OK"), ("EXISTS l", ":0")]);
}

#[test]
fn random_sequences_match_a_model() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut shell = Shell::new();
    let mut model: VecDeque<String> = VecDeque::new();
    for step in 0..6000 {
        let element = random.u8(..20).to_string();
        let len = model.len() as i64;
        let at = random.i64(-len - 2..len + 2);
        let real = usize::try_from(if at < 0 { at + len } else { at }).ok();
        let real = real.filter(|at| *at < model.len());
        match random.u8(..if step % 2000 < 1500 { 8 } else { 12 }) {
            0..3 => {
                shell.run(["LPUSH", "l", &element]);
                model.push_front(element);
            }
            3..6 => {
                shell.run(["RPUSH", "l", &element]);
                model.push_back(element);
            }
            6 => {
                shell.run(["LINSERT", "l", "BEFORE", &element, "new"]);
                if let Some(at) = model.iter().position(|it| *it == element) {
                    model.insert(at, "new".into());
                }
            }
            7 => {
                shell.run(["LSET", "l", &at.to_string(), &element]);
                if let Some(at) = real {
                    model[at] = element;
                }
            }
            8 | 9 => {
                shell.run(["RPOP", "l"]);
                model.pop_back();
            }
            10 => {
                shell.run(["LREM", "l", "1", &element]);
                if let Some(at) = model.iter().position(|it| *it == element) {
                    model.remove(at);
                }
            }
            _ => {
                shell.run(["LTRIM", "l", "1", "-2"]);
                model.pop_front();
                model.pop_back();
            }
        }
        assert_eq!(shell.line("LLEN l"), format!(":{}", model.len()), "{step}");
        if step % 97 == 0 {
            let elements: Vec<_> = model
                .iter()
                .map(|it| format!(" ${} {it}", it.len()))
                .collect();
            let expected = format!("*{}{}", model.len(), elements.concat());
            assert_eq!(shell.line("LRANGE l 0 -1"), expected, "{step}");
        }
    }
}

#[test]
fn blocked_clients_are_served_in_order() {
    const LINE: &str = "BLPOP k l 0";
    let mut shell = Shell::new();
    let woken = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&woken);
    let wake = move |client: u64| told.store(client as usize, Ordering::Relaxed);
    shell.database.on_ready(wake);
    let woken = || woken.swap(0, Ordering::Relaxed);
    let (mut one, mut two) = (client(&shell, 1), client(&shell, 2));
    assert_eq!(try_line(&mut one, LINE), None);
    assert_eq!(try_line(&mut two, LINE), None);
    // Strings, and lists at other keys, wake nobody.
    shell.check(&[("SET k x", "+OK"), ("RPUSH other x", ":1"), ("DEL k", ":1")]);
    assert_eq!(woken(), 0);
    shell.check(&[("RPUSH l a b", ":2")]);
    assert_eq!(woken(), 1);
    // BL1 present-to-the-first: whoever comes now is behind both, and so is the second one.
    let mut three = client(&shell, 3);
    assert_eq!(try_line(&mut three, "BRPOP l 0"), None);
    assert_eq!(try_line(&mut two, LINE), None);
    assert_eq!(try_line(&mut one, LINE).as_deref(), Some("*2 $1 l $1 a"));
    assert_eq!(woken(), 2, "there is more");
    assert_eq!(try_line(&mut two, LINE).as_deref(), Some("*2 $1 l $1 b"));
    assert_eq!(woken(), 0);
    // An element that somebody else takes leaves the client where it was.
    shell.check(&[("RPUSH l c", ":1"), ("LPOP l", "$1 c")]);
    assert_eq!(woken(), 3);
    assert_eq!(try_line(&mut three, "BRPOP l 0"), None);
    // By other ways than a push.
    for (index, steps) in [
        &[("RENAME other l", "+OK")][..],
        &[("RPUSH other x", ":1"), ("COPY other l", ":1")],
        &[
            ("MULTI", "+OK"),
            ("RPUSH l x", "+QUEUED"),
            ("EXEC", "*1 :1"),
        ],
        &[
            ("SELECT 1", "+OK"),
            ("RPUSH l x", ":1"),
            ("SWAPDB 0 1", "+OK"),
            ("SELECT 0", "+OK"),
        ],
    ]
    .iter()
    .enumerate()
    {
        shell.check(steps);
        assert_eq!(woken(), 3, "{index}");
        assert_eq!(
            try_line(&mut three, "BRPOP l 0").as_deref(),
            Some("*2 $1 l $1 x")
        );
        assert_eq!(try_line(&mut three, "BRPOP l 0"), None);
    }
    assert_eq!(shell.database.lines.waiting.len(), 1);
    let database = Arc::clone(&shell.database);
    database.forget(three.client());
    assert!(database.lines.waiting.is_empty());
}

#[test]
fn a_wait_ends_without_its_keys() {
    let shell = Shell::new();
    let mut one = client(&shell, 1);
    for (ended, expected) in [
        (Ended::Timeout, "*-1"),
        (
            Ended::Error,
            "-UNBLOCKED client unblocked via CLIENT UNBLOCK",
        ),
    ] {
        assert_eq!(try_line(&mut one, "BLMOVE l m LEFT LEFT 0.5"), None);
        one.client().end_wait(ended);
        let answer = try_line(&mut one, "BLMOVE l m LEFT LEFT 0.5");
        assert_eq!(answer.as_deref(), Some(expected));
        assert!(shell.database.lines.waiting.is_empty());
    }
}
