//! The database: an engine, the mapping of database numbers to trees, gates and the expiry index.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `slots[i]` | SWAPDB, FLUSHDB, FLUSHALL | all gates, `Relaxed` | commands under a gate, `Relaxed` |
//! | `free_gates` | sessions opening and closing | its mutex | the same |
//! | `counters` | sessions opening and closing | its mutex | INFO |
//! | `max_memory` | CONFIG SET | `Relaxed` | writes |
//! | `active_expire` | DEBUG | `Relaxed` | the expirer |
//! | `flush_at_ms` | `flush_all`, the maintenance thread | `Relaxed` | the maintenance thread |
//! | `pause` | CLIENT PAUSE, whoever meets its end | `Relaxed` | every command |
//!
//! Invariants:
//! - **B1** The mapping changes only under all gates, so it stands still for whoever holds one; the
//!   gates' mutexes order the `Relaxed` accesses.
//! - **B2** A session's gate index is its own from opening to drop.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando_durability::log::{LogState, LogStatistics};
use pando_engine::{EpochClock, Gauge, LogEpoch, SessionLimit, TreeId};
use pando_sync::{Gates, lock};
use thiserror::Error;

use crate::acknowledge::{Acknowledgement, EpochLog};
use crate::cursors::Cursors;
use crate::durable::hook::record_mapping;
use crate::durable::{self, Durable, RecoveryError};
use crate::eviction::{Access, Eviction, Evictor, Fit};
use crate::expiry::ExpiryIndex;
use crate::limits;
use crate::maintenance::Maintenance;
use crate::memcached::MemcachedFigures;
use crate::options::Options;
use crate::session::{Session, SessionState};
use crate::statistics::{SessionCounters, Statistics};
use crate::store::Store;
use crate::watch::{WatchHorizon, Watchers};

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
    /// What is on disk cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] Box<RecoveryError>),
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
    ended_memcached: MemcachedFigures,
    /// What stood there when `stats reset` was asked for.
    memcached_base: MemcachedFigures,
}

impl Counters {
    fn memcached_sum(&self) -> MemcachedFigures {
        let mut sum = self.ended_memcached;
        for session in &self.open {
            sum.add(&session.memcached);
        }
        sum
    }
}

/// Refuses options that are out of their range.
fn check_options(options: &Options) -> Result<(), OpenError> {
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
    check(
        "retired_bytes_max",
        options.retired_bytes_max,
        limits::RETIRED_BYTES_MAX_LEAST,
        isize::MAX as usize,
        "at least 65536",
    )?;
    Ok(())
}

/// What a database is made of.
pub(crate) struct Parts {
    pub(crate) epochs: Arc<EpochClock>,
    pub(crate) store: Store,
    pub(crate) expiry: ExpiryIndex,
    /// One for each database.
    pub(crate) trees: Vec<TreeId>,
    pub(crate) log: Option<Arc<dyn EpochLog>>,
    pub(crate) durable: Option<Durable>,
}

/// What stands behind a database number (B1).
#[derive(Debug)]
struct DatabaseSlot {
    tree: AtomicU32,
    /// The epoch of the last change of its tree; 0 before the first.
    changed_in: AtomicU64,
}

/// An open database; share it as `Arc<Database>` and open a [`Session`] per thread.
pub struct Database {
    pub(crate) options: Options,
    pub(crate) epochs: Arc<EpochClock>,
    pub(crate) acknowledgement: Acknowledgement,
    pub(crate) store: Store,
    pub(crate) gates: Gates,
    pub(crate) expiry: ExpiryIndex,
    /// What a database on disk has beside its log.
    pub(crate) durable: Option<Durable>,
    pub(crate) cursors: Cursors,
    pub(crate) eviction: Eviction,
    pub(crate) watchers: Watchers,
    pub(crate) watch_horizon: WatchHorizon,
    slots: Box<[DatabaseSlot]>,
    free_gates: Mutex<Vec<usize>>,
    counters: Mutex<Counters>,
    max_memory: AtomicUsize,
    active_expire: AtomicBool,
    /// The microsecond at which a pause ends, times two, plus one if all commands are held back;
    /// 0 is no pause.
    pause: AtomicU64,
    /// When database 0 is emptied; 0 is never.
    flush_at_ms: AtomicU64,
    opened_ms: u64,
    maintenance: Mutex<Option<Maintenance>>,
}

impl Database {
    /// Opens an empty database and starts its maintenance thread, which ticks the log epoch, purges
    /// tombstones and removes expired keys until [`Self::close`].
    ///
    /// One that is kept on disk ([`Options::durability`]) is recovered first.
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        match options.durability.clone() {
            None => Self::open_with(options, None),
            Some(durability) => {
                check_options(&options)?;
                durable::open(options, durability)
            }
        }
    }

    /// As [`Self::open`], with what makes epochs durable: the log, or a test's stand-in.
    pub fn open_with(
        options: Options,
        log: Option<Arc<dyn EpochLog>>,
    ) -> Result<Arc<Self>, OpenError> {
        check_options(&options)?;
        let epochs = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let store = Store::open(&options, Arc::clone(&epochs));
        let trees = (0..options.databases)
            .map(|_| store.create_tree())
            .collect();
        let parts = Parts {
            epochs,
            store,
            expiry: ExpiryIndex::new(),
            trees,
            log,
            durable: None,
        };
        Self::assemble(options, parts)
    }

    /// Makes a database of its parts and starts its maintenance thread.
    pub(crate) fn assemble(options: Options, parts: Parts) -> Result<Arc<Self>, OpenError> {
        let opened_ms = options.clock.now_us() / 1000;
        let slots = parts
            .trees
            .iter()
            .map(|tree| DatabaseSlot {
                tree: AtomicU32::new(tree.0),
                changed_in: AtomicU64::new(0),
            })
            .collect();
        let database = Arc::new(Self {
            gates: Gates::new(options.sessions_max),
            free_gates: Mutex::new((0..options.sessions_max).rev().collect()),
            cursors: Cursors::new(options.seed),
            options,
            acknowledgement: Acknowledgement::new(Arc::clone(&parts.epochs), parts.log),
            epochs: parts.epochs,
            store: parts.store,
            expiry: parts.expiry,
            durable: parts.durable,
            eviction: Eviction::default(),
            watchers: Watchers::default(),
            watch_horizon: WatchHorizon::default(),
            slots,
            counters: Mutex::default(),
            max_memory: AtomicUsize::new(0),
            active_expire: AtomicBool::new(true),
            pause: AtomicU64::new(0),
            flush_at_ms: AtomicU64::new(0),
            opened_ms,
            maintenance: Mutex::new(None),
        });
        let maintenance = Maintenance::start(&database)?;
        *lock(&database.maintenance) = Some(maintenance);
        Ok(database)
    }

    /// Stops the background threads and waits for their end; the caller has no turn open, since
    /// they may be waiting for a gate. Sessions go on working; their owners call
    /// [`Session::maintain`] from time to time. What is written to a database on disk is not made
    /// durable any more before [`Self::close_log`].
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
            log: self
                .durable
                .as_ref()
                .map(|durable| durable.log.session(gate)),
            gate,
            counters,
            random,
            now_us: 0,
            access: Access::default(),
            fit: Fit::default(),
            evictor: Evictor::default(),
            observes: false,
            observed: LogEpoch(0),
            wrote: LogEpoch(0),
            beyond_room: false,
        })
    }

    /// Takes back the gate of a session that ends, and keeps what it has counted (B2).
    pub(crate) fn close_session(&self, session: &SessionState) {
        let mut counters = lock(&self.counters);
        counters.ended = Statistics::sum([&*session.counters].into_iter()).plus(counters.ended);
        counters.ended_memcached.add(&session.counters.memcached);
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
        self.slots.len()
    }

    /// The tree of database `index` (B1).
    pub(crate) fn tree(&self, index: usize) -> TreeId {
        TreeId(self.slots[index].tree.load(Ordering::Relaxed))
    }

    /// The epoch in which database `index` was given its tree, 0 if that was at the start (B1):
    /// what is seen in it is undone if a crash loses that epoch.
    pub(crate) fn tree_changed_in(&self, index: usize) -> LogEpoch {
        LogEpoch(self.slots[index].changed_in.load(Ordering::Relaxed))
    }

    /// The trees of all databases, those included that the configuration does not show (B1).
    pub(crate) fn mapping(&self) -> Vec<TreeId> {
        let hidden = self
            .durable
            .iter()
            .flat_map(|durable| &durable.hidden_trees);
        let shown = (0..self.databases()).map(|index| self.tree(index));
        shown.chain(hidden.copied()).collect()
    }

    /// Records a change of the mapping in the session's log. The caller holds all gates (B1).
    fn record_mapping(&self, session: &mut SessionState) {
        if let (Some(durable), Some(log)) = (&self.durable, &mut session.log) {
            let changes = durable.mapping_changes.fetch_add(1, Ordering::Relaxed) + 1;
            record_mapping(log, changes, self.mapping().into_iter());
        }
    }

    /// Gives database `index` another tree; returns the one that it had.
    fn set_tree(&self, index: usize, tree: TreeId) -> TreeId {
        let slot = &self.slots[index];
        slot.changed_in
            .store(self.epochs.current().0, Ordering::Relaxed);
        TreeId(slot.tree.swap(tree.0, Ordering::Relaxed))
    }

    /// Exchanges two databases. The caller holds all gates (B1).
    pub(crate) fn swap_trees(&self, session: &mut SessionState, first: usize, second: usize) {
        if first != second {
            self.change_trees(session, &[first, second], || {
                let tree = self.set_tree(first, self.tree(second));
                self.set_tree(second, tree);
            });
            self.record_mapping(session);
        }
    }

    /// Empties database `index` by giving it a new tree; the old one is freed in the background. An
    /// empty one stays as it is: tree numbers are not used twice. The caller holds all gates (B1).
    pub(crate) fn replace_tree(&self, session: &mut SessionState, index: usize) {
        if self.store.len(self.tree(index)) == 0 {
            return;
        }
        self.change_trees(session, &[index], || {
            let old = self.set_tree(index, self.store.create_tree());
            self.store.drop_tree(old);
            self.expiry.drop_tree(old);
        });
        self.record_mapping(session);
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

    /// A count that goes up whenever keys are read or written. O(sessions).
    pub(crate) fn served(&self) -> u64 {
        let Statistics {
            keyspace_hits,
            keyspace_misses,
            commits,
            ..
        } = self.statistics();
        keyspace_hits + keyspace_misses + commits
    }

    /// What memcached commands have done since the start, or since [`Self::reset_memcached`].
    #[must_use]
    pub fn memcached_figures(&self) -> MemcachedFigures {
        let counters = lock(&self.counters);
        counters.memcached_sum().since(&counters.memcached_base)
    }

    /// Counts memcached commands from 0 again (`stats reset`).
    pub fn reset_memcached(&self) {
        let mut counters = lock(&self.counters);
        counters.memcached_base = counters.memcached_sum();
    }

    /// Empties database 0 at a time in milliseconds since the Unix epoch (`flush_all`), instead of
    /// at the time that was said before; 0 is never.
    pub(crate) fn flush_at(&self, milliseconds: u64) {
        self.flush_at_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// When it was opened, in milliseconds since the Unix epoch.
    pub(crate) fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    /// Whether it is time for that; then it is not any more.
    pub(crate) fn take_due_flush(&self) -> bool {
        let at_ms = self.flush_at_ms.load(Ordering::Relaxed);
        at_ms != 0
            && at_ms <= self.options.clock.now_us() / 1000
            && self
                .flush_at_ms
                .compare_exchange(at_ms, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Reports the engine's figures.
    pub fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        self.store.gauges(report);
    }

    /// The last log epoch that is on disk with all before it, [`Client::awaits`](crate::Client)
    /// being compared with it; everything is, as it were, without a log.
    #[must_use]
    #[inline]
    pub fn durable(&self) -> u64 {
        self.acknowledgement.durable().0
    }

    /// Whether a reply may be sent now that tells a client of `interval` that something was written
    /// in `epoch` ([`Client::unacknowledged`](crate::Client::unacknowledged)): it is on disk, or
    /// nothing is missing there that anybody could have been told of long ago (AK6). If not, the
    /// reply waits for the epoch, as if the client awaited it.
    #[must_use]
    pub fn may_acknowledge(&self, epoch: u64) -> bool {
        let Some(log) = self.acknowledgement.log() else {
            return true;
        };
        !log.is_late(self.options.clock.monotonic_us()) || log.durable().0 >= epoch
    }

    /// Somebody waits until `epoch` is on disk; whether it is. The caller holds no turn. Does not
    /// wait, unless the disk has lately been so quick that this thread does best to write what is
    /// missing ([`pando_durability::limits::QUICK_WRITE_US_MAX`]).
    pub fn want_durable(&self, epoch: u64) -> bool {
        let clock = &*self.options.clock;
        self.acknowledgement
            .want(LogEpoch(epoch), &self.gates, clock)
    }

    /// What a write to the log, with its sync, has lately taken, in nanoseconds; 0 without a log.
    #[must_use]
    pub fn write_ns(&self) -> u64 {
        let log = self.acknowledgement.log();
        log.map_or(0, |log| log.write_ns())
    }

    /// Calls `wake` with [`Self::durable`] whenever that has grown; once, before anybody waits. It
    /// does not wait.
    pub fn on_durable(&self, wake: impl Fn(u64) + Send + Sync + 'static) {
        if let Some(log) = self.acknowledgement.log() {
            log.on_durable(Box::new(move |epoch| wake(epoch.0)));
        }
    }

    /// Whether the log can be written; `None` without one.
    #[must_use]
    pub fn log_state(&self) -> Option<LogState> {
        self.acknowledgement.log().map(|log| log.state())
    }

    /// What the log has done and holds; `None` without one.
    #[must_use]
    pub fn log_statistics(&self) -> Option<LogStatistics> {
        self.acknowledgement.log().map(|log| log.statistics())
    }

    /// What went wrong with the log and was survived since the last call, for an operator.
    #[must_use]
    pub fn take_log_notes(&self) -> Vec<String> {
        let log = self.acknowledgement.log();
        log.map(|log| log.take_notes()).unwrap_or_default()
    }

    /// Whether replies can wait for the disk: there is a log.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.acknowledgement.log().is_some()
    }

    /// Bytes of memory beyond which keys are evicted or writes refused; 0 is no limit.
    #[must_use]
    pub fn max_memory(&self) -> usize {
        self.max_memory.load(Ordering::Relaxed)
    }

    /// Sets [`Self::max_memory`].
    pub fn set_max_memory(&self, bytes: usize) {
        self.max_memory.store(bytes, Ordering::Relaxed);
        self.approach_limit();
    }

    /// Whether more memory is in use than allowed: writes that need some are refused if no key can
    /// be evicted.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        let max_memory = self.max_memory();
        max_memory > 0 && self.memory_in_use() > max_memory
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
        let until_us = until_us.min(u64::MAX >> 1);
        let now_us = self.options.clock.now_us();
        let merge = |pause| {
            let (old_until_us, old_all) = match split_pause(pause) {
                (old_until_us, old_all) if old_until_us > now_us => (old_until_us, old_all),
                _ => (0, false),
            };
            Some(until_us.max(old_until_us) << 1 | u64::from(all || old_all))
        };
        // It cannot fail: every pause merges.
        let _ = self
            .pause
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }

    /// Ends the pause (CLIENT UNPAUSE).
    pub fn unpause(&self) {
        self.pause.store(0, Ordering::Relaxed);
    }

    /// Until when a command waits, in microseconds, if it does.
    #[must_use]
    #[inline]
    pub fn paused_until(&self, writes: bool) -> Option<u64> {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause == 0 {
            return None;
        }
        self.check_pause(pause, writes)
    }

    #[cold]
    fn check_pause(&self, pause: u64, writes: bool) -> Option<u64> {
        let (until_us, all) = split_pause(pause);
        if self.options.clock.now_us() < until_us {
            return (writes || all).then_some(until_us);
        }
        // Forgotten, so that later commands need not read the clock; a new pause stays.
        let _ = self
            .pause
            .compare_exchange(pause, 0, Ordering::Relaxed, Ordering::Relaxed);
        None
    }
}

/// The end of a pause, and whether it is one of all commands.
fn split_pause(pause: u64) -> (u64, bool) {
    (pause >> 1, pause & 1 == 1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::Shell;

    fn open(change: impl FnOnce(&mut Options)) -> Result<Arc<Database>, OpenError> {
        let mut options = Options::default();
        change(&mut options);
        Database::open(options)
    }

    #[test]
    fn options_outside_their_range_are_refused() {
        let refusals = [
            open(|options| options.databases = 0),
            open(|options| options.databases = limits::DATABASES_MAX + 1),
            open(|options| options.sessions_max = 1),
            open(|options| options.sessions_max = pando_engine::limits::SESSIONS_MAX + 1),
            open(|options| options.key_bytes_max = 0),
            open(|options| options.key_bytes_max = pando_engine::limits::KEY_BYTES_MAX + 1),
            open(|options| options.retired_bytes_max = limits::RETIRED_BYTES_MAX_LEAST - 1),
            open(|options| options.retired_bytes_max = usize::MAX),
        ];
        let named: Vec<_> = refusals
            .into_iter()
            .map(|refusal| match refusal {
                Err(OpenError::Option { option, .. }) => option,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            "databases",
            "sessions_max",
            "key_bytes_max",
            "retired_bytes_max",
        ];
        assert!(
            named
                .chunks(2)
                .zip(expected)
                .all(|(pair, name)| pair == [name, name])
        );
    }

    /// B2, and that a session which ends leaves its counts.
    #[test]
    fn sessions_are_bounded_and_come_back() {
        let database = open(|options| options.sessions_max = 3).expect("the options are valid");
        // One is the maintenance thread's.
        let first = database.session().expect("a session is free");
        let second = database.session().expect("a session is free");
        assert_ne!(first.gate(), second.gate());
        assert!(database.session().is_err());
        let gate = first.gate();
        drop(first);
        let mut third = database.session().expect("a session has come back");
        assert_eq!(third.gate(), gate);
        third.turn().keyspace(0).exists(b"k");
        drop(third);
        assert_eq!(database.statistics().keyspace_misses, 1);
    }

    /// Tree numbers are not used twice, and an engine may keep a little of each.
    #[test]
    fn an_empty_database_keeps_its_tree() {
        let mut shell = Shell::new();
        let trees = |shell: &Shell| [0, 1].map(|index| shell.database.tree(index));
        let before = trees(&shell);
        shell.check(&[("FLUSHALL", "+OK"), ("FLUSHDB", "+OK")]);
        assert_eq!(trees(&shell), before);
        shell.check(&[("SET k 1", "+OK"), ("FLUSHALL", "+OK"), ("DBSIZE", ":0")]);
        assert!(trees(&shell)[0] != before[0] && trees(&shell)[1] == before[1]);
    }

    #[test]
    fn a_pause_grows_and_ends() {
        let shell = Shell::new();
        let database = &shell.database;
        let now_us = database.options.clock.now_us();
        let until = |milliseconds: u64| now_us + milliseconds * 1000;
        database.pause(until(10), true);
        database.pause(until(20), false);
        assert_eq!(database.paused_until(false), Some(until(20)));
        database.pause(until(5), false);
        assert_eq!(database.paused_until(true), Some(until(20)));
        shell.pass_ms(20);
        assert_eq!(database.paused_until(true), None);
        // The end is forgotten, strictness included.
        database.pause(until(30), false);
        assert_eq!(database.paused_until(false), None);
        assert_eq!(database.paused_until(true), Some(until(30)));
        database.pause(u64::MAX, false);
        assert_eq!(database.paused_until(true), Some(u64::MAX >> 1));
        database.unpause();
        assert_eq!(database.paused_until(true), None);
    }

    /// Two pauses at a time: the stricter and the longer one both count.
    #[test]
    fn concurrent_pauses_merge() {
        let shell = Shell::new();
        let database = &shell.database;
        let until_us = database.options.clock.now_us() + 1000;
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| database.pause(until_us, true));
                scope.spawn(|| database.pause(until_us + 1, false));
            });
            assert_eq!(database.paused_until(false), Some(until_us + 1));
            database.unpause();
        }
    }
}
