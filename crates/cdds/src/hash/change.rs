//! Puts, removals and splits.
//!
//! What is new is written before anything that is reachable changes (CC1 built-first), and what was
//! reachable is freed in the epoch that ends the last way to it (CR2 freed-with-its-pair).

use pando_pmem::{Mark, Offset, Pmem, Writes};

use super::Table;
use super::bucket::{Bucket, Entry, bucket_bytes};
use super::directory::{Found, PAGE, PAIR_BYTES, address, array_of, pages};
use crate::latch::Held;
use crate::node::View;
use crate::record;
use crate::shared::{Astray, Look};
use crate::tree::Error;

const EMPTY_FLUSH: Mark = Mark("directory: flush of an empty page");

/// The buckets of a chain.
type Chain<'t, M> = Vec<Bucket<'t, M>>;

/// The way to a new bucket.
struct Built {
    bucket: Offset,
    /// If it is the first of a page.
    page: Option<Offset>,
    /// If the page is the first of an array.
    array: Option<Offset>,
}

impl<M: Pmem> Table<M> {
    /// The buckets of a chain, whose links are as they were stored (CN5 sealed).
    pub(super) fn chain(&self, index: u64, view: View) -> Result<Chain<'_, M>, Error> {
        let mut chain = vec![self.directory.head(index)?];
        while let Some((slot, next)) = chain[chain.len() - 1].link(view) {
            let at = chain[chain.len() - 1].at;
            if !chain[chain.len() - 1].is_right(slot) {
                return Err(Error::DamagedNode { at });
            }
            chain.push(next);
        }
        Ok(chain)
    }

    /// The same where all of their slots are: for whoever goes on from all that they have.
    pub(super) fn sound_chain(&self, index: u64, view: View) -> Result<Chain<'_, M>, Error> {
        let chain = self.chain(index, view)?;
        chain.iter().try_for_each(|bucket| bucket.check_right())?;
        Ok(chain)
    }

    fn hold(&self, chain: &[Bucket<'_, M>]) -> Held<'_> {
        let mut held = Held::new(&self.directory.shared.latches);
        held.mark(chain[0].at);
        held
    }

    fn allocate(&self, bytes: u64, taken: &mut Vec<Offset>) -> Result<Offset, Error> {
        let at = self.tree.allocator.allocate(bytes, self.tree.open)?;
        taken.push(at);
        Ok(at)
    }

    fn free(&self, blocks: &[Offset]) {
        for at in blocks {
            self.tree.allocator.free(*at, self.tree.open);
        }
    }

    /// The entry of a key, and its chain.
    fn find(&self, key: &[u8], hash: u64) -> Result<(Option<Found<'_, M>>, Chain<'_, M>), Error> {
        let index = address(hash, self.directory.count());
        let chain = self.chain(index, self.tree.present())?;
        let look = Look::alone(self.tree.present());
        match self.directory.find(key, hash, look) {
            Ok(found) => Ok((found, chain)),
            Err(Astray::Damaged(at)) => Err(Error::DamagedNode { at }),
            Err(Astray::Again) => unreachable!("nobody else changes it"),
        }
    }

    /// Puts a value. Flushes its record and two lines of a bucket, of a chain that is full a bucket
    /// more; splits a bucket where the table grows.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.tree.check_lengths(key, value)?;
        self.tree.begin()?;
        let is_new = self.put_record(key, value)?;
        if is_new {
            self.keys += 1;
            let grown = self.directory.count() * self.directory.slots * 2 / 3;
            if self.keys > grown.max(self.patient_to) {
                match self.grow() {
                    // CH3 growth-can-wait.
                    Err(Error::Full(_)) => self.patient_to = self.keys + self.directory.slots,
                    grown => grown?,
                }
            }
        }
        Ok(())
    }

    /// Whether the key is new.
    fn put_record(&self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        let (pool, open) = (&self.tree.pool, self.tree.open);
        let _window = Writes::new(pool.memory());
        let take = |bytes| self.tree.allocator.allocate(bytes, open);
        let hash = self.directory.hash(key);
        let (found, chain) = self.find(key, hash)?;
        let made = record::make(pool, take, (key, value), 0)?;
        if let Some(found) = &found
            && found.bucket.span(found.slot).start == open.0
        {
            let held = self.hold(&chain);
            found.bucket.replace(found.slot, made);
            drop(held);
            self.free(&[found.record]);
            return Ok(false);
        }
        let entry = Entry::Key(hash, made);
        let needs = self.tree.needs();
        let tail = chain[chain.len() - 1];
        let usable = |bucket: Bucket<'_, M>| {
            // CH1 last-slot.
            let mut free = bucket.free_slots(&needs);
            let first = free.next()?;
            (bucket.at != tail.at || free.next().is_some()).then_some(first)
        };
        let room = chain
            .iter()
            .find_map(|bucket| Some((*bucket, usable(*bucket)?)));
        let (bucket, slot, begun) = if let Some((bucket, slot)) = room {
            (bucket, slot, entry)
        } else {
            let bytes = bucket_bytes(self.directory.slots);
            let at = self.tree.allocator.allocate(bytes, open);
            let at = at.inspect_err(|_| self.free(&[made]))?;
            Bucket::make(pool, at, self.directory.slots, open, [entry]);
            let slot = tail.free_slots(&needs).next();
            let slot = slot.expect("CH1: a slot for the link");
            (tail, slot, Entry::Link(at))
        };
        let held = self.hold(&chain);
        bucket.begin(slot, begun, open);
        let freed = found.as_ref().map(|found| self.end(found, hash));
        drop(held);
        self.free(&freed.transpose()?.unwrap_or_default());
        Ok(found.is_none())
    }

    /// Removes a key; whether it was there. Needs no room.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        if self.get(key)?.is_none() {
            return Ok(false);
        }
        self.tree.begin()?;
        let _window = Writes::new(self.tree.pool.memory());
        let hash = self.directory.hash(key);
        let (found, chain) = self.find(key, hash)?;
        let found = found.expect("it was there");
        let held = self.hold(&chain);
        let freed = self.end(&found, hash)?;
        drop(held);
        self.free(&freed);
        self.keys = self.keys.saturating_sub(1);
        Ok(true)
    }

    /// Ends the entry of a hash; what is freed by that.
    fn end(&self, found: &Found<'_, M>, hash: u64) -> Result<Vec<Offset>, Error> {
        found.bucket.end(found.slot, self.tree.open);
        let mut freed = vec![found.record];
        let index = address(hash, self.directory.count());
        let chain = self.chain(index, self.tree.present())?;
        self.shorten(&chain, &mut freed);
        Ok(freed)
    }

    /// Ends links to what is empty at the end of a chain, where that leaves CH1 last-slot.
    fn shorten(&self, chain: &[Bucket<'_, M>], freed: &mut Vec<Offset>) {
        let (view, needs) = (self.tree.present(), self.tree.needs());
        for pair in chain.windows(2).rev() {
            let [before, last] = [pair[0], pair[1]];
            let has_room = before.free_slots(&needs).next().is_some();
            // One that is damaged may have more than it seems.
            let is_empty = last.check_right().is_ok() && last.keys(view).next().is_none();
            if !is_empty || !has_room {
                break;
            }
            let (slot, _) = before.link(view).expect("it led there");
            before.end(slot, self.tree.open);
            freed.push(last.at);
        }
    }

    /// Adds a bucket, and moves to it what is its.
    pub(super) fn grow(&mut self) -> Result<(), Error> {
        let _window = Writes::new(self.tree.pool.memory());
        let (count, view, open) = (self.directory.count(), self.tree.present(), self.tree.open);
        let mut taken = Vec::new();
        if count == 0 {
            let built = self.build(0, &[], &mut taken)?;
            return self.publish(0, &built);
        }
        let half = 1 << count.ilog2();
        let chain = self.sound_chain(count - half, view)?;
        let is_its = |hash: u64| hash & (2 * half - 1) == count;
        let all = chain.iter().flat_map(|bucket| {
            bucket
                .keys(view)
                .map(move |(slot, hash, record)| (bucket, slot, hash, record))
        });
        let moving: Vec<_> = all.filter(|(_, _, hash, _)| is_its(*hash)).collect();
        let entries: Vec<_> = moving
            .iter()
            .map(|(_, _, hash, record)| Entry::Key(*hash, *record))
            .collect();
        let built = self.build(count, &entries, &mut taken);
        let built = built.inspect_err(|_| self.free(&taken))?;
        let mut freed = Vec::new();
        let held = self.hold(&chain);
        self.publish(count, &built)?;
        for (bucket, slot, ..) in moving {
            bucket.end(slot, open);
        }
        self.shorten(&chain, &mut freed);
        drop(held);
        self.free(&freed);
        Ok(())
    }

    /// A bucket of these entries, or a chain of them, and what the way to it lacks.
    fn build(
        &self,
        index: u64,
        entries: &[Entry],
        taken: &mut Vec<Offset>,
    ) -> Result<Built, Error> {
        let (pool, open, slots) = (&self.tree.pool, self.tree.open, self.directory.slots);
        let mut next = None;
        // The last one first, each with room for a link (CH1 last-slot).
        let in_one = slots as usize - 1;
        let mut parts: Vec<_> = entries.chunks(in_one).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        for part in parts.into_iter().rev() {
            let at = self.allocate(bucket_bytes(slots), taken)?;
            let link = next.map(Entry::Link);
            Bucket::make(pool, at, slots, open, part.iter().copied().chain(link));
            next = Some(at);
        }
        let is_first = index.is_multiple_of(PAGE);
        let (array, place) = array_of(index / PAGE);
        let empty = |pairs: u64, taken: &mut Vec<Offset>| {
            let at = self.allocate(pairs * PAIR_BYTES, taken)?;
            let bytes = vec![0; (pairs * PAIR_BYTES) as usize];
            pool.memory().write(at, &bytes);
            pool.memory().mark(EMPTY_FLUSH);
            pool.memory().flush(at, bytes.len());
            Ok::<_, Error>(at)
        };
        let page = is_first.then(|| empty(PAGE, taken)).transpose()?;
        let is_first = is_first && place == 0;
        let array = is_first.then(|| empty(pages(array), taken)).transpose()?;
        let bucket = next.expect("there is a part");
        Ok(Built {
            bucket,
            page,
            array,
        })
    }

    /// Lets a bucket begin, and tells of it.
    fn publish(&self, index: u64, built: &Built) -> Result<(), Error> {
        let (directory, open) = (&self.directory, self.tree.open);
        let (array, _) = array_of(index / PAGE);
        if let Some(at) = built.array {
            directory.begin(directory.array_at(array), at, open);
        }
        if let Some(at) = built.page {
            directory.begin(directory.page_at(index / PAGE)?, at, open);
        }
        directory.begin(directory.bucket_at(index)?, built.bucket, open);
        directory.set_count(index + 1);
        Ok(())
    }
}
