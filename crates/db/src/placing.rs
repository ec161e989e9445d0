//! Which keys this server has, while a ring changes and after it did: the [`Placement`], and what
//! the mover of keys has to know.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `Placing::changes` | [`Placing::set`] | all gates, `Release` | every turn, when it takes a gate |
//! | `Placing::present` | the same | its mutex | turns that see another number of changes |
//! | `Mover::changed` | every commit of a key that leaves | the mutex of its range | the mover |
//! | `Mover::lost` | whoever loses track, `Relaxed` | a gate | the mover, behind gates |
//!
//! A session keeps what it saw last. It looks again whenever it takes a gate, and what it sees
//! cannot change while it holds one (PG1 stands-still). Without a placement that is one load and
//! one compare.
//!
//! *The mover* copies keys from outside (`pando reshard`). It asks which keys have changed since it
//! began: the tail of the log, as far as it matters here, with one entry for a key however often
//! it was written. A restart forgets the mover, and so do changes that no single key shows (a
//! FLUSHALL, a full copy from a primary): it must begin anew.
//!
//! Invariants:
//! - **PG1 stands-still** The placement changes only under all gates: a command sees one.
//! - **PG2 told-before-fenced** When a range has become fenced, each change of a key that leaves
//!   with it is among those that the mover is told, or was before.
//!
//! Deliberately absent: files and requests (the server), copying (the mover).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_protocol::Request;
use pando_protocol::command::{CommandSpec, keys};
use pando_ring::limits::RANGES;
use pando_ring::{Placement, RangeState};
use pando_sync::{Padded, lock};

use crate::clock::Microseconds;
use crate::limits;

/// Keys of a range that have changed, one behind the other as they changed: 4 bytes for the
/// database, 4 for the length, the key. A key that changes again comes again; those are dropped
/// whenever there are twice as many bytes as were left the last time.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    /// When it is time to drop what is there twice.
    full: usize,
}

/// Bytes of a name before its key.
const NAME_HEAD_BYTES: usize = 8;

impl Names {
    /// Adds a name; by how many bytes there are more, or fewer.
    #[inline]
    fn add(&mut self, database: usize, key: &[u8]) -> isize {
        let before = self.bytes.len() as isize;
        self.bytes.reserve(NAME_HEAD_BYTES + key.len());
        for number in [database, key.len()] {
            self.bytes.extend_from_slice(&(number as u32).to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        if self.bytes.len() > self.full.max(limits::MOVED_NAMES_BYTES) {
            self.drop_repeated();
            self.full = 2 * self.bytes.len();
        }
        self.bytes.len() as isize - before
    }

    /// Leaves each name once.
    #[cold]
    fn drop_repeated(&mut self) {
        let mut once = Vec::with_capacity(self.bytes.len());
        let (mut seen, mut rest) = (HashSet::new(), &self.bytes[..]);
        while let Some((name, behind)) = split(rest) {
            if seen.insert(name) {
                once.extend_from_slice(name);
            }
            rest = behind;
        }
        self.bytes = once;
    }

    /// Takes up to so many names, each once; how many bytes they took.
    fn take(&mut self, count: usize, taken: &mut Vec<Changed>) -> usize {
        let before = self.bytes.len();
        self.drop_repeated();
        let mut rest = &self.bytes[..];
        while taken.len() < count
            && let Some((name, behind)) = split(rest)
        {
            let (database, key) = name.split_at(NAME_HEAD_BYTES);
            let database = database.first_chunk().expect("a name begins with it");
            taken.push((u32::from_le_bytes(*database) as usize, key.into()));
            rest = behind;
        }
        self.bytes = rest.to_vec();
        self.full = 2 * self.bytes.len();
        before - self.bytes.len()
    }
}

/// Cuts the first name off.
fn split(names: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = names.get(4..)?.first_chunk()?;
    names.split_at_checked(NAME_HEAD_BYTES + u32::from_le_bytes(*length) as usize)
}

/// A key of a database.
type Changed = (usize, Box<[u8]>);

/// What is kept for a mover.
pub struct Mover {
    token: Box<[u8]>,
    lost: AtomicBool,
    bytes: AtomicIsize,
    changed: Box<[Padded<Mutex<Names>>]>,
}

impl Mover {
    /// One that calls itself `token`.
    pub fn new(token: &[u8]) -> Self {
        Self {
            token: token.into(),
            lost: AtomicBool::new(false),
            bytes: AtomicIsize::new(0),
            changed: (0..RANGES).map(|_| Padded::default()).collect(),
        }
    }

    /// What it calls itself.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// Whether something has changed that it cannot be told.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Notes that a key has changed. Beyond [`limits::MOVER_BYTES_MAX`] it loses track.
    fn note(&self, range: usize, database: usize, key: &[u8]) {
        if self.is_lost() {
            return;
        }
        let more = lock(&self.changed[range]).add(database, key);
        let bytes = self.bytes.fetch_add(more, Ordering::Relaxed) + more;
        if bytes > limits::MOVER_BYTES_MAX as isize {
            self.drop_repeated();
        }
    }

    /// Drops what is there twice; if that is not enough, it loses track.
    #[cold]
    fn drop_repeated(&self) {
        for names in &self.changed {
            let mut names = lock(names);
            let before = names.bytes.len();
            names.drop_repeated();
            let fewer = before - names.bytes.len();
            self.bytes.fetch_sub(fewer as isize, Ordering::Relaxed);
        }
        // Half of it: else each of the next keys would look at all of them.
        if self.bytes.load(Ordering::Relaxed) > limits::MOVER_BYTES_MAX as isize / 2 {
            self.lose();
        }
    }

    /// Takes up to so many keys that have changed: of a range, or of any.
    pub fn take(&self, range: Option<usize>, count: usize) -> Vec<(usize, Box<[u8]>)> {
        let ranges = range.map_or(0..RANGES, |range| range..range + 1);
        let mut taken = Vec::new();
        for names in &self.changed[ranges] {
            let fewer = lock(names).take(count, &mut taken);
            self.bytes.fetch_sub(fewer as isize, Ordering::Relaxed);
            if taken.len() == count {
                break;
            }
        }
        taken
    }
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover")
            .field("lost", &self.lost)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A placement, and who moves keys by it.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Whose which keys are.
    pub placement: Placement,
    /// Who moves them, since the server started.
    pub mover: Option<Arc<Mover>>,
    /// Until when requests wait for the range that was fenced last.
    pub patience: Microseconds,
}

impl Placed {
    /// The same with these ranges in another state.
    #[must_use]
    pub fn with(&self, ranges: &[usize], state: RangeState) -> Self {
        let placement = ranges.iter().fold(self.placement.clone(), |before, range| {
            before.with(*range, state)
        });
        Self {
            placement,
            ..self.clone()
        }
    }

    /// A key of a database has changed here (PG2 told-before-fenced).
    pub(crate) fn note(&self, database: usize, key: &[u8]) {
        if let Some(mover) = &self.mover
            && let Some(range) = self.placement.leaves(key)
        {
            mover.note(range, database, key);
        }
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Placing {
    changes: AtomicU64,
    present: Mutex<Option<Arc<Placed>>>,
}

/// What a session saw last.
#[derive(Debug, Default)]
pub(crate) struct PlacedSeen {
    pub(crate) changes: u64,
    pub(crate) placed: Option<Arc<Placed>>,
    /// Whether a mover is to be told what changes.
    pub(crate) notes: bool,
}

impl PlacedSeen {
    /// Looks again. The caller holds a gate (PG1 stands-still).
    #[inline]
    pub(crate) fn follow(&mut self, placing: &Placing) {
        // Acquire pairs with `set`. The gates order them already; it is for followers, which hold
        // none.
        let changes = placing.changes();
        if changes != self.changes {
            self.changes = changes;
            self.placed = placing.present();
            let placed = self.placed.as_ref();
            let notes = |it: &Arc<Placed>| it.mover.is_some() && !it.placement.is_settled();
            self.notes = placed.is_some_and(notes);
        }
    }

    /// Whether this server has the key.
    pub(crate) fn is_here(&self, key: &[u8]) -> bool {
        let is_here = |placed: &Arc<Placed>| placed.placement.is_here(key);
        self.placed.as_ref().is_none_or(is_here)
    }

    /// Whether this server has all keys of a request.
    #[inline]
    pub(crate) fn has_all(&self, spec: &CommandSpec, request: Request<'_>) -> bool {
        let Some(placed) = &self.placed else {
            return true;
        };
        keys(spec, request).all(|at| placed.placement.is_here(request.arg(at)))
    }
}

impl Placing {
    /// How often it has changed.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn present(&self) -> Option<Arc<Placed>> {
        lock(&self.present).clone()
    }

    /// Sets it. The caller holds all gates (PG1 stands-still).
    pub(crate) fn set(&self, placed: Option<Placed>) {
        *lock(&self.present) = placed.map(Arc::new);
        // Release pairs with `changes`: who sees the number sees the placement.
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Data have changed in a way that no single key shows.
    pub(crate) fn lose_mover(&self) {
        if let Some(mover) = self.present().and_then(|placed| placed.mover.clone()) {
            mover.lose();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mover_is_told_each_key_once_and_loses_track_beyond_its_bound() {
        let mover = Mover::new(b"one");
        for _ in 0..3 {
            mover.note(7, 0, b"key");
        }
        mover.note(7, 1, b"key");
        mover.note(9, 0, b"other");
        assert_eq!(mover.take(Some(7), 1).len(), 1);
        assert_eq!(mover.take(None, 10).len(), 2);
        assert!(mover.take(None, 10).is_empty());
        assert_eq!(mover.bytes.load(Ordering::Relaxed), 0);
        let long = vec![b'x'; 60_000];
        for index in 0..limits::MOVER_BYTES_MAX / 2 / 70_000 {
            assert!(!mover.is_lost(), "{index}");
            let key = [index.to_string().as_bytes(), &long].concat();
            mover.note(index % RANGES, 0, &key);
        }
        for index in 0..limits::MOVER_BYTES_MAX / 60_000 {
            let key = [b"again ", index.to_string().as_bytes(), &long].concat();
            mover.note(index % RANGES, 0, &key);
        }
        assert!(mover.is_lost());
    }

    /// However often few keys are written, it keeps track.
    #[test]
    fn what_changes_again_takes_no_more() {
        let mover = Mover::new(b"one");
        let keys: Vec<String> = (0..100).map(|key| format!("{key:01000}")).collect();
        for round in 0..2_000 {
            for key in &keys {
                mover.note(round % 2, 0, key.as_bytes());
            }
        }
        assert!(!mover.is_lost());
        let (mut one, two) = (mover.take(Some(0), 1000), mover.take(Some(1), 1000));
        one.sort_unstable();
        assert!(
            one.iter()
                .map(|(_, key)| &**key)
                .eq(keys.iter().map(String::as_bytes))
        );
        assert_eq!(two.len(), 100);
        assert_eq!(mover.bytes.load(Ordering::Relaxed), 0);
    }
}
