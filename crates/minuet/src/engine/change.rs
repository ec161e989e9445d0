//! Changes of one key: in place where the entry's leaf is enough, else as a transaction.

use pando_engine::{HashBody, HashRef, Key, ValueVersion};
use pando_memnode::Address;

use super::place::{Place, TREE_BYTES, key_of};
use super::sight::Seat;
use super::value::{Coded, Drafted, MARK, Stored};
use super::walk::{Marked, Spot};
use super::{Counted, State, bundle, value};
use crate::error::Stop;
use crate::page::PageEdit;
use crate::transaction::Transaction;
use crate::tree::{body, retire, store};

/// What becomes of a key.
#[derive(Clone, Copy)]
enum New<'n> {
    Put(Coded<'n>),
    /// What it had, but for the mark.
    Marked(&'n [u8]),
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
        let is_one = place.rest.is_some() || self.head_at(spot).is_some() || stored.is_large();
        if is_one || !self.put_in_place(seat, spot, place.entry(), version, stored.bytes) {
            self.change_entry((seat, place, spot), version, New::Put(stored));
        }
    }

    /// Removes a key, which is there.
    pub(super) fn remove(
        &mut self,
        (seat, place): (Seat, &Place<'_>),
        spot: Spot,
        version: ValueVersion,
    ) {
        let version = version.to_bits();
        let is_one = place.rest.is_some() || self.head_at(spot).is_some();
        if is_one || !self.remove_in_place(seat, spot, version) {
            self.change_entry((seat, place, spot), version, New::Nothing);
        }
    }

    /// Gives a key of a bundle the mark that its reader left, unless other versions have the
    /// bundle: nothing is copied for a mark.
    pub(super) fn mark_bundled(&mut self, (whole, version, mark): &Marked) {
        let key = key_of(whole);
        let Some(seat) = self.seat(key.tree) else {
            return;
        };
        let place = Place::of(Key::new(seat.base, key.bytes));
        let spot = self.spot(self.tip_at(seat), place.entry());
        let head = self.head_at(spot).expect("a key of a bundle was found");
        let tip = self.tip_at(seat).view.snapshot();
        if [spot.leaf, head].map(|page| self.page(page).created()) != [tip; 2] {
            return;
        }
        let rest = place.rest.expect("a long key");
        let (_, bytes) = bundle::find(self.bundle(head), rest).expect("it was found");
        let mut bytes = bytes.to_vec();
        bytes[MARK] = *mark;
        self.change_entry((seat, &place, spot), *version, New::Marked(&bytes));
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

    /// Changes an entry of a leaf by a transaction, or a key of the bundle that the entry holds.
    fn change_entry(
        &mut self,
        (seat, place, spot): (Seat, &Place<'_>, Spot),
        version: u64,
        new: New<'_>,
    ) {
        let tree = crate::TreeId(seat.base.0);
        let key = &place.entry()[TREE_BYTES..];
        let page = self.page(spot.leaf);
        let is_old = page.created() != self.tip_at(seat).view.snapshot();
        let before = spot.index.map_or(0, |index| page.entry(index).0);
        drop(page);
        let head = self.head_at(spot);
        let bundled = place.rest.map(|rest| {
            let row = head.map(|head| self.bundle(head));
            let old = row.and_then(|row| bundle::find(row, rest));
            let old = old.and_then(|(_, bytes)| Stored::of(bytes).head());
            let old = old.filter(|_| !matches!(new, New::Marked(_)));
            (rest, row.map(HashRef::hand_over), old)
        });
        let gone = [head, bundled.as_ref().and_then(|(_, _, old)| *old)];
        self.collecting.note_move(is_old || head.is_some());
        // Where bodies are, and what lies beside them.
        let mut made = Vec::new();
        self.run(|transaction| {
            made.clear();
            let tip = transaction.tip_of(seat.branch)?;
            for head in gone.into_iter().flatten() {
                retire(transaction, tip, head)?;
            }
            let mut keep = |transaction: &mut Transaction<'_>, stored: Coded<'_>| {
                let (head, at) = store(transaction, tip, &body(stored.bytes))?;
                made.extend(stored.nodes.map(|nodes| (at, nodes.beside())));
                Ok::<_, Stop>(head)
            };
            let mut entry = match new {
                New::Nothing => None,
                New::Put(stored) if stored.is_large() => {
                    Some(value::large(keep(transaction, stored)?, stored.bytes[MARK]))
                }
                New::Put(Coded { bytes, .. }) | New::Marked(bytes) => Some(bytes.to_vec()),
            };
            let mut version = version;
            if let Some((rest, row, _)) = &bundled {
                let row = row.as_ref().map(HashBody::as_ref);
                let new = entry.as_ref().map(|bytes| (version, &bytes[..]));
                entry = match bundle::with(row, rest, new).map(Drafted::of_row) {
                    Some(row) => Some(value::bundle(keep(transaction, row.coded())?)),
                    None => None,
                };
                version = version.max(before);
            }
            match entry {
                Some(entry) => {
                    tree.put_version(transaction, tip, key, &entry, Some(version))?;
                }
                None => {
                    tree.remove(transaction, tip, key)?;
                }
            }
            Ok(())
        });
        for (body, nodes) in made {
            // Nobody has seen it yet (ME1 turns).
            let beside = self.memnode(body).beside(body.slot);
            let beside = beside.expect("a body has no latch (SL1)");
            beside.set(nodes).expect("a new body");
        }
    }

    /// What is left of the first key of the bundle at a spot, if there is one.
    fn first_bundled(&self, spot: Spot) -> Option<Vec<u8>> {
        match Stored::of(self.page(spot.leaf).entry(spot.index.ok()?).1) {
            Stored::Bundle(head) => Some(bundle::nth(self.bundle(head), 0)?.0.to_vec()),
            Stored::Inline(_) | Stored::Large(_) => None,
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
                let mut place = Place::of_entry(&key);
                let spot = self.spot(self.tip_at(seat), place.entry());
                let rest = self.first_bundled(spot);
                place.rest = rest.as_deref();
                self.remove((seat, &place), spot, ValueVersion::from_bits(0));
                done += 1;
            }
        }
        done
    }
}
