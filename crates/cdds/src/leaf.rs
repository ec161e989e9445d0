//! Changes of one leaf, beside those of others: what most writers need of the tree.
//!
//! A writer that has the tree shared with others latches the leaf of its key, looks, decides, and
//! changes the leaf in place. A leaf without a free slot is copied into new ones beside other
//! writers, of which one at a time changes nodes above. What needs more than that (a leaf with too
//! few entries, a pool without a free block in sight, the first leaf) is left to whoever has the
//! tree for itself: `change.rs`.
//!
//! | state | writer | readers |
//! |---|---|---|
//! | the open epoch, what is retained | who has the tree for itself | all |
//! | nodes above the leaves, marked (CL1 marked-before) | who has the tree for itself, or shared and the lock `inner` | all |
//! | a leaf, under its latch (CL1 marked-before) | who has the latch, and the tree shared or for itself | all |
//! | blocks | the allocator's own locks, innermost | |
//!
//! - **CX1 epoch-stands** While anybody has the tree shared, no epoch is committed and nothing is
//!   retained or released. So the epochs by which a slot is judged stand, and a block that is freed
//!   is handed out to nobody (PA3 horizon): a way down needs watches, as a reader's, but no pin.
//! - **CX2 leaf-latched** Who has the tree shared judges and changes a leaf only while it has the
//!   leaf's latch. Two of them never take one slot, and nobody ends what somebody else has ended.
//! - **CX3 one-waits** It waits for a latch, or for a watch, only while it has no latch; further
//!   ones it tries for, and gives up. It waits for `inner` with latches, and who has that waits for
//!   none. So there is no circle of waits. Who has the tree for itself finds every latch free.
//! - **CX4 fenced** What a change has flushed is fenced before its latch is released: the commit,
//!   which another thread may make, has only its own fence (PM2 fence-orders).
//! - **CX5 shown-between** Readers wait for the latch only while it is marked: from the first store
//!   to the leaf to the last one. Who holds it may look at the tree as a reader before and after.
//! - **CX6 begun-by-any** The first change of an epoch may be one of a leaf, if the epoch is marked
//!   already (PL1 marked-first): nothing but the flag that it has begun is stored before it.
//! - **CX7 gone-counted** A leaf leaves a shared tree under its latch, which is then marked as a
//!   split, before the node above changes. Who found the leaf, and then has its latch, begins anew
//!   if a split was counted meanwhile: else the leaf is still the key's.
//! - **CX8 born-latched** A leaf that comes into a shared tree is latched before anything refers to
//!   it, until the change is over, its hook included: changes of a key are told in their order.
//! - **CX9 inner-by-one** With the tree shared, nodes above the leaves are changed only under
//!   `inner`. So who has that needs no watch of them, and what it finds on its way stands.

use pando_pmem::{Offset, Pmem, Purpose, Side, Writes};
use pando_sync::LogEpoch;

use crate::ahead::Spot;
use crate::alike::prefetch_slots;
use crate::change::Edit;
use crate::latch::{Held, Latched};
use crate::node::{Entry, Found, Node, View, fingerprint_of};
use crate::record::{Pair, Record};
use crate::shared::{Look, whole};
use crate::tree::{Error, Tree};

/// Whether a leaf could be changed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Done {
    Yes,
    /// Nothing has changed: it takes the tree for itself.
    NeedsTree,
}

/// The leaf where a key is or would be, latched (CX2 leaf-latched).
pub(crate) struct Leaf<'t, M> {
    tree: &'t Tree<M>,
    node: Node<'t, M>,
    latch: Latched<'t>,
    /// Those of the leaves that have come in its place, and of what was changed above them.
    held: Option<Box<Held<'t>>>,
    /// That of the key.
    fingerprint: u8,
    /// Whether a change was expected ([`Tree::expect_change`]).
    is_expected: bool,
    /// Where the key is, and its record as it was found.
    found: Option<(Found, Record<'t>)>,
}

impl<M: Pmem> Tree<M> {
    /// Whether the open epoch has begun or may (CX6 begun-by-any), and is at least this one, so
    /// that leaves can be changed.
    pub(crate) fn is_open_at(&self, epoch: LogEpoch) -> bool {
        epoch <= self.open && self.pool.is_marked(self.open)
    }

    /// Asks for what a change of a key whose way was found ahead will need beside what a look-up
    /// needs: where its record is freed, its latch, and further slots of its leaf.
    #[inline]
    pub(crate) fn expect_change(&self, spot: &Spot) {
        if !spot.record.is_none() {
            self.allocator.expect_free(spot.record);
        }
        self.shared.latches.expect(spot.leaf);
        prefetch_slots(&self.pool, (spot.leaf, self.slots), spot.fingerprint);
    }

    /// Latches the leaf of a key, where its spot says if it has one, and looks for it; none in an
    /// empty tree. The caller has no other latch (CX3 one-waits).
    pub(crate) fn latch(
        &self,
        key: &[u8],
        spot: Option<&Spot>,
    ) -> Result<Option<Leaf<'_, M>>, Error> {
        if let Some(leaf) = spot.and_then(|spot| self.latch_as_judged(key, spot)) {
            return Ok(Some(leaf));
        }
        let look = Look::PRESENT;
        let mut ahead = spot.and_then(|spot| self.shared.leaf_at(spot, look));
        loop {
            let found = match ahead.take() {
                Some(leaf) => Some(leaf),
                None => self.shared.leaf_of(key, look, |_| ())?,
            };
            let Some(node) = found else {
                return Ok(None);
            };
            let latch = self.shared.latches.latch(node.at);
            if node.stays() {
                return Ok(Some(self.latched(node.still(), latch, key, spot)));
            }
        }
    }

    /// The same of a leaf that nobody has changed since its spot was found: neither is read again.
    #[inline]
    fn latch_as_judged(&self, key: &[u8], spot: &Spot) -> Option<Leaf<'_, M>> {
        if spot.record.is_none() {
            return None;
        }
        let latch = self.shared.latches.latch(spot.leaf);
        let (node, record) = self.shared.as_judged(|own| own == key, spot)?;
        let entry = Entry::of_key(key, spot.record);
        let slot = spot.slot;
        Some(Leaf {
            tree: self,
            node,
            latch,
            held: None,
            fingerprint: spot.fingerprint,
            is_expected: true,
            found: Some((Found { slot, entry }, record)),
        })
    }

    #[inline]
    fn latched<'t>(
        &'t self,
        node: Node<'t, M>,
        latch: Latched<'t>,
        key: &[u8],
        spot: Option<&Spot>,
    ) -> Leaf<'t, M> {
        let fingerprint = spot.map_or_else(|| fingerprint_of(key), |spot| spot.fingerprint);
        Leaf {
            tree: self,
            node,
            fingerprint,
            is_expected: spot.is_some(),
            found: node.find_with(key, fingerprint, View::PRESENT),
            latch,
            held: None,
        }
    }
}

impl<'t, M: Pmem> Leaf<'t, M> {
    /// The key's record, if it is there and whole.
    pub(crate) fn record(&self) -> Result<Option<Record<'t>>, Error> {
        self.found.map(|(_, record)| whole(record)).transpose()
    }

    /// Puts a pair with the key that the leaf was latched for. Its record is taken from this side.
    pub(crate) fn put(&mut self, mut pair: Pair<'_>, mark: u8, side: Side) -> Result<Done, Error> {
        let tree = self.tree;
        if tree.check_lengths(pair.key(), pair.value()).is_err() {
            // As where there is no room.
            return Ok(Done::NeedsTree);
        }
        let there = self.found.map(|(found, _)| found);
        let began_now = |found: &Found| self.node.span(found.slot).start == tree.open.0;
        let replaced = there.filter(began_now);
        let slot = match replaced {
            Some(found) => Some(found.slot),
            None => self.free_slot(),
        };
        let Some(slot) = slot else {
            return self.put_in_copy(pair, mark, side);
        };
        if let Some(found) = there.filter(|_| !self.is_expected) {
            tree.allocator.expect_free(found.entry.record);
        }
        tree.note_begun();
        let _window = Writes::new(tree.pool.memory());
        let take = |bytes| {
            tree.allocator
                .allocate_for((Purpose::Growth, side), bytes, tree.open)
        };
        let made = pair.make(&tree.pool, take, mark);
        let Ok(record) = made else {
            // Where there is no room, it takes more to say so.
            return Ok(Done::NeedsTree);
        };
        let old = there.map(|found| found.entry.record);
        let begun = Entry::of_key(pair.key(), record);
        self.latch.mark();
        match replaced {
            Some(_) => self.node.replace(slot, record),
            None => (self.node).begin_key(slot, begun, self.fingerprint, tree.open),
        }
        if let Some(found) = there.filter(|_| replaced.is_none()) {
            self.node.end(found.slot, tree.open);
        }
        let record = Record::at(&tree.pool, record);
        self.found = record.map(|record| (Found { slot, entry: begun }, record));
        self.end_change(old, side);
        Ok(Done::Yes)
    }

    /// The same where the leaf has no free slot: it is copied, with what is put.
    fn put_in_copy(&mut self, mut pair: Pair<'_>, mark: u8, side: Side) -> Result<Done, Error> {
        let tree = self.tree;
        tree.note_begun();
        let _window = Writes::new(tree.pool.memory());
        let take = |bytes| {
            tree.allocator
                .allocate_for((Purpose::Growth, side), bytes, tree.open)
        };
        let Ok(record) = pair.make(&tree.pool, take, mark) else {
            return Ok(Done::NeedsTree);
        };
        let mut work = tree.work();
        work.side = side;
        work.taken.push(record);
        // CX7 gone-counted.
        work.held
            .take_over(std::mem::replace(&mut self.latch, Latched::NONE));
        let mut edit = Edit::beginning(Entry::of_key(pair.key(), record));
        if let Some((found, _)) = self.found.take() {
            work.replaced = Some(found.entry.record);
            edit.ends.push(found.slot);
        }
        let copied = tree.copy_beside((self.node, pair.key()), &edit, &mut work);
        let held = std::mem::replace(&mut work.held, tree.work().held);
        if matches!(copied, Ok(false) | Err(Error::Full(_))) {
            tree.free(work.side, &work.taken);
            return Ok(Done::NeedsTree);
        }
        self.held = Some(Box::new(held));
        tree.finish(copied.map(drop), work)?;
        // CX4 fenced.
        tree.fence();
        Ok(Done::Yes)
    }

    /// Removes the key that the leaf was latched for, and that is there. Its record is freed at
    /// this side.
    pub(crate) fn remove(&mut self, side: Side) -> Done {
        let tree = self.tree;
        let Some((found, _)) = self.found else {
            return Done::Yes;
        };
        let least = tree.least(0);
        let left = self.node.seen(tree.present()).take(least + 1).count() - 1;
        // It may change beside us, but not to or from a leaf that is latched; and a slot of the
        // anchor is never seen with what it said before (CL4 past-stands).
        let root = tree.root_node(tree.present());
        if left < least && root.is_none_or(|root| root.at != self.node.at) {
            return Done::NeedsTree;
        }
        tree.note_begun();
        let _window = Writes::new(tree.pool.memory());
        tree.allocator.expect_free(found.entry.record);
        self.latch.mark();
        self.node.end(found.slot, tree.open);
        self.found = None;
        self.end_change(Some(found.entry.record), side);
        Done::Yes
    }

    /// The slot that a put of a key which did not begin in the open epoch takes.
    fn free_slot(&self) -> Option<u64> {
        let home = self.node.home_of(self.fingerprint);
        let needs = self.tree.needs();
        let plain = self.node.plainly_free_slot(home, &needs);
        plain.or_else(|| self.node.free_slots(home, &needs).next())
    }

    /// Shows what was changed to readers, and frees what nobody refers to any more.
    fn end_change(&mut self, freed: Option<Offset>, side: Side) {
        self.latch.publish();
        if let Some(at) = freed {
            self.tree.allocator.free_at(side, at, self.tree.open);
        }
        // CX4 fenced.
        self.tree.fence();
    }
}
