//! The database's state of one connection.

use crate::clock::Microseconds;

use pando_engine::LogEpoch;
use pando_protocol::RespVersion;

use crate::acknowledge::{Durability, Replicated};
use crate::lines::Blocked;
pub use crate::settings::ReplyMode;
use crate::settings::Settings;
use crate::snapshots::Lease;
use crate::transaction::Transaction;
use crate::watch::Watches;

/// The state of one connection, as far as commands change it.
#[derive(Debug)]
pub struct Client {
    /// Unique for the life of the server; CLIENT ID.
    pub id: u64,
    /// The selected database.
    pub database: usize,
    /// The index of database 0 of the branch that it uses (`branches`).
    pub(crate) base: usize,
    /// The protocol of the replies.
    pub protocol: RespVersion,
    /// Whether commands beyond AUTH and HELLO are allowed.
    pub authenticated: bool,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// CLIENT NO-TOUCH: reads leave access marks alone.
    pub no_touch: bool,
    /// When its requests are answered (CLIENT DURABILITY).
    pub durability: Durability,
    /// Whose disks its replies wait for besides; its mode is [`Durability::Sync`] then.
    pub replicated: Option<Replicated>,
    /// See [`Self::awaits`].
    pub(crate) awaits: LogEpoch,
    /// See [`Self::unacknowledged`].
    pub(crate) unacknowledged: LogEpoch,
    /// The next request was already delayed (see `turn::pressure`).
    pub(crate) delayed: bool,
    /// When it began to wait for memory, in microseconds; 0 when it does not (see `turn::memory`).
    pub(crate) waits_since: Option<Microseconds>,
    /// That the engine's pool had no block for its next request (see `turn::memory`).
    pub(crate) lacks_room: Option<LacksRoom>,
    /// Keys of a memcached request that were answered before its output was full.
    pub(crate) answered_keys: usize,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) watches: Watches,
    /// The snapshot that it reads, if not the present (SNAPSHOT USE); it may have been dropped.
    pub(crate) uses: Option<Lease>,
    /// Its place in the lines of keys, while its command waits for them.
    pub(crate) blocked: Option<Box<Blocked>>,
    /// Of the current run.
    pub(crate) undo: Option<Undo>,
}

/// Since when a request has had no room, and how often it has run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LacksRoom {
    pub(crate) since: Microseconds,
    pub(crate) runs: usize,
}

/// What the current run has changed of a client besides its settings (RR1 effects-once).
#[derive(Debug)]
pub(crate) enum Undo {
    /// EXEC has taken the transaction and the watches.
    Exec(Exec),
    /// WATCH has added keys, in a database.
    Watched { index: usize, keys: Vec<Box<[u8]>> },
}

/// An EXEC in progress.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) transaction: Box<Transaction>,
    pub(crate) watches: Watches,
}

impl Client {
    /// Its settings, to be restored.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            database: self.database,
            base: self.base,
            protocol: self.protocol,
            authenticated: self.authenticated,
            reply_mode: self.reply_mode,
            no_touch: self.no_touch,
            durability: self.durability,
            replicated: self.replicated,
            answered_keys: self.answered_keys,
            uses: self.uses.clone(),
        }
    }

    /// Gives it these settings.
    pub(crate) fn set(&mut self, settings: Settings) {
        Settings {
            database: self.database,
            base: self.base,
            protocol: self.protocol,
            authenticated: self.authenticated,
            reply_mode: self.reply_mode,
            no_touch: self.no_touch,
            durability: self.durability,
            replicated: self.replicated,
            answered_keys: self.answered_keys,
            uses: self.uses,
        } = settings;
    }

    /// The index of the selected database, of the branch that it uses.
    #[must_use]
    #[inline]
    pub fn index(&self) -> usize {
        self.index_of(self.database)
    }

    /// The index of a database, of the branch that it uses.
    #[must_use]
    #[inline]
    pub fn index_of(&self, database: usize) -> usize {
        self.base + database
    }

    /// A new connection.
    #[must_use]
    pub fn new(id: u64, authenticated: bool) -> Self {
        Self {
            id,
            database: 0,
            base: 0,
            protocol: RespVersion::Resp2,
            authenticated,
            reply_mode: ReplyMode::On,
            no_touch: false,
            durability: Durability::default(),
            replicated: None,
            awaits: LogEpoch::NONE,
            unacknowledged: LogEpoch::NONE,
            delayed: false,
            waits_since: None,
            lacks_room: None,
            answered_keys: 0,
            transaction: None,
            watches: Watches::default(),
            undo: None,
            blocked: None,
            uses: None,
        }
    }

    /// The epoch that must be durable before the reply to its last request, or any later one, is
    /// sent; none when there was nothing to wait for yet. Never decreases but by
    /// [`Self::take_awaits`].
    #[must_use]
    #[inline]
    pub fn awaits(&self) -> LogEpoch {
        self.awaits
    }

    /// The same of the last request alone. For a host that looks at each reply by itself.
    pub fn take_awaits(&mut self) -> LogEpoch {
        std::mem::replace(&mut self.awaits, LogEpoch::NONE)
    }

    /// The last epoch in which it has written since [`Self::acknowledged`], none if it has not. A
    /// reply that reveals it is sent when [`crate::Database::may_acknowledge`] allows it.
    #[must_use]
    #[inline]
    pub fn unacknowledged(&self) -> LogEpoch {
        self.unacknowledged
    }

    /// All its replies are sent.
    #[inline]
    pub fn acknowledged(&mut self) {
        self.unacknowledged = LogEpoch::NONE;
    }

    /// Requests queued by MULTI, or `None` outside a transaction.
    #[must_use]
    pub fn queued_requests(&self) -> Option<usize> {
        self.transaction.as_deref().map(Transaction::len)
    }

    /// Whether its EXEC would be as brief as what is queued, which is: it waits for no gates.
    #[must_use]
    pub fn execs_briefly(&self) -> bool {
        self.transaction
            .as_deref()
            .is_some_and(Transaction::is_brief)
    }

    /// Keys being watched.
    #[must_use]
    pub fn watched_keys(&self) -> usize {
        self.watches.len()
    }

    /// Heap bytes of its transaction and watches.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.transaction
            .as_deref()
            .map_or(0, Transaction::heap_bytes)
            + self.watches.heap_bytes()
    }
}
