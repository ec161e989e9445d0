//! Updates that change one leaf alone, under its latch, beside readers and writers of other leaves.

use pando_engine::{CommitHook, Decision, EpochClock, Key, NewValue, ValueRef, ValueVersion};

use pando_memnode::Latch;

use super::place::Place;
use super::session::show;
use super::value::{Coded, Drafted};
use super::walk::{Found, Spot};
use super::warmed::Warmed;
use super::{State, difference};
use crate::page::{Page, PageEdit};

/// What an update does.
pub(super) enum Change<'d> {
    Keep,
    Put(ValueVersion, NewValue<'d>),
    /// Whether the version is remembered.
    Remove(ValueVersion, bool),
}

/// A change of more than a leaf, for whoever is alone.
#[derive(Debug)]
pub(super) struct BeyondLeaf;

/// Why a change is not done.
pub(super) enum Undone {
    Beyond,
    /// Its leaf had no room; now it has, or was split.
    Again,
}

impl From<BeyondLeaf> for Undone {
    fn from(BeyondLeaf: BeyondLeaf) -> Self {
        Self::Beyond
    }
}

/// How often room is made for one entry, at most: packed, a leaf has room or is split, and half of
/// one has room for whatever is stored in an entry.
pub(super) const ROOM_MADE_MAX: usize = 3;

/// Lets `decide` decide on what was found of a key whose last version is `last`. Also returns the
/// mark that it left, if another.
pub(super) fn choose<'d>(
    clock: &EpochClock,
    found: Option<&Found<'_>>,
    last: Option<ValueVersion>,
    decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
) -> (Change<'d>, Option<u8>) {
    let put = |new: NewValue<'d>| {
        new.body.check();
        Change::Put(clock.draw(last), new)
    };
    show(found, |old| match decide(old) {
        Decision::Keep => Change::Keep,
        Decision::Remove => match old {
            None => Change::Keep,
            Some(old) => match clock.forget(old.version) {
                Some(version) => Change::Remove(version, false),
                None => Change::Remove(clock.draw(last), true),
            },
        },
        Decision::Write(new) => put(new),
        Decision::Amend(amendment) => put(amendment.applied_to(old.as_ref())),
    })
}

/// What an update made of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) version: ValueVersion,
    /// Whether it has a value, which is stored.
    pub(super) is_there: bool,
    /// Whether the version is remembered if it has none.
    pub(super) is_remembered: bool,
}

impl Made {
    /// The version of a removal that is remembered.
    pub(super) fn removed(self) -> Option<ValueVersion> {
        (!self.is_there && self.is_remembered).then_some(self.version)
    }
}

/// Lets `decide` decide like [`choose`], and leaves the value as it is stored, if there is one.
pub(super) fn make<'d, H: CommitHook>(
    clock: &EpochClock,
    (key, found, last): (Key<'_>, Option<&Found<'_>>, Option<ValueVersion>),
    drafted: &mut Drafted,
    hook: &mut H,
    decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
) -> (Option<Made>, Option<u8>) {
    let (change, mark) = choose(clock, found, last, decide);
    let (version, new, is_remembered) = match &change {
        Change::Keep => return (None, mark),
        Change::Put(version, new) => {
            drafted.write(*version, new);
            (*version, Some(new.view(*version)), true)
        }
        Change::Remove(version, is_remembered) => (*version, None, *is_remembered),
    };
    // Nothing can fail from here on, and the old value is still where it was.
    show(found, |old| {
        hook.committed(key, old, new, version);
    });
    let is_there = new.is_some();
    let made = Made {
        version,
        is_there,
        is_remembered,
    };
    (Some(made), None)
}

impl State {
    /// The version that a key has now, as a value or as a removed one.
    pub(super) fn last_version(
        &self,
        found: Option<&Found<'_>>,
        key: Key<'_>,
    ) -> Option<ValueVersion> {
        match found {
            Some(found) => Some(ValueVersion::from_bits(found.version)),
            None => self.removal(key),
        }
    }

    /// The version of a key's removal, if it is still remembered.
    pub(super) fn removal(&self, key: Key<'_>) -> Option<ValueVersion> {
        if self.graves.count() == 0 {
            return None;
        }
        self.graves.version(&Place::of(key).whole())
    }

    /// Keeps graves and images right when a key that `was` of this version and length is there or
    /// not. Of a removed one, `remembered` is the version. The caller has the latch of its leaf, or
    /// is alone.
    pub(super) fn remember(
        &self,
        key: Key<'_>,
        was: Option<(u64, usize)>,
        is_there: bool,
        remembered: Option<ValueVersion>,
    ) {
        if is_there {
            if self.graves.count() > 0 {
                self.graves.rise(&Place::of(key).whole());
            }
        } else if let Some(version) = remembered {
            self.graves.bury(&Place::of(key).whole(), version);
        }
        if let Some((version, bytes)) = was {
            self.note_image(ValueVersion::from_bits(version), key.bytes.len() + bytes);
        }
    }

    /// Gives an entry of a leaf, which has room, another value, or removes it. Only a new one needs
    /// its `place`.
    pub(super) fn edit_entry<'p>(
        latch: &mut Latch<'_>,
        (index, place): (Result<usize, usize>, impl FnOnce() -> Place<'p>),
        (version, stored): (ValueVersion, Option<Coded<'_>>),
    ) {
        let version = version.to_bits();
        let stored = stored.map(|stored| stored.bytes);
        let mut edit = PageEdit::in_place(latch.edit());
        let edited = match (stored, index) {
            (Some(stored), Ok(index)) => edit.set_entry(index, version, stored),
            (Some(stored), Err(index)) => {
                edit.insert_entry(index, place().entry(), version, stored)
            }
            (None, index) => {
                if let Ok(index) = index {
                    edit.remove(index);
                }
                edit.raise_floor(version);
                Ok(())
            }
        };
        edited.expect("there is room");
    }

    /// Updates a key, if what is decided is a change of its leaf alone; returns the version drawn,
    /// if any. Otherwise nothing has changed, and `decide` may have run.
    pub(super) fn update_in_leaf<'d, H: CommitHook>(
        &self,
        (clock, key): (&EpochClock, Key<'_>),
        (drafted, warmed): (&mut Drafted, &mut Warmed),
        hook: &mut H,
        decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, BeyondLeaf> {
        for _ in 0..=ROOM_MADE_MAX {
            match self.try_update((clock, key), (drafted, warmed), hook, decide) {
                Ok(version) => return Ok(version),
                Err(Undone::Beyond) => break,
                Err(Undone::Again) => {}
            }
        }
        Err(BeyondLeaf)
    }

    fn try_update<'d, H: CommitHook>(
        &self,
        (clock, key): (&EpochClock, Key<'_>),
        (drafted, warmed): (&mut Drafted, &mut Warmed),
        hook: &mut H,
        decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, Undone> {
        // Whoever is alone knows what to do with a tree that is not there.
        let seat = self.seat(key.tree).ok_or(BeyondLeaf)?;
        let place = Place::of(Key::new(seat.base, key.bytes));
        if place.rest.is_some() {
            return Err(Undone::Beyond);
        }
        let tip = self.tip_at(seat);
        let near = self.leaf_of(key, (tip, &place), warmed);
        let (leaf, mut latch) = self.latched(near, place.entry());
        let page = Page::of_slot(&latch[..]);
        if page.created() != tip.view.snapshot() {
            return Err(Undone::Beyond);
        }
        let index = page.find(place.entry());
        let found = self.found_in(&page, Spot { leaf, index }, &place);
        if found.is_some_and(|found| found.is_apart) {
            return Err(Undone::Beyond);
        }
        let last = self.last_version(found.as_ref(), key);
        let (change, mark) = choose(clock, found.as_ref(), last, decide);
        let (version, new) = match &change {
            Change::Keep => {
                if let (Some(mark), Some((_, at))) = (mark, found.and_then(|it| it.mark_at)) {
                    latch.mark()[at] = mark;
                }
                return Ok(None);
            }
            Change::Put(version, new) => {
                drafted.write(*version, new);
                let suffix = place.entry().len() - page.prefix_len();
                if drafted.coded().is_large() {
                    return Err(Undone::Beyond);
                }
                let bytes = drafted.bytes.len();
                if !page.room().put(&page, index, suffix, bytes) {
                    let needed = page.entry_bytes(place.entry(), bytes);
                    self.make_room(seat.branch, &mut latch, needed)?;
                    return Err(Undone::Again);
                }
                (*version, Some(new.view(*version)))
            }
            Change::Remove(_, _) if page.is_small() => return Err(Undone::Beyond),
            Change::Remove(version, _) => (*version, None),
        };
        // Nothing can fail from here on, and the old value is still where it was.
        show(found.as_ref(), |old| {
            hook.committed(key, old, new, version);
        });
        let was = found.map(|found| (found.version, found.stored.len()));
        let is_there = new.is_some();
        debug_assert!(is_there || index.is_ok(), "a removed key was there");
        let stored = is_there.then(|| drafted.coded());
        Self::edit_entry(&mut latch, (index, || place), (version, stored));
        let is_remembered = matches!(change, Change::Remove(_, true));
        self.remember(key, was, is_there, is_remembered.then_some(version));
        self.count(key.tree, difference(was.is_some(), is_there));
        drop(latch);
        Ok(Some(version))
    }
}
