//! What the engine says of itself, wear included.

use pando_engine::Gauge;
use pando_pmem::{Pmem, Wear};

use super::{Cdds, Counted};

impl Cdds {
    pub(super) fn report(&self, report: &mut dyn FnMut(Gauge)) {
        let state = self.read();
        let live = state.trees.values().filter(|tree| !tree.dropped);
        let keys: u64 = live.clone().map(Counted::keys).sum();
        let tombstones = state.graves.count() as u64;
        let of_trees = Gauge::of_trees(live.count() as u64, keys, tombstones);
        of_trees.into_iter().for_each(&mut *report);
        let mut figure = |name, help, value: f64| report(Gauge { name, help, value });
        figure(
            "committed_epoch",
            "The newest epoch that is durable.",
            state.tree.pool.committed().0 as f64,
        );
        figure(
            "decoded_bytes",
            "Bytes of wide rows that are kept in ordinary memory as they are read.",
            self.decoded.bytes() as f64,
        );
        let Wear { lines, bytes } = state.tree.pool.memory().wear();
        let [updates] = self.updates.sums();
        let per_update = |count: u64| count as f64 / updates.max(1) as f64;
        figure(
            "updates_total",
            "Updates of keys, removals included.",
            updates as f64,
        );
        figure(
            "pool_written_lines_total",
            "Lines of 64 bytes that were sent to the pool; none where it lies in shared memory.",
            lines as f64,
        );
        figure(
            "pool_written_bytes_total",
            "Bytes stored in these lines.",
            bytes as f64,
        );
        figure(
            "pool_lines_per_update",
            "Lines sent to the pool for each update, those of commits and of cleaning up included.",
            per_update(lines),
        );
        figure(
            "pool_bytes_per_update",
            "Bytes stored in these lines for each update.",
            per_update(bytes),
        );
    }
}
