//! One thread of the load, its steps and its model of the keys; the closed loop.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pando_protocol::resp::Value;

use super::client::Client;
use super::requests::{RANGE_SCRIPT, Requests};
use super::{LoadError, Options, Ranges, latencies};
use crate::workload::{Step, Stream};

/// Keys that one pipeline of [`fill`] writes.
const FILL_BATCH: u64 = 512;

/// A step whose replies are awaited.
pub(super) struct Pending {
    /// When it was to be sent.
    pub(super) due: Instant,
    step: Step,
    /// Replies that are still to come.
    replies: usize,
    /// What a GET must answer, when this run has written the key.
    expected: Option<u64>,
}

/// One thread's connections and its model of the keys that it owns.
pub(super) struct Worker {
    server: SocketAddr,
    pub(super) clients: Vec<Client>,
    pub(super) pending: Vec<VecDeque<Pending>>,
    stream: Stream,
    requests: Requests,
    pub(super) pipeline: usize,
    value: Vec<u8>,
    verify: bool,
    /// Connections divide the keys by residue when replies are verified: this thread's first one,
    /// and how many there are.
    first_owner: u64,
    owners: u64,
    keys: u64,
    /// Whether every key was there before the first step.
    filled: bool,
    model: HashMap<u64, u64>,
    serial: u64,
    interval: Option<Duration>,
}

/// What a thread has measured.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Microseconds from a request's due time or its sending to its reply.
    pub(super) latency: Histogram<u64>,
    /// Requests of an open loop that were due and could not be sent before the end: they are in
    /// `latency` with the time that they had waited by then.
    pub(super) unsent: u64,
    /// What the requests that were sent took together: at least the time asked for.
    pub(super) time: Duration,
}

impl Worker {
    pub(super) fn connect(
        options: &Options,
        server: SocketAddr,
        items: &Arc<AtomicU64>,
        thread: usize,
        seed: u64,
    ) -> Result<Self, LoadError> {
        let mut clients = (0..options.connections)
            .map(|_| Client::connect(server, options.protocol))
            .collect::<Result<Vec<_>, _>>()?;
        let workload = options.workload();
        let mut requests = Requests::new(options);
        if options.ranges == Ranges::SortedSet {
            requests.set_script(&load_script(&mut clients[0], server)?);
        }
        let threads = options.threads as f64;
        let seed = seed.wrapping_mul(1009).wrapping_add(thread as u64);
        Ok(Self {
            server,
            pending: clients.iter().map(|_| VecDeque::new()).collect(),
            clients,
            stream: Stream::new(workload, items, seed),
            requests,
            pipeline: options.pipeline,
            value: vec![b'x'; workload.column_bytes],
            verify: options.verify,
            first_owner: (thread * options.connections) as u64,
            owners: (options.threads * options.connections) as u64,
            keys: options.keys,
            filled: options.fill,
            model: HashMap::new(),
            serial: 0,
            interval: options
                .rate
                .map(|rate| Duration::from_secs_f64(threads / rate)),
        })
    }

    /// Works for `time`.
    pub(super) fn run(&mut self, time: Duration) -> Result<Outcome, LoadError> {
        match self.interval {
            None => self.run_closed(time),
            Some(interval) => self.run_open(time, interval),
        }
    }

    /// Every connection sends its next pipeline when its last one is answered: at least one, also
    /// where this thread gets no processor for all of `time`.
    fn run_closed(&mut self, time: Duration) -> Result<Outcome, LoadError> {
        let mut latency = latencies()?;
        let start = Instant::now();
        loop {
            for index in 0..self.clients.len() {
                for _ in 0..self.pipeline {
                    self.send(index, Instant::now());
                }
                self.clients[index].flush()?;
            }
            for index in 0..self.clients.len() {
                while !self.pending[index].is_empty() {
                    let reply = self.clients[index].receive()?;
                    self.answered(index, &reply, &mut latency)?;
                }
            }
            if start.elapsed() >= time {
                break;
            }
        }
        Ok(Outcome {
            latency,
            unsent: 0,
            time: start.elapsed(),
        })
    }

    /// Appends the next step's requests to a connection's output.
    pub(super) fn send(&mut self, client: usize, due: Instant) {
        let mut step = self.stream.step();
        let mut expected = None;
        if self.verify {
            match &mut step {
                Step::Read { item } => {
                    *item = self.owned(*item, client as u64);
                    expected = self.model.get(item).copied();
                }
                Step::Update { item, .. } => {
                    *item = self.owned(*item, client as u64);
                    self.serial += 1;
                    self.model.insert(*item, self.serial);
                }
                _ => {}
            }
        }
        if self.value.len() >= 8 {
            self.value[..8].copy_from_slice(&self.serial.to_le_bytes());
        }
        let replies = self
            .requests
            .push(&mut self.clients[client], step, &self.value);
        self.pending[client].push_back(Pending {
            due,
            step,
            replies,
            expected,
        });
    }

    /// Takes a connection's next reply.
    pub(super) fn answered(
        &mut self,
        client: usize,
        reply: &Value,
        latency: &mut Histogram<u64>,
    ) -> Result<(), LoadError> {
        let front = self.pending[client].front_mut().expect("a reply answers");
        if front.replies > 1 {
            front.replies -= 1;
            return Ok(());
        }
        let request = self.pending[client].pop_front().expect("it is the front");
        latency.saturating_record(request.due.elapsed().as_micros() as u64);
        self.check(&request, reply)
    }

    /// The error for a server that owes replies and does not send them.
    pub(super) fn out_of_patience(&self) -> LoadError {
        LoadError::Broken {
            server: self.server,
            source: std::io::Error::from(std::io::ErrorKind::TimedOut),
        }
    }

    /// The item of the connection's residue class that is nearest to `item`. An item is used by one
    /// connection only, whose requests the server answers in order: the model is exact.
    fn owned(&self, item: u64, client: u64) -> u64 {
        let owner = self.first_owner + client;
        let owned = item / self.owners * self.owners + owner;
        if owned < self.keys { owned } else { owner }
    }

    /// Whether the reply is what the model says; without `--verify`, whether it can be right.
    fn check(&self, request: &Pending, reply: &Value) -> Result<(), LoadError> {
        let known = match request.step {
            // Others may be about to insert what this thread reads.
            Step::Read { item } => (self.filled && item < self.keys) || request.expected.is_some(),
            Step::Scan { item, .. } => self.filled && item < self.keys,
            _ => true,
        };
        let written = match (request.expected, reply) {
            // What an earlier run has written is not known.
            (Some(serial), Value::Bulk(bytes)) => bytes.starts_with(&serial.to_le_bytes()),
            _ => true,
        };
        if written && self.requests.fits(request.step, reply, known) {
            return Ok(());
        }
        Err(LoadError::WrongReply {
            server: self.server,
            request: format!("{:?}", request.step),
            got: format!("{reply:?}").chars().take(200).collect(),
            expected: match request.expected {
                Some(serial) => format!("the value of write {serial}"),
                None => "a reply of the command's shape".into(),
            },
        })
    }
}

/// Makes the server know the script for ranges; its name there.
fn load_script(client: &mut Client, server: SocketAddr) -> Result<Vec<u8>, LoadError> {
    client.push(&[b"SCRIPT", b"LOAD", RANGE_SCRIPT]);
    client.flush()?;
    match client.receive()? {
        Value::Bulk(name) => Ok(name),
        other => Err(LoadError::WrongReply {
            server,
            request: "SCRIPT LOAD".into(),
            got: format!("{other:?}"),
            expected: "a script's name".into(),
        }),
    }
}

/// Writes every item once.
pub(super) fn fill(options: &Options, server: SocketAddr) -> Result<(), LoadError> {
    let mut client = Client::connect(server, options.protocol)?;
    let workload = options.workload();
    let mut requests = Requests::new(options);
    let value = vec![b'x'; workload.column_bytes];
    let mut next = 0;
    while next < options.keys {
        let end = (next + FILL_BATCH).min(options.keys);
        let mut replies = Vec::new();
        for item in next..end {
            let count = requests.push(&mut client, Step::Insert { item }, &value);
            replies.extend(std::iter::repeat_n(item, count));
        }
        client.flush()?;
        for item in replies {
            let reply = client.receive()?;
            if !requests.fits(Step::Insert { item }, &reply, true) {
                return Err(LoadError::WrongReply {
                    server,
                    request: format!("the insert of item {item}"),
                    got: format!("{reply:?}"),
                    expected: "success".into(),
                });
            }
        }
        next = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
