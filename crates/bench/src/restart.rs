//! `pando-bench restart`: how long a server takes to restart with its data.
//!
//! Every candidate is filled with the same pairs by pipelined SETs, told to keep them (`SAVE` where
//! a snapshot is loaded, nothing where a log is replayed), stopped, and then started and stopped
//! alternating with the others. The result is the time from the start of the process until it
//! answers `PONG` and has all keys, and the CPU seconds used by then: the former shows the gain
//! from several cores, the latter is robust on a busy machine. Files are in the page cache for all.
//!
//! Keys are decimal numbers in no order, as in §6 of the Masstree paper, values 8 bytes.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use thiserror::Error;

use crate::arguments::count;
use crate::figures::Spread;
use crate::progress::Progress;
use crate::servers::{Server, ServerError, if_installed};

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// An empty or missing directory on the disk to use; removed in the end.
    directory: PathBuf,
    /// This project's server.
    #[arg(long, default_value = "target/release/pando")]
    binary: PathBuf,
    /// Pairs.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Starts of each candidate.
    #[arg(long, default_value_t = 5, value_parser = count)]
    repeats: usize,
    /// CPUs of the servers.
    #[arg(long, default_value = "0,1")]
    cpu: String,
    /// Only candidates whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// Why nothing is measured.
#[derive(Debug, Error)]
pub(crate) enum RestartError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("the connection to {name}: {source}")]
    Connection { name: String, source: io::Error },
    #[error("{name} answers {reply:?} to {request}")]
    Reply {
        name: String,
        request: String,
        reply: String,
    },
    #[error("{}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{name} has {got} of {expected} keys after its start")]
    Lost {
        name: String,
        got: String,
        expected: u64,
    },
    #[error("{name} is not ready after {limit:?}")]
    Slow { name: String, limit: Duration },
}

/// How long a server may take to load.
const READY_LIMIT: Duration = Duration::from_mins(5);

/// How long it may take to answer: a SAVE of all pairs is the slowest request.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);

/// SETs in a row before their replies are read.
const BATCH: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    name: &'static str,
    folder: &'static str,
    redis: bool,
    /// What is asked for before the stop; twice here, since the log before the older of two
    /// checkpoints goes.
    before_stop: &'static [&'static str],
    flags: &'static [&'static str],
}

const CANDIDATES: &[Candidate] = &[
    Candidate {
        name: "pando, checkpoint",
        folder: "checkpoint",
        redis: false,
        before_stop: &["SAVE", "SAVE"],
        flags: &[],
    },
    Candidate {
        name: "redis, RDB",
        folder: "rdb",
        redis: true,
        before_stop: &["SAVE"],
        flags: &["--appendonly", "no"],
    },
    Candidate {
        name: "pando, log",
        folder: "log",
        redis: false,
        before_stop: &[],
        flags: &["--checkpoint-log-size", "0", "--checkpoint-interval", "0"],
    },
    Candidate {
        name: "redis, AOF",
        folder: "aof",
        redis: true,
        before_stop: &[],
        flags: &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--auto-aof-rewrite-percentage",
            "0",
        ],
    },
];

/// A connection that sends lines.
struct Wire {
    name: &'static str,
    stream: TcpStream,
    input: BufReader<TcpStream>,
}

impl Wire {
    fn connect(name: &'static str, port: u16) -> Result<Self, RestartError> {
        let failed = |source| RestartError::Connection {
            name: name.into(),
            source,
        };
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        stream
            .set_read_timeout(Some(ANSWER_LIMIT))
            .map_err(failed)?;
        let input = BufReader::new(stream.try_clone().map_err(failed)?);
        Ok(Self {
            name,
            stream,
            input,
        })
    }

    fn failed(&self, source: io::Error) -> RestartError {
        RestartError::Connection {
            name: self.name.into(),
            source,
        }
    }

    fn line(&mut self) -> Result<String, RestartError> {
        let mut line = String::new();
        let read = self.input.read_line(&mut line);
        read.map_err(|source| self.failed(source))?;
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, request: &str) -> Result<String, RestartError> {
        let sent = self.stream.write_all(format!("{request}\r\n").as_bytes());
        sent.map_err(|source| self.failed(source))?;
        self.line()
    }

    fn expect(&mut self, request: &str, expected: &str) -> Result<(), RestartError> {
        let reply = self.ask(request)?;
        if reply == expected {
            return Ok(());
        }
        Err(RestartError::Reply {
            name: self.name.into(),
            request: request.into(),
            reply,
        })
    }

    /// Writes all pairs.
    fn fill(&mut self, keys: u64) -> Result<(), RestartError> {
        let mut requests = String::new();
        for first in (0..keys).step_by(BATCH as usize) {
            let last = (first + BATCH).min(keys);
            requests.clear();
            for number in first..last {
                // A product with an odd number: no two are the same.
                let key = (number.wrapping_mul(0x9e37_79b1) & 0xffff_ffff).to_string();
                write!(
                    requests,
                    "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$8\r\n{number:08}\r\n",
                    key.len()
                )
                .expect("a string takes all");
            }
            let sent = self.stream.write_all(requests.as_bytes());
            sent.map_err(|source| self.failed(source))?;
            for _ in first..last {
                let reply = self.line()?;
                if reply != "+OK" {
                    return Err(RestartError::Reply {
                        name: self.name.into(),
                        request: "SET".into(),
                        reply,
                    });
                }
            }
        }
        Ok(())
    }
}

/// What one start has taken.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seconds: f64,
    cpu_seconds: f64,
}

impl Candidate {
    fn start(&self, options: &Options) -> Result<Server, RestartError> {
        let folder = options.directory.join(self.folder);
        std::fs::create_dir_all(&folder).map_err(|source| RestartError::Directory {
            path: folder.clone(),
            source,
        })?;
        let folder = folder.display().to_string();
        let program = if self.redis {
            "redis-server".to_owned()
        } else {
            options.binary.display().to_string()
        };
        let server = Server::start(self.name, &program, &options.cpu, |port| {
            let port = port.to_string();
            let own: &[&str] = if self.redis {
                &["--bind", "127.0.0.1", "--save", "", "--dir", &folder]
            } else {
                &["--durability", "interval", "--data-dir", &folder]
            };
            let words = ["--port", &port].into_iter();
            let words = words.chain(own.iter().copied());
            let words = words.chain(self.flags.iter().copied());
            words.map(String::from).collect()
        });
        Ok(server?)
    }

    /// Starts the server and waits until it has its data.
    fn restart(&self, options: &Options) -> Result<Sample, RestartError> {
        let began = Instant::now();
        let server = self.start(options)?;
        let mut wire = Wire::connect(self.name, server.port)?;
        // Redis takes connections while it loads, and says so.
        while wire.ask("PING")? != "+PONG" {
            if began.elapsed() > READY_LIMIT {
                return Err(RestartError::Slow {
                    name: self.name.into(),
                    limit: READY_LIMIT,
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu = server.cpu_time()?;
        let got = wire.ask("DBSIZE")?;
        if got != format!(":{}", options.keys) {
            return Err(RestartError::Lost {
                name: self.name.into(),
                got,
                expected: options.keys,
            });
        }
        self.stop(server, wire)?;
        Ok(Sample {
            seconds,
            cpu_seconds: cpu.user + cpu.system,
        })
    }

    fn prepare(&self, options: &Options) -> Result<(), RestartError> {
        let server = self.start(options)?;
        let mut wire = Wire::connect(self.name, server.port)?;
        wire.fill(options.keys)?;
        for request in self.before_stop {
            wire.expect(request, "+OK")?;
        }
        self.stop(server, wire)
    }

    /// Stops the server; it closes the connection without a word.
    fn stop(&self, server: Server, mut wire: Wire) -> Result<(), RestartError> {
        let reply = wire.ask("SHUTDOWN NOSAVE")?;
        if !reply.is_empty() {
            return Err(RestartError::Reply {
                name: self.name.into(),
                request: "SHUTDOWN".into(),
                reply,
            });
        }
        Ok(server.wait()?)
    }
}

fn bytes_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), RestartError> {
    let result = measure(options);
    // What cannot be removed stays; the result counts.
    let _ = std::fs::remove_dir_all(&options.directory);
    result
}

fn measure(options: &Options) -> Result<(), RestartError> {
    let candidates = CANDIDATES
        .iter()
        .filter(|candidate| candidate.name.contains(&options.only));
    let mut candidates: Vec<&Candidate> = candidates.collect();
    if candidates.iter().any(|candidate| candidate.redis)
        && if_installed(Server::redis(&options.cpu))?.is_none()
    {
        candidates.retain(|candidate| !candidate.redis);
    }
    let mut progress = Progress::new(candidates.len() * (1 + options.repeats));
    for candidate in &candidates {
        progress.step(&format!("{}: filling", candidate.name));
        candidate.prepare(options)?;
    }
    let mut samples = vec![Vec::new(); candidates.len()];
    for _ in 0..options.repeats {
        for (candidate, samples) in candidates.iter().zip(&mut samples) {
            progress.step(candidate.name);
            samples.push(candidate.restart(options)?);
        }
    }
    progress.end();
    println!(
        "{} keys, servers on CPUs {}, medians of {} starts",
        options.keys, options.cpu, options.repeats
    );
    println!("| candidate | s until ready | CPU s | million keys/s | MB on disk |");
    println!("|---|---|---|---|---|");
    let mut medians = Vec::new();
    for (candidate, samples) in candidates.iter().zip(&samples) {
        let of = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().map(figure)).median;
        let (seconds, cpu) = (of(|sample| sample.seconds), of(|sample| sample.cpu_seconds));
        println!(
            "| {} | {seconds:.2} | {cpu:.2} | {:.2} | {:.0} |",
            candidate.name,
            options.keys as f64 / seconds / 1e6,
            bytes_of(&options.directory.join(candidate.folder)) as f64 / 1e6
        );
        medians.push((seconds, cpu));
    }
    if let [checkpoint, rdb, log, aof] = medians[..] {
        println!(
            "checkpoint to RDB: {:.2} of the time, {:.2} of the CPU; log to AOF: {:.2} and {:.2}",
            checkpoint.0 / rdb.0,
            checkpoint.1 / rdb.1,
            log.0 / aof.0,
            log.1 / aof.1
        );
    }
    Ok(())
}
