//! Looks through all of a pool: to rub void epochs out, and for whoever checks it.

use std::ops::Range;

use pando_sync::shim::lock;
use pando_sync::shim::unmodelled::Ordering;

use super::chunk::{BlockState, Record, Use};
use super::classes::RECORD_BYTES;
use super::{Allocator, Slabs};
use crate::{LINE_BYTES, Mark, Offset, Pmem, Writes};

pub(super) const CLEAN_FLUSH: Mark = Mark("allocator: flush of a cleaned record");

impl<M: Pmem> Allocator<M> {
    /// Rubs void epochs out of the records of some chunks, from the chunk of this number on;
    /// returns where to go on. After the last one, the same thread may let the pool forget the
    /// ranges that were void at the first: that is a commit, after which the records are durable.
    pub fn clean(&self, from: u64, at_most: u64) -> Option<u64> {
        let end = lock(&self.supply).used();
        let until = end.min(from.saturating_add(at_most));
        let memory = self.pool.memory();
        let _window = Writes::new(memory);
        self.each_record(from..until, |record, _, _| {
            if record.clean(&self.pool) {
                memory.mark(CLEAN_FLUSH);
                memory.flush(record.0, LINE_BYTES as usize / 4);
            }
        });
        (until < end).then_some(until)
    }

    /// Visits every block: its position, bytes and state.
    pub fn blocks(&self, mut visit: impl FnMut(Offset, u64, BlockState)) {
        let end = lock(&self.supply).used();
        self.each_record(0..end, |record, at, bytes| {
            visit(at, bytes, record.judge(&self.pool));
        });
    }

    /// Bytes of blocks that are taken, and of those that wait for the horizon, as a look at every
    /// block finds them: what [`Allocator::tally`] keeps without one.
    pub fn count(&self) -> (u64, u64) {
        let (mut taken, mut waiting, horizon) = (0, 0, self.horizon());
        self.blocks(|_, bytes, state| {
            let record = self.classes.exactly(bytes).map_or(0, |_| RECORD_BYTES);
            match state {
                BlockState::Taken => taken += bytes + record,
                BlockState::Freed(epoch) if epoch > horizon => waiting += bytes + record,
                _ => {}
            }
        });
        (taken, waiting)
    }

    /// Forgets everything but what the pool says, after a rollback. Nobody allocates meanwhile.
    pub fn forget(&self) {
        for side in &self.sides {
            for hand in &mut *lock(&side.hands) {
                hand.free.clear();
            }
        }
        for slabs in &self.slabs {
            *lock(slabs) = Slabs::default();
        }
        lock(&self.supply).forget();
        self.emptying.store(0, Ordering::Relaxed);
    }

    fn each_record(&self, chunks: Range<u64>, mut visit: impl FnMut(Record, Offset, u64)) {
        let mut skipped = 0;
        for chunk in chunks {
            if chunk < skipped {
                continue;
            }
            match self.use_of(chunk) {
                Use::Slab(bytes) => {
                    let class = self.class_of(bytes);
                    for index in 0..self.slab(class).blocks {
                        let (record, at) = self.block(chunk, class, index);
                        visit(record, at, bytes);
                    }
                }
                Use::Span(chunks) => {
                    skipped = chunk + chunks;
                    let bytes = chunks * self.chunk_bytes;
                    visit(Record::of_span(chunk), self.chunk_at(chunk), bytes);
                }
                Use::Empty | Use::Damaged => {}
            }
        }
    }
}
