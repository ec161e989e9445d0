//! Rubbing void epochs out, a little at a time, so that the pool can forget them.
//!
//! What a crash or a rollback leaves is void by its epochs, which readers ask the pool about and of
//! which it remembers a bounded number of ranges. Cleaning goes through every view that can come
//! again, leaf by leaf, and then through the allocator's records; it erases void beginnings and
//! ends. It is for the ranges that there were when it began; those that come meanwhile are for the
//! next one.
//!
//! Where it has got to can be noted in the tree itself, under a key of the owner's, so that it goes
//! on there after a crash. All numbers are little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | the newest epoch of the ranges that are to be forgotten |
//! | 8 | 8 | snapshots from this epoch on need no visit; 0: the present is not gone through |
//! | 16 | 8 | the view that is gone through; 0: all were |
//! | 24 | 8 | the chunk to go on with, when all views were gone through |
//! | 32 | | the key to go on with, else |
//!
//! A pool that is crowded with ranges (PL5 crowded) is cleaned up before anything else happens.
//!
//! So each node is visited, and looked at: a slot that is not as it was stored (CN5 sealed), an
//! epoch that has not come yet, an entry behind the used slots or that is not found by its key, a
//! child that is no node of the level below. What is damaged is named and not followed.
//!
//! - **CG1 same-meaning** A void beginning is as good as none, and so is a void end: whoever reads
//!   or crashes in between sees the same.
//! - **CG2 all-views** The ranges are forgotten with a commit, when the present, as it then is
//!   committed, and every snapshot have been gone through. A node of theirs that was not met was
//!   made since, and so was a snapshot that needs no visit.
//! - **CG3 erased-first** What was erased is flushed by the thread that forgets, whose header is a
//!   commit (PM4 commit-last).
//! - **CG4 none-again** An epoch of the ranges is stored nowhere any more: a change stores the open
//!   epoch or none, and a node that is made has entries of the open epoch alone. So what is below
//!   the position has no mark of them, whatever splits, merges or moves.
//! - **CG5 noted-with** The note is a pair of the tree: it is committed with what the tree was when
//!   the position was reached, and a crash or a rollback that brings back what was not cleaned
//!   brings back a note from before. A range that came later, or has swallowed others in a rollback
//!   or a crash, ends above the noted epoch. A note below all ranges is one of a cleaning that has
//!   ended.

use std::cmp::Ordering;

use pando_pmem::{LINE_BYTES, Offset, Pmem, WORD_BYTES, Writes};
use pando_sync::LogEpoch;

use crate::canary::{self, Fault};
use crate::node::{ANCHOR, Found, Node, Probe, Span, View};
use crate::record::Record;
use crate::tree::{ANCHOR_SLOTS, Error, Tree};

/// How far it has got.
#[derive(Debug)]
pub(crate) struct Cleaning {
    /// The newest epoch of the ranges that are to be forgotten.
    until: LogEpoch,
    /// The open epoch when the present had been gone through; none before.
    since: LogEpoch,
    /// Views that were gone through.
    done: Vec<View>,
    stage: Stage,
    /// The nodes of the last way, which were looked at.
    way: Vec<Offset>,
}

#[derive(Debug)]
enum Stage {
    /// The leaves of a view, from this key on.
    Nodes(View, Vec<u8>),
    /// The allocator's records, from the chunk of this number on.
    Blocks(u64),
    /// Everything that there was.
    Done,
}

impl Cleaning {
    fn new(until: LogEpoch) -> Self {
        Self {
            until,
            since: LogEpoch::NONE,
            done: Vec::new(),
            stage: Stage::Nodes(View::PRESENT, Vec::new()),
            way: Vec::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (view, chunk, key) = match &self.stage {
            Stage::Nodes(view, from) => (view.0.0, 0, from.as_slice()),
            Stage::Blocks(from) => (0, *from, &[][..]),
            Stage::Done => (0, u64::MAX, &[][..]),
        };
        let words = [self.until.0, self.since.0, view, chunk];
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        words.chain(key.iter().copied()).collect()
    }

    /// Of what was noted when there were these snapshots, or later ones.
    fn decode(note: &[u8], snapshots: impl Iterator<Item = LogEpoch>) -> Option<Self> {
        let (words, key) = note.split_first_chunk::<32>()?;
        let word = |index: usize| words[index * WORD_BYTES as usize..].first_chunk();
        let word = |index| word(index).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let view = View(LogEpoch(word(2)));
        let is_done = |epoch: &LogEpoch| view.0 == LogEpoch::NONE || *epoch < view.0;
        let mut done = vec![View::PRESENT];
        done.extend(snapshots.filter(is_done).map(View));
        if view == View::PRESENT {
            done.clear();
        }
        Some(Self {
            until: LogEpoch(word(0)),
            since: LogEpoch(word(1)),
            done,
            stage: match view.0 {
                LogEpoch::NONE => Stage::Blocks(word(3)),
                _ => Stage::Nodes(view, key.to_vec()),
            },
            way: Vec::new(),
        })
    }
}

impl<M: Pmem> Tree<M> {
    /// Cleans up after crashes and rollbacks: up to `steps` ways from the root to a leaf, or chunks
    /// of the pool. Whether more is to be done; the next commit after the last step ends it.
    ///
    /// Cost of a step: O(log n) nodes read; a flush for each entry of a void epoch.
    pub fn clean(&mut self, steps: usize) -> Result<bool, Error> {
        match self.pool.voids().last() {
            None if self.cleaning.is_none() => Ok(false),
            newest => self.clean_until(newest.map_or(LogEpoch::NONE, |newest| newest.last), steps),
        }
    }

    /// The same of the ranges up to an epoch, if nothing has begun yet.
    pub(crate) fn clean_until(&mut self, until: LogEpoch, steps: usize) -> Result<bool, Error> {
        let begun = self.cleaning.take();
        let mut cleaning = begun.unwrap_or_else(|| Cleaning::new(until));
        let _window = Writes::new(self.pool.memory());
        for _ in 0..steps {
            self.clean_step(&mut cleaning)?;
        }
        let goes_on = !matches!(cleaning.stage, Stage::Done);
        self.cleaning = Some(cleaning);
        Ok(goes_on)
    }

    /// Cleans all of a pool that is crowded, before anything begins in it, and lets it forget: what
    /// is not committed cannot be noted. O(pool).
    pub(crate) fn clean_at_once(&mut self) -> Result<(), Error> {
        let Some(newest) = self.pool.voids().last().copied() else {
            return Ok(());
        };
        if !canary::has(Fault::ForgottenUncleaned) {
            while self.clean(usize::from(u16::MAX))? {}
        }
        self.cleaning = None;
        // CG2 all-views: nothing is there but what is committed, and nobody reads.
        Ok(self.pool.forget_voids(newest.last)?)
    }

    /// Lets cleaning go on where it was when it was noted under this key, unless that is over
    /// (CG5 noted-with).
    pub(crate) fn resume_cleaning(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.cleaning.is_some() {
            return Ok(());
        }
        let Some(oldest) = self.pool.voids().first().copied() else {
            return Ok(());
        };
        let snapshots = self.snapshots().map(crate::Snapshot::epoch);
        let noted = self
            .get(key)?
            .and_then(|note| Cleaning::decode(note, snapshots));
        self.cleaning = noted.filter(|noted| oldest.last <= noted.until);
        Ok(())
    }

    /// Notes under a key how far cleaning has got, if there is room.
    pub(crate) fn note_cleaning(&mut self, key: &[u8]) -> Result<(), Error> {
        let Some(cleaning) = self.cleaning.as_ref().filter(|_| self.group.is_none()) else {
            return Ok(());
        };
        let note = if canary::has(Fault::NotedAhead) {
            let mut ahead = Cleaning::new(cleaning.until);
            ahead.stage = Stage::Blocks(0);
            ahead.encode()
        } else {
            cleaning.encode()
        };
        match self.put_in_reserve(key, &note) {
            Ok(()) | Err(Error::Full(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn clean_step(&self, cleaning: &mut Cleaning) -> Result<(), Error> {
        match &mut cleaning.stage {
            Stage::Nodes(view, from) => {
                let view = *view;
                if let Some(next) = self.clean_way(view, from, &mut cleaning.way)? {
                    *from = next;
                    return Ok(());
                }
                cleaning.done.push(view);
                cleaning.way.clear();
                if view == View::PRESENT {
                    cleaning.since = self.open;
                }
                cleaning.stage = self.next_view(cleaning, Stage::Blocks(0));
            }
            Stage::Blocks(from) => {
                cleaning.stage = match self.allocator.clean(*from, 1) {
                    Some(next) => Stage::Blocks(next),
                    None => Stage::Done,
                }
            }
            Stage::Done => cleaning.stage = self.next_view(cleaning, Stage::Done),
        }
        Ok(())
    }

    /// Cleans the nodes on the way to a key that the last way had not; the lowest key behind the
    /// leaf.
    fn clean_way(
        &self,
        view: View,
        from: &[u8],
        way: &mut Vec<Offset>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let (last, probe) = (std::mem::take(way), Probe::new(from));
        let (mut node, mut high) = (self.anchor(), None);
        loop {
            if !last.contains(&node.at) {
                self.check_node(node, view)?;
                node.clean();
            }
            way.push(node.at);
            let chosen = match node.level {
                0 => None,
                ANCHOR => node.seen(view).next(),
                _ => node.child_for(&probe, view),
            };
            let Some(chosen) = chosen else {
                break;
            };
            let above = |found: &Found| {
                node.level != ANCHOR && node.order(found.entry, chosen.entry) == Ordering::Greater
            };
            let above = node.seen(view).filter(above);
            let next = above.min_by(|a, b| node.order(a.entry, b.entry));
            high = next.map(|next| next.entry.record).or(high);
            node = self.child(node.level, chosen.entry.child)?;
        }
        let separator = |at| {
            let record = Record::at(&self.pool, at).filter(|record| record.is_separator());
            record.ok_or(Error::Damaged { at })
        };
        let high = high.map(separator).transpose()?;
        let next = high.map(|record| record.key().to_vec());
        if next.as_ref().is_some_and(|next| next.as_slice() <= from) {
            return Err(Error::DamagedNode { at: node.at });
        }
        Ok(next)
    }

    /// Looks at a node that a view has come to, before it is followed.
    fn check_node(&self, node: Node<'_, M>, view: View) -> Result<(), Error> {
        let (pool, is_anchor) = (&self.pool, node.level == ANCHOR);
        let slots = if is_anchor { ANCHOR_SLOTS } else { self.slots };
        let is_possible = |slot: u64| {
            let Span { start, end } = node.span(slot);
            let is_used = slot < node.used || start == 0 || pool.is_void(LogEpoch(start));
            is_used && node.is_right(slot) && start.max(end) <= self.open.0
        };
        let is_node = |child: Offset| self.child(node.level, child).is_ok();
        let is_found = |found: Found| {
            if found.entry.record.is_none() {
                return !node.is_leaf();
            }
            let Some(key) = Record::at(pool, found.entry.record).map(Record::key) else {
                return false;
            };
            let by_key = if node.is_leaf() {
                node.find(key, view)
            } else {
                node.child_for(&Probe::new(key), view)
            };
            by_key.is_some_and(|by_key| by_key.slot == found.slot)
        };
        // All at once: the look at each of them waits for its line.
        for Found { entry, .. } in node.seen(view) {
            pool.memory()
                .prefetch(entry.record, 2 * LINE_BYTES as usize);
            pool.memory().prefetch(entry.child, WORD_BYTES as usize);
        }
        let is_sound = (0..slots).all(is_possible)
            && (node.seen(view)).all(|found| node.is_leaf() || is_node(found.entry.child))
            && (node.seen(view)).all(|found| is_anchor || is_found(found));
        let at = node.at;
        is_sound.then_some(()).ok_or(Error::DamagedNode { at })
    }

    /// A snapshot that is to be gone through.
    fn next_view(&self, cleaning: &Cleaning, otherwise: Stage) -> Stage {
        let needs_visit = |view: &View| view.0 < cleaning.since && !cleaning.done.contains(view);
        let views = self.retained.iter().map(|epoch| View(*epoch));
        let next = views.into_iter().find(needs_visit);
        next.map_or(otherwise, |view| Stage::Nodes(view, Vec::new()))
    }

    /// Lets the pool forget what was rubbed out, while nothing is there but what is committed (CG2
    /// all-views), unless readers are pinned: then after a later commit.
    pub(crate) fn end_cleaning(&mut self) -> Result<(), Error> {
        let is_done = |cleaning: &&Cleaning| {
            let next = self.next_view(cleaning, Stage::Done);
            matches!((&cleaning.stage, next), (Stage::Done, Stage::Done))
        };
        let Some(until) = self
            .cleaning
            .as_ref()
            .filter(is_done)
            .map(|done| done.until)
        else {
            return Ok(());
        };
        if !self.shared.try_close() {
            return Ok(());
        }
        self.cleaning = None;
        let until = if canary::has(Fault::ForgottenLater) {
            LogEpoch(u64::MAX)
        } else {
            until
        };
        let forgotten = self.pool.forget_voids(until);
        self.shared.reopen();
        Ok(forgotten?)
    }
}
