//! Chunks: where they come from, and spans of them.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;

use pando_sync::LogEpoch;
use pando_sync::shim::lock;

use super::chunk::{BlockState, Record, Use, descriptor_at};
use super::sides::Hands;
use super::{Allocator, Purpose, Side, Slabs};
use crate::limits::{CHUNKS_PER_RESERVED, RESERVED_MIN};
use crate::pool::{CHUNKS_AT, sealed, unsealed};
use crate::{Full, Mark, Offset, Pmem, Pool, PoolError, WORD_BYTES};

const COUNT_FLUSH: Mark = Mark("allocator: flush of the number of chunks");
const COUNT_FENCE: Mark = Mark("allocator: fence after the number of chunks");
const EMPTY_FLUSH: Mark = Mark("allocator: flush of an emptied descriptor");
const TABLE_FLUSH: Mark = Mark("allocator: flush of a zeroed table");
const EMPTY_FENCE: Mark = Mark("allocator, words: fence of an empty chunk");
const TABLE_FENCE: Mark = Mark("allocator: fence after a zeroed table");
const SPAN_FLUSH: Mark = Mark("allocator: flush of a span's descriptors");
const SPAN_FENCE: Mark = Mark("allocator: fence after a span's descriptors");

/// Chunks that are looked at for one that is taken, after an opening.
pub(super) const VISITED_AT_ONCE: usize = 4;

/// Chunks of those kept back that may be taken while a row of neighbours is emptied, at least.
const MOVING_CHUNKS_MIN: u64 = 2;

/// Chunks of a row for each of which one more may be taken: what nodes in it are moved to.
const ROW_PER_MOVING: u64 = 16;

const _: () = assert!(MOVING_CHUNKS_MIN < RESERVED_MIN, "removals have some left");

/// What there is of chunks.
#[derive(Debug)]
pub(super) struct Supply {
    /// Chunks in use, or used once: those below this number.
    used: u64,
    chunks: u64,
    /// Chunks in use at the opening, or before a rollback, that nobody has looked at since.
    unvisited: Range<u64>,
    /// Chunks that hold nothing. Their descriptors may still say what they were.
    empty: BTreeSet<u64>,
    /// Slabs that a visit has found, by class.
    pub(super) found: Vec<Vec<u64>>,
    /// Spans that were freed, and when.
    freed_spans: Vec<(LogEpoch, u64)>,
}

/// The number of chunks in use, as the pool has it.
pub(super) fn chunks_used<M: Pmem>(pool: &Pool<M>, chunks: u64) -> Result<u64, PoolError> {
    match pool.memory().load(CHUNKS_AT) {
        0 => Ok(0),
        word => unsealed(word)
            .map(|used| used.0)
            .filter(|used| *used <= chunks)
            .ok_or(PoolError::Damaged {
                at: CHUNKS_AT,
                what: "the number of chunks",
            }),
    }
}

/// Chunks of so many that data may grow into.
pub(super) fn growth_max(chunks: u64) -> u64 {
    // One for each size that removals and commits take, where that is not most of the pool.
    let least = RESERVED_MIN.min(chunks / 16);
    chunks - (chunks / CHUNKS_PER_RESERVED).max(least)
}

/// Chunks of those kept back that may be taken while a row of neighbours is emptied, for sizes of
/// which no block is free; the row is longer by as many. Removals have half of them left.
fn moving_in(row: u64, chunks: u64) -> u64 {
    let reserved = chunks - growth_max(chunks);
    let most = (reserved / 2).max(MOVING_CHUNKS_MIN);
    (MOVING_CHUNKS_MIN + row / ROW_PER_MOVING).min(most)
}

/// The row that is emptied for so many neighbours.
pub(super) fn row_for(wanted: u64, chunks: u64) -> u64 {
    let mut row = wanted;
    // It grows faster than what it may take.
    while row < wanted + moving_in(row, chunks) {
        row += 1;
    }
    row
}

impl Supply {
    pub(super) fn new(used: u64, chunks: u64, classes: usize) -> Self {
        Self {
            used,
            chunks,
            unvisited: 0..used,
            empty: BTreeSet::new(),
            found: vec![Vec::new(); classes],
            freed_spans: Vec::new(),
        }
    }

    /// Forgets all that was found out.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.used, self.chunks, self.found.len());
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether a chunk is known to hold nothing.
    pub(super) fn is_empty(&self, chunk: u64) -> bool {
        self.empty.contains(&chunk)
    }

    /// Finds out what every chunk is, and which spans are gone.
    pub(super) fn settle<M: Pmem>(&mut self, allocator: &Allocator<M>) {
        self.visit(allocator, usize::MAX);
        self.dissolve_spans(allocator);
    }

    /// Takes back a chunk in which nothing is taken.
    pub(super) fn give_back(&mut self, chunk: u64) {
        self.empty.insert(chunk);
    }

    pub(super) fn free_span(&mut self, chunk: u64, epoch: LogEpoch) {
        self.freed_spans.push((epoch, chunk));
    }

    /// Looks at some of the chunks that nobody has looked at.
    pub(super) fn visit<M: Pmem>(&mut self, allocator: &Allocator<M>, at_most: usize) {
        for _ in 0..at_most {
            let Some(chunk) = self.unvisited.next() else {
                break;
            };
            match allocator.use_of(chunk) {
                Use::Empty => {
                    self.empty.insert(chunk);
                }
                Use::Slab(bytes) => self.found[allocator.class_of(bytes)].push(chunk),
                Use::Span(chunks) => {
                    let rest = chunk + chunks..self.unvisited.end;
                    self.unvisited.start = rest.start.min(rest.end);
                    match Record::of_span(chunk).judge(&allocator.pool) {
                        BlockState::Free => self.freed_spans.push((LogEpoch::NONE, chunk)),
                        BlockState::Freed(epoch) => self.freed_spans.push((epoch, chunk)),
                        BlockState::Taken | BlockState::Damaged => {}
                    }
                }
                // What it holds is not known, so nobody gets it.
                Use::Damaged => {}
            }
        }
    }

    /// Takes a chunk that holds nothing, with a table of zeroes (PA4 clean-tables).
    pub(super) fn take_chunk<M: Pmem>(
        &mut self,
        allocator: &Allocator<M>,
        purpose: Purpose,
    ) -> Option<u64> {
        if self.empty.is_empty() {
            self.dissolve_spans(allocator);
        }
        if !self.may_take(allocator, 1, purpose) {
            return None;
        }
        let window = allocator.emptying();
        let below = self.empty.range(..window.start).next();
        let beside = below.or_else(|| self.empty.range(window.end..).next());
        let fresh = beside.is_none() && self.used < self.chunks;
        let Some(chunk) = beside.or(self.empty.first()).copied().filter(|_| !fresh) else {
            return self.extend(allocator, 1);
        };
        self.empty.remove(&chunk);
        let memory = allocator.pool.memory();
        // What it was must not be read into the bytes of its next blocks.
        let (is_used, keeps_lines) = (allocator.use_of(chunk) != Use::Empty, memory.keeps_lines());
        if is_used {
            memory.store(descriptor_at(chunk), Use::Empty.encode());
        }
        if is_used || !keeps_lines {
            memory.mark(EMPTY_FLUSH);
            memory.flush(descriptor_at(chunk), WORD_BYTES as usize);
        }
        if !keeps_lines {
            // Zeroes in no order: a record that has lost what freed the block would count.
            memory.mark(EMPTY_FENCE);
            memory.fence();
        }
        // The table of the smallest blocks is the largest.
        let (at, bytes) = (allocator.chunk_at(chunk), allocator.slab(0).blocks_at);
        for word in (0..bytes).step_by(WORD_BYTES as usize) {
            memory.store(at.plus(word), 0);
        }
        memory.mark(TABLE_FLUSH);
        memory.flush(at, bytes as usize);
        memory.mark(TABLE_FENCE);
        memory.fence();
        Some(chunk)
    }

    /// Whether so many chunks leave what is kept back for removals.
    fn may_take<M: Pmem>(&self, allocator: &Allocator<M>, chunks: u64, purpose: Purpose) -> bool {
        let (window, mut left) = (allocator.emptying(), self.chunks - self.used);
        let row = window.end - window.start;
        let is_row = row > 1;
        // Neighbours that were emptied are for one that wants as many.
        let moving = moving_in(row, self.chunks);
        let is_for = chunks + moving >= row;
        let all = self.empty.len() as u64;
        left += if is_for {
            all
        } else {
            all - self.empty.range(window).count() as u64
        };
        let spare = u64::from(is_row && !is_for) * moving;
        let reserved = self.chunks - growth_max(self.chunks);
        match purpose {
            Purpose::Growth => left + spare >= chunks + reserved,
            Purpose::Removal => true,
            // A row gains more than that.
            Purpose::Moving => is_row && left + spare > reserved,
        }
    }

    /// Takes chunks that were never used.
    fn extend<M: Pmem>(&mut self, allocator: &Allocator<M>, chunks: u64) -> Option<u64> {
        if chunks > self.chunks - self.used {
            return None;
        }
        let first = self.used;
        self.used += chunks;
        let memory = allocator.pool.memory();
        memory.store(CHUNKS_AT, sealed(LogEpoch(self.used)));
        memory.mark(COUNT_FLUSH);
        memory.flush(CHUNKS_AT, WORD_BYTES as usize);
        memory.mark(COUNT_FENCE);
        memory.fence();
        if chunks == 1 {
            memory.expect_writes(allocator.chunk_at(first), allocator.chunk_bytes as usize);
        }
        Some(first)
    }

    /// Makes empty chunks of the spans that the horizon has passed.
    fn dissolve_spans<M: Pmem>(&mut self, allocator: &Allocator<M>) {
        let horizon = allocator.horizon();
        let spans = mem::take(&mut self.freed_spans).into_iter();
        let (gone, waiting) = spans.partition(|(epoch, _)| *epoch <= horizon);
        self.freed_spans = waiting;
        for (_, chunk) in Vec::from_iter::<Vec<(LogEpoch, u64)>>(gone) {
            if let Use::Span(chunks) = allocator.use_of(chunk) {
                // Before its chunks are used by themselves; flushed with the epoch that uses them.
                allocator.describe(chunk, Use::Empty);
                self.empty.extend(chunk..chunk + chunks);
            }
        }
    }

    /// Takes neighbours among the empty chunks, or fresh ones.
    fn take_span<M: Pmem>(
        &mut self,
        allocator: &Allocator<M>,
        chunks: u64,
        purpose: Purpose,
    ) -> Option<u64> {
        if !self.may_take(allocator, chunks, purpose) {
            return None;
        }
        // A window waits for those that want as much.
        let window = allocator.emptying();
        let row = window.end - window.start;
        let spared = if chunks + moving_in(row, self.chunks) < row {
            window
        } else {
            0..0
        };
        let mut run = 0..0;
        for chunk in self.empty.iter().filter(|chunk| !spared.contains(chunk)) {
            if *chunk != run.end {
                run = *chunk..*chunk;
            }
            run.end += 1;
            if run.end - run.start == chunks {
                break;
            }
        }
        if run.end - run.start < chunks {
            return self.extend(allocator, chunks);
        }
        self.empty.retain(|chunk| !run.contains(chunk));
        Some(run.start)
    }
}

impl<M: Pmem> Allocator<M> {
    pub(super) fn allocate_span(
        &self,
        purpose: Purpose,
        bytes: u64,
        epoch: LogEpoch,
    ) -> Result<Offset, Full> {
        let chunks = bytes.div_ceil(self.chunk_bytes);
        let mut supply = lock(&self.supply);
        supply.visit(self, VISITED_AT_ONCE);
        let mut taken = supply.take_span(self, chunks, purpose);
        if taken.is_none() {
            supply.settle(self);
            taken = supply.take_span(self, chunks, purpose);
        }
        if taken.is_none() {
            for class in 0..self.classes.count() {
                if let Some(mut slabs) = self.try_class(class) {
                    self.empty_class(None, &mut slabs, class, &mut supply);
                }
            }
            taken = supply.take_span(self, chunks, purpose);
        }
        let first = taken.ok_or(Full { bytes })?;
        self.tally.take_span(chunks * self.chunk_bytes);
        self.describe_span(first, chunks, epoch);
        Ok(self.chunk_at(first))
    }

    /// Durable before the span's bytes are stored (PA4 clean-tables).
    fn describe_span(&self, first: u64, chunks: u64, epoch: LogEpoch) {
        let memory = self.pool.memory();
        for chunk in first + 1..first + chunks {
            memory.store(descriptor_at(chunk), Use::Empty.encode());
        }
        Record::of_span(first).take(&self.pool, self.sealed(epoch));
        memory.store(descriptor_at(first), Use::Span(chunks).encode());
        let bytes = descriptor_at(first + chunks).get() - descriptor_at(first).get();
        memory.mark(SPAN_FLUSH);
        memory.flush(descriptor_at(first), bytes as usize);
        memory.mark(SPAN_FENCE);
        memory.fence();
    }

    /// Makes empty chunks of the slabs of other sizes in which nothing is taken.
    pub(super) fn empty_slabs(
        &self,
        (side, hands): (Side, &mut Hands),
        own: &mut Slabs,
        class: usize,
        supply: &mut Supply,
    ) {
        self.empty_class(Some((side, hands)), own, class, supply);
        for other in (0..self.classes.count()).filter(|other| *other != class) {
            if let Some(mut slabs) = self.try_class(other) {
                self.empty_class(Some((side, hands)), &mut slabs, other, supply);
            }
        }
    }

    /// The same of one size. `hands` are those that the caller has.
    fn empty_class(
        &self,
        mut hands: Option<(Side, &mut Hands)>,
        slabs: &mut Slabs,
        class: usize,
        supply: &mut Supply,
    ) {
        let used_for = Use::Slab(self.classes.bytes(class));
        for chunk in 0..supply.used() {
            let is_left = self.use_of(chunk) != used_for || supply.empty.contains(&chunk);
            if !is_left && !self.emptying().contains(&chunk) && self.is_empty(chunk, class) {
                let own = hands.as_mut().map(|(side, hands)| (*side, &mut **hands));
                self.take_slab_back((own, slabs), class, supply, chunk);
            }
        }
    }
}
