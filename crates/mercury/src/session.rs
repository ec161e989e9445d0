//! A session: a thread's handle on the engine.

use std::fmt;
use std::sync::Arc;

use pando_block::BlockRef;
use pando_chassis::maintain_some;
use pando_engine::{
    CommitHook, Decision, Hand, Key, NewValue, Point, Probe, Relocate, Restore, TreeId, ValueRef,
    ValueVersion, Walk,
};
use pando_memory::pool::Need;
use pando_sync::epoch::Guard;

use crate::batch;
use crate::context::{Context, Length};
use crate::engine::Mercury;
use crate::find::{find, find_locked};
use crate::limits::{BATCH_KEYS_MAX, REMOVALS_PER_LOOK};
use crate::resize;
use crate::sample::sample;
use crate::task::{Tombstone, purge};
use crate::tree::Tree;
use crate::update::{Change, Commit, Removal, Update, relocate, restore};
use crate::walk::walk;

/// A session of a [`Mercury`] with its own pin, pool and counters.
pub struct MercurySession {
    pub(crate) context: Context,
    /// Last, so that it is dropped last: an engine being dropped expects all garbage handed over.
    pub(crate) engine: Arc<Mercury>,
}

impl fmt::Debug for MercurySession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MercurySession")
            .field("session", &self.context.number())
            .finish_non_exhaustive()
    }
}

impl MercurySession {
    pub(crate) fn new(engine: Arc<Mercury>, context: Context) -> Self {
        Self { context, engine }
    }

    /// Does what a clock driver would do now and then, if there is none.
    #[inline]
    fn maintain_by_itself(&mut self) {
        if self.context.is_maintenance_due(&self.engine.clock) {
            maintain_some(self);
        }
    }

    /// Like [`Point::get`], under the lock of the key's bucket: the paper's read (§3), to measure
    /// its cost (§4.1).
    #[inline]
    pub fn get_locked<R>(
        &mut self,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let tree = engine.directory.get(key.tree.0, guard);
            let hash = engine.hash(key.bytes);
            let entry = tree.and_then(|tree| find_locked(tree, hash, key.bytes, guard, context));
            read(entry.and_then(BlockRef::value))
        })
    }

    /// Shows the key's entry to `read` under a pin.
    #[inline]
    fn look<R>(
        &mut self,
        key: Key<'_>,
        read: impl FnOnce(Option<BlockRef<'_>>, &mut Context) -> R,
    ) -> R {
        key.check();
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            let tree = engine.directory.get(key.tree.0, guard);
            let hash = engine.hash(key.bytes);
            let entry = tree.and_then(|tree| find(tree, hash, key.bytes, guard, context));
            read(entry, context)
        })
    }
}

impl Drop for MercurySession {
    fn drop(&mut self) {
        if self.context.leave(&self.engine.clock) {
            maintain_some(self);
        }
        self.engine.close(&self.context);
    }
}

/// Work after a commit: its tombstone is remembered, its insert may grow the table.
#[expect(
    clippy::inline_always,
    reason = "once per insert: as a call it is 28 instructions more"
)]
#[inline(always)]
pub(crate) fn follow_up(
    engine: &Mercury,
    tree: &Tree,
    hash: u64,
    commit: Commit,
    guard: Guard<'_>,
    context: &mut Context,
) {
    if commit.removal == Removal::Buried {
        let tombstone = Tombstone {
            tree: tree.id,
            hash,
            version: commit.version,
        };
        engine.tasks.graves.bury(context.number(), tombstone);
    }
    if commit.removal == Removal::Forgotten && hash.is_multiple_of(REMOVALS_PER_LOOK) {
        resize::shrink(engine, tree, guard, context);
    }
    if commit.inserted {
        resize::after_insert(engine, tree, commit.overflowed, guard, context);
    }
}

/// Updates a key and does the work that follows.
#[inline]
fn apply<'d, H, D>(
    engine: &Mercury,
    update: Update<'_, '_, H, D>,
    guard: Guard<'_>,
    context: &mut Context,
) -> Option<ValueVersion>
where
    H: CommitHook,
    D: FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
{
    let (tree, hash) = (update.tree, update.hash);
    let commit = update.run(guard, context)?;
    if commit.removal != Removal::None || commit.inserted {
        follow_up(engine, tree, hash, commit, guard, context);
    }
    context.count_commit();
    Some(commit.version)
}

impl Point for MercurySession {
    fn pin(&mut self) {
        self.context.hold();
    }

    fn unpin(&mut self) {
        self.context.release();
        self.maintain_by_itself();
    }

    #[inline]
    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        self.look(key, |entry, context| {
            let value = entry.and_then(BlockRef::value);
            context.beside = Length::of(value);
            read(value)
        })
    }

    fn get_many(&mut self, keys: &[Key<'_>], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        keys.iter().copied().for_each(Key::check);
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            batch::for_each(engine, keys, guard, context, |index, found, context| {
                let bytes = keys[index].bytes;
                let entry = found.and_then(|(tree, hash)| find(tree, hash, bytes, guard, context));
                read(index, entry.and_then(BlockRef::value));
            });
        });
    }

    fn warm(&mut self, keys: &[Key<'_>]) {
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            batch::warm(engine, keys, guard, context);
        });
    }

    fn probe(&mut self, key: Key<'_>) -> Probe {
        self.look(key, |entry, _| match entry {
            None => Probe::Absent,
            Some(entry) => match entry.value() {
                None => Probe::Removed(entry.version()),
                Some(value) => Probe::Present {
                    version: value.version,
                    deadline: value.attributes.deadline,
                },
            },
        })
    }

    #[inline]
    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        key.check();
        let engine = &self.engine;
        let version = self.context.pinned(|guard, context| {
            let Some(tree) = engine.directory.get(key.tree.0, guard) else {
                // The write is lost, but its closure may carry a result out.
                decide(None);
                return None;
            };
            let update = Update {
                tree,
                engine,
                key,
                hash: engine.hash(key.bytes),
                hook,
                decide,
            };
            apply(engine, update, guard, context)
        });
        self.maintain_by_itself();
        version
    }

    fn update_many<'d, H: CommitHook>(
        &mut self,
        keys: &[Key<'_>],
        hook: &mut H,
        mut decide: impl FnMut(usize, Option<ValueRef<'_>>) -> Decision<'d>,
    ) {
        keys.iter().copied().for_each(Key::check);
        let engine = &self.engine;
        self.context.pinned(|guard, context| {
            batch::for_each(engine, keys, guard, context, |index, found, context| {
                let Some((tree, hash)) = found else {
                    // As in `update`.
                    decide(index, None);
                    return;
                };
                let update = Update {
                    tree,
                    engine,
                    key: keys[index],
                    hash,
                    hook,
                    decide: |old: Option<ValueRef<'_>>| decide(index, old),
                };
                apply(engine, update, guard, context);
            });
        });
        self.maintain_by_itself();
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let engine = &self.engine;
        self.context.pinned(|guard, _| {
            let tree = engine.directory.get(tree.0, guard);
            read(tree.and_then(|tree| sample(tree, random, guard)))
        })
    }

    fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        mut visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        let mut left = steps;
        while left > 0 {
            // An empty bucket counts as a step: a sparse table must not make the call long.
            let mut shown = 0;
            hand.position = self.walk(tree, hand.position, |key, value| {
                shown += 1;
                visit(key, value);
            });
            if hand.position == 0 {
                return true;
            }
            left = left.saturating_sub(shown.max(1));
        }
        false
    }

    fn maintain(&mut self, steps: usize) -> usize {
        self.context.reclaim();
        let engine = Arc::clone(&self.engine);
        engine
            .snapshots
            .free_replaced(|stamp| engine.shared.has_passed(stamp));
        let mut done = engine.tasks.free(steps, &engine, &mut self.context);
        let mut purged_trees = Vec::new();
        while done < steps {
            let (first, most) = (self.context.number(), BATCH_KEYS_MAX.min(steps - done));
            let tombstones = engine.tasks.graves.exhume(first, most, &engine.clock);
            if tombstones.is_empty() {
                break;
            }
            self.context.pinned(|guard, context| {
                batch::warm_tombstones(&engine, &tombstones, guard);
                for tombstone in &tombstones {
                    if let Some(tree) = engine.directory.get(tombstone.tree.0, guard) {
                        purge(tree, tombstone.hash, &engine.clock, guard, context);
                    }
                }
            });
            purged_trees.extend(tombstones.iter().map(|tombstone| tombstone.tree));
            purged_trees.dedup();
            done += tombstones.len();
        }
        for tree in purged_trees {
            self.context.pinned(|guard, context| {
                if let Some(tree) = engine.directory.get(tree.0, guard) {
                    resize::shrink(&engine, tree, guard, context);
                }
            });
        }
        let number = self.context.number();
        done += engine.snapshots.merge(self, number, steps - done);
        done += engine
            .tasks
            .move_buckets(steps - done, &engine, &mut self.context);
        done + self.context.pool.tend().min(steps - done)
    }
}

impl Restore for MercurySession {
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
            let hash = engine.hash(key.bytes);
            let change = Change {
                key,
                version,
                new: value,
                keeper: None,
            };
            let commit = restore(tree, hash, change, guard, context);
            if let Some(commit) = commit {
                follow_up(engine, tree, hash, commit, guard, context);
            }
            commit.is_some()
        })
    }
}

impl Relocate for MercurySession {
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
            let Some(tree) = engine.directory.get(key.tree.0, guard) else {
                return false;
            };
            let hash = engine.hash(key.bytes);
            relocate(tree, (key, hash), guard, context)
        })
    }
}

impl Walk for MercurySession {
    fn walk(&mut self, tree: TreeId, cursor: u64, visit: impl FnMut(&[u8], ValueRef<'_>)) -> u64 {
        let engine = &self.engine;
        self.context.pinned(|guard, _| {
            let tree = engine.directory.get(tree.0, guard);
            tree.map_or(0, |tree| walk(tree, cursor, guard, visit))
        })
    }
}
