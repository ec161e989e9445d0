//! Changing a key under its border node's lock (§4.5, §4.6.1, §4.6.2): the one write primitive.
//!
//! A descent reads like a get and locks the one border node that is responsible. Under the lock it
//! decides, builds the block, calls the commit hook, and then publishes the change in one store:
//!
//! | the node holds | published by | figure |
//! |---|---|---|
//! | the key | the entry's link (§4.6.1) | – |
//! | nothing, and a free slot | the permutation (§4.6.2) | – |
//! | nothing, and no free slot | `split` or, in a young layer's root, `layer::grow` | 5 |
//! | another key with this slice | a new layer, `layer::deepen` (§4.6.3) | – |
//!
//! Versions (V1 version-draw to V3 self-driven-removal of the engine crate) are drawn under the
//! lock. A removed key leaves a tombstone block that remembers its version; `task` purges it when
//! the horizon has passed it. Under a self-driven clock the entry is removed at once.

use std::mem;
use std::ops::Deref;

use pando_block::{BlockRef, Keep, KeyPart, ShortValue};
use pando_chassis::SnapshotFault;
use pando_engine::{
    Amendment, CommitHook, Decision, EpochClock, Key, NewValue, Shown, ValueRef, ValueVersion,
};
use pando_memory::pool::Pool;
use pando_sync::epoch::Alone;

use crate::canary::Fault;
use crate::context::{Context, Retire};
use crate::find::{Found, LayerGone, Reached, is_of, look};
use crate::layer::{Above, Fork, deepen, grow, refresh_link};
use crate::node::{BLOCK_SPAN_BYTES, BorderRef, Guard, NewEntry, WIDTH};
use crate::permutation::Permutation;
use crate::recall::Start;
use crate::slice::{CODE_NEVER, CODE_SUFFIX, Cursor, rank_of_code};
use crate::snapshot::ImageStore;
use crate::split::split;
use crate::task::take_out;
use crate::tree::Tree;

/// A border node whose lock is released on drop, unless it was handed over.
pub(crate) struct Locked<'g>(BorderRef<'g>);

impl<'g> Locked<'g> {
    /// Takes over a lock that the caller owns.
    pub(crate) fn from_owned(border: BorderRef<'g>) -> Self {
        Self(border)
    }

    /// Hands the lock over.
    pub(crate) fn into_owned(self) -> BorderRef<'g> {
        let border = self.0;
        mem::forget(self);
        border
    }
}

impl<'g> Deref for Locked<'g> {
    type Target = BorderRef<'g>;

    fn deref(&self) -> &BorderRef<'g> {
        &self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.version.unlock();
    }
}

/// Locks the border node that is responsible for `slice` now, starting from the former one.
pub(crate) fn lock_border<'g>(reached: &Reached<'g>, slice: u64) -> Result<Locked<'g>, LayerGone> {
    let mut border = reached.border;
    let mut version = border.version.lock();
    loop {
        let locked = Locked(border);
        if version.is_deleted() {
            return Err(LayerGone);
        }
        if border == reached.border && !version.has_split_since(reached.version) {
            return Ok(locked);
        }
        match border.next() {
            Some(next) if slice >= next.low() => {
                drop(locked);
                border = next;
                version = border.version.lock();
            }
            _ => return Ok(locked),
        }
    }
}

/// What a commit did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) version: ValueVersion,
    /// The key got a tombstone.
    pub(crate) removed: bool,
}

/// Where the version of a commit comes from.
#[derive(Clone, Copy)]
pub(crate) enum Draw<'a> {
    /// Drawn under the lock (V1 version-draw).
    Clock(&'a EpochClock),
    /// Given by recovery: committed if it is above the present one; includes tombstones of absent
    /// keys.
    Given(ValueVersion),
}

impl Draw<'_> {
    /// The version that follows `old`; `None` when nothing is to be committed.
    fn after(self, old: Option<ValueVersion>) -> Option<ValueVersion> {
        match self {
            Self::Clock(clock) => Some(clock.draw(old)),
            Self::Given(version) => old.is_none_or(|old| old < version).then_some(version),
        }
    }

    /// The version of a removal that leaves no tombstone (V3 self-driven-removal).
    fn forget(self, old: ValueVersion) -> Option<ValueVersion> {
        match self {
            Self::Clock(clock) => clock.forget(old),
            Self::Given(_) => None,
        }
    }

    /// Whether the removal of an absent key is to be remembered.
    fn buries_absent(self) -> bool {
        matches!(self, Self::Given(_))
    }

    /// Whether keys may come in sorted runs that are to be packed into nodes.
    fn comes_in_runs(self) -> bool {
        matches!(self, Self::Given(_))
    }
}

/// One call of `update`.
pub(crate) struct Update<'a, 'k, H, D> {
    pub(crate) tree: &'a Tree,
    pub(crate) draw: Draw<'a>,
    /// Where images go; recovery makes none, nor do images themselves.
    pub(crate) images: Option<ImageStore<'a>>,
    pub(crate) key: Key<'k>,
    pub(crate) hook: &'a mut H,
    /// Whether it may take a large row out of a block ([`Update::lend`]).
    pub(crate) in_place: bool,
    pub(crate) decide: D,
}

/// A value or tombstone, and its slot in a border node that the caller has locked.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'g> {
    pub(crate) slot: usize,
    pub(crate) block: BlockRef<'g>,
}

/// The state of the key in the locked border node.
pub(crate) enum KeyState<'g> {
    /// The key's own value or tombstone.
    Own(Entry<'g>),
    /// The entry of a longer key with the same slice.
    Other(Entry<'g>),
    /// Nothing; the key belongs at this position.
    Free(Permutation, usize),
    /// A layer was made here since the node was read.
    Deeper,
}

/// The key's entry is a layer: nothing was changed.
struct Deeper;

impl<'d, 'k, H, D> Update<'_, 'k, H, D>
where
    H: CommitHook,
    D: FnMut(&mut Shown<'_>) -> Decision<'d>,
{
    /// Decides and commits; `None` when the key was kept. Needs no descent if the node that `start`
    /// names still exists and no layer was made under the key.
    pub(crate) fn run<'g>(
        &mut self,
        start: Option<Start<'k, 'g>>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Option<Commit> {
        if let Some(start) = start
            && let Ok(locked) = lock_border(&start.reached, start.cursor.slice())
        {
            let cursor = start.cursor;
            let still = start
                .position
                .and_then(|position| still_at(*locked, position, cursor, guard));
            if let Some(entry) = still {
                return self.replace(locked, entry, cursor, guard, context);
            }
            if let Ok(commit) = self.change(locked, cursor, guard, context) {
                return commit;
            }
        }
        loop {
            match self.descend(guard, context) {
                Ok(commit) => return commit,
                Err(LayerGone) => context.counters.root_retries.add(1),
            }
        }
    }

    fn descend(
        &mut self,
        guard: Guard<'_>,
        context: &mut Context,
    ) -> Result<Option<Commit>, LayerGone> {
        let mut root = self.tree.root(guard);
        let mut cursor = Cursor::new(self.key.bytes);
        let mut above = None;
        loop {
            let slice = cursor.slice();
            let (reached, found) = look(root, cursor, guard, &context.counters)?;
            if let Some(above) = above.take()
                && reached.root != root
            {
                refresh_link(above, root, reached.root);
            }
            if !matches!(found, Found::Layer(_)) {
                if let Found::Value(block) = found {
                    // A thread that waits for it does not hold the lock yet.
                    block.prefetch(BLOCK_SPAN_BYTES);
                }
                let locked = lock_border(&reached, slice)?;
                match self.change(locked, cursor, guard, context) {
                    Ok(commit) => return Ok(commit),
                    Err(Deeper) => continue,
                }
            }
            let Found::Layer(next_root) = found else {
                unreachable!("told apart above")
            };
            above = Some(Above {
                border: reached.border,
                slice,
            });
            root = next_root;
            root.prefetch();
            cursor = cursor.deeper();
        }
    }

    /// Changes the key in the border node that is responsible for it.
    #[inline]
    fn change<'g>(
        &mut self,
        locked: Locked<'g>,
        cursor: Cursor<'_>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Result<Option<Commit>, Deeper> {
        match key_state(*locked, cursor, guard) {
            KeyState::Own(entry) => Ok(self.replace(locked, entry, cursor, guard, context)),
            KeyState::Other(other) => Ok(self.insert_beside(locked, other, cursor, guard, context)),
            KeyState::Free(permutation, position) => {
                let at = (permutation, position);
                Ok(self.insert(locked, at, cursor, guard, context))
            }
            KeyState::Deeper => Err(Deeper),
        }
    }

    /// The key has an entry: a new block replaces the old one (§4.6.1).
    fn replace<'g>(
        &mut self,
        locked: Locked<'g>,
        entry: Entry<'g>,
        cursor: Cursor<'_>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Option<Commit> {
        enum New<'d> {
            Value(Option<NewValue<'d>>),
            Amended(Amendment<'d>),
        }
        let Entry { slot, block } = entry;
        // Until the new block is linked (M8 changed-alone).
        let alone = self.lend(block, context);
        // SAFETY: nobody else is pinned, and nothing of the block is in use here.
        let lent = alone.as_ref().and_then(|_| unsafe { block.lend() });
        let mut shown = lent.unwrap_or_else(|| Shown::seen(block.value()));
        let decision = (self.decide)(&mut shown);
        let is_taken = shown.is_taken();
        debug_assert!(
            !(is_taken && matches!(decision, Decision::Keep)),
            "not given back"
        );
        let old = block.value();
        let new = match decision {
            Decision::Keep => return None,
            Decision::Remove if old.is_none() && !self.draw.buries_absent() => return None,
            Decision::Remove => {
                if let Some(version) = self.draw.forget(block.version()) {
                    self.keep_image(block, None, guard, context);
                    self.hook.committed(self.key, old, None, version);
                    forget(self.tree, cursor, locked, entry, guard, context);
                    return Some(Commit {
                        version,
                        removed: false,
                    });
                }
                New::Value(None)
            }
            Decision::Write(new) => New::Value(Some(new)),
            Decision::Amend(amendment) => New::Amended(amendment),
        };
        let version = self.draw.after(Some(block.version()))?;
        // E2 versions-grow.
        debug_assert!(block.version() < version);
        if let New::Value(Some(new)) = &new
            && let Some((short, shown)) = self.overwritten(block, new, version, context)
        {
            self.hook.committed(self.key, old, Some(shown), version);
            // SAFETY: nobody else is pinned (M8 changed-alone), and `old` is not used any more.
            unsafe { block.overwrite(version, short) };
            let removed = false;
            return Some(Commit { version, removed });
        }
        let suffix = block.hand_over_key_part();
        let next = match new {
            New::Value(new) => BlockRef::build(&mut context.pool, guard, version, suffix, new),
            New::Amended(amendment) => block.amend(&mut context.pool, version, &amendment).0,
        };
        self.keep_image(block, Some(next), guard, context);
        self.hook.committed(self.key, old, next.value(), version);
        locked.set_link(slot, next.as_ptr());
        self.keep_image_late(block, guard, context);
        drop(locked);
        let keep = Keep {
            body: false,
            key: suffix.is_external(),
        };
        let removed = next.is_tombstone();
        let keys = i64::from(!removed) - i64::from(old.is_some());
        if is_taken {
            context.counters.rows_in_place_total.add(1);
            context.retire_block(self.tree, block, keep);
        } else {
            context.retire_replaced(self.tree, (block, next), keep);
        }
        self.tree.counts.add(context.number(), keys, -keys);
        Some(Commit { version, removed })
    }

    /// Makes the session alone, so that the large row of this block may be taken out and changed in
    /// place (M8 changed-alone).
    #[inline]
    fn lend(&self, block: BlockRef<'_>, context: &Context) -> Option<Alone<Pool>> {
        if !self.in_place || !block.is_wide() || self.is_kept(block) {
            return None;
        }
        context.try_alone()
    }

    /// What is put where the block's value is, and how readers will see it, if it is as long and
    /// nobody else sees that one (M8 changed-alone).
    #[inline]
    fn overwritten<'b>(
        &self,
        block: BlockRef<'b>,
        new: &'b NewValue<'_>,
        version: ValueVersion,
        context: &Context,
    ) -> Option<(ShortValue<'b>, ValueRef<'b>)> {
        let is_alone = context.is_alone() || self.tree.canary.is(Fault::OverwrittenBeside);
        if !is_alone || self.is_kept(block) {
            return None;
        }
        let overwritten = block.overwritten(version, new);
        if overwritten.is_some() {
            context.counters.overwritten_total.add(1);
        }
        overwritten
    }

    /// Whether a snapshot needs the block's value as it is.
    #[inline]
    fn is_kept(&self, block: BlockRef<'_>) -> bool {
        self.images.is_some_and(|images| {
            images.snapshots.keeps(block.version())
                && !images.snapshots.is(SnapshotFault::LentThoughKept)
        })
    }

    /// Keeps the value of a block that is about to be retired for the newest snapshot, if that
    /// covers it (SI1 image-first). The caller holds the lock of the block's node.
    #[inline]
    fn keep_image<'g>(
        &self,
        block: BlockRef<'g>,
        next: Option<BlockRef<'g>>,
        guard: Guard<'g>,
        context: &mut Context,
    ) {
        if let Some(images) = self.images
            && images.snapshots.keeps(block.version())
            && !images.snapshots.is(SnapshotFault::ImageLate)
        {
            let key = Key::new(self.tree.id, self.key.bytes);
            images.keep(key, block, next, guard, context);
        }
    }

    /// The planted fault: the image of a block that nobody sees any more.
    fn keep_image_late<'g>(&self, block: BlockRef<'g>, guard: Guard<'g>, context: &mut Context) {
        if let Some(images) = self.images
            && images.snapshots.is(SnapshotFault::ImageLate)
            && images.snapshots.keeps(block.version())
        {
            std::thread::yield_now();
            let key = Key::new(self.tree.id, self.key.bytes);
            images.keep(key, block, None, guard, context);
        }
    }

    /// What an absent key gets, with its version, if anything.
    fn decide_absent(&mut self) -> Option<(ValueVersion, Option<NewValue<'d>>)> {
        let new = match (self.decide)(&mut Shown::seen(None)) {
            Decision::Write(new) => Some(new),
            Decision::Remove if self.draw.buries_absent() => None,
            Decision::Keep | Decision::Remove => return None,
            Decision::Amend(_) => unreachable!("an amendment of nothing"),
        };
        Some((self.draw.after(None)?, new))
    }

    /// Calls the hook and counts a new key.
    fn announce(&mut self, block: BlockRef<'_>, context: &Context) -> Commit {
        let version = block.version();
        self.hook.committed(self.key, None, block.value(), version);
        let removed = block.is_tombstone();
        self.tree
            .counts
            .add(context.number(), i64::from(!removed), i64::from(removed));
        Commit { version, removed }
    }

    /// The key has no entry and its slice no longer key: a new entry (§4.6.2).
    fn insert<'g>(
        &mut self,
        locked: Locked<'g>,
        (permutation, position): (Permutation, usize),
        cursor: Cursor<'_>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Option<Commit> {
        let (version, new) = self.decide_absent()?;
        let suffix = KeyPart::store(&mut context.pool, cursor.suffix());
        let block = BlockRef::build(&mut context.pool, guard, version, suffix, new);
        let commit = self.announce(block, context);
        let mut filled = locked.as_ptr().addr();
        let insertion = Insertion {
            entry: NewEntry {
                slice: cursor.slice(),
                code: cursor.rank(),
                link: block.as_ptr(),
            },
            position,
            in_run: self.draw.comes_in_runs() && context.beside.last_filled == filled,
        };
        context.counters.entries.add(1);
        let tree = self.tree;
        if permutation.count() < locked.width() {
            insertion.put(tree, *locked, permutation);
        } else if locked.width() < WIDTH {
            grow(tree, locked.into_owned(), insertion, cursor, guard, context);
        } else {
            let (border, offset) = (locked.into_owned(), cursor.offset());
            let border = split(tree, border, insertion, offset, guard, context);
            filled = border.as_ptr().addr();
        }
        if self.draw.comes_in_runs() {
            context.beside.last_filled = filled;
        }
        Some(commit)
    }

    /// A longer key has the slice: both move into a new layer (§4.6.3).
    fn insert_beside<'g>(
        &mut self,
        locked: Locked<'g>,
        other: Entry<'g>,
        cursor: Cursor<'_>,
        guard: Guard<'g>,
        context: &mut Context,
    ) -> Option<Commit> {
        let (version, new) = self.decide_absent()?;
        debug_assert_eq!(cursor.rank(), CODE_SUFFIX, "shorter keys have a slot each");
        let fork = Fork::of_suffixes(other.block.key_part(), cursor.suffix());
        let suffix = KeyPart::store(&mut context.pool, fork.new.suffix());
        let block = BlockRef::build(&mut context.pool, guard, version, suffix, new);
        let commit = self.announce(block, context);
        let root = fork.build_layers(other.block, block, guard, context);
        deepen(self.tree, *locked, other.slot, root);
        drop(locked);
        let keep = Keep {
            body: true,
            key: false,
        };
        context.retire_block(self.tree, other.block, keep);
        Some(commit)
    }
}

/// Removes a value from the node at once: nobody has to remember its version
/// (V3 self-driven-removal).
#[inline(never)]
fn forget<'g>(
    tree: &Tree,
    cursor: Cursor<'_>,
    locked: Locked<'g>,
    Entry { slot, block }: Entry<'g>,
    guard: Guard<'g>,
    context: &mut Context,
) {
    let position = locked.permutation().position_of(slot);
    take_out(tree, cursor, locked, (position, block), guard, context);
    tree.counts.add(context.number(), -1, 0);
}

/// The cursor's key, if it is at this position of a border node whose lock the caller holds.
#[inline]
fn still_at<'g>(
    border: BorderRef<'g>,
    position: usize,
    cursor: Cursor<'_>,
    guard: Guard<'g>,
) -> Option<Entry<'g>> {
    let permutation = border.permutation();
    let slot = permutation.slot(position);
    let listed = position < permutation.count()
        && border.slice(slot) == cursor.slice()
        && rank_of_code(border.code(slot)) == cursor.rank();
    if !listed {
        return None;
    }
    match border.owned_slot(slot, guard).1 {
        Found::Value(block) if is_of(block, cursor) => Some(Entry { slot, block }),
        _ => None,
    }
}

#[inline]
pub(crate) fn key_state<'g>(
    border: BorderRef<'g>,
    cursor: Cursor<'_>,
    guard: Guard<'g>,
) -> KeyState<'g> {
    let permutation = border.permutation();
    let position = match border.search(permutation, cursor.slice(), cursor.rank()) {
        Ok(position) => position,
        Err(position) => return KeyState::Free(permutation, position),
    };
    let slot = permutation.slot(position);
    match border.owned_slot(slot, guard).1 {
        Found::Layer(_) => KeyState::Deeper,
        Found::Value(block) if is_of(block, cursor) => KeyState::Own(Entry { slot, block }),
        Found::Value(block) => KeyState::Other(Entry { slot, block }),
        Found::Absent => unreachable!("a listed slot holds something"),
    }
}

/// A new entry and where it goes in a border node.
#[derive(Clone, Copy)]
pub(crate) struct Insertion {
    pub(crate) entry: NewEntry,
    /// Among the node's keys.
    pub(crate) position: usize,
    /// The next key of a sorted run: higher ones are expected to follow.
    pub(crate) in_run: bool,
}

impl Insertion {
    /// Puts the entry into a free slot of a node that the caller has locked (§4.6.2).
    fn put(self, tree: &Tree, border: BorderRef<'_>, permutation: Permutation) {
        let (permutation, slot) = permutation.insert(self.position);
        if border.code(slot) != CODE_NEVER && !tree.canary.is(Fault::ReuseWithoutMark) {
            // A reader may still be looking at the key that was removed from this slot
            // (M7 slot-reuse-marked).
            border.version.mark_inserting();
        }
        border.fill(slot, self.entry);
        border.set_permutation(permutation);
    }

    /// The entry at `index` of the node's entries with the new one.
    pub(crate) fn listed(
        self,
        border: BorderRef<'_>,
        permutation: Permutation,
        index: usize,
    ) -> NewEntry {
        if index == self.position {
            return self.entry;
        }
        let slot = permutation.slot(index - usize::from(index > self.position));
        NewEntry {
            slice: border.slice(slot),
            code: border.code(slot),
            link: border.link(slot),
        }
    }
}
