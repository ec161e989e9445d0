//! Blocks of a pool: taken and freed by epochs, so that no crash leaks one or hands it out twice.
//!
//! The paper leaves its allocator out. Here each block has a record of two words, the epochs in
//! which it was taken and freed last. Recovery is what the records mean under the pool's void
//! epochs; it does nothing, and looks at a chunk when somebody wants room of it.
//!
//! Room is given out in chunks. A chunk is a slab, with a table of records and blocks of one size,
//! or part of a span, which is one large block. `chunk.rs` has the formats.
//!
//! - **PA1 judged-by-epochs** A block is taken if the epoch that took it is not void and none that
//!   freed it since is. To take or free it is one store of one word, and to lose the epoch undoes
//!   it. A record lies in one line, so that a taking is durable before the freeing after it
//!   (PM1 any-order), where only words are whole by a fence. Nothing orders it and what the block
//!   holds.
//! - **PA2 settled-first** Whatever judges a block or chunk is flushed by [`Allocator::settle`],
//!   by the thread that then commits, whoever stored it.
//! - **PA3 horizon** A block is handed out again only when the epoch that freed it is at most the
//!   horizon: committed, not to be rolled back, and nobody reads at an older one. A lost epoch can
//!   then take nothing that an epoch which counts still refers to.
//! - **PA4 clean-tables** What a block held once is never read as a record: before a chunk is used
//!   again, its table is zero and its descriptor says that it is empty, both durable; before the
//!   bytes of a span are stored, the descriptors of its chunks are. Chunks that were never used are
//!   zero, because their number is durable before anything is stored in one.
//!
//! | state | lock, in the order in which they are taken |
//! |---|---|
//! | free blocks in hand | a mutex per side (`sides.rs`) |
//! | chunks worth a look, those in hands | a mutex per size |
//! | chunks not looked at yet, empty ones, freed spans | `supply` |
//! | lines to flush, freed bytes that wait, counts of freed blocks | a mutex per side |
//!
//! A mutex of a size is only tried while another one is held, and so are other sides' hands.
//!
//! Cost: no fence, and one line at [`Allocator::settle`] for each line of records that changed, of
//! which neighbours share one (four records). A chunk costs one fence, of 64 KiB as pools are made.

mod chunk;
mod classes;
mod clean;
mod emptying;
mod sides;
mod supply;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};
use pando_sync::shim::{Mutex, MutexGuard, lock};
use pando_sync::{LogEpoch, Padded};

pub use self::chunk::BlockState;
use self::chunk::{Record, Records, Use, descriptor_at};
use self::classes::{Classes, RECORD_BYTES, Slab};
pub use self::sides::Side;
use self::sides::{Hand, Hands, OneSide, SIDES};
use self::supply::Supply;
pub use self::tally::Tally;
use crate::limits::POOL_UNIT_BYTES;
use crate::pool::{DESCRIPTORS_AT, epoch_bits, sealed};
use crate::{Full, LINE_BYTES, Mark, Offset, Pmem, Pool, PoolError, WORD_BYTES, Writes};

const SETTLE_FLUSH: Mark = Mark("allocator: flush of records");
const TAKEN_FLUSH: Mark = Mark("allocator, words: flush of a taking");
const TAKEN_FENCE: Mark = Mark("allocator, words: fence of a taking");

/// Chunks that are looked at for a block before a fresh one is taken.
const CANDIDATES_TRIED: usize = 4;

/// The chunks of one size.
#[derive(Debug, Default)]
struct Slabs {
    /// The chunk of which each side has blocks in hand, or had its last ones (PD1 one-hand).
    in_hand: [Option<u64>; SIDES],
    /// Chunks with free blocks, and the horizon from which on it pays to look at them.
    candidates: VecDeque<(u64, LogEpoch)>,
    /// The horizon and the number of frees at which every chunk was looked at in vain.
    exhausted: Option<(u64, u64)>,
}

/// What a block is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// More data.
    Growth,
    /// Less of it, or what is small: it may use what a full pool keeps back.
    Removal,
    /// The same data elsewhere ([`Allocator::choose_to_empty`]): it takes few chunks, to gain more.
    Moving,
}

/// Gives the blocks of a pool out and takes them back.
pub struct Allocator<M> {
    pool: Arc<Pool<M>>,
    classes: Classes,
    chunk_bytes: u64,
    /// The same, a power of two.
    chunk_shift: u32,
    /// Whether the memory flushes anything (PA2).
    flushes: bool,
    first_chunk: Offset,
    /// The epoch that was written last, with its checksum.
    last_sealed: AtomicU64,
    slabs: Box<[Padded<Mutex<Slabs>>]>,
    supply: Mutex<Supply>,
    sides: Box<[Padded<OneSide>]>,
    /// The chunks that are being emptied: the first one in the upper half, in the lower one that
    /// behind the last.
    emptying: AtomicU64,
    /// Up to which of them what was taken has moved.
    emptied_to: AtomicU64,
    tally: Arc<Tally>,
    chunks: u64,
    horizon: AtomicU64,
}

impl<M: Pmem> fmt::Debug for Allocator<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Allocator")
            .field("chunks", &self.chunks)
            .finish_non_exhaustive()
    }
}

impl<M: Pmem> Allocator<M> {
    /// The allocator of a pool. It must be the only one.
    pub fn new(pool: Arc<Pool<M>>) -> Result<Self, PoolError> {
        let chunk_bytes = u64::from(pool.shape().chunk_bytes);
        let room = pool.memory().bytes() - DESCRIPTORS_AT.get() - POOL_UNIT_BYTES;
        let chunks = room / (chunk_bytes + chunk::DESCRIPTOR_BYTES);
        let first_chunk = descriptor_at(chunks)
            .get()
            .next_multiple_of(POOL_UNIT_BYTES);
        let used = supply::chunks_used(&pool, chunks)?;
        let classes = Classes::new(chunk_bytes);
        Ok(Self {
            slabs: (0..classes.count()).map(|_| Padded::default()).collect(),
            supply: Mutex::new(Supply::new(used, chunks, classes.count())),
            sides: (0..SIDES)
                .map(|side| Padded(OneSide::new(side, classes.count(), chunks)))
                .collect(),
            emptying: AtomicU64::new(0),
            emptied_to: AtomicU64::new(0),
            tally: Arc::new(Tally::new(supply::growth_max(chunks) * chunk_bytes)),
            chunks,
            horizon: AtomicU64::new(0),
            first_chunk: Offset::new(first_chunk),
            chunk_bytes,
            chunk_shift: chunk_bytes.trailing_zeros(),
            flushes: pool.memory().flushes(),
            last_sealed: AtomicU64::new(sealed(LogEpoch::NONE)),
            classes,
            pool,
        })
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// Takes a block of at least so many bytes, at the beginning of a line if they are whole lines.
    /// It holds anything.
    pub fn allocate(&self, bytes: u64, epoch: LogEpoch) -> Result<Offset, Full> {
        self.allocate_for((Purpose::Growth, Side::FIRST), bytes, epoch)
    }

    /// The same for another purpose, or from another side.
    pub fn allocate_for(
        &self,
        (purpose, side): (Purpose, Side),
        bytes: u64,
        epoch: LogEpoch,
    ) -> Result<Offset, Full> {
        debug_assert!(epoch > self.horizon(), "epoch {epoch} is not open");
        let _window = Writes::new(self.pool.memory());
        let Some(class) = self.classes.of(bytes) else {
            return self.allocate_span(purpose, bytes, epoch);
        };
        let block = self.take_block((purpose, side), class, epoch);
        block.ok_or(Full { bytes })
    }

    fn take_block(
        &self,
        (purpose, side): (Purpose, Side),
        class: usize,
        epoch: LogEpoch,
    ) -> Option<Offset> {
        let mut hands = lock(&self.sides[side.0].hands);
        loop {
            let hand = &mut hands[class];
            if let Some(index) = hand.free.pop_front() {
                let (record, block) = self.block(hand.chunk, class, u64::from(index));
                record.take(&self.pool, self.sealed(epoch));
                if self.flushes {
                    lock(&self.sides[side.0].unsettled).soil(record.0);
                }
                let bytes = self.slab(class).block_bytes + RECORD_BYTES;
                self.tally.take(side, bytes);
                if let Some(next) = hand.free.front() {
                    // Most likely it has not been touched for long, and is written soon.
                    let (_, next) = self.block(hand.chunk, class, u64::from(*next));
                    self.pool.memory().prefetch(next, 2 * LINE_BYTES as usize);
                }
                return Some(block);
            }
            if !self.refill((side, &mut hands[..]), class, purpose) {
                return None;
            }
        }
    }

    /// Before a block is freed whose taking may be lost: where a record's line is not kept whole,
    /// what freed it could be found beside what took it in a life before (PA1 judged-by-epochs).
    #[inline]
    fn settle_taking(&self, record: Record) {
        let memory = self.pool.memory();
        if memory.keeps_lines() || epoch_bits(memory.load(record.0)) <= self.pool.committed() {
            return;
        }
        memory.mark(TAKEN_FLUSH);
        memory.flush(record.0, WORD_BYTES as usize);
        memory.mark(TAKEN_FENCE);
        memory.fence();
    }

    /// Frees a block, in the epoch that makes it unreachable.
    ///
    /// # Panics
    /// When no block that is taken begins there.
    pub fn free(&self, at: Offset, epoch: LogEpoch) {
        self.free_at(Side::FIRST, at, epoch);
    }

    /// The same at another side.
    pub fn free_at(&self, side: Side, at: Offset, epoch: LogEpoch) {
        let chunk = self.chunk_of(at);
        let found = self.record_at(chunk, at);
        let (record, of_slab) = found.unwrap_or_else(|| panic!("no block begins at {at}"));
        // One that is damaged is handed out to nobody once it is freed, either.
        let is_taken =
            record.seems_taken(&self.pool) || record.judge(&self.pool) == BlockState::Taken;
        assert!(is_taken, "block {at} is freed in epoch {epoch}");
        let _window = Writes::new(self.pool.memory());
        self.settle_taking(record);
        record.free(&self.pool, self.sealed(epoch));
        let bytes = match of_slab {
            Some((_, slab)) => slab.block_bytes + RECORD_BYTES,
            None => self.span_bytes(chunk),
        };
        let soiled = self.flushes.then_some(record.0);
        let side = &self.sides[side.0];
        let freed = side.free(&self.tally, (soiled, chunk), (bytes, epoch));
        match of_slab {
            None => lock(&self.supply).free_span(chunk, epoch),
            Some((class, slab)) => {
                if freed == worth_a_look(slab) {
                    lock(&self.slabs[class])
                        .candidates
                        .push_back((chunk, epoch));
                }
            }
        }
    }

    /// Asks for what [`Allocator::free`] of a block there will read, without waiting for it. Does
    /// nothing if none can be there.
    #[inline]
    pub fn expect_free(&self, at: Offset) {
        let chunk = self.chunk_around(at);
        let found = chunk.and_then(|chunk| self.record_at(chunk, at));
        if let Some((record, _)) = found {
            self.pool.memory().row(record.0, 2).prefetch();
        }
    }

    /// What has become of the block that begins there, and its bytes.
    pub fn state(&self, at: Offset) -> (BlockState, u64) {
        let chunk = self.chunk_of(at);
        let found = self.record_at(chunk, at);
        let (record, of_slab) = found.unwrap_or_else(|| panic!("no block begins at {at}"));
        let bytes = match of_slab {
            Some((_, slab)) => slab.block_bytes,
            None => self.span_bytes(chunk),
        };
        (record.judge(&self.pool), bytes)
    }

    /// Sends what changed of records and chunks on its way to memory. Called before every commit,
    /// by the thread that commits (PA2).
    pub fn settle(&self) {
        if !self.flushes {
            return;
        }
        for side in &self.sides {
            let mut lines = mem::take(&mut lock(&side.unsettled).lines);
            lines.sort_unstable();
            lines.dedup();
            for line in &lines {
                self.pool.memory().mark(SETTLE_FLUSH);
                let at = Offset::new(line * LINE_BYTES);
                self.pool.memory().flush(at, LINE_BYTES as usize);
            }
            lines.clear();
            let mut unsettled = lock(&side.unsettled);
            if unsettled.lines.is_empty() {
                // The list keeps its room for the next epoch.
                unsettled.lines = lines;
            }
        }
    }

    /// Lets blocks go that were freed in this epoch or before it (PA3).
    pub fn set_horizon(&self, horizon: LogEpoch) {
        // Release: pairs with the load in `horizon`. Whoever takes a block that was let go sees
        // that nobody reads it any more.
        let before = self.horizon.fetch_max(horizon.0, Ordering::Release);
        if before < horizon.0 {
            for side in &self.sides {
                lock(&side.unsettled).freed.pass(&self.tally, horizon);
            }
        }
    }

    /// How much of the pool its blocks take: since the opening, unless [`Allocator::recall`] has
    /// said what was taken before.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Lets [`Allocator::tally`] begin with what was taken, and waiting, at the committed epoch:
    /// after an opening, or a rollback. Nobody allocates meanwhile.
    pub fn recall(&self, taken: u64, waiting: u64) {
        let (mut found, committed) = ([taken, waiting], self.pool.committed());
        for side in &self.sides {
            let mut unsettled = lock(&side.unsettled);
            // All of it is of the first one.
            let [taken, waiting] = mem::take(&mut found);
            let freed = &mut unsettled.freed;
            freed.recall(&self.tally, taken, (waiting, committed));
            freed.pass(&self.tally, self.horizon());
        }
    }

    /// An epoch with its checksum: mostly the one of the time before.
    #[inline]
    fn sealed(&self, epoch: LogEpoch) -> u64 {
        // Relaxed: it is whole, whichever epoch's it is.
        let last = self.last_sealed.load(Ordering::Relaxed);
        if epoch_bits(last) == epoch {
            return last;
        }
        let word = sealed(epoch);
        self.last_sealed.store(word, Ordering::Relaxed);
        word
    }

    fn horizon(&self) -> LogEpoch {
        LogEpoch(self.horizon.load(Ordering::Acquire))
    }

    /// Notes that a line has to be flushed.
    #[inline]
    fn soil_line(&self, at: Offset) {
        if self.flushes {
            lock(&self.sides[0].unsettled).soil(at);
        }
    }

    /// Gets free blocks into an empty hand; whether there are any.
    fn refill(&self, (side, hands): (Side, &mut Hands), class: usize, purpose: Purpose) -> bool {
        let slabs = &mut *lock(&self.slabs[class]);
        slabs.in_hand[side.0] = None;
        let hand = &mut hands[class];
        if self.look_at_candidates((side, hand), slabs, class) {
            return true;
        }
        let mut supply = lock(&self.supply);
        supply.visit(self, supply::VISITED_AT_ONCE);
        if self.look_at_found((side, hand), slabs, &mut supply, class) {
            return true;
        }
        if let Some(chunk) = supply.take_chunk(self, purpose) {
            self.make_slab((side, hand), slabs, class, chunk);
            return true;
        }
        // There is no room left but in pieces.
        supply.visit(self, usize::MAX);
        if self.look_at_found((side, hand), slabs, &mut supply, class)
            || self.take_over(side, (hand, slabs), class)
        {
            return true;
        }
        let tried = (self.horizon().0, self.frees());
        if slabs.exhausted == Some(tried) {
            return false;
        }
        if self.look_everywhere((side, hand), slabs, class) {
            return true;
        }
        if purpose == Purpose::Moving {
            return false;
        }
        self.empty_slabs((side, hands), slabs, class, &mut supply);
        if let Some(chunk) = supply.take_chunk(self, purpose) {
            self.make_slab((side, &mut hands[class]), slabs, class, chunk);
            return true;
        }
        slabs.exhausted = Some(tried);
        false
    }

    fn look_at_candidates(
        &self,
        (side, hand): (Side, &mut Hand),
        slabs: &mut Slabs,
        class: usize,
    ) -> bool {
        for _ in 0..slabs.candidates.len().min(CANDIDATES_TRIED) {
            let Some((chunk, from)) = slabs.candidates.pop_front() else {
                break;
            };
            if from > self.horizon() || slabs.in_hand.contains(&Some(chunk)) {
                slabs.candidates.push_back((chunk, from));
            } else if self.look_at((side, hand), slabs, class, chunk) {
                return true;
            }
        }
        false
    }

    /// Looks at the chunks of this class that a visit has found.
    fn look_at_found(
        &self,
        (side, hand): (Side, &mut Hand),
        slabs: &mut Slabs,
        supply: &mut Supply,
        class: usize,
    ) -> bool {
        while let Some(chunk) = supply.found[class].pop() {
            if slabs.in_hand.contains(&Some(chunk)) {
                slabs.candidates.push_back((chunk, LogEpoch::NONE));
            } else if self.look_at((side, hand), slabs, class, chunk) {
                return true;
            }
        }
        false
    }

    /// Looks at every chunk of a class of which anything was freed.
    fn look_everywhere(
        &self,
        (side, hand): (Side, &mut Hand),
        slabs: &mut Slabs,
        class: usize,
    ) -> bool {
        let bytes = self.classes.bytes(class);
        (0..self.chunks).any(|chunk| {
            self.freed_of(chunk) > 0
                && self.use_of(chunk) == Use::Slab(bytes)
                && !slabs.in_hand.contains(&Some(chunk))
                && self.look_at((side, hand), slabs, class, chunk)
        })
    }

    /// Takes the free blocks of a chunk in hand that is in no other one (PD1 one-hand); whether it
    /// has any.
    fn look_at(
        &self,
        (side, hand): (Side, &mut Hand),
        slabs: &mut Slabs,
        class: usize,
        chunk: u64,
    ) -> bool {
        debug_assert!(hand.free.is_empty(), "blocks in hand would be forgotten");
        if self.emptying().contains(&chunk) {
            return false;
        }
        let slab = self.slab(class);
        // Before the look: what is freed during it is counted anew.
        self.forget_freed(chunk);
        let horizon = self.horizon();
        let (mut waiting, mut last) = (0, LogEpoch::NONE);
        let start = self.chunk_at(chunk);
        let records = Records::of_slab(&self.pool, start, slab.blocks);
        for index in 0..slab.blocks {
            if records.seems_taken(index as usize) {
                continue;
            }
            match Record::of_block(start, index).judge(&self.pool) {
                BlockState::Free => hand.free.push_back(index as u16),
                BlockState::Freed(epoch) if epoch <= horizon => {
                    hand.free.push_back(index as u16);
                }
                BlockState::Freed(epoch) => {
                    waiting += 1;
                    last = last.max(epoch);
                }
                BlockState::Taken | BlockState::Damaged => {}
            }
        }
        hand.chunk = chunk;
        slabs.in_hand[side.0] = Some(chunk);
        if waiting > 0 {
            let own = &self.sides[side.0];
            let now = own.count_freed(&mut lock(&own.unsettled), chunk, waiting);
            // What was freed during the look may have made it worth one already.
            if now - waiting < worth_a_look(slab) && now >= worth_a_look(slab) {
                slabs.candidates.push_back((chunk, last));
            }
        }
        !hand.free.is_empty()
    }

    /// Makes a slab of an empty chunk, with all of its blocks in hand.
    fn make_slab(
        &self,
        (side, hand): (Side, &mut Hand),
        slabs: &mut Slabs,
        class: usize,
        chunk: u64,
    ) {
        let slab = self.slab(class);
        self.describe(chunk, Use::Slab(slab.block_bytes));
        self.forget_freed(chunk);
        hand.chunk = chunk;
        slabs.in_hand[side.0] = Some(chunk);
        hand.free.extend(0..slab.blocks as u16);
    }

    /// Says what a chunk is used for.
    fn describe(&self, chunk: u64, used_for: Use) {
        let at = descriptor_at(chunk);
        self.pool.memory().store(at, used_for.encode());
        self.soil_line(at);
    }

    fn use_of(&self, chunk: u64) -> Use {
        let word = self.pool.memory().load(descriptor_at(chunk));
        if let Some(class) = self.classes.described(word) {
            return Use::Slab(self.classes.bytes(class));
        }
        let used_for = Use::decode(word);
        let can_be = match used_for {
            Use::Slab(_) => false,
            Use::Span(chunks) => (1..=self.chunks - chunk).contains(&chunks),
            Use::Empty | Use::Damaged => true,
        };
        if can_be { used_for } else { Use::Damaged }
    }

    /// Bytes of a span that begins there.
    fn span_bytes(&self, chunk: u64) -> u64 {
        match self.use_of(chunk) {
            Use::Span(chunks) => chunks * self.chunk_bytes,
            _ => unreachable!("a span begins in chunk {chunk}"),
        }
    }

    /// The class of a slab that [`Allocator::use_of`] has found.
    fn class_of(&self, bytes: u64) -> usize {
        self.classes.exactly(bytes).expect("a size of blocks")
    }

    fn slab(&self, class: usize) -> &Slab {
        self.classes.slab(class)
    }

    fn chunk_at(&self, chunk: u64) -> Offset {
        self.first_chunk.plus(chunk * self.chunk_bytes)
    }

    fn chunk_of(&self, at: Offset) -> u64 {
        let chunk = self.chunk_around(at);
        chunk.unwrap_or_else(|| panic!("no block begins at {at}"))
    }

    #[inline]
    fn chunk_around(&self, at: Offset) -> Option<u64> {
        let bytes = at.get().checked_sub(self.first_chunk.get())?;
        let chunk = bytes >> self.chunk_shift;
        (chunk < self.chunks).then_some(chunk)
    }

    /// The record and position of a slab's block.
    fn block(&self, chunk: u64, class: usize, index: u64) -> (Record, Offset) {
        let slab = self.slab(class);
        let start = self.chunk_at(chunk);
        let block = start.plus(slab.blocks_at + index * slab.block_bytes);
        (Record::of_block(start, index), block)
    }

    /// The record of the block that begins there, and the slab it lies in, if it is no span; none
    /// if no block begins there.
    #[inline]
    fn record_at(&self, chunk: u64, at: Offset) -> Option<(Record, Option<(usize, &Slab)>)> {
        let start = self.chunk_at(chunk);
        let within = at.get() - start.get();
        let word = self.pool.memory().load(descriptor_at(chunk));
        let Some(class) = self.classes.described(word) else {
            let is_span = within == 0 && matches!(self.use_of(chunk), Use::Span(_));
            return is_span.then(|| (Record::of_span(chunk), None));
        };
        let slab = self.classes.slab(class);
        let from_first = within.checked_sub(slab.blocks_at)?;
        let index = slab.block_around(from_first);
        let is_one = index < slab.blocks && index * slab.block_bytes == from_first;
        is_one.then(|| (Record::of_block(start, index), Some((class, slab))))
    }

    /// Another size, unless somebody works on it: two of them are never waited for.
    fn try_class(&self, class: usize) -> Option<MutexGuard<'_, Slabs>> {
        self.slabs[class].try_lock().ok()
    }
}

/// How many freed blocks make it pay to look through a chunk's records.
fn worth_a_look(slab: &Slab) -> u32 {
    (slab.blocks as u32 / 8).max(1)
}
