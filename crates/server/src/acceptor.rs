//! The acceptor: one thread that waits on the listening sockets and hands each new connection to
//! the worker with the fewest.
//!
//! It also waits for signals, so they need no thread of their own. When the process has run out of
//! file descriptors, connections stay with the kernel and are tried again later.
//!
//! Deliberately absent: reading and writing, except the one line that refuses a client beyond
//! `maxclients` or in protected mode.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pando_io::{Accepted, Interest, Listener, Poller, Token, Waker};
use tracing::{info, warn};

use crate::limits;
use crate::protection;
use crate::registry::{ClientOrigin, WireProtocol};
use crate::shared::Shared;
use crate::signals::StopSignals;
use crate::worker::{Mailbox, NewConnection};

/// The reply to a client beyond `maxclients`.
fn too_many_clients(protocol: WireProtocol) -> &'static [u8] {
    match protocol {
        WireProtocol::Resp => b"-ERR max number of clients reached\r\n",
        WireProtocol::Memcached => b"ERROR Too many open connections\r\n",
    }
}

/// The poller's tokens; listeners are counted from [`FIRST_LISTENER`].
const WAKER: Token = Token(0);
const SIGNALS: Token = Token(1);
const FIRST_LISTENER: usize = 2;

/// Ends an acceptor from another thread.
#[derive(Debug)]
pub(crate) struct AcceptorHandle {
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl AcceptorHandle {
    /// Makes the acceptor close its listeners and end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    poller: Poller,
    listeners: Vec<(Listener, WireProtocol)>,
    workers: Vec<Arc<Mailbox>>,
    signals: Option<StopSignals>,
    stop: Arc<AtomicBool>,
    /// Whether the log has reported that protected mode refuses connections.
    refusals_told: bool,
    /// Descriptors have run out; some listener has unaccepted connections.
    short: bool,
}

impl Acceptor {
    /// An acceptor for `listeners` that feeds `workers`; `signals` stop the server.
    pub(crate) fn new(
        shared: Arc<Shared>,
        listeners: Vec<(Listener, WireProtocol)>,
        workers: Vec<Arc<Mailbox>>,
        signals: Option<StopSignals>,
    ) -> io::Result<(Self, AcceptorHandle)> {
        assert_eq!(workers.len(), shared.workers());
        let poller = Poller::new(limits::EVENTS_MAX, WAKER)?;
        for (index, (listener, _)) in listeners.iter().enumerate() {
            poller.add(listener, Token(FIRST_LISTENER + index), Interest::Read)?;
        }
        if let Some(signals) = &signals {
            poller.add(signals, SIGNALS, Interest::Read)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let handle = AcceptorHandle {
            stop: Arc::clone(&stop),
            waker: poller.waker(),
        };
        let acceptor = Self {
            shared,
            poller,
            listeners,
            workers,
            signals,
            stop,
            refusals_told: false,
            short: false,
        };
        Ok((acceptor, handle))
    }

    /// Accepts until stopped; then the listeners are closed.
    pub(crate) fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let timeout = self
                .short
                .then(|| Duration::from_millis(limits::ACCEPT_RETRY_MS));
            let signalled = match self.poller.wait(timeout) {
                // Every listener is tried: a connection may have been left on any.
                Ok(mut events) => events.any(|ready| ready.token == SIGNALS),
                Err(error) => panic!("the acceptor's poller failed: {error}"),
            };
            if signalled
                && let Some(signals) = &mut self.signals
                && signals.take()
            {
                info!("a signal asks the server to stop");
                // A second signal is not so patient.
                if !self.shared.shut_down_after_replicas() {
                    self.shared.request_shutdown();
                }
            }
            let was_short = std::mem::take(&mut self.short);
            for index in 0..self.listeners.len() {
                self.accept_all(index, was_short);
            }
        }
    }

    /// Accepts all connections waiting on one listener.
    fn accept_all(&mut self, index: usize, was_short: bool) {
        loop {
            let (listener, protocol) = &self.listeners[index];
            match listener.accept() {
                Ok(Some(accepted)) => {
                    let protocol = *protocol;
                    if protection::refuses(&self.shared.settings, &accepted.peer) {
                        self.refuse(&accepted, protocol);
                    } else {
                        self.hand_over(accepted, protocol);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    if !was_short && !self.short {
                        warn!(%error, "cannot accept connections; trying again");
                    }
                    self.short = true;
                    return;
                }
            }
        }
    }

    /// Tells a client why it is refused; the log reports it once.
    fn refuse(&mut self, accepted: &Accepted, protocol: WireProtocol) {
        if !std::mem::replace(&mut self.refusals_told, true) {
            warn!(
                address = %accepted.peer,
                "protected mode refuses a connection; further refusals are not logged"
            );
        }
        self.shared.registry.refuse();
        // A courtesy, as below.
        let _ = accepted.stream.write(protection::refusal(protocol));
    }

    fn hand_over(&self, accepted: Accepted, protocol: WireProtocol) {
        let load = |(_, worker): &(usize, &Arc<Mailbox>)| worker.connections();
        let Some((index, worker)) = self.workers.iter().enumerate().min_by_key(load) else {
            return;
        };
        let origin = ClientOrigin {
            worker: index,
            descriptor: accepted.stream.descriptor(),
            address: accepted.peer.to_string(),
            local_address: accepted.local.to_string(),
            unix_socket: !accepted.stream.is_tcp(),
            protocol,
        };
        let clients_max = self.shared.settings.clients_max();
        let now_ms = self.shared.now_ms();
        let Some(record) = self.shared.registry.register(origin, clients_max, now_ms) else {
            // A courtesy; a client that cannot take it at once sees the connection end.
            let _ = accepted.stream.write(too_many_clients(protocol));
            return;
        };
        let connection = Box::new(NewConnection {
            stream: accepted.stream,
            record,
        });
        if let Err(connection) = worker.serve(connection) {
            self.shared.disconnect(&connection.record);
        }
    }
}
