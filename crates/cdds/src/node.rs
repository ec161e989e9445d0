//! Nodes: a line that says what they are, and entries in no order.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | level: 0 is a leaf, [`ANCHOR`] the anchor |
//! | 64 | | the slots, of 32 bytes in a leaf and 64 elsewhere |
//!
//! | offset in a slot | size | field |
//! |---|---|---|
//! | 0 | 8 | the epoch in which the entry began; 0: the slot is empty |
//! | 8 | 8 | the epoch in which it ended; 0: it has not |
//! | 16 | 8 | the first eight bytes of the key, big-endian, then zeros |
//! | 24 | 8 | the record of key and value, or of the separator; 0: below every key |
//! | 32 | 8 | the child, but in a leaf |
//!
//! - **CN1 begun-last** A slot lies in one line, and an entry's beginning is stored last: if it is
//!   durable, so is the entry (PM1 any-order). Before a slot is used again its beginning is erased.
//! - **CN2 seen** A view of an epoch sees an entry that began in it or before and has not ended in
//!   it or before, void epochs left aside.
//! - **CN3 needed** A slot is used again if its end is committed and no snapshot sees it, or if it
//!   began and ended in the open epoch, or if its beginning is void. A view that can come again
//!   after a crash sees none of these.

use std::cmp::Ordering;

use pando_pmem::{LINE_BYTES, Mark, Offset, Pmem, Pool, WORD_BYTES};
use pando_sync::LogEpoch;

use crate::record::Record;

/// The level of the anchor.
pub(crate) const ANCHOR: u64 = u64::MAX;

const NODE_FLUSH: Mark = Mark("node: flush of a new one");
const BEGIN_FLUSH: Mark = Mark("entry: flush of its beginning");
const END_FLUSH: Mark = Mark("entry: flush of its end");

/// What an entry says, apart from when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) prefix: u64,
    pub(crate) record: Offset,
    pub(crate) child: Offset,
}

impl Entry {
    /// Below every key.
    pub(crate) fn lowest(child: Offset) -> Self {
        Self {
            prefix: 0,
            record: Offset::NONE,
            child,
        }
    }
}

/// An entry and the slot it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) slot: u64,
    pub(crate) entry: Entry,
}

/// The first bytes of a key, so that most comparisons need no record.
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

/// Who looks: at the end of an epoch, or at what is there in the open one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View(pub(crate) LogEpoch);

impl View {
    /// Whether what happened in this epoch has happened (CN2 seen).
    #[inline]
    pub(crate) fn sees<M: Pmem>(self, pool: &Pool<M>, epoch: u64) -> bool {
        epoch != 0 && epoch <= self.0.0 && !pool.is_void(LogEpoch(epoch))
    }
}

/// When an entry began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A node in a pool.
pub(crate) struct Node<'p, M> {
    pool: &'p Pool<M>,
    pub(crate) at: Offset,
    pub(crate) level: u64,
    slots: u64,
}

impl<M> Clone for Node<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Node<'_, M> {}

/// Bytes of a node.
pub(crate) fn bytes_of(level: u64, slots: u64) -> u64 {
    let bytes = LINE_BYTES + slots * slot_bytes(level);
    bytes.next_multiple_of(LINE_BYTES)
}

fn slot_bytes(level: u64) -> u64 {
    if level == 0 {
        LINE_BYTES / 2
    } else {
        LINE_BYTES
    }
}

impl<'p, M: Pmem> Node<'p, M> {
    /// The node at `at`, of so many slots.
    pub(crate) fn at(pool: &'p Pool<M>, at: Offset, slots: u64) -> Self {
        let level = pool.memory().load(at);
        Self {
            pool,
            at,
            level,
            slots,
        }
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
        bytes[..8].copy_from_slice(&level.to_le_bytes());
        for (slot, entry) in entries.iter().enumerate() {
            let from = (LINE_BYTES + slot as u64 * slot_bytes(level)) as usize;
            let words = [epoch.0, 0, entry.prefix, entry.record.get()];
            let child = (level > 0).then_some(entry.child.get());
            for (index, word) in words.into_iter().chain(child).enumerate() {
                bytes[from + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let memory = pool.memory();
        memory.write(at, &bytes);
        memory.mark(NODE_FLUSH);
        memory.flush(at, bytes.len());
        Self {
            pool,
            at,
            level,
            slots,
        }
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.level == 0
    }

    fn slot_at(self, slot: u64) -> Offset {
        self.at.plus(LINE_BYTES + slot * slot_bytes(self.level))
    }

    fn word(self, slot: u64, index: u64) -> u64 {
        self.pool
            .memory()
            .load(self.slot_at(slot).plus(index * WORD_BYTES))
    }

    pub(crate) fn span(self, slot: u64) -> Span {
        Span {
            start: self.word(slot, 0),
            end: self.word(slot, 1),
        }
    }

    pub(crate) fn entry(self, slot: u64) -> Entry {
        let child = if self.is_leaf() {
            0
        } else {
            self.word(slot, 4)
        };
        Entry {
            prefix: self.word(slot, 2),
            record: Offset::new(self.word(slot, 3)),
            child: Offset::new(child),
        }
    }

    /// Whether a view sees the entry in this slot (CN2 seen).
    #[inline]
    pub(crate) fn is_seen(self, slot: u64, view: View) -> bool {
        view.sees(self.pool, self.word(slot, 0)) && !view.sees(self.pool, self.word(slot, 1))
    }

    /// What a view sees of the node, in no order.
    pub(crate) fn seen(self, view: View) -> impl Iterator<Item = Found> {
        let seen = (0..self.slots).filter(move |slot| self.is_seen(*slot, view));
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
        a.prefix.cmp(&b.prefix).then_with(|| {
            let [a, b] = [a, b].map(|entry| Record::at(self.pool, entry.record).map(Record::key));
            a.cmp(&b)
        })
    }

    /// How an entry's key is ordered to another one, whose prefix this is.
    fn order_to(self, entry: Entry, prefix: u64, key: &[u8]) -> Ordering {
        if entry.record.is_none() {
            return Ordering::Less;
        }
        entry.prefix.cmp(&prefix).then_with(|| {
            let record = Record::at(self.pool, entry.record);
            record.map(Record::key).cmp(&Some(key))
        })
    }

    /// The entry of this key in a leaf.
    pub(crate) fn find(self, key: &[u8], view: View) -> Option<Found> {
        let prefix = prefix_of(key);
        (0..self.slots).find_map(|slot| {
            if self.word(slot, 2) != prefix || !self.is_seen(slot, view) {
                return None;
            }
            let entry = self.entry(slot);
            let is_it = self.order_to(entry, prefix, key) == Ordering::Equal;
            is_it.then_some(Found { slot, entry })
        })
    }

    /// The entry whose subtree has the key: that of the highest separator at or below it.
    pub(crate) fn child_for(self, key: &[u8], view: View) -> Option<Found> {
        let prefix = prefix_of(key);
        let below = self
            .seen(view)
            .filter(|found| self.order_to(found.entry, prefix, key) != Ordering::Greater);
        below.max_by(|a, b| self.order(a.entry, b.entry))
    }

    /// Begins an entry in a slot that nobody needs (CN1 begun-last).
    pub(crate) fn begin(self, slot: u64, entry: Entry, epoch: LogEpoch) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        memory.store(at, 0);
        memory.store(at.plus(8), 0);
        memory.store(at.plus(16), entry.prefix);
        memory.store(at.plus(24), entry.record.get());
        if !self.is_leaf() {
            memory.store(at.plus(32), entry.child.get());
        }
        memory.store(at, epoch.0);
        memory.mark(BEGIN_FLUSH);
        memory.flush(at, slot_bytes(self.level) as usize);
    }

    /// Ends an entry.
    pub(crate) fn end(self, slot: u64, epoch: LogEpoch) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        memory.store(at.plus(8), epoch.0);
        memory.mark(END_FLUSH);
        memory.flush(at, slot_bytes(self.level) as usize);
    }

    /// Gives an entry that began in the open epoch another record.
    pub(crate) fn replace(self, slot: u64, record: Offset) {
        let (memory, at) = (self.pool.memory(), self.slot_at(slot));
        memory.store(at.plus(24), record.get());
        memory.mark(BEGIN_FLUSH);
        memory.flush(at, slot_bytes(self.level) as usize);
    }

    /// The slots that may be used (CN3 needed).
    pub(crate) fn free_slots(self, needs: &Needs<'_>) -> impl Iterator<Item = u64> {
        (0..self.slots).filter(move |slot| !needs.need(self.pool, self.span(*slot)))
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
    fn need<M: Pmem>(&self, pool: &Pool<M>, Span { start, end }: Span) -> bool {
        let present = View(self.open);
        if !present.sees(pool, start) {
            return false;
        }
        if !present.sees(pool, end) {
            return true;
        }
        if start == self.open.0 {
            return false;
        }
        let lived = start..end;
        end > self.committed.0 || self.retained.iter().any(|epoch| lived.contains(&epoch.0))
    }
}
