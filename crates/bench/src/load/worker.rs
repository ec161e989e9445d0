//! One thread of the load: its connections served in turn, each a pipeline at a time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hdrhistogram::Histogram;
use pando_protocol::resp::Value;

use super::client::Client;
use super::{LoadError, Options};
use crate::distribution::Chooser;

/// Keys that one pipeline of [`fill`] writes.
const FILL_BATCH: u64 = 512;

/// What a thread waits for.
struct Pending {
    due: Instant,
    key: u64,
    /// What a GET must answer, when this run has written the key.
    expected: Option<u64>,
    reads: bool,
}

/// One thread's connections and its model of the keys that it owns.
pub(super) struct Worker {
    server: SocketAddr,
    clients: Vec<Client>,
    chooser: Chooser,
    random: Rng,
    reads: u8,
    pipeline: usize,
    value: Vec<u8>,
    verify: bool,
    /// Connections divide the keys by residue when replies are verified: this thread's first one,
    /// and how many there are.
    first_owner: u64,
    owners: u64,
    keys: u64,
    model: HashMap<u64, u64>,
    serial: u64,
    interval: Option<Duration>,
}

impl Worker {
    pub(super) fn connect(
        options: &Options,
        server: SocketAddr,
        thread: usize,
        seed: u64,
    ) -> Result<Self, LoadError> {
        let clients = (0..options.connections)
            .map(|_| Client::connect(server))
            .collect::<Result<_, _>>()?;
        let threads = options.threads as f64;
        Ok(Self {
            server,
            clients,
            chooser: Chooser::new(options.distribution, options.keys, options.theta),
            random: Rng::with_seed(seed.wrapping_mul(1009).wrapping_add(thread as u64)),
            reads: options.reads,
            pipeline: options.pipeline,
            value: vec![b'x'; options.value_bytes as usize],
            verify: options.verify,
            first_owner: (thread * options.connections) as u64,
            owners: (options.threads * options.connections) as u64,
            keys: options.keys,
            model: HashMap::new(),
            serial: 0,
            interval: options
                .rate
                .map(|rate| Duration::from_secs_f64(threads / rate)),
        })
    }

    /// Sends requests for `time`; the latencies of the replies in microseconds.
    pub(super) fn run(&mut self, time: Duration) -> Result<Histogram<u64>, LoadError> {
        let mut latency = Histogram::new(3)?;
        let start = Instant::now();
        let mut due = start;
        let mut pending: Vec<Vec<Pending>> = self.clients.iter().map(|_| Vec::new()).collect();
        while start.elapsed() < time {
            for (index, pending) in pending.iter_mut().enumerate() {
                for _ in 0..self.pipeline {
                    due = self.next_due(due);
                    pending.push(self.send(index, due));
                }
                self.clients[index].flush()?;
            }
            for (index, pending) in pending.iter_mut().enumerate() {
                for request in pending.drain(..) {
                    let reply = self.clients[index].receive()?;
                    let micros = request.due.elapsed().as_micros() as u64;
                    latency.saturating_record(micros);
                    if self.verify {
                        self.check(&request, &reply)?;
                    }
                }
            }
        }
        Ok(latency)
    }

    /// When the next request is due; waits until then in an open loop.
    fn next_due(&self, last: Instant) -> Instant {
        match self.interval {
            None => Instant::now(),
            Some(interval) => {
                let due = last + interval;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
        }
    }

    fn send(&mut self, client: usize, due: Instant) -> Pending {
        let mut key = self.chooser.draw(&mut self.random);
        if self.verify {
            key = self.owned(key, client as u64);
        }
        let name = format!("key:{key:012}");
        let reads = self.random.u8(..100) < self.reads;
        if reads {
            self.clients[client].push(&[b"GET", name.as_bytes()]);
            let expected = self.model.get(&key).copied();
            return Pending {
                due,
                key,
                expected,
                reads,
            };
        }
        self.serial += 1;
        let bytes = self.value_of(self.serial).to_vec();
        self.clients[client].push(&[b"SET", name.as_bytes(), &bytes]);
        if self.verify {
            self.model.insert(key, self.serial);
        }
        Pending {
            due,
            key,
            expected: None,
            reads,
        }
    }

    /// The key of the connection's residue class that is nearest to `key`. A key is used by one
    /// connection only, whose requests the server answers in order: the model is exact.
    fn owned(&self, key: u64, client: u64) -> u64 {
        let owner = self.first_owner + client;
        let owned = key / self.owners * self.owners + owner;
        if owned < self.keys { owned } else { owner }
    }

    fn value_of(&mut self, serial: u64) -> &[u8] {
        self.value[..8].copy_from_slice(&serial.to_le_bytes());
        &self.value
    }

    /// Whether the reply is what the model says.
    fn check(&mut self, request: &Pending, reply: &Value) -> Result<(), LoadError> {
        let right = match (request.reads, reply) {
            (false, reply) => *reply == Value::Simple(b"OK".to_vec()),
            // What an earlier run has written is not known.
            (true, Value::Bulk(bytes)) => request
                .expected
                .is_none_or(|serial| bytes.starts_with(&serial.to_le_bytes())),
            (true, reply) => reply.is_null() && request.expected.is_none(),
        };
        if right {
            return Ok(());
        }
        Err(LoadError::WrongReply {
            server: self.server,
            request: format!(
                "{} of key {}",
                if request.reads { "GET" } else { "SET" },
                request.key
            ),
            got: format!("{reply:?}"),
            expected: format!("{:?}", request.expected),
        })
    }
}

/// Writes every key once.
pub(super) fn fill(options: &Options, server: SocketAddr) -> Result<(), LoadError> {
    let mut client = Client::connect(server)?;
    let value = vec![b'x'; options.value_bytes as usize];
    let mut next = 0;
    while next < options.keys {
        let end = (next + FILL_BATCH).min(options.keys);
        for key in next..end {
            client.push(&[b"SET", format!("key:{key:012}").as_bytes(), &value]);
        }
        client.flush()?;
        for _ in next..end {
            client.receive()?;
        }
        next = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
