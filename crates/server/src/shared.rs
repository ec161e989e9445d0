//! The state that all threads of the server share.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `config` | CONFIG SET | mutex | CONFIG GET, REWRITE |
//! | `settings` | CONFIG SET, inside `config`'s mutex | atomics | workers |
//! | `mailboxes[i]`, `listening` | start | `OnceLock` | CLIENT KILL, MONITOR, INFO |
//! | `memory_at_start` | start | `Relaxed` | INFO, MEMORY |
//! | `shutdown` | SHUTDOWN, signals | mutex and condition | the main thread, workers |
//! | the rest | see their modules | | |
//!
//! Invariants:
//! - **SS1** Locks are taken in the order `config`, `settings`; no other two are held together, and
//!   none while a worker waits.
//!
//! Deliberately absent: sockets and event loops; they know `Shared`, it does not know them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pando_db::{Database, LogEpoch, LogState, Milliseconds, Refusal, SessionLimit};

use crate::config::{Config, LogLevel, Target};
use crate::keeper::Keeper;
use crate::latency::LatencyMonitor;
use crate::limits;
use crate::migration::Migrations;
use crate::monitor::Monitors;
use crate::placings::Placings;
use crate::process;
use crate::recorder::WorkerRecorder;
use crate::registry::{ClientFlag, ClientRecord, Registry, WorkerMailbox};
use crate::replication::{LinkState, Replication, TaskState, Wish};
use crate::sampler::{Rates, Sampler};
use crate::settings::Settings;
use crate::slowlog::Slowlog;
use crate::statistics::{CommandIndex, Figures, Statistics};

/// The actual listening addresses (`port 0` asks for any).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// TCP addresses.
    pub tcp: Vec<SocketAddr>,
    /// The Unix socket.
    pub unix_socket: Option<PathBuf>,
    /// TCP addresses for memcached clients.
    pub memcached: Vec<SocketAddr>,
    /// The Unix socket for memcached clients.
    pub memcached_socket: Option<PathBuf>,
    /// UDP addresses for memcached clients, in the order of workers.
    pub memcached_udp: Vec<SocketAddr>,
    /// Where `/metrics` is served.
    pub metrics: Vec<SocketAddr>,
}

/// See the module's header.
pub struct Shared {
    config: Mutex<Config>,
    /// The settings that may change.
    pub settings: Settings,
    /// The keyspace.
    pub database: Arc<Database>,
    /// Open connections.
    pub registry: Registry,
    pub(crate) statistics: Statistics,
    pub(crate) commands: CommandIndex,
    pub(crate) slowlog: Slowlog,
    pub(crate) latency: LatencyMonitor,
    pub(crate) monitors: Monitors,
    pub(crate) sampler: Sampler,
    pub(crate) keeper: Keeper,
    pub(crate) migrations: Migrations,
    pub(crate) placings: Placings,
    pub(crate) replication: Replication,
    mailboxes: Box<[OnceLock<Arc<dyn WorkerMailbox>>]>,
    listening: OnceLock<Listening>,
    log_level: OnceLock<Box<dyn Fn(LogLevel) + Send + Sync>>,
    started: Instant,
    started_at_us: u64,
    run_id: String,
    memory_at_start: AtomicUsize,
    shutdown_requested: AtomicBool,
    failure: OnceLock<String>,
    shutdown: Mutex<bool>,
    shutdown_changed: Condvar,
}

impl Shared {
    /// Creates the state from a validated configuration.
    #[must_use]
    pub fn new(config: Config, database: Arc<Database>) -> Arc<Self> {
        let commands = CommandIndex::new();
        set_memory(&database, &config);
        Arc::new(Self {
            settings: Settings::new(&config),
            registry: Registry::default(),
            statistics: Statistics::new(config.threads, &commands),
            commands,
            slowlog: Slowlog::new(config.slowlog_entries_max),
            latency: LatencyMonitor::default(),
            monitors: Monitors::default(),
            sampler: Sampler::default(),
            keeper: Keeper::default(),
            migrations: Migrations::default(),
            placings: Placings::new(database.is_durable().then(|| config.data_dir.clone())),
            replication: Replication::default(),
            failure: OnceLock::new(),
            mailboxes: (0..config.threads).map(|_| OnceLock::new()).collect(),
            listening: OnceLock::new(),
            log_level: OnceLock::new(),
            started: Instant::now(),
            started_at_us: wall_us(),
            run_id: run_id(),
            memory_at_start: AtomicUsize::new(0),
            shutdown_requested: AtomicBool::new(false),
            shutdown: Mutex::new(false),
            shutdown_changed: Condvar::new(),
            database,
            config: Mutex::new(config),
        })
    }

    /// A copy of the present configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        lock(&self.config).clone()
    }

    /// Changes the configuration: `change` works on a copy, which takes effect as a whole or, if it
    /// returns an error, not at all.
    pub(crate) fn change_config<E>(
        &self,
        change: impl FnOnce(&mut Config) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut config = lock(&self.config);
        let mut changed = config.clone();
        change(&mut changed)?;
        self.settings.publish(&changed);
        set_memory(&self.database, &changed);
        self.slowlog.set_entries_max(changed.slowlog_entries_max);
        if changed.log_level != config.log_level
            && let Some(set) = self.log_level.get()
        {
            set(changed.log_level);
        }
        *config = changed;
        drop(config);
        self.judge_replicas();
        Ok(())
    }

    /// What is refused now for the sake of replication: its settings and the state of the links.
    pub(crate) fn refusal(&self) -> Refusal {
        if self.replication.failover() == TaskState::HandingOver {
            return Refusal::ReadOnly;
        }
        let settings = self.config().replication;
        match self.replication.link() {
            Some((_, link)) if !settings.serve_stale && link.state != LinkState::Connected => {
                Refusal::Stale
            }
            Some(_) if settings.read_only => Refusal::ReadOnly,
            // It is about to be noted that the data go their own way from here on.
            None if self.database.follows() => Refusal::ReadOnly,
            None if settings.min_replicas > 0 && settings.max_lag_s > 0 => {
                let lag_max = Duration::from_secs(settings.max_lag_s);
                if self.replication.good(lag_max) < settings.min_replicas {
                    Refusal::TooFewReplicas
                } else {
                    Refusal::Nothing
                }
            }
            _ => Refusal::Nothing,
        }
    }

    /// Applies [`Self::refusal`].
    pub(crate) fn judge_replicas(&self) {
        self.replication.set_refusal(self);
    }

    /// Follows another server, or none; `force`d, it takes any copy. The caller holds no gate.
    pub(crate) fn follow(&self, target: Option<Target>, force: bool) -> Result<(), SessionLimit> {
        let refusal = self.refusal_of(target.is_some());
        let followed = self
            .replication
            .follow(&self.database, (target, force), refusal);
        self.wake_workers();
        self.judge_replicas();
        followed
    }

    /// Follows nobody any more: the primary has handed over.
    pub(crate) fn promote(&self) -> Result<(), String> {
        let followed = self.follow(None, false).and_then(|()| {
            self.change_config(|config| {
                config.replication.target = None;
                Ok(())
            })
        });
        followed.map_err(|error| error.to_string())
    }

    /// What is refused when the server begins to follow another one, or none.
    pub(crate) fn refusal_of(&self, follows: bool) -> Refusal {
        let settings = self.config().replication;
        match (follows, settings.serve_stale, settings.read_only) {
            (true, false, _) => Refusal::Stale,
            (true, true, true) => Refusal::ReadOnly,
            _ => Refusal::Nothing,
        }
    }

    /// The port on which other servers reach this one.
    pub(crate) fn own_port(&self) -> u16 {
        let listening = self.listening.get();
        let first = listening.and_then(|listening| listening.tcp.first());
        first.map_or(0, SocketAddr::port)
    }

    /// Sets how to change the log level (CONFIG SET loglevel); once.
    pub fn on_log_level(&self, set: impl Fn(LogLevel) + Send + Sync + 'static) {
        let first = self.log_level.set(Box::new(set)).is_ok();
        assert!(first, "the log level has one owner");
    }

    /// Makes worker `index` reachable; once, before it serves.
    pub fn attach_worker(&self, index: usize, mailbox: Arc<dyn WorkerMailbox>) {
        let first = self.mailboxes[index].set(mailbox).is_ok();
        assert!(first, "a worker is attached once");
    }

    /// The mailbox of worker `index`, once it is attached.
    #[must_use]
    pub fn mailbox(&self, index: usize) -> Option<&Arc<dyn WorkerMailbox>> {
        self.mailboxes[index].get()
    }

    /// A stopwatch for worker `index`.
    #[must_use]
    pub fn recorder(&self, index: usize) -> WorkerRecorder {
        WorkerRecorder::new(Arc::clone(self.statistics.worker(index)), self.started)
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// Forgets a connection that has ended; its worker calls this once.
    pub fn disconnect(&self, record: &ClientRecord) {
        self.registry.remove(record.id());
        drop(self.migrations.take(record.id()));
        if record.has(ClientFlag::Monitor) {
            self.monitors.remove(record.id());
        }
        if record.has(ClientFlag::Replica) {
            self.replication.forget(record.id());
        }
    }

    /// Sends a line to every monitor.
    pub(crate) fn tell_monitors(&self, line: &Arc<[u8]>) {
        for monitor in self.monitors.all() {
            if let Some(mailbox) = self.mailbox(monitor.worker) {
                mailbox.deliver(monitor.client, line);
            }
        }
    }

    /// Tells the workers that everything up to this log epoch is durable.
    pub(crate) fn tell_durable(&self, epoch: LogEpoch) {
        for mailbox in self.mailboxes.iter().filter_map(OnceLock::get) {
            mailbox.durable(epoch);
        }
    }

    /// Makes every worker check the shared state.
    pub fn wake_workers(&self) {
        for mailbox in self.mailboxes.iter().filter_map(OnceLock::get) {
            mailbox.wake();
        }
    }

    /// Sets the listening addresses; once, when everything else is ready.
    pub fn set_listening(&self, listening: Listening) {
        let allocated = (self.database.options().memory)();
        self.memory_at_start.store(allocated, Ordering::Relaxed);
        let first = self.listening.set(listening).is_ok();
        assert!(first, "the server begins to listen once");
    }

    /// Where the server listens.
    #[must_use]
    pub fn listening(&self) -> Listening {
        self.listening.get().cloned().unwrap_or_default()
    }

    /// The TCP port of the first address, or the configured one before it listens.
    #[must_use]
    pub fn tcp_port(&self) -> u16 {
        let first = self
            .listening
            .get()
            .and_then(|listening| listening.tcp.first());
        first.map_or_else(
            || lock(&self.config).port.unwrap_or_default(),
            SocketAddr::port,
        )
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Milliseconds since the start.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// When the server started, in microseconds since the Unix epoch.
    #[must_use]
    pub fn started_at_us(&self) -> u64 {
        self.started_at_us
    }

    /// Forty hexadecimal digits that identify this run of the server.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Requests a shutdown; wakes workers and all waiting threads.
    pub fn request_shutdown(&self) {
        self.shutdown_requested.store(true, Ordering::Relaxed);
        *lock(&self.shutdown) = true;
        self.shutdown_changed.notify_all();
        self.wake_workers();
    }

    /// Requests a shutdown once the replicas have everything, or have had
    /// [`limits::REPLICA_PATIENCE`]; `false`: there is nothing to wait for, or it is waited for
    /// already.
    pub(crate) fn shut_down_after_replicas(&self) -> bool {
        let lags = !self.database.follows() && self.replication.lags(&self.database);
        lags && self
            .replication
            .ask(Wish::ShutDown, limits::REPLICA_PATIENCE)
    }

    /// Stops the server because it cannot keep its promises.
    pub(crate) fn fail(&self, reason: String) {
        // The first reason is the one that counts.
        let _ = self.failure.set(reason);
        self.request_shutdown();
    }

    /// Stops the server if the log has failed: nothing more becomes durable.
    pub(crate) fn look_at_log(&self) {
        if let Some(LogState::Failed { reason }) = self.database.log_state() {
            self.fail(format!("the log cannot be written: {reason}"));
        }
    }

    /// When the last checkpoint was complete, since the Unix epoch: one that was taken since the
    /// start, or the one that it was loaded from.
    pub(crate) fn last_checkpoint(&self) -> Option<Milliseconds> {
        let taken = self.database.last_checkpoint().map(|taken| taken.wall_ms);
        let found = self.database.recovery();
        taken.or_else(|| found.and_then(|found| found.checkpoint_wall_ms))
    }

    /// Why the server stopped by itself, or not everything acknowledged is on disk, if so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Whether a shutdown was requested.
    #[must_use]
    pub fn shutdown_requested(&self) -> bool {
        self.shutdown_requested.load(Ordering::Relaxed)
    }

    /// Waits until a shutdown is requested.
    pub fn wait_for_shutdown(&self) {
        let requested = lock(&self.shutdown);
        let waited = self
            .shutdown_changed
            .wait_while(requested, |requested| !*requested);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The same for up to `limit`; returns whether it was.
    pub(crate) fn wait_for_shutdown_up_to(&self, limit: Duration) -> bool {
        let requested = lock(&self.shutdown);
        let waited = self
            .shutdown_changed
            .wait_timeout_while(requested, limit, |requested| !*requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Bytes of memory in use: what the process has allocated, by its own count, and what an
    /// engine's pool holds.
    #[must_use]
    pub fn memory_used(&self) -> usize {
        self.database.memory_used()
    }

    /// What was allocated before the first key.
    pub(crate) fn memory_at_start(&self) -> usize {
        self.memory_at_start.load(Ordering::Relaxed)
    }

    /// Recent rates per second.
    pub(crate) fn rates(&self) -> Rates {
        self.sampler.rates(self.statistics.sample(self.now_ms()))
    }

    /// Takes a sample for INFO's rates if one is due.
    #[inline]
    pub(crate) fn sample(&self, now_ms: u64) {
        if self.sampler.is_due(now_ms) {
            self.sampler
                .take(self.statistics.sample(now_ms), self.memory_used());
        }
    }

    /// Everything counted since the start.
    pub(crate) fn figures_total(&self) -> Figures {
        let mut figures = self.statistics.total();
        figures.connections_received = self.registry.received();
        figures.connections_rejected = self.registry.rejected();
        figures.database = self.database.statistics();
        figures
    }

    /// Everything counted since the last CONFIG RESETSTAT.
    pub(crate) fn figures(&self) -> Figures {
        self.statistics.since_reset(self.figures_total())
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset_statistics(&self) {
        self.statistics.reset(self.figures_total());
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

/// Microseconds since the Unix epoch.
pub(crate) fn wall_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64
}

fn run_id() -> String {
    let (high, middle, low) = (fastrand::u64(..), fastrand::u64(..), fastrand::u32(..));
    format!("{high:016x}{middle:016x}{low:08x}")
}

/// Passes the settings about memory to the database.
fn set_memory(database: &Database, config: &Config) {
    let requests_bytes_max = match config.requests_memory.of(config.max_memory) {
        0 => 0,
        bytes_max => bytes_max.max(limits::REQUESTS_BYTES_MAX_LEAST),
    };
    database.set_requests_bytes_max(requests_bytes_max as usize);
    let whole = match config.max_memory {
        0 => process::machine_bytes(),
        max_memory => max_memory,
    };
    database.set_backlog_bytes_max(config.replication.backlog_bytes);
    database.set_log_hold(config.replication.log_hold_bytes);
    database.set_snapshots_max(config.snapshots.max);
    database.set_snapshot_bytes_max(config.snapshots.memory.of(whole) as usize);
    database.set_snapshot_staleness(Milliseconds(config.snapshots.staleness_ms));
    database.set_snapshot_lease(Milliseconds(config.snapshots.lease_s * 1000));
    database.set_thresholds(config.thresholds);
    database.set_eviction_policy(config.eviction_policy);
    database.set_max_memory(config.max_memory as usize);
}

/// Like that of `sync`, on which this crate does not depend: locks a mutex whose data a panic
/// cannot leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
