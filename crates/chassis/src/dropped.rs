//! Dropped trees, freed step by step once nobody can reach them.

use std::sync::Arc;

use pando_sync::epoch::ReclaimEpoch;
use pando_sync::shim::unmodelled::{AtomicUsize, Ordering};
use pando_sync::shim::{Mutex, lock};

struct Dropped<T, P> {
    tree: Arc<T>,
    stamp: ReclaimEpoch,
    /// How far its memory is freed.
    progress: P,
}

/// What was done with a tree.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// Steps that were taken.
    pub steps: usize,
    /// Nothing of it is left.
    pub whole: bool,
}

/// The dropped trees of an engine, each with its progress.
pub struct DroppedTrees<T, P> {
    trees: Mutex<Vec<Dropped<T, P>>>,
    /// A hint that saves the mutex.
    count: AtomicUsize,
}

impl<T, P> Default for DroppedTrees<T, P> {
    fn default() -> Self {
        Self {
            trees: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }
}

impl<T, P: Default> DroppedTrees<T, P> {
    /// Queues a tree that was taken out of the directory before `stamp` was drawn.
    pub fn push(&self, tree: Arc<T>, stamp: ReclaimEpoch) {
        let mut trees = lock(&self.trees);
        trees.push(Dropped {
            tree,
            stamp,
            progress: P::default(),
        });
        self.count.store(trees.len(), Ordering::Relaxed);
    }

    /// Trees that are not freed yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes up to `steps` steps to free trees whose stamp has passed; returns how many. `free`
    /// gets the tree, its stamp, its progress and the steps left.
    pub fn free(
        &self,
        steps: usize,
        has_passed: impl Fn(ReclaimEpoch) -> bool,
        mut free: impl FnMut(&T, ReclaimEpoch, &mut P, usize) -> Freed,
    ) -> usize {
        if self.count() == 0 {
            return 0;
        }
        let mut trees = lock(&self.trees);
        let mut done = 0;
        while done < steps {
            let Some(index) = trees.iter().position(|tree| has_passed(tree.stamp)) else {
                break;
            };
            let dropped = &mut trees[index];
            let (stamp, progress) = (dropped.stamp, &mut dropped.progress);
            let freed = free(&dropped.tree, stamp, progress, steps - done);
            debug_assert!(freed.steps <= steps - done);
            done += freed.steps;
            if freed.whole {
                trees.swap_remove(index);
                self.count.store(trees.len(), Ordering::Relaxed);
            } else if freed.steps == 0 {
                break;
            }
        }
        done
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use pando_sync::epoch::Collector;

    #[test]
    fn a_tree_is_freed_by_steps_and_not_before_its_stamp_has_passed() {
        let collector = Collector::<()>::new(1, 1);
        let trees = DroppedTrees::<usize, usize>::default();
        trees.push(Arc::new(5), collector.stamp());
        let free = |steps| {
            let passed = |stamp| collector.has_passed(stamp);
            trees.free(steps, passed, |tree, _, gone, left| {
                let steps = left.min(*tree - *gone);
                *gone += steps;
                let whole = gone == tree;
                Freed { steps, whole }
            })
        };
        assert_eq!((free(9), trees.count()), (0, 1));
        for _ in 0..3 {
            collector.try_advance();
        }
        assert_eq!((free(2), trees.count()), (2, 1));
        assert_eq!((free(9), trees.count()), (3, 0));
        assert_eq!(free(9), 0);
    }
}
