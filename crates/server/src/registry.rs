//! Every open connection, for CLIENT LIST, CLIENT KILL and INFO.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `Registry::clients` | the worker of a connection | mutex | CLIENT, INFO |
//! | `Registry::next_id`, `received`, `rejected` | the accepting thread | `Relaxed` | INFO |
//! | `ClientRecord`'s atomics | the worker of the connection | `Relaxed` | CLIENT LIST, INFO |
//! | `ClientRecord::names` | the connection's own commands | mutex | CLIENT LIST, SLOWLOG |
//!
//! A reader may see values of one connection that are a batch apart: they are independent.
//!
//! Deliberately absent: sockets. A connection is closed through its worker's [`WorkerMailbox`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_db::{Client, LogEpoch};
use pando_protocol::RespVersion;

use crate::shared::lock;

/// How other threads reach the worker that owns a connection; the event loop implements it. No
/// method waits.
pub trait WorkerMailbox: Send + Sync {
    /// Closes this client's connection soon, without a reply; does nothing when it is gone.
    fn close(&self, client: u64);

    /// Appends bytes to the output of this client (a monitor); does nothing when it is gone.
    fn deliver(&self, client: u64, bytes: &Arc<[u8]>);

    /// Appends bytes to the output of this client (a replica); nothing is dropped: the caller
    /// bounds what is on its way. `carried` is dropped when that is done.
    fn send(&self, client: u64, bytes: Vec<u8>, carried: Arc<()>);

    /// Everything up to this log epoch is durable: replies may be sent.
    fn durable(&self, epoch: LogEpoch);

    /// Executes the request of this client again if it waits for keys.
    fn ready(&self, client: u64);

    /// Ends this client's wait of this number, with an error or as if it had timed out; does
    /// nothing when it has already ended.
    fn unblock(&self, client: u64, wait: u64, by_error: bool);

    /// Makes the worker look at the shared state again: shutdown, the end of a pause or of a save.
    fn wake(&self);
}

/// The special states of a connection; the letters of CLIENT LIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClientFlag {
    /// Sees every command (MONITOR).
    Monitor,
    /// Closes after its output is sent.
    Closing,
    /// Came over the Unix socket.
    UnixSocket,
    /// CLIENT NO-EVICT ON.
    NoEvict,
    /// CLIENT NO-TOUCH ON.
    NoTouch,
    /// Waits for something: a pause, DEBUG SLEEP, the next slice, WAITAOF, SAVE.
    Blocked,
    /// Replies to it wait for the disk.
    Held,
    /// Follows this server (PREPLICATE).
    Replica,
}

/// The names that the connection gave itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: Box<[u8]>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Box<[u8]>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Box<[u8]>,
}

/// Sizes of a connection's buffers in bytes, as last reported by its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// Unprocessed input.
    pub query_bytes: usize,
    /// Free space in the input buffer.
    pub query_free_bytes: usize,
    /// Output that the socket has not taken yet.
    pub output_bytes: usize,
    /// Heap bytes of the output buffer.
    pub output_capacity_bytes: usize,
}

/// The protocol of a connection, determined by its listening socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireProtocol {
    /// Redis'.
    #[default]
    Resp,
    /// memcached's, text and meta.
    Memcached,
}

/// What is known of a connection before its first byte.
#[derive(Clone, Debug)]
pub struct ClientOrigin {
    /// The worker that serves it.
    pub worker: usize,
    /// The file descriptor.
    pub descriptor: i32,
    /// The peer: `127.0.0.1:50000`, or `/path:0` for a Unix socket.
    pub address: String,
    /// The server's end: `127.0.0.1:6379`, or `/path:0`.
    pub local_address: String,
    /// Whether it came over the Unix socket.
    pub unix_socket: bool,
    /// Its protocol.
    pub protocol: WireProtocol,
}

/// One connection as others see it; its worker updates the atomics.
#[derive(Debug)]
pub struct ClientRecord {
    id: u64,
    origin: ClientOrigin,
    /// Milliseconds since the server's start.
    created_ms: u64,
    names: Mutex<ClientNames>,
    last_interaction_ms: AtomicU64,
    /// A command's place in [`crate::CommandIndex`]; [`NO_COMMAND`] before the first.
    last_command: AtomicU16,
    database: AtomicU32,
    protocol: AtomicU8,
    authenticated: AtomicBool,
    /// Requests that MULTI has queued; −1 outside a transaction.
    queued_requests: AtomicI64,
    watched_keys: AtomicUsize,
    transaction_bytes: AtomicUsize,
    query_bytes: AtomicUsize,
    query_free_bytes: AtomicUsize,
    output_bytes: AtomicUsize,
    output_capacity_bytes: AtomicUsize,
    flags: AtomicU8,
    killed: AtomicBool,
    /// Why: its requests took too much memory.
    shed: AtomicBool,
    /// Bytes that its requests take before they run.
    request_bytes: AtomicUsize,
    /// The number of waits so far that CLIENT UNBLOCK may end, times two; plus one during a wait
    /// that nobody has ended.
    wait: AtomicU64,
}

/// [`ClientRecord::last_command`] before the first command.
pub(crate) const NO_COMMAND: u16 = u16::MAX;

impl ClientRecord {
    pub(crate) fn new(id: u64, origin: ClientOrigin, now_ms: u64) -> Self {
        let record = Self {
            id,
            created_ms: now_ms,
            names: Mutex::default(),
            last_interaction_ms: AtomicU64::new(now_ms),
            last_command: AtomicU16::new(NO_COMMAND),
            database: AtomicU32::new(0),
            protocol: AtomicU8::new(2),
            authenticated: AtomicBool::new(false),
            queued_requests: AtomicI64::new(-1),
            watched_keys: AtomicUsize::new(0),
            transaction_bytes: AtomicUsize::new(0),
            query_bytes: AtomicUsize::new(0),
            query_free_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            output_capacity_bytes: AtomicUsize::new(0),
            flags: AtomicU8::new(0),
            killed: AtomicBool::new(false),
            shed: AtomicBool::new(false),
            request_bytes: AtomicUsize::new(0),
            wait: AtomicU64::new(0),
            origin,
        };
        record.set_flag(ClientFlag::UnixSocket, record.origin.unix_socket);
        record
    }

    /// CLIENT ID: unique for the life of the server.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where it came from and who serves it.
    #[must_use]
    pub fn origin(&self) -> &ClientOrigin {
        &self.origin
    }

    /// When it was accepted, in milliseconds since the server's start.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// When it last sent something, in milliseconds since the server's start.
    #[must_use]
    pub fn last_interaction_ms(&self) -> u64 {
        self.last_interaction_ms.load(Ordering::Relaxed)
    }

    /// Records that the client has sent something.
    #[inline]
    pub fn interacted(&self, now_ms: u64) {
        self.last_interaction_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Records the sizes of its buffers; once per turn is enough.
    #[inline]
    pub fn set_buffers(&self, sizes: BufferSizes) {
        self.query_bytes.store(sizes.query_bytes, Ordering::Relaxed);
        self.query_free_bytes
            .store(sizes.query_free_bytes, Ordering::Relaxed);
        self.output_bytes
            .store(sizes.output_bytes, Ordering::Relaxed);
        self.output_capacity_bytes
            .store(sizes.output_capacity_bytes, Ordering::Relaxed);
    }

    /// The sizes of its buffers.
    #[must_use]
    pub fn buffers(&self) -> BufferSizes {
        BufferSizes {
            query_bytes: self.query_bytes.load(Ordering::Relaxed),
            query_free_bytes: self.query_free_bytes.load(Ordering::Relaxed),
            output_bytes: self.output_bytes.load(Ordering::Relaxed),
            output_capacity_bytes: self.output_capacity_bytes.load(Ordering::Relaxed),
        }
    }

    /// Records what commands on connections and transactions changed of a client; the host calls it
    /// after them.
    #[inline]
    pub(crate) fn observe(&self, client: &Client) {
        self.database
            .store(client.database as u32, Ordering::Relaxed);
        let protocol = if client.protocol == RespVersion::Resp3 {
            3
        } else {
            2
        };
        self.protocol.store(protocol, Ordering::Relaxed);
        self.authenticated
            .store(client.authenticated, Ordering::Relaxed);
        let queued = client.queued_requests().map_or(-1, |count| count as i64);
        self.queued_requests.store(queued, Ordering::Relaxed);
        self.watched_keys
            .store(client.watched_keys(), Ordering::Relaxed);
        self.transaction_bytes
            .store(client.heap_bytes(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_last_command(&self, command: u16) {
        self.last_command.store(command, Ordering::Relaxed);
    }

    pub(crate) fn last_command(&self) -> u16 {
        self.last_command.load(Ordering::Relaxed)
    }

    /// The selected database.
    #[must_use]
    pub fn database(&self) -> u32 {
        self.database.load(Ordering::Relaxed)
    }

    /// The protocol version, 2 or 3.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol.load(Ordering::Relaxed)
    }

    /// Whether it may run commands beyond AUTH and HELLO.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Requests that MULTI has queued; −1 outside a transaction.
    #[must_use]
    pub fn queued_requests(&self) -> i64 {
        self.queued_requests.load(Ordering::Relaxed)
    }

    /// Keys being watched.
    #[must_use]
    pub fn watched_keys(&self) -> usize {
        self.watched_keys.load(Ordering::Relaxed)
    }

    /// Bytes that its transaction and watches hold.
    #[must_use]
    pub fn transaction_bytes(&self) -> usize {
        self.transaction_bytes.load(Ordering::Relaxed)
    }

    /// Whether it has the flag.
    #[must_use]
    pub fn has(&self, flag: ClientFlag) -> bool {
        self.flags.load(Ordering::Relaxed) & (1 << flag as u8) != 0
    }

    /// Sets or clears a flag. Only the connection's worker calls it.
    pub fn set_flag(&self, flag: ClientFlag, on: bool) {
        let flags = self.flags.load(Ordering::Relaxed);
        let bit = 1 << flag as u8;
        self.flags.store(
            if on { flags | bit } else { flags & !bit },
            Ordering::Relaxed,
        );
    }

    /// Begins a wait that CLIENT UNBLOCK may end. Called by its worker.
    pub(crate) fn begin_wait(&self) {
        let wait = self.wait.load(Ordering::Relaxed);
        // Whoever claims a wait ends one, and only the worker begins the next.
        debug_assert!(wait & 1 == 0);
        let waits = wait >> 1;
        self.wait.store((waits + 1) << 1 | 1, Ordering::Relaxed);
    }

    /// Ends the wait, if there was one. Called by its worker.
    pub(crate) fn end_wait(&self) {
        self.wait.fetch_and(!1, Ordering::Relaxed);
    }

    /// Ends the wait, once; returns its number, to be passed to the worker.
    pub(crate) fn claim_wait(&self) -> Option<u64> {
        let wait = self.wait.fetch_and(!1, Ordering::Relaxed);
        (wait & 1 == 1).then_some(wait >> 1)
    }

    /// The number of the last wait.
    pub(crate) fn last_wait(&self) -> u64 {
        self.wait.load(Ordering::Relaxed) >> 1
    }

    /// The names it gave itself.
    #[must_use]
    pub fn names(&self) -> ClientNames {
        lock(&self.names).clone()
    }

    pub(crate) fn change_names(&self, change: impl FnOnce(&mut ClientNames)) {
        change(&mut lock(&self.names));
    }

    /// Whether CLIENT KILL has matched it; its worker executes nothing more of it.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    /// Ends it because its requests take too much memory.
    pub(crate) fn shed(&self) {
        self.shed.store(true, Ordering::Relaxed);
        self.kill();
    }

    /// Whether [`Self::shed`] has ended it.
    pub(crate) fn is_shed(&self) -> bool {
        self.shed.load(Ordering::Relaxed)
    }

    /// Bytes that its requests take before they run.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// Records that its requests take this many bytes now; returns how many more than before.
    pub(crate) fn set_request_bytes(&self, bytes: usize) -> isize {
        let before = self.request_bytes.load(Ordering::Relaxed);
        self.request_bytes.store(bytes, Ordering::Relaxed);
        bytes.wrapping_sub(before).cast_signed()
    }

    /// Bytes of memory that the connection holds, as last reported by its worker.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.buffers();
        let query = buffers.query_bytes + buffers.query_free_bytes;
        size_of::<Self>() + query + buffers.output_capacity_bytes + self.transaction_bytes()
    }
}

/// All open connections.
#[derive(Debug, Default)]
pub struct Registry {
    clients: Mutex<BTreeMap<u64, Arc<ClientRecord>>>,
    last_id: AtomicU64,
    received: AtomicU64,
    rejected: AtomicU64,
}

impl Registry {
    /// Adds a connection, unless there are already `clients_max` (then it is counted as rejected).
    pub fn register(
        &self,
        origin: ClientOrigin,
        clients_max: usize,
        now_ms: u64,
    ) -> Option<Arc<ClientRecord>> {
        self.received.fetch_add(1, Ordering::Relaxed);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let mut clients = lock(&self.clients);
        if clients.len() >= clients_max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let record = Arc::new(ClientRecord::new(id, origin, now_ms));
        let before = clients.insert(id, Arc::clone(&record));
        assert!(before.is_none(), "ids do not come back");
        Some(record)
    }

    /// Counts a connection that is refused for another reason.
    pub(crate) fn refuse(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: u64) {
        let removed = lock(&self.clients).remove(&id);
        assert!(removed.is_some(), "removed once");
    }

    /// Open connections.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.clients).len()
    }

    /// Whether no connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The connection of this number.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Arc<ClientRecord>> {
        lock(&self.clients).get(&id).cloned()
    }

    /// All connections, oldest first. O(connections).
    #[must_use]
    pub fn snapshot(&self) -> Vec<Arc<ClientRecord>> {
        lock(&self.clients).values().cloned().collect()
    }

    /// Connections accepted so far, including refused ones.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Connections refused, for `maxclients` or by protected mode.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> ClientOrigin {
        ClientOrigin {
            worker: 0,
            descriptor: 3,
            address: "127.0.0.1:1".into(),
            local_address: "127.0.0.1:2".into(),
            unix_socket: true,
            protocol: WireProtocol::Resp,
        }
    }

    #[test]
    fn connections_beyond_the_bound_are_rejected_and_counted() {
        let registry = Registry::default();
        let first = registry.register(origin(), 1, 0).unwrap();
        assert!(registry.register(origin(), 1, 0).is_none());
        registry.remove(first.id());
        let third = registry.register(origin(), 1, 0).unwrap();
        assert_eq!((first.id(), third.id()), (1, 3), "numbers are used once");
        assert_eq!(
            (registry.received(), registry.rejected(), registry.len()),
            (3, 1, 1)
        );
    }

    #[test]
    fn a_wait_is_ended_once() {
        let record = ClientRecord::new(1, origin(), 0);
        assert_eq!(record.claim_wait(), None);
        record.begin_wait();
        let first = record.claim_wait();
        assert_eq!(first, Some(record.last_wait()));
        assert_eq!(record.claim_wait(), None);
        record.end_wait();
        record.begin_wait();
        assert_ne!(Some(record.last_wait()), first);
        record.end_wait();
        assert_eq!(record.claim_wait(), None);
    }

    #[test]
    fn flags_stand_for_themselves() {
        let record = ClientRecord::new(1, origin(), 0);
        assert!(record.has(ClientFlag::UnixSocket) && !record.has(ClientFlag::Monitor));
        record.set_flag(ClientFlag::Monitor, true);
        record.set_flag(ClientFlag::UnixSocket, false);
        assert!(record.has(ClientFlag::Monitor) && !record.has(ClientFlag::UnixSocket));
    }
}
