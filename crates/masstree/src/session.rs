//! A session: a thread's handle on the engine.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_block::BlockRef;
use pando_chassis::maintain_some;
use pando_engine::{
    CommitHook, Decision, Direction, Hand, Key, NewValue, NoHook, Ordered, Point, Probe, Relocate,
    Restore, Restored, Shown, TreeId, ValueRef, ValueVersion, sweep_in_order,
};
use pando_memory::pool::Need;

use crate::batch;
use crate::boundaries::boundaries;
use crate::context::Context;
use crate::engine::Masstree;
use crate::get::get;
use crate::limits::BATCH_KEYS_MAX;
use crate::node::Guard;
use crate::pack::restore_run;
use crate::recall::Spots;
use crate::relocate::relocate;
use crate::sample::sample;
use crate::scan::Scan;
use crate::task::{Tombstone, purge};
use crate::update::{Commit, Draw, Update};

/// A session of a [`Masstree`] with its own pin, pool and counters.
pub struct MasstreeSession {
    pub(crate) context: Context,
    spots: Spots,
    /// Last, so that it is dropped last: an engine being dropped expects all garbage handed over.
    pub(crate) engine: Arc<Masstree>,
}

impl fmt::Debug for MasstreeSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MasstreeSession")
            .field("session", &self.context.number())
            .finish_non_exhaustive()
    }
}

impl MasstreeSession {
    pub(crate) fn new(engine: Arc<Masstree>, context: Context) -> Self {
        Self {
            engine,
            context,
            spots: Spots::default(),
        }
    }

    #[inline]
    fn update_or_change<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        in_place: bool,
        mut decide: impl FnMut(&mut Shown<'_>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        key.check();
        let engine = &self.engine;
        let spot = self.spots.take();
        let version = self.context.pinned(|guard, context| {
            let Some(tree) = engine.directory.get(key.tree.0, guard) else {
                // The write is lost, but its closure may carry a result out.
                decide(&mut Shown::seen(None));
                return None;
            };
            // SAFETY: spots are gone when the session is not pinned (MH1 spots-under-pin).
            let start = spot.and_then(|spot| unsafe { spot.reached(key, &tree.canary, guard) });
            let commit = Update {
                tree,
                draw: Draw::Clock(&engine.clock),
                images: Some(engine.image_store()),
                key,
                hook,
                in_place,
                decide,
            }
            .run(start, guard, context)?;
            if commit.removed {
                bury(engine, key, commit, context);
            }
            context.count_commit();
            Some(commit.version)
        });
        self.maintain_by_itself();
        version
    }

    /// Does what a clock driver would do now and then, if there is none.
    #[inline]
    fn maintain_by_itself(&mut self) {
        if self.context.is_maintenance_due(&self.engine.clock) {
            maintain_some(self);
        }
    }
}

impl Drop for MasstreeSession {
    fn drop(&mut self) {
        if self.context.leave(&self.engine.clock) {
            maintain_some(self);
        }
        self.engine.close(&self.context);
    }
}

/// Remembers a tombstone that a commit left, so that it is purged when the horizon has passed it.
fn bury(engine: &Masstree, key: Key<'_>, commit: Commit, context: &Context) {
    let tombstone = Tombstone {
        tree: key.tree,
        key: key.bytes.into(),
        version: commit.version,
    };
    engine.tasks.graves.bury(context.number(), tombstone);
}

/// Purges tombstones, with interleaved descents.
fn purge_all(
    engine: &Masstree,
    tombstones: &[Tombstone],
    spots: &mut Spots,
    guard: Guard<'_>,
    context: &mut Context,
) {
    let keys = tombstones
        .iter()
        .map(|tombstone| Key::new(tombstone.tree, &tombstone.key))
        .collect::<Vec<_>>();
    spots.clear();
    batch::warm(&engine.directory, &keys, guard, &context.counters, spots);
    for (index, tombstone) in tombstones.iter().enumerate() {
        let Some(tree) = engine.directory.get(tombstone.tree.0, guard) else {
            continue;
        };
        spots.recall(index);
        let spot = spots.take();
        // SAFETY: found above, under the same pin (MH1 spots-under-pin).
        let start = spot.and_then(|spot| unsafe { spot.reached(keys[index], &tree.canary, guard) });
        purge(tree, tombstone, start, guard, context);
    }
    // The caller's own spots are gone too.
    spots.clear();
}

impl Point for MasstreeSession {
    fn pin(&mut self) {
        self.context.hold();
    }

    fn unpin(&mut self) {
        if self.context.release() {
            // MH1 spots-under-pin.
            self.spots.clear();
        }
        self.maintain_by_itself();
    }

    #[inline]
    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        key.check();
        let engine = &self.engine;
        let spot = self.spots.take();
        self.context.pinned(|guard, context| {
            let tree = engine.directory.get(key.tree.0, guard);
            let block = tree.and_then(|tree| {
                // SAFETY: spots are gone when the session is not pinned (MH1 spots-under-pin).
                let found = spot.map(|spot| unsafe { spot.read(key, &tree.canary, guard) });
                match found {
                    Some(Ok(block)) => block,
                    _ => get(tree, key.bytes, guard, &context.counters),
                }
            });
            match block {
                Some(block) => block.read_value(read),
                None => read(None),
            }
        })
    }

    fn get_many(&mut self, keys: &[Key<'_>], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        keys.iter().copied().for_each(Key::check);
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            batch::get_many(&engine.directory, keys, guard, &context.counters, &mut read);
        });
    }

    fn warm(&mut self, keys: &[Key<'_>]) {
        let engine = &self.engine;
        let spots = &mut self.spots;
        spots.clear();
        self.context.pinned(|guard, context| {
            batch::warm(&engine.directory, keys, guard, &context.counters, spots);
        });
        if !self.context.is_held() {
            // MH1 spots-under-pin: the pin under which they were found has ended.
            self.spots.clear();
        }
    }

    #[inline]
    fn recall(&mut self, index: usize) {
        self.spots.recall(index);
    }

    fn probe(&mut self, key: Key<'_>) -> Probe {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let tree = engine.directory.get(key.tree.0, guard);
            let block = tree.and_then(|tree| get(tree, key.bytes, guard, &context.counters));
            let Some(block) = block else {
                return Probe::Absent;
            };
            match block.value() {
                None => Probe::Removed(block.version()),
                Some(value) => Probe::Present {
                    version: value.version,
                    deadline: value.attributes.deadline,
                },
            }
        })
    }

    #[inline]
    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        self.update_or_change(key, hook, false, |shown| decide(shown.value()))
    }

    fn change<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        decide: impl FnMut(&mut Shown<'_>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        self.update_or_change(key, hook, true, decide)
    }

    fn keep_out(&mut self) -> bool {
        self.context.keep_out()
    }

    fn let_in(&mut self) {
        self.context.let_in();
    }

    fn update_many<'d, H: CommitHook>(
        &mut self,
        keys: &[Key<'_>],
        hook: &mut H,
        mut decide: impl FnMut(usize, Option<ValueRef<'_>>) -> Decision<'d>,
    ) {
        // One pin around both, so that what the descents found may be used (MH1 spots-under-pin).
        let mut pinned = self.pinned();
        for (piece, keys) in keys.chunks(BATCH_KEYS_MAX).enumerate() {
            pinned.warm(keys);
            for (index, key) in keys.iter().enumerate() {
                pinned.recall(index);
                let index = piece * BATCH_KEYS_MAX + index;
                pinned.update(*key, hook, |old| decide(index, old));
            }
        }
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let tree = engine.directory.get(tree.0, guard);
            let found = tree.and_then(|tree| sample(tree, random, guard, &context.counters));
            read(found.as_ref().map(|(key, value)| (&key[..], *value)))
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
        self.context.reclaim();
        let engine = &self.engine;
        engine
            .snapshots
            .free_replaced(|stamp| engine.shared.has_passed(stamp));
        let mut done = engine.tasks.free_dropped(steps, &mut self.context);
        while done < steps {
            let (first, most) = (self.context.number(), BATCH_KEYS_MAX.min(steps - done));
            let tombstones = engine.tasks.graves.exhume(first, most, &engine.clock);
            if tombstones.is_empty() {
                break;
            }
            let spots = &mut self.spots;
            self.context
                .pinned(|guard, context| purge_all(engine, &tombstones, spots, guard, context));
            done += tombstones.len();
        }
        let (engine, number) = (Arc::clone(&self.engine), self.context.number());
        done += engine.snapshots.merge(self, number, steps - done);
        done + self.context.pool.tend().min(steps - done)
    }
}

impl Restore for MasstreeSession {
    fn restore(
        &mut self,
        key: Key<'_>,
        version: ValueVersion,
        value: Option<NewValue<'_>>,
    ) -> bool {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let Some(tree) = engine.directory.get(key.tree.0, guard) else {
                return false;
            };
            let mut value = Some(value);
            let mut restoring = NoHook;
            let commit = Update {
                tree,
                draw: Draw::Given(version),
                images: None,
                key,
                hook: &mut restoring,
                // Runs once: under the lock, the only retries are those of the descent before it.
                in_place: false,
                decide: |_: &mut Shown<'_>| match value.take().expect("a decision is taken once") {
                    Some(value) => Decision::Write(value),
                    None => Decision::Remove,
                },
            }
            .run(None, guard, context);
            if let Some(commit) = commit
                && commit.removed
            {
                bury(engine, key, commit, context);
            }
            commit.is_some()
        })
    }

    fn restore_run(&mut self, tree: TreeId, run: &mut Vec<Restored<'_>>) {
        for restored in &*run {
            Key::new(tree, restored.key).check();
        }
        let engine = &self.engine;
        self.context
            .pinned(|guard, context| match engine.directory.get(tree.0, guard) {
                Some(tree) => restore_run(tree, run, guard, context),
                None => run.clear(),
            });
    }
}

impl Relocate for MasstreeSession {
    fn begin_emptying(&mut self, short: bool) -> bool {
        let need = if short { Need::Short } else { Need::Tidy };
        self.context.pool.begin_emptying(need)
    }

    fn end_emptying(&mut self) {
        self.context.pool.end_emptying();
    }

    fn sweep_emptying(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        mut visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        self.sweep(tree, hand, steps, |key, value| {
            // SAFETY: a sweep shows values of this engine, under its pin.
            if unsafe { BlockRef::is_value_emptying(&value) } {
                visit(key, value);
            }
        })
    }

    fn relocate(&mut self, key: Key<'_>) -> bool {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let tree = engine.directory.get(key.tree.0, guard);
            tree.is_some_and(|tree| relocate(tree, key.bytes, guard, context))
        })
    }
}

impl Ordered for MasstreeSession {
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            if let Some(tree) = engine.directory.get(tree.0, guard) {
                Scan::new(tree, direction, guard, &context.counters).run_live(from, visit);
            }
        });
    }

    fn scan_all(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            if let Some(tree) = engine.directory.get(tree.0, guard) {
                Scan::new(tree, direction, guard, &context.counters).run(from, visit);
            }
        });
    }

    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        let engine = &self.engine;
        self.context.pinned(|guard, _| {
            let tree = engine.directory.get(tree.0, guard);
            tree.map_or_else(Vec::new, |tree| boundaries(tree, parts, guard))
        })
    }
}
