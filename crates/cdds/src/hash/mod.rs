//! The CDDS hash table: the paper's second structure (§3.4), versioned as the tree is. It grows by
//! a bucket at a time, for writers as for readers.
//!
//! The paper names a proof of concept and says of it that it copies what it changes. This one
//! changes buckets in place, by entries with epochs, and finds them by linear hashing (Litwin,
//! VLDB 1980): when the buckets are two thirds full, the next one in turn is split into itself and
//! a new last one, whatever bucket was written to. What a split moves begins in the new bucket and
//! ends in the old one, so a view of before the split finds all of it where it was. A bucket that
//! is full has a link, in one of its slots, to a further one.
//!
//! A table lies in a pool of its own. The pool's tree, otherwise empty, has the epochs, the commit,
//! the snapshots and the pins of readers; CT1 one-word, CT2 kept-at-once and CT3 horizon hold for
//! the table by that.
//!
//! | file | what |
//! |---|---|
//! | `bucket.rs` | buckets and their slots |
//! | `directory.rs` | the way to a bucket, and to a key (CD1 in-order, CD2 longest-seen) |
//! | `change.rs` | puts, removals and splits |
//! | `check.rs` | the checker |
//!
//! - **CH1 last-slot** A bucket that the present has no link of has a slot that nobody needs: the
//!   link's. A void link leaves its own; one is ended only beside another free slot.
//! - **CH2 split-under-mark** The latch of a chain's first bucket is that of the chain. A split
//!   marks it, tells of the new bucket, and only then ends what has moved. A reader
//!   that has a watch of the chain asks for the number of buckets again: it notices a split that
//!   came before by the number, a later one by the watch.
//! - **CH3 growth-can-wait** No key depends on the number of buckets. Where a full pool has no room
//!   to split, chains become longer, and removals need no room.
//! - **CH4 noted-as-the-tree's** How many chains were cleaned is noted in the tree, as how far its
//!   own cleaning has got, and holds for the same reasons (CG4 none-again, CG5 noted-with): what a
//!   split moves to a new bucket begins there in the open epoch. The tree's cleaning begins when
//!   all chains are clean, for the ranges that there were when theirs began.
//!
//! Deliberately absent: fewer buckets again; several writers at a time; an order of keys.

mod bucket;
mod change;
mod check;
mod directory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use pando_pmem::{Pmem, Pool, Shape, Writes};
use pando_sync::LogEpoch;

use self::bucket::bucket_bytes;
use self::directory::Directory;
use crate::canary::{self, Fault};
use crate::limits::{BUCKET_SLOTS, CLEANED_BETWEEN_NOTES, ENTRIES_MIN};
use crate::node::View;
use crate::reader::Reader;
use crate::record::Record;
use crate::shared::Look;
use crate::tree::{Error, Snapshot, Tree};

/// Fewest slots of a bucket: two entries and a link.
const SLOTS_MIN: u64 = 3;
/// Most of them: one line of fingerprints.
const SLOTS_MAX: u64 = 62;

/// Chains that are looked at to know about how many keys there are.
const SAMPLED: u64 = 64;

/// The format of a table: 3 since pairs of the directory are sealed, 1 before. It is odd.
const FORMAT: u32 = 3;

/// What the header of a pool says of a table of buckets of so many slots, and of its format.
pub(crate) const fn node_bytes(slots: u64) -> u32 {
    bucket_bytes(slots) as u32 + FORMAT
}

/// A hash table in a pool of its own.
///
/// ```
/// use std::sync::Arc;
/// use pando_cdds::Table;
/// use pando_pmem::{Pool, Simulated};
///
/// let pool = Pool::create(Simulated::new(1 << 20), Table::<Simulated>::shape()).unwrap();
/// let mut table = Table::open(Arc::new(pool)).unwrap();
/// table.put(b"tree", b"pando").unwrap();
/// let then = table.retain().unwrap();
/// table.remove(b"tree").unwrap();
/// table.commit().unwrap();
/// assert_eq!(table.get_at(then, b"tree").unwrap(), Some(&b"pando"[..]));
/// table.roll_back(then).unwrap();
/// assert_eq!(table.get(b"tree").unwrap(), Some(&b"pando"[..]));
/// ```
pub struct Table<M> {
    tree: Tree<M>,
    directory: Arc<Directory<M>>,
    /// About so many.
    keys: u64,
    /// With fewer keys it does not grow, since there was no room.
    patient_to: u64,
    /// How far cleaning up has got, if it has begun.
    cleaning: Option<Cleaned>,
    /// Steps of cleaning between two notes.
    noted_every: usize,
}

/// The name of the pair of the tree that has [`Cleaned`], both numbers little-endian.
const CLEANED_NAME: &[u8] = b"chains";
/// The same of how far the tree's cleaning has got.
const CLEANING_NAME: &[u8] = b"tree";

/// How far the cleaning of chains has got (CH4 noted-as-the-tree's).
#[derive(Clone, Copy, Debug)]
struct Cleaned {
    /// The newest epoch of the ranges that are to be forgotten.
    until: LogEpoch,
    /// The first chains, which are clean.
    chains: u64,
    /// Steps since that was noted.
    unnoted: usize,
}

impl<M: Pmem> fmt::Debug for Table<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Table")
            .field("buckets", &self.directory.count())
            .field("tree", &self.tree)
            .finish_non_exhaustive()
    }
}

impl<M: Pmem> Table<M> {
    /// What a pool for a table is made with. The size of its nodes is odd, which no tree's is, and
    /// no whole number of lines beyond that of another format's.
    #[must_use]
    pub fn shape() -> Shape {
        Shape::with_nodes(node_bytes(BUCKET_SLOTS))
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    /// Where a key's slot is.
    #[cfg(test)]
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<pando_pmem::Offset> {
        let look = Look::alone(self.tree.present());
        let found = self.directory.find(key, self.directory.hash(key), look);
        let found = found.ok().flatten()?;
        Some(found.bucket.slot_at(found.slot))
    }

    /// Where the directory's pairs are, that are seen.
    #[cfg(test)]
    pub(crate) fn pairs(&self) -> Vec<pando_pmem::Offset> {
        let pairs = (0..self.directory.count()).map(|index| self.directory.way_to(index));
        let mut pairs: Vec<_> = pairs.flatten().collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Opens the table of a pool, or makes an empty one. O(log n), whatever it holds, unless the
    /// pool is crowded with void ranges: then it is cleaned up first, in O(pool).
    pub fn open(pool: Arc<Pool<M>>) -> Result<Self, Error> {
        let bytes = pool.shape().node_bytes;
        let slots = (SLOTS_MIN..=SLOTS_MAX).rfind(|slots| node_bytes(*slots) == bytes);
        let slots = slots.ok_or(Error::Entries { entries: bytes })?;
        let tree = Tree::open_with(pool, ENTRIES_MIN.into())?;
        let directory = Arc::new(Directory::new(Arc::clone(&tree.shared), slots)?);
        let mut table = Self {
            tree,
            directory,
            keys: 0,
            patient_to: 0,
            cleaning: None,
            noted_every: CLEANED_BETWEEN_NOTES,
        };
        if table.tree.pool.is_crowded() {
            if !canary::has(Fault::ForgottenUncleaned) {
                (0..table.directory.count()).try_for_each(|index| table.clean_chain(index))?;
                table.directory.clean()?;
            }
            table.tree.clean_at_once()?;
        }
        if table.directory.count() == 0 {
            table.tree.begin()?;
            table.grow()?;
            table.commit()?;
        }
        table.keys = table.estimate()?;
        Ok(table)
    }

    /// What a thread reads the table with, while this one changes it; none when there are
    /// [`pando_engine::limits::SESSIONS_MAX`] of them.
    pub fn reader(&self) -> Option<TableReader<M>> {
        Some(TableReader {
            reader: self.tree.reader()?,
            directory: Arc::clone(&self.directory),
        })
    }

    /// The value of a key. Reads a line of fingerprints, one of a slot, and its record.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        self.look_up(key, self.tree.present())
    }

    /// The value that a key had at a snapshot.
    pub fn get_at(&self, at: Snapshot, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        self.look_up(key, self.tree.view(at)?)
    }

    fn look_up(&self, key: &[u8], view: View) -> Result<Option<&[u8]>, Error> {
        let record = self.directory.record_of(key, Look::alone(view))?;
        Ok(record.map(Record::value))
    }

    /// Shows every key and value, in no order; those of a snapshot, if one is given.
    pub fn for_each(
        &self,
        at: Option<Snapshot>,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        let view = at.map_or(Ok(self.tree.present()), |at| self.tree.view(at))?;
        for index in 0..self.directory.count_at(view)? {
            for bucket in self.sound_chain(index, view)? {
                for (_, _, record) in bucket.keys(view) {
                    let record = self.directory.shared.record_at(record)?;
                    visit(record.key(), record.value());
                }
            }
        }
        Ok(())
    }

    /// Makes everything since the last commit durable, as one; the epoch that it is. Nothing
    /// happens if nothing has changed.
    pub fn commit(&mut self) -> Result<LogEpoch, Error> {
        self.tree.commit()
    }

    /// Keeps this moment, durably. Commits.
    pub fn retain(&mut self) -> Result<Snapshot, Error> {
        self.tree.retain()
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> + '_ {
        self.tree.snapshots()
    }

    /// Lets a snapshot go, durably: what it alone saw is used again from now on.
    pub fn release(&mut self, snapshot: Snapshot) -> Result<(), Error> {
        self.tree.release(snapshot)
    }

    /// Makes the present what it was at a snapshot, which stays: O(log n), whatever has happened
    /// since. Waits until readers have ended their pins.
    pub fn roll_back(&mut self, snapshot: Snapshot) -> Result<(), Error> {
        let view = self.tree.view(snapshot)?;
        let (before, count) = (self.directory.count(), self.directory.count_at(view)?);
        // Whoever is let in again finds the number that goes with the epochs (CL5 closed).
        self.directory.shared.close();
        self.directory.set_count(count);
        let result = self.tree.roll_back(snapshot);
        if result.is_err() {
            self.directory.set_count(before);
            self.directory.shared.reopen();
            return result;
        }
        (self.cleaning, self.patient_to) = (None, 0);
        self.keys = self.estimate()?;
        Ok(())
    }

    /// Cleans up after crashes and rollbacks: up to `steps` chains, or chunks of the pool. Whether
    /// more is to be done; the next commit after the last step ends it. It goes on after a crash
    /// where it was some commits before.
    pub fn clean(&mut self, steps: usize) -> Result<bool, Error> {
        let Some(mut cleaned) = self.cleaning()? else {
            return Ok(false);
        };
        let count = self.directory.count();
        let are_clean = cleaned.chains >= count;
        if are_clean {
            // What is void of the table is gone: the tree and the pool may forget (CG2 all-views).
            self.tree.resume_cleaning(CLEANING_NAME)?;
            let goes_on = self.tree.clean_until(cleaned.until, steps)?;
            if !goes_on {
                self.cleaning = Some(cleaned);
                return Ok(false);
            }
        } else {
            let until = count.min(cleaned.chains + steps as u64);
            for index in cleaned.chains..until {
                self.clean_chain(index)?;
            }
            cleaned.chains = until;
            if until == count {
                self.directory.clean()?;
            }
        }
        cleaned.unnoted += steps;
        if cleaned.unnoted >= self.noted_every {
            cleaned.unnoted = 0;
            if are_clean {
                self.tree.note_cleaning(CLEANING_NAME)?;
            } else {
                self.note_cleaned(cleaned)?;
            }
        }
        self.cleaning = Some(cleaned);
        Ok(true)
    }

    /// How far cleaning has got: as it is known, or noted, or not at all; none if nothing is void.
    fn cleaning(&self) -> Result<Option<Cleaned>, Error> {
        let voids = self.tree.pool.voids();
        let [Some(oldest), Some(newest)] = [voids.first(), voids.last()] else {
            return Ok(None);
        };
        let is_current = |cleaned: &Cleaned| oldest.last <= cleaned.until;
        if let Some(cleaned) = self.cleaning.filter(is_current) {
            return Ok(Some(cleaned));
        }
        let noted = self.tree.get(CLEANED_NAME)?.map(<[u8]>::as_chunks);
        let noted = match noted {
            Some(([until, chains], [])) => Some(Cleaned {
                until: LogEpoch(u64::from_le_bytes(*until)),
                chains: u64::from_le_bytes(*chains),
                unnoted: 0,
            }),
            _ => None,
        };
        Ok(Some(noted.filter(is_current).unwrap_or(Cleaned {
            until: newest.last,
            chains: 0,
            unnoted: 0,
        })))
    }

    /// Notes how many chains are clean, if there is room.
    fn note_cleaned(&mut self, cleaned: Cleaned) -> Result<(), Error> {
        let ahead = u64::from(canary::has(Fault::NotedAhead)) * self.directory.count();
        let words = [cleaned.until.0, cleaned.chains.max(ahead)];
        let note: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        match self.tree.put_in_reserve(CLEANED_NAME, &note) {
            Ok(()) | Err(Error::Full(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Cleans the buckets of a chain that some view may come to, each of which must be as it was
    /// stored (CN5 sealed).
    fn clean_chain(&self, index: u64) -> Result<(), Error> {
        let _window = Writes::new(self.tree.pool.memory());
        let needs = self.tree.needs();
        let mut buckets = vec![self.directory.head(index)?];
        while let Some(bucket) = buckets.pop() {
            bucket.check_right()?;
            buckets.extend(bucket.links_needed(&needs));
            bucket.clean();
        }
        Ok(())
    }

    /// Notes every step of cleaning from now on; whether it will go on from a note.
    #[cfg(test)]
    pub(crate) fn note_often(&mut self) -> bool {
        self.noted_every = 1;
        let has_begun = self.cleaning.is_some() || self.tree.cleaning.is_some();
        let noted = self.cleaning().expect("nothing is damaged");
        !has_begun && noted.is_some_and(|noted| noted.chains > 0)
    }

    /// Whether a bucket that some view may come to has an epoch for which this is so.
    #[cfg(test)]
    pub(crate) fn has_epoch(&self, is_one: impl Fn(u64) -> bool) -> bool {
        let needs = self.tree.needs();
        (0..self.directory.count()).any(|index| {
            let mut buckets: Vec<_> = self.directory.head(index).into_iter().collect();
            while let Some(bucket) = buckets.pop() {
                let spans = (0..self.directory.slots).map(|slot| bucket.span(slot));
                if { spans }.any(|span| is_one(span.start) || is_one(span.end)) {
                    return true;
                }
                buckets.extend(bucket.links_needed(&needs));
            }
            false
        })
    }

    /// Closes the pool in peace: the next opening has nothing to take back.
    pub fn close(self) -> Result<(), Error> {
        self.tree.close()
    }

    /// About how many keys there are, by a look at some chains.
    fn estimate(&self) -> Result<u64, Error> {
        let (count, view) = (self.directory.count(), self.tree.present());
        let step = count.div_ceil(SAMPLED) as usize;
        let sampled = (0..count).step_by(step);
        let mut keys = 0;
        for index in sampled.clone() {
            let chain = self.chain(index, view)?;
            keys += chain
                .iter()
                .map(|bucket| bucket.keys(view).count())
                .sum::<usize>();
        }
        Ok(keys as u64 * count / sampled.count() as u64)
    }
}

/// What a thread reads a table with, while another one changes it. It sees what was put and removed
/// at once, committed or not.
pub struct TableReader<M> {
    reader: Reader<M>,
    directory: Arc<Directory<M>>,
}

impl<M: Pmem> fmt::Debug for TableReader<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TableReader")
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}

impl<M: Pmem> TableReader<M> {
    /// Shows the value of a key to `read`.
    pub fn get<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Error> {
        let _pinned = self.reader.pinned();
        let record = self.directory.record_of(key, Look::PRESENT)?;
        Ok(read(record.map(Record::value)))
    }

    /// Shows the value that a key had at a snapshot; fails if it is released meanwhile.
    pub fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Error> {
        let _pinned = self.reader.pinned();
        let view = self.directory.shared.view_of(at.epoch())?;
        let record = self.directory.record_of(key, Look::past(view))?;
        Ok(read(record.map(Record::value)))
    }
}
