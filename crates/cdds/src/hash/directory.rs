//! Where the buckets are: the number of them, and the way to each.
//!
//! Bucket *i* is entry *i* mod 64 of page ⌊*i*/64⌋, and page *p* an entry of array *k*: array 0 has
//! one page, and each has four times as many as the one before. So a table of any size begins with
//! a kilobyte, none of this ever moves, and what is made at once is at most three quarters of
//! 1/64 of 16 bytes for each bucket. The arrays are in root words of the pool. All entries are
//! pairs of 16 bytes:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | the epoch in which it began, sealed (`seal.rs`); 0: there is none |
//! | 8 | 8 | the array, page or bucket |
//!
//! So CN5 sealed is asked of each pair before it is followed, and before its epoch decides.
//!
//! - **CD1 in-order** Bucket *n* begins in an epoch that sees those below it, and its page and
//!   array, if they are new, begin in the same one. So the buckets of a view are the first ones,
//!   their number is found by halving, and a pair is followed only if the view sees it.
//! - **CD2 longest-seen** The bucket of a hash is that of the most of its last bits that make a
//!   bucket the view sees. So a reader of the past needs no number: it begins with the present's
//!   bucket, which is at least as many bits, and drops the highest one until it sees the bucket.
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `count` | the table's writer, who has marked the bucket that is split (CH2 split-under-mark), or closed the table | `Release` | `Acquire`, everyone |

use std::sync::Arc;

use pando_pmem::{Mark, Offset, Pmem, WORD_BYTES, Writes, epoch_bits};
use pando_sync::LogEpoch;
use pando_sync::shim::{AtomicU64, Ordering};

use super::bucket::Bucket;
use crate::canary::{self, Fault};
use crate::node::{View, store_begun};
use crate::record::Record;
use crate::seal;
use crate::shared::{Astray, Look, Shared};
use crate::tree::Error;

/// Buckets of a page; in tests few, so that small tables have pages and arrays.
pub(super) const PAGE: u64 = if cfg!(test) { 8 } else { 64 };
/// Bytes of a pair.
pub(super) const PAIR_BYTES: u64 = 2 * WORD_BYTES;
/// The root word of the first array's pair: below are the tree's.
const ARRAYS_AT: u64 = 34;
/// Pages for 10^10 buckets.
const ARRAYS: u64 = 15;

const _: () = assert!(
    ARRAYS_AT + 2 * ARRAYS <= pando_pmem::limits::ROOTS && ARRAYS_AT.is_multiple_of(2),
    "each pair lies in one line"
);

const PAIR_FLUSH: Mark = Mark("directory: flush of a beginning");
const ERASE_FLUSH: Mark = Mark("directory: flush of an erased epoch");

/// The buckets of a table.
pub(super) struct Directory<M> {
    pub(super) shared: Arc<Shared<M>>,
    /// Slots of a bucket.
    pub(super) slots: u64,
    count: AtomicU64,
    seed: u64,
}

/// An entry that was found.
pub(super) struct Found<'p, M> {
    pub(super) bucket: Bucket<'p, M>,
    pub(super) slot: u64,
    pub(super) record: Offset,
}

/// A pair that is not as it was stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct DamagedPair(Offset);

impl From<DamagedPair> for Error {
    fn from(DamagedPair(at): DamagedPair) -> Self {
        Self::DamagedNode { at }
    }
}

impl From<DamagedPair> for Astray {
    fn from(DamagedPair(at): DamagedPair) -> Self {
        Self::Damaged(at)
    }
}

/// The bucket of a hash, of so many.
pub(super) fn address(hash: u64, count: u64) -> u64 {
    let bits = (2 << count.ilog2()) - 1;
    let index = hash & bits;
    if index < count {
        index
    } else {
        index & (bits >> 1)
    }
}

/// The array of a page, and its place there.
pub(super) fn array_of(page: u64) -> (u64, u64) {
    let array = u64::from((3 * page + 1).ilog2() / 2);
    (array, page - first_page(array))
}

fn first_page(array: u64) -> u64 {
    ((1 << (2 * array)) - 1) / 3
}

/// Pages of an array.
pub(super) fn pages(array: u64) -> u64 {
    1 << (2 * array)
}

/// The first of so many numbers for which something is no longer so.
fn partition(
    count: u64,
    is_so: impl Fn(u64) -> Result<bool, DamagedPair>,
) -> Result<u64, DamagedPair> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = u64::midpoint(low, high);
        if is_so(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

impl<M: Pmem> Directory<M> {
    /// Finds out how many buckets there are. O(log n).
    pub(super) fn new(shared: Arc<Shared<M>>, slots: u64) -> Result<Self, DamagedPair> {
        let identity = u128::from_le_bytes(shared.pool.identity());
        let directory = Self {
            shared,
            slots,
            count: AtomicU64::new(0),
            seed: identity as u64 ^ (identity >> 64) as u64,
        };
        directory.set_count(directory.count_at(View::PRESENT)?);
        Ok(directory)
    }

    pub(super) fn count(&self) -> u64 {
        // Acquire: pairs with `set_count`; so many pairs are there.
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn set_count(&self, count: u64) {
        self.count.store(count, Ordering::Release);
    }

    /// A hash that is the same after every restart and another one in every pool, so that nobody
    /// knows which keys share a bucket: words are multiplied in, and both halves of each product
    /// are used.
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |hash: u64, word: u64| {
            let product = u128::from(hash ^ word) * u128::from(ODD ^ self.seed.rotate_left(32));
            (product >> 64) as u64 ^ product as u64
        };
        let (words, rest) = key.as_chunks();
        let mut hash = fold(self.seed, key.len() as u64 ^ ODD);
        for word in words {
            hash = fold(hash.rotate_left(5), u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let hash = fold(hash.rotate_left(5), u64::from_le_bytes(last));
        fold(hash, ODD)
    }

    #[cfg(test)]
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// The epoch in which a pair began, or none, and what it refers to.
    fn load(&self, pair: Offset) -> Result<(u64, Offset), DamagedPair> {
        let words = self.shared.pool.memory().row(pair, 2);
        let [start, target] = [0, 1].map(|index| words.load(index));
        // Beside a reader of the past one may begin that it does not see: another beginning is
        // there then.
        let is_right = seal::are_right([start, 0], [target]) || words.load(0) != start;
        let found = (epoch_bits(start).0, Offset::new(target));
        is_right.then_some(found).ok_or(DamagedPair(pair))
    }

    fn target(&self, pair: Offset) -> Result<Offset, DamagedPair> {
        Ok(self.load(pair)?.1)
    }

    fn is_seen(&self, pair: Offset, view: View) -> Result<bool, DamagedPair> {
        Ok(view.sees(&self.shared.pool, self.load(pair)?.0))
    }

    /// The pair of an array.
    pub(super) fn array_at(&self, array: u64) -> Offset {
        assert!(array < ARRAYS, "a table of more buckets than a pool has");
        self.shared.pool.root(ARRAYS_AT + 2 * array)
    }

    /// The pair of a page whose array is there.
    pub(super) fn page_at(&self, page: u64) -> Result<Offset, DamagedPair> {
        let (array, place) = array_of(page);
        let pages = self.target(self.array_at(array))?;
        Ok(pages.plus(place * PAIR_BYTES))
    }

    /// The pair of a bucket whose page is there.
    pub(super) fn bucket_at(&self, index: u64) -> Result<Offset, DamagedPair> {
        let page = self.target(self.page_at(index / PAGE)?)?;
        Ok(page.plus(index % PAGE * PAIR_BYTES))
    }

    /// The pairs on the way to a bucket that is there.
    #[cfg(test)]
    pub(super) fn way_to(&self, index: u64) -> [Offset; 3] {
        let (array, _) = array_of(index / PAGE);
        let [page, bucket] = [self.page_at(index / PAGE), self.bucket_at(index)];
        let sound = "nothing is damaged";
        [
            self.array_at(array),
            page.expect(sound),
            bucket.expect(sound),
        ]
    }

    /// The blocks of the way to a bucket, if it is the first of its page or array.
    pub(super) fn blocks_of(&self, index: u64) -> Result<Vec<Offset>, DamagedPair> {
        let mut blocks = Vec::new();
        if index.is_multiple_of(PAGE) {
            let (array, place) = array_of(index / PAGE);
            blocks.push(self.target(self.page_at(index / PAGE)?)?);
            if place == 0 {
                blocks.push(self.target(self.array_at(array))?);
            }
        }
        Ok(blocks)
    }

    /// The first bucket of a chain that is there.
    pub(super) fn head(&self, index: u64) -> Result<Bucket<'_, M>, DamagedPair> {
        let at = self.target(self.bucket_at(index)?)?;
        Ok(Bucket::at(&self.shared.pool, at, self.slots))
    }

    /// How many buckets a view sees (CD1 in-order). O(log n).
    pub(super) fn count_at(&self, view: View) -> Result<u64, DamagedPair> {
        let is_array = |array| self.is_seen(self.array_at(array), view);
        let Some(array) = partition(ARRAYS, is_array)?.checked_sub(1) else {
            return Ok(0);
        };
        let first = first_page(array);
        let is_page = |page| self.is_seen(self.page_at(first + page)?, view);
        let full = first + partition(pages(array), is_page)? - 1;
        let is_bucket = |bucket| self.is_seen(self.bucket_at(full * PAGE + bucket)?, view);
        Ok(full * PAGE + partition(PAGE, is_bucket)?)
    }

    /// Lets a pair begin that no view sees, with a block for it.
    pub(super) fn begin(&self, pair: Offset, target: Offset, epoch: LogEpoch) {
        let memory = self.shared.pool.memory();
        let beginning = seal::beginning(epoch, [target.get()]);
        store_begun(memory, (pair, PAIR_BYTES), [(1, target.get())], beginning);
        memory.mark(PAIR_FLUSH);
        memory.flush(pair, PAIR_BYTES as usize);
    }

    /// Erases what a crash or a rollback has left behind the last bucket. Its pairs are the rest of
    /// the last page, of its array, and of the arrays.
    pub(super) fn clean(&self) -> Result<(), DamagedPair> {
        let _window = Writes::new(self.shared.pool.memory());
        let Some(last) = self.count().checked_sub(1) else {
            return (0..ARRAYS).try_for_each(|array| self.erase(self.array_at(array)));
        };
        let (array, place) = array_of(last / PAGE);
        let (first, last_bucket) = (self.page_at(last / PAGE)?, self.bucket_at(last)?);
        let buckets = (last % PAGE + 1..PAGE).zip(1..);
        let buckets = buckets.map(|(_, further)| last_bucket.plus(further * PAIR_BYTES));
        let further = 1..pages(array) - place;
        let in_array = further.map(|further| first.plus(further * PAIR_BYTES));
        let arrays = (array + 1..ARRAYS).map(|array| self.array_at(array));
        { buckets.chain(in_array).chain(arrays) }.try_for_each(|pair| self.erase(pair))
    }

    /// Erases a pair of a void epoch.
    fn erase(&self, pair: Offset) -> Result<(), DamagedPair> {
        let ((epoch, _), memory) = (self.load(pair)?, self.shared.pool.memory());
        if epoch != 0 && self.shared.pool.is_void(LogEpoch(epoch)) {
            memory.store(pair, 0);
            memory.mark(ERASE_FLUSH);
            memory.flush(pair, WORD_BYTES as usize);
        }
        Ok(())
    }

    /// The bucket of a hash at a view that is not the present (CD2 longest-seen); none before the
    /// table was made.
    fn address_at(&self, hash: u64, view: View) -> Result<Option<u64>, DamagedPair> {
        let mut index = address(hash, self.count());
        while !canary::has(Fault::PresentAddress) && !self.is_seen(self.bucket_at(index)?, view)? {
            let Some(bit) = index.checked_ilog2() else {
                return Ok(None);
            };
            index ^= 1 << bit;
        }
        Ok(Some(index))
    }

    /// The entry of a key.
    pub(super) fn find(
        &self,
        key: &[u8],
        hash: u64,
        look: Look,
    ) -> Result<Option<Found<'_, M>>, Astray> {
        let index = if look.beside {
            Some(address(hash, self.count()))
        } else {
            self.address_at(hash, look.view)?
        };
        let Some(index) = index else {
            return Ok(None);
        };
        let mut bucket = self.head(index)?;
        let watch = self.shared.watch(bucket.at, look);
        // A link that only a snapshot saw may have given its slot to a key, once that was released:
        // what is then followed is no bucket (CL4 past-stands).
        let held = || {
            let stands = watch.holds()
                && (self.shared.check_kept(look).is_ok() || canary::has(Fault::Unkept));
            stands.then_some(()).ok_or(Astray::Again)
        };
        // CH2 split-under-mark.
        let moved = look.beside && address(hash, self.count()) != index;
        if moved && !canary::has(Fault::StaleCount) {
            return Err(Astray::Again);
        }
        loop {
            for (slot, record, is_right) in bucket.candidates(hash, look.view) {
                held()?;
                if !is_right {
                    return Err(Astray::Damaged(bucket.at));
                }
                if Record::at(&self.shared.pool, record).map(Record::key) == Some(key) {
                    return Ok(Some(Found {
                        bucket,
                        slot,
                        record,
                    }));
                }
            }
            let link = bucket.link(look.view);
            let is_right = link.is_none_or(|(slot, _)| bucket.is_right(slot));
            held()?;
            match link {
                Some(_) if !is_right => return Err(Astray::Damaged(bucket.at)),
                Some((_, next)) => bucket = next,
                None => return Ok(None),
            }
        }
    }

    /// The record of a key, if it is whole.
    pub(super) fn record_of(&self, key: &[u8], look: Look) -> Result<Option<Record<'_>>, Error> {
        let hash = self.hash(key);
        loop {
            let found = self.find(key, hash, look);
            self.shared.check_kept(look)?;
            let found = match found {
                Ok(found) => found,
                Err(astray) => {
                    self.shared.astray(astray, look)?;
                    continue;
                }
            };
            let record = found.map(|found| self.shared.record_at(found.record));
            return record.transpose();
        }
    }
}
