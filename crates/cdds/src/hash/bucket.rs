//! Buckets: a line or two of fingerprints, and slots of 32 bytes in no order.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 each | each slot's fingerprint: 0 if it was never used, 1 for a link, else of the key's hash |
//! | whole lines | | the slots |
//!
//! | offset in a slot | size | field |
//! |---|---|---|
//! | 0 | 8 | the epoch in which the entry began, sealed (`seal.rs`); 0: the slot is empty |
//! | 8 | 8 | the epoch in which it ended, likewise; 0: it has not |
//! | 16 | 8 | the hash of the key; of a link 0 |
//! | 24 | 8 | the record of key and value, or of a link the next bucket of the chain |
//!
//! A slot lives as one of a leaf does: CN1 begun-last, CN2 seen, CN3 needed, CN4 fingerprinted,
//! CN5 sealed.

use pando_pmem::{LINE_BYTES, Mark, Offset, Pmem, Pool, WORD_BYTES, epoch_bits};
use pando_sync::LogEpoch;

use crate::node::{Needs, Span, View, equal_bytes, load_epochs, store_begun};
use crate::seal;
use crate::tree::Error;

const SLOT_BYTES: u64 = LINE_BYTES / 2;

/// The fingerprint of a slot that was never used.
const UNUSED: u8 = 0;
/// The fingerprint of a link.
const LINK: u8 = 1;

const MAKE_FLUSH: Mark = Mark("bucket: flush of a new one");
const BEGIN_FLUSH: Mark = Mark("bucket: flush of an entry's beginning");
const FINGERPRINT_FLUSH: Mark = Mark("bucket: flush of a fingerprint");
const CLEAN_FLUSH: Mark = Mark("bucket: flush of an erased epoch");
const END_FLUSH: Mark = Mark("bucket: flush of an entry's end");

/// What a slot refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A key's hash, and its record.
    Key(u64, Offset),
    /// The next bucket of the chain.
    Link(Offset),
}

impl Entry {
    fn fingerprint(self) -> u8 {
        match self {
            Self::Key(hash, _) => fingerprint_of(hash),
            Self::Link(_) => LINK,
        }
    }

    /// The words of its slot behind the epochs.
    fn words(self) -> [u64; 2] {
        match self {
            Self::Key(hash, record) => [hash, record.get()],
            Self::Link(next) => [0, next.get()],
        }
    }
}

/// What tells most keys of a bucket apart: bits of the hash that no address uses, neither of the
/// two values that mean something else.
pub(super) fn fingerprint_of(hash: u64) -> u8 {
    2 + (((hash >> 56) * 254) >> 8) as u8
}

/// Bytes of a bucket of so many slots.
pub(super) const fn bucket_bytes(slots: u64) -> u64 {
    (header_bytes(slots) + slots * SLOT_BYTES).next_multiple_of(LINE_BYTES)
}

const fn header_bytes(slots: u64) -> u64 {
    slots.next_multiple_of(LINE_BYTES)
}

/// A bucket in a pool.
pub(super) struct Bucket<'p, M> {
    pool: &'p Pool<M>,
    pub(super) at: Offset,
    slots: u64,
}

impl<M> Clone for Bucket<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Bucket<'_, M> {}

impl<'p, M: Pmem> Bucket<'p, M> {
    pub(super) fn at(pool: &'p Pool<M>, at: Offset, slots: u64) -> Self {
        Self { pool, at, slots }
    }

    /// Makes a bucket in a block that is nobody's, all of whose entries begin in this epoch.
    pub(super) fn make(
        pool: &'p Pool<M>,
        at: Offset,
        slots: u64,
        epoch: LogEpoch,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Self {
        let mut bytes = vec![0; bucket_bytes(slots) as usize];
        for (index, entry) in entries.into_iter().enumerate() {
            assert!((index as u64) < slots, "a bucket that overflows");
            bytes[index] = entry.fingerprint();
            let from = (header_bytes(slots) + index as u64 * SLOT_BYTES) as usize;
            let [hash, target] = entry.words();
            let start = seal::beginning(epoch, [hash, target]);
            for (word, place) in [start, 0, hash, target].into_iter().zip(0..) {
                bytes[from + 8 * place..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let memory = pool.memory();
        memory.write(at, &bytes);
        memory.mark(MAKE_FLUSH);
        memory.flush(at, bytes.len());
        Self::at(pool, at, slots)
    }

    pub(super) fn slot_at(self, slot: u64) -> Offset {
        self.at.plus(header_bytes(self.slots) + slot * SLOT_BYTES)
    }

    pub(super) fn span(self, slot: u64) -> Span {
        let words = self.pool.memory().row(self.slot_at(slot), 2);
        Span::load(|index| words.load(index))
    }

    fn is_seen(self, slot: u64, view: View) -> bool {
        view.sees_entry(self.pool, self.span(slot))
    }

    /// The slots with this fingerprint (CN4 fingerprinted).
    fn alike(self, fingerprint: u8) -> impl Iterator<Item = u64> {
        let words = self.slots.div_ceil(WORD_BYTES) as usize;
        let header = self.pool.memory().row(self.at, words);
        (0..words)
            .flat_map(move |index| {
                let first = index as u64 * WORD_BYTES;
                equal_bytes(header.load(index), fingerprint).map(move |byte| first + byte)
            })
            .filter(move |slot| *slot < self.slots)
    }

    /// What a view may see of this hash, and must not be followed before it is known to hold: slot,
    /// record, and whether it is as it was stored (CN5 sealed).
    pub(super) fn candidates(
        self,
        hash: u64,
        view: View,
    ) -> impl Iterator<Item = (u64, Offset, bool)> {
        self.alike(fingerprint_of(hash)).filter_map(move |slot| {
            let words = self.pool.memory().row(self.slot_at(slot), 4);
            let epochs = load_epochs(|index| words.load(index));
            let [own_hash, record] = [2, 3].map(|index| words.load(index));
            // As of a leaf's: a slot that has changed meanwhile is not damaged. One that is may be
            // the key's whatever its hash.
            let is_right =
                seal::are_right(epochs, [own_hash, record]) || words.load(0) != epochs[0];
            let is_it =
                !is_right || own_hash == hash && view.sees_entry(self.pool, Span::of(epochs));
            is_it.then(|| (slot, Offset::new(record), is_right))
        })
    }

    /// Whether the entry in a slot is as it was stored (CN5 sealed); nobody changes it.
    pub(super) fn is_right(self, slot: u64) -> bool {
        let words = self.pool.memory().row(self.slot_at(slot), 4);
        let [start, end, hash, target] = [0, 1, 2, 3].map(|index| words.load(index));
        seal::are_right([start, end], [hash, target])
    }

    /// The same of all slots.
    pub(super) fn check_right(self) -> Result<(), Error> {
        let are_right = (0..self.slots).all(|slot| self.is_right(slot));
        are_right
            .then_some(())
            .ok_or(Error::DamagedNode { at: self.at })
    }

    /// The link that a view sees: its slot, and the next bucket.
    pub(super) fn link(self, view: View) -> Option<(u64, Self)> {
        let slot = self.alike(LINK).find(|slot| self.is_seen(*slot, view))?;
        Some((slot, self.linked(slot)))
    }

    fn linked(self, slot: u64) -> Self {
        let at = self.pool.memory().load(self.slot_at(slot).plus(24));
        Self::at(self.pool, Offset::new(at), self.slots)
    }

    /// The buckets that anybody's link leads to.
    pub(super) fn links_needed(self, needs: &Needs<'_>) -> Vec<Self> {
        let links = self.alike(LINK);
        let needed = links.filter(|slot| needs.need(self.pool, self.span(*slot)));
        needed.map(|slot| self.linked(slot)).collect()
    }

    /// The keys that a view sees, in no order: slot, hash and record.
    pub(super) fn keys(self, view: View) -> impl Iterator<Item = (u64, u64, Offset)> {
        (0..self.slots).filter_map(move |slot| {
            let words = self.pool.memory().row(self.slot_at(slot), 4);
            let is_seen = view.sees_entry(self.pool, Span::load(|index| words.load(index)));
            let is_key = is_seen && !self.alike(LINK).any(|link| link == slot);
            is_key.then(|| (slot, words.load(2), Offset::new(words.load(3))))
        })
    }

    /// The slots that may be used (CN3 needed), those that never were first: their fingerprint
    /// tells, and a look at them costs no line.
    pub(super) fn free_slots(self, needs: &Needs<'_>) -> impl Iterator<Item = u64> {
        let used = (0..self.slots).filter(move |slot| {
            let is_free = !needs.need(self.pool, self.span(*slot)) && self.is_right(*slot);
            is_free && !self.alike(UNUSED).any(|unused| unused == *slot)
        });
        self.alike(UNUSED).chain(used)
    }

    /// Begins an entry in a slot that nobody needs (CN1 begun-last).
    pub(super) fn begin(self, slot: u64, entry: Entry, epoch: LogEpoch) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        let shift = slot % WORD_BYTES * 8;
        let word = self.at.plus(slot / WORD_BYTES * WORD_BYTES);
        let others = memory.load(word) & !(0xff << shift);
        memory.store(word, others | u64::from(entry.fingerprint()) << shift);
        memory.mark(FINGERPRINT_FLUSH);
        memory.flush(word, WORD_BYTES as usize);
        let [hash, target] = entry.words();
        let beginning = seal::beginning(epoch, [hash, target]);
        let says = [(1, 0), (2, hash), (3, target)];
        store_begun(memory, (at, SLOT_BYTES), says, beginning);
        memory.mark(BEGIN_FLUSH);
        memory.flush(at, SLOT_BYTES as usize);
    }

    /// Gives an entry that began in the open epoch another record.
    pub(super) fn replace(self, slot: u64, record: Offset) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        let [epoch, hash] = [at, at.plus(16)].map(|at| memory.load(at));
        let start = seal::beginning(epoch_bits(epoch), [hash, record.get()]);
        store_begun(memory, (at, SLOT_BYTES), [(3, record.get())], start);
        memory.mark(BEGIN_FLUSH);
        memory.flush(at, SLOT_BYTES as usize);
    }

    /// Ends an entry.
    pub(super) fn end(self, slot: u64, epoch: LogEpoch) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        memory.store(at.plus(8), seal::end(epoch));
        memory.mark(END_FLUSH);
        memory.flush(at, SLOT_BYTES as usize);
    }

    /// Erases void beginnings and ends (CG1 same-meaning).
    pub(super) fn clean(self) {
        let memory = self.pool.memory();
        for slot in 0..self.slots {
            let (Span { start, end }, at) = (self.span(slot), self.slot_at(slot));
            let is_void = |epoch| epoch != 0 && self.pool.is_void(LogEpoch(epoch));
            for (epoch, word) in [(start, at), (end, at.plus(8))] {
                if is_void(epoch) {
                    memory.store(word, 0);
                    memory.mark(CLEAN_FLUSH);
                    memory.flush(word, WORD_BYTES as usize);
                }
            }
        }
    }
}
