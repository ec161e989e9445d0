//! What a snapshot shows, and to whom.

use std::collections::BTreeMap;
use std::sync::Arc;

use pando_engine::LogEpoch;
use pando_protocol::RespVersion;
use pando_protocol::command::{self, CommandId, CommandSpec, Flag};

use crate::commands::testing::{Shell, seed, words};
use crate::{Durability, EngineKind, HandLog, Options, limits};

mod bounds;
mod recent;

/// A shell for each engine, which says its name.
fn shells() -> impl Iterator<Item = Shell> {
    EngineKind::ALL.into_iter().map(|engine| {
        println!("{}", engine.name());
        Shell::with_options(Options {
            engine,
            ..Options::default()
        })
    })
}

/// A line for each command that reads keys, to be run in database 3, whose only key is a hash of
/// one field, or in database 0, which [`fill`] fills.
const READS: &[(&str, &str)] = &[
    ("0", "BITCOUNT s"),
    ("0", "BITFIELD_RO s GET u8 0"),
    ("0", "BITPOS s 1"),
    ("0", "DBSIZE"),
    ("0", "DUMP h"),
    ("0", "EXISTS s h gone due soon"),
    ("0", "EXPIRETIME soon"),
    ("0", "GET s"),
    ("0", "GETBIT s 3"),
    ("0", "GETRANGE s 1 2"),
    ("0", "GET due"),
    ("0", "GET large"),
    ("0", "HEXISTS h f"),
    ("0", "HGET h f"),
    ("0", "HGETALL h"),
    ("0", "HEXPIRETIME h FIELDS 1 f"),
    ("0", "HPEXPIRETIME h FIELDS 1 f"),
    ("0", "HPTTL h FIELDS 1 f"),
    ("0", "HTTL h FIELDS 1 f"),
    ("0", "SORT_RO z ALPHA"),
    ("0", "HKEYS h"),
    ("0", "HLEN h"),
    ("0", "HMGET h f g x"),
    ("3", "HRANDFIELD only"),
    ("0", "HSCAN h 0"),
    ("0", "HSTRLEN h f"),
    ("0", "HVALS h"),
    ("0", "KCOUNT - +"),
    ("3", "KDUMP 0"),
    ("0", "KEYS *"),
    ("0", "KPREFIX k REV"),
    ("0", "KRANGE - + LIMIT 7"),
    ("0", "KRANGE - + KEYS REV"),
    ("0", "LCS s large LEN"),
    ("0", "MGET s k1 k2 gone due h"),
    ("0", "OBJECT ENCODING s"),
    ("0", "LINDEX l 1"),
    ("0", "LLEN l"),
    ("0", "LPOS l b"),
    ("0", "LRANGE l 0 -1"),
    ("0", "OBJECT FREQ s"),
    ("0", "OBJECT IDLETIME s"),
    ("0", "OBJECT REFCOUNT s"),
    ("0", "PEXPIRETIME soon"),
    ("0", "PFCOUNT sketch"),
    ("0", "PTTL soon"),
    ("0", "TTL s"),
    ("3", "RANDOMKEY"),
    ("0", "SCAN 0 COUNT 1000"),
    ("0", "STRLEN large"),
    ("0", "SUBSTR s 0 1"),
    ("0", "TOUCH s"),
    ("0", "TYPE h"),
    ("0", "SCARD e"),
    ("0", "SDIFF e e2"),
    ("0", "SINTER e e2"),
    ("0", "SINTERCARD 2 e e2"),
    ("0", "SISMEMBER e a"),
    ("0", "SMEMBERS e"),
    ("0", "SMISMEMBER e a z"),
    ("0", "SRANDMEMBER e 9"),
    ("0", "SSCAN e 0"),
    ("0", "SUNION e e2"),
    ("0", "ZCARD z"),
    ("0", "ZCOUNT z 0 5"),
    ("0", "ZDIFF 2 z z2"),
    ("0", "ZINTER 2 z z2"),
    ("0", "ZINTERCARD 2 z z2"),
    ("0", "ZLEXCOUNT z - +"),
    ("0", "ZMSCORE z a b"),
    ("0", "ZRANDMEMBER z 9"),
    ("0", "ZRANGE z 0 -1 WITHSCORES"),
    ("0", "ZRANGEBYLEX z - +"),
    ("0", "ZRANGEBYSCORE z 0 5"),
    ("0", "ZRANK z b"),
    ("0", "ZREVRANGE z 0 -1"),
    ("0", "ZREVRANGEBYLEX z + -"),
    ("0", "ZREVRANGEBYSCORE z 5 0"),
    ("0", "ZREVRANK z b"),
    ("0", "ZSCAN z 0"),
    ("0", "ZSCORE z a"),
    ("0", "ZUNION 2 z z2"),
    ("0", "GEODIST g a b"),
    ("0", "GEOHASH g a b"),
    ("0", "GEOPOS g a b"),
    ("0", "GEOSEARCH g FROMMEMBER b BYRADIUS 900 km ASC WITHDIST"),
    ("0", "GEORADIUS_RO g 13 38 900 km ASC WITHHASH"),
    ("0", "GEORADIUSBYMEMBER_RO g b 900 km ASC WITHDIST"),
    ("0", "XINFO CONSUMERS x g"),
    ("0", "XINFO GROUPS x"),
    ("0", "XINFO STREAM x FULL"),
    ("0", "XLEN x"),
    ("0", "XPENDING x g - + 9"),
    ("0", "XRANGE x - +"),
    ("0", "XREAD BLOCK 0 STREAMS x 1"),
    ("0", "XREAD STREAMS x $"),
    ("0", "XREVRANGE x + -"),
];

/// Whether a shell can run the command, which reads keys.
fn is_read(spec: &CommandSpec) -> bool {
    let on_keys = matches!(spec.id, CommandId::Keyspace(_));
    on_keys && spec.flags.has(Flag::Readonly) && spec.subcommands.is_empty()
}

/// Database 0 with keys of every kind, some of them past their deadline; and database 3.
fn fill(shell: &mut Shell) {
    for line in [
        "SELECT 3",
        "HSET only f v",
        "SELECT 0",
        "SET due 1 PX 5",
        "SET s Pando",
        "HSET h f 1 g 2",
        "PFADD sketch 1 2 3",
        "RPUSH l a b c",
        "SADD e a b c",
        "SADD e2 c d",
        "ZADD z 1 a 2 b",
        "ZADD z2 3 b 4 c",
        "GEOADD g 13.36 38.11 a 15.08 37.5 b",
        "XADD x 1 f v",
        "XADD x 2 f w",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
        "SET soon 1 PX 10000",
        "SET gone 1",
        "DEL gone",
    ] {
        assert!(!shell.line(line).starts_with('-'), "{line}");
    }
    for key in 0..40 {
        shell.line(&format!("SET k{key} {key}"));
    }
    shell.store(b"large", &vec![b'l'; 100_000]);
    shell.pass_ms(6);
}

/// Changes everything that [`fill`] made.
fn change(shell: &mut Shell) {
    shell.pass_ms(20_000);
    for line in [
        "SET s other",
        "HSET h f 7 z 8",
        "HDEL h g",
        "PFADD sketch 4",
        "LPUSH l b",
        "SREM e a",
        "SADD e2 e",
        "ZADD z 9 a",
        "GEOADD g 10 38 a",
        "ZREM z2 b",
        "RPOP l",
        "XDEL x 1",
        "XADD x 3 f x",
        "XACK x g 1",
        "XREADGROUP GROUP g d STREAMS x >",
        "DEL large",
        "SET gone back",
        "GET due",
        "GET soon",
        "RENAME k1 k2",
        "APPEND k3 longer",
        "SELECT 3",
        "DEL only",
        "SET another 1",
        "SWAPDB 3 0",
        "FLUSHALL",
        "SET k1 new",
        "SELECT 0",
        "SET k2 new",
    ] {
        assert!(!shell.line(line).starts_with('-'), "{line}");
    }
    for key in 0..50 {
        shell.line(&format!("SET k{key} later"));
    }
}

/// The reply as text; of a command that shows keys in the engine's own order, in order of lines.
fn comparable(line: &str, reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    if !line.starts_with("KEYS ") && !line.starts_with("SCAN ") {
        return text.into_owned();
    }
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.join(" ")
}

/// Every command that only reads answers in a snapshot, by READ and by USE, what it answered when
/// the snapshot was made.
#[test]
fn every_read_answers_as_when_the_snapshot_was_made() {
    let lacks = |spec: &&CommandSpec| {
        let name = spec.name.to_ascii_uppercase().replace('|', " ");
        let is_line = |line: &str| line == name || line.starts_with(&format!("{name} "));
        !READS.iter().any(|(_, line)| is_line(line))
    };
    let every = command::all().flat_map(|spec| spec.subcommands.iter().chain([spec]));
    let reads = every.filter(|spec| is_read(spec));
    let missing: Vec<_> = reads.filter(lacks).map(|spec| spec.name).collect();
    assert_eq!(missing, [""; 0], "commands without a line");
    for mut shell in shells() {
        for version in [RespVersion::Resp2, RespVersion::Resp3] {
            shell.speak(version);
            fill(&mut shell);
            let ask = |shell: &mut Shell, database: &str, line: &str, before: &[&str]| {
                shell.line(&format!("SELECT {database}"));
                let mut arguments: Vec<_> = before.iter().map(|word| word.as_bytes()).collect();
                let words = words(line);
                arguments.extend(words.iter().map(Vec::as_slice));
                comparable(line, &shell.run(arguments))
            };
            let expected: Vec<_> = READS
                .iter()
                .map(|(database, line)| ask(&mut shell, database, line, &[]))
                .collect();
            assert!(shell.line("SNAPSHOT CREATE monday").starts_with('*'));
            change(&mut shell);
            for ((database, line), expected) in READS.iter().zip(&expected) {
                let read = ask(&mut shell, database, line, &["SNAPSHOT", "READ", "monday"]);
                assert_eq!(read, *expected, "READ {line}");
            }
            shell.line("SNAPSHOT USE monday");
            for ((database, line), expected) in READS.iter().zip(&expected) {
                assert_eq!(ask(&mut shell, database, line, &[]), *expected, "{line}");
            }
            shell.check(&[
                ("SNAPSHOT USE NONE", "+OK"),
                ("SELECT 0", "+OK"),
                ("GET k2", "$5 later"),
                ("SNAPSHOT DROP monday", ":1"),
                ("FLUSHALL", "+OK"),
            ]);
        }
    }
}

#[test]
fn a_snapshot_is_all_databases_at_one_moment() {
    for mut shell in shells() {
        let mut other = shell.connect();
        shell.check(&[("SET k 1", "+OK"), ("SELECT 2", "+OK"), ("SET k 2", "+OK")]);
        assert!(
            shell
                .line("SNAPSHOT CREATE a")
                .starts_with("*3 $1 a :17000000000")
        );
        other.check(&[
            ("SET k new", "+OK"),
            ("SWAPDB 0 2", "+OK"),
            ("SNAPSHOT READ a GET k", "$1 1"),
            ("SELECT 2", "+OK"),
            ("SNAPSHOT READ a GET k", "$1 2"),
            ("snapshot read a get k", "$1 2"),
            ("SNAPSHOT USE a", "+OK"),
            ("GET k", "$1 2"),
            ("SELECT 0", "+OK"),
            ("GET k", "$1 1"),
            ("PING", "+PONG"),
            ("DBSIZE", ":1"),
        ]);
        other.check(&[("SNAPSHOT USE NONE", "+OK"), ("GET k", "$1 2")]);
    }
}

const READ_ONLY: &str =
    "-READONLY You can't write against a snapshot; SNAPSHOT USE NONE returns to the present";
const NONE: &str = "-NOSNAPSHOT no snapshot has this name";
const GONE: &str = "-NOSNAPSHOT the snapshot has gone; SNAPSHOT USE NONE returns to the present";

#[test]
fn a_snapshot_cannot_be_written() {
    for mut shell in shells() {
        shell.line("SNAPSHOT CREATE a");
        let writes = command::all().filter(|spec| {
            matches!(spec.id, CommandId::Keyspace(_)) && spec.flags.has(Flag::Write)
        });
        for spec in writes {
            let arguments = usize::from(spec.arity.unsigned_abs()) - 1;
            let line = format!("{} {}", spec.name, "1 ".repeat(arguments));
            shell.line("SNAPSHOT USE a");
            assert_eq!(shell.line(&line), READ_ONLY, "{line}");
            shell.line("SNAPSHOT USE NONE");
            assert_eq!(shell.line(&format!("SNAPSHOT READ a {line}")), READ_ONLY);
        }
        let not_a_read = "-ERR SNAPSHOT READ runs no commands but those that only read";
        shell.check(&[
            ("SNAPSHOT READ a SNAPSHOT READ a GET k", not_a_read),
            ("SNAPSHOT READ a EXEC", not_a_read),
            ("SNAPSHOT READ a WATCH k", not_a_read),
            ("SNAPSHOT READ a SELECT 1", not_a_read),
            ("SNAPSHOT READ a INFO", not_a_read),
            (
                "SNAPSHOT READ a GET",
                "-ERR wrong number of arguments for 'get' command",
            ),
            (
                "SNAPSHOT READ a NOSUCH x",
                "-ERR unknown command 'NOSUCH', with args beginning with: 'x' ",
            ),
            ("SNAPSHOT READ a PING", "+PONG"),
            ("DBSIZE", ":0"),
        ]);
    }
}

#[test]
fn names_are_judged_and_found() {
    for mut shell in shells() {
        let word = "-ERR a snapshot must have a name, and not one of ALL, NONE and RECENT";
        let bytes = "-ERR names of snapshots cannot contain spaces, newlines or special characters";
        shell.check(&[
            ("SNAPSHOT CREATE \"\"", word),
            ("SNAPSHOT CREATE all", word),
            ("SNAPSHOT CREATE None", word),
            ("SNAPSHOT CREATE \"a b\"", bytes),
            ("SNAPSHOT CREATE \"a\\n\"", bytes),
            ("SNAPSHOT CREATE a TTL", "-ERR syntax error"),
            ("SNAPSHOT CREATE a KEEP", "-ERR syntax error"),
            (
                "SNAPSHOT CREATE a TTL x",
                "-ERR value is not an integer or out of range",
            ),
            (
                "SNAPSHOT CREATE a TTL 0",
                "-ERR value is out of range, must be positive",
            ),
            (
                "SNAPSHOT CREATE a TTL 9223372036854775807",
                "-ERR invalid expire time in 'snapshot|create' command",
            ),
            ("SNAPSHOT LIST", "*0"),
            ("SNAPSHOT DROP ALL", ":0"),
            ("SNAPSHOT DROP a", NONE),
            ("SNAPSHOT USE a", NONE),
            ("SNAPSHOT INFO a", NONE),
            ("SNAPSHOT READ a GET k", NONE),
            ("SNAPSHOT READ \"\" GET k", NONE),
        ]);
        let long = vec![b'n'; 1024 * 1024];
        let refused = format!(
            "-ERR the name is too long (1048576 bytes, at most {})\r\n",
            limits::SNAPSHOT_NAME_BYTES_MAX
        );
        assert_eq!(
            shell.run([b"SNAPSHOT", &b"CREATE"[..], &long]),
            refused.as_bytes()
        );
        for subcommand in [&b"USE"[..], b"DROP", b"INFO"] {
            let reply = shell.run([b"SNAPSHOT", subcommand, &long]);
            assert_eq!(reply, format!("{NONE}\r\n").as_bytes());
        }
        assert!(shell.line("SNAPSHOT CREATE a TTL 10 HOLD").starts_with('*'));
        shell.check(&[(
            "SNAPSHOT CREATE a",
            "-ERR a snapshot of this name exists already",
        )]);
        assert!(shell.line("SNAPSHOT CREATE A").starts_with('*'));
        assert!(
            shell
                .line("SNAPSHOT INFO a")
                .contains("$6 ttl-ms :10000 $4 hold :1")
        );
        assert!(shell.line("SNAPSHOT LIST").starts_with("*2 *3 $1 a :"));
        shell.check(&[("SNAPSHOT DROP A", ":1"), ("SNAPSHOT DROP all", ":1")]);
    }
}

/// Without end: what is refused changes nothing, and epochs of those that were dropped are free.
#[test]
fn there_are_so_many_and_no_more() {
    for mut shell in shells() {
        let most = limits::SNAPSHOTS_MAX;
        for round in 0..2 {
            for at in 0..most {
                let created = shell.line(&format!("SNAPSHOT CREATE s{at}"));
                assert!(created.starts_with('*'), "round {round}, {at}: {created}");
                shell.line(&format!("SET k{at} {at}"));
            }
            for _ in 0..3 {
                let refused = shell.line("SNAPSHOT CREATE one-more");
                assert!(
                    refused.starts_with("-ERR there are 64 snapshots"),
                    "{refused}"
                );
            }
            for at in 0..most {
                let read = shell.line(&format!("SNAPSHOT READ s{at} DBSIZE"));
                assert_eq!(read, format!(":{at}"));
            }
            assert_eq!(shell.line("SNAPSHOT DROP ALL"), format!(":{most}"));
            shell.line("FLUSHALL");
        }
    }
}

/// A reader of a snapshot that has gone is told so, whatever has its name by then.
#[test]
fn what_has_gone_is_an_error() {
    for mut shell in shells() {
        let mut other = shell.connect();
        shell.check(&[("SET k 1", "+OK"), ("SELECT 0", "+OK")]);
        shell.line("SNAPSHOT CREATE a");
        shell.check(&[("SNAPSHOT USE a", "+OK"), ("GET k", "$1 1")]);
        other.check(&[("SNAPSHOT DROP a", ":1"), ("SET k 2", "+OK")]);
        shell.check(&[("GET k", GONE), ("DBSIZE", GONE), ("PING", "+PONG")]);
        other.line("SNAPSHOT CREATE a");
        shell.check(&[
            ("GET k", GONE),
            ("MULTI", "+OK"),
            ("GET k", "+QUEUED"),
            ("EXEC", &format!("*1 {GONE}")),
            ("SNAPSHOT USE NONE", "+OK"),
            ("GET k", "$1 2"),
            ("SNAPSHOT USE a", "+OK"),
        ]);
        let database = shell.database.clone();
        let mut session = database.session().expect("a session is free");
        session.turn().reset(shell.client());
        other.line("SNAPSHOT DROP ALL");
        shell.check(&[("GET k", "$1 2")]);
    }
}

#[test]
fn a_scan_whose_snapshot_is_dropped_ends_with_an_error() {
    for mut shell in shells() {
        let keys = 3 * limits::SLICE_ENTRIES_MAX;
        for key in 0..keys {
            shell.store(format!("{key:06}").as_bytes(), b"v");
        }
        shell.line("SNAPSHOT CREATE a");
        shell.line("FLUSHALL");
        let mut other = shell.connect();
        let keys_of = ["SNAPSHOT", "READ", "a", "KEYS", "*"];
        let (whole, slices) = shell.run_between_slices(keys_of, |slice| {
            other.line(&format!("SET 00000{slice} x"));
        });
        assert!(slices > 1);
        assert!(whole.starts_with(format!("*{keys}\r\n").as_bytes()));
        let (reply, _) = shell.run_between_slices(keys_of, |slice| {
            if slice == 1 {
                other.line("SNAPSHOT DROP a");
                // Another one of the same name is another one.
                other.line("SNAPSHOT CREATE a");
            }
        });
        assert_eq!(reply, format!("{GONE}\r\n").as_bytes());
        other.line("SNAPSHOT DROP a");
    }
}

#[test]
fn cursors_belong_to_their_view() {
    let other_view = "-ERR the cursor belongs to another snapshot, or to the present; go on with \
                      it there, or begin again with 0";
    for mut shell in shells() {
        // Cursors of an engine without an order say all that there is to say, in any view.
        let is_ordered = shell.database.options().engine.is_ordered();
        for key in 0..30 {
            shell.line(&format!("SET k{key:02} v"));
        }
        for field in 0..600 {
            shell.line(&format!("HSET large f{field:03} v"));
        }
        shell.line("SNAPSHOT CREATE a");
        shell.line("SNAPSHOT CREATE b");
        let cursor = |reply: &str| reply.split(' ').nth(2).unwrap_or_default().to_owned();
        let at_present = cursor(&shell.line("SCAN 0"));
        let in_a = cursor(&shell.line("SNAPSHOT READ a SCAN 0"));
        let fields_in_a = cursor(&shell.line("SNAPSHOT READ a HSCAN large 0"));
        let fields_now = cursor(&shell.line("HSCAN large 0"));
        assert!(
            [&at_present, &in_a, &fields_in_a, &fields_now]
                .iter()
                .all(|it| *it != "0")
        );
        let fields_elsewhere = [
            format!("HSCAN large {fields_in_a}"),
            format!("SNAPSHOT READ a HSCAN large {fields_now}"),
        ];
        for line in fields_elsewhere {
            assert_eq!(shell.line(&line), other_view, "{line}");
        }
        assert!(
            shell
                .line(&format!("HSCAN large {fields_now}"))
                .starts_with("*2")
        );
        shell.line("FLUSHALL");
        shell.line("SET k00 v");
        let pairs = [
            (format!("SNAPSHOT READ a SCAN {at_present}"), false),
            (format!("SNAPSHOT READ b SCAN {in_a}"), false),
            (format!("SCAN {in_a}"), false),
            (format!("SNAPSHOT READ b HSCAN large {fields_in_a}"), false),
            (format!("SNAPSHOT READ a SCAN {in_a}"), true),
            (format!("SNAPSHOT READ a HSCAN large {fields_in_a}"), true),
        ];
        for (line, goes_on) in pairs {
            let goes_on = goes_on || (!is_ordered && !line.contains("HSCAN"));
            let reply = shell.line(&line);
            assert_eq!(reply == other_view, !goes_on, "{line}: {reply}");
            assert_eq!(reply.starts_with('*'), goes_on, "{line}: {reply}");
        }
    }
}

#[test]
fn transactions_read_snapshots_and_make_none() {
    let refused = "-ERR Command not allowed inside a transaction";
    for mut shell in shells() {
        shell.line("SET k 1");
        shell.line("SNAPSHOT CREATE a");
        shell.check(&[
            ("SET k 2", "+OK"),
            ("MULTI", "+OK"),
            ("SNAPSHOT CREATE b", refused),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
            ("MULTI", "+OK"),
            ("SNAPSHOT USE a", refused),
            ("DISCARD", "+OK"),
            ("MULTI", "+OK"),
            ("SNAPSHOT READ a SET k 3", READ_ONLY),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
            ("MULTI", "+OK"),
            ("INCR k", "+QUEUED"),
            ("SNAPSHOT READ a GET k", "+QUEUED"),
            ("SNAPSHOT READ a KEYS *", "+QUEUED"),
            ("GET k", "+QUEUED"),
            ("EXEC", "*4 :3 $1 1 *1 $1 k $1 3"),
            ("SNAPSHOT USE a", "+OK"),
            ("MULTI", "+OK"),
            ("SET k 4", READ_ONLY),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
            // Nothing in a snapshot changes.
            ("WATCH k", "+OK"),
        ]);
        shell.connect().line("SET k 5");
        shell.check(&[
            ("MULTI", "+OK"),
            ("GET k", "+QUEUED"),
            ("EXEC", "*1 $1 1"),
            ("SNAPSHOT USE NONE", "+OK"),
            ("GET k", "$1 5"),
        ]);
    }
}

/// Reads count as hits and misses; marks and expired keys stay as they are.
#[test]
fn reads_in_a_snapshot_are_counted_and_leave_no_mark() {
    for mut shell in shells() {
        shell.line("SET k 1 PX 100");
        shell.line("SNAPSHOT CREATE a");
        let policy = crate::EvictionPolicy::AllKeysLfu;
        shell.database.set_eviction_policy(policy);
        let before = shell.database.statistics();
        shell.pass_ms(1000);
        for _ in 0..100 {
            shell.check(&[("SNAPSHOT READ a GET k", "$1 1")]);
        }
        shell.check(&[("SNAPSHOT READ a MGET k no", "*2 $1 1 $-1")]);
        let counted = shell.database.statistics().since(before);
        assert_eq!((counted.keyspace_hits, counted.keyspace_misses), (101, 1));
        assert_eq!((counted.expired_keys, counted.commits), (0, 0));
        assert_eq!(shell.line("SNAPSHOT READ a OBJECT FREQ k"), ":0");
        assert_eq!(shell.line("DBSIZE"), ":1");
    }
}

/// A client of `sync` waits for what a snapshot shows, never for what came later.
#[test]
fn a_read_in_a_snapshot_waits_for_its_epoch_at_most() {
    let log = Arc::new(HandLog::default());
    let mut reader = Shell::with_log(log);
    let mut writer = reader.connect();
    reader.client().durability = Durability::Sync;
    writer.line("SET k 1");
    let created = writer.line("SNAPSHOT CREATE a");
    let epoch = created
        .rsplit(':')
        .next()
        .and_then(|epoch| epoch.parse().ok());
    let epoch = LogEpoch(epoch.expect("CREATE answers its epoch"));
    for _ in 0..3 {
        reader.database.end_epoch();
        writer.line("SET k 2");
    }
    for line in [
        "GET k",
        "GET none",
        "MGET k none",
        "KEYS *",
        "DBSIZE",
        "RANDOMKEY",
    ] {
        reader.line(&format!("SNAPSHOT READ a {line}"));
        assert_eq!(reader.awaits(), epoch, "{line}");
    }
    reader.line("GET k");
    assert!(reader.awaits() > epoch);
}

/// What each database holds: values of any kind, and their deadlines.
type Content = Vec<BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>>;

const DATABASES: usize = 2;

/// Everything that `shell` sees, behind `before`.
fn content(shell: &mut Shell, before: &[&str]) -> Content {
    let mut content = Content::new();
    for index in 0..DATABASES {
        shell.line(&format!("SELECT {index}"));
        let mut line = |words: &[&[u8]]| {
            let before = before.iter().map(|word| word.as_bytes());
            shell.run(before.chain(words.iter().copied()))
        };
        let mut map = BTreeMap::new();
        let keys = line(&[b"KEYS", b"*"]);
        for key in keys.split(|byte| *byte == b'\n').skip(2).step_by(2) {
            if let Some(key) = key.strip_suffix(b"\r") {
                let value = (line(&[b"DUMP", key]), line(&[b"PEXPIRETIME", key]));
                map.insert(key.to_vec(), value);
            }
        }
        content.push(map);
    }
    content
}

/// Something that changes what databases hold.
fn change_something(shell: &mut Shell, random: &mut fastrand::Rng, step: usize) {
    let (key, other) = (random.u32(..40), random.u32(..40));
    let line = match random.u32(..84) {
        0..44 => format!("SET key{key} {step}"),
        44..52 => format!("SET key{key} {step} PX 20"),
        52..55 => format!("HSET hash{key} f{other} {step}"),
        55..57 => format!("PEXPIRE key{key} {}", 1 + other),
        57..69 => format!("DEL key{key} hash{other}"),
        69..72 => format!("APPEND key{key} {}", "x".repeat(9000)),
        72..75 => format!("RENAME key{key} key{other}"),
        75..77 => format!("MOVE key{key} {}", other % 2),
        77 => "SWAPDB 0 1".to_owned(),
        78 if key < 10 => "FLUSHALL".to_owned(),
        79 if key < 10 => "FLUSHDB".to_owned(),
        _ => return shell.pass_ms(3),
    };
    shell.line(&format!("SELECT {}", random.usize(..DATABASES)));
    shell.line(&line);
}

/// Snapshots are made and dropped at random beside writes, removals, expiry, and what databases
/// are emptied, exchanged and renamed by; each shows at any time what they held when it was made.
#[test]
fn random_snapshots_show_what_there_was() {
    for mut shell in shells() {
        let mut random = fastrand::Rng::with_seed(seed());
        let mut made: Vec<(String, Content)> = Vec::new();
        for step in 0..1500 {
            match random.u32(..100) {
                0..85 => change_something(&mut shell, &mut random, step),
                85..88 => {
                    let mut session = shell.database.session().expect("a session is free");
                    session.maintain();
                }
                88..92 if made.len() < 6 => {
                    let name = format!("s{step}");
                    let now = content(&mut shell, &[]);
                    let created = shell.line(&format!("SNAPSHOT CREATE {name}"));
                    assert!(created.starts_with('*'), "{created}");
                    made.push((name, now));
                }
                92..95 if !made.is_empty() => {
                    let (name, _) = made.swap_remove(random.usize(..made.len()));
                    assert_eq!(shell.line(&format!("SNAPSHOT DROP {name}")), ":1");
                }
                _ if !made.is_empty() => {
                    let (name, expected) = &made[random.usize(..made.len())];
                    let shown = content(&mut shell, &["SNAPSHOT", "READ", name]);
                    assert_eq!(shown, *expected, "step {step}, {name}");
                }
                _ => {}
            }
        }
    }
}

/// Accounts whose sum stays: transfers between them go on in several threads, and every snapshot
/// shows the sum, as often as it is read.
#[test]
fn the_sum_of_accounts_is_exact_in_every_snapshot() {
    use std::sync::atomic::{AtomicBool, Ordering};

    const ACCOUNTS: usize = 64;
    const SUM: u64 = ACCOUNTS as u64 * 1000;
    /// What `SNAPSHOT READ name MGET …` shows, all accounts together.
    fn sum(shell: &mut Shell, name: &str) -> u64 {
        let accounts = (0..ACCOUNTS).map(|account| format!("a{account}"));
        let read = ["SNAPSHOT", "READ", name, "MGET"].map(str::to_owned);
        let reply = shell.run(read.into_iter().chain(accounts));
        let text = String::from_utf8(reply).expect("numbers");
        let figures = text.lines().skip(2).step_by(2);
        let sum: i64 = figures
            .map(|figure| figure.parse::<i64>().expect("a number"))
            .sum();
        u64::try_from(sum).expect("nothing is lost")
    }
    for mut shell in shells() {
        for account in 0..ACCOUNTS {
            shell.line(&format!("SET a{account} 1000"));
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (mut shell, done) = (shell.connect(), &done);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed() + thread);
                    while !done.load(Ordering::Relaxed) {
                        let (from, to) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
                        let amount = random.u32(..50);
                        let by = [
                            format!("DECRBY a{from} {amount}"),
                            format!("INCRBY a{to} {amount}"),
                        ];
                        shell.line("MULTI");
                        for line in &by {
                            shell.line(line);
                        }
                        shell.line(if random.u32(..20) == 0 {
                            "DISCARD"
                        } else {
                            "EXEC"
                        });
                    }
                });
            }
            for round in 0..40 {
                let name = format!("s{round}");
                assert!(
                    shell
                        .line(&format!("SNAPSHOT CREATE {name}"))
                        .starts_with('*')
                );
                if round >= 4 {
                    let old = format!("s{}", round - round % 3 - 1);
                    let reply = shell.line(&format!("SNAPSHOT READ {old} DBSIZE"));
                    if reply == format!(":{ACCOUNTS}") {
                        assert_eq!(sum(&mut shell, &old), SUM, "{old} in round {round}");
                        shell.line(&format!("SNAPSHOT DROP {old}"));
                    }
                }
                assert_eq!(sum(&mut shell, &name), SUM, "{name}");
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(shell.line("SNAPSHOT DROP ALL").starts_with(':'));
    }
}
