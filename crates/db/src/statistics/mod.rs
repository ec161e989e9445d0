//! Counters of a session, on its own cache lines, summed on request.

mod memcached;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_sync::lock;

pub use memcached::MemcachedFigures;
pub(crate) use memcached::{Figure, MemcachedCounters};

/// What one session has done; written by that session only. `Relaxed`, since the counters are
/// independent of each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SessionCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) expired_fields: AtomicU64,
    /// Commands of this session that met a key past its deadline, whoever removed it.
    pub(crate) expired_met: AtomicU64,
    pub(crate) evicted: AtomicU64,
    /// Of those that expired or were evicted: known not to have been read since they were written.
    pub(crate) expired_unread: AtomicU64,
    pub(crate) evicted_unread: AtomicU64,
    pub(crate) evicted_expiring: AtomicU64,
    pub(crate) commits: AtomicU64,
    /// Writes refused before they ran, by what was short.
    pub(crate) refused_for_memory: AtomicU64,
    pub(crate) refused_for_readers: AtomicU64,
    pub(crate) refused_for_log: AtomicU64,
    /// What removals have left behind: see `limits::WATCH_BURIED_BYTES_MAX`.
    pub(crate) buried_bytes: AtomicU64,
    pub(crate) memcached: MemcachedCounters,
}

impl SessionCounters {
    /// Adds what another has counted, which then has counted nothing. Both are of the calling
    /// thread.
    pub(crate) fn take_over(&self, other: &Self) {
        take_over(&self.hits, &other.hits);
        take_over(&self.misses, &other.misses);
        take_over(&self.commits, &other.commits);
        let rare = [
            (&self.expired, &other.expired),
            (&self.expired_fields, &other.expired_fields),
            (&self.expired_met, &other.expired_met),
            (&self.evicted, &other.evicted),
            (&self.expired_unread, &other.expired_unread),
            (&self.evicted_unread, &other.evicted_unread),
            (&self.evicted_expiring, &other.evicted_expiring),
            (&self.refused_for_memory, &other.refused_for_memory),
            (&self.refused_for_readers, &other.refused_for_readers),
            (&self.refused_for_log, &other.refused_for_log),
            (&self.buried_bytes, &other.buried_bytes),
        ];
        let mut any = 0;
        for (_, count) in &rare {
            any |= count.load(Ordering::Relaxed);
        }
        if any > 0 {
            for (counter, count) in &rare {
                take_over(counter, count);
            }
        }
        self.memcached.take_over(&other.memcached);
    }
}

/// Adds to a counter that only the calling thread writes: no locked instruction.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// Adds what another counter has, which then has nothing: mostly it has nothing anyway.
#[inline]
fn take_over(counter: &AtomicU64, other: &AtomicU64) {
    let count = other.load(Ordering::Relaxed);
    if count > 0 {
        add(counter, count);
        other.store(0, Ordering::Relaxed);
    }
}

/// The database's counters since it was opened or since they were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads that found a key.
    pub keyspace_hits: u64,
    /// Reads that found none.
    pub keyspace_misses: u64,
    /// Keys removed because their deadline had passed.
    pub expired_keys: u64,
    /// Fields of hashes removed because their deadline had passed, by the background alone.
    pub expired_fields: u64,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// Of the expired ones, those that were not read since they were written. Counted under LRU
    /// policies only, as is the next.
    pub expired_unread_keys: u64,
    /// The same for the evicted ones.
    pub evicted_unread_keys: u64,
    /// Of the evicted ones, those that had a deadline.
    pub evicted_expiring_keys: u64,
    /// Writes and removals committed.
    pub commits: u64,
    /// Writes refused because of the memory limit.
    pub refused_for_memory: u64,
    /// Writes refused because a stalled reader kept replaced memory from being reclaimed.
    pub refused_for_readers: u64,
    /// Writes refused because the log had no space.
    pub refused_for_log: u64,
    /// About what the removals among them left behind, in bytes: keys, plus some for each.
    pub buried_bytes: u64,
}

impl Statistics {
    pub(crate) fn sum<'c>(counters: impl Iterator<Item = &'c SessionCounters>) -> Self {
        counters.fold(Self::default(), |sum, session| Self {
            keyspace_hits: sum.keyspace_hits + session.hits.load(Ordering::Relaxed),
            keyspace_misses: sum.keyspace_misses + session.misses.load(Ordering::Relaxed),
            expired_keys: sum.expired_keys + session.expired.load(Ordering::Relaxed),
            expired_fields: sum.expired_fields + session.expired_fields.load(Ordering::Relaxed),
            evicted_keys: sum.evicted_keys + session.evicted.load(Ordering::Relaxed),
            expired_unread_keys: sum.expired_unread_keys
                + session.expired_unread.load(Ordering::Relaxed),
            evicted_unread_keys: sum.evicted_unread_keys
                + session.evicted_unread.load(Ordering::Relaxed),
            evicted_expiring_keys: sum.evicted_expiring_keys
                + session.evicted_expiring.load(Ordering::Relaxed),
            commits: sum.commits + session.commits.load(Ordering::Relaxed),
            refused_for_memory: sum.refused_for_memory
                + session.refused_for_memory.load(Ordering::Relaxed),
            refused_for_readers: sum.refused_for_readers
                + session.refused_for_readers.load(Ordering::Relaxed),
            refused_for_log: sum.refused_for_log + session.refused_for_log.load(Ordering::Relaxed),
            buried_bytes: sum.buried_bytes + session.buried_bytes.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            keyspace_hits: self.keyspace_hits + other.keyspace_hits,
            keyspace_misses: self.keyspace_misses + other.keyspace_misses,
            expired_keys: self.expired_keys + other.expired_keys,
            expired_fields: self.expired_fields + other.expired_fields,
            evicted_keys: self.evicted_keys + other.evicted_keys,
            expired_unread_keys: self.expired_unread_keys + other.expired_unread_keys,
            evicted_unread_keys: self.evicted_unread_keys + other.evicted_unread_keys,
            evicted_expiring_keys: self.evicted_expiring_keys + other.evicted_expiring_keys,
            commits: self.commits + other.commits,
            refused_for_memory: self.refused_for_memory + other.refused_for_memory,
            refused_for_readers: self.refused_for_readers + other.refused_for_readers,
            refused_for_log: self.refused_for_log + other.refused_for_log,
            buried_bytes: self.buried_bytes + other.buried_bytes,
        }
    }

    /// What was counted since `base`.
    #[must_use]
    pub fn since(self, base: Self) -> Self {
        Self {
            keyspace_hits: self.keyspace_hits - base.keyspace_hits,
            keyspace_misses: self.keyspace_misses - base.keyspace_misses,
            expired_keys: self.expired_keys - base.expired_keys,
            expired_fields: self.expired_fields - base.expired_fields,
            evicted_keys: self.evicted_keys - base.evicted_keys,
            expired_unread_keys: self.expired_unread_keys - base.expired_unread_keys,
            evicted_unread_keys: self.evicted_unread_keys - base.evicted_unread_keys,
            evicted_expiring_keys: self.evicted_expiring_keys - base.evicted_expiring_keys,
            commits: self.commits - base.commits,
            refused_for_memory: self.refused_for_memory - base.refused_for_memory,
            refused_for_readers: self.refused_for_readers - base.refused_for_readers,
            refused_for_log: self.refused_for_log - base.refused_for_log,
            buried_bytes: self.buried_bytes - base.buried_bytes,
        }
    }
}

/// The counters of all sessions, including closed ones.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    sums: Mutex<Sums>,
}

/// Counters of the open sessions, and the sums of the closed ones.
#[derive(Debug, Default)]
struct Sums {
    open: Vec<Arc<SessionCounters>>,
    ended: Statistics,
    ended_memcached: MemcachedFigures,
    /// The counts when `stats reset` was requested.
    memcached_base: MemcachedFigures,
}

impl Sums {
    fn memcached(&self) -> MemcachedFigures {
        let mut sum = self.ended_memcached;
        for session in &self.open {
            sum.add(&session.memcached);
        }
        sum
    }
}

impl Counters {
    /// The counters of a session that begins.
    pub(crate) fn open(&self) -> Arc<SessionCounters> {
        let counters = Arc::new(SessionCounters::default());
        lock(&self.sums).open.push(Arc::clone(&counters));
        counters
    }

    /// Keeps the counts of a session being closed.
    pub(crate) fn close(&self, session: &Arc<SessionCounters>) {
        let mut sums = lock(&self.sums);
        sums.ended = Statistics::sum([&**session].into_iter()).plus(sums.ended);
        sums.ended_memcached.add(&session.memcached);
        let open = sums.open.len();
        sums.open.retain(|open| !Arc::ptr_eq(open, session));
        assert_eq!(sums.open.len() + 1, open, "closed once");
    }

    /// What all sessions have counted. O(open sessions).
    pub(crate) fn statistics(&self) -> Statistics {
        let sums = lock(&self.sums);
        Statistics::sum(sums.open.iter().map(Arc::as_ref)).plus(sums.ended)
    }

    /// Counts of memcached commands since the start, or since [`Self::reset_memcached`].
    pub(crate) fn memcached(&self) -> MemcachedFigures {
        let sums = lock(&self.sums);
        sums.memcached().since(&sums.memcached_base)
    }

    /// Resets the counts of memcached commands.
    pub(crate) fn reset_memcached(&self) {
        let mut sums = lock(&self.sums);
        sums.memcached_base = sums.memcached();
    }
}
