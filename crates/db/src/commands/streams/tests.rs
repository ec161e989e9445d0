//! Replies of the commands on streams, blocked clients, and a stream that is trimmed for ever.

use std::sync::Arc;

use pando_sync::shim::{Mutex, lock};

use crate::commands::memory_usage;
use crate::commands::testing::{START_MS, Shell, client, try_line};
use crate::lines::Ended;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument";

#[test]
fn entries_are_added_and_read() {
    let now = format!("$15 {START_MS}-0");
    let next = format!("$15 {START_MS}-1");
    Shell::new().check(&[
        ("XADD s NOMKSTREAM * f v", "$-1"),
        ("XADD s * f v", &now),
        ("XADD s * f v", &next),
        ("TYPE s", "+stream"),
        ("OBJECT ENCODING s", "$6 stream"),
        ("DEL s", ":1"),
        ("XADD s 1-1 a 1", "$3 1-1"),
        ("XADD s 1-* b 2 c 3", "$3 1-2"),
        ("XADD s 2 d 4", "$3 2-0"),
        ("XLEN s", ":3"),
        ("XRANGE s - + COUNT 1", "*1 *2 $3 1-1 *2 $1 a $1 1"),
        ("XRANGE s (1-1 1", "*1 *2 $3 1-2 *4 $1 b $1 2 $1 c $1 3"),
        ("XREVRANGE s + - COUNT 1", "*1 *2 $3 2-0 *2 $1 d $1 4"),
        ("XRANGE s - + COUNT 0", "*-1"),
        ("XRANGE absent - + COUNT 0", "*0"),
        (
            "XREAD COUNT 1 STREAMS s absent 1-1 0",
            "*1 *2 $1 s *1 *2 $3 1-2 *4 $1 b $1 2 $1 c $1 3",
        ),
        ("XREAD STREAMS s $", "*-1"),
        ("XDEL s 1-2 7", ":1"),
        ("XDEL absent x", ":0"),
        ("XDEL s x", INVALID_ID),
        ("XTRIM s MAXLEN 1", ":1"),
        ("XRANGE s - +", "*1 *2 $3 2-0 *2 $1 d $1 4"),
        ("XADD s MAXLEN = 1 3 e 5", "$3 3-0"),
        ("XTRIM s MINID 4", ":1"),
        // XS1 empty-streams
        ("XLEN s", ":0"),
        (
            "XINFO STREAM s",
            "*20 $6 length :0 $15 radix-tree-keys :0 $16 radix-tree-nodes :1 $17 last-generated-id \
             $3 3-0 $20 max-deleted-entry-id $3 1-2 $13 entries-added :4 $23 \
             recorded-first-entry-id $3 0-0 $6 groups :0 $11 first-entry $-1 $10 last-entry $-1",
        ),
        ("XSETID s 9 ENTRIESADDED 7 MAXDELETEDID 8", "+OK"),
        ("XADD s 10-1 f v", "$4 10-1"),
        ("XSETID absent 1", "-ERR no such key"),
        ("KPREFIX s", "*2 $-1 *2 $1 s *1 *2 $4 10-1 *2 $1 f $1 v"),
        ("SET t x", "+OK"),
        ("XADD t * f v", WRONG_TYPE),
        ("XREAD STREAMS t 0", WRONG_TYPE),
        ("XRANGE t - +", WRONG_TYPE),
    ]);
}

#[test]
fn ids_and_options_are_checked() {
    Shell::new().check(&[
        (
            "XADD s 0-0 f v",
            "-ERR The ID specified in XADD must be greater than 0-0",
        ),
        ("XADD s 0-* f v", "$3 0-1"),
        (
            "XADD s 0-1 f v",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD s x f v", INVALID_ID),
        (
            "XADD s 1-* f",
            "-ERR wrong number of arguments for 'xadd' command",
        ),
        (
            "XADD s MAXLEN -1 * f v",
            "-ERR The MAXLEN argument must be >= 0.",
        ),
        (
            "XADD s MAXLEN 1 LIMIT 1 * f v",
            "-ERR syntax error, LIMIT cannot be used without the special ~ option",
        ),
        (
            "XADD s 5-18446744073709551615 f v",
            "$22 5-18446744073709551615",
        ),
        ("XADD s 5-* f v", "-ERR Elements are too large to be stored"),
        (
            "XADD s 18446744073709551615-18446744073709551615 f v",
            "$41 18446744073709551615-18446744073709551615",
        ),
        (
            "XADD s * f v",
            "-ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        (
            "XRANGE s (18446744073709551615-18446744073709551615 +",
            "-ERR invalid start ID for the interval",
        ),
        ("XRANGE s - (0-0", "-ERR invalid end ID for the interval"),
        (
            "XREAD STREAMS s 18446744073709551615-18446744073709551615",
            "*-1",
        ),
    ]);
}

#[test]
fn reads_are_checked() {
    Shell::new().check(&[
        ("XADD s 1 f v", "$3 1-0"),
        (
            "XREAD STREAMS s",
            "-ERR wrong number of arguments for 'xread' command",
        ),
        (
            "XREAD STREAMS s t 0",
            "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
             specified.",
        ),
        ("XREAD BLOCK -1 STREAMS s 0", "-ERR timeout is negative"),
        (
            "XREAD BLOCK x STREAMS s 0",
            "-ERR timeout is not an integer or out of range",
        ),
        (
            "XREADGROUP GROUP g c STREAMS s >",
            "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "XGROUP DESTROY s g FOO",
            "-ERR wrong number of arguments for 'xgroup|destroy' command",
        ),
        (
            "XGROUP SETID s g $ FOO",
            "-ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP.",
        ),
    ]);
}

#[test]
fn groups_deliver_and_await_acknowledgement() {
    Shell::new().check(&[
        ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
        (
            "XGROUP CREATE s g $",
            "-BUSYGROUP Consumer Group name already exists",
        ),
        ("XADD s 1 a 1", "$3 1-0"),
        ("XADD s 2 a 2", "$3 2-0"),
        ("XADD s 3 a 3", "$3 3-0"),
        (
            "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
            "*1 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 2",
        ),
        (
            "XREADGROUP GROUP g d NOACK STREAMS s >",
            "*1 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 3",
        ),
        ("XREADGROUP GROUP g d STREAMS s >", "*-1"),
        ("XPENDING s g", "*4 :2 $3 1-0 $3 2-0 *1 *2 $1 c $1 2"),
        ("XDEL s 1", ":1"),
        (
            "XREADGROUP GROUP g c STREAMS s 0",
            "*1 *2 $1 s *2 *2 $3 1-0 *-1 *2 $3 2-0 *2 $1 a $1 2",
        ),
        (
            "XPENDING s g - + 10",
            "*2 *4 $3 1-0 $1 c :0 :1 *4 $3 2-0 $1 c :0 :2",
        ),
        ("XPENDING s g IDLE 1 - + 10", "*0"),
        ("XPENDING s g (1 + 1 c", "*1 *4 $3 2-0 $1 c :0 :2"),
        ("XCLAIM s g d 0 1 2 3", "*1 *2 $3 2-0 *2 $1 a $1 2"),
        ("XPENDING s g - + 10", "*1 *4 $3 2-0 $1 d :0 :3"),
        ("XCLAIM s g d 0 3 FORCE JUSTID IDLE 50", "*1 $3 3-0"),
        (
            "XCLAIM s g d 0 3 \"it's\"",
            "-ERR Unrecognized XCLAIM option 'it's'",
        ),
        ("XAUTOCLAIM s g e 10 - JUSTID", "*3 $3 0-0 *1 $3 3-0 *0"),
        ("XDEL s 2", ":1"),
        ("XAUTOCLAIM s g e 0 0 COUNT 1", "*3 $3 3-0 *0 *1 $3 2-0"),
        ("XACK s g 3 3 9", ":1"),
        ("XACK s absent x", ":0"),
        ("XPENDING s g", "*4 :0 $-1 $-1 *-1"),
        (
            "XINFO GROUPS s",
            "*1 *12 $4 name $1 g $9 consumers :3 $7 pending :0 $17 last-delivered-id $3 3-0 $12 \
             entries-read :3 $3 lag :0",
        ),
        ("XGROUP DELCONSUMER s g e", ":0"),
        ("XGROUP CREATECONSUMER s g e", ":1"),
        ("XGROUP CREATECONSUMER s g e", ":0"),
        (
            "XINFO CONSUMERS s g",
            "*3 *6 $4 name $1 c $7 pending :0 $4 idle :0 *6 $4 name $1 d $7 pending :0 $4 idle \
             :0 *6 $4 name $1 e $7 pending :0 $4 idle :0",
        ),
        ("XGROUP SETID s g 0", "+OK"),
        (
            "XREADGROUP GROUP g c STREAMS s >",
            "*1 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 3",
        ),
        ("XGROUP DELCONSUMER s g c", ":1"),
        ("XGROUP DESTROY s g", ":1"),
        ("XGROUP DESTROY s g", ":0"),
    ]);
}

/// Whoever was woken since the last call, in order.
fn watched(shell: &Shell) -> impl Fn() -> Vec<u64> + use<> {
    let woken = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&woken);
    let wake = move |client: u64| lock(&told).push(client);
    shell.database.on_ready(wake);
    move || std::mem::take(&mut *lock(&woken))
}

#[test]
fn all_readers_are_woken_and_one_of_each_group() {
    const READ: &str = "XREAD BLOCK 0 STREAMS t s 0 $";
    const GROUP: &str = "XREADGROUP GROUP g c BLOCK 0 COUNT 1 STREAMS s >";
    const OTHER: &str = "XREADGROUP GROUP h c BLOCK 0 STREAMS s >";
    let mut shell = Shell::new();
    let woken = watched(&shell);
    let mut clients: Vec<_> = (1..=6).map(|id| client(&shell, id)).collect();
    shell.check(&[
        ("XADD s 1 a 1", "$3 1-0"),
        ("XGROUP CREATE s g $", "+OK"),
        ("XGROUP CREATE s h $", "+OK"),
        ("XGROUP CREATECONSUMER s g c", ":1"),
        ("XGROUP CREATECONSUMER s h c", ":1"),
    ]);
    let lines = [READ, READ, GROUP, GROUP, OTHER, GROUP];
    for (client, line) in clients.iter_mut().zip(lines) {
        assert_eq!(try_line(client, line), None);
    }
    // What makes nothing readable wakes nobody.
    shell.check(&[
        ("XDEL s 1", ":1"),
        ("XACK s g 1", ":0"),
        ("RPUSH l x", ":1"),
    ]);
    assert!(woken().is_empty());
    shell.check(&[
        ("MULTI", "+OK"),
        ("XADD s 2 a 2", "+QUEUED"),
        ("XADD s 3 a 3", "+QUEUED"),
        ("EXEC", "*2 $3 2-0 $3 3-0"),
    ]);
    // In the order of the lines; WQ3 woken-once.
    let mut first = woken();
    first.sort_unstable();
    assert_eq!(first, [1, 2, 3, 5]);
    let both = "*1 *2 $1 s *2 *2 $3 2-0 *2 $1 a $1 2 *2 $3 3-0 *2 $1 a $1 3";
    assert_eq!(try_line(&mut clients[1], READ).as_deref(), Some(both));
    assert_eq!(try_line(&mut clients[0], READ).as_deref(), Some(both));
    assert_eq!(try_line(&mut clients[4], OTHER).as_deref(), Some(both));
    assert!(woken().is_empty());
    // BL1 present-to-the-first
    assert_eq!(try_line(&mut clients[3], GROUP), None);
    let taken = try_line(&mut clients[2], GROUP);
    assert_eq!(
        taken.as_deref(),
        Some("*1 *2 $1 s *1 *2 $3 2-0 *2 $1 a $1 2")
    );
    assert_eq!(woken(), [4], "there is more");
    let taken = try_line(&mut clients[3], GROUP);
    assert_eq!(
        taken.as_deref(),
        Some("*1 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 3")
    );
    assert_eq!(woken(), [6]);
    assert_eq!(try_line(&mut clients[5], GROUP), None);
    // Those who do not wait take what is there, and see no line.
    shell.check(&[
        ("XADD s 4 a 4", "$3 4-0"),
        (
            "XREADGROUP GROUP g c STREAMS s >",
            "*1 *2 $1 s *1 *2 $3 4-0 *2 $1 a $1 4",
        ),
    ]);
    assert_eq!(try_line(&mut clients[5], GROUP), None);
    assert_eq!(shell.database.lines.waiting.len(), 1);
}

#[test]
fn a_wait_for_a_stream_that_goes_ends_with_an_error() {
    const READ: &str = "XREAD BLOCK 0 STREAMS s $";
    const GROUP: &str = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    const GONE: &str = "-UNBLOCKED the stream key no longer exists";
    const NO_GROUP: &str =
        "-NOGROUP the consumer group this client was blocked on no longer exists";
    for (change, answer) in [
        ("DEL s", GONE),
        ("SET s x", GONE),
        ("RENAME s t", GONE),
        ("FLUSHALL", GONE),
        ("SWAPDB 0 1", GONE),
        ("XGROUP DESTROY s g", NO_GROUP),
        ("RENAME other s", NO_GROUP),
    ] {
        let mut shell = Shell::new();
        let woken = watched(&shell);
        shell.line("XGROUP CREATE s g $ MKSTREAM");
        shell.line("XADD s 5 a 1");
        shell.line("XADD other 1 a 1");
        shell.line("XGROUP SETID s g $");
        let (mut reader, mut member) = (client(&shell, 1), client(&shell, 2));
        assert_eq!(try_line(&mut reader, READ), None);
        assert_eq!(try_line(&mut member, GROUP), None);
        shell.line(change);
        assert!(woken().contains(&2), "{change}");
        assert_eq!(
            try_line(&mut member, GROUP).as_deref(),
            Some(answer),
            "{change}"
        );
        // A reader waits on, for what was behind the last id when it began.
        assert_eq!(try_line(&mut reader, READ), None, "{change}");
        shell.line("DEL s");
        shell.line("XADD s 6 a 2");
        let read = try_line(&mut reader, READ);
        assert_eq!(
            read.as_deref(),
            Some("*1 *2 $1 s *1 *2 $3 6-0 *2 $1 a $1 2"),
            "{change}"
        );
        assert!(shell.database.lines.waiting.is_empty());
    }
}

#[test]
fn a_wait_for_entries_ends_by_itself_and_not_in_exec() {
    let mut shell = Shell::new();
    shell.line("XGROUP CREATE s g $ MKSTREAM");
    let mut one = client(&shell, 1);
    for line in [
        "XREAD BLOCK 5 STREAMS s $",
        "XREADGROUP GROUP g c BLOCK 5 STREAMS s >",
    ] {
        assert_eq!(try_line(&mut one, line), None);
        one.client().end_wait(Ended::Timeout);
        assert_eq!(try_line(&mut one, line).as_deref(), Some("*-1"));
        assert!(shell.database.lines.waiting.is_empty());
    }
    shell.check(&[
        ("MULTI", "+OK"),
        ("XREAD BLOCK 0 STREAMS s $", "+QUEUED"),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "+QUEUED"),
        ("EXEC", "*2 *-1 *-1"),
    ]);
}

/// Entries of two streams that were added together are delivered together, whoever asks.
#[test]
fn a_group_gets_several_streams_in_one_step() {
    const ENTRIES: usize = 500;
    let mut shell = Shell::new();
    for stream in ["a", "b"] {
        shell.line(&format!("XGROUP CREATE {stream} g 0 MKSTREAM"));
        for number in 1..=ENTRIES {
            shell.line(&format!("XADD {stream} {number} f v"));
        }
    }
    let takers = [(); 2].map(|()| shell.connect());
    let taken: usize = std::thread::scope(|scope| {
        let taken = takers.map(|mut shell| {
            scope.spawn(move || {
                // The group's and the consumer's names look like options.
                let line = "XREADGROUP COUNT 1 GROUP g STREAMS STREAMS a b > >";
                for taken in 0.. {
                    let reply = shell.line(line);
                    if reply == "*-1" {
                        return taken;
                    }
                    let id = reply.split(' ').nth(7).expect("an id follows");
                    let of = |name| format!("*2 $1 {name} *1 *2 ${} {id} *2 $1 f $1 v", id.len());
                    assert_eq!(reply, format!("*2 {} {}", of("a"), of("b")));
                }
                unreachable!("the streams end");
            })
        });
        taken
            .map(|it| it.join().expect("it is served"))
            .iter()
            .sum()
    });
    assert_eq!(taken, ENTRIES);
}

/// A queue of entries that are delivered, acknowledged and trimmed for ever keeps its size.
#[test]
fn a_stream_that_is_trimmed_for_ever_stays_small() {
    let mut shell = Shell::new();
    shell.line("XGROUP CREATE s g $ MKSTREAM");
    let mut bytes = Vec::new();
    for round in 0..12 {
        for _ in 0..400 {
            shell.line("XADD s MAXLEN 300 * field value");
            shell.line("XREADGROUP GROUP g c STREAMS s >");
        }
        let pending = shell.line("XPENDING s g - + 400");
        for id in pending.split(' ').filter(|part| part.contains('-')) {
            shell.run(["XACK", "s", "g", id]);
        }
        assert_eq!(shell.line("XLEN s"), ":300", "{round}");
        let used = memory_usage(&mut shell.turn().keyspace(0), b"s");
        bytes.push(used.expect("it is there"));
    }
    let (first, last) = (bytes[1], bytes[bytes.len() - 1]);
    assert!(last <= first * 5 / 4, "{bytes:?}");
    shell.check(&[("XTRIM s MAXLEN 0", ":300"), ("XGROUP DESTROY s g", ":1")]);
}
