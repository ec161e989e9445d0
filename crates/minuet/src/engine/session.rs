//! A thread's session.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    CommitHook, Decision, Direction, Hand, Key, NewValue, Ordered, Point, Probe, Restore, Snapshot,
    TreeId, ValueRef, ValueVersion, sweep_in_order,
};
use pando_memnode::Address;
use pando_sync::Entrance;

use super::in_leaf::make;
use super::place::Place;
use super::run::{COUNTS_ANYWAY, Run};
use super::scan::Scan;
use super::sight::Seat;
use super::value::{Coded, Drafted, deadline_of};
use super::walk::{Found, Marked, Spot, TOGETHER_MAX};
use super::warmed::Warmed;
use super::{Minuet, State, difference};

/// A session of the engine; dropping it frees its place.
pub struct MinuetSession {
    pub(super) engine: Arc<Minuet>,
    pub(super) entrance: Entrance<State>,
    /// A value that is being written.
    pub(super) drafted: Drafted,
    pub(super) under_way: Option<Box<Run>>,
    /// What the next run will be.
    pub(super) spare: Option<Box<Run>>,
    pub(super) warmed: Warmed,
    /// In a run that only reads: how many runs had written several keys when it began.
    pub(super) reads: Option<u64>,
    /// Marks that are left if that run counts.
    pub(super) marked: Vec<Marked>,
    /// The last run ended with a planted conflict.
    pub(super) conflicted: bool,
}

impl MinuetSession {
    pub(super) fn new(engine: Arc<Minuet>, entrance: Entrance<State>) -> Self {
        Self {
            engine,
            entrance,
            drafted: Drafted::default(),
            under_way: None,
            spare: None,
            warmed: Warmed::default(),
            reads: None,
            marked: Vec::new(),
            conflicted: false,
        }
    }
}

impl fmt::Debug for MinuetSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MinuetSession")
            .finish_non_exhaustive()
    }
}

pub(super) fn check_all(keys: &[Key<'_>]) {
    for key in keys {
        key.check();
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
    pub(super) fn apply(
        &mut self,
        (key, seat): (Key<'_>, Seat),
        (place, mut spot): (&Place<'_>, Spot),
        (version, stored): (ValueVersion, Option<Coded<'_>>),
        is_remembered: bool,
    ) {
        let is_own = self.page(spot.leaf).created() == self.tip_at(seat).view.snapshot();
        if !is_own && let Some(leaf) = self.own_leaf(seat, place.entry()) {
            spot.leaf = leaf;
        }
        let page = self.page(spot.leaf);
        let old = self.found_in(&page, spot, place);
        let was = old.map(|old| (old.version, old.stored.len()));
        drop(page);
        if let Some(stored) = stored {
            self.put((seat, place), spot, version, stored);
        } else if was.is_some() {
            self.remove((seat, place), spot, version);
        }
        let is_there = stored.is_some();
        self.remember(key, was, is_there, is_remembered.then_some(version));
        self.count(key.tree, difference(was.is_some(), is_there));
    }
}

impl State {
    /// Shows what there is of a key at present to `look`.
    pub(super) fn look<R>(&self, key: Key<'_>, look: impl FnOnce(Option<&Found<'_>>) -> R) -> R {
        match self.present(key.tree) {
            Some((sight, base)) => self.find(sight, &Place::of(Key::new(base, key.bytes)), look),
            None => look(None),
        }
    }

    /// What a probe says of a key that was looked for.
    pub(super) fn probed(&self, key: Key<'_>, found: Option<&Found<'_>>) -> Probe {
        match found {
            Some(found) => Probe::Present {
                version: ValueVersion::from_bits(found.version),
                deadline: deadline_of(found.stored.bytes),
            },
            None => match self.removal(key) {
                Some(version) => Probe::Removed(version),
                None => Probe::Absent,
            },
        }
    }
}

impl State {
    /// Calls `visit` with the place and the leaf of each of the first keys that are of one version,
    /// which are found together, at present or at a snapshot; or of none, if there is no such tree.
    /// Returns how many keys those are, and whether there is.
    fn each_leaf(
        &self,
        at: Option<Snapshot>,
        keys: &[Key<'_>],
        mut visit: impl FnMut(usize, &Place<'_>, Address),
    ) -> (usize, bool) {
        let first = keys[0].tree;
        let Some((sight, mut base)) = self.sight(at, first) else {
            let of_it = keys.iter().take_while(|key| key.tree == first);
            return (of_it.count(), false);
        };
        let mut places = Vec::with_capacity(keys.len().min(TOGETHER_MAX));
        let mut tree = first;
        for key in &keys[..keys.len().min(TOGETHER_MAX)] {
            if key.tree != tree {
                match self.sight(at, key.tree) {
                    Some((same, of)) if std::ptr::eq(same, sight) => (tree, base) = (key.tree, of),
                    _ => break,
                }
            }
            places.push(Place::of(Key::new(base, key.bytes)));
        }
        let mut leaves = [Address::default(); TOGETHER_MAX];
        let leaves = &mut leaves[..places.len()];
        self.find_leaves(sight, &places, leaves);
        for (index, (place, leaf)) in places.iter().zip(leaves).enumerate() {
            visit(index, place, *leaf);
        }
        (places.len(), true)
    }
}

impl Point for MinuetSession {
    fn pin(&mut self) {}

    fn unpin(&mut self) {}

    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        key.check();
        if self.under_way.is_some() {
            return self.get_in_run(key, read);
        }
        let state = self.entrance.enter();
        let Some((sight, base)) = state.present(key.tree) else {
            return read(None);
        };
        let place = Place::of(Key::new(base, key.bytes));
        let leaf = state.leaf_of(key, (sight, &place), &mut self.warmed);
        let (shown, left) = state.find_in(leaf, &place, |found| {
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
        check_all(keys);
        if self.under_way.is_some() {
            self.warm(keys);
            for (index, key) in keys.iter().enumerate() {
                self.get_in_run(*key, |value| read(index, value));
            }
            return;
        }
        self.get_together(None, keys, read);
    }

    fn warm(&mut self, keys: &[Key<'_>]) {
        check_all(keys);
        let state = self.entrance.enter();
        self.warmed.begin(state.turns);
        let mut rest = keys;
        while !rest.is_empty() {
            let (count, _) = state.each_leaf(None, rest, |index, _, leaf| {
                self.warmed.note(rest[index], leaf);
            });
            rest = &rest[count..];
        }
    }

    fn probe(&mut self, key: Key<'_>) -> Probe {
        key.check();
        if self.under_way.is_some() {
            return self.probe_in_run(key);
        }
        let state = self.entrance.enter();
        state.look(key, |found| state.probed(key, found))
    }

    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        key.check();
        if self.under_way.is_some() {
            return self.update_in_run(key, hook, &mut decide);
        }
        if self.reads.is_some() {
            self.reads = Some(COUNTS_ANYWAY);
        }
        let Self {
            engine,
            entrance,
            drafted,
            warmed,
            ..
        } = self;
        let clock = &engine.clock;
        let state = entrance.enter();
        let done = state.update_in_leaf((clock, key), (drafted, warmed), hook, &mut decide);
        drop(state);
        if let Ok(version) = done {
            return version;
        }
        let mut state = engine.write();
        state.restock();
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
        let what = (key, found.as_ref(), last);
        let (made, mark) = make(clock, what, drafted, hook, &mut decide);
        let Some(made) = made else {
            if let (Some(mark), Some(found)) = (mark, found) {
                let marked = (Place::of(key).whole().into_owned(), found.version, mark);
                drop(page);
                state.leave_mark_alone(&marked);
            }
            drafted.clear();
            return None;
        };
        drop(page);
        let change = (made.version, made.is_there.then(|| drafted.coded()));
        state.apply((key, seat), (&place, spot), change, made.is_remembered);
        drop(state);
        drafted.clear();
        Some(made.version)
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
            self.drafted.write(version, value);
        }
        let stored = value.is_some().then(|| self.drafted.coded());
        state.apply((key, seat), (&place, spot), (version, stored), true);
        drop(state);
        self.drafted.clear();
        true
    }
}

impl MinuetSession {
    /// Shows the values of some keys, as they are now or were at a snapshot, their leaves found
    /// together.
    pub(super) fn get_together(
        &mut self,
        at: Option<Snapshot>,
        keys: &[Key<'_>],
        mut read: impl FnMut(usize, Option<ValueRef<'_>>),
    ) {
        let mut first = 0;
        while first < keys.len() {
            let keys = &keys[first..];
            let mut marked = Vec::new();
            let state = self.entrance.enter();
            let (count, is_there) = state.each_leaf(at, keys, |index, place, leaf| {
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
                for index in first..first + count {
                    read(index, None);
                }
            }
            self.leave_marks(at, &marked);
            first += count;
        }
    }

    /// Picks a key of a tree, as it is now or was at a snapshot.
    pub(super) fn sample_in<R>(
        &mut self,
        at: Option<Snapshot>,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        if at.is_none() {
            self.sample_in_run();
        }
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
        if at.is_none() {
            self.begin_scan_in_run();
        }
        let base = self.entrance.enter().sight(at, tree).map(|(_, base)| base);
        let Some(base) = base else { return };
        let mut scan = Scan::new(base, from, way);
        while scan.has_more() {
            let state = self.entrance.enter();
            let Some((sight, _)) = state.sight(at, tree) else {
                return;
            };
            let mut marked = Vec::new();
            let under_way = &mut self.under_way;
            let meet = |leaf, sequence| {
                if let Some(run) = under_way.as_mut().filter(|_| at.is_none()) {
                    run.meet(leaf, sequence, state.turns);
                }
            };
            scan.turn(&state, sight, meet, |key, found| {
                let (shown, mark) = found.show(|value| visit(key, value));
                note_mark(&mut marked, (tree, key), found, mark);
                shown
            });
            drop(state);
            self.leave_marks(at, &marked);
        }
    }

    /// Readers of a snapshot leave no marks: what they read may be shared with the present.
    pub(super) fn leave_marks(&mut self, at: Option<Snapshot>, marked: &[Marked]) {
        if at.is_some() || marked.is_empty() {
            return;
        }
        if self.reads.is_some() {
            return self.marked.extend_from_slice(marked);
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
