//! What Minuet's transactions cost in messages, counted: round trips, memnodes and bytes for each
//! operation of its paper's §6. One proxy, whose cache has the inner nodes after the load.

use clap::{Args, ValueEnum};
use fastrand::Rng;
use pando_minuet::{Config, Database, Stop, Transaction, TreeId, create_snapshot};

use super::EmbeddedError;
use super::keys::value_of;
use crate::arguments::count;

/// What the figures are called.
pub(crate) const ROUND_TRIPS: &str = "round trips";
pub(crate) const MEMNODES: &str = "memnodes";
pub(crate) const BYTES: &str = "bytes";

/// Operations that are counted, after the load.
const OPERATIONS: u64 = 2_000;
const SNAPSHOTS: u64 = 20;
const SCANS: u64 = 20;
/// Entries of a scan.
pub(crate) const SCANNED: usize = 1_000;
const TREES: [TreeId; 2] = [TreeId(1), TreeId(2)];

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Inserts into an empty tree.
    Load,
    Read,
    Update,
    Insert,
    /// Of a key in each of two trees.
    ReadTwo,
    UpdateTwo,
    InsertTwo,
    /// Making a snapshot.
    Snapshot,
    /// Updates right after one.
    UpdateAfterSnapshot,
    /// Scans of a thousand keys at one.
    Scan,
}

/// One operation, in this process; prints `name value` lines.
#[derive(Debug, Args)]
pub(crate) struct MinuetOptions {
    #[arg(long, value_enum)]
    operation: Operation,
    #[arg(long)]
    memnodes: u16,
    /// Keys of each tree.
    #[arg(long, value_parser = count)]
    keys: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Trees over memnodes in this process, and the keys that both have.
struct Subject {
    database: Database,
    keys: Vec<Vec<u8>>,
    rng: Rng,
}

fn draw(rng: &mut Rng) -> Vec<u8> {
    format!("user{:010}", rng.u64(..10_000_000_000)).into_bytes()
}

/// Counts what `options` name, in this process.
pub(crate) fn run_minuet(options: &MinuetOptions) -> Result<(), EmbeddedError> {
    let config = Config {
        memnodes: options.memnodes,
        ..Config::default()
    };
    let mut subject = Subject {
        database: Database::in_process(config).expect("memnodes of this process answer"),
        keys: Vec::new(),
        rng: Rng::with_seed(options.seed),
    };
    let operation = options.operation;
    if operation == Operation::Load {
        subject.database.count_traffic();
    }
    let trees = match operation {
        Operation::ReadTwo | Operation::UpdateTwo | Operation::InsertTwo => &TREES[..],
        _ => &TREES[..1],
    };
    for _ in 0..options.keys {
        let key = draw(&mut subject.rng);
        for tree in trees {
            subject.put(&[(*tree, &key)]);
        }
        subject.keys.push(key);
    }
    subject.operate(operation, trees)?;
    let traffic = subject.database.traffic().expect("it is counted");
    let each = |sum: u64| sum as f64 / traffic.transactions as f64;
    println!("{ROUND_TRIPS} {}", each(traffic.round_trips));
    println!("{MEMNODES} {}", each(traffic.memnodes));
    println!("{BYTES} {}", each(traffic.bytes));
    Ok(())
}

impl Subject {
    fn run<R>(&mut self, program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>) -> R {
        let run = self.database.run(program);
        run.expect("nobody is in the way of the only proxy")
    }

    /// Puts keys in one transaction.
    fn put(&mut self, rows: &[(TreeId, &[u8])]) {
        self.run(|transaction| {
            let tip = transaction.tip()?;
            rows.iter().try_for_each(|(tree, key)| {
                let value = value_of(key).to_le_bytes();
                tree.put(transaction, tip, key, &value).map(|_| ())
            })
        });
    }

    /// Runs the operations of one kind, counted. Of a load that is done already there are none.
    fn operate(&mut self, operation: Operation, trees: &[TreeId]) -> Result<(), EmbeddedError> {
        let mut at = None;
        match operation {
            Operation::Load => return Ok(()),
            Operation::UpdateAfterSnapshot | Operation::Scan => {
                at = Some(self.run(create_snapshot));
            }
            _ => {}
        }
        self.database.count_traffic();
        let (mut got, mut expected) = (0_u64, 0_u64);
        match operation {
            Operation::Snapshot => {
                for _ in 0..SNAPSHOTS {
                    self.run(create_snapshot);
                }
            }
            Operation::Scan => {
                let view = at.expect("it was made");
                for _ in 0..SCANS {
                    let from = self.drawn();
                    let scan = |transaction: &mut Transaction<'_>| {
                        trees[0].scan(transaction, view, &from, SCANNED)
                    };
                    for entry in self.run(scan).entries {
                        let value = entry.value.try_into().map_or(0, u64::from_le_bytes);
                        got = got.wrapping_add(value);
                        expected = expected.wrapping_add(value_of(&entry.key));
                    }
                }
            }
            _ => {
                for _ in 0..OPERATIONS {
                    let is_new = matches!(operation, Operation::Insert | Operation::InsertTwo);
                    let mut key = || {
                        if is_new {
                            draw(&mut self.rng)
                        } else {
                            self.drawn()
                        }
                    };
                    let keys: Vec<_> = trees.iter().map(|_| key()).collect();
                    let rows = trees.iter().zip(&keys);
                    let rows: Vec<_> = rows.map(|(tree, key)| (*tree, &key[..])).collect();
                    if !matches!(operation, Operation::Read | Operation::ReadTwo) {
                        self.put(&rows);
                        continue;
                    }
                    expected = rows
                        .iter()
                        .fold(expected, |sum, (_, key)| sum.wrapping_add(value_of(key)));
                    got = got.wrapping_add(self.get(&rows));
                }
            }
        }
        if got == expected {
            return Ok(());
        }
        let what = "the tree".into();
        Err(EmbeddedError::WrongSum {
            what,
            got,
            expected,
        })
    }

    /// A key that is there.
    fn drawn(&mut self) -> Vec<u8> {
        self.keys[self.rng.usize(..self.keys.len())].clone()
    }

    /// The sum of the values of keys that are read in one transaction.
    fn get(&mut self, rows: &[(TreeId, &[u8])]) -> u64 {
        self.run(|transaction| {
            let tip = transaction.tip()?;
            rows.iter().try_fold(0_u64, |sum, (tree, key)| {
                let value = tree.get(transaction, tip, key)?.value;
                let value = value.and_then(|value| value.try_into().ok());
                Ok(sum.wrapping_add(value.map_or(0, u64::from_le_bytes)))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_counted_and_answered_rightly() {
        for operation in Operation::value_variants() {
            for memnodes in [1, 2] {
                run_minuet(&MinuetOptions {
                    operation: *operation,
                    memnodes,
                    keys: 500,
                    seed: 1,
                })
                .unwrap_or_else(|error| panic!("{operation:?}: {error}"));
            }
        }
    }
}
