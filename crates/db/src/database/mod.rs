//! The database: an engine, the mapping of database numbers to trees, gates, and other state that
//! all sessions share.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `free_gates` | sessions opening and closing | its mutex | the same |
//! | `active_expire` | DEBUG | `Relaxed` | the expirer |
//! | `flush_at_ms` | `flush_all`, the maintenance thread | `Relaxed` | the maintenance thread |
//!
//! The other fields document their own state. Work on keys is above this module, from `keyspace`
//! on; nothing here needs a key.
//!
//! Invariants:
//! - **B1 mapping-stands-still** The mapping changes only under all gates, so it does not change
//!   while a gate is held.
//! - **B2 own-gate** A session's gate index is its own from opening to drop.

mod branches;
mod log;
mod memory;

use crate::clock::{Microseconds, Milliseconds};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_engine::{EpochClock, Gauge, LogEpoch, SessionLimit, TreeId};
use pando_sync::{Gates, lock};

use crate::acknowledge::Acknowledgement;
use crate::alive::Alive;
use crate::background::Background;
use crate::branches::Branches;
use crate::cursors::Cursors;
use crate::durable::Durable;
use crate::durable::lineage::Lineage;
use crate::durable::standing::Standing;
use crate::encoding::{SharedThresholds, Thresholds};
use crate::epoch_log::EpochLog;
use crate::expiry::ExpiryIndex;
use crate::grove::Grove;
use crate::lender::Lender;
use crate::lines::{InLine, Lines};
use crate::mapping::Mapping;
use crate::memory::{Access, Evictor, Fit, MemoryLimit};
use crate::options::Options;
use crate::pause::Pause;
use crate::placing::{PlacedSeen, Placing};
use crate::role::Role;
use crate::session_state::{Kept, SessionState, Tries};
use crate::snapshots::{NamedSnapshot, Seen, Snapshots};
use crate::statistics::{Counters, MemcachedFigures, Statistics};
use crate::store::Store;
use crate::watchers::{WatchHorizon, Watchers};

/// The parts of a database.
pub(crate) struct Parts {
    pub(crate) epochs: Arc<EpochClock>,
    pub(crate) store: Store,
    pub(crate) expiry: ExpiryIndex,
    /// One for each database.
    pub(crate) trees: Vec<TreeId>,
    /// How often their mapping has changed.
    pub(crate) mapping_changes: u64,
    /// Where it stands in another's history.
    pub(crate) standing: Standing,
    /// Its branches, and snapshots that have outlasted a process.
    pub(crate) grove: Grove,
    /// The histories of its data.
    pub(crate) lineage: Lineage,
    /// Trees of databases beyond the configured number, kept for a later configuration.
    pub(crate) hidden_trees: Vec<TreeId>,
    pub(crate) log: Option<EpochLog>,
    pub(crate) durable: Option<Durable>,
}

/// An open database; share it as `Arc<Database>` and open a [`Session`](crate::Session) per thread.
pub struct Database {
    pub(crate) options: Options,
    pub(crate) epochs: Arc<EpochClock>,
    pub(crate) acknowledgement: Acknowledgement,
    pub(crate) store: Store,
    pub(crate) mapping: Mapping,
    pub(crate) snapshots: Snapshots,
    pub(crate) lender: Lender,
    pub(crate) branches: Branches,
    pub(crate) gates: Gates,
    pub(crate) expiry: ExpiryIndex,
    /// Trees of databases beyond the configured number.
    hidden_trees: Vec<TreeId>,
    /// The state of a database on disk besides its log.
    pub(crate) durable: Option<Durable>,
    pub(crate) cursors: Cursors,
    pub(crate) memory: MemoryLimit,
    pub(crate) watchers: Watchers,
    pub(crate) watch_horizon: WatchHorizon,
    pub(crate) lines: Lines,
    pub(crate) pause: Pause,
    pub(crate) role: Role,
    pub(crate) placing: Placing,
    pub(crate) thresholds: SharedThresholds,
    /// What positions in its log mean (FW1 one-history); changes under all gates.
    pub(crate) lineage: Mutex<Lineage>,
    /// It had no key when it was opened.
    pub(crate) began_empty: bool,
    /// Where it stands in another's history; changes under all gates, with the log's record of it.
    pub(crate) standing: Mutex<Standing>,
    pub(crate) counters: Counters,
    free_gates: Mutex<Vec<usize>>,
    active_expire: AtomicBool,
    /// When database 0 is emptied; 0 is never.
    flush_at_ms: AtomicU64,
    opened: Milliseconds,
    background: Mutex<Background>,
}

impl Database {
    /// Makes a database of its parts; [`Self::run_in_background`] starts its background threads.
    pub(crate) fn assemble(options: Options, parts: Parts) -> Arc<Self> {
        assert_eq!(parts.trees.len(), options.databases);
        let keys = |tree: &TreeId| parts.store.len(*tree);
        let began_empty = parts.trees.iter().map(keys).sum::<u64>() == 0;
        let (snapshots, mut branches) = (Snapshots::default(), parts.grove);
        let opened = options.clock.now().milliseconds();
        branches.begin(opened);
        for note in branches.snapshots.values() {
            snapshots.add(NamedSnapshot::noted(note, &parts.trees));
        }
        Arc::new(Self {
            gates: Gates::new(options.sessions_max),
            free_gates: Mutex::new((0..options.sessions_max).rev().collect()),
            cursors: Cursors::default(),
            memory: MemoryLimit::new(options.memory, parts.store.pooled().cloned()),
            opened,
            options,
            acknowledgement: Acknowledgement::new(Arc::clone(&parts.epochs), parts.log),
            epochs: parts.epochs,
            store: parts.store,
            mapping: Mapping::new(parts.trees, parts.mapping_changes),
            role: Role::default(),
            placing: Placing::default(),
            thresholds: SharedThresholds::new(Thresholds::default()),
            lineage: Mutex::new(parts.lineage),
            began_empty,
            standing: Mutex::new(parts.standing),
            snapshots,
            lender: Lender::default(),
            branches: Branches::new(branches),
            expiry: parts.expiry,
            durable: parts.durable,
            hidden_trees: parts.hidden_trees,
            watchers: Watchers::default(),
            watch_horizon: WatchHorizon::default(),
            lines: Lines::default(),
            pause: Pause::default(),
            counters: Counters::default(),
            active_expire: AtomicBool::new(true),
            flush_at_ms: AtomicU64::new(0),
            background: Mutex::default(),
        })
    }

    /// Sets at which sizes OBJECT ENCODING changes its answer; at first those of Redis.
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.thresholds.set(thresholds);
    }

    /// Makes these threads end with [`Self::close`], or with the database.
    pub(crate) fn run_in_background(&self, threads: Background) {
        *lock(&self.background) = threads;
    }

    /// Stops the background threads and waits for their end; the caller has no open turn, since
    /// they may be waiting for a gate. Sessions continue to work; their owners call
    /// [`Session::maintain`](crate::Session::maintain) from time to time. On disk, later writes
    /// become durable only at [`Self::close_log`].
    pub fn close(&self) {
        let threads = std::mem::take(&mut *lock(&self.background));
        drop(threads);
    }

    /// A session's own state, without a share of the database. [`Self::close_session`] takes it
    /// back.
    pub(crate) fn open_session(&self) -> Result<SessionState, SessionLimit> {
        let store = self.store.session()?;
        let limit = SessionLimit {
            sessions_max: self.options.sessions_max,
        };
        let gate = lock(&self.free_gates).pop().ok_or(limit)?;
        self.gates.open(gate);
        let random = fastrand::Rng::with_seed(self.options.seed.wrapping_add(gate as u64));
        Ok(SessionState {
            store,
            log: self.durable.as_ref().map(|durable| {
                let ring = Arc::clone(self.acknowledgement.ring());
                durable.log.session(gate).followed(ring, gate)
            }),
            gate,
            counters: self.counters.open(),
            spare_effects: None,
            spare_transaction: None,
            random,
            now: Microseconds::ZERO,
            access: Access::default(),
            fit: Fit::default(),
            evictor: Evictor::default(),
            snapshots: Seen::default(),
            placing: PlacedSeen::default(),
            observes: false,
            observed: LogEpoch::NONE,
            wrote: LogEpoch::NONE,
            beyond_room: false,
            kept: match self.store.pooled() {
                Some(_) => Kept::Nothing,
                None => Kept::ByNone,
            },
            leaves_large: false,
            tries: Tries::default(),
            in_line: InLine::default(),
            called_to: None,
            waits_behind: Vec::new(),
            effects: None,
            alive: Alive::new(),
        })
    }

    /// Takes back the gate of a closed session, and keeps its counts (B2).
    pub(crate) fn close_session(&self, session: &SessionState) {
        self.counters.close(&session.counters);
        let mut free = lock(&self.free_gates);
        debug_assert!(!free.contains(&session.gate), "B2");
        free.push(session.gate);
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.mapping.len()
    }

    /// The tree of database `index` (B1).
    pub(crate) fn tree(&self, index: usize) -> TreeId {
        if index < self.mapping.len() {
            self.mapping.get(index)
        } else {
            self.branches.tree(index, self.mapping.len())
        }
    }

    /// The trees of all databases, including those beyond the configured number (B1).
    pub(crate) fn mapping(&self) -> Vec<TreeId> {
        let hidden = self.hidden_trees.iter().copied();
        self.mapping.iter().chain(hidden).collect()
    }

    /// Fills a part of the expiry index, if that goes on; how many entries it has looked at. The
    /// caller holds a gate.
    pub(crate) fn fill_expiry_index(&self, session: &mut SessionState) -> usize {
        let filling = &self.expiry.filling;
        let engine = self.store.pooled().filter(|_| filling.goes_on());
        engine.map_or(0, |engine| {
            filling.step(engine, &self.expiry, &mut session.store)
        })
    }

    /// Whether keys with a deadline may be missing in the counts of these.
    #[must_use]
    pub fn is_listing_deadlines(&self) -> bool {
        self.expiry.filling.goes_on()
    }

    /// Keys of database `index`; keys with a deadline; the mean of their remaining milliseconds.
    /// The latter two are of those that are listed already ([`Self::is_listing_deadlines`]).
    #[must_use]
    pub fn summary(&self, index: usize) -> (u64, u64, u64) {
        let tree = self.tree(index);
        let (expiring, mean) = self
            .expiry
            .keys
            .tree_summary(tree, self.options.clock.now().milliseconds());
        (self.store.len(tree), expiring, mean)
    }

    /// Hashes of database `index` some of whose fields have a deadline.
    #[must_use]
    pub fn expiring_hashes(&self, index: usize) -> u64 {
        let now = self.options.clock.now().milliseconds();
        let (hashes, _) = self.expiry.fields.tree_summary(self.tree(index), now);
        hashes
    }

    /// Keys of all databases.
    pub(crate) fn keys(&self) -> u64 {
        self.mapping.iter().map(|tree| self.store.len(tree)).sum()
    }

    /// Keys that have a deadline, in all databases.
    #[must_use]
    pub fn expiring_keys(&self) -> u64 {
        self.expiry.keys.len()
    }

    /// Counters of all sessions, including closed ones.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counters.statistics()
    }

    /// A count that rises whenever keys are read or written. O(sessions).
    pub(crate) fn served(&self) -> u64 {
        let Statistics {
            keyspace_hits,
            keyspace_misses,
            commits,
            ..
        } = self.statistics();
        keyspace_hits + keyspace_misses + commits
    }

    /// Counts of memcached commands since the start, or since [`Self::reset_memcached`].
    #[must_use]
    pub fn memcached_figures(&self) -> MemcachedFigures {
        self.counters.memcached()
    }

    /// Resets the counts of memcached commands (`stats reset`).
    pub fn reset_memcached(&self) {
        self.counters.reset_memcached();
    }

    /// Empties database 0 at a time in milliseconds since the Unix epoch (`flush_all`), replacing
    /// an earlier request; 0 is never.
    pub(crate) fn flush_at(&self, milliseconds: u64) {
        self.flush_at_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// When it was opened, in milliseconds since the Unix epoch.
    pub(crate) fn opened(&self) -> Milliseconds {
        self.opened
    }

    /// Whether it is time for that; clears the request if so.
    pub(crate) fn take_due_flush(&self) -> bool {
        let at_ms = self.flush_at_ms.load(Ordering::Relaxed);
        at_ms != 0
            && Milliseconds(at_ms) <= self.options.clock.now().milliseconds()
            && self
                .flush_at_ms
                .compare_exchange(at_ms, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Reports the engine's metrics.
    pub fn gauges(&self, report: &mut dyn FnMut(Gauge)) {
        self.store.gauges(report);
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

    /// Holds back commands until `until` on the database's clock: all of them, or those that
    /// write (CLIENT PAUSE). A present pause that is longer or stricter stays so.
    pub fn pause(&self, until: Microseconds, all: bool) {
        self.pause.begin(self.options.clock.now(), until, all);
    }

    /// Ends the pause (CLIENT UNPAUSE).
    pub fn unpause(&self) {
        self.pause.end();
    }

    /// Until when a command must wait, in microseconds, if at all.
    #[must_use]
    #[inline]
    pub fn paused_until(&self, writes: bool) -> Option<Microseconds> {
        self.pause.until(writes, &*self.options.clock)
    }

    /// Whether writes without a client may run: no pause forbids writes, the log takes them, and
    /// they do not come from another database (RO1 rests).
    pub(crate) fn takes_writes(&self) -> bool {
        self.paused_until(true).is_none()
            && self.acknowledgement.accepts_writes()
            && !self.role.follows()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
