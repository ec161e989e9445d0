//! The load generator: threads with pipelining connections against one or several RESP or memcached
//! servers.
//!
//! Closed loop by default: a connection sends its next pipeline when the last one is answered. With
//! `--rate` the loop is open: requests have due times, and a reply's latency counts from the due
//! time of its request, so that a server which stalls is charged for the requests that waited
//! (no coordinated omission).
//!
//! `--workload` runs a named workload (MYCSB, YCSB; see [`crate::workload`]), the default being GET
//! and SET. Every reply is checked for its shape. With `--verify` every reply is checked against a
//! model: each connection owns the keys of its residue class, so that it knows what they hold, and
//! reads and writes no others; ranges must ascend and begin with what their first key holds.
//!
//! Deliberately absent: traffic to other hosts. An address that is not a loopback one is refused.

mod client;
mod datagrams;
mod figures;
mod memcached;
mod open;
mod requests;
mod worker;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;

use crate::accounting;
use crate::distribution::{Distribution, YCSB_THETA};
use crate::listener;
use crate::progress::Progress;
use crate::rounds::Figures;
use crate::workload::{Workload, WorkloadName};
use client::Client;
use worker::Worker;

/// The load and its targets.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Servers, `HOST:PORT` on the loopback interface; measured in turns, ratios to the first.
    #[arg(required = true)]
    servers: Vec<SocketAddr>,
    /// Further servers, measured in turns with the others; the same as naming them before options.
    #[arg(long, value_delimiter = ',')]
    vs: Vec<SocketAddr>,
    /// What the servers speak.
    #[arg(long, value_enum, default_value = "resp")]
    protocol: Dialect,
    /// Sends requests as datagrams to the UDP port of the same number; keys are filled over TCP.
    #[arg(long, conflicts_with = "multi_get")]
    udp: bool,
    /// Threads of the client.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Cores of the threads, one each, from the first again when there are more threads than
    /// cores; wherever there is time when absent.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Connections per thread.
    #[arg(long, default_value_t = 25)]
    connections: usize,
    /// Requests in flight per connection.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Keys.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// A named workload, instead of GET and SET.
    #[arg(long, value_enum)]
    workload: Option<WorkloadName>,
    /// Bytes of a value or of a column; of GET and SET at least 8.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    value_bytes: Option<u32>,
    /// Keys of one read: MGET, or memcached's get. Counted as one request.
    #[arg(long, default_value_t = 1, conflicts_with = "verify")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    multi_get: u64,
    /// How ranges over keys are asked for.
    #[arg(long, value_enum, default_value = "krange")]
    ranges: Ranges,
    /// Columns of a row.
    #[arg(long, requires = "workload", value_parser = clap::value_parser!(u32).range(1..=1000))]
    columns: Option<u32>,
    /// Share of reads of GET and SET in per cent.
    #[arg(long, default_value_t = 95, value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// How keys are chosen; the workload's own way when absent, uniform for GET and SET.
    #[arg(long, value_enum)]
    distribution: Option<Distribution>,
    /// Skew of the Zipfian distributions.
    #[arg(long, default_value_t = YCSB_THETA)]
    theta: f64,
    /// Requests per second over all threads (open loop); closed loop when absent.
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before that which are not measured.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Measurements per server.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Writes every key before the first measurement.
    #[arg(long)]
    fill: bool,
    /// Checks what every reply says against a model.
    #[arg(long)]
    verify: bool,
    /// Seed of keys and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// Redis' protocol.
    Resp,
    /// memcached's meta commands: values without columns only.
    Memcached,
}

/// How a server is asked for a range over its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ranges {
    /// Our command.
    Krange,
    /// A script over a sorted set of all keys, which inserts keep: for Redis.
    SortedSet,
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    #[error("{0} is not a loopback address; load goes to this machine only")]
    NotLoopback(SocketAddr),
    #[error("cannot connect to {server}: {source}")]
    Connect {
        server: SocketAddr,
        source: std::io::Error,
    },
    #[error("{server} failed while it was measured: {source}")]
    Broken {
        server: SocketAddr,
        source: std::io::Error,
    },
    #[error("{server} closed a connection")]
    Closed { server: SocketAddr },
    #[error("{server} sent what is no RESP: {source}")]
    Protocol {
        server: SocketAddr,
        source: pando_protocol::resp::ReplyError,
    },
    #[error("{server} answered {request} with {got}, expected {expected}")]
    WrongReply {
        server: SocketAddr,
        request: String,
        got: String,
        expected: String,
    },
    #[error("cannot measure: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
    #[error("cannot wait for sockets: {0}")]
    Poll(std::io::Error),
    #[error("{option} must be at least 1")]
    Zero { option: &'static str },
    #[error("--multi-get reads values: {0} has rows")]
    RowsAtOnce(String),
    #[error("memcached has no rows: {0} needs a RESP server")]
    NoRows(String),
    #[error("--udp needs --protocol memcached")]
    Datagrams,
    #[error("--rate must be a number above 0")]
    Rate,
    #[error("{option} must be seconds, at most a day")]
    Seconds { option: &'static str },
    #[error("--theta must be at least 0 and below 1")]
    Theta,
    #[error("cannot run on core {0}")]
    Core(usize),
}

impl Options {
    /// All servers; ratios are to the first.
    fn targets(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().chain(&self.vs).copied()
    }

    /// A connection of the load.
    fn client_of(&self, server: SocketAddr) -> Result<Client, LoadError> {
        if self.udp {
            return Client::connect_udp(server);
        }
        Client::connect(server, self.protocol)
    }

    fn workload(&self) -> Workload {
        let mut workload = match self.workload {
            Some(name) => name.workload(),
            None => Workload::plain(self.reads, Distribution::Uniform, 8),
        };
        if let Some(bytes) = self.value_bytes {
            let least = if self.workload.is_some() { 1 } else { 8 };
            workload.column_bytes = (bytes as usize).max(least);
        }
        if let (Some(columns), Some(_)) = (self.columns, workload.columns) {
            workload.columns = Some(columns as usize);
        }
        if let Some(distribution) = self.distribution {
            workload.distribution = distribution;
        }
        workload.theta = self.theta;
        if let (Dialect::Memcached, 100, Some(columns)) =
            (self.protocol, workload.mix.read, workload.columns)
        {
            // Rows that are only read whole can be one value.
            workload.column_bytes *= columns;
            workload.columns = None;
        }
        workload
    }
}

/// Microseconds up to an hour, with three digits. The bounds are given because a histogram that
/// resizes itself takes [`Histogram::saturating_record`] to mean its first, tiny size.
fn latencies() -> Result<Histogram<u64>, LoadError> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000, 3)?)
}

/// One measurement of one server.
struct Sample {
    rate: f64,
    /// Microseconds, from the request's due time or its sending.
    latency: Histogram<u64>,
    cpu_per_million: Option<f64>,
    unsent: u64,
}

/// Measures all servers in turns.
pub(crate) fn run(options: &Options) -> Result<(), LoadError> {
    check(options)?;
    if options.fill {
        for server in options.targets() {
            worker::fill(options, server)?;
        }
    }
    // What workloads with inserts have made of the number of items, server by server.
    let items: Vec<_> = options
        .targets()
        .map(|_| Arc::new(AtomicU64::new(options.keys)))
        .collect();
    let mut progress = Progress::new(items.len() * options.repeats);
    let samples = in_turns(options, |index, server, seed| {
        progress.step(&server.to_string());
        measure(options, server, &items[index], seed)
    })?;
    progress.end();
    print!("{}", figures::side_by_side(options, &samples));
    Ok(())
}

/// Every server once in each repetition, all with the same seed: samples by server.
fn in_turns<T>(
    options: &Options,
    mut measure: impl FnMut(usize, SocketAddr, u64) -> Result<T, LoadError>,
) -> Result<Vec<Vec<T>>, LoadError> {
    let mut samples: Vec<Vec<T>> = options.targets().map(|_| Vec::new()).collect();
    for round in 0..options.repeats {
        let seed = options.seed + round as u64;
        for (index, server) in options.targets().enumerate() {
            samples[index].push(measure(index, server, seed)?);
        }
    }
    Ok(samples)
}

/// The options alone, for callers that are no command line.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Fills the server at this port of 127.0.0.1, if the options say so, and measures it once: figures
/// as names and values.
pub(crate) fn figures_of(port: u16, options: &[String]) -> Result<Figures, LoadError> {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let own = ["load".to_owned(), server.to_string()];
    let Line { options } = Line::parse_from(own.iter().chain(options));
    check(&options)?;
    if options.fill {
        worker::fill(&options, server)?;
    }
    let items = Arc::new(AtomicU64::new(options.keys));
    let sample = measure(&options, server, &items, options.seed)?;
    Ok(figures::of(&sample))
}

fn check(options: &Options) -> Result<(), LoadError> {
    if let Some(server) = options.targets().find(|server| !server.ip().is_loopback()) {
        return Err(LoadError::NotLoopback(server));
    }
    let counts = [
        ("--threads", options.threads),
        ("--connections", options.connections),
        ("--pipeline", options.pipeline),
        ("--keys", options.keys as usize),
        ("--repeats", options.repeats),
    ];
    if options
        .rate
        .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
    {
        return Err(LoadError::Rate);
    }
    for (option, seconds) in [
        ("--seconds", options.seconds),
        ("--warm-up", options.warm_up),
    ] {
        if !(0.0..=86_400.0).contains(&seconds) {
            return Err(LoadError::Seconds { option });
        }
    }
    if !(0.0..1.0).contains(&options.theta) {
        return Err(LoadError::Theta);
    }
    if options.udp && options.protocol != Dialect::Memcached {
        return Err(LoadError::Datagrams);
    }
    if let (Dialect::Memcached, Some(name)) = (options.protocol, options.workload)
        && options.workload().columns.is_some()
    {
        return Err(LoadError::NoRows(name.name()));
    }
    if let (2.., Some(name)) = (options.multi_get, options.workload)
        && options.workload().columns.is_some()
    {
        return Err(LoadError::RowsAtOnce(name.name()));
    }
    match counts.into_iter().find(|(_, count)| *count == 0) {
        Some((option, _)) => Err(LoadError::Zero { option }),
        None => Ok(()),
    }
}

fn measure(
    options: &Options,
    server: SocketAddr,
    items: &Arc<AtomicU64>,
    seed: u64,
) -> Result<Sample, LoadError> {
    let workers = (0..options.threads)
        .map(|thread| Worker::connect(options, server, items, thread, seed))
        .collect::<Result<Vec<_>, _>>()?;
    let process = listener::process_of(server.port());
    let cpu_seconds = |process| accounting::cpu_seconds(process).ok();
    let barrier = Barrier::new(options.threads + 1);
    let (results, cpu) = std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(thread, mut worker)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let warm = stay(&options.cores, thread)
                        .and_then(|()| worker.run(Duration::from_secs_f64(options.warm_up)));
                    // Whatever went wrong, the others wait here.
                    barrier.wait();
                    warm.and_then(|_| worker.run(Duration::from_secs_f64(options.seconds)))
                })
            })
            .collect();
        barrier.wait();
        let before = process.and_then(cpu_seconds);
        let results: Vec<_> = handles
            .into_iter()
            .map(|handle| handle.join().expect("a worker panicked"))
            .collect();
        let after = process.and_then(cpu_seconds);
        (
            results,
            before.zip(after).map(|(before, after)| after - before),
        )
    });
    let mut latency = latencies()?;
    let (mut unsent, mut rate) = (0, 0.0);
    for result in results {
        let part = result?;
        latency.add(&part.latency).expect("histograms of one shape");
        unsent += part.unsent;
        // A thread's last replies may come after the time that was asked for.
        let seconds = part.time.as_secs_f64().max(f64::MIN_POSITIVE);
        rate += (part.latency.len() - part.unsent) as f64 / seconds;
    }
    let operations = (latency.len() - unsent) as f64;
    Ok(Sample {
        rate,
        cpu_per_million: cpu.map(|seconds| seconds / (operations / 1e6)),
        latency,
        unsent,
    })
}

/// Keeps this thread on its core, if it has one.
fn stay(cores: &[usize], thread: usize) -> Result<(), LoadError> {
    let Some(core) = cores.get(thread % cores.len().max(1)).copied() else {
        return Ok(());
    };
    if core >= CpuSet::MAX_CPU {
        return Err(LoadError::Core(core));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|_| LoadError::Core(core))
}

#[cfg(test)]
mod tests;
