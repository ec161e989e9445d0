//! `/metrics` for Prometheus: the server's metrics in the text exposition format.
//!
//! Counters count since the start of the server; CONFIG RESETSTAT does not touch them. A latency is
//! end to end (see `recorder`), in buckets that end at powers of two of a nanosecond, so their
//! counts are exact.

mod kept;
mod listener;
mod replicas;

#[cfg(test)]
mod tests;

use std::fmt::{Display, Write as _};

use crate::histogram::{Counts, VALUE_BITS};
use crate::process;
use crate::shared::Shared;
use crate::statistics::{CommandFigures, Figures};

pub use listener::Metrics;

/// The page. O(workers × commands + databases).
pub(crate) fn page(shared: &Shared) -> String {
    let mut page = Page::default();
    let figures = shared.figures_total();
    server(&mut page, shared);
    commands(&mut page, shared, &figures);
    latencies(&mut page, shared, &figures);
    batches(&mut page, &figures);
    connections(&mut page, shared, &figures);
    memory(&mut page, shared);
    keyspace(&mut page, shared, &figures);
    snapshots(&mut page, shared);
    kept::families(&mut page, shared);
    replicas::families(&mut page, shared);
    shared.database.gauges(&mut |gauge| {
        let name = format!("pando_engine_{}", gauge.name);
        let kind = if gauge.is_counter() {
            "counter"
        } else {
            "gauge"
        };
        page.family(&name, kind, gauge.help);
        page.sample("", &[], gauge.value);
    });
    page.text
}

/// The text so far; samples belong to the family begun last.
#[derive(Default)]
struct Page {
    text: String,
    family: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        name.clone_into(&mut self.family);
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// `suffix` is `_bucket`, `_sum`, `_count` or empty.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.family);
        for (index, (name, label)) in labels.iter().enumerate() {
            let label = label
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{label}\"");
        }
        let _ = writeln!(
            self.text,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample("", &[], value);
    }
}

fn server(page: &mut Page, shared: &Shared) {
    page.family("pando_info", "gauge", "Always 1; the labels say what runs.");
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("redis_version", crate::admin::REDIS_VERSION),
        ("engine", shared.database.options().engine.name()),
    ];
    page.sample("", &labels, 1);
    let uptime = shared.now_ms() as f64 / 1000.0;
    page.single(
        "pando_uptime_seconds",
        "gauge",
        "Seconds since the start.",
        uptime,
    );
    page.single("pando_threads", "gauge", "Workers.", shared.workers());
}

/// One family with a sample for each command that has data.
fn by_command(
    page: &mut Page,
    shared: &Shared,
    figures: &Figures,
    (name, help): (&str, &str),
    value: impl Fn(&CommandFigures) -> Option<String>,
) {
    page.family(name, "counter", help);
    for (number, command) in shared.commands.iter() {
        if let Some(value) = value(&figures.commands[number]) {
            page.sample("", &[("command", command)], value);
        }
    }
}

fn commands(page: &mut Page, shared: &Shared, figures: &Figures) {
    let count = |count: u64| (count > 0).then(|| count.to_string());
    let calls = ("pando_commands_total", "Commands executed.");
    by_command(page, shared, figures, calls, |command| count(command.calls));
    let failures = (
        "pando_command_failures_total",
        "Commands that ran and answered an error.",
    );
    by_command(page, shared, figures, failures, |command| {
        count(command.failed)
    });
    let rejections = (
        "pando_command_rejections_total",
        "Commands refused before they ran.",
    );
    by_command(page, shared, figures, rejections, |command| {
        count(command.rejected)
    });
    let seconds = (
        "pando_command_seconds_total",
        "Time spent executing commands.",
    );
    by_command(page, shared, figures, seconds, |command| {
        (command.calls > 0).then(|| print_seconds(command.nanoseconds))
    });
    page.family(
        "pando_errors_total",
        "counter",
        "Error replies, by the first word of their text.",
    );
    for (code, count) in &figures.errors {
        page.sample("", &[("code", code)], count);
    }
}

fn latencies(page: &mut Page, shared: &Shared, figures: &Figures) {
    page.family(
        "pando_command_latency_seconds",
        "histogram",
        "Time from the arrival of a request to the end of the batch that answered it.",
    );
    for (number, name) in shared.commands.iter() {
        if let Some(latencies) = &figures.commands[number].latencies {
            histogram(page, name, latencies);
        }
    }
}

fn histogram(page: &mut Page, command: &str, latencies: &Counts) {
    let total = latencies.total();
    if total == 0 {
        return;
    }
    // From 1 µs to 17 s, a factor of 4 each.
    for exponent in (10..VALUE_BITS).step_by(2) {
        let le = print_seconds(1 << exponent);
        let count = latencies.below(1 << exponent);
        page.sample("_bucket", &[("command", command), ("le", &le)], count);
    }
    page.sample("_bucket", &[("command", command), ("le", "+Inf")], total);
    page.sample(
        "_sum",
        &[("command", command)],
        print_seconds(latencies.sum()),
    );
    page.sample("_count", &[("command", command)], total);
}

/// Nanoseconds as seconds, exactly.
fn print_seconds(nanoseconds: u64) -> String {
    let text = format!(
        "{}.{:09}",
        nanoseconds / 1_000_000_000,
        nanoseconds % 1_000_000_000
    );
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn batches(page: &mut Page, figures: &Figures) {
    let help = "Requests executed in one turn of a worker.";
    page.family("pando_batch_requests", "histogram", help);
    let (mut count, last) = (0, figures.batch_sizes.len() - 1);
    for (class, batches) in figures.batch_sizes.iter().enumerate() {
        count += batches;
        let le = if class == last {
            "+Inf".to_owned()
        } else {
            (1_u64 << class).to_string()
        };
        page.sample("_bucket", &[("le", &le)], count);
    }
    page.sample("_sum", &[], figures.batch_requests);
    page.sample("_count", &[], count);
}

fn connections(page: &mut Page, shared: &Shared, figures: &Figures) {
    page.single(
        "pando_connections",
        "gauge",
        "Open connections.",
        shared.registry.len(),
    );
    for (name, help, value) in [
        (
            "pando_connections_received_total",
            "Connections accepted.",
            figures.connections_received,
        ),
        (
            "pando_connections_rejected_total",
            "Connections refused because there were maxclients.",
            figures.connections_rejected,
        ),
        (
            "pando_input_bytes_total",
            "Bytes read from connections.",
            figures.input_bytes,
        ),
        (
            "pando_output_bytes_total",
            "Bytes written to connections.",
            figures.output_bytes,
        ),
        (
            "pando_reads_total",
            "Reads from connections.",
            figures.reads,
        ),
        (
            "pando_writes_total",
            "Writes to connections.",
            figures.writes,
        ),
        (
            "pando_protocol_errors_total",
            "Requests that broke the protocol.",
            figures.protocol_errors,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
    let help = "Connections that the server closed, by reason.";
    page.family("pando_connections_closed_total", "counter", help);
    for (reason, value) in [
        ("output limit", figures.output_limit_closes),
        ("query limit", figures.query_limit_closes),
        ("request memory", figures.shed_closes),
        ("idle", figures.idle_closes),
    ] {
        page.sample("", &[("reason", reason)], value);
    }
}

fn memory(page: &mut Page, shared: &Shared) {
    let used = shared.memory_used();
    shared.sampler.note_memory(used);
    for (name, help, value) in [
        ("pando_memory_used_bytes", "Bytes allocated.", used as u64),
        (
            "pando_memory_peak_bytes",
            "Most bytes allocated so far.",
            shared.sampler.memory_peak() as u64,
        ),
        (
            "pando_memory_resident_bytes",
            "Bytes that the process holds in the machine's memory.",
            process::resident_bytes(),
        ),
        (
            "pando_memory_max_bytes",
            "Bytes beyond which keys are evicted or writes refused; 0 is no limit.",
            shared.database.max_memory() as u64,
        ),
    ] {
        page.single(name, "gauge", help, value);
    }
    let time = process::processor_time();
    page.family(
        "pando_processor_seconds_total",
        "counter",
        "Processor time used.",
    );
    page.sample("", &[("mode", "user")], time.user);
    page.sample("", &[("mode", "system")], time.system);
}

fn snapshots(page: &mut Page, shared: &Shared) {
    let figures = shared.database.snapshot_figures();
    for (name, help, value) in [
        ("pando_snapshots", "Snapshots.", figures.snapshots as u64),
        (
            "pando_snapshot_images",
            "Replaced or removed values that are kept for snapshots.",
            figures.images,
        ),
        (
            "pando_snapshot_image_bytes",
            "Bytes that these take.",
            figures.image_bytes,
        ),
        (
            "pando_oldest_snapshot_seconds",
            "Age of the oldest snapshot, 0 if there is none.",
            figures.oldest.0 / 1000,
        ),
        (
            "pando_snapshot_leases",
            "Connections, and their commands, that read snapshots.",
            figures.leases as u64,
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample("", &[], value as f64);
    }
    for (name, help, value) in [
        (
            "pando_recent_snapshots_made_total",
            "Snapshots made for SNAPSHOT USE or READ RECENT.",
            figures.made_to_lend,
        ),
        (
            "pando_recent_snapshots_borrowed_total",
            "Times that one of these was shared.",
            figures.borrowed,
        ),
    ] {
        page.family(name, "counter", help);
        page.sample("", &[], value as f64);
    }
}

fn keyspace(page: &mut Page, shared: &Shared, figures: &Figures) {
    let database = &shared.database;
    for (name, help, value) in [
        (
            "pando_keyspace_hits_total",
            "Reads that found a key.",
            figures.database.keyspace_hits,
        ),
        (
            "pando_keyspace_misses_total",
            "Reads that found none.",
            figures.database.keyspace_misses,
        ),
        (
            "pando_expired_keys_total",
            "Keys removed because their time had passed.",
            figures.database.expired_keys,
        ),
        (
            "pando_expired_fields_total",
            "Fields of hashes removed because their time had passed.",
            figures.database.expired_fields,
        ),
        (
            "pando_evicted_keys_total",
            "Keys removed to make room.",
            figures.database.evicted_keys,
        ),
        (
            "pando_commits_total",
            "Writes and removals committed.",
            figures.database.commits,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
    page.family(
        "pando_refused_writes_total",
        "counter",
        "Writes refused before they ran, by what there was no room in: memory, memory that a \
         stalled reader holds back, the log.",
    );
    for (reason, value) in [
        ("memory", figures.database.refused_for_memory),
        ("stalled reader", figures.database.refused_for_readers),
        ("log", figures.database.refused_for_log),
    ] {
        page.sample("", &[("reason", reason)], value);
    }
    let summaries: Vec<_> = (0..database.databases())
        .map(|index| (index.to_string(), database.summary(index)))
        .filter(|(_, (keys, ..))| *keys > 0)
        .collect();
    page.family("pando_keys", "gauge", "Keys, by database.");
    for (index, (keys, ..)) in &summaries {
        page.sample("", &[("database", index)], keys);
    }
    page.family(
        "pando_expiring_keys",
        "gauge",
        "Keys that have a deadline, by database.",
    );
    for (index, (_, expiring, _)) in &summaries {
        page.sample("", &[("database", index)], expiring);
    }
}
