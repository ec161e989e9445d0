//! Runs ([`Transactional`]): what a session does from the beginning of one to its end counts as a
//! whole, or not at all, beside everybody else.
//!
//! These are Minuet's dynamic transactions (§4.1 of its paper) where proxy and memnodes share a
//! process: reads go to the tree, writes are kept apart, and the end compares what was read before
//! it writes. It compares the versions of keys, where a coordinator compares those of slots, so
//! neighbours in a leaf are in nobody's way.
//!
//! ```text
//! begin_run ──► get, update, probe ──► end_run ──► all leaves latched: compared, written ──► Done
//!                                         │  more than leaves  │ a key has changed ──► Conflict
//!                                         └────► alone ◄───────┘ compared, written by transactions
//! ```
//!
//! - **MR1 runs-validated** A run counts while the latches of the leaves of all keys that it
//!   touched are held at once, or by whoever is alone. Each key then has the value, or the removal,
//!   that the run saw first. So all that it saw and wrote is of that moment, and nobody who takes
//!   one of the latches later sees less than all of it. A run that has only read counts without
//!   them if none of the leaves has changed.
//! - **MR2 counted-once** The number of keys of a tree changes once for a run, before the first
//!   latch is released.
//! - **MR3 reads-between-runs** A run that only reads, without noting what
//!   ([`MinuetSession::begin_reads`]), counts if no run that writes several keys has counted since
//!   it began. That is counted under all latches of such a run, so whoever has seen some of it sees
//!   the count as well. So it shows all of a run or nothing; of changes of single keys it shows
//!   some, as any scan of the present. The same goes for a run that picks keys by chance.
//! - **MR4 scans-compared** A run counts only if each leaf that its scans met is as they met it:
//!   compared under its latch like what was read of keys, so that no key has come in between. One
//!   that scans behind a write of its own, which no scan would show, does not count.
//! - **MR5 counts-compared** A run that was told how many keys a tree has counts only if these are
//!   as many when all that it saw is as it was: under its latches, or before leaves are compared. A
//!   number changes under the latch of the key's leaf, and those of several trees, which one run
//!   changes, together (`State::counting`).
//!
//! A leaf that has no room for what a run writes is packed or split under its latch (`splits`), and
//! the end begins anew: that is no change of a key.
//!
//! Deliberately absent: views of the past, which need no run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::take;
use std::ops::{Deref, Range};

use pando_engine::{CommitHook, Decision, Key, Outcome, Probe, Transactional, TreeId, ValueRef};
use pando_engine::{Engine, ValueVersion};
use pando_memnode::{Address, Sequence};
use pando_sync::shim::{AtomicU64, Ordering};

use super::in_leaf::{BeyondLeaf, Made, make};
use super::place::{Place, key_of};
use super::session::{MinuetSession, show};
use super::sight::Sight;
use super::value::{Coded, Drafted, MARK, deadline_of};
use super::walk::{Found, Marked, Spot, Target};
use super::warmed::Warmed;
use super::{State, difference};
use crate::fault::{Fault, planted};
use crate::limits::LEAVES_MET_MAX;
use crate::page::Page;

/// Of a run that was to read alone, and has written: that stays.
pub(super) const COUNTS_ANYWAY: u64 = u64::MAX;

/// So many touched keys are looked for one after the other.
const FEW: usize = 16;
/// A larger run is not kept for the next one.
const RUN_BYTES_KEPT: usize = 1 << 14;

/// A run in progress. It is used again for the next one, so that a small run allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Run {
    touched: Vec<Touched>,
    /// Which of them has a key, if they are not few.
    by_key: BTreeMap<Box<[u8]>, usize>,
    /// Keys, with their trees' numbers, and short values.
    bytes: Vec<u8>,
    /// Marks that were left on values of the tree.
    marked: Vec<Marked>,
    /// How many runs had written several keys before it first picked one by chance.
    sampled: Option<u64>,
    /// Leaves that its scans met.
    met: usize,
    /// Trees, and how many keys it was told that they have but for its own.
    counted: RefCell<Vec<(TreeId, u64)>>,
    /// It cannot count any more.
    is_void: bool,
}

/// A key, or a leaf that a scan met.
#[derive(Debug)]
struct Touched {
    /// The key, in the run's bytes; nothing, of a leaf.
    whole: Range<usize>,
    /// As the run saw it first.
    seen: Seen,
    /// Where that was; nowhere if there was no such tree.
    at: Option<At>,
    written: Option<Written>,
    /// Its leaf, when the run ends.
    leaf: Address,
    /// Where it is in it by then, and what that is; see [`At::was`].
    index: Result<usize, usize>,
    was: Option<(u64, usize)>,
}

/// Where a key was found, or would be. It still is there if nobody was alone and its leaf has not
/// changed since.
#[derive(Clone, Copy, Debug)]
struct At {
    /// [`State::turns`].
    turns: u64,
    sequence: Sequence,
    spot: Spot,
    /// The version of its value, and the length.
    was: Option<(u64, usize)>,
    /// It cannot be changed in its leaf.
    is_fixed: bool,
}

/// What there is of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    is_there: bool,
    /// Of its value, or of its removal if that is remembered.
    version: Option<ValueVersion>,
}

/// What a run gives a key.
#[derive(Debug)]
struct Written {
    made: Made,
    /// The value; none if the key is removed.
    value: Option<Value>,
}

/// A value, as it is stored.
#[derive(Debug)]
enum Value {
    /// In the run's bytes.
    Short(Range<usize>),
    Long(Drafted),
}

impl Seen {
    /// Whether nothing has become of the key. A removal that was seen may be forgotten by now.
    fn is_still(self, now: Self) -> bool {
        let is_forgotten = !now.is_there && now.version.is_none();
        self.is_there == now.is_there && (self.version == now.version || is_forgotten)
    }
}

impl Written {
    fn stored<'r>(&'r self, bytes: &'r [u8]) -> Option<Coded<'r>> {
        Some(match self.value.as_ref()? {
            Value::Short(at) => Coded {
                bytes: &bytes[at.clone()],
                nodes: None,
            },
            Value::Long(drafted) => drafted.coded(),
        })
    }

    fn found<'r>(&'r self, bytes: &'r [u8]) -> Option<Found<'r>> {
        let stored = self.stored(bytes)?;
        Some(Found {
            version: self.made.version.to_bits(),
            stored,
            mark: stored.bytes[MARK],
            mark_at: None,
            is_apart: false,
        })
    }
}

impl Run {
    fn whole(&self, touched: &Touched) -> &[u8] {
        &self.bytes[touched.whole.clone()]
    }

    /// Which of the touched keys it is.
    fn place(&self, whole: &[u8]) -> Option<usize> {
        if self.touched.len() > FEW {
            return self.by_key.get(whole).copied();
        }
        let is_it = |touched: &Touched| self.whole(touched) == whole;
        self.touched.iter().position(is_it)
    }

    /// Which of the touched keys it is, if the run has written it.
    fn place_written(&self, whole: &[u8]) -> Option<usize> {
        let place = self.place(whole)?;
        self.touched[place].written.is_some().then_some(place)
    }

    /// What the run has written of a touched key.
    fn written(&self, place: usize) -> &Written {
        let written = self.touched[place].written.as_ref();
        written.expect("it was written")
    }

    /// Notes what there is of a key that the run looks at; returns which one it is.
    fn see(&mut self, whole: &[u8], seen: Seen, at: Option<At>) -> usize {
        if let Some(place) = self.place(whole) {
            self.is_void |= !self.touched[place].seen.is_still(seen);
            return place;
        }
        self.add(whole, seen, at)
    }

    fn add(&mut self, whole: &[u8], seen: Seen, at: Option<At>) -> usize {
        let place = self.touched.len();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(whole);
        self.touched.push(Touched {
            whole: start..self.bytes.len(),
            seen,
            at,
            written: None,
            leaf: Address::default(),
            index: Err(0),
            was: None,
        });
        if place >= FEW {
            let from = if place == FEW { 0 } else { place };
            for (place, touched) in self.touched.iter().enumerate().skip(from) {
                let whole = &self.bytes[touched.whole.clone()];
                self.by_key.insert(whole.into(), place);
            }
        }
        place
    }

    /// A scan has met a leaf in this state.
    pub(super) fn meet(&mut self, leaf: Address, sequence: Sequence, turns: u64) {
        if planted(Fault::RunScan) {
            return;
        }
        self.met += 1;
        if self.met > LEAVES_MET_MAX {
            self.is_void = true;
            return;
        }
        let seen = Seen {
            is_there: false,
            version: None,
        };
        let at = At {
            turns,
            sequence,
            spot: Spot {
                leaf,
                index: Err(0),
            },
            was: None,
            is_fixed: false,
        };
        self.add(&[], seen, Some(at));
    }

    fn has_written(&self) -> bool {
        let mut touched = self.touched.iter();
        touched.any(|touched| touched.written.is_some())
    }

    fn mark(&mut self, whole: &[u8], found: Option<&Found<'_>>, mark: Option<u8>) {
        if let (Some(found), Some(mark)) = (found, mark) {
            self.marked.push((whole.to_vec(), found.version, mark));
        }
    }

    /// Gives a touched key what was made of it, of which `drafted` is the value.
    fn write(&mut self, place: usize, made: Made, drafted: &mut Drafted) {
        let value = made.is_there.then(|| {
            if drafted.coded().is_large() {
                return Value::Long(take(drafted));
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&drafted.bytes);
            Value::Short(start..self.bytes.len())
        });
        self.touched[place].written = Some(Written { made, value });
    }

    fn set_mark(&mut self, place: usize, mark: Option<u8>) {
        let written = self.touched[place].written.as_mut();
        let value = written.and_then(|written| written.value.as_mut());
        if let (Some(value), Some(mark)) = (value, mark) {
            match value {
                Value::Short(at) => self.bytes[at.start + MARK] = mark,
                Value::Long(drafted) => drafted.bytes[MARK] = mark,
            }
        }
    }

    /// Counts it, if it has written several keys (MR3).
    fn note(&self, commits: &AtomicU64) {
        let written = |touched: &&Touched| touched.written.is_some();
        let is_several = self.touched.iter().filter(written).nth(1).is_some();
        if is_several && !planted(Fault::RunCount) {
            // Relaxed: latches, or being alone, order it.
            commits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes it the next one; none if it is too large for that.
    fn cleared(mut self: Box<Self>) -> Option<Box<Self>> {
        let bytes = self.bytes.capacity() + size_of::<Touched>() * self.touched.capacity();
        if bytes > RUN_BYTES_KEPT {
            return None;
        }
        let (mut touched, mut bytes) = (take(&mut self.touched), take(&mut self.bytes));
        touched.clear();
        bytes.clear();
        *self = Self {
            touched,
            bytes,
            ..Self::default()
        };
        Some(self)
    }
}

impl State {
    fn seen(&self, key: Key<'_>, found: Option<&Found<'_>>) -> Seen {
        Seen {
            is_there: found.is_some(),
            version: self.last_version(found, key),
        }
    }

    /// Finds a key in its leaf, which is in this state.
    fn find_at<'s, B: Deref<Target = [u8]>>(
        &'s self,
        (sight, place): (&Sight, &Place<'_>),
        (page, leaf, sequence): (&'s Page<B>, Address, Sequence),
    ) -> (At, Option<Found<'s>>) {
        let index = page.find(place.entry());
        let spot = Spot { leaf, index };
        let found = self.found_in(page, spot, place);
        let is_apart = found.is_some_and(|found| found.is_apart) || place.rest.is_some();
        let at = At {
            turns: self.turns,
            sequence,
            spot,
            was: found.map(|found| (found.version, found.stored.len())),
            is_fixed: is_apart || page.created() != sight.view.snapshot(),
        };
        (at, found)
    }

    /// Shows what there is of a key, and where, to `look`; nowhere if there is no such tree. Its
    /// `place` is by the tree's own number.
    fn look_at<R>(
        &self,
        (key, place): (Key<'_>, &Place<'_>),
        warmed: &mut Warmed,
        look: impl FnOnce(Option<&Found<'_>>, Option<At>) -> R,
    ) -> R {
        let Some((sight, base)) = self.present(key.tree) else {
            return look(None, None);
        };
        let in_branch;
        let place = if base == key.tree {
            place
        } else {
            in_branch = Place::of(Key::new(base, key.bytes));
            &in_branch
        };
        let near = self.leaf_of(key, (sight, place), warmed);
        let (leaf, page) = self.held(near, Target::At(place.entry()));
        let sequence = page.holder().state().sequence;
        let (at, found) = self.find_at((sight, place), (&page, leaf, sequence));
        look(found.as_ref(), Some(at))
    }
}

impl MinuetSession {
    /// [`pando_engine::Point::get`] in a run.
    pub(super) fn get_in_run<R>(
        &mut self,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        let run = self.under_way.as_mut().expect("a run is under way");
        let place = Place::of(key);
        let whole = place.whole();
        if let Some(at) = run.place_written(&whole) {
            let (shown, mark) = show(run.written(at).found(&run.bytes).as_ref(), read);
            run.set_mark(at, mark);
            return shown;
        }
        let state = self.entrance.enter();
        state.look_at((key, &place), &mut self.warmed, |found, at| {
            let (shown, mark) = show(found, read);
            run.see(&whole, state.seen(key, found), at);
            run.mark(&whole, found, mark);
            shown
        })
    }

    /// [`pando_engine::Point::probe`] in a run.
    pub(super) fn probe_in_run(&mut self, key: Key<'_>) -> Probe {
        let run = self.under_way.as_mut().expect("a run is under way");
        let place = Place::of(key);
        let whole = place.whole();
        if let Some(at) = run.place_written(&whole) {
            let written = run.written(at);
            let made = written.made;
            return match written.stored(&run.bytes) {
                Some(stored) => Probe::Present {
                    version: made.version,
                    deadline: deadline_of(stored.bytes),
                },
                None if made.is_remembered => Probe::Removed(made.version),
                None => Probe::Absent,
            };
        }
        let state = self.entrance.enter();
        state.look_at((key, &place), &mut self.warmed, |found, at| {
            run.see(&whole, state.seen(key, found), at);
            state.probed(key, found)
        })
    }

    /// [`pando_engine::Point::update`] in a run.
    pub(super) fn update_in_run<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        decide: &mut impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        let run = self.under_way.as_mut().expect("a run is under way");
        let drafted = &mut self.drafted;
        let clock = &*self.engine.clock;
        let place = Place::of(key);
        let whole = place.whole();
        let (at, made) = if let Some(at) = run.place_written(&whole) {
            let written = run.written(at);
            let (found, last) = (written.found(&run.bytes), written.made.version);
            let what = (key, found.as_ref(), Some(last));
            let (made, mark) = make(clock, what, drafted, hook, decide);
            run.set_mark(at, mark);
            (at, made)
        } else {
            let state = self.entrance.enter();
            let is_written = !state.bases.contains_key(&key.tree);
            state.look_at((key, &place), &mut self.warmed, |found, at| {
                if at.is_none() || !is_written {
                    // As outside of a run.
                    decide(None);
                    return (0, None);
                }
                let seen = state.seen(key, found);
                let at = run.see(&whole, seen, at);
                let (made, mark) = make(clock, (key, found, seen.version), drafted, hook, decide);
                run.mark(&whole, found, mark);
                (at, made)
            })
        };
        let made = made?;
        run.write(at, made, &mut self.drafted);
        Some(made.version)
    }
}

impl MinuetSession {
    /// Begins a run that only reads, and shows changes of single keys as they come (MR3): it notes
    /// nothing of what it reads. Should it write nevertheless, then at once, and it counts.
    pub fn begin_reads(&mut self) {
        assert!(self.under_way.is_none() && self.reads.is_none());
        // Relaxed: as below.
        self.reads = Some(self.engine.commits.0.load(Ordering::Relaxed));
    }

    /// A scan of the present begins.
    pub(super) fn begin_scan_in_run(&mut self) {
        if let Some(run) = &mut self.under_way {
            run.is_void |= run.has_written();
        }
    }

    /// A key of the present is picked by chance.
    pub(super) fn sample_in_run(&mut self) {
        if let Some(run) = &mut self.under_way {
            // Relaxed: what those runs have written is read later, under latches.
            let commits = || self.engine.commits.0.load(Ordering::Relaxed);
            run.sampled.get_or_insert_with(commits);
        }
    }
}

impl Transactional for MinuetSession {
    fn begin_run(&mut self) {
        assert!(self.under_way.is_none(), "one run at a time");
        self.under_way = Some(self.spare.take().unwrap_or_default());
    }

    fn is_blind(&self) -> bool {
        false
    }

    fn end_run_if(&mut self, may: impl Fn() -> bool) -> Outcome {
        if let Some(before) = self.reads.take() {
            let is_same = self.engine.commits.0.load(Ordering::Relaxed) == before;
            self.conflicted = self.engine.conflicts && !self.conflicted;
            let marked = std::mem::take(&mut self.marked);
            if before != COUNTS_ANYWAY && (self.conflicted || !is_same || !may()) {
                return Outcome::Conflict;
            }
            self.leave_marks(None, &marked);
            return Outcome::Done;
        }
        let mut run = self.under_way.take().expect("a run is under way");
        self.conflicted = self.engine.conflicts && !self.conflicted;
        let counts = !self.conflicted && !run.is_void && self.commit(&mut run, &may);
        if counts {
            self.leave_marks(None, &run.marked);
        }
        self.spare = run.cleared();
        if counts {
            Outcome::Done
        } else {
            Outcome::Conflict
        }
    }

    fn len(&self, tree: TreeId) -> u64 {
        match &self.under_way {
            Some(run) => self.count_in_run(run, tree),
            None => self.engine.len(tree),
        }
    }
}

impl MinuetSession {
    /// How many keys a tree has, for a run; see [`Run::counted`].
    fn count_in_run(&self, run: &Run, tree: TreeId) -> u64 {
        let mut keys = self.engine.len(tree);
        run.counted.borrow_mut().push((tree, keys));
        for touched in &run.touched {
            if let Some(written) = &touched.written
                && key_of(run.whole(touched)).tree == tree
            {
                let change = difference(touched.seen.is_there, written.made.is_there);
                keys = keys.wrapping_add(change);
            }
        }
        keys
    }

    /// Whether a run counts; then it is in the trees.
    fn commit(&mut self, run: &mut Run, may: &dyn Fn() -> bool) -> bool {
        let commits = &self.engine.commits.0;
        if let Some(before) = run.sampled
            && (run.has_written()
                // Relaxed: who has read something of such a run has had one of its latches since.
                || commits.load(Ordering::Relaxed) != before)
        {
            return false;
        }
        let told = run.counted.get_mut().len();
        if run.touched.is_empty() && told <= 1 {
            return may();
        }
        if told > 1 {
            // There may be no moment at which the one and the other are so many.
            return self.engine.write().commit_alone(run, commits, may);
        }
        let state = self.entrance.enter();
        if state.is_as_read(run) {
            return may();
        }
        let done = state.commit_in_leaves(run, commits, may);
        drop(state);
        done.unwrap_or_else(|BeyondLeaf| {
            let mut state = self.engine.write();
            state.restock();
            state.commit_alone(run, commits, may)
        })
    }
}

mod end;
#[cfg(test)]
mod tests;
