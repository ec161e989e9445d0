//! Changes of one key: in place where the entry's leaf is enough, else as a transaction.

use pando_engine::ValueVersion;
use pando_memnode::{Address, Bytes};

use super::place::{Place, TREE_BYTES};
use super::sight::Seat;
use super::value::Coded;
use super::walk::Spot;
use super::{Counted, State, bundle, value};
use crate::page::PageEdit;
use crate::tree::{body, retire, store};

/// What becomes of an entry.
enum New<'n> {
    Inline(&'n [u8]),
    Large(Bytes, Coded<'n>),
    Bundle(Bytes),
    Nothing,
}

impl State {
    /// Gives a key a value, as it is stored. The spot is where its entry is, or would be.
    pub(super) fn put(
        &mut self,
        (seat, place): (Seat, &Place<'_>),
        spot: Spot,
        version: ValueVersion,
        stored: Coded<'_>,
    ) {
        let version = version.to_bits();
        let bytes = stored.bytes;
        if let Some(rest) = place.rest {
            return self.change_bundle(seat, place, (spot, rest), Some((version, bytes)));
        }
        let old = self.head_at(spot);
        if stored.is_large() {
            let new = New::Large(body(bytes), stored);
            self.change_entry((seat, place, spot.leaf), (version, &new), old);
        } else if old.is_some() || !self.put_in_place(seat, spot, place.entry(), version, bytes) {
            self.change_entry(
                (seat, place, spot.leaf),
                (version, &New::Inline(bytes)),
                old,
            );
        }
    }

    /// Removes a key, which is there.
    pub(super) fn remove(
        &mut self,
        (seat, place): (Seat, &Place<'_>),
        spot: Spot,
        version: ValueVersion,
    ) {
        if let Some(rest) = place.rest {
            return self.change_bundle(seat, place, (spot, rest), None);
        }
        let old = self.head_at(spot);
        if old.is_some() || !self.remove_in_place(seat, spot, version.to_bits()) {
            self.change_entry((seat, place, spot.leaf), (0, &New::Nothing), old);
        }
    }

    /// Changes an entry of a leaf that was made at the tip and has room.
    fn put_in_place(
        &mut self,
        seat: Seat,
        spot: Spot,
        entry: &[u8],
        version: u64,
        stored: &[u8],
    ) -> bool {
        self.edit_in_place(seat, spot.leaf, |leaf| {
            let put = match spot.index {
                Ok(index) => leaf.set_entry(index, version, stored),
                Err(index) => leaf.insert_entry(index, entry, version, stored),
            };
            put.is_ok()
        })
    }

    /// Removes an entry of a leaf that was made at the tip, unless the leaf becomes small: then it
    /// may have to be merged with another.
    fn remove_in_place(&mut self, seat: Seat, spot: Spot, version: u64) -> bool {
        let Ok(index) = spot.index else { return false };
        if self.page(spot.leaf).is_small() {
            return false;
        }
        self.edit_in_place(seat, spot.leaf, |leaf| {
            leaf.remove(index);
            leaf.raise_floor(version);
            true
        })
    }

    fn edit_in_place(
        &mut self,
        seat: Seat,
        leaf: Address,
        edit: impl FnOnce(&mut PageEdit<&mut [u8]>) -> bool,
    ) -> bool {
        if self.page(leaf).created() != self.tip_at(seat).view.snapshot() {
            return false;
        }
        let memnode = self.database.memnodes_mut().memnode_mut(leaf.memnode);
        memnode.edit(leaf.slot, |bytes| edit(&mut PageEdit::in_place(bytes)))
    }

    fn change_bundle(
        &mut self,
        seat: Seat,
        place: &Place<'_>,
        (spot, rest): (Spot, &[u8]),
        entry: Option<(u64, &[u8])>,
    ) {
        let old = self.head_at(spot);
        let before = old.map_or(&[][..], |head| self.large(head).1);
        let bundle = bundle::with(before, rest, entry);
        let highest = bundle::entries(&bundle).map(|entry| entry.version).max();
        let new = match highest {
            Some(highest) => (highest, &New::Bundle(body(&bundle))),
            None => (0, &New::Nothing),
        };
        self.change_entry((seat, place, spot.leaf), new, old);
    }

    /// Changes an entry of a leaf by a transaction. `old` is the head that it had.
    fn change_entry(
        &mut self,
        (seat, place, leaf): (Seat, &Place<'_>, Address),
        (version, new): (u64, &New<'_>),
        old: Option<Address>,
    ) {
        let tree = crate::TreeId(seat.base.0);
        let key = &place.entry()[TREE_BYTES..];
        let is_old = self.page(leaf).created() != self.tip_at(seat).view.snapshot();
        self.collecting.note_move(is_old || old.is_some());
        let mut made = Address::default();
        self.run(|transaction| {
            let tip = transaction.tip_of(seat.branch)?;
            if let Some(old) = old {
                retire(transaction, tip, old)?;
            }
            let large;
            let entry = match new {
                New::Nothing => {
                    tree.remove(transaction, tip, key)?;
                    return Ok(());
                }
                New::Inline(stored) => *stored,
                New::Large(bytes, stored) => {
                    let head;
                    (head, made) = store(transaction, tip, bytes)?;
                    large = value::large(head, stored.bytes[value::MARK]);
                    &large
                }
                New::Bundle(bytes) => {
                    large = value::bundle(store(transaction, tip, bytes)?.0);
                    &large
                }
            };
            tree.put_version(transaction, tip, key, entry, Some(version))?;
            Ok(())
        });
        if let New::Large(
            _,
            Coded {
                nodes: Some(nodes), ..
            },
        ) = new
        {
            // Nobody has seen the body yet (ME1 turns).
            let beside = self
                .memnode(made)
                .beside(made.slot)
                .expect("a body has no latch (SL1)");
            beside.set(nodes.beside()).expect("a new body");
        }
    }

    /// Removes up to `steps` keys of dropped trees; returns how many entries that were.
    pub(super) fn free_dropped(&mut self, steps: usize) -> usize {
        let mut done = 0;
        while done < steps {
            let Some(tree) = self.dropped.first().copied() else {
                break;
            };
            let Counted { branch, base, .. } = &self.trees[&tree];
            let (branch, base) = (*branch, *base);
            let seat = Seat { branch, base };
            let keys = match self.tip_of(branch) {
                Some(tip) => self.first_entries(tip, base, steps - done),
                // What a branch had went with it.
                None => Vec::new(),
            };
            if keys.is_empty() {
                self.trees.remove(&tree);
                self.dropped.remove(&tree);
                done += 1;
            }
            for key in keys {
                let place = Place::of_entry(&key);
                let spot = self.spot(self.tip_at(seat), place.entry());
                let old = self.head_at(spot);
                if old.is_some() || !self.remove_in_place(seat, spot, 0) {
                    self.change_entry((seat, &place, spot.leaf), (0, &New::Nothing), old);
                }
                done += 1;
            }
        }
        done
    }
}
