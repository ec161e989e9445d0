//! Changing a key under its bucket's lock (§3): the one write primitive.
//!
//! Under the lock a writer decides, builds the entry, calls the commit hook, and then publishes the
//! change in one store of a slot. Versions (V1 version-draw to V3 self-driven-removal of the engine
//! crate) are drawn under the lock. A removed key leaves a tombstone entry that remembers its
//! version; `task` purges it when the horizon has passed it. Under a self-driven clock the entry is
//! removed at once. The paper's writers change a pair in place. With lock-free readers a change is
//! another entry (VB1 immutable-block), and the old one is retired.

use pando_block::{BlockRef, KeyPart, ShortValue};
use pando_chassis::SnapshotFault;
use pando_engine::{CommitHook, Decision, Key, NewValue, NoHook, ValueRef, ValueVersion};
use pando_memory::pool::Pool;
use pando_sync::epoch::Guard;

use crate::bucket::{Owned, Place, Tag, Tagged};
use crate::context::{Context, Length, Retire};
use crate::engine::Mercury;
use crate::find::lock_bucket;
use crate::snapshot::{fetch_shadow, keep_image};
use crate::table::Table;
use crate::tree::Tree;

/// What a commit did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) version: ValueVersion,
    pub(crate) removal: Removal,
    /// The key took a slot that was free.
    pub(crate) inserted: bool,
    /// That slot is the first of a new line.
    pub(crate) overflowed: bool,
}

/// What a commit left of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// A value: not a removal.
    None,
    /// A tombstone.
    Buried,
    /// Nothing: the entry was removed at once.
    Forgotten,
}

impl Commit {
    /// A value of a key that had one.
    fn replaced(version: ValueVersion) -> Self {
        Self {
            version,
            removal: Removal::None,
            inserted: false,
            overflowed: false,
        }
    }
}

/// One call of `update`.
pub(crate) struct Update<'a, 'k, H, D> {
    pub(crate) tree: &'a Tree,
    pub(crate) engine: &'a Mercury,
    pub(crate) key: Key<'k>,
    pub(crate) hash: u64,
    pub(crate) hook: &'a mut H,
    pub(crate) decide: D,
}

impl<'d, H, D> Update<'_, '_, H, D>
where
    H: CommitHook,
    D: FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
{
    /// Decides about the key and commits; `None` when the key was kept.
    #[inline]
    pub(crate) fn run(mut self, guard: Guard<'_>, context: &mut Context) -> Option<Commit> {
        let Self { tree, key, .. } = self;
        if self.engine.snapshots.is_keeping() {
            fetch_shadow(self.engine, tree, self.hash, guard);
        }
        let locked = Locked::of_key(tree, key.bytes, self.hash, guard, context);
        let found = locked.found;
        // The most common write, plain bytes over plain bytes, in few instructions: while this one
        // waits for its entry, the processor begins the next operation, as far ahead as its
        // instruction window reaches (docs/BENCHMARKS.md).
        let (old, decision) = if let Some((place, entry)) = found
            && let Some((_, old)) = entry.plain_parts()
        {
            context.beside = Length::default();
            match self.decide_plain(old) {
                Ok(new) => {
                    let at = (place, entry, old);
                    let build =
                        |pool: &mut Pool, version| entry.build_like(pool, version, key.bytes, new);
                    return Some(self.replace(locked, at, build, guard, context));
                }
                Err(decision) => (Some(old), decision),
            }
        } else {
            let old = found.and_then(|(_, entry)| entry.value());
            context.beside = Length::of(old);
            (old, (self.decide)(old))
        };
        let new = match decision {
            Decision::Keep => return None,
            Decision::Remove if old.is_none() => return None,
            Decision::Remove => {
                if let Some((place, entry)) = found
                    && let Some(version) = self.engine.clock.forget(entry.version())
                {
                    keep(self.engine, tree, entry, None, guard, context);
                    self.hook.committed(key, old, None, version);
                    forget(tree, locked.bucket, place, entry, context);
                    return Some(Commit {
                        removal: Removal::Forgotten,
                        ..Commit::replaced(version)
                    });
                }
                None
            }
            Decision::Write(new) => Some(new),
            Decision::Amend(amendment) => {
                let (Some((place, entry)), Some(old)) = (found, old) else {
                    panic!("an amendment of nothing");
                };
                let at = (place, entry, old);
                let build = |pool: &mut Pool, version| entry.amend(pool, version, &amendment);
                return Some(self.replace(locked, at, build, guard, context));
            }
        };
        // Mainly a small hash over another one.
        if let (Some((place, entry)), Some(old)) = (found, old)
            && entry.is_short()
            && let Some(new) = new.as_ref().and_then(ShortValue::of)
        {
            let at = (place, entry, old);
            let build = |pool: &mut Pool, version| entry.build_like(pool, version, key.bytes, new);
            return Some(self.replace(locked, at, build, guard, context));
        }
        let old_version = found.map(|(_, entry)| entry.version());
        let change = Change {
            key,
            version: self.engine.clock.draw(old_version),
            new,
            keeper: Some(self.engine),
        };
        Some(locked.commit(tree, change, self.hook, guard, context))
    }

    /// Replaces a value by that of the entry that `build` makes.
    #[expect(
        clippy::inline_always,
        reason = "few callers; see `run` for why it is short"
    )]
    #[inline(always)]
    fn replace<'g>(
        &mut self,
        locked: Locked<'g>,
        (place, entry, old): (Place<'g>, BlockRef<'g>, ValueRef<'g>),
        build: impl FnOnce(&mut Pool, ValueVersion) -> (BlockRef<'g>, ValueRef<'g>),
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Commit {
        let Self {
            engine, tree, key, ..
        } = *self;
        let version = engine.clock.draw(Some(old.version));
        let (next, new) = build(&mut context.pool, version);
        keep(engine, tree, entry, Some(next), guard, context);
        // E2 versions-grow.
        debug_assert!(old.version < version);
        self.hook.committed(key, Some(old), Some(new), version);
        locked.replace(place, next);
        keep_late(engine, tree, entry, guard, context);
        context.retire_entry(tree, entry);
        Commit::replaced(version)
    }

    /// Bytes that are to replace bytes, or any other decision.
    #[inline]
    fn decide_plain(&mut self, old: ValueRef<'_>) -> Result<ShortValue<'d>, Decision<'d>> {
        match (self.decide)(Some(old)) {
            Decision::Write(new) => ShortValue::borrowed(new).map_err(Decision::Write),
            decision => Err(decision),
        }
    }
}

/// A key's bucket, locked, and its content. Unlocks on drop.
struct Locked<'g> {
    bucket: Owned<'g>,
    table: &'g Table,
    hash: u64,
    found: Option<(Place<'g>, BlockRef<'g>)>,
}

impl<'g> Locked<'g> {
    #[inline]
    fn of_key(tree: &Tree, key: &[u8], hash: u64, guard: Guard<'g>, context: &Context) -> Self {
        let (table, bucket, foreseen) = lock_bucket(tree, hash, guard, context);
        Self {
            found: bucket.find(foreseen, Tag::of_hash(hash), key),
            bucket,
            table,
            hash,
        }
    }

    /// An entry of the key, as its slot holds it.
    fn tagged(&self, entry: BlockRef<'g>) -> Tagged {
        Tagged::new(self.hash, self.table.growth_shift(), entry)
    }

    /// Replaces the key's entry by another one, and unlocks.
    #[inline]
    fn replace(self, place: Place<'g>, next: BlockRef<'g>) {
        (self.bucket).replace(place, place.tagged().with_entry(next));
    }

    /// Publishes a change, and unlocks.
    #[inline(never)]
    fn commit<H: CommitHook>(
        self,
        tree: &Tree,
        change: Change<'_, '_, '_>,
        hook: &mut H,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Commit {
        let Change {
            key,
            version,
            new,
            keeper,
        } = change;
        let found = self.found;
        let old = found.and_then(|(_, entry)| entry.value());
        let key_part = KeyPart::inline(key.bytes);
        // E2 versions-grow.
        debug_assert!(found.is_none_or(|(_, replaced)| replaced.version() < version));
        let entry = BlockRef::build(&mut context.pool, guard, version, key_part, new);
        let new = entry.value();
        if let (Some(engine), Some((_, replaced))) = (keeper, found) {
            keep(engine, tree, replaced, Some(entry), guard, context);
        }
        hook.committed(key, old, new, version);
        let tagged = self.tagged(entry);
        let overflowed = match found {
            Some((place, _)) => {
                self.bucket.replace(place, tagged);
                false
            }
            None => self.bucket.insert(tagged, &mut context.pool),
        };
        drop(self);
        let (was, is) = (old.is_some(), new.is_some());
        let was_tombstone = found.is_some() && !was;
        if was != is || was_tombstone || found.is_none() {
            let keys = i64::from(is) - i64::from(was);
            let tombstones = i64::from(!is) - i64::from(was_tombstone);
            tree.counts.add(context.number(), keys, tombstones);
        }
        if overflowed {
            context.counters.overflow_lines.add(1);
        }
        if let Some((_, replaced)) = found {
            context.retire_replaced(tree, (replaced, entry));
        }
        Commit {
            version,
            removal: if is { Removal::None } else { Removal::Buried },
            inserted: found.is_none(),
            overflowed,
        }
    }
}

/// Removes an entry at once: nobody has to remember its version (V3 self-driven-removal). Unlocks.
#[inline(never)]
fn forget<'g>(
    tree: &Tree,
    bucket: Owned<'g>,
    place: Place<'g>,
    entry: BlockRef<'g>,
    context: &mut Context,
) {
    bucket.clear(place);
    let mut lines = Vec::new();
    bucket.prune(|line| lines.push(line));
    drop(bucket);
    tree.counts.add(context.number(), -1, 0);
    context.retire_entry(tree, entry);
    for line in lines {
        context.retire_line(line);
    }
}

/// Restores a value or a tombstone at its version, if it is newer than the present one.
pub(crate) fn restore(
    tree: &Tree,
    hash: u64,
    change: Change<'_, '_, '_>,
    guard: Guard<'_>,
    context: &mut Context,
) -> Option<Commit> {
    let locked = Locked::of_key(tree, change.key.bytes, hash, guard, context);
    let newer = (locked.found).is_none_or(|(_, entry)| entry.version() < change.version);
    newer.then(|| locked.commit(tree, change, &mut NoHook, guard, context))
}

/// Moves a key's entry out of memory that is being emptied, if it fits elsewhere; returns whether
/// it moved. Readers see one entry or the other, which are equal (VB1 immutable-block).
pub(crate) fn relocate(
    tree: &Tree,
    (key, hash): (Key<'_>, u64),
    guard: Guard<'_>,
    context: &mut Context,
) -> bool {
    let locked = Locked::of_key(tree, key.bytes, hash, guard, context);
    let Some((place, entry)) = locked.found else {
        return false;
    };
    if !entry.is_emptying() {
        return false;
    }
    let Some(next) = entry.duplicate(&mut context.pool) else {
        return false;
    };
    locked.bucket.replace(place, locked.tagged(next));
    drop(locked);
    context.retire_moved(entry);
    true
}

/// The key's new state; a tombstone when there is no value.
pub(crate) struct Change<'k, 'd, 'a> {
    pub(crate) key: Key<'k>,
    pub(crate) version: ValueVersion,
    pub(crate) new: Option<NewValue<'d>>,
    /// Whose snapshots keep what is replaced; recovery keeps nothing, nor do images.
    pub(crate) keeper: Option<&'a Mercury>,
}

/// Keeps the value of an entry that is about to be retired for the newest snapshot, if that covers
/// it (SI1 image-first). The caller holds the lock of the entry's bucket.
#[inline]
fn keep<'g>(
    engine: &Mercury,
    tree: &Tree,
    entry: BlockRef<'g>,
    next: Option<BlockRef<'g>>,
    guard: Guard<'g>,
    context: &mut Context,
) {
    if engine.snapshots.keeps(entry.version()) && !engine.snapshots.is(SnapshotFault::ImageLate) {
        keep_image(engine, tree, entry, next, guard, context);
    }
}

/// The planted fault: the image of an entry that nobody sees any more.
fn keep_late<'g>(
    engine: &Mercury,
    tree: &Tree,
    entry: BlockRef<'g>,
    guard: Guard<'g>,
    context: &mut Context,
) {
    if engine.snapshots.is(SnapshotFault::ImageLate) && engine.snapshots.keeps(entry.version()) {
        std::thread::yield_now();
        keep_image(engine, tree, entry, None, guard, context);
    }
}
