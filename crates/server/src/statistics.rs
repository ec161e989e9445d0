//! Each worker's counters, on its own cache lines, and the sums that INFO and `/metrics` show.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | [`Counter`]s of [`WorkerStatistics`] | its worker | `Relaxed`, load and store | anybody |
//! | `latencies[i]` | its worker, once | `OnceLock` | anybody |
//! | `errors` | its worker | mutex | anybody |
//! | `Statistics::base` | CONFIG RESETSTAT | mutex | anybody |
//!
//! Invariants:
//! - **SC1** A worker's counters have one writer, so counting needs no locked instruction.
//! - **SC2** Counters never go back: CONFIG RESETSTAT remembers their values as a base that readers
//!   subtract. `/metrics` shows them without the base, as Prometheus requires.
//!
//! Memory is bounded: a worker has a few words for each command of the table and a histogram (4
//! KiB) for each command that it has executed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pando_protocol::command::{self, CommandSpec};
use pando_protocol::memcached::Verb;

use crate::histogram::{Counts, Histogram};
use crate::sampler::Sample;
use crate::shared::lock;

/// A number that one thread counts up (SC1) and everybody may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Increments. Only the owner calls it.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Names of memcached's commands among the others, by number.
const MEMCACHED: [&str; 28] = [
    "memcached|get",
    "memcached|gets",
    "memcached|gat",
    "memcached|gats",
    "memcached|set",
    "memcached|add",
    "memcached|replace",
    "memcached|append",
    "memcached|prepend",
    "memcached|cas",
    "memcached|incr",
    "memcached|decr",
    "memcached|delete",
    "memcached|touch",
    "memcached|flush_all",
    "memcached|verbosity",
    "memcached|stats",
    "memcached|version",
    "memcached|quit",
    "memcached|cache_memlimit",
    "memcached|shutdown",
    "memcached|mn",
    "memcached|mg",
    "memcached|ms",
    "memcached|md",
    "memcached|ma",
    "memcached|me",
    "memcached|unknown",
];

const _: () = assert!(MEMCACHED.len() == Verb::ALL.len() + 1);

/// Every command and subcommand of the table, followed by memcached's, numbered.
#[derive(Debug)]
pub struct CommandIndex {
    specs: Vec<&'static CommandSpec>,
    /// By [`CommandSpec::number`]: the number of a container's first subcommand.
    first_subcommands: Vec<u16>,
}

impl CommandIndex {
    pub(crate) fn new() -> Self {
        let mut specs: Vec<_> = command::all().collect();
        let mut first_subcommands = Vec::with_capacity(specs.len());
        for container in command::all() {
            first_subcommands.push(specs.len() as u16);
            specs.extend(container.subcommands);
        }
        assert!(specs.len() + MEMCACHED.len() < usize::from(crate::registry::NO_COMMAND));
        Self {
            specs,
            first_subcommands,
        }
    }

    /// The number of a command or subcommand.
    #[inline]
    pub(crate) fn of(&self, spec: &'static CommandSpec) -> u16 {
        let number = spec.number();
        let container = self.specs[usize::from(number)];
        if std::ptr::eq(container, spec) {
            return u16::from(number);
        }
        let mut subcommands = container.subcommands.iter();
        let place = subcommands.position(|subcommand| std::ptr::eq(subcommand, spec));
        self.first_subcommands[usize::from(number)] + place.unwrap_or_default() as u16
    }

    /// The number of a memcached command.
    #[inline]
    pub(crate) fn of_memcached(&self, verb: Verb) -> u16 {
        self.specs.len() as u16 + verb as u16
    }

    /// The table's entry of the command with this number; none for memcached's.
    pub(crate) fn spec(&self, number: u16) -> Option<&'static CommandSpec> {
        self.specs.get(usize::from(number)).copied()
    }

    /// The name of the command of this number.
    pub(crate) fn name(&self, number: u16) -> Option<&'static str> {
        let number = usize::from(number);
        match self.specs.get(number) {
            Some(spec) => Some(spec.name),
            None => MEMCACHED.get(number - self.specs.len()).copied(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.specs.len() + MEMCACHED.len()
    }

    /// The names of all commands with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let names = self.specs.iter().map(|spec| spec.name).chain(MEMCACHED);
        names.enumerate()
    }
}

/// One worker's counts of one command.
#[derive(Debug, Default)]
pub(crate) struct CommandCounters {
    pub(crate) calls: Counter,
    /// Time of execution.
    pub(crate) nanoseconds: Counter,
    /// Refused before it ran.
    pub(crate) rejected: Counter,
    /// Ran and replied with an error.
    pub(crate) failed: Counter,
}

/// One worker's counts. The event loop increments the public counters, the [`crate::WorkerHost`]
/// the rest.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerStatistics {
    /// Bytes read from sockets.
    pub input_bytes: Counter,
    /// Bytes written to sockets.
    pub output_bytes: Counter,
    /// Reads from sockets that returned something.
    pub reads: Counter,
    /// Those that filled their buffer: the rest waits for the connection's next turn.
    pub yields: Counter,
    /// Writes to sockets that took something.
    pub writes: Counter,
    /// Connections closed because too much output waited.
    pub output_limit_closes: Counter,
    /// Connections closed because too much input waited.
    pub query_limit_closes: Counter,
    /// Connections closed because requests took too much memory.
    pub shed_closes: Counter,
    /// Connections closed because they were idle.
    pub idle_closes: Counter,
    /// Requests that broke the protocol.
    pub protocol_errors: Counter,
    pub(crate) batches: Counter,
    /// Batches by size: element `i` counts those of up to 2^i requests (the last one: any).
    pub(crate) batch_sizes: [Counter; BATCH_SIZES],
    pub(crate) batch_requests: Counter,
    pub(crate) commands: Box<[CommandCounters]>,
    latencies: Box<[OnceLock<Box<Histogram>>]>,
    errors: Mutex<BTreeMap<Box<str>, u64>>,
}

/// Classes of batch sizes: up to 1, 2, 4, … 1024, and more.
pub(crate) const BATCH_SIZES: usize = 12;

impl WorkerStatistics {
    fn new(commands: usize) -> Self {
        Self {
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            yields: Counter::default(),
            writes: Counter::default(),
            output_limit_closes: Counter::default(),
            query_limit_closes: Counter::default(),
            shed_closes: Counter::default(),
            idle_closes: Counter::default(),
            protocol_errors: Counter::default(),
            batches: Counter::default(),
            batch_sizes: [const { Counter(AtomicU64::new(0)) }; BATCH_SIZES],
            batch_requests: Counter::default(),
            commands: (0..commands).map(|_| CommandCounters::default()).collect(),
            latencies: (0..commands).map(|_| OnceLock::new()).collect(),
            errors: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn record_latency(&self, command: u16, nanoseconds: u64, count: u64) {
        self.latencies[usize::from(command)]
            .get_or_init(Box::default)
            .record(nanoseconds, count);
    }

    pub(crate) fn record_batch(&self, requests: u64) {
        let class = requests.next_power_of_two().trailing_zeros() as usize;
        self.batches.add(1);
        self.batch_requests.add(requests);
        self.batch_sizes[class.min(BATCH_SIZES - 1)].add(1);
    }

    /// Counts an error reply by the first word of its text; these words are the server's own, so
    /// there are few.
    pub(crate) fn record_error(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or_default();
        let mut errors = lock(&self.errors);
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else {
            errors.insert(code.into(), 1);
        }
    }
}

/// One command's totals over all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandFigures {
    pub(crate) calls: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    /// `None` when no latency was recorded.
    pub(crate) latencies: Option<Counts>,
}

/// Totals over all workers at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) yields: u64,
    pub(crate) writes: u64,
    pub(crate) output_limit_closes: u64,
    pub(crate) query_limit_closes: u64,
    pub(crate) shed_closes: u64,
    pub(crate) idle_closes: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) batches: u64,
    pub(crate) batch_requests: u64,
    pub(crate) batch_sizes: [u64; BATCH_SIZES],
    pub(crate) commands: Vec<CommandFigures>,
    pub(crate) errors: BTreeMap<Box<str>, u64>,
    pub(crate) connections_received: u64,
    pub(crate) connections_rejected: u64,
    pub(crate) database: pando_db::Statistics,
}

impl Figures {
    /// Commands executed.
    pub(crate) fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls).sum()
    }

    /// Error replies.
    pub(crate) fn error_replies(&self) -> u64 {
        self.errors.values().sum()
    }

    fn add(&mut self, worker: &WorkerStatistics) {
        self.input_bytes += worker.input_bytes.get();
        self.output_bytes += worker.output_bytes.get();
        self.reads += worker.reads.get();
        self.yields += worker.yields.get();
        self.writes += worker.writes.get();
        self.output_limit_closes += worker.output_limit_closes.get();
        self.query_limit_closes += worker.query_limit_closes.get();
        self.shed_closes += worker.shed_closes.get();
        self.idle_closes += worker.idle_closes.get();
        self.protocol_errors += worker.protocol_errors.get();
        self.batches += worker.batches.get();
        self.batch_requests += worker.batch_requests.get();
        for (sum, class) in self.batch_sizes.iter_mut().zip(&worker.batch_sizes) {
            *sum += class.get();
        }
        for (number, command) in worker.commands.iter().enumerate() {
            let sum = &mut self.commands[number];
            sum.calls += command.calls.get();
            sum.nanoseconds += command.nanoseconds.get();
            sum.rejected += command.rejected.get();
            sum.failed += command.failed.get();
            if let Some(histogram) = worker.latencies[number].get() {
                sum.latencies.get_or_insert_default().add(histogram);
            }
        }
        for (code, count) in &*lock(&worker.errors) {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }

    /// Subtracts `base` (SC2).
    fn since(&mut self, base: &Self) {
        let less = |now: &mut u64, before: u64| *now = now.saturating_sub(before);
        less(&mut self.input_bytes, base.input_bytes);
        less(&mut self.output_bytes, base.output_bytes);
        less(&mut self.reads, base.reads);
        less(&mut self.yields, base.yields);
        less(&mut self.writes, base.writes);
        less(&mut self.output_limit_closes, base.output_limit_closes);
        less(&mut self.query_limit_closes, base.query_limit_closes);
        less(&mut self.shed_closes, base.shed_closes);
        less(&mut self.idle_closes, base.idle_closes);
        less(&mut self.protocol_errors, base.protocol_errors);
        less(&mut self.batches, base.batches);
        less(&mut self.batch_requests, base.batch_requests);
        less(&mut self.connections_received, base.connections_received);
        less(&mut self.connections_rejected, base.connections_rejected);
        for (now, before) in self.batch_sizes.iter_mut().zip(base.batch_sizes) {
            less(now, before);
        }
        for (now, before) in self.commands.iter_mut().zip(&base.commands) {
            less(&mut now.calls, before.calls);
            less(&mut now.nanoseconds, before.nanoseconds);
            less(&mut now.rejected, before.rejected);
            less(&mut now.failed, before.failed);
            if let (Some(now), Some(before)) = (&mut now.latencies, &before.latencies) {
                now.since(before);
            }
        }
        for (code, before) in &base.errors {
            if let Some(now) = self.errors.get_mut(code) {
                less(now, *before);
            }
        }
        self.errors.retain(|_, count| *count > 0);
        self.database = self.database.since(base.database);
    }
}

/// The counters of all workers and the base that CONFIG RESETSTAT sets.
#[derive(Debug)]
pub struct Statistics {
    workers: Box<[Arc<WorkerStatistics>]>,
    commands: usize,
    base: Mutex<Option<Box<Figures>>>,
}

impl Statistics {
    pub(crate) fn new(workers: usize, index: &CommandIndex) -> Self {
        let worker = |_| Arc::new(WorkerStatistics::new(index.len()));
        Self {
            workers: (0..workers).map(worker).collect(),
            commands: index.len(),
            base: Mutex::default(),
        }
    }

    /// The counters of worker `index`.
    #[must_use]
    pub fn worker(&self, index: usize) -> &Arc<WorkerStatistics> {
        &self.workers[index]
    }

    /// The totals from which rates are computed.
    pub(crate) fn sample(&self, at_ms: u64) -> Sample {
        let mut sample = Sample {
            at_ms,
            ..Sample::default()
        };
        for worker in &self.workers {
            sample.calls += worker
                .commands
                .iter()
                .map(|command| command.calls.get())
                .sum::<u64>();
            sample.input_bytes += worker.input_bytes.get();
            sample.output_bytes += worker.output_bytes.get();
        }
        sample
    }

    /// Everything counted since the start. O(workers × commands). The caller adds the counts of
    /// connections and the database.
    pub(crate) fn total(&self) -> Figures {
        let commands = vec![CommandFigures::default(); self.commands];
        let mut figures = Figures {
            commands,
            ..Figures::default()
        };
        for worker in &self.workers {
            figures.add(worker);
        }
        figures
    }

    /// Subtracts from `total` the values at the last reset.
    pub(crate) fn since_reset(&self, mut total: Figures) -> Figures {
        if let Some(base) = &*lock(&self.base) {
            total.since(base);
        }
        total
    }

    /// Restarts counting at `total`.
    pub(crate) fn reset(&self, total: Figures) {
        *lock(&self.base) = Some(Box::new(total));
    }
}
