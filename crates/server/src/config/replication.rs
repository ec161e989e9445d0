//! The settings of replication, in Redis' words.

use super::Config;
use super::error::Expected;
use super::field::{integer, memory, print, set, switch, text};
use super::setting::Setting;
use super::value::print_switch;
use crate::limits;

/// Values of `replica-full-copy`.
const COPIES: &[&str] = &["beside", "in-place"];

/// A server to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Whom this server follows, and what it expects of those that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// `replicaof`: the server that this one follows. Default none.
    pub target: Option<Target>,
    /// `masteruser`: as whom it authenticates there; empty: as the default user. Default empty.
    pub user: Vec<u8>,
    /// `masterauth`: the password there; empty: none. Default empty.
    pub password: Vec<u8>,
    /// `replica-read-only`: whether a replica refuses clients' writes. Default yes.
    pub read_only: bool,
    /// `replica-serve-stale-data`: whether a replica answers without its primary. Default yes.
    pub serve_stale: bool,
    /// `replica-priority`: what INFO tells tools that choose a replica to promote. Default 100.
    pub priority: u32,
    /// `min-replicas-to-write`: how many good replicas writes need; 0: none. Default 0.
    pub min_replicas: usize,
    /// `min-replicas-max-lag`: seconds for which a good replica may be silent. Default 10.
    pub max_lag_s: u64,
    /// `repl-backlog-size`: bytes of changes kept for replicas. Default 64 MiB.
    pub backlog_bytes: usize,
    /// `replica-log-hold`: bytes of log kept for replicas that no start needs. Default 256 MiB.
    pub log_hold_bytes: u64,
    /// `replica-full-copy`: whether a full copy takes the place of the old data from its beginning
    /// on, and not when it is in. Default no.
    pub copies_in_place: bool,
    /// `repl-timeout`: seconds after which a silent link is broken. Default 60.
    pub timeout_s: u64,
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            target: None,
            user: Vec::new(),
            password: Vec::new(),
            read_only: true,
            serve_stale: true,
            priority: 100,
            min_replicas: 0,
            max_lag_s: 10,
            backlog_bytes: pando_db::limits::RING_BYTES,
            log_hold_bytes: 256 * 1024 * 1024,
            copies_in_place: false,
            timeout_s: 60,
        }
    }
}

impl Target {
    /// A target of two words; `None`: they are none.
    pub(crate) fn of(host: &[u8], port: &[u8]) -> Option<Self> {
        let host = std::str::from_utf8(host).ok()?;
        let port = std::str::from_utf8(port).ok()?.parse().ok()?;
        let is_name = !host.is_empty() && !host.contains(|it: char| it.is_whitespace());
        (is_name && port > 0).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

fn print_target(config: &Config) -> Vec<u8> {
    let target = config.replication.target.as_ref();
    target.map_or_else(Vec::new, |it| print(format!("{} {}", it.host, it.port)))
}

fn set_target(config: &mut Config, value: &[u8]) -> Result<(), Expected> {
    let words: Vec<&str> = text(value)
        .ok_or(Expected::Target)?
        .split_ascii_whitespace()
        .collect();
    config.replication.target = match words[..] {
        [] => None,
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => None,
        [host, port] => {
            let target = Target::of(host.as_bytes(), port.as_bytes());
            Some(target.ok_or(Expected::Target)?)
        }
        _ => return Err(Expected::Target),
    };
    Ok(())
}

const fn read_only(name: &'static str) -> Setting {
    Setting::new(
        name,
        "Whether a replica refuses clients' writes",
        |config| print_switch(config.replication.read_only),
        |config, value| set(&mut config.replication.read_only, switch(value)),
    )
    .running()
}

const fn serve_stale(name: &'static str) -> Setting {
    Setting::new(
        name,
        "Whether a replica answers clients while it has no link to its primary",
        |config| print_switch(config.replication.serve_stale),
        |config, value| set(&mut config.replication.serve_stale, switch(value)),
    )
    .running()
}

const fn priority(name: &'static str) -> Setting {
    Setting::new(
        name,
        "Told by INFO to tools that choose a replica to promote: the lowest first, 0 never",
        |config| print(config.replication.priority),
        |config, value| {
            let priority = integer(value, 0, i64::from(u32::MAX));
            set(&mut config.replication.priority, priority)
        },
    )
    .running()
}

const fn min_replicas(name: &'static str) -> Setting {
    Setting::new(
        name,
        "Writes are refused with fewer replicas than this; 0 is any number",
        |config| print(config.replication.min_replicas),
        |config, value| {
            let replicas = integer(value, 0, i64::from(i32::MAX));
            set(&mut config.replication.min_replicas, replicas)
        },
    )
    .running()
}

const fn max_lag(name: &'static str) -> Setting {
    Setting::new(
        name,
        "Seconds after which a silent replica no longer counts for that; 0: no write is refused",
        |config| print(config.replication.max_lag_s),
        |config, value| {
            let seconds = integer(value, 0, i64::from(i32::MAX));
            set(&mut config.replication.max_lag_s, seconds)
        },
    )
    .running()
}

/// In the order of `--help`, then Redis' older names.
pub(super) static SETTINGS: &[Setting] = &[
    Setting::new(
        "replicaof",
        "Host and port of the server that this one follows; empty is none",
        print_target,
        set_target,
    )
    .list(),
    Setting::new(
        "masterauth",
        "Password for the server that this one follows; none if empty",
        |config| config.replication.password.clone(),
        |config, value| {
            config.replication.password = value.to_vec();
            Ok(())
        },
    )
    .running(),
    Setting::new(
        "masteruser",
        "User for the server that this one follows; the default one if empty",
        |config| config.replication.user.clone(),
        |config, value| {
            config.replication.user = value.to_vec();
            Ok(())
        },
    )
    .running(),
    read_only("replica-read-only"),
    serve_stale("replica-serve-stale-data"),
    priority("replica-priority"),
    min_replicas("min-replicas-to-write"),
    max_lag("min-replicas-max-lag"),
    Setting::new(
        "repl-backlog-size",
        "Bytes of changes that are kept in memory for replicas, once there is one: what a replica \
         needs from before is read from the log, as far as it is kept, or it takes a full copy. \
         Less than 16 KiB counts as that, more than 1 TiB as 1 TiB",
        |config| print(config.replication.backlog_bytes),
        |config, value| {
            let least = limits::BACKLOG_BYTES_MIN;
            let most = limits::BACKLOG_BYTES_MAX;
            let bytes = memory(value, 1, i64::MAX as u64);
            let bytes = bytes.map(|bytes| bytes.clamp(least, most));
            set(&mut config.replication.backlog_bytes, bytes)
        },
    )
    .own_name("replica-backlog-size")
    .running(),
    Setting::new(
        "replica-log-hold",
        "Bytes of log files that are kept for replicas, once there is one, though no start needs \
         them; they go when the log needs their space. A change takes effect at the next \
         checkpoint",
        |config| print(config.replication.log_hold_bytes),
        |config, value| {
            let bytes = memory(value, 0, limits::BACKLOG_BYTES_MAX);
            set(&mut config.replication.log_hold_bytes, bytes)
        },
    )
    .running(),
    Setting::new(
        "replica-full-copy",
        "What becomes of old data when a full copy begins: beside serves them until the copy is \
         in, and takes memory for both; in-place removes them first, and answers LOADING until \
         then",
        |config| {
            let in_place = config.replication.copies_in_place;
            print(COPIES[usize::from(in_place)])
        },
        |config, value| {
            let found = text(value).and_then(|word| {
                let mut words = COPIES.iter();
                words.position(|one| one.eq_ignore_ascii_case(word))
            });
            let copies = found.ok_or(Expected::OneOf(COPIES))?;
            config.replication.copies_in_place = copies == 1;
            Ok(())
        },
    )
    .running(),
    Setting::new(
        "repl-timeout",
        "Seconds after which a link on which nothing is heard is closed",
        |config| print(config.replication.timeout_s),
        |config, value| {
            let seconds = integer(value, 1, i64::from(i32::MAX));
            set(&mut config.replication.timeout_s, seconds)
        },
    )
    .running(),
    Setting::new("slaveof", "The same as replicaof", print_target, set_target)
        .list()
        .foreign(),
    read_only("slave-read-only").foreign(),
    serve_stale("slave-serve-stale-data").foreign(),
    priority("slave-priority").foreign(),
    min_replicas("min-slaves-to-write").foreign(),
    max_lag("min-slaves-max-lag").foreign(),
];
