//! Groups: changes that all stay, or are all taken back.
//!
//! A group notes what each pair was before it first changes it. Taking it back lets entries refer
//! to the same records again, and removes those that were not there.
//!
//! - **CB1 freed-at-its-end** The records that a group replaces or removes are freed when it ends,
//!   in an epoch that is still open: until then they can be what their pairs have again.
//! - **CB2 no-commit-within** No epoch is committed within a group, so that no crash and no
//!   snapshot finds part of it.
//! - **CB3 room-to-return** Within a group leaves are split, and not merged. So the entries that a
//!   leaf has lost by removals still have their slots in it, or as many others: they return without
//!   room. Leaves with too few entries are merged when the group ends.
//!
//! Whoever begins a group has the tree for itself until it ends.

use std::collections::{BTreeMap, BTreeSet};

use pando_pmem::{Offset, Pmem, Purpose, Writes};
use pando_sync::LogEpoch;

use crate::change::{Edit, Work};
use crate::node::{Entry, Node, Span, View};
use crate::record::Record;
use crate::shared::Look;
use crate::tree::{Error, Tree};

/// What a group has changed so far.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Each pair's record before the group; none: it was not there.
    before: BTreeMap<Vec<u8>, Option<Offset>>,
    /// Records that nothing refers to any more.
    replaced: Vec<Offset>,
}

impl<M: Pmem> Tree<M> {
    /// Begins a group. Cost: until it ends, a copy of each key that is changed.
    ///
    /// # Panics
    /// When one has begun already.
    pub fn begin_group(&mut self) {
        assert!(self.group.is_none(), "a group at a time");
        self.group = Some(Group::default());
    }

    /// Ends the group; its changes stay. O(keys it changed).
    pub fn end_group(&mut self) -> Result<(), Error> {
        let Group { before, replaced } = self.group.take().unwrap_or_default();
        self.free_all(replaced);
        let removed = before.iter().filter(|(_, record)| record.is_some());
        for (key, _) in removed {
            self.mend(key)?;
        }
        Ok(())
    }

    /// Ends the group and takes its changes back. Needs no room. O(keys it changed).
    pub fn take_back(&mut self) -> Result<(), Error> {
        let Group { before, replaced } = self.group.take().unwrap_or_default();
        // First, since their slots may be needed (CB3 room-to-return).
        for (key, _) in before.iter().filter(|(_, record)| record.is_none()) {
            self.remove(key)?;
        }
        let mut returned = BTreeSet::new();
        for (key, record) in &before {
            if let Some(record) = record {
                self.put_back(key, *record)?;
                returned.insert(*record);
            }
        }
        self.free_all(replaced.into_iter().filter(|at| !returned.contains(at)));
        Ok(())
    }

    fn free_all(&self, blocks: impl IntoIterator<Item = Offset>) {
        let _window = Writes::new(self.pool.memory());
        for at in blocks {
            self.allocator.free(at, self.open);
        }
    }

    /// Lets a pair have a record again that it had when the group began.
    fn put_back(&mut self, key: &[u8], record: Offset) -> Result<(), Error> {
        let now = self.record_at_key(key)?;
        if now == Some(record) {
            return Ok(());
        }
        self.begin()?;
        let _window = Writes::new(self.pool.memory());
        let (mut work, entry) = (self.work(), Entry::of_key(key, record));
        let leaf = self.shared.leaf_of(key, Look::ALONE, |_| ())?;
        let returned = match leaf.filter(|_| now.is_none()) {
            Some(leaf) => {
                self.reopen(leaf, record, &mut work)
                    || self.change_in_place(leaf, &Edit::beginning(entry), &mut work)
            }
            None => false,
        };
        let put = if returned {
            Ok(())
        } else {
            work.purpose = Purpose::Removal;
            let place = self.place(key)?;
            self.put_record(place, entry, &mut work)
        };
        self.finish(put, work).map(|_| ())
    }

    /// Takes the end of an entry back that no commit has made last; whether it is there.
    fn reopen(&self, leaf: Node<'_, M>, record: Offset, work: &mut Work<'_>) -> bool {
        let committed = self.pool.committed();
        let slot = (0..self.slots).find(|slot| {
            let Span { start, end } = leaf.span(*slot);
            let has_begun = View::PRESENT.sees(&self.pool, start);
            has_begun && end > committed.0 && leaf.entry(*slot).record == record
        });
        if let Some(slot) = slot {
            self.mark(leaf, work);
            leaf.end(slot, LogEpoch::NONE);
        }
        slot.is_some()
    }

    /// Merges the leaf of a key if it has too few entries, and there is room for that.
    fn mend(&mut self, key: &[u8]) -> Result<(), Error> {
        let Some(path) = self.descend(key)? else {
            return Ok(());
        };
        let leaf = self.node(path[path.len() - 1].node);
        let least = self.least(0);
        if path.len() == 2 || leaf.seen(self.present()).take(least).count() == least {
            return Ok(());
        }
        self.begin()?;
        let _window = Writes::new(self.pool.memory());
        let mut work = self.work();
        work.mends = true;
        let mended = self.change(&path, Edit::default(), &mut work);
        match self.finish(mended, work) {
            Ok(_) | Err(Error::Full(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn record_at_key(&self, key: &[u8]) -> Result<Option<Offset>, Error> {
        let record = self.record_of(key, self.present())?;
        Ok(record.map(Record::at_offset))
    }

    /// Before a pair changes that has this record.
    pub(crate) fn note_before(&mut self, key: &[u8], record: Option<Offset>) {
        if let Some(group) = &mut self.group
            && !group.before.contains_key(key)
        {
            group.before.insert(key.to_vec(), record);
        }
    }

    /// Notes a record that a change of the group has replaced (CB1 freed-at-its-end).
    pub(crate) fn keep_replaced(&mut self, record: Option<Offset>) {
        if let Some(group) = &mut self.group {
            group.replaced.extend(record);
        }
    }
}
