//! MEMORY: where memory is used.

use std::fmt::Write as _;

use pando_db::{CommandError, EvictionPolicy, Progress};
use pando_protocol::number;

use super::{Call, Handled};
use crate::process;

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return what there is to say about memory, as text.",
    "MALLOC-STATS",
    "    Return what the allocator and the engine count, as text.",
    "PURGE",
    "    Accepted; memory is given back as it is freed.",
    "STATS",
    "    Return where memory goes.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return the bytes that a key and its value take; nothing is sampled.",
];

/// MEMORY and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"doctor" => doctor(call),
        b"help" => call.help("MEMORY", HELP),
        b"malloc-stats" => malloc_stats(call),
        b"purge" => call.ok(),
        b"stats" => stats(call),
        b"usage" => usage(call),
        _ => Err(CommandError::Syntax.into()),
    }
}

fn usage(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    match request.len() {
        3 => {}
        5 if request.is(3, "SAMPLES") => {
            let samples = number::parse_i64(request.arg(4)).ok_or(CommandError::NotAnInteger)?;
            if samples < 0 {
                return Err(CommandError::Syntax.into());
            }
        }
        _ => return Err(CommandError::Syntax.into()),
    }
    let mut keyspace = call.turn.keyspace(call.client.index());
    match pando_db::memory_usage(&mut keyspace, request.arg(2)) {
        Some(bytes) => call.reply.count(bytes),
        None => call.reply.null(),
    }
    Ok(Progress::Done)
}

/// Memory by use, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryFigures {
    pub(super) used: usize,
    pub(super) peak: usize,
    pub(super) startup: usize,
    pub(super) clients: usize,
    /// Data handed over to the log, and buffers that it keeps for more.
    pub(super) log: usize,
    pub(super) resident: u64,
}

impl MemoryFigures {
    pub(super) fn of(call: &Call<'_, '_, '_>) -> Self {
        let shared = call.shared;
        let used = shared.memory_used();
        shared.sampler.note_memory(used);
        let clients = shared.registry.snapshot();
        Self {
            used,
            peak: shared.sampler.memory_peak(),
            startup: shared.memory_at_start(),
            clients: clients.iter().map(|record| record.memory_bytes()).sum(),
            log: shared
                .database
                .log_statistics()
                .map_or(0, |log| log.buffer_bytes),
            resident: process::resident_bytes(),
        }
    }

    /// Overhead: the server at its start, the connections and the log's buffers.
    pub(super) fn overhead(&self) -> usize {
        (self.startup + self.clients + self.log).min(self.used)
    }

    pub(super) fn dataset(&self) -> usize {
        self.used - self.overhead()
    }

    /// The data's percentage of what is used beyond the start.
    pub(super) fn dataset_percent(&self) -> f64 {
        percent(self.dataset(), self.used.saturating_sub(self.startup))
    }

    pub(super) fn peak_percent(&self) -> f64 {
        percent(self.used, self.peak)
    }

    /// Resident bytes for each byte used.
    pub(super) fn fragmentation(&self) -> f64 {
        if self.used == 0 {
            0.0
        } else {
            self.resident as f64 / self.used as f64
        }
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

fn stats(call: &mut Call<'_, '_, '_>) -> Handled {
    call.turn.observe_all();
    let figures = MemoryFigures::of(call);
    let database = &call.shared.database;
    let keys: u64 = (0..database.databases())
        .map(|index| database.summary(index).0)
        .sum();
    let bytes_per_key = (figures.dataset() as u64).checked_div(keys).unwrap_or(0);
    let counts = [
        ("peak.allocated", figures.peak as u64),
        ("total.allocated", figures.used as u64),
        ("startup.allocated", figures.startup as u64),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", figures.clients as u64),
        ("cluster.links", 0),
        ("aof.buffer", figures.log as u64),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", figures.overhead() as u64),
        ("keys.count", keys),
        ("keys.bytes-per-key", bytes_per_key),
        ("dataset.bytes", figures.dataset() as u64),
        ("resident.bytes", figures.resident),
    ];
    let shares = [
        ("dataset.percentage", figures.dataset_percent()),
        ("peak.percentage", figures.peak_percent()),
        ("fragmentation", figures.fragmentation()),
    ];
    let reply = &mut *call.reply;
    reply.map(counts.len() + shares.len());
    for (name, value) in counts {
        reply.bulk(name);
        reply.integer(value as i64);
    }
    for (name, value) in shares {
        reply.bulk(name);
        reply.double(&number::format_f64(value));
    }
    Ok(Progress::Done)
}

fn doctor(call: &mut Call<'_, '_, '_>) -> Handled {
    let figures = MemoryFigures::of(call);
    let max_memory = call.shared.database.max_memory();
    let mut findings = Vec::new();
    let refuses = call.shared.database.eviction_policy() == EvictionPolicy::NoEviction;
    if refuses && max_memory > 0 && figures.used as f64 > max_memory as f64 * 0.9 {
        findings.push(format!(
            "{:.0} % of maxmemory is used: writes are refused when it is full.",
            percent(figures.used, max_memory)
        ));
    }
    if figures.used > 64 * 1024 * 1024 && figures.fragmentation() > 1.5 {
        findings.push(format!(
            "The process holds {:.1} bytes of memory for each byte in use.",
            figures.fragmentation()
        ));
    }
    if figures.clients > figures.used / 4 && figures.clients > 64 * 1024 * 1024 {
        findings.push("The buffers of connections take more than a quarter of memory.".to_owned());
    }
    let mut retired = 0.0;
    call.shared.database.gauges(&mut |gauge| {
        if gauge.name == "retired_bytes" {
            retired = gauge.value;
        }
    });
    let retired_bytes_max = call.shared.config().retired_bytes_max;
    if retired >= retired_bytes_max as f64 / 2.0 {
        findings.push(format!(
            "A stalled reader holds back {:.0} % of retired-bytes-max in replaced values: writes \
             are slowed, and refused when it is reached.",
            percent(retired as usize, retired_bytes_max)
        ));
    }
    if findings.is_empty() {
        findings.push("Nothing about memory needs attention.".to_owned());
    }
    let mut text = findings.join("\n");
    text.push('\n');
    call.reply.verbatim(&text);
    Ok(Progress::Done)
}

fn malloc_stats(call: &mut Call<'_, '_, '_>) -> Handled {
    let figures = MemoryFigures::of(call);
    let mut text = format!(
        "allocated bytes: {}\npeak allocated bytes: {}\nresident bytes: {}\n",
        figures.used, figures.peak, figures.resident
    );
    call.shared.database.gauges(&mut |gauge| {
        let _ = writeln!(text, "engine {}: {}", gauge.name, gauge.value);
    });
    call.reply.verbatim(&text);
    Ok(Progress::Done)
}
