//! Pages of a version that was kept, and that a tip changes for the first time: it gets copies of
//! its own, from the leaf up to what is its own already.
//!
//! Minuet's paper copies in a transaction (§4.1), as a coordinator does (`tree/write.rs`). Whoever
//! is alone is in one turn with all memnodes (ME1 turns), so nothing is to be compared, locked or
//! noted for a retry; what is in the pages in the end is the same. A merge of two branches changes
//! one key in each of very many leaves, and copies an inner node for each of them, too.
//!
//! | page | what happens to it |
//! |---|---|
//! | the version's | gets a note of the tip (MB3 old-nodes-say-so), within bounds (MF1 copies-are-bounded) |
//! | a discretionary copy | is made where the notes would be too many (MF2 forwarders-lead-on) |
//! | the tip's copy | is new (MB2 made-at-the-tip) |
//! | the tip's node above | its child is the copy from now on, in its fan, too |
//!
//! - **MJ1 partings-stay** How the notes of a page are kept few ([`Kept`]) follows from where it
//!   was made, the versions to which it was copied, the tip last, and which of their lines are
//!   there. What was right once while there was the tip is right later: where two versions part
//!   does not change, no line comes back, and a note of one that went meanwhile is only one too
//!   many. So it is found out once for all pages that have the same notes.
//!
//! Deliberately absent: roots, which each version has from its beginning.

use std::collections::BTreeMap;

use pando_memnode::{Address, Bytes};

use super::State;
use super::sight::Seat;
use crate::SnapshotId;
use crate::fault::{Fault, planted};
use crate::limits::{DESCENDANTS_MIN, PARTINGS_MAX};
use crate::page::{Copied, PageEdit, set_child};
use crate::tree::Kept;

/// How notes are kept few, by where a page was made and the versions to which it was copied (MJ1).
pub(super) type Partings = BTreeMap<(SnapshotId, Vec<SnapshotId>), Kept>;

/// A node that is to be copied.
#[derive(Clone, Copy, Debug)]
struct Old {
    address: Address,
    /// Where its parent points to: the node, or one of which it is a discretionary copy.
    entry: Address,
    /// The tip's node above it, and which child of that it is.
    above: (Address, usize),
}

impl State {
    /// Makes the leaf of a key, and the nodes above, a tip's own; returns the leaf. None if a
    /// memnode is full.
    pub(super) fn own_leaf(&mut self, seat: Seat, key: &[u8]) -> Option<Address> {
        let version = self.tip_at(seat).view.snapshot();
        let mut node = self.arrive(self.tip_at(seat), self.tip_at(seat).view.root);
        let mut copies = false;
        loop {
            let page = self.page(node);
            debug_assert_eq!(page.created(), version, "the tip's own (MB2)");
            if page.height() == 0 {
                break;
            }
            let index = page.child_for(key);
            let entry = page.child(index);
            drop(page);
            let address = self.arrive(self.tip_at(seat), entry);
            node = if self.page(address).created() == version {
                address
            } else {
                copies = true;
                let above = (node, index);
                let old = Old {
                    address,
                    entry,
                    above,
                };
                self.copy_node(old, version)?
            };
        }
        if copies {
            self.collecting.note_move(true);
        }
        Some(node)
    }

    /// Gives the tip of this version a copy of a node; returns it.
    fn copy_node(&mut self, old: Old, version: SnapshotId) -> Option<Address> {
        let copy = self.add_copy(old.address, |page, address| {
            page.become_copy(address.generation, version);
        })?;
        if !planted(Fault::CopyUnnoted) {
            self.note_copied(old, version)?;
        }
        let memnode = self.database.memnodes().memnode(copy.memnode);
        let place = memnode.content_place(copy.slot);
        let (above, index) = old.above;
        self.database.edit_with_fan(above, |page, fan| {
            PageEdit::in_place(page).set_child(index, copy);
            if let Some(fan) = fan.filter(|_| !planted(Fault::FanStale)) {
                set_child(fan, index, copy, place);
            }
        });
        Some(copy)
    }

    /// Adds a page that is like another one, on the same memnode, and changed by `change`.
    fn add_copy(
        &mut self,
        of: Address,
        change: impl Fn(&mut PageEdit<&mut [u8]>, Address),
    ) -> Option<Address> {
        let bytes = self.see(of).state().bytes.clone();
        self.database.add_page(of.memnode, |address| {
            let mut copy = Bytes::from(&bytes[..]);
            let page = Bytes::make_mut(&mut copy);
            change(&mut PageEdit::in_place(page), address);
            copy
        })
    }

    /// Notes in an old node that it was copied to this version, as a transaction does
    /// (`tree::discretion`).
    fn note_copied(&mut self, old: Old, version: SnapshotId) -> Option<()> {
        let page = self.page(old.address);
        debug_assert!(page.link().is_none(), "links are posted before (ME7)");
        let created = page.created();
        let mut copies: Vec<_> = page.copies().collect();
        drop(page);
        let copied = |at, to| Copied { at, to };
        copies.push(copied(version, None));
        let mut far = None;
        if copies.len() > usize::from(DESCENDANTS_MIN) {
            let kept = self.kept(created, &copies);
            let below = kept.below(&copies);
            copies = kept.stay(&copies);
            if let Some(at) = kept.further {
                let further = self.add_copy(old.address, |page, address| {
                    page.become_discretionary(address.generation, at);
                    page.set_copies(&below);
                })?;
                let to = (further.slot, further.generation);
                let further = copied(at, (!planted(Fault::Forwarding)).then_some(to));
                copies.push(further);
                far = Some(further);
            }
        }
        self.database.edit_with_fan(old.address, |page, _| {
            PageEdit::in_place(page).set_copies(&copies);
        });
        if let Some(far) = far.filter(|_| old.entry != old.address) {
            self.database.edit_with_fan(old.entry, |page, _| {
                PageEdit::in_place(page).set_far(far);
            });
        }
        Some(())
    }

    fn kept(&mut self, created: SnapshotId, copies: &[Copied]) -> Kept {
        let versions: Vec<_> = copies.iter().map(|copied| copied.at).collect();
        let of = (created, versions);
        if let Some(kept) = self.partings.get(&of) {
            return kept.clone();
        }
        let kept = self.run(|transaction| Kept::of(transaction, of.0, &of.1));
        if self.partings.len() == PARTINGS_MAX {
            self.partings.clear();
        }
        self.partings.insert(of, kept.clone());
        kept
    }
}

#[cfg(test)]
mod tests;
