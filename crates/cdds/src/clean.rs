//! Rubbing void epochs out, a little at a time, so that the pool can forget them.
//!
//! What a crash or a rollback leaves is void by its epochs, which readers ask the pool about and of
//! which it remembers a bounded number of ranges. Cleaning goes through every view that can come
//! again, leaf by leaf, and then through the allocator's records; it erases void beginnings and
//! ends. Where it has got to is known in memory only: a restart begins anew.
//!
//! So every node is visited after a crash, and looked at: an epoch that has not come yet, an entry
//! behind the used slots or that is not found by its key, a child that is no node of the level
//! below. What is damaged is named and not followed. Epochs have no checksum: one that becomes
//! another that has passed goes unnoticed.
//!
//! - **CG1 same-meaning** A void beginning is as good as none, and so is a void end: whoever reads
//!   or crashes in between sees the same.
//! - **CG2 all-views** The ranges are forgotten with a commit, when the present, as it then is
//!   committed, and every snapshot have been gone through. A node of theirs that was not met was
//!   made since, of entries of epochs that count: nothing becomes void meanwhile, and a rollback
//!   begins anew.
//! - **CG3 erased-first** What was erased is flushed by the thread that forgets, whose header is a
//!   commit (PM4 commit-last).

use std::ops::Bound;

use pando_pmem::{LINE_BYTES, Offset, Pmem, VoidRange, Writes};
use pando_sync::LogEpoch;

use crate::node::{ANCHOR, Found, Node, Probe, Span, View, bytes_of};
use crate::record::Record;
use crate::scan::Direction;
use crate::shared::Look;
use crate::tree::{ANCHOR_SLOTS, Error, Tree};

/// How far it has got.
#[derive(Debug)]
pub(crate) struct Cleaning {
    /// What is to be forgotten.
    ranges: Vec<VoidRange>,
    /// Views that were gone through.
    done: Vec<View>,
    stage: Stage,
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
    fn new(ranges: Vec<VoidRange>) -> Self {
        Self {
            ranges,
            done: Vec::new(),
            stage: Stage::Nodes(View::PRESENT, Vec::new()),
        }
    }
}

impl<M: Pmem> Tree<M> {
    /// Cleans up after crashes and rollbacks: up to `steps` ways from the root to a leaf, or chunks
    /// of the pool. Whether more is to be done; the next commit after the last step ends it.
    ///
    /// Cost of a step: O(log n) nodes read; a flush for each entry of a void epoch.
    pub fn clean(&mut self, steps: usize) -> Result<bool, Error> {
        let mut cleaning = match self.cleaning.take() {
            Some(cleaning) => cleaning,
            None => match self.pool.voids() {
                ranges if ranges.is_empty() => return Ok(false),
                ranges => Cleaning::new(ranges),
            },
        };
        let _window = Writes::new(self.pool.memory());
        for _ in 0..steps {
            self.clean_step(&mut cleaning)?;
        }
        let goes_on = !matches!(cleaning.stage, Stage::Done);
        self.cleaning = Some(cleaning);
        Ok(goes_on)
    }

    /// Cleans up after all crashes and rollbacks so far, while nobody else reads or writes, and
    /// commits. O(pool).
    pub fn clean_all(&mut self) -> Result<(), Error> {
        while self.clean(1)? {}
        self.commit()?;
        assert!(
            self.pool.voids().is_empty(),
            "CG2: all views were gone through"
        );
        Ok(())
    }

    fn clean_step(&self, cleaning: &mut Cleaning) -> Result<(), Error> {
        match &mut cleaning.stage {
            Stage::Nodes(view, from) => {
                self.check_node(self.anchor(), *view)?;
                self.anchor().clean();
                let (look, mut checked) = (Look::alone(*view), Ok(()));
                let passed = |node: Node<'_, M>| {
                    checked = self.check_node(node, *view);
                    checked.is_ok().then(|| node.clean())
                };
                let bound = Bound::Included(from.as_slice());
                let stop = self.shared.stop(look, bound, Direction::Forward, passed);
                checked?;
                let next = stop.ok().flatten().and_then(|stop| stop.high);
                if let Some(next) = next {
                    *from = next;
                } else {
                    cleaning.done.push(*view);
                    cleaning.stage = self.next_view(&cleaning.done, Stage::Blocks(0));
                }
            }
            Stage::Blocks(from) => {
                cleaning.stage = match self.allocator.clean(*from, 1) {
                    Some(next) => Stage::Blocks(next),
                    None => Stage::Done,
                }
            }
            Stage::Done => cleaning.stage = self.next_view(&cleaning.done, Stage::Done),
        }
        Ok(())
    }

    /// Looks at a node that a view has come to, before it is followed.
    fn check_node(&self, node: Node<'_, M>, view: View) -> Result<(), Error> {
        let (pool, is_anchor) = (&self.pool, node.level == ANCHOR);
        let slots = if is_anchor { ANCHOR_SLOTS } else { self.slots };
        let is_possible = |slot: u64| {
            let Span { start, end } = node.span(slot);
            let is_used = slot < node.used || start == 0 || pool.is_void(LogEpoch(start));
            is_used && start.max(end) <= self.open.0
        };
        let is_node = |child: Offset| {
            let room = pool.memory().bytes().checked_sub(child.get());
            let fits = child.get().is_multiple_of(LINE_BYTES)
                && room.is_some_and(|room| room >= bytes_of(1, self.slots));
            fits && (is_anchor || self.node(child).level + 1 == node.level)
        };
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
        let is_sound = (0..slots).all(is_possible)
            && (node.seen(view)).all(|found| node.is_leaf() || is_node(found.entry.child))
            && (node.seen(view)).all(|found| is_anchor || is_found(found));
        let at = node.at;
        is_sound.then_some(()).ok_or(Error::DamagedNode { at })
    }

    /// A snapshot that was not gone through.
    fn next_view(&self, done: &[View], otherwise: Stage) -> Stage {
        let views = self.retained.iter().map(|epoch| View(*epoch));
        let next = views.into_iter().find(|view| !done.contains(view));
        next.map_or(otherwise, |view| Stage::Nodes(view, Vec::new()))
    }

    /// Lets the pool forget what was rubbed out, while nothing is there but what is committed (CG2
    /// all-views), unless readers are pinned: then after a later commit.
    pub(crate) fn end_cleaning(&mut self) -> Result<(), Error> {
        let is_done = |cleaning: &Cleaning| {
            let next = self.next_view(&cleaning.done, Stage::Done);
            matches!((&cleaning.stage, next), (Stage::Done, Stage::Done))
        };
        if !self.cleaning.as_ref().is_some_and(is_done) || !self.shared.try_close() {
            return Ok(());
        }
        let ranges = self.cleaning.take().map(|cleaning| cleaning.ranges);
        let forgotten = self.pool.forget_voids(&ranges.unwrap_or_default());
        self.shared.reopen();
        Ok(forgotten?)
    }
}
