//! Starting and stopping the server.
//!
//! | thread | started by | ends when |
//! |---|---|---|
//! | `worker-N`, one per `threads` | [`Server::start`] | a shutdown is requested and replies are sent |
//! | `acceptor` | the same | [`Server::wait`] tells it to |
//! | `metrics`, one per address of `bind`, if asked for | the same | the same |
//! | `keeper`, with a log | the same | [`Server::wait`] tells it to |
//! | `maintenance`, with a log `epochs` and those of the log | the database | the database is closed |
//! | `frames`, once there are many pages (`pando_memory`) | whoever needs one | the process ends |
//!
//! Nothing listens before everything else is ready, and what was started is stopped again when a
//! later step fails. Stopping uses the reverse order: the listeners are closed, the workers finish
//! their batches and send their replies within a time limit, then the database is closed.
//!
//! Deliberately absent: the process (signals, logs, exit codes); that is `main`'s.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando_db::{Database, Durability, LogState, MemoryMeter, OpenError, PoolError};
use pando_io::{DatagramSocket, Listener, ListenerError, PeerName, TcpOptions, descriptors};
use pando_memory::Heap;
use thiserror::Error;
use tracing::{info, warn};

use crate::acceptor::{Acceptor, AcceptorHandle};
use crate::config::{BindAddress, Config};
use crate::limits;
use crate::manager::ServiceManager;
use crate::metrics::Metrics;
use crate::process;
use crate::progress;
use crate::registry::WireProtocol;
use crate::shared::{Listening, Shared};
use crate::signals::StopSignals;
use crate::worker::{Mailbox, Worker};

/// Why the server does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listener(#[from] ListenerError),
    /// `/metrics` cannot be served.
    #[error("cannot serve metrics on {address}: {error}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The directory of the pool cannot be looked at.
    #[error("{}: {error}", path.display())]
    Pool {
        /// The pool's file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Every address in `bind` was optional and unavailable, and there is no Unix socket.
    #[error("there is nothing to listen on: no address of bind is available")]
    NothingToListenOn,
    /// The process may open too few files to serve anybody.
    #[error(
        "the limit of open files is {limit}, expected at least {needed}: raise it with `ulimit -n`"
    )]
    Descriptors {
        /// The limit, raised as far as possible.
        limit: u64,
        /// The smallest useful limit.
        needed: u64,
    },
    /// The database refuses its settings.
    #[error("cannot open the database: {0}")]
    Database(#[from] OpenError),
    /// The file of the pool cannot be used.
    #[error("cannot open the pool {}: {error}", path.display())]
    UnusablePool {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        error: Box<PoolError>,
    },
    /// Nothing is known of the keys that this server has.
    #[error("cannot tell which keys this server has: {0}")]
    Placement(String),
    /// The kernel refuses a poller.
    #[error("cannot wait for events: {0}")]
    Poller(io::Error),
    /// The kernel refuses to deliver signals.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The kernel refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A running server. Stop it with [`Shared::request_shutdown`] and [`Self::wait`]; dropping it does
/// both.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<(AcceptorHandle, JoinHandle<()>)>,
    metrics: Option<Metrics>,
    replication: Vec<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<Worker>>,
    stopped: bool,
}

impl Server {
    /// Starts a server. `memory` reports how much the process has allocated; `signals` stop it;
    /// `manager` receives the progress of recovery.
    pub fn start(
        config: Config,
        memory: MemoryMeter,
        signals: Option<StopSignals>,
        manager: &Arc<ServiceManager>,
    ) -> Result<Self, StartError> {
        let durable = config.durability != Durability::None && !config.engine.has_pool();
        if !durable {
            tell_of_kept_data(&config);
        }
        let pool = config.pool_options().map_err(|error| StartError::Pool {
            path: config.pmem.clone().unwrap_or_default(),
            error,
        })?;
        let durability = durable.then(|| pando_db::DurabilityOptions {
            progress: Some(progress::reporter(Arc::clone(manager))),
            ..config.durability_options()
        });
        let path = config.pmem.clone();
        let started = Self::start_with(config, signals, |options| {
            let database = Database::open(pando_db::Options {
                memory,
                durability,
                pool,
                ..options
            })?;
            tell_of_recovery(&database);
            wait_for_log_files(&database);
            Ok(database)
        });
        started.map_err(|error| match (error, path) {
            (StartError::Database(OpenError::Pool(error)), Some(path)) => {
                let error = Box::new(error);
                StartError::UnusablePool { path, error }
            }
            (error, _) => error,
        })
    }

    /// Like [`Self::start`], on a database that `open` opens with the configuration's options.
    /// Nothing listens before it has returned.
    pub fn start_with(
        mut config: Config,
        signals: Option<StopSignals>,
        open: impl FnOnce(pando_db::Options) -> Result<Arc<Database>, OpenError>,
    ) -> Result<Self, StartError> {
        make_room_for_clients(&mut config)?;
        let threads = config.threads;
        let database = open(config.database_options())?;
        config.without_log = !database.is_durable();
        if config.without_log {
            config.durability = Durability::None;
        }
        let listeners = listen(&config)?;
        let metrics_listeners = listen_for_metrics(&config)?;
        let datagrams = listen_for_datagrams(&config)?;
        let reply_ratio = config.memcached_udp_reply_ratio;
        let mut listening = names(&listeners);
        for socket in datagrams.iter().flatten() {
            listening.memcached_udp.extend(socket.address());
        }
        let shared = Shared::new(config, database);
        let placed = shared.placings.load(&shared.database);
        placed.map_err(StartError::Placement)?;
        let mut server = Self {
            shared: Arc::clone(&shared),
            acceptor: None,
            metrics: None,
            keeper: None,
            replication: Vec::new(),
            workers: Vec::with_capacity(threads),
            stopped: false,
        };
        let mut mailboxes = Vec::with_capacity(threads);
        for (index, sockets) in datagrams.into_iter().enumerate() {
            mailboxes.push(server.start_worker(index, sockets, reply_ratio)?);
        }
        let told = Arc::downgrade(&shared);
        shared.database.on_durable(move |epoch| {
            if let Some(shared) = told.upgrade() {
                shared.look_at_log();
                shared.tell_durable(epoch);
            }
        });
        let told = Arc::downgrade(&shared);
        shared.database.on_ready(move |client| {
            if let Some(shared) = told.upgrade()
                && let Some(record) = shared.registry.get(client)
                && let Some(mailbox) = shared.mailbox(record.origin().worker)
            {
                mailbox.ready(client);
            }
        });
        // It may have failed before anybody could be told.
        shared.look_at_log();
        if shared.database.recovery().is_some() {
            let shared = Arc::clone(&shared);
            let run = move || shared.keeper.run(&shared);
            server.keeper = Some(spawn("keeper".into(), run)?);
        }
        let metrics = Metrics::start(&shared, metrics_listeners).map_err(StartError::Thread)?;
        metrics.addresses().clone_into(&mut listening.metrics);
        server.metrics = Some(metrics);
        shared.set_listening(listening);
        server.start_replication()?;
        let (acceptor, handle) =
            Acceptor::new(shared, listeners, mailboxes, signals).map_err(StartError::Poller)?;
        let thread = spawn("acceptor".into(), move || acceptor.run())?;
        server.acceptor = Some((handle, thread));
        Ok(server)
    }

    /// Follows the configured primary, if there is one, and feeds replicas.
    fn start_replication(&mut self) -> Result<(), StartError> {
        let shared = &self.shared;
        let target = shared.config().replication.target;
        let refusal = shared.refusal_of(target.is_some());
        let begun = shared.replication.begin(&shared.database, target, refusal);
        begun.map_err(OpenError::from)?;
        shared.judge_replicas();
        let (feeds, link) = (Arc::clone(shared), Arc::clone(shared));
        let feeds = spawn("replication".into(), move || feeds.replication.run(&feeds))?;
        self.replication.push(feeds);
        let link = spawn("link".into(), move || link.replication.run_link(&link))?;
        self.replication.push(link);
        Ok(())
    }

    fn start_worker(
        &mut self,
        index: usize,
        datagrams: Vec<DatagramSocket>,
        reply_ratio: usize,
    ) -> Result<Arc<Mailbox>, StartError> {
        let session = self.shared.database.session().map_err(OpenError::from)?;
        let shared = Arc::clone(&self.shared);
        let (mut worker, mailbox) =
            Worker::new(index, shared, session).map_err(StartError::Poller)?;
        worker
            .watch_datagrams(datagrams, reply_ratio)
            .map_err(StartError::Poller)?;
        self.shared.attach_worker(index, Arc::clone(&mailbox) as _);
        self.workers
            .push(spawn(format!("worker-{index}"), move || worker.run())?);
        Ok(mailbox)
    }

    /// The state that the server's threads share.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Waits until a shutdown is requested, meanwhile returning free memory of the allocator to the
    /// system, and then for its end: nothing is listened on any more, replies to executed requests
    /// are sent (or given up), the database is closed. Calls `stopping` when the shutdown begins.
    pub fn wait(mut self, stopping: impl FnOnce()) {
        let interval = Duration::from_millis(limits::HEAP_MS);
        let mut heap = Heap::default();
        while !self.shared.wait_for_shutdown_up_to(interval) {
            heap.tend(process::anonymous_bytes);
        }
        info!("the server stops");
        stopping();
        self.stop();
        info!("the server has stopped");
    }

    fn stop(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        self.shared.request_shutdown();
        if let Some((handle, thread)) = self.acceptor.take() {
            handle.stop();
            join(thread);
        }
        self.metrics = None;
        self.shared.keeper.stop(&self.shared.database);
        self.shared.replication.stop();
        for thread in self.replication.drain(..) {
            join(thread);
        }
        let workers: Vec<Worker> = self.workers.drain(..).filter_map(join).collect();
        if let Some(keeper) = self.keeper.take() {
            join(keeper);
        }
        self.shared.database.close();
        if let Err(error) = self.shared.database.close_log() {
            self.shared
                .fail(format!("the log could not be written to its end: {error}"));
        }
        // A client that sees its connection closed may start the next server at once: everything
        // that it needs has been released.
        for worker in workers {
            worker.close_connections();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until every log has a file to write to, so that the promised time until a write is durable
/// holds from the first write on. If a disk has no space, the writes themselves find out.
fn wait_for_log_files(database: &Database) {
    let deadline = Instant::now() + Duration::from_millis(limits::LOG_FILES_WAIT_MS);
    let logs = database
        .options()
        .durability
        .as_ref()
        .map_or(0, |it| it.logs);
    while Instant::now() < deadline && database.log_state() == Some(LogState::Open) {
        let log = database.log_statistics().unwrap_or_default();
        if log.free_files + log.segments >= logs {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reports data on disk that a server without a log leaves alone.
fn tell_of_kept_data(config: &Config) {
    let durability = config.durability_options();
    if pando_db::expect_database(&durability).is_ok() {
        let directory = durability.data_directory.display();
        let why = if config.engine.has_pool() {
            format!("engine {} keeps its data in a pool", config.engine.name())
        } else {
            "durability is none".to_owned()
        };
        warn!("{why}: the data kept in {directory} are neither loaded nor changed");
    }
}

/// Reports what a start found on disk.
fn tell_of_recovery(database: &Database) {
    let Some(found) = database.recovery() else {
        return;
    };
    for note in &found.notes {
        warn!("{note}");
    }
    if !found.torn.is_empty() {
        let epochs = found.torn.len();
        warn!(
            epochs,
            "the end of the log is torn: it was never completely on disk, and is dropped"
        );
    }
    info!(
        keys_loaded = found.loaded,
        records_replayed = found.replayed,
        load_ms = found.load_us / 1000,
        replay_ms = found.replay_us / 1000,
        "data read"
    );
}

fn spawn<R: Send + 'static>(
    name: String,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>, StartError> {
    std::thread::Builder::new()
        .name(name)
        .spawn(work)
        .map_err(StartError::Thread)
}

/// Waits for a thread. Its panic, if any, was already reported.
fn join<R>(thread: JoinHandle<R>) -> Option<R> {
    let result = thread.join();
    if result.is_err() {
        warn!("a thread of the server has panicked");
    }
    result.ok()
}

/// Raises the limit of open files for `maxclients` connections, or lowers `maxclients` to it.
fn make_room_for_clients(config: &mut Config) -> Result<(), StartError> {
    let reserved = limits::descriptors_reserved(config.threads);
    let limit = descriptors::raise_limit(config.clients_max as u64 + reserved);
    let possible = limit.saturating_sub(reserved);
    if possible == 0 {
        return Err(StartError::Descriptors {
            limit,
            needed: reserved + 1,
        });
    }
    if possible < config.clients_max as u64 {
        warn!(
            maxclients = possible,
            wanted = config.clients_max,
            open_files = limit,
            "maxclients is lowered to what the limit of open files allows"
        );
        config.clients_max = possible as usize;
    }
    Ok(())
}

/// Opens all configured listeners.
fn listen(config: &Config) -> Result<Vec<(Listener, WireProtocol)>, StartError> {
    let mut listeners = Vec::new();
    let ports = [
        (WireProtocol::Resp, config.port),
        (WireProtocol::Memcached, config.memcached_port),
    ];
    for (protocol, port) in ports {
        if let Some(port) = port {
            listen_on_port(config, port, |listener| {
                listeners.push((listener, protocol));
            })?;
        }
    }
    let sockets = [
        (WireProtocol::Resp, &config.unix_socket),
        (WireProtocol::Memcached, &config.memcached_socket),
    ];
    for (protocol, path) in sockets {
        if let Some(path) = path {
            let mode = (config.unix_socket_mode != 0).then_some(config.unix_socket_mode);
            let listener = Listener::unix(path, mode, config.tcp_backlog)?;
            listeners.push((listener, protocol));
        }
    }
    if listeners.is_empty() {
        return Err(StartError::NothingToListenOn);
    }
    Ok(listeners)
}

/// Listens on a port of every address. With port 0 all use the port that the first one got.
fn listen_on_port(
    config: &Config,
    mut port: u16,
    mut found: impl FnMut(Listener),
) -> Result<(), StartError> {
    let options = TcpOptions {
        backlog: config.tcp_backlog,
    };
    for bind in &config.bind {
        let listener = match Listener::tcp(SocketAddr::new(bind.ip, port), options) {
            Err(error) if bind.optional && error.is_unavailable() => continue,
            listener => listener?,
        };
        if let (0, Ok(PeerName::Tcp(address))) = (port, listener.name()) {
            port = address.port();
        }
        found(listener);
    }
    Ok(())
}

/// The UDP sockets of each worker, on its own port on every address of `bind`; without a reply
/// ratio only on loopback addresses (see `worker::datagrams`).
fn listen_for_datagrams(config: &Config) -> Result<Vec<Vec<DatagramSocket>>, StartError> {
    let mut workers: Vec<Vec<_>> = (0..config.threads).map(|_| Vec::new()).collect();
    let Some(first) = config.memcached_udp_port else {
        return Ok(workers);
    };
    for (index, sockets) in workers.iter_mut().enumerate() {
        // With port 0, a worker uses on all addresses the port that it got on the first.
        let mut port = if first == 0 { 0 } else { first + index as u16 };
        for bind in &config.bind {
            if config.memcached_udp_reply_ratio == 0 && !bind.ip.is_loopback() {
                continue;
            }
            let socket = match DatagramSocket::bind(SocketAddr::new(bind.ip, port)) {
                Err(error) if bind.optional && error.is_unavailable() => continue,
                socket => socket?,
            };
            if let (0, Ok(address)) = (port, socket.address()) {
                port = address.port();
            }
            sockets.push(socket);
        }
    }
    Ok(workers)
}

/// Listens for `/metrics` on the addresses of `bind`, or on the loopback when there are none.
fn listen_for_metrics(config: &Config) -> Result<Vec<TcpListener>, StartError> {
    let Some(mut port) = config.metrics_port else {
        return Ok(Vec::new());
    };
    let loopback = [BindAddress {
        ip: Ipv4Addr::LOCALHOST.into(),
        optional: false,
    }];
    let bind = if config.bind.is_empty() {
        &loopback[..]
    } else {
        &config.bind
    };
    let mut listeners = Vec::new();
    for bind in bind {
        let address = SocketAddr::new(bind.ip, port);
        match TcpListener::bind(address) {
            Ok(listener) => {
                if let (0, Ok(address)) = (port, listener.local_addr()) {
                    port = address.port();
                }
                listeners.push(listener);
            }
            Err(error) if bind.optional && !is_taken_or_forbidden(&error) => {}
            Err(error) => return Err(StartError::Metrics { address, error }),
        }
    }
    Ok(listeners)
}

/// Whether the machine has the address, but this process may not use it.
fn is_taken_or_forbidden(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
    )
}

fn names(listeners: &[(Listener, WireProtocol)]) -> Listening {
    let mut listening = Listening::default();
    for (listener, protocol) in listeners {
        match (listener.name(), protocol) {
            (Ok(PeerName::Tcp(address)), WireProtocol::Resp) => listening.tcp.push(address),
            (Ok(PeerName::Tcp(address)), WireProtocol::Memcached) => {
                listening.memcached.push(address);
            }
            (Ok(PeerName::Unix(path)), protocol) => {
                let socket = match protocol {
                    WireProtocol::Resp => &mut listening.unix_socket,
                    WireProtocol::Memcached => &mut listening.memcached_socket,
                };
                *socket = Some(path.to_path_buf());
            }
            (Err(error), _) => warn!(%error, "a listener has no name"),
        }
    }
    listening
}
