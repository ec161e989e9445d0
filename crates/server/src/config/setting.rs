//! The table of settings, from which flags, the file, CONFIG and the help are made.

use pando_db::{Durability, EngineKind, EvictionPolicy, FileMedium, PoolProtection};

use super::Config;
use super::encodings;
use super::error::{Expected, SettingError, WrongLimits};
use super::field::{
    integer, memory, only, parse_addresses, parse_path, parse_paths, parse_percentiles,
    parse_port_or_off, print, print_addresses, print_path, print_paths, print_percentiles, set,
    switch, text,
};
use super::inert::{INERT, Takes};
use super::minuet;
use super::names::{DURABILITIES, ENGINES, EVICTION_POLICIES, FILE_MEDIA, LOG_LEVELS, PROTECTIONS};
use super::persistence;
use super::replication;
use super::snapshots;
use super::value::{
    LogLevel, parse_memory_share, parse_mode, parse_output_limits, print_output_limits,
    print_switch,
};
use crate::limits;

/// Whether a setting can change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// CONFIG SET changes it at once.
    Running,
    /// Only the command line and the file set it.
    AtStart,
    /// The same, since CONFIG SET could be made to write where it should not.
    Protected,
    /// Redis changes it while it runs; here CONFIG SET takes its present value alone.
    Present,
}

impl Change {
    /// Why CONFIG SET does not change it, in Redis' words.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Running | Self::Present => None,
            Self::AtStart => Some("can't set immutable config"),
            Self::Protected => Some("can't set protected config"),
        }
    }
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Redis' name where Redis has the setting: what CONFIG SET, CONFIG REWRITE and errors call it.
    pub(crate) name: &'static str,
    /// Pando's own name, if different: the flag in `--help`. Accepted everywhere.
    pub(crate) own_name: Option<&'static str>,
    /// What it means, for `--help`.
    pub(crate) meaning: &'static str,
    pub(crate) change: Change,
    /// Whether its value is a list of words.
    pub(crate) list: bool,
    /// Whether it is Redis' name for another setting or for nothing here, so that `--help` omits
    /// it.
    pub(crate) foreign: bool,
    /// Whether CONFIG GET shows it to who names it alone, as Redis does.
    pub(crate) hidden: bool,
    kept: Kept,
}

/// Where a setting's value is kept, and its valid values.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// In a field of [`Config`].
    Field {
        read: fn(&Config) -> Vec<u8>,
        write: fn(&mut Config, &[u8]) -> Result<(), Expected>,
    },
    /// In [`Config::inert`] if given: nothing depends on it.
    Inert { default: &'static str, takes: Takes },
}

impl Setting {
    pub(super) const fn new(
        name: &'static str,
        meaning: &'static str,
        read: fn(&Config) -> Vec<u8>,
        write: fn(&mut Config, &[u8]) -> Result<(), Expected>,
    ) -> Self {
        Self {
            name,
            own_name: None,
            meaning,
            change: Change::AtStart,
            list: false,
            foreign: false,
            hidden: false,
            kept: Kept::Field { read, write },
        }
    }

    /// A setting of Redis that nothing here depends on.
    pub(super) const fn inert(name: &'static str, default: &'static str, takes: Takes) -> Self {
        Self {
            name,
            own_name: None,
            meaning: "",
            change: Change::Running,
            list: matches!(takes, Takes::Words | Takes::SomeOf(_) | Takes::KillerScores),
            foreign: true,
            hidden: false,
            kept: Kept::Inert { default, takes },
        }
    }

    pub(super) const fn changing(mut self, change: Change) -> Self {
        self.change = change;
        self
    }

    pub(super) const fn own_name(mut self, own_name: &'static str) -> Self {
        self.own_name = Some(own_name);
        self
    }

    pub(super) const fn running(mut self) -> Self {
        self.change = Change::Running;
        self
    }

    pub(super) const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    pub(super) const fn foreign(mut self) -> Self {
        self.foreign = true;
        self
    }

    pub(super) const fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Every setting: those with a meaning here, then Redis' without one.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        Self::meant().chain(INERT)
    }

    /// Those with a meaning here: [`SETTINGS`], those of the engine minuet, of snapshots, of
    /// replication and of encodings.
    pub(super) fn meant() -> impl Iterator<Item = &'static Self> {
        let encodings = encodings::SETTINGS.iter();
        SETTINGS
            .iter()
            .chain(minuet::SETTINGS)
            .chain(snapshots::SETTINGS)
            .chain(replication::SETTINGS)
            .chain(encodings)
    }

    /// The setting with this name, in any case.
    pub(crate) fn find(name: &[u8]) -> Option<&'static Self> {
        let is = |candidate: &str| candidate.as_bytes().eq_ignore_ascii_case(name);
        Self::all().find(|setting| is(setting.name) || setting.own_name.is_some_and(is))
    }

    /// The flag's name.
    pub(crate) fn flag(&self) -> &'static str {
        self.own_name.unwrap_or(self.name)
    }

    /// Whether nothing depends on it.
    pub(crate) fn is_inert(&self) -> bool {
        matches!(self.kept, Kept::Inert { .. })
    }

    /// Whether its value is independent of all other settings.
    pub(super) fn is_independent(&self) -> bool {
        !self.foreign || self.is_inert()
    }

    /// Its valid values, if there are few and nothing depends on them.
    pub(crate) fn inert_values(&self) -> Option<&'static [&'static str]> {
        match self.kept {
            Kept::Inert {
                takes: Takes::Only { values, .. },
                ..
            } => Some(values),
            _ => None,
        }
    }

    /// Its value as text; a list's words are separated by spaces.
    pub(crate) fn get(&self, config: &Config) -> Vec<u8> {
        match self.kept {
            Kept::Field { read, .. } => read(config),
            Kept::Inert { default, .. } => match config.inert.get(self.name) {
                Some(given) => given.clone(),
                None => default.into(),
            },
        }
    }

    /// Sets its value from such text.
    pub(crate) fn set(&self, config: &mut Config, value: &[u8]) -> Result<(), SettingError> {
        let written = match self.kept {
            Kept::Field { write, .. } => write(config, value),
            Kept::Inert { takes, .. } => takes.read(value).map(|value| {
                config.inert.insert(self.name, value);
            }),
        };
        written.map_err(|expected| self.refuse(value, expected))
    }

    /// What is wrong with a value.
    pub(super) fn refuse(&self, value: &[u8], expected: Expected) -> SettingError {
        SettingError::Value {
            setting: self.name,
            got: String::from_utf8_lossy(value).into_owned(),
            expected,
        }
    }

    /// Whether its value is a secret, which logs do not show.
    pub(crate) fn is_secret(&self) -> bool {
        const SECRETS: [&str; 4] = [
            "requirepass",
            "masterauth",
            "tls-key-file-pass",
            "tls-client-key-file-pass",
        ];
        SECRETS.contains(&self.name)
    }
}

const MIB: u64 = 1024 * 1024;

/// Every setting but those of other modules, in the order of `--help` and of what CONFIG REWRITE
/// appends.
static SETTINGS: &[Setting] = &[
    Setting::new(
        "bind",
        "Addresses to listen on; * is all of IPv4, ::* all of IPv6; one after a - is optional",
        |config| print_addresses(&config.bind),
        |config, value| set(&mut config.bind, parse_addresses(value)),
    )
    .changing(Change::Present)
    .list(),
    Setting::new(
        "port",
        "TCP port; 0 is any free one, which is printed, off is none",
        |config| config.port.map_or_else(|| b"off".into(), print),
        |config, value| set(&mut config.port, parse_port_or_off(value)),
    )
    .changing(Change::Present),
    Setting::new(
        "protected-mode",
        "Whether other hosts are refused while no password is set: yes or no",
        |config| print_switch(config.protected_mode),
        |config, value| set(&mut config.protected_mode, switch(value)),
    )
    .running(),
    Setting::new(
        "unixsocket",
        "Path of the Unix socket to listen on; none if empty",
        |config| print_path(config.unix_socket.as_deref()),
        |config, value| set(&mut config.unix_socket, parse_path(value)),
    )
    .own_name("unix-socket"),
    Setting::new(
        "unixsocketperm",
        "Permissions of the Unix socket, octal; 0 leaves them to the umask",
        |config| format!("{:o}", config.unix_socket_mode).into_bytes(),
        |config, value| {
            let mode = text(value).and_then(parse_mode).ok_or(Expected::Mode);
            set(&mut config.unix_socket_mode, mode)
        },
    )
    .own_name("unix-socket-mode"),
    Setting::new(
        "memcached-port",
        "TCP port for memcached clients; 0 is any free one, off is none",
        |config| config.memcached_port.map_or_else(|| b"off".into(), print),
        |config, value| set(&mut config.memcached_port, parse_port_or_off(value)),
    ),
    Setting::new(
        "memcached-socket",
        "Path of the Unix socket for memcached clients; none if empty",
        |config| print_path(config.memcached_socket.as_deref()),
        |config, value| set(&mut config.memcached_socket, parse_path(value)),
    ),
    Setting::new(
        "memcached-item-bytes-max",
        "Most data of an item that a memcached client stores, in bytes",
        |config| print(config.memcached_item_bytes_max),
        |config, value| {
            let item_bytes_max = pando_protocol::limits::MEMCACHED_ITEM_BYTES_MAX as u64;
            set(
                &mut config.memcached_item_bytes_max,
                memory(value, 1024, item_bytes_max),
            )
        },
    ),
    Setting::new(
        "memcached-udp-port",
        "UDP port of the first worker for memcached clients, then one more per worker; off is none",
        |config| {
            config
                .memcached_udp_port
                .map_or_else(|| b"off".into(), print)
        },
        |config, value| set(&mut config.memcached_udp_port, parse_port_or_off(value)),
    ),
    Setting::new(
        "memcached-udp-reply-ratio",
        "Most bytes that another host gets over UDP per byte it sends; 0 serves loopback only",
        |config| print(config.memcached_udp_reply_ratio),
        |config, value| {
            set(
                &mut config.memcached_udp_reply_ratio,
                integer(value, 0, 1000),
            )
        },
    ),
    Setting::new(
        "threads",
        "Number of workers; by default one per core",
        |config| print(config.threads),
        |config, value| {
            set(
                &mut config.threads,
                integer(value, 1, limits::THREADS_MAX as i64),
            )
        },
    ),
    Setting::new(
        "engine",
        "Engine that holds the keyspace",
        |config| config.engine.name().into(),
        |config, value| {
            let engine = text(value).and_then(EngineKind::from_name);
            set(&mut config.engine, engine.ok_or(Expected::OneOf(&ENGINES)))
        },
    ),
    Setting::new(
        "pmem",
        "File of the pool of the engine cdds, in persistent memory (DAX), on a tmpfs or on a disk; \
         without, the pool is in memory of the process",
        |config| print_path(config.pmem.as_deref()),
        |config, value| set(&mut config.pmem, parse_path(value)),
    ),
    Setting::new(
        "pmem-size",
        "Bytes of the pool of the engine cdds; that of a pool which exists cannot be changed",
        |config| print(config.pmem_bytes),
        |config, value| set(&mut config.pmem_bytes, memory(value, MIB, 1 << 44)),
    ),
    Setting::new(
        "pmem-medium",
        "What the file of the pool lies on; auto finds out whether it is a tmpfs, persistent \
         memory with direct access, or a disk; dax-words is persistent memory that keeps no line \
         of the caches whole, but only 8 bytes; eadr is persistent memory on a machine that \
         flushes its caches when the power fails",
        |config| config.pmem_medium.name().into(),
        |config, value| {
            let medium = text(value).and_then(FileMedium::from_name);
            set(
                &mut config.pmem_medium,
                medium.ok_or(Expected::OneOf(&FILE_MEDIA)),
            )
        },
    ),
    Setting::new(
        "pmem-protection",
        "How stray writes are kept from a pool in persistent or shared memory: by keys of the \
         processor, or by the rights of its pages, which takes system calls for each write; auto \
         is keys where the processor has them and the eviction policy is not one of lru or lfu, \
         which cannot note uses then, else off",
        |config| config.pmem_protection.name().into(),
        |config, value| {
            let protection = text(value).and_then(PoolProtection::from_name);
            set(
                &mut config.pmem_protection,
                protection.ok_or(Expected::OneOf(&PROTECTIONS)),
            )
        },
    ),
    Setting::new(
        "durability",
        "When requests are answered: none, interval or sync; with none nothing is kept on disk",
        |config| config.durability.name().into(),
        |config, value| {
            let mode = text(value).and_then(Durability::from_name);
            let mode = mode.ok_or(Expected::OneOf(&DURABILITIES));
            set(&mut config.durability, mode)
        },
    )
    .running(),
    Setting::new(
        "dir",
        "Directory of checkpoints and logs, unless checkpoint-dir or log-dir says otherwise",
        |config| print_path(Some(&config.data_dir)),
        |config, value| {
            let path = parse_path(value)?.ok_or(Expected::Path);
            set(&mut config.data_dir, path)
        },
    )
    .own_name("data-dir")
    .changing(Change::Protected),
    Setting::new(
        "log-dir",
        "Directories of logs, used in turns, for several disks; the data directory if none",
        |config| print_paths(&config.log_dirs),
        |config, value| set(&mut config.log_dirs, parse_paths(value)),
    )
    .list(),
    Setting::new(
        "checkpoint-dir",
        "Directories over which each checkpoint is spread evenly, for several disks, with a \
         thread for each (8 at most); the data directory if none",
        |config| print_paths(&config.checkpoint_dirs),
        |config, value| set(&mut config.checkpoint_dirs, parse_paths(value)),
    )
    .list(),
    Setting::new(
        "log-segment-size",
        "Bytes of a log file, fewer on a small volume; each worker has one in use and one ready",
        |config| print(config.log_segment_bytes),
        |config, value| set(&mut config.log_segment_bytes, memory(value, MIB, 256 * MIB)),
    ),
    Setting::new(
        "checkpoint-log-size",
        "Bytes of log after which a checkpoint is written, fewer (down to a quarter) if there is \
         less data; 0 is never. A volume that runs out of space gets one earlier",
        |config| print(config.checkpoint_log_bytes),
        |config, value| set(&mut config.checkpoint_log_bytes, memory(value, 0, u64::MAX)),
    )
    .running(),
    Setting::new(
        "checkpoint-interval",
        "Seconds after which a checkpoint is written if anything has changed; 0 is never",
        |config| print(config.checkpoint_interval_s),
        |config, value| {
            set(
                &mut config.checkpoint_interval_s,
                integer(value, 0, i64::from(i32::MAX)),
            )
        },
    )
    .running(),
    Setting::new(
        "checkpoint-share",
        "Percentage of its time in which a checkpoint's thread works while requests are served",
        |config| print(config.checkpoint_share_percent),
        |config, value| set(&mut config.checkpoint_share_percent, integer(value, 1, 100)),
    )
    .running(),
    Setting::new(
        "databases",
        "Number of databases (SELECT)",
        |config| print(config.databases),
        |config, value| {
            let databases_max = pando_db::limits::DATABASES_MAX as i64;
            set(&mut config.databases, integer(value, 1, databases_max))
        },
    ),
    Setting::new(
        "maxclients",
        "Most connections at a time; lowered to the limit of open files, less 64 and 8 per worker",
        |config| print(config.clients_max),
        |config, value| {
            set(
                &mut config.clients_max,
                integer(value, 1, limits::CLIENTS_MAX as i64),
            )
        },
    )
    .running(),
    Setting::new(
        "requirepass",
        "Password of the user default; none if empty",
        |config| config.password.clone(),
        |config, value| {
            config.password = value.to_vec();
            Ok(())
        },
    )
    .running(),
    Setting::new(
        "metrics-port",
        "Port on which /metrics is served; 0 is any free one, off is none",
        |config| config.metrics_port.map_or_else(|| b"off".into(), print),
        |config, value| set(&mut config.metrics_port, parse_port_or_off(value)),
    ),
    Setting::new(
        "maxmemory",
        "Bytes of memory beyond which keys are evicted or writes refused; 0 is no limit",
        |config| print(config.max_memory),
        |config, value| set(&mut config.max_memory, memory(value, 0, u64::MAX)),
    )
    .own_name("max-memory")
    .running(),
    Setting::new(
        "maxmemory-policy",
        "Which keys are evicted when memory is short: noeviction (none, writes are refused), \
         allkeys-lru, allkeys-lfu, allkeys-random, volatile-lru, volatile-lfu, volatile-random or \
         volatile-ttl",
        |config| config.eviction_policy.name().into(),
        |config, value| {
            let named = text(value)
                .map(str::to_ascii_lowercase)
                .and_then(|name| EvictionPolicy::from_name(&name));
            let policy = named.ok_or(Expected::OneOf(&EVICTION_POLICIES));
            set(&mut config.eviction_policy, policy)
        },
    )
    .own_name("max-memory-policy")
    .running(),
    Setting::new(
        "maxmemory-clients",
        "Bytes of memory, or percentage of maxmemory, that requests may take before they run: what \
         has arrived of them, and what MULTI has queued. Beyond it the connections that hold most \
         are closed, and no key is evicted; a request that alone would take more than seven \
         eighths of it is refused. 0 is no limit",
        |config| print(config.requests_memory),
        |config, value| {
            let share = text(value).and_then(parse_memory_share);
            set(
                &mut config.requests_memory,
                share.ok_or(Expected::MemoryShare),
            )
        },
    )
    .running(),
    Setting::new(
        "timeout",
        "Seconds after which an idle connection is closed; 0 is never",
        |config| print(config.timeout_s),
        |config, value| {
            set(
                &mut config.timeout_s,
                integer(value, 0, i64::from(i32::MAX)),
            )
        },
    )
    .running(),
    Setting::new(
        "tcp-keepalive",
        "Seconds between probes of an idle TCP connection; 0 is no probes",
        |config| print(config.tcp_keepalive_s),
        |config, value| {
            set(
                &mut config.tcp_keepalive_s,
                integer(value, 0, i64::from(i32::MAX)),
            )
        },
    )
    .running(),
    Setting::new(
        "tcp-backlog",
        "Connections that the kernel holds before they are accepted",
        |config| print(config.tcp_backlog),
        |config, value| set(&mut config.tcp_backlog, integer(value, 0, 65535)),
    ),
    Setting::new(
        "loglevel",
        "What is logged: debug, verbose, notice or warning",
        |config| config.log_level.name().into(),
        |config, value| {
            let named = |name: &str| LogLevel::ALL.into_iter().find(|level| level.name() == name);
            let level = text(value).map(str::to_ascii_lowercase);
            let level = level
                .as_deref()
                .and_then(named)
                .ok_or(Expected::OneOf(&LOG_LEVELS));
            set(&mut config.log_level, level)
        },
    )
    .own_name("log-level")
    .running(),
    Setting::new(
        "logfile",
        "File to which the log is appended, opened anew for each line; standard error if empty",
        |config| print_path(config.log_file.as_deref()),
        |config, value| set(&mut config.log_file, parse_path(value)),
    )
    .own_name("log-file"),
    Setting::new(
        "pidfile",
        "File that holds the process number while the server runs; none if empty",
        |config| print_path(config.pid_file.as_deref()),
        |config, value| set(&mut config.pid_file, parse_path(value)),
    )
    .own_name("pid-file"),
    Setting::new(
        "daemonize",
        "Only no: the server stays in the foreground, under a service manager or a shell",
        |config| print_switch(config.daemonize),
        |config, value| set(&mut config.daemonize, switch(value)),
    )
    .foreign(),
    Setting::new(
        "proto-max-bulk-len",
        "Longest argument and string in bytes",
        |config| print(config.bulk_bytes_max),
        |config, value| {
            let bulk_bytes_max = pando_protocol::limits::BULK_BYTES_MAX as u64;
            set(
                &mut config.bulk_bytes_max,
                memory(value, MIB, bulk_bytes_max),
            )
        },
    )
    .changing(Change::Present),
    Setting::new(
        "client-query-buffer-limit",
        "Unprocessed bytes that one connection may hold",
        |config| print(config.query_buffer_bytes_max),
        |config, value| {
            let query_bytes_max = pando_protocol::limits::QUERY_BUFFER_BYTES_MAX as u64;
            set(
                &mut config.query_buffer_bytes_max,
                memory(value, MIB, query_bytes_max),
            )
        },
    )
    .running(),
    Setting::new(
        "client-output-buffer-limit",
        "Limits on the output that waits for a client: class, hard and soft bytes, seconds",
        |config| print_output_limits(&config.output_limits).into(),
        |config, value| {
            let limits = text(value).ok_or(Expected::OutputLimits(WrongLimits::Limit))?;
            let limits = parse_output_limits(limits, config.output_limits);
            set(
                &mut config.output_limits,
                limits.map_err(Expected::OutputLimits),
            )
        },
    )
    .list()
    .running(),
    Setting::new(
        "slowlog-log-slower-than",
        "Microseconds from which a command is slow; -1 logs none, 0 all",
        |config| print(config.slowlog_slower_than_us),
        |config, value| {
            set(
                &mut config.slowlog_slower_than_us,
                integer(value, -1, i64::MAX),
            )
        },
    )
    .running(),
    Setting::new(
        "slowlog-max-len",
        "Number of slow commands that are kept",
        |config| print(config.slowlog_entries_max),
        |config, value| {
            let entries_max = limits::SLOWLOG_ENTRIES_MAX as i64;
            set(
                &mut config.slowlog_entries_max,
                integer(value, 0, entries_max),
            )
        },
    )
    .running(),
    Setting::new(
        "latency-tracking",
        "Whether a latency histogram is kept for each command: yes or no",
        |config| print_switch(config.latency_tracking),
        |config, value| set(&mut config.latency_tracking, switch(value)),
    )
    .running(),
    Setting::new(
        "latency-tracking-info-percentiles",
        "Percentiles that INFO latencystats shows",
        |config| print_percentiles(&config.latency_percentiles),
        |config, value| set(&mut config.latency_percentiles, parse_percentiles(value)),
    )
    .list()
    .running(),
    Setting::new(
        "latency-monitor-threshold",
        "Milliseconds from which a command is an event of LATENCY LATEST; 0 is none",
        |config| print(config.latency_threshold_ms),
        |config, value| {
            set(
                &mut config.latency_threshold_ms,
                integer(value, 0, i64::MAX),
            )
        },
    )
    .running(),
    Setting::new(
        "key-bytes-max",
        "Longest key in bytes",
        |config| print(config.key_bytes_max),
        |config, value| {
            let key_bytes_max = pando_db::Options::default().key_bytes_max as u64;
            set(&mut config.key_bytes_max, memory(value, 1, key_bytes_max))
        },
    ),
    Setting::new(
        "reply-bytes-max",
        "Bytes after which a reply of KRANGE or KPREFIX ends with a resume point",
        |config| print(config.reply_bytes_max),
        |config, value| {
            let bulk_bytes_max = pando_protocol::limits::BULK_BYTES_MAX as u64;
            set(
                &mut config.reply_bytes_max,
                memory(value, 1024, bulk_bytes_max),
            )
        },
    ),
    Setting::new(
        "retired-bytes-max",
        "Replaced or removed bytes kept from reclamation by a stalled reader at which writes are \
         refused with OOM; from half of it each write is delayed by a millisecond. Reads and \
         commands that only remove keys continue",
        |config| print(config.retired_bytes_max),
        |config, value| {
            let least = limits::RETIRED_BYTES_MAX_LEAST;
            let most = limits::RETIRED_BYTES_MAX_MOST;
            set(&mut config.retired_bytes_max, memory(value, least, most))
        },
    ),
    // Other settings in Redis' words: see `persistence`.
    Setting::new(
        "appendonly",
        "Whether a log is kept. At the start, without durability: yes leaves it to appendfsync, no \
         is interval if save is not empty, else none. Later it only reports the state",
        |config| print_switch(has_log(config)),
        |config, value| {
            let value_now = if has_log(config) { &["yes"] } else { &["no"] };
            only(value, value_now, "durability says whether there is a log")
        },
    )
    .foreign()
    .running(),
    Setting::new(
        "appendfsync",
        "When the log is written: always is durability sync, everysec interval; no is interval at \
         the start and none later",
        |config| persistence::fsync_of(config.durability).into(),
        |config, value| {
            let mode = persistence::mode_of(value);
            set(&mut config.durability, mode.ok_or(persistence::FSYNC))
        },
    )
    .foreign()
    .running(),
    Setting::new(
        "save",
        "When a snapshot is written. Only whether it is empty matters, and only with appendonly \
         no; checkpoint-log-size and checkpoint-interval set when a checkpoint is written",
        |config| config.save_points.as_deref().unwrap_or_default().into(),
        |config, value| {
            let points = persistence::points(value)?;
            if !has_log(config) {
                only(value, &[""], "the server keeps nothing on disk")?;
            }
            config.save_points = Some(points);
            Ok(())
        },
    )
    .foreign()
    .list()
    .running(),
];

/// Whether the server has a log, or will have one.
pub(super) fn has_log(config: &Config) -> bool {
    !config.without_log && config.durability != Durability::None
}
