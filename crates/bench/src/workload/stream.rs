//! The steps of a workload, drawn one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use super::Workload;
use crate::distribution::Chooser;

/// One step. Items are numbers; [`super::KeyNaming`] makes keys of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads the value, or all columns.
    Read { item: u64 },
    /// Replaces the value, or one column.
    Update { item: u64, column: usize },
    /// Writes a row that is not there.
    Insert { item: u64 },
    /// Reads adjacent keys, beginning at an item's.
    Scan { item: u64, keys: usize },
    /// Reads all columns, then writes one.
    ReadModifyWrite { item: u64, column: usize },
}

/// One thread's steps. Threads share the number of items, which inserts raise.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    workload: Workload,
    chooser: Chooser,
    random: Rng,
    items: Arc<AtomicU64>,
    columns: usize,
}

impl Stream {
    /// Over the first `items` items; streams that share it never insert the same item.
    pub(crate) fn new(workload: Workload, items: &Arc<AtomicU64>, seed: u64) -> Self {
        let count = items.load(Ordering::Relaxed);
        Self {
            workload,
            chooser: Chooser::new(workload.distribution, count, workload.theta),
            random: Rng::with_seed(seed),
            items: Arc::clone(items),
            columns: workload.columns.unwrap_or(1),
        }
    }

    /// The same with other draws.
    pub(crate) fn seeded(mut self, seed: u64) -> Self {
        self.random = Rng::with_seed(seed);
        self
    }

    pub(crate) fn step(&mut self) -> Step {
        let mix = self.workload.mix;
        let mut dice = self.random.u8(..100);
        let mut falls_in = |share: u8| {
            let inside = dice < share;
            dice = dice.wrapping_sub(share);
            inside
        };
        if falls_in(mix.read) {
            Step::Read { item: self.item() }
        } else if falls_in(mix.update) {
            let column = self.random.usize(..self.columns);
            Step::Update {
                item: self.item(),
                column,
            }
        } else if falls_in(mix.insert) {
            Step::Insert {
                item: self.items.fetch_add(1, Ordering::Relaxed),
            }
        } else if falls_in(mix.scan) {
            let keys = self.random.usize(1..=self.workload.scan_keys_max);
            Step::Scan {
                item: self.item(),
                keys,
            }
        } else {
            let column = self.random.usize(..self.columns);
            Step::ReadModifyWrite {
                item: self.item(),
                column,
            }
        }
    }

    fn item(&mut self) -> u64 {
        if self.workload.mix.insert == 0 {
            return self.chooser.draw(&mut self.random);
        }
        let count = self.items.load(Ordering::Relaxed);
        self.chooser.draw_of(count, &mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::super::WorkloadName;
    use super::*;

    const STEPS: u64 = 50_000;

    fn shared(items: u64) -> Arc<AtomicU64> {
        Arc::new(AtomicU64::new(items))
    }

    #[test]
    fn steps_come_in_their_shares() {
        let mut stream = Stream::new(WorkloadName::MycsbE.workload(), &shared(1000), 3);
        let (mut scans, mut keys_sum) = (0_u64, 0);
        for _ in 0..STEPS {
            match stream.step() {
                Step::Scan { keys, .. } => {
                    scans += 1;
                    keys_sum += keys as u64;
                }
                Step::Update { column, .. } => assert!(column < 10),
                other => panic!("{other:?} in MYCSB-E"),
            }
        }
        let share = scans as f64 / STEPS as f64;
        assert!((share - 0.95).abs() < 0.01, "{share} scans");
        let mean = keys_sum as f64 / scans as f64;
        assert!((mean - 50.5).abs() < 1.0, "{mean} keys per scan");
    }

    #[test]
    fn reads_follow_the_inserts() {
        let items = shared(1000);
        let mut stream = Stream::new(WorkloadName::YcsbD.workload(), &items, 3);
        let mut inserted = 0;
        let mut newest_read = 0;
        for _ in 0..STEPS {
            match stream.step() {
                Step::Insert { item } => {
                    assert_eq!(item, 1000 + inserted);
                    inserted += 1;
                }
                Step::Read { item } => {
                    assert!(item < 1000 + inserted);
                    newest_read = newest_read.max(item);
                }
                other => panic!("{other:?} in YCSB-D"),
            }
        }
        assert!(newest_read > 1000 + inserted - 10, "latest means latest");
    }
}
