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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando_protocol::Request;
use pando_protocol::command::{CommandSpec, keys};
use pando_ring::limits::RANGES;
use pando_ring::{Placement, RangeState};
use pando_sync::lock;

use crate::clock::Microseconds;
use crate::limits;

/// A key of a database.
type Changed = (usize, Box<[u8]>);

/// What is kept for a mover.
pub struct Mover {
    token: Box<[u8]>,
    lost: AtomicBool,
    bytes: AtomicUsize,
    changed: Box<[Mutex<HashSet<Changed>>]>,
}

impl Mover {
    /// One that calls itself `token`.
    pub fn new(token: &[u8]) -> Self {
        Self {
            token: token.into(),
            lost: AtomicBool::new(false),
            bytes: AtomicUsize::new(0),
            changed: (0..RANGES).map(|_| Mutex::default()).collect(),
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
        let bytes = key.len() + limits::MOVED_KEY_BYTES;
        if self.is_lost() || !lock(&self.changed[range]).insert((database, key.into())) {
            return;
        }
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) > limits::MOVER_BYTES_MAX {
            self.lose();
        }
    }

    /// Takes up to so many keys that have changed: of a range, or of any.
    pub fn take(&self, range: Option<usize>, count: usize) -> Vec<(usize, Box<[u8]>)> {
        let ranges = range.map_or(0..RANGES, |range| range..range + 1);
        let mut taken = Vec::new();
        for changed in &self.changed[ranges] {
            let mut changed = lock(changed);
            let left = count - taken.len();
            if changed.len() <= left {
                taken.extend(changed.drain());
            } else {
                taken.extend(changed.extract_if(|_| true).take(left));
            }
            if taken.len() == count {
                break;
            }
        }
        let bytes = |(_, key): &(usize, Box<[u8]>)| key.len() + limits::MOVED_KEY_BYTES;
        let bytes: usize = taken.iter().map(bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
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
        for index in 0..=limits::MOVER_BYTES_MAX / 60_000 {
            assert!(!mover.is_lost(), "{index}");
            let key = [index.to_string().as_bytes(), &long].concat();
            mover.note(index % RANGES, 0, &key);
        }
        mover.note(1, 0, b"one more");
        assert!(mover.is_lost());
    }
}
