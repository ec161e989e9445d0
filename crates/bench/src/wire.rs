//! Servers in turns under redis-benchmark: CPU seconds per million operations, throughput, p99.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};

use clap::Args;
use thiserror::Error;

use crate::figures::Spread;
use crate::servers::{Server, ServerError};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The server binary of this project.
    #[arg(long, default_value = "target/release/pando")]
    pando: PathBuf,
    /// Further arguments of that server, such as `--pando-arg=--engine=masstree`.
    #[arg(long)]
    pando_arg: Vec<String>,
    /// Commands, as redis-benchmark's `-t` names them.
    #[arg(long, value_delimiter = ',', default_value = "set,get")]
    tests: Vec<String>,
    /// Pipeline depths.
    #[arg(long, value_delimiter = ',', default_value = "1,32")]
    pipelines: Vec<u32>,
    /// Value sizes in bytes.
    #[arg(long, value_delimiter = ',', default_value = "8")]
    value_bytes: Vec<u32>,
    /// Random keys.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Operations per measurement at pipeline depth 1; deeper ones do five times as many.
    #[arg(long, default_value_t = 300_000)]
    operations: u64,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// Measurements of each cell.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Core of the servers.
    #[arg(long, default_value = "0")]
    server_cpu: String,
    /// Core of the client.
    #[arg(long, default_value = "1")]
    client_cpu: String,
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot run redis-benchmark: {0}")]
    Client(#[from] io::Error),
    #[error("redis-benchmark failed: {0}")]
    ClientFailed(String),
    #[error("redis-benchmark printed no figures: {0}")]
    NoFigures(String),
}

struct Sample {
    user: f64,
    total: f64,
    rate: f64,
    p99: f64,
}

/// Measures every cell for both servers in turns and prints ratios pair by pair.
pub(crate) fn run(options: &Options) -> Result<(), WireError> {
    let pando = Server::pando(&options.pando, &options.server_cpu, &options.pando_arg)?;
    let redis = Server::redis(&options.server_cpu)?;
    println!(
        "server CPU seconds per million operations, median (least–most) of {} in turns",
        options.repeats
    );
    println!(
        "{} clients, {} random keys, servers on core {}, client on core {}",
        options.clients, options.keys, options.server_cpu, options.client_cpu
    );
    for value_bytes in &options.value_bytes {
        for pipeline in &options.pipelines {
            for test in &options.tests {
                cell(options, [&pando, &redis], test, *pipeline, *value_bytes)?;
            }
        }
    }
    for server in [&pando, &redis] {
        let megabytes = server.resident_bytes()? as f64 / 1e6;
        println!("{}: resident {megabytes:.1} MB at the end", server.name);
    }
    Ok(())
}

fn cell(
    options: &Options,
    servers: [&Server; 2],
    test: &str,
    pipeline: u32,
    value_bytes: u32,
) -> Result<(), WireError> {
    let mut samples = [Vec::new(), Vec::new()];
    for server in servers {
        measure(options, server, test, pipeline, value_bytes)?;
    }
    for _ in 0..options.repeats {
        for (server, samples) in servers.into_iter().zip(&mut samples) {
            samples.push(measure(options, server, test, pipeline, value_bytes)?);
        }
    }
    println!("\n{test} -P {pipeline}, {value_bytes}-byte values");
    for (server, samples) in servers.into_iter().zip(&samples) {
        let of = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().map(figure));
        println!(
            "  {:6} user {}  total {}  kops/s {}  p99 ms {}",
            server.name,
            of(|sample| sample.user),
            of(|sample| sample.total),
            of(|sample| sample.rate / 1000.0),
            of(|sample| sample.p99)
        );
    }
    let ratio = |figure: fn(&Sample) -> f64| {
        let [ours, theirs] = &samples;
        Spread::of(
            ours.iter()
                .zip(theirs)
                .map(|(ours, theirs)| figure(ours) / figure(theirs)),
        )
    };
    println!(
        "  ratio  user {}  total {}  rate   {}  p99    {}",
        ratio(|sample| sample.user),
        ratio(|sample| sample.total),
        ratio(|sample| sample.rate),
        ratio(|sample| sample.p99)
    );
    Ok(())
}

fn measure(
    options: &Options,
    server: &Server,
    test: &str,
    pipeline: u32,
    value_bytes: u32,
) -> Result<Sample, WireError> {
    let operations = options.operations * if pipeline > 1 { 5 } else { 1 };
    let before = server.cpu_time()?;
    let output = Command::new("taskset")
        .args([
            "-c",
            &options.client_cpu,
            "redis-benchmark",
            "-h",
            "127.0.0.1",
            "--csv",
        ])
        .args([
            "-p",
            &server.port.to_string(),
            "-t",
            test,
            "-P",
            &pipeline.to_string(),
        ])
        .args([
            "-c",
            &options.clients.to_string(),
            "-n",
            &operations.to_string(),
        ])
        .args([
            "-r",
            &options.keys.to_string(),
            "-d",
            &value_bytes.to_string(),
        ])
        .output()?;
    let after = server.cpu_time()?;
    let (rate, p99) = parse(&output)?;
    let millions = operations as f64 / 1e6;
    let user = (after.user - before.user) / millions;
    let total = user + (after.system - before.system) / millions;
    Ok(Sample {
        user,
        total,
        rate,
        p99,
    })
}

/// Rate and p99 from `"test","rps","avg","min","p50","p95","p99","max"`.
fn parse(output: &Output) -> Result<(f64, f64), WireError> {
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(WireError::ClientFailed(
            String::from_utf8_lossy(&output.stderr).into(),
        ));
    }
    let line = text.lines().last().unwrap_or_default();
    let fields: Vec<_> = line
        .split(',')
        .map(|field| field.trim_matches('"'))
        .collect();
    let number = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<f64>().ok())
    };
    match (number(1), number(6)) {
        (Some(rate), Some(p99)) => Ok((rate, p99)),
        _ => Err(WireError::NoFigures(text.into())),
    }
}
