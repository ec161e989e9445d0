//! Looking for a key in a leaf: by fingerprints, from its home on, or where it was found ahead.

use pando_pmem::{Offset, Pmem, Pool, WORD_BYTES, Words, epoch_bits};

use crate::node::{
    Entry, Found, Node, Span, View, equal_bits, fingerprint_of, header_bytes, home_of, load_epochs,
    slot_bytes,
};
use crate::probe::prefix_of;
use crate::record::Record;
use crate::seal;

/// Slots from its home on among which most often one is free.
const NEAR_SLOTS: u64 = 7;

/// Asks for the slots of a leaf where a key with this fingerprint is put.
#[inline]
pub(crate) fn prefetch_slots<M: Pmem>(pool: &Pool<M>, (at, slots): (Offset, u64), fingerprint: u8) {
    let home = header_bytes(slots) + home_of(fingerprint, slots) * slot_bytes(0);
    let bytes = NEAR_SLOTS * slot_bytes(0);
    pool.memory().prefetch(at.plus(home), bytes as usize);
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

    /// Asks for the slots that a look-up of a key with this fingerprint reads: most often its own,
    /// and one that it had before. The first of them.
    #[inline]
    pub(crate) fn prefetch_alike(self, fingerprint: u8) -> Option<u64> {
        let (mut alike, memory) = (self.alike(fingerprint), self.pool.memory());
        let first = alike.next()?;
        memory.prefetch(self.slot_at(first), WORD_BYTES as usize);
        if alike.equal != 0
            && let Some(next) = alike.next()
        {
            memory.prefetch(self.slot_at(next), WORD_BYTES as usize);
        }
        Some(first)
    }

    /// The entry of a key with this fingerprint and these first bytes that the present sees, and
    /// that is as it was stored (CN5 sealed), from the first slot that may have it on: its slot,
    /// and its record. It is so if the leaf has not changed meanwhile.
    #[inline]
    pub(crate) fn judge_alike(
        self,
        (first, fingerprint): (u64, u8),
        prefix: u64,
    ) -> Option<(u64, Offset)> {
        let judge = |slot: u64| {
            let words = self.pool.memory().row(self.slot_at(slot), 4);
            if words.load(1) != 0 || words.load(2) != prefix {
                return None;
            }
            let (start, record) = (words.load(0), words.load(3));
            let is_right = seal::are_right([start, 0], [prefix, record]);
            let is_seen = View::PRESENT.sees(self.pool, epoch_bits(start).0);
            (is_right && is_seen).then(|| (slot, Offset::new(record)))
        };
        judge(first).or_else(|| self.alike(fingerprint).skip(1).find_map(judge))
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
