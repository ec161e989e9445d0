//! Arguments at the ends of their ranges: every line below with each of them, compared with Redis.
//!
//! `%` in a line is the argument, `&` each of all of them. What a line changes is there for those
//! behind it; each argument begins with the same data.

use pando_protocol::resp::Value;

use super::compare::{Compare, agree};
use super::peer::{Connection, Server, encode};

const DATA: &str = "FLUSHALL
RPUSH l a b c a b
SADD s a b c
ZADD z 1 a 2 b 3 c inf d -inf e 1e308 f
ZADD y 1e308 a -1e308 b -inf d inf e
XADD x 1-1 a 1
XADD x 1-2 b 2
XADD x 18446744073709551615-18446744073709551614 c 3
XGROUP CREATE x g 0
XREADGROUP GROUP g c COUNT 1 STREAMS x >
HSET h a 1 f 1.5
SET k 10
GEOADD geo 13.361389 38.115556 P 15.087269 37.502669 C";

const NUMBERS: &[&str] = &[
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "4294967296",
    "2147483648",
    "0",
    "-1",
    "-2",
    "-0",
    "",
    "abc",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1",
    "2",
];

const WITH_NUMBERS: &str = "LRANGE l % &
ZRANGE z % &
ZREVRANGE z % &
ZRANGE z 0 5 BYSCORE LIMIT % &
ZRANGEBYLEX z - + LIMIT % &
ZRANGEBYSCORE z -inf +inf LIMIT % & WITHSCORES
GETRANGE k % &
SORT l ALPHA LIMIT % &
LPOS l a RANK 1 COUNT % MAXLEN &
BITCOUNT k % &
BITCOUNT k % & BIT
BITPOS k 1 % & BIT
LINDEX l %
LSET l % v
LREM l % zz
LPOP nokey %
RPOP nokey %
LMPOP % nokey LEFT
LMPOP 1 nokey LEFT COUNT %
LTRIM l % 9223372036854775807
SPOP nokey %
SINTERCARD % s
SINTERCARD 1 s LIMIT %
ZINTERCARD 1 z LIMIT %
ZPOPMIN nokey %
ZPOPMAX nokey %
ZMPOP % nokey MIN
ZMPOP 1 nokey MIN COUNT %
ZUNION % z
ZDIFF % z
ZREMRANGEBYRANK nokey % 0
XRANGE x - + COUNT %
XREVRANGE x + - COUNT %
XREAD COUNT % STREAMS x 0
XPENDING x g - + %
XTRIM x MAXLEN ~ 0 LIMIT %
XADD x MAXLEN % * a
XAUTOCLAIM x g d 0 0 COUNT %
XCLAIM x g d 0 1-1 RETRYCOUNT %
XGROUP CREATE x g2 0 ENTRIESREAD %
XGROUP SETID x g 0 ENTRIESREAD %
XSETID x 18446744073709551615-18446744073709551615 ENTRIESADDED %
XTRIM x MAXLEN %
XTRIM x MAXLEN ~ %
HINCRBY h a %
HINCRBYFLOAT h f %
INCRBY k %
DECRBY k %
INCRBYFLOAT k %
SETRANGE nokey % 
EXPIRE nokey %
PEXPIRE nokey %
EXPIREAT nokey %
GETBIT k %
BITFIELD k GET u8 %
BITFIELD k SET i64 #1 %
GEOSEARCH geo FROMMEMBER P BYRADIUS % km ASC
GEOSEARCH geo FROMLONLAT % 0 BYRADIUS 1 km
GEOSEARCH geo FROMLONLAT 0 % BYBOX 1 1 km
GEOSEARCH geo FROMMEMBER P BYBOX % 10 km ASC
GEOSEARCH geo FROMMEMBER P BYRADIUS 10 km COUNT % ASC
GEOADD geo % 0 m
GEOADD geo 0 % m";

/// Not with the last two: so many milliseconds may have passed at one server alone.
const WITH_IDLE_TIMES: &str = "XPENDING x g IDLE % - + 1
XAUTOCLAIM x g d % 0
XCLAIM x g d % 1-1";

const SCORES: &[&str] = &[
    "nan",
    "-nan",
    "inf",
    "-inf",
    "+inf",
    "infinity",
    "1e309",
    "-1e309",
    "1e308",
    "1.7976931348623157e308",
    "5e-324",
    "1e-400",
    "0x10",
    "1_0",
    "",
    "abc",
    "(1",
    "(inf",
    "-0.0",
    "0",
    "1",
    "1e",
    ".",
    "1.",
];

const WITH_SCORES: &str = "ZADD z % new
ZADD z INCR % d
ZADD z INCR % e
ZADD z GT % a
ZADD z LT XX CH % b
ZINCRBY z % d
ZINCRBY z % e
ZINCRBY z % f
ZRANGE z 0 -1 WITHSCORES
ZCOUNT z % +inf
ZCOUNT z -inf %
ZRANGEBYSCORE z % (inf
ZREVRANGEBYSCORE z +inf %
ZREMRANGEBYSCORE nokey % 1
ZRANGE z % inf BYSCORE
ZRANGE z % -inf BYSCORE REV
ZUNION 2 z y WEIGHTS % 1 WITHSCORES
ZUNIONSTORE o 2 z y WEIGHTS % -1
ZRANGE o 0 -1 WITHSCORES
ZINTER 2 z y WEIGHTS 1 % WITHSCORES
ZINTERSTORE o 2 z y WEIGHTS 2 % AGGREGATE MAX
ZRANGE o 0 -1 WITHSCORES
ZUNION 3 z y s WEIGHTS 1e308 % 1e308 AGGREGATE SUM WITHSCORES
ZINTERSTORE o 2 z y WEIGHTS % % AGGREGATE MIN
ZRANGE o 0 -1 WITHSCORES
SORT z BY %
HINCRBYFLOAT h f %
INCRBYFLOAT k %
ZRANGEBYLEX z % +
ZLEXCOUNT z - %
GEOADD geo % 1 q
GEOSEARCH geo FROMLONLAT 1 1 BYRADIUS % m ASC
GEOSEARCH geo FROMLONLAT 1 1 BYBOX % 1 m ASC";

const IDS: &[&str] = &[
    "18446744073709551615-18446744073709551615",
    "18446744073709551615-18446744073709551614",
    "18446744073709551615",
    "18446744073709551616",
    "1-18446744073709551616",
    "0-0",
    "-",
    "+",
    "$",
    ">",
    "(18446744073709551615-18446744073709551615",
    "(0-0",
    "(-",
    "(+",
    "1-",
    "-1-1",
    "1-2",
    "5",
    "a-b",
    "",
    "1-*",
    "18446744073709551615-*",
    "0-*",
];

const WITH_IDS: &str = "XRANGE x % &
XREVRANGE x % &
XPENDING x g % & 10
XREAD STREAMS x %
XREADGROUP GROUP g c STREAMS x %
XCLAIM x g d 0 % & JUSTID
XAUTOCLAIM x g d 0 %
XCLAIM x g d 0 1-1 LASTID %
XINFO GROUPS x
XGROUP CREATE x g3 %
XGROUP SETID x g %
XREADGROUP GROUP g c STREAMS x >
XACK x g %
XTRIM x MINID ~ %
XSETID x %
XADD nokey % f v
XADD x % f v
XDEL x %
XTRIM x MINID %
XADD x MINID % 18446744073709551615-18446744073709551615 f v
XADD x * f v
XSETID x 18446744073709551615-18446744073709551615 ENTRIESADDED 5 MAXDELETEDID %
XGROUP CREATE absent g % MKSTREAM";

/// Values of settings: what one of them takes another one refuses.
const VALUES: &[&str] = &[
    "0",
    "1",
    "-1",
    "10",
    "11",
    "99",
    "100",
    "101",
    "128",
    "1000",
    "1001",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999",
    "1.5",
    " 1",
    "+1",
    "abc",
    "",
    "yes",
    "NO",
    "1mb",
    "100mb",
    "1 mb",
    "-1mb",
    "no",
    "clients",
    "swapdb",
    "IP",
    "allchannels",
    "default",
    "save FORCE",
    "save 1",
    "local0",
];

/// Settings of Redis that change nothing here, or nothing in this test; without `hz`, which it
/// moves into its range, and `enable-protected-configs`, which the tests set.
const SETTINGS: &str =
    "acl-pubsub-default acllog-max-len active-defrag-cycle-max active-defrag-cycle-min
active-defrag-max-scan-fields active-defrag-threshold-lower active-defrag-ignore-bytes
active-defrag-threshold-upper active-expire-effort activerehashing always-show-logo
aof-disable-auto-gc aof-load-truncated aof-rewrite-incremental-fsync aof-timestamp-enabled
aof-use-rdb-preamble auto-aof-rewrite-min-size auto-aof-rewrite-percentage busy-reply-threshold
cluster-allow-pubsubshard-when-down cluster-allow-reads-when-down
cluster-allow-replica-migration cluster-announce-bus-port cluster-announce-port
cluster-announce-tls-port cluster-link-sendbuf-limit cluster-migration-barrier
cluster-node-timeout cluster-port cluster-preferred-endpoint-type cluster-replica-no-failover
cluster-replica-validity-factor cluster-require-full-coverage cluster-slave-no-failover
cluster-slave-validity-factor client-output-buffer-limit crash-log-enabled
crash-memcheck-enabled disable-thp dynamic-hz enable-debug-command enable-module-command
hash-max-listpack-entries hash-max-listpack-value hll-sparse-max-bytes io-threads
io-threads-do-reads jemalloc-bg-thread key-load-delay lazyfree-lazy-eviction
lazyfree-lazy-expire lazyfree-lazy-server-del lazyfree-lazy-user-del lazyfree-lazy-user-flush
lfu-decay-time lfu-log-factor list-compress-depth list-max-listpack-size
loading-process-events-interval-bytes lua-time-limit maxmemory-eviction-tenacity
maxmemory-samples min-replicas-max-lag no-appendfsync-on-rewrite oom-score-adj
propagation-error-behavior rdb-del-sync-files rdb-key-save-delay rdb-save-incremental-fsync
rdbchecksum rdbcompression repl-backlog-ttl repl-disable-tcp-nodelay repl-diskless-load
repl-diskless-sync repl-diskless-sync-delay repl-diskless-sync-max-replicas
repl-ping-replica-period repl-ping-slave-period replica-announce-port replica-announced
replica-ignore-disk-write-errors replica-ignore-maxmemory replica-lazy-flush
sanitize-dump-payload set-proc-title shutdown-on-sigint shutdown-on-sigterm shutdown-timeout
slave-announce-port set-max-intset-entries slave-ignore-maxmemory slave-lazy-flush
socket-mark-id stop-writes-on-bgsave-error stream-node-max-bytes stream-node-max-entries
syslog-facility tls-auth-clients tls-prefer-server-ciphers tls-session-cache-size
tls-session-cache-timeout tls-session-caching tracking-table-max-keys repl-timeout
zset-max-listpack-entries zset-max-listpack-value";

/// The lines with the argument, each as its words.
fn lines(template: &str, arguments: &[&str], argument: &str) -> Vec<Vec<String>> {
    let words = |line: &str, other: &str| {
        let word = |word: &str| word.replace('%', argument).replace('&', other);
        line.split(' ').map(word).collect()
    };
    let each = |line: &str| -> Vec<_> {
        let others = if line.contains('&') { arguments } else { &[""] };
        others.iter().map(|other| words(line, other)).collect()
    };
    DATA.lines()
        .map(|line| words(line, ""))
        .chain(template.lines().flat_map(each))
        .collect()
}

fn ask(connection: &mut Connection, lines: &[Vec<String>]) -> Vec<Value> {
    let encoded: Vec<u8> = lines.iter().flat_map(|words| encode(words)).collect();
    connection.send(&encoded);
    let replies = lines.iter();
    replies
        .map(|words| {
            let reply = connection.receive();
            reply.unwrap_or_else(|error| panic!("{error} at {words:?}"))
        })
        .collect()
}

#[test]
fn values_of_settings_that_change_nothing_are_checked_as_by_redis() {
    let Some(redis) = Server::redis() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let pando = Server::pando("masstree");
    let (mut ours, mut theirs) = (pando.connect(), redis.connect());
    let mut differences = Vec::new();
    for value in VALUES {
        let names = SETTINGS.split_ascii_whitespace();
        let lines: Vec<_> = names
            .flat_map(|name| {
                [
                    vec!["CONFIG", "SET", name, value],
                    vec!["CONFIG", "GET", name],
                ]
            })
            .map(|words| words.into_iter().map(String::from).collect::<Vec<_>>())
            .collect();
        let replies = ask(&mut ours, &lines).into_iter();
        for ((words, ours), theirs) in lines.iter().zip(replies).zip(ask(&mut theirs, &lines)) {
            if ours != theirs {
                differences.push(format!("{words:?}\n  pando: {ours:?}\n  redis: {theirs:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn arguments_are_answered_as_by_redis(engine: &str) {
    let Some(redis) = Server::redis() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let pando = Server::pando(engine);
    let (mut ours, mut theirs) = (pando.connect(), redis.connect());
    let mut differences = Vec::new();
    for (template, arguments) in [
        (WITH_NUMBERS, NUMBERS),
        (WITH_IDLE_TIMES, &NUMBERS[..NUMBERS.len() - 2]),
        (WITH_SCORES, SCORES),
        (WITH_IDS, IDS),
    ] {
        for argument in arguments {
            let lines = lines(template, arguments, argument);
            let replies = ask(&mut ours, &lines).into_iter();
            for ((words, ours), theirs) in lines.iter().zip(replies).zip(ask(&mut theirs, &lines)) {
                let compare = match words[0].as_str() {
                    "XINFO" | "XPENDING" => Compare::Timeless,
                    _ => Compare::Exact,
                };
                if !agree(compare, &ours, &theirs) {
                    differences.push(format!("{words:?}\n  pando: {ours:?}\n  redis: {theirs:?}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn arguments_at_the_ends_of_their_ranges_are_answered_as_by_redis() {
    arguments_are_answered_as_by_redis("masstree");
}

#[test]
fn the_same_arguments_on_mercury() {
    arguments_are_answered_as_by_redis("mercury");
}

#[test]
fn the_same_arguments_on_cdds() {
    arguments_are_answered_as_by_redis("cdds");
}

#[test]
fn the_same_arguments_on_minuet() {
    arguments_are_answered_as_by_redis("minuet");
}
