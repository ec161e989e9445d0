//! Leaves that are split while others are inside, and the nodes above that hear of it later.
//!
//! Follows Lehman and Yao's B-link trees, "Efficient Locking for Concurrent Operations on B-Trees"
//! (1981), at the leaves and for a while: the upper half of a leaf goes to a spare one, under the
//! leaf's latch, and a link leads there. Minuet's paper splits in a transaction, as whoever is
//! alone here does. That kept everybody out once in some forty new keys.
//!
//! ```text
//! spare ── make_room ──> linked from its left neighbour ── post_splits ──> child of a node
//!   ^ restock                 (sessions inside)                 (whoever is alone)
//! ```
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `Splits::spares`, `Splits::split` | sessions inside, with its mutex; whoever is alone | the same |
//! | a spare leaf | who has taken it from `spares`, under its latch | nobody, before a link leads to it |
//!
//! The latch of a spare leaf is taken while that of another is held, whatever their order: nobody
//! else can find it, so it is free (SL2 latches-in-order).

use std::sync::PoisonError;

use pando_memnode::{Address, Latch, Memnode};
use pando_sync::shim::lock;

use super::State;
use super::in_leaf::BeyondLeaf;
use super::walk::Target;
use crate::branch::BranchId;
use crate::fault::{Fault, planted};
use crate::limits::{SLOTS_PER_SPARE, SPARES_MAX};
use crate::page::{Cell, CellBody, Page, PageEdit};
use crate::tree::{add_leaf, spare_leaves};

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Splits {
    /// Leaves that no version has.
    spares: Vec<Address>,
    /// Leaves that have a link, or one to their left has: a key of each, and the branch.
    split: Vec<(BranchId, Vec<u8>)>,
}

impl Splits {
    /// How many spare leaves there are.
    #[cfg(test)]
    pub(super) fn spares(&self) -> usize {
        self.spares.len()
    }

    /// How many leaves were split since somebody was alone, each counted once.
    #[cfg(test)]
    pub(super) fn split(&self) -> usize {
        self.split.len()
    }
}

impl State {
    /// Makes room for `needed` bytes in a leaf of a branch's tip, or splits it
    /// (ME6 links-lead-on).
    pub(super) fn make_room(
        &self,
        branch: BranchId,
        latch: &mut Latch<'_>,
        needed: usize,
    ) -> Result<(), BeyondLeaf> {
        let page = Page::of_slot(&latch[..]);
        let mut packed = vec![0; page.bytes_len()];
        if page.spare() >= needed {
            page.pack(0..page.count(), (page.low(), page.high()), &mut packed);
            latch.edit().copy_from_slice(&packed);
            return Ok(());
        }
        if page.count() < 2 || !page.is_plain() {
            return Err(BeyondLeaf);
        }
        let spare = lock(&self.splits).spares.pop().ok_or(BeyondLeaf)?;
        let (middle, parting) = page.middle();
        {
            let mut upper = self.latch(spare);
            let bytes = upper.edit();
            page.pack(middle..page.count(), (&parting, page.high()), bytes);
            PageEdit::in_place(bytes).set_generation(spare.generation);
        }
        page.pack(0..middle, (page.low(), Some(&parting)), &mut packed);
        PageEdit::in_place(&mut packed[..]).set_link(Some(spare));
        // What leads to one that has a link finds all the others.
        let split = page.link().is_none().then(|| page.low().to_vec());
        latch.edit().copy_from_slice(&packed);
        if let Some(low) = split {
            lock(&self.splits).split.push((branch, low));
        }
        Ok(())
    }

    /// Tells nodes of the leaves below them that were split off
    /// (ME7 links-for-insiders).
    pub(super) fn post_splits(&mut self) {
        let split = std::mem::take(&mut self.splits_alone().split);
        if planted(Fault::LinkUnposted) {
            return;
        }
        for (branch, low) in split {
            let tip = self.tip_of(branch).expect("a branch goes by one alone");
            // No fans: what follows changes the nodes above.
            let mut leaf = self.descend(tip, Target::At(&low)).1;
            loop {
                let link = self.page(leaf).link();
                let Some(link) = link else { break };
                self.post(branch, leaf, link);
                leaf = link;
            }
        }
    }

    /// Tells the node above of the leaf to which another one's link leads.
    fn post(&mut self, branch: BranchId, leaf: Address, link: Address) {
        let before = self.page(leaf).low().to_vec();
        let low = self.page(link).low().to_vec();
        let memnode = self.database.memnodes_mut().memnode_mut(leaf.memnode);
        memnode.edit(leaf.slot, |bytes| PageEdit::in_place(bytes).set_link(None));
        self.collecting.note_move(false);
        let (above, index) = self.above(branch, &before);
        debug_assert_eq!(
            Some(self.page(above).created()),
            self.tip_of(branch).map(|tip| tip.view.snapshot()),
            "the leaf was, and its address had to be learnt then"
        );
        let cell = Cell {
            key: low,
            body: CellBody::Child(link),
        };
        let is_there = self.database.edit_node(above, |bytes| {
            PageEdit::in_place(bytes).insert(index + 1, &cell).is_ok()
        });
        if !is_there {
            self.run(|transaction| {
                let tip = transaction.tip_of(branch)?;
                add_leaf(transaction, tip, &before, (cell.key.clone(), link))
            });
        }
    }

    /// The node above the leaf of a key, and which child of that it is.
    fn above(&self, branch: BranchId, key: &[u8]) -> (Address, usize) {
        let tip = self.tip_of(branch).expect("it is there");
        let mut address = self.arrive(tip, tip.view.root);
        loop {
            let page = self.page(address);
            let index = page.child_for(key);
            if page.height() == 1 {
                return (address, index);
            }
            address = self.arrive(tip, page.child(index));
        }
    }

    /// Allocates spare leaves, if there are none: some for each that there is.
    pub(super) fn restock(&mut self) {
        if !self.splits_alone().spares.is_empty() {
            return;
        }
        let memnodes = self.database.memnodes().memnodes().iter();
        let slots: usize = memnodes.map(Memnode::slots_seen).sum();
        let count = (slots / SLOTS_PER_SPARE).clamp(1, SPARES_MAX);
        self.splits_alone().spares = self.run(|transaction| spare_leaves(transaction, count));
    }

    fn splits_alone(&mut self) -> &mut Splits {
        self.splits
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
