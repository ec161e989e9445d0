//! SCAN and KEYS.

use std::collections::BTreeSet;

use crate::commands::testing::{Shell, seed};
use crate::{EngineKind, Options, limits};

/// A reply of SCAN, taken apart.
fn scanned(reply: &[u8]) -> (String, Vec<String>) {
    let text = String::from_utf8(reply.to_vec()).expect("text");
    let mut lines = text
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']));
    let cursor = lines.next().expect("a cursor").to_owned();
    (
        cursor,
        lines
            .filter(|line| !line.is_empty())
            .map(ToOwned::to_owned)
            .collect(),
    )
}

fn scan(shell: &mut Shell, cursor: &str, options: &[&str]) -> (String, Vec<String>) {
    let request = [&["SCAN", cursor], options].concat();
    scanned(&shell.run(request))
}

/// All keys that SCAN shows, and how many calls it took.
fn scan_all(shell: &mut Shell, options: &[&str]) -> (Vec<String>, usize) {
    let (mut cursor, mut found, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (next, keys) = scan(shell, &cursor, options);
        found.extend(keys);
        calls += 1;
        cursor = next;
        if cursor == "0" {
            return (found, calls);
        }
    }
}

fn numbered(count: usize) -> Shell {
    let mut shell = Shell::new();
    for index in 0..count {
        shell.store(format!("k{index:05}").as_bytes(), b"1");
    }
    shell
}

#[test]
fn a_scan_shows_every_key_once_in_order() {
    let mut shell = numbered(95);
    let (keys, calls) = scan_all(&mut shell, &[]);
    let expected: Vec<String> = (0..95).map(|index| format!("k{index:05}")).collect();
    assert_eq!((keys, calls), (expected.clone(), 10));
    for count in ["1", "7", "94", "95", "96", "9223372036854775807"] {
        let (keys, _) = scan_all(&mut shell, &["COUNT", count]);
        assert_eq!(keys, expected, "COUNT {count}");
    }
    assert_eq!(scan_all(&mut shell, &["COUNT", "95"]).1, 1);
    assert_eq!(scan_all(&mut Shell::new(), &[]), (Vec::new(), 1));
}

#[test]
fn arguments_are_checked_as_redis_does() {
    let mut shell = numbered(1);
    shell.check(&[
        ("SCAN 00", "*2 $1 0 *1 $6 k00000"),
        ("SCAN \"\"", "*2 $1 0 *1 $6 k00000"),
        ("SCAN x COUNT 0", "-ERR invalid cursor"),
        ("SCAN \" 5\"", "-ERR invalid cursor"),
        ("SCAN 18446744073709551616", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN 0 COUNT -5", "-ERR syntax error"),
        (
            "SCAN 0 COUNT x",
            "-ERR value is not an integer or out of range",
        ),
        ("SCAN 0 COUNT", "-ERR syntax error"),
        ("SCAN 0 FOO x", "-ERR syntax error"),
        ("SCAN 0 TYPE foo", "*2 $1 0 *0"),
        ("SCAN 0 TYPE STRING", "*2 $1 0 *1 $6 k00000"),
        ("SCAN 0 TYPE hash", "*2 $1 0 *0"),
        ("SCAN 0 MATCH * MATCH b*", "*2 $1 0 *0"),
        ("SCAN 0 MATCH K*", "*2 $1 0 *0"),
        ("SCAN 0 match k* count 5", "*2 $1 0 *1 $6 k00000"),
    ]);
}

/// Redis answers 0 and no keys, which hides that the scan is not complete.
#[test]
fn an_unknown_cursor_is_refused() {
    let mut shell = numbered(20);
    let unknown =
        "-ERR unknown cursor: too old, or given out for another database; begin again with 0";
    shell.check(&[("SCAN 5", unknown), ("SCAN -1", unknown)]);
    let (cursor, _) = scan(&mut shell, "0", &[]);
    shell.check(&[("SELECT 1", "+OK"), (&format!("SCAN {cursor}"), unknown)]);
    shell.check(&[("SWAPDB 0 1", "+OK")]);
    // The cursor has followed its tree.
    assert_eq!(scan(&mut shell, &cursor, &[]).1.len(), 10);
    shell.check(&[("FLUSHALL", "+OK"), (&format!("SCAN {cursor}"), unknown)]);
}

#[test]
fn a_cursor_is_good_for_any_connection_and_more_than_once() {
    let mut shell = numbered(20);
    let (cursor, first) = scan(&mut shell, "0", &[]);
    let rest = scan(&mut shell.connect(), &cursor, &[]);
    assert_eq!((first.len(), rest.1.len(), &*rest.0), (10, 10, "0"));
    assert_eq!(scan(&mut shell, &cursor, &[]), rest);
    // Options may change between calls, and the key that the cursor names may go.
    shell.check(&[("DEL k00009", ":1")]);
    assert_eq!(
        scan(&mut shell, &cursor, &["MATCH", "k0001[0-4]"]).1.len(),
        5
    );
    assert_eq!(scan(&mut shell, &cursor, &["MATCH", "k00009*"]).1.len(), 0);
    assert_eq!(
        scan(&mut shell, &cursor, &["MATCH", "a*"]),
        ("0".to_owned(), Vec::new())
    );
}

#[test]
fn a_call_looks_at_no_more_than_count_entries_whatever_it_shows() {
    let mut shell = numbered(100);
    for index in 0..100 {
        let line = format!("PEXPIRE k{index:05} 10");
        assert_eq!(shell.line(&line), ":1");
    }
    shell.store(b"z", b"1");
    shell.pass_ms(10);
    assert_eq!(
        scan_all(&mut shell, &["COUNT", "20"]),
        (vec!["z".to_owned()], 6)
    );
    assert_eq!(scan_all(&mut numbered(100), &["MATCH", "*99"]).1, 10);
    // The pattern's prefix says where to look.
    assert_eq!(
        scan_all(&mut numbered(100), &["MATCH", "k0009*", "COUNT", "11"]).1,
        1
    );
}

#[test]
fn a_large_count_is_worked_off_in_slices() {
    let count = limits::SLICE_ENTRIES_MAX * 2 + 5;
    let mut shell = numbered(count);
    let (reply, slices) = shell.run_counting_slices(["SCAN", "0", "COUNT", "1000000"]);
    let (cursor, keys) = scanned(&reply);
    assert_eq!((&*cursor, keys.len(), slices), ("0", count, 2));
    let (reply, slices) = shell.run_counting_slices(["KEYS", "*"]);
    assert_eq!((reply.starts_with(b"*8197\r\n"), slices), (true, 2));
    let (reply, slices) = shell.run_counting_slices(["KEYS", "k0000?"]);
    assert_eq!((reply.starts_with(b"*10\r\n"), slices), (true, 0));
    shell.check(&[
        ("MULTI", "+OK"),
        ("KEYS k00003", "+QUEUED"),
        ("EXEC", "*1 *1 $6 k00003"),
    ]);
}

#[test]
fn random_key_finds_the_one_that_is_alive() {
    let dead = limits::SLICE_ENTRIES_MAX + 5;
    let mut shell = Shell::new();
    for index in 0..dead {
        shell.line(&format!("SET k{index:05} 1 PX 1"));
    }
    shell.store(b"last", b"1");
    shell.pass_ms(1);
    let mut walked = 0;
    for _ in 0..20 {
        let (reply, slices) = shell.run_counting_slices(["RANDOMKEY"]);
        assert_eq!(reply, b"$4\r\nlast\r\n");
        walked += slices;
    }
    assert!((1..=20).contains(&walked), "{walked}");
    shell.check(&[
        ("MULTI", "+OK"),
        ("RANDOMKEY", "+QUEUED"),
        ("EXEC", "*1 $4 last"),
        ("DEL last", ":1"),
        ("RANDOMKEY", "$-1"),
    ]);
}

/// A table that is nearly empty is not looked through in one go.
#[test]
fn random_key_gives_way_in_a_nearly_empty_table() {
    for engine in EngineKind::in_memory() {
        let mut shell = Shell::with_options(Options {
            engine,
            ..Options::default()
        });
        let removed = 4 * limits::SLICE_ENTRIES_MAX;
        for index in 0..removed {
            shell.store(format!("k{index:05}").as_bytes(), b"1");
        }
        shell.store(b"last", b"1");
        for index in 0..removed {
            shell.line(&format!("DEL k{index:05}"));
        }
        let (reply, slices) = shell.run_counting_slices(["RANDOMKEY"]);
        assert_eq!(reply, b"$4\r\nlast\r\n");
        let looked = removed.div_ceil(limits::SLICE_ENTRIES_MAX) + 1;
        assert!(slices <= looked, "{engine:?}: {slices} slices");
    }
}

#[test]
fn a_reply_of_scan_ends_at_its_bound() {
    let mut shell = Shell::with_options(Options {
        reply_bytes_max: 100,
        ..Options::default()
    });
    for index in 0..30 {
        shell.store(format!("k{index:05}").as_bytes(), b"1");
    }
    let (cursor, keys) = scan(&mut shell, "0", &["COUNT", "1000"]);
    assert!(cursor != "0" && keys.len() == 9, "{cursor} {keys:?}");
    assert_eq!(scan_all(&mut shell, &["COUNT", "1000"]).0.len(), 30);
}

#[test]
fn keys_shows_what_matches() {
    let mut shell = Shell::new();
    for key in ["", "a", "ab", "b", "[x", "*"] {
        shell.store(key.as_bytes(), b"1");
    }
    shell.check(&[
        ("KEYS *", "*6 $0  $1 * $2 [x $1 a $2 ab $1 b"),
        ("KEYS \"\"", "*1 $0 "),
        ("KEYS a*", "*2 $1 a $2 ab"),
        ("KEYS **", "*5 $1 * $2 [x $1 a $2 ab $1 b"),
        ("KEYS [ab]", "*2 $1 a $1 b"),
        ("KEYS \\[*", "*1 $2 [x"),
        ("KEYS \\*", "*1 $1 *"),
        ("KEYS ?", "*3 $1 * $1 a $1 b"),
        ("KEYS nope", "*0"),
        ("PEXPIRE ab 1", ":1"),
    ]);
    shell.pass_ms(1);
    shell.check(&[
        ("KEYS a*", "*1 $1 a"),
        ("SCAN 0 MATCH a*", "*2 $1 0 *1 $1 a"),
    ]);
}

/// Keys come and go while the scan goes on; those that stay are shown.
#[test]
fn whatever_is_there_throughout_is_shown() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..20 {
        let mut shell = Shell::new();
        let staying: BTreeSet<String> = (0..random.usize(1..200))
            .map(|_| format!("s{}", random.u16(..2000)))
            .collect();
        for key in &staying {
            shell.store(key.as_bytes(), b"1");
        }
        let passing = |random: &mut fastrand::Rng| format!("s{}x", random.u16(..2000));
        let (mut cursor, mut shown) = ("0".to_owned(), BTreeSet::new());
        loop {
            for _ in 0..random.usize(..30) {
                let key = passing(&mut random);
                if random.bool() {
                    shell.store(key.as_bytes(), b"1");
                } else {
                    shell.run(["DEL", &key]);
                }
            }
            let count = random.usize(1..20).to_string();
            let (next, keys) = scan(&mut shell, &cursor, &["COUNT", &count]);
            for key in keys {
                assert!(shown.insert(key), "shown twice");
            }
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert!(staying.is_subset(&shown), "seed {seed}");
    }
}
