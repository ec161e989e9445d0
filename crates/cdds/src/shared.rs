//! What readers have of a tree: the way down, and whose memory waits for them.

use std::sync::Arc;

use pando_engine::limits::SESSIONS_MAX;
use pando_pmem::{LINE_BYTES, Offset, Pmem, Pool};
use pando_sync::LogEpoch;
use pando_sync::epoch::Collector;
use pando_sync::shim::{AtomicBool, AtomicU64, Ordering, Spin, fence};

use crate::canary::{self, Fault};
use crate::change::Step;
use crate::frame::{Frame, Frames, Way};
use crate::latch::{Latches, Watch};
use crate::limits::{HELD_MAX, SNAPSHOTS_MAX};
use crate::node::{ANCHOR, Entry, FirstBytes, Found, Node, Probe, View, bytes_of, fingerprint_of};
use crate::record::Record;
use crate::tree::{ANCHOR_SLOTS, Error};

/// What readers share with the writer.
pub(crate) struct Shared<M> {
    pub(crate) pool: Arc<Pool<M>>,
    /// Slots of a node.
    pub(crate) slots: u64,
    pub(crate) anchor: Offset,
    pub(crate) latches: Latches,
    pub(crate) frames: Frames,
    /// Pins of readers; what is freed is counted by epochs of the pool (CT3 horizon).
    pub(crate) collector: Arc<Collector<()>>,
    /// Epochs of snapshots; 0: none. Each stays in its place.
    retained: [AtomicU64; SNAPSHOTS_MAX + HELD_MAX],
    /// Whether a rollback keeps readers out (CL5 closed).
    closed: AtomicBool,
}

/// Why a way ends before its leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Astray {
    /// Somebody changed what was being read: the read begins anew.
    Again,
    /// What is found there is no node of the level below, or lies beyond the pool.
    Damaged(Offset),
}

/// How somebody looks at the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) view: View,
    /// Whether somebody may change what it sees meanwhile.
    pub(crate) beside: bool,
    /// Whether the snapshot whose view it is may be released meanwhile.
    pub(crate) passing: bool,
    /// Whether it is the present, of which there are frames.
    pub(crate) framed: bool,
}

impl Look {
    /// Of somebody whom nobody disturbs: the writer.
    pub(crate) fn alone(view: View) -> Self {
        Self {
            view,
            beside: false,
            passing: false,
            framed: false,
        }
    }

    /// The same at the present.
    pub(crate) const ALONE: Self = Self {
        view: View::PRESENT,
        beside: false,
        passing: false,
        framed: true,
    };

    /// At a snapshot (CL4 past-stands).
    pub(crate) fn past(view: View) -> Self {
        Self {
            passing: true,
            ..Self::alone(view)
        }
    }

    /// At the present, beside the writer.
    pub(crate) const PRESENT: Self = Self {
        view: View::PRESENT,
        beside: true,
        passing: false,
        framed: true,
    };
}

impl<M: Pmem> Shared<M> {
    pub(crate) fn new(pool: Arc<Pool<M>>, slots: u64, anchor: Offset) -> Self {
        Self {
            frames: Frames::new(pool.memory().bytes(), slots),
            pool,
            slots,
            anchor,
            latches: Latches::new(),
            // Nothing is retired by bytes.
            collector: Collector::new(SESSIONS_MAX, usize::MAX),
            retained: std::array::from_fn(|_| AtomicU64::new(0)),
            closed: AtomicBool::new(false),
        }
    }

    /// Says which snapshots there are.
    pub(crate) fn set_retained(&self, epochs: &[LogEpoch]) {
        let wanted = |epoch: u64| epochs.iter().any(|wanted| wanted.0 == epoch);
        let load = |place: &AtomicU64| place.load(Ordering::Relaxed);
        for place in &self.retained {
            if !wanted(load(place)) {
                place.store(0, Ordering::Relaxed);
            }
        }
        for epoch in epochs {
            if self.retained.iter().any(|place| load(place) == epoch.0) {
                continue;
            }
            let free = self.retained.iter().find(|place| load(place) == 0);
            // Release: pairs with `view_of`; what the snapshot sees is there.
            free.expect("a place for each snapshot")
                .store(epoch.0, Ordering::Release);
        }
    }

    /// After a read at a snapshot, whether it was there all the time: what it alone saw may have
    /// been used again. What was loaded before was loaded with `Acquire`.
    pub(crate) fn check_kept(&self, look: Look) -> Result<(), Error> {
        if look.passing {
            self.view_of(look.view.0)?;
        }
        Ok(())
    }

    /// The view of a snapshot that is there.
    pub(crate) fn view_of(&self, epoch: LogEpoch) -> Result<View, Error> {
        let is_there = |place: &AtomicU64| place.load(Ordering::Acquire) == epoch.0;
        let found = epoch != LogEpoch::NONE && self.retained.iter().any(is_there);
        found
            .then_some(View(epoch))
            .ok_or(Error::NoSnapshot { epoch })
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: the fence of the pin before it pairs with the one in `close`.
        self.closed.load(Ordering::Relaxed)
    }

    /// Waits until no reader is pinned, and lets none in until [`Self::reopen`] (CL5 closed).
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // SeqCst: a reader's pin is seen below, or it sees that the tree is closed.
        fence(Ordering::SeqCst);
        let stamp = self.collector.stamp();
        let mut spin = Spin::new();
        while !self.collector.has_passed(stamp) {
            if !self.collector.try_advance() {
                spin.wait();
            }
        }
    }

    /// The same without waiting for long; whether it is closed.
    pub(crate) fn try_close(&self) -> bool {
        const TRIES: usize = 4;
        self.closed.store(true, Ordering::Relaxed);
        // SeqCst: as in `close`.
        fence(Ordering::SeqCst);
        let stamp = self.collector.stamp();
        for _ in 0..TRIES {
            self.collector.try_advance();
            if self.collector.has_passed(stamp) {
                return true;
            }
        }
        self.reopen();
        false
    }

    pub(crate) fn reopen(&self) {
        // Release: pairs with the acquiring loads of whatever a reader follows.
        self.closed.store(false, Ordering::Release);
    }

    #[inline]
    pub(crate) fn watch(&self, at: Offset, look: Look) -> Watch<'_> {
        if look.beside {
            self.latches.watch(at)
        } else {
            Watch::STILL
        }
    }

    /// The child at `at` of a node of this level, once nobody has changed that; none if it cannot
    /// be one, and must not be followed.
    #[inline]
    pub(crate) fn child_of<'w>(
        &'w self,
        level: u64,
        at: Offset,
        watch: Watch<'w>,
    ) -> Option<Node<'w, M>> {
        if !self.may_be_node(at) {
            return None;
        }
        let node = Node::watched(&self.pool, at, self.slots, watch);
        let end = at.get() + bytes_of(node.level, self.slots);
        (is_below(node.level, level) && end <= self.pool.memory().bytes()).then_some(node)
    }

    /// Whether a leaf lies there, for all that the position tells.
    #[inline]
    pub(crate) fn may_be_node(&self, at: Offset) -> bool {
        let room = self.pool.memory().bytes().checked_sub(at.get());
        let fits = room.is_some_and(|room| room >= bytes_of(0, self.slots));
        fits && at.get().is_multiple_of(LINE_BYTES) && !at.is_none()
    }

    /// What a way that has gone astray comes to, if it is not to begin anew.
    pub(crate) fn astray(&self, astray: Astray, look: Look) -> Result<(), Error> {
        match astray {
            Astray::Again => Ok(()),
            Astray::Damaged(at) => {
                // Of a snapshot that is gone anything may be left.
                self.check_kept(look)?;
                Err(Error::DamagedNode { at })
            }
        }
    }

    /// The leaf that `choose` leads to; none in an empty tree.
    pub(crate) fn descend(
        &self,
        look: Look,
        mut choose: impl FnMut(Node<'_, M>) -> Result<Option<Found>, Astray>,
    ) -> Result<Option<Node<'_, M>>, Astray> {
        let watch = self.watch(self.anchor, look);
        let mut node = Node::watched(&self.pool, self.anchor, ANCHOR_SLOTS, watch);
        let mut found = node.seen(look.view).next();
        loop {
            let Some(Found { slot, entry }) = found else {
                return node.holds().then_some(None).ok_or(Astray::Again);
            };
            if !node.is_right(slot) {
                return Err(Astray::Damaged(node.at));
            }
            // CL3 coupled.
            let watch = self.watch(entry.child, look);
            if !node.holds() && !canary::has(Fault::Uncoupled) {
                return Err(Astray::Again);
            }
            let child = self.child_of(node.level, entry.child, watch);
            node = child.ok_or(Astray::Damaged(entry.child))?;
            if node.is_leaf() {
                return Ok(Some(node));
            }
            found = choose(node)?;
        }
    }

    /// The leaf of a key; none in an empty tree. Shows every step on the way to `passed`, from the
    /// anchor on: a way that somebody disturbs begins there again.
    pub(crate) fn leaf_of(
        &self,
        key: &[u8],
        look: Look,
        mut passed: impl FnMut(Step),
    ) -> Result<Option<Node<'_, M>>, Error> {
        loop {
            match self.way_to(key, look, &mut passed) {
                Ok(leaf) => return Ok(leaf),
                Err(astray) => self.astray(astray, look)?,
            }
        }
    }

    fn way_to(
        &self,
        key: &[u8],
        look: Look,
        passed: &mut impl FnMut(Step),
    ) -> Result<Option<Node<'_, M>>, Astray> {
        let probe = Probe::new(key);
        // Nothing is above the anchor.
        let (mut above, mut at, mut may_have_frame) = (Watch::STILL, self.anchor, look.framed);
        let mut level = None;
        loop {
            // CL3 coupled: of both kinds of watches.
            let frame = may_have_frame.then(|| self.frames.of(at)).flatten();
            if let Some(frame) = frame {
                if !above.holds() && !canary::has(Fault::Uncoupled) {
                    return Err(Astray::Again);
                }
                let way = self
                    .in_frame(&frame, (key, &probe.first))
                    .ok_or(Astray::Again)?;
                if level.is_some_and(|above| !is_below(frame.level(), above)) {
                    let holds = frame.watch.holds();
                    return Err(if holds {
                        Astray::Damaged(at)
                    } else {
                        Astray::Again
                    });
                }
                passed(Step::new(at, way.slot));
                may_have_frame = frame.level() > 1;
                (level, above, at) = (Some(frame.level()), frame.watch, way.child);
                continue;
            }
            let watch = self.watch(at, look);
            if !above.holds() && !canary::has(Fault::Uncoupled) {
                return Err(Astray::Again);
            }
            let node = match level {
                None => Node::watched(&self.pool, at, ANCHOR_SLOTS, watch),
                Some(level) => self.child_of(level, at, watch).ok_or(Astray::Damaged(at))?,
            };
            if node.is_leaf() {
                passed(Step::new(at, 0));
                return Ok(Some(node));
            }
            let found = if level.is_none() {
                node.seen(look.view).next()
            } else {
                node.child_for(&probe, look.view)
            };
            let Some(found) = found else {
                return node.holds().then_some(None).ok_or(Astray::Again);
            };
            if !node.is_right(found.slot) {
                return Err(Astray::Damaged(at));
            }
            if look.framed {
                self.frames.fill(node, look.view);
            }
            passed(Step::new(at, found.slot));
            may_have_frame = look.framed && node.level > 1;
            (level, above, at) = (Some(node.level), watch, found.entry.child);
        }
    }

    /// The child that a frame leads a key to. The node itself is not touched, but where the frame
    /// does not decide.
    #[inline]
    pub(crate) fn in_frame(
        &self,
        frame: &Frame<'_>,
        (key, first): (&[u8], &FirstBytes),
    ) -> Option<Way> {
        frame.find((key, first), |slot| {
            let node = Node::watched(&self.pool, frame.node(), self.slots, frame.watch);
            node.key_of(slot)
        })
    }

    /// The record of a key, if it is whole.
    pub(crate) fn record_of(&self, key: &[u8], look: Look) -> Result<Option<Record<'_>>, Error> {
        loop {
            let leaf = self.leaf_of(key, look, |_| ())?;
            if let Some(result) = self.record_in(leaf, key, fingerprint_of(key), look) {
                return result;
            }
        }
    }

    /// The same in its leaf; none if somebody disturbs that.
    pub(crate) fn record_in<'n>(
        &self,
        leaf: Option<Node<'n, M>>,
        key: &[u8],
        fingerprint: u8,
        look: Look,
    ) -> Option<Result<Option<Record<'n>>, Error>> {
        let found = leaf.and_then(|leaf| leaf.find_with(key, fingerprint, look.view));
        if !leaf.is_none_or(Node::holds) {
            return None;
        }
        if let Err(error) = self.check_kept(look) {
            return Some(Err(error));
        }
        Some(found.map(|(_, record)| whole(record)).transpose())
    }

    /// The record of an entry, if it is whole.
    pub(crate) fn record(&self, entry: Entry) -> Result<Record<'_>, Error> {
        self.record_at(entry.record)
    }

    /// The record at a place, if it is whole.
    pub(crate) fn record_at(&self, at: Offset) -> Result<Record<'_>, Error> {
        whole(Record::at(&self.pool, at).ok_or(Error::Damaged { at })?)
    }
}

/// Whether a node of this level may be the child of one of the other.
#[inline]
fn is_below(level: u64, above: u64) -> bool {
    if above == ANCHOR {
        level < ANCHOR
    } else {
        level + 1 == above
    }
}

/// A record that is as it was written.
#[inline]
pub(crate) fn whole(record: Record<'_>) -> Result<Record<'_>, Error> {
    record.prefetch();
    let is_whole = record.is_whole();
    is_whole.then_some(record).ok_or_else(|| record.damage())
}
