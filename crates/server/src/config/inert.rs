//! Redis settings without a meaning here, so that Redis' configuration files start this server.
//!
//! How Redis lays out values, forks, copies files, replicates or defragments has no counterpart
//! here: any value that Redis accepts is accepted, and CONFIG GET, SET and REWRITE know it. If a
//! value would have to change what clients see, only values that change nothing are accepted; the
//! others are refused with the reason. CONFIG SET refuses those that Redis cannot change while it
//! runs, too.
//!
//! Deliberately absent: settings of modules.

use super::error::Expected;
use super::field::{integer, killer_scores, memory, one_of, only, print, some_of, switch, title};
use super::setting::{Change, Setting};
use super::value::print_switch;

/// The accepted values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    Switch,
    /// An integer from one to the other.
    Integer(i64, i64),
    /// An integer that is not negative, brought to the nearest one between these.
    Within(i64, i64),
    /// The title of the process, with variables in braces.
    Title,
    /// Three scores of the out-of-memory killer.
    KillerScores,
    /// Bytes, from one amount to the other.
    Memory(u64, u64),
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// One or more of these words, in any case.
    SomeOf(&'static [&'static str]),
    /// Any one word.
    Text,
    /// Any words.
    Words,
    /// These.
    Only {
        values: &'static [&'static str],
        why: &'static str,
    },
}

impl Takes {
    /// A value as CONFIG GET shows it.
    pub(super) fn read(self, value: &[u8]) -> Result<Vec<u8>, Expected> {
        match self {
            Self::Switch => switch(value).map(print_switch),
            Self::Integer(least, most) => integer(value, least, most).map(print),
            Self::Within(least, most) => {
                integer(value, 0, INT_MAX).map(|number| print(number.clamp(least, most)))
            }
            Self::Title => title(value).map(|()| value.to_vec()),
            Self::KillerScores => killer_scores(value),
            Self::Memory(least, most) => memory(value, least, most).map(print),
            Self::OneOf(words) => one_of(value, words).map(|word| word.as_bytes().to_vec()),
            Self::SomeOf(words) => some_of(value, words),
            Self::Text | Self::Words => Ok(value.to_vec()),
            Self::Only { values, why } => only(value, values, why).map(|()| value.to_vec()),
        }
    }
}

/// A setting for which every value that Redis takes has no effect.
const fn any(name: &'static str, default: &'static str, takes: Takes) -> Setting {
    Setting::inert(name, default, takes)
}

/// A setting that is refused unless its value is one of `values`; the first is Redis' default.
const fn fixed(name: &'static str, values: &'static [&'static str], why: &'static str) -> Setting {
    Setting::inert(name, values[0], Takes::Only { values, why })
}

use Change::{AtStart, Protected};
use Takes::{Integer, KillerScores, Memory, OneOf, SomeOf, Switch, Text, Title, Within, Words};

const NO_TLS: &str = "the server does not speak TLS";

// Redis' bounds.
const INT_MIN: i64 = i32::MIN as i64;
const INT_MAX: i64 = i32::MAX as i64;
const PORT_MAX: i64 = u16::MAX as i64;
const MEMORY_MAX: u64 = i64::MAX as u64;
const LOCAL: &[&str] = &["no", "yes", "local"];
const SHUTDOWN: &[&str] = &["default", "save", "nosave", "now", "force"];

/// In alphabetical order; values are Redis' defaults.
pub(super) static INERT: &[Setting] = &[
    fixed("aclfile", &[""], "the only user is default").changing(AtStart),
    any(
        "acl-pubsub-default",
        "resetchannels",
        OneOf(&["allchannels", "resetchannels"]),
    ),
    any("acllog-max-len", "128", Integer(0, i64::MAX)),
    any("active-defrag-cycle-max", "25", Integer(1, 99)),
    any("active-defrag-cycle-min", "1", Integer(1, 99)),
    any(
        "active-defrag-ignore-bytes",
        "104857600",
        Memory(1, MEMORY_MAX),
    ),
    any(
        "active-defrag-max-scan-fields",
        "1000",
        Integer(1, i64::MAX),
    ),
    any("active-defrag-threshold-lower", "10", Integer(0, 1000)),
    any("active-defrag-threshold-upper", "100", Integer(0, 1000)),
    any("active-expire-effort", "1", Integer(1, 10)),
    any("activedefrag", "no", Switch),
    any("activerehashing", "yes", Switch),
    any("always-show-logo", "no", Switch).changing(AtStart),
    any("aof-disable-auto-gc", "no", Switch),
    any("aof-load-truncated", "yes", Switch),
    any("aof-rewrite-incremental-fsync", "yes", Switch),
    any("aof-timestamp-enabled", "no", Switch),
    any("aof-use-rdb-preamble", "yes", Switch),
    any("appenddirname", "appendonlydir", Text).changing(AtStart),
    any("appendfilename", "appendonly.aof", Text).changing(AtStart),
    any(
        "auto-aof-rewrite-min-size",
        "67108864",
        Memory(0, MEMORY_MAX),
    ),
    any("auto-aof-rewrite-percentage", "100", Integer(0, INT_MAX)),
    any("bind-source-addr", "", Text),
    any("busy-reply-threshold", "5000", Integer(0, i64::MAX)),
    any("close-on-oom", "no", Switch),
    any("close-on-replica-write", "yes", Switch),
    any("cluster-allow-pubsubshard-when-down", "yes", Switch),
    any("cluster-allow-reads-when-down", "no", Switch),
    any("cluster-allow-replica-migration", "yes", Switch),
    any("cluster-announce-bus-port", "0", Integer(0, PORT_MAX)),
    any("cluster-announce-hostname", "", Text),
    any("cluster-announce-human-nodename", "", Text),
    any("cluster-announce-ip", "", Text),
    any("cluster-announce-port", "0", Integer(0, PORT_MAX)),
    any("cluster-announce-tls-port", "0", Integer(0, PORT_MAX)),
    any("cluster-config-file", "nodes.conf", Text).changing(AtStart),
    fixed(
        "cluster-enabled",
        &["no"],
        "the server is no node of a cluster",
    )
    .changing(AtStart),
    any("cluster-link-sendbuf-limit", "0", Memory(0, u64::MAX)),
    any("cluster-migration-barrier", "1", Integer(0, INT_MAX)),
    any("cluster-node-timeout", "15000", Integer(0, i64::MAX)),
    any("cluster-port", "0", Integer(0, PORT_MAX)).changing(AtStart),
    any(
        "cluster-preferred-endpoint-type",
        "ip",
        OneOf(&["ip", "hostname", "unknown-endpoint"]),
    ),
    any("cluster-replica-no-failover", "no", Switch),
    any("cluster-replica-validity-factor", "10", Integer(0, INT_MAX)),
    any("cluster-require-full-coverage", "yes", Switch),
    any("cluster-slave-no-failover", "no", Switch),
    any("cluster-slave-validity-factor", "10", Integer(0, INT_MAX)),
    any("crash-log-enabled", "yes", Switch),
    any("crash-memcheck-enabled", "yes", Switch),
    any("dbfilename", "dump.rdb", Text).changing(Protected),
    any("disable-thp", "yes", Switch).changing(AtStart),
    any("dynamic-hz", "yes", Switch),
    any("enable-debug-command", "no", OneOf(LOCAL)).changing(AtStart),
    any("enable-module-command", "no", OneOf(LOCAL)).changing(AtStart),
    any("enable-protected-configs", "no", OneOf(LOCAL)).changing(AtStart),
    any("hide-user-data-from-log", "no", Switch),
    any("hll-sparse-max-bytes", "3000", Memory(0, MEMORY_MAX)),
    any("hz", "10", Within(1, 500)),
    any("ignore-warnings", "", Words),
    any("io-threads", "1", Integer(1, 128)).changing(AtStart),
    any("io-threads-do-reads", "no", Switch).changing(AtStart),
    any("jemalloc-bg-thread", "yes", Switch),
    any("key-load-delay", "0", Integer(INT_MIN, INT_MAX)).hidden(),
    any("latency-monitor-max-entries", "160", Integer(0, INT_MAX)),
    any("lazyfree-lazy-eviction", "no", Switch),
    any("lazyfree-lazy-expire", "no", Switch),
    any("lazyfree-lazy-server-del", "no", Switch),
    any("lazyfree-lazy-user-del", "no", Switch),
    any("lazyfree-lazy-user-flush", "no", Switch),
    any("lfu-decay-time", "1", Integer(0, INT_MAX)),
    any("lfu-log-factor", "10", Integer(0, INT_MAX)),
    any("list-compress-depth", "0", Integer(0, INT_MAX)),
    fixed("loadmodule", &[""], "the server has no modules"),
    any(
        "loading-process-events-interval-bytes",
        "2097152",
        Integer(1024, INT_MAX),
    )
    .hidden(),
    any("locale-collate", "", Text),
    any("lua-time-limit", "5000", Integer(0, i64::MAX)),
    any("max-new-connections-per-cycle", "10", Integer(1, 1000)),
    any("max-new-tls-connections-per-cycle", "1", Integer(1, 1000)),
    any("maxmemory-eviction-tenacity", "10", Integer(0, 100)),
    any("maxmemory-samples", "5", Integer(1, INT_MAX)),
    any("no-appendfsync-on-rewrite", "no", Switch),
    fixed(
        "notify-keyspace-events",
        &[""],
        "no client is told what changes",
    ),
    // The service manager sets them (OOMScoreAdjust=).
    any(
        "oom-score-adj",
        "no",
        OneOf(&["no", "yes", "relative", "absolute"]),
    ),
    any("oom-score-adj-values", "0 200 800", KillerScores),
    any(
        "proc-title-template",
        "{title} {listen-addr} {server-mode}",
        Title,
    ),
    any(
        "propagation-error-behavior",
        "ignore",
        OneOf(&["ignore", "panic", "panic-on-replicas"]),
    ),
    any("rdb-del-sync-files", "no", Switch),
    any("rdb-key-save-delay", "0", Integer(INT_MIN, INT_MAX)).hidden(),
    any("rdb-save-incremental-fsync", "yes", Switch),
    any("rdbchecksum", "yes", Switch).changing(AtStart),
    any("rdbcompression", "yes", Switch),
    fixed("rename-command", &[""], "commands keep their names"),
    any("repl-backlog-ttl", "3600", Integer(0, i64::MAX)),
    any("repl-disable-tcp-nodelay", "no", Switch),
    any(
        "repl-diskless-load",
        "disabled",
        OneOf(&["disabled", "on-empty-db", "swapdb"]),
    ),
    any("repl-diskless-sync", "yes", Switch),
    any("repl-diskless-sync-delay", "5", Integer(0, INT_MAX)),
    any("repl-diskless-sync-max-replicas", "0", Integer(0, INT_MAX)),
    any("repl-ping-replica-period", "10", Integer(1, INT_MAX)),
    any("repl-ping-slave-period", "10", Integer(1, INT_MAX)),
    any("replica-announce-ip", "", Text),
    any("replica-announce-port", "0", Integer(0, PORT_MAX)),
    any("replica-announced", "yes", Switch),
    any("replica-ignore-disk-write-errors", "no", Switch),
    any("replica-ignore-maxmemory", "yes", Switch),
    any("replica-lazy-flush", "no", Switch),
    any(
        "sanitize-dump-payload",
        "no",
        OneOf(&["no", "yes", "clients"]),
    ),
    any("set-proc-title", "yes", Switch).changing(AtStart),
    any("shutdown-on-sigint", "default", SomeOf(SHUTDOWN)),
    any("shutdown-on-sigterm", "default", SomeOf(SHUTDOWN)),
    any("shutdown-timeout", "10", Integer(0, INT_MAX)),
    any("slave-announce-ip", "", Text),
    any("slave-announce-port", "0", Integer(0, PORT_MAX)),
    any("slave-ignore-maxmemory", "yes", Switch),
    any("slave-lazy-flush", "no", Switch),
    any("socket-mark-id", "0", Integer(0, u32::MAX as i64)).changing(AtStart),
    any("stop-writes-on-bgsave-error", "yes", Switch),
    any("stream-node-max-bytes", "4096", Memory(0, MEMORY_MAX)),
    any("stream-node-max-entries", "100", Integer(0, i64::MAX)),
    fixed(
        "supervised",
        &["no", "auto", "systemd"],
        "where NOTIFY_SOCKET is set, the service manager is told what happens",
    )
    .changing(AtStart),
    fixed(
        "syslog-enabled",
        &["no"],
        "logfile and the standard error stream take the log",
    )
    .changing(AtStart),
    any(
        "syslog-facility",
        "local0",
        OneOf(&[
            "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
        ]),
    )
    .changing(AtStart),
    any("syslog-ident", "redis", Text).changing(AtStart),
    any("tls-auth-clients", "yes", OneOf(&["no", "yes", "optional"])),
    any("tls-ca-cert-dir", "", Text),
    any("tls-ca-cert-file", "", Text),
    any("tls-cert-file", "", Text),
    any("tls-ciphers", "", Text),
    any("tls-ciphersuites", "", Text),
    any("tls-client-cert-file", "", Text),
    any("tls-client-key-file", "", Text),
    any("tls-client-key-file-pass", "", Text),
    fixed("tls-cluster", &["no"], NO_TLS),
    any("tls-dh-params-file", "", Text),
    any("tls-key-file", "", Text),
    any("tls-key-file-pass", "", Text),
    fixed("tls-port", &["0"], NO_TLS),
    any("tls-prefer-server-ciphers", "no", Switch),
    any("tls-protocols", "", Text),
    fixed("tls-replication", &["no"], NO_TLS),
    any("tls-session-cache-size", "20480", Integer(0, INT_MAX)),
    any("tls-session-cache-timeout", "300", Integer(0, INT_MAX)),
    any("tls-session-caching", "yes", Switch),
    any("tracking-table-max-keys", "1000000", Integer(0, i64::MAX)),
    fixed(
        "unixsocketgroup",
        &[""],
        "the socket has the group of the process",
    ),
    any("use-exit-on-panic", "no", Switch),
    fixed(
        "user",
        &[""],
        "the only user is default; requirepass sets its password",
    ),
    any("watchdog-period", "0", Integer(0, INT_MAX)).hidden(),
    // Lists of processors; the service manager, or taskset, sets these.
    fixed("aof_rewrite_cpulist", &[""], TASKSET).changing(AtStart),
    fixed("bgsave_cpulist", &[""], TASKSET).changing(AtStart),
    fixed("bio_cpulist", &[""], TASKSET).changing(AtStart),
    fixed("server_cpulist", &[""], TASKSET).changing(AtStart),
    fixed("aof-rewrite-cpulist", &[""], TASKSET).changing(AtStart),
    fixed("bgsave-cpulist", &[""], TASKSET).changing(AtStart),
    fixed("bio-cpulist", &[""], TASKSET).changing(AtStart),
    fixed("server-cpulist", &[""], TASKSET).changing(AtStart),
];

const TASKSET: &str = "taskset or the service manager chooses processors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_redis_takes() {
        let title = |value: &str| Title.read(value.as_bytes()).is_ok();
        for value in ["x", "title}", "{{title}}", "{config-file}", "a}b{title}"] {
            assert!(title(value), "{value}");
        }
        for value in [
            "",
            " ",
            "{title}",
            "{title} {server-mode}",
            "{}",
            "x{",
            "{titel} x",
        ] {
            assert!(!title(value), "{value}");
        }
        let scores = |value: &str| KillerScores.read(value.as_bytes());
        assert_eq!(scores("-2000 +7 2000"), Ok(b"-2000 7 2000".to_vec()));
        for value in [
            "",
            "0 200",
            "0 200 800 900",
            "0  200   800",
            "0 0 2001",
            "a b c",
        ] {
            assert!(scores(value).is_err(), "{value}");
        }
        let hertz = |value: &str| Within(1, 500).read(value.as_bytes());
        for (value, kept) in [("0", "1"), ("50", "50"), ("501", "500")] {
            assert_eq!(hertz(value), Ok(kept.as_bytes().to_vec()));
        }
        assert!(hertz("-1").is_err());
    }
}
