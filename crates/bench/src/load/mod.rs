//! The load generator: threads with pipelining connections against one or several RESP or memcached
//! servers.
//!
//! Closed loop by default: a connection sends its next pipeline when the last one is answered. With
//! `--rate` the loop is open: requests have due times, and a reply's latency counts from the due
//! time of its request, so that a server which stalls is charged for the requests that waited
//! (no coordinated omission).
//!
//! `--workload` runs a named workload (MYCSB, YCSB; see [`crate::workload`]), the default being GET
//! and SET. Every reply is checked for its shape. With `--verify` every reply of GET and SET is
//! checked against a model: each connection owns the keys of its residue class, so that it knows
//! what they hold.
//!
//! Deliberately absent: traffic to other hosts. An address that is not a loopback one is refused.

mod client;
mod memcached;
mod open;
mod requests;
mod worker;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use hdrhistogram::Histogram;
use thiserror::Error;

use crate::distribution::{Distribution, YCSB_THETA};
use crate::figures::Spread;
use crate::workload::{Workload, WorkloadName};
use worker::Worker;

/// The load and its targets.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Servers, `HOST:PORT` on the loopback interface; measured in turns, ratios to the first.
    #[arg(required = true)]
    servers: Vec<SocketAddr>,
    /// What the servers speak.
    #[arg(long, value_enum, default_value = "resp")]
    protocol: Dialect,
    /// Threads of the client.
    #[arg(long, default_value_t = 1)]
    threads: usize,
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
    #[arg(long, value_enum, conflicts_with = "verify")]
    workload: Option<WorkloadName>,
    /// Bytes of a value or of a column; of GET and SET at least 8.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    value_bytes: Option<u32>,
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
    /// Checks every reply.
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
    #[error("memcached has no rows: {0} needs a RESP server")]
    NoRows(String),
    #[error("--rate must be a number above 0")]
    Rate,
}

impl Options {
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
        for server in &options.servers {
            worker::fill(options, *server)?;
        }
    }
    let mut samples: Vec<Vec<Sample>> = options.servers.iter().map(|_| Vec::new()).collect();
    let items: Vec<_> = options
        .servers
        .iter()
        .map(|_| Arc::new(AtomicU64::new(options.keys)))
        .collect();
    for round in 0..options.repeats {
        for ((server, items), samples) in options.servers.iter().zip(&items).zip(&mut samples) {
            eprintln!("round {} of {}: {server}", round + 1, options.repeats);
            let seed = options.seed + round as u64;
            samples.push(measure(options, *server, items, seed)?);
        }
    }
    report(options, &samples);
    Ok(())
}

/// The options alone, for callers that are no command line.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Fills the server at this port of 127.0.0.1, if the options say so, and measures it once: figures
/// as names and values.
pub(crate) fn figures_of(port: u16, options: &[String]) -> Result<Vec<(String, f64)>, LoadError> {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let own = ["load".to_owned(), server.to_string()];
    let Line { options } = Line::parse_from(own.iter().chain(options));
    check(&options)?;
    if options.fill {
        worker::fill(&options, server)?;
    }
    let items = Arc::new(AtomicU64::new(options.keys));
    let sample = measure(&options, server, &items, options.seed)?;
    Ok(FIGURES
        .iter()
        .map(|(name, figure)| ((*name).to_owned(), figure(&sample)))
        .filter(|(_, value)| value.is_finite())
        .collect())
}

fn check(options: &Options) -> Result<(), LoadError> {
    if let Some(server) = options
        .servers
        .iter()
        .find(|server| !server.ip().is_loopback())
    {
        return Err(LoadError::NotLoopback(*server));
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
    if let (Dialect::Memcached, Some(name)) = (options.protocol, options.workload)
        && name.workload().columns.is_some()
    {
        return Err(LoadError::NoRows(name.name()));
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
    let process = listener_process(server);
    let barrier = Barrier::new(options.threads + 1);
    let (results, cpu) = std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let warm = worker.run(Duration::from_secs_f64(options.warm_up));
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
    let mut unsent = 0;
    for result in results {
        let part = result?;
        latency.add(&part.latency).expect("histograms of one shape");
        unsent += part.unsent;
    }
    let operations = (latency.len() - unsent) as f64;
    Ok(Sample {
        rate: operations / options.seconds,
        cpu_per_million: cpu.map(|seconds| seconds / (operations / 1e6)),
        latency,
        unsent,
    })
}

type Figure = (&'static str, fn(&Sample) -> f64);

const FIGURES: [Figure; 7] = [
    ("thousand requests/s", |sample| sample.rate / 1e3),
    ("latency p50, µs", |sample| {
        sample.latency.value_at_quantile(0.5) as f64
    }),
    ("latency p99, µs", |sample| {
        sample.latency.value_at_quantile(0.99) as f64
    }),
    ("latency p99.9, µs", |sample| {
        sample.latency.value_at_quantile(0.999) as f64
    }),
    ("latency max, µs", |sample| sample.latency.max() as f64),
    ("server CPU s per million", |sample| {
        sample.cpu_per_million.unwrap_or(f64::NAN)
    }),
    ("requests that could not be sent in time", |sample| {
        sample.unsent as f64
    }),
];

fn report(options: &Options, samples: &[Vec<Sample>]) {
    let workload = options.workload();
    println!(
        "{} threads × {} connections, pipeline {}, {} keys {:?}, {}, {}",
        options.threads,
        options.connections,
        options.pipeline,
        options.keys,
        workload.distribution,
        match options.workload {
            Some(name) => name.name(),
            None => format!(
                "{} % reads, {}-byte values",
                options.reads, workload.column_bytes
            ),
        },
        options
            .rate
            .map_or("closed loop".into(), |rate| format!("{rate} requests/s"))
    );
    for (name, figure) in FIGURES {
        let unsent = samples.iter().flatten().any(|sample| sample.unsent > 0);
        if name.starts_with("requests that") && !unsent {
            continue;
        }
        println!("\n{name}");
        for (server, rounds) in options.servers.iter().zip(samples) {
            let ratios = rounds.iter().zip(&samples[0]);
            println!(
                "  {server}  {}   ratio {}",
                Spread::of(rounds.iter().map(figure)),
                Spread::of(ratios.map(|(sample, first)| figure(sample) / figure(first)))
            );
        }
    }
}

/// The process that listens on the server's port, where `ss` tells.
fn listener_process(server: SocketAddr) -> Option<u32> {
    let filter = format!("sport = :{}", server.port());
    let output = Command::new("ss").args(["-Hltnp", &filter]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let digits = text.split("pid=").nth(1)?;
    digits
        .split(|byte: char| !byte.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

fn cpu_seconds(process: u32) -> Option<f64> {
    let time = crate::servers::cpu_time_of(process).ok()?;
    Some(time.user + time.system)
}
