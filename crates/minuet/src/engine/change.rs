//! Changes of one key: in place where the entry's leaf is enough, else as a transaction.

use pando_engine::{Key, TreeId, ValueVersion};
use pando_memnode::{Address, Bytes};

use super::place::{Place, TREE_BYTES};
use super::walk::Spot;
use super::{State, bundle, value};
use crate::page::PageEdit;
use crate::tree::{body, retire, store};

/// The longest value that is in its entry.
const INLINE_BYTES: usize = super::PAGE_BYTES_MIN / 8;

/// What becomes of an entry.
enum New<'n> {
    Inline(&'n [u8]),
    Large(Bytes, u8),
    Bundle(Bytes),
    Nothing,
}

impl State {
    /// Gives a key a value, as it is stored. The spot is where its entry is, or would be.
    pub(super) fn put(
        &mut self,
        (key, place): (Key<'_>, &Place<'_>),
        spot: Spot,
        version: ValueVersion,
        stored: &[u8],
    ) {
        let version = version.to_bits();
        if let Some(rest) = place.rest {
            return self.change_bundle(key.tree, place, (spot, rest), Some((version, stored)));
        }
        let old = self.stored(spot).and_then(value::Stored::head);
        if stored.len() > INLINE_BYTES {
            let new = New::Large(body(stored), stored[value::MARK]);
            self.change_entry((key.tree, place, spot.leaf), (version, &new), old);
        } else if old.is_some() || !self.put_in_place(spot, place.entry(), version, stored) {
            self.change_entry(
                (key.tree, place, spot.leaf),
                (version, &New::Inline(stored)),
                old,
            );
        }
    }

    /// Removes a key, which is there.
    pub(super) fn remove(
        &mut self,
        (key, place): (Key<'_>, &Place<'_>),
        spot: Spot,
        version: ValueVersion,
    ) {
        if let Some(rest) = place.rest {
            return self.change_bundle(key.tree, place, (spot, rest), None);
        }
        let old = self.stored(spot).and_then(value::Stored::head);
        if old.is_some() || !self.remove_in_place(spot, version.to_bits()) {
            self.change_entry((key.tree, place, spot.leaf), (0, &New::Nothing), old);
        }
    }

    /// Changes an entry of a leaf that was made at the tip and has room.
    fn put_in_place(&mut self, spot: Spot, entry: &[u8], version: u64, stored: &[u8]) -> bool {
        self.edit_in_place(spot.leaf, |leaf| {
            let put = match spot.index {
                Ok(index) => leaf.set_entry(index, version, stored),
                Err(index) => leaf.insert_entry(index, entry, version, stored),
            };
            put.is_ok()
        })
    }

    /// Removes an entry of a leaf that was made at the tip, unless the leaf becomes small: then it
    /// may have to be merged with another.
    fn remove_in_place(&mut self, spot: Spot, version: u64) -> bool {
        let Ok(index) = spot.index else { return false };
        let page = self.page(spot.leaf);
        if page.used() < page.bytes_len() / 2 {
            return false;
        }
        self.edit_in_place(spot.leaf, |leaf| {
            leaf.remove(index);
            leaf.raise_floor(version);
            true
        })
    }

    fn edit_in_place(&mut self, leaf: Address, edit: impl FnOnce(&mut PageEdit) -> bool) -> bool {
        if self.page(leaf).created() != self.tip.snapshot {
            return false;
        }
        let memnode = self.database.memnodes_mut().memnode_mut(leaf.memnode);
        memnode.edit(leaf.slot, |bytes| PageEdit::in_place(bytes, edit))
    }

    fn change_bundle(
        &mut self,
        tree: TreeId,
        place: &Place<'_>,
        (spot, rest): (Spot, &[u8]),
        entry: Option<(u64, &[u8])>,
    ) {
        let old = self.stored(spot).and_then(value::Stored::head);
        let before = old.map_or(&[][..], |head| self.large(head).1);
        let bundle = bundle::with(before, rest, entry);
        let highest = bundle::entries(&bundle).map(|entry| entry.version).max();
        let new = match highest {
            Some(highest) => (highest, &New::Bundle(body(&bundle))),
            None => (0, &New::Nothing),
        };
        self.change_entry((tree, place, spot.leaf), new, old);
    }

    /// Changes an entry of a leaf by a transaction. `old` is the head that it had.
    fn change_entry(
        &mut self,
        (tree, place, leaf): (TreeId, &Place<'_>, Address),
        (version, new): (u64, &New<'_>),
        old: Option<Address>,
    ) {
        let tree = crate::TreeId(tree.0);
        let key = &place.entry()[TREE_BYTES..];
        let is_old = self.page(leaf).created() < self.tip.snapshot;
        self.collecting.note_move(is_old || old.is_some());
        self.run(|transaction| {
            let tip = transaction.tip()?;
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
                New::Large(bytes, mark) => {
                    large = value::large(store(transaction, tip, bytes)?, *mark);
                    &large
                }
                New::Bundle(bytes) => {
                    large = value::bundle(store(transaction, tip, bytes)?);
                    &large
                }
            };
            tree.put_version(transaction, tip, key, entry, Some(version))?;
            Ok(())
        });
    }

    /// Removes up to `steps` keys of dropped trees; returns how many entries that were.
    pub(super) fn free_dropped(&mut self, steps: usize) -> usize {
        let mut done = 0;
        while done < steps {
            let mut dropped = self.trees.iter().filter(|(_, tree)| tree.dropped);
            let Some(tree) = dropped.next().map(|(number, _)| *number) else {
                break;
            };
            let keys = self.first_entries(tree, steps - done);
            if keys.is_empty() {
                self.trees.remove(&tree);
                done += 1;
            }
            for key in keys {
                let place = Place::of_entry(&key);
                let spot = self.spot(self.tip, place.entry());
                let old = self.stored(spot).and_then(value::Stored::head);
                if old.is_some() || !self.remove_in_place(spot, 0) {
                    self.change_entry((tree, &place, spot.leaf), (0, &New::Nothing), old);
                }
                done += 1;
            }
        }
        done
    }
}
