//! A thread's session.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    CommitHook, Decision, Direction, Hand, Key, NewValue, Ordered, Point, Probe, Restore, Snapshot,
    TreeId, ValueRef, ValueVersion, sweep_in_order,
};
use pando_memnode::Address;
use pando_memnode::limits::SLOT_BYTES_MAX;
use pando_sync::Entrance;

use super::in_leaf::{Change, choose, encode_new};
use super::place::Place;
use super::scan::Scan;
use super::sight::Seat;
use super::value::deadline_of;
use super::walk::{Found, Marked, Spot, TOGETHER_MAX};
use super::{Minuet, State};
use crate::tree::BODY_HEADER;

/// A session of the engine; dropping it frees its place.
pub struct MinuetSession {
    pub(super) engine: Arc<Minuet>,
    pub(super) entrance: Entrance<State>,
    /// A value that is being written, as it is stored.
    stored: Vec<u8>,
    /// See [`Self::take_refusal`].
    refused: bool,
}

/// The longest value, as it is stored: its body is one slot.
const VALUE_BYTES_MAX: usize = SLOT_BYTES_MAX - BODY_HEADER.len();

/// Bytes of [`MinuetSession::stored`] that are kept from one write to the next.
const STORED_BYTES_KEPT: usize = 1 << 16;

impl MinuetSession {
    pub(super) fn new(engine: Arc<Minuet>, entrance: Entrance<State>) -> Self {
        Self {
            engine,
            entrance,
            stored: Vec::new(),
            refused: false,
        }
    }

    /// Whether a write since the last call was of a value that no slot holds. It changed nothing.
    #[inline]
    pub fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }
}

impl fmt::Debug for MinuetSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MinuetSession")
            .finish_non_exhaustive()
    }
}

/// Shows what was found, or nothing, to `read`; also returns the mark that it left, if another.
pub(super) fn show<R>(
    found: Option<&Found<'_>>,
    read: impl FnOnce(Option<ValueRef<'_>>) -> R,
) -> (R, Option<u8>) {
    match found {
        Some(found) => found.show(|value| read(Some(value))),
        None => (read(None), None),
    }
}

impl State {
    /// Makes a change, and keeps the images, counts and graves right.
    fn apply(
        &mut self,
        (key, seat): (Key<'_>, Seat),
        (place, spot): (&Place<'_>, Spot),
        (version, stored): (ValueVersion, Option<&[u8]>),
        is_remembered: bool,
    ) {
        let page = self.page(spot.leaf);
        let old = self.found_in(&page, spot, place);
        let was = old.map(|old| (old.version, old.stored.len()));
        drop(page);
        if let Some(stored) = stored {
            self.put((seat, place), spot, version, stored);
        } else if was.is_some() {
            self.remove((seat, place), spot, version);
        }
        self.book(key, was, stored.is_some(), is_remembered.then_some(version));
    }
}

/// Keys of one tree, some at a time.
fn chunks<'c, 'k>(keys: &'c [Key<'k>]) -> impl Iterator<Item = &'c [Key<'k>]> {
    let of_a_tree = keys.chunk_by(|one, next| one.tree == next.tree);
    of_a_tree.flat_map(|keys| keys.chunks(TOGETHER_MAX))
}

impl State {
    /// Calls `visit` with the place and the leaf of each of some keys of one tree, which are found
    /// together; or not at all, if there is no such tree.
    fn each_leaf(
        &self,
        keys: &[Key<'_>],
        mut visit: impl FnMut(usize, &Place<'_>, Address),
    ) -> bool {
        let Some((sight, base)) = self.present(keys[0].tree) else {
            return false;
        };
        let mut leaves = [Address::default(); TOGETHER_MAX];
        let leaves = &mut leaves[..keys.len()];
        let places = keys.iter().map(|key| Place::of(Key::new(base, key.bytes)));
        let places: Vec<_> = places.collect();
        self.find_leaves(sight, &places, leaves);
        for (index, (place, leaf)) in places.iter().zip(leaves).enumerate() {
            visit(index, place, *leaf);
        }
        true
    }
}

impl Point for MinuetSession {
    fn pin(&mut self) {}

    fn unpin(&mut self) {}

    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        key.check();
        let state = self.entrance.enter();
        let Some((sight, base)) = state.present(key.tree) else {
            return read(None);
        };
        let place = Place::of(Key::new(base, key.bytes));
        let (shown, left) = state.find(sight, &place, |found| {
            let (shown, mark) = show(found, read);
            (shown, mark.zip(found.map(|found| found.version)))
        });
        drop(state);
        if let Some((mark, version)) = left {
            let marked = (Place::of(key).whole().into_owned(), version, mark);
            self.leave_marks(None, &[marked]);
        }
        shown
    }

    fn get_many(&mut self, keys: &[Key<'_>], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        for key in keys {
            key.check();
        }
        let mut first = 0;
        for keys in chunks(keys) {
            let mut marked = Vec::new();
            let state = self.entrance.enter();
            let is_there = state.each_leaf(keys, |index, place, leaf| {
                state.find_in(leaf, place, |found| {
                    let ((), mark) = show(found, |value| read(first + index, value));
                    if let Some(found) = found {
                        let key = (keys[index].tree, keys[index].bytes);
                        note_mark(&mut marked, key, found, mark);
                    }
                });
            });
            drop(state);
            if !is_there {
                for index in first..first + keys.len() {
                    read(index, None);
                }
            }
            self.leave_marks(None, &marked);
            first += keys.len();
        }
    }

    fn warm(&mut self, keys: &[Key<'_>]) {
        for key in keys {
            key.check();
        }
        let state = self.entrance.enter();
        for keys in chunks(keys) {
            state.each_leaf(keys, |_, _, _| ());
        }
    }

    fn probe(&mut self, key: Key<'_>) -> Probe {
        key.check();
        let state = self.entrance.enter();
        let probe = |found: Option<&Found<'_>>| match found {
            Some(found) => Probe::Present {
                version: ValueVersion::from_bits(found.version),
                deadline: deadline_of(found.stored),
            },
            None => match state.graves.version(key) {
                Some(version) => Probe::Removed(version),
                None => Probe::Absent,
            },
        };
        match state.present(key.tree) {
            Some((sight, base)) => {
                let place = Place::of(Key::new(base, key.bytes));
                state.find(sight, &place, probe)
            }
            None => probe(None),
        }
    }

    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        key.check();
        let Self {
            engine,
            entrance,
            stored,
            refused,
        } = self;
        let clock = &engine.clock;
        let state = entrance.enter();
        let done = state.update_in_leaf((clock, key), stored, hook, &mut decide);
        drop(state);
        if let Ok(version) = done {
            return version;
        }
        let mut state = engine.write();
        let Some(seat) = state.seat(key.tree) else {
            // The write is lost, but its closure may carry a result out.
            decide(None);
            return None;
        };
        let place = Place::of(Key::new(seat.base, key.bytes));
        let spot = state.spot(state.tip_at(seat), place.entry());
        let page = state.page(spot.leaf);
        let found = state.found_in(&page, spot, &place);
        let last = state.last_version(found.as_ref(), key);
        let (change, mark) = choose(clock, found.as_ref(), last, &mut decide);
        let (version, new, is_remembered) = match &change {
            Change::Keep => {
                if let (Some(mark), Some(found)) = (mark, found) {
                    let mark_at = found.mark_at;
                    drop(page);
                    state.set_mark(mark_at, mark);
                }
                return None;
            }
            Change::Put(version, new) => {
                encode_new(stored, *version, new);
                if stored.len() > VALUE_BYTES_MAX {
                    *refused = true;
                    return None;
                }
                (*version, Some(new.view(*version)), true)
            }
            Change::Remove(version, is_remembered) => (*version, None, *is_remembered),
        };
        // Nothing can fail from here on, and the old value is still where it was.
        show(found.as_ref(), |old| {
            hook.committed(key, old, new, version);
        });
        drop(page);
        let stored_now = new.is_some().then_some(&stored[..]);
        let change = (version, stored_now);
        state.apply((key, seat), (&place, spot), change, is_remembered);
        if stored.capacity() > STORED_BYTES_KEPT {
            *stored = Vec::new();
        }
        Some(version)
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        self.sample_in(None, tree, random, read)
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
        let horizon = self.engine.clock.horizon();
        let state = self.entrance.enter();
        let purged = state.graves.purge(horizon, steps);
        let is_due = !state.dropped.is_empty() || state.is_collection_due();
        drop(state);
        if !is_due || purged == steps {
            return purged;
        }
        let mut state = self.engine.write();
        let freed = state.free_dropped(steps - purged);
        let collected = state.collect(steps - purged - freed);
        purged + freed + collected
    }
}

impl Restore for MinuetSession {
    fn restore(
        &mut self,
        key: Key<'_>,
        version: ValueVersion,
        value: Option<NewValue<'_>>,
    ) -> bool {
        key.check();
        if let Some(value) = &value {
            value.body.check();
        }
        let mut state = self.engine.write();
        let Some(seat) = state.seat(key.tree) else {
            return false;
        };
        let place = Place::of(Key::new(seat.base, key.bytes));
        let spot = state.spot(state.tip_at(seat), place.entry());
        let page = state.page(spot.leaf);
        let found = state.found_in(&page, spot, &place);
        let last = state.last_version(found.as_ref(), key);
        if last.is_some_and(|last| last >= version) {
            return false;
        }
        drop(page);
        if let Some(value) = &value {
            encode_new(&mut self.stored, version, value);
            if self.stored.len() > VALUE_BYTES_MAX {
                self.refused = true;
                return false;
            }
        }
        let stored = value.is_some().then_some(&self.stored[..]);
        state.apply((key, seat), (&place, spot), (version, stored), true);
        true
    }
}

impl MinuetSession {
    /// Picks a key of a tree, as it is now or was at a snapshot.
    pub(super) fn sample_in<R>(
        &mut self,
        at: Option<Snapshot>,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let state = self.entrance.enter();
        let Some((sight, base)) = state.sight(at, tree) else {
            return read(None);
        };
        let mut marked: Vec<Marked> = Vec::new();
        let shown = state.sample(sight, base, random, |found| match found {
            None => read(None),
            Some((key, found)) => {
                let (shown, mark) = found.show(|value| read(Some((key, value))));
                note_mark(&mut marked, (tree, key), found, mark);
                shown
            }
        });
        drop(state);
        self.leave_marks(at, &marked);
        shown
    }

    /// Shows the entries of a tree in order, those of some leaves in one turn.
    pub(super) fn run(
        &mut self,
        at: Option<Snapshot>,
        (tree, from): (TreeId, Bound<&[u8]>),
        way: Direction,
        mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        let base = self.entrance.enter().sight(at, tree).map(|(_, base)| base);
        let Some(base) = base else { return };
        let mut scan = Scan::new(base, from, way);
        while scan.has_more() {
            let state = self.entrance.enter();
            let Some((sight, _)) = state.sight(at, tree) else {
                return;
            };
            let mut marked = Vec::new();
            scan.turn(&state, sight, |key, found| {
                let (shown, mark) = found.show(|value| visit(key, value));
                note_mark(&mut marked, (tree, key), found, mark);
                shown
            });
            drop(state);
            self.leave_marks(at, &marked);
        }
    }

    /// Readers of a snapshot leave no marks: what they read may be shared with the present.
    fn leave_marks(&self, at: Option<Snapshot>, marked: &[Marked]) {
        if at.is_some() || marked.is_empty() {
            return;
        }
        let state = self.entrance.enter();
        let left = marked.iter().filter(|marked| !state.leave_mark(marked));
        let left: Vec<_> = left.collect();
        drop(state);
        if !left.is_empty() {
            let mut state = self.engine.write();
            for marked in left {
                state.leave_mark_alone(marked);
            }
        }
    }
}

fn note_mark(
    marked: &mut Vec<Marked>,
    (tree, key): (TreeId, &[u8]),
    found: &Found<'_>,
    mark: Option<u8>,
) {
    if let Some(mark) = mark {
        let whole = [&tree.0.to_be_bytes()[..], key].concat();
        marked.push((whole, found.version, mark));
    }
}

impl Ordered for MinuetSession {
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        self.run(None, (tree, from), direction, visit);
    }

    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        let state = self.entrance.enter();
        match state.present(tree) {
            Some((sight, base)) => state.boundaries(sight, base, parts),
            None => Vec::new(),
        }
    }
}
