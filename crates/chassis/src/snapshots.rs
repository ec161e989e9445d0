//! The snapshots of an engine, and the shadow trees that hold their before-images.
//!
//! A snapshot has a *shadow* for each tree that had keys when it was made: an ordinary tree of the
//! engine. A writer that replaces or removes a value which the newest snapshot holds first puts the
//! old value into that snapshot's shadow: its *image*. A reader looks into the tree. If it finds
//! nothing there that its snapshot holds, it looks into the shadows of its own snapshot and the
//! newer ones.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `frozen_below` | `freeze`, `release`: while nobody is within an operation | writers, `Relaxed` |
//! | `current` | `freeze`, `release`, `settle`: the mutex `state` | operations, pinned, `Acquire` |
//! | `state` | the same, and `merge` | `images`, `trees` |
//! | `Frozen::bytes` | writers, each session a shard of its own | `images` |
//!
//! Invariants:
//! - **SI1 image-first** The image of a value is in its shadow before the value's replacement is
//!   published, both under the lock of the value's key. So a reader that sees the replacement
//!   (`Acquire`) finds the image afterwards.
//! - **SI2 tree-then-shadows** A reader looks into the tree first, then into the shadows from its
//!   snapshot's to the newest. A value in the tree that its snapshot holds is the right one, since
//!   versions of a key increase. Otherwise the right value, if any, was replaced or removed while
//!   some snapshot from the reader's on was the newest, and is in that one's shadow. The shadows
//!   before that one hold nothing of the key, since nothing of it was replaced while they were the
//!   newest; so the first image found decides. If the reader's snapshot does not hold it, the key
//!   came later than the snapshot and was absent.
//! - **SI3 no-tombstones** A tombstone needs no image. The value that a tombstone held by the
//!   snapshot hides was removed earlier, and the snapshot does not hold what came after it.
//! - **SI4 one-image** A shadow has at most one image of a key: the replacement of a value has a
//!   version that the newest snapshot does not hold.
//! - **SI5 merged-down** The shadow of a released snapshot exists until it is merged into that of
//!   the next older unreleased one. Readers of the older one can need from it only what their
//!   snapshot holds, and only that is copied. The older shadow has no other image of such a key: it
//!   would be of an earlier version, replaced while the older snapshot was the newest, so the older
//!   snapshot would not hold the later version. Nor will a writer make one: the key's present value
//!   is later still.
//!
//! Deliberately absent: names and times of snapshots; who may read one when (the caller's concern).

use std::fmt;
use std::sync::Arc;

use pando_block::BlockRef;
use pando_engine::limits::SNAPSHOTS_MAX;
use pando_engine::{
    Engine, Hand, Images, Key, LogEpoch, Restore, Snapshot, SnapshotLimit, TreeId, ValueVersion,
};
use pando_sync::Padded;
use pando_sync::epoch::{Guard, ReclaimEpoch};
use pando_sync::shim::unmodelled::{AtomicBool, AtomicU64 as Counter};
use pando_sync::shim::{AtomicPtr, AtomicU64, Mutex, MutexGuard, Ordering, lock};

#[cfg(feature = "faults")]
use crate::canary::Planted;
use crate::dropped::{DroppedTrees, Freed};

/// Images that one step of a merge looks at, under the mutex `state`.
const MERGED_AT_ONCE: usize = 64;

/// Released snapshots that may wait to be merged, in addition to the greatest number of others:
/// reads at older ones pass them all.
const UNMERGED_MAX: usize = SNAPSHOTS_MAX;

/// Counters of bytes, so that sessions do not write the same line.
const SHARDS: usize = 16;

/// One snapshot and its shadows.
pub struct Frozen {
    snapshot: Snapshot,
    /// Trees and their shadows, in tree order.
    shadows: Box<[(TreeId, TreeId)]>,
    bytes: [Padded<Counter>; SHARDS],
    /// Released, and what older snapshots need from it is in their shadows (SI5 merged-down).
    merged: AtomicBool,
}

impl Frozen {
    fn new(snapshot: Snapshot, mut shadows: Vec<(TreeId, TreeId)>) -> Self {
        shadows.sort_unstable();
        Self {
            snapshot,
            shadows: shadows.into(),
            bytes: Default::default(),
            merged: AtomicBool::new(false),
        }
    }

    /// The shadow of this tree, if it had keys.
    fn shadow(&self, tree: TreeId) -> Option<TreeId> {
        let found = self.shadows.binary_search_by_key(&tree, |(tree, _)| *tree);
        Some(self.shadows[found.ok()?].1)
    }

    fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.shadows.iter().map(|(_, shadow)| *shadow)
    }

    /// Images.
    fn count(&self, engine: &impl Engine) -> u64 {
        self.trees().map(|tree| engine.len(tree)).sum()
    }

    /// Counts the bytes of an image that a session made.
    pub fn add_bytes(&self, session: usize, bytes: usize) {
        self.bytes[session % SHARDS].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    // Relaxed: every caller holds the mutex `state`.
    fn is_merged(&self) -> bool {
        self.merged.load(Ordering::Relaxed)
    }

    fn set_merged(&self, merged: bool) {
        self.merged.store(merged, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        let shards = self.bytes.iter();
        shards.map(|shard| shard.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Clone)]
struct Entry {
    frozen: Arc<Frozen>,
    released: bool,
}

/// Oldest first.
type List = Vec<Entry>;

/// How far the oldest released snapshot is merged, and into which one.
struct Merge {
    from: Snapshot,
    into: Snapshot,
    /// The shadow being merged.
    shadow: usize,
    hand: Hand,
}

#[derive(Default)]
struct State {
    list: Arc<List>,
    merge: Option<Merge>,
}

/// A fault that tests of the engines can plant (feature `faults`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFault {
    /// An image is made after its successor was published (SI1 image-first).
    ImageLate,
    /// A reader takes the first image, whether its snapshot holds it or not
    /// (SI2 tree-then-shadows).
    LaterImage,
    /// What older snapshots need of a released one is not copied (SI5 merged-down).
    DroppedMerge,
    /// A large row that the newest snapshot holds is changed in place (SI1 image-first).
    LentThoughKept,
}

/// See the module's header.
pub struct Snapshots {
    /// The first version that no snapshot holds, as bits; 0 without snapshots.
    frozen_below: AtomicU64,
    current: AtomicPtr<List>,
    state: Mutex<State>,
    /// Lists that were replaced.
    replaced: DroppedTrees<List, ()>,
    #[cfg(feature = "faults")]
    planted: Planted,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Snapshots").finish_non_exhaustive()
    }
}

impl Default for Snapshots {
    fn default() -> Self {
        let state = State::default();
        Self {
            frozen_below: AtomicU64::new(0),
            current: AtomicPtr::new(Arc::as_ptr(&state.list).cast_mut()),
            state: Mutex::new(state),
            replaced: DroppedTrees::default(),
            #[cfg(feature = "faults")]
            planted: Planted::default(),
        }
    }
}

/// Planted faults (STYLE 32).
impl Snapshots {
    /// Whether this fault is planted; known when the crate is compiled without them.
    #[inline]
    #[must_use]
    pub fn is(&self, fault: SnapshotFault) -> bool {
        #[cfg(feature = "faults")]
        return self.planted.is(fault as u8 + 1);
        #[cfg(not(feature = "faults"))]
        {
            let _ = fault;
            false
        }
    }

    /// Plants a fault.
    #[cfg(feature = "faults")]
    pub fn plant(&self, fault: SnapshotFault) {
        self.planted.plant(fault as u8 + 1);
    }
}

/// What operations ask.
impl Snapshots {
    /// Whether a value of this version needs an image before it is replaced.
    #[inline]
    #[must_use]
    pub fn keeps(&self, version: ValueVersion) -> bool {
        // Relaxed: it changes while nobody is in an operation; the caller that ensures this orders
        // it.
        version.to_bits() < self.frozen_below.load(Ordering::Relaxed)
    }

    /// Whether any value may need an image.
    #[inline]
    #[must_use]
    pub fn is_keeping(&self) -> bool {
        // Relaxed: as in `keeps`.
        self.frozen_below.load(Ordering::Relaxed) != 0
    }

    fn list<'g>(&self, _: Guard<'g>) -> &'g List {
        // Acquire pairs with `publish`.
        let list = self.current.load(Ordering::Acquire);
        // SAFETY: a list that was replaced waits in `replaced` until every pin that could have seen
        // it has ended; an engine that goes has no pins.
        unsafe { &*list }
    }

    /// The shadow that takes images of this tree now.
    #[must_use]
    pub fn newest<'g>(&self, tree: TreeId, guard: Guard<'g>) -> Option<(&'g Frozen, TreeId)> {
        let mut live = self.list(guard).iter().filter(|entry| !entry.released);
        let newest = live.next_back()?;
        Some((&newest.frozen, newest.frozen.shadow(tree)?))
    }

    /// The snapshots whose shadows a reader at this one consults, in order.
    fn from<'g>(
        &self,
        at: Snapshot,
        guard: Guard<'g>,
    ) -> impl Iterator<Item = &'g Frozen> + use<'g> {
        let list = self.list(guard);
        let first = list.partition_point(|entry| entry.frozen.snapshot < at);
        list[first..].iter().map(|entry| &*entry.frozen)
    }

    /// The shadows of a tree that a reader at this snapshot consults, in order
    /// (SI2 tree-then-shadows).
    pub fn shadows<'g>(
        &self,
        at: Snapshot,
        tree: TreeId,
        guard: Guard<'g>,
    ) -> impl Iterator<Item = TreeId> + use<'g> {
        let from = self.from(at, guard);
        from.filter_map(move |frozen| frozen.shadow(tree))
    }

    /// The block that the key had at this snapshot, perhaps a tombstone; `look` looks it up in a
    /// tree (SI2 tree-then-shadows).
    #[inline]
    pub fn block_at<'g>(
        &self,
        at: Snapshot,
        tree: TreeId,
        guard: Guard<'g>,
        mut look: impl FnMut(TreeId) -> Option<BlockRef<'g>>,
    ) -> Option<BlockRef<'g>> {
        let present = look(tree).filter(|block| at.holds(block.version()));
        if present.is_some() {
            return present;
        }
        let image = self.shadows(at, tree, guard).find_map(look);
        image.filter(|image| self.shows(at, *image))
    }

    /// Whether the first image of a key is what a reader at this snapshot sees.
    fn shows(&self, at: Snapshot, image: BlockRef<'_>) -> bool {
        // SI3.
        debug_assert!(!image.is_tombstone());
        at.holds(image.version()) || self.is(SnapshotFault::LaterImage)
    }

    /// [`Self::block_at`] of up to `N` keys, at most 64; `look` looks up many at once.
    pub fn blocks_at<'k, 'g, const N: usize>(
        &self,
        at: Snapshot,
        keys: &[Key<'k>],
        guard: Guard<'g>,
        mut look: impl FnMut(&[Key<'k>]) -> [Option<BlockRef<'g>>; N],
    ) -> [Option<BlockRef<'g>>; N] {
        const { assert!(N <= u64::BITS as usize) };
        let mut blocks = look(keys);
        // A bit for each key that only an image can show.
        let mut sought = 0_u64;
        for (index, block) in blocks[..keys.len()].iter_mut().enumerate() {
            *block = block.filter(|block| at.holds(block.version()));
            sought |= u64::from(block.is_none()) << index;
        }
        for frozen in self.from(at, guard) {
            if sought == 0 {
                break;
            }
            let mut images = [const { Key::new(TreeId(0), b"") }; N];
            let mut indexes = [0; N];
            let mut count = 0;
            for (index, key) in keys.iter().enumerate() {
                if sought & 1 << index == 0 {
                    continue;
                }
                if let Some(shadow) = frozen.shadow(key.tree) {
                    images[count] = Key::new(shadow, key.bytes);
                    indexes[count] = index;
                    count += 1;
                }
            }
            if count == 0 {
                continue;
            }
            let found = look(&images[..count]);
            for (image, index) in found.into_iter().zip(&indexes[..count]) {
                if let Some(image) = image {
                    blocks[*index] = Some(image).filter(|image| self.shows(at, *image));
                    sought &= !(1 << index);
                }
            }
        }
        blocks
    }
}

/// Changes to the list, and views of it from outside.
impl Snapshots {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn publish(&self, state: &mut State, list: List, stamp: impl FnOnce() -> ReclaimEpoch) {
        assert!(list.is_sorted_by(|one, next| one.frozen.snapshot < next.frozen.snapshot));
        let live = list.iter().filter(|entry| !entry.released);
        let newest = live
            .map(|entry| entry.frozen.snapshot.epoch().0)
            .next_back();
        let frozen_below = newest.map_or(0, |epoch| {
            ValueVersion::first_of(LogEpoch(epoch + 1)).to_bits()
        });
        let replaced = std::mem::replace(&mut state.list, Arc::new(list));
        // Release pairs with `list`.
        let current = Arc::as_ptr(&state.list).cast_mut();
        self.current.store(current, Ordering::Release);
        self.frozen_below.store(frozen_below, Ordering::Relaxed);
        self.replaced.push(replaced, stamp());
    }

    /// Makes a snapshot of those of `trees` that have keys. The caller's duties are those of
    /// [`pando_engine::Snapshots::freeze`].
    ///
    /// # Panics
    /// When the epoch is not above that of the newest snapshot.
    pub fn freeze(
        &self,
        engine: &impl Engine,
        epoch: LogEpoch,
        trees: impl IntoIterator<Item = TreeId>,
        stamp: impl FnOnce() -> ReclaimEpoch,
    ) -> Result<Snapshot, SnapshotLimit> {
        let snapshot = Snapshot::of_epoch(epoch);
        let mut state = self.state();
        let mut list = List::clone(&state.list);
        SnapshotLimit::check(list.iter().filter(|entry| !entry.released).count())?;
        SnapshotLimit::check(list.len().saturating_sub(UNMERGED_MAX))?;
        let newest = list.last().map(|entry| entry.frozen.snapshot);
        assert!(newest < Some(snapshot), "an epoch that was frozen before");
        let shadowed = |tree| (tree, engine.create_tree());
        let shadows = trees.into_iter().map(shadowed).collect();
        list.push(Entry {
            frozen: Arc::new(Frozen::new(snapshot, shadows)),
            released: false,
        });
        self.publish(&mut state, list, stamp);
        Ok(snapshot)
    }

    /// Releases a snapshot; see [`pando_engine::Snapshots::release`].
    pub fn release(
        &self,
        engine: &impl Engine,
        snapshot: Snapshot,
        stamp: impl FnOnce() -> ReclaimEpoch,
    ) {
        let mut state = self.state();
        let mut list = List::clone(&state.list);
        let mut entries = list.iter_mut();
        let entry = entries.find(|entry| entry.frozen.snapshot == snapshot);
        let entry = entry.expect("the snapshot is there");
        assert!(!entry.released, "released twice");
        entry.released = true;
        // One that keeps nothing is dropped at once: making and dropping snapshots in turn leaves
        // no trail.
        entry.frozen.set_merged(entry.frozen.count(engine) == 0);
        // What was merged into this one continues to the next older one.
        let newer = list.iter().filter(|entry| entry.frozen.snapshot > snapshot);
        newer
            .take_while(|entry| entry.released)
            .for_each(|entry| entry.frozen.set_merged(false));
        // A merge in progress continues unless it was into this one: otherwise dropping snapshots
        // faster than one is merged would keep all of them.
        self.unlink(&mut state, engine, list, stamp);
    }

    /// Publishes the list without those that nobody needs, and drops their shadows.
    fn unlink(
        &self,
        state: &mut State,
        engine: &impl Engine,
        list: List,
        stamp: impl FnOnce() -> ReclaimEpoch,
    ) {
        // Nobody reads behind the oldest snapshot.
        let oldest = list.iter().position(|entry| !entry.released);
        let oldest = oldest.unwrap_or(list.len());
        let (mut kept, mut gone) = (List::new(), List::new());
        for (index, entry) in list.into_iter().enumerate() {
            let needed = !entry.released || (index > oldest && !entry.frozen.is_merged());
            if needed { &mut kept } else { &mut gone }.push(entry);
        }
        self.publish(state, kept, stamp);
        for shadow in gone.iter().flat_map(|entry| entry.frozen.trees()) {
            engine.drop_tree(shadow);
        }
    }

    /// Whether [`Self::settle`] has work to do.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        let state = self.state();
        state.list.iter().any(|entry| entry.frozen.is_merged())
    }

    /// See [`pando_engine::Snapshots::settle`].
    pub fn settle(&self, engine: &impl Engine, stamp: impl FnOnce() -> ReclaimEpoch) {
        let mut state = self.state();
        let list = List::clone(&state.list);
        self.unlink(&mut state, engine, list, stamp);
    }

    /// What is kept for this snapshot alone, including shadows that are merged into its own.
    pub fn images(&self, engine: &impl Engine, snapshot: Snapshot) -> Images {
        let list = Arc::clone(&self.state().list);
        let from = list
            .iter()
            .skip_while(|entry| entry.frozen.snapshot < snapshot);
        let own = from
            .enumerate()
            .take_while(|(index, entry)| *index == 0 || entry.released)
            .map(|(_, entry)| &entry.frozen);
        own.fold(Images::default(), |sum, frozen| Images {
            count: sum.count + frozen.count(engine),
            bytes: sum.bytes + frozen.bytes(),
        })
    }

    /// All shadows.
    #[must_use]
    pub fn trees(&self) -> Vec<TreeId> {
        let list = Arc::clone(&self.state().list);
        list.iter().flat_map(|entry| entry.frozen.trees()).collect()
    }

    /// Frees lists that nobody reads any more.
    pub fn free_replaced(&self, has_passed: impl Fn(ReclaimEpoch) -> bool) {
        let whole = Freed {
            steps: 1,
            whole: true,
        };
        self.replaced
            .free(usize::MAX, has_passed, |_, _, (), _| whole);
    }
}

/// Merging what released snapshots leave (SI5 merged-down).
impl Snapshots {
    /// Takes up to `steps` steps, each of which looks at one image; returns how many.
    pub fn merge(&self, session: &mut impl Restore, number: usize, steps: usize) -> usize {
        let mut done = 0;
        while done < steps {
            let portion = MERGED_AT_ONCE.min(steps - done);
            if !self.merge_portion(session, number, portion) {
                break;
            }
            done += portion;
        }
        done
    }

    /// Merges a portion of the first remaining shadow; returns whether there was one.
    fn merge_portion(&self, session: &mut impl Restore, number: usize, portion: usize) -> bool {
        let mut state = self.state();
        let State { list, merge } = &mut *state;
        let is_left = |entry: &Entry| entry.released && !entry.frozen.is_merged();
        let Some(from) = list.iter().position(is_left) else {
            return false;
        };
        let older = list[..from].iter().rfind(|entry| !entry.released);
        let into = &older.expect("what nobody needs was unlinked").frozen;
        let source = &list[from].frozen;
        assert!(into.snapshot < source.snapshot);
        let stands = merge
            .take()
            .filter(|merge| (merge.from, merge.into) == (source.snapshot, into.snapshot));
        let mut stands = stands.unwrap_or(Merge {
            from: source.snapshot,
            into: into.snapshot,
            shadow: 0,
            hand: Hand::default(),
        });
        match source.shadows.get(stands.shadow) {
            Some(&(tree, shadow)) => {
                let ended = match into.shadow(tree) {
                    Some(_) if self.is(SnapshotFault::DroppedMerge) => true,
                    Some(target) => {
                        let places = (shadow, target);
                        copy(session, number, into, places, &mut stands.hand, portion)
                    }
                    // The tree had no keys when the older snapshot was made.
                    None => true,
                };
                if ended {
                    stands.shadow += 1;
                    stands.hand = Hand::default();
                }
                *merge = Some(stands);
            }
            None => source.set_merged(true),
        }
        true
    }
}

/// Copies what `into` holds of the next images of a shadow; returns whether the end was reached.
fn copy(
    session: &mut impl Restore,
    number: usize,
    into: &Frozen,
    (shadow, target): (TreeId, TreeId),
    hand: &mut Hand,
    portion: usize,
) -> bool {
    let mut held = Vec::new();
    let ended = session.sweep(shadow, hand, portion, |key, value| {
        if into.snapshot.holds(value.version) {
            held.push((key.to_vec(), value.version, value.hand_over()));
        }
    });
    for (key, version, value) in held {
        let bytes = key.len() + value.view(version).heap_bytes();
        if session.restore(Key::new(target, &key), version, Some(value)) {
            into.add_bytes(number, bytes);
        }
    }
    ended
}
