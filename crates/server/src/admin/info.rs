//! INFO: the server's statistics as text, in the sections and under the names that clients and
//! monitoring read from Redis. What the server does not have is 0, `ok` or empty.

use std::fmt::{Display, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use pando_db::{CommandError, LogState, Progress};
use pando_protocol::number;

use super::memory::MemoryFigures;
use super::{Call, Handled, REDIS_VERSION};
use crate::config::{Config, print_percentile};
use crate::process;
use crate::registry::{ClientFlag, WireProtocol};
use crate::shared::wall_us;
use crate::statistics::Figures;

/// LOLWUT [VERSION version …]. Whatever Redis would paint, this is a tree with one root.
pub(super) fn lolwut(call: &mut Call<'_, '_, '_>) -> Handled {
    if call.request.is(1, "VERSION") && call.request.len() > 2 {
        let integer = |word| number::parse_i64(word).ok_or(CommandError::NotAnInteger);
        // Those of 5 and 6 take three sizes.
        if matches!(integer(call.request.arg(2))?, 5 | 6) {
            let sizes = call.request.args_from(3).take(3);
            sizes.map(integer).collect::<Result<Vec<_>, _>>()?;
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    call.reply.verbatim(&format!(
        "  (()  (())   ()\n   |    ||    |\n ==+====++====+==\n\nPando ver. {version}\n"
    ));
    Ok(Progress::Done)
}

/// A section: its name in requests and in its heading, whether INFO without arguments shows it.
struct Section {
    name: &'static str,
    heading: &'static str,
    default: bool,
    write: fn(&mut Report<'_, '_, '_, '_>),
}

static SECTIONS: [Section; 15] = [
    section("server", "Server", true, server),
    section("clients", "Clients", true, clients),
    section("memory", "Memory", true, memory),
    section("persistence", "Persistence", true, persistence),
    section("stats", "Stats", true, stats),
    section("replication", "Replication", true, replication),
    section("cpu", "CPU", true, processor),
    section("modules", "Modules", true, |_| {}),
    section("commandstats", "Commandstats", false, command_statistics),
    section("errorstats", "Errorstats", true, error_statistics),
    section("latencystats", "Latencystats", false, latency_statistics),
    section("cluster", "Cluster", true, cluster),
    section("keyspace", "Keyspace", true, keyspace),
    section("snapshots", "Snapshots", true, snapshots),
    section("pando", "Pando", true, pando),
];

const fn section(
    name: &'static str,
    heading: &'static str,
    default: bool,
    write: fn(&mut Report<'_, '_, '_, '_>),
) -> Section {
    Section {
        name,
        heading,
        default,
        write,
    }
}

/// The text so far, and its sources.
struct Report<'r, 'c, 't, 'o> {
    call: &'r mut Call<'c, 't, 'o>,
    config: Config,
    figures: Figures,
    text: String,
}

impl Report<'_, '_, '_, '_> {
    fn line(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// A number of bytes, followed by a human-readable form.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.line(name, bytes);
        self.line(&format!("{name}_human"), human(bytes));
    }

    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.line(name, 0);
        }
    }
}

/// INFO [section …]. O(workers × commands + connections).
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let asked = |name: &str| {
        request
            .args_from(1)
            .any(|argument| argument.eq_ignore_ascii_case(name.as_bytes()))
    };
    let everything = asked("all") || asked("everything");
    let default = request.len() == 1 || asked("default");
    let mut report = Report {
        config: call.shared.config(),
        figures: call.shared.figures(),
        text: String::new(),
        call,
    };
    for section in &SECTIONS {
        if everything || (default && section.default) || asked(section.name) {
            if !report.text.is_empty() {
                report.text.push_str("\r\n");
            }
            let _ = write!(report.text, "# {}\r\n", section.heading);
            (section.write)(&mut report);
        }
    }
    let text = report.text;
    call.reply.verbatim(&text);
    Ok(Progress::Done)
}

fn server(report: &mut Report<'_, '_, '_, '_>) {
    let shared = report.call.shared;
    let uptime_s = shared.now_ms() / 1000;
    let now_us = wall_us();
    let executable = std::env::current_exe().unwrap_or_default();
    let file = report.config.file.clone().unwrap_or_default();
    report.line("redis_version", REDIS_VERSION);
    report.line("redis_git_sha1", "00000000");
    report.line("redis_git_dirty", 0);
    report.line("redis_build_id", 0);
    report.line("redis_mode", "standalone");
    report.line("pando_version", env!("CARGO_PKG_VERSION"));
    report.line("os", process::operating_system());
    report.line("arch_bits", usize::BITS);
    report.line("multiplexing_api", "epoll");
    report.line("process_id", std::process::id());
    report.line("process_supervised", "no");
    report.line("run_id", shared.run_id());
    report.line("tcp_port", shared.tcp_port());
    let listening = shared.listening();
    let memcached_port = listening.memcached.first().map_or(0, SocketAddr::port);
    report.line("memcached_port", memcached_port);
    report.line("server_time_usec", now_us);
    report.line("uptime_in_seconds", uptime_s);
    report.line("uptime_in_days", uptime_s / 86_400);
    report.line("hz", 10);
    report.line("configured_hz", 10);
    report.line("lru_clock", (now_us / 1_000_000) & 0xff_ffff);
    report.line("executable", executable.display());
    report.line("config_file", file.display());
    report.line("io_threads_active", 0);
}

fn clients(report: &mut Report<'_, '_, '_, '_>) {
    let records = report.call.shared.registry.snapshot();
    let buffers = || records.iter().map(|record| record.buffers());
    let input = buffers()
        .map(|it| it.query_bytes + it.query_free_bytes)
        .max();
    let output = buffers().map(|it| it.output_bytes).max();
    let blocked = records
        .iter()
        .filter(|record| record.has(ClientFlag::Blocked))
        .count();
    let connected = records.iter().filter(|record| !record.is_killed()).count();
    report.line("connected_clients", connected);
    let memcached = records
        .iter()
        .filter(|record| record.origin().protocol == WireProtocol::Memcached)
        .count();
    report.line("memcached_clients", memcached);
    report.line("cluster_connections", 0);
    report.line("maxclients", report.config.clients_max);
    report.line("client_recent_max_input_buffer", input.unwrap_or(0));
    report.line("client_recent_max_output_buffer", output.unwrap_or(0));
    report.line("blocked_clients", blocked);
    report.zeros(&["tracking_clients", "clients_in_timeout_table"]);
}

fn memory(report: &mut Report<'_, '_, '_, '_>) {
    let figures = MemoryFigures::of(report.call);
    report.bytes("used_memory", figures.used as u64);
    report.bytes("used_memory_rss", figures.resident);
    report.bytes("used_memory_peak", figures.peak as u64);
    report.line(
        "used_memory_peak_perc",
        format!("{:.2}%", figures.peak_percent()),
    );
    report.line("used_memory_overhead", figures.overhead());
    report.line("used_memory_startup", figures.startup);
    report.line("used_memory_dataset", figures.dataset());
    report.line(
        "used_memory_dataset_perc",
        format!("{:.2}%", figures.dataset_percent()),
    );
    report.line("allocator_allocated", figures.used);
    report.line("allocator_resident", figures.resident);
    report.bytes("total_system_memory", process::machine_bytes());
    report.zeros(&[
        "used_memory_lua",
        "number_of_cached_scripts",
        "number_of_functions",
        "number_of_libraries",
        "used_memory_vm_total",
        "used_memory_scripts",
    ]);
    report.bytes("maxmemory", report.config.max_memory);
    report.line("maxmemory_policy", report.config.eviction_policy.name());
    report.line(
        "mem_fragmentation_ratio",
        format!("{:.2}", figures.fragmentation()),
    );
    report.line(
        "mem_fragmentation_bytes",
        figures.resident as i64 - figures.used as i64,
    );
    report.zeros(&["mem_not_counted_for_evict", "mem_replication_backlog"]);
    report.zeros(&["mem_total_replication_buffers", "mem_clients_slaves"]);
    report.line("mem_clients_normal", figures.clients);
    let database = &report.call.shared.database;
    let (requests, requests_max) = (database.requests_bytes(), database.requests_bytes_max());
    report.line("mem_requests", requests);
    report.line("mem_requests_max", requests_max);
    report.zeros(&["mem_cluster_links"]);
    report.line("mem_aof_buffer", figures.log);
    report.zeros(&[
        "active_defrag_running",
        "lazyfree_pending_objects",
        "lazyfreed_objects",
    ]);
}

/// The state of our own log.
fn log(report: &mut Report<'_, '_, '_, '_>) {
    let database = &report.call.shared.database;
    report.line("durability", report.config.durability.name());
    if let Some(log) = database.log_statistics() {
        let state = match database.log_state() {
            Some(LogState::Full { .. }) => "full",
            Some(LogState::Failed { .. }) => "failed",
            _ => "ok",
        };
        report.line("log_state", state);
        report.line("log_written_bytes", log.written_bytes);
        report.line("log_writes", log.writes);
        let mean_ns = log.write_ns.checked_div(log.writes).unwrap_or(0);
        report.line("log_write_mean_us", mean_ns / 1000);
        report.line("log_failed_writes", log.failed_writes);
        report.line("log_live_bytes", log.live_bytes);
        report.line("log_segments", log.segments);
        report.line("log_held_bytes", log.held_bytes);
        report.line("log_pending_bytes", log.pending_bytes);
        report.line("log_epoch_closed", log.closed);
        report.line("log_epoch_durable", log.durable);
    } else if database.is_durable() {
        let pool = &database.options().pool;
        report.line("pool_bytes", pool.bytes);
        report.line("pool_used_bytes", database.pool_bytes());
        report.line("pool_note", pool.promise());
        let is_listing = u8::from(database.is_listing_deadlines());
        report.line("pool_listing_deadlines", is_listing);
        report.line("pool_protection", pool.protection.name());
        report.line("log_epoch_durable", database.durable());
    } else {
        report.line(
            "durability_note",
            "nothing is kept on disk, a restart begins empty",
        );
    }
}

fn persistence(report: &mut Report<'_, '_, '_, '_>) {
    log(report);
    let shared = report.call.shared;
    let database = &shared.database;
    let keeper = shared.keeper.figures();
    let taken = database.last_checkpoint().unwrap_or_default();
    let found = database.recovery().cloned().unwrap_or_default();
    let status = |ok: bool| if ok { "ok" } else { "err" };
    let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
    let took = (taken.took_us > 0).then(|| Duration::from_micros(taken.took_us));
    let log_is_open = matches!(database.log_state(), None | Some(LogState::Open));
    report.line("loading", u8::from(database.awaits_copy()));
    report.zeros(&["async_loading", "current_cow_peak", "current_cow_size"]);
    report.line(
        "rdb_changes_since_last_save",
        database.statistics().commits.saturating_sub(keeper.commits),
    );
    report.line(
        "rdb_bgsave_in_progress",
        u8::from(keeper.running_for.is_some()),
    );
    let last_save = super::persistence::last_save_s(report.call);
    report.line("rdb_last_save_time", last_save);
    report.line("rdb_last_bgsave_status", status(keeper.error.is_none()));
    report.line("rdb_last_bgsave_time_sec", seconds(took));
    report.line("rdb_current_bgsave_time_sec", seconds(keeper.running_for));
    report.line("rdb_saves", keeper.taken);
    report.zeros(&["rdb_last_cow_size", "rdb_last_load_keys_expired"]);
    report.line("rdb_last_load_keys_loaded", found.loaded);
    report.line("checkpoint_failures", keeper.failed);
    report.line("checkpoint_last_keys", taken.entries);
    report.line("checkpoint_last_bytes", taken.bytes);
    report.line("load_records_replayed", found.replayed);
    report.line(
        "load_milliseconds",
        (found.load_us + found.replay_us) / 1000,
    );
    report.line("aof_enabled", u8::from(database.is_durable()));
    report.zeros(&["aof_rewrite_in_progress", "aof_rewrite_scheduled"]);
    report.line("aof_last_rewrite_time_sec", -1);
    report.line("aof_current_rewrite_time_sec", -1);
    report.line("aof_last_bgrewrite_status", "ok");
    report.line("aof_last_write_status", status(log_is_open));
    report.zeros(&["aof_last_cow_size", "module_fork_in_progress"]);
    if let Some(log) = database.log_statistics() {
        // As in Redis, where the base is a file of all keys, and the rest is what came since.
        report.line("aof_current_size", taken.bytes + log.live_bytes);
        report.line("aof_base_size", taken.bytes);
        report.zeros(&["aof_pending_rewrite"]);
        report.line("aof_buffer_length", log.pending_bytes);
        report.line("aof_pending_bio_fsync", u8::from(log.closed > log.durable));
    }
}

fn stats(report: &mut Report<'_, '_, '_, '_>) {
    let shared = report.call.shared;
    let rates = shared.rates();
    let figures = report.figures.clone();
    report.line("total_connections_received", figures.connections_received);
    report.line("total_commands_processed", figures.calls());
    report.line("instantaneous_ops_per_sec", rates.calls.round() as u64);
    report.line("total_net_input_bytes", figures.input_bytes);
    report.line("total_net_output_bytes", figures.output_bytes);
    report.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    report.line(
        "instantaneous_input_kbps",
        format!("{:.2}", rates.input_bytes / 1024.0),
    );
    report.line(
        "instantaneous_output_kbps",
        format!("{:.2}", rates.output_bytes / 1024.0),
    );
    report.line("rejected_connections", figures.connections_rejected);
    for (name, count) in shared.replication.syncs.named() {
        report.line(name, count);
    }
    report.line("expired_subkeys", figures.database.expired_fields);
    report.line("expired_keys", figures.database.expired_keys);
    report.line("expired_stale_perc", "0.00");
    report.zeros(&[
        "expired_time_cap_reached_count",
        "expire_cycle_cpu_milliseconds",
    ]);
    report.line("evicted_keys", figures.database.evicted_keys);
    report.line("evicted_clients", figures.shed_closes);
    report.line("refused_writes_memory", figures.database.refused_for_memory);
    report.line(
        "refused_writes_stalled_reader",
        figures.database.refused_for_readers,
    );
    report.line("refused_writes_log", figures.database.refused_for_log);
    report.zeros(&[
        "total_eviction_exceeded_time",
        "current_eviction_exceeded_time",
    ]);
    report.line("keyspace_hits", figures.database.keyspace_hits);
    report.line("keyspace_misses", figures.database.keyspace_misses);
    report.zeros(&["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"]);
    report.zeros(&["latest_fork_usec", "total_forks", "migrate_cached_sockets"]);
    report.zeros(&[
        "slave_expires_tracked_keys",
        "active_defrag_hits",
        "active_defrag_misses",
    ]);
    report.zeros(&[
        "tracking_total_keys",
        "tracking_total_items",
        "tracking_total_prefixes",
    ]);
    report.line("unexpected_error_replies", 0);
    report.line("total_error_replies", figures.error_replies());
    report.line("dump_payload_sanitizations", 0);
    report.line("total_reads_processed", figures.reads);
    report.line("total_writes_processed", figures.writes);
    report.line(
        "query_buffer_limit_disconnections",
        figures.query_limit_closes,
    );
    report.line(
        "client_output_buffer_limit_disconnections",
        figures.output_limit_closes,
    );
    report.line("idle_disconnections", figures.idle_closes);
    report.line("protocol_errors", figures.protocol_errors);
}

fn replication(report: &mut Report<'_, '_, '_, '_>) {
    let shared = report.call.shared;
    super::replication::report(shared, |name, value| report.line(name, value));
}

fn processor(report: &mut Report<'_, '_, '_, '_>) {
    let time = process::processor_time();
    for (name, seconds) in [
        ("used_cpu_sys", time.system),
        ("used_cpu_user", time.user),
        ("used_cpu_sys_children", time.system_children),
        ("used_cpu_user_children", time.user_children),
    ] {
        report.line(name, format!("{seconds:.6}"));
    }
}

fn command_statistics(report: &mut Report<'_, '_, '_, '_>) {
    for (number, name) in report.call.shared.commands.iter() {
        let figures = &report.figures.commands[number];
        if figures.calls + figures.rejected + figures.failed == 0 {
            continue;
        }
        let microseconds = figures.nanoseconds / 1000;
        let per_call = if figures.calls == 0 {
            0.0
        } else {
            figures.nanoseconds as f64 / 1000.0 / figures.calls as f64
        };
        let line = format!(
            "calls={},usec={microseconds},usec_per_call={per_call:.2},rejected_calls={},\
             failed_calls={}",
            figures.calls, figures.rejected, figures.failed
        );
        report.line(&format!("cmdstat_{name}"), line);
    }
}

fn error_statistics(report: &mut Report<'_, '_, '_, '_>) {
    for (code, count) in report.figures.errors.clone() {
        report.line(&format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn latency_statistics(report: &mut Report<'_, '_, '_, '_>) {
    for (number, name) in report.call.shared.commands.iter() {
        let latencies = report.figures.commands[number].latencies.take();
        let Some(latencies) = latencies.filter(|latencies| latencies.total() > 0) else {
            continue;
        };
        let percentiles = report.config.latency_percentiles.iter().map(|percent| {
            let microseconds = latencies.percentile(*percent) as f64 / 1000.0;
            format!("p{}={microseconds:.3}", print_percentile(*percent))
        });
        let line = percentiles.collect::<Vec<_>>().join(",");
        report.line(&format!("latency_percentiles_usec_{name}"), line);
    }
}

fn cluster(report: &mut Report<'_, '_, '_, '_>) {
    report.line("cluster_enabled", 0);
}

fn keyspace(report: &mut Report<'_, '_, '_, '_>) {
    report.call.turn.observe_all();
    let database = &report.call.shared.database;
    for index in 0..database.databases() {
        let (keys, expiring, mean_ms) = database.summary(index);
        if keys > 0 {
            // Redis has it from 7.4 on.
            let more = match database.expiring_hashes(index) {
                0 => String::new(),
                hashes => format!(",subexpiry={hashes}"),
            };
            let line = format!("keys={keys},expires={expiring},avg_ttl={mean_ms}{more}");
            report.line(&format!("db{index}"), line);
        }
    }
}

fn snapshots(report: &mut Report<'_, '_, '_, '_>) {
    let figures = report.call.shared.database.snapshot_figures();
    report.line("snapshots", figures.snapshots);
    report.line("snapshots_held", figures.held);
    report.line("snapshot_images", figures.images);
    report.line("snapshot_image_bytes", figures.image_bytes);
    report.line("oldest_snapshot_ms", figures.oldest);
    report.line("lowest_snapshot_epoch", figures.lowest.0);
    report.line("lowest_leased_epoch", figures.lowest_leased.0);
    report.line("snapshot_leases", figures.leases);
    report.line("snapshots_recent", figures.lent);
    report.line("recent_snapshots_made", figures.made_to_lend);
    report.line("recent_snapshots_borrowed", figures.borrowed);
    let database = &report.call.shared.database;
    if let (Some(branches), Some(ending)) = (database.branches(), database.branches_that_end_here())
    {
        report.line("branches", branches);
        report.line("branches_that_end_here", ending);
    }
}

/// Fields that only this server has.
fn pando(report: &mut Report<'_, '_, '_, '_>) {
    let shared = report.call.shared;
    let figures = report.figures.clone();
    let mean = if figures.batches == 0 {
        0.0
    } else {
        figures.batch_requests as f64 / figures.batches as f64
    };
    report.line("engine", report.config.engine.name());
    report.line("threads", shared.workers());
    report.line("batches", figures.batches);
    report.line("requests_per_batch", format!("{mean:.2}"));
    report.line("commits", figures.database.commits);
    report.line("expiring_keys", shared.database.expiring_keys());
    let mut gauges = Vec::new();
    shared
        .database
        .gauges(&mut |gauge| gauges.push((gauge.name, gauge.value)));
    for (name, value) in gauges {
        report.line(&format!("engine_{name}"), value);
    }
}

/// Human-readable bytes, in Redis' notation.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.2}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Shell;

    /// The value of a field of a report.
    fn field<'t>(text: &'t str, name: &str) -> &'t str {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} is missing: {text}"))
    }

    fn headings(text: &str) -> Vec<&str> {
        text.lines()
            .filter_map(|line| line.strip_prefix("# "))
            .collect()
    }

    #[test]
    fn sections_are_those_asked_for() {
        let mut shell = Shell::new(Config::default());
        let all = [
            "Server",
            "Clients",
            "Memory",
            "Persistence",
            "Stats",
            "Replication",
            "CPU",
            "Modules",
            "Commandstats",
            "Errorstats",
            "Latencystats",
            "Cluster",
            "Keyspace",
            "Snapshots",
            "Pando",
        ];
        let default: Vec<_> = all
            .into_iter()
            .filter(|name| !["Commandstats", "Latencystats"].contains(name))
            .collect();
        assert_eq!(headings(&shell.ask("INFO")), default);
        assert_eq!(headings(&shell.ask("INFO DEFAULT server")), default);
        assert_eq!(headings(&shell.ask("INFO all")), all);
        assert_eq!(headings(&shell.ask("INFO EVERYTHING")), all);
        assert_eq!(
            headings(&shell.ask("INFO keyspace nosuch CPU")),
            ["CPU", "Keyspace"]
        );
        assert_eq!(shell.ask("INFO nosuch"), "$0\r\n\r\n");
        assert_eq!(
            shell.ask("INFO cluster"),
            "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n"
        );
        shell.ask("HELLO 3");
        assert!(
            shell
                .ask("INFO cluster")
                .starts_with("=34\r\ntxt:# Cluster")
        );
    }

    #[test]
    fn what_clients_index_is_there() {
        let mut shell = Shell::new(Config::default());
        for line in [
            "SET k v PX 100000",
            "GET k",
            "GET nosuch",
            "INCR k",
            "GET",
            "NOSUCH",
        ] {
            shell.ask(line);
        }
        let text = shell.ask("INFO everything");
        for (name, value) in [
            ("redis_version", "7.0.15"),
            ("arch_bits", "64"),
            ("redis_mode", "standalone"),
            ("cluster_enabled", "0"),
            ("loading", "0"),
            ("role", "master"),
            ("durability", "none"),
            ("connected_clients", "1"),
            ("keyspace_hits", "1"),
            ("keyspace_misses", "1"),
            ("total_error_replies", "3"),
            ("errorstat_ERR", "count=3"),
            ("tcp_port", "6379"),
            ("engine", "masstree"),
            ("engine_retired_bytes_max", "268435456"),
        ] {
            assert_eq!(field(&text, name), value, "{name}");
        }
        for name in [
            "uptime_in_seconds",
            "used_memory",
            "used_memory_rss",
            "maxmemory",
        ] {
            assert!(field(&text, name).parse::<u64>().is_ok(), "{name}");
        }
        assert!(field(&text, "db0").starts_with("keys=1,expires=1,avg_ttl="));
        let get = field(&text, "cmdstat_get");
        assert!(get.starts_with("calls=2,") && get.ends_with(",rejected_calls=1,failed_calls=0"));
        assert!(field(&text, "cmdstat_incr").ends_with(",rejected_calls=0,failed_calls=1"));
        let percentiles = field(&text, "latency_percentiles_usec_get");
        assert!(percentiles.starts_with("p50=") && percentiles.contains(",p99.9="));
        assert_eq!(field(&text, "total_commands_processed"), "4");
        shell.ask("CONFIG RESETSTAT");
        let text = shell.ask("INFO everything");
        assert_eq!(field(&text, "total_error_replies"), "0");
        assert_eq!(field(&text, "keyspace_hits"), "0");
        assert!(!text.contains("cmdstat_get"));
    }

    #[test]
    fn the_tree_tells_of_itself() {
        let text = Shell::new(Config::default()).ask("INFO everything");
        for name in [
            "layers",
            "border_nodes",
            "young_nodes",
            "interior_nodes",
            "border_fill",
            "local_retries",
            "root_retries",
            "splits_total",
            "node_removals_total",
            "layer_removals_total",
            "layer_folds_total",
            "retired_bytes",
            "reclamation_lag",
            "batches_total",
            "batch_keys_total",
        ] {
            let value = field(&text, &format!("engine_{name}"));
            assert!(value.parse::<f64>().is_ok(), "{name}: {value}");
        }
    }

    #[test]
    fn bytes_read_as_in_redis() {
        for (bytes, expected) in [
            (0, "0B"),
            (1023, "1023B"),
            (916_416, "894.94K"),
            (25_276_510_208, "23.54G"),
            (u64::MAX, "16384.00P"),
        ] {
            assert_eq!(human(bytes), expected);
        }
    }
}
