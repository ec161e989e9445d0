//! Two tables in partitions under locks: what stands in for the paper's commercial database.
//!
//! Each host has a partition of both tables, by a hash of the key, in order. An operation on one
//! row is done at its partition. One on a row of each table is done by all partitions, as the paper
//! found of its database (§6.2): a sequencer on the first host locks them all, one such transaction
//! at a time; each does its part and says so; then all are told to unlock.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::ClusterOptions;
use super::clock::{BYTE_NS, Clock, MEMNODE_NS, PROXY_NS, STORE_CORES, Station, WAY_NS};
use super::measured::Measured;
use super::work::Keys;
use crate::embedded::threads::thread_seconds;
use crate::embedded::value_of;

/// Bytes of a message for one row: its kind, table, key and value.
const ROW_BYTES: usize = 24;
/// Bytes of a message that has none.
const WORD_BYTES: usize = 9;

/// An operation of a client's: a key for each table.
#[derive(Clone, Debug)]
struct Operation {
    host: usize,
    began: u64,
    keys: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Message {
    /// A client's next operation, at its host.
    Begin,
    /// At a partition.
    Row(Operation),
    Lock(Operation),
    Unlock,
    /// At the sequencer.
    Sequence(Operation),
    Done(Operation),
    /// At the client's host.
    Ended(Operation),
}

#[derive(Debug)]
enum Event {
    Arrive(usize, Message),
    Take(usize, Message),
}

struct Host {
    station: Station,
    tables: [BTreeMap<Vec<u8>, u64>; 2],
    is_locked: bool,
    /// What came while it was locked.
    waiting: VecDeque<Message>,
}

/// See the module's header.
pub(super) struct Store<'o> {
    options: &'o ClusterOptions,
    clock: Clock<Event>,
    hosts: Vec<Host>,
    keys: Keys,
    /// Transactions on both tables: the first is under way.
    sequence: VecDeque<Operation>,
    /// Partitions that have not done their part of it.
    outstanding: usize,
    measured: Measured,
}

impl<'o> Store<'o> {
    pub(super) fn new(options: &'o ClusterOptions) -> Self {
        let host = |_| Host {
            station: Station::new(STORE_CORES),
            tables: [const { BTreeMap::new() }; 2],
            is_locked: false,
            waiting: VecDeque::new(),
        };
        let mut store = Self {
            clock: Clock::default(),
            hosts: (0..options.hosts).map(host).collect(),
            keys: Keys::draw(options.keys, options.seed),
            sequence: VecDeque::new(),
            outstanding: 0,
            measured: Measured::new(options),
            options,
        };
        for key in store.keys.there.clone() {
            let home = store.home(&key);
            for table in &mut store.hosts[home].tables {
                table.insert(key.clone(), value_of(&key));
            }
        }
        store
    }

    fn home(&self, key: &[u8]) -> usize {
        (FixedState::default().hash_one(key) % self.hosts.len() as u64) as usize
    }

    /// Runs all clients until the measurement ends.
    pub(super) fn run(mut self) -> Measured {
        let began = thread_seconds();
        for host in 0..self.hosts.len() {
            for _ in 0..self.options.clients {
                self.clock.at(0, Event::Arrive(host, Message::Begin));
            }
        }
        while let Some(event) = self.clock.next_before(self.measured.end) {
            match event {
                Event::Arrive(host, message) => self.arrive(host, message),
                Event::Take(host, message) => self.take(host, message),
            }
        }
        self.measured.processor_seconds = thread_seconds() - began;
        self.measured
    }

    fn arrive(&mut self, which: usize, message: Message) {
        let now = self.clock.now;
        let (cost, bytes) = match &message {
            Message::Begin => (PROXY_NS, 0),
            Message::Ended(_) | Message::Done(_) => (PROXY_NS, ROW_BYTES),
            Message::Sequence(_) => (PROXY_NS, 2 * ROW_BYTES),
            Message::Row(_) => (MEMNODE_NS, ROW_BYTES),
            Message::Lock(_) => (MEMNODE_NS, 2 * ROW_BYTES),
            Message::Unlock => (MEMNODE_NS, WORD_BYTES),
        };
        self.measured.carried(now, bytes);
        let host = &mut self.hosts[which];
        let is_held_up = matches!(message, Message::Row(_) | Message::Lock(_));
        if is_held_up && host.is_locked {
            host.waiting.push_back(message);
            return;
        }
        host.is_locked |= matches!(message, Message::Lock(_));
        let done = host.station.serve(now, cost + BYTE_NS * bytes as u64);
        self.clock.at(done, Event::Take(which, message));
    }

    fn send(&mut self, to: usize, message: Message) {
        let arrives = self.clock.now + WAY_NS;
        self.clock.at(arrives, Event::Arrive(to, message));
    }

    fn take(&mut self, which: usize, message: Message) {
        let now = self.clock.now;
        match message {
            Message::Begin => {
                let operation = Operation {
                    host: which,
                    began: now - PROXY_NS,
                    keys: self.keys.of(self.options.asked),
                };
                if let [key] = &operation.keys[..] {
                    let home = self.home(key);
                    self.send(home, Message::Row(operation));
                } else {
                    self.send(0, Message::Sequence(operation));
                }
            }
            Message::Row(operation) => {
                self.perform(which, &operation);
                self.send(operation.host, Message::Ended(operation));
            }
            Message::Lock(operation) => {
                self.perform(which, &operation);
                self.send(0, Message::Done(operation));
            }
            Message::Unlock => {
                let host = &mut self.hosts[which];
                host.is_locked = false;
                // A lock among them holds up those behind it.
                for message in std::mem::take(&mut host.waiting) {
                    self.arrive(which, message);
                }
            }
            Message::Sequence(operation) => {
                self.sequence.push_back(operation);
                if self.sequence.len() == 1 {
                    self.lock_all();
                }
            }
            Message::Done(operation) => {
                self.outstanding -= 1;
                if self.outstanding > 0 {
                    return;
                }
                for host in 0..self.hosts.len() {
                    self.send(host, Message::Unlock);
                }
                self.send(operation.host, Message::Ended(operation));
                self.sequence.pop_front();
                if !self.sequence.is_empty() {
                    self.lock_all();
                }
            }
            Message::Ended(operation) => {
                let (trips, memnodes) = match operation.keys.len() {
                    1 => (1, 1),
                    _ => (2, self.hosts.len() as u64),
                };
                self.measured.ended(now, operation.began, trips, memnodes);
                self.clock.at(now, Event::Arrive(which, Message::Begin));
            }
        }
    }

    fn lock_all(&mut self) {
        let operation = self.sequence.front().expect("a transaction").clone();
        self.outstanding = self.hosts.len();
        for host in 0..self.hosts.len() {
            self.send(host, Message::Lock(operation.clone()));
        }
    }

    /// Does what a partition has to do with an operation.
    fn perform(&mut self, which: usize, operation: &Operation) {
        for (table, key) in operation.keys.iter().enumerate() {
            if self.home(key) != which {
                continue;
            }
            let table = &mut self.hosts[which].tables[table];
            if self.options.asked.is_read() {
                let is_right = table.get(key) == Some(&value_of(key));
                self.measured.wrong += u64::from(!is_right);
            } else {
                table.insert(key.clone(), value_of(key));
            }
        }
    }
}
