//! One tree of the reference engine: keys with their values or tombstones.
//!
//! Invariants (all under the tree's lock):
//! - **RM1** `live[slot.position]` is the key of every live slot, and `live` holds no other keys,
//!   so a key can be picked at random in O(1).
//! - **RM2** `slot.queued` says whether the key is in `tombstones`. It is there at most once, so
//!   the queue never outgrows the map.
//! - **RM3** Every tombstone is queued.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_sync::shim::unmodelled::AtomicU32;

use crate::mark::with_mark;
use crate::{
    AccessMark, CommitHook, Decision, Direction, EpochClock, Key, LogEpoch, NewValue, Probe,
    ValueRef, ValueVersion,
};

/// A map from keys to slots; see the module's header.
#[derive(Default)]
pub(super) struct Map {
    slots: BTreeMap<Arc<[u8]>, Slot>,
    live: Vec<Arc<[u8]>>,
    /// Removed keys, with the epoch of their tombstone when they were queued.
    tombstones: VecDeque<(LogEpoch, Arc<[u8]>)>,
    /// How many times a slot was changed.
    changes: u64,
}

struct Slot {
    /// Of the value or of the tombstone.
    version: ValueVersion,
    value: Option<LiveValue>,
    queued: bool,
}

struct LiveValue {
    value: NewValue<'static>,
    /// The access mark, in the top bits.
    mark: AtomicU32,
    position: usize,
}

impl LiveValue {
    fn new(value: NewValue<'static>, position: usize) -> Self {
        let mark = AtomicU32::new(with_mark(0, value.mark));
        Self {
            value,
            mark,
            position,
        }
    }
}

/// About what a tombstone takes: its slot, its place in the queue, a short key.
pub(super) const TOMBSTONE_BYTES: usize =
    size_of::<Slot>() + size_of::<(LogEpoch, Arc<[u8]>)>() + 48;

/// What a commit replaces, freed when the lock is released (RE4 free-after-lock).
pub(super) type Garbage = Option<NewValue<'static>>;

impl Slot {
    fn view(&self) -> Option<ValueRef<'_>> {
        self.value.as_ref().map(|live| ValueRef {
            mark: AccessMark::of(&live.mark),
            ..live.value.view(self.version)
        })
    }
}

impl Map {
    /// Keys that have a value.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Rises with every change except those of access marks.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// A copy of the map that shares no value and no access mark with it. O(its bytes).
    pub(super) fn copy(&self) -> Self {
        let slots = self.slots.iter().map(|(key, slot)| {
            let value = slot.view().zip(slot.value.as_ref()).map(|(view, live)| {
                let value = NewValue {
                    mark: view.mark.get(),
                    ..view.deep_copy()
                };
                LiveValue::new(value, live.position)
            });
            let (version, queued) = (slot.version, slot.queued);
            let slot = Slot {
                version,
                value,
                queued,
            };
            (Arc::clone(key), slot)
        });
        Self {
            slots: slots.collect(),
            live: self.live.clone(),
            tombstones: self.tombstones.clone(),
            changes: self.changes,
        }
    }

    /// Forgets the key, as if it had never existed: in a copy that is thrown away.
    pub(super) fn lose(&mut self, key: &[u8]) {
        let Some(slot) = self.slots.get(key) else {
            return;
        };
        if slot.value.is_some() {
            drop(self.bury(key, slot.version));
        }
        self.slots.remove(key);
        self.tombstones.retain(|(_, queued)| **queued != *key);
    }

    /// Forgets every third key, from the first on: in a copy that is thrown away.
    pub(super) fn lose_some(&mut self) {
        let keys: Vec<_> = self.slots.keys().step_by(3).map(Arc::clone).collect();
        for key in keys {
            self.lose(&key);
        }
    }

    /// Keys that have a tombstone.
    pub(super) fn tombstones(&self) -> usize {
        self.slots.len() - self.live.len()
    }

    /// Keys that have a value or a tombstone.
    pub(super) fn entries(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        self.slots.get(key)?.view()
    }

    pub(super) fn probe(&self, key: &[u8]) -> Probe {
        match self.slots.get(key) {
            None => Probe::Absent,
            Some(Slot {
                version,
                value: None,
                ..
            }) => Probe::Removed(*version),
            Some(Slot {
                version,
                value: Some(live),
                ..
            }) => Probe::Present {
                version: *version,
                deadline: live.value.attributes.deadline,
            },
        }
    }

    /// Decides and commits (E1 atomic-update, E3 hook-once, V1 version-draw). The map changes after
    /// the hook has returned.
    pub(super) fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        clock: &EpochClock,
        hook: &mut H,
        decide: impl FnOnce(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> (Option<ValueVersion>, Garbage) {
        let slot = self.slots.get(key.bytes);
        let old = slot.and_then(Slot::view);
        let new = match decide(old) {
            Decision::Keep => return (None, None),
            Decision::Remove if old.is_none() => return (None, None),
            Decision::Remove => None,
            Decision::Write(value) => Some(value.into_stored()),
            Decision::Amend(amendment) => Some(amendment.applied_to(old.as_ref()).into_stored()),
        };
        let version = clock.draw(slot.map(|slot| slot.version));
        hook.committed(
            key,
            old,
            new.as_ref().map(|value| value.view(version)),
            version,
        );
        let garbage = match new {
            Some(value) => self.put(key.bytes, version, value),
            None => Some(self.bury(key.bytes, version)),
        };
        (Some(version), garbage)
    }

    /// Restores a key's state, if it is newer than the present one; returns whether it was.
    pub(super) fn restore(
        &mut self,
        key: &[u8],
        version: ValueVersion,
        value: Option<NewValue<'static>>,
    ) -> (bool, Garbage) {
        let live = match self.slots.get(key) {
            Some(slot) if slot.version >= version => return (false, value),
            Some(slot) => slot.value.is_some(),
            None => false,
        };
        let garbage = match value {
            Some(value) => self.put(key, version, value),
            None if live => Some(self.bury(key, version)),
            None => {
                self.bury_absent(key, version);
                None
            }
        };
        (true, garbage)
    }

    /// A tombstone of `version` where there is no value (RM3).
    fn bury_absent(&mut self, key: &[u8], version: ValueVersion) {
        self.changes += 1;
        if let Some(slot) = self.slots.get_mut(key) {
            slot.version = version;
            return;
        }
        let key: Arc<[u8]> = key.into();
        self.tombstones
            .push_back((version.epoch(), Arc::clone(&key)));
        let slot = Slot {
            version,
            value: None,
            queued: true,
        };
        self.slots.insert(key, slot);
    }

    fn put(&mut self, key: &[u8], version: ValueVersion, value: NewValue<'static>) -> Garbage {
        self.changes += 1;
        let position = self.live.len();
        let Some(slot) = self.slots.get_mut(key) else {
            let key: Arc<[u8]> = key.into();
            self.live.push(Arc::clone(&key));
            let value = Some(LiveValue::new(value, position));
            self.slots.insert(
                key,
                Slot {
                    version,
                    value,
                    queued: false,
                },
            );
            return None;
        };
        slot.version = version;
        if let Some(live) = &mut slot.value {
            let live = std::mem::replace(live, LiveValue::new(value, live.position));
            return Some(live.value);
        }
        slot.value = Some(LiveValue::new(value, position));
        let (key, _) = self.slots.get_key_value(key).expect("the slot is there");
        self.live.push(Arc::clone(key));
        None
    }

    fn bury(&mut self, key: &[u8], version: ValueVersion) -> NewValue<'static> {
        self.changes += 1;
        let slot = self.slots.get_mut(key).expect("a removed key has a slot");
        let LiveValue {
            value, position, ..
        } = slot.value.take().expect("and a value");
        slot.version = version;
        let queued = std::mem::replace(&mut slot.queued, true);
        let key = self.live.swap_remove(position);
        if let Some(moved) = self.live.get(position) {
            let moved = self
                .slots
                .get_mut(moved)
                .and_then(|slot| slot.value.as_mut());
            moved.expect("a live key has a value (RM1)").position = position;
        }
        if !queued {
            self.tombstones.push_back((version.epoch(), key));
        }
        // RM1, RM2: it has a slot and is not live; nothing is queued twice.
        debug_assert!(self.live.len() < self.slots.len());
        debug_assert!(self.tombstones.len() <= self.slots.len());
        value
    }

    /// Looks at up to `steps` queued keys and forgets the tombstones of epochs below `horizon`
    /// (V2 tombstone-horizon); returns how many it looked at.
    pub(super) fn purge(&mut self, horizon: LogEpoch, steps: usize) -> usize {
        for step in 0..steps {
            match self.tombstones.front() {
                Some((queued, _)) if *queued < horizon => {}
                _ => return step,
            }
            self.changes += 1;
            let (_, key) = self.tombstones.pop_front().expect("there is a front");
            let slot = self
                .slots
                .get_mut(&key)
                .expect("a queued key has a slot (RM2)");
            if slot.value.is_some() {
                slot.queued = false;
            } else if slot.version.epoch() < horizon {
                self.slots.remove(&key);
            } else {
                // Inserted and removed again since it was queued.
                self.tombstones.push_back((slot.version.epoch(), key));
            }
        }
        // RM3: what is neither live nor queued would never go.
        debug_assert!(self.tombstones() <= self.tombstones.len());
        steps
    }

    /// Its values, with the bytes of values and keys (SN1 past-stands).
    pub(super) fn frozen(&self) -> (Self, usize) {
        let (mut copy, mut bytes) = (Self::default(), 0);
        for (key, slot) in &self.slots {
            if let Some(value) = slot.view() {
                bytes += key.len() + value.heap_bytes();
                copy.put(key, value.version, value.hand_over());
            }
        }
        (copy, bytes)
    }

    /// Picks a key uniformly (RM1).
    pub(super) fn sample(&self, random: u64) -> Option<(&[u8], ValueRef<'_>)> {
        if self.live.is_empty() {
            return None;
        }
        // The high half of the product is uniform in 0..len for a uniform `random`.
        let rank = (u128::from(random) * self.live.len() as u128) >> 64;
        let key = &self.live[rank as usize];
        Some((key, self.get(key).expect("a live key has a value (RM1)")))
    }

    /// Keys that divide the map into about equal parts: every n-th of a sorted sample. The order of
    /// `live` does not depend on the keys, so its first keys are a sample.
    pub(super) fn boundaries(&self, parts: usize) -> Vec<Vec<u8>> {
        const SAMPLED_PER_PART: usize = 32;
        let sampled = self.live.len().min(parts.saturating_mul(SAMPLED_PER_PART));
        let step = (self.live.len() / sampled.max(1)).max(1);
        let mut sample: Vec<&[u8]> = self.live.iter().step_by(step).map(|key| &**key).collect();
        sample.sort_unstable();
        let mut boundaries: Vec<Vec<u8>> = (1..parts)
            .filter_map(|part| sample.get(part * sample.len() / parts))
            .map(|key| key.to_vec())
            .collect();
        boundaries.dedup();
        boundaries
    }

    /// Shows up to `entries` entries from `from` on. Continues with the last key it looked at;
    /// breaks when the tree ends or `visit` breaks.
    pub(super) fn scan_chunk(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        entries: usize,
        visit: &mut impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), Vec<u8>> {
        match direction {
            Direction::Forward => {
                let range = self.slots.range::<[u8], _>((from, Bound::Unbounded));
                show(range, entries, visit)
            }
            Direction::Backward => {
                let range = self.slots.range::<[u8], _>((Bound::Unbounded, from));
                show(range.rev(), entries, visit)
            }
        }
    }

    /// Frees up to `steps` entries of a tree that nobody can reach any more; returns how many.
    pub(super) fn free(&mut self, steps: usize) -> usize {
        for step in 0..steps {
            self.live.pop();
            self.tombstones.pop_front();
            if self.slots.pop_first().is_none() {
                return step;
            }
        }
        steps
    }
}

fn show<'m>(
    range: impl Iterator<Item = (&'m Arc<[u8]>, &'m Slot)>,
    entries: usize,
    visit: &mut impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
) -> ControlFlow<(), Vec<u8>> {
    for (index, (key, slot)) in range.enumerate() {
        if let Some(value) = slot.view() {
            visit(key, value)?;
        }
        if index + 1 == entries {
            return ControlFlow::Continue(key.to_vec());
        }
    }
    ControlFlow::Break(())
}
