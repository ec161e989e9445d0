//! Replies of the administrative commands, as redis-server 7.0.15 gives them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_db::{Progress, Wait};

use crate::config::{Config, Setting};
use crate::registry::{BufferSizes, ClientFlag};
use crate::shared::lock;
use crate::testing::Shell;

fn check(shell: &mut Shell, expected: &[(&str, &str)]) {
    for (line, reply) in expected {
        assert_eq!(shell.short(line), *reply, "{line}");
    }
}

fn locked() -> Shell {
    Shell::new(Config {
        password: b"secret".to_vec(),
        ..Config::default()
    })
}

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn auth_without_a_password() {
    check(
        &mut Shell::new(Config::default()),
        &[
            (
                "AUTH x",
                "-ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ),
            ("AUTH default x", "+OK"),
            ("AUTH nosuch x", WRONG),
            ("AUTH a b c", "-ERR syntax error"),
            ("ACL LIST", "*1 $34 user default on nopass ~* &* +@all"),
        ],
    );
}

#[test]
fn a_password_locks_what_is_not_for_everybody() {
    let hello = "-NOAUTH HELLO must be called with the client already authenticated, otherwise \
                 the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time";
    check(
        &mut locked(),
        &[
            ("GET k", "-NOAUTH Authentication required."),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("HELLO", hello),
            ("HELLO 3 SETNAME x", hello),
            ("AUTH wrong", WRONG),
            ("AUTH nosuch secret", WRONG),
            ("HELLO 3 AUTH default wrong", WRONG),
            ("AUTH secret", "+OK"),
            ("GET k", "$-1"),
            ("RESET", "+RESET"),
            ("GET k", "-NOAUTH Authentication required."),
            ("AUTH default secret", "+OK"),
            ("CONFIG SET requirepass \"\"", "+OK"),
            ("RESET", "+RESET"),
            ("GET k", "$-1"),
        ],
    );
}

#[test]
fn hello_checks_in_redis_order() {
    let mut shell = Shell::new(Config::default());
    check(
        &mut shell,
        &[
            (
                "HELLO abc",
                "-ERR Protocol version is not an integer or out of range",
            ),
            ("HELLO 4 foo", "-NOPROTO unsupported protocol version"),
            ("HELLO 3 foo", "-ERR Syntax error in HELLO option 'foo'"),
            (
                "HELLO 3 AUTH default",
                "-ERR Syntax error in HELLO option 'AUTH'",
            ),
            (
                "HELLO 3 SETNAME",
                "-ERR Syntax error in HELLO option 'SETNAME'",
            ),
            (
                "HELLO 2 SETNAME \"a b\"",
                "-ERR Client names cannot contain spaces, newlines or special characters.",
            ),
        ],
    );
    assert_eq!(
        shell.short("HELLO 3 AUTH default x SETNAME me"),
        "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :1 $4 mode $10 standalone \
         $4 role $6 master $7 modules *0"
    );
    check(
        &mut shell,
        &[
            ("CLIENT GETNAME", "$2 me"),
            ("GET k", "_"),
            ("RESET", "+RESET"),
            ("GET k", "$-1"),
        ],
    );
    assert_eq!(shell.short("CLIENT GETNAME"), "$-1");
    assert!(shell.short("HELLO").starts_with("*14 $6 server"));
}

#[test]
fn client_refuses_in_redis_words() {
    check(
        &mut Shell::new(Config::default()),
        &[
            ("CLIENT NO-EVICT maybe", "-ERR syntax error"),
            ("CLIENT REPLY maybe", "-ERR syntax error"),
            (
                "CLIENT PAUSE x",
                "-ERR timeout is not an integer or out of range",
            ),
            ("CLIENT PAUSE -1", "-ERR timeout is negative"),
            (
                "CLIENT PAUSE 0 foo",
                "-ERR CLIENT PAUSE mode must be WRITE or ALL",
            ),
            ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
            ("CLIENT KILL id", "-ERR No such client"),
            ("CLIENT KILL foo bar", "-ERR syntax error"),
            (
                "CLIENT KILL ID 0",
                "-ERR client-id should be greater than 0",
            ),
            (
                "CLIENT KILL ID x",
                "-ERR client-id should be greater than 0",
            ),
            ("CLIENT KILL ID 99999", ":0"),
            ("CLIENT KILL ID 99999 ID", "-ERR syntax error"),
            ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'"),
            ("CLIENT KILL TYPE replica", ":0"),
            ("CLIENT KILL USER nosuch", "-ERR No such user 'nosuch'"),
            ("CLIENT KILL SKIPME yes", ":0"),
            ("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'"),
            ("CLIENT LIST TYPE pubsub", "$0"),
            ("CLIENT LIST ID", "-ERR syntax error"),
            ("CLIENT LIST ID 1 x", "-ERR Invalid client ID"),
            ("CLIENT LIST ID 77", "$0"),
            ("CLIENT GETREDIR", ":-1"),
            ("CLIENT TRACKING off", "+OK"),
            (
                "CLIENT CACHING yes",
                "-ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                 OPTIN or OPTOUT mode enabled",
            ),
            (
                "CLIENT TRACKINGINFO",
                "*6 $5 flags *1 $3 off $8 redirect :-1 $8 prefixes *0",
            ),
            ("CLIENT UNBLOCK 1", ":0"),
            (
                "CLIENT UNBLOCK x",
                "-ERR value is not an integer or out of range",
            ),
            (
                "CLIENT UNBLOCK 1 foo",
                "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ),
            (
                "CLIENT foo",
                "-ERR unknown subcommand 'foo'. Try CLIENT HELP.",
            ),
            ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
            ("CLIENT SETINFO LIB-VER 5.0", "+OK"),
            ("CLIENT SETINFO foo bar", "-ERR Unrecognized option 'foo'"),
        ],
    );
}

#[test]
fn client_list_has_redis_fields() {
    let mut shell = Shell::new(Config::default());
    shell.record.set_buffers(BufferSizes {
        query_bytes: 26,
        query_free_bytes: 100,
        output_bytes: 0,
        output_capacity_bytes: 1024,
    });
    for line in [
        "CLIENT SETNAME me",
        "CLIENT SETINFO LIB-NAME lib",
        "SELECT 3",
        "WATCH k",
    ] {
        assert_eq!(shell.short(line), "+OK");
    }
    let line = shell.ask("CLIENT INFO");
    let line = line.split("\r\n").nth(1).unwrap();
    let memory = shell.record.memory_bytes();
    assert_eq!(
        line,
        format!(
            "id=1 addr=127.0.0.1:50000 laddr=127.0.0.1:6379 fd=9 name=me age=0 idle=0 flags=N \
             db=3 sub=0 psub=0 ssub=0 multi=-1 qbuf=26 qbuf-free=100 argv-mem=0 multi-mem={} \
             rbs=1024 rbp=1024 obl=0 oll=0 omem=0 tot-mem={memory} events=r cmd=client|info \
             user=default redir=-1 resp=2 lib-name=lib lib-ver=\n",
            shell.record.transaction_bytes()
        )
    );
    let mut other = shell.connect();
    assert_eq!(other.short("MULTI"), "+OK");
    other.ask("GET k");
    shell.ask("CLIENT NO-EVICT ON");
    let list = shell.ask("CLIENT LIST");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[1].contains(" flags=e ") && lines[1].contains(" cmd=client|list "));
    assert!(lines[2].contains(" flags=x ") && lines[2].contains(" multi=1 "));
}

#[test]
fn client_kill_reaches_other_workers_and_oneself() {
    let mut shell = Shell::new(Config::default());
    let others = [shell.connect(), shell.connect(), shell.connect()];
    let closed = |shell: &Shell| std::mem::take(&mut lock(&shell.mailbox.0).closed);
    assert_eq!(shell.short("CLIENT KILL 127.0.0.1:50001"), "+OK");
    assert_eq!(
        (closed(&shell), others[0].record.is_killed()),
        (vec![2], true)
    );
    assert_eq!(shell.short("CLIENT KILL ID 2"), ":0", "it is met once");
    assert_eq!(shell.short("CLIENT KILL LADDR 127.0.0.1:6379 ID 3"), ":1");
    assert_eq!(closed(&shell), [3]);
    assert_eq!(shell.short("CLIENT KILL TYPE normal MAXAGE 1000"), ":0");
    for (age, error) in [
        (
            "99999999999999999999",
            "maxage is not an integer or out of range",
        ),
        ("-1", "maxage should be greater than 0"),
    ] {
        let reply = shell.short(&format!("CLIENT KILL MAXAGE {age}"));
        assert_eq!(reply, format!("-ERR {error}"));
    }
    assert_eq!(shell.short("CLIENT KILL USER default"), ":1");
    assert_eq!(
        (closed(&shell), shell.ask("CLIENT LIST").lines().count()),
        (vec![4], 3)
    );
    assert!(matches!(shell.outcome, Progress::Done));
    assert_eq!(shell.short("CLIENT KILL TYPE normal SKIPME no"), ":1");
    assert!(matches!(shell.outcome, Progress::Close));
    assert_eq!(closed(&shell), []);
}

#[test]
fn replies_can_be_turned_off() {
    check(
        &mut Shell::new(Config::default()),
        &[
            ("CLIENT REPLY SKIP", ""),
            ("PING", ""),
            ("PING", "+PONG"),
            ("CLIENT REPLY OFF", ""),
            ("PING", ""),
            ("CLIENT REPLY ON", "+OK"),
        ],
    );
}

#[test]
fn a_pause_holds_back_until_it_ends() {
    let mut shell = Shell::new(Config::default());
    check(
        &mut shell,
        &[
            ("CLIENT PAUSE 100000 WRITE", "+OK"),
            ("GET k", "$-1"),
            ("SET k v", ""),
        ],
    );
    assert!(matches!(shell.outcome, Progress::Waits(Wait::Leave { .. })));
    let wakes = lock(&shell.mailbox.0).wakes;
    check(&mut shell, &[("CLIENT UNPAUSE", "+OK"), ("SET k v", "+OK")]);
    assert_eq!(lock(&shell.mailbox.0).wakes, wakes + 1);
}

#[test]
fn monitors_see_commands_but_no_secrets() {
    let mut monitor = Shell::new(Config::default());
    let mut shell = monitor.connect();
    assert_eq!(monitor.short("MONITOR"), "+OK");
    for line in [
        "SELECT 3",
        "SET k \"a\\r\\n\"",
        "AUTH default x",
        "CONFIG GET port",
        "NOSUCH",
    ] {
        shell.ask(line);
    }
    for line in ["MULTI", "GET k", "EXEC"] {
        shell.ask(line);
    }
    let delivered = std::mem::take(&mut lock(&shell.mailbox.0).delivered);
    let lines: Vec<_> = delivered
        .iter()
        .map(|(client, line)| {
            assert_eq!(*client, 1);
            line.split_once(' ').unwrap().1.trim_end()
        })
        .collect();
    let expected = [
        r#"[3 127.0.0.1:50001] "SELECT" "3""#,
        r#"[3 127.0.0.1:50001] "SET" "k" "a\r\n""#,
        r#"[3 127.0.0.1:50001] "AUTH" "(redacted)" "(redacted)""#,
        r#"[3 127.0.0.1:50001] "MULTI""#,
        r#"[3 127.0.0.1:50001] "GET" "k""#,
        r#"[3 127.0.0.1:50001] "EXEC""#,
    ];
    assert_eq!(lines, expected);
    assert!(monitor.record.has(ClientFlag::Monitor));
    monitor.shared.disconnect(&monitor.record);
    shell.ask("PING");
    assert!(lock(&shell.mailbox.0).delivered.is_empty());
}

/// Settings that cannot be, which of them is named, and why.
const WRONG_SETTINGS: &[(&str, &str, &str)] = &[
    (
        "maxmemory foo",
        "maxmemory",
        "argument must be a memory value",
    ),
    (
        "timeout x",
        "timeout",
        "argument couldn't be parsed into an integer",
    ),
    (
        "timeout -1",
        "timeout",
        "argument must be between 0 and 2147483647 inclusive",
    ),
    ("databases 4", "databases", "can't set immutable config"),
    (
        "rdbchecksum yes",
        "rdbchecksum",
        "can't set immutable config",
    ),
    (
        "dbfilename a.rdb",
        "dbfilename",
        "can't set protected config",
    ),
    ("dir /tmp", "dir", "can't set protected config"),
    ("port 7000", "port", "it is changed at the start alone"),
    (
        "loglevel foo",
        "loglevel",
        "argument(s) must be one of the following: debug, verbose, notice, warning",
    ),
    (
        "latency-tracking maybe",
        "latency-tracking",
        "argument must be 'yes' or 'no'",
    ),
    (
        "slowlog-log-slower-than -2",
        "slowlog-log-slower-than",
        "argument must be between -1 and 9223372036854775807 inclusive",
    ),
    (
        "client-output-buffer-limit \"normal 1 2\"",
        "client-output-buffer-limit",
        "Wrong number of arguments in buffer limit configuration.",
    ),
    (
        "client-output-buffer-limit \"foo 1 2 3\"",
        "client-output-buffer-limit",
        "Invalid client class specified in buffer limit configuration.",
    ),
    (
        "client-output-buffer-limit \"normal 1 x 3\"",
        "client-output-buffer-limit",
        "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
    ),
    (
        "latency-tracking-info-percentiles \"1 101\"",
        "latency-tracking-info-percentiles",
        "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
    ),
    ("timeout 1 TIMEOUT 2", "TIMEOUT", "duplicate parameter"),
    (
        "timeout 5 maxmemory foo",
        "maxmemory",
        "argument must be a memory value",
    ),
    (
        "save \"900 1\"",
        "save",
        "expected an empty value: the server keeps nothing on disk",
    ),
    // Settings that mean nothing here.
    (
        "hz abc",
        "hz",
        "argument couldn't be parsed into an integer",
    ),
    (
        "lfu-decay-time +1",
        "lfu-decay-time",
        "argument couldn't be parsed into an integer",
    ),
    (
        "active-defrag-cycle-max 100",
        "active-defrag-cycle-max",
        "argument must be between 1 and 99 inclusive",
    ),
    (
        "active-defrag-ignore-bytes 0",
        "active-defrag-ignore-bytes",
        "argument must be between 1 and 9223372036854775807 inclusive",
    ),
    (
        "lazyfree-lazy-expire 1",
        "lazyfree-lazy-expire",
        "argument must be 'yes' or 'no'",
    ),
    (
        "repl-diskless-load maybe",
        "repl-diskless-load",
        "argument(s) must be one of the following: disabled, on-empty-db, swapdb",
    ),
    (
        "shutdown-on-sigint \"save later\"",
        "shutdown-on-sigint",
        "argument(s) must be one of the following: default, save, nosave, now, force",
    ),
];

#[test]
fn config_set_says_why_it_failed() {
    let failed = |name: &str, reason: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
    };
    let mut shell = Shell::new(Config::default());
    for (line, name, reason) in WRONG_SETTINGS {
        assert_eq!(
            shell.short(&format!("CONFIG SET {line}")),
            failed(name, reason),
            "{line}"
        );
    }
    check(
        &mut shell,
        &[
            ("CONFIG GET timeout", "*2 $7 timeout $1 0"),
            ("CONFIG SET shutdown-on-sigint \"FORCE save\"", "+OK"),
            (
                "CONFIG GET shutdown-on-sigint",
                "*2 $18 shutdown-on-sigint $10 save force",
            ),
        ],
    );
}

#[test]
fn config_sets_all_or_nothing() {
    let mut shell = Shell::new(Config::default());
    check(
        &mut shell,
        &[
            (
                "CONFIG SET timeout 5 foo bar",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'",
            ),
            ("CONFIG SET timeout 5 maxclients", "-ERR syntax error"),
            ("CONFIG GET timeout", "*2 $7 timeout $1 0"),
            ("CONFIG SET timeout 5 maxmemory 1gb save \"\"", "+OK"),
            ("CONFIG GET TIME* \"t?meout\"", "*2 $7 timeout $1 5"),
            (
                "CONFIG GET max*memory",
                "*4 $9 maxmemory $10 1073741824 $10 max-memory $10 1073741824",
            ),
            ("CONFIG GET nosuch", "*0"),
            ("CONFIG GET key-load-delay", "*2 $14 key-load-delay $1 0"),
            ("CONFIG GET key-load*", "*0"),
            (
                "CONFIG SET port 6379 bind \"127.0.0.1 -::1\" proto-max-bulk-len 512mb",
                "+OK",
            ),
            ("CONFIG SET max-memory 0", "+OK"),
            (
                "CONFIG REWRITE",
                "-ERR The server is running without a config file",
            ),
            (
                "CONFIG SET latency-tracking-info-percentiles \"50.50 99.999\"",
                "+OK",
            ),
            (
                "CONFIG GET latency-tracking-*",
                "*2 $33 latency-tracking-info-percentiles $11 50.5 99.999",
            ),
        ],
    );
    assert_eq!(
        (
            shell.shared.settings.timeout_s(),
            shell.shared.database.max_memory()
        ),
        (5, 0)
    );
}

#[test]
fn config_help_says_which_settings_change_nothing() {
    let help = Shell::new(Config::default()).short("CONFIG HELP");
    for setting in Setting::all() {
        let is_named = help.split(' ').any(|word| word == setting.name);
        assert_eq!(is_named, setting.is_inert(), "{}", setting.name);
    }
}

#[test]
fn small_honest_answers() {
    let nothing = "-ERR nothing is kept on disk: the server was started with durability none";
    let cluster = "-ERR This instance has cluster support disabled";
    check(
        &mut Shell::new(Config::default()),
        &[
            ("ROLE", "*3 $6 master :0 *0"),
            ("REPLICAOF NO ONE", "+OK"),
            ("SLAVEOF no one", "+OK"),
            ("REPLICAOF host x", "-ERR Invalid master port"),
            (
                "PREPLICATE BEGIN 1 x 1 1",
                "-ERR this server speaks another format of replication",
            ),
            (
                "PREPLICATE ACK 1 2 3 4",
                "-ERR PREPLICATE ACK is what replicas say, and this connection is none",
            ),
            ("WAIT 1 0", ":0"),
            ("WAIT x 0", "-ERR value is not an integer or out of range"),
            ("WAIT 0 x", "-ERR timeout is not an integer or out of range"),
            ("WAIT 0 -1", "-ERR timeout is negative"),
            ("CLUSTER INFO", cluster),
            ("CLUSTER HELP", cluster),
            ("MODULE LIST", "*0"),
            ("FUNCTION FLUSH", "+OK"),
            (
                "FUNCTION FLUSH foo",
                "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
            ),
            (
                "FUNCTION LIST LIBRARYNAME",
                "-ERR library name argument was not given",
            ),
            ("FUNCTION LIST foo", "-ERR Unknown argument foo"),
            ("FUNCTION LIST WITHCODE", "*0"),
            ("ACL WHOAMI", "$7 default"),
            ("ACL USERS", "*1 $7 default"),
            ("ACL CAT foo", "-ERR Unknown category 'foo'"),
            ("ACL GETUSER nosuch", "$-1"),
            ("SAVE", nothing),
            ("BGSAVE SCHEDULE", nothing),
            ("BGSAVE foo", "-ERR syntax error"),
            ("BGREWRITEAOF", nothing),
            ("MEMORY USAGE nosuch", "$-1"),
            (
                "MEMORY USAGE k SAMPLES x",
                "-ERR value is not an integer or out of range",
            ),
            ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
            ("MEMORY USAGE k foo 1", "-ERR syntax error"),
            ("MEMORY PURGE", "+OK"),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
            ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
            ("SHUTDOWN foo", "-ERR syntax error"),
        ],
    );
}

#[test]
fn debug_answers_what_it_knows() {
    check(
        &mut Shell::new(Config::default()),
        &[
            (
                "DEBUG foo",
                "-ERR unknown subcommand or wrong number of arguments for 'foo'. Try DEBUG HELP.",
            ),
            ("DEBUG ERROR MYERR", "-MYERR"),
            (
                "DEBUG ERROR",
                "-ERR unknown subcommand or wrong number of arguments for 'ERROR'. Try DEBUG HELP.",
            ),
            (
                "LOLWUT VERSION x",
                "-ERR value is not an integer or out of range",
            ),
            (
                "LOLWUT VERSION 5 x",
                "-ERR value is not an integer or out of range",
            ),
            ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
            ("DEBUG QUICKLIST-PACKED-THRESHOLD 100b", "+OK"),
            (
                "DEBUG QUICKLIST-PACKED-THRESHOLD x",
                "-ERR argument must be a memory value",
            ),
            ("DEBUG OBJECT nokey", "-ERR no such key"),
        ],
    );
}

#[test]
fn shutdown_closes_without_a_reply() {
    let mut shell = Shell::new(Config::default());
    assert_eq!(shell.ask("SHUTDOWN NOSAVE NOW"), "");
    assert!(matches!(shell.outcome, Progress::Close));
    assert!(shell.shared.shutdown_requested());
    shell.shared.wait_for_shutdown();
}

#[test]
fn slow_commands_are_logged() {
    let mut shell = Shell::new(Config {
        slowlog_slower_than_us: 0,
        ..Config::default()
    });
    check(
        &mut shell,
        &[
            (
                "SLOWLOG GET x",
                "-ERR count should be greater than or equal to -1",
            ),
            (
                "SLOWLOG GET -2",
                "-ERR count should be greater than or equal to -1",
            ),
            (
                "SLOWLOG GET 1 2",
                "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ),
            ("SLOWLOG RESET", "+OK"),
            ("CLIENT SETNAME me", "+OK"),
            ("SET k secret", "+OK"),
            ("CONFIG SET requirepass secret", "+OK"),
            ("CONFIG SET slowlog-log-slower-than 20000000", "+OK"),
            ("DEBUG SLEEP 21", ""),
        ],
    );
    assert!(matches!(
        shell.outcome,
        Progress::Waits(Wait::Time {
            milliseconds: 21_000
        })
    ));
    let log = shell.ask("SLOWLOG GET -1");
    assert!(log.starts_with("*5\r\n*6\r\n:7\r\n"), "{log}");
    let first = log.split("\r\n").nth(4).unwrap();
    assert!(
        first.trim_start_matches(':').parse::<u64>().unwrap() >= 21_000_000,
        "{log}"
    );
    assert!(log.contains("*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$2\r\n21\r\n$15\r\n127.0.0.1:50000"));
    assert!(log.contains("$11\r\nrequirepass\r\n$10\r\n(redacted)\r\n"));
    assert_eq!(log.matches("$2\r\nme\r\n").count(), 5);
    assert_eq!(shell.short("SLOWLOG LEN"), ":5");
}

/// The wait for all gates is the command's own time, and its event has a name.
#[test]
fn making_a_snapshot_slowly_is_an_event() {
    const HELD: Duration = Duration::from_millis(20);
    let mut shell = Shell::new(Config {
        latency_threshold_ms: 10,
        ..Config::default()
    });
    let shared = Arc::clone(&shell.shared);
    let record = Arc::clone(&shell.record);
    let mut other = shared.database.session().unwrap();
    let turn = other.turn();
    let begun = Instant::now();
    let has_begun = || {
        let last = record.last_command();
        shared.commands.name(last) == Some("snapshot|create")
    };
    let (began, mut shell) = std::thread::scope(|scope| {
        let maker = scope.spawn(move || {
            shell.ask("SNAPSHOT CREATE s");
            shell
        });
        while !has_begun() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        let began = Instant::now();
        while began.elapsed() < HELD {
            std::thread::yield_now();
        }
        drop(turn);
        (began - begun, maker.join().expect("it is made"))
    });
    assert!(began < Duration::from_secs(10), "it was not begun");
    let latest = shell.short("LATENCY LATEST");
    assert!(
        latest.starts_with("*1 *4 $15 snapshot-create :"),
        "{latest}"
    );
    let (_, took) = latest.rsplit_once(" :").unwrap();
    let took: u128 = took.parse().unwrap();
    assert!(took >= HELD.as_millis() - 1, "{latest}");
}

#[test]
fn info_tells_of_snapshots() {
    let mut shell = Shell::new(Config::default());
    check(&mut shell, &[("SET k v", "+OK"), ("SET l v", "+OK")]);
    shell.ask("SNAPSHOT CREATE a");
    shell.ask("SNAPSHOT CREATE b HOLD");
    check(&mut shell, &[("SET k w", "+OK"), ("DEL l", ":1")]);
    let info = shell.ask("INFO snapshots");
    let figure = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        let figure = line.and_then(|line| line.strip_prefix(':')?.parse::<u64>().ok());
        figure.unwrap_or_else(|| panic!("{name}: {info}"))
    };
    assert_eq!((figure("snapshots"), figure("snapshots_held")), (2, 1));
    assert_eq!(figure("snapshot_images"), 2);
    assert!(figure("snapshot_image_bytes") > 0 && figure("oldest_snapshot_ms") < 60_000);
}

#[test]
fn latency_events_and_histograms() {
    let mut shell = Shell::new(Config {
        latency_threshold_ms: 10_000,
        ..Config::default()
    });
    check(
        &mut shell,
        &[
            ("LATENCY LATEST", "*0"),
            ("DEBUG SLEEP 15", ""),
            ("GET k", "$-1"),
        ],
    );
    // Nobody sleeps here: the fifteen seconds are noted, and what the command itself took.
    let latest = shell.short("LATENCY LATEST");
    assert!(latest.starts_with("*1 *4 $7 command :"), "{latest}");
    let (rest, most) = latest.rsplit_once(" :").unwrap();
    let took: u64 = most.parse().unwrap();
    assert!((15_000..25_000).contains(&took), "{latest}");
    assert!(rest.ends_with(&format!(" :{took}")), "{latest}");
    assert!(
        shell
            .short("LATENCY HISTORY command")
            .ends_with(&format!(" :{took}"))
    );
    assert!(
        shell
            .ask("LATENCY GRAPH command")
            .contains(&format!("command - high {took} ms, low {took} ms"))
    );
    check(
        &mut shell,
        &[
            ("LATENCY HISTORY nosuch", "*0"),
            (
                "LATENCY GRAPH nosuch",
                "-ERR No samples available for event 'nosuch'",
            ),
            ("LATENCY RESET nosuch", ":0"),
            ("LATENCY RESET", ":1"),
            ("LATENCY HISTOGRAM nosuch", "*0"),
        ],
    );
    let histogram = shell.short("LATENCY HISTOGRAM get latency");
    let get = "$3 get *4 $5 calls :1 $14 histogram_usec *2 :";
    assert!(histogram.starts_with(&format!("*12 {get}")), "{histogram}");
    shell.ask("HELLO 3");
    let histogram = shell.short("LATENCY HISTOGRAM get");
    assert!(histogram.starts_with("%1 $3 get %2 $5 calls :1 $14 histogram_usec %1 :"));
    shell.ask("CONFIG RESETSTAT");
    assert_eq!(shell.short("LATENCY HISTOGRAM get"), "%0");
}
