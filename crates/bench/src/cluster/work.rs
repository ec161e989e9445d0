//! What clients have proxies do.

use fastrand::Rng;
use pando_minuet::{
    Done, Program, Scanned, Step, Stop, Transaction, TreeId, View, create_snapshot,
};

use super::Asked;
use crate::embedded::value_of;

pub(super) const TREES: [TreeId; 2] = [TreeId(1), TreeId(2)];

/// Keys that one transaction of a scan reads, at most.
pub(super) const SCAN_PART: usize = 1000;

pub(super) fn draw_key(rng: &mut Rng) -> Vec<u8> {
    format!("user{:010}", rng.u64(..10_000_000_000)).into_bytes()
}

/// The keys of each tree, and those to come.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) there: Vec<Vec<u8>>,
    rng: Rng,
}

impl Keys {
    pub(super) fn draw(count: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let there = (0..count).map(|_| draw_key(&mut rng)).collect();
        Self { there, rng }
    }

    /// The keys of an operation, one for each tree.
    pub(super) fn of(&mut self, asked: Asked) -> Vec<Vec<u8>> {
        (0..asked.trees())
            .map(|_| {
                if asked.is_insert() || self.there.is_empty() {
                    draw_key(&mut self.rng)
                } else {
                    self.there[self.rng.usize(..self.there.len())].clone()
                }
            })
            .collect()
    }

    /// Where a scan begins.
    pub(super) fn from(&mut self) -> Vec<u8> {
        draw_key(&mut self.rng)
    }
}

/// A transaction.
#[derive(Debug)]
pub(super) enum Work {
    /// Reads or writes a key of each tree.
    Rows {
        is_read: bool,
        keys: Vec<Vec<u8>>,
    },
    Snapshot,
    Scan {
        at: View,
        from: Vec<u8>,
        limit: usize,
    },
    Collect(Step),
}

/// What it returns.
#[derive(Debug)]
pub(super) enum Out {
    /// Whether all keys had their values, if they were read.
    Rows {
        is_right: bool,
    },
    Made(View),
    Scanned(Scanned),
    Collected(Done),
}

impl Program for Work {
    type Output = Out;

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<Out, Stop> {
        match self {
            Self::Rows { is_read, keys } => rows(transaction, *is_read, keys),
            Self::Snapshot => create_snapshot(transaction).map(Out::Made),
            Self::Scan { at, from, limit } => {
                let scanned = TREES[0].scan(transaction, *at, from, *limit)?;
                Ok(Out::Scanned(scanned))
            }
            Self::Collect(step) => step.run(transaction).map(Out::Collected),
        }
    }
}

fn rows(transaction: &mut Transaction<'_>, is_read: bool, keys: &[Vec<u8>]) -> Result<Out, Stop> {
    let tip = transaction.tip()?;
    // What is not here is fetched in one wave for all keys.
    let mut row = |(tree, key): (&TreeId, &Vec<u8>)| {
        let value = value_of(key).to_le_bytes();
        if is_read {
            let found = tree.get(transaction, tip, key)?;
            return Ok(found.value.as_deref() == Some(&value));
        }
        tree.put(transaction, tip, key, &value).map(|_| true)
    };
    let done: Vec<_> = TREES.iter().zip(keys).map(&mut row).collect();
    let mut is_right = true;
    for row in done {
        is_right &= row?;
    }
    Ok(Out::Rows { is_right })
}

/// Whether a scan has all that it was to have: every entry its value.
pub(super) fn is_right(scanned: &Scanned) -> bool {
    scanned
        .entries
        .iter()
        .all(|entry| entry.value == value_of(&entry.key).to_le_bytes())
}
