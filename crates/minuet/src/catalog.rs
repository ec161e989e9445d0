//! The catalog: a B-tree of its own, without versions, whose leaves are on every memnode.
//!
//! Follows §5.1. A transaction at a branch's tip compares the leaf that has the branch at each
//! memnode that takes part, wherever that is; so leaves are replicated, as the tip of a tree
//! without branches is (§4.1). Inner nodes are read dirty, and a leaf's fences say whether the way
//! to it was right (§3). Here there is one inner node: branches are bounded ([`BRANCHES_MAX`]).
//!
//! Departs from the paper:
//! - The leaves have fixed slots, the same on each memnode.
//! - The root is replicated as well. It changes when a leaf is split or becomes empty.
//! - Leaves are small ([`LEAF_BYTES`]), since whoever uses one branch meets whoever changes
//!   another on the same leaf. And what changes with each branch has a slot by itself (`Head`).
//!
//! All numbers are little-endian, those in keys aside. A leaf:
//!
//! | bytes | field |
//! |---|---|
//! | 2, and so many | the low fence |
//! | 2, and so many | the high fence; `0xffff`: there is none |
//! | 2, and so many; 2, and so many | a key and what it has, in the order of keys |
//!
//! The root is as many pairs: where a leaf begins (2, and so many), its slot less the first (2).
//!
//! Invariants:
//! - **MK1 leaves-cover** The fences of the leaves cut the range of all keys without gap or
//!   overlap.
//! - **MK2 replicas-agree** The catalog's slots hold the same on every memnode.

use std::sync::Arc;

use pando_memnode::{Bytes, Slot};

use crate::error::{Error, Stop};
use crate::limits::BRANCHES_MAX;
use crate::transaction::Transaction;

const ROOT: Slot = Slot(3);
/// Counters, see [`Head`].
pub(crate) const HEAD: Slot = Slot(4);
const LEAVES: u64 = 5;
/// Leaves that there are slots for.
const LEAVES_MAX: u64 = 1 << 12;
/// The first slot after the catalog.
pub(crate) const SLOTS_END: u64 = LEAVES + LEAVES_MAX;
/// Bytes of a leaf.
const LEAF_BYTES: usize = 2048;
const NO_HIGH: u16 = u16::MAX;

/// What changes with each branch that is made or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The next line, and the next branch: neither number is ever used again.
    pub(crate) next_line: u32,
    pub(crate) next_branch: u32,
    /// Branches that there are.
    pub(crate) branches: u32,
    /// The branch that new connections use.
    pub(crate) mainline: u32,
    /// How often branches were made, dropped or reset, or lines removed.
    pub(crate) changes: u64,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            next_line: number(0)?,
            next_branch: number(4)?,
            branches: number(8)?,
            mainline: number(12)?,
            changes: u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?),
        })
    }

    fn encode(self) -> Vec<u8> {
        let numbers = [
            self.next_line,
            self.next_branch,
            self.branches,
            self.mainline,
        ];
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        numbers.chain(self.changes.to_le_bytes()).collect()
    }
}

/// Takes a length and as many bytes.
fn take<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (taken, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *bytes = rest;
    Some(taken)
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend((field.len() as u16).to_le_bytes());
    bytes.extend(field);
}

type Entry = (Vec<u8>, Vec<u8>);

/// A leaf taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
    pub(crate) entries: Vec<Entry>,
}

/// The fences of a leaf, and its entries' bytes.
type Fences<'b> = (&'b [u8], Option<&'b [u8]>, &'b [u8]);

/// Finds the fences; `None` if it is no leaf.
fn fences(mut bytes: &[u8]) -> Option<Fences<'_>> {
    let low = take(&mut bytes)?;
    let high = match bytes.split_first_chunk()? {
        (len, rest) if u16::from_le_bytes(*len) == NO_HIGH => {
            bytes = rest;
            None
        }
        _ => Some(take(&mut bytes)?),
    };
    Some((low, high, bytes))
}

fn covers(bytes: &[u8], key: &[u8]) -> bool {
    fences(bytes).is_some_and(|(low, high, _)| low <= key && high.is_none_or(|high| key < high))
}

/// What a leaf has for a key. Nothing is copied: each use of a branch looks here.
fn find<'b>(leaf: &'b [u8], key: &[u8]) -> Option<&'b [u8]> {
    let (_, _, mut entries) = fences(leaf)?;
    while let (Some(found), Some(value)) = (take(&mut entries), take(&mut entries)) {
        if found >= key {
            return (found == key).then_some(value);
        }
    }
    None
}

impl Leaf {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (low, high, mut rest) = fences(bytes)?;
        let mut entries = Vec::new();
        while let (Some(key), Some(value)) = (take(&mut rest), take(&mut rest)) {
            entries.push((key.to_vec(), value.to_vec()));
        }
        rest.is_empty().then(|| Self {
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            entries,
        })
    }

    fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(LEAF_BYTES);
        put(&mut bytes, &self.low);
        match &self.high {
            Some(high) => put(&mut bytes, high),
            None => bytes.extend(NO_HIGH.to_le_bytes()),
        }
        for (key, value) in &self.entries {
            put(&mut bytes, key);
            put(&mut bytes, value);
        }
        debug_assert_eq!(Self::decode(&bytes).as_ref(), Some(self));
        bytes.into()
    }

    fn is_too_long(&self) -> bool {
        let entries = self.entries.iter();
        let bytes: usize = entries
            .map(|(key, value)| 4 + key.len() + value.len())
            .sum();
        bytes > LEAF_BYTES && self.entries.len() > 1
    }

    /// Takes the upper part away: the last entry alone if that is new, since most keys are added in
    /// their order, or else half.
    fn split(&mut self, at_the_end: bool) -> Self {
        let count = self.entries.len();
        let at = if at_the_end { count - 1 } else { count / 2 };
        let entries = self.entries.split_off(at);
        let low = entries[0].0.clone();
        Self {
            high: self.high.replace(low.clone()),
            low,
            entries,
        }
    }
}

/// Where the leaves are, in the order of their keys.
pub(crate) type Directory = Vec<(Vec<u8>, Slot)>;

fn decode_directory(mut bytes: &[u8]) -> Option<Directory> {
    let mut directory = Directory::new();
    while !bytes.is_empty() {
        let low = take(&mut bytes)?;
        let (index, rest) = bytes.split_first_chunk()?;
        let slot = LEAVES + u64::from(u16::from_le_bytes(*index));
        directory.push((low.to_vec(), Slot(slot)));
        bytes = rest;
    }
    (!directory.is_empty()).then_some(directory)
}

fn encode_directory(directory: &Directory) -> Bytes {
    let mut bytes = Vec::new();
    for (low, slot) in directory {
        put(&mut bytes, low);
        bytes.extend(((slot.0 - LEAVES) as u16).to_le_bytes());
    }
    bytes.into()
}

fn index_of(directory: &Directory, key: &[u8]) -> usize {
    directory.partition_point(|(low, _)| **low <= *key) - 1
}

impl Transaction<'_> {
    /// Founds the catalog: an empty leaf.
    pub(crate) fn found_catalog(&mut self, head: Head) -> Result<(), Stop> {
        let leaf = Leaf {
            low: Vec::new(),
            high: None,
            entries: Vec::new(),
        };
        let first = Slot(LEAVES);
        let all = [ROOT, HEAD, first].map(|slot| self.replica(slot));
        for read in all {
            read?;
        }
        self.write_replica(ROOT, encode_directory(&vec![(Vec::new(), first)]));
        self.write_replica(HEAD, head.encode().into());
        self.write_replica(first, leaf.encode());
        Ok(())
    }

    /// The counters. The transaction commits only if they still are so.
    pub(crate) fn head(&mut self) -> Result<Head, Stop> {
        let bytes = self.replica(HEAD)?;
        Head::decode(&bytes).ok_or_else(|| Error::Unfounded.into())
    }

    pub(crate) fn set_head(&mut self, head: Head) {
        self.write_replica(HEAD, head.encode().into());
    }

    fn directory(&mut self) -> Result<Arc<Directory>, Stop> {
        let bytes = self.dirty_replica(ROOT)?;
        if let Some(directory) = self.known_directory(&bytes) {
            return Ok(directory);
        }
        let directory = decode_directory(&bytes).ok_or(Error::Unfounded)?;
        Ok(self.know_directory(bytes, directory))
    }

    /// The leaf that is responsible for a key, and its slot. The commit compares it.
    fn leaf(&mut self, key: &[u8]) -> Result<(Slot, Bytes), Stop> {
        let directory = self.directory()?;
        let slot = directory[index_of(&directory, key)].1;
        let bytes = self.replica(slot)?;
        if !covers(&bytes, key) {
            return Err(Stop::Conflict);
        }
        Ok((slot, bytes))
    }

    /// What the catalog has for a key. The transaction commits only if it still has.
    pub(crate) fn catalog_get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let (_, leaf) = self.leaf(key)?;
        Ok(find(&leaf, key).map(<[u8]>::to_vec))
    }

    /// What the catalog had for a key at some time, if what the proxy remembers has it.
    pub(crate) fn catalog_recall(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let directory = self.directory()?;
        let leaf = self.dirty_replica(directory[index_of(&directory, key)].1)?;
        Ok(find(&leaf, key).map(<[u8]>::to_vec))
    }

    pub(crate) fn catalog_put(&mut self, key: &[u8], value: Vec<u8>) -> Result<(), Stop> {
        let (slot, bytes) = self.leaf(key)?;
        let mut leaf = Leaf::decode(&bytes).ok_or(Stop::Conflict)?;
        let found = leaf.entries.binary_search_by(|(of, _)| (**of).cmp(key));
        match found {
            Ok(index) => leaf.entries[index].1 = value,
            Err(index) => leaf.entries.insert(index, (key.to_vec(), value)),
        }
        if leaf.is_too_long() {
            let at_the_end = found == Err(leaf.entries.len() - 1);
            let upper = leaf.split(at_the_end);
            let mut directory = self.replica_directory()?;
            let mut taken: Vec<_> = directory.iter().map(|(_, slot)| slot.0).collect();
            taken.sort_unstable();
            let free = (LEAVES..).zip(&taken).find(|(slot, taken)| slot != *taken);
            let free = free.map_or(LEAVES + taken.len() as u64, |(slot, _)| slot);
            if free >= SLOTS_END {
                return Err(Error::TooManyBranches.into());
            }
            let free = Slot(free);
            self.replica(free)?;
            self.write_replica(free, upper.encode());
            let index = index_of(&directory, &upper.low) + 1;
            directory.insert(index, (upper.low, free));
            self.write_replica(ROOT, encode_directory(&directory));
        }
        self.write_replica(slot, leaf.encode());
        Ok(())
    }

    pub(crate) fn catalog_remove(&mut self, key: &[u8]) -> Result<(), Stop> {
        let (slot, bytes) = self.leaf(key)?;
        let mut leaf = Leaf::decode(&bytes).ok_or(Stop::Conflict)?;
        leaf.entries.retain(|(of, _)| **of != *key);
        if !leaf.entries.is_empty() || (leaf.low.is_empty() && leaf.high.is_none()) {
            self.write_replica(slot, leaf.encode());
            return Ok(());
        }
        // The leaf goes; a neighbour covers its keys (MK1 leaves-cover).
        let mut directory = self.replica_directory()?;
        let index = index_of(&directory, key);
        let neighbour = directory[if index > 0 { index - 1 } else { 1 }].1;
        let bytes = self.replica(neighbour)?;
        let mut other = Leaf::decode(&bytes).ok_or(Stop::Conflict)?;
        if index > 0 {
            other.high = leaf.high;
            directory.remove(index);
        } else {
            other.low = Vec::new();
            directory.remove(0);
            directory[0].0 = Vec::new();
        }
        self.write_replica(neighbour, other.encode());
        self.write_replica(slot, Bytes::from([0].as_slice()));
        self.write_replica(ROOT, encode_directory(&directory));
        Ok(())
    }

    /// The root, to change it.
    fn replica_directory(&mut self) -> Result<Directory, Stop> {
        let bytes = self.replica(ROOT)?;
        decode_directory(&bytes).ok_or(Stop::Conflict)
    }

    /// The entries whose keys begin with `prefix`, from `from` on, up to `limit` of them.
    pub(crate) fn catalog_scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<Entry>, Stop> {
        let mut at = from.max(prefix).to_vec();
        let mut found = Vec::new();
        self.fetch_leaves(prefix)?;
        loop {
            let (_, bytes) = self.leaf(&at)?;
            let leaf = Leaf::decode(&bytes).ok_or(Stop::Conflict)?;
            for (key, value) in leaf.entries {
                if *key >= *at && key.starts_with(prefix) {
                    found.push((key, value));
                }
                if found.len() == limit {
                    return Ok(found);
                }
            }
            match leaf.high {
                Some(high) if *high < *prefix || high.starts_with(prefix) => at = high,
                _ => return Ok(found),
            }
        }
    }

    /// Has all leaves with a prefix fetched in one wave.
    fn fetch_leaves(&mut self, prefix: &[u8]) -> Result<(), Stop> {
        let directory = self.directory()?;
        let first = index_of(&directory, prefix);
        let of = directory[first..]
            .iter()
            .take_while(|(low, _)| **low <= *prefix || low.starts_with(prefix));
        let all: Vec<_> = of.map(|(_, slot)| *slot).collect();
        let mut read = Ok(());
        for slot in all {
            read = read.and(self.replica(slot).map(|_| ()));
        }
        read
    }
}

const _: () = {
    // The root names every leaf, whatever the keys.
    let key = crate::limits::NAME_BYTES_MAX + 16;
    assert!(LEAVES_MAX as usize * (4 + key) <= pando_memnode::limits::SLOT_BYTES_MAX);
    // As many branches as are allowed fit, if names have 40 bytes: 24 to a leaf with their lines.
    assert!(BRANCHES_MAX as u64 / 4 <= LEAVES_MAX);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_reads_as_it_was_written() {
        let entry = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        let leaf = Leaf {
            low: b"b".to_vec(),
            high: Some(b"x".to_vec()),
            entries: vec![entry(b"b", b"1"), entry(b"c", b""), entry(b"dd", b"3")],
        };
        let bytes = leaf.encode();
        assert_eq!(Leaf::decode(&bytes), Some(leaf));
        assert_eq!(find(&bytes, b"c"), Some(&b""[..]));
        assert_eq!(find(&bytes, b"d"), None);
        for (key, is) in [
            (&b"a"[..], false),
            (b"b", true),
            (b"w", true),
            (b"x", false),
        ] {
            assert_eq!(covers(&bytes, key), is);
        }
        for len in 0..bytes.len() {
            let _ = Leaf::decode(&bytes[..len]);
            let _ = find(&bytes[..len], b"c");
            let _ = decode_directory(&bytes[..len]);
        }
        assert!(!covers(&[0], b"c") && !covers(b"", b"c"));
    }
}
