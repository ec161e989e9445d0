//! This server's memcached port compared with memcached, and its two engines compared over RESP:
//! rate and server CPU per operation, alternating.
//!
//! The client is as cheap as possible, so that the server is measured. Requests and their expected
//! replies are made beforehand, a connection sends its next block when the last one is answered,
//! and a reply is compared, not parsed. With several connections the server has work while the
//! client looks at another.
//!
//! Servers with one thread have a core of their own, the client the other one. With more threads,
//! server and client share the cores, and CPU per operation is the figure that counts.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use fastrand::Rng;
use thiserror::Error;

use crate::arguments::{count, seconds};
use crate::figures::Spread;
use crate::progress::Progress;
use crate::servers::{Server, ServerError, if_installed};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The server binary of this project.
    #[arg(long, default_value = "target/release/pando")]
    pando: PathBuf,
    /// Engines of that server.
    #[arg(long, value_delimiter = ',', default_value = "masstree,mercury")]
    engines: Vec<String>,
    /// Threads of the servers; each count is a comparison of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = count)]
    threads: Vec<usize>,
    /// Measures only cells whose names hold this.
    #[arg(long, default_value = "")]
    only: String,
    /// Keys, of 24 bytes with values of 10.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Measurements of each cell and server.
    #[arg(long, default_value_t = 5, value_parser = count)]
    repeats: usize,
    /// Core of servers with one thread.
    #[arg(long, default_value = "0")]
    server_cpu: String,
    /// Core of their client.
    #[arg(long, default_value = "1")]
    client_cpu: String,
    /// Cores that servers with more threads share with the client.
    #[arg(long, default_value = "0-1")]
    shared_cpus: String,
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub(crate) enum BesideError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("{server} failed in {cell}: {source}")]
    Broken {
        server: String,
        cell: &'static str,
        source: io::Error,
    },
    #[error("{server} answered {cell} with {got}, expected {expected}")]
    WrongReply {
        server: String,
        cell: &'static str,
        got: String,
        expected: String,
    },
    #[error("cannot pin the client to core {cpu}: {source}")]
    Pin { cpu: String, source: io::Error },
}

/// What a cell asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    MultiGet,
    MetaGet,
    Set,
    RespGet,
    RespSet,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Operations in a block, which is sent at once.
    pub(crate) depth: usize,
    pub(crate) connections: usize,
}

impl Cell {
    /// What it sends, keys chosen at random, the same ones each time.
    pub(crate) fn blocks(&self, keys: u64) -> Vec<Block> {
        let mut rng = Rng::with_seed(5);
        let mut block = || {
            let numbers = std::iter::repeat_with(|| rng.u64(..keys));
            Block::of(self.kind, numbers.take(self.depth))
        };
        (0..BLOCKS).map(|_| block()).collect()
    }
}

const fn cell(name: &'static str, kind: Kind, depth: usize, connections: usize) -> Cell {
    Cell {
        name,
        kind,
        depth,
        connections,
    }
}

/// Operations of a deep block.
const DEPTH: usize = 32;
/// Connections where there is more than one.
const MANY: usize = 16;

const MEMCACHED: [Cell; 8] = [
    cell("get, 1 outstanding, 1 connection", Kind::Get, 1, 1),
    cell("set, 1 outstanding, 1 connection", Kind::Set, 1, 1),
    cell("get, 1 outstanding, 16 connections", Kind::Get, 1, MANY),
    cell("set, 1 outstanding, 16 connections", Kind::Set, 1, MANY),
    cell("get, pipelines of 32", Kind::Get, DEPTH, MANY),
    cell("multi-get of 32", Kind::MultiGet, DEPTH, MANY),
    cell("mg, pipelines of 32", Kind::MetaGet, DEPTH, MANY),
    cell("set, pipelines of 32", Kind::Set, DEPTH, MANY),
];

const RESP: [Cell; 4] = [
    cell("GET, 1 outstanding, 16 connections", Kind::RespGet, 1, MANY),
    cell("SET, 1 outstanding, 16 connections", Kind::RespSet, 1, MANY),
    cell("GET, pipelines of 32", Kind::RespGet, DEPTH, MANY),
    cell("SET, pipelines of 32", Kind::RespSet, DEPTH, MANY),
];

/// Blocks of a cell; connections begin at different ones and go round.
const BLOCKS: usize = 2048;
/// Keys that a block of the filling writes.
const FILL: u64 = 200;

/// Requests that are sent together, with what answers them.
#[derive(Debug, Default)]
pub(crate) struct Block {
    request: Vec<u8>,
    reply: Vec<u8>,
}

fn key(number: u64) -> String {
    format!("key:{number:020}")
}

fn value(number: u64) -> String {
    format!("{number:010}")
}

impl Block {
    fn add(&mut self, kind: Kind, number: u64) {
        let (key, value) = (key(number), value(number));
        let (request, reply) = match kind {
            Kind::Get => (
                format!("get {key}\r\n"),
                format!("VALUE {key} 0 10\r\n{value}\r\nEND\r\n"),
            ),
            Kind::MultiGet => (
                format!(" {key}"),
                format!("VALUE {key} 0 10\r\n{value}\r\n"),
            ),
            Kind::MetaGet => (format!("mg {key} v\r\n"), format!("VA 10\r\n{value}\r\n")),
            Kind::Set => (
                format!("set {key} 0 0 10\r\n{value}\r\n"),
                "STORED\r\n".into(),
            ),
            Kind::RespGet => (
                format!("*2\r\n$3\r\nGET\r\n$24\r\n{key}\r\n"),
                format!("$10\r\n{value}\r\n"),
            ),
            Kind::RespSet => (
                format!("*3\r\n$3\r\nSET\r\n$24\r\n{key}\r\n$10\r\n{value}\r\n"),
                "+OK\r\n".into(),
            ),
        };
        self.request.extend_from_slice(request.as_bytes());
        self.reply.extend_from_slice(reply.as_bytes());
    }

    fn of(kind: Kind, numbers: impl Iterator<Item = u64>) -> Self {
        let mut block = Self::default();
        if kind == Kind::MultiGet {
            block.request.extend_from_slice(b"get");
        }
        numbers.for_each(|number| block.add(kind, number));
        if kind == Kind::MultiGet {
            block.request.extend_from_slice(b"\r\n");
            block.reply.extend_from_slice(b"END\r\n");
        }
        block
    }
}

/// One connection and its place in the blocks.
struct Connection {
    stream: TcpStream,
    next: usize,
}

/// A server under a cell's load.
pub(crate) struct Client<'c> {
    server: &'c str,
    cell: &'static str,
    connections: Vec<Connection>,
    blocks: &'c [Block],
    buffer: Vec<u8>,
}

impl<'c> Client<'c> {
    pub(crate) fn connect(
        server: &'c Server,
        cell: &Cell,
        blocks: &'c [Block],
    ) -> Result<Self, BesideError> {
        let connect = |index: usize| {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            let next = index * blocks.len() / cell.connections;
            Ok(Connection { stream, next })
        };
        let connections: io::Result<_> = (0..cell.connections).map(connect).collect();
        let longest = blocks.iter().map(|block| block.reply.len()).max();
        Ok(Self {
            server: &server.name,
            cell: cell.name,
            connections: connections.map_err(|source| broken(&server.name, cell.name, source))?,
            blocks,
            buffer: vec![0; longest.unwrap_or_default() + 1],
        })
    }

    pub(crate) fn send(&mut self, index: usize) -> Result<(), BesideError> {
        let connection = &mut self.connections[index];
        connection.next = (connection.next + 1) % self.blocks.len();
        let request = &self.blocks[connection.next].request;
        let sent = connection.stream.write_all(request);
        sent.map_err(|source| broken(self.server, self.cell, source))
    }

    pub(crate) fn receive(&mut self, index: usize) -> Result<(), BesideError> {
        let connection = &mut self.connections[index];
        let expected = &self.blocks[connection.next].reply;
        let mut got = 0;
        while got < expected.len() {
            let count = match connection.stream.read(&mut self.buffer[got..]) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            got += count.map_err(|source| broken(self.server, self.cell, source))?;
            let common = got.min(expected.len());
            if self.buffer[..got] != expected[..common] {
                let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
                return Err(BesideError::WrongReply {
                    server: self.server.into(),
                    cell: self.cell,
                    got: show(&self.buffer[..got]),
                    expected: show(expected),
                });
            }
        }
        Ok(())
    }

    /// Sends and receives until the time is over; how many blocks were answered.
    pub(crate) fn run(&mut self, span: Duration) -> Result<u64, BesideError> {
        let began = Instant::now();
        let mut answered = 0;
        for index in 0..self.connections.len() {
            self.send(index)?;
        }
        let mut over = false;
        while !over {
            over = began.elapsed() >= span;
            for index in 0..self.connections.len() {
                self.receive(index)?;
                answered += 1;
                if !over {
                    self.send(index)?;
                }
            }
        }
        Ok(answered)
    }
}

fn broken(server: &str, cell: &'static str, source: io::Error) -> BesideError {
    BesideError::Broken {
        server: server.into(),
        cell,
        source,
    }
}

pub(crate) struct Sample {
    /// Operations per second.
    pub(crate) rate: f64,
    /// CPU microseconds of the server for each.
    pub(crate) cpu: f64,
}

/// Loads a server for so many seconds, after a fifth of that for warming up.
pub(crate) fn measure(
    seconds: f64,
    server: &Server,
    cell: &Cell,
    blocks: &[Block],
) -> Result<Sample, BesideError> {
    let mut client = Client::connect(server, cell, blocks)?;
    client.run(Duration::from_secs_f64(seconds / 5.0))?;
    let cpu = server.cpu_seconds()?;
    let began = Instant::now();
    let blocks = client.run(Duration::from_secs_f64(seconds))?;
    let elapsed = began.elapsed().as_secs_f64();
    let operations = (blocks * cell.depth as u64) as f64;
    Ok(Sample {
        rate: operations / elapsed,
        cpu: (server.cpu_seconds()? - cpu) / operations * 1e6,
    })
}

/// Measures every cell for all servers in turns and prints ratios to the first, pair by pair.
fn compare(
    options: &Options,
    servers: &[Server],
    cells: &[Cell],
    progress: &mut Progress,
) -> Result<(), BesideError> {
    for cell in cells
        .iter()
        .filter(|cell| cell.name.contains(&options.only))
    {
        let blocks = cell.blocks(options.keys);
        let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.repeats {
            for (server, samples) in servers.iter().zip(&mut samples) {
                progress.step(&format!("{}, {}", cell.name, server.name));
                samples.push(measure(options.seconds, server, cell, &blocks)?);
            }
        }
        progress.clear();
        println!("{}", cell.name);
        for (server, own) in servers.iter().zip(&samples) {
            let of = |figure: fn(&Sample) -> f64| Spread::of(own.iter().map(figure));
            let ratio = |figure: fn(&Sample, &Sample) -> f64| {
                let pairs = own.iter().zip(&samples[0]);
                Spread::of(pairs.map(|(own, first)| figure(own, first)))
            };
            println!(
                "  {:18} kops/s {}  CPU µs {}  ratios: rate {}  per CPU {}",
                server.name,
                of(|sample| sample.rate / 1e3),
                of(|sample| sample.cpu),
                ratio(|own, first| own.rate / first.rate),
                ratio(|own, first| first.cpu / own.cpu)
            );
        }
    }
    Ok(())
}

/// Writes every key once.
pub(crate) fn fill(keys: u64, server: &Server, kind: Kind) -> Result<(), BesideError> {
    let cell = cell("the filling", kind, FILL as usize, 1);
    let firsts = (0..keys).step_by(FILL as usize);
    let blocks: Vec<_> = firsts
        .map(|first| Block::of(kind, first..keys.min(first + FILL)))
        .collect();
    let mut client = Client::connect(server, &cell, &blocks)?;
    for _ in &blocks {
        client.send(0)?;
        client.receive(0)?;
    }
    Ok(())
}

/// Pins this process, its client being the only thread that works.
pub(crate) fn pin(cpus: &str) -> Result<(), BesideError> {
    let process = std::process::id().to_string();
    let command = Command::new("taskset")
        .args(["-a", "-c", "-p", cpus, &process])
        .output();
    command.map(|_| ()).map_err(|source| BesideError::Pin {
        cpu: cpus.into(),
        source,
    })
}

/// Measures everything.
pub(crate) fn run(options: &Options) -> Result<(), BesideError> {
    println!(
        "median (least–most) of {} in turns of {} s; {} keys of 24 bytes, values of 10",
        options.repeats, options.seconds, options.keys
    );
    let all = MEMCACHED.iter().chain(&RESP);
    let chosen = all.filter(|cell| cell.name.contains(&options.only)).count();
    let servers_max = options.engines.len() + 1;
    let mut progress =
        Progress::new(options.threads.len() * chosen * servers_max * options.repeats);
    for threads in &options.threads {
        let (server_cpu, client_cpu) = if *threads == 1 {
            (&options.server_cpu, &options.client_cpu)
        } else {
            (&options.shared_cpus, &options.shared_cpus)
        };
        pin(client_cpu)?;
        for (kind, cells) in [(Kind::Set, &MEMCACHED[..]), (Kind::RespSet, &RESP)] {
            if !cells.iter().any(|cell| cell.name.contains(&options.only)) {
                continue;
            }
            let mut servers = Vec::new();
            let (protocol, port) = if kind == Kind::Set {
                servers.extend(if_installed(Server::memcached_of(server_cpu, *threads))?);
                ("memcached", "--memcached-port")
            } else {
                ("RESP", "--port")
            };
            progress.clear();
            println!(
                "\n{protocol}, {threads} threads, server on {server_cpu}, client on {client_cpu}"
            );
            for engine in &options.engines {
                let pando = &options.pando;
                servers.push(Server::pando_of(pando, server_cpu, port, engine, *threads)?);
            }
            for server in &servers {
                fill(options.keys, server, kind)?;
            }
            compare(options, &servers, cells, &mut progress)?;
        }
    }
    progress.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_and_its_reply_belong_together() {
        let block = Block::of(Kind::MultiGet, [1, 2].into_iter());
        let request = format!("get {} {}\r\n", key(1), key(2));
        assert_eq!(block.request, request.as_bytes());
        let reply = format!(
            "VALUE {} 0 10\r\n0000000001\r\nVALUE {} 0 10\r\n0000000002\r\nEND\r\n",
            key(1),
            key(2)
        );
        assert_eq!(block.reply, reply.as_bytes());
    }
}
