//! The end of a run: its leaves are latched, what it saw is compared, what it wrote is written.

use pando_engine::{Key, TreeId};
use pando_memnode::Latch;
use pando_sync::shim::{AtomicU64, Ordering, lock};

use super::super::in_leaf::{BeyondLeaf, ROOM_MADE_MAX, Undone};
use super::super::place::{Place, key_of};
use super::super::walk::Target;
use super::super::{Counted, State, difference};
use super::{At, Run, Touched};
use crate::fault::{Fault, planted};
use crate::limits::LATCHES_MAX;
use crate::page::Page;

/// Few latches need no allocation.
const FEW_LATCHES: usize = 4;

/// The latches that a run holds, in order.
struct Latches<'s> {
    few: [Option<Latch<'s>>; FEW_LATCHES],
    more: Vec<Latch<'s>>,
}

impl<'s> Latches<'s> {
    /// Takes them in this order.
    fn of(mut latches: impl Iterator<Item = Latch<'s>>) -> Self {
        let mut few = [const { None }; FEW_LATCHES];
        for (place, latch) in few.iter_mut().zip(&mut latches) {
            *place = Some(latch);
        }
        let more = latches.collect();
        Self { few, more }
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Latch<'s>> {
        self.few.iter_mut().flatten().chain(&mut self.more)
    }
}

impl State {
    /// Whether a run has only read, and no leaf has changed that it read. They need not be latched
    /// at once: all were as they are when it had read the last one.
    pub(super) fn is_as_read(&self, run: &Run) -> bool {
        self.has_as_many(&run.counted.borrow())
            && run.touched.iter().all(|touched| {
                let is_same = |at: At| {
                    let is_there = at.turns == self.turns;
                    is_there && self.see(at.spot.leaf).state().sequence == at.sequence
                };
                touched.written.is_none() && touched.at.is_some_and(is_same)
            })
    }

    /// Whether a tree has as many keys as the run was told (MR5 counts-compared).
    fn has_as_many(&self, told: &[(TreeId, u64)]) -> bool {
        if told.is_empty() || planted(Fault::RunKeys) {
            return true;
        }
        let _counting = lock(&self.counting);
        told.iter().all(|(tree, keys)| {
            // Acquire: leaves that are compared next are compared later. Whoever changes a leaf and
            // the number has the leaf's latch until both are done.
            let load = |counted: &Counted| counted.keys.load(Ordering::Acquire);
            self.trees.get(tree).map_or(0, load) == *keys
        })
    }

    /// Whether a run counts, if what it writes changes leaves alone, in which room is made or which
    /// are split. Otherwise nothing has changed.
    pub(super) fn commit_in_leaves(
        &self,
        run: &mut Run,
        commits: &AtomicU64,
        may: &dyn Fn() -> bool,
    ) -> Result<bool, BeyondLeaf> {
        for _ in 0..=ROOM_MADE_MAX {
            match self.try_commit(run, commits, may) {
                Ok(counts) => return Ok(counts),
                Err(Undone::Beyond) => break,
                Err(Undone::Again) => {}
            }
        }
        Err(BeyondLeaf)
    }

    fn try_commit(
        &self,
        run: &mut Run,
        commits: &AtomicU64,
        may: &dyn Fn() -> bool,
    ) -> Result<bool, Undone> {
        let Run {
            touched,
            bytes,
            counted,
            ..
        } = run;
        for touched in &mut *touched {
            touched.leaf = match touched.at {
                Some(at) if at.turns == self.turns => at.spot.leaf,
                _ if touched.whole.is_empty() => return Ok(false),
                _ => match self.placed(&bytes[touched.whole.clone()]) {
                    Some((sight, place)) => self.leaf(sight, Target::At(place.entry())),
                    None => return Ok(false),
                },
            };
        }
        // In the order of addresses (SL2 latches-in-order). What they are found by is done with.
        touched.sort_unstable_by_key(|touched| touched.leaf);
        let is_together = |one: &Touched, next: &Touched| one.leaf == next.leaf;
        if touched.chunk_by(is_together).count() > LATCHES_MAX {
            return Err(Undone::Beyond);
        }
        let latch = |touched: &[Touched]| self.latch(touched[0].leaf);
        let mut latches = Latches::of(touched.chunk_by(is_together).map(latch));
        for (touched, latch) in touched.chunk_by_mut(is_together).zip(latches.iter_mut()) {
            match self.takes(latch, touched, bytes) {
                Ok(true) => {}
                Err(Undone::Again) => {
                    // They may be in the leaf's upper part from now on.
                    let keys = touched.iter_mut().filter(|some| !some.whole.is_empty());
                    keys.for_each(|touched| touched.at = None);
                    return Err(Undone::Again);
                }
                no => return no,
            }
        }
        if !self.has_as_many(counted.get_mut()) || !may() {
            return Ok(false);
        }
        if planted(Fault::RunLatch) {
            drop(latches);
            std::thread::yield_now();
            latches = Latches::of(touched.chunk_by(is_together).map(latch));
        }
        // From here on it counts. Few runs change how many keys there are.
        let mut changes: Vec<(TreeId, u64)> = Vec::new();
        for (touched, latch) in touched.chunk_by(is_together).zip(latches.iter_mut()) {
            let is_one = touched.len() == 1;
            for touched in touched {
                let change = self.write(latch, touched, (bytes, is_one));
                if change != 0 {
                    changes.push((key_of(&bytes[touched.whole.clone()]).tree, change));
                }
            }
        }
        // Before the first latch is released (MR2 counted-once).
        self.count_all(changes);
        run.note(commits);
        drop(latches);
        Ok(true)
    }

    /// Counts keys that came and went, of several trees together, for whoever compares one of them
    /// (MR5 counts-compared).
    fn count_all(&self, mut changes: Vec<(TreeId, u64)>) {
        changes.sort_unstable();
        let is_of_several = changes.iter().any(|(tree, _)| *tree != changes[0].0);
        let _counting = is_of_several.then(|| lock(&self.counting));
        for changes in changes.chunk_by(|(one, _), (next, _)| one == next) {
            let sum = changes
                .iter()
                .fold(0, |sum: u64, (_, change)| sum.wrapping_add(*change));
            self.count(changes[0].0, sum);
        }
    }

    /// Whether the touched keys of a leaf are as the run saw them, and where they are; fails if the
    /// leaf has no room for what it writes.
    fn takes(
        &self,
        latch: &mut Latch<'_>,
        all: &mut [Touched],
        bytes: &[u8],
    ) -> Result<bool, Undone> {
        let page = Page::of_slot(&latch[..]);
        let mut room = page.room();
        for place in 0..all.len() {
            let touched = &mut all[place];
            let whole = &bytes[touched.whole.clone()];
            let is_same = |at: &At| at.turns == self.turns && at.sequence == latch.sequence();
            let at = if let Some(at) = touched.at.filter(is_same) {
                at
            } else if whole.is_empty() {
                return Ok(false);
            } else {
                let Some((sight, place)) = self.placed(whole) else {
                    return Ok(false);
                };
                if page.link_for(place.entry()).is_some() && !planted(Fault::RunLink) {
                    // It was split since, and the latch of the other part is not held.
                    return Err(Undone::Again);
                }
                let leaf = (&page, touched.leaf, latch.sequence());
                let (at, found) = self.find_at((sight, &place), leaf);
                let is_still = touched
                    .seen
                    .is_still(self.seen(key_of(whole), found.as_ref()));
                let is_unread = touched.written.is_none() && planted(Fault::RunRead);
                if !is_still && !is_unread {
                    return Ok(false);
                }
                at
            };
            (touched.index, touched.was) = (at.spot.index, at.was);
            let Some(written) = &touched.written else {
                continue;
            };
            if at.is_fixed {
                return Err(Undone::Beyond);
            }
            let has_room = match (written.stored(bytes), touched.index) {
                (Some(stored), _) if stored.is_large() => return Err(Undone::Beyond),
                (Some(stored), index) => {
                    let suffix = whole.len() - page.prefix_len();
                    room.put(&page, index, suffix, stored.len())
                }
                (None, Ok(index)) if !room.remove(&page, index) => return Err(Undone::Beyond),
                (None, _) => true,
            };
            if !has_room {
                return Err(self.room_for(latch, all, bytes));
            }
        }
        Ok(true)
    }

    /// Makes room for what the run writes in a leaf, or splits it, unless a scan of the run has met
    /// it, which has to be as it was.
    fn room_for(&self, latch: &mut Latch<'_>, touched: &[Touched], bytes: &[u8]) -> Undone {
        let page = Page::of_slot(&latch[..]);
        let mut needed = 0;
        let mut branch = None;
        for touched in touched {
            let whole = &bytes[touched.whole.clone()];
            if whole.is_empty() {
                return Undone::Beyond;
            }
            if let Some(stored) = touched.written.as_ref().and_then(|it| it.stored(bytes)) {
                needed += page.entry_bytes(whole, stored.len());
                branch = self.seat(key_of(whole).tree).map(|seat| seat.branch);
            }
        }
        let Some(branch) = branch else {
            return Undone::Beyond;
        };
        match self.make_room(branch, latch, needed) {
            Ok(()) => Undone::Again,
            Err(BeyondLeaf) => Undone::Beyond,
        }
    }

    /// Writes a key of a leaf that has room, if the run does; returns by how much the number of
    /// keys changes. It is where it was, unless others of its leaf have changed.
    fn write(
        &self,
        latch: &mut Latch<'_>,
        touched: &Touched,
        (bytes, is_one): (&[u8], bool),
    ) -> u64 {
        let Some(written) = &touched.written else {
            return 0;
        };
        let whole = &bytes[touched.whole.clone()];
        let place = || self.placed(whole).expect("its tree was there").1;
        let index = if is_one {
            touched.index
        } else {
            Page::of_slot(&latch[..]).find(place().entry())
        };
        let made = written.made;
        let new = (made.version, written.stored(bytes));
        Self::edit_entry(latch, (index, place), new);
        self.remember(key_of(whole), touched.was, made.is_there, made.removed());
        difference(touched.was.is_some(), made.is_there)
    }

    /// The same, for whoever is alone.
    pub(super) fn commit_alone(
        &mut self,
        run: &Run,
        commits: &AtomicU64,
        may: &dyn Fn() -> bool,
    ) -> bool {
        for touched in &run.touched {
            let whole = run.whole(touched);
            if whole.is_empty() {
                // Nobody else was alone since.
                let is_same = |at: At| {
                    at.turns + 1 == self.turns
                        && self.see(at.spot.leaf).state().sequence == at.sequence
                };
                if touched.at.is_some_and(is_same) {
                    continue;
                }
                return false;
            }
            let key = key_of(whole);
            let Some((sight, place)) = self.placed(whole) else {
                return false;
            };
            let spot = self.spot(sight, place.entry());
            let page = self.page(spot.leaf);
            let found = self.found_in(&page, spot, &place);
            if !touched.seen.is_still(self.seen(key, found.as_ref()))
                || self.seat(key.tree).is_none()
            {
                return false;
            }
        }
        if !self.has_as_many(&run.counted.borrow()) || !may() {
            return false;
        }
        for touched in &run.touched {
            let Some(written) = &touched.written else {
                continue;
            };
            let key = key_of(run.whole(touched));
            let seat = self.seat(key.tree).expect("nobody else is inside");
            let place = Place::of(Key::new(seat.base, key.bytes));
            let spot = self.spot(self.tip_at(seat), place.entry());
            let change = (written.made.version, written.stored(&run.bytes));
            let is_remembered = written.made.is_remembered;
            self.apply((key, seat), (&place, spot), change, is_remembered);
        }
        run.note(commits);
        true
    }
}
