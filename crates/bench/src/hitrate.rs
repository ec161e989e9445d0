//! `pando-bench hitrate`: the share of reads that a cache of bounded memory answers.
//!
//! Every server gets the same memory limit and the same requests: 32 GETs at a time, then a SET for
//! each miss, like an application in front of a database. Two traces: `zipf` draws keys from a
//! Zipfian distribution; `scan` mixes in as many reads of keys used only once. Values of a key
//! always have the same length. The first half of a trace fills the cache and is not counted; reads
//! of the scan are never counted.
//!
//! With `--expiring` the servers run under the `volatile` policies instead, and so many in a
//! hundred of the keys, those that come once included, have a deadline: 1,000 to 9,999 seconds from
//! the write on, so that none passes. What never goes must leave room in the limit.
//!
//! With `--table` all of this is measured for short, mixed and long values, both engines beside
//! Redis (`table`), and a trace more: 500 keys that are read now and then while keys that come once
//! turn the memory over.
//!
//! Beside the servers stands `ideal`: the share of reads that go to the most popular keys, as many
//! as the best of the servers holds. No policy can be better for a trace without memory.

mod table;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fastrand::Rng;
use thiserror::Error;

use crate::arguments::count;
use crate::distribution::{Chooser, Distribution};
use crate::figures::Spread;
use crate::progress::Progress;
use crate::servers::{Server, ServerError, if_installed};

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// This project's server.
    #[arg(long, default_value = "target/release/pando")]
    binary: PathBuf,
    /// The limit of memory of each server, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    memory_mib: u64,
    /// Keys that exist.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Reads of a trace.
    #[arg(long, default_value_t = 2_000_000)]
    reads: u64,
    /// Runs of each cell, each with its own seed.
    #[arg(long, default_value_t = 3, value_parser = count)]
    repeats: usize,
    /// The skew of the distribution.
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// CPUs of the servers.
    #[arg(long, default_value = "0")]
    cpu: String,
    /// Percent of the keys that have a deadline, under the policies that evict only those.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    expiring: Option<u64>,
    /// Lengths of values.
    #[arg(long, value_enum, default_value = "short")]
    values: Sizes,
    /// All lengths of values, policies and engines beside Redis.
    #[arg(long, conflicts_with_all = ["expiring", "values"])]
    table: bool,
    /// Only servers whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// Why nothing is measured.
#[derive(Debug, Error)]
pub(crate) enum HitRateError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("the connection to {name}: {source}")]
    Connection { name: String, source: io::Error },
    #[error("{name} answers {reply:?}")]
    Reply { name: String, reply: String },
}

/// Reads in a row before the misses are written.
const BATCH: usize = 32;

/// How long a server may take to answer a batch.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Bytes of the longest value.
const VALUE_BYTES_MAX: usize = 20_000;

/// Lengths of values, evenly spread between two bounds. Those of a key never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sizes {
    /// 50 to 500 bytes.
    Short,
    /// 100 to 1,000 bytes, one in ten 5,000 to 20,000.
    Mixed,
    /// 2,000 to 8,000 bytes.
    Long,
}

impl Sizes {
    /// The length of a key's value, by a hash of the key.
    fn bytes(self, key: u64) -> usize {
        let hash = hash(key);
        let bytes = match self {
            Self::Short => 50 + hash % 450,
            Self::Mixed if hash.is_multiple_of(10) => 5_000 + hash / 10 % 15_000,
            Self::Mixed => 100 + hash / 10 % 900,
            Self::Long => 2_000 + hash % 6_000,
        };
        bytes as usize
    }

    /// About the length of a value and its key.
    fn mean_bytes(self) -> u64 {
        match self {
            Self::Short => 300,
            Self::Mixed => 1_800,
            Self::Long => 5_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    Zipf,
    Scan,
    Churn,
}

/// One candidate: a server with a policy.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    name: &'static str,
    kind: Kind,
    policy: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pando(&'static str),
    Redis,
    Memcached,
}

const CANDIDATES: &[Candidate] = &[
    candidate("pando masstree LRU", Kind::Pando("masstree"), "allkeys-lru"),
    candidate("pando masstree LFU", Kind::Pando("masstree"), "allkeys-lfu"),
    candidate(
        "pando masstree random",
        Kind::Pando("masstree"),
        "allkeys-random",
    ),
    candidate("pando mercury LRU", Kind::Pando("mercury"), "allkeys-lru"),
    candidate("pando mercury LFU", Kind::Pando("mercury"), "allkeys-lfu"),
    candidate("redis LRU", Kind::Redis, "allkeys-lru"),
    candidate("redis LFU", Kind::Redis, "allkeys-lfu"),
    candidate("redis random", Kind::Redis, "allkeys-random"),
    candidate("memcached", Kind::Memcached, "segmented LRU"),
];

/// The same where only keys with a deadline go.
const VOLATILE: &[Candidate] = &[
    candidate(
        "pando masstree LRU",
        Kind::Pando("masstree"),
        "volatile-lru",
    ),
    candidate(
        "pando masstree LFU",
        Kind::Pando("masstree"),
        "volatile-lfu",
    ),
    candidate(
        "pando masstree random",
        Kind::Pando("masstree"),
        "volatile-random",
    ),
    candidate(
        "pando masstree TTL",
        Kind::Pando("masstree"),
        "volatile-ttl",
    ),
    candidate("pando mercury LRU", Kind::Pando("mercury"), "volatile-lru"),
    candidate("pando mercury LFU", Kind::Pando("mercury"), "volatile-lfu"),
    candidate(
        "pando mercury random",
        Kind::Pando("mercury"),
        "volatile-random",
    ),
    candidate("pando mercury TTL", Kind::Pando("mercury"), "volatile-ttl"),
    candidate("redis LRU", Kind::Redis, "volatile-lru"),
    candidate("redis LFU", Kind::Redis, "volatile-lfu"),
    candidate("redis random", Kind::Redis, "volatile-random"),
    candidate("redis TTL", Kind::Redis, "volatile-ttl"),
];

const fn candidate(name: &'static str, kind: Kind, policy: &'static str) -> Candidate {
    Candidate { name, kind, policy }
}

impl Candidate {
    fn start(self, options: &Options) -> Result<Server, ServerError> {
        let bytes = (options.memory_mib << 20).to_string();
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let limit = ["--maxmemory", &bytes, "--maxmemory-policy", self.policy];
        match self.kind {
            Kind::Pando(engine) => {
                let extra = words(&[&["--engine", engine][..], &limit].concat());
                Server::pando(&options.binary, &options.cpu, &extra)
            }
            Kind::Redis => Server::redis_with(&options.cpu, &limit),
            Kind::Memcached => Server::memcached_with(&options.cpu, options.memory_mib),
        }
    }
}

/// What one run found.
#[derive(Clone, Copy, Debug)]
struct Measured {
    hit_rate: f64,
    resident_share: f64,
    keys: u64,
    seconds: f64,
}

/// A client that reads and writes batches.
struct Client {
    name: &'static str,
    memcached: bool,
    sizes: Sizes,
    stream: BufReader<TcpStream>,
    output: Vec<u8>,
    line: String,
}

impl Client {
    fn connect(candidate: Candidate, port: u16, sizes: Sizes) -> Result<Self, HitRateError> {
        let name = candidate.name;
        let failed = |source| HitRateError::Connection {
            name: name.into(),
            source,
        };
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream
            .set_read_timeout(Some(ANSWER_LIMIT))
            .map_err(failed)?;
        Ok(Self {
            name,
            memcached: candidate.kind == Kind::Memcached,
            sizes,
            stream: BufReader::with_capacity(1 << 16, stream),
            output: Vec::new(),
            line: String::new(),
        })
    }

    fn failed(&self, source: io::Error) -> HitRateError {
        HitRateError::Connection {
            name: self.name.into(),
            source,
        }
    }

    fn flush(&mut self) -> Result<(), HitRateError> {
        let sent = self.stream.get_mut().write_all(&self.output);
        self.output.clear();
        sent.map_err(|source| self.failed(source))
    }

    fn read_line(&mut self) -> Result<&str, HitRateError> {
        self.line.clear();
        let read = self.stream.read_line(&mut self.line);
        match read {
            Ok(0) => Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(self.line.trim_end()),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn unexpected<T>(&self) -> Result<T, HitRateError> {
        Err(HitRateError::Reply {
            name: self.name.into(),
            reply: self.line.clone(),
        })
    }

    /// Skips a value of this length, and the end of its line.
    fn skip(&mut self, bytes: usize) -> Result<(), HitRateError> {
        let mut value = vec![0; bytes + 2];
        let read = self.stream.read_exact(&mut value);
        read.map_err(|source| self.failed(source))
    }

    /// Whether each of the keys is there; checks the values' lengths.
    fn get(&mut self, keys: &[u64], hits: &mut Vec<bool>) -> Result<(), HitRateError> {
        hits.clear();
        for key in keys {
            let _ = if self.memcached {
                write!(self.output, "get key:{key:012}\r\n")
            } else {
                write!(self.output, "*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n")
            };
        }
        self.flush()?;
        for key in keys {
            let length = self.sizes.bytes(*key);
            let value = format!("VALUE key:{key:012} 0 {length}");
            let bulk = format!("${length}");
            let line = self.read_line()?;
            let hit = line == value || line == bulk;
            if !hit && line != "END" && line != "$-1" {
                return self.unexpected();
            }
            if hit {
                self.skip(length)?;
                if self.memcached && self.read_line()? != "END" {
                    return self.unexpected();
                }
            }
            hits.push(hit);
        }
        Ok(())
    }

    /// Writes the keys, to expire after so many seconds if any are given.
    fn set(
        &mut self,
        keys: &[u64],
        mut expiry_s: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), HitRateError> {
        let value = vec![b'v'; VALUE_BYTES_MAX];
        for key in keys {
            let bytes = self.sizes.bytes(*key);
            let expiry_s = expiry_s(*key);
            let words = if expiry_s.is_some() { 5 } else { 3 };
            let _ = if self.memcached {
                write!(self.output, "set key:{key:012} 0 0 {bytes}\r\n")
            } else {
                write!(
                    self.output,
                    "*{words}\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${bytes}\r\n"
                )
            };
            self.output.extend_from_slice(&value[..bytes]);
            self.output.extend_from_slice(b"\r\n");
            if let Some(seconds) = expiry_s {
                let _ = write!(self.output, "$2\r\nEX\r\n$4\r\n{seconds:04}\r\n");
            }
        }
        self.flush()?;
        for _ in keys {
            let line = self.read_line()?;
            if line != "+OK" && line != "STORED" {
                return self.unexpected();
            }
        }
        Ok(())
    }

    fn count_keys(&mut self) -> Result<u64, HitRateError> {
        let request: &[u8] = if self.memcached {
            b"stats\r\n"
        } else {
            b"DBSIZE\r\n"
        };
        self.output.extend_from_slice(request);
        self.flush()?;
        let mut count = None;
        loop {
            let memcached = self.memcached;
            let line = self.read_line()?;
            let prefix = if memcached { "STAT curr_items " } else { ":" };
            if let Some(found) = line.strip_prefix(prefix) {
                count = found.parse().ok();
            }
            if !memcached || line == "END" {
                break;
            }
        }
        match count {
            Some(count) => Ok(count),
            None => self.unexpected(),
        }
    }
}

/// The key of this rank: popular keys are spread over all numbers, each has one.
fn spread(rank: u64, keys: u64) -> u64 {
    // A prime, so that no two ranks have one key unless it divides their number.
    const STEP: u64 = 2_654_435_761;
    (rank * STEP) % keys
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

fn measure(
    candidate: Candidate,
    trace: Trace,
    seed: u64,
    options: &Options,
) -> Result<Measured, HitRateError> {
    let server = candidate.start(options)?;
    let mut client = Client::connect(candidate, server.port, options.values)?;
    let begun = std::time::Instant::now();
    let (counted, hit) = match trace {
        Trace::Churn => churn(&mut client, seed, options)?,
        _ => draw(&mut client, trace, seed, options)?,
    };
    Ok(Measured {
        hit_rate: hit as f64 / counted.max(1) as f64,
        resident_share: server.resident_bytes()? as f64 / (options.memory_mib << 20) as f64,
        keys: client.count_keys()?,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Seconds after which a key expires that is written now, if it ever does.
fn expiry_s(key: u64, options: &Options, random: &mut Rng) -> Option<u64> {
    let percent = options.expiring?;
    let expires = key >= options.keys || hash(key) / 500 % 100 < percent;
    expires.then(|| random.u64(1_000..10_000))
}

/// [`Trace::Zipf`] and [`Trace::Scan`]: reads that count, and hits among them.
fn draw(
    client: &mut Client,
    trace: Trace,
    seed: u64,
    options: &Options,
) -> Result<(u64, u64), HitRateError> {
    let mut random = Rng::with_seed(seed);
    let chooser = Chooser::new(Distribution::Zipfian, options.keys, options.theta);
    let (mut counted, mut hit, mut scanned) = (0_u64, 0_u64, options.keys);
    let (mut keys, mut hits, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    let batches = options.reads / BATCH as u64;
    for batch in 0..batches {
        keys.clear();
        for place in 0..BATCH {
            if trace == Trace::Scan && place % 2 == 1 {
                scanned += 1;
                keys.push(scanned);
            } else {
                keys.push(spread(chooser.draw(&mut random), options.keys));
            }
        }
        client.get(&keys, &mut hits)?;
        missed.clear();
        for (key, was_there) in keys.iter().zip(&hits) {
            if *key < options.keys && batch >= batches / 2 {
                counted += 1;
                hit += u64::from(*was_there);
            }
            if !was_there && !missed.contains(key) {
                missed.push(*key);
            }
        }
        client.set(&missed, |key| expiry_s(key, options, &mut random))?;
    }
    Ok((counted, hit))
}

/// [`Trace::Churn`]: 500 keys are read in rounds; between two rounds new keys of half the memory
/// come. The first rounds do not count.
fn churn(client: &mut Client, seed: u64, options: &Options) -> Result<(u64, u64), HitRateError> {
    const HOT: u64 = 500;
    const HOT_BATCH: u64 = 50;
    const ROUNDS: u64 = 24;
    const ROUNDS_FIRST: u64 = 4;
    /// Far from all others.
    const HOT_FROM: u64 = 10_000_000_000;
    let mut random = Rng::with_seed(seed);
    let flood = (options.memory_mib << 20) / 2 / options.values.mean_bytes();
    let (mut counted, mut hit) = (0, 0);
    // So that each seed has lengths of its own.
    let mut next = options.keys + (seed << 30);
    let hot_from = HOT_FROM + seed * HOT;
    let mut hits = Vec::new();
    for round in 0..ROUNDS {
        for first in (0..HOT).step_by(HOT_BATCH as usize) {
            let keys: Vec<_> = (first..first + HOT_BATCH)
                .map(|key| hot_from + key)
                .collect();
            client.get(&keys, &mut hits)?;
            let missed = keys.iter().zip(&hits).filter(|(_, hit)| !**hit);
            let missed: Vec<_> = missed.map(|(key, _)| *key).collect();
            if round >= ROUNDS_FIRST {
                counted += HOT_BATCH;
                hit += HOT_BATCH - missed.len() as u64;
            }
            client.set(&missed, |key| expiry_s(key, options, &mut random))?;
            let end = next + flood * HOT_BATCH / HOT;
            let new: Vec<_> = (next..end).collect();
            next = end;
            for keys in new.chunks(BATCH) {
                client.set(keys, |key| expiry_s(key, options, &mut random))?;
            }
        }
    }
    Ok((counted, hit))
}

/// The share of reads that go to the `held` most popular keys.
fn ideal(options: &Options, held: u64) -> f64 {
    let sum = |keys: u64| -> f64 {
        (1..=keys)
            .map(|rank| (rank as f64).powf(-options.theta))
            .sum()
    };
    sum(held.min(options.keys)) / sum(options.keys)
}

/// Measures and prints a table for each trace.
pub(crate) fn run(options: &Options) -> Result<(), HitRateError> {
    if options.table {
        return table::run(options);
    }
    let mut chosen = Vec::new();
    let named = |candidate: &&Candidate| candidate.name.contains(&options.only);
    let candidates = match options.expiring {
        None => CANDIDATES,
        Some(_) => VOLATILE,
    };
    for candidate in candidates.iter().filter(named) {
        if if_installed(candidate.start(options))?.is_some() {
            chosen.push(candidate);
        }
    }
    let mut progress = Progress::new(2 * chosen.len() * options.repeats);
    for trace in [Trace::Zipf, Trace::Scan] {
        println!(
            "\n{trace:?}: {} MiB, {} keys, {} reads, theta {}, medians of {}\n",
            options.memory_mib, options.keys, options.reads, options.theta, options.repeats
        );
        println!("| server | hits | least–most | keys held | resident / limit | seconds |");
        println!("|---|---|---|---|---|---|");
        let mut runs = vec![Vec::new(); chosen.len()];
        for repeat in 0..options.repeats {
            for (candidate, runs) in chosen.iter().zip(&mut runs) {
                progress.step(&format!("{trace:?}, {}", candidate.name));
                runs.push(measure(**candidate, trace, repeat as u64, options)?);
            }
        }
        progress.clear();
        let mut held = 0;
        for (candidate, runs) in chosen.iter().zip(&runs) {
            let of = |figure: fn(&Measured) -> f64| Spread::of(runs.iter().map(figure));
            let rates = of(|run| run.hit_rate * 100.0);
            let keys = of(|run| run.keys as f64).median;
            held = held.max(keys as u64);
            println!(
                "| {} | {:.2} % | {:.2}–{:.2} | {keys:.0} | {:.2} | {:.1} |",
                candidate.name,
                rates.median,
                rates.least,
                rates.most,
                of(|run| run.resident_share).median,
                of(|run| run.seconds).median,
            );
        }
        println!(
            "| ideal for {held} keys | {:.2} % | | | | |",
            100.0 * ideal(options, held)
        );
    }
    progress.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_same_length_every_time_and_the_ideal_is_a_share() {
        for (sizes, bounds) in [
            (Sizes::Short, 50..500),
            (Sizes::Mixed, 100..20_000),
            (Sizes::Long, 2_000..8_000),
        ] {
            let lengths: Vec<_> = (0..10_000).map(|key| sizes.bytes(key)).collect();
            assert!(lengths.iter().all(|bytes| bounds.contains(bytes)));
            let mean = lengths.iter().sum::<usize>() as u64 / 10_000;
            let about = sizes.mean_bytes();
            assert!((about * 8 / 10..about * 11 / 10).contains(&mean), "{mean}");
        }
        let arguments = ["hitrate"];
        let command = <Options as Args>::augment_args(clap::Command::new("hitrate"));
        let matches = command.get_matches_from(arguments);
        let options = <Options as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        let shares: Vec<_> = [1, 10_000, 1_000_000]
            .map(|held| ideal(&options, held))
            .into();
        assert!(
            shares.is_sorted() && (shares[2] - 1.0).abs() < 1e-9,
            "{shares:?}"
        );
    }
}
