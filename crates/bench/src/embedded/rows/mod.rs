//! Rows of columns in process: MYCSB and YCSB on our engine and on embedded peers.
//!
//! Our engine stores a row as the server stores a hash, columns found by name. A peer stores a row
//! as one block of columns of equal size, found by number, which is less work; the crates have
//! nothing nearer to it.

mod peers;
mod row;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clap::Args;

use super::EmbeddedError;
use super::targets::TargetName;
use super::threads::{on_threads, print_rate, share};
use crate::distribution::Distribution;
use crate::workload::{Step, Stream, Workload, WorkloadName};
use peers::{DashRows, LockedRows, PapayaRows, SccRows, SkipRows};
use row::{EngineRows, HashRows};

type MasstreeRows = EngineRows<pando_masstree::Masstree>;
type MercuryRows = HashRows<pando_mercury::Mercury>;

/// One workload on one target, in this process.
#[derive(Debug, Args)]
pub(crate) struct RowsOptions {
    #[arg(long, value_enum)]
    workload: WorkloadName,
    #[arg(long)]
    target: TargetName,
    /// Items before the first step.
    #[arg(long)]
    keys: usize,
    /// Steps over all threads.
    #[arg(long)]
    steps: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long, value_enum)]
    distribution: Option<Distribution>,
    #[arg(long)]
    columns: Option<usize>,
    #[arg(long)]
    column_bytes: Option<usize>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Steps of a turn, at most: a batch of the server's.
const TURN_STEPS: usize = 128;

/// Rows under measurement, shared by threads.
pub(super) trait Rows: Sync + Sized {
    type Worker<'t>: RowWorker
    where
        Self: 't;

    /// For rows of this many columns of this many bytes.
    fn new(columns: usize, column_bytes: usize) -> Self;
    fn worker(&self) -> Self::Worker<'_>;
}

/// One thread's access. `row` is a row's columns side by side. A read takes a row's columns one by
/// one and adds up their figures, so that nothing is optimised away; `None` says that the key is
/// not there.
pub(super) trait RowWorker {
    /// Called between [`TURN_STEPS`] steps, as a server's turns end and begin: a guard of what is
    /// read without a lock is held for a turn.
    fn turn(&mut self) {}

    fn insert(&mut self, key: &[u8], row: &[u8]);
    fn update(&mut self, key: &[u8], column: usize, value: &[u8]);
    fn read(&mut self, key: &[u8]) -> Option<u64>;

    /// Reads up to `limit` rows from `start` on, one column of each or all; how many there were.
    /// `None` when the target has no order.
    fn scan(&mut self, _start: &[u8], _limit: usize, _one_column: bool) -> Option<usize> {
        None
    }
}

/// A figure of a column that is read, eight bytes at a time, the last of which may overlap those
/// before: the same little work for every target.
#[inline]
fn figure(column: &[u8]) -> u64 {
    let Some(last) = column.last_chunk() else {
        return figure_of_short(column);
    };
    let (words, rest) = column.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let last = if rest.is_empty() {
        0
    } else {
        u64::from_le_bytes(*last)
    };
    words.fold(last, u64::wrapping_add)
}

/// [`figure`] of less than eight bytes.
#[inline]
fn figure_of_short(column: &[u8]) -> u64 {
    match (column.first_chunk(), column.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) + u64::from(u32::from_le_bytes(*last))
        }
        _ => column.iter().map(|byte| u64::from(*byte)).sum(),
    }
}

pub(crate) fn run_rows(options: &RowsOptions) -> Result<(), EmbeddedError> {
    match options.target {
        TargetName::Masstree => measure::<MasstreeRows>(options),
        TargetName::MercuryOptimistic => measure::<MercuryRows>(options),
        TargetName::BTreeLock => measure::<LockedRows>(options),
        TargetName::SkipList => measure::<SkipRows>(options),
        TargetName::DashMap => measure::<DashRows>(options),
        TargetName::PapayaMap => measure::<PapayaRows>(options),
        TargetName::SccMap => measure::<SccRows>(options),
        other => Err(EmbeddedError::NoRows(other)),
    }
}

impl RowsOptions {
    fn workload(&self) -> Workload {
        let mut workload = self.workload.workload();
        if let Some(distribution) = self.distribution {
            workload.distribution = distribution;
        }
        workload.columns = Some(self.columns.or(workload.columns).unwrap_or(1));
        workload.column_bytes = self.column_bytes.unwrap_or(workload.column_bytes);
        workload
    }
}

fn measure<R: Rows>(options: &RowsOptions) -> Result<(), EmbeddedError> {
    let workload = options.workload();
    let (columns, column_bytes) = (workload.columns.unwrap_or(1), workload.column_bytes);
    let threads = options.threads;
    let rows = R::new(columns, column_bytes);
    let row = vec![1_u8; columns * column_bytes];
    let fill = |worker: &mut R::Worker<'_>, thread| {
        let mut key = Vec::new();
        for (done, item) in share(options.keys, threads, thread).enumerate() {
            if done % TURN_STEPS == 0 {
                worker.turn();
            }
            workload.naming.write(item as u64, &mut key);
            worker.insert(&key, &row);
        }
        0
    };
    on_threads(threads, || rows.worker(), fill);
    let probe = rows.worker().scan(b"", 1, true);
    if workload.mix.scan > 0 && probe.is_none() {
        return Err(EmbeddedError::NoOrder(options.target));
    }

    let items = Arc::new(AtomicU64::new(options.keys as u64));
    // Made once, and not while the clock runs: a Zipfian draw needs a sum over all items.
    let steps = Stream::new(workload, &items, options.seed);
    let run = |worker: &mut R::Worker<'_>, thread: usize| {
        let mut stream = steps.clone().seeded(options.seed + thread as u64);
        let (mut key, mut missing) = (Vec::new(), 0);
        let value = vec![2; column_bytes];
        for (done, _) in share(options.steps, threads, thread).enumerate() {
            if done % TURN_STEPS == 0 {
                worker.turn();
            }
            match stream.step() {
                Step::Read { item } => {
                    workload.naming.write(item, &mut key);
                    // Another thread may not have finished to insert a newer item.
                    let absent = worker.read(&key).is_none();
                    missing += u64::from(absent && item < options.keys as u64);
                }
                Step::Update { item, column } => {
                    workload.naming.write(item, &mut key);
                    worker.update(&key, column, &value);
                }
                Step::Insert { item } => {
                    workload.naming.write(item, &mut key);
                    worker.insert(&key, &row);
                }
                Step::Scan { item, keys } => {
                    workload.naming.write(item, &mut key);
                    let found = worker.scan(&key, keys, workload.scan_one_column);
                    missing += u64::from(found == Some(0) && item < options.keys as u64);
                }
                Step::ReadModifyWrite { item, column } => {
                    workload.naming.write(item, &mut key);
                    missing += u64::from(worker.read(&key).is_none());
                    worker.update(&key, column, &value);
                }
            }
        }
        missing
    };
    let (seconds, missing) = on_threads(threads, || rows.worker(), run);
    if missing > 0 {
        return Err(EmbeddedError::Missing {
            target: options.target,
            missing,
        });
    }
    print_rate("operations, million/s", options.steps, seconds);
    Ok(())
}

/// The targets that have rows.
#[cfg(test)]
const TARGETS: [TargetName; 7] = [
    TargetName::Masstree,
    TargetName::BTreeLock,
    TargetName::SkipList,
    TargetName::DashMap,
    TargetName::PapayaMap,
    TargetName::SccMap,
    TargetName::MercuryOptimistic,
];

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_workload_runs_on_every_target_that_can() {
        for workload in WorkloadName::value_variants() {
            for target in TARGETS {
                let options = RowsOptions {
                    workload: *workload,
                    target,
                    keys: 500,
                    steps: 1000,
                    threads: 2,
                    distribution: None,
                    columns: None,
                    column_bytes: None,
                    seed: 1,
                };
                let ordered = target <= TargetName::SkipList;
                let scans = workload.workload().mix.scan > 0;
                match run_rows(&options) {
                    Ok(()) => assert!(ordered || !scans),
                    Err(EmbeddedError::NoOrder(_)) => assert!(!ordered && scans),
                    Err(error) => panic!("{} on {target}: {error}", workload.name()),
                }
            }
        }
    }

    fn reads_what_was_written<R: Rows>() {
        let rows = R::new(3, 2);
        let mut worker = rows.worker();
        worker.insert(b"b", &[1; 6]);
        worker.insert(b"a", &[1; 6]);
        assert_eq!(worker.read(b"b"), Some(6));
        worker.update(b"b", 1, &[5, 5]);
        assert_eq!(worker.read(b"b"), Some(14));
        assert_eq!(worker.read(b"c"), None);
        if let Some(found) = worker.scan(b"a", 9, true) {
            assert_eq!(found, 2);
            assert_eq!(worker.scan(b"b", 9, false), Some(1));
            assert_eq!(worker.scan(b"a", 1, false), Some(1));
        }
    }

    #[test]
    fn every_target_reads_what_was_written() {
        reads_what_was_written::<MasstreeRows>();
        reads_what_was_written::<MercuryRows>();
        reads_what_was_written::<LockedRows>();
        reads_what_was_written::<SkipRows>();
        reads_what_was_written::<DashRows>();
        reads_what_was_written::<PapayaRows>();
        reads_what_was_written::<SccRows>();
    }
}
