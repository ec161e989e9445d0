//! The database: an engine, the mapping of database numbers to trees, gates and the expiry index.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `trees[i]` | SWAPDB, FLUSHDB, FLUSHALL | all gates, `Relaxed` | commands under a gate, `Relaxed` |
//! | `free_gates` | sessions opening and closing | its mutex | the same |
//! | `counters` | sessions opening and closing | its mutex | INFO |
//! | `max_memory` | CONFIG SET | `Relaxed` | writes |
//! | `active_expire` | DEBUG | `Relaxed` | the expirer |
//! | `pause_until_us`, `pause_all` | CLIENT PAUSE | `Relaxed` | every command |
//!
//! Invariants:
//! - **B1** The mapping changes only under all gates, so it stands still for whoever holds one; the
//!   gates' mutexes order the `Relaxed` accesses.
//! - **B2** A session's gate index is its own from opening to drop.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pando_engine::{EpochClock, Gauge, LogEpoch, SessionLimit, TreeId};
use pando_sync::Gates;
use thiserror::Error;

use crate::cursors::Cursors;
use crate::expiry::ExpiryIndex;
use crate::limits;
use crate::maintenance::Maintenance;
use crate::options::Options;
use crate::session::{Session, SessionState};
use crate::statistics::{SessionCounters, Statistics};
use crate::store::Store;
use crate::watch::WatchHorizon;

/// Why a database cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// An option is outside its range.
    #[error("{option} is {got}, expected {expected}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What was given.
        got: usize,
        /// The range.
        expected: &'static str,
    },
    /// The background thread could not be started.
    #[error("cannot start the maintenance thread: {0}")]
    Thread(#[from] std::io::Error),
    /// No session is left for the background thread.
    #[error(transparent)]
    Session(#[from] SessionLimit),
}

/// Counters of the open sessions, and the sums of those that have ended.
#[derive(Debug, Default)]
struct Counters {
    open: Vec<Arc<SessionCounters>>,
    ended: Statistics,
}

/// An open database; share it as `Arc<Database>` and open a [`Session`] per thread.
pub struct Database {
    pub(crate) options: Options,
    pub(crate) epochs: Arc<EpochClock>,
    pub(crate) store: Store,
    pub(crate) gates: Gates,
    pub(crate) expiry: ExpiryIndex,
    pub(crate) cursors: Cursors,
    pub(crate) watch_horizon: WatchHorizon,
    trees: Box<[AtomicU32]>,
    free_gates: Mutex<Vec<usize>>,
    counters: Mutex<Counters>,
    max_memory: AtomicUsize,
    active_expire: AtomicBool,
    pause_until_us: AtomicU64,
    pause_all: AtomicBool,
    maintenance: Mutex<Option<Maintenance>>,
}

impl Database {
    /// Opens an empty database and starts its maintenance thread, which ticks the log epoch, purges
    /// tombstones and removes expired keys until [`Self::close`].
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        check(
            "databases",
            options.databases,
            1,
            limits::DATABASES_MAX,
            "1 to 1024",
        )?;
        let sessions_max = pando_engine::limits::SESSIONS_MAX;
        check(
            "sessions_max",
            options.sessions_max,
            2,
            sessions_max,
            "2 to 1024",
        )?;
        let key_bytes_max = pando_engine::limits::KEY_BYTES_MAX;
        check(
            "key_bytes_max",
            options.key_bytes_max,
            1,
            key_bytes_max,
            "1 to 65536",
        )?;
        let epochs = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let store = Store::open(options.engine, Arc::clone(&epochs));
        let trees = (0..options.databases)
            .map(|_| AtomicU32::new(store.create_tree().0))
            .collect();
        let database = Arc::new(Self {
            gates: Gates::new(options.sessions_max),
            free_gates: Mutex::new((0..options.sessions_max).rev().collect()),
            cursors: Cursors::new(options.seed),
            options,
            epochs,
            store,
            expiry: ExpiryIndex::new(),
            watch_horizon: WatchHorizon::default(),
            trees,
            counters: Mutex::default(),
            max_memory: AtomicUsize::new(0),
            active_expire: AtomicBool::new(true),
            pause_until_us: AtomicU64::new(0),
            pause_all: AtomicBool::new(false),
            maintenance: Mutex::new(None),
        });
        let maintenance = Maintenance::start(&database)?;
        *lock(&database.maintenance) = Some(maintenance);
        Ok(database)
    }

    /// Stops the maintenance thread. Sessions go on working; their owners call
    /// [`Session::maintain`] from time to time.
    pub fn close(&self) {
        let maintenance = lock(&self.maintenance).take();
        drop(maintenance);
    }

    /// Opens a session. The caller has no turn open: opening may wait for a command that holds all
    /// gates.
    pub fn session(self: &Arc<Self>) -> Result<Session, SessionLimit> {
        Ok(Session::new(Arc::clone(self), self.open_session()?))
    }

    /// What a session owns, without a share of the database. [`Self::close_session`] takes it back.
    pub(crate) fn open_session(&self) -> Result<SessionState, SessionLimit> {
        let store = self.store.session()?;
        let limit = SessionLimit {
            sessions_max: self.options.sessions_max,
        };
        let gate = lock(&self.free_gates).pop().ok_or(limit)?;
        self.gates.open(gate);
        let counters = Arc::new(SessionCounters::default());
        lock(&self.counters).open.push(Arc::clone(&counters));
        let random = fastrand::Rng::with_seed(self.options.seed.wrapping_add(gate as u64));
        Ok(SessionState {
            store,
            gate,
            counters,
            random,
            now_us: 0,
        })
    }

    /// Takes back the gate of a session that ends, and keeps what it has counted (B2).
    pub(crate) fn close_session(&self, session: &SessionState) {
        let mut counters = lock(&self.counters);
        counters.ended = Statistics::sum([&*session.counters].into_iter()).plus(counters.ended);
        counters
            .open
            .retain(|open| !Arc::ptr_eq(open, &session.counters));
        drop(counters);
        lock(&self.free_gates).push(session.gate);
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.trees.len()
    }

    /// The tree of database `index` (B1).
    pub(crate) fn tree(&self, index: usize) -> TreeId {
        TreeId(self.trees[index].load(Ordering::Relaxed))
    }

    /// Exchanges two databases. The caller holds all gates (B1).
    pub(crate) fn swap_trees(&self, first: usize, second: usize) {
        let tree = self.trees[first].swap(self.tree(second).0, Ordering::Relaxed);
        self.trees[second].store(tree, Ordering::Relaxed);
    }

    /// Empties database `index` by giving it a new tree; the old one is freed in the background.
    /// The caller holds all gates (B1).
    pub(crate) fn replace_tree(&self, index: usize) {
        let fresh = self.store.create_tree();
        let old = TreeId(self.trees[index].swap(fresh.0, Ordering::Relaxed));
        self.store.drop_tree(old);
        self.expiry.drop_tree(old);
    }

    /// Keys of database `index`; keys with a deadline; the mean of their remaining milliseconds.
    #[must_use]
    pub fn summary(&self, index: usize) -> (u64, u64, u64) {
        let tree = self.tree(index);
        let (expiring, mean) = self
            .expiry
            .tree_summary(tree, self.options.clock.now_us() / 1000);
        (self.store.len(tree), expiring, mean)
    }

    /// Keys that have a deadline, in all databases.
    #[must_use]
    pub fn expiring_keys(&self) -> u64 {
        self.expiry.len()
    }

    /// Counters of all sessions, those that have ended included.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let counters = lock(&self.counters);
        Statistics::sum(counters.open.iter().map(Arc::as_ref)).plus(counters.ended)
    }

    /// Reports the engine's figures.
    pub fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        self.store.gauges(report);
    }

    /// Bytes of memory beyond which writes are refused; 0 is no limit.
    #[must_use]
    pub fn max_memory(&self) -> usize {
        self.max_memory.load(Ordering::Relaxed)
    }

    /// Sets [`Self::max_memory`].
    pub fn set_max_memory(&self, bytes: usize) {
        self.max_memory.store(bytes, Ordering::Relaxed);
    }

    /// Whether writes that need memory are refused now.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        let max_memory = self.max_memory();
        max_memory > 0 && (self.options.memory)() > max_memory
    }

    /// Whether expired keys are looked for (DEBUG SET-ACTIVE-EXPIRE).
    #[must_use]
    pub fn active_expire(&self) -> bool {
        self.active_expire.load(Ordering::Relaxed)
    }

    /// Sets [`Self::active_expire`].
    pub fn set_active_expire(&self, active: bool) {
        self.active_expire.store(active, Ordering::Relaxed);
    }

    /// Holds commands back until `until_us` on the database's clock: all of them, or those that
    /// write (CLIENT PAUSE). A pause that is longer or stricter than this one stays so.
    pub fn pause(&self, until_us: u64, all: bool) {
        let active = self.paused_until(true).is_some();
        let all = all || (active && self.pause_all.load(Ordering::Relaxed));
        self.pause_all.store(all, Ordering::Relaxed);
        self.pause_until_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// Ends the pause (CLIENT UNPAUSE).
    pub fn unpause(&self) {
        self.pause_until_us.store(0, Ordering::Relaxed);
        self.pause_all.store(false, Ordering::Relaxed);
    }

    /// Until when a command waits, in microseconds, if it does.
    #[must_use]
    #[inline]
    pub fn paused_until(&self, writes: bool) -> Option<u64> {
        let until = self.pause_until_us.load(Ordering::Relaxed);
        if until == 0 || !(writes || self.pause_all.load(Ordering::Relaxed)) {
            return None;
        }
        (self.options.clock.now_us() < until).then_some(until)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn check(
    option: &'static str,
    got: usize,
    least: usize,
    most: usize,
    expected: &'static str,
) -> Result<(), OpenError> {
    if (least..=most).contains(&got) {
        Ok(())
    } else {
        Err(OpenError::Option {
            option,
            got,
            expected,
        })
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
