//! The server's configuration: every setting with its default, range and meaning.
//!
//! A setting has a name (Redis' own where Redis has the setting) and sometimes a second one. Both
//! are a flag (`--name value`), a line of the configuration file (`name value`) and a parameter of
//! CONFIG GET and SET. All of these are made from the table `setting::SETTINGS`.
//!
//! Order of precedence: flags, then the file, then the defaults. A value is checked when it is
//! parsed; [`Config::validate`] checks relations between settings, once.
//!
//! Deliberately absent: the environment, and anything that changes while the server runs (that is
//! [`crate::Settings`]).

mod encodings;
mod error;
mod field;
mod file;
mod flags;
mod inert;
pub(crate) mod memcached;
mod minuet;
mod names;
mod persistence;
mod reference;
mod replication;
mod rewrite;
mod setting;
mod snapshots;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use pando_db::{Durability, EngineKind, EvictionPolicy, PoolProtection};

pub use error::{ConfigError, Expected, Origin, SettingError, WrongLimits, WrongScores};
#[cfg(test)]
pub(crate) use file::split as split_line;
pub(crate) use flags::{command, file, flag, read};
pub use minuet::MinuetConfig;
pub use reference::reference;
pub use replication::{Replication, Target};
pub(crate) use rewrite::rewrite;
pub(crate) use setting::{Change, Setting};
pub use snapshots::SnapshotConfig;
pub use value::{LogLevel, MemoryShare};
pub(crate) use value::{parse_memory, print_percentile};

/// Limits on the output that may wait for one client, in bytes; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Close the connection when this much waits.
    pub hard_bytes: u64,
    /// Close the connection when this much waits for `soft_seconds` without a break.
    pub soft_bytes: u64,
    /// See `soft_bytes`.
    pub soft_seconds: u64,
}

/// Output limits by class of client; `normal` includes monitors. Replicas have a window instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Ordinary clients and monitors.
    pub normal: OutputLimit,
    /// Replicas.
    pub replica: OutputLimit,
    /// Subscribers.
    pub pubsub: OutputLimit,
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The address.
    pub ip: IpAddr,
    /// Whether the server does without it if the machine does not have it.
    pub optional: bool,
}

/// Every setting. Built by [`Config::from_command_line`], or from [`Config::default`] by embedders.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting that users know as yes or no"
)]
pub struct Config {
    /// `bind`: addresses to listen on. Default `127.0.0.1 -::1`.
    pub bind: Vec<BindAddress>,
    /// `port`: TCP port; 0 is any free port, which is printed, `off` is none. Default 6379.
    pub port: Option<u16>,
    /// `protected-mode`: whether other hosts are refused while there is no password. Default yes.
    pub protected_mode: bool,
    /// `unixsocket`: path of the Unix socket to listen on; empty is none. Default none.
    pub unix_socket: Option<PathBuf>,
    /// `unixsocketperm`: permissions of the Unix socket, octal, 0 to 777; 0 leaves them to the
    /// process's mask. Default 0.
    pub unix_socket_mode: u32,
    /// `memcached-port`: TCP port for memcached clients, on the addresses of `bind`; 0 is any free
    /// port, `off` is none. Default `off`.
    pub memcached_port: Option<u16>,
    /// `memcached-socket`: path of the Unix socket for memcached clients; empty is none. Default
    /// none.
    pub memcached_socket: Option<PathBuf>,
    /// `memcached-item-bytes-max`: most data of a memcached item, 1 KiB to 512 MiB. Default 1 MiB.
    pub memcached_item_bytes_max: usize,
    /// `memcached-udp-port`: UDP port of the first worker for memcached clients; each further
    /// worker uses the next one. 0 is any free port for each, `off` is none. Default `off`.
    pub memcached_udp_port: Option<u16>,
    /// `memcached-udp-reply-ratio`: most bytes that a UDP client on another host gets per byte that
    /// it sent, 0 to 1000; 0 means that UDP is served on loopback addresses only. Default 0.
    pub memcached_udp_reply_ratio: usize,
    /// `threads`: workers, 1 to [`crate::limits::THREADS_MAX`]. Default: the machine's cores.
    pub threads: usize,
    /// `engine`: what holds the keyspace. Default: the database's.
    pub engine: EngineKind,
    /// `minuet-memnodes` and `minuet-page-size`: those of the engine `minuet`.
    pub minuet: MinuetConfig,
    /// `pmem`: file of the pool of the engine `cdds`. Default none: in memory of the process.
    pub pmem: Option<PathBuf>,
    /// `pmem-size`: bytes of that pool. Default 1 GiB.
    pub pmem_bytes: u64,
    /// `pmem-medium`: what its file lies on. Default `auto`.
    pub pmem_medium: pando_db::FileMedium,
    /// `pmem-protection`: how that pool is kept from stray writes. Default `auto`: by keys where
    /// the processor has them, unless uses are noted for the policy of `max-memory-policy`.
    pub pmem_protection: PoolProtection,
    /// `durability`: when requests are answered, unless a connection says otherwise; `none` at the
    /// start means that nothing is read from or written to disk. Default `interval`.
    pub durability: Durability,
    /// `data-dir`: where checkpoints and logs are kept, unless `checkpoint-dir` or `log-dir` says
    /// otherwise. Default `./pando-data`.
    pub data_dir: PathBuf,
    /// `log-dir`: directories for the logs, used in turns. Default: the data directory.
    pub log_dirs: Vec<PathBuf>,
    /// `checkpoint-dir`: directories over which checkpoints are spread. Default: the data
    /// directory.
    pub checkpoint_dirs: Vec<PathBuf>,
    /// `log-segment-size`: bytes of a file of the log, 1 to 256 MiB. Default 16 MiB.
    pub log_segment_bytes: u64,
    /// `checkpoint-log-size`: bytes of log after which a checkpoint is written; 0 is never.
    /// Default 1 GiB.
    pub checkpoint_log_bytes: u64,
    /// `checkpoint-interval`: seconds after which a checkpoint is written if anything has changed;
    /// 0 is never. Default 3600.
    pub checkpoint_interval_s: u64,
    /// `checkpoint-share`: percentage of its time in which a checkpoint's thread works while
    /// requests are served, 1 to 100; it does not rest while none are. Default 50.
    pub checkpoint_share_percent: u32,
    /// Whether the server was started with `durability none`, so that there is no log; set by
    /// [`crate::Server::start`].
    pub without_log: bool,
    /// `databases`: databases that SELECT reaches, 1 to 1024. Default 16.
    pub databases: usize,
    /// `maxclients`: connections at a time, 1 to 1,000,000. Default 10,000.
    pub clients_max: usize,
    /// `requirepass`: password of the user `default`; empty is none. Default none.
    pub password: Vec<u8>,
    /// `metrics-port`: port on which Prometheus reads `/metrics`, on the addresses of `bind`; 0 is
    /// any free port, `off` is none. Default `off`.
    pub metrics_port: Option<u16>,
    /// `maxmemory`: bytes beyond which keys are evicted or writes refused. Default 0: no limit.
    pub max_memory: u64,
    /// `maxmemory-policy`: which keys are evicted when memory is short. Default none.
    pub eviction_policy: EvictionPolicy,
    /// `hash-max-listpack-entries` and so on: when OBJECT ENCODING changes its answer. Defaults:
    /// those of Redis.
    pub thresholds: pando_db::Thresholds,
    /// `maxmemory-clients`: memory of requests before they run. Default 25 %.
    pub requests_memory: MemoryShare,
    /// `snapshots-max` and so on: how many snapshots, and for how long.
    pub snapshots: SnapshotConfig,
    /// `timeout`: seconds after which an idle connection is closed; 0 is never. Default 0.
    pub timeout_s: u64,
    /// `tcp-keepalive`: seconds between probes of an idle TCP connection; 0 is no probes.
    /// Default 300.
    pub tcp_keepalive_s: u64,
    /// `tcp-backlog`: connections that the kernel may hold before they are accepted, 0 to 65535.
    /// Default 511.
    pub tcp_backlog: u32,
    /// `loglevel`: what is logged. Default `notice`.
    pub log_level: LogLevel,
    /// `proto-max-bulk-len`: longest argument in bytes, 1 MiB to 512 MiB. Default 512 MiB.
    pub bulk_bytes_max: usize,
    /// `client-query-buffer-limit`: unprocessed bytes of one connection, 1 MiB to 1 GiB.
    /// Default 1 GiB.
    pub query_buffer_bytes_max: usize,
    /// `client-output-buffer-limit`: bounds of waiting output. Defaults as Redis'.
    pub output_limits: OutputLimits,
    /// `slowlog-log-slower-than`: microseconds from which a command is slow; negative logs none, 0
    /// all. Default 10,000.
    pub slowlog_slower_than_us: i64,
    /// `slowlog-max-len`: slow commands remembered, 0 to
    /// [`crate::limits::SLOWLOG_ENTRIES_MAX`]. Default 128.
    pub slowlog_entries_max: usize,
    /// `latency-tracking`: whether histograms by command are kept. Default yes.
    pub latency_tracking: bool,
    /// `latency-tracking-info-percentiles`: percentiles in INFO latencystats. Default 50 99 99.9.
    pub latency_percentiles: Vec<f64>,
    /// `latency-monitor-threshold`: milliseconds from which a command is an event of LATENCY
    /// LATEST; 0 is none. Default 0.
    pub latency_threshold_ms: u64,
    /// `key-bytes-max`: longest key in bytes, 1 to 64 KiB. Default 64 KiB.
    pub key_bytes_max: usize,
    /// `reply-bytes-max`: bytes after which a range reply ends with a resume point, 1 KiB to 512
    /// MiB. Default 16 MiB.
    pub reply_bytes_max: usize,
    /// `retired-bytes-max`: bytes that were replaced or removed and that a stalled reader keeps
    /// from being reclaimed, at which writes are refused; from half of it they are slowed. 1 MiB to
    /// 1 TiB. Default 256 MiB.
    pub retired_bytes_max: usize,
    /// `logfile`: where the log is written; empty is the standard error stream. Default that.
    pub log_file: Option<PathBuf>,
    /// `pidfile`: where the number of the process is written; empty is nowhere. Default that.
    pub pid_file: Option<PathBuf>,
    /// Whom the server follows, and who follows it.
    pub replication: Replication,
    /// `daemonize`: `yes` is refused. Default no.
    pub daemonize: bool,
    /// `save` as it was given: without effect once `durability` is settled.
    pub save_points: Option<String>,
    /// Given settings of Redis that have no meaning here, with their values.
    pub inert: BTreeMap<&'static str, Vec<u8>>,
    /// Remarks of the start about settings that were not taken literally.
    pub remarks: Vec<String>,
    /// The configuration file that was read, to which CONFIG REWRITE writes.
    pub file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let database = pando_db::Options::default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let bind = |ip, optional| BindAddress { ip, optional };
        Self {
            bind: vec![
                bind(Ipv4Addr::LOCALHOST.into(), false),
                bind(Ipv6Addr::LOCALHOST.into(), true),
            ],
            port: Some(6379),
            protected_mode: true,
            unix_socket: None,
            unix_socket_mode: 0,
            memcached_port: None,
            memcached_socket: None,
            memcached_item_bytes_max: database.item_bytes_max,
            memcached_udp_port: None,
            memcached_udp_reply_ratio: 0,
            threads: cores.min(crate::limits::THREADS_MAX),
            engine: EngineKind::default(),
            pmem: None,
            minuet: MinuetConfig::default(),
            pmem_bytes: 1 << 30,
            pmem_medium: pando_db::FileMedium::Auto,
            pmem_protection: PoolProtection::Auto,
            durability: Durability::Interval,
            data_dir: "pando-data".into(),
            log_dirs: Vec::new(),
            checkpoint_dirs: Vec::new(),
            log_segment_bytes: 16 << 20,
            checkpoint_log_bytes: 1 << 30,
            checkpoint_interval_s: 3600,
            checkpoint_share_percent: pando_db::limits::CHECKPOINT_SHARE_PERCENT,
            without_log: false,
            databases: 16,
            clients_max: 10_000,
            password: Vec::new(),
            metrics_port: None,
            max_memory: 0,
            eviction_policy: EvictionPolicy::default(),
            thresholds: pando_db::Thresholds::default(),
            requests_memory: MemoryShare::Percent(25),
            snapshots: SnapshotConfig::default(),
            timeout_s: 0,
            tcp_keepalive_s: 300,
            tcp_backlog: 511,
            log_level: LogLevel::Notice,
            bulk_bytes_max: database.value_bytes_max,
            query_buffer_bytes_max: pando_protocol::limits::QUERY_BUFFER_BYTES_MAX,
            output_limits: OutputLimits::default(),
            slowlog_slower_than_us: 10_000,
            slowlog_entries_max: 128,
            latency_tracking: true,
            latency_percentiles: vec![50.0, 99.0, 99.9],
            latency_threshold_ms: 0,
            key_bytes_max: database.key_bytes_max,
            reply_bytes_max: database.reply_bytes_max,
            retired_bytes_max: database.retired_bytes_max,
            log_file: None,
            pid_file: None,
            daemonize: false,
            replication: Replication::default(),
            save_points: None,
            inert: BTreeMap::new(),
            remarks: Vec::new(),
            file: None,
        }
    }
}

impl Default for OutputLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            normal: OutputLimit::default(),
            replica: OutputLimit {
                hard_bytes: 256 * MIB,
                soft_bytes: 64 * MIB,
                soft_seconds: 60,
            },
            pubsub: OutputLimit {
                hard_bytes: 32 * MIB,
                soft_bytes: 8 * MIB,
                soft_seconds: 60,
            },
        }
    }
}

impl Config {
    /// Checks the relations between settings; each alone was checked when it was parsed.
    pub fn validate(&self) -> Result<(), SettingError> {
        if self.memcached_item_bytes_max > self.bulk_bytes_max {
            return Err(SettingError::Relation {
                setting: "memcached-item-bytes-max",
                got: self.memcached_item_bytes_max.to_string(),
                expected: "at most proto-max-bulk-len",
            });
        }
        if self.without_log && self.durability != Durability::None {
            return Err(SettingError::Relation {
                setting: "durability",
                got: self.durability.name().to_owned(),
                expected: "none, since the server was started so: a log begins with the server",
            });
        }
        if let Some(path) = self.pmem.as_ref().filter(|_| !self.engine.has_pool()) {
            return Err(SettingError::Relation {
                setting: "pmem",
                got: path.display().to_string(),
                expected: "none, unless the engine is cdds",
            });
        }
        if self.daemonize {
            return Err(SettingError::Relation {
                setting: "daemonize",
                got: "yes".into(),
                expected: "no: the server stays in the foreground, start it with & or by systemd",
            });
        }
        self.validate_listeners()?;
        self.validate_datagrams()
    }

    /// Where it listens: somewhere, and nowhere twice.
    fn validate_listeners(&self) -> Result<(), SettingError> {
        let port = self.port.filter(|port| *port != 0);
        if port.is_some() && self.metrics_port == port {
            return Err(SettingError::Relation {
                setting: "metrics-port",
                got: port.unwrap_or_default().to_string(),
                expected: "another port than the server's",
            });
        }
        let memcached = self.memcached_port.filter(|port| *port != 0);
        if memcached.is_some() && (memcached == port || memcached == self.metrics_port) {
            return Err(SettingError::Relation {
                setting: "memcached-port",
                got: memcached.unwrap_or_default().to_string(),
                expected: "another port than the others of the server",
            });
        }
        if self.memcached_socket.is_some() && self.memcached_socket == self.unix_socket {
            return Err(SettingError::Relation {
                setting: "memcached-socket",
                got: String::new(),
                expected: "another path than unixsocket",
            });
        }
        if self.bind.is_empty() && self.unix_socket.is_none() {
            return Err(SettingError::Relation {
                setting: "bind",
                got: String::new(),
                expected: "an address, unless there is a unixsocket",
            });
        }
        Ok(())
    }

    /// memcached's UDP: a port for each worker, and which clients get replies.
    fn validate_datagrams(&self) -> Result<(), SettingError> {
        let Some(port) = self.memcached_udp_port else {
            return Ok(());
        };
        if usize::from(port) + self.threads > 1 << 16 {
            return Err(SettingError::Relation {
                setting: "memcached-udp-port",
                got: port.to_string(),
                expected: "a port with as many behind it as there are threads",
            });
        }
        let on_loopback = self.bind.iter().any(|bind| bind.ip.is_loopback());
        if self.memcached_udp_reply_ratio == 0 && !on_loopback {
            return Err(SettingError::Relation {
                setting: "memcached-udp-reply-ratio",
                got: "0".into(),
                expected: "more than 0 to serve UDP where no address of bind is a loopback one",
            });
        }
        Ok(())
    }

    /// How the database is kept on disk.
    #[must_use]
    pub fn durability_options(&self) -> pando_db::DurabilityOptions {
        pando_db::DurabilityOptions {
            log_directories: self.log_dirs.clone(),
            checkpoint_directories: self.checkpoint_dirs.clone(),
            logs: self.threads,
            segment_bytes: self.log_segment_bytes & !0xfff,
            ..pando_db::DurabilityOptions::new(&self.data_dir)
        }
    }

    /// Where the pool of the engine `cdds` is.
    pub fn pool_options(&self) -> std::io::Result<pando_db::PoolOptions> {
        let pool = match &self.pmem {
            Some(path) => {
                let (bytes, medium) = (self.pmem_bytes, self.pmem_medium);
                pando_db::PoolOptions::in_file(path.clone(), bytes, medium)?
            }
            None => pando_db::PoolOptions {
                bytes: self.pmem_bytes,
                ..pando_db::PoolOptions::default()
            },
        };
        // Uses of keys are noted in the pool by whoever reads them, which no window is open for.
        let protection = match self.pmem_protection {
            PoolProtection::Auto if self.eviction_policy.notes_uses() => PoolProtection::None,
            chosen => chosen,
        };
        pool.protected(protection)
    }

    /// The database's share of the settings, without [`Self::durability_options`] and
    /// [`Self::pool_options`].
    #[must_use]
    pub fn database_options(&self) -> pando_db::Options {
        pando_db::Options {
            engine: self.engine,
            databases: self.databases,
            memnodes: self.minuet.memnodes,
            page_bytes: self.minuet.page_bytes,
            follows: self.replication.target.is_some(),
            sessions_max: self.threads + crate::limits::BACKGROUND_SESSIONS,
            key_bytes_max: self.key_bytes_max,
            value_bytes_max: self.bulk_bytes_max,
            item_bytes_max: self.memcached_item_bytes_max,
            reply_bytes_max: self.reply_bytes_max,
            retired_bytes_max: self.retired_bytes_max,
            ..pando_db::Options::default()
        }
    }
}
