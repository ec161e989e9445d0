//! Looking for a key in a leaf: by fingerprints, from its home on, or where it was found ahead.

use pando_pmem::{LINE_BYTES, Offset, Pmem, Pool, WORD_BYTES, Words};

use crate::canary::{self, Fault};
use crate::node::{
    Entry, Found, Node, Span, View, equal_bits, fingerprint_of, header_bytes, home_of, load_epochs,
    slot_bytes,
};
use crate::probe::prefix_of;
use crate::record::Record;
use crate::seal;

/// Slots from its home on in which most keys are.
const NEAR_SLOTS: u64 = 3;

/// Slots behind those, among which most often one is free.
const FURTHER_SLOTS: u64 = 4;

/// Asks for the lines that a look-up of a key with this fingerprint reads first in a leaf.
#[inline]
pub(crate) fn prefetch_leaf<M: Pmem>(pool: &Pool<M>, (at, slots): (Offset, u64), fingerprint: u8) {
    let home = header_bytes(slots) + home_of(fingerprint, slots) * slot_bytes(0);
    let near = NEAR_SLOTS * slot_bytes(0);
    pool.memory().prefetch(at, 2 * WORD_BYTES as usize);
    pool.memory().prefetch(at.plus(home), near as usize);
}

/// The same for the slots where such a key is put, if those are taken.
#[inline]
pub(crate) fn prefetch_slots<M: Pmem>(pool: &Pool<M>, (at, slots): (Offset, u64), fingerprint: u8) {
    let first = home_of(fingerprint, slots) + NEAR_SLOTS;
    let further = at.plus(header_bytes(slots) + first * slot_bytes(0));
    let bytes = FURTHER_SLOTS * slot_bytes(0);
    pool.memory().prefetch(further, bytes as usize);
}

/// See [`Node::alike`].
struct Alike<'p> {
    header: Words<'p>,
    slots: u64,
    fingerprint: u8,
    /// The word of the header to be looked at, and how many are left.
    index: usize,
    left: usize,
    /// Top bits of the bytes that are equal, of the word before.
    equal: u64,
}

impl Iterator for Alike<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        loop {
            while self.equal != 0 {
                let byte = u64::from(self.equal.trailing_zeros() / 8);
                self.equal &= self.equal - 1;
                let before = self.index.checked_sub(1).unwrap_or(self.header.count() - 1);
                // Byte 0 is the level.
                let slot = (before as u64 * WORD_BYTES + byte).checked_sub(1);
                if let Some(slot) = slot.filter(|slot| *slot < self.slots) {
                    return Some(slot);
                }
            }
            self.left = self.left.checked_sub(1)?;
            self.equal = equal_bits(self.header.load(self.index), self.fingerprint);
            self.index = if self.index + 1 == self.header.count() {
                0
            } else {
                self.index + 1
            };
        }
    }
}

impl<'p, M: Pmem> Node<'p, M> {
    /// The entry of this key in a leaf.
    pub(crate) fn find(self, key: &[u8], view: View) -> Option<Found> {
        let found = self.find_with(key, fingerprint_of(key), view);
        let found = found.filter(|(_, record)| record.key() == key);
        found.map(|(found, _)| found)
    }

    /// The same where its fingerprint is known, and its record, or one that is not whole and may
    /// be it.
    #[inline]
    pub(crate) fn find_with(
        self,
        key: &[u8],
        fingerprint: u8,
        view: View,
    ) -> Option<(Found, Record<'p>)> {
        let prefix = prefix_of(key);
        let mut alike = self.alike(fingerprint);
        // One that is damaged may be the key's.
        let may_be = |record: Record<'_>| record.key() == key || !record.is_whole();
        alike.find_map(|slot| {
            let found = self.pair_in(slot, prefix, view);
            found.filter(|(_, record)| may_be(*record))
        })
    }

    /// The same where its slot is known, most likely.
    #[inline]
    pub(crate) fn find_at(self, slot: u64, key: &[u8], view: View) -> Option<(Found, Record<'p>)> {
        if slot >= self.slots {
            return None;
        }
        let found = self.pair_in(slot, prefix_of(key), view);
        let trusts = canary::has(Fault::SlotTrusted);
        found.filter(|(_, record)| record.key() == key || trusts)
    }

    /// What a view sees in this slot of a leaf, if it begins with these bytes or is damaged, and
    /// the leaf has not changed meanwhile.
    #[inline]
    fn pair_in(self, slot: u64, prefix: u64, view: View) -> Option<(Found, Record<'p>)> {
        let words = self.pool.memory().row(self.slot_at(slot), 4);
        let epochs = load_epochs(|index| words.load(index));
        let [own_prefix, at] = [2, 3].map(|index| words.load(index));
        let is_right = seal::are_right(epochs, [own_prefix, at]);
        let at = Offset::new(at);
        // One that is damaged may be the key's, whatever it begins with.
        let is_its =
            !is_right || own_prefix == prefix && view.sees_entry(self.pool, Span::of(epochs));
        if !is_its || !self.holds() {
            return None;
        }
        let record = if is_right {
            Record::at(self.pool, at).unwrap_or_else(|| Record::broken(at))
        } else {
            self.damaged_pair(slot)?
        };
        let entry = Entry {
            prefix,
            more: None,
            record: at,
            child: Offset::NONE,
        };
        Some((Found { slot, entry }, record))
    }

    /// What stands for a pair that is not as it was stored (CN5 sealed), unless its slot has
    /// changed meanwhile: then a view of the past does not see what was there.
    #[cold]
    fn damaged_pair(self, slot: u64) -> Option<Record<'p>> {
        (!self.is_right(slot)).then(|| Record::of_damaged_node(self.at))
    }

    /// Asks for the record that a look-up of the key will most likely read; its slot, and where it
    /// is.
    pub(crate) fn prefetch_alike(self, key: &[u8], fingerprint: u8) -> Option<(u64, Offset)> {
        let (prefix, memory) = (prefix_of(key), self.pool.memory());
        for slot in self.alike(fingerprint) {
            let words = memory.row(self.slot_at(slot), 4);
            // Most of what has ended is somewhere else, and most often the first one is it.
            if words.load(1) == 0 && words.load(2) == prefix {
                let record = Offset::new(words.load(3));
                memory.prefetch(record, 2 * LINE_BYTES as usize);
                return Some((slot, record));
            }
        }
        None
    }

    /// The slots of a leaf with this fingerprint (CN4 fingerprinted), those near its home first.
    #[inline]
    fn alike(self, fingerprint: u8) -> Alike<'p> {
        let words = (header_bytes(self.slots) / WORD_BYTES) as usize;
        let home = 1 + home_of(fingerprint, self.slots);
        Alike {
            header: self.pool.memory().row(self.at, words),
            slots: self.slots,
            fingerprint,
            index: (home / WORD_BYTES) as usize,
            left: words,
            equal: 0,
        }
    }
}
