//! Making room in a pool whose free blocks are of other sizes than the one that is wanted.
//!
//! The records of a chunk are put again, each as it is, and its nodes are copied; the chunk becomes
//! room for any size when the horizon has passed the old blocks.
//!
//! - **CM1 moved-as-put** A record moves as a put of the same value does, and a node as one without
//!   free slots, in the open epoch: a crash, a view of before, and a reader beside it find them in
//!   one of their places.

use pando_engine::AccessMark;
use pando_pmem::{Offset, Pmem, Purpose, Side, WORD_BYTES, Writes};

use crate::change::{Edit, Step, Work};
use crate::node::{Entry, bytes_of};
use crate::record::{self, Record};
use crate::tree::{Error, Tree};

/// Blocks after which a call that makes room empties no further chunk.
const MOVED_AT_ONCE: usize = 64;

impl<M: Pmem> Tree<M> {
    /// Empties a chunk, of some that `random` chooses, for a pair of so many bytes; whether
    /// anything was moved. The chunk is room after a commit and another call. A pair that takes
    /// neighbouring chunks needs a call for each, or for a few in which little is taken. Does
    /// nothing while there are snapshots, which may see every block.
    ///
    /// Cost: a put for each record in a chunk, which is 64 KiB, or for some tens of them in
    /// several; for neighbours, the first call looks at what the pool says of every chunk.
    pub fn make_room(&mut self, wanted: usize, random: u64) -> Result<bool, Error> {
        if !self.retained.is_empty() {
            return Ok(false);
        }
        let mut moved = 0;
        while moved < MOVED_AT_ONCE
            && let Some(blocks) = self.allocator.choose_to_empty(wanted as u64, random)
        {
            let all = moved + blocks.len();
            for at in blocks {
                match self.move_block(at) {
                    Ok(true) => moved += 1,
                    // Without room for its records the chunk stays as it is.
                    Ok(false) | Err(Error::Full(_)) => break,
                    Err(error) => return Err(error),
                }
            }
            if moved < all {
                self.allocator.give_up_emptying();
                break;
            }
        }
        Ok(moved > 0)
    }

    /// Moves the record or the node in a block; whether the present refers to it.
    fn move_block(&mut self, at: Offset) -> Result<bool, Error> {
        if at == self.shared.anchor {
            return Ok(false);
        }
        let record = Record::at(&self.pool, at);
        let record = record.filter(|record| record.is_whole() || record.is_separator());
        if let Some(record) = record {
            let (key, value) = (record.key().to_vec(), record.value().to_vec());
            let mark = record.mark().map_or(0, |mark| AccessMark::of(mark).get());
            if self.move_record(at, &key, &value, mark)? {
                return Ok(true);
            }
        }
        self.move_node(at)
    }

    fn move_record(
        &mut self,
        at: Offset,
        key: &[u8],
        value: &[u8],
        mark: u8,
    ) -> Result<bool, Error> {
        let Some(path) = self.descend(key)? else {
            return Ok(false);
        };
        let leaf = self.node(path[path.len() - 1].node);
        let found = leaf.find(key, self.present());
        if found.is_some_and(|found| found.entry.record == at) {
            let moved = self.put_with(key, value, mark, Purpose::Moving);
            return moved.map(|()| true);
        }
        let inner = 1..path.len() - 1;
        let holder = inner.into_iter().find(|depth| {
            let Step { node, slot } = path[*depth];
            self.node(node).entry(slot).record == at
        });
        let Some(depth) = holder else {
            return Ok(false);
        };
        self.begin()?;
        let _window = Writes::new(self.pool.memory());
        let mut work = self.work();
        let moved = self.move_separator(&path[..=depth], key, &mut work);
        self.finish(moved, work).map(|_| true)
    }

    /// Moves the separator of the last step of a path.
    fn move_separator(&self, path: &[Step], key: &[u8], work: &mut Work<'_>) -> Result<(), Error> {
        let take = |bytes| {
            self.allocator
                .allocate_for((Purpose::Moving, Side::FIRST), bytes, self.open)
        };
        let record = record::make_separator(&self.pool, take, key)?;
        work.taken.push(record);
        let Step { node, slot } = path[path.len() - 1];
        let entry = self.node(node).entry(slot);
        work.freed.push(entry.record);
        let begun = Entry { record, ..entry };
        self.change(path, Edit::replacing(slot, begun), work)
    }

    fn move_node(&mut self, at: Offset) -> Result<bool, Error> {
        let (_, bytes) = self.allocator.state(at);
        let node = self.node(at);
        if bytes < bytes_of(node.level, self.slots) {
            return Ok(false);
        }
        let mut entries = node.seen(self.present()).map(|found| found.entry);
        let named = entries.find(|entry| !entry.record.is_none());
        drop(entries);
        // A record that is damaged is no node, and refers to anything.
        let (memory, unit) = (self.pool.memory(), WORD_BYTES);
        let can_be =
            |at: &Offset| at.get().is_multiple_of(unit) && at.get() + unit <= memory.bytes();
        let record = named.map(|entry| entry.record).filter(can_be);
        let Some(record) = record.and_then(|at| Record::at(&self.pool, at)) else {
            return Ok(false);
        };
        let path = self.descend(record.key())?.unwrap_or_default();
        let Some(depth) = path.iter().position(|step| step.node == at) else {
            return Ok(false);
        };
        self.begin()?;
        let _window = Writes::new(self.pool.memory());
        let mut work = self.work();
        work.purpose = Purpose::Moving;
        work.leaves = at;
        let moved = self.change(&path[..=depth], Edit::default(), &mut work);
        self.finish(moved, work).map(|_| true)
    }
}
