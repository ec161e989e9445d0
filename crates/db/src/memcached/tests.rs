//! Commands by their answers, beside RESP's on the same keys.

mod chosen;
mod snapshots;

use crate::clock::Microseconds;
use pando_protocol::Decoded;
use pando_protocol::memcached::{Decoder, DecoderLimits, Line, Reply, Verb};

use super::MemcachedHost;
use crate::commands::testing::Shell;
use crate::{Client, EvictionPolicy, Options, Progress, Turn, Wait};

/// A host without figures that knows one password.
struct Host;

impl MemcachedHost for Host {
    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> bool {
        user == b"default" && password == b"secret word"
    }

    fn stats(&mut self, turn: &mut Turn<'_>, _: Line<'_>, reply: &mut Reply<'_>) {
        for (name, value) in turn.database().memcached_figures().iter() {
            if value > 0 {
                reply.stat(name, value);
            }
        }
        reply.line("END");
    }

    fn set_max_memory(&mut self, turn: &mut Turn<'_>, bytes: usize) {
        turn.database().set_max_memory(bytes);
    }

    fn version(&self) -> &'static str {
        "1"
    }

    fn starting(&mut self, _: Verb, _: Line<'_>) {}

    fn finished(&mut self, _: Verb, _: Line<'_>, _: usize, _: bool) {}
}

/// What these requests are answered, line ends as `|`.
fn ask_as(shell: &mut Shell, client: &mut Client, requests: &str) -> String {
    let item_bytes_max = shell.database.options().item_bytes_max;
    let mut decoder = Decoder::new(DecoderLimits::of_items(item_bytes_max));
    let input = requests.replace('|', "\r\n").into_bytes();
    let (mut out, mut from, mut ranges) = (Vec::new(), 0, Vec::new());
    while let Ok(Decoded::Request { end, .. }) = decoder.next(&input, from, &mut ranges) {
        let line = Line::of_ranges(&input, &ranges);
        let mut turn = shell.session.turn();
        let outcome = turn.execute_memcached(
            client,
            line.verb(),
            line,
            &mut Reply::new(&mut out),
            &mut Host,
        );
        match outcome {
            Progress::Close => out.extend_from_slice(b"(closed)"),
            Progress::Waits(Wait::Leave { .. }) => out.extend_from_slice(b"(paused)"),
            _ => {}
        }
        ranges.clear();
        from = end;
    }
    String::from_utf8_lossy(&out).replace("\r\n", "|")
}

fn ask(shell: &mut Shell, requests: &str) -> String {
    ask_as(shell, &mut Client::new(9, true), requests)
}

/// Asks line by line and compares.
fn check(shell: &mut Shell, dialogue: &[(&str, &str)]) {
    for (request, answer) in dialogue {
        assert_eq!(ask(shell, &format!("{request}|")), *answer, "{request}");
    }
}

/// The token of a key.
fn token(shell: &mut Shell, key: &str) -> String {
    let answer = ask(shell, &format!("mg {key} c|"));
    answer
        .trim_start_matches("HD c")
        .trim_end_matches('|')
        .into()
}

#[test]
fn items_are_stored_under_conditions() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("replace k 0 0 1|x", "NOT_STORED|"),
            ("append k 0 0 1|x", "NOT_STORED|"),
            ("cas k 0 0 1 1|x", "NOT_FOUND|"),
            ("add k 7 0 1|x", "STORED|"),
            ("add k 0 0 1|y", "NOT_STORED|"),
            ("append k 9 9 1|y", "STORED|"),
            ("prepend k 9 9 1|w", "STORED|"),
            ("get k nope k", "VALUE k 7 3|wxy|VALUE k 7 3|wxy|END|"),
            ("cas k 0 0 1 1|x", "EXISTS|"),
            ("set k 0 0 1 noreply|x", ""),
            ("get k", "VALUE k 0 1|x|END|"),
            ("set k 0 0 1|xx", "CLIENT_ERROR bad data chunk|ERROR|"),
            ("set k 0 -1 1|y", "STORED|"),
            ("get k", "END|"),
            ("delete k", "NOT_FOUND|"),
        ],
    );
    let stored = ask(&mut shell, "set k 0 0 1|x|");
    let cas = token(&mut shell, "k");
    assert_eq!(stored, "STORED|");
    assert_eq!(
        ask(&mut shell, "gets k|"),
        format!("VALUE k 0 1 {cas}|x|END|")
    );
    assert_eq!(ask(&mut shell, &format!("cas k 0 0 1 {cas}|y|")), "STORED|");
    assert_eq!(ask(&mut shell, &format!("cas k 0 0 1 {cas}|z|")), "EXISTS|");
}

#[test]
fn what_is_too_large_takes_its_predecessor_along() {
    let mut shell = Shell::with_options(Options {
        item_bytes_max: 5,
        ..Options::default()
    });
    let large = "SERVER_ERROR object too large for cache|";
    check(
        &mut shell,
        &[
            ("set k 0 0 3|abc", "STORED|"),
            ("append k 0 0 3|abc", "NOT_STORED|"),
            ("get k", "VALUE k 0 3|abc|END|"),
            ("add k 0 0 6|abcdef|mn", &format!("{large}MN|")),
            ("get k", "VALUE k 0 3|abc|END|"),
            ("set k 0 0 6 noreply|abcdef|mn", "MN|"),
            ("get k", "END|"),
            ("ms k 6 q|abcdef", large),
            ("set k 0 0 1|x|ms k 6 ME|abcdef", &format!("STORED|{large}")),
            ("get k", "END|"),
            ("set k 0 0 1|x|ms k 6 MA|abcdef", &format!("STORED|{large}")),
            ("get k", "END|"),
        ],
    );
}

#[test]
fn numbers_move_within_64_bits_and_keep_their_place() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("incr n 1", "NOT_FOUND|"),
            ("set n 5 0 2|99", "STORED|"),
            ("incr n 1", "100|"),
            ("decr n 1", "99|"),
            ("get n", "VALUE n 5 3|99 |END|"),
            ("decr n 1000", "0|"),
            ("get n", "VALUE n 5 3|0  |END|"),
            ("incr n 18446744073709551615", "18446744073709551615|"),
            ("incr n 1", "0|"),
            ("incr n -1", "CLIENT_ERROR invalid numeric delta argument|"),
            ("set n 0 0 1|x", "STORED|"),
            (
                "incr n 1",
                "CLIENT_ERROR cannot increment or decrement non-numeric value|",
            ),
            ("ma m v", "NF|"),
            ("ma m N0 J5 v t", "VA 1 t-1|5|"),
            ("ma m D6 v", "VA 2|11|"),
            ("ma m MD D12 v", "VA 1|0|"),
            ("ma m q", ""),
            ("ma m C1 k Oa", "EX km Oa|"),
        ],
    );
}

#[test]
fn expiry_is_set_and_told() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("set k 0 10 1|x", "STORED|"),
            ("mg k t", "HD t10|"),
            ("touch k 20", "TOUCHED|"),
            ("mg k t", "HD t20|"),
            ("gat 30 k nope", "VALUE k 0 1|x|END|"),
            ("mg k t T40", "HD t40|"),
            ("mg k t", "HD t40|"),
            ("ms k 1 T50 F3|y", "HD|"),
            ("mg k t f s v", "VA 1 t50 f3 s1|y|"),
        ],
    );
    shell.pass_ms(50_000);
    check(
        &mut shell,
        &[
            ("get k", "END|"),
            ("mg k k Oz", "EN kk Oz|"),
            ("mg k q k Oz", ""),
            ("touch k 1", "NOT_FOUND|"),
        ],
    );
}

/// Every way to meet an item that is past its time, and some that do not.
#[test]
fn items_past_their_time_are_counted_where_they_are_met() {
    let mut shell = Shell::new();
    shell.database.set_active_expire(false);
    let met = |shell: &Shell| {
        let figures = shell.database.memcached_figures();
        let found = figures.iter().find(|(name, _)| *name == "get_expired");
        found.expect("it is told").1
    };
    let meet = |shell: &mut Shell, request: &str| {
        ask(shell, "set k 0 1 1|1|set l 0 1 1|1|");
        shell.pass_ms(1000);
        let before = met(shell);
        ask(shell, &format!("{request}|"));
        met(shell) - before
    };
    for (request, expected) in [
        ("get k", 1),
        ("gets k", 1),
        ("get k l nope", 2),
        ("gat 5 k l nope", 2),
        ("gats 0 k", 1),
        ("mg k v", 1),
        ("mg k T5", 1),
        ("mg k N5 v", 1),
        ("me k", 1),
        ("touch k 5", 1),
        ("delete k", 1),
        ("incr k 1", 1),
        ("decr k 1", 1),
        ("set k 0 0 1|2", 1),
        ("add k 0 0 1|2", 1),
        ("append k 0 0 1|2", 1),
        ("cas k 0 0 1 1|2", 1),
        ("ms k 1|2", 1),
        ("md k", 1),
        ("ma k", 1),
        ("get nope", 0),
        ("mn", 0),
        ("touch nope 5", 0),
    ] {
        assert_eq!(meet(&mut shell, request), expected, "{request}");
    }
    // RESP's own meetings are not memcached's, and a reset is a reset.
    ask(&mut shell, "set k 0 1 1|1|");
    let before = met(&shell);
    shell.pass_ms(1000);
    shell.check(&[("GET k", "$-1"), ("INCR k", ":1")]);
    assert_eq!(met(&shell), before);
    shell.database.reset_memcached();
    assert_eq!(met(&shell), 0);
}

/// What changes nothing goes on in a pause of writes.
#[test]
fn a_pause_holds_back_what_changes_something() {
    let mut shell = Shell::new();
    ask(&mut shell, "set k 0 0 1|x|set stale 0 0 1|x|md stale I|");
    shell.database.pause(Microseconds::MAX, false);
    check(
        &mut shell,
        &[
            ("mg k v", "VA 1|x|"),
            ("mg new v", "EN|"),
            ("mg stale", "HD X|"),
            ("me new", "EN|"),
        ],
    );
    for request in [
        "mg new N0 v|",
        "mg k T9|",
        "mg k R9|",
        "ma new N0|",
        "gat 0 k|",
        "touch k 0|",
    ] {
        assert_eq!(ask(&mut shell, request), "(paused)", "{request}");
    }
    shell.database.unpause();
    check(
        &mut shell,
        &[
            ("mg stale", "HD X W|"),
            ("mg stale", "HD Z X|"),
            ("mg new", "EN|"),
        ],
    );
}

/// A touch that changes nothing draws no version.
#[test]
fn the_same_expiry_keeps_the_token() {
    let mut shell = Shell::new();
    ask(&mut shell, "set k 0 0 1|x|");
    let cas = token(&mut shell, "k");
    check(
        &mut shell,
        &[("touch k 0", "TOUCHED|"), ("gat 0 k", "VALUE k 0 1|x|END|")],
    );
    assert_eq!(token(&mut shell, "k"), cas);
    check(&mut shell, &[("touch k 9", "TOUCHED|")]);
    assert_ne!(token(&mut shell, "k"), cas);
}

#[test]
fn one_client_is_told_to_renew() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("mg k N30 t v", "VA 0 t30 W||"),
            ("mg k N30 v", "VA 0 Z||"),
            ("mg k s t", "HD s0 t30 Z|"),
            ("ms k 2 T100|hi", "HD|"),
            ("mg k v", "VA 2|hi|"),
            ("mg k R50 t", "HD t100|"),
            ("mg k R150 t", "HD t100 W|"),
            ("mg k R150 t", "HD t100 Z|"),
            ("touch k 0", "TOUCHED|"),
            ("ms k 2|hi", "HD|"),
            ("mg k R150 T100 t", "HD t100|"),
            ("mg k T100 R150 t", "HD t100 W|"),
            ("md k I T60", "HD|"),
            ("mg k t", "HD t60 X W|"),
            ("mg k t", "HD t60 Z X|"),
            ("append k 0 0 1|!", "STORED|"),
            ("mg k v t", "VA 3 t60|hi!|"),
            ("md k I", "HD|"),
            ("ms k 1 I C1 T9 F2|x", "HD|"),
            ("mg k v t f", "VA 1 t60 f2 X W|x|"),
            ("ms k 1 I C18446744073709551615|y", "EX|"),
            ("md k x", "HD|"),
            ("mg k v f", "VA 0 f0 Z X||"),
            ("md k C1", "EX|"),
            ("md k q", ""),
            ("md k q", "NF|"),
        ],
    );
}

#[test]
fn keys_in_base_64_are_the_keys_they_say() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("ms AAE= 1 b k|x", "HD kAAE= b|"),
            ("mg AAE= b k v", "VA 1 kAAE= b|x|"),
            ("mg Zm9v b k", "EN kZm9v b|"),
            ("mg Y b", "CLIENT_ERROR error decoding key|"),
            ("ms Y 1 b|x|mn", "CLIENT_ERROR error decoding key|MN|"),
        ],
    );
    assert_eq!(shell.run([&b"GET"[..], b"\0\x01"]), b"$1\r\nx\r\n");
}

#[test]
fn resp_and_memcached_share_the_keys() {
    let mut shell = Shell::new();
    let hash = "SERVER_ERROR the value is a hash, which memcached commands do not read|";
    check(&mut shell, &[("set k 7 100 2|41", "STORED|")]);
    shell.check(&[
        ("GET k", "$2 41"),
        ("TTL k", ":100"),
        ("INCR k", ":42"),
        ("HSET h f v", ":1"),
    ]);
    check(
        &mut shell,
        &[
            ("mg k v f t", "VA 2 f0 t100|42|"),
            ("get h", hash),
            ("get k h k", "VALUE k 0 2|42|VALUE k 0 2|42|END|"),
            ("gat 100 h k", "VALUE k 0 2|42|END|"),
            ("mg h v", hash),
            ("gat 0 h", hash),
            ("append h 0 0 1|x", hash),
            ("incr h 1", hash),
            ("md h I", hash),
            ("touch h 60", "TOUCHED|"),
        ],
    );
    shell.check(&[("TTL h", ":60"), ("SET k 5", "+OK")]);
    check(
        &mut shell,
        &[
            ("get k", "VALUE k 0 1|5|END|"),
            ("md k I", "HD|"),
            ("set h 0 0 1|x", "STORED|"),
            ("delete h", "DELETED|"),
        ],
    );
    // The state of an item does not show, and goes with the next write.
    shell.check(&[("OBJECT ENCODING k", "$3 int"), ("APPEND k 6", ":2")]);
    check(&mut shell, &[("mg k v", "VA 2|56|")]);
}

#[test]
fn everything_is_flushed_now_or_later() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("set k 0 0 1|x", "STORED|"),
            ("flush_all 2592001", "OK|"),
            ("get k", "VALUE k 0 1|x|END|"),
            ("flush_all -1", "OK|"),
            ("get k", "END|"),
            ("set k 0 0 1|x", "STORED|"),
            ("flush_all", "OK|"),
            ("get k", "END|"),
            ("flush_all 10", "OK|"),
            ("set k 0 0 1|x", "STORED|"),
            ("get k", "VALUE k 0 1|x|END|"),
        ],
    );
    shell.pass_ms(10_000);
    shell.session.maintain();
    check(
        &mut shell,
        &[("get k", "END|"), ("set k 0 0 1|x", "STORED|")],
    );
    shell.session.maintain();
    check(&mut shell, &[("flush_all 5", "OK|")]);
    // It is a write, and waits for the end of a pause.
    let end_us = shell.database.options().clock.now() + Microseconds(9_000_000);
    shell.database.pause(end_us, false);
    shell.pass_ms(5000);
    shell.session.maintain();
    check(&mut shell, &[("get k", "VALUE k 0 1|x|END|")]);
    shell.pass_ms(4000);
    shell.session.maintain();
    check(
        &mut shell,
        &[("get k", "END|"), ("set k 0 0 1|x", "STORED|")],
    );
    check(&mut shell, &[("get k", "VALUE k 0 1|x|END|")]);
}

#[test]
fn a_password_is_a_stored_item() {
    let mut shell = Shell::new();
    let mut client = Client::new(1, false);
    let unauthenticated = "CLIENT_ERROR unauthenticated|";
    let format = "CLIENT_ERROR bad authentication token format|";
    for (requests, answer) in [
        ("get k|", unauthenticated),
        (
            "set k 0 0 14|default secret|",
            "CLIENT_ERROR authentication failure|",
        ),
        (
            "set k 0 0 14 noreply|default secret|",
            "CLIENT_ERROR authentication failure|",
        ),
        ("set k 0 0 3|a b|", "CLIENT_ERROR authentication failure|"),
        ("set k 0 0 3|abc|", format),
        ("set k 0 0 0||", format),
        ("set k 0 0 8|default |", format),
        ("set k 0 0 4| abc|", format),
        ("mn|", unauthenticated),
        ("version|", unauthenticated),
        ("quit|", unauthenticated),
        ("set|", unauthenticated),
        ("set k 0 0 x|", unauthenticated),
        ("set k 0 0 -1|", unauthenticated),
        ("flush_all noreply|", unauthenticated),
        ("set k 0 0 19 noreply|default secret word|", "STORED|"),
        ("get k|mn|", "END|MN|"),
        ("quit|", "(closed)"),
    ] {
        assert_eq!(
            ask_as(&mut shell, &mut client, requests),
            answer,
            "{requests}"
        );
    }
}

#[test]
fn memory_is_bounded() {
    let mut shell = Shell::with_options(Options {
        memory: || 9 * 1024 * 1024,
        ..Options::default()
    });
    check(
        &mut shell,
        &[
            ("set k 0 0 1|x", "STORED|"),
            (
                "cache_memlimit 7",
                "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m|",
            ),
            ("cache_memlimit 8", "OK|"),
            (
                "set k 0 0 1|x",
                "SERVER_ERROR out of memory storing object|",
            ),
            ("get k", "END|"),
            ("mg k N0 v", "EN|"),
            ("mg k N0 v q", ""),
            ("ma k N0", "SERVER_ERROR Out of memory allocating new item|"),
            (
                "ma k N0 q",
                "SERVER_ERROR Out of memory allocating new item|",
            ),
            ("incr k 1", "NOT_FOUND|"),
            ("ma k", "NF|"),
            // Not so much as the number itself is in the way.
            ("cache_memlimit 100", "OK|"),
            ("set n 0 0 2|98", "STORED|"),
            ("cache_memlimit 8", "OK|"),
            ("incr n 1", "99|"),
            ("incr n 1", "SERVER_ERROR out of memory|"),
            ("ma n v", "SERVER_ERROR out of memory|"),
            ("touch n 50", "TOUCHED|"),
            ("mg n v t", "VA 2 t50|99|"),
            ("delete n", "DELETED|"),
        ],
    );
    assert_eq!(shell.database.statistics().refused_for_memory, 5);
}

/// What makes items makes room for them too.
#[test]
fn made_items_evict_others() {
    let mut shell = Shell::with_options(Options {
        memory: || 9 * 1024 * 1024,
        ..Options::default()
    });
    shell
        .database
        .set_eviction_policy(EvictionPolicy::AllKeysLru);
    for request in ["mg @ N0 q|", "ma @ N0 q|"] {
        shell.database.set_max_memory(0);
        ask(&mut shell, "flush_all|set other 0 0 1|x|");
        shell.database.set_max_memory(8 * 1024 * 1024);
        ask(&mut shell, &request.replace('@', "new"));
        let counted = shell.database.statistics().evicted_keys;
        assert!(counted > 0, "{request}");
    }
}

#[test]
fn what_was_done_is_counted() {
    let mut shell = Shell::new();
    ask(
        &mut shell,
        "set k 0 0 1|1|get k k nope|incr k 1|decr x 1|touch k 5|gat 5 k|delete k|",
    );
    assert_eq!(
        ask(&mut shell, "stats|"),
        "STAT cmd_get 3|STAT cmd_set 1|STAT cmd_touch 2|STAT get_hits 2|STAT get_misses 1|\
         STAT delete_hits 1|STAT incr_hits 1|STAT decr_misses 1|STAT touch_hits 2|\
         STAT total_items 1|END|"
    );
    shell.database.reset_memcached();
    assert_eq!(ask(&mut shell, "stats|"), "END|");
    shell.check(&[(
        "INFO stats",
        "-ERR this command needs a server; the database is embedded",
    )]);
}

#[test]
fn the_rest_answers_as_memcached_does() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("", "ERROR|"),
            ("GET k", "ERROR|"),
            ("get", "ERROR|"),
            ("gat 0", "END|"),
            ("version x", "VERSION 1|"),
            ("verbosity 1", "OK|"),
            ("verbosity noreply", ""),
            ("shutdown", "ERROR: shutdown not enabled|"),
            ("me nope", "EN|"),
            ("me", "CLIENT_ERROR bad command line format|"),
            ("incr n noreply", ""),
            ("set k 0 0 1 noreply x", "ERROR|"),
        ],
    );
    let long = "k".repeat(251);
    let bad = "CLIENT_ERROR bad command line format|";
    ask(&mut shell, "set k 0 0 1|x|");
    for request in ["get k", "gat 0", "touch", "mg", "md", "incr"] {
        let request = format!("{request} {long} 0");
        check(&mut shell, &[(request.as_str(), bad)]);
    }
    let debug = ask(&mut shell, "me k|");
    assert!(
        debug.starts_with("ME k exp=-1 la=0 cas=") && debug.contains(" size="),
        "{debug}"
    );
}

/// The state before the read that tells it; `u` and `me` are no reads.
#[test]
fn what_access_marks_tell_is_told() {
    let mut shell = Shell::new();
    check(&mut shell, &[("set k 0 0 1|x", "STORED|")]);
    check(
        &mut shell,
        &[("mg k h l", "HD h0 l0|"), ("mg k h", "HD h0|")],
    );
    shell
        .database
        .set_eviction_policy(EvictionPolicy::AllKeysLru);
    check(
        &mut shell,
        &[
            ("set k 0 0 1|x", "STORED|"),
            ("mg k h u", "HD h0|"),
            ("mg k h", "HD h0|"),
            ("mg k h l", "HD h1 l0|"),
            ("set k 0 0 1|x", "STORED|"),
            ("mg k v", "VA 1|x|"),
            ("mg k h", "HD h1|"),
            ("mg new N0 h l", "HD h0 l0 W|"),
        ],
    );
    for (key, fetched) in [("k", " fetch=yes "), ("new", " fetch=no ")] {
        let debug = ask(&mut shell, &format!("me {key}|"));
        assert!(debug.contains(fetched), "{debug}");
    }
}

#[test]
fn a_reply_has_a_bound() {
    let mut shell = Shell::new();
    check(&mut shell, &[("set k 0 0 10|0123456789", "STORED|")]);
    let large = "SERVER_ERROR reply too large\r\n";
    let one = "VALUE k 0 10\r\n0123456789\r\n";
    for (request, end_max, answer) in [
        ("get k k", 2 * one.len() + 5, format!("{one}{one}END\r\n")),
        ("get k k", 2 * one.len() + 4, large.to_owned()),
        ("get k k k k k k k k k k k", one.len(), large.to_owned()),
        ("gat 0 k k k", one.len(), large.to_owned()),
        ("mg k v", 10, large.to_owned()),
        ("mg k s", 10, "HD s10\r\n".into()),
    ] {
        let input = format!("{request}\r\n").into_bytes();
        let (mut out, mut ranges) = (Vec::new(), Vec::new());
        let mut decoder = Decoder::new(DecoderLimits::of_items(100));
        let decoded = decoder.next(&input, 0, &mut ranges);
        assert!(matches!(decoded, Ok(Decoded::Request { .. })));
        let line = Line::of_ranges(&input, &ranges);
        let mut client = Client::new(9, true);
        let mut turn = shell.session.turn();
        let mut reply = Reply::bounded(&mut out, end_max);
        let _ = turn.execute_memcached(&mut client, line.verb(), line, &mut reply, &mut Host);
        assert_eq!(String::from_utf8_lossy(&out), answer, "{request} {end_max}");
    }
}

/// Versions repeat in every tree, and what a crash has lost is drawn again; tokens do not.
#[test]
fn a_token_of_another_tree_is_another() {
    let mut shell = Shell::new();
    for (store, other) in [
        ("cas k 0 0 1 @|z", "EXISTS|"),
        ("ms k 1 C@|z", "EX|"),
        ("md k C@", "EX|"),
    ] {
        for flush in ["flush_all", "FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
            // The epoch stands still: both writes draw the same version.
            ask(&mut shell, "flush_all|set k 0 0 1|a|");
            let cas = token(&mut shell, "k");
            shell.check(&[("SELECT 1", "+OK"), ("SET k c", "+OK"), ("SELECT 0", "+OK")]);
            if flush == "flush_all" {
                ask(&mut shell, "flush_all|");
            } else {
                shell.check(&[(flush, "+OK")]);
            }
            if !flush.starts_with("SWAP") {
                ask(&mut shell, "set k 0 0 1|b|");
            }
            let request = format!("{}|", store.replace('@', &cas));
            assert_eq!(ask(&mut shell, &request), other, "{request} {flush}");
            shell.check(&[("FLUSHALL", "+OK")]);
        }
    }
    let mut first = Shell::with_options(Options {
        seed: 1,
        ..Options::default()
    });
    let mut again = Shell::with_options(Options {
        seed: 2,
        ..Options::default()
    });
    for shell in [&mut first, &mut again] {
        ask(shell, "set k 0 0 1|a|");
    }
    assert_ne!(token(&mut first, "k"), token(&mut again, "k"));
}

/// A full reply stops behind a key, and goes on behind it; a bad key refuses all of it before.
#[test]
fn an_answer_of_several_keys_comes_in_parts() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[
            ("set a 0 0 3|aaa", "STORED|"),
            ("set b 0 0 3|bbb", "STORED|"),
        ],
    );
    for (verb, keys) in [("get", 300), ("gat 0", 3)] {
        for room in [1, 17, 18, 40, 10_000] {
            let words = " a none b".repeat(keys);
            let input = format!("{verb}{words}\r\n").into_bytes();
            let mut decoder = Decoder::new(DecoderLimits::of_items(1000));
            let mut ranges = Vec::new();
            decoder.next(&input, 0, &mut ranges).unwrap();
            let line = Line::of_ranges(&input, &ranges);
            let mut client = Client::new(9, true);
            let (mut out, mut parts) = (Vec::new(), 0);
            loop {
                let from = out.len();
                let mut reply = Reply::new(&mut out).pausing_at(from + room);
                let mut turn = shell.session.turn();
                let outcome =
                    turn.execute_memcached(&mut client, line.verb(), line, &mut reply, &mut Host);
                parts += 1;
                // It stops when it is full, not one item later, nor before.
                let most = room + "VALUE a 0 3||aaa||END||".len();
                assert!(out.len() - from < most, "{verb} {room}");
                match outcome {
                    Progress::Waits(Wait::Reader) => assert!(out.len() - from >= room),
                    Progress::Done => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(parts > 1, room < 10_000 || keys == 300, "{verb} {room}");
            let values = "VALUE a 0 3\r\naaa\r\nVALUE b 0 3\r\nbbb\r\n".repeat(keys);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{values}END\r\n"));
        }
    }
}
