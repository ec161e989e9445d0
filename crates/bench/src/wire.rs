//! Servers in turns under redis-benchmark: CPU seconds per million operations, throughput, p99.

use std::io;
use std::path::PathBuf;
use std::process::Output;

use clap::Args;
use thiserror::Error;

use crate::arguments::count;
use crate::figures::Spread;
use crate::progress::Progress;
use crate::servers::{Server, ServerError, bound_to_this_process, if_installed};

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
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// Measurements of each cell.
    #[arg(long, default_value_t = 5, value_parser = count)]
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
    let redis = if_installed(Server::redis(&options.server_cpu))?;
    let servers: Vec<&Server> = [&pando].into_iter().chain(&redis).collect();
    println!(
        "server CPU seconds per million operations, median (least–most) of {} in turns",
        options.repeats
    );
    println!(
        "{} clients, {} random keys, servers on core {}, client on core {}",
        options.clients, options.keys, options.server_cpu, options.client_cpu
    );
    let cells = options.value_bytes.len() * options.pipelines.len() * options.tests.len();
    let mut progress = Progress::new(cells * servers.len() * (options.repeats + 1));
    for value_bytes in &options.value_bytes {
        for pipeline in &options.pipelines {
            for test in &options.tests {
                let cell = Cell {
                    test,
                    pipeline: *pipeline,
                    value_bytes: *value_bytes,
                };
                cell.compare(options, &servers, &mut progress)?;
            }
        }
    }
    progress.end();
    for server in servers {
        let megabytes = server.resident_bytes()? as f64 / 1e6;
        println!("{}: resident {megabytes:.1} MB at the end", server.name);
    }
    Ok(())
}

/// A command at a depth with values of a size.
struct Cell<'o> {
    test: &'o str,
    pipeline: u32,
    value_bytes: u32,
}

impl Cell<'_> {
    /// All servers in turns, after a run of each that does not count.
    fn compare(
        &self,
        options: &Options,
        servers: &[&Server],
        progress: &mut Progress,
    ) -> Result<(), WireError> {
        let Self {
            test,
            pipeline,
            value_bytes,
        } = self;
        let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
        for round in 0..=options.repeats {
            for (server, samples) in servers.iter().zip(&mut samples) {
                progress.step(&format!("{test} -P {pipeline}, {}", server.name));
                let sample = self.measure(options, server)?;
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        progress.clear();
        println!("\n{test} -P {pipeline}, {value_bytes}-byte values");
        for (server, samples) in servers.iter().zip(&samples) {
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
        if let [ours, theirs] = &samples[..] {
            let ratio = |figure: fn(&Sample) -> f64| {
                let pairs = ours.iter().zip(theirs);
                Spread::of(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)))
            };
            println!(
                "  ratio  user {}  total {}  rate   {}  p99    {}",
                ratio(|sample| sample.user),
                ratio(|sample| sample.total),
                ratio(|sample| sample.rate),
                ratio(|sample| sample.p99)
            );
        }
        Ok(())
    }

    fn measure(&self, options: &Options, server: &Server) -> Result<Sample, WireError> {
        let operations = options.operations * if self.pipeline > 1 { 5 } else { 1 };
        let before = server.cpu_time()?;
        let line = format!(
            "-c {} redis-benchmark -h 127.0.0.1 --csv -p {} -t {} -P {} -c {} -n {operations} \
             -r {} -d {}",
            options.client_cpu,
            server.port,
            self.test,
            self.pipeline,
            options.clients,
            options.keys,
            self.value_bytes
        );
        let output = bound_to_this_process("taskset")
            .args(line.split(' '))
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
