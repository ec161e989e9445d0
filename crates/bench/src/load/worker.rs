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
use crate::workload::{Step, Stream, column_name};

/// Bytes of a value that tell which write it is from; all of them where it is shorter.
const SERIAL_BYTES: usize = 8;

/// Keys that one pipeline of [`fill`] writes.
const FILL_BATCH: u64 = 512;

/// A step whose replies are awaited.
pub(super) struct Pending {
    /// When it was to be sent.
    pub(super) due: Instant,
    step: Step,
    /// Replies that are still to come.
    replies: usize,
    /// What the model says of the item before the step; empty where nothing is verified.
    expected: Row,
}

/// An item's columns, a plain value being one: the serial of what this run has last written there.
type Row = Vec<Option<u64>>;

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
    model: HashMap<u64, Row>,
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
            .map(|_| options.client_of(server))
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
        let mut expected = Row::new();
        if self.verify {
            expected = self.follow(&mut step, client as u64);
        }
        let shown = self.value.len().min(SERIAL_BYTES);
        self.value[..shown].copy_from_slice(&self.serial.to_le_bytes()[..shown]);
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
            let Step::ReadModifyWrite { item, .. } = front.step else {
                return Ok(());
            };
            let expected = std::mem::take(&mut front.expected);
            return self.check(Step::Read { item }, &expected, reply);
        }
        let request = self.pending[client].pop_front().expect("it is the front");
        latency.saturating_record(request.due.elapsed().as_micros() as u64);
        self.check(request.step, &request.expected, reply)
    }

    /// Gives the step an item that its connection owns and notes what it writes; what the model
    /// says of the item before. What is inserted is nobody's, and not read again.
    fn follow(&mut self, step: &mut Step, client: u64) -> Row {
        let owner = self.first_owner + client;
        let (owners, keys) = (self.owners, self.keys);
        let (Step::Read { item }
        | Step::Update { item, .. }
        | Step::Scan { item, .. }
        | Step::ReadModifyWrite { item, .. }) = step
        else {
            return Row::new();
        };
        *item = owned(*item, owner, owners, keys);
        let columns = self.requests.columns();
        let row = self
            .model
            .entry(*item)
            .or_insert_with(|| vec![None; columns]);
        let before = row.clone();
        if let Step::Update { column, .. } | Step::ReadModifyWrite { column, .. } = step {
            self.serial += 1;
            row[*column] = Some(self.serial);
        }
        before
    }

    /// The error for a server that owes replies and does not send them.
    pub(super) fn out_of_patience(&self) -> LoadError {
        LoadError::Broken {
            server: self.server,
            source: std::io::Error::from(std::io::ErrorKind::TimedOut),
        }
    }

    /// Whether the reply is what the model says; without `--verify`, whether it can be right.
    fn check(&self, step: Step, expected: &Row, reply: &Value) -> Result<(), LoadError> {
        let written = expected.iter().any(Option::is_some);
        let known = match step {
            // Others may be about to insert what this thread reads.
            Step::Read { item } => {
                (self.filled && item < self.keys) || (written && !self.requests.has_rows())
            }
            Step::Scan { item, .. } => self.filled && item < self.keys,
            _ => true,
        };
        if !self.requests.fits(step, reply, known) {
            return Err(self.wrong(step, reply, "a reply of the command's shape".into()));
        }
        let value_bytes = self.value.len();
        match (step, reply) {
            (Step::Read { .. }, Value::Bulk(value)) => self.compare(
                step,
                reply,
                is_written(value, expected.first(), value_bytes),
            ),
            (Step::Read { .. }, Value::Array(row)) if written => {
                self.compare(step, reply, row_is(row, expected, value_bytes))
            }
            (Step::Scan { item, .. }, Value::Array(parts)) if self.verify => {
                let Some(Value::Array(found)) = parts.get(1) else {
                    return Ok(());
                };
                let start = self.requests.key_of(item);
                let begins = matches!(found.first(), Some(Value::Bulk(key)) if *key == start);
                let right = (begins || !known) && range_is(found, &start, expected, value_bytes);
                self.compare(step, reply, right)
            }
            _ => Ok(()),
        }
    }

    fn compare(&self, step: Step, reply: &Value, right: bool) -> Result<(), LoadError> {
        if right {
            return Ok(());
        }
        Err(self.wrong(step, reply, "what this connection has written".into()))
    }

    fn wrong(&self, step: Step, reply: &Value, expected: String) -> LoadError {
        LoadError::WrongReply {
            server: self.server,
            request: format!("{step:?}"),
            got: format!("{reply:?}").chars().take(200).collect(),
            expected,
        }
    }
}

/// The item of the owner's residue class that is nearest to `item`. An item is used by one
/// connection only, whose requests the server answers in order: the model is exact.
fn owned(item: u64, owner: u64, owners: u64, keys: u64) -> u64 {
    let owned = item / owners * owners + owner;
    if owned < keys { owned } else { owner }
}

/// Whether a value is the one that this run has last written; what an earlier run has written is
/// not known.
fn is_written(value: &[u8], expected: Option<&Option<u64>>, value_bytes: usize) -> bool {
    let Some(Some(serial)) = expected else {
        return true;
    };
    let shown = value_bytes.min(SERIAL_BYTES);
    value.len() == value_bytes && value[..shown] == serial.to_le_bytes()[..shown]
}

/// Whether names and values hold every column that this run has written.
fn row_is(row: &[Value], expected: &Row, value_bytes: usize) -> bool {
    let mut name = Vec::new();
    let mut columns = (0..).zip(expected);
    columns.all(|(column, serial)| {
        column_name(column, &mut name);
        let mut pairs = row.chunks_exact(2);
        let found = pairs.find(|pair| matches!(&pair[0], Value::Bulk(it) if *it == name));
        match found.map(|pair| &pair[1]) {
            Some(Value::Bulk(value)) => is_written(value, Some(serial), value_bytes),
            _ => serial.is_none(),
        }
    })
}

/// Whether the keys of a range ascend from `start` on, and the row at `start` is the expected one.
fn range_is(found: &[Value], start: &[u8], expected: &Row, value_bytes: usize) -> bool {
    let mut before: Option<&[u8]> = None;
    for pair in found.chunks(2) {
        let [Value::Bulk(key), row] = pair else {
            return false;
        };
        if key.as_slice() < start || before.is_some_and(|before| key.as_slice() <= before) {
            return false;
        }
        before = Some(key);
        let right = match row {
            _ if key != start => true,
            // One column was asked for: the first.
            Value::Bulk(value) => is_written(value, expected.first(), value_bytes),
            Value::Array(only) if only.len() == 1 => match &only[0] {
                Value::Bulk(value) => is_written(value, expected.first(), value_bytes),
                _ => false,
            },
            Value::Array(row) => row_is(row, expected, value_bytes),
            _ => false,
        };
        if !right {
            return false;
        }
    }
    true
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
