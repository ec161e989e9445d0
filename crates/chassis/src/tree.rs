//! How many keys a tree has, and the totals of an engine's trees.

use pando_engine::Gauge;
use pando_sync::Padded;
use pando_sync::shim::unmodelled::{AtomicI64, Ordering};

/// Sets of counts, so that sessions do not write the same line.
const SHARDS: usize = 16;

#[derive(Default)]
struct Shard {
    keys: AtomicI64,
    tombstones: AtomicI64,
}

/// Keys and tombstones of one tree. Each session counts on its own shard while there are no more
/// sessions than shards.
#[derive(Default)]
pub struct KeyCounts([Padded<Shard>; SHARDS]);

impl KeyCounts {
    /// Counts a commit; `session` is the session's number.
    #[inline]
    pub fn add(&self, session: usize, keys: i64, tombstones: i64) {
        let shard = &self.0[session % SHARDS];
        if keys != 0 {
            shard.keys.fetch_add(keys, Ordering::Relaxed);
        }
        if tombstones != 0 {
            shard.tombstones.fetch_add(tombstones, Ordering::Relaxed);
        }
    }

    fn sum(&self, of: fn(&Shard) -> &AtomicI64) -> u64 {
        let counts = self.0.iter().map(|shard| of(shard).load(Ordering::Relaxed));
        // Shards are read one after another, so a key that moves between them may count as -1.
        counts.sum::<i64>().max(0) as u64
    }

    /// Keys with a value.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.sum(|shard| &shard.keys)
    }

    /// Keys with a tombstone.
    #[must_use]
    pub fn tombstones(&self) -> u64 {
        self.sum(|shard| &shard.tombstones)
    }

    /// Keys with a value or a tombstone.
    #[must_use]
    pub fn entries(&self) -> usize {
        (self.keys() + self.tombstones()) as usize
    }
}

/// Totals over an engine's trees.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeySums {
    /// The number of trees.
    pub trees: u64,
    /// See [`KeyCounts::keys`].
    pub keys: u64,
    /// See [`KeyCounts::tombstones`].
    pub tombstones: u64,
}

impl KeySums {
    /// Adds one tree.
    pub fn add(&mut self, counts: &KeyCounts) {
        self.trees += 1;
        self.keys += counts.keys();
        self.tombstones += counts.tombstones();
    }

    /// Reports the gauges that every engine has, and dropped trees.
    pub fn report(&self, dropped_trees: usize, report: &mut dyn FnMut(Gauge)) {
        let of_trees = Gauge::of_trees(self.trees, self.keys, self.tombstones);
        of_trees.into_iter().for_each(&mut *report);
        report(Gauge {
            name: "dropped_trees",
            help: "Dropped trees that are not freed yet.",
            value: dropped_trees as f64,
        });
    }
}
