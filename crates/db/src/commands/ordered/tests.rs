//! Table-driven tests, and random ranges against a `BTreeSet`.

use std::collections::BTreeSet;

use pando_engine::{Decision, HashDraft, NewValue};
use pando_protocol::RespVersion;

use crate::commands::testing::{Shell, seed};
use crate::{Options, limits};

fn store_hash(shell: &mut Shell, key: &[u8], fields: &[(&[u8], &[u8])]) {
    let written = shell.turn().keyspace(0).update(key, |_| {
        let mut draft = HashDraft::new(None);
        for (field, value) in fields {
            draft.set(field, value);
        }
        Decision::Write(NewValue::new(draft.finish()))
    });
    assert!(matches!(written, Ok(Some(_))));
}

/// Strings at "", "a", "aa", "b", "c" and a hash at "h".
fn shell() -> Shell {
    let mut shell = Shell::new();
    for (key, value) in [("", "0"), ("a", "1"), ("aa", "2"), ("b", "3"), ("c", "4")] {
        shell.store(key.as_bytes(), value.as_bytes());
    }
    store_hash(&mut shell, b"h", &[(b"f", b"x"), (b"g", b"y")]);
    shell
}

#[test]
fn a_range_holds_keys_and_values_between_its_bounds() {
    shell().check(&[
        ("KRANGE [a [b", "*2 $-1 *6 $1 a $1 1 $2 aa $1 2 $1 b $1 3"),
        ("KRANGE (a (b", "*2 $-1 *2 $2 aa $1 2"),
        ("KRANGE - (a KEYS", "*2 $-1 *1 $0 "),
        ("KRANGE [ [ KEYS", "*2 $-1 *1 $0 "),
        ("KRANGE ( [aa KEYS", "*2 $-1 *2 $1 a $2 aa"),
        ("KRANGE (b + KEYS", "*2 $-1 *2 $1 c $1 h"),
        (
            "KRANGE - + KEYS LIMIT 6",
            "*2 $-1 *6 $0  $1 a $2 aa $1 b $1 c $1 h",
        ),
        ("KRANGE [d [e", "*2 $-1 *0"),
        // The wrong way round there is nothing.
        ("KRANGE + -", "*2 $-1 *0"),
        ("KRANGE [c [a", "*2 $-1 *0"),
        ("KRANGE (a (a", "*2 $-1 *0"),
        ("KRANGE + + KEYS", "*2 $-1 *0"),
        ("KRANGE - - KEYS", "*2 $-1 *0"),
        ("SELECT 1", "+OK"),
        ("KRANGE - +", "*2 $-1 *0"),
    ]);
}

#[test]
fn a_reversed_range_begins_at_its_higher_bound() {
    shell().check(&[
        ("KRANGE [b [a REV KEYS", "*2 $-1 *3 $1 b $2 aa $1 a"),
        ("KRANGE (b (a REV KEYS", "*2 $-1 *1 $2 aa"),
        ("KRANGE + (b rev keys", "*2 $-1 *2 $1 h $1 c"),
        ("KRANGE (a - KEYS REV", "*2 $-1 *1 $0 "),
        ("KRANGE [a [b REV KEYS", "*2 $-1 *0"),
        ("KRANGE - + REV", "*2 $-1 *0"),
    ]);
}

#[test]
fn next_is_where_to_go_on_and_null_at_the_end() {
    shell().check(&[
        ("KRANGE [a + LIMIT 2", "*2 $3 (aa *4 $1 a $1 1 $2 aa $1 2"),
        ("KRANGE (aa + LIMIT 2 KEYS", "*2 $2 (c *2 $1 b $1 c"),
        ("KRANGE (c + LIMIT 2 KEYS", "*2 $-1 *1 $1 h"),
        ("KRANGE (c + LIMIT 1 KEYS", "*2 $-1 *1 $1 h"),
        // The range ends although there are more keys.
        ("KRANGE [a [aa LIMIT 2 KEYS", "*2 $-1 *2 $1 a $2 aa"),
        (
            "KRANGE + - REV LIMIT 5 KEYS",
            "*2 $2 (a *5 $1 h $1 c $1 b $2 aa $1 a",
        ),
        ("KRANGE (a - REV LIMIT 5 KEYS", "*2 $-1 *1 $0 "),
        ("KRANGE - + LIMIT 1 KEYS", "*2 $1 ( *1 $0 "),
        ("KRANGE ( + LIMIT 1 KEYS", "*2 $2 (a *1 $1 a"),
    ]);
}

#[test]
fn hashes_are_shown_whole_or_by_field() {
    let mut shell = shell();
    shell.check(&[
        (
            "KRANGE (b +",
            "*2 $-1 *4 $1 c $1 4 $1 h *4 $1 f $1 x $1 g $1 y",
        ),
        (
            "KRANGE (b + FIELDS 3 g nope f",
            "*2 $-1 *4 $1 c *3 $-1 $-1 $-1 $1 h *3 $1 y $-1 $1 x",
        ),
        ("KPREFIX h FIELDS 1 f LIMIT 1", "*2 $-1 *2 $1 h *1 $1 x"),
    ]);
    shell.speak(RespVersion::Resp3);
    shell.check(&[
        (
            "KRANGE (b +",
            "*2 _ *2 *2 $1 c $1 4 *2 $1 h %2 $1 f $1 x $1 g $1 y",
        ),
        (
            "KRANGE (b + FIELDS 2 g e",
            "*2 _ *2 *2 $1 c *2 _ _ *2 $1 h *2 $1 y _",
        ),
        ("KRANGE (b + KEYS LIMIT 1", "*2 $2 (c *1 $1 c"),
    ]);
}

#[test]
fn a_prefix_holds_the_keys_that_begin_with_it() {
    let mut shell = shell();
    shell.store(b"a\xff", b"5");
    shell.store(b"\xff\xffz", b"6");
    assert_eq!(
        shell.run(["KPREFIX", "a", "KEYS"]),
        b"*2\r\n$-1\r\n*3\r\n$1\r\na\r\n$2\r\naa\r\n$2\r\na\xff\r\n"
    );
    let request: [&[u8]; 3] = [b"KPREFIX", b"\xff", b"KEYS"];
    assert_eq!(
        shell.run(request),
        b"*2\r\n$-1\r\n*1\r\n$3\r\n\xff\xffz\r\n"
    );
    let request: [&[u8]; 4] = [b"KPREFIX", b"\xff\xff", b"KEYS", b"REV"];
    assert_eq!(
        shell.run(request),
        b"*2\r\n$-1\r\n*1\r\n$3\r\n\xff\xffz\r\n"
    );
    shell.check(&[
        ("DEL \"a\\xff\" \"\\xff\\xffz\"", ":2"),
        ("KPREFIX \"\" KEYS LIMIT 2", "*2 $2 (a *2 $0  $1 a"),
        (
            "KPREFIX \"\" KEYS LIMIT 9 REV",
            "*2 $-1 *6 $1 h $1 c $1 b $2 aa $1 a $0 ",
        ),
        ("KPREFIX a LIMIT 1", "*2 $2 (a *2 $1 a $1 1"),
        ("KPREFIX a LIMIT 1 FROM (a", "*2 $-1 *2 $2 aa $1 2"),
        ("KPREFIX a REV KEYS", "*2 $-1 *2 $2 aa $1 a"),
        ("KPREFIX a REV KEYS LIMIT 1", "*2 $3 (aa *1 $2 aa"),
        ("KPREFIX a REV KEYS FROM (aa", "*2 $-1 *1 $1 a"),
        ("KPREFIX a KEYS FROM -", "*2 $-1 *2 $1 a $2 aa"),
        ("KPREFIX a KEYS FROM +", "*2 $-1 *0"),
        ("KPREFIX a KEYS FROM [b", "*2 $-1 *0"),
        ("KPREFIX a KEYS FROM [0", "*2 $-1 *2 $1 a $2 aa"),
        ("KPREFIX a KEYS REV FROM [0", "*2 $-1 *0"),
        ("KPREFIX nope", "*2 $-1 *0"),
    ]);
}

#[test]
fn bad_arguments_are_refused_in_the_words_of_redis() {
    let bound = "-ERR min or max not valid string range item";
    let syntax = "-ERR syntax error";
    let integer = "-ERR value is not an integer or out of range";
    let positive = "-ERR value is out of range, must be positive";
    let fields = "-ERR numfields should be greater than 0";
    shell().check(&[
        ("KRANGE a +", bound),
        ("KRANGE - b", bound),
        ("KRANGE - \"\"", bound),
        ("KRANGE -a +", bound),
        ("KCOUNT a +", bound),
        ("KRANGEDEL - b", bound),
        ("KPREFIX a FROM b", bound),
        ("KRANGE - + FOO", syntax),
        ("KRANGE - + LIMIT", syntax),
        ("KRANGE - + LIMIT x", integer),
        ("KRANGE - + LIMIT 0", positive),
        ("KRANGE - + LIMIT -1", positive),
        ("KRANGE - + FIELDS", syntax),
        ("KRANGE - + FIELDS x f", fields),
        ("KRANGE - + FIELDS 0", fields),
        ("KRANGE - + FIELDS 2 f", syntax),
        ("KRANGE - + FIELDS 1 f g", syntax),
        ("KRANGE - + KEYS FIELDS 1 f", syntax),
        ("KRANGE - + FIELDS 1 f KEYS", syntax),
        ("KRANGE - + FROM -", syntax),
        ("KPREFIX a FROM", syntax),
        ("KCOUNT - + REV", syntax),
        ("KCOUNT - + LIMIT", syntax),
        ("KCOUNT - + LIMIT 0", positive),
        ("KRANGEDEL - + LIMIT x", integer),
        ("KRANGEDEL - + KEYS", syntax),
        (
            "KRANGE -",
            "-ERR wrong number of arguments for 'krange' command",
        ),
        ("KCOUNT - +", ":6"),
    ]);
}

#[test]
fn keys_are_counted_and_removed() {
    let mut shell = shell();
    shell.check(&[
        ("KCOUNT - +", ":6"),
        ("KCOUNT [a (b", ":2"),
        ("KCOUNT + -", ":0"),
        ("KCOUNT - + LIMIT 4", ":4"),
        ("KCOUNT - + LIMIT 7", ":6"),
        ("KRANGEDEL + -", "*2 $-1 :0"),
        ("KRANGEDEL [x [y", "*2 $-1 :0"),
        ("KRANGEDEL (a [b LIMIT 1", "*2 $3 (aa :1"),
        ("KRANGEDEL (aa [b LIMIT 1", "*2 $-1 :1"),
        ("KRANGE - + KEYS", "*2 $-1 *4 $0  $1 a $1 c $1 h"),
        ("MULTI", "+OK"),
        ("KCOUNT - +", "+QUEUED"),
        ("KRANGEDEL - (c", "+QUEUED"),
        ("KCOUNT - +", "+QUEUED"),
        ("EXEC", "*3 :4 *2 $-1 :2 :2"),
        ("KRANGEDEL - +", "*2 $-1 :2"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn expired_keys_are_passed_over() {
    let mut shell = shell();
    shell.check(&[("PEXPIRE a 1", ":1"), ("PEXPIRE h 1", ":1")]);
    shell.pass_ms(1);
    shell.check(&[
        ("KRANGE - + LIMIT 2 KEYS", "*2 $3 (aa *2 $0  $2 aa"),
        ("KRANGE (aa + LIMIT 2 KEYS", "*2 $-1 *2 $1 b $1 c"),
        ("KCOUNT - +", ":4"),
        ("KRANGEDEL - + LIMIT 3", "*2 $2 (b :3"),
        ("KRANGEDEL (b + LIMIT 1", "*2 $-1 :1"),
    ]);
}

#[test]
fn counting_and_removing_let_others_run_in_between() {
    let count = limits::SLICE_ENTRIES_MAX * 2 + 3;
    let mut shell = Shell::new();
    for index in 0..count {
        shell.store(format!("k{index:05}").as_bytes(), b"1");
    }
    let integer = format!(":{count}\r\n").into_bytes();
    assert_eq!(
        shell.run_counting_slices(["KCOUNT", "-", "+"]),
        (integer, 2)
    );
    let limited = shell.run_counting_slices(["KCOUNT", "-", "+", "LIMIT", "4096"]);
    assert_eq!(limited, (b":4096\r\n".to_vec(), 0));
    let (reply, slices) = shell.run_counting_slices(["KRANGEDEL", "-", "(k05000"]);
    assert_eq!((&*reply, slices), (&b"*2\r\n$-1\r\n:5000\r\n"[..], 1));
    let removed = format!("*2\r\n$-1\r\n:{}\r\n", count - 5000);
    assert_eq!(shell.run(["KRANGEDEL", "[k05000", "+"]), removed.as_bytes());
}

/// A command that has begun on a tree goes on in it, whatever number the tree has by then.
#[test]
fn slices_stay_in_the_tree_that_they_began_in() {
    let count = limits::SLICE_ENTRIES_MAX + 100;
    let filled = || {
        let mut shell = Shell::new();
        for index in 0..count {
            shell.store(format!("k{index:05}").as_bytes(), b"1");
        }
        shell.check(&[("COPY k00000 z DB 1", ":1")]);
        shell
    };
    for (request, expected) in [
        (&["KCOUNT", "-", "+"][..], format!(":{count}\r\n")),
        (
            &["KRANGEDEL", "-", "+"],
            format!("*2\r\n$-1\r\n:{count}\r\n"),
        ),
        (&["KEYS", "k*"], format!("*{count}\r\n")),
        (
            &["SCAN", "0", "COUNT", "99999"],
            format!("*2\r\n$1\r\n0\r\n*{count}\r\n"),
        ),
    ] {
        let mut shell = filled();
        let mut other = shell.connect();
        let (reply, slices) = shell.run_between_slices(request, |_| {
            other.check(&[("SWAPDB 0 1", "+OK")]);
        });
        assert!(reply.starts_with(expected.as_bytes()), "{request:?}");
        assert_eq!(slices, 1, "{request:?}");
        shell.check(&[("KRANGE - +", "*2 $-1 *2 $1 z $1 1")]);
    }
    let mut shell = filled();
    let mut other = shell.connect();
    let (reply, _) = shell.run_between_slices(["KCOUNT", "-", "+"], |_| {
        other.check(&[("FLUSHALL", "+OK")]);
    });
    // A dropped tree reads as empty.
    assert_eq!(
        reply,
        format!(":{}\r\n", limits::SLICE_ENTRIES_MAX).as_bytes()
    );
}

#[test]
fn a_reply_ends_at_its_bound_with_one_item_at_least() {
    let options = Options {
        reply_bytes_max: 1000,
        ..Options::default()
    };
    let mut shell = Shell::with_options(options);
    for (key, bytes) in [("a", 400), ("b", 400), ("c", 400), ("d", 5000), ("e", 2)] {
        shell.store(key.as_bytes(), &vec![b'x'; bytes]);
    }
    let field = vec![b'y'; 600];
    store_hash(&mut shell, b"f", &[(b"1", &field), (b"2", &field)]);
    let (mut from, mut portions) = ("-".to_owned(), Vec::new());
    loop {
        let reply = shell.run(["KRANGE", &from, "+"]);
        let (next, keys) = portion(&reply);
        portions.push(keys.concat());
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(portions, ["ab", "c", "d", "e", "f"]);
}

/// The bound to go on from and the keys of a reply, whose keys have one byte.
fn portion(reply: &[u8]) -> (Option<String>, Vec<String>) {
    let text = String::from_utf8(reply.to_vec()).expect("text");
    let mut lines = text.split("\r\n").skip(1);
    let next = match lines.next() {
        Some("$-1") => None,
        _ => lines.next().map(ToOwned::to_owned),
    };
    let keys = lines.filter(|line| line.len() == 1 && line.as_bytes()[0].is_ascii_alphabetic());
    (next, keys.map(ToOwned::to_owned).collect())
}

/// A bound as it is written.
fn random_bound(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(..8) {
        0 => b"-".to_vec(),
        1 => b"+".to_vec(),
        2..5 => [b"[", &random_key(random)[..]].concat(),
        _ => [b"(", &random_key(random)[..]].concat(),
    }
}

/// Short keys of few letters, so that ranges hold several and prefixes are shared.
fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    let letters = [0, b'a', b'b', 0xFF];
    (0..random.usize(..6))
        .map(|_| letters[random.usize(..letters.len())])
        .collect()
}

/// Whether the key lies within a lower bound.
fn above(key: &[u8], bound: &[u8]) -> bool {
    match bound {
        b"-" | b"+" => bound == b"-",
        [b'(', bound @ ..] => key > bound,
        bound => key >= &bound[1..],
    }
}

/// Whether the key lies within an upper bound.
fn below(key: &[u8], bound: &[u8]) -> bool {
    match bound {
        b"-" | b"+" => bound == b"+",
        [b'(', bound @ ..] => key < bound,
        bound => key <= &bound[1..],
    }
}

/// The first bulk strings of an encoded reply: where to go on, and the keys.
fn keys_of(reply: &[u8]) -> (Option<Vec<u8>>, Vec<Vec<u8>>) {
    let mut rest = reply;
    let mut line = || {
        let end = rest
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .expect("a line");
        let line = &rest[..end];
        rest = &rest[end + 2..];
        line.to_vec()
    };
    let number = |line: &[u8]| -> i64 {
        String::from_utf8_lossy(&line[1..])
            .parse()
            .expect("a number")
    };
    assert_eq!(line(), b"*2");
    // No key holds a line break, so a bulk string is one line.
    let next = (number(&line()) >= 0).then(&mut line);
    let count = number(&line());
    let keys = (0..count).map(|_| {
        line();
        line()
    });
    (next, keys.collect())
}

#[test]
fn portions_put_together_are_the_whole_range() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..30 {
        let mut shell = Shell::new();
        let mut all = BTreeSet::new();
        for _ in 0..random.usize(..120) {
            let key = random_key(&mut random);
            shell.store(&key, b"v");
            all.insert(key);
        }
        for _ in 0..30 {
            let (start, stop) = (random_bound(&mut random), random_bound(&mut random));
            let reverse = random.bool();
            let (lower, upper) = if reverse {
                (&stop, &start)
            } else {
                (&start, &stop)
            };
            let within = |key: &&Vec<u8>| above(key, lower) && below(key, upper);
            let mut expected: Vec<Vec<u8>> = all.iter().filter(within).cloned().collect();
            let counted = shell.run([b"KCOUNT", &lower[..], upper]);
            assert_eq!(
                counted,
                format!(":{}\r\n", expected.len()).as_bytes(),
                "seed {seed}"
            );
            if reverse {
                expected.reverse();
            }
            let (mut from, mut found) = (start.clone(), Vec::new());
            loop {
                let limit = random.usize(1..9).to_string();
                let mut request = vec![&b"KRANGE"[..], &from, &stop, b"KEYS", b"LIMIT"];
                request.push(limit.as_bytes());
                if reverse {
                    request.push(b"REV");
                }
                let (next, keys) = keys_of(&shell.run(request));
                assert!(
                    keys.len().to_string() == limit || next.is_none(),
                    "seed {seed}"
                );
                found.extend(keys);
                let Some(next) = next else { break };
                from = next;
            }
            assert_eq!(found, expected, "{start:?} {stop:?} {reverse} seed {seed}");
            let prefix = random_key(&mut random);
            let (_, found) = keys_of(&shell.run([b"KPREFIX", &prefix[..], b"KEYS"]));
            let begins = |key: &&Vec<u8>| key.starts_with(&prefix);
            let expected: Vec<_> = all.iter().filter(begins).cloned().collect();
            assert_eq!(found, expected, "{prefix:?} seed {seed}");
        }
    }
}

/// Tombstones are passed in bounded slices; a reply with *next* has at least one item.
#[test]
fn removed_and_expired_keys_are_passed_in_slices() {
    let many = 2 * limits::SLICE_ENTRIES_MAX + 10;
    for removed in [false, true] {
        let mut shell = Shell::with_options(Options::default());
        shell.database.close();
        shell.line("SET a 1");
        for key in 0..many {
            shell.line(&format!("SET k{key:06} v PX 1"));
        }
        shell.line("SET z 1");
        if removed {
            // Nobody lets the tombstones go.
            for key in 0..many {
                shell.line(&format!("DEL k{key:06}"));
            }
        } else {
            shell.pass_ms(2);
        }
        let range = |shell: &mut Shell, words: &str| {
            let (reply, slices) = shell.run_counting_slices(words.split(' '));
            let reply = String::from_utf8(reply).expect("text");
            (reply.trim_end().replace("\r\n", " "), slices)
        };
        let none = |reply: &str| (reply.to_owned(), 0);
        // One portion ends behind what it has passed, and the next one finds what is there.
        let behind = limits::SLICE_ENTRIES_MAX - 1;
        let portion = none(&format!("*2 $8 (k{behind:06} *1 $1 a"));
        assert_eq!(range(&mut shell, "KRANGE - + KEYS"), portion, "{removed}");
        let rest = ("*2 $-1 *1 $1 z".to_owned(), 1);
        let from = format!("KRANGE (k{behind:06} + KEYS");
        assert_eq!(range(&mut shell, &from), rest, "{removed}");
        let last = ("*2 $-1 *0".to_owned(), 2);
        assert_eq!(
            range(&mut shell, "KRANGE [k (l FIELDS 1 f"),
            last,
            "{removed}"
        );
        let first = ("*2 $-1 *2 $1 a $1 1".to_owned(), 2);
        let found = range(&mut shell, "KRANGE (z - REV LIMIT 1");
        assert_eq!(found, first, "{removed}");
        assert_eq!(
            range(&mut shell, "KCOUNT - +"),
            (":2".to_owned(), 2),
            "{removed}"
        );
    }
}

/// What clients see of a collection, not how it lies in its columns.
#[test]
fn collections_are_shown_by_their_members() {
    let mut shell = Shell::new();
    shell.check(&[
        ("RPUSH l b a", ":2"),
        ("SADD s b a", ":2"),
        ("ZADD z 2 a 1.5 b", ":2"),
        (
            "KRANGE - +",
            "*2 $-1 *6 $1 l *2 $1 b $1 a $1 s *2 $1 a $1 b $1 z *4 $1 b $3 1.5 $1 a $1 2",
        ),
    ]);
    // One that has both orders.
    let members: Vec<_> = (0..300)
        .map(|member| format!("{member} m{member}"))
        .collect();
    shell.line(&format!("ZADD z {}", members.join(" ")));
    let reply = shell.line("KRANGE [z +");
    assert!(
        reply.starts_with("*2 $-1 *2 $1 z *604 $2 m0 $1 0 $2 m1 $1 1 $1 b $3 1.5 "),
        "{reply}"
    );
}
