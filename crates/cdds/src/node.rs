//! Nodes: a line that says what they are, and entries in no order.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | level: 0 is a leaf, [`ANCHOR`] the anchor |
//! | 1 | 1 each | of a leaf: one byte of the hash of each slot's key, its *fingerprint* |
//! | 1 | 2 | but in a leaf: how many slots have ever been used, the first ones |
//! | whole lines | | the slots, of 32 bytes in a leaf and 64 elsewhere |
//!
//! | offset in a slot | size | field |
//! |---|---|---|
//! | 0 | 8 | the epoch in which the entry began, sealed (`seal.rs`); 0: the slot is empty |
//! | 8 | 8 | the epoch in which it ended, likewise; 0: it has not |
//! | 16 | 8 | the first eight bytes of the key, big-endian, then zeros |
//! | 24 | 8 | the record of key and value, or of the separator; 0: below every key |
//! | 32 | 8 | the child, but in a leaf |
//! | 40 | 24 | the separator's next bytes, likewise, but in a leaf |
//!
//! So a look-up reads two lines of a leaf, most often, and of other nodes no record unless keys
//! share their first 32 bytes.
//!
//! - **CN1 begun-last** A slot lies in one line, and an entry's beginning is stored last: if it is
//!   durable, so is the entry (PM1 any-order), where only words are whole by fences. Before a slot
//!   is used again its beginning is erased.
//! - **CN2 seen** A view of an epoch sees an entry that began in it or before and has not ended in
//!   it or before, void epochs left aside.
//! - **CN3 needed** A slot is used again if no snapshot sees it and its end is committed, or its
//!   beginning is not committed either, or if its beginning is void. A view that can come again
//!   after a crash sees none of these.
//! - **CN4 fingerprinted** A fingerprint is stored before its entry's beginning and flushed in
//!   the same epoch: an entry of a committed epoch has it. That of a slot that nobody needs is
//!   anything. So it is with the number of slots that have been used, which never falls.
//! - **CN5 sealed** Whatever a crash leaves of a slot, the checksums of both epochs are right: what
//!   an entry says is stored while its beginning is 0 (CN1 begun-last), also where it gets another
//!   record. One that is wrong is damaged (`seal.rs`).
//!
//! Readers beside the writer: `latch.rs`.

use std::cmp::Ordering;
use std::iter;
use std::ops::Range;

use pando_pmem::checksum::crc32c;
use pando_pmem::{LINE_BYTES, Mark, Offset, Pmem, Pool, WORD_BYTES, WordGroup, epoch_bits};
use pando_sync::LogEpoch;

use crate::canary::{self, Fault};
use crate::latch::Watch;
use crate::probe::prefix_of;
pub(crate) use crate::probe::{FirstBytes, Probe};
use crate::record::Record;
use crate::seal;

/// The level of the anchor.
pub(crate) const ANCHOR: u64 = 0xff;

const NODE_FLUSH: Mark = Mark("node: flush of a new one");
const BEGIN_FLUSH: Mark = Mark("entry: flush of its beginning");
const USED_FLUSH: Mark = Mark("node: flush of the number of its used slots");
const ERASED_FLUSH: Mark = Mark("words: flush of an erased beginning");
const ERASED_FENCE: Mark = Mark("words: fence of an erased beginning");
const SAID_FLUSH: Mark = Mark("words: flush of what an entry says");
const SAID_FENCE: Mark = Mark("words: fence of what an entry says");
const FINGERPRINT_FLUSH: Mark = Mark("entry: flush of its fingerprint");
const CLEAN_FLUSH: Mark = Mark("entry: flush of an erased epoch");
const END_FLUSH: Mark = Mark("entry: flush of its end");

/// What an entry says, apart from when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) prefix: u64,
    /// The bytes behind the prefix, likewise. A leaf's entry has none.
    pub(crate) more: Option<[u64; 3]>,
    pub(crate) record: Offset,
    pub(crate) child: Offset,
}

impl Entry {
    /// Below every key.
    pub(crate) fn lowest(child: Offset) -> Self {
        Self {
            prefix: 0,
            more: None,
            record: Offset::NONE,
            child,
        }
    }

    /// Of a leaf: a key and where its record is.
    pub(crate) fn of_key(key: &[u8], record: Offset) -> Self {
        Self {
            prefix: prefix_of(key),
            more: None,
            record,
            child: Offset::NONE,
        }
    }

    /// Above a leaf: a separator, where its record is, and the child.
    pub(crate) fn separator(key: &[u8], record: Offset, child: Offset) -> Self {
        let first = FirstBytes::of(key);
        Self {
            prefix: first.prefix(),
            more: Some(first.more()),
            record,
            child,
        }
    }

    /// What is stored of it: in a leaf, the first two words.
    #[inline]
    fn said(&self) -> [u64; 6] {
        let [next, third, fourth] = self.more.unwrap_or_default();
        let (record, child) = (self.record.get(), self.child.get());
        [self.prefix, record, child, next, third, fourth]
    }

    /// The word of its beginning in a node of this level.
    #[inline]
    fn beginning(&self, level: u64, epoch: LogEpoch) -> u64 {
        let said = self.said();
        if level > 0 {
            return seal::beginning(epoch, said);
        }
        let [prefix, record, ..] = said;
        seal::beginning(epoch, [prefix, record])
    }
}

/// Words of a slot behind the epochs.
fn said_words(level: u64) -> usize {
    (slot_bytes(level) / WORD_BYTES - 2) as usize
}

/// An entry and the slot it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) slot: u64,
    pub(crate) entry: Entry,
}

/// The first 16 bytes of a key, in order.
fn first_bytes(prefix: u64, next: u64) -> u128 {
    u128::from(prefix) << 64 | u128::from(next)
}

/// The top bits of a word's bytes that are this one, and perhaps of some above such a one.
#[inline]
pub(crate) fn equal_bits(word: u64, byte: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let differ = word ^ (u64::from(byte) * ONES);
    differ.wrapping_sub(ONES) & !differ & (ONES << 7)
}

/// These bytes, by their number in the word.
#[inline]
pub(crate) fn equal_bytes(word: u64, byte: u8) -> impl Iterator<Item = u64> {
    let mut equal = equal_bits(word, byte);
    std::iter::from_fn(move || {
        let bit = (equal != 0).then(|| equal.trailing_zeros())?;
        equal &= equal - 1;
        Some(u64::from(bit / 8))
    })
}

/// The slot where a key with this fingerprint is looked for first.
#[inline]
pub(crate) fn home_of(fingerprint: u8, slots: u64) -> u64 {
    (u64::from(fingerprint) * slots) >> 8
}

/// What tells most keys of a leaf apart.
#[inline]
pub(crate) fn fingerprint_of(key: &[u8]) -> u8 {
    crc32c(key) as u8
}

/// Who looks: at the end of an epoch, or at what is there in the open one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View(pub(crate) LogEpoch);

impl View {
    /// The present, whichever epoch is open: all that did not become void.
    pub(crate) const PRESENT: Self = Self(LogEpoch(u64::MAX));

    /// Whether what happened in this epoch has happened (CN2 seen).
    #[inline]
    pub(crate) fn sees<M: Pmem>(self, pool: &Pool<M>, epoch: u64) -> bool {
        epoch != 0 && epoch <= self.0.0 && !pool.is_void(LogEpoch(epoch))
    }

    /// Whether it sees an entry that began and ended then (CN2 seen).
    #[inline]
    pub(crate) fn sees_entry<M: Pmem>(self, pool: &Pool<M>, Span { start, end }: Span) -> bool {
        self.sees(pool, start) && !self.sees(pool, end)
    }
}

/// When an entry began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    /// Of the words of a slot.
    #[inline]
    pub(crate) fn load(word: impl Fn(usize) -> u64) -> Self {
        Self::of(load_epochs(word))
    }

    /// Of what [`load_epochs`] has loaded.
    #[inline]
    pub(crate) fn of([start, end]: [u64; 2]) -> Self {
        Self {
            start: epoch_bits(start).0,
            end: epoch_bits(end).0,
        }
    }
}

/// Loads the first two words of a slot, the end first (CL4 past-stands).
#[inline]
pub(crate) fn load_epochs(word: impl Fn(usize) -> u64) -> [u64; 2] {
    if canary::has(Fault::BeginningFirst) {
        let start = word(0);
        return [start, word(1)];
    }
    let end = word(1);
    [word(0), end]
}

/// Stores an entry in a slot that nobody needs, or in which it began in the open epoch, its
/// beginning last (CN1 begun-last): what it `says` is words by their places.
///
/// A slot lies in one line. Where only words are whole, each of the three steps is fenced: a new
/// word would make a dead entry a damaged one, and without its end a live one; and the beginning
/// would say that the entry is there, with words of the old one.
pub(crate) fn store_begun<M: Pmem>(
    memory: &M,
    (at, bytes): (Offset, u64),
    says: impl IntoIterator<Item = (u64, u64)>,
    beginning: u64,
) {
    let settle = |flush, fence| {
        if !memory.keeps_lines() {
            memory.mark(flush);
            memory.flush(at, bytes as usize);
            memory.mark(fence);
            memory.fence();
        }
    };
    memory.store(at, 0);
    settle(ERASED_FLUSH, ERASED_FENCE);
    for (index, word) in says {
        memory.store(at.plus(index * WORD_BYTES), word);
    }
    settle(SAID_FLUSH, SAID_FENCE);
    memory.store(at, beginning);
}

/// A node in a pool.
pub(crate) struct Node<'p, M> {
    pub(crate) pool: &'p Pool<M>,
    pub(crate) at: Offset,
    pub(crate) level: u64,
    pub(crate) slots: u64,
    /// Slots that may hold an entry, the first ones.
    pub(crate) used: u64,
    watch: Watch<'p>,
}

impl<M> Clone for Node<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Node<'_, M> {}

/// Bytes of a node.
#[inline]
pub(crate) fn bytes_of(level: u64, slots: u64) -> u64 {
    let bytes = header_bytes(slots) + slots * slot_bytes(level);
    bytes.next_multiple_of(LINE_BYTES)
}

/// What the header's first word says of a node of so many slots: its level, and how many of them
/// may hold an entry.
#[inline]
fn level_and_used(word: u64, slots: u64) -> (u64, u64) {
    let level = word & 0xff;
    let used = if level == 0 {
        slots
    } else {
        word >> 8 & 0xffff
    };
    // It may be damaged.
    (level, used.min(slots))
}

/// Bytes before the slots: the level and a fingerprint each.
#[inline]
pub(crate) fn header_bytes(slots: u64) -> u64 {
    (1 + slots).next_multiple_of(LINE_BYTES)
}

/// The word of the header that has a slot's fingerprint, and by how many bits it is shifted there.
#[inline]
fn fingerprint_at(slot: u64) -> (u64, u32) {
    let byte = 1 + slot;
    (
        byte / WORD_BYTES * WORD_BYTES,
        (byte % WORD_BYTES * 8) as u32,
    )
}

#[inline]
pub(crate) fn slot_bytes(level: u64) -> u64 {
    if level == 0 {
        LINE_BYTES / 2
    } else {
        LINE_BYTES
    }
}

impl<'p, M: Pmem> Node<'p, M> {
    /// The node at `at`, of so many slots.
    #[inline]
    pub(crate) fn at(pool: &'p Pool<M>, at: Offset, slots: u64) -> Self {
        let (level, used) = level_and_used(pool.memory().load(at), slots);
        Self {
            pool,
            at,
            level,
            slots,
            used,
            watch: Watch::STILL,
        }
    }

    /// A leaf at `at`, whatever its header says: a node that is known to be one.
    #[inline]
    pub(crate) fn leaf(pool: &'p Pool<M>, at: Offset, slots: u64) -> Self {
        Self {
            pool,
            at,
            level: 0,
            slots,
            used: slots,
            watch: Watch::STILL,
        }
    }

    /// The same node, read while others may change it. The watch began before [`Self::at`].
    pub(crate) fn watched(pool: &'p Pool<M>, at: Offset, slots: u64, watch: Watch<'p>) -> Self {
        Self {
            watch,
            ..Self::at(pool, at, slots)
        }
    }

    /// Whether everything that was read of it belongs together (CL1 marked-before).
    #[inline]
    pub(crate) fn holds(self) -> bool {
        self.watch.holds()
    }

    /// Whether it has stayed in the tree (CX7 gone-counted).
    #[inline]
    pub(crate) fn stays(self) -> bool {
        self.watch.stays()
    }

    /// The same node, once what was read of it is known to hold: records that it referred to then
    /// can be read whatever becomes of it (CL2 judged-then-followed).
    pub(crate) fn still(self) -> Self {
        Self {
            watch: Watch::STILL,
            ..self
        }
    }

    /// A record that an entry refers to; none if the node has changed meanwhile, whose reader
    /// begins anew.
    #[inline]
    pub(crate) fn record(self, at: Offset) -> Option<Record<'p>> {
        self.holds().then(|| Record::at(self.pool, at)).flatten()
    }

    /// The key of the record that an entry refers to, likewise.
    fn key(self, at: Offset) -> Option<&'p [u8]> {
        self.record(at).map(Record::key)
    }

    /// Makes a node in a block that is nobody's, all of whose entries begin in this epoch.
    pub(crate) fn make(
        pool: &'p Pool<M>,
        at: Offset,
        (level, slots): (u64, u64),
        epoch: LogEpoch,
        entries: &[Entry],
    ) -> Self {
        debug_assert!(entries.len() as u64 <= slots, "a node that overflows");
        let mut bytes = vec![0; bytes_of(level, slots) as usize];
        bytes[0] = level as u8;
        if level > 0 {
            bytes[1..3].copy_from_slice(&(entries.len() as u16).to_le_bytes());
        }
        let mut used = vec![false; slots as usize];
        for (index, entry) in entries.iter().enumerate() {
            let slot = if level == 0 {
                let key = Record::at(pool, entry.record).map_or(&b""[..], Record::key);
                let fingerprint = fingerprint_of(key);
                let home = home_of(fingerprint, slots) as usize;
                let slot = (home..used.len()).chain(0..home).find(|slot| !used[*slot]);
                let slot = slot.expect("a slot for each entry");
                used[slot] = true;
                bytes[1 + slot] = fingerprint;
                slot
            } else {
                index
            };
            let from = (header_bytes(slots) + slot as u64 * slot_bytes(level)) as usize;
            let words = [entry.beginning(level, epoch), 0];
            let said = entry.said().into_iter().take(said_words(level));
            for (index, word) in words.into_iter().chain(said).enumerate() {
                bytes[from + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let memory = pool.memory();
        memory.write(at, &bytes);
        memory.mark(NODE_FLUSH);
        memory.flush(at, bytes.len());
        Self::at(pool, at, slots)
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.level == 0
    }

    pub(crate) fn slot_at(self, slot: u64) -> Offset {
        self.at
            .plus(header_bytes(self.slots) + slot * slot_bytes(self.level))
    }

    fn word(self, slot: u64, index: u64) -> u64 {
        self.pool
            .memory()
            .load(self.slot_at(slot).plus(index * WORD_BYTES))
    }

    #[inline]
    pub(crate) fn span(self, slot: u64) -> Span {
        let words = self.pool.memory().row(self.slot_at(slot), 2);
        Span::load(|index| words.load(index))
    }

    pub(crate) fn entry(self, slot: u64) -> Entry {
        let row = |words| self.pool.memory().row(self.slot_at(slot), words);
        if self.is_leaf() {
            let words = row(4);
            return Entry {
                prefix: words.load(2),
                more: None,
                record: Offset::new(words.load(3)),
                child: Offset::NONE,
            };
        }
        let words = row(8);
        Entry {
            prefix: words.load(2),
            more: Some([5, 6, 7].map(|index| words.load(index))),
            record: Offset::new(words.load(3)),
            child: Offset::new(words.load(4)),
        }
    }

    /// The key of the separator in a slot; none if the node has changed meanwhile.
    pub(crate) fn key_of(self, slot: u64) -> Option<&'p [u8]> {
        let record = Offset::new(self.word(slot, 3));
        self.key(record)
    }

    /// Whether the entry in a slot is as it was stored (CN5 sealed). Others may change it.
    #[inline]
    pub(crate) fn is_right(self, slot: u64) -> bool {
        let words = self
            .pool
            .memory()
            .row(self.slot_at(slot), 2 + said_words(self.level));
        let word = |index| words.load(index);
        let epochs = [word(0), word(1)];
        let is_right = if self.is_leaf() {
            seal::are_right(epochs, [word(2), word(3)])
        } else {
            let above = [word(2), word(3), word(4), word(5), word(6), word(7)];
            seal::are_right(epochs, above)
        };
        // A beginning that is the same before and after all that the entry says was there all the
        // time: it is stored last.
        is_right || words.load(0) != epochs[0] || !self.holds()
    }

    /// Whether all entries are as they were stored, those that nobody sees, too.
    pub(crate) fn are_right(self) -> bool {
        (0..self.slots).all(|slot| self.is_right(slot))
    }

    /// Whether a view sees the entry in this slot (CN2 seen).
    #[inline]
    pub(crate) fn is_seen(self, slot: u64, view: View) -> bool {
        view.sees_entry(self.pool, self.span(slot))
    }

    /// What a view sees of the node, in no order.
    pub(crate) fn seen(self, view: View) -> impl Iterator<Item = Found> {
        let seen = (0..self.used).filter(move |slot| self.is_seen(*slot, view));
        seen.map(move |slot| Found {
            slot,
            entry: self.entry(slot),
        })
    }

    /// The same in the order of the keys.
    pub(crate) fn sorted(self, view: View) -> Vec<Found> {
        let mut found: Vec<_> = self.seen(view).collect();
        found.sort_by(|a, b| self.order(a.entry, b.entry));
        found
    }

    /// How two entries' keys are ordered.
    pub(crate) fn order(self, a: Entry, b: Entry) -> Ordering {
        if a.record.is_none() || b.record.is_none() {
            return b.record.is_none().cmp(&a.record.is_none());
        }
        let more = || match (a.more, b.more) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        };
        a.prefix.cmp(&b.prefix).then_with(more).then_with(|| {
            let [a, b] = [a, b].map(|entry| self.key(entry.record));
            a.cmp(&b)
        })
    }

    /// The entry whose subtree has the key: that of the highest separator at or below it.
    ///
    /// The first pass finds the highest first bytes at or below the key's, of entries that anybody
    /// sees or nobody does; it has no branch that depends on them. The second one judges the
    /// entries with these bytes, mostly one. Only if the view sees none of them are all judged.
    pub(crate) fn child_for(self, probe: &Probe<'_>, view: View) -> Option<Found> {
        let at = self.at.plus(header_bytes(self.slots));
        let row = self.pool.memory().row(at, 8 * self.used as usize);
        let bytes_of = |words: WordGroup<'_, 8>| first_bytes(words.load(2), words.load(5));
        let wanted = first_bytes(probe.first.prefix(), probe.first.more()[0]);
        let highest = row.groups::<8>().fold(0, |highest, words| {
            let bytes = bytes_of(words);
            let is_next = bytes <= wanted && bytes > highest;
            std::hint::select_unpredictable(is_next, bytes, highest)
        });
        let is_candidate = |words: WordGroup<'_, 8>| bytes_of(words) == highest;
        self.highest(view, probe, is_candidate)
            .or_else(|| self.highest(view, probe, |words| bytes_of(words) <= wanted))
    }

    /// The highest entry at or below the key, of candidates whose first bytes are not above it.
    fn highest(
        self,
        view: View,
        probe: &Probe<'_>,
        is_candidate: impl Fn(WordGroup<'_, 8>) -> bool,
    ) -> Option<Found> {
        let at = self.at.plus(header_bytes(self.slots));
        let row = self.pool.memory().row(at, 8 * self.used as usize);
        let mut best: Option<(u64, WordGroup<'_, 8>)> = None;
        for (slot, words) in (0..).zip(row.groups::<8>()) {
            if is_candidate(words)
                && view.sees_entry(self.pool, Span::load(|index| words.load(index)))
                && !self.is_above(words, probe)
                && best.is_none_or(|(_, best)| self.compare(best, words) == Ordering::Less)
            {
                best = Some((slot, words));
            }
        }
        let (slot, _) = best?;
        Some(Found {
            slot,
            entry: self.entry(slot),
        })
    }

    /// Whether a separator whose prefix is not above the key's is above the key.
    fn is_above(self, words: WordGroup<'_, 8>, probe: &Probe<'_>) -> bool {
        let record = Offset::new(words.load(3));
        if words.load(2) < probe.first.prefix() || record.is_none() {
            return false;
        }
        let more = [5, 6, 7].map(|index| words.load(index));
        let order = more
            .cmp(&probe.first.more())
            .then_with(|| self.key(record).cmp(&Some(probe.key)));
        order == Ordering::Greater
    }

    /// How the separators of two slots are ordered.
    fn compare(self, a: WordGroup<'_, 8>, b: WordGroup<'_, 8>) -> Ordering {
        let [a, b] = [a, b].map(|words| Entry {
            prefix: words.load(2),
            more: Some([5, 6, 7].map(|index| words.load(index))),
            record: Offset::new(words.load(3)),
            child: Offset::NONE,
        });
        self.order(a, b)
    }

    /// Begins an entry in a slot that nobody needs (CN1 begun-last).
    pub(crate) fn begin(self, slot: u64, entry: Entry, epoch: LogEpoch) {
        if self.is_leaf() {
            let key = self.key(entry.record).unwrap_or_default();
            self.begin_key(slot, entry, fingerprint_of(key), epoch);
        } else {
            self.use_slot(slot);
            self.store_entry(slot, entry, epoch);
        }
    }

    /// The same in a leaf, where the fingerprint of the key is known.
    pub(crate) fn begin_key(self, slot: u64, entry: Entry, fingerprint: u8, epoch: LogEpoch) {
        self.set_fingerprint(slot, fingerprint);
        self.store_entry(slot, entry, epoch);
    }

    fn store_entry(self, slot: u64, entry: Entry, epoch: LogEpoch) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        let said = entry.said().into_iter().take(said_words(self.level));
        let (bytes, beginning) = (slot_bytes(self.level), entry.beginning(self.level, epoch));
        let says = iter::once(0).chain(said);
        store_begun(memory, (at, bytes), (1..).zip(says), beginning);
        memory.mark(BEGIN_FLUSH);
        memory.flush(at, bytes as usize);
    }

    /// Before an entry begins in this slot of a leaf (CN4 fingerprinted).
    fn set_fingerprint(self, slot: u64, fingerprint: u8) {
        let (within, shift) = fingerprint_at(slot);
        let (memory, at) = (self.pool.memory(), self.at.plus(within));
        let others = memory.load(at) & !(0xff << shift);
        memory.store(at, others | u64::from(fingerprint) << shift);
        memory.mark(FINGERPRINT_FLUSH);
        memory.flush(at, WORD_BYTES as usize);
    }

    /// Before an entry begins in this slot of a node that is no leaf (CN4 fingerprinted).
    fn use_slot(self, slot: u64) {
        let memory = self.pool.memory();
        let (level, used) = level_and_used(memory.load(self.at), self.slots);
        if slot >= used {
            memory.store(self.at, level | (slot + 1) << 8);
            memory.mark(USED_FLUSH);
            memory.flush(self.at, WORD_BYTES as usize);
        }
    }

    /// Ends an entry.
    pub(crate) fn end(self, slot: u64, epoch: LogEpoch) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        memory.store(at.plus(8), seal::end(epoch));
        memory.mark(END_FLUSH);
        memory.flush(at, slot_bytes(self.level) as usize);
    }

    /// Erases void beginnings and ends (CG1 same-meaning).
    pub(crate) fn clean(self) {
        let (memory, is_void) = (self.pool.memory(), |epoch| {
            epoch != 0 && self.pool.is_void(LogEpoch(epoch))
        });
        for slot in 0..self.used {
            let (Span { start, end }, at) = (self.span(slot), self.slot_at(slot));
            if is_void(start) {
                memory.store(at, 0);
            }
            if is_void(end) {
                memory.store(at.plus(8), 0);
            }
            if is_void(start) || is_void(end) {
                memory.mark(CLEAN_FLUSH);
                memory.flush(at, 2 * WORD_BYTES as usize);
            }
        }
    }

    /// Gives an entry of a leaf that began in the open epoch another record (CN5 sealed).
    pub(crate) fn replace(self, slot: u64, record: Offset) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        let (epoch, entry) = (epoch_bits(memory.load(at)), self.entry(slot));
        let (bytes, beginning) = (slot_bytes(0), Entry { record, ..entry }.beginning(0, epoch));
        if canary::has(Fault::ReplacedBegun) {
            memory.store(at.plus(24), record.get());
            memory.store(at, beginning);
        } else {
            store_begun(memory, (at, bytes), [(3, record.get())], beginning);
        }
        memory.mark(BEGIN_FLUSH);
        memory.flush(at, bytes as usize);
    }

    /// The slots that may be used (CN3 needed), from this one on and around.
    pub(crate) fn free_slots(self, home: u64, needs: &Needs<'_>) -> impl Iterator<Item = u64> {
        let words = slot_bytes(self.level) / WORD_BYTES;
        let count = self.slots * words;
        let row = self.pool.memory().row(self.slot_at(0), count as usize);
        let around =
            (home..home + self.slots).map(move |slot| match slot.checked_sub(self.slots) {
                Some(below) => below,
                None => slot,
            });
        around.filter(move |slot| {
            let word = (slot * words) as usize;
            let span = Span::load(|index| row.load(word + index));
            !needs.need(self.pool, span) && self.is_right(*slot)
        })
    }

    /// The first of [`Self::free_slots`] of a leaf that is so at first sight: nothing is void, and
    /// there are no snapshots.
    pub(crate) fn plainly_free_slot(self, home: u64, needs: &Needs<'_>) -> Option<u64> {
        if !needs.retained.is_empty() {
            return None;
        }
        let is_void = |epoch| self.pool.is_void(LogEpoch(epoch));
        let first_within = |slots: Range<u64>| {
            let words = 4 * (slots.end - slots.start) as usize;
            let row = self.pool.memory().row(self.slot_at(slots.start), words);
            let place = row.groups::<4>().position(|words| {
                let [start, end] = load_epochs(|index| words.load(index));
                // Most are live.
                if end == 0 {
                    return start == 0;
                }
                let Span { start, end } = Span::of([start, end]);
                start == 0 || end <= needs.committed.0 && !is_void(end) && !is_void(start)
            });
            place.map(|place| slots.start + place as u64)
        };
        let first = first_within(home..self.slots).or_else(|| first_within(0..home));
        first.filter(|slot| self.is_right(*slot))
    }

    /// The slot of a leaf where an entry is put if it may be used, else in the next one that may:
    /// a look-up asks for its line together with the header.
    pub(crate) fn home(self, entry: &Entry) -> u64 {
        if !self.is_leaf() {
            return 0;
        }
        self.home_of(fingerprint_of(self.key(entry.record).unwrap_or_default()))
    }

    /// The same of a key's fingerprint, in a leaf.
    #[inline]
    pub(crate) fn home_of(self, fingerprint: u8) -> u64 {
        home_of(fingerprint, self.slots)
    }
}

/// Who may still want to see an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'s> {
    /// The open epoch.
    pub(crate) open: LogEpoch,
    pub(crate) committed: LogEpoch,
    /// The epochs of snapshots.
    pub(crate) retained: &'s [LogEpoch],
}

impl Needs<'_> {
    #[inline]
    pub(crate) fn need<M: Pmem>(&self, pool: &Pool<M>, Span { start, end }: Span) -> bool {
        // Most are empty or live; what is void is neither.
        if start == 0 || end == 0 {
            return start != 0 && !pool.is_void(LogEpoch(start)) && start <= self.open.0;
        }
        let present = View(self.open);
        if !present.sees(pool, start) {
            return false;
        }
        if !present.sees(pool, end) {
            return true;
        }
        // A crash takes its beginning back, or leaves its end.
        let may_return = start <= self.committed.0 && end > self.committed.0;
        let lived = start..end;
        may_return || self.retained.iter().any(|epoch| lived.contains(&epoch.0))
    }
}
