//! The entries of one tree in one shard, in order: packed into leaves, which an ordinary ordered
//! map finds.
//!
//! A set of the standard library takes 50 bytes and more for the entry of a short key: its places
//! have the length of the longest entry without a block of its own, and a third of them are free.
//! A leaf is one block of bytes with a few dozen neighbours:
//!
//! | bytes | what |
//! |---|---|
//! | 6 | the deadline, or [`LATE`] if it is that or later |
//! | 8 | then only: the deadline |
//! | 1 | the length of the key, or [`LONG`] if it is that or longer |
//! | 4 | then only: the length |
//! | as said | the key |
//!
//! Invariant:
//! - **XL1 between-separators** The entries of a leaf, one at least, are in order, at or above the
//!   leaf's key in the map, its *separator*, and below the next one. The first separator is the
//!   least that an entry could be.

use std::collections::{BTreeMap, btree_map};
use std::iter::FusedIterator;
use std::ops::Bound;

use pando_engine::Deadline;

use super::{Entry, EntryKey};
use crate::clock::Milliseconds;

const DEADLINE_BYTES: usize = 6;
const LENGTH_BYTES: usize = size_of::<u32>();

/// Bytes before the key of most entries.
const HEAD_BYTES: usize = DEADLINE_BYTES + 1;

/// The deadlines from this one on take more bytes: some 8,900 years after 1970.
const LATE: u64 = (1 << (8 * DEADLINE_BYTES)) - 1;

/// The lengths of keys from this one on take more bytes.
const LONG: usize = u8::MAX as usize;

/// A leaf with more bytes is split, unless it has one entry. Longer leaves would be found in a
/// smaller map and searched longer.
const LEAF_BYTES_MAX: usize = 1024;

/// A leaf with less is joined with the next one, if both together are at most half full.
const LEAF_BYTES_MIN: usize = LEAF_BYTES_MAX / 4;

/// A leaf that grows gets this share of its length as spare room; one with four times as much
/// gives it back.
const SPARE_SHARE: usize = 16;

/// Entries in order of their deadlines, then keys.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    by_separator: BTreeMap<Entry, Leaf>,
    len: usize,
}

impl Leaves {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the entry is new. O(log entries).
    pub(super) fn insert(&mut self, entry: &Entry) -> bool {
        if self.is_empty() {
            // XL1: no entry is below the first separator.
            self.by_separator
                .insert((Deadline(0), EntryKey::new()), Leaf::default());
        }
        // Most entries are the latest so far: lives of one length that begin now. The last leaf is
        // found without a search.
        let last = self.by_separator.last_entry().expect("there is a first");
        let leaf = if last.key() <= entry {
            last.into_mut()
        } else {
            let (_, leaf) = (self.by_separator.range_mut(..=entry).next_back())
                .expect("the first separator is below all entries");
            leaf
        };
        let Err(at) = leaf.find(entry) else {
            return false;
        };
        leaf.insert(at, entry);
        self.len += 1;
        if let Some(upper) = leaf.split() {
            self.by_separator.insert(upper.first(), upper);
        }
        true
    }

    /// Returns whether the entry was there. O(log entries).
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        let found = self.by_separator.range_mut(..=entry).next_back();
        let Some((separator, leaf)) = found else {
            return false;
        };
        let Ok(bytes) = leaf.find(entry) else {
            return false;
        };
        leaf.remove(bytes);
        self.len -= 1;
        if leaf.bytes.len() < LEAF_BYTES_MIN {
            let separator = separator.clone();
            self.join(&separator);
        }
        true
    }

    /// Takes the next leaf into a short one, if both together are short or this one is empty. So
    /// the first separator stays until no entry is left.
    fn join(&mut self, separator: &Entry) {
        let bytes = self.by_separator[separator].bytes.len();
        let above = (Bound::Excluded(separator), Bound::Unbounded);
        let next = self.by_separator.range(above).next();
        let Some((next, _)) =
            next.filter(|(_, next)| bytes == 0 || bytes + next.bytes.len() <= LEAF_BYTES_MAX / 2)
        else {
            if bytes == 0 {
                self.by_separator.remove(separator);
            }
            return;
        };
        let next = next.clone();
        let upper = self.by_separator.remove(&next).expect("just seen");
        let leaf = self.by_separator.get_mut(separator).expect("just seen");
        if bytes == 0 {
            *leaf = upper;
        } else {
            leaf.append(&upper);
        }
    }

    /// The first entry.
    pub(super) fn first(&self) -> Option<(Deadline, &[u8])> {
        self.iter().next()
    }

    /// Takes the first entry if it is due.
    pub(super) fn take_due(&mut self, now: Milliseconds) -> Option<Entry> {
        let mut first = self.by_separator.first_entry()?;
        let mut entries = first.get().entries();
        let (deadline, key) = entries.next()?;
        if !deadline.has_passed(now) {
            return None;
        }
        let (entry, end) = ((deadline, EntryKey::from_slice(key)), entries.at);
        first.get_mut().remove(0..end);
        self.len -= 1;
        if first.get().bytes.is_empty() {
            let separator = first.key().clone();
            self.join(&separator);
        }
        Some(entry)
    }

    /// All entries.
    fn iter(&self) -> impl Iterator<Item = (Deadline, &[u8])> {
        self.by_separator.values().flat_map(Leaf::entries)
    }

    /// The entries after this one, or all. O(log entries) to begin.
    pub(super) fn after<'a>(
        &'a self,
        last: Option<&'a Entry>,
    ) -> impl Iterator<Item = (Deadline, &'a [u8])> {
        // XL1: the next entry is in this leaf or begins the next one.
        let leaf = last.and_then(|last| self.by_separator.range(..=last).next_back());
        let from = leaf.map_or(Bound::Unbounded, |(separator, _)| {
            Bound::Included(separator)
        });
        let leaves = self.by_separator.range((from, Bound::Unbounded));
        let entries = leaves.flat_map(|(_, leaf)| leaf.entries());
        entries
            .skip_while(move |entry| last.is_some_and(|(deadline, key)| *entry <= (*deadline, key)))
    }

    /// The leaves, to be freed one by one.
    pub(super) fn into_leaves(self) -> btree_map::IntoValues<Entry, Leaf> {
        self.by_separator.into_values()
    }
}

/// Neighbours, packed; see the header.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    bytes: Vec<u8>,
    /// Where the last entry begins; 0 if there is none.
    last: usize,
}

impl Leaf {
    fn entries(&self) -> Packed<'_> {
        self.entries_at(0)
    }

    fn entries_at(&self, at: usize) -> Packed<'_> {
        Packed {
            bytes: &self.bytes,
            at,
        }
    }

    /// How many entries there are. O(entries).
    pub(super) fn len(&self) -> usize {
        self.entries().count()
    }

    fn first(&self) -> Entry {
        let (deadline, key) = self.entries().next().expect("XL1");
        (deadline, EntryKey::from_slice(key))
    }

    /// The bytes of an entry, or where it would begin. O(1) for what is after the last.
    fn find(&self, (deadline, key): &Entry) -> Result<std::ops::Range<usize>, usize> {
        let last = self.entries_at(self.last).next();
        if last.is_none_or(|last| last < (*deadline, key)) {
            return Err(self.bytes.len());
        }
        let mut entries = self.entries();
        loop {
            entries.skip_below(*deadline);
            let at = entries.at;
            match entries.next() {
                Some(met) if met < (*deadline, key) => {}
                Some(met) if met == (*deadline, key) => return Ok(at..entries.at),
                _ => return Err(at),
            }
        }
    }

    fn insert(&mut self, at: usize, (deadline, key): &Entry) {
        let end = self.bytes.len();
        let most = HEAD_BYTES + size_of::<u64>() + LENGTH_BYTES + key.len();
        if self.bytes.capacity() - end < most {
            self.bytes.reserve_exact(most + end / SPARE_SHARE);
        }
        let head = deadline.0.min(LATE);
        let length = [key.len().min(LONG) as u8];
        self.bytes
            .extend_from_slice(&head.to_be_bytes()[size_of::<u64>() - DEADLINE_BYTES..]);
        if head == LATE {
            self.bytes.extend_from_slice(&deadline.0.to_be_bytes());
        }
        self.bytes.extend_from_slice(&length);
        if key.len() >= LONG {
            self.bytes
                .extend_from_slice(&(key.len() as u32).to_be_bytes());
        }
        self.bytes.extend_from_slice(key);
        if at == end {
            self.last = at;
        } else {
            let bytes = self.bytes.len() - end;
            self.bytes[at..].rotate_right(bytes);
            self.last += bytes;
        }
        debug_assert!(self.find(&(*deadline, key.clone())).is_ok());
    }

    fn remove(&mut self, bytes: std::ops::Range<usize>) {
        if bytes.end == self.bytes.len() {
            self.last = self.last_before(bytes.start);
        } else {
            self.last -= bytes.len();
        }
        self.bytes.drain(bytes);
        let spare = self.bytes.len() / SPARE_SHARE;
        if self.bytes.capacity() - self.bytes.len() > 4 * spare {
            self.bytes.shrink_to(self.bytes.len() + spare);
        }
    }

    /// Where the last entry before `end` begins; 0 if there is none. O(entries).
    fn last_before(&self, end: usize) -> usize {
        let (mut entries, mut last) = (self.entries(), 0);
        while entries.at < end {
            last = entries.at;
            entries.next();
        }
        last
    }

    /// Takes the entries of the next leaf.
    fn append(&mut self, next: &Self) {
        self.last = self.bytes.len() + next.last;
        self.bytes.reserve_exact(next.bytes.len());
        self.bytes.extend_from_slice(&next.bytes);
    }

    /// The upper half of a leaf that is too long, if it has two entries.
    fn split(&mut self) -> Option<Self> {
        let half = self.bytes.len() / 2;
        if self.bytes.len() <= LEAF_BYTES_MAX {
            return None;
        }
        let mut entries = self.entries();
        entries.next();
        let mut at = entries.at;
        while entries.at <= half {
            at = entries.at;
            entries.next();
        }
        if at == self.bytes.len() {
            return None;
        }
        let upper = Self {
            bytes: self.bytes.split_off(at),
            last: self.last - at,
        };
        self.last = self.last_before(at);
        self.bytes.shrink_to_fit();
        Some(upper)
    }
}

/// The entries of a leaf.
#[derive(Clone, Debug)]
struct Packed<'a> {
    bytes: &'a [u8],
    /// Where the next one begins.
    at: usize,
}

impl<'a> Packed<'a> {
    /// A number of `N` bytes.
    fn number<const N: usize>(&mut self) -> u64 {
        let bytes = self.bytes[self.at..self.at + N].iter();
        self.at += N;
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Skips entries with deadlines before this one, in few instructions: a change of a deadline is
    /// two searches. Stops at an entry of other lengths than most.
    #[inline]
    fn skip_below(&mut self, deadline: Deadline) {
        let head = deadline.0.min(LATE);
        while let Some(word) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            let word = u64::from_be_bytes(*word) >> 8;
            let length = usize::from(word as u8);
            if word >> u8::BITS >= head || length == LONG {
                break;
            }
            self.at += HEAD_BYTES + length;
        }
    }

    /// The next entry, of any length.
    #[cold]
    fn next_long(&mut self) -> Option<(Deadline, &'a [u8])> {
        if self.at == self.bytes.len() {
            return None;
        }
        let mut deadline = self.number::<DEADLINE_BYTES>();
        if deadline == LATE {
            deadline = self.number::<{ size_of::<u64>() }>();
        }
        let mut length = self.number::<1>() as usize;
        if length == LONG {
            length = self.number::<LENGTH_BYTES>() as usize;
        }
        let key = &self.bytes[self.at..self.at + length];
        self.at += length;
        Some((Deadline(deadline), key))
    }
}

impl<'a> Iterator for Packed<'a> {
    type Item = (Deadline, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        if let Some(word) = rest.first_chunk() {
            // Most entries: deadline and length in one load.
            let word = u64::from_be_bytes(*word) >> 8;
            let (deadline, length) = (word >> u8::BITS, usize::from(word as u8));
            if deadline != LATE && length != LONG {
                let key = &rest[HEAD_BYTES..HEAD_BYTES + length];
                self.at += HEAD_BYTES + length;
                return Some((Deadline(deadline), key));
            }
        }
        self.next_long()
    }
}

impl FusedIterator for Packed<'_> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    const KEY_BYTES_MAX: usize = 2000;

    /// Short and long keys, few of each, and deadlines before and after [`LATE`].
    fn drawn(random: &mut Rng) -> Entry {
        let deadline = match random.u8(..10) {
            0 => u64::MAX - random.u64(..3),
            1 => LATE - 1 + random.u64(..3),
            _ => random.u64(..300),
        };
        let bytes = match random.u8(..20) {
            0 => random.usize(LONG - 1..LONG + 2),
            1 => random.usize(..=KEY_BYTES_MAX),
            _ => random.usize(..20),
        };
        let key = vec![b'a' + random.u8(..3); bytes];
        (Deadline(deadline), key.into())
    }

    fn check(leaves: &Leaves, model: &BTreeSet<Entry>) {
        let entries = leaves.iter().map(|(deadline, key)| (deadline, key.into()));
        assert!(entries.eq(model.iter().cloned()));
        assert_eq!(leaves.len(), model.len());
        let first = leaves.by_separator.keys().next();
        assert!(first.is_none_or(|(deadline, key)| deadline.0 == 0 && key.is_empty()));
        let mut separators = leaves.by_separator.keys().skip(1);
        for (separator, leaf) in &leaves.by_separator {
            // XL1.
            let next = separators.next();
            assert!(leaf.len() > 0 && *separator <= leaf.first());
            let last = leaf.entries().last().expect("not empty");
            assert!(next.is_none_or(|(deadline, key)| last < (*deadline, key)));
            assert!(leaf.bytes.len() <= LEAF_BYTES_MAX + KEY_BYTES_MAX + 2 * size_of::<u64>());
            assert_eq!(leaf.last, leaf.last_before(leaf.bytes.len()));
        }
    }

    #[test]
    fn leaves_are_what_a_set_is() {
        for seed in 0..20 {
            let mut random = Rng::with_seed(seed);
            let (mut leaves, mut model) = (Leaves::default(), BTreeSet::new());
            for step in 0..3000 {
                let entry = drawn(&mut random);
                // They fill, shrink, and fill again.
                if random.u16(..1000) < [700, 350][step / 1000 % 2] {
                    assert_eq!(leaves.insert(&entry), model.insert(entry));
                } else if random.u8(..8) == 0 {
                    let now = Milliseconds(random.u64(..20));
                    let due = model.first().is_some_and(|first| first.0.has_passed(now));
                    let expected = if due { model.pop_first() } else { None };
                    assert_eq!(leaves.take_due(now), expected);
                } else {
                    let there = model
                        .range(&entry..)
                        .next()
                        .cloned()
                        .filter(|_| step % 2 == 0);
                    let entry = there.unwrap_or(entry);
                    assert_eq!(leaves.remove(&entry), model.remove(&entry));
                }
                if step % 100 == 0 {
                    check(&leaves, &model);
                    let last = drawn(&mut random);
                    let after = leaves.after(Some(&last)).next();
                    let next = model
                        .range((Bound::Excluded(&last), Bound::Unbounded))
                        .next();
                    assert_eq!(after, next.map(|(deadline, key)| (*deadline, &key[..])));
                }
            }
            check(&leaves, &model);
            for entry in &model {
                assert!(leaves.remove(entry));
            }
            assert!(leaves.is_empty() && leaves.by_separator.is_empty());
        }
    }

    /// What an entry takes, the map included, while keys come, go and get other deadlines.
    #[test]
    fn a_short_key_takes_thirty_bytes() {
        let mut random = Rng::with_seed(1);
        let mut leaves = Leaves::default();
        let mut entries = Vec::new();
        for step in 0..60_000_u64 {
            let key = format!("key:{step:012}");
            let entry = (
                Deadline(1 << 40 | random.u64(..1 << 23)),
                key.as_bytes().into(),
            );
            assert!(leaves.insert(&entry));
            entries.push(entry);
            if step >= 20_000 {
                let leaving = entries.swap_remove(random.usize(..entries.len()));
                assert!(leaves.remove(&leaving));
            }
        }
        let blocks = leaves
            .by_separator
            .values()
            .map(|leaf| leaf.bytes.capacity() + 16);
        // Two thirds of the map's places are in use.
        let map = leaves.by_separator.len() * size_of::<(Entry, Leaf)>() * 3 / 2;
        let bytes = (blocks.sum::<usize>() + map) as f64 / leaves.len() as f64;
        assert!(bytes < 30.0, "{bytes} bytes for each entry");
    }
}
