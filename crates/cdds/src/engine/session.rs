//! A thread's session.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    AccessMark, CommitHook, Decision, Direction as Way, Hand, Key, NewValue, Ordered, Point, Probe,
    Refused, Restore, TreeId, ValueRef, ValueVersion, sweep_in_order,
};
use pando_sync::shim::unmodelled::Ordering;

use pando_pmem::{Memory, Side};
use pando_sync::Entrance;

use super::decoded::Rows;
use super::update::{Change, NeedsTree};
use super::value::{deadline_of, encode, show, version_of};
use super::{Cdds, State, place_of, push_place, write_place};
use crate::ahead::Spot;
use crate::limits::{CLEANED_AT_ONCE, VOID_RANGES_HURRIED};
use crate::node::View;
use crate::record::Record;
use crate::shared::whole;
use crate::{Direction, Error, Reader, Snapshot};

/// Entries that a scan shows before it lets writers go ahead.
const CHUNK_ENTRIES: usize = 64;

/// A session of the engine; dropping it frees its place.
pub struct CddsSession {
    pub(super) engine: Arc<Cdds>,
    /// Its own way into the engine's state.
    pub(super) entrance: Entrance<State>,
    pub(super) reader: Reader<Memory>,
    known: Known,
    /// See [`Self::take_refusal`].
    refused: Option<Refused>,
    /// Whether a group has begun, and the first refusal in it.
    pub(super) in_group: bool,
    pub(super) group_refusal: Option<Refused>,
    warmed: Warmed,
    /// Where a command puts the place of its key together, so that it need not allocate.
    place: Vec<u8>,
    /// The same for the value that it stores, unless that is large.
    stored: Vec<u8>,
}

impl CddsSession {
    pub(super) fn new(engine: Arc<Cdds>) -> Option<Self> {
        let entrance = engine.state.open()?;
        let reader = entrance.enter().tree.reader()?;
        Some(Self {
            engine,
            entrance,
            reader,
            known: Known::default(),
            refused: None,
            in_group: false,
            group_refusal: None,
            warmed: Warmed::default(),
            place: Vec::new(),
            stored: Vec::new(),
        })
    }

    /// Why an update or a restore since the last call was refused, if one was
    /// (CE6 refused-changes-nothing).
    #[inline]
    pub fn take_refusal(&mut self) -> Option<Refused> {
        self.refused.take()
    }

    /// Whether a change was made, or refused. All that a client can cause is a refusal.
    fn is_made(&mut self, made: Result<(), Error>) -> bool {
        let refusal = match made {
            Ok(()) => return true,
            Err(Error::Full(_)) => Refused::Full,
            Err(Error::TooLong { .. }) => Refused::TooLong,
            Err(error) => fail(&error),
        };
        self.refused = Some(refusal);
        if self.in_group {
            self.group_refusal.get_or_insert(refusal);
        }
        false
    }

    /// Whether a tree is there (CE4 trees-known).
    #[inline]
    pub(super) fn is_live(&mut self, tree: TreeId) -> bool {
        // Acquire: pairs with `Cdds::note_trees`.
        if self.engine.generation.load(Ordering::Acquire) != self.known.generation {
            self.learn_trees();
        }
        self.known.has(tree)
    }

    #[cold]
    fn learn_trees(&mut self) {
        let state = self.entrance.enter();
        let live = state.trees.iter().filter(|(_, tree)| !tree.dropped);
        self.known = Known {
            trees: live.map(|(number, _)| *number).collect(),
            generation: self.engine.generation.load(Ordering::Acquire),
            last: None,
        };
    }
}

/// The trees that were there when the engine's were of a generation (CE4 trees-known).
#[derive(Default)]
struct Known {
    generation: u64,
    trees: BTreeSet<TreeId>,
    /// The one that was asked for last, if it is there.
    last: Option<TreeId>,
}

impl Known {
    #[inline]
    fn has(&mut self, tree: TreeId) -> bool {
        if self.last == Some(tree) {
            return true;
        }
        let has = self.trees.contains(&tree);
        self.last = has.then_some(tree);
        has
    }
}

impl fmt::Debug for CddsSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CddsSession")
            .finish_non_exhaustive()
    }
}

/// What was found ahead of commands ([`Point::warm`]).
#[derive(Default)]
struct Warmed {
    /// The places of the keys, one behind the other, and where each ends.
    places: Vec<u8>,
    ends: Vec<usize>,
    spots: Vec<Option<Spot>>,
    /// The one that the next command asks for ([`Point::recall`]).
    next: Option<usize>,
}

impl Warmed {
    /// What the next command asks for, if it is of this key.
    #[inline]
    fn take(&mut self, key: Key<'_>) -> Option<Ahead<'_>> {
        let index = self.next.take();
        self.ahead_of(index?, key)
    }

    /// What was found ahead at this place, if it is of this key.
    #[inline]
    fn ahead_of(&self, index: usize, key: Key<'_>) -> Option<Ahead<'_>> {
        let from = index
            .checked_sub(1)
            .map_or(Some(&0), |before| self.ends.get(before));
        let place = &self.places[*from?..*self.ends.get(index)?];
        let (tree, bytes) = place.split_first_chunk()?;
        let spot_at = |index: usize| self.spots.get(index).and_then(Option::as_ref);
        (*tree == key.tree.0.to_be_bytes() && bytes == key.bytes).then(|| Ahead {
            place,
            spot: spot_at(index),
            behind: spot_at(index + 1),
        })
    }
}

/// What was found ahead of a command.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'w> {
    /// The place of its key.
    pub(super) place: &'w [u8],
    pub(super) spot: Option<&'w Spot>,
    /// The one behind it, which most likely is asked for then.
    pub(super) behind: Option<&'w Spot>,
}

/// The same of a key of which nothing was found, whose place is put together in `out`.
#[inline]
fn unwarmed<'w>(out: &'w mut Vec<u8>, key: Key<'_>) -> Ahead<'w> {
    write_place(out, key.tree, key.bytes);
    Ahead {
        place: out,
        spot: None,
        behind: None,
    }
}

/// Capacity that a session keeps for values to come.
const KEPT_BYTES: usize = 64 * 1024;

/// Ends a process whose pool fails it: what it would answer is wrong.
///
/// # Panics
/// Always. Nothing of what is damaged was shown.
#[cold]
fn fail(error: &Error) -> ! {
    panic!("the pool cannot be used: {error}")
}

pub(super) fn sound<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| fail(&error))
}

#[inline]
fn mark_of<'r>(record: &Record<'r>) -> AccessMark<'r> {
    record.mark().map_or(AccessMark::NONE, AccessMark::of)
}

/// Shows a record's value to `read`.
#[inline]
pub(super) fn show_record<R>(
    rows: Rows<'_>,
    record: Option<Record<'_>>,
    read: impl FnOnce(Option<ValueRef<'_>>) -> R,
) -> R {
    match record {
        Some(record) => {
            let (place, mark) = ((rows, record.key()), mark_of(&record));
            show(place, record.value(), mark, |value| read(Some(value)))
        }
        None => read(None),
    }
}

impl State {
    /// The record of a key in a tree that is there.
    pub(super) fn record(&self, view: View, tree: TreeId, place: &[u8]) -> Option<Record<'_>> {
        if !self.is_live(tree) {
            return None;
        }
        sound(self.tree.record_of(place, view))
    }
}

impl Point for CddsSession {
    fn pin(&mut self) {
        self.reader.pin();
    }

    fn unpin(&mut self) {
        self.reader.unpin();
    }

    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        key.check();
        if !self.is_live(key.tree) {
            return read(None);
        }
        let (warmed, number) = (&mut self.warmed, key.tree.0.to_be_bytes());
        let index = warmed.next.take();
        let pinned = self.reader.pinned();
        let spot = index.and_then(|index| warmed.spots.get(index)?.as_ref());
        let is_key = |own: &[u8]| own.strip_prefix(&number) == Some(key.bytes);
        let judged = spot.and_then(|spot| pinned.shared.as_judged(is_key, spot));
        let record = if let Some((_, record)) = judged {
            whole(record).map(Some)
        } else {
            let ahead = index.and_then(|index| warmed.ahead_of(index, key));
            let ahead = ahead.unwrap_or_else(|| unwarmed(&mut self.place, key));
            pinned.shared.record_ahead(ahead.place, ahead.spot)
        };
        show_record(self.engine.decoded.rows(), sound(record), read)
    }

    fn warm(&mut self, keys: &[Key<'_>]) {
        let Warmed {
            places,
            ends,
            spots,
            next,
        } = &mut self.warmed;
        places.clear();
        ends.clear();
        for key in keys {
            push_place(places, key.tree, key.bytes);
            ends.push(places.len());
        }
        *next = None;
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let ranges = begins.zip(ends.iter().copied());
        self.reader
            .warm(ranges.map(|(from, to)| &places[from..to]), spots);
    }

    #[inline]
    fn recall(&mut self, index: usize) {
        self.warmed.next = Some(index);
    }

    fn probe(&mut self, key: Key<'_>) -> Probe {
        key.check();
        let place = place_of(key.tree, key.bytes);
        let state = self.entrance.enter();
        state.look_at(key.tree, &place, |record, removed| match record {
            Some(record) => Probe::Present {
                version: version_of(record.value()),
                deadline: deadline_of(record.value()),
            },
            None => removed.map_or(Probe::Absent, Probe::Removed),
        })
    }

    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        key.check();
        let live_at = self.is_live(key.tree).then_some(self.known.generation);
        let ahead = self.warmed.take(key);
        let ahead = ahead.unwrap_or_else(|| unwarmed(&mut self.place, key));
        let (at, stored) = ((key, ahead.place), &mut self.stored);
        let updated = if self.in_group {
            // What it changes is noted by whoever has the tree.
            Err(NeedsTree)
        } else {
            let state = self.entrance.enter();
            let (key, ahead) = (
                (&*state, key, live_at),
                (ahead, Side::of(self.reader.index())),
            );
            (self.engine).update_leaf(key, ahead, stored, hook, &mut decide)
        };
        if self.stored.capacity() > KEPT_BYTES {
            self.stored = Vec::new();
        }
        if let Ok(updated) = updated {
            return updated;
        }
        match self.engine.update_alone(at, hook, &mut decide) {
            Ok(updated) => updated,
            Err(error) => {
                self.is_made(Err(error));
                None
            }
        }
    }

    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        // It goes through leaves that others would change.
        let state = self.engine.write();
        let view = state.tree.present();
        let rows = self.engine.decoded.passing();
        sample_in((&state, rows), view, tree, random, read)
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
        self.engine.decoded.settle();
        let mut state = self.engine.write();
        let clock = &self.engine.clock;
        sound(state.tree.advance(clock.current()));
        state.tree.settle_horizon();
        let purged = state.graves.purge(clock.horizon(), steps);
        let freed = sound(state.free_dropped(steps - purged));
        let goes_on = sound(state.clean(CLEANED_AT_ONCE));
        state.tree.fence();
        if state.tree.has_begun() {
            self.engine.note_written();
        }
        if clock.is_self_driven() && purged + freed == 0 {
            sound(self.engine.commit_all(&mut state));
        }
        let is_hurried = goes_on && state.tree.pool.voids().len() > VOID_RANGES_HURRIED;
        purged + freed + usize::from(is_hurried)
    }
}

/// Picks a key of a tree as `view` sees it.
pub(super) fn sample_in<R>(
    (state, rows): (&State, Rows<'_>),
    view: View,
    tree: TreeId,
    random: u64,
    read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
) -> R {
    let (low, high) = (place_of(tree, b""), place_of(TreeId(tree.0 + 1), b""));
    let live = state.is_live(tree);
    let picked = live.then(|| sound(state.tree.pick(view, (&low, &high), random)));
    match picked.flatten() {
        Some(record) => show_record(rows, Some(record), |value| {
            read(value.map(|value| (&record.key()[4..], value)))
        }),
        None => read(None),
    }
}

impl Restore for CddsSession {
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
        let place = place_of(key.tree, key.bytes);
        let mut guard = self.engine.write();
        let state = &mut *guard;
        let record = sound(state.tree.record_of(&place, state.tree.present()));
        let (old_at, last) = (
            record.map(Record::at_offset),
            state.version_beside(record, &place),
        );
        let newer = last.is_none_or(|last| last < version);
        if !state.is_live(key.tree) || !newer {
            return false;
        }
        sound(state.tree.advance(self.engine.clock.current()));
        let change = match &value {
            Some(value) => {
                let mut stored = Vec::new();
                encode(&value.view(version), &mut stored);
                Change::Put(version, stored, value.mark)
            }
            None => Change::Remove(version),
        };
        let made = state.apply(key.tree, (&place, old_at), &change);
        if matches!((&made, change), (Ok(()), Change::Remove(_))) {
            state.graves.bury(&place, version);
        }
        if made.is_ok() {
            let old = old_at.and_then(|at| Record::at(&state.tree.pool, at));
            let new = value.as_ref().map(|value| value.view(version));
            self.engine.follow(&place, old, new.as_ref());
            self.engine.note_written();
        }
        drop(guard);
        self.is_made(made)
    }
}

impl CddsSession {
    /// Shows the entries of a tree in order, a chunk under one pin at a time.
    pub(super) fn run(
        &mut self,
        at: Option<Snapshot>,
        tree: TreeId,
        from: Bound<&[u8]>,
        way: Way,
        mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        let number = tree.0.to_be_bytes();
        let ends = [place_of(tree, b""), place_of(TreeId(tree.0 + 1), b"")];
        let mut from = match (from, way) {
            (Bound::Included(key), _) => Bound::Included(place_of(tree, key)),
            (Bound::Excluded(key), _) => Bound::Excluded(place_of(tree, key)),
            (Bound::Unbounded, Way::Forward) => Bound::Included(ends[0].clone()),
            (Bound::Unbounded, Way::Backward) => Bound::Excluded(ends[1].clone()),
        };
        let direction = match way {
            Way::Forward => Direction::Forward,
            Way::Backward => Direction::Backward,
        };
        while self.is_live(tree) {
            let (mut left, mut last) = (CHUNK_ENTRIES, None);
            let rows = self.engine.decoded.passing();
            let bound = from.as_ref().map(Vec::as_slice);
            let result = self.reader.run(at, bound, direction, |record| {
                if !record.key().starts_with(&number) {
                    return ControlFlow::Break(());
                }
                left -= 1;
                last = (left == 0).then(|| record.key().to_vec());
                let shown = show_record(rows, Some(record), |value| match value {
                    Some(value) => visit(&record.key()[4..], value),
                    None => ControlFlow::Continue(()),
                });
                if shown.is_break() {
                    last = None;
                }
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    shown
                }
            });
            sound(result);
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => return,
            }
        }
    }
}

impl Ordered for CddsSession {
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Way,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        self.run(None, tree, from, direction, visit);
    }

    fn boundaries(&mut self, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        let state = self.engine.write();
        if !state.is_live(tree) {
            return Vec::new();
        }
        let (low, high) = (place_of(tree, b""), place_of(TreeId(tree.0 + 1), b""));
        let places = sound(state.tree.cuts((&low, &high), parts));
        places
            .into_iter()
            .map(|place| place[4..].to_vec())
            .collect()
    }
}
