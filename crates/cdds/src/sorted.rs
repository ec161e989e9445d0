//! The layout of the paper, to be measured beside ours: entries of a node in the order of their
//! keys (§3.3.1), live and dead, found by halving. Not part of a product.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | level: 0 is a leaf |
//! | 8 | 8 | number of entries |
//! | 64 | 32 each, in a leaf | begun, ended, the key's first eight bytes, its record |
//! | 64 | 64 each, elsewhere | the same of a separator, and the child |
//!
//! To insert is to move entries by a slot, line by line from the far end, each line flushed and
//! fenced before the next one: what is moved is there twice for a while, and never not at all. A
//! dead slot that no version needs ends the moving, and its record is freed then. Splits, merges
//! and records are as ours, and so is a commit. One thread, one change to an epoch, no snapshots.
//!
//! Deliberately absent: the atomic change of the root (§3.3 leaves it out) and opening, so this is
//! nothing that lasts; fingerprints; copies of inner nodes in DRAM.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use pando_pmem::{Allocator, LINE_BYTES, Offset, Pmem, Pool, WORD_BYTES};
use pando_sync::LogEpoch;

use crate::probe::prefix_of;
use crate::record::{self, Record};
use crate::shared::whole;
use crate::tree::Error;

/// Entries of a node, as many as ours has in a leaf; few in tests.
const SLOTS: usize = if cfg!(test) { 5 } else { 62 };
const FEWEST: usize = SLOTS / 5 + 1;
const HEADER: u64 = LINE_BYTES;

/// A tree of nodes in order. Each change is a commit.
pub struct SortedTree<M> {
    pool: Arc<Pool<M>>,
    allocator: Allocator<M>,
    root: Offset,
    open: LogEpoch,
}

impl<M: Pmem> fmt::Debug for SortedTree<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SortedTree")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    end: u64,
    prefix: u64,
    record: Offset,
    child: Offset,
}

impl Entry {
    fn is_live(&self) -> bool {
        self.end == 0
    }
}

fn slot_bytes(level: u64) -> u64 {
    if level == 0 { 32 } else { LINE_BYTES }
}

impl<M: Pmem> SortedTree<M> {
    /// An empty tree in a pool of its own.
    pub fn create(pool: Arc<Pool<M>>) -> Result<Self, Error> {
        let allocator = Allocator::new(Arc::clone(&pool))?;
        let open = pool.first_epoch();
        let mut tree = Self {
            allocator,
            root: Offset::NONE,
            open,
            pool,
        };
        tree.pool.begin(open)?;
        tree.root = tree.make(0, &[])?;
        tree.commit()?;
        Ok(tree)
    }

    /// Puts a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.pool.begin(self.open)?;
        let made = self.record(key, value)?;
        let begun = self.begun(key, made, Offset::NONE);
        let path = self.descend(key);
        let old = self.find(path[path.len() - 1], key);
        let ends = old.map(|(slot, _)| slot);
        self.change(&path, ends.as_slice(), &[begun])?;
        self.commit()
    }

    /// The value of a key, if it is whole.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        let mut node = self.root;
        while self.level(node) > 0 {
            node = self.child_for(node, key).1.child;
        }
        let Some((_, entry)) = self.find(node, key) else {
            return Ok(None);
        };
        let at = entry.record;
        let record = Record::at(&self.pool, at).ok_or(Error::Damaged { at })?;
        Ok(Some(whole(record)?.value()))
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        let path = self.descend(key);
        let Some((slot, _)) = self.find(path[path.len() - 1], key) else {
            return Ok(false);
        };
        self.pool.begin(self.open)?;
        self.change(&path, &[slot], &[])?;
        self.commit()?;
        Ok(true)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.allocator.settle();
        self.pool.commit(self.open)?;
        self.allocator.set_horizon(self.open);
        self.open = self.open.next();
        Ok(())
    }

    fn record(&self, key: &[u8], value: &[u8]) -> Result<Offset, Error> {
        let take = |bytes| self.allocator.allocate(bytes, self.open);
        Ok(record::make(&self.pool, take, (key, value), 0)?)
    }

    fn begun(&self, key: &[u8], record: Offset, child: Offset) -> Entry {
        Entry {
            start: self.open.0,
            end: 0,
            prefix: prefix_of(key),
            record,
            child,
        }
    }

    fn load(&self, at: Offset) -> u64 {
        self.pool.memory().load(at)
    }

    fn store(&self, at: Offset, word: u64) {
        self.pool.memory().store(at, word);
    }

    fn flush(&self, at: Offset, bytes: u64) {
        self.pool.memory().flush(at, bytes as usize);
    }

    fn level(&self, node: Offset) -> u64 {
        self.load(node)
    }

    fn count(&self, node: Offset) -> usize {
        (self.load(node.plus(WORD_BYTES)) as usize).min(SLOTS)
    }

    fn slot_at(&self, node: Offset, slot: usize) -> Offset {
        node.plus(HEADER + slot as u64 * slot_bytes(self.level(node)))
    }

    fn entry(&self, node: Offset, slot: usize) -> Entry {
        let at = self.slot_at(node, slot);
        let words = self.pool.memory().row(at, 4);
        let child = match self.level(node) {
            0 => 0,
            _ => self.load(at.plus(4 * WORD_BYTES)),
        };
        Entry {
            start: words.load(0),
            end: words.load(1),
            prefix: words.load(2),
            record: Offset::new(words.load(3)),
            child: Offset::new(child),
        }
    }

    fn entries(&self, node: Offset) -> impl Iterator<Item = (usize, Entry)> {
        (0..self.count(node)).map(move |slot| (slot, self.entry(node, slot)))
    }

    fn live(&self, node: Offset) -> impl Iterator<Item = (usize, Entry)> {
        self.entries(node).filter(|(_, entry)| entry.is_live())
    }

    /// How an entry's key is to another one.
    fn order(&self, entry: &Entry, prefix: u64, key: &[u8]) -> Ordering {
        if entry.record.is_none() {
            return Ordering::Less;
        }
        entry.prefix.cmp(&prefix).then_with(|| {
            let record = Record::at(&self.pool, entry.record);
            record.map(Record::key).cmp(&Some(key))
        })
    }

    /// How many entries are at or below a key: by halving.
    fn place(&self, node: Offset, key: &[u8]) -> usize {
        let (prefix, mut low, mut high) = (prefix_of(key), 0, self.count(node));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.order(&self.entry(node, middle), prefix, key).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The live entry of a key in a leaf: the last one of its versions.
    fn find(&self, leaf: Offset, key: &[u8]) -> Option<(usize, Entry)> {
        let slot = self.place(leaf, key).checked_sub(1)?;
        let entry = self.entry(leaf, slot);
        let is_it = entry.is_live() && self.order(&entry, prefix_of(key), key).is_eq();
        is_it.then_some((slot, entry))
    }

    /// The live entry whose subtree has a key.
    fn child_for(&self, node: Offset, key: &[u8]) -> (usize, Entry) {
        let below = (0..self.place(node, key)).rev();
        let mut below = below.map(|slot| (slot, self.entry(node, slot)));
        let found = below.find(|(_, entry)| entry.is_live());
        found.expect("the lowest one is below every key")
    }

    /// The nodes from the root to the leaf of a key.
    fn descend(&self, key: &[u8]) -> Vec<Offset> {
        let mut path = vec![self.root];
        let mut node = self.root;
        while self.level(node) > 0 {
            node = self.child_for(node, key).1.child;
            path.push(node);
        }
        path
    }

    /// Ends entries of the last node of a way, and lets others begin there; copies it if it has no
    /// room for them, or too few are left.
    fn change(&mut self, path: &[Offset], ends: &[usize], begins: &[Entry]) -> Result<(), Error> {
        let (node, above) = path.split_last().expect("a way has a root");
        let live = self.live(*node).count() - ends.len() + begins.len();
        let is_short = !above.is_empty() && live < FEWEST && begins.len() < ends.len();
        for slot in ends {
            let at = self.slot_at(*node, *slot);
            self.store(at.plus(WORD_BYTES), self.open.0);
            self.flush(at, 2 * WORD_BYTES);
        }
        // From here on slots of ended entries may be anywhere.
        let mut left = begins;
        while let Some((first, rest)) = left.split_first().filter(|_| !is_short) {
            if !self.insert(*node, first) {
                break;
            }
            left = rest;
        }
        if !is_short && left.is_empty() {
            self.lower_root(*node, above);
            return Ok(());
        }
        self.copy(*node, above, left, is_short)
    }

    /// A root with one child is none.
    fn lower_root(&mut self, node: Offset, above: &[Offset]) {
        if above.is_empty() && self.level(node) > 0 {
            let mut live = self.live(node);
            if let (Some((_, only)), None) = (live.next(), live.next()) {
                drop(live);
                self.free_record(&only);
                self.free_node(node);
                self.root = only.child;
            }
        }
    }

    /// Frees a node whose live entries are elsewhere, and the records of its dead ones: until then
    /// they are what those are found by.
    fn free_node(&self, node: Offset) {
        for (_, entry) in self.entries(node).filter(|(_, entry)| !entry.is_live()) {
            self.free_record(&entry);
        }
        self.allocator.free(node, self.open);
    }

    fn free_record(&self, entry: &Entry) {
        if !entry.record.is_none() {
            self.allocator.free(entry.record, self.open);
        }
    }

    fn copy(
        &mut self,
        node: Offset,
        above: &[Offset],
        begins: &[Entry],
        is_short: bool,
    ) -> Result<(), Error> {
        let level = self.level(node);
        let mut entries: Vec<Entry> = self.live(node).map(|(_, entry)| entry).collect();
        entries.extend(begins);
        let mut gone = Vec::new();
        if let Some(parent) = above.last() {
            let siblings: Vec<_> = self.live(*parent).collect();
            let own = siblings.iter().position(|(_, entry)| entry.child == node);
            let own = own.expect("the parent has the node");
            gone.push(siblings[own]);
            let other = siblings
                .get(own + 1)
                .or(own.checked_sub(1).map(|at| &siblings[at]));
            if let Some(other) = other.filter(|_| is_short) {
                entries.extend(self.live(other.1.child).map(|(_, entry)| entry));
                self.free_node(other.1.child);
                gone.push(*other);
                gone.sort_by_key(|(slot, _)| *slot);
            }
        }
        self.sort(&mut entries);
        let parts = if entries.len() > SLOTS * 4 / 5 { 2 } else { 1 };
        let mut made = Vec::new();
        for part in entries.chunks(entries.len().div_ceil(parts).max(1)) {
            let child = self.make(level, part)?;
            // Each entry has a separator of its own.
            let named = match gone.first() {
                lowest if made.is_empty() => lowest.map_or(Offset::NONE, |(_, it)| it.record),
                _ => part[0].record,
            };
            made.push(if named.is_none() {
                self.begun(b"", named, child)
            } else {
                let key = Record::at(&self.pool, named).map_or(&b""[..], Record::key);
                self.begun(key, self.record(key, b"")?, child)
            });
        }
        self.free_node(node);
        if above.is_empty() {
            self.root = match made[..] {
                [only] => only.child,
                _ => self.make(level + 1, &made)?,
            };
            return Ok(());
        }
        let ends: Vec<usize> = gone.iter().map(|(slot, _)| *slot).collect();
        self.change(above, &ends, &made)
    }

    fn sort(&self, entries: &mut [Entry]) {
        entries.sort_by(|a, b| {
            let key = Record::at(&self.pool, b.record).map_or(&b""[..], Record::key);
            match (a.record.is_none(), b.record.is_none()) {
                (false, false) => self.order(a, b.prefix, key),
                (a, b) => b.cmp(&a),
            }
        });
    }

    /// Inserts an entry in its place; whether there was room.
    fn insert(&self, node: Offset, entry: &Entry) -> bool {
        let key = Record::at(&self.pool, entry.record).map_or(&b""[..], Record::key);
        let count = self.count(node);
        let place = if entry.record.is_none() {
            let lowest = |(_, entry): &(usize, Entry)| entry.record.is_none();
            self.entries(node).take_while(lowest).count()
        } else {
            self.place(node, key)
        };
        if count < SLOTS {
            if count > 0 {
                self.write(node, count, &self.entry(node, count - 1));
                self.pool.memory().fence();
            }
            self.store(node.plus(WORD_BYTES), count as u64 + 1);
            self.flush(node, 2 * WORD_BYTES);
            self.move_up(node, place, count);
            self.write(node, place, entry);
            return true;
        }
        // What ended in the open epoch a crash brings back.
        let is_dead = |entry: &Entry| !entry.is_live() && entry.end < self.open.0;
        let dead = self.entries(node).filter(|(_, entry)| is_dead(entry));
        let nearest = dead.min_by_key(|(slot, _)| slot.abs_diff(place));
        let Some((dead, gone)) = nearest else {
            return false;
        };
        self.free_record(&gone);
        if dead >= place {
            self.move_up(node, place, dead);
            self.write(node, place, entry);
        } else {
            for slot in dead..place - 1 {
                self.write(node, slot, &self.entry(node, slot + 1));
                self.pool.memory().fence();
            }
            self.write(node, place - 1, entry);
        }
        true
    }

    /// Moves the entries from `place` on up by a slot, into that of `end`.
    fn move_up(&self, node: Offset, place: usize, end: usize) {
        let in_line = (LINE_BYTES / slot_bytes(self.level(node))) as usize;
        for slot in (place + 1..=end.min(SLOTS - 1)).rev() {
            self.write(node, slot, &self.entry(node, slot - 1));
            // Before a slot of the next line is written to.
            if slot.is_multiple_of(in_line) {
                self.pool.memory().fence();
            }
        }
    }

    fn write(&self, node: Offset, slot: usize, entry: &Entry) {
        let at = self.slot_at(node, slot);
        // Nobody's, until its beginning is stored last.
        let words = [0, entry.end, entry.prefix, entry.record.get()];
        for (index, word) in (0..).zip(words) {
            self.store(at.plus(index * WORD_BYTES), word);
        }
        if self.level(node) > 0 {
            self.store(at.plus(4 * WORD_BYTES), entry.child.get());
        }
        self.store(at, entry.start);
        self.flush(at, slot_bytes(self.level(node)));
    }

    fn make(&self, level: u64, entries: &[Entry]) -> Result<Offset, Error> {
        let bytes = HEADER + SLOTS as u64 * slot_bytes(level);
        let at = self.allocator.allocate(bytes, self.open)?;
        let mut image = vec![0; bytes as usize];
        let mut set = |at: u64, word: u64| {
            image[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        };
        set(0, level);
        set(8, entries.len() as u64);
        for (index, entry) in (0..).zip(entries) {
            let from = HEADER + index * slot_bytes(level);
            set(from, self.open.0);
            set(from + 16, entry.prefix);
            set(from + 24, entry.record.get());
            if level > 0 {
                set(from + 32, entry.child.get());
            }
        }
        self.pool.memory().write(at, &image);
        self.flush(at, bytes);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fastrand::Rng;
    use pando_pmem::{Shape, Simulated};

    use super::*;

    #[test]
    fn random_changes_are_those_of_the_model() {
        for seed in 0..20 {
            let mut rng = Rng::with_seed(seed);
            let shape = Shape {
                node_bytes: 512,
                chunk_bytes: 4096,
            };
            let pool = Pool::create(Simulated::new(1 << 20), shape).unwrap();
            let mut tree = SortedTree::create(Arc::new(pool)).unwrap();
            let mut model = BTreeMap::new();
            let most = [20, 200][seed as usize % 2];
            for serial in 0..600_u64 {
                let key = format!("a key of {:03}", rng.u32(..most)).into_bytes();
                if rng.u8(..5) < 3 {
                    let value = serial.to_le_bytes().to_vec();
                    tree.put(&key, &value).unwrap();
                    model.insert(key.clone(), value);
                } else {
                    let was = model.remove(&key).is_some();
                    assert_eq!(tree.remove(&key).unwrap(), was, "seed {seed}, {serial}");
                }
                let found = tree.get(&key).unwrap().map(<[u8]>::to_vec);
                assert_eq!(found, model.get(&key).cloned(), "seed {seed}, {serial}");
            }
            for (key, value) in &model {
                assert_eq!(tree.get(key).unwrap(), Some(&value[..]), "seed {seed}");
            }
            // Nothing is lost and nothing is left.
            let taken = |tree: &SortedTree<_>| tree.allocator.count().0;
            let full = taken(&tree);
            for key in model.keys() {
                assert!(tree.remove(key).unwrap());
            }
            let empty = taken(&tree);
            assert!(empty < full && empty < 2 * 512, "{empty} bytes of {full}");
        }
    }
}
