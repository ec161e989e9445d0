//! Updates: of one leaf beside others, or with the tree for itself (CE7 shared-for-a-leaf).

use pando_engine::{CommitHook, Decision, Key, NewValue, TreeId, ValueRef, ValueVersion};
use pando_sync::lock;
use pando_sync::shim::unmodelled::Ordering;

use super::session::{Ahead, show_record, sound};
use super::value::{deadlines_in, deadlines_of, encode, is_wide, version_of};
use super::{Cdds, Deadlines, State};
use crate::Error;
use crate::leaf::{Done, Leaf};
use crate::record::{Pair, Record};
use pando_pmem::{Memory, Offset, Side};

/// What an update does to the tree.
pub(super) enum Change {
    Keep,
    Put(ValueVersion, Vec<u8>, u8),
    Remove(ValueVersion),
}

impl Cdds {
    /// Updates a key whose leaf is all that changes; `Err` if more does, and nothing has happened.
    /// `live_at` is the generation of trees of which the session knows that the key's was there.
    /// The value is put together in `stored`.
    pub(super) fn update_leaf<'d, H: CommitHook>(
        &self,
        (state, key, live_at): (&State, Key<'_>, Option<u64>),
        (ahead, side): (Ahead<'_>, Side),
        stored: &mut Vec<u8>,
        hook: &mut H,
        decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, NeedsTree> {
        let Ahead {
            place,
            spot,
            behind,
        } = ahead;
        let clock = &self.clock;
        // CE1 epochs-follow.
        let is_live = live_at == Some(self.generation.load(Ordering::Relaxed));
        if !(is_live || state.is_live(key.tree)) || !state.tree.is_open_at(clock.current()) {
            return Err(NeedsTree);
        }
        if let Some(next) = behind {
            state.tree.expect_change(next);
        }
        let mut leaf = sound(state.tree.latch(place, spot)).ok_or(NeedsTree)?;
        let record = sound(leaf.record());
        let listed_at = record.map(|record| deadlines_of(record.value()));
        let listed_at = listed_at.unwrap_or_default();
        let rows = self.decoded.rows();
        let decision = show_record(rows, record, &mut *decide);
        let new = match (decision, record) {
            (Decision::Keep, _) | (Decision::Remove, None) => return Ok(None),
            (Decision::Remove, Some(record)) => {
                let removed = listed_at == Deadlines::default() && leaf.remove(side) == Done::Yes;
                if !removed {
                    return Err(NeedsTree);
                }
                let old = version_of(record.value());
                let forgotten = clock.forget(old);
                let version = forgotten.unwrap_or_else(|| clock.draw(Some(old)));
                sound(state.tree.pool.begin(version.epoch()).map_err(Error::from));
                state.count(key.tree, false, true);
                state.removed.name(place);
                if forgotten.is_none() {
                    state.graves.bury(place, version);
                }
                self.note_update(state, place, Some(record));
                show_record(rows, Some(record), |old| {
                    hook.committed(key, old, None, version);
                });
                self.follow(place, Some(record), None);
                return Ok(Some(version));
            }
            (Decision::Write(new), _) => new,
            (Decision::Amend(amendment), _) => {
                show_record(rows, record, |old| amendment.applied_to(old.as_ref()))
            }
        };
        new.body.check();
        if deadlines_in(&new) != listed_at {
            return Err(NeedsTree);
        }
        let last = state.version_beside(record, place);
        let version = clock.draw(last);
        sound(state.tree.pool.begin(version.epoch()).map_err(Error::from));
        let shown = new.view(version);
        let pair = Pair::new(stored, place, |out| encode(&shown, out));
        if sound(leaf.put(pair, new.mark, side)) == Done::NeedsTree {
            return Err(NeedsTree);
        }
        if record.is_none() {
            state.graves.rise(place);
            state.count(key.tree, true, false);
        }
        self.note_update(state, place, record);
        show_record(rows, record, |old| {
            hook.committed(key, old, Some(shown), version);
        });
        self.follow(place, record, Some(&shown));
        Ok(Some(version))
    }

    /// After a leaf was changed, under its latch.
    fn note_update(&self, state: &State, place: &[u8], old: Option<Record<'_>>) {
        if let Some(old) = old.map(Record::value) {
            state.keep_image(version_of(old), place.len() + old.len());
        }
        self.updates.add([1]);
        self.note_written();
    }

    /// After a key was changed and its hook was told: a wide row that was stored is read as it is,
    /// and the one before it no longer.
    #[inline]
    pub(super) fn follow(&self, place: &[u8], old: Option<Record<'_>>, new: Option<&ValueRef<'_>>) {
        if let Some(old) = old.map(Record::value)
            && is_wide(old)
        {
            self.decoded.forget(place, version_of(old));
        }
        if let Some(new) = new {
            self.decoded.keep(place, new);
        }
    }

    /// Under the lock of `state`: the next commit has something to make durable.
    pub(super) fn note_written(&self) {
        // Most often it is set already, and then its line stays where it is.
        if !self.written.load(Ordering::Relaxed) {
            self.written.store(true, Ordering::Relaxed);
        }
    }

    /// Updates a key with the tree for itself; fails if it is refused.
    pub(super) fn update_alone<'d, H: CommitHook>(
        &self,
        (key, place): (Key<'_>, &[u8]),
        hook: &mut H,
        decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, Error> {
        let (mut guard, clock) = (self.write(), &self.clock);
        let state = &mut *guard;
        if !state.is_live(key.tree) {
            // The write is lost, but its closure may carry a result out.
            decide(None);
            return Ok(None);
        }
        // CE1 epochs-follow.
        state.tree.advance(clock.current())?;
        let record = state.record(state.tree.present(), key.tree, place);
        let old_at = record.map(Record::at_offset);
        let last = state.version_beside(record, place);
        let mut forgotten = false;
        let put = |new: NewValue<'d>| {
            new.body.check();
            let version = clock.draw(last);
            let mut stored = Vec::new();
            encode(&new.view(version), &mut stored);
            (Change::Put(version, stored, new.mark), Some(new))
        };
        let rows = self.decoded.rows();
        let (change, new) = show_record(rows, record, |old| match decide(old) {
            Decision::Keep => (Change::Keep, None),
            Decision::Remove => {
                let Some(old) = old else {
                    return (Change::Keep, None);
                };
                let self_driven = clock.forget(old.version);
                forgotten = self_driven.is_some();
                let version = self_driven.unwrap_or_else(|| clock.draw(last));
                (Change::Remove(version), None)
            }
            Decision::Write(new) => put(new),
            Decision::Amend(amendment) => put(amendment.applied_to(old.as_ref())),
        });
        let (Change::Put(version, ..) | Change::Remove(version)) = change else {
            return Ok(None);
        };
        state.apply(key.tree, (place, old_at), &change)?;
        // What was replaced stays as it is until the lock is released: nobody allocates.
        let old = old_at.and_then(|at| Record::at(&state.tree.pool, at));
        let shown = new.as_ref().map(|new| new.view(version));
        show_record(rows, old, |old| {
            hook.committed(key, old, shown, version);
        });
        self.follow(place, old, shown.as_ref());
        if matches!(change, Change::Remove(_)) && !forgotten {
            state.graves.bury(place, version);
        }
        self.updates.add([1]);
        self.note_written();
        Ok(Some(version))
    }
}

/// An update takes the tree for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeedsTree;

impl State {
    /// Puts or removes, and keeps the images, counts, graves and deadlines right. `old_at` is the
    /// key's record. If it fails, nothing has changed.
    pub(super) fn apply(
        &mut self,
        tree: TreeId,
        (place, old_at): (&[u8], Option<Offset>),
        change: &Change,
    ) -> Result<(), Error> {
        self.note_grave(place);
        let old = old_at.and_then(|at| Record::at(&self.tree.pool, at));
        let was = old.map(|record| (version_of(record.value()), record.value().len()));
        let listed_at = old.map(|record| deadlines_of(record.value()));
        let listed_at = listed_at.unwrap_or_default();
        let lists = match change {
            Change::Put(_, stored, _) => deadlines_of(stored),
            _ => Deadlines::default(),
        };
        if let Change::Put(version, ..) | Change::Remove(version) = change {
            // A version that borrows is above the open epoch; it must not be drawn again either.
            self.tree.pool.begin(version.epoch())?;
        }
        match change {
            Change::Keep => return Ok(()),
            Change::Put(_, stored, mark) => {
                let put = self.list(lists, listed_at, place);
                let put = put.and_then(|()| self.tree.put_marked(place, stored, *mark));
                if let Err(error) = put {
                    for listing in lists.places_beyond(listed_at, place) {
                        self.tree.remove(&listing)?;
                    }
                    return Err(error);
                }
                self.graves.rise(place);
                self.count(tree, was.is_none(), false);
            }
            Change::Remove(_) => {
                let removed = self.tree.remove(place)?;
                self.count(tree, false, removed);
                self.removed.name(place);
            }
        }
        for listing in listed_at.places_beyond(lists, place) {
            self.tree.remove(&listing)?;
        }
        if let Some((version, bytes)) = was {
            self.keep_image(version, place.len() + bytes);
        }
        // Another thread may commit it (CX4 fenced).
        self.tree.fence();
        Ok(())
    }

    /// Lists those of a value's new deadlines that the old ones do not have.
    fn list(&mut self, new: Deadlines, old: Deadlines, place: &[u8]) -> Result<(), Error> {
        for listing in new.places_beyond(old, place) {
            self.tree.put(&listing, b"")?;
        }
        Ok(())
    }

    /// The version that the key with this record has now, as a value or as a removed one; nobody
    /// else changes it.
    pub(super) fn version_beside(
        &self,
        record: Option<Record<'_>>,
        place: &[u8],
    ) -> Option<ValueVersion> {
        match record {
            Some(record) => Some(version_of(record.value())),
            None => self.graves.version(place),
        }
    }

    /// Notes that a value of this version and length is replaced or removed.
    fn keep_image(&self, version: ValueVersion, bytes: usize) {
        if !self.tree.retained.is_empty() {
            lock(&self.images).note(version, bytes);
        }
    }

    /// Shows a key's record, or what is remembered of one that was removed, as they are at one
    /// moment.
    pub(super) fn look_at<R>(
        &self,
        tree: TreeId,
        place: &[u8],
        show: impl FnOnce(Option<Record<'_>>, Option<ValueVersion>) -> R,
    ) -> R {
        let leaf = self
            .is_live(tree)
            .then(|| sound(self.tree.latch(place, None)))
            .flatten();
        let record = sound(leaf.as_ref().map_or(Ok(None), Leaf::<Memory>::record));
        show(record, self.graves.version(place))
    }
}
