//! An engine that is sound, or broken in one way.
//!
//! It is a map behind a mutex. Values are counted references, so readers' closures run outside the
//! lock as they do on lock-free engines.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard};

use pando_sync::lock;
use pando_sync::shim::unmodelled::{AtomicU32, AtomicUsize, Ordering};

use crate::mark::{MARK_MAX, with_mark};
use crate::{
    AccessMark, Attributes, Body, CommitHook, Decision, Direction, Emptying, Engine, EpochClock,
    Gauge, Hand, Key, LogEpoch, NewValue, NoHook, Ordered, Point, Probe, Relocate, Restore,
    SessionLimit, StringBody, TreeId, ValueRef, ValueVersion, Walk, sweep_in_order,
};

const SESSIONS_MAX: usize = 32;
const SCAN_CHUNK_ENTRIES: usize = 16;
const WALK_STEP_ENTRIES: usize = 8;

/// The planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fault {
    /// None: the suite must accept this engine.
    Nothing,
    LostUpdate,
    ClosureNotRunOnDroppedTree,
    StaleRead,
    KeyHiddenForAMoment,
    TornRead,
    ValueChangesUnderReader,
    AttributesLost,
    AmendmentDropsAttributes,
    ProbeWithoutDeadline,
    HookSkippedForRemoval,
    HookTwice,
    HookWithoutOldValue,
    HookAfterUnlock,
    KeepCommits,
    AbsentRemovalCommits,
    VersionRestartsAfterRemoval,
    VersionOfTheEpochOnly,
    PurgedTooEarly,
    NeverPurged,
    PurgeTakesLivingKeys,
    MaintainExceedsSteps,
    ScanUnsorted,
    ScanRepeatsKey,
    ScanByPosition,
    ScanSkipsKey,
    ScanTakesExcludedKey,
    BackwardScanIgnoresBound,
    ScanShowsRemoved,
    ScanIgnoresBreak,
    WalkSkipsKey,
    WalkRepeatsKey,
    WalkByPosition,
    SampleMissesLast,
    SampleOfEmptyTree,
    MarksLost,
    MarkStartsAt0,
    SweepSkipsKey,
    SweepNeverEnds,
    MoveDrawsVersion,
    MoveLosesMark,
    LenCountsTombstones,
    DroppedTreeStays,
    DropTakesAllTrees,
    TreesShareKeys,
    TrailingZerosIgnored,
    KeysCutAt255,
    GetManyReversed,
    UpdateManyReversed,
    MisuseStored,
    SessionsUnbounded,
    SessionsNeverReturn,
    PinsNeverEnd,
    RestoreTakesOlder,
    RestoreForgetsTombstone,
    RestoredTreeGivenAgain,
    RestoreEmptiesTree,
    BoundariesUnsorted,
    BoundariesByFirstByte,
}

#[derive(Clone)]
struct Slot {
    version: ValueVersion,
    value: Option<Arc<NewValue<'static>>>,
    mark: Arc<AtomicU32>,
}

type Map = BTreeMap<Vec<u8>, Slot>;

#[derive(Default)]
struct State {
    trees: BTreeMap<TreeId, Map>,
    next_tree: u32,
    /// Removed keys, to be purged.
    removed: VecDeque<(LogEpoch, TreeId, Vec<u8>)>,
}

/// The engine; the parameter is a [`Fault`].
pub(super) struct FaultyEngine<const FAULT: u8> {
    clock: Arc<EpochClock>,
    state: Mutex<State>,
    sessions: AtomicUsize,
    /// Held pins, reported as retained memory.
    pins: AtomicUsize,
}

pub(super) struct FaultySession<const FAULT: u8> {
    engine: Arc<FaultyEngine<FAULT>>,
    stale: HashMap<(TreeId, Vec<u8>), Option<Slot>>,
    reads: usize,
    emptied: bool,
}

const fn is(fault: u8, other: Fault) -> bool {
    fault == other as u8
}

impl Slot {
    fn view(&self) -> Option<ValueRef<'_>> {
        self.value.as_ref().map(|value| ValueRef {
            mark: AccessMark::of(&self.mark),
            ..value.view(self.version)
        })
    }
}

fn view(slot: Option<&Slot>) -> Option<ValueRef<'_>> {
    slot.and_then(Slot::view)
}

impl<const FAULT: u8> FaultyEngine<FAULT> {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Where the engine keeps a key.
    fn place(key: Key<'_>) -> (TreeId, Vec<u8>) {
        if !is(FAULT, Fault::MisuseStored) {
            key.check();
        }
        let tree = if is(FAULT, Fault::TreesShareKeys) {
            TreeId(0)
        } else {
            key.tree
        };
        let mut bytes = key.bytes.to_vec();
        if is(FAULT, Fault::TrailingZerosIgnored) && bytes.len() <= 8 {
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
        }
        if is(FAULT, Fault::KeysCutAt255) {
            bytes.truncate(255);
        }
        (tree, bytes)
    }

    fn slot(&self, key: Key<'_>) -> Option<Slot> {
        let (tree, key) = Self::place(key);
        self.lock().trees.get(&tree)?.get(&key).cloned()
    }
}

impl<const FAULT: u8> Engine for FaultyEngine<FAULT> {
    type Session = FaultySession<FAULT>;
    type Options = ();
    type OpenError = Infallible;

    const NAME: &'static str = "faulty";

    fn open(clock: Arc<EpochClock>, (): ()) -> Result<Arc<Self>, Infallible> {
        Ok(Arc::new(Self {
            clock,
            state: Mutex::default(),
            sessions: AtomicUsize::new(0),
            pins: AtomicUsize::new(0),
        }))
    }

    fn session(self: &Arc<Self>) -> Result<FaultySession<FAULT>, SessionLimit> {
        let open = self.sessions.fetch_add(1, Ordering::Relaxed);
        if open >= SESSIONS_MAX && !is(FAULT, Fault::SessionsUnbounded) {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            return Err(SessionLimit {
                sessions_max: SESSIONS_MAX,
            });
        }
        Ok(FaultySession {
            engine: Arc::clone(self),
            stale: HashMap::new(),
            reads: 0,
            emptied: false,
        })
    }

    fn create_tree(&self) -> TreeId {
        let mut state = self.lock();
        let tree = TreeId(state.next_tree);
        state.next_tree += 1;
        state.trees.insert(tree, Map::new());
        tree
    }

    fn restore_tree(&self, tree: TreeId) {
        let mut state = self.lock();
        if !is(FAULT, Fault::RestoredTreeGivenAgain) {
            state.next_tree = state.next_tree.max(tree.0 + 1);
        }
        let map = state.trees.entry(tree).or_default();
        if is(FAULT, Fault::RestoreEmptiesTree) {
            map.clear();
        }
    }

    fn drop_tree(&self, tree: TreeId) {
        let mut state = self.lock();
        if is(FAULT, Fault::DropTakesAllTrees) {
            state.trees.values_mut().for_each(Map::clear);
        }
        if !is(FAULT, Fault::DroppedTreeStays) {
            state.trees.remove(&tree);
        }
    }

    fn len(&self, tree: TreeId) -> u64 {
        let state = self.lock();
        let Some(map) = state.trees.get(&tree) else {
            return 0;
        };
        let counted = |slot: &&Slot| slot.value.is_some() || is(FAULT, Fault::LenCountsTombstones);
        map.values().filter(counted).count() as u64
    }

    fn reclaimable_bytes(&self) -> usize {
        self.pins.load(Ordering::Relaxed)
    }

    fn gauges(&self, _: &mut dyn FnMut(Gauge)) {}
}

impl<const FAULT: u8> Emptying for FaultyEngine<FAULT> {
    fn idle_bytes(&self) -> usize {
        0
    }
}

impl<const FAULT: u8> Drop for FaultySession<FAULT> {
    fn drop(&mut self) {
        if !is(FAULT, Fault::SessionsNeverReturn) {
            self.engine.sessions.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<const FAULT: u8> FaultySession<FAULT> {
    /// What a reader sees.
    fn read_slot(&mut self, key: Key<'_>) -> Option<Slot> {
        let slot = self.engine.slot(key);
        self.reads += 1;
        if is(FAULT, Fault::KeyHiddenForAMoment) && self.reads.is_multiple_of(1_000) {
            return None;
        }
        if is(FAULT, Fault::StaleRead) {
            let place = FaultyEngine::<FAULT>::place(key);
            let cached = self.stale.entry(place).or_insert_with(|| slot.clone());
            if self.reads.is_multiple_of(3) {
                return std::mem::replace(cached, slot);
            }
        }
        if is(FAULT, Fault::TornRead)
            && let Some(Slot {
                value: Some(value), ..
            }) = &slot
        {
            std::thread::yield_now();
            // The content of one version, the rest of a later one.
            if let Some(Slot {
                version,
                value: Some(later),
                mark,
            }) = self.engine.slot(key)
                && let Body::String(StringBody::Flat(bytes)) = &value.body
            {
                let body = Body::string_owned(bytes.to_vec());
                let value = NewValue::new(body).with(later.attributes);
                return Some(Slot {
                    version,
                    value: Some(Arc::new(value)),
                    mark,
                });
            }
        }
        slot
    }

    /// Draws a version, calls the hook, stores the value.
    fn commit<H: CommitHook>(
        state: &mut State,
        epoch: LogEpoch,
        key: Key<'_>,
        hook: &mut H,
        mut new: Option<NewValue<'static>>,
    ) -> Option<ValueVersion> {
        let (tree, place) = FaultyEngine::<FAULT>::place(key);
        let map = state.trees.get_mut(&tree)?;
        let old = map.get(&place).cloned();
        let forgets = is(FAULT, Fault::VersionOfTheEpochOnly)
            || is(FAULT, Fault::VersionRestartsAfterRemoval)
                && old.as_ref().is_some_and(|old| old.value.is_none());
        let last = old.as_ref().filter(|_| !forgets).map(|old| old.version);
        let version = ValueVersion::after(last, epoch);
        if is(FAULT, Fault::AttributesLost)
            && let Some(new) = &mut new
        {
            new.attributes = Attributes {
                token: None,
                ..new.attributes
            };
        }
        let starts = !is(FAULT, Fault::MarkStartsAt0);
        let mark = new.as_ref().filter(|_| starts).map_or(0, |new| new.mark);
        let new = Slot {
            version,
            value: new.map(Arc::new),
            mark: Arc::new(AtomicU32::new(with_mark(0, mark))),
        };
        let removal = new.value.is_none();
        let shown = view(old.as_ref()).filter(|_| !is(FAULT, Fault::HookWithoutOldValue));
        if !(is(FAULT, Fault::HookSkippedForRemoval) && removal) {
            hook.committed(key, shown, new.view(), version);
        }
        if is(FAULT, Fault::HookTwice) {
            hook.committed(key, shown, new.view(), version);
        }
        map.insert(place.clone(), new);
        if removal {
            state.removed.push_back((version.epoch(), tree, place));
        }
        Some(version)
    }

    /// The entries of the next chunk of a scan.
    fn chunk(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        passed: usize,
    ) -> Vec<(Vec<u8>, Slot)> {
        let state = self.engine.lock();
        let Some(map) = state.trees.get(&tree) else {
            return Vec::new();
        };
        let from = match from {
            Bound::Excluded(key) if is(FAULT, Fault::ScanTakesExcludedKey) && passed == 0 => {
                Bound::Included(key)
            }
            from => from,
        };
        let skipped = if is(FAULT, Fault::ScanByPosition) {
            passed
        } else {
            0
        };
        let alive = |(_, slot): &(&Vec<u8>, &Slot)| {
            slot.value.is_some() || is(FAULT, Fault::ScanShowsRemoved)
        };
        let own = |(key, slot): (&Vec<u8>, &Slot)| (key.clone(), slot.clone());
        let limit = SCAN_CHUNK_ENTRIES;
        let mut chunk: Vec<_> = match direction {
            Direction::Forward => {
                let range = map.range::<[u8], _>((from, Bound::Unbounded));
                range
                    .filter(alive)
                    .skip(skipped)
                    .take(limit)
                    .map(own)
                    .collect()
            }
            Direction::Backward => {
                let from = match from {
                    Bound::Included(_) if is(FAULT, Fault::BackwardScanIgnoresBound) => {
                        Bound::Unbounded
                    }
                    from => from,
                };
                let range = map.range::<[u8], _>((Bound::Unbounded, from)).rev();
                range
                    .filter(alive)
                    .skip(skipped)
                    .take(limit)
                    .map(own)
                    .collect()
            }
        };
        if is(FAULT, Fault::ScanUnsorted) && chunk.len() > 2 {
            chunk.swap(0, 1);
        }
        chunk
    }
}

impl<const FAULT: u8> Point for FaultySession<FAULT> {
    fn pin(&mut self) {
        self.engine.pins.fetch_add(1, Ordering::Relaxed);
    }

    fn unpin(&mut self) {
        if !is(FAULT, Fault::PinsNeverEnd) {
            self.engine.pins.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        let slot = self.read_slot(key);
        if is(FAULT, Fault::ValueChangesUnderReader)
            && let Some(Slot {
                version,
                value: Some(value),
                ..
            }) = &slot
            && value.attributes.flags % 8 == 7
        {
            // What a reader sees of memory that was freed and reused.
            let value = NewValue::new(Body::string(b"other")).with(value.attributes);
            return read(Some(value.view(*version)));
        }
        if is(FAULT, Fault::MarksLost) {
            return read(view(slot.as_ref()).map(|value| ValueRef {
                mark: AccessMark::NONE,
                ..value
            }));
        }
        read(view(slot.as_ref()))
    }

    fn get_many(&mut self, keys: &[Key<'_>], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        for at in 0..keys.len() {
            let reversed = is(FAULT, Fault::GetManyReversed);
            let index = if reversed { keys.len() - 1 - at } else { at };
            self.get(keys[index], |value| read(index, value));
        }
    }

    fn warm(&mut self, _: &[Key<'_>]) {}

    fn probe(&mut self, key: Key<'_>) -> Probe {
        match self.engine.slot(key) {
            None => Probe::Absent,
            Some(Slot {
                version,
                value: None,
                ..
            }) => Probe::Removed(version),
            Some(Slot {
                version,
                value: Some(value),
                ..
            }) => {
                let deadline = value.attributes.deadline;
                let known = !is(FAULT, Fault::ProbeWithoutDeadline);
                Probe::Present {
                    version,
                    deadline: deadline.filter(|_| known),
                }
            }
        }
    }

    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        let engine = Arc::clone(&self.engine);
        let mut state = engine.lock();
        let (tree, place) = FaultyEngine::<FAULT>::place(key);
        let old = state
            .trees
            .get(&tree)
            .and_then(|map| map.get(&place))
            .cloned();
        if is(FAULT, Fault::LostUpdate) {
            drop(state);
            std::thread::yield_now();
            state = engine.lock();
        }
        if is(FAULT, Fault::ClosureNotRunOnDroppedTree) && !state.trees.contains_key(&tree) {
            return None;
        }
        let there = view(old.as_ref()).is_some();
        let new = match decide(view(old.as_ref())) {
            Decision::Keep if is(FAULT, Fault::KeepCommits) && there => old
                .as_ref()
                .and_then(Slot::view)
                .map(|value| value.hand_over()),
            Decision::Remove if is(FAULT, Fault::AbsentRemovalCommits) => None,
            Decision::Keep => return None,
            Decision::Remove if !there => return None,
            Decision::Remove => None,
            Decision::Write(value) => Some(value.into_stored()),
            Decision::Amend(it) => Some(super::amended::<FAULT>(&it, view(old.as_ref()))),
        };
        let epoch = engine.clock.current();
        if is(FAULT, Fault::HookAfterUnlock) {
            let version = Self::commit(&mut state, epoch, key, &mut crate::NoHook, new);
            let new = state
                .trees
                .get(&tree)
                .and_then(|map| map.get(&place))
                .cloned();
            drop(state);
            std::thread::yield_now();
            if let Some(version) = version {
                hook.committed(key, view(old.as_ref()), view(new.as_ref()), version);
            }
            return version;
        }
        Self::commit(&mut state, epoch, key, hook, new)
    }

    fn update_many<'d, H: CommitHook>(
        &mut self,
        keys: &[Key<'_>],
        hook: &mut H,
        mut decide: impl FnMut(usize, Option<ValueRef<'_>>) -> Decision<'d>,
    ) {
        for at in 0..keys.len() {
            let reversed = is(FAULT, Fault::UpdateManyReversed);
            let index = if reversed { keys.len() - 1 - at } else { at };
            self.update(keys[index], hook, |old| decide(index, old));
        }
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let state = self.engine.lock();
        let live = state.trees.get(&tree).into_iter().flatten();
        let mut live: Vec<_> = live
            .filter_map(|(key, slot)| Some((&key[..], slot.view()?)))
            .collect();
        if live.is_empty() && is(FAULT, Fault::SampleOfEmptyTree) {
            let value = NewValue::new(Body::string(b""));
            return read(Some((b"", value.view(ValueVersion::first_of(LogEpoch(1))))));
        }
        if live.len() > 1 && is(FAULT, Fault::SampleMissesLast) {
            live.pop();
        }
        let index = random as usize % live.len().max(1);
        read(live.get(index).copied())
    }

    fn sweep(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        mut visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        let mut shown = 0;
        let ended = sweep_in_order(self, tree, hand, steps, |key, value| {
            shown += 1;
            if !(is(FAULT, Fault::SweepSkipsKey) && shown == 64) {
                visit(key, value);
            }
        });
        ended && !is(FAULT, Fault::SweepNeverEnds)
    }

    fn maintain(&mut self, steps: usize) -> usize {
        let mut state = self.engine.lock();
        let horizon = self.engine.clock.horizon();
        let mut done = 0;
        let limit = if is(FAULT, Fault::MaintainExceedsSteps) {
            usize::MAX
        } else {
            steps
        };
        if is(FAULT, Fault::NeverPurged) {
            return 0;
        }
        while done < limit
            && let Some((epoch, ..)) = state.removed.front()
            && (*epoch < horizon || is(FAULT, Fault::PurgedTooEarly))
        {
            let (_, tree, key) = state.removed.pop_front().expect("there is a front");
            if let Some(map) = state.trees.get_mut(&tree)
                && let Some(slot) = map.get(&key)
            {
                let old = slot.version.epoch() < horizon || is(FAULT, Fault::PurgedTooEarly);
                let dead = slot.value.is_none() || is(FAULT, Fault::PurgeTakesLivingKeys);
                if old && dead {
                    map.remove(&key);
                }
            }
            done += 1;
        }
        done
    }
}

impl<const FAULT: u8> Restore for FaultySession<FAULT> {
    fn restore(
        &mut self,
        key: Key<'_>,
        version: ValueVersion,
        value: Option<NewValue<'_>>,
    ) -> bool {
        let (tree, place) = FaultyEngine::<FAULT>::place(key);
        let mut state = self.engine.lock();
        let Some(map) = state.trees.get_mut(&tree) else {
            return false;
        };
        let older = |old: &Slot| old.version >= version;
        if map.get(&place).is_some_and(older) && !is(FAULT, Fault::RestoreTakesOlder) {
            return false;
        }
        let value = value.map(|value| Arc::new(value.into_stored()));
        if value.is_none() {
            if is(FAULT, Fault::RestoreForgetsTombstone) {
                return map.remove(&place).is_some();
            }
            let tombstone = (version.epoch(), tree, place.clone());
            state.removed.push_back(tombstone);
        }
        let map = state.trees.get_mut(&tree).expect("found above");
        let mark = Arc::default();
        map.insert(
            place,
            Slot {
                version,
                value,
                mark,
            },
        );
        true
    }
}

impl<const FAULT: u8> Relocate for FaultySession<FAULT> {
    fn begin_emptying(&mut self, _: bool) -> bool {
        // Once per session.
        let begins = !self.emptied;
        self.emptied = true;
        begins
    }

    fn end_emptying(&mut self) {}

    fn sweep_emptying(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool {
        self.sweep(tree, hand, steps, visit)
    }

    fn relocate(&mut self, key: Key<'_>) -> bool {
        if is(FAULT, Fault::MoveDrawsVersion) {
            let moved = self.update(key, &mut NoHook, |old| {
                old.map_or(Decision::Keep, |old| Decision::Write(old.hand_over()))
            });
            return moved.is_some();
        }
        if is(FAULT, Fault::MoveLosesMark) {
            self.get(key, |value| {
                if let Some(value) = value {
                    value.mark.set(MARK_MAX);
                }
            });
        }
        true
    }
}

impl<const FAULT: u8> Ordered for FaultySession<FAULT> {
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        let (tree, _) = FaultyEngine::<FAULT>::place(Key::new(tree, b""));
        let mut passed = 0;
        let mut last: Option<Vec<u8>> = None;
        loop {
            let bound = match &last {
                None => from,
                Some(_) if is(FAULT, Fault::ScanByPosition) => from,
                Some(key) if is(FAULT, Fault::ScanRepeatsKey) && passed == SCAN_CHUNK_ENTRIES => {
                    Bound::Included(&key[..])
                }
                Some(key) => Bound::Excluded(&key[..]),
            };
            let chunk = self.chunk(tree, bound, direction, passed);
            let removed = NewValue::new(Body::string(b""));
            for (at, (key, slot)) in chunk.iter().enumerate() {
                if is(FAULT, Fault::ScanSkipsKey) && at == SCAN_CHUNK_ENTRIES - 1 {
                    continue;
                }
                let value = slot.view().unwrap_or_else(|| removed.view(slot.version));
                let flow = visit(key, value);
                if flow.is_break() && !is(FAULT, Fault::ScanIgnoresBreak) {
                    return;
                }
            }
            passed += chunk.len();
            if chunk.len() < SCAN_CHUNK_ENTRIES {
                return;
            }
            last = chunk.into_iter().next_back().map(|(key, _)| key);
        }
    }

    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        let state = self.engine.lock();
        let Some(map) = state.trees.get(&tree) else {
            return Vec::new();
        };
        if is(FAULT, Fault::BoundariesByFirstByte) {
            return (1..parts)
                .map(|part| vec![(part * 256 / parts) as u8])
                .collect();
        }
        let step = map.len().div_ceil(parts).max(1);
        let mut boundaries: Vec<_> = map.keys().step_by(step).skip(1).cloned().collect();
        if is(FAULT, Fault::BoundariesUnsorted) {
            boundaries.reverse();
        }
        boundaries
    }
}

/// Walks in the order of a hash; a cursor is the hash of the next key to show.
impl<const FAULT: u8> Walk for FaultySession<FAULT> {
    fn walk(
        &mut self,
        tree: TreeId,
        cursor: u64,
        mut visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> u64 {
        let hash = |key: &[u8]| {
            // 0 is where walks begin and end, and no key's hash.
            key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            }) | 1
        };
        let mut entries: Vec<(u64, Vec<u8>, Slot)> = Vec::new();
        if let Some(map) = self.engine.lock().trees.get(&tree) {
            let live = map.iter().filter(|(_, slot)| slot.value.is_some());
            entries.extend(live.map(|(key, slot)| (hash(key), key.clone(), slot.clone())));
        }
        entries.sort_by_key(|(hash, ..)| *hash);
        let by_position = is(FAULT, Fault::WalkByPosition);
        let first = if by_position {
            entries.len().min(cursor as usize)
        } else {
            entries.partition_point(|(hash, ..)| *hash < cursor)
        };
        let mut last = entries.len().min(first + WALK_STEP_ENTRIES);
        // Keys with one hash are shown together.
        while (1..entries.len()).contains(&last) && entries[last].0 == entries[last - 1].0 {
            last += 1;
        }
        for (at, (_, key, slot)) in entries[first..last].iter().enumerate() {
            if is(FAULT, Fault::WalkSkipsKey) && at == WALK_STEP_ENTRIES - 1 {
                continue;
            }
            if let Some(value) = slot.view() {
                visit(key, value);
                if is(FAULT, Fault::WalkRepeatsKey) && at == 0 {
                    visit(key, value);
                }
            }
        }
        match entries.get(last) {
            None => 0,
            Some(_) if by_position => last as u64,
            Some((hash, ..)) => *hash,
        }
    }
}
