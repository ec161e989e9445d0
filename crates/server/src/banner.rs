//! The message when the server is ready: what it is, what it promises and what that costs here,
//! where it listens.

use std::fmt::Write as _;
use std::time::Duration;

use pando_db::{Database, Durability, measure_sync};

use crate::config::Config;
use crate::protection::exposure;
use crate::shared::Listening;

/// The cost of one forced write on the log's disk; `None` without a log, or when it cannot be
/// measured.
#[must_use]
pub fn sync_cost(config: &Config) -> Option<Duration> {
    if config.without_log || config.engine.has_pool() {
        return None;
    }
    let options = config.durability_options();
    let directory = config.log_dirs.first().unwrap_or(&config.data_dir);
    measure_sync(&*options.disk, directory).ok()
}

/// The promise, where it is kept, and what it costs.
fn promise(config: &Config, database: &Database, sync_cost: Option<Duration>) -> String {
    if config.without_log {
        return "durability none: nothing is kept on disk, a restart begins empty".to_owned();
    }
    let promise = match config.durability {
        Durability::Sync => "answers wait for the disk",
        Durability::Interval => "a crash loses at most 200 ms of what was acknowledged",
        Durability::None => "a crash loses what is not on disk yet",
    };
    let mode = config.durability.name();
    if let Some(path) = &config.pmem {
        // Answers of `sync` wait for a commit, which costs some flushed lines.
        let pool = &database.options().pool;
        return format!(
            "durability {mode}: {promise}; data in {}\n{}; protection from stray writes: {}",
            path.display(),
            pool.promise(),
            pool.protection.name(),
        );
    }
    let data = config.data_dir.display();
    let mut text = format!("durability {mode}: {promise}; data in {data}");
    if let Some(found) = database.recovery() {
        let read = found.loaded + found.replayed;
        let took_ms = (found.load_us + found.replay_us) / 1000;
        let _ = write!(text, " ({read} records read in {took_ms} ms)");
    }
    if let Some(cost) = sync_cost {
        let milliseconds = cost.as_secs_f64() * 1000.0;
        let _ = write!(
            text,
            "\none forced write takes {milliseconds:.2} ms on this disk"
        );
    }
    text
}

/// The protocols that clients may use on the open sockets.
fn protocols(listening: &Listening) -> &'static str {
    let redis = !listening.tcp.is_empty() || listening.unix_socket.is_some();
    let memcached = !(listening.memcached.is_empty() && listening.memcached_udp.is_empty())
        || listening.memcached_socket.is_some();
    match (redis, memcached) {
        (true, true) => "the Redis and memcached protocols",
        (false, true) => "the memcached protocol",
        _ => "the Redis protocol",
    }
}

/// The banner, followed by a line for programs: `listening` and the addresses, as `kind=address`.
#[must_use]
pub fn banner(
    config: &Config,
    listening: &Listening,
    database: &Database,
    sync_cost: Option<Duration>,
) -> String {
    let workers = if config.threads == 1 {
        "worker"
    } else {
        "workers"
    };
    let mut text = format!(
        "pando {}: an ordered in-memory database that speaks {}\n\
         engine {}, {} {workers}, {} databases, at most {} clients\n\
         {}\n\
         {}listening",
        env!("CARGO_PKG_VERSION"),
        protocols(listening),
        config.engine.name(),
        config.threads,
        config.databases,
        config.clients_max,
        promise(config, database, sync_cost),
        exposure(config, listening)
            .map(|text| format!("{text}\n"))
            .unwrap_or_default(),
    );
    for address in &listening.tcp {
        let _ = write!(text, " tcp={address}");
    }
    if let Some(path) = &listening.unix_socket {
        let _ = write!(text, " unix={}", path.display());
    }
    for address in &listening.memcached {
        let _ = write!(text, " memcached={address}");
    }
    for address in &listening.memcached_udp {
        let _ = write!(text, " memcached-udp={address}");
    }
    if let Some(path) = &listening.memcached_socket {
        let _ = write!(text, " memcached-unix={}", path.display());
    }
    for address in &listening.metrics {
        let _ = write!(text, " metrics={address}");
    }
    text.push('\n');
    text
}
