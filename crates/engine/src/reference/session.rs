//! A thread's session: point operations and scans on the reference engine.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_sync::shim::unmodelled::Ordering;

use super::map::Map;
use super::runs::{Runs, Sought};
use super::{ReferenceEngine, SCAN_CHUNK_ENTRIES, Tree};
use crate::{
    CommitHook, Decision, Direction, Engine, Hand, Key, NewValue, Ordered, OrderedAt, Outcome,
    Point, Probe, ReadAt, Restore, Snapshot, Transactional, TreeId, ValueRef, ValueVersion,
    sweep_in_order,
};

/// A session of the reference engine; dropping it frees its place.
pub struct ReferenceSession {
    engine: Arc<ReferenceEngine>,
    runs: Runs,
}

impl ReferenceSession {
    pub(super) fn new(engine: Arc<ReferenceEngine>) -> Self {
        let runs = Runs::new(engine.absences.unwrap_or_default());
        Self { engine, runs }
    }

    /// Whether its runs may have to be repeated ([`crate::ReferenceOptions::absences`]).
    #[inline]
    #[must_use]
    pub fn has_absences(&self) -> bool {
        self.engine.absences.is_some()
    }

    /// Shows the tree to `read`, as the current run sees it, if there is one.
    fn read<R>(
        &mut self,
        tree: TreeId,
        sought: &Sought<'_>,
        read: impl FnOnce(Option<&Map>) -> R,
    ) -> R {
        if self.runs.is_under_way() {
            return read(self.runs.map(&self.engine, tree, sought).map(|map| &*map));
        }
        match self.engine.tree(tree) {
            Some(tree) => read(Some(&tree.read())),
            None => read(None),
        }
    }

    /// Frees up to `steps` entries of dropped trees; returns how many.
    fn free_dropped(&self, steps: usize) -> usize {
        let mut done = 0;
        while done < steps {
            let Some(mut map) = self.engine.dropped().pop() else {
                break;
            };
            done += map.free(steps - done);
            if map.entries() > 0 {
                self.engine.dropped().push(map);
            }
        }
        done
    }
}

impl Drop for ReferenceSession {
    fn drop(&mut self) {
        self.engine.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for ReferenceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceSession").finish_non_exhaustive()
    }
}

impl Point for ReferenceSession {
    fn pin(&mut self) {}

    fn unpin(&mut self) {}

    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        key.check();
        self.read(key.tree, &Sought::Key(key.bytes), |map| {
            read(map.and_then(|map| map.get(key.bytes)))
        })
    }

    fn warm(&mut self, _: &[Key<'_>]) {}

    fn probe(&mut self, key: Key<'_>) -> Probe {
        key.check();
        self.read(key.tree, &Sought::Key(key.bytes), |map| {
            map.map_or(Probe::Absent, |map| map.probe(key.bytes))
        })
    }

    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        key.check();
        if self.runs.is_under_way() {
            let sought = Sought::Key(key.bytes);
            let Some(map) = self.runs.map(&self.engine, key.tree, &sought) else {
                decide(None);
                return None;
            };
            return map.update(key, &self.engine.clock, hook, decide).0;
        }
        let Some(tree) = self.engine.tree(key.tree) else {
            // The write is lost, but its closure may carry a result out.
            decide(None);
            return None;
        };
        let mut map = tree.write();
        // The epoch is read under the lock, so that those along a tree's commits never decrease.
        let (version, garbage) = map.update(key, &self.engine.clock, hook, decide);
        drop(map);
        drop(garbage);
        version
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        self.read(tree, &Sought::Some(b"sample"), |map| {
            read(map.and_then(|map| map.sample(random)))
        })
    }

    fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        sweep_in_order(self, tree, hand, steps, visit)
    }

    fn maintain(&mut self, steps: usize) -> usize {
        if self.engine.clock.is_self_driven() {
            // Nobody else does, so all present tombstones may be forgotten.
            self.engine.clock.tick();
        }
        let horizon = self.engine.clock.horizon();
        let mut done = 0;
        for tree in self.engine.all_trees() {
            // One step per hold of the lock: writers never wait for a purge.
            while done < steps && tree.write().purge(horizon, 1) == 1 {
                done += 1;
            }
        }
        done + self.free_dropped(steps - done)
    }
}

impl Restore for ReferenceSession {
    fn restore(
        &mut self,
        key: Key<'_>,
        version: ValueVersion,
        value: Option<NewValue<'_>>,
    ) -> bool {
        key.check();
        let Some(tree) = self.engine.tree(key.tree) else {
            return false;
        };
        let value = value.map(NewValue::into_stored);
        let mut map = tree.write();
        let (restored, garbage) = map.restore(key.bytes, version, value);
        drop(map);
        drop(garbage);
        restored
    }
}

impl Ordered for ReferenceSession {
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        let mut resume: Option<Vec<u8>> = None;
        // Looked up anew for every chunk: a dropped tree reads as empty.
        loop {
            let from = resume.as_deref().map_or(from, Bound::Excluded);
            let sought = match from {
                Bound::Included(key) | Bound::Excluded(key) => Sought::Some(key),
                Bound::Unbounded => Sought::Some(b"ends"),
            };
            let chunk = self.read(tree, &sought, |map| {
                map?.scan_chunk(from, direction, SCAN_CHUNK_ENTRIES, &mut visit)
                    .continue_value()
            });
            match chunk {
                Some(last) => resume = Some(last),
                None => return,
            }
        }
    }

    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        let tree = self.engine.tree(tree);
        tree.map_or_else(Vec::new, |tree| tree.read().boundaries(parts))
    }
}

impl ReferenceSession {
    /// The tree as it was (SN1 past-stands).
    fn tree_at(&self, at: Snapshot, tree: TreeId) -> Option<Arc<Tree>> {
        let frozen = self.engine.frozen();
        let trees = frozen.get(&at).expect("the snapshot is not released");
        trees.get(&tree).map(|frozen| Arc::clone(&frozen.tree))
    }
}

impl ReadAt for ReferenceSession {
    fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        key.check();
        match self.tree_at(at, key.tree) {
            Some(tree) => read(tree.read().get(key.bytes)),
            None => read(None),
        }
    }

    fn sample_at<R>(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        match self.tree_at(at, tree) {
            Some(tree) => read(tree.read().sample(random)),
            None => read(None),
        }
    }
}

impl OrderedAt for ReferenceSession {
    fn scan_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        if let Some(tree) = self.tree_at(at, tree) {
            // Nobody changes it, so nobody waits for the lock.
            let mut shown = |key: &[u8], value: ValueRef<'_>| visit(key, Some(value));
            let _ = tree
                .read()
                .scan_chunk(from, direction, usize::MAX, &mut shown);
        }
    }
}

impl Transactional for ReferenceSession {
    fn begin_run(&mut self) {
        self.runs.begin();
    }

    fn is_blind(&self) -> bool {
        self.runs.is_blind()
    }

    fn end_run_if(&mut self, may: impl Fn() -> bool) -> Outcome {
        self.runs.end(&self.engine, &may)
    }

    fn len(&self, tree: TreeId) -> u64 {
        let copied = self.runs.len(tree);
        copied.map_or_else(|| self.engine.len(tree), |keys| keys as u64)
    }
}
